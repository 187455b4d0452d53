//! Blobs: immutable bytes named by their digest, each one zstd frame on disk.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ipub_base::Digest;
use zstd::zstd_safe;

use crate::Store;
use crate::error::{Result, StoreError};
use crate::record::OutputRef;
use crate::write::write_atomic;

/// No blob is larger.
pub const BLOB_BYTES_MAX: u64 = 8 << 30;

const ZSTD_LEVEL: i32 = 3;
/// What is allocated at most before any byte has been decoded.
const FIRST_ALLOCATION_BYTES_MAX: u64 = 64 << 20;

impl Store {
    /// Stores `bytes` and returns their digest.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<Digest> {
        Ok(self.put_output("", bytes)?.digest)
    }

    /// Stores `bytes` as the output `name` of an action.
    pub fn put_output(&self, name: &str, bytes: &[u8]) -> Result<OutputRef> {
        let size = bytes.len() as u64;
        if size > BLOB_BYTES_MAX {
            return Err(StoreError::TooLarge {
                bytes: size,
                limit: BLOB_BYTES_MAX,
            });
        }
        let digest = Digest::of(bytes);
        let path = self.blob_path(digest);
        let stored = match fs::metadata(&path) {
            // A file of another length than its frame needs is caught on read; an empty one here.
            Ok(meta) if meta.len() > 0 && frame_size(&path) == Some(size) => meta.len(),
            _ => {
                let frame = zstd::bulk::compress(bytes, ZSTD_LEVEL)
                    .map_err(|source| StoreError::io("compress", &path, source))?;
                write_atomic(&self.tmp(), &path, &frame)?;
                frame.len() as u64
            }
        };
        Ok(OutputRef {
            name: name.to_owned(),
            digest,
            size,
            stored,
        })
    }

    /// The bytes of a blob, verified. A damaged blob is removed, so that it counts as missing.
    pub fn get_blob(&self, digest: Digest) -> Result<Vec<u8>> {
        let path = self.blob_path(digest);
        let frame = match fs::read(&path) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { digest });
            }
            Err(error) => return Err(StoreError::io("read", &path, error)),
        };
        decode(&frame, digest).map_err(|why| {
            // Whoever removed it before us did the same.
            let _ = fs::remove_file(&path);
            StoreError::Corrupt { digest, path, why }
        })
    }

    /// Whether a blob's file is there, without reading it.
    pub fn has_blob(&self, digest: Digest) -> bool {
        self.blob_path(digest).is_file()
    }

    /// Whether the blob of `output` is there with the length it was stored with. Its content is
    /// verified when it is read.
    pub fn has_output(&self, output: &OutputRef) -> bool {
        let meta = fs::metadata(self.blob_path(output.digest));
        meta.is_ok_and(|meta| meta.is_file() && meta.len() == output.stored)
    }

    /// Where a blob's file is.
    pub fn blob_path(&self, digest: Digest) -> PathBuf {
        sharded(&self.dir.join("blobs"), digest, "zst")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }
}

/// `dir/ab/cdef...extension`.
pub(crate) fn sharded(dir: &Path, digest: Digest, extension: &str) -> PathBuf {
    let hex = digest.hex();
    dir.join(&hex[..2])
        .join(format!("{}.{extension}", &hex[2..]))
}

/// The content size that the frame in `path` announces.
fn frame_size(path: &Path) -> Option<u64> {
    const HEADER_BYTES_MAX: u64 = 18;
    let mut header = Vec::new();
    fs::File::open(path)
        .ok()?
        .take(HEADER_BYTES_MAX)
        .read_to_end(&mut header)
        .ok()?;
    zstd_safe::get_frame_content_size(&header).ok()?
}

fn decode(frame: &[u8], digest: Digest) -> std::result::Result<Vec<u8>, String> {
    let size = match zstd_safe::get_frame_content_size(frame) {
        Ok(Some(size)) if size <= BLOB_BYTES_MAX => size,
        Ok(Some(size)) => return Err(format!("its frame announces {size} bytes")),
        Ok(None) => return Err("its frame announces no size".to_owned()),
        Err(_) => return Err("it does not begin with a zstd frame".to_owned()),
    };
    let reader = zstd::stream::Decoder::new(frame).map_err(|error| error.to_string())?;
    let mut bytes = Vec::with_capacity(size.min(FIRST_ALLOCATION_BYTES_MAX) as usize);
    // One byte more than announced is enough to see that there is more.
    reader
        .take(size + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 != size {
        return Err(format!("{} bytes where {size} are announced", bytes.len()));
    }
    match Digest::of(&bytes) {
        found if found == digest => Ok(bytes),
        found => Err(format!("its content has digest {found}")),
    }
}
