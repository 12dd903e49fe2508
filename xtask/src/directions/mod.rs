//! `cargo xtask directions`: checks which crates and modules use which others. `rules.rs` states what is allowed.

mod members;
mod rules;
mod source;
mod unused;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use self::rules::{Checked, Layer, TREES, Tree};
use self::source::{DENIES_OVERFLOW, Named, Source};
use crate::command::Failure;
use crate::metadata;

/// One line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    file: PathBuf,
    line: usize,
    rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file.display(), self.line, self.rule)
    }
}

struct File {
    /// From `src`.
    path: PathBuf,
    module: Vec<String>,
    source: Source,
    /// Whether the whole file is a test.
    is_test: bool,
}

/// The files and folders of the library and of the proactor that may contain `unsafe`, from the root of the repository.
pub(crate) fn unsafe_files() -> Vec<String> {
    TREES
        .iter()
        .filter(|tree| ["crates/toroni/src", "crates/toroni-proactor/src"].contains(&tree.folder))
        .flat_map(|tree| tree.unsafe_in.iter().map(|file| format!("{}/{file}", tree.folder)))
        .collect()
}

/// Checks the crates and modules of this workspace, and that something uses each permission.
pub(crate) fn run() -> Result<(), Failure> {
    let packages = metadata::members()?.packages;
    let mut violations = Vec::new();
    let mut unused = Vec::new();
    for tree in TREES {
        let files = read_files(&texts(&metadata::root().join(tree.folder))?)?;
        let mut found = check_files(&files, tree);
        found.extend(without_denial(&files, tree.checked));
        found.iter_mut().for_each(|violation| {
            violation.file = Path::new(tree.folder).join(&violation.file);
        });
        violations.extend(found);
        unused.extend(unused::in_tree(&files, tree));
    }
    violations.extend(members::check(&packages));
    violations.extend(beside_their_folders(&metadata::files(&["*.rs"])?));
    unused.extend(members::unused(&packages));
    let mut lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    lines.extend(
        unused
            .iter()
            .map(|what| format!("nothing uses the permission {what}: remove it from the table")),
    );
    if lines.is_empty() {
        println!("all directions hold");
        return Ok(());
    }
    Err(Failure(format!(
        "the rules in xtask/src/directions/rules.rs are broken:\n{}",
        lines.join("\n")
    )))
}

/// The modules in a file beside the folder of their submodules. They belong into the folder, as `mod.rs`.
fn beside_their_folders(files: &[PathBuf]) -> Vec<Violation> {
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    let is_beside = |file: &&PathBuf| folders.contains(file.with_extension("").as_path());
    let rule =
        |file: &PathBuf| format!("move it to {}", file.with_extension("").join("mod.rs").display());
    let found = files.iter().filter(is_beside);
    found.map(|file| Violation { file: file.clone(), line: 1, rule: rule(file) }).collect()
}

/// All `.rs` files below a folder, in order.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |error| Failure(format!("cannot list {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The paths, from the folder, and the texts of all `.rs` files below a folder.
fn texts(folder: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut texts = Vec::new();
    for file in rust_files(folder)? {
        let text = fs::read_to_string(&file)
            .map_err(|error| Failure(format!("cannot read {}: {error}", file.display())))?;
        texts.push((file.strip_prefix(folder).unwrap_or(&file).to_path_buf(), text));
    }
    Ok(texts)
}

/// Parses files that are given by their path from `src` and their text.
fn read_files(texts: &[(PathBuf, String)]) -> Result<Vec<File>, Failure> {
    let mut files = Vec::new();
    for (path, text) in texts {
        let module = module_of(path);
        let source = Source::read(text, &module)
            .map_err(|error| Failure(format!("cannot parse {}: {error}", path.display())))?;
        files.push(File { path: path.clone(), module, source, is_test: false });
    }
    let test_modules: Vec<Vec<String>> =
        files.iter().flat_map(|file| file.source.test_modules.clone()).collect();
    for file in &mut files {
        file.is_test = test_modules.iter().any(|test| file.module.starts_with(test));
    }
    Ok(files)
}

fn check_files(files: &[File], tree: &Tree) -> Vec<Violation> {
    let denying: Vec<&[String]> = files
        .iter()
        .filter(|file| file.source.denies_overflow)
        .map(|file| &file.module[..])
        .collect();
    let check = |file| check_file(file, tree, &denying);
    files.iter().flat_map(check).collect()
}

/// `ring/mod.rs` and `ring.rs` are `["ring"]`, `lib.rs` is `[]`.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> = file
        .with_extension("")
        .components()
        .map(|component| component.as_os_str().to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

/// Checks one file. `denying` are the modules that deny overflow.
fn check_file(file: &File, tree: &Tree, denying: &[&[String]]) -> Vec<Violation> {
    let File { path, module, source, is_test } = file;
    let mut violations = Vec::new();
    let mut add = |line, rule| violations.push(Violation { file: path.clone(), line, rule });
    if !module.is_empty() && !tree.layers.is_empty() && !has_rules(module, tree) {
        let own = module.join("::");
        add(1, format!("the module `{own}` has no rules: add it to the table of layers"));
    }
    for named in &source.paths {
        let in_test = *is_test || named.in_test;
        let broken = broken_by(named, path, module, in_test, tree);
        broken.into_iter().for_each(|rule| add(named.line, rule));
    }
    misplaced_unsafe(file, tree.unsafe_in).into_iter().for_each(|(line, rule)| add(line, rule));
    unchecked_arithmetic(file, tree.checked, denying)
        .into_iter()
        .for_each(|(line, rule)| add(line, rule));
    violations
}

/// The rule that a file breaks if it reads numbers of others, or says that it does.
fn unchecked_arithmetic(
    file: &File,
    checked: Checked,
    denying: &[&[String]],
) -> Option<(usize, String)> {
    let File { path, module, source, is_test } = file;
    if source.denies_overflow && !listed(path, checked.files) {
        let rule = "denies overflow: add it to the files whose arithmetic is checked";
        return Some((1, rule.to_owned()));
    }
    let is_below = denying.iter().any(|denies| module.starts_with(denies));
    let is_excepted = checked.except.iter().any(|(name, _)| listed(path, &[name]));
    if *is_test || is_below || is_excepted {
        return None;
    }
    let reads = |named: &&Named| !named.in_test && names_any(&named.segments, checked.readers);
    let named = source.paths.iter().find(reads)?;
    let name = named.segments.join("::");
    let rule = format!("`{name}` reads numbers of others: begin the file with `{DENIES_OVERFLOW}`");
    Some((named.line, rule))
}

/// The files in the list of those that deny overflow that do not.
fn without_denial(files: &[File], checked: Checked) -> Vec<Violation> {
    let without = files
        .iter()
        .filter(|file| listed(&file.path, checked.files) && !file.source.denies_overflow);
    let rule = format!("calculates with numbers of others: begin it with `{DENIES_OVERFLOW}`");
    without.map(|file| Violation { file: file.path.clone(), line: 1, rule: rule.clone() }).collect()
}

/// The lines with `unsafe` of a file that may have none, and the rule that each breaks.
fn misplaced_unsafe(file: &File, permitted: &[&str]) -> Vec<(usize, String)> {
    if file.is_test || listed(&file.path, permitted) {
        return Vec::new();
    }
    let outside = file.source.unsafe_lines.iter().filter(|(_, in_test)| !in_test);
    let rule = match permitted {
        [] => "`unsafe` is not allowed in this crate".to_owned(),
        _ => format!("`unsafe` is allowed only in {}", permitted.join(", ")),
    };
    outside.map(|(line, _)| (*line, rule.clone())).collect()
}

/// Whether a module has rules. Those of a layer are not enough for a module below it if others below it have their own.
fn has_rules(module: &[String], tree: &Tree) -> bool {
    let Some(layer) = layer_of(module, tree) else { return false };
    let depth = layer.module.split("::").count();
    let is_divided = tree.layers.iter().any(|other| {
        other.module.strip_prefix(layer.module).is_some_and(|rest| rest.starts_with("::"))
    });
    !is_divided || module.len() == depth
}

/// The layer that a module belongs to: the one with the longest name of those that contain it.
fn layer_of<'a>(module: &[String], tree: &'a Tree) -> Option<&'a Layer> {
    let contain = tree.layers.iter().filter(|layer| names_any(module, &[layer.module]));
    contain.max_by_key(|layer| layer.module.len())
}

/// The rules that one path breaks.
fn broken_by(
    named: &Named,
    file: &Path,
    module: &[String],
    in_test: bool,
    tree: &Tree,
) -> Vec<String> {
    let mut broken = Vec::new();
    let path = named.segments.join("::");
    if !in_test {
        for reserved in tree.reserved {
            if names_any(&named.segments, reserved.paths) && !listed(file, reserved.only) {
                broken.push(format!("`{path}` is allowed only in {}", reserved.only.join(", ")));
            }
        }
    }
    let Some(layer) = layer_of(module, tree) else { return broken };
    let own = layer.module;
    if !in_test && names_any(&named.segments, layer.ignorant_of) {
        broken.push(format!("`{own}` must not know `{path}`"));
    }
    let target = match named.segments.as_slice() {
        [root, target, ..] if root == "crate" && !named.is_macro => target,
        _ => return broken,
    };
    let below = named.segments.get(1..).unwrap_or_default();
    let allowed = names_any(below, &[own])
        || tree.bottom.contains(&target.as_str())
        || names_any(below, layer.uses)
        || (in_test && names_any(below, tree.in_tests));
    if !allowed {
        broken.push(format!("`{own}` must not use `{path}`"));
    }
    broken
}

fn names_any(segments: &[String], prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        let mut given = segments.iter();
        prefix.split("::").all(|wanted| given.next().is_some_and(|segment| segment == wanted))
    })
}

fn listed(file: &Path, names: &[&str]) -> bool {
    let file = file.to_string_lossy();
    names.iter().any(|name| *name == file || (name.ends_with('/') && file.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::rules::LIBRARY;
    use super::*;

    #[test]
    fn this_workspace_keeps_the_directions() {
        if let Err(failure) = run() {
            panic!("{failure}");
        }
    }

    /// The rules of the library that these files break, as `file:line: rule`.
    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        broken_in("crates/toroni/src", files)
    }

    fn broken_in(folder: &str, files: &[(&str, &str)]) -> Vec<String> {
        let tree = TREES.iter().find(|tree| tree.folder == folder).expect("a tree with rules");
        let files: Vec<(PathBuf, String)> =
            files.iter().map(|(file, text)| (PathBuf::from(file), (*text).to_owned())).collect();
        check_files(&read_files(&files).unwrap(), tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_layer_that_looks_up_is_found_with_its_line() {
        assert_eq!(
            broken(&[("ring/writer.rs", "//! Text.\n\nuse crate::shm::Lock;\n")]),
            ["ring/writer.rs:3: `ring` must not use `crate::shm::Lock`"]
        );
        assert_eq!(
            broken(&[("topic/name.rs", "fn f() { super::super::ring::x() }")]),
            ["topic/name.rs:1: `topic` must not use `crate::ring::x`"]
        );
        assert_eq!(
            broken(&[("notify/mod.rs", "use crate::{sync::fence, bus::Bus};")]),
            ["notify/mod.rs:1: `notify` must not use `crate::bus::Bus`"]
        );
    }

    #[test]
    fn a_module_below_another_has_rules_of_its_own() {
        let broken = |file: &str, text: &str| broken_in("crates/toroni-cli/src", &[(file, text)]);
        assert!(
            broken("commands/mod.rs", "use super::commands::hz; use crate::cli::Cli;").is_empty()
        );
        assert!(
            broken("commands/hz/mod.rs", "use super::hz::options::Hz; use crate::opening;")
                .is_empty()
        );
        assert_eq!(
            broken("commands/hz/options.rs", "use super::super::publish::options::Publish;"),
            ["commands/hz/options.rs:1: `commands::hz` must not use \
                 `crate::commands::publish::options::Publish`"]
        );
        assert_eq!(broken("commands/hz/mod.rs", "use crate::cli::Cli;").len(), 1);
        assert_eq!(
            broken("commands/new.rs", "fn f() {}"),
            [
                "commands/new.rs:1: the module `commands::new` has no rules: add it to the table of layers"
            ]
        );
    }

    #[test]
    fn a_part_of_a_layer_can_be_allowed_by_itself() {
        assert!(broken(&[("shm/segment.rs", "use crate::ring::layout::Header;")]).is_empty());
        assert_eq!(broken(&[("shm/segment.rs", "use crate::ring::reader::Reader;")]).len(), 1);
        assert_eq!(broken(&[("shm/segment.rs", "use crate::ring;")]).len(), 1);
    }

    #[test]
    fn tests_keep_the_directions_too_but_may_use_the_layout() {
        let test = |path| format!("#[cfg(test)] mod tests {{ use crate::{path}; }}");
        assert!(broken(&[("notify/mod.rs", &test("ring::layout::Line"))]).is_empty());
        assert_eq!(broken(&[("notify/mod.rs", "use crate::ring::layout::Line;")]).len(), 1);
        assert_eq!(broken(&[("notify/mod.rs", &test("bus::Bus"))]).len(), 1);
    }

    #[test]
    fn looking_down_is_allowed() {
        let files = [
            (
                "bus/mod.rs",
                "use crate::{topic::Topic, ring::Writer, shm::Segment, notify::Waiter};",
            ),
            ("ring/reader.rs", "use crate::sync::fence; use super::copy::copy; crate::point!(A);"),
            ("lib.rs", "pub use bus::Bus; pub use crate::topic::Topic;"),
        ];
        assert!(broken(&files).is_empty());
    }

    #[test]
    fn what_a_layer_is_ignorant_of_is_found() {
        assert_eq!(
            broken(&[("ring/slots.rs", "fn f() { let now = std::time::Instant::now(); }")]),
            ["ring/slots.rs:1: `ring` must not know `std::time::Instant::now`"]
        );
        assert!(broken(&[("ring/slots.rs", "use std::time::Duration;")]).is_empty());
        let test = "#[cfg(test)] mod tests { use std::thread; }";
        assert!(broken(&[("ring/slots.rs", test)]).is_empty());
    }

    #[test]
    fn atomics_are_chosen_in_one_file_only() {
        let text = "use core::sync::atomic::AtomicU64;";
        let found = broken(&[("shm/lock.rs", text)]);
        assert_eq!(found.len(), 1);
        let rule = "shm/lock.rs:1: `core::sync::atomic::AtomicU64` is allowed only in sync/mod.rs";
        assert!(found[0].starts_with(rule), "{found:?}");
        assert!(broken(&[("sync/mod.rs", text)]).is_empty());
        assert_eq!(broken(&[("bus/mod.rs", "use std::sync::{Arc, atomic};")]).len(), 1);
        assert_eq!(broken(&[("ring/reader.rs", "fn f() { loom::model(|| {}) }")]).len(), 1);
        assert!(
            broken(&[("ring/reader.rs", "#[cfg(all(test, loom))] use loom::model;")]).is_empty()
        );
    }

    #[test]
    fn unsafe_stands_in_few_files_and_in_tests() {
        let text = "fn f() {\n    unsafe { g() }\n}";
        assert_eq!(broken(&[("bus/mod.rs", text)]).len(), 1);
        assert!(broken(&[("bus/mod.rs", text)])[0].starts_with("bus/mod.rs:2: `unsafe`"));
        assert!(broken(&[("shm/segment.rs", text), ("ring/copy.rs", text)]).is_empty());
        let declared = ("bus/mod.rs", "#[cfg(test)]\nmod tests;");
        assert!(broken(&[declared, ("bus/tests.rs", text)]).is_empty());
        assert_eq!(broken(&[("bus/mod.rs", "mod tests;"), ("bus/tests.rs", text)]).len(), 1);
        assert!(broken(&[("bus/mod.rs", "// unsafe\nconst X: &str = \"unsafe\";")]).is_empty());
    }

    #[test]
    fn a_module_that_no_rule_names_is_found() {
        assert_eq!(
            broken(&[("util.rs", "use std::fs;\nuse std::io;")]),
            ["util.rs:1: the module `util` has no rules: add it to the table of layers"]
        );
    }

    #[test]
    fn the_protocol_knows_no_system_and_contains_no_unsafe() {
        let broken = |text: &str| broken_in("crates/toroni-proto/src", &[("id.rs", text)]);
        for path in [
            "std::net::Ipv4Addr",
            "std::time::Duration",
            "std::collections::HashMap",
            "toroni::Bus",
        ] {
            let rule = format!("id.rs:1: `id` must not know `{path}`");
            assert_eq!(broken(&format!("use {path};")), [rule]);
        }
        assert_eq!(
            broken("fn f() { unsafe { g() } }"),
            ["id.rs:1: `unsafe` is not allowed in this crate"]
        );
        assert!(broken("use core::fmt; use crate::time::Wall;").is_empty());
    }

    #[test]
    fn a_module_with_submodules_is_in_their_folder() {
        let found = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            let found = beside_their_folders(&files);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(&["src/a/mod.rs", "src/a/b.rs", "src/c.rs"]), [""; 0]);
        assert_eq!(found(&["src/a.rs", "src/a/b.rs"]), ["src/a.rs:1: move it to src/a/mod.rs"]);
    }

    #[test]
    fn arithmetic_on_numbers_of_others_is_checked() {
        let reads = "use crate::sync::{AtomicU64, Ordering};";
        let denies = format!("//! Text.\n\n{DENIES_OVERFLOW}\n\n{reads}");
        let slots = ("ring/slots.rs", &denies[..]);
        assert!(broken(&[slots, ("ring/slots/new.rs", reads)]).is_empty());
        let found = broken(&[("ring/new.rs", reads)]);
        let rule = "ring/new.rs:1: `crate::sync::Ordering` reads numbers of others";
        assert!(found.len() == 1 && found[0].starts_with(rule), "{found:?}");
        let found = broken(&[("ring/new.rs", &denies)]);
        assert!(found.len() == 1 && found[0].contains("add it to the files"), "{found:?}");
        // Excepted, or a test.
        let test = format!("#[cfg(test)] mod tests {{ {reads} }}");
        assert!(broken(&[("ring/writer.rs", reads), ("ring/new.rs", &test)]).is_empty());
        let files = |text: &str| read_files(&[("ring/slots.rs".into(), text.to_owned())]).unwrap();
        assert!(without_denial(&files(&denies), LIBRARY.checked).is_empty());
        assert_eq!(without_denial(&files("use std::fmt;"), LIBRARY.checked).len(), 1);
    }

    /// Beside another test, a test that measures fails now and then.
    #[test]
    fn each_test_that_measures_takes_a_turn() {
        let mut files = Vec::new();
        for package in metadata::members().unwrap().packages {
            let folder = package.manifest_path.with_file_name("tests").join("measured");
            if folder.exists() {
                files.extend(rust_files(&folder).unwrap());
            }
        }
        assert!(!files.is_empty());
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let without = text.split("#[test]").skip(1).find(|test| {
                let body = test.split_once("{\n").map_or("", |(_, body)| body);
                !body.trim_start().starts_with("let _turn = ")
            });
            let name = |test: &str| test.lines().nth(1).unwrap_or_default().trim().to_owned();
            assert_eq!(without.map(name), None, "{}: begins without its turn", file.display());
        }
    }

    #[test]
    fn a_crate_without_layers_is_checked_for_unsafe_only() {
        let broken = |text: &str| broken_in("bindings/c/src", &[("encoding.rs", text)]);
        assert!(broken("use std::net::UdpSocket; use crate::anything;").is_empty());
        assert_eq!(broken("fn f() { unsafe { g() } }").len(), 1);
    }
}
