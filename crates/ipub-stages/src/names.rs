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
        let near = near(name, &names);
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

/// The names nearest to one that may be short.
fn near<'a>(wanted: &str, names: &[&'a str]) -> Vec<&'a str> {
    let parts = wanted.split('.').count();
    let end = |name: &'a str| {
        let mut dots = name.rmatch_indices('.').map(|(at, _)| at + 1);
        &name[dots.nth(parts - 1).unwrap_or(0)..]
    };
    let forms = names.iter().flat_map(|name| [*name, end(name)]);
    let mut found: Vec<&str> = Vec::new();
    for form in nearest(wanted, forms) {
        let of_form = names
            .iter()
            .filter(|name| **name == form || end(name) == form);
        for name in of_form {
            if !found.contains(name) {
                found.push(name);
            }
        }
    }
    found
}
