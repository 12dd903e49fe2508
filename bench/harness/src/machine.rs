//! The facts about the machine that every report shows.

use std::fs;

/// Returns labels and values, in the order in which they are printed.
#[must_use]
pub fn describe() -> Vec<(String, String)> {
    let mut facts = vec![
        ("machine".to_owned(), processor()),
        ("cores".to_owned(), format!("{} usable, of {}", usable_cores(), present_cores())),
        ("kernel".to_owned(), kernel()),
    ];
    if let Some(load) = read("/proc/loadavg") {
        let averages: Vec<&str> = load.split(' ').take(3).collect();
        facts.push(("load before".to_owned(), averages.join(" ")));
    }
    if let Some(scheduling) = read("/proc/self/stat").and_then(|stat| scheduling(&stat)) {
        facts.push(("scheduling".to_owned(), scheduling));
    }
    // Virtual machines have no governor.
    if let Some(governor) = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        facts.push(("governor".to_owned(), governor));
    }
    facts
}

/// Returns name and release of the kernel, which is the version of every transport that is part of it.
#[must_use]
pub fn kernel() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())
}

/// Returns the number of processors that this process may run on.
#[must_use]
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn present_cores() -> usize {
    read("/proc/cpuinfo")
        .map(|text| text.lines().filter(|line| line.starts_with("processor")).count())
        .filter(|count| *count > 0)
        .unwrap_or_else(usable_cores)
}

fn processor() -> String {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let value = |name: &str| {
        let line =
            text.lines().find(|line| line.split(':').next().is_some_and(|n| n.trim() == name));
        line.and_then(|line| line.split(':').nth(1)).map(|value| value.trim().to_owned())
    };
    let name = value("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let family = match (value("cpu family"), value("model")) {
        (Some(family), Some(model)) => format!(", family {family}, model {model}"),
        _ => String::new(),
    };
    let guest = if text.contains(" hypervisor") { ", a virtual machine" } else { "" };
    format!("{name}{family}{guest}")
}

/// Reads from `/proc/self/stat` how the kernel schedules this process and its children. At real-time priority a process
/// that is woken runs at once, at the cost of the process that wakes it.
fn scheduling(stat: &str) -> Option<String> {
    // After the name, which may hold any characters, comes the third field (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let nice = field(19)?;
    let (priority, policy) = (field(40)?, field(41)?);
    Some(match policy {
        "0" => format!("SCHED_OTHER, nice {nice}"),
        "1" => format!("SCHED_FIFO, priority {priority}"),
        "2" => format!("SCHED_RR, priority {priority}"),
        "3" => format!("SCHED_BATCH, nice {nice}"),
        other => format!("policy {other}"),
    })
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_what_it_is() {
        let facts = describe();
        for label in ["machine", "cores", "kernel", "load before", "scheduling"] {
            let value = facts.iter().find(|(name, _)| name == label).map(|(_, value)| value);
            assert!(value.is_some_and(|value| !value.is_empty()), "{label} in {facts:?}");
        }
    }

    #[test]
    fn scheduling_is_read_after_a_hostile_name() {
        let stat = |nice: u8, priority: u8, policy: u8| {
            let zeros = |count: usize| vec!["0"; count].join(" ");
            format!("7 (a) b 1 2) S {} {nice} {} {priority} {policy} 0", zeros(15), zeros(20))
        };
        assert_eq!(scheduling(&stat(5, 0, 0)).as_deref(), Some("SCHED_OTHER, nice 5"));
        assert_eq!(scheduling(&stat(0, 10, 1)).as_deref(), Some("SCHED_FIFO, priority 10"));
        assert_eq!(scheduling("7 (a"), None);
        assert_eq!(scheduling("7 (a) S 1"), None);
    }
}
