//! Byte streams of the kernel: TCP over loopback, Unix sockets of type STREAM, and pipes.
//!
//! - A message is a frame: its length in 4 bytes, then its bytes. One call sends one frame; messages that are handed over
//!   together are collected in a buffer of 64 KiB and sent with as few calls as possible.
//! - A receiver reads as much as has come, up to 256 KiB, and takes the frames out of its buffer.
//! - Each sender has a stream to each receiver and writes to one after the other. If the kernel has no space, the sender
//!   waits, so no message is lost. There is no order between senders.
//! - Kernel buffers are as large as an ordinary user may make them, up to the number of bytes that every peer may have in
//!   flight. TCP sends at once (`TCP_NODELAY`).
//! - Ends wait with non-blocking calls and a yield, or with the kernel's blocking read and write; an end with several
//!   streams uses `poll`.

pub(super) mod connect;
mod frames;

use crate::Failure;
use crate::idle::Idle;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Guarantees, Receiver, Sender, Setup, Slot, Transport, Wait};
use connect::{Pipes, Sockets, Tcp, Way};
use frames::{Incoming, Outgoing};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// TCP over loopback.
pub struct TcpStreams;
/// Unix sockets of type STREAM.
pub struct UnixStreams;
/// Named pipes.
pub struct NamedPipes;

macro_rules! transport {
    ($transport:ty, $name:literal, $way:ty) => {
        impl Transport for $transport {
            const NAME: &'static str = $name;
            type Host = ();
            type Sender = StreamSender;
            type Receiver = StreamReceiver;

            fn about(setup: &Setup) -> About {
                about::<$way>(setup)
            }

            fn host(directory: &RunDirectory, setup: &Setup) -> Result<(), Failure> {
                <$way>::host(directory, setup)
            }

            fn sender(
                directory: &RunDirectory,
                setup: &Setup,
                index: u16,
            ) -> Result<StreamSender, Failure> {
                let streams = <$way>::outgoing(directory, setup, index)?;
                StreamSender::new(setup, streams)
            }

            fn receiver(
                directory: &RunDirectory,
                setup: &Setup,
                index: u16,
            ) -> Result<StreamReceiver, Failure> {
                let streams = <$way>::incoming(directory, setup, index)?;
                StreamReceiver::new(setup, streams)
            }
        }
    };
}

transport!(TcpStreams, "tcp", Tcp);
transport!(UnixStreams, "unix-stream", Sockets);
transport!(NamedPipes, "pipe", Pipes);

fn about<W: Way>(setup: &Setup) -> About {
    About {
        version: crate::machine::kernel(),
        settings: format!("{}, frames with a length of 4 bytes", W::settings(setup)),
        guarantees: Guarantees { lossless: true, total_order: setup.senders == 1, in_place: false },
    }
}

/// A stream to each receiver.
pub struct StreamSender {
    streams: Vec<OwnedFd>,
    buffer: Outgoing,
    idle: Idle,
}

impl StreamSender {
    fn new(setup: &Setup, streams: Vec<OwnedFd>) -> Result<Self, Failure> {
        set_nonblocking(&streams, setup.wait == Wait::Busy)?;
        Ok(Self { streams, buffer: Outgoing::new(setup.message_bytes), idle: Idle::new(setup) })
    }

    /// Writes the buffer to all receivers.
    fn write_out(&mut self) -> Result<(), Failure> {
        for stream in &self.streams {
            let mut rest = self.buffer.bytes();
            while !rest.is_empty() {
                match rustix::io::write(stream, rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        self.idle.reset();
                    }
                    Err(Errno::AGAIN) => self.idle.pause(),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(Failure::of("write")(error)),
                }
            }
        }
        self.buffer.clear();
        Ok(())
    }
}

impl Sender for StreamSender {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.buffer.push(payload)?;
        self.write_out()
    }

    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        for payload in payloads {
            if !self.buffer.has_space_for(payload.as_ref().len()) {
                self.write_out()?;
            }
            self.buffer.push(payload.as_ref())?;
        }
        self.write_out()
    }

    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        fill(&mut self.buffer.push_empty(length)?);
        self.write_out()
    }
}

/// A stream from each sender.
pub struct StreamReceiver {
    streams: Vec<(OwnedFd, Incoming)>,
    blocking: bool,
    idle: Idle,
}

impl StreamReceiver {
    fn new(setup: &Setup, streams: Vec<OwnedFd>) -> Result<Self, Failure> {
        let blocking = setup.wait == Wait::Blocking;
        // An end with several streams must not wait at one of them.
        set_nonblocking(&streams, !blocking || streams.len() > 1)?;
        let longest = setup.message_bytes;
        let streams = streams.into_iter().map(|stream| (stream, Incoming::new(longest))).collect();
        Ok(Self { streams, blocking, idle: Idle::new(setup) })
    }

    fn wait_for_some(&self) -> Result<(), Failure> {
        let mut wanted: Vec<PollFd<'_>> =
            self.streams.iter().map(|(stream, _)| PollFd::new(stream, PollFlags::IN)).collect();
        match poll(&mut wanted, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::of("poll")(error)),
        }
    }
}

impl Receiver for StreamReceiver {
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        if self.blocking && self.streams.len() == 1 {
            // A blocking stream must be polled before it is read.
            let mut wanted = [PollFd::new(&self.streams[0].0, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut wanted, Some(&now)).map_err(Failure::of("poll"))? == 0 {
                return Ok(0);
            }
        }
        let mut count = 0;
        for (stream, incoming) in &mut self.streams {
            count += incoming.read(stream, &mut each)?;
        }
        Ok(count)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            let count = match (&mut self.streams[..], self.blocking) {
                ([(stream, incoming)], true) => incoming.read(stream, &mut each)?,
                (_, true) => {
                    self.wait_for_some()?;
                    self.poll(&mut each)?
                }
                (_, false) => self.poll(&mut each)?,
            };
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            if !self.blocking {
                self.idle.pause();
            }
        }
    }
}

fn set_nonblocking(streams: &[OwnedFd], on: bool) -> Result<(), Failure> {
    streams.iter().try_for_each(|stream| {
        rustix::io::ioctl_fionbio(stream, on).map_err(Failure::of("change how a stream waits"))
    })
}

#[cfg(test)]
mod tests {
    mod tcp {
        use super::super::*;
        crate::conformance!(TcpStreams);
    }
    mod unix {
        use super::super::*;
        crate::conformance!(UnixStreams);
    }
    mod pipes {
        use super::super::*;
        crate::conformance!(NamedPipes);
    }
}
