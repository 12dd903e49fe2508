//! What inlets bring, and the calls that bring it.

use super::shortage::may_wait_for_ever;
use super::state::{Note, State};
use super::writers::{TIMEOUT, topics};
use std::collections::BTreeMap;
use toroni::{
    Arrived, Bus, Entry, Inlet, InletTopic, Limit, Lost, LostBound, LostReason, Origin, Pattern,
    PublishError, StreamKey,
};
use toroni_oracle::{Arrival, Bringer, Cargo, NUMBER_LIMIT, StreamName, body, record_bytes};

/// Streams that the bus keeps track of: fewer than there are.
pub(super) const MOST_STREAMS: u8 = 6;
/// What a message has at most before its payload.
const MOST_EXTENSIONS: u64 = 8 + 16 + 8 + 256;
/// What losses may concern.
const SCOPES: [&[&str]; 7] = [
    &["**"],
    &["a/**"],
    &["plant/boiler/*", "x"],
    &["a/b"],
    &["*/boiler/**"],
    &["long/**"],
    &["y"],
];

/// An inlet with its topics.
pub(super) struct Bridge {
    pub(super) name: String,
    pub(super) id: Bringer,
    pub(super) inlet: Inlet,
    pub(super) topics: BTreeMap<usize, BridgeTopic>,
    pub(super) duplicates: u64,
    /// Records that it published, and their bytes in the stream.
    pub(super) counts: (u64, u64),
}

pub(super) struct BridgeTopic {
    pub(super) topic: InletTopic,
    /// Whether the name travels with each message. Not known before the operation that made it has ended.
    pub(super) is_inline: Option<bool>,
}

/// A message or a loss that is to be brought, or a question, which writes nothing.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) stream: StreamName,
    /// A message without an origin has none.
    pub(super) arrival: Option<Arrival>,
    pub(super) note: Note,
    pub(super) payload: u64,
    pub(super) stamp: u64,
    /// What it does instead of bringing something.
    pub(super) call: Option<Call>,
}

/// A call that brings nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Call {
    Claim,
    Release { is_over: bool },
}

/// What a living inlet's call came to.
pub(super) enum Outcome {
    Done(Option<Arrived>),
    /// The number of messages that arrived before an error.
    Refused(usize, PublishError),
    /// It would have waited for ever, for one who is to read after it.
    Skipped,
}

/// Two sources with two series of two streams each.
fn stream_name(stream: u8) -> StreamName {
    StreamName {
        source: 1 + u32::from(stream % 2),
        series: 1 + u32::from(stream / 2 % 2),
        stream: u16::from(stream / 4 % 2),
    }
}

fn origin(name: StreamName, number: u64) -> Origin {
    let StreamName { source, series, stream } = name;
    Origin { source, series, stream, number }
}

impl State {
    /// What is to be brought, as far as it is known before the topic is.
    pub(super) fn pieces(&self, stream: u8, cargo: Cargo) -> Vec<Piece> {
        let name = stream_name(stream);
        let other = StreamName { stream: 1 - name.stream, ..name };
        let alternates = stream >= 128;
        let missing = |name| self.arrivals.reach(name).missing;
        match cargo {
            Cargo::Messages { topic, count, numbers, sizes, timed: _ } => {
                let longest = self.model.capacity() / 2 - 8 - MOST_EXTENSIONS;
                let lists = [name, other].map(|name| numbers.list(missing(name), count));
                let piece = |index: usize| {
                    let which = usize::from(alternates && index % 2 == 1);
                    let name = [name, other][which];
                    let number = lists[which][if alternates { index / 2 } else { index }];
                    let has_origin = topic & 0x40 == 0 || index % 3 != 2;
                    let open_from = numbers.open_from(missing(name));
                    let published_ns = (stream & 0x40 != 0).then_some(number + 7);
                    Piece {
                        stream: name,
                        arrival: has_origin.then_some(Arrival {
                            first: number,
                            end: number + 1,
                            open_from,
                        }),
                        note: Note {
                            topic: usize::from(topic % 128) % topics().len(),
                            to_descendants: topic >= 128,
                            origin: has_origin.then(|| origin(name, number)),
                            number: (topic & 0x20 != 0).then_some(number ^ 0xA5),
                            has_time: self.setup.timestamps || published_ns.is_some(),
                            published_ns,
                            ..Note::default()
                        },
                        payload: sizes[index % sizes.len()].bytes(longest),
                        stamp: self.stamp + index as u64,
                        call: None,
                    }
                };
                (0..count.into()).map(piece).collect()
            }
            Cargo::Loss { scope, count, numbers, timed: _ } => {
                let first = numbers.first(missing(name));
                let until = (first + u64::from(count)).min(NUMBER_LIMIT);
                let open_from = numbers.open_from(missing(name));
                let lost = loss(origin(name, first), until, scope);
                let text: usize = lost.scope.iter().map(|one| 1 + one.as_str().len()).sum();
                vec![Piece {
                    stream: name,
                    arrival: Some(Arrival { first, end: until, open_from }),
                    payload: (40 + text as u64).next_multiple_of(8),
                    note: Note { loss: Some(Box::new(lost)), ..Note::default() },
                    stamp: self.stamp,
                    call: None,
                }]
            }
            Cargo::Question => vec![self.call(name, Call::Claim)],
            Cargo::Release { is_over } => vec![self.call(name, Call::Release { is_over })],
        }
    }
}

impl State {
    fn call(&self, stream: StreamName, call: Call) -> Piece {
        let (note, stamp) = (Note::default(), self.stamp);
        Piece { stream, arrival: None, note, payload: 0, stamp, call: Some(call) }
    }
}

impl Bridge {
    pub(super) fn new(name: String, id: u64, awaits: bool, bus: &Bus) -> Self {
        let inlet = bus.inlet().unwrap();
        let inlet = if awaits { inlet.awaiting() } else { inlet };
        let id = Bringer { id, awaits };
        Self { name, id, inlet, topics: BTreeMap::new(), duplicates: 0, counts: (0, 0) }
    }

    pub(super) fn bring(&mut self, cargo: Cargo, pieces: &[Piece], state: &State) -> Outcome {
        let most = |piece: &Piece| {
            let bytes = piece.payload + if piece.note.loss.is_none() { MOST_EXTENSIONS } else { 0 };
            record_bytes(u32::try_from(bytes).unwrap())
        };
        let bytes = pieces.iter().map(most).sum();
        let may_wait_for_ever = state.exclusive.is_none()
            && may_wait_for_ever(&state.setup, &state.model, &state.readers, bytes);
        match cargo {
            Cargo::Messages { timed, .. } => {
                let number = pieces[0].note.topic;
                let inlet = &self.inlet;
                let made = self.topics.entry(number).or_insert_with(|| {
                    let topic = inlet.topic(&topics()[number]).unwrap();
                    BridgeTopic { topic, is_inline: None }
                });
                if may_wait_for_ever && !timed {
                    return Outcome::Skipped;
                }
                let bytes =
                    |piece: &Piece| body(piece.stamp, usize::try_from(piece.payload).unwrap());
                let payloads: Vec<_> = pieces.iter().map(bytes).collect();
                let parts: Vec<_> = payloads
                    .iter()
                    .map(|payload| payload.split_at(payload.len() / 3))
                    .map(|(head, rest)| [head, rest])
                    .collect();
                let entry = |(piece, parts): (&Piece, _)| Entry {
                    to_descendants: piece.note.to_descendants,
                    published_ns: piece.note.published_ns,
                    origin: piece.note.origin,
                    open_from: piece.arrival.and_then(|arrival| arrival.open_from),
                    number: piece.note.number,
                    ..Entry::new(&made.topic, parts)
                };
                let parts = parts.iter().map(|parts| &parts[..]);
                let entries: Vec<_> = pieces.iter().zip(parts).map(entry).collect();
                let result = if timed {
                    inlet.publish(&entries, TIMEOUT)
                } else {
                    inlet.publish(&entries, Limit::Policy)
                };
                match result {
                    Ok(()) => Outcome::Done(None),
                    Err(error) => Outcome::Refused(error.published, error.source),
                }
            }
            Cargo::Loss { timed, .. } => {
                let [piece] = pieces else { unreachable!("a loss comes alone") };
                let lost = piece.note.loss.as_ref().unwrap();
                let open_from = piece.arrival.unwrap().open_from;
                if may_wait_for_ever && !timed {
                    return Outcome::Skipped;
                }
                let result = if timed {
                    self.inlet.publish_lost(lost, open_from, TIMEOUT)
                } else {
                    self.inlet.publish_lost(lost, open_from, Limit::Policy)
                };
                result.map_or_else(|error| Outcome::Refused(0, error), |()| Outcome::Done(None))
            }
            Cargo::Question => {
                let StreamName { source, series, stream } = pieces[0].stream;
                match self.inlet.claim(StreamKey { source, series, stream }, Limit::Policy) {
                    Ok(arrived) => Outcome::Done(Some(arrived)),
                    Err(error) => Outcome::Refused(0, error),
                }
            }
            Cargo::Release { is_over } => {
                let StreamName { source, series, stream } = pieces[0].stream;
                let stream = StreamKey { source, series, stream };
                match self.inlet.release(stream, is_over, Limit::Policy) {
                    Ok(()) => Outcome::Done(None),
                    Err(error) => Outcome::Refused(0, error),
                }
            }
        }
    }
}

fn loss(from: Origin, until: u64, scope: u8) -> Lost {
    let which = usize::from(scope) % (SCOPES.len() + 1);
    // The last one is long: it is copied out of the ring by itself.
    let long = || (0..16).map(|number| format!("long/{}/{number}", "name".repeat(58))).collect();
    let texts: Vec<String> = SCOPES
        .get(which)
        .map_or_else(long, |scope| scope.iter().map(|text| (*text).to_owned()).collect());
    let bounds = [LostBound::Exact, LostBound::AtLeast, LostBound::AtMost];
    let reasons = [LostReason::Gone, LostReason::Burst, LostReason::Diverged];
    Lost {
        from,
        until,
        messages: u64::from(scope) * 3,
        bound: bounds[usize::from(scope / 8) % bounds.len()],
        reason: reasons[usize::from(scope / 32) % reasons.len()],
        scope: texts.iter().map(|text| Pattern::new(text).unwrap()).collect(),
    }
}
