//! `cargo xtask fuzz`: the trials of `tests/fuzz-harness/` under libFuzzer, with the compiler at hand.
//!
//! What `cargo fuzz` asks of a nightly compiler, a stable one has too: the pass that counts edges is one
//! of LLVM's, and the address sanitizer's runtime comes with rustup's toolchains. Where that runtime is
//! missing, as in Debian's, it goes without, and says so.
//!
//! An input that fails is written to `tests/fuzz/regressions/<target>/`, where a test repeats it from then on.
//! What was learned stays in `target/fuzz/corpus`; `--minimise` takes the part of it that says all into
//! `tests/fuzz/corpus`, which is committed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::command::{Failure, Steps, run as run_command};
use crate::metadata::root;

#[derive(Args)]
pub(crate) struct Options {
    /// Only these [default: all]
    targets: Vec<String>,
    /// For so many minutes in all, the same for each target
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Without the address sanitizer: twice as fast, and blind to wrong accesses that do not crash
    #[arg(long)]
    no_asan: bool,
    /// Then take the smallest part of what was learned that reaches all of it into tests/fuzz/corpus
    #[arg(long)]
    minimise: bool,
    /// Repeat one input, or all of a directory, and do nothing else; needs one TARGET
    #[arg(long, value_name = "PATH", conflicts_with_all = ["minutes", "minimise"])]
    repeat: Option<PathBuf>,
}

/// A fuzz target: its name, and the longest input that still makes sense, in bytes.
struct Target {
    name: &'static str,
    longest: u32,
}

const TARGETS: &[Target] = &[
    Target { name: "topics", longest: 600 },
    Target { name: "command_line", longest: 600 },
    Target { name: "hostile", longest: 160 },
    Target { name: "patterns", longest: 560 },
    Target { name: "operations", longest: 480 },
    Target { name: "deaths", longest: 480 },
];

/// Those that want another library, with its crash points, or the program; the feature has their name.
const WITH_FEATURE: [&str; 2] = ["command_line", "deaths"];

/// A trial that takes longer hangs. Most take some milliseconds.
const PATIENCE_SECONDS: u32 = 60;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(unknown) =
        options.targets.iter().find(|name| TARGETS.iter().all(|target| target.name != **name))
    {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(Failure(format!("there is no target {unknown}: take some of {names:?}")));
    }
    let wanted: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| {
            options.targets.is_empty() || options.targets.iter().any(|name| name == target.name)
        })
        .collect();
    let place = Place::new()?;
    let sanitizer = !options.no_asan && has_sanitizer_runtime(&place);
    build(&place, &wanted, sanitizer)?;
    if let Some(path) = &options.repeat {
        let [target] = wanted[..] else {
            return Err(Failure("--repeat needs one TARGET".to_owned()));
        };
        return run_command(place.fuzzer(target, sanitizer).arg(path));
    }
    let mut steps = Steps::default();
    let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    for target in wanted {
        let seconds = (options.minutes * 60.0 / f64::from(count)).max(1.0);
        steps.step(&format!("fuzz {}", target.name), || fuzz(&place, target, sanitizer, seconds));
        if options.minimise {
            steps
                .step(&format!("minimise {}", target.name), || minimise(&place, target, sanitizer));
        }
    }
    steps.finish()
}

/// Where things are.
struct Place {
    /// The workspace of the fuzz targets.
    workspace: PathBuf,
    /// What is built, and what was learned.
    target: PathBuf,
    host: String,
}

impl Place {
    fn new() -> Result<Self, Failure> {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root().join("target"), PathBuf::from)
            .join("fuzz");
        let version = output(Command::new(rustc()).arg("-vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.ok_or_else(|| Failure("rustc -vV names no host".to_owned()))?.to_owned();
        Ok(Self { workspace: root().join("tests/fuzz"), target, host })
    }

    fn program(&self, target: &Target, sanitizer: bool) -> PathBuf {
        self.build_folder(sanitizer).join(&self.host).join("release").join(target.name)
    }

    /// Two, so that neither way builds the other's again.
    fn build_folder(&self, sanitizer: bool) -> PathBuf {
        self.target.join(if sanitizer { "asan" } else { "plain" })
    }

    /// What runs have learned, this and earlier ones.
    fn learned(&self, target: &Target) -> PathBuf {
        self.target.join("corpus").join(target.name)
    }

    /// The committed part of it.
    fn corpus(&self, target: &Target) -> PathBuf {
        self.workspace.join("corpus").join(target.name)
    }

    fn regressions(&self, target: &Target) -> PathBuf {
        self.workspace.join("regressions").join(target.name)
    }

    fn fuzzer(&self, target: &Target, sanitizer: bool) -> Command {
        let mut command = Command::new(self.program(target, sanitizer));
        command
            // Whatever a thread that died has not given back is no leak of the library.
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0")
            .arg(format!("-max_len={}", target.longest))
            .arg(format!("-timeout={PATIENCE_SECONDS}"))
            // Inputs of few bytes say nothing about lists: do not begin with all of those.
            .args(["-len_control=0", "-detect_leaks=0", "-print_final_stats=1"]);
        command
    }
}

fn fuzz(place: &Place, target: &Target, sanitizer: bool, seconds: f64) -> Result<String, Failure> {
    let folders = [place.learned(target), place.corpus(target), place.regressions(target)];
    for folder in &folders {
        make(folder)?;
    }
    let mut command = place.fuzzer(target, sanitizer);
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(place.regressions(target).join(""));
    let words = place.workspace.join("dictionaries").join(target.name);
    if words.exists() {
        command.arg(format!("-dict={}", words.display()));
    }
    command.arg(format!("-max_total_time={seconds:.0}")).arg(prefix).args(&folders);
    run_command(&mut command).map_err(|failure| {
        Failure(format!(
            "{failure}: the input is in {}, and `cargo test -p toroni-fuzz-harness` repeats it from now on",
            place.regressions(target).display()
        ))
    })?;
    Ok(format!("{seconds:.0} s"))
}

/// libFuzzer's merge takes from the second folder on few inputs that together reach every edge. How often
/// one is passed does not count: that would be hundreds more.
fn minimise(place: &Place, target: &Target, sanitizer: bool) -> Result<String, Failure> {
    let (corpus, learned) = (place.corpus(target), place.learned(target));
    let fresh = place.target.join("minimised").join(target.name);
    let _ = fs::remove_dir_all(&fresh);
    make(&fresh)?;
    let mut command = place.fuzzer(target, sanitizer);
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

fn build(place: &Place, targets: &[&Target], sanitizer: bool) -> Result<(), Failure> {
    let mut flags = vec![
        "--cfg=fuzzing",
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
    ];
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Its own lock file may lag behind a dependency of ours, which is no reason not to run.
    command.current_dir(&place.workspace).args(["build", "--release", "--target"]);
    command.arg(&place.host).arg("--target-dir").arg(place.build_folder(sanitizer));
    if sanitizer {
        flags.push("-Zsanitizer=address");
        // The flag is the only unstable thing about it.
        command.env("RUSTC_BOOTSTRAP", "1");
    } else {
        println!("without the address sanitizer");
    }
    command.env("RUSTFLAGS", flags.join(" "));
    let (special, plain): (Vec<&Target>, Vec<&Target>) =
        targets.iter().partition(|target| WITH_FEATURE.contains(&target.name));
    for target in special {
        run_command(same(&command).args(["--bin", target.name, "--features", target.name]))?;
    }
    for target in &plain {
        command.args(["--bin", target.name]);
    }
    if plain.is_empty() { Ok(()) } else { run_command(&mut command) }
}

/// A command like that one.
fn same(command: &Command) -> Command {
    let mut other = Command::new(command.get_program());
    other.args(command.get_args());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        other.current_dir(folder);
    }
    other
}

/// rustup's toolchains have the runtime, Debian's does not.
fn has_sanitizer_runtime(place: &Place) -> bool {
    let Ok(sysroot) = output(Command::new(rustc()).args(["--print", "sysroot"])) else {
        return false;
    };
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(&place.host).join("lib");
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
