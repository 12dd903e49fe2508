//! Buses as files: listing them, and cleaning up after dead processes.

use crate::arguments::{close, handle, optional_string, put_handle};
use crate::lists::{Strings, one};
use crate::options::unknown;
use crate::status::{Failure, Outcome, catch_panics, catch_panics_or};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::null;
use toroni::admin::{self, BusEntry, CleanAction, CleanReport};

pub struct toroni_bus_list {
    entries: Vec<toroni_bus_entry>,
    /// The strings that the items above point to.
    _strings: Strings,
}

#[repr(C)]
pub struct toroni_bus_entry {
    pub name: *const c_char,
    pub path: *const c_char,
    pub problem: *const c_char,
    pub capacity: u64,
    pub in_use: c_int,
    pub persistent: c_int,
}

pub struct toroni_clean_report {
    actions: Vec<toroni_clean_action>,
    skipped: Vec<toroni_clean_skip>,
    /// The strings that the items above point to.
    _strings: Strings,
}

#[repr(C)]
pub struct toroni_clean_action {
    pub kind: c_int,
    pub slot: u32,
    pub bus: *const c_char,
    pub file: *const c_char,
    pub path: *const c_char,
    pub text: *const c_char,
}

#[repr(C)]
pub struct toroni_clean_skip {
    pub path: *const c_char,
    pub why: *const c_char,
}

const DRY_RUN: u32 = 1;
const PERSISTENT: u32 = 2;

impl From<Vec<BusEntry>> for toroni_bus_list {
    fn from(entries: Vec<BusEntry>) -> Self {
        let mut strings = Strings::default();
        let entries = entries.into_iter().map(|entry| toroni_bus_entry {
            name: strings.keep(entry.name),
            path: strings.keep_path(&entry.path),
            problem: entry.problem.map_or(null(), |problem| strings.keep(problem)),
            capacity: entry.capacity.unwrap_or(0),
            in_use: entry.in_use.map_or(-1, c_int::from),
            persistent: c_int::from(entry.persistent),
        });
        Self { entries: entries.collect(), _strings: strings }
    }
}

impl toroni_clean_action {
    fn new(action: &CleanAction, strings: &mut Strings) -> Self {
        let text = strings.keep(action.to_string());
        let mut made = Self { kind: -1, slot: 0, bus: null(), file: null(), path: null(), text };
        let mut removed =
            |kind, path: &PathBuf| (made.kind, made.path) = (kind, strings.keep_path(path));
        match action {
            CleanAction::FreeSlot { bus, file, slot } => {
                (made.kind, made.slot) = (0, *slot);
                (made.bus, made.file) = (strings.keep(bus), strings.keep(file));
            }
            CleanAction::RemoveSocket(path) => removed(1, path),
            CleanAction::RemoveBus(path) => removed(2, path),
            CleanAction::RemoveLeftover(path) => removed(3, path),
            _ => {}
        }
        made
    }
}

impl From<CleanReport> for toroni_clean_report {
    fn from(report: CleanReport) -> Self {
        let mut strings = Strings::default();
        let actions = report.actions.iter();
        let actions =
            actions.map(|action| toroni_clean_action::new(action, &mut strings)).collect();
        let skipped = report.skipped.iter().map(|(path, why)| toroni_clean_skip {
            path: strings.keep_path(path),
            why: strings.keep(why),
        });
        Self { actions, skipped: skipped.collect(), _strings: strings }
    }
}

thread_local! {
    /// The last result of [`toroni_default_directory`].
    static DIRECTORY: RefCell<CString> = RefCell::default();
}

#[unsafe(no_mangle)]
pub extern "C" fn toroni_default_directory() -> *const c_char {
    catch_panics_or(null(), || {
        let path = admin::default_directory().into_os_string().into_encoded_bytes();
        // A value of the environment contains no 0.
        let path = CString::new(path).map_err(|error| Failure::argument(error.to_string()))?;
        let pointer = path.as_ptr();
        let kept = DIRECTORY.try_with(|last| last.replace(path));
        kept.map_err(|error| Failure::argument(error.to_string()))?;
        Ok(pointer)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_list_buses(
    directory: *const c_char,
    result: *mut *mut toroni_bus_list,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let directory = optional_string(directory, "the directory")?;
            Ok(admin::list(directory.map(Path::new))?.into())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_list_close(list: *mut toroni_bus_list) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(list) }
}

/// # Safety
/// As [`handle`].
unsafe fn entries<'a>(pointer: *const toroni_bus_list) -> Outcome<&'a [toroni_bus_entry]> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the list") }.map(|list| &list.entries[..])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_list_count(list: *const toroni_bus_list) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { entries(list) }?.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_list_at(
    list: *const toroni_bus_list,
    index: usize,
) -> *const toroni_bus_entry {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(null(), || one(unsafe { entries(list) }?, index))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_clean(
    directory: *const c_char,
    name: *const c_char,
    flags: u32,
    result: *mut *mut toroni_clean_report,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe {
        put_handle(result, || {
            let directory = optional_string(directory, "the directory")?.map(Path::new);
            Ok(clean(directory, optional_string(name, "the name")?, flags)?.into())
        })
    })
}

fn clean(directory: Option<&Path>, name: Option<&str>, flags: u32) -> Outcome<CleanReport> {
    if flags & !(DRY_RUN | PERSISTENT) != 0 {
        return Err(unknown("flags", flags));
    }
    let dry_run = flags & DRY_RUN != 0;
    if flags & PERSISTENT == 0 {
        return Ok(admin::clean(directory, name, dry_run)?);
    }
    let name = name.ok_or_else(|| {
        Failure::argument("the name is null, but TORONI_CLEAN_PERSISTENT needs the name of a bus")
    })?;
    Ok(admin::clean_persistent(directory, name, dry_run)?)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_clean_report_close(report: *mut toroni_clean_report) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(report) }
}

/// # Safety
/// As [`handle`].
unsafe fn report<'a>(pointer: *const toroni_clean_report) -> Outcome<&'a toroni_clean_report> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the report") }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_clean_report_action_count(
    report: *const toroni_clean_report,
) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::report(report) }?.actions.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_clean_report_action(
    report: *const toroni_clean_report,
    index: usize,
) -> *const toroni_clean_action {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(null(), || one(&unsafe { self::report(report) }?.actions, index))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_clean_report_skip_count(
    report: *const toroni_clean_report,
) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::report(report) }?.skipped.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_clean_report_skip(
    report: *const toroni_clean_report,
    index: usize,
) -> *const toroni_clean_skip {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(null(), || one(&unsafe { self::report(report) }?.skipped, index))
}
