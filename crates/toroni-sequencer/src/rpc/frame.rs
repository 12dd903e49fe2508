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
//!  the caller answers:      "TNSQ" 2 · nonce 16 · feed 16 · from u64        as a frame of call 0
//!  the server ends that:    log 16 · id u64                                 as a frame of call 0
//! ```
//!
//! The MAC covers, before the frame, both nonces, the direction, and how many frames went before in that direction. So a
//! frame that was recorded fits no other connection, and no other place in its own.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use toroni_proto::wire::{Keys, MAC_BYTES};

use crate::bytes::Fields;

/// The greatest length of a frame, in bytes: a batch of the greatest length, or a snapshot, with room.
pub(crate) const MAX_FRAME_BYTES: usize = 2 << 20;
/// As long as the other end has not shown who it is.
const MAX_HELLO_BYTES: usize = 256;
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
    use std::io::Read;
    let mut nonce = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut nonce)?;
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

/// Begins as the caller.
pub(super) async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    keys: Option<&Keys>,
    feed: [u8; 16],
    from: u64,
) -> io::Result<(Direction, Direction, Peer)> {
    let mut challenge = [0; 21];
    stream.read_exact(&mut challenge).await?;
    let (magic, server) = challenge.split_at(5);
    if magic[..4] == MAGIC[..4] && magic != MAGIC {
        return Err(invalid(format!(
            "the other end is of version {} of the sequencer's messages, and this one of version {}: run the same \
             version of toroni on all hosts",
            magic[4], MAGIC[4]
        )));
    }
    if magic != MAGIC {
        return Err(invalid("the other end is no sequencer"));
    }
    let (own, server) = (nonce()?, server.try_into().unwrap_or_default());
    let (mut to, mut back) = directions(keys, server, own, false);
    let mut hello = MAGIC.to_vec();
    hello.extend(own);
    hello.extend(feed);
    hello.extend(from.to_le_bytes());
    // The server needs the nonce to check the frame it is in, so the nonce goes before it, too.
    stream.write_all(&own).await?;
    to.write(stream, 0, &hello).await?;
    let (_, welcome) = back.read(stream, MAX_HELLO_BYTES).await?;
    let mut fields = Fields::of(&welcome);
    let (log, id) = (fields.array(), fields.u64());
    match (log, id) {
        (Ok(log), Ok(id)) if fields.rest().is_empty() => Ok((to, back, Peer { log, id })),
        _ => Err(invalid("the other end's welcome is none")),
    }
}

/// Begins as the server. Returns who calls.
pub(super) async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    keys: Option<&Keys>,
    feed: [u8; 16],
    own: Peer,
) -> io::Result<(Direction, Direction, u64)> {
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
    let from = fields.u64().map_err(|_| read())?;
    if magic != MAGIC || again != caller || !fields.rest().is_empty() {
        return Err(read());
    }
    if wanted != feed {
        return Err(invalid("a caller wants another feed"));
    }
    let mut welcome = own.log.to_vec();
    welcome.extend(own.id.to_le_bytes());
    to.write(stream, 0, &welcome).await?;
    Ok((to, back, from))
}
