//! The queue of the point-to-multipoint experiment, written again from its description: packets in shared memory,
//! counters that one process-shared mutex guards, and a byte on a Unix socket as the signal.
//!
//! The sender fills a batch of packets in place, counts them under the mutex, and sends one byte to each receiver. A
//! receiver reads a batch in place, counts it under the mutex, and sends one byte to the sender. A process that finds
//! nothing to do sleeps until a byte comes; if the other end is gone by then, that is an error.
//!
//! There is a signal for each batch, as in the description. A signal that does not fit the socket is left out: those
//! before it wake the other side, which then reads the counters.

mod memory;

pub(super) use memory::Shape;

use memory::{Reading, Writing};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a receiver waits for the sender's socket.
const LONGEST_CONNECT: Duration = Duration::from_secs(30);

/// The sender's end before its receivers have connected.
pub(super) struct Host {
    writing: Writing,
    listener: UnixListener,
    receivers: usize,
}

impl Host {
    /// Creates the queue and its socket in `directory`.
    pub(super) fn create(directory: &Path, shape: Shape) -> io::Result<Self> {
        let writing = Writing::create(&memory_path(directory), shape)?;
        // After the memory: a process that can connect finds a complete queue.
        let listener = UnixListener::bind(socket_path(directory))?;
        Ok(Self { writing, listener, receivers: shape.receivers })
    }

    /// Waits for all receivers.
    pub(super) fn accept(self) -> io::Result<Sender> {
        let peers = (0..self.receivers)
            .map(|_| self.listener.accept().map(|(socket, _)| socket))
            .collect::<io::Result<_>>()?;
        Ok(Sender { writing: self.writing, peers })
    }
}

/// The sender's end.
pub(super) struct Sender {
    writing: Writing,
    peers: Vec<UnixStream>,
}

impl Sender {
    /// Waits for space, and lets `fill` write a batch of `count` packets in place. Fails if a receiver is gone.
    pub(super) fn send(&mut self, count: usize, fill: impl FnMut(&mut [u8])) -> io::Result<()> {
        while !self.writing.has_space(count) {
            self.writing.refresh()?;
            if self.writing.has_space(count) {
                break;
            }
            self.wait()?;
        }
        self.writing.write(count, fill)?;
        self.peers.iter().try_for_each(signal)
    }

    /// Sleeps until a receiver has taken something.
    fn wait(&self) -> io::Result<()> {
        let mut watched: Vec<_> =
            self.peers.iter().map(|peer| PollFd::new(peer, PollFlags::IN)).collect();
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let readable = watched.iter().zip(&self.peers).filter(|(fd, _)| !fd.revents().is_empty());
        for (_, peer) in readable {
            await_signal(peer)?;
        }
        Ok(())
    }
}

/// A receiver's end.
pub(super) struct Receiver {
    reading: Reading,
    sender: UnixStream,
}

impl Receiver {
    /// Joins the queue in `directory` as the receiver with this number. Waits until the queue exists.
    pub(super) fn join(directory: &Path, shape: Shape, number: usize) -> io::Result<Self> {
        let deadline = Instant::now() + LONGEST_CONNECT;
        let sender = loop {
            match UnixStream::connect(socket_path(directory)) {
                Ok(socket) => break socket,
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let reading = Reading::open(&memory_path(directory), shape, number)?;
        Ok(Self { reading, sender })
    }

    /// Waits for packets, and lets `each` read at most `most` of them in place. Fails if the sender is gone.
    pub(super) fn receive(&mut self, most: usize, each: impl FnMut(&[u8])) -> io::Result<()> {
        while self.reading.available() == 0 {
            self.reading.refresh()?;
            if self.reading.available() > 0 {
                break;
            }
            await_signal(&self.sender)?;
        }
        self.reading.take(self.reading.available().min(most), each)?;
        signal(&self.sender)
    }
}

/// Sends the byte that makes the other side read the counters.
fn signal(peer: &UnixStream) -> io::Result<()> {
    match send(peer, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // The socket is full, or a receiver has got everything and closed it.
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::PIPE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps until a byte comes, and takes all that have come.
fn await_signal(peer: &UnixStream) -> io::Result<()> {
    let mut bytes = [0; 256];
    match recv(peer, &mut bytes, RecvFlags::empty()) {
        Ok((0, _)) => {
            let gone = "the process at the other end of the queue is gone";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, gone))
        }
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn memory_path(directory: &Path) -> PathBuf {
    directory.join("queue")
}

fn socket_path(directory: &Path) -> PathBuf {
    directory.join("queue.socket")
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::Directory;

    fn shape(packets: usize) -> Shape {
        Shape { packets, packet_bytes: 16, receivers: 3, adaptive: packets.is_multiple_of(2) }
    }

    /// A packet of test data: its number, twice.
    fn fill(packet: &mut [u8], number: u64) {
        packet[..8].copy_from_slice(&number.to_le_bytes());
        packet[8..].copy_from_slice(&number.to_le_bytes());
    }

    fn check(packet: &[u8], number: u64) {
        assert_eq!(packet[..8], number.to_le_bytes());
        assert_eq!(packet[8..], number.to_le_bytes());
    }

    #[test]
    fn every_receiver_gets_every_packet_through_a_tiny_queue() {
        for packets in [2, 3, 5] {
            let total: u64 = 20_001;
            let root = Directory::new();
            let host = Host::create(root.path(), shape(packets)).unwrap();
            std::thread::scope(|scope| {
                for index in 0..3 {
                    let directory = root.path();
                    scope.spawn(move || {
                        let mut receiver =
                            Receiver::join(directory, shape(packets), index).unwrap();
                        let mut next = 0;
                        while next < total {
                            let before = next;
                            receiver
                                .receive(2, |packet| {
                                    check(packet, next);
                                    next += 1;
                                })
                                .unwrap();
                            assert!((1..=2).contains(&(next - before)));
                        }
                        assert_eq!(next, total);
                    });
                }
                let mut sender = host.accept().unwrap();
                let mut number = 0;
                while number < total {
                    let count = if total - number >= 2 { 2 } else { 1 };
                    sender
                        .send(count, |packet| {
                            fill(packet, number);
                            number += 1;
                        })
                        .unwrap();
                }
            });
        }
    }

    #[test]
    fn a_receiver_that_is_gone_ends_the_sender() {
        let root = Directory::new();
        let host = Host::create(root.path(), shape(4)).unwrap();
        let mut receivers: Vec<_> =
            (0..3).map(|index| Receiver::join(root.path(), shape(4), index).unwrap()).collect();
        let mut sender = host.accept().unwrap();
        sender.send(2, |packet| fill(packet, 0)).unwrap();
        receivers.remove(1);
        // The others take their packets; the queue fills up because of the one that is gone.
        for receiver in &mut receivers {
            receiver.receive(2, |packet| check(packet, 0)).unwrap();
        }
        sender.send(2, |packet| fill(packet, 0)).unwrap();
        let error = sender.send(2, |packet| fill(packet, 0)).unwrap_err();
        assert!(
            matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset),
            "{error:?}"
        );
    }

    #[test]
    fn a_sender_that_is_gone_ends_the_receivers_after_the_last_packet() {
        let root = Directory::new();
        let host = Host::create(root.path(), shape(4)).unwrap();
        let mut receivers: Vec<_> =
            (0..3).map(|index| Receiver::join(root.path(), shape(4), index).unwrap()).collect();
        let mut sender = host.accept().unwrap();
        sender.send(1, |packet| fill(packet, 7)).unwrap();
        drop(sender);
        for receiver in &mut receivers {
            receiver.receive(2, |packet| check(packet, 7)).unwrap();
            assert!(receiver.receive(2, |_| panic!("there is nothing")).is_err());
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let root = Directory::new();
        let _host = Host::create(root.path(), shape(4)).unwrap();
        assert!(Host::create(root.path(), shape(4)).is_err(), "a second sender");
        let _first = Receiver::join(root.path(), shape(4), 0).unwrap();
        for (shape, index) in [(shape(4), 0), (shape(4), 3), (shape(5), 1)] {
            assert!(Receiver::join(root.path(), shape, index).is_err(), "{shape:?} {index}");
        }
        let other = Directory::new();
        let none = Shape { receivers: 0, ..shape(4) };
        let many = Shape { receivers: 16, ..shape(4) };
        let huge = Shape { packets: usize::MAX, ..shape(4) };
        for shape in [none, many, huge] {
            assert!(Host::create(other.path(), shape).is_err(), "{shape:?}");
        }
    }
}
