//! One attempt of an operation, which never waits for a peer. If the system call itself can be told not to
//! wait, the descriptor's flags stay unchanged; listening and connecting sockets are non-blocking since they
//! were taken over.

use crate::operation::{Address, DescriptorKind, Memory, OperationKind, Outcome, Request, of_peer};
use crate::sys;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of a stream that one attempt moves; at most twice as many. With a peer that keeps up, an unlimited
/// transfer would occupy its thread while everything else waits.
const SHARE: usize = 256 << 10;

/// The result of an attempt.
enum Tried {
    Over(Outcome),
    /// It has moved its share, and continues after others have had their turn.
    InPart,
    /// It has to wait until the descriptor is ready.
    Waits,
}

/// Attempts an operation. Returns `None` if it has to wait until the descriptor is ready, or until others have
/// had their turn. Files are always ready.
///
/// A descriptor that is known not to be ready is not attempted. So the engine must report every edge of the
/// descriptor with [`Edges::report`](crate::operation::Edges::report).
pub(super) fn attempt(request: &mut Request) -> Option<Outcome> {
    let reading = request.kind.is_reading();
    let edge = request.on().edges().last(reading)?;
    match try_it(request) {
        Tried::Over(outcome) => Some(outcome),
        Tried::InPart => None,
        Tried::Waits => {
            request.on().edges().block(reading, edge);
            None
        }
    }
}

/// Attempts a transfer of a socket, for engines that leave waiting to the kernel.
pub(super) fn of_socket(request: &mut Request) -> Option<Outcome> {
    let is_transfer = matches!(
        request.kind,
        OperationKind::ReadStream
            | OperationKind::WriteStream
            | OperationKind::ReadDatagram
            | OperationKind::WriteDatagram
    );
    (is_transfer && request.on().kind() == DescriptorKind::Socket)
        .then(|| attempt(request))
        .flatten()
}

/// Returns the part of a transfer's memory that one attempt works on.
pub(super) fn share(request: &Request) -> Memory {
    let is_stream = matches!(request.kind, OperationKind::ReadStream | OperationKind::WriteStream);
    if is_stream && request.on().kind() != DescriptorKind::File {
        request.memory.at_most(SHARE)
    } else {
        request.memory
    }
}

/// Reads from a file, if the page cache has all of the requested bytes.
pub(super) fn of_cache(request: &mut Request) -> Option<Outcome> {
    if request.kind != OperationKind::ReadFile {
        return None;
    }
    let offset = i64::try_from(request.offset).ok()?;
    let read = transfer(request.fd(), request.memory, true, offset, libc::RWF_NOWAIT);
    // Fewer bytes may mean the end of the file, or of what the cache has; an error means nothing, too.
    (read == Ok(request.memory.length())).then(|| Outcome::of(read))
}

/// Attempts an operation on a descriptor that cannot be waited for: `EAGAIN` if it would have to wait.
pub(super) fn without_waiting(request: &mut Request) -> Outcome {
    loop {
        match try_it(request) {
            Tried::Over(outcome) => return outcome,
            Tried::InPart => {}
            Tried::Waits => return Outcome::of(Err(Errno::AGAIN)),
        }
    }
}

/// Attempts an operation without regard to the edges.
fn try_it(request: &mut Request) -> Tried {
    let before = request.moved;
    loop {
        let outcome = once(request);
        match outcome.result {
            Err(Errno::INTR) if request.moved - before >= SHARE => return Tried::InPart,
            // EINTR can occur without any signal handler.
            Err(Errno::INTR) => {}
            // The backlog of a local socket's peer is full: there is nothing to wait for.
            Err(Errno::AGAIN) if request.kind == OperationKind::Connect => {
                return Tried::Over(outcome);
            }
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY) => return Tried::Waits,
            _ => return Tried::Over(outcome),
        }
    }
}

fn once(request: &mut Request) -> Outcome {
    let memory = request.memory;
    match request.kind {
        OperationKind::ReadStream | OperationKind::WriteStream => {
            Outcome::of(match stream(request) {
                // Continues with the rest, as far as its share goes, until it would have to wait.
                Ok(bytes) => request.advance(bytes).unwrap_or(Err(Errno::INTR)),
                error => error,
            })
        }
        OperationKind::ReadFile => {
            // SAFETY: a read's memory is to be filled; until the operation is complete only this code works on
            // it: in the thread that starts it, or later, without the lock, in the one thread that attempts it.
            let bytes = unsafe { memory.filling() };
            Outcome::of(
                rustix::io::pread(request.fd(), bytes, request.offset).map(|(b, _)| b.len()),
            )
        }
        OperationKind::WriteFile => {
            // SAFETY: a write's memory is to be sent, and the operation is not complete.
            let bytes = unsafe { memory.sending() };
            Outcome::of(rustix::io::pwrite(request.fd(), bytes, request.offset))
        }
        OperationKind::ReadDatagram => receive_datagram(request),
        OperationKind::WriteDatagram => {
            // SAFETY: as for WRITE_FILE.
            let bytes = unsafe { memory.sending() };
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            Outcome::of(match &request.address {
                Some(Address::Internet(to)) => net::sendto(request.fd(), bytes, flags, to),
                Some(Address::Local(to)) => net::sendto(request.fd(), bytes, flags, &**to),
                None => net::send(request.fd(), bytes, flags),
            })
        }
        OperationKind::Accept => {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match net::acceptfrom_with(request.fd(), flags) {
                Ok((accepted, address)) => {
                    let address = of_peer(address);
                    Outcome { accepted: Some(accepted), address, ..Outcome::of(Ok(0)) }
                }
                // The connection was gone before it was accepted: continue with the next one.
                Err(Errno::CONNABORTED) => Outcome::of(Err(Errno::INTR)),
                Err(error) => Outcome::of(Err(error)),
            }
        }
        OperationKind::Connect => Outcome::of(connect(request)),
        OperationKind::WaitReadable => Outcome::of(poll_once(request.fd(), true).map(|()| 0)),
        OperationKind::WaitWord | OperationKind::Timer | OperationKind::Post => {
            unreachable!("this provider does not support these")
        }
    }
}

fn stream(request: &Request) -> Result<usize, Errno> {
    let (memory, fd) = (share(request), request.fd());
    let is_reading = request.kind.is_reading();
    match request.on().kind() {
        DescriptorKind::Socket if is_reading => {
            // SAFETY: as for READ_FILE.
            let bytes = unsafe { memory.filling() };
            net::recv(fd, bytes, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes.0.len())
        }
        DescriptorKind::Socket => {
            // SAFETY: as for WRITE_FILE.
            let bytes = unsafe { memory.sending() };
            net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        }
        DescriptorKind::File => transfer(fd, memory, is_reading, CURRENT_POSITION, 0),
        DescriptorKind::Other => {
            match transfer(fd, memory, is_reading, CURRENT_POSITION, libc::RWF_NOWAIT) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => blocking_if_ready(fd, memory, is_reading),
                other => other,
            }
        }
    }
}

/// The descriptor's own position.
const CURRENT_POSITION: i64 = -1;

/// `preadv2` or `pwritev2`.
fn transfer(
    fd: BorrowedFd<'_>,
    memory: Memory,
    is_reading: bool,
    offset: i64,
    flags: i32,
) -> Result<usize, Errno> {
    let span = libc::iovec { iov_base: memory.pointer().cast(), iov_len: memory.length() };
    // SAFETY: one span, of the operation's memory, which is to be filled or to be sent as its direction
    // says; only this call works on it.
    let moved = unsafe {
        if is_reading {
            libc::preadv2(fd.as_raw_fd(), &raw const span, 1, offset, flags)
        } else {
            libc::pwritev2(fd.as_raw_fd(), &raw const span, 1, offset, flags)
        }
    };
    usize::try_from(moved).map_err(|_| sys::last_error())
}

/// Transfers on a descriptor that cannot be told not to wait: only if it is ready, and no more than a pipe
/// takes at once.
fn blocking_if_ready(fd: BorrowedFd<'_>, memory: Memory, is_reading: bool) -> Result<usize, Errno> {
    poll_once(fd, is_reading)?;
    let memory = if is_reading { memory } else { memory.at_most(libc::PIPE_BUF) };
    transfer(fd, memory, is_reading, CURRENT_POSITION, 0)
}

/// Returns `EAGAIN` if the descriptor is not ready.
fn poll_once(fd: BorrowedFd<'_>, is_reading: bool) -> Result<(), Errno> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = if is_reading { PollFlags::IN } else { PollFlags::OUT };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&now))? {
        0 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

fn receive_datagram(request: &Request) -> Outcome {
    // SAFETY: as for READ_FILE.
    let bytes = unsafe { request.memory.filling() };
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    match net::recvfrom(request.fd(), bytes, flags) {
        Ok((_, length, address)) => Outcome {
            address: of_peer(address),
            is_truncated: length > request.memory.length(),
            ..Outcome::of(Ok(length.min(request.memory.length())))
        },
        Err(error) => Outcome::of(Err(error)),
    }
}

fn connect(request: &mut Request) -> Result<usize, Errno> {
    if !request.is_connecting {
        let connected = match request.address.as_ref().ok_or(Errno::DESTADDRREQ)? {
            Address::Internet(address) => net::connect(request.fd(), address),
            Address::Local(address) => net::connect(request.fd(), &**address),
        };
        match connected {
            Ok(()) => return Ok(0),
            // It continues in the background, also after a signal.
            Err(error @ (Errno::INPROGRESS | Errno::INTR)) => {
                request.is_connecting = true;
                return Err(if error == Errno::INTR { Errno::INPROGRESS } else { error });
            }
            Err(error) => return Err(error),
        }
    }
    sockopt::socket_error(request.fd())??;
    // No error, and no peer yet: this is not the result, but the edge of a socket that was just made.
    match net::getpeername(request.fd()) {
        Ok(_) => Ok(0),
        Err(Errno::NOTCONN) => Err(Errno::INPROGRESS),
        Err(error) => Err(error),
    }
}
