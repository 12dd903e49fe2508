//! The files of the packages, laid out as they are installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bindings::licences;
use crate::command::{Failure, run as run_command};
use crate::{man, metadata};

/// What a package has.
pub(super) struct Content {
    /// The name of the package, and of its program.
    pub(super) package: &'static str,
    /// The crate of the program.
    krate: &'static str,
    /// The other package without which the program is of no use.
    pub(super) needs: Option<&'static str>,
    /// A line, and more lines that begin with a space.
    pub(super) description: &'static str,
    /// Files of the repository, and where they are installed.
    copied: &'static [(&'static str, &'static str)],
    /// The shells, and where their completions are installed.
    completions: &'static [(&'static str, &'static str)],
}

/// The bus of one machine.
pub(super) const TORONI: Content = Content {
    package: "toroni",
    krate: "toroni-cli",
    needs: None,
    description: "message bus for the processes of one machine, without a broker
 Publishers and subscribers meet in shared memory. All subscribers see the messages in one order, and one that
 missed messages learns how many. This package has the program: it publishes, subscribes and inspects buses from a
 shell, and serves their metrics to Prometheus.",
    copied: &[
        (
            "packaging/systemd/toroni-metrics.service",
            "usr/lib/systemd/system/toroni-metrics.service",
        ),
        ("packaging/systemd/toroni-users.conf", "usr/lib/sysusers.d/toroni.conf"),
        ("packaging/systemd/toroni.conf", "usr/lib/tmpfiles.d/toroni.conf"),
        ("packaging/grafana/toroni.json", "usr/share/toroni/grafana/toroni.json"),
        ("packaging/prometheus/alerts.yml", "usr/share/toroni/prometheus/alerts.yml"),
    ],
    // They complete the commands of both programs.
    completions: &[
        ("bash", "usr/share/bash-completion/completions/toroni"),
        ("zsh", "usr/share/zsh/vendor-completions/_toroni"),
        ("fish", "usr/share/fish/vendor_completions.d/toroni.fish"),
    ],
};

/// What connects the buses of several hosts.
pub(super) const NODE: Content = Content {
    package: "toroni-node",
    krate: "toroni-node",
    needs: Some("toroni"),
    description: "connects the Toroni message buses of several hosts
 A node brings the messages of one host to the buses of others, by reliable multicast or TCP, and a replicated
 sequencer gives commands of several hosts one order. This package adds the commands node, net and sequencer to the
 program of the package toroni.",
    copied: &[
        ("packaging/systemd/toroni-node@.service", "usr/lib/systemd/system/toroni-node@.service"),
        ("packaging/systemd/50-toroni.conf", "usr/lib/sysctl.d/50-toroni.conf"),
        ("packaging/grafana/toroni-net.json", "usr/share/toroni/grafana/toroni-net.json"),
        (
            "packaging/grafana/toroni-sequencer.json",
            "usr/share/toroni/grafana/toroni-sequencer.json",
        ),
        ("packaging/prometheus/net-alerts.yml", "usr/share/toroni/prometheus/net-alerts.yml"),
        (
            "packaging/prometheus/sequencer-alerts.yml",
            "usr/share/toroni/prometheus/sequencer-alerts.yml",
        ),
        ("packaging/wireshark/toroni.lua", "usr/share/toroni/wireshark/toroni.lua"),
    ],
    completions: &[],
};

/// The scripts that dpkg runs.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

impl Content {
    /// Where the program is installed.
    pub(super) fn program(&self) -> PathBuf {
        Path::new("usr/bin").join(self.package)
    }

    /// Lays out the package of the program below `root`, from the folder with the stripped programs.
    pub(super) fn lay_out(&self, built: &Path, root: &Path) -> Result<(), Failure> {
        let program = root.join(self.program());
        copy(&built.join(self.package), &program)?;
        let pages = root.join("usr/share/man/man1");
        man::write(&program, &pages)?;
        man::check(&pages)?;
        for (shell, path) in self.completions {
            let output = Command::new(&program)
                .args(["completions", shell])
                .output()
                .map_err(|error| Failure(format!("cannot start {}: {error}", program.display())))?;
            if !output.status.success() || output.stdout.is_empty() {
                return Err(Failure(format!("toroni completions {shell}: {}", output.status)));
            }
            write(&root.join(path), &output.stdout)?;
        }
        for (from, to) in self.copied {
            copy(&metadata::root().join(from), &root.join(to))?;
        }
        let texts = licences::text(self.krate, "", "cargo xtask packages")?;
        let documents = root.join("usr/share/doc").join(self.package);
        write(&documents.join("third-party.txt"), texts.as_bytes())?;
        let packaging = metadata::root().join("packaging/debian");
        copy(&packaging.join("copyright"), &documents.join("copyright"))?;
        copy(&metadata::root().join("CHANGELOG.md"), &documents.join("changelog"))?;
        compress(&pages)?;
        compress(&documents.join("changelog"))?;
        for script in SCRIPTS {
            let from = packaging.join(self.package).join(script);
            copy(&from, &root.join("DEBIAN").join(script))?;
        }
        let is_executable =
            |path: &Path| path == program || path.parent().is_some_and(|it| it.ends_with("DEBIAN"));
        set_modes(root, &is_executable)
    }

    /// Lays out the package of the symbols below `root`, where gdb and perf look for them.
    pub(super) fn lay_out_symbols(&self, built: &Path, root: &Path) -> Result<(), Failure> {
        let symbols = format!("{}.debug", self.package);
        copy(&built.join(&symbols), &root.join("usr/lib/debug/usr/bin").join(&symbols))?;
        let documents = format!("usr/share/doc/{}-dbgsym", self.package);
        let copyright = metadata::root().join("packaging/debian/copyright");
        copy(&copyright, &root.join(documents).join("copyright"))?;
        set_modes(root, &|_| false)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// While dpkg upgrades the packages, their programs have different versions.
    #[test]
    fn units_run_the_program_of_their_own_package() {
        let mut count = 0;
        for content in [TORONI, NODE] {
            let units = content.copied.iter().filter(|(_, to)| to.ends_with(".service"));
            for (unit, _) in units {
                let text = fs::read_to_string(metadata::root().join(unit)).unwrap();
                let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
                let program = start.split(' ').next().unwrap();
                assert_eq!(Path::new(program), Path::new("/").join(content.program()), "{unit}");
                count += 1;
            }
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn the_bus_of_a_node_is_for_its_group() {
        let path = metadata::root().join("packaging/systemd/toroni-node@.service");
        let text = fs::read_to_string(path).unwrap();
        for setting in ["Group=toroni", "UMask=0007"] {
            assert!(text.contains(&format!("\n{setting}\n")), "{setting}: {text}");
        }
    }

    /// What a unit needs may be missing for longer than five starts take.
    #[test]
    fn systemd_never_gives_up_on_a_unit() {
        let folder = metadata::root().join("packaging/systemd");
        let units = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let units = units.filter(|path| path.extension().is_some_and(|kind| kind == "service"));
        let mut count = 0;
        for path in units {
            count += 1;
            let unit = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            let (head, service) = text.split_once("\n[Service]\n").unwrap();
            let has = |part: &str, line: &str| part.lines().any(|known| known == line);
            assert!(has(head, "[Unit]") && has(head, "StartLimitIntervalSec=0"), "{unit}: {head}");
            // A successor of a node continues what receivers wait for, so it starts at once each time.
            let wanted: &[&str] = match unit.as_str() {
                "toroni-node@.service" => &["Restart=always", "RestartSec=100ms"],
                _ => &[
                    "Restart=on-failure",
                    "RestartSec=1",
                    "RestartSteps=8",
                    "RestartMaxDelaySec=60",
                ],
            };
            assert!(wanted.iter().all(|line| has(service, line)), "{unit}: {service}");
            let says_since_when = service.contains("Before version 254");
            assert_eq!(says_since_when, service.contains("\nRestartSteps="), "{unit}: {service}");
        }
        assert_eq!(count, 3);
    }
}
