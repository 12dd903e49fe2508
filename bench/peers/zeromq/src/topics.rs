//! ZeroMQ with topics: one XPUB, which is a PUB that sees its subscriptions, and a SUB in each subscriber, over `ipc://`.
//!
//! A subscription is a prefix of a message. Publishers keep those of all subscribers, so a message is sent only to those that want
//! it.

use std::ops::ControlFlow;

use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::topics::{self, Crowd, LONGEST_SILENCE, PARTS, Topics};
use toroni_bench_harness::transport::{About, Guarantees};
use zmq::{Context, Message, Socket, SocketType};

use crate::{ZeroMq, endpoint, set_nodrop};

pub(crate) struct Publisher {
    socket: Socket,
    topics: [String; 2],
    buffer: Vec<u8>,
    _context: Context,
}

pub(crate) struct Subscriber {
    socket: Socket,
    topics: [String; 2],
    _context: Context,
}

impl Topics for ZeroMq {
    const NAME: &'static str = "zeromq";
    type Host = ();
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn about(_: &Crowd) -> About {
        let (major, minor, patch) = zmq::version();
        About {
            version: format!("libzmq {major}.{minor}.{patch}"),
            settings: "ipc, XPUB/SUB; prefixes, filtered by the publisher".to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(_: &RunDirectory, _: &Crowd) -> Result<(), Failure> {
        Ok(())
    }

    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<Publisher, Failure> {
        let context = Context::new();
        let mut socket = context.socket(SocketType::XPUB).map_err(Failure::of("make a socket"))?;
        set_nodrop(&mut socket)?;
        socket.set_xpub_verbose(true).map_err(Failure::of("see all subscriptions"))?;
        let endpoint = endpoint(directory, 0);
        socket.bind(&endpoint).map_err(Failure::of(format!("bind {endpoint}")))?;
        // One message comes for each subscription; each subscriber has two.
        for _ in 0..2 * u32::from(crowd.subscribers) {
            socket.recv_bytes(0).map_err(Failure::of("wait for the subscribers"))?;
        }
        Ok(Publisher {
            socket,
            topics: crowd.published().map(topics::with_end),
            buffer: Vec::new(),
            _context: context,
        })
    }

    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<Subscriber, Failure> {
        let context = Context::new();
        let socket = context.socket(SocketType::SUB).map_err(Failure::of("make a socket"))?;
        let topics = crowd.topics_of(index).map(topics::with_end);
        for topic in &topics {
            socket.set_subscribe(topic.as_bytes()).map_err(Failure::of("subscribe"))?;
        }
        let patience = i32::try_from(LONGEST_SILENCE.as_millis()).unwrap_or(-1);
        socket.set_rcvtimeo(patience).map_err(Failure::of("set the longest silence"))?;
        socket.set_reconnect_ivl(5).map_err(Failure::of("set the interval of reconnects"))?;
        let endpoint = endpoint(directory, 0);
        socket.connect(&endpoint).map_err(Failure::of(format!("connect to {endpoint}")))?;
        Ok(Subscriber { socket, topics, _context: context })
    }
}

impl topics::Publisher for Publisher {
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure> {
        self.buffer.clear();
        self.buffer.extend_from_slice(self.topics[topic].as_bytes());
        self.buffer.extend_from_slice(payload);
        self.socket.send(&self.buffer[..], 0).map_err(Failure::of("publish"))
    }
}

impl topics::Subscriber for Subscriber {
    fn receive(self, mut each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure> {
        let mut message = Message::new();
        loop {
            match self.socket.recv(&mut message, 0) {
                Ok(()) => {}
                Err(zmq::Error::EAGAIN) => return Err(topics::silence()),
                Err(error) => return Err(Failure::of("receive")(error)),
            }
            if each(usize::from(message.starts_with(self.topics[PARTS].as_bytes()))).is_break() {
                return Ok(());
            }
        }
    }
}

toroni_bench_harness::topics_conformance!(ZeroMq);
