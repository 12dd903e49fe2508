//! Checks of kernel, limits, containers and CPUs.

use super::{Finding, read};
use rustix::process::{Resource, getrlimit};
use std::path::Path;
use std::time::{Duration, Instant};
use toroni_shell::human;

/// Inode of the first PID namespace of every kernel (`PROC_PID_INIT_INO`, linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// The oldest kernel that Toroni is tested with. ACLs and open-file-description locks exist since older ones.
const OLDEST_TESTED: (u32, u32) = (5, 10);

/// Checks the release of the kernel.
pub(super) fn kernel(_: &Path) -> Finding {
    const CHECK: &str = "kernel";
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    match version(&release) {
        Some(found) if found >= OLDEST_TESTED => Finding::ok(CHECK, format!("Linux {release}")),
        Some(_) => Finding::warn(
            CHECK,
            format!("Linux {release} is older than the kernels Toroni is tested with"),
            format!("use Linux {}.{} or newer", OLDEST_TESTED.0, OLDEST_TESTED.1),
        ),
        None => Finding::warn(CHECK, "cannot read the release of the kernel", "mount /proc"),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Looks for signs that this process runs in a container.
pub(super) fn container(_: &Path) -> Finding {
    const CHECK: &str = "container";
    let mut signs = Vec::new();
    for (path, name) in [
        ("/.dockerenv", "Docker"),
        ("/run/.containerenv", "Podman"),
        ("/run/systemd/container", "systemd-nspawn"),
    ] {
        if Path::new(path).exists() {
            signs.push(name);
        }
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        signs.push("Kubernetes");
    }
    let groups = read("/proc/1/cgroup").unwrap_or_default();
    for (word, name) in [
        ("kubepods", "Kubernetes"),
        ("docker", "Docker"),
        ("containerd", "containerd"),
        ("lxc", "LXC"),
    ] {
        if groups.contains(word) && !signs.contains(&name) {
            signs.push(name);
        }
    }
    if signs.is_empty() {
        Finding::ok(CHECK, "no sign of one")
    } else {
        Finding::ok(
            CHECK,
            format!(
                "{}: to share buses, mount the same directory of buses into each container",
                signs.join(", ")
            ),
        )
    }
}

/// Checks the PID namespace: the robust lock works only within one.
pub(super) fn pid_namespace(_: &Path) -> Finding {
    const CHECK: &str = "PID namespace";
    let Ok(own) = std::fs::read_link("/proc/self/ns/pid") else {
        return Finding::warn(CHECK, "cannot read /proc/self/ns/pid", "mount /proc");
    };
    let own = own.to_string_lossy().into_owned();
    // If /proc shows another process ID for this process, it belongs to another namespace.
    let seen = std::fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    if seen != Some(std::process::id()) {
        return Finding::warn(
            CHECK,
            "/proc belongs to another PID namespace than this process",
            "start the process with unshare --mount-proc, or mount /proc again in its namespace",
        );
    }
    if own == FIRST_PID_NAMESPACE {
        Finding::ok(CHECK, format!("{own}, the one of the machine"))
    } else {
        Finding::ok(
            CHECK,
            format!(
                "{own}, not the one of the machine: buses shared with other namespaces need the lock lease"
            ),
        )
    }
}

/// Checks the limit for the library's setting `lock_memory`.
pub(super) fn locked_memory(_: &Path) -> Finding {
    const CHECK: &str = "locked memory";
    const WANTED: u64 = 8 << 20;
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < WANTED => Finding::warn(
            CHECK,
            format!(
                "at most {}: too little to lock a bus in memory (setting lock_memory)",
                human::bytes(limit)
            ),
            "ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; needed only for lock_memory",
        ),
        Some(limit) => Finding::ok(CHECK, format!("at most {}", human::bytes(limit))),
        None => Finding::ok(CHECK, "no limit"),
    }
}

/// Checks the limit of open files. A process on a bus needs only a few.
pub(super) fn open_files(_: &Path) -> Finding {
    const CHECK: &str = "open files";
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < 256 => Finding::warn(
            CHECK,
            format!("at most {limit} per process"),
            "ulimit -n 1024; systemd: LimitNOFILE=1024",
        ),
        Some(limit) => Finding::ok(CHECK, format!("at most {} per process", human::count(limit))),
        None => Finding::ok(CHECK, "no limit"),
    }
}

/// Checks whether `--huge-pages` has an effect on tmpfs.
pub(super) fn huge_pages(_: &Path) -> Finding {
    const CHECK: &str = "huge pages";
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let Some(choices) = read(PATH) else {
        return Finding::ok(CHECK, "this kernel does not support them for shared memory");
    };
    let chosen = chosen(&choices);
    match chosen {
        "always" | "advise" | "within_size" | "force" => {
            Finding::ok(CHECK, format!("for shared memory: {chosen}"))
        }
        _ => Finding::warn(
            CHECK,
            format!("for shared memory: {chosen}; --huge-pages has no effect"),
            format!("as root: echo advise > {PATH}; needed only for --huge-pages"),
        ),
    }
}

/// Returns `never` for `always advise [never]`.
fn chosen(choices: &str) -> &str {
    choices.split(['[', ']']).nth(1).unwrap_or(choices)
}

/// Checks the number of CPUs, and whether some are isolated.
pub(super) fn processors(_: &Path) -> Finding {
    const CHECK: &str = "processors";
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if count == 1 {
        return Finding::warn(
            CHECK,
            "only one: a subscriber that polls takes it from the publisher",
            "do not use the wait strategies spin and yield on this machine",
        );
    }
    match read("/sys/devices/system/cpu/isolated").filter(|list| !list.is_empty()) {
        Some(list) => Finding::ok(CHECK, format!("{count}; isolated: {list}")),
        None => Finding::ok(
            CHECK,
            format!(
                "{count}, none isolated (isolcpus= improves the highest percentiles of latency)"
            ),
        ),
    }
}

/// Checks the CPU governor: a slowed-down CPU needs time to speed up.
pub(super) fn governor(_: &Path) -> Finding {
    const CHECK: &str = "CPU governor";
    match read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Finding::ok(CHECK, "not visible (a virtual machine, or no frequency scaling)"),
        Some(governor) if governor == "performance" => Finding::ok(CHECK, governor),
        Some(governor) => Finding::warn(
            CHECK,
            format!("{governor}: latencies vary with the CPU frequency"),
            "cpupower frequency-set -g performance",
        ),
    }
}

/// Checks how long reading the clock takes. Timestamps and time-outs read it.
pub(super) fn clock(_: &Path) -> Finding {
    const CHECK: &str = "clock";
    const READS: u32 = 20_000;
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".to_owned());
    let started = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    let each = started.elapsed() / READS;
    let described = format!("{source}, {} per reading", human::duration(each));
    if each > Duration::from_nanos(500) {
        Finding::warn(
            CHECK,
            format!("{described}: slow"),
            "if the TSC of this machine is reliable, boot with clocksource=tsc; otherwise use few timestamps",
        )
    } else {
        Finding::ok(CHECK, described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_choices_are_parsed() {
        assert_eq!(version("6.18.1-generic"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("mainline"), None);
        assert_eq!(chosen("always within_size advise [never] deny force"), "never");
        assert_eq!(chosen("never"), "never");
    }
}
