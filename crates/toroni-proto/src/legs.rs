//! Legs: the interfaces over which a stream is heard, and the ways back to its sender.
//!
//! ```text
//!              leg 0  ══ DATA ══►              try   1       2       3       4
//!   sender                        receiver     NAK   leg 0   leg 1   leg 0   leg 1
//!              leg 1  ══ DATA ══►
//! ```
//!
//! A host may hear a stream on several interfaces. The first copy of a datagram counts. A leg that brings
//! datagrams may still be dead on the way back, so one that is heard is no proof that a NAK arrives. Each try
//! therefore takes the next leg: with one dead way back, every second NAK arrives.
//!
//! The source address of a datagram is not signed, and anybody can repeat a datagram from another address. So what a receiver
//! sends goes to an address that the SESSION lists.

use crate::hook::mutant;
use crate::time::{Monotonic, SECOND};
use crate::wire::{Address, LegAddresses, Repairers};

/// The greatest number of legs.
pub const MAX_LEGS: usize = LegAddresses::MAX;
/// A leg is behind if another brought this many datagrams since it brought one,
const BEHIND: u64 = 1_000;
/// or if another brought one this long ago that it has not brought.
const BEHIND_NS: u64 = SECOND;

/// An interface of this host, in the order of the caller's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Leg(u8);

impl Leg {
    /// Returns the leg at this place, if it is below [`MAX_LEGS`].
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        u8::try_from(index).ok().filter(|_| index < MAX_LEGS).map(Self)
    }

    /// Returns its place.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A peer, and the leg over which it is heard or reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path {
    /// The interface.
    pub leg: Leg,
    /// The peer.
    pub address: Address,
}

impl Path {
    /// Returns the path to a peer on a host with one leg.
    #[must_use]
    pub const fn single(address: Address) -> Self {
        Self { leg: Leg(0), address }
    }
}

/// What a leg has brought of a stream: DATA that was not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegCounters {
    /// Datagrams that came here first.
    pub first: u64,
    /// Datagrams that had come before, here or on another leg.
    pub duplicates: u64,
    /// Datagrams that came on other legs and not, or not yet, on this one.
    pub missing: u64,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    /// Where it comes from, as it is seen there.
    from: Address,
    /// Where the sender takes the answer.
    address: Address,
    at: Monotonic,
    first: u64,
    duplicates: u64,
    /// How many datagrams other legs have brought since this one brought one, and since when.
    others: u64,
    others_since: Option<Monotonic>,
    reported: bool,
}

/// The legs over which the sender of a stream is heard.
#[derive(Debug, Default)]
pub(crate) struct Legs {
    heard: [Option<Heard>; MAX_LEGS],
    /// The greatest leg that was heard, plus 1: most hosts have one.
    used: usize,
    /// Where something of the stream came last, perhaps not from its sender. Used if no leg heard the sender lately.
    any: Path,
    /// Where the sender says that it takes answers.
    listed: LegAddresses,
}

impl Legs {
    /// Something of the stream came, but perhaps not from its sender.
    pub(crate) const fn hear_any(&mut self, path: Path) {
        self.any = path;
    }

    /// The sender states where it takes answers.
    pub(crate) fn list(&mut self, listed: LegAddresses) {
        if listed == self.listed {
            return;
        }
        self.listed = listed;
        (0..self.used).for_each(|leg| self.find_back(leg));
    }

    /// Whether the sender lists this address, or does not know its own.
    pub(crate) fn is_listed(&self, address: Address) -> bool {
        let listed = self.listed.as_slice();
        listed.is_empty() || listed.contains(&address)
    }

    /// Where the answer to something that came this way goes.
    pub(crate) fn back(&self, path: Path) -> Path {
        if self.is_listed(path.address) || mutant("address_of_sender_datagram") {
            return path;
        }
        let listed = self.listed.as_slice();
        let is_alike = |one: &&Address| one.is_v4() == path.address.is_v4();
        let address = listed.iter().find(is_alike).or(listed.first());
        Path { address: address.copied().unwrap_or(path.address), ..path }
    }

    /// Something came from the sender. `is_new` says that it had not come before: a copy, which anybody can send, does not change
    /// where the sender is.
    pub(crate) fn hear(&mut self, now: Monotonic, path: Path, is_new: bool) {
        if let Some(heard) = &mut self.heard[path.leg.index()] {
            heard.at = now;
            // As nearly all do.
            if heard.from == path.address {
                return;
            }
            if is_new || !self.listed.as_slice().is_empty() {
                heard.from = path.address;
                self.find_back(path.leg.index());
            }
            return;
        }
        self.heard[path.leg.index()] = Some(Heard {
            from: path.address,
            address: self.back(path).address,
            at: now,
            first: 0,
            duplicates: 0,
            others: 0,
            others_since: None,
            reported: false,
        });
        self.used = self.used.max(path.leg.index() + 1);
    }

    /// Decides where what is asked over a leg goes.
    fn find_back(&mut self, leg: usize) {
        let from = self.heard[leg].as_ref().map(|heard| heard.from);
        let Some((leg, address)) = Leg::new(leg).zip(from) else { return };
        let back = self.back(Path { leg, address }).address;
        if let Some(heard) = &mut self.heard[leg.index()] {
            heard.address = back;
        }
    }

    /// New DATA, or a copy of it, came from the sender.
    pub(crate) fn count(&mut self, now: Monotonic, leg: Leg, is_new: bool) {
        for (at, heard) in self.heard.iter_mut().take(self.used).enumerate() {
            let Some(heard) = heard else { continue };
            if at == leg.index() {
                heard.first += u64::from(is_new);
                heard.duplicates += u64::from(!is_new);
                (heard.others, heard.others_since, heard.reported) = (0, None, false);
            } else if is_new {
                heard.others += 1;
                heard.others_since.get_or_insert(now);
            }
        }
    }

    /// Returns a leg that has fallen behind, once until it brings something again.
    pub(crate) fn behind(&mut self, now: Monotonic) -> Option<Leg> {
        let is_behind = |heard: &Heard| {
            let late = heard.others_since.is_some_and(|since| now.since(since) >= BEHIND_NS);
            !heard.reported && (late || heard.others >= BEHIND)
        };
        let mut legs = self.heard.iter_mut().take(self.used).enumerate();
        let (at, heard) =
            legs.find_map(|(at, heard)| Some((at, heard.as_mut().filter(|one| is_behind(one))?)))?;
        heard.reported = true;
        Leg::new(at)
    }

    /// Returns whether this is an address of the sender.
    pub(crate) fn is_sender(&self, address: Address) -> bool {
        self.heard.iter().flatten().any(|heard| heard.address == address)
    }

    /// Returns what each leg has brought.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (Leg, LegCounters)> {
        let all: u64 = self.heard.iter().flatten().map(|heard| heard.first).sum();
        let legs = self.heard.iter().enumerate();
        legs.filter_map(move |(at, heard)| {
            let (leg, Heard { first, duplicates, .. }) = (Leg::new(at)?, (*heard)?);
            let missing = all.saturating_sub(first + duplicates);
            Some((leg, LegCounters { first, duplicates, missing }))
        })
    }

    /// Returns the way of a try to the sender. Consecutive tries take all legs that were heard since `since`.
    pub(crate) fn to_sender(&self, since: Monotonic, turn: u32) -> Path {
        let count = if mutant("one_leg") { 1 } else { self.lively(since).count() };
        self.nth(since, turn as usize % count.max(1))
    }

    /// Returns the way of a try for a repair. Consecutive tries ask the repairers in turn and the sender last, on
    /// another leg each. Of many receivers, each `start`s with another repairer.
    pub(crate) fn to_repair(
        &self,
        since: Monotonic,
        turn: u32,
        start: u32,
        repairers: &Repairers,
    ) -> Path {
        let (turn, start) = (turn as usize, start as usize);
        let repairers = repairers.as_slice();
        let places = repairers.len() + 1;
        let legs = if mutant("one_leg") { 1 } else { self.lively(since).count().max(1) };
        // Both change with each try. When they would repeat, they are shifted against one another, so that each
        // place is tried on each leg.
        let turn = turn % (places * legs);
        let path = self.nth(since, (turn + turn / least_common_multiple(places, legs)) % legs);
        let place = turn % places;
        match repairers.get((start + place) % repairers.len().max(1)) {
            Some(address) if place < repairers.len() && !mutant("repairers_unasked") => {
                Path { address: *address, ..path }
            }
            _ => path,
        }
    }

    fn lively(&self, since: Monotonic) -> impl Iterator<Item = Path> {
        let legs = self.heard.iter().enumerate();
        legs.filter_map(move |(at, heard)| {
            let heard = heard.as_ref().filter(|heard| heard.at >= since)?;
            Some(Path { leg: Leg::new(at)?, address: heard.address })
        })
    }

    fn nth(&self, since: Monotonic, place: usize) -> Path {
        self.lively(since).nth(place).unwrap_or_else(|| self.back(self.any))
    }
}

fn least_common_multiple(one: usize, other: usize) -> usize {
    let multiples = (1..=other).map(|times| one * times);
    multiples.into_iter().find(|multiple| multiple % other == 0).unwrap_or(one)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(1_000 * SECOND + ms * 1_000_000)
    }

    fn address(port: u16) -> Address {
        Address { ip: [0; 16], port }
    }

    fn leg(index: usize) -> Leg {
        Leg::new(index).unwrap()
    }

    /// As many legs as asked for, whose addresses are 0, 1, 2, …
    fn heard(count: usize) -> Legs {
        let mut legs = Legs::default();
        for (index, port) in (0..count).zip(0..) {
            legs.hear(at(0), Path { leg: leg(index), address: address(port) }, true);
        }
        legs
    }

    #[test]
    fn tries_take_the_legs_in_turn_and_none_that_fell_silent() {
        let mut legs = heard(3);
        let ways = |legs: &Legs, since| -> Vec<usize> {
            (0..4).map(|turn| legs.to_sender(since, turn).leg.index()).collect()
        };
        assert_eq!(ways(&legs, at(0)), [0, 1, 2, 0]);
        legs.hear(at(5), Path { leg: leg(0), address: address(7) }, true);
        legs.hear(at(5), Path { leg: leg(2), address: address(2) }, true);
        assert_eq!(ways(&legs, at(1)), [0, 2, 0, 2]);
        assert_eq!(legs.to_sender(at(1), 0).address, address(7), "where it was heard last");
        // If all are silent, the node that was heard last is still better than none.
        legs.hear_any(Path { leg: leg(1), address: address(9) });
        assert_eq!(legs.to_sender(at(6), 3), Path { leg: leg(1), address: address(9) });
        assert_eq!((Leg::new(MAX_LEGS), leg(7).index()), (None, 7));
    }

    #[test]
    fn every_repairer_is_tried_on_every_leg_and_the_sender_last_of_each_round() {
        for (repairers, legs) in [(0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 2), (4, 8), (3, 4)] {
            let heard = heard(legs);
            let list: Vec<Address> = (0..repairers).map(|port| address(100 + port)).collect();
            let stated = Repairers::new(&list).unwrap();
            let places = list.len() + 1;
            let tries = u32::try_from(places * legs).unwrap();
            for start in 0..5 {
                let ways: Vec<Path> =
                    (0..tries).map(|turn| heard.to_repair(at(0), turn, start, &stated)).collect();
                let all: BTreeSet<(Leg, Option<u16>)> = ways
                    .iter()
                    .map(|way| (way.leg, Some(way.address.port).filter(|port| *port >= 100)))
                    .collect();
                assert_eq!(all.len(), ways.len(), "{repairers} on {legs}: {ways:?}");
                for (turn, way) in ways.iter().enumerate() {
                    let is_sender = way.address.port < 100;
                    assert_eq!(is_sender, turn % places == places - 1, "{ways:?}");
                    assert!(!is_sender || usize::from(way.address.port) == way.leg.index());
                }
                if repairers > 0 {
                    let first = 100 + u16::try_from(start).unwrap() % repairers;
                    assert_eq!(ways[0].address, address(first), "each begins with another");
                }
            }
        }
    }

    #[test]
    fn a_leg_that_brings_nothing_is_behind_and_said_to_be_once() {
        let mut legs = heard(2);
        for ms in 0..999 {
            legs.count(at(ms), leg(0), true);
        }
        assert_eq!(legs.behind(at(999)), None);
        legs.count(at(999), leg(0), true);
        assert_eq!((legs.behind(at(999)), legs.behind(at(999))), (Some(leg(1)), None));
        legs.count(at(1_000), leg(1), false);
        assert_eq!(legs.behind(at(9_000)), None, "nothing came that it has not");
        legs.count(at(9_000), leg(1), true);
        assert_eq!(legs.behind(at(9_999)), None);
        assert_eq!(legs.behind(at(10_000)), Some(leg(0)), "one datagram, a second ago");
        let counters: Vec<_> = legs.counters().map(|(_, counters)| counters).collect();
        let one = LegCounters { first: 1_000, duplicates: 0, missing: 1 };
        let other = LegCounters { first: 1, duplicates: 1, missing: 999 };
        assert_eq!(counters, [one, other]);
    }

    #[test]
    fn a_path_that_a_repairer_has_used_is_not_taken_for_the_senders() {
        let mut legs = Legs::default();
        legs.hear_any(Path::single(address(5)));
        assert!(!legs.is_sender(address(5)));
        assert_eq!(legs.to_sender(at(0), 0).address, address(5), "until it was heard");
        legs.hear(at(1), Path::single(address(1)), true);
        assert!(legs.is_sender(address(1)));
        assert_eq!(legs.to_sender(at(0), 0).address, address(1));
    }

    #[test]
    fn answers_go_to_an_address_that_the_sender_lists() {
        let v4 = |host, port| {
            let mut ip = [0; 16];
            ip[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, host]);
            Address { ip, port }
        };
        let mut legs = Legs::default();
        legs.hear_any(Path::single(v4(9, 1)));
        assert_eq!(legs.to_sender(at(0), 0).address, v4(9, 1), "nothing is listed yet");
        legs.hear(at(0), Path::single(v4(9, 1)), true);
        legs.list(LegAddresses::new(&[address(7), v4(1, 4), v4(2, 4)]).unwrap());
        assert_eq!(
            legs.to_sender(at(0), 0).address,
            v4(1, 4),
            "the first that is listed, of its family"
        );
        assert_eq!(
            legs.to_sender(at(1), 0).address,
            v4(1, 4),
            "also where nothing was heard lately"
        );
        legs.hear(at(1), Path::single(v4(2, 4)), false);
        assert_eq!(legs.to_sender(at(1), 0).address, v4(2, 4));
        legs.hear(at(2), Path::single(v4(9, 1)), true);
        assert_eq!(legs.to_sender(at(2), 0).address, v4(1, 4));
        assert!(legs.is_listed(v4(2, 4)) && !legs.is_listed(v4(9, 1)));
    }

    #[test]
    fn without_a_list_a_copy_moves_nothing() {
        let mut legs = Legs::default();
        legs.hear(at(0), Path::single(address(1)), true);
        legs.hear(at(1), Path::single(address(2)), false);
        assert_eq!(legs.to_sender(at(1), 0).address, address(1));
        legs.hear(at(2), Path::single(address(3)), true);
        assert_eq!(legs.to_sender(at(2), 0).address, address(3));
    }
}
