//! Integer expressions of a kernel contract: `2 * count`, `ceil(rows, 16) * columns`.
//!
//! Invariants: evaluation is exact in `i64`; a parsed expression prints as it was written.
//! Not here: floating point, comparison, names that are not scalar arguments.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A parsed expression over named scalars.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expr {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(i64),
    Name(String),
    Apply(Function, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Add,
    Sub,
    Mul,
    Div,
    /// `ceil(a, b)`: the number of `b` that hold `a`.
    Ceil,
    Max,
    Min,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExprError {
    #[error("`{text}`: unexpected {found} at column {column}")]
    Syntax {
        text: String,
        found: String,
        column: usize,
    },
    #[error("`{text}`: no scalar named {name}")]
    Unknown { text: String, name: String },
    #[error("`{text}`: division by zero or overflow")]
    Arithmetic { text: String },
}

impl Expr {
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let mut parser = Parser { text, at: 0 };
        let root = parser.sum()?;
        match parser.peek() {
            None => Ok(Expr {
                text: text.to_owned(),
                root,
            }),
            Some(_) => Err(parser.unexpected()),
        }
    }

    /// The value for the given scalars.
    pub fn value(&self, scalars: &BTreeMap<String, i64>) -> Result<i64, ExprError> {
        self.eval(&self.root, scalars)
    }

    fn eval(&self, node: &Node, scalars: &BTreeMap<String, i64>) -> Result<i64, ExprError> {
        match node {
            Node::Number(value) => Ok(*value),
            Node::Name(name) => scalars
                .get(name)
                .copied()
                .ok_or_else(|| ExprError::Unknown {
                    text: self.text.clone(),
                    name: name.clone(),
                }),
            Node::Apply(function, left, right) => {
                let (a, b) = (self.eval(left, scalars)?, self.eval(right, scalars)?);
                let value = match function {
                    Function::Add => a.checked_add(b),
                    Function::Sub => a.checked_sub(b),
                    Function::Mul => a.checked_mul(b),
                    Function::Div => a.checked_div(b),
                    Function::Ceil => a.checked_add(b - 1).and_then(|sum| sum.checked_div(b)),
                    Function::Max => Some(a.max(b)),
                    Function::Min => Some(a.min(b)),
                };
                value.ok_or_else(|| ExprError::Arithmetic {
                    text: self.text.clone(),
                })
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Expr {
    type Error = ExprError;

    fn try_from(text: String) -> Result<Self, ExprError> {
        Expr::parse(&text)
    }
}

impl From<Expr> for String {
    fn from(expr: Expr) -> String {
        expr.text
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, wanted: char) -> Result<(), ExprError> {
        if self.peek() == Some(wanted) {
            self.at += wanted.len_utf8();
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn unexpected(&mut self) -> ExprError {
        let found = self
            .peek()
            .map_or_else(|| "end".to_owned(), |c| format!("`{c}`"));
        ExprError::Syntax {
            text: self.text.to_owned(),
            found,
            column: self.at + 1,
        }
    }

    fn sum(&mut self) -> Result<Node, ExprError> {
        let mut left = self.product()?;
        loop {
            let function = match self.peek() {
                Some('+') => Function::Add,
                Some('-') => Function::Sub,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Node::Apply(function, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Node, ExprError> {
        let mut left = self.factor()?;
        loop {
            let function = match self.peek() {
                Some('*') => Function::Mul,
                Some('/') => Function::Div,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Node::Apply(function, Box::new(left), Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Node, ExprError> {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let inner = self.sum()?;
                self.eat(')')?;
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.take(|c| c.is_ascii_digit());
                digits
                    .parse()
                    .map(Node::Number)
                    .map_err(|_| self.unexpected())
            }
            Some(c) if c.is_ascii_alphabetic() => {
                let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                self.call_or_name(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn call_or_name(&mut self, name: String) -> Result<Node, ExprError> {
        let function = match name.as_str() {
            "ceil" => Function::Ceil,
            "max" => Function::Max,
            "min" => Function::Min,
            _ => return Ok(Node::Name(name)),
        };
        self.eat('(')?;
        let left = self.sum()?;
        self.eat(',')?;
        let right = self.sum()?;
        self.eat(')')?;
        Ok(Node::Apply(function, Box::new(left), Box::new(right)))
    }

    fn take(&mut self, keep: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_errors() {
        let scalars = BTreeMap::from([("rows".to_owned(), 19), ("n".to_owned(), 3)]);
        let value = |text: &str| Expr::parse(text).and_then(|expr| expr.value(&scalars));
        assert_eq!(value("2 * rows + n"), Ok(41));
        assert_eq!(value("ceil(rows, 16) * (n - 1)"), Ok(4));
        assert_eq!(value("max(rows, 4) / 2 / 3"), Ok(3));
        assert!(matches!(
            value("2 *"),
            Err(ExprError::Syntax { column: 4, .. })
        ));
        assert!(matches!(value("k"), Err(ExprError::Unknown { .. })));
        assert!(matches!(value("n / 0"), Err(ExprError::Arithmetic { .. })));
    }
}
