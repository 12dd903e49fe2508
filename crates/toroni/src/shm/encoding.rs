//! Reads and writes the words of a header, and maps lock kinds, notifiers and policies to numbers.

use crate::ring::layout::RawHeader;
use crate::settings::{LockKind, NotifyKind, Policy};
use std::mem::offset_of;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

pub(super) fn policy_to_words(policy: Policy) -> (u32, u64, u64) {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match policy {
        Policy::Wait { limit } => (1, limit.map_or(u64::MAX, ns), 0),
        Policy::Overwrite => (2, 0, 0),
        Policy::Bounded { budget, per } => (3, ns(budget), ns(per)),
    }
}

pub(super) fn policy_from_words(bytes: &[u8]) -> Option<Policy> {
    let first = get_u64(bytes, offset_of!(RawHeader, policy_ns));
    let per = get_u64(bytes, offset_of!(RawHeader, policy_per_ns));
    match get_u32(bytes, offset_of!(RawHeader, policy)) {
        1 if first == u64::MAX => Some(Policy::Wait { limit: None }),
        1 => Some(Policy::Wait { limit: Some(Duration::from_nanos(first)) }),
        2 => Some(Policy::Overwrite),
        3 => Some(Policy::Bounded {
            budget: Duration::from_nanos(first),
            per: Duration::from_nanos(per),
        }),
        _ => None,
    }
}

pub(super) fn lock_to_word(lock: LockKind) -> u32 {
    match lock {
        LockKind::Lease => 1,
        LockKind::Robust => 2,
    }
}

pub(super) fn lock_from_word(word: u32) -> Option<LockKind> {
    match word {
        1 => Some(LockKind::Lease),
        2 => Some(LockKind::Robust),
        _ => None,
    }
}

pub(super) fn notify_to_words(notify: NotifyKind) -> (u32, Option<SocketAddrV4>) {
    match notify {
        NotifyKind::Futex => (1, None),
        NotifyKind::Datagram => (2, None),
        NotifyKind::Multicast { group } => (3, group),
    }
}

pub(super) fn notify_from_words(bytes: &[u8]) -> Option<NotifyKind> {
    let address = get_u32(bytes, offset_of!(RawHeader, group_address));
    let port = u16::try_from(get_u32(bytes, offset_of!(RawHeader, group_port))).ok()?;
    match get_u32(bytes, offset_of!(RawHeader, notify)) {
        1 => Some(NotifyKind::Futex),
        2 => Some(NotifyKind::Datagram),
        3 if address == 0 && port == 0 => Some(NotifyKind::Multicast { group: None }),
        3 => Some(NotifyKind::Multicast {
            group: Some(SocketAddrV4::new(Ipv4Addr::from_bits(address), port)),
        }),
        _ => None,
    }
}

// Offsets are compile-time constants within lengths that `check_common` has checked.

pub(super) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..][..4].copy_from_slice(&value.to_ne_bytes());
}

pub(super) fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..][..8].copy_from_slice(&value.to_ne_bytes());
}

pub(super) fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, offset))
}

pub(super) fn get_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(array(bytes, offset))
}

pub(super) fn array<const LENGTH: usize>(bytes: &[u8], offset: usize) -> [u8; LENGTH] {
    let mut array = [0; LENGTH];
    array.copy_from_slice(&bytes[offset..][..LENGTH]);
    array
}
