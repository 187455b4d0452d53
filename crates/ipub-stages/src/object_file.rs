//! Objects as files, for `ipub asm` and `ipub tile`, and their digests, for recipes.
//!
//! Invariants: equal objects give equal bytes; any bytes give an object or an error.

use std::collections::BTreeMap;

use ipu_emit::object::Object;
use ipub_base::{Digest, KeyWriter};
use ipub_engine::StageFailure;

use crate::codec::{from_json, pack, unpack};
use crate::families::Families;

/// First bytes of an object file; the last one is the version.
const MAGIC: &[u8; 8] = b"IPUOBJ\0\x01";

/// The bytes of an object file.
pub fn write_object(object: &Object) -> Result<Vec<u8>, String> {
    postcard::to_extend(object, MAGIC.to_vec()).map_err(|error| error.to_string())
}

/// The object in the bytes of a file.
pub fn read_object(bytes: &[u8]) -> Result<Object, String> {
    let Some(rest) = bytes.strip_prefix(&MAGIC[..]) else {
        return Err("it is not an object file of `ipub asm`".to_owned());
    };
    match postcard::take_from_bytes::<Object>(rest) {
        Ok((object, [])) => Ok(object),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// Digests of the assembled kernels of each family, from the blobs `families` and `objects` of
/// stage `kernel`.
pub fn object_digests(
    families: &[u8],
    objects: &[u8],
) -> Result<BTreeMap<String, Digest>, StageFailure> {
    let families: Families = from_json("families", families)?;
    let objects: BTreeMap<String, Object> = unpack("objects", objects)?;
    let mut digests = BTreeMap::new();
    for (name, family) in families {
        let mut writer = KeyWriter::digest_only("ipub.recipe.objects");
        for kernel in &family.kernels {
            let bytes = objects.get(kernel).map(|object| pack(kernel, object));
            writer.bytes(kernel, &bytes.transpose()?.unwrap_or_default());
        }
        digests.insert(name, writer.finish().digest);
    }
    Ok(digests)
}
