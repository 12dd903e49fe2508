//! The values of retained topics, which are read without a subscriber.

use crate::arguments::{close, handle, put, put_handle, string};
use crate::bus::{bus, toroni_bus};
use crate::lists::{Strings, one};
use crate::message::{Carried, carried, toroni_origin};
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use toroni::{RetainedError, RetainedMessage};

pub struct toroni_values {
    values: Vec<toroni_value>,
    /// What `values` points to.
    _messages: Vec<RetainedMessage>,
    _strings: Strings,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_value {
    pub topic: *const c_char,
    pub payload: *const c_void,
    pub payload_length: usize,
    pub sequence: u64,
    pub position: u64,
    pub timestamp_ns: u64,
    pub number: u64,
    pub origin: toroni_origin,
    pub flags: u32,
    pub status: c_int,
    pub problem: *const c_char,
    pub missing_length: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_missing {
    pub topic: *const c_char,
    pub sequence: u64,
    pub length: u64,
}

/// A value that the bus had no room for.
pub(crate) struct Missing {
    topic: CString,
    sequence: u64,
    length: u64,
}

impl Missing {
    pub(crate) fn new(topic: &str, sequence: u64, length: u64) -> Self {
        // A topic contains no 0.
        Self { topic: CString::new(topic).unwrap_or_default(), sequence, length }
    }

    /// Makes it the one that [`toroni_last_missing`] reports.
    pub(crate) fn report(self) {
        // It may be gone already if a destructor of another thread-local variable calls this.
        let _ = LAST.try_with(|last| last.replace(Some(self)));
    }
}

thread_local! {
    static LAST: RefCell<Option<Missing>> = const { RefCell::new(None) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_last_missing(missing: *mut toroni_missing) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers and a null pointer.
    catch_panics(|| unsafe {
        put(missing, "the pointer to the missing value", || {
            let last = LAST.try_with(|last| {
                last.borrow().as_ref().map(|last| toroni_missing {
                    topic: last.topic.as_ptr(),
                    sequence: last.sequence,
                    length: last.length,
                })
            });
            let none = toroni_missing { topic: null(), sequence: 0, length: 0 };
            Ok(last.ok().flatten().unwrap_or(none))
        })
    })
}

const NOTHING: toroni_value = toroni_value {
    topic: null(),
    payload: null(),
    payload_length: 0,
    sequence: 0,
    position: 0,
    timestamp_ns: 0,
    number: 0,
    origin: toroni_origin { number: 0, source: 0, series: 0, stream: 0, reserved: [0; 3] },
    flags: 0,
    status: Status::Ok as c_int,
    problem: null(),
    missing_length: 0,
};

impl toroni_value {
    fn new(message: &RetainedMessage, strings: &mut Strings) -> Self {
        let Carried { flags, timestamp_ns, number, origin } = carried(
            message.to_descendants(),
            message.timestamp(),
            message.origin(),
            message.number(),
        );
        Self {
            topic: strings.keep(message.topic()),
            payload: message.payload().as_ptr().cast(),
            payload_length: message.payload().len(),
            sequence: message.sequence(),
            position: message.position(),
            timestamp_ns,
            number,
            origin,
            flags,
            ..NOTHING
        }
    }

    fn unread(error: RetainedError, strings: &mut Strings) -> Self {
        let (topic, sequence, length) = match &error {
            RetainedError::Missing { topic, sequence, length } => (&**topic, *sequence, *length),
            RetainedError::Unstable { topic } => (&**topic, 0, 0),
            _ => ("", 0, 0),
        };
        let topic = strings.keep(topic);
        let Failure { status, text, .. } = error.into();
        let (status, problem) = (status as c_int, strings.keep(text.unwrap_or_default()));
        Self { topic, sequence, missing_length: length, status, problem, ..NOTHING }
    }
}

impl From<Vec<Result<RetainedMessage, RetainedError>>> for toroni_values {
    fn from(read: Vec<Result<RetainedMessage, RetainedError>>) -> Self {
        let (mut values, mut messages, mut strings) = (Vec::new(), Vec::new(), Strings::default());
        for one in read {
            match one {
                Ok(message) => {
                    values.push(toroni_value::new(&message, &mut strings));
                    // Its bytes do not move with it.
                    messages.push(message);
                }
                Err(error) => values.push(toroni_value::unread(error, &mut strings)),
            }
        }
        Self { values, _messages: messages, _strings: strings }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_retained(
    bus: *const toroni_bus,
    topic: *const c_char,
    result: *mut *mut toroni_values,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let value = self::bus(bus)?.bus.retained(string(topic, "the topic")?)?;
            let value = value.ok_or(Failure::plain(Status::NoMessage))?;
            Ok(vec![Ok(value)].into())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_retained_matching(
    bus: *const toroni_bus,
    pattern: *const c_char,
    result: *mut *mut toroni_values,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let pattern = string(pattern, "the pattern")?;
            Ok(self::bus(bus)?.bus.retained_matching(pattern)?.into())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_values_close(values: *mut toroni_values) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(values) }
}

/// # Safety
/// As [`handle`].
unsafe fn values<'a>(pointer: *const toroni_values) -> Outcome<&'a [toroni_value]> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the values") }.map(|values| &values.values[..])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_values_count(values: *const toroni_values) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::values(values) }?.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_values_at(
    values: *const toroni_values,
    index: usize,
) -> *const toroni_value {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(null(), || one(unsafe { self::values(values) }?, index))
}
