//! On every engine no wake-up is lost; and what no wake-up reports is found nevertheless.

use super::served::Served;
use super::waiting::{Rechecks, Waits};
use super::{Subscription, *};
use crate::bus::publish::testing::publish_lost;
use crate::bus::{Bus, BusConfig};
use crate::hook::{CrashPoint, rehearsal};
use crate::settings::NotifyKind;
use crate::shm::testing::TempDir;
use crate::sync::{AtomicU32, Ordering};
use crate::topic::{Lost, LostBound, LostReason, Origin, Pattern};
use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use toroni_proactor::{
    Config, OperationKind, OperationMask, ProcessorConfig, ProcessorType, ProviderType, WaitType,
};
use toroni_testkit::long;

/// Far beyond what anything here takes.
const LOST: Duration = Duration::from_secs(30);

/// Called between the announcement of a wait and its beginning: here a wake-up could be lost.
pub(super) fn interlude() {
    thread_local! { static SEED: Cell<u32> = const { Cell::new(1) } }
    let seed = SEED.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    SEED.set(seed);
    (0..seed >> 22).for_each(|_| std::hint::spin_loop());
}

/// A proactor, and a thread that runs it.
struct Running {
    proactor: Proactor,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(provider: ProviderType, wait: WaitType, processor_type: ProcessorType) -> Self {
        let words = OperationMask::ALL;
        Self::with(ProcessorConfig {
            provider,
            wait,
            processor_type,
            operations: words,
            ..ProcessorConfig::default()
        })
    }

    fn with(config: ProcessorConfig) -> Self {
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        let running = proactor.clone();
        let thread = Some(thread::spawn(move || running.run()));
        Self { proactor, thread }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.proactor.stop();
        let _ = self.thread.take().unwrap().join();
    }
}

fn bus(directory: &TempDir, notify: NotifyKind) -> Bus {
    BusConfig::new().directory(directory.path()).notify(notify).open("bus").unwrap()
}

fn serve(running: &Running, bus: &Bus, rechecks: Rechecks) -> (Subscription, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let handler = Box::new(move |message: Result<Message<'_>, ReceiveError>, _: &Subscription| {
        assert_eq!(message.unwrap().topic(), "a");
        counted.fetch_add(1, Ordering::Release);
    });
    let subscriber = bus.subscribe("a").unwrap();
    let subscription = Served::start(&running.proactor, subscriber, handler, rechecks).unwrap();
    (subscription, count)
}

#[track_caller]
fn wait_for(count: &AtomicU32, round: u32) {
    let started = Instant::now();
    while count.load(Ordering::Acquire) != round {
        assert!(started.elapsed() < LOST, "the wake-up of round {round} was lost");
        thread::yield_now();
    }
}

fn lose_none(running: &Running, notify: NotifyKind, by_word: bool) {
    let directory = TempDir::new();
    let bus = bus(&directory, notify);
    let mut probe = bus.subscribe("a").unwrap();
    let waits = Waits::new(&running.proactor, &mut probe).unwrap();
    assert_eq!(matches!(waits, Waits::Word), by_word);
    let (_subscription, count) = serve(running, &bus, Rechecks::Never);
    let publisher = bus.publisher("a").unwrap();
    for round in 1..=long::repetitions(4_000, 10_000) {
        publisher.publish(b"x").unwrap();
        wait_for(&count, round);
        let turns = round.wrapping_mul(2_654_435_761) >> 22;
        (0..turns * 4).for_each(|_| std::hint::spin_loop());
    }
}

macro_rules! lose_none {
    ($($name:ident: $provider:ident $wait:ident $type:ident, $notify:expr, $word:literal;)*) => {
        $(#[test] fn $name() {
            let running = Running::new(
                ProviderType::$provider,
                WaitType::$wait,
                ProcessorType::$type,
            );
            lose_none(&running, $notify, $word);
        })*
    };
}

const GROUP: NotifyKind = NotifyKind::Multicast { group: None };

lose_none! {
    combined_futex: Combined Epoll Shared, NotifyKind::Futex, true;
    combined_dedicated_futex: Combined Epoll Dedicated, NotifyKind::Futex, true;
    combined_datagram: Combined Epoll Shared, NotifyKind::Datagram, false;
    uring_futex: Uring Native Shared, NotifyKind::Futex, true;
    uring_dedicated_futex: Uring Native Dedicated, NotifyKind::Futex, true;
    uring_datagram: Uring Native Shared, NotifyKind::Datagram, false;
    uring_multicast: Uring Native Shared, GROUP, false;
    epoll_futex: Select Epoll Shared, NotifyKind::Futex, false;
    epoll_dedicated_datagram: Select Epoll Dedicated, NotifyKind::Datagram, false;
    epoll_multicast: Select Epoll Shared, GROUP, false;
    ppoll_futex: Select Native Shared, NotifyKind::Futex, false;
    linux_rt_futex: Select LinuxRt Dedicated, NotifyKind::Futex, false;
    linux_rt_multicast: Select LinuxRt Dedicated, GROUP, false;
}

/// An older kernel, or an administrator who wants it so.
#[test]
fn uring_without_words_waits_for_the_descriptor() {
    let running = Running::with(ProcessorConfig {
        provider: ProviderType::Uring,
        operations: OperationMask::ALL.without(OperationKind::WaitWord),
        ..ProcessorConfig::default()
    });
    lose_none(&running, NotifyKind::Futex, false);
}

/// A publisher dies between its commit and its wake: the subscribers find the message with their next
/// check.
#[test]
fn what_no_wake_up_tells_is_seen() {
    for (provider, notify) in [
        (ProviderType::Combined, NotifyKind::Futex),
        (ProviderType::Uring, NotifyKind::Futex),
        (ProviderType::Select, NotifyKind::Futex),
        (ProviderType::Select, NotifyKind::Datagram),
    ] {
        let running = Running::new(provider, WaitType::Native, ProcessorType::Shared);
        let directory = TempDir::new();
        let bus = bus(&directory, notify);
        let (rechecking, seen) = serve(&running, &bus, Rechecks::Usual);
        let (unaided, deaf) = serve(&running, &bus, Rechecks::Never);
        let publisher = bus.publisher("a").unwrap();
        publisher.publish(b"first").unwrap();
        let mut round = 1;
        loop {
            wait_for(&seen, round);
            wait_for(&deaf, round);
            // Both are asleep, and nothing is left to do: the timer of the one, two waits.
            let are_asleep = || {
                [&rechecking, &unaided].iter().all(|it| it.0.is_asleep())
                    && running.proactor.outstanding() == 3
            };
            let started = Instant::now();
            while !are_asleep() {
                assert!(started.elapsed() < LOST, "{} outstanding", running.proactor.outstanding());
                thread::yield_now();
            }
            let at_last = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::BeforeWake);
            let (_, lived) = rehearsal::act(at_last, || publisher.publish(b"untold").unwrap());
            assert!(lived.is_none(), "it died before its wake");
            round += 1;
            wait_for(&seen, round);
            if deaf.load(Ordering::Acquire) == round - 1 {
                break;
            }
            // The wake-up of the message before, which was seen without it, may have come only now.
            assert!(round < 10, "{provider:?}: somebody wakes it");
        }
        publisher.publish(b"told").unwrap();
        wait_for(&seen, round + 1);
        wait_for(&deaf, round + 1);
        rechecking.cancel();
    }
}

fn lost(messages: u64, scope: &str) -> Lost {
    Lost {
        from: Origin { source: 1, series: 2, stream: 3, number: 4 },
        until: 9,
        messages,
        bound: LostBound::Exact,
        reason: LostReason::Gone,
        scope: vec![Pattern::new(scope).unwrap()],
    }
}

/// Publishes messages and losses by turns, and returns what a subscriber of `a` receives.
fn publish_with_losses(bus: &Bus, round: u64) -> Vec<String> {
    let publisher = bus.publisher("a").unwrap();
    publisher.publish(format!("first {round}")).unwrap();
    publish_lost(bus, &lost(round, "a"));
    publish_lost(bus, &lost(round, "b"));
    publisher.publish(format!("second {round}")).unwrap();
    publish_lost(bus, &lost(round, "**"));
    ["first", "lost", "second", "lost"].map(|what| format!("{what} {round}")).to_vec()
}

fn shown(received: Result<Message<'_>, ReceiveError>) -> String {
    match received {
        Ok(message) => message.text().into_owned(),
        Err(ReceiveError::Lost(lost)) => format!("lost {}", lost.messages),
        Err(error) => panic!("{error}"),
    }
}

/// A loss wakes a subscription, comes at its place, and does not end it.
#[test]
fn a_subscription_gets_losses_at_their_place() {
    for (provider, notify) in [
        (ProviderType::Combined, NotifyKind::Futex),
        (ProviderType::Select, NotifyKind::Futex),
        (ProviderType::Select, NotifyKind::Datagram),
    ] {
        let running = Running::new(provider, WaitType::Native, ProcessorType::Shared);
        let directory = TempDir::new();
        let bus = bus(&directory, notify);
        let (sender, events) = mpsc::channel();
        let handler = Box::new(move |received: Result<Message<'_>, _>, _: &Subscription| {
            sender.send(shown(received)).unwrap();
        });
        let subscriber = bus.subscribe("a").unwrap();
        let served =
            Served::start(&running.proactor, subscriber, handler, Rechecks::Never).unwrap();
        for round in 0..100 {
            for expected in publish_with_losses(&bus, round) {
                assert_eq!(events.recv_timeout(LOST).unwrap(), expected, "{provider:?}");
            }
        }
        assert!(!served.is_over());
        served.cancel();
    }
}

#[test]
fn a_receiver_gets_losses_at_their_place() {
    let running = Running::new(ProviderType::Combined, WaitType::Native, ProcessorType::Shared);
    let directory = TempDir::new();
    let bus = bus(&directory, NotifyKind::Futex);
    let mut receiver = running.proactor.receiver(bus.subscribe("a").unwrap()).unwrap();
    let done = running.proactor.block_on(async {
        for round in 0..100 {
            for expected in publish_with_losses(&bus, round) {
                assert_eq!(shown(receiver.receive().await), expected);
            }
        }
    });
    assert_eq!(done, Some(()));
}

/// Rechecks are near at first and far later, and at the same moments for all.
#[test]
fn rechecks_are_as_far_apart_as_those_of_blocking_calls() {
    for (in_vain, most_ms) in [(0, 50), (19, 50), (20, 250), (u32::MAX, 250)] {
        let before = Instant::now();
        let (one, other) = (Rechecks::Usual.next(in_vain), Rechecks::Usual.next(in_vain));
        let after = Instant::now() + Duration::from_millis(most_ms);
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(before < one && one <= after, "{in_vain}");
        let apart = other - one;
        assert!(apart.is_zero() || apart == Duration::from_millis(most_ms), "{apart:?}");
    }
}

/// It is a loss like others.
#[test]
fn a_missing_value_ends_no_subscription() {
    use crate::settings::Policy;
    let running = Running::new(ProviderType::Combined, WaitType::Native, ProcessorType::Shared);
    let directory = TempDir::new();
    let config = BusConfig::new().directory(directory.path()).capacity(64 << 10);
    let bus = config
        .policy(Policy::Overwrite)
        .retained_topics(3)
        .retained_bytes(4 << 10)
        .create("b")
        .unwrap();
    let [state, missing] =
        ["a", "b"].map(|topic| bus.publisher(topic).unwrap().retained().unwrap());
    bus.publisher("b").unwrap().publish([7; 2_000]).unwrap();
    state.publish("state").unwrap();
    let noise = bus.publisher("noise").unwrap();
    (0..300).for_each(|_| _ = noise.publish([7; 1_000]).unwrap());
    let subscriber = bus.subscriber().pattern("a").pattern("b").retained(true).build().unwrap();
    let (sender, events) = mpsc::channel();
    let handler = Box::new(move |received: Result<Message<'_>, ReceiveError>, _: &Subscription| {
        let text = received.map(|message| message.text().into_owned());
        sender.send(text.map_err(|error| error.is_loss())).unwrap();
    });
    let served = Served::start(&running.proactor, subscriber, handler, Rechecks::Usual).unwrap();
    let next = || events.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(next(), Err(true));
    assert_eq!(next(), Ok("state".to_owned()));
    missing.publish("short").unwrap();
    assert_eq!(next(), Ok("short".to_owned()));
    assert!(!served.is_over());
}
