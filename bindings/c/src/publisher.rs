//! Publishers.

use crate::arguments::{
    self, Options, close, handle, limit, null, payload, put_count, put_handle, put_optional, slice,
    string,
};
use crate::bus::{bus, toroni_bus};
use crate::options::{policy, toroni_policy};
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use toroni::{
    ExclusiveTopic, InvalidSetting, Policy, PublishError, Publisher, RacyBytesMut, RetainError,
};

pub struct toroni_publisher {
    /// Counted, because a call may outlive the handle: see [`toroni_publish_in_place`].
    publisher: Arc<Publisher>,
    topic: CString,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_publisher_options {
    pub struct_size: usize,
    pub policy: toroni_policy,
    pub to_descendants: c_int,
    pub retained: c_int,
}

// SAFETY: all fields are numbers; a test checks the layout.
unsafe impl Options for toroni_publisher_options {
    const INIT: &'static str = "TORONI_PUBLISHER_OPTIONS_INIT";
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_bytes {
    pub data: *const c_void,
    pub length: usize,
}

pub type toroni_fill =
    Option<unsafe extern "C" fn(data: *mut c_void, length: usize, context: *mut c_void) -> c_int>;

/// A payload that [`payloads`] has checked.
#[repr(transparent)]
pub(crate) struct Payload(toroni_bytes);

impl AsRef<[u8]> for Payload {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        if self.0.length == 0 {
            return &[];
        }
        // SAFETY: `payloads` has checked it; its caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.0.data.cast(), self.0.length) }
    }
}

/// # Safety
/// As [`slice`], for the array and for the bytes of each payload.
pub(crate) unsafe fn payloads<'a>(
    pointer: *const toroni_bytes,
    count: usize,
) -> Outcome<&'a [Payload]> {
    // SAFETY: the caller guarantees it.
    let all = unsafe { slice(pointer, count, "the payloads") }?;
    for one in all {
        // SAFETY: as above.
        unsafe { payload(one.data, one.length) }?;
    }
    // SAFETY: as above; `Payload` is transparent.
    unsafe { slice(pointer.cast(), count, "the payloads") }
}

/// A handle that can wait less than the policy of the bus says.
pub(crate) trait WithPolicy: Sized {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting>;
}

/// What messages are published on: a publisher, or a topic of an exclusive one.
pub(crate) trait Adjustable: WithPolicy {
    fn to_descendants(self, to_descendants: bool) -> Self;
}

impl WithPolicy for Publisher {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting> {
        self.with_policy(policy)
    }
}

impl Adjustable for Publisher {
    fn to_descendants(self, to_descendants: bool) -> Self {
        self.to_descendants(to_descendants)
    }
}

impl WithPolicy for ExclusiveTopic {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting> {
        self.with_policy(policy)
    }
}

impl Adjustable for ExclusiveTopic {
    fn to_descendants(self, to_descendants: bool) -> Self {
        self.to_descendants(to_descendants)
    }
}

/// Applies a caller's options, which may be NULL. Calls `retain` to declare the topic.
///
/// # Safety
/// As [`arguments::options`].
pub(crate) unsafe fn with_options<P: Adjustable>(
    publisher: P,
    options: *const toroni_publisher_options,
    retain: impl FnOnce(P) -> Result<P, RetainError>,
) -> Outcome<P> {
    if options.is_null() {
        return Ok(publisher);
    }
    // SAFETY: the caller guarantees it.
    let options = unsafe { arguments::options(options) }?;
    let publisher =
        with_policy(publisher.to_descendants(options.to_descendants != 0), &options.policy)?;
    Ok(if options.retained != 0 { retain(publisher)? } else { publisher })
}

/// Applies a caller's policy.
pub(crate) fn with_policy<P: WithPolicy>(handle: P, policy: &toroni_policy) -> Outcome<P> {
    match self::policy(policy)? {
        None => Ok(handle),
        Some(policy) => handle
            .with_policy(policy)
            .map_err(|error| Failure::with_text_of(Status::InvalidSetting, &error)),
    }
}

/// # Safety
/// As [`handle`].
#[inline]
unsafe fn publisher<'a>(pointer: *const toroni_publisher) -> Outcome<&'a toroni_publisher> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the publisher") }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_publisher(
    bus: *const toroni_bus,
    topic: *const c_char,
    options: *const toroni_publisher_options,
    result: *mut *mut toroni_publisher,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let topic = string(topic, "the topic")?;
            let publisher = self::bus(bus)?.bus.publisher(topic)?;
            let publisher = with_options(publisher, options, Publisher::retained)?;
            let topic = CString::new(topic).map_err(|_| Failure::argument("the topic"))?;
            Ok(toroni_publisher { publisher: Arc::new(publisher), topic })
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_close(publisher: *mut toroni_publisher) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(publisher) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_topic(
    publisher: *const toroni_publisher,
) -> *const c_char {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || Ok(unsafe { self::publisher(publisher) }?.topic.as_ptr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_largest_message(
    publisher: *const toroni_publisher,
) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::publisher(publisher) }?.publisher.largest_message()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_clear(
    publisher: *const toroni_publisher,
    timeout_ns: u64,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(sequence, || {
            Ok(self::publisher(publisher)?.publisher.clear(limit(timeout_ns))?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish(
    publisher: *const toroni_publisher,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        self::publisher(publisher)?.publisher.publish(payload(data, length)?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_within(
    publisher: *const toroni_publisher,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(sequence, || {
            let publisher = &self::publisher(publisher)?.publisher;
            Ok(publisher.publish_within(payload(data, length)?, limit(timeout_ns))?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_batch(
    publisher: *const toroni_publisher,
    payloads: *const toroni_bytes,
    count: usize,
    timeout_ns: u64,
    first: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(first, || {
            let publisher = &self::publisher(publisher)?.publisher;
            let payloads = self::payloads(payloads, count)?;
            Ok(publisher.publish_batch(payloads, limit(timeout_ns))?.start)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_burst(
    publisher: *const toroni_publisher,
    payloads: *const toroni_bytes,
    count: usize,
    timeout_ns: u64,
    published: *mut usize,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_count(published, 0);
        let publisher = &self::publisher(publisher)?.publisher;
        let payloads = self::payloads(payloads, count)?;
        let outcome = publisher.burst(payloads, limit(timeout_ns));
        let done = outcome.as_ref().err().map_or(count, |error| error.published);
        put_count(published, done);
        Ok(outcome?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_in_place(
    publisher: *const toroni_publisher,
    length: usize,
    timeout_ns: u64,
    fill: toroni_fill,
    context: *mut c_void,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are a valid number.
    catch_panics(|| unsafe {
        put_optional(sequence, || {
            // Its own reference, because `fill` may close the handle.
            let publisher = self::publisher(publisher)?.publisher.clone();
            fill_in_place(fill, length, context, |fill| {
                publisher.publish_with(length, limit(timeout_ns), fill)
            })
        })
    })
}

/// Calls `publish` with a function that lets the caller's `fill` write the message, or give it up. Returns the sequence.
///
/// # Safety
/// `fill` and `context` are what toroni.h requires. `publish` passes a view of `length` bytes.
pub(crate) unsafe fn fill_in_place(
    fill: toroni_fill,
    length: usize,
    context: *mut c_void,
    publish: impl FnOnce(&mut dyn FnMut(&mut RacyBytesMut<'_>)) -> Result<(u64, ()), PublishError>,
) -> Outcome<u64> {
    let fill = fill.ok_or_else(|| null("the fill function"))?;
    let mut fill = |bytes: &mut RacyBytesMut<'_>| {
        // SAFETY: the bytes are valid as long as the view; the caller guarantees the rest.
        let answer = unsafe { fill(bytes.as_mut_ptr().cast(), length, context) };
        if answer != 0 {
            // This does not run the panic hook, because it is not a panic.
            resume_unwind(Box::new(Abort));
        }
    };
    // The library gives a message up only if its closure unwinds.
    match catch_unwind(AssertUnwindSafe(|| publish(&mut fill))) {
        Ok(published) => Ok(published?.0),
        Err(unwound) if unwound.is::<Abort>() => Err(Failure::plain(Status::Aborted)),
        Err(panic) => resume_unwind(panic),
    }
}

/// The unwinding payload for a message that `fill` gave up.
struct Abort;
