//! Claim: on each host, one process at a time has a source id of a realm.
//!
//! Receivers know a stream by its source id, so they would follow one of two processes with the same id and leave the other
//! one out. A process therefore listens on an abstract socket that is named after realm and source (man 7 unix). Such a name
//! belongs to one network namespace, as addresses do, and the kernel frees it when the process ends, however it ends.

use crate::socket::options;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;
use toroni_proto::id::{Realm, Source};

/// How many processes can ask who has the source id. Their connections stay in the backlog, because none is accepted.
const ASKING: i32 = 1_024;
/// A node needs milliseconds to open its streams. One that takes this long was stopped.
const OPENING: Duration = Duration::from_secs(10);
/// How long a child of this process keeps what it inherited: until it runs its own program, which takes microseconds unless
/// the machine is busy.
const INHERITED: Duration = Duration::from_secs(2);
/// How long to wait before the next attempt.
const AGAIN: Duration = Duration::from_millis(1);

/// Why a process cannot have a source id.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another one has it.
    #[error(
        "another process of this host{} has the source id {id} in this realm: give one of them another `name` or `id`",
        .process.map_or_else(String::new, |process| format!(" (process {process})"))
    )]
    Taken {
        /// The source id.
        id: Source,
        /// The process, if it is one of this PID namespace.
        process: Option<u32>,
    },
    /// The kernel refuses the socket.
    #[error("cannot make the socket that keeps other processes from this source id: {0}")]
    Socket(io::Error),
}

/// The right to a source id on this host, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    _socket: OwnedFd,
}

impl Claim {
    /// Takes a source id of a realm for this process. If this process has it already, waits for up to 2 s: it may have
    /// given the id back while another thread was starting a child, which then holds the socket for a moment.
    ///
    /// # Errors
    /// [`ClaimError::Taken`], or an error of the system.
    pub fn take(realm: Realm, source: Source) -> Result<Self, ClaimError> {
        let name = format!("toroni/source/{realm}/{source}");
        let process = match take_name(&name).map_err(ClaimError::Socket)? {
            Ok(socket) => return Ok(Self { _socket: socket }),
            Err(process) => process,
        };
        let begun = Instant::now();
        while process == Some(std::process::id()) && begun.elapsed() < INHERITED {
            std::thread::sleep(AGAIN);
            if let Some(socket) = listening(&name).map_err(ClaimError::Socket)? {
                return Ok(Self { _socket: socket });
            }
        }
        Err(ClaimError::Taken { id: source, process })
    }
}

/// The right to decide which topics of a bus a node sends in a realm, until it is dropped. Without it, two nodes that start
/// at the same time would not see each other.
#[derive(Debug)]
pub(crate) struct Opening {
    _socket: OwnedFd,
}

impl Opening {
    /// Waits until no other process of this host has it for this bus.
    pub(crate) fn take(realm: Realm, bus: &str) -> io::Result<Self> {
        let name = format!("toroni/opening/{realm}/{bus}");
        let begun = Instant::now();
        loop {
            match take_name(&name)? {
                Ok(socket) => return Ok(Self { _socket: socket }),
                Err(process) if begun.elapsed() >= OPENING => {
                    let process = process.map_or_else(String::new, |it| format!(" (process {it})"));
                    let stuck = format!("another node{process} is starting, and does not continue");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, stuck));
                }
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }
}

/// Listens on an abstract socket of this name, or returns the process that does.
fn take_name(name: &str) -> io::Result<Result<OwnedFd, Option<u32>>> {
    let begun = Instant::now();
    loop {
        if let Some(socket) = listening(name)? {
            return Ok(Ok(socket));
        }
        match owner(name) {
            // It was given back just now, or is just being taken.
            Err(Errno::CONNREFUSED) if begun.elapsed() < INHERITED => std::thread::yield_now(),
            found => return Ok(Err(found.ok().flatten())),
        }
    }
}

/// Listens on an abstract socket of this name, unless a process does.
fn listening(name: &str) -> io::Result<Option<OwnedFd>> {
    let socket = socket()?;
    match bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => listen(&socket, ASKING)?,
        Err(Errno::ADDRINUSE) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    Ok(Some(socket))
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Returns the process that listens there, if it is one of this PID namespace.
fn owner(name: &str) -> Result<Option<u32>, Errno> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(options::peer_process(&socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::wait;

    #[test]
    fn a_source_id_belongs_to_one_process_until_it_is_given_back() {
        let realm = Realm::of(&format!("claims of {}", std::process::id()));
        let [one, other] = [Source(1), Source(2)];
        let first = Claim::take(realm, one).unwrap();
        let error = Claim::take(realm, one).unwrap_err().to_string();
        let wanted = format!(
            "another process of this host (process {}) has the source id 00000001 in this realm: ",
            std::process::id()
        );
        assert!(error.starts_with(&wanted), "{error}");
        Claim::take(realm, other).unwrap();
        Claim::take(Realm(realm.0 ^ 1), one).unwrap();
        // However many have asked.
        for _ in 0..2_000 {
            assert!(take_name(&format!("toroni/source/{realm}/{one}")).unwrap().is_err());
        }
        drop(first);
        // Too many have asked to know whose child may have inherited the socket.
        wait::until("the id is free", || Claim::take(realm, one).is_ok());
    }

    /// The one may give it back just when the other asks who has it.
    #[test]
    fn an_id_that_is_given_back_all_the_time_can_be_taken() {
        let realm = Realm::of(&format!("turns of {}", std::process::id()));
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for turn in 0..5_000 {
                        Claim::take(realm, Source(1))
                            .unwrap_or_else(|error| panic!("turn {turn}: {error}"));
                    }
                });
            }
        });
    }

    #[test]
    fn a_child_that_inherited_the_socket_keeps_the_id_for_a_moment() {
        let realm = Realm::of(&format!("a child of {}", std::process::id()));
        let first = Claim::take(realm, Source(1)).unwrap();
        // What a child has between fork and exec.
        let inherited = rustix::io::fcntl_dupfd_cloexec(&first._socket, 0).unwrap();
        drop(first);
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(inherited);
        });
        Claim::take(realm, Source(1)).unwrap();
        child.join().unwrap();
    }
}
