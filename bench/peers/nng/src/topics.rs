//! NNG with topics: one PUB, and a SUB in each subscriber, over `ipc://`.
//!
//! A subscription is a prefix of a message. Only subscribers know theirs: each message is sent to all of them, and those that do
//! not want it drop it. A PUB also drops what a subscriber is too slow for, so its buffers are as long as NNG allows.

use std::ops::ControlFlow;

use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::topics::{self, Crowd, LONGEST_SILENCE, PARTS, Topics};
use toroni_bench_harness::transport::{About, Guarantees};

use crate::Nng;
use crate::socket::{self, Message, Outcome, Protocol, Socket};

/// Messages in each buffer.
const BUFFERED: u16 = 8192;

pub(crate) struct Publisher {
    socket: Socket,
    topics: [String; 2],
}

pub(crate) struct Subscriber {
    socket: Socket,
    topics: [String; 2],
}

impl Topics for Nng {
    const NAME: &'static str = "nng";
    type Host = ();
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn about(_: &Crowd) -> About {
        About {
            version: format!("nng {}", socket::version()),
            settings: format!(
                "ipc, PUB/SUB, {} task thread; prefixes, filtered by each subscriber",
                socket::TASK_THREADS
            ),
            guarantees: Guarantees { lossless: false, total_order: true, in_place: false },
        }
    }

    fn host(_: &RunDirectory, _: &Crowd) -> Result<(), Failure> {
        Ok(())
    }

    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<Publisher, Failure> {
        let socket = Socket::open(Protocol::Pub)?;
        socket.set_send_buffer(BUFFERED)?;
        socket.listen(&url(directory))?;
        socket.wait_for_peers(crowd.subscribers.into());
        Ok(Publisher { socket, topics: crowd.published().map(topics::with_end) })
    }

    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<Subscriber, Failure> {
        let socket = Socket::open(Protocol::Sub)?;
        socket.set_receive_buffer(BUFFERED)?;
        socket.set_longest_wait(LONGEST_SILENCE)?;
        let topics = crowd.topics_of(index).map(topics::with_end);
        topics.iter().try_for_each(|topic| socket.subscribe(topic.as_bytes()))?;
        socket.dial(&url(directory))?;
        socket.wait_for_peers(1);
        Ok(Subscriber { socket, topics })
    }
}

fn url(directory: &RunDirectory) -> String {
    format!("ipc://{}/nng-topics", directory.path.display())
}

impl topics::Publisher for Publisher {
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure> {
        let topic = self.topics[topic].as_bytes();
        let mut message = Message::of(topic.len() + payload.len())?;
        let (front, back) = message.bytes().split_at_mut(topic.len());
        front.copy_from_slice(topic);
        back.copy_from_slice(payload);
        match self.socket.send(message, true)? {
            Outcome::Done(()) => Ok(()),
            Outcome::Full(_) => Err(Failure::new("cannot publish: no space")),
        }
    }
}

impl topics::Subscriber for Subscriber {
    fn receive(self, mut each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure> {
        loop {
            let Some(mut message) = self.socket.receive(true)? else {
                return Err(topics::silence());
            };
            let is_part = message.bytes().starts_with(self.topics[PARTS].as_bytes());
            if each(usize::from(is_part)).is_break() {
                return Ok(());
            }
        }
    }
}

toroni_bench_harness::topics_conformance!(Nng);
