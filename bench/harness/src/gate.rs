//! The gate and the finish: named pipes in the run directory, of which the *end of file* is the signal. One event wakes
//! all waiting processes, none of them polls, and a process that dies lets go of its pipes by itself.

use crate::Failure;
use crate::run_directory::RunDirectory;
use rustix::fs::{FileType, Mode, OFlags, mkfifoat, open};
use rustix::io::{Errno, read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The parent's side: creates both pipes, and opens the gate.
#[derive(Debug)]
pub struct Gate {
    /// While the parent holds it, no child passes the gate.
    bar: OwnedFd,
}

impl Gate {
    /// Creates the pipes; the gate is shut.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn create(directory: &RunDirectory) -> Result<Self, Failure> {
        for path in [gate_path(directory), finish_path(directory)] {
            mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR)
                .map_err(Failure::of(format!("make {}", path.display())))?;
        }
        // Read and write, which opens a pipe without waiting for another end.
        Ok(Self { bar: open_pipe(gate_path(directory), OFlags::RDWR)? })
    }

    /// Lets all children pass.
    pub fn open(self) {
        drop(self.bar);
    }
}

/// A child's side.
#[derive(Debug)]
pub struct ChildGate {
    gate: OwnedFd,
    /// Held until this child has finished.
    unfinished: Option<OwnedFd>,
    finish: OwnedFd,
}

impl ChildGate {
    /// Joins. From now on no child leaves the finish before this one has reached it or is dead.
    ///
    /// # Errors
    /// If the pipes do not exist.
    pub fn join(directory: &RunDirectory) -> Result<Self, Failure> {
        let finish = open_to_wait(finish_path(directory))?;
        let unfinished = open_pipe(finish_path(directory), OFlags::WRONLY)?;
        let gate = open_to_wait(gate_path(directory))?;
        Ok(Self { gate, unfinished: Some(unfinished), finish })
    }

    /// Waits until the gate opens.
    ///
    /// # Errors
    /// If the pipe fails.
    pub fn wait_at_gate(&self) -> Result<(), Failure> {
        wait_for_end(&self.gate)
    }

    /// Waits until all children have called it.
    ///
    /// # Errors
    /// If the pipe fails.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.unfinished = None;
        wait_for_end(&self.finish)
    }
}

fn gate_path(directory: &RunDirectory) -> PathBuf {
    directory.path.join("gate")
}

fn finish_path(directory: &RunDirectory) -> PathBuf {
    directory.path.join("finish")
}

/// Opens a pipe to read, without waiting for a writer: if the gate is open, there is none.
fn open_to_wait(path: PathBuf) -> Result<OwnedFd, Failure> {
    let pipe = open_pipe(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    rustix::fs::fcntl_setfl(&pipe, OFlags::empty()).map_err(Failure::of("prepare a pipe"))?;
    Ok(pipe)
}

fn open_pipe(path: PathBuf, flags: OFlags) -> Result<OwnedFd, Failure> {
    let failed = Failure::of(format!("open {}", path.display()));
    let pipe = open(&path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let status = rustix::fs::fstat(&pipe).map_err(Failure::of("examine a pipe"))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Fifo {
        return Err(Failure::new(format!("{} is no pipe", path.display())));
    }
    Ok(pipe)
}

fn wait_for_end(pipe: &OwnedFd) -> Result<(), Failure> {
    loop {
        match read(pipe, &mut [0_u8; 8]) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::of("wait at a pipe")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_directory::RunDirectoryOwner;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use toroni_testkit::Directory;

    #[test]
    fn no_child_passes_before_it_opens_and_all_pass_then() {
        let root = Directory::new();
        let owner = RunDirectoryOwner::create(root.path()).unwrap();
        let gate = Gate::create(owner.directory()).unwrap();
        let (passed, passes) = channel();
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let gate = ChildGate::join(owner.directory()).unwrap();
                let passed = passed.clone();
                std::thread::spawn(move || {
                    gate.wait_at_gate().unwrap();
                    passed.send(number).unwrap();
                })
            })
            .collect();
        assert!(passes.recv_timeout(Duration::from_millis(30)).is_err());
        gate.open();
        for thread in waiting {
            thread.join().unwrap();
        }
        assert_eq!(passes.try_iter().count(), 3);
        // A child that comes later finds it open.
        ChildGate::join(owner.directory()).unwrap().wait_at_gate().unwrap();
    }

    #[test]
    fn the_finish_waits_for_the_last_and_not_for_the_dead() {
        let root = Directory::new();
        let owner = RunDirectoryOwner::create(root.path()).unwrap();
        let _gate = Gate::create(owner.directory()).unwrap();
        let mut first = ChildGate::join(owner.directory()).unwrap();
        let second = ChildGate::join(owner.directory()).unwrap();
        let (left, leaving) = channel();
        let thread = std::thread::spawn(move || {
            first.finish().unwrap();
            left.send(()).unwrap();
        });
        assert!(leaving.recv_timeout(Duration::from_millis(30)).is_err());
        // As if its process had died: the kernel closes what it held.
        drop(second);
        thread.join().unwrap();
        assert!(leaving.recv().is_ok());
    }
}
