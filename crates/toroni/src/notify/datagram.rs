//! Waking by Unix datagrams: one socket for each subscriber, `sockets/<slot>.<generation>`, which any event loop
//! can poll.
//!
//! Every subscriber can write the directory, so its content is not trusted. This code follows no symbolic link,
//! opens nothing that could block, and changes the mode of sockets only. A socket's name consists of two integers.
//! It is reached through `/proc/self/fd`, which also avoids the limit of 107 bytes on the path of a socket.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::{ArmingSlot, Delivery, Waiter, drain, wait_readable};
use crate::hook::{self, CrashPoint, mutant};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chmod, fstat, openat, unlinkat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, send, sendto,
    socket_with,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A subscriber's socket. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct DatagramWaiter {
    socket: OwnedFd,
    directory: OwnedFd,
    name: String,
    abandoned: bool,
}

impl DatagramWaiter {
    /// Binds the socket of a slot whose lease the caller holds. `mode` says who may wake it.
    ///
    /// Because the caller holds the lease, this may remove what it finds under the slot's names: sockets of dead
    /// owners.
    pub(crate) fn bind(
        sockets_dir: BorrowedFd<'_>,
        slot: u32,
        generation: u32,
        mode: Mode,
    ) -> io::Result<Self> {
        let directory = reopen(sockets_dir)?;
        let name = file_name(slot, generation);
        remove_leftovers(directory.as_fd(), slot);
        let socket = unix_socket()?;
        let address = SocketAddrUnix::new(format!("{}/{name}", path_of(&directory)))?;
        bind(&socket, &address).map_err(|error| explain("bind", &name, error))?;
        let waiter = Self { socket, directory, name, abandoned: false };
        // After `bind`, because that applies the umask, which also masks the entries of an access control list.
        waiter.set_mode(mode)?;
        Ok(waiter)
    }

    /// Makes the drop keep the file. For the child of a `fork`, whose parent continues to use it.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Makes the socket readable, as a publisher would.
    pub(crate) fn nudge(&self) {
        if let Ok(address) =
            SocketAddrUnix::new(format!("{}/{}", path_of(&self.directory), self.name))
        {
            // If the queue is full, the socket is readable already.
            let _ = sendto(&self.socket, &[0], SendFlags::DONTWAIT, &address);
        }
    }

    /// Returns a socket that is connected to this one.
    pub(crate) fn sender(&self) -> io::Result<OwnedFd> {
        let socket = unix_socket()?;
        let address = SocketAddrUnix::new(format!("{}/{}", path_of(&self.directory), self.name))?;
        connect(&socket, &address).map_err(|error| explain("connect to", &self.name, error))?;
        Ok(socket)
    }

    fn set_mode(&self, mode: Mode) -> io::Result<()> {
        // Not by name: another user may have replaced the socket by a symbolic link meanwhile, so that this would
        // open a file of ours to everybody.
        let file = open_socket(self.directory.as_fd(), &self.name)
            .map_err(|error| explain("reopen", &self.name, error))?;
        chmod(path_of(&file), mode).map_err(|error| explain("chmod", &self.name, error))
    }
}

impl Waiter for DatagramWaiter {
    fn arm(&mut self, slot: ArmingSlot<'_>) {
        drain(self.socket.as_fd());
        slot.arm_descriptor();
        if mutant("socket_drained_after_arming") {
            drain(self.socket.as_fd());
        }
    }

    fn wait(&self, _slot: ArmingSlot<'_>, timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(self.socket.as_fd(), timeout)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl Drop for DatagramWaiter {
    fn drop(&mut self) {
        if !self.abandoned {
            // It does not matter if the file is already gone.
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// An active slot with a socket, as a publisher read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArmedSlot {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A publisher's connections to the sockets of subscribers.
#[derive(Debug)]
pub(crate) struct DatagramWaker {
    directory: OwnedFd,
    /// Slots from this number on do not exist, whatever was read from `readers`.
    max_subscribers: u32,
    round: Mutex<Round>,
}

/// What a delivery uses. One thread delivers at a time.
#[derive(Debug, Default)]
struct Round {
    /// Indexed by slot, at most `max_subscribers` long.
    addressees: Vec<Option<Addressee>>,
    /// Kept to reuse its memory.
    armed: Vec<ArmedSlot>,
}

#[derive(Debug)]
struct Addressee {
    generation: u32,
    /// `None` before the first datagram, and when no socket is there.
    socket: Option<OwnedFd>,
    /// Whether it was in the latest list.
    listed: bool,
}

/// How a delivery to one slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    /// Nothing to send: a datagram is already in the queue, or there is no subscriber.
    Settled,
    /// Out of memory or descriptors for now: the next message tries again.
    Postponed,
}

impl DatagramWaker {
    /// Sends to sockets in `sockets_dir`, and keeps at most `max_subscribers` connections.
    pub(crate) fn new(sockets_dir: BorrowedFd<'_>, max_subscribers: u32) -> io::Result<Self> {
        Ok(Self { directory: reopen(sockets_dir)?, max_subscribers, round: Mutex::default() })
    }

    /// Sends a datagram to each of these slots, which were armed. `list_armed` lists the active slots that have a socket.
    pub(super) fn deliver(
        &self,
        due: &[u32],
        list_armed: &mut dyn FnMut(&mut Vec<ArmedSlot>) -> io::Result<()>,
    ) -> Delivery {
        // If `list_armed` panicked, the list may be stale; it is cleared next.
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let mut armed = std::mem::take(&mut round.armed);
        armed.clear();
        let mut delivery = Delivery::default();
        if list_armed(&mut armed).is_err() {
            // The next message comes here again.
            delivery.postponed.extend_from_slice(due);
            round.armed = armed;
            return delivery;
        }
        round.forget_others(&armed);
        for slot in armed.iter().filter(|slot| due.contains(&slot.slot)) {
            hook::point(CrashPoint::MidWake);
            match self.deliver_to(&mut round, *slot) {
                Outcome::Sent => delivery.sent = delivery.sent.saturating_add(1),
                Outcome::Settled => {}
                Outcome::Postponed => delivery.postponed.push(slot.slot),
            }
        }
        round.armed = armed;
        delivery
    }

    fn deliver_to(&self, round: &mut Round, armed: ArmedSlot) -> Outcome {
        if armed.slot >= self.max_subscribers {
            return Outcome::Settled;
        }
        let mut result = self.send_to(round.addressee(armed), armed);
        if let Err(Errno::MFILE | Errno::NFILE) = result {
            // Out of descriptors: close the connections, which only save time, and try once more.
            for known in round.addressees.iter_mut().flatten() {
                known.socket = None;
            }
            result = self.send_to(round.addressee(armed), armed);
        }
        match result {
            Ok(()) => Outcome::Sent,
            // There is a datagram in the queue, so the subscriber is awake or about to be.
            Err(Errno::AGAIN) => Outcome::Settled,
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::INTR | Errno::MFILE | Errno::NFILE) => {
                Outcome::Postponed
            }
            // The socket is gone, is no socket, or may not be used: there is nothing to do until it is armed again.
            Err(_) => {
                round.addressee(armed).socket = None;
                Outcome::Settled
            }
        }
    }

    /// Sends one datagram. If the peer of the connection is gone, connects again once: the same slot may have bound
    /// a new socket.
    fn send_to(&self, addressee: &mut Addressee, armed: ArmedSlot) -> Result<(), Errno> {
        if let Some(socket) = &addressee.socket {
            match send_byte(socket) {
                Err(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET) => {}
                result => return result,
            }
        }
        let name = file_name(armed.slot, armed.generation);
        let socket = unix_socket()?;
        let file = open_socket(self.directory.as_fd(), &name)?;
        connect(&socket, &SocketAddrUnix::new(path_of(&file))?)?;
        send_byte(addressee.socket.insert(socket))
    }
}

impl Round {
    /// Returns the addressee of a slot: a new one if the slot has a new owner.
    fn addressee(&mut self, armed: ArmedSlot) -> &mut Addressee {
        let index = armed.slot as usize;
        if self.addressees.len() <= index {
            self.addressees.resize_with(index.saturating_add(1), || None);
        }
        let entry = &mut self.addressees[index];
        if entry.as_ref().is_some_and(|known| known.generation != armed.generation) {
            *entry = None;
        }
        entry.get_or_insert(Addressee { generation: armed.generation, socket: None, listed: true })
    }

    /// Closes the connections to slots that are no longer in the list.
    fn forget_others(&mut self, armed: &[ArmedSlot]) {
        for addressee in self.addressees.iter_mut().flatten() {
            addressee.listed = false;
        }
        for slot in armed {
            if let Some(Some(addressee)) = self.addressees.get_mut(slot.slot as usize) {
                addressee.listed = true;
            }
        }
        for entry in &mut self.addressees {
            if entry.as_ref().is_some_and(|addressee| !addressee.listed) {
                *entry = None;
            }
        }
    }
}

fn file_name(slot: u32, generation: u32) -> String {
    format!("{slot}.{generation}")
}

/// Returns the path under which the kernel shows an open file.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

fn send_byte(socket: &OwnedFd) -> Result<(), Errno> {
    send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(|_| ())
}

/// Returns a new descriptor for the directory, so that the caller may close its own.
fn reopen(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::empty())
}

/// Opens a file only if it is a socket with no other name: a second hard link may be another program's socket.
/// O_PATH has no side effects: a FIFO does not block, and a device does nothing.
fn open_socket(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket if stat.st_nlink == 1 => Ok(file),
        FileType::Socket => Err(Errno::MLINK),
        _ => Err(Errno::NOTSOCK),
    }
}

/// Removes all files with a name of `slot`, whatever they are. If one cannot be removed, `bind` fails later and
/// names it.
fn remove_leftovers(directory: BorrowedFd<'_>, slot: u32) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(entries) = openat(directory, ".", flags, Mode::empty()).and_then(Dir::new) else {
        return;
    };
    let prefix = format!("{slot}.");
    for entry in entries.flatten() {
        if entry.file_name().to_bytes().starts_with(prefix.as_bytes())
            && unlinkat(directory, entry.file_name(), AtFlags::empty()) == Err(Errno::ISDIR)
        {
            let _ = unlinkat(directory, entry.file_name(), AtFlags::REMOVEDIR);
        }
    }
}

fn explain(action: &str, name: &str, error: Errno) -> io::Error {
    let hint = match error {
        Errno::ADDRINUSE => "a file of that name cannot be removed: remove it by hand",
        Errno::ACCESS | Errno::PERM => {
            "subscribers need write access to the directory sockets of the bus"
        }
        Errno::NOENT => "it was removed, or /proc is not mounted",
        Errno::ROFS => "the directory of the bus is read-only",
        _ => "another program interferes with the directory sockets of the bus",
    };
    io::Error::new(
        io::Error::from(error).kind(),
        format!("cannot {action} the socket sockets/{name}: {error} ({hint})"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::conformance::{TestDirectory, open_directory};
    use super::*;
    use crate::sync::{AtomicU32, AtomicU64, Ordering};
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::path::Path;

    const MODE: Mode = Mode::from_bits_retain(0o666);

    fn with_slot<T>(arming: &[AtomicU32; 2], act: impl FnOnce(ArmingSlot<'_>) -> T) -> T {
        let ([word, flags], sleeps) = (Default::default(), AtomicU64::new(0));
        let asymmetric = &AtomicU32::new(0);
        let (word, sleeps, flags) = (&word, &sleeps, &flags);
        act(ArmingSlot { word, asymmetric, sleeps, arming, flags, needs_fence: 0 })
    }

    fn is_woken(waiter: &DatagramWaiter) -> bool {
        let mut byte = [0];
        with_slot(&Default::default(), |slot| waiter.wait(slot, Some(Duration::ZERO)).unwrap());
        rustix::net::recv(&waiter.socket, &mut byte, rustix::net::RecvFlags::DONTWAIT).is_ok()
    }

    /// Delivers to `slots` as if each had just been armed.
    fn deliver(waker: &DatagramWaker, slots: &[ArmedSlot]) -> usize {
        let due: Vec<u32> = slots.iter().map(|slot| slot.slot).collect();
        let delivery = waker.deliver(&due, &mut |armed| {
            armed.extend_from_slice(slots);
            Ok(())
        });
        assert!(delivery.postponed.is_empty());
        delivery.sent
    }

    fn armed(slot: u32, generation: u32) -> ArmedSlot {
        ArmedSlot { slot, generation }
    }

    fn make_fifo(path: &Path) {
        use rustix::fs::{CWD, mknodat};
        mknodat(CWD, path, FileType::Fifo, MODE, 0).unwrap();
    }

    #[test]
    fn binding_sets_the_mode_and_dropping_removes_the_file() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let path = root.path.join("3.9");
        let waiter = DatagramWaiter::bind(directory.as_fd(), 3, 9, MODE).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.mode() & 0o7777, 0o666);
        drop(waiter);
        assert!(!path.exists());
        let mut waiter = DatagramWaiter::bind(directory.as_fd(), 3, 9, MODE).unwrap();
        waiter.abandon();
        drop(waiter);
        assert!(path.exists());
    }

    #[test]
    fn whatever_stands_under_the_name_is_replaced() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let victim = root.path.join("victim");
        fs::write(&victim, b"secret").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let name = root.path.join("0.1");
        let plants: [&dyn Fn(); 5] = [
            &|| drop(UnixDatagram::bind(&name).unwrap()),
            &|| make_fifo(&name),
            &|| symlink(&victim, &name).unwrap(),
            &|| fs::create_dir(&name).unwrap(),
            &|| fs::write(&name, b"").unwrap(),
        ];
        for plant in plants {
            plant();
            let waiter = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap();
            let waker = DatagramWaker::new(directory.as_fd(), 1).unwrap();
            assert_eq!(deliver(&waker, &[armed(0, 1)]), 1);
            assert!(is_woken(&waiter));
        }
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read(&victim).unwrap(), b"secret");
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        fs::create_dir_all(root.path.join("0.1/full")).unwrap();
        let error = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap_err().to_string();
        assert!(error.contains("sockets/0.1") && error.contains("remove it by hand"), "{error}");
    }

    #[test]
    fn sockets_of_dead_owners_go_and_those_of_other_slots_stay() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        for name in ["1.1", "1.2", "11.1", "2.1"] {
            drop(UnixDatagram::bind(root.path.join(name)).unwrap());
        }
        let _waiter = DatagramWaiter::bind(directory.as_fd(), 1, 3, MODE).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&root.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["1.3", "11.1", "2.1"]);
    }

    #[test]
    fn no_symbolic_link_is_followed_while_the_mode_is_set() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let victim = root.path.join("victim");
        fs::write(&victim, b"").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let waiter = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap();
        let name = root.path.join("0.1");
        fs::remove_file(&name).unwrap();
        symlink(&victim, &name).unwrap();
        waiter.set_mode(MODE).unwrap_err();
        fs::remove_file(&name).unwrap();
        fs::hard_link(&victim, &name).unwrap();
        waiter.set_mode(MODE).unwrap_err();
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_waker_ignores_what_is_no_socket_of_a_subscriber() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let at = |name: &str| root.path.join(name);
        make_fifo(&at("0.1"));
        let elsewhere = UnixDatagram::bind(at("elsewhere")).unwrap();
        symlink(at("elsewhere"), at("1.1")).unwrap();
        fs::create_dir(at("2.1")).unwrap();
        let _stream = UnixListener::bind(at("3.1")).unwrap();
        fs::write(at("4.1"), b"").unwrap();
        drop(UnixDatagram::bind(at("5.1")).unwrap());
        fs::hard_link(at("elsewhere"), at("6.1")).unwrap();
        let waiter = DatagramWaiter::bind(directory.as_fd(), 7, 1, MODE).unwrap();
        let waker = DatagramWaker::new(directory.as_fd(), 8).unwrap();
        // Slot 8 and the last one exceed the limit.
        let slots: Vec<_> = (0..=8).chain([u32::MAX]).map(|slot| armed(slot, 1)).collect();
        assert_eq!(deliver(&waker, &slots), 1);
        assert!(is_woken(&waiter));
        elsewhere.set_nonblocking(true).unwrap();
        elsewhere.recv(&mut [0]).unwrap_err();
        assert!(waker.round.lock().unwrap().addressees.len() <= 8);
    }

    #[test]
    fn only_who_is_due_gets_a_datagram_and_arming_empties_the_queue() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let mut waiter = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap();
        let waker = DatagramWaker::new(directory.as_fd(), 2).unwrap();
        let listed = |armed_slots: &mut Vec<ArmedSlot>| {
            armed_slots.push(armed(0, 1));
            Ok(())
        };
        assert_eq!(waker.deliver(&[1], &mut { listed }).sent, 0);
        assert!(!is_woken(&waiter));
        assert_eq!(deliver(&waker, &[armed(0, 1)]), 1);
        let arming = Default::default();
        with_slot(&arming, |slot| waiter.arm(slot));
        assert_eq!(arming.each_ref().map(|count| count.load(Ordering::Relaxed)), [0, 1]);
        assert!(!is_woken(&waiter), "arming emptied the queue");
        assert_eq!(deliver(&waker, &[armed(0, 1)]), 1);
        assert!(is_woken(&waiter));
    }

    #[test]
    fn a_full_queue_needs_nothing_and_holds_up_no_other() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let mut stuck = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap();
        let other = DatagramWaiter::bind(directory.as_fd(), 1, 1, MODE).unwrap();
        let waker = DatagramWaker::new(directory.as_fd(), 2).unwrap();
        // Far more than net.unix.max_dgram_qlen and the buffer of a socket allow.
        for arms in 0..5000 {
            let sent = deliver(&waker, &[armed(0, 1), armed(1, 1)]);
            assert!(is_woken(&other));
            assert!(sent == 2 || (sent == 1 && arms > 0), "{sent} at {arms}");
        }
        with_slot(&Default::default(), |slot| stuck.arm(slot));
        assert_eq!(deliver(&waker, &[armed(0, 1)]), 1);
    }

    #[test]
    fn the_next_owner_of_a_slot_is_reached() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let waker = DatagramWaker::new(directory.as_fd(), 1).unwrap();
        let first = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap();
        assert_eq!(deliver(&waker, &[armed(0, 1)]), 1);
        drop(first);
        // Even with the same count of armings, and even if bound again under the same generation.
        let second = DatagramWaiter::bind(directory.as_fd(), 0, 2, MODE).unwrap();
        assert_eq!(deliver(&waker, &[armed(0, 2)]), 1);
        assert!(is_woken(&second));
        drop(second);
        let third = DatagramWaiter::bind(directory.as_fd(), 0, 2, MODE).unwrap();
        assert_eq!(deliver(&waker, &[armed(0, 2)]), 1);
        assert!(is_woken(&third));
    }

    #[test]
    fn connections_to_those_who_left_are_closed() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let waker = DatagramWaker::new(directory.as_fd(), 2).unwrap();
        let _both =
            [0, 1].map(|slot| DatagramWaiter::bind(directory.as_fd(), slot, 1, MODE).unwrap());
        assert_eq!(deliver(&waker, &[armed(0, 1), armed(1, 1)]), 2);
        assert_eq!(deliver(&waker, &[armed(1, 1)]), 1);
        let round = waker.round.lock().unwrap();
        assert!(round.addressees[0].is_none() && round.addressees[1].is_some());
    }

    #[test]
    fn a_list_that_cannot_be_read_is_asked_for_again() {
        let root = TestDirectory::new();
        let directory = open_directory(&root.path);
        let waker = DatagramWaker::new(directory.as_fd(), 1).unwrap();
        let delivery = waker.deliver(&[0], &mut |_| Err(Errno::IO.into()));
        assert_eq!((delivery.sent, delivery.postponed), (0, vec![0]));
    }

    #[test]
    fn paths_may_be_longer_than_an_address() {
        let root = TestDirectory::new();
        let deep = root.path.join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let directory = open_directory(&deep);
        let waiter = DatagramWaiter::bind(directory.as_fd(), 0, 1, MODE).unwrap();
        let waker = DatagramWaker::new(directory.as_fd(), 1).unwrap();
        assert_eq!(deliver(&waker, &[armed(0, 1)]), 1);
        assert!(is_woken(&waiter));
    }
}
