//! What the subscribers of a receiving host learn, whatever becomes of the two nodes and their hosts: real processes on the
//! loopback interface. [`expected`] is the table; `docs/network.md` says the same in words.
//!
//! The messages 0 to 4 have been delivered. 5 to 9 are published while a node is away, or wait unsent. 10 and 11 follow when all that
//! is to come back is back.

use crate::node_backups::{Restored, next_second};
use crate::node_reports::{End, LONG, Pair, SHORT, Way, end};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use toroni_testkit::{Random, long};

/// What becomes of the sending node and of its host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sender {
    Lives,
    /// Stopped in order, after it has sent all.
    Drained(Back),
    /// Stopped in order, without the time to send all.
    Undrained(Back),
    Killed(Back),
    /// Its bus is another one, as after a reboot.
    Emptied(End),
    /// Its bus and its state are from a backup.
    Restored(Restored),
    /// Its state is from a backup, and its bus is not.
    OldState,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Back {
    Comes,
    Never,
}

/// What becomes of the receiving side, before what becomes of the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Receiver {
    Lives,
    /// It is started again after all that.
    Killed,
    /// The same, and its bus is another one.
    Emptied,
    /// There are two. The one that does not bring the stream is killed.
    StandbyKilled,
    /// There are two. The one that brings the stream is killed.
    BringerKilled,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Kept,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    receiver: Receiver,
    sender: Sender,
    state: State,
    way: Way,
    order: &'static str,
}

impl Case {
    /// The second node has heard that there is nothing more: see [`Sender::Drained`] in [`expected`].
    fn is_slow(&self) -> bool {
        (self.receiver, self.sender) == (Receiver::BringerKilled, Sender::Drained(Back::Never))
    }
}

/// Which messages come first, if that depends on the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    None,
    /// The first ones of 5 to 9.
    Beginning,
    /// The last ones of 0 to 9: a receiver that knows nothing begins where the stream is, or where a young session began.
    End,
}

const MISSED: [&str; 5] = ["5", "6", "7", "8", "9"];
const LATER: [&str; 2] = ["10", "11"];
const SILENT: &str = ">=0 Silent";

impl Sender {
    fn comes_back(self) -> bool {
        !matches!(
            self,
            Self::Drained(Back::Never) | Self::Undrained(Back::Never) | Self::Killed(Back::Never)
        )
    }

    /// Whether its bus, its state or both go back to what they were after message 4.
    fn goes_back(self) -> bool {
        matches!(self, Self::Restored(_) | Self::OldState)
    }
}

/// What subscribers get after message 4.
fn expected(case: &Case) -> (Part, Vec<&'static str>) {
    let delivered = [&MISSED[..], &LATER].concat();
    let after = |told: &'static str| [&[told], &LATER[..]].concat();
    let lives = matches!(case.receiver, Receiver::Lives | Receiver::StandbyKilled);
    if case.receiver == Receiver::Emptied {
        // Nothing is known, so nothing is reported.
        let later = if case.sender.comes_back() { LATER.to_vec() } else { Vec::new() };
        return (Part::End, later);
    }
    match case.sender {
        // Its stream begins with what is published from then on.
        Sender::Drained(Back::Comes)
        | Sender::Undrained(Back::Comes)
        | Sender::Killed(Back::Comes)
            if case.state == State::Lost && case.way == Way::Multicast =>
        {
            (Part::None, after("<=5 Restart"))
        }
        Sender::Lives
        | Sender::Drained(Back::Comes)
        | Sender::Undrained(Back::Comes)
        | Sender::Killed(Back::Comes) => (Part::None, delivered),
        // It has said that there is nothing more. Publishers of its bus may still add to that, which is reported a minute later.
        Sender::Drained(Back::Never) if lives => (Part::None, Vec::new()),
        // Also of a node that takes over.
        Sender::Undrained(Back::Never) if case.receiver != Receiver::Killed => {
            (Part::Beginning, vec![SILENT])
        }
        Sender::Drained(Back::Never)
        | Sender::Undrained(Back::Never)
        | Sender::Killed(Back::Never) => (Part::None, vec![SILENT]),
        Sender::Emptied(_) => (Part::None, after(">=0 Restart")),
        Sender::Restored(Restored::Copied) if case.state == State::Kept => {
            (Part::None, after(">=0 Restart"))
        }
        Sender::Restored(_) | Sender::OldState => (Part::None, after(">=0 Diverged")),
    }
}

fn play(case: &Case) {
    let activity = if case.sender.comes_back() { LONG } else { SHORT };
    let mut pair = Pair::in_order(case.way, activity, case.order);
    let mut standby = None;
    if matches!(case.receiver, Receiver::StandbyKilled | Receiver::BringerKilled) {
        let second = pair.start_receiver_as("c");
        second.wait_for_error("already brings");
        standby = Some(second);
    }
    if case.sender.goes_back() {
        pair.end_sender(End::InOrder);
        pair.back_up();
        next_second();
        pair.start_sender();
        pair.publish(5);
        assert_eq!(pair.told(5), MISSED, "{case:?}");
    }
    match case.receiver {
        Receiver::Lives => {}
        Receiver::StandbyKilled => end(standby.take().unwrap(), End::Killed),
        _ => pair.end_receiver(End::Killed),
    }
    if case.receiver == Receiver::BringerKilled {
        pair.receiver = standby.take();
    }
    match case.sender {
        Sender::Lives => pair.publish(5),
        Sender::Drained(_) => {
            pair.end_sender(End::InOrder);
            pair.publish(5);
        }
        Sender::Undrained(_) => {
            pair.end_sender(End::Killed);
            pair.publish_padded(5, 12_000);
            pair.start_sender_with("50kbit/s", "drain = '0s'");
            pair.end_sender(End::InOrder);
        }
        Sender::Killed(_) => {
            pair.end_sender(End::Killed);
            pair.publish(5);
        }
        Sender::Emptied(end) => {
            pair.end_sender(end);
            pair.publish(5);
            pair.empty_bus();
        }
        Sender::Restored(how) => {
            pair.end_sender(End::Killed);
            next_second();
            pair.restore(how);
        }
        Sender::OldState => {
            pair.end_sender(End::Killed);
            next_second();
            pair.restore_state();
        }
    }
    if case.state == State::Lost {
        pair.lose_state();
        if matches!(case.sender, Sender::Undrained(_)) {
            // It was started twice in a second, perhaps, so that its session is ahead of the clock.
            next_second();
            next_second();
        }
    }
    if case.sender.comes_back() && case.sender != Sender::Lives {
        pair.start_sender();
    }
    if case.receiver == Receiver::Emptied {
        pair.empty_receiving_bus();
    }
    if matches!(case.receiver, Receiver::Killed | Receiver::Emptied) {
        pair.start_receiver();
    }
    let (part, wanted) = expected(case);
    if case.sender.comes_back() {
        // Only who waits for what was said before publishes what follows it.
        let first: Vec<_> = wanted.iter().copied().take_while(|it| *it != LATER[0]).collect();
        let mut told = first.last().map_or_else(Vec::new, |last| pair.told_until(last));
        pair.next = 10;
        pair.publish(2);
        told.extend(pair.told_until(LATER[1]));
        compare(case, part, told, &wanted);
    } else {
        let told = wanted.last().map_or_else(Vec::new, |last| pair.told_until(last));
        compare(case, part, told, &wanted);
        pair.nothing_more();
    }
    if let Some(sender) = &pair.sender {
        // Only a copy is noticed by the sender itself.
        let is_copied = case.sender == Sender::Restored(Restored::Copied);
        let is_new = sender.errors().contains("event=new_series");
        assert_eq!(is_new, is_copied && case.state == State::Kept, "{case:?}");
    }
    pair.leave();
}

fn compare(case: &Case, part: Part, mut told: Vec<String>, wanted: &[&str]) {
    if case.order == "arrival" {
        let number = |it: &String| it.parse::<u32>().ok();
        told.chunk_by_mut(|a, b| number(a).is_some() && number(b).is_some())
            .for_each(|run| run.sort_by_key(number));
    }
    let is_number = |it: &&String| it.parse().is_ok_and(|number: u32| number < 10);
    let first = told.iter().take_while(is_number).count();
    let part: Vec<_> = match part {
        Part::None => Vec::new(),
        Part::Beginning => (5..10).take(first).collect(),
        Part::End => (0..10).skip(10 - first).collect(),
    };
    let part = part.iter().map(u32::to_string);
    let wanted: Vec<_> = part.chain(wanted.iter().map(|it| (*it).to_owned())).collect();
    assert_eq!(told, wanted, "{case:?}");
}

const SENDERS: [Sender; 11] = [
    Sender::Lives,
    Sender::Drained(Back::Comes),
    Sender::Drained(Back::Never),
    Sender::Undrained(Back::Comes),
    Sender::Undrained(Back::Never),
    Sender::Killed(Back::Comes),
    Sender::Killed(Back::Never),
    Sender::Emptied(End::InOrder),
    Sender::Restored(Restored::Copied),
    Sender::Restored(Restored::Reverted),
    Sender::OldState,
];

/// The whole table.
fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |receivers: &[Receiver], senders: &[Sender], ways: &[Way], order| {
        for &receiver in receivers {
            for &sender in senders {
                for &way in ways {
                    all.push(Case { receiver, sender, state: State::Kept, way, order });
                }
            }
        }
    };
    let one = [Receiver::Lives, Receiver::Killed, Receiver::Emptied];
    let two = [Receiver::StandbyKilled, Receiver::BringerKilled];
    add(&one, &SENDERS, &[Way::Multicast, Way::Tcp], "source");
    add(&one[..2], &SENDERS, &[Way::Both], "source");
    add(&one[..2], &[Sender::Emptied(End::Killed)], &[Way::Multicast, Way::Tcp], "source");
    add(&one[..2], &SENDERS, &[Way::Multicast], "arrival");
    add(&two, &SENDERS, &[Way::Multicast, Way::Tcp], "source");
    let lost: Vec<_> = all
        .iter()
        .filter(|case| {
            case.sender.comes_back() && !matches!(case.sender, Sender::Lives | Sender::OldState)
        })
        .map(|case| Case { state: State::Lost, ..*case })
        .collect();
    all.extend(lost);
    all
}

/// Some cases, or all as a long test, or those whose text contains `$TORONI_CASE`.
#[test]
fn subscribers_learn_what_the_table_says() {
    let mut random = Random::from_environment();
    let wanted = std::env::var("TORONI_CASE").ok();
    let cases: Vec<_> = cases()
        .into_iter()
        .filter(|case| match &wanted {
            Some(wanted) => format!("{case:?}").contains(wanted),
            None => long::is_asked() || (random.below(8) == 0 && !case.is_slow()),
        })
        .collect();
    assert!(!cases.is_empty(), "no case is like {wanted:?}");
    let next = AtomicUsize::new(0);
    let at_once = std::thread::available_parallelism().map_or(2, NonZero::get) * 3;
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = std::panic::catch_unwind(|| play(case));
                    if played.is_err() {
                        failed.lock().unwrap().push(case);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} cases: {failed:#?}", failed.len(), cases.len());
}

/// It does not know its last session, and must not begin the same one: the clock has still the same second.
#[test]
fn a_sender_that_lost_its_state_and_is_started_again_at_once_is_heard() {
    let sender = Sender::Killed(Back::Comes);
    let (way, order) = (Way::Multicast, "source");
    play(&Case { receiver: Receiver::Lives, sender, state: State::Lost, way, order });
}
