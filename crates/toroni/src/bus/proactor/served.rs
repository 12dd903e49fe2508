//! A subscriber at work in a proactor.
//!
//! ```text
//!            subscribe                   woken; a check that finds something
//!                |                   ,------------------------------------.
//!                v                   v                                    |
//!            +-------+  32 messages  +------+  nothing more:          +-------+
//!            | again |-------------->| turn |  arm, check again ----->| waits |
//!            +-------+<--------------+------+                         +-------+
//!                 post_later             |                                |
//!                                        `------> over <------------------'
//!                                  cancel, a lasting error, the proactor stops
//! ```
//!
//! Completions come in any thread, several at a time. Each raises a signal. The thread that raises the
//! first signal does the work, including what is signalled meanwhile. So the handler never runs twice at a
//! time, and no thread waits for one that runs it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::waiting::{self, Rechecks, Waits, is_long};
use super::{NotSubscribed, Subscription};
use crate::bus::subscribe::Body;
use crate::bus::subscribe::waiting::SLEEPS_UNTIL_CHECK;
use crate::bus::{Message, Subscriber};
use crate::error::ReceiveError;
use crate::hook::{self, CrashPoint};
use crate::sync::{AtomicU32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toroni_proactor::{OperationError, OperationId, Proactor, WeakProactor};

/// The function that is called with each message.
pub(super) type Handler =
    Box<dyn FnMut(Result<Message<'_>, ReceiveError>, &Subscription) + Send + 'static>;

/// The function that is called at the end.
type EndHandler = Box<dyn FnOnce(&Subscription) + Send + 'static>;

/// Messages in a row before everything else that is ready is handled.
const BATCH: u32 = 32;

/// A thread is at work.
const BUSY: u32 = 1;
/// The wait is over.
const WOKEN: u32 = 2;
/// It is time to check although nothing woke it.
const RECHECK: u32 = 4;
/// Continue: at the beginning, or after a batch.
const AGAIN: u32 = 8;
/// The end was requested.
const END: u32 = 16;

/// See the module.
pub(super) struct Served {
    /// Not kept alive by what it serves.
    proactor: WeakProactor,
    signals: AtomicU32,
    /// 1 if the end was requested; checked between two messages.
    cancelled: AtomicU32,
    /// How the last wait failed.
    failure: Mutex<Option<OperationError>>,
    work: Mutex<Work>,
    end: Mutex<End>,
}

/// What belongs to the thread at work.
struct Work {
    /// None when it is over.
    job: Option<Job>,
    wait: Option<OperationId>,
    recheck: Option<OperationId>,
    is_recheck_far: bool,
    rechecks: Rechecks,
    /// Rechecks since the last message.
    in_vain: u32,
}

struct Job {
    subscriber: Subscriber,
    handler: Handler,
    waits: Waits,
}

#[derive(Default)]
struct End {
    is_over: bool,
    subscriber: Option<Subscriber>,
    handlers: Vec<EndHandler>,
}

/// What to do next.
enum Next {
    /// Nothing: a completion will come.
    Rest,
    /// It is over.
    Over,
}

impl Served {
    /// Serves a subscriber from now on.
    pub(super) fn start(
        proactor: &Proactor,
        mut subscriber: Subscriber,
        handler: Handler,
        rechecks: Rechecks,
    ) -> Result<Subscription, NotSubscribed> {
        let waits = match Waits::new(proactor, &mut subscriber) {
            Ok(waits) => waits,
            Err(error) => return Err(NotSubscribed { error, subscriber: Box::new(subscriber) }),
        };
        let served = Arc::new(Self {
            proactor: proactor.downgrade(),
            signals: AtomicU32::new(0),
            cancelled: AtomicU32::new(0),
            failure: Mutex::new(None),
            work: Mutex::new(Work {
                job: Some(Job { subscriber, handler, waits }),
                wait: None,
                recheck: None,
                is_recheck_far: false,
                rechecks,
                in_vain: 0,
            }),
            end: Mutex::default(),
        });
        let first = Arc::clone(&served);
        if let Err(refused) = proactor.post(move || first.signal(AGAIN)) {
            let subscriber = served.work().job.take().expect("no thread has begun").subscriber;
            let subscriber = Box::new(subscriber);
            return Err(NotSubscribed { error: refused.error.into(), subscriber });
        }
        Ok(Subscription(served))
    }

    /// See [`Subscription::cancel`].
    pub(super) fn cancel(self: &Arc<Self>) {
        self.cancelled.store(1, Ordering::Relaxed);
        let served = Arc::clone(self);
        let posted = self.proactor.upgrade().map(|it| it.post(move || served.signal(END)));
        if !matches!(posted, Some(Ok(()))) {
            self.signal(END);
        }
    }

    /// See [`Subscription::is_over`].
    pub(super) fn is_over(self: &Arc<Self>) -> bool {
        self.end_without_a_proactor();
        self.end().is_over
    }

    /// See [`Subscription::take_back`].
    pub(super) fn take_back(self: &Arc<Self>) -> Option<Subscriber> {
        self.end_without_a_proactor();
        self.end().subscriber.take()
    }

    /// See [`Subscription::on_end`].
    pub(super) fn on_end(self: &Arc<Self>, handler: EndHandler) {
        self.end_without_a_proactor();
        let mut end = self.end();
        if end.is_over {
            drop(end);
            self.tell_end(handler);
        } else {
            end.handlers.push(handler);
        }
    }

    /// Ends it if the proactor has been dropped: no completion will.
    fn end_without_a_proactor(self: &Arc<Self>) {
        if self.proactor.upgrade().is_none() {
            self.cancelled.store(1, Ordering::Relaxed);
            self.signal(END);
        }
    }

    /// Does what the signal asks for. If a thread is at work, that thread does it.
    fn signal(self: &Arc<Self>, signal: u32) {
        // Release and acquire: the thread at work sees what was done before each signal, and what the
        // thread at work before it has done.
        if self.signals.fetch_or(signal | BUSY, Ordering::AcqRel) & BUSY != 0 {
            return;
        }
        let mut work = self.work();
        let mut panic = None;
        loop {
            let signals = self.signals.swap(BUSY, Ordering::AcqRel) & !BUSY;
            if signals == 0 {
                let released =
                    self.signals.compare_exchange(BUSY, 0, Ordering::AcqRel, Ordering::Relaxed);
                if released.is_ok() {
                    break;
                }
                continue;
            }
            let step = catch_unwind(AssertUnwindSafe(|| self.step(&mut work, signals)));
            match step {
                Ok(Next::Rest) => {}
                Ok(Next::Over) => self.finish(&mut work),
                Err(payload) => {
                    self.finish(&mut work);
                    panic = Some(payload);
                }
            }
        }
        drop(work);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    fn step(self: &Arc<Self>, work: &mut Work, signals: u32) -> Next {
        if work.job.is_none() {
            return Next::Rest;
        }
        if signals & RECHECK != 0 {
            work.recheck = None;
        }
        if signals & WOKEN != 0 {
            work.wait = None;
            hook::point(CrashPoint::ReaderAwake);
        }
        if self.is_cancelled() {
            return Next::Over;
        }
        let next = match self.failure().take() {
            // Not by us: the proactor is stopping.
            Some(error) if error.is_cancelled() => Next::Over,
            Some(error) => self.fail(work, error),
            None if signals & (WOKEN | AGAIN) != 0 => self.turn(work),
            None if work.wait.is_some() => self.recheck(work),
            // After a full batch, the next turn is posted already.
            None => Next::Rest,
        };
        match next {
            Next::Rest => self.plan_recheck(work),
            Next::Over => Next::Over,
        }
    }

    /// Receives what there is, and waits; or continues later, if there is much.
    fn turn(self: &Arc<Self>, work: &mut Work) -> Next {
        let Some(proactor) = self.proactor.upgrade() else { return Next::Over };
        let Some(job) = &mut work.job else { return Next::Over };
        let subscription = Subscription(Arc::clone(self));
        for _ in 0..BATCH {
            if self.is_cancelled() {
                return Next::Over;
            }
            let (before, had_values) = (job.subscriber.position(), !job.subscriber.is_current());
            let error = match job.subscriber.next(Body::Whole) {
                Ok(true) => {
                    work.in_vain = 0;
                    (job.handler)(Ok(job.subscriber.last()), &subscription);
                    continue;
                }
                // If a wait is still in progress, because a check found the message first, that wait will
                // do.
                Ok(false) => match job.waits.arm(&mut job.subscriber) {
                    Ok(None) => continue,
                    Ok(Some(_)) if work.wait.is_some() => return Next::Rest,
                    Ok(Some(token)) => {
                        let served = Arc::clone(self);
                        let woken = move |result| served.woken(result);
                        #[cfg(test)]
                        super::tests::interlude();
                        match job.waits.start(&proactor, &job.subscriber, token, woken) {
                            Ok(operation) => work.wait = Some(operation),
                            Err(refused) => return self.refused(job, &refused),
                        }
                        return Next::Rest;
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let goes_on = match error {
                ReceiveError::Interrupted => true,
                // A message or value that makes no sense has been passed over; all else stays as it is.
                ReceiveError::Corrupt(_) => job.subscriber.position() != before || had_values,
                ref error => error.is_loss(),
            };
            work.in_vain = 0;
            (job.handler)(Err(error), &subscription);
            if !goes_on {
                return Next::Over;
            }
        }
        let served = Arc::clone(self);
        match proactor.post_later(move || served.signal(AGAIN)) {
            Ok(()) => Next::Rest,
            Err(_) => Next::Over,
        }
    }

    /// Checks, because the time has come and nothing has woken it.
    fn recheck(self: &Arc<Self>, work: &mut Work) -> Next {
        let Some(job) = &mut work.job else { return Next::Over };
        if !job.subscriber.is_drained() {
            return self.turn(work);
        }
        work.in_vain = work.in_vain.saturating_add(1);
        let is_check_due = work.in_vain.is_multiple_of(SLEEPS_UNTIL_CHECK);
        let checked = job.subscriber.check_interruption().and_then(|()| match is_check_due {
            true => job.subscriber.check_slowly(),
            false => job.subscriber.check_files(),
        });
        let Err(error) = checked else { return Next::Rest };
        let goes_on = matches!(error, ReceiveError::Interrupted);
        (job.handler)(Err(error), &Subscription(Arc::clone(self)));
        if goes_on { Next::Rest } else { Next::Over }
    }

    /// Sets the next moment to check, unless it is set. After a message it is near again.
    fn plan_recheck(self: &Arc<Self>, work: &mut Work) -> Next {
        let Some(proactor) = self.proactor.upgrade() else { return Next::Over };
        if let Some(recheck) = work.recheck {
            if !work.is_recheck_far || is_long(work.in_vain) || !proactor.cancel(recheck) {
                return Next::Rest;
            }
            work.recheck = None;
        }
        let Some(moment) = work.rechecks.next(work.in_vain) else { return Next::Rest };
        let served = Arc::clone(self);
        let timer = proactor.timer_at(moment, move |result| {
            // Cancelled: because a nearer one has been set, or because it is over.
            if result.is_ok() {
                served.signal(RECHECK);
            }
        });
        work.is_recheck_far = is_long(work.in_vain);
        match timer {
            Ok(recheck) => {
                work.recheck = Some(recheck);
                Next::Rest
            }
            Err(_) => Next::Over,
        }
    }

    fn woken(self: &Arc<Self>, result: Result<(), OperationError>) {
        if let Err(error) = result {
            *self.failure() = Some(error);
        }
        self.signal(WOKEN);
    }

    /// Reports that the wait has failed.
    fn fail(self: &Arc<Self>, work: &mut Work, error: OperationError) -> Next {
        if let Some(job) = &mut work.job {
            let error = waiting::failed(&job.subscriber, error);
            (job.handler)(Err(error), &Subscription(Arc::clone(self)));
        }
        Next::Over
    }

    /// Reports that the wait could not begin.
    fn refused(self: &Arc<Self>, job: &mut Job, refused: &toroni_proactor::StartError) -> Next {
        if let toroni_proactor::StartError::Refused(error) = refused {
            let error = waiting::failed(&job.subscriber, *error);
            (job.handler)(Err(error), &Subscription(Arc::clone(self)));
        }
        Next::Over
    }

    /// Ends the service: the handler is dropped, and the subscriber can be taken back. Memory that the
    /// kernel still reads belongs to the operation, and is given up when that ends.
    fn finish(self: &Arc<Self>, work: &mut Work) {
        let Some(Job { subscriber, handler, waits }) = work.job.take() else { return };
        if let Some(proactor) = self.proactor.upgrade() {
            let operations = work.wait.take().into_iter().chain(work.recheck.take());
            operations.for_each(|operation| {
                let _ = proactor.cancel(operation);
            });
        }
        drop((handler, waits));
        let mut end = self.end();
        end.is_over = true;
        end.subscriber = Some(subscriber);
        let handlers = std::mem::take(&mut end.handlers);
        drop(end);
        handlers.into_iter().for_each(|handler| self.tell_end(handler));
    }

    fn tell_end(self: &Arc<Self>, handler: EndHandler) {
        let subscription = Subscription(Arc::clone(self));
        let Some(proactor) = self.proactor.upgrade() else { return handler(&subscription) };
        // A proactor that is stopping takes no more posts.
        if let Err(refused) = proactor.post(move || handler(&subscription)) {
            (refused.handler)();
        }
    }

    /// Returns whether no thread is at work, and a wait has begun.
    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.signals.load(Ordering::Acquire) == 0 && self.work().wait.is_some()
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) != 0
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> MutexGuard<'_, Option<OperationError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
