//! How streams are made: which end listens, which connects, and their buffers.

use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::Setup;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_reuseaddr, set_socket_send_buffer_size, set_tcp_nodelay,
};
use rustix::net::{
    AddressFamily, Ipv4Addr, SocketAddrAny, SocketAddrUnix, SocketAddrV4, SocketFlags, SocketType,
    accept, bind, connect, listen, socket_with,
};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One kind of stream.
pub(super) trait Way {
    /// Describes the settings, as part of a sentence.
    fn settings(setup: &Setup) -> String;
    /// Creates what must exist before both ends.
    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }
    /// Opens the streams of sender `index` to each receiver.
    fn outgoing(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Vec<OwnedFd>, Failure>;
    /// Opens the streams from each sender to receiver `index`.
    fn incoming(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Vec<OwnedFd>, Failure>;
}

/// TCP over loopback.
pub(super) struct Tcp;
/// Unix sockets of type STREAM.
pub(super) struct Sockets;
/// Named pipes.
pub(super) struct Pipes;

/// How long to wait for the other end.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Way for Tcp {
    fn settings(setup: &Setup) -> String {
        format!("TCP_NODELAY, socket buffers of {} bytes at most", setup.capacity_bytes)
    }

    fn outgoing(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Vec<OwnedFd>, Failure> {
        let streams = accept_all(SocketType::STREAM, &tcp_address(directory, index), setup)?;
        nodelay(&streams)?;
        Ok(streams)
    }

    fn incoming(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Vec<OwnedFd>, Failure> {
        let address = |sender| tcp_address(directory, sender);
        let streams = connect_to_all(SocketType::STREAM, address, setup)?;
        nodelay(&streams)?;
        Ok(streams)
    }
}

impl Way for Sockets {
    fn settings(setup: &Setup) -> String {
        format!("SOCK_STREAM, socket buffers of {} bytes at most", setup.capacity_bytes)
    }

    fn outgoing(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Vec<OwnedFd>, Failure> {
        accept_all(SocketType::STREAM, &unix_address(directory, index)?, setup)
    }

    fn incoming(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Vec<OwnedFd>, Failure> {
        let addresses = unix_addresses(directory, setup)?;
        connect_to_all(SocketType::STREAM, |sender| addresses[usize::from(sender)].clone(), setup)
    }
}

impl Way for Pipes {
    fn settings(setup: &Setup) -> String {
        format!("named pipes of {} bytes at most", setup.capacity_bytes.min(MOST_PIPE_BYTES))
    }

    fn host(directory: &RunDirectory, setup: &Setup) -> Result<(), Failure> {
        for sender in 0..setup.senders {
            for receiver in 0..setup.receivers {
                let path = pipe_path(directory, sender, receiver);
                mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)
                    .map_err(Failure::of(format!("make {}", path.display())))?;
            }
        }
        Ok(())
    }

    fn outgoing(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Vec<OwnedFd>, Failure> {
        (0..setup.receivers)
            .map(|receiver| {
                let path = pipe_path(directory, index, receiver);
                // Fails as long as the pipe has no reader.
                let pipe = retry(&format!("open {}", path.display()), Errno::NXIO, || {
                    open(&path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                })?;
                let bytes = usize::try_from(setup.capacity_bytes.min(MOST_PIPE_BYTES));
                // If the host allows less, the pipe keeps its size.
                let _ = rustix::pipe::fcntl_setpipe_size(&pipe, bytes.unwrap_or(usize::MAX));
                Ok(pipe)
            })
            .collect()
    }

    fn incoming(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Vec<OwnedFd>, Failure> {
        (0..setup.senders)
            .map(|sender| {
                let path = pipe_path(directory, sender, index);
                // Waits for the sender to open its end: without one, reading would find the end of the file.
                open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(Failure::of(format!("open {}", path.display())))
            })
            .collect()
    }
}

/// The largest pipe of an ordinary user, unless the machine is set up otherwise.
const MOST_PIPE_BYTES: u64 = 1 << 20;

/// Listens at `address` and accepts a stream from each receiver.
pub(crate) fn accept_all(
    kind: SocketType,
    address: &SocketAddrAny,
    setup: &Setup,
) -> Result<Vec<OwnedFd>, Failure> {
    let listener = endpoint(kind, address, setup)?;
    // Connections of an earlier run may still linger at this port.
    set_socket_reuseaddr(&listener, true).map_err(Failure::of("share an address"))?;
    bind(&listener, address).map_err(Failure::of(format!("bind {address:?}")))?;
    listen(&listener, 64).map_err(Failure::of("listen"))?;
    (0..setup.receivers)
        .map(|_| {
            let stream = accept(&listener).map_err(Failure::of("accept a receiver"))?;
            set_buffers(&stream, setup)?;
            Ok(stream)
        })
        .collect()
}

/// Connects to each sender, as soon as it listens.
pub(crate) fn connect_to_all(
    kind: SocketType,
    address: impl Fn(u16) -> SocketAddrAny,
    setup: &Setup,
) -> Result<Vec<OwnedFd>, Failure> {
    (0..setup.senders)
        .map(|sender| {
            let address = address(sender);
            let start = Instant::now();
            loop {
                // A socket whose connection was refused cannot be used again.
                let stream = endpoint(kind, &address, setup)?;
                match connect(&stream, &address) {
                    Ok(()) => return Ok(stream),
                    Err(Errno::CONNREFUSED | Errno::NOENT) if start.elapsed() < TIMEOUT => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(error) => return Err(Failure::of(format!("reach {address:?}"))(error)),
                }
            }
        })
        .collect()
}

/// Returns the address of a sender's Unix socket.
pub(crate) fn unix_address(
    directory: &RunDirectory,
    sender: u16,
) -> Result<SocketAddrAny, Failure> {
    let path = directory.path.join(format!("sender-{sender}"));
    let address = SocketAddrUnix::new(&path);
    Ok(address.map_err(Failure::of(format!("use {}", path.display())))?.into())
}

/// Returns the addresses of all senders.
pub(crate) fn unix_addresses(
    directory: &RunDirectory,
    setup: &Setup,
) -> Result<Vec<SocketAddrAny>, Failure> {
    (0..setup.senders).map(|sender| unix_address(directory, sender)).collect()
}

fn tcp_address(directory: &RunDirectory, sender: u16) -> SocketAddrAny {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, directory.port + sender).into()
}

fn pipe_path(directory: &RunDirectory, sender: u16, receiver: u16) -> PathBuf {
    directory.path.join(format!("pipe-{sender}-{receiver}"))
}

/// Makes a socket with its buffers: those of TCP must be set before it connects or listens.
fn endpoint(kind: SocketType, address: &SocketAddrAny, setup: &Setup) -> Result<OwnedFd, Failure> {
    let family: AddressFamily = address.address_family();
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(Failure::of("make a socket"))?;
    set_buffers(&socket, setup)?;
    Ok(socket)
}

fn set_buffers(socket: &OwnedFd, setup: &Setup) -> Result<(), Failure> {
    // If an ordinary user may have only less, the kernel gives that.
    let bytes = usize::try_from(setup.capacity_bytes).unwrap_or(usize::MAX).min(1 << 30);
    set_socket_send_buffer_size(socket, bytes).map_err(Failure::of("set a send buffer"))?;
    set_socket_recv_buffer_size(socket, bytes).map_err(Failure::of("set a receive buffer"))
}

fn nodelay(streams: &[OwnedFd]) -> Result<(), Failure> {
    streams.iter().try_for_each(|stream| {
        set_tcp_nodelay(stream, true).map_err(Failure::of("set TCP_NODELAY"))
    })
}

/// Repeats `attempt` as long as the other end does not exist. It sleeps, because this is not measured.
fn retry<T>(
    action: &str,
    absent: Errno,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if error == absent && start.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(Failure::of(action)(error)),
        }
    }
}
