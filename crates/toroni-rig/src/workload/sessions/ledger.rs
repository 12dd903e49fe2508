//! What has been moved, until when it counts, and what each completion costs.

use super::{Delay, Plan};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Shared by all threads of a run.
#[derive(Debug)]
pub struct Ledger {
    deadline: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    delay: Option<(Delay, Duration)>,
}

impl Ledger {
    /// The time begins now.
    #[must_use]
    pub fn begin(plan: &Plan) -> Self {
        let delay = Duration::from_micros(plan.delay_us.into());
        Self {
            deadline: Instant::now() + Duration::from_millis(plan.milliseconds.into()),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            delay: (!delay.is_zero()).then_some((plan.delay, delay)),
        }
    }

    /// How long it still lasts; nothing once it is over.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Counts a completed read, and takes the time of its callback. False once the time is over.
    pub fn read(&self, bytes: usize) -> bool {
        self.count(&self.received, bytes)
    }

    /// Counts a completed write, and takes the time of its callback. False once the time is over.
    pub fn written(&self, bytes: usize) -> bool {
        self.count(&self.sent, bytes)
    }

    /// Bytes that were sent and received by clients and servers.
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
