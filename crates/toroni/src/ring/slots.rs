//! Slots: how participants claim and free them, and which subscribers gate publishers.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{
    PublisherSlot, READER_GATES, ReaderSlot, ReadersControl, SLOT_ACTIVE, SLOT_FREE,
};
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{AtomicU64, Ordering, fence};

/// The owner of a slot, as observers see it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) pid_namespace: u64,
    /// CLOCK_REALTIME, ns.
    pub(crate) started_ns: u64,
    pub(crate) name: String,
}

/// Claims a slot whose lease the caller holds, and returns its new generation. Publishers do not
/// wait for it yet.
pub(crate) fn claim(slot: &ReaderSlot, identity: &Identity) -> u32 {
    hook::point(CrashPoint::ReaderLeaseTaken);
    slot.state.store(SLOT_FREE, Ordering::Relaxed);
    let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
    slot.generation.store(generation, Ordering::Release);
    slot.flags.store(0, Ordering::Relaxed);
    slot.pid.store(identity.pid, Ordering::Relaxed);
    slot.pid_namespace.store(identity.pid_namespace, Ordering::Relaxed);
    slot.started_ns.store(identity.started_ns, Ordering::Relaxed);
    slot.received.store(0, Ordering::Relaxed);
    slot.lost_messages.store(0, Ordering::Relaxed);
    slot.lapses.store(0, Ordering::Relaxed);
    slot.losses.store(0, Ordering::Relaxed);
    slot.lost_on_the_way.store(0, Ordering::Relaxed);
    store_name(&slot.name, &identity.name);
    hook::point(CrashPoint::ReaderMidClaim);
    generation
}

/// Claims a publisher's slot whose lease the caller holds, and returns its new generation. The
/// generation is written first. From then on, a lock word with the old generation belongs to a dead
/// owner.
pub(crate) fn claim_publisher(slot: &PublisherSlot, identity: &Identity) -> u32 {
    hook::point(CrashPoint::PublisherLeaseTaken);
    let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
    slot.generation.store(generation, Ordering::Release);
    hook::point(CrashPoint::PublisherMidClaim);
    slot.pid.store(identity.pid, Ordering::Relaxed);
    slot.pid_namespace.store(identity.pid_namespace, Ordering::Relaxed);
    slot.started_ns.store(identity.started_ns, Ordering::Relaxed);
    for counter in
        [&slot.messages, &slot.bytes, &slot.waits, &slot.waited_ns, &slot.overwrites, &slot.wakes]
    {
        counter.store(0, Ordering::Relaxed);
    }
    store_name(&slot.name, &identity.name);
    slot.state.store(SLOT_ACTIVE, Ordering::Release);
    generation
}

/// Activates a claimed slot. The caller must check `reserved` afterwards: a writer that raised it
/// before it saw this slot has already lapped it.
pub(crate) fn activate(
    control: &ReadersControl,
    number: u32,
    slot: &ReaderSlot,
    position: u64,
    flags: u32,
) {
    slot.position.store(position, Ordering::Relaxed);
    slot.flags.store(flags, Ordering::Relaxed);
    slot.state.store(SLOT_ACTIVE, Ordering::Release);
    hook::point(CrashPoint::ReaderMidActivate);
    control.slots_used.0.fetch_max(number.saturating_add(1), Ordering::Release);
    count_join(control);
    hook::point(CrashPoint::ReaderAfterClaim);
}

/// Counts a join, so that writers scan the slots again: a reader joined, or came back after it was
/// lapped, and now gates at a position that is older than what they know.
pub(crate) fn count_join(control: &ReadersControl) {
    if !mutant("join_not_counted") {
        control.joins.0.fetch_add(1, Ordering::Release);
    }
    // JOIN
    if !mutant("joined_without_fence") {
        fence(Ordering::SeqCst);
    }
}

/// Frees a slot. Called before its lease is released.
pub(crate) fn free(control: &ReadersControl, slot: &ReaderSlot) {
    slot.state.store(SLOT_FREE, Ordering::Release);
    control.joins.0.fetch_add(1, Ordering::Release);
    hook::point(CrashPoint::ReaderMidLeave);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotView {
    pub(crate) number: u32,
    pub(crate) generation: u32,
    pub(crate) state: u32,
    pub(crate) flags: u32,
    pub(crate) position: u64,
}

/// Returns the readers that a writer may have to wait for.
///
/// Ignores positions that no reader can have, because a reader can write any value. Also ignores a
/// reader that was already lapped until it publishes a valid position again. Otherwise a stopped
/// reader would cost the policy's limit at every block.
pub(crate) fn gating(
    slots: impl Iterator<Item = SlotView>,
    tail: u64,
    reserved: u64,
    capacity: u64,
) -> impl Iterator<Item = SlotView> {
    slots
        .filter(|slot| slot.state == SLOT_ACTIVE && slot.flags & READER_GATES != 0)
        .filter(move |slot| slot.position <= tail && slot.position.is_multiple_of(8))
        .filter(move |slot| {
            slot.position.saturating_add(capacity) >= reserved || mutant("lapped_readers_gate")
        })
}

/// Returns whether a gating reader has not reached `position` yet. A reader calls this after it has
/// reached `position`, stored that and executed its fence. If two readers reach it at the same
/// time, at least one of them sees that the other has.
pub(crate) fn is_any_reader_before<'s>(
    mut slots: impl Iterator<Item = &'s ReaderSlot>,
    position: u64,
    reserved: u64,
    capacity: u64,
) -> bool {
    slots.any(|slot| {
        let reached = slot.position.load(Ordering::Acquire);
        reached < position
            && reached.saturating_add(capacity) >= reserved
            && slot.state.load(Ordering::Relaxed) == SLOT_ACTIVE
            && slot.flags.load(Ordering::Relaxed) & READER_GATES != 0
    })
}

/// Writes a name, truncated to the last character that fits and padded with 0.
fn store_name(words: &[AtomicU64], name: &str) {
    let mut end = name.len().min(words.len().saturating_mul(8));
    while !name.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let mut bytes = name.as_bytes()[..end].iter().copied();
    for word in words {
        let next = core::array::from_fn(|_| bytes.next().unwrap_or(0));
        word.store(u64::from_ne_bytes(next), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn view(number: u32, position: u64) -> SlotView {
        SlotView { number, generation: 1, state: SLOT_ACTIVE, flags: READER_GATES, position }
    }

    fn numbers(slots: &[SlotView], tail: u64, reserved: u64) -> Vec<u32> {
        gating(slots.iter().copied(), tail, reserved, 1024).map(|view| view.number).collect()
    }

    #[test]
    fn all_readers_that_were_not_lapped_gate() {
        let slots = [view(0, 800), view(1, 160), view(2, 400)];
        assert_eq!(numbers(&slots, 1000, 1024), [0, 1, 2]);
        assert_eq!(numbers(&slots, 1000, 1024 + 400), [0, 2]);
    }

    #[test]
    fn the_last_reader_knows_that_it_is_the_last() {
        let slots: [ReaderSlot; 5] = core::array::from_fn(|_| ReaderSlot::default());
        let is_any_reader_before = |until| is_any_reader_before(slots.iter(), until, 2048, 1024);
        let set = |number: usize, position, state, flags| {
            slots[number].position.store(position, Ordering::Relaxed);
            slots[number].state.store(state, Ordering::Relaxed);
            slots[number].flags.store(flags, Ordering::Relaxed);
        };
        assert!(!is_any_reader_before(1600), "there are no readers");
        set(0, 1600, SLOT_ACTIVE, READER_GATES);
        set(1, 1592, SLOT_ACTIVE, READER_GATES);
        assert!(is_any_reader_before(1600));
        assert!(!is_any_reader_before(1592));
        // One that left, one that does not gate, and one that was lapped.
        set(2, 1200, SLOT_FREE, READER_GATES);
        set(3, 1200, SLOT_ACTIVE, 0);
        set(4, 1016, SLOT_ACTIVE, READER_GATES);
        assert!(!is_any_reader_before(1592));
    }

    #[test]
    fn impossible_positions_are_ignored() {
        for bad in [view(1, 1008), view(1, u64::MAX - 7), view(1, 161)] {
            let slots = [view(0, 800), bad];
            assert_eq!(numbers(&slots, 1000, 1024), [0]);
        }
    }

    #[test]
    fn lapped_free_and_non_gating_readers_gate_no_writer() {
        let lapped = view(0, 160);
        let free = SlotView { state: SLOT_FREE, ..view(1, 800) };
        let observer = SlotView { flags: 0, ..view(2, 800) };
        assert_eq!(numbers(&[lapped, free, observer], 1200, 1200), [0; 0]);
    }

    #[test]
    fn names_are_cut_at_characters() {
        let words: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(u64::MAX)).collect();
        store_name(&words, "fünfzehn Zeichä€");
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        assert_eq!(std::str::from_utf8(&bytes).unwrap().trim_end_matches('\0'), "fünfzehn Zeich");
    }
}
