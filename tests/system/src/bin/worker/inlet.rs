//! `inlet`: brings the messages of a source, of several streams, until the test asks it to stop.
//!
//! The messages of all streams are in one order: the n-th is of stream `n % STREAMS` and has the number `n / STREAMS`
//! there. It begins with the first one, or, with `overlap`, that many before the first that has not arrived. With
//! `phase=ignored` it brings those below `count`, whatever the test asks. With `topics=many` each call has a new topic.
//! With `losses=k` every k-th message does not come, but the news that it was lost. Before each call one of the streams begins
//! another session, and goes back to where it is.

use crate::options::Options;
use std::ops::Range;
use std::time::Duration;
use system_tests::Random;
use system_tests::counters::Phase;
use system_tests::payload::{HEAD, Payload, encode};
use system_tests::worker::{BUNDLE, STREAMS, worker_of_stream};
use toroni::{
    Entry, Inlet, InletTopic, Limit, Lost, LostBound, LostReason, Origin, Pattern, PublishError,
    StreamKey,
};

const SERIES: u32 = 3;

pub(crate) fn run(options: &Options) {
    let (bus, counters, id) = (options.bus(), options.counters(), options.get("id"));
    let source = options.or("source", 0);
    let count: u64 = options.or("count", u64::MAX);
    let pause = Duration::from_micros(options.or("pause_us", 0));
    let is_obedient = options.or("phase", "obeyed".to_owned()) == "obeyed";
    let has_many_topics = options.or("topics", "few".to_owned()) == "many";
    let inlet = bus.inlet().expect("an inlet");
    let mut bringing = Bringing {
        topics: (0..STREAMS).map(|stream| topic(&inlet, &format!("{source}/{stream}"))).collect(),
        inlet,
        source,
        longest: options.or("longest", 1000),
        losses: options.or("losses", 0),
        random: Random::new(options.or("seed", 1)),
    };
    println!("ready");
    let mut next = match options.find::<u64>("overlap") {
        Some(overlap) => bringing.first_missing().saturating_sub(overlap),
        None => 0,
    };
    while next < count {
        match counters.phase() {
            _ if !is_obedient => {}
            Phase::Run => {}
            Phase::Pause => {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            Phase::Stop => break,
        }
        if has_many_topics {
            let stream = usize::try_from(next % STREAMS).expect("a stream");
            bringing.topics[stream] = topic(&bringing.inlet, &format!("{source}/new/{next}"));
        }
        let end = count.min(next + bringing.random.between(1, BUNDLE as u64));
        bringing.begin_session(next % STREAMS);
        bringing.bring(next..end);
        next = end;
        counters.set_count(id, next);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    println!("published up to {next} duplicates {}", bringing.inlet.duplicates());
}

fn topic(inlet: &Inlet, name: &str) -> InletTopic {
    inlet.topic(&format!("inlet/{name}")).expect("a topic")
}

struct Bringing {
    inlet: Inlet,
    /// Of each stream.
    topics: Vec<InletTopic>,
    source: u32,
    longest: usize,
    /// One in this number of messages is lost; 0 is none.
    losses: u64,
    random: Random,
}

impl Bringing {
    /// Waits until no other inlet brings the source. Returns the first message that has not arrived.
    fn first_missing(&self) -> u64 {
        let next_of = |stream: u64| {
            let number = u16::try_from(stream).expect("a stream");
            loop {
                let key = StreamKey { source: self.source, series: SERIES, stream: number };
                match self.inlet.claim(key, Limit::Policy) {
                    Ok(arrived) => return arrived.next * STREAMS + stream,
                    Err(PublishError::Taken { .. }) => {
                        std::thread::sleep(Duration::from_micros(500));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        (0..STREAMS).map(next_of).min().expect("there are streams")
    }

    /// A stream goes back to where it is: a process that dies meanwhile has changed nothing that another one could notice.
    fn begin_session(&mut self, stream: u64) {
        let stream = u16::try_from(stream).expect("a stream");
        let key = StreamKey { source: self.source, series: SERIES, stream };
        let next = self.inlet.claim(key, Limit::Policy).expect("a claim").next;
        let session = self.random.between(1, u64::from(u32::MAX));
        let session = u32::try_from(session).expect("32 bits");
        self.inlet.begin_session(key, session, Some(next), Limit::Policy).expect("begun");
    }

    /// Publishes the messages, those between two losses in one call.
    fn bring(&mut self, messages: Range<u64>) {
        let mut first = messages.start;
        for message in messages.clone() {
            if self.losses > 0 && message % self.losses == self.losses / 2 {
                self.publish(first..message);
                self.report_loss(message);
                first = message + 1;
            }
        }
        self.publish(first..messages.end);
    }

    fn report_loss(&mut self, message: u64) {
        let stream = u16::try_from(message % STREAMS).expect("a stream");
        let number = message / STREAMS;
        // Records of many lengths.
        let patterns = self.random.between(0, Lost::MOST_PATTERNS as u64 - 1);
        let filler = (0..patterns).map(|index| format!("elsewhere/{}/{index}", "x".repeat(200)));
        let scope = filler.chain(["inlet/**".to_owned()]);
        let lost = Lost {
            from: Origin { source: self.source, series: SERIES, stream, number },
            until: number + 1,
            messages: 1,
            bound: LostBound::Exact,
            reason: LostReason::Gone,
            scope: scope.map(|text| Pattern::new(&text).expect("a pattern")).collect(),
        };
        self.inlet.publish_lost(&lost, None, Limit::Policy).expect("reported");
    }

    fn publish(&mut self, messages: Range<u64>) {
        let mut bytes = vec![Vec::new(); BUNDLE];
        let mut parts: [[&[u8]; 2]; BUNDLE] = [[&[]; 2]; BUNDLE];
        for (message, bytes) in messages.clone().zip(&mut bytes) {
            let worker = worker_of_stream(self.source, message % STREAMS);
            let length = self.random.length(self.longest);
            encode(Payload { worker, counter: message / STREAMS }, length, bytes);
        }
        for (bytes, parts) in bytes.iter().zip(&mut parts) {
            let (head, body) = bytes.split_at(bytes.len().min(HEAD / 2));
            *parts = [head, body];
        }
        let mut entries = Vec::new();
        for (message, parts) in messages.zip(&parts) {
            let stream = u16::try_from(message % STREAMS).expect("a stream");
            let topic = &self.topics[usize::from(stream)];
            let number = message / STREAMS;
            let origin = Origin { source: self.source, series: SERIES, stream, number };
            // Extensions of two lengths.
            let number = message.is_multiple_of(3).then_some(message);
            entries.push(Entry { origin: Some(origin), number, ..Entry::new(topic, parts) });
        }
        self.inlet.publish(&entries, Limit::Policy).expect("published");
    }
}
