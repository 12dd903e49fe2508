//! Installs the packages into a fresh root, uses the programs, and removes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::said;
use crate::command::{Failure, answers, run as run_command};
use crate::man;

/// Returns what was checked.
pub(super) fn check(packages: &[PathBuf], root: &Path) -> Result<String, Failure> {
    let cannot = |error| Failure(format!("cannot make {}: {error}", root.display()));
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).map_err(cannot)?;
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "").map_err(cannot)?;
    }
    let before = entries(root)?;
    let of_same_version = format!("toroni (= {})", env!("CARGO_PKG_VERSION"));
    for (package, needed) in [(&packages[0], None), (&packages[2], Some(of_same_version.as_str()))]
    {
        let depends = said(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
        check_dependencies(&depends, needed)?;
        needs_what_is_here(&depends)?;
    }
    let (of_bus, of_node) = packages.split_at(2);
    dpkg(root, &["--install"], of_bus)?;
    says_what_is_missing(root)?;
    dpkg(root, &["--install"], of_node)?;
    // An upgrade to the same version.
    dpkg(root, &["--install"], packages)?;
    let used = use_programs(root)?;
    let names = ["toroni-node-dbgsym", "toroni-node"].map(PathBuf::from);
    dpkg(root, &["--remove"], &names)?;
    says_what_is_missing(root)?;
    dpkg(root, &["--purge"], &names)?;
    let names = ["toroni-dbgsym", "toroni"].map(PathBuf::from);
    dpkg(root, &["--remove"], &names)?;
    let after = entries(root)?;
    let left: Vec<&PathBuf> = after.difference(&before).collect();
    if !left.is_empty() {
        return Err(Failure(format!("after the removal there is still {left:?}")));
    }
    dpkg(root, &["--purge"], &names)?;
    let status = fs::read_to_string(root.join("var/lib/dpkg/status")).map_err(cannot)?;
    if status.contains("toroni") {
        return Err(Failure(format!("dpkg still knows: {status}")));
    }
    Ok(format!("installed, used ({used}), upgraded, removed: nothing is left"))
}

/// Runs dpkg on a root that has nothing but this package, so dependencies are checked elsewhere.
fn dpkg(root: &Path, action: &[&str], packages: &[PathBuf]) -> Result<(), Failure> {
    let mut command = as_root("dpkg")?;
    command.arg(format!("--root={}", root.display()));
    command.args(["--force-depends", "--force-script-chrootless", "--force-bad-path"]);
    run_command(command.args(action).args(packages))
}

/// An ordinary user becomes root of a namespace, in which the owners of files can be set.
fn as_root(program: &str) -> Result<Command, Failure> {
    if said(Command::new("id").arg("-u"))? == "0" {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", program]);
    Ok(command)
}

/// Checks what a package depends on: the C library, and exactly this of the packages of Toroni. The programs refuse one
/// another in different versions.
fn check_dependencies(depends: &str, needed: Option<&str>) -> Result<(), Failure> {
    let all: Vec<&str> = depends.split(", ").collect();
    if !all.iter().any(|one| one.split(' ').next() == Some("libc6")) {
        return Err(Failure(format!("the package does not depend on libc6: {depends}")));
    }
    let own: Vec<&str> = all.into_iter().filter(|one| one.starts_with("toroni")).collect();
    if own != Vec::from_iter(needed) {
        return Err(Failure(format!("the package depends on {own:?} and not on {needed:?}")));
    }
    Ok(())
}

/// Checks that the libraries of a package are installed on this machine, where it was built.
fn needs_what_is_here(depends: &str) -> Result<(), Failure> {
    let names = depends.split(", ").filter_map(|one| one.split(' ').next());
    for name in names.filter(|name| *name != "toroni") {
        said(Command::new("dpkg-query").args(["--show", name]))?;
    }
    Ok(())
}

/// Everything below a root except the records of dpkg.
fn entries(root: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = |error| Failure(format!("cannot read {}: {error}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.ends_with("var/lib/dpkg") {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                folders.push(path.clone());
            }
            found.insert(path);
        }
    }
    Ok(found)
}

/// Checks that a command of the package that is not installed says which one that is.
fn says_what_is_missing(root: &Path) -> Result<(), Failure> {
    let mut command = Command::new(root.join("usr/bin/toroni"));
    let output = command.args(["net", "probe"]).env("PATH", "/nowhere").output();
    let output = output.map_err(|error| Failure(format!("cannot start toroni: {error}")))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(2) || !errors.contains("install Debian's package toroni-node") {
        return Err(Failure(format!("without toroni-node, toroni net says {errors:?}")));
    }
    Ok(())
}

/// Uses what was installed. Returns what was done.
fn use_programs(root: &Path) -> Result<String, Failure> {
    let program = root.join("usr/bin/toroni");
    let mut used = vec!["programs", "demo", "net"];
    let version = said(Command::new(&program).arg("--version"))?;
    if version != format!("toroni {}", env!("CARGO_PKG_VERSION")) {
        return Err(Failure(format!("the program says {version:?}")));
    }
    let buses = root.join("buses");
    let demo = ["demo", "--publishers", "2", "--subscribers", "2", "--messages", "20000", "--dir"];
    said(Command::new(&program).args(demo).arg(&buses))?;
    said(Command::new(&program).args(["ls", "--dir"]).arg(&buses))?;
    if buses.exists() {
        fs::remove_dir(&buses).map_err(|error| {
            Failure(format!("the demo left files in {}: {error}", buses.display()))
        })?;
    }
    let groups = ["net", "address", "239.192.84.79"];
    let told = said(Command::new(&program).args(groups).env("PATH", "/nowhere"))?;
    if !told.contains("239.192.84.79") {
        return Err(Failure(format!("toroni net address says {told:?}")));
    }
    let pages = root.join("usr/share/man/man1");
    for page in
        ["toroni.1.gz", "toroni-sub.1.gz", "toroni-serve-metrics.1.gz", "toroni-net-probe.1.gz"]
    {
        if !pages.join(page).exists() {
            return Err(Failure(format!("there is no {page}")));
        }
    }
    if answers(Command::new("man").arg("--version")) {
        man::check(&pages)?;
        used.push("manual pages");
    }
    let completions = root.join("usr/share/bash-completion/completions/toroni");
    said(Command::new("bash").arg("-n").arg(completions))?;
    if answers(Command::new("systemd-analyze").arg("--version")) {
        verify_units(root)?;
        used.push("units");
    }
    if answers(Command::new("systemd-sysusers").arg("--version")) {
        let root_option = format!("--root={}", root.display());
        said(Command::new("systemd-sysusers").args([&root_option, "--dry-run", "toroni.conf"]))?;
        used.push("sysusers.d");
    }
    if answers(Command::new("systemd-tmpfiles").arg("--version")) {
        let root_option = format!("--root={}", root.display());
        said(as_root("systemd-tmpfiles")?.args([&root_option, "--create", "toroni.conf"]))?;
        let made = root.join("dev/shm/toroni");
        let mode = said(Command::new("stat").args(["--format=%a"]).arg(&made))?;
        if mode != "1777" {
            return Err(Failure(format!("{} has the mode {mode}", made.display())));
        }
        fs::remove_dir_all(root.join("dev"))
            .map_err(|error| Failure(format!("cannot remove {}: {error}", made.display())))?;
        used.push("tmpfiles.d");
    }
    Ok(used.join(", "))
}

/// Directives of systemd 254. Earlier versions pause as long before each start, and say that they ignore these.
const NEWER_DIRECTIVES: [&str; 2] = ["RestartSteps", "RestartMaxDelaySec"];

/// Returns whether systemd has an objection to a unit other than that it does not know a newer directive.
fn is_refused(succeeded: bool, errors: &str, name: &str) -> bool {
    let is_newer = |line: &&str| {
        let unknown = |key: &&str| line.contains(&format!("Unknown key '{key}'"));
        NEWER_DIRECTIVES.iter().any(unknown)
    };
    let lines = errors.lines().filter(|line| !line.is_empty());
    let (newer, objections): (Vec<&str>, Vec<&str>) = lines.partition(is_newer);
    let failed = !succeeded && (newer.is_empty() || !objections.is_empty());
    failed || objections.iter().any(|line| line.contains(name))
}

/// Checks the units with systemd, which looks for their programs below the root.
fn verify_units(root: &Path) -> Result<(), Failure> {
    // A template is verified as one of its instances.
    for (unit, name) in
        [("toroni-metrics.service", "toroni-metrics"), ("toroni-node@plant.service", "toroni-node")]
    {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", "--recursive-errors=no"]);
        let output = verify.arg(format!("--root={}", root.display())).arg(unit).output();
        let output = output.map_err(|error| Failure(format!("cannot verify the unit: {error}")))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if is_refused(output.status.success(), &errors, name) {
            return Err(Failure(format!("{unit} in {}: {errors}", root.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directives_of_a_newer_systemd_may_be_unknown() {
        let unknown =
            |key: &str| format!("x.service:20: Unknown key '{key}' in section, ignoring.\n");
        let newer = NEWER_DIRECTIVES.map(unknown).concat();
        let is_refused = |succeeded, errors: &str| is_refused(succeeded, errors, "x.service");
        assert!(!is_refused(true, "") && !is_refused(true, "other.service: fails\n"));
        assert!(!is_refused(false, &newer) && !is_refused(true, &newer));
        assert!(is_refused(false, ""), "a failure has a reason");
        for errors in [unknown("RestartStep"), "x.service: is missing\n".to_owned()] {
            assert!(is_refused(true, &errors) && is_refused(false, &(newer.clone() + &errors)));
        }
    }

    #[test]
    fn a_package_that_accepts_another_version_of_toroni_is_found() {
        let libraries = "libc6 (>= 2.34), libgcc-s1 (>= 4.2)";
        let needed = Some("toroni (= 1.2.3)");
        assert!(check_dependencies(libraries, None).is_ok());
        let depends = format!("toroni (= 1.2.3), {libraries}");
        assert!(check_dependencies(&depends, needed).is_ok());
        assert!(check_dependencies(&depends, None).is_err());
        for wrong in ["toroni, ", "toroni (>= 1.2.3), ", "toroni (= 1.2.4), ", ""] {
            let depends = format!("{wrong}{libraries}");
            assert!(check_dependencies(&depends, needed).is_err(), "{depends}");
        }
        assert!(check_dependencies("toroni (= 1.2.3)", needed).is_err(), "no libc6");
    }
}
