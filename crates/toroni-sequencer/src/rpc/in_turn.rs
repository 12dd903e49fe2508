//! Members that a thread without a runtime asks, one until it fails, and then the next.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::link::{Link, LinkError, Target};
use super::message::{Answer, Request};

/// Members of a group, one of whom is asked.
#[derive(Debug)]
pub(crate) struct InTurn {
    links: Vec<Link>,
    at: usize,
    runtime: Runtime,
}

impl InTurn {
    /// Makes links to these members; at least one.
    pub(crate) fn new(members: Vec<Target>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let links = {
            let _inside = runtime.enter();
            members.into_iter().map(Link::new).collect()
        };
        Ok(Self { links, at: 0, runtime })
    }

    /// Asks the member whose turn it is, and waits no longer than this.
    pub(crate) fn call(&self, request: &Request, limit: Duration) -> Result<Answer, LinkError> {
        let call = self.links[self.at].call(request);
        let late = || LinkError::Unreachable("no answer".to_owned());
        self.runtime.block_on(async { timeout(limit, call).await.unwrap_or_else(|_| Err(late())) })
    }

    /// Turns to the next member.
    pub(crate) fn turn(&mut self) {
        self.at = (self.at + 1) % self.links.len();
    }

    /// Returns whose turn it is.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns how many members there are.
    pub(crate) const fn count(&self) -> usize {
        self.links.len()
    }
}
