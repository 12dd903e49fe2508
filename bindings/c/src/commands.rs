//! Commands for the sequencer, and the wait for their events.

use crate::arguments::{self, close, handle, null, payload, put, put_handle, string, timeout};
use crate::message::toroni_message;
use crate::options::{config, toroni_open_options, unknown};
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use toroni::BusConfig;
use toroni_sequencer::commands::{Commands, Echo, Pending, Sent};

pub struct toroni_commands(Commands);

pub struct toroni_pending(UnsafeCell<Pending>);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_sent {
    pub number: u64,
    pub series: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_echo {
    pub number: u64,
    pub outcome: c_int,
    pub reserved: u32,
}

/// The flags of a message that is the event of a command.
const HAS_ORIGIN: u32 = 4;

impl From<Sent> for toroni_sent {
    fn from(sent: Sent) -> Self {
        Self { number: sent.number, series: sent.series, reserved: 0 }
    }
}

impl From<Echo> for toroni_echo {
    fn from(echo: Echo) -> Self {
        let (outcome, number) = match echo {
            Echo::Event(number) => (1, number),
            Echo::Lost => (2, 0),
            Echo::Missed => (3, 0),
        };
        Self { number, outcome, reserved: 0 }
    }
}

/// # Safety
/// As [`handle`].
unsafe fn commands<'a>(pointer: *const toroni_commands) -> Outcome<&'a Commands> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the commands") }.map(|commands| &commands.0)
}

/// # Safety
/// As [`handle`], in one thread at a time.
unsafe fn pending<'a>(pointer: *const toroni_pending) -> Outcome<&'a mut Pending> {
    // SAFETY: the caller guarantees it.
    Ok(unsafe { &mut *handle(pointer, "the pending command")?.0.get() })
}

/// Returns the series of a message's origin, and the number.
///
/// # Safety
/// `message` is null or readable.
unsafe fn origin(message: *const toroni_message) -> Outcome<Option<(u32, u64)>> {
    // SAFETY: the caller guarantees it.
    let message = unsafe { message.as_ref() }.ok_or_else(|| null("the message"))?;
    let origin = (message.origin.series, message.origin.number);
    Ok((message.flags & HAS_ORIGIN != 0).then_some(origin))
}

/// # Safety
/// What toroni.h requires of the options.
unsafe fn settings(options: *const toroni_open_options) -> Outcome<BusConfig> {
    if options.is_null() {
        return Ok(BusConfig::new());
    }
    // SAFETY: not null; the caller guarantees the rest.
    let options = unsafe { arguments::options(options) }?;
    match options.existence {
        // SAFETY: as above; that includes the strings.
        0 => unsafe { config(&options) },
        1 | 2 => Err(Failure::argument(
            "existence must be TORONI_OPEN_OR_CREATE: the bus of commands is created by its first user",
        )),
        other => Err(unknown("existence", other)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_commands_open(
    feed: *const c_char,
    options: *const toroni_open_options,
    result: *mut *mut toroni_commands,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let feed = string(feed, "the feed")?;
            Ok(toroni_commands(Commands::open_with(settings(options)?, feed)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_commands_close(commands: *mut toroni_commands) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(commands) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_commands_send(
    commands: *const toroni_commands,
    topic: *const c_char,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    sent: *mut toroni_sent,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(sent, "the pointer to what was sent", || {
            let commands = self::commands(commands)?;
            let (topic, payload) = (string(topic, "the topic")?, payload(data, length)?);
            let sent = match timeout(timeout_ns) {
                None => commands.send(topic, payload),
                Some(timeout) => commands.send_timeout(topic, payload, timeout),
            };
            Ok(sent?.into())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_commands_send_and_watch(
    commands: *const toroni_commands,
    topic: *const c_char,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    result: *mut *mut toroni_pending,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let commands = self::commands(commands)?;
            let (topic, payload) = (string(topic, "the topic")?, payload(data, length)?);
            let pending = match timeout(timeout_ns) {
                None => commands.send_and_watch(topic, payload),
                Some(timeout) => commands.send_and_watch_timeout(topic, payload, timeout),
            };
            Ok(toroni_pending(UnsafeCell::new(pending?)))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_commands_is_mine(
    commands: *const toroni_commands,
    message: *const toroni_message,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || unsafe {
        let series = self::commands(commands)?.series();
        Ok(origin(message)?.is_some_and(|origin| origin.0 == series).into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_sent_is_echo(
    sent: *const toroni_sent,
    message: *const toroni_message,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || unsafe {
        let sent = sent.as_ref().ok_or_else(|| null("what was sent"))?;
        Ok((origin(message)? == Some((sent.series, sent.number))).into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_pending_sent(
    pending: *const toroni_pending,
    sent: *mut toroni_sent,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(sent, "the pointer to what was sent", || Ok(self::pending(pending)?.sent().into()))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_pending_wait(
    pending: *mut toroni_pending,
    timeout_ns: u64,
    echo: *mut toroni_echo,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(echo, "the pointer to the echo", || {
            let echo = self::pending(pending)?.wait(timeout(timeout_ns))?;
            Ok(echo.ok_or(Failure::plain(Status::NoMessage))?.into())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_pending_close(pending: *mut toroni_pending) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(pending) }
}
