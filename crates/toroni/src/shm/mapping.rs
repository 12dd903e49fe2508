//! Maps files that other processes write. A mapping lasts as long as its value.

use super::guard::Guarded;
use super::shareable::Shareable;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// A store ends the process with SIGSEGV.
    Read,
    /// Loads and stores.
    Write,
}

/// How memory is mapped. All options are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapOptions {
    /// Asks for huge pages. The kernel gives them only if the system is set up for them
    /// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`) and the bus was created for them.
    pub(crate) huge_pages: bool,
    /// Fills the page tables at once. Opening takes longer, and there are no page faults later.
    pub(crate) prefault: bool,
    /// Keeps the pages in memory, within the limit RLIMIT_MEMLOCK.
    pub(crate) mlock: bool,
}

/// A shared mapping of a file. It survives truncation of the file, is left out of core dumps, and is unmapped when
/// it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `None` only during the drop: the guard must end before the mapping does.
    guarded: Option<Guarded>,
    start: NonNull<u8>,
    length: usize,
    protection: Protection,
}

// SAFETY: an address and a length. The memory at the address is handed out only as `Shareable`, which is `Sync`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// A checked part of a mapping, for paths on which each check would be too expensive. It is kept beside its mapping
/// and never without it.
#[derive(Debug)]
pub(super) struct MappedSlice<T> {
    start: NonNull<T>,
    count: usize,
}

// SAFETY: an address. The memory there is `Sync`, and handed out by reference only.
unsafe impl<T: Shareable> Send for MappedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for MappedSlice<T> {}

impl<T: Shareable> MappedSlice<T> {
    /// Returns the values.
    ///
    /// # Safety
    /// The mapping from which this was made lives as long as the result.
    #[inline]
    pub(super) unsafe fn slice<'a>(&self) -> &'a [T] {
        // SAFETY: address and count were checked when it was made. The caller promises that the mapping lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }

    /// Returns the first value. There must be one.
    ///
    /// # Safety
    /// As [`slice`](Self::slice).
    #[inline]
    pub(super) unsafe fn first<'a>(&self) -> &'a T {
        debug_assert!(self.count > 0);
        // SAFETY: as above, and `count` is not 0.
        unsafe { self.start.as_ref() }
    }
}

/// The size of a huge page on all machines that matter here.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

impl Mapping {
    /// Maps the first `length` bytes of a file. The file may be shorter: see [`Guarded`].
    pub(crate) fn file(file: impl AsFd, length: usize, protection: Protection) -> io::Result<Self> {
        let length = round_up(length, rustix::param::page_size());
        // SAFETY: the kernel chooses an unused address.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection.flags(),
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Self::finish(start, length, protection)
    }

    /// Maps a file that consists of `prefix` bytes and then `capacity` bytes. The latter are mapped twice in a row,
    /// so what runs over their end continues at their beginning. Both sizes are multiples of the page size. If
    /// `prefix` is a multiple of [`HUGE_PAGE`], the address of the second part is one, too.
    pub(crate) fn twice(
        file: impl AsFd,
        prefix: usize,
        capacity: usize,
        protection: Protection,
    ) -> io::Result<Self> {
        let length = prefix + 2 * capacity;
        let slack = if prefix.is_multiple_of(HUGE_PAGE) { HUGE_PAGE } else { 0 };
        // SAFETY: the kernel chooses an unused address.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length + slack,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let before =
            if slack == 0 { 0 } else { round_up(reserved as usize, slack) - reserved as usize };
        let start = reserved.wrapping_byte_add(before);
        let end = start.wrapping_byte_add(length);
        let map = |place, length, offset| {
            // SAFETY: within the addresses reserved above, which nothing else uses.
            unsafe {
                rustix::mm::mmap(
                    place,
                    length,
                    protection.flags(),
                    MapFlags::SHARED | MapFlags::FIXED,
                    file.as_fd(),
                    offset,
                )
            }
        };
        let mapped = map(start, prefix + capacity, 0)
            .and_then(|_| map(start.wrapping_byte_add(prefix + capacity), capacity, prefix as u64));
        // SAFETY: the unused rest of the reserved addresses, or all of them. Nothing refers to them.
        unsafe {
            if let Err(error) = mapped {
                let _ = rustix::mm::munmap(reserved, length + slack);
                return Err(error.into());
            }
            if before > 0 {
                rustix::mm::munmap(reserved, before)?;
            }
            if slack > before {
                rustix::mm::munmap(end, slack - before)?;
            }
        }
        Self::finish(start, length, protection)
    }

    /// Returns the length of the mapping in bytes, second copy included.
    #[cfg(test)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the value at `offset`, or `None` if it is outside of the mapping or not aligned.
    #[inline]
    pub(crate) fn at<T: Shareable>(&self, offset: usize) -> Option<&T> {
        self.slice(offset, 1)?.first()
    }

    /// Returns `count` values in a row, or `None` if they are not all within the mapping or not aligned.
    #[inline]
    pub(crate) fn slice<T: Shareable>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let end = size_of::<T>().checked_mul(count)?.checked_add(offset)?;
        if end > self.length
            || !(self.start.as_ptr() as usize + offset).is_multiple_of(align_of::<T>())
        {
            return None;
        }
        // SAFETY: the bytes are mapped, within one mapping, aligned, and alive as long as self. If the file is
        // shorter, the guard supplies them. `Shareable` allows any bytes, and writers in other processes.
        Some(unsafe {
            std::slice::from_raw_parts(self.start.as_ptr().byte_add(offset).cast::<T>(), count)
        })
    }

    /// Does the checks of [`slice`](Self::slice) once, for many uses.
    pub(super) fn mapped_slice<T: Shareable>(
        &self,
        offset: usize,
        count: usize,
    ) -> Option<MappedSlice<T>> {
        let slice: &[T] = self.slice(offset, count)?;
        Some(MappedSlice { start: NonNull::from(slice).cast(), count })
    }

    /// Returns whether this mapping was used to access a page that the file no longer has.
    #[inline]
    pub(crate) fn was_damaged(&self) -> bool {
        self.guarded.as_ref().is_some_and(Guarded::was_damaged)
    }

    /// Asks for huge pages from `offset` to the end. Failure is ignored.
    pub(crate) fn ask_for_huge_pages(&self, offset: usize) {
        let _ = self.advise(offset, self.length, Advice::LinuxHugepage);
    }

    pub(crate) fn prefault(&self) -> io::Result<()> {
        let advice = match self.protection {
            Protection::Read => Advice::LinuxPopulateRead,
            Protection::Write => Advice::LinuxPopulateWrite,
        };
        match self.advise(0, self.length, advice) {
            // Before Linux 5.14: read from each page.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for offset in (0..self.length).step_by(rustix::param::page_size()) {
                    if let Some(word) = self.at::<crate::sync::AtomicU64>(offset) {
                        word.load(crate::sync::Ordering::Relaxed);
                    }
                }
                Ok(())
            }
            answer => answer,
        }
    }

    /// Keeps the first `length` bytes in memory. For a mapping made by [`twice`](Self::twice), pass the length of
    /// one copy: the other has the same pages, and would count against the limit again.
    pub(crate) fn lock(&self, length: usize) -> io::Result<()> {
        let length = length.min(self.length);
        // SAFETY: within the mapping; changes no byte.
        Ok(unsafe { rustix::mm::mlock(self.start.as_ptr().cast(), length) }?)
    }

    /// Writes `length` bytes at `offset` back to the disk and waits. `offset` is a multiple of the page size.
    pub(crate) fn write_back(&self, offset: usize, length: usize) -> io::Result<()> {
        let length = length.min(self.length.saturating_sub(offset));
        let place = self.start.as_ptr().wrapping_byte_add(offset).cast::<c_void>();
        // SAFETY: within the mapping; changes no byte.
        Ok(unsafe { rustix::mm::msync(place, length, MsyncFlags::SYNC) }?)
    }

    fn finish(start: *mut c_void, length: usize, protection: Protection) -> io::Result<Self> {
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped the file at address 0"))?;
        let flags = match protection {
            Protection::Read => libc::PROT_READ,
            Protection::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let guarded = Some(Guarded::new(start.as_ptr() as usize, length, flags));
        let mapping = Self { guarded, start, length, protection };
        // What other processes published is not part of this one's state, and it may be large or secret.
        mapping.advise(0, length, Advice::LinuxDontDump)?;
        Ok(mapping)
    }

    fn advise(&self, from: usize, to: usize, advice: Advice) -> io::Result<()> {
        let place = self.start.as_ptr().wrapping_byte_add(from).cast::<c_void>();
        // SAFETY: within the mapping. No advice used here changes a byte.
        Ok(unsafe { rustix::mm::madvise(place, to - from, advice) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guarded = None;
        // SAFETY: only self mapped it, and every reference into it was bound to self. In a forked child this unmaps
        // the child's copy.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Protection {
    fn flags(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::Write => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

fn round_up(value: usize, unit: usize) -> usize {
    value.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::TempDir;
    use crate::sync::{AtomicU64, Ordering};
    use std::fs::File;

    fn file(directory: &TempDir, length: u64) -> File {
        let path = directory.path().join("file");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(length).unwrap();
        file
    }

    fn word(mapping: &Mapping, offset: usize) -> &AtomicU64 {
        mapping.at(offset).unwrap()
    }

    #[test]
    fn the_second_copy_is_the_first() {
        let directory = TempDir::new();
        let (prefix, capacity) = (8192, 65536);
        let file = file(&directory, 8192 + 65536);
        let writer = Mapping::twice(&file, prefix, capacity, Protection::Write).unwrap();
        let reader = Mapping::twice(
            File::open(directory.path().join("file")).unwrap(),
            prefix,
            capacity,
            Protection::Read,
        )
        .unwrap();
        word(&writer, prefix + capacity).store(7, Ordering::Relaxed);
        word(&writer, prefix + capacity - 8).store(6, Ordering::Relaxed);
        for mapping in [&writer, &reader] {
            assert_eq!(word(mapping, prefix).load(Ordering::Relaxed), 7);
            assert_eq!(word(mapping, prefix + 2 * capacity - 8).load(Ordering::Relaxed), 6);
        }
    }

    #[test]
    fn nothing_is_handed_out_from_outside() {
        let directory = TempDir::new();
        let mapping = Mapping::file(file(&directory, 4096), 4096, Protection::Read).unwrap();
        let length = mapping.length();
        assert!(mapping.at::<AtomicU64>(length - 8).is_some());
        assert!(mapping.at::<AtomicU64>(length - 7).is_none());
        assert!(mapping.at::<AtomicU64>(4).is_none());
        assert!(mapping.at::<AtomicU64>(usize::MAX - 7).is_none());
        assert!(mapping.slice::<AtomicU64>(0, length / 8).is_some());
        assert!(mapping.slice::<AtomicU64>(0, length / 8 + 1).is_none());
        assert!(mapping.slice::<AtomicU64>(0, usize::MAX / 8 + 1).is_none());
    }

    #[test]
    fn huge_pages_are_aligned() {
        let directory = TempDir::new();
        let mapping = Mapping::twice(
            file(&directory, 2 * HUGE_PAGE as u64),
            HUGE_PAGE,
            HUGE_PAGE,
            Protection::Write,
        )
        .unwrap();
        mapping.ask_for_huge_pages(HUGE_PAGE);
        assert!((mapping.start.as_ptr() as usize).is_multiple_of(HUGE_PAGE));
        word(&mapping, 3 * HUGE_PAGE - 8).store(1, Ordering::Relaxed);
        assert_eq!(word(&mapping, 2 * HUGE_PAGE - 8).load(Ordering::Relaxed), 1);
    }

    #[test]
    fn prefault_and_lock_work_on_both_protections() {
        let directory = TempDir::new();
        let file = file(&directory, 2 * 65536);
        for protection in [Protection::Write, Protection::Read] {
            let mapping = Mapping::twice(&file, 65536, 65536, protection).unwrap();
            mapping.prefault().unwrap();
            mapping.lock(2 * 65536).unwrap();
            mapping.write_back(0, 65536).unwrap();
        }
    }

    #[test]
    fn core_dumps_leave_it_out() {
        let directory = TempDir::new();
        let mapping = Mapping::file(file(&directory, 4096), 4096, Protection::Read).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("\n{:x}-", mapping.start.as_ptr() as usize);
        let entry = &smaps[smaps.find(&head).unwrap()..];
        let flags = &entry[entry.find("VmFlags:").unwrap()..];
        assert!(flags.lines().next().unwrap().contains(" dd"), "{flags}");
    }
}
