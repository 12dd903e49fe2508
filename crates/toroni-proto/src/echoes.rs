//! Echoes: the receivers that wait for a sign that a sender lives.
//!
//! ```text
//!   STATUS new ──► nonces, one for each receiver ──► ECHO, SESSION      at most every 2 ms, and within a rate
//! ```

use crate::hook::mutant;
use crate::limiter::Limiter;
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::Receiver;

/// As many receivers wait at most. Others ask again.
const MOST: usize = 1_024;
/// The shortest pause between two ECHOs, so that receivers that ask together share one.
const APART_NS: u64 = 2 * MILLISECOND;

/// What receivers have drawn and wait for.
#[derive(Debug)]
pub(crate) struct Echoes {
    /// One for each receiver, in the order in which they came. Never grows beyond its capacity.
    asked: Vec<Asked>,
    limiter: Limiter,
    due: Monotonic,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    receiver: Receiver,
    count: u64,
    nonce: u64,
}

impl Echoes {
    pub(crate) fn new(limiter: Limiter) -> Self {
        Self { asked: Vec::with_capacity(MOST), limiter, due: Monotonic::default() }
    }

    /// A receiver waits for this nonce. A later question of it replaces the one before, but a recording of an earlier one does not.
    pub(crate) fn ask(&mut self, receiver: Receiver, count: u64, nonce: u64) {
        if mutant("echo_refused") {
            return;
        }
        let asked = Asked { receiver, count, nonce };
        let place = |one: &Asked| (one.receiver.session, one.count);
        match self.asked.iter().position(|one| one.receiver.source == receiver.source) {
            Some(at) if place(&self.asked[at]) < place(&asked) => self.asked[at] = asked,
            None if self.asked.len() < MOST => self.asked.push(asked),
            _ => {}
        }
    }

    /// Whether an ECHO may be sent now.
    pub(crate) fn is_due(&self, now: Monotonic) -> bool {
        !self.asked.is_empty() && self.due <= now
    }

    pub(crate) fn poll_timeout(&self) -> Option<Monotonic> {
        (!self.asked.is_empty()).then_some(self.due)
    }

    pub(crate) fn nonces(&self) -> impl Iterator<Item = u64> {
        self.asked.iter().map(|one| one.nonce)
    }

    /// Takes the credit for an ECHO with the first `count` nonces, and for what follows it. `None` if there is none yet: then
    /// nothing is sent.
    pub(crate) fn sent(&mut self, now: Monotonic, count: usize, bytes: u64) -> Option<()> {
        if !self.limiter.take(now, bytes) {
            self.due = self.limiter.next(bytes).max(now.after(1));
            return None;
        }
        self.asked.drain(..count.min(self.asked.len()));
        self.due = now.after(APART_NS);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Session, Source};
    use crate::time::SECOND;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(SECOND + ms * MILLISECOND)
    }

    fn receiver(source: u32) -> Receiver {
        Receiver { source: Source(source), session: Session(1) }
    }

    fn echoes(rate: Option<u64>) -> Echoes {
        Echoes::new(Limiter::new(rate, 10 * MILLISECOND, 1_408, at(0)))
    }

    #[test]
    fn each_receiver_waits_once_and_those_that_ask_together_share_an_echo() {
        let mut echoes = echoes(None);
        assert_eq!((echoes.is_due(at(0)), echoes.poll_timeout()), (false, None));
        for (source, count, nonce) in [(1, 1, 10), (2, 1, 20), (1, 2, 11)] {
            echoes.ask(receiver(source), count, nonce);
        }
        echoes.ask(receiver(1), 1, 12);
        assert!(echoes.is_due(at(0)) && echoes.nonces().eq([11, 20]));
        assert_eq!(echoes.sent(at(0), 2, 300), Some(()));
        echoes.ask(receiver(3), 1, 30);
        assert_eq!((echoes.is_due(at(1)), echoes.poll_timeout()), (false, Some(at(2))));
        assert!(echoes.is_due(at(2)) && echoes.nonces().eq([30]));
    }

    #[test]
    fn their_rate_and_number_are_limited_and_none_is_forgotten() {
        // 25 kbit/s: an ECHO with its SESSION takes about a tenth of a second.
        let mut echoes = echoes(Some(25_000));
        let mut sent = 0;
        for ms in 0..1_000 {
            echoes.ask(receiver(1), ms, ms);
            if echoes.is_due(at(ms)) && echoes.sent(at(ms), 1, 300).is_some() {
                sent += 1;
            }
        }
        assert!((5..12).contains(&sent), "{sent}");
        for source in 0..2_000 {
            echoes.ask(receiver(source), 1, 1);
        }
        assert_eq!(echoes.nonces().count(), MOST);
    }
}
