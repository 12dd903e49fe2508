//! `create`: creates the buses `made-0`, `made-1` …, in new directories or in existing ones.

use crate::options::Options;
use std::path::PathBuf;
use toroni::{BusConfig, LockKind, NotifyKind};

pub(crate) fn run(options: &Options) {
    let root: PathBuf = options.get("dir");
    let is_existing = options.get::<String>("directory") == "existing";
    let lock = match options.get::<String>("lock").as_str() {
        "Robust" => LockKind::Robust,
        _ => LockKind::Lease,
    };
    let notify: String = options.get("notify");
    let notify = match notify.split_whitespace().next() {
        Some("Datagram") => NotifyKind::Datagram,
        Some("Multicast") => NotifyKind::Multicast { group: None },
        _ => NotifyKind::Futex,
    };
    for number in 0..options.get::<u64>("count") {
        let name = format!("made-{number}");
        if is_existing {
            // As a mount point would be.
            std::fs::create_dir(root.join(&name)).expect("an empty directory");
        }
        let config = BusConfig::new().directory(&root).capacity(64 << 10);
        drop(config.lock(lock).notify(notify).create(&name).expect("a new bus"));
    }
    println!("made");
}
