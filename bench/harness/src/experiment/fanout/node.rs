//! A subscriber that shares its thread with others, and the messages that they all get.

use crate::clock::now_ns;

/// Bytes of a message: its number and the time at which it was handed over, 8 bytes each.
pub(super) const MESSAGE: usize = 16;

#[inline]
pub(super) fn message(number: u64, time_ns: u64) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&time_ns.to_le_bytes());
    bytes
}

/// What one subscriber has seen.
#[derive(Debug)]
pub(super) struct Node {
    /// Number of the next message.
    pub(super) next: u64,
    /// Number of messages that never came, or came out of order.
    pub(super) wrong: u64,
    /// Latencies in nanoseconds. Only the first and the last node measure, to disturb little.
    pub(super) samples_ns: Option<Vec<u64>>,
}

impl Node {
    /// Makes a node that will get `messages` messages.
    pub(super) fn new(messages: u64, measures: bool) -> Self {
        let samples_ns = measures.then(|| {
            let count = usize::try_from(messages).unwrap_or(0);
            // Touched now: the first touch of a page costs microseconds.
            let mut samples = vec![1; count];
            samples.clear();
            samples
        });
        Self { next: 0, wrong: 0, samples_ns }
    }

    /// Checks a message that has just come.
    #[inline]
    pub(super) fn check(&mut self, bytes: &[u8]) {
        let Some((number, time)) = bytes.split_first_chunk::<8>() else {
            self.wrong += 1;
            return;
        };
        let number = u64::from_le_bytes(*number);
        if let (Some(samples), Some(time)) = (&mut self.samples_ns, time.first_chunk::<8>()) {
            samples.push(now_ns().saturating_sub(u64::from_le_bytes(*time)));
        }
        if number != self.next {
            self.wrong = self.wrong.saturating_add(number.abs_diff(self.next));
        }
        self.next = number.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_count_what_is_wrong_and_measure() {
        let mut node = Node::new(10, true);
        let now = now_ns();
        for number in [0, 1, 4, 5] {
            node.check(&message(number, now - 1000));
        }
        assert_eq!((node.next, node.wrong), (6, 2));
        let samples = node.samples_ns.as_ref().unwrap();
        assert!(samples.len() == 4 && samples.iter().all(|sample| *sample >= 1000));
        node.check(&message(5, now));
        node.check(&[1, 2, 3]);
        assert_eq!(node.wrong, 4);
        assert!(Node::new(10, false).samples_ns.is_none());
    }
}
