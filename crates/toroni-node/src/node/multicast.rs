//! Events of a feed by multicast: a member that leads sends them, and the follower of a host that is no member receives them.
//!
//! ```text
//!  member ─► Live ─► thread `toroni-feed-out` ─► group ─► thread `toroni-feed-in` ─► Live ─► follower
//! ```
//!
//! A message of the stream is some events with what was before them: what a member answers to who asks for events. Its topic
//! is the name of the feed. The stream is one of the node, [`config::FEED_STREAM`], with losses, repairs and restarts as those
//! of every stream. What it loses for good, or has no room for, followers ask members for. So a failure of the sockets ends
//! nothing: they are opened again, and meanwhile events come over TCP.
//!
//! | memory | at most |
//! |---|---|
//! | queue before the sender | 4 MiB (`live.rs`) |
//! | what was packed for the sender | 1 MiB and a message |
//! | the sender's window | 16 to 64 MiB, by its rate (`Sequencer::stream`) |
//! | datagrams and messages that were received | 64 MiB and 32 MiB (`Direct`) |
//! | queue before the follower | 8 MiB (`live.rs`) |

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni_net::direct::{Direct, DirectError, Receive, Received, Send, SendError, Settings};
use toroni_net::membership::Membership;
use toroni_net::node::config;
use toroni_net::node::link::to_socket;
use toroni_proto::arrivals::Event;
use toroni_sequencer::feed::Live;
use toroni_sequencer::rpc::Events;

/// At most this many messages, of about this many bytes, are packed at once.
const BATCH: (usize, usize) = (64, 1 << 20);
/// An idle thread checks this often whether it must end.
const LOOK: Duration = Duration::from_millis(200);
/// How long a stream takes to end at most.
const END_TIME: Duration = Duration::from_millis(500);
/// While the follower has no room, it is checked this often.
const NO_ROOM: Duration = Duration::from_millis(5);
/// The longest message: an entry after others, or a long command.
const LONGEST_MESSAGE: usize = 2 << 20;
/// After a failure, the sockets are opened again. Meanwhile events come over TCP.
const AGAIN: Duration = Duration::from_secs(1);

/// A thread that sends, or one that receives.
pub(super) struct Multicast {
    shared: Arc<Shared>,
    live: Live,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ends: AtomicBool,
    counts: Counts,
    problem: Mutex<Option<String>>,
}

/// What the thread has counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Messages that were sent, or were received.
    pub(super) messages: AtomicU64,
    /// Events in them.
    pub(super) events: AtomicU64,
    /// Messages that were lost on the way, or could not be read.
    pub(super) lost: AtomicU64,
    /// Datagrams that were sent again.
    pub(super) repaired: AtomicU64,
}

/// What sends or receives.
trait Work: std::marker::Send + 'static {
    /// Does what can be done, and waits for more, for a moment.
    fn turn(&mut self, direct: &mut Direct, counts: &Counts) -> Result<(), DirectError>;
    /// Ends in order.
    fn end(&mut self, direct: &mut Direct) -> Result<(), DirectError>;
}

impl Multicast {
    /// Starts to send what comes out of the queue that it returns.
    pub(super) fn sender(
        section: &config::Sequencer,
        member: &Membership,
        group: SocketAddr,
    ) -> Result<(Self, Live), String> {
        let send = Send {
            stream: config::FEED_STREAM,
            patterns: vec![section.feed.clone()],
            config: section.stream(),
            to: vec![group],
        };
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = wake.map_err(|error| format!("cannot start to send events: {error}"))?;
        let wake = Arc::new(wake);
        let waker = Arc::clone(&wake);
        let live = Live::to_send(move || {
            // It fails only where it is readable already.
            let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
        });
        let (topic, packed) = (section.feed.clone(), VecDeque::new());
        let work = Sending { topic, live: live.clone(), packed, wake };
        let started =
            Self::start("toroni-feed-out", section, member, Some(send), None, &live, work);
        Ok((started?, live))
    }

    /// Starts to put what it receives into a queue.
    pub(super) fn receiver(
        section: &config::Sequencer,
        member: &Membership,
        group: SocketAddr,
        live: &Live,
    ) -> Result<Self, String> {
        let receive = Receive { groups: vec![group], config: section.stream() };
        let work = Receiving { topic: section.feed.clone(), live: live.clone() };
        Self::start("toroni-feed-in", section, member, None, Some(receive), live, work)
    }

    fn start(
        thread: &str,
        section: &config::Sequencer,
        member: &Membership,
        send: Option<Send>,
        receive: Option<Receive>,
        live: &Live,
        mut work: impl Work,
    ) -> Result<Self, String> {
        let mut member = member.clone();
        let stream = section.stream();
        (member.sockets.ttl, member.sockets.is_looped) = (stream.ttl, stream.loopback);
        let settings = Settings { member, send, receive };
        let mut direct = Direct::open(&settings).map_err(|error| {
            format!("cannot open the group of the feed {}: {error}", section.feed)
        })?;
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            counts: Counts::default(),
            problem: Mutex::new(None),
        });
        let of_thread = Arc::clone(&shared);
        let run = move || {
            while let Err(problem) = of_thread.run(&mut direct, &mut work) {
                of_thread.set_problem(Some(problem));
                let Some(opened) = of_thread.open_again(&settings) else { return };
                direct = opened;
                of_thread.set_problem(None);
            }
        };
        let started = std::thread::Builder::new().name(thread.to_owned()).spawn(run);
        let thread = started.map_err(|error| format!("cannot start {thread}: {error}"))?;
        Ok(Self { shared, live: live.clone(), thread: Some(thread) })
    }

    /// Returns what was counted.
    pub(super) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Returns how many events found no room in the queue.
    pub(super) fn dropped(&self) -> u64 {
        self.live.dropped()
    }

    /// Returns why no event goes this way now, if that is so.
    pub(super) fn problem(&self) -> Option<String> {
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        // A panic was printed.
        let ended = ended.then(|| "its thread has ended".to_owned());
        ended.or_else(|| self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Drop for Multicast {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Works until the end, or until it cannot go on.
    fn run(&self, direct: &mut Direct, work: &mut impl Work) -> Result<(), String> {
        while !self.ends() {
            work.turn(direct, &self.counts).map_err(|error| error.to_string())?;
            if let Some(problem) = collision(direct) {
                return Err(problem);
            }
        }
        work.end(direct).map_err(|error| error.to_string())
    }

    /// Opens the sockets again, as often as that takes. None at the end.
    fn open_again(&self, settings: &Settings) -> Option<Direct> {
        loop {
            let begun = Instant::now();
            while begun.elapsed() < AGAIN {
                if self.ends() {
                    return None;
                }
                std::thread::sleep(LOOK);
            }
            match Direct::open(settings) {
                Ok(direct) => return Some(direct),
                Err(error) => self.set_problem(Some(error.to_string())),
            }
        }
    }
}

struct Sending {
    topic: String,
    live: Live,
    /// Messages that are to be sent next.
    packed: VecDeque<Vec<u8>>,
    wake: Arc<OwnedFd>,
}

impl Work for Sending {
    fn turn(&mut self, direct: &mut Direct, counts: &Counts) -> Result<(), DirectError> {
        direct.turn()?;
        // Before the queue is looked at: what comes later wakes again.
        let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
        self.pack(counts);
        let mut patience = LOOK;
        if !self.packed.is_empty() {
            match direct.try_send_all(&self.topic, self.packed.make_contiguous()) {
                Ok(sent) => {
                    self.packed.drain(..sent);
                    counts.messages.fetch_add(sent as u64, Ordering::Relaxed);
                    // There may be more. But receivers that lack something are heard first.
                    patience = Duration::ZERO;
                }
                // The rate allows more later.
                Err(SendError::Full) => {}
                Err(SendError::Direct(error)) => return Err(error),
                // Followers ask for it.
                Err(_) => {
                    self.packed.pop_front();
                    counts.lost.fetch_add(1, Ordering::Relaxed);
                    patience = Duration::ZERO;
                }
            }
        }
        if let Some(counters) = direct.sender_counters() {
            counts.repaired.store(counters.repairs, Ordering::Relaxed);
        }
        direct.sleep_beside(Some(patience), [self.wake.as_fd()])
    }

    /// Followers that lack something still get it, for a moment, and learn that no more comes.
    fn end(&mut self, direct: &mut Direct) -> Result<(), DirectError> {
        direct.end();
        let begun = Instant::now();
        while !direct.is_closed() && begun.elapsed() < END_TIME {
            direct.turn()?;
            direct.sleep(Some(NO_ROOM))?;
        }
        Ok(())
    }
}

impl Sending {
    /// Packs what the queue has, up to a batch.
    fn pack(&mut self, counts: &Counts) {
        let mut bytes: usize = self.packed.iter().map(Vec::len).sum();
        while self.packed.len() < BATCH.0
            && bytes < BATCH.1
            && let Some(events) = self.live.pop(Duration::ZERO)
        {
            let mut message = Vec::with_capacity(events.encoded_bytes());
            events.encode(&mut message);
            counts.events.fetch_add(events.count(), Ordering::Relaxed);
            bytes += message.len();
            self.packed.push_back(message);
        }
    }
}

struct Receiving {
    topic: String,
    live: Live,
}

impl Work for Receiving {
    fn turn(&mut self, direct: &mut Direct, counts: &Counts) -> Result<(), DirectError> {
        if !self.live.has_room(LONGEST_MESSAGE) {
            // The follower waits for a subscriber. What comes meanwhile waits in the stream's own memory.
            direct.turn()?;
            return direct.sleep(Some(NO_ROOM));
        }
        match direct.receive(LOOK)? {
            Some(Received::Message { flow, topic, payload, .. })
                if flow.stream == config::FEED_STREAM && topic == self.topic =>
            {
                if let Ok(events) = Events::decode(payload) {
                    counts.messages.fetch_add(1, Ordering::Relaxed);
                    counts.events.fetch_add(events.count(), Ordering::Relaxed);
                    self.live.push(events);
                } else {
                    counts.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(Received::Lost { flow, loss }) if flow.stream == config::FEED_STREAM => {
                counts.lost.fetch_add(loss.count, Ordering::Relaxed);
            }
            // Another stream in the same group.
            Some(_) | None => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Direct) -> Result<(), DirectError> {
        Ok(())
    }
}

/// Returns why this process cannot take part, if another one was first.
fn collision(direct: &mut Direct) -> Option<String> {
    while let Some(event) = direct.event() {
        if let Event::Collision { address, stop: true } = event {
            let other = DirectError::Collision(to_socket(address));
            return Some(other.to_string());
        }
    }
    None
}
