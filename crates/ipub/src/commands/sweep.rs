//! `ipub sweep`: a target with every combination of the values given, in one table.

use std::collections::BTreeSet;

use ipub_base::{Bytes, Cycles, Diagnostic, DiagnosticKind};
use ipub_engine::{BuildResult, Engine, Label, Request};
use ipub_stages::{RecipeFile, full_key};
use serde_json::{Map, Value, json};

use crate::cli::{Sweep, SweepUntil};
use crate::exit::Outcome;
use crate::screen::Screen;
use crate::{open, recipes, results};

/// Combinations that are built without `--yes`.
const BUILDS_MAX: usize = 256;
/// Characters of a failure that the table shows.
const FAILURE_CHARS: usize = 88;

/// A key and the values to try.
struct Axis {
    key: String,
    values: Vec<String>,
}

/// One build: its settings and figures.
struct Row {
    settings: Vec<String>,
    /// `None` if it failed before there was any.
    cycles: Option<u64>,
    document: Value,
    failure: Option<Diagnostic>,
}

pub fn sweep(args: &Sweep) -> Outcome {
    let mut axes: Vec<Axis> = args
        .sets
        .iter()
        .map(|set| axis(set))
        .collect::<Result<_, _>>()?;
    let count = axes
        .iter()
        .try_fold(1_usize, |count, axis| count.checked_mul(axis.values.len()));
    let count = count.unwrap_or(usize::MAX);
    if count > BUILDS_MAX && !args.yes {
        let message = format!("{count} combinations are more than {BUILDS_MAX}");
        return Err(Diagnostic::usage(message).help("--yes builds them all"));
    }
    let engine = open::engine()?;
    let label: Label = args.target.parse()?;
    let sweep = Sweeping {
        engine: &engine,
        label,
        args,
    };
    let total = count + 1;
    eprintln!("[1/{total}] {} as it is", sweep.label);
    let (base, build) = sweep.build(&[], Vec::new())?;
    if let Ok(text) = recipes::blob(&engine, &build, "plan", "recipe") {
        let text = String::from_utf8_lossy(&text);
        let recipe = RecipeFile::parse("recipe", &text).map_err(recipes::refuse)?;
        full_names(&recipe, &mut axes)?;
    }
    let combinations = combinations(&axes);
    for settings in &combinations {
        let sets = sets(&axes, settings);
        engine.workspace().target(&sweep.label, &sets)?;
    }
    let mut rows = vec![base];
    for (index, settings) in combinations.into_iter().enumerate() {
        let sets = sets(&axes, &settings);
        eprintln!("[{}/{total}] {}", index + 2, sets.join(" "));
        let (row, _) = sweep.build(&sets, settings)?;
        let stops = |failure: &Diagnostic| failure.kind == DiagnosticKind::Environment;
        if let Some(failure) = row.failure.clone().filter(stops) {
            show(args, &sweep.label, &axes, &rows);
            return Err(failure);
        }
        rows.push(row);
    }
    show(args, &sweep.label, &axes, &rows);
    match rows.iter().all(|row| row.failure.is_some()) {
        true => rows.swap_remove(0).failure.map_or(Ok(()), Err),
        false => Ok(()),
    }
}

/// `KEY=VALUE,VALUE`; commas within brackets or quotes are part of a value.
fn axis(set: &str) -> Result<Axis, Diagnostic> {
    let Some((key, text)) = set.split_once('=') else {
        let message = format!("--set {set}: there is no `=`");
        return Err(Diagnostic::usage(message).help("write --set key=value,value"));
    };
    let (mut values, mut value) = (Vec::new(), String::new());
    let (mut depth, mut quoted) = (0_u32, false);
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                values.push(std::mem::take(&mut value));
                continue;
            }
            _ => {}
        }
        value.push(character);
    }
    values.push(value);
    let mut seen = BTreeSet::new();
    values = values
        .into_iter()
        .map(|value| value.trim().to_owned())
        .collect();
    values.retain(|value| seen.insert(value.clone()));
    let key = key.trim().to_owned();
    Ok(Axis { key, values })
}

/// Gives decisions their full names, so that a short name costs no second key.
fn full_names(recipe: &RecipeFile, axes: &mut [Axis]) -> Result<(), Diagnostic> {
    let mut seen = BTreeSet::new();
    for axis in axes {
        let is_decision = ["gemm.", "cast."]
            .iter()
            .any(|section| axis.key.starts_with(section));
        if is_decision {
            axis.key = full_key(&recipe.recipe, &axis.key).map_err(recipes::refuse)?;
        }
        if !seen.insert(axis.key.clone()) {
            return Err(Diagnostic::usage(format!("`{}` is set twice", axis.key)));
        }
    }
    Ok(())
}

/// Every combination of values, the last key's changing first.
fn combinations(axes: &[Axis]) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    for axis in axes {
        let longer = found.into_iter().flat_map(|head: Vec<String>| {
            axis.values.iter().map(move |value| {
                let mut settings = head.clone();
                settings.push(value.clone());
                settings
            })
        });
        found = longer.collect();
    }
    found
}

fn sets(axes: &[Axis], settings: &[String]) -> Vec<String> {
    let pairs = axes.iter().zip(settings);
    pairs
        .map(|(axis, value)| format!("{}={value}", axis.key))
        .collect()
}

struct Sweeping<'a> {
    engine: &'a Engine,
    label: Label,
    args: &'a Sweep,
}

impl Sweeping<'_> {
    fn build(
        &self,
        sets: &[String],
        settings: Vec<String>,
    ) -> Result<(Row, BuildResult), Diagnostic> {
        let mut request = Request::new(self.label.clone());
        request.sets = sets.to_vec();
        request.jobs = usize::from(self.args.jobs);
        let until = match self.args.until {
            SweepUntil::Time => "time",
            SweepUntil::Verify => "verify",
        };
        request.until = vec![until.to_owned()];
        request.is_latest = false;
        let (workspace, strict) = (self.engine.workspace(), self.args.strict_recipe);
        recipes::follow_settings(workspace, &mut request, strict);
        let target = workspace.target(&request.label, &request.sets)?;
        let screen = Screen::new(false);
        let built = self.engine.build(&request, &screen);
        screen.take_log();
        let build = built?;
        for notice in recipes::notices(self.engine, &target, &build) {
            eprintln!("notice: {notice}");
        }
        let document = results::document(self.engine, &target, &build)?;
        let failure = build.failure().map(|(rule, failure)| {
            let mut diagnostic = failure.diagnostic();
            diagnostic.message = format!("{rule}: {}", diagnostic.message);
            diagnostic
        });
        let cycles = document["cycles"]["cropped"].as_u64();
        let row = Row {
            settings,
            cycles,
            document,
            failure,
        };
        Ok((row, build))
    }
}

impl Row {
    fn figures(&self) -> [(&'static str, Value); 4] {
        let figure = |part: &str, name: &str| self.document[part][name].clone();
        [
            ("cosine_min", figure("verify", "cosine_min")),
            ("max_abs_error", figure("verify", "max_abs_error")),
            ("free_bytes_min", figure("memory", "free_bytes_min")),
            ("table_bytes_max", figure("exchange", "table_bytes_max")),
        ]
    }

    /// Percent of the base's cycles.
    fn change(&self, base: &Row) -> Option<f64> {
        let base = base.cycles.filter(|cycles| *cycles > 0)? as f64;
        Some(100.0 * (self.cycles? as f64 - base) / base)
    }

    fn json(&self, axes: &[Axis], base: &Row) -> Value {
        let settings = axes.iter().zip(&self.settings);
        let settings: Map<String, Value> = settings
            .map(|(axis, value)| (axis.key.clone(), value.clone().into()))
            .collect();
        let mut row = Map::new();
        row.insert("settings".to_owned(), settings.into());
        row.insert("simulated_cycles".to_owned(), json!(self.cycles));
        row.insert("change_percent".to_owned(), json!(self.change(base)));
        for (name, value) in self.figures() {
            row.insert(name.to_owned(), value);
        }
        row.insert("failure".to_owned(), self.document["failure"].clone());
        row.into()
    }

    /// The failure in short: its kind, stage and first line.
    fn failure(&self) -> String {
        let Some(failure) = &self.failure else {
            return String::new();
        };
        let kind = self.document["failure"]["kind"].as_str();
        let line = failure.message.lines().next().unwrap_or_default();
        let text = format!("{}: {line}", kind.unwrap_or_default());
        match text.char_indices().nth(FAILURE_CHARS) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    fn cells(&self, base: &Row, is_base: bool, verified: bool) -> Vec<String> {
        let [cosine, error, free, table] = self.figures().map(|(_, value)| value);
        let bytes = |value: Value| value.as_u64().map(|bytes| Bytes(bytes).to_string());
        let change = self.change(base).filter(|_| !is_base);
        let mut cells = vec![
            self.cycles.map(|cycles| Cycles(cycles).to_string()),
            change.map(|percent| format!("{percent:+.2} %")),
        ];
        if verified {
            cells.push(cosine.as_f64().map(|cosine| format!("{cosine:.6}")));
            cells.push(error.as_f64().map(|error| format!("{error:.6}")));
        }
        cells.extend([bytes(free), bytes(table)]);
        cells.into_iter().map(Option::unwrap_or_default).collect()
    }
}

fn show(args: &Sweep, label: &Label, axes: &[Axis], rows: &[Row]) {
    let base = &rows[0];
    let verified = args.until == SweepUntil::Verify;
    if args.json {
        let variants: Vec<_> = rows[1..].iter().map(|row| row.json(axes, base)).collect();
        let document = json!({
            "target": label,
            "unit": "simulated cycles",
            "base": base.json(axes, base),
            "variants": variants,
        });
        println!("{document}");
        return;
    }
    let mut head: Vec<String> = axes.iter().map(|axis| axis.key.clone()).collect();
    head.extend(["simulated cycles", "change"].map(str::to_owned));
    if verified {
        head.extend(["cosine", "max error"].map(str::to_owned));
    }
    head.extend(["free on fullest tile", "exchange table"].map(str::to_owned));
    let mut lines = vec![(head, String::new())];
    for (index, row) in rows.iter().enumerate() {
        let mut cells = row.settings.clone();
        if index == 0 {
            cells = vec![String::new(); axes.len()];
            cells[0] = "(base)".to_owned();
        }
        cells.extend(row.cells(base, index == 0, verified));
        lines.push((cells, row.failure()));
    }
    println!("{label}");
    print_table(&lines, axes.len());
}

/// The first `left` columns begin at the left, figures end at the right.
fn print_table(lines: &[(Vec<String>, String)], left: usize) {
    let columns = lines[0].0.len();
    let width = |column: usize| {
        lines
            .iter()
            .map(|(cells, _)| cells[column].chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for (cells, behind) in lines {
        let mut text = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            text += &match column < left {
                true => format!("  {cell:<width$}"),
                false => format!("  {cell:>width$}"),
            };
        }
        let text = format!("{text}  {behind}");
        println!("{}", text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_split_at_commas_outside_brackets() {
        let values = |set| axis(set).unwrap().values;
        assert_eq!(values("a=1x2x3, 4x5x6,1x2x3"), ["1x2x3", "4x5x6"]);
        assert_eq!(values("a=[1,2],[3]"), ["[1,2]", "[3]"]);
        assert_eq!(values("a=\"x,y\""), ["\"x,y\""]);
        assert!(axis("a").is_err());
    }

    #[test]
    fn the_last_key_changes_first() {
        let axes = ["a=1,2", "b=x,y"].map(|set| axis(set).unwrap());
        let all = combinations(&axes);
        let all: Vec<_> = all
            .iter()
            .map(|settings| sets(&axes, settings).join(" "))
            .collect();
        assert_eq!(all, ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]);
    }
}
