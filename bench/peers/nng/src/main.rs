//! NNG over `ipc://`.
//!
//! - PUSH and PULL. NNG's PUB drops messages that a slow subscriber cannot take, and no setting prevents that, so a sender
//!   has a PUSH socket for each receiver and sends to all of them.
//! - Each sender listens, and each receiver dials all senders. There is no order between messages of different senders.
//! - NNG hands each message to the kernel with a call of its own: it has no batching.
//! - Ends wait with NNG's own blocking call, or with `NNG_FLAG_NONBLOCK` and a yield.

mod socket;
mod topics;

use std::process::ExitCode;

use toroni_bench_harness::Failure;
use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Slot, Transport, Wait,
};

use crate::socket::{Message, Outcome, Protocol, Socket};

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_both::<Nng>()
}

struct Nng;

/// A socket for each receiver.
struct Sending {
    sockets: Vec<Socket>,
    busy: bool,
    idle: Idle,
}

struct Receiving {
    socket: Socket,
    busy: bool,
    idle: Idle,
}

impl Transport for Nng {
    const NAME: &'static str = "nng";
    type Host = ();
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(setup: &Setup) -> About {
        About {
            version: format!("nng {}", socket::version()),
            settings: format!(
                "ipc, PUSH/PULL, a PUSH socket for each receiver, send buffers of {} messages, {} task thread",
                buffered(setup),
                socket::TASK_THREADS
            ),
            guarantees: Guarantees {
                lossless: true,
                total_order: setup.senders == 1,
                in_place: false,
            },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }

    fn sender(directory: &RunDirectory, setup: &Setup, index: u16) -> Result<Sending, Failure> {
        let sockets: Vec<Socket> = (0..setup.receivers)
            .map(|receiver| {
                let socket = Socket::open(Protocol::Push)?;
                socket.set_send_buffer(buffered(setup))?;
                socket.listen(&url(directory, index, receiver))?;
                Ok(socket)
            })
            .collect::<Result<_, Failure>>()?;
        sockets.iter().for_each(|socket| socket.wait_for_peers(1));
        let busy = setup.wait == Wait::Busy;
        Ok(Sending { sockets, busy, idle: Idle::new(setup) })
    }

    fn receiver(directory: &RunDirectory, setup: &Setup, index: u16) -> Result<Receiving, Failure> {
        let socket = Socket::open(Protocol::Pull)?;
        for sender in 0..setup.senders {
            socket.dial(&url(directory, sender, index))?;
        }
        socket.wait_for_peers(u32::from(setup.senders));
        let busy = setup.wait == Wait::Busy;
        Ok(Receiving { socket, busy, idle: Idle::new(setup) })
    }
}

impl Sending {
    #[inline]
    fn send_to(&mut self, receiver: usize, mut message: Message) -> Result<(), Failure> {
        let socket = &self.sockets[receiver];
        loop {
            match socket.send(message, !self.busy)? {
                Outcome::Done(()) => {
                    self.idle.reset();
                    return Ok(());
                }
                Outcome::Full(back) => message = back,
            }
            self.idle.pause();
        }
    }
}

impl Sender for Sending {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.send_in_place(payload.len(), |slot| slot.write(0, payload))
    }

    #[inline]
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        // A message is a buffer of NNG: filled here, it is handed over without another copy. Each other receiver needs a
        // copy, because sending a message gives it away.
        let mut message = Message::of(length)?;
        fill(&mut message.bytes());
        for receiver in 1..self.sockets.len() {
            let copy = message.copy()?;
            self.send_to(receiver, copy)?;
        }
        self.send_to(0, message)
    }
}

/// Messages that one `poll` passes on, at most, so that its caller can do something else.
const POLL_LIMIT: usize = 256;

impl Receiver for Receiving {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        for count in 0..POLL_LIMIT {
            match self.socket.receive(false)? {
                Some(mut message) => each(message.bytes()),
                None => return Ok(count),
            }
        }
        Ok(POLL_LIMIT)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            if self.busy {
                let count = self.poll(&mut each)?;
                if count > 0 {
                    self.idle.reset();
                    return Ok(count);
                }
            } else if let Some(mut message) = self.socket.receive(true)? {
                each(message.bytes());
                return Ok(1);
            }
            self.idle.pause();
        }
    }
}

fn url(directory: &RunDirectory, sender: u16, receiver: u16) -> String {
    format!("ipc://{}/nng-{sender}-{receiver}", directory.path.display())
}

/// Returns the number of messages in the buffer of a PUSH socket: as many as fill the bytes that every peer may have in
/// flight, within what NNG allows.
fn buffered(setup: &Setup) -> u16 {
    let bytes = u64::try_from(setup.message_bytes).unwrap_or(u64::MAX).max(64);
    u16::try_from((setup.capacity_bytes / bytes).clamp(16, 8192)).unwrap_or(8192)
}

toroni_bench_harness::conformance!(Nng);
