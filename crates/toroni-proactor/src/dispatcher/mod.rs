//! The dispatcher: the paper's *AIO_Dispatcher*. It owns the completed results, and decides for each
//! thread in `handle_events` what it does: sleep as a follower, call handlers, or lead a processor.

mod handle_events;
mod timers;

pub(crate) use handle_events::handle_events;

use crate::core::Core;
use crate::record::{List, Membership, State};
use std::time::Instant;
use timers::Timers;

/// How loudly a result is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// `NOTIFY_NONE`: the caller is about to dispatch itself.
    None,
    /// `NOTIFY_FOLLOWER`: a follower is woken, if there is one.
    #[expect(dead_code, reason = "dedicated leaders post STRONG: see level_of in processor/")]
    Follower,
    /// `NOTIFY_STRONG`: if there is none, a leader is interrupted.
    Strong,
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
    /// Threads asleep, including those whose wake-up is on its way.
    followers: usize,
    /// Of the followers: those whose wake-up is on its way.
    woken: usize,
    /// Wake-ups decided, and sent when the lock opens.
    wakes: usize,
    /// Threads that lead a shared processor. Dedicated leaders dispatch nothing and are not counted.
    leaders: usize,
    /// Threads in `handle_events` that are neither: they call handlers. The paper's
    /// `Number_Active_Threads` is the sum of these three.
    handlers: usize,
    timers: Timers,
    /// The earliest timer that a thread, which waits, will wake for.
    watched: Option<Instant>,
    /// Results dispatched since anybody led.
    since_lead: usize,
    /// The processor that was led last.
    last_led: usize,
}

impl Dispatcher {
    /// With nothing to do.
    pub(crate) fn new() -> Self {
        Self {
            completed: List::new(Membership::Completed),
            followers: 0,
            woken: 0,
            wakes: 0,
            leaders: 0,
            handlers: 0,
            timers: Timers::default(),
            watched: None,
            since_lead: 0,
            last_led: 0,
        }
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
    /// `post_completion`. The record is in no list, and RESULT_READY, START_ERROR or INITIALIZED.
    pub(crate) fn post_completion(&mut self, index: u32, level: Notify) {
        // Step 1.
        if self.records[index].state() == State::Initialized {
            self.records[index].become_(State::Posted);
        }
        self.dispatcher.completed.push(&mut self.records, index);
        if level != Notify::None {
            self.notify(level);
        }
    }

    /// Steps 2 to 4 of `post_completion`.
    fn notify(&mut self, level: Notify) {
        match self.dispatcher.notification_state() {
            NotificationState::DoNothing => {}
            NotificationState::WakeupFollower => {
                self.dispatcher.wake_follower();
            }
            NotificationState::InterruptLeader if level == Notify::Strong => {
                self.interrupt_any_leader();
            }
            NotificationState::InterruptLeader => {}
        }
    }

    /// `notify_only_follower`: a processor has got something to wait for, and wants a leader. A leader of
    /// the other processor takes turns if there is nobody else.
    pub(crate) fn notify_only_follower(&mut self) {
        self.notify(Notify::Strong);
    }

    /// Whether there are results to dispatch.
    pub(crate) fn has_completed(&self) -> bool {
        !self.dispatcher.completed.is_empty()
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
