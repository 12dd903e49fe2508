//! The files of the packages, laid out as they are installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bindings::licences;
use crate::command::{Failure, run as run_command};
use crate::{man, metadata};

/// Files of the repository, and where they are installed.
const COPIED: &[(&str, &str)] = &[
    ("packaging/systemd/toroni-metrics.service", "usr/lib/systemd/system/toroni-metrics.service"),
    ("packaging/systemd/toroni-node@.service", "usr/lib/systemd/system/toroni-node@.service"),
    ("packaging/systemd/toroni-users.conf", "usr/lib/sysusers.d/toroni.conf"),
    ("packaging/systemd/toroni.conf", "usr/lib/tmpfiles.d/toroni.conf"),
    ("packaging/systemd/50-toroni.conf", "usr/lib/sysctl.d/50-toroni.conf"),
    ("packaging/grafana/toroni.json", "usr/share/toroni/grafana/toroni.json"),
    ("packaging/grafana/toroni-net.json", "usr/share/toroni/grafana/toroni-net.json"),
    ("packaging/grafana/toroni-sequencer.json", "usr/share/toroni/grafana/toroni-sequencer.json"),
    ("packaging/prometheus/alerts.yml", "usr/share/toroni/prometheus/alerts.yml"),
    ("packaging/prometheus/net-alerts.yml", "usr/share/toroni/prometheus/net-alerts.yml"),
    (
        "packaging/prometheus/sequencer-alerts.yml",
        "usr/share/toroni/prometheus/sequencer-alerts.yml",
    ),
    ("packaging/wireshark/toroni.lua", "usr/share/toroni/wireshark/toroni.lua"),
    ("packaging/debian/copyright", "usr/share/doc/toroni/copyright"),
    ("CHANGELOG.md", "usr/share/doc/toroni/changelog"),
];

/// The shells, and where their completions are installed.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/toroni"),
    ("zsh", "usr/share/zsh/vendor-completions/_toroni"),
    ("fish", "usr/share/fish/vendor_completions.d/toroni.fish"),
];

/// The scripts that dpkg runs.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// Lays out the package of the program, from the folder with the stripped program. Returns its folder.
pub(super) fn program(built: &Path, root: &Path) -> Result<PathBuf, Failure> {
    let program = root.join("usr/bin/toroni");
    copy(&built.join("toroni"), &program)?;
    let pages = root.join("usr/share/man/man1");
    man::write(&program, &pages)?;
    man::check(&pages)?;
    for (shell, path) in COMPLETIONS {
        let output = Command::new(&program)
            .args(["completions", shell])
            .output()
            .map_err(|error| Failure(format!("cannot start {}: {error}", program.display())))?;
        if !output.status.success() || output.stdout.is_empty() {
            return Err(Failure(format!("toroni completions {shell}: {}", output.status)));
        }
        write(&root.join(path), &output.stdout)?;
    }
    for (from, to) in COPIED {
        copy(&metadata::root().join(from), &root.join(to))?;
    }
    let texts = licences::text("toroni-cli", "", "cargo xtask packages")?;
    write(&root.join("usr/share/doc/toroni/third-party.txt"), texts.as_bytes())?;
    compress(&pages)?;
    compress(&root.join("usr/share/doc/toroni/changelog"))?;
    for script in SCRIPTS {
        copy(
            &metadata::root().join("packaging/debian").join(script),
            &root.join("DEBIAN").join(script),
        )?;
    }
    let is_executable = |path: &Path| {
        path.ends_with("usr/bin/toroni") || path.parent().is_some_and(|it| it.ends_with("DEBIAN"))
    };
    set_modes(root, &is_executable)?;
    Ok(root.to_owned())
}

/// Lays out the package of the symbols, where gdb and perf look for them.
pub(super) fn symbols(built: &Path, root: &Path) -> Result<PathBuf, Failure> {
    copy(&built.join("toroni.debug"), &root.join("usr/lib/debug/usr/bin/toroni.debug"))?;
    let copyright = metadata::root().join("packaging/debian/copyright");
    copy(&copyright, &root.join("usr/share/doc/toroni-dbgsym/copyright"))?;
    set_modes(root, &|_| false)?;
    Ok(root.to_owned())
}

/// Compresses a file, or all files of a folder. Debian wants this for manual pages and changelogs. Without the name and
/// the time of the file in it, the same file gives the same bytes.
fn compress(path: &Path) -> Result<(), Failure> {
    run_command(Command::new("gzip").args(["-9", "-n", "--recursive"]).arg(path))
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let bytes = fs::read(from)
        .map_err(|error| Failure(format!("cannot read {}: {error}", from.display())))?;
    write(to, &bytes)?;
    let cannot = |error| Failure(format!("cannot copy the mode of {}: {error}", from.display()));
    let mode = fs::metadata(from).map_err(cannot)?.permissions();
    fs::set_permissions(to, mode).map_err(cannot)
}

pub(super) fn write(to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let cannot = |error| Failure(format!("cannot write {}: {error}", to.display()));
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    fs::write(to, bytes).map_err(cannot)
}

/// Sets the modes of everything below a folder, whatever the umask was.
fn set_modes(path: &Path, is_executable: &dyn Fn(&Path) -> bool) -> Result<(), Failure> {
    let cannot = |error| Failure(format!("cannot set the mode of {}: {error}", path.display()));
    let is_folder = path.is_dir();
    let mode = if is_folder || is_executable(path) { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(cannot)?;
    if is_folder {
        for entry in fs::read_dir(path).map_err(cannot)? {
            set_modes(&entry.map_err(cannot)?.path(), is_executable)?;
        }
    }
    Ok(())
}
