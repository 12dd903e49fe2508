//! Every parameter of a stream: its unit, default and limits, and how it must relate to the others.
//!
//! A sender and its receivers should have the same values. [`PARAMETERS`] describes them all; the table
//! in `docs/protocol.md` is generated from it.

pub mod tcp;

use core::fmt;

use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::wire::{MAX_DATAGRAM_BYTES, Policy};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const KBIT: u64 = 1_000;
const GBIT: u64 = 1_000_000_000;

/// What a datagram takes on the wire besides itself, in bytes: UDP 8, IPv4 20, and Ethernet's header
/// 14, checksum 4 and gap with preamble 20. Rates count it.
pub const WIRE_OVERHEAD_BYTES: u64 = 66;

/// In which order a receiver delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Messages of a stream in the order of their source. What is behind a gap waits.
    Source,
    /// Each message when it is complete, with its number.
    Arrival,
}

/// The parameters of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What the sender does about slow receivers.
    pub policy: Policy,
    /// The limit for new data, in bit/s. Required, unless the policy is uncontrolled.
    pub data_rate: Option<u64>,
    /// The limit for retransmissions, in bit/s; by default a quarter of the data rate.
    pub retransmit_rate: Option<u64>,
    /// How often the limiters get credit.
    pub rate_interval_ns: u64,
    /// The memory of the sender for what can be sent again.
    pub window_bytes: u64,
    /// For how long a sequence that was just sent again is not sent another time.
    pub ignore_ns: u64,
    /// The pause before the first SESSION after data. It doubles.
    pub session_min_ns: u64,
    /// The longest pause between two SESSIONs.
    pub session_max_ns: u64,
    /// The longest random pause before the first NAK for a gap.
    pub nak_backoff_first_ns: u64,
    /// The mean pause before a NAK is repeated.
    pub nak_backoff_ns: u64,
    /// The mean pause after the sender said that it cannot repair at once.
    pub nak_suppress_ns: u64,
    /// How long a receiver tries to repair a gap. 0: not at all.
    pub generation_ns: u64,
    /// Silence after which a source is gone.
    pub activity_ns: u64,
    /// The memory of a receiver for what waits behind gaps of one source.
    pub reorder_memory_bytes: u64,
    /// The memory of a receiver for all sources together.
    pub receive_memory_bytes: u64,
    /// How often a receiver sends STATUS.
    pub status_ns: u64,
    /// The greatest length of a datagram.
    pub datagram_bytes: u64,
    /// The longest message.
    pub message_max_bytes: u64,
    /// The length at which an incomplete datagram is sent; by default when no message fits.
    pub batch_bytes: Option<u64>,
    /// How long an incomplete datagram waits for more messages.
    pub batch_delay_ns: u64,
    /// How many routers a datagram passes.
    pub ttl: u8,
    /// Whether the sender's own host hears its datagrams.
    pub loopback: bool,
    /// The order in which a receiver delivers.
    pub order: Order,
    /// Whether a receiver in a realm with a key asks a session to show that it lives before it follows it. `false` is for a receiver
    /// that has no way back to its senders: it then believes recordings.
    pub proof: bool,
    /// With the policy slowest: how many required receivers must be there before the first datagram.
    pub group_min: u64,
    /// With the policy slowest: how long a required receiver may hold the sender.
    pub hold_limit_ns: u64,
    /// How many sources a receiver follows.
    pub sources: u64,
    /// How many receivers a sender knows.
    pub receivers: u64,
    /// How many names the table of a stream has.
    pub topics: u64,
    /// How many NAK datagrams a sender reads from one address in a second.
    pub naks_each: u64,
    /// How many NAK datagrams a sender reads from all addresses in a second.
    pub naks_all: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: Policy::Bounded,
            data_rate: None,
            retransmit_rate: None,
            rate_interval_ns: MILLISECOND,
            window_bytes: 64 * MIB,
            ignore_ns: 10 * MILLISECOND,
            session_min_ns: 20 * MILLISECOND,
            session_max_ns: 2 * SECOND,
            nak_backoff_first_ns: 2 * MILLISECOND,
            nak_backoff_ns: 20 * MILLISECOND,
            nak_suppress_ns: 50 * MILLISECOND,
            generation_ns: 500 * MILLISECOND,
            activity_ns: 10 * SECOND,
            reorder_memory_bytes: 64 * MIB,
            receive_memory_bytes: 256 * MIB,
            status_ns: 2 * SECOND,
            datagram_bytes: 1_408,
            message_max_bytes: 16 * MIB,
            batch_bytes: None,
            batch_delay_ns: 0,
            ttl: 16,
            loopback: false,
            order: Order::Source,
            proof: true,
            group_min: 0,
            hold_limit_ns: 5 * SECOND,
            sources: 256,
            receivers: 4_096,
            topics: 65_536,
            naks_each: 2_000,
            naks_all: 20_000,
        }
    }
}

impl Config {
    /// Returns the defaults for this data rate, in bit/s.
    #[must_use]
    pub fn with_rate(data_rate: u64) -> Self {
        Self { data_rate: Some(data_rate), ..Self::default() }
    }

    /// Sets the parameter of this name, whatever its limits. A ttl above 255 is 255. `false`: there is no such parameter.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let field = match name {
            "data_rate" => self.data_rate.insert(value),
            "retransmit_rate" => self.retransmit_rate.insert(value),
            "batch_bytes" => self.batch_bytes.insert(value),
            "ttl" => {
                self.ttl = u8::try_from(value).unwrap_or(u8::MAX);
                return true;
            }
            "rate_interval" => &mut self.rate_interval_ns,
            "window" => &mut self.window_bytes,
            "ignore" => &mut self.ignore_ns,
            "session_min" => &mut self.session_min_ns,
            "session_max" => &mut self.session_max_ns,
            "nak_backoff_first" => &mut self.nak_backoff_first_ns,
            "nak_backoff" => &mut self.nak_backoff_ns,
            "nak_suppress" => &mut self.nak_suppress_ns,
            "generation" => &mut self.generation_ns,
            "activity" => &mut self.activity_ns,
            "reorder_memory" => &mut self.reorder_memory_bytes,
            "receive_memory" => &mut self.receive_memory_bytes,
            "status" => &mut self.status_ns,
            "datagram" => &mut self.datagram_bytes,
            "message_max" => &mut self.message_max_bytes,
            "batch_delay" => &mut self.batch_delay_ns,
            "group_min" => &mut self.group_min,
            "hold_limit" => &mut self.hold_limit_ns,
            "sources" => &mut self.sources,
            "receivers" => &mut self.receivers,
            "topics" => &mut self.topics,
            "naks_each" => &mut self.naks_each,
            "naks_all" => &mut self.naks_all,
            _ => return false,
        };
        *field = value;
        true
    }

    /// Returns the limit for retransmissions, in bit/s, if it is stated or follows from the data rate.
    #[must_use]
    pub fn retransmit_rate(&self) -> Option<u64> {
        self.retransmit_rate.or(self.data_rate.map(|rate| rate / 4))
    }

    /// Returns the length at which an incomplete datagram is sent, in bytes.
    #[must_use]
    pub fn batch_bytes(&self) -> u64 {
        self.batch_bytes.unwrap_or(self.datagram_bytes)
    }

    /// Checks what a receiver needs: that each value is within its limits, and how those of receivers
    /// relate.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the values.
    pub fn check_receiver(&self) -> Result<(), ConfigError> {
        check(self, PARAMETERS, RELATIONS, quantity)
    }

    /// Returns all rules about two parameters that are broken, with the values.
    pub fn broken_relations(&self) -> impl Iterator<Item = ConfigError> + '_ {
        RELATIONS.iter().filter_map(|relation| relation.check(self, quantity).err())
    }

    /// Checks what a sender needs: everything that a receiver needs, and the rates.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the values.
    pub fn check_sender(&self) -> Result<(), ConfigError> {
        self.check_receiver()?;
        self.check_rates()
    }

    /// Checks whether the rates are there that the policy needs.
    ///
    /// # Errors
    ///
    /// If one is missing, or is there although the policy knows no such limit.
    pub fn check_rates(&self) -> Result<(), ConfigError> {
        match (self.policy, self.data_rate, self.retransmit_rate) {
            (Policy::Uncontrolled, Some(_), _) => Err(ConfigError::RateOfUncontrolled),
            (Policy::Uncontrolled, None, None) => Err(ConfigError::Missing {
                name: "retransmit_rate",
                why: "without a data rate, it is the only defence of the group",
            }),
            (Policy::Bounded | Policy::Slowest, None, _) => Err(ConfigError::Missing {
                name: "data_rate",
                why: "only people know what the group and the network can bear",
            }),
            _ => Ok(()),
        }
    }

    /// The bytes that are sent within the generation interval, at the data rate.
    fn generation_bytes(&self) -> Option<u64> {
        let bits = u128::from(self.data_rate?) * u128::from(self.generation_ns);
        u64::try_from(bits.div_ceil(8 * u128::from(SECOND))).ok()
    }
}

/// Checks that each value is within its limits, and how they relate. `quantity` returns the value in force.
fn check<C>(
    config: &C,
    parameters: &[Parameter<C>],
    relations: &[Relation<C>],
    quantity: impl Fn(&C, &str) -> Quantity,
) -> Result<(), ConfigError> {
    for parameter in parameters {
        if let Some(value) = (parameter.value)(config)
            && !(parameter.least..=parameter.most).contains(&value)
        {
            let shown = |value| Quantity { value, unit: parameter.unit };
            return Err(ConfigError::Limit {
                name: parameter.name,
                value: shown(value),
                least: shown(parameter.least),
                most: shown(parameter.most),
            });
        }
    }
    relations.iter().try_for_each(|relation| relation.check(config, &quantity))
}

/// Checks that the streams which are sent on one interface suit it. `headers_bytes` is what IP and UDP
/// need in each packet: 28 with IPv4, 48 with IPv6.
///
/// # Errors
///
/// If a datagram does not fit into a packet, or all streams together are faster than the interface.
pub fn check_interface(
    streams: &[&Config],
    mtu_bytes: u64,
    headers_bytes: u64,
    speed: u64,
) -> Result<(), ConfigError> {
    for stream in streams {
        if stream.datagram_bytes.saturating_add(headers_bytes) > mtu_bytes {
            return Err(ConfigError::Mtu {
                datagram: stream.datagram_bytes,
                mtu: mtu_bytes,
                headers: headers_bytes,
            });
        }
    }
    let sum = streams.iter().filter_map(|stream| stream.data_rate).fold(0, u64::saturating_add);
    if sum > speed {
        let shown = |value| Quantity { value, unit: Unit::BitsPerSecond };
        return Err(ConfigError::Speed { sum: shown(sum), speed: shown(speed) });
    }
    Ok(())
}

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value is outside of its limits.
    #[error("{name} is {value}: choose {least} to {most}")]
    Limit {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: Quantity,
        /// The least value.
        least: Quantity,
        /// The greatest value.
        most: Quantity,
    },
    /// Two values do not fit together.
    #[error("{name} is {value} and {other} is {other_value}: {rule}")]
    Relation {
        /// One parameter.
        name: &'static str,
        /// Its value.
        value: Quantity,
        /// The other.
        other: &'static str,
        /// Its value.
        other_value: Quantity,
        /// What must hold.
        rule: &'static str,
    },
    /// A value has no default and is not given.
    #[error("{name} is missing: {why}")]
    Missing {
        /// The parameter.
        name: &'static str,
        /// Why there is no default.
        why: &'static str,
    },
    /// A stream of the policy uncontrolled has a data rate.
    #[error("data_rate is given, but the policy is uncontrolled: remove one of them")]
    RateOfUncontrolled,
    /// A datagram does not fit into a packet of the interface.
    #[error(
        "datagram is {datagram} bytes, and the interface's MTU of {mtu} bytes leaves less beside \
         the {headers} bytes of IP and UDP: IP fragments nothing, so no full datagram would leave"
    )]
    Mtu {
        /// The length of the stream's datagrams.
        datagram: u64,
        /// The MTU of the interface.
        mtu: u64,
        /// What IP and UDP need.
        headers: u64,
    },
    /// The streams of an interface are faster than it.
    #[error("the data rates of this interface add up to {sum}, and its speed is {speed}")]
    Speed {
        /// The sum of the data rates.
        sum: Quantity,
        /// The speed of the interface.
        speed: Quantity,
    },
}

/// In what a parameter is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Nanoseconds, shown in the greatest unit that gives a whole number.
    Time,
    /// Bytes, shown with binary prefixes.
    Bytes,
    /// Bits in a second, shown with decimal prefixes.
    BitsPerSecond,
    /// Things.
    Count,
}

impl Unit {
    /// Returns what a table calls the unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Bytes => "bytes",
            Self::BitsPerSecond => "bit/s",
            Self::Count => "count",
        }
    }
}

/// A value with its unit, for messages and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// The value, in nanoseconds, bytes, bits in a second, or things.
    pub value: u64,
    /// Which of them.
    pub unit: Unit,
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: &[(u64, &str)] = match self.unit {
            Unit::Time => &[(SECOND, " s"), (MILLISECOND, " ms"), (MICROSECOND, " µs"), (1, " ns")],
            Unit::Bytes => &[(GIB, " GiB"), (MIB, " MiB"), (KIB, " KiB"), (1, " bytes")],
            Unit::BitsPerSecond => {
                &[(GBIT, " Gbit/s"), (1_000 * KBIT, " Mbit/s"), (KBIT, " kbit/s"), (1, " bit/s")]
            }
            Unit::Count => &[(1, "")],
        };
        let whole = |(size, _): &&(u64, &str)| self.value.is_multiple_of(*size);
        match (self.value, self.unit) {
            (0, Unit::Time) => formatter.write_str("0 s"),
            (0, Unit::Bytes) => formatter.write_str("0 bytes"),
            (0, Unit::BitsPerSecond) => formatter.write_str("0 bit/s"),
            _ => {
                let (size, name) = steps.iter().find(whole).unwrap_or(&(1, ""));
                write!(formatter, "{}{name}", self.value / size)
            }
        }
    }
}

/// One parameter that is a number.
#[derive(Debug)]
pub struct Parameter<C = Config> {
    /// The name in configuration files and messages.
    pub name: &'static str,
    /// In what it is counted.
    pub unit: Unit,
    /// The default in words, if it is not one number.
    pub derived: Option<&'static str>,
    /// The least value.
    pub least: u64,
    /// The greatest value.
    pub most: u64,
    /// What the parameter is, why this is the default, and when to change it.
    pub reason: &'static str,
    /// Reads it.
    pub value: fn(&C) -> Option<u64>,
}

impl<C: Default> Parameter<C> {
    /// Returns the default as a table shows it.
    #[must_use]
    pub fn default_text(&self) -> String {
        match (self.derived, (self.value)(&C::default())) {
            (Some(text), _) => text.to_owned(),
            (None, Some(value)) => Quantity { value, unit: self.unit }.to_string(),
            (None, None) => "none: required".to_owned(),
        }
    }
}

/// Describes a parameter.
macro_rules! parameter {
    ($name:literal, $unit:ident, $value:expr, $least:expr => $most:expr, $reason:literal) => {
        parameter!($name, $unit, $value, None, $least => $most, $reason)
    };
    ($name:literal, $unit:ident, $value:expr, $derived:expr, $least:expr => $most:expr, $reason:literal) => {
        Parameter {
            name: $name,
            unit: Unit::$unit,
            derived: $derived,
            least: $least,
            most: $most,
            reason: $reason,
            value: $value,
        }
    };
}

use parameter;

const HOUR: u64 = 3_600 * SECOND;

/// All parameters that are numbers.
pub const PARAMETERS: &[Parameter] = &[
    parameter!("data_rate", BitsPerSecond, |config| config.data_rate, 10 * KBIT => 400 * GBIT,
        "Limits new data, counted on the wire: a datagram and 66 bytes for UDP, IP and Ethernet. What the group and the \
         network bear is knowledge that only people have. Not with the policy uncontrolled"),
    parameter!("retransmit_rate", BitsPerSecond, |config| config.retransmit_rate,
        Some("`data_rate` / 4"), 10 * KBIT => 400 * GBIT,
        "Limits retransmissions, and so defends the group against a receiver that loses much. A quarter repairs 20 % of \
         loss that all receivers share"),
    parameter!("rate_interval", Time, |config| Some(config.rate_interval_ns),
        100 * MICROSECOND => 100 * MILLISECOND,
        "How often the limiters get credit. In one interval, a burst of a whole quota can leave: 85 datagrams at 1 Gbit/s"),
    parameter!("window", Bytes, |config| Some(config.window_bytes), 256 * KIB => 64 * GIB,
        "What the sender can send again: 0.5 s at 1 Gbit/s. It is allocated at the start, and nothing leaves it by age. An \
         index of 24 bytes for each 128 comes on top"),
    parameter!("ignore", Time, |config| Some(config.ignore_ns), 0 => 10 * SECOND,
        "A datagram that was just sent again is not sent another time. At least 10 round trips, so that a NAK which crossed \
         its repair is not served twice"),
    parameter!("session_min", Time, |config| Some(config.session_min_ns),
        MILLISECOND => 10 * SECOND,
        "The pause between the last data and the first SESSION, by which receivers notice that the last datagrams are \
         missing. It doubles up to `session_max`"),
    parameter!("session_max", Time, |config| Some(config.session_max_ns),
        10 * MILLISECOND => 60 * SECOND,
        "The longest pause between two SESSIONs. They also keep the tables of switches warm"),
    parameter!("nak_backoff_first", Time, |config| Some(config.nak_backoff_first_ns),
        0 => 10 * SECOND,
        "The longest random pause before the first NAK for a gap: 10 round trips of a switched LAN. Meanwhile what was \
         reordered may arrive, or the NAK of another receiver may bring the repair"),
    parameter!("nak_backoff", Time, |config| Some(config.nak_backoff_ns),
        100 * MICROSECOND => 60 * SECOND,
        "The mean pause before a NAK is repeated. Each is drawn between half of it and one and a half"),
    parameter!("nak_suppress", Time, |config| Some(config.nak_suppress_ns),
        100 * MICROSECOND => 60 * SECOND,
        "The mean pause after the sender has said that it repairs later. Drawn in the same way"),
    parameter!("generation", Time, |config| Some(config.generation_ns), 0 => HOUR,
        "How long a receiver tries to repair a gap before it reports a loss: the latency budget of a repair. 0 repairs \
         nothing, for streams of which only the newest message counts"),
    parameter!("activity", Time, |config| Some(config.activity_ns), 30 * MILLISECOND => 24 * HOUR,
        "Silence after which a source is gone"),
    parameter!("reorder_memory", Bytes, |config| Some(config.reorder_memory_bytes),
        64 * KIB => 64 * GIB,
        "What may wait behind the gaps of one source. When it is full, the oldest gap is reported as lost"),
    parameter!("receive_memory", Bytes, |config| Some(config.receive_memory_bytes),
        64 * KIB => 1_024 * GIB,
        "The receive buffers for all sources together"),
    parameter!("status", Time, |config| Some(config.status_ns), 10 * MILLISECOND => HOUR,
        "How often a receiver sends STATUS. With n receivers it is at least n × 10 ms"),
    parameter!("datagram", Bytes, |config| Some(config.datagram_bytes),
        512 => MAX_DATAGRAM_BYTES as u64,
        "The greatest length of a datagram. 1,408 leaves 64 bytes of an Ethernet packet for VLAN or VXLAN"),
    parameter!("message_max", Bytes, |config| Some(config.message_max_bytes), 1 => GIB,
        "The longest message. The sender reports a longer one as lost"),
    parameter!("batch_bytes", Bytes, |config| config.batch_bytes, Some("`datagram`"),
        1 => MAX_DATAGRAM_BYTES as u64,
        "An incomplete datagram of at least this length is sent although `batch_delay` has not passed"),
    parameter!("batch_delay", Time, |config| Some(config.batch_delay_ns), 0 => SECOND,
        "How long an incomplete datagram waits for more messages. 0 sends it as soon as no message is left, so batching \
         never adds latency"),
    parameter!("ttl", Count, |config| Some(config.ttl.into()), 0 => 255,
        "How many routers a datagram passes. 0 stays on the host. With 1, some routers handle each datagram in software"),
    parameter!("group_min", Count, |config| Some(config.group_min), 0 => 4_096,
        "With the policy slowest: how many required receivers must be there before the first datagram"),
    parameter!("hold_limit", Time, |config| Some(config.hold_limit_ns), 10 * MILLISECOND => HOUR,
        "With the policy slowest: a required receiver that holds the sender for longer is put out of the group"),
    parameter!("sources", Count, |config| Some(config.sources), 1 => 65_536,
        "How many sources a receiver follows"),
    parameter!("receivers", Count, |config| Some(config.receivers), 1 => 65_536,
        "How many receivers a sender knows"),
    parameter!("topics", Count, |config| Some(config.topics), 32 => 1_048_576,
        "How many names a stream's table has, patterns included. Messages of further topics are reported as lost. A \
         receiver takes at most 131,072. It takes 64 bytes for each name at the start"),
    parameter!("naks_each", Count, |config| Some(config.naks_each), 1 => 1_000_000,
        "How many NAK datagrams of one address a sender reads in a second: twice what a receiver may send"),
    parameter!("naks_all", Count, |config| Some(config.naks_all), 1 => 10_000_000,
        "How many NAK datagrams of all addresses together it reads in a second. Above it, the addresses share them evenly"),
];

/// A rule about two parameters.
#[derive(Debug)]
pub struct Relation<C = Config> {
    /// One parameter.
    pub name: &'static str,
    /// The other.
    pub other: &'static str,
    /// What must hold.
    pub rule: &'static str,
    /// Whether it holds.
    pub holds: fn(&C) -> bool,
}

impl<C> Relation<C> {
    fn check(
        &self,
        config: &C,
        quantity: impl Fn(&C, &str) -> Quantity,
    ) -> Result<(), ConfigError> {
        if (self.holds)(config) {
            return Ok(());
        }
        Err(ConfigError::Relation {
            name: self.name,
            value: quantity(config, self.name),
            other: self.other,
            other_value: quantity(config, self.other),
            rule: self.rule,
        })
    }
}

/// The value in force of the parameter with this name.
fn quantity(config: &Config, name: &str) -> Quantity {
    let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name);
    let value = match name {
        "retransmit_rate" => config.retransmit_rate(),
        "batch_bytes" => Some(config.batch_bytes()),
        _ => parameter.and_then(|parameter| (parameter.value)(config)),
    };
    let unit = parameter.map_or(Unit::Count, |parameter| parameter.unit);
    Quantity { value: value.unwrap_or(0), unit }
}

/// All rules about two parameters.
pub const RELATIONS: &[Relation] = &[
    Relation {
        name: "ignore",
        other: "nak_backoff",
        rule: "`ignore` must be at most half of `nak_backoff`, so that a repeated NAK is served",
        holds: |config| config.ignore_ns <= config.nak_backoff_ns / 2,
    },
    Relation {
        name: "generation",
        other: "nak_backoff",
        rule: "`generation` must be 0, or at least twice `nak_backoff`, so that a NAK can be repeated",
        holds: |config| {
            config.generation_ns == 0 || config.generation_ns >= config.nak_backoff_ns * 2
        },
    },
    Relation {
        name: "session_min",
        other: "session_max",
        rule: "`session_min` must be at most `session_max`",
        holds: |config| config.session_min_ns <= config.session_max_ns,
    },
    Relation {
        name: "activity",
        other: "session_max",
        rule: "`activity` must be at least 3 times `session_max`, so that two lost SESSIONs end nothing",
        holds: |config| config.activity_ns >= config.session_max_ns * 3,
    },
    Relation {
        name: "activity",
        other: "generation",
        rule: "`activity` must be above `generation`, so that repairs end before their source",
        holds: |config| config.activity_ns > config.generation_ns,
    },
    Relation {
        name: "retransmit_rate",
        other: "data_rate",
        rule: "`retransmit_rate` must be below `data_rate`, so that repairs cannot crowd new data out",
        holds: |config| match (config.retransmit_rate(), config.data_rate) {
            (Some(retransmit), Some(data)) => retransmit < data,
            _ => true,
        },
    },
    Relation {
        name: "window",
        other: "generation",
        rule: "`window` must hold what is sent at `data_rate` within `generation`, and one datagram",
        holds: |config| {
            let room = config.window_bytes.saturating_sub(config.datagram_bytes);
            // With small datagrams the index ends first: one entry for each 128 bytes. But the
            // smallest datagram takes 138 bytes on the wire, so the index covers more time.
            config.data_rate.is_none()
                || config.generation_bytes().is_some_and(|bytes| bytes <= room)
        },
    },
    Relation {
        name: "message_max",
        other: "window",
        rule: "`message_max` must be at most a quarter of `window`",
        holds: |config| config.message_max_bytes <= config.window_bytes / 4,
    },
    Relation {
        name: "datagram",
        other: "window",
        rule: "`datagram` must be at most a sixteenth of `window`, so that half of a window has room for any message",
        holds: |config| config.datagram_bytes <= config.window_bytes / 16,
    },
    Relation {
        name: "message_max",
        other: "reorder_memory",
        rule: "`message_max` must be at most half of `reorder_memory`, where its parts wait",
        holds: |config| config.message_max_bytes <= config.reorder_memory_bytes / 2,
    },
    Relation {
        name: "reorder_memory",
        other: "receive_memory",
        rule: "`reorder_memory` must be at most `receive_memory`, of which it is a part",
        holds: |config| config.reorder_memory_bytes <= config.receive_memory_bytes,
    },
    Relation {
        name: "batch_bytes",
        other: "datagram",
        rule: "`batch_bytes` must be at most `datagram`",
        holds: |config| config.batch_bytes() <= config.datagram_bytes,
    },
    Relation {
        name: "group_min",
        other: "receivers",
        rule: "`group_min` must be at most `receivers`",
        holds: |config| config.group_min <= config.receivers,
    },
    Relation {
        name: "naks_each",
        other: "naks_all",
        rule: "`naks_each` must be at most `naks_all`",
        holds: |config| config.naks_each <= config.naks_all,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000 * KBIT;

    fn usual() -> Config {
        Config::with_rate(200 * MBIT)
    }

    #[test]
    fn the_defaults_are_accepted_once_the_data_rate_is_given() {
        assert_eq!(usual().check_sender(), Ok(()));
        assert_eq!(Config::default().check_receiver(), Ok(()));
        let missing = Config::default().check_sender().unwrap_err();
        assert!(missing.to_string().starts_with("data_rate is missing: "), "{missing}");
    }

    #[test]
    fn the_window_covers_the_generation_interval_at_one_gigabit() {
        assert_eq!(Config::with_rate(GBIT).check_sender(), Ok(()));
        let faster = Config::with_rate(2 * GBIT);
        assert_eq!(
            faster.check_sender().unwrap_err().to_string(),
            "window is 64 MiB and generation is 500 ms: `window` must hold what is sent at \
             `data_rate` within `generation`, and one datagram"
        );
        let larger = Config { window_bytes: 128 * MIB, ..faster };
        assert_eq!(larger.check_sender(), Ok(()));
    }

    #[test]
    fn an_uncontrolled_stream_has_a_retransmission_rate_and_no_data_rate() {
        let uncontrolled = Config { policy: Policy::Uncontrolled, ..Config::default() };
        let missing = uncontrolled.check_sender().unwrap_err();
        assert!(missing.to_string().starts_with("retransmit_rate is missing: "), "{missing}");
        let limited = Config { retransmit_rate: Some(MBIT), ..uncontrolled };
        assert_eq!(limited.check_sender(), Ok(()));
        let both = Config { data_rate: Some(GBIT), ..limited };
        assert_eq!(both.check_sender(), Err(ConfigError::RateOfUncontrolled));
    }

    #[test]
    fn each_parameter_reads_its_own_field_and_has_its_default_within_its_limits() {
        for parameter in PARAMETERS {
            let mut config = usual();
            assert!(config.set(parameter.name, parameter.least));
            assert_eq!((parameter.value)(&config), Some(parameter.least), "{}", parameter.name);
            if let Some(default) = (parameter.value)(&Config::default()) {
                assert!(
                    (parameter.least..=parameter.most).contains(&default),
                    "{}",
                    parameter.name
                );
            }
        }
    }

    #[test]
    fn a_value_outside_of_its_limits_is_refused_with_the_limits() {
        for parameter in PARAMETERS {
            let below = parameter.least.checked_sub(1);
            // A ttl is a byte, of which every value is allowed.
            let above = (parameter.name != "ttl").then_some(parameter.most + 1);
            for value in below.into_iter().chain(above) {
                let mut config = usual();
                assert!(config.set(parameter.name, value));
                let error = config.check_receiver().unwrap_err();
                let ConfigError::Limit { name, value: found, .. } = error else {
                    panic!("{}: {error}", parameter.name)
                };
                assert_eq!((name, found.value), (parameter.name, value));
            }
        }
        let config = Config { datagram_bytes: 100, ..usual() };
        let text = config.check_receiver().unwrap_err().to_string();
        assert_eq!(text, "datagram is 100 bytes: choose 512 bytes to 65507 bytes");
    }

    #[test]
    fn each_relation_is_kept_at_its_edge_and_broken_one_step_beyond() {
        let cases: &[(&str, &str, &str, u64, u64)] = &[
            // The relation, the parameter that is changed, the last value that is accepted, the next.
            ("ignore", "nak_backoff", "ignore", 10 * MILLISECOND, 10 * MILLISECOND + 1),
            ("generation", "nak_backoff", "generation", 40 * MILLISECOND, 40 * MILLISECOND - 1),
            ("session_min", "session_max", "session_min", 2 * SECOND, 2 * SECOND + 1),
            ("activity", "session_max", "activity", 6 * SECOND, 6 * SECOND - 1),
            ("retransmit_rate", "data_rate", "retransmit_rate", 200 * MBIT - 1, 200 * MBIT),
            ("window", "generation", "window", 64 * MIB, 12_501_407),
            ("message_max", "window", "message_max", 16 * MIB, 16 * MIB + 1),
            ("message_max", "reorder_memory", "reorder_memory", 32 * MIB, 32 * MIB - 1),
            ("reorder_memory", "receive_memory", "receive_memory", 64 * MIB, 64 * MIB - 1),
            ("datagram", "window", "datagram", 62_500, 62_501),
            ("batch_bytes", "datagram", "batch_bytes", 1_408, 1_409),
            ("group_min", "receivers", "receivers", 1, 1),
            ("naks_each", "naks_all", "naks_all", 2_000, 1_999),
        ];
        for (name, other, changed, kept, broken) in cases {
            let mut config = usual();
            if *name == "group_min" {
                config.group_min = 1;
            }
            if *name == "datagram" {
                (config.window_bytes, config.generation_ns) = (1_000_000, 0);
                config.message_max_bytes = MIB / 8;
            }
            assert!(config.set(changed, *kept));
            assert_eq!(config.check_receiver(), Ok(()), "{changed} = {kept}");
            assert!(config.set(changed, *broken));
            if *name == "group_min" {
                config.group_min = 2;
            }
            let error = config.check_receiver().unwrap_err();
            let ConfigError::Relation { name: found, other: found_other, .. } = error else {
                panic!("{changed} = {broken}: {error}")
            };
            assert_eq!((&found, &found_other), (name, other));
        }
    }

    #[test]
    fn a_window_of_exactly_the_generation_and_one_datagram_is_enough() {
        let mut config = Config { message_max_bytes: MIB, ..usual() };
        config.window_bytes = 12_501_408; // 200 Mbit/s for 500 ms, and 1,408 bytes
        assert_eq!(config.check_sender(), Ok(()));
        config.window_bytes -= 1;
        assert!(config.check_sender().is_err());
    }

    #[test]
    fn repairs_end_before_their_source_does() {
        let config = Config {
            generation_ns: 6 * SECOND,
            activity_ns: 6 * SECOND,
            window_bytes: GIB,
            ..usual()
        };
        let error = config.check_receiver().unwrap_err().to_string();
        assert!(error.starts_with("activity is 6 s and generation is 6 s: "), "{error}");
    }

    #[test]
    fn without_repairs_the_generation_interval_is_zero() {
        let config = Config { generation_ns: 0, ..usual() };
        assert_eq!(config.check_sender(), Ok(()));
    }

    #[test]
    fn an_interface_must_bear_the_datagrams_and_the_rates() {
        let (one, other) = (usual(), Config::with_rate(300 * MBIT));
        assert_eq!(check_interface(&[&one, &other], 1_500, 28, 500 * MBIT), Ok(()));
        assert_eq!(check_interface(&[&one], 1_436, 28, GBIT), Ok(()));
        let mtu = check_interface(&[&one], 1_435, 28, GBIT).unwrap_err();
        assert_eq!(mtu, ConfigError::Mtu { datagram: 1_408, mtu: 1_435, headers: 28 });
        let speed = check_interface(&[&one, &other], 1_500, 28, 499 * MBIT).unwrap_err();
        assert_eq!(
            speed.to_string(),
            "the data rates of this interface add up to 500 Mbit/s, and its speed is 499 Mbit/s"
        );
    }

    #[test]
    fn quantities_are_shown_in_the_greatest_whole_unit() {
        let shown = |value, unit| Quantity { value, unit }.to_string();
        assert_eq!(shown(1_500 * MICROSECOND, Unit::Time), "1500 µs");
        assert_eq!(shown(0, Unit::Time), "0 s");
        assert_eq!(shown(64 * MIB, Unit::Bytes), "64 MiB");
        assert_eq!(shown(1_408, Unit::Bytes), "1408 bytes");
        assert_eq!(shown(2_500 * MBIT, Unit::BitsPerSecond), "2500 Mbit/s");
        assert_eq!(shown(7, Unit::Count), "7");
    }

    #[test]
    fn relations_name_parameters_that_exist() {
        for relation in RELATIONS {
            for name in [relation.name, relation.other] {
                assert!(PARAMETERS.iter().any(|parameter| parameter.name == name), "{name}");
            }
        }
    }
}
