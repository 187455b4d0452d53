//! Statements other than macros, conditionals and repetition.
//!
//! Sections: `.text .data .rodata .bss .section`. Symbols: `.global .globl .set .equ =`.
//! Place: `.align .balign` (bytes) and `.p2align` (power). Data: `.byte .half .short .hword .word
//! .long .int .quad .float .single .ascii .asciz .string .space .zero .skip .fill`. Modes:
//! `.supervisor .worker .allow_optimizations .allow_invalid_repeat`. Messages: `.error .warning`.
//! Without effect: `.type .size .file .ident .loc .local .weak .hidden .p2alignl` and the
//! `.error_on_*` and `.warn_on_*` switches. Any other directive is an error.

use super::item::{Fault, Kind, OpenBundle, State, Symbol};
use super::macros::{leading_name, unquote};
use ipu_isa::form::COISSUE_BIT;
use ipu_isa::text::{Context, Expr, Insn, parse_expr, parse_statement, select, split_commas};
use ipu_isa::{Mode, Slot};

/// Largest `.space`, `.fill` or alignment, in bytes: the address space of a tile.
const BYTES_MAX: i64 = 1 << 21;

impl State {
    /// Handle one statement whose labels were taken off; `offset` is its place in the raw text.
    pub(super) fn statement(&mut self, text: &str, offset: usize, place: u32) {
        let in_bundle = self.bundle.is_some();
        if let Err(mut fault) = self.try_statement(text, place) {
            fault.at += offset;
            self.fail(place, fault);
            if let Some(bundle) = &mut self.bundle {
                bundle.failed |= in_bundle;
            }
        }
    }

    fn try_statement(&mut self, text: &str, place: u32) -> Result<(), Fault> {
        match text {
            "{" => return self.open_bundle(place),
            "}" => return self.close_bundle(),
            _ => {}
        }
        let (name, rest) = leading_name(text);
        let after = rest.trim_start();
        if !name.is_empty() && after.starts_with('=') && !after.starts_with("==") {
            return self.assign(name, after[1..].trim());
        }
        if name.starts_with('.') {
            let at = text.len() - after.len();
            return self
                .directive(name, rest.trim(), place)
                .map_err(|mut fault| {
                    fault.at += at;
                    fault
                });
        }
        self.instruction(text, place)
    }

    fn open_bundle(&mut self, place: u32) -> Result<(), Fault> {
        if let Some(open) = self.bundle.take() {
            self.fail(open.place, Fault::new(0, "bundle without end"));
        }
        self.bundle = Some(OpenBundle {
            place,
            insns: Vec::new(),
            failed: false,
        });
        Ok(())
    }

    fn close_bundle(&mut self) -> Result<(), Fault> {
        let Some(bundle) = self.bundle.take() else {
            return Err(Fault::new(0, "`}` without `{`"));
        };
        if bundle.failed {
            return Ok(());
        }
        let count = bundle.insns.len();
        let Ok([mut main, mut aux]) = <[(Insn, u32); 2]>::try_from(bundle.insns) else {
            let reason = format!("a bundle has two instructions, this one has {count}");
            self.fail(bundle.place, Fault::new(0, reason));
            return Ok(());
        };
        if self.optimize && is_slot(&main.0, Slot::Aux) && is_slot(&aux.0, Slot::Main) {
            std::mem::swap(&mut main, &mut aux);
        }
        for ((insn, place), slot, name) in
            [(&main, Slot::Main, "main"), (&aux, Slot::Aux, "auxiliary")]
        {
            let form = insn.form.form();
            if !is_slot(insn, slot) {
                let reason = format!("`{}` does not issue in the {name} slot", form.mnemonic);
                self.fail(*place, Fault::new(0, reason));
                return Ok(());
            }
            if !form.can_coissue {
                let reason = format!("`{}` cannot stand in a bundle", form.mnemonic);
                self.fail(*place, Fault::new(0, reason));
                return Ok(());
            }
        }
        if let Some(register) = common_write(&main.0, &aux.0) {
            let reason = format!("both instructions of the bundle write {register}");
            self.fail(aux.1, Fault::new(0, reason));
            return Ok(());
        }
        self.push(Kind::Bundle(main.0, aux.0), bundle.place);
        Ok(())
    }

    fn instruction(&mut self, text: &str, place: u32) -> Result<(), Fault> {
        let replaced = if self.registers {
            self.replace_registers(text)
        } else {
            None
        };
        let mut statement = parse_statement(replaced.as_deref().unwrap_or(text))?;
        for (at, arg) in &mut statement.args {
            if let ipu_isa::text::Arg::Expr(expr) = arg {
                *expr = self
                    .fold(expr.clone())
                    .map_err(|reason| Fault::new(*at, reason))?;
            }
        }
        let context = Context {
            mode: self.mode,
            in_bundle: self.bundle.is_some(),
        };
        let selection = select(&statement, context)?;
        for warning in selection.warnings {
            self.warn(place, warning);
        }
        for insn in selection.insns {
            match &mut self.bundle {
                Some(bundle) => bundle.insns.push((insn, place)),
                None => self.push(Kind::Solo(insn), place),
            }
        }
        Ok(())
    }

    /// The statement with names of registers replaced in its operands.
    fn replace_registers(&self, text: &str) -> Option<String> {
        let (mnemonic, operands) = text.split_once(char::is_whitespace)?;
        let pieces = split_commas(operands).into_iter().map(|(_, piece)| {
            let (name, rest) = leading_name(piece);
            match self.symbols.get(name) {
                Some(Symbol::Register(register)) => format!("{register}{rest}"),
                _ => piece.to_string(),
            }
        });
        Some(format!(
            "{mnemonic} {}",
            pieces.collect::<Vec<_>>().join(", ")
        ))
    }

    fn assign(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let symbol = if value.starts_with('$') {
            self.registers = true;
            Symbol::Register(value.to_string())
        } else if let Some(Symbol::Register(register)) = self.symbols.get(value) {
            Symbol::Register(register.clone())
        } else {
            let expr = parse_expr(value)?;
            match self.fold(expr).map_err(|reason| Fault::new(0, reason))? {
                Expr::Number(value) => Symbol::Number(value),
                expr => Symbol::Deferred(expr),
            }
        };
        match self.symbols.insert(name.to_string(), symbol) {
            Some(Symbol::Label { .. }) => {
                Err(Fault::new(0, format!("`{name}` is a label already")))
            }
            _ => Ok(()),
        }
    }

    fn directive(&mut self, name: &str, rest: &str, place: u32) -> Result<(), Fault> {
        if self.bundle.is_some() {
            return Err(Fault::new(0, "directive in a bundle"));
        }
        match name {
            ".text" | ".data" | ".rodata" | ".bss" => self.enter_section(name),
            ".section" => {
                let section = rest.split(',').next().unwrap_or_default().trim();
                if section.is_empty() {
                    return Err(Fault::new(0, "section name expected"));
                }
                self.enter_section(unquote(section));
            }
            ".global" | ".globl" => {
                for (at, symbol) in split_commas(rest) {
                    let (symbol, after) = leading_name(symbol);
                    if symbol.is_empty() || !after.is_empty() {
                        return Err(Fault::new(at, "symbol name expected"));
                    }
                    self.globals.insert(symbol.to_string());
                }
            }
            ".set" | ".equ" => {
                let Some((symbol, value)) = rest.split_once(',') else {
                    return Err(Fault::new(0, "name and value expected"));
                };
                let (symbol, after) = leading_name(symbol.trim());
                if symbol.is_empty() || !after.is_empty() {
                    return Err(Fault::new(0, "symbol name expected"));
                }
                return self.assign(symbol, value.trim());
            }
            ".supervisor" => self.mode = Mode::Supervisor,
            ".worker" => self.mode = Mode::Worker,
            ".allow_optimizations" => self.optimize = true,
            ".allow_invalid_repeat" => self.unchecked = true,
            ".error" => return Err(Fault::new(0, unquote(rest))),
            ".warning" => self.warn(place, unquote(rest).to_string()),
            ".type" | ".size" | ".file" | ".ident" | ".loc" | ".local" | ".weak" | ".hidden" => {}
            _ if name.starts_with(".error_on_") || name.starts_with(".warn_on_") => {}
            _ => return self.data_directive(name, rest, place),
        }
        Ok(())
    }

    fn data_directive(&mut self, name: &str, rest: &str, place: u32) -> Result<(), Fault> {
        let width = match name {
            ".byte" => 1,
            ".half" | ".short" | ".hword" => 2,
            ".word" | ".long" | ".int" => 4,
            ".quad" => 8,
            ".float" | ".single" => return self.floats(rest, place),
            ".ascii" | ".asciz" | ".string" => return self.strings(name, rest, place),
            ".space" | ".zero" | ".skip" | ".fill" => return self.fill(name, rest, place),
            ".align" | ".balign" | ".p2align" => return self.align(name, rest, place),
            _ => return Err(Fault::new(0, format!("unknown directive `{name}`"))),
        };
        let mut values = Vec::new();
        for (at, piece) in split_commas(rest) {
            let shift = |fault: Fault| Fault::new(fault.at + at, fault.reason);
            let expr = parse_expr(piece).map_err(|error| shift(error.into()))?;
            let expr = self.fold(expr).map_err(|reason| Fault::new(at, reason))?;
            if let Expr::Number(value) = expr
                && !fits(value, width)
            {
                return Err(Fault::new(
                    at,
                    format!("{value} does not fit {width} bytes"),
                ));
            }
            values.push(expr);
        }
        self.push(Kind::Values(width, values), place);
        Ok(())
    }

    fn floats(&mut self, rest: &str, place: u32) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        for (at, piece) in split_commas(rest) {
            let value: f32 = piece
                .parse()
                .map_err(|_| Fault::new(at, "float expected"))?;
            bytes.extend(value.to_le_bytes());
        }
        self.push(Kind::Bytes(bytes), place);
        Ok(())
    }

    fn strings(&mut self, name: &str, rest: &str, place: u32) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        for (at, piece) in split_commas(rest) {
            if piece.len() < 2 || !piece.starts_with('"') || !piece.ends_with('"') {
                return Err(Fault::new(at, "string expected"));
            }
            let mut chars = unquote(piece).chars();
            while let Some(c) = chars.next() {
                let c = match (c, c == '\\') {
                    (_, true) => match chars.next() {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('0') => '\0',
                        Some(c @ ('\\' | '"')) => c,
                        _ => return Err(Fault::new(at, "unknown escape in string")),
                    },
                    (c, false) => c,
                };
                bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            if name != ".ascii" {
                bytes.push(0);
            }
        }
        self.push(Kind::Bytes(bytes), place);
        Ok(())
    }

    fn fill(&mut self, name: &str, rest: &str, place: u32) -> Result<(), Fault> {
        let mut numbers = Vec::new();
        for (at, piece) in split_commas(rest) {
            let number = self
                .number(piece)
                .map_err(|fault| Fault::new(at, fault.reason))?;
            numbers.push(number);
        }
        let (count, size, value) = match (name, numbers[..].as_ref()) {
            (".fill", &[count]) => (count, 1, 0),
            (".fill", &[count, size]) => (count, size, 0),
            (".fill", &[count, size, value]) => (count, size, value),
            (_, &[count]) => (count, 1, 0),
            (_, &[count, value]) => (count, 1, value),
            _ => return Err(Fault::new(0, "wrong number of operands")),
        };
        if count < 0 || !(1..=8).contains(&size) || count.saturating_mul(size) > BYTES_MAX {
            return Err(Fault::new(0, "fill size is out of range"));
        }
        let unit = &value.to_le_bytes()[..size as usize];
        self.push(Kind::Bytes(unit.repeat(count as usize)), place);
        Ok(())
    }

    fn align(&mut self, name: &str, rest: &str, place: u32) -> Result<(), Fault> {
        let mut pieces = split_commas(rest).into_iter();
        let (_, first) = pieces.next().unwrap_or_default();
        let mut bytes = self.number(first)?;
        if name == ".p2align" {
            bytes = 1i64
                .checked_shl(u32::try_from(bytes).unwrap_or(64))
                .unwrap_or(0);
        }
        if !(1..=BYTES_MAX).contains(&bytes) || bytes & (bytes - 1) != 0 {
            return Err(Fault::new(
                0,
                "alignment is a power of two of at most 2^21 bytes",
            ));
        }
        let fill = match pieces.next() {
            Some((at, piece)) if !piece.is_empty() => {
                let value = self
                    .number(piece)
                    .map_err(|fault| Fault::new(at, fault.reason))?;
                Some(value as u8)
            }
            _ => None,
        };
        self.push(Kind::Align(bytes as u32, fill), place);
        Ok(())
    }
}

/// Whether a number fits so many bytes, signed or unsigned.
pub(super) fn fits(value: i64, width: u8) -> bool {
    match u32::from(width) * 8 {
        64 => true,
        bits => value >= -(1 << (bits - 1)) && value < 1 << bits,
    }
}

fn is_slot(insn: &Insn, slot: Slot) -> bool {
    insn.form.form().slot == slot
}

/// A register that both instructions write.
pub(super) fn common_write(a: &Insn, b: &Insn) -> Option<String> {
    let (am, aa) = a.form.form().written(&a.ops);
    let (bm, ba) = b.form.form().written(&b.ops);
    match (am & bm, aa & ba) {
        (0, 0) => None,
        (0, a) => Some(format!("$a{}", a.trailing_zeros())),
        (m, _) => Some(format!("$m{}", m.trailing_zeros())),
    }
}

/// The word with the co-issue bit.
pub(super) fn coissued(word: u32) -> u32 {
    word | COISSUE_BIT
}
