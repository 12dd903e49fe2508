//! Repair: from NAKs to a fair queue of retransmissions, and the NCFs that answer them.
//!
//! ```text
//!   NAK of A  ──► budget ──► queue of A   3 4 5 9        ┐  in turn, a datagram's bytes each
//!   NAK of B  ──► budget ──► queue of B   3 7            ├────► retransmissions
//!   NAK of C  ──► budget ──► queue of C   3 4 5 6 7 8 …  ┘
//!                   │            │
//!                   ▼            └─ NCF gone, ignored, delayed, shed
//!                counted
//! ```
//!
//! Each receiver has a queue of its own, and the queues are served in turn (deficit round robin). So the
//! receiver that asks most waits longest, and costs the others nothing. A sequence that several ask for is
//! in the queue of each. Whichever comes first sends it, and the others pass over it.
//!
//! A receiver is identified by its address, which is harder to forge than what it writes.

use crate::config::{Config, WIRE_OVERHEAD_BYTES};
use crate::hook::mutant;
use crate::id::Sequence;
use crate::time::{Monotonic, SECOND};
use crate::window::Window;
use crate::wire::{Address, MAX_RANGES, NcfReason, Range, Ranges};

/// How many receivers have a queue at a time. The NAKs of others are shed until one is empty.
pub const MAX_QUEUES: usize = 256;
/// How many sequences a queue has at most.
pub const MAX_QUEUED: u64 = 4_096;
/// How many ranges a queue has at most.
const MAX_QUEUED_RANGES: usize = 512;
/// A receiver that takes more than half of the repairs for this many seconds is reported.
const CRYBABY_SECONDS: u32 = 10;

/// What is to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A datagram of the window.
    Datagram(Sequence),
    /// Names of topics, from this number on.
    Topics {
        /// The first.
        first: u32,
        /// How many at most.
        count: u32,
    },
}

/// A receiver that takes more than half of the repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crybaby {
    /// Where it is.
    pub address: Address,
    /// How many bytes were sent again for it in the last second.
    pub bytes: u64,
}

/// What an address did in this second.
#[derive(Debug, Clone, Copy)]
struct Peer {
    address: Address,
    naks: u64,
    bytes: u64,
    /// For how many seconds it took more than half.
    cries: u32,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    range: Range,
    since: Monotonic,
}

#[derive(Debug)]
struct Queue {
    address: Address,
    ranges: Vec<Queued>,
    sequences: u64,
    /// The names that it asked for, until which.
    topics: Option<(u32, u32)>,
    /// How many bytes it may still send in this turn.
    deficit: u64,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.topics.is_none()
    }
}

/// Ranges about which one NCF speaks.
#[derive(Debug)]
struct Answers {
    reason: NcfReason,
    ranges: Vec<Range>,
}

/// The repairs of one stream and session.
#[derive(Debug)]
pub struct Repair {
    ignore_ns: u64,
    generation_ns: u64,
    rate: Option<u64>,
    datagram_bytes: u64,
    naks_each: u64,
    naks_all: u64,
    /// Sorted by address. Never grows beyond its capacity.
    peers: Vec<Peer>,
    most_peers: usize,
    second: Monotonic,
    naks: u64,
    /// How many addresses have asked in this second.
    addresses: u64,
    queues: Vec<Queue>,
    /// Memory of queues that are empty.
    spare: Vec<Vec<Queued>>,
    turn: usize,
    answers: [Answers; 4],
    /// When names were last sent, in blocks.
    named: Option<(u32, Monotonic)>,
    crybaby: Option<Crybaby>,
    refused: u64,
    shed: u64,
}

impl Repair {
    /// Allocates what repairs need.
    #[must_use]
    pub fn new(config: &Config, now: Monotonic) -> Self {
        let most_peers = usize::try_from(config.receivers).unwrap_or(usize::MAX);
        Self {
            ignore_ns: config.ignore_ns,
            generation_ns: config.generation_ns,
            rate: config.retransmit_rate(),
            datagram_bytes: config.datagram_bytes + WIRE_OVERHEAD_BYTES,
            naks_each: config.naks_each,
            naks_all: config.naks_all,
            peers: Vec::with_capacity(most_peers),
            most_peers,
            second: now,
            naks: 0,
            addresses: 0,
            queues: Vec::with_capacity(MAX_QUEUES),
            spare: (0..MAX_QUEUES).map(|_| Vec::with_capacity(MAX_QUEUED_RANGES)).collect(),
            turn: 0,
            answers: NcfReason::ALL
                .map(|reason| Answers { reason, ranges: Vec::with_capacity(MAX_RANGES) }),
            named: None,
            crybaby: None,
            refused: 0,
            shed: 0,
        }
    }

    /// Returns how many datagrams were asked for and not queued, because too many waited.
    #[must_use]
    pub const fn shed(&self) -> u64 {
        self.shed
    }

    /// Returns how many NAKs were dropped because of the budgets.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Counts a datagram that asks for something. Returns whether it is within the budget of its address
    /// and of all.
    pub fn admit(&mut self, now: Monotonic, from: Address) -> bool {
        self.tick(now);
        let (each, all, used) = (self.naks_each, self.naks_all, self.naks);
        let addresses = self.addresses;
        let Some(peer) = self.peer(from) else {
            self.refused += 1;
            return false;
        };
        // Beyond the budget of all, each address still has its share: the honest are not dropped because
        // others are loud.
        let share = (all / addresses.max(1)).max(1);
        let within = peer.naks < each && (used < all || peer.naks < share);
        let admitted = within || mutant("naks_without_limit");
        if admitted {
            let is_first = peer.naks == 0;
            peer.naks += 1;
            self.naks += 1;
            self.addresses += u64::from(is_first);
        } else {
            self.refused += 1;
        }
        admitted
    }

    /// Takes what a receiver asks for. All of it was sent. `busy` says that the retransmission rate is
    /// used up at present.
    pub fn nak(
        &mut self,
        now: Monotonic,
        from: Address,
        ranges: &Ranges<'_>,
        window: &Window,
        busy: bool,
    ) {
        for range in ranges.iter() {
            let trail = window.trail();
            if let Some(gone) = between(range.first(), range.end().min(trail)) {
                self.answer(NcfReason::Gone, gone);
            }
            let mut at = range.first().max(trail);
            // A stranger may ask for 2³² datagrams. The window has fewer, and a queue fewer still.
            let mut looked = 0;
            while at < range.end() {
                looked += 1;
                if looked > MAX_QUEUED {
                    if let Some(rest) = between(at, range.end()) {
                        self.answer(NcfReason::Shed, rest);
                    }
                    break;
                }
                let one = single(at);
                if self.is_fresh(now, window, at) {
                    self.answer(NcfReason::Ignored, one);
                } else {
                    match self.push(now, from, at) {
                        Pushed::New if busy || self.queues.len() > 1 => {
                            self.answer(NcfReason::Delayed, one);
                        }
                        Pushed::Full => self.answer(NcfReason::Shed, one),
                        Pushed::New | Pushed::Known => {}
                    }
                }
                at = at.plus(1);
            }
        }
    }

    /// Takes a request for names.
    pub fn topics(&mut self, from: Address, first: u32, end: u32) {
        if let Some(queue) = self.queue(from) {
            let (from, until) = queue.topics.unwrap_or((first, end));
            queue.topics = Some((from.min(first), until.max(end)));
        }
    }

    /// Returns what comes next, without taking it. Passes over what was repaired meanwhile.
    pub fn peek(&mut self, now: Monotonic, window: &Window) -> Option<(Next, u64)> {
        loop {
            self.drop_empty();
            let datagram_bytes = self.datagram_bytes;
            self.turn = if self.turn < self.queues.len() { self.turn } else { 0 };
            let turn = self.turn;
            let queue = self.queues.get_mut(turn)?;
            if let Some((first, end)) = queue.topics {
                let named = self.named.is_some_and(|(at, sent)| {
                    at == first && sent.after(self.ignore_ns) > now && sent != now
                });
                if named {
                    queue.topics = None;
                    continue;
                }
                if queue.deficit < datagram_bytes {
                    queue.deficit += datagram_bytes;
                    self.next_turn_unless_alone();
                    continue;
                }
                return Some((Next::Topics { first, count: end - first }, datagram_bytes));
            }
            let Queued { range, since } = *queue.ranges.first()?;
            let at = range.first().max(window.trail());
            let passed = at >= range.end();
            let repaired = window.repaired(at).is_some_and(|when| when >= since);
            if passed || repaired {
                let until = if passed { range.end() } else { at.plus(1) };
                cut_front(queue, until);
                continue;
            }
            cut_front(queue, at);
            let bytes = window.get(at).map_or(0, <[u8]>::len) as u64 + WIRE_OVERHEAD_BYTES;
            let queue = self.queues.get_mut(turn)?;
            if queue.deficit < bytes {
                queue.deficit += datagram_bytes;
                self.next_turn_unless_alone();
                continue;
            }
            return Some((Next::Datagram(at), bytes));
        }
    }

    /// Takes what [`Self::peek`] returned. Of topics, all before `until` were sent.
    pub fn take(&mut self, now: Monotonic, next: Next, bytes: u64, until: u32) {
        let Some(queue) = self.queues.get_mut(self.turn) else { return };
        queue.deficit = queue.deficit.saturating_sub(bytes);
        match next {
            Next::Datagram(at) => cut_front(queue, at.plus(1)),
            Next::Topics { first, count } => {
                self.named = Some((first, now));
                queue.topics = (until < first + count).then_some((until, first + count));
            }
        }
        let address = queue.address;
        if let Some(peer) = self.peer(address) {
            peer.bytes += bytes;
        }
    }

    /// Returns an NCF that is due, and forgets it.
    pub fn ncf(&mut self, ranges: &mut [Range; MAX_RANGES]) -> Option<(NcfReason, usize)> {
        let answers = self.answers.iter_mut().find(|answers| !answers.ranges.is_empty())?;
        let count = answers.ranges.len();
        ranges[..count].copy_from_slice(&answers.ranges);
        answers.ranges.clear();
        Some((answers.reason, count))
    }

    /// Returns whether an NCF is due.
    #[must_use]
    pub fn has_ncf(&self) -> bool {
        self.answers.iter().any(|answers| !answers.ranges.is_empty())
    }

    /// Returns whether something is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(Queue::is_empty)
    }

    /// Returns a receiver that took more than half of the repairs for 10 s, once each time.
    pub fn crybaby(&mut self) -> Option<Crybaby> {
        self.crybaby.take()
    }

    /// Ends the second, if it is over.
    pub fn tick(&mut self, now: Monotonic) {
        let passed = now.since(self.second) / SECOND;
        if passed == 0 {
            return;
        }
        self.second = self.second.after(passed * SECOND);
        let budget = self.rate.map_or(u64::MAX, |rate| rate / 8);
        for peer in &mut self.peers {
            let cries = peer.bytes > budget / 2 && passed == 1;
            peer.cries = if cries { peer.cries + 1 } else { 0 };
            if peer.cries == CRYBABY_SECONDS {
                self.crybaby = Some(Crybaby { address: peer.address, bytes: peer.bytes });
            }
        }
        self.peers.retain(|peer| peer.naks > 0 || peer.bytes > 0);
        for peer in &mut self.peers {
            (peer.naks, peer.bytes) = (0, 0);
        }
        (self.naks, self.addresses) = (0, 0);
    }

    fn peer(&mut self, address: Address) -> Option<&mut Peer> {
        let at = match self.peers.binary_search_by_key(&address, |peer| peer.address) {
            Ok(at) => at,
            Err(_) if self.peers.len() >= self.most_peers => return None,
            Err(at) => {
                self.peers.insert(at, Peer { address, naks: 0, bytes: 0, cries: 0 });
                at
            }
        };
        self.peers.get_mut(at)
    }

    /// Whether a datagram was sent again just now, so that the NAK may have crossed it.
    fn is_fresh(&self, now: Monotonic, window: &Window, at: Sequence) -> bool {
        !mutant("repair_ignores_nothing")
            && window.repaired(at).is_some_and(|when| when.after(self.ignore_ns) > now)
    }

    fn queue(&mut self, address: Address) -> Option<&mut Queue> {
        let at = self.queues.iter().position(|queue| queue.address == address);
        let at = match at {
            Some(at) => at,
            None => {
                let ranges = self.spare.pop()?;
                let queue = Queue { address, ranges, sequences: 0, topics: None, deficit: 0 };
                self.queues.push(queue);
                self.queues.len() - 1
            }
        };
        self.queues.get_mut(at)
    }

    fn push(&mut self, now: Monotonic, from: Address, at: Sequence) -> Pushed {
        let share = self.queues.len().max(1) as u64;
        let longest = self.longest(share);
        let Some(queue) = self.queue(from) else { return Pushed::Full };
        let place = queue.ranges.partition_point(|queued| queued.range.end() <= at);
        if queue.ranges.get(place).is_some_and(|queued| queued.range.first() <= at) {
            return Pushed::Known;
        }
        if queue.sequences >= longest {
            return Pushed::Full;
        }
        let joined = place.checked_sub(1).and_then(|before| {
            let before = queue.ranges.get_mut(before)?;
            let range = between(before.range.first(), at.plus(1))?;
            (before.range.end() == at && before.since == now).then(|| before.range = range)
        });
        if joined.is_none() {
            if queue.ranges.len() >= MAX_QUEUED_RANGES {
                return Pushed::Full;
            }
            queue.ranges.insert(place, Queued { range: single(at), since: now });
        }
        queue.sequences += 1;
        Pushed::New
    }

    /// How many sequences a queue may have, so that all are sent within half of the generation interval.
    fn longest(&self, share: u64) -> u64 {
        let Some(rate) = self.rate else { return MAX_QUEUED };
        let bits = u128::from(rate) * u128::from(self.generation_ns / 2) / u128::from(SECOND);
        let datagrams = bits / 8 / u128::from(self.datagram_bytes * share);
        u64::try_from(datagrams).unwrap_or(MAX_QUEUED).clamp(16, MAX_QUEUED)
    }

    fn drop_empty(&mut self) {
        while let Some(at) = self.queues.iter().position(Queue::is_empty) {
            let mut queue = self.queues.remove(at);
            queue.ranges.clear();
            self.spare.push(queue.ranges);
            if at < self.turn {
                self.turn -= 1;
            }
        }
    }

    fn next_turn_unless_alone(&mut self) {
        if mutant("repair_in_order_of_arrival") {
            return;
        }
        self.turn = (self.turn + 1) % self.queues.len().max(1);
    }

    fn answer(&mut self, reason: NcfReason, range: Range) {
        if reason == NcfReason::Shed {
            self.shed += range.end().since(range.first());
        }
        let Some(answers) = self.answers.iter_mut().find(|answers| answers.reason == reason) else {
            return;
        };
        let list = &mut answers.ranges;
        let place = list.partition_point(|other| other.end() < range.first());
        let (mut first, mut end) = (range.first(), range.end());
        let mut until = place;
        while let Some(other) = list.get(until).filter(|other| other.first() <= end) {
            first = first.min(other.first());
            end = end.max(other.end());
            until += 1;
        }
        let Some(joined) = between(first, end) else { return };
        if until > place {
            list[place] = joined;
            list.drain(place + 1..until);
        } else if list.len() < MAX_RANGES {
            list.insert(place, joined);
        }
        // Without room nothing is said: the receiver asks again.
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pushed {
    New,
    Known,
    Full,
}

/// Removes what is before `until` from a queue.
fn cut_front(queue: &mut Queue, until: Sequence) {
    let Some(first) = queue.ranges.first_mut() else { return };
    queue.sequences -= until.min(first.range.end()).since(first.range.first());
    match between(until.max(first.range.first()), first.range.end()) {
        Some(rest) => first.range = rest,
        None => drop(queue.ranges.remove(0)),
    }
}

fn single(at: Sequence) -> Range {
    Range::new(at, 1).expect("what was sent is below the greatest sequence")
}

/// The range from `first` to before `end`, if there is anything between them.
fn between(first: Sequence, end: Sequence) -> Option<Range> {
    Range::new(first, u32::try_from(end.since(first)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batcher::{Batcher, Now};
    use crate::id::Number;
    use crate::time::{MILLISECOND, Wall};
    use crate::wire::chunk::tests::start;
    use crate::wire::samples::{self, header, sequence};
    use crate::wire::{Body, Nak, Receiver};

    const FIRST: u64 = (1 << 63) - 1_000_000;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(5 * SECOND + ms * MILLISECOND)
    }

    fn address(port: u16) -> Address {
        Address { ip: [0; 16], port }
    }

    fn config() -> Config {
        Config { window_bytes: 1 << 20, ..Config::with_rate(80_000_000) }
    }

    /// A window with this many datagrams, all of them sent.
    fn window(config: &Config, datagrams: u64) -> Window {
        let bytes = usize::try_from(config.window_bytes).unwrap();
        let mut window = Window::new(bytes, 1_408, sequence(FIRST));
        let mut batcher = Batcher::new(config, header(0), None, Number::ZERO);
        let now = Now { monotonic: at(0), wall: Wall::from_ns(0) };
        for number in 0..datagrams {
            batcher.message(&mut window, now, start(number), &[0; 1_200]).unwrap();
            batcher.flush(&mut window, now);
            window.sent();
        }
        window
    }

    struct Fixture {
        repair: Repair,
        window: Window,
    }

    impl Fixture {
        fn new(config: &Config, datagrams: u64) -> Self {
            Self { repair: Repair::new(config, at(0)), window: window(config, datagrams) }
        }

        fn nak(&mut self, ms: u64, port: u16, ranges: &[(u64, u32)]) {
            let ranges: Vec<Range> = ranges
                .iter()
                .map(|(first, count)| Range::new(sequence(FIRST + first), *count).unwrap())
                .collect();
            let id = Receiver { source: crate::id::Source(1), session: crate::id::Session(1) };
            let mut bytes = vec![0; 1_000];
            let length =
                Nak::encode(&header(0), id, Wall::default(), &ranges, None, &mut bytes).unwrap();
            let Body::Nak(nak) = samples::parse(&bytes[..length]).unwrap().body else { panic!() };
            assert!(self.repair.admit(at(ms), address(port)));
            self.repair.nak(at(ms), address(port), &nak.ranges, &self.window, false);
        }

        /// The next repairs.
        fn repairs(&mut self, ms: u64, most: usize) -> Vec<u64> {
            let mut list = Vec::new();
            while list.len() < most
                && let Some((next, bytes)) = self.repair.peek(at(ms), &self.window)
            {
                self.repair.take(at(ms), next, bytes, 0);
                let Next::Datagram(sequence) = next else { panic!("{next:?}") };
                assert!(self.window.repair(sequence, at(ms), None).is_some());
                list.push(sequence.get() - FIRST);
            }
            list
        }

        fn ncfs(&mut self) -> Vec<(NcfReason, Vec<(u64, u32)>)> {
            let mut list = Vec::new();
            let mut ranges = [Range::new(Sequence::ZERO, 1).unwrap(); MAX_RANGES];
            while let Some((reason, count)) = self.repair.ncf(&mut ranges) {
                let about = ranges[..count]
                    .iter()
                    .map(|range| (range.first().get().wrapping_sub(FIRST), range.count()));
                list.push((reason, about.collect()));
            }
            list
        }
    }

    #[test]
    fn what_is_asked_for_is_sent_in_order_and_once() {
        let mut fixture = Fixture::new(&config(), 20);
        fixture.nak(0, 1, &[(5, 2), (9, 1)]);
        fixture.nak(0, 1, &[(2, 1), (6, 1)]);
        assert_eq!(fixture.repairs(0, 99), [2, 5, 6, 9]);
        assert_eq!(fixture.ncfs(), []);
        assert!(fixture.repair.is_empty());
    }

    #[test]
    fn what_was_just_sent_again_is_ignored_and_said_to_be() {
        let mut fixture = Fixture::new(&config(), 20);
        fixture.nak(0, 1, &[(5, 1)]);
        assert_eq!(fixture.repairs(0, 99), [5]);
        fixture.nak(9, 2, &[(5, 2)]);
        assert_eq!(fixture.ncfs(), [(NcfReason::Ignored, vec![(5, 1)])]);
        assert_eq!(fixture.repairs(9, 99), [6]);
        fixture.nak(10, 2, &[(5, 1)]);
        assert_eq!(fixture.repairs(10, 99), [5]);
    }

    #[test]
    fn what_has_left_the_window_is_gone() {
        let config = Config { window_bytes: 10_000, ..config() };
        let mut fixture = Fixture::new(&config, 20);
        let trail = fixture.window.trail().get() - FIRST;
        assert!(trail > 10);
        fixture.nak(0, 1, &[(0, 20)]);
        let gone = u32::try_from(trail).unwrap();
        assert_eq!(fixture.ncfs(), [(NcfReason::Gone, vec![(0, gone)])]);
        assert_eq!(fixture.repairs(0, 99), (trail..20).collect::<Vec<_>>());
    }

    #[test]
    fn receivers_are_served_in_turn_however_much_one_asks_for() {
        let mut fixture = Fixture::new(&config(), 500);
        fixture.nak(0, 1, &[(0, 300)]);
        fixture.nak(0, 2, &[(400, 2)]);
        let repairs = fixture.repairs(0, 8);
        assert!(repairs.contains(&400) && repairs.contains(&401), "{repairs:?}");
        assert_eq!(repairs.iter().filter(|at| **at < 300).count(), 6);
    }

    #[test]
    fn what_several_ask_for_is_sent_once_by_whose_turn_comes_first() {
        let mut fixture = Fixture::new(&config(), 500);
        fixture.nak(0, 1, &[(0, 100), (400, 1)]);
        fixture.nak(0, 2, &[(400, 1)]);
        let repairs = fixture.repairs(0, 999);
        assert_eq!(repairs.iter().filter(|at| **at == 400).count(), 1);
        assert!(
            repairs[..3].contains(&400),
            "the one that asks for less does not wait: {repairs:?}"
        );
        assert_eq!(repairs.len(), 101);
    }

    #[test]
    fn a_queue_that_would_take_too_long_sheds() {
        // 20 Mbit/s repair 424 datagrams in half of the generation interval.
        let mut fixture = Fixture::new(&config(), 800);
        fixture.nak(0, 1, &[(0, 800)]);
        let ncfs = fixture.ncfs();
        let [(NcfReason::Shed, shed)] = &ncfs[..] else { panic!("{ncfs:?}") };
        assert_eq!(shed.len(), 1);
        assert_eq!(shed[0].0 + u64::from(shed[0].1), 800);
        assert_eq!(fixture.repair.shed(), u64::from(shed[0].1));
        assert_eq!(fixture.repairs(0, 9_999).len() as u64, shed[0].0);
    }

    #[test]
    fn a_busy_sender_says_that_repairs_come_later() {
        let mut fixture = Fixture::new(&config(), 50);
        fixture.nak(0, 1, &[(0, 3)]);
        fixture.nak(0, 2, &[(10, 3)]);
        assert_eq!(fixture.ncfs(), [(NcfReason::Delayed, vec![(10, 3)])]);
    }

    #[test]
    fn an_address_has_a_budget_and_the_quiet_keep_theirs_when_others_are_loud() {
        let config = Config { naks_each: 20, naks_all: 40, ..config() };
        let mut repair = Repair::new(&config, at(0));
        let admitted = |repair: &mut Repair, ms, port, count| {
            (0..count).filter(|_| repair.admit(at(ms), address(port))).count()
        };
        assert_eq!(admitted(&mut repair, 0, 1, 100), 20);
        assert_eq!(admitted(&mut repair, 0, 2, 100), 20);
        // The budget of all is used up: what is left is a share.
        assert_eq!(admitted(&mut repair, 0, 3, 100), 13, "a third");
        assert_eq!(admitted(&mut repair, 0, 4, 5), 5);
        assert_eq!(repair.refused(), 80 + 80 + 87);
        assert_eq!(admitted(&mut repair, 1_000, 1, 100), 20, "the next second");
    }

    #[test]
    fn who_takes_more_than_half_for_ten_seconds_is_reported_once() {
        let mut fixture = Fixture::new(&config(), 600);
        let mut reports = Vec::new();
        // Half of 20 Mbit/s are 1.25 MB in a second: 1,000 datagrams.
        for second in 0..15 {
            for part in 0..5 {
                let now = second * 1_000 + part * 50;
                fixture.nak(now, 7, &[(0, 300)]);
                fixture.nak(now, 8, &[(300, 3)]);
                fixture.repairs(now, 9_999);
            }
            fixture.repair.tick(at((second + 1) * 1_000));
            reports.extend(fixture.repair.crybaby().map(|one| (second, one.address.port)));
        }
        assert_eq!(reports, [(9, 7)]);
    }

    #[test]
    fn more_receivers_than_queues_are_shed() {
        let config = Config { naks_all: 1_000, ..config() };
        let mut fixture = Fixture::new(&config, 20);
        for port in 0..u16::try_from(MAX_QUEUES).unwrap() {
            fixture.nak(0, port, &[(1, 1)]);
        }
        fixture.ncfs();
        fixture.nak(0, 9_999, &[(1, 1)]);
        assert_eq!(fixture.ncfs(), [(NcfReason::Shed, vec![(1, 1)])]);
        assert_eq!(fixture.repairs(0, 99), [1]);
        fixture.nak(20, 9_999, &[(1, 1)]);
        assert_eq!(fixture.repairs(20, 99), [1]);
    }
}
