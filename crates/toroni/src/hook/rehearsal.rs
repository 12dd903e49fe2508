//! Deaths within one process: the thread leaves its work at a step by unwinding, and whatever it wrote so
//! far stays. What it held stays held, but for the leases, which the kernel takes from a process that
//! dies. So lists of operations with deaths in them need no process for each.
//!
//! A participant whose bus has a robust lock must die on a thread of its own, which ends before its
//! handles are [`bury`]ed: the kernel hands on such a lock when its thread ends.

#[cfg(not(loom))]
use std::cell::Cell;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[cfg(not(loom))]
use std::thread::{ThreadId, current};

#[cfg(loom)]
use loom::thread::{ThreadId, current};

use super::CrashPoint;

/// Says of the steps reached so far whether the last of them is fatal.
type Fate = Box<dyn Fn(&[CrashPoint]) -> bool>;

struct Stage {
    actor: ThreadId,
    reached: Vec<CrashPoint>,
    dies: Fate,
}

thread_local! {
    // The threads of a model are one thread: there is one stage for all of them.
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

// No model has handles that are dropped.
#[cfg(not(loom))]
thread_local! {
    static DEAD: Cell<bool> = const { Cell::new(false) };
}

/// What the unwinding carries.
struct Died;

/// Does `work` until `dies` says so of the steps that it has reached. Returns these, and the
/// result if it lived. Must not be nested.
///
/// # Panics
/// As `work` does.
pub fn act<R>(
    dies: impl Fn(&[CrashPoint]) -> bool + 'static,
    work: impl FnOnce() -> R,
) -> (Vec<CrashPoint>, Option<R>) {
    let actor = current().id();
    STAGE.set(Some(Stage { actor, reached: Vec::new(), dies: Box::new(dies) }));
    let result = catch_unwind(AssertUnwindSafe(work));
    let died = is_dead();
    set_dead(false);
    let stage = STAGE.take().expect("rehearsals are not nested");
    match result {
        Ok(result) => (stage.reached, (!died).then_some(result)),
        Err(cause) if cause.is::<Died>() => (stage.reached, None),
        Err(cause) => resume_unwind(cause),
    }
}

/// Drops what a dead participant had, as the kernel does it: descriptors and mappings go, nothing is
/// given back by itself.
#[cfg(not(loom))]
pub fn bury(handles: impl Sized) {
    set_dead(true);
    drop(handles);
    set_dead(false);
}

#[cfg(not(loom))]
pub(super) fn is_dead() -> bool {
    DEAD.get()
}

#[cfg(loom)]
fn is_dead() -> bool {
    false
}

fn set_dead(dead: bool) {
    #[cfg(not(loom))]
    DEAD.set(dead);
    #[cfg(loom)]
    let _ = dead;
}

#[cfg(loom)]
pub(super) fn is_on_stage() -> bool {
    STAGE.with_borrow(|stage| stage.as_ref().is_some_and(|stage| stage.actor == current().id()))
}

pub(super) fn point(here: CrashPoint) {
    if is_dead() {
        return;
    }
    let dies = STAGE.with_borrow_mut(|stage| {
        stage.as_mut().filter(|stage| stage.actor == current().id()).is_some_and(|stage| {
            stage.reached.push(here);
            (stage.dies)(&stage.reached)
        })
    });
    if dies {
        set_dead(true);
        // A closure of the user may be unwinding already; who catches that does nothing any more.
        if !std::thread::panicking() {
            // Unlike `panic!`, says nothing: this is no failure.
            resume_unwind(Box::new(Died));
        }
    }
}
