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
    /// The members, by their addresses.
    links: Vec<(String, Link)>,
    at: usize,
    /// The member that did not answer last.
    silent: Option<usize>,
    runtime: Runtime,
}

impl InTurn {
    /// Makes links to these members; at least one.
    pub(crate) fn new(members: Vec<Target>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let links = {
            let _inside = runtime.enter();
            members.into_iter().map(|member| (member.address.clone(), Link::new(member))).collect()
        };
        Ok(Self { links, at: 0, silent: None, runtime })
    }

    /// Asks the member whose turn it is, and waits no longer than this.
    pub(crate) fn call(&mut self, request: &Request, limit: Duration) -> Result<Answer, LinkError> {
        let call = self.links[self.at].1.call(request);
        let late = || LinkError::Unreachable("no answer".to_owned());
        let answer = self
            .runtime
            .block_on(async { timeout(limit, call).await.unwrap_or_else(|_| Err(late())) });
        if answer.is_err() {
            self.silent = Some(self.at);
        }
        answer
    }

    /// Turns to the next member.
    pub(crate) fn turn(&mut self) {
        self.at = (self.at + 1) % self.links.len();
    }

    /// Turns to the member that leads, as the one whose turn it is says, or to the next one.
    pub(crate) fn turn_to(&mut self, leader: Option<&str>) {
        let named = self.links.iter().position(|(address, _)| Some(address.as_str()) == leader);
        // Until another one is elected, the others name the one that was lost.
        match named.filter(|named| *named != self.at && Some(*named) != self.silent) {
            Some(named) => self.at = named,
            None => {
                let asked = self.at;
                self.turn();
                if asked != self.at && Some(self.at) == self.silent {
                    // It is asked when no other one leads.
                    self.silent = None;
                    self.turn();
                }
            }
        }
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
