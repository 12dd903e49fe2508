//! How far the order has come: what a host that only follows it keeps, too.

use super::{Digest, Event};
use crate::batch::Command;

/// How far the order has come. It says nothing of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// The series of the feed.
    pub series: u32,
    /// The number of the event that began the series; 0 if there was none before.
    pub begun: u64,
    /// The number of the next event.
    pub next: u64,
    /// The digest of all events before it.
    pub digest: Digest,
}

impl Chain {
    /// Returns how far this is: an order in a later series is further, whatever its number.
    #[cfg(feature = "member")]
    pub(crate) const fn place(&self) -> (u32, u64) {
        (self.series, self.next)
    }

    /// Appends a command, of which `bytes` is the encoding, and returns its event.
    pub fn append<'a>(&mut self, command: Command<'a>, bytes: &[u8]) -> Event<'a> {
        let number = self.next;
        if let Command::Begin { series } = command {
            (self.series, self.begun) = (series, number);
        }
        self.digest = self.digest.after(self.series, number, bytes);
        self.next = self.next.saturating_add(1);
        Event { series: self.series, number, command }
    }
}
