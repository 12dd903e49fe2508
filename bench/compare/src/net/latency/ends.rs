//! Both ends of a conversation without a bus: plain datagrams, and the protocol in a program.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use toroni_bench_harness::Failure;
use toroni_net::direct::{Direct, Received};
use toroni_testkit::network::{Host, Network};

use super::super::rig::{self, GROUP, TOPIC};
use super::{LONGEST_WAIT, PATIENCE, Wait, config, two_hosts};

/// One end of a conversation.
pub(super) trait End: Send {
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
            socket.set_read_timeout((wait == Wait::Blocking).then_some(LONGEST_WAIT))?;
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
            Wait::Blocking => self.direct.receive(LONGEST_WAIT),
        };
        match received.map_err(Failure::of("receive"))? {
            None => Ok(false),
            Some(Received::Message { .. }) => Ok(true),
            Some(Received::Lost { loss, .. }) => Err(Failure::new(format!("a loss: {loss:?}"))),
        }
    }
}

/// Opens both ends.
pub(super) fn plain(network: &Network, wait: Wait) -> Result<[Box<dyn End>; 2], Failure> {
    let [near, far] = two_hosts(network)?;
    let ports = [4_479, 4_480];
    let [one, other] =
        [Plain::open(near, wait, ports)?, Plain::open(far, wait, [ports[1], ports[0]])?];
    Ok([Box::new(one), Box::new(other)])
}

/// Opens both ends, and waits until they hear each other.
pub(super) fn protocol(network: &Network, wait: Wait) -> Result<[Box<dyn End>; 2], Failure> {
    let [near, far] = two_hosts(network)?;
    let config = config();
    let mut ends = [
        rig::open(near, 0, Some(&config), Some(&config))?,
        rig::open(far, 1, Some(&config), Some(&config))?,
    ];
    let begin = Instant::now();
    while ends.iter().any(|end| end.streams() == 0) {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("the ends hear nothing"));
        }
        for end in &mut ends {
            end.turn().map_err(Failure::of("meet"))?;
        }
    }
    let [one, other] = ends.map(|direct| Protocol { direct, wait });
    Ok([Box::new(one), Box::new(other)])
}
