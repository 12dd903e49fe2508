//! Counts the messages of each topic, with a subscriber that no publisher waits for or wakes.
//!
//! It polls and never sleeps on the bus, because publishers would have to wake it. It reads in place and looks at no
//! payload. If that takes more than a twentieth of a core, it reads only for a part of the time.

use super::model::{TopicCount, TopicCounts};
use super::sample::Loss;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toroni::{Bus, ReceiveError, Subscriber, SubscriberError};
use toroni_shell::age::Ages;
use toroni_shell::human::as_f64;

/// The name of the subscriber in the lists of others.
pub(super) const NAME: &str = "toroni-top";
/// The share of a core that reading may take.
const MOST_OF_A_CORE: f64 = 0.05;
/// Reading everything is tried again if it would take less than this share.
const LITTLE_OF_A_CORE: f64 = 0.03;
/// While only samples are read: how long in each period.
const WINDOW: Duration = Duration::from_millis(50);
const PERIOD: Duration = Duration::from_millis(500);
/// How often it polls at least, and at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// How often at least while messages have a stamp: what waits for a poll is part of the age that is shown.
const LONGEST_PAUSE_WITH_AGES: Duration = Duration::from_millis(10);
/// For how long after a message with a stamp: rare messages must not wait longer than frequent ones.
const EXPECT_AGES_FOR: Duration = Duration::from_secs(60);
/// After a longer pause, as when this process was stopped, messages have waited for this reader, and their ages say nothing.
const PAUSE_WITHOUT_AGES: Duration = Duration::from_secs(1);
/// Longer than this it does not read in one go, so that keys are answered.
const LONGEST_READ: Duration = Duration::from_millis(20);
/// How many topics are counted apart. No topic has the name of the others, because `*` is reserved.
const MOST_TOPICS: usize = 10_000;
const OTHER_TOPICS: &str = "* (other topics)";

/// Counts messages per topic.
pub(super) struct TopicReader {
    subscriber: Subscriber,
    capacity: u64,
    /// Index of each topic in `counts`.
    indexes: HashMap<String, usize>,
    counts: Vec<Count>,
    /// The topic of the last message: messages of one topic often come in a row.
    last: usize,
    is_complete: bool,
    began: Instant,
    /// CPU time of reading, and the messages read, in this interval.
    cpu: Duration,
    read: u64,
    is_sampling: bool,
    /// While sampling: when the current period began, and the CPU time that it has taken.
    period_began: Instant,
    period_cpu: Duration,
    bytes_per_second: f64,
    /// When the last message with a stamp was read.
    last_stamp: Option<Instant>,
    /// Whether this reader had read everything at some poll, and has not let messages wait since. Otherwise the time since their
    /// publication is in part its own backlog, and is not counted.
    keeps_up: bool,
    /// When it last polled.
    polled: Instant,
    losses: Vec<Loss>,
}

struct Count {
    name: String,
    messages: u64,
    bytes: u64,
    /// Of the messages that have a stamp.
    ages: Ages,
}

impl TopicReader {
    /// Subscribes to everything, from now on.
    pub(super) fn new(bus: &Bus, capacity: u64) -> Result<Self, SubscriberError> {
        let subscriber = bus.subscriber().pattern("**").gating(false).name(NAME).build()?;
        let now = Instant::now();
        Ok(Self {
            subscriber,
            capacity,
            indexes: HashMap::new(),
            counts: Vec::new(),
            last: 0,
            is_complete: true,
            began: now,
            cpu: Duration::ZERO,
            read: 0,
            is_sampling: false,
            period_began: now,
            period_cpu: Duration::ZERO,
            bytes_per_second: 0.0,
            last_stamp: None,
            keeps_up: true,
            polled: now,
            losses: Vec::new(),
        })
    }

    /// Returns the slot of its subscriber.
    pub(super) fn slot(&self) -> u32 {
        self.subscriber.slot()
    }

    /// Reads what is there. Returns when to call it again.
    pub(super) fn read(&mut self) -> Result<Instant, ReceiveError> {
        let now = Instant::now();
        let mut limit = LONGEST_READ;
        if self.is_sampling {
            if now.duration_since(self.period_began) >= PERIOD {
                (self.period_began, self.period_cpu) = (now, Duration::ZERO);
                self.keeps_up = false;
            }
            let most = PERIOD.mul_f64(MOST_OF_A_CORE);
            let is_over = now.duration_since(self.period_began) >= WINDOW;
            if is_over || self.period_cpu >= most {
                self.keeps_up = false;
                return Ok(self.period_began + PERIOD);
            }
            limit = limit.min(most - self.period_cpu);
        }
        self.keeps_up &= now.duration_since(self.polled) < PAUSE_WITHOUT_AGES;
        let (began, before) = (thread_cpu(), self.read);
        let emptied = self.read_some(now + limit);
        let took = thread_cpu().saturating_sub(began);
        self.cpu += took;
        self.period_cpu += took;
        self.polled = Instant::now();
        let emptied = emptied?;
        // At once and not at the end of the interval, which may be long.
        let elapsed = now.duration_since(self.began).max(PERIOD);
        if !self.is_sampling && self.cpu > elapsed.mul_f64(MOST_OF_A_CORE) {
            self.is_sampling = true;
            (self.period_began, self.period_cpu) = (now, took);
        }
        if self.is_sampling || emptied || self.read == before {
            self.keeps_up = emptied;
            return Ok(now + self.pause(now));
        }
        // There is more.
        Ok(now)
    }

    /// Returns after how long a quarter of the ring is new.
    fn pause(&self, now: Instant) -> Duration {
        let quarter = as_f64(self.capacity / 4) / self.bytes_per_second.max(1.0);
        let is_recent = |stamp: Instant| now.saturating_duration_since(stamp) < EXPECT_AGES_FOR;
        let expects_ages = self.last_stamp.is_some_and(is_recent);
        let longest = if expects_ages { LONGEST_PAUSE_WITH_AGES } else { LONGEST_PAUSE };
        Duration::try_from_secs_f64(quarter).unwrap_or(longest).clamp(SHORTEST_PAUSE, longest)
    }

    /// Returns whether it has read all that was there.
    fn read_some(&mut self, until: Instant) -> Result<bool, ReceiveError> {
        loop {
            match self.subscriber.try_receive_in_place() {
                Ok(None) => return Ok(true),
                Ok(Some(run)) => {
                    // Once a run: reading a run takes less time than the precision of an age.
                    let mut looked_at = None;
                    for message in run {
                        let name = message.topic();
                        let known = self.counts.get(self.last).is_some_and(|one| one.name == name);
                        if !known {
                            self.last = index(&mut self.indexes, &mut self.counts, name);
                        }
                        let bytes = u64::try_from(message.payload().len()).unwrap_or(u64::MAX);
                        if let Some(count) = self.counts.get_mut(self.last) {
                            count.messages += 1;
                            count.bytes = count.bytes.saturating_add(bytes);
                            if let Some(published) = message.timestamp() {
                                let now = *looked_at.get_or_insert_with(SystemTime::now);
                                if self.keeps_up {
                                    count.ages.add(published, now);
                                }
                            }
                        }
                        self.read += 1;
                    }
                    if looked_at.is_some() {
                        self.last_stamp = Some(Instant::now());
                    }
                }
                Err(ReceiveError::Lapped { .. }) => self.is_complete = false,
                Err(ReceiveError::Lost(lost)) => self.losses.push(Loss {
                    at: Duration::ZERO,
                    time: unix_seconds(),
                    who: format!("from {}", lost.from),
                    slot: None,
                    messages: lost.messages,
                    bound: lost.bound.as_str(),
                    reason: format!("{}: lost on the way to this bus", lost.reason.as_str()),
                }),
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// Ends an interval in which the bus carried `messages` messages and `bytes` bytes. Returns the counts of the
    /// interval, and the losses that were reported.
    pub(super) fn next_interval(&mut self, messages: u64, bytes: u64) -> (TopicCounts, Vec<Loss>) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.began = Instant::now();
        let counts = TopicCounts {
            counts: self
                .counts
                .iter_mut()
                .map(|count| {
                    let age = count.ages.summary();
                    count.ages.clear();
                    TopicCount {
                        topic: count.name.clone(),
                        messages: std::mem::take(&mut count.messages),
                        bytes: std::mem::take(&mut count.bytes),
                        age,
                    }
                })
                .collect(),
            is_complete: self.is_complete && !self.is_sampling,
            seconds,
        };
        if seconds > 0.0 {
            self.bytes_per_second = as_f64(bytes) / seconds;
            self.choose(messages, seconds);
        }
        (self.cpu, self.read, self.is_complete) = (Duration::ZERO, 0, true);
        (counts, std::mem::take(&mut self.losses))
    }

    /// Decides whether the next interval is one of samples.
    fn choose(&mut self, messages: u64, seconds: f64) {
        let share = share_for_all(self.cpu, self.read, messages, seconds);
        let most = if self.is_sampling { LITTLE_OF_A_CORE } else { MOST_OF_A_CORE };
        let was_sampling = self.is_sampling;
        self.is_sampling = share > most;
        if self.is_sampling && !was_sampling {
            (self.period_began, self.period_cpu) = (Instant::now(), Duration::ZERO);
        }
    }
}

/// Estimates which share of a core reading all messages of an interval takes, from the time that a part of them took.
fn share_for_all(cpu: Duration, read: u64, messages: u64, seconds: f64) -> f64 {
    let missed = as_f64(messages.max(read)) / as_f64(read.max(1));
    cpu.as_secs_f64() * missed / seconds
}

fn index(indexes: &mut HashMap<String, usize>, counts: &mut Vec<Count>, name: &str) -> usize {
    if let Some(index) = indexes.get(name) {
        return *index;
    }
    let name = if counts.len() < MOST_TOPICS { name } else { OTHER_TOPICS };
    *indexes.entry(name.to_owned()).or_insert_with(|| {
        counts.push(Count { name: name.to_owned(), messages: 0, bytes: 0, ages: Ages::default() });
        counts.len() - 1
    })
}

/// Returns the CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

pub(super) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_core_is_that_of_all_messages() {
        let cpu = Duration::from_millis(10);
        assert_eq!(share_for_all(cpu, 1000, 1000, 0.5), 0.02);
        assert_eq!(share_for_all(cpu, 1000, 10_000, 0.5), 0.2);
        // The bus's count may be from a moment earlier.
        assert_eq!(share_for_all(cpu, 1000, 900, 0.5), 0.02);
        assert_eq!(share_for_all(Duration::ZERO, 0, 0, 0.5), 0.0);
    }

    /// A ring full of messages takes longer to read than a twentieth of a core allows.
    #[test]
    fn it_stops_reading_everything_in_the_middle_of_an_interval() {
        let directory = toroni_testkit::Directory::new();
        let config = toroni::BusConfig::new().directory(directory.path()).capacity(32 << 20);
        let bus = config.create("b").unwrap();
        let mut reader = TopicReader::new(&bus, 32 << 20).unwrap();
        let publisher = bus.publisher("t").unwrap();
        for _ in 0..1000 {
            publisher.publish_batch(&[[7_u8; 8]; 1000], toroni::Limit::Policy).unwrap();
        }
        let mut reads = 0;
        while !reader.is_sampling && reader.read < 1_000_000 {
            reader.read().unwrap();
            reads += 1;
        }
        // On a busy machine, the interval may be long by now.
        let most = reader.began.elapsed().max(PERIOD).mul_f64(MOST_OF_A_CORE);
        println!("{} messages, {:?}, {reads} reads", reader.read, reader.cpu);
        assert!(reader.cpu <= most + LONGEST_READ + LONGEST_READ, "{:?}", reader.cpu);
        if reader.is_sampling {
            let before = Instant::now();
            let next = reader.read().unwrap();
            let is_next_period = next == reader.period_began + PERIOD;
            assert!(is_next_period || next >= before + SHORTEST_PAUSE, "it does not wait");
            let (counts, _) = reader.next_interval(1_000_000, 16_000_000);
            assert!(!counts.is_complete);
        }
    }

    /// Returns a reader of a bus whose messages have stamps, and a publisher.
    fn with_stamps(directory: &toroni_testkit::Directory) -> (TopicReader, toroni::Publisher) {
        let config = toroni::BusConfig::new().directory(directory.path()).timestamps(true);
        let bus = config.create("b").unwrap();
        (TopicReader::new(&bus, 4 << 20).unwrap(), bus.publisher("t").unwrap())
    }

    #[test]
    fn its_own_backlog_is_not_the_age_of_messages() {
        let directory = toroni_testkit::Directory::new();
        let (mut reader, publisher) = with_stamps(&directory);
        let publish = || assert!(publisher.publish(b"x").is_ok());
        let has_age = |reader: &mut TopicReader| {
            let counts = reader.next_interval(1, 40).0.counts;
            assert_eq!(counts[0].messages, 1);
            // Whatever the time was that reading took.
            reader.is_sampling = true;
            counts[0].age.is_some()
        };
        let begin_period = |reader: &mut TopicReader| {
            (reader.period_began, reader.period_cpu) = (Instant::now() - PERIOD, Duration::ZERO);
        };
        reader.is_sampling = true;
        // The pause of a period, in which a message comes.
        reader.period_began = Instant::now() - WINDOW;
        reader.read().unwrap();
        publish();
        begin_period(&mut reader);
        reader.read().unwrap();
        assert!(!has_age(&mut reader), "the message waited for the period");
        // From here on it has read everything.
        begin_period(&mut reader);
        reader.read().unwrap();
        publish();
        reader.period_began = Instant::now();
        reader.read().unwrap();
        assert!(has_age(&mut reader), "it was read as soon as it came");
        // The last poll of a window left something, or was longer ago than any pause, as after Ctrl-Z.
        publish();
        reader.keeps_up = false;
        reader.period_began = Instant::now();
        reader.read().unwrap();
        assert!(!has_age(&mut reader), "the poll before did not read everything");
        publish();
        reader.polled = Instant::now() - PAUSE_WITHOUT_AGES;
        reader.period_began = Instant::now();
        reader.read().unwrap();
        assert!(!has_age(&mut reader), "the process was stopped");
    }

    #[test]
    fn rare_messages_with_a_stamp_do_not_wait_for_longer_than_frequent_ones() {
        let directory = toroni_testkit::Directory::new();
        let (mut reader, publisher) = with_stamps(&directory);
        assert_eq!(reader.pause(Instant::now()), LONGEST_PAUSE);
        publisher.publish(b"x").unwrap();
        reader.read().unwrap();
        for _ in 0..3 {
            reader.next_interval(0, 0);
        }
        let stamp = reader.last_stamp.unwrap();
        let after = |seconds| reader.pause(stamp + Duration::from_secs(seconds));
        assert_eq!(after(59), LONGEST_PAUSE_WITH_AGES);
        assert_eq!(after(60), LONGEST_PAUSE);
    }

    #[test]
    fn more_topics_than_fit_share_one_count() {
        let (mut indexes, mut counts) = (HashMap::new(), Vec::new());
        for number in 0..MOST_TOPICS + 5 {
            let found = index(&mut indexes, &mut counts, &format!("t/{number}"));
            assert_eq!(found, number.min(MOST_TOPICS));
        }
        assert_eq!(counts.last().unwrap().name, OTHER_TOPICS);
        assert_eq!(counts.len(), MOST_TOPICS + 1);
    }
}
