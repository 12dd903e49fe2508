//! Unix sockets of type SEQPACKET: the kernel keeps messages separate, one call for each.
//!
//! - Several messages that are handed over together are sent with `sendmmsg`. Each is received with a call of its own.
//! - Each sender has a socket to each receiver and sends to one after the other. If the kernel has no space, the sender
//!   waits, so no message is lost. There is no order between senders.
//! - Ends wait with non-blocking calls and a yield, or with the kernel's blocking calls; an end with several sockets uses
//!   `poll`.

use super::streams::connect::{accept_all, connect_to_all, unix_address, unix_addresses};
use crate::Failure;
use crate::idle::Idle;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Guarantees, Receiver, Sender, Setup, Transport, Wait};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, SocketType, recv, send, sendmmsg,
};
use std::os::fd::OwnedFd;

/// Unix sockets of type SEQPACKET.
pub struct UnixSeqpacket;

impl Transport for UnixSeqpacket {
    const NAME: &'static str = "unix-seqpacket";
    type Host = ();
    type Sender = PacketSender;
    type Receiver = PacketReceiver;

    fn about(setup: &Setup) -> About {
        About {
            version: crate::machine::kernel(),
            settings: format!(
                "SOCK_SEQPACKET, socket buffers of {} bytes at most, sendmmsg for several",
                setup.capacity_bytes
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

    fn sender(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<PacketSender, Failure> {
        let sockets = accept_all(SocketType::SEQPACKET, &unix_address(directory, index)?, setup)?;
        let flags = match setup.wait {
            Wait::Busy => SendFlags::DONTWAIT,
            Wait::Blocking => SendFlags::empty(),
        };
        Ok(PacketSender { sockets, flags: flags | SendFlags::NOSIGNAL, idle: Idle::new(setup) })
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        _: u16,
    ) -> Result<PacketReceiver, Failure> {
        let addresses = unix_addresses(directory, setup)?;
        let address = |sender| addresses[usize::from(sender)].clone();
        let sockets = connect_to_all(SocketType::SEQPACKET, address, setup)?;
        let buffer = vec![0; setup.message_bytes.max(1)];
        let blocking = setup.wait == Wait::Blocking;
        Ok(PacketReceiver { sockets, buffer, blocking, idle: Idle::new(setup) })
    }
}

/// A socket to each receiver.
pub struct PacketSender {
    sockets: Vec<OwnedFd>,
    flags: SendFlags,
    idle: Idle,
}

impl Sender for PacketSender {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        for socket in &self.sockets {
            retry(&mut self.idle, || send(socket, payload, self.flags).map(drop))?;
        }
        Ok(())
    }

    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        let slices: Vec<[IoSlice<'_>; 1]> =
            payloads.iter().map(|payload| [IoSlice::new(payload.as_ref())]).collect();
        for socket in &self.sockets {
            let mut rest = &slices[..];
            while !rest.is_empty() {
                let some = &rest[..rest.len().min(MOST_AT_ONCE)];
                let mut controls: Vec<_> =
                    some.iter().map(|_| SendAncillaryBuffer::default()).collect();
                let mut headers: Vec<MMsgHdr<'_>> = some
                    .iter()
                    .zip(&mut controls)
                    .map(|(slice, control)| MMsgHdr::new(slice, control))
                    .collect();
                let mut sent = 0;
                retry(&mut self.idle, || {
                    sent = sendmmsg(socket, &mut headers, self.flags)?;
                    Ok(())
                })?;
                rest = &rest[sent..];
            }
        }
        Ok(())
    }
}

/// The kernel takes no more messages in one call.
const MOST_AT_ONCE: usize = 1024;
/// Messages that one `poll` passes on from a socket, at most, so that the others get their turn.
const POLL_LIMIT: usize = 256;

/// A socket from each sender.
pub struct PacketReceiver {
    sockets: Vec<OwnedFd>,
    buffer: Vec<u8>,
    blocking: bool,
    idle: Idle,
}

impl Receiver for PacketReceiver {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let mut count = 0;
        for socket in &self.sockets {
            for _ in 0..POLL_LIMIT {
                match recv(socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                    Ok((_, 0)) => return Err(Failure::new("the other end has closed its socket")),
                    Ok((_, length)) => {
                        each(whole(&self.buffer, length)?);
                        count += 1;
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(Failure::of("receive")(error)),
                }
            }
        }
        Ok(count)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            if self.blocking && self.sockets.len() == 1 {
                match recv(&self.sockets[0], &mut self.buffer[..], RecvFlags::empty()) {
                    Ok((_, 0)) => return Err(Failure::new("the other end has closed its socket")),
                    Ok((_, length)) => {
                        each(whole(&self.buffer, length)?);
                        return Ok(1);
                    }
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(Failure::of("receive")(error)),
                }
            }
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            if self.blocking {
                let mut wanted: Vec<PollFd<'_>> =
                    self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
                match poll(&mut wanted, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(Failure::of("poll")(error)),
                }
            } else {
                self.idle.pause();
            }
        }
    }
}

#[inline]
fn whole(buffer: &[u8], length: usize) -> Result<&[u8], Failure> {
    buffer
        .get(..length)
        .ok_or_else(|| Failure::new(format!("a message of {length} bytes was cut off")))
}

/// Repeats `attempt` until there is space.
#[inline]
fn retry(idle: &mut Idle, mut attempt: impl FnMut() -> Result<(), Errno>) -> Result<(), Failure> {
    loop {
        match attempt() {
            Ok(()) => {
                idle.reset();
                return Ok(());
            }
            Err(Errno::AGAIN) => idle.pause(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::of("send")(error)),
        }
    }
}

#[cfg(test)]
crate::conformance!(UnixSeqpacket);
