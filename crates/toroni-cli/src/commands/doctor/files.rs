//! Checks of the directory of buses: its file system, free space and content.

use super::{Finding, existing, read};
use rustix::fs::{Access, access, statfs, statvfs};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use toroni::admin::{self, CleanAction};
use toroni::{BusConfig, DirectoryError, FileError, RetainedStats};
use toroni_shell::human;

/// The size of a bus with the default settings: 4 MiB of ring, 1 MiB of topics, values, headers and slots.
const DEFAULT_BUS_BYTES: u64 = 6 << 20;
/// Enough for a few buses. Containers often have less.
const COMFORTABLE_BYTES: u64 = 64 << 20;

/// More buses are not checked one by one.
const MOST_BUSES: usize = 100;

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Checks that the directory exists or can be created, who may use it, and what file system it is on.
pub(super) fn directory(directory: &Path) -> Finding {
    const CHECK: &str = "bus directory";
    // Another user who created the default directory could replace every bus in it, so the library refuses it.
    if let Err(error @ DirectoryError::UntrustedDirectory(_)) = admin::list(Some(directory)) {
        return Finding::fail(CHECK, error.to_string(), "follow the message");
    }
    if let Err(error) = directory.metadata()
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Finding::fail(
            CHECK,
            format!("{} cannot be reached: {error}", directory.display()),
            "set TORONI_DIR to another directory",
        );
    }
    let base = existing(directory);
    if let Err(error) = access(&base, Access::WRITE_OK | Access::EXEC_OK) {
        return Finding::fail(
            CHECK,
            format!("{} cannot be written: {error}", base.display()),
            if is_top_level(directory) {
                "set TORONI_DIR to another directory".to_owned()
            } else {
                format!(
                    "as root: install -d -m 1777 {}, for all users; mount it writable if it is not; or set TORONI_DIR to another directory",
                    directory.display()
                )
            },
        );
    }
    let Ok(metadata) = base.metadata() else {
        return Finding::fail(
            CHECK,
            format!("{} was removed during the check", base.display()),
            "run toroni doctor again",
        );
    };
    if !metadata.is_dir() {
        return Finding::fail(
            CHECK,
            format!("{} is not a directory", base.display()),
            "set TORONI_DIR to a directory",
        );
    }
    if base != directory {
        return Finding::ok(
            CHECK,
            format!("{} will be created when it is needed", directory.display()),
        );
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
            format!("{described}: any user can remove the buses of others"),
            format!("chmod 1777 {}", directory.display()),
        );
    }
    if metadata.uid() != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
        return Finding::warn(
            CHECK,
            format!("{described}: its owner can replace the buses of others"),
            format!("as root: chown root {}; or trust the owner", directory.display()),
        );
    }
    if !on_memory(directory) {
        return Finding::warn(
            CHECK,
            format!("{described}: the kernel writes the ring to the disk from time to time"),
            "set TORONI_DIR to a directory on tmpfs, unless the ring has to be larger than the memory",
        );
    }
    let us = rustix::process::geteuid().as_raw();
    if directory == Path::new("/dev/shm/toroni") && metadata.uid() == us && us != 0 {
        let refused = "other users cannot use it, because it does not belong to root";
        return Finding::ok(CHECK, format!("{described}: {refused}"));
    }
    Finding::ok(CHECK, described)
}

/// Returns whether no command should change the directory, because it is one of the system, such as `/etc`.
fn is_top_level(directory: &Path) -> bool {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    directory.ancestors().nth(2).is_none()
}

/// Checks the free space for buses.
pub(super) fn free_space(directory: &Path) -> Finding {
    free_space_at("free space", &existing(directory))
}

/// Checks the free space in /dev/shm, which other programs use as well.
pub(super) fn free_space_of_shm(_: &Path) -> Finding {
    const CHECK: &str = "shared memory";
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return Finding::fail(
            CHECK,
            "/dev/shm does not exist",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; or set TORONI_DIR",
        );
    }
    free_space_at(CHECK, shm)
}

fn free_space_at(check: &'static str, path: &Path) -> Finding {
    let space = match statvfs(path) {
        Ok(space) => space,
        Err(error) => {
            return Finding::fail(
                check,
                format!("{}: {error}", path.display()),
                "set TORONI_DIR to a directory that this user may read",
            );
        }
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let described = format!("{}: {} free", path.display(), human::bytes(free));
    let remedy = "mount -o remount,size=1G; Docker: --shm-size=1g; Kubernetes: an emptyDir with \
                  medium: Memory; or create buses with a smaller --capacity";
    if free < DEFAULT_BUS_BYTES {
        Finding::fail(
            check,
            format!("{described}, too little for a bus with the default capacity of 4 MiB"),
            remedy,
        )
    } else if free < COMFORTABLE_BYTES {
        Finding::warn(check, described, remedy)
    } else {
        Finding::ok(check, described)
    }
}

/// Creates a bus, publishes and receives a message on it, and removes it.
pub(super) fn round_trip(directory: &Path) -> Finding {
    const CHECK: &str = "a message";
    let name = format!("doctor-{}", std::process::id());
    let result = send_and_receive(directory, &name);
    let removed = admin::clean(Some(directory), Some(&name), false);
    match (result, removed) {
        (Ok(()), Ok(_)) if !directory.join(&name).exists() => {
            Finding::ok(CHECK, "sent and received on a new bus")
        }
        (Ok(()), removed) => Finding::fail(
            CHECK,
            match removed {
                Ok(_) => format!("could not remove the bus {name}"),
                Err(error) => format!("could not remove the bus {name}: {error}"),
            },
            format!("toroni clean {name}"),
        ),
        (Err(error), _) => Finding::fail(CHECK, error, "follow the message"),
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
        Some(_) => Err("the received message is not the published one".to_owned()),
        None => Err("a published message did not arrive within 5 s".to_owned()),
    }
}

/// Checks for leftovers of dead processes. A bus that no process has open may still be needed: it is only counted.
pub(super) fn leftovers(directory: &Path) -> Finding {
    const CHECK: &str = "leftovers";
    if !directory.exists() {
        return Finding::ok(CHECK, "none");
    }
    let report = match admin::clean(Some(directory), None, true) {
        Ok(report) => report,
        Err(error) => {
            return Finding::warn(
                CHECK,
                error.to_string(),
                "run toroni doctor as the owner of the buses",
            );
        }
    };
    let (idle, left): (Vec<_>, Vec<_>) =
        report.actions.into_iter().partition(|action| matches!(action, CleanAction::RemoveBus(_)));
    if left.is_empty() {
        return Finding::ok(CHECK, format!("none; buses that no process has open: {}", idle.len()));
    }
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    Finding::warn(CHECK, left.join("; "), "toroni clean")
}

/// Checks for each bus whether this user may publish and subscribe. If not, that is no problem: the bus may belong to
/// another user.
pub(super) fn rights(directory: &Path) -> Vec<Finding> {
    const CHECK: &str = "your rights";
    // If the directory cannot be listed, another check reports it.
    let buses = admin::list(Some(directory)).unwrap_or_default();
    let mut findings: Vec<Finding> = buses
        .iter()
        .take(MOST_BUSES)
        .map(|bus| {
            let rights = admin::rights(Some(directory), &bus.name);
            let is_denied = |error: &DirectoryError| {
                matches!(error, DirectoryError::File(FileError::PermissionDenied { .. }))
            };
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
                    Finding::warn(CHECK, format!("{name}: {error}"), "follow the message")
                }
            }
        })
        .collect();
    if buses.len() > MOST_BUSES {
        let more = buses.len() - MOST_BUSES;
        findings.push(Finding::ok(CHECK, format!("{more} more buses were not checked")));
    }
    findings
}

/// Checks for each bus whether values of retained topics are missing, and whether their number or room is nearly used up.
pub(super) fn values(directory: &Path) -> Vec<Finding> {
    const CHECK: &str = "retained topics";
    let mut findings = Vec::new();
    // If the directory cannot be listed, or a bus not be read, other checks report it.
    for bus in admin::list(Some(directory)).unwrap_or_default().iter().take(MOST_BUSES) {
        let opened = BusConfig::new().directory(directory).open_existing(&bus.name);
        let Ok(Ok(stats)) = opened.map(|bus| bus.stats()) else { continue };
        let (name, retained) = (&bus.name, stats.retained);
        let RetainedStats { topics, max_topics, missing, used_bytes, bytes, .. } = retained;
        let mut warn = |what: String, option: &str| {
            let remedy = format!("create the bus again with a larger {option}");
            findings.push(Finding::warn(CHECK, format!("{name}: {what}"), remedy));
        };
        let room = format!("{} of {} in use", human::bytes(used_bytes), human::bytes(bytes));
        if missing > 0 {
            let values = human::counted(missing.into(), "value");
            warn(format!("no room for {values}, {room}"), "--retained-bytes");
        } else if is_nearly_full(used_bytes, bytes) {
            warn(format!("the room for values is nearly used up, {room}"), "--retained-bytes");
        }
        if is_nearly_full(topics.into(), max_topics.into()) {
            let retained = human::counted(topics.into(), "topic");
            let verb = if topics == 1 { "is" } else { "are" };
            warn(
                format!("{retained} {verb} retained, of at most {max_topics}"),
                "--retained-topics",
            );
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no value is missing"));
    }
    findings
}

/// Returns whether nine tenths are in use.
fn is_nearly_full(used: u64, all: u64) -> bool {
    all > 0 && used >= all - all / 10
}

/// Checks whether systemd removes the shared memory of a user who logs out.
pub(super) fn remove_ipc(directory: &Path) -> Finding {
    const CHECK: &str = "logout";
    if !Path::new("/run/systemd/system").exists() {
        return Finding::ok(CHECK, "systemd does not run here, which could remove shared memory");
    }
    // systemd does not do that to system users.
    if rustix::process::getuid().as_raw() < 1000 {
        return Finding::ok(CHECK, "systemd keeps the shared memory of system users");
    }
    if !directory.starts_with("/dev/shm") {
        return Finding::ok(CHECK, "systemd removes nothing outside /dev/shm");
    }
    if removes_ipc(&logind_configuration()) {
        Finding::warn(
            CHECK,
            "systemd removes this user's files in /dev/shm when the user's last login session ends",
            "set RemoveIPC=no in /etc/systemd/logind.conf, or run the service as a system user",
        )
    } else {
        Finding::ok(CHECK, "RemoveIPC=no: systemd keeps shared memory at logout")
    }
}

/// Returns the whole configuration of logind. The last of several settings wins.
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

/// Whether the configuration has RemoveIPC, which is on by default.
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
    // `f_type` has different types on different platforms; the magic numbers have 32 bits.
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
    fn memory_is_distinguished_from_a_disk() {
        assert!(on_memory(Path::new("/dev/shm")));
        assert!(!on_memory(Path::new("/proc")));
    }
}
