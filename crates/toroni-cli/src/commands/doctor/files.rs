//! The directory of the buses, its file system, and what lies there.

use super::{Finding, existing, read};
use crate::human;
use rustix::fs::{Access, access, statfs, statvfs};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use toroni::admin::{self, CleanAction};
use toroni::{BusConfig, OpenError};

/// A bus of the default settings: 4 MiB of ring, 1 MiB of topics, headers and slots.
const DEFAULT_BUS_BYTES: u64 = 6 << 20;
/// Room for a handful of buses, below which containers usually run short.
const COMFORTABLE_BYTES: u64 = 64 << 20;

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Exists, or can be made; who may use it; what it lies on.
pub(super) fn directory(directory: &Path) -> Finding {
    const CHECK: &str = "bus directory";
    // Whoever else made the default directory could exchange every bus in it, so it is refused.
    if let Err(error @ OpenError::UntrustedDirectory { .. }) = admin::list(Some(directory)) {
        return Finding::fail(CHECK, error.to_string(), "do what the message says");
    }
    let base = existing(directory);
    if let Err(error) = access(&base, Access::WRITE_OK | Access::EXEC_OK) {
        return Finding::fail(
            CHECK,
            format!("{} cannot be written: {error}", base.display()),
            "mount it writable, give this user access, or set TORONI_DIR to another directory",
        );
    }
    let Ok(metadata) = base.metadata() else {
        return Finding::fail(CHECK, format!("{} vanished", base.display()), "run it again");
    };
    if !metadata.is_dir() {
        return Finding::fail(
            CHECK,
            format!("{} is no directory", base.display()),
            "set TORONI_DIR to a directory",
        );
    }
    if base != directory {
        return Finding::ok(CHECK, format!("{} is made when needed", directory.display()));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let described = format!(
        "{}, mode {mode:04o}, owner {}, on {}",
        directory.display(),
        metadata.uid(),
        file_system(directory)
    );
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        return Finding::warn(
            CHECK,
            format!("{described}: everybody may remove the buses of others"),
            format!("chmod 1777 {}", directory.display()),
        );
    }
    if metadata.uid() != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
        return Finding::warn(
            CHECK,
            format!("{described}: its owner could exchange the buses of others"),
            format!("as root: chown root {}; or trust that user", directory.display()),
        );
    }
    if !on_memory(directory) {
        return Finding::warn(
            CHECK,
            format!("{described}: the ring is written to a disk now and then"),
            "set TORONI_DIR to a directory on tmpfs, unless the ring shall be larger than the memory",
        );
    }
    let us = rustix::process::geteuid().as_raw();
    if directory == Path::new("/dev/shm/toroni") && metadata.uid() == us && us != 0 {
        let refused = "other users of this machine are refused, as it is not root's";
        return Finding::ok(CHECK, format!("{described}: {refused}"));
    }
    Finding::ok(CHECK, described)
}

/// Free space where the buses are.
pub(super) fn room(directory: &Path) -> Finding {
    room_at("room", &existing(directory))
}

/// Free space in /dev/shm, which others use as well.
pub(super) fn room_of_shm(_: &Path) -> Finding {
    const CHECK: &str = "room in /dev/shm";
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return Finding::fail(
            CHECK,
            "/dev/shm does not exist",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm, or set TORONI_DIR",
        );
    }
    room_at(CHECK, shm)
}

fn room_at(check: &'static str, path: &Path) -> Finding {
    let space = match statvfs(path) {
        Ok(space) => space,
        Err(error) => {
            return Finding::fail(
                check,
                format!("{}: {error}", path.display()),
                "set TORONI_DIR to a directory that can be read",
            );
        }
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let described = format!("{}: {} free", path.display(), human::bytes(free));
    let remedy = "mount -o remount,size=1G on it; Docker: --shm-size=1g; Kubernetes: an emptyDir \
                  with medium: Memory; or `toroni create --capacity` with less";
    if free < DEFAULT_BUS_BYTES {
        Finding::fail(check, format!("{described}, too little for a bus of 4 MiB"), remedy)
    } else if free < COMFORTABLE_BYTES {
        Finding::warn(check, described, remedy)
    } else {
        Finding::ok(check, described)
    }
}

/// Creates a bus, sends a message through it, and removes it.
pub(super) fn round_trip(directory: &Path) -> Finding {
    const CHECK: &str = "a message";
    let name = format!("doctor-{}", std::process::id());
    let result = send_and_receive(directory, &name);
    let removed = admin::clean(Some(directory), Some(&name), false);
    match (result, removed) {
        (Ok(()), Ok(_)) if !directory.join(&name).exists() => {
            Finding::ok(CHECK, "went through a new bus")
        }
        (Ok(()), removed) => Finding::fail(
            CHECK,
            match removed {
                Ok(_) => format!("the bus {name} could not be removed"),
                Err(error) => format!("the bus {name} could not be removed: {error}"),
            },
            format!("toroni clean {name}"),
        ),
        (Err(error), _) => Finding::fail(CHECK, error, "the message says what to do"),
    }
}

fn send_and_receive(directory: &Path, name: &str) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let bus = BusConfig::new()
        .directory(directory)
        .capacity(64 << 10)
        .topic_table_bytes(4 << 10)
        .create(name)
        .map_err(|e| text(&e))?;
    let mut subscriber = bus.subscribe("doctor/**").map_err(|e| text(&e))?;
    let publisher = bus.publisher("doctor/check").map_err(|e| text(&e))?;
    publisher.publish(b"well?").map_err(|e| text(&e))?;
    match subscriber.receive_timeout(Duration::from_secs(5)).map_err(|e| text(&e))? {
        Some(message) if message.payload() == b"well?" => Ok(()),
        Some(_) => Err("another message arrived than was published".to_owned()),
        None => Err("a message that was published did not arrive within 5 s".to_owned()),
    }
}

/// What the dead left behind. A bus that nobody has open may well be wanted, and is only counted.
pub(super) fn leftovers(directory: &Path) -> Finding {
    const CHECK: &str = "leftovers";
    if !directory.exists() {
        return Finding::ok(CHECK, "none");
    }
    let report = match admin::clean(Some(directory), None, true) {
        Ok(report) => report,
        Err(error) => {
            return Finding::warn(CHECK, error.to_string(), "run it as the owner of the buses");
        }
    };
    let (idle, left): (Vec<_>, Vec<_>) =
        report.actions.into_iter().partition(|action| matches!(action, CleanAction::RemoveBus(_)));
    if left.is_empty() {
        return Finding::ok(CHECK, format!("none; buses that nobody has open: {}", idle.len()));
    }
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    Finding::warn(CHECK, left.join("; "), "toroni clean")
}

/// Whether the user who asks may publish and subscribe, for each bus. That it may not is no fault: the bus may
/// be somebody else's.
pub(super) fn rights(directory: &Path) -> Vec<Finding> {
    const CHECK: &str = "your rights";
    const MOST_BUSES: usize = 100;
    // That it cannot be listed, another check says.
    let buses = admin::list(Some(directory)).unwrap_or_default();
    let mut findings: Vec<Finding> = buses
        .iter()
        .take(MOST_BUSES)
        .map(|bus| {
            let rights = admin::rights(Some(directory), &bus.name);
            let is_denied = |error: &OpenError| matches!(error, OpenError::PermissionDenied { .. });
            let name = &bus.name;
            match (rights.publish, rights.subscribe) {
                (Ok(()), Ok(())) => {
                    Finding::ok(CHECK, format!("{name}: you may publish and subscribe"))
                }
                (Err(error), Ok(())) if is_denied(&error) => Finding::ok(
                    CHECK,
                    format!("{name}: you may subscribe, but not publish: {error}"),
                ),
                (Ok(()), Err(error)) if is_denied(&error) => Finding::ok(
                    CHECK,
                    format!("{name}: you may publish, but not subscribe: {error}"),
                ),
                (Err(publish), Err(subscribe)) if is_denied(&publish) && is_denied(&subscribe) => {
                    Finding::ok(
                        CHECK,
                        format!("{name}: you may neither publish nor subscribe: {subscribe}"),
                    )
                }
                (Err(error), _) | (_, Err(error)) => {
                    Finding::warn(CHECK, format!("{name}: {error}"), "do what the message says")
                }
            }
        })
        .collect();
    if buses.len() > MOST_BUSES {
        let more = buses.len() - MOST_BUSES;
        findings.push(Finding::ok(CHECK, format!("not looked at: {more} more buses")));
    }
    findings
}

/// systemd can remove the shared memory of a user who logs out.
pub(super) fn remove_ipc(directory: &Path) -> Finding {
    const CHECK: &str = "logout";
    if !Path::new("/run/systemd/system").exists() {
        return Finding::ok(CHECK, "no systemd that removes shared memory");
    }
    // systemd spares system users.
    if rustix::process::getuid().as_raw() < 1000 {
        return Finding::ok(CHECK, "systemd spares the shared memory of system users");
    }
    if !directory.starts_with("/dev/shm") {
        return Finding::ok(CHECK, "systemd removes nothing outside of /dev/shm");
    }
    if removes_ipc(&logind_configuration()) {
        Finding::warn(
            CHECK,
            "systemd removes this user's files in /dev/shm when the last session ends",
            "RemoveIPC=no in /etc/systemd/logind.conf, or run the service as a system user",
        )
    } else {
        Finding::ok(CHECK, "RemoveIPC=no: shared memory stays at logout")
    }
}

/// All configuration of logind; what comes later wins.
fn logind_configuration() -> String {
    let mut text = String::new();
    for directory in ["/usr/lib/systemd", "/run/systemd", "/etc/systemd"] {
        text += &read(&format!("{directory}/logind.conf")).unwrap_or_default();
        text.push('\n');
    }
    for directory in ["/usr/lib/systemd", "/run/systemd", "/etc/systemd"] {
        let entries = std::fs::read_dir(format!("{directory}/logind.conf.d"));
        let mut paths: Vec<_> =
            entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter_map(|path| path.to_str()) {
            text += &read(path).unwrap_or_default();
            text.push('\n');
        }
    }
    text
}

/// The default of logind is yes.
fn removes_ipc(configuration: &str) -> bool {
    configuration
        .lines()
        .filter_map(|line| line.trim().strip_prefix("RemoveIPC="))
        .next_back()
        .is_none_or(|value| {
            !["no", "false", "off", "0", "n", "f"].contains(&value.trim().to_lowercase().as_str())
        })
}

fn on_memory(path: &Path) -> bool {
    // The type of f_type differs between platforms; the magic numbers have 32 bits.
    statfs(path).is_ok_and(|stat| {
        let kind = u64::try_from(stat.f_type).unwrap_or(0) & 0xFFFF_FFFF;
        kind == TMPFS_MAGIC || kind == RAMFS_MAGIC
    })
}

fn file_system(path: &Path) -> &'static str {
    if on_memory(path) { "memory" } else { "a disk" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_of_logind_wins() {
        assert!(removes_ipc(""));
        assert!(removes_ipc("[Login]\n#RemoveIPC=no\n"));
        assert!(!removes_ipc("[Login]\nRemoveIPC=no\n"));
        assert!(removes_ipc("RemoveIPC=no\n RemoveIPC=yes\n"));
    }

    #[test]
    fn memory_is_told_from_a_disk() {
        assert!(on_memory(Path::new("/dev/shm")));
        assert!(!on_memory(Path::new("/proc")));
    }
}
