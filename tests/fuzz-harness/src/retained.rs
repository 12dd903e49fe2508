//! Writes any bytes where a bus keeps the values of retained topics, and lets honest programs meet them. They get values or
//! errors; the stream and the publishers that have not declared a topic notice nothing.

use crate::hostile::template::{
    BUS, CAPACITY, KNOWN, Kind, Template, VALUE_AREA_BYTES, VALUE_AREA_OFFSET, VALUE_INDEX_OFFSET,
    VALUES, VALUES_OFFSET,
};
use crate::input::Input;
use std::path::Path;
use toroni::{Bus, Limit, PublishError, Publisher, ReceiveError, RetainError, Subscriber};

/// More changes at once than this hide one another.
const MOST_CHANGES: usize = 16;
/// A topic that was not declared. It has the second entry of the index after that of [`KNOWN`].
const OTHER: &str = "other/x";
/// More messages than these no subscriber gets: there is not room for more values, and no more are published.
const MOST_MESSAGES: u64 = VALUES + 64;

/// Two buses, with the places of their values: one that was lapped, and one that was not.
#[derive(Debug)]
pub struct Fixture([Template; 2]);

/// Some bytes at an offset of the file `ring`.
struct Change {
    offset: u64,
    value: u64,
    width: usize,
}

impl Fixture {
    /// Makes the buses below `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self([Kind::Lease, Kind::Young].map(|kind| Template::new(directory, kind)))
    }

    /// Changes the values of a bus as the bytes say, before programs open it or while they use it.
    pub fn fuzz(&self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        let how = input.byte();
        let template = &self.0[usize::from(how & 1)];
        let mut changes = Vec::new();
        while !input.is_empty() && changes.len() < MOST_CHANGES {
            changes.push(change(&mut input, template));
        }
        let apply = || {
            for Change { offset, value, width } in &changes {
                template.write("ring", *offset, &value.to_ne_bytes()[..*width]);
            }
        };
        template.restore();
        let is_before = how & 2 == 0;
        if is_before {
            apply();
        }
        let mut programs = Programs::open(template);
        if !is_before {
            programs.use_all();
            apply();
        }
        programs.use_all();
        programs.use_all();
    }
}

/// One change: a number of the index, a word of an entry, or a word of the values.
fn change(input: &mut Input<'_>, template: &Template) -> Change {
    let [kind, which, place] = [input.byte(), input.byte(), input.byte()];
    match kind % 8 {
        0 => Change {
            offset: VALUE_INDEX_OFFSET + 4 * u64::from(which % 4),
            value: if place < 128 { (place % 8).into() } else { input.u32().into() },
            width: 4,
        },
        1..6 => Change {
            offset: VALUES_OFFSET + 128 * (u64::from(which) % VALUES) + 8 * u64::from(place % 16),
            value: word(input, template),
            width: 8,
        },
        _ => Change {
            offset: VALUE_AREA_OFFSET
                + 8 * (u64::from(which) << 8 | u64::from(place)) % VALUE_AREA_BYTES,
            value: word(input, template),
            width: 8,
        },
    }
}

/// A word that is likely to reach a special case: a position, a sequence, a place, or the header of a record.
fn word(input: &mut Input<'_>, template: &Template) -> u64 {
    let (kind, small) = (input.byte(), u64::from(input.byte()));
    let units = VALUE_AREA_BYTES / 64;
    match kind % 12 {
        0 => u64::MAX - small,
        1 => small,
        2 => template.tail.wrapping_add(small * 8),
        3 => template.tail.wrapping_sub(small * 8),
        4 => template.positions[usize::from(input.byte()) % template.positions.len()],
        5 => template.positions.len() as u64 + small,
        6 => (small % (units + 2)) << 32 | u64::from(input.byte()),
        7 => u64::from(input.u32()) << 32 | small,
        // Of one of the first topics: a message, or what clears a value.
        8 => {
            let kind = if small & 1 == 0 { 1 } else { 6 };
            let topic = (small >> 2) & 3;
            ((topic << 8 | kind) << 32) | (8 + small)
        }
        9 => u64::from(input.u32()) << 32 | u64::from(input.u16()),
        10 => CAPACITY / 2 - 8 + small,
        _ => input.u64(),
    }
}

/// Honest programs: what they get besides values is right.
struct Programs {
    bus: Bus,
    plain: Publisher,
    other: Publisher,
    declared: Option<Publisher>,
    subscriber: Subscriber,
    number: u8,
}

impl Programs {
    fn open(template: &Template) -> Self {
        let bus = template.config().open_existing(BUS).unwrap();
        let [plain, other] = [KNOWN, OTHER].map(|topic| bus.publisher(topic).unwrap());
        let declared = match plain.clone().retained() {
            Ok(declared) => Some(declared),
            // No entry seems to be free.
            Err(RetainError::TooManyRetained { .. }) => None,
            Err(error) => panic!("{error:?}"),
        };
        let subscriber = bus.subscribe("**").unwrap();
        Self { bus, plain, other, declared, subscriber, number: 0 }
    }

    fn use_all(&mut self) {
        self.read();
        self.number += 1;
        let payload = vec![self.number; 8 * usize::from(self.number)];
        for publisher in [&self.plain, &self.other] {
            publisher.publish(&payload).expect("it has declared nothing");
            Self::receive(&mut self.subscriber, &payload);
            publisher.publish_batch(&[&payload, &payload], Limit::Policy).expect("a batch");
            publisher.burst(&[&payload], Limit::Policy).expect("a burst");
            publisher.publish([self.number; 3000]).expect("longer than a value may be");
            for length in [payload.len(), payload.len(), payload.len(), 3000] {
                Self::receive(&mut self.subscriber, &vec![self.number; length]);
            }
        }
        self.read();
        if let Some(declared) = &self.declared {
            match declared.publish(&payload) {
                Ok(_) => Self::receive(&mut self.subscriber, &payload),
                Err(PublishError::ValueTooLong { .. } | PublishError::RetainedFull { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            declared.clear(Limit::Policy).expect("it needs no room");
        }
        match self.other.clone().retained() {
            Ok(other) => drop(other.publish(&payload).map(|_| {
                Self::receive(&mut self.subscriber, &payload);
            })),
            Err(RetainError::TooManyRetained { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        self.read();
    }

    /// The stream is what was published.
    fn receive(subscriber: &mut Subscriber, payload: &[u8]) {
        let message = subscriber.try_receive().expect("the stream is intact").expect("published");
        assert!(message.payload() == payload && !message.is_retained());
    }

    /// Reads all values in all ways.
    fn read(&self) {
        for topic in [KNOWN, OTHER] {
            if let Ok(Some(value)) = self.bus.retained(topic) {
                assert!(value.topic() == topic && (value.payload().len() as u64) < CAPACITY);
                let _ = (value.timestamp(), value.origin(), value.number());
            }
        }
        let all = self.bus.retained_matching("**").expect("each value has its own error");
        assert!(all.len() as u64 <= VALUES);
        for value in all.iter().flatten() {
            assert!((value.payload().len() as u64) < CAPACITY && !value.topic().contains('\0'));
        }
        let stats = self.bus.stats().unwrap();
        assert!(u64::from(stats.retained.topics) <= VALUES);
        assert!(stats.retained.used_bytes <= stats.retained.bytes);
        assert!(self.bus.topics().unwrap().iter().any(|topic| topic.name == KNOWN));
        let mut late = self.bus.subscriber().pattern("**").retained(true).build().unwrap();
        for received in 0.. {
            assert!(received < MOST_MESSAGES, "values without end");
            match late.try_receive() {
                Ok(Some(message)) => assert!((message.payload().len() as u64) < CAPACITY),
                Ok(None) => break,
                Err(ReceiveError::ValueMissing { .. } | ReceiveError::Corrupt(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(late.is_current());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::{Directory, Random};

    /// A fuzzer finds more; this is what any build of the tests tries.
    #[test]
    fn any_bytes_are_met_by_values_or_errors() {
        let directory = Directory::new();
        let fixture = Fixture::new(directory.path());
        fixture.fuzz(&[]);
        let mut random = Random::new(7);
        for _ in 0..toroni_testkit::long::repetitions(40, 1000) {
            let bytes: Vec<u8> =
                (0..random.index(120)).map(|_| random.number().to_le_bytes()[0]).collect();
            fixture.fuzz(&bytes);
        }
    }
}
