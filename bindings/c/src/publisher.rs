//! Publishing on a topic.

use crate::arguments::{
    self, FOREVER, Options, close, handle, null, payload, put, put_handle, slice, string, timeout,
};
use crate::bus::{bus, toroni_bus};
use crate::options::{policy, toroni_policy, unknown};
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use toroni::Publisher;

/// `toroni_publisher` of the header.
pub struct toroni_publisher {
    /// Counted: a call may outlive the handle.
    publisher: Arc<Publisher>,
    topic: CString,
}

/// `toroni_publisher_options` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_publisher_options {
    /// `sizeof(toroni_publisher_options)` of the caller: see `Options`.
    pub struct_size: usize,
    /// A shorter policy than the bus's, or the default.
    pub policy: toroni_policy,
    /// Not 0: post to everything below the topic, too.
    pub to_descendants: c_int,
    /// 0.
    pub reserved: u32,
}

// SAFETY: it is numbers, as the test of layouts says.
unsafe impl Options for toroni_publisher_options {
    const INIT: &'static str = "TORONI_PUBLISHER_OPTIONS_INIT";
}

/// `toroni_bytes` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_bytes {
    /// The first.
    pub data: *const c_void,
    /// How many.
    pub length: usize,
}

/// `toroni_fill` of the header.
pub type toroni_fill =
    Option<unsafe extern "C" fn(data: *mut c_void, length: usize, context: *mut c_void) -> c_int>;

/// One payload of many, which was checked.
#[repr(transparent)]
struct Payload(toroni_bytes);

impl AsRef<[u8]> for Payload {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        if self.0.length == 0 {
            return &[];
        }
        // SAFETY: `payloads` looked at it, and its caller promised the rest.
        unsafe { std::slice::from_raw_parts(self.0.data.cast(), self.0.length) }
    }
}

/// # Safety
/// As [`slice`], of as many payloads, each with as many bytes as it says.
unsafe fn payloads<'a>(pointer: *const toroni_bytes, count: usize) -> Outcome<&'a [Payload]> {
    // SAFETY: the caller's promise.
    let all = unsafe { slice(pointer, count, "the payloads") }?;
    for one in all {
        // SAFETY: as above.
        unsafe { payload(one.data, one.length) }?;
    }
    // SAFETY: `Payload` is transparent.
    unsafe { slice(pointer.cast(), count, "the payloads") }
}

/// # Safety
/// As [`handle`].
#[inline]
unsafe fn publisher<'a>(pointer: *const toroni_publisher) -> Outcome<&'a toroni_publisher> {
    // SAFETY: the caller's promise.
    unsafe { handle(pointer, "the publisher") }
}

/// Makes a publisher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_publisher(
    bus: *const toroni_bus,
    topic: *const c_char,
    options: *const toroni_publisher_options,
    result: *mut *mut toroni_publisher,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let topic = string(topic, "the topic")?;
            let mut publisher = self::bus(bus)?.bus.publisher(topic)?;
            if !options.is_null() {
                let options = arguments::options(options)?;
                if options.reserved != 0 {
                    return Err(unknown("reserved", options.reserved));
                }
                publisher = publisher.to_descendants(options.to_descendants != 0);
                if let Some(policy) = policy(&options.policy)? {
                    publisher = publisher.with_policy(policy).map_err(|error| Failure {
                        status: Status::InvalidSetting,
                        text: Some(error.to_string()),
                    })?;
                }
            }
            let topic = CString::new(topic).map_err(|_| Failure::argument("the topic"))?;
            Ok(toroni_publisher { publisher: Arc::new(publisher), topic })
        })
    })
}

/// Closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_close(publisher: *mut toroni_publisher) {
    // SAFETY: what callers owe.
    unsafe { close(publisher) }
}

/// Its topic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_topic(
    publisher: *const toroni_publisher,
) -> *const c_char {
    // SAFETY: what callers owe.
    catch_panics_or(std::ptr::null(), || Ok(unsafe { self::publisher(publisher) }?.topic.as_ptr()))
}

/// The most bytes that a message of it may have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publisher_largest_message(
    publisher: *const toroni_publisher,
) -> u64 {
    // SAFETY: what callers owe.
    catch_panics_or(0, || Ok(unsafe { self::publisher(publisher) }?.publisher.largest_message()))
}

/// Publishes a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish(
    publisher: *const toroni_publisher,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        Ok(self::publisher(publisher)?.publisher.publish(payload(data, length)?)?)
    })
}

/// Publishes a message if that needs no wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_try_publish(
    publisher: *const toroni_publisher,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        Ok(self::publisher(publisher)?.publisher.try_publish(payload(data, length)?)?)
    })
}

/// Publishes a message, with a limit to the wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_timeout(
    publisher: *const toroni_publisher,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        let publisher = &self::publisher(publisher)?.publisher;
        let payload = payload(data, length)?;
        Ok(match timeout(timeout_ns) {
            None => publisher.publish(payload),
            Some(timeout) => publisher.publish_timeout(payload, timeout),
        }?)
    })
}

/// Publishes a message to the topic and all below it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_to_descendants(
    publisher: *const toroni_publisher,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        Ok(self::publisher(publisher)?.publisher.publish_to_descendants(payload(data, length)?)?)
    })
}

/// Publishes messages that become visible together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_batch(
    publisher: *const toroni_publisher,
    payloads: *const toroni_bytes,
    count: usize,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        let publisher = &self::publisher(publisher)?.publisher;
        Ok(publisher.publish_batch(self::payloads(payloads, count)?)?)
    })
}

/// Publishes messages that become visible together, with a limit to the wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_batch_timeout(
    publisher: *const toroni_publisher,
    payloads: *const toroni_bytes,
    count: usize,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        let publisher = &self::publisher(publisher)?.publisher;
        let payloads = self::payloads(payloads, count)?;
        Ok(match timeout(timeout_ns) {
            None => publisher.publish_batch(payloads),
            Some(timeout) => publisher.publish_batch_timeout(payloads, timeout),
        }?)
    })
}

/// Publishes messages one by one with one lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_burst(
    publisher: *const toroni_publisher,
    payloads: *const toroni_bytes,
    count: usize,
    published: *mut usize,
) -> c_int {
    // SAFETY: what callers owe.
    unsafe { toroni_publish_burst_timeout(publisher, payloads, count, FOREVER, published) }
}

/// Publishes messages one by one with one lock, with a limit to the wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_burst_timeout(
    publisher: *const toroni_publisher,
    payloads: *const toroni_bytes,
    count: usize,
    timeout_ns: u64,
    published: *mut usize,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe {
        if !published.is_null() {
            published.write(0);
        }
        let publisher = &self::publisher(publisher)?.publisher;
        let payloads = self::payloads(payloads, count)?;
        let outcome = match timeout(timeout_ns) {
            None => publisher.burst(payloads),
            Some(timeout) => publisher.burst_timeout(payloads, timeout),
        };
        let done = outcome.as_ref().err().map_or(count, |error| error.published);
        if !published.is_null() {
            put(published, "published", done)?;
        }
        Ok(outcome?)
    })
}

/// Publishes a message that a function writes where it will be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_publish_in_place(
    publisher: *const toroni_publisher,
    length: usize,
    fill: toroni_fill,
    context: *mut c_void,
) -> c_int {
    catch_panics(|| {
        // A count of its own: `fill` may close the handle.
        // SAFETY: what callers owe.
        let publisher = unsafe { self::publisher(publisher) }?.publisher.clone();
        let fill = fill.ok_or_else(|| null("the function that fills"))?;
        // The library takes a message back if its closure unwinds; nothing else of it does.
        let published = catch_unwind(AssertUnwindSafe(|| {
            publisher.publish_with(length, |bytes| {
                // SAFETY: the bytes are there as long as the view; the rest is what callers owe.
                let answer = unsafe { fill(bytes.as_mut_ptr().cast(), length, context) };
                if answer != 0 {
                    // Without the hook that reports a panic: this is none.
                    resume_unwind(Box::new(Abort));
                }
            })
        }));
        match published {
            Ok(published) => Ok(published?),
            Err(unwound) if unwound.is::<Abort>() => Err(Failure::plain(Status::Aborted)),
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// Says that `fill` gave the message up.
struct Abort;
