//! Mailboxes for notifications of the C library. A notification may arrive when no thread waits for it any
//! more, and even after its proactor is gone. So mailboxes live for ever, are identified by number, and are
//! used again.

use crate::hook::mutant;
use crate::interrupt::SPARE;
use crate::sys::{ThreadId, to_timespec};
use rustix::thread::futex;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// As many as 8 bits can number. Each living processor that needs one has one.
static MAILBOXES: [MailboxState; 256] = [const { MailboxState::new() }; 256];

/// The upper bits of a value are the number of the mailbox, the others the index of the operation.
const INDEX_BITS: u32 = usize::BITS - 8;

/// One of the mailboxes.
pub(crate) struct MailboxState {
    is_taken: AtomicBool,
    /// For signals: the thread that waits for them, or 0.
    waiting: AtomicI32,
    /// A notification went to another thread than that.
    has_stray: AtomicBool,
    /// For calls: changed with each notification and interrupt. The leader waits at this word.
    changes: AtomicU32,
    is_interrupted: AtomicBool,
    notifications: Mutex<Vec<u32>>,
}

/// A mailbox in use. Dropping it frees the mailbox.
pub(crate) struct Mailbox {
    number: usize,
}

impl Mailbox {
    /// The number of operations whose indices fit into a value.
    pub(crate) const MAX_OPERATIONS: usize =
        if INDEX_BITS > 31 { 1 << 31 } else { 1 << INDEX_BITS };

    /// Takes a mailbox; `None` if all are in use.
    pub(crate) fn take() -> Option<Self> {
        let free = |mailbox: &MailboxState| {
            if mailbox.is_taken.swap(true, Ordering::AcqRel) {
                return false;
            }
            // Notifications to an earlier owner mean nothing. If one arrives just now, take the next mailbox:
            // in the child of a fork, the thread that holds this lock does not exist.
            match mailbox.notifications.try_lock() {
                Ok(mut notifications) => notifications.clear(),
                Err(TryLockError::Poisoned(notifications)) => notifications.into_inner().clear(),
                Err(TryLockError::WouldBlock) => {
                    mailbox.is_taken.store(false, Ordering::Release);
                    return false;
                }
            }
            true
        };
        let number = MAILBOXES.iter().position(free)?;
        Some(Self { number })
    }

    /// Returns the value that a notification of this operation carries.
    pub(crate) fn value(&self, index: u32) -> usize {
        self.number << INDEX_BITS | index as usize
    }

    /// Returns the operation of a notification, if the notification is for this mailbox.
    pub(crate) fn index_of(&self, value: usize) -> Option<u32> {
        (value >> INDEX_BITS == self.number).then_some(index_of(value))
    }
}

impl Deref for Mailbox {
    type Target = MailboxState;

    fn deref(&self) -> &MailboxState {
        &MAILBOXES[self.number]
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Handles a signal with this value that went to a thread that does not wait for it: the waiting thread will
/// check all operations. The value may come from anywhere. Safe in a signal handler.
pub(super) fn is_astray(signal: i32, value: usize) {
    let mailbox = &MAILBOXES[value >> INDEX_BITS];
    // One wake-up is enough for all that go astray before it is handled.
    if !mailbox.has_stray.swap(true, Ordering::SeqCst)
        && let Some(waiting) = ThreadId::from_number(mailbox.waiting.load(Ordering::SeqCst))
        && !waiting.signal(signal)
    {
        waiting.signal(SPARE);
    }
}

/// The function of `SIGEV_THREAD`: an operation is over.
pub(super) extern "C" fn is_over(value: usize) {
    let mailbox = &MAILBOXES[value >> INDEX_BITS];
    mailbox.notifications().push(index_of(value));
    mailbox.change();
}

#[expect(clippy::cast_possible_truncation, reason = "it was made from 32 bits")]
fn index_of(value: usize) -> u32 {
    (value & ((1 << INDEX_BITS) - 1)) as u32
}

impl MailboxState {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            waiting: AtomicI32::new(0),
            has_stray: AtomicBool::new(false),
            changes: AtomicU32::new(0),
            is_interrupted: AtomicBool::new(false),
            notifications: Mutex::new(Vec::new()),
        }
    }

    /// Called before this thread waits for signals. Signals that go astray from now on wake it;
    /// [`MailboxState::has_stray`] reports earlier ones.
    pub(super) fn begin_to_wait(&self) {
        self.waiting.store(ThreadId::current().to_number(), Ordering::SeqCst);
    }

    pub(super) fn end_to_wait(&self) {
        self.waiting.store(0, Ordering::SeqCst);
    }

    /// Wakes the thread that waits for signals, if there is one.
    pub(super) fn nudge(&self) {
        if let Some(waiting) = ThreadId::from_number(self.waiting.load(Ordering::SeqCst)) {
            waiting.signal(SPARE);
        }
    }

    /// Returns whether notifications went astray.
    pub(super) fn has_stray(&self) -> bool {
        self.has_stray.load(Ordering::SeqCst)
    }

    /// Returns whether notifications went astray. The caller checks for all of them now.
    pub(super) fn take_stray(&self) -> bool {
        self.has_stray.swap(false, Ordering::SeqCst)
    }

    /// Called before the leader waits for calls. An interrupt before this was for an earlier wait.
    pub(super) fn prepare(&self) {
        self.is_interrupted.store(false, Ordering::Release);
    }

    /// Waits for a notification, an interrupt, a signal, or the timeout.
    pub(super) fn wait(&self, timeout: Duration) {
        let seen = self.changes.load(Ordering::Acquire);
        let is_interrupted =
            self.is_interrupted.load(Ordering::Acquire) && !mutant("callback_interrupt_unseen");
        if is_interrupted || !self.notifications().is_empty() {
            return;
        }
        let timeout = to_timespec(timeout);
        let timeout = futex::Timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_nsec };
        // However the wait ends, the caller checks.
        let _ = futex::wait(&self.changes, futex::Flags::PRIVATE, seen, Some(&timeout));
    }

    /// Ends a wait, including one that is only about to begin.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Release);
        self.change();
    }

    /// Exchanges the notifications for an empty list.
    pub(super) fn take_notifications(&self, empty: &mut Vec<u32>) {
        std::mem::swap(&mut *self.notifications(), empty);
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.changes, futex::Flags::PRIVATE, 1);
    }

    fn notifications(&self) -> MutexGuard<'_, Vec<u32>> {
        self.notifications.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
