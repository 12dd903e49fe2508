//! Leases: how a participant finds out from the kernel whether another one is alive.
//!
//! A participant holds a write lock on the lease byte of its slot, through an open file description of its own. The
//! kernel drops the lock when the process ends, for whatever reason. This needs no heartbeat and no process id, and
//! it works across threads, containers and PID namespaces.
//!
//! Every user of a lease keeps these rules:
//!
//! - "The lease is free" counts only if the answer comes from the description that the tester opened. If the
//!   tester's descriptor has come to stand for anything else, the answer is an error, and no participant is
//!   taken for dead.
//! - Leases are tested only through a [`LeaseTester`], whose description holds no lease. A description never
//!   reports its own locks: a thread that tested through its own lease would find its own process dead, and would
//!   take the lock from a living sibling thread.
//! - Descriptions are opened, never duplicated: a duplicate would keep the lease alive.
//! - The lease is taken first and dropped last. To claim: take the lease, then write the slot. To leave: clear the
//!   slot, then drop the lease.
//! - A lease stays held for some time after its owner's death: about 2 ms for a small process, over 100 ms for one
//!   of a gigabyte, because the kernel tears down the memory before it closes files. A core dump comes before both.
//!   So a process that waits for a held lease also asks [`dumping`](super::dumping).

use super::description::CheckedFd;
use super::directory::{BusDirectory, BusFile, failed};
use super::fork::{ForkStamp, ParentOnlyFd};
use super::mapping::Protection;
use super::ofd::{self, Kind};
use crate::error::FileError;
use crate::ring::layout::LEASE_OFFSET;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The lease of one slot, held until it is dropped. In a forked child, dropping it only closes the descriptor.
#[derive(Debug)]
pub(crate) struct Lease {
    description: ParentOnlyFd,
    slot: u32,
    stamp: ForkStamp,
}

impl Lease {
    /// Takes the lease of a slot of `publishers` or `readers`. Returns `None` if it is held.
    pub(crate) fn try_claim(
        directory: &BusDirectory,
        file: BusFile,
        slot: u32,
    ) -> Result<Option<Self>, FileError> {
        let stamp = ForkStamp::now();
        let description = description_for_lease(directory, file)?;
        let lease = Self { description, slot, stamp };
        match ofd::try_lock(&lease.description, Kind::Exclusive, byte_of(slot)) {
            Ok(true) => Ok(Some(lease)),
            Ok(false) => Ok(None),
            Err(source) => Err(FileError::Os {
                action: "take a lease in",
                path: directory.path().join(file.name()),
                source,
            }),
        }
    }

    /// Takes the first free lease below `limit`. Returns `None` if all are held. `tester` is one for the same file;
    /// it saves opening a description for each slot that is taken.
    pub(crate) fn claim_any(
        directory: &BusDirectory,
        file: BusFile,
        limit: u32,
        tester: &LeaseTester,
    ) -> Result<Option<Self>, FileError> {
        for slot in 0..limit {
            if !matches!(tester.is_held(slot), Ok(true))
                && let Some(lease) = Self::try_claim(directory, file, slot)?
            {
                return Ok(Some(lease));
            }
        }
        Ok(None)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns whether this process still holds the lease. It does not in a forked child, nor after code that
    /// closes all descriptors, as daemons do. `tester` is one for the same file. This makes system calls, so only
    /// slow paths use it.
    pub(crate) fn is_held_by_us(&self, tester: &LeaseTester) -> io::Result<bool> {
        Ok(self.stamp.check().is_ok()
            && self.description.is_intact()
            // No other description holds it, and yet it is held.
            && !ofd::is_refused(&self.description, Kind::Exclusive, byte_of(self.slot))?
            && tester.is_held(self.slot)?)
    }
}

/// Tests the leases of a file. Read permission is enough.
#[derive(Debug)]
pub(crate) struct LeaseTester(CheckedFd);

impl LeaseTester {
    /// Opens a tester for `publishers` or `readers`.
    pub(crate) fn open(directory: &BusDirectory, file: BusFile) -> Result<Self, FileError> {
        description_for_tester(directory, file).map(Self)
    }

    /// Returns whether the lease of a slot is held.
    ///
    /// # Errors
    /// `EBADF` if the tester [is blind](Self::is_blind): then it cannot say anything about any lease.
    pub(crate) fn is_held(&self, slot: u32) -> io::Result<bool> {
        // Asks which lock would refuse a read lock. That finds leases, which are write locks, but not read locks,
        // which any process that can read the file may place.
        let is_held = |fd: BorrowedFd<'_>| ofd::is_refused(fd, Kind::Shared, byte_of(slot));
        #[cfg(toroni_mutants)]
        if crate::hook::mutant("lease_asked_of_any_descriptor") {
            return is_held(std::os::fd::AsFd::as_fd(&self.0));
        }
        self.0.ask(is_held)
    }

    /// Returns whether other code closed the tester's descriptor. It stays blind, because this process has lost its
    /// leases as well.
    pub(crate) fn is_blind(&self) -> bool {
        !self.0.is_intact()
    }
}

/// The result of testing several leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Ranges of slots whose leases are free, in no particular order.
    pub(crate) free: Vec<Range<u32>>,
    /// One of the tested leases is held. The remaining ones were not tested then.
    pub(crate) is_any_held: bool,
}

impl Census {
    /// Returns whether the lease of a slot was free when it was tested.
    pub(crate) fn is_free(&self, slot: u32) -> bool {
        self.free.iter().any(|range| range.contains(&slot))
    }
}

/// Tests many leases at once.
impl LeaseTester {
    /// Tests the leases of `slots`, which are in ascending order, and stops at the first that is held.
    ///
    /// Each question covers as many slots as possible. If all leases are free, one question is enough; each held
    /// lease in between that is not one of `slots` costs at most two more. Any process that may place locks on the
    /// file can make a question slow. So before each question but the first, this calls `go_on`, and stops if it
    /// returns false. Slots that were not reached are reported as neither free nor held.
    ///
    /// # Errors
    /// As [`is_held`](Self::is_held).
    pub(crate) fn census(
        &self,
        slots: &[u32],
        mut go_on: impl FnMut() -> bool,
    ) -> io::Result<Census> {
        let mut census = Census::default();
        // Parts of `slots` that are not tested yet.
        let mut parts = vec![slots];
        let mut is_first = true;
        while let Some(part) = parts.pop() {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            if !std::mem::take(&mut is_first) && !go_on() {
                break;
            }
            let bytes = byte_of(*first)..byte_of(*last) + 1;
            let refusal = |fd: BorrowedFd<'_>| ofd::first_refusal(fd, Kind::Shared, bytes);
            let Some(held) = self.0.ask(refusal)? else {
                census.free.push(*first..*last + 1);
                continue;
            };
            let before = part.partition_point(|slot| byte_of(*slot) < held.start);
            let behind = part.partition_point(|slot| byte_of(*slot) < held.end);
            if before < behind {
                census.is_any_held = true;
                break;
            }
            parts.push(&part[behind..]);
            parts.push(&part[..before]);
        }
        Ok(census)
    }
}

fn byte_of(slot: u32) -> u64 {
    LEASE_OFFSET + u64::from(slot)
}

fn description_for_lease(
    directory: &BusDirectory,
    file: BusFile,
) -> Result<ParentOnlyFd, FileError> {
    #[cfg(toroni_mutants)]
    if crate::hook::mutant("lease_through_own_description") {
        return shared_description::for_lease(directory, file);
    }
    directory.open_for_locks(file, Protection::Write)
}

fn description_for_tester(directory: &BusDirectory, file: BusFile) -> Result<CheckedFd, FileError> {
    #[cfg(toroni_mutants)]
    if crate::hook::mutant("lease_through_own_description") {
        return shared_description::for_tester(directory, file)
            .map(|fd| CheckedFd::new(fd).expect("a mutant in a test"));
    }
    CheckedFd::new(directory.open_file(file, Protection::Read)?)
        .map_err(|errno| failed("open", &directory.path().join(file.name()), errno))
}

/// The mistake that the rules above forbid: one description of each file for the whole process. A test must fail
/// with it.
#[cfg(toroni_mutants)]
mod shared_description {
    use super::*;
    use std::collections::HashMap;
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;

    static SHARED: Mutex<Option<HashMap<(u64, u64), OwnedFd>>> = Mutex::new(None);

    pub(super) fn for_lease(
        directory: &BusDirectory,
        file: BusFile,
    ) -> Result<ParentOnlyFd, FileError> {
        let shared = for_tester(directory, file)?;
        Ok(ParentOnlyFd::open(|| Ok(shared)).expect("a mutant in a test"))
    }

    pub(super) fn for_tester(
        directory: &BusDirectory,
        file: BusFile,
    ) -> Result<OwnedFd, FileError> {
        let fresh = directory.open_file(file, Protection::Write)?;
        let stat = rustix::fs::fstat(&fresh).expect("a mutant in a test");
        let mut shared = SHARED.lock().expect("a mutant in a test");
        let identity = super::super::directory::identity(&stat);
        let shared = shared.get_or_insert_default().entry(identity).or_insert(fresh);
        Ok(shared.try_clone().expect("a mutant in a test"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::{
        TempDir, child_task, eventually, in_fork, in_own_process, start_child,
    };
    use std::io::{BufRead, BufReader};
    use std::os::fd::{AsRawFd, RawFd};

    const FILE: BusFile = BusFile::Readers;

    fn claim(bus: &BusDirectory, slot: u32) -> Option<Lease> {
        Lease::try_claim(bus, FILE, slot).unwrap()
    }

    /// A thread tests the lease of its living sibling through descriptors of the same process.
    #[test]
    fn a_lease_is_seen_within_its_own_process() {
        let root = TempDir::new();
        let bus = root.bus();
        let lease = claim(&bus, 2).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tester = LeaseTester::open(&bus, FILE).unwrap();
                assert!(tester.is_held(2).unwrap(), "a living sibling was found dead");
                assert!(!tester.is_held(1).unwrap());
                assert!(claim(&bus, 2).is_none(), "the lease of a living sibling was taken");
            });
        });
        drop(lease);
        assert!(!LeaseTester::open(&bus, FILE).unwrap().is_held(2).unwrap());
        assert!(claim(&bus, 2).is_some());
    }

    /// Shows why testers have descriptions of their own.
    #[test]
    fn a_description_never_reports_its_own_lock() {
        let root = TempDir::new();
        let bus = root.bus();
        let own = bus.open_file(FILE, Protection::Write).unwrap();
        assert!(ofd::try_lock(&own, Kind::Exclusive, byte_of(0)).unwrap());
        assert!(!ofd::is_refused(&own, Kind::Shared, byte_of(0)).unwrap());
        assert!(LeaseTester::open(&bus, FILE).unwrap().is_held(0).unwrap());
    }

    /// If all leases are free, one question shows it. A lease in between costs two more. The first of the tested
    /// leases that is held ends the test.
    #[test]
    fn leases_are_asked_for_in_bulk() {
        let root = TempDir::new();
        let bus = root.bus();
        let tester = LeaseTester::open(&bus, FILE).unwrap();
        let asked = std::cell::Cell::new(1);
        let census = |slots: &[u32]| {
            asked.set(1);
            let census = tester.census(slots, || {
                asked.set(asked.get() + 1);
                true
            });
            (census.unwrap(), asked.get())
        };
        let all: Vec<u32> = (0..1000).collect();
        let free = |parts: &[(u32, u32)]| {
            let free = parts.iter().map(|(start, end)| *start..*end).collect();
            Census { free, is_any_held: false }
        };
        assert_eq!(census(&[]), (free(&[]), 1));
        assert_eq!(census(&all), (free(&[(0, 1000)]), 1));
        let stranger = claim(&bus, 500).unwrap();
        let others: Vec<u32> = all.iter().copied().filter(|slot| *slot != 500).collect();
        assert_eq!(census(&others), (free(&[(0, 500), (501, 1000)]), 3));
        assert!(census(&all).0.is_any_held);
        assert_eq!(census(&[500]), (Census { free: Vec::new(), is_any_held: true }, 1));
        // One lock over all bytes of the file.
        let file = bus.open_file(FILE, Protection::Write).unwrap();
        drop(stranger);
        assert!(ofd::try_lock_all(&file).unwrap());
        assert_eq!(census(&[3, 900]), (Census { free: Vec::new(), is_any_held: true }, 1));
        drop(file);
        // `go_on` allows only one question.
        let _others: Vec<Lease> = (0..10).map(|at| claim(&bus, at * 3 + 1).unwrap()).collect();
        let slots: Vec<u32> = (0..10).map(|at| at * 3).collect();
        let census = tester.census(&slots, || false).unwrap();
        assert_eq!(census, Census::default(), "it asked once and found a lock in between");
        let census = tester.census(&slots, || true).unwrap();
        assert_eq!(census.free.iter().map(Range::len).sum::<usize>(), slots.len());
    }

    #[test]
    fn read_locks_are_no_leases() {
        let root = TempDir::new();
        let bus = root.bus();
        let reader = bus.open_file(FILE, Protection::Read).unwrap();
        assert!(ofd::try_lock(&reader, Kind::Shared, byte_of(1)).unwrap());
        assert!(!LeaseTester::open(&bus, FILE).unwrap().is_held(1).unwrap());
    }

    #[test]
    fn own_leases_are_known() {
        let root = TempDir::new();
        let bus = root.bus();
        let tester = LeaseTester::open(&bus, FILE).unwrap();
        let lease = claim(&bus, 0).unwrap();
        assert!(lease.is_held_by_us(&tester).unwrap());
        ofd::unlock(&lease.description, byte_of(0)).unwrap();
        assert!(!lease.is_held_by_us(&tester).unwrap());
        let other = claim(&bus, 0).unwrap();
        assert!(!lease.is_held_by_us(&tester).unwrap());
        assert!(other.is_held_by_us(&tester).unwrap());
        drop(lease);
        assert!(other.is_held_by_us(&tester).unwrap());
    }

    #[test]
    fn closing_all_descriptors_is_noticed() {
        in_own_process("shm::lease::tests::closing_all_descriptors_is_noticed", || {
            // Its descriptor is closed, too.
            let root = std::mem::ManuallyDrop::new(TempDir::new());
            let bus = root.bus();
            let lease = claim(&bus, 0).unwrap();
            // SAFETY: this is what daemonising code does. All handles of this process are leaked below.
            unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
            std::mem::forget(bus);
            let bus = BusDirectory::open(root.path(), "bus").unwrap();
            let tester = LeaseTester::open(&bus, FILE).unwrap();
            assert!(!lease.is_held_by_us(&tester).unwrap());
            std::mem::forget(lease);
            std::fs::remove_dir_all(root.path()).unwrap();
        });
    }

    /// Makes `number` stand for the description of `other`.
    fn replace(number: RawFd, other: &impl AsRawFd) {
        // SAFETY: both numbers are open in this process, which runs this test alone.
        let answer = unsafe { libc::dup3(other.as_raw_fd(), number, libc::O_CLOEXEC) };
        assert_eq!(answer, number);
    }

    #[test]
    fn a_tester_never_answers_for_another_description() {
        let name = "shm::lease::tests::a_tester_never_answers_for_another_description";
        in_own_process(name, || {
            let root = TempDir::new();
            let bus = root.bus();
            let owner = claim(&bus, 1).unwrap();
            let elsewhere = std::fs::File::open("/dev/zero").unwrap();
            let another_bus = TempDir::new();
            let another_bus = another_bus.bus().open_file(FILE, Protection::Read).unwrap();
            // Another file; the same file of another bus; and the description that holds the lease itself, which
            // never sees its own locks.
            let replacements: [&dyn AsRawFd; 3] = [&elsewhere, &another_bus, &owner.description];
            for replacement in replacements.map(AsRawFd::as_raw_fd) {
                let tester = LeaseTester::open(&bus, FILE).unwrap();
                assert!(tester.is_held(1).unwrap());
                replace(tester.0.as_raw_fd(), &replacement);
                assert!(tester.is_held(1).is_err(), "{:?}", tester.is_held(1));
                assert!(!owner.is_held_by_us(&tester).unwrap_or(false));
                drop(tester);
            }
            let tester = LeaseTester::open(&bus, FILE).unwrap();
            assert!(owner.is_held_by_us(&tester).unwrap(), "the drops above did not release it");
        });
    }

    #[test]
    fn a_lease_is_not_taken_for_a_later_one_with_its_number() {
        let name = "shm::lease::tests::a_lease_is_not_taken_for_a_later_one_with_its_number";
        in_own_process(name, || {
            let root = TempDir::new();
            let bus = root.bus();
            let tester = LeaseTester::open(&bus, FILE).unwrap();
            let early = claim(&bus, 0).unwrap();
            let number = early.description.as_raw_fd();
            // SAFETY: this is what daemonising code does, with one descriptor.
            unsafe { libc::close(number) };
            let late = claim(&bus, 0).unwrap();
            assert_eq!(late.description.as_raw_fd(), number);
            assert!(!early.is_held_by_us(&tester).unwrap());
            drop(early);
            assert!(late.is_held_by_us(&tester).unwrap(), "the drop released another lease");
        });
    }

    #[test]
    fn a_killed_process_frees_its_lease() {
        let name = "shm::lease::tests::a_killed_process_frees_its_lease";
        if let Some(root) = child_task() {
            let bus = BusDirectory::open(root.as_ref(), "bus").unwrap();
            let _lease = claim(&bus, 3).unwrap();
            println!("claimed");
            loop {
                std::thread::park();
            }
        }
        let root = TempDir::new();
        let bus = root.bus();
        let tester = LeaseTester::open(&bus, FILE).unwrap();
        let mut child = start_child(name, root.path().to_str().unwrap());
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap().ends_with("claimed")));
        assert!(tester.is_held(3).unwrap());
        assert!(claim(&bus, 3).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        eventually(|| !tester.is_held(3).unwrap());
        assert!(claim(&bus, 3).is_some());
    }

    #[test]
    fn a_forked_child_does_not_keep_a_lease() {
        in_own_process("shm::lease::tests::a_forked_child_does_not_keep_a_lease", || {
            let root = TempDir::new();
            let bus = root.bus();
            let tester = LeaseTester::open(&bus, FILE).unwrap();
            let lease = claim(&bus, 0).unwrap();
            let done = std::io::pipe().unwrap();
            // SAFETY: the child waits for the end of `done` and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(done.1);
                std::io::Read::read(&mut { done.0 }, &mut [0]).unwrap();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(0) };
            }
            drop(lease);
            assert!(!tester.is_held(0).unwrap(), "the child keeps the lease");
            drop(done);
            // SAFETY: our child.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        });
    }

    #[test]
    fn a_drop_in_a_forked_child_unlocks_nothing() {
        in_own_process("shm::lease::tests::a_drop_in_a_forked_child_unlocks_nothing", || {
            let root = TempDir::new();
            let bus = root.bus();
            let tester = LeaseTester::open(&bus, FILE).unwrap();
            let mut lease = claim(&bus, 0);
            in_fork(|| {
                assert!(!lease.as_ref().unwrap().is_held_by_us(&tester).unwrap());
                drop(lease.take());
            });
            assert!(lease.unwrap().is_held_by_us(&tester).unwrap());
        });
    }
}
