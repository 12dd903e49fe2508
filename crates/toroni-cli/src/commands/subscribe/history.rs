//! `--last N`: finds the newest messages in the ring before the first is printed.

use std::collections::VecDeque;
use toroni_shell::exchange::Loss;

pub(super) enum Kept {
    /// A message in its printed form.
    Message(Vec<u8>),
    /// A loss between kept messages, with the text of the library's error.
    Loss(Loss, String),
}

/// Keeps the newest `wanted` messages before the position `end`.
pub(super) struct History {
    wanted: usize,
    /// The end of the stream when the subscriber started. Messages from here on are not history.
    pub(super) end: u64,
    messages: usize,
    kept: VecDeque<Kept>,
}

impl History {
    pub(super) fn new(wanted: usize, end: u64) -> Self {
        Self { wanted, end, messages: 0, kept: VecDeque::new() }
    }

    /// Keeps the next message, and drops the oldest if there are too many.
    pub(super) fn message(&mut self, rendered: Vec<u8>) {
        self.kept.push_back(Kept::Message(rendered));
        self.messages = self.messages.saturating_add(1);
        if self.messages <= self.wanted {
            return;
        }
        self.messages = self.messages.saturating_sub(1);
        while let Some(Kept::Loss(..)) = self.kept.pop_front() {}
        // Drop losses that are older than the oldest message.
        while let Some(Kept::Loss(..)) = self.kept.front() {
            self.kept.pop_front();
        }
    }

    /// Keeps a loss between the messages around it.
    pub(super) fn loss(&mut self, loss: Loss, text: String) {
        self.kept.push_back(Kept::Loss(loss, text));
    }

    /// Returns what is kept, oldest first.
    pub(super) fn into_kept(self) -> impl Iterator<Item = Kept> {
        self.kept.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_shell::exchange::Lapse;

    /// Events and result as text: a letter for each message, `!` for a loss.
    fn kept(wanted: usize, events: &str) -> String {
        let mut history = History::new(wanted, 0);
        for event in events.bytes() {
            match event {
                b'!' => history.loss(Loss::Lapse(Lapse { messages: 1, bytes: 1 }), String::new()),
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
