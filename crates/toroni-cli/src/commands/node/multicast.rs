//! Events of a feed by multicast: a member that leads sends them, and the follower of a host that is no member receives them.
//!
//! ```text
//!  member ─► Live ─► thread `toroni-feed-out` ─► group ─► thread `toroni-feed-in` ─► Live ─► follower
//! ```
//!
//! A message of the stream is some events with what was before them: what a member answers to who asks for events. Its topic
//! is the name of the feed. The stream is one of the node, [`config::FEED_STREAM`], with losses, repairs and restarts as those
//! of every stream. What it loses for good, or has no room for, followers ask members for.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni_net::direct::{Direct, DirectError, Receive, Received, Send, SendError, Settings};
use toroni_net::membership::Membership;
use toroni_net::node::config;
use toroni_net::node::link::to_socket;
use toroni_proto::arrivals::Event;
use toroni_sequencer::feed::Live;
use toroni_sequencer::rpc::Events;

/// So many messages are packed at once.
const BATCH: usize = 64;
/// A thread without anything to do looks so often whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// How long a stream takes to end at most.
const END_TIME: Duration = Duration::from_millis(500);
/// While the follower has no room, it is looked at so often.
const NO_ROOM: Duration = Duration::from_millis(5);

/// A thread that sends, or one that receives.
pub(super) struct Multicast {
    ends: Arc<AtomicBool>,
    counts: Arc<Counts>,
    live: Live,
    thread: Option<JoinHandle<Result<(), String>>>,
}

/// What the thread has counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Messages that were sent, or were received.
    pub(super) messages: AtomicU64,
    /// Events in them.
    pub(super) events: AtomicU64,
    /// Messages that were lost on the way, or were none of this feed.
    pub(super) lost: AtomicU64,
    /// Datagrams that were sent again.
    pub(super) repaired: AtomicU64,
}

impl Multicast {
    /// Starts to send what comes out of the queue that it returns.
    pub(super) fn sender(
        section: &config::Sequencer,
        member: &Membership,
        group: SocketAddr,
    ) -> Result<(Self, Live), String> {
        let config = section.stream();
        let send = Send {
            stream: config::FEED_STREAM,
            patterns: vec![section.feed.clone()],
            config,
            to: vec![group],
        };
        let direct = open(section, member, Some(send), None)?;
        let cannot = |error: io::Error| format!("cannot start to send events: {error}");
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = Arc::new(wake.map_err(|error| cannot(error.into()))?);
        let waker = Arc::clone(&wake);
        let live = Live::with_wake(move || {
            // It fails only where it is readable already.
            let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
        });
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let mut sending = Sending {
            direct,
            topic: section.feed.clone(),
            live: live.clone(),
            packed: VecDeque::new(),
            counts: Arc::clone(&counts),
            wake,
        };
        let until = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name("toroni-feed-out".to_owned());
        let thread = thread.spawn(move || sending.run(&until)).map_err(cannot)?;
        Ok((Self { ends, counts, live: live.clone(), thread: Some(thread) }, live))
    }

    /// Starts to put what it receives into a queue.
    pub(super) fn receiver(
        section: &config::Sequencer,
        member: &Membership,
        group: SocketAddr,
        live: Live,
    ) -> Result<Self, String> {
        let receive = Receive { groups: vec![group], config: section.stream() };
        let direct = open(section, member, None, Some(receive))?;
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let mut receiving = Receiving {
            direct,
            topic: section.feed.clone(),
            live: live.clone(),
            counts: Arc::clone(&counts),
        };
        let until = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name("toroni-feed-in".to_owned());
        let thread = thread
            .spawn(move || receiving.run(&until))
            .map_err(|error| format!("cannot start to receive events: {error}"))?;
        Ok(Self { ends, counts, live, thread: Some(thread) })
    }

    /// Returns what was counted.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns how many events found no room in the queue.
    pub(super) fn dropped(&self) -> u64 {
        self.live.dropped()
    }

    /// Returns why it has ended, if it has.
    pub(super) fn problem(&mut self) -> Option<String> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        match thread.join() {
            Ok(Err(problem)) => Some(problem),
            // A panic was printed.
            _ => Some("its thread has ended".to_owned()),
        }
    }
}

impl Drop for Multicast {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(
    section: &config::Sequencer,
    member: &Membership,
    send: Option<Send>,
    receive: Option<Receive>,
) -> Result<Direct, String> {
    let mut member = member.clone();
    let stream = section.stream();
    (member.sockets.ttl, member.sockets.is_looped) = (stream.ttl, stream.loopback);
    let opened = Direct::open(&Settings { member, send, receive });
    opened.map_err(|error| format!("cannot open the group of the feed {}: {error}", section.feed))
}

struct Sending {
    direct: Direct,
    topic: String,
    live: Live,
    /// Messages that are to be sent next.
    packed: VecDeque<Vec<u8>>,
    counts: Arc<Counts>,
    wake: Arc<OwnedFd>,
}

impl Sending {
    fn run(&mut self, ends: &AtomicBool) -> Result<(), String> {
        while !ends.load(Ordering::Relaxed) {
            self.turn().map_err(|error| error.to_string())?;
            if let Some(problem) = collision(&mut self.direct) {
                return Err(problem);
            }
        }
        // Followers that lack something still get it, for a moment, and learn that no more comes.
        self.direct.end();
        let begun = Instant::now();
        while !self.direct.is_closed() && begun.elapsed() < END_TIME {
            let closed = self.direct.turn().and_then(|()| self.direct.sleep(Some(NO_ROOM)));
            closed.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), DirectError> {
        self.direct.turn()?;
        // Before the queue is looked at: what comes later wakes again.
        let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
        while self.pack() {
            match self.direct.try_send_all(&self.topic, self.packed.make_contiguous()) {
                Ok(sent) => {
                    self.packed.drain(..sent);
                    self.counts.messages.fetch_add(sent as u64, Ordering::Relaxed);
                }
                // The rate allows more later.
                Err(SendError::Full) => break,
                Err(SendError::Direct(error)) => return Err(error),
                // Followers ask for it.
                Err(_) => {
                    self.packed.pop_front();
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if let Some(counters) = self.direct.sender_counters() {
            self.counts.repaired.store(counters.repairs, Ordering::Relaxed);
        }
        self.direct.sleep_beside(Some(LOOK), [self.wake.as_fd()])
    }

    /// Packs what the queue has. Returns whether there is anything to send.
    fn pack(&mut self) -> bool {
        while self.packed.len() < BATCH
            && let Some(events) = self.live.pop(Duration::ZERO)
        {
            let mut message = Vec::with_capacity(events.encoded_bytes());
            events.encode(&mut message);
            self.counts.events.fetch_add(events.end() - events.before().next, Ordering::Relaxed);
            self.packed.push_back(message);
        }
        !self.packed.is_empty()
    }
}

struct Receiving {
    direct: Direct,
    topic: String,
    live: Live,
    counts: Arc<Counts>,
}

impl Receiving {
    fn run(&mut self, ends: &AtomicBool) -> Result<(), String> {
        while !ends.load(Ordering::Relaxed) {
            self.turn().map_err(|error| error.to_string())?;
            if let Some(problem) = collision(&mut self.direct) {
                return Err(problem);
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), DirectError> {
        if !self.live.has_room(LONGEST_RUN) {
            // The follower waits for a subscriber. What comes meanwhile waits in the stream's own memory.
            self.direct.turn()?;
            return self.direct.sleep(Some(NO_ROOM));
        }
        match self.direct.receive(LOOK)? {
            Some(Received::Message { flow, topic, payload, .. })
                if flow.stream == config::FEED_STREAM && topic == self.topic =>
            {
                if let Ok(events) = Events::decode(payload) {
                    let count = events.end() - events.before().next;
                    self.counts.messages.fetch_add(1, Ordering::Relaxed);
                    self.counts.events.fetch_add(count, Ordering::Relaxed);
                    self.live.push(events);
                } else {
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            // Another feed in the same group.
            Some(Received::Message { .. }) | None => {}
            Some(Received::Lost { loss, .. }) => {
                self.counts.lost.fetch_add(loss.count, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Room for a run of events of usual length.
const LONGEST_RUN: usize = 128 << 10;

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
