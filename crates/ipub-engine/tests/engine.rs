//! Which stages run after which edits, and how failures, explanations and keys behave.
//! Length: one test a story; they share one world.

mod world;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ipub_base::{DiagnosticKind, Digest};
use ipub_engine::{
    Artifact, Event, FailureKind, StageFailure, StageImpl, StageInputs, StageOutputs, StageStatus,
    Workspace, run_stage_dir,
};
use world::{LABEL, MEMO_COMPUTED, World};

const NONE: [&str; 0] = [];

#[test]
fn the_second_build_runs_nothing_and_reads_no_file() {
    let world = World::new();
    std::thread::sleep(Duration::from_millis(40));
    let all = [
        "kernel", "lower", "plan", "place", "package", "run", "verify",
    ];
    assert_eq!(world.ran(&[]), all);
    let again = world.build(&[]);
    assert_eq!(world.ran_events(), NONE);
    assert_eq!((again.count(StageStatus::Hit), again.files_hashed), (7, 0));
    let first = &world.log.events.lock().unwrap()[1];
    assert_eq!(
        *first,
        Event::FilesChecked {
            files: 4,
            hashed: 0
        }
    );
}

#[test]
fn each_edit_runs_what_it_can_change_and_no_more() {
    let world = World::new();
    world.ran(&[]);
    assert_eq!(world.ran(&["verify.cosine=0.5"]), ["verify"]);
    assert_eq!(
        world.ran(&["limits.bytes=2000"]),
        ["package"],
        "the image is the same: cut off"
    );
    assert_eq!(
        world.ran(&["cast.attention.k=early"]),
        ["plan", "place", "package", "run", "verify"]
    );
    assert_eq!(world.ran(&[]), NONE, "and back");
    world.write("images/cat.txt", "dog");
    assert_eq!(world.ran(&[]), ["run", "verify"]);
    world.edit("kernels/gemm/gemm.S", "# multiply", "# multiply and add");
    assert_eq!(world.ran(&[]), ["kernel"], "a comment in a kernel");
    world.edit("models/specs/tiny.txt", "# two", "# deux");
    assert_eq!(world.ran(&[]), ["lower"], "a comment in a model");
    world.edit("kernels/gemm/gemm.S", "amp", "amp2");
    assert_eq!(world.ran(&[]), ["kernel", "package", "run", "verify"]);
    world.write("kernels/new.S", "");
    assert_eq!(
        world.ran(&[]),
        ["kernel", "package", "run", "verify"],
        "a new kernel"
    );
    world.edit(
        "models/BUILD.toml",
        "name = \"tiny\"",
        "doc = \"small\"\nname = \"tiny\"",
    );
    world.edit(
        "rules/plan.toml",
        "name = 'plan'",
        "doc = 'plans' # well\nname = 'plan'",
    );
    assert_eq!(world.ran(&[]), NONE, "words about a target and a rule");
    world.write("unrelated.txt", "x");
    assert_eq!(world.ran(&[]), NONE);
    world.write("models/recipe.toml", "grid = 1");
    assert_eq!(world.ran(&["recipe=recipe.toml"])[0], "plan");
}

#[test]
fn a_touched_file_is_read_and_runs_nothing() {
    let world = World::new();
    world.ran(&[]);
    std::thread::sleep(Duration::from_millis(40));
    world.build(&[]);
    world.edit("models/specs/tiny.txt", "layers", "layers");
    let result = world.build(&[]);
    assert_eq!((world.ran_events().len(), result.files_hashed), (0, 1));
}

#[test]
fn another_fingerprint_runs_stages_until_outputs_are_equal() {
    let mut world = World::new();
    world.ran(&[]);
    world.fingerprint = "2";
    assert_eq!(
        world.ran(&[]).len(),
        7,
        "every stage's own key holds its fingerprint"
    );
    world.fingerprint = "1";
    assert_eq!(world.ran(&[]), NONE);
}

#[test]
fn until_makes_only_what_is_needed() {
    let world = World::new();
    let mut request = world.request(&[]);
    request.until = vec!["place".to_owned()];
    world.build_request(&request).unwrap();
    assert_eq!(world.ran_events(), ["lower", "plan", "place"]);
    request.until = vec!["dump".to_owned()];
    world.build_request(&request).unwrap();
    assert_eq!(
        world.ran_events(),
        ["dump"],
        "another rule of the same stage, no goal"
    );
    request.until = vec!["plcae".to_owned()];
    let error = world.build_request(&request).unwrap_err();
    assert_eq!(
        error.to_string(),
        "//models:tiny has no stage `plcae`\nhelp: did you mean `place`, `plan` or `package`?"
    );
}

#[test]
fn targets_share_what_is_equal() {
    let world = World::new();
    world.ran(&[]);
    let mut request = world.request(&[]);
    request.label = "//models:tiny-bs2".parse().unwrap();
    world.build_request(&request).unwrap();
    assert_eq!(
        world.ran_events(),
        ["lower", "plan", "place", "package", "run", "verify"]
    );
    request.sets = vec!["batch=1".to_owned()];
    world.build_request(&request).unwrap();
    assert_eq!(world.ran_events(), NONE);
}

#[test]
fn failures_that_are_results_are_stored() {
    let world = World::new();
    world.edit("models/specs/tiny.txt", "layers 2", "layers 99");
    for (ran, status) in [
        (vec!["kernel", "lower", "plan"], StageStatus::Failed),
        (vec![], StageStatus::FailedBefore),
    ] {
        let result = world.build(&[]);
        assert_eq!(world.ran_events(), ran);
        let (rule, failure) = result.failure().unwrap();
        assert_eq!((rule, failure.kind), ("plan", FailureKind::GaveUp));
        assert_eq!(failure.payload.as_deref(), Some(&b"tile 7"[..]));
        assert_eq!(failure.diagnostic().kind, DiagnosticKind::Infeasible);
        assert_eq!(result.stage("plan").unwrap().status, status);
        assert_eq!(result.stage("place").unwrap().status, StageStatus::Skipped);
    }
    let text = world.explain(&[], "place");
    assert!(
        text.contains("depends on another stage\n//models:tiny plan: failed, and would"),
        "{text}"
    );
    world.edit("models/specs/tiny.txt", "layers 99", "layers 2");
    let rejected = world.build(&["limits.bytes=3"]);
    assert_eq!(rejected.failure().unwrap().1.kind, FailureKind::Rejected);
    world.build(&["limits.bytes=3"]);
    assert_eq!(world.ran_events(), NONE);
    assert_eq!(world.ran(&[]), ["package", "run", "verify"]);
}

#[test]
fn environment_failures_and_bugs_are_not_stored() {
    let world = World::new();
    world.ran(&[]);
    for _ in 0..2 {
        let result = world.build(&["cast.broken=yes"]);
        assert_eq!(world.ran_events(), ["plan"]);
        assert_eq!(result.failure().unwrap().1.kind, FailureKind::Environment);
    }
    world.edit("models/specs/tiny.txt", "layers", "panic");
    for _ in 0..2 {
        let result = world.build(&[]);
        assert_eq!(world.ran_events(), ["lower"]);
        let failure = result.failure().unwrap().1;
        assert_eq!(failure.kind, FailureKind::Bug);
        assert_eq!(failure.message, "stage `lower` panicked: the spec says so");
    }
}

#[test]
fn keep_going_runs_what_does_not_depend_on_the_failure() {
    let world = World::new();
    world.edit("models/specs/tiny.txt", "layers", "panic");
    let rule = "name = 'zkernel'\nstage = 'kernel'\noutputs = ['objects']\n\
                inputs = [{ name = 'sources', files = 'kernels/**' }]\n";
    world.write("rules/zkernel.toml", rule);
    world.build(&[]);
    assert_eq!(world.ran_events(), ["kernel", "lower"]);
    let mut request = world.request(&[]);
    request.keep_going = true;
    world.build_request(&request).unwrap();
    assert_eq!(world.ran_events(), ["lower", "zkernel"]);
}

#[test]
fn explanations_name_the_line() {
    let world = World::new();
    assert!(
        world
            .explain(&[], "lower")
            .ends_with("will run, because it was never built")
    );
    let text = world.explain(&[], "plan");
    assert!(text.contains("//models:tiny lower: will run"), "{text}");
    world.ran(&[]);
    assert_eq!(world.explain(&[], "plan"), "//models:tiny plan: up to date");
    assert_eq!(
        world.explain(
            &["cast.attention.k=early", "precision.weights=f143"],
            "plan"
        ),
        "//models:tiny plan: will run\n  because\n    \
         param.cast.attention.k: (none) -> early\n    \
         param.precision.weights: f16 -> f143"
    );
    let text = world.explain(&["batch=2"], "verify");
    assert_eq!(
        text,
        "//models:tiny verify: depends on another stage\n\
         //models:tiny lower: will run\n  because\n    param.batch: 1 -> 2"
    );
    let old = Digest::of("amp # multiply\n");
    let new = Digest::of("amp3\n");
    world.write("kernels/gemm/gemm.S", "amp3\n");
    assert_eq!(
        world.explain(&[], "kernel"),
        format!(
            "//models:tiny kernel: will run\n  because\n    \
             input.sources.kernels/gemm/gemm.S: {old} -> {new}"
        )
    );
    world.ran(&[]);
    let text = world.explain(&[], "package");
    assert!(
        text.contains(
            "up to date\n  it was last made because\n    input.objects (kernel:objects): "
        ),
        "{text}"
    );
    let mut world = world;
    world.fingerprint = "2";
    let text = world.explain(&[], "lower");
    let [old, new] = ["lower 1", "lower 2"].map(Digest::of);
    assert!(
        text.ends_with(&format!("stage.fingerprint: {old} -> {new}")),
        "{text}"
    );
}

#[test]
fn lost_and_damaged_blobs_are_made_again() {
    let world = World::new();
    let first = world.build(&[]);
    let engine = world.engine().unwrap();
    let blob = |rule: &str, output: &str| {
        let digest = first.stage(rule).unwrap().output(output).unwrap().digest;
        engine.store().blob_path(digest)
    };
    fs::remove_file(blob("plan", "trail")).unwrap();
    assert_eq!(
        world.ran(&[]),
        ["plan"],
        "a record whose blob is gone is a miss"
    );
    let path = blob("lower", "graph");
    let frame = fs::read(&path).unwrap();
    fs::write(&path, &frame[..frame.len() - 1]).unwrap();
    assert_eq!(
        world.ran(&[]),
        ["lower"],
        "a truncated blob is seen without being read"
    );
    // A flipped bit is seen when the blob is read: by plan, which needs a new key for that.
    let mut frame = fs::read(&path).unwrap();
    let last = frame.len() - 1;
    frame[last] ^= 1;
    fs::write(&path, frame).unwrap();
    assert_eq!(world.ran(&[]), NONE);
    let ran = world.ran(&["cast.x=late"]);
    assert_eq!(
        ran,
        ["plan", "lower", "plan", "place", "package", "run", "verify"]
    );
    let events = world.log.events.lock().unwrap().clone();
    let lost = events.iter().any(|event| match event {
        Event::OutputLost { rule, output, .. } => {
            (rule.as_str(), output.as_str()) == ("lower", "graph")
        }
        _ => false,
    });
    assert!(lost);
    for entry in fs::read_dir(world.path("cache")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("index")
        {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(world.ran(&[]), NONE, "an index that is gone is rebuilt");
}

#[test]
fn artifacts_are_written_when_they_differ() {
    let world = World::new();
    let mut request = world.request(&[]);
    let path = world.path("artifacts/models/tiny/report.txt");
    let artifact = |rule: &str, output: &str, path| Artifact {
        rule: rule.to_owned(),
        output: output.to_owned(),
        path,
    };
    request.artifacts = vec![
        artifact("verify", "report", path.clone()),
        artifact("dump", "program", world.path("artifacts/models/tiny/dump")),
    ];
    assert_eq!(world.build_request(&request).unwrap().artifacts_written, 1);
    assert_eq!(fs::read_to_string(&path).unwrap(), "passed 0.99");
    let again = world.build_request(&request).unwrap();
    assert_eq!(
        (again.artifacts_written, again.count(StageStatus::Hit)),
        (0, 7)
    );
    fs::write(&path, "passed 1.99").unwrap();
    assert_eq!(world.build_request(&request).unwrap().artifacts_written, 1);
    fs::remove_file(&path).unwrap();
    let report = again
        .stage("verify")
        .unwrap()
        .output("report")
        .unwrap()
        .digest;
    let blob = world.engine().unwrap().store().blob_path(report);
    let mut frame = fs::read(&blob).unwrap();
    frame[6] ^= 0xff;
    fs::write(&blob, frame).unwrap();
    assert_eq!(world.build_request(&request).unwrap().artifacts_written, 1);
    assert_eq!(world.ran_events(), ["verify"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "passed 0.99");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn keys_do_not_depend_on_folder_or_jobs() {
    let worlds = [
        World::new(),
        World {
            jobs: 4,
            ..World::new()
        },
    ];
    let keys = worlds.each_ref().map(|world| {
        let sets = ["recipe=//models/specs/tiny.txt", "precision.scale=-4"];
        let stages = world.build(&sets).stages;
        let facts = stages.iter().map(|stage| {
            let outputs: Vec<_> = stage.outputs.iter().map(|output| output.digest).collect();
            (stage.rule.clone(), stage.key.unwrap(), outputs)
        });
        facts.collect::<Vec<_>>()
    });
    assert_eq!(keys[0], keys[1]);
    let distinct: BTreeSet<_> = keys[0].iter().map(|(_, key, _)| key).collect();
    assert_eq!(distinct.len(), 7);
}

#[test]
fn two_builds_at_once_run_each_stage_once() {
    let world = World::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let engine = world.engine().unwrap();
                let result = engine.build(&world.request(&[]), &world.log).unwrap();
                assert_eq!(result.failure(), None);
            });
        }
    });
    let mut ran = world.ran_events();
    ran.sort();
    assert_eq!(
        ran,
        [
            "kernel", "lower", "package", "place", "plan", "run", "verify"
        ]
    );
}

#[test]
fn memo_entries_are_reused_and_change_nothing() {
    let world = World::new();
    world.ran(&[]);
    let count = MEMO_COMPUTED.load(Ordering::Relaxed);
    world.write("kernels/other.S", "copy # other\n");
    let with_memo = world.build(&[]);
    let stage = with_memo.stage("kernel").unwrap();
    assert_eq!((stage.memo.reused, stage.memo.asked), (2, 3));
    assert!(MEMO_COMPUTED.load(Ordering::Relaxed) > count);
    fs::remove_dir_all(world.path("cache")).unwrap();
    let without = world.build(&[]);
    assert_eq!(without.stage("kernel").unwrap().memo.reused, 0);
    assert_eq!(without.stage("kernel").unwrap().outputs, stage.outputs);
}

#[test]
fn a_stage_runs_alone_from_a_folder() {
    struct Alone<'a>(&'a dyn StageImpl);
    impl StageImpl for Alone<'_> {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn fingerprint(&self) -> Digest {
            self.0.fingerprint()
        }
        fn run(&self, inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
            self.0.run(inputs)
        }
    }
    let world = World::new();
    let engine = world.engine().unwrap();
    let request = world.request(&[]);
    let built = engine.build(&request, &world.log).unwrap();
    for stage in &built.stages {
        let (input, output) = (
            world.path("in").join(&stage.rule),
            world.path("out").join(&stage.rule),
        );
        engine
            .export_stage_dir(&request, &stage.rule, &input, &world.log)
            .unwrap();
        let alone = Alone(engine.stage(&stage.rule).unwrap());
        let result = run_stage_dir(&alone, &input, &output, &|_, _, _| ())
            .unwrap()
            .unwrap();
        for made in &stage.outputs {
            let bytes = fs::read(output.join(&made.name)).unwrap();
            assert_eq!(
                Digest::of(bytes),
                made.digest,
                "{} of {}",
                made.name,
                stage.rule
            );
        }
        assert_eq!(result.outputs.len(), stage.outputs.len());
    }
    let mut request = request;
    request.sets = vec!["limits.bytes=3".to_owned()];
    let (input, output) = (world.path("in/rejected"), world.path("out/rejected"));
    engine
        .export_stage_dir(&request, "package", &input, &world.log)
        .unwrap();
    let package = Alone(engine.stage("package").unwrap());
    let result = run_stage_dir(&package, &input, &output, &|_, _, _| ()).unwrap();
    assert_eq!(result.unwrap_err().kind, FailureKind::Rejected);
    let text = fs::read_to_string(output.join("result.json")).unwrap();
    assert!(text.contains("\"outcome\": \"rejected\""), "{text}");
}

#[test]
fn wrong_words_get_one_clear_message() {
    let world = World::new();
    assert_eq!(
        world.error(&["bacth=2"]),
        "--set bacth=2: `net` has no attribute `bacth`\nhelp: did you mean `batch`?"
    );
    assert_eq!(
        world.error(&["batch=two"]),
        "--set batch=two: `batch` is \"two\", a text, where int is expected"
    );
    assert_eq!(
        world.error(&["precision.weights=f8"]),
        "--set precision.weights=f8: `precision.weights` is \"f8\"; allowed are \"f16\", \"f143\""
    );
    assert!(
        world
            .error(&["batch"])
            .starts_with("--set batch: there is no `=`")
    );
    world.build(&["precision.scale=-4"]);
    world.build(&["precision.scale=none", "cast.k=8x8x23"]);
    let missing = world.error(&["spec=specs/absent.txt"]);
    assert!(
        missing.contains("there is no file") && missing.contains("absent.txt"),
        "{missing}"
    );

    let mut request = world.request(&[]);
    request.label = "//models:tyni".parse().unwrap();
    let error = world.build_request(&request).unwrap_err();
    assert_eq!(error.kind, DiagnosticKind::Usage);
    assert_eq!(
        error.to_string(),
        "unknown target //models:tyni: no `tyni` in models/BUILD.toml\nhelp: did you mean `tiny`?"
    );
    request.label = "//model:tiny".parse().unwrap();
    let error = world.build_request(&request).unwrap_err().to_string();
    assert!(error.ends_with("did you mean `models`?"), "{error}");

    let good = fs::read_to_string(world.path("models/BUILD.toml")).unwrap();
    let with = |old: &str, new: &str| {
        world.write("models/BUILD.toml", &good.replace(old, new));
        world.error(&[])
    };
    let error = with("spec = \"specs/tiny.txt\"", "spec = \"specs/tiny.txt");
    assert!(error.starts_with("models/BUILD.toml:4:"), "{error}");
    assert!(error.contains("malformed TOML"), "{error}");
    assert_eq!(
        with("spec =", "sepc ="),
        "models/BUILD.toml:4:1: `net` has no attribute `sepc`\nhelp: did you mean `spec`?"
    );
    assert_eq!(
        with(
            "precision.weights = \"f16\"",
            "precision = { weights = 16 }"
        ),
        "models/BUILD.toml:6:15: `precision.weights` is 16, a int, where text is expected"
    );
    assert!(
        with("spec = \"specs/tiny.txt\"", "")
            .starts_with("models/BUILD.toml:1:1: target `tiny` lacks")
    );
    let error = with("specs/tiny.txt", "specs/absent.txt");
    assert!(
        error.starts_with("models/BUILD.toml:4:1: `spec` of //models:tiny: there is no file"),
        "{error}"
    );
    assert!(
        with("kind = \"net\"", "kind = \"nets\"")
            .contains("unknown kind `nets`\nhelp: did you mean `net`?")
    );
    assert!(
        with("[[target]]", "[[targets]]")
            .contains("1:3: unknown key `targets`\nhelp: did you mean `target`?")
    );
    world.write("models/BUILD.toml", &good);
    world.edit("rules/place.toml", "from = 'plan'", "from = 'plam'");
    assert!(
        world
            .error(&[])
            .contains("unknown rule `plam`\nhelp: did you mean `plan`")
    );
    world.edit(
        "rules/place.toml",
        "from = 'plam'",
        "from = 'verify', output = 'report'",
    );
    assert!(world.error(&[]).contains("needs its own output"));
}

#[test]
fn targets_are_listed_with_inherited_attributes() {
    let world = World::new();
    let workspace = Workspace::find(&world.path("kernels/gemm")).unwrap();
    let targets = workspace.targets().unwrap();
    let shown: Vec<_> = targets
        .iter()
        .map(|target| target.label.to_string())
        .collect();
    assert_eq!(shown, [LABEL, "//models:tiny-bs2"]);
    let batch = &targets[1].attributes["batch"];
    assert_eq!(
        (batch.value.to_string(), batch.origin()),
        ("2".to_owned(), "models/BUILD.toml:11:1".to_owned())
    );
    assert_eq!(
        targets[1].attributes["precision.weights"].value.to_string(),
        "\"f16\""
    );
    assert_eq!(targets[1].attributes["verify.cosine"].origin(), "default");
}
