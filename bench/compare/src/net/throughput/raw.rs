//! Plain multicast datagrams, full of messages: what this machine can carry at most.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;
use toroni_bench_harness::Failure;
use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Transport, Wait,
};
use toroni_net::host::interface;
use toroni_net::socket::{self, BATCH, Datagram, Options, Outgoing};

use super::super::rig::{GROUP, RECEIVE_BUFFER};
use super::credit::{Credit, Taken};

/// As long as the datagrams of a stream, by default.
const DATAGRAM: usize = 1_408;
/// No answer takes this long, unless a datagram was lost.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Raw;

pub(super) struct Sending {
    socket: Datagram,
    sender: socket::Sender,
    receiver: socket::Receiver,
    group: SocketAddr,
    full: Vec<u8>,
    /// How many bytes of messages a datagram has.
    each: usize,
    credit: Credit,
}

pub(super) struct Receiving {
    group: Datagram,
    leg: Datagram,
    receiver: socket::Receiver,
    sender: socket::Sender,
    memory: Box<[u8]>,
    message_bytes: usize,
    taken: Taken,
    peer: Option<SocketAddr>,
    wait: Wait,
    idle: Idle,
}

fn open() -> Result<(Datagram, Datagram), Failure> {
    let eth0 = interface::named("eth0").map_err(Failure::of("find eth0"))?;
    let options = Options { receive_buffer: Some(RECEIVE_BUFFER), ..Options::default() };
    let group: SocketAddr = GROUP.parse().map_err(Failure::of("read the group"))?;
    let source = eth0.source(group.ip()).map_err(Failure::of("find an address"))?;
    let failed = || Failure::of("open a socket");
    Ok((
        Datagram::group(group, &eth0, &options).map_err(failed())?,
        Datagram::leg(source, &eth0, &options).map_err(failed())?,
    ))
}

/// Waits until a socket has something, or 50 ms are over.
fn sleep(sockets: &[&Datagram]) -> Result<(), Failure> {
    let mut watched: Vec<PollFd<'_>> =
        sockets.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)).collect();
    let longest = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    match poll(&mut watched, Some(&longest)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::of("poll")(error)),
    }
}

impl Transport for Raw {
    const NAME: &'static str = "plain";
    type Host = ();
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(_: &Setup) -> About {
        About {
            version: "Linux".to_owned(),
            settings: format!(
                "messages are copied into multicast datagrams of up to {DATAGRAM} bytes; sendmmsg with UDP_SEGMENT and \
                 recvmmsg, {BATCH} a call; the receiver says what it has after each 64 KiB"
            ),
            guarantees: Guarantees { lossless: true, total_order: false, in_place: false },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }

    fn sender(_: &RunDirectory, setup: &Setup, _: u16) -> Result<Sending, Failure> {
        let (_, leg) = open()?;
        let each = DATAGRAM / setup.message_bytes * setup.message_bytes;
        let mut sending = Sending {
            sender: socket::Sender::new(&leg),
            socket: leg,
            receiver: socket::Receiver::new(),
            group: GROUP.parse().map_err(Failure::of("read the group"))?,
            full: Vec::with_capacity(each * BATCH),
            each,
            credit: Credit::default(),
        };
        // An empty datagram asks whether the receiver is there; it says so by nothing taken.
        let begin = Instant::now();
        let mut is_heard = false;
        while !is_heard {
            if begin.elapsed() > 4 * PATIENCE {
                return Err(Failure::new("the receiver does not answer"));
            }
            let ask = [Outgoing { to: sending.group, bytes: b"?" }];
            sending.sender.send(&sending.socket, &ask).map_err(Failure::of("ask"))?;
            sleep(&[&sending.socket])?;
            is_heard = sending.listen()?;
        }
        Ok(sending)
    }

    fn receiver(_: &RunDirectory, setup: &Setup, _: u16) -> Result<Receiving, Failure> {
        let (group, leg) = open()?;
        let mut receiving = Receiving {
            sender: socket::Sender::new(&leg),
            group,
            leg,
            receiver: socket::Receiver::new(),
            memory: vec![0; BATCH * (DATAGRAM + 1)].into(),
            message_bytes: setup.message_bytes,
            taken: Taken::default(),
            peer: None,
            wait: setup.wait,
            idle: Idle::new(setup),
        };
        let begin = Instant::now();
        while receiving.peer.is_none() {
            if begin.elapsed() > 4 * PATIENCE {
                return Err(Failure::new("the sender does not ask"));
            }
            sleep(&[&receiving.group])?;
            receiving.poll(|_| ())?;
        }
        Ok(receiving)
    }
}

impl Sending {
    /// Reads what the receiver says. Returns whether it said anything.
    fn listen(&mut self) -> Result<bool, Failure> {
        let mut memory = [[0; 16]; 8];
        let buffers = memory.iter_mut().map(|buffer| &mut buffer[..]);
        let heard =
            self.receiver.receive(&self.socket, buffers).map_err(Failure::of("listen"))?.len();
        memory.iter().take(heard).for_each(|datagram| self.credit.hear(datagram));
        Ok(heard > 0)
    }

    fn wait_for_credit(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        while self.credit.is_used_up() {
            if begin.elapsed() > PATIENCE {
                return Err(Failure::new("a datagram was lost"));
            }
            if !self.listen()? {
                sleep(&[&self.socket])?;
            }
        }
        Ok(())
    }

    fn send_full(&mut self) -> Result<(), Failure> {
        let datagrams: Vec<Outgoing<'_>> =
            self.full.chunks(self.each).map(|bytes| Outgoing { to: self.group, bytes }).collect();
        let mut sent = 0;
        while sent < datagrams.len() {
            let now = self.sender.send(&self.socket, &datagrams[sent..]);
            sent += now.map_err(Failure::of("send"))?;
        }
        self.credit.send(self.full.len());
        self.full.clear();
        self.listen()?;
        if self.credit.is_used_up() {
            self.wait_for_credit()?;
        }
        Ok(())
    }
}

impl Sender for Sending {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.full.extend_from_slice(payload);
        if self.full.len() >= self.each * BATCH { self.send_full() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.send_full()
    }
}

impl Receiver for Receiving {
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let buffers = self.memory.chunks_exact_mut(DATAGRAM + 1);
        let arrivals =
            self.receiver.receive(&self.group, buffers).map_err(Failure::of("receive"))?;
        let (mut messages, mut is_asked) = (0, false);
        for (arrival, buffer) in arrivals.iter().zip(self.memory.chunks_exact(DATAGRAM + 1)) {
            let datagram = &buffer[..arrival.length];
            if datagram == b"?" {
                (self.peer, is_asked) = (Some(arrival.from), true);
                continue;
            }
            self.taken.take(datagram.len());
            for message in datagram.chunks_exact(self.message_bytes) {
                each(message);
                messages += 1;
            }
        }
        let said = self.taken.say(messages == 0).or(is_asked.then_some([0; 8]));
        if let (Some(said), Some(to)) = (said, self.peer) {
            let outgoing = [Outgoing { to, bytes: &said }];
            self.sender.send(&self.leg, &outgoing).map_err(Failure::of("answer"))?;
        }
        Ok(messages)
    }

    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            match self.wait {
                Wait::Busy => self.idle.pause(),
                Wait::Blocking => sleep(&[&self.group])?,
            }
        }
    }
}
