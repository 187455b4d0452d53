//! A small workspace in a temporary folder, with stages that do next to nothing.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use ipub_base::{Diagnostic, Digest};
use ipub_engine::{
    BuildResult, Engine, Event, EventSink, FailureKind, Request, StageFailure, StageImpl,
    StageInputs, StageOutputs, TargetId, Workspace,
};
use ipub_store::Store;

pub const LABEL: &str = "//models:tiny";

const FILES: &[(&str, &str)] = &[
    ("workspace.toml", "device = \"c600\"\n"),
    (
        "rules/kind-net.toml",
        r#"kind = "net"
doc = "A small net."
[[attribute]]
key = "spec"
type = "file"
required = true
doc = "The model."
[[attribute]]
key = "recipe"
type = "file"
[[attribute]]
key = "image"
type = "file"
[[attribute]]
key = "batch"
type = "int"
default = 1
[[attribute]]
key = "precision.weights"
type = "text"
values = ["f16", "f143"]
default = "f143"
[[attribute]]
key = "precision.scale"
type = ["int", "text"]
[[attribute]]
key = "cast.*"
type = "text"
[[attribute]]
key = "limits.bytes"
type = "int"
default = 1000
[[attribute]]
key = "verify.cosine"
type = "float"
default = 0.99
"#,
    ),
    (
        "rules/lower.toml",
        "name = 'lower'\nparams = ['batch']\noutputs = ['graph']\n\
         inputs = [{ name = 'spec', file_attr = 'spec' }]\n",
    ),
    (
        "rules/kernel.toml",
        "name = 'kernel'\noutputs = ['objects']\n\
         inputs = [{ name = 'sources', files = 'kernels/**' }]\n",
    ),
    (
        "rules/plan.toml",
        "name = 'plan'\nparams = ['precision', 'cast']\noutputs = ['candidates', 'trail']\n\
         inputs = [{ name = 'graph', from = 'lower' },\n\
         { name = 'recipe', file_attr = 'recipe', optional = true }]\n",
    ),
    (
        "rules/place.toml",
        "name = 'place'\noutputs = ['program']\n\
         inputs = [{ name = 'candidates', from = 'plan' }]\n",
    ),
    (
        "rules/package.toml",
        "name = 'package'\nparams = ['limits']\noutputs = ['image']\n\
         inputs = [{ name = 'program', from = 'place' }, { name = 'objects', from = 'kernel' }]\n",
    ),
    (
        "rules/run.toml",
        "name = 'run'\noutputs = ['outputs']\n\
         inputs = [{ name = 'package', from = 'package', output = 'image' },\n\
         { name = 'image', file_attr = 'image', optional = true }]\n",
    ),
    (
        "rules/verify.toml",
        "name = 'verify'\nparams = ['verify']\noutputs = ['report']\n\
         inputs = [{ name = 'outputs', from = 'run' }]\n",
    ),
    (
        "rules/dump.toml",
        "name = 'dump'\nstage = 'place'\ngoal = false\noutputs = ['program']\n\
         inputs = [{ name = 'candidates', from = 'plan' }]\n",
    ),
    (
        "models/BUILD.toml",
        r#"[[target]]
name = "tiny"
kind = "net"
spec = "specs/tiny.txt"
image = "//images/cat.txt"
precision.weights = "f16"

[[target]]
name = "tiny-bs2"
extends = "tiny"
batch = 2
"#,
    ),
    ("models/specs/tiny.txt", "layers 2 # two\n"),
    ("images/cat.txt", "cat"),
    ("kernels/gemm/gemm.S", "amp # multiply\n"),
    ("kernels/gemm/kernel.toml", "align = 8\n"),
];

/// The workspace and what happened in it.
pub struct World {
    pub dir: tempfile::TempDir,
    pub log: Log,
    pub fingerprint: &'static str,
    pub jobs: usize,
}

#[derive(Default)]
pub struct Log {
    pub events: Mutex<Vec<Event>>,
}

impl EventSink for Log {
    fn event(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
    }
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Self {
            dir,
            log: Log::default(),
            fingerprint: "1",
            jobs: 1,
        };
        for (path, text) in FILES {
            world.write(path, text);
        }
        world
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn edit(&self, path: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(path)).unwrap();
        assert!(text.contains(old), "{path} holds no `{old}`");
        self.write(path, &text.replace(old, new));
    }

    pub fn engine(&self) -> Result<Engine, Diagnostic> {
        let workspace = Workspace::find(&self.path("models"))?;
        let store = Store::open(&workspace.cache_dir)?;
        let names = [
            "lower", "kernel", "plan", "place", "package", "run", "verify",
        ];
        let stage = |name| {
            let fingerprint = format!("{name} {}", self.fingerprint);
            Box::new(Fake { name, fingerprint }) as Box<dyn StageImpl>
        };
        let device = TargetId {
            name: "c600".to_owned(),
            digest: Digest::of("facts"),
        };
        Engine::new(workspace, store, names.map(stage).into(), device)
    }

    pub fn request(&self, sets: &[&str]) -> Request {
        let mut request = Request::new(LABEL.parse().unwrap());
        request.sets = sets.iter().map(|&set| set.to_owned()).collect();
        request.jobs = self.jobs;
        request
    }

    pub fn build_request(&self, request: &Request) -> Result<BuildResult, Diagnostic> {
        self.log.events.lock().unwrap().clear();
        self.engine()?.build(request, &self.log)
    }

    pub fn build(&self, sets: &[&str]) -> BuildResult {
        self.build_request(&self.request(sets)).unwrap()
    }

    /// Builds, and tells which stages ran.
    pub fn ran(&self, sets: &[&str]) -> Vec<String> {
        let result = self.build(sets);
        assert_eq!(result.failure(), None);
        self.ran_events()
    }

    pub fn ran_events(&self) -> Vec<String> {
        let events = self.log.events.lock().unwrap();
        let started = events.iter().filter_map(|event| match event {
            Event::StageStarted { rule, .. } => Some(rule.clone()),
            _ => None,
        });
        started.collect()
    }

    pub fn explain(&self, sets: &[&str], rule: &str) -> String {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let engine = self.engine().unwrap();
        engine
            .explain(&LABEL.parse().unwrap(), &sets, rule)
            .unwrap()
            .to_string()
    }

    /// The error of opening the workspace or building its target.
    pub fn error(&self, sets: &[&str]) -> String {
        self.build_request(&self.request(sets))
            .unwrap_err()
            .to_string()
    }
}

/// How often each stage was really executed in this process is told by events; this counts memo
/// computations.
pub static MEMO_COMPUTED: AtomicU32 = AtomicU32::new(0);

struct Fake {
    name: &'static str,
    fingerprint: String,
}

fn without_comments(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim_end());
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

impl StageImpl for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn fingerprint(&self) -> Digest {
        Digest::of(&self.fingerprint)
    }

    fn run(&self, inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
        let outputs = StageOutputs::new();
        let params = inputs.params();
        match self.name {
            "lower" => {
                let spec = without_comments(&inputs.input("spec")?);
                if spec.contains("panic") {
                    panic!("the spec says so");
                }
                Ok(outputs.with("graph", format!("{spec} x{}", params.int("batch")?)))
            }
            "kernel" => {
                let mut objects = String::new();
                for file in inputs.files("sources")? {
                    let key = Digest::of(inputs.read(file)?);
                    let object = inputs.memo().get("object", key).unwrap_or_else(|| {
                        MEMO_COMPUTED.fetch_add(1, Ordering::Relaxed);
                        let object = without_comments(&inputs.read(file).unwrap()).into_bytes();
                        inputs.memo().put("object", key, object.clone());
                        object
                    });
                    objects += &format!("{}: {}\n", file.name, text(object));
                }
                Ok(outputs.with("objects", objects).note("kernels", 2))
            }
            "plan" => {
                let graph = text(inputs.input("graph")?);
                let recipe = inputs.optional("recipe")?.map(text);
                if graph.contains("layers 99") {
                    return Err(
                        StageFailure::new(FailureKind::GaveUp, "99 layers are too many")
                            .with_payload(b"tile 7".to_vec()),
                    );
                }
                if params.get("cast.broken").is_some() {
                    return Err(StageFailure::new(FailureKind::Environment, "no memory"));
                }
                inputs.progress("sweep", 1, 2);
                let shown = params.iter().map(|(key, value)| format!("{key}={value} "));
                let shown: String = shown.collect();
                let candidates = format!("{graph} {shown}{recipe:?}");
                Ok(outputs
                    .with("trail", format!("trail {graph}"))
                    .with("candidates", candidates))
            }
            "place" => Ok(outputs.with(
                "program",
                format!("placed {}", text(inputs.input("candidates")?)),
            )),
            "package" => {
                let program = text(inputs.input("program")?);
                let limit = params.int("limits.bytes")?;
                if program.len() as i64 > limit {
                    let message = format!("{} bytes, limit {limit}", program.len());
                    return Err(StageFailure::new(FailureKind::Rejected, message));
                }
                Ok(outputs.with("image", program + &text(inputs.input("objects")?)))
            }
            "run" => {
                let image = inputs.optional("image")?.map(text);
                let package = text(inputs.input("package")?);
                Ok(outputs.with("outputs", format!("{package} on {image:?}")))
            }
            "verify" => {
                let cosine = params.float("verify.cosine")?;
                if cosine > 1.0 {
                    return Err(StageFailure::new(
                        FailureKind::Verification,
                        "cosine above 1",
                    ));
                }
                Ok(outputs.with("report", format!("passed {cosine}")))
            }
            other => Err(StageFailure::bug(format!("no fake stage {other}"))),
        }
    }
}
