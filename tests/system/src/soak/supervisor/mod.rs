//! The run: decides which workers to start, kill, stop and ask to leave, and when. Makes the checks at the end.

mod ending;
mod queues;
mod values;

use super::figures::{Figures, ROLES};
use super::mix::Filter;
use super::order::{Ended, Order};
use super::program::INTERRUPTED;
use super::progress_record::{Count, ProgressFile};
use super::report::Event;
use super::stalls::{Cause, Disturbances, Stall, now_ns};
use super::verifier::{Kind, Violation};
use crate::counters::{Phase, SharedCounters};
use crate::root::TempRoot;
use crate::worker::{self, BUNDLE};
use queues::QueueCheck;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{Bus, LockKind, NotifyKind, Policy};
use toroni_testkit::{Program, Random};
use values::Newest;

/// Name of the bus.
const BUS: &str = "soak";
/// The longest that a worker is stopped.
const LONGEST_STOP: Duration = Duration::from_millis(1500);
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// How long a run lasts.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    Time(Duration),
    /// Until this number of disturbances has happened: a busy machine then tries as much as an idle one.
    Disturbances(u64),
}

/// What shall be done.
#[derive(Clone, Debug)]
pub struct Plan {
    pub length: Length,
    /// Of all choices; when the processes run, the system chooses.
    pub seed: u64,
    /// Publishers at a time.
    pub publishers: u32,
    /// Subscribers at a time.
    pub subscribers: u32,
    /// The first two publishers are exclusive, one after the other; the others publish when there is none.
    pub exclusive: bool,
    pub lock: LockKind,
    pub notify: NotifyKind,
    /// What publishers do about slow subscribers.
    pub policy: Policy,
    /// Bytes of the ring.
    pub capacity: u64,
    /// Mean time between two disturbances.
    pub calm: Duration,
    /// A mistake for one worker to make: of a `publisher` or a `subscriber`, and which.
    pub sabotage: Option<(usize, String)>,
    /// Where the bus is kept if something is wrong.
    pub keep: PathBuf,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub figures: Figures,
    /// Where the bus and the progress records of all workers were kept, if something was wrong.
    pub kept: Option<PathBuf>,
}

#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let mut soak = Soak::new(plan);
    soak.disturb();
    if !soak.is_broken() {
        soak.finish();
    }
    soak.close()
}

const PUBLISHER: usize = 0;
const SUBSCRIBER: usize = 1;

/// How many publishers want to be exclusive.
const EXCLUSIVE: u32 = 2;

struct Soak<'a> {
    plan: &'a Plan,
    random: Random,
    root: TempRoot,
    counters: SharedCounters,
    bus: Option<Bus>,
    workers: Vec<Worker>,
    next_id: u32,
    told: Arc<Mutex<Told>>,
    figures: Figures,
    began: Instant,
    descriptors: usize,
    end: u64,
    last_check: QueueCheck,
    newest: Newest,
    /// Stalls that were reported one by one.
    explained: u32,
}

struct Worker {
    id: u32,
    role: usize,
    /// Its number among those that run at a time.
    number: u32,
    /// The supervisor neither kills nor stops it: it lives from beginning to end.
    is_spared: bool,
    running: Program,
    listener: Option<JoinHandle<()>>,
    record: ProgressFile,
    record_path: PathBuf,
    stopped: Option<Instant>,
    is_leaving: bool,
}

/// What workers have reported.
#[derive(Default)]
struct Told {
    order: Order,
    violations: Vec<Violation>,
    ready: u32,
    done: u32,
    stalls: Vec<(usize, Stall)>,
    disturbances: Disturbances,
}

impl<'a> Soak<'a> {
    fn new(plan: &'a Plan) -> Self {
        let root = TempRoot::new();
        // The directory has one, for as long as it exists.
        let descriptors = descriptors_of("self");
        let counters = SharedCounters::open(&root.file("counters"));
        // Few slots more than are needed: one that does not come back is soon missed. A table of topics
        // that fills up soon.
        let config = root.config().lock(plan.lock).notify(plan.notify).policy(plan.policy);
        let config = config.capacity(plan.capacity).topic_table_bytes(4 << 10);
        let config = config.max_publishers(plan.publishers + 3);
        let config = config.max_subscribers(plan.subscribers + 2);
        let bus = config.create(BUS).expect("a new bus");
        let mut soak = Self {
            plan,
            random: Random::new(plan.seed),
            root,
            counters,
            bus: Some(bus),
            workers: Vec::new(),
            // 0 is the supervisor.
            next_id: 1,
            told: Arc::default(),
            figures: Figures::default(),
            began: Instant::now(),
            descriptors,
            end: 0,
            last_check: QueueCheck::default(),
            newest: Newest::default(),
            explained: 0,
        };
        soak.retain_topics();
        for number in 0..plan.subscribers {
            soak.start(SUBSCRIBER, number, number < 2);
        }
        soak.wait_for("subscribers are ready", |told| told.ready >= plan.subscribers);
        for number in 0..plan.publishers {
            // An exclusive publisher is there to be killed.
            let spared = if plan.exclusive { EXCLUSIVE } else { 0 };
            soak.start(PUBLISHER, number, number == spared);
        }
        soak
    }

    /// Kills, stops and replaces until the time is over, or something is wrong.
    fn disturb(&mut self) {
        self.began = Instant::now();
        let mut next_progress = PROGRESS_EVERY;
        let mut sized = false;
        let calm_us = u64::try_from(self.plan.calm.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut next = Instant::now();
        let mut disturbances = 0;
        while !self.has_done(1, disturbances)
            && !self.is_broken()
            && !INTERRUPTED.load(Ordering::Relaxed)
        {
            std::thread::sleep(Duration::from_millis(1));
            self.resume_stopped(false);
            self.judge_stalls(false);
            self.check_queues();
            self.reap();
            if self.began.elapsed() >= next_progress {
                next_progress += PROGRESS_EVERY;
                self.print_progress();
            }
            if !sized && self.has_done(10, disturbances) {
                sized = true;
                self.figures.sizes[0] = self.sizes();
            }
            if Instant::now() >= next {
                self.disturb_once();
                disturbances += 1;
                next = Instant::now() + Duration::from_micros(self.random.between(0, 2 * calm_us));
            }
        }
        self.figures.sizes[1] = self.sizes();
        self.figures.duration = self.began.elapsed();
    }

    /// Whether this part of the run is over: all of it for 1, a tenth for 10.
    fn has_done(&self, part: u32, disturbances: u64) -> bool {
        match self.plan.length {
            Length::Time(time) => self.began.elapsed() >= time / part,
            Length::Disturbances(number) => disturbances >= number / u64::from(part),
        }
    }

    fn disturb_once(&mut self) {
        let victims: Vec<usize> = (0..self.workers.len())
            .filter(|index| {
                let worker = &self.workers[*index];
                !worker.is_spared && !worker.is_leaving && worker.stopped.is_none()
            })
            .collect();
        if victims.is_empty() {
            return;
        }
        let index = victims[self.random.index(victims.len())];
        match self.random.index(100) {
            0..40 => self.kill(index),
            40..65 => self.stop(index),
            65..85 => {
                let worker = &mut self.workers[index];
                worker.is_leaving = true;
                worker.record.ask_to_leave().expect("its record");
            }
            // Publishers of a group at once.
            85..90 => {
                let number = self.workers[index].number;
                let group: Vec<u32> = victims
                    .iter()
                    .map(|index| &self.workers[*index])
                    .filter(|worker| worker.number.abs_diff(number) < 2)
                    .map(|worker| worker.id)
                    .collect();
                for id in group {
                    if let Some(index) = self.workers.iter().position(|worker| worker.id == id) {
                        self.kill(index);
                    }
                }
            }
            _ => {
                self.counters.set_phase(Phase::Pause);
                self.figures.pauses += 1;
                let pause = self.random.between(1, 120);
                std::thread::sleep(Duration::from_millis(pause));
                self.counters.set_phase(Phase::Run);
            }
        }
    }

    fn kill(&mut self, index: usize) {
        let mut worker = self.workers.swap_remove(index);
        if worker.running.ended().is_some() {
            return self.collect(worker, true);
        }
        let from = now_ns();
        worker.running.signal(Signal::KILL);
        worker.running.wait();
        // Its leases may be gone a little later.
        self.told().disturbances.add(Cause::Killed, from, now_ns() + 10_000_000);
        self.figures.kills[worker.role] += 1;
        let (role, number) = (worker.role, worker.number);
        self.collect(worker, false);
        self.check_values();
        self.start(role, number, false);
    }

    fn stop(&mut self, index: usize) {
        // Most are short; a few are longer than any policy waits.
        let longest = LONGEST_STOP / if self.random.index(5) == 0 { 1 } else { 30 };
        let ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let until = Instant::now() + Duration::from_millis(self.random.between(1, ms + 1));
        let worker = &mut self.workers[index];
        worker.record.disturb().expect("its record");
        worker.stopped = Some(until);
        worker.running.signal(Signal::STOP);
        self.figures.stops[worker.role] += 1;
    }

    /// Those that were stopped, as far as their time is over.
    fn resume_stopped(&mut self, all: bool) {
        for worker in &mut self.workers {
            if let Some(until) = worker.stopped
                && (all || Instant::now() >= until)
            {
                worker.record.disturb().expect("its record");
                worker.running.signal(Signal::CONT);
                worker.stopped = None;
            }
        }
    }

    /// Reaps the workers that have ended. One that was asked to leave must have ended in order.
    fn reap(&mut self) {
        let mut index = 0;
        while index < self.workers.len() {
            if self.workers[index].running.ended().is_none() {
                index += 1;
                continue;
            }
            let worker = self.workers.swap_remove(index);
            let (role, number, is_leaving) = (worker.role, worker.number, worker.is_leaving);
            self.collect(worker, true);
            if is_leaving && self.end == 0 && self.counters.phase() == Phase::Run {
                self.start(role, number, false);
            }
        }
    }

    /// Takes what a worker has reported and counted, after its end.
    fn collect(&mut self, mut worker: Worker, in_order: bool) {
        if let Some(listener) = worker.listener.take() {
            let _ = listener.join();
        }
        let status = worker.running.wait();
        // Waits, too, for the thread that listens to its standard error, and has a descriptor.
        let said = worker.running.errors();
        if in_order && !status.success() {
            self.fail(format!("worker {} ended with {status}{said}", worker.id));
        }
        let count = |count| worker.record.get(count).expect("its record");
        let (messages, rejoins) = (count(Count::Messages), count(Count::Rejoins));
        self.figures.leaves += rejoins + u64::from(in_order);
        self.figures.joins += rejoins;
        let times = worker.record.times().expect("its record");
        self.figures.times[worker.role].add(&times, count(Count::LongestStall));
        if worker.role == PUBLISHER {
            self.figures.reigns += count(Count::Reigns);
            self.figures.kept_out += count(Count::KeptOut);
            // A publisher that died after the commit has not counted its messages.
            let sequence = self.stats().sequence + BUNDLE as u64;
            let more = if in_order { 0 } else { BUNDLE as u64 };
            let ended = Ended { worker: worker.id, told: messages, more, sequence };
            self.told().order.ended(ended);
        } else {
            self.figures.delivered += messages;
            self.figures.lapses += count(Count::Lapses);
            self.figures.lost += count(Count::Lost);
            self.figures.values[0] += count(Count::Values);
        }
        std::fs::remove_file(&worker.record_path).expect("its record");
    }

    fn start(&mut self, role: usize, number: u32, is_spared: bool) {
        let id = self.next_id;
        self.next_id += 1;
        self.counters.set_next_id(self.next_id);
        let record_path = self.root.file(&format!("record-{id}"));
        let record = ProgressFile::create(&record_path).expect("a record");
        let mut words = vec![
            ["soak-publish", "soak-subscribe"][role].to_owned(),
            format!("dir={}", self.root.buses().display()),
            format!("bus={BUS}"),
            format!("counters={}", self.root.file("counters").display()),
            format!("record={}", record_path.display()),
            format!("id={id}"),
            format!("number={number}"),
            format!("seed={}", self.random.number()),
        ];
        words.extend(self.character(role, is_spared));
        if self.plan.exclusive && role == PUBLISHER && number < EXCLUSIVE {
            words.push("exclusive=true".to_owned());
        }
        if let Some((of, what)) = &self.plan.sabotage
            && (*of, number) == (role, 2)
        {
            words.push(format!("sabotage={what}"));
            // One that sees everything, and is slow enough to lose something.
            words.extend(["filter=0", "lazy_every=500", "lazy_us=300000"].map(str::to_owned));
        }
        let mut command = Command::new(worker::path());
        command.args(words).env_remove("TORONI_CRASH").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // An interrupt from the terminal is the supervisor's.
        command.process_group(0);
        let mut running = Program::start(command);
        let output = BufReader::new(running.take_stdout().expect("its output"));
        let told = self.told.clone();
        let listener = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                lock(&told).take(role, id, &line);
            }
        });
        self.figures.joins += 1;
        self.workers.push(Worker {
            id,
            role,
            number,
            is_spared,
            running,
            listener: Some(listener),
            record,
            record_path,
            stopped: None,
            is_leaving: false,
        });
    }

    /// What a worker is like.
    fn character(&mut self, role: usize, is_spared: bool) -> Vec<String> {
        let random = &mut self.random;
        let mut words = Vec::new();
        if role == PUBLISHER {
            let longest = usize::try_from(self.plan.capacity / 8).unwrap_or(usize::MAX);
            words.push(format!("longest={longest}"));
            let rate = ["fast", "bursty", "bursty", "slow", "slow"][random.index(5)];
            words.push(format!("timestamps={}", random.index(3) == 0));
            words.push(format!("rate={}", if is_spared { "bursty" } else { rate }));
            let may_overwrite = self.plan.policy != (Policy::Wait { limit: None });
            words.push(format!("hasty={}", may_overwrite && random.index(12) == 0));
            if random.index(3) == 0 {
                words.push(format!("rejoin={}", random.between(50, 5000)));
            }
        } else if is_spared {
            words.extend(["filter=0", "gating=true"].map(str::to_owned));
        } else {
            if random.index(3) == 0 {
                words.push(format!("rejoin={}", random.between(100, 50_000)));
            }
            if random.index(3) == 0 {
                let (every, us) = (random.between(50, 5000), random.between(100, 60_000));
                words.extend([format!("lazy_every={every}"), format!("lazy_us={us}")]);
            }
        }
        words
    }

    fn has(&self, role: usize) -> bool {
        self.workers.iter().any(|worker| worker.role == role)
    }

    fn report(&mut self, check: impl FnOnce(&mut Told) -> Result<(), Violation>) {
        let mut told = self.told();
        if let Err(violation) = check(&mut told) {
            told.violations.push(violation);
        }
    }

    fn fail(&self, evidence: String) {
        self.told().violations.push(Violation { kind: Kind::Failed, evidence });
    }

    fn is_broken(&self) -> bool {
        !self.told().violations.is_empty()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        lock(&self.told)
    }

    fn stats(&self) -> toroni::BusStats {
        self.bus.as_ref().expect("the bus").stats().expect("statistics")
    }

    /// The most descriptors and KiB of those that live from beginning to end.
    fn sizes(&self) -> (u64, u64) {
        let spared = self.workers.iter().filter(|worker| worker.is_spared);
        let sizes = spared.map(|worker| {
            let pid = worker.running.id().to_string();
            (descriptors_of(&pid) as u64, memory_kib_of(&pid))
        });
        sizes.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
    }

    fn print_progress(&self) {
        let counts = self.told().order.counts();
        let [publishers, subscribers] = self.figures.kills;
        println!(
            "{:>6.0} s: {} messages, {} deliveries compared, {publishers}+{subscribers} kills, {}+{} stops, \
             {} joins, nothing wrong",
            self.began.elapsed().as_secs_f64(),
            self.stats().sequence,
            counts.compared,
            self.figures.stops[0],
            self.figures.stops[1],
            self.figures.joins,
        );
    }
}

impl Told {
    fn take(&mut self, role: usize, id: u32, line: &str) {
        let wrong = match Event::parse(line) {
            None => Some((Kind::Failed, format!("it said {line:?}"))),
            Some(Event::Violation(kind, evidence)) => Some((kind, evidence)),
            Some(Event::Ready) => {
                self.ready += u32::from(role == SUBSCRIBER);
                None
            }
            Some(Event::Stretch(filter, stretch)) => match Filter::CHOICES.get(filter) {
                Some(filter) => {
                    let taken = self.order.take(id, *filter, &stretch);
                    taken.err().map(|violation| (violation.kind, violation.evidence))
                }
                None => Some((Kind::Failed, format!("it said {line:?}"))),
            },
            Some(Event::Progress(worker, progress)) => {
                self.order.progress(worker, progress);
                None
            }
            Some(Event::Stall(stall)) => {
                self.stalls.push((role, stall));
                None
            }
            Some(Event::Done(_)) => {
                self.done += 1;
                None
            }
        };
        if let Some((kind, evidence)) = wrong {
            let role = ROLES[role];
            let evidence = format!("{role}, worker {id}: {evidence}");
            self.violations.push(Violation { kind, evidence });
        }
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors_of(process: &str) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// Resident memory of a process (proc(5), VmRSS).
fn memory_kib_of(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A policy, in the words of `toroni create --policy`.
///
/// # Errors
/// If there is no such policy.
pub fn policy_of(word: &str) -> Result<Policy, String> {
    let time = |text: &str| {
        let number = |unit| text.strip_suffix(unit).and_then(|number| number.parse().ok());
        let time = number("ms").map(Duration::from_millis);
        let time = time.or_else(|| number("s").map(Duration::from_secs));
        time.ok_or_else(|| format!("no time {text:?}: as 100ms or 1s"))
    };
    match word.split_once(':') {
        None if word == "overwrite" => Ok(Policy::Overwrite),
        Some(("wait", "forever")) => Ok(Policy::Wait { limit: None }),
        Some(("wait", limit)) => Ok(Policy::Wait { limit: Some(time(limit)?) }),
        Some(("bounded", terms)) => {
            let (budget, per) = terms.split_once('/').ok_or("bounded:BUDGET/PER, as 50ms/1s")?;
            Ok(Policy::Bounded { budget: time(budget)?, per: time(per)? })
        }
        _ => {
            Err(format!("no policy {word:?}: wait:100ms, wait:forever, overwrite, bounded:50ms/1s"))
        }
    }
}
