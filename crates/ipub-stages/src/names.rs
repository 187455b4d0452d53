//! Decisions that overrides name: `gemm.NAME.PART` and `cast.NAME`, where a name may be short.

use ipu_plan::{NameError, Recipe, resolve};
use ipub_engine::{StageFailure, nearest};

/// `key` with the full name of the decision that it means.
pub fn full_key(recipe: &Recipe, key: &str) -> Result<String, StageFailure> {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let (name, part) = match section {
        "gemm" => rest.rsplit_once('.').unwrap_or((rest, "")),
        _ => (rest, ""),
    };
    let names: Vec<&str> = match section {
        "gemm" => recipe.gemm.keys().map(String::as_str).collect(),
        _ => recipe.cast.keys().map(String::as_str).collect(),
    };
    let whole = |name: &str| match part {
        "" => format!("{section}.{name}"),
        part => format!("{section}.{name}.{part}"),
    };
    let quoted = |name: &&str| format!("`{}`", whole(name));
    let error = match resolve(name, names.iter().copied()) {
        Ok(name) => return Ok(whole(name)),
        Err(error) => error,
    };
    let mut failure = StageFailure::usage(format!("`{key}`: {error}"));
    if error == NameError::Unknown {
        let near = nearest(name, names.iter().copied());
        failure.help = Some(match near.is_empty() {
            true => {
                let all: Vec<_> = names.iter().map(quoted).collect();
                format!("there are {}", all.join(", "))
            }
            false => {
                let near: Vec<_> = near.iter().map(quoted).collect();
                format!("did you mean {}?", near.join(" or "))
            }
        });
    }
    Err(failure)
}
