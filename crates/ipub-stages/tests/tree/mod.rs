//! Models and kernels of this workspace.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::object::Object;
use ipu_ir::contract::{Contract, Family};
use ipu_model::ModelSpec;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn spec(name: &str) -> ModelSpec {
    let path = root().join(format!("models/specs/{name}.toml"));
    ModelSpec::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub fn kernels() -> (BTreeMap<String, Contract>, BTreeMap<String, Object>) {
    let (mut contracts, mut objects) = (BTreeMap::new(), BTreeMap::new());
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root().join("kernels"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    for folder in folders {
        let text = std::fs::read_to_string(folder.join("kernel.toml")).unwrap();
        for kernel in Family::parse(&text).unwrap().kernels {
            let source = std::fs::read_to_string(folder.join(&kernel.source)).unwrap();
            let assembly = assemble(
                Source {
                    name: &kernel.source,
                    text: &source,
                },
                &Options::default(),
            )
            .unwrap_or_else(|errors| panic!("{errors}"));
            objects.insert(kernel.name.clone(), assembly.object);
            contracts.insert(kernel.name.clone(), kernel);
        }
    }
    (contracts, objects)
}
