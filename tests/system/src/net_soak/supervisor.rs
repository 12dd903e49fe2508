//! Runs hosts, disturbs their nodes, and checks what all of them receive.

use super::checker::{Checker, worker};
use super::figures::{Figures, Received};
use super::site::Site;
use crate::soak::program::INTERRUPTED;
use crate::{Random, TempRoot, payload};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use toroni::{Bus, ReceiveError, Subscriber};
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reordering};
use toroni_testkit::network::{Network, Setup};
use toroni_testkit::wait;

/// How often a publisher catches up with its rate.
const TICK: Duration = Duration::from_millis(2);
/// How often the last publisher of a host says that the host is there.
const HELLO: Duration = Duration::from_millis(20);
/// The longest message, without its head.
const LONGEST: usize = 600;
/// Nothing takes this long, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub duration: Duration,
    pub seed: u64,
    /// Hosts that publish and receive. One more, the crybaby, only receives.
    pub hosts: usize,
    /// Publishers of each host.
    pub publishers: usize,
    /// Messages in a second, of each host.
    pub rate: u64,
    /// The `data_rate` of each node, in Mbit/s.
    pub data_mbit: u64,
    /// The probability that the switch loses a frame.
    pub loss: f64,
    /// The same, of frames to the crybaby, besides.
    pub crybaby_loss: f64,
    /// The mean time between two disturbances of nodes.
    pub calm: Duration,
    /// A mistake that must be noticed: `drop`, `double` or `swap` hides, repeats or exchanges a message before the check.
    pub sabotage: Option<String>,
}

/// What the threads share.
struct Shared {
    plan: Plan,
    /// Of each host: how many messages each publisher has published. The last one publishes from the start on.
    published: Vec<Vec<AtomicU64>>,
    /// Of each receiver.
    checkers: Vec<Mutex<Checker>>,
    /// Whether all publishers publish, and whether all ends.
    is_begun: AtomicBool,
    is_over: AtomicBool,
}

impl Shared {
    fn checker(&self, receiver: usize) -> MutexGuard<'_, Checker> {
        self.checkers[receiver].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self) -> Vec<Vec<u64>> {
        let of_host =
            |all: &Vec<AtomicU64>| all.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        self.published.iter().map(of_host).collect()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Runs the plan. `None` if there can be no network namespaces here.
///
/// # Panics
/// If a node does not start, or something takes longer than it ever should.
#[must_use]
pub fn run(plan: &Plan) -> Option<Figures> {
    let receivers = plan.hosts + 1;
    let network = Setup::new(u8::try_from(receivers).expect("few hosts")).switched(plan.seed)?;
    let root = TempRoot::new();
    disturb_network(&network, plan);
    let mut sites: Vec<Site> = (0..receivers)
        .map(|number| Site::new(&root, &network.hosts[number], number, plan))
        .collect();
    let shared = Shared {
        plan: plan.clone(),
        published: (0..plan.hosts)
            .map(|_| (0..=plan.publishers).map(|_| AtomicU64::new(0)).collect())
            .collect(),
        checkers: (0..receivers)
            .map(|number| Mutex::new(Checker::new(number, plan.hosts, plan.publishers)))
            .collect(),
        is_begun: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let subscribers: Vec<Subscriber> =
        sites.iter().map(|site| site.bus.subscribe("**").expect("a subscriber")).collect();
    sites.iter_mut().for_each(Site::start);

    let figures = std::thread::scope(|scope| {
        let shared = &shared;
        // However this ends, the threads must end.
        let _end = OnDrop(|| shared.is_over.store(true, Ordering::Relaxed));
        for (receiver, subscriber) in subscribers.into_iter().enumerate() {
            scope.spawn(move || receive(subscriber, receiver, shared));
        }
        for (host, site) in sites.iter().take(plan.hosts).enumerate() {
            let bus = site.bus.clone();
            scope.spawn(move || publish(&bus, host, shared));
        }
        supervise(&network, &mut sites, shared)
    });
    Some(figures)
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn disturb_network(network: &Network, plan: &Plan) {
    let reordering = Reordering { probability: 0.05, distance: 5, limit: Duration::from_millis(2) };
    let faults = Faults { loss: Loss::Bernoulli(plan.loss), reordering, ..Faults::default() };
    network.switch().set_all_faults(Direction::In, &faults);
    let faults = Faults { loss: Loss::Bernoulli(plan.crybaby_loss), ..Faults::default() };
    network.switch().set_faults(plan.hosts, Direction::Out, &faults);
}

/// Kills and stops nodes until the time is over. Then all messages must come.
fn supervise(network: &Network, sites: &mut [Site], shared: &Shared) -> Figures {
    let plan = &shared.plan;
    wait_until(sites, "every host hears every other one", || {
        let hears_all = |at| {
            let checker = shared.checker(at);
            (0..plan.hosts).all(|host| checker.hears(host))
        };
        (0..shared.checkers.len()).all(hears_all)
    });
    shared.is_begun.store(true, Ordering::Relaxed);
    let mut random = Random::new(plan.seed);
    let mut figures = Figures::default();
    let begin = Instant::now();
    let ends = || begin.elapsed() >= plan.duration || INTERRUPTED.load(Ordering::Relaxed);
    while !ends() {
        let calm = random.below(2 * u64::try_from(plan.calm.as_millis()).unwrap_or(1) + 1);
        let until = Instant::now() + Duration::from_millis(calm);
        while Instant::now() < until && !ends() {
            std::thread::sleep(Duration::from_millis(10));
            sites.iter_mut().for_each(Site::weigh);
        }
        let at = random.index(sites.len());
        let site = &mut sites[at];
        if random.below(4) == 0 {
            site.node().stop();
            std::thread::sleep(Duration::from_millis(random.between(20, 400)));
            site.node().resume();
            figures.stops += 1;
        } else {
            site.kill();
            site.start();
            figures.kills += 1;
        }
    }
    figures.duration = begin.elapsed();
    // What came while the network lost and nodes died.
    let count = |numbers: &[Vec<u64>]| numbers.iter().flatten().sum::<u64>();
    let numbers = shared.numbers();
    let published = count(&numbers);
    let own = |receiver: usize| numbers.get(receiver).map_or(0, |own| own.iter().sum::<u64>());
    let meanwhile: Vec<f64> = (0..sites.len())
        .map(|receiver| {
            shared.checker(receiver).received as f64 / (published - own(receiver)) as f64
        })
        .collect();

    let none = Faults::default();
    network.switch().set_all_faults(Direction::In, &none);
    network.switch().set_all_faults(Direction::Out, &none);
    let numbers = shared.numbers();
    wait_until(sites, "everything that was published has come, or was reported", || {
        (0..shared.checkers.len()).all(|receiver| shared.checker(receiver).has_reached(&numbers))
    });
    shared.is_over.store(true, Ordering::Relaxed);
    figures.published = count(&numbers);
    figures.memory_kib = sites.iter().map(Site::most_memory).max().unwrap_or(0);
    for (receiver, site) in sites.iter_mut().enumerate() {
        figures.receivers.push(Received::new(&shared.checker(receiver), meanwhile[receiver]));
        site.node().signal(Signal::TERM);
    }
    figures.is_orderly = sites.iter_mut().all(|site| site.node().wait().success());
    figures
}

/// Publishes at the plan's rate, each message by the next publisher of the host.
fn publish(bus: &Bus, host: usize, shared: &Shared) {
    let plan = &shared.plan;
    let publishers: Vec<_> = (0..=plan.publishers)
        .map(|number| bus.publisher(&format!("host-{host}/{number}")).expect("a publisher"))
        .collect();
    let mut random = Random::new(plan.seed ^ (host as u64) << 32);
    let mut bytes = Vec::new();
    let mut publish = |at: usize| {
        let number = &shared.published[host][at];
        let counter = number.load(Ordering::Relaxed);
        let message = payload::Payload { worker: worker(host, at), counter };
        payload::encode(message, payload::HEAD + random.index(LONGEST), &mut bytes);
        publishers[at].publish(&bytes).expect("a bus that takes messages");
        number.store(counter + 1, Ordering::Relaxed);
    };
    let (mut begin, mut count, mut greeted) = (Instant::now(), 0_u64, None);
    while !shared.is_over() {
        if greeted.is_none_or(|at: Instant| at.elapsed() >= HELLO) {
            greeted = Some(Instant::now());
            publish(plan.publishers);
        }
        if !shared.is_begun.load(Ordering::Relaxed) {
            begin = Instant::now();
        }
        let wanted = begin.elapsed().as_secs_f64() * plan.rate as f64;
        while (count as f64) < wanted {
            publish(usize::try_from(count).unwrap_or(0) % plan.publishers);
            count += 1;
        }
        std::thread::sleep(TICK);
    }
}

/// Gives a host's checker all that comes.
fn receive(mut subscriber: Subscriber, receiver: usize, shared: &Shared) {
    let mut saboteur = Saboteur::new(shared.plan.sabotage.as_deref().filter(|_| receiver == 0));
    while !shared.is_over() {
        let outcome = subscriber.receive_timeout(Duration::from_millis(100));
        let mut checker = shared.checker(receiver);
        match outcome {
            Ok(None) => {}
            Ok(Some(message)) => {
                match payload::decode(message.payload()) {
                    Ok(payload) => {
                        saboteur.pass(payload, |one| checker.message(one.worker, one.counter))
                    }
                    Err(what) => checker.damaged(&format!("{}: {what}", message.topic())),
                }
                let age = message
                    .timestamp()
                    .and_then(|then| SystemTime::now().duration_since(then).ok());
                let ns = u64::try_from(age.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
                checker.latency.record(ns);
            }
            Err(ReceiveError::Lost(lost)) => checker.lost(&lost),
            Err(ReceiveError::Lapped { lost_messages, .. }) => checker.lapped(lost_messages),
            Err(error) => checker.damaged(&error.to_string()),
        }
    }
}

/// Makes a mistake with one message, to show that it is noticed.
struct Saboteur {
    mistake: Option<String>,
    /// How many messages pass before.
    left: u32,
    held: Option<payload::Payload>,
}

impl Saboteur {
    fn new(mistake: Option<&str>) -> Self {
        Self { mistake: mistake.map(str::to_owned), left: 500, held: None }
    }

    fn pass(&mut self, payload: payload::Payload, mut check: impl FnMut(payload::Payload)) {
        if let Some(held) = self.held.take_if(|held| held.worker == payload.worker) {
            check(payload);
            check(held);
            return;
        }
        self.left = self.left.saturating_sub(1);
        let mistake = if self.left == 0 { self.mistake.take() } else { None };
        match mistake.as_deref() {
            None => check(payload),
            Some("drop") => {}
            Some("double") => [payload; 2].into_iter().for_each(check),
            Some("swap") => self.held = Some(payload),
            Some(mistake) => panic!("no sabotage {mistake:?}: drop, double or swap"),
        }
    }
}

/// If it takes too long, what the nodes said is part of the failure.
fn wait_until(sites: &mut [Site], what: &str, condition: impl FnMut() -> bool) {
    if !wait::within(PATIENCE, condition) {
        let said: String = sites.iter_mut().map(|site| site.node().errors()).collect();
        panic!("after {} s: not yet: {what}\n{said}", PATIENCE.as_secs());
    }
}
