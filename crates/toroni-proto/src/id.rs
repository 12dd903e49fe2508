//! Names and numbers: who sends, in which life, which datagram, which message.
//!
//! ```text
//!  realm                          the nodes that belong together
//!    source                       one of them, as an origin of streams
//!      session                    one life of the source
//!      stream                     one ordered flow
//!        sequence                 counts the datagrams of one stream and session   (what to repair)
//!        message                  counts the messages of one stream and session    (how many were lost)
//!        series, number           names a message in every session, on every path  (who is who)
//! ```
//!
//! All counts are far below the end of their type, so arithmetic on them cannot overflow: a value
//! from the network that is not below the limit is refused where it enters.

use core::fmt;

use crate::time::Wall;

/// The nodes that belong together. Datagrams of another realm are ignored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(pub u32);

impl Realm {
    /// Returns the first 4 bytes of BLAKE3(name), as a little-endian number.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(first_4_bytes(&blake3::hash(name.as_bytes())))
    }
}

/// A node as the origin of streams, or a feed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(pub u32);

impl Source {
    /// Returns the default id of a node: the first 4 bytes of BLAKE3(machine id, 0, realm, 0, node
    /// name), as a little-endian number. None of the three may contain a byte 0, so the hash tells
    /// where one ends and the next begins.
    #[must_use]
    pub fn of_node(machine_id: &str, realm: &str, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(machine_id.as_bytes()).update(&[0]);
        hasher.update(realm.as_bytes()).update(&[0]);
        hasher.update(name.as_bytes());
        Self(first_4_bytes(&hasher.finalize()))
    }

    /// Returns the id of a feed, which is the same whichever node sends it: the first 4 bytes of
    /// BLAKE3(feed name).
    #[must_use]
    pub fn of_feed(name: &str) -> Self {
        Self(first_4_bytes(&blake3::hash(name.as_bytes())))
    }
}

fn first_4_bytes(hash: &blake3::Hash) -> u32 {
    let [a, b, c, d, ..] = *hash.as_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// One life of a source: the seconds since 2020-01-01 at which it began. Later lives have greater
/// sessions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u32);

impl Session {
    /// 2020-01-01, in seconds since 1970.
    const EPOCH_SECONDS: u64 = 1_577_836_800;

    /// Returns the session of a life that begins `now`, after the `last` one that is known. The
    /// clock may have been set back meanwhile, so this can lie in the future.
    ///
    /// Returns `None` after 2156, or if `last` is the greatest session there is.
    #[must_use]
    pub fn begin(now: Wall, last: Option<Self>) -> Option<Self> {
        let now = now.seconds().saturating_sub(Self::EPOCH_SECONDS);
        let now = u32::try_from(now).ok()?;
        let next = last.map_or(Some(0), |last| last.0.checked_add(1))?;
        Some(Self(now.max(next)))
    }
}

/// Numbers that began at 0 together. A series outlives sessions: it ends when the bus from which
/// the messages come is emptied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series(pub u32);

impl Series {
    /// Returns the series of a bus: the first 4 bytes of BLAKE3(its id as text). A bus that is created again, or
    /// emptied, gets another id.
    #[must_use]
    pub fn of_bus(id: &str) -> Self {
        Self(first_4_bytes(&blake3::hash(id.as_bytes())))
    }
}

/// One ordered flow of a source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u16);

/// The ids print as in logs: `Source(0012abcd)`, and what is counted in decimal.
macro_rules! shown {
    ($($name:ident $format:literal),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, $format, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self)
            }
        }
    )*};
}

shown!(
    Realm "{:08x}", Source "{:08x}", Series "{:08x}", Session "{}", Stream "{}",
    Sequence "{}", MessageNumber "{}", Number "{}"
);

/// Defines a count with a limit.
macro_rules! count {
    ($(#[$doc:meta])* $name:ident below $bits:literal bits) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// The first.
            pub const ZERO: Self = Self(0);
            /// The greatest.
            pub const MAX: Self = Self((1 << $bits) - 1);

            /// Returns `None` if `value` is above [`Self::MAX`].
            #[must_use]
            #[inline]
            pub const fn new(value: u64) -> Option<Self> {
                if value <= Self::MAX.0 { Some(Self(value)) } else { None }
            }

            /// Returns the value.
            #[must_use]
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the one that many places later, at most [`Self::MAX`].
            #[must_use]
            #[inline]
            pub const fn plus(self, places: u64) -> Self {
                let sum = self.0.saturating_add(places);
                if sum > Self::MAX.0 { Self::MAX } else { Self(sum) }
            }

            /// Returns the one that many places earlier, at least [`Self::ZERO`].
            #[must_use]
            #[inline]
            pub const fn minus(self, places: u64) -> Self {
                Self(self.0.saturating_sub(places))
            }

            /// Returns the one before this, unless this is the first.
            #[must_use]
            #[inline]
            pub const fn before(self) -> Option<Self> {
                match self.0.checked_sub(1) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// Returns how many places this is after `earlier`, or 0 if it is not.
            #[must_use]
            #[inline]
            pub const fn since(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }
        }
    };
}

count! {
    /// Counts the datagrams of one stream in one session. At 10 million a second, 2⁶³ last 29,000
    /// years, so a sequence never wraps.
    Sequence below 63 bits
}

count! {
    /// Counts the messages of one stream in one session. Messages that the source itself missed
    /// count too.
    MessageNumber below 63 bits
}

count! {
    /// The number of a message in its series: its sequence on the bus from which it comes. The
    /// numbers of a stream grow, but not by one each: other messages of that bus belong to other
    /// streams, or to none. At 10 million a second, 2⁴⁸ last 325 days of continuous load.
    Number below 48 bits
}

/// Names a message in the whole realm, whatever path it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The node that published the message.
    pub source: Source,
    /// The numbers to which `number` belongs.
    pub series: Series,
    /// The stream in which the source sends it.
    pub stream: Stream,
    /// The number of the message.
    pub number: Number,
}

impl Origin {
    /// The length of an encoded origin, in bytes.
    pub const BYTES: usize = 16;

    /// Returns the origin as it travels.
    ///
    /// ```text
    ///  byte 0         4         8        10                 16
    ///       +---------+---------+--------+------------------+
    ///       | source  | series  | stream | number (48 bits) |
    ///       +---------+---------+--------+------------------+
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.source.0.to_le_bytes();
        let [e, f, g, h] = self.series.0.to_le_bytes();
        let [i, j] = self.stream.0.to_le_bytes();
        let [k, l, m, n, o, p, _, _] = self.number.0.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// Returns the origin that these bytes are. All bytes are one.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            source: Source(u32::from_le_bytes([a, b, c, d])),
            series: Series(u32::from_le_bytes([e, f, g, h])),
            stream: Stream(u16::from_le_bytes([i, j])),
            number: Number(u64::from_le_bytes([k, l, m, n, o, p, 0, 0])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    #[test]
    fn a_realm_is_the_start_of_the_hash_of_its_name() {
        // The empty input is in the published test vectors of BLAKE3: af1349b9…
        assert_eq!(Realm::of(""), Realm(0xb949_13af));
        assert_ne!(Realm::of("plant"), Realm::of("plan"));
    }

    #[test]
    fn the_parts_of_a_node_id_cannot_be_shifted_into_one_another() {
        assert_ne!(Source::of_node("ab", "c", "d"), Source::of_node("a", "bc", "d"));
        assert_ne!(Source::of_node("a", "bc", "d"), Source::of_node("a", "b", "cd"));
        assert_eq!(Source::of_node("a", "b", "c").0, first_4_bytes(&blake3::hash(b"a\0b\0c")));
    }

    #[test]
    fn a_session_is_later_than_the_last_one_even_if_the_clock_went_back() {
        let at = |seconds: u64| Wall::from_ns((1_577_836_800 + seconds) * SECOND);
        assert_eq!(Session::begin(at(100), None), Some(Session(100)));
        assert_eq!(Session::begin(at(100), Some(Session(50))), Some(Session(100)));
        assert_eq!(Session::begin(at(100), Some(Session(100))), Some(Session(101)));
        assert_eq!(Session::begin(at(100), Some(Session(900))), Some(Session(901)));
        assert_eq!(Session::begin(Wall::from_ns(0), None), Some(Session(0)));
        assert_eq!(Session::begin(at(100), Some(Session(u32::MAX))), None);
        assert_eq!(Session::begin(at(1 << 32), None), None);
    }

    #[test]
    fn counts_end_at_their_limit_instead_of_wrapping() {
        assert_eq!(Sequence::new(1 << 63), None);
        assert_eq!(Sequence::new((1 << 63) - 1), Some(Sequence::MAX));
        assert_eq!(Sequence::MAX.plus(u64::MAX), Sequence::MAX);
        assert_eq!(Number::new(1 << 48), None);
        assert_eq!(Number::MAX.minus(1).plus(1), Number::MAX);
        assert_eq!(Sequence::ZERO.minus(1), Sequence::ZERO);
        assert_eq!(Sequence::ZERO.plus(5).since(Sequence::ZERO.plus(7)), 0);
    }

    #[test]
    fn an_origin_has_its_parts_in_the_drawn_order() {
        let origin = Origin {
            source: Source(0x0403_0201),
            series: Series(0x0807_0605),
            stream: Stream(0x0a09),
            number: Number(0x100f_0e0d_0c0b),
        };
        let bytes = origin.to_bytes();
        assert_eq!(bytes, core::array::from_fn(|index| u8::try_from(index + 1).unwrap()));
        assert_eq!(Origin::from_bytes(bytes), origin);
        assert_eq!(format!("{:?}", origin.source), "Source(04030201)");
        assert_eq!(format!("{:?}", origin.number), "Number(17656846289931)");
    }
}
