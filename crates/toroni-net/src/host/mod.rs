//! What a host has and how it is configured, as far as multicast depends on it. Nothing here changes a setting.
//!
//! Everything is that of the network namespace of the calling thread. `/sys` shows the namespace in which it was mounted,
//! which may be another one, so it is not read here: interfaces come from netlink, and counters from netlink and
//! `/proc/thread-self/net`.

pub mod address;
pub mod arp;
pub mod buffers;
pub mod changes;
pub mod clock;
pub mod counters;
pub mod ethtool;
pub mod filter;
pub mod interface;
mod netlink;
pub mod sysctl;
