//! Checks that the evidence which `docs/reliability.md` and `docs/security.md` name exists.
//!
//! A promise that refers to a test which was renamed or removed misleads the reader. In the tables of those documents
//! the last column names the evidence: each piece in backticks is a command of this program, a path in the repository,
//! or a function.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::command::Failure;
use crate::{directions, metadata};

const DOCUMENTS: &[&str] = &["docs/reliability.md", "docs/security.md"];

/// Folders that are searched for functions.
const SOURCES: &[&str] = &["crates", "tests", "bench"];

pub(crate) fn check() -> Result<String, Failure> {
    let root = metadata::root();
    let functions = functions(root)?;
    let mut pieces = 0;
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = metadata::text(Path::new(document))?;
        for (line, piece) in evidence(&text) {
            pieces += 1;
            if !exists(piece, root, &functions) {
                missing.push(format!("{document}:{line}: there is no `{piece}`"));
            }
        }
    }
    if missing.is_empty() {
        return Ok(format!("{pieces} tests, files and commands"));
    }
    Err(Failure(missing.join("\n")))
}

fn exists(piece: &str, root: &Path, functions: &BTreeSet<String>) -> bool {
    if let Some(task) = piece.strip_prefix("cargo xtask ") {
        let name = task.split(' ').next().unwrap_or_default();
        let files = [format!("xtask/src/{name}.rs"), format!("xtask/src/{name}/mod.rs")];
        return files.iter().any(|file| root.join(file).exists());
    }
    if piece.contains('/') {
        return root.join(piece).exists();
    }
    functions.contains(piece)
}

/// The pieces in backticks in the last columns of tables, each with its line number. Skips the heads of tables, which
/// are the row of dashes and the row above it.
fn evidence(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &&str| line.starts_with("|-") || line.starts_with("| -");
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !line.starts_with('|') || is_rule(line) || lines.get(index + 1).is_some_and(is_rule) {
            continue;
        }
        let last = line.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        found.extend(last.split('`').skip(1).step_by(2).map(|piece| (index + 1, piece)));
    }
    found
}

/// The names after `fn`. The documents name the file of a test that a macro makes.
fn functions(root: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for folder in SOURCES.iter().map(|folder| root.join(folder)).filter(|folder| folder.exists()) {
        for file in directions::rust_files(&folder)? {
            let text = fs::read_to_string(&file)
                .map_err(|error| Failure(format!("cannot read {}: {error}", file.display())))?;
            names.extend(text.split("fn ").skip(1).map(identifier));
        }
    }
    Ok(names)
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_documents_name_exists() {
        check().unwrap();
    }

    #[test]
    fn the_last_column_is_evidence() {
        let text = "| promise | shown by |\n|---|---|\n| a `b` | `c_d`, `e/f.rs` |\n\n`no table`\n";
        assert_eq!(evidence(text), [(3, "c_d"), (3, "e/f.rs")]);
    }

    #[test]
    fn what_is_not_there_is_missed() {
        let root = metadata::root();
        let functions = functions(root).unwrap();
        assert!(!exists("crates/toroni/tests/a_file_that_nobody_wrote.rs", root, &functions));
        assert!(!exists("a_test_that_nobody_wrote", root, &functions));
        assert!(!exists("cargo xtask perpetuum", root, &functions));
        assert!(exists("losses_are_reported_exactly", root, &functions));
        assert!(exists("cargo xtask crash", root, &functions));
        assert!(exists("crates/toroni/tests/user_code.rs", root, &functions));
    }
}
