//! Rust text to tokens, just far enough to find paths: comments, strings and characters vanish, so
//! that words in them cannot be taken for code.

/// A word or a punctuation mark, with the number of its line from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: usize,
}

/// What kind of token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    Mark(char),
    /// `::`
    Path,
    /// A literal or a lifetime: it separates, and says nothing.
    Other,
}

impl Token {
    /// The word, if it is one.
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Whether it is this mark.
    pub(super) fn is(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// The tokens of a file.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    Lexer { rest: text, line: 1, tokens: Vec::new() }.run()
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn run(mut self) -> Vec<Token> {
        while let Some(first) = self.rest.chars().next() {
            let line = self.line;
            let (length, kind) = self.next(first);
            self.line += self.rest[..length].matches('\n').count();
            self.rest = &self.rest[length..];
            self.tokens.extend(kind.map(|kind| Token { kind, line }));
        }
        self.tokens
    }

    /// Length in bytes of the next piece, and its token if it is one.
    fn next(&self, first: char) -> (usize, Option<Kind>) {
        let rest = self.rest;
        if first.is_whitespace() {
            return (first.len_utf8(), None);
        }
        if rest.starts_with("//") {
            return (rest.find('\n').unwrap_or(rest.len()), None);
        }
        if rest.starts_with("/*") {
            return (block_comment(rest), None);
        }
        if let Some(length) = string(rest) {
            return (length, Some(Kind::Other));
        }
        if first == '\'' {
            return (character_or_lifetime(rest), Some(Kind::Other));
        }
        if first.is_ascii_digit() {
            return (word_length(rest), Some(Kind::Other));
        }
        if first == '_' || first.is_alphabetic() {
            let raw = rest.strip_prefix("r#");
            let length = word_length(raw.unwrap_or(rest));
            let word = raw.unwrap_or(rest)[..length].to_owned();
            return (length + if raw.is_some() { 2 } else { 0 }, Some(Kind::Word(word)));
        }
        if rest.starts_with("::") {
            return (2, Some(Kind::Path));
        }
        (first.len_utf8(), Some(Kind::Mark(first)))
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

/// Block comments nest in Rust.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a string literal of any kind at the start of the text.
fn string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['"', '#']))
    })?;
    let rest = &text[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = rest.find(|c| c != '#')?;
        if !rest[hashes..].starts_with('"') {
            return None; // r#word
        }
        let end = format!("\"{}", &rest[..hashes]);
        let body = prefix.len() + hashes + 1;
        return Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()));
    }
    if !rest.starts_with('"') {
        return None;
    }
    let body = prefix.len() + 1;
    let mut escaped = false;
    for (at, c) in text[body..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(body + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// `'a'`, `'\n'`, `'\u{1F}'` or `'lifetime`.
fn character_or_lifetime(text: &str) -> usize {
    let mut inside = text.char_indices().skip(1);
    let Some((_, first)) = inside.next() else { return text.len() };
    if first == '\\' {
        inside.next(); // what is escaped, be it a quote
        return inside.find(|(_, c)| *c == '\'').map_or(text.len(), |(at, _)| at + 1);
    }
    match inside.next() {
        Some((at, '\'')) => at + 1,
        _ => 1 + word_length(&text[1..]).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        tokens(text).iter().filter_map(|token| token.word().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        let text = r####"
            a /* b /* c */ d */ e // f
            "g \" h" i r#"j " k"# l b"m" br##"n "# o"## c"p" 'q' '\'' '"' r '\u{1F}' s
        "####;
        assert_eq!(words(text), ["a", "e", "i", "l", "r", "s"]);
    }

    #[test]
    fn lifetimes_raw_words_and_numbers_are_told_apart() {
        assert_eq!(
            words("fn f<'a>(x: &'a str, r#type: u8) { 0x1F_u32; }"),
            ["fn", "f", "x", "str", "type", "u8"]
        );
        assert_eq!(words("'static 'x' y"), ["y"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let found = tokens("/* \n\n */ \"\n\" a\nb");
        let lines: Vec<usize> = found.iter().map(|token| token.line).collect();
        assert_eq!(lines, [3, 4, 5]);
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_text() {
        for text in ["\"abc", "r#\"abc", "/* abc", "'", "'\\", "b'"] {
            tokens(text);
        }
    }
}
