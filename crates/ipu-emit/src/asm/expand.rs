//! The statement stream: macros, conditionals, repetition, labels.
//!
//! Input: a source text. Output: calls into [`State`] in program order.
//! Invariants: conditionals balance within a source, a macro body and a repetition.

use super::Source;
use super::item::{Fault, Place, State, Symbol};
use super::macros::{Bindings, Macro, leading_name, substitute, unquote};
use super::source::{Raw, split};
use ipu_isa::text::split_commas;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Nested macro calls and repetitions.
const DEPTH_MAX: usize = 64;
/// Statements of one assembly, macros replaced.
const STATEMENTS_MAX: usize = 4_000_000;

struct Frame {
    body: Rc<[Raw]>,
    next: usize,
    bindings: Bindings,
    count: u32,
    /// Further rounds of a repetition, last first.
    rounds: Vec<Bindings>,
    is_macro: bool,
    context: Rc<[String]>,
    /// Open conditionals when the frame began.
    conditions: usize,
}

struct Condition {
    /// Statements are taken now.
    active: bool,
    /// A branch was taken, or the surrounding is inactive: no later branch may be.
    done: bool,
    seen_else: bool,
    place: u32,
}

struct Expander<'s> {
    state: &'s mut State,
    frames: Vec<Frame>,
    conditions: Vec<Condition>,
    macros: BTreeMap<String, Macro>,
    calls: u32,
    statements: usize,
}

/// Feed all statements of a source to the state.
pub fn run(state: &mut State, source: Source<'_>) {
    let body = match split(source.text, &source.name.into(), (1, 1)) {
        Ok(body) => body,
        Err(error) => {
            let place = Place {
                raw: error.at,
                context: Rc::new([]),
            };
            state
                .errors
                .push(State::diagnostic(&place, Fault::new(0, error.reason)));
            return;
        }
    };
    let mut expander = Expander {
        state,
        frames: Vec::new(),
        conditions: Vec::new(),
        macros: BTreeMap::new(),
        calls: 0,
        statements: 0,
    };
    expander.push_frame(body.into(), vec![Bindings::new()], false, Rc::new([]));
    expander.run();
}

impl Expander<'_> {
    fn run(&mut self) {
        while let Some(raws) = self.next() {
            for (raw, context) in raws {
                let place = self.state.places.len() as u32;
                self.state.places.push(Place {
                    raw: raw.clone(),
                    context,
                });
                if let Err(fault) = self.dispatch(&raw.text, place) {
                    self.state.fail(place, fault);
                }
                self.statements += 1;
                if self.statements > STATEMENTS_MAX {
                    self.state.fail(place, Fault::new(0, "too many statements"));
                    return;
                }
            }
            if self.state.is_hopeless() {
                return;
            }
        }
        if let Some(open) = self.state.bundle.take() {
            self.state
                .fail(open.place, Fault::new(0, "bundle without end"));
        }
    }

    fn push_frame(
        &mut self,
        body: Rc<[Raw]>,
        mut rounds: Vec<Bindings>,
        is_macro: bool,
        context: Rc<[String]>,
    ) {
        rounds.reverse();
        let Some(bindings) = rounds.pop() else { return };
        let (count, conditions) = (self.calls, self.conditions.len());
        let frame = Frame {
            body,
            next: 0,
            bindings,
            count,
            rounds,
            is_macro,
            context,
            conditions,
        };
        self.frames.push(frame);
    }

    /// The next statements: one of the innermost frame, split again if its replacement needs it.
    fn next(&mut self) -> Option<Vec<(Raw, Rc<[String]>)>> {
        loop {
            let frame = self.frames.last_mut()?;
            let Some(raw) = frame.body.get(frame.next) else {
                self.end_round();
                continue;
            };
            frame.next += 1;
            let context = frame.context.clone();
            if frame.bindings.is_empty() && !raw.text.contains('\\') {
                return Some(vec![(raw.clone(), context)]);
            }
            let text = substitute(&raw.text, &frame.bindings, frame.count);
            let raw = Raw {
                text: text.as_str().into(),
                ..raw.clone()
            };
            if !text.contains([';', '{', '}', '\n']) || matches!(&*text, "{" | "}") {
                return Some(vec![(raw, context)]);
            }
            return Some(match split(&text, &raw.file, (raw.line, raw.column)) {
                Ok(raws) => raws.into_iter().map(|raw| (raw, context.clone())).collect(),
                Err(_) => vec![(raw, context)],
            });
        }
    }

    fn end_round(&mut self) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let open = self.conditions.len().saturating_sub(frame.conditions);
        if let Some(bindings) = frame.rounds.pop() {
            frame.bindings = bindings;
            frame.next = 0;
        } else {
            self.frames.pop();
        }
        for _ in 0..open {
            let condition = self.conditions.pop().expect("counted");
            self.state.fail(
                condition.place,
                Fault::new(0, "conditional without `.endif`"),
            );
        }
    }

    fn is_active(&self) -> bool {
        self.conditions
            .last()
            .is_none_or(|condition| condition.active)
    }

    fn dispatch(&mut self, text: &str, place: u32) -> Result<(), Fault> {
        let (labels, offset) = labels(text);
        let active = self.is_active();
        if active {
            self.define(&labels)?;
        }
        let text = &text[offset..];
        let (name, rest) = leading_name(text);
        let directive = name.starts_with('.');
        if directive && self.conditional(name, rest.trim(), place)? {
            return Ok(());
        }
        if !active {
            return match name {
                ".macro" | ".rept" | ".irp" | ".irpc" => self.capture(name).map(|_| ()),
                _ => Ok(()),
            };
        }
        if !text.is_empty() && !self.expansion(name, rest.trim(), place)? {
            self.state.statement(text, offset, place);
        }
        Ok(())
    }

    fn define(&mut self, labels: &[(usize, &str)]) -> Result<(), Fault> {
        for &(at, name) in labels {
            if self.state.bundle.is_some() {
                return Err(Fault::new(at, "label in a bundle"));
            }
            self.state.define_label(name)?;
        }
        Ok(())
    }

    /// Handle a conditional directive; false if it is none.
    fn conditional(&mut self, name: &str, rest: &str, place: u32) -> Result<bool, Fault> {
        if name.starts_with(".if") {
            let surrounding = self.is_active();
            let value = if surrounding {
                self.condition(name, rest)
            } else {
                Ok(false)
            };
            let active = matches!(value, Ok(true));
            // After a bad condition no branch is taken.
            let done = !surrounding || active || value.is_err();
            self.conditions.push(Condition {
                active,
                done,
                seen_else: false,
                place,
            });
            return value.map(|_| true);
        }
        if !matches!(name, ".else" | ".elseif" | ".endif") {
            return Ok(false);
        }
        let floor = self.frames.last().map_or(0, |frame| frame.conditions);
        if self.conditions.len() <= floor {
            return Err(Fault::new(0, format!("`{name}` without `.if`")));
        }
        let mut condition = self.conditions.pop().expect("compared with the floor");
        if name == ".endif" {
            return Ok(true);
        }
        if condition.seen_else {
            return Err(Fault::new(0, format!("`{name}` after `.else`")));
        }
        condition.seen_else = name == ".else";
        let value = match (condition.done, name) {
            (true, _) => Ok(false),
            (false, ".else") => Ok(true),
            (false, _) => self.condition(".if", rest),
        };
        condition.active = matches!(value, Ok(true));
        condition.done |= condition.active || value.is_err();
        self.conditions.push(condition);
        value.map(|_| true)
    }

    /// The value of a condition.
    fn condition(&mut self, name: &str, rest: &str) -> Result<bool, Fault> {
        let known = |state: &State| match state.symbols.get(rest) {
            Some(Symbol::Number(_) | Symbol::Label { .. } | Symbol::Register(_)) => true,
            Some(Symbol::Deferred(_)) => true,
            None => false,
        };
        Ok(match name {
            ".ifdef" => known(self.state),
            ".ifndef" | ".ifnotdef" => !known(self.state),
            ".ifb" => unquote(rest).trim().is_empty(),
            ".ifnb" => !unquote(rest).trim().is_empty(),
            ".ifc" | ".ifnc" => {
                let pieces = split_commas(rest);
                let [(_, a), (_, b)] = pieces[..] else {
                    return Err(Fault::new(0, "two texts expected"));
                };
                (unquote(a) == unquote(b)) == (name == ".ifc")
            }
            _ => {
                let value = self.state.number(rest)?;
                match name {
                    ".if" | ".ifne" => value != 0,
                    ".ifeq" => value == 0,
                    ".ifgt" => value > 0,
                    ".ifge" => value >= 0,
                    ".iflt" => value < 0,
                    ".ifle" => value <= 0,
                    _ => return Err(Fault::new(0, format!("unknown directive `{name}`"))),
                }
            }
        })
    }

    /// Handle macro definitions, calls and repetition; false if the statement is none.
    fn expansion(&mut self, name: &str, rest: &str, place: u32) -> Result<bool, Fault> {
        match name {
            ".macro" => {
                let body = self.capture(name)?;
                let parsed = Macro::parse(rest, body).map_err(|reason| Fault::new(0, reason))?;
                self.macros.insert(parsed.name.clone(), parsed);
            }
            ".purgem" => {
                if self.macros.remove(rest).is_none() {
                    return Err(Fault::new(0, format!("no macro `{rest}`")));
                }
            }
            ".exitm" => self.exit_macro()?,
            ".endm" | ".endmacro" | ".endr" => {
                return Err(Fault::new(0, format!("`{name}` without its beginning")));
            }
            ".rept" => {
                let body = self.capture(name)?;
                let count = self.state.number(rest)?;
                let Some(count) = usize::try_from(count).ok().filter(|&n| n <= STATEMENTS_MAX)
                else {
                    return Err(Fault::new(0, "repetition count is out of range"));
                };
                self.repeat(body, vec![Bindings::new(); count], name, place)?;
            }
            ".irp" | ".irpc" => {
                let body = self.capture(name)?;
                let Some((parameter, values)) = rest.split_once(',') else {
                    return Err(Fault::new(0, "name and values expected"));
                };
                let parameter = parameter.trim();
                let bind = |value: &str| vec![(parameter.to_string(), value.to_string())];
                let rounds: Vec<Bindings> = match name {
                    ".irp" => split_commas(values)
                        .iter()
                        .map(|(_, v)| bind(unquote(v)))
                        .collect(),
                    _ => values
                        .trim()
                        .chars()
                        .map(|c| bind(c.encode_utf8(&mut [0; 4])))
                        .collect(),
                };
                self.repeat(body, rounds, name, place)?;
            }
            _ => {
                let Some(called) = self.macros.get(name) else {
                    return Ok(false);
                };
                let bindings = called.bind(rest).map_err(|reason| Fault::new(0, reason))?;
                let body = called.body.clone();
                let description = format!("macro `{name}`");
                self.calls += 1;
                self.enter(body, vec![bindings], true, &description, place)?;
            }
        }
        Ok(true)
    }

    fn repeat(
        &mut self,
        body: Vec<Raw>,
        rounds: Vec<Bindings>,
        name: &str,
        place: u32,
    ) -> Result<(), Fault> {
        // Names of the surrounding macro were replaced when the body was captured.
        self.enter(body.into(), rounds, false, &format!("`{name}`"), place)
    }

    fn enter(
        &mut self,
        body: Rc<[Raw]>,
        rounds: Vec<Bindings>,
        is_macro: bool,
        description: &str,
        place: u32,
    ) -> Result<(), Fault> {
        if body.is_empty() {
            return Ok(());
        }
        if self.frames.len() >= DEPTH_MAX {
            return Err(Fault::new(0, "macros and repetitions nest too deeply"));
        }
        let at = &self.state.places[place as usize];
        let mut context = vec![format!("{description} at {}:{}", at.raw.file, at.raw.line)];
        context.extend(at.context.iter().cloned());
        self.push_frame(body, rounds, is_macro, context.into());
        Ok(())
    }

    /// Leave the innermost macro and the repetitions inside it.
    fn exit_macro(&mut self) -> Result<(), Fault> {
        let Some(index) = self.frames.iter().rposition(|frame| frame.is_macro) else {
            return Err(Fault::new(0, "`.exitm` outside a macro"));
        };
        let conditions = self.frames[index].conditions;
        self.frames.truncate(index);
        self.conditions.truncate(conditions);
        Ok(())
    }

    /// Take the statements up to the end of a macro or repetition that begins with `name`.
    fn capture(&mut self, name: &str) -> Result<Vec<Raw>, Fault> {
        let is_macro = name == ".macro";
        let frame = self
            .frames
            .last_mut()
            .expect("a statement was read from it");
        let mut depth = 1;
        let mut body = Vec::new();
        while let Some(raw) = frame.body.get(frame.next) {
            frame.next += 1;
            let (word, _) = leading_name(&raw.text);
            match word {
                ".macro" if is_macro => depth += 1,
                ".rept" | ".irp" | ".irpc" if !is_macro => depth += 1,
                ".endm" | ".endmacro" if is_macro => depth -= 1,
                ".endr" if !is_macro => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(body);
            }
            let text = match frame.bindings.is_empty() {
                true => raw.text.clone(),
                false => substitute(&raw.text, &frame.bindings, frame.count).into(),
            };
            body.push(Raw {
                text,
                ..raw.clone()
            });
        }
        Err(Fault::new(0, format!("`{name}` without end")))
    }
}

/// The labels before a statement, each with its offset, and the offset of the rest.
fn labels(text: &str) -> (Vec<(usize, &str)>, usize) {
    let mut labels = Vec::new();
    let mut rest = text;
    loop {
        let at = text.len() - rest.len();
        let (name, after) = leading_name(rest);
        let Some(after) = after.trim_start().strip_prefix(':') else {
            return (labels, at);
        };
        let number_start = name.starts_with(|c: char| c.is_ascii_digit());
        let numeric = name.bytes().all(|b| b.is_ascii_digit());
        if name.is_empty() || (number_start && !numeric) {
            return (labels, at);
        }
        labels.push((at, name));
        rest = after.trim_start();
    }
}
