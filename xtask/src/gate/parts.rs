//! The parts of the gate: what each runs, which files are its own, and how often it runs if these have not changed.

use super::choice::Extent;
use crate::command::Failure;
use crate::{crash, directions, fuzz, mutants};

pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) own: Own,
    pub(super) when: When,
    /// The commands, without `cargo`.
    pub(super) commands: fn(Extent, u32) -> Vec<String>,
}

/// The part's own files. What it uses of other crates is not its own: nearly every commit touches the library, and then
/// every part would always run.
pub(super) enum Own {
    /// It runs in every commit, or in none.
    Nothing,
    /// Files and folders (`…/`), from the root of the repository.
    Paths(&'static [&'static str]),
    /// The files with mutants of this kind.
    Mutants(&'static str),
    /// The files of the library and the proactor that may contain `unsafe`.
    Unsafe,
}

impl Own {
    pub(super) fn paths(&self) -> Result<Vec<String>, Failure> {
        match self {
            Self::Nothing => Ok(Vec::new()),
            Self::Paths(paths) => Ok(paths.iter().map(|path| (*path).to_owned()).collect()),
            Self::Mutants(kind) => mutants::files_of(kind),
            Self::Unsafe => Ok(directions::unsafe_files()),
        }
    }
}

/// When a part runs whose own files have not changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// In `times` of `of` commits, chosen by the tree.
    Sometimes {
        times: u32,
        of: u32,
    },
    /// Only with `--long`.
    Long,
}

/// In one of `of` commits.
const fn one_of(of: u32) -> When {
    When::Sometimes { times: 1, of }
}

/// Two of the kinds of mutants, which stand in a row.
const TWO_KINDS: When = When::Sometimes { times: 2, of: 8 };

/// Cheap ones and those that have found most come first. The place of a part decides with the tree whether it runs, so
/// parts that run equally often take turns.
pub(super) const PARTS: &[Part] = &[
    Part {
        name: "packages",
        own: Own::Nothing,
        when: When::Always,
        // `cargo test` has built most of the program with this profile.
        commands: |_, _| one("xtask packages --check --profile dev"),
    },
    Part {
        name: "counts",
        own: Own::Nothing,
        when: When::Always,
        commands: |_, _| one("xtask counts"),
    },
    Part {
        name: "C and C++",
        own: Own::Nothing,
        when: When::Always,
        commands: |_, _| one("xtask bindings c"),
    },
    Part {
        name: "crash",
        own: Own::Paths(&[
            "crates/toroni/src/bus/publish/",
            "crates/toroni/src/hook/",
            "crates/toroni/src/notify/",
            "crates/toroni/src/ring/",
            "crates/toroni/src/shm/",
            "tests/system/tests/crash/",
        ]),
        when: When::Always,
        commands: |extent, tree| match extent {
            Extent::Whole => one("xtask crash"),
            _ => vec![format!("xtask crash --third {}", tree % crash::THIRDS)],
        },
    },
    Part {
        name: "soak",
        own: Own::Paths(&["tests/system/src/soak/", "tests/system/src/bin/worker/soak/"]),
        when: When::Always,
        commands: |extent, tree| {
            turns(extent, tree, ["xtask soak", "xtask soak --exclusive"], |command| {
                format!("{command} --disturbances 150 --seed {tree}")
            })
        },
    },
    Part {
        name: "simulate",
        own: Own::Paths(&[
            "tests/fuzz-harness/src/operations/",
            "tests/oracle/",
            "crates/toroni-proto/tests/simulator/",
        ]),
        when: When::Always,
        commands: |extent, tree| {
            turns(
                extent,
                tree,
                ["xtask simulate --runs 1500", "xtask simulate --net --runs 400"],
                |command| format!("{command} --seed {tree}"),
            )
        },
    },
    Part {
        name: "loom",
        own: Own::Paths(&[
            "crates/toroni/src/ring/",
            "crates/toroni/src/notify/",
            "crates/toroni/src/shm/",
            "crates/toroni/src/sync/",
            "crates/toroni/src/topic/table.rs",
            "crates/toroni-proactor/src/shards/",
        ]),
        when: one_of(2),
        commands: |_, _| one("xtask loom"),
    },
    Part {
        name: "mutants: library",
        own: Own::Mutants("library"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind library"),
    },
    Part {
        name: "mutants: models",
        own: Own::Mutants("models"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind models"),
    },
    Part {
        name: "mutants: oracle",
        own: Own::Mutants("oracle"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind oracle"),
    },
    Part {
        name: "mutants: proactor",
        own: Own::Mutants("proactor"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind proactor"),
    },
    Part {
        name: "mutants: proactor-models",
        own: Own::Mutants("proactor-models"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind proactor-models"),
    },
    Part {
        name: "mutants: protocol",
        own: Own::Mutants("protocol"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind protocol"),
    },
    Part {
        name: "mutants: nodes",
        own: Own::Mutants("nodes"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind nodes"),
    },
    Part {
        name: "mutants: sequencer",
        own: Own::Mutants("sequencer"),
        when: TWO_KINDS,
        commands: |_, _| one("xtask mutants --kind sequencer"),
    },
    Part {
        name: "sanitize",
        own: Own::Unsafe,
        when: one_of(3),
        commands: |_, _| one("xtask sanitize --if-possible"),
    },
    Part {
        name: "C and C++: memory",
        own: Own::Paths(&["bindings/c/", "bindings/c-net/", "bindings/cpp/"]),
        when: one_of(3),
        commands: |_, _| one("xtask bindings c-memory"),
    },
    Part {
        name: "Python",
        own: Own::Paths(&["bindings/python/"]),
        when: one_of(3),
        commands: |_, _| one("xtask bindings python"),
    },
    Part {
        name: "each language with each",
        own: Own::Paths(&["bindings/"]),
        when: one_of(3),
        commands: |_, _| one("xtask bindings each"),
    },
    Part {
        name: "engines",
        own: Own::Paths(&["crates/toroni-proactor/"]),
        when: one_of(3),
        // The engines that `cargo test` leaves out. With `--workspace`, nothing is compiled again.
        commands: |_, _| {
            let tests =
                "test --locked --workspace --no-fail-fast --test conformance --test clients";
            vec![
                "build --locked --workspace --examples".to_owned(),
                format!("{tests} -- --ignored"),
            ]
        },
    },
    Part {
        name: "fuzz",
        own: Own::Paths(&[
            "tests/fuzz/",
            "tests/fuzz-harness/",
            "crates/toroni/src/topic/",
            "crates/toroni-recording/src/",
            "crates/toroni-net/src/node/config/",
            "crates/toroni-net/src/node/state.rs",
            "crates/toroni-proto/src/bounded/",
            "crates/toroni-sequencer/src/log/",
            "crates/toroni-proto/src/wire/",
        ]),
        when: one_of(3),
        commands: |extent, tree| {
            let targets = if extent == Extent::Whole { Vec::new() } else { fuzz::some(tree / 3) };
            vec![
                format!("xtask fuzz --rounds 1 --seed {tree} {}", targets.join(" "))
                    .trim_end()
                    .to_owned(),
            ]
        },
    },
    Part {
        name: "bridge",
        own: Own::Paths(&["bridges/"]),
        when: one_of(4),
        commands: |_, _| one("xtask bridge"),
    },
    Part { name: "busy", own: Own::Nothing, when: When::Long, commands: |_, _| one("xtask busy") },
];

fn one(command: &str) -> Vec<String> {
    vec![command.to_owned()]
}

/// Both commands, or the one whose turn it is.
fn turns(
    extent: Extent,
    tree: u32,
    commands: [&str; 2],
    finish: impl Fn(&str) -> String,
) -> Vec<String> {
    let turn = usize::from(tree % 2 == 1);
    let chosen = if extent == Extent::Whole { &commands[..] } else { &commands[turn..=turn] };
    chosen.iter().map(|command| finish(command)).collect()
}
