//! The values of topics: what it takes to publish one, to read one, and to join a bus that has many.
//!
//! ```text
//!   sender 0 writes                                  receiver 0 reads
//!   writes a value of each topic, until all are kept
//!   ───────────────────────────────── gate ──────────────────────────────────
//!   update: writes values of topic 0, until they
//!   can be read                                      get: reads that of topic 0
//!                                                    join: subscribes, gets all values, leaves
//!   ──────────────────────────────── finish ─────────────────────────────────
//!                                                    update: the value is the last one
//! ```

use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::job::Role;
use crate::registry::Work;
use crate::transport::Transport;
use crate::transports::{Toroni, ToroniPlain};
use crate::values::{Kept, Reader, Values, Writer};
use serde::{Deserialize, Serialize};

/// Names the work.
const NAME: &str = "values";
/// A tenth of the updates or reads, and at most this number, come first and are not measured. Of joins, one does.
pub const MOST_WARM_UPS: u64 = 1000;

/// The work of one run. [`Setup::message_bytes`](crate::transport::Setup) is the length of each value, at least 16.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    /// What is measured.
    pub part: Part,
    /// How often.
    pub times: u64,
    /// Number of topics, each with a value.
    pub topics: u16,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// One publish of a value.
    Update,
    /// One read of a value.
    Get,
    /// A subscriber joins and gets all values.
    Join,
}

/// The measurements of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// How long all repetitions took; 0 from the end that measures nothing.
    pub elapsed_ns: u64,
    /// Number of values that were missing, came twice, or differ from the newest.
    pub wrong: u64,
}

impl Keeping {
    fn warm_ups(&self) -> u64 {
        (self.times / 10).clamp(1, MOST_WARM_UPS)
    }

    /// Returns the number of the last value of topic 0.
    fn last(&self) -> u64 {
        if self.part == Part::Update { self.warm_ups() + self.times } else { 0 }
    }
}

impl Work for Keeping {
    const NAME: &'static str = NAME;
    type Sent = Measured;
    type Received = Measured;

    /// Does its part over Toroni, in the way that the job names.
    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        match child.job().transport.as_str() {
            <Toroni as Values>::NAME => perform::<Toroni>(child),
            ToroniPlain::NAME => perform::<ToroniPlain>(child),
            unknown => Err(Failure::new(format!("this program keeps no values over {unknown:?}"))),
        }
    }
}

/// Returns whether the job of a child is this work.
#[must_use]
pub fn is_wanted(child: &Child) -> bool {
    child.job().work == NAME
}

/// Does the work of a child that keeps values, over `V`.
///
/// # Errors
/// If the child has other work, or the work fails.
pub fn perform<V: Values>(child: &mut Child) -> Result<(), Failure> {
    let work = &child.work::<Keeping>()?.ok_or_else(|| {
        Failure::new(format!("{} keeps values, and knows only the work {NAME}", V::NAME))
    })?;
    let job = child.job().clone();
    let kept = Kept { topics: work.topics, value_bytes: job.setup.message_bytes };
    if kept.value_bytes < STAMP_BYTES || kept.topics == 0 {
        return Err(Failure::new(format!(
            "a run of values needs at least {STAMP_BYTES} bytes each, and a topic"
        )));
    }
    match job.role {
        Role::Host => {
            let _host = V::host(&job.directory, &kept)?;
            child.host(V::about(&kept))
        }
        Role::Sender(_) => {
            let mut writer = V::writer(&job.directory, &kept)?;
            for topic in 0..kept.topics {
                writer.write(topic, &value(&kept, topic, 0))?;
            }
            writer.settle()?;
            child.ready()?;
            child.wait_at_gate()?;
            let elapsed_ns =
                if work.part == Part::Update { update(&mut writer, work, &kept)? } else { 0 };
            child.finish()?;
            child.result(&Measured { elapsed_ns, wrong: 0 })
        }
        Role::Receiver(_) => {
            let mut reader = V::reader(&job.directory, &kept)?;
            child.ready()?;
            child.wait_at_gate()?;
            let mut measured = match work.part {
                Part::Update => Measured::default(),
                Part::Get => get(&mut reader, work, &kept)?,
                Part::Join => join(&mut reader, work, &kept)?,
            };
            child.finish()?;
            if work.part == Part::Update {
                let expected = value(&kept, 0, work.last());
                reader.get(0, |value| measured.wrong += u64::from(value != expected))?;
            }
            child.result(&measured)
        }
    }
}

fn update(writer: &mut impl Writer, work: &Keeping, kept: &Kept) -> Result<u64, Failure> {
    let mut bytes = value(kept, 0, 0);
    let mut write = |numbers: std::ops::RangeInclusive<u64>| -> Result<(), Failure> {
        for number in numbers {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            writer.write(0, &bytes)?;
        }
        writer.settle()
    };
    write(1..=work.warm_ups())?;
    let start = now_ns();
    write(work.warm_ups() + 1..=work.last())?;
    Ok(now_ns() - start)
}

fn get(reader: &mut impl Reader, work: &Keeping, kept: &Kept) -> Result<Measured, Failure> {
    let expected = value(kept, 0, 0);
    let mut wrong = 0;
    let mut read = |times: u64| -> Result<(), Failure> {
        for _ in 0..times {
            reader.get(0, |value| wrong += u64::from(value != expected))?;
        }
        Ok(())
    };
    read(work.warm_ups())?;
    let start = now_ns();
    read(work.times)?;
    Ok(Measured { elapsed_ns: now_ns() - start, wrong })
}

fn join(reader: &mut impl Reader, work: &Keeping, kept: &Kept) -> Result<Measured, Failure> {
    let expected: Vec<_> = (0..kept.topics).map(|topic| value(kept, topic, 0)).collect();
    let mut measured = Measured::default();
    for time in 0..=work.times {
        let mut values = Joined::new(kept);
        let start = now_ns();
        let subscriber = reader.join(|value| values.add(value))?;
        let elapsed_ns = now_ns() - start;
        reader.leave(subscriber)?;
        measured.wrong += values.wrong(&expected);
        // The first one is the warm-up.
        measured.elapsed_ns += if time == 0 { 0 } else { elapsed_ns };
    }
    Ok(measured)
}

/// The values that a subscriber got, one after the other. They are checked after the clock has stopped.
struct Joined {
    bytes: Vec<u8>,
    length: usize,
    /// Of another length than all should have.
    misfits: u64,
}

impl Joined {
    fn new(kept: &Kept) -> Self {
        let length = kept.value_bytes;
        Self { bytes: Vec::with_capacity(usize::from(kept.topics) * length), length, misfits: 0 }
    }

    fn add(&mut self, value: &[u8]) {
        if value.len() == self.length {
            self.bytes.extend_from_slice(value);
        } else {
            self.misfits += 1;
        }
    }

    /// Returns how many values are missing, too many, or not the expected ones.
    fn wrong(&self, expected: &[Vec<u8>]) -> u64 {
        let mut missing: Vec<Option<&[u8]>> =
            expected.iter().map(|value| Some(&value[..])).collect();
        let mut wrong = self.misfits;
        for value in self.bytes.chunks_exact(self.length) {
            match missing.get_mut(topic_of(value)) {
                Some(slot) if *slot == Some(value) => *slot = None,
                _ => wrong += 1,
            }
        }
        wrong + missing.iter().flatten().count() as u64
    }
}

/// Bytes of the number and the topic.
const STAMP_BYTES: usize = 16;

/// Returns a value: its number, its topic, and a filling that depends on the topic.
pub(crate) fn value(kept: &Kept, topic: u16, number: u64) -> Vec<u8> {
    let filling = topic.to_le_bytes()[0];
    let mut value = vec![filling; kept.value_bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..STAMP_BYTES].copy_from_slice(&u64::from(topic).to_le_bytes());
    value
}

fn topic_of(value: &[u8]) -> usize {
    let topic = value.get(8..).and_then(<[u8]>::first_chunk::<8>);
    topic.and_then(|bytes| usize::try_from(u64::from_le_bytes(*bytes)).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_must_come_once_and_whole() {
        let kept = Kept { topics: 3, value_bytes: 64 };
        let expected: Vec<_> = (0..3).map(|topic| value(&kept, topic, 0)).collect();
        let wrong = |values: &[&[u8]]| {
            let mut joined = Joined::new(&kept);
            values.iter().for_each(|value| joined.add(value));
            joined.wrong(&expected)
        };
        let [a, b, c] = [0, 1, 2].map(|index: usize| &expected[index][..]);
        assert_eq!(wrong(&[c, a, b]), 0, "in any order");
        assert_eq!((wrong(&[a, b]), wrong(&[a, b, c, b])), (1, 1));
        assert_eq!(
            wrong(&[a, b, &c[..63]]),
            2,
            "it is too short, and that of its topic is missing"
        );
        let (old, stranger) = (value(&kept, 1, 7), value(&kept, 9, 0));
        assert_eq!((wrong(&[a, &old, c]), wrong(&[a, b, c, &stranger])), (2, 1));
    }

    #[test]
    fn only_updates_change_the_value() {
        let work = |part, times| Keeping { part, times, topics: 1 };
        assert_eq!((work(Part::Get, 50).last(), work(Part::Update, 50).last()), (0, 55));
        assert_eq!((work(Part::Get, 3).warm_ups(), work(Part::Get, 1 << 20).warm_ups()), (1, 1000));
    }
}
