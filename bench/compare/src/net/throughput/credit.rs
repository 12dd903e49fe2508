//! A plain window: the receiver says how much it has, and the sender is never further ahead than the receiver's buffer
//! takes. Without it, plain datagrams would be measured by how many of them are lost.

/// Bytes that may be on the way. A core keeps up to a thousand datagrams for all interfaces (`netdev_max_backlog`), and
/// each datagram waits twice: before the bridge and after it.
pub(super) const ON_THE_WAY: u64 = 256 << 10;
/// The receiver speaks each time it has that many bytes more.
pub(super) const EVERY: u64 = ON_THE_WAY / 4;

/// What a sender knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit {
    sent: u64,
    taken: u64,
}

impl Credit {
    pub(super) fn send(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Notes what the receiver says.
    pub(super) fn hear(&mut self, datagram: &[u8]) {
        let taken = datagram.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.taken = self.taken.max(taken);
    }

    pub(super) fn is_used_up(self) -> bool {
        self.sent - self.taken >= ON_THE_WAY
    }

    pub(super) fn is_half_used(self) -> bool {
        self.sent - self.taken >= ON_THE_WAY / 2
    }
}

/// What a receiver has, and has said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    taken: u64,
    said: u64,
}

impl Taken {
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    /// Returns what to say now, if anything. Someone without more to read says everything.
    pub(super) fn say(&mut self, is_idle: bool) -> Option<[u8; 8]> {
        let wanted = if is_idle { 1 } else { EVERY };
        (self.taken - self.said >= wanted).then(|| {
            self.said = self.taken;
            self.taken.to_le_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_until_the_receiver_has_taken_enough() {
        let (mut credit, mut taken) = (Credit::default(), Taken::default());
        credit.send(256 << 10);
        assert!(credit.is_used_up());
        taken.take(100);
        assert_eq!(taken.say(false), None);
        taken.take(128 << 10);
        credit.hear(&taken.say(false).unwrap());
        assert!(!credit.is_used_up());
        assert!(!credit.is_half_used());
        taken.take((128 << 10) - 100);
        assert!(taken.say(true).is_some());
        assert_eq!(taken.say(true), None);
    }
}
