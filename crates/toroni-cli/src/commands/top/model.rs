//! What `top` shows, made of snapshots. `--json` prints it as it is. Knows nothing of terminals.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::network::NetworkModel;
use super::sample::{Age, History, Loss, Owner, Participant, Publisher, Snapshot, Subscriber};
use serde::Serialize;
use std::time::Duration;
use toroni_shell::age::Summary;
use toroni_shell::human::as_f64;

/// One bus at the end of an interval. What needs two snapshots is `None` after the first.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct BusModel {
    pub(super) name: String,
    /// In seconds since 1970.
    pub(super) time: f64,
    pub(super) interval_seconds: Option<f64>,
    /// Why the bus cannot be shown now.
    pub(super) problem: Option<String>,
    pub(super) capacity: u64,
    pub(super) policy: String,
    pub(super) lock_kind: String,
    pub(super) lock: Lock,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) messages_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    /// Messages per second of the latest intervals, the newest last.
    pub(super) recent_rates: Vec<f64>,
    /// The largest lag of a gating subscriber, as a share of the ring.
    pub(super) unread_share: Option<f64>,
    /// The age of the oldest message in the ring.
    pub(super) history: Option<Age>,
    /// Seconds that all publishers together waited in a second.
    pub(super) waited_per_second: Option<f64>,
    pub(super) wakes_per_second: Option<f64>,
    /// The slot of the subscriber that publishers wait for.
    pub(super) in_the_way: Option<u32>,
    /// The sum over the subscribers, since each of them subscribed.
    pub(super) lost_messages: u64,
    pub(super) lost_last_minute: u64,
    /// Participants that died without closing the bus.
    pub(super) dead: u32,
    pub(super) max_publishers: u32,
    pub(super) max_subscribers: u32,
    /// `None` if this process may not read them.
    pub(super) publishers: Option<Vec<PublisherModel>>,
    pub(super) subscribers: Option<Vec<SubscriberModel>>,
    /// The number of names in the topic table.
    pub(super) topics_known: u32,
    pub(super) topics: Option<TopicsModel>,
    /// Why there are no rates per topic.
    pub(super) topics_problem: Option<String>,
    /// The newest first.
    pub(super) losses: Vec<LossModel>,
    /// The nodes that connect it with other hosts; `None` while they are not looked at.
    pub(super) network: Option<NetworkModel>,
}

/// A participant that has a slot.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Who {
    pub(super) slot: u32,
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) same_pid_namespace: bool,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    #[default]
    Alive,
    Stopped,
    Dumping,
    Dead,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PublisherModel {
    #[serde(flatten)]
    pub(super) who: Who,
    pub(super) messages: u64,
    pub(super) messages_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    /// The share of the interval that it waited for slow subscribers.
    pub(super) waited_share: Option<f64>,
    pub(super) overwrites: u64,
    pub(super) wakes_per_second: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct SubscriberModel {
    #[serde(flatten)]
    pub(super) who: Who,
    pub(super) gating: bool,
    pub(super) in_the_way: bool,
    pub(super) lapped_now: bool,
    pub(super) lag_bytes: u64,
    /// The lag as a share of the ring, at most 1.
    pub(super) lag_share: f64,
    /// The age of the next message that it will read.
    pub(super) behind: Option<Age>,
    pub(super) received_per_second: Option<f64>,
    pub(super) lost_messages: u64,
    pub(super) lost_last_minute: u64,
    pub(super) lapses: u64,
    /// Messages that it was told were lost on the way to the bus.
    pub(super) lost_on_the_way: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TopicsModel {
    /// Whether only a part of the messages was read.
    pub(super) approximate: bool,
    /// By rate, the highest first.
    pub(super) rows: Vec<TopicModel>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct TopicModel {
    pub(super) topic: String,
    pub(super) messages_per_second: f64,
    pub(super) bytes_per_second: f64,
    pub(super) mean_bytes: Option<f64>,
    /// How old messages with a stamp were when they were read.
    pub(super) age: Option<Summary>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LossModel {
    /// In seconds since 1970.
    pub(super) time: f64,
    pub(super) who: String,
    /// The slot of the subscriber; `None` for messages that did not arrive on the bus.
    pub(super) slot: Option<u32>,
    pub(super) messages: u64,
    pub(super) bound: String,
    pub(super) reason: String,
}

/// The writer lock.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Lock {
    pub(super) state: LockState,
    pub(super) holder: Option<Holder>,
    pub(super) held_seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LockState {
    #[default]
    Free,
    /// Some publisher had it at the moment of the snapshot.
    InUse,
    /// The same publisher had it in two snapshots and published nothing, or its owner cannot give it back.
    Held,
    /// An exclusive publisher keeps it.
    Exclusive,
}

/// The owner of the writer lock.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Holder {
    pub(super) slot: Option<u32>,
    pub(super) pid: Option<u32>,
    pub(super) name: Option<String>,
    pub(super) state: State,
}

/// What was read of a topic in an interval.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicCount {
    pub(super) topic: String,
    pub(super) messages: u64,
    /// Of payloads.
    pub(super) bytes: u64,
    pub(super) age: Option<Summary>,
}

/// What was read of the topics in an interval.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicCounts {
    pub(super) counts: Vec<TopicCount>,
    /// Whether every message of the interval was read.
    pub(super) is_complete: bool,
    pub(super) seconds: f64,
}

/// The time of "in the last minute".
const MINUTE: Duration = Duration::from_secs(60);

/// Makes the model of one bus.
pub(super) fn build(history: &History, topics: Option<&TopicCounts>) -> BusModel {
    let Some(current) = &history.current else { return BusModel::default() };
    let in_the_way = in_the_way(history, current);
    let publishers = current
        .publishers
        .as_ref()
        .map(|all| all.iter().map(|one| publisher(history, one)).collect::<Vec<_>>());
    let subscribers = current.subscribers.as_ref().map(|all| {
        let model = |one| subscriber(history, current, one, in_the_way);
        all.iter().map(model).collect::<Vec<_>>()
    });
    let gating = current.subscribers.iter().flatten().filter(|one| one.gating && !one.lapped_now);
    let lag = gating.map(|one| one.lag_bytes).max();
    let dead = |states: usize| u32::try_from(states).unwrap_or(u32::MAX);
    let total = |one: fn(&PublisherModel) -> Option<f64>| {
        publishers.as_ref()?.iter().map(one).try_fold(0.0, |sum, one| Some(sum + one?))
    };
    BusModel {
        name: current.name.clone(),
        time: current.time,
        interval_seconds: history.interval().map(|interval| interval.as_secs_f64()),
        problem: None,
        capacity: current.capacity,
        policy: current.policy.clone(),
        lock_kind: current.lock.clone(),
        lock: lock(history, current),
        messages: current.sequence,
        bytes: current.tail,
        messages_per_second: history.messages_per_second(),
        bytes_per_second: history.bytes_per_second(),
        recent_rates: history.rates.iter().copied().collect(),
        unread_share: lag.map(|lag| share(lag, current.capacity)),
        history: history.age(current.oldest_position),
        waited_per_second: history.interval().and_then(|_| total(|one| one.waited_share)),
        wakes_per_second: history.interval().and_then(|_| total(|one| one.wakes_per_second)),
        in_the_way,
        lost_messages: current
            .subscribers
            .iter()
            .flatten()
            .fold(0, |sum, one| u64::saturating_add(sum, one.lost_messages)),
        lost_last_minute: lost_in_the_last_minute(history, current, |_| true),
        dead: dead(
            publishers
                .iter()
                .flatten()
                .map(|one| &one.who)
                .chain(subscribers.iter().flatten().map(|one| &one.who))
                .filter(|who| who.state == State::Dead)
                .count(),
        ),
        max_publishers: current.max_publishers,
        max_subscribers: current.max_subscribers,
        publishers,
        subscribers,
        topics_known: current.topics,
        topics: topics.map(|counts| topics_model(history, counts)),
        topics_problem: None,
        losses: history.losses.iter().rev().map(loss).collect(),
        network: None,
    }
}

/// Finds the subscriber that publishers wait for: the gating one with the lowest position, if a publisher waited in
/// the last interval.
fn in_the_way(history: &History, current: &Snapshot) -> Option<u32> {
    history.interval()?;
    let nearly_full = (current.capacity / 8).saturating_mul(7);
    let waited = match &current.publishers {
        Some(publishers) => publishers.iter().any(|one| waited(history, one) > Duration::ZERO),
        // Without a look at the publishers: they wait when the ring is full.
        None => current.can_wait,
    };
    if !waited {
        return None;
    }
    let gates = |one: &&Subscriber| {
        let before = history.subscriber_before(&one.who);
        // Publishers wait for a subscriber until they have overtaken it, and not until it has caught up.
        let was_lapped = before.is_some_and(|before| before.lapped_now);
        one.gating && one.who.alive && !one.who.dumping && !(one.lapped_now && was_lapped)
    };
    let candidates: Vec<&Subscriber> = current.subscribers.iter().flatten().filter(gates).collect();
    // If there is only one, publishers waited for it, although it may have caught up by now.
    if let ([only], true) = (&candidates[..], current.publishers.is_some()) {
        return Some(only.who.slot);
    }
    let behind = candidates.into_iter().filter(|one| {
        one.lag_bytes > 0 && (current.publishers.is_some() || one.lag_bytes >= nearly_full)
    });
    behind.min_by_key(|one| (one.position, one.who.slot)).map(|one| one.who.slot)
}

fn waited(history: &History, publisher: &Publisher) -> Duration {
    // One that came in this interval has waited in this interval.
    let before = history.publisher_before(&publisher.who).map_or(Duration::ZERO, |one| one.waited);
    publisher.waited.saturating_sub(before)
}

fn publisher(history: &History, publisher: &Publisher) -> PublisherModel {
    let interval = history.interval();
    let before = history.publisher_before(&publisher.who).cloned().unwrap_or_default();
    PublisherModel {
        who: who(&publisher.who),
        messages: publisher.messages,
        messages_per_second: history.per_second(before.messages, publisher.messages),
        bytes_per_second: history.per_second(before.bytes, publisher.bytes),
        waited_share: interval
            .map(|interval| waited(history, publisher).as_secs_f64() / interval.as_secs_f64()),
        overwrites: publisher.overwrites,
        wakes_per_second: history.per_second(before.wakes, publisher.wakes),
    }
}

fn subscriber(
    history: &History,
    current: &Snapshot,
    subscriber: &Subscriber,
    in_the_way: Option<u32>,
) -> SubscriberModel {
    let before = history.subscriber_before(&subscriber.who).cloned().unwrap_or_default();
    let slot = subscriber.who.slot;
    SubscriberModel {
        who: who(&subscriber.who),
        gating: subscriber.gating,
        in_the_way: in_the_way == Some(slot),
        lapped_now: subscriber.lapped_now,
        lag_bytes: subscriber.lag_bytes,
        lag_share: share(subscriber.lag_bytes, current.capacity),
        behind: history.age(subscriber.position),
        received_per_second: history.per_second(before.received, subscriber.received),
        lost_messages: subscriber.lost_messages,
        lost_last_minute: lost_in_the_last_minute(history, current, |loss| loss.slot == Some(slot)),
        lapses: subscriber.lapses,
        lost_on_the_way: subscriber.lost_on_the_way,
    }
}

fn lost_in_the_last_minute(
    history: &History,
    current: &Snapshot,
    counts: impl Fn(&Loss) -> bool,
) -> u64 {
    let recent =
        history.losses.iter().rev().take_while(|loss| loss.at.saturating_add(MINUTE) > current.at);
    recent.filter(|loss| counts(loss)).fold(0, |sum, loss| sum.saturating_add(loss.messages))
}

fn who(participant: &Participant) -> Who {
    Who {
        slot: participant.slot,
        name: participant.name.clone(),
        pid: participant.pid,
        same_pid_namespace: participant.same_pid_namespace,
        state: state(participant.alive, participant.stopped, participant.dumping),
    }
}

fn state(alive: bool, stopped: bool, dumping: bool) -> State {
    match (alive, dumping, stopped) {
        (false, ..) => State::Dead,
        (true, true, _) => State::Dumping,
        (true, false, true) => State::Stopped,
        (true, false, false) => State::Alive,
    }
}

fn lock(history: &History, current: &Snapshot) -> Lock {
    let Some(owner) = &current.owner else { return Lock::default() };
    let Owner { slot, pid, exclusive, alive, stopped, dumping } = *owner;
    let named =
        |one: &&Publisher| Some(one.who.slot) == slot || slot.is_none() && Some(one.who.pid) == pid;
    let publisher = current.publishers.iter().flatten().find(named);
    let holder = Holder {
        slot,
        pid,
        name: publisher.map(|one| one.who.name.clone()),
        state: state(alive != Some(false), stopped, dumping),
    };
    let state = if exclusive {
        LockState::Exclusive
    } else if history.held_since.is_some() || holder.state != State::Alive {
        LockState::Held
    } else {
        LockState::InUse
    };
    let held = history.held_since.map(|since| current.at.saturating_sub(since).as_secs_f64());
    Lock { state, holder: Some(holder), held_seconds: held }
}

/// Makes rates of counts. If messages were missed, the counts only say how the rate of the bus is divided.
fn topics_model(history: &History, counts: &TopicCounts) -> TopicsModel {
    let read: u64 = counts.counts.iter().map(|one| one.messages).sum();
    let factor = match history.messages_per_second() {
        Some(rate) if !counts.is_complete && read > 0 => rate / as_f64(read),
        _ if counts.seconds > 0.0 => 1.0 / counts.seconds,
        _ => 0.0,
    };
    let row = |one: &TopicCount| TopicModel {
        topic: one.topic.clone(),
        messages_per_second: as_f64(one.messages) * factor,
        bytes_per_second: as_f64(one.bytes) * factor,
        mean_bytes: (one.messages > 0).then(|| as_f64(one.bytes) / as_f64(one.messages)),
        age: one.age,
    };
    let mut rows: Vec<TopicModel> = counts.counts.iter().map(row).collect();
    rows.sort_by(|a, b| {
        b.messages_per_second.total_cmp(&a.messages_per_second).then_with(|| a.topic.cmp(&b.topic))
    });
    TopicsModel { approximate: !counts.is_complete, rows }
}

fn loss(loss: &Loss) -> LossModel {
    LossModel {
        time: loss.time,
        who: loss.who.clone(),
        slot: loss.slot,
        messages: loss.messages,
        bound: loss.bound.to_owned(),
        reason: loss.reason.clone(),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    (as_f64(part) / as_f64(whole.max(1))).min(1.0)
}

/// All buses of a directory.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ListModel {
    pub(super) directory: String,
    /// In seconds since 1970.
    pub(super) time: f64,
    /// Why the directory cannot be read now.
    pub(super) problem: Option<String>,
    pub(super) buses: Vec<BusRow>,
}

/// A bus in the list.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct BusRow {
    pub(super) name: String,
    /// Why it cannot be shown.
    pub(super) problem: Option<String>,
    /// Whether a process has it open; `None` if this process cannot find out.
    pub(super) in_use: Option<bool>,
    pub(super) capacity: Option<u64>,
    /// Those that live.
    pub(super) publishers: Option<u64>,
    pub(super) subscribers: Option<u64>,
    pub(super) messages_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) unread_share: Option<f64>,
    pub(super) waited_per_second: Option<f64>,
    pub(super) lost_messages: u64,
    pub(super) lost_last_minute: u64,
    /// Participants that died without closing the bus.
    pub(super) dead: u32,
}

impl BusRow {
    /// Makes the line of a bus in the list.
    pub(super) fn of(bus: &BusModel) -> Self {
        let count = |alive: usize| u64::try_from(alive).unwrap_or(u64::MAX);
        let lives = |who: &Who| who.state != State::Dead;
        Self {
            name: bus.name.clone(),
            problem: bus.problem.clone(),
            in_use: None,
            capacity: Some(bus.capacity),
            publishers: bus
                .publishers
                .as_ref()
                .map(|all| count(all.iter().filter(|one| lives(&one.who)).count())),
            subscribers: bus
                .subscribers
                .as_ref()
                .map(|all| count(all.iter().filter(|one| lives(&one.who)).count())),
            messages_per_second: bus.messages_per_second,
            bytes_per_second: bus.bytes_per_second,
            unread_share: bus.unread_share,
            waited_per_second: bus.waited_per_second,
            lost_messages: bus.lost_messages,
            lost_last_minute: bus.lost_last_minute,
            dead: bus.dead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 4 << 20;

    fn participant(slot: u32, name: &str) -> Participant {
        Participant { slot, name: name.to_owned(), alive: true, ..Participant::default() }
    }

    fn at(seconds: u64, tail: u64) -> Snapshot {
        Snapshot {
            at: Duration::from_secs(seconds),
            tail,
            sequence: tail / 100,
            capacity: CAPACITY,
            can_wait: true,
            publishers: Some(Vec::new()),
            subscribers: Some(Vec::new()),
            ..Snapshot::default()
        }
    }

    fn publishing(waited_ms: u64, messages: u64) -> Publisher {
        let waited = Duration::from_millis(waited_ms);
        Publisher { who: participant(0, "camera"), waited, messages, ..Publisher::default() }
    }

    fn reading(slot: u32, position: u64, tail: u64) -> Subscriber {
        Subscriber {
            who: participant(slot, "reader"),
            gating: true,
            position,
            lag_bytes: tail - position,
            ..Subscriber::default()
        }
    }

    fn model(snapshots: impl IntoIterator<Item = Snapshot>) -> BusModel {
        let mut history = History::default();
        for snapshot in snapshots {
            history.add(snapshot);
        }
        build(&history, None)
    }

    /// Publishers wait 250 ms in a second, for the lowest of those that they wait for.
    #[test]
    fn the_lowest_gating_subscriber_is_in_the_way_while_publishers_wait() {
        let tail = 10 * CAPACITY;
        let look = |waited_ms: u64, change: &dyn Fn(&mut Vec<Subscriber>)| {
            let mut subscribers = vec![
                reading(1, tail - CAPACITY + 4096, tail),
                reading(2, tail - CAPACITY / 2, tail),
                reading(3, tail, tail),
            ];
            change(&mut subscribers);
            let first = Snapshot {
                publishers: Some(vec![publishing(100, 0)]),
                subscribers: Some(subscribers.clone()),
                ..at(1, tail)
            };
            let second = Snapshot {
                at: Duration::from_secs(2),
                publishers: Some(vec![publishing(100 + waited_ms, 0)]),
                ..first.clone()
            };
            model([first, second])
        };
        let shown = look(250, &|_| {});
        assert_eq!(shown.in_the_way, Some(1));
        assert_eq!(shown.waited_per_second, Some(0.25));
        let marked: Vec<bool> =
            shown.subscribers.unwrap().iter().map(|one| one.in_the_way).collect();
        assert_eq!(marked, [true, false, false]);
        assert_eq!(look(0, &|_| {}).in_the_way, None, "no publisher waits");
        type Change = fn(&mut Subscriber);
        let passed_over: [(&str, Change); 4] = [
            ("does not gate", |one| one.gating = false),
            ("is dead", |one| one.who.alive = false),
            ("dumps core", |one| one.who.dumping = true),
            ("was overtaken before", |one| one.lapped_now = true),
        ];
        for (why, change) in passed_over {
            assert_eq!(look(250, &|all| change(&mut all[0])).in_the_way, Some(2), "{why}");
        }
        assert_eq!(look(250, &|all| all[0].who.stopped = true).in_the_way, Some(1));
        assert_eq!(
            look(250, &|all| all.drain(..2).for_each(drop)).in_the_way,
            Some(3),
            "the only one"
        );
        let caught_up = |all: &mut Vec<Subscriber>| {
            for one in all {
                (one.position, one.lag_bytes) = (tail, 0);
            }
        };
        assert_eq!(look(250, &caught_up).in_the_way, None, "it may have been any of them");
    }

    /// The policy waits 100 ms, then overwrites: at the end of the interval, no publisher waits any more.
    #[test]
    fn one_that_was_overtaken_in_the_interval_was_in_the_way() {
        let tail = 10 * CAPACITY;
        let first = Snapshot {
            publishers: Some(vec![publishing(0, 0)]),
            subscribers: Some(vec![reading(1, tail - CAPACITY, tail)]),
            ..at(1, tail)
        };
        let mut lapped = reading(1, tail - CAPACITY, tail + CAPACITY);
        lapped.lapped_now = true;
        let second = Snapshot {
            publishers: Some(vec![publishing(100, 0)]),
            subscribers: Some(vec![lapped]),
            ..at(2, tail + CAPACITY)
        };
        assert_eq!(model([first, second]).in_the_way, Some(1));
    }

    /// With the right to subscribe only, the publishers are unknown; a full ring is not.
    #[test]
    fn without_the_publishers_a_full_ring_tells_who_is_in_the_way() {
        let tail = 10 * CAPACITY;
        let look = |position, can_wait| {
            let snapshot = |seconds| Snapshot {
                publishers: None,
                can_wait,
                subscribers: Some(vec![reading(1, position, tail)]),
                ..at(seconds, tail)
            };
            model([snapshot(1), snapshot(2)]).in_the_way
        };
        assert_eq!(look(tail - CAPACITY + 8, true), Some(1));
        assert_eq!(look(tail - CAPACITY / 2, true), None);
        assert_eq!(look(tail - CAPACITY + 8, false), None, "publishers overwrite");
    }

    #[test]
    fn what_may_not_be_read_is_unknown_and_not_zero() {
        let hidden = |seconds| Snapshot {
            publishers: None,
            subscribers: None,
            ..at(seconds, 1000 * seconds)
        };
        let shown = model([hidden(1), hidden(2)]);
        assert!(shown.publishers.is_none() && shown.subscribers.is_none());
        assert_eq!((shown.waited_per_second, shown.wakes_per_second), (None, None));
        assert_eq!((shown.unread_share, shown.messages_per_second), (None, Some(10.0)));
        assert_eq!(model([at(1, 0)]).waited_per_second, None, "one snapshot has no rates");
        assert_eq!(model([at(1, 0), at(2, 0)]).waited_per_second, Some(0.0));
    }

    #[test]
    fn a_slot_that_changes_hands_has_no_rate_of_its_former_owner() {
        let first = Snapshot { publishers: Some(vec![publishing(0, 9_000_000)]), ..at(1, 0) };
        let mut later = publishing(0, 50);
        later.who.started_ns = 77;
        let second = Snapshot { publishers: Some(vec![later]), ..at(2, 0) };
        let shown = model([first, second]).publishers.unwrap();
        assert_eq!(shown[0].messages_per_second, Some(50.0));
    }

    #[test]
    fn the_lock_is_named_if_it_is_held() {
        let owned = |seconds: u64, tail, change: &dyn Fn(&mut Owner)| {
            let mut owner = Owner { slot: Some(0), pid: Some(7), ..Owner::default() };
            change(&mut owner);
            let publishers = Some(vec![publishing(0, 0)]);
            Snapshot { owner: Some(owner), publishers, ..at(seconds, tail) }
        };
        let lock = |tail, change: &dyn Fn(&mut Owner)| {
            model([owned(1, 0, change), owned(3, tail, change)]).lock
        };
        assert_eq!(model([at(1, 0)]).lock.state, LockState::Free);
        assert_eq!(lock(100, &|_| {}).state, LockState::InUse);
        let held = lock(0, &|_| {});
        assert_eq!((held.state, held.held_seconds), (LockState::Held, Some(2.0)));
        assert_eq!(held.holder.unwrap().name.as_deref(), Some("camera"));
        let stopped = lock(0, &|owner| owner.stopped = true);
        assert_eq!(stopped.holder.unwrap().state, State::Stopped);
        assert_eq!(lock(100, &|owner| owner.exclusive = true).state, LockState::Exclusive);
        assert_eq!(lock(0, &|owner| owner.alive = Some(false)).holder.unwrap().state, State::Dead);
    }

    #[test]
    fn samples_divide_the_rate_of_the_bus() {
        let mut history = History::default();
        history.add(at(0, 0));
        history.add(at(1, 100_000_000));
        let count = |topic: &str, messages, bytes| TopicCount {
            topic: topic.to_owned(),
            messages,
            bytes,
            age: None,
        };
        let counts = vec![count("a", 30, 300), count("b", 70, 7000)];
        let mut counts = TopicCounts { counts, is_complete: false, seconds: 0.5 };
        let rows = |counts: &TopicCounts| {
            let shown = build(&history, Some(counts)).topics.unwrap();
            let rates = shown.rows.iter().map(|row| (row.topic.clone(), row.messages_per_second));
            (shown.approximate, rates.collect::<Vec<_>>())
        };
        let name = |name: &str, rate: f64| (name.to_owned(), rate);
        assert_eq!(rows(&counts), (true, vec![name("b", 700_000.0), name("a", 300_000.0)]));
        counts.is_complete = true;
        assert_eq!(rows(&counts), (false, vec![name("b", 140.0), name("a", 60.0)]));
        counts.counts.clear();
        assert_eq!(rows(&counts), (false, vec![]));
    }

    #[test]
    fn losses_of_the_last_minute_are_counted_apart() {
        let lost = |seconds, lost_messages| {
            let mut one = reading(1, 0, 0);
            (one.lost_messages, one.lapses) = (lost_messages, lost_messages);
            Snapshot { subscribers: Some(vec![one]), ..at(seconds, 0) }
        };
        let shown = model([lost(0, 5), lost(1, 15), lost(100, 18)]);
        assert_eq!((shown.lost_messages, shown.lost_last_minute), (18, 3));
        assert_eq!(shown.subscribers.unwrap()[0].lost_last_minute, 3);
        let listed: Vec<u64> = shown.losses.iter().map(|loss| loss.messages).collect();
        assert_eq!(listed, [3, 10], "the newest first");
    }

    /// Bytes of shared memory may be anything.
    #[test]
    fn nonsense_does_not_overflow() {
        let wild = |seconds| {
            let mut one = reading(u32::MAX, 3, u64::MAX);
            (one.lost_messages, one.lapses, one.received) = (u64::MAX, u64::MAX, u64::MAX);
            let publisher = Publisher {
                waited: Duration::from_nanos(u64::MAX),
                wakes: u64::MAX,
                bytes: u64::MAX,
                ..publishing(0, u64::MAX)
            };
            Snapshot {
                capacity: 0,
                oldest_position: u64::MAX,
                subscribers: Some(vec![one.clone(), one]),
                publishers: Some(vec![publisher]),
                ..at(seconds, u64::MAX)
            }
        };
        let shown = model([at(0, 0), wild(1), wild(2)]);
        assert_eq!(shown.lost_messages, u64::MAX);
        assert!(serde_json::to_string(&shown).is_ok());
    }
}
