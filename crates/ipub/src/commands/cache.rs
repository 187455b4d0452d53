//! `ipub cache`: the local store.

use ipub_base::Bytes;
use ipub_store::Store;
use serde_json::json;

use crate::exit::Outcome;
use crate::open;

pub fn stat(as_json: bool) -> Outcome {
    let workspace = open::workspace()?;
    let store = Store::open(&workspace.cache_dir)?;
    let stat = store.stat()?;
    if as_json {
        println!("{}", json!(stat));
        return Ok(());
    }
    println!("store    {}", store.dir().display());
    println!("blobs    {}", stat.blobs);
    println!("size     {}", Bytes(stat.blob_bytes));
    println!("records  {}", stat.records);
    Ok(())
}
