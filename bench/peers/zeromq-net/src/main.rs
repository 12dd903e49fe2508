//! ZeroMQ (Debian's libzmq) from host to host by multicast: `norm://` and `epgm://`.
//!
//! Both repair what is lost. PGM has a rate that people set (`ZMQ_RATE`), and does not know what a receiver can take: one that
//! is too high loses messages. NORM adapts its rate, but with libzmq 4.3.4 the sender stands still after some thousand
//! messages; its report then says so.

mod zmq;

use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{About, Guarantees, Receiver, Sender, Setup, Transport};
use toroni_bench_harness::{Failure, child, registry};
use zmq::Socket;

fn main() -> ExitCode {
    let outcome = child::run(|child| match child.job().transport.as_str() {
        Norm::NAME => registry::perform::<Norm>(child),
        Epgm::NAME => registry::perform::<Epgm>(child),
        unknown => Err(Failure::new(format!("this program does not know {unknown:?}"))),
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A protocol.
struct Protocol {
    /// In libzmq.
    name: &'static CStr,
    /// Names the endpoint of a host, by its address.
    endpoint: fn(Ipv4Addr) -> String,
}

const NORM: Protocol =
    Protocol { name: c"norm", endpoint: |_| "norm://eth0;239.192.84.79:4479".to_owned() };
const EPGM: Protocol =
    Protocol { name: c"pgm", endpoint: |address| format!("epgm://{address};239.192.84.79:4479") };

/// In kbit/s.
const RATE: i32 = 1_000_000;

/// The address of a host of the benchmark; the first one sends.
fn address(host: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))
}

struct Norm;
struct Epgm;

/// A message without content: it only shows that the ends have met.
const HELLO: &[u8] = b"";
/// Nothing takes this long, unless messages were lost.
const PATIENCE: Duration = Duration::from_secs(5);
const BUFFER_BYTES: i32 = 2 << 20;

macro_rules! transport {
    ($type:ty, $name:literal, $protocol:expr) => {
        impl Transport for $type {
            const NAME: &'static str = $name;
            type Host = ();
            type Sender = Sending;
            type Receiver = Receiving;

            fn about(_: &Setup) -> About {
                about(&$protocol)
            }

            fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
                Ok(())
            }

            fn sender(_: &RunDirectory, _: &Setup, _: u16) -> Result<Sending, Failure> {
                Sending::open(&$protocol)
            }

            fn receiver(_: &RunDirectory, setup: &Setup, index: u16) -> Result<Receiving, Failure> {
                Receiving::open(&$protocol, setup, index)
            }
        }
    };
}
transport!(Norm, "zeromq-norm", NORM);
transport!(Epgm, "zeromq-epgm", EPGM);

fn about(protocol: &Protocol) -> About {
    About {
        version: zmq::version(),
        settings: format!(
            "{}, PUB/SUB with XPUB_NODROP, one I/O thread each, ZMQ_RATE {} Mbit/s",
            (protocol.endpoint)(address(0)),
            RATE / 1_000
        ),
        guarantees: Guarantees { lossless: false, total_order: true, in_place: false },
    }
}

fn open(protocol: &Protocol, kind: i32) -> Result<Socket, Failure> {
    if !zmq::has(protocol.name) {
        let name = protocol.name.to_string_lossy();
        return Err(Failure::new(format!("this libzmq was built without {name}")));
    }
    let socket = Socket::new(kind)?;
    for (option, value) in [
        (zmq::RATE, RATE),
        (zmq::RECOVERY_IVL, 100),
        (zmq::SNDBUF, BUFFER_BYTES),
        (zmq::RCVBUF, BUFFER_BYTES),
    ] {
        socket.set(option, value)?;
    }
    Ok(socket)
}

struct Sending {
    socket: Socket,
}

impl Sending {
    fn open(protocol: &Protocol) -> Result<Self, Failure> {
        let socket = open(protocol, zmq::PUB)?;
        socket.set(zmq::SNDHWM, 4_096)?;
        socket.set(zmq::XPUB_NODROP, 1)?;
        socket.attach(true, &(protocol.endpoint)(address(0)))?;
        // There is no way back from receivers to a publisher. They hear the first of these that comes.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(500) {
            socket.send(HELLO)?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { socket })
    }
}

impl Sender for Sending {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.socket.send(payload)
    }

    /// What waits in this process leaves at the rate of the protocol, and may have to be repeated.
    fn flush(&mut self) -> Result<(), Failure> {
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }
}

struct Receiving {
    socket: Socket,
    message: Vec<u8>,
}

impl Receiving {
    fn open(protocol: &Protocol, setup: &Setup, index: u16) -> Result<Self, Failure> {
        let socket = open(protocol, zmq::SUB)?;
        socket.set(zmq::RCVHWM, 0)?;
        let longest = i32::try_from(PATIENCE.as_millis()).unwrap_or(i32::MAX);
        socket.set(zmq::RCVTIMEO, longest)?;
        socket.subscribe()?;
        socket.attach(false, &(protocol.endpoint)(address(index + 1)))?;
        let mut message = vec![0; setup.message_bytes];
        match socket.receive(&mut message, 0)? {
            Some(_) => Ok(Self { socket, message }),
            None => Err(Failure::new("the sender is not heard")),
        }
    }

    fn receive(&mut self, flags: i32) -> Result<Option<&[u8]>, Failure> {
        let length = self.socket.receive(&mut self.message, flags)?;
        Ok(length.map(|length| &self.message[..length]))
    }
}

/// Messages that one `poll` passes on, at most.
const POLL_LIMIT: usize = 256;

impl Receiver for Receiving {
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let mut count = 0;
        while count < POLL_LIMIT {
            match self.receive(zmq::DONTWAIT)? {
                None => break,
                Some(HELLO) => {}
                Some(message) => {
                    each(message);
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            match self.receive(0)? {
                None => return Err(Failure::new("messages were lost: nothing came for 5 s")),
                Some(HELLO) => {}
                Some(message) => {
                    each(message);
                    return Ok(1);
                }
            }
        }
    }
}
