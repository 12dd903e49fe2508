//! Snapshots of a bus, and the rates between them. Does no I/O: `source.rs` takes the snapshots.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::VecDeque;
use std::time::Duration;
use toroni_shell::human::as_f64;

/// The state of a bus at one moment. All numbers come from shared memory, so any of them may be nonsense.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// When it was taken, since `top` started.
    pub(super) at: Duration,
    /// When it was taken, in seconds since 1970.
    pub(super) time: f64,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) capacity: u64,
    pub(super) policy: String,
    pub(super) can_wait: bool,
    pub(super) lock: String,
    pub(super) tail: u64,
    pub(super) sequence: u64,
    pub(super) oldest_position: u64,
    pub(super) topics: u32,
    pub(super) max_publishers: u32,
    pub(super) max_subscribers: u32,
    pub(super) owner: Option<Owner>,
    /// `None` if this process may not read them.
    pub(super) publishers: Option<Vec<Publisher>>,
    /// Without the subscriber of `top` itself. `None` if this process may not read them.
    pub(super) subscribers: Option<Vec<Subscriber>>,
}

/// A process that has a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Participant {
    pub(super) slot: u32,
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) same_pid_namespace: bool,
    pub(super) alive: bool,
    pub(super) stopped: bool,
    pub(super) dumping: bool,
    /// When it took the slot, in ns since 1970: tells it from the next participant in the slot.
    pub(super) started_ns: u128,
}

impl Participant {
    fn is_same(&self, other: &Self) -> bool {
        (self.slot, self.pid, self.started_ns) == (other.slot, other.pid, other.started_ns)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Publisher {
    pub(super) who: Participant,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) waited: Duration,
    pub(super) overwrites: u64,
    pub(super) wakes: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Subscriber {
    pub(super) who: Participant,
    pub(super) gating: bool,
    pub(super) position: u64,
    pub(super) lag_bytes: u64,
    pub(super) received: u64,
    pub(super) lost_messages: u64,
    pub(super) lapses: u64,
    /// Messages that it was told were lost on the way to the bus.
    pub(super) lost_on_the_way: u64,
    pub(super) lapped_now: bool,
}

/// The owner of the writer lock at the moment of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) slot: Option<u32>,
    pub(super) pid: Option<u32>,
    pub(super) exclusive: bool,
    pub(super) alive: Option<bool>,
    pub(super) stopped: bool,
    pub(super) dumping: bool,
}

impl Owner {
    fn is_same(&self, other: &Self) -> bool {
        (self.slot, self.pid, self.exclusive) == (other.slot, other.pid, other.exclusive)
    }
}

/// A loss that was seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loss {
    /// When it was seen.
    pub(super) at: Duration,
    /// In seconds since 1970.
    pub(super) time: f64,
    pub(super) who: String,
    /// The slot of the subscriber; `None` for messages that did not arrive on the bus.
    pub(super) slot: Option<u32>,
    pub(super) messages: u64,
    /// Whether `messages` is exact, a minimum or a maximum.
    pub(super) bound: &'static str,
    pub(super) reason: String,
}

/// How many losses are kept.
const MOST_LOSSES: usize = 1000;
/// How far back positions are remembered, to tell how long ago a message was published.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The number of remembered positions does not depend on the interval.
const MOST_POINTS: usize = 4096;
/// Rates for estimates are those of this time.
const STEADY: Duration = Duration::from_secs(5);
/// The number of rates in the small chart.
const MOST_RATES: usize = 24;

/// What was seen of one bus since `top` opened it.
#[derive(Default)]
pub(super) struct History {
    pub(super) current: Option<Snapshot>,
    pub(super) previous: Option<Snapshot>,
    /// The times and ends of the stream of the snapshots.
    points: VecDeque<(Duration, u64)>,
    /// Messages per second of the latest intervals, the newest last.
    pub(super) rates: VecDeque<f64>,
    /// The newest last.
    pub(super) losses: VecDeque<Loss>,
    /// Since when the same process has had the writer lock, without publishing.
    pub(super) held_since: Option<Duration>,
}

impl History {
    /// Adds a snapshot. That of another bus with the same name starts a new history; only the losses stay.
    pub(super) fn add(&mut self, snapshot: Snapshot) {
        let is_other = self.current.as_ref().is_some_and(|current| {
            // Positions only grow on one bus, unless it is corrupt.
            current.id != snapshot.id || snapshot.tail < current.tail || snapshot.at < current.at
        });
        if is_other {
            *self = Self { losses: std::mem::take(&mut self.losses), ..Self::default() };
        }
        self.previous = self.current.take();
        self.points.push_back((snapshot.at, snapshot.tail));
        while self.points.len() > MOST_POINTS
            || self
                .points
                .front()
                .is_some_and(|(at, _)| snapshot.at.saturating_sub(*at) > REMEMBERED)
        {
            self.points.pop_front();
        }
        self.held_since = self.held_since_with(&snapshot);
        self.current = Some(snapshot);
        if let Some(rate) = self.messages_per_second() {
            self.rates.push_back(rate);
            if self.rates.len() > MOST_RATES {
                self.rates.pop_front();
            }
        }
        self.note_lapses();
    }

    fn held_since_with(&self, snapshot: &Snapshot) -> Option<Duration> {
        let previous = self.previous.as_ref()?;
        let (was, is) = (previous.owner.as_ref()?, snapshot.owner.as_ref()?);
        // A busy publisher is often seen with the lock, but then the stream grows.
        let is_held =
            was.is_same(is) && (is.exclusive || is.stopped || previous.tail == snapshot.tail);
        is_held.then(|| self.held_since.unwrap_or(previous.at))
    }

    fn note_lapses(&mut self) {
        let (Some(previous), Some(current)) = (&self.previous, &self.current) else { return };
        let mut found = Vec::new();
        for subscriber in current.subscribers.iter().flatten() {
            let before = same_subscriber(previous, &subscriber.who);
            let (lost, lapses) =
                before.map_or((0, 0), |before| (before.lost_messages, before.lapses));
            let lapses = subscriber.lapses.saturating_sub(lapses);
            let messages = subscriber.lost_messages.saturating_sub(lost);
            if lapses == 0 && messages == 0 {
                continue;
            }
            let times = if lapses > 1 { format!(" {lapses} times") } else { String::new() };
            found.push(Loss {
                at: current.at,
                time: current.time,
                who: subscriber.who.name.clone(),
                slot: Some(subscriber.who.slot),
                messages,
                bound: "exact",
                reason: format!("overtaken{times}: it read too slowly"),
            });
        }
        for loss in found {
            self.note(loss);
        }
    }

    /// Adds a loss to the list.
    pub(super) fn note(&mut self, loss: Loss) {
        if self.losses.len() >= MOST_LOSSES {
            self.losses.pop_front();
        }
        self.losses.push_back(loss);
    }

    /// Returns the time between the last two snapshots, if there are two.
    pub(super) fn interval(&self) -> Option<Duration> {
        let (previous, current) = (self.previous.as_ref()?, self.current.as_ref()?);
        Some(current.at.saturating_sub(previous.at)).filter(|interval| !interval.is_zero())
    }

    /// Returns how fast a counter grew in the last interval.
    pub(super) fn per_second(&self, before: u64, now: u64) -> Option<f64> {
        Some(as_f64(now.saturating_sub(before)) / self.interval()?.as_secs_f64())
    }

    pub(super) fn messages_per_second(&self) -> Option<f64> {
        self.per_second(self.previous.as_ref()?.sequence, self.current.as_ref()?.sequence)
    }

    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        self.per_second(self.previous.as_ref()?.tail, self.current.as_ref()?.tail)
    }

    pub(super) fn publisher_before(&self, who: &Participant) -> Option<&Publisher> {
        self.previous.as_ref()?.publishers.iter().flatten().find(|one| one.who.is_same(who))
    }

    pub(super) fn subscriber_before(&self, who: &Participant) -> Option<&Subscriber> {
        same_subscriber(self.previous.as_ref()?, who)
    }

    /// Returns the bytes per second of the last 5 s.
    fn steady_bytes_per_second(&self) -> Option<f64> {
        let (now, tail) = *self.points.back()?;
        let (then, before) =
            *self.points.iter().find(|(at, _)| now.saturating_sub(*at) <= STEADY)?;
        let seconds = now.saturating_sub(then).as_secs_f64();
        (seconds > 0.0).then(|| as_f64(tail.saturating_sub(before)) / seconds)
    }

    /// Returns how long ago the byte at `position` was published.
    pub(super) fn age(&self, position: u64) -> Option<Age> {
        let (now, tail) = *self.points.back()?;
        if position >= tail {
            return Some(Age { seconds: 0.0, how: How::Measured });
        }
        let next = self.points.partition_point(|(_, end)| *end <= position);
        if let Some(before) = next.checked_sub(1)
            && let (Some((from, low)), Some((to, high))) =
                (self.points.get(before), self.points.get(next))
        {
            let share =
                as_f64(position.saturating_sub(*low)) / as_f64(high.saturating_sub(*low).max(1));
            let published = from.as_secs_f64() + share * (to.as_secs_f64() - from.as_secs_f64());
            return Some(Age { seconds: now.as_secs_f64() - published, how: How::Measured });
        }
        // Published before the first snapshot.
        let (first, _) = *self.points.front()?;
        let at_least = now.saturating_sub(first).as_secs_f64();
        let rate = self.steady_bytes_per_second().filter(|rate| *rate > 0.0);
        match rate.map(|rate| as_f64(tail.saturating_sub(position)) / rate) {
            Some(estimate) if estimate >= at_least => {
                Some(Age { seconds: estimate, how: How::Estimated })
            }
            _ => (at_least > 0.0).then_some(Age { seconds: at_least, how: How::AtLeast }),
        }
    }
}

fn same_subscriber<'a>(snapshot: &'a Snapshot, who: &Participant) -> Option<&'a Subscriber> {
    snapshot.subscribers.iter().flatten().find(|one| one.who.is_same(who))
}

/// How long ago something was published.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Age {
    pub(super) seconds: f64,
    pub(super) how: How,
}

/// How an age is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// From the ends of the stream at two snapshots.
    Measured,
    /// From the rate of the last 5 s.
    Estimated,
    /// It was published before `top` started.
    AtLeast,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(seconds: u64, tail: u64) -> Snapshot {
        let at = Duration::from_secs(seconds);
        Snapshot { at, id: "a".to_owned(), tail, sequence: tail / 10, ..Snapshot::default() }
    }

    #[test]
    fn ages_are_measured_where_snapshots_reach_and_estimated_before() {
        let mut history = History::default();
        assert_eq!(history.age(0), None);
        history.add(snapshot(10, 1000));
        assert_eq!(history.age(900), None, "one snapshot has no rate");
        history.add(snapshot(12, 3000));
        let age = |seconds, how| Some(Age { seconds, how });
        assert_eq!(history.age(3000), age(0.0, How::Measured));
        assert_eq!(history.age(2000), age(1.0, How::Measured));
        assert_eq!(history.age(0), age(3.0, How::Estimated));
        // Nothing is published any more: what is waiting gets older all the same.
        history.add(snapshot(20, 3000));
        assert_eq!(history.age(2000), age(9.0, How::Measured));
        assert_eq!(history.age(500), age(10.0, How::AtLeast));
    }

    #[test]
    fn a_rate_is_that_of_the_last_interval() {
        let mut history = History::default();
        history.add(snapshot(0, 0));
        assert_eq!(history.messages_per_second(), None);
        history.add(snapshot(1, 5000));
        history.add(snapshot(3, 6000));
        assert_eq!(history.messages_per_second(), Some(50.0));
        assert_eq!(history.bytes_per_second(), Some(500.0));
        assert_eq!(history.rates, [500.0, 50.0]);
    }

    #[test]
    fn another_bus_of_the_same_name_has_a_history_of_its_own() {
        let mut history = History::default();
        history.add(snapshot(0, 0));
        history.add(snapshot(1, 5000));
        history.add(Snapshot { id: "b".to_owned(), ..snapshot(2, 9000) });
        assert_eq!((history.messages_per_second(), history.rates.len()), (None, 0));
        // A stream that shrinks is not the same one, whatever its id.
        history.add(Snapshot { id: "b".to_owned(), ..snapshot(3, 8000) });
        assert_eq!(history.messages_per_second(), None);
    }

    fn lapsed(seconds: u64, lapses: u64, lost_messages: u64) -> Snapshot {
        let who = Participant { name: "vision".to_owned(), slot: 4, ..Participant::default() };
        let one = Subscriber { who, lapses, lost_messages, ..Subscriber::default() };
        Snapshot { subscribers: Some(vec![one]), ..snapshot(seconds, 0) }
    }

    #[test]
    fn lapses_become_losses_with_their_counts() {
        let mut history = History::default();
        history.add(lapsed(0, 3, 700));
        assert!(history.losses.is_empty(), "what was before is in the counters only");
        history.add(lapsed(1, 3, 700));
        history.add(lapsed(2, 5, 900));
        assert_eq!(history.losses.len(), 1);
        let loss = &history.losses[0];
        assert_eq!((loss.messages, loss.slot, loss.who.as_str()), (200, Some(4), "vision"));
        assert!(loss.reason.contains("2 times"), "{loss:?}");
        for second in 0..2 * MOST_LOSSES as u64 {
            history.add(lapsed(3 + second, 6 + second, 901 + second));
        }
        assert_eq!(history.losses.len(), MOST_LOSSES);
    }

    #[test]
    fn a_lock_is_held_if_nothing_is_published_between_two_looks() {
        let owned = |seconds, tail, exclusive| Snapshot {
            owner: Some(Owner { slot: Some(1), pid: Some(7), exclusive, ..Owner::default() }),
            ..snapshot(seconds, tail)
        };
        let mut history = History::default();
        history.add(owned(0, 0, false));
        assert_eq!(history.held_since, None);
        history.add(owned(1, 100, false));
        assert_eq!(history.held_since, None, "it publishes");
        history.add(owned(2, 100, false));
        history.add(owned(3, 100, false));
        assert_eq!(history.held_since, Some(Duration::from_secs(1)));
        history.add(snapshot(4, 100));
        assert_eq!(history.held_since, None);
        history.add(owned(5, 100, true));
        history.add(owned(6, 200, true));
        assert_eq!(history.held_since, Some(Duration::from_secs(5)), "an exclusive one keeps it");
    }
}
