//! Who may do what with a bus: file modes and POSIX access control lists.
//!
//! The two roles on a bus need different rights on each of its parts:
//!
//! | part | publishers | subscribers |
//! |---|---|---|
//! | directory | `r-x` | `r-x` |
//! | `ring` | `rw-` | `r--` |
//! | `publishers` | `rw-` | `---` |
//! | `readers` | `r--` | `rw-` |
//! | `sockets/` | `--x` | `rwx` |
//!
//! Groups get these rights by entries of an access control list. It is written as the extended attribute that the
//! kernel reads (acl(5), include/uapi/linux/posix_acl_xattr.h), so no library and no program is needed.

use super::directory::{failed, is_default_and_not_for_all, sharing_hint};
use super::mapping::Protection;
use super::names;
use crate::error::{FileError, OpenError};
use rustix::fs::{Access, Mode, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who may use a new bus. By default, those classes to which the umask leaves both reading and writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    /// Mode bits for owner, group and others, as in `chmod`. A class that may write is publisher and subscriber;
    /// one that may only read is a subscriber. The owner is always both.
    pub(crate) mode: Option<u32>,
    /// Number of the group of publishers.
    pub(crate) writers: Option<u32>,
    /// Number of the group of subscribers.
    pub(crate) readers: Option<u32>,
}

/// A part of a bus that has permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Directory,
    Ring,
    Publishers,
    Readers,
    Sockets,
}

impl Permissions {
    /// Sets the permissions of a part. `path` is for messages.
    pub(crate) fn apply(&self, part: impl AsFd, of: Part, path: &Path) -> Result<(), OpenError> {
        // A file may inherit a list from its directory. The mode would widen the entries of that list.
        for list in [XATTR, DEFAULT_XATTR] {
            match rustix::fs::fremovexattr(&part, list) {
                // For files, which have no default list, the result depends on the file system.
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL | Errno::ACCESS) => {}
                Err(errno) => return Err(failed("set the permissions of", path, errno).into()),
            }
        }
        set_mode(&part, of, self.mode.unwrap_or(0), path)?;
        if self.writers.is_none() && self.readers.is_none() {
            return Ok(());
        }
        let list = encode(of.classes(self.mode.unwrap_or(0)), &self.groups(of));
        rustix::fs::fsetxattr(&part, XATTR, &list, XattrFlags::empty()).map_err(|errno| match errno
        {
            Errno::OPNOTSUPP => OpenError::AclsUnsupported { path: path.to_owned() },
            errno => failed("set the access control list of", path, errno).into(),
        })
    }

    /// Returns whether the umask decides who may do what.
    pub(super) fn by_umask(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the permissions of the named groups, in the order of their numbers, each once.
    fn groups(&self, part: Part) -> Vec<(u32, u32)> {
        let writers = self.writers.map(|group| (group, part.for_writers()));
        let readers = self.readers.map(|group| (group, part.for_readers()));
        let mut groups: Vec<_> = writers.into_iter().chain(readers).collect();
        groups.sort_unstable();
        if let [(first, one), (second, other)] = groups[..]
            && first == second
        {
            groups = vec![(first, one | other)];
        }
        groups
    }
}

/// Returns the mode of a bus for which no rights were asked, if the umask leaves the mode `left` to a new file. A
/// class that would get only one of reading and writing gets neither. To subscribe is to read `ring` and to write
/// `readers`, so such a class could see all payloads and never take part.
pub(super) fn mode_by_umask(left: u32) -> u32 {
    let both = left & (left >> 1) & 0o022;
    0o600 | both | both << 1
}

/// Sets the permissions of a part of a bus for which no rights were asked; `mode` is that of the bus. If the
/// directory of buses passes on an access control list, that takes the place of the umask, and each user or group
/// named in it gets both rights or none, too.
pub(super) fn apply_by_umask(
    part: impl AsFd,
    of: Part,
    mode: u32,
    path: &Path,
) -> Result<(), FileError> {
    let mut list = [0_u8; LIST_BYTES];
    // There is none, or the file system has no lists: the mode says everything. A longer list is an error.
    let length = match rustix::fs::fgetxattr(&part, XATTR, &mut list) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => 0,
        answer => answer.map_err(|errno| failed("read the permissions of", path, errno))?,
    };
    let mut changed = false;
    for entry in list[..length].get_mut(4..).unwrap_or_default().chunks_exact_mut(ENTRY_BYTES) {
        let is_class = matches!(tag(entry), USER | GROUP_OBJ | GROUP);
        if is_class && bits(entry) & 6 != 6 {
            entry[2..4].fill(0);
            changed = true;
        }
    }
    if changed {
        rustix::fs::fsetxattr(&part, XATTR, &list[..length], XattrFlags::REPLACE)
            .map_err(|errno| failed("set the access control list of", path, errno))?;
    }
    set_mode(part, of, mode, path)
}

fn set_mode(part: impl AsFd, of: Part, mode: u32, path: &Path) -> Result<(), FileError> {
    let (owner, group, others) = of.classes(mode);
    rustix::fs::fchmod(part, Mode::from_raw_mode(owner << 6 | group << 3 | others))
        .map_err(|errno| failed("set the permissions of", path, errno))
}

/// Returns the number of a group that is given by name or number.
pub(crate) fn group_number(group: &str) -> Result<u32, OpenError> {
    let unknown = || OpenError::UnknownGroup { name: group.to_owned() };
    if let Ok(number) = group.parse() {
        // To the kernel, the largest number means "none".
        return if number == u32::MAX { Err(unknown()) } else { Ok(number) };
    }
    names::number_of_group(group).ok_or_else(unknown)
}

/// Returns a hint for an error message: who could do what was refused, and what to do about it.
pub(super) fn who_may(path: &Path, role: &str, protection: Protection) -> String {
    let (wanted, access) = match protection {
        Protection::Read => (4, "read"),
        Protection::Write => (6, "read and write"),
    };
    let mut holders = Vec::new();
    let mut groups = Vec::new();
    if let Ok(metadata) = path.metadata() {
        holders.push(format!("its owner, {}", user(metadata.uid())));
        let list = read(path);
        let by_mode = (metadata.gid(), metadata.mode() >> 3 & 7);
        let all = if list.is_empty() { vec![by_mode] } else { list };
        let may = all.into_iter().filter(|(_, bits)| bits & wanted == wanted);
        groups.extend(may.map(|(number, _)| format!("the members of {}", group(number))));
    } else if let Some(Ok(bus)) = path.parent().map(Path::metadata) {
        holders.push(format!("the owner of the bus, {}", user(bus.uid())));
    }
    let join = if groups.is_empty() { "" } else { "join such a group and log in again, or " };
    let bus = path.parent().and_then(Path::file_name).map(OsStr::to_string_lossy);
    let bus = bus.unwrap_or_else(|| "NAME".into());
    holders.append(&mut groups);
    let holders = match &holders[..] {
        [] => String::new(),
        some => format!(", as {} may", some.join(" and ")),
    };
    format!(
        "{role} must be able to {access} it{holders}; this process runs as {}: {join}ask the owner to run `toroni rm {bus}` and `toroni create {bus} --writers GROUP --readers GROUP`",
        user(rustix::process::geteuid().as_raw())
    )
}

/// Returns a hint as [`who_may`] does, if no role is known.
pub(super) fn who_is(path: &Path) -> String {
    let advice = if is_default_and_not_for_all(path) {
        sharing_hint()
    } else {
        "ask the owner, or set TORONI_DIR to another directory".to_owned()
    };
    format!("{}: {advice}", owner_and_own(path))
}

/// Returns a hint as [`who_is`] does for what was refused in the directory of buses `root`, or was to be created there at
/// `path`. No command changes a directory above it: that serves other purposes.
pub(super) fn who_may_use(root: &Path, path: &Path) -> String {
    if is_default_and_not_for_all(root) {
        return who_is(path);
    }
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let command = |by: &str| {
        let root = root.display();
        format!(
            "to share it among all users, {by} runs `install -d -m 1777 {root}`; or set TORONI_DIR to a directory of your own"
        )
    };
    let advice = match root.metadata() {
        // It is a directory of the system, such as /etc, or one for more than buses.
        Ok(_) if root.ancestors().nth(2).is_none() => {
            "set TORONI_DIR to another directory".to_owned()
        }
        Ok(metadata) if is_closed(&root, &metadata) => {
            let owner = user(metadata.uid());
            format!(
                "{} is only for {owner}: {}",
                root.display(),
                command(&format!("{owner} or root"))
            )
        }
        Ok(_) => "ask the owner, or set TORONI_DIR to another directory".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("it does not exist, and you may not create it: {}", command("root"))
        }
        // It is below a directory that this user may not search.
        Err(_) => "set TORONI_DIR to another directory".to_owned(),
    };
    format!("{}: {advice}", owner_and_own(path))
}

/// Says to whom a file belongs, if it exists, and as which user this process runs.
fn owner_and_own(path: &Path) -> String {
    let owner = path.metadata();
    let owner = owner.map(|metadata| format!("it belongs to {}, ", user(metadata.uid())));
    let own = user(rustix::process::geteuid().as_raw());
    format!("{}this process runs as {own}", owner.unwrap_or_default())
}

/// Returns whether a directory belongs to another user and this process may not create anything in it.
fn is_closed(directory: &Path, metadata: &Metadata) -> bool {
    let may = rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    metadata.is_dir() && !may && !is_own
}

const XATTR: &CStr = c"system.posix_acl_access";
/// The list that a directory passes on to what is created in it.
const DEFAULT_XATTR: &CStr = c"system.posix_acl_default";
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;
const ENTRY_BYTES: usize = 8;
/// Bytes of the longest list that is read: 127 entries.
const LIST_BYTES: usize = 1024;

impl Part {
    /// Returns the mode with which to create a part: nothing for others, so that no user opens it before it has its
    /// final permissions.
    pub(super) fn first_mode(self) -> Mode {
        if self.is_directory() { Mode::RWXU } else { Mode::RUSR | Mode::WUSR }
    }

    /// Returns the permissions of owner, group and others in a bus of this mode.
    fn classes(self, mode: u32) -> (u32, u32, u32) {
        let owner = if self.is_directory() { 7 } else { 6 };
        let class = |bits: u32| {
            let subscriber = if bits & 4 != 0 { self.for_readers() } else { 0 };
            let publisher = if bits & 6 == 6 { self.for_writers() } else { 0 };
            subscriber | publisher
        };
        (owner, class(mode >> 3), class(mode))
    }

    fn is_directory(self) -> bool {
        matches!(self, Self::Directory | Self::Sockets)
    }

    fn for_writers(self) -> u32 {
        match self {
            Self::Directory => 5,
            Self::Ring | Self::Publishers => 6,
            Self::Readers => 4,
            Self::Sockets => 1,
        }
    }

    fn for_readers(self) -> u32 {
        match self {
            Self::Directory => 5,
            Self::Ring => 4,
            Self::Publishers => 0,
            Self::Readers => 6,
            Self::Sockets => 7,
        }
    }
}

/// Returns the bytes of the attribute: a version, and entries of tag, permissions and id, all little-endian and in
/// the order that the kernel demands.
fn encode((owner, group, others): (u32, u32, u32), groups: &[(u32, u32)]) -> Vec<u8> {
    let mask = groups.iter().fold(group, |mask, (_, bits)| mask | bits);
    let mut bytes = VERSION.to_le_bytes().to_vec();
    let mut entry = |tag: u16, bits: u32, id: u32| {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(u16::try_from(bits).unwrap_or(0).to_le_bytes());
        bytes.extend(id.to_le_bytes());
    };
    entry(USER_OBJ, owner, NO_ID);
    entry(GROUP_OBJ, group, NO_ID);
    for (id, bits) in groups {
        entry(GROUP, *bits, *id);
    }
    entry(MASK, mask, NO_ID);
    entry(OTHER, others, NO_ID);
    bytes
}

/// Returns the named groups in a file's list, and their permissions.
fn read(path: &Path) -> Vec<(u32, u32)> {
    let mut bytes = [0_u8; LIST_BYTES];
    let length = rustix::fs::lgetxattr(path, XATTR, &mut bytes).unwrap_or(0);
    let Some(entries) = bytes[..length].get(4..) else { return Vec::new() };
    entries
        .chunks_exact(ENTRY_BYTES)
        .filter(|entry| tag(entry) == GROUP)
        .map(|entry| {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            (id, bits(entry))
        })
        .collect()
}

fn tag(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

fn bits(entry: &[u8]) -> u32 {
    u32::from(u16::from_le_bytes([entry[2], entry[3]]))
}

/// Returns `user NAME (NUMBER)`, for messages.
pub(super) fn user(number: u32) -> String {
    format!("user {}", named(names::name_of_user(number), number))
}

/// Returns `group NAME (NUMBER)`, for messages.
pub(crate) fn group(number: u32) -> String {
    format!("group {}", named(names::name_of_group(number), number))
}

fn named(name: Option<String>, number: u32) -> String {
    name.map_or_else(|| number.to_string(), |name| format!("{name} ({number})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::TempDir;
    use std::ffi::CString;
    use std::fs::{File, Permissions as FilePermissions};
    use std::os::unix::fs::PermissionsExt;

    const WRITERS: u32 = 61001;
    const READERS: u32 = 61002;
    const STRANGERS: u32 = 61003;

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Returns whether a user of this group alone may open the path.
    fn may(group: u32, path: &Path, flags: libc::c_int) -> bool {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the child makes system calls only.
        match unsafe { libc::fork() } {
            0 => unsafe {
                // SAFETY: as above; `path` was made before the fork.
                let dropped = libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setgid(group) == 0
                    && libc::setuid(61009) == 0;
                let opened = libc::open(path.as_ptr(), flags) >= 0;
                libc::_exit(if !dropped { 2 } else { i32::from(!opened) })
            },
            child => {
                let mut status = 0;
                // SAFETY: our child, and memory for its status.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 2, "{status}");
                libc::WEXITSTATUS(status) == 0
            }
        }
    }

    fn file(directory: &TempDir, part: Part, permissions: Permissions) -> std::path::PathBuf {
        directory.path().to_owned().metadata().unwrap();
        std::fs::set_permissions(directory.path(), FilePermissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("part");
        permissions.apply(File::create(&path).unwrap(), part, &path).unwrap();
        path
    }

    #[test]
    fn groups_get_what_their_role_needs() {
        if !is_root() {
            return eprintln!("skipped: only root can become other users");
        }
        let permissions =
            Permissions { writers: Some(WRITERS), readers: Some(READERS), mode: None };
        for (part, group, read, write) in [
            (Part::Ring, WRITERS, true, true),
            (Part::Ring, READERS, true, false),
            (Part::Publishers, WRITERS, true, true),
            (Part::Publishers, READERS, false, false),
            (Part::Readers, WRITERS, true, false),
            (Part::Readers, READERS, true, true),
            (Part::Ring, STRANGERS, false, false),
            (Part::Publishers, STRANGERS, false, false),
            (Part::Readers, STRANGERS, false, false),
        ] {
            let directory = TempDir::new();
            let path = file(&directory, part, permissions);
            assert_eq!(may(group, &path, libc::O_RDONLY), read, "{part:?} {group}");
            assert_eq!(may(group, &path, libc::O_RDWR), write, "{part:?} {group}");
        }
    }

    #[test]
    fn one_group_can_have_both_roles() {
        let permissions =
            Permissions { writers: Some(WRITERS), readers: Some(WRITERS), mode: None };
        for part in [Part::Ring, Part::Publishers, Part::Readers] {
            let directory = TempDir::new();
            let path = file(&directory, part, permissions);
            assert_eq!(read(&path), [(WRITERS, 6)]);
            assert!(!is_root() || may(WRITERS, &path, libc::O_RDWR));
        }
    }

    #[test]
    fn a_mode_gives_roles_to_classes() {
        let mode = |mode, part| {
            let directory = TempDir::new();
            let permissions = Permissions { mode: Some(mode), ..Permissions::default() };
            let path = file(&directory, part, permissions);
            path.metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(0o600, Part::Readers), 0o600);
        assert_eq!(mode(0o664, Part::Ring), 0o664);
        assert_eq!(mode(0o664, Part::Publishers), 0o660);
        assert_eq!(mode(0o664, Part::Readers), 0o666);
        assert_eq!(mode(0o640, Part::Directory), 0o750);
        assert_eq!(mode(0o640, Part::Sockets), 0o770);
    }

    #[test]
    fn a_umask_leaves_a_class_both_rights_or_none() {
        for (umask, mode) in [
            (0o000, 0o666),
            (0o001, 0o666),
            (0o002, 0o660),
            (0o004, 0o660),
            (0o006, 0o660),
            (0o007, 0o660),
            (0o020, 0o606),
            (0o022, 0o600),
            (0o024, 0o600),
            (0o026, 0o600),
            (0o027, 0o600),
            (0o070, 0o606),
            (0o077, 0o600),
            (0o177, 0o600),
            (0o777, 0o600),
        ] {
            assert_eq!(mode_by_umask(0o666 & !umask), mode, "{umask:03o}");
        }
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(group_number("root").unwrap(), 0);
        assert_eq!(group_number("61001").unwrap(), 61001);
        for unknown in ["no such group", "", "4294967295", "a\0b"] {
            let error = group_number(unknown).unwrap_err();
            assert!(matches!(error, OpenError::UnknownGroup { .. }), "{unknown:?}");
        }
        assert_eq!(group(0), "group root (0)");
        assert_eq!(user(0), "user root (0)");
        assert_eq!(user(61009), "user 61009");
    }

    #[test]
    fn the_hint_names_groups() {
        let directory = TempDir::new();
        let permissions = Permissions { writers: Some(0), readers: Some(READERS), mode: None };
        let path = file(&directory, Part::Ring, permissions);
        let hint = who_may(&path, "a publisher", Protection::Write);
        assert!(hint.contains("group root (0)"), "{hint}");
        assert!(!hint.contains("61002"), "{hint}");
        assert!(who_may(&path, "any", Protection::Read).contains("group 61002"));
    }
}
