//! `--last N`: the newest messages of the ring, found before the first is printed.

use crate::exchange::Loss;
use std::collections::VecDeque;

/// What [`History`] keeps, in the order of the bus.
pub(super) enum Kept {
    /// A message, as it is printed.
    Message(Vec<u8>),
    /// A loss among the messages that are kept, and what the library says about it.
    Loss(Loss, String),
}

/// The newest `wanted` messages of those before `end`.
pub(super) struct History {
    wanted: usize,
    /// The end of the stream when the subscriber began: what is there and later is not history.
    pub(super) end: u64,
    messages: usize,
    kept: VecDeque<Kept>,
}

impl History {
    pub(super) fn new(wanted: usize, end: u64) -> Self {
        Self { wanted, end, messages: 0, kept: VecDeque::new() }
    }

    /// Keeps the next message and forgets the oldest if there are too many.
    pub(super) fn message(&mut self, rendered: Vec<u8>) {
        self.kept.push_back(Kept::Message(rendered));
        self.messages += 1;
        if self.messages <= self.wanted {
            return;
        }
        self.messages -= 1;
        while let Some(Kept::Loss(..)) = self.kept.pop_front() {}
        // Older than all that is kept.
        while let Some(Kept::Loss(..)) = self.kept.front() {
            self.kept.pop_front();
        }
    }

    /// Keeps a loss at its place.
    pub(super) fn loss(&mut self, loss: Loss, text: String) {
        self.kept.push_back(Kept::Loss(loss, text));
    }

    /// What is kept, oldest first.
    pub(super) fn into_kept(self) -> impl Iterator<Item = Kept> {
        self.kept.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages by their letter, losses as `!`.
    fn kept(wanted: usize, events: &str) -> String {
        let mut history = History::new(wanted, 0);
        for event in events.bytes() {
            match event {
                b'!' => history.loss(Loss { messages: 1, bytes: 1 }, String::new()),
                letter => history.message(vec![letter]),
            }
        }
        let letter = |kept| match kept {
            Kept::Message(bytes) => char::from(bytes[0]),
            Kept::Loss(..) => '!',
        };
        history.into_kept().map(letter).collect()
    }

    #[test]
    fn the_newest_are_kept_with_the_losses_between_them() {
        for (wanted, events, expected) in [
            (2, "", ""),
            (2, "a", "a"),
            (2, "abc", "bc"),
            (3, "abc", "abc"),
            (2, "a!b!c", "b!c"),
            (2, "!a!b", "!a!b"),
            (2, "!!a!!bcd!", "cd!"),
            (1, "ab!", "b!"),
            (0, "ab", ""),
        ] {
            assert_eq!(kept(wanted, events), expected, "{wanted} of {events:?}");
        }
    }
}
