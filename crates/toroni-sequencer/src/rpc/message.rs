//! What members, and nodes, ask a member, and what it answers.
//!
//! ```text
//!  request  kind u8 · contents                     answer  kind u8 · contents
//!  1 APPEND    vote · previous · commit · count    1 APPENDED   what u8 (0 all, 1 part, 2 conflict, 3 higher vote, 4 no
//!              u32 · each: length u32, entry                    room) · [place] · [vote]
//!  2 VOTE      vote · last                         2 VOTED      vote · granted u8 · last
//!  3 SNAPSHOT  vote · snapshot                     3 INSTALLED  vote
//!  4 SUBMIT    batch                               4 OUTCOMES   count u32 · each: what u8, number u64
//!  5 SOURCE    source u32                          5 SOURCE     known u8 · bus 16 · session u32 · series u32 · next u64
//!  6 STATUS                                        6 STATUS     see status.rs
//!  7 DIGEST    number u64                          7 DIGEST     known u8 · digest 32
//!  8 INIT      members                             8 DONE
//!  13 CONFIRM                                      13 CONFIRMED term u64
//!  14 PEER     see peer.rs                         14 PEER      see peer.rs
//!  15 PROBE    last                                15 PROBED    yes u8 · last
//!  18 SOURCES  from u32                            18 SOURCES   count u32 · each: source u32 · bus 16 · session u32 ·
//!                                                               series u32 · next u64 · last event + 1, or 0, u64 · released u8 ·
//!                                                               address: u8 and bytes
//!  19 RELEASE  source u32                          19 REFUSED   reason
//!  20 REMOVE   source u32
//!                                                  9 NOT LEADER known u8 · leader u64 · address
//!                                                  10 FAILED    reason
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;

use super::fetch::{Fetch, Fetched};
use super::peer::{PeerState, decode_shown, encode_shown};
use super::status::Status;
use crate::batch::Batch;
use crate::bytes::{Fields, TooShort};
use crate::entry::{Entry, EntryError, Members, Place, Reach, Vote, decode_text, encode_text};
use crate::machine::{Outcome, Refusal};

/// A request to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A leader has entries, or lives.
    Append {
        /// The leader's vote.
        vote: Vote,
        /// The place before the first entry.
        previous: Option<Place>,
        /// What the leader knows as committed.
        commit: Option<Place>,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// A candidate wants to lead.
    Vote {
        /// The candidate's vote.
        vote: Vote,
        /// The end of its log.
        last: Option<Place>,
    },
    /// A snapshot stands for entries that the leader no longer has.
    Snapshot {
        /// The leader's vote.
        vote: Vote,
        /// The snapshot.
        bytes: Arc<[u8]>,
    },
    /// Commands, as the bytes of a batch.
    Submit(Arc<[u8]>),
    /// What the order knows of a source.
    Source(u32),
    /// To the leader: the sources from this number on, as many as it likes.
    Sources(u32),
    /// To the leader: the next OPEN of this source may bring any bus.
    ReleaseSource(u32),
    /// To the leader: this source is gone for good.
    RemoveSource(u32),
    /// How the member is.
    Status,
    /// Have a majority confirm that the member leads.
    Confirm,
    /// How the member that asks is, and how are you? Answered at once, whatever the disk does.
    Peer(PeerState),
    /// Would you vote for the member that asks, whose log ends here? Changes nothing.
    Probe(Option<Place>),
    /// The digest after this event.
    Digest(u64),
    /// Begin a group of these members.
    Init(Members),
    /// Events by number.
    Fetch(Fetch),
    /// The state of the machine of before the first event that the member has.
    State,
    /// To the leader: take a member into the group. It votes when it has the log.
    Add {
        /// Its name.
        name: String,
        /// The address and port of its messages. Its id and its log are asked for there.
        address: String,
    },
    /// To the leader: the member of this name does not belong to the group any more.
    Remove(String),
    /// To the leader: let the member of this name lead.
    HandOver(String),
    /// From the leader: it takes no more commands and shows no life. Have yourself elected.
    TakeOver {
        /// The leader's vote.
        vote: Vote,
        /// The end of its log.
        last: Option<Place>,
    },
}

/// An answer of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an append.
    Appended(Appended),
    /// To a vote.
    Voted {
        /// The vote of the member now.
        vote: Vote,
        /// Whether the candidate has it.
        granted: bool,
        /// The end of the member's log.
        last: Option<Place>,
    },
    /// To a snapshot: the vote of the member now.
    Installed(Vote),
    /// What became of each command.
    Outcomes(Vec<Outcome>),
    /// What is known of the source.
    Source(Option<SourceState>),
    /// Sources, by their numbers. None if there are no more.
    Sources(Vec<SourceInfo>),
    /// The commands are refused for this reason, until something else has changed.
    Refused(String),
    /// How the member is.
    Status(Box<Status>),
    /// A majority has confirmed, after the request came, that the member leads in this term.
    Confirmed(u64),
    /// How the member is, and how far earlier lives of the log that asks had come, as it has shown itself.
    Peer(PeerState, Option<Reach>),
    /// Whether the member would vote for the one that asks.
    Probed {
        /// Whether it would.
        yes: bool,
        /// The end of the member's log.
        last: Option<Place>,
    },
    /// The digest, if the member keeps it.
    Digest(Option<[u8; 32]>),
    /// It is done.
    Done,
    /// Another member leads, or none.
    NotLeader(Option<(u64, String)>),
    /// It could not be done, for this reason.
    Failed(String),
    /// Events, and how far they reach.
    Fetched(Fetched),
    /// A snapshot of the machine, if the member has it.
    State(Option<Arc<[u8]>>),
}

/// What became of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// All entries are in the log.
    All,
    /// The entries up to this one are.
    Part(Option<Place>),
    /// The place before the first entry is not in the log.
    Conflict,
    /// The member has promised to follow another.
    Higher(Vote),
    /// The disk is full.
    NoRoom,
}

/// What the order knows of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceState {
    /// The command bus whose series is open.
    pub bus: [u8; 16],
    /// The life of the node that opened it.
    pub session: u32,
    /// The series.
    pub series: u32,
    /// The number that is wanted next.
    pub next: u64,
}

/// A source of the order, for those who look after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Its number.
    pub source: u32,
    /// What the order knows of it.
    pub state: SourceState,
    /// Its last event, if that is known.
    pub last: Option<u64>,
    /// Whether its next OPEN may bring any bus.
    pub is_released: bool,
    /// The address of its courier, if that is connected with the leader.
    pub address: Option<String>,
}

/// Appends a number that there may be: 1 + u64.
pub(super) fn encode_number(number: Option<u64>, to: &mut Vec<u8>) {
    to.push(u8::from(number.is_some()));
    to.extend(number.unwrap_or(0).to_le_bytes());
}

pub(super) fn decode_number(fields: &mut Fields<'_>) -> Result<Option<u64>, EntryError> {
    match (fields.u8()?, fields.u64()?) {
        (0, 0) => Ok(None),
        (1, number) => Ok(Some(number)),
        _ => Err(EntryError::Impossible),
    }
}

/// Returns flags as the bits of a byte, the first one as the lowest.
pub(super) fn encode_flags<const N: usize>(flags: [bool; N]) -> u8 {
    (0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum()
}

pub(super) fn decode_flags<const N: usize>(byte: u8) -> Result<[bool; N], EntryError> {
    let flags = std::array::from_fn(|bit| byte & 1 << bit != 0);
    if encode_flags(flags) == byte { Ok(flags) } else { Err(EntryError::Impossible) }
}

fn optional<T>(there_is: u8, value: T) -> Result<Option<T>, EntryError> {
    match there_is {
        0 => Ok(None),
        1 => Ok(Some(value)),
        _ => Err(EntryError::Impossible),
    }
}

fn text(fields: &mut Fields<'_>) -> Result<String, EntryError> {
    let bytes = fields.take(fields.rest().len())?;
    str::from_utf8(bytes).map(str::to_owned).map_err(|_| EntryError::Impossible)
}

fn size(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn usize_of(fields: &mut Fields<'_>) -> Result<usize, TooShort> {
    fields.u32().map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

impl SourceState {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.bus);
        to.extend(self.session.to_le_bytes());
        to.extend(self.series.to_le_bytes());
        to.extend(self.next.to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, TooShort> {
        Ok(Self {
            bus: fields.array()?,
            session: fields.u32()?,
            series: fields.u32()?,
            next: fields.u64()?,
        })
    }
}

impl SourceInfo {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.source.to_le_bytes());
        self.state.encode(to);
        to.extend(self.last.map_or(0, |last| last.saturating_add(1)).to_le_bytes());
        to.push(u8::from(self.is_released));
        encode_text(self.address.as_deref().unwrap_or_default(), to);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, EntryError> {
        let (source, state) = (fields.u32()?, SourceState::decode(fields)?);
        let (last, released) = (fields.u64()?.checked_sub(1), fields.u8()?);
        let is_released = optional(released, ())?.is_some();
        let address = Some(decode_text(fields)?).filter(|address| !address.is_empty());
        Ok(Self { source, state, last, is_released, address })
    }
}

impl Request {
    /// Appends the encoding.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Append { vote, previous, commit, entries } => {
                to.push(1);
                vote.encode(to);
                Place::encode_option(*previous, to);
                Place::encode_option(*commit, to);
                to.extend(size(entries.len()));
                for entry in entries {
                    let at = to.len();
                    to.extend([0; 4]);
                    entry.encode(to);
                    if let Some((length, entry)) = to[at..].split_first_chunk_mut::<4>() {
                        *length = size(entry.len());
                    }
                }
            }
            Self::Vote { vote, last } => {
                to.push(2);
                vote.encode(to);
                Place::encode_option(*last, to);
            }
            Self::Snapshot { vote, bytes } => {
                to.push(3);
                vote.encode(to);
                to.extend(&**bytes);
            }
            Self::Submit(bytes) => {
                to.push(4);
                to.extend(&**bytes);
            }
            Self::Source(source) => {
                to.push(5);
                to.extend(source.to_le_bytes());
            }
            Self::Sources(from) => {
                to.push(18);
                to.extend(from.to_le_bytes());
            }
            Self::ReleaseSource(source) => {
                to.push(19);
                to.extend(source.to_le_bytes());
            }
            Self::RemoveSource(source) => {
                to.push(20);
                to.extend(source.to_le_bytes());
            }
            Self::Status => to.push(6),
            Self::Confirm => to.push(13),
            Self::Peer(state) => {
                to.push(14);
                state.encode(to);
            }
            Self::Probe(last) => {
                to.push(15);
                Place::encode_option(*last, to);
            }
            Self::Digest(number) => {
                to.push(7);
                to.extend(number.to_le_bytes());
            }
            Self::Init(members) => {
                to.push(8);
                members.encode(to);
            }
            Self::Fetch(fetch) => {
                to.push(16);
                fetch.encode(to);
            }
            Self::State => to.push(17),
            Self::Add { name, address } => {
                to.push(9);
                encode_text(name, to);
                to.extend(address.as_bytes());
            }
            Self::Remove(name) => {
                to.push(10);
                to.extend(name.as_bytes());
            }
            Self::HandOver(name) => {
                to.push(11);
                to.extend(name.as_bytes());
            }
            Self::TakeOver { vote, last } => {
                to.push(12);
                vote.encode(to);
                Place::encode_option(*last, to);
            }
        }
    }

    /// Reads a request from bytes of any origin.
    ///
    /// # Errors
    ///
    /// If [`Request::encode`] would not have written them.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let mut fields = Fields::of(bytes);
        let request = match fields.u8()? {
            1 => {
                let vote = Vote::decode(&mut fields)?;
                let (previous, commit) =
                    (Place::decode_option(&mut fields)?, Place::decode_option(&mut fields)?);
                let mut entries = vec![];
                for _ in 0..fields.u32()? {
                    let length = usize_of(&mut fields)?;
                    entries.push(Entry::decode(fields.take(length)?)?);
                }
                Self::Append { vote, previous, commit, entries }
            }
            2 => Self::Vote {
                vote: Vote::decode(&mut fields)?,
                last: Place::decode_option(&mut fields)?,
            },
            3 => {
                let vote = Vote::decode(&mut fields)?;
                Self::Snapshot { vote, bytes: fields.take(fields.rest().len())?.into() }
            }
            4 => {
                let bytes = fields.take(fields.rest().len())?;
                Batch::check(bytes)?;
                Self::Submit(bytes.into())
            }
            5 => Self::Source(fields.u32()?),
            18 => Self::Sources(fields.u32()?),
            19 => Self::ReleaseSource(fields.u32()?),
            20 => Self::RemoveSource(fields.u32()?),
            6 => Self::Status,
            13 => Self::Confirm,
            14 => Self::Peer(PeerState::decode(&mut fields)?),
            15 => Self::Probe(Place::decode_option(&mut fields)?),
            7 => Self::Digest(fields.u64()?),
            8 => Self::Init(Members::decode(&mut fields)?),
            16 => Self::Fetch(Fetch::decode(&mut fields)?),
            17 => Self::State,
            9 => Self::Add { name: decode_text(&mut fields)?, address: text(&mut fields)? },
            10 => Self::Remove(text(&mut fields)?),
            11 => Self::HandOver(text(&mut fields)?),
            12 => Self::TakeOver {
                vote: Vote::decode(&mut fields)?,
                last: Place::decode_option(&mut fields)?,
            },
            _ => return Err(EntryError::Impossible),
        };
        if fields.rest().is_empty() { Ok(request) } else { Err(EntryError::Impossible) }
    }
}

impl Answer {
    /// Appends the encoding.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Appended(appended) => {
                to.push(1);
                match appended {
                    Appended::All => to.push(0),
                    Appended::Part(place) => {
                        to.push(1);
                        Place::encode_option(*place, to);
                    }
                    Appended::Conflict => to.push(2),
                    Appended::Higher(vote) => {
                        to.push(3);
                        vote.encode(to);
                    }
                    Appended::NoRoom => to.push(4),
                }
            }
            Self::Voted { vote, granted, last } => {
                to.push(2);
                vote.encode(to);
                to.push(u8::from(*granted));
                Place::encode_option(*last, to);
            }
            Self::Installed(vote) => {
                to.push(3);
                vote.encode(to);
            }
            Self::Outcomes(outcomes) => {
                to.push(4);
                to.extend(size(outcomes.len()));
                for outcome in outcomes {
                    let (what, number) = encode_outcome(*outcome);
                    to.push(what);
                    to.extend(number.to_le_bytes());
                }
            }
            Self::Source(source) => {
                to.extend([5, u8::from(source.is_some())]);
                if let Some(state) = source {
                    state.encode(to);
                }
            }
            Self::Sources(sources) => {
                to.push(18);
                to.extend(size(sources.len()));
                sources.iter().for_each(|source| source.encode(to));
            }
            Self::Refused(reason) => {
                to.push(19);
                to.extend(reason.as_bytes());
            }
            Self::Status(status) => {
                to.push(6);
                status.encode(to);
            }
            Self::Confirmed(term) => {
                to.push(13);
                to.extend(term.to_le_bytes());
            }
            Self::Peer(state, shown) => {
                to.push(14);
                state.encode(to);
                encode_shown(*shown, to);
            }
            Self::Probed { yes, last } => {
                to.extend([15, u8::from(*yes)]);
                Place::encode_option(*last, to);
            }
            Self::Digest(digest) => {
                to.extend([7, u8::from(digest.is_some())]);
                to.extend(digest.unwrap_or_default());
            }
            Self::Done => to.push(8),
            Self::NotLeader(leader) => {
                to.extend([9, u8::from(leader.is_some())]);
                if let Some((id, address)) = leader {
                    to.extend(id.to_le_bytes());
                    to.extend(address.as_bytes());
                }
            }
            Self::Failed(reason) => {
                to.push(10);
                to.extend(reason.as_bytes());
            }
            Self::State(state) => {
                to.extend([17, u8::from(state.is_some())]);
                to.extend(state.as_deref().unwrap_or_default());
            }
            Self::Fetched(fetched) => {
                to.push(16);
                fetched.encode(to);
            }
        }
    }

    /// Reads an answer from bytes of any origin.
    ///
    /// # Errors
    ///
    /// If [`Answer::encode`] would not have written them.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let mut fields = Fields::of(bytes);
        let answer = match fields.u8()? {
            1 => Self::Appended(match fields.u8()? {
                0 => Appended::All,
                1 => Appended::Part(Place::decode_option(&mut fields)?),
                2 => Appended::Conflict,
                3 => Appended::Higher(Vote::decode(&mut fields)?),
                4 => Appended::NoRoom,
                _ => return Err(EntryError::Impossible),
            }),
            2 => Self::Voted {
                vote: Vote::decode(&mut fields)?,
                granted: optional(fields.u8()?, ())?.is_some(),
                last: Place::decode_option(&mut fields)?,
            },
            3 => Self::Installed(Vote::decode(&mut fields)?),
            4 => {
                let mut outcomes = vec![];
                for _ in 0..fields.u32()? {
                    outcomes.push(decode_outcome(fields.u8()?, fields.u64()?)?);
                }
                Self::Outcomes(outcomes)
            }
            5 => Self::Source(match fields.u8()? {
                0 => None,
                there_is => optional(there_is, SourceState::decode(&mut fields)?)?,
            }),
            18 => {
                let mut sources = vec![];
                for _ in 0..fields.u32()? {
                    sources.push(SourceInfo::decode(&mut fields)?);
                }
                Self::Sources(sources)
            }
            19 => Self::Refused(text(&mut fields)?),
            6 => Self::Status(Box::new(Status::decode(&mut fields)?)),
            13 => Self::Confirmed(fields.u64()?),
            14 => {
                let state = PeerState::decode(&mut fields)?;
                Self::Peer(state, decode_shown(&mut fields)?)
            }
            15 => Self::Probed {
                yes: optional(fields.u8()?, ())?.is_some(),
                last: Place::decode_option(&mut fields)?,
            },
            7 => Self::Digest(match (fields.u8()?, fields.array()?) {
                (0, digest) if digest == [0; 32] => None,
                (1, digest) => Some(digest),
                _ => return Err(EntryError::Impossible),
            }),
            8 => Self::Done,
            9 => Self::NotLeader(match fields.u8()? {
                0 => None,
                there_is => optional(there_is, (fields.u64()?, text(&mut fields)?))?,
            }),
            10 => Self::Failed(text(&mut fields)?),
            16 => Self::Fetched(Fetched::decode(&mut fields)?),
            17 => match fields.u8()? {
                0 => Self::State(None),
                1 => Self::State(Some(fields.take(fields.rest().len())?.into())),
                _ => return Err(EntryError::Impossible),
            },
            _ => return Err(EntryError::Impossible),
        };
        if fields.rest().is_empty() { Ok(answer) } else { Err(EntryError::Impossible) }
    }
}

fn encode_outcome(outcome: Outcome) -> (u8, u64) {
    match outcome {
        Outcome::Sequenced(number) => (0, number),
        Outcome::Duplicate => (1, 0),
        Outcome::Refused(Refusal::Wanted(number)) => (2, number),
        Outcome::Refused(Refusal::NotOpen) => (3, 0),
        Outcome::Refused(Refusal::Closed) => (4, 0),
        Outcome::Refused(Refusal::Session(session)) => (5, u64::from(session)),
        Outcome::Refused(Refusal::TooManySources) => (6, 0),
        Outcome::Refused(Refusal::FeedSeries(series)) => (7, u64::from(series)),
        Outcome::Refused(Refusal::OtherHost) => (8, 0),
    }
}

fn decode_outcome(what: u8, number: u64) -> Result<Outcome, EntryError> {
    let small = || u32::try_from(number).map_err(|_| EntryError::Impossible);
    let outcome = match what {
        0 => Outcome::Sequenced(number),
        1 => Outcome::Duplicate,
        2 => Outcome::Refused(Refusal::Wanted(number)),
        3 => Outcome::Refused(Refusal::NotOpen),
        4 => Outcome::Refused(Refusal::Closed),
        5 => Outcome::Refused(Refusal::Session(small()?)),
        6 => Outcome::Refused(Refusal::TooManySources),
        7 => Outcome::Refused(Refusal::FeedSeries(small()?)),
        8 => Outcome::Refused(Refusal::OtherHost),
        _ => return Err(EntryError::Impossible),
    };
    // What has no number has a zero there.
    if encode_outcome(outcome) == (what, number) {
        Ok(outcome)
    } else {
        Err(EntryError::Impossible)
    }
}
