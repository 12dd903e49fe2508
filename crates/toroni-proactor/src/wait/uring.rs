//! *SUN_Strategy*, with io_uring in its place: one system call submits what was started and waits for
//! completions.

use super::{Event, Started, WaitStrategy};
use crate::interrupt::{self, InterruptChoice, InterruptStrategy};
use crate::provider::uring::Ring;
use crate::sys::SignalSet;
use rustix::io::Errno;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct Uring {
    ring: Arc<Ring>,
    mask: Mutex<Option<SignalSet>>,
}

impl Uring {
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Self { ring, mask: Mutex::new(None) }
    }
}

impl WaitStrategy for Uring {
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>) {
        *self.mask.try_lock().expect("there is one leader") = while_waiting;
        self.ring.enable();
    }

    fn prepare_to_wait(&self, _: Started<'_>) {}

    fn wait(&self, timeout: Option<Duration>) {
        let mask = self.mask.try_lock().expect("there is one leader");
        self.ring.wait(timeout, mask.as_ref());
    }

    fn is_current(&self) -> bool {
        self.ring.is_current()
    }

    fn next_event(&self) -> Option<Event> {
        let entry = self.ring.pop()?;
        Some(Event::Complete { number: entry.user_data(), result: entry.result() })
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        interrupt::create(wanted)
    }
}
