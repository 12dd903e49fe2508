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
    let stats = location.open_existing(Some(name)).and_then(|bus| Ok(bus.stats()?));
    let mut participants = Vec::new();
    if let Ok(stats) = stats {
        let publishers = stats.publishers.into_iter().flatten().filter(|one| one.alive);
        participants.extend(publishers.map(|one| (one.name, one.pid, one.same_pid_namespace)));
        let subscribers = stats.subscribers.into_iter().flatten().filter(|one| one.alive);
        participants.extend(subscribers.map(|one| (one.name, one.pid, one.same_pid_namespace)));
    }
    let directory = location.dir.clone().unwrap_or_else(admin::default_directory);
    let holders = fs::canonicalize(directory.join(name).join("ring")).map(|ring| holders(&ring));
    named(&participants, &holders.unwrap_or_default())
}

/// Names each process once: participants by name, process id, and whether that is of this PID namespace, and then the
/// `holders` that are none of them.
fn named(participants: &[(String, u32, bool)], holders: &[Holder]) -> Vec<String> {
    const MOST: usize = 8;
    let has = |wanted: u32, here: bool| {
        participants.iter().any(|(_, pid, is_here)| (*pid, *is_here) == (wanted, here))
    };
    // A participant of a PID namespace below this one has its number in that, too.
    let is_known = |one: &&Holder| {
        one.pid == std::process::id()
            || has(one.pid, true)
            || one.inner_pid.is_some_and(|inner| has(inner, false))
    };
    let participants = participants.iter();
    let all = participants.map(|(name, one, is_here)| format!("{name} ({})", pid(*one, *is_here)));
    let others = holders.iter().filter(|one| !is_known(one));
    let mut seen = BTreeSet::new();
    let mut users: Vec<String> = all
        .chain(others.map(|one| format!("{} ({})", one.command, one.pid)))
        .filter(|user| seen.insert(user.clone()))
        .collect();
    let more = users.len().saturating_sub(MOST);
    users.truncate(MOST);
    if more > 0 {
        users.push(format!("and {more} more"));
    }
    users
}

/// A process that has a file open.
struct Holder {
    pid: u32,
    /// Its number in its own PID namespace, if that is below this one.
    inner_pid: Option<u32>,
    command: String,
}

/// Returns the processes that have a file open.
fn holders(file: &Path) -> Vec<Holder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let holder = |process: fs::DirEntry| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let descriptors = fs::read_dir(process.path().join("fd")).ok()?;
        let mut links = descriptors.flatten().map(|entry| fs::read_link(entry.path()));
        links.any(|link| link.is_ok_and(|link| link == file)).then(|| {
            let read = |name| fs::read_to_string(process.path().join(name)).unwrap_or_default();
            let command = read("comm").trim_end().to_owned();
            Holder { pid, inner_pid: inner_pid(&read("status")), command }
        })
    };
    processes.filter_map(holder).collect()
}

/// Returns the number of a process in its own PID namespace, from /proc/PID/status, unless that is the namespace of /proc.
fn inner_pid(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().skip(1).last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32, inner_pid: Option<u32>, command: &str) -> Holder {
        Holder { pid, inner_pid, command: command.to_owned() }
    }

    #[test]
    fn each_process_is_named_once() {
        let is_of = |name: &str, pid, is_here| (name.to_owned(), pid, is_here);
        let participants =
            [is_of("logger", 7, false), is_of("camera", 20, true), is_of("logger", 7, false)];
        let holders = [
            // The process 7 of this namespace is another one.
            holder(7, None, "python3"),
            holder(1_007, Some(7), "logger"),
            holder(20, None, "camera"),
            holder(std::process::id(), None, "toroni"),
        ];
        let expected = ["logger (7 (other namespace))", "camera (20)", "python3 (7)"];
        assert_eq!(named(&participants, &holders), expected);
        // What is named twice does not push others out.
        let participants: Vec<_> =
            (0..20_u32).map(|number| is_of("logger", number / 2, true)).collect();
        let shown = named(&participants, &[]);
        assert_eq!((shown.len(), shown[8].as_str()), (9, "and 2 more"), "{shown:?}");
    }

    #[test]
    fn a_process_has_a_number_in_each_namespace() {
        assert_eq!(inner_pid("Name:\tx\nNSpid:\t4711\n"), None);
        assert_eq!(inner_pid("NSpid:\t4711\t12\t3\nNSsid:\t1\n"), Some(3));
        assert_eq!(inner_pid(""), None);
    }
}
