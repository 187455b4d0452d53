//! Integer expressions.
//!
//! Operators bind as in the GNU assembler, from loosest: `||`; `&&`; comparisons; `+ -`;
//! `| ^ &`; `* / % << >>`; unary `- + ~ !`. Values are signed 64-bit, comparisons give 0 or 1.
//! Literals: decimal, `0x`, `0b`, octal with a leading zero, `'c'`, and halves (`1.5h`, `infh`,
//! `nanh`), which stand for their 16 bits. `1b` and `1f` name the previous and the next label `1:`.

use super::TextError;
use half::f16;

/// Something an expression refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Symbol(String),
    /// A numeric label, the previous or the next one.
    Local {
        number: u32,
        forward: bool,
    },
    /// The address of the statement.
    Here,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnaryOp {
    Negate,
    Complement,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    BitOr,
    BitXor,
    BitAnd,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
}

/// An expression; constant parts are folded when it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    Number(i64),
    Name(Name),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

impl UnaryOp {
    pub fn apply(self, value: i64) -> i64 {
        match self {
            UnaryOp::Negate => value.wrapping_neg(),
            UnaryOp::Complement => !value,
            UnaryOp::Not => i64::from(value == 0),
        }
    }
}

impl BinaryOp {
    /// The value, or nothing for a division by zero.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        let shift = |b: i64| u32::try_from(b).ok().filter(|&b| b < 64);
        Some(match self {
            BinaryOp::Or => i64::from(a != 0 || b != 0),
            BinaryOp::And => i64::from(a != 0 && b != 0),
            BinaryOp::Equal => i64::from(a == b),
            BinaryOp::NotEqual => i64::from(a != b),
            BinaryOp::Less => i64::from(a < b),
            BinaryOp::LessEqual => i64::from(a <= b),
            BinaryOp::Greater => i64::from(a > b),
            BinaryOp::GreaterEqual => i64::from(a >= b),
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Subtract => a.wrapping_sub(b),
            BinaryOp::BitOr => a | b,
            BinaryOp::BitXor => a ^ b,
            BinaryOp::BitAnd => a & b,
            BinaryOp::Multiply => a.wrapping_mul(b),
            BinaryOp::Divide => a.checked_div(b)?,
            BinaryOp::Remainder => a.checked_rem(b)?,
            BinaryOp::ShiftLeft => shift(b).map_or(0, |b| a << b),
            BinaryOp::ShiftRight => shift(b).map_or(0, |b| ((a as u64) >> b) as i64),
        })
    }

    fn precedence(self) -> u8 {
        match self {
            BinaryOp::Or => 1,
            BinaryOp::And => 2,
            BinaryOp::Equal
            | BinaryOp::NotEqual
            | BinaryOp::Less
            | BinaryOp::LessEqual
            | BinaryOp::Greater
            | BinaryOp::GreaterEqual => 3,
            BinaryOp::Add | BinaryOp::Subtract => 4,
            BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::BitAnd => 5,
            _ => 6,
        }
    }
}

impl Expr {
    pub fn as_number(&self) -> Option<i64> {
        match self {
            Expr::Number(value) => Some(*value),
            _ => None,
        }
    }

    /// Replace the names that `lookup` knows, and fold what becomes constant.
    pub fn fold(self, lookup: &mut dyn FnMut(&Name) -> Option<Expr>) -> Result<Expr, &'static str> {
        match self {
            Expr::Number(_) => Ok(self),
            Expr::Name(ref name) => Ok(lookup(name).unwrap_or(self)),
            Expr::Unary(op, a) => Ok(unary(op, a.fold(lookup)?)),
            Expr::Binary(op, a, b) => binary(op, a.fold(lookup)?, b.fold(lookup)?),
        }
    }
}

fn unary(op: UnaryOp, a: Expr) -> Expr {
    match a {
        Expr::Number(value) => Expr::Number(op.apply(value)),
        a => Expr::Unary(op, Box::new(a)),
    }
}

fn binary(op: BinaryOp, a: Expr, b: Expr) -> Result<Expr, &'static str> {
    match (&a, &b) {
        (Expr::Number(x), Expr::Number(y)) => {
            op.apply(*x, *y).map(Expr::Number).ok_or("division by zero")
        }
        _ => Ok(Expr::Binary(op, Box::new(a), Box::new(b))),
    }
}

/// Parse a whole text as one expression.
pub fn parse_expr(text: &str) -> Result<Expr, TextError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let expr = parser.expr(0)?;
    parser.space();
    match parser.peek() {
        None => Ok(expr),
        Some(c) => Err(parser.error(format!("unexpected `{c}` in expression"))),
    }
}

/// Parentheses and unary operators that may nest.
const DEPTH_MAX: usize = 64;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, reason: impl Into<String>) -> TextError {
        TextError::new(self.at, reason)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn operator(&self) -> Option<(BinaryOp, usize)> {
        const OPERATORS: &[(&str, BinaryOp)] = &[
            ("||", BinaryOp::Or),
            ("&&", BinaryOp::And),
            ("==", BinaryOp::Equal),
            ("!=", BinaryOp::NotEqual),
            ("<>", BinaryOp::NotEqual),
            ("<<", BinaryOp::ShiftLeft),
            (">>", BinaryOp::ShiftRight),
            ("<=", BinaryOp::LessEqual),
            (">=", BinaryOp::GreaterEqual),
            ("<", BinaryOp::Less),
            (">", BinaryOp::Greater),
            ("+", BinaryOp::Add),
            ("-", BinaryOp::Subtract),
            ("|", BinaryOp::BitOr),
            ("^", BinaryOp::BitXor),
            ("&", BinaryOp::BitAnd),
            ("*", BinaryOp::Multiply),
            ("/", BinaryOp::Divide),
            ("%", BinaryOp::Remainder),
        ];
        let found = OPERATORS
            .iter()
            .find(|(text, _)| self.rest().starts_with(text));
        found.map(|&(text, op)| (op, text.len()))
    }

    fn expr(&mut self, loosest: u8) -> Result<Expr, TextError> {
        let mut left = self.unary()?;
        loop {
            self.space();
            let Some((op, length)) = self.operator() else {
                return Ok(left);
            };
            if op.precedence() <= loosest {
                return Ok(left);
            }
            let at = self.at;
            self.at += length;
            let right = self.expr(op.precedence())?;
            left = binary(op, left, right).map_err(|reason| TextError::new(at, reason))?;
        }
    }

    fn unary(&mut self) -> Result<Expr, TextError> {
        self.space();
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("expression nests too deeply"));
        }
        let result = self.unary_inner();
        self.depth -= 1;
        result
    }

    fn unary_inner(&mut self) -> Result<Expr, TextError> {
        match self.peek() {
            Some('-') => {
                self.at += 1;
                self.space();
                if let Some(bits) = self.half()? {
                    return Ok(Expr::Number(i64::from(bits ^ 0x8000)));
                }
                Ok(unary(UnaryOp::Negate, self.unary()?))
            }
            Some('+') => {
                self.at += 1;
                self.unary()
            }
            Some('~') => {
                self.at += 1;
                Ok(unary(UnaryOp::Complement, self.unary()?))
            }
            Some('!') => {
                self.at += 1;
                Ok(unary(UnaryOp::Not, self.unary()?))
            }
            _ => self.primary(),
        }
    }

    fn primary(&mut self) -> Result<Expr, TextError> {
        match self.peek() {
            None => Err(self.error("expression expected")),
            Some('(') => {
                self.at += 1;
                let inner = self.expr(0)?;
                self.space();
                if self.peek() != Some(')') {
                    return Err(self.error("`)` expected"));
                }
                self.at += 1;
                Ok(inner)
            }
            Some('\'') => self.character(),
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' || c == '.' => self.name(),
            Some(c) => Err(self.error(format!("unexpected `{c}` in expression"))),
        }
    }

    fn character(&mut self) -> Result<Expr, TextError> {
        let mut chars = self.rest().chars().skip(1);
        match (chars.next(), chars.next()) {
            (Some(c), Some('\'')) if c.is_ascii() => {
                self.at += 3;
                Ok(Expr::Number(i64::from(u32::from(c))))
            }
            _ => Err(self.error("bad character literal")),
        }
    }

    fn name(&mut self) -> Result<Expr, TextError> {
        if let Some(bits) = self.half()? {
            return Ok(Expr::Number(i64::from(bits)));
        }
        let word = self.take(is_name_char);
        Ok(Expr::Name(match word {
            "." => Name::Here,
            word => Name::Symbol(word.to_string()),
        }))
    }

    /// A half literal at this place; `None` leaves the place as it is.
    fn half(&mut self) -> Result<Option<u16>, TextError> {
        let rest = self.rest();
        let end = float_end(rest);
        let body = &rest[..end];
        let after = &rest[end..];
        let suffixed = after.starts_with('h') && !after[1..].starts_with(is_name_char);
        let is_float = body.contains(['.', 'e', 'E']);
        if !suffixed || body.is_empty() {
            if is_float && !body.is_empty() {
                return Err(self.error("a float literal needs the suffix `h`"));
            }
            return Ok(None);
        }
        let value: f64 = body.parse().map_err(|_| self.error("bad half literal"))?;
        self.at += end + 1;
        Ok(Some(if value.is_nan() {
            0x7e00
        } else {
            f16::from_f64(value).to_bits()
        }))
    }

    fn number(&mut self) -> Result<Expr, TextError> {
        let start = self.at;
        if let Some(bits) = self.half()? {
            return Ok(Expr::Number(i64::from(bits)));
        }
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        let fail = |reason: &str| Err(TextError::new(start, format!("{reason} `{word}`")));
        let lower = word.to_ascii_lowercase();
        let (digits, radix) = match lower.as_bytes() {
            [b'0', b'x', ..] => (&lower[2..], 16),
            [b'0', b'b', _, ..] => (&lower[2..], 2),
            [digits @ .., b'b' | b'f'] if digits.iter().all(u8::is_ascii_digit) => {
                let Ok(number) = lower[..lower.len() - 1].parse() else {
                    return fail("bad local label");
                };
                return Ok(Expr::Name(Name::Local {
                    number,
                    forward: lower.ends_with('f'),
                }));
            }
            [b'0', _, ..] => (&lower[1..], 8),
            _ => (&lower[..], 10),
        };
        match u64::from_str_radix(digits, radix) {
            Ok(value) => Ok(Expr::Number(value as i64)),
            Err(_) => fail("bad number"),
        }
    }
}

/// Whether a symbol name may hold this character after its first.
pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}

/// End of the longest decimal float (or `inf`, `nan`) at the start of a text.
fn float_end(text: &str) -> usize {
    for word in ["inf", "nan"] {
        if text.starts_with(word) {
            return word.len();
        }
    }
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits(0);
    if end == 0 {
        return 0;
    }
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let last = digits(end + 1 + sign);
        if last > end + 1 + sign {
            end = last;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> i64 {
        parse_expr(text).expect(text).as_number().expect("constant")
    }

    #[test]
    fn operators_bind_like_the_gnu_assembler() {
        assert_eq!(value("1 + 100 - 2"), 99);
        assert_eq!(value("1 + 2 << 3"), 17);
        assert_eq!(value("(1 + 2) << 3"), 24);
        assert_eq!(value("1 | 2 * 4"), 9);
        assert_eq!(value("2 + 1 | 4"), 7);
        assert_eq!(value("7 - 2 - 1"), 4);
        assert_eq!(value("-5 / 2"), -2);
        assert_eq!(value("~0 & 0xff"), 255);
        assert_eq!(value("3 < 4 && 4 != 5"), 1);
        assert_eq!(value("!1 || 0"), 0);
        assert_eq!(value("'A' + 1"), 66);
        assert_eq!(value("0b1011 ^ 017"), 4);
    }

    #[test]
    fn halves_and_labels() {
        assert_eq!(value("1.0h"), 0x3c00);
        assert_eq!(value("-2.0h"), 0xc000);
        assert_eq!(value("-infh"), 0xfc00);
        assert_eq!(value("nanh"), 0x7e00);
        assert!(parse_expr("1.0").is_err());
        assert!(parse_expr("1.0f").is_err());
        assert_eq!(
            parse_expr("1f"),
            Ok(Expr::Name(Name::Local {
                number: 1,
                forward: true
            }))
        );
        assert_eq!(
            parse_expr("0b"),
            Ok(Expr::Name(Name::Local {
                number: 0,
                forward: false
            }))
        );
        assert_eq!(
            parse_expr("inf"),
            Ok(Expr::Name(Name::Symbol("inf".into())))
        );
    }

    #[test]
    fn faults_name_their_place() {
        assert_eq!(parse_expr("1 + $").map_err(|e| e.at), Err(4));
        assert_eq!(parse_expr("(1").map_err(|e| e.at), Err(2));
        assert_eq!(parse_expr("8 / 0").map_err(|e| e.at), Err(2));
        assert_eq!(parse_expr("09").map_err(|e| e.at), Err(0));
        assert!(parse_expr(&"(".repeat(100)).is_err());
    }
}
