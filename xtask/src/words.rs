//! Words that are not plain English, and words that the glossary explains twice. A step of `cargo xtask check`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::command::Failure;
use crate::metadata;

/// What people read: comments and texts of code, and documents.
const KINDS: &[&str] = &["*.rs", "*.md", "*.h", "*.hpp", "*.c", "*.cpp", "*.py", "*.pyi", "*.sh"];

/// Words that stand for something plainer, and what to write.
const WORDS: &[(&[&str], &str)] = &[
    (&["so", "many"], "the number, or `that many`"),
    (&["so", "long"], "the time, or `that long`"),
    (&["anew"], "`again`"),
    (&["whoever"], "who does it: `a process that …`"),
    (&["is", "told"], "who reports it, or `learns`"),
    (&["are", "told"], "who reports it, or `learn`"),
    (&["nobody"], "who does not: `no process …`"),
];

/// Where a word is not one of prose.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The list, and tests of it.
    ("xtask/src/words.rs", ""),
    // A user of Unix.
    ("docs/security.md", "nobody"),
];

const GLOSSARY: &str = "docs/glossary.md";

pub(crate) fn check() -> Result<String, Failure> {
    let mut wrong = Vec::new();
    let files = metadata::files(KINDS)?;
    for file in &files {
        let name = file.display().to_string();
        let text = metadata::text(file)?;
        let is_excepted = |word: &str| {
            EXCEPTIONS.iter().any(|(of, one)| *of == name && (*one == word || one.is_empty()))
        };
        for (line, word, instead) in found(&text) {
            if !is_excepted(&word) {
                wrong.push(format!("{name}:{line}: instead of `{word}`, write {instead}"));
            }
        }
    }
    wrong.extend(twice(&metadata::text(Path::new(GLOSSARY))?));
    if wrong.is_empty() {
        return Ok(format!("{} files", files.len()));
    }
    Err(Failure(wrong.join("\n")))
}

/// The words of the list in a text, each with its line and what to write instead. A word of two parts may stand on two
/// lines: what begins a line of a comment is no word.
fn found(text: &str) -> Vec<(usize, String, &'static str)> {
    let is_part = |one: char| one.is_alphanumeric() || one == '_';
    let mut words = Vec::new();
    for (at, line) in text.lines().enumerate() {
        // A full stop between two words separates them, as another word would.
        for piece in line.split(|one: char| !is_part(one) && one != '.') {
            let parts = piece.split_inclusive('.').filter(|one| !one.is_empty());
            words.extend(parts.map(|one| (at + 1, one)));
        }
    }
    let mut all = Vec::new();
    for at in 0..words.len() {
        for (parts, instead) in WORDS {
            let here = words[at..].iter().take(parts.len());
            let last = parts.len() - 1;
            let is_it = here.clone().count() == parts.len()
                && here.zip(*parts).enumerate().all(|(place, ((_, word), part))| {
                    let word = if place == last { word.trim_end_matches('.') } else { word };
                    word.eq_ignore_ascii_case(part)
                });
            if is_it {
                all.push((words[at].0, parts.join(" "), *instead));
            }
        }
    }
    all
}

/// The words that have two rows in the tables of the glossary.
fn twice(glossary: &str) -> Vec<String> {
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (at, line) in glossary.lines().enumerate() {
        let Some(cell) = line.strip_prefix("| ").and_then(|line| line.split(" |").next()) else {
            continue;
        };
        for word in cell.split("**").skip(1).step_by(2) {
            if let Some(first) = rows.insert(word, at + 1) {
                wrong.push(format!(
                    "{GLOSSARY}:{}: `{word}` has a row already, in line {first}: a word has one meaning, or one row that \
                     says what it means where",
                    at + 1
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_repository_is_plain() {
        check().unwrap();
    }

    #[test]
    fn words_are_found_in_any_case_and_over_two_lines() {
        let of = |text: &str| {
            found(text).into_iter().map(|(line, word, _)| (line, word)).collect::<Vec<_>>()
        };
        let one = |line, word: &str| vec![(line, word.to_owned())];
        assert_eq!(of("// It waits.\n// Nobody reads it.\n"), one(2, "nobody"));
        assert_eq!(of("/// for so\n/// many of them"), one(1, "so many"));
        assert_eq!(of("The caller is told."), one(1, "is told"));
        // Parts of names, and words that only stand beside each other.
        assert_eq!(of("fn nobody_reads() {} // renewed, soft"), []);
        assert_eq!(of("It does so. Many do."), []);
    }

    #[test]
    fn a_word_has_one_row() {
        let one = "| **bus** | A. |\n| **ring**, **file** | B **bus**. |\n";
        assert_eq!(twice(one), [""; 0]);
        let wrong = twice(&format!("{one}\n| **file** | C. |\n"));
        assert!(
            wrong.len() == 1 && wrong[0].contains(":4: `file` has a row already, in line 2"),
            "{wrong:?}"
        );
    }
}
