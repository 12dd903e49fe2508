//! The C interface of `toroni_net::endpoint`, which `include/toroni_net.h` declares and documents.
//!
//! A handle is a `Box` whose pointer C holds. toroni_net.h requires of callers: a pointer is null, or what the parameter's type
//! says; a handle was not closed, and one thread at a time uses it.

#![expect(clippy::missing_safety_doc, reason = "toroni_net.h says what is required of callers")]
#![expect(missing_docs, reason = "toroni_net.h documents everything that is public here")]
#![expect(non_camel_case_types, reason = "these are the names in C")]

mod status;

pub use status::*;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;
use toroni_net::direct::Received;
use toroni_net::endpoint::{Endpoint, EndpointError};
use toroni_proto::arrivals::Flow;
use toroni_proto::reassembly::Loss;
use toroni_proto::wire::Bound;

pub struct toroni_net_direct {
    endpoint: Endpoint,
    lost: toroni_net_lost,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct toroni_net_flow {
    pub source: u32,
    pub session: u32,
    pub series: u32,
    pub stream: u16,
    pub reserved: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_net_message {
    pub payload: *const c_void,
    pub payload_length: usize,
    pub topic: *const c_char,
    pub topic_length: usize,
    pub number: u64,
    pub timestamp_ns: u64,
    pub flow: toroni_net_flow,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct toroni_net_lost {
    pub messages: u64,
    pub from: u64,
    pub until: u64,
    pub flow: toroni_net_flow,
    pub bound: c_int,
    pub reason: c_int,
}

const FOREVER: u64 = u64::MAX;
const TO_DESCENDANTS: u32 = 1;
const HAS_TIMESTAMP: u32 = 2;

impl From<Flow> for toroni_net_flow {
    fn from(flow: Flow) -> Self {
        let Flow { source, session, stream, series } = flow;
        Self {
            source: source.0,
            session: session.0,
            series: series.0,
            stream: stream.0,
            reserved: 0,
        }
    }
}

impl toroni_net_lost {
    fn of(flow: Flow, loss: Loss) -> Self {
        Self {
            messages: loss.count,
            from: loss.after.map_or(0, |after| after.get() + 1),
            until: loss.until.map_or(u64::MAX, |until| until.get()),
            flow: flow.into(),
            bound: match loss.bound {
                Bound::Exact => 0,
                Bound::AtLeast => 1,
                Bound::AtMost => 2,
            },
            reason: loss.reason as c_int,
        }
    }
}

impl toroni_net_message {
    const NONE: Self = Self {
        payload: std::ptr::null(),
        payload_length: 0,
        topic: std::ptr::null(),
        topic_length: 0,
        number: 0,
        timestamp_ns: 0,
        flow: toroni_net_flow { source: 0, session: 0, series: 0, stream: 0, reserved: 0 },
        flags: 0,
        reserved: 0,
    };
}

fn null(what: &str) -> Refusal {
    Refusal::new(NetStatus::InvalidArgument, format!("{what} is null"))
}

/// # Safety
/// `pointer` is null, or points to bytes that end with 0 and do not change for 'a.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Refusal> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map_err(|error| Refusal::new(NetStatus::InvalidArgument, format!("{what}: {error}")))
}

/// # Safety
/// `pointer` is null or a handle that nothing else uses for 'a.
unsafe fn handle<'a>(
    pointer: *mut toroni_net_direct,
) -> Result<&'a mut toroni_net_direct, Refusal> {
    // SAFETY: the caller guarantees it.
    unsafe { pointer.as_mut() }.ok_or_else(|| null("the handle"))
}

/// Clears a result, and returns the place for it.
///
/// # Safety
/// `pointer` is null or writable for 'a.
unsafe fn cleared<'a, T>(pointer: *mut T, none: T) -> Result<&'a mut T, Refusal> {
    if pointer.is_null() {
        return Err(null("the pointer to the result"));
    }
    // SAFETY: not null, so the caller guarantees that it is writable; what it holds is not read or dropped.
    unsafe { pointer.write(none) };
    // SAFETY: it has just been written.
    Ok(unsafe { &mut *pointer })
}

fn limit(ns: u64) -> Option<Duration> {
    (ns != FOREVER).then(|| Duration::from_nanos(ns))
}

/// # Safety
/// `result` is null or writable.
unsafe fn open(
    result: *mut *mut toroni_net_direct,
    make: impl FnOnce() -> Result<Result<Endpoint, EndpointError>, Refusal>,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller guarantees it.
        let result = unsafe { cleared(result, std::ptr::null_mut()) }?;
        let endpoint = make()??;
        let lost = toroni_net_lost::default();
        *result = Box::into_raw(Box::new(toroni_net_direct { endpoint, lost }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_open(
    configuration: *const c_char,
    result: *mut *mut toroni_net_direct,
) -> c_int {
    // SAFETY: toroni_net.h requires it of callers.
    let make = || unsafe { text(configuration, "the configuration") };
    // SAFETY: as above.
    unsafe { open(result, || Ok(Endpoint::open(make()?, Path::new("")))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_open_file(
    path: *const c_char,
    result: *mut *mut toroni_net_direct,
) -> c_int {
    // SAFETY: toroni_net.h requires it of callers.
    let make = || unsafe { text(path, "the path") };
    // SAFETY: as above.
    unsafe { open(result, || Ok(Endpoint::open_file(Path::new(make()?)))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_close(direct: *mut toroni_net_direct) {
    guarded(|| {
        if !direct.is_null() {
            // SAFETY: made by `open`; nothing else uses it.
            drop(unsafe { Box::from_raw(direct) });
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_send(
    direct: *mut toroni_net_direct,
    topic: *const c_char,
    payload: *const c_void,
    length: usize,
    timeout_ns: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: toroni_net.h requires it of callers.
        let (direct, topic) = unsafe { (handle(direct)?, text(topic, "the topic")?) };
        let payload = match length {
            0 => &[],
            _ if payload.is_null() => return Err(null("the payload")),
            _ if length > isize::MAX.unsigned_abs() => {
                let text = format!("a payload cannot have {length} bytes");
                return Err(Refusal::new(NetStatus::InvalidArgument, text));
            }
            // SAFETY: not null, not larger than memory; the caller guarantees the rest.
            _ => unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), length) },
        };
        Ok(direct.endpoint.send(topic, payload, limit(timeout_ns))?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_receive(
    direct: *mut toroni_net_direct,
    message: *mut toroni_net_message,
    timeout_ns: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: toroni_net.h requires it of callers.
        let message = unsafe { cleared(message, toroni_net_message::NONE) }?;
        // SAFETY: as above.
        let direct = unsafe { handle(direct) }?;
        match direct.endpoint.receive(limit(timeout_ns))? {
            None => Err(Refusal::new(NetStatus::NoMessage, "")),
            Some(Received::Lost { flow, loss }) => {
                direct.lost = toroni_net_lost::of(flow, loss);
                let text = format!("{} messages were lost: {:?}", loss.count, loss.reason);
                Err(Refusal::new(NetStatus::Lost, text))
            }
            Some(Received::Message { flow, number, topic, to_descendants, published, payload }) => {
                let descendants = if to_descendants { TO_DESCENDANTS } else { 0 };
                *message = toroni_net_message {
                    payload: payload.as_ptr().cast(),
                    payload_length: payload.len(),
                    topic: topic.as_ptr().cast(),
                    topic_length: topic.len(),
                    number: number.get(),
                    timestamp_ns: published.map_or(0, |time| time.ns()),
                    flow: flow.into(),
                    flags: descendants | published.map_or(0, |_| HAS_TIMESTAMP),
                    reserved: 0,
                };
                Ok(())
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_last_lost(
    direct: *const toroni_net_direct,
    lost: *mut toroni_net_lost,
) -> c_int {
    guarded(|| {
        // SAFETY: toroni_net.h requires it of callers.
        let lost = unsafe { cleared(lost, toroni_net_lost::default()) }?;
        // SAFETY: as above.
        *lost = unsafe { direct.as_ref() }.ok_or_else(|| null("the handle"))?.lost;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_turn(direct: *mut toroni_net_direct) -> c_int {
    // SAFETY: toroni_net.h requires it of callers.
    guarded(|| Ok(unsafe { handle(direct) }?.endpoint.turn()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_fd(direct: *const toroni_net_direct, fd: *mut c_int) -> c_int {
    guarded(|| {
        // SAFETY: toroni_net.h requires it of callers.
        let fd = unsafe { cleared(fd, -1) }?;
        // SAFETY: as above.
        let direct = unsafe { direct.as_ref() }.ok_or_else(|| null("the handle"))?;
        *fd = direct.endpoint.as_fd().as_raw_fd();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_streams(direct: *const toroni_net_direct) -> usize {
    let mut streams = 0;
    guarded(|| {
        // SAFETY: toroni_net.h requires it of callers.
        streams = unsafe { direct.as_ref() }.map_or(0, |direct| direct.endpoint.streams());
        Ok(())
    });
    streams
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_net_end(direct: *mut toroni_net_direct, linger_ns: u64) -> c_int {
    guarded(|| {
        // SAFETY: toroni_net.h requires it of callers.
        let direct = unsafe { handle(direct) }?;
        // No receiver asks after `generation`, so the wait ends.
        const LONGEST: Duration = Duration::from_secs(3_600);
        direct.endpoint.end(limit(linger_ns).unwrap_or(LONGEST))?;
        Ok(())
    })
}
