//! Random messages, whose datagrams are lost, doubled and reordered.

use proptest::prelude::*;

use super::*;
use crate::random::Random;

/// The datagrams that have a part of each message.
fn places_of(datagrams: &[Vec<u8>], messages: usize) -> Vec<Vec<usize>> {
    let mut places = vec![Vec::new(); messages];
    for (place, datagram) in datagrams.iter().enumerate() {
        for placed in Data::reopen(datagram).unwrap().chunks() {
            places[usize::try_from(placed.message.get()).unwrap()].push(place);
        }
    }
    places
}

/// What happens to one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    ArrivesTwice,
    Lost,
}

/// Messages, and what happens to their datagrams.
#[derive(Debug)]
struct Case {
    lengths: Vec<(usize, bool)>,
    fates: Vec<Fate>,
    shuffle: u64,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let length = prop_oneof![4 => 0..200_usize, 1 => 200..3_000_usize];
    let fate = prop_oneof![
        8 => Just(Fate::Arrives), 1 => Just(Fate::ArrivesTwice), 2 => Just(Fate::Lost),
    ];
    let lengths = prop::collection::vec((length, any::<bool>()), 1..40);
    (lengths, prop::collection::vec(fate, 400), 1..12_u64, any::<u64>())
        .prop_map(|(lengths, fates, shuffle, seed)| Case { lengths, fates, shuffle, seed })
}

/// Near datagrams change places. What is lost is given up some time later. Returns whether each event
/// is an arrival, with its place.
fn order_of(case: &Case, datagrams: usize) -> Vec<(u64, bool)> {
    let mut random = Random::new(case.seed);
    let mut order: Vec<(u64, u64, bool)> = Vec::new();
    for (place, fate) in (0..).zip(&case.fates[..datagrams]) {
        let time = place + random.below(case.shuffle);
        match fate {
            Fate::Arrives => order.push((time, place, true)),
            Fate::ArrivesTwice => {
                order.push((time, place, true));
                order.push((time + random.below(30), place, true));
            }
            Fate::Lost => order.push((time + random.below(30), place, false)),
        }
    }
    order.sort();
    order.into_iter().map(|(_, place, arrives)| (place, arrives)).collect()
}

fn packed(case: &Case) -> Packer {
    let mut packer = Packer::new();
    for (length, flush) in &case.lengths {
        packer.message(*length);
        if *flush {
            packer.flush();
        }
    }
    packer.flush();
    packer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever is lost, doubled and reordered: what is delivered is the sender's list, from which
    /// exactly the reported losses are cut out, and no message is lost of which all datagrams came.
    #[test]
    fn what_is_delivered_is_the_list_without_the_reported_losses(case in cases()) {
        let mut packer = packed(&case);
        let datagrams = packer.datagrams();
        let places = places_of(&datagrams, case.lengths.len());
        let count = datagrams.len();
        let mut receiver = Receiver::<InOrder>::with(datagrams, Some(0), 90);
        for (place, arrives) in order_of(&case, count) {
            if arrives {
                // Fewer than 90 can wait at a time: each gap is given up within 42 datagrams.
                prop_assert!(receiver.receive(place).is_ok());
            } else {
                receiver.give_up(place, 1);
            }
        }
        receiver.session(count as u64, case.lengths.len() as u64);

        let mut due = 0;
        for seen in receiver.seen() {
            match seen {
                Seen::Message { message: found, .. } => {
                    prop_assert_eq!(found, due);
                    let length = case.lengths[usize::try_from(found).unwrap()].0;
                    prop_assert_eq!(seen, message(found, length));
                    due += 1;
                }
                Seen::Loss { message, count, reason } => {
                    prop_assert_eq!((message, reason), (due, LostReason::Budget));
                    for lost in message..message + count {
                        let places = &places[usize::try_from(lost).unwrap()];
                        let is_lost = |place: &usize| case.fates[*place] == Fate::Lost;
                        prop_assert!(places.iter().any(is_lost), "message {lost}");
                    }
                    due += count;
                }
                Seen::Topic(_) => prop_assert!(false, "there are no topics"),
            }
        }
        prop_assert_eq!(due, case.lengths.len() as u64);
        prop_assert_eq!(receiver.reassembly.held(), 0);
    }

    /// The same in the order of arrival: each message is delivered once, with the datagram that
    /// completes it, or reported as lost once.
    #[test]
    fn each_message_is_delivered_with_its_last_datagram_or_lost(case in cases()) {
        let mut packer = packed(&case);
        let datagrams = packer.datagrams();
        let places = places_of(&datagrams, case.lengths.len());
        let count = datagrams.len();
        let mut receiver = Receiver::<ByArrival>::with(datagrams, Some(0), 90);
        let mut here = vec![false; count];
        let mut known = vec![false; case.lengths.len()];
        let events = order_of(&case, count).into_iter().map(Some).chain([None]);
        for event in events {
            match event {
                Some((place, true)) => {
                    prop_assert!(receiver.receive(place).is_ok());
                    here[usize::try_from(place).unwrap()] = true;
                }
                Some((place, false)) => receiver.give_up(place, 1),
                None => receiver.session(count as u64, case.lengths.len() as u64),
            }
            for seen in receiver.seen() {
                match seen {
                    Seen::Message { message: found, .. } => {
                        let index = usize::try_from(found).unwrap();
                        prop_assert!(!known[index], "message {found} twice");
                        known[index] = true;
                        prop_assert_eq!(seen, message(found, case.lengths[index].0));
                    }
                    Seen::Loss { message, count, reason } => {
                        prop_assert_eq!(reason, LostReason::Budget);
                        for lost in message..message + count {
                            let index = usize::try_from(lost).unwrap();
                            prop_assert!(!known[index], "message {lost} is delivered and lost");
                            known[index] = true;
                            let is_lost = |place: &usize| case.fates[*place] == Fate::Lost;
                            prop_assert!(places[index].iter().any(is_lost), "message {lost}");
                        }
                    }
                    Seen::Topic(_) => prop_assert!(false, "there are no topics"),
                }
            }
            for (index, places) in places.iter().enumerate() {
                let complete = places.iter().all(|place| here[*place]);
                prop_assert!(!complete || known[index], "message {index} waits for nothing");
            }
        }
        prop_assert!(known.iter().all(|known| *known), "each is delivered or lost");
        prop_assert_eq!(receiver.reassembly.held(), 0);
    }
}
