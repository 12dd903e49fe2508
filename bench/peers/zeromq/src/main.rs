//! ZeroMQ (libzmq) over `ipc://`.
//!
//! - PUSH and PULL for one receiver; XPUB and SUB with `ZMQ_XPUB_NODROP` for several, so that a publisher waits at the
//!   high-water mark instead of dropping. Both lose no message.
//! - Each sender binds an endpoint of its own, and each receiver connects to all of them. There is no order between
//!   messages of different senders.
//! - The batching of libzmq is left as it is. It has no call for several messages.
//! - Ends wait with libzmq's own blocking call, or with `ZMQ_DONTWAIT` and a yield.

mod topics;

use std::process::ExitCode;

use toroni_bench_harness::Failure;
use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Slot, Transport, Wait,
};
use zmq::{Context, Message, Socket, SocketType};

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_both::<ZeroMq>()
}

struct ZeroMq;

/// A bound socket. At the end its context waits until all messages have left this process.
struct Sending {
    socket: Socket,
    busy: bool,
    idle: Idle,
    _context: Context,
}

struct Receiving {
    socket: Socket,
    message: Message,
    busy: bool,
    idle: Idle,
    _context: Context,
}

impl Transport for ZeroMq {
    const NAME: &'static str = "zeromq";
    type Host = ();
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(setup: &Setup) -> About {
        let (major, minor, patch) = zmq::version();
        let pattern = if setup.receivers == 1 { "PUSH/PULL" } else { "XPUB/SUB, XPUB_NODROP" };
        About {
            version: format!("libzmq {major}.{minor}.{patch}"),
            settings: format!(
                "ipc, {pattern}, one I/O thread each, high-water marks of {} messages",
                high_water_mark(setup)
            ),
            guarantees: Guarantees {
                lossless: true,
                total_order: setup.senders == 1,
                in_place: false,
            },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }

    fn sender(directory: &RunDirectory, setup: &Setup, index: u16) -> Result<Sending, Failure> {
        let context = Context::new();
        let kind = if setup.receivers == 1 { SocketType::PUSH } else { SocketType::XPUB };
        let mut socket = context.socket(kind).map_err(Failure::of("make a socket"))?;
        socket.set_sndhwm(high_water_mark(setup)).map_err(Failure::of("set the send mark"))?;
        if setup.receivers > 1 {
            set_nodrop(&mut socket)?;
            // Otherwise only the first subscription to a topic is passed on.
            socket.set_xpub_verbose(true).map_err(Failure::of("see all subscriptions"))?;
        }
        let endpoint = endpoint(directory, index);
        socket.bind(&endpoint).map_err(Failure::of(format!("bind {endpoint}")))?;
        if setup.receivers > 1 {
            // One message comes for each subscription: messages that are sent after the last reach all receivers.
            for _ in 0..setup.receivers {
                socket.recv_bytes(0).map_err(Failure::of("wait for the subscribers"))?;
            }
        }
        let busy = setup.wait == Wait::Busy;
        Ok(Sending { socket, busy, idle: Idle::new(setup), _context: context })
    }

    fn receiver(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Receiving, Failure> {
        let context = Context::new();
        let kind = if setup.receivers == 1 { SocketType::PULL } else { SocketType::SUB };
        let socket = context.socket(kind).map_err(Failure::of("make a socket"))?;
        socket.set_rcvhwm(high_water_mark(setup)).map_err(Failure::of("set the receive mark"))?;
        if setup.receivers > 1 {
            socket.set_subscribe(b"").map_err(Failure::of("subscribe"))?;
        }
        // A connection to a sender that does not exist yet is tried again soon, not after 100 ms.
        socket.set_reconnect_ivl(5).map_err(Failure::of("set the interval of reconnects"))?;
        for sender in 0..setup.senders {
            let endpoint = endpoint(directory, sender);
            socket.connect(&endpoint).map_err(Failure::of(format!("connect to {endpoint}")))?;
        }
        Ok(Receiving {
            socket,
            message: Message::new(),
            busy: setup.wait == Wait::Busy,
            idle: Idle::new(setup),
            _context: context,
        })
    }
}

impl Sender for Sending {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        if !self.busy {
            return self.socket.send(payload, 0).map_err(Failure::of("send"));
        }
        loop {
            match self.socket.send(payload, zmq::DONTWAIT) {
                Ok(()) => {
                    self.idle.reset();
                    return Ok(());
                }
                Err(zmq::Error::EAGAIN) => self.idle.pause(),
                Err(other) => return Err(Failure::of("send")(other)),
            }
        }
    }

    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        // A message is a buffer of libzmq: filled here, it is handed over without another copy.
        let mut message = Message::with_size(length);
        fill(&mut &mut message[..]);
        self.socket.send(message, 0).map_err(Failure::of("send"))
    }
}

/// Messages that one `poll` passes on, at most, so that its caller can do something else.
const POLL_LIMIT: usize = 256;

impl Receiver for Receiving {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        for count in 0..POLL_LIMIT {
            match self.socket.recv(&mut self.message, zmq::DONTWAIT) {
                Ok(()) => each(&self.message),
                Err(zmq::Error::EAGAIN) => return Ok(count),
                Err(other) => return Err(Failure::of("receive")(other)),
            }
        }
        Ok(POLL_LIMIT)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        if !self.busy {
            self.socket.recv(&mut self.message, 0).map_err(Failure::of("receive"))?;
            each(&self.message);
            return Ok(1);
        }
        loop {
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            self.idle.pause();
        }
    }
}

fn endpoint(directory: &RunDirectory, sender: u16) -> String {
    format!("ipc://{}/zeromq-{sender}", directory.path.display())
}

/// Returns the number of messages that fill the bytes that every peer may have in flight, between the default of libzmq and
/// a number that keeps its queues in the cache.
fn high_water_mark(setup: &Setup) -> i32 {
    // libzmq keeps 64 bytes for a message, in which up to 33 bytes of payload fit.
    let bytes = u64::try_from(setup.message_bytes).unwrap_or(u64::MAX).max(64);
    i32::try_from((setup.capacity_bytes / bytes).clamp(64, 65_536)).unwrap_or(i32::MAX)
}

/// The safe binding does not know this option.
fn set_nodrop(socket: &mut Socket) -> Result<(), Failure> {
    let (on, option) = (1_i32, i32::try_from(zmq_sys::ZMQ_XPUB_NODROP).expect("69"));
    // SAFETY: the socket is open, and the value is an int as the option demands.
    let code = unsafe {
        let value = std::ptr::from_ref(&on).cast();
        zmq_sys::zmq_setsockopt(socket.as_mut_ptr(), option, value, size_of::<i32>())
    };
    if code == 0 { Ok(()) } else { Err(Failure::new("libzmq refuses ZMQ_XPUB_NODROP")) }
}

toroni_bench_harness::conformance!(ZeroMq);
