//! Both ends, and what is on the way between them.

use super::super::{
    FLAGS_AT, KEYS, KIND_AT, REALM, SEQUENCE_AT, SESSION_AT, SOURCE_AT, STREAM_AT, completed,
};
use super::oracle::Oracle;
use crate::input::Input;
use std::collections::VecDeque;
use toroni_proto::arrivals::Arrivals;
use toroni_proto::audience::Name;
use toroni_proto::batcher::{Full, Now};
use toroni_proto::config::{Config, Order};
use toroni_proto::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use toroni_proto::legs::Path;
use toroni_proto::past::Past;
use toroni_proto::random::Random;
use toroni_proto::receiver::Me;
use toroni_proto::sender::{Identity, Sender};
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::{
    Address, Flags, HEADER_BYTES, Header, LegAddresses, LostReason, NodeName, Policy, Receiver,
    Repairers, Start, TableName,
};

const SOURCE: Source = Source(7);
const SESSION: Session = Session(100);
const STREAM: Stream = Stream(1);
const US: Source = Source(9);
/// The first sequence: near the greatest, where arithmetic would overflow first.
const FIRST: u64 = (1 << 63) - 1_000_000;
const BUFFERS: u64 = 64;
const DATAGRAM: u64 = 512;
const LONGEST: u16 = 4_000;
/// Datagrams on the way. Of more, the oldest are lost.
const MOST_IN_FLIGHT: usize = 48;
/// After this time without faults, all is repaired or reported: a SESSION comes within 2 s, and a repair or its
/// end within `generation`.
const QUIET_NS: u64 = 6 * SECOND;

pub(super) struct World {
    now_ns: u64,
    sender: Sender,
    arrivals: Arrivals,
    oracle: Oracle,
    is_signed: bool,
    number: u64,
    in_flight: VecDeque<Vec<u8>>,
    answers: VecDeque<Vec<u8>>,
}

fn config(order: Order) -> Config {
    Config {
        policy: Policy::Uncontrolled,
        retransmit_rate: Some(1_000_000_000),
        window_bytes: 1 << 14,
        reorder_memory_bytes: BUFFERS / 2 * DATAGRAM,
        receive_memory_bytes: BUFFERS * DATAGRAM,
        datagram_bytes: DATAGRAM,
        message_max_bytes: u64::from(LONGEST),
        order,
        sources: 4,
        receivers: 4,
        topics: 16,
        ..Config::default()
    }
}

impl World {
    pub(super) fn new(choice: u8) -> Self {
        let is_signed = choice & 1 != 0;
        let order = if choice & 2 == 0 { Order::Source } else { Order::Arrival };
        let (config, keys) = (config(order), is_signed.then_some(KEYS));
        let identity = Identity {
            header: header(),
            keys,
            name: NodeName::new("line-3").unwrap(),
            instance: [1; 16],
            series: Series(3),
            begins: Number::ZERO,
            past: Past::NONE,
            patterns: &[],
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        };
        let id = Receiver { source: US, session: Session(50) };
        let me = Me { id, name: Name::new(NodeName::new("line-9").unwrap()), required: false };
        let random = Random::new(u64::from(choice >> 2));
        let oracle = Oracle::new(order == Order::Source, (SOURCE.0, SESSION.0, STREAM.0));
        Self {
            now_ns: SECOND,
            sender: Sender::new(&config, &identity, Monotonic::from_ns(SECOND)).unwrap(),
            arrivals: Arrivals::new(&config, Realm::of(REALM), keys, me, [9; 16], random),
            oracle,
            is_signed,
            number: 0,
            in_flight: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Monotonic::from_ns(self.now_ns),
            wall: Wall::from_ns(1_700_000_000_000_000_000 + self.now_ns),
        }
    }

    /// Publishes a message. The argument also chooses its topic, and how many numbers before it are not of the stream.
    pub(super) fn publish(&mut self, length: u16, choice: u8) {
        if self.sender.is_ending() {
            return;
        }
        let at = self.oracle.published.len();
        let payload: Vec<u8> = (0..length % (LONGEST + 100))
            .map(|byte| (usize::from(byte) ^ at).to_le_bytes()[0])
            .collect();
        let topic = format!("plant/{}", choice % 32);
        let skipped = if choice & 0x20 == 0 { 0 } else { u64::from(choice >> 6) };
        let number = Number::new(self.number + skipped).unwrap();
        let mark = self.sender.mark();
        if self.pack(&topic, number, &payload).is_err() {
            // What is packed must be sent before there is room.
            self.sender.go_back(&mark);
            self.flush();
            self.transmit();
            self.pack(&topic, number, &payload).expect("all that was packed before is sent");
        }
        self.number = number.get() + 1;
        self.oracle.published.push(payload);
    }

    fn pack(&mut self, topic: &str, number: Number, payload: &[u8]) -> Result<(), Full> {
        let now = self.now();
        match self.sender.topic(now, TableName::new(topic).unwrap())? {
            Some(topic) => {
                let published = number.get().is_multiple_of(3).then_some(now.wall);
                let to_descendants = number.get().is_multiple_of(2);
                let start = Start { topic, number, to_descendants, published, origin: None };
                self.sender.message(now, start, payload)
            }
            None => self.sender.lost(now, 1, number.plus(1), LostReason::Topic),
        }
    }

    pub(super) fn flush(&mut self) {
        self.sender.flush(self.now());
    }

    /// Lets the sender send all that it may.
    pub(super) fn transmit(&mut self) {
        let now = self.now();
        let mut count = 0;
        while let Some(datagram) = self.sender.poll_transmit(now) {
            self.in_flight.push_back(datagram.to_vec());
            if self.in_flight.len() > MOST_IN_FLIGHT {
                self.in_flight.pop_front();
            }
            count += 1;
            assert!(count < 10_000, "a sender that never comes to an end");
        }
    }

    fn place(&self, choice: u8) -> Option<usize> {
        usize::from(choice).checked_rem(self.in_flight.len())
    }

    /// Delivers a datagram, which stays on the way if it is to come again.
    pub(super) fn deliver(&mut self, choice: u8, comes_again: bool) {
        let Some(place) = self.place(choice) else { return };
        let datagram = if comes_again {
            self.in_flight[place].clone()
        } else {
            self.in_flight.remove(place).unwrap()
        };
        self.hear(&datagram);
    }

    fn hear(&mut self, datagram: &[u8]) -> bool {
        let now = self.now().monotonic;
        let from = Path::single(Address::default());
        self.arrivals.handle_datagram(now, from, datagram, &mut self.oracle).is_ok()
    }

    /// Loses a datagram.
    pub(super) fn drop(&mut self, choice: u8) {
        if let Some(place) = self.place(choice) {
            self.in_flight.remove(place);
        }
    }

    /// Lets time pass. Both ends do what is due.
    pub(super) fn advance(&mut self, by_ns: u64) {
        self.now_ns += by_ns;
        let now = self.now();
        self.sender.handle_timeout(now);
        self.arrivals.handle_timeout(now.monotonic, &mut self.oracle);
        while self.sender.poll_event().is_some() {}
        while self.arrivals.poll_event().is_some() {}
    }

    /// Lets the receiving node send what it wants to. It arrives, or is lost.
    pub(super) fn answer(&mut self, arrives: bool) {
        let now = self.now();
        let mut count = 0;
        while let Some((_, datagram)) = self.arrivals.poll_transmit(now.monotonic) {
            let datagram = datagram.to_vec();
            if arrives {
                // It may be refused: the receiver may follow a session that was forged.
                let _ = self.sender.handle_datagram(now, Address::default(), &datagram);
            }
            self.answers.push_back(datagram);
            self.answers.truncate(8);
            count += 1;
            assert!(count < 1_000, "a receiver that never comes to an end");
        }
    }

    /// Delivers a copy of a datagram in which some bits are changed.
    pub(super) fn change(&mut self, choice: u8, at: u16, bits: u8) {
        let Some(place) = self.place(choice) else { return };
        let mut datagram = self.in_flight[place].clone();
        let at = usize::from(at) % datagram.len();
        datagram[at] ^= bits;
        if bits == 0 {
            self.hear(&datagram);
        } else {
            self.hear_forged(&datagram);
        }
    }

    /// Delivers a forged datagram.
    fn hear_forged(&mut self, datagram: &[u8]) {
        let was_honest = self.oracle.is_honest;
        // What is said in the name of the source, and believed, is not judged.
        self.oracle.is_honest &=
            self.is_signed || datagram[SOURCE_AT..][..4] != SOURCE.0.to_le_bytes();
        if self.hear(datagram) {
            assert!(!self.is_signed, "a forged datagram has the right code");
        } else {
            self.oracle.is_honest = was_honest;
        }
    }

    /// Delivers a datagram that the bytes describe: a header, and any body or one that is on the way.
    pub(super) fn forge_to_arrivals(&mut self, input: &mut Input<'_>) {
        let template = self.place(input.byte()).map(|place| self.in_flight[place].clone());
        let datagram = self.forge(input, template);
        self.hear_forged(&datagram);
    }

    /// The same for the sender. Whatever strangers ask of it, its receivers get the truth.
    pub(super) fn forge_to_sender(&mut self, input: &mut Input<'_>) {
        let template = usize::from(input.byte()).checked_rem(self.answers.len());
        let template = template.map(|place| self.answers[place].clone());
        let datagram = self.forge(input, template);
        let address = Address { port: u16::from(input.byte()), ..Address::default() };
        let taken = self.sender.handle_datagram(self.now(), address, &datagram);
        assert!(!self.is_signed || taken.is_err(), "a forged datagram has the right code");
    }

    fn forge(&mut self, input: &mut Input<'_>, template: Option<Vec<u8>>) -> Vec<u8> {
        let choice = input.byte();
        let mut datagram = match template {
            Some(template) if choice & 1 != 0 => template,
            _ => {
                let mut any = vec![0; HEADER_BYTES + usize::from(input.byte() % 128)];
                any[KIND_AT] = input.byte() % 10;
                any[HEADER_BYTES..].fill_with(|| input.byte());
                any
            }
        };
        if choice & 2 != 0 {
            datagram[FLAGS_AT] = input.byte();
        }
        let source = [SOURCE, SOURCE, Source(8), US][usize::from(choice >> 2 & 3)];
        let session = [SESSION, SESSION, Session(101), Session(99)][usize::from(choice >> 4 & 3)];
        datagram[STREAM_AT..][..2].copy_from_slice(&STREAM.0.to_le_bytes());
        datagram[SOURCE_AT..][..4].copy_from_slice(&source.0.to_le_bytes());
        datagram[SESSION_AT..][..4].copy_from_slice(&session.0.to_le_bytes());
        if choice & 0x40 != 0 {
            let lead = self.sender.window().lead().get();
            let distance = u64::from(input.u32() % (1 << 18));
            let sequence = (lead + distance).saturating_sub(1 << 16);
            datagram[SEQUENCE_AT..][..8].copy_from_slice(&sequence.to_le_bytes());
        }
        completed(&datagram, false)
    }

    /// What happens rarely.
    pub(super) fn seldom(&mut self, choice: u8) {
        let now = self.now();
        match choice % 4 {
            0 => self.sender.end(now, choice & 4 != 0),
            1 => self.arrivals.postpone(u64::from(choice) * MILLISECOND),
            2 if !self.sender.is_ending() => {
                // It packs something, and finds that it was not intact.
                let mark = self.sender.mark();
                let number = Number::new(self.number).unwrap();
                let _ = self.pack("plant/torn", number, &[1; 300]);
                self.sender.go_back(&mark);
            }
            3 if !self.sender.is_ending() => {
                let (count, until) = (u64::from(choice >> 2) + 1, self.number + 64);
                let until_number = Number::new(until).unwrap();
                if self.sender.lost(now, count, until_number, LostReason::Overtaken).is_ok() {
                    self.oracle.is_unsure = true;
                    self.number = until;
                    let lost = (0..count).map(|_| Vec::new());
                    self.oracle.published.extend(lost);
                }
            }
            _ => {}
        }
    }

    /// Checks what holds at any time.
    pub(super) fn check(&self) {
        let (free, held) = self.arrivals.buffers();
        assert_eq!((free + held) as u64, BUFFERS, "{free} buffers are free and {held} are held");
        assert!(self.arrivals.counters().count() <= 4, "more sources than there may be");
        let window = self.sender.window();
        assert!(window.trail() <= window.unsent() && window.unsent() <= window.lead());
    }

    /// Lets both ends talk without faults. Then all is delivered or reported, unless something was forged or the session has
    /// ended.
    pub(super) fn finish(mut self) {
        self.in_flight.clear();
        let end = self.now_ns + QUIET_NS;
        self.flush();
        while self.now_ns < end {
            self.transmit();
            while let Some(datagram) = self.in_flight.pop_front() {
                self.hear(&datagram);
            }
            self.answer(true);
            self.transmit();
            let due = [self.sender.poll_timeout(), self.arrivals.poll_timeout()];
            let due = due.into_iter().flatten().min().map_or(end, Monotonic::ns);
            self.advance(due.saturating_sub(self.now_ns).clamp(100_000, SECOND));
            self.check();
        }
        if self.oracle.is_honest && !self.sender.is_ending() {
            self.oracle.check_complete();
        }
    }
}

fn header() -> Header {
    Header {
        flags: Flags::NONE,
        ttl: 16,
        realm: Realm::of(REALM),
        stream: STREAM,
        source: SOURCE,
        session: SESSION,
        sequence: Sequence::new(FIRST).unwrap(),
    }
}
