//! `soak-publish`: publishes messages of all lanes, in all ways, at one of several rates.
//!
//! With `exclusive=true` it publishes only while it is the exclusive publisher, which it becomes and ceases to be. Without,
//! it publishes while there is none: a call that was kept out is made again later, so that its message would come twice
//! if it had been published.

use super::measure::Measure;
use super::{Lines, descriptors};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use system_tests::Random;
use system_tests::counters::Phase;
use system_tests::options::Options;
use system_tests::soak::mix::Lane;
use system_tests::soak::progress_record::{Count, ProgressRecord};
use system_tests::soak::report::Event;
use system_tests::soak::source::Source;
use system_tests::soak::verifier::Kind;
use system_tests::worker::BUNDLE;
use toroni::{
    BurstError, Bus, Exclusive, ExclusiveError, ExclusiveTopic, Limit, Policy, PublishError,
    Publisher, RacyBytesMut,
};

pub(crate) fn run(options: &Options) {
    let mut random = Random::new(options.get("seed"));
    let (counters, record) =
        (options.counters(), ProgressRecord::open(&options.get::<PathBuf>("record")));
    let mut lines = Lines::default();
    let mut source = Source::new(options.get("id"));
    let rejoin_after: u64 = options.or("rejoin", u64::MAX);
    let mut sabotage: Option<String> = options.find("sabotage");
    let mut measure = Measure::new();
    let mut descriptors_before = None;
    let mut is_first = true;
    'join: loop {
        let mut publishing = Publishing::new(options);
        if is_first {
            lines.add(&Event::Ready);
            lines.send();
        }
        let mut rate = Rate::new(options);
        let first = source.counter();
        while source.counter() - first < rejoin_after {
            match counters.phase() {
                Phase::Run => {}
                Phase::Pause => {
                    std::thread::sleep(Duration::from_micros(500));
                    continue;
                }
                Phase::Stop => break 'join,
            }
            if record.get(Count::Leave) != 0 {
                break 'join;
            }
            match publishing.reign(&mut random) {
                Ok(Reign::Goes) => {}
                Ok(Reign::Begins) => record.add(Count::Reigns, 1),
                Ok(Reign::Waits) => continue,
                Err(error) => lines.fail(Kind::Failed, &format!("not exclusive: {error}")),
            }
            let call = publishing.choose(&source, &mut random);
            measure.begin(&counters, &record, || publishing.waited_ns());
            let outcome = publishing.publish(&call);
            if let Some(stall) = measure.end(&counters, &record, || publishing.waited_ns()) {
                lines.add(&Event::Stall(stall));
                lines.send();
            }
            match outcome {
                Ok(Published { count, was_kept_out }) => {
                    source.advance(call.lane, count);
                    if was_kept_out {
                        record.add(Count::KeptOut, 1);
                        std::thread::sleep(Duration::from_micros(random.between(100, 3000)));
                    }
                }
                Err(error) => lines.fail(Kind::Failed, &format!("{call:?}: {error}")),
            }
            if sabotage.as_deref() == Some("skip") && source.counter() > 1000 {
                source.advance(Lane::Small, 1);
                sabotage = None;
            }
            if sabotage.as_deref() == Some("die") && source.counter() > 1000 {
                std::process::exit(3);
            }
            record.set(Count::Messages, source.counter());
            rate.rest(&mut random);
        }
        drop(publishing);
        let now = descriptors();
        let before = *descriptors_before.get_or_insert(now);
        if now > before {
            let evidence = format!("{now} descriptors after leaving, {before} the first time");
            lines.fail(Kind::Failed, &evidence);
        }
        record.add(Count::Rejoins, 1);
        is_first = false;
    }
    lines.add(&Event::Done(source.counter()));
    lines.send();
}

/// One call of the library.
#[derive(Debug)]
struct Call {
    lane: Lane,
    topic: String,
    way: &'static str,
    count: usize,
}

/// What came of a call.
struct Published {
    count: usize,
    /// By an exclusive publisher, before the rest.
    was_kept_out: bool,
}

/// Whether a worker may publish now.
enum Reign {
    /// It is exclusive, or does not want to be.
    Goes,
    /// It has just become exclusive.
    Begins,
    /// Another one is exclusive.
    Waits,
}

struct Publishing {
    /// It is dropped before the handle of the bus.
    exclusive: Option<Exclusive>,
    wants_exclusive: bool,
    /// Calls until it gives up.
    reign_left: u64,
    topics: HashMap<String, ExclusiveTopic>,
    bus: Bus,
    name: String,
    worker: u32,
    number: u32,
    policy: Option<Policy>,
    longest: usize,
    publishers: HashMap<String, Publisher>,
    buffers: Vec<Vec<u8>>,
}

impl Publishing {
    fn new(options: &Options) -> Self {
        let worker = options.get("id");
        let hasty: bool = options.or("hasty", false);
        Self {
            exclusive: None,
            wants_exclusive: options.or("exclusive", false),
            reign_left: 0,
            topics: HashMap::new(),
            bus: options.bus(),
            name: format!("worker-{worker}"),
            worker,
            number: options.get("number"),
            policy: hasty.then_some(Policy::Overwrite),
            longest: options.get("longest"),
            publishers: HashMap::new(),
            buffers: vec![Vec::new(); BUNDLE],
        }
    }

    /// Becomes exclusive if it is to be, and gives up after some calls.
    fn reign(&mut self, random: &mut Random) -> Result<Reign, String> {
        if !self.wants_exclusive {
            return Ok(Reign::Goes);
        }
        if self.exclusive.is_some() {
            if let Some(left) = self.reign_left.checked_sub(1) {
                self.reign_left = left;
                return Ok(Reign::Goes);
            }
            self.exclusive = None;
            // Sometimes the next exclusive publisher comes first, sometimes a shared one.
            std::thread::sleep(Duration::from_micros(random.between(0, 30_000)));
        }
        // Not for ever, because the run may end meanwhile.
        match self.bus.exclusive_timeout(Duration::from_millis(20)) {
            Ok(exclusive) => {
                self.exclusive = Some(exclusive);
                self.reign_left = random.between(1, 5000);
                Ok(Reign::Begins)
            }
            Err(ExclusiveError::Taken { .. } | ExclusiveError::Timeout) => Ok(Reign::Waits),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Chooses what to publish next, and writes it into the buffers.
    fn choose(&mut self, source: &Source, random: &mut Random) -> Call {
        let lane = match random.index(100) {
            0..45 => Lane::Small,
            45..50 => Lane::Large,
            50..70 => Lane::Tiny,
            70..80 => Lane::Tree,
            _ => Lane::Many,
        };
        let ways: &[&str] = match lane {
            // No label, no batch.
            Lane::Tiny => &["single", "try", "burst", "with"],
            Lane::Large => &["single", "with", "timeout"],
            _ => &["single", "single", "try", "timeout", "batch", "burst", "with"],
        };
        let way = ways[random.index(ways.len())];
        let count = if matches!(way, "batch" | "burst") { 1 + random.index(BUNDLE) } else { 1 };
        for (ahead, buffer) in self.buffers.iter_mut().take(count).enumerate() {
            let length = match lane {
                Lane::Large => random.index(self.longest) + 1,
                Lane::Tiny => random.index(18),
                _ => random.length(700),
            };
            let batch = if way == "batch" { count } else { 0 };
            source.compose(lane, ahead, batch, length, buffer);
        }
        let topic = lane.topic(self.number, self.worker, random.number());
        Call { lane, topic, way, count }
    }

    /// Makes the call, and again if it was not made in time.
    fn publish(&mut self, call: &Call) -> Result<Published, String> {
        let outcome = if self.exclusive.is_some() {
            self.publish_exclusively(call)?
        } else {
            self.publish_shared(call)?
        };
        match outcome {
            Ok(()) => Ok(Published { count: call.count, was_kept_out: false }),
            // A burst may have begun before, and then waited for space.
            Err(BurstError { published: count, source: PublishError::Exclusive { .. } })
                if self.exclusive.is_none() =>
            {
                Ok(Published { count, was_kept_out: true })
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn publish_exclusively(&mut self, call: &Call) -> Result<Result<(), BurstError>, String> {
        let Self { exclusive, policy, topics, buffers, .. } = self;
        let Some(exclusive) = exclusive else { unreachable!("the caller asked") };
        let topic = match topics.get(&call.topic) {
            Some(topic) => topic,
            None => {
                let topic = exclusive.topic(&call.topic).map_err(|error| error.to_string())?;
                let mut topic = topic.to_descendants(call.lane == Lane::Tree);
                if let Some(policy) = *policy {
                    topic = topic.with_policy(policy).map_err(|error| error.to_string())?;
                }
                topics.entry(call.topic.clone()).or_insert(topic)
            }
        };
        let (bundle, message) = (&buffers[..call.count], &buffers[0]);
        let outcome = match call.way {
            "try" => exclusive.publish(topic, message, Limit::Try),
            "timeout" => exclusive.publish(topic, message, Duration::from_millis(3)),
            "batch" => exclusive.publish_batch(topic, bundle, Limit::Policy).map(|all| all.start),
            "burst" => return Ok(exclusive.burst(topic, bundle, Limit::Policy)),
            "with" => exclusive
                .publish_with(topic, message.len(), Limit::Policy, |bytes| {
                    write_in_two_parts(bytes, message)
                })
                .map(|(sequence, ())| sequence),
            _ => exclusive.publish(topic, message, Limit::Policy),
        };
        let outcome = match outcome {
            Err(PublishError::Full | PublishError::Timeout) => {
                exclusive.publish(topic, message, Limit::Policy)
            }
            outcome => outcome,
        };
        Ok(outcome.map(drop).map_err(|source| BurstError { published: 0, source }))
    }

    fn publish_shared(&mut self, call: &Call) -> Result<Result<(), BurstError>, String> {
        let Self { bus, policy, publishers, buffers, .. } = self;
        let publisher = match publishers.get(&call.topic) {
            Some(publisher) => publisher,
            None => {
                let publisher = bus.publisher(&call.topic).map_err(|error| error.to_string())?;
                let mut publisher = publisher.to_descendants(call.lane == Lane::Tree);
                if let Some(policy) = *policy {
                    let hasty = publisher.with_policy(policy);
                    publisher = hasty.map_err(|error| error.to_string())?;
                }
                publishers.entry(call.topic.clone()).or_insert(publisher)
            }
        };
        let (bundle, message) = (&buffers[..call.count], &buffers[0]);
        let outcome = match call.way {
            "try" => publisher.try_publish(message),
            "timeout" => publisher.publish_within(message, Duration::from_millis(3)),
            "batch" => publisher.publish_batch(bundle, Limit::Policy).map(|all| all.start),
            "burst" => return Ok(publisher.burst(bundle, Limit::Policy)),
            "with" => publisher
                .publish_with(message.len(), Limit::Policy, |bytes| {
                    write_in_two_parts(bytes, message)
                })
                .map(|(sequence, ())| sequence),
            _ => publisher.publish(message),
        };
        let outcome = match outcome {
            Err(PublishError::Busy | PublishError::Full | PublishError::Timeout) => {
                publisher.publish(message)
            }
            outcome => outcome,
        };
        Ok(outcome.map(drop).map_err(|source| BurstError { published: 0, source }))
    }

    /// How long the policy has made this participant wait.
    fn waited_ns(&self) -> u64 {
        let Ok(stats) = self.bus.stats() else { return 0 };
        let publishers = stats.publishers.unwrap_or_default();
        let me = publishers.iter().find(|one| one.name == self.name);
        me.map_or(0, |me| u64::try_from(me.waited.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A process that is killed in between leaves half of it.
fn write_in_two_parts(bytes: &mut RacyBytesMut<'_>, message: &[u8]) {
    let half = message.len() / 2;
    bytes.write(0, &message[..half]);
    bytes.write(half, &message[half..]);
}

/// How fast a publisher publishes.
struct Rate {
    word: String,
    left: u64,
}

impl Rate {
    fn new(options: &Options) -> Self {
        Self { word: options.or("rate", "fast".to_owned()), left: 0 }
    }

    fn rest(&mut self, random: &mut Random) {
        match self.word.as_str() {
            "fast" => {}
            "slow" => std::thread::sleep(Duration::from_micros(random.between(50, 3000))),
            _ => {
                self.left = match self.left.checked_sub(1) {
                    Some(left) => left,
                    None => {
                        std::thread::sleep(Duration::from_micros(random.between(200, 20_000)));
                        random.between(1, 500)
                    }
                }
            }
        }
    }
}
