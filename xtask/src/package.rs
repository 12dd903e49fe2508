//! `cargo xtask package`: packages what is released. These are the crates, for a registry, and the programs without their
//! symbols, which are in files beside them.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, cargo, of_workspace, run as run_command};
use crate::metadata::{self, Package};

#[derive(Args)]
pub(crate) struct Options {
    /// Also build each crate from its package
    #[arg(long)]
    verify: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    pack(options.verify)?;
    programs("symbols").map(drop)
}

/// Packages each crate that may be published, and checks that its manifest has what a registry shows.
pub(crate) fn crates() -> Result<String, Failure> {
    pack(false)
}

fn pack(verify: bool) -> Result<String, Failure> {
    let packages = metadata::members()?.packages;
    let published: Vec<&Package> = packages.iter().filter(|one| is_published(one)).collect();
    let lacking: Vec<String> = published.iter().flat_map(|one| lacks(one)).collect();
    if !lacking.is_empty() {
        return Err(Failure(lacking.join("; ")));
    }
    // The crates depend on one another, and the registry may not have these versions. If cargo packages them together,
    // it takes each from what it has just packaged. An older cargo cannot do that.
    if cargo_version().is_some_and(|version| version < FIRST_CARGO) {
        return Ok(format!("left out: needs cargo {}.{}", FIRST_CARGO.0, FIRST_CARGO.1));
    }
    let mut command = cargo(["package", "--locked", "--allow-dirty", "--quiet"]);
    if !verify {
        command.arg("--no-verify");
    }
    for package in &published {
        command.args(["-p", &package.name]);
    }
    run_command(&mut command)?;
    let names: Vec<&str> = published.iter().map(|one| one.name.as_str()).collect();
    Ok(names.join(", "))
}

/// The first cargo that packs crates together.
const FIRST_CARGO: (u32, u32) = (1, 90);

fn cargo_version() -> Option<(u32, u32)> {
    let output = cargo(["--version"]).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

/// As in `cargo 1.95.0 (f2d3ce0bd 2026-03-21)`.
fn version_in(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(' ').nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(crate) fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

/// What the manifest or the folder of a crate lacks.
fn lacks(package: &Package) -> Vec<String> {
    let folder = package.manifest_path.parent().unwrap_or(Path::new("."));
    let file = |name: &Path| std::fs::read(folder.join(name)).is_ok_and(|text| !text.is_empty());
    let documentation = package.metadata.pointer("/docs/rs/all-features");
    [
        ("a description", package.description.is_some()),
        ("a licence", package.license.is_some()),
        ("a repository", package.repository.is_some()),
        ("keywords", !package.keywords.is_empty()),
        ("categories", !package.categories.is_empty()),
        ("a readme of its own", package.readme.as_deref() == Some(Path::new("README.md"))),
        ("README.md", file(Path::new("README.md"))),
        ("LICENSE-APACHE", file(Path::new("LICENSE-APACHE"))),
        ("LICENSE-MIT", file(Path::new("LICENSE-MIT"))),
        ("all-features for docs.rs", documentation.is_some_and(|all| all == true)),
    ]
    .into_iter()
    .filter(|(_, is_there)| !is_there)
    .map(|(what, _)| format!("{} lacks {what}", package.name))
    .collect()
}

/// The programs that users install.
pub(crate) const PROGRAMS: [&str; 2] = ["toroni", "toroni-node"];

/// Builds the programs with a profile of cargo that has line tables. Makes the stripped programs, each with a file of its
/// symbols beside it, such as `toroni.debug`, and returns their folder. gdb and perf find that file beside the program and
/// below /usr/lib/debug.
pub(crate) fn programs(profile: &str) -> Result<PathBuf, Failure> {
    let target = metadata::members()?.target_directory;
    run_command(&mut match profile {
        "dev" => of_workspace("build", &["--bin", "toroni", "--bin", "toroni-node"]),
        _ => {
            let mut build = cargo(["build", "--locked", "--profile", profile]);
            build.args(["-p", "toroni-cli", "-p", "toroni-node"]);
            build
        }
    })?;
    // cargo's own name for its profile `dev`.
    let built = target.join(if profile == "dev" { "debug" } else { profile });
    let folder = target.join("package/program");
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure(format!("cannot make {}: {error}", folder.display())))?;
    for name in PROGRAMS {
        strip(&built.join(name), name, &folder)?;
    }
    println!("{}: {}, with their symbols", folder.display(), PROGRAMS.join(" and "));
    Ok(folder)
}

/// Divides a program into the stripped one and its symbols.
fn strip(built: &Path, name: &str, folder: &Path) -> Result<(), Failure> {
    let objcopy = |arguments: &[&str], from: &Path, to: &str| {
        let mut command = Command::new("objcopy");
        // objcopy stores the name of the file with the symbols, and looks for it in the current folder.
        run_command(command.current_dir(folder).args(arguments).arg(from).arg(to))
    };
    let symbols = format!("{name}.debug");
    objcopy(&["--only-keep-debug"], built, &symbols)?;
    objcopy(&["--strip-all", &format!("--add-gnu-debuglink={symbols}")], built, name)?;
    let sections = |name: &str| {
        let output = Command::new("readelf").arg("-SW").arg(folder.join(name)).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    };
    let (program, of_symbols) = (sections(name), sections(&symbols));
    if program.contains(".symtab") || !program.contains(".gnu_debuglink") {
        return Err(Failure(format!("{name} still has symbols, or no link to them")));
    }
    if !of_symbols.contains(".symtab") || !of_symbols.contains(".debug_line") {
        return Err(Failure(format!("{symbols} has no symbols, or no line tables")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let newest = version_in("cargo 1.100.0 (f2d3ce0bd 2026-03-21)\n").unwrap();
        assert!(newest > FIRST_CARGO && version_in("cargo 1.89.0").unwrap() < FIRST_CARGO);
        assert_eq!(version_in("what?"), None);
        assert!(cargo_version().is_some());
    }

    #[test]
    fn what_a_crate_lacks_is_found() {
        let mut packages = metadata::members().unwrap().packages;
        packages.retain(is_published);
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        let names: Vec<&str> = packages.iter().map(|one| one.name.as_str()).collect();
        let wanted = [
            "toroni",
            "toroni-chart",
            "toroni-cli",
            "toroni-http",
            "toroni-net",
            "toroni-node",
            "toroni-proactor",
            "toroni-process",
            "toroni-proto",
            "toroni-recording",
            "toroni-sequencer",
            "toroni-shell",
        ];
        assert_eq!(names, wanted);
        let lacking: Vec<String> = packages.iter().flat_map(lacks).collect();
        assert_eq!(lacking, Vec::<String>::new());
        let Some(mut package) = packages.pop() else { return };
        package.repository = None;
        package.keywords.clear();
        package.manifest_path = "/nowhere/Cargo.toml".into();
        let wanted = ["a repository", "keywords", "README.md", "LICENSE-APACHE", "LICENSE-MIT"];
        assert_eq!(lacks(&package), wanted.map(|what| format!("{} lacks {what}", package.name)));
    }
}
