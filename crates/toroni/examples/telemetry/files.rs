//! File events of a folder, from inotify(7).

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The events that are published, and their names in topics.
const EVENTS: [(ReadFlags, &str); 7] = [
    (ReadFlags::CREATE, "created"),
    (ReadFlags::MODIFY, "modified"),
    (ReadFlags::CLOSE_WRITE, "written"),
    (ReadFlags::DELETE, "deleted"),
    (ReadFlags::MOVED_FROM, "moved-from"),
    (ReadFlags::MOVED_TO, "moved-to"),
    (ReadFlags::QUEUE_OVERFLOW, "overflow"),
];

/// A watched folder. Its descriptor is readable when there are events.
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Starts watching.
    pub(crate) fn watch(path: &Path) -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let events = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&queue, path, events).map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(queue))
    }

    /// Calls `publish` with each pending event and the name of its file.
    pub(crate) fn events<E: From<io::Error>>(
        &self,
        mut publish: impl FnMut(&str, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(io::Error::from(error).into()),
            };
            let file = event.file_name().map_or(&b""[..], |name| name.to_bytes());
            for (flag, name) in EVENTS {
                if event.events().contains(flag) {
                    publish(name, file)?;
                }
            }
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
