//! What happens to frames, and the draws that decide it.

use super::frame;
use crate::Random;
use crate::units::as_f64;
use std::time::Duration;

/// What happens to the frames of one port in one direction. The default does nothing to them. Probabilities are from 0
/// to 1, and are drawn for each frame.
///
/// All draws of a frame follow from the seed, the port, the direction and how many frames it comes after there. Each
/// fault has a draw of its own: another fault beside it changes nothing about which frames it hits. A frame passes the
/// faults in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Which frames the faults reach. The others pass at once, and are not counted.
    pub reach: Reach,
    /// Frames that vanish.
    pub loss: Loss,
    /// Frames in which a bit is turned.
    pub corruption: Corruption,
    /// The probability that a frame comes twice.
    pub duplication: f64,
    /// Frames that later ones overtake.
    pub reordering: Reordering,
    /// How long each frame takes.
    pub delay: Duration,
    /// What is added to the delay: at most this, evenly distributed. It keeps the order of the frames.
    pub jitter: Duration,
    /// How fast frames pass.
    pub rate: Option<Rate>,
}

/// Which frames faults reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All frames, also those of ARP and IGMP.
    #[default]
    Everything,
    /// UDP datagrams in unfragmented packets, of IPv4 or IPv6.
    Udp,
    /// UDP datagrams to this port.
    UdpTo(u16),
    /// Packets of more than this many bytes. If all of them are lost, that is the MTU on the way.
    LongerThan(usize),
}

/// Which frames vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability.
    Bernoulli(f64),
    /// A link that is in one of two states, good at first (Gilbert, "Capacity of a burst-noise channel", 1960; Elliott,
    /// "Estimates of error rates for codes on burst-noise channels", 1963). Each frame first changes the state with the
    /// probability of its state, and then is lost with that of the new state.
    GilbertElliott {
        /// The probability of going from good to bad.
        to_bad: f64,
        /// The probability of going from bad to good: 1 / the mean number of frames of a bad time.
        to_good: f64,
        /// The probability of loss while good.
        in_good: f64,
        /// The probability of loss while bad.
        in_bad: f64,
    },
    /// Bursts of one length.
    Bursts {
        /// The probability that a burst begins with a frame.
        probability: f64,
        /// How many frames it takes.
        frames: u64,
    },
}

/// Which frames are damaged. One bit behind the Ethernet header is turned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Corruption {
    /// The probability that a frame is damaged.
    pub probability: f64,
    /// Whether programs see it. If not, the kernel of the receiver finds a wrong checksum and drops the packet. If so,
    /// the bit is in the payload of a UDP datagram over IPv4, and the datagram says that it has no checksum (RFC 768).
    /// Other frames are left alone.
    pub passes_checksums: bool,
}

/// Which frames later ones overtake.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reordering {
    /// The probability that a frame is held back.
    pub probability: f64,
    /// How many frames overtake it.
    pub distance: u32,
    /// How long it waits for them.
    pub limit: Duration,
}

/// How fast frames pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bits in a second, with what a frame takes on the wire beside its bytes: preamble, check sequence and gap.
    pub bits_per_second: u64,
    /// How many bytes may wait. Frames beyond are dropped.
    pub queue: u64,
}

impl Rate {
    /// Preamble (8), check sequence (4) and gap (12) of IEEE 802.3.
    const EXTRA: u64 = 24;

    pub(super) fn time_of(self, frame: &[u8]) -> Duration {
        let bits = (frame.len() as u64 + Self::EXTRA) * 8;
        Duration::from_nanos(bits.saturating_mul(1_000_000_000) / self.bits_per_second.max(1))
    }

    /// How long a full queue takes.
    pub(super) fn longest_wait(self) -> Duration {
        let [bits, rate] = [self.queue.saturating_mul(8), self.bits_per_second.max(1)].map(as_f64);
        Duration::try_from_secs_f64(bits / rate).unwrap_or(Duration::MAX)
    }
}

impl Faults {
    pub(super) fn reaches(&self, bytes: &[u8]) -> bool {
        match self.reach {
            Reach::Everything => true,
            Reach::Udp => frame::udp(bytes).is_some(),
            Reach::UdpTo(port) => frame::udp(bytes).is_some_and(|udp| udp.destination_port == port),
            Reach::LongerThan(most) => bytes.len() > frame::ETHERNET + most,
        }
    }

    /// # Panics
    /// If a probability is none.
    pub(super) fn check(&self) {
        let of_loss = match self.loss {
            Loss::None => [0.0; 4],
            Loss::Bernoulli(probability) | Loss::Bursts { probability, .. } => {
                [probability, 0.0, 0.0, 0.0]
            }
            Loss::GilbertElliott { to_bad, to_good, in_good, in_bad } => {
                [to_bad, to_good, in_good, in_bad]
            }
        };
        let others = [self.corruption.probability, self.duplication, self.reordering.probability];
        for probability in of_loss.into_iter().chain(others) {
            assert!((0.0..=1.0).contains(&probability), "{probability} is not from 0 to 1");
        }
    }
}

/// What a frame draws for. Each has numbers of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    State,
    Loss,
    Burst,
    Corruption,
    CorruptedBit,
    Duplication,
    Reordering,
    Jitter,
}

/// The draws of one port in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64, port: usize, direction: super::Direction) -> Self {
        let path = port as u64 * 2 + direction as u64;
        Self(Random::new(Random::new(seed).number() ^ path).number())
    }

    /// Returns the number of this frame for this purpose.
    pub(super) fn number(self, frame: u64, purpose: Purpose) -> u64 {
        const PURPOSES: u64 = 8;
        let state = self.0.wrapping_add(frame * PURPOSES + purpose as u64);
        // Two rounds: consecutive states of one round are the generator's own sequence, shifted.
        Random::new(Random::new(state).number()).number()
    }

    /// Returns a number from 0 to below 1.
    pub(super) fn share(self, frame: u64, purpose: Purpose) -> f64 {
        const BITS: u32 = 53;
        let whole = self.number(frame, purpose) >> (u64::BITS - BITS);
        as_f64(whole) / as_f64(1 << BITS)
    }

    pub(super) fn happens(self, frame: u64, purpose: Purpose, probability: f64) -> bool {
        probability > 0.0 && self.share(frame, purpose) < probability
    }
}
