//! Nodes: which of them send to a group, and what.
//!
//! Each stream has a SESSION at least every `session_max`: it says who sends, at which rate, and to how many receivers. The
//! patterns of a stream come only if they are asked for, so each stream is asked for those. Nothing else is sent: a process that
//! listens here does not become a receiver.

use crate::host::interface::{Interface, InterfaceError};
use crate::socket::{self, BATCH, Datagram, Options, Outgoing, Receiver, Sender, SocketError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thiserror::Error;
use toroni_proto::id::{Realm, Sequence, Session, Source, Stream};
use toroni_proto::time::Wall;
use toroni_proto::wire::{self, Body, Header, Keys, Rules, SessionInfo, TopicNumber, TopicsWanted};

/// Streams beyond are not listed.
const MOST_STREAMS: usize = 1_024;
/// How often a stream is asked for its patterns.
const ASK_EVERY: Duration = Duration::from_millis(500);
const LONGEST: usize = 65_536;
const BUFFERS: usize = 16;
/// Longer than what is sent.
const ASK_BYTES: usize = 256;

/// Why a group cannot be listened to.
#[derive(Debug, Error)]
pub enum NodesError {
    /// The interface has no address of the group's family.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel gives no random numbers.
    #[error("cannot read /dev/urandom: {0}")]
    Random(io::Error),
}

/// A stream of a node, as its last SESSION describes it.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The name of the node.
    pub name: String,
    /// From where it sends.
    pub address: SocketAddr,
    /// The life of the node.
    pub session: Session,
    /// How many receivers it knows.
    pub receivers: u16,
    /// The limit for new data, in bits per second, if there is one.
    pub rate: Option<u64>,
    patterns: Vec<Option<String>>,
    asked: Option<Instant>,
}

impl Heard {
    fn new(header: &Header, session: &SessionInfo<'_>, address: SocketAddr) -> Self {
        let rate =
            (session.data_kbit > 0).then(|| u64::from(session.data_kbit).saturating_mul(1_000));
        Self {
            name: session.name.as_str().to_owned(),
            address,
            session: header.session,
            receivers: session.receivers,
            rate,
            patterns: vec![None; usize::from(session.patterns)],
            asked: None,
        }
    }

    /// Returns the patterns of its topics, once all of them are known.
    #[must_use]
    pub fn patterns(&self) -> Option<Vec<&str>> {
        self.patterns.iter().map(Option::as_deref).collect()
    }
}

/// Listens to a group.
pub struct Nodes {
    group: Datagram,
    leg: Datagram,
    receiver: Receiver,
    sender: Sender,
    memory: Box<[u8]>,
    realm: Realm,
    keys: Option<Keys>,
    me: wire::Receiver,
    streams: BTreeMap<(Source, Stream), Heard>,
    refused: u64,
}

impl Nodes {
    /// Joins the group.
    ///
    /// # Errors
    /// See [`NodesError`].
    pub fn open(
        group: SocketAddr,
        on: &Interface,
        realm: &str,
        keys: Option<Keys>,
    ) -> Result<Self, NodesError> {
        let options = Options::default();
        let leg = Datagram::leg(on.source(group.ip())?, on, &options)?;
        let mut id = [0; 4];
        let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id));
        random.map_err(NodesError::Random)?;
        Ok(Self {
            group: Datagram::group(group, on, &options)?,
            receiver: Receiver::new(),
            sender: Sender::new(&leg),
            leg,
            memory: vec![0; BUFFERS * LONGEST].into(),
            realm: Realm::of(realm),
            keys,
            me: wire::Receiver { source: Source(u32::from_le_bytes(id)), session: Session(1) },
            streams: BTreeMap::new(),
            refused: 0,
        })
    }

    /// Reads what has come, and asks for patterns that are not known.
    ///
    /// # Errors
    /// If the socket cannot be read.
    pub fn turn(&mut self) -> io::Result<()> {
        let rules = Rules { realm: self.realm, keys: self.keys.as_ref(), message_max: u32::MAX };
        // Others want the processor, too.
        for _ in 0..BATCH {
            let buffers = self.memory.chunks_exact_mut(LONGEST);
            let arrivals = self.receiver.receive(&self.group, buffers)?;
            if arrivals.is_empty() {
                break;
            }
            for (arrival, buffer) in arrivals.iter().zip(self.memory.chunks_exact(LONGEST)) {
                let parsed = wire::parse(&buffer[..arrival.length], &rules, |_, _| Ok(()));
                let Ok(wire::Datagram { header, body }) = parsed else {
                    self.refused = self.refused.saturating_add(1);
                    continue;
                };
                let key = (header.source, header.stream);
                match body {
                    Body::Session(session) => {
                        let has_room = self.streams.len() < MOST_STREAMS;
                        let known = self.streams.get_mut(&key);
                        let mut new = Heard::new(&header, &session, arrival.from);
                        match known {
                            Some(known) => {
                                if known.session == new.session {
                                    (new.patterns, new.asked) =
                                        (std::mem::take(&mut known.patterns), known.asked);
                                }
                                *known = new;
                            }
                            None if has_room => drop(self.streams.insert(key, new)),
                            None => {}
                        }
                        let known = self.streams.get_mut(&key);
                        if let Some(known) = known.filter(|known| known.patterns().is_none()) {
                            let is_due = known.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
                            if is_due && arrival.from.port() > 0 {
                                known.asked = Some(Instant::now());
                                let (me, keys) = (self.me, self.keys.as_ref());
                                let asked =
                                    ask(&header, me, session.sent, known.patterns.len(), keys);
                                if let Some((bytes, length)) = asked {
                                    let to = arrival.from;
                                    let bytes = &bytes[..length];
                                    // If it cannot be sent, the patterns stay unknown.
                                    let _ = self.sender.send(&self.leg, &[Outgoing { to, bytes }]);
                                }
                            }
                        }
                    }
                    Body::Topics(topics) => {
                        let known = self.streams.get_mut(&key);
                        let known = known.filter(|known| known.session == header.session);
                        let first = topics.first.get() as usize;
                        let places = known.into_iter().flat_map(|known| known.patterns.iter_mut());
                        for (place, name) in places.skip(first).zip(topics.names()) {
                            *place = Some(name.as_str().to_owned());
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sleeps until the socket or `also` has something, at most for `longest`.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn wait(&self, longest: Duration, also: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let watched = [self.group.as_fd()].into_iter().chain(also);
        socket::wait(watched.map(|fd| Ok((fd, false))), longest)
    }

    /// Returns the streams that were heard.
    pub fn streams(&self) -> impl Iterator<Item = (Source, Stream, &Heard)> {
        self.streams.iter().map(|((source, stream), heard)| (*source, *stream, heard))
    }

    /// Returns how many datagrams were refused: of another realm, with another key, or damaged.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// Returns the request for the patterns of a stream.
fn ask(
    header: &Header,
    receiver: wire::Receiver,
    echo: Wall,
    patterns: usize,
    keys: Option<&Keys>,
) -> Option<([u8; ASK_BYTES], usize)> {
    let header = Header {
        flags: header.flags.without(wire::Flags::END).without(wire::Flags::SEALED),
        sequence: Sequence::ZERO,
        ..*header
    };
    let (first, count) = (TopicNumber::new(0)?, u32::try_from(patterns).ok()?);
    let mut bytes = [0; ASK_BYTES];
    let length =
        TopicsWanted { receiver, first, count, echo }.encode(&header, keys, &mut bytes).ok()?;
    Some((bytes, length))
}
