//! What a stage is given and what it gives back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ipub_base::{Digest, Memo};
use ipub_store::Store;
use serde::de::DeserializeOwned;

use crate::engine::TargetId;
use crate::failure::{FailureKind, StageFailure};
use crate::value::Value;

/// A stage: a pure function of its inputs, parameters and target.
pub trait StageImpl: Send + Sync {
    /// The name by which rules refer to it.
    fn name(&self) -> &str;

    /// A digest of everything that its code consists of.
    fn fingerprint(&self) -> Digest;

    /// Runs it. It must give exactly the outputs that its rule declares.
    fn run(&self, inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure>;
}

/// A source file as an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Its path relative to the workspace, or as given by an attribute.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its content.
    pub digest: Digest,
}

/// What stands behind an input's name.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Absent,
    Blob(Digest),
    /// Source files; `single` if the stage reads it as one input.
    Files {
        files: Vec<InputFile>,
        single: bool,
    },
}

/// What a stage is given.
pub struct StageInputs<'a> {
    pub(crate) given: BTreeMap<String, Given>,
    pub(crate) params: Params,
    pub(crate) target: &'a TargetId,
    pub(crate) memo: &'a dyn Memo,
    pub(crate) store: Option<&'a Store>,
    pub(crate) progress: &'a (dyn Fn(&str, u64, u64) + Sync),
    /// The first blob that could not be read, for the engine to make it again.
    pub(crate) lost: Mutex<Option<Digest>>,
    /// Bytes that the stage read.
    pub(crate) read_bytes: AtomicU64,
}

/// What a stage gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageOutputs {
    /// Blobs by output name.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Counts and remarks for the record and the events; they are no part of any result.
    pub notes: BTreeMap<String, serde_json::Value>,
}

impl StageOutputs {
    /// No outputs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an output.
    pub fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.blobs.insert(name.to_owned(), bytes.into());
        self
    }

    /// Adds a note.
    pub fn note(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.notes.insert(name.to_owned(), value.into());
        self
    }
}

impl StageInputs<'_> {
    fn given(&self, name: &str) -> Result<&Given, StageFailure> {
        let given = self.given.get(name);
        given.ok_or_else(|| StageFailure::bug(format!("the rule declares no input `{name}`")))
    }

    /// Whether the optional input `name` is there.
    pub fn has(&self, name: &str) -> bool {
        !matches!(self.given.get(name), None | Some(Given::Absent))
    }

    /// The bytes of the input `name`.
    pub fn input(&self, name: &str) -> Result<Vec<u8>, StageFailure> {
        let bytes = self.optional(name)?;
        bytes.ok_or_else(|| StageFailure::usage(format!("input `{name}` is absent")))
    }

    /// The bytes of the input `name`; `None` if it is optional and absent.
    pub fn optional(&self, name: &str) -> Result<Option<Vec<u8>>, StageFailure> {
        match self.given(name)? {
            Given::Absent => Ok(None),
            Given::Blob(digest) => self.blob(*digest).map(Some),
            Given::Files {
                files,
                single: true,
            } => self.read(&files[0]).map(Some),
            Given::Files { .. } => Err(StageFailure::bug(format!(
                "input `{name}` is a set of files"
            ))),
        }
    }

    /// The digest of the single input `name`, without reading it.
    pub fn digest(&self, name: &str) -> Result<Option<Digest>, StageFailure> {
        match self.given(name)? {
            Given::Blob(digest) => Ok(Some(*digest)),
            Given::Files {
                files,
                single: true,
            } => Ok(files.first().map(|file| file.digest)),
            Given::Absent | Given::Files { .. } => Ok(None),
        }
    }

    /// The source files of the input `name`, by path; empty for any other input.
    pub fn files(&self, name: &str) -> Result<&[InputFile], StageFailure> {
        match self.given(name)? {
            Given::Files { files, .. } => Ok(files),
            Given::Absent | Given::Blob(_) => Ok(&[]),
        }
    }

    /// The bytes of a source file, which must be those that the key names.
    pub fn read(&self, file: &InputFile) -> Result<Vec<u8>, StageFailure> {
        let fail = |why: String| {
            StageFailure::new(
                FailureKind::Environment,
                format!("{}: {why}", file.path.display()),
            )
        };
        let bytes = std::fs::read(&file.path).map_err(|error| fail(error.to_string()))?;
        self.read_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match Digest::of(&bytes) == file.digest {
            true => Ok(bytes),
            false => Err(fail("the file changed during the build".to_owned())),
        }
    }

    /// Where the single source file `name` is, for files too large to read at once. Its content is
    /// not verified here.
    pub fn path(&self, name: &str) -> Result<Option<&Path>, StageFailure> {
        Ok(self.files(name)?.first().map(|file| file.path.as_path()))
    }

    fn blob(&self, digest: Digest) -> Result<Vec<u8>, StageFailure> {
        let Some(store) = self.store else {
            return Err(StageFailure::bug("a stage folder holds files only"));
        };
        let bytes = store.get_blob(digest);
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.read_bytes.fetch_add(length, Ordering::Relaxed);
        bytes.map_err(|error| {
            if error.lost_blob().is_some() {
                let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                lost.get_or_insert(digest);
            }
            error.into()
        })
    }

    /// The parameters that the rule declares.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The device that is built for.
    pub fn target(&self) -> &TargetId {
        self.target
    }

    /// Sub-results of earlier executions.
    pub fn memo(&self) -> &dyn Memo {
        self.memo
    }

    /// Tells how far the stage is: `done` steps of `total`, 0 if that is not known.
    pub fn progress(&self, message: &str, done: u64, total: u64) {
        (self.progress)(message, done, total);
    }
}

/// Parameters by dotted key: only those that the rule declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub(crate) BTreeMap<String, Value>);

impl Params {
    /// Parameters from pairs, for running a stage by hand.
    pub fn new(values: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self(values.into_iter().collect())
    }

    /// The value of `key`, if it is set.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// All, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The text `key`.
    pub fn text(&self, key: &str) -> Result<&str, StageFailure> {
        match self.get(key) {
            Some(Value::Text(text)) => Ok(text),
            other => Err(wrong(key, "text", other)),
        }
    }

    /// The whole number `key`.
    pub fn int(&self, key: &str) -> Result<i64, StageFailure> {
        match self.get(key) {
            Some(Value::Int(number)) => Ok(*number),
            other => Err(wrong(key, "int", other)),
        }
    }

    /// The number `key`.
    pub fn float(&self, key: &str) -> Result<f64, StageFailure> {
        match self.get(key) {
            Some(Value::Float(number)) => Ok(*number),
            Some(Value::Int(number)) => Ok(*number as f64),
            other => Err(wrong(key, "float", other)),
        }
    }

    /// The truth value `key`.
    pub fn bool(&self, key: &str) -> Result<bool, StageFailure> {
        match self.get(key) {
            Some(Value::Bool(value)) => Ok(*value),
            other => Err(wrong(key, "bool", other)),
        }
    }

    /// All parameters as one typed value: dotted keys are nested fields.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, StageFailure> {
        let wrong = |error| StageFailure::usage(format!("attributes: {error}"));
        serde_json::from_value(self.to_json()).map_err(wrong)
    }

    /// The parameters below `prefix.` with the prefix cut off, as one typed value.
    pub fn section<T: DeserializeOwned>(&self, prefix: &str) -> Result<T, StageFailure> {
        let below = self.0.iter().filter_map(|(key, value)| {
            let rest = key.strip_prefix(prefix)?.strip_prefix('.')?;
            Some((rest.to_owned(), value.clone()))
        });
        let wrong = |error| StageFailure::usage(format!("attributes `{prefix}`: {error}"));
        serde_json::from_value(Self(below.collect()).to_json()).map_err(wrong)
    }

    /// The parameters as a tree. Where one key is also the beginning of others, its own value has
    /// the empty name among them.
    pub fn to_json(&self) -> serde_json::Value {
        let mut root = serde_json::Map::new();
        for (key, value) in &self.0 {
            let value = serde_json::to_value(value).unwrap_or_default();
            let mut table = &mut root;
            let mut words = key.split('.').peekable();
            while let Some(word) = words.next() {
                if words.peek().is_none() {
                    table.insert(word.to_owned(), value);
                    break;
                }
                let entry = table
                    .entry(word)
                    .or_insert_with(|| serde_json::Map::new().into());
                if !entry.is_object() {
                    let own = entry.take();
                    *entry = serde_json::Map::from_iter([(String::new(), own)]).into();
                }
                let serde_json::Value::Object(inner) = entry else {
                    unreachable!("made above")
                };
                table = inner;
            }
        }
        root.into()
    }
}

fn wrong(key: &str, wanted: &str, found: Option<&Value>) -> StageFailure {
    match found {
        Some(value) => {
            let found = value.type_name();
            StageFailure::usage(format!("attribute `{key}` is a {found}, not a {wanted}"))
        }
        None => StageFailure::usage(format!("attribute `{key}` is not set, or not declared")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_as_a_tree() {
        #[derive(serde::Deserialize, PartialEq, Debug)]
        struct Attention {
            qk_fp8_scale: Option<i64>,
            form: String,
        }
        let text = |text: &str| Value::Text(text.to_owned());
        let params = Params::new([
            ("attention.form".to_owned(), text("materialised")),
            ("attention.qk_fp8_scale".to_owned(), Value::Int(-2)),
            ("batch".to_owned(), Value::Int(2)),
            ("batch.extra".to_owned(), Value::Bool(true)),
        ]);
        let attention: Attention = params.section("attention").unwrap();
        let expected = Attention {
            qk_fp8_scale: Some(-2),
            form: "materialised".to_owned(),
        };
        assert_eq!(attention, expected);
        assert_eq!(params.int("batch").unwrap(), 2);
        let tree = params.to_json();
        assert_eq!(tree["batch"][""], 2);
        assert_eq!(tree["batch"]["extra"], true);
        let error = params.text("batch").unwrap_err();
        assert_eq!(error.message, "attribute `batch` is a int, not a text");
    }
}
