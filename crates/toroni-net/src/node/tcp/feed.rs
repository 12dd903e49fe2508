//! Feed: from the bus to the server, as an outlet does it for a group.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::TcpError;
use super::sets::Sets;
use super::streams::Streams;
use crate::outlet::{number, start_of};
use std::collections::HashMap;
use toroni::{Bus, Message, ReceiveError, Start, Subscriber};
use toroni_proto::batcher::Now;
use toroni_proto::bounded::server::{Held, Server};
use toroni_proto::id::Number;
use toroni_proto::wire::{self, LostReason, TableName, TopicNumber};

/// How many messages it takes before others have their turn.
const MESSAGES_PER_TURN: usize = 1_024;
/// How many topics it remembers the way of.
const MAX_ROUTES: usize = 65_536;

/// Where messages of a topic go.
struct Route {
    stream: usize,
    /// `None`: the stream's table has no place for the name.
    topic: Option<TopicNumber>,
    sets: Vec<usize>,
}

/// What a client kept from being handed on: the sets from `set` on do not have it yet.
struct Waiting {
    stream: usize,
    set: usize,
    what: What,
}

enum What {
    Message {
        name: String,
        start: wire::Start,
        payload: Vec<u8>,
    },
    /// A message without a place for its name.
    Nameless {
        name: String,
        to_descendants: bool,
        until: Number,
    },
    /// Of the bus, so all streams may miss them.
    Lost {
        count: u64,
        until: Number,
    },
}

/// Hands what is published on this host to the server.
pub(super) struct Feed {
    subscriber: Subscriber,
    routes: HashMap<String, Option<Route>>,
    /// The version of the sets for which the routes are true.
    version: u64,
    waiting: Option<Waiting>,
    delays: bool,
    /// It takes the messages of the bus below this sequence, and then no more.
    goal: Option<u64>,
    name: String,
    /// Messages of the whole bus that were overwritten before they were read.
    overtaken: u64,
}

impl Feed {
    /// Subscribes from the latest message on. If it is gating, publishers wait for it.
    pub(super) fn new(
        bus: &Bus,
        streams: &Streams,
        is_gating: bool,
        delays: bool,
    ) -> Result<Self, TcpError> {
        let builder = bus.subscriber().start(Start::Latest).gating(is_gating).local_only(true);
        let patterns = streams.patterns();
        let builder = patterns.iter().fold(builder.name("tcp"), |all, one| all.pattern(*one));
        let mut subscriber = builder.build()?;
        subscriber.enable_fd()?;
        Ok(Self {
            subscriber,
            routes: HashMap::new(),
            version: 0,
            waiting: None,
            delays,
            goal: None,
            name: String::new(),
            overtaken: 0,
        })
    }

    /// The number with which the streams continue.
    pub(super) fn next(&self) -> Number {
        number(self.subscriber.sequence())
    }

    /// Returns whether a client holds it: it goes on when that has taken something, or is gone.
    pub(super) fn is_held(&self) -> bool {
        self.waiting.is_some()
    }

    /// Takes no more than what is on the bus below this sequence.
    pub(super) const fn end_at(&mut self, goal: u64) {
        self.goal = Some(goal);
    }

    /// Returns whether it has taken all that it will take.
    pub(super) fn has_ended(&self) -> bool {
        self.waiting.is_none() && self.goal.is_some_and(|goal| self.subscriber.sequence() >= goal)
    }

    pub(super) fn subscriber(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    pub(super) fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// Hands over what is in the ring. Returns whether there may be more at once.
    pub(super) fn turn(
        &mut self,
        now: Now,
        streams: &Streams,
        server: &mut Server,
        sets: &mut Sets,
    ) -> Result<bool, ReceiveError> {
        let more = self.take(now, streams, server, sets);
        sets.keep(self.waiting.as_ref().map_or(0, Waiting::given));
        if (!self.delays || self.has_ended()) && !matches!(more, Ok(true)) {
            server.flush(now);
        }
        more
    }

    fn take(
        &mut self,
        now: Now,
        streams: &Streams,
        server: &mut Server,
        sets: &Sets,
    ) -> Result<bool, ReceiveError> {
        if self.version != sets.version {
            self.version = sets.version;
            self.routes.clear();
        }
        if let Some(mut waiting) = self.waiting.take()
            && waiting.hand_over(now, streams, server, sets).is_err()
        {
            self.waiting = Some(waiting);
            return Ok(false);
        }
        for _ in 0..MESSAGES_PER_TURN {
            if self.has_ended() {
                self.note_taken(streams, server);
                return Ok(false);
            }
            match self.subscriber.try_receive() {
                Ok(Some(message)) => {
                    let Self { routes, name, .. } = self;
                    let waiting = pass(now, &message, streams, server, sets, routes, name);
                    if waiting.is_some() {
                        self.waiting = waiting;
                        return Ok(false);
                    }
                }
                Ok(None) => {
                    self.note_taken(streams, server);
                    return Ok(false);
                }
                Err(ReceiveError::Lapped { lost_messages, .. }) => {
                    self.overtaken = self.overtaken.saturating_add(lost_messages);
                    let until = number(self.subscriber.sequence());
                    let what = What::Lost { count: lost_messages, until };
                    let mut waiting = Waiting { stream: 0, set: 0, what };
                    if waiting.hand_over(now, streams, server, sets).is_err() {
                        self.waiting = Some(waiting);
                        return Ok(false);
                    }
                }
                Err(ReceiveError::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        self.note_taken(streams, server);
        Ok(true)
    }

    /// Says that all streams have what was taken from the bus.
    fn note_taken(&self, streams: &Streams, server: &mut Server) {
        let next = self.next();
        (0..streams.count()).for_each(|stream| server.taken(stream, next));
    }
}

/// Hands a message to all sets that match it. If a client holds it, returns what waits.
fn pass(
    now: Now,
    message: &Message<'_>,
    streams: &Streams,
    server: &mut Server,
    sets: &Sets,
    routes: &mut HashMap<String, Option<Route>>,
    scratch: &mut String,
) -> Option<Waiting> {
    let to_descendants = message.to_descendants();
    let made;
    // A post to descendants goes further than others of its topic.
    let route = if to_descendants {
        made = find(message, streams, server, sets, scratch);
        &made
    } else {
        if !routes.contains_key(message.topic()) {
            if routes.len() >= MAX_ROUTES {
                routes.clear();
            }
            let route = find(message, streams, server, sets, scratch);
            routes.insert(message.topic().to_owned(), route);
        }
        &routes[message.topic()]
    };
    let Some(Route { stream, topic, sets }) = route else { return None };
    let (stream, until) = (*stream, number(message.sequence().saturating_add(1)));
    for set in sets {
        let given = match topic {
            Some(topic) => {
                server.message(now, stream, *set, start_of(message, *topic), message.payload())
            }
            None => server.lost(now, stream, *set, 1, until, LostReason::Topic),
        };
        if given == Err(Held) {
            let name = streams.name(stream, message.topic(), scratch);
            let name = name.map_or_else(String::new, |name| name.as_str().to_owned());
            let what = match topic {
                Some(topic) => What::Message {
                    name,
                    start: start_of(message, *topic),
                    payload: message.payload().to_vec(),
                },
                None => What::Nameless { name, to_descendants, until },
            };
            return Some(Waiting { stream, set: *set, what });
        }
    }
    server.taken(stream, until);
    None
}

fn find(
    message: &Message<'_>,
    streams: &Streams,
    server: &mut Server,
    sets: &Sets,
    scratch: &mut String,
) -> Option<Route> {
    let stream = streams.of(message)?;
    let name: Option<TableName<'_>> = streams.name(stream, message.topic(), scratch);
    let text = name.as_ref().map_or("", |name| name.as_str());
    let matching = (0..sets.count()).filter(|set| sets.has(*set, text, message.to_descendants()));
    let matching = matching.collect();
    let topic = name.and_then(|name| server.topic(stream, name));
    Some(Route { stream, topic, sets: matching })
}

impl Waiting {
    /// Sets below this one have it.
    fn given(&self) -> usize {
        match self.what {
            What::Lost { .. } if self.stream > 0 => usize::MAX,
            _ => self.set,
        }
    }

    fn hand_over(
        &mut self,
        now: Now,
        streams: &Streams,
        server: &mut Server,
        sets: &Sets,
    ) -> Result<(), Held> {
        match &self.what {
            What::Message { name, start, payload } => {
                while self.set < sets.count() {
                    if sets.has(self.set, name, start.to_descendants) {
                        server.message(now, self.stream, self.set, *start, payload)?;
                    }
                    self.set = self.set.saturating_add(1);
                }
                server.taken(self.stream, start.number.plus(1));
            }
            What::Nameless { name, to_descendants, until } => {
                while self.set < sets.count() {
                    if sets.has(self.set, name, *to_descendants) {
                        let reason = LostReason::Topic;
                        server.lost(now, self.stream, self.set, 1, *until, reason)?;
                    }
                    self.set = self.set.saturating_add(1);
                }
                server.taken(self.stream, *until);
            }
            What::Lost { count, until } => {
                while self.stream < streams.count() {
                    while self.set < sets.count() {
                        if streams.meets(self.stream, sets.patterns(self.set)) {
                            let reason = LostReason::Overtaken;
                            server.lost(now, self.stream, self.set, *count, *until, reason)?;
                        }
                        self.set = self.set.saturating_add(1);
                    }
                    server.taken(self.stream, *until);
                    (self.stream, self.set) = (self.stream.saturating_add(1), 0);
                }
            }
        }
        Ok(())
    }
}
