//! Subscribers.

use crate::arguments::{self, FOREVER, Options, optional_string};
use crate::arguments::{close, handle, put, put_fd, put_handle, slice, string, timeout};
use crate::bus::{bus, toroni_bus};
use crate::inlet::{Told, toroni_lost};
use crate::message::toroni_message;
use crate::options::unknown;
use crate::stats::NO_SLOT;
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::time::Duration;
use toroni::{Continue, InPlace, Interrupter, ReceiveError, Start, Subscriber, WaitStrategy};

pub struct toroni_subscriber {
    /// Separate from the rest, which another thread may be using.
    interrupter: Interrupter,
    state: UnsafeCell<State>,
}

struct State {
    /// Borrows the subscriber, so it is dropped before each call on it, and before the subscriber.
    run: Option<InPlace<'static>>,
    /// The number of runs so far, which is the number of this one.
    runs: u64,
    /// From a `Box`. It is a raw pointer because a run points into it.
    subscriber: *mut Subscriber,
    losses: Losses,
}

/// `TORONI_NO_SEQUENCE` of toroni.h.
const NO_SEQUENCE: u64 = u64::MAX;

/// The last losses that a handle has returned.
#[derive(Default)]
pub(crate) struct Losses {
    lapped: toroni_loss,
    lost: Option<Told>,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct toroni_loss {
    pub messages: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_subscriber_options {
    pub struct_size: usize,
    pub patterns: *const *const c_char,
    pub pattern_count: usize,
    pub start: c_int,
    pub wait: c_int,
    pub position: u64,
    pub sequence: u64,
    pub not_gating: c_int,
    pub local_only: c_int,
    pub name: *const c_char,
    pub max_age_ns: u64,
    pub after_loss: c_int,
    pub retained: c_int,
}

// SAFETY: all fields are numbers and pointers; a test checks the layout.
unsafe impl Options for toroni_subscriber_options {
    const INIT: &'static str = "TORONI_SUBSCRIBER_OPTIONS_INIT";
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_subscriber_stats {
    pub received: u64,
    pub lost_messages: u64,
    pub lapses: u64,
    pub losses: u64,
    pub lost_on_the_way: u64,
    pub stale: u64,
    pub unknown: u64,
    pub reserved: [u64; 1],
}

impl From<toroni::SubscriberStats> for toroni_subscriber_stats {
    fn from(seen: toroni::SubscriberStats) -> Self {
        Self {
            received: seen.received,
            lost_messages: seen.lost_messages,
            lapses: seen.lapses,
            losses: seen.losses,
            lost_on_the_way: seen.lost_on_the_way,
            stale: seen.stale,
            unknown: seen.unknown,
            reserved: [0; 1],
        }
    }
}

impl toroni_subscriber {
    pub(crate) fn new(mut subscriber: Subscriber) -> Outcome<Self> {
        let interrupter = subscriber.interrupter()?;
        let subscriber = Box::into_raw(Box::new(subscriber));
        let state = State { run: None, runs: 0, subscriber, losses: Losses::default() };
        Ok(Self { interrupter, state: UnsafeCell::new(state) })
    }
}

impl State {
    /// Ends the current run, and returns the subscriber and its last losses.
    #[inline]
    fn open(&mut self) -> (&mut Subscriber, &mut Losses) {
        self.run = None;
        // SAFETY: from a box that lives as long as `self`; the run that borrowed it has just ended.
        (unsafe { &mut *self.subscriber }, &mut self.losses)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.run = None;
        // SAFETY: from a box, and nothing borrows it now.
        drop(unsafe { Box::from_raw(self.subscriber) });
    }
}

impl Losses {
    /// Stores the loss if the error is one, and converts the error.
    pub(crate) fn note(&mut self, error: ReceiveError) -> Failure {
        match &error {
            ReceiveError::Lapped { lost_messages, lost_bytes } => {
                self.lapped = toroni_loss { messages: *lost_messages, bytes: *lost_bytes };
            }
            ReceiveError::Lost(lost) => self.lost = Some(Told::from(&**lost)),
            _ => {}
        }
        error.into()
    }

    pub(crate) fn lapped(&self) -> toroni_loss {
        self.lapped
    }

    /// Returns the last loss on the way to the bus, or zeros. Its pointers are valid until the next one.
    pub(crate) fn lost(&self) -> toroni_lost {
        self.lost.as_ref().map_or_else(toroni_lost::default, |told| told.lost)
    }
}

/// # Safety
/// As [`handle`], in one thread at a time.
#[inline]
unsafe fn state<'a>(pointer: *const toroni_subscriber) -> Outcome<&'a mut State> {
    // SAFETY: the caller guarantees it.
    Ok(unsafe { &mut *handle(pointer, "the subscriber")?.state.get() })
}

/// Writes a message to the caller's variable, or zeros if `make` fails.
///
/// # Safety
/// `to` is null or writable.
#[inline]
unsafe fn put_message(
    to: *mut toroni_message,
    make: impl FnOnce() -> Outcome<toroni_message>,
) -> Outcome {
    // SAFETY: the caller guarantees it; zeros are valid numbers and null pointers.
    unsafe { put(to, "the pointer to the message", make) }
}

/// Calls `receive` and writes its message to `message`.
///
/// # Safety
/// As [`state`], and [`put_message`].
#[inline]
unsafe fn receive(
    subscriber: *const toroni_subscriber,
    message: *mut toroni_message,
    receive: impl FnOnce(&mut Subscriber) -> Result<Option<toroni_message>, ReceiveError>,
) -> c_int {
    // SAFETY: the caller guarantees it.
    catch_panics(|| unsafe {
        put_message(message, || {
            let (subscriber, losses) = state(subscriber)?.open();
            let received = receive(subscriber).map_err(|error| losses.note(error))?;
            received.ok_or(Failure::plain(Status::NoMessage))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_subscribe(
    bus: *const toroni_bus,
    pattern: *const c_char,
    result: *mut *mut toroni_subscriber,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let pattern = string(pattern, "the pattern")?;
            toroni_subscriber::new(self::bus(bus)?.bus.subscribe(pattern)?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_subscribe_with(
    bus: *const toroni_bus,
    options: *const toroni_subscriber_options,
    result: *mut *mut toroni_subscriber,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let options = arguments::options(options)?;
            toroni_subscriber::new(subscribe(bus, &options)?)
        })
    })
}

/// # Safety
/// What toroni.h requires of the options.
unsafe fn subscribe(
    bus: *const toroni_bus,
    options: &toroni_subscriber_options,
) -> Outcome<Subscriber> {
    // SAFETY: the caller guarantees it.
    let mut builder = unsafe { self::bus(bus) }?.bus.subscriber().gating(options.not_gating == 0);
    builder = builder.local_only(options.local_only != 0);
    // SAFETY: as above.
    for pattern in unsafe { slice(options.patterns, options.pattern_count, "the patterns") }? {
        // SAFETY: as above.
        builder = builder.pattern(unsafe { string(*pattern, "a pattern") }?);
    }
    builder = builder.start(match options.start {
        0 => Start::Latest,
        1 => Start::Oldest,
        2 => Start::Position(options.position),
        3 => Start::Sequence(options.sequence),
        other => return Err(unknown("start", other)),
    });
    builder = builder.wait(match options.wait {
        0 => WaitStrategy::Backoff,
        1 => WaitStrategy::Spin,
        2 => WaitStrategy::Yield,
        3 => WaitStrategy::Block,
        other => return Err(unknown("wait", other)),
    });
    builder = builder.after_loss(match options.after_loss {
        0 => Continue::Oldest,
        1 => Continue::Newest,
        other => return Err(unknown("after_loss", other)),
    });
    builder = builder.retained(options.retained != 0);
    if options.max_age_ns != 0 {
        builder = builder.max_age(Duration::from_nanos(options.max_age_ns));
    }
    // SAFETY: as above.
    if let Some(name) = unsafe { optional_string(options.name, "the name") }? {
        builder = builder.name(name);
    }
    Ok(builder.build()?)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_close(subscriber: *mut toroni_subscriber) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(subscriber) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_add_pattern(
    subscriber: *mut toroni_subscriber,
    pattern: *const c_char,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let (subscriber, _) = state(subscriber)?.open();
        Ok(subscriber.add_pattern(string(pattern, "the pattern")?)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_receive(
    subscriber: *mut toroni_subscriber,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    unsafe {
        receive(subscriber, message, |subscriber| {
            Ok(Some(toroni_message::copied(&subscriber.receive()?)))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_try_receive(
    subscriber: *mut toroni_subscriber,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    unsafe {
        receive(subscriber, message, |subscriber| {
            Ok(subscriber.try_receive()?.as_ref().map(toroni_message::copied))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_receive_timeout(
    subscriber: *mut toroni_subscriber,
    timeout_ns: u64,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    unsafe {
        receive(subscriber, message, |subscriber| match timeout(timeout_ns) {
            None => Ok(Some(toroni_message::copied(&subscriber.receive()?))),
            Some(timeout) => {
                Ok(subscriber.receive_timeout(timeout)?.as_ref().map(toroni_message::copied))
            }
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_receive_in_place(
    subscriber: *mut toroni_subscriber,
    timeout_ns: u64,
    message: *mut toroni_message,
) -> c_int {
    let receive = || {
        // SAFETY: toroni.h requires it of callers.
        let state = unsafe { state(subscriber) }?;
        let (subscriber, losses) = state.open();
        let run = match timeout_ns {
            0 => subscriber.try_receive_in_place(),
            FOREVER => subscriber.receive_in_place().map(Some),
            ns => subscriber.receive_in_place_timeout(std::time::Duration::from_nanos(ns)),
        };
        let run = run.map_err(|error| losses.note(error))?;
        let run = run.ok_or(Failure::plain(Status::NoMessage))?;
        // SAFETY: the run borrows the boxed subscriber, which outlives it: `open` and `drop` end the run before they
        // use the subscriber.
        state.run = Some(unsafe { std::mem::transmute::<InPlace<'_>, InPlace<'static>>(run) });
        state.runs += 1;
        next(state)
    };
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe { put_message(message, receive) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_next_in_place(
    subscriber: *mut toroni_subscriber,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe { put_message(message, || next(state(subscriber)?)) })
}

fn next(state: &mut State) -> Outcome<toroni_message> {
    let next = state.run.as_mut().and_then(Iterator::next);
    next.map(|next| toroni_message::in_place(&next)).ok_or(Failure::plain(Status::NoMessage))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_validate(subscriber: *mut toroni_subscriber) -> c_int {
    catch_panics(|| {
        // SAFETY: toroni.h requires it of callers.
        let state = unsafe { state(subscriber) }?;
        let run = state.run.as_ref().ok_or_else(|| {
            Failure::argument(
                "there is no run to validate: another call on the subscriber has ended it",
            )
        })?;
        run.validate().map_err(|error| state.losses.note(error))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_run_number(subscriber: *const toroni_subscriber) -> u64 {
    catch_panics_or(0, || {
        // SAFETY: toroni.h requires it of callers.
        let state = unsafe { state(subscriber) }?;
        Ok(if state.run.is_some() { state.runs } else { 0 })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_last_loss(
    subscriber: *const toroni_subscriber,
    loss: *mut toroni_loss,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(loss, "the pointer to the loss", || Ok(state(subscriber)?.losses.lapped()))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_last_lost(
    subscriber: *const toroni_subscriber,
    lost: *mut toroni_lost,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers and null pointers.
    catch_panics(|| unsafe {
        put(lost, "the pointer to the loss", || Ok(state(subscriber)?.losses.lost()))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_interrupt(subscriber: *const toroni_subscriber) {
    // Nothing else, because a signal handler may call it. Neither call can panic.
    // SAFETY: toroni.h requires it of callers; nothing writes to this field.
    if let Some(subscriber) = unsafe { subscriber.as_ref() } {
        subscriber.interrupter.interrupt();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_fd(
    subscriber: *mut toroni_subscriber,
    fd: *mut c_int,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe { put_fd(fd, || Ok(state(subscriber)?.open().0.fd()?.as_raw_fd())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_position(subscriber: *mut toroni_subscriber) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { state(subscriber) }?.open().0.position()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_lag_bytes(subscriber: *mut toroni_subscriber) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { state(subscriber) }?.open().0.lag_bytes()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_hold(
    subscriber: *mut toroni_subscriber,
    sequence: u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| Ok(unsafe { state(subscriber) }?.open().0.hold(sequence)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_release_hold(
    subscriber: *mut toroni_subscriber,
) -> c_int {
    catch_panics(|| {
        // SAFETY: toroni.h requires it of callers.
        unsafe { state(subscriber) }?.open().0.release_hold();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_held(subscriber: *mut toroni_subscriber) -> u64 {
    catch_panics_or(NO_SEQUENCE, || {
        // SAFETY: toroni.h requires it of callers.
        Ok(unsafe { state(subscriber) }?.open().0.held().unwrap_or(NO_SEQUENCE))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_slot(subscriber: *const toroni_subscriber) -> u32 {
    catch_panics_or(NO_SLOT, || {
        // SAFETY: toroni.h requires it of callers.
        let state = unsafe { state(subscriber) }?;
        // SAFETY: from a box that lives as long as `state`. This does not end a run, which only reads the subscriber.
        Ok(unsafe { &*state.subscriber }.slot())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_is_current(
    subscriber: *const toroni_subscriber,
) -> c_int {
    catch_panics_or(0, || {
        // SAFETY: toroni.h requires it of callers.
        let state = unsafe { state(subscriber) }?;
        // SAFETY: from a box that lives as long as `state`. This does not end a run, which only reads the subscriber.
        Ok(c_int::from(unsafe { &*state.subscriber }.is_current()))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_get_stats(
    subscriber: *mut toroni_subscriber,
    stats: *mut toroni_subscriber_stats,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(stats, "the pointer to the statistics", || {
            Ok(state(subscriber)?.open().0.stats().into())
        })
    })
}
