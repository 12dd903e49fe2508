//! Runs hosts, disturbs their nodes, and checks what all of them receive.

use super::checker::{Checker, worker};
use super::figures::{Figures, Received};
use super::site::{Disturbance, Site};
use crate::soak::program::INTERRUPTED;
use crate::{Random, TempRoot, payload};
use rustix::process::Signal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use toroni::{Bus, ReceiveError, Subscriber};
use toroni_testkit::network::flood::{Flood, Rate};
use toroni_testkit::network::switch::{Direction, Faults, Loss, Reordering};
use toroni_testkit::network::{Network, Setup};
use toroni_testkit::{OnDrop, wait};

/// How often a publisher catches up with its rate.
const TICK: Duration = Duration::from_millis(2);
/// How often the last publisher of a host says that the host is there.
const HELLO: Duration = Duration::from_millis(20);
/// The longest message, without its head.
const LONGEST: usize = 600;
/// The group of all streams: the default one.
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 192, 84, 79)), 4479);
/// How many datagrams a stranger keeps.
const RECORDED: usize = 20_000;
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
    /// Whether hosts are rebooted, with another bus, and restored from backups.
    pub reboots: bool,
    /// How many recorded datagrams a stranger sends again in a second.
    pub recorder: u64,
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
    /// Of each host, whether its programs may have its bus open.
    doors: Vec<Door>,
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

/// Lets the programs of a host close its bus, and open it again.
#[derive(Debug, Default)]
struct Door {
    is_shut: AtomicBool,
    inside: Mutex<usize>,
    left: Condvar,
}

impl Door {
    fn inside(&self) -> MutexGuard<'_, usize> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// Does something with the bus, again and again, until all is over. It ends when the door is shut.
    fn work(&self, shared: &Shared, mut work: impl FnMut()) {
        while !shared.is_over() {
            if self.is_shut() {
                std::thread::sleep(TICK);
                continue;
            }
            *self.inside() += 1;
            let _leave = OnDrop(|| {
                *self.inside() -= 1;
                self.left.notify_all();
            });
            // It may have been shut before this one was counted.
            if !self.is_shut() {
                work();
            }
        }
    }

    /// Does something while no program has the bus open.
    fn while_shut(&self, work: impl FnOnce()) {
        self.is_shut.store(true, Ordering::Relaxed);
        let mut inside = self.inside();
        while *inside > 0 {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        drop(inside);
        work();
        self.is_shut.store(false, Ordering::Relaxed);
    }
}

/// Runs the plan. `None` if there can be no network namespaces here.
///
/// # Panics
/// If a node does not start, or something takes longer than it ever should.
#[must_use]
pub fn run(plan: &Plan) -> Option<Figures> {
    let receivers = plan.hosts + 1;
    // The last one is the stranger's.
    let hosts = u8::try_from(receivers + 1).expect("few hosts");
    let network = Setup::new(hosts).switched(plan.seed)?;
    let root = TempRoot::new();
    root.write_key([7; 32]);
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
        doors: (0..receivers).map(|_| Door::default()).collect(),
        is_begun: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let mut subscribers: Vec<Option<Subscriber>> =
        sites.iter().map(|site| Some(site.open().subscribe("**").expect("a subscriber"))).collect();
    sites.iter_mut().for_each(Site::start);
    let stranger = Flood::open(&network.hosts[receivers], GROUP).expect("a socket");
    let recorded: Mutex<Vec<Vec<u8>>> = Mutex::default();

    let figures = std::thread::scope(|scope| {
        let shared = &shared;
        // However this ends, the threads must end.
        let _end = OnDrop(|| shared.is_over.store(true, Ordering::Relaxed));
        for (receiver, (site, subscriber)) in sites.iter().zip(&mut subscribers).enumerate() {
            let (open, door) = (site.opener(), &shared.doors[receiver]);
            let mut first = subscriber.take();
            let mut saboteur =
                Saboteur::new(shared.plan.sabotage.as_deref().filter(|_| receiver == 0));
            scope.spawn(move || {
                door.work(shared, || {
                    let subscriber = first.take().unwrap_or_else(|| {
                        shared.checker(receiver).begin_again();
                        open().subscribe("**").expect("a subscriber")
                    });
                    receive(subscriber, receiver, shared, &mut saboteur);
                });
            });
        }
        for (host, site) in sites.iter().take(plan.hosts).enumerate() {
            let (open, door) = (site.opener(), &shared.doors[host]);
            let mut random = Random::new(plan.seed ^ (host as u64) << 32);
            scope.spawn(move || {
                door.work(shared, || publish(&open(), host, shared, &mut random));
            });
        }
        if plan.recorder > 0 {
            let (stranger, recorded) = (&stranger, &recorded);
            scope.spawn(move || record(stranger, recorded, shared));
            scope.spawn(move || {
                let mut random = Random::new(plan.seed ^ 0x5265_636f_7264);
                stranger.run(Rate::Datagrams(plan.recorder), &shared.is_over, |datagram| {
                    let recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                    datagram.clear();
                    if !recorded.is_empty() {
                        datagram.extend(random.pick(&recorded));
                    }
                    GROUP
                });
            });
        }
        supervise(&network, &mut sites, shared)
    });
    Some(figures)
}

/// A stranger hears the group, and keeps some of all that was ever sent.
fn record(stranger: &Flood, recorded: &Mutex<Vec<Vec<u8>>>, shared: &Shared) {
    let mut random = Random::new(shared.plan.seed ^ 0x4b65_6570);
    let mut heard = 0;
    while !shared.is_over() {
        let outcome = stranger.listen(HELLO, |_, bytes| {
            heard += 1;
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            let at = random.index(heard);
            if recorded.len() < RECORDED {
                recorded.push(bytes.to_vec());
            } else if let Some(kept) = recorded.get_mut(at) {
                *kept = bytes.to_vec();
            }
            true
        });
        outcome.expect("a socket that can be read");
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
        let what = Disturbance::draw(&mut random, sites[at].has_backup(), plan);
        disturb(sites, at, what, &mut random, shared);
        figures.disturbances[what as usize] += 1;
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

/// Does this to a host.
fn disturb(sites: &mut [Site], at: usize, what: Disturbance, random: &mut Random, shared: &Shared) {
    let (site, door) = (&mut sites[at], &shared.doors[at]);
    match what {
        Disturbance::Stop => {
            site.node().stop();
            std::thread::sleep(Duration::from_millis(random.between(20, 400)));
            return site.node().resume();
        }
        Disturbance::Kill => site.kill(),
        Disturbance::End => site.end(),
        // However its node has ended.
        _ if random.below(2) == 0 => site.end(),
        _ => site.kill(),
    }
    match what {
        Disturbance::Reboot => door.while_shut(|| site.reboot()),
        Disturbance::BackUp => door.while_shut(|| site.back_up()),
        Disturbance::Restore => {
            // The second of the last session must be over: see "Backups" in docs/network.md. It may be ahead of the clock by one, if the
            // node was started twice in a second.
            std::thread::sleep(Duration::from_secs(2));
            door.while_shut(|| site.restore(random.below(2) == 0));
        }
        _ => {}
    }
    site.start();
    if what == Disturbance::Restore && at < shared.plan.hosts {
        // The others must hear it before it is started again: see there, too.
        let number = shared.numbers()[at][shared.plan.publishers];
        wait_until(sites, "every host hears the one that was restored", || {
            (0..shared.checkers.len()).all(|other| shared.checker(other).has_heard(at, number))
        });
    }
}

/// Publishes at the plan's rate, each message by the next publisher of the host, until the bus is to be closed.
fn publish(bus: &Bus, host: usize, shared: &Shared, random: &mut Random) {
    let plan = &shared.plan;
    let publishers: Vec<_> = (0..=plan.publishers)
        .map(|number| bus.publisher(&format!("host-{host}/{number}")).expect("a publisher"))
        .collect();
    let door = &shared.doors[host];
    let mut bytes = Vec::new();
    let mut publish = |at: usize| {
        let number = &shared.published[host][at];
        let counter = number.load(Ordering::Relaxed);
        let message = payload::Payload { worker: worker(host, at), counter };
        payload::encode(message, payload::HEAD + random.index(LONGEST), &mut bytes);
        publishers[at].publish(&bytes).expect("a bus that takes messages");
        number.store(counter + 1, Ordering::Relaxed);
    };
    let (mut begin, mut count, mut greeted) = (None, 0_u64, None);
    while !shared.is_over() && !door.is_shut() {
        if greeted.is_none_or(|at: Instant| at.elapsed() >= HELLO) {
            greeted = Some(Instant::now());
            publish(plan.publishers);
        }
        if shared.is_begun.load(Ordering::Relaxed) {
            let begin = begin.get_or_insert_with(Instant::now);
            let wanted = begin.elapsed().as_secs_f64() * plan.rate as f64;
            while (count as f64) < wanted {
                publish(usize::try_from(count).unwrap_or(0) % plan.publishers);
                count += 1;
            }
        }
        std::thread::sleep(TICK);
    }
}

/// Gives a host's checker all that comes, until the bus is to be closed.
fn receive(mut subscriber: Subscriber, receiver: usize, shared: &Shared, saboteur: &mut Saboteur) {
    while !shared.is_over() && !shared.doors[receiver].is_shut() {
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
