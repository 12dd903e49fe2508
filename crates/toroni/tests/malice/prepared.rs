//! Tests with directories and files that another user prepared.

use crate::common::Fixture;
use crate::{CAPACITY, Raw, config, in_time, is_alone, under};
use std::ffi::CString;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;
use toroni::{BusConfig, NotifyKind, OpenError, Policy, admin};

const MS: Duration = Duration::from_millis(1);
const STRANGER: u32 = 61_816;

fn is_root() -> bool {
    // SAFETY: only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// Another user's bus has the wanted name, or another user could replace its files.
#[test]
fn another_users_bus_is_refused_if_an_owner_is_required() {
    let fixture = Fixture::new();
    let us = fixture.path().metadata().unwrap().uid();
    let required = config(&fixture, Policy::default()).require_owner(us);
    // Its own bus, just created, and opened again.
    drop(required.open("b").unwrap());
    required.open_existing("b").unwrap().publisher("a").unwrap().publish(b"x").unwrap();
    let other = config(&fixture, Policy::default()).require_owner(us + 1);
    for (bus, left) in [("b", true), ("new", false)] {
        let refused = other.open(bus).unwrap_err();
        assert!(matches!(refused, OpenError::ForeignOwner { .. }), "{refused}");
        assert_eq!(fixture.path().join(bus).exists(), left, "what it creates is not left behind");
    }
    if !is_root() {
        return eprintln!("partly skipped: only root can change the owner of files");
    }
    chown(fixture.path().join("b"), Some(STRANGER), None).unwrap();
    let refused = required.open("b").unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::ForeignOwner { .. }), "{text}");
    assert!(text.contains("61816") && text.contains("user root (0) is required"), "{text}");
    drop(config(&fixture, Policy::default()).open("b").unwrap());
}

/// The owner of the bus may read another bus but not write it. A publisher of the first bus would
/// write the second one.
#[test]
fn a_bus_made_of_hard_links_to_another_is_refused() {
    let fixture = Fixture::new();
    let bus = config(&fixture, Policy::default()).open("b").unwrap();
    let fake = fixture.path().join("fake");
    std::fs::create_dir_all(fake.join("sockets")).unwrap();
    for name in ["ring", "publishers", "readers"] {
        std::fs::hard_link(bus.path().join(name), fake.join(name)).unwrap();
    }
    let refused = fixture.config().open_existing("fake").unwrap_err().to_string();
    assert!(refused.contains("hard link"), "{refused}");
    assert!(admin::list(Some(fixture.path())).unwrap().iter().all(|bus| bus.problem.is_some()));
    // Participants that have opened the bus already continue, and nothing is removed that may
    // belong to another user.
    bus.publisher("a").unwrap_err();
    let report = admin::clean(Some(fixture.path()), Some("fake"), false).unwrap();
    assert!(report.actions.is_empty() && !report.skipped.is_empty(), "{report:?}");
    std::fs::remove_dir_all(fake).unwrap();
    bus.publisher("a").unwrap().publish(b"x").unwrap();
}

/// The directory of the sockets is sometimes a link to another directory, which contains sockets of
/// the same names.
#[test]
fn clean_does_not_follow_links() {
    let fixture = Fixture::new();
    let elsewhere = fixture.path().join(".elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let victims: Vec<_> = (0..4).map(|slot| elsewhere.join(format!("{slot}.1"))).collect();
    for victim in &victims {
        drop(UnixDatagram::bind(victim).unwrap());
    }
    let config = config(&fixture, Policy::default()).notify(NotifyKind::Datagram);
    let sockets = fixture.path().join("b/sockets");
    let (aside, link) = (fixture.path().join("b/aside"), fixture.path().join("b/link"));
    let attack = || {
        let _ = symlink(&elsewhere, &link);
        let _ = std::fs::rename(&sockets, &aside);
        let _ = std::fs::rename(&link, &sockets);
        let _ = std::fs::remove_file(&sockets);
        let _ = std::fs::rename(&aside, &sockets);
    };
    under(attack, || {
        for round in 0..300 {
            if let Ok(bus) = config.open("b") {
                let _ = bus.subscribe("**");
                for _ in 0..round % 3 {
                    let _ = bus.publisher("a").map(|publisher| publisher.publish(b"x"));
                }
                let _ = admin::clean(Some(fixture.path()), Some("b"), false);
            }
            let _ = admin::clean(Some(fixture.path()), None, false);
        }
    });
    for victim in victims {
        assert!(victim.symlink_metadata().is_ok(), "{} was removed", victim.display());
    }
}

/// The bus is replaced by another one, again and again, while it is opened, used and cleaned.
#[test]
fn opening_a_bus_while_it_is_replaced_gives_a_bus_or_an_error() {
    let fixture = Fixture::new();
    let config = config(&fixture, Policy::Overwrite);
    let path = |name: &str| fixture.path().join(name);
    let attack = || {
        let _ = config.open("other");
        let _ = std::fs::rename(path("b"), path(".b.0123456789abcdef"));
        let _ = std::fs::rename(path("other"), path("b"));
        let _ = std::fs::rename(path(".b.0123456789abcdef"), path("other"));
    };
    under(attack, || {
        for _ in 0..200 {
            in_time("opening, using and cleaning", || {
                let Ok(bus) = config.open("b") else { return };
                let subscriber = bus.subscribe("**");
                let _ = bus.publisher("a").map(|publisher| publisher.publish_within(b"x", MS));
                if let Ok(mut subscriber) = subscriber
                    && let Ok(Some(message)) = subscriber.receive_timeout(MS)
                {
                    assert_eq!(message.payload(), b"x");
                }
                let _ = admin::clean(Some(fixture.path()), Some("b"), false);
            });
        }
    });
}

#[test]
fn a_device_in_the_place_of_a_file_is_refused() {
    if !is_root() {
        return eprintln!("skipped: only root can make devices");
    }
    let fixture = Fixture::new();
    drop(config(&fixture, Policy::default()).open("b").unwrap());
    for name in ["ring", "readers"] {
        let path = fixture.path().join("b").join(name);
        std::fs::remove_file(&path).unwrap();
        let device = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with 0. The device is that of /dev/zero.
        let made =
            unsafe { libc::mknod(device.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 5)) };
        if made != 0 {
            return eprintln!("skipped: no devices can be made here");
        }
        let refused = fixture.config().open_existing("b").map(|bus| bus.subscribe("**").map(drop));
        assert!(!matches!(refused, Ok(Ok(()))), "{name}");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_dir_all(fixture.path().join("b")).unwrap();
        drop(config(&fixture, Policy::default()).open("b").unwrap());
    }
}

/// The owner of a file can take a lease on it in the kernel's sense (fcntl(2), F_SETLEASE), which
/// delays every other open by up to 45 s. It must not delay opening a bus.
#[test]
fn a_kernel_lease_on_a_file_delays_no_open() {
    if !is_alone("prepared::a_kernel_lease_on_a_file_delays_no_open") {
        return;
    }
    // SAFETY: ignores the signal that the holder of a lease gets when another process opens the
    // file.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let fixture = Fixture::new();
    drop(config(&fixture, Policy::default()).open("b").unwrap());
    for name in ["ring", "readers"] {
        let raw = Raw::open(&fixture, name);
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(raw.file());
        // SAFETY: an open descriptor.
        let answer = unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_WRLCK) };
        if answer != 0 {
            return eprintln!("skipped: this file system does not support leases");
        }
        let began = std::time::Instant::now();
        let opened = fixture.config().open_existing("b");
        let subscribed = opened.is_ok_and(|bus| bus.subscribe("**").is_ok());
        assert!(!subscribed, "{name}: the attack has no effect");
        assert!(began.elapsed() < Duration::from_secs(20), "{name}: {:?}", began.elapsed());
    }
    drop(fixture.config().open_existing("b").unwrap().subscribe("**").unwrap());
}

#[test]
fn directories_that_cannot_be_are_errors() {
    let long = format!("/dev/shm/{}", "x".repeat(300));
    let deep = "/dev/shm".to_owned() + &"/x".repeat(3000);
    for root in ["/dev/shm/a\0b", &long, &deep, ""] {
        let config = BusConfig::new().directory(root);
        assert!(config.open_existing("b").is_err(), "{root:?}");
        assert!(root.is_empty() || config.open("b").is_err(), "{root:?}");
    }
    let fixture = Fixture::new();
    for name in ["..", ".", "", "a/b", "../b", "a\0b", "-", "a b", &"x".repeat(65)] {
        assert_eq!(fixture.config().open(name).is_ok(), name == "-", "{name:?}");
    }
}

/// The file's memory was freed and cannot be allocated again because the file system is full. The
/// kernel answers with SIGBUS.
#[test]
fn holes_in_a_full_file_system_are_no_fault() {
    if !is_alone("prepared::holes_in_a_full_file_system_are_no_fault") {
        return;
    }
    for name in ["readers", "ring", "publishers"] {
        let fixture = Fixture::new();
        let Some(_mount) = Mount::new(fixture.path(), "size=1200k") else {
            return eprintln!("skipped: this process may not mount");
        };
        let bus = config(&fixture, Policy::default()).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        publisher.publish(b"x").unwrap();
        assert!(subscriber.receive().is_ok());
        Raw::open(&fixture, name).punch();
        let mut rest = std::fs::File::create(fixture.path().join(".rest")).unwrap();
        while std::io::Write::write(&mut rest, &[7; 4096]).is_ok() {}
        let published = in_time("publishing", || {
            (0..3 * CAPACITY / 1000)
                .try_for_each(|_| publisher.publish_within([7; 992], 100 * MS).map(drop))
        });
        assert_eq!(published.is_ok(), name == "readers", "{name}: {published:?}");
        for _ in 0..100 {
            let _ = in_time("receiving", || subscriber.receive_timeout(MS).is_ok());
        }
        let _ = (bus.stats(), bus.topics());
    }
}

/// A file system in memory, visible to this process only, until it is dropped.
struct Mount(CString);

impl Mount {
    fn new(directory: &Path, options: &str) -> Option<Self> {
        let directory = CString::new(directory.to_str().unwrap()).unwrap();
        let options = CString::new(options).unwrap();
        let (kind, all) = (c"tmpfs".as_ptr(), libc::MS_REC | libc::MS_PRIVATE);
        // SAFETY: the strings end with 0, and null is allowed where it is used. Only this process
        // sees the change.
        let done = unsafe {
            let none = std::ptr::null();
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(kind, c"/".as_ptr(), none, all, none.cast()) == 0
                && libc::mount(kind, directory.as_ptr(), kind, 0, options.as_ptr().cast()) == 0
        };
        done.then_some(Self(directory))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: the string ends with 0.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}
