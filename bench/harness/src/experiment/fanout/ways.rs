//! The ways from the publisher to all subscribers of one thread.

use super::node::{MESSAGE, Node};
use super::{Plan, Way};
use crate::Failure;
use crate::experiment::multicast;
use crate::run_directory::RunDirectory;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use toroni::{Bus, BusConfig, Policy, Publisher, Router, Subscriber};

const BUS: &str = "fanout";
const TOPIC: &str = "fanout/event";

/// Creates the bus, if the way uses one.
pub(super) fn host(directory: &RunDirectory, plan: &Plan) -> Result<Option<Bus>, Failure> {
    if plan.way == Way::Multicast {
        return Ok(None);
    }
    config(&directory.path)
        .policy(Policy::Wait { limit: None })
        .create(BUS)
        .map(Some)
        .map_err(Failure::of("create the bus"))
}

pub(super) enum Sender {
    Toroni(Publisher),
    Multicast(multicast::Sender),
}

impl Sender {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        if plan.way == Way::Multicast {
            return multicast::Sender::open(directory).map(Self::Multicast);
        }
        let publisher =
            open(directory)?.publisher(TOPIC).map_err(Failure::of("make a publisher"))?;
        Ok(Self::Toroni(publisher))
    }

    #[inline]
    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Toroni(publisher) => {
                publisher.publish(bytes).map(drop).map_err(Failure::of("publish"))
            }
            Self::Multicast(sender) => sender.send(bytes),
        }
    }
}

/// All subscribers, in the order in which they are served.
pub(super) enum Thread {
    Subscribers(Vec<(Subscriber, Node)>),
    Router { router: Box<Router>, nodes: Vec<Arc<Mutex<Node>>> },
    Sockets(Vec<(multicast::Receiver, Node)>),
}

impl Thread {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        let last = plan.subscribers.saturating_sub(1);
        let nodes = (0..plan.subscribers)
            .map(|index| Node::new(plan.messages, index == 0 || index == last));
        match plan.way {
            Way::Toroni => {
                let bus = open(directory)?;
                let subscribe =
                    |node| Ok((bus.subscribe(TOPIC).map_err(Failure::of("subscribe"))?, node));
                nodes.map(subscribe).collect::<Result<_, _>>().map(Self::Subscribers)
            }
            Way::ToroniRouter => {
                let mut router = open(directory)?.router().map_err(Failure::of("make a router"))?;
                let nodes: Vec<_> = nodes.map(|node| Arc::new(Mutex::new(node))).collect();
                for node in &nodes {
                    let node = Arc::clone(node);
                    router
                        .on(TOPIC, move |message| {
                            // Never contended: all of this is one thread.
                            let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
                            node.check(message.payload());
                        })
                        .map_err(Failure::of("add a handler"))?;
                }
                Ok(Self::Router { router: Box::new(router), nodes })
            }
            Way::Multicast => {
                let join = |node| Ok((multicast::Receiver::open(directory)?, node));
                nodes.map(join).collect::<Result<_, _>>().map(Self::Sockets)
            }
        }
    }

    /// Gives each subscriber its next message, if it has come. Returns the number of messages.
    #[inline]
    pub(super) fn round(&mut self) -> Result<u64, Failure> {
        let mut served = 0;
        match self {
            Self::Subscribers(subscribers) => {
                for (subscriber, node) in subscribers {
                    if let Some(message) =
                        subscriber.try_receive().map_err(Failure::of("receive"))?
                    {
                        node.check(message.payload());
                        served += 1;
                    }
                }
            }
            Self::Router { router, nodes } => {
                let messages = router.poll().map_err(Failure::of("receive"))?;
                served = (messages * nodes.len()) as u64;
            }
            Self::Sockets(sockets) => {
                let mut buffer = [0; MESSAGE + 1];
                for (socket, node) in sockets {
                    if let Some(length) = socket.poll(&mut buffer)? {
                        node.check(&buffer[..length]);
                        served += 1;
                    }
                }
            }
        }
        Ok(served)
    }

    /// Returns what each subscriber has seen.
    pub(super) fn into_nodes(self) -> Result<Vec<Node>, Failure> {
        match self {
            Self::Subscribers(subscribers) => {
                Ok(subscribers.into_iter().map(|(_, node)| node).collect())
            }
            Self::Router { router, nodes } => {
                // Its handlers also hold the nodes.
                drop(router);
                let node = |node: Arc<Mutex<Node>>| {
                    let mutex = Arc::into_inner(node)?;
                    Some(mutex.into_inner().unwrap_or_else(PoisonError::into_inner))
                };
                let nodes: Option<Vec<_>> = nodes.into_iter().map(node).collect();
                nodes.ok_or_else(|| Failure::new("a handler outlives its router"))
            }
            Self::Sockets(sockets) => Ok(sockets.into_iter().map(|(_, node)| node).collect()),
        }
    }
}

fn open(directory: &RunDirectory) -> Result<Bus, Failure> {
    config(&directory.path).open_existing(BUS).map_err(Failure::of("open the bus"))
}

fn config(directory: &Path) -> BusConfig {
    BusConfig::new().directory(directory).prefault(true)
}
