//! The choice of parts, on repositories that each test makes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::choice::{Choice, Extent, choose};
use super::history::{self, History};
use super::parts::{Own, PARTS, Part, When};
use crate::metadata;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// When the first commit of a made repository was committed.
const BEGIN: u64 = 1_800_000_000;

/// A repository that is removed at the end.
struct Repository(PathBuf);

impl Repository {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("toroni-gate-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).unwrap();
        let repository = Self(folder);
        repository.git(0, &["init", "--quiet", "--initial-branch=main"]);
        repository
    }

    fn git(&self, hours: u64, arguments: &[&str]) -> String {
        let date = format!("{} +0000", BEGIN + hours * HOUR);
        let output = Command::new("git")
            .arg("-C")
            .arg(&self.0)
            .args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                "-c",
                "commit.gpgSign=false",
            ])
            .args(arguments)
            .env_remove("GIT_DIR")
            .env_remove("GIT_INDEX_FILE")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_COMMITTER_DATE", &date)
            // The author's date is of no account: it stays when a commit is moved.
            .env("GIT_AUTHOR_DATE", format!("{BEGIN} +0000"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Commits a change of this file.
    fn commit(&self, hours: u64, path: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, format!("{before}{hours}\n")).unwrap();
        self.git(hours, &["add", "--all"]);
        self.git(hours, &["commit", "--quiet", "-m", "a change"]);
    }

    /// Chooses for a part that owns `bridges/`, once in four trees, at this tree.
    fn choose(&self, tree: u32) -> Choice {
        let history = History::read(&self.0).unwrap();
        let own = ["bridges/".to_owned()];
        let history = history.as_ref().map_err(|why| *why);
        choose(&PART, 0, &own, history, tree, |_| true, false).unwrap()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PART: Part = Part {
    name: "bridge",
    own: Own::Nothing,
    when: When::Sometimes { times: 1, of: 4 },
    commands: |_, _| Vec::new(),
};

#[test]
fn own_files_that_changed_within_a_day_run_the_part() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(20, "crates/toroni/src/lib.rs");
    let choice = repository.choose(1);
    assert_eq!(choice.extent, Extent::Whole, "{}", choice.reason);
    assert_eq!(choice.reason, "bridges/a.rs has changed within a day");
}

#[test]
fn a_file_that_is_removed_or_renamed_has_changed() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(0, "bridges/b.rs");
    repository.git(48, &["mv", "bridges/a.rs", "elsewhere.rs"]);
    repository.git(48, &["commit", "--quiet", "-m", "a move"]);
    assert_eq!(repository.choose(1).extent, Extent::Whole);
}

#[test]
fn if_only_a_dependency_has_changed_the_tree_decides() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(72, "crates/toroni/src/lib.rs");
    let extents = [0, 1, 2, 3, 4, u32::MAX].map(|tree| repository.choose(tree).extent);
    use Extent::{Nothing, Sample};
    assert_eq!(extents, [Sample, Nothing, Nothing, Nothing, Sample, Nothing]);
    let reason = repository.choose(1).reason;
    assert_eq!(reason, "own files last changed 3 days ago; the choice is 1 of 4");
    assert_eq!(repository.choose(4).reason, "chosen by the tree: 1 of 4");
}

#[test]
fn a_folder_of_a_similar_name_is_not_the_part() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(72, "bridges-of-others/a.rs");
    assert_eq!(repository.choose(1).extent, Extent::Nothing);
}

/// The commits of an old branch keep their dates, so only the merge shows that they are new here.
#[test]
fn a_merge_counts_for_what_it_brings_and_for_nothing_else() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.git(0, &["checkout", "--quiet", "-b", "old"]);
    repository.commit(1, "bridges/b.rs");
    repository.git(1, &["checkout", "--quiet", "main"]);
    repository.commit(100, "crates/toroni/src/lib.rs");
    assert_eq!(repository.choose(1).extent, Extent::Nothing);
    repository.git(101, &["merge", "--quiet", "--no-ff", "-m", "a merge", "old"]);
    assert_eq!(repository.choose(1).extent, Extent::Whole);
    assert_eq!(repository.choose(1).reason, "bridges/b.rs has changed within a day");

    // What the main line had before is not new to it.
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.git(0, &["checkout", "--quiet", "-b", "old"]);
    repository.commit(1, "crates/toroni/src/lib.rs");
    repository.git(1, &["checkout", "--quiet", "main"]);
    repository.commit(2, "bridges/c.rs");
    repository.git(101, &["merge", "--quiet", "--no-ff", "-m", "a merge", "old"]);
    assert_eq!(repository.choose(1).extent, Extent::Nothing);
}

#[test]
fn a_shallow_clone_runs_everything() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(100, "crates/toroni/src/lib.rs");
    assert_eq!(repository.choose(1).extent, Extent::Nothing);
    let clone = Repository::new();
    let from = format!("file://{}", repository.0.display());
    clone.git(0, &["fetch", "--quiet", "--depth=1", &from, "main"]);
    clone.git(0, &["reset", "--quiet", "--hard", "FETCH_HEAD"]);
    let choice = clone.choose(1);
    assert_eq!((choice.extent, &*choice.reason), (Extent::Whole, "the clone is shallow"));
}

#[test]
fn a_folder_without_a_commit_runs_everything() {
    let repository = Repository::new();
    assert_eq!(
        History::read(&repository.0).unwrap().unwrap_err(),
        "there is no repository with a commit"
    );
    assert_eq!(history::tree(&repository.0), 0);
}

#[test]
fn long_runs_everything_and_is_the_only_one_to_run_some() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(100, "crates/toroni/src/lib.rs");
    let history = History::read(&repository.0).unwrap().unwrap();
    let extent = |part: &Part, own: &[String], long| {
        choose(part, 0, own, Ok(&history), 1, |_| true, long).unwrap().extent
    };
    assert_eq!(extent(&PART, &["bridges/".to_owned()], true), Extent::Whole);
    let busy = Part { when: When::Long, ..PART };
    assert_eq!(extent(&busy, &[], true), Extent::Whole);
    assert_eq!(extent(&busy, &[], false), Extent::Nothing);
    let always = Part { when: When::Always, ..PART };
    assert_eq!(extent(&always, &[], false), Extent::Sample);
}

#[test]
fn own_files_that_do_not_exist_are_an_error() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    let history = History::read(&repository.0).unwrap().unwrap();
    let own = ["bridges/".to_owned(), "gone/".to_owned()];
    let exists = |path: &str| repository.0.join(path).exists();
    let failure = choose(&PART, 0, &own, Ok(&history), 0, exists, false).err().unwrap();
    assert!(failure.0.contains("`bridge` names `gone/`"), "{failure}");
}

#[test]
fn the_number_is_that_of_the_tree_and_not_of_the_commit() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    let number = history::tree(&repository.0);
    let tree = repository.git(0, &["rev-parse", "HEAD^{tree}"]);
    assert_eq!(format!("{number:08x}"), tree[..8]);
    repository.git(50, &["commit", "--quiet", "--amend", "-m", "other words"]);
    assert_eq!(history::tree(&repository.0), number);
}

#[test]
fn changes_that_are_not_committed_are_noticed() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    assert!(!history::has_changes(&repository.0).unwrap());
    fs::write(repository.0.join("bridges/a.rs"), "other").unwrap();
    assert!(history::has_changes(&repository.0).unwrap());
}

/// Every tree must give every chosen part something to do, with options that exist.
#[test]
fn each_part_has_commands_that_exist() {
    for part in PARTS {
        for extent in [Extent::Whole, Extent::Sample] {
            for tree in [0, 1, 2, 3, 4, 5, u32::MAX] {
                let commands = (part.commands)(extent, tree);
                assert!(!commands.is_empty(), "{}", part.name);
                for command in commands {
                    let Some(words) = command.strip_prefix("xtask ") else {
                        let of_cargo =
                            ["build --locked --workspace ", "test --locked --workspace "];
                        assert!(of_cargo.iter().any(|it| command.starts_with(it)), "{command}");
                        continue;
                    };
                    let words = std::iter::once("xtask").chain(words.split_whitespace());
                    let parsed = <crate::Arguments as clap::Parser>::try_parse_from(words);
                    assert!(parsed.is_ok(), "{command}: {}", parsed.err().unwrap());
                }
            }
        }
    }
}

#[test]
fn each_part_owns_files_that_exist_and_runs_before_long() {
    let exists = |path: &String| metadata::root().join(path).exists();
    let mut names = BTreeSet::new();
    for part in PARTS {
        assert!(names.insert(part.name), "{} stands twice", part.name);
        let own = part.own.paths().unwrap();
        let missing: Vec<&String> = own.iter().filter(|path| !exists(path)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", part.name);
        if let When::Sometimes { times, of } = part.when {
            assert!(0 < times && times < of && of <= 8, "{}", part.name);
            assert!(!own.is_empty(), "{} would only run by chance", part.name);
        }
    }
}

/// CONTRIBUTING.md has a table of the parts, which this test prints if it differs.
#[test]
fn contributing_has_the_parts() {
    let mut table =
        "| part | its own files | if they have not changed |\n|---|---|---|\n".to_owned();
    for part in PARTS {
        let own = match part.own {
            Own::Nothing => String::new(),
            Own::Paths(paths) => format!("`{}`", paths.join("`, `")),
            Own::Mutants(_) => "those with its mutants".to_owned(),
            Own::Unsafe => "those of the library and the proactor with `unsafe`".to_owned(),
        };
        let when = match part.when {
            When::Always
                if (part.commands)(Extent::Whole, 0) == (part.commands)(Extent::Sample, 0) =>
            {
                "always".to_owned()
            }
            When::Always => "always, a part of it".to_owned(),
            When::Sometimes { times, of } => format!("{times} of {of}"),
            When::Long => "only with `--long`".to_owned(),
        };
        table += &format!("| {} | {own} | {when} |\n", part.name);
    }
    let text = fs::read_to_string(metadata::root().join("CONTRIBUTING.md")).unwrap();
    assert!(text.contains(&table), "CONTRIBUTING.md, The gate, lacks this table:\n\n{table}");
}

/// The kinds of mutants take turns: two of them in every commit.
#[test]
fn two_kinds_of_mutants_run_with_every_tree() {
    for tree in [0, 1, 6, 7, 12_345] {
        let chosen = sampled(tree).filter(|part| part.name.starts_with("mutants"));
        assert_eq!(chosen.count(), 2, "{tree}");
    }
}

/// The parts that this tree chooses if no own files have changed.
fn sampled(tree: u32) -> impl Iterator<Item = &'static Part> {
    let history = History { head: 10 * DAY, changed: BTreeMap::new() };
    PARTS.iter().enumerate().filter_map(move |(place, part)| {
        let choice = choose(part, place, &[], Ok(&history), tree, |_| true, false).unwrap();
        (choice.extent == Extent::Sample).then_some(part)
    })
}

/// What a part chooses within itself must not depend on what has chosen the part.
#[test]
fn each_fuzz_target_and_each_third_of_the_crashes_runs_with_some_tree() {
    let (mut targets, mut crashes) = (BTreeSet::new(), BTreeSet::new());
    for tree in 0..36 {
        for part in sampled(tree) {
            for command in (part.commands)(Extent::Sample, tree) {
                match part.name {
                    "fuzz" => {
                        let (_, named) = command.split_once("--seed").unwrap();
                        targets.extend(named.split_whitespace().skip(1).map(str::to_owned));
                    }
                    "crash" => drop(crashes.insert(command)),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(targets.len(), (0..3).flat_map(crate::fuzz::some).count());
    assert_eq!(crashes.len(), 3);
}

#[test]
fn a_day_is_counted_from_head() {
    let repository = Repository::new();
    repository.commit(0, "bridges/a.rs");
    repository.commit(24, "other.rs");
    assert_eq!(repository.choose(1).extent, Extent::Whole);
    repository.commit(25, "other.rs");
    assert_eq!(repository.choose(1).extent, Extent::Nothing);
    assert!(repository.choose(1).reason.contains("1 day ago"));
    // A clock that was wrong does not hide a change.
    repository.commit(1000, "bridges/a.rs");
    repository.commit(30, "other.rs");
    assert_eq!(repository.choose(1).extent, Extent::Whole);
}

#[test]
fn this_repository_can_be_read() {
    let root: &Path = metadata::root();
    // A package of the sources has no repository.
    if root.join(".git").exists() {
        let history = History::read(root).unwrap();
        assert!(history.is_err() || history.is_ok_and(|history| !history.changed.is_empty()));
    }
}
