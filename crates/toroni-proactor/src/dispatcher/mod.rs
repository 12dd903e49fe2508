//! The dispatcher: the paper's *AIO_Dispatcher*. It owns the completed results, and decides for each
//! thread in `handle_events` what it does: sleep as a follower, call handlers, or lead a processor.

mod handle_events;
#[cfg(test)]
mod tests;
mod timers;
mod wake_policy;

pub(crate) use handle_events::handle_events;

use crate::core::Core;
use crate::operation::{Completion, List, Membership, Request, State};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use timers::Timers;
use wake_policy::WakePolicy;

/// How many results go ahead of one that waits.
const OVERTAKERS: usize = 16;

/// How loudly a result is announced. The paper's `NOTIFY_FOLLOWER`, which only
/// a dedicated leader would post, is not used: see `level_of` in `processor/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// `NOTIFY_NONE`: the caller is about to dispatch itself.
    None,
    /// `NOTIFY_STRONG`: a follower is woken; if there is none, a leader is interrupted.
    Strong,
}

/// What a posted handler comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Whatever was posted before.
    Posted,
    /// A look whether operations are finished, too.
    Check,
}

/// What a new result makes necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotificationState {
    /// `DO_NOTHING`: nobody waits; whoever comes back from a handler looks.
    DoNothing,
    /// `WAKEUP_FOLLOWER`: there is a follower.
    WakeupFollower,
    /// `INTERRUPT_LEADER`: there are only leaders.
    InterruptLeader,
}

/// See the module.
pub(crate) struct Dispatcher {
    completed: List,
    /// Posts that come behind the next look at what is finished.
    after_check: List,
    /// Operations that are tried when nothing is known to be ready: nobody has said that their descriptors
    /// are, and nobody has found that they are not.
    speculative: List,
    /// Threads asleep, including those whose wake-up is on its way.
    followers: usize,
    /// Of the followers: those whose wake-up is on its way.
    woken: usize,
    /// Wake-ups decided, and sent when the lock opens.
    wakes: usize,
    /// Threads that lead a shared processor. Dedicated leaders dispatch nothing and are not counted.
    leaders: usize,
    /// Threads in `handle_events` that are neither: they call handlers.
    handlers: usize,
    /// Results at the head of the list that went ahead of others.
    ahead: usize,
    /// The last of them, until one is taken.
    last_ahead: Option<u32>,
    /// How many have gone ahead since one was taken that had not.
    overtaken: usize,
    timers: Timers,
    /// The earliest timer that a thread, which waits, will wake for.
    watched: Option<Instant>,
    policy: WakePolicy,
    /// Results taken, and operations tried, ever.
    taken: u64,
    /// Results dispatched, and operations tried, since anybody led.
    since_lead: usize,
    /// The processor that was led last.
    last_led: usize,
}

impl Dispatcher {
    /// With nothing to do.
    pub(crate) fn new() -> Self {
        Self {
            completed: List::new(Membership::Completed),
            after_check: List::new(Membership::AfterCheck),
            speculative: List::new(Membership::Speculative),
            followers: 0,
            woken: 0,
            wakes: 0,
            leaders: 0,
            handlers: 0,
            timers: Timers::default(),
            ahead: 0,
            last_ahead: None,
            overtaken: 0,
            watched: None,
            policy: WakePolicy::new(),
            taken: 0,
            since_lead: 0,
            last_led: 0,
        }
    }

    /// Whether handlers sleep now and then: to be asked without the lock.
    pub(crate) fn handlers_sleep(&self) -> Arc<AtomicBool> {
        self.policy.sleep()
    }

    /// What a new result makes necessary.
    pub(crate) fn notification_state(&self) -> NotificationState {
        if self.followers > 0 {
            NotificationState::WakeupFollower
        } else if self.leaders > 0 {
            NotificationState::InterruptLeader
        } else {
            NotificationState::DoNothing
        }
    }

    /// The paper's `Number_Active_Threads`.
    fn threads(&self) -> usize {
        self.handlers + self.leaders + self.followers
    }

    /// The wake-ups to send now.
    pub(crate) fn take_wakes(&mut self) -> usize {
        std::mem::take(&mut self.wakes)
    }

    /// Wakes a follower, unless one is on its way: it wakes the next if there is more to do. Whether there
    /// is any.
    fn wake_follower(&mut self) -> bool {
        if self.followers > 0 && self.woken == 0 {
            self.woken += 1;
            self.wakes += 1;
        }
        self.followers > 0
    }
}

impl Core {
    /// `post_completion`. The operation is in no list, and RESULT_READY, START_ERROR or INITIALIZED.
    pub(crate) fn post_completion(&mut self, index: u32, level: Notify) {
        // Step 1.
        if self.pool[index].state() == State::Initialized {
            self.pool[index].become_(State::Posted);
        }
        self.dispatcher.completed.push(&mut self.pool, index);
        if level == Notify::Strong {
            self.notify();
        }
    }

    /// The operation is READY, in no list, and may be tried: see [`Dispatcher::speculative`].
    pub(crate) fn post_speculative(&mut self, index: u32) {
        self.dispatcher.speculative.push(&mut self.pool, index);
        self.notify();
    }

    /// Creates the operation of a handler that no provider sees, and posts it.
    pub(crate) fn post(&mut self, completion: Box<dyn Completion>, after: After) {
        let index = self.pool.create(Request::post(), Some(completion)).index;
        match after {
            After::Posted => self.post_completion(index, Notify::Strong),
            After::Check => {
                self.pool[index].become_(State::Posted);
                self.dispatcher.after_check.push(&mut self.pool, index);
                self.notify();
            }
        }
    }

    /// `post_completion` of what was finished when it was started. It goes ahead of what other sessions
    /// left: the one that a handler goes on with is still in the cache.
    pub(crate) fn post_first(&mut self, index: u32) {
        let dispatcher = &mut self.dispatcher;
        // Handlers of one descriptor and direction are called in the order of their operations.
        let is_alone = self.pool[index].has_the_only_result();
        if is_alone && dispatcher.overtaken < OVERTAKERS {
            dispatcher.overtaken += 1;
            dispatcher.ahead += 1;
            let after = dispatcher.last_ahead.replace(index);
            dispatcher.completed.insert(&mut self.pool, after, index);
        } else {
            dispatcher.completed.push(&mut self.pool, index);
        }
        self.notify();
    }

    /// Steps 2 to 4 of `post_completion`.
    fn notify(&mut self) {
        match self.dispatcher.notification_state() {
            NotificationState::DoNothing => {}
            _ if self.suffices(self.dispatcher.handlers) => {}
            NotificationState::WakeupFollower => {
                self.dispatcher.wake_follower();
            }
            NotificationState::InterruptLeader => self.interrupt_any_leader(),
        }
    }

    /// `notify_only_follower`: a processor has got something to wait for, and wants a leader. The leader of
    /// the other processor is told if there is nobody else: it takes turns.
    pub(crate) fn notify_only_follower(&mut self) {
        self.notify();
    }

    /// Takes an operation back that is to be dispatched or tried, if it is there.
    pub(crate) fn withdraw(&mut self, index: u32) -> bool {
        let list = if self.pool[index].is_in(Membership::Completed) {
            &mut self.dispatcher.completed
        } else if self.pool[index].is_in(Membership::Speculative) {
            &mut self.dispatcher.speculative
        } else {
            return false;
        };
        list.remove(&mut self.pool, index);
        true
    }

    /// A result that was taken and cannot be dispatched now: it is the next one again.
    fn put_back(&mut self, index: u32) {
        self.dispatcher.ahead += 1;
        self.dispatcher.completed.insert(&mut self.pool, None, index);
    }

    /// The next one to be dispatched, or tried. A speculation that is the only one is worth less than a look
    /// at what is ready, and comes after it.
    fn pop_completed(&mut self, has_checked: bool) -> Option<u32> {
        let dispatcher = &mut self.dispatcher;
        let index = if let Some(index) = dispatcher.completed.pop(&mut self.pool) {
            dispatcher.last_ahead = None;
            if dispatcher.ahead > 0 {
                dispatcher.ahead -= 1;
            } else {
                dispatcher.overtaken = 0;
            }
            index
        } else if dispatcher.speculative.len() > usize::from(!has_checked) {
            dispatcher.speculative.pop(&mut self.pool)?
        } else {
            return None;
        };
        dispatcher.since_lead += 1;
        dispatcher.taken += 1;
        Some(index)
    }

    /// Whether there is something to dispatch, or to try.
    pub(crate) fn has_work(&self) -> bool {
        self.has_completed() || !self.dispatcher.speculative.is_empty()
    }

    /// Whether there are results to dispatch, or operations that are said to be ready.
    fn has_completed(&self) -> bool {
        !self.dispatcher.completed.is_empty() || !self.dispatcher.after_check.is_empty()
    }

    /// What was speculated on before now is tried before anything that comes.
    fn end_speculation(&mut self) {
        while let Some(index) = self.dispatcher.speculative.pop(&mut self.pool) {
            self.dispatcher.completed.push(&mut self.pool, index);
        }
    }

    /// What was to come behind a look has its turn now.
    fn release_after_check(&mut self) {
        while let Some(index) = self.dispatcher.after_check.pop(&mut self.pool) {
            self.dispatcher.completed.push(&mut self.pool, index);
        }
    }

    /// Wakes every follower, and interrupts every leader in a caller's thread.
    pub(crate) fn wake_everybody(&mut self) {
        let asleep = self.dispatcher.followers - self.dispatcher.woken;
        self.dispatcher.woken += asleep;
        self.dispatcher.wakes += asleep;
        for processor in &mut self.processors {
            if !processor.is_dedicated() {
                processor.interrupt_leader();
            }
        }
    }

    /// One leader that dispatches, unless one is on its way already.
    fn interrupt_any_leader(&mut self) {
        let leaders = self.processors.iter().filter(|processor| !processor.is_dedicated());
        if leaders.clone().any(|processor| processor.is_interrupted()) {
            return;
        }
        let mut leaders = self.processors.iter_mut().filter(|processor| !processor.is_dedicated());
        if let Some(processor) = leaders.find(|processor| processor.is_waited_for()) {
            processor.interrupt_leader();
        }
    }
}
