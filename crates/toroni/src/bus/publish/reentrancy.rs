//! Records the buses whose writer lock this thread holds while it runs a closure of the user.
//!
//! Only `publish_with` runs user code under the lock. If the closure published on the same bus, even
//! through another handle, it would wait for itself.

use std::cell::Cell;

/// The most closures that may be nested, each under the lock of another bus.
const MOST: usize = 16;

thread_local! {
    // They need no destructor. So they can be used in the destructors of a thread's other variables, where
    // a program may still publish.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BUSES: [Cell<[u8; 16]>; MOST] = const { [const { Cell::new([0; 16]) }; MOST] };
}

/// Returns a permit for one more closure, or `None` if too many are nested. Ask for it before the lock is
/// taken: a closure that is refused is dropped, which may run code of the user, too.
#[inline]
pub(super) fn permit() -> Option<Permit> {
    (COUNT.get() < MOST).then_some(Permit(()))
}

pub(super) struct Permit(());

impl Permit {
    /// Records that the closure runs under the lock of this bus, until the result is dropped, also if the
    /// closure unwinds.
    #[inline]
    pub(super) fn enter(self, bus_id: &[u8; 16]) -> Entered {
        let count = COUNT.get();
        BUSES.with(|buses| buses[count].set(*bus_id));
        COUNT.set(count + 1);
        Entered
    }
}

pub(super) struct Entered;

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        // Closures nest, so the last entry is this one.
        COUNT.set(COUNT.get() - 1);
    }
}

/// Returns whether the caller runs inside a closure under the lock of this bus.
pub(in crate::bus) fn by_this_thread(bus_id: &[u8; 16]) -> bool {
    let count = COUNT.get();
    BUSES.with(|buses| buses.iter().take(count).any(|bus| bus.get() == *bus_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closures_nest_to_their_bound() {
        assert!(
            !std::mem::needs_drop::<[Cell<[u8; 16]>; MOST]>(),
            "it would vanish before others do"
        );
        let mut entered: Vec<Entered> =
            (0..16).map(|bus| permit().unwrap().enter(&[bus; 16])).collect();
        assert!(permit().is_none());
        assert!(by_this_thread(&[15; 16]) && !by_this_thread(&[16; 16]));
        entered.pop();
        assert!(!by_this_thread(&[15; 16]) && by_this_thread(&[14; 16]));
        drop(entered);
        assert!(!by_this_thread(&[0; 16]));
    }
}
