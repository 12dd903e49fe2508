//! How long the living were held up, and why.

use std::collections::VecDeque;

/// Stalls from this length on are reported one by one, with what is known of their causes.
pub const LONG_NS: u64 = 100_000_000;
/// Words of a histogram.
pub const BUCKETS: usize = 64 * 8;

/// The bucket of a time in nanoseconds: eight for each power of two.
#[must_use]
pub fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let octave = 63 - ns.leading_zeros();
    let eighth = ns >> (octave - 3) & 7;
    (octave as usize) << 3 | usize::try_from(eighth).unwrap_or(0)
}

/// The longest time of a bucket, in nanoseconds.
#[must_use]
pub fn longest_of(bucket: usize) -> u64 {
    let (octave, eighth) = ((bucket >> 3).clamp(3, 63), (bucket & 7) as u64);
    let width = 1_u64 << (octave - 3);
    (1_u64 << octave).saturating_add(width * (eighth + 1) - 1)
}

/// The time of CLOCK_MONOTONIC, the same in all processes, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// In the text of a `schedstat` in `/proc`: how long a thread was ready and waited for a processor, in
/// nanoseconds (Documentation/scheduler/sched-stats.rst).
#[must_use]
pub fn queued_ns_in(text: &str) -> u64 {
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A count of times.
#[derive(Clone, Debug)]
pub struct Times {
    buckets: Vec<u64>,
    longest_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], longest_ns: 0 }
    }
}

impl Times {
    /// Adds the counts of a worker, in the order of [`bucket`], and its longest time.
    pub fn add(&mut self, buckets: &[u64], longest_ns: u64) {
        self.buckets.iter_mut().zip(buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.longest_ns = self.longest_ns.max(longest_ns);
    }

    /// Adds one time, in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The longest, in nanoseconds.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// A time in nanoseconds that `of` in `among` do not exceed; up to 1/8 more than the true one.
    #[must_use]
    pub fn quantile_ns(&self, of: u64, among: u64) -> u64 {
        let wanted = u128::from(self.count()) * u128::from(of);
        let mut sum = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            sum += u128::from(*count) * u128::from(among);
            if sum >= wanted && sum > 0 {
                return longest_of(bucket).min(self.longest_ns);
            }
        }
        0
    }
}

/// A time in which a worker was held up. Times in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    pub start_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// Of that, ready to run and waiting for a processor (/proc/thread-self/schedstat).
    pub queued_ns: u64,
    /// Of that, waiting for slow subscribers as the policy says (the publisher's slot).
    pub policy_ns: u64,
}

/// What a stall came from: that which makes up half of it, asked in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The policy's wait for slow subscribers.
    Policy,
    /// Itself was ready, and no processor free.
    Queued,
    /// A publisher that the soak had stopped while it had the lock.
    Stopped,
    /// The owner of the lock, or the process that should publish, was ready, and no processor was free for it.
    OwnerQueued,
    /// A process that the soak had killed and that the kernel was still taking down.
    Killed,
    /// Nothing was published: publishers were at rest, or being replaced, or held up themselves. No cause for a
    /// publisher.
    Quiet,
    /// Several of these together.
    Mixed,
    Other,
}

impl Cause {
    /// What it is, for a table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Queued => "itself ready, no processor free",
            Self::Policy => "the policy's wait for a slow subscriber",
            Self::Stopped => "the lock's owner was stopped (SIGSTOP)",
            Self::OwnerQueued => "others ready, no processor free for them",
            Self::Killed => "a process that was being killed",
            Self::Quiet => "nothing was published meanwhile",
            Self::Mixed => "several of these together",
            Self::Other => "something else",
        }
    }
}

/// What was done to processes, and seen of them, lately. Times as in [`Stall`].
#[derive(Debug, Default)]
pub struct Disturbances(VecDeque<(Cause, u64, u64)>);

/// Causes that only the supervisor sees; the last is one for subscribers.
const SEEN: [Cause; 5] =
    [Cause::Policy, Cause::Stopped, Cause::OwnerQueued, Cause::Killed, Cause::Quiet];
/// How long disturbances are remembered.
const REMEMBERED_NS: u64 = 60_000_000_000;

impl Disturbances {
    /// Something lasted from then to then.
    pub fn add(&mut self, cause: Cause, start_ns: u64, end_ns: u64) {
        while self.0.front().is_some_and(|(.., end)| end + REMEMBERED_NS < end_ns) {
            self.0.pop_front();
        }
        self.0.push_back((cause, start_ns, end_ns));
    }

    /// Why this stall was, of a publisher or of a subscriber.
    #[must_use]
    pub fn cause(&self, is_publisher: bool, stall: &Stall) -> Cause {
        let half = stall.length_ns / 2;
        // A publisher that waits for a subscriber lets others run, and is ready meanwhile.
        if stall.policy_ns >= half {
            return Cause::Policy;
        }
        // So does a process that waits for the lock.
        if self.overlap_ns(&[Cause::Stopped], stall) >= half {
            return Cause::Stopped;
        }
        if stall.queued_ns >= half {
            return Cause::Queued;
        }
        let seen = if is_publisher { &SEEN[..4] } else { &SEEN };
        let covers = |cause: &&Cause| self.overlap_ns(&[**cause], stall) >= half;
        if let Some(cause) = seen.iter().find(covers) {
            return *cause;
        }
        let own = stall.policy_ns + stall.queued_ns;
        if own + self.overlap_ns(seen, stall) >= half { Cause::Mixed } else { Cause::Other }
    }

    /// What is known of a stall, in words.
    #[must_use]
    pub fn explain(&self, stall: &Stall) -> String {
        let mut words = format!(
            "{} ms, of which {} ms ready without a processor and {} ms by the policy",
            stall.length_ns / 1_000_000,
            stall.queued_ns / 1_000_000,
            stall.policy_ns / 1_000_000
        );
        for cause in SEEN {
            let overlap_ms = self.overlap_ns(&[cause], stall) / 1_000_000;
            words.push_str(&format!(", {overlap_ms} ms: {}", cause.words()));
        }
        words
    }

    /// How much of the stall disturbances of these kinds cover, in nanoseconds.
    fn overlap_ns(&self, causes: &[Cause], stall: &Stall) -> u64 {
        let stall_end = stall.start_ns + stall.length_ns;
        let of_this = self.0.iter().filter(|(one, ..)| causes.contains(one));
        let parts =
            of_this.map(|(_, start, end)| (*start.max(&stall.start_ns), *end.min(&stall_end)));
        let mut parts: Vec<(u64, u64)> = parts.filter(|(start, end)| start < end).collect();
        parts.sort_unstable();
        let (mut covered, mut until) = (0, 0);
        for (start, end) in parts {
            let start = start.max(until);
            covered += end.saturating_sub(start);
            until = until.max(end);
        }
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_times_that_differ_by_an_eighth() {
        let mut times = vec![0, 1, 8, 9, 1000, 1 << 40, u64::MAX];
        times.extend((0..63).map(|bit| (1_u64 << bit) + 1));
        for ns in times {
            let longest = longest_of(bucket(ns));
            assert!(longest >= ns && longest - ns <= ns / 8 + 8, "{ns} {longest}");
            assert!(bucket(ns) < BUCKETS);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut buckets = vec![0; BUCKETS];
        for ns in 1..=1000_u64 {
            buckets[bucket(ns * 1000)] += 1;
        }
        let mut times = Times::default();
        times.add(&buckets, 1_000_000);
        assert_eq!((times.count(), times.longest_ns()), (1000, 1_000_000));
        let half = times.quantile_ns(1, 2);
        assert!((500_000..570_000).contains(&half), "{half}");
        assert_eq!(times.quantile_ns(1, 1), 1_000_000);
        assert_eq!(Times::default().quantile_ns(999, 1000), 0);
    }

    #[test]
    fn the_cause_of_a_stall_is_what_covers_half_of_it() {
        let mut disturbances = Disturbances::default();
        disturbances.add(Cause::Stopped, 1000, 1300);
        disturbances.add(Cause::Stopped, 1200, 1500);
        disturbances.add(Cause::Killed, 2000, 3000);
        let stall = |start_ns, length_ns| Stall { start_ns, length_ns, ..Stall::default() };
        assert_eq!(disturbances.cause(true, &stall(1000, 1000)), Cause::Stopped);
        assert_eq!(disturbances.cause(true, &stall(300, 1100)), Cause::Other);
        assert_eq!(disturbances.cause(true, &stall(2500, 500)), Cause::Killed);
        assert_eq!(disturbances.cause(true, &stall(1200, 1400)), Cause::Mixed);
        disturbances.add(Cause::Quiet, 4000, 5000);
        assert_eq!(disturbances.cause(true, &stall(4000, 900)), Cause::Other);
        assert_eq!(disturbances.cause(false, &stall(4000, 900)), Cause::Quiet);
        let queued = Stall { queued_ns: 250, ..stall(2500, 500) };
        assert_eq!(disturbances.cause(true, &queued), Cause::Queued);
        let policy = Stall { policy_ns: 250, queued_ns: 400, ..stall(2500, 500) };
        assert_eq!(disturbances.cause(true, &policy), Cause::Policy);
    }
}
