//! What the subscribers of a receiving host learn, whatever becomes of the two nodes and their hosts: real processes on the
//! loopback interface. The table is in [`toroni_testkit::reports`].

use crate::node_backups::next_second;
use crate::node_reports::{LONG, Pair, SHORT, end};
use toroni_testkit::reports::{
    self, Back, Case, End, LATER, MISSED, Receiver, Restored, Sender, State, Way,
};

/// A case, and the order in which the receiver delivers.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    case: Case,
    order: &'static str,
}

impl Ordered {
    /// The second node has heard that there is nothing more: see [`Sender::Drained`] in [`Case::expected`].
    fn is_slow(&self) -> bool {
        let Case { receiver, sender, .. } = self.case;
        (receiver, sender) == (Receiver::BringerKilled, Sender::Drained(Back::Never))
    }
}

fn play(ordered: &Ordered) {
    let Ordered { case, order } = ordered;
    let activity = if case.sender.comes_back() { LONG } else { SHORT };
    let mut pair = Pair::in_order(case.way, activity, order);
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
    let (_, wanted) = case.expected();
    if case.sender.comes_back() {
        // Only who waits for what was said before publishes what follows it.
        let first: Vec<_> = wanted.iter().copied().take_while(|it| *it != LATER[0]).collect();
        let mut told = pair.told_all(&first);
        pair.next = 10;
        pair.publish(2);
        told.extend(pair.told_all(&LATER));
        compare(ordered, told);
    } else {
        let told = pair.told_all(&wanted);
        compare(ordered, told);
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

fn compare(Ordered { case, order }: &Ordered, mut told: Vec<String>) {
    if *order == "arrival" {
        let number = |it: &String| it.parse::<u32>().ok();
        told.chunk_by_mut(|a, b| number(a).is_some() && number(b).is_some())
            .for_each(|run| run.sort_by_key(number));
    }
    case.compare(&told);
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
fn cases() -> Vec<Ordered> {
    let mut all = Vec::new();
    let mut add = |receivers: &[Receiver], senders: &[Sender], ways: &[Way], order| {
        for &receiver in receivers {
            for &sender in senders {
                for &way in ways {
                    let case = Case { receiver, sender, state: State::Kept, way };
                    all.push(Ordered { case, order });
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
        .filter(|Ordered { case: Case { sender, .. }, .. }| {
            sender.comes_back() && !matches!(sender, Sender::Lives | Sender::OldState)
        })
        .map(|one| Ordered { case: Case { state: State::Lost, ..one.case }, ..*one })
        .collect();
    all.extend(lost);
    all
}

/// Some cases, or all as a long test, or those whose text contains `$TORONI_CASE`.
#[test]
fn subscribers_learn_what_the_table_says() {
    reports::play(cases(), 3, |random, case| random.below(8) == 0 && !case.is_slow(), play);
}

/// It does not know its last session, and must not begin the same one: the clock has still the same second.
#[test]
fn a_sender_that_lost_its_state_and_is_started_again_at_once_is_heard() {
    let sender = Sender::Killed(Back::Comes);
    let (way, order) = (Way::Multicast, "source");
    let case = Case { receiver: Receiver::Lives, sender, state: State::Lost, way };
    play(&Ordered { case, order });
}
