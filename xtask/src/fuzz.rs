//! `cargo xtask fuzz`: runs the fuzz entries of `tests/fuzz-harness/` under libFuzzer, with a stable compiler.
//!
//! `cargo fuzz` needs a nightly compiler. This task does not: the pass that counts edges is part of LLVM, and the
//! runtime of the address sanitizer comes with rustup's toolchains. If that runtime is missing, as in Debian's
//! toolchain, the task says so and runs without it.
//!
//! An input that fails is written to `tests/fuzz/regressions/<target>/`, and a test repeats it from then on.
//! What was learned stays in `target/fuzz/corpus`. `--minimise` copies the smallest part of it that reaches as much
//! into `tests/fuzz/corpus`, which is committed.
//!
//! With `--seed`, a run starts from what is committed alone, and keeps nothing, so that it tries the same inputs each time.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::command::{Failure, Steps, at_a_time, run as run_command, run_into};
use crate::metadata::root;

#[derive(Args)]
pub(crate) struct Options {
    /// Which targets [default: all]
    targets: Vec<String>,
    /// How many minutes in total; each target gets the same share
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// How many rounds, instead of minutes. In a round, each target gets a fixed number of inputs, which take some 10 s
    #[arg(long, value_name = "N", conflicts_with = "minutes", requires = "seed")]
    rounds: Option<u64>,
    /// The seed of the random numbers; what earlier runs have learned is left aside
    #[arg(long, value_name = "S", conflicts_with = "minimise")]
    seed: Option<u32>,
    /// Run without the address sanitizer: twice as fast, but a wrong access that does not crash goes unnoticed
    #[arg(long)]
    no_asan: bool,
    /// Afterwards, replace tests/fuzz/corpus by the fewest inputs that reach everything that was learned
    #[arg(long)]
    minimise: bool,
    /// Only repeat one input, or all inputs of a directory; needs one TARGET
    #[arg(long, value_name = "PATH", conflicts_with_all = ["minutes", "minimise"])]
    repeat: Option<PathBuf>,
}

struct Target {
    name: &'static str,
    /// The longest input that still makes sense, in bytes.
    longest: u32,
    /// Inputs that it tries in some 10 s on one idle core, under the address sanitizer.
    round: u64,
}

const TARGETS: &[Target] = &[
    Target { name: "topics", longest: 600, round: 60_000 },
    Target { name: "command_line", longest: 600, round: 4000 },
    Target { name: "recordings", longest: 8192, round: 30_000 },
    Target { name: "hostile", longest: 160, round: 600 },
    Target { name: "patterns", longest: 560, round: 22_000 },
    Target { name: "retained", longest: 200, round: 2500 },
    Target { name: "operations", longest: 480, round: 650 },
    Target { name: "deaths", longest: 480, round: 350 },
    Target { name: "bridge", longest: 480, round: 16_000 },
    Target { name: "datagrams", longest: 600, round: 500_000 },
    Target { name: "streams", longest: 480, round: 1300 },
    Target { name: "frames", longest: 800, round: 160_000 },
    Target { name: "connections", longest: 480, round: 120 },
    Target { name: "batches", longest: 600, round: 800_000 },
    Target { name: "node_file", longest: 1200, round: 20_000 },
    Target { name: "requests", longest: 600, round: 800_000 },
    Target { name: "journal", longest: 2200, round: 45_000 },
    Target { name: "member_log", longest: 300, round: 2900 },
];

/// Targets that need the program, or the library with its crash points. A feature of the same name adds it.
const WITH_FEATURE: [&str; 3] = ["command_line", "deaths", "recordings"];

/// An input that takes longer counts as a hang. Most take some milliseconds.
const TIMEOUT_SECONDS: u32 = 60;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(unknown) =
        options.targets.iter().find(|name| TARGETS.iter().all(|target| target.name != **name))
    {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(Failure(format!("there is no fuzz target `{unknown}`; choose from {names:?}")));
    }
    let wanted: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| {
            options.targets.is_empty() || options.targets.iter().any(|name| name == target.name)
        })
        .collect();
    let workspace = Workspace::new()?;
    let sanitizer = !options.no_asan && has_sanitizer_runtime(&workspace);
    build(&workspace, &wanted, sanitizer)?;
    if let Some(path) = &options.repeat {
        let [target] = wanted[..] else {
            return Err(Failure("--repeat needs one TARGET".to_owned()));
        };
        return run_command(workspace.fuzzer(target, sanitizer).arg(path));
    }
    let mut steps = Steps::default();
    let share = at_a_time(wanted.len()) as f64 / wanted.len() as f64;
    let length = |target: &Target| match options.rounds {
        Some(rounds) => format!("-runs={}", rounds.saturating_mul(target.round)),
        None => {
            let seconds = (options.minutes * 60.0 * share).max(1.0);
            format!("-max_total_time={seconds:.0}")
        }
    };
    steps.side_by_side(
        &wanted,
        |target| format!("fuzz {}", target.name),
        |target| fuzz(&workspace, target, sanitizer, &length(target), options.seed),
    );
    if options.minimise {
        for target in wanted {
            steps.step(&format!("minimise {}", target.name), || {
                minimise(&workspace, target, sanitizer)
            });
        }
    }
    steps.finish()
}

/// The workspace of the fuzz targets.
struct Workspace {
    folder: PathBuf,
    /// Holds what is built, and what was learned.
    target: PathBuf,
    host: String,
}

impl Workspace {
    fn new() -> Result<Self, Failure> {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root().join("target"), PathBuf::from)
            .join("fuzz");
        let version = output(Command::new(rustc()).arg("-vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.ok_or_else(|| Failure("rustc -vV names no host".to_owned()))?.to_owned();
        Ok(Self { folder: root().join("tests/fuzz"), target, host })
    }

    fn program(&self, target: &Target, sanitizer: bool) -> PathBuf {
        self.build_folder(sanitizer).join(&self.host).join("release").join(target.name)
    }

    /// One folder with the sanitizer and one without, so that neither build replaces the other.
    fn build_folder(&self, sanitizer: bool) -> PathBuf {
        self.target.join(if sanitizer { "asan" } else { "plain" })
    }

    /// What this run and earlier ones have learned.
    fn learned(&self, target: &Target) -> PathBuf {
        self.target.join("corpus").join(target.name)
    }

    /// The committed part of what was learned.
    fn corpus(&self, target: &Target) -> PathBuf {
        self.folder.join("corpus").join(target.name)
    }

    fn regressions(&self, target: &Target) -> PathBuf {
        self.folder.join("regressions").join(target.name)
    }

    fn fuzzer(&self, target: &Target, sanitizer: bool) -> Command {
        let mut command = Command::new(self.program(target, sanitizer));
        command
            // A participant that dies in a test frees nothing: that is no leak of the library.
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0")
            .arg(format!("-max_len={}", target.longest))
            .arg(format!("-timeout={TIMEOUT_SECONDS}"))
            // Short inputs make short lists, which show little: do not begin with all of them.
            .args(["-len_control=0", "-detect_leaks=0", "-print_final_stats=1"]);
        command
    }
}

fn fuzz(
    workspace: &Workspace,
    target: &Target,
    sanitizer: bool,
    length: &str,
    seed: Option<u32>,
) -> Result<String, Failure> {
    let folders =
        [workspace.learned(target), workspace.corpus(target), workspace.regressions(target)];
    for folder in &folders {
        make(folder)?;
    }
    let mut command = workspace.fuzzer(target, sanitizer);
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(workspace.regressions(target).join(""));
    let words = workspace.folder.join("dictionaries").join(target.name);
    if words.exists() {
        command.arg(format!("-dict={}", words.display()));
    }
    command.args([length]).arg(prefix);
    match seed {
        // The order of files in a folder differs from clone to clone.
        Some(seed) => {
            let mut inputs = inputs_in(&folders[1])?;
            inputs.extend(inputs_in(&folders[2])?);
            // What the program compares contains addresses, which differ from run to run.
            command.args([format!("-seed={}", seed.max(1)), "-use_cmp=0".to_owned()]);
            let list = workspace.target.join(format!("{}.inputs", target.name));
            fs::write(&list, inputs.join(","))
                .map_err(|error| Failure(format!("cannot write {}: {error}", list.display())))?;
            if !inputs.is_empty() {
                command.arg(format!("-seed_inputs=@{}", list.display()));
            }
        }
        None => drop(command.args(&folders)),
    }
    let log = workspace.target.join(format!("{}.log", target.name));
    run_into(&log, &mut command).map_err(|failure| {
        Failure(format!(
            "{failure}: the input is in {}; `cargo test -p toroni-fuzz-harness` repeats it from now on",
            workspace.regressions(target).display()
        ))
    })?;
    Ok(length.to_owned())
}

/// Returns the names of about a third of the targets. Three consecutive numbers name all.
pub(crate) fn some(number: u32) -> Vec<&'static str> {
    (0_u32..)
        .zip(TARGETS)
        .filter(|(at, _)| number.wrapping_add(*at).is_multiple_of(3))
        .map(|(_, target)| target.name)
        .collect()
}

/// The files of a folder, in the order of their names.
fn inputs_in(folder: &Path) -> Result<Vec<String>, Failure> {
    let cannot = |error| Failure(format!("cannot list {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        files.push(entry.map_err(cannot)?.path().display().to_string());
    }
    files.sort();
    Ok(files)
}

/// Uses libFuzzer's merge, which takes from the second and later folders few inputs that together reach every edge.
/// It ignores how often an edge is passed: that would add hundreds of inputs.
fn minimise(workspace: &Workspace, target: &Target, sanitizer: bool) -> Result<String, Failure> {
    let (corpus, learned) = (workspace.corpus(target), workspace.learned(target));
    let fresh = workspace.target.join("minimised").join(target.name);
    let _ = fs::remove_dir_all(&fresh);
    make(&fresh)?;
    let mut command = workspace.fuzzer(target, sanitizer);
    run_command(
        command.args(["-set_cover_merge=1", "-use_counters=0"]).args([&fresh, &corpus, &learned]),
    )?;
    let failed = |error| Failure(format!("cannot replace {}: {error}", corpus.display()));
    fs::remove_dir_all(&corpus).map_err(failed)?;
    make(&corpus)?;
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(&fresh).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        bytes += fs::copy(entry.path(), corpus.join(entry.file_name())).map_err(failed)?;
        files += 1;
    }
    Ok(format!("{files} inputs, {bytes} bytes"))
}

fn build(workspace: &Workspace, targets: &[&Target], sanitizer: bool) -> Result<(), Failure> {
    let mut flags = vec![
        "--cfg=fuzzing",
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
    ];
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Not locked: the workspace's lock file may be older than a dependency of ours, and that must not stop a run.
    command.current_dir(&workspace.folder).args(["build", "--release", "--target"]);
    command.arg(&workspace.host).arg("--target-dir").arg(workspace.build_folder(sanitizer));
    if sanitizer {
        flags.push("-Zsanitizer=address");
        // Allows the one unstable flag.
        command.env("RUSTC_BOOTSTRAP", "1");
    } else {
        println!("running without the address sanitizer");
    }
    command.env("RUSTFLAGS", flags.join(" "));
    let (special, plain): (Vec<&Target>, Vec<&Target>) =
        targets.iter().partition(|target| WITH_FEATURE.contains(&target.name));
    for target in special {
        // Nothing besides: with other features of a crate, everything above it is compiled again.
        let selection = ["--no-default-features", "--features", target.name, "--bin", target.name];
        run_command(same(&command).args(selection))?;
    }
    for target in &plain {
        command.args(["--bin", target.name]);
    }
    if plain.is_empty() { Ok(()) } else { run_command(&mut command) }
}

/// Copies a command.
fn same(command: &Command) -> Command {
    let mut other = Command::new(command.get_program());
    other.args(command.get_args());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        other.current_dir(folder);
    }
    other
}

/// Whether the toolchain has the runtime of the address sanitizer. rustup's have it, Debian's does not.
fn has_sanitizer_runtime(workspace: &Workspace) -> bool {
    let Ok(sysroot) = output(Command::new(rustc()).args(["--print", "sysroot"])) else {
        return false;
    };
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(&workspace.host).join("lib");
    fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with("_rt.asan.a"))
        })
    })
}

fn rustc() -> OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

fn output(command: &mut Command) -> Result<String, Failure> {
    let output =
        command.output().map_err(|error| Failure(format!("cannot start {command:?}: {error}")))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)
        .map_err(|error| Failure(format!("cannot make {}: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn three_numbers_in_a_row_name_every_target() {
        let mut named = BTreeSet::new();
        for number in 7..10 {
            let some = some(number);
            assert!((5..=6).contains(&some.len()), "{some:?}");
            named.extend(some);
        }
        assert_eq!(named.len(), TARGETS.len());
    }
}
