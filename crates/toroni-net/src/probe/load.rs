//! Load: full datagrams at a rate, to see what the network does under it.
//!
//! A switch with Ethernet flow control stops this host by pause frames as soon as one port is too slow, and a card may be
//! slower than it says. Then datagrams wait in the kernel until it takes no more: that share is counted here. What a switch
//! drops instead, the other hosts count.

use std::time::Duration;

/// The length of the datagrams, in bytes.
pub(super) const DATAGRAM: u16 = 1_408;
/// What it takes on an Ethernet.
const WIRE_BITS: u64 = (DATAGRAM as u64 + 66) * 8;
/// What could not be sent for this long is left out.
const PATIENCE: Duration = Duration::from_millis(10);
/// How many are sent at a time.
const AT_ONCE: u64 = 64;
/// How often it is looked at.
pub(super) const EVERY: Duration = Duration::from_millis(1);

/// Sends at a rate.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bits per second.
    rate: u64,
    /// Datagrams that were sent or left out.
    done: u64,
    sent: u64,
    refused: u64,
    /// Whether the kernel took no more at the last attempt.
    is_blocked: bool,
}

impl Load {
    pub(super) const fn new(rate: u64) -> Self {
        Self { rate, done: 0, sent: 0, refused: 0, is_blocked: false }
    }

    /// Returns the rate in bits per second, counted as on an Ethernet.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns how many datagrams were sent.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the share of the datagrams that the kernel did not take in time. What is not sent because this process does
    /// not run is none of it.
    #[must_use]
    pub fn refused(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = self.refused as f64 / (self.refused + self.sent).max(1) as f64;
        share
    }

    /// Returns how many datagrams are due now, counted from the start.
    fn all(&self, now: Duration) -> u64 {
        let bits = now.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(bits / u128::from(WIRE_BITS)).unwrap_or(u64::MAX)
    }

    /// Sends what is due: `send` says whether the kernel took the datagram with this number.
    pub(super) fn turn(&mut self, now: Duration, mut send: impl FnMut(u64) -> bool) {
        let due = self.all(now);
        let oldest = self.all(now.saturating_sub(PATIENCE)).min(due.saturating_sub(1));
        if let Some(late) = oldest.checked_sub(self.done).filter(|late| *late > 0) {
            self.done = oldest;
            if self.is_blocked {
                self.refused += late;
            }
        }
        self.is_blocked = false;
        for _ in 0..AT_ONCE {
            if self.done >= due {
                break;
            }
            if !send(self.sent) {
                self.is_blocked = true;
                break;
            }
            self.sent += 1;
            self.done += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends for a second, of which the kernel takes this share, with a look each millisecond but where it does not run.
    fn after_a_second(rate: u64, takes: f64, runs: impl Fn(u64) -> bool) -> Load {
        let mut load = Load::new(rate);
        for ms in (1..=1_000).filter(|ms| runs(*ms)) {
            let now = Duration::from_millis(ms);
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            load.turn(now, |sent| (sent as f64) < takes * ms as f64 * rate as f64 / 1e3 / 11_792.0);
        }
        load
    }

    #[test]
    fn a_network_that_takes_everything_gets_the_rate() {
        let load = after_a_second(11_792_000, 2.0, |_| true);
        assert_eq!((load.sent(), load.refused()), (1_000, 0.0));
    }

    #[test]
    fn what_the_kernel_does_not_take_is_its_refusal() {
        let load = after_a_second(11_792_000, 0.25, |_| true);
        assert!((240..=260).contains(&load.sent()), "{load:?}");
        assert!((0.72..0.76).contains(&load.refused()), "{load:?}");
    }

    #[test]
    fn a_process_that_does_not_run_is_no_refusal() {
        let load = after_a_second(11_792_000, 2.0, |ms| !(200..700).contains(&ms));
        assert!((500..=520).contains(&load.sent()), "{load:?}");
        assert!(load.refused() < 1e-9, "{load:?}");
    }
}
