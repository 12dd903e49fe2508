//! Measures how long a worker was held up, and what is known of the reason.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use system_tests::counters::{Phase, SharedCounters};
use system_tests::soak::progress_record::{Count, ProgressRecord};
use system_tests::soak::stalls::{LONG_NS, Stall, now_ns, queued_ns_in};

/// Times between two looks at what other stalls have cost before: what happens in between is counted to
/// the next long one.
const CHECK_EVERY: Duration = Duration::from_millis(5);
const POLICY_EVERY: Duration = Duration::from_millis(50);

/// A stopwatch that knows when its worker was stopped, or all workers told to pause.
pub(crate) struct Measure {
    since: Option<Instant>,
    epoch: (u64, u64),
    schedstat: Option<File>,
    checked: Instant,
    queued_ns: u64,
    asked: Instant,
    policy_ns: u64,
}

impl Measure {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        // Without it (CONFIG_SCHED_INFO), nothing is known of the queue.
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        Self {
            since: None,
            epoch: (0, 0),
            schedstat,
            checked: now,
            queued_ns: 0,
            asked: now,
            policy_ns: 0,
        }
    }

    /// A time begins. `policy` says how long the policy has made this worker wait so far.
    pub(crate) fn begin(
        &mut self,
        counters: &SharedCounters,
        record: &ProgressRecord,
        policy: impl FnOnce() -> u64,
    ) {
        let now = Instant::now();
        // What begins in a pause lasts as long as it.
        self.since = (counters.phase() == Phase::Run).then_some(now);
        self.epoch = (counters.pauses(), record.get(Count::Disturbed));
        if now - self.checked >= CHECK_EVERY {
            self.checked = now;
            self.queued_ns = self.read_queued_ns();
        }
        if now - self.asked >= POLICY_EVERY {
            self.asked = now;
            self.policy_ns = policy();
        }
    }

    /// It does not count.
    pub(crate) fn forget(&mut self) {
        self.since = None;
    }

    /// It ends. The stall, if it was a long one.
    pub(crate) fn end(
        &mut self,
        counters: &SharedCounters,
        record: &ProgressRecord,
        policy: impl FnOnce() -> u64,
    ) -> Option<Stall> {
        let since = self.since.take()?;
        if self.epoch != (counters.pauses(), record.get(Count::Disturbed)) {
            return None;
        }
        let length_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        record.add_time(length_ns);
        if length_ns < LONG_NS {
            return None;
        }
        let (queued_before, policy_before) = (self.queued_ns, self.policy_ns);
        (self.queued_ns, self.policy_ns) = (self.read_queued_ns(), policy());
        (self.checked, self.asked) = (Instant::now(), Instant::now());
        Some(Stall {
            start_ns: now_ns().saturating_sub(length_ns),
            length_ns,
            queued_ns: self.queued_ns.saturating_sub(queued_before).min(length_ns),
            policy_ns: self.policy_ns.saturating_sub(policy_before).min(length_ns),
        })
    }

    fn read_queued_ns(&self) -> u64 {
        let mut bytes = [0; 64];
        let read = self.schedstat.as_ref().and_then(|file| file.read_at(&mut bytes, 0).ok());
        queued_ns_in(&String::from_utf8_lossy(&bytes[..read.unwrap_or(0)]))
    }
}
