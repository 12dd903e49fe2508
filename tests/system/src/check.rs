//! Checks that a subscriber received what was published: whole, complete, once and in one order.

use crate::payload::{Payload, decode};
use std::collections::{BTreeMap, HashMap};
use toroni_testkit::order::{Digest, Senders};

/// Messages of a window, whose order is summed up in one number.
pub const WINDOW: u64 = 4096;

/// Checks messages one by one, and remembers little.
#[derive(Debug, Default)]
pub struct Stream {
    first_sequence: Option<u64>,
    next_sequence: Option<u64>,
    senders: Senders,
    /// Of each window: the digest of its order, and how many of its messages were seen.
    windows: BTreeMap<u64, (Digest, u64)>,
    received: u64,
    lost: u64,
}

impl Stream {
    /// Takes the next message: its number in the bus and its bytes.
    ///
    /// # Errors
    /// If it is torn, missing others before it, there twice, or out of order.
    pub fn take(&mut self, sequence: u64, bytes: &[u8]) -> Result<Payload, String> {
        let payload = decode(bytes).map_err(|error| format!("sequence {sequence}: {error}"))?;
        if let Some(next) = self.next_sequence
            && sequence != next
        {
            return Err(format!("sequence {sequence} where {next} should come"));
        }
        let first = *self.first_sequence.get_or_insert(sequence);
        let Payload { worker, counter } = payload;
        // Who was there from the beginning has seen every worker's first message.
        let expected = self.senders.expected(worker);
        let expected = expected.or_else(|| (first == 0 && self.lost == 0).then_some(0));
        if let Some(expected) = expected
            && (counter < expected || counter > expected && self.lost == 0)
        {
            return Err(format!(
                "sequence {sequence}: message {counter} of worker {worker} where {expected} should come"
            ));
        }
        self.senders.take(worker, counter);
        self.next_sequence = Some(sequence + 1);
        self.received += 1;
        let (digest, seen) = self.windows.entry(sequence / WINDOW).or_default();
        digest.add(u64::from(worker) << 44 ^ counter);
        *seen += 1;
        Ok(payload)
    }

    /// Takes the news that message `counter` of a worker was lost before it came to the bus. The news has a
    /// number in the bus, which only the next message shows.
    ///
    /// # Errors
    /// If it comes twice, or out of order.
    pub fn take_loss(&mut self, worker: u32, counter: u64) -> Result<(), String> {
        let is_from_the_beginning = self.first_sequence == Some(0) && self.lost == 0;
        let expected = self.senders.expected(worker);
        let expected = expected.or_else(|| is_from_the_beginning.then_some(0));
        if let Some(expected) = expected
            && (counter < expected || counter > expected && self.lost == 0)
        {
            return Err(format!(
                "loss of message {counter} of worker {worker} where {expected} should come"
            ));
        }
        self.senders.take(worker, counter);
        self.received += 1;
        if let Some(next) = &mut self.next_sequence {
            *next += 1;
        }
        Ok(())
    }

    /// Takes the news that `messages` were lost here.
    pub fn lose(&mut self, messages: u64) {
        self.lost += messages;
        if let Some(next) = &mut self.next_sequence {
            *next += messages;
        }
    }

    /// Number of the message that should come next, if one came already.
    #[must_use]
    pub fn next_sequence(&self) -> Option<u64> {
        self.next_sequence
    }

    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Messages lost, as reported.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many messages of each worker have come, or were lost, up to the last one that came.
    #[must_use]
    pub fn counts(&self) -> &HashMap<u32, u64> {
        self.senders.next()
    }

    /// Digests of the order of all windows that were seen completely.
    pub fn orders(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.windows
            .iter()
            .filter(|(_, (_, seen))| *seen == WINDOW)
            .map(|(window, (digest, _))| (*window, digest.value()))
    }

    /// Digests of the order of windows that were seen completely, as far as not taken before.
    pub fn take_orders(&mut self) -> Vec<(u64, u64)> {
        let orders: Vec<_> = self.orders().collect();
        for (window, _) in &orders {
            self.windows.remove(window);
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{HEAD, encode};
    use toroni_testkit::order::Agreement;

    fn message(worker: u32, counter: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(Payload { worker, counter }, HEAD, &mut bytes);
        bytes
    }

    #[test]
    fn gaps_repetitions_and_late_beginnings_are_found() {
        let mut stream = Stream::default();
        assert!(stream.take(0, &message(1, 0)).is_ok());
        assert!(stream.take(1, &message(2, 0)).is_ok());
        assert!(stream.take(2, &message(1, 2)).is_err());
        assert!(stream.take(2, &message(1, 0)).is_err());
        assert!(stream.take(3, &message(1, 1)).is_err());
        assert!(stream.take(2, &message(3, 1)).is_err());
        assert!(stream.take(2, &message(1, 1)).is_ok());
        stream.lose(10);
        assert!(stream.take(13, &message(1, 9)).is_ok());
        assert!(stream.take(14, &message(1, 8)).is_err());
        assert_eq!((stream.received(), stream.lost()), (4, 10));

        let mut late = Stream::default();
        assert!(late.take(50, &message(1, 30)).is_ok());
        assert!(late.take(51, &message(1, 32)).is_err());
    }

    #[test]
    fn losses_on_the_way_come_once_and_at_their_place() {
        let mut stream = Stream::default();
        stream.take(0, &message(1, 0)).unwrap();
        assert!(stream.take_loss(1, 2).is_err() && stream.take_loss(2, 1).is_err());
        stream.take_loss(1, 1).unwrap();
        assert!(stream.take_loss(1, 1).is_err());
        assert!(stream.take(1, &message(1, 2)).is_err(), "the loss has this number");
        stream.take(2, &message(1, 2)).unwrap();
        stream.lose(3);
        stream.take_loss(1, 4).unwrap();
        assert!(stream.take_loss(1, 3).is_err());
        assert_eq!((stream.next_sequence(), stream.received(), stream.lost()), (Some(7), 4, 3));
    }

    #[test]
    fn another_order_of_the_same_messages_is_another_sum() {
        let order = |swapped: bool| {
            let mut stream = Stream::default();
            for sequence in 0..WINDOW {
                let worker = u32::from((sequence % 2 == 1) ^ (swapped && sequence / 2 == 7));
                stream.take(sequence, &message(worker, sequence / 2)).unwrap();
            }
            let orders = stream.take_orders();
            assert_eq!(orders.len(), 1);
            orders[0]
        };
        let mut agreement = Agreement::default();
        let (window, digest) = order(false);
        agreement.take("a", window, digest).unwrap();
        agreement.take("b", window, digest).unwrap();
        assert_eq!(agreement.compared(), 1);
        assert!(agreement.take("c", window, order(true).1).is_err());
    }
}
