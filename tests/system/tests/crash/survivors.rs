//! A bus with survivors, on which somebody dies.

use std::fmt;
use std::time::{Duration, Instant};
use system_tests::LIMIT;
use system_tests::Random;
use system_tests::counters::Phase;
use system_tests::worker::{BUS, Fixture, Seen, Worker};
use toroni::hook::CrashPoint;
use toroni::{BusConfig, LockKind, NotifyKind, Policy};
use toroni_testkit::order::Agreement;

/// The smallest ring: its blocks are of 1 KiB, and messages often cross their boundaries.
pub(crate) const CAPACITY: u64 = 64 << 10;
/// What a loaded machine keeps; the real figures are printed.
const LONGEST_STALL: Duration = Duration::from_secs(30);
/// Messages of the publisher that comes last.
pub(crate) const FRESH: u64 = 40;
/// Options of all who publish here.
pub(crate) const LONGEST: &str = "longest=3000";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) point: CrashPoint,
    /// It dies when it is there for the n-th time.
    pub(crate) n: u64,
    pub(crate) lock: LockKind,
    pub(crate) notify: NotifyKind,
    pub(crate) policy: Policy,
    pub(crate) seed: u64,
    /// Where the matter is subscribers in a proactor: the configuration of its engine.
    pub(crate) engine: Option<&'static str>,
    pub(crate) who: Who,
}

/// As whom the victim publishes, if it publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// One of many.
    Publisher,
    /// The exclusive publisher of the bus.
    Exclusive,
    /// An inlet. It reports one message in `losses` as lost; 0 is none.
    Inlet { losses: u64 },
}

impl Case {
    /// What the environment of the victim says.
    pub(crate) fn crash(&self) -> String {
        format!("{}:{}", self.point.name(), self.n)
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.who == Who::Exclusive
    }

    /// Tells the victim whether it is exclusive.
    pub(crate) fn exclusive_option(&self) -> &'static str {
        if self.is_exclusive() { "exclusive=true" } else { "exclusive=false" }
    }

    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed)
    }

    pub(crate) fn configure(&self, config: BusConfig) -> BusConfig {
        let config = config.lock(self.lock).notify(self.notify).capacity(CAPACITY);
        // Few slots: one that does not come back is missed soon.
        config.policy(self.policy).max_publishers(6).max_subscribers(6)
    }

    /// Whether who lives and reads loses nothing.
    pub(crate) fn is_lossless(&self) -> bool {
        self.policy != Policy::Overwrite
    }

    /// Asserts that what the survivors saw of the victim is what was committed; of messages that one of
    /// them lost, only that they are not too many.
    pub(crate) fn assert_arrived(
        &self,
        seen: &Seen,
        worker: u32,
        committed: &std::ops::RangeInclusive<u64>,
    ) {
        let arrived = seen.of_worker.get(&worker).copied().unwrap_or(0);
        let range = if self.is_lossless() { committed.clone() } else { 0..=*committed.end() };
        assert!(range.contains(&arrived), "{self:?}: {arrived} arrived, not {committed:?}");
    }
}

/// The survivors: two subscribers from the beginning, and a publisher from when it is needed.
pub(crate) struct Survivors {
    pub(crate) fixture: Fixture,
    pub(crate) subscribers: Vec<Worker>,
    pub(crate) publisher: Option<Worker>,
    /// Others that publish, in a way of their own.
    pub(crate) others: Vec<Worker>,
    is_lossless: bool,
    seed: u64,
}

impl Survivors {
    pub(crate) fn new(case: &Case) -> Self {
        let mut fixture = Fixture::new(|config| case.configure(config));
        let engine = case.engine.map(|engine| format!("engine={engine}"));
        let second = match &engine {
            None => ["how=poll", "wait=backoff"],
            Some(engine) => ["how=proactor", engine],
        };
        let subscribers = [["how=receive", "wait=backoff"], second]
            .map(|options| fixture.start_ready("subscribe", &options))
            .into();
        Self {
            fixture,
            subscribers,
            publisher: None,
            others: Vec::new(),
            is_lossless: case.is_lossless(),
            seed: case.seed,
        }
    }

    /// The publisher that survives, at a gentle pace, so that subscribers sleep in between.
    pub(crate) fn start_publisher(&mut self) {
        if self.publisher.is_none() {
            let seed = format!("seed={}", self.seed);
            let options = ["kind=mixed", LONGEST, "pause_us=50", &seed];
            self.publisher = Some(self.fixture.start_ready("publish", &options));
        }
    }

    /// The next exclusive publisher takes over, publishes, and ends.
    pub(crate) fn publish_exclusively(&mut self) {
        let options = ["kind=mixed", LONGEST, "count=40", "phase=ignored", "exclusive=true"];
        drop(self.fixture.start("publish", &options).running.succeed());
    }

    /// Whether none of them publishes at present.
    pub(crate) fn is_quiet(&self) -> bool {
        self.publisher.is_none() || self.fixture.counters.phase() == Phase::Pause
    }

    /// Stops and continues a subscriber until the victim has ended, so that it often waits for space and gets it.
    pub(crate) fn make_space_until_death(&self, victim: &mut Worker, case: &Case) {
        let mut random = case.random();
        while victim.running.ended().is_none() {
            self.subscribers[0].running.resume();
            std::thread::sleep(Duration::from_micros(random.between(100, 2000)));
            self.subscribers[0].running.stop();
            std::thread::sleep(Duration::from_micros(random.between(100, 2000)));
        }
    }

    /// Waits for the victim's death, which must be by the crash point.
    pub(crate) fn wait_for_death(&self, victim: &mut Worker, case: &Case) {
        use std::os::unix::process::ExitStatusExt;
        let status = victim.running.wait();
        let explained = victim.running.errors();
        assert_eq!(status.signal(), Some(9), "not reached: {case:?}, {status}{explained}");
    }

    /// All survivors make progress, and go twice around the ring.
    pub(crate) fn assert_progress(&mut self, stalls: &mut Stalls) {
        self.start_publisher();
        let began = Instant::now();
        let ids: Vec<u32> = self.survivors().map(|survivor| survivor.id).collect();
        let counters = &self.fixture.counters;
        let before: Vec<u64> = ids.iter().map(|id| counters.count(*id)).collect();
        self.soon(|| ids.iter().zip(&before).all(|(id, before)| counters.count(*id) > *before));
        stalls.add(began.elapsed());

        let bus = self.fixture.bus();
        let tail = || bus.stats().expect("statistics").tail;
        let end = tail() + 2 * CAPACITY;
        self.soon(|| tail() >= end);
    }

    fn survivors(&self) -> impl Iterator<Item = &Worker> {
        self.subscribers.iter().chain(&self.publisher).chain(&self.others)
    }

    /// Waits until it is so. All survivors run until then.
    pub(crate) fn soon(&self, mut so: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !so() {
            let all_run = self.survivors().all(|survivor| survivor.running.is_running());
            if !all_run || Instant::now() > deadline {
                let info = self.fixture.root.succeed(&["info", BUS]);
                let said: String = self.survivors().map(|one| one.running.errors()).collect();
                panic!("survivors do not continue{said}\n{info}");
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Newcomers find their place, all end, and nothing is left. What the subscribers saw, who both
    /// saw all there was.
    pub(crate) fn finish(mut self) -> Seen {
        let options = ["kind=mixed", LONGEST, &format!("count={FRESH}"), "seed=1"];
        let fresh = self.fixture.start("publish", &options);
        let late = self.fixture.start_ready("subscribe", &["how=receive"]);
        drop(fresh.running.succeed());

        // What the dead left goes, and the living stay.
        let _ = self.fixture.root.succeed(&["clean"]);
        let info = self.fixture.root.info(BUS);
        info.assert_no_dead(false);
        let publishers = 1 + self.others.len();
        assert_eq!(
            (info.publishers().len(), info.subscribers().len()),
            (publishers, 3),
            "{info:?}"
        );

        let others = std::mem::take(&mut self.others);
        let total = self.fixture.stop_publishers(self.publisher.take().into_iter().chain(others));
        let mut order = Agreement::default();
        self.subscribers.push(late);
        let subscribers = std::mem::take(&mut self.subscribers);
        let mut seen = self.fixture.finish_subscribers(total, subscribers, &mut order);
        for seen in &seen[..2] {
            assert_eq!(seen.received + seen.lost, total, "each loss is reported: {seen:?}");
            assert_eq!(seen.lost > 0, seen.lapses > 0);
        }
        if self.is_lossless {
            assert_eq!((seen[0].lost, seen[1].lost, seen[2].lost), (0, 0, 0));
            assert_eq!(seen[0].of_worker, seen[1].of_worker);
        }
        let info = self.fixture.root.info(BUS);
        info.assert_no_dead(true);
        assert_eq!((info.publishers().len(), info.subscribers().len()), (0, 0), "{info:?}");
        self.fixture.root.assert_clean_leaves_nothing();
        seen.swap_remove(0)
    }
}

/// How long survivors took to continue.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Vec<Duration>);

impl Stalls {
    pub(crate) fn add(&mut self, stall: Duration) {
        self.0.push(stall);
    }

    pub(crate) fn assert_short(&self) {
        assert!(self.0.iter().all(|stall| *stall < LONGEST_STALL), "{self}");
    }
}

impl fmt::Display for Stalls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut stalls = self.0.clone();
        stalls.sort();
        let at =
            |share: usize| stalls.get((stalls.len() * share / 100).min(stalls.len().max(1) - 1));
        let ms = |share| at(share).map_or(0.0, |stall| stall.as_secs_f64() * 1e3);
        write!(formatter, "{:.1} ms in the median, {:.1} ms at most", ms(50), ms(100))
    }
}
