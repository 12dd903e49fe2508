//! History: what a client asks for by number, out of the ring of the bus.
//!
//! A client that reconnects says where it continues. The server asks for the messages from there on, piece by piece, as
//! the client takes them. A subscriber stands at each of these places, as long as there are few.
//!
//! The bus has room for a limited number of subscribers. The server keeps a place there for its first reader from the
//! beginning. If it finds none for a reader, the client waits: only what the ring no longer has is gone.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::sets::Sets;
use super::streams::Streams;
use crate::outlet::{number, start_of};
use toroni::{Bus, Message, ReceiveError, Start, Subscriber, SubscriberError};
use toroni_proto::batcher::Now;
use toroni_proto::bounded::server::{ClientId, Full, Server, Wanted};
use toroni_proto::id::Number;
use toroni_proto::reassembly::Bound;
use toroni_proto::time::MILLISECOND;
use toroni_proto::wire::{self, LostReason};

/// The greatest number of subscribers. Further replays take turns, and look their places up again.
const MAX_READERS: usize = 8;
/// How many pieces are handed out before others have their turn.
const PIECES_PER_TURN: usize = 64;
/// How many messages a piece may pass over that the client did not ask for.
const MESSAGES_PER_PIECE: usize = 4_096;
/// How long clients wait until a place is looked for again. A client gives up after 5 s in which nothing comes.
const RETRY_NS: u64 = 250 * MILLISECOND;

/// Stands in the ring where a client has got to.
struct Reader {
    client: ClientId,
    stream: usize,
    /// All below was handed out.
    next: Number,
    subscriber: Subscriber,
    /// What was read, and did not fit the piece before.
    kept: Option<Kept>,
    /// When it was used last, in pieces.
    used: u64,
}

enum Kept {
    Message {
        number: Number,
        start: Option<wire::Start>,
        payload: Vec<u8>,
    },
    /// Everything below was overwritten.
    Lost {
        until: Number,
    },
}

/// Where to read what a client wants.
enum Place {
    /// With this reader.
    At(usize),
    /// Nothing was published since.
    Ended,
    /// Everything before this sequence is gone.
    Gone(u64),
    /// There is no reader, and none can be made now.
    None,
}

/// Reads what clients ask for.
pub(super) struct History {
    bus: Bus,
    readers: Vec<Reader>,
    /// Keeps a place for the first reader while there is none.
    reserve: Option<Subscriber>,
    pieces: u64,
    scratch: String,
}

impl History {
    pub(super) fn new(bus: &Bus) -> Result<Self, SubscriberError> {
        let reserve = Some(reserve(bus)?);
        let (readers, scratch) = (Vec::new(), String::new());
        Ok(Self { bus: bus.clone(), readers, reserve, pieces: 0, scratch })
    }

    /// Forgets where a client is.
    pub(super) fn leave(&mut self, client: ClientId) {
        self.readers.retain(|reader| reader.client != client);
        self.keep_a_place();
    }

    fn keep_a_place(&mut self) {
        if self.readers.is_empty() && self.reserve.is_none() {
            self.reserve = reserve(&self.bus).ok();
        }
    }

    /// Hands out what clients can take. Returns whether there may be more at once.
    pub(super) fn turn(
        &mut self,
        now: Now,
        streams: &Streams,
        server: &mut Server,
        sets: &Sets,
    ) -> Result<bool, ReceiveError> {
        for _ in 0..PIECES_PER_TURN {
            let Some(wanted) = server.next_replay(now.monotonic) else { return Ok(false) };
            let reached = self.piece(now, &wanted, streams, server, sets)?;
            server.replay_to(now, &wanted, reached);
            if reached >= wanted.end {
                self.readers.retain(|it| (it.client, it.stream) != (wanted.client, wanted.stream));
                self.keep_a_place();
            }
        }
        Ok(true)
    }

    /// Hands out a piece. Returns below which number all was handed out, or is gone.
    fn piece(
        &mut self,
        now: Now,
        wanted: &Wanted,
        streams: &Streams,
        server: &mut Server,
        sets: &Sets,
    ) -> Result<Number, ReceiveError> {
        self.pieces = self.pieces.saturating_add(1);
        let reader = match self.reader(wanted, streams) {
            Place::At(reader) => reader,
            Place::Ended => return Ok(wanted.end),
            Place::Gone(oldest) => {
                let until = number(oldest).min(wanted.end);
                return Ok(lose(now, wanted, server, wanted.from, until).unwrap_or(wanted.from));
            }
            Place::None => {
                server.postpone_replays(now.monotonic.after(RETRY_NS));
                return Ok(wanted.from);
            }
        };
        let Self { readers, scratch, pieces, .. } = self;
        let reader = &mut readers[reader];
        reader.used = *pieces;
        let reached = reader.hand_out(now, wanted, streams, server, sets, scratch)?;
        reader.next = reached;
        Ok(reached)
    }

    /// Returns the reader that stands where a client continues; a new one if there is none.
    fn reader(&mut self, wanted: &Wanted, streams: &Streams) -> Place {
        let Wanted { client, stream, from, .. } = *wanted;
        let found = self.readers.iter().position(|it| (it.client, it.stream) == (client, stream));
        if let Some(at) = found {
            if self.readers[at].next == from {
                return Place::At(at);
            }
            self.readers.swap_remove(at);
        }
        if self.readers.len() >= MAX_READERS {
            self.forget_oldest();
        }
        let Some(offered) = streams.get(stream) else { return Place::Ended };
        self.reserve = None;
        loop {
            let start = Start::Sequence(from.get());
            let patterns = offered.patterns.iter().map(toroni::Pattern::as_str);
            match subscriber(&self.bus, start, patterns) {
                Ok(subscriber) => {
                    let (used, at) = (self.pieces, self.readers.len());
                    let reader =
                        Reader { client, stream, next: from, subscriber, kept: None, used };
                    self.readers.push(reader);
                    return Place::At(at);
                }
                Err(SubscriberError::SequenceAhead { .. }) => return Place::Ended,
                Err(SubscriberError::SequenceLost { oldest, .. }) => return Place::Gone(oldest),
                // The bus has no place for another subscriber.
                Err(_) if !self.readers.is_empty() => self.forget_oldest(),
                Err(_) => return Place::None,
            }
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = (0..self.readers.len()).min_by_key(|at| self.readers[*at].used);
        oldest.map(|at| self.readers.swap_remove(at));
    }
}

impl Reader {
    fn hand_out(
        &mut self,
        now: Now,
        wanted: &Wanted,
        streams: &Streams,
        server: &mut Server,
        sets: &Sets,
        scratch: &mut String,
    ) -> Result<Number, ReceiveError> {
        let mut next = wanted.from;
        match self.kept.take() {
            None => {}
            Some(Kept::Lost { until }) => {
                return Ok(self.lose(now, wanted, server, next, until));
            }
            Some(Kept::Message { number, start, payload }) => {
                if number >= wanted.end {
                    self.kept = Some(Kept::Message { number, start, payload });
                    return Ok(wanted.end);
                }
                if give(now, wanted, server, number, start, &payload).is_err() {
                    self.kept = Some(Kept::Message { number, start, payload });
                    return Ok(next);
                }
                next = number.plus(1);
            }
        }
        for _ in 0..MESSAGES_PER_PIECE {
            match self.subscriber.try_receive() {
                Ok(Some(message)) => {
                    let this = number(message.sequence());
                    if streams.of(&message) != Some(wanted.stream) {
                        continue;
                    }
                    let name = streams.name(wanted.stream, message.topic(), scratch);
                    let text = name.as_ref().map_or("", |name| name.as_str());
                    if !sets.has(wanted.set, text, message.to_descendants()) {
                        continue;
                    }
                    let topic = name.and_then(|name| server.topic(wanted.stream, name));
                    let start = topic.map(|topic| start_of(&message, topic));
                    let is_beyond = this >= wanted.end;
                    if is_beyond
                        || give(now, wanted, server, this, start, message.payload()).is_err()
                    {
                        self.kept = Some(kept(this, start, &message));
                        return Ok(if is_beyond { wanted.end } else { next });
                    }
                    next = this.plus(1);
                }
                Ok(None) => return Ok(wanted.end),
                Err(ReceiveError::Lapped { .. }) => {
                    let until = number(self.subscriber.sequence());
                    return Ok(self.lose(now, wanted, server, next, until));
                }
                Err(ReceiveError::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        // Everything before was looked at.
        Ok(number(self.subscriber.sequence()).min(wanted.end))
    }

    /// Says that everything from `from` to `until` is gone, as far as it is wanted. Returns how far that was said. If the
    /// client cannot take it, keeps it: the end that is wanted may be a later one by then.
    fn lose(
        &mut self,
        now: Now,
        wanted: &Wanted,
        server: &mut Server,
        from: Number,
        until: Number,
    ) -> Number {
        lose(now, wanted, server, from, until.min(wanted.end)).unwrap_or_else(|Full| {
            self.kept = Some(Kept::Lost { until });
            from
        })
    }
}

/// Makes a subscriber that only takes a place.
fn reserve(bus: &Bus) -> Result<Subscriber, SubscriberError> {
    subscriber(bus, Start::Latest, std::iter::once("**"))
}

/// Makes a subscriber that no publisher waits for.
fn subscriber<'a>(
    bus: &Bus,
    start: Start,
    patterns: impl Iterator<Item = &'a str>,
) -> Result<Subscriber, SubscriberError> {
    let builder = bus.subscriber().start(start).gating(false).local_only(true).name("tcp replay");
    patterns.fold(builder, |all, one| all.pattern(one)).build()
}

fn kept(number: Number, start: Option<wire::Start>, message: &Message<'_>) -> Kept {
    Kept::Message { number, start, payload: message.payload().to_vec() }
}

/// Hands out a message, or that there is no place for its name.
fn give(
    now: Now,
    wanted: &Wanted,
    server: &mut Server,
    number: Number,
    start: Option<wire::Start>,
    payload: &[u8],
) -> Result<(), Full> {
    match start {
        Some(start) => server.replay_message(now, wanted, start, payload),
        None => {
            let (until, reason) = (number.plus(1), LostReason::Topic);
            server.replay_lost(now, wanted, 1, Bound::Exact, until, reason)
        }
    }
}

/// Says that what lies between is gone. The ring no longer shows how many of these messages were for this client. Returns
/// how far that is.
fn lose(
    now: Now,
    wanted: &Wanted,
    server: &mut Server,
    from: Number,
    until: Number,
) -> Result<Number, Full> {
    let count = until.since(from);
    if count > 0 {
        let (bound, reason) = (Bound::AtMost, LostReason::Gone);
        server.replay_lost(now, wanted, count, bound, until, reason)?;
    }
    Ok(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni::{BusConfig, Pattern};
    use toroni_proto::arrivals::{Flow, Inbox};
    use toroni_proto::audience::Name;
    use toroni_proto::bounded::client::{self, Client};
    use toroni_proto::bounded::server::{self, Served};
    use toroni_proto::config::tcp::TcpConfig;
    use toroni_proto::id::{Realm, Series, Session, Source, Stream};
    use toroni_proto::past::Past;
    use toroni_proto::random::Random;
    use toroni_proto::reassembly::Loss;
    use toroni_proto::time::{Monotonic, Wall};
    use toroni_proto::wire::{NodeName, TableName, TopicNumber};
    use toroni_testkit::Directory;

    struct Out;

    impl Inbox for Out {
        fn message(&mut self, _: Flow, _: toroni_proto::reassembly::Message<'_>) {}
        fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
        fn loss(&mut self, _: Flow, _: Loss) {}
    }

    fn at(ms: u64) -> Now {
        let ns = ms * MILLISECOND;
        Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(ns) }
    }

    /// A server whose only client has asked for the whole history.
    fn asked(sets: &mut Sets) -> Server {
        let (realm, source, session) = (Realm(1), Source(1), Session(1));
        let (config, now) = (TcpConfig::default(), at(0).monotonic);
        let identity = server::Identity { realm, keys: None, source, session, instance: [0; 16] };
        let (series, stream, next) = (Series(1), Stream(0), number(100));
        let (feed, past, patterns) = (false, Past::NONE, &[][..]);
        let served = Served { source, session, series, stream, feed, next, past, patterns };
        let mut server = Server::new(&config, &identity, &[served], Random::new(1), now).unwrap();
        let name = Name::new(NodeName::new("n").unwrap());
        let identity = client::Identity { realm, keys: None, source: Source(2), session, name };
        let patterns = [TableName::new("**").unwrap()];
        let client = Client::new(&config, &identity, &patterns, Random::new(1), now).unwrap();
        let mut client = client.only_history();
        client.poll_event();
        client.connected(now, [0; 16]);
        let id = server.accept(now, [0; 16]).unwrap();
        for _ in 0..2 {
            while let Some(bytes) = client.transmit() {
                let length = bytes.len();
                server.room(id)[..length].copy_from_slice(bytes);
                client.wrote(length);
                server.received(now, id, length, sets);
            }
            while let Some(bytes) = server.transmit(now, id) {
                let length = bytes.len();
                client.room()[..length].copy_from_slice(bytes);
                server.wrote(now, id, length);
                client.received(now, length, &mut Out);
            }
            client.replay(source, stream, number(0), Some(next));
        }
        server
    }

    /// The server must not spin until there is a place.
    #[test]
    fn while_the_bus_has_no_place_for_a_reader_nothing_is_due() {
        let directory = Directory::new();
        let config = BusConfig::new().directory(directory.path()).max_subscribers(1);
        let bus = config.create("b").unwrap();
        let streams = Streams::new(&[], &[Pattern::everything()]);
        let (mut history, mut sets) = (History::new(&bus).unwrap(), Sets::new(1));
        let mut server = asked(&mut sets);
        let due = server.poll_timeout();
        assert!(due.is_some_and(|due| due <= at(0).monotonic), "{due:?}");
        history.reserve = None;
        let other = bus.subscribe("t").unwrap();
        for ms in [0, 250] {
            assert!(!history.turn(at(ms), &streams, &mut server, &sets).unwrap());
            assert_eq!(server.poll_timeout(), Some(at(ms + 250).monotonic));
        }
        drop(other);
        bus.publisher("t").unwrap().publish("m").unwrap();
        history.turn(at(499), &streams, &mut server, &sets).unwrap();
        assert!(history.readers.is_empty());
        history.turn(at(500), &streams, &mut server, &sets).unwrap();
        assert_eq!(server.next_replay(at(500).monotonic), None, "it has got its piece");
    }

    fn wanted(from: u64) -> Wanted {
        let [from, end] = [from, 100].map(|number| Number::new(number).unwrap());
        Wanted { client: ClientId(0), stream: 0, set: 0, from, end }
    }

    /// A full bus says nothing about its messages.
    #[test]
    fn what_cannot_be_read_now_is_not_gone() {
        let directory = Directory::new();
        let config = BusConfig::new().directory(directory.path()).max_subscribers(1);
        let bus = config.create("b").unwrap();
        let streams = Streams::new(&[], &[Pattern::everything()]);
        let mut history = History::new(&bus).unwrap();
        bus.publisher("t").unwrap().publish("m").unwrap();
        assert!(bus.subscribe("t").is_err(), "its place is kept");
        assert!(matches!(history.reader(&wanted(0), &streams), Place::At(0)));
        history.leave(ClientId(0));
        assert!(bus.subscribe("t").is_err(), "its place is kept again");
        history.reserve = None;
        let other = bus.subscribe("t").unwrap();
        assert!(matches!(history.reader(&wanted(0), &streams), Place::None));
        assert!(History::new(&bus).is_err());
        drop(other);
        assert!(matches!(history.reader(&wanted(0), &streams), Place::At(0)));
        assert!(matches!(history.reader(&wanted(90), &streams), Place::Ended));
    }
}
