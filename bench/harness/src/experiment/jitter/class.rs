//! Scheduling classes: how urgently the kernel runs a process that has something to do.

use crate::Failure;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fs;

/// The class in which the processes of a run are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(super) enum Class {
    /// `SCHED_OTHER` with nice 0, as programs are started.
    Other,
    /// `SCHED_OTHER` with nice −20, the best that time sharing offers.
    Nice,
    /// `SCHED_FIFO` with priority 10: before every process that shares time.
    Fifo,
}

pub(super) const CLASSES: [Class; 3] = [Class::Other, Class::Nice, Class::Fifo];

/// Above the default of 0, and below the threads of the kernel that handle interrupts (50).
const FIFO_PRIORITY: i32 = 10;

impl Class {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Nice => "nice −20",
            Self::Fifo => "FIFO",
        }
    }

    /// Puts the calling thread, and what it starts later, into this class.
    ///
    /// # Errors
    /// If this process may not do that: see `sched(7)`.
    pub(super) fn enter(self) -> Result<(), Failure> {
        match self {
            Self::Other => Ok(()),
            Self::Nice => {
                rustix::process::setpriority_process(None, -20).map_err(Failure::of("set nice −20"))
            }
            Self::Fifo => {
                let parameters = libc::sched_param { sched_priority: FIFO_PRIORITY };
                // SAFETY: the call reads the struct, which lives longer than the call. 0 is this thread.
                let result =
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
                if result == 0 {
                    return Ok(());
                }
                Err(Failure::of("set SCHED_FIFO")(std::io::Error::last_os_error()))
            }
        }
    }

    /// Checks whether this process may enter the class, without entering it.
    ///
    /// # Errors
    /// See [`Class::enter`].
    pub(super) fn check(self) -> Result<(), Failure> {
        // Both calls change the thread that makes them, and no other.
        let tried = std::thread::spawn(move || self.enter()).join();
        tried.unwrap_or_else(|_| Err(Failure::new("the check of a scheduling class panicked")))
    }
}

/// Returns the time in each period that the kernel leaves to real-time processes, in words. Outside of it they stand
/// still, however urgent they are.
pub(super) fn real_time_share() -> Option<String> {
    let read = |name| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse::<i64>().ok()
    };
    let (runtime, period) = (read("sched_rt_runtime_us")?, read("sched_rt_period_us")?);
    Some(if runtime < 0 {
        "all of the time".to_owned()
    } else {
        format!("{} ms in {} ms", runtime / 1000, period / 1000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_this_thread_as_it_was() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        for class in CLASSES {
            // Whether it is permitted depends on who runs the test.
            let _ = class.check();
            assert_eq!(nice(), before);
        }
        Class::Other.check().unwrap();
    }

    #[test]
    fn a_thread_that_enters_a_class_is_in_it() {
        std::thread::spawn(|| {
            if Class::Nice.enter().is_ok() {
                assert_eq!(rustix::process::getpriority_process(None).unwrap(), -20);
            }
            if Class::Fifo.enter().is_ok() {
                // SAFETY: the call takes no pointer. 0 is this thread.
                assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_FIFO);
            }
        })
        .join()
        .unwrap();
    }
}
