//! Toroni as a channel with topics.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::topics::{self, Crowd, LONGEST_SILENCE, Topics};
use crate::transport::{About, Guarantees};
use crate::transports::Toroni;
use std::ops::ControlFlow;
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};

const BUS: &str = "bystanders";

fn config(directory: &RunDirectory) -> BusConfig {
    BusConfig::new().directory(&directory.path)
}

fn open(directory: &RunDirectory) -> Result<Bus, Failure> {
    config(directory).open_existing(BUS).map_err(Failure::of("open the bus"))
}

impl Topics for Toroni {
    const NAME: &'static str = <Toroni as crate::transport::Transport>::NAME;
    type Host = Bus;
    type Publisher = [Publisher; 2];
    type Subscriber = TopicSubscriber;

    fn about(_: &Crowd) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: "one bus, policy wait:forever, wait strategy backoff; topics of other subscribers are \
                       filtered by the publisher before it wakes"
                .to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    /// Creates the bus and makes all topics, as programs do when they start.
    fn host(directory: &RunDirectory, crowd: &Crowd) -> Result<Bus, Failure> {
        let bus = config(directory)
            .policy(Policy::Wait { limit: None })
            .max_subscribers(u32::from(crowd.subscribers).max(1))
            .create(BUS)
            .map_err(Failure::of("create the bus"))?;
        for topic in (0..crowd.subscribers).flat_map(|index| crowd.topics_of(index)) {
            bus.publisher(&topic).map_err(Failure::of("make a topic"))?;
        }
        Ok(bus)
    }

    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<[Publisher; 2], Failure> {
        let bus = open(directory)?;
        let [messages, parts] = crowd.published();
        let make = |topic: &str| bus.publisher(topic).map_err(Failure::of("make a publisher"));
        Ok([make(&messages)?, make(&parts)?])
    }

    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<TopicSubscriber, Failure> {
        let topics = crowd.topics_of(index);
        let [messages, parts] = &topics;
        let builder = open(directory)?.subscriber().pattern(messages).pattern(parts);
        let subscriber = builder.build().map_err(Failure::of("subscribe"))?;
        Ok(TopicSubscriber { subscriber, topics })
    }
}

impl topics::Publisher for [Publisher; 2] {
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure> {
        self[topic].publish(payload).map(drop).map_err(Failure::of("publish"))
    }
}

/// A subscriber and its topics.
pub struct TopicSubscriber {
    subscriber: Subscriber,
    topics: [String; 2],
}

impl topics::Subscriber for TopicSubscriber {
    fn receive(mut self, mut each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure> {
        loop {
            let message = self.subscriber.receive_timeout(LONGEST_SILENCE);
            let message = message.map_err(Failure::of("receive"))?.ok_or_else(topics::silence)?;
            let topic = usize::from(message.topic() == self.topics[topics::PARTS]);
            if each(topic).is_break() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
crate::topics_conformance!(Toroni);
