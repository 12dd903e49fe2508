//! Fetch: what a receiver of a group missed while it was away, brought from the sender over TCP.
//!
//! ```text
//!   group ──► arrivals ──► CatchUp ──────────────► inlet ──► bus
//!                            │ missing: held ◄─┐     ▲
//!                            ▼                 │     │ history first, then what is held
//!                          server of the sender: REPLAY
//! ```
//!
//! The bus knows how far each stream has arrived. When a session is joined that begins later, the loss of what lies
//! between is not reported at once. If the sender listens, as its SESSION says, the node asks it for these messages.
//! Meanwhile what arrives from the group waits in the receive buffers, and what they do not hold is asked for too. What the
//! sender cannot bring, or not in time, is reported as lost.
//!
//! A receiver that is even with its stream fetches nothing: from then on, `generation` is the time that a repair may take.

mod catch_up;
mod missing;
mod outcome;
mod server;

pub(super) use self::catch_up::CatchUp;
use self::missing::Missing;
pub use self::outcome::{Counters, Failure, Fetched};
use self::server::{Progress, Server};
use super::config::Join;
use super::crash_point::{CrashPoint, point};
use super::tcp::connection::identity;
use super::tcp::dial::Change;
use super::tcp::{Nonces, Poller, TcpError, Token};
use crate::inlet::Inlet;
use crate::membership::Membership;
use crate::now::now;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use toroni_proto::arrivals::{Arrivals, Flow, Inbox};
use toroni_proto::bounded::client::Identity;
use toroni_proto::config::{Config, Order};
use toroni_proto::id::{MessageNumber, Source, Stream};
use toroni_proto::random::Random;
use toroni_proto::reassembly::{Loss, Message, Parts};
use toroni_proto::receiver::End;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::tcp::Bye;
use toroni_proto::wire::{self, NodeName};

/// A server that brings nothing for this long has failed.
const STALL_NS: u64 = 5 * SECOND;
/// The pause before a server is asked again that has brought all that it had taken from its bus.
const AGAIN_NS: u64 = 10 * MILLISECOND;
/// How many streams are fetched at a time. Others wait for their turn.
const MAX_SERVERS: usize = 8;
/// How much is held beside the receive buffers for each stream: what a datagram has after a gap. Beyond, it is fetched too.
const HELD_BYTES: usize = 1 << 20;
/// How many reports wait for the caller. Later ones are dropped.
const MAX_REPORTS: usize = 64;

/// How history is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where a source that is new begins.
    pub join: Join,
    /// How long a stream may wait for its history, in nanoseconds. 0: nothing is fetched.
    pub limit_ns: u64,
    /// The longest message that is taken, in bytes: the same as from the stream itself.
    pub message_max_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let message_max_bytes = Config::default().message_max_bytes;
        Self { join: Join::Live, limit_ns: 60 * SECOND, message_max_bytes }
    }
}

/// What is held until history has been brought.
enum Held {
    Message { number: MessageNumber, start: wire::Start, sent: Option<Wall>, bytes: Vec<u8> },
    Loss(Loss),
    End(End),
}

/// A part of a stream that is being brought.
struct Fetch {
    missing: Missing,
    held: VecDeque<Held>,
    held_bytes: usize,
    server: Option<Box<Server>>,
    messages: u64,
    /// When something was brought last.
    moved: Monotonic,
    error: Option<io::Error>,
}

impl Fetch {
    fn new(missing: Missing) -> Self {
        Self {
            missing,
            held: VecDeque::new(),
            held_bytes: 0,
            server: None,
            messages: 0,
            moved: now().monotonic,
            error: None,
        }
    }

    /// Holds a message that has arrived. Without room, it is asked for too.
    fn hold(&mut self, message: &Message<'_>) {
        let length = message.parts.length();
        if self.held_bytes + length > HELD_BYTES {
            self.let_go();
            return self.missing.add_message(message.start.number);
        }
        self.held_bytes += length;
        let mut bytes = Vec::with_capacity(length);
        message.parts.clone().for_each(|part| bytes.extend_from_slice(part));
        let Message { message: number, start, sent, .. } = *message;
        self.held.push_back(Held::Message { number, start, sent, bytes });
    }

    /// Asks for all that is held, so that it need not be.
    fn let_go(&mut self) {
        for held in std::mem::take(&mut self.held) {
            match held {
                Held::Message { start, .. } => self.missing.add_message(start.number),
                Held::Loss(loss) => match Missing::of(&loss) {
                    Some(later) => self.missing.add(&later),
                    // It is reported in its turn, before what follows.
                    None => self.held.push_back(Held::Loss(loss)),
                },
                end @ Held::End(_) => self.held.push_back(end),
            }
        }
        self.held_bytes = 0;
    }
}

/// A stream of a group.
struct Course {
    flow: Flow,
    /// Where its source listens.
    address: Option<SocketAddr>,
    /// It was joined, and was not even with its source since.
    catches_up: bool,
    /// When it was joined.
    since: Monotonic,
    fetch: Option<Fetch>,
}

/// Fetches the history of the streams that come with one set of settings.
pub(super) struct Fetches {
    settings: Settings,
    order: Order,
    identity: Identity,
    random: Random,
    /// Where the source listens whose session begins, as that has just said.
    announced: Option<SocketAddr>,
    courses: BTreeMap<(Source, Stream), Course>,
    /// How many streams wait for history.
    pending: usize,
    poller: Option<(Poller, Nonces)>,
    done: Done,
}

/// What has been fetched.
#[derive(Default)]
struct Done {
    counters: Counters,
    reports: VecDeque<Fetched>,
}

impl Fetches {
    pub(super) fn new(
        settings: Settings,
        order: Order,
        member: &Membership,
        name: NodeName<'_>,
    ) -> Self {
        Self {
            settings,
            order,
            identity: identity(member, name),
            random: member.random(),
            announced: None,
            courses: BTreeMap::new(),
            pending: 0,
            poller: None,
            done: Done::default(),
        }
    }

    /// Takes the next thing to report.
    pub(super) fn report(&mut self) -> Option<Fetched> {
        self.done.reports.pop_front()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.done.counters
    }

    fn is_pending(&self, flow: Flow) -> bool {
        self.pending > 0
            && self
                .courses
                .get(&(flow.source, flow.stream))
                .is_some_and(|course| course.fetch.is_some())
    }

    fn fetch_of(&mut self, flow: Flow) -> Option<&mut Fetch> {
        if self.pending == 0 {
            return None;
        }
        self.courses.get_mut(&(flow.source, flow.stream))?.fetch.as_mut()
    }

    /// Brings what servers have sent. Returns whether there may be more at once.
    pub(super) fn turn(
        &mut self,
        now: Monotonic,
        arrivals: &Arrivals,
        inlet: &mut Inlet,
    ) -> Result<bool, TcpError> {
        self.courses.retain(|(source, stream), course| {
            let is_even = course.fetch.is_none() && arrivals.is_even(*source, *stream);
            course.catches_up &= !is_even;
            course.catches_up || course.fetch.is_some()
        });
        if self.pending == 0 {
            return Ok(false);
        }
        let (poller, nonces) = match &mut self.poller {
            Some(known) => known,
            none => none.insert((Poller::new().map_err(TcpError::Watch)?, Nonces::open()?)),
        };
        let Self { settings, identity, random, courses, done, .. } = self;
        let mut has_more = poller.ready(|token, can_read, can_write| {
            let Token::Connection(index) = token else { return };
            let servers = courses.values_mut().filter_map(|it| it.fetch.as_mut()?.server.as_mut());
            for server in servers.filter(|server| server.index == index) {
                server.dial.is_ready(can_read, can_write);
            }
        })?;
        let mut taken: Vec<usize> = courses
            .values()
            .filter_map(|it| Some(it.fetch.as_ref()?.server.as_ref()?.index))
            .collect();
        for ((source, stream), course) in courses.iter_mut() {
            let Some(fetch) = &mut course.fetch else { continue };
            let mark = arrivals.marks().find(|(one, other, _)| (one, other) == (source, stream));
            if let Some((.., mark)) = mark.filter(|(.., mark)| mark.series == course.flow.series)
                && fetch.missing.until.is_none()
            {
                fetch.missing.ends_at(mark.next);
            }
            let Some(address) = course.address else {
                finish(course, Some(Failure::NoServer), inlet, done);
                continue;
            };
            if fetch.missing.is_over() {
                finish(course, None, inlet, done);
                continue;
            }
            if fetch.server.is_none() {
                let free = (0..MAX_SERVERS).find(|index| !taken.contains(index));
                let Some(index) = free else {
                    // It waits for its turn, not for a server.
                    fetch.moved = now;
                    if now.since(course.since) >= settings.limit_ns {
                        finish(course, Some(Failure::Late), inlet, done);
                    }
                    continue;
                };
                taken.push(index);
                let most = settings.message_max_bytes;
                let server = Server::new(address, index, identity, most, random, now)?;
                fetch.server = Some(Box::new(server));
            }
            let Some(server) = &mut fetch.server else { continue };
            if fetch.messages > 0 {
                point(CrashPoint::FetchPublished);
            }
            server.dial.complete(now, &mut || nonces.nonce())?;
            let mut progress = Progress::new(course.flow, &mut fetch.missing, inlet);
            server.dial.read(now, &mut progress, |it| !it.inlet.is_full());
            let (brought, is_other) = (progress.brought, progress.is_other);
            fetch.messages += brought;
            done.counters.messages += brought;
            if brought > 0 {
                point(CrashPoint::FetchStaged);
            }
            if brought > 0 || inlet.is_full() {
                fetch.moved = now;
            }
            let mut failure = is_other.then_some(Failure::NoStream);
            while let Some(change) = server.dial.change(now, poller) {
                match change {
                    Change::Live if !server.serves(course.flow) => {
                        failure = Some(Failure::NoStream);
                    }
                    Change::Live => {}
                    // If it has served us, a frame was changed or taken out on its way.
                    Change::Down(reason @ (Bye::Refused | Bye::Patterns), _)
                        if server.dial.client.counters().connections == 0 =>
                    {
                        failure = Some(Failure::Refused(reason));
                    }
                    // It is back soon, and has what is missing.
                    Change::Down(Bye::Ended, _) => fetch.moved = now,
                    Change::Down(_, error) => fetch.error = error.or(fetch.error.take()),
                }
            }
            server.ask(now, course.flow, &mut fetch.missing);
            server.dial.write(now);
            has_more |= server.dial.has_input() && !inlet.is_full();
            if failure.is_none() && now.since(course.since) >= settings.limit_ns {
                failure = Some(Failure::Late);
            }
            if failure.is_none() && now.since(fetch.moved) >= STALL_NS {
                failure = Some(Failure::Unreachable(fetch.error.take()));
            }
            if failure.is_some() || fetch.missing.is_over() {
                finish(course, failure, inlet, done);
                has_more = true;
            }
        }
        self.pending = self.courses.values().filter(|course| course.fetch.is_some()).count();
        Ok(has_more)
    }

    /// Returns when it must have a turn next.
    pub(super) fn poll_timeout(&self) -> Option<Monotonic> {
        let all = self.courses.values();
        let pending = all.filter_map(|course| Some((course.since, course.fetch.as_ref()?)));
        let due = pending.flat_map(|(since, fetch)| {
            let client = fetch.server.as_ref().and_then(|server| server.poll_timeout());
            let late = since.after(self.settings.limit_ns);
            [client, Some(late), Some(fetch.moved.after(STALL_NS))]
        });
        due.flatten().min()
    }

    /// Returns a descriptor that can be read when a server has sent something.
    pub(super) fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.poller.as_ref().filter(|_| self.pending > 0).map(|(poller, _)| poller.wakes())
    }
}

/// Reports what was not brought, and hands over what is held, up to the next part that is missing.
fn finish(course: &mut Course, failure: Option<Failure>, inlet: &mut Inlet, done: &mut Done) {
    let Some(mut fetch) = course.fetch.take() else { return };
    let flow = course.flow;
    inlet.end_history(flow.source, flow.stream);
    let may_go_on = failure.is_none();
    let lost = if may_go_on { fetch.missing.shortfall() } else { fetch.missing.rest() };
    if let Some(lost) = lost {
        inlet.loss(flow, lost);
    }
    let (address, messages) = (course.address, fetch.messages);
    if messages > 0 || failure.is_some() {
        done.counters.end(failure.as_ref());
    }
    if done.reports.len() < MAX_REPORTS && (messages > 0 || failure.is_some()) {
        let Flow { source, stream, .. } = flow;
        done.reports.push_back(Fetched { source, stream, address, messages, failure });
    }
    // What follows is not asked for after a failure: it would wait for as long again.
    course.catches_up &= may_go_on;
    while let Some(held) = fetch.held.pop_front() {
        match held {
            Held::Message { number: message, start, sent, bytes } => {
                inlet.message(flow, Message { message, start, sent, parts: Parts::one(&bytes) });
            }
            Held::Loss(loss) => match Missing::of(&loss).filter(|_| may_go_on) {
                Some(missing) => {
                    (fetch.missing, fetch.server, fetch.messages) = (missing, None, 0);
                    fetch.moved = now().monotonic;
                    course.fetch = Some(fetch);
                    return;
                }
                None => inlet.loss(flow, loss),
            },
            Held::End(end) => inlet.ends(flow, end),
        }
    }
}
