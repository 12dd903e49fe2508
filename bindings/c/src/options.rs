//! Converts the options for opening a bus.

use crate::arguments::{self, Options, optional_string};
use crate::status::{Failure, Outcome};
use std::ffi::{c_char, c_int};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use toroni::{Bus, BusConfig, LockKind, NotifyKind, Policy};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_policy {
    pub kind: c_int,
    pub limit_ns: u64,
    pub budget_ns: u64,
    pub per_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_open_options {
    pub struct_size: usize,
    pub existence: c_int,
    pub lock: c_int,
    pub notify: c_int,
    pub multicast_address: [u8; 4],
    pub multicast_port: u16,
    pub directory: *const c_char,
    pub capacity: u64,
    pub topic_table_bytes: u64,
    pub max_publishers: u32,
    pub max_subscribers: u32,
    pub policy: toroni_policy,
    pub flags: u32,
    pub require: u32,
    pub mode: u32,
    pub owner: u32,
    pub writers_group: *const c_char,
    pub readers_group: *const c_char,
    pub participant_name: *const c_char,
    pub max_arrivals: u32,
    pub retained_topics: u32,
    pub retained_bytes: u64,
}

// SAFETY: all fields are numbers and pointers; a test checks the layout.
unsafe impl Options for toroni_open_options {
    const INIT: &'static str = "TORONI_OPEN_OPTIONS_INIT";
}

const FLAGS: [fn(BusConfig, bool) -> BusConfig; 5] = [
    BusConfig::persistent,
    BusConfig::huge_pages,
    BusConfig::prefault,
    BusConfig::lock_memory,
    BusConfig::timestamps,
];
const REQUIREMENTS: [fn(BusConfig) -> BusConfig; 4] = [
    BusConfig::require_capacity,
    BusConfig::require_policy,
    BusConfig::require_lock,
    BusConfig::require_notify,
];
const REQUIRE_OWNER: u32 = 1 << REQUIREMENTS.len();
/// `TORONI_NO_ARRIVALS` of toroni.h.
const NO_ARRIVALS: u32 = u32::MAX;
/// `TORONI_NO_RETAINED` of toroni.h.
const NO_RETAINED: u32 = u32::MAX;

/// Opens a bus with these options, or with the defaults if `options` is null.
///
/// # Safety
/// `options` is null, or points to options as toroni.h describes them.
pub(crate) unsafe fn open(name: &str, options: *const toroni_open_options) -> Outcome<Bus> {
    if options.is_null() {
        return Ok(Bus::open(name)?);
    }
    // SAFETY: not null; the caller guarantees the rest.
    let options = unsafe { arguments::options(options) }?;
    // SAFETY: as above; that includes the strings.
    let config = unsafe { config(&options) }?;
    Ok(match options.existence {
        0 => config.open(name),
        1 => config.create(name),
        2 => config.open_existing(name),
        other => return Err(unknown("existence", other)),
    }?)
}

/// # Safety
/// The strings are null or end with 0.
pub(crate) unsafe fn config(options: &toroni_open_options) -> Outcome<BusConfig> {
    let mut config = BusConfig::new().lock(match options.lock {
        0 => LockKind::Lease,
        1 => LockKind::Robust,
        other => return Err(unknown("lock", other)),
    });
    config = config.notify(match options.notify {
        0 => NotifyKind::Futex,
        1 => NotifyKind::Datagram,
        2 => NotifyKind::Multicast { group: multicast_group(options) },
        other => return Err(unknown("notify", other)),
    });
    if let Some(policy) = policy(&options.policy)? {
        config = config.policy(policy);
    }
    // SAFETY: the caller guarantees it for each string.
    let strings = unsafe {
        [
            (optional_string(options.directory, "directory")?, BusConfig::directory as With),
            (optional_string(options.writers_group, "writers_group")?, BusConfig::writers_group),
            (optional_string(options.readers_group, "readers_group")?, BusConfig::readers_group),
            (
                optional_string(options.participant_name, "participant_name")?,
                BusConfig::participant_name,
            ),
        ]
    };
    for (value, with) in strings {
        config = value.map_or(config.clone(), |value| with(config, value.to_owned()));
    }
    if options.capacity != 0 {
        config = config.capacity(options.capacity);
    }
    if options.topic_table_bytes != 0 {
        config = config.topic_table_bytes(options.topic_table_bytes);
    }
    if options.max_publishers != 0 {
        config = config.max_publishers(options.max_publishers);
    }
    if options.max_subscribers != 0 {
        config = config.max_subscribers(options.max_subscribers);
    }
    if options.max_arrivals != 0 {
        let none = options.max_arrivals == NO_ARRIVALS;
        config = config.max_arrivals(if none { 0 } else { options.max_arrivals });
    }
    if options.retained_topics != 0 {
        let none = options.retained_topics == NO_RETAINED;
        config = config.retained_topics(if none { 0 } else { options.retained_topics });
    }
    if options.retained_bytes != 0 {
        config = config.retained_bytes(options.retained_bytes);
    }
    if options.mode != 0 {
        config = config.mode(options.mode);
    }
    if options.flags >> FLAGS.len() != 0 {
        return Err(unknown("flags", options.flags));
    }
    for (bit, with) in FLAGS.iter().enumerate() {
        config = with(config, options.flags >> bit & 1 == 1);
    }
    if options.require & !(REQUIRE_OWNER * 2 - 1) != 0 {
        return Err(unknown("require", options.require));
    }
    for (bit, with) in REQUIREMENTS.iter().enumerate() {
        config = if options.require >> bit & 1 == 1 { with(config) } else { config };
    }
    if options.require & REQUIRE_OWNER != 0 {
        config = config.require_owner(options.owner);
    }
    Ok(config)
}

type With = fn(BusConfig, String) -> BusConfig;

fn multicast_group(options: &toroni_open_options) -> Option<SocketAddrV4> {
    let address = Ipv4Addr::from(options.multicast_address);
    let is_given = !address.is_unspecified() || options.multicast_port != 0;
    is_given.then(|| SocketAddrV4::new(address, options.multicast_port))
}

/// Returns the policy, or `None` for the default.
pub(crate) fn policy(policy: &toroni_policy) -> Outcome<Option<Policy>> {
    Ok(Some(match policy.kind {
        0 => return Ok(None),
        1 => Policy::Wait { limit: arguments::timeout(policy.limit_ns) },
        2 => Policy::Overwrite,
        3 => Policy::Bounded {
            budget: Duration::from_nanos(policy.budget_ns),
            per: Duration::from_nanos(policy.per_ns),
        },
        other => return Err(unknown("policy.kind", other)),
    }))
}

pub(crate) fn unknown(what: &str, value: impl std::fmt::Display) -> Failure {
    Failure::argument(format!("{what} is {value}, which this release does not know"))
}
