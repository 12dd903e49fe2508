//! `cargo xtask man`: writes the manual pages, which the programs generate from the definitions of their commands.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{Failure, answers, of_workspace, run as run_command};
use crate::metadata;
use crate::package::PROGRAMS;

#[derive(Args)]
pub(crate) struct Options {
    /// Where to write them [default: target/man]
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory;
    run_command(&mut of_workspace("build", &["--bin", "toroni", "--bin", "toroni-node"]))?;
    let folder = options.to.clone().unwrap_or_else(|| target.join("man"));
    let mut count = 0;
    for name in PROGRAMS {
        count = write(&target.join("debug").join(name), &folder)?;
    }
    println!("{}: {count} pages, {}", folder.display(), check(&folder)?);
    Ok(())
}

/// Lets a program write its pages to a folder, and returns how many pages are there.
pub(crate) fn write(program: &Path, folder: &Path) -> Result<usize, Failure> {
    // `toroni` also has the program toroni-node of PATH write its pages, which may be installed on this machine.
    run_command(Command::new(program).arg("man").arg("--to").arg(folder).env("PATH", ""))?;
    Ok(pages(folder)?.len())
}

/// Checks that man shows each page without a warning. Returns what was done.
pub(crate) fn check(folder: &Path) -> Result<&'static str, Failure> {
    if !answers(Command::new("man").arg("--version")) {
        return Ok("not shown: man is not installed");
    }
    for page in pages(folder)? {
        // Wide lines, so that long words of the examples do not count.
        let output = Command::new("man")
            .args(["--warnings", "--encoding=UTF-8", "--local-file"])
            .arg(&page)
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "120")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure(format!("cannot start man: {error}")))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !said.trim().is_empty() || output.stdout.is_empty() {
            return Err(Failure(format!(
                "man about {}: {}\n{said}",
                page.display(),
                output.status
            )));
        }
    }
    Ok("which man shows without a warning")
}

fn pages(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |error| Failure(format!("cannot read {}: {error}", folder.display()));
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        pages.push(entry.map_err(cannot)?.path());
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check can fail.
    #[test]
    fn a_page_with_a_mistake_is_found() {
        if !answers(Command::new("man").arg("--version")) {
            return;
        }
        let folder = std::env::temp_dir().join(format!("toroni-xtask-man-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let verdict = |text: &str| {
            std::fs::write(folder.join("a.1"), text).unwrap();
            check(&folder)
        };
        let good = verdict(".TH a 1\n.SH NAME\na \\- b\n");
        let bad = verdict(".TH a 1\n.SH NAME\n.nosuchrequest\na \\- b\n");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(good.is_ok(), "{good:?}");
        assert!(bad.is_err(), "{bad:?}");
    }
}
