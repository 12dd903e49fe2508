//! One way between two hosts: half of a message and its answer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use toroni_bench_harness::report::{Bound, Cell, Goal, Report, Table};
use toroni_bench_harness::summary::{Latencies, Summary};
use toroni_bench_harness::{Failure, machine};
use toroni_net::direct::{Direct, Received};
use toroni_proto::config::Config;
use toroni_testkit::network::{Host, Network};

use super::Length;
use super::rig::{self, GROUP, TOPIC};

const SIZES: [usize; 2] = [16, 1_024];
/// Waking a process on another core, as `toroni-bench floors` measured it, is part of the goal of blocking ends.
const WAKES: f64 = 2.0;
/// No answer takes so long, unless a plain datagram was lost.
const LOST: Duration = Duration::from_secs(1);

/// How an end waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Busy,
    Blocking,
}

/// One end of a conversation.
trait End: Send {
    /// Sends a message to the other end.
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure>;
    /// Receives one, if it comes within some milliseconds; when busy, at once.
    fn receive(&mut self) -> Result<bool, Failure>;
}

/// Plain datagrams to the group.
struct Plain {
    socket: UdpSocket,
    group: SocketAddr,
}

impl Plain {
    /// Each end has a group port of its own, so that none hears itself.
    fn open(host: &Host, wait: Wait, [own, other]: [u16; 2]) -> Result<Self, Failure> {
        let failed = Failure::of("open a plain socket");
        host.enter(|| {
            let group: SocketAddr = GROUP.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, own))?;
            if let SocketAddr::V4(address) = group {
                socket.join_multicast_v4(address.ip(), &host.address())?;
            }
            socket.set_multicast_loop_v4(false)?;
            socket.set_nonblocking(wait == Wait::Busy)?;
            socket
                .set_read_timeout((wait == Wait::Blocking).then_some(Duration::from_millis(50)))?;
            Ok(Self { socket, group: SocketAddr::new(group.ip(), other) })
        })
        .map_err(|error: io::Error| failed(error))
    }
}

impl End for Plain {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.socket.send_to(payload, self.group).map_err(Failure::of("send")).map(drop)
    }

    fn receive(&mut self) -> Result<bool, Failure> {
        let mut buffer = [0; 2_048];
        match self.socket.recv(&mut buffer) {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(Failure::of("receive")(error)),
        }
    }
}

/// Our protocol, without a bus.
struct Protocol {
    direct: Direct,
    wait: Wait,
}

impl End for Protocol {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.direct.send(TOPIC, payload).map_err(Failure::of("send"))
    }

    fn receive(&mut self) -> Result<bool, Failure> {
        let received = match self.wait {
            Wait::Busy => self.direct.try_receive(),
            Wait::Blocking => self.direct.receive(Duration::from_millis(50)),
        };
        match received.map_err(Failure::of("receive"))? {
            None => Ok(false),
            Some(Received::Message { .. }) => Ok(true),
            Some(Received::Lost { loss, .. }) => Err(Failure::new(format!("a loss: {loss:?}"))),
        }
    }
}

/// Opens both ends.
fn plain(network: &Network, wait: Wait) -> Result<[Box<dyn End>; 2], Failure> {
    let [near, far] = &network.hosts[..] else { return Err(Failure::new("two hosts are needed")) };
    let ports = [4_479, 4_480];
    let [one, other] =
        [Plain::open(near, wait, ports)?, Plain::open(far, wait, [ports[1], ports[0]])?];
    Ok([Box::new(one), Box::new(other)])
}

fn protocol(network: &Network, wait: Wait) -> Result<[Box<dyn End>; 2], Failure> {
    let [near, far] = &network.hosts[..] else { return Err(Failure::new("two hosts are needed")) };
    let config = Config::with_rate(1_000_000_000);
    let mut ends = [
        rig::open(near, 0, Some(&config), Some(&config))?,
        rig::open(far, 1, Some(&config), Some(&config))?,
    ];
    let begin = Instant::now();
    while ends.iter().any(|end| end.streams() == 0) {
        if begin.elapsed() > Duration::from_secs(20) {
            return Err(Failure::new("the ends hear nothing"));
        }
        for end in &mut ends {
            end.turn().map_err(Failure::of("meet"))?;
        }
    }
    let [one, other] = ends.map(|direct| Protocol { direct, wait });
    Ok([Box::new(one), Box::new(other)])
}

/// Returns half of the time of a message and its answer, in nanoseconds.
fn converse(ends: [Box<dyn End>; 2], bytes: usize, each: Duration) -> Result<Latencies, Failure> {
    let [mut asks, mut answers] = ends;
    let (payload, is_over) = (vec![7; bytes], AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (payload, is_over) = (&payload[..], &is_over);
        let answering = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if answers.receive()? {
                    answers.send(payload)?;
                }
            }
            Ok::<_, Failure>(())
        });
        let outcome = ask(asks.as_mut(), payload, each);
        is_over.store(true, Ordering::Relaxed);
        answering.join().map_err(|_| Failure::new("an end panicked"))??;
        outcome
    })
}

fn ask(asks: &mut dyn End, payload: &[u8], each: Duration) -> Result<Latencies, Failure> {
    let (mut latencies, begin) = (Latencies::new()?, Instant::now());
    while begin.elapsed() < each {
        let sent = Instant::now();
        asks.send(payload)?;
        while !asks.receive()? {
            if sent.elapsed() > LOST {
                return Err(Failure::new("no answer came within a second"));
            }
        }
        // The first tenth is for caches and branches.
        if begin.elapsed() > each / 10 {
            latencies.record(u64::try_from(sent.elapsed().as_nanos() / 2).unwrap_or(u64::MAX));
        }
    }
    Ok(latencies)
}

/// Measures all of it.
pub(super) fn report(length: &Length) -> Result<Report, Failure> {
    let network = rig::bridged(2)?;
    let wake_us = 25.0;
    let mut tables = Vec::new();
    let mut goals = Vec::new();
    for (wait, name) in [(Wait::Busy, "busy"), (Wait::Blocking, "blocking")] {
        let mut table = Table {
            name: name.to_owned(),
            title: format!("one way, {name}, in µs: median of the repetitions"),
            corner: "bytes".to_owned(),
            columns: ["plain p50", "plain p99", "Toroni p50", "Toroni p99", "p50, ratio"]
                .map(str::to_owned)
                .to_vec(),
            ..Table::default()
        };
        for bytes in SIZES {
            let mut columns: [Vec<f64>; 5] = Default::default();
            for _ in 0..length.repetitions {
                let latencies = [
                    converse(plain(&network, wait)?, bytes, length.each)?,
                    converse(protocol(&network, wait)?, bytes, length.each)?,
                ];
                let us = |at: usize, quantile| latencies[at].quantile_ns(quantile) as f64 / 1e3;
                let values =
                    [us(0, 0.5), us(0, 0.99), us(1, 0.5), us(1, 0.99), us(1, 0.5) / us(0, 0.5)];
                columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
            }
            let summaries: Vec<Summary> =
                columns.iter().filter_map(|column| Summary::of(column)).collect();
            let [plain, _, ours, ..] = summaries[..] else { continue };
            let most = match wait {
                Wait::Busy => 1.5 * plain.median + 1.0,
                Wait::Blocking => plain.median + WAKES * wake_us,
            };
            goals.push(Goal {
                what: format!("{bytes} B, {name}"),
                unit: "µs".to_owned(),
                reference: Some((plain.median, "plain datagrams".to_owned())),
                bound: Bound::AtMost(most),
                measured: ours.median,
            });
            table.rows.push((bytes.to_string(), summaries.into_iter().map(Cell::median).collect()));
        }
        tables.push(table);
    }
    let mut report = Report {
        name: "net-latency".to_owned(),
        title: "One way between two hosts".to_owned(),
        conditions: machine::describe(),
        tables,
        goals,
        ..Report::default()
    };
    report.condition("hosts", "network namespaces, joined by a bridge of the kernel");
    report.condition("repetitions", format!("{}, both in turn in each", length.repetitions));
    Ok(report)
}
