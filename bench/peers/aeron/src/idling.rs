//! How Aeron's clients wait.

use std::time::Duration;

use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::transport::{Setup, Wait};

/// Waits like all peers that poll, or like Aeron's default `BackoffIdleStrategy`.
pub(crate) enum Idling {
    Polling(Idle),
    BackingOff { tries: u32 },
}

const SPINS: u32 = 10;
const YIELDS: u32 = 20;
const PARK_MIN: Duration = Duration::from_micros(1);
const PARK_MAX: Duration = Duration::from_millis(1);

impl Idling {
    pub(crate) fn new(setup: &Setup) -> Idling {
        match setup.wait {
            Wait::Busy => Idling::Polling(Idle::new(setup)),
            Wait::Blocking => Idling::BackingOff { tries: 0 },
        }
    }

    /// Starts again, after a check that found something.
    #[inline]
    pub(crate) fn reset(&mut self) {
        match self {
            Idling::Polling(idle) => idle.reset(),
            Idling::BackingOff { tries } => *tries = 0,
        }
    }

    /// Waits after a check that found nothing.
    #[inline]
    pub(crate) fn pause(&mut self) {
        let tries = match self {
            Idling::Polling(idle) => return idle.pause(),
            Idling::BackingOff { tries } => tries,
        };
        match *tries {
            spins if spins < SPINS => std::hint::spin_loop(),
            yields if yields < SPINS + YIELDS => std::thread::yield_now(),
            parks => {
                let doubled = PARK_MIN * 2_u32.saturating_pow((parks - SPINS - YIELDS).min(16));
                std::thread::sleep(doubled.min(PARK_MAX));
            }
        }
        *tries = tries.saturating_add(1);
    }
}
