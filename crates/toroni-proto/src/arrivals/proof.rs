//! Proof: whether a session that was heard lives, or is a recording.
//!
//! ```text
//!   datagram of a session that is not followed ──► candidate ── STATUS new, nonce ──► its sender
//!   SESSION, sent after the ECHO ──► followed  ◄── proven ◄───── ECHO with the nonce ◄──┘
//! ```
//!
//! In a realm with a key a stranger can send nothing of its own, but it can repeat what it has recorded, from any address. So a
//! session is followed once it has repeated a nonce that this process has drawn. Until then its DATA are held as while a
//! receiver joins, and nothing else of it counts.

use crate::id::{Session, Source, Stream};
use crate::legs::Path;
use crate::receiver::Receiver;
use crate::time::{MILLISECOND, Monotonic, SECOND, Wall};
use crate::wire::{Echo, Header, Receiver as Id};

/// A nonce is valid in the epoch in which it was drawn, and in the next one.
const EPOCH_NS: u64 = 4 * SECOND;
/// A candidate gives way to another session after this time.
const CANDIDATE_NS: u64 = 200 * MILLISECOND;
/// The longest SESSION: header and fields, 8 legs and 4 repairers, a name, a MAC.
const SESSION_BYTES: usize = 144 + 12 * 18 + 64 + 16;
/// How many questions a second go to sources of which nothing is known.
const ASKS: u32 = 100;

/// The nonces of a process. Nothing is kept for any of them, so that recordings cost no memory.
///
/// They must be new, not secret: only a member can sign an ECHO, and it repeats only what a signed STATUS has asked. So that an
/// ECHO that has made a session be followed is of no use a second time, each nonce is also of a `question`, which changes then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nonces([u8; 32]);

impl Nonces {
    /// Those of a process, which has drawn its `instance`.
    pub(super) fn new(me: Id, instance: &[u8; 16]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("toroni nonces");
        hasher.update(instance).update(&me.source.0.to_le_bytes());
        Self(*hasher.update(&me.session.0.to_le_bytes()).finalize().as_bytes())
    }

    /// Returns the nonce for a session. It is not 0.
    pub(super) fn draw(
        &self,
        now: Monotonic,
        question: u64,
        source: Source,
        stream: Stream,
        session: Session,
    ) -> u64 {
        self.of([now.ns() / EPOCH_NS, question], source, stream, session)
    }

    /// Whether a session has repeated its nonce.
    pub(super) fn is_repeated(
        &self,
        now: Monotonic,
        question: u64,
        header: &Header,
        echo: &Echo<'_>,
    ) -> bool {
        let epoch = now.ns() / EPOCH_NS;
        let of = |epoch| self.of([epoch, question], header.source, header.stream, header.session);
        let valid = [of(epoch), of(epoch.saturating_sub(1))];
        echo.nonces().any(|nonce| valid.contains(&nonce))
    }

    fn of(&self, asked: [u64; 2], source: Source, stream: Stream, session: Session) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for word in asked {
            hasher.update(&word.to_le_bytes());
        }
        hasher.update(&source.0.to_le_bytes());
        hasher.update(&stream.0.to_le_bytes()).update(&session.0.to_le_bytes());
        let mut nonce = [0; 8];
        hasher.finalize_xof().fill(&mut nonce);
        u64::from_le_bytes(nonce).max(1)
    }
}

/// The bytes of a SESSION, with its MAC.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: [u8; SESSION_BYTES],
    length: usize,
}

impl Kept {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A session that was heard and is not followed, because it has not shown that it lives.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) session: Session,
    pub(super) receiver: Box<Receiver>,
    since: Monotonic,
    /// When it has repeated the nonce, by its own clock. A SESSION that was sent later is its present state.
    proven: Option<Wall>,
    /// Its last SESSION: when it was sent, and how it came. It may come before the ECHO.
    last: Option<(Wall, Path, Kept)>,
}

impl Candidate {
    pub(super) const fn new(now: Monotonic, session: Session, receiver: Box<Receiver>) -> Self {
        Self { session, receiver, since: now, proven: None, last: None }
    }

    /// Whether another session may take its place.
    pub(super) const fn gives_way(&self, now: Monotonic) -> bool {
        now.since(self.since) >= CANDIDATE_NS
    }

    pub(super) const fn is_proven(&self) -> bool {
        self.proven.is_some()
    }

    /// It has repeated the nonce.
    pub(super) fn prove(&mut self, sent: Wall) {
        self.proven = self.proven.max(Some(sent));
    }

    /// Keeps its last SESSION.
    pub(super) fn keep(&mut self, from: Path, sent: Wall, bytes: &[u8]) {
        let mut kept = Kept { bytes: [0; SESSION_BYTES], length: bytes.len() };
        if let Some(copy) = kept.bytes.get_mut(..bytes.len()) {
            copy.copy_from_slice(bytes);
            self.last = Some((sent, from, kept));
        }
    }

    /// Whether it lives, and its last SESSION is its present state.
    pub(super) fn is_present(&self) -> bool {
        let sent = self.last.as_ref().map(|(sent, ..)| *sent);
        self.proven.is_some() && sent > self.proven
    }

    /// Returns its receiver, and its last SESSION.
    pub(super) fn into_parts(self) -> (Box<Receiver>, Option<(Path, Kept)>) {
        (self.receiver, self.last.map(|(_, from, kept)| (from, kept)))
    }

    pub(super) fn postpone(&mut self, by_ns: u64) {
        self.since = self.since.after(by_ns);
        self.receiver.postpone(by_ns);
    }
}

/// Limits how often sources are asked of which nothing is known.
#[derive(Debug, Default)]
pub(super) struct Asks {
    second: u64,
    count: u32,
}

impl Asks {
    /// Returns whether one more may be asked now.
    pub(super) const fn take(&mut self, now: Monotonic) -> bool {
        let second = now.ns() / SECOND;
        if self.second != second {
            (self.second, self.count) = (second, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= ASKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::samples;
    use crate::wire::{Body, Datagram};

    const ME: Id = Id { source: Source(1), session: Session(2) };

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(ms * MILLISECOND)
    }

    /// Whether the nonces of `who` hold that this one is repeated at a time.
    fn is_repeated(who: &Nonces, nonce: u64, ms: u64) -> bool {
        let mut buffer = [0; 200];
        let header = samples::header(1);
        let sent = Wall::from_ns(1);
        let (length, _) = Echo::encode(&header, sent, [7, nonce], None, &mut buffer).unwrap();
        let Datagram { header, body: Body::Echo(echo) } =
            samples::parse(&buffer[..length]).unwrap()
        else {
            panic!()
        };
        who.is_repeated(at(ms), 1, &header, &echo)
    }

    #[test]
    fn a_nonce_is_of_one_process_one_session_and_a_few_seconds() {
        let nonces = Nonces::new(ME, &[1; 16]);
        let Header { source, stream, session, .. } = samples::header(1);
        let nonce = nonces.draw(at(9_000), 1, source, stream, session);
        assert!(is_repeated(&nonces, nonce, 9_000) && is_repeated(&nonces, nonce, 15_999));
        assert!(!is_repeated(&nonces, nonce, 16_000), "two epochs later");
        assert!(!is_repeated(&Nonces::new(ME, &[2; 16]), nonce, 9_000), "another process");
        let other = nonces.draw(at(9_000), 1, source, stream, Session(9));
        assert!(!is_repeated(&nonces, other, 9_000), "another session");
        let other = nonces.draw(at(9_000), 0, source, stream, session);
        assert!(!is_repeated(&nonces, other, 9_000), "an earlier question");
    }

    #[test]
    fn strangers_are_asked_a_hundred_times_a_second() {
        let mut asks = Asks::default();
        let asked = (0..2_000).filter(|ms| asks.take(at(*ms))).count();
        assert_eq!(asked, 200);
    }
}
