//! A subscribing process of the demo: verifies every message and summarizes each phase.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::options::DemoChild;
use super::payload;
use super::protocol::{CONTROL_TOPIC, FLOOD_MARK, Parent, Phase, Report, STEADY_MARK, now_ns};
use hdrhistogram::Histogram;
use std::hash::{DefaultHasher, Hasher};
use toroni::{Message, ReceiveError, Subscriber};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

/// The demo has at most this many publishers, with the victim.
const MOST_PUBLISHERS: usize = 65;

/// Receives until the mark of the last phase.
pub(crate) fn run(location: &BusLocation, arguments: &DemoChild) -> Result<(), Failure> {
    let parent = Parent::connect();
    let bus = location.config().open_existing(&location.bus)?;
    let mut subscriber = bus
        .subscriber()
        .pattern("demo/**")
        .name(format!("demo-subscriber-{}", arguments.index))
        .build()?;
    let mut verifier = Verifier::new(usize::try_from(arguments.size).unwrap_or(0))?;
    parent.report(&Report::Ready)?;
    for mark in [FLOOD_MARK, STEADY_MARK] {
        verifier.verify_until(&mut subscriber, mark)?;
        parent.report(&Report::Phase(Box::new(verifier.end_phase())))?;
    }
    Ok(())
}

struct Verifier {
    size: usize,
    hasher: DefaultHasher,
    seen: Phase,
    next_sequence: Option<u64>,
    next_numbers: Vec<u64>,
    latencies: Histogram<u64>,
}

impl Verifier {
    fn new(size: usize) -> Result<Self, Failure> {
        Ok(Self {
            size,
            // Its keys are constant, so all processes of this program compute the same hash.
            hasher: DefaultHasher::new(),
            seen: Phase::default(),
            next_sequence: None,
            next_numbers: Vec::new(),
            latencies: new_histogram()?,
        })
    }

    fn verify_until(&mut self, subscriber: &mut Subscriber, mark: &[u8]) -> Result<(), Failure> {
        loop {
            match subscriber.try_receive() {
                Ok(Some(message)) => {
                    if self.verify(&message, mark) {
                        return Ok(());
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => self.count_loss(error)?,
            }
            let waits_since_ns = now_ns();
            match subscriber.receive() {
                Ok(message) => {
                    // The wait for the first message does not count: nothing had been published.
                    if self.next_sequence.is_some() {
                        let waited_ns = now_ns().saturating_sub(waits_since_ns);
                        self.seen.longest_wait_ns = self.seen.longest_wait_ns.max(waited_ns);
                    }
                    if self.verify(&message, mark) {
                        return Ok(());
                    }
                }
                Err(error) => self.count_loss(error)?,
            }
        }
    }

    /// Verifies and counts a message. Returns whether it is the mark.
    fn verify(&mut self, message: &Message<'_>, mark: &[u8]) -> bool {
        let (topic, bytes, sequence) = (message.topic(), message.payload(), message.sequence());
        self.hasher.write(topic.as_bytes());
        self.hasher.write_u8(0xFF);
        self.hasher.write(bytes);
        self.hasher.write_u64(sequence);
        if self.next_sequence.is_some_and(|expected| expected != sequence) {
            self.seen.sequence_errors = self.seen.sequence_errors.saturating_add(1);
        }
        self.next_sequence = Some(sequence.wrapping_add(1));
        if topic == CONTROL_TOPIC {
            return bytes == mark;
        }
        self.seen.messages = self.seen.messages.saturating_add(1);
        let header = payload::read(bytes, self.size);
        match header.map(|header| (header, usize::from(header.publisher))) {
            Some((header, index)) if index < MOST_PUBLISHERS => {
                self.count(index, header.number);
                if header.time_ns != 0 {
                    self.latencies.saturating_record(now_ns().saturating_sub(header.time_ns));
                }
            }
            _ => self.seen.torn = self.seen.torn.saturating_add(1),
        }
        false
    }

    fn count(&mut self, publisher: usize, number: u64) {
        if publisher >= self.next_numbers.len() {
            self.next_numbers.resize(publisher.saturating_add(1), 0);
            self.seen.counts.resize(publisher.saturating_add(1), 0);
            self.seen.disorders.resize(publisher.saturating_add(1), 0);
        }
        self.seen.counts[publisher] = self.seen.counts[publisher].saturating_add(1);
        if self.next_numbers[publisher] != number {
            self.seen.disorders[publisher] = self.seen.disorders[publisher].saturating_add(1);
        }
        self.next_numbers[publisher] = number.wrapping_add(1);
    }

    fn count_loss(&mut self, error: ReceiveError) -> Result<(), Failure> {
        let ReceiveError::Lapped { lost_messages, .. } = error else { return Err(error.into()) };
        self.seen.lost_messages = self.seen.lost_messages.saturating_add(lost_messages);
        // The loss is counted: the sequence may continue anywhere.
        self.next_sequence = None;
        Ok(())
    }

    /// Returns the phase. Counts and hash continue, latencies and waits start again.
    fn end_phase(&mut self) -> Phase {
        self.seen.ended_ns = now_ns();
        self.seen.hash = self.hasher.finish();
        let mut phase = self.seen.clone();
        phase.latencies = self
            .latencies
            .iter_recorded()
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect();
        self.latencies.reset();
        self.seen.longest_wait_ns = 0;
        phase
    }
}

/// Creates a histogram for latencies from 1 ns to 60 s, with three significant digits.
pub(super) fn new_histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| Failure::Failed(format!("cannot create a histogram: {error}")))
}
