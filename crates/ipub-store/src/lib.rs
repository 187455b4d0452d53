//! Immutable blobs by digest, action records, SQLite index.
