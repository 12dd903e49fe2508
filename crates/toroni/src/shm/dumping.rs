//! Recognises a process that dumps core. None of its code runs any more, but the kernel closes its files, and so
//! drops its leases, only after it has written the dump. For a large process that takes seconds.
//!
//! # Why such a process can be taken for dead
//!
//! What the kernel does:
//!
//! - When a thread gets a signal that dumps core, the kernel sets the dump state of the process and sends SIGKILL
//!   to all its other threads, both under one lock (`zap_threads`, fs/coredump.c). `/proc/PID/status` shows the
//!   state as `CoreDumping: 1` (proc(5), since Linux 4.15).
//! - A thread may still run user code until it takes that SIGKILL. From then on it never does: it waits inside
//!   `exit` until the dump is written.
//! - The dumping thread itself never returns from the signal.
//! - No thread can be added: `clone` fails for a process that is being killed.
//! - The state is never taken back, whatever becomes of the dump.
//!
//! So no code of the process runs, and none will, if this process first sees the dump state, and then sees that all
//! threads were listed, that none of them has a SIGKILL that it has not taken (`SigPnd`), and that all but the
//! dumping one are parked. The kernel's lock orders these checks after everything that the threads did.
//!
//! # Why it is the right process
//!
//! A slot names its owner's process by a number, which is meaningful in one PID namespace only. So the slot, this
//! process and `/proc` must all belong to the same one. A held lease says that its owner has not been reaped, and
//! so that no other process has its number. If the owner was reaped meanwhile and its number is used again, the
//! answer is about another process, but still right: the owner is dead.
//!
//! If anything cannot be read (no `/proc`, or one with `hidepid`), no process is taken for dead.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::platform::KernelContext;
use crate::hook::mutant;
use crate::sync::{AtomicU64, Ordering};

/// The most threads of an owner of the writer lock that are checked, one file for each. If the owner has more,
/// waiters wait until its lease is free.
pub(crate) const MOST_THREADS_OF_PUBLISHER: usize = 4096;
/// The same for a reader. Any subscriber can write the number of any process into a slot, and must not cost a
/// publisher more than some milliseconds that way.
pub(crate) const MOST_THREADS_OF_READER: usize = 256;

/// How often a waiting participant checks for a core dump. The check takes about 30 µs, and many participants may
/// wait for one that is merely slow.
const EVERY_NS: u64 = 20_000_000;

/// Says when the next check is due.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    last_ns: AtomicU64,
}

impl Turns {
    /// Returns whether a check is due, and if so counts it as made now. `now_ns` is monotonic.
    pub(crate) fn take(&self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.last_ns.load(Ordering::Relaxed)) >= EVERY_NS;
        if is_due {
            self.last_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }
}

/// Returns whether the owner of a held lease dumps core and no code of it runs any more.
pub(crate) fn has_stopped_for_good(pid: u32, pid_namespace: u64, most_threads: usize) -> bool {
    let directory = format!("/proc/{pid}");
    let Some(before) = Status::read(&directory).filter(|status| status.is_dumping) else {
        return false;
    };
    let near = Status::read("/proc/self");
    if before.namespaces != 1
        || near.is_none_or(|near| near.namespaces != 1)
        || pid_namespace == 0
        || pid_namespace != KernelContext::current().pid_namespace
        || before.threads > most_threads
    {
        return false;
    }
    let Ok(tasks) = std::fs::read_dir(format!("{directory}/task")) else { return false };
    let threads: Option<Vec<_>> =
        tasks.map(|task| Status::read(&task.ok()?.path().to_string_lossy())).collect();
    threads.is_some_and(|threads| {
        Status::read(&directory).is_some_and(|after| no_code_runs(&threads, &after))
    })
}

/// Returns whether no code of a process that dumps core runs any more. The caller saw the dump state, then read
/// `threads`, then `after`.
fn no_code_runs(threads: &[Status], after: &Status) -> bool {
    let is_awake = |thread: &&Status| !thread.is_parked;
    let all_have_stopped = threads.iter().all(|thread| !thread.is_to_be_killed)
        // The thread that dumps may be awake.
        && threads.iter().filter(is_awake).count() <= 1;
    // The list of threads may miss some while others end.
    let is_complete = after.is_dumping && after.threads == threads.len();
    is_complete && (all_have_stopped || mutant("dump_believed_before_its_threads_stop"))
}

/// Returns whether a process dumps core, for display. The number is one of this PID namespace.
pub(crate) fn is_dumping(pid: u32) -> bool {
    Status::read(&format!("/proc/{pid}")).is_some_and(|status| status.is_dumping)
}

/// What `/proc/PID/status` or `/proc/PID/task/TID/status` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    is_dumping: bool,
    threads: usize,
    /// In how many PID namespaces the process has a number, counted from that of `/proc` inwards.
    namespaces: usize,
    /// Whether the thread has a SIGKILL that it has not taken.
    is_to_be_killed: bool,
    /// Whether the thread sleeps and cannot be woken by a signal.
    is_parked: bool,
}

impl Status {
    fn read(directory: &str) -> Option<Self> {
        // The first line is the name of the process. It may contain anything but a line feed, which is escaped.
        let text = std::fs::read(format!("{directory}/status")).ok()?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Parses a status. `None` if a line is missing, such as `CoreDumping` before Linux 4.15.
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let pending = u64::from_str_radix(field("SigPnd")?, 16).ok()?;
        Some(Self {
            is_dumping: field("CoreDumping")? == "1",
            threads: field("Threads")?.parse().ok()?,
            namespaces: field("NSpid")?.split_whitespace().count(),
            is_to_be_killed: pending & (1 << (libc::SIGKILL - 1)) != 0,
            // Disk sleep, idle, zombie or dead.
            is_parked: field("State")?.starts_with(['D', 'I', 'Z', 'X']),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(state: &str, pending: &str, dumping: &str) -> String {
        format!(
            "Name:\tCoreDumping:\\n1\nState:\t{state}\nPid:\t7\nNSpid:\t7\t1\nThreads:\t3\n\
             SigPnd:\t{pending}\nShdPnd:\t0000000000000100\nCoreDumping:\t{dumping}\n"
        )
    }

    #[test]
    fn a_status_is_read() {
        let parse = |state, pending, dumping| Status::parse(&text(state, pending, dumping));
        let parked = parse("I (idle)", "0000000000000000", "1").unwrap();
        assert_eq!((parked.threads, parked.namespaces), (3, 2));
        assert!(parked.is_dumping && parked.is_parked && !parked.is_to_be_killed);
        let killed = parse("D (disk sleep)", "0000000000000100", "1").unwrap();
        assert!(killed.is_to_be_killed, "it may be returning to user code");
        let running = parse("R (running)", "0000000000000001", "0").unwrap();
        assert!(!running.is_parked && !running.is_to_be_killed && !running.is_dumping);
        assert_eq!(Status::parse("Name:\tx\nState:\tR (running)\nThreads:\t1\n"), None);
    }

    #[test]
    fn a_dump_counts_when_all_threads_have_stopped() {
        let thread = |state, pending| Status::parse(&text(state, pending, "1")).unwrap();
        let parked = thread("I (idle)", "0");
        let dumping = thread("R (running)", "0");
        assert_eq!(parked.threads, 3);
        assert!(no_code_runs(&[dumping, parked, parked], &parked));
        assert!(no_code_runs(&[parked, parked, parked], &parked), "it waits for the disk");
        // One runs user code until it takes its SIGKILL.
        assert!(!no_code_runs(&[parked, parked, thread("R (running)", "100")], &parked));
        assert!(!no_code_runs(&[parked, parked, thread("D (disk sleep)", "100")], &parked));
        // One is about to end, or is a thread of a process that shares the memory of a dumping one.
        assert!(!no_code_runs(&[dumping, parked, dumping], &parked));
        // One was skipped; the dump is over.
        assert!(!no_code_runs(&[dumping, parked], &parked));
        let over = Status::parse(&text("I (idle)", "0", "0")).unwrap();
        assert!(!no_code_runs(&[dumping, parked, parked], &over));
    }

    #[test]
    fn questions_are_rare() {
        let turns = Turns::default();
        let asked = (1..=100).filter(|ms| turns.take(1_000_000_000 + ms * 1_000_000));
        assert_eq!(asked.collect::<Vec<_>>(), [1, 21, 41, 61, 81]);
    }

    #[test]
    fn the_living_have_not_stopped() {
        let us = std::process::id();
        assert!(!is_dumping(us));
        let here = KernelContext::current().pid_namespace;
        assert!(!has_stopped_for_good(us, here, usize::MAX));
        assert!(!has_stopped_for_good(u32::MAX, here, usize::MAX), "no such process");
    }
}
