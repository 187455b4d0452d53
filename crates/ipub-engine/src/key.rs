//! The key of a stage: everything that its outputs are a function of, and nothing else.

use std::collections::BTreeMap;

use ipub_base::{Digest, Key, KeyWriter};

use crate::engine::TargetId;
use crate::inputs::{Given, Params};
use crate::rules::Rule;
use crate::value::write_value;

/// Changes when the meaning of keys or records does.
const DOMAIN: &str = "ipub.action.v1";

pub(crate) fn key(
    rule: &Rule,
    fingerprint: Digest,
    target: &TargetId,
    given: &BTreeMap<String, Given>,
    params: &Params,
) -> Key {
    let mut writer = KeyWriter::new(DOMAIN);
    writer.value("rule", rule);
    writer.digest("stage.fingerprint", fingerprint);
    writer.text("target.name", &target.name);
    writer.digest("target.digest", target.digest);
    writer.scope("input", |writer| {
        for (name, given) in given {
            match given {
                Given::Absent => writer.absent(name),
                Given::Blob(digest) => writer.digest(name, *digest),
                Given::Files {
                    files,
                    single: true,
                } => {
                    writer.digest(name, files[0].digest);
                }
                // The stage sees these paths, so they are part of what it reads.
                Given::Files {
                    files,
                    single: false,
                } => writer.scope(name, |writer| {
                    writer.u64("files", files.len() as u64);
                    for file in files {
                        writer.digest(&file.name, file.digest);
                    }
                }),
            }
        }
    });
    writer.scope("param", |writer| {
        for (name, value) in params.iter() {
            write_value(writer, name, value);
        }
    });
    writer.finish()
}
