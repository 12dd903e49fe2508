//! Whether publishers find subscribers in their way.

use super::readers::Reader;
use toroni_oracle::{Model, Policy, Setup};

/// A burst may need as much space as all its messages together.
pub(super) fn may_wait_for_ever(
    setup: &Setup,
    model: &Model,
    readers: &[Option<Reader>],
    bytes: u64,
) -> bool {
    setup.policy == Policy::WaitForever && Shortage::of(model, readers, bytes).possible
}

/// Whether a publisher finds a subscriber in its way. The position that a subscriber has published is known only within
/// bounds, because it publishes once a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortage {
    pub(super) possible: bool,
    pub(super) certain: bool,
}

impl Shortage {
    pub(super) fn of(model: &Model, readers: &[Option<Reader>], bytes: u64) -> Self {
        let Some(wanted) = model.wanted(bytes) else {
            return Self { possible: false, certain: false };
        };
        let capacity = model.capacity();
        let gating = || readers.iter().flatten().filter(|reader| reader.gating);
        // A subscriber that was lapped holds up no publisher.
        let possible = gating().any(|reader| {
            reader.told.start() + capacity < wanted
                && reader.told.end() + capacity >= model.reserved
        });
        let certain = gating().any(|reader| {
            reader.told.end() + capacity < wanted
                && reader.told.start() + capacity >= model.reserved
        });
        Self { possible, certain }
    }
}
