//! Endpoint: a [`Direct`] that is opened from a configuration, and has one descriptor to wait for.
//!
//! ```text
//!   file in TOML ──► Direct ──► sockets ─┐
//!                      │                 ├──► epoll: one descriptor, readable when there is something to do
//!                      └─ next timer ────┘
//! ```
//!
//! It is what programs in C and Python use. Everything happens in the thread that calls: what it sends is repaired, and what it
//! receives is acknowledged, while it is in one of the calls. A program that waits for other things, too, calls
//! [`Endpoint::receive`] without a timeout whenever the descriptor is readable.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::direct::{Direct, DirectError, Receive, Received, Send, SendError, Settings};
use crate::node;
use crate::node::config::{self, Severity};
use crate::node::link::to_socket;
use crate::node::start::{self, StartError, Unsupported};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;
use toroni_proto::arrivals;
use toroni_proto::wire::Policy;

/// Why an endpoint cannot be opened.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The configuration is wrong. The text has a line for each error, with its place.
    #[error("the configuration is wrong:\n{0}")]
    Configuration(String),
    /// The file cannot be read.
    #[error("cannot read the configuration: {0}")]
    File(io::Error),
    /// It asks for what this host does not have, or what needs a bus.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The sockets cannot be opened.
    #[error(transparent)]
    Direct(#[from] DirectError),
    /// The descriptor cannot be made.
    #[error("cannot make the descriptor: {0}")]
    Descriptor(#[from] io::Error),
}

/// A program's own end of the network.
pub struct Endpoint {
    direct: Direct,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// How often sockets had been opened again when they were last watched, and of each, whether the descriptor is readable
    /// when it has room.
    watched: (u64, Vec<bool>),
}

impl Endpoint {
    /// Opens what the text of a configuration describes: that of a node, without a bus. `folder` is where its relative paths
    /// begin.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn open(text: &str, folder: &Path) -> Result<Self, EndpointError> {
        let reading = config::read(text, folder);
        let Some(node) = reading.node else {
            let is_error = |finding: &&config::Finding| finding.severity == Severity::Error;
            let lines: Vec<String> =
                reading.findings.iter().filter(is_error).map(ToString::to_string).collect();
            return Err(EndpointError::Configuration(lines.join("\n")));
        };
        let direct = Direct::open(&settings(&node)?)?;
        let error = |error: rustix::io::Errno| io::Error::from(error);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(error)?;
        // Which of them it is does not matter.
        let none = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &timer, none, epoll::EventFlags::IN).map_err(error)?;
        let watched = (direct.link().reopened(), watch(&epoll, &direct).map_err(error)?);
        let mut endpoint = Self { direct, epoll, timer, watched };
        endpoint.turn()?;
        Ok(endpoint)
    }

    /// Reads a file, and opens what it describes.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn open_file(path: &Path) -> Result<Self, EndpointError> {
        let text = std::fs::read_to_string(path).map_err(EndpointError::File)?;
        Self::open(&text, path.parent().unwrap_or(Path::new("")))
    }

    /// Sends a message. If the stream's rate does not allow it yet, waits until it does, at most for `timeout`.
    ///
    /// # Errors
    /// [`SendError::Full`] if the time is over; otherwise see [`SendError`]. The message was not sent then.
    pub fn send(
        &mut self,
        topic: &str,
        payload: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // A program may do nothing but send.
        if self.direct.deadline().is_zero() {
            self.turn()?;
        }
        loop {
            match self.direct.try_send(topic, payload) {
                Err(SendError::Full) => {}
                outcome => {
                    self.arm();
                    return outcome;
                }
            }
            self.turn()?;
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(SendError::Full);
            }
            self.direct.sleep(left)?;
        }
    }

    /// Waits for the next message or loss, at most for `timeout`; without one, for ever. Meanwhile it does what
    /// [`Self::turn`] does.
    ///
    /// # Errors
    /// If a socket cannot be used.
    pub fn receive(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Received<'_>>, DirectError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while !self.direct.has_received() {
            self.turn()?;
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if self.direct.has_received() {
                break;
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.direct.sleep(left)?;
        }
        self.direct.try_receive()
    }

    /// Does what is due: repairs, reports to senders, reading. A program that only sends calls it when the descriptor is
    /// readable.
    ///
    /// # Errors
    /// If a socket cannot be used.
    pub fn turn(&mut self) -> Result<(), DirectError> {
        self.direct.turn()?;
        self.arm();
        while let Some(event) = self.direct.event() {
            if let arrivals::Event::Collision { address, stop: true } = event {
                return Err(DirectError::Collision(to_socket(address)));
            }
        }
        // The other events are counted elsewhere, or of no use without a log.
        while self.direct.sender_event().is_some() {}
        Ok(())
    }

    /// Makes the descriptor readable when there is something to do: at the next time of the timer, which is now if messages
    /// were received and not taken, and when a socket has room for what waits.
    fn arm(&mut self) {
        let none = epoll::EventData::new_u64(0);
        let (known, waits) = &mut self.watched;
        let reopened = self.direct.link().reopened();
        // Those that were closed are watched no longer.
        if *known != reopened
            && let Ok(again) = watch(&self.epoll, &self.direct)
        {
            (*known, *waits) = (reopened, again);
        }
        for ((socket, waits), watched) in self.direct.descriptors().zip(waits) {
            if waits != *watched {
                let room = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                // It fails only for descriptors that are not there.
                let _ = epoll::modify(&self.epoll, socket, none, epoll::EventFlags::IN | room);
                *watched = waits;
            }
        }
        let left = if self.direct.has_received() { Duration::ZERO } else { self.direct.deadline() };
        // Zero would stop the timer.
        let left = left.max(Duration::from_nanos(1));
        let it_value =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // It fails only for wrong values. Setting it also takes back that it had expired.
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval, it_value },
        );
    }

    /// Returns how many streams of others have begun. One that has ended counts until another one needs its place.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.direct.streams()
    }

    /// Ends the stream, and repairs what others miss until no receiver can ask any more, at most for `linger`. Returns
    /// whether the repairs are over.
    ///
    /// # Errors
    /// If a socket cannot be used.
    pub fn end(&mut self, linger: Duration) -> Result<bool, DirectError> {
        let deadline = Instant::now().checked_add(linger);
        self.direct.end();
        loop {
            self.turn()?;
            let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if self.direct.is_closed() || left.is_some_and(|left| left.is_zero()) {
                return Ok(self.direct.is_closed());
            }
            self.direct.sleep(left)?;
        }
    }
}

/// Watches all sockets until they can be read. Returns for each whether it is watched until it has room, too.
fn watch(epoll: &OwnedFd, direct: &Direct) -> rustix::io::Result<Vec<bool>> {
    let none = epoll::EventData::new_u64(0);
    let watch = |(socket, _)| match epoll::add(epoll, socket, none, epoll::EventFlags::IN) {
        Err(Errno::EXIST) => epoll::modify(epoll, socket, none, epoll::EventFlags::IN),
        other => other,
    };
    direct.descriptors().map(|it| watch(it).map(|()| false)).collect()
}

/// Returns what a program that takes part itself does with a configuration. Opens no socket, and no bus at all.
fn settings(config: &config::Node) -> Result<Settings, StartError> {
    let refused = needs_a_node(config);
    if !refused.is_empty() {
        return Err(StartError::Unsupported(refused));
    }
    let interfaces = start::interfaces(config)?;
    start::check_interfaces(config, &interfaces)?;
    let member = start::member(config, interfaces, start::keys(config)?, None)?;
    let mtu = member.interfaces.iter().map(|interface| interface.mtu).min();
    let send = config.sends.first().map(|send| {
        let patterns = send.patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect();
        let node::Send { stream, config, to, .. } = start::sending(send, mtu);
        Send { stream, patterns, config, to }
    });
    let receive = config.receives.first().map(|first| Receive {
        groups: config.receives.iter().map(|receive| receive.group).collect(),
        config: first.config.clone(),
    });
    Ok(Settings { member, send, receive })
}

/// Returns the settings that have an effect only in a node, which has a bus.
fn needs_a_node(config: &config::Node) -> Vec<Unsupported> {
    let mut all = Vec::new();
    let mut is = |given: bool, section, index, key| {
        if given {
            let problem = "has an effect only in a node, which has a bus: leave it out".to_owned();
            all.push(Unsupported { section, index, key, problem });
        }
    };
    is(config.state.is_some(), "node", 0, Some("state"));
    is(config.is_busy, "node", 0, Some("poll"));
    is(config.cpu.is_some(), "node", 0, Some("cpu"));
    is(config.realtime.is_some(), "node", 0, Some("realtime"));
    is(config.strict_buffers, "node", 0, Some("strict_buffers"));
    is(config.listen.is_some(), "listen", 0, None);
    is(!config.connects.is_empty(), "connect", 0, None);
    is(config.sequencer.is_some(), "sequencer", 0, None);
    for (index, send) in config.sends.iter().enumerate() {
        is(index > 0, "send", index, None);
        is(!send.prefix.is_empty(), "send", index, Some("prefix"));
        is(!send.express.is_empty(), "send", index, Some("express"));
        is(send.config.policy == Policy::Slowest, "send", index, Some("policy"));
    }
    for (index, receive) in config.receives.iter().enumerate() {
        let accepts_all = receive.accept.iter().any(|pattern| pattern.as_str() == "**");
        is(!accepts_all, "receive", index, Some("accept"));
        is(!receive.prefix.is_empty(), "receive", index, Some("prefix"));
        is(!receive.sources.is_empty(), "receive", index, Some("sources"));
        is(receive.is_required, "receive", index, Some("required"));
        is(receive.lost_scope.is_some(), "receive", index, Some("lost_scope"));
        is(receive.retains, "receive", index, Some("retain"));
        is(receive.into.is_some(), "receive", index, Some("into"));
        is(receive.join != config::Join::Live, "receive", index, Some("join"));
        is(receive.config != config.receives[0].config, "receive", index, None);
    }
    all
}

impl AsFd for Endpoint {
    /// Returns a descriptor that is readable when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::os::fd::AsRawFd;
    use toroni_testkit::network::{Host, Setup};

    const LIMIT: Duration = Duration::from_secs(60);

    /// Tests run at the same time, on one host: each has a realm of its own.
    fn text(name: &str, sections: &str) -> String {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        format!(
            "[node]\nrealm = '{process} {thread:?}'\nname = '{name}'\ninterfaces = ['lo']\n{sections}"
        )
    }

    fn group() -> String {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        format!("239.192.84.79:{}", free.local_addr().unwrap().port())
    }

    fn pair() -> (Endpoint, Endpoint) {
        let group = group();
        let send = format!(
            "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '50Mbit/s'\nloop = true\nttl = 0\n\
             generation = '4s'\n"
        );
        let receive = format!("[[receive]]\ngroup = '{group}'\ngeneration = '4s'\n");
        let open = |name, sections: &str| Endpoint::open(&text(name, sections), Path::new("/"));
        (open("a", &send).unwrap(), open("b", &receive).unwrap())
    }

    #[test]
    fn the_descriptor_is_readable_when_there_is_something_to_do() {
        let (mut sender, mut receiver) = pair();
        let begin = Instant::now();
        while receiver.streams() == 0 {
            assert!(begin.elapsed() < LIMIT, "the receiver hears nothing");
            sender.turn().unwrap();
            receiver.turn().unwrap();
        }
        for number in 0..100 {
            sender.send("t", format!("{number}").as_bytes(), Some(LIMIT)).unwrap();
        }
        // Only by the descriptor, one message at a time: what was read together is announced again.
        let mut got = 0;
        while got < 100 {
            assert!(begin.elapsed() < LIMIT, "{got} of 100 messages came");
            let mut polled =
                [PollFd::new(&receiver, PollFlags::IN), PollFd::new(&sender, PollFlags::IN)];
            poll(&mut polled, None).unwrap();
            sender.turn().unwrap();
            if let Some(received) = receiver.receive(Some(Duration::ZERO)).unwrap() {
                let Received::Message { payload, .. } = received else { panic!("{received:?}") };
                assert_eq!(payload, format!("{got}").as_bytes());
                got += 1;
            }
        }
        assert!(sender.end(LIMIT).unwrap());
        assert!(matches!(sender.send("t", b"", None), Err(SendError::Ended)));
    }

    #[test]
    fn messages_that_are_not_taken_wait_in_bounded_memory() {
        const COUNT: u64 = 2_000;
        let (mut sender, mut receiver) = pair();
        receiver.direct.limit_queue(10_000);
        let begin = Instant::now();
        while receiver.streams() == 0 {
            assert!(begin.elapsed() < LIMIT, "the receiver hears nothing");
            sender.turn().unwrap();
            receiver.turn().unwrap();
        }
        for number in 0..COUNT {
            sender.send("t", number.to_string().as_bytes(), Some(LIMIT)).unwrap();
            sender.turn().unwrap();
            receiver.turn().unwrap();
            let queued = receiver.direct.queued_bytes();
            assert!(queued < 11_000, "{queued} bytes wait");
        }
        let mut next = 0;
        while next < COUNT {
            assert!(begin.elapsed() < LIMIT, "{next} of {COUNT} messages came");
            sender.turn().unwrap();
            match receiver.receive(Some(Duration::ZERO)).unwrap() {
                Some(Received::Message { payload, .. }) => {
                    assert_eq!(payload, next.to_string().as_bytes());
                    next += 1;
                }
                Some(lost) => panic!("{lost:?}"),
                None => {}
            }
        }
    }

    #[test]
    fn what_waits_for_more_messages_leaves_when_its_delay_is_over() {
        let send = format!(
            "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{}'\ndata_rate = '50Mbit/s'\nttl = 0\n\
             batch_delay = '50ms'\n",
            group()
        );
        let mut sender = Endpoint::open(&text("a", &send), Path::new("/")).unwrap();
        let begin = Instant::now();
        while sender.direct.deadline() < Duration::from_millis(300) {
            assert!(begin.elapsed() < LIMIT, "it never sleeps for long");
            sender.turn().unwrap();
        }
        sender.send("t", b"waits", None).unwrap();
        let left = sender.direct.deadline();
        assert!(left <= Duration::from_millis(50), "the next turn is {left:?} away");
    }

    #[test]
    fn an_idle_descriptor_is_not_readable_all_the_time() {
        let (mut sender, _) = pair();
        // Three sessions in the first 140 ms, and fewer and fewer later.
        let begin = Instant::now();
        let mut turns = 0;
        while begin.elapsed() < Duration::from_secs(1) {
            poll(&mut [PollFd::new(&sender, PollFlags::IN)], None).unwrap();
            sender.turn().unwrap();
            turns += 1;
        }
        assert!(turns < 200, "{turns} turns in a second");
    }

    #[test]
    fn two_with_one_name_do_not_run_on_one_host() {
        let group = group();
        let send = format!(
            "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '1Mbit/s'\nttl = 0\n"
        );
        let receive = format!("[[receive]]\ngroup = '{group}'\n");
        let open = |sections: &str| Endpoint::open(&text("same", sections), Path::new("/"));
        let first = open(&send).unwrap();
        for sections in [&send, &receive] {
            let error = open(sections).map(drop).unwrap_err().to_string();
            let process = format!("(process {}) has the source id ", std::process::id());
            assert!(error.contains(&process), "{error}");
        }
        drop(first);
        open(&receive).unwrap();
    }

    #[test]
    fn what_is_restarted_at_once_is_heard_and_nothing_comes_twice() {
        let group = group();
        let send = format!(
            "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '50Mbit/s'\nloop = true\nttl = 0\n\
             generation = '4s'\n"
        );
        let receive = format!("[[receive]]\ngroup = '{group}'\ngeneration = '4s'\n");
        let open =
            |name, sections: &str| Endpoint::open(&text(name, sections), Path::new("/")).unwrap();
        let mut receiver = open("b", &receive);
        let begin = Instant::now();
        // Each ends without END, as a process that is killed, and the next one sends more datagrams.
        for life in 1..5 {
            let mut sender = open("a", &send);
            let (mut sent, mut got) = (0, 0);
            while got < 10 * life {
                assert!(begin.elapsed() < LIMIT, "{got} of life {life}");
                sender.turn().unwrap();
                // The first life has nothing for those that come later.
                if sent < 10 * life && receiver.streams() > 0 {
                    sender.send("t", format!("{life}.{sent}").as_bytes(), Some(LIMIT)).unwrap();
                    sent += 1;
                }
                match receiver.receive(Some(Duration::from_millis(1))).unwrap() {
                    Some(Received::Message { payload, .. }) => {
                        assert_eq!(String::from_utf8_lossy(payload), format!("{life}.{got}"));
                        got += 1;
                    }
                    // The receiver cannot know what a life sent last.
                    Some(Received::Lost { loss, .. }) => assert_eq!(loss.count, 0, "{loss:?}"),
                    None => {}
                }
            }
        }
    }

    #[test]
    fn the_later_one_of_two_hosts_with_one_name_learns_it() {
        let Some(network) = Setup::new(2).bridged() else { return };
        // Without a key anybody could forge that, and it is no reason to stop.
        let directory = toroni_testkit::Directory::new();
        let key = directory.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let send =
            "key_file = 'key'\n[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '1Mbit/s'\n";
        for sections in [format!("{send}[[receive]]\n"), send.to_owned()] {
            let text = text("same", &sections).replace("'lo'", "'eth0'");
            let open =
                |host: &Host| host.enter(|| Endpoint::open(&text, directory.path()).unwrap());
            let mut ends = [open(&network.hosts[0]), open(&network.hosts[1])];
            let begin = Instant::now();
            // They do nothing but send, and wait for the next time.
            let error = loop {
                assert!(begin.elapsed() < LIMIT, "neither learns it");
                let outcomes = ends.each_mut().map(|end| end.send("t", b"", None));
                if let Some(error) = outcomes.into_iter().find_map(Result::err) {
                    break error;
                }
                poll(&mut ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN)), None)
                    .unwrap();
            };
            assert!(error.to_string().contains("has the same source id"), "{error}");
        }
    }

    #[test]
    fn what_waits_for_room_in_the_kernel_waits_without_a_spin() {
        let Some(network) = Setup::new(2).bridged() else { return };
        let host = &network.hosts[0];
        // No host has the address. What waits for it fills the send buffer, until the kernel gives up after 3 s.
        let queue = "echo 100000000 > /proc/sys/net/ipv4/neigh/eth0/unres_qlen_bytes";
        assert!(host.command("sh").args(["-c", queue]).status().unwrap().success());
        let send = "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '1Gbit/s'\nto = ['10.77.0.99:4479']\n";
        let text = text("a", send).replace("'lo'", "'eth0'");
        let mut sender = host.enter(|| Endpoint::open(&text, Path::new("/")).unwrap());
        let begin = Instant::now();
        // More than the kernel takes, and more than is handed to it at once.
        let mut more = 0;
        while more < 1_000 {
            assert!(begin.elapsed() < LIMIT, "the send buffer is never full");
            match sender.send("t", &[0; 1_000], Some(Duration::ZERO)) {
                Ok(()) | Err(SendError::Full) => {}
                Err(error) => panic!("{error}"),
            }
            more += u32::from(sender.direct.link().is_clogged());
        }
        let (begin, mut turns) = (Instant::now(), 0);
        while sender.direct.link().is_clogged() && begin.elapsed() < Duration::from_millis(500) {
            poll(&mut [PollFd::new(&sender, PollFlags::IN)], None).unwrap();
            sender.turn().unwrap();
            turns += 1;
        }
        assert!(turns < 200, "{turns} turns in {:?}", begin.elapsed());
        // It goes on by the descriptor alone.
        while sender.direct.link().is_clogged() {
            assert!(begin.elapsed() < LIMIT, "it never sends again");
            poll(&mut [PollFd::new(&sender, PollFlags::IN)], None).unwrap();
            sender.turn().unwrap();
        }
    }

    #[test]
    fn sockets_that_are_opened_again_are_watched() {
        let Some(network) = Setup::new(1).bridged() else { return };
        let host = &network.hosts[0];
        let send = "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '1Mbit/s'\n";
        let text = text("a", send).replace("'lo'", "'eth0'");
        let mut sender = host.enter(|| Endpoint::open(&text, Path::new("/")).unwrap());
        host.namespace().ip(&[
            format!("address delete {}/24 dev eth0", host.address()),
            "address add 10.77.0.200/24 dev eth0".to_owned(),
        ]);
        let begin = Instant::now();
        while sender.direct.link().reopened() == 0 {
            assert!(begin.elapsed() < LIMIT, "no socket is opened again");
            host.enter(|| sender.turn().unwrap());
        }
        let path = format!("/proc/self/fdinfo/{}", sender.epoll.as_raw_fd());
        let watched = std::fs::read_to_string(path).unwrap();
        let watched: Vec<&str> = watched
            .lines()
            .filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next())
            .collect();
        for (socket, _) in sender.direct.descriptors() {
            let descriptor = socket.as_raw_fd().to_string();
            assert!(watched.contains(&descriptor.as_str()), "{descriptor} of {watched:?}");
        }
    }

    #[test]
    fn what_needs_a_bus_or_is_wrong_is_refused() {
        let send = "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '1Mbit/s'\n";
        for (sections, wanted) in [
            (
                "[[receive]]\naccept = ['a/**']\n".to_owned(),
                "[[receive]] 1: accept: has an effect only in a node",
            ),
            (format!("{send}prefix = 'x'\n"), "[[send]] 1: prefix: has an effect only in a node"),
            (
                format!("{send}[listen]\naddress = '127.0.0.1:4480'\n"),
                "[listen]: has an effect only in a node",
            ),
            (send.replace("data_rate", "data_rte"), "error: [[send]] 1: data_rate: is missing"),
            (String::new(), "there is nothing to do"),
        ] {
            let error =
                Endpoint::open(&text("a", &sections), Path::new("/")).map(drop).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
        let error = Endpoint::open_file(Path::new("/nonesuch/x.toml")).map(drop).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the configuration: "), "{error}");
    }
}
