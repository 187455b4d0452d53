//! From a parsed statement to instruction forms: aliases, operand classes, immediate ranges,
//! execution mode.

use super::TextError;
use super::expr::{Expr, Name, UnaryOp};
use super::reg::{Reg, RegFile, Suffix};
use super::statement::{Arg, Statement};
use crate::csr;
use crate::form::{Class, Form, FormId, Mode, Operands, Post};

/// Where the statement stands.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    pub mode: Mode,
    pub in_bundle: bool,
}

/// An operand whose value is not known yet.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Operand index.
    pub index: usize,
    /// Offset of the operand in the statement.
    pub at: usize,
    pub expr: Expr,
}

/// An instruction whose pending operands are zero in `ops`.
#[derive(Debug, Clone)]
pub struct Insn {
    pub form: FormId,
    pub ops: Operands,
    pub pending: Vec<Pending>,
}

impl Insn {
    /// An instruction without pending operands.
    pub fn new(form: FormId, ops: Operands) -> Insn {
        Insn {
            form,
            ops,
            pending: Vec::new(),
        }
    }

    /// The second word of a two-word instruction.
    pub fn inline_word(&self) -> Option<u32> {
        crate::Decoded {
            form: self.form,
            coissue: false,
            ops: self.ops,
        }
        .inline_word()
    }
}

/// What a statement stands for.
#[derive(Debug, Clone)]
pub struct Selection {
    pub insns: Vec<Insn>,
    pub warnings: Vec<String>,
}

/// The class of operand `index`, with those of the inline word of a two-word form.
fn operand_class(form: &Form, index: usize) -> Option<Class> {
    match form.operands.get(index) {
        Some(operand) => Some(operand.class),
        None if form.words() == 2 && index == 4 => Some(Class::Zi(14)),
        None if form.words() == 2 && index == 5 => Some(Class::Zi(18)),
        None => None,
    }
}

/// Choose the instructions for a statement.
pub fn select(statement: &Statement, context: Context) -> Result<Selection, TextError> {
    let mut args = statement.args.clone();
    let mnemonic = statement.mnemonic.as_str();
    if mnemonic == "ldconst" {
        return ldconst(&args, context);
    }
    let (name, force) = rewrite(mnemonic, &mut args)?;
    let mut insn = match_forms(name, force, &args)?;
    let mut warnings = Vec::new();
    let form = insn.form.form();
    if !form.mode.contains(context.mode) {
        let (need, have) = (context.mode.other().name(), context.mode.name());
        return Err(TextError::new(
            0,
            format!("{need} instruction in {have} code"),
        ));
    }
    for (index, (at, arg)) in args.iter().enumerate() {
        let Arg::Csr(csr) = arg else { continue };
        let a_file = matches!(form.key, "uget A" | "uput A");
        if !csr.mode.contains(context.mode) {
            let have = context.mode.name();
            return Err(TextError::new(
                *at,
                format!("${} is not a {have} register", csr.name),
            ));
        }
        if a_file && !csr.is_upper() {
            let reason = format!("${} is reached from $m registers", csr.name);
            return Err(TextError::new(*at, reason));
        }
        if !a_file && csr.is_upper() {
            warnings.push(format!(
                "${} is reached from $a registers; this accesses register {}",
                csr.name,
                csr.field()
            ));
        }
        insn.ops[index] = i32::from(csr.field());
    }
    Ok(Selection {
        insns: vec![insn],
        warnings,
    })
}

/// A mnemonic, and the key suffix that the form must have.
type Rewritten<'a> = (&'a str, Option<&'static str>);

const AZEROS: Reg = Reg {
    file: RegFile::A,
    first: 14,
    count: 2,
};

fn number_arg(value: i64) -> (usize, Arg) {
    (0, Arg::Expr(Expr::Number(value)))
}

fn reg_arg(reg: Reg) -> (usize, Arg) {
    (0, Arg::Reg(reg, Suffix::None))
}

/// Resolve aliases.
fn rewrite<'a>(
    mnemonic: &'a str,
    args: &mut Vec<(usize, Arg)>,
) -> Result<Rewritten<'a>, TextError> {
    let name = match mnemonic {
        "nop" | "fnop" | "strap" => {
            check_count(args.len(), 0, 0)?;
            let (name, operands) = match mnemonic {
                "nop" => ("setzi", [reg_arg(Reg::m(14)), number_arg(0)]),
                "fnop" => ("setzi", [reg_arg(Reg::a(13)), number_arg(0)]),
                _ => ("put", [number_arg(255), reg_arg(Reg::m(15))]),
            };
            args.extend(operands);
            name
        }
        "mov" => return rewrite_mov(args),
        "zero" => rewrite_zero(args)?,
        "swap16" => {
            check_count(args.len(), 2, 2)?;
            args.push(args[1].clone());
            "roll16"
        }
        "movnz" => "movz",
        "f16v4sisov2amp" => "f16v4sisoamp",
        "get" | "put" | "uget" | "uput" => {
            name_csrs(args);
            let a_file = args
                .iter()
                .any(|(_, arg)| matches!(as_reg(arg), Some((RegFile::A, _))));
            match (mnemonic, a_file) {
                ("get", true) => "uget",
                ("put", true) => "uput",
                _ => mnemonic,
            }
        }
        "sub" if negate_immediate(args)? => return Ok(("add", Some(" si"))),
        _ => return Ok(forced(mnemonic)),
    };
    Ok((name, None))
}

/// Suffixes that force the form of an immediate.
fn forced(mnemonic: &str) -> Rewritten<'_> {
    if let Some(base) = mnemonic.strip_suffix(".iz") {
        return (base, Some(" iz"));
    }
    for (suffix, force) in [("z", " zi"), ("s", " si")] {
        if let Some(base) = mnemonic.strip_suffix(suffix)
            && matches!(base, "add" | "cmpeq" | "max" | "min" | "sub")
        {
            return (base, Some(force));
        }
    }
    (mnemonic, None)
}

fn rewrite_mov(args: &mut Vec<(usize, Arg)>) -> Result<Rewritten<'static>, TextError> {
    check_count(args.len(), 2, 2)?;
    match (as_reg(&args[0].1), as_reg(&args[1].1)) {
        (Some((RegFile::M, 1)), Some((RegFile::A, 1))) => Ok(("atom", None)),
        (Some((RegFile::A, 2)), Some((RegFile::A, 2))) => {
            args.push(reg_arg(AZEROS));
            Ok(("or64", None))
        }
        (Some(to), Some(from)) if to == from && to.1 == 1 => {
            args.push(number_arg(0));
            Ok(("or", Some(" zi")))
        }
        _ => Err(TextError::new(args[0].0, "no such move")),
    }
}

fn rewrite_zero(args: &mut Vec<(usize, Arg)>) -> Result<&'static str, TextError> {
    check_count(args.len(), 1, 1)?;
    let (name, source) = match as_reg(&args[0].1) {
        Some((RegFile::M, 1)) => ("or", Reg::m(15)),
        Some((RegFile::A, 1)) => ("or", Reg::a(15)),
        Some((RegFile::A, 2)) => ("or64", AZEROS),
        _ => return Err(TextError::new(args[0].0, "register or A pair expected")),
    };
    args.extend([reg_arg(source), reg_arg(source)]);
    Ok(name)
}

/// A symbol in a CSR operand that names a CSR becomes it.
fn name_csrs(args: &mut [(usize, Arg)]) {
    for (_, arg) in args {
        if let Arg::Expr(Expr::Name(Name::Symbol(name))) = arg
            && let Some(csr) = csr::by_name(name)
        {
            *arg = Arg::Csr(csr);
        }
    }
}

/// `sub $d, $s, imm` adds the negated immediate.
fn negate_immediate(args: &mut [(usize, Arg)]) -> Result<bool, TextError> {
    let [(_, Arg::Reg(..)), (_, Arg::Reg(..)), (at, Arg::Expr(expr))] = args else {
        return Ok(false);
    };
    let negated = match &*expr {
        Expr::Number(value @ -0x7fff..=0x7fff) => Expr::Number(-value),
        Expr::Number(value) => {
            let reason = format!("{value} is out of range -32767 to 32767");
            return Err(TextError::new(*at, reason));
        }
        expr => Expr::Unary(UnaryOp::Negate, Box::new(expr.clone())),
    };
    *expr = negated;
    Ok(true)
}

fn as_reg(arg: &Arg) -> Option<(RegFile, u8)> {
    match arg {
        Arg::Reg(reg, Suffix::None) => Some((reg.file, reg.count)),
        _ => None,
    }
}

fn check_count(have: usize, least: usize, most: usize) -> Result<(), TextError> {
    match have {
        have if have < least => Err(TextError::new(0, "too few operands")),
        have if have > most => Err(TextError::new(0, "too many operands")),
        _ => Ok(()),
    }
}

/// One or two instructions that load a 32-bit constant.
fn ldconst(args: &[(usize, Arg)], context: Context) -> Result<Selection, TextError> {
    if context.in_bundle {
        return Err(TextError::new(0, "ldconst cannot stand in a bundle"));
    }
    check_count(args.len(), 2, 2)?;
    let (file, number) = match args[0].1 {
        Arg::Reg(
            Reg {
                file,
                first,
                count: 1,
            },
            Suffix::None,
        ) => (file, first),
        _ => return Err(TextError::new(args[0].0, "single register expected")),
    };
    if file == RegFile::A && context.mode == Mode::Supervisor {
        return Err(TextError::new(
            args[0].0,
            "worker instruction in supervisor code",
        ));
    }
    let at = args[1].0;
    let Arg::Expr(Expr::Number(value)) = args[1].1 else {
        return Err(TextError::new(at, "constant expected"));
    };
    let Some(value) = as_word(value) else {
        return Err(TextError::new(at, "constant does not fit 32 bits"));
    };
    let (setzi, or) = match file {
        RegFile::M => ("setzi M", "or M iz"),
        RegFile::A => ("setzi A", "or A iz"),
    };
    let insn = |key: &str, ops: [i32; 3]| {
        let form = FormId::by_key(key).expect("form is in the table");
        Insn::new(form, [ops[0], ops[1], ops[2], 0, 0, 0])
    };
    let register = i32::from(number);
    let mut insns = vec![insn(setzi, [register, (value & 0xf_ffff) as i32, 0])];
    if value >> 20 != 0 {
        insns.push(insn(or, [register, register, (value & 0xfff0_0000) as i32]));
    }
    Ok(Selection {
        insns,
        warnings: Vec::new(),
    })
}

/// A value as a 32-bit word, if it fits as a signed or an unsigned number.
fn as_word(value: i64) -> Option<u32> {
    u32::try_from(value)
        .ok()
        .or_else(|| i32::try_from(value).ok().map(|value| value as u32))
}

/// Preference among forms that all accept the operands.
fn rank(form: &Form) -> u8 {
    match form.key.rsplit(' ').next() {
        Some("si") => 0,
        Some("zi") => 1,
        _ => 2,
    }
}

fn match_forms(
    mnemonic: &str,
    force: Option<&str>,
    args: &[(usize, Arg)],
) -> Result<Insn, TextError> {
    let mut best: Option<Insn> = None;
    let mut nearest: Option<(usize, TextError)> = None;
    let mut known = false;
    for id in FormId::by_mnemonic(mnemonic) {
        let form = id.form();
        if force.is_some_and(|suffix| !form.key.ends_with(suffix)) {
            continue;
        }
        known = true;
        match match_form(id, args) {
            Ok(insn) => {
                if best
                    .as_ref()
                    .is_none_or(|best| rank(form) < rank(best.form.form()))
                {
                    best = Some(insn);
                }
            }
            Err(miss) => {
                if nearest.as_ref().is_none_or(|nearest| miss.0 > nearest.0) {
                    nearest = Some(miss);
                }
            }
        }
    }
    match (best, nearest) {
        (Some(insn), _) => Ok(insn),
        (None, Some((_, error))) => Err(error),
        (None, None) if known => Err(TextError::new(0, "no form takes these operands")),
        (None, None) => Err(TextError::new(
            0,
            format!("unknown instruction `{mnemonic}`"),
        )),
    }
}

/// Whether the form is a load or store whose second address register may be left out.
fn has_optional_delta(form: &Form) -> bool {
    let memory = form.mnemonic.starts_with("ld") || form.mnemonic.starts_with("st");
    memory
        && form.operands.len() == 4
        && form.operands[1].class == Class::M
        && form.operands[2].class == Class::M
}

/// Match operands to one form; a miss says how many operands matched.
fn match_form(id: FormId, args: &[(usize, Arg)]) -> Result<Insn, (usize, TextError)> {
    let form = id.form();
    let wanted = form.operands.len() + 2 * (form.words() - 1);
    let short = args.len() + 1 == wanted && has_optional_delta(form);
    if !short {
        check_count(args.len(), wanted, wanted).map_err(|error| (0, error))?;
    }
    let mut insn = Insn::new(id, [0; 6]);
    let mut args = args.iter();
    for index in 0..wanted {
        if short && index == 2 {
            insn.ops[index] = 15;
            continue;
        }
        let (at, arg) = args.next().expect("counts were compared");
        let class = operand_class(form, index).expect("index is below the count");
        match match_operand(form, index, class, arg) {
            Ok(Matched::Value(value)) => insn.ops[index] = value,
            Ok(Matched::Pending(expr)) => insn.pending.push(Pending {
                index,
                at: *at,
                expr,
            }),
            Err(reason) => return Err((index + 1, TextError::new(*at, reason))),
        }
    }
    Ok(insn)
}

enum Matched {
    Value(i32),
    Pending(Expr),
}

fn match_operand(form: &Form, index: usize, class: Class, arg: &Arg) -> Result<Matched, String> {
    match arg {
        Arg::Reg(reg, suffix) => {
            // The base of stm32step may be written with the suffix that its update deserves.
            let tolerated = form.mnemonic == "stm32step" && index == 1;
            match_register(class, *reg, *suffix, tolerated).map(Matched::Value)
        }
        Arg::Csr(_) if class == Class::Csr8 => Ok(Matched::Value(0)),
        Arg::Csr(csr) => Err(format!(
            "control register `${}` cannot stand here",
            csr.name
        )),
        Arg::Expr(_) if class.is_register() => Err(format!("{} expected", describe(class))),
        Arg::Expr(Expr::Number(value)) => immediate(class, *value)
            .map(Matched::Value)
            .ok_or_else(|| out_of_range(class, *value)),
        Arg::Expr(expr) => Ok(Matched::Pending(expr.clone())),
    }
}

/// The operand value for a number, if the class holds it.
pub fn immediate(class: Class, value: i64) -> Option<i32> {
    if class == Class::Iz12 {
        return as_word(value)
            .filter(|word| word & 0xf_ffff == 0)
            .map(|word| word as i32);
    }
    let (lo, hi) = class.range();
    (lo..=hi).contains(&value).then_some(value as i32)
}

/// The reason why a class does not hold a number.
pub fn out_of_range(class: Class, value: i64) -> String {
    match class {
        Class::Iz12 => format!("{value} is not a multiple of 2^20 within 32 bits"),
        class => {
            let (lo, hi) = class.range();
            format!("{value} is out of range {lo} to {hi}")
        }
    }
}

fn match_register(class: Class, reg: Reg, suffix: Suffix, tolerated: bool) -> Result<i32, String> {
    let a_file = reg.file == RegFile::A;
    if class.is_a_register() != a_file || class.register_count() != reg.count {
        return Err(format!("{} expected", describe(class)));
    }
    let wanted = match class {
        Class::MPost(post) | Class::MPairPost(post) => Suffix::Post(post),
        Class::ABroadcast(broadcast) => Suffix::Broadcast(broadcast),
        _ => Suffix::None,
    };
    let tolerated = tolerated && suffix == Suffix::Post(Post::PlusEqual);
    match (wanted == suffix, suffix) {
        (true, _) => Ok(i32::from(reg.first)),
        (false, Suffix::None) => Err(format!("{} expected", describe(class))),
        (false, _) if tolerated => Ok(i32::from(reg.first)),
        (false, _) => Err(format!(
            "wrong register suffix: {} expected",
            describe(class)
        )),
    }
}

fn describe(class: Class) -> String {
    match class {
        Class::M => "single $m register".into(),
        Class::A => "single $a register".into(),
        Class::MPair => "$m register pair".into(),
        Class::APair => "$a register pair".into(),
        Class::AQuad => "$a register quad".into(),
        Class::ABroadcast(_) | Class::MPost(_) | Class::MPairPost(_) => {
            let sample = super::print::print_register(class, 0);
            format!("register written like `{sample}`")
        }
        _ => "immediate".into(),
    }
}
