use super::*;
use crate::hook::rehearsal;
use crate::shm::participants::{read_publishers, read_readers};
#[cfg(feature = "crash-points")]
use crate::shm::testing::child_task;
use crate::shm::testing::{
    TempDir, in_fork, in_own_process, mount_tmpfs, names, own_mounts, small,
};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const COMPLETE: [&str; 4] = ["publishers", "readers", "ring", "sockets"];

fn make(root: &TempDir, settings: &Settings) -> Result<BusDirectory, OpenError> {
    create(root.path(), "bus", settings, &Permissions::default()).map(|(directory, _)| directory)
}

fn open_or_make(root: &TempDir) -> (BusDirectory, RingFile, bool) {
    open_or_create(root.path(), "bus", &small(), &Permissions::default()).unwrap()
}

#[test]
fn a_bus_is_complete_and_paid_for() {
    let root = TempDir::new();
    let bus = make(&root, &small()).unwrap();
    assert_eq!(root.names(), ["bus"]);
    assert_eq!(names(bus.path()), COMPLETE);
    for file in [BusFile::Ring, BusFile::Publishers, BusFile::Readers] {
        let metadata = bus.path().join(file.name()).metadata().unwrap();
        assert!(metadata.blocks() * 512 >= metadata.len(), "{file:?} has holes");
    }
    let (_, ring) = open(root.path(), "bus").unwrap();
    assert_eq!(ring.header().settings, small());
    assert!(read_readers(&bus, ring.header()).unwrap().is_empty());
    assert_eq!(read_publishers(&bus, ring.header()).unwrap().len(), 4);
}

#[test]
fn the_existing_bus_wins() {
    let root = TempDir::new();
    let (_, first, made) = open_or_make(&root);
    assert!(made);
    assert!(matches!(make(&root, &small()), Err(OpenError::AlreadyExists { .. })));
    let larger = Settings { capacity: 128 << 10, ..small() };
    let (_, second, made) =
        open_or_create(root.path(), "bus", &larger, &Permissions::default()).unwrap();
    assert!(!made);
    assert_eq!(first.header(), second.header());
    assert_eq!(root.names(), ["bus"]);
}

#[test]
fn of_many_creators_one_wins() {
    for in_place in [false, true] {
        let root = TempDir::new();
        if in_place {
            std::fs::create_dir(root.path().join("bus")).unwrap();
        }
        let start = std::sync::Barrier::new(8);
        let makers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let (_, ring, made) = open_or_make(&root);
                        (ring.header().bus_id, made)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(makers.iter().filter(|(_, made)| *made).count(), 1, "{makers:?}");
        assert!(makers.iter().all(|(id, _)| *id == makers[0].0));
        assert_eq!(root.names(), ["bus"]);
        assert_eq!(names(&root.path().join("bus")), COMPLETE);
    }
}

#[test]
fn a_full_file_system_is_an_error_with_numbers() {
    let root = TempDir::new();
    let settings = Settings { capacity: 1 << 40, ..small() };
    let Err(OpenError::NoSpace { wanted, available, path }) = make(&root, &settings) else {
        panic!("a terabyte in /dev/shm");
    };
    assert!(wanted > 1 << 40 && available > 0 && available < wanted);
    assert_eq!(path, root.path().join("bus"));
    assert!(root.names().is_empty());
}

#[test]
fn file_systems_that_are_full_or_read_only() {
    in_own_process("shm::create::tests::file_systems_that_are_full_or_read_only", || {
        if !own_mounts() {
            return eprintln!("skipped: mounting needs root");
        }
        let root = TempDir::new();
        // A bus needs 88 KiB. There are inodes for the root, the bus, and one to five of its files.
        for inodes in 2..7 {
            let _mount = mount_tmpfs(root.path(), &format!("size=1m,nr_inodes={inodes}"), 0);
            let answer = make(&root, &small());
            assert!(matches!(answer, Err(OpenError::NoInodes { .. })) == (inodes < 6), "{inodes}");
            assert_eq!(root.names().len(), usize::from(inodes == 6));
        }
        for inodes in 2..7 {
            let _mount = mount_tmpfs(root.path(), &format!("size=1m,nr_inodes={inodes}"), 0);
            std::fs::create_dir(root.path().join("bus")).unwrap();
            let is_complete = make(&root, &small()).is_ok();
            let left = names(&root.path().join("bus"));
            assert_eq!(left, if is_complete { &COMPLETE[..] } else { &[] }, "{inodes}");
            assert_eq!(is_complete, inodes == 6);
        }
        let _mount = mount_tmpfs(root.path(), "size=64k", 0);
        assert!(matches!(make(&root, &small()), Err(OpenError::NoSpace { available: 65536, .. })));
        assert!(root.names().is_empty());
        std::fs::create_dir(root.path().join("bus")).unwrap();
        assert!(matches!(make(&root, &small()), Err(OpenError::NoSpace { .. })));
        assert!(names(&root.path().join("bus")).is_empty());
        let _mount = mount_tmpfs(root.path(), "", libc::MS_RDONLY);
        assert!(matches!(make(&root, &small()), Err(OpenError::File(FileError::ReadOnly { .. }))));
    });
}

/// Without the check, the kernel would end the process by a signal.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    in_own_process("shm::create::tests::a_limit_of_file_sizes_is_an_error", || {
        let root = TempDir::new();
        let limit = rustix::process::Rlimit { current: Some(40_000), maximum: Some(40_000) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        for in_place in [false, true] {
            if in_place {
                std::fs::create_dir(root.path().join("bus")).unwrap();
            }
            let said = make(&root, &small()).unwrap_err().to_string();
            assert!(said.contains("40000") && said.contains("ulimit -f"), "{said}");
        }
        assert!(names(&root.path().join("bus")).is_empty());
    });
}

/// Whichever descriptor is missing, a creation that fails leaves nothing, and one that succeeds has opened the bus.
#[test]
fn a_creation_that_runs_out_of_descriptors_leaves_nothing() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    in_own_process(
        "shm::create::tests::a_creation_that_runs_out_of_descriptors_leaves_nothing",
        || {
            let root = TempDir::new();
            let bus = root.path().join("bus");
            let maximum = getrlimit(Resource::Nofile).maximum;
            let limit = |current| {
                setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
            };
            type Creating = fn(&TempDir) -> Result<(BusDirectory, RingFile), OpenError>;
            let ways: [Creating; 2] = [
                |root| create(root.path(), "bus", &small(), &Permissions::default()),
                |root| {
                    let made =
                        open_or_create(root.path(), "bus", &small(), &Permissions::default());
                    made.map(|(directory, ring, _)| (directory, ring))
                },
            ];
            for in_place in [false, true] {
                for way in ways {
                    if in_place {
                        std::fs::create_dir(&bus).unwrap();
                    }
                    let mut failures = 0;
                    let made = (3..40).find_map(|descriptors| {
                        limit(descriptors);
                        let answer = way(&root);
                        limit(40);
                        let Err(error) = answer else { return answer.ok() };
                        assert!(error.to_string().contains("Too many open files"), "{error}");
                        let left = if in_place { names(&bus) } else { root.names() };
                        assert!(left.is_empty(), "with {descriptors}: {left:?}");
                        failures += 1;
                        None
                    });
                    assert!(failures > 2, "the limit was not reached");
                    assert_eq!(names(&bus), COMPLETE);
                    let (directory, ring) = made.unwrap();
                    take_back(&directory, &ring);
                    if in_place {
                        assert!(names(&bus).is_empty());
                        std::fs::remove_dir(&bus).unwrap();
                    }
                    assert!(root.names().is_empty());
                }
            }
        },
    );
}

#[test]
fn a_bus_that_others_have_opened_is_not_taken_back() {
    let root = TempDir::new();
    let (directory, ring) = create(root.path(), "bus", &small(), &Permissions::default()).unwrap();
    let other = open(root.path(), "bus").unwrap();
    take_back(&directory, &ring);
    assert_eq!(names(directory.path()), COMPLETE);
    drop(other);
}

/// Checks what each role can open of a bus made for two groups.
#[test]
fn strangers_stay_out() {
    in_own_process("shm::create::tests::strangers_stay_out", || {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can become other users");
        }
        let root = TempDir::new();
        let permissions = Permissions { mode: None, writers: Some(61001), readers: Some(61002) };
        create(root.path(), "bus", &small(), &permissions).unwrap();
        use Protection::{Read, Write};
        for (group, can) in [
            (61001, [true, true, true, false]),
            (61002, [true, false, false, true]),
            (61003, [false; 4]),
        ] {
            in_fork(|| {
                // SAFETY: the rest of this child is another user.
                unsafe {
                    assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
                    assert_eq!(libc::setgid(group), 0);
                    assert_eq!(libc::setuid(61009), 0);
                }
                let bus = BusDirectory::open(root.path(), "bus").unwrap();
                let could = [
                    (BusFile::Ring, Read),
                    (BusFile::Ring, Write),
                    (BusFile::Publishers, Write),
                    (BusFile::Readers, Write),
                ]
                .map(|(file, protection)| match bus.open_file(file, protection) {
                    Ok(_) => true,
                    Err(FileError::PermissionDenied { hint, .. }) => {
                        assert!(hint.contains("61009"), "{hint}");
                        false
                    }
                    Err(error) => panic!("{error}"),
                });
                assert_eq!(could, can);
                let socket = bus.path().join("sockets/1.1");
                let bound = std::os::unix::net::UnixDatagram::bind(socket);
                assert_eq!(bound.is_ok(), can[3]);
                assert!(std::fs::File::create(bus.path().join("x")).is_err());
            });
            let _ = std::fs::remove_file(root.path().join("bus/sockets/1.1"));
        }
    });
}

#[test]
fn an_empty_directory_becomes_a_bus() {
    let root = TempDir::new();
    let path = root.path().join("bus");
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(open(root.path(), "bus"), Err(OpenError::File(FileError::NotFound { .. }))));
    let bus = make(&root, &small()).unwrap();
    assert_eq!(names(&path), COMPLETE);
    assert!(matches!(make(&root, &small()), Err(OpenError::AlreadyExists { .. })));
    drop(bus);

    // The creator died after it made `ring`.
    let ring = path.join("ring");
    std::fs::set_permissions(&ring, std::fs::Permissions::from_mode(0o640)).unwrap();
    for file in ["publishers", "readers"] {
        std::fs::remove_file(path.join(file)).unwrap();
    }
    std::fs::remove_dir(path.join("sockets")).unwrap();
    let (bus, ring, made) = open_or_make(&root);
    assert!(!made);
    assert_eq!(names(&path), COMPLETE);
    read_readers(&bus, ring.header()).unwrap();
    let mode = |name| path.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("readers"), mode("sockets")), (0o600, 0o700));
}

#[test]
fn directories_of_others_are_left_alone() {
    let root = TempDir::new();
    let path = root.path().join("bus");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("letter.txt"), b"dear").unwrap();
    assert!(matches!(make(&root, &small()), Err(OpenError::File(FileError::NotABus { .. }))));
    assert_eq!(names(&path), ["letter.txt"]);
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(make(&root, &small()), Err(OpenError::File(FileError::NotADirectory { .. }))));
}

#[test]
fn the_umask_counts_unless_a_mode_is_given() {
    in_own_process("shm::create::tests::the_umask_counts_unless_a_mode_is_given", || {
        rustix::process::umask(Mode::from_raw_mode(0o027));
        let root = TempDir::new();
        let bus = make(&root, &small()).unwrap();
        let permissions = Permissions { mode: Some(0o666), ..Permissions::default() };
        let (open, _) = create(root.path(), "open", &small(), &permissions).unwrap();
        let mode = |bus: &BusDirectory, name| {
            bus.path().join(name).metadata().unwrap().permissions().mode() & 0o777
        };
        for (name, by_umask, given) in [
            ("", 0o700, 0o755),
            ("ring", 0o600, 0o666),
            ("publishers", 0o600, 0o666),
            ("readers", 0o600, 0o666),
            ("sockets", 0o700, 0o777),
        ] {
            assert_eq!(mode(&bus, name), by_umask, "{name}");
            assert_eq!(mode(&open, name), given, "{name}");
        }
    });
}

/// A class that could read `ring` but not write `readers` would see all payloads without being able to subscribe. A
/// class that may write the directory can replace the files. The umask allows neither.
#[test]
fn the_umask_gives_a_class_both_roles_or_none() {
    let name = "shm::create::tests::the_umask_gives_a_class_both_roles_or_none";
    in_own_process(name, || {
        for (umask, directory, files, sockets) in [
            (0o000, 0o755, 0o666, 0o777),
            (0o002, 0o750, 0o660, 0o770),
            (0o022, 0o700, 0o600, 0o700),
            (0o026, 0o700, 0o600, 0o700),
            (0o007, 0o750, 0o660, 0o770),
            (0o070, 0o705, 0o606, 0o707),
            (0o077, 0o700, 0o600, 0o700),
            (0o777, 0o700, 0o600, 0o700),
        ] {
            rustix::process::umask(Mode::from_raw_mode(umask));
            for in_place in [false, true] {
                let root = TempDir::new();
                let path = root.path().join("bus");
                if in_place {
                    rustix::fs::mkdir(&path, Mode::RWXU).unwrap();
                    rustix::fs::chmod(&path, Mode::from_raw_mode(0o755)).unwrap();
                }
                let bus = make(&root, &small()).unwrap();
                let mode = |name| {
                    let metadata = bus.path().join(name).metadata().unwrap();
                    metadata.permissions().mode() & 0o7777
                };
                if !in_place {
                    assert_eq!(mode(""), directory, "{umask:03o}");
                }
                let found = ["ring", "publishers", "readers", "sockets"].map(mode);
                assert_eq!(found, [files, files, files, sockets], "{umask:03o} {in_place}");
                // What a creator that died did not make is made by any process with the same rights.
                rustix::process::umask(Mode::empty());
                std::fs::remove_file(path.join("readers")).unwrap();
                std::fs::remove_dir(path.join("sockets")).unwrap();
                open(root.path(), "bus").unwrap();
                assert_eq!([mode("readers"), mode("sockets")], [files, sockets], "{umask:03o}");
                rustix::process::umask(Mode::from_raw_mode(umask));
                assert_eq!(super::entries(bus.dirfd()).unwrap().len(), 4, "{umask:03o}");
            }
        }
    });
}

/// Makes a directory pass on an access control list: owner, users 61003 and 61004, group, mask, others. Returns
/// `false` if the file system has no such lists.
fn bequeath(root: &TempDir, bits: [u16; 6]) -> bool {
    const TAGS: [(u16, u32); 6] =
        [(1, u32::MAX), (2, 61003), (2, 61004), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for ((tag, id), bits) in TAGS.into_iter().zip(bits) {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let (name, flags) = ("system.posix_acl_default", rustix::fs::XattrFlags::empty());
    rustix::fs::setxattr(root.path(), name, &list, flags)
        .inspect_err(|error| eprintln!("skipped: no access control lists here: {error}"))
        .is_ok()
}

/// If no rights are asked for, an inherited list takes the place of the umask. A user named in it gets both roles
/// or none, as a class does.
#[test]
fn an_inherited_list_gives_both_roles_or_none() {
    let root = TempDir::new();
    if !bequeath(&root, [7, 7, 5, 5, 7, 5]) {
        return;
    }
    for in_place in [false, true] {
        if in_place {
            std::fs::create_dir(root.path().join("bus")).unwrap();
        }
        let bus = make(&root, &small()).unwrap();
        for name in ["ring", "publishers", "readers"] {
            let path = bus.path().join(name);
            let mut list = [0_u8; 256];
            let length = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut list).unwrap();
            let bits: Vec<u8> = list[4..length].chunks_exact(8).map(|entry| entry[2]).collect();
            // Only what the mask has as well is effective.
            assert_eq!([bits[1] & bits[4], bits[2], bits[3], bits[5]], [6, 0, 0, 0], "{name}");
        }
        std::fs::remove_dir_all(bus.path()).unwrap();
    }
}

/// A directory may pass on an access control list to what is created in it. A mode that was asked for holds
/// nevertheless.
#[test]
fn a_mode_is_not_widened_by_a_list_of_the_directory() {
    let root = TempDir::new();
    if !bequeath(&root, [7; 6]) {
        return;
    }
    for permissions in [
        Permissions { mode: Some(0o660), ..Permissions::default() },
        Permissions { writers: Some(61001), ..Permissions::default() },
    ] {
        let (bus, _) = create(root.path(), "bus", &small(), &permissions).unwrap();
        for name in ["", "ring", "publishers", "readers", "sockets"] {
            let path = bus.path().join(name);
            let mut found = [0_u8; 256];
            for list in ["system.posix_acl_access", "system.posix_acl_default"] {
                let length = rustix::fs::getxattr(&path, list, &mut found).unwrap_or(0);
                let named = found[..length].windows(4).any(|id| id == 61003_u32.to_le_bytes());
                assert!(!named, "{list} of {name:?} names a user that was not asked for");
            }
        }
        std::fs::remove_dir_all(bus.path()).unwrap();
    }
}

/// A process that looks at any step of a creation finds nothing, or something complete.
#[test]
fn nothing_has_its_name_before_it_is_complete() {
    for in_place in [false, true] {
        let root = TempDir::new();
        let path = root.path().join("bus");
        if in_place {
            std::fs::create_dir(&path).unwrap();
        }
        let look = {
            let path = path.clone();
            move |reached: &[CrashPoint]| {
                let step = reached.last();
                assert!(in_place || !path.exists() || names(&path) == COMPLETE, "{step:?}");
                for name in ["ring", "publishers", "readers"] {
                    let Ok(bytes) = std::fs::read(path.join(name)) else { continue };
                    // The header is written last.
                    assert!(bytes.iter().take(8).any(|byte| *byte != 0), "{name} at {step:?}");
                }
                false
            }
        };
        let (reached, made) = rehearsal::act(look, || make(&root, &small()));
        made.unwrap().unwrap();
        let fills = reached.iter().filter(|step| **step == CrashPoint::MidFill).count();
        assert_eq!(fills, 3, "{reached:?}");
        assert_eq!(names(&path), COMPLETE);
    }
}

#[test]
#[cfg(feature = "crash-points")]
fn a_creator_that_dies_leaves_no_bus() {
    let name = "shm::create::tests::a_creator_that_dies_leaves_no_bus";
    if let Some(root) = child_task() {
        let _ = create(root.as_ref(), "bus", &small(), &Permissions::default());
        return;
    }
    for point in [CrashPoint::MidCreation, CrashPoint::BeforeRename] {
        let root = TempDir::new();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact"])
            .env("TORONI_TEST_CHILD", root.path())
            .env("TORONI_CRASH", point.name())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        let left = root.names();
        assert!(left.len() == 1 && left[0].starts_with(".bus."), "{left:?}");
        assert!(open_or_make(&root).2);
    }
}
