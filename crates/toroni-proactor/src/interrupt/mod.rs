//! Interrupt strategies: the paper's *AIO_Interrupt_Strategy*. How another thread makes the leader leave
//! its wait. All methods are called under the proactor's lock; the processor calls `interrupt` once for
//! each wait at most, and not for a leader that is awake.

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

/// Which interrupt strategy, as a wait strategy is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptChoice {
    /// *Interrupt_Pipe_Strategy*, the default.
    Pipe,
    /// *Interrupt_Signal_Strategy*, with this signal.
    Signal(i32),
    /// As the pipe, with an eventfd.
    Eventfd,
    /// What the wait strategy of completion by call waits on.
    Callback,
}

/// What a leader has to do before it waits.
#[derive(Default)]
pub(crate) struct Activation {
    /// Block these signals while waiting.
    pub(crate) while_waiting: Option<SignalSet>,
}

/// How a leader is interrupted. The paper's `init` and `fini` are the constructors and `Drop`: nothing is between
/// the making of a strategy and its use.
pub(crate) trait InterruptStrategy: Send {
    /// Which it is: the effective choice.
    fn choice(&self) -> InterruptChoice;

    /// `interrupt`: the leader, which is this thread, leaves its wait, also if it is only about to enter it.
    fn interrupt(&mut self, leader: ThreadId);

    /// `on_leader_activated`: the current thread has become the leader.
    fn on_leader_activated(&mut self) -> Activation;

    /// The internal read to be started before a wait, unless it is started.
    fn read(&self) -> Option<Request> {
        None
    }

    /// `on_leader_deactivated`: the current thread is about to release the leadership.
    fn on_leader_deactivated(&mut self) {}
}

/// Makes any of those that need nothing of the wait strategy.
pub(crate) fn create(wanted: InterruptChoice) -> Result<Box<dyn InterruptStrategy>, Errno> {
    Ok(match wanted {
        InterruptChoice::Pipe | InterruptChoice::Callback => {
            Box::new(NotificationDescriptor::pipe()?)
        }
        InterruptChoice::Eventfd => Box::new(NotificationDescriptor::eventfd()?),
        InterruptChoice::Signal(number) => Box::new(Signal::new(number)?),
    })
}

/// As [`create`], for engines whose descriptors are read by threads of the C library, and whose waits take no
/// mask of signals but pass a gate. `EUSERS` if too few of those threads would be left.
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
