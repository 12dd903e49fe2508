//! How publishers and subscribers are shown, and which processes have a bus open.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use toroni::admin;
use toroni_shell::location::BusLocation;

/// The states of a participant.
#[cfg(feature = "metrics")]
pub(crate) const STATES: [&str; 4] = ["alive", "stopped", "dumping", "dead"];

/// Returns the state of a participant in one word.
pub(crate) fn state(alive: bool, stopped: bool, dumping: bool) -> &'static str {
    match (alive, dumping, stopped) {
        (false, ..) => "dead",
        (true, true, _) => "dumping",
        (true, false, true) => "stopped",
        (true, false, false) => "alive",
    }
}

/// Returns a process ID as the tables show it.
pub(crate) fn pid(pid: u32, same_namespace: bool) -> String {
    // In this namespace, the number means another process.
    if same_namespace { pid.to_string() } else { format!("{pid} (other namespace)") }
}

/// Names the processes that have a bus open, as far as this process can find out: participants are in its files, and /proc
/// has the others of this user, or all for root.
pub(crate) fn users(location: &BusLocation, name: &str) -> Vec<String> {
    const MOST: usize = 8;
    let mut users = Vec::new();
    let mut known = BTreeSet::from([std::process::id()]);
    let stats = location.open_existing(Some(name)).and_then(|bus| Ok(bus.stats()?));
    if let Ok(stats) = stats {
        let publishers = stats.publishers.iter().flatten().filter(|one| one.alive);
        for one in publishers {
            users.push(format!("{} ({})", one.name, pid(one.pid, one.same_pid_namespace)));
            known.insert(one.pid);
        }
        for one in stats.subscribers.iter().flatten().filter(|one| one.alive) {
            users.push(format!("{} ({})", one.name, pid(one.pid, one.same_pid_namespace)));
            known.insert(one.pid);
        }
    }
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    let ring = fs::canonicalize(directory.join(name).join("ring"));
    users.extend(ring.iter().flat_map(|ring| holders(ring)).filter_map(|(pid, command)| {
        (!known.contains(&pid)).then(|| format!("{command} ({pid})"))
    }));
    users.dedup();
    let more = users.len().saturating_sub(MOST);
    users.truncate(MOST);
    if more > 0 {
        users.push(format!("and {more} more"));
    }
    users
}

/// Returns the processes that have a file open, each with its command.
fn holders(file: &Path) -> Vec<(u32, String)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let holder = |process: fs::DirEntry| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let descriptors = fs::read_dir(process.path().join("fd")).ok()?;
        let mut links = descriptors.flatten().map(|entry| fs::read_link(entry.path()));
        links.any(|link| link.is_ok_and(|link| link == file)).then(|| {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            (pid, command.trim_end().to_owned())
        })
    };
    processes.filter_map(holder).collect()
}
