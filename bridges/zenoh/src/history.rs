//! Answers queries in threads of its own: with the newest message of each topic, or with all messages from a sequence on.
//! They come from the ring. If a query asks for the newest messages and the ring no longer has that of a retained topic, the
//! answer has the topic's value.
//!
//! Two kinds of queries come: those of any Zenoh program, for `<prefix>/<pattern>`, if the export has `history`; and those
//! of importers that meet an export, which also get its counts. Importers get what they have missed even without `history`.
//! They ask for it in parts: so an answer takes a short time on the slowest link, and one that does not come is asked for
//! again. Several threads answer, because Zenoh holds one up while the link of its importer is full.

use crate::attachment::Attachment;
use crate::beat::Beat;
use crate::config::LARGEST_MESSAGE;
use crate::context::{Context, lock};
use crate::export::{Plan, end_of};
use crate::key;
use crate::limit::warn_rarely;
use crate::order::StreamKey;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni::{LostBound, Message, Origin, Pattern, ReceiveError, Start, SubscriberError};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::query::{Query, ReplyKeyExpr};
use zenoh::time::{NTP64, Timestamp, TimestampId};

/// As many queries may wait.
pub(crate) const QUEUE: usize = 1024;
/// As many queries are answered at once.
pub(crate) const THREADS: usize = 8;
/// A part of what an importer has missed ends after as many messages, or as many that were read.
const PART: u64 = 4096;
const PART_READ: u64 = 16 * PART;
/// What counts for a message beside its payload.
pub(crate) const OVERHEAD: u64 = 256;

/// A query.
pub(crate) enum Ask {
    Public {
        query: Query,
        plan: Arc<Plan>,
    },
    /// The counts are those of the export when it took the query.
    Join {
        query: Query,
        plan: Arc<Plan>,
        request: Request,
        counts: Box<Beat>,
    },
    Stop,
}

/// What an importer asks for, in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// All messages from this sequence on.
    pub(crate) from: Option<u64>,
    /// The importer has all of the export's stream before this sequence, or has heard of it. So the bus has had it.
    #[serde(default)]
    pub(crate) has: Option<u64>,
    /// Those before this sequence. The importer has the counts already.
    #[serde(default)]
    pub(crate) until: Option<u64>,
    /// As many bytes: the first part of what is wanted. Without it, all.
    #[serde(default)]
    pub(crate) bytes: Option<u64>,
    /// The priority of the query and its answer, as Zenoh counts: a higher number is less urgent.
    #[serde(default)]
    pub(crate) priority: Option<u8>,
    /// The newest message of each topic.
    pub(crate) newest: bool,
    /// Those that match one of these.
    pub(crate) patterns: Vec<String>,
    /// Whether the importer takes batches, not samples of their own.
    #[serde(default)]
    pub(crate) batches: bool,
}

impl Request {
    /// Reads the query of an importer, unless no importer sends it.
    pub(crate) fn of(context: &Context, plan: &Plan, query: &Query) -> Option<Self> {
        let bytes = query.payload().map(|bytes| bytes.to_bytes().into_owned()).unwrap_or_default();
        let request = serde_json::from_slice::<Self>(&bytes).ok();
        // The answer has messages, each with its key.
        let Some(request) = request.filter(|_| query.accepts_replies() == ReplyKeyExpr::Any) else {
            context.counting.bad_control.one();
            warn_rarely!("the query of an importer cannot be read");
            return None;
        };
        if request.priority.is_some_and(|priority| priority < plan.priority as u8) {
            // The counts would overtake messages that they contain.
            let _ = query.reply_err("ask with the priority of the heartbeats").wait();
            return None;
        }
        Some(request)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Hands a query to the threads.
pub(crate) fn enqueue(context: &Context, asks: &SyncSender<Ask>, ask: Ask) {
    let (Err(TrySendError::Full(refused)) | Err(TrySendError::Disconnected(refused))) =
        asks.try_send(ask)
    else {
        return;
    };
    if let Ask::Public { query, .. } | Ask::Join { query, .. } = refused {
        refuse(context, &query);
    }
}

/// Refuses a query, because too many wait. Importers ask again.
pub(crate) fn refuse(context: &Context, query: &Query) {
    context.counting.history_refused.one();
    let _ = query.reply_err("too many queries wait: ask again later").wait();
}

/// Answers queries until [`Ask::Stop`] comes. Each of the threads gets one.
pub(crate) fn serve(context: &Context, asks: &Mutex<Receiver<Ask>>) {
    loop {
        let Ok(ask) = lock(asks).recv() else { return };
        let answered = match ask {
            Ask::Stop => return,
            Ask::Public { query, plan } => public(context, &query, &plan),
            Ask::Join { query, plan, request, counts } => {
                join(context, &query, &plan, request, *counts)
            }
        };
        context.counting.history_queries.one();
        if let Err(error) = answered {
            warn_rarely!(error, "cannot answer a query");
        }
    }
}

type Answered = Result<(), String>;

fn public(context: &Context, query: &Query, plan: &Plan) -> Answered {
    let end = end_of(context).map_err(|error| error.to_string())?;
    let wanted = |topic: &str| {
        let key = zenoh::key_expr::KeyExpr::try_from(plan.prefix.key(topic));
        key.is_ok_and(|key| query.key_expr().intersects(&key))
    };
    let from = match query.parameters().get("from") {
        None => None,
        Some("oldest") => Some(0),
        Some(text) => match text.parse() {
            Ok(from) => Some(from),
            Err(_) => {
                let help = format!("from={text} is no sequence: give a number, or `oldest`");
                return query.reply_err(help).wait().map_err(|error| error.to_string());
            }
        },
    };
    let scan = Scan {
        context,
        query,
        plan,
        numbering: 0,
        until: end,
        most_bytes: None,
        sent: Cell::new(0),
        bytes: Cell::new(0),
        unsent: Cell::new(0),
        replayed_until: Cell::new(end),
    };
    scan.answer(from, from.is_none(), &wanted).map(drop)
}

fn join(context: &Context, query: &Query, plan: &Plan, request: Request, counts: Beat) -> Answered {
    let Ok(patterns) =
        request.patterns.iter().map(|text| Pattern::new(text)).collect::<Result<Vec<_>, _>>()
    else {
        context.counting.bad_control.one();
        return Err("the query of an importer has a malformed pattern".to_owned());
    };
    let wanted = |topic: &str| {
        patterns.iter().any(|pattern| pattern.matches(topic) || pattern.matches_descendants(topic))
    };
    let Beat { until, numbering, .. } = counts;
    let scan = Scan {
        context,
        query,
        plan,
        numbering,
        until,
        most_bytes: request.bytes.filter(|_| request.from.is_some()),
        sent: Cell::new(0),
        bytes: Cell::new(0),
        unsent: Cell::new(0),
        replayed_until: Cell::new(until),
    };
    let replayed_from = match request {
        Request { from: Some(from), .. } => scan.answer(Some(from), false, &wanted)?,
        Request { newest: true, .. } if plan.history => scan.answer(None, true, &wanted)?,
        Request { .. } => None,
    };
    let (replayed, replayed_until) = (Some(scan.sent.get()), Some(scan.replayed_until.get()));
    let unsent = scan.unsent.get();
    let counts = Beat { replayed_from, replayed_until, replayed, unsent, ..counts };
    query.reply(query.key_expr(), counts.to_bytes()).wait().map_err(|error| error.to_string())
}

struct Scan<'a> {
    context: &'a Context,
    query: &'a Query,
    plan: &'a Plan,
    numbering: u32,
    /// Messages with this sequence and later ones are none of the answer.
    until: u64,
    /// If it is a part: how long it is.
    most_bytes: Option<u64>,
    sent: Cell<u64>,
    bytes: Cell<u64>,
    /// Messages that cannot be sent.
    unsent: Cell<u64>,
    /// The sequence up to which the answer has all.
    replayed_until: Cell<u64>,
}

impl Scan<'_> {
    /// Sends messages. Returns the sequence from which on the answer has all.
    fn answer(
        &self,
        from: Option<u64>,
        newest: bool,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Option<u64>, String> {
        let build = |start, retained| {
            let builder = self.context.bus.subscriber().gating(false).start(start);
            let builder = builder.local_only(!self.plan.relay).name("toroni-zenoh history");
            let patterns = self.plan.patterns.iter();
            let builder = patterns.fold(builder, |all, pattern| all.pattern(pattern.as_str()));
            builder.retained(retained).build()
        };
        // The values of retained topics come first, as far as they are older than the ring.
        let subscribe = |start| match build(start, newest) {
            Err(SubscriberError::NoValues) => build(start, false),
            other => other,
        };
        let mut complete_from = from;
        let subscriber = match from {
            Some(from) if from >= self.until => return Ok(Some(from)),
            Some(from) => match subscribe(Start::Sequence(from)) {
                Err(SubscriberError::SequenceLost { oldest, .. }) => {
                    complete_from = Some(oldest);
                    subscribe(Start::Oldest)
                }
                other => other,
            },
            None => subscribe(Start::Oldest),
        };
        let mut subscriber = subscriber.map_err(|error| error.to_string())?;
        let mut values: HashMap<String, Reply> = HashMap::new();
        let mut is_behind = false;
        let mut read = 0;
        loop {
            let next = subscriber.sequence();
            if self.is_full(read) && next < self.until {
                self.replayed_until.set(next);
                break;
            }
            match subscriber.try_receive() {
                Ok(Some(message)) if message.sequence() >= self.until => break,
                Ok(Some(message)) => {
                    read += 1;
                    if is_behind {
                        complete_from = complete_from.map(|_| message.sequence());
                        is_behind = false;
                    }
                    let is_foreign =
                        |origin: Origin| origin.source == self.context.identity.foreign;
                    if !wanted(message.topic()) || message.origin().is_some_and(is_foreign) {
                        continue;
                    }
                    if message.is_cleared() {
                        values.remove(message.topic());
                        continue;
                    }
                    let Some(reply) = reply(&message) else {
                        self.unsent.set(self.unsent.get() + 1);
                        continue;
                    };
                    if newest {
                        values.insert(message.topic().to_owned(), reply);
                    } else {
                        self.send(message.topic(), reply)?;
                    }
                }
                Ok(None) => break,
                // The next part begins after what was overwritten.
                Err(ReceiveError::Lapped { .. }) if self.most_bytes.is_some() && read > 0 => {
                    self.replayed_until.set(next.min(self.until));
                    return Ok(complete_from);
                }
                Err(ReceiveError::Lapped { .. }) => is_behind = true,
                Err(ReceiveError::ValueMissing { topic, length, .. }) => {
                    values.remove(&topic);
                    warn_rarely!(
                        topic,
                        bytes = length,
                        "the bus had no room for a value, which is not sent: create it with more bytes for retained topics"
                    );
                }
                // The answer has messages only. An importer that misses the report learns that as many cannot be sent.
                Err(ReceiveError::Lost(lost)) if self.plan.relay => {
                    // How many an open end stands for is unknown, so any number may be missing.
                    let most = match lost.bound {
                        LostBound::AtLeast => Origin::NUMBER_LIMIT,
                        _ => lost.messages.max(1),
                    };
                    let unsent = self.unsent.get().saturating_add(most);
                    self.unsent.set(unsent.min(Origin::NUMBER_LIMIT));
                }
                Err(ReceiveError::Lost(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        if is_behind {
            complete_from = complete_from.map(|_| self.until);
        }
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_unstable_by_key(|(_, reply)| reply.sequence);
        for (topic, reply) in values {
            self.send(&topic, reply)?;
        }
        Ok(complete_from)
    }

    /// Returns whether a part is as long as it may be, after this number of messages was read.
    fn is_full(&self, read: u64) -> bool {
        self.most_bytes.is_some_and(|most| {
            let is_long = read > 0 && self.bytes.get() >= most;
            is_long || self.sent.get() >= PART || read >= PART_READ
        })
    }

    fn send(&self, topic: &str, reply: Reply) -> Answered {
        let bytes = (reply.payload.len() as u64).saturating_add(OVERHEAD);
        let identity = &self.context.identity;
        let hops = reply.origin.map_or(0, |origin| {
            let hops = lock(&self.context.hops).get(&StreamKey::of(origin)).copied();
            hops.unwrap_or(0).saturating_add(1)
        });
        let timestamp = timestamp(&identity.bus, reply.timestamp);
        let attachment = Attachment {
            origin: reply
                .origin
                .unwrap_or(identity.stream(self.plan.stream).origin(reply.sequence)),
            count: 0,
            numbering: self.numbering,
            to_descendants: reply.to_descendants,
            replayed: true,
            stamped: timestamp.is_some(),
            hops,
        };
        self.query
            .reply(self.plan.prefix.key(topic), reply.payload)
            .encoding(self.plan.encoding_of(topic))
            .attachment(ZBytes::from(attachment.to_bytes()))
            .timestamp(timestamp)
            .wait()
            .map_err(|error| error.to_string())?;
        self.sent.set(self.sent.get() + 1);
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.context.counting.history_messages.one();
        Ok(())
    }
}

struct Reply {
    payload: Vec<u8>,
    sequence: u64,
    origin: Option<Origin>,
    to_descendants: bool,
    timestamp: Option<SystemTime>,
}

/// Returns a copy of a message, unless it cannot be sent.
fn reply(message: &Message<'_>) -> Option<Reply> {
    if key::is_control(message.topic()) || message.payload().len() > LARGEST_MESSAGE {
        return None;
    }
    Some(Reply {
        payload: message.payload().to_vec(),
        sequence: message.sequence(),
        origin: message.origin(),
        to_descendants: message.to_descendants(),
        timestamp: message.timestamp(),
    })
}

fn timestamp(bus: &str, time: Option<SystemTime>) -> Option<Timestamp> {
    let time: Duration = time?.duration_since(UNIX_EPOCH).ok()?;
    let clock = TimestampId::try_from(bus.as_bytes().get(..16)?).ok()?;
    Some(Timestamp::new(NTP64::from(time), clock))
}
