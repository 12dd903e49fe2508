//! How large the receive buffer of a socket must be, and how long a buffer lasts.
//!
//! ```text
//!   bytes   = rate × stall        the program does not read for `stall`, and nothing may be lost
//!   latency = bytes ÷ rate        a full buffer delays the datagram that comes last
//! ```
//!
//! The kernel does not count a datagram's bytes, but the memory that holds it: its **charge**, which for small datagrams
//! is several times as much. It doubles what is asked for (man 7 socket, `SO_RCVBUF`). And while a program reads, up to
//! a quarter of the buffer may still be charged for datagrams that it has read already (`udp_rmem_release` of the
//! kernel), so only three quarters are certain:
//!
//! ```text
//!   ├── certain: ¾ of 2 × SO_RCVBUF ──────────────────┼── free, or not yet released ──┤
//!     datagrams × charge
//! ```

use super::sysctl::Change;
use std::time::Duration;

/// The setting that limits what a program may ask for.
pub const LIMIT_SETTING: &str = "net.core.rmem_max";
/// The setting that limits the memory of all UDP sockets of a network namespace together.
pub const MEMORY_SETTING: &str = "net.ipv4.udp_mem";
/// How long a program that reads may not be running, if nothing else is known: the longest delays that a loaded machine
/// showed were 50 to 118 ms.
pub const USUAL_STALL: Duration = Duration::from_millis(50);
/// The payload of a full datagram, if nothing else is configured.
pub const USUAL_DATAGRAM: u32 = 1_408;
/// The kernel takes no larger value for `SO_RCVBUF` (`INT_MAX / 2`).
pub const MOST_REQUESTED: u64 = (i32::MAX / 2) as u64;
/// Bytes that a datagram of IPv4 has on an Ethernet besides its payload: UDP 8, IP 20, Ethernet 18, preamble and gap 20.
pub const WIRE_BYTES: u32 = 66;

/// A stream of datagrams of one size, and what the kernel charges for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    rate: u64,
    size: u32,
    charge: u32,
}

impl Load {
    /// Describes a stream: bits per second of all datagrams, bytes of each, and the kernel's charge for each in bytes.
    ///
    /// Values of 0 count as 1, and a charge that is smaller than the datagram as its size.
    #[must_use]
    pub fn new(rate: u64, size: u32, charge: u32) -> Self {
        let size = size.max(1);
        Self { rate: rate.max(1), size, charge: charge.max(size) }
    }

    /// Returns the bytes of the datagrams that arrive during this time.
    #[must_use]
    pub fn bytes(self, stall: Duration) -> u64 {
        let bits = u128::from(self.rate).saturating_mul(stall.as_nanos());
        u64::try_from(bits.div_ceil(8 * 1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the `SO_RCVBUF` that survives this time for certain. [`MOST_REQUESTED`] limits what the kernel takes.
    #[must_use]
    pub fn request(self, stall: Duration) -> u64 {
        let datagrams = u128::from(self.bytes(stall)).div_ceil(u128::from(self.size));
        // Doubled by the kernel, of which three quarters are certain.
        let request = (datagrams * u128::from(self.charge) * 4).div_ceil(3 * 2);
        u64::try_from(request).unwrap_or(u64::MAX)
    }

    /// Returns how long a program with this `SO_RCVBUF` may certainly not read, and loses nothing.
    #[must_use]
    pub fn survives(self, request: u64) -> Duration {
        self.time_of(u128::from(request) * 2 * 3 / 4)
    }

    /// Returns how long the last datagram of a full buffer waits: the greatest latency that this `SO_RCVBUF` adds.
    #[must_use]
    pub fn latency(self, request: u64) -> Duration {
        // The kernel takes one datagram more than fits.
        self.time_of(u128::from(request) * 2 + u128::from(self.charge))
    }

    /// Returns in which time the datagrams arrive that the kernel holds with so much memory.
    fn time_of(self, memory: u128) -> Duration {
        let datagrams = memory / u128::from(self.charge);
        let bits = datagrams.saturating_mul(u128::from(self.size) * 8);
        let nanoseconds = bits.saturating_mul(1_000_000_000) / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// Returns the memory that a socket with this `SO_RCVBUF` may use, in bytes.
#[must_use]
pub const fn memory(request: u64) -> u64 {
    request.saturating_mul(2)
}

/// Estimates the kernel's charge for a datagram, where it cannot be measured: the next power of two of payload, headers and
/// `skb_shared_info`, and the descriptor of the packet.
#[must_use]
pub const fn usual_charge(size: u32) -> u32 {
    // No datagram is larger.
    let size = if size < 65_536 { size } else { 65_536 };
    (size + 64 + 320).next_power_of_two() + 256
}

/// Returns the change of the kernel's limit that lets programs without privileges ask for this `SO_RCVBUF`, or `None` if
/// they may already.
#[must_use]
pub fn raise_limit(request: u64, limit: u64) -> Option<Change> {
    (request > limit).then(|| Change::new(LIMIT_SETTING, request))
}

/// Returns the change of the kernel's limit for all sockets together, if sockets with so much memory need it: its three
/// numbers are pages.
#[must_use]
pub fn raise_memory(bytes: u64, pages: &[u64], page_bytes: u64) -> Option<Change> {
    let [low, pressure, most] = *<&[u64; 3]>::try_from(pages).ok()?;
    let wanted = bytes.div_ceil(page_bytes.max(1));
    (wanted > most).then(|| {
        Change::new(
            MEMORY_SETTING,
            format!("{} {} {wanted}", low.min(wanted), pressure.min(wanted)),
        )
    })
}

/// Returns how long a `link` (in bits per second) needs for a datagram of `size` bytes.
#[must_use]
pub fn serialisation(size: u32, link: u64) -> Duration {
    let bits = u128::from(size.saturating_add(WIRE_BYTES)) * 8;
    let nanoseconds = bits * 1_000_000_000 / u128::from(link.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEGABIT: u64 = 1_000_000;

    #[test]
    fn the_equations_are_those_of_the_books() {
        // 200 Mbit/s for 50 ms are 1.25 MB: 888 datagrams of 1,408 bytes, each charged 2,304.
        let load = Load::new(200 * MEGABIT, 1_408, 2_304);
        assert_eq!(load.bytes(Duration::from_millis(50)), 1_250_000);
        assert_eq!(load.request(Duration::from_millis(50)), 888 * 2_304 * 4 / 6);
        // The default of most kernels lasts 5 ms at this rate: 138 datagrams.
        assert_eq!(load.survives(212_992), Duration::from_nanos(138 * 1_408 * 8 * 5));
        assert_eq!(load.latency(212_992), Duration::from_nanos(185 * 1_408 * 8 * 5));
        // A 100 Mbit/s Ethernet adds 120 µs to 1,500 bytes, and some for what surrounds them.
        assert_eq!(serialisation(1_434, 100 * MEGABIT), Duration::from_micros(120));
    }

    #[test]
    fn nothing_overflows() {
        let load = Load::new(u64::MAX, u32::MAX, u32::MAX);
        assert_eq!(load.bytes(Duration::MAX), u64::MAX);
        assert!(load.request(Duration::MAX) > MOST_REQUESTED);
        assert!(load.survives(u64::MAX) <= load.latency(u64::MAX));
        assert_eq!(Load::new(0, 0, 0), Load { rate: 1, size: 1, charge: 1 });
        assert_eq!(Load::new(1, 1, 1).latency(u64::MAX), Duration::from_nanos(u64::MAX));
        assert!(serialisation(u32::MAX, 0).as_secs() > u64::from(u32::MAX));
        let _ = (usual_charge(u32::MAX), memory(u64::MAX), raise_memory(u64::MAX, &[1, 2, 3], 0));
    }

    #[test]
    fn limits_are_raised_only_where_they_are_too_low() {
        assert_eq!(raise_limit(100, 100), None);
        let change = raise_limit(101, 100).unwrap();
        assert_eq!(change.command(), "sysctl -w net.core.rmem_max=101");
        assert_eq!(raise_memory(4096 * 30, &[10, 20, 30], 4096), None);
        let change = raise_memory(4096 * 30 + 1, &[10, 20, 30], 4096).unwrap();
        assert_eq!(change.line(), "net.ipv4.udp_mem = 10 20 31");
        assert_eq!(raise_memory(u64::MAX, &[1, 2], 4096), None);
    }

    proptest! {
        #[test]
        fn what_is_asked_for_survives_and_little_less_does_not(
            rate in 1_000_u64..100_000_000_000,
            size in 1_u32..65_000,
            extra in 0_u32..5_000,
            stall_us in 1_u64..10_000_000,
        ) {
            let load = Load::new(rate, size, size + extra);
            let stall = Duration::from_micros(stall_us);
            let request = load.request(stall);
            prop_assert!(load.survives(request) + Duration::from_nanos(1) >= stall);
            prop_assert!(load.latency(request) >= load.survives(request));
            // Two datagrams less are too little.
            let less = request.saturating_sub(2 * u64::from(size + extra));
            prop_assert!(load.survives(less) < stall);
        }
    }
}
