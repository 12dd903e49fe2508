//! How whoever polls waits: the same for every transport that leaves it to its caller.

use crate::machine::usable_cores;
use crate::transport::Setup;

/// A short spin, then a yield between two looks. Never sleeps.
#[derive(Clone, Debug)]
pub struct Idle {
    spins: u32,
    tries: u32,
}

/// About two microseconds on current processors, and longer than the other core takes to hand a message over.
const SPINS: u32 = 50;

impl Idle {
    /// For an end of this run. Where there are more processes than cores nobody spins: whom one waits
    /// for may need the core.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let crowded = usize::from(setup.senders) + usize::from(setup.receivers) > usable_cores();
        Self { spins: if crowded { 0 } else { SPINS }, tries: 0 }
    }

    /// Nothing has come.
    #[inline]
    pub fn pause(&mut self) {
        if self.tries < self.spins {
            self.tries += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Something has come.
    #[inline]
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Wait;

    #[test]
    fn a_crowd_does_not_spin() {
        let setup = |receivers| Setup {
            senders: 0,
            receivers,
            message_bytes: 8,
            capacity_bytes: 1 << 20,
            wait: Wait::Busy,
            in_place: false,
        };
        let mut alone = Idle::new(&setup(1));
        assert_eq!(alone.spins, SPINS);
        (0..SPINS * 2).for_each(|_| alone.pause());
        assert_eq!(alone.tries, SPINS);
        alone.reset();
        assert_eq!(alone.tries, 0);
        assert_eq!(Idle::new(&setup(u16::MAX)).spins, 0);
    }
}
