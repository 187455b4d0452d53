//! Values of expressions once the offsets of items are known.

use super::item::{Symbol as Known, is_private};
use super::layout::Spot;
use ipu_isa::text::{BinaryOp, Expr, Name, UnaryOp};
use std::collections::BTreeMap;

/// Symbols that may refer to one another before a cycle is suspected.
const DEPTH_MAX: u32 = 64;

/// What an expression is worth once offsets are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub base: Base,
    pub offset: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    Number,
    Section(usize),
    External(String),
}

/// Symbols and offsets, for evaluation.
pub struct Values<'a> {
    pub symbols: &'a BTreeMap<String, Known>,
    pub spots: &'a [Vec<Spot>],
}

impl Values<'_> {
    pub fn symbol(&self, name: &str, depth: u32) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("symbol `{name}` refers to itself"));
        }
        match self.symbols.get(name) {
            None if is_private(name) => Err(format!("label {} is not defined", readable(name))),
            None => Ok(Value {
                base: Base::External(name.to_string()),
                offset: 0,
            }),
            Some(Known::Number(value)) => Ok(Value {
                base: Base::Number,
                offset: *value,
            }),
            Some(Known::Register(_)) => Err(format!("`{name}` is a register")),
            Some(Known::Deferred(expr)) => self.eval(expr, depth + 1),
            Some(Known::Label { section, item }) => {
                let spots = &self.spots[*section];
                let offset = match spots.get(*item) {
                    Some(spot) => spot.offset,
                    None => spots.last().map_or(0, |spot| spot.offset + spot.size),
                };
                Ok(Value {
                    base: Base::Section(*section),
                    offset: i64::from(offset),
                })
            }
        }
    }

    pub fn eval(&self, expr: &Expr, depth: u32) -> Result<Value, String> {
        let number = |offset| {
            Ok(Value {
                base: Base::Number,
                offset,
            })
        };
        match expr {
            Expr::Number(value) => number(*value),
            Expr::Name(Name::Symbol(name)) => self.symbol(name, depth),
            Expr::Name(_) => Err("unbound local label".into()),
            Expr::Unary(op, a) => match self.eval(a, depth)? {
                Value {
                    base: Base::Number,
                    offset,
                } => number(op.apply(offset)),
                _ => Err(format!("operator {} needs a number", unary_text(*op))),
            },
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.eval(a, depth)?, self.eval(b, depth)?);
                combine(*op, a, b)
            }
        }
    }
}

fn unary_text(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Negate => "`-`",
        UnaryOp::Complement => "`~`",
        UnaryOp::Not => "`!`",
    }
}

/// A private name as its source wrote it.
fn readable(name: &str) -> String {
    match name
        .strip_prefix('\u{1}')
        .and_then(|name| name.split_once('.'))
    {
        Some((number, _)) => format!("`{number}:`"),
        None => format!("`{name}`"),
    }
}

fn combine(op: BinaryOp, a: Value, b: Value) -> Result<Value, String> {
    let same = a.base == b.base && !matches!(a.base, Base::External(_));
    match (op, &a.base, &b.base) {
        (_, Base::Number, Base::Number) => {}
        (BinaryOp::Add, Base::Number, _) => {
            return Ok(Value {
                base: b.base,
                offset: a.offset.wrapping_add(b.offset),
            });
        }
        (BinaryOp::Add | BinaryOp::Subtract, _, Base::Number) => {
            let offset = op.apply(a.offset, b.offset).expect("sums are total");
            return Ok(Value {
                base: a.base,
                offset,
            });
        }
        (
            BinaryOp::Subtract
            | BinaryOp::Equal
            | BinaryOp::NotEqual
            | BinaryOp::Less
            | BinaryOp::LessEqual
            | BinaryOp::Greater
            | BinaryOp::GreaterEqual,
            ..,
        ) if same => {}
        _ => return Err("addresses of this kind cannot be combined".into()),
    }
    let offset = op.apply(a.offset, b.offset).ok_or("division by zero")?;
    Ok(Value {
        base: Base::Number,
        offset,
    })
}
