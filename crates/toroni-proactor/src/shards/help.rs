//! Help between shards. A thread waits in its own shard, so another shard may have work and nobody who comes to do
//! it: its threads are in handlers that block, or it has no thread. Three rules prevent that.
//!
//! 1. A thread *looks* at all other shards before it waits, and helps where something stands still.
//! 2. While others are at work, one waiting thread *ticks*: it looks again every [`TICK`], and helps where
//!    nothing has been taken since the last tick, where handlers sleep, or where more waits than the threads there
//!    will finish soon.
//! 3. A thread that leaves work behind, or brings work to a shard in which no thread waits, *calls* a waiting thread
//!    of another shard, unless one ticks. The called thread looks. One that stops ticking calls, too.
//! 4. If no thread waits, a thread at work looks when it has checked its engines, if that look is a tick. So a thread that
//!    always has work in its own shard serves the others, too.
//!
//! A look is a tick if the last tick, of any thread, was at least [`TICK`] ago. So threads that never wait as long as that
//! tick, too. Shards that need help take turns.
//!
//! No call is lost between the look of a thread and its wait: it is *out* from before its look until it has work,
//! and a call to a shard with a thread that is out is left there, under that shard's lock, for it to find.

use super::{Group, Shard, Shards};
use crate::core::Core;
use crate::dispatcher::TICK;
use crate::hook::{Point, mutant, point};
use crate::lock::Locked;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// What a thread does after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Waits, not longer than this.
    Wait(Option<Instant>),
    /// Finds out whether it still has to wait.
    Again,
    /// Does the work of this shard.
    Help(Shard),
    /// Makes this shard its own.
    Move(Shard),
}

/// How a thread looks at another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Soon after a tick.
    Between,
    Tick,
    /// It is a tick, too, and the thread has work in its own shard.
    AtWork,
}

/// What a shard needs of a thread of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Help,
    /// Help, and it has no thread.
    Thread,
    /// Another look at this time at the latest.
    Timer(Instant),
    /// Another look soon.
    Tick,
}

impl Core {
    /// Called when there is work in a shard in which no thread waits, or whose thread is about to call a handler.
    pub(crate) fn call_for_help(&mut self) {
        let group = &*self.group;
        if group.is_only() || mutant("nobody_is_called") {
            return;
        }
        // Handlers that sleep leave the cores to others: at once.
        let is_looked_at =
            group.ticking.load(Ordering::SeqCst) && !self.dispatcher.handlers_sleep_now();
        if !is_looked_at && group.waiting.load(Ordering::SeqCst) > 0 {
            self.dispatcher.calls = true;
        }
    }

    /// Returns whether another thread finds out if a handler of the only thread here does not return.
    pub(crate) fn is_looked_at(&mut self) -> bool {
        let group = &*self.group;
        let is_covered = group.is_only()
            || group.ticking.load(Ordering::SeqCst)
            || group.waiting.load(Ordering::SeqCst) == 0;
        if !is_covered {
            self.dispatcher.calls = true;
        }
        is_covered
    }

    /// Answers a call. Returns whether a thread of this shard will look.
    fn answer_call(&mut self) -> bool {
        if self.dispatcher.out == 0 {
            return false;
        }
        self.dispatcher.is_called = true;
        self.wake_one();
        true
    }

    /// Returns what this shard needs.
    fn need(&mut self, look: Look) -> Need {
        let taken = self.dispatcher.taken();
        let gets_on = self.dispatcher.seen != taken;
        let is_tick = look != Look::Between;
        if is_tick {
            self.dispatcher.seen = taken;
        }
        if self.dispatcher.out > 0 {
            // A thread waits here. While there is work, the same thread had better go on ticking.
            return if gets_on { Need::Tick } else { Need::Nothing };
        }
        if mutant("nobody_helps") {
            return Need::Nothing;
        }
        let stands_still = is_tick && !gets_on;
        if stands_still {
            // Its handlers have not returned.
            self.end_local_runs();
        }
        let threads = self.dispatcher.at_work();
        let is_too_much = is_tick && look != Look::AtWork && !self.finish_sooner(threads);
        if is_too_much && !mutant("shards_do_not_see_what_is_kept") {
            // What its thread keeps is part of that.
            self.end_local_runs();
        }
        let next = self.next_deadline();
        let has_work = self.has_work() || next.is_some_and(|next| next <= Instant::now());
        let wants_leader = self.wants_leader().is_some();
        // A thread at work has enough to do in its own shard.
        let is_for_others = look != Look::AtWork
            && (threads == 0 || self.dispatcher.handlers_sleep_now() || is_too_much);
        if has_work && (stands_still || is_for_others) {
            return Need::Help;
        }
        if wants_leader && stands_still {
            return if threads == 0 { Need::Thread } else { Need::Help };
        }
        if has_work || wants_leader || (threads > 0 && (gets_on || self.has_open_run())) {
            return Need::Tick;
        }
        next.map_or(Need::Nothing, Need::Timer)
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
        let was_called = std::mem::take(&mut self.dispatcher.is_called)
            && !mutant("a_call_before_the_wait_is_forgotten");
        if let Some(until) = lookout.may_wait.take()
            && !was_called
        {
            return Advice::Wait(until);
        }
        if !lookout.is_out {
            lookout.is_out = true;
            self.dispatcher.out += 1;
            self.group.waiting.fetch_add(1, Ordering::SeqCst);
        }
        // A handler that handles events stays in its shard.
        let may_move = !self.is_in_handler() || mutant("a_handler_moves");
        let is_idle = may_move && self.has_nothing_to_wait_for();
        let (shards, own) = (self.shards(), self.number());
        let advice = self.unlocked(|| {
            let advice = shards.look(own, lookout, was_called, is_idle);
            point(Point::AfterLook);
            advice
        });
        match advice {
            Advice::Wait(until) => {
                lookout.may_wait = Some(until);
                Advice::Again
            }
            other => other,
        }
    }

    /// Called when this thread, which is at work, has checked its engines. Returns a shard that needs help, if no other
    /// thread finds out.
    pub(crate) fn look_at_work(&mut self) -> Option<Shard> {
        let group = &*self.group;
        if group.is_only()
            || group.waiting.load(Ordering::SeqCst) > 0
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

    /// Called before this thread calls handlers, or leaves. Somebody else ticks then.
    pub(crate) fn end_lookout(&mut self, lookout: &mut Lookout) {
        if !lookout.is_out {
            return;
        }
        self.dispatcher.out -= 1;
        self.group.waiting.fetch_sub(1, Ordering::SeqCst);
        if lookout.ticks {
            self.group.ticking.store(false, Ordering::SeqCst);
        }
        let was_called = std::mem::take(&mut self.dispatcher.is_called);
        let passes_on = lookout.ticks || lookout.minds_timer || was_called;
        if passes_on && self.group.waiting.load(Ordering::SeqCst) > 0 {
            self.dispatcher.calls = true;
        }
        *lookout = Lookout::default();
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
        let takes_turn =
            |ticks: &mut bool| *ticks = *ticks || !self.group.ticking.swap(true, Ordering::SeqCst);
        takes_turn(&mut lookout.ticks);
        if !lookout.ticks && !was_called {
            return Advice::Wait(None);
        }
        let is_tick = self.group.begin_tick() && !mutant("no_look_is_a_tick");
        let mut look = if is_tick { Look::Tick } else { Look::Between };
        loop {
            match self.greatest_need(own, look) {
                (Need::Thread, shard) if is_idle => return Advice::Move(shard),
                (Need::Help | Need::Thread, shard) => return Advice::Help(shard),
                (Need::Tick, _) => {
                    takes_turn(&mut lookout.ticks);
                    return Advice::Wait(lookout.ticks.then(|| Instant::now() + TICK));
                }
                // Whoever brings work from now on calls. So it looks once more.
                _ if lookout.ticks => {
                    lookout.ticks = false;
                    self.group.ticking.store(false, Ordering::SeqCst);
                    look = Look::Between;
                }
                (Need::Timer(due), _) => {
                    lookout.minds_timer = true;
                    return Advice::Wait(Some(due));
                }
                (Need::Nothing, _) => return Advice::Wait(None),
            }
        }
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
            ticking: AtomicBool::new(false),
            waiting: 0.into(),
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
