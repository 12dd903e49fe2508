//! Subscribers in processes of their own that sleep before each message, and processes that disturb them. A hidden recheck
//! would find a message whose wake-up was lost, so the tests count the wake-ups that were sent.

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use system_tests::sleepers::SleepersFile;
use system_tests::wake::{Stamp, now_ns};
use system_tests::worker::{BUS, Fixture, Worker};
use system_tests::{Watchdog, wait_until};
use toroni::{Bus, Publisher};

/// Subscribers that sleep, each in the slot of its place in the list.
struct Sleepers {
    fixture: Fixture,
    bus: Bus,
    file: SleepersFile,
    workers: Vec<Option<Worker>>,
    round: u64,
}

impl Sleepers {
    fn new() -> Self {
        let fixture = Fixture::new(|config| config.capacity(1 << 20));
        let bus = fixture.bus();
        let file = SleepersFile::of(&fixture.root.buses().join(BUS));
        Self { fixture, bus, file, workers: Vec::new(), round: 0 }
    }

    fn path(&self) -> PathBuf {
        self.fixture.root.buses().join(BUS)
    }

    /// Starts a subscriber in the first free slot, which takes this number of messages.
    fn start(&mut self, pattern: &str, messages: u64) -> usize {
        let slot = self.workers.iter().position(Option::is_none).unwrap_or(self.workers.len());
        let options = [format!("pattern={pattern}"), format!("messages={messages}")];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let worker = self.fixture.start_ready("doze", &options);
        self.workers.resize_with(self.workers.len().max(slot + 1), || None);
        self.workers[slot] = Some(worker);
        slot
    }

    fn received(&self, slot: usize) -> u64 {
        self.fixture.counters.count(self.workers[slot].as_ref().unwrap().id)
    }

    /// Waits until each of them has armed a sleep after this call began, and so has seen all topics that there are.
    fn sleep(&self) {
        let slots = 0..self.workers.len();
        let before: Vec<u32> = slots.clone().map(|slot| self.file.armed(slot)).collect();
        wait_until("all sleep", || {
            slots
                .clone()
                .all(|slot| self.workers[slot].is_none() || self.file.armed(slot) > before[slot])
        });
    }

    fn wakes(&self) -> u64 {
        self.bus.stats().unwrap().publishers.unwrap().iter().map(|slot| slot.wakes).sum()
    }

    /// Publishes a message, and returns how many wake-ups that took.
    fn publish(&mut self, publisher: &Publisher) -> u64 {
        let before = self.wakes();
        self.send(publisher);
        self.wakes() - before
    }

    fn send(&mut self, publisher: &Publisher) {
        let stamp = Stamp { round: self.round, sent_ns: now_ns() };
        self.round += 1;
        publisher.publish(stamp.encode()).unwrap();
    }

    fn wait_for(&self, slot: usize, messages: u64) {
        wait_until("the message", || self.received(slot) == messages);
    }

    /// All of them have received what they were to receive.
    fn succeed(self) {
        for worker in self.workers.into_iter().flatten() {
            let _ = worker.running.succeed();
        }
    }
}

fn watchdog() -> Watchdog {
    Watchdog::start("wakeups", Duration::from_secs(240))
}

/// A message wakes the one of eight subscribers that wants it. A topic that is new wakes all, once. A slot that another
/// subscriber takes over is woken for what that one wants.
#[test]
fn each_is_woken_for_its_topics_only() {
    let _watchdog = watchdog();
    let mut sleepers = Sleepers::new();
    let mut topics: Vec<Publisher> =
        (0..8).map(|number| sleepers.bus.publisher(&format!("of/{number}/a")).unwrap()).collect();
    for number in 0..8 {
        let slot = sleepers.start(&format!("of/{number}/**"), 3 + u64::from(number == 5));
        assert_eq!(slot, number);
    }
    sleepers.sleep();
    // The publishers of this process share what they know of sleepers.
    for (slot, publisher) in topics.iter().enumerate() {
        assert_eq!(sleepers.publish(publisher), 1, "one wants it");
        sleepers.wait_for(slot, 1);
    }

    sleepers.sleep();
    topics.push(sleepers.bus.publisher("of/3/new").unwrap());
    let woken = sleepers.publish(&topics[8]);
    assert!(
        (1..=8).contains(&woken),
        "{woken} wake-ups: those that rechecked meanwhile have seen the topic"
    );
    sleepers.wait_for(3, 2);
    sleepers.sleep();
    assert_eq!(sleepers.publish(&topics[8]), 1, "all have seen the topic");
    sleepers.wait_for(3, 3);
    assert!(sleepers.file.is_unwanted(5, 3) && !sleepers.file.is_unwanted(3, 3));

    // It has received its three messages, so it ends, and the next one takes its slot.
    let _ = sleepers.workers[3].take().unwrap().running.succeed();
    assert_eq!(sleepers.start("of/5/**", 2), 3);
    sleepers.sleep();
    assert!(!sleepers.file.is_unwanted(5, 3) && sleepers.file.is_unwanted(3, 3));
    for messages in 1..=2 {
        assert_eq!(sleepers.publish(&topics[5]), 2);
        sleepers.wait_for(3, messages);
        sleepers.wait_for(5, 1 + messages);
        if messages == 1 {
            sleepers.sleep();
        }
    }
    for publisher in topics.iter().take(8) {
        for _ in 0..2 {
            sleepers.publish(publisher);
        }
    }
    sleepers.succeed();
}

/// A process moves those that sleep on a word to another word, so that the wake-ups reach none of them. The subscriber finds
/// each message by its own recheck.
#[test]
fn a_sleeper_that_is_moved_to_another_word_gets_each_message() {
    let (moved, _) = disturb("requeue", "moved ");
    assert!(moved >= 10, "the attack has no effect: {moved} moved");
}

/// A process says of the subscriber that it wants nothing. No publisher wakes it, and it finds each message all the same.
#[test]
fn a_sleeper_of_which_another_says_that_it_wants_nothing_gets_each_message() {
    let (said, woken) = disturb("deafen", "said ");
    assert!(said > 0 && woken == 0, "the attack has no effect: {woken} wake-ups");
}

/// Publishes 20 messages to a subscriber under an attack. Returns what the attacker counted, and how many wake-ups were sent.
fn disturb(attack: &str, counted: &str) -> (u64, u64) {
    const MESSAGES: u64 = 20;
    let _watchdog = watchdog();
    let mut sleepers = Sleepers::new();
    let publisher = sleepers.bus.publisher("wanted").unwrap();
    assert_eq!(sleepers.start("wanted", MESSAGES), 0);
    // Before the attack it says what it does not want, and not again.
    sleepers.sleep();
    let attack = format!("attack={attack}");
    let mut hostile = sleepers.fixture.start_ready("hostile", &[&attack]);
    let mut woken = 0;
    for messages in 1..=MESSAGES {
        sleepers.sleep();
        woken += sleepers.publish(&publisher);
        sleepers.wait_for(0, messages);
    }
    drop(hostile.running.stdin());
    sleepers.succeed();
    let said = hostile.running.succeed();
    let line = said.lines().find_map(|line| line.strip_prefix(counted));
    (line.unwrap_or_else(|| panic!("{said}")).parse().unwrap(), woken)
}

/// The memory of the rows is freed. What a publisher reads there says that all topics are wanted.
#[test]
fn a_hole_below_the_rows_wakes_for_everything() {
    let _watchdog = watchdog();
    let mut sleepers = Sleepers::new();
    let [other, mine] = ["other", "mine"].map(|topic| sleepers.bus.publisher(topic).unwrap());
    assert_eq!(sleepers.start("mine", 2), 0);
    sleepers.sleep();
    assert_eq!(sleepers.publish(&other), 0);
    let readers = File::options().write(true).open(sleepers.path().join("readers")).unwrap();
    // The pages of the rows. The counts before them stay.
    let (first, length) = sleepers.file.rows();
    let (begin, end) = (first.next_multiple_of(4096), (first + length) / 4096 * 4096);
    // The topics of this test have bits before the first whole page.
    readers.write_all_at(&vec![0; begin - first], first as u64).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&readers, flags, begin as u64, (end - begin) as u64).unwrap();
    assert_eq!(sleepers.publish(&other), 1, "a hole says that it wants it");
    for messages in 1..=2 {
        sleepers.sleep();
        assert_eq!(sleepers.publish(&mine), 1);
        sleepers.wait_for(0, messages);
    }
    sleepers.succeed();
}

/// The file ends within the rows. Publishers continue; a subscriber says that the file was truncated.
#[test]
fn a_publisher_survives_rows_that_are_cut_off() {
    let _watchdog = watchdog();
    let mut sleepers = Sleepers::new();
    // Topics with rows on both sides of the cut.
    let publishers: Vec<Publisher> =
        (0..600).map(|number| sleepers.bus.publisher(&format!("t/{number}")).unwrap()).collect();
    assert_eq!(sleepers.start("t/599", 2), 0);
    sleepers.sleep();
    assert_eq!(sleepers.publish(&publishers[0]), 0);
    assert_eq!(sleepers.publish(&publishers[598]), 0);
    let readers = File::options().write(true).open(sleepers.path().join("readers")).unwrap();
    readers.set_len(sleepers.file.rows().0 as u64 + 4096).unwrap();
    for publisher in &publishers {
        sleepers.send(publisher);
    }
    let output = sleepers.workers[0].take().unwrap().running.finish();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("truncated"), "{said}");
}
