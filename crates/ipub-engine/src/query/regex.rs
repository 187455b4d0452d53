//! Regular expressions: `.`, `[a-z]`, `[^a-z]`, `*`, `+`, `?`, `|`, `( )`, `^`, `$`, `\` before a
//! sign; `\d`, `\w`, `\s`. A match may lie anywhere. Time grows with pattern times text, never
//! faster: all ways to match advance together.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::CharIndices;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Regex {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    One(Class),
    /// Goes on at both places.
    Fork(usize, usize),
    Jump(usize),
    Start,
    End,
    Matched,
}

/// Characters: ranges, or all but them.
#[derive(Clone, Debug)]
struct Class {
    ranges: Vec<(char, char)>,
    negated: bool,
}

impl Class {
    fn of(ranges: &[(char, char)]) -> Self {
        let ranges = ranges.to_vec();
        Self {
            ranges,
            negated: false,
        }
    }

    fn has(&self, c: char) -> bool {
        let within = self
            .ranges
            .iter()
            .any(|&(low, high)| (low..=high).contains(&c));
        within != self.negated
    }
}

enum Tree {
    Empty,
    One(Class),
    Start,
    End,
    Sequence(Vec<Tree>),
    Either(Vec<Tree>),
    /// `*` (0, many), `+` (1, many), `?` (0, one).
    Repeat {
        of: Box<Tree>,
        optional: bool,
        many: bool,
    },
}

/// Groups within groups, at most.
const DEPTH_MAX: usize = 50;

impl Regex {
    /// The pattern, or what is wrong with it and at which byte.
    pub(super) fn new(pattern: &str) -> Result<Self, (usize, String)> {
        let mut reader = Reader {
            rest: pattern.char_indices().peekable(),
        };
        let tree = reader.either(0)?;
        if let Some(&(at, _)) = reader.rest.peek() {
            return Err((at, "this `)` closes nothing".to_owned()));
        }
        let mut steps = Vec::new();
        compile(&tree, &mut steps);
        steps.push(Step::Matched);
        Ok(Self { steps })
    }

    /// Whether some part of `text` matches.
    pub(super) fn is_match(&self, text: &str) -> bool {
        let mut open = BTreeSet::new();
        let mut before = true;
        let mut rest = text.chars();
        loop {
            let now = rest.next();
            let mut todo: Vec<usize> = std::mem::take(&mut open).into_iter().collect();
            todo.push(0);
            let (mut seen, mut next) = (BTreeSet::new(), BTreeSet::new());
            while let Some(at) = todo.pop() {
                if !seen.insert(at) {
                    continue;
                }
                match &self.steps[at] {
                    Step::Matched => return true,
                    Step::Jump(to) => todo.push(*to),
                    Step::Fork(a, b) => todo.extend([*a, *b]),
                    Step::Start if before => todo.push(at + 1),
                    Step::End if now.is_none() => todo.push(at + 1),
                    Step::One(class) if now.is_some_and(|c| class.has(c)) => {
                        next.insert(at + 1);
                    }
                    Step::Start | Step::End | Step::One(_) => {}
                }
            }
            if now.is_none() {
                return false;
            }
            open = next;
            before = false;
        }
    }
}

fn compile(tree: &Tree, steps: &mut Vec<Step>) {
    match tree {
        Tree::Empty => {}
        Tree::One(class) => steps.push(Step::One(class.clone())),
        Tree::Start => steps.push(Step::Start),
        Tree::End => steps.push(Step::End),
        Tree::Sequence(parts) => parts.iter().for_each(|part| compile(part, steps)),
        Tree::Either(parts) => {
            let mut jumps = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                if index + 1 == parts.len() {
                    compile(part, steps);
                    break;
                }
                let fork = steps.len();
                steps.push(Step::Matched);
                compile(part, steps);
                jumps.push(steps.len());
                steps.push(Step::Matched);
                steps[fork] = Step::Fork(fork + 1, steps.len());
            }
            for jump in jumps {
                steps[jump] = Step::Jump(steps.len());
            }
        }
        Tree::Repeat { of, optional, many } => {
            let start = steps.len();
            if *optional {
                steps.push(Step::Matched);
            }
            let body = steps.len();
            compile(of, steps);
            if *many {
                steps.push(Step::Fork(body, steps.len() + 1));
            }
            if *optional {
                steps[start] = Step::Fork(body, steps.len());
            }
        }
    }
}

struct Reader<'a> {
    rest: Peekable<CharIndices<'a>>,
}

type Parsed = Result<Tree, (usize, String)>;

impl Reader<'_> {
    fn either(&mut self, depth: usize) -> Parsed {
        let mut parts = vec![self.sequence(depth)?];
        while self.rest.next_if(|(_, c)| *c == '|').is_some() {
            parts.push(self.sequence(depth)?);
        }
        Ok(match parts.len() {
            1 => parts.swap_remove(0),
            _ => Tree::Either(parts),
        })
    }

    fn sequence(&mut self, depth: usize) -> Parsed {
        let mut parts = Vec::new();
        while let Some(&(at, c)) = self.rest.peek() {
            if c == '|' || c == ')' {
                break;
            }
            self.rest.next();
            let part = match c {
                '(' if depth == DEPTH_MAX => return Err((at, "groups nest too deep".to_owned())),
                '(' => {
                    let inner = self.either(depth + 1)?;
                    if self.rest.next_if(|(_, c)| *c == ')').is_none() {
                        return Err((at, "this `(` is never closed".to_owned()));
                    }
                    inner
                }
                '[' => Tree::One(self.class(at)?),
                '.' => Tree::One(Class {
                    ranges: Vec::new(),
                    negated: true,
                }),
                '^' => Tree::Start,
                '$' => Tree::End,
                '\\' => Tree::One(self.escape(at)?),
                '*' | '+' | '?' => return Err((at, format!("nothing before `{c}` to repeat"))),
                c => Tree::One(Class::of(&[(c, c)])),
            };
            parts.push(self.repeated(part));
        }
        Ok(match parts.len() {
            0 => Tree::Empty,
            _ => Tree::Sequence(parts),
        })
    }

    fn repeated(&mut self, part: Tree) -> Tree {
        // More than one sign repeats as the widest of them.
        let mut signs = Vec::new();
        while let Some((_, sign)) = self.rest.next_if(|(_, c)| "*+?".contains(*c)) {
            signs.push(sign);
        }
        match signs.is_empty() {
            true => part,
            false => Tree::Repeat {
                of: Box::new(part),
                optional: signs.iter().any(|sign| *sign != '+'),
                many: signs.iter().any(|sign| *sign != '?'),
            },
        }
    }

    fn escape(&mut self, at: usize) -> Result<Class, (usize, String)> {
        match self.rest.next() {
            Some((_, 'd')) => Ok(Class::of(&[('0', '9')])),
            Some((_, 'w')) => Ok(Class::of(&[('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')])),
            Some((_, 's')) => Ok(Class::of(&[(' ', ' '), ('\t', '\r')])),
            Some((_, c)) if !c.is_alphanumeric() => Ok(Class::of(&[(c, c)])),
            Some((_, c)) => Err((at, format!("`\\{c}` has no meaning"))),
            None => Err((at, "a lone `\\` at the end".to_owned())),
        }
    }

    fn class(&mut self, open: usize) -> Result<Class, (usize, String)> {
        let unclosed = || (open, "this `[` is never closed".to_owned());
        let negated = self.rest.next_if(|(_, c)| *c == '^').is_some();
        let mut ranges = Vec::new();
        loop {
            let (at, low) = self.rest.next().ok_or_else(unclosed)?;
            match low {
                ']' if !ranges.is_empty() => break,
                '\\' => ranges.extend(self.escape(at)?.ranges),
                low => {
                    if self.rest.next_if(|(_, c)| *c == '-').is_none() {
                        ranges.push((low, low));
                        continue;
                    }
                    match self.rest.next().ok_or_else(unclosed)? {
                        // A `-` before the end is itself.
                        (_, ']') => {
                            ranges.extend([(low, low), ('-', '-')]);
                            break;
                        }
                        (_, high) if low <= high => ranges.push((low, high)),
                        (at, high) => return Err((at, format!("`{low}-{high}` is no range"))),
                    }
                }
            }
        }
        Ok(Class { ranges, negated })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_they_should() {
        let matches = |pattern: &str, text: &str| Regex::new(pattern).unwrap().is_match(text);
        for (pattern, text) in [
            ("", ""),
            ("b", "abc"),
            ("^a.c$", "abc"),
            ("^(ab|cd)+$", "abcdab"),
            ("x*y?z", "z"),
            ("[a-c]+d", "xxabcd"),
            ("[^a-c]", "d"),
            ("[]-]", "-"),
            ("a\\.b", "a.b"),
            ("\\d+", "siglip27"),
            ("^(a?)*$", "aaa"),
            ("é", "café"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("^b", "abc"),
            ("b$", "abc"),
            ("^(ab|cd)+$", "abc"),
            ("[^a-c]", "abc"),
            ("a\\.b", "axb"),
            ("a+", ""),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        let long = "a".repeat(400);
        assert!(!matches("(a*)*b", &long));
    }

    #[test]
    fn errors_have_a_place() {
        for (pattern, at) in [("a(b", 1), ("ab)", 2), ("*", 0), ("x[a", 1), ("a\\", 1)] {
            assert_eq!(Regex::new(pattern).unwrap_err().0, at, "{pattern}");
        }
    }
}
