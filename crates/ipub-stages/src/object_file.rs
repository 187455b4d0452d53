//! Objects as files, for `ipub asm` and `ipub tile`.
//!
//! Invariants: equal objects give equal bytes; any bytes give an object or an error.

use ipu_emit::object::Object;

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
