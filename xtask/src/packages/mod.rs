//! `cargo xtask packages`: Debian's packages of the program, `toroni` and `toroni-dbgsym`.
//!
//! The files come from the program itself (manual pages, completions) and from the folder `packaging`. `dpkg-deb` packs
//! them; `docs/decisions.md` says why.

mod deb;
mod tree;
mod trial;

use clap::Args;
use std::path::PathBuf;

use crate::command::Failure;
use crate::{metadata, package};
use deb::Control;

#[derive(Args)]
pub(crate) struct Options {
    /// Install the package into a fresh root, run the program, remove it, and check that nothing is left
    #[arg(long)]
    check: bool,
    /// The profile of cargo to build the program with
    #[arg(long, default_value = "symbols")]
    profile: String,
}

/// What a user sees of the package.
const DESCRIPTION: &str = "message bus for the processes of one machine, without a broker
 Publishers and subscribers meet in shared memory. All subscribers see the messages in one order, and one that
 missed messages learns how many. This package has the program: it publishes, subscribes, inspects and measures
 buses from a shell, and serves their metrics to Prometheus.";

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let members = metadata::members()?;
    let program = package::program(&options.profile)?;
    let folder = members.target_directory.join("package/deb");
    if folder.exists() {
        let cannot = |error| Failure(format!("cannot empty {}: {error}", folder.display()));
        std::fs::remove_dir_all(&folder).map_err(cannot)?;
    }
    let version = members
        .packages
        .iter()
        .find(|package| package.name == "toroni-cli")
        .map(|package| package.version.clone())
        .ok_or_else(|| Failure("there is no crate toroni-cli".to_owned()))?;
    let symbols = tree::symbols(&program, &folder.join("toroni-dbgsym"))?;
    let program = tree::program(&program, &folder.join("toroni"))?;
    let control = Control {
        package: "toroni",
        version: &version,
        depends: deb::needed_libraries(&program.join("usr/bin/toroni"), &folder)?,
        section: "utils",
        priority: "optional",
        description: DESCRIPTION,
    };
    let built = control.build(&program, &folder)?;
    let control = Control {
        package: "toroni-dbgsym",
        depends: format!("toroni (= {version})"),
        section: "debug",
        priority: "optional",
        description: "debug symbols for toroni",
        ..control
    };
    let files: [PathBuf; 2] = [built, control.build(&symbols, &folder)?];
    if options.check {
        println!("{}", trial::check(&files, &folder.join("root"))?);
    }
    for file in &files {
        println!("{}", file.display());
    }
    Ok(())
}
