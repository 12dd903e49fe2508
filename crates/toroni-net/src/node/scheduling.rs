//! Scheduling: on which processor a node runs, and before whom (man 7 sched).
//!
//! `realtime` is the class SCHED_FIFO. A thread of it runs before all others that share time, until it sleeps. So together
//! with `poll = "busy"`, which never sleeps, it has its processor for itself.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use thiserror::Error;

/// Why the calling thread cannot run as it should.
#[derive(Debug, Error)]
pub enum SchedulingError {
    /// It cannot run on this processor.
    #[error(
        "cannot run on processor {cpu}: {source}: choose one of those that `nproc` and the cgroup allow"
    )]
    Processor {
        /// Its number.
        cpu: u32,
        /// The error of the kernel.
        source: io::Error,
    },
    /// It may not have this priority.
    #[error(
        "cannot run with SCHED_FIFO, priority {priority}: {source}: give the process CAP_SYS_NICE, or a limit as \
         `LimitRTPRIO={priority}` of systemd and `ulimit -r {priority}` set it"
    )]
    Realtime {
        /// The priority.
        priority: u8,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// Makes the calling thread run on this processor only.
///
/// # Errors
/// [`SchedulingError::Processor`].
pub fn stay_on(cpu: u32) -> Result<(), SchedulingError> {
    let mut set = CpuSet::new();
    let refused = |source| SchedulingError::Processor { cpu, source };
    let place = usize::try_from(cpu).unwrap_or(usize::MAX);
    if place >= CpuSet::MAX_CPU {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    set.set(place);
    sched_setaffinity(None, &set).map_err(|error| refused(error.into()))
}

/// Gives the calling thread this priority in SCHED_FIFO, 1 to 99.
///
/// # Errors
/// [`SchedulingError::Realtime`].
pub fn realtime(priority: u8) -> Result<(), SchedulingError> {
    let parameters = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: the kernel reads the structure, which lives longer than the call. 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 {
        return Ok(());
    }
    Err(SchedulingError::Realtime { priority, source: io::Error::last_os_error() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_not_there_is_named() {
        let error = stay_on(1_000_000).unwrap_err();
        assert!(error.to_string().starts_with("cannot run on processor 1000000: "), "{error}");
    }

    #[test]
    fn a_thread_has_the_priority_or_learns_what_it_lacks() {
        // Another thread, which ends.
        let priority = || realtime(1).map(|()| std::fs::read_to_string("/proc/thread-self/stat"));
        match std::thread::spawn(priority).join().unwrap() {
            Ok(stat) => {
                // After the name in brackets, the 39th field of man 5 proc_pid_stat is the policy.
                let stat = stat.unwrap();
                let policy = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38);
                assert_eq!(policy, Some("1"));
            }
            Err(error) => assert!(error.to_string().contains("CAP_SYS_NICE"), "{error}"),
        }
    }
}
