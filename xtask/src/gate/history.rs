//! What the gate reads from git: when each file last changed, and the tree of the commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::command::Failure;

/// The history of HEAD.
#[derive(Debug)]
pub(super) struct History {
    /// Seconds since 1970 at which HEAD was committed.
    pub(super) head: u64,
    /// For each path that a commit has touched, when it was last committed. A merge counts for what it brought.
    pub(super) changed: BTreeMap<String, u64>,
}

impl History {
    /// Reads the history, or returns why there is none from which the gate can choose.
    pub(super) fn read(root: &Path) -> Result<Result<Self, &'static str>, Failure> {
        const NONE: &str = "there is no repository with a commit";
        match git(root, &["rev-parse", "--git-dir"]) {
            Ok(_) => {}
            Err(Failure(why)) if why.contains("not a git repository") => return Ok(Err(NONE)),
            // Git is missing, or it refuses this folder.
            Err(failure) => return Err(failure),
        }
        if git(root, &["rev-parse", "--verify", "HEAD"]).is_err() {
            return Ok(Err(NONE));
        }
        if git(root, &["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
            return Ok(Err("the clone is shallow"));
        }
        let head = git(root, &["log", "-1", "--format=%ct"])?;
        let head = head.trim().parse().map_err(|_| Failure(format!("git has no date: {head}")))?;
        // Without the option, a merge shows no files at all. A rename counts for both paths.
        let log = git(
            root,
            &[
                "-c",
                "core.quotePath=false",
                "log",
                "--diff-merges=first-parent",
                "--no-renames",
                "--name-only",
                "--format=%x01%ct",
            ],
        )?;
        Ok(Ok(Self { head, changed: changes(&log) }))
    }
}

/// The newest time of each path in a log of times, each after a byte 1, and paths.
fn changes(log: &str) -> BTreeMap<String, u64> {
    let mut changed = BTreeMap::new();
    let mut time = 0;
    for line in log.lines().filter(|line| !line.is_empty()) {
        if let Some(text) = line.strip_prefix('\u{1}') {
            time = text.parse().unwrap_or(u64::MAX);
        } else {
            let newest = changed.entry(line.to_owned()).or_insert(time);
            *newest = time.max(*newest);
        }
    }
    changed
}

/// The first 32 bits of the hash of HEAD's tree: the same for every clone of the commit, and as good as random. It is 0
/// where there is no commit.
pub(super) fn tree(root: &Path) -> u32 {
    let tree = git(root, &["rev-parse", "--verify", "HEAD^{tree}"]).unwrap_or_default();
    tree.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// Whether files differ from HEAD.
pub(super) fn has_changes(root: &Path) -> Result<bool, Failure> {
    Ok(!git(root, &["status", "--porcelain", "--untracked-files=no"])?.is_empty())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let output =
        Command::new("git").arg("-C").arg(root).args(arguments).output().map_err(|error| {
            Failure(format!("cannot start git: {error}: install Debian's `git`"))
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("git {}: {}", arguments.join(" "), said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
