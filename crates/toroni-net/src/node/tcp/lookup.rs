//! Looks up the name of a host, in a thread that may block: the resolver of the system may take many seconds.

use super::{Poller, TcpError, Token};
use crate::node::host_port::HostPort;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

type Found = io::Result<Vec<SocketAddr>>;

/// A thread for one name. It is started with the node, before the node chooses its processor and its priority: the thread would
/// inherit both, and never run beside a busy node.
pub(super) struct Lookup {
    ask: Sender<()>,
    found: Receiver<Found>,
    /// Can be read when there is an answer. It is watched from the first question on.
    wake: Arc<OwnedFd>,
    is_watched: bool,
    is_asked: bool,
}

impl Lookup {
    pub(super) fn new(host: HostPort) -> Result<Self, TcpError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(|error| TcpError::Lookup(error.into()))?);
        let (ask, asked) = channel();
        let (answer, found) = channel();
        let wakes = Arc::clone(&wake);
        thread::Builder::new()
            .name("toroni-lookup".to_owned())
            .spawn(move || {
                while asked.recv().is_ok() && answer.send(host.resolve()).is_ok() {
                    // This fails only if the counter is full, and then the descriptor can be read anyway.
                    let _ = rustix::io::write(&*wakes, &1_u64.to_ne_bytes());
                }
            })
            .map_err(TcpError::Lookup)?;
        Ok(Self { ask, found, wake, is_watched: false, is_asked: false })
    }

    /// Asks, unless an earlier question has no answer yet.
    pub(super) fn ask(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        if !self.is_watched {
            poller.add_reading(&self.wake, token)?;
            self.is_watched = true;
        }
        if !self.is_asked {
            self.ask.send(()).map_err(|_| ended())?;
            self.is_asked = true;
        }
        Ok(())
    }

    /// Returns the answer, once.
    pub(super) fn found(&mut self) -> Option<Found> {
        if !self.is_asked {
            return None;
        }
        let found = match self.found.try_recv() {
            Ok(found) => found,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(ended()),
        };
        self.is_asked = false;
        Some(found)
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that looks names up has ended")
}
