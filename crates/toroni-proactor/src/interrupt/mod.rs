//! Interrupt strategies: the paper's *AIO_Interrupt_Strategy*. A strategy is how another thread makes the
//! leader leave its wait. All methods are called under the proactor's lock. The processor calls `interrupt` at
//! most once for each wait, and not for a leader that is awake.

mod condition;
mod descriptor;
mod insistent;
mod signal;

pub(crate) use condition::Condition;
pub(crate) use descriptor::{HelperThread, NotificationDescriptor};
pub(crate) use insistent::{Gate, Insistent};
pub(crate) use signal::{SPARE, Signal};

use crate::operation::Request;
use crate::sys::{SignalSet, ThreadId};
use rustix::io::Errno;
use std::sync::Arc;

/// The interrupt strategy that a wait strategy is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptChoice {
    /// *Interrupt_Pipe_Strategy*, the default.
    Pipe,
    /// *Interrupt_Signal_Strategy*, with this signal.
    Signal(i32),
    /// Like the pipe, with an eventfd.
    Eventfd,
    /// Changes the word that the wait strategy `callback` waits at.
    Callback,
}

/// What a leader has to do before it waits.
#[derive(Default)]
pub(crate) struct Activation {
    /// Block these signals while waiting.
    pub(crate) while_waiting: Option<SignalSet>,
}

/// How a leader is interrupted. The paper's `init` and `fini` are the constructors and `Drop`: nothing
/// happens between the making of a strategy and its use.
pub(crate) trait InterruptStrategy: Send {
    /// Returns which strategy it is.
    fn choice(&self) -> InterruptChoice;

    /// `interrupt`: makes the leader, which is this thread id, leave its wait, even if it is only about to
    /// enter it.
    fn interrupt(&mut self, leader: ThreadId);

    /// `on_leader_activated`: called when this thread has become the leader.
    fn on_leader_activated(&mut self) -> Activation;

    /// Returns the internal read to start before a wait, unless it is started.
    fn read(&self) -> Option<Request> {
        None
    }

    /// `on_leader_deactivated`: called before this thread releases the leadership.
    fn on_leader_deactivated(&mut self) {}
}

/// Creates a strategy that needs nothing from the wait strategy.
pub(crate) fn create(wanted: InterruptChoice) -> Result<Box<dyn InterruptStrategy>, Errno> {
    Ok(match wanted {
        InterruptChoice::Pipe | InterruptChoice::Callback => {
            Box::new(NotificationDescriptor::pipe()?)
        }
        InterruptChoice::Eventfd => Box::new(NotificationDescriptor::eventfd()?),
        InterruptChoice::Signal(number) => Box::new(Signal::new(number)?),
    })
}

/// Like [`create`], for engines whose notification descriptors are read by threads of the C library, and
/// whose waits take no signal mask but pass a gate. `EUSERS` if too few of those threads would be left.
pub(crate) fn create_for_aio(
    wanted: InterruptChoice,
    gate: &Arc<Gate>,
) -> Result<Box<dyn InterruptStrategy>, Errno> {
    let thread =
        |notification: NotificationDescriptor| Ok(notification.occupying(HelperThread::take()?));
    Ok(match wanted {
        InterruptChoice::Pipe | InterruptChoice::Callback => {
            Box::new(thread(NotificationDescriptor::pipe()?)?)
        }
        InterruptChoice::Eventfd => Box::new(thread(NotificationDescriptor::eventfd()?)?),
        InterruptChoice::Signal(number) => Box::new(Insistent::new(number, Arc::clone(gate))?),
    })
}
