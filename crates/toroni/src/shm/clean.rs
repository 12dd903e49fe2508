//! What dead processes left behind, and the buses that are there.
//!
//! Nothing here trusts names: the root may be writable for everybody. No symbolic link is followed;
//! files with further hard links, and directories with files that are no bus's, are left alone; and
//! every removal is relative to a directory that was opened and looked at before.

use super::create::entries;
use super::directory::{
    BusDirectory, BusFile, SOCKETS, check_name, failed, identity, open_root, random_name,
    still_names,
};
use super::fork::ParentOnlyFd;
use super::header::Header;
use super::lease::{Lease, LeaseTester};
use super::mapping::{Mapping, Protection};
use super::ofd::{self, Kind};
use super::participants::{check, generation_of, state_of};
use super::ring_file::{RingFile, read_header};
use crate::crash::{self, CrashPoint};
use crate::error::OpenError;
use crate::ring::layout::{BUS_LOCK_OFFSET, SLOT_FREE};
use crate::ring::position::to_index;
use crate::sync::Ordering;
use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A bus, as `toroni ls` shows it.
#[derive(Debug)]
pub(crate) struct BusEntry {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Its header, or why it cannot be opened.
    pub(crate) header: Result<Header, OpenError>,
    /// Whether any process has it open; `None` if that cannot be seen.
    pub(crate) is_held: Option<bool>,
}

/// What [`clean`] did, or would do.
#[derive(Debug, Default)]
pub(crate) struct CleanReport {
    pub(crate) freed_slots: Vec<FreedSlot>,
    pub(crate) removed_sockets: Vec<PathBuf>,
    pub(crate) removed_buses: Vec<PathBuf>,
    /// Half-built buses of creators that died, half-removed ones of cleaners that died.
    pub(crate) removed_leftovers: Vec<PathBuf>,
    pub(crate) skipped: Vec<Skipped>,
}

/// A slot whose owner died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreedSlot {
    pub(crate) bus: String,
    pub(crate) file: BusFile,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Something that may be rubbish and was left alone.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

/// The buses below `root`, by name. A root that is not there has none.
pub(crate) fn list(root: &Path) -> Result<Vec<BusEntry>, OpenError> {
    let Some((root_fd, mut names)) = open_and_list(root)? else { return Ok(Vec::new()) };
    names.retain(|name| check_name(name).is_ok());
    names.sort();
    let mut buses = Vec::new();
    for name in names {
        let Ok(directory) = open_below(&root_fd, root, &name) else { continue };
        let path = directory.path().to_owned();
        let (header, is_held) = match directory.open_file(BusFile::Ring, Protection::Read) {
            Err(OpenError::NotFound { .. }) => continue,
            Err(error) => (Err(error), None),
            Ok(ring) => (
                read_header(ring.as_fd(), &directory),
                ofd::is_refused(&ring, Kind::Exclusive, BUS_LOCK_OFFSET).ok(),
            ),
        };
        buses.push(BusEntry { name, path, header, is_held });
    }
    Ok(buses)
}

/// Frees slots and sockets of the dead, and removes what nobody uses: buses without any handle,
/// unless they are persistent, and leftovers. Of one bus if `name` is given, which then may also be
/// one whose header cannot be read; else of all below `root`. With `dry_run` it only reports.
pub(crate) fn clean(
    root: &Path,
    name: Option<&str>,
    dry_run: bool,
) -> Result<CleanReport, OpenError> {
    if let Some(name) = name {
        check_name(name)?;
    }
    let mut cleaner = Cleaner { dry_run, is_named: name.is_some(), report: CleanReport::default() };
    let Some((root_fd, mut names)) = open_and_list(root)? else { return Ok(cleaner.report) };
    names.sort();
    let mut found = false;
    for entry in names {
        let leftover_of = bus_of_leftover(&entry);
        let bus = leftover_of.unwrap_or(&entry);
        if check_name(bus).is_err() || name.is_some_and(|name| name != bus) {
            continue;
        }
        match open_below(&root_fd, root, &entry) {
            Ok(directory) if leftover_of.is_some() => cleaner.leftover(&directory),
            Ok(directory) => cleaner.bus(&directory),
            Err(OpenError::NotFound { .. }) => continue,
            // A file or a link. Not ours.
            Err(error) => cleaner.skip_if_named(&root.join(&entry), error.to_string()),
        }
        found = true;
    }
    match name {
        Some(name) if !found => Err(OpenError::NotFound { path: root.join(name) }),
        _ => Ok(cleaner.report),
    }
}

struct Cleaner {
    dry_run: bool,
    is_named: bool,
    report: CleanReport,
}

/// What is known of a bus before something is removed.
enum Use {
    /// Nobody has it open, and nobody can open it until the descriptor is closed.
    Nobody(ParentOnlyFd),
    Somebody,
}

impl Cleaner {
    fn bus(&mut self, directory: &BusDirectory) {
        match self.try_remove(directory) {
            Ok(true) => return,
            Ok(false) => {}
            Err(why) => return self.skip(directory.path(), why),
        }
        // It stays: somebody uses it, or it is persistent.
        match RingFile::open(directory, Protection::Read) {
            Ok(ring) => {
                for file in [BusFile::Publishers, BusFile::Readers] {
                    if let Err(error) = self.free_slots(directory, ring.header(), file) {
                        self.skip(&directory.path().join(file.name()), error.to_string());
                    }
                }
                if let Err(error) = self.remove_sockets(directory, ring.header()) {
                    self.skip(&directory.path().join(SOCKETS), error.to_string());
                }
            }
            Err(OpenError::NotFound { .. }) => {}
            Err(error) => self.skip(directory.path(), error.to_string()),
        }
    }

    /// `true` if the bus was, or would be, removed; an error if it cannot be, and is no bus to be
    /// cleaned otherwise.
    fn try_remove(&mut self, directory: &BusDirectory) -> Result<bool, String> {
        let ring = match self.look_at_use(directory) {
            Ok(Use::Nobody(ring)) => ring,
            Ok(Use::Somebody) => {
                self.skip_if_named(directory.path(), "it is in use".to_owned());
                return Ok(false);
            }
            // No bus, or none any more.
            Err(OpenError::NotFound { .. }) => return Ok(true),
            Err(error) => return Err(error.to_string()),
        };
        match read_header(ring.as_fd(), directory) {
            Ok(header) if header.settings.persistent => {
                self.skip_if_named(directory.path(), "it is persistent".to_owned());
                return Ok(false);
            }
            Ok(_) => {}
            Err(error @ OpenError::NotABus { .. }) => return Err(error.to_string()),
            // It may be a persistent one, or one of another release.
            Err(error) if !self.is_named => {
                return Err(format!("{error} (`toroni clean {}` removes it)", directory.name()));
            }
            Err(_) => {}
        }
        if let Some(stranger) = stranger_in(directory)? {
            return Err(format!("it holds {stranger:?}, which is no part of a bus"));
        }
        if !self.dry_run {
            self.take_name_and_remove(directory)?;
        }
        self.report.removed_buses.push(directory.path().to_owned());
        Ok(true)
    }

    fn look_at_use(&self, directory: &BusDirectory) -> Result<Use, OpenError> {
        let protection = if self.dry_run { Protection::Read } else { Protection::Write };
        let ring = ParentOnlyFd::open(|| directory.open_file(BusFile::Ring, protection))?;
        let answer = if self.dry_run {
            ofd::is_refused(&ring, Kind::Exclusive, BUS_LOCK_OFFSET).map(|refused| !refused)
        } else {
            ofd::try_lock(&ring, Kind::Exclusive, BUS_LOCK_OFFSET)
        };
        match answer {
            Ok(true) => Ok(Use::Nobody(ring)),
            Ok(false) => Ok(Use::Somebody),
            Err(error) => Err(failed("lock", &directory.path().join("ring"), error)),
        }
    }

    /// Takes the name away first: whoever comes now makes a new bus, and does not meet half of this.
    fn take_name_and_remove(&self, directory: &BusDirectory) -> Result<(), String> {
        let root = directory.root();
        let leftover = format!(".{}.{}", directory.name(), random_name());
        if !directory.is_still_named() {
            return Ok(());
        }
        match rustix::fs::renameat_with(
            root,
            directory.name(),
            root,
            &*leftover,
            RenameFlags::NOREPLACE,
        ) {
            Ok(()) => {
                crash::point(CrashPoint::MidClean);
                remove_content(directory).map_err(|errno| explain("remove", errno))?;
                remove_empty(directory, &leftover)
            }
            // A mount point stays. `ring` goes first, and with it the bus.
            Err(Errno::BUSY) => remove_content(directory),
            Err(errno) => Err(errno),
        }
        .map_err(|errno| explain("remove", errno))
    }

    fn leftover(&mut self, directory: &BusDirectory) {
        let path = directory.path().to_owned();
        match self.look_at_use(directory) {
            // Its creator, or its cleaner, is at work.
            Ok(Use::Somebody) => return,
            // With no `ring` yet: a creator whose directory vanishes starts again.
            Ok(Use::Nobody(_)) | Err(OpenError::NotFound { .. }) => {}
            Err(error) => return self.skip(&path, error.to_string()),
        }
        match stranger_in(directory) {
            Ok(None) => {}
            Ok(Some(stranger)) => {
                return self
                    .skip(&path, format!("it holds {stranger:?}, which is no part of a bus"));
            }
            Err(why) => return self.skip(&path, why),
        }
        if !self.dry_run {
            let removed =
                remove_content(directory).and_then(|()| remove_empty(directory, directory.name()));
            if let Err(errno) = removed {
                return self.skip(&path, explain("remove", errno));
            }
        }
        self.report.removed_leftovers.push(path);
    }

    fn free_slots(
        &mut self,
        directory: &BusDirectory,
        header: &Header,
        file: BusFile,
    ) -> Result<(), OpenError> {
        let protection = if self.dry_run { Protection::Read } else { Protection::Write };
        let fd = directory.open_file(file, protection)?;
        check(&fd, header, file, directory)?;
        let length = to_index(header.file_bytes(file));
        let os = |error| failed("clean", &directory.path().join(file.name()), error);
        let mapping = Mapping::file(&fd, length, protection).map_err(os)?;
        let tester = LeaseTester::open(directory, file)?;
        for slot in 0..header.slots(file) {
            let Some(state) = state_of(&mapping, file, slot) else { break };
            if state.load(Ordering::Acquire) == SLOT_FREE || tester.is_held(slot).map_err(os)? {
                continue;
            }
            if !self.dry_run {
                let Some(lease) = Lease::try_claim(directory, file, slot)? else { continue };
                // Nobody but the owner of the lease writes the state; look again, now that it is us.
                if state.load(Ordering::Acquire) == SLOT_FREE {
                    continue;
                }
                state.store(SLOT_FREE, Ordering::Release);
                drop(lease);
            }
            let generation = generation_of(&mapping, file, slot)
                .map_or(0, |generation| generation.load(Ordering::Relaxed));
            let bus = directory.name().to_owned();
            self.report.freed_slots.push(FreedSlot { bus, file, slot, generation });
        }
        Ok(())
    }

    fn remove_sockets(
        &mut self,
        directory: &BusDirectory,
        header: &Header,
    ) -> Result<(), OpenError> {
        let sockets = directory.open_sockets()?;
        let path = directory.path().join(SOCKETS);
        let os = |error| failed("clean", &path, error);
        // The names first, the generations after: a socket that a living subscriber has by now is
        // of the generation that is read then.
        let names = entries(sockets.as_fd()).map_err(os)?;
        if names.is_empty() {
            return Ok(());
        }
        let fd = directory.open_file(BusFile::Readers, Protection::Read)?;
        check(&fd, header, BusFile::Readers, directory)?;
        let length = to_index(header.file_bytes(BusFile::Readers));
        let readers = Mapping::file(&fd, length, Protection::Read).map_err(os)?;
        let tester = LeaseTester::open(directory, BusFile::Readers)?;
        for name in names {
            let Some((slot, generation)) = socket_name(&name) else {
                self.skip(&path.join(&name), "it is no subscriber's socket".to_owned());
                continue;
            };
            let is_alive = slot < header.settings.max_subscribers
                && generation_of(&readers, BusFile::Readers, slot)
                    .is_some_and(|now| now.load(Ordering::Acquire) == generation)
                && tester.is_held(slot).map_err(os)?;
            if is_alive {
                continue;
            }
            if !self.dry_run
                && let Err(errno) = remove_socket(&sockets, &name)
            {
                self.skip(&path.join(&name), explain("remove", errno));
                continue;
            }
            self.report.removed_sockets.push(path.join(&name));
        }
        Ok(())
    }

    fn skip(&mut self, path: &Path, why: String) {
        self.report.skipped.push(Skipped { path: path.to_owned(), why });
    }

    fn skip_if_named(&mut self, path: &Path, why: String) {
        if self.is_named {
            self.skip(path, why);
        }
    }
}

fn open_and_list(root: &Path) -> Result<Option<(OwnedFd, Vec<String>)>, OpenError> {
    match open_root(root) {
        Ok(fd) => {
            let names = entries(fd.as_fd()).map_err(|error| failed("list", root, error))?;
            Ok(Some((fd, names)))
        }
        Err(OpenError::MissingDirectory { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_below(root: &OwnedFd, path: &Path, name: &str) -> Result<BusDirectory, OpenError> {
    let root = root.try_clone().map_err(|error| failed("open", path, error))?;
    BusDirectory::open_at(root, name.to_owned(), path.join(name))
}

/// `bus` of `.bus.0123456789abcdef`.
fn bus_of_leftover(name: &str) -> Option<&str> {
    let (bus, random) = name.strip_prefix('.')?.rsplit_once('.')?;
    is_random(random).then_some(bus)
}

fn is_random(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Slot and generation of `3.17`.
fn socket_name(name: &str) -> Option<(u32, u32)> {
    let (slot, generation) = name.split_once('.')?;
    let (slot, generation) = (slot.parse().ok()?, generation.parse().ok()?);
    // Only as it is written by subscribers: no signs, no leading zeros.
    (format!("{slot}.{generation}") == name).then_some((slot, generation))
}

/// Something in the directory of a bus that is not of a bus, if there is any.
fn stranger_in(directory: &BusDirectory) -> Result<Option<String>, String> {
    let describe = |error: std::io::Error| format!("it cannot be listed: {error}");
    let fd = directory.dirfd();
    for name in entries(fd).map_err(describe)? {
        let Ok(stat) = rustix::fs::statat(fd, &*name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let base = draft_of(&name).unwrap_or(&name);
        let fits = match base {
            "ring" | "publishers" | "readers" => {
                kind == FileType::RegularFile && stat.st_nlink == 1
            }
            SOCKETS | "lost+found" => kind == FileType::Directory,
            _ => false,
        };
        if !fits {
            return Ok(Some(name));
        }
    }
    let Ok(sockets) = directory.open_sockets() else { return Ok(None) };
    let strange =
        |name: &String| socket_name(name).is_none() || !is_socket(&sockets, name).unwrap_or(true);
    let found = entries(sockets.as_fd()).map_err(describe)?.into_iter().find(strange);
    Ok(found.map(|name| format!("{SOCKETS}/{name}")))
}

/// `ring` of `.ring.0123456789abcdef`.
fn draft_of(name: &str) -> Option<&str> {
    bus_of_leftover(name).filter(|base| *base != "lost+found")
}

/// Removes what [`stranger_in`] looked at; what is gone already is gone.
fn remove_content(directory: &BusDirectory) -> Result<(), Errno> {
    let fd = directory.dirfd();
    if let Ok(sockets) = directory.open_sockets() {
        for name in entries(sockets.as_fd()).map_err(|_| Errno::ACCESS)? {
            if socket_name(&name).is_some() {
                remove_socket(&sockets, &name)?;
            }
        }
    }
    unlink(fd, BusFile::Ring.name(), AtFlags::empty())?;
    for name in entries(fd).map_err(|_| Errno::ACCESS)? {
        match draft_of(&name).unwrap_or(&name) {
            "ring" | "publishers" | "readers" => unlink(fd, &name, AtFlags::empty())?,
            SOCKETS => unlink(fd, &name, AtFlags::REMOVEDIR)?,
            _ => {}
        }
    }
    Ok(())
}

fn remove_empty(directory: &BusDirectory, name: &str) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(directory.dirfd())?;
    if still_names(directory.root(), name, identity(&stat)) {
        unlink(directory.root(), name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn remove_socket(sockets: &OwnedFd, name: &str) -> Result<(), Errno> {
    match is_socket(sockets, name) {
        Ok(true) => unlink(sockets.as_fd(), name, AtFlags::empty()),
        Ok(false) => Err(Errno::NOTSOCK),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn is_socket(sockets: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(sockets, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

fn unlink(directory: BorrowedFd<'_>, name: &str, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        answer => answer,
    }
}

fn explain(action: &str, errno: Errno) -> String {
    format!("cannot {action} it: {}", std::io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::layout::SLOT_ACTIVE;
    use crate::settings::Settings;
    use crate::shm::acl::Permissions;
    use crate::shm::create;
    use crate::shm::participants::{PublishersSegment, ReadersSegment};
    use crate::shm::testing::{TempDir, in_own_process, mount_tmpfs, names, own_mounts, small};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixDatagram;

    fn persistent() -> Settings {
        Settings { persistent: true, ..small() }
    }

    fn make(root: &TempDir, name: &str, settings: &Settings) -> BusDirectory {
        create::create(root.path(), name, settings, &Permissions::default()).unwrap()
    }

    fn run(root: &TempDir, name: Option<&str>) -> CleanReport {
        let planned = clean(root.path(), name, true).unwrap();
        let done = clean(root.path(), name, false).unwrap();
        assert_eq!(format!("{planned:?}"), format!("{done:?}"), "the dry run said otherwise");
        done
    }

    #[test]
    fn buses_are_listed() {
        let root = TempDir::new();
        assert!(list(&root.path().join("none")).unwrap().is_empty());
        make(&root, "b", &small());
        make(&root, "a", &persistent());
        std::fs::create_dir(root.path().join("no-bus")).unwrap();
        std::fs::write(root.path().join("file"), b"").unwrap();
        symlink("a", root.path().join("link")).unwrap();
        std::fs::create_dir(root.path().join("broken")).unwrap();
        std::fs::write(root.path().join("broken/ring"), b"?").unwrap();
        let _open = create::open(root.path(), "b").unwrap();
        let buses = list(root.path()).unwrap();
        let shown: Vec<_> =
            buses.iter().map(|bus| (&*bus.name, bus.header.is_ok(), bus.is_held)).collect();
        assert_eq!(
            shown,
            [("a", true, Some(false)), ("b", true, Some(true)), ("broken", false, Some(false))]
        );
    }

    #[test]
    fn buses_that_nobody_uses_are_removed() {
        let root = TempDir::new();
        make(&root, "idle", &small());
        make(&root, "used", &small());
        make(&root, "kept", &persistent());
        let _used = create::open(root.path(), "used").unwrap();
        assert_eq!(run(&root, None).removed_buses, [root.path().join("idle")]);
        assert_eq!(root.names(), ["kept", "used"]);
        for (name, why) in [("used", "in use"), ("kept", "persistent")] {
            let report = run(&root, Some(name));
            assert!(report.removed_buses.is_empty());
            assert!(report.skipped[0].why.contains(why), "{report:?}");
        }
        assert!(matches!(clean(root.path(), Some("gone"), false), Err(OpenError::NotFound { .. })));
    }

    #[test]
    fn slots_and_sockets_of_the_dead_are_freed() {
        let root = TempDir::new();
        let bus = make(&root, "bus", &small());
        let (_, ring) = create::open(root.path(), "bus").unwrap();
        let header = ring.header();
        let readers = ReadersSegment::open(&bus, header, Protection::Write).unwrap();
        let publishers = PublishersSegment::open(&bus, header).unwrap();
        // Slot 0 lives, slot 1 is dead, slot 2 was left properly; slot 0 had a former owner.
        let _alive = Lease::try_claim(&bus, BusFile::Readers, 0).unwrap().unwrap();
        for (slot, generation, state) in [(0, 5, SLOT_ACTIVE), (1, 7, SLOT_ACTIVE), (2, 9, 0)] {
            readers.slot(slot).generation.store(generation, Ordering::Relaxed);
            readers.slot(slot).state.store(state, Ordering::Relaxed);
        }
        publishers.slot(3).state.store(SLOT_ACTIVE, Ordering::Relaxed);
        let sockets = bus.path().join(SOCKETS);
        for name in ["0.4", "0.5", "1.7", "2.9", "99.1"] {
            UnixDatagram::bind(sockets.join(name)).unwrap();
        }
        std::fs::write(sockets.join("note"), b"").unwrap();
        std::fs::write(sockets.join("2.8"), b"no socket").unwrap();

        let planned = clean(root.path(), None, true).unwrap();
        assert_eq!(planned.freed_slots.len(), 2);
        assert_eq!(readers.slot(1).state.load(Ordering::Relaxed), SLOT_ACTIVE);
        let done = clean(root.path(), None, false).unwrap();
        let slot =
            |file, slot, generation| FreedSlot { bus: "bus".to_owned(), file, slot, generation };
        assert_eq!(
            done.freed_slots,
            [slot(BusFile::Publishers, 3, 0), slot(BusFile::Readers, 1, 7)]
        );
        assert_eq!(planned.freed_slots, done.freed_slots);
        assert_eq!(readers.slot(0).state.load(Ordering::Relaxed), SLOT_ACTIVE);
        assert_eq!(readers.slot(1).state.load(Ordering::Relaxed), SLOT_FREE);
        assert_eq!(names(&sockets), ["0.5", "2.8", "note"]);
        assert_eq!(done.skipped.len(), 2, "{:?}", done.skipped);
        assert!(clean(root.path(), None, false).unwrap().freed_slots.is_empty());
    }

    #[test]
    fn leftovers_are_removed_unless_somebody_builds() {
        let root = TempDir::new();
        let random = "0123456789abcdef";
        let leftover = |name: &str| root.path().join(format!(".{name}.{random}"));
        for name in ["dead", "building"] {
            let bus = make(&root, name, &small());
            std::fs::rename(bus.path(), leftover(name)).unwrap();
        }
        std::fs::create_dir(leftover("empty")).unwrap();
        std::fs::create_dir(leftover("private")).unwrap();
        std::fs::write(leftover("private").join("letter.txt"), b"dear").unwrap();
        std::fs::create_dir(root.path().join(".other")).unwrap();
        let builder = std::fs::File::open(leftover("building").join("ring")).unwrap();
        assert!(ofd::try_lock(&builder, Kind::Shared, BUS_LOCK_OFFSET).unwrap());
        let report = run(&root, None);
        assert_eq!(report.removed_leftovers, [leftover("dead"), leftover("empty")]);
        assert_eq!(report.skipped.len(), 1, "{report:?}");
        assert_eq!(
            root.names(),
            [format!(".building.{random}"), ".other".to_owned(), format!(".private.{random}")]
        );
    }

    #[test]
    fn tricks_with_links_and_strangers_remove_nothing() {
        let root = TempDir::new();
        let precious = TempDir::new();
        std::fs::write(precious.path().join("3.1"), b"gold").unwrap();
        std::fs::write(precious.path().join("ring"), b"gold").unwrap();
        // The directory is a link; its ring is a link; its sockets are a link; a hard link; a
        // stranger among the files; a directory in the place of a socket.
        symlink(precious.path(), root.path().join("a")).unwrap();
        std::fs::create_dir(root.path().join("b")).unwrap();
        symlink(precious.path().join("ring"), root.path().join("b/ring")).unwrap();
        for name in ["c", "d", "e", "f"] {
            make(&root, name, &small());
        }
        std::fs::remove_dir(root.path().join("c/sockets")).unwrap();
        symlink(precious.path(), root.path().join("c/sockets")).unwrap();
        std::fs::hard_link(root.path().join("d/ring"), precious.path().join("linked")).unwrap();
        std::fs::write(root.path().join("e/letter.txt"), b"dear").unwrap();
        std::fs::create_dir(root.path().join("f/sockets/1.1")).unwrap();
        let report = run(&root, None);
        assert!(report.removed_buses.is_empty(), "{report:?}");
        assert_eq!(report.skipped.len(), 5, "{report:?}");
        assert_eq!(precious.names(), ["3.1", "linked", "ring"]);
        assert_eq!(names(&root.path().join("e")).len(), 5);
        assert_eq!(names(&root.path().join("f")).len(), 4);
    }

    #[test]
    fn unreadable_buses_go_only_by_name() {
        let root = TempDir::new();
        let bus = make(&root, "bus", &small());
        let ring = std::fs::File::options().write(true).open(bus.path().join("ring")).unwrap();
        ring.set_len(5000).unwrap();
        std::fs::create_dir(root.path().join("text")).unwrap();
        std::fs::write(root.path().join("text/ring"), b"not a bus at all").unwrap();
        let report = run(&root, None);
        assert!(report.removed_buses.is_empty());
        assert_eq!(report.skipped.len(), 2);
        assert_eq!(run(&root, Some("bus")).removed_buses.len(), 1);
        assert!(run(&root, Some("text")).removed_buses.is_empty());
        assert_eq!(root.names(), ["text"]);
    }

    #[test]
    fn a_mount_point_is_emptied() {
        in_own_process("shm::clean::tests::a_mount_point_is_emptied", || {
            if !own_mounts() {
                return eprintln!("skipped: mounting needs root");
            }
            let root = TempDir::new();
            let path = root.path().join("bus");
            std::fs::create_dir(&path).unwrap();
            let _mount = mount_tmpfs(&path, "", 0);
            make(&root, "bus", &small());
            assert_eq!(run(&root, None).removed_buses.len(), 1);
            assert!(names(&path).is_empty());
            make(&root, "bus", &small());
        });
    }

    /// Openers, creators and a cleaner at once: whoever got a bus has one that is whole.
    #[test]
    fn cleaning_races_with_opening() {
        let root = TempDir::new();
        std::thread::scope(|scope| {
            let openers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let (bus, ring, _) = create::open_or_create(
                                root.path(),
                                "bus",
                                &small(),
                                &Permissions::default(),
                            )
                            .unwrap();
                            assert!(!ring.is_unlinked());
                            ReadersSegment::open(&bus, ring.header(), Protection::Write).unwrap();
                        }
                    })
                })
                .collect();
            while openers.iter().any(|opener| !opener.is_finished()) {
                clean(root.path(), None, false).unwrap();
            }
        });
        clean(root.path(), None, false).unwrap();
        assert!(root.names().is_empty(), "{:?}", root.names());
    }
}
