//! One source file: the paths that it names, its `unsafe`, and which of its parts are tests.

use super::lexer::{Kind, Token, tokens};

/// What a file says that the rules are about.
#[derive(Default)]
pub(super) struct Source {
    pub(super) paths: Vec<Named>,
    /// Lines with the word `unsafe`, and whether they belong to a test.
    pub(super) unsafe_lines: Vec<(usize, bool)>,
    /// Modules declared here whose files are tests: `#[cfg(test)] mod name;`.
    pub(super) test_modules: Vec<Vec<String>>,
}

/// One path, as `["crate", "ring", "layout", "Header"]` or `["std", "fs"]`.
pub(super) struct Named {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
    /// Within `#[cfg(test)]`.
    pub(super) in_test: bool,
    /// Followed by `!`: a macro, which the crate root exports whatever module defines it.
    pub(super) is_macro: bool,
}

impl Source {
    /// Reads the text of the file of this module; `[]` is `lib.rs`.
    pub(super) fn read(text: &str, module: &[String]) -> Self {
        let tokens = tokens(text);
        let mut reader = Reader {
            in_test: test_parts(&tokens),
            tokens,
            module: module.to_vec(),
            open: Vec::new(),
            found: Self::default(),
        };
        let mut at = 0;
        while at < reader.tokens.len() {
            at = reader.step(at);
        }
        reader.found
    }
}

struct Reader {
    tokens: Vec<Token>,
    /// For each token, whether it is part of a test.
    in_test: Vec<bool>,
    /// The module at this place: that of the file and the `mod name {` around.
    module: Vec<String>,
    /// For each open brace, whether it opened a module.
    open: Vec<bool>,
    found: Source,
}

impl Reader {
    /// Looks at one token and returns where to go on.
    fn step(&mut self, at: usize) -> usize {
        let token = &self.tokens[at];
        match &token.kind {
            Kind::Mark('{') => self.open.push(false),
            Kind::Mark('}') => self.close_brace(),
            Kind::Word(word) if word == "mod" => return self.module_declaration(at),
            Kind::Word(word) if word == "unsafe" => {
                self.found.unsafe_lines.push((token.line, self.in_test[at]));
            }
            Kind::Word(_) if self.begins_path(at) => return self.tree(at, &[]),
            // `::std::fs` begins at the double colon.
            _ => {}
        }
        at + 1
    }

    fn close_brace(&mut self) {
        if self.open.pop() == Some(true) {
            self.module.pop();
        }
    }

    fn module_declaration(&mut self, at: usize) -> usize {
        let Some(name) = self.tokens.get(at + 1).and_then(Token::word) else { return at + 1 };
        let mut module = self.module.clone();
        module.push(name.to_owned());
        match self.tokens.get(at + 2) {
            Some(token) if token.is('{') => {
                self.module = module;
                self.open.push(true);
                at + 3
            }
            Some(token) if token.is(';') && self.in_test[at] => {
                self.found.test_modules.push(module);
                at + 3
            }
            _ => at + 2,
        }
    }

    /// A word that is followed by `::` and is no later part of a path.
    fn begins_path(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|at| &self.tokens[at]);
        let continues = before.is_some_and(|token| {
            token.is('.') || (token.kind == Kind::Path && self.is_segment_before(at - 1))
        });
        let used = before.is_some_and(|token| token.word() == Some("use"));
        !continues && (used || self.kind(at + 1) == Some(&Kind::Path))
    }

    /// Whether the `::` at this place has a word or `>` in front: `a::b`, `<T>::b`.
    fn is_segment_before(&self, path: usize) -> bool {
        let Some(before) = path.checked_sub(1).map(|at| &self.tokens[at]) else { return false };
        before.is('>') || before.word().is_some_and(|word| word != "use" && word != "return")
    }

    fn kind(&self, at: usize) -> Option<&Kind> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    /// Reads a path or a tree of paths, `a::{b, c::{d, e}}`, and notes each leaf.
    fn tree(&mut self, mut at: usize, prefix: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        let line = self.tokens[at].line;
        loop {
            match self.kind(at) {
                Some(Kind::Word(word)) => segments.push(word.clone()),
                Some(Kind::Mark('{')) => return self.group(at + 1, &segments),
                // `::*`, `::<T>`: the path in front is what is named.
                _ => break,
            }
            at += 1;
            if self.kind(at) != Some(&Kind::Path) {
                break;
            }
            at += 1;
        }
        let first = at.saturating_sub(1).min(self.tokens.len() - 1);
        let named = Named {
            segments: absolute(&segments, &self.module),
            line,
            in_test: self.in_test[first],
            is_macro: self.kind(at) == Some(&Kind::Mark('!')),
        };
        self.found.paths.push(named);
        at
    }

    fn group(&mut self, mut at: usize, prefix: &[String]) -> usize {
        while let Some(kind) = self.kind(at) {
            match kind {
                Kind::Mark('}') => return at + 1,
                Kind::Word(word) if word == "as" => at += 2,
                Kind::Word(_) | Kind::Mark('{') => at = self.tree(at, prefix),
                _ => at += 1,
            }
        }
        at
    }
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

/// Marks the tokens of every item under `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn test_parts(tokens: &[Token]) -> Vec<bool> {
    let mut marked = vec![false; tokens.len()];
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at].is('#') {
            at += 1;
            continue;
        }
        let whole_file = tokens.get(at + 1).is_some_and(|token| token.is('!'));
        let open = at + 1 + usize::from(whole_file);
        let end = closing(tokens, open);
        if is_test_only(&tokens[open.min(end)..end]) {
            let item = if whole_file { tokens.len() } else { end_of_item(tokens, end) };
            marked[at..item].fill(true);
            at = item;
        } else {
            at = end.max(at + 1);
        }
    }
    marked
}

/// Whether an attribute's tokens, from `[` on, are `cfg(test)` or `cfg(all(…, test, …))`. Under
/// `any` or `not` the item also exists without tests.
fn is_test_only(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().filter_map(Token::word).collect();
    match words.as_slice() {
        ["cfg", "test"] => true,
        ["cfg", "all", rest @ ..] => {
            rest.contains(&"test") && !rest.contains(&"not") && !rest.contains(&"any")
        }
        _ => false,
    }
}

/// The place behind the item that begins here, further attributes included.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.kind {
            Kind::Mark(';' | ',') => return at + 1,
            Kind::Mark('{') => return closing(tokens, at),
            Kind::Mark('(' | '[') => at = closing(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// The place behind the bracket that closes the one here.
fn closing(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, token) in tokens.iter().enumerate().skip(at) {
        match token.kind {
            Kind::Mark('(' | '[' | '{') => depth += 1,
            Kind::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return offset + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, module: &str) -> Source {
        let module: Vec<String> =
            module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Source::read(text, &module)
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
        assert_eq!(paths("let x = ::std::fs::read(y);", "ring"), ["std::fs::read"]);
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
    fn a_macro_is_told_from_an_item() {
        let source = read("crate::crash_point!(AfterLock); crate::bus::x();", "ring");
        let macros: Vec<bool> = source.paths.iter().map(|named| named.is_macro).collect();
        assert_eq!(macros, [true, false]);
    }
}
