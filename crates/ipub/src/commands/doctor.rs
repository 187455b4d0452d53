//! `ipub doctor`: whether this machine and workspace are fit, and what is assumed of the device.

use ipub_base::{Bytes, Diagnostic};

use crate::exit::Outcome;
use crate::open;

pub fn doctor(assumptions: bool) -> Outcome {
    if assumptions {
        for assumption in ipu_target::assumptions() {
            println!("{}: {}", assumption.name, assumption.value);
            println!("    {}", assumption.reason);
        }
        return Ok(());
    }
    let row = |name: &str, text: String| println!("{name:<12} {text}");
    row("ipub", env!("CARGO_PKG_VERSION").to_owned());
    let threads = std::thread::available_parallelism();
    row(
        "threads",
        threads.map_or_else(|_| "1".to_owned(), |count| count.to_string()),
    );
    let engine = open::engine()?;
    row("workspace", engine.workspace().root.display().to_string());
    row("device", engine.workspace().device.clone());
    let targets = engine.workspace().targets()?;
    row("targets", targets.len().to_string());
    let stat = engine.store().stat()?;
    let (dir, size) = (engine.store().dir().display(), Bytes(stat.blob_bytes));
    row("store", format!("{dir}: {} blobs, {size}", stat.blobs));
    let probe = b"ipub doctor";
    let digest = engine.store().put_blob(probe)?;
    match engine.store().get_blob(digest)? == probe {
        true => row("writing", "a blob was written and read back".to_owned()),
        false => return Err(Diagnostic::environment("the store gives back other bytes")),
    }
    Ok(())
}
