//! Offsets of the items of a section.
//!
//! Input: items. Output: offset and shape of each. Invariants: bundles and two-word instructions
//! are 8-byte aligned, other instructions 4-byte aligned; padding never runs unless an alignment
//! directive asks for it.
//!
//! Where a bundle would start at four modulo eight and optimisation is allowed, the nearest solo
//! instruction before it that starts at zero modulo eight becomes a bundle with the other slot's
//! nop; everything between moves by four bytes. Only solo instructions may lie between. If the
//! statement before never falls through, padding does instead.

use super::item::{Fault, Item, Kind};
use super::statement::common_write;
use ipu_isa::text::Insn;
use ipu_isa::{FormId, Mode, Slot};

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    pub offset: u32,
    pub size: u32,
    pub shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    AsWritten,
    /// A solo instruction paired with the other slot's nop.
    Widened,
    /// `{ rpt ; fnop }` as a solo `rpt`.
    Narrowed,
}

/// The nop of the slot that an instruction leaves free.
pub fn partner(insn: &Insn) -> Insn {
    let (key, register) = match insn.form.form().slot {
        Slot::Main => ("setzi A", 13),
        Slot::Aux => ("setzi M", 14),
    };
    let form = FormId::by_key(key).expect("form is in the table");
    Insn::new(form, [register, 0, 0, 0, 0, 0])
}

fn is_fnop(insn: &Insn) -> bool {
    insn.form.form().key == "setzi A" && insn.ops[..2] == [13, 0] && insn.pending.is_empty()
}

/// Whether the instruction never continues with the next one.
fn is_terminal(insn: &Insn) -> bool {
    let mnemonic = insn.form.form().mnemonic;
    matches!(mnemonic, "br" | "bri") || mnemonic.starts_with("exit")
}

struct Layout<'a> {
    items: &'a [Item],
    spots: Vec<Spot>,
    offset: u32,
}

/// Lay out a section; a fault names its item.
pub fn layout(items: &[Item]) -> Result<Vec<Spot>, (usize, Fault)> {
    let mut layout = Layout {
        items,
        spots: Vec::with_capacity(items.len()),
        offset: 0,
    };
    for (index, item) in items.iter().enumerate() {
        layout.item(index, item).map_err(|fault| (index, fault))?;
    }
    Ok(layout.spots)
}

impl Layout<'_> {
    fn item(&mut self, index: usize, item: &Item) -> Result<(), Fault> {
        let mut shape = Shape::AsWritten;
        let size = match &item.kind {
            Kind::Bytes(bytes) => bytes.len() as u32,
            Kind::Values(width, values) => u32::from(*width) * values.len() as u32,
            Kind::Align(to, _) => {
                if *to >= 8 && item.optimize && self.offset % 8 == 4 {
                    self.widen_before(index);
                }
                self.offset.next_multiple_of(*to) - self.offset
            }
            Kind::Solo(insn) => {
                self.check_word()?;
                let words = insn.form.form().words() as u32;
                if words == 2 && self.offset % 8 == 4 && !item.unchecked {
                    self.align_before(index, item, insn.form.form().mnemonic)?;
                }
                4 * words
            }
            Kind::Bundle(main, aux) => {
                self.check_word()?;
                let is_rpt = main.form.form().mnemonic == "rpt";
                if self.offset % 8 == 4 && item.optimize && is_rpt && is_fnop(aux) {
                    shape = Shape::Narrowed;
                } else if self.offset % 8 == 4 && !item.unchecked {
                    self.align_before(index, item, "bundle")?;
                }
                if shape == Shape::Narrowed { 4 } else { 8 }
            }
        };
        self.spots.push(Spot {
            offset: self.offset,
            size,
            shape,
        });
        self.offset += size;
        Ok(())
    }

    fn check_word(&self) -> Result<(), Fault> {
        match self.offset % 4 {
            0 => Ok(()),
            _ => Err(Fault::new(0, "instruction is not 4-byte aligned")),
        }
    }

    /// Bring the offset from four to zero modulo eight before an item.
    fn align_before(&mut self, index: usize, item: &Item, what: &str) -> Result<(), Fault> {
        if !item.optimize {
            let reason = format!(
                "{what} is not 8-byte aligned: align it, or write .allow_optimizations above"
            );
            return Err(Fault::new(0, reason));
        }
        let padded = index > 0
            && matches!(&self.items[index - 1].kind, Kind::Solo(insn) if is_terminal(insn));
        if padded {
            self.offset += 4;
            return Ok(());
        }
        match self.widen_before(index) {
            true => Ok(()),
            false => Err(Fault::new(
                0,
                format!("{what} is not 8-byte aligned, and no instruction before it can be paired"),
            )),
        }
    }

    /// Widen the nearest solo instruction before `index` that may be; false if there is none.
    fn widen_before(&mut self, index: usize) -> bool {
        for candidate in (0..index).rev() {
            let item = &self.items[candidate];
            let Kind::Solo(insn) = &item.kind else {
                return false;
            };
            let spot = self.spots[candidate];
            if spot.shape == Shape::Widened || spot.size != 4 {
                return false;
            }
            let pairs = insn.form.form().can_coissue
                && item.mode == Mode::Worker
                && item.optimize
                && common_write(insn, &partner(insn)).is_none();
            if spot.offset.is_multiple_of(8) && pairs {
                self.spots[candidate].size = 8;
                self.spots[candidate].shape = Shape::Widened;
                for spot in &mut self.spots[candidate + 1..index] {
                    spot.offset += 4;
                }
                self.offset += 4;
                return true;
            }
        }
        false
    }
}
