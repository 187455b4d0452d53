//! From the text of an expression to its tree.
//!
//! ```text
//! expression = term (("+" | "-" | "^" | "union" | "except" | "intersect") term)*   left to right
//! term       = WORD | "(" expression ")" | FUNCTION "(" argument ("," argument)* ")"
//! ```

use ipub_base::Diagnostic;

use super::error_at;
use crate::label::suggestion;

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Union,
    Except,
    Intersect,
}

/// A function, with its name and how many arguments it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Deps,
    Rdeps,
    AllPaths,
    SomePath,
    Kind,
    Attr,
}

const FUNCTIONS: [(&str, Function, &str); 6] = [
    ("deps", Function::Deps, "deps(X[, DEPTH])"),
    ("rdeps", Function::Rdeps, "rdeps(UNIVERSE, X[, DEPTH])"),
    ("allpaths", Function::AllPaths, "allpaths(A, B)"),
    ("somepath", Function::SomePath, "somepath(A, B)"),
    ("kind", Function::Kind, "kind(REGEX, X)"),
    ("attr", Function::Attr, "attr(NAME, REGEX, X)"),
];

/// Expressions within expressions, at most.
const DEPTH_MAX: usize = 100;

/// A text of the expression and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// A pattern of targets, or a file.
    Word(Word),
    Operation(Box<Expression>, Operator, Box<Expression>),
    Call {
        function: Function,
        /// Names, patterns, depths: arguments that are no sets.
        words: Vec<Word>,
        sets: Vec<Expression>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word { text: String, quoted: bool },
    Sign(char),
    End,
}

pub(super) fn parse(text: &str) -> Result<Expression, Diagnostic> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        next: 0,
    };
    let expression = parser.expression(0)?;
    match parser.peek() {
        (Token::End, _) => Ok(expression),
        (_, at) => Err(error_at(text, at, "the expression ends before this")
            .help("operators are + - ^ union except intersect")),
    }
}

fn tokens(text: &str) -> Result<Vec<(Token, usize)>, Diagnostic> {
    let mut tokens = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some(&(at, first)) = rest.peek() {
        match first {
            ' ' | '\t' | '\n' | '\r' => {
                rest.next();
            }
            '(' | ')' | ',' | '+' | '-' | '^' => {
                rest.next();
                tokens.push((Token::Sign(first), at));
            }
            '"' | '\'' => {
                rest.next();
                let mut word = String::new();
                loop {
                    match rest.next() {
                        Some((_, c)) if c == first => break,
                        Some((_, c)) => word.push(c),
                        None => return Err(error_at(text, at, "this quote is never closed")),
                    }
                }
                let quoted = true;
                tokens.push((Token::Word { text: word, quoted }, at));
            }
            _ => {
                let mut word = String::new();
                // Within a word, + - ^ are part of it, as in `//models:siglip-tiny`.
                let ends = |c: char| c.is_whitespace() || "(),\"'".contains(c);
                while let Some(&(_, c)) = rest.peek()
                    && !ends(c)
                {
                    word.push(c);
                    rest.next();
                }
                let quoted = false;
                tokens.push((Token::Word { text: word, quoted }, at));
            }
        }
    }
    tokens.push((Token::End, text.len()));
    Ok(tokens)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    next: usize,
}

impl Parser<'_> {
    /// The next token; the last is always `End`.
    fn peek(&self) -> (Token, usize) {
        self.tokens[self.next.min(self.tokens.len() - 1)].clone()
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.peek().0 == Token::Sign(sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: char) -> Result<(), Diagnostic> {
        let (token, at) = self.peek();
        if self.take(sign) {
            return Ok(());
        }
        let found = described(&token);
        let message = format!("expected `{sign}`, found {found}");
        Err(error_at(self.text, at, message))
    }

    fn operator(&mut self) -> Option<Operator> {
        let operator = match self.peek().0 {
            Token::Sign('+') => Operator::Union,
            Token::Sign('-') => Operator::Except,
            Token::Sign('^') => Operator::Intersect,
            Token::Word {
                text,
                quoted: false,
            } => match text.as_str() {
                "union" => Operator::Union,
                "except" => Operator::Except,
                "intersect" => Operator::Intersect,
                _ => return None,
            },
            _ => return None,
        };
        self.next += 1;
        Some(operator)
    }

    fn expression(&mut self, depth: usize) -> Result<Expression, Diagnostic> {
        if depth > DEPTH_MAX {
            let at = self.peek().1;
            return Err(error_at(self.text, at, "expressions are nested too deep"));
        }
        let mut left = self.term(depth)?;
        while let Some(operator) = self.operator() {
            let right = self.term(depth)?;
            left = Expression::Operation(Box::new(left), operator, Box::new(right));
        }
        Ok(left)
    }

    fn term(&mut self, depth: usize) -> Result<Expression, Diagnostic> {
        if self.take('(') {
            let inner = self.expression(depth + 1)?;
            self.expect(')')?;
            return Ok(inner);
        }
        let word = self.word("a pattern, a file or a function")?;
        if self.peek().0 != Token::Sign('(') {
            return Ok(Expression::Word(word));
        }
        let known = FUNCTIONS.iter().find(|(name, ..)| *name == word.text);
        let Some(&(_, function, _)) = known else {
            let names = FUNCTIONS.map(|(name, ..)| name);
            let otherwise = FUNCTIONS.map(|(.., form)| form).join(", ");
            let help = suggestion(&word.text, names, &otherwise);
            let message = format!("unknown function `{}`", word.text);
            return Err(error_at(self.text, word.at, message).help(help));
        };
        self.expect('(')?;
        let call = self.arguments(function, depth);
        let call = call.map_err(|error| match error.help {
            None => error.help(format!("write {}", form(function))),
            Some(_) => error,
        })?;
        Ok(call)
    }

    fn arguments(&mut self, function: Function, depth: usize) -> Result<Expression, Diagnostic> {
        let (mut words, mut sets) = (Vec::new(), Vec::new());
        let names = match function {
            Function::Kind => 1,
            Function::Attr => 2,
            _ => 0,
        };
        for _ in 0..names {
            words.push(self.word("a text")?);
            self.expect(',')?;
        }
        sets.push(self.expression(depth + 1)?);
        use Function::{AllPaths, Deps, Rdeps, SomePath};
        if matches!(function, Rdeps | AllPaths | SomePath) {
            self.expect(',')?;
            sets.push(self.expression(depth + 1)?);
        }
        if matches!(function, Deps | Rdeps) && self.take(',') {
            let depth = self.word("a depth")?;
            if depth.text.parse::<usize>().is_err() {
                let message = format!("`{}` is no depth: a whole number", depth.text);
                return Err(error_at(self.text, depth.at, message));
            }
            words.push(depth);
        }
        self.expect(')')?;
        Ok(Expression::Call {
            function,
            words,
            sets,
        })
    }

    fn word(&mut self, wanted: &str) -> Result<Word, Diagnostic> {
        match self.peek() {
            (Token::Word { text, .. }, at) => {
                self.next += 1;
                Ok(Word { text, at })
            }
            (token, at) => {
                let message = format!("expected {wanted}, found {}", described(&token));
                Err(error_at(self.text, at, message))
            }
        }
    }
}

fn form(function: Function) -> &'static str {
    let found = FUNCTIONS.iter().find(|(_, other, _)| *other == function);
    found.map_or("", |(.., form)| form)
}

fn described(token: &Token) -> String {
    match token {
        Token::Word { text, .. } => format!("`{text}`"),
        Token::Sign(sign) => format!("`{sign}`"),
        Token::End => "the end".to_owned(),
    }
}
