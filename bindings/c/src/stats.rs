//! A snapshot of a bus, and who takes part.

use crate::arguments::{close, handle, put_handle};
use crate::bus::{bus, toroni_bus};
use crate::lists::{Strings, one};
use crate::message::nanoseconds;
use crate::options::toroni_policy;
use crate::status::{Outcome, catch_panics, catch_panics_or};
use std::ffi::{c_char, c_int};
use std::time::Duration;
use toroni::{BusStats, LockKind, NotifyKind, Policy};

/// `toroni_stats` of the header.
pub struct toroni_stats {
    bus: toroni_bus_stats,
    lock_owner: Option<toroni_lock_owner>,
    publishers: Vec<toroni_publisher_info>,
    subscribers: Vec<toroni_subscriber_info>,
    sockets: Vec<*const c_char>,
    /// What they point to.
    _names: Strings,
    /// What the patterns of `subscribers` point to.
    _patterns: Vec<Vec<*const c_char>>,
}

/// `toroni_lock_owner` of the header.
#[repr(C)]
pub struct toroni_lock_owner {
    /// Its slot, or `TORONI_NO_SLOT`.
    pub slot: u32,
    /// Its process or thread, or 0.
    pub pid: u32,
    /// Whether it lives, or -1.
    pub alive: c_int,
    /// Whether it is stopped.
    pub stopped: c_int,
}

/// `TORONI_NO_SLOT` of the header.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// `toroni_bus_stats` of the header.
#[repr(C)]
pub struct toroni_bus_stats {
    /// Bytes of the ring.
    pub capacity: u64,
    /// Bytes for names of topics.
    pub topic_table_bytes: u64,
    /// Bytes published so far.
    pub tail: u64,
    /// Messages published so far.
    pub sequence: u64,
    /// Position of the oldest message.
    pub oldest_position: u64,
    /// When it was created, in ns since 1970.
    pub created_ns: u64,
    /// What publishers do about slow subscribers.
    pub policy: toroni_policy,
    /// A `TORONI_LOCK_…`, or -1.
    pub lock: c_int,
    /// A `TORONI_NOTIFY_…`, or -1.
    pub notify: c_int,
    /// Names in the table.
    pub topics: u32,
    /// Slots.
    pub max_publishers: u32,
    /// Slots.
    pub max_subscribers: u32,
    /// Whether it outlives a clean-up.
    pub persistent: c_int,
    /// Whether it is on a disk.
    pub on_disk: c_int,
    /// Whether the publishers could be seen.
    pub sees_publishers: c_int,
    /// Whether the subscribers could be seen.
    pub sees_subscribers: c_int,
    /// The group of `TORONI_NOTIFY_MULTICAST`, or zeros.
    pub multicast_address: [u8; 4],
    /// Its port, or 0.
    pub multicast_port: u16,
}

/// `toroni_publisher_info` of the header.
#[repr(C)]
pub struct toroni_publisher_info {
    /// What it calls itself.
    pub name: *const c_char,
    /// Its slot.
    pub slot: u32,
    /// Its process.
    pub pid: u32,
    /// Whether it lives.
    pub alive: c_int,
    /// Whether it is stopped.
    pub stopped: c_int,
    /// Messages it published.
    pub messages: u64,
    /// Bytes of the stream for them.
    pub bytes: u64,
    /// Waits for slow subscribers.
    pub waits: u64,
    /// ns of those.
    pub waited_ns: u64,
    /// How often it overwrote.
    pub overwrites: u64,
    /// Wake-ups it sent.
    pub wakes: u64,
    /// When it opened the bus for publishing, in ns since 1970.
    pub started_ns: u64,
    /// Whether its process counts in the namespace of this one.
    pub same_pid_namespace: c_int,
}

/// `toroni_subscriber_info` of the header.
#[repr(C)]
pub struct toroni_subscriber_info {
    /// What it calls itself.
    pub name: *const c_char,
    /// Its slot.
    pub slot: u32,
    /// Its process.
    pub pid: u32,
    /// Whether it lives.
    pub alive: c_int,
    /// Whether it is stopped.
    pub stopped: c_int,
    /// Whether publishers wait for it.
    pub gating: c_int,
    /// Whether it was overtaken.
    pub lapped_now: c_int,
    /// Up to where it has read.
    pub position: u64,
    /// Bytes from there to the end.
    pub lag_bytes: u64,
    /// Messages it received.
    pub received: u64,
    /// Messages of the bus that it lost.
    pub lost_messages: u64,
    /// How often.
    pub lapses: u64,
    /// When it subscribed, in ns since 1970.
    pub started_ns: u64,
    /// Whether its process counts in the namespace of this one.
    pub same_pid_namespace: c_int,
    /// Whether it has more patterns than show, or -1 if none can be read.
    pub patterns_truncated: c_int,
    /// Those that show.
    pub patterns: *const *const c_char,
    /// How many.
    pub pattern_count: usize,
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
            persistent: c_int::from(stats.persistent),
            on_disk: c_int::from(stats.on_disk),
            sees_publishers: c_int::from(stats.publishers.is_some()),
            sees_subscribers: c_int::from(stats.subscribers.is_some()),
            multicast_address: group.map_or([0; 4], |group| group.ip().octets()),
            multicast_port: group.map_or(0, |group| group.port()),
        };
        let lock_owner = stats.lock_owner.map(|owner| toroni_lock_owner {
            slot: owner.slot.unwrap_or(NO_SLOT),
            pid: owner.pid.unwrap_or(0),
            alive: owner.alive.map_or(-1, c_int::from),
            stopped: c_int::from(owner.stopped),
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
            });
        let publishers = publishers.collect();
        let mut patterns = Vec::new();
        let subscribers = stats.subscribers.unwrap_or_default().into_iter().map(|one| {
            let shown = one.patterns.as_deref().unwrap_or_default();
            let shown: Vec<_> = shown.iter().map(|pattern| names.keep(pattern.as_str())).collect();
            // What they point to stays where it is when the list moves.
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

/// Takes a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_take_stats(
    bus: *const toroni_bus,
    result: *mut *mut toroni_stats,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe { put_handle(result, || Ok(self::bus(bus)?.bus.stats()?.into())) })
}

/// Gives it back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_close(stats: *mut toroni_stats) {
    // SAFETY: what callers owe.
    unsafe { close(stats) }
}

/// # Safety
/// As [`handle`].
unsafe fn stats<'a>(pointer: *const toroni_stats) -> Outcome<&'a toroni_stats> {
    // SAFETY: the caller's promise.
    unsafe { handle(pointer, "the statistics") }
}

/// The bus in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_bus(stats: *const toroni_stats) -> *const toroni_bus_stats {
    // SAFETY: what callers owe.
    catch_panics_or(std::ptr::null(), || Ok(&raw const unsafe { self::stats(stats) }?.bus))
}

/// Who holds the writer lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_lock_owner(
    stats: *const toroni_stats,
) -> *const toroni_lock_owner {
    catch_panics_or(std::ptr::null(), || {
        // SAFETY: what callers owe.
        let owner = &unsafe { self::stats(stats) }?.lock_owner;
        Ok(owner.as_ref().map_or(std::ptr::null(), std::ptr::from_ref))
    })
}

/// How many publishing participants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_publisher_count(stats: *const toroni_stats) -> usize {
    // SAFETY: what callers owe.
    catch_panics_or(0, || Ok(unsafe { self::stats(stats) }?.publishers.len()))
}

/// One of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_publisher(
    stats: *const toroni_stats,
    index: usize,
) -> *const toroni_publisher_info {
    // SAFETY: what callers owe.
    catch_panics_or(std::ptr::null(), || one(&unsafe { self::stats(stats) }?.publishers, index))
}

/// How many subscribers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_subscriber_count(stats: *const toroni_stats) -> usize {
    // SAFETY: what callers owe.
    catch_panics_or(0, || Ok(unsafe { self::stats(stats) }?.subscribers.len()))
}

/// One of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_subscriber(
    stats: *const toroni_stats,
    index: usize,
) -> *const toroni_subscriber_info {
    // SAFETY: what callers owe.
    catch_panics_or(std::ptr::null(), || one(&unsafe { self::stats(stats) }?.subscribers, index))
}

/// How many sockets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_socket_count(stats: *const toroni_stats) -> usize {
    // SAFETY: what callers owe.
    catch_panics_or(0, || Ok(unsafe { self::stats(stats) }?.sockets.len()))
}

/// The name of one of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_stats_socket(
    stats: *const toroni_stats,
    index: usize,
) -> *const c_char {
    catch_panics_or(std::ptr::null(), || {
        // SAFETY: what callers owe.
        let name = one(&unsafe { self::stats(stats) }?.sockets, index)?;
        // SAFETY: from a list that is there.
        Ok(unsafe { *name })
    })
}
