//! What the assembler has read so far: sections of items, symbols, modes, faults.
//!
//! Invariants: every item has a place in `places`; a label binds to the item that follows it.

use super::Options;
use super::error::{AsmError, ERRORS_MAX, Warning};
use super::source::Raw;
use ipu_isa::Mode;
use ipu_isa::text::{Expr, Insn, Name};
use ipu_target::amp::TAMP_NAMES;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A statement's place and the calls around it.
#[derive(Debug, Clone)]
pub struct Place {
    pub raw: Raw,
    pub context: Rc<[String]>,
}

/// A fault within the statement being read: byte offset of its text, and reason.
#[derive(Debug, Clone)]
pub struct Fault {
    pub at: usize,
    pub reason: String,
}

impl Fault {
    pub fn new(at: usize, reason: impl Into<String>) -> Fault {
        Fault {
            at,
            reason: reason.into(),
        }
    }
}

impl From<ipu_isa::text::TextError> for Fault {
    fn from(error: ipu_isa::text::TextError) -> Fault {
        Fault {
            at: error.at,
            reason: error.reason,
        }
    }
}

/// The content of an item.
#[derive(Debug, Clone)]
pub enum Kind {
    Solo(Insn),
    Bundle(Insn, Insn),
    /// Alignment to a power of two, with the fill byte if the source gives one.
    Align(u32, Option<u8>),
    Bytes(Vec<u8>),
    /// Numbers of so many bytes each.
    Values(u8, Vec<Expr>),
}

#[derive(Debug, Clone)]
pub struct Item {
    pub kind: Kind,
    pub place: u32,
    pub mode: Mode,
    /// `.allow_optimizations` holds.
    pub optimize: bool,
    /// `.allow_invalid_repeat` holds.
    pub unchecked: bool,
}

#[derive(Debug, Clone)]
pub struct SectionItems {
    pub name: String,
    pub items: Vec<Item>,
    pub labelled: bool,
}

#[derive(Debug, Clone)]
pub enum Symbol {
    Number(i64),
    /// The item of this index in a section, or the end of the section.
    Label {
        section: usize,
        item: usize,
    },
    /// An expression over labels.
    Deferred(Expr),
    /// A register name, with `$`.
    Register(String),
}

/// An open bundle.
#[derive(Debug)]
pub struct OpenBundle {
    pub place: u32,
    pub insns: Vec<(Insn, u32)>,
    /// A fault inside was reported: the bundle is dropped.
    pub failed: bool,
}

#[derive(Debug)]
pub struct State {
    pub sections: Vec<SectionItems>,
    pub section: usize,
    pub symbols: BTreeMap<String, Symbol>,
    pub registers: bool,
    pub globals: BTreeSet<String>,
    pub local_counts: BTreeMap<u32, u32>,
    pub mode: Mode,
    pub optimize: bool,
    pub unchecked: bool,
    pub bundle: Option<OpenBundle>,
    pub places: Vec<Place>,
    pub errors: Vec<AsmError>,
    pub warnings: Vec<Warning>,
}

/// Prefix of symbols that the assembler makes; no source can write it.
const INTERNAL: char = '\u{1}';

/// Whether a symbol stays out of the object.
pub fn is_private(name: &str) -> bool {
    name.starts_with(INTERNAL) || name.starts_with(".L")
}

fn local_name(number: u32, instance: u32) -> String {
    format!("{INTERNAL}{number}.{instance}")
}

impl State {
    pub fn new(options: &Options) -> State {
        let builtin = TAMP_NAMES
            .iter()
            .map(|&(name, value)| (name.to_string(), i64::from(value)));
        let given = options
            .defines
            .iter()
            .map(|(name, &value)| (name.clone(), value));
        let symbols = builtin
            .chain(given)
            .map(|(name, value)| (name, Symbol::Number(value)));
        State {
            sections: vec![SectionItems {
                name: ".text".into(),
                items: vec![],
                labelled: false,
            }],
            section: 0,
            symbols: symbols.collect(),
            registers: false,
            globals: BTreeSet::new(),
            local_counts: BTreeMap::new(),
            mode: options.mode,
            optimize: false,
            unchecked: false,
            bundle: None,
            places: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Enough faults were found to stop.
    pub fn is_hopeless(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    pub fn diagnostic(place: &Place, fault: Fault) -> AsmError {
        let raw = &place.raw;
        AsmError {
            file: raw.file.to_string(),
            line: raw.line,
            column: raw.column + fault.at as u32,
            statement: raw.text.to_string(),
            reason: fault.reason,
            context: place.context.to_vec(),
        }
    }

    pub fn fail(&mut self, place: u32, fault: Fault) {
        let error = State::diagnostic(&self.places[place as usize], fault);
        self.errors.push(error);
    }

    pub fn warn(&mut self, place: u32, reason: String) {
        let warning = State::diagnostic(&self.places[place as usize], Fault::new(0, reason));
        self.warnings.push(Warning(warning));
    }

    pub fn push(&mut self, kind: Kind, place: u32) {
        let (mode, optimize, unchecked) = (self.mode, self.optimize, self.unchecked);
        self.sections[self.section].items.push(Item {
            kind,
            place,
            mode,
            optimize,
            unchecked,
        });
    }

    /// Make the section of this name the current one.
    pub fn enter_section(&mut self, name: &str) {
        let found = self
            .sections
            .iter()
            .position(|section| section.name == name);
        self.section = found.unwrap_or_else(|| {
            self.sections.push(SectionItems {
                name: name.into(),
                items: vec![],
                labelled: false,
            });
            self.sections.len() - 1
        });
    }

    fn here(&self) -> Symbol {
        Symbol::Label {
            section: self.section,
            item: self.sections[self.section].items.len(),
        }
    }

    /// Define a label at the next item.
    pub fn define_label(&mut self, name: &str) -> Result<(), Fault> {
        self.sections[self.section].labelled = true;
        let here = self.here();
        if let Ok(number) = name.parse::<u32>() {
            let count = self.local_counts.entry(number).or_insert(0);
            *count += 1;
            self.symbols.insert(local_name(number, *count), here);
            return Ok(());
        }
        match self.symbols.insert(name.to_string(), here) {
            None => Ok(()),
            Some(_) => Err(Fault::new(0, format!("symbol `{name}` is defined twice"))),
        }
    }

    /// Fold an expression with the numbers known now, and bind local labels.
    pub fn fold(&mut self, expr: Expr) -> Result<Expr, String> {
        let mut missing = None;
        let folded = expr.fold(&mut |name| match name {
            Name::Symbol(symbol) => match self.symbols.get(symbol) {
                Some(Symbol::Number(value)) => Some(Expr::Number(*value)),
                _ => None,
            },
            Name::Local { number, forward } => {
                let count = self.local_counts.get(number).copied().unwrap_or(0);
                if count == 0 && !forward {
                    missing = Some(*number);
                }
                let name = local_name(*number, count + u32::from(*forward));
                Some(Expr::Name(Name::Symbol(name)))
            }
            Name::Here => {
                let Symbol::Label { section, item } = self.here() else {
                    return None;
                };
                let name = format!("{INTERNAL}here.{section}.{item}");
                self.symbols
                    .insert(name.clone(), Symbol::Label { section, item });
                Some(Expr::Name(Name::Symbol(name)))
            }
        })?;
        match missing {
            Some(number) => Err(format!("no label `{number}:` before")),
            None => Ok(folded),
        }
    }

    /// The value of an expression that must be a number now.
    pub fn number(&mut self, text: &str) -> Result<i64, Fault> {
        let expr = ipu_isa::text::parse_expr(text)?;
        match self.fold(expr) {
            Ok(Expr::Number(value)) => Ok(value),
            Ok(_) => Err(Fault::new(0, "a number known at this place is needed")),
            Err(reason) => Err(Fault::new(0, reason)),
        }
    }
}
