//! Exclusive publishers.

use crate::arguments::{
    close, handle, limit, payload, put_count, put_handle, put_optional, string, timeout,
};
use crate::bus::{bus, toroni_bus};
use crate::publisher::{
    fill_in_place, payloads, toroni_bytes, toroni_fill, toroni_publisher_options, with_options,
};
use crate::status::{Outcome, catch_panics, catch_panics_or};
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use toroni::{Exclusive, ExclusiveTopic};

pub struct toroni_exclusive(
    /// Counted, because a call may outlive the handle: see [`toroni_exclusive_publish_in_place`].
    Rc<Exclusive>,
);

pub struct toroni_exclusive_topic(
    /// Counted for the same reason.
    Rc<ExclusiveTopic>,
);

/// # Safety
/// As [`handle`].
#[inline]
unsafe fn exclusive<'a>(pointer: *const toroni_exclusive) -> Outcome<&'a Rc<Exclusive>> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the exclusive publisher") }.map(|exclusive| &exclusive.0)
}

/// # Safety
/// As [`handle`].
#[inline]
unsafe fn topic<'a>(pointer: *const toroni_exclusive_topic) -> Outcome<&'a Rc<ExclusiveTopic>> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the topic") }.map(|topic| &topic.0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_open(
    bus: *const toroni_bus,
    timeout_ns: u64,
    result: *mut *mut toroni_exclusive,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let bus = &self::bus(bus)?.bus;
            let exclusive = match timeout(timeout_ns) {
                None => bus.exclusive(),
                Some(timeout) if timeout.is_zero() => bus.try_exclusive(),
                Some(timeout) => bus.exclusive_timeout(timeout),
            }?;
            Ok(toroni_exclusive(Rc::new(exclusive)))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_close(exclusive: *mut toroni_exclusive) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(exclusive) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_set_always_fenced(
    exclusive: *const toroni_exclusive,
    always: c_int,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        self::exclusive(exclusive)?.set_always_fenced(always != 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_open_topic(
    exclusive: *const toroni_exclusive,
    topic: *const c_char,
    options: *const toroni_publisher_options,
    result: *mut *mut toroni_exclusive_topic,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let name = string(topic, "the topic")?;
            let exclusive = self::exclusive(exclusive)?;
            let topic = exclusive.topic(name)?;
            let topic = with_options(topic, options, |topic| exclusive.retained(topic))?;
            Ok(toroni_exclusive_topic(Rc::new(topic)))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_topic_close(topic: *mut toroni_exclusive_topic) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(topic) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_topic_largest_message(
    topic: *const toroni_exclusive_topic,
) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::topic(topic) }?.largest_message()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_clear(
    exclusive: *const toroni_exclusive,
    topic: *const toroni_exclusive_topic,
    timeout_ns: u64,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(sequence, || {
            let (exclusive, topic) = (self::exclusive(exclusive)?, self::topic(topic)?);
            Ok(exclusive.clear(topic, limit(timeout_ns))?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_publish(
    exclusive: *const toroni_exclusive,
    topic: *const toroni_exclusive_topic,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(sequence, || {
            let (exclusive, topic) = (self::exclusive(exclusive)?, self::topic(topic)?);
            Ok(exclusive.publish(topic, payload(data, length)?, limit(timeout_ns))?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_publish_batch(
    exclusive: *const toroni_exclusive,
    topic: *const toroni_exclusive_topic,
    payloads: *const toroni_bytes,
    count: usize,
    timeout_ns: u64,
    first: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(first, || {
            let (exclusive, topic) = (self::exclusive(exclusive)?, self::topic(topic)?);
            let payloads = self::payloads(payloads, count)?;
            Ok(exclusive.publish_batch(topic, payloads, limit(timeout_ns))?.start)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_publish_burst(
    exclusive: *const toroni_exclusive,
    topic: *const toroni_exclusive_topic,
    payloads: *const toroni_bytes,
    count: usize,
    timeout_ns: u64,
    published: *mut usize,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_count(published, 0);
        let (exclusive, topic) = (self::exclusive(exclusive)?, self::topic(topic)?);
        let payloads = self::payloads(payloads, count)?;
        let outcome = exclusive.burst(topic, payloads, limit(timeout_ns));
        let done = outcome.as_ref().err().map_or(count, |error| error.published);
        put_count(published, done);
        Ok(outcome?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_exclusive_publish_in_place(
    exclusive: *const toroni_exclusive,
    topic: *const toroni_exclusive_topic,
    length: usize,
    timeout_ns: u64,
    fill: toroni_fill,
    context: *mut c_void,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(sequence, || {
            // References of its own, because `fill` may close the handles.
            let exclusive = self::exclusive(exclusive)?.clone();
            let topic = self::topic(topic)?.clone();
            fill_in_place(fill, length, context, |fill| {
                exclusive.publish_with(&topic, length, limit(timeout_ns), fill)
            })
        })
    })
}
