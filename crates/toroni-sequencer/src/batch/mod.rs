//! What one Raft entry of the sequencer is: a batch of commands, as bytes.
//!
//! ```text
//!  byte 0         1      2         4
//!       +---------+------+---------+-----------+-----------+----
//!       | version | 0    | count   | command   | command   | …
//!       | 1       |      | u16 ≥ 1 |           |           |
//!       +---------+------+---------+-----------+-----------+----
//!
//!  a command starts with its kind, flags and the lengths of what is at its end; unused lengths are 0:
//!  byte 0      1       2              4                8
//!       +------+-------+--------------+----------------+------------------------------------------
//!       | kind | flags | topic length | payload length | body
//!       | u8   | u8    | u16          | u32            |
//!       +------+-------+--------------+----------------+------------------------------------------
//!  1 PUBLISH   1 TO_DESCENDANTS                          source u32 · series u32 · number u64 · topic · payload
//!  2 OPEN      0                                         source u32 · series u32 · session u32 · bus 16 bytes
//!  3 LOST      0                                         source u32 · series u32 · first u64 · last u64
//!  4 BEGIN     0                                         feed series u32
//!  5 OPEN      0                                         as kind 2 · earlier buses: 16 bytes each, the payload
//!  6 RELEASE   0                                         source u32
//!  7 REMOVE    0                                         source u32
//! ```
//!
//! Kind 2 is that of earlier versions. It stands in their logs and archives, so it is read as it was, and not written any more.
//!
//! A batch has one encoding only: [`Batch::check`] accepts nothing that [`Builder`] would not have written. The digest
//! of [`machine`](crate::machine) is over these bytes.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(test)]
mod tests;

use crate::bytes::{Fields, TooShort};

/// The greatest length of a batch of more than one command, in bytes.
pub const MAX_BATCH_BYTES: usize = 256 << 10;
/// The greatest length of one encoded command, in bytes. A longer one than [`MAX_BATCH_BYTES`] is a batch of its own.
pub const MAX_COMMAND_BYTES: usize = 1 << 20;
/// The greatest length of a topic's name, in bytes. As in the library.
pub const MAX_TOPIC_BYTES: usize = 255;
/// The number of a command has this many bits, as in the origin of a message.
pub const NUMBER_BITS: u32 = 48;

/// An OPEN names at most this many earlier buses.
pub const MAX_EARLIER: usize = 8;

const HEADER_BYTES: usize = 4;
const COMMAND_HEADER_BYTES: usize = 8;
const VERSION: u8 = 1;
const TO_DESCENDANTS: u8 = 1;

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// A message that is to become an event.
    Publish(Publish<'a>),
    /// A source begins a series of commands, or continues it in a new session.
    Open(Open<'a>),
    /// Commands of a source never left their host.
    Lost(Lost),
    /// The feed begins a series that is greater than every earlier one.
    Begin {
        /// The series that begins.
        series: u32,
    },
    /// The next OPEN of a source may bring any bus: its host was installed again.
    Release {
        /// The source.
        source: u32,
    },
    /// A source is gone for good. Its bus is closed.
    Remove {
        /// The source.
        source: u32,
    },
}

/// A message that is to become an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Which command this is.
    pub id: CommandId,
    /// Whether the message is for the descendants of its topic.
    pub to_descendants: bool,
    /// The name of the topic: valid UTF-8 of 1 to 255 bytes. The sequencer does not look into it.
    pub topic: &'a str,
    /// The contents.
    pub payload: &'a [u8],
}

/// Names a command among those of all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The node whose host the command comes from.
    pub source: u32,
    /// The series of the source's command bus.
    pub series: u32,
    /// The place in the series, from 0 without a gap; below 2^48.
    pub number: u64,
}

/// The start of a series of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open<'a> {
    /// The node whose host the commands come from.
    pub source: u32,
    /// The series: a hash of the bus's id.
    pub series: u32,
    /// The life of the node, strictly growing.
    pub session: u32,
    /// The id of the command bus.
    pub bus: [u8; 16],
    /// Buses that the node has had before, at most [`MAX_EARLIER`]. The bus that the order knows has to be among them. None in what
    /// an earlier version has written: then any bus may take its place.
    pub earlier: Option<&'a [[u8; 16]]>,
}

/// Commands that were overwritten before a node could read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The node whose host the commands were on.
    pub source: u32,
    /// The series of the source's command bus.
    pub series: u32,
    /// The first number that never left.
    pub first: u64,
    /// The last number that never left.
    pub last: u64,
}

/// Why bytes are no batch, or a command does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A length or count promises more bytes than there are.
    #[error("the batch ends in the midst of a command")]
    TooShort,
    /// Bytes follow the last command.
    #[error("bytes follow the batch's last command")]
    TooLong,
    /// Another version of the encoding.
    #[error("the batch has version {0}, not 1")]
    Version(u8),
    /// A kind of command that this version does not know.
    #[error("there is no command of kind {0}")]
    Kind(u8),
    /// A flag, length or reserved byte that must be 0.
    #[error("a byte that must be 0 is not")]
    Reserved,
    /// A batch without commands, or with more than 65,535.
    #[error("a batch has 1 to 65,535 commands")]
    Count,
    /// A topic that is empty, too long or no UTF-8.
    #[error("a topic is 1 to 255 bytes of UTF-8")]
    Topic,
    /// A number of 2^48 or more, or a range of numbers that ends before it begins.
    #[error("a command has an impossible number")]
    Number,
    /// The earlier buses of an OPEN.
    #[error("an OPEN names at most {MAX_EARLIER} earlier buses of 16 bytes")]
    Earlier,
    /// A command longer than [`MAX_COMMAND_BYTES`].
    #[error("a command is longer than 1 MiB")]
    CommandTooLong,
    /// A batch of several commands longer than [`MAX_BATCH_BYTES`].
    #[error("a batch of several commands is longer than 256 KiB")]
    BatchTooLong,
}

impl From<TooShort> for BatchError {
    fn from(TooShort: TooShort) -> Self {
        Self::TooShort
    }
}

impl<'a> Command<'a> {
    /// Returns the length of the encoding, in bytes.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let body = match self {
            Self::Publish(publish) => {
                publish.topic.len().saturating_add(publish.payload.len()).saturating_add(16)
            }
            Self::Open(open) => {
                open.earlier.map_or(0, <[_]>::len).saturating_mul(16).saturating_add(28)
            }
            Self::Lost(_) => 24,
            Self::Begin { .. } | Self::Release { .. } | Self::Remove { .. } => 4,
        };
        body.saturating_add(COMMAND_HEADER_BYTES)
    }

    /// Appends the encoding.
    ///
    /// # Errors
    ///
    /// If the command has an impossible topic or number, or is too long; then nothing is appended.
    pub fn encode(&self, to: &mut Vec<u8>) -> Result<(), BatchError> {
        if self.encoded_bytes() > MAX_COMMAND_BYTES {
            return Err(BatchError::CommandTooLong);
        }
        let header = |to: &mut Vec<u8>, kind, flags, topic: u16, payload: u32| {
            to.extend([kind, flags]);
            to.extend(topic.to_le_bytes());
            to.extend(payload.to_le_bytes());
        };
        match self {
            Self::Publish(Publish { id, to_descendants, topic, payload }) => {
                check_topic(topic)?;
                check_number(id.number)?;
                let topic_bytes = u16::try_from(topic.len()).map_err(|_| BatchError::Topic)?;
                let payload_bytes =
                    u32::try_from(payload.len()).map_err(|_| BatchError::CommandTooLong)?;
                header(
                    to,
                    1,
                    if *to_descendants { TO_DESCENDANTS } else { 0 },
                    topic_bytes,
                    payload_bytes,
                );
                to.extend(id.source.to_le_bytes());
                to.extend(id.series.to_le_bytes());
                to.extend(id.number.to_le_bytes());
                to.extend(topic.as_bytes());
                to.extend(*payload);
            }
            Self::Open(open) => {
                let earlier = open.earlier.unwrap_or_default();
                if earlier.len() > MAX_EARLIER {
                    return Err(BatchError::Earlier);
                }
                let bytes = u32::try_from(earlier.as_flattened().len());
                let bytes = bytes.map_err(|_| BatchError::Earlier)?;
                header(to, if open.earlier.is_some() { 5 } else { 2 }, 0, 0, bytes);
                to.extend(open.source.to_le_bytes());
                to.extend(open.series.to_le_bytes());
                to.extend(open.session.to_le_bytes());
                to.extend(open.bus);
                to.extend(earlier.as_flattened());
            }
            Self::Lost(lost) => {
                check_range(lost)?;
                header(to, 3, 0, 0, 0);
                to.extend(lost.source.to_le_bytes());
                to.extend(lost.series.to_le_bytes());
                to.extend(lost.first.to_le_bytes());
                to.extend(lost.last.to_le_bytes());
            }
            Self::Begin { series } => {
                header(to, 4, 0, 0, 0);
                to.extend(series.to_le_bytes());
            }
            Self::Release { source } => {
                header(to, 6, 0, 0, 0);
                to.extend(source.to_le_bytes());
            }
            Self::Remove { source } => {
                header(to, 7, 0, 0, 0);
                to.extend(source.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Takes one command from the fields.
    fn decode(fields: &mut Fields<'a>) -> Result<Self, BatchError> {
        let before = fields.rest().len();
        let (kind, flags) = (fields.u8()?, fields.u8()?);
        let (topic_bytes, payload_bytes) = (usize::from(fields.u16()?), fields.u32()?);
        let has_payload = matches!(kind, 1 | 5);
        if kind != 1 && (flags != 0 || topic_bytes != 0 || !has_payload && payload_bytes != 0) {
            return Err(if (2..=7).contains(&kind) {
                BatchError::Reserved
            } else {
                BatchError::Kind(kind)
            });
        }
        let command = match kind {
            1 => {
                if flags & !TO_DESCENDANTS != 0 {
                    return Err(BatchError::Reserved);
                }
                let id = CommandId {
                    source: fields.u32()?,
                    series: fields.u32()?,
                    number: fields.u64()?,
                };
                check_number(id.number)?;
                let topic =
                    str::from_utf8(fields.take(topic_bytes)?).map_err(|_| BatchError::Topic)?;
                check_topic(topic)?;
                let payload_bytes =
                    usize::try_from(payload_bytes).map_err(|_| BatchError::CommandTooLong)?;
                let payload = fields.take(payload_bytes)?;
                Self::Publish(Publish {
                    id,
                    to_descendants: flags & TO_DESCENDANTS != 0,
                    topic,
                    payload,
                })
            }
            2 | 5 => Self::Open(Open {
                source: fields.u32()?,
                series: fields.u32()?,
                session: fields.u32()?,
                bus: fields.array()?,
                earlier: if kind == 5 { Some(earlier(fields, payload_bytes)?) } else { None },
            }),
            3 => {
                let lost = Lost {
                    source: fields.u32()?,
                    series: fields.u32()?,
                    first: fields.u64()?,
                    last: fields.u64()?,
                };
                check_range(&lost)?;
                Self::Lost(lost)
            }
            4 => Self::Begin { series: fields.u32()? },
            6 => Self::Release { source: fields.u32()? },
            7 => Self::Remove { source: fields.u32()? },
            kind => return Err(BatchError::Kind(kind)),
        };
        if before.saturating_sub(fields.rest().len()) > MAX_COMMAND_BYTES {
            return Err(BatchError::CommandTooLong);
        }
        Ok(command)
    }
}

/// Takes the earlier buses of an OPEN.
fn earlier<'a>(fields: &mut Fields<'a>, bytes: u32) -> Result<&'a [[u8; 16]], BatchError> {
    let bytes = usize::try_from(bytes).map_err(|_| BatchError::Earlier)?;
    if bytes > MAX_EARLIER * 16 {
        return Err(BatchError::Earlier);
    }
    match fields.take(bytes)?.as_chunks() {
        (buses, []) => Ok(buses),
        _ => Err(BatchError::Earlier),
    }
}

fn check_topic(topic: &str) -> Result<(), BatchError> {
    if (1..=MAX_TOPIC_BYTES).contains(&topic.len()) { Ok(()) } else { Err(BatchError::Topic) }
}

fn check_number(number: u64) -> Result<(), BatchError> {
    if number >> NUMBER_BITS == 0 { Ok(()) } else { Err(BatchError::Number) }
}

fn check_range(lost: &Lost) -> Result<(), BatchError> {
    check_number(lost.last)?;
    if lost.first <= lost.last { Ok(()) } else { Err(BatchError::Number) }
}

/// The bytes of a batch, every one of which was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    commands: &'a [u8],
    count: u16,
}

impl<'a> Batch<'a> {
    /// Checks bytes of any origin.
    ///
    /// # Errors
    ///
    /// If [`Builder`] would not have written them.
    pub fn check(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let mut fields = Fields::of(bytes);
        let version = fields.u8()?;
        if version != VERSION {
            return Err(BatchError::Version(version));
        }
        if fields.u8()? != 0 {
            return Err(BatchError::Reserved);
        }
        let count = fields.u16()?;
        if count == 0 {
            return Err(BatchError::Count);
        }
        if count > 1 && bytes.len() > MAX_BATCH_BYTES {
            return Err(BatchError::BatchTooLong);
        }
        let commands = fields.rest();
        for _ in 0..count {
            Command::decode(&mut fields)?;
        }
        if fields.rest().is_empty() {
            Ok(Self { commands, count })
        } else {
            Err(BatchError::TooLong)
        }
    }

    /// Returns how many commands there are: at least one.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Returns each command with its bytes.
    pub fn commands(&self) -> impl Iterator<Item = (Command<'a>, &'a [u8])> + use<'a> {
        commands_in(self.commands)
    }
}

/// Returns each command of a batch that was checked.
#[cfg(feature = "member")]
pub(crate) fn commands_of(batch: &[u8]) -> impl Iterator<Item = Command<'_>> {
    commands_in(batch.get(HEADER_BYTES..).unwrap_or_default()).map(|(command, _)| command)
}

/// Checks bytes of any origin that should be commands, one after another. Returns how many there are.
#[cfg(feature = "member")]
pub(crate) fn check_commands(bytes: &[u8]) -> Result<u64, BatchError> {
    let mut fields = Fields::of(bytes);
    let mut count: u64 = 0;
    while !fields.rest().is_empty() {
        Command::decode(&mut fields)?;
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// Returns each command in bytes that were checked, with its own bytes. Ends where one cannot be read.
pub(crate) fn commands_in<'a>(
    bytes: &'a [u8],
) -> impl Iterator<Item = (Command<'a>, &'a [u8])> + use<'a> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let mut fields = Fields::of(rest);
        let command = Command::decode(&mut fields).ok()?;
        let (bytes, after) = rest.split_at(rest.len().saturating_sub(fields.rest().len()));
        rest = after;
        Some((command, bytes))
    })
}

/// Writes a batch.
#[derive(Debug, Clone)]
pub struct Builder {
    bytes: Vec<u8>,
    count: u16,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Starts a batch without commands.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![VERSION, 0, 0, 0], count: 0 }
    }

    /// Returns whether a command of this length still fits.
    #[must_use]
    pub fn has_room_for(&self, encoded_bytes: usize) -> bool {
        if self.count == 0 {
            encoded_bytes <= MAX_COMMAND_BYTES
        } else {
            self.count < u16::MAX
                && self.bytes.len().saturating_add(encoded_bytes) <= MAX_BATCH_BYTES
        }
    }

    /// Appends a command.
    ///
    /// # Errors
    ///
    /// [`BatchError::BatchTooLong`] if it does not fit beside the others, or what is wrong with the command. The batch
    /// is then as before.
    pub fn push(&mut self, command: &Command<'_>) -> Result<(), BatchError> {
        let length = command.encoded_bytes();
        if length > MAX_COMMAND_BYTES {
            return Err(BatchError::CommandTooLong);
        }
        if !self.has_room_for(length) {
            return Err(BatchError::BatchTooLong);
        }
        command.encode(&mut self.bytes)?;
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Appends all commands of another batch. Returns false, and does nothing, if they do not fit.
    pub fn extend(&mut self, batch: Batch<'_>) -> bool {
        let alone = self.count == 0;
        let Some(count) = self.count.checked_add(batch.count) else { return false };
        if !alone && self.bytes.len().saturating_add(batch.commands.len()) > MAX_BATCH_BYTES {
            return false;
        }
        self.bytes.extend(batch.commands);
        self.count = count;
        true
    }

    /// Returns the length of the batch so far, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether there is no command yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes of the batch.
    ///
    /// # Errors
    ///
    /// [`BatchError::Count`] if there is no command.
    pub fn finish(mut self) -> Result<Vec<u8>, BatchError> {
        if self.count == 0 {
            return Err(BatchError::Count);
        }
        self.bytes[2..HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
        Ok(self.bytes)
    }
}
