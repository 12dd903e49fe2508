//! Inlets, and what they publish: entries and losses.

use crate::arguments::{
    self, Options, close, handle, limit, null, payload, put, put_count, put_handle, slice, string,
};
use crate::bus::{bus, toroni_bus};
use crate::lists::Strings;
use crate::message::toroni_origin;
use crate::options::{toroni_policy, unknown};
use crate::publisher::{WithPolicy, toroni_bytes, with_policy};
use crate::status::{Failure, Outcome, Status, catch_panics, catch_panics_or};
use std::ffi::{c_char, c_int};
use toroni::{
    Entry, Inlet, InletTopic, InvalidSetting, Lost, LostBound, LostReason, Pattern, Policy,
    StreamKey,
};

pub struct toroni_inlet(Inlet);

impl WithPolicy for Inlet {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting> {
        self.with_policy(policy)
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_inlet_options {
    pub struct_size: usize,
    pub policy: toroni_policy,
}

// SAFETY: all fields are numbers; a test checks the layout.
unsafe impl Options for toroni_inlet_options {
    const INIT: &'static str = "TORONI_INLET_OPTIONS_INIT";
}

pub struct toroni_inlet_topic(InletTopic);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_inlet_entry {
    pub topic: *const toroni_inlet_topic,
    pub parts: *const toroni_bytes,
    pub part_count: usize,
    pub origin: toroni_origin,
    pub open_from: u64,
    pub number: u64,
    pub timestamp_ns: u64,
    pub flags: u32,
    pub reserved: u32,
}

const TO_DESCENDANTS: u32 = 1;
const HAS_TIMESTAMP: u32 = 2;
const HAS_ORIGIN: u32 = 4;
const HAS_NUMBER: u32 = 8;
const HAS_OPEN_FROM: u32 = 16;
const ALL_FLAGS: u32 = 31;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_lost {
    pub from: toroni_origin,
    pub until: u64,
    pub messages: u64,
    pub bound: c_int,
    pub reason: c_int,
    pub scope: *const *const c_char,
    pub scope_count: usize,
}

impl Default for toroni_lost {
    fn default() -> Self {
        Self {
            from: toroni_origin::default(),
            until: 0,
            messages: 0,
            bound: 0,
            reason: 0,
            scope: std::ptr::null(),
            scope_count: 0,
        }
    }
}

/// A loss that a subscriber was told of, and what its pointers point to.
pub(crate) struct Told {
    pub(crate) lost: toroni_lost,
    _scope: Vec<*const c_char>,
    _patterns: Strings,
}

impl From<&Lost> for Told {
    fn from(told: &Lost) -> Self {
        let mut patterns = Strings::default();
        let scope: Vec<_> = told.scope.iter().map(|one| patterns.keep(one.as_str())).collect();
        let lost = toroni_lost {
            from: told.from.into(),
            until: told.until,
            messages: told.messages,
            bound: told.bound as c_int,
            reason: told.reason as c_int,
            scope: scope.as_ptr(),
            scope_count: scope.len(),
        };
        Self { lost, _scope: scope, _patterns: patterns }
    }
}

#[repr(C)]
pub struct toroni_arrived {
    pub next: u64,
    pub taken_over: c_int,
    pub reserved: u32,
}

/// # Safety
/// As [`handle`].
unsafe fn inlet<'a>(pointer: *const toroni_inlet) -> Outcome<&'a Inlet> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the inlet") }.map(|inlet| &inlet.0)
}

/// # Safety
/// As [`handle`].
unsafe fn topic<'a>(pointer: *const toroni_inlet_topic) -> Outcome<&'a InletTopic> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the topic") }.map(|topic| &topic.0)
}

impl toroni_inlet_entry {
    /// # Safety
    /// `topic` is what toroni.h requires.
    unsafe fn with<'a>(&self, parts: &'a [&'a [u8]]) -> Outcome<Entry<'a>> {
        if self.flags & !ALL_FLAGS != 0 {
            return Err(unknown("flags", self.flags));
        }
        if self.reserved != 0 {
            return Err(unknown("reserved", self.reserved));
        }
        let has = |flag| self.flags & flag != 0;
        // SAFETY: the caller guarantees it.
        let topic = unsafe { topic(self.topic) }?;
        Ok(Entry {
            to_descendants: has(TO_DESCENDANTS),
            published_ns: has(HAS_TIMESTAMP).then_some(self.timestamp_ns),
            origin: has(HAS_ORIGIN).then(|| self.origin.checked()).transpose()?,
            open_from: has(HAS_OPEN_FROM).then_some(self.open_from),
            number: has(HAS_NUMBER).then_some(self.number),
            ..Entry::new(topic, parts)
        })
    }
}

/// # Safety
/// `pointer` is null, or points to what toroni.h requires.
unsafe fn lost(pointer: *const toroni_lost) -> Outcome<Lost> {
    // SAFETY: the caller guarantees it.
    let given = unsafe { pointer.as_ref() }.ok_or_else(|| null("the loss"))?;
    let bound = LostBound::ALL.iter().find(|bound| **bound as c_int == given.bound);
    let reason = LostReason::ALL.iter().find(|reason| **reason as c_int == given.reason);
    let mut scope = Vec::new();
    // SAFETY: as above.
    for pattern in unsafe { slice(given.scope, given.scope_count, "the scope") }? {
        // SAFETY: as above.
        let pattern = unsafe { string(*pattern, "a pattern of the scope") }?;
        let pattern = Pattern::new(pattern)
            .map_err(|error| Failure::with_text_of(Status::InvalidPattern, &error))?;
        scope.push(pattern);
    }
    Ok(Lost {
        from: given.from.checked()?,
        until: given.until,
        messages: given.messages,
        bound: *bound.ok_or_else(|| unknown("bound", given.bound))?,
        reason: *reason.ok_or_else(|| unknown("reason", given.reason))?,
        scope,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_open(
    bus: *const toroni_bus,
    options: *const toroni_inlet_options,
    result: *mut *mut toroni_inlet,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let inlet = self::bus(bus)?.bus.inlet()?;
            if options.is_null() {
                return Ok(toroni_inlet(inlet));
            }
            Ok(toroni_inlet(with_policy(inlet, &arguments::options(options)?.policy)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_close(inlet: *mut toroni_inlet) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(inlet) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_open_topic(
    inlet: *const toroni_inlet,
    topic: *const c_char,
    result: *mut *mut toroni_inlet_topic,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let name = string(topic, "the topic")?;
            Ok(toroni_inlet_topic(self::inlet(inlet)?.topic(name)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_topic_close(topic: *mut toroni_inlet_topic) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(topic) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_retain(
    inlet: *const toroni_inlet,
    topic: *mut toroni_inlet_topic,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let inlet = self::inlet(inlet)?;
        let topic = topic.as_mut().ok_or_else(|| null("the topic"))?;
        Ok(inlet.retain(&mut topic.0)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_claim(
    inlet: *const toroni_inlet,
    source: u32,
    series: u32,
    stream: u16,
    timeout_ns: u64,
    result: *mut toroni_arrived,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(result, "the pointer to the result", || {
            let key = StreamKey { source, series, stream };
            let arrived = self::inlet(inlet)?.claim(key, limit(timeout_ns))?;
            let taken_over = arrived.taken_over.into();
            Ok(toroni_arrived { next: arrived.next, taken_over, reserved: 0 })
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_publish(
    inlet: *const toroni_inlet,
    entries: *const toroni_inlet_entry,
    count: usize,
    timeout_ns: u64,
    published: *mut usize,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_count(published, 0);
        let inlet = self::inlet(inlet)?;
        let given = slice(entries, count, "the entries")?;
        let mut parts = Vec::with_capacity(count);
        for entry in given {
            for part in slice(entry.parts, entry.part_count, "the parts")? {
                parts.push(payload(part.data, part.length)?);
            }
        }
        let mut rest = &parts[..];
        let mut entries = Vec::with_capacity(count);
        for entry in given {
            let (parts, after) = rest.split_at(entry.part_count);
            rest = after;
            entries.push(entry.with(parts)?);
        }
        let outcome = inlet.publish(&entries, limit(timeout_ns));
        let done = outcome.as_ref().err().map_or(count, |error| error.published);
        put_count(published, done);
        Ok(outcome?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_publish_lost(
    inlet: *const toroni_inlet,
    lost: *const toroni_lost,
    open_from: *const u64,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let (inlet, lost) = (self::inlet(inlet)?, self::lost(lost)?);
        let open_from = open_from.as_ref().copied();
        Ok(inlet.publish_lost(&lost, open_from, limit(timeout_ns))?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_advance(
    inlet: *const toroni_inlet,
    next: *const toroni_origin,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        let next = next.as_ref().ok_or_else(|| null("the origin"))?.checked()?;
        Ok(self::inlet(inlet)?.advance(next, limit(timeout_ns))?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_inlet_duplicates(inlet: *const toroni_inlet) -> u64 {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::inlet(inlet) }?.duplicates()))
}
