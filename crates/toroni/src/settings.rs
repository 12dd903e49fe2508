//! The settings that a bus is created with and that its header records: pure values, checked once.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// What a publisher does when the ring is full because a gating subscriber is slow.
///
/// It is chosen when the bus is created ([`BusConfig::policy`](crate::BusConfig::policy)). A publisher can
/// make its own waits shorter ([`Publisher::with_policy`](crate::Publisher::with_policy)), but not longer.
///
/// ```
/// use std::time::Duration;
/// use toroni::{BusConfig, Policy};
///
/// let nothing_is_lost = BusConfig::new().policy(Policy::Wait { limit: None });
/// let only_the_newest_counts = BusConfig::new().policy(Policy::Overwrite);
/// let slowed_by_a_tenth_at_most = BusConfig::new().policy(Policy::Bounded {
///     budget: Duration::from_millis(100),
///     per: Duration::from_secs(1),
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Waits for the slowest gating subscriber for `limit` at most, then overwrites. The subscriber then
    /// learns exactly how many messages it lost. With `limit: None` publishers wait as long as that
    /// subscriber lives.
    ///
    /// This is the default, with 100 ms: no message is lost unless a subscriber is stuck.
    Wait {
        /// The longest wait of one publish; `None` for as long as the subscriber lives.
        limit: Option<Duration>,
    },
    /// Never waits. Use it for data of which only the newest counts.
    Overwrite,
    /// All publishers together wait for `budget` at most in each interval `per`. When it is used up, no
    /// publisher waits until the next interval, and slow subscribers lose messages.
    Bounded {
        /// The waiting time in an interval, for all publishers together.
        budget: Duration,
        /// The length of an interval.
        per: Duration,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self::Wait { limit: Some(Duration::from_millis(100)) }
    }
}

/// Writes it as the program `toroni` does: `wait:100ms`, `wait:forever`, `overwrite`, `bounded:10ms/1s`.
impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait { limit: None } => formatter.write_str("wait:forever"),
            Self::Wait { limit: Some(limit) } => write!(formatter, "wait:{limit:?}"),
            Self::Overwrite => formatter.write_str("overwrite"),
            Self::Bounded { budget, per } => write!(formatter, "bounded:{budget:?}/{per:?}"),
        }
    }
}

/// How publishers exclude one another. It is chosen when the bus is created
/// ([`BusConfig::lock`](crate::BusConfig::lock)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockKind {
    /// A futex word; the owner's lease (an open-file-description lock) shows that the owner lives. It
    /// works across PID namespaces and containers. The default.
    #[default]
    Lease,
    /// A process-shared robust mutex of the C library. The kernel hands it over at once when its owner
    /// dies, however large that process is. It works only within one PID namespace and C library.
    Robust,
}

/// Writes it as the program `toroni` does: `lease`, `robust`.
impl fmt::Display for LockKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Lease => "lease",
            Self::Robust => "robust",
        })
    }
}

/// How publishers wake subscribers. It is chosen when the bus is created
/// ([`BusConfig::notify`](crate::BusConfig::notify)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotifyKind {
    /// Blocking calls sleep on a futex; a subscriber that asks for a descriptor gets a datagram
    /// socket. The default.
    #[default]
    Futex,
    /// Blocking calls wait on the datagram socket, too.
    Datagram,
    /// One UDP datagram to a multicast group on the loopback interface wakes all, as in the Toroni paper,
    /// §3.2.4. It reaches one network namespace only.
    Multicast {
        /// Group and port. With `None` they are derived from the bus id, in 239.255.0.0/16.
        group: Option<SocketAddrV4>,
    },
}

/// Writes it as the program `toroni` does: `futex`, `datagram`, `multicast`, `multicast:239.255.1.2:5000`.
impl fmt::Display for NotifyKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Futex => formatter.write_str("futex"),
            Self::Datagram => formatter.write_str("datagram"),
            Self::Multicast { group: None } => formatter.write_str("multicast"),
            Self::Multicast { group: Some(group) } => write!(formatter, "multicast:{group}"),
        }
    }
}

/// The recorded settings of a bus. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) capacity: u64,
    pub(crate) topic_table_bytes: u64,
    pub(crate) max_publishers: u32,
    pub(crate) max_subscribers: u32,
    /// Streams from elsewhere whose arrival the bus keeps track of.
    pub(crate) max_arrivals: u32,
    /// Topics whose newest message the bus keeps, and the bytes for that.
    pub(crate) retained_topics: u32,
    pub(crate) retained_bytes: u64,
    pub(crate) policy: Policy,
    pub(crate) lock: LockKind,
    pub(crate) notify: NotifyKind,
    /// `clean` never removes the bus.
    pub(crate) persistent: bool,
    /// The stream starts at a multiple of 2 MiB, and processes ask for huge pages.
    pub(crate) huge_pages: bool,
}

pub(crate) const DEFAULT_CAPACITY: u64 = 4 << 20;
pub(crate) const DEFAULT_TOPIC_TABLE_BYTES: u64 = 1 << 20;
pub(crate) const DEFAULT_PARTICIPANTS: u32 = 128;
pub(crate) const DEFAULT_ARRIVALS: u32 = 256;
pub(crate) const DEFAULT_RETAINED_TOPICS: u32 = 512;
pub(crate) const DEFAULT_RETAINED_BYTES: u64 = 448 << 10;
/// The paper's stress test runs in 64 KiB; below, a block is smaller than a page's worth of records.
pub(crate) const SMALLEST_CAPACITY: u64 = 64 << 10;
pub(crate) const LARGEST_CAPACITY: u64 = 1 << 40;
pub(crate) const SMALLEST_TOPIC_TABLE_BYTES: u64 = 4 << 10;
pub(crate) const LARGEST_TOPIC_TABLE_BYTES: u64 = 1 << 32;
/// A participant's number fits 12 bits of the lock word; this keeps a scan of all slots short.
pub(crate) const MOST_PARTICIPANTS: u32 = 1024;
/// The table of arrivals then has 4 MiB.
pub(crate) const MOST_ARRIVALS: u32 = 1 << 16;
/// Only topics with a row can be retained.
pub(crate) const MOST_RETAINED_TOPICS: u32 = 4096;
pub(crate) const SMALLEST_RETAINED_BYTES: u64 = 4 << 10;
pub(crate) const LARGEST_RETAINED_BYTES: u64 = 1 << 32;

impl Default for Settings {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_CAPACITY,
            topic_table_bytes: DEFAULT_TOPIC_TABLE_BYTES,
            max_publishers: DEFAULT_PARTICIPANTS,
            max_subscribers: DEFAULT_PARTICIPANTS,
            max_arrivals: DEFAULT_ARRIVALS,
            retained_topics: DEFAULT_RETAINED_TOPICS,
            retained_bytes: DEFAULT_RETAINED_BYTES,
            policy: Policy::default(),
            lock: LockKind::default(),
            notify: NotifyKind::default(),
            persistent: false,
            huge_pages: false,
        }
    }
}

/// A setting is outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}, but must be {rule}")]
pub struct InvalidSetting {
    /// Name of the setting, as in [`BusConfig`](crate::BusConfig).
    pub setting: &'static str,
    /// The value that was given.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl Settings {
    /// Checks every range. It also checks what a header says, before any of it is used.
    pub(crate) fn validate(&self) -> Result<(), InvalidSetting> {
        let invalid =
            |setting, value: String, rule: String| Err(InvalidSetting { setting, value, rule });
        if !self.capacity.is_power_of_two()
            || !(SMALLEST_CAPACITY..=LARGEST_CAPACITY).contains(&self.capacity)
        {
            return invalid(
                "capacity",
                format!("{} bytes", self.capacity),
                format!(
                    "a power of two from {} KiB to {} TiB",
                    SMALLEST_CAPACITY >> 10,
                    LARGEST_CAPACITY >> 40
                ),
            );
        }
        if !self.topic_table_bytes.is_multiple_of(SMALLEST_TOPIC_TABLE_BYTES)
            || !(SMALLEST_TOPIC_TABLE_BYTES..=LARGEST_TOPIC_TABLE_BYTES)
                .contains(&self.topic_table_bytes)
        {
            return invalid(
                "topic_table_bytes",
                format!("{} bytes", self.topic_table_bytes),
                format!(
                    "a multiple of {} KiB, at most {} GiB",
                    SMALLEST_TOPIC_TABLE_BYTES >> 10,
                    LARGEST_TOPIC_TABLE_BYTES >> 30
                ),
            );
        }
        for (setting, value) in
            [("max_publishers", self.max_publishers), ("max_subscribers", self.max_subscribers)]
        {
            if !(1..=MOST_PARTICIPANTS).contains(&value) {
                let rule = format!("from 1 to {MOST_PARTICIPANTS}");
                return invalid(setting, value.to_string(), rule);
            }
        }
        if self.max_arrivals > MOST_ARRIVALS {
            let rule = format!("at most {MOST_ARRIVALS}");
            return invalid("max_arrivals", self.max_arrivals.to_string(), rule);
        }
        if self.retained_topics > MOST_RETAINED_TOPICS {
            let rule = format!("at most {MOST_RETAINED_TOPICS} topics, or 0");
            return invalid("retained_topics", format!("{} topics", self.retained_topics), rule);
        }
        if self.retained_topics > 0
            && (!self.retained_bytes.is_multiple_of(SMALLEST_RETAINED_BYTES)
                || !(SMALLEST_RETAINED_BYTES..=LARGEST_RETAINED_BYTES)
                    .contains(&self.retained_bytes))
        {
            return invalid(
                "retained_bytes",
                format!("{} bytes", self.retained_bytes),
                format!(
                    "a multiple of {} KiB, at most {} GiB",
                    SMALLEST_RETAINED_BYTES >> 10,
                    LARGEST_RETAINED_BYTES >> 30
                ),
            );
        }
        if let Policy::Bounded { budget, per } = self.policy
            && (per.is_zero() || budget > per || per > LONGEST_DURATION)
        {
            return invalid(
                "policy",
                format!("a budget of {budget:?} per {per:?}"),
                "a budget of at most the interval, which is above 0 and at most an hour".to_owned(),
            );
        }
        if let Policy::Wait { limit: Some(limit) } = self.policy
            && limit > LONGEST_DURATION
        {
            return invalid(
                "policy",
                format!("a wait of at most {limit:?}"),
                "a wait of at most an hour, or one without a limit".to_owned(),
            );
        }
        if let NotifyKind::Multicast { group: Some(group) } = self.notify
            && (!group.ip().is_multicast() || group.port() == 0)
        {
            return invalid(
                "notify",
                format!("the group {group}"),
                "a multicast address from 224.0.0.0 to 239.255.255.255 and a port".to_owned(),
            );
        }
        Ok(())
    }
}

const LONGEST_DURATION: Duration = Duration::from_secs(3600);

impl NotifyKind {
    /// Returns group and port of the multicast notifier: those configured, or ones derived from the bus
    /// id, in the organisation-local scope 239.255.0.0/16 (RFC 2365 §6.1) and the dynamic ports.
    pub(crate) fn multicast_group(self, bus_id: &[u8; 16]) -> Option<SocketAddrV4> {
        let Self::Multicast { group } = self else { return None };
        Some(group.unwrap_or_else(|| {
            let address = Ipv4Addr::new(239, 255, bus_id[0], bus_id[1]);
            let port = 49152 | (u16::from_le_bytes([bus_id[2], bus_id[3]]) & 0x3FFF);
            SocketAddrV4::new(address, port)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(Settings::default().validate(), Ok(()));
    }

    #[test]
    fn each_range_is_checked() {
        let base = Settings::default();
        for (broken, name) in [
            (Settings { capacity: 100_000, ..base }, "capacity"),
            (Settings { capacity: 32 << 10, ..base }, "capacity"),
            (Settings { topic_table_bytes: 5000, ..base }, "topic_table_bytes"),
            (Settings { max_publishers: 0, ..base }, "max_publishers"),
            (Settings { max_subscribers: 1025, ..base }, "max_subscribers"),
            (Settings { max_arrivals: 65537, ..base }, "max_arrivals"),
            (
                Settings {
                    policy: Policy::Bounded {
                        budget: Duration::from_secs(2),
                        per: Duration::from_secs(1),
                    },
                    ..base
                },
                "policy",
            ),
            (
                Settings {
                    notify: NotifyKind::Multicast {
                        group: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5000)),
                    },
                    ..base
                },
                "notify",
            ),
        ] {
            assert_eq!(broken.validate().unwrap_err().setting, name);
        }
    }

    #[test]
    fn multicast_group_is_in_scope() {
        let derived = NotifyKind::Multicast { group: None }.multicast_group(&[0xFF; 16]).unwrap();
        assert_eq!(derived.ip().octets()[..2], [239, 255]);
        assert!(derived.port() >= 49152);
    }
}
