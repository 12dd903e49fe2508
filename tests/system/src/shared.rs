//! Words in a file that a test and its workers share.

use rustix::mm::{MapFlags, ProtFlags};
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Maps `count` words of the file. Creates the file, or makes it longer, if need be. The mapping stays until the
/// process ends.
pub(crate) fn words_of(path: &Path, count: usize) -> &'static [AtomicU64] {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("a file to share");
    let bytes = count * 8;
    if file.metadata().expect("its size").len() < bytes as u64 {
        file.set_len(bytes as u64).expect("room for the file");
    }
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice, that is never unmapped. The file has this size,
    // and no process makes it shorter. The words are only used as atomics, for which any bits are valid, and a page is
    // aligned for them.
    unsafe {
        let start =
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)
                .expect("a mapping of the file");
        std::slice::from_raw_parts(start.cast::<AtomicU64>(), count)
    }
}
