//! What a network card says about itself: speed, interrupt coalescing, pause frames, receive ring, counters of its driver.
//!
//! These are the numbers that `ethtool DEV`, `-c`, `-a`, `-g` and `-S` print, by the same ioctl (linux/ethtool.h). A driver
//! supports what it likes: everything else is `None`.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;

const GET_COALESCE: u32 = 0x0e;
const GET_RING: u32 = 0x10;
const GET_PAUSE: u32 = 0x12;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const GET_LINK: u32 = 0x4c;

/// `ETH_SS_STATS`: the names of the driver's counters.
const STATISTICS: u32 = 1;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// Drivers have some hundred counters, some for each queue; cards with many queues have some thousand.
const MOST_COUNTERS: usize = 8_192;
/// The kernel writes as many as there are by then, whatever it said before. Between two calls a driver may get more
/// queues, but not eight times as many counters as this crate accepts. Memory that is not written costs nothing.
const ROOM: usize = 8 * MOST_COUNTERS;

/// A connection to the driver of one interface.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

/// Speed and duplex of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bits per second. `None` if there is no link, or the driver does not know.
    pub speed: Option<u64>,
    /// Whether both ends may send at the same time. `None` if the driver does not know.
    pub is_full_duplex: Option<bool>,
}

/// How a card delays interrupts. All names are those of `ethtool -c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    words: [u32; COALESCING.len()],
}

/// The fields of `struct ethtool_coalesce`, in its order.
const COALESCING: [&str; 22] = [
    "rx-usecs",
    "rx-frames",
    "rx-usecs-irq",
    "rx-frames-irq",
    "tx-usecs",
    "tx-frames",
    "tx-usecs-irq",
    "tx-frames-irq",
    "stats-block-usecs",
    "adaptive-rx",
    "adaptive-tx",
    "pkt-rate-low",
    "rx-usecs-low",
    "rx-frames-low",
    "tx-usecs-low",
    "tx-frames-low",
    "pkt-rate-high",
    "rx-usecs-high",
    "rx-frames-high",
    "tx-usecs-high",
    "tx-frames-high",
    "sample-interval",
];

impl Coalescing {
    /// Returns one with these parameters, and 0 for all others. Names that do not exist are left out.
    #[must_use]
    pub fn of(parameters: &[(&str, u32)]) -> Self {
        let value = |name| parameters.iter().find(|(known, _)| *known == name).map_or(0, |it| it.1);
        Self { words: COALESCING.map(value) }
    }

    /// Returns every parameter with its name.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, u32)> {
        COALESCING.into_iter().zip(self.words)
    }

    fn get(&self, name: &str) -> u32 {
        self.parameters().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
    }

    /// Whether the card chooses the delay of received packets by itself.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.get("adaptive-rx") != 0
    }

    /// Returns the longest delay of a received packet in microseconds. While the card chooses by itself, this is the
    /// largest that is configured, and the driver may know better.
    #[must_use]
    pub fn worst_delay_us(&self) -> u32 {
        let fixed = self.get("rx-usecs");
        if self.is_adaptive() { fixed.max(self.get("rx-usecs-high")) } else { fixed }
    }
}

/// Whether a card stops sending at a peer's request, and may request it (IEEE 802.3x).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Whether the link negotiates it.
    pub is_negotiated: bool,
    /// Whether the card stops when its peer asks it to.
    pub is_obeyed: bool,
    /// Whether the card asks its peer to stop.
    pub is_sent: bool,
}

/// The card's queue of received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its length in packets.
    pub length: u32,
    /// The greatest length that the card supports.
    pub greatest: u32,
}

impl Ethtool {
    /// Opens a connection to the driver of an interface of this network namespace.
    ///
    /// # Errors
    /// If the name is too long for an interface, or no socket can be opened.
    pub fn open(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        // The last byte stays 0.
        if interface.len() >= name.len() || interface.bytes().any(|byte| byte == 0) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (place, byte) in name.iter_mut().zip(interface.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, name })
    }

    /// Returns speed and duplex.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        // struct ethtool_link_settings: the first call asks how many words of link modes there are. Speed and duplex do not
        // depend on them, and a kernel that wants more words answers with a negative number and all else 0.
        const WORDS: usize = 12;
        const MODES: usize = 3 * 127;
        let mut data = [0_u32; WORDS + MODES];
        data[0] = GET_LINK;
        self.call(&mut data)?;
        let masks = byte_of(data[3], 3);
        data = [0; WORDS + MODES];
        data[0] = GET_LINK;
        data[3] = u32::from_ne_bytes([0, 0, 0, masks.wrapping_neg()]);
        self.call(&mut data)?;
        // SPEED_UNKNOWN is -1.
        let speed = Some(data[1]).filter(|speed| *speed != 0 && *speed != u32::MAX);
        Some(Link {
            speed: speed.map(|megabits| u64::from(megabits) * 1_000_000),
            is_full_duplex: match byte_of(data[2], 0) {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
        })
    }

    /// Returns how the card delays interrupts.
    #[must_use]
    pub fn coalescing(&self) -> Option<Coalescing> {
        let mut data = [0_u32; 1 + COALESCING.len()];
        data[0] = GET_COALESCE;
        self.call(&mut data)?;
        let words = data.last_chunk().copied()?;
        Some(Coalescing { words })
    }

    /// Returns whether pause frames are used.
    #[must_use]
    pub fn pause(&self) -> Option<Pause> {
        let mut data = [GET_PAUSE, 0, 0, 0];
        self.call(&mut data)?;
        let [_, negotiated, obeyed, sent] = data;
        Some(Pause { is_negotiated: negotiated != 0, is_obeyed: obeyed != 0, is_sent: sent != 0 })
    }

    /// Returns the length of the receive ring. A driver without a ring has a greatest length of 0, which is `None`.
    #[must_use]
    pub fn ring(&self) -> Option<Ring> {
        let mut data = [0_u32; 9];
        data[0] = GET_RING;
        self.call(&mut data)?;
        let [_, greatest, _, _, _, length, ..] = data;
        (greatest > 0).then_some(Ring { length, greatest })
    }

    /// Returns the driver's counters: their names differ from driver to driver.
    #[must_use]
    pub fn counters(&self) -> Option<Vec<(String, u64)>> {
        // struct ethtool_sset_info: command, reserved, mask (u64), and a count for each bit of the mask.
        let mut info = [GET_SET_INFO, 0, 1 << STATISTICS, 0, 0];
        self.call(&mut info)?;
        let count = usize::try_from(info[4]).ok()?;
        if !(1..=MOST_COUNTERS).contains(&count) {
            return None;
        }
        let mut names = vec![0_u32; 3 + ROOM * NAME_BYTES / 4];
        names[..3].copy_from_slice(&[GET_STRINGS, STATISTICS, info[4]]);
        self.call(&mut names)?;
        let named = usize::try_from(names[2]).ok()?;
        let mut values = vec![0_u32; 2 + ROOM * 2];
        values[..2].copy_from_slice(&[GET_STATISTICS, info[4]]);
        self.call(&mut values)?;
        let counted = usize::try_from(values[1]).ok()?;
        let names = names[3..].chunks_exact(NAME_BYTES / 4).map(text);
        let values = values[2..].chunks_exact(2).map(|words| pair(words[0], words[1]));
        Some(names.zip(values).take(named.min(counted)).collect())
    }

    /// Asks the driver. The first word is the command; the kernel writes the answer over the words. `None` if the driver does
    /// not support it, or the interface is gone.
    fn call(&self, data: &mut [u32]) -> Option<()> {
        // SAFETY: a request of zeros is valid: an empty name and a null pointer.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        let descriptor = self.socket.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open. The kernel reads the request, and reads and writes the words to which it points:
        // those of the command's structure, for which each caller has made room. Any bytes are valid words.
        let result = unsafe { libc::ioctl(descriptor, libc::SIOCETHTOOL, &raw mut request) };
        (result == 0).then_some(())
    }
}

const fn byte_of(word: u32, at: usize) -> u8 {
    word.to_ne_bytes()[at]
}

fn pair(low: u32, high: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (low.to_ne_bytes(), high.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_no_card() {
        let lo = Ethtool::open("lo").unwrap();
        assert_eq!((lo.coalescing(), lo.pause(), lo.ring()), (None, None, None));
        assert_eq!(lo.link().and_then(|link| link.speed), None);
    }

    #[test]
    fn an_interface_that_is_not_there_says_nothing() {
        let none = Ethtool::open("no-such-0").unwrap();
        assert_eq!((none.link(), none.counters()), (None, None));
        assert!(Ethtool::open("a-name-that-is-too-long").is_err());
        assert!(Ethtool::open("a\0b").is_err());
    }

    #[test]
    fn an_adaptive_card_may_delay_more_than_its_fixed_setting() {
        let set = [("rx-usecs", 50), ("rx-usecs-high", 250), ("adaptive-rx", 1)];
        assert_eq!(Coalescing::of(&set[..2]).worst_delay_us(), 50);
        assert_eq!(Coalescing::of(&set).worst_delay_us(), 250);
    }
}
