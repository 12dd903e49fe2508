//! Zenoh with topics: one peer publishes, and a peer in each subscriber declares a subscriber for each of its key expressions.
//!
//! A publisher knows the key expressions of all peers, so a message is sent only to those that want it.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::topics::{self, Crowd, LONGEST_SILENCE, Topics};
use toroni_bench_harness::transport::{About, Guarantees};
use zenoh::liveliness::LivelinessToken;
use zenoh::{Session, Wait as _};

use crate::{Sweep, Zenoh, declare_publisher, declare_token, endpoints, open, wait_for_tokens};

pub(crate) struct Publisher {
    publishers: [zenoh::pubsub::Publisher<'static>; 2],
    _session: Session,
}

pub(crate) struct Subscriber {
    topics: Receiver<usize>,
    _subscribers: [zenoh::pubsub::Subscriber<()>; 2],
    _alive: LivelinessToken,
    _session: Session,
}

impl Topics for Zenoh {
    const NAME: &'static str = "zenoh";
    type Host = Sweep;
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn about(_: &Crowd) -> About {
        About {
            version: concat!("zenoh ", env!("ZENOH_VERSION")).to_owned(),
            settings: "peers over unixsock-stream, Block, Reliable; key expressions, filtered by the publisher"
                .to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(_: &RunDirectory, _: &Crowd) -> Result<Sweep, Failure> {
        Ok(Sweep)
    }

    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<Publisher, Failure> {
        let session = open(&[("listen/endpoints", endpoints(directory, 0..1))])?;
        let [messages, parts] = crowd.published();
        let publishers =
            [declare_publisher(&session, messages)?, declare_publisher(&session, parts)?];
        wait_for_tokens(&session, crowd.subscribers)?;
        Ok(Publisher { publishers, _session: session })
    }

    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<Subscriber, Failure> {
        let session = open(&[("connect/endpoints", endpoints(directory, 0..1))])?;
        let (sender, topics) = channel();
        let subscriber = |number, topic: String| {
            let sender = sender.clone();
            session
                .declare_subscriber(topic)
                // The receiver of the channel has left when the run ends.
                .callback(move |_| {
                    let _ = sender.send(number);
                })
                .wait()
                .map_err(Failure::of("declare a subscriber"))
        };
        let [messages, parts] = crowd.topics_of(index);
        let subscribers =
            [subscriber(topics::MESSAGES, messages)?, subscriber(topics::PARTS, parts)?];
        Ok(Subscriber {
            topics,
            _subscribers: subscribers,
            _alive: declare_token(&session, index)?,
            _session: session,
        })
    }
}

impl topics::Publisher for Publisher {
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure> {
        self.publishers[topic].put(payload).wait().map_err(Failure::of("put"))
    }
}

impl topics::Subscriber for Subscriber {
    fn receive(self, mut each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure> {
        loop {
            match self.topics.recv_timeout(LONGEST_SILENCE) {
                Ok(topic) if each(topic).is_break() => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err(topics::silence()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("the session ended"));
                }
            }
        }
    }
}

toroni_bench_harness::topics_conformance!(Zenoh);
