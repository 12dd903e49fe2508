//! An opened bus.

use crate::arguments::{close, handle, put, put_handle, string};
use crate::options::{open, toroni_open_options};
use crate::status::{Failure, Outcome, catch_panics, catch_panics_or};
use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use toroni::{Bus, Reopened};

pub struct toroni_bus {
    pub(crate) bus: Bus,
    name: CString,
    path: CString,
    id: CString,
}

#[repr(C)]
pub struct toroni_reopened {
    pub outcome: c_int,
    pub reserved: u32,
    pub messages: u64,
}

impl toroni_bus {
    fn new(bus: Bus) -> Outcome<Self> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|error| Failure::argument(format!("the name: {error}")))
        };
        Ok(Self {
            name: text(bus.name().as_bytes())?,
            path: text(bus.path().as_os_str().as_bytes())?,
            id: text(bus.id().to_string().as_bytes())?,
            bus,
        })
    }
}

/// # Safety
/// As [`handle`].
pub(crate) unsafe fn bus<'a>(pointer: *const toroni_bus) -> Outcome<&'a toroni_bus> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the bus") }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_open(
    name: *const c_char,
    options: *const toroni_open_options,
    result: *mut *mut toroni_bus,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || toroni_bus::new(open(string(name, "the name")?, options)?))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_close(bus: *mut toroni_bus) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(bus) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_name(bus: *const toroni_bus) -> *const c_char {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || Ok(unsafe { self::bus(bus) }?.name.as_ptr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_path(bus: *const toroni_bus) -> *const c_char {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || Ok(unsafe { self::bus(bus) }?.path.as_ptr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_id(bus: *const toroni_bus) -> *const c_char {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || Ok(unsafe { self::bus(bus) }?.id.as_ptr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_reopened(
    bus: *const toroni_bus,
    result: *mut toroni_reopened,
) -> c_int {
    // SAFETY: toroni.h requires it of callers; zeros are valid numbers.
    catch_panics(|| unsafe {
        put(result, "the pointer to the result", || {
            let (outcome, messages) = match self::bus(bus)?.bus.reopened() {
                None => (0, 0),
                Some(Reopened::Kept { messages }) => (1, messages),
                Some(Reopened::Emptied) => (2, 0),
                Some(_) => (-1, 0),
            };
            Ok(toroni_reopened { outcome, reserved: 0, messages })
        })
    })
}
