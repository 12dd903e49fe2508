//! Whether the kernel's clock follows a better one (man 2 adjtimex). Latencies between hosts are differences of two
//! clocks.

use std::io;
use std::time::Duration;

/// What the kernel knows about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Whether a program such as chrony, ntpd or ptp4l keeps it right.
    pub is_synchronised: bool,
    /// The greatest difference from true time that the program, or else the kernel, believes possible.
    pub greatest_error: Duration,
    /// The difference that it believes likely.
    pub likely_error: Duration,
}

impl Discipline {
    /// Asks the kernel. Changes nothing.
    ///
    /// # Errors
    /// If the system call is forbidden.
    pub fn read() -> io::Result<Self> {
        // SAFETY: a structure of zeros is valid: numbers only, and modes 0 changes nothing.
        let mut clock: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes to the structure, which is borrowed exclusively.
        let state = unsafe { libc::adjtimex(&raw mut clock) };
        if state < 0 {
            return Err(io::Error::last_os_error());
        }
        let microseconds =
            |value: libc::c_long| Duration::from_micros(u64::try_from(value).unwrap_or(0));
        Ok(Self {
            is_synchronised: state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0,
            greatest_error: microseconds(clock.maxerror),
            likely_error: microseconds(clock.esterror),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        let clock = Discipline::read().unwrap();
        // Of a clock that nothing keeps right, the error grows to 16 s and stays there.
        assert!(clock.greatest_error <= Duration::from_secs(17), "{clock:?}");
        assert!(clock.is_synchronised || clock.greatest_error > Duration::ZERO, "{clock:?}");
    }
}
