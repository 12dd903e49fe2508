//! Several nodes in one thread that all hear the network, as in the published experiment of `toroni-bench fanout`: each by
//! a socket of its own, or all of them by the bus of a node that this thread also runs.
//!
//! Messages of 16 bytes come one at a time at equal intervals. Sender and receiving thread poll. A latency runs from just
//! before a message is handed over until a subscriber has it, in its turn.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use toroni::{BusConfig, Subscriber};
use toroni_bench_harness::clock::now_ns;
use toroni_bench_harness::experiment::fanout::{Line, PUBLISHED, Profile, micros, profile_table};
use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::{Failure, machine};
use toroni_net::direct::Direct;
use toroni_net::host::interface;
use toroni_net::node::{Event, Node};
use toroni_net::socket::{Datagram, Options};
use toroni_proto::arrivals;
use toroni_proto::config::Config;
use toroni_testkit::Directory;
use toroni_testkit::network::{Host, Network};

use super::Length;
use super::rig::{self, GROUP, TOPIC};

/// From one message to the next: longer than 20 sockets take.
const INTERVAL: Duration = Duration::from_micros(100);
const MESSAGE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the last messages may take.
const LAST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Node,
    Sockets,
}

const WAYS: [(Way, &str, &str); 2] =
    [(Way::Node, "node", "through one node"), (Way::Sockets, "sockets", "a multicast socket each")];

/// The end that sends.
enum Sending {
    Protocol(Box<Direct>),
    Plain(UdpSocket),
}

impl Sending {
    fn open(host: &Host, way: Way) -> Result<Self, Failure> {
        if way == Way::Node {
            let direct = rig::open(host, 0, Some(&config()), None)?;
            return Ok(Self::Protocol(Box::new(direct)));
        }
        let open = || {
            let socket = UdpSocket::bind((host.address(), 0))?;
            socket.connect(GROUP)?;
            Ok(socket)
        };
        host.enter(open)
            .map(Self::Plain)
            .map_err(|error: std::io::Error| Failure::of("open a socket")(error))
    }

    /// Sends messages for the time `each`, and returns their number.
    fn run(&mut self, each: Duration) -> Result<u64, Failure> {
        let (begin, mut number) = (Instant::now(), 0_u64);
        let mut due = begin + INTERVAL;
        while begin.elapsed() < each {
            while Instant::now() < due {
                self.turn()?;
            }
            let mut bytes = [0; MESSAGE];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            bytes[8..].copy_from_slice(&now_ns().to_le_bytes());
            match self {
                Self::Protocol(direct) => {
                    direct.send(TOPIC, &bytes).map_err(Failure::of("send"))?
                }
                Self::Plain(socket) => {
                    socket.send(&bytes).map(drop).map_err(Failure::of("send"))?
                }
            }
            number += 1;
            // A late sender does not catch up: messages in a row would wait for each other.
            due = (due + INTERVAL).max(Instant::now());
        }
        Ok(number)
    }

    fn turn(&mut self) -> Result<(), Failure> {
        match self {
            Self::Protocol(direct) => direct.turn().map_err(Failure::of("send")),
            Self::Plain(_) => {
                std::hint::spin_loop();
                Ok(())
            }
        }
    }
}

/// All subscribers, in the order in which they are served.
enum Serving {
    Node { node: Box<Node>, subscribers: Vec<Subscriber>, _directory: Directory },
    Sockets(Vec<UdpSocket>),
}

impl Serving {
    fn open(host: &Host, way: Way, count: u16) -> Result<Self, Failure> {
        host.enter(|| if way == Way::Node { Self::node(count) } else { Self::sockets(count) })
    }

    fn node(count: u16) -> Result<Self, Failure> {
        let directory = Directory::new();
        let bus = BusConfig::new().directory(directory.path()).capacity(4 << 20).prefault(true);
        let bus = bus.create("fanout").map_err(Failure::of("create a bus"))?;
        let subscribe = |_| bus.subscribe(TOPIC).map_err(Failure::of("subscribe"));
        let subscribers = (0..count).map(subscribe).collect::<Result<_, _>>()?;
        let settings = rig::receiving(rig::settings(1)?, &config());
        let node = Node::new(&bus, &settings).map_err(Failure::of("start a node"))?;
        Ok(Self::Node { node: Box::new(node), subscribers, _directory: directory })
    }

    fn sockets(count: u16) -> Result<Self, Failure> {
        let eth0 = interface::named("eth0").map_err(Failure::of("find eth0"))?;
        let group = GROUP.parse().map_err(Failure::of("read the group"))?;
        let open = |_| {
            let socket = Datagram::group(group, &eth0, &Options::default());
            let socket = socket.map_err(Failure::of("open a socket"))?;
            let descriptor = socket.as_fd().try_clone_to_owned();
            descriptor.map(UdpSocket::from).map_err(Failure::of("open a socket"))
        };
        (0..count).map(open).collect::<Result<_, _>>().map(Self::Sockets)
    }

    /// Whether what is sent from now on is heard.
    fn has_joined(&mut self) -> Result<bool, Failure> {
        let Self::Node { node, .. } = self else { return Ok(true) };
        node.turn().map_err(Failure::of("receive"))?;
        Ok(matches!(node.event(), Some(Event::Arrivals(arrivals::Event::Joined(_)))))
    }

    /// Gives each subscriber its next message, if it has come.
    fn round(&mut self, mut take: impl FnMut(usize, &[u8])) -> Result<(), Failure> {
        match self {
            Self::Node { node, subscribers, .. } => {
                node.turn().map_err(Failure::of("receive"))?;
                for (at, subscriber) in subscribers.iter_mut().enumerate() {
                    if let Some(message) =
                        subscriber.try_receive().map_err(Failure::of("receive"))?
                    {
                        take(at, message.payload());
                    }
                }
            }
            Self::Sockets(sockets) => {
                let mut buffer = [0; MESSAGE + 1];
                for (at, socket) in sockets.iter().enumerate() {
                    match socket.recv(&mut buffer) {
                        Ok(length) => take(at, &buffer[..length]),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(Failure::of("receive")(error)),
                    }
                }
            }
        }
        Ok(())
    }
}

fn config() -> Config {
    Config::with_rate(1_000_000_000)
}

/// The latencies of the first and of the last subscriber, and how many messages did not come, or in another order.
struct Measured {
    first: Profile,
    last: Profile,
    wrong: u64,
}

fn run(network: &Network, way: Way, count: u16, each: Duration) -> Result<Measured, Failure> {
    let [from, to] = &network.hosts[..] else { return Err(Failure::new("two hosts are needed")) };
    let (mut sending, mut serving) = (Sending::open(from, way)?, Serving::open(to, way, count)?);
    let begin = Instant::now();
    while !serving.has_joined()? {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("the node hears nothing"));
        }
        sending.turn()?;
    }
    let is_over = AtomicBool::new(false);
    let (sent, mut served) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let receiving = scope.spawn(move || serve(serving, count, each, is_over));
        let sent = sending.run(each);
        // A node may still miss one of the last.
        let end = Instant::now();
        while end.elapsed() < LAST / 20 {
            sending.turn()?;
        }
        is_over.store(true, Ordering::Relaxed);
        let served = receiving.join().map_err(|_| Failure::new("a thread panicked"))??;
        Ok::<_, Failure>((sent?, served))
    })?;
    let wrong = served.iter().map(|one| one.wrong + sent.abs_diff(one.next)).sum();
    let mut profile = |at: usize| {
        let samples = served.get_mut(at).map(|one| &mut one.samples_ns[..]);
        samples.and_then(Profile::of).ok_or_else(|| Failure::new("a subscriber got nothing"))
    };
    let first = profile(0)?;
    let last = if count == 1 { first.clone() } else { profile(usize::from(count) - 1)? };
    Ok(Measured { first, last, wrong })
}

/// What one subscriber has seen.
#[derive(Default)]
struct Seen {
    next: u64,
    wrong: u64,
    /// Only of the first and the last one, to disturb little.
    samples_ns: Vec<u64>,
}

fn serve(
    mut serving: Serving,
    count: u16,
    each: Duration,
    is_over: &AtomicBool,
) -> Result<Vec<Seen>, Failure> {
    let mut all: Vec<Seen> = (0..count).map(|_| Seen::default()).collect();
    let last = usize::from(count) - 1;
    for at in [0, last] {
        // Touched now: the first touch of a page costs microseconds.
        let most = each.as_nanos() / INTERVAL.as_nanos() + 1;
        all[at].samples_ns = vec![1; usize::try_from(most).unwrap_or(0)];
        all[at].samples_ns.clear();
    }
    while !is_over.load(Ordering::Relaxed) {
        serving.round(|at, message| {
            let seen = &mut all[at];
            let word = |from: usize| {
                message
                    .get(from..)
                    .and_then(|rest| rest.first_chunk())
                    .map(|b| u64::from_le_bytes(*b))
            };
            let (Some(number), Some(time)) = (word(0), word(8)) else {
                seen.wrong += 1;
                return;
            };
            if at == 0 || at == last {
                seen.samples_ns.push(now_ns().saturating_sub(time));
            }
            seen.wrong += number.abs_diff(seen.next);
            seen.next = number + 1;
        })?;
    }
    Ok(all)
}

/// Measures both ways and all numbers in turn.
pub(super) fn report(length: &Length) -> Result<Report, Failure> {
    let network = rig::bridged(2)?;
    let counts = PUBLISHED.map(|(count, ..)| count);
    let mut runs = WAYS.map(|_| counts.map(|_| Vec::new()));
    for _ in 0..length.repetitions {
        for (row, count) in counts.into_iter().enumerate() {
            for (way, runs) in WAYS.into_iter().zip(&mut runs) {
                runs[row].push(run(&network, way.0, count, length.each)?);
            }
        }
    }
    let profiles = runs.each_ref().map(|rows| {
        rows.each_ref().map(|runs| {
            let of = |pick: fn(&Measured) -> &Profile| {
                let all: Vec<Profile> = runs.iter().map(|run| pick(run).clone()).collect();
                Profile::median(&all).expect("at least one repetition")
            };
            [of(|run| &run.first), of(|run| &run.last)]
        })
    });
    let slope = |way: usize| {
        let points = counts.iter().zip(&profiles[way]);
        let points: Vec<(f64, f64)> =
            points.map(|(count, [_, last])| (f64::from(*count), last.judged_us())).collect();
        Line::through(&points).map_or(0.0, |line| line.each)
    };
    let mut report = Report {
        name: "net-fanout".to_owned(),
        title: "Several subscribers in one thread, from the network".to_owned(),
        conditions: machine::describe(),
        tables: vec![summary(&counts, &profiles, [slope(0), slope(1)])],
        ..Report::default()
    };
    for ((_, name, label), rows) in WAYS.into_iter().zip(&profiles) {
        for (which, at) in [("first", 0), ("last", 1)] {
            let rows = counts.into_iter().zip(rows).map(|(count, row)| (count, &row[at]));
            let title = format!("{label}: latency of the {which} subscriber");
            report.tables.push(profile_table(&format!("{name}-{which}"), &title, rows));
        }
    }
    let goal = |what: &str, bound: f64, measured: f64| Goal {
        what: what.to_owned(),
        unit: "µs".to_owned(),
        reference: None,
        bound: Bound::AtMost(bound),
        measured,
    };
    let bare = profiles[1][0][0].judged_us();
    report.goals = vec![
        goal("each further subscriber, through a node", 0.03, slope(0)),
        Goal {
            reference: Some((bare, "one bare socket".to_owned())),
            ..goal("one subscriber, through a node", bare + 1.0, profiles[0][0][0].judged_us())
        },
    ];
    report.condition("hosts", "network namespaces, joined by a bridge of the kernel");
    report.condition(
        "messages",
        format!("{MESSAGE} bytes, one every {} µs; the sender polls too", INTERVAL.as_micros()),
    );
    report.condition("repetitions", format!("{}, all in turn in each", length.repetitions));
    let wrong = runs.each_ref().map(|rows| rows.iter().flatten().map(|run| run.wrong).sum::<u64>());
    report.notes.push(format!(
        "Lost or out of order: {} through a node, {} with sockets.",
        wrong[0], wrong[1]
    ));
    Ok(report)
}

fn summary<const N: usize>(
    counts: &[u16; N],
    profiles: &[[[Profile; 2]; N]; 2],
    slopes: [f64; 2],
) -> Table {
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    for (row, count) in counts.iter().enumerate() {
        let cells = profiles.iter().flat_map(|rows| &rows[row]);
        rows.push((count.to_string(), cells.map(|it| micros(it.judged_us() * 1e3)).collect()));
    }
    let cells = slopes.into_iter().flat_map(|each| [Cell::none(), micros(each * 1e3)]);
    rows.push(("each more".to_owned(), cells.collect()));
    Table {
        name: "fastest".to_owned(),
        title: "mean latency of the fastest 90 % of the messages, µs".to_owned(),
        unit: "µs".to_owned(),
        corner: "subscribers".to_owned(),
        columns: WAYS
            .iter()
            .flat_map(|(_, name, _)| [format!("{name} first"), format!("{name} last")])
            .collect(),
        rows,
        definitions: WAYS
            .iter()
            .map(|(_, name, label)| ((*name).to_owned(), (*label).to_owned()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_show_every_row() {
        let text = include_str!("../../../../docs/performance.md");
        let (_, rest) = text.split_once("**Fan-out from the network**").unwrap();
        let (table, _) = rest.split_once("| each further one").unwrap();
        let count = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse::<u16>().ok();
        let shown: Vec<u16> = table.lines().filter_map(count).collect();
        assert_eq!(shown, PUBLISHED.map(|(count, ..)| count));
    }
}
