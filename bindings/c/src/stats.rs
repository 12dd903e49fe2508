//! A snapshot of a bus and its participants.

use crate::arguments::{close, handle, put_handle};
use crate::bus::{bus, toroni_bus};
use crate::lists::{Strings, one};
use crate::message::nanoseconds;
use crate::options::toroni_policy;
use crate::status::{Outcome, catch_panics, catch_panics_or};
use std::ffi::{c_char, c_int};
use std::time::Duration;
use toroni::{BusStats, LockKind, NotifyKind, Policy};

pub struct toroni_stats {
    bus: toroni_bus_stats,
    lock_owner: Option<toroni_lock_owner>,
    publishers: Vec<toroni_publisher_info>,
    subscribers: Vec<toroni_subscriber_info>,
    sockets: Vec<*const c_char>,
    /// The strings that the items above point to.
    _names: Strings,
    /// The lists that `patterns` of `subscribers` points to.
    _patterns: Vec<Vec<*const c_char>>,
}

#[repr(C)]
pub struct toroni_lock_owner {
    pub slot: u32,
    pub pid: u32,
    pub alive: c_int,
    pub stopped: c_int,
    pub dumping: c_int,
    pub exclusive: c_int,
}

/// `TORONI_NO_SLOT` of toroni.h.
pub(crate) const NO_SLOT: u32 = u32::MAX;

#[repr(C)]
pub struct toroni_bus_stats {
    pub capacity: u64,
    pub topic_table_bytes: u64,
    pub tail: u64,
    pub sequence: u64,
    pub oldest_position: u64,
    pub created_ns: u64,
    pub policy: toroni_policy,
    pub lock: c_int,
    pub notify: c_int,
    pub topics: u32,
    pub max_publishers: u32,
    pub max_subscribers: u32,
    pub max_arrivals: u32,
    pub persistent: c_int,
    pub on_disk: c_int,
    pub sees_publishers: c_int,
    pub sees_subscribers: c_int,
    pub multicast_address: [u8; 4],
    pub multicast_port: u16,
    pub retained_topics: u32,
    pub max_retained_topics: u32,
    pub missing_values: u32,
    pub retained_used_bytes: u64,
    pub retained_bytes: u64,
}

#[repr(C)]
pub struct toroni_publisher_info {
    pub name: *const c_char,
    pub slot: u32,
    pub pid: u32,
    pub alive: c_int,
    pub stopped: c_int,
    pub messages: u64,
    pub bytes: u64,
    pub waits: u64,
    pub waited_ns: u64,
    pub overwrites: u64,
    pub wakes: u64,
    pub started_ns: u64,
    pub same_pid_namespace: c_int,
    pub dumping: c_int,
}

#[repr(C)]
pub struct toroni_subscriber_info {
    pub name: *const c_char,
    pub slot: u32,
    pub pid: u32,
    pub alive: c_int,
    pub stopped: c_int,
    pub gating: c_int,
    pub lapped_now: c_int,
    pub position: u64,
    pub lag_bytes: u64,
    pub received: u64,
    pub lost_messages: u64,
    pub lapses: u64,
    pub started_ns: u64,
    pub same_pid_namespace: c_int,
    pub patterns_truncated: c_int,
    pub patterns: *const *const c_char,
    pub pattern_count: usize,
    pub dumping: c_int,
    pub losses: u64,
    pub lost_on_the_way: u64,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn policy(policy: Policy) -> toroni_policy {
    let none = toroni_policy { kind: -1, limit_ns: 0, budget_ns: 0, per_ns: 0 };
    match policy {
        Policy::Wait { limit } => {
            toroni_policy { kind: 1, limit_ns: limit.map_or(u64::MAX, ns), ..none }
        }
        Policy::Overwrite => toroni_policy { kind: 2, ..none },
        Policy::Bounded { budget, per } => {
            toroni_policy { kind: 3, budget_ns: ns(budget), per_ns: ns(per), ..none }
        }
        _ => none,
    }
}

impl From<BusStats> for toroni_stats {
    fn from(stats: BusStats) -> Self {
        let mut names = Strings::default();
        let group = match stats.notify {
            NotifyKind::Multicast { group } => group,
            _ => None,
        };
        let bus = toroni_bus_stats {
            capacity: stats.capacity,
            topic_table_bytes: stats.topic_table_bytes,
            tail: stats.tail,
            sequence: stats.sequence,
            oldest_position: stats.oldest_position,
            created_ns: nanoseconds(stats.created),
            policy: policy(stats.policy),
            lock: match stats.lock {
                LockKind::Lease => 0,
                LockKind::Robust => 1,
                _ => -1,
            },
            notify: match stats.notify {
                NotifyKind::Futex => 0,
                NotifyKind::Datagram => 1,
                NotifyKind::Multicast { .. } => 2,
                _ => -1,
            },
            topics: stats.topics,
            max_publishers: stats.max_publishers,
            max_subscribers: stats.max_subscribers,
            max_arrivals: stats.max_arrivals,
            persistent: c_int::from(stats.persistent),
            on_disk: c_int::from(stats.on_disk),
            sees_publishers: c_int::from(stats.publishers.is_some()),
            sees_subscribers: c_int::from(stats.subscribers.is_some()),
            multicast_address: group.map_or([0; 4], |group| group.ip().octets()),
            multicast_port: group.map_or(0, |group| group.port()),
            retained_topics: stats.retained.topics,
            max_retained_topics: stats.retained.max_topics,
            missing_values: stats.retained.missing,
            retained_used_bytes: stats.retained.used_bytes,
            retained_bytes: stats.retained.bytes,
        };
        let lock_owner = stats.lock_owner.map(|owner| toroni_lock_owner {
            slot: owner.slot.unwrap_or(NO_SLOT),
            pid: owner.pid.unwrap_or(0),
            alive: owner.alive.map_or(-1, c_int::from),
            stopped: c_int::from(owner.stopped),
            dumping: c_int::from(owner.dumping),
            exclusive: c_int::from(owner.exclusive),
        });
        let publishers =
            stats.publishers.unwrap_or_default().into_iter().map(|one| toroni_publisher_info {
                name: names.keep(one.name),
                slot: one.slot,
                pid: one.pid,
                alive: c_int::from(one.alive),
                stopped: c_int::from(one.stopped),
                messages: one.messages,
                bytes: one.bytes,
                waits: one.waits,
                waited_ns: ns(one.waited),
                overwrites: one.overwrites,
                wakes: one.wakes,
                started_ns: nanoseconds(one.started),
                same_pid_namespace: c_int::from(one.same_pid_namespace),
                dumping: c_int::from(one.dumping),
            });
        let publishers = publishers.collect();
        let mut patterns = Vec::new();
        let subscribers = stats.subscribers.unwrap_or_default().into_iter().map(|one| {
            let shown = one.patterns.as_deref().unwrap_or_default();
            let shown: Vec<_> = shown.iter().map(|pattern| names.keep(pattern.as_str())).collect();
            // Its items do not move when the list does.
            let (start, pattern_count) = (shown.as_ptr(), shown.len());
            patterns.push(shown);
            toroni_subscriber_info {
                name: names.keep(one.name),
                slot: one.slot,
                pid: one.pid,
                alive: c_int::from(one.alive),
                stopped: c_int::from(one.stopped),
                gating: c_int::from(one.gating),
                lapped_now: c_int::from(one.lapped_now),
                position: one.position,
                lag_bytes: one.lag_bytes,
                received: one.received,
                lost_messages: one.lost_messages,
                lapses: one.lapses,
                started_ns: nanoseconds(one.started),
                same_pid_namespace: c_int::from(one.same_pid_namespace),
                patterns_truncated: match one.patterns {
                    Some(_) => c_int::from(one.patterns_truncated),
                    None => -1,
                },
                patterns: if pattern_count == 0 { std::ptr::null() } else { start },
                pattern_count,
                dumping: c_int::from(one.dumping),
                losses: one.losses,
                lost_on_the_way: one.lost_on_the_way,
            }
        });
        let subscribers = subscribers.collect();
        let sockets = stats.sockets.iter().map(|name| names.keep(name)).collect();
        Self {
            bus,
            lock_owner,
            publishers,
            subscribers,
            sockets,
            _names: names,
            _patterns: patterns,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_take_stats(
    bus: *const toroni_bus,
    result: *mut *mut toroni_stats,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe { put_handle(result, || Ok(self::bus(bus)?.bus.stats()?.into())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_close(stats: *mut toroni_stats) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(stats) }
}

/// # Safety
/// As [`handle`].
unsafe fn stats<'a>(pointer: *const toroni_stats) -> Outcome<&'a toroni_stats> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the statistics") }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_bus(stats: *const toroni_stats) -> *const toroni_bus_stats {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || Ok(&raw const unsafe { self::stats(stats) }?.bus))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_lock_owner(
    stats: *const toroni_stats,
) -> *const toroni_lock_owner {
    catch_panics_or(std::ptr::null(), || {
        // SAFETY: toroni.h requires it of callers.
        let owner = &unsafe { self::stats(stats) }?.lock_owner;
        Ok(owner.as_ref().map_or(std::ptr::null(), std::ptr::from_ref))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_publisher_count(stats: *const toroni_stats) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::stats(stats) }?.publishers.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_publisher(
    stats: *const toroni_stats,
    index: usize,
) -> *const toroni_publisher_info {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || one(&unsafe { self::stats(stats) }?.publishers, index))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_subscriber_count(stats: *const toroni_stats) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::stats(stats) }?.subscribers.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_subscriber(
    stats: *const toroni_stats,
    index: usize,
) -> *const toroni_subscriber_info {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || one(&unsafe { self::stats(stats) }?.subscribers, index))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_socket_count(stats: *const toroni_stats) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::stats(stats) }?.sockets.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_socket(
    stats: *const toroni_stats,
    index: usize,
) -> *const c_char {
    catch_panics_or(std::ptr::null(), || {
        // SAFETY: toroni.h requires it of callers.
        let name = one(&unsafe { self::stats(stats) }?.sockets, index)?;
        // SAFETY: an item of a list that lives as long as the snapshot.
        Ok(unsafe { *name })
    })
}
