//! Text to raw statements.
//!
//! Input: text. Output: statements with their places, comments removed; braces are statements of
//! their own. Line markers (`# 12 "file"`) set file and line.
//! Not here: any meaning of a statement.

use std::rc::Rc;

/// A statement as text.
#[derive(Debug, Clone)]
pub struct Raw {
    pub file: Rc<str>,
    pub line: u32,
    pub column: u32,
    pub text: Rc<str>,
}

/// A fault while splitting.
#[derive(Debug)]
pub struct SplitError {
    pub at: Raw,
    pub reason: String,
}

struct Splitter<'a> {
    text: &'a str,
    at: usize,
    file: Rc<str>,
    line: u32,
    line_start: usize,
    /// The statement being read and the place of its first character.
    current: String,
    start: Option<(u32, u32)>,
    output: Vec<Raw>,
}

/// Split a text. `first` gives the file and line of its first character.
pub fn split(text: &str, file: &Rc<str>, first: (u32, u32)) -> Result<Vec<Raw>, SplitError> {
    let mut splitter = Splitter {
        text,
        at: 0,
        file: file.clone(),
        line: first.0,
        line_start: 0,
        current: String::new(),
        start: None,
        output: Vec::new(),
    };
    splitter.run()?;
    for raw in &mut splitter.output {
        if raw.line == first.0 {
            raw.column += first.1 - 1;
        }
    }
    Ok(splitter.output)
}

impl Splitter<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn place(&self) -> (u32, u32) {
        (self.line, (self.at - self.line_start) as u32 + 1)
    }

    fn error(&self, reason: &str) -> SplitError {
        let (line, column) = self.place();
        let text = self.current.trim().into();
        let at = Raw {
            file: self.file.clone(),
            line,
            column,
            text,
        };
        SplitError {
            at,
            reason: reason.to_string(),
        }
    }

    fn run(&mut self) -> Result<(), SplitError> {
        while let Some(c) = self.rest().chars().next() {
            match c {
                '\n' => {
                    self.end_statement();
                    self.newline();
                }
                ';' => {
                    self.end_statement();
                    self.at += 1;
                }
                '{' | '}' => {
                    self.end_statement();
                    self.push(c);
                    self.end_statement();
                }
                '/' if self.rest().starts_with("//") => self.skip_line(),
                '/' if self.rest().starts_with("/*") => self.block_comment()?,
                '#' if self.at_line_start() => self.hash_line()?,
                '"' => self.string()?,
                '\'' if self.character_length() > 0 => {
                    for _ in 0..self.character_length() {
                        let c = self.rest().chars().next().expect("length was measured");
                        self.push(c);
                    }
                }
                c => self.push(c),
            }
        }
        self.end_statement();
        Ok(())
    }

    fn push(&mut self, c: char) {
        if self.start.is_none() && !c.is_whitespace() {
            self.start = Some(self.place());
        }
        self.current.push(c);
        self.at += c.len_utf8();
    }

    fn newline(&mut self) {
        self.at += 1;
        self.line += 1;
        self.line_start = self.at;
    }

    fn end_statement(&mut self) {
        let text = std::mem::take(&mut self.current);
        if let Some((line, column)) = self.start.take() {
            let text = text.trim().into();
            self.output.push(Raw {
                file: self.file.clone(),
                line,
                column,
                text,
            });
        }
    }

    fn at_line_start(&self) -> bool {
        self.text[self.line_start..self.at].trim().is_empty()
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    fn block_comment(&mut self) -> Result<(), SplitError> {
        let Some(length) = self.rest()[2..].find("*/") else {
            return Err(self.error("comment without end"));
        };
        let end = self.at + 2 + length + 2;
        while self.at < end {
            match self.text[self.at..end].find('\n') {
                Some(newline) => {
                    self.at += newline;
                    self.newline();
                }
                None => self.at = end,
            }
        }
        self.current.push(' ');
        Ok(())
    }

    /// A comment line or a line marker; a preprocessor directive is an error.
    fn hash_line(&mut self) -> Result<(), SplitError> {
        let length = self.rest().find('\n').unwrap_or(self.rest().len());
        let body = self.rest()[1..length].to_string();
        let word = body
            .split(|c: char| !c.is_ascii_alphabetic())
            .next()
            .unwrap_or_default();
        const DIRECTIVES: &[&str] = &[
            "define", "elif", "else", "endif", "error", "if", "ifdef", "ifndef", "include",
            "pragma", "undef",
        ];
        if DIRECTIVES.contains(&word) {
            return Err(self.error(&format!("`#{word}`: the text was not preprocessed")));
        }
        self.at += length;
        let mut words = body.trim().splitn(2, ' ');
        if let (Some(Ok(line)), Some(file)) = (words.next().map(str::parse::<u32>), words.next())
            && let Some(file) = file
                .strip_prefix('"')
                .and_then(|file| file.split('"').next())
        {
            self.file = file.into();
            self.line = line.saturating_sub(1);
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), SplitError> {
        self.push('"');
        let mut escaped = false;
        while let Some(c) = self.rest().chars().next() {
            if c == '\n' {
                break;
            }
            self.push(c);
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Ok(()),
                _ => {}
            }
        }
        Err(self.error("string without end"))
    }

    /// Characters of the character literal here, or zero.
    fn character_length(&self) -> usize {
        let mut chars = self.rest().chars();
        match (chars.next(), chars.next(), chars.next()) {
            (Some('\''), Some(c), Some('\'')) if c != '\n' => 3,
            _ => 0,
        }
    }
}
