//! The bytes that have been moved, the time until which they count, and the delay of each completion.

use super::{Delay, Plan};
use crate::Failure;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The counters and the deadline of a run, shared by all of its threads.
#[derive(Debug)]
pub struct Ledger {
    deadline: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    delay: Option<(Delay, Duration)>,
    #[cfg(test)]
    goal: Option<testing::Goal>,
}

impl Ledger {
    /// Starts the time of a run.
    #[must_use]
    pub fn begin(plan: &Plan) -> Self {
        let delay = Duration::from_micros(plan.delay_us.into());
        Self {
            deadline: Instant::now() + Duration::from_millis(plan.milliseconds.into()),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            delay: (!delay.is_zero()).then_some((plan.delay, delay)),
            #[cfg(test)]
            goal: None,
        }
    }

    /// Returns how long the run still lasts, or `None` when it is over.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        #[cfg(test)]
        let left = self.goal.as_ref().map_or(left, |goal| goal.left(left));
        (!left.is_zero()).then_some(left)
    }

    /// Returns how an end fared. A failure after the time is over is none: the other end may have closed the connection.
    ///
    /// # Errors
    /// The failure, if the run still lasts.
    pub fn settle(&self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        if self.left().is_some() { outcome } else { Ok(()) }
    }

    /// Counts a completed read, and spends the delay of its callback. Returns false when the time is over.
    pub fn read(&self, bytes: usize) -> bool {
        self.count(&self.received, bytes)
    }

    /// Counts a completed write, and spends the delay of its callback. Returns false when the time is over.
    pub fn written(&self, bytes: usize) -> bool {
        self.count(&self.sent, bytes)
    }

    /// Returns the bytes that clients and servers have sent and received.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) + self.received.load(Ordering::Relaxed)
    }

    fn count(&self, counter: &AtomicU64, bytes: usize) -> bool {
        if self.left().is_none() {
            return false;
        }
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        match self.delay {
            None => {}
            Some((Delay::Sleep, time)) => thread::sleep(time),
            Some((Delay::Spin, time)) => {
                let end = Instant::now() + time;
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
        }
        true
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! For tests: a run ends when each end has received enough, and not by the clock. So a busy machine has as long as it
    //! needs, and a connection that stands still is noticed beside others that move.

    use super::super::sockets::ConnectionEnd;
    use super::*;
    use std::sync::Arc;

    /// Much longer than a test takes.
    const LOST: Duration = Duration::from_secs(30);
    /// How often threads that wait for events check for the end, which wakes none of them.
    const CHECK_INTERVAL: Duration = Duration::from_millis(5);

    #[derive(Debug)]
    pub(super) struct Goal {
        bytes: u64,
        /// Bytes that each end has received.
        received: Vec<Arc<AtomicU64>>,
    }

    impl Goal {
        fn is_reached(&self) -> bool {
            self.received.iter().all(|received| received.load(Ordering::Relaxed) >= self.bytes)
        }

        pub(super) fn left(&self, left: Duration) -> Duration {
            if self.is_reached() { Duration::ZERO } else { left.min(CHECK_INTERVAL) }
        }
    }

    impl Ledger {
        /// Starts a run that is over when each end of these connections has received this number of bytes.
        pub(crate) fn until_each_received(
            bytes: u64,
            plan: &Plan,
            connections: &mut [ConnectionEnd],
        ) -> Self {
            let received = connections.iter_mut().map(|it| it.end.watched()).collect();
            let mut ledger = Self::begin(plan);
            ledger.deadline = Instant::now() + LOST;
            ledger.goal = Some(Goal { bytes, received });
            ledger
        }

        #[track_caller]
        pub(crate) fn assert_reached(&self, what: &str) {
            let goal = self.goal.as_ref().unwrap();
            assert!(goal.is_reached(), "{what}: a connection stands still: {:?}", goal.received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_may_be_closed_once_the_time_is_over() {
        let reset = || Err(Failure::new("cannot read: Connection reset by peer"));
        let plan = Plan { milliseconds: 60_000, ..Plan::short(1, 1, 8, 0) };
        assert!(Ledger::begin(&plan).settle(reset()).is_err());
        let over = Ledger::begin(&Plan { milliseconds: 0, ..plan });
        assert!(over.settle(reset()).is_ok());
    }
}
