//! The slots of the subscribers, as a publisher reads them: it cannot write them, and does not trust them.

use crate::ring::gate::Dead;
use crate::ring::slots::SlotView;
use crate::shm::snapshot::ReaderSnapshot;

/// The slots as they were read last, and which of their owners this participant knows to be dead.
#[derive(Default)]
pub(super) struct ReaderSlots {
    pub(super) slots: Vec<ReaderSnapshot>,
    pub(super) dead: Dead,
}

pub(super) fn views(slots: &[ReaderSnapshot]) -> impl Iterator<Item = SlotView> {
    (0..).zip(slots).map(|(number, slot)| SlotView {
        number,
        generation: slot.generation,
        state: slot.state,
        flags: slot.flags,
        position: slot.position,
    })
}
