//! What must hold in every reachable state.

use crate::model::Protocol;
use crate::state::{FORGOTTEN, Fault, NO_ENTRY, State};
use crate::word;
use stateright::Property;

/// Each subscriber receives the messages in the one order, each once. It misses only messages whose loss it reported, and
/// reports their exact number.
pub const ONE_ORDER: &str = "one order, and no loss without a report";
/// What a subscriber receives is what was published.
pub const NOT_TORN: &str = "no torn message";
/// No subscriber sees what was not committed.
pub const NOT_UNCOMMITTED: &str = "no message that was not committed";
/// What was committed stays until the ring is overwritten.
pub const NEVER_UNDONE: &str = "a committed message is never undone";
/// I1, and the word after the last committed record is 0: the end of the stream.
pub const STREAM_ENDS: &str = "the stream ends where the order ends";
/// Valid entries of the blocks index, and the stored end, are correct.
pub const INDEX_TRUE: &str = "the index and the stored end are true";
/// No process finds invalid words.
pub const NO_NONSENSE: &str = "no process finds a corrupt bus";
/// The writer lock excludes.
pub const ONE_OWNER: &str = "one owner of the lock";
/// Only an exclusive publisher that lives makes the calls of others fail, or one that just died: while a new process takes
/// its slot, or another publisher takes the lock over.
pub const REFUSED_RIGHTLY: &str = "no call is refused without an exclusive publisher that lives";
/// Others take over from an exclusive publisher only if the kernel no longer holds its lease.
pub const NOT_ROBBED: &str = "an exclusive publisher keeps the lock as long as it has its lease";
/// A publisher that waits for subscribers overruns none that is alive, had joined before the scan, and is within the
/// limit.
pub const NOT_OVERRUN: &str = "no subscriber that is waited for is overrun";
/// A subscriber that joins gets the start that it asked for, if that is still intact.
pub const START_KEPT: &str = "a start that is there is kept";
/// In no final state does a living process still have something to do. No state is reached twice on one path (a test
/// checks that), so every path ends. In the end every living publisher has published everything or was refused, and every
/// living subscriber has delivered all messages or reported their loss: no wake-up, lock or slot is lost. No shared
/// publisher waits for an exclusive one, not even for one that is stopped.
pub const NOT_STUCK: &str = "no process is stuck";

pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_ORDER, |_, state: &State| {
            !matches!(state.fault, Some(Fault::Disorder | Fault::Missed))
        }),
        Property::always(NOT_TORN, |_, state: &State| state.fault != Some(Fault::Torn)),
        Property::always(NOT_UNCOMMITTED, |_, state: &State| {
            state.fault != Some(Fault::Uncommitted)
        }),
        Property::always(NO_NONSENSE, |_, state: &State| state.fault != Some(Fault::Corrupt)),
        Property::always(ONE_OWNER, |_, state: &State| state.fault != Some(Fault::TwoOwners)),
        Property::always(REFUSED_RIGHTLY, |_, state: &State| state.fault != Some(Fault::Refused)),
        Property::always(NOT_ROBBED, |_, state: &State| state.fault != Some(Fault::Robbed)),
        Property::always(START_KEPT, |_, state: &State| state.fault != Some(Fault::Late)),
        Property::always(NOT_OVERRUN, |_, state: &State| state.fault != Some(Fault::Overrun)),
        Property::always(NEVER_UNDONE, |model: &Protocol, state: &State| {
            state.fault != Some(Fault::Undone) && is_kept(model, state)
        }),
        Property::always(STREAM_ENDS, |_, state: &State| stream_ends(state)),
        Property::always(INDEX_TRUE, |_, state: &State| is_index_true(state)),
        Property::always(NOT_STUCK, |model: &Protocol, state: &State| {
            state.fault.is_some() || !model.is_quiet(state) || model.is_finished(state)
        }),
    ]
}

fn is_kept(model: &Protocol, state: &State) -> bool {
    let oldest = state.oldest();
    state.truth.committed.iter().rev().take_while(|told| told.start >= oldest).all(|told| {
        if *told == FORGOTTEN {
            return true;
        }
        let length = model.setup.length(told.stamp);
        state.word(told.start) == word::header(told.stamp, length)
            && (0..length)
                .all(|index| state.word(told.start + 1 + index) == word::payload(told.stamp, index))
    })
}

fn stream_ends(state: &State) -> bool {
    let ring = &state.ring;
    state.word(state.truth.end) == 0
        && ring.tail <= state.truth.end
        && ring.tail < ring.reserved
        && state.truth.end < ring.reserved
}

fn is_index_true(state: &State) -> bool {
    let committed = &state.truth.committed;
    let is_true = |position: u8, sequence: u8| match committed.get(usize::from(sequence)) {
        Some(told) => *told == FORGOTTEN || told.start == position,
        None => usize::from(sequence) == committed.len() && position == state.truth.end,
    };
    let reach = state.oldest()..=state.ring.tail;
    let entries_are = state
        .ring
        .index
        .iter()
        .filter(|entry| entry.position != NO_ENTRY && reach.contains(&entry.position))
        .all(|entry| is_true(entry.position, entry.sequence));
    let is_free = state.ring.lock.owner == 0;
    let is_settled =
        is_true(state.ring.tail, state.ring.sequence) && state.ring.next == state.ring.tail;
    entries_are && (!is_free || is_settled)
}
