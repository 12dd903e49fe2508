//! Routers.

use crate::arguments::{FOREVER, close, handle, null, put, put_count, put_fd, put_handle, string};
use crate::bus::{bus, toroni_bus};
use crate::inlet::{Told, toroni_lost};
use crate::message::toroni_message;
use crate::stats::NO_SLOT;
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use crate::subscriber::{Losses, toroni_loss, toroni_subscriber_stats};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;
use toroni::{Interrupter, Router};

pub struct toroni_router {
    interrupter: Interrupter,
    router: UnsafeCell<Router>,
    losses: RefCell<Losses>,
    /// Whether a call uses the router. A handler must not start another one.
    in_use: Cell<bool>,
}

pub type toroni_handler =
    Option<unsafe extern "C" fn(message: *const toroni_message, context: *mut c_void)>;

pub type toroni_loss_handler =
    Option<unsafe extern "C" fn(loss: *const toroni_loss, context: *mut c_void)>;

pub type toroni_lost_handler =
    Option<unsafe extern "C" fn(lost: *const toroni_lost, context: *mut c_void)>;

/// The caller's argument for a handler.
struct Context(*mut c_void);

// SAFETY: toroni.h says that a router, and so its handlers, belong to one thread at a time.
unsafe impl Send for Context {}

impl Context {
    /// A method, so that a closure captures the whole struct, which is `Send`.
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Marks the router as unused when it is dropped.
struct InUse<'a>(&'a Cell<bool>);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Calls a function with the router of a handle, unless a call uses it already.
///
/// # Safety
/// As [`handle`], and only one thread at a time uses the handle.
unsafe fn with<T>(
    pointer: *const toroni_router,
    call: impl FnOnce(&mut Router, &RefCell<Losses>) -> Outcome<T>,
) -> Outcome<T> {
    // SAFETY: the caller guarantees it.
    let router = unsafe { handle(pointer, "the router") }?;
    if router.in_use.replace(true) {
        let text = "a handler must not use the router that called it".to_owned();
        return Err(Failure::with_text_of(Status::Reentrant, &text));
    }
    let _in_use = InUse(&router.in_use);
    // SAFETY: one thread uses it, and `in_use` allows one call at a time in that thread.
    call(unsafe { &mut *router.router.get() }, &router.losses)
}

fn note(losses: &RefCell<Losses>, error: toroni::ReceiveError) -> Failure {
    losses.borrow_mut().note(error)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_router(
    bus: *const toroni_bus,
    result: *mut *mut toroni_router,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let mut router = self::bus(bus)?.bus.router()?;
            Ok(toroni_router {
                interrupter: router.interrupter()?,
                router: UnsafeCell::new(router),
                losses: RefCell::default(),
                in_use: Cell::new(false),
            })
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_close(router: *mut toroni_router) {
    // SAFETY: toroni.h requires it of callers.
    let in_use = unsafe { router.as_ref() }.is_some_and(|router| router.in_use.get());
    // The call that runs the handler still needs the router.
    if !in_use {
        // SAFETY: toroni.h requires it of callers.
        unsafe { close(router) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_on(
    router: *mut toroni_router,
    pattern: *const c_char,
    handler: toroni_handler,
    context: *mut c_void,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let pattern = string(pattern, "the pattern")?;
        let handler = handler.ok_or_else(|| null("the handler"))?;
        let context = Context(context);
        with(router, |router, _| {
            Ok(router.on(pattern, move |message| {
                let message = toroni_message::copied(message);
                handler(&raw const message, context.pointer());
            })?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_on_lapped(
    router: *mut toroni_router,
    handler: toroni_loss_handler,
    context: *mut c_void,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let handler = handler.ok_or_else(|| null("the handler"))?;
        let context = Context(context);
        with(router, |router, _| {
            router.on_lapped(move |messages, bytes| {
                let loss = toroni_loss { messages, bytes };
                handler(&raw const loss, context.pointer());
            });
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_on_lost(
    router: *mut toroni_router,
    handler: toroni_lost_handler,
    context: *mut c_void,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let handler = handler.ok_or_else(|| null("the handler"))?;
        let context = Context(context);
        with(router, |router, _| {
            router.on_lost(move |lost| {
                let told = Told::from(lost);
                handler(&raw const told.lost, context.pointer());
            });
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_poll(
    router: *mut toroni_router,
    handled: *mut usize,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_count(handled, 0);
        let count = with(router, |router, losses| {
            let before = router.subscriber().stats().received;
            router.poll().map_err(|error| {
                let received = router.subscriber().stats().received - before;
                put_count(handled, usize::try_from(received).unwrap_or(usize::MAX));
                note(losses, error)
            })
        })?;
        put_count(handled, count);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_run_once(
    router: *mut toroni_router,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let timeout =
            if timeout_ns == FOREVER { Duration::MAX } else { Duration::from_nanos(timeout_ns) };
        let found = with(router, |router, losses| {
            router.run_once(timeout).map_err(|error| note(losses, error))
        })?;
        if found { Ok(()) } else { Err(Failure::plain(Status::NoMessage)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_run(router: *mut toroni_router) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        with(router, |router, losses| match router.run() {
            Ok(never) => match never {},
            Err(error) => Err(note(losses, error)),
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_last_loss(
    router: *const toroni_router,
    loss: *mut toroni_loss,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(loss, "the pointer to the loss", || {
            Ok(handle(router, "the router")?.losses.borrow().lapped())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_last_lost(
    router: *const toroni_router,
    lost: *mut toroni_lost,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers and null pointers.
    catch_panics(|| unsafe {
        put(lost, "the pointer to the loss", || {
            Ok(handle(router, "the router")?.losses.borrow().lost())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_interrupt(router: *const toroni_router) {
    // Nothing else, as in `toroni_subscriber_interrupt`.
    // SAFETY: toroni.h requires it of callers; nothing writes to this field.
    if let Some(router) = unsafe { router.as_ref() } {
        router.interrupter.interrupt();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_fd(router: *mut toroni_router, fd: *mut c_int) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_fd(fd, || with(router, |router, _| Ok(router.fd()?.as_raw_fd())))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_position(router: *const toroni_router) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || unsafe { with(router, |router, _| Ok(router.subscriber().position())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_lag_bytes(router: *const toroni_router) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || unsafe { with(router, |router, _| Ok(router.subscriber().lag_bytes())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_slot(router: *const toroni_router) -> u32 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(NO_SLOT, || unsafe { with(router, |router, _| Ok(router.subscriber().slot())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_router_get_stats(
    router: *const toroni_router,
    stats: *mut toroni_subscriber_stats,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(stats, "the pointer to the statistics", || {
            with(router, |router, _| Ok(router.subscriber().stats().into()))
        })
    })
}
