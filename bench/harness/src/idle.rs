//! How an end that polls waits: the same way for every transport that leaves this to its caller.

use crate::machine::usable_cores;
use crate::transport::Setup;

/// Spins briefly, then yields between two checks. Never sleeps.
#[derive(Clone, Debug)]
pub struct Idle {
    spins: u32,
    tries: u32,
}

/// About two microseconds on current processors, which is longer than the other core takes to hand over a message.
const SPINS: u32 = 50;

impl Idle {
    /// Makes the wait of an end of this run. If there are more processes than cores, it does not spin: the process that it
    /// waits for may need the core.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let crowded = usize::from(setup.senders) + usize::from(setup.receivers) > usable_cores();
        Self { spins: if crowded { 0 } else { SPINS }, tries: 0 }
    }

    /// Waits after a check that found nothing.
    #[inline]
    pub fn pause(&mut self) {
        if self.tries < self.spins {
            self.tries += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    /// Starts again with spinning, after a check that found something.
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
