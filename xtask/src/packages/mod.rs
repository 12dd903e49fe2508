//! `cargo xtask packages`: Debian's packages of the programs, `toroni` and `toroni-node`, and of their symbols.
//!
//! The files come from the programs themselves (manual pages, completions) and from the folder `packaging`. `dpkg-deb` packs
//! them; `docs/decisions.md` says why.

mod deb;
mod tree;
mod trial;

use clap::Args;
use std::path::{Path, PathBuf};

use crate::command::Failure;
use crate::{metadata, package};
use deb::Control;
use tree::Content;

#[derive(Args)]
pub(crate) struct Options {
    /// Install the packages into a fresh root, run the programs, remove them, and check that nothing is left
    #[arg(long)]
    check: bool,
    /// The profile of cargo to build the program with
    #[arg(long, default_value = "symbols")]
    profile: String,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let members = metadata::members()?;
    let programs = package::programs(&options.profile)?;
    let folder = members.target_directory.join("package/deb");
    if folder.exists() {
        let cannot = |error| Failure(format!("cannot empty {}: {error}", folder.display()));
        std::fs::remove_dir_all(&folder).map_err(cannot)?;
    }
    let mut files = Vec::new();
    for content in [tree::TORONI, tree::NODE] {
        files.extend(build(&content, &programs, &folder)?);
    }
    if options.check {
        println!("{}", trial::check(&files, &folder.join("root"))?);
    }
    for file in &files {
        println!("{}", file.display());
    }
    Ok(())
}

/// Builds the package of a program and that of its symbols.
fn build(content: &Content, programs: &Path, folder: &Path) -> Result<[PathBuf; 2], Failure> {
    let package = content.package;
    let symbols_package = format!("{package}-dbgsym");
    let [root, symbols] = [folder.join(package), folder.join(&symbols_package)];
    content.lay_out(programs, &root)?;
    content.lay_out_symbols(programs, &symbols)?;
    // All crates have the version of the workspace.
    let version = env!("CARGO_PKG_VERSION");
    let libraries = deb::needed_libraries(&root.join(content.program()), folder)?;
    // The programs refuse one another in different versions.
    let needed = content.needs.map(|needed| format!("{needed} (= {version})"));
    let control = Control {
        package,
        version,
        depends: needed.into_iter().chain([libraries]).collect::<Vec<_>>().join(", "),
        section: "utils",
        priority: "optional",
        description: content.description,
    };
    let description = format!("debug symbols for {package}");
    let of_symbols = Control {
        package: &symbols_package,
        depends: format!("{package} (= {version})"),
        section: "debug",
        description: &description,
        ..control.clone()
    };
    Ok([control.build(&root, folder)?, of_symbols.build(&symbols, folder)?])
}
