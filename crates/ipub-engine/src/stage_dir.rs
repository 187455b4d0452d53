//! One stage from a folder of declared inputs to a folder of outputs.
//!
//! ```text
//! in/params.json            {"target": {"name", "digest"}, "outputs": [...], "params": {...}}
//! in/inputs/<name>          a single input: a file
//! in/inputs/<name>/...      a set of source files: a folder
//! out/<output>              each output
//! out/payload               the detail of a failure
//! out/result.json           outcome, outputs with digests, notes
//! ```
//!
//! An input that is absent has no file. The outputs are the same bytes as in a build.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ipub_base::{Diagnostic, Digest, Location, NoMemo};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Request, TargetId};
use crate::event::{EventSink, OutputInfo};
use crate::exec::Execution;
use crate::failure::StageFailure;
use crate::guard::run_guarded;
use crate::inputs::{Given, InputFile, Params, StageImpl, StageInputs};
use crate::resolve::Plan;
use crate::value::Value;

type Result<T> = std::result::Result<T, Diagnostic>;

const PARAMS: &str = "params.json";
pub(crate) const RESULT: &str = "result.json";
const INPUTS: &str = "inputs";
pub(crate) const PAYLOAD: &str = "payload";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageParams {
    target: TargetJson,
    outputs: Vec<String>,
    /// Inputs that the rule declares and the target does not have.
    #[serde(default)]
    absent: Vec<String>,
    params: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetJson {
    name: String,
    digest: Digest,
}

/// What a stage made of its folder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageDirResult {
    /// `ok`, or the kind of failure.
    pub outcome: String,
    /// What happened, if it failed.
    pub message: Option<String>,
    /// The outputs.
    pub outputs: Vec<OutputInfo>,
    /// Counts and remarks of the stage.
    pub notes: BTreeMap<String, serde_json::Value>,
}

/// Runs `stage` on the folder `input` and writes its outputs into the folder `output`. A failure
/// of the stage is returned after it was written to `result.json`.
pub fn run_stage_dir(
    stage: &dyn StageImpl,
    input: &Path,
    output: &Path,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Result<std::result::Result<StageDirResult, StageFailure>> {
    let declared = read_params(&input.join(PARAMS))?;
    let mut given = read_inputs(&input.join(INPUTS))?;
    for name in declared.absent {
        given.entry(name).or_insert(Given::Absent);
    }
    let target = TargetId {
        name: declared.target.name,
        digest: declared.target.digest,
    };
    let inputs = StageInputs {
        given,
        params: Params(declared.params),
        target: &target,
        memo: &NoMemo,
        store: None,
        progress,
        lost: Mutex::new(None),
        read_bytes: std::sync::atomic::AtomicU64::new(0),
    };
    std::fs::create_dir_all(output).map_err(|error| unwritable(output, &error))?;
    let write = |name: &str, bytes: &[u8]| {
        let path = output.join(name);
        std::fs::write(&path, bytes).map_err(|error| unwritable(&path, &error))
    };
    let ran = run_guarded(stage, &inputs, &declared.outputs);
    let mut result = StageDirResult {
        outcome: "ok".to_owned(),
        message: None,
        outputs: Vec::new(),
        notes: BTreeMap::new(),
    };
    let failure = match ran {
        Ok(outputs) => {
            for name in &declared.outputs {
                let bytes = &outputs.blobs[name];
                write(name, bytes)?;
                let (digest, size) = (Digest::of(bytes), bytes.len() as u64);
                result.outputs.push(OutputInfo {
                    name: name.clone(),
                    digest,
                    size,
                });
            }
            result.notes = outputs.notes;
            None
        }
        Err(failure) => {
            if let Some(payload) = &failure.payload {
                write(PAYLOAD, payload)?;
            }
            result.outcome = failure.kind.name().to_owned();
            result.message = Some(failure.message.clone());
            Some(failure)
        }
    };
    write(RESULT, &json(&result)?)?;
    Ok(failure.map_or(Ok(result), Err))
}

fn read_params(path: &Path) -> Result<StageParams> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let location = Location {
            file: path.display().to_string(),
            line: error.line() as u32,
            column: error.column() as u32,
        };
        Diagnostic::usage(error.to_string()).at(location)
    })
}

fn read_inputs(dir: &Path) -> Result<BTreeMap<String, Given>> {
    let mut given = BTreeMap::new();
    if !dir.is_dir() {
        return Ok(given);
    }
    for name in list(dir)? {
        let path = dir.join(&name);
        let single = !path.is_dir();
        let mut files = Vec::new();
        if single {
            files.push(input_file(name.clone(), path)?);
        } else {
            collect(&path, "", &mut files)?;
        }
        given.insert(name, Given::Files { files, single });
    }
    Ok(given)
}

fn collect(dir: &Path, prefix: &str, files: &mut Vec<InputFile>) -> Result<()> {
    for name in list(dir)? {
        let (path, name) = (dir.join(&name), format!("{prefix}{name}"));
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            files.push(input_file(name, path)?);
        }
    }
    if prefix.is_empty() {
        files.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(())
}

fn input_file(name: String, path: PathBuf) -> Result<InputFile> {
    let bytes = std::fs::read(&path).map_err(|error| unreadable(&path, &error))?;
    Ok(InputFile {
        name,
        path,
        digest: Digest::of(bytes),
    })
}

fn list(dir: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).map_err(|error| unreadable(dir, &error))?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.collect();
    names.sort();
    Ok(names)
}

impl Engine {
    /// Writes the folder from which `rule` of the request's target runs alone; what it reads is
    /// built first.
    pub fn export_stage_dir(
        &self,
        request: &Request,
        rule: &str,
        dir: &Path,
        events: &dyn EventSink,
    ) -> Result<()> {
        let target = self.workspace.target(&request.label, &request.sets)?;
        let until = [rule.to_owned()];
        let plan = Plan::new(&self.workspace, &self.store, &target, &until)?;
        let last = plan.nodes.len() - 1;
        let makers: Vec<String> = plan.nodes[last]
            .makers
            .iter()
            .map(|&maker| plan.nodes[maker].rule.name.clone())
            .collect();
        let label = request.label.to_string();
        let mut built = BTreeMap::new();
        if !makers.is_empty() {
            let plan = Plan::new(&self.workspace, &self.store, &target, &makers)?;
            let execution = Execution::new(self, &plan, &label, (false, None), events);
            execution.run(request.jobs);
            for stage in execution.finish() {
                if let Some(failure) = &stage.failure {
                    return Err(failure.diagnostic());
                }
                built.insert(stage.rule.clone(), stage);
            }
        }
        let output = |maker: usize, name: &str| {
            let stage = built.get(&plan.nodes[maker].rule.name)?;
            stage.output(name).map(|output| output.digest)
        };
        let given = plan.given(last, output);
        let given = given.map_err(|_| Diagnostic::bug("an input was not made"))?;
        let mut absent = Vec::new();
        for (name, given) in &given {
            match given {
                Given::Absent => absent.push(name.clone()),
                Given::Blob(digest) => {
                    write_input(&dir.join(INPUTS).join(name), &self.store.get_blob(*digest)?)?;
                }
                Given::Files { files, single } => {
                    for file in files {
                        let to = match single {
                            true => dir.join(INPUTS).join(name),
                            false => dir.join(INPUTS).join(name).join(&file.name),
                        };
                        let bytes = std::fs::read(&file.path);
                        write_input(&to, &bytes.map_err(|error| unreadable(&file.path, &error))?)?;
                    }
                }
            }
        }
        let device = self.device.clone();
        let declared = StageParams {
            target: TargetJson {
                name: device.name,
                digest: device.digest,
            },
            outputs: plan.nodes[last].rule.outputs.clone(),
            absent,
            params: plan.nodes[last].params.0.clone(),
        };
        write_input(&dir.join(PARAMS), &json(&declared)?)
    }
}

fn write_input(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    std::fs::write(path, bytes).map_err(|error| unwritable(path, &error))
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value);
    text.map(String::into_bytes)
        .map_err(|error| Diagnostic::bug(error.to_string()))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::usage(format!("cannot read {}: {error}", path.display()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::environment(format!("cannot write {}: {error}", path.display()))
}
