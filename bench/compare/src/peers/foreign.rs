//! Programs of foreign peers. Each is the package `toroni-peer-NAME` of the workspace bench/peers, and is built when it is
//! needed. A peer that cannot be built is reported as missing.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;
use toroni_bench_harness::process_group::Program;

/// The reason why a peer is missing; a sentence or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing(pub(crate) String);

/// Where the packages of the foreign peers are.
#[derive(Args)]
pub(crate) struct Packages {
    /// Directory of the packages of the foreign peers
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../peers"))]
    pub(crate) peers_directory: PathBuf,
}

/// Builds the program of `peer` in release mode, and says so.
pub(crate) fn build(workspace: &Path, peer: &str) -> Result<Program, Missing> {
    eprintln!("building {peer}, which may take minutes the first time");
    // Separate from the target folder of the caller: the two workspaces would build the same crates repeatedly, with
    // different features.
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map(|folder| PathBuf::from(folder).join("peers"));
    let folder = folder.unwrap_or_else(|| workspace.join("target"));
    let path = build_into(&folder, workspace, peer).map_err(|Missing(reason)| {
        Missing(format!("{reason}: bench/install-peers installs what the peers need"))
    })?;
    Ok(Program { path, arguments: Vec::new() })
}

fn build_into(folder: &Path, workspace: &Path, peer: &str) -> Result<PathBuf, Missing> {
    let manifest = workspace.join("Cargo.toml");
    if !manifest.exists() {
        return Err(Missing(format!("there is no {}", manifest.display())));
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release", "--locked", "--message-format", "json"])
        .args(["--package", &format!("toroni-peer-{peer}")])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(folder)
        .current_dir(workspace);
    // Debian's CMake may be too old for Aeron; then install-peers has installed one here.
    let cmake = workspace.join("target/tools/bin/cmake");
    if std::env::var_os("CMAKE").is_none() && cmake.exists() {
        command.env("CMAKE", cmake);
    }
    let cannot = |error: std::io::Error| Missing(format!("cannot run cargo: {error}"));
    let mut cargo = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (output, errors) = (cargo.stdout.take(), cargo.stderr.take());
    // Both pipes are read at the same time: one may be full while this process waits for the other.
    let errors = std::thread::spawn(move || lines(errors));
    let mut executable = None;
    let mut compiler = Vec::new();
    for line in lines(output) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(path) = message["executable"].as_str() {
            executable = Some(PathBuf::from(path));
        }
        if message["message"]["level"] == "error"
            && let Some(text) = message["message"]["message"].as_str()
        {
            compiler.push(text.to_owned());
        }
    }
    let errors = errors.join().unwrap_or_default();
    let status = cargo.wait().map_err(cannot)?;
    match executable {
        Some(path) if status.success() => Ok(path),
        _ => Err(Missing(format!("it cannot be built: {}", reason(&compiler, &errors)))),
    }
}

fn lines(pipe: Option<impl std::io::Read>) -> Vec<String> {
    pipe.map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok).collect())
        .unwrap_or_default()
}

/// Picks the most useful lines from the output of a compiler, or of a build script and its tools.
fn reason(compiler: &[String], errors: &[String]) -> String {
    if let Some(first) = compiler.first() {
        return first.clone();
    }
    let wanted = |line: &&String| {
        let line = line.to_lowercase();
        ["error", "panicked", "required", "not found", "unable", "no such"]
            .iter()
            .any(|word| line.contains(word))
            && !line.contains("run with `rust_backtrace")
    };
    let mut telling: Vec<&str> = errors.iter().filter(wanted).map(|line| line.trim()).collect();
    if telling.is_empty() {
        telling = errors.iter().rev().take(2).rev().map(|line| line.trim()).collect();
    }
    telling.truncate(4);
    telling.join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use toroni_testkit::Directory;

    /// A workspace with two peers: one whose build script fails, and one whose program does.
    struct Broken(Directory);

    impl Broken {
        fn new() -> Broken {
            let root = Directory::new();
            let package = |name: &str, build: &str, main: &str| {
                let folder = root.join(name);
                fs::create_dir_all(folder.join("src")).unwrap();
                fs::write(
                    folder.join("Cargo.toml"),
                    format!(
                        "[package]\nname = \"toroni-peer-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n"
                    ),
                )
                .unwrap();
                fs::write(folder.join("build.rs"), build).unwrap();
                fs::write(folder.join("src/main.rs"), main).unwrap();
            };
            package("aeron", "fn main() { panic!(\"libwish is required\") }", "fn main() {}");
            package("nng", "fn main() {}", "fn main() { let x: u8 = \"no number\"; }");
            fs::write(
                root.join("Cargo.toml"),
                "[workspace]\nresolver = \"3\"\nmembers = [\"aeron\", \"nng\"]\n",
            )
            .unwrap();
            fs::write(
                root.join("Cargo.lock"),
                "version = 4\n\n[[package]]\nname = \"toroni-peer-aeron\"\nversion = \"0.0.0\"\n\n\
                 [[package]]\nname = \"toroni-peer-nng\"\nversion = \"0.0.0\"\n",
            )
            .unwrap();
            Broken(root)
        }
    }

    #[test]
    fn a_peer_that_cannot_be_built_is_missing_with_the_reason() {
        let broken = Broken::new();
        let Missing(reason) =
            build_into(&broken.0.join("target"), broken.0.path(), "aeron").unwrap_err();
        assert!(reason.contains("libwish is required"), "{reason}");
        let Missing(reason) =
            build_into(&broken.0.join("target"), broken.0.path(), "nng").unwrap_err();
        assert!(reason.contains("mismatched types"), "{reason}");
        let Missing(reason) =
            build_into(&broken.0.join("target"), broken.0.path(), "zeromq").unwrap_err();
        assert!(reason.contains("toroni-peer-zeromq"), "{reason}");
        let Missing(reason) = build(&broken.0.join("nowhere"), "nng").unwrap_err();
        assert!(reason.contains("there is no"), "{reason}");
    }
}
