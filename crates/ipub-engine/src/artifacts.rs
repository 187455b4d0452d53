//! Artifacts: named files written from outputs. Those that are as they should be are not touched.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use ipub_base::{Diagnostic, Digest};

use crate::exec::Execution;

/// A file to be written from an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// The rule.
    pub rule: String,
    /// Its output.
    pub output: String,
    /// The file; its folder is made if needed.
    pub path: PathBuf,
}

struct Due<'a> {
    node: usize,
    artifact: &'a Artifact,
    digest: Digest,
}

impl Execution<'_> {
    /// Writes the artifacts whose rules were made; returns how many had to be written.
    pub(crate) fn write_artifacts(&self, artifacts: &[Artifact]) -> Result<u64, Diagnostic> {
        let nodes: BTreeMap<&str, usize> = self
            .plan
            .nodes
            .iter()
            .enumerate()
            .map(|(node, planned)| (planned.rule.name.as_str(), node))
            .collect();
        let mut due = Vec::new();
        for artifact in artifacts {
            let Some(&node) = nodes.get(artifact.rule.as_str()) else {
                continue;
            };
            let Some(outputs) = self.outputs(node) else {
                continue;
            };
            let Some(output) = outputs.iter().find(|output| output.name == artifact.output) else {
                let Artifact { rule, output, .. } = artifact;
                return Err(Diagnostic::bug(format!(
                    "rule `{rule}` has no output `{output}`"
                )));
            };
            due.push(Due {
                node,
                artifact,
                digest: output.digest,
            });
        }
        let store = &self.engine.store;
        let paths: Vec<_> = due.iter().map(|due| due.artifact.path.clone()).collect();
        let facts = store.files(&paths)?;
        let mut written = Vec::new();
        for (due, fact) in due.iter().zip(facts) {
            if fact.is_none_or(|fact| fact.digest != due.digest) {
                let bytes = self.output_bytes(due)?;
                write(&due.artifact.path, &bytes)?;
                written.push((due.artifact.path.clone(), due.digest));
            }
        }
        store.note_written(&written)?;
        Ok(written.len() as u64)
    }

    fn output_bytes(&self, due: &Due<'_>) -> Result<Vec<u8>, Diagnostic> {
        match self.engine.store.get_blob(due.digest) {
            Err(error) if error.lost_blob().is_some() => {
                self.remake_output(due.node, &due.artifact.output, due.digest)
                    .map_err(|failure| failure.diagnostic())?;
                Ok(self.engine.store.get_blob(due.digest)?)
            }
            bytes => Ok(bytes?),
        }
    }
}

/// Writes a file that is complete or as it was before.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    let fail = |error: std::io::Error| {
        Diagnostic::environment(format!("cannot write {}: {error}", path.display()))
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(fail)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.part", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        drop(file);
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // What is left of it is useless; the error that matters is the first.
        let _ = std::fs::remove_file(&temporary);
        fail(error)
    })
}
