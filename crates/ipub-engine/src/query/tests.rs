//! Queries in a workspace of three targets.

use std::fs;

use super::parse::{Expression, parse};
use super::*;

const FILES: [(&str, &str); 9] = [
    ("workspace.toml", ""),
    (
        "rules/kind-net.toml",
        "kind = 'net'\ndoc = ''\n[[attribute]]\nkey = 'spec'\ntype = 'file'\nrequired = true\n\
         doc = ''\n[[attribute]]\nkey = 'batch'\ntype = 'int'\ndefault = 1\ndoc = ''\n",
    ),
    (
        "rules/lower.toml",
        "name = 'lower'\nparams = ['batch']\noutputs = ['graph']\n\
         inputs = [{ name = 'spec', file_attr = 'spec' }]\n",
    ),
    (
        "rules/kernel.toml",
        "name = 'kernel'\noutputs = ['objects']\n\
         inputs = [{ name = 'sources', files = 'kernels/*' }]\n",
    ),
    (
        "rules/run.toml",
        "name = 'run'\noutputs = ['out']\n\
         inputs = [{ name = 'graph', from = 'lower' }, { name = 'objects', from = 'kernel' }]\n",
    ),
    (
        "models/BUILD.toml",
        "[[target]]\nname = 'one'\nkind = 'net'\nspec = 'one.txt'\n\
         [[target]]\nname = 'one-bs2'\nextends = 'one'\nbatch = 2\n",
    ),
    (
        "models/more/BUILD.toml",
        "[[target]]\nname = 'two'\nkind = 'net'\nspec = '../two.txt'\n",
    ),
    ("models/one.txt", ""),
    ("kernels/k.S", ""),
];

fn workspace() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in FILES {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let workspace = Workspace::open(&dir.path().canonicalize().unwrap()).unwrap();
    (dir, workspace)
}

fn names(answer: &Answer) -> Vec<String> {
    answer.nodes.iter().map(ToString::to_string).collect()
}

#[test]
fn operators_bind_from_left_to_right() {
    let shape = |text: &str| {
        fn show(expression: &Expression) -> String {
            match expression {
                Expression::Word(word) => word.text.clone(),
                Expression::Operation(left, operator, right) => {
                    format!("({} {operator:?} {})", show(left), show(right))
                }
                Expression::Call { words, sets, .. } => {
                    let words = words.iter().map(|word| word.text.clone());
                    let parts: Vec<_> = words.chain(sets.iter().map(show)).collect();
                    format!("[{}]", parts.join(" "))
                }
            }
        }
        show(&parse(text).unwrap())
    };
    assert_eq!(
        shape("//a:b + //c:d - (//e:f ^ g)"),
        "((//a:b Union //c:d) Except (//e:f Intersect g))"
    );
    assert_eq!(
        shape("//... -//models:x-y"),
        "(//... Except //models:x-y)",
        "a minus at the beginning of a word is the operator"
    );
    assert_eq!(
        shape("deps(a, 2) union rdeps(//..., b) intersect attr(n, 'x y', c)"),
        "(([2 a] Union [//... b]) Intersect [n x y c])"
    );
}

#[test]
fn errors_mark_their_place() {
    let (_dir, workspace) = workspace();
    for (text, column, why) in [
        ("deps(//models:one", 18, "expected `)`, found the end"),
        ("dep(//models:one)", 1, "unknown function `dep`"),
        (
            "//models:one //models:one",
            14,
            "the expression ends before this",
        ),
        ("deps(//models:one, x)", 20, "`x` is no depth"),
        ("//models:one +", 15, "found the end"),
        ("kind('a(b', //...)", 8, "never closed"),
        ("//models:on + //...", 1, "unknown target"),
        ("//... - models/one.tx", 9, "no target or file"),
        ("'abc", 1, "never closed"),
        ("attr(batsh, 1, //...)", 6, "no kind has the attribute"),
    ] {
        let error = workspace.query(text).unwrap_err();
        let message = &error.message;
        assert!(message.contains(why), "{text}: {message}");
        let head = format!("query, column {column}: ");
        assert!(message.starts_with(&head), "{text}: {message}");
        let caret = message.lines().last().unwrap();
        assert_eq!(caret, format!("  {}^", " ".repeat(column - 1)), "{text}");
    }
    let error = workspace.query("dep(//models:one)").unwrap_err();
    assert_eq!(error.help.unwrap(), "did you mean `deps` or `rdeps`?");
}

#[test]
fn sets_of_targets_and_files() {
    let (_dir, workspace) = workspace();
    let ask = |text: &str| names(&workspace.query(text).unwrap());
    let (one, two, bs2) = ("//models:one", "//models/more:two", "//models:one-bs2");
    let (spec, kernel) = ("models/one.txt", "kernels/k.S");
    assert_eq!(ask("//..."), [one, bs2, two]);
    assert_eq!(ask("//models/..."), [one, bs2, two]);
    assert_eq!(ask("//models:*"), [one, bs2]);
    assert_eq!(ask("//models:*-bs2"), [bs2]);
    assert_eq!(ask("//... -//models:one"), [bs2, two]);
    assert_eq!(ask("deps(//models:one)"), [one, kernel, spec]);
    assert_eq!(ask("deps(//models:one, 0)"), [one]);
    assert_eq!(ask("rdeps(//..., models/one.txt)"), [one, bs2, spec]);
    assert_eq!(ask("rdeps(//models/more:two, models/one.txt)"), [""; 0]);
    assert_eq!(
        ask("deps(//models:one) ^ deps(//models/more:two)"),
        [kernel]
    );
    assert_eq!(ask("kind('source file', deps(//...))").len(), 3);
    assert_eq!(ask("kind('^net$', deps(//...))"), [one, bs2, two]);
    assert_eq!(ask("attr(batch, '^2$', //...)"), [bs2]);
    assert_eq!(ask("somepath(//..., kernels/k.S)"), [one, kernel]);
    assert_eq!(ask("allpaths(//models:*, kernels/k.S)"), [one, bs2, kernel]);
    assert_eq!(ask("somepath(kernels/k.S, //models:one)"), [""; 0]);
    let answer = workspace.query("deps(//models:one)").unwrap();
    assert_eq!(answer.edges, [vec![1, 2], vec![], vec![]]);
}

#[test]
fn stages_lie_between_targets_and_files() {
    let (_dir, workspace) = workspace();
    let graph = Graph::of_stages(&workspace).unwrap();
    let ask = |text: &str| names(&answer(&graph, text).unwrap());
    assert_eq!(
        ask("somepath(//models:one%run, models/one.txt)"),
        ["//models:one%run", "//models:one%lower", "models/one.txt"]
    );
    assert_eq!(
        ask("kind(stage, rdeps(//models:one, kernels/k.S))"),
        ["//models:one%kernel", "//models:one%run"]
    );
    assert!(answer(&graph, "//models:one%rum").is_err());
}

#[test]
fn patterns_of_a_build() {
    let (_dir, workspace) = workspace();
    let expand = |patterns: &[&str]| {
        let patterns: Vec<_> = patterns.iter().map(|&text| text.to_owned()).collect();
        let labels = expand_patterns(&workspace, &patterns)?;
        Ok::<_, Diagnostic>(labels.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let all = ["//models:one", "//models:one-bs2", "//models/more:two"];
    assert_eq!(expand(&["//..."]).unwrap(), all);
    assert_eq!(
        expand(&["//models/more:two", "//...", "-//models:one"]).unwrap(),
        [all[2], all[1]]
    );
    for wrong in ["//nothing/...", "models:*", "//mod...", "//models:zzz*"] {
        assert!(expand(&[wrong]).is_err(), "{wrong}");
    }
    assert!(expand(&["//...", "-//..."]).is_err());
}

#[test]
fn changes_reach_stages() {
    let (dir, workspace) = workspace();
    let reach = |changed: &[&str]| {
        let changed = changed.iter().map(|&path| path.to_owned()).collect();
        let former = |path: &str| {
            let text = FILES.iter().find(|(file, _)| *file == path)?.1;
            Some(text.replace("batch = 2", "batch = 4"))
        };
        workspace.affected(&changed, &former).unwrap()
    };
    let [one, bs2] = &reach(&["models/one.txt"])[..] else {
        panic!("two targets read it");
    };
    assert_eq!(one.from, ["lower"]);
    assert_eq!(one.stages, ["lower", "run"]);
    assert_eq!(bs2.because, ["models/one.txt"]);
    assert_eq!(reach(&["kernels/gone.S"]).len(), 3);
    let [bs2] = &reach(&["models/BUILD.toml"])[..] else {
        panic!("one target differs from before");
    };
    assert_eq!(bs2.label.name, "one-bs2");
    assert_eq!(bs2.because, ["attribute batch"]);
    assert!(reach(&["rules/run.toml", "README.md"]).is_empty());
    drop(dir);
}
