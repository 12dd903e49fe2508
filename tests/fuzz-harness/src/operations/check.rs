//! Compares what every process can see of a bus with the model.

use super::state::State;
use super::writers::topics;
use std::collections::BTreeMap;

impl State {
    /// Statistics say what the model says, and what participants have counted themselves.
    pub(super) fn check(&mut self) {
        let stats = self.bus.stats().unwrap();
        let stored = self.model.stored_end();
        assert_eq!(stats.tail, stored.position);
        // Between a death and the next lock, the pair may be half-updated.
        if !self.orphaned {
            assert_eq!(stats.sequence, stored.sequence);
        }
        let oldest = self.model.first_from(self.model.oldest());
        assert_eq!(stats.oldest_position, oldest.position);
        if !self.orphaned {
            match (self.exclusive, stats.lock_owner) {
                (None, owner) => assert_eq!(owner, None),
                (Some(_), owner) => {
                    let owner = owner.unwrap();
                    assert_eq!((owner.exclusive, owner.alive), (true, Some(true)));
                }
            }
        }

        let subscribers = stats.subscribers.unwrap();
        let living: Vec<_> = subscribers.iter().filter(|found| found.alive).collect();
        assert_eq!(living.len(), self.readers.iter().flatten().count());
        for reader in self.readers.iter().flatten() {
            let slot = reader.subscriber.slot();
            let found = living.iter().find(|found| found.slot == slot).unwrap();
            assert_eq!(found.gating, reader.gating);
            assert!(
                reader.told.contains(&found.position),
                "{} and {:?}",
                found.position,
                reader.told
            );
            assert!(found.received <= reader.received && found.lapses <= reader.lapses);
            assert!(found.lost_messages <= reader.lost);
            assert_eq!(found.lapped_now, self.model.is_lapped(found.position));
        }
        let publishers = stats.publishers.unwrap();
        let living: Vec<_> = publishers.iter().filter(|found| found.alive).collect();
        let opened = self.writers.iter().flatten();
        let bridges = self.bridges.iter().flatten();
        let count = opened.clone().filter(|writer| writer.is_open()).count();
        assert_eq!(living.len(), count + bridges.clone().count());
        for writer in opened.filter(|writer| writer.is_open()) {
            let found = living.iter().find(|found| found.name == writer.name).unwrap();
            assert_eq!((found.messages, found.bytes), writer.counts);
        }
        for bridge in bridges {
            let found = living.iter().find(|found| found.name == bridge.name).unwrap();
            assert_eq!((found.messages, found.bytes), bridge.counts);
        }
        assert_eq!(stats.topics as usize, self.interned.len());
        self.check_topics();
        self.check_values();
    }

    fn check_topics(&self) {
        let names = topics();
        let mut expected = BTreeMap::<&str, (u64, u64)>::new();
        let first = self.model.first_from(self.model.oldest()).sequence;
        for number in first..self.model.stored as u64 {
            let note = &self.notes[usize::try_from(number).unwrap()];
            if note.loss.is_some() || note.is_cleared {
                continue;
            }
            let length = self.model.message(number).unwrap().length - note.extensions;
            let counts = expected.entry(&names[note.topic]).or_default();
            counts.0 += 1;
            counts.1 += u64::from(length);
        }
        for found in self.bus.topics().unwrap() {
            let number = names.iter().position(|name| *name == found.name);
            self.compare_value_stats(number.expect("a known topic"), found.value);
            let counts = expected.remove(found.name.as_str()).unwrap_or_default();
            assert_eq!((found.messages, found.bytes), counts, "{:?}", found.name);
        }
        assert!(expected.is_empty(), "topics that were not found: {expected:?}");
    }
}
