//! Finds the names of users and groups, and their numbers.
//!
//! The C library looks them up wherever the system is configured to (nsswitch.conf(5)): in files, a directory
//! service, or systemd. glibc loads a plugin for each of these at run time. In a statically linked program (`cc
//! -static`) such a plugin crashes the process as soon as a name is not in the first source. So such a program
//! reads only `/etc/passwd` and `/etc/group`, and without glibc.

use std::ffi::{CStr, CString};

pub(super) fn number_of_group(name: &str) -> Option<u32> {
    if is_static() {
        return entry_of("/etc/group", |(known, _)| known == name).map(|(_, number)| number);
    }
    let name = CString::new(name).ok()?;
    look_up_group(|entry, buffer, length, found| {
        // SAFETY: valid pointers with the lengths that are given.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, buffer, length, found) }
    })
    .map(|(number, _)| number)
}

pub(super) fn name_of_group(number: u32) -> Option<String> {
    if is_static() {
        return entry_of("/etc/group", |(_, known)| known == number).map(|(name, _)| name);
    }
    look_up_group(|entry, buffer, length, found| {
        // SAFETY: valid pointers with the lengths that are given.
        unsafe { libc::getgrgid_r(number, entry, buffer, length, found) }
    })
    .map(|(_, name)| name)
}

pub(super) fn name_of_user(number: u32) -> Option<String> {
    if is_static() {
        return entry_of("/etc/passwd", |(_, known)| known == number).map(|(name, _)| name);
    }
    let mut buffer = vec![0; LOOK_UP_BYTES];
    // SAFETY: `zeroed` is a valid passwd: null pointers and zeros.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: valid pointers with the lengths that are given.
    unsafe {
        libc::getpwuid_r(
            number,
            &raw mut entry,
            buffer.as_mut_ptr(),
            LOOK_UP_BYTES,
            &raw mut found,
        );
        // The name lies in `buffer`.
        (!found.is_null()).then(|| CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
    }
}

/// Large enough for a group of some thousand members.
const LOOK_UP_BYTES: usize = 256 << 10;

fn look_up_group(
    ask: impl FnOnce(*mut libc::group, *mut libc::c_char, usize, *mut *mut libc::group) -> libc::c_int,
) -> Option<(u32, String)> {
    let mut buffer = vec![0; LOOK_UP_BYTES];
    // SAFETY: `zeroed` is a valid group: null pointers and zeros.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    ask(&raw mut entry, buffer.as_mut_ptr(), LOOK_UP_BYTES, &raw mut found);
    if found.is_null() {
        return None;
    }
    // SAFETY: the entry was found, so the name is a string within `buffer`.
    let name = unsafe { CStr::from_ptr(entry.gr_name) }.to_string_lossy().into_owned();
    Some((entry.gr_gid, name))
}

/// Returns whether the kernel started this program without a dynamic linker. A program that was started by hand
/// through its linker counts as static, too. It still finds the names in the files.
fn is_static() -> bool {
    // SAFETY: only reads the vector that the kernel has placed beside the arguments.
    unsafe { libc::getauxval(libc::AT_BASE) == 0 }
}

/// Returns name and number of the first matching entry in a file of users or groups.
fn entry_of(file: &str, is_it: impl Fn((&str, u32)) -> bool) -> Option<(String, u32)> {
    find(&std::fs::read(file).ok()?, is_it)
}

/// Searches lines `NAME:PASSWORD:NUMBER:…`. Other lines are skipped.
fn find(lines: &[u8], is_it: impl Fn((&str, u32)) -> bool) -> Option<(String, u32)> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number = fields.nth(1)?.parse().ok()?;
        is_it((name, number)).then(|| (name.to_owned(), number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_and_the_files_agree_on_root() {
        assert!(!is_static());
        assert_eq!(name_of_user(0).as_deref(), Some("root"));
        assert_eq!(name_of_group(0).as_deref(), Some("root"));
        assert_eq!(number_of_group("root"), Some(0));
        let root = Some(("root".to_owned(), 0));
        assert_eq!(entry_of("/etc/passwd", |(_, number)| number == 0), root);
        assert_eq!(entry_of("/etc/group", |(name, _)| name == "root"), root);
        assert_eq!(entry_of("/no/such/file", |_| true), None);
    }

    #[test]
    fn lines_that_are_no_entries_are_passed_over() {
        let lines =
            b"\n#comment\n+::::\na\nb:x\nc:x:\nd:x:-1:\n\xff:x:1:\ne:x:7:e,f\ne:x:8:\nlast:x:9";
        assert_eq!(find(lines, |_| true), Some(("e".to_owned(), 7)));
        assert_eq!(find(lines, |(name, _)| name == "last"), Some(("last".to_owned(), 9)));
        assert_eq!(find(lines, |(_, number)| number == 1), None);
    }
}
