//! A library that stands between a node and the kernel (`LD_PRELOAD`), so that a soak can set its clock, fail its disk and take its
//! power. The variables in `journal.rs` say where it finds what it is to do. Without them, it does nothing.
//!
//! It sees what the standard library calls in the C library. The crate `rustix` asks the kernel itself, so the clock of buses stays as it
//! is, and files are allocated as always.

#![cfg(target_os = "linux")]

mod journal;

use journal::{
    BOOT, CONTROL, DIRECTORY, FAIL, FAILED, JOURNAL, KEEP, PWRITE, RENAME, Record, SYNC, WALL,
    WORDS,
};
use libc::{c_char, c_int, c_uint, c_void, off64_t, size_t, ssize_t, timespec};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

const BILLION: i64 = 1_000_000_000;
/// How long it takes to sync a file while the journal is written.
const SYNC_TIME: Duration = Duration::from_millis(20);

/// What the soak wants.
fn words() -> Option<&'static [AtomicU64; WORDS]> {
    static FOUND: OnceLock<Option<&'static [AtomicU64; WORDS]>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let path = CString::new(std::env::var_os(CONTROL)?.as_bytes()).ok()?;
        // SAFETY: the path ends with a NUL. The mapping is a new one that stays, of a file of this length that no process makes shorter;
        // its words are only used as atomics, and a page is aligned for them.
        unsafe {
            let file = open_as_it_is(&path, libc::O_RDWR | libc::O_CLOEXEC, 0);
            if file < 0 {
                return None;
            }
            let (bytes, protection) = (WORDS * 8, libc::PROT_READ | libc::PROT_WRITE);
            let start =
                libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, 0);
            (start != libc::MAP_FAILED).then(|| &*start.cast::<[AtomicU64; WORDS]>())
        }
    })
}

fn word(at: usize) -> u64 {
    words().map_or(0, |words| words[at].load(Ordering::Relaxed))
}

fn variable(
    name: &'static str,
    found: &'static OnceLock<Option<PathBuf>>,
) -> Option<&'static Path> {
    found.get_or_init(|| std::env::var_os(name).map(PathBuf::from)).as_deref()
}

/// Whether a path is the directory, or of a file in it whose loss matters: the mark of what is committed is never synced, and an
/// error of it is of no interest.
fn is_concerned(path: &Path) -> bool {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(directory) = variable(DIRECTORY, &FOUND) else { return false };
    path == directory
        || path.parent() == Some(directory) && path.file_name() != Some(OsStr::new("committed"))
}

/// The path of an open file, if it is concerned and something is to happen.
fn path_of(file: c_int) -> Option<PathBuf> {
    if word(FAIL) | word(KEEP) == 0 {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{file}")).ok()?;
    is_concerned(&path).then_some(path)
}

/// Whether a call of this kind is to fail. It is counted, and `errno` set.
fn fails(kind: u64) -> bool {
    let Some(words) = words().filter(|words| words[FAIL].load(Ordering::Relaxed) & kind != 0)
    else {
        return false;
    };
    words[FAILED].fetch_add(1, Ordering::Relaxed);
    // SAFETY: it returns the place of this thread's number.
    unsafe { *libc::__errno_location() = libc::EIO };
    true
}

/// The journal, and how long it is.
struct Journal {
    file: File,
    length: u64,
}

impl Journal {
    /// Locks it, if it is to be written.
    fn with<T>(then: impl FnOnce(&mut Self) -> T) -> Option<T> {
        static FOUND: OnceLock<Option<Mutex<Journal>>> = OnceLock::new();
        static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
        if word(KEEP) == 0 {
            return None;
        }
        let open = || {
            let file = File::options().create(true).append(true).open(variable(JOURNAL, &PATH)?);
            Some(Mutex::new(Journal { file: file.ok()?, length: 0 }))
        };
        let journal = FOUND.get_or_init(open).as_ref()?;
        Some(then(&mut journal.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn append(&mut self, record: &Record) {
        let bytes = record.encode();
        if self.file.write_all(&bytes).is_ok() {
            self.length += bytes.len() as u64;
        }
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller's pointer is passed on, and is valid if the call succeeds.
    unsafe {
        let result = libc::syscall(libc::SYS_clock_gettime, clock, time);
        if result == 0 && clock == libc::CLOCK_REALTIME {
            let ahead = word(WALL).cast_signed();
            let ns = (*time).tv_nsec + ahead % BILLION;
            (*time).tv_sec += ahead / BILLION + ns.div_euclid(BILLION);
            (*time).tv_nsec = ns.rem_euclid(BILLION);
        }
        i32::try_from(result).unwrap_or(-1)
    }
}

/// # Safety
/// As the C library has it. The third argument is one of those that may follow there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    // SAFETY: the caller's path ends with a NUL.
    let path = unsafe { CStr::from_ptr(path) };
    if path.to_bytes() == b"/proc/sys/kernel/random/boot_id"
        && let Some(other) = variable(BOOT, &FOUND)
        && let Ok(other) = CString::new(other.as_os_str().as_bytes())
    {
        return open_as_it_is(&other, flags, mode);
    }
    open_as_it_is(path, flags, mode)
}

/// # Safety
/// As the C library has it: on 64 bits, it is the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments are passed on.
    unsafe { open64(path, flags, mode) }
}

fn open_as_it_is(path: &CStr, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the path ends with a NUL.
    let file =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) };
    i32::try_from(file).unwrap_or(-1)
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    file: c_int,
    bytes: *const c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the caller's bytes are passed on.
    let write = || unsafe { libc::syscall(libc::SYS_pwrite64, file, bytes, length, offset) };
    let written = match path_of(file) {
        None => write(),
        Some(_) if fails(PWRITE) => -1,
        Some(path) => {
            let journaled = Journal::with(|journal| {
                let mut before = vec![0_u8; length];
                let into = before.as_mut_ptr();
                // SAFETY: there is room for as many bytes.
                let found = unsafe { libc::syscall(libc::SYS_pread64, file, into, length, offset) };
                before.truncate(usize::try_from(found).unwrap_or(0));
                let written = write();
                if let Ok(length) = usize::try_from(written) {
                    // SAFETY: as many bytes were read by the kernel.
                    let after = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
                    let (path, offset) = (bytes_of(&path), offset.unsigned_abs());
                    before.truncate(length);
                    let after = after.to_vec();
                    journal.append(&Record::Written { path, offset, before, after });
                }
                written
            });
            journaled.unwrap_or_else(write)
        }
    };
    isize::try_from(written).unwrap_or(-1)
}

/// Syncs a file, and notes what is on the disk then.
fn sync(file: c_int, call: libc::c_long) -> c_int {
    // SAFETY: it takes no pointer.
    let sync = || unsafe { libc::syscall(call, file) };
    let synced = match path_of(file) {
        None => sync(),
        Some(_) if fails(SYNC) => -1,
        Some(path) => {
            let upto = Journal::with(|journal| journal.length);
            if upto.is_some() {
                // As a disk does. Memory would be so fast that little is ever on its way.
                std::thread::sleep(SYNC_TIME);
            }
            let synced = sync();
            if let Some(upto) = upto.filter(|_| synced == 0) {
                let path = bytes_of(&path);
                Journal::with(|journal| journal.append(&Record::Synced { path, upto }));
            }
            synced
        }
    };
    i32::try_from(synced).unwrap_or(-1)
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    sync(file, libc::SYS_fdatasync)
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    sync(file, libc::SYS_fsync)
}

/// # Safety
/// As the C library has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let (here, flags) = (libc::AT_FDCWD, 0);
    // SAFETY: the caller's paths are passed on, and end with a NUL.
    let (rename, name_of) = unsafe {
        let rename = || libc::syscall(libc::SYS_renameat2, here, from, here, to, flags);
        (rename, |name| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
    };
    let paths = (name_of(from), name_of(to));
    let renamed = if !is_concerned(&paths.1) {
        rename()
    } else if fails(RENAME) {
        -1
    } else {
        let journaled = Journal::with(|journal| {
            let (from, to) = paths;
            let mut kept = journal.length.to_string().into_bytes();
            kept = [std::env::var_os(JOURNAL).unwrap_or_default().as_bytes(), b".", &kept].concat();
            let is_kept = std::fs::hard_link(&to, OsStr::from_bytes(&kept)).is_ok();
            let renamed = rename();
            if renamed == 0 {
                let kept = if is_kept { kept } else { vec![] };
                let (from, to) = (bytes_of(&from), bytes_of(&to));
                journal.append(&Record::Renamed { from, to, kept });
            }
            renamed
        });
        journaled.unwrap_or_else(rename)
    };
    i32::try_from(renamed).unwrap_or(-1)
}
