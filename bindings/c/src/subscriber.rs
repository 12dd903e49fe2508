//! Receiving.

use crate::arguments::{self, FOREVER, Options, optional_string};
use crate::arguments::{close, handle, null, put, put_handle, slice, string, timeout};
use crate::bus::{bus, toroni_bus};
use crate::message::toroni_message;
use crate::options::unknown;
use crate::stats::NO_SLOT;
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use toroni::{InPlace, Interrupter, OpenError, ReceiveError, Start, Subscriber, WaitStrategy};

/// `toroni_subscriber` of the header.
pub struct toroni_subscriber {
    /// Apart from the rest, which another thread may be using.
    interrupter: Interrupter,
    state: UnsafeCell<State>,
}

struct State {
    /// Borrows the subscriber, and goes before each call on it, and before it is dropped.
    run: Option<InPlace<'static>>,
    /// How many there were: the number of this one.
    runs: u64,
    /// From a box, as a pointer: a run points into it.
    subscriber: *mut Subscriber,
    loss: toroni_loss,
}

/// `toroni_loss` of the header.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct toroni_loss {
    /// Messages of the whole bus.
    pub messages: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// `toroni_subscriber_options` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_subscriber_options {
    /// `sizeof(toroni_subscriber_options)` of the caller: see `Options`.
    pub struct_size: usize,
    /// Patterns.
    pub patterns: *const *const c_char,
    /// Number of them.
    pub pattern_count: usize,
    /// A `TORONI_START_…`.
    pub start: c_int,
    /// A `TORONI_WAIT_…`.
    pub wait: c_int,
    /// Of `TORONI_START_POSITION`.
    pub position: u64,
    /// Not 0: publishers do not wait for it.
    pub not_gating: c_int,
    /// 0.
    pub reserved: u32,
    /// How it appears in `toroni info`, or null.
    pub name: *const c_char,
}

// SAFETY: it is numbers and pointers, as the test of layouts says.
unsafe impl Options for toroni_subscriber_options {
    const INIT: &'static str = "TORONI_SUBSCRIBER_OPTIONS_INIT";
}

/// `toroni_subscriber_stats` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_subscriber_stats {
    /// Messages handed out.
    pub received: u64,
    /// Messages of the bus that were overwritten before.
    pub lost_messages: u64,
    /// How often that happened.
    pub lapses: u64,
    /// 0.
    pub reserved: [u64; 5],
}

impl From<toroni::SubscriberStats> for toroni_subscriber_stats {
    fn from(seen: toroni::SubscriberStats) -> Self {
        let toroni::SubscriberStats { received, lost_messages, lapses, .. } = seen;
        Self { received, lost_messages, lapses, reserved: [0; 5] }
    }
}

impl toroni_subscriber {
    pub(crate) fn new(mut subscriber: Subscriber) -> Outcome<Self> {
        let interrupter = subscriber.interrupter()?;
        let subscriber = Box::into_raw(Box::new(subscriber));
        let state = State { run: None, runs: 0, subscriber, loss: toroni_loss::default() };
        Ok(Self { interrupter, state: UnsafeCell::new(state) })
    }
}

impl State {
    /// The subscriber, and where its loss is noted. Ends the run before.
    #[inline]
    fn open(&mut self) -> (&mut Subscriber, &mut toroni_loss) {
        self.run = None;
        // SAFETY: from a box that lives as long as this; the run that borrowed it has just ended.
        (unsafe { &mut *self.subscriber }, &mut self.loss)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.run = None;
        // SAFETY: from a box, and nothing borrows it.
        drop(unsafe { Box::from_raw(self.subscriber) });
    }
}

impl toroni_loss {
    /// Notes what is lost.
    pub(crate) fn note(&mut self, error: ReceiveError) -> Failure {
        if let ReceiveError::Lapped { lost_messages, lost_bytes } = error {
            *self = Self { messages: lost_messages, bytes: lost_bytes };
        }
        error.into()
    }
}

/// # Safety
/// As [`handle`], in one thread at a time.
#[inline]
unsafe fn state<'a>(pointer: *const toroni_subscriber) -> Outcome<&'a mut State> {
    // SAFETY: the caller's promise.
    Ok(unsafe { &mut *handle(pointer, "the subscriber")?.state.get() })
}

/// Receives by `receive`, and hands the message out.
///
/// # Safety
/// As [`state`], and [`put`].
#[inline]
unsafe fn receive(
    subscriber: *const toroni_subscriber,
    message: *mut toroni_message,
    receive: impl FnOnce(&mut Subscriber) -> Result<Option<toroni_message>, ReceiveError>,
) -> c_int {
    catch_panics(|| {
        // Before there is a message that would be lost.
        if message.is_null() {
            return Err(null("the place for the message"));
        }
        // SAFETY: the caller's promise.
        let (subscriber, loss) = unsafe { state(subscriber) }?.open();
        let received = receive(subscriber).map_err(|error| loss.note(error))?;
        let received = received.ok_or(Failure::plain(Status::NoMessage))?;
        // SAFETY: not null; the caller's promise.
        unsafe { message.write(received) };
        Ok(())
    })
}

/// Subscribes to one pattern.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_subscribe(
    bus: *const toroni_bus,
    pattern: *const c_char,
    result: *mut *mut toroni_subscriber,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let pattern = string(pattern, "the pattern")?;
            toroni_subscriber::new(self::bus(bus)?.bus.subscribe(pattern)?)
        })
    })
}

/// Subscribes with options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_subscribe_with(
    bus: *const toroni_bus,
    options: *const toroni_subscriber_options,
    result: *mut *mut toroni_subscriber,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let options = arguments::options(options)?;
            toroni_subscriber::new(subscribe(bus, &options)?)
        })
    })
}

/// # Safety
/// What the header says of the options.
unsafe fn subscribe(
    bus: *const toroni_bus,
    options: &toroni_subscriber_options,
) -> Outcome<Subscriber> {
    if options.reserved != 0 {
        return Err(unknown("reserved", options.reserved));
    }
    // SAFETY: the caller's promise.
    let mut builder = unsafe { self::bus(bus) }?.bus.subscriber().gating(options.not_gating == 0);
    // SAFETY: as above.
    for pattern in unsafe { slice(options.patterns, options.pattern_count, "the patterns") }? {
        // SAFETY: as above.
        builder = builder.pattern(unsafe { string(*pattern, "a pattern") }?);
    }
    builder = builder.start(match options.start {
        0 => Start::Latest,
        1 => Start::Oldest,
        2 => Start::Position(options.position),
        other => return Err(unknown("start", other)),
    });
    builder = builder.wait(match options.wait {
        0 => WaitStrategy::Backoff,
        1 => WaitStrategy::Spin,
        2 => WaitStrategy::Yield,
        3 => WaitStrategy::Block,
        other => return Err(unknown("wait", other)),
    });
    // SAFETY: as above.
    if let Some(name) = unsafe { optional_string(options.name, "the name") }? {
        builder = builder.name(name);
    }
    Ok(builder.build()?)
}

/// Unsubscribes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_close(subscriber: *mut toroni_subscriber) {
    // SAFETY: what callers owe.
    unsafe { close(subscriber) }
}

/// Adds a pattern.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_add_pattern(
    subscriber: *mut toroni_subscriber,
    pattern: *const c_char,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        let (subscriber, _) = state(subscriber)?.open();
        Ok(subscriber.add_pattern(string(pattern, "the pattern")?)?)
    })
}

/// Receives a message, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_receive(
    subscriber: *mut toroni_subscriber,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: what callers owe.
    unsafe {
        receive(subscriber, message, |subscriber| {
            Ok(Some(toroni_message::copied(&subscriber.receive()?)))
        })
    }
}

/// Receives a message, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_try_receive(
    subscriber: *mut toroni_subscriber,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: what callers owe.
    unsafe {
        receive(subscriber, message, |subscriber| {
            Ok(subscriber.try_receive()?.as_ref().map(toroni_message::copied))
        })
    }
}

/// Receives a message, with a limit to the wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_receive_timeout(
    subscriber: *mut toroni_subscriber,
    timeout_ns: u64,
    message: *mut toroni_message,
) -> c_int {
    // SAFETY: what callers owe.
    unsafe {
        receive(subscriber, message, |subscriber| match timeout(timeout_ns) {
            None => Ok(Some(toroni_message::copied(&subscriber.receive()?))),
            Some(timeout) => {
                Ok(subscriber.receive_timeout(timeout)?.as_ref().map(toroni_message::copied))
            }
        })
    }
}

/// The first message of a new run in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_receive_in_place(
    subscriber: *mut toroni_subscriber,
    timeout_ns: u64,
    message: *mut toroni_message,
) -> c_int {
    catch_panics(|| {
        if message.is_null() {
            return Err(null("the place for the message"));
        }
        // SAFETY: what callers owe.
        let state = unsafe { state(subscriber) }?;
        let (subscriber, loss) = state.open();
        let run = match timeout_ns {
            0 => subscriber.try_receive_in_place(),
            FOREVER => subscriber.receive_in_place().map(Some),
            ns => subscriber.receive_in_place_timeout(std::time::Duration::from_nanos(ns)),
        };
        let run = run.map_err(|error| loss.note(error))?;
        let run = run.ok_or(Failure::plain(Status::NoMessage))?;
        // SAFETY: the run borrows the subscriber behind the pointer, which outlives it: `open` and `drop` end it
        // before they touch the subscriber.
        state.run = Some(unsafe { std::mem::transmute::<InPlace<'_>, InPlace<'static>>(run) });
        state.runs += 1;
        // SAFETY: not null, and what callers owe.
        unsafe { next(state, message) }
    })
}

/// The next message of the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_next_in_place(
    subscriber: *mut toroni_subscriber,
    message: *mut toroni_message,
) -> c_int {
    catch_panics(|| {
        if message.is_null() {
            return Err(null("the place for the message"));
        }
        // SAFETY: what callers owe, and not null.
        unsafe { next(state(subscriber)?, message) }
    })
}

/// # Safety
/// `message` may be written.
unsafe fn next(state: &mut State, message: *mut toroni_message) -> Outcome {
    let next = state.run.as_mut().and_then(Iterator::next);
    let next = next.ok_or(Failure::plain(Status::NoMessage))?;
    // SAFETY: the caller's promise.
    unsafe { message.write(toroni_message::in_place(&next)) };
    Ok(())
}

/// Whether what was read of the run is what was published.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_validate(subscriber: *mut toroni_subscriber) -> c_int {
    catch_panics(|| {
        // SAFETY: what callers owe.
        let state = unsafe { state(subscriber) }?;
        let run = state.run.as_ref().ok_or_else(|| {
            Failure::argument("there is no run to be validated: another call has ended it")
        })?;
        run.validate().map_err(|error| state.loss.note(error))
    })
}

/// The number of the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_run_number(subscriber: *const toroni_subscriber) -> u64 {
    catch_panics_or(0, || {
        // SAFETY: what callers owe.
        let state = unsafe { state(subscriber) }?;
        Ok(if state.run.is_some() { state.runs } else { 0 })
    })
}

/// What the last `TORONI_LAPPED` was about.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_last_loss(
    subscriber: *const toroni_subscriber,
    loss: *mut toroni_loss,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe { put(loss, "the place for the loss", state(subscriber)?.loss) })
}

/// Ends a blocked call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_interrupt(subscriber: *const toroni_subscriber) {
    // Nothing else, as a signal handler may call it; neither of the two can panic.
    // SAFETY: what callers owe; nobody writes this part.
    if let Some(subscriber) = unsafe { subscriber.as_ref() } {
        subscriber.interrupter.interrupt();
    }
}

/// Its descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_fd(
    subscriber: *mut toroni_subscriber,
    fd: *mut c_int,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        let (subscriber, _) = state(subscriber)?.open();
        put(fd, "the place for the descriptor", -1)?;
        let descriptor = subscriber.fd().map_err(|error: OpenError| Failure::from(error))?;
        put(fd, "the place for the descriptor", descriptor.as_raw_fd())
    })
}

/// Where it has got to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_position(subscriber: *mut toroni_subscriber) -> u64 {
    // SAFETY: what callers owe.
    catch_panics_or(0, || Ok(unsafe { state(subscriber) }?.open().0.position()))
}

/// How far it lags behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_lag_bytes(subscriber: *mut toroni_subscriber) -> u64 {
    // SAFETY: what callers owe.
    catch_panics_or(0, || Ok(unsafe { state(subscriber) }?.open().0.lag_bytes()))
}

/// Its slot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_slot(subscriber: *const toroni_subscriber) -> u32 {
    catch_panics_or(NO_SLOT, || {
        // SAFETY: what callers owe.
        let state = unsafe { state(subscriber) }?;
        // SAFETY: from a box that lives as long as this. A run, which is not ended by this, only reads it.
        Ok(unsafe { &*state.subscriber }.slot())
    })
}

/// What it has seen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_subscriber_get_stats(
    subscriber: *mut toroni_subscriber,
    stats: *mut toroni_subscriber_stats,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        let seen = state(subscriber)?.open().0.stats();
        put(stats, "the place for the statistics", seen.into())
    })
}
