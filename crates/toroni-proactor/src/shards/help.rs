//! Help between shards. A thread waits in its own shard, so another shard may have work and no thread that comes
//! to do it: its threads are in handlers that block, or it has none. Five rules prevent that.
//!
//! 1. A thread *looks* at all other shards before it waits, and helps where something stands still.
//! 2. While others are at work, one waiting thread *ticks*: it looks again every [`TICK`], and helps where
//!    nothing has been taken since the last tick, where handlers sleep, or where more waits than the threads there
//!    will finish soon.
//! 3. A thread that leaves work behind, or brings work to a shard in which no thread waits, *calls* a waiting thread
//!    of another shard, unless one ticks. The called thread looks. One that ticks and gets work calls, too, because
//!    others rely on its ticks.
//! 4. If no thread waits, a thread at work looks when it has checked its engines, if that look is a tick. So a thread that
//!    always has work in its own shard serves the others, too.
//! 5. A thread that has nothing to wait for makes a shard its own that has unfinished operations and no thread.
//!
//! A look is a tick if the last tick, of any thread, was at least [`TICK`] ago. So threads that never wait as long as that
//! tick, too. Shards that need help take turns.
//!
//! How threads look and call without losing a call is in `calls/`.

use super::calls::{Before, Look, Need, Sight, Waiters};
use super::{Advice, Group, Lookout, Shard, Shards};
use crate::core::Core;
use crate::dispatcher::TICK;
use crate::hook::{Point, mutant, point};
use crate::lock::Locked;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Core {
    /// Called when there is work in a shard in which no thread waits, or whose thread is about to call a handler.
    pub(crate) fn call_for_help(&mut self) {
        if !self.group.is_only() {
            let handlers_sleep = self.dispatcher.handlers_sleep_now();
            self.dispatcher.calls.call(&self.group.waiters, handlers_sleep);
        }
    }

    /// Returns whether the only thread here may collect what its handlers start: another thread finds out if one does not
    /// return, or no thread waits that could. Otherwise calls one.
    pub(crate) fn is_looked_at(&mut self) -> bool {
        self.group.is_only() || self.dispatcher.calls.is_looked_at(&self.group.waiters)
    }

    /// Answers a call. Returns whether a thread of this shard will look.
    fn answer_call(&mut self) -> bool {
        let answers = self.dispatcher.calls.answer();
        if answers {
            self.wake_one();
        }
        answers
    }

    /// Returns what this shard needs. A tick that finds that nothing gets on here ends the local runs, and so does one
    /// that finds too much to do.
    fn need(&mut self, look: Look) -> Need {
        let taken = self.dispatcher.taken();
        let gets_on = self.dispatcher.seen != taken;
        let is_tick = look != Look::Between;
        if is_tick {
            self.dispatcher.seen = taken;
        }
        if self.dispatcher.calls.is_looking() {
            // A thread waits here. While there is work, the same thread had better go on ticking.
            return if gets_on { Need::Tick } else { Need::Nothing };
        }
        if mutant("nobody_helps") {
            return Need::Nothing;
        }
        if is_tick && !gets_on {
            // Its handlers have not returned.
            self.end_local_runs();
        }
        let threads = self.dispatcher.at_work();
        let is_too_much = is_tick && look != Look::AtWork && !self.finish_sooner(threads);
        if is_too_much && !mutant("shards_do_not_see_what_is_kept") {
            // The helper takes what its thread keeps, too.
            self.end_local_runs();
        }
        let next = self.next_deadline();
        let sight = Sight {
            threads,
            gets_on,
            handlers_sleep: self.dispatcher.handlers_sleep_now(),
            is_too_much,
            has_open_run: self.has_open_run(),
            has_work: self.has_work() || next.is_some_and(|next| next <= Instant::now()),
            wants_leader: self.wants_leader().is_some(),
            next,
        };
        sight.need(look)
    }
}

#[cfg(test)]
impl Core {
    /// Returns whether a thread of another shard that ticks helps here.
    pub(crate) fn needs_help(&mut self) -> bool {
        self.need(Look::Tick) == Need::Help
    }
}

impl Locked<'_> {
    /// Called before this thread waits.
    pub(crate) fn look_around(&mut self, lookout: &mut Lookout) -> Advice {
        if self.group.is_only() {
            return Advice::Wait(None);
        }
        let core = &mut **self;
        let was_called = match core.dispatcher.calls.before_wait(&core.group.waiters, lookout) {
            Before::Wait(until) => return Advice::Wait(until),
            Before::Look { was_called } => was_called,
        };
        // A handler that handles events stays in its shard.
        let may_move = !self.is_in_handler() || mutant("a_handler_moves");
        let is_idle = may_move && self.has_nothing_to_wait_for();
        let (shards, own) = (self.shards(), self.number());
        let advice = self.unlocked(|| {
            let advice = shards.look(own, lookout, was_called, is_idle);
            point(Point::AfterLook);
            advice
        });
        lookout.take_advice(advice)
    }

    /// Called when this thread, which is at work, has checked its engines. Returns a shard that needs help, if no other
    /// thread finds out.
    pub(crate) fn look_at_work(&mut self) -> Option<Shard> {
        let group = &*self.group;
        if group.is_only()
            || group.waiters.are_there()
            || mutant("threads_at_work_do_not_look")
            || !group.begin_tick()
        {
            return None;
        }
        let (shards, own) = (self.shards(), self.number());
        match self.unlocked(|| shards.greatest_need(own, Look::AtWork)) {
            (Need::Help | Need::Thread, shard) => Some(shard),
            _ => None,
        }
    }

    /// Called before this thread calls handlers, or leaves. Another thread ticks then.
    pub(crate) fn end_lookout(&mut self, lookout: &mut Lookout) {
        let core = &mut **self;
        core.dispatcher.calls.end_lookout(&core.group.waiters, lookout);
    }

    /// Does what there is to do here, without waiting. This thread's own shard is another one. Returns the number of
    /// handlers called.
    fn help(&mut self, until: Option<&AtomicBool>) -> usize {
        if self.leaves(until) {
            return 0;
        }
        let lent = self.enter();
        self.expire_timers();
        self.check_engines();
        let handled = self.process_completed(true, until, lent.run());
        // A tick asks what the threads of this shard have taken.
        self.dispatcher.seen = self.dispatcher.taken();
        self.leave(lent.run());
        handled
    }
}

impl Shards {
    /// Makes a thread that waits look, if there is one.
    pub(crate) fn call(&self) {
        let _ = self.numbers().any(|shard| self.lock(shard).answer_call());
    }

    /// Helps in this shard, with this thread of another one.
    pub(crate) fn help(&self, shard: Shard, until: Option<&AtomicBool>) -> usize {
        self.lock(shard).help(until)
    }

    /// Helps in all shards but this one. For a thread that may not wait.
    pub(super) fn help_all(&self, own: Shard, until: Option<&AtomicBool>) -> usize {
        let others = self.numbers().filter(|shard| *shard != own);
        others.map(|shard| self.help(shard, until)).sum()
    }

    /// Looks at all shards but this thread's own one. No shard is locked.
    fn look(&self, own: Shard, lookout: &mut Lookout, was_called: bool, is_idle: bool) -> Advice {
        let begin_tick = || self.group.begin_tick();
        let greatest_need = |look| self.greatest_need(own, look);
        self.group.waiters.look(lookout, was_called, is_idle, begin_tick, greatest_need)
    }

    /// Returns the greatest need of another shard. Those that need help take turns.
    fn greatest_need(&self, own: Shard, look: Look) -> (Need, Shard) {
        let mut greatest = (Need::Nothing, own);
        let last = self.group.helped.load(Ordering::Relaxed);
        let is_after = |shard: &Shard| *shard > last && !mutant("the_first_shard_is_helped");
        let (after, before) = (self.numbers().filter(is_after), self.numbers());
        for shard in after.chain(before.filter(|shard| !is_after(shard))).filter(|it| *it != own) {
            let need = self.lock(shard).need(look);
            greatest = match (greatest.0, need) {
                (_, Need::Help | Need::Thread) => {
                    self.group.helped.store(shard, Ordering::Relaxed);
                    return (need, shard);
                }
                (Need::Tick, _) | (_, Need::Nothing) => greatest,
                (Need::Timer(before), Need::Timer(due)) if before <= due => greatest,
                _ => (need, shard),
            };
        }
        greatest
    }
}

impl Group {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            shards,
            waiters: Waiters::default(),
            began: Instant::now(),
            ticked_ns: 0.into(),
            helped: 0.into(),
        }
    }

    /// Returns whether the look that this thread begins is a tick. Of several looks at the same time, one is.
    fn begin_tick(&self) -> bool {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanoseconds(self.began.elapsed());
        let last = self.ticked_ns.load(Ordering::Relaxed);
        now.saturating_sub(last) >= nanoseconds(TICK)
            && self
                .ticked_ns
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards
    }

    pub(crate) fn is_only(&self) -> bool {
        self.shards <= 1
    }
}
