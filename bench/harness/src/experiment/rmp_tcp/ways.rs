//! The ways from one writer to one reader.

use super::message::{PREFIX, Parser, Seen, ends, stamp};
use super::{Plan, Way};
use crate::Failure;
use crate::experiment::tcp::{accept, connect};
use crate::run_directory::RunDirectory;
use std::io::{BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use toroni::{Bus, BusConfig, Limit, Policy, Publisher, RacyBytes, Subscriber};

const BUS: &str = "messages";

/// Bytes of the buffer of the reader of a stream, and of a writer that buffers.
const STREAM_BUFFER: usize = 256 << 10;
/// From this size on, bursts are read in place: copying smaller messages is faster.
pub(super) const LARGE: usize = 1 << 10;
/// Largest number of messages in a burst, and of their bytes together.
const BURST: usize = 256;
const BURST_BYTES: usize = 64 << 10;

/// Creates the bus, if the way uses one.
pub(super) fn host(directory: &RunDirectory, plan: &Plan) -> Result<Option<Bus>, Failure> {
    if matches!(plan.way, Way::Tcp | Way::TcpBuffered) {
        return Ok(None);
    }
    config(&directory.path)
        .capacity(plan.capacity_bytes)
        .policy(Policy::Wait { limit: None })
        .create(BUS)
        .map(Some)
        .map_err(Failure::of("create the bus"))
}

/// The writing end.
pub(super) enum Writer {
    Tcp(TcpStream),
    TcpBuffered(BufWriter<TcpStream>),
    Toroni(Publisher),
    ToroniBurst(Publisher),
}

impl Writer {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        let connection = || {
            let reader = accept(directory, 1)?.pop();
            reader.ok_or_else(|| Failure::new("there is no reader"))
        };
        let publisher = || {
            let bus = open(directory)?;
            bus.publisher("messages").map_err(Failure::of("make a publisher"))
        };
        Ok(match plan.way {
            Way::Tcp => Self::Tcp(connection()?),
            Way::TcpBuffered => {
                Self::TcpBuffered(BufWriter::with_capacity(STREAM_BUFFER, connection()?))
            }
            Way::Toroni | Way::ToroniInPlace => Self::Toroni(publisher()?),
            Way::ToroniBurst => Self::ToroniBurst(publisher()?),
        })
    }

    /// Writes all messages, numbered from 0.
    pub(super) fn write(&mut self, plan: &Plan) -> Result<(), Failure> {
        match self {
            Self::Tcp(connection) => {
                write_stream(connection, plan).map_err(Failure::of("write a message"))
            }
            Self::TcpBuffered(connection) => write_stream(connection, plan)
                .and_then(|()| connection.flush())
                .map_err(Failure::of("write messages")),
            Self::Toroni(publisher) => {
                let mut message = vec![0x5a; plan.message_bytes];
                for number in 0..plan.messages {
                    stamp(&mut message, number);
                    publisher.publish(&message).map_err(Failure::of("publish a message"))?;
                }
                Ok(())
            }
            Self::ToroniBurst(publisher) => write_bursts(publisher, plan),
        }
    }
}

/// Writes each message with one call, after its length.
fn write_stream(stream: &mut impl Write, plan: &Plan) -> std::io::Result<()> {
    let mut bytes = vec![0x5a; PREFIX + plan.message_bytes];
    let (prefix, _) = bytes.split_at_mut(PREFIX);
    // A message is not longer than a ring, which has at most some gigabytes.
    let length = u32::try_from(plan.message_bytes).unwrap_or(u32::MAX);
    prefix.copy_from_slice(&length.to_le_bytes());
    for number in 0..plan.messages {
        stamp(&mut bytes[PREFIX..], number);
        stream.write_all(&bytes)?;
    }
    Ok(())
}

fn write_bursts(publisher: &Publisher, plan: &Plan) -> Result<(), Failure> {
    let most = (BURST_BYTES / plan.message_bytes).clamp(1, BURST);
    let mut messages = vec![vec![0x5a; plan.message_bytes]; most];
    let mut number = 0;
    while number < plan.messages {
        let count = usize::try_from(plan.messages - number).unwrap_or(most).min(most);
        let burst = &mut messages[..count];
        for message in burst.iter_mut() {
            stamp(message, number);
            number += 1;
        }
        publisher.burst(burst, Limit::Policy).map_err(Failure::of("publish messages"))?;
    }
    Ok(())
}

/// The reading end.
pub(super) enum Reader {
    Tcp(TcpStream, Parser),
    Toroni(Subscriber),
    ToroniInPlace(Subscriber),
}

impl Reader {
    pub(super) fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        let subscriber = || {
            open(directory)?.subscribe("messages").map_err(Failure::of("subscribe to the messages"))
        };
        Ok(match plan.way {
            Way::Tcp | Way::TcpBuffered => {
                Self::Tcp(connect(directory)?, Parser::new(STREAM_BUFFER, plan.message_bytes))
            }
            Way::ToroniBurst if plan.message_bytes >= LARGE => Self::ToroniInPlace(subscriber()?),
            Way::Toroni | Way::ToroniBurst => Self::Toroni(subscriber()?),
            Way::ToroniInPlace => Self::ToroniInPlace(subscriber()?),
        })
    }

    /// Reads until all messages have come.
    pub(super) fn read(&mut self, plan: &Plan) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let expected = plan.message_bytes;
        while seen.messages < plan.messages {
            match self {
                Self::Tcp(connection, parser) => {
                    let length = connection.read(parser.free()).map_err(Failure::of("read"))?;
                    if length == 0 {
                        return Err(Failure::new("the writer has closed its connection"));
                    }
                    parser.parse(length, |message| {
                        seen.check(message.len(), expected, ends(message));
                    });
                }
                Self::Toroni(subscriber) => {
                    let message = subscriber.receive().map_err(Failure::of("receive a message"))?;
                    let payload = message.payload();
                    seen.check(payload.len(), expected, ends(payload));
                }
                Self::ToroniInPlace(subscriber) => read_in_place(subscriber, expected, &mut seen)?,
            }
        }
        Ok(seen)
    }
}

/// Waits for messages, and reads those that have come in place.
#[inline]
fn read_in_place(
    subscriber: &mut Subscriber,
    expected: usize,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let run = subscriber.receive_in_place().map_err(Failure::of("receive messages"))?;
    for message in run {
        let payload = message.payload();
        let found = ends_in_place(payload);
        // Before the numbers are trusted.
        message.validate().map_err(Failure::of("receive a message"))?;
        seen.check(payload.len(), expected, found);
    }
    Ok(())
}

#[inline]
fn ends_in_place(payload: RacyBytes<'_>) -> Option<[u64; 2]> {
    let word = |offset| payload.array(offset).map(u64::from_le_bytes);
    Some([word(0)?, word(payload.len().checked_sub(8)?)?])
}

fn open(directory: &RunDirectory) -> Result<Bus, Failure> {
    config(&directory.path).open_existing(BUS).map_err(Failure::of("open the bus"))
}

fn config(directory: &Path) -> BusConfig {
    BusConfig::new().directory(directory).prefault(true)
}
