//! Every parameter of latency-bounded TCP, with its unit, default and limits, and how it must relate to
//! the others.

use super::{
    ConfigError, GBIT, GIB, HOUR, KBIT, KIB, MIB, Parameter, Quantity, Relation, Unit, check,
    parameter,
};
use crate::time::{MILLISECOND, SECOND};

/// Who decides how fast messages flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pace {
    /// The source. A client that cannot keep up loses messages.
    Source,
    /// The slowest client, for at most `hold_limit`.
    Receiver,
}

/// The parameters of a server, and of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// Who decides how fast messages flow.
    pub pace: Pace,
    /// The rate of all streams together, in bit/s, if it is limited.
    pub data_rate: Option<u64>,
    /// The limit for replays, in bit/s.
    pub replay_rate: Option<u64>,
    /// How long a frame may wait before it is started.
    pub latency_bound_ns: u64,
    /// How much may wait for one client.
    pub queue_bytes: u64,
    /// The memory for the frames of all clients.
    pub frame_memory_bytes: u64,
    /// The length at which a frame is closed.
    pub batch_bytes: u64,
    /// How long a frame waits for more messages.
    pub batch_delay_ns: u64,
    /// The longest message.
    pub message_max_bytes: u64,
    /// With the pace of the receiver: how long a client may hold the server.
    pub hold_limit_ns: u64,
    /// How long a client may take nothing.
    pub stall_ns: u64,
    /// How long HELLO and WELCOME may take, and any other frame of a client.
    pub hello_ns: u64,
    /// How often a server sends HEARTBEAT.
    pub heartbeat_ns: u64,
    /// After how much silence a client gives a connection up.
    pub silence_ns: u64,
    /// The pause before a client connects again. It doubles.
    pub retry_ns: u64,
    /// The longest pause.
    pub retry_max_ns: u64,
    /// How many clients a server has.
    pub clients: u64,
    /// How many different sets they form: those with the same patterns and `message_max` are one.
    pub sets: u64,
    /// How many names the table of a stream has.
    pub topics: u64,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            pace: Pace::Source,
            data_rate: None,
            replay_rate: None,
            latency_bound_ns: 250 * MILLISECOND,
            queue_bytes: 4 * MIB,
            frame_memory_bytes: 64 * MIB,
            batch_bytes: 16 * KIB,
            batch_delay_ns: 0,
            message_max_bytes: 2 * MIB,
            hold_limit_ns: 5 * SECOND,
            stall_ns: 10 * SECOND,
            hello_ns: 5 * SECOND,
            heartbeat_ns: SECOND,
            silence_ns: 5 * SECOND,
            retry_ns: 200 * MILLISECOND,
            retry_max_ns: 5 * SECOND,
            clients: 1_024,
            sets: 1_024,
            topics: 65_536,
        }
    }
}

impl TcpConfig {
    /// Returns the limit for replays, in bit/s.
    #[must_use]
    pub fn replay_rate(&self) -> u64 {
        let derived = || self.data_rate.map_or(GBIT, |rate| rate.saturating_mul(2));
        self.replay_rate.unwrap_or_else(derived)
    }

    /// Checks that each value is within its limits, and how they relate.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the values.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(self, TCP_PARAMETERS, TCP_RELATIONS, quantity)
    }
}

/// The value in force of the parameter with this name.
fn quantity(config: &TcpConfig, name: &str) -> Quantity {
    let parameter = TCP_PARAMETERS.iter().find(|parameter| parameter.name == name);
    let value = match name {
        "replay_rate" => Some(config.replay_rate()),
        _ => parameter.and_then(|parameter| (parameter.value)(config)),
    };
    let unit = parameter.map_or(Unit::Count, |parameter| parameter.unit);
    Quantity { value: value.unwrap_or(0), unit }
}

/// All parameters that are numbers.
pub const TCP_PARAMETERS: &[Parameter<TcpConfig>] = &[
    parameter!("latency_bound", Time, |config| Some(config.latency_bound_ns),
        MILLISECOND => HOUR,
        "How long a frame may wait before its first byte is written. An older one is left out, and a GAP tells the client \
         what it missed. Half of `generation`, so both transports give up on the same scale"),
    parameter!("queue_bytes", Bytes, |config| Some(config.queue_bytes), 256 * KIB => 64 * GIB,
        "What may wait for one client. Beyond it, the oldest frames are left out"),
    parameter!("frame_memory", Bytes, |config| Some(config.frame_memory_bytes),
        512 * KIB => 64 * GIB,
        "The frames that wait for any client: enough for 2 Gbit/s over `latency_bound`. It is allocated at the start"),
    parameter!("batch_bytes", Bytes, |config| Some(config.batch_bytes), 512 => 64 * KIB,
        "The length at which a frame is closed, and the length of the parts of long messages"),
    parameter!("batch_delay", Time, |config| Some(config.batch_delay_ns), 0 => SECOND,
        "How long an incomplete frame waits for more messages. 0 closes it as soon as no message is left"),
    parameter!("message_max", Bytes, |config| Some(config.message_max_bytes), 1 => GIB,
        "The longest message. A longer one is reported as lost"),
    parameter!("hold_limit", Time, |config| Some(config.hold_limit_ns), 10 * MILLISECOND => HOUR,
        "With `pace` receiver: a client that holds the server and takes no frame for that long is disconnected"),
    parameter!("stall", Time, |config| Some(config.stall_ns), 100 * MILLISECOND => HOUR,
        "A client that takes no byte for that long is disconnected"),
    parameter!("hello", Time, |config| Some(config.hello_ns), 10 * MILLISECOND => HOUR,
        "How long HELLO, and WELCOME, may take after the connection was made, and any other frame of a client"),
    parameter!("heartbeat", Time, |config| Some(config.heartbeat_ns), 10 * MILLISECOND => 60 * SECOND,
        "How often the server sends HEARTBEAT. It moves the resume points of clients whose patterns match little"),
    parameter!("silence", Time, |config| Some(config.silence_ns), 30 * MILLISECOND => HOUR,
        "A client connects again if it received nothing for that long, or no HEARTBEAT for 4 times as long"),
    parameter!("retry", Time, |config| Some(config.retry_ns), MILLISECOND => HOUR,
        "The pause before a client connects again. It doubles with each failure, and each is drawn between 75 % and 125 %"),
    parameter!("retry_max", Time, |config| Some(config.retry_max_ns), MILLISECOND => HOUR,
        "The pause stops doubling here"),
    parameter!("replay_rate", BitsPerSecond, |config| config.replay_rate,
        Some("2 × `data_rate`, or 1 Gbit/s"), 10 * KBIT => 400 * GBIT,
        "Limits the replays of all clients together"),
    parameter!("data_rate", BitsPerSecond, |config| config.data_rate, Some("none"),
        10 * KBIT => 400 * GBIT,
        "The sum of what the streams send, where it is limited. TCP itself does not limit it"),
    parameter!("clients", Count, |config| Some(config.clients), 1 => 65_535,
        "How many clients a server has. For each it reserves 128 KiB of address space"),
    parameter!("sets", Count, |config| Some(config.sets), 1 => 65_535,
        "How many sets the clients form: those with the same patterns and the same `message_max` are one. For each it reserves `batch_bytes`"),
    parameter!("topics", Count, |config| Some(config.topics), 32 => 1_048_576,
        "How many names a stream's table has. Messages of further topics are reported as lost. A receiver takes at most 131,072"),
];

/// All rules about two parameters.
pub const TCP_RELATIONS: &[Relation<TcpConfig>] = &[
    Relation {
        name: "message_max",
        other: "queue_bytes",
        rule: "`message_max` must be at most half of `queue_bytes`, so that a queue can hold any message",
        holds: |config| config.message_max_bytes <= config.queue_bytes / 2,
    },
    Relation {
        name: "queue_bytes",
        other: "frame_memory",
        rule: "`queue_bytes` must be at most half of `frame_memory`, which all clients share",
        holds: |config| config.queue_bytes <= config.frame_memory_bytes / 2,
    },
    Relation {
        name: "latency_bound",
        other: "stall",
        rule: "`latency_bound` must be below `stall`, so that a slow client loses messages before its connection",
        holds: |config| config.latency_bound_ns < config.stall_ns,
    },
    Relation {
        name: "heartbeat",
        other: "silence",
        rule: "`heartbeat` must be at most a third of `silence`, so that two late ones end nothing",
        holds: |config| config.heartbeat_ns <= config.silence_ns / 3,
    },
    Relation {
        name: "retry",
        other: "retry_max",
        rule: "`retry` must be at most `retry_max`",
        holds: |config| config.retry_ns <= config.retry_max_ns,
    },
    Relation {
        name: "replay_rate",
        other: "data_rate",
        rule: "`replay_rate` must be at least `data_rate`, because a slower replay never reaches the present",
        holds: |config| config.data_rate.is_none_or(|rate| config.replay_rate() >= rate),
    },
    Relation {
        name: "sets",
        other: "clients",
        rule: "`sets` must be at most `clients`, of which each has one set",
        holds: |config| config.sets <= config.clients,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn set(config: &mut TcpConfig, name: &str, value: u64) {
        let field = match name {
            "data_rate" => return config.data_rate = Some(value),
            "replay_rate" => return config.replay_rate = Some(value),
            "latency_bound" => &mut config.latency_bound_ns,
            "queue_bytes" => &mut config.queue_bytes,
            "frame_memory" => &mut config.frame_memory_bytes,
            "batch_bytes" => &mut config.batch_bytes,
            "batch_delay" => &mut config.batch_delay_ns,
            "message_max" => &mut config.message_max_bytes,
            "hold_limit" => &mut config.hold_limit_ns,
            "stall" => &mut config.stall_ns,
            "hello" => &mut config.hello_ns,
            "heartbeat" => &mut config.heartbeat_ns,
            "silence" => &mut config.silence_ns,
            "retry" => &mut config.retry_ns,
            "retry_max" => &mut config.retry_max_ns,
            "clients" => &mut config.clients,
            "sets" => &mut config.sets,
            "topics" => &mut config.topics,
            _ => panic!("the parameter {name} is not in this list"),
        };
        *field = value;
    }

    #[test]
    fn the_defaults_are_accepted() {
        assert_eq!(TcpConfig::default().check(), Ok(()));
    }

    #[test]
    fn each_parameter_reads_its_own_field_and_is_refused_outside_of_its_limits() {
        for parameter in TCP_PARAMETERS {
            for value in [parameter.least.checked_sub(1), Some(parameter.most + 1)] {
                let Some(value) = value else { continue };
                let mut config = TcpConfig::default();
                set(&mut config, parameter.name, value);
                assert_eq!((parameter.value)(&config), Some(value), "{}", parameter.name);
                let error = config.check().unwrap_err();
                let ConfigError::Limit { name, value: found, .. } = error else {
                    panic!("{}: {error}", parameter.name)
                };
                assert_eq!((name, found.value), (parameter.name, value));
            }
        }
    }

    #[test]
    fn each_relation_is_kept_at_its_edge_and_broken_one_step_beyond() {
        let cases: &[(&str, &str, &str, u64, u64)] = &[
            ("message_max", "queue_bytes", "message_max", 2 * MIB, 2 * MIB + 1),
            ("queue_bytes", "frame_memory", "frame_memory", 8 * MIB, 8 * MIB - 1),
            ("latency_bound", "stall", "latency_bound", 10 * SECOND - 1, 10 * SECOND),
            ("heartbeat", "silence", "silence", 3 * SECOND, 3 * SECOND - 1),
            ("retry", "retry_max", "retry", 5 * SECOND, 5 * SECOND + 1),
            ("replay_rate", "data_rate", "replay_rate", 2 * GBIT, 2 * GBIT - 1),
            ("sets", "clients", "sets", 1_024, 1_025),
        ];
        assert_eq!(cases.len(), TCP_RELATIONS.len());
        for (name, other, changed, kept, broken) in cases {
            let mut config = TcpConfig { data_rate: Some(2 * GBIT), ..TcpConfig::default() };
            set(&mut config, changed, *kept);
            assert_eq!(config.check(), Ok(()), "{changed} = {kept}");
            set(&mut config, changed, *broken);
            let error = config.check().unwrap_err();
            let ConfigError::Relation { name: found, other: found_other, .. } = error else {
                panic!("{changed} = {broken}: {error}")
            };
            assert_eq!((&found, &found_other), (name, other));
        }
    }

    #[test]
    fn a_replay_is_faster_than_the_streams_unless_it_is_configured() {
        let with =
            |data_rate, replay_rate| TcpConfig { data_rate, replay_rate, ..TcpConfig::default() };
        assert_eq!(with(None, None).replay_rate(), GBIT);
        assert_eq!(with(Some(7 * KBIT), None).replay_rate(), 14 * KBIT);
        assert_eq!(with(Some(7 * KBIT), Some(9 * KBIT)).replay_rate(), 9 * KBIT);
    }
}
