//! Reads from one source file the paths that it uses, its `unsafe`, and which of its parts are tests.
//!
//! Paths and `unsafe` are read from the tokens, so that macros hide none of them. The syntax tree tells which
//! tokens belong to tests.

use std::ops::Range;

use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Meta, Token, braced, token};

/// What the rules need to know of a file.
#[derive(Default)]
pub(super) struct Source {
    pub(super) paths: Vec<Named>,
    /// Lines with the word `unsafe`, and whether they belong to a test.
    pub(super) unsafe_lines: Vec<(usize, bool)>,
    /// Modules declared here whose files are tests: `#[cfg(test)] mod name;`.
    pub(super) test_modules: Vec<Vec<String>>,
    /// Whether the file begins with [`DENIES_OVERFLOW`].
    pub(super) denies_overflow: bool,
}

/// The attribute of a file whose arithmetic says what happens at the bounds.
pub(super) const DENIES_OVERFLOW: &str =
    "#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]";

/// One path, as `["crate", "ring", "layout", "Header"]` or `["std", "fs"]`.
pub(super) struct Named {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
    /// Within `#[cfg(test)]`.
    pub(super) in_test: bool,
    /// Followed by `!`: a macro. The crate root exports it, whichever module defines it.
    pub(super) is_macro: bool,
}

impl Source {
    /// Reads the text of a module's file. The module of `lib.rs` is `[]`.
    pub(super) fn read(text: &str, module: &[String]) -> syn::Result<Self> {
        let tokens: TokenStream = text.parse()?;
        let file: syn::File = syn::parse2(tokens.clone())?;
        let mut tests = Tests::default();
        tests.visit_file(&file);
        let tests = if tests.inside { vec![whole(&file)] } else { tests.parts };
        let denies_overflow = file.attrs.iter().any(denies_overflow);
        let found = Self { denies_overflow, ..Self::default() };
        let mut reader = Reader { tests, module: module.to_vec(), found };
        reader.tokens(tokens)?;
        Ok(reader.found)
    }
}

/// The parts of a file under `#[cfg(test)]`.
#[derive(Default)]
struct Tests {
    parts: Vec<Range<LineColumn>>,
    /// Whether the node that is being visited is such a part.
    inside: bool,
}

/// Visits each kind of node that can have attributes. The attributes come first, and one of them may mark the node.
macro_rules! nodes_with_attributes {
    ($($visit:ident: $node:ident),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            let outside = std::mem::take(&mut self.inside);
            visit::$visit(self, node);
            if std::mem::replace(&mut self.inside, outside) {
                self.parts.push(whole(node));
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Tests {
    nodes_with_attributes! {
        visit_arm: Arm,
        visit_expr: Expr,
        visit_field: Field,
        visit_field_pat: FieldPat,
        visit_field_value: FieldValue,
        visit_fn_arg: FnArg,
        visit_foreign_item: ForeignItem,
        visit_generic_param: GenericParam,
        visit_impl_item: ImplItem,
        visit_item: Item,
        visit_pat: Pat,
        visit_stmt: Stmt,
        visit_trait_item: TraitItem,
        visit_variant: Variant,
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        self.inside |= attribute.path().is_ident("cfg")
            && attribute.parse_args().is_ok_and(|condition| needs_test(&condition));
    }
}

/// Whether an attribute is [`DENIES_OVERFLOW`].
fn denies_overflow(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string().replace(char::is_whitespace, "");
    let text = format!("#![cfg_attr({})]", condition.replace(',', ", "));
    list.path.is_ident("cfg_attr") && text == DENIES_OVERFLOW
}

/// Whether a condition is `test` or `all(…, test, …)`. Under `any` or `not` the item also exists without tests.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(needs_test))
        }
        other => other.path().is_ident("test"),
    }
}

fn whole(node: &impl Spanned) -> Range<LineColumn> {
    node.span().start()..node.span().end()
}

struct Reader {
    tests: Vec<Range<LineColumn>>,
    /// The file's module, and the `mod name {` around the current token.
    module: Vec<String>,
    found: Source,
}

impl Reader {
    fn tokens(&mut self, tokens: TokenStream) -> syn::Result<()> {
        let all = |input: ParseStream<'_>| {
            while !input.is_empty() {
                self.next(input)?;
            }
            Ok(())
        };
        all.parse2(tokens)
    }

    fn next(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Token![mod]) {
            return self.module_declaration(input);
        }
        if input.peek(Token![use]) {
            input.parse::<Token![use]>()?;
            return self.tree(input, &[]);
        }
        if input.peek(Ident::peek_any) && input.peek2(Token![::]) {
            return self.tree(input, &[]);
        }
        match input.parse()? {
            TokenTree::Group(group) => self.tokens(group.stream())?,
            TokenTree::Ident(word) if word == "unsafe" => {
                let in_test = self.in_test(word.span());
                self.found.unsafe_lines.push((line(word.span()), in_test));
            }
            // The name of a method: `x.y::<T>()`. Not of a range: `..a::b`.
            TokenTree::Punct(mark) if mark.as_char() == '.' && !input.peek(Token![.]) => {
                input.parse::<Option<Ident>>()?;
            }
            // The end of a path: `<T>::b`.
            TokenTree::Punct(mark) if mark.as_char() == '>' => {
                while input.peek(Token![::]) && input.peek3(Ident::peek_any) {
                    input.parse::<Token![::]>()?;
                    Ident::parse_any(input)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn module_declaration(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let start = input.parse::<Token![mod]>()?.span;
        let Some(name) = input.parse::<Option<Ident>>()? else { return Ok(()) };
        self.module.push(name.unraw().to_string());
        if input.peek(token::Brace) {
            let content;
            braced!(content in input);
            self.tokens(content.parse()?)?;
        } else if input.peek(Token![;]) && self.in_test(start) {
            self.found.test_modules.push(self.module.clone());
        }
        self.module.pop();
        Ok(())
    }

    /// Reads a path or a tree of paths, `a::{b, c::{d, e}}`, and notes each leaf.
    fn tree(&mut self, input: ParseStream<'_>, prefix: &[String]) -> syn::Result<()> {
        input.parse::<Option<Token![::]>>()?;
        let mut segments = prefix.to_vec();
        let start = input.span();
        loop {
            if input.peek(token::Brace) {
                let leaves;
                braced!(leaves in input);
                return self.leaves(&leaves, &segments);
            }
            if !input.peek(Ident::peek_any) {
                break;
            }
            segments.push(Ident::parse_any(input)?.unraw().to_string());
            // Of `a::*` and `a::<T>`, the path is `a`.
            if !input.peek(Token![::]) || input.peek3(Token![<]) {
                break;
            }
            input.parse::<Token![::]>()?;
        }
        // As in `impl Trait + use<'_>`.
        if segments.is_empty() {
            return Ok(());
        }
        let is_macro = input.peek(Token![!]) && !input.peek(Token![!=]);
        let named = Named {
            segments: absolute(&segments, &self.module),
            line: line(start),
            in_test: self.in_test(start),
            is_macro,
        };
        self.found.paths.push(named);
        Ok(())
    }

    fn leaves(&mut self, input: ParseStream<'_>, prefix: &[String]) -> syn::Result<()> {
        while !input.is_empty() {
            self.tree(input, prefix)?;
            // `as name`, or `*`.
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    }

    fn in_test(&self, span: Span) -> bool {
        self.tests.iter().any(|part| part.contains(&span.start()))
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

/// `super::x` and `self::x` as `crate::…::x`; other paths stay as they are.
fn absolute(segments: &[String], module: &[String]) -> Vec<String> {
    let mut here = module.to_vec();
    let mut rest = segments;
    match rest.first().map(String::as_str) {
        Some("self") => rest = &rest[1..],
        Some("super") => {
            while rest.first().is_some_and(|segment| segment == "super") {
                here.pop();
                rest = &rest[1..];
            }
        }
        _ => return segments.to_vec(),
    }
    let root = std::iter::once("crate".to_owned());
    root.chain(here).chain(rest.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, module: &str) -> Source {
        let module: Vec<String> =
            module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Source::read(text, &module).unwrap()
    }

    fn paths(text: &str, module: &str) -> Vec<String> {
        read(text, module).paths.iter().map(|named| named.segments.join("::")).collect()
    }

    #[test]
    fn trees_of_paths_give_each_leaf() {
        let text = "use crate::{ring::{layout::Header, self as r, reader::*}, sync};\nuse std::fs;";
        assert_eq!(
            paths(text, ""),
            [
                "crate::ring::layout::Header",
                "crate::ring::self",
                "crate::ring::reader",
                "crate::sync",
                "std::fs"
            ]
        );
    }

    #[test]
    fn paths_outside_of_use_are_found_too() {
        let text =
            "fn f(x: &crate::bus::Bus) -> Vec<libc::c_int> { std::mem::take(x.y::<loom::A>()) }";
        assert_eq!(
            paths(text, "ring"),
            ["crate::bus::Bus", "libc::c_int", "std::mem::take", "loom::A"]
        );
        assert_eq!(paths("fn f() { let x = ::std::fs::read(y); }", "ring"), ["std::fs::read"]);
        assert_eq!(paths("fn f() -> a::B { a::C { x, y } }", "ring"), ["a::B", "a::C"]);
        assert_eq!(paths("pub(crate) use self::a::B;", "ring"), ["crate::ring::a::B"]);
    }

    #[test]
    fn super_is_resolved_from_the_file_and_the_modules_within() {
        assert_eq!(paths("use super::super::bus::Bus;", "ring::writer"), ["crate::bus::Bus"]);
        assert_eq!(
            paths("mod inner { use super::x; } use super::y;", "ring::writer"),
            ["crate::ring::writer::x", "crate::ring::y"]
        );
    }

    #[test]
    fn parts_under_cfg_test_are_known_and_others_are_not() {
        let text = "
            use a::one;
            #[cfg(all(test, loom))] mod models { use a::two; fn f() { unsafe {} } }
            #[cfg(not(test))] use a::three;
            #[cfg(any(test, feature = \"x\"))] use a::four;
            #[cfg(test)] #[derive(Debug)] struct S { x: a::five }
            #[cfg(test)] mod elsewhere;
            fn g() { unsafe {} }";
        let source = read(text, "ring");
        let tests: Vec<&str> = source
            .paths
            .iter()
            .filter(|named| named.in_test)
            .map(|named| named.segments[1].as_str())
            .collect();
        assert_eq!(tests, ["two", "five"]);
        assert_eq!(source.paths.len(), 5);
        assert_eq!(source.unsafe_lines, [(3, true), (8, false)]);
        assert_eq!(source.test_modules, [["ring", "elsewhere"]]);
    }

    #[test]
    fn a_macro_is_distinguished_from_an_item() {
        let text = "fn f() { crate::crash_point!(AfterLock); crate::bus::x() }";
        let source = read(text, "ring");
        let macros: Vec<bool> = source.paths.iter().map(|named| named.is_macro).collect();
        assert_eq!(macros, [true, false]);
    }

    #[test]
    fn paths_in_macros_are_found() {
        let text = "
            fn f() { println!(\"{}\", super::bus::x(|| unsafe { libc::getpid() })); }
            macro_rules! make { ($t:ty) => { mod inner { use super::a; } $crate::ring::b::<$t>() } }
            #[derive(serde::Serialize)] struct S;";
        let source = read(text, "ring::writer");
        let found = paths(text, "ring::writer");
        let wanted = [
            "crate::ring::bus::x",
            "libc::getpid",
            "crate::ring::writer::a",
            "crate::ring::b",
            "serde::Serialize",
        ];
        assert_eq!(found, wanted);
        assert_eq!(source.unsafe_lines, [(2, false)]);
    }

    #[test]
    fn a_file_denies_overflow_by_an_attribute_of_its_own() {
        let denies = |text: &str| read(text, "ring").denies_overflow;
        assert!(denies(&format!("//! Text.\n\n{DENIES_OVERFLOW}\n\nuse a::b;")));
        assert!(!denies("use a::b;"));
        assert!(!denies(
            "mod inner { #![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))] }"
        ));
        assert!(!denies("#![cfg_attr(test, deny(clippy::arithmetic_side_effects))]"));
    }

    #[test]
    fn a_test_part_ends_where_its_syntax_ends() {
        let text = "
            enum E { #[cfg(test)] A(a::x, a::y), B(b::x) }
            impl S { #[cfg(test)] fn f<T, U>() { a::x() } fn g() { b::x() } }
            fn f(#[cfg(test)] x: a::x, y: b::x) {
                #[cfg(test)] let x = [a::x(); 2];
                match y { #[cfg(test)] Y { x, y } => a::x(), _ => T { #[cfg(test)] y: a::y, ..b::z() } }
            }";
        let source = read(text, "ring");
        let parts = source.paths.iter().map(|named| (named.segments[0].as_str(), named.in_test));
        let parts: Vec<_> = parts.collect();
        assert_eq!(parts.len(), 10);
        assert!(parts.iter().all(|(root, in_test)| (*root == "a") == *in_test), "{parts:?}");
        assert!(read("#![cfg(test)] fn f() { a::x() }", "ring").paths[0].in_test);
    }

    #[test]
    fn comments_and_literals_hold_no_paths() {
        let text = r####"
            const A: a::A = /* b::B /* c::C */ d::D */ e::E; // f::F
            const B: i::I = ("g::G \" h::H", r#"j::J " k::K"#, b"m::M", br##"n::N "# o::O"##, c"p::P", '"');
            /// `q::Q`
            const C: s::S = ('\'', '\u{1F}', "unsafe");
        "####;
        assert_eq!(paths(text, ""), ["a::A", "e::E", "i::I", "s::S"]);
        assert!(read(text, "").unsafe_lines.is_empty());
    }

    #[test]
    fn lifetimes_raw_words_and_numbers_are_distinguished() {
        let text = "fn f<'a>(x: &'a a::str, r#type: r#mod::u8) -> impl T + use<'a> { 0x1F_u32 }";
        assert_eq!(paths(text, ""), ["a::str", "mod::u8"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let source = read("/* \n\n */ const A: &str = \"\n\"; use a::\n{b,\nc};", "");
        let lines: Vec<usize> = source.paths.iter().map(|named| named.line).collect();
        assert_eq!(lines, [5, 6]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_an_error() {
        for text in ["\"abc", "r#\"abc", "/* abc", "'", "b'", "fn f() {", "let x = 1;"] {
            assert!(Source::read(text, &[]).is_err(), "{text}");
        }
    }
}
