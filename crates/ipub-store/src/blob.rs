//! Blobs: immutable bytes named by their digest, each one zstd frame on disk.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ipub_base::Digest;
use zstd::zstd_safe;

use crate::Store;
use crate::claim::same_file;
use crate::error::{Result, StoreError};
use crate::fail::fail_point;
use crate::note::StoreNote;
use crate::record::OutputRef;
use crate::trash::{Trash, hidden_path, touch};

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
        let stored = match self.reuse(&path, digest)? {
            Some(stored) => stored,
            None => {
                let frame = zstd::bulk::compress(bytes, ZSTD_LEVEL)
                    .map_err(|source| StoreError::io("compress", &path, source))?;
                self.write_atomic(&path, &frame)?;
                let stored = frame.len() as u64;
                self.note_growth(stored);
                stored
            }
        };
        Ok(OutputRef {
            name: name.to_owned(),
            digest,
            size,
            stored,
        })
    }

    /// The length of a blob's file if it is there, sound, and will be there after a power loss.
    /// It is as good as written now, and protected as such.
    fn reuse(&self, path: &Path, digest: Digest) -> Result<Option<u64>> {
        let Ok(mut file) = File::open(path) else {
            return Ok(None);
        };
        fail_point!("blob.found");
        let mut frame = Vec::new();
        let read = touch(&file).and_then(|()| file.read_to_end(&mut frame));
        if read.is_err() || decode(&frame, digest).is_err() {
            // It is written again, in its place.
            return Ok(None);
        }
        // Who wrote it may not have come to this.
        let parent = path.parent().unwrap_or(path);
        let synced = self.sync_names(parent);
        synced.map_err(|source| StoreError::io("sync", parent, source))?;
        fail_point!("blob.reused");
        // Hidden after it was opened, it may have been looked at before it was touched.
        let in_place = same_file(&file, path);
        let in_place = in_place.map_err(|source| StoreError::io("look at", path, source))?;
        Ok(in_place.then_some(frame.len() as u64))
    }

    /// The bytes of a blob, verified. A damaged blob is removed, so that it counts as missing.
    pub fn get_blob(&self, digest: Digest) -> Result<Vec<u8>> {
        let path = self.blob_path(digest);
        let frame = self.read_frame(digest, &path)?;
        decode(&frame, digest).or_else(|why| {
            self.note(StoreNote::BlobDamaged {
                digest,
                why: why.clone(),
            });
            match self.drop_if_damaged(digest)? {
                // Another process put a sound one in its place.
                Some(bytes) => Ok(bytes),
                None => Err(StoreError::Corrupt { digest, path, why }),
            }
        })
    }

    /// The bytes of a blob's file, wherever it is.
    fn read_frame(&self, digest: Digest, path: &Path) -> Result<Vec<u8>> {
        for place in [path, &hidden_path(&self.dir, path), path] {
            match fs::read(place) {
                Ok(frame) => return Ok(frame),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io("read", path, error)),
            }
        }
        Err(StoreError::Missing { digest })
    }

    /// Removes a blob's file if it is damaged; gives its content if it is not.
    pub(crate) fn drop_if_damaged(&self, digest: Digest) -> Result<Option<Vec<u8>>> {
        let trash = Trash::lock(&self.dir)?;
        let Some(hidden) = trash.hide(self.blob_path(digest))? else {
            return Ok(None);
        };
        let at = hidden.path().to_path_buf();
        let frame = fs::read(&at).map_err(|source| StoreError::io("read", &at, source));
        match frame.as_ref().map(|frame| decode(frame, digest)) {
            Ok(Err(_)) => hidden.remove().map(|()| None),
            Ok(Ok(bytes)) => hidden.restore().map(|()| Some(bytes)),
            // What cannot be read now may be readable later.
            Err(_) => {
                hidden.restore()?;
                frame.map(|_| None)
            }
        }
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

/// The content of a frame, if its digest is `digest`.
pub(crate) fn decode(frame: &[u8], digest: Digest) -> std::result::Result<Vec<u8>, String> {
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
