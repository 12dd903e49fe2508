//! Tests that a child process inherits no descriptors from a participant.

use crate::common::Fixture;
use crate::{config, is_alone};
use std::collections::BTreeMap;
use std::path::PathBuf;
use toroni::{LockKind, NotifyKind, Policy};

/// Returns the number and target of every open descriptor.
fn open() -> BTreeMap<i32, PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, std::fs::read_link(entry.path()).ok()?))
    });
    named.collect()
}

#[test]
fn no_descriptor_is_inherited() {
    if !is_alone("descriptors::no_descriptor_is_inherited") {
        return;
    }
    let before = open();
    for notify in [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }] {
        for lock in [LockKind::Lease, LockKind::Robust] {
            let fixture = Fixture::new();
            let config = config(&fixture, Policy::default()).notify(notify).lock(lock);
            let bus = config.open("b").unwrap();
            let publisher = bus.publisher("a").unwrap();
            let mut subscriber = bus.subscribe("**").unwrap();
            let _ = subscriber.fd().unwrap();
            assert!(subscriber.try_receive().unwrap().is_none());
            publisher.publish(b"x").unwrap();
            assert!(subscriber.receive().is_ok());
            bus.stats().unwrap();
            let now = open();
            let ours = now.iter().filter(|(number, _)| !before.contains_key(number));
            let ours: Vec<(&i32, &PathBuf)> = ours.collect();
            assert!(ours.len() > 8, "{ours:?}");
            for (number, target) in ours {
                // SAFETY: only reads flags.
                let flags = unsafe { libc::fcntl(*number, libc::F_GETFD) };
                // The descriptor of the listing itself is closed by now.
                assert!(flags == -1 || flags & libc::FD_CLOEXEC != 0, "{}", target.display());
            }
        }
    }
}
