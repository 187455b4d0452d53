//! What one Rust file holds, as far as the laws of the tree ask.

use std::ops::RangeInclusive;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Item, ItemFn, ItemMod, Macro, Meta, Signature};

/// Macros that write to the terminal.
const PRINTS: [&str; 5] = ["print", "println", "eprint", "eprintln", "dbg"];

/// Findings in one file. Lines count from 1.
#[derive(Debug, Default)]
pub struct Source {
    /// Name and length of every function, attributes and comments above it apart.
    pub functions: Vec<(String, usize)>,
    /// Lines of terminal output outside tests.
    pub prints: Vec<usize>,
    /// Lines of `unsafe`.
    pub unsafes: Vec<usize>,
    /// Items compiled for tests only.
    pub tests: Vec<RangeInclusive<usize>>,
    /// Modules compiled for tests only that stand in files of their own.
    pub test_modules: Vec<String>,
    scope: Vec<String>,
    in_tests: bool,
}

impl Source {
    pub fn parse(text: &str) -> syn::Result<Source> {
        let file = syn::parse_file(text)?;
        let mut source = Source::default();
        source.visit_file(&file);
        Ok(source)
    }

    pub fn is_test_line(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line - first + 1;
        self.scope.push(signature.ident.to_string());
        self.functions.push((self.scope.join("::"), lines));
    }

    /// Terminal output and `unsafe` in the arguments of macros.
    fn tokens(&mut self, tokens: &TokenStream) {
        let mut last = None;
        for token in tokens.clone() {
            match &token {
                TokenTree::Group(group) => self.tokens(&group.stream()),
                TokenTree::Punct(punct) if punct.as_char() == '!' => {
                    if let Some((name, line)) = last.take() {
                        self.called(name, line);
                    }
                }
                TokenTree::Ident(ident) if ident == "unsafe" => self.unsafe_at(token.span()),
                _ => {}
            }
            last = match token {
                TokenTree::Ident(ident) => Some((ident.to_string(), ident.span().start().line)),
                _ => None,
            };
        }
    }

    fn called(&mut self, name: String, line: usize) {
        if PRINTS.contains(&name.as_str()) && !self.in_tests {
            self.prints.push(line);
        }
    }

    fn unsafe_at(&mut self, span: proc_macro2::Span) {
        self.unsafes.push(span.start().line);
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        let enclosing = (self.scope.len(), self.in_tests);
        if is_test(attributes(item)) {
            if !self.in_tests {
                let span = item.span();
                self.tests.push(span.start().line..=span.end().line);
            }
            self.in_tests = true;
        }
        match item {
            Item::Impl(block) => {
                if let syn::Type::Path(path) = &*block.self_ty
                    && let Some(last) = path.path.segments.last()
                {
                    self.scope.push(last.ident.to_string());
                }
            }
            Item::Trait(of) => self.scope.push(of.ident.to_string()),
            _ => {}
        }
        visit::visit_item(self, item);
        self.scope.truncate(enclosing.0);
        self.in_tests = enclosing.1;
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_none() && self.in_tests {
            self.test_modules.push(module.ident.to_string());
        }
        self.scope.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
        self.scope.pop();
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
        if item.default.is_some() {
            self.scope.pop();
        }
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        if let syn::Safety::Unsafe(token) = &signature.safety {
            self.unsafe_at(token.span());
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.unsafe_at(token.span());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_unsafe(&mut self, expression: &'ast syn::ExprUnsafe) {
        self.unsafe_at(expression.unsafe_token.span());
        visit::visit_expr_unsafe(self, expression);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(last) = call.path.segments.last() {
            self.called(last.ident.to_string(), last.ident.span().start().line);
        }
        self.tokens(&call.tokens);
        visit::visit_macro(self, call);
    }
}

/// Whether `#[test]` or `#[cfg(test)]` stands on an item.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::NameValue(_) => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
impl Tile {
    /// Above.
    fn run(&self) {
        assert!(true, "{}", { println!("x"); 1 });
    }
}
fn free() { unsafe { danger() } }
fn next() { eprintln!("unsafe print!") }
#[cfg(test)]
mod tests {
    fn shown() { dbg!(1); }
}
#[cfg(test)]
mod other;
"#;

    #[test]
    fn a_file_is_read() {
        let source = Source::parse(TEXT).unwrap();
        let names: Vec<_> = source
            .functions
            .iter()
            .map(|(n, l)| (n.as_str(), *l))
            .collect();
        let expected = [
            ("Tile::run", 3),
            ("free", 1),
            ("next", 1),
            ("tests::shown", 1),
        ];
        assert_eq!(names, expected);
        assert_eq!(source.prints, [5, 9]);
        assert_eq!(source.unsafes, [8]);
        assert_eq!(source.test_modules, ["other"]);
        assert!(source.is_test_line(12) && !source.is_test_line(8));
    }
}
