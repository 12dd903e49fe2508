//! Frames on a connection, and how both ends begin.
//!
//! ```text
//!  byte 0         4             12                        length - 16      length
//!       +---------+-------------+-------------------------+----------------+
//!       | length  | call        | request or answer       | MAC, if there  |
//!       | u32     | u64         |                         | is a key       |
//!       +---------+-------------+-------------------------+----------------+
//!
//!  the server says first:   "TNSQ" 2 · nonce 16                             plain
//!  the caller answers:      "TNSQ" 2 · nonce 16 · feed 16 · role            as a frame of call 0
//!  the server ends that:    0 · log 16 · id u64, or 1 · reason              as a frame of call 0
//!
//!  role  1 MEMBER · id u64 · 0 u32 · log 16         2 COURIER · 0 u64 · source u32 · 0 16
//!        3 FOLLOWER · 0 u64 · source or 0 · 0 16    4 TOOL · 0 u64 · 0 u32 · 0 16
//!        5 SIGNALS · as 1
//! ```
//!
//! A server that refuses a caller says why, and ends the connection. One that does not know the caller's key cannot.
//!
//! The MAC covers, before the frame, both nonces, the direction, and how many frames went before in that direction. So a
//! frame that was recorded fits no other connection, and no other place in its own.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use toroni_proto::wire::{Keys, MAC_BYTES};

use crate::bytes::{Fields, TooShort};
use crate::entry::MAX_MEMBERS;

/// The greatest length of a frame, in bytes: a batch of the greatest length, or a snapshot, with room.
pub(crate) const MAX_FRAME_BYTES: usize = 2 << 20;
/// As long as the other end has not shown who it is.
const MAX_HELLO_BYTES: usize = 256;
/// The reason of a refusal is cut after this many bytes, so that it fits.
const MAX_REASON_BYTES: usize = 200;
/// The beginning of a connection may last this long.
pub(super) const HELLO_TIME: Duration = Duration::from_secs(2);
/// The second figure is the version of these messages.
const MAGIC: [u8; 5] = *b"TNSQ\x02";
const CONTEXT_BYTES: usize = 41;
const HEADER_BYTES: usize = 12;

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The length of a frame, which was checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length(pub(super) usize);

/// A frame before it has a place on a connection.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// Makes a frame of what `encode` appends, which is about this long. Its bytes are in memory once.
    pub(super) fn with(contents_bytes: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let around = CONTEXT_BYTES.saturating_add(HEADER_BYTES);
        let all = contents_bytes.saturating_add(around).saturating_add(MAC_BYTES);
        let mut bytes = Vec::with_capacity(all);
        bytes.resize(around, 0);
        encode(&mut bytes);
        Self(bytes)
    }

    /// Returns how many bytes it has, about.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }
}

/// A frame as it is written.
pub(super) struct Sealed(Vec<u8>);

impl Sealed {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0[CONTEXT_BYTES..]
    }
}

/// One direction of a connection: signs or checks its frames.
pub(super) struct Direction {
    keys: Option<Keys>,
    nonces: [u8; 32],
    from_server: bool,
    count: u64,
}

impl Direction {
    fn context(&mut self) -> [u8; CONTEXT_BYTES] {
        let mut context = [0; CONTEXT_BYTES];
        context[..32].copy_from_slice(&self.nonces);
        context[32] = u8::from(self.from_server);
        context[33..].copy_from_slice(&self.count.to_le_bytes());
        // Far fewer than 2^64: no code is the same twice.
        self.count = self.count.wrapping_add(1);
        context
    }

    /// Completes a frame, which has to be written next.
    pub(super) fn seal(&mut self, call: u64, Frame(mut bytes): Frame) -> io::Result<Sealed> {
        let code = if self.keys.is_some() { MAC_BYTES } else { 0 };
        let length = bytes.len().saturating_sub(CONTEXT_BYTES).saturating_add(code);
        if length > MAX_FRAME_BYTES {
            return Err(invalid("a frame would be too long"));
        }
        bytes[..CONTEXT_BYTES].copy_from_slice(&self.context());
        let head = &mut bytes[CONTEXT_BYTES..CONTEXT_BYTES + HEADER_BYTES];
        head[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        head[4..].copy_from_slice(&call.to_le_bytes());
        if let Some(keys) = &self.keys {
            let code = keys.sign(&bytes);
            bytes.extend(code);
        }
        Ok(Sealed(bytes))
    }

    /// Writes a frame.
    pub(super) async fn write(
        &mut self,
        to: &mut (impl AsyncWrite + Unpin),
        call: u64,
        contents: &[u8],
    ) -> io::Result<()> {
        let frame = Frame::with(contents.len(), |bytes| bytes.extend(contents));
        to.write_all(self.seal(call, frame)?.as_bytes()).await
    }

    /// Reads a frame: its call and its contents.
    pub(super) async fn read(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        limit: usize,
    ) -> io::Result<(u64, Vec<u8>)> {
        let length = self.read_length(from, limit).await?;
        self.read_rest(from, length).await
    }

    /// Reads the length of a frame, which has to be read next.
    pub(super) async fn read_length(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        limit: usize,
    ) -> io::Result<Length> {
        let mut head = [0; 4];
        from.read_exact(&mut head).await?;
        let length = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
        let code = if self.keys.is_some() { MAC_BYTES } else { 0 };
        if length.checked_sub(HEADER_BYTES).is_none_or(|rest| rest < code) || length > limit {
            return Err(invalid("a frame has an impossible length"));
        }
        Ok(Length(length))
    }

    /// Reads what follows the length of a frame: its call and its contents.
    pub(super) async fn read_rest(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        Length(length): Length,
    ) -> io::Result<(u64, Vec<u8>)> {
        let mut bytes = vec![0; length.saturating_add(CONTEXT_BYTES)];
        bytes[..CONTEXT_BYTES].copy_from_slice(&self.context());
        let head = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        bytes[CONTEXT_BYTES..CONTEXT_BYTES + 4].copy_from_slice(&head);
        from.read_exact(&mut bytes[CONTEXT_BYTES + 4..]).await?;
        if let Some(keys) = &self.keys
            && let Some((covered, code)) = bytes.split_last_chunk::<MAC_BYTES>()
        {
            if !keys.verify(covered, *code) {
                return Err(invalid("a frame has a wrong MAC"));
            }
            let covered = covered.len();
            bytes.truncate(covered);
        }
        let call = Fields::of(&bytes[CONTEXT_BYTES + 4..])
            .u64()
            .map_err(|_| invalid("a frame is too short"))?;
        bytes.drain(..CONTEXT_BYTES + HEADER_BYTES);
        Ok((call, bytes))
    }
}

/// Both directions: (to the other end, from it).
fn directions(
    keys: Option<&Keys>,
    server: [u8; 16],
    caller: [u8; 16],
    is_server: bool,
) -> (Direction, Direction) {
    let mut nonces = [0; 32];
    nonces[..16].copy_from_slice(&server);
    nonces[16..].copy_from_slice(&caller);
    let direction = |from_server| Direction { keys: keys.copied(), nonces, from_server, count: 0 };
    (direction(is_server), direction(!is_server))
}

/// Returns 16 random bytes.
fn nonce() -> io::Result<[u8; 16]> {
    // Opened once: a process that has no descriptor left can still begin a connection that it has.
    static RANDOM: OnceLock<File> = OnceLock::new();
    let mut random = match RANDOM.get() {
        Some(random) => random,
        None => {
            let opened = File::open("/dev/urandom")?;
            RANDOM.get_or_init(|| opened)
        }
    };
    let mut nonce = [0; 16];
    std::io::Read::read_exact(&mut random, &mut nonce)?;
    Ok(nonce)
}

/// Which member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The random id of its log.
    pub log: [u8; 16],
    /// Its id in the group.
    pub id: u64,
}

/// As what a connection is made. Each role has places of its own at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A member of the group, or one that is to become one.
    Member {
        /// Its id in the group, 0 to 7.
        id: u64,
        /// The random id of its log.
        log: [u8; 16],
    },
    /// The same, for what must not wait: votes, and how members are.
    Signals {
        /// Its id in the group, 0 to 7.
        id: u64,
        /// The random id of its log.
        log: [u8; 16],
    },
    /// The courier of a host's commands.
    Courier {
        /// The node.
        source: u32,
    },
    /// A follower of events, or an archive.
    Follower {
        /// The node, if it is part of one.
        source: Option<u32>,
    },
    /// A program that asks something, and ends within a minute.
    Tool,
}

/// Why the role of a caller is refused.
enum NoRole {
    /// It is none that a caller of this version would write.
    Malformed,
    /// It may be one of a later version.
    Unknown(u8),
    /// Members have other ids.
    Id(u64),
}

impl From<TooShort> for NoRole {
    fn from(TooShort: TooShort) -> Self {
        Self::Malformed
    }
}

impl Role {
    /// Returns the id and the log of a member, whatever it uses the connection for.
    pub(super) const fn member(self) -> Option<(u64, [u8; 16])> {
        match self {
            Self::Member { id, log } | Self::Signals { id, log } => Some((id, log)),
            Self::Courier { .. } | Self::Follower { .. } | Self::Tool => None,
        }
    }

    fn encode(self, to: &mut Vec<u8>) {
        let (kind, id, source, log) = match self {
            Self::Member { id, log } => (1, id, 0, log),
            Self::Signals { id, log } => (5, id, 0, log),
            Self::Courier { source } => (2, 0, source, [0; 16]),
            Self::Follower { source } => (3, 0, source.unwrap_or(0), [0; 16]),
            Self::Tool => (4, 0, 0, [0; 16]),
        };
        to.push(kind);
        to.extend(id.to_le_bytes());
        to.extend(source.to_le_bytes());
        to.extend(log);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, NoRole> {
        let (kind, id, source) = (fields.u8()?, fields.u64()?, fields.u32()?);
        let log: [u8; 16] = fields.array()?;
        let role = match kind {
            1 | 5 if id >= MAX_MEMBERS as u64 => return Err(NoRole::Id(id)),
            1 => Self::Member { id, log },
            5 => Self::Signals { id, log },
            2 => Self::Courier { source },
            3 => Self::Follower { source: (source != 0).then_some(source) },
            4 => Self::Tool,
            other => return Err(NoRole::Unknown(other)),
        };
        // What a role does not have is zeros.
        let (mut found, mut again) = (vec![kind], vec![]);
        found.extend(id.to_le_bytes());
        found.extend(source.to_le_bytes());
        found.extend(log);
        role.encode(&mut again);
        if found == again { Ok(role) } else { Err(NoRole::Malformed) }
    }
}

/// Why a connection does not begin.
#[derive(Debug)]
pub(super) enum NotBegun {
    /// The connection fails, or the other end is no sequencer that can be understood.
    Io(io::Error),
    /// The server says why it does not take the caller.
    Refused(String),
}

impl From<io::Error> for NotBegun {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Begins as the caller.
pub(super) async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    keys: Option<&Keys>,
    feed: [u8; 16],
    role: Role,
) -> Result<(Direction, Direction, Peer), NotBegun> {
    let mut challenge = [0; 21];
    stream.read_exact(&mut challenge).await?;
    let (magic, server) = challenge.split_at(5);
    if magic[..4] == MAGIC[..4] && magic != MAGIC {
        return Err(NotBegun::Io(invalid(format!(
            "the other end is of version {} of the sequencer's messages, and this one of version {}: run the same \
             version of toroni on all hosts",
            magic[4], MAGIC[4]
        ))));
    }
    if magic != MAGIC {
        return Err(NotBegun::Io(invalid("the other end is no sequencer")));
    }
    let (own, server) = (nonce()?, server.try_into().unwrap_or_default());
    let (mut to, mut back) = directions(keys, server, own, false);
    let mut hello = MAGIC.to_vec();
    hello.extend(own);
    hello.extend(feed);
    role.encode(&mut hello);
    // The server needs the nonce to check the frame it is in, so the nonce goes before it, too.
    stream.write_all(&own).await?;
    to.write(stream, 0, &hello).await?;
    let (_, welcome) = back.read(stream, MAX_HELLO_BYTES).await?;
    match peer(&welcome)? {
        Ok(peer) => Ok((to, back, peer)),
        Err(reason) => Err(NotBegun::Refused(reason)),
    }
}

/// Returns what the server says at the end of the beginning: who it is, or why it refuses the caller.
fn peer(welcome: &[u8]) -> io::Result<Result<Peer, String>> {
    let mut fields = Fields::of(welcome);
    let is_refusal = fields.u8();
    if is_refusal == Ok(1) {
        // Any bytes that a server sends may be shown at a terminal.
        let reason = String::from_utf8_lossy(fields.rest());
        return Ok(Err(reason.chars().filter(|letter| !letter.is_control()).collect()));
    }
    match (is_refusal, fields.array(), fields.u64()) {
        (Ok(0), Ok(log), Ok(id)) if fields.rest().is_empty() => Ok(Ok(Peer { log, id })),
        _ => Err(invalid("the other end's welcome is none")),
    }
}

/// A caller that has shown who it is, and does not know yet whether it is taken.
pub(super) struct Begun {
    /// To the caller.
    pub(super) to: Direction,
    /// From the caller.
    pub(super) back: Direction,
    /// As what it calls.
    pub(super) role: Role,
}

/// Begins as the server. A caller that cannot be served is refused.
pub(super) async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    keys: Option<&Keys>,
    feed: [u8; 16],
) -> io::Result<Begun> {
    let server = nonce()?;
    let mut challenge = MAGIC.to_vec();
    challenge.extend(server);
    stream.write_all(&challenge).await?;
    let mut caller = [0; 16];
    stream.read_exact(&mut caller).await?;
    let (mut to, mut back) = directions(keys, server, caller, true);
    let (_, hello) = back.read(stream, MAX_HELLO_BYTES).await?;
    let mut fields = Fields::of(&hello);
    let read = || invalid("a caller's hello is none");
    let magic: [u8; 5] = fields.array().map_err(|_| read())?;
    let again: [u8; 16] = fields.array().map_err(|_| read())?;
    let wanted: [u8; 16] = fields.array().map_err(|_| read())?;
    let role = Role::decode(&mut fields);
    if magic != MAGIC || again != caller || !fields.rest().is_empty() {
        return Err(read());
    }
    let why = match role {
        _ if wanted != feed => "this is a member of another feed".to_owned(),
        Ok(role) => return Ok(Begun { to, back, role }),
        Err(NoRole::Malformed) => return Err(read()),
        Err(NoRole::Unknown(role)) => format!("the role {role} is unknown here"),
        Err(NoRole::Id(id)) => format!("a member's id is 0 to 7, not {id}"),
    };
    refuse(stream, &mut to, &why).await?;
    Err(invalid(why))
}

/// Ends the beginning as the server: the caller is taken.
pub(super) async fn welcome(
    stream: &mut (impl AsyncWrite + Unpin),
    to: &mut Direction,
    own: Peer,
) -> io::Result<()> {
    let mut welcome = vec![0];
    welcome.extend(own.log);
    welcome.extend(own.id.to_le_bytes());
    to.write(stream, 0, &welcome).await
}

/// Ends the beginning as the server: the caller is not taken, for this reason.
pub(super) async fn refuse(
    stream: &mut (impl AsyncWrite + Unpin),
    to: &mut Direction,
    reason: &str,
) -> io::Result<()> {
    let mut length = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(length) {
        length = length.saturating_sub(1);
    }
    let mut refusal = vec![1];
    refusal.extend(&reason.as_bytes()[..length]);
    to.write(stream, 0, &refusal).await?;
    // So that it arrives although the connection ends with bytes that were not read.
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_one_encoding() {
        let roles = [
            Role::Member { id: 7, log: [3; 16] },
            Role::Signals { id: 7, log: [3; 16] },
            Role::Courier { source: 9 },
            Role::Follower { source: Some(9) },
            Role::Follower { source: None },
            Role::Tool,
        ];
        for role in roles {
            let mut bytes = vec![];
            role.encode(&mut bytes);
            assert!(matches!(Role::decode(&mut Fields::of(&bytes)), Ok(found) if found == role));
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x40;
                if let Ok(found) = Role::decode(&mut Fields::of(&other)) {
                    let mut again = vec![];
                    found.encode(&mut again);
                    assert_eq!(again, other);
                }
            }
            assert!(Role::decode(&mut Fields::of(&bytes[1..])).is_err());
        }
        let member = |id: u64| {
            let mut bytes = vec![1];
            bytes.extend(id.to_le_bytes());
            bytes.extend([0; 20]);
            Role::decode(&mut Fields::of(&bytes))
        };
        assert!(member(7).is_ok());
        assert!(matches!(member(8), Err(NoRole::Id(8))));
    }
}
