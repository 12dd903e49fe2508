//! Probe: which hosts hear one another in a group, and how well.
//!
//! ```text
//!   each host, 10 a second:   question ──► group ──► all others
//!                             answer   ◄── one of them, directly: the way that requests for repair take
//! ```
//!
//! It runs on all hosts at once. The numbers of the questions say what was lost on the way here. An answer says how many of
//! our questions were heard there, so the loss in both directions is known, although a host answers at most 20 a second. A host
//! that is silent in the group is also asked directly, to tell multicast that stopped from a host that is gone.
//!
//! | file | contents |
//! |---|---|
//! | `tally` | counts numbers that come with gaps, twice or late |
//! | `load` | sends at a rate |
//! | `peer` | what is known of another host |
//! | `verdict` | what is wrong, and the likely reason |

mod load;
mod peer;
mod tally;
mod verdict;

pub use load::Load;
pub use peer::{Peer, RoundTrip};
pub use tally::Tally;
pub use verdict::{Problem, SNOOPING_AGEING};

use crate::host::interface::{Interface, InterfaceError};
use crate::now::now;
use crate::socket::{self, Arrival, Datagram, Options, Outgoing, Receiver, Sender, SocketError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thiserror::Error;
use toroni_proto::id::{Realm, Sequence, Session, Source, Stream};
use toroni_proto::random::Random;
use toroni_proto::wire::{
    self, Body, Flags, HEADER_BYTES, Header, NodeName, Probe, ProbeKind, Rules,
};

/// The realm of all tests. Nodes have names for theirs, and never this one, which is no segment.
const REALM: &str = "toroni/probe";
/// Questions to the group.
const TO_GROUP: Stream = Stream(0);
/// Questions to one host.
const DIRECT: Stream = Stream(1);
/// Questions of several sizes to the group.
const SIZES: Stream = Stream(2);
/// Questions to the group at a rate.
const LOAD: Stream = Stream(3);

/// How often the group is asked. Each pause varies by a fifth, so that hosts do not ask in step.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How often a datagram of some size is sent.
const SIZE_EVERY: Duration = Duration::from_millis(200);
/// How often a host that is silent in the group is asked directly.
const DIRECT_EVERY: Duration = Duration::from_secs(1);
/// A host answers once in this time at most.
const ANSWER_EVERY: Duration = Duration::from_millis(50);
/// Answers that may be sent at once after a pause.
const ANSWERS_AT_ONCE: u32 = 4;
/// Hosts beyond are not counted.
const MOST_PEERS: usize = 256;
/// Before a size is called lost, a host must have had the time to answer this many questions of each.
const TRIED: u64 = 5;
/// Longer than any datagram.
const LONGEST: usize = 65_536;
const BUFFERS: usize = 16;
/// How often a socket is read before others have their turn.
const ROUNDS: usize = 64;

/// What a test is about.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The group.
    pub group: SocketAddr,
    /// The interface.
    pub interface: Interface,
    /// How others call this host: 1 to 64 bytes without control characters.
    pub name: String,
    /// How many hops questions go.
    pub ttl: u8,
    /// Whether datagrams of several sizes are tried, up to the MTU.
    pub tries_sizes: bool,
    /// At which rate full datagrams are sent, in bits per second, if they are.
    pub rate: Option<u64>,
}

/// Why a test cannot begin.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The name breaks a rule.
    #[error("{0:?} is no name of a host: use 1 to 64 bytes without control characters")]
    Name(String),
    /// The interface has no address of the group's family.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel gives no random numbers.
    #[error("cannot read /dev/urandom: {0}")]
    Random(io::Error),
    /// The clock is beyond 2156.
    #[error("the clock of this host is beyond the year 2156: set it")]
    Clock,
}

/// A test, as one of its hosts.
pub struct Prober {
    sockets: Sockets,
    name: String,
    header: Header,
    random: Random,
    started: Instant,
    peers: BTreeMap<Source, Peer>,
    asked: u64,
    next_ask: Duration,
    sizes: Sizes,
    load: Option<Load>,
    next_answer: Duration,
}

struct Sockets {
    group: Datagram,
    leg: Datagram,
    to: SocketAddr,
    receiver: Receiver,
    sender: Sender,
    memory: Box<[u8]>,
    refused: Option<io::Error>,
}

/// The sizes that are tried.
#[derive(Default)]
struct Sizes {
    all: Vec<u16>,
    sent: u64,
    next: Duration,
    unsendable: Vec<u16>,
}

impl Sizes {
    /// Returns the size of this question. A host may answer one in a few questions only, so they are in no order: of sizes
    /// that take turns, it could always answer the same one.
    fn of(&self, number: u64) -> Option<u16> {
        let index = Random::new(number).below((self.all.len() as u64).max(1));
        self.all.get(usize::try_from(index).ok()?).copied()
    }
}

/// Something that came, with what the sockets know about it.
struct Came<'a> {
    is_group: bool,
    arrival: &'a Arrival,
    header: Header,
    probe: Probe<'a>,
}

impl Prober {
    /// Opens the sockets.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn open(settings: &Settings) -> Result<Self, ProbeError> {
        let Settings { group, interface, name, ttl, tries_sizes, rate } = settings;
        NodeName::new(name).ok_or_else(|| ProbeError::Name(name.clone()))?;
        // Other tests of this host hear it too.
        let options = Options { ttl: *ttl, is_looped: true, ..Options::default() };
        let leg = Datagram::leg(interface.source(group.ip())?, interface, &options)?;
        let sockets = Sockets {
            group: Datagram::group(*group, interface, &options)?,
            to: interface.scoped(*group),
            receiver: Receiver::new(),
            sender: Sender::new(&leg),
            leg,
            memory: vec![0; BUFFERS * LONGEST].into(),
            refused: None,
        };
        let mut seed = [0; 8];
        let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
        random.map_err(ProbeError::Random)?;
        let mut random = Random::new(u64::from_le_bytes(seed));
        // Each test is a source of its own: several may run on a host.
        let source = Source(u32::try_from(random.below(1 << 32)).unwrap_or_default());
        let header = Header {
            flags: Flags::NONE,
            ttl: *ttl,
            realm: Realm::of(REALM),
            stream: TO_GROUP,
            source,
            session: Session::begin(now().wall, None).ok_or(ProbeError::Clock)?,
            sequence: Sequence::ZERO,
        };
        let all = if *tries_sizes { sizes(interface.mtu, group.is_ipv4(), name) } else { vec![] };
        Ok(Self {
            sockets,
            name: name.clone(),
            header,
            random,
            started: Instant::now(),
            peers: BTreeMap::new(),
            asked: 0,
            next_ask: Duration::ZERO,
            sizes: Sizes { all, ..Sizes::default() },
            load: rate.map(Load::new),
            next_answer: Duration::ZERO,
        })
    }

    /// Reads what has come, answers, and asks what is due.
    ///
    /// # Errors
    /// If a socket cannot be read.
    pub fn turn(&mut self) -> io::Result<()> {
        self.receive()?;
        let now = self.started.elapsed();
        if now >= self.next_ask {
            let header = Header { sequence: sequence(self.asked), ..self.header };
            self.asked += 1;
            self.next_ask = now + self.varied(ASK_EVERY);
            let to = self.sockets.to;
            self.ask(&header, to, 0);
        }
        if !self.sizes.all.is_empty() && now >= self.sizes.next {
            self.sizes.next = now + self.varied(SIZE_EVERY);
            self.try_size();
        }
        self.ask_directly(now);
        self.load(now);
        Ok(())
    }

    /// Sleeps until a socket or `also` has something, or something is due.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn wait(&self, longest: Duration, also: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let now = self.started.elapsed();
        let due = if self.sizes.all.is_empty() {
            self.next_ask
        } else {
            self.next_ask.min(self.sizes.next)
        };
        let left = due.saturating_sub(now).min(longest);
        let left = if self.load.is_some() { left.min(load::EVERY) } else { left };
        let sockets = [self.sockets.group.as_fd(), self.sockets.leg.as_fd()];
        let watched = sockets.into_iter().chain(also);
        socket::wait(watched.map(|fd| Ok((fd, false))), left)
    }

    /// Returns the other hosts, in the order of their names.
    #[must_use]
    pub fn peers(&self) -> Vec<&Peer> {
        let mut peers: Vec<&Peer> = self.peers.values().collect();
        peers.sort_by(|one, other| {
            one.name.cmp(&other.name).then(one.session.0.cmp(&other.session.0))
        });
        peers
    }

    /// Returns how many questions were sent to the group.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Returns the address from which it asks.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.sockets.leg.address()
    }

    /// Returns the sizes of datagrams that are tried, in bytes.
    #[must_use]
    pub fn sizes(&self) -> &[u16] {
        &self.sizes.all
    }

    /// Returns what was sent at a rate, if something was.
    #[must_use]
    pub fn sent_at_rate(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// Takes why the kernel refused to send since the last call.
    pub fn refusal(&mut self) -> Option<io::Error> {
        self.sockets.refused.take()
    }

    /// Returns what is wrong, if these hosts are expected. The worst comes first.
    #[must_use]
    pub fn problems(&self, expected: &[String]) -> Vec<Problem> {
        let can_go = |size: &&u16| !self.sizes.unsendable.contains(size);
        let asked: Vec<u16> = self.sizes.all.iter().filter(can_go).copied().collect();
        let mut problems = verdict::problems(self.peers.values(), expected, &asked);
        problems.extend(self.load.as_ref().and_then(verdict::slowed));
        problems.extend(self.sizes.unsendable.iter().map(|&size| Problem::Unsendable { size }));
        problems
    }

    fn varied(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.8 + 0.4 * self.random.fraction())
    }

    /// Sends a question. What cannot be sent is lost on the way, and kept for [`Self::refusal`].
    fn ask(&mut self, header: &Header, to: SocketAddr, padding: u16) -> bool {
        let Some(name) = NodeName::new(&self.name) else { return false };
        let probe = Probe { sent: now().wall, kind: ProbeKind::Ask { padding }, name };
        self.sockets.send(header, &probe, to)
    }

    fn try_size(&mut self) {
        let Some(size) = self.sizes.of(self.sizes.sent) else { return };
        let header = Header { stream: SIZES, sequence: sequence(self.sizes.sent), ..self.header };
        self.sizes.sent += 1;
        let (to, padding) = (self.sockets.to, size.saturating_sub(bare_bytes(&self.name)));
        if !self.ask(&header, to, padding) && !self.sizes.unsendable.contains(&size) {
            self.sizes.unsendable.push(size);
            self.sockets.refused = None;
        }
    }

    /// Sends what is due at a rate.
    fn load(&mut self, now: Duration) {
        let Self { load, sockets, header, name, .. } = self;
        let (Some(load), Some(name)) = (load, NodeName::new(name)) else { return };
        let padding = load::DATAGRAM.saturating_sub(bare_bytes(name.as_str()));
        let to = sockets.to;
        load.turn(now, |number| {
            let header = Header { stream: LOAD, sequence: sequence(number), ..*header };
            let probe =
                Probe { sent: crate::now::now().wall, kind: ProbeKind::Ask { padding }, name };
            let sent = send(&mut sockets.sender, &sockets.leg, &header, &probe, to);
            matches!(sent, Ok(true))
        });
    }

    /// Asks the hosts that are silent in the group.
    fn ask_directly(&mut self, now: Duration) {
        let is_due = |peer: &Peer| {
            let asked = peer.asked;
            peer.is_doubtful(now) && asked.is_none_or(|at| now.saturating_sub(at) >= DIRECT_EVERY)
        };
        let due: Vec<(Source, SocketAddr)> = self
            .peers
            .iter()
            .filter(|(_, peer)| is_due(peer))
            .map(|(source, peer)| (*source, peer.address))
            .collect();
        for (source, to) in due {
            let Some(peer) = self.peers.get_mut(&source) else { continue };
            peer.asked = Some(now);
            // These are not counted.
            let header = Header { stream: DIRECT, ..self.header };
            self.ask(&header, to, 0);
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let Self { sockets, peers, header, name, sizes, started, next_answer, .. } = self;
        let Sockets { group, leg, receiver, sender, memory, refused, .. } = sockets;
        let rules = Rules { realm: header.realm, keys: None, message_max: 0 };
        for (socket, is_group) in [(&*group, true), (&*leg, false)] {
            // The own questions, and the end of the test, are due even if datagrams never stop coming.
            for _ in 0..ROUNDS {
                let arrivals = receiver.receive(socket, memory.chunks_exact_mut(LONGEST))?;
                if arrivals.is_empty() {
                    break;
                }
                for (arrival, buffer) in arrivals.iter().zip(memory.chunks_exact(LONGEST)) {
                    let parsed = wire::parse(&buffer[..arrival.length], &rules, |_, _| Ok(()));
                    let Ok(wire::Datagram { header: theirs, body: Body::Probe(probe) }) = parsed
                    else {
                        continue;
                    };
                    if theirs.source == header.source {
                        continue;
                    }
                    let now = started.elapsed();
                    let came = Came { is_group, arrival, header: theirs, probe };
                    let Some(peer) = meet(peers, &came) else { continue };
                    let answer = match probe.kind {
                        ProbeKind::Answer { .. } => {
                            take_answer(peer, &came, header.source, sizes, now);
                            None
                        }
                        ProbeKind::Ask { .. } => take_question(peer, &came, now),
                    };
                    // Each kind of question of each host has its share of what may be sent. Else the questions to the
                    // group, which are the most, would leave nothing for the others.
                    let kinds: usize = peers.values().map(|peer| peer.served.len().max(1)).sum();
                    let share = ANSWER_EVERY * u32::try_from(kinds).unwrap_or(u32::MAX) * 3 / 4;
                    let Some(peer) = peers.get_mut(&theirs.source) else { continue };
                    let served = peer.served.get(&theirs.stream.0);
                    let is_fair =
                        served.is_none_or(|at| now.saturating_sub(*at) >= share.min(DIRECT_EVERY));
                    let burst = ANSWER_EVERY * ANSWERS_AT_ONCE;
                    let Some(kind) = answer.filter(|_| is_fair && *next_answer <= now + burst)
                    else {
                        continue;
                    };
                    *next_answer = (*next_answer).max(now) + ANSWER_EVERY;
                    peer.served.insert(theirs.stream.0, now);
                    let Some(name) = NodeName::new(name) else { continue };
                    let (stream, sequence) = (theirs.stream, theirs.sequence);
                    let header = Header { stream, sequence, ..*header };
                    let probe = Probe { sent: probe.sent, kind, name };
                    *refused =
                        send(sender, leg, &header, &probe, arrival.from).err().or(refused.take());
                }
            }
        }
        Ok(())
    }
}

impl Sockets {
    fn send(&mut self, header: &Header, probe: &Probe<'_>, to: SocketAddr) -> bool {
        let sent = send(&mut self.sender, &self.leg, header, probe, to);
        // What the kernel has no room for is lost, as it may be on the way.
        let is_sent = sent.is_ok();
        self.refused = sent.err().or(self.refused.take());
        is_sent
    }
}

/// Sends a datagram. Returns whether the kernel had room for it.
fn send(
    sender: &mut Sender,
    leg: &Datagram,
    header: &Header,
    probe: &Probe<'_>,
    to: SocketAddr,
) -> io::Result<bool> {
    let padding = match probe.kind {
        ProbeKind::Ask { padding } => padding.into(),
        ProbeKind::Answer { .. } => 0,
    };
    let mut buffer = vec![0; (usize::from(bare_bytes(probe.name.as_str())) + padding).max(256)];
    let length =
        probe.encode(header, None, &mut buffer).map_err(|_| io::ErrorKind::InvalidInput)?;
    sender.send(leg, &[Outgoing { to, bytes: &buffer[..length] }]).map(|sent| sent == 1)
}

/// Returns the host that sent something, whom it may be the first time to meet.
fn meet<'a>(peers: &'a mut BTreeMap<Source, Peer>, came: &Came<'_>) -> Option<&'a mut Peer> {
    let Came { header, arrival, probe, .. } = came;
    if peers.len() >= MOST_PEERS && !peers.contains_key(&header.source) {
        return None;
    }
    let new = || Peer::new(probe.name.as_str(), arrival.from, header.session);
    let peer = peers.entry(header.source).or_insert_with(new);
    if peer.session != header.session {
        *peer = new();
    }
    Some(peer)
}

/// Counts a question, and returns the answer.
fn take_question(peer: &mut Peer, came: &Came<'_>, now: Duration) -> Option<ProbeKind> {
    let Came { is_group, arrival, header, .. } = came;
    let number = header.sequence.get();
    let tally = match header.stream {
        TO_GROUP if *is_group => {
            peer.asked_group = Some(now);
            peer.address = arrival.from;
            peer.hops = arrival.ttl.map(|ttl| header.ttl.saturating_sub(ttl));
            &mut peer.group
        }
        SIZES if *is_group => peer.others.entry(SIZES.0).or_default(),
        LOAD if *is_group => {
            peer.load.record(number);
            // An answer now and then says how many came. All of them would take the places of other answers.
            let is_due = peer.load_answered.is_none_or(|at| now.saturating_sub(at) >= DIRECT_EVERY);
            if !is_due {
                return None;
            }
            peer.load_answered = Some(now);
            let count = |value| u32::try_from(value).unwrap_or(u32::MAX);
            let (heard, of) = (count(peer.load.came()), count(peer.load.of()));
            return Some(ProbeKind::Answer { asker: header.source, heard, of });
        }
        DIRECT if !is_group => {
            peer.direct = Some(now);
            return Some(ProbeKind::Answer { asker: header.source, heard: 1, of: 1 });
        }
        _ => return None,
    };
    if !tally.record(number) {
        return None;
    }
    let count = |value| u32::try_from(value).unwrap_or(u32::MAX);
    let (heard, of) = (count(tally.came()), count(tally.of()));
    Some(ProbeKind::Answer { asker: header.source, heard, of })
}

/// Notes what an answer says, if we asked.
fn take_answer(peer: &mut Peer, came: &Came<'_>, own: Source, sizes: &Sizes, now: Duration) {
    let Came { arrival, header, probe, .. } = came;
    let ProbeKind::Answer { asker, heard, of } = probe.kind else { return };
    if asker != own {
        return;
    }
    match header.stream {
        TO_GROUP => {
            peer.answered_group = Some(now);
            // Answers may overtake one another.
            if peer.there.is_none_or(|(_, before)| before <= of) {
                peer.there = Some((heard, of));
            }
        }
        DIRECT => peer.direct = Some(now),
        LOAD => {
            if peer.load_there.is_none_or(|(_, before)| before <= of) {
                peer.load_there = Some((heard, of));
            }
            return;
        }
        SIZES => {
            if let Some(size) = sizes.of(header.sequence.get()) {
                *peer.sizes.entry(size).or_default() += 1;
            }
            return;
        }
        _ => return,
    }
    // The kernel's time: how long this process slept is no part of the way.
    let received = arrival.received_ns.unwrap_or_else(|| crate::now::now().wall.ns());
    if let Some(took) = received.checked_sub(probe.sent.ns()) {
        peer.took(took);
    }
}

fn sequence(number: u64) -> Sequence {
    Sequence::new(number).unwrap_or(Sequence::MAX)
}

/// The length of a question without padding.
fn bare_bytes(name: &str) -> u16 {
    const FIELDS: usize = 24;
    u16::try_from(HEADER_BYTES + FIELDS + name.len()).unwrap_or(u16::MAX)
}

/// Returns the sizes to try, up to what fits into the MTU: usual ones, and the greatest.
fn sizes(mtu: u32, is_ipv4: bool, name: &str) -> Vec<u16> {
    /// IPv4 or IPv6, and UDP.
    const HEADERS: [u32; 2] = [28, 48];
    let headers = HEADERS[usize::from(!is_ipv4)];
    let most = mtu.saturating_sub(headers).min(65_507);
    let most = u16::try_from(most).unwrap_or(u16::MAX);
    let usual = [256, 512, 1024, 1280, 1408, 2048, 4096, 8192, 16_384, 32_768];
    let fits = |size: &u16| *size < most && *size >= bare_bytes(name);
    usual.into_iter().filter(fits).chain([most]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that answers each second, third … question, beginning with any, answers each size.
    #[test]
    fn a_host_that_answers_few_questions_answers_each_size() {
        let sizes = Sizes { all: sizes(1500, true, "a"), ..Sizes::default() };
        for every in 1..=40 {
            for first in 0..every {
                let questions = (first..).step_by(every).take(60);
                let answered: std::collections::BTreeSet<u16> =
                    questions.filter_map(|number| sizes.of(number as u64)).collect();
                assert_eq!(answered.len(), 6, "{first}, and each {every}th");
            }
        }
    }

    #[test]
    fn sizes_end_with_what_the_interface_takes() {
        assert_eq!(sizes(1500, true, "a"), [256, 512, 1024, 1280, 1408, 1472]);
        assert_eq!(sizes(1280, false, "a"), [256, 512, 1024, 1232]);
        assert_eq!(sizes(9000, true, "a").last(), Some(&8972));
        assert_eq!(sizes(65_536, true, "a").last(), Some(&65_507));
    }
}
