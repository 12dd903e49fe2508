//! `soak-subscribe`: receives in one way after the other, checks every message, and reports.

use super::measure::Measure;
use super::sabotage::Sabotage;
use super::{Lines, descriptors};
use crate::subscribe::{Laziness, wait_strategy};
use crate::ways::{ANY_ENGINE, Receiver, Sink, Wish, patterns_of};
use std::path::PathBuf;
use system_tests::Random;
use system_tests::counters::{Phase, SharedCounters};
use system_tests::options::Options;
use system_tests::soak::mix::{Filter, Lane};
use system_tests::soak::progress_record::{Count, ProgressRecord};
use system_tests::soak::report::Event;
use system_tests::soak::verifier::{Delivery, Kind, Verifier};
use toroni::{Bus, ReceiveError, RetainedError, Start, SubscriberError};

/// Messages on retained topics between two looks at a value.
const VALUE_EVERY: u64 = 16;
/// Messages between two reports.
const REPORT_EVERY: u64 = 256;

pub(crate) fn run(options: &Options) {
    let mut random = Random::new(options.get("seed"));
    let mut watching = Watching {
        counters: options.counters(),
        record: ProgressRecord::open(&options.get::<PathBuf>("record")),
        lines: Lines::default(),
        verifier: Verifier::new(Filter::ALL, 0),
        filter: 0,
        laziness: Laziness::new(options),
        measure: Measure::new(),
        sabotage: Sabotage::new(options.find("sabotage")),
        received: 0,
        bus: None,
        on_retained: 0,
        left_at: None,
    };
    let rejoin_after: u64 = options.or("rejoin", u64::MAX);
    // The first runtime makes the descriptors for signals that tokio keeps as long as the process, if another crate has
    // selected that feature of tokio.
    drop(crate::ways::runtime());
    let mut descriptors_before = None;
    let mut is_first = true;
    loop {
        watching.subscribe(options, &mut random, is_first, rejoin_after);
        let now = descriptors();
        let before = *descriptors_before.get_or_insert(now);
        if now > before {
            let evidence = format!("{now} descriptors after leaving, {before} the first time");
            watching.lines.fail(Kind::Failed, &evidence);
        }
        if watching.should_end() {
            break;
        }
        watching.record.add(Count::Rejoins, 1);
        is_first = false;
    }
    watching.lines.add(&Event::Done(watching.received));
    watching.lines.send();
}

struct Watching {
    counters: SharedCounters,
    record: ProgressRecord,
    lines: Lines,
    verifier: Verifier,
    filter: usize,
    laziness: Laziness,
    measure: Measure,
    sabotage: Sabotage,
    received: u64,
    bus: Option<Bus>,
    /// Messages on topics that are retained.
    on_retained: u64,
    /// Where it left the stream, if it will continue there.
    left_at: Option<u64>,
}

impl Watching {
    /// One subscription, from joining to leaving.
    fn subscribe(&mut self, options: &Options, random: &mut Random, is_first: bool, most: u64) {
        let bus = options.bus();
        // Options that are not given are chosen at random.
        let chosen = |key: &str, random: &mut Random, among: &[&str]| {
            let chosen = among[random.index(among.len())].to_owned();
            options.or(key, chosen)
        };
        let ways = &["block", "receive", "try", "poll", "borrow", "run", "router", "async"];
        let how = chosen("how", random, ways);
        let wait = chosen("wait", random, &["backoff", "backoff", "block", "yield"]);
        let left_at = self.left_at.take();
        if left_at.is_none() {
            let filter = random.index(2 * Filter::CHOICES.len());
            let filter = if filter < Filter::CHOICES.len() { filter } else { 0 };
            self.filter = options.or("filter", filter);
        }
        let filter = Filter::CHOICES[self.filter];
        // A router begins at the end, wherever it left.
        let start = match left_at {
            Some(position) if how != "router" => Start::Position(position),
            _ if random.index(4) == 0 => Start::Oldest,
            _ => Start::Latest,
        };
        let mut wish = Wish {
            patterns: patterns_of(filter, &how),
            start,
            gating: options.or("gating", random.index(6) > 0),
            wait: wait_strategy(&wait),
            engine: ANY_ENGINE,
            beside: 0,
        };
        let opened = loop {
            match Receiver::open(&bus, &how, &wish) {
                // One that was killed has not given its slot back yet: its lease goes a moment later.
                Err(SubscriberError::TooManySubscribers { .. }) if !is_first => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                // It was away for too long.
                Err(SubscriberError::PositionLost { .. }) => wish.start = Start::Oldest,
                opened => break opened,
            }
        };
        let mut receiver = match opened {
            Ok(receiver) => receiver,
            Err(error) => self.lines.fail(Kind::Failed, &format!("cannot subscribe: {error}")),
        };
        // A subscriber that continues where it left misses nothing.
        if !matches!(wish.start, Start::Position(_)) || how == "router" {
            self.verifier = Verifier::new(filter, self.counters.next_id());
        }
        self.measure.forget();
        self.bus = Some(bus.clone());
        if is_first {
            self.lines.add(&Event::Ready);
            self.lines.send();
        }
        let first = self.received;
        while !self.is_over() && self.received - first < most {
            if self.record.get(Count::Leave) != 0 {
                break;
            }
            match receiver.step(self) {
                Ok(()) => {}
                Err(ReceiveError::Lapped { lost_messages, lost_bytes }) => {
                    self.lose(lost_messages, lost_bytes);
                }
                Err(error) => self.lines.fail(Kind::Failed, &format!("receive: {error}")),
            }
        }
        if self.is_over()
            && let Some(end) = self.counters.end()
            && let Err(violation) = self.verifier.finish(end)
        {
            self.lines.fail(violation.kind, &violation.evidence);
        }
        self.give_back();
        self.report();
        self.left_at = (random.index(2) == 0).then(|| receiver.position());
        self.bus = None;
    }

    fn should_end(&self) -> bool {
        self.counters.end().is_some() || self.record.get(Count::Leave) != 0
    }

    /// The supervisor's last words reach everybody.
    fn is_over(&self) -> bool {
        let Some(end) = self.counters.end() else { return false };
        self.verifier.next().is_some_and(|next| next >= end)
    }

    fn lose(&mut self, messages: u64, bytes: u64) {
        self.give_back();
        self.record.add(Count::Lapses, 1);
        self.record.add(Count::Lost, messages);
        if let Some(messages) = self.sabotage.on_loss(messages) {
            self.verifier.lose(messages, bytes, self.counters.next_id());
        }
        self.measure.forget();
    }

    fn check(&mut self, delivery: &Delivery<'_>) {
        self.record.note(delivery);
        if let Err(violation) = self.verifier.take(delivery) {
            self.lines.fail(violation.kind, &violation.evidence);
        }
    }

    /// Compares the value of a topic with a message of it that was received: it is that message or a newer one.
    fn check_value(&mut self, delivery: &Delivery<'_>) {
        let Some(bus) = &self.bus else { return };
        let received = delivery.sequence + self.sabotage.ahead();
        let wrong = match bus.retained(delivery.topic) {
            Ok(Some(value)) if value.sequence() < received => {
                (Kind::Order, format!("value {} after message {received}", value.sequence()))
            }
            Ok(Some(value))
                if value.sequence() == received && value.payload() != delivery.payload =>
            {
                (Kind::Torn, format!("value {received} is not as it was received"))
            }
            Ok(Some(_)) | Err(RetainedError::Unstable { .. }) => {
                return self.record.add(Count::Values, 1);
            }
            Ok(None) => (Kind::Missing, format!("no value after message {received}")),
            Err(error) => (Kind::Failed, format!("the value of message {received}: {error}")),
        };
        self.lines.fail(wrong.0, &wrong.1);
    }

    fn give_back(&mut self) {
        let mut sabotage = std::mem::take(&mut self.sabotage);
        sabotage.give_back(|delivery| self.check(delivery));
        self.sabotage = sabotage;
    }

    fn report(&mut self) {
        // First how far publishers are: where the order is known, so is this.
        for (worker, progress) in self.verifier.take_progress() {
            self.lines.add(&Event::Progress(worker, progress));
        }
        for stretch in self.verifier.take_stretches() {
            self.lines.add(&Event::Stretch(self.filter, stretch));
        }
        self.lines.send();
    }
}

impl Sink for Watching {
    fn take(&mut self, delivery: &Delivery<'_>) {
        if let Some(stall) = self.measure.end(&self.counters, &self.record, || 0) {
            self.lines.add(&Event::Stall(stall));
        }
        let mut sabotage = std::mem::take(&mut self.sabotage);
        sabotage.pass(delivery, |delivery| self.check(delivery));
        self.sabotage = sabotage;
        if Lane::of_topic(delivery.topic).is_some_and(|(lane, _)| lane == Lane::Many) {
            self.on_retained += 1;
            if self.on_retained.is_multiple_of(VALUE_EVERY) {
                self.check_value(delivery);
            }
        }
        self.received += 1;
        self.record.set(Count::Messages, self.received);
        if self.received.is_multiple_of(REPORT_EVERY) {
            self.report();
        }
        self.laziness.idle();
        // Who asks for everything always has something to receive.
        if self.verifier.sees_all() {
            self.measure.begin(&self.counters, &self.record, || 0);
        }
    }

    /// There was no message. While publishers pause, none is missed.
    fn nothing(&mut self) {
        if self.counters.phase() != Phase::Run {
            self.measure.forget();
        }
        self.report();
    }
}
