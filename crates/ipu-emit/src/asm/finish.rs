//! Items to an object: layout, symbol values, words, relocations, `rpt` checks.

use super::error::AsmErrors;
use super::item::{Fault, Item, Kind, SectionItems, State, Symbol as Known, is_private};
use super::layout::{Shape, Spot, layout, partner};
use super::statement::{coissued, fits};
use super::value::{Base, Value, Values};
use super::{Assembly, Line};
use crate::object::{
    CodeSpan, Object, Relocation, RelocationKind, Section, Symbol as ObjectSymbol, Target,
};
use ipu_isa::text::{Expr, Insn};
use ipu_isa::{Class, encode};

/// The padding word of code.
const NOP_WORD: u32 = 0x19e0_0000;

/// Make the object, or report all faults.
pub fn finish(mut state: State) -> Result<Assembly, AsmErrors> {
    let mut spots = Vec::new();
    for section in std::mem::take(&mut state.sections) {
        match layout(&section.items) {
            Ok(placed) => spots.push((section, placed)),
            Err((index, fault)) => state.fail(section.items[index].place, fault),
        }
    }
    if !state.errors.is_empty() {
        return Err(AsmErrors(state.errors));
    }
    let (sections, spots): (Vec<_>, Vec<_>) = spots.into_iter().unzip();
    let symbols = std::mem::take(&mut state.symbols);
    let values = Values {
        symbols: &symbols,
        spots: &spots,
    };
    let mut object = Object::default();
    let mut lines = Vec::new();
    let mut kept = vec![None; sections.len()];
    for (index, section) in sections.iter().enumerate() {
        if !section.items.is_empty() || section.labelled {
            kept[index] = Some(object.sections.len() as u32);
            let mut writer = Writer::new(&mut state, &values, index, object.sections.len() as u32);
            writer.section(section);
            let (bytes, code) = (writer.bytes, writer.code);
            object.relocations.append(&mut writer.relocations);
            lines.append(&mut writer.lines);
            let align = alignment(section);
            object.sections.push(Section {
                name: section.name.clone(),
                align,
                bytes,
                code,
            });
        }
    }
    // Relocations were made with indices of all sections.
    for relocation in &mut object.relocations {
        if let Target::Section(section) = &mut relocation.target {
            *section = kept[*section as usize].expect("a label keeps its section");
        }
    }
    export(&mut state, &values, &kept, &mut object);
    if !state.errors.is_empty() {
        return Err(AsmErrors(state.errors));
    }
    Ok(Assembly {
        object,
        lines,
        warnings: state.warnings,
    })
}

fn has_code(section: &SectionItems) -> bool {
    section
        .items
        .iter()
        .any(|item| matches!(item.kind, Kind::Solo(_) | Kind::Bundle(..)))
}

fn alignment(section: &SectionItems) -> u32 {
    let least = if has_code(section) { 8 } else { 4 };
    let asked = section.items.iter().map(|item| match item.kind {
        Kind::Align(to, _) => to,
        _ => 1,
    });
    asked.fold(least, u32::max)
}

/// Symbols of the object, in name order.
fn export(state: &mut State, values: &Values<'_>, kept: &[Option<u32>], object: &mut Object) {
    for (name, known) in values.symbols {
        let global = state.globals.contains(name);
        let wanted = match known {
            Known::Label { .. } => global || !is_private(name),
            Known::Register(_) => false,
            _ => global,
        };
        if !wanted {
            continue;
        }
        match values.symbol(name, 0) {
            Ok(Value {
                base: Base::Number,
                offset,
            }) => {
                object.symbols.push(ObjectSymbol {
                    name: name.clone(),
                    section: None,
                    value: offset,
                    global,
                });
            }
            Ok(Value {
                base: Base::Section(section),
                offset,
            }) => {
                object.symbols.push(ObjectSymbol {
                    name: name.clone(),
                    section: kept[section],
                    value: offset,
                    global,
                });
            }
            Ok(_) => {}
            Err(reason) => {
                if let Some(place) = state.places.len().checked_sub(1) {
                    state.fail(
                        place as u32,
                        Fault::new(0, format!("symbol `{name}`: {reason}")),
                    );
                }
            }
        }
    }
}

/// Writes one section.
struct Writer<'a> {
    state: &'a mut State,
    values: &'a Values<'a>,
    spots: &'a [Spot],
    /// Index of the section in the object.
    section: u32,
    bytes: Vec<u8>,
    code: Vec<CodeSpan>,
    relocations: Vec<Relocation>,
    lines: Vec<Line>,
}

impl<'a> Writer<'a> {
    fn new(state: &'a mut State, values: &'a Values<'a>, index: usize, section: u32) -> Writer<'a> {
        Writer {
            state,
            values,
            spots: &values.spots[index],
            section,
            bytes: Vec::new(),
            code: Vec::new(),
            relocations: Vec::new(),
            lines: Vec::new(),
        }
    }

    fn section(&mut self, section: &SectionItems) {
        let code = has_code(section);
        for (index, item) in section.items.iter().enumerate() {
            let spot = self.spots[index];
            self.pad(spot.offset, code);
            self.note_line(item, spot);
            if let Err(fault) = self.item(item, spot, code) {
                self.state.fail(item.place, fault);
                self.pad(spot.offset + spot.size, code);
            }
            if let Some(insn) = rpt(item)
                && !item.unchecked
            {
                self.check_repeat(section, index, insn);
            }
            if self.state.is_hopeless() {
                return;
            }
        }
    }

    /// Fill up to an offset; code is filled with nops as far as whole words go.
    fn pad(&mut self, to: u32, code: bool) {
        while self.bytes.len() < to as usize {
            let at = self.bytes.len();
            if code && at.is_multiple_of(4) && at + 4 <= to as usize {
                self.bytes.extend(NOP_WORD.to_le_bytes());
                self.extend_code(at as u32, at as u32 + 4, None);
            } else {
                self.bytes.push(0);
            }
        }
    }

    /// Mark code; padding takes the mode of what is before it.
    fn extend_code(&mut self, start: u32, end: u32, mode: Option<ipu_isa::Mode>) {
        match (self.code.last_mut(), mode) {
            (Some(last), None) if last.end == start => last.end = end,
            (Some(last), Some(mode)) if last.end == start && last.mode == mode => last.end = end,
            (_, Some(mode)) => self.code.push(CodeSpan { start, end, mode }),
            (_, None) => {}
        }
    }

    fn note_line(&mut self, item: &Item, spot: Spot) {
        if spot.size > 0 {
            let raw = &self.state.places[item.place as usize].raw;
            self.lines.push(Line {
                section: self.section,
                offset: spot.offset,
                file: raw.file.to_string(),
                line: raw.line,
            });
        }
    }

    fn item(&mut self, item: &Item, spot: Spot, code: bool) -> Result<(), Fault> {
        match &item.kind {
            Kind::Bytes(bytes) => self.bytes.extend(bytes),
            Kind::Align(_, fill) => match fill {
                Some(fill) => {
                    let end = self.bytes.len() + spot.size as usize;
                    self.bytes.resize(end, *fill);
                }
                None => self.pad(spot.offset + spot.size, code),
            },
            Kind::Values(width, exprs) => {
                for expr in exprs {
                    self.number(*width, expr)?;
                }
            }
            Kind::Solo(insn) => {
                self.extend_code(spot.offset, spot.offset + spot.size, Some(item.mode));
                let nop = partner(insn);
                match (spot.shape, insn.form.form().slot) {
                    (Shape::Widened, ipu_isa::Slot::Main) => self.pair(insn, &nop)?,
                    (Shape::Widened, ipu_isa::Slot::Aux) => self.pair(&nop, insn)?,
                    _ => self.solo(insn)?,
                }
            }
            Kind::Bundle(main, aux) => {
                self.extend_code(spot.offset, spot.offset + spot.size, Some(item.mode));
                match spot.shape {
                    Shape::Narrowed => self.solo(main)?,
                    _ => self.pair(main, aux)?,
                }
            }
        }
        Ok(())
    }

    fn pair(&mut self, main: &Insn, aux: &Insn) -> Result<(), Fault> {
        for insn in [main, aux] {
            let (word, _) = self.resolve(insn)?;
            self.bytes.extend(coissued(word).to_le_bytes());
        }
        Ok(())
    }

    fn solo(&mut self, insn: &Insn) -> Result<(), Fault> {
        let (word, inline) = self.resolve(insn)?;
        self.bytes.extend(word.to_le_bytes());
        if let Some(inline) = inline {
            self.bytes.extend(inline.to_le_bytes());
        }
        Ok(())
    }

    /// Resolve the pending operands of an instruction that goes to the end of the bytes.
    fn resolve(&mut self, insn: &Insn) -> Result<(u32, Option<u32>), Fault> {
        let mut insn = insn.clone();
        for pending in std::mem::take(&mut insn.pending) {
            let fault = |reason: String| Fault::new(pending.at, reason);
            let value = self.values.eval(&pending.expr, 0).map_err(fault)?;
            let form = insn.form.form();
            let class = form
                .operands
                .get(pending.index)
                .map(|operand| operand.class);
            let kind = match (form.mnemonic, class) {
                (_, Some(Class::Br19 | Class::Call20)) => Some(RelocationKind::Branch19),
                ("run" | "runall", Some(Class::Zi(16))) => Some(RelocationKind::Run16),
                ("setzi", Some(Class::Zi(20))) if value.base != Base::Number => {
                    Some(RelocationKind::Absolute20)
                }
                _ => None,
            };
            match (kind, value.base) {
                (Some(kind), base) => self.relocate(kind, base, value.offset),
                (None, Base::Number) => {
                    let class = class.unwrap_or(Class::Zi(18));
                    let held = ipu_isa::text::immediate(class, value.offset);
                    insn.ops[pending.index] = held
                        .ok_or_else(|| fault(ipu_isa::text::out_of_range(class, value.offset)))?;
                }
                (None, Base::Section(_)) => {
                    return Err(fault("an address cannot stand here".into()));
                }
                (None, Base::External(name)) => {
                    return Err(fault(format!("symbol `{name}` is not defined")));
                }
            }
        }
        let word = encode(insn.form, &insn.ops).map_err(|e| Fault::new(0, e.to_string()))?;
        Ok((word, insn.inline_word()))
    }

    fn relocate(&mut self, kind: RelocationKind, base: Base, addend: i64) {
        let target = match base {
            Base::Number => Target::Absolute,
            Base::Section(section) => Target::Section(section as u32),
            Base::External(name) => Target::Symbol(name),
        };
        let (section, offset) = (self.section, self.bytes.len() as u32);
        self.relocations.push(Relocation {
            section,
            offset,
            kind,
            target,
            addend,
        });
    }

    fn number(&mut self, width: u8, expr: &Expr) -> Result<(), Fault> {
        let fault = |reason: String| Fault::new(0, reason);
        let value = self.values.eval(expr, 0).map_err(fault)?;
        let mut bytes = value.offset;
        match (value.base, width) {
            (Base::Number, _) if fits(value.offset, width) => {}
            (Base::Number, _) => {
                return Err(fault(format!(
                    "{} does not fit {width} bytes",
                    value.offset
                )));
            }
            (base, 4) => {
                self.relocate(RelocationKind::Word32, base, value.offset);
                bytes = 0;
            }
            _ => return Err(fault("an address needs a 4-byte word".into())),
        }
        self.bytes
            .extend(&bytes.to_le_bytes()[..usize::from(width)]);
        Ok(())
    }

    /// Check the body of the `rpt` in item `index`.
    fn check_repeat(&mut self, section: &SectionItems, index: usize, insn: &Insn) {
        let length = match insn.pending.iter().find(|pending| pending.index == 1) {
            None => i64::from(insn.ops[1]),
            Some(pending) => match self.values.eval(&pending.expr, 0) {
                Ok(Value {
                    base: Base::Number,
                    offset,
                }) => offset,
                _ => return,
            },
        };
        let place = section.items[index].place;
        let start = self.spots[index].offset + self.spots[index].size;
        if !start.is_multiple_of(8) {
            let reason = "the rpt body is not 8-byte aligned: bundle the rpt with fnop, align it, \
                          or write .allow_optimizations above";
            return self.state.fail(place, Fault::new(0, reason));
        }
        let end = i64::from(start) + (length + 1) * 8;
        for (item, spot) in section.items.iter().zip(self.spots).skip(index + 1) {
            if i64::from(spot.offset) >= end {
                return;
            }
            let insns = match (&item.kind, spot.shape) {
                (Kind::Bundle(main, aux), Shape::AsWritten) => [main, aux],
                (Kind::Align(..), _) if spot.size == 0 => continue,
                _ => {
                    let reason = "an rpt body holds bundles only";
                    return self.state.fail(item.place, Fault::new(0, reason));
                }
            };
            for insn in insns {
                let form = insn.form.form();
                if form.control || form.system {
                    let kind = if form.control { "control" } else { "system" };
                    let reason = format!("{kind} instruction `{}` in an rpt body", form.mnemonic);
                    return self.state.fail(item.place, Fault::new(0, reason));
                }
            }
        }
        let last = self.spots.last().map_or(0, |spot| spot.offset + spot.size);
        if i64::from(last) < end {
            self.state.warn(
                place,
                "the rpt body runs past the end of its section".into(),
            );
        }
    }
}

fn rpt(item: &Item) -> Option<&Insn> {
    let (Kind::Solo(insn) | Kind::Bundle(insn, _)) = &item.kind else {
        return None;
    };
    (insn.form.form().mnemonic == "rpt").then_some(insn)
}
