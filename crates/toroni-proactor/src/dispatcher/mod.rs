//! The dispatcher: the paper's *AIO_Dispatcher*. It owns the completed results, and decides for each thread in
//! `handle_events` what it does: sleep as a follower, call handlers, or lead a processor.

mod handle_events;
pub(crate) mod local_run;
pub(crate) mod round;
mod timers;
mod wake_policy;

pub(crate) use handle_events::{Served, Visit};
pub(crate) use wake_policy::TICK;

use crate::core::Core;
use crate::operation::{Completion, List, Membership, Request, State};
use crate::processor::Processor;
use crate::shards::Calls;
use local_run::LocalRuns;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use timers::Timers;
use wake_policy::WakePolicy;

/// The maximum number of results that go ahead of a waiting one.
const OVERTAKERS: usize = 16;

/// Which thread a new result wakes. The paper's `NOTIFY_FOLLOWER`, which only a dedicated leader would use,
/// does not exist: see `level_of` in `processor/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// `NOTIFY_NONE`: none, because the caller is about to dispatch.
    None,
    /// `NOTIFY_STRONG`: a follower; if there is none, a leader is interrupted.
    Strong,
}

/// What a posted handler comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Everything that was posted before.
    Posted,
    /// Also a check of the engines for finished operations.
    Check,
}

/// What a new result makes necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotificationState {
    /// `DO_NOTHING`: no thread waits; a thread that returns from a handler will find the result.
    DoNothing,
    /// `WAKEUP_FOLLOWER`: there is a follower.
    WakeupFollower,
    /// `INTERRUPT_LEADER`: there are only leaders.
    InterruptLeader,
}

pub(crate) struct Dispatcher {
    completed: List,
    /// Posts that come after the next check of the engines.
    after_check: List,
    /// Operations to attempt when nothing is known to be ready: nothing reported their descriptors ready, and
    /// no attempt found them not ready.
    speculative: List,
    /// Threads that sleep, including those whose wake-up is under way.
    followers: usize,
    /// Followers whose wake-up is under way.
    woken: usize,
    /// Wake-ups that are decided, and sent when the lock is released.
    wakes: usize,
    /// Threads that lead a shared processor. Dedicated leaders dispatch nothing and are not counted.
    leaders: usize,
    /// Other threads in `handle_events`: they call handlers.
    handlers: usize,
    /// Results at the head of the list that went ahead of others.
    ahead: usize,
    /// The last of them, until one is taken.
    last_ahead: Option<u32>,
    /// How many have gone ahead since a result that had not gone ahead was taken.
    overtaken: usize,
    timers: Timers,
    /// The earliest timer that a waiting thread will wake for.
    watched: Option<Instant>,
    policy: WakePolicy,
    local_runs: LocalRuns,
    /// Threads that call handlers of what they have kept. Those have no operation in the pool.
    pub(crate) in_kept_rounds: usize,
    pub(crate) calls: Calls,
    /// `taken` at the last tick of a thread of another shard, or when one last helped here.
    pub(crate) seen: u64,
    /// The number of results taken and operations attempted, since the beginning.
    taken: u64,
    /// The number of results dispatched and operations attempted since a thread last led.
    since_lead: usize,
    /// The processor that was led last.
    last_led: usize,
}

impl Dispatcher {
    pub(crate) fn new(shards: usize) -> Self {
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
            policy: WakePolicy::new(shards),
            local_runs: LocalRuns::default(),
            in_kept_rounds: 0,
            calls: Calls::default(),
            seen: 0,
            taken: 0,
            since_lead: 0,
            last_led: 0,
        }
    }

    /// Returns the flag that says whether handlers sleep now and then, to be read without the lock.
    pub(crate) fn handlers_sleep(&self) -> Arc<AtomicBool> {
        self.policy.sleep()
    }

    pub(crate) fn notification_state(&self) -> NotificationState {
        if self.followers > 0 {
            NotificationState::WakeupFollower
        } else if self.leaders > 0 {
            NotificationState::InterruptLeader
        } else {
            NotificationState::DoNothing
        }
    }

    /// Returns the paper's `Number_Active_Threads`.
    fn threads(&self) -> usize {
        self.handlers + self.leaders + self.followers
    }

    /// Takes the number of wake-ups to send now.
    pub(crate) fn take_wakes(&mut self) -> usize {
        std::mem::take(&mut self.wakes)
    }

    /// Returns the number of results taken and operations attempted, since the beginning.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of threads that call handlers.
    pub(crate) fn at_work(&self) -> usize {
        self.handlers
    }

    /// Returns whether handlers sleep now and then.
    pub(crate) fn handlers_sleep_now(&self) -> bool {
        self.policy.handlers_sleep()
    }

    /// Wakes a follower, unless one is already on its way: that one wakes the next if there is more to do.
    /// Returns whether there is a follower.
    fn wake_follower(&mut self) -> bool {
        if self.followers > 0 && self.woken == 0 {
            self.woken += 1;
            self.wakes += 1;
        }
        self.followers > 0
    }
}

impl Core {
    /// `post_completion`. The operation is in no list, and RESULT_READY, START_ERROR, READY or INITIALIZED.
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

    /// Adds an operation that is READY and in no list to [`Dispatcher::speculative`].
    pub(crate) fn post_speculative(&mut self, index: u32) {
        self.dispatcher.speculative.push(&mut self.pool, index);
        self.notify();
    }

    /// Creates an operation for a handler without a provider, and posts it.
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

    /// Posts a result that was finished as it was started. It goes ahead of other sessions' results: the
    /// session that a handler continues with is still in the cache.
    pub(crate) fn post_first(&mut self, index: u32) {
        let dispatcher = &mut self.dispatcher;
        // Handlers of one descriptor and direction are called in the order of the operations.
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
            NotificationState::DoNothing => self.call_for_help(),
            _ if self.suffices(self.dispatcher.handlers) => {}
            NotificationState::WakeupFollower => {
                self.dispatcher.wake_follower();
            }
            NotificationState::InterruptLeader => self.interrupt_any_leader(),
        }
    }

    /// `notify_only_follower`: a processor has got something to wait for, and wants a leader. If there is no
    /// follower, the leader of the other processor is interrupted: it takes turns.
    pub(crate) fn notify_only_follower(&mut self) {
        self.notify();
    }

    /// Removes an operation that is to be dispatched or attempted. Returns whether it was there.
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

    /// Makes a result that was taken, and cannot be dispatched now, the next one again.
    fn put_back(&mut self, index: u32) {
        self.dispatcher.ahead += 1;
        self.dispatcher.completed.insert(&mut self.pool, None, index);
    }

    /// Takes the next operation to dispatch or attempt. If a speculation is the only one, beside those that this thread
    /// keeps, the engines are checked first.
    fn pop_completed(&mut self, has_checked: bool, kept: usize) -> Option<u32> {
        let dispatcher = &mut self.dispatcher;
        let index = if let Some(index) = dispatcher.completed.pop(&mut self.pool) {
            dispatcher.last_ahead = None;
            if dispatcher.ahead > 0 {
                dispatcher.ahead -= 1;
            } else {
                dispatcher.overtaken = 0;
            }
            index
        } else if dispatcher.speculative.len() + kept > usize::from(!has_checked) {
            // No result waits that others went ahead of.
            dispatcher.overtaken = 0;
            dispatcher.speculative.pop(&mut self.pool)?
        } else {
            return None;
        };
        dispatcher.since_lead += 1;
        dispatcher.taken += 1;
        Some(index)
    }

    /// Returns whether there is something to dispatch or to attempt.
    pub(crate) fn has_work(&self) -> bool {
        self.has_completed() || !self.dispatcher.speculative.is_empty()
    }

    /// Returns whether there are results to dispatch, or operations reported ready.
    fn has_completed(&self) -> bool {
        !self.dispatcher.completed.is_empty() || !self.dispatcher.after_check.is_empty()
    }

    /// Moves all speculations in front of everything that comes later.
    fn end_speculation(&mut self) {
        while let Some(index) = self.dispatcher.speculative.pop(&mut self.pool) {
            self.dispatcher.completed.push(&mut self.pool, index);
        }
    }

    /// Gives posts that waited for a check their turn.
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

    /// Makes one waiting thread leave its wait, unless one is already on its way.
    pub(crate) fn wake_one(&mut self) {
        if !self.dispatcher.wake_follower() {
            self.interrupt_any_leader();
        }
    }

    /// Returns whether this thread is the only one here, and nothing here has to be waited for.
    pub(crate) fn has_nothing_to_wait_for(&self) -> bool {
        self.dispatcher.threads() == 1
            && self.next_deadline().is_none()
            && self.processors.iter().all(Processor::is_idle_but_for_interrupts)
    }

    /// Interrupts one leader that dispatches, unless one is already on its way.
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

#[cfg(test)]
mod tests;
