//! Small disks, which can be full.

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Gives this process mounts of its own, which end with it and its children. Call it before any other thread is started.
///
/// # Errors
/// If the caller is not root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: it takes no pointer, and the only thread that there is gets other mounts.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// A file system in memory with little room. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts one on a directory, which it makes.
    pub(super) fn mount(path: &Path, mebibytes: u64) -> Self {
        std::fs::create_dir_all(path).expect("a directory");
        let options = std::ffi::CString::new(format!("size={mebibytes}m")).expect("no NUL");
        rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::empty(), options.as_c_str())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path.to_owned())
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes all the room that is left.
    pub(super) fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file");
        let mut block = vec![0x55; 1 << 20];
        while !block.is_empty() {
            match file.write(&block) {
                Ok(1..) => {}
                // The last ones may find room that a whole block has not.
                Ok(0) | Err(_) => block.truncate(block.len() / 2),
            }
        }
    }

    /// Whether all room is taken.
    pub(super) fn is_full(&self) -> bool {
        self.filler().exists()
    }

    /// Makes room again.
    pub(super) fn free(&self) {
        std::fs::remove_file(self.filler()).expect("the file that took the room");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// How many bytes of the disk the files below a directory take.
pub(super) fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(if metadata.is_dir() {
                bytes_below(&entry.path())
            } else {
                metadata.blocks() * 512
            })
        })
        .sum()
}
