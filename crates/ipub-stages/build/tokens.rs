//! Rust source as what it means to the compiler: tokens without comments and tests.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// What a source file consists of.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Digest of its tokens, without comments, doc comments and test items, as hex digits.
    pub digest: String,
    /// Paths that it includes by `include!`, `include_str!` and `include_bytes!`.
    pub includes: Vec<String>,
    /// First names of paths that begin with `crate::` or `super::`.
    pub local_names: BTreeSet<String>,
    /// All names that begin with `ipu`, which crates may have.
    pub crate_names: BTreeSet<String>,
    /// Modules in files of their own that exist in tests only.
    pub test_modules: Vec<String>,
}

/// Scans the text of a source file.
pub fn scan(text: &str) -> Result<SourceFile, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    let mut scan = Scan {
        hasher: blake3::Hasher::new(),
        includes: Vec::new(),
        local_names: BTreeSet::new(),
        crate_names: BTreeSet::new(),
        test_modules: Vec::new(),
    };
    scan.stream(stream);
    Ok(SourceFile {
        digest: scan.hasher.finalize().to_hex().to_string(),
        includes: scan.includes,
        local_names: scan.local_names,
        crate_names: scan.crate_names,
        test_modules: scan.test_modules,
    })
}

struct Scan {
    hasher: blake3::Hasher,
    includes: Vec<String>,
    local_names: BTreeSet<String>,
    crate_names: BTreeSet<String>,
    test_modules: Vec<String>,
}

impl Scan {
    fn token(&mut self, tag: u8, text: &str) {
        self.hasher
            .update(&[tag])
            .update(&(text.len() as u64).to_le_bytes());
        self.hasher.update(text.as_bytes());
    }

    fn stream(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens, at) {
                let end = attribute.end;
                if attribute.is_doc {
                    at = end;
                    continue;
                }
                if attribute.is_test {
                    if attribute.inner {
                        return;
                    }
                    if let Some(after) = self.skip_item(&tokens, end) {
                        at = after;
                        continue;
                    }
                }
            }
            self.note(&tokens, at);
            match &tokens[at] {
                TokenTree::Group(group) => {
                    let tag = match group.delimiter() {
                        Delimiter::Parenthesis => b'(',
                        Delimiter::Brace => b'{',
                        Delimiter::Bracket => b'[',
                        Delimiter::None => b' ',
                    };
                    self.token(tag, "");
                    self.stream(group.stream());
                    self.token(b'e', "");
                }
                TokenTree::Ident(ident) => self.token(b'i', &ident.to_string()),
                TokenTree::Punct(punct) => {
                    let tag = if punct.spacing() == Spacing::Joint {
                        b'j'
                    } else {
                        b'p'
                    };
                    self.token(tag, &punct.as_char().to_string());
                }
                TokenTree::Literal(literal) => self.token(b'l', &literal.to_string()),
            }
            at += 1;
        }
    }

    /// Notes names and included files that begin at `at`.
    fn note(&mut self, tokens: &[TokenTree], at: usize) {
        let TokenTree::Ident(ident) = &tokens[at] else {
            return;
        };
        let name = ident.to_string();
        if name == "crate" || name == "super" {
            match tokens.get(at + 3) {
                Some(TokenTree::Ident(next)) => drop(self.local_names.insert(next.to_string())),
                Some(TokenTree::Group(group)) => {
                    for token in group.stream() {
                        if let TokenTree::Ident(next) = token {
                            self.local_names.insert(next.to_string());
                        }
                    }
                }
                _ => {}
            }
        } else if matches!(name.as_str(), "include" | "include_str" | "include_bytes") {
            if let Some(TokenTree::Group(group)) = tokens.get(at + 2)
                && let Some(TokenTree::Literal(literal)) = group.stream().into_iter().next()
            {
                self.includes
                    .push(literal.to_string().trim_matches('"').to_owned());
            }
        } else if name.starts_with("ipu") {
            self.crate_names.insert(name);
        }
    }

    /// The index after the item that begins at `at`, attributes included; `None` if what is there
    /// is not surely an item.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize) -> Option<usize> {
        const ITEMS: [&str; 14] = [
            "mod",
            "fn",
            "use",
            "impl",
            "const",
            "static",
            "struct",
            "enum",
            "trait",
            "type",
            "unsafe",
            "async",
            "extern",
            "macro_rules",
        ];
        while let Some(attribute) = attribute(tokens, at) {
            at = attribute.end;
        }
        if is_ident(tokens.get(at), "pub") {
            at += 1;
            if matches!(tokens.get(at), Some(TokenTree::Group(_))) {
                at += 1;
            }
        }
        let Some(TokenTree::Ident(keyword)) = tokens.get(at) else {
            return None;
        };
        let keyword = keyword.to_string();
        if !ITEMS.contains(&keyword.as_str()) {
            return None;
        }
        if keyword == "mod"
            && let (Some(TokenTree::Ident(name)), true) =
                (tokens.get(at + 1), is_semicolon(tokens.get(at + 2)))
        {
            self.test_modules.push(name.to_string());
        }
        // `const fn` has a body; these others end with a semicolon, whatever braces they hold.
        let is_function =
            is_ident(tokens.get(at + 1), "fn") || is_ident(tokens.get(at + 1), "unsafe");
        let to_semicolon = match keyword.as_str() {
            "use" | "static" | "type" => true,
            "const" => !is_function,
            _ => false,
        };
        while let Some(token) = tokens.get(at) {
            at += 1;
            let is_body =
                matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            if is_semicolon(Some(token)) || (is_body && !to_semicolon) {
                return Some(at);
            }
        }
        None
    }
}

struct Attribute {
    end: usize,
    inner: bool,
    is_doc: bool,
    is_test: bool,
}

/// The attribute that begins at `at`.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<Attribute> {
    let is_punct = |at: usize, wanted: char| match tokens.get(at) {
        Some(TokenTree::Punct(punct)) => punct.as_char() == wanted,
        _ => false,
    };
    if !is_punct(at, '#') {
        return None;
    }
    let inner = is_punct(at + 1, '!');
    let group_at = at + 1 + usize::from(inner);
    let Some(TokenTree::Group(group)) = tokens.get(group_at) else {
        return None;
    };
    if group.delimiter() != Delimiter::Bracket {
        return None;
    }
    let content: Vec<TokenTree> = group.stream().into_iter().collect();
    let is_doc = is_ident(content.first(), "doc");
    let is_cfg_test = match content.as_slice() {
        [name, TokenTree::Group(args)] => {
            is_ident(Some(name), "cfg") && args.stream().to_string() == "test"
        }
        _ => false,
    };
    let is_test = is_cfg_test || (content.len() == 1 && is_ident(content.first(), "test"));
    Some(Attribute {
        end: group_at + 1,
        inner,
        is_doc,
        is_test,
    })
}

fn is_ident(token: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if *ident == wanted)
}

fn is_semicolon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ';')
}
