//! Who looks at the other shards, and who calls a thread that does: the protocol by which a thread that waits learns of
//! work in another shard. It knows no operations and no processors, so that loom can run it: see `models.rs`.
//!
//! # Why no call is lost
//!
//! A thread is *out* from before its look until it has work. It counts itself in [`Waiters`] first, and looks at each
//! shard with that shard's lock held. A thread that brings work to a shard reads [`Waiters`] with the same lock held. So
//! there are two cases:
//!
//! - The look comes later, and finds the work.
//! - The look came earlier. Then the thread that brings the work sees that one waits. If none ticks, a thread that waits is
//!   called. If one ticks, none is called: that thread looks again, at the latest when it has stopped ticking.
//!
//! A called thread may not wait yet. So a call is left in its shard, with the lock held, and the thread finds it there
//! before it waits.
//!
//! A thread that gets work stops ticking. Another one may wait without ticking, because it saw that this one ticked. So
//! the thread clears the flag first, and then reads how many wait. The other one has counted itself before it saw the flag
//! set; so the swap that clears the flag makes its count visible, and it is called.

#[cfg(all(test, loom))]
mod models;

use super::Shard;
use crate::dispatcher::TICK;
use crate::hook::mutant;
use std::time::Instant;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What the shards know of each other's threads without their locks.
#[derive(Default)]
pub(crate) struct Waiters {
    /// A waiting thread looks at all shards every tick.
    ticking: AtomicBool,
    /// The number of threads that wait, or are about to.
    waiting: AtomicUsize,
}

/// The part of the protocol that is behind the lock of each shard.
#[derive(Default)]
pub(crate) struct Calls {
    /// Threads that have looked at the other shards, and wait or are about to.
    out: usize,
    /// One of them is to look again.
    is_called: bool,
    /// A thread of another shard is to be called when the lock is released.
    calls: bool,
}

/// What a thread remembers between its looks.
#[derive(Default)]
pub(crate) struct Lookout {
    is_out: bool,
    /// It is the one that ticks.
    ticks: bool,
    /// It has found a timer of another shard.
    minds_timer: bool,
    /// The result of its last look, if it has not waited since: until when it may wait.
    may_wait: Option<Option<Instant>>,
}

/// What a thread does that is about to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Waits, not longer than this: it has looked.
    Wait(Option<Instant>),
    Look {
        /// Another thread has called it.
        was_called: bool,
    },
}

/// What a thread does after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Waits, not longer than this.
    Wait(Option<Instant>),
    /// Finds out whether it still has to wait.
    Again,
    /// Goes there first.
    Go(Elsewhere),
}

/// What a thread does for another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Does the work of this shard.
    Help(Shard),
    /// Makes this shard its own.
    Move(Shard),
}

/// How a thread looks at another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Soon after a tick.
    Between,
    Tick,
    /// It is a tick, too, and the thread has work in its own shard.
    AtWork,
}

/// What a shard needs of a thread of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Help,
    /// Help, and it has no thread.
    Thread,
    /// Another look at this time at the latest.
    Timer(Instant),
    /// Another look soon.
    Tick,
}

/// What a look finds in a shard in which no thread waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    /// Its threads that call handlers.
    pub(super) threads: usize,
    /// They have taken something since the last tick.
    pub(super) gets_on: bool,
    pub(super) handlers_sleep: bool,
    /// More waits than they will finish soon.
    pub(super) is_too_much: bool,
    /// One of them collects what its handler starts.
    pub(super) has_open_run: bool,
    pub(super) has_work: bool,
    pub(super) wants_leader: bool,
    /// Its next timer, which is not due.
    pub(super) next: Option<Instant>,
}

impl Sight {
    /// Returns what the shard needs.
    pub(super) fn need(&self, look: Look) -> Need {
        let stands_still = look != Look::Between && !self.gets_on;
        // A thread at work has enough to do in its own shard.
        let is_for_others =
            look != Look::AtWork && (self.threads == 0 || self.handlers_sleep || self.is_too_much);
        if self.has_work && (stands_still || is_for_others) {
            return Need::Help;
        }
        if self.wants_leader && stands_still {
            return if self.threads == 0 { Need::Thread } else { Need::Help };
        }
        let may_stand_still = self.threads > 0 && (self.gets_on || self.has_open_run);
        if self.has_work || self.wants_leader || may_stand_still {
            return Need::Tick;
        }
        self.next.map_or(Need::Nothing, Need::Timer)
    }
}

impl Calls {
    /// Called when there is work in this shard and no thread waits there. `handlers_sleep`: they leave the cores to others,
    /// so a thread comes at once.
    pub(super) fn call(&mut self, waiters: &Waiters, handlers_sleep: bool) {
        if mutant("nobody_is_called") {
            return;
        }
        let is_looked_at = waiters.ticking.load(Ordering::SeqCst) && !handlers_sleep;
        if !is_looked_at && waiters.are_there() {
            self.calls = true;
        }
    }

    /// Returns whether the only thread here may collect what its handlers start: a thread ticks, or none waits that could.
    /// Otherwise calls one.
    pub(super) fn is_looked_at(&mut self, waiters: &Waiters) -> bool {
        let is_covered = waiters.ticking.load(Ordering::SeqCst)
            || !waiters.are_there()
            || mutant("a_run_is_open_while_nobody_looks");
        if !is_covered {
            self.calls = true;
        }
        is_covered
    }

    /// Answers a call. Returns whether a thread of this shard will look, if it is woken now.
    pub(super) fn answer(&mut self) -> bool {
        self.is_called |= self.is_looking();
        self.is_looking()
    }

    /// Returns whether a thread of this shard has looked at the others, and waits or is about to.
    pub(super) fn is_looking(&self) -> bool {
        self.out > 0
    }

    /// Returns whether a thread of another shard is to be called, and forgets it.
    pub(crate) fn take_call(&mut self) -> bool {
        std::mem::take(&mut self.calls)
    }

    /// Returns whether a thread of another shard is to be called.
    pub(crate) fn has_call(&self) -> bool {
        self.calls
    }

    /// Called before a thread of this shard waits.
    pub(super) fn before_wait(&mut self, waiters: &Waiters, lookout: &mut Lookout) -> Before {
        let was_called =
            std::mem::take(&mut self.is_called) && !mutant("a_call_before_the_wait_is_forgotten");
        if let Some(until) = lookout.may_wait.take()
            && !was_called
        {
            return Before::Wait(until);
        }
        if !lookout.is_out {
            lookout.is_out = true;
            self.out += 1;
            waiters.waiting.fetch_add(1, Ordering::SeqCst);
        }
        Before::Look { was_called }
    }

    /// Called before a thread of this shard calls handlers, or leaves. Another thread ticks then.
    pub(super) fn end_lookout(&mut self, waiters: &Waiters, lookout: &mut Lookout) {
        if !lookout.is_out {
            return;
        }
        self.out -= 1;
        waiters.waiting.fetch_sub(1, Ordering::SeqCst);
        if lookout.ticks {
            waiters.stop_ticking();
        }
        let was_called = std::mem::take(&mut self.is_called);
        let passes_on = (lookout.ticks || lookout.minds_timer || was_called)
            && !mutant("who_gets_work_leaves_the_ticks_to_nobody");
        if passes_on && waiters.are_there() {
            self.calls = true;
        }
        *lookout = Lookout::default();
    }
}

impl Lookout {
    /// Takes what a look has advised. Returns what the thread does now.
    pub(super) fn take_advice(&mut self, advice: Advice) -> Advice {
        match advice {
            Advice::Wait(until) => {
                self.may_wait = Some(until);
                Advice::Again
            }
            other => other,
        }
    }
}

impl Waiters {
    /// Returns whether a thread of any shard waits, or is about to.
    pub(super) fn are_there(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Looks at all shards but this thread's own one, none of which is locked. `is_idle`: the thread may make another shard
    /// its own. `begin_tick`: whether it is time for a tick. `greatest_need`: of another shard.
    pub(super) fn look(
        &self,
        lookout: &mut Lookout,
        was_called: bool,
        is_idle: bool,
        begin_tick: impl FnOnce() -> bool,
        mut greatest_need: impl FnMut(Look) -> (Need, Shard),
    ) -> Advice {
        self.begin_ticking(lookout);
        if !lookout.ticks && !was_called {
            return Advice::Wait(None);
        }
        let is_tick = begin_tick() && !mutant("no_look_is_a_tick");
        let mut look = if is_tick { Look::Tick } else { Look::Between };
        loop {
            match greatest_need(look) {
                (Need::Thread, shard) if is_idle => return Advice::Go(Elsewhere::Move(shard)),
                (Need::Help | Need::Thread, shard) => return Advice::Go(Elsewhere::Help(shard)),
                (Need::Tick, _) => {
                    self.begin_ticking(lookout);
                    return Advice::Wait(lookout.ticks.then(|| Instant::now() + TICK));
                }
                // A thread that brings work from now on calls. So it looks once more.
                _ if lookout.ticks => {
                    lookout.ticks = false;
                    self.stop_ticking();
                    look = Look::Between;
                    if mutant("who_stops_ticking_does_not_look_again") {
                        return Advice::Wait(None);
                    }
                }
                (Need::Timer(due), _) => {
                    lookout.minds_timer = true;
                    return Advice::Wait(Some(due));
                }
                (Need::Nothing, _) => return Advice::Wait(None),
            }
        }
    }

    /// Makes the thread the one that ticks, unless there is another.
    fn begin_ticking(&self, lookout: &mut Lookout) {
        lookout.ticks = lookout.ticks || !self.ticking.swap(true, Ordering::SeqCst);
    }

    /// Not a store: a thread that has seen that this one ticks must have been seen to wait.
    fn stop_ticking(&self) {
        self.ticking.swap(false, Ordering::SeqCst);
    }
}
