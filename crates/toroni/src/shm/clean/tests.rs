use super::*;
use crate::ring::layout::{BUS_LOCK_OFFSET, SLOT_ACTIVE};
use crate::settings::Settings;
use crate::shm::acl::Permissions;
use crate::shm::create;
use crate::shm::list::list;
use crate::shm::ofd::{self, Kind};
use crate::shm::participants::{PublishersSegment, ReadersSegment};
use crate::shm::testing::{TempDir, in_own_process, mount_tmpfs, names, own_mounts, small};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;

fn persistent() -> Settings {
    Settings { persistent: true, ..small() }
}

fn make(root: &TempDir, name: &str, settings: &Settings) -> BusDirectory {
    create::create(root.path(), name, settings, &Permissions::default()).unwrap().0
}

fn run(root: &TempDir, name: Option<&str>) -> CleanReport {
    run_scope(root, name.map_or(Scope::All, Scope::Named))
}

fn run_scope(root: &TempDir, scope: Scope<'_>) -> CleanReport {
    let planned = clean(root.path(), scope, true).unwrap();
    let done = clean(root.path(), scope, false).unwrap();
    assert_eq!(format!("{planned:?}"), format!("{done:?}"), "the dry run reported something else");
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
fn a_missing_directory_has_no_bus_of_any_name() {
    let root = TempDir::new();
    let missing = root.path().join("none");
    assert!(clean(&missing, Scope::All, false).unwrap().removed_buses.is_empty());
    for scope in [Scope::Named("b"), Scope::Persistent("b")] {
        let error = clean(&missing, scope, false).unwrap_err();
        assert!(matches!(error, DirectoryError::File(FileError::NotFound { .. })), "{error}");
    }
}

#[test]
fn unused_buses_are_removed() {
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
    assert!(matches!(
        clean(root.path(), Scope::Named("gone"), false),
        Err(DirectoryError::File(FileError::NotFound { .. }))
    ));
}

#[test]
fn persistent_buses_are_removed_when_asked_for() {
    let root = TempDir::new();
    for name in ["used", "kept", "other"] {
        make(&root, name, &persistent());
    }
    let used = create::open(root.path(), "used").unwrap();
    let report = run_scope(&root, Scope::Persistent("used"));
    assert!(report.removed_buses.is_empty() && report.skipped[0].why.contains("in use"));
    assert_eq!(root.names(), ["kept", "other", "used"]);
    drop(used);
    for name in ["used", "kept"] {
        let report = run_scope(&root, Scope::Persistent(name));
        assert_eq!(report.removed_buses, [root.path().join(name)]);
    }
    assert_eq!(root.names(), ["other"]);
}

#[test]
fn slots_and_sockets_of_the_dead_are_freed() {
    let root = TempDir::new();
    let bus = make(&root, "bus", &small());
    let (_, ring) = create::open(root.path(), "bus").unwrap();
    let header = ring.header();
    let readers = ReadersSegment::open(&bus, header, Protection::Write).unwrap();
    let publishers = PublishersSegment::open(&bus, header).unwrap();
    // The owner of slot 0 lives and that of slot 1 is dead. Slot 2 was left properly. Slot 0 had an earlier owner.
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

    let planned = clean(root.path(), Scope::All, true).unwrap();
    assert_eq!(planned.freed_slots.len(), 2);
    assert_eq!(readers.slot(1).state.load(Ordering::Relaxed), SLOT_ACTIVE);
    let done = clean(root.path(), Scope::All, false).unwrap();
    let slot = |file, slot, generation| FreedSlot { bus: "bus".to_owned(), file, slot, generation };
    assert_eq!(done.freed_slots, [slot(BusFile::Publishers, 3, 0), slot(BusFile::Readers, 1, 7)]);
    assert_eq!(planned.freed_slots, done.freed_slots);
    assert_eq!(readers.slot(0).state.load(Ordering::Relaxed), SLOT_ACTIVE);
    assert_eq!(readers.slot(1).state.load(Ordering::Relaxed), SLOT_FREE);
    assert_eq!(names(&sockets), ["0.5", "2.8", "note"]);
    assert_eq!(done.skipped.len(), 2, "{:?}", done.skipped);
    assert!(clean(root.path(), Scope::All, false).unwrap().freed_slots.is_empty());
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
    // a: the directory is a link. b: `ring` is a link. c: `sockets` is a link. d: `ring` has a second hard link. e:
    // an unknown file. f: a directory instead of a socket.
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

/// Openers, creators and a cleaner run at the same time. A process that gets a bus gets a complete one.
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
            clean(root.path(), Scope::All, false).unwrap();
        }
    });
    clean(root.path(), Scope::All, false).unwrap();
    assert!(root.names().is_empty(), "{:?}", root.names());
}

#[test]
#[cfg(feature = "crash-points")]
fn a_cleaner_that_dies_leaves_a_leftover() {
    use crate::shm::testing::child_task;
    let name = "shm::clean::tests::a_cleaner_that_dies_leaves_a_leftover";
    if let Some(root) = child_task() {
        let _ = clean(root.as_ref(), Scope::All, false);
        return;
    }
    let root = TempDir::new();
    make(&root, "bus", &small());
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .env("TORONI_TEST_CHILD", root.path())
        .env("TORONI_CRASH", CrashPoint::MidClean.name())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    assert!(list(root.path()).unwrap().is_empty());
    assert_eq!(root.names().len(), 1);
    assert_eq!(run(&root, None).removed_leftovers.len(), 1);
    assert!(root.names().is_empty());
}
