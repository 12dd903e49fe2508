//! Hosts, senders and receivers.

use std::net::SocketAddr;

use rustix::time::{ClockId, clock_gettime};
use toroni_bench_harness::Failure;
use toroni_net::direct::{Direct, Receive, Send, Settings};
use toroni_net::host::interface;
use toroni_net::membership::Membership;
use toroni_net::socket::Options;
use toroni_proto::config::Config;
use toroni_proto::id::{Realm, Session, Source, Stream};
use toroni_testkit::network::{Host, Network, Setup};

/// The group of all experiments.
pub(super) const GROUP: &str = "239.192.84.79:4479";
/// The topic of all messages.
pub(super) const TOPIC: &str = "bench/net";

/// Joins so many hosts by a bridge of the kernel.
pub(super) fn bridged(hosts: u8) -> Result<Network, Failure> {
    Setup::new(hosts).bridged().ok_or_else(no_network)
}

/// Joins so many hosts by a switch whose faults follow from a seed.
pub(super) fn switched(hosts: u8, seed: u64) -> Result<Network, Failure> {
    Setup::new(hosts).switched(seed).ok_or_else(no_network)
}

fn no_network() -> Failure {
    Failure::new("this needs network namespaces: run it as root")
}

/// Opens a program on a host that sends and receives as asked. Its source is the number of its host plus 1.
pub(super) fn open(
    host: &Host,
    number: u8,
    send: Option<&Config>,
    receive: Option<&Config>,
) -> Result<Direct, Failure> {
    let to: SocketAddr = GROUP.parse().map_err(Failure::of("read the group"))?;
    host.enter(|| {
        let interface = interface::named("eth0").map_err(Failure::of("find eth0"))?;
        let member = Membership {
            realm: Realm::of("bench"),
            keys: None,
            name: format!("host-{number}"),
            source: Source(u32::from(number) + 1),
            session: Session(1),
            instance: [number; 16],
            interfaces: vec![interface],
            sockets: Options { receive_buffer: Some(8 << 20), ..Options::default() },
            claim: None,
        };
        let send = send.map(|config| Send {
            stream: Stream(1),
            patterns: vec!["**".to_owned()],
            config: config.clone(),
            to: vec![to],
        });
        let receive = receive.map(|config| Receive { groups: vec![to], config: config.clone() });
        Direct::open(&Settings { member, send, receive }).map_err(Failure::of("open a socket"))
    })
}

/// How long this thread has run, in nanoseconds.
pub(super) fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
