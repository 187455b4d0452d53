//! Recipe files: decisions by names, with the context that they were made in.
//!
//! Input: TOML text. Output: a recipe, its context, and the place of each of its names; the text.
//! Invariants: what [`RecipeFile::write`] writes, [`RecipeFile::parse`] reads back; a file without
//! context can be read, for rebasing.
//! Not here: whether the decisions and the context are those of a graph (`context`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipu_plan::{AttentionPlan, CastSite, GemmPlan, Recipe};
use ipub_base::{Digest, Location};
use ipub_engine::StageFailure;
use serde::Deserialize;
use toml::Spanned;

use crate::context::Context;

/// A recipe file as it was read.
#[derive(Clone, Debug)]
pub struct RecipeFile {
    /// Its name, for messages.
    pub name: String,
    pub recipe: Recipe,
    pub context: Option<Context>,
    text: String,
    /// Offsets of names such as `gemm`, `gemm.encoder.qkv` and `context.graph`.
    places: BTreeMap<String, usize>,
}

type Section<T> = Option<Spanned<BTreeMap<Spanned<String>, T>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    context: Option<Spanned<ContextTable>>,
    gemm: Section<GemmPlan>,
    attention: Section<AttentionPlan>,
    cast: Section<CastSite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextTable {
    graph: Spanned<Digest>,
    target: Spanned<Digest>,
    policy: Spanned<Digest>,
    #[serde(default)]
    contracts: BTreeMap<String, Spanned<Digest>>,
    #[serde(default)]
    objects: BTreeMap<String, Digest>,
}

impl RecipeFile {
    /// Reads the text of the file `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, StageFailure> {
        let document: Document = toml::from_str(text).map_err(|error| {
            let mut failure = StageFailure::usage(error.message().trim());
            let offset = error.span().map_or(0, |span| span.start);
            failure.location = Some(Location::of_offset(name, text, offset));
            failure
        })?;
        let mut places = BTreeMap::new();
        let context = document.context.map(|context| {
            places.insert("context".to_owned(), context.span().start);
            let context = context.into_inner();
            for (part, digest) in [
                ("graph", &context.graph),
                ("target", &context.target),
                ("policy", &context.policy),
            ] {
                places.insert(format!("context.{part}"), digest.span().start);
            }
            for (family, digest) in &context.contracts {
                let part = format!("context.contracts.{family}");
                places.insert(part, digest.span().start);
            }
            let contracts = context.contracts.into_iter();
            Context {
                graph: context.graph.into_inner(),
                target: context.target.into_inner(),
                policy: context.policy.into_inner(),
                contracts: contracts
                    .map(|(name, digest)| (name, digest.into_inner()))
                    .collect(),
                objects: context.objects,
            }
        });
        let recipe = Recipe {
            gemm: section("gemm", document.gemm, &mut places),
            attention: section("attention", document.attention, &mut places),
            cast: section("cast", document.cast, &mut places),
        };
        Ok(Self {
            name: name.to_owned(),
            recipe,
            context,
            text: text.to_owned(),
            places,
        })
    }

    /// Where `name` stands, or else the section that it belongs to, or else the file.
    pub(crate) fn place(&self, name: &str) -> Location {
        let section = name.split('.').next().unwrap_or_default();
        let offset = self.places.get(name).or_else(|| self.places.get(section));
        match offset {
            Some(offset) => Location::of_offset(&self.name, &self.text, *offset),
            None => Location {
                file: self.name.clone(),
                line: 0,
                column: 0,
            },
        }
    }

    /// The text of a file: `recipe` in `context`, with the remarks of this file where they were.
    pub fn rewrite(&self, recipe: &Recipe, context: &Context) -> String {
        write(recipe, Some(context), &Remarks::of(&self.text))
    }

    /// The text of a new file that begins with a remark.
    pub fn write(remark: &str, recipe: &Recipe, context: Option<&Context>) -> String {
        let head = remark.lines().map(|line| format!("# {line}\n")).collect();
        let remarks = Remarks {
            head,
            ..Remarks::default()
        };
        write(recipe, context, &remarks)
    }
}

fn section<T>(
    section: &str,
    found: Section<T>,
    places: &mut BTreeMap<String, usize>,
) -> BTreeMap<String, T> {
    let Some(found) = found else {
        return BTreeMap::new();
    };
    places.insert(section.to_owned(), found.span().start);
    let mut decisions = BTreeMap::new();
    for (name, decision) in found.into_inner() {
        let offset = name.span().start;
        let name = name.into_inner();
        places.insert(format!("{section}.{name}"), offset);
        decisions.insert(name, decision);
    }
    decisions
}

/// Comments of a file that belong to what is written again.
#[derive(Default)]
struct Remarks {
    /// Lines before everything else.
    head: String,
    /// Lines after everything else.
    tail: String,
    /// Lines above a line, and what follows it, by what it holds.
    lines: BTreeMap<String, (String, String)>,
}

impl Remarks {
    fn of(text: &str) -> Self {
        let mut remarks = Self::default();
        let mut above = String::new();
        let mut section = String::new();
        let mut is_head = true;
        for line in text.lines().map(str::trim) {
            if line.starts_with('#') {
                above += &format!("{line}\n");
                continue;
            }
            if line.is_empty() && !is_head {
                continue;
            }
            let above = std::mem::take(&mut above);
            if is_head {
                is_head = false;
                if line.is_empty() || line.starts_with('[') {
                    remarks.head = above;
                    section = header(line).unwrap_or_default();
                    continue;
                }
            }
            let name = match header(line) {
                Some(name) => {
                    section.clone_from(&name);
                    name
                }
                None => match line.split_once('=') {
                    Some((key, _)) => format!("{section}.{}", key.trim().trim_matches('"')),
                    None => continue,
                },
            };
            let behind = behind(line);
            if !above.is_empty() || !behind.is_empty() {
                remarks.lines.insert(name, (above, behind));
            }
        }
        remarks.tail = above;
        remarks
    }

    fn around(&self, name: &str, line: &str) -> String {
        match self.lines.get(name) {
            Some((above, behind)) if !behind.is_empty() => format!("{above}{line} {behind}\n"),
            Some((above, _)) => format!("{above}{line}\n"),
            None => format!("{line}\n"),
        }
    }
}

/// `gemm."a.b"` of a line that opens a table, without quotes.
fn header(line: &str) -> Option<String> {
    let rest = line.strip_prefix('[')?;
    let (name, _) = rest.split_once(']')?;
    Some(name.replace('"', ""))
}

/// The comment at the end of a line.
fn behind(line: &str) -> String {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted => return line[at..].to_owned(),
            _ => {}
        }
    }
    String::new()
}

fn write(recipe: &Recipe, context: Option<&Context>, remarks: &Remarks) -> String {
    let mut text = remarks.head.clone();
    let mut table = |name: &str, lines: Vec<(String, String)>| {
        if lines.is_empty() {
            return;
        }
        let between = if text.is_empty() { "" } else { "\n" };
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "{between}{}",
            remarks.around(name, &format!("[{name}]"))
        );
        for (key, value) in lines {
            let path = format!("{name}.{}", key.trim_matches('"'));
            text += &remarks.around(&path, &format!("{key} = {value}"));
        }
    };
    if let Some(context) = context {
        let quoted = |digest: &Digest| format!("\"{digest}\"");
        let main = [
            ("graph", &context.graph),
            ("target", &context.target),
            ("policy", &context.policy),
        ];
        let main = main.map(|(name, digest)| (name.to_owned(), quoted(digest)));
        table("context", main.to_vec());
        for (name, digests) in [
            ("context.contracts", &context.contracts),
            ("context.objects", &context.objects),
        ] {
            let digests = digests.iter();
            let lines = digests.map(|(family, digest)| (family.clone(), quoted(digest)));
            table(name, lines.collect());
        }
    }
    for (section, lines) in recipe.lines() {
        let lines = lines.into_iter();
        let lines = lines.map(|(name, line)| (format!("\"{name}\""), line));
        table(section, lines.collect());
    }
    text + &remarks.tail
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Found by hand.\n\n[gemm]\n# The widest one.\n\
        \"a.x\" = { grid = \"1x2x3\", result = \"1x1\" } # kept\n\
        \n[cast]\n\"a.x.x\" = \"late\"\n# The end.\n";

    fn context() -> Context {
        let digest = Digest::of(b"x");
        let families = BTreeMap::from([("gemm".to_owned(), digest)]);
        Context {
            graph: digest,
            target: digest,
            policy: digest,
            contracts: families.clone(),
            objects: families,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let file = RecipeFile::parse("a.toml", TEXT).unwrap();
        let text = RecipeFile::write("One.\nTwo.", &file.recipe, Some(&context()));
        assert!(
            text.starts_with("# One.\n# Two.\n\n[context]\ngraph = \""),
            "{text}"
        );
        let again = RecipeFile::parse("b.toml", &text).unwrap();
        assert_eq!(
            (again.recipe, again.context),
            (file.recipe, Some(context()))
        );
    }

    #[test]
    fn remarks_stay_with_their_lines() {
        let file = RecipeFile::parse("a.toml", TEXT).unwrap();
        let text = file.rewrite(&file.recipe, &context());
        let spaced = TEXT.replace("one.\n", "one.\n\n");
        let spaced = RecipeFile::parse("a.toml", &spaced).unwrap();
        assert_eq!(spaced.rewrite(&file.recipe, &context()), text);
        let (head, rest) = text.split_once("[gemm]").unwrap();
        assert!(head.starts_with("# Found by hand.\n\n[context]"), "{text}");
        assert_eq!(rest, TEXT.split_once("[gemm]").unwrap().1);
        let twice = RecipeFile::parse("a.toml", &text).unwrap();
        assert_eq!(twice.rewrite(&twice.recipe, &context()), text);
    }

    #[test]
    fn faults_have_their_place() {
        let place = |text: &str| {
            let failure = RecipeFile::parse("a.toml", text).unwrap_err();
            failure.location.unwrap().to_string()
        };
        assert_eq!(place(&TEXT.replace("1x2x3", "1x2")), "a.toml:5:18");
        assert_eq!(place(&TEXT.replace("\"late\"", "\"lat\"")), "a.toml:8:11");
        assert_eq!(place(&TEXT.replace("[cast]", "[casts]")), "a.toml:7:2");
        let file = RecipeFile::parse("a.toml", TEXT).unwrap();
        assert_eq!(file.place("gemm.a.x").to_string(), "a.toml:5:1");
        assert_eq!(file.place("gemm.b").to_string(), "a.toml:3:1");
    }
}
