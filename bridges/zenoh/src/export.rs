//! From the bus to Zenoh: a thread for each export.
//!
//! It is a subscriber of the bus, and gives each message to Zenoh, whose queues are its own. While Zenoh does not take
//! messages, they wait in the ring. If publishers overwrite them there, the export begins a new numbering, and says how
//! many messages were overwritten.

use crate::BridgeError;
use crate::attachment::Attachment;
use crate::beat::{Beat, Overtaken, Table};
use crate::config::{Config, Congestion, LARGEST_MESSAGE, Priority};
use crate::context::{Context, State, lock};
use crate::history::{self, Ask, Request};
use crate::identity;
use crate::key::{self, Prefix};
use crate::limit::warn_rarely;
use crate::loss::{self, LossReport};
use crate::order::StreamKey;
use crate::send::Sending;
use crate::witness::{self, Continued};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};
use toroni::{
    Interrupter, Message, Origin, Pattern, ReceiveError, Start, Subscriber, SubscriberError,
};
use zenoh::Wait;
use zenoh::bytes::{Encoding, ZBytes};
use zenoh::qos::CongestionControl;
use zenoh::query::{Query, Queryable};
use zenoh::sample::Locality;

/// How long a bridge that makes way for another one waits for importers.
const LAST: Duration = Duration::from_secs(2);
/// How long importers have to confirm the last heartbeat. It doubles each time that one does not answer.
const CONFIRM: Duration = Duration::from_millis(250);
/// After as many messages without a pause the clock is read.
const CLOCK_EVERY: u32 = 64;

/// A checked export.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) prefix: Prefix,
    pub(crate) stream: u16,
    /// Its place in the configuration, for the log.
    place: usize,
    drain: Duration,
    /// See [`Beat::edition`].
    edition: u32,
    pub(crate) history: bool,
    pub(crate) relay: bool,
    gating: bool,
    pub(crate) express: Vec<Pattern>,
    encoding: Vec<(Pattern, String)>,
    pub(crate) priority: zenoh::qos::Priority,
    pub(crate) congestion: CongestionControl,
}

impl Plan {
    /// Checks the export with this index.
    pub(crate) fn new(config: &Config, index: usize) -> Result<Self, BridgeError> {
        let Config { realm, exports, drain, .. } = config;
        let export = &exports[index];
        let setting = |name: &str| format!("export {}: {name}", index + 1);
        if export.patterns.is_empty() {
            return Err(BridgeError::Config {
                setting: setting("patterns"),
                problem: "there are none: name the topics, ** for all".to_owned(),
            });
        }
        let patterns = key::patterns(&setting("patterns"), &export.patterns)?;
        let mut encoding = Vec::new();
        for (pattern, name) in &export.encoding {
            let pattern = key::patterns(&setting("encoding"), std::slice::from_ref(pattern))?;
            encoding.extend(pattern.into_iter().map(|pattern| (pattern, name.clone())));
        }
        Ok(Self {
            stream: {
                let of_prefix = exports.iter().take(index);
                let of_prefix = of_prefix.filter(|other| other.prefix == export.prefix).count();
                identity::stream(realm, &export.prefix, of_prefix)
            },
            place: index + 1,
            drain: *drain,
            edition: identity::edition(exports),
            prefix: Prefix::new(&setting("prefix"), &export.prefix)?,
            patterns,
            history: export.history,
            relay: export.relay,
            gating: export.gating,
            express: key::patterns(&setting("express"), &export.express)?,
            encoding,
            priority: match export.priority {
                Priority::RealTime => zenoh::qos::Priority::RealTime,
                Priority::InteractiveHigh => zenoh::qos::Priority::InteractiveHigh,
                Priority::InteractiveLow => zenoh::qos::Priority::InteractiveLow,
                Priority::DataHigh => zenoh::qos::Priority::DataHigh,
                Priority::Data => zenoh::qos::Priority::Data,
                Priority::DataLow => zenoh::qos::Priority::DataLow,
                Priority::Background => zenoh::qos::Priority::Background,
            },
            congestion: match export.congestion {
                Congestion::Drop => CongestionControl::Drop,
                Congestion::Block => CongestionControl::Block,
            },
        })
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.patterns.iter().any(|mine| other.patterns.iter().any(|its| mine.intersects(its)))
    }

    pub(crate) fn encoding_of(&self, topic: &str) -> Encoding {
        let found = self.encoding.iter().find(|(pattern, _)| pattern.matches(topic));
        found.map_or(Encoding::APPLICATION_OCTET_STREAM, |(_, name)| Encoding::from(name.as_str()))
    }

    /// Returns where to begin, and the counts. `last` are the last heartbeats of all exports that the predecessor had.
    ///
    /// If the configuration was edited, topics may have moved from one export to another one. So all exports begin where
    /// the first one ended, and importers drop what they have by its number.
    pub(crate) fn begin(&self, context: &Context, last: &[&Beat], end: u64) -> Table {
        let first = match witness::continued(last, self.stream, self.edition) {
            Continued::Numbering(last) => {
                context.counting.resumed.one();
                tracing::info!(stream = self.stream, from = last.until, "the export continues");
                let (overtaken, unsent, ended) = (None, 0, false);
                let (replayed_from, replayed_until, replayed) = (None, None, None);
                let (edition, last) = (self.edition, last.clone());
                let head = Beat {
                    edition,
                    overtaken,
                    replayed_from,
                    replayed_until,
                    replayed,
                    unsent,
                    ended,
                    ..last
                };
                return Table::begin(head);
            }
            Continued::From(first) => first,
            Continued::Nothing => end,
        };
        tracing::info!(stream = self.stream, from = first, "the export begins");
        Table::begin(self.fresh(context, first))
    }

    fn fresh(&self, context: &Context, begins: u64) -> Beat {
        let StreamKey { source, series, stream } = context.identity.stream(self.stream);
        Beat {
            bus: context.identity.bus.clone(),
            realm: context.identity.realm,
            edition: self.edition,
            life: context.identity.life,
            source,
            series,
            stream,
            numbering: identity::unique(&format!("{stream}/{begins}")),
            begins,
            until: begins,
            ..Beat::default()
        }
    }
}

/// Returns the sequence that the next message of the bus gets.
pub(crate) fn end_of(context: &Context) -> Result<u64, SubscriberError> {
    match context.bus.subscriber().gating(false).start(Start::Sequence(u64::MAX)).build() {
        Err(SubscriberError::SequenceAhead { end, .. }) => Ok(end),
        Err(error) => Err(error),
        Ok(_) => Ok(u64::MAX),
    }
}

/// Returns the sequence of the oldest message in the ring.
pub(crate) fn oldest_of(context: &Context) -> Result<u64, SubscriberError> {
    match context.bus.subscriber().gating(false).start(Start::Sequence(0)).build() {
        Err(SubscriberError::SequenceLost { oldest, .. }) => Ok(oldest),
        Err(error) => Err(error),
        Ok(_) => Ok(0),
    }
}

/// The sequence up to which an export that is to end sends messages. All exports of a bridge have the same, so that topics may
/// move from one to another.
type Goal = Arc<OnceLock<Option<u64>>>;

/// A running export.
#[derive(Debug)]
pub(crate) struct Exporter {
    goal: Goal,
    interrupter: Interrupter,
    thread: Option<JoinHandle<Option<u64>>>,
}

impl Exporter {
    /// Starts an export, whose first message is the one after those that the table has counted. If no predecessor is
    /// known, `unheard` is the end of the bus before the export: no importer has anything from there on.
    pub(crate) fn start(
        context: Arc<Context>,
        plan: Arc<Plan>,
        table: Table,
        unheard: Option<u64>,
        asks: SyncSender<Ask>,
    ) -> Result<Self, BridgeError> {
        let subscribe = |start| {
            let builder = context.bus.subscriber().start(start).gating(plan.gating);
            let builder = builder.local_only(!plan.relay).name("toroni-zenoh export");
            plan.patterns.iter().fold(builder, |all, pattern| all.pattern(pattern.as_str())).build()
        };
        let mut oldest = None;
        let mut subscriber = match subscribe(Start::Sequence(table.until())) {
            Err(SubscriberError::SequenceLost { oldest: first, .. }) => {
                oldest = Some(first);
                subscribe(Start::Oldest)?
            }
            other => other?,
        };
        let interrupter = subscriber.interrupter().map_err(SubscriberError::from)?;
        let goal = Goal::default();
        let unsent = unheard.map_or_else(|| end_of(&context), Ok)?;
        let mut exporting = Exporting {
            goal: goal.clone(),
            table,
            sending: Sending::new(context.clone(), plan.clone())?,
            waiting: Arc::new(Waiting::new(interrupter.clone())),
            joins: None,
            asks,
            unheard: unheard.map(|from| (from, None)),
            unsent,
            skipped: None,
            context,
            plan,
        };
        if let Some(oldest) = oldest {
            let messages = oldest.saturating_sub(exporting.table.until());
            exporting.skipped = Some(messages);
        }
        exporting.declare_joins()?;
        let run = move || {
            let context = exporting.context.clone();
            exporting.run(subscriber).unwrap_or_else(|error| {
                context.fail(format!("an export ends: {error}"));
                None
            })
        };
        let builder = std::thread::Builder::new().name("export".to_owned());
        let thread = builder.spawn(run).map_err(BridgeError::Thread)?;
        Ok(Self { goal, interrupter, thread: Some(thread) })
    }

    /// Asks it to end after a last heartbeat, and to send before what was published before this sequence, if that is known. Dropping
    /// it waits for that.
    pub(crate) fn stop(&self, goal: Option<u64>) {
        let _ = self.goal.set(goal);
        // An interrupt can miss the beginning of a sleep, which then lasts 250 ms.
        self.interrupter.interrupt();
    }

    /// Waits until it has ended. Returns where the export of a new series begins, if it was ended for one.
    pub(crate) fn join(&mut self) -> Option<u64> {
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop(None);
        self.join();
    }
}

/// Importers that wait for the counts of an export. Only its thread knows which messages Zenoh has.
struct Waiting {
    queries: Mutex<Vec<(Query, Request)>>,
    is_any: AtomicBool,
    /// Ends the sleep of the export.
    interrupter: Interrupter,
}

impl Waiting {
    fn new(interrupter: Interrupter) -> Self {
        Self { queries: Mutex::default(), is_any: AtomicBool::new(false), interrupter }
    }

    fn push(&self, context: &Context, query: Query, request: Request) {
        let mut queries = lock(&self.queries);
        if queries.len() >= history::QUEUE {
            drop(queries);
            return history::refuse(context, &query);
        }
        queries.push((query, request));
        drop(queries);
        self.is_any.store(true, Ordering::Release);
        self.interrupter.interrupt();
    }

    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<(Query, Request)> {
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.queries))
    }
}

struct Exporting {
    context: Arc<Context>,
    plan: Arc<Plan>,
    table: Table,
    sending: Sending,
    waiting: Arc<Waiting>,
    joins: Option<Queryable<()>>,
    asks: SyncSender<Ask>,
    goal: Goal,
    /// If no predecessor is known: the sequence at which this export began, and the one that was next when the first importer
    /// joined. No importer has only a part of what is between them.
    unheard: Option<(u64, Option<u64>)>,
    /// The sequence from which on no predecessor has sent anything.
    unsent: u64,
    /// Messages that were overwritten before the next one.
    skipped: Option<u64>,
}

impl Exporting {
    /// Runs until it is asked to end. Returns where the export of a new series begins, if it ends for one.
    fn run(&mut self, mut subscriber: Subscriber) -> Result<Option<u64>, ReceiveError> {
        self.beat(true);
        let mut due = Instant::now() + self.context.heartbeat;
        let mut since_clock = 0;
        let goal = loop {
            if self.waiting.is_any() {
                self.answer_joins(subscriber.sequence());
            }
            if self.context.life().has_gone_back() {
                // Another heartbeat would only make importers believe its numbers.
                self.sending.flush();
                self.read(subscriber.sequence());
                return Ok(Some(self.begins_next()));
            }
            if let Some(goal) = self.goal.get() {
                break *goal;
            }
            since_clock += 1;
            if since_clock >= CLOCK_EVERY {
                since_clock = 0;
                due = self.beat_if_due(due, subscriber.sequence());
            }
            let received = match subscriber.try_receive() {
                Ok(None) => {
                    self.sending.flush();
                    due = self.beat_if_due(due, subscriber.sequence());
                    since_clock = 0;
                    let left = due.saturating_duration_since(Instant::now());
                    // Of an own sleep, so that no borrow of the first call remains.
                    subscriber.receive_timeout(left)
                }
                other => other,
            };
            self.take(received)?;
        };
        let (mut read, mut patience) = (subscriber.sequence(), LAST);
        let is_leaving = self.context.state() == State::Stopped;
        if is_leaving {
            patience = self.plan.drain;
        }
        let deadline = Instant::now() + patience;
        let mut is_all = false;
        if is_leaving {
            (read, is_all) = self.send_rest(&mut subscriber, goal, deadline)?;
        }
        self.read(read);
        if is_all && self.skipped.is_none() {
            self.table.end();
        }
        self.beat(true);
        // For the export that follows in this process, if no importer can tell it.
        self.context.witness.take(&self.plan.prefix, &self.table.full());
        self.confirm(deadline);
        // An importer may have shown it meanwhile.
        Ok(self.context.life().has_gone_back().then(|| self.begins_next()))
    }

    /// Returns where a new series begins: after what was sent already, also by a predecessor, because it would come twice.
    fn begins_next(&self) -> u64 {
        self.table.until().max(self.unsent)
    }

    fn take(
        &mut self,
        received: Result<Option<Message<'_>>, ReceiveError>,
    ) -> Result<(), ReceiveError> {
        match received {
            Ok(Some(message)) => self.message(&message),
            Ok(None) | Err(ReceiveError::Interrupted) => {}
            Err(ReceiveError::Lapped { lost_messages, .. }) => {
                self.context.counting.export_overtaken.add(lost_messages);
                warn_rarely!(
                    lost_messages,
                    "publishers overwrite messages before they are sent: create the bus with a larger capacity, or set `gating`"
                );
                let skipped = self.skipped.get_or_insert(0);
                *skipped = skipped.saturating_add(lost_messages);
            }
            Err(ReceiveError::Lost(lost)) => self.lost(&lost),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sends what was published before the bridge was asked to stop. What is published meanwhile is left to a successor.
    /// Returns the sequence up to which all is sent, and whether that is all.
    fn send_rest(
        &mut self,
        subscriber: &mut Subscriber,
        goal: Option<u64>,
        deadline: Instant,
    ) -> Result<(u64, bool), ReceiveError> {
        let Some(end) = goal else { return Ok((subscriber.sequence(), false)) };
        while Instant::now() < deadline && subscriber.sequence() < end {
            match subscriber.try_receive() {
                Ok(None) => break,
                Ok(Some(message)) if message.sequence() >= end => return Ok((end, true)),
                received => self.take(received)?,
            }
        }
        let read = subscriber.sequence();
        if read < end {
            tracing::warn!(
                export = self.plan.place,
                messages = end - read,
                "`drain` is over, and messages of the bus were not sent: the next start sends them if the bus still has them"
            );
        }
        Ok((read, read >= end))
    }

    /// Learns that all messages before this sequence are sent, or not for this export.
    fn read(&mut self, until: u64) {
        // Those that were overwritten are reported with the next message.
        if self.skipped.is_none() {
            self.table.read(until);
        }
    }

    /// Repeats the last heartbeat until all importers that answer have it. Zenoh may drop it on a full link, and drops what
    /// it has not sent when a session is closed.
    fn confirm(&mut self, deadline: Instant) {
        let bus = self.context.identity.bus.clone();
        let name = witness::name("witness", &bus, self.plan.stream);
        let key = self.plan.prefix.control(&name);
        let (own, until) = (self.context.identity.stream(self.plan.stream), self.table.until());
        let mut patience = CONFIRM;
        loop {
            if self.waiting.is_any() {
                // An importer that catches up cannot confirm before it has new counts.
                self.answer_joins(until);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = witness::ask(&self.context.session, &key, &bus, patience.min(left));
            let is_missing = |beat: &Beat| beat.key() == own && beat.until < until;
            let missing = asked.beats.iter().filter(|beat| is_missing(beat)).count();
            if missing == 0 && asked.is_complete {
                return;
            }
            if left.is_zero() {
                tracing::warn!(
                    export = self.plan.place,
                    until,
                    missing,
                    "importers have not confirmed the last heartbeat: what they miss, they ask for at the next start, if the \
                     bus still has it"
                );
                return;
            }
            if asked.is_complete {
                // What it has is still in the importer's queue, or the heartbeat was dropped.
                std::thread::sleep(CONFIRM.min(left) / 5);
            } else {
                patience = patience.saturating_mul(2);
            }
            self.beat(true);
        }
    }

    fn message(&mut self, message: &Message<'_>) {
        let (topic, sequence) = (message.topic(), message.sequence());
        if let Some(messages) = self.skipped.take() {
            self.begin_again(sequence, messages);
        }
        let foreign = self.context.identity.foreign;
        let origin = match message.origin() {
            // It came from Zenoh: programs there can have it from its publisher.
            Some(origin) if origin.source == foreign => return,
            Some(origin) => origin,
            None => self.context.identity.stream(self.plan.stream).origin(sequence),
        };
        let hops = message.origin().map_or(0, |origin| {
            let hops = lock(&self.context.hops).get(&StreamKey::of(origin)).copied();
            hops.unwrap_or(0).saturating_add(1)
        });
        let (count, numbering) = (self.table.count(topic, sequence), self.table.numbering());
        // Importers miss the count of what is not sent.
        if key::is_control(topic) {
            self.context.counting.export_no_key.one();
            warn_rarely!(
                topic,
                "bridges use the segment @bridge themselves: messages on this topic count as lost"
            );
            return;
        }
        if message.payload().len() > LARGEST_MESSAGE {
            self.context.counting.export_too_long.one();
            warn_rarely!(
                topic,
                bytes = message.payload().len(),
                "a message is too long for the bridge: it may have 16 MiB"
            );
            return;
        }
        let published = message.timestamp().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let attachment = Attachment {
            origin,
            count,
            numbering,
            to_descendants: message.to_descendants(),
            replayed: false,
            stamped: published.is_some(),
            hops,
        };
        if self.sending.send(topic, message.payload(), &attachment, published) && hops > 0 {
            self.context.counting.relayed_messages.one();
        }
    }

    /// Sends a loss that this bus was told of.
    fn lost(&mut self, lost: &toroni::Lost) {
        if !self.plan.relay || lost.from.source == self.context.identity.source {
            return;
        }
        self.sending.flush();
        let (count, numbering) = (self.table.count_more(loss::TOPIC), self.table.numbering());
        let stream = loss::STREAM;
        let source = self.context.identity.source;
        let attachment = Attachment {
            origin: Origin { source, series: numbering, stream, number: count },
            count,
            numbering,
            to_descendants: false,
            replayed: false,
            stamped: false,
            hops: 0,
        };
        let name = witness::name("loss", &self.context.identity.bus, self.plan.stream);
        let sent = self
            .context
            .session
            .put(self.plan.prefix.control(&name), LossReport::new(lost).to_bytes())
            .encoding(Encoding::APPLICATION_JSON)
            .priority(self.plan.priority)
            .congestion_control(self.plan.congestion)
            .allowed_destination(Locality::Remote)
            .attachment(ZBytes::from(attachment.to_bytes()))
            .wait();
        match sent {
            Ok(()) => self.context.counting.relayed_losses.one(),
            Err(error) => warn_rarely!(%error, "Zenoh does not take a loss report"),
        }
    }

    fn beat_if_due(&mut self, due: Instant, read: u64) -> Instant {
        let now = Instant::now();
        if now < due {
            return due;
        }
        self.sending.flush();
        self.read(read);
        self.beat(false);
        now + self.context.heartbeat
    }

    fn beat(&mut self, is_full: bool) {
        self.sending.flush();
        self.sending.review_interest();
        let beat = self.table.next();
        let beat = if is_full { self.table.full() } else { beat };
        let every = u64::try_from(self.context.heartbeat.as_millis()).unwrap_or(u64::MAX);
        let beat = Beat { every, ..beat };
        let name = witness::name("beat", &self.context.identity.bus, self.plan.stream);
        // With the priority of the messages, so that it does not overtake them.
        let sent = self
            .context
            .session
            .put(self.plan.prefix.control(&name), beat.to_bytes())
            .encoding(Encoding::APPLICATION_JSON)
            .priority(self.plan.priority)
            .congestion_control(self.plan.congestion)
            .allowed_destination(Locality::Remote)
            .wait();
        match sent {
            Ok(()) => self.context.counting.heartbeats_sent.one(),
            Err(error) => warn_rarely!(%error, "Zenoh does not take a heartbeat"),
        }
    }

    /// Begins a new numbering with this sequence, after this number of messages of the bus were overwritten.
    fn begin_again(&mut self, sequence: u64, messages: u64) {
        self.beat(true);
        let ended = self.table.until();
        let overtaken = Some(Overtaken { ended, messages });
        let fresh = Beat { overtaken, ..self.plan.fresh(&self.context, sequence) };
        self.table = Table::begin(fresh);
        if let Err(error) = self.declare_joins() {
            warn_rarely!(%error, "importers cannot ask for what they have missed");
        }
        self.beat(true);
    }

    /// Answers importers that join. Their counts are of messages that Zenoh has: what it sends to them after the answer, the
    /// answer does not count. `read` is the sequence of the next message.
    fn answer_joins(&mut self, read: u64) {
        self.sending.flush();
        self.read(read);
        for (query, request) in self.waiting.take() {
            if self.has_gone_back(request.has.unwrap_or(0), read) {
                self.context.life().go_back();
                let _ = query.reply_err("the bus has gone back: it begins a new series").wait();
                continue;
            }
            self.sending.notice(request.batches);
            let (plan, counts) = (self.plan.clone(), self.table.full());
            let ask = Ask::Join { query, plan, request, counts: Box::new(counts) };
            history::enqueue(&self.context, &self.asks, ask);
        }
    }

    /// Returns whether this bus no longer has messages before a sequence that an importer has. `read` is the sequence of the
    /// next message.
    fn has_gone_back(&mut self, has: u64, read: u64) -> bool {
        let is_unheard =
            self.unheard.is_some_and(|(first, end)| first < has && end.is_none_or(|end| has < end));
        if let Some((_, end @ None)) = &mut self.unheard {
            *end = Some(read);
        }
        is_unheard || has > read && end_of(&self.context).is_ok_and(|end| has > end)
    }

    /// Makes a queryable that importers of this numbering ask.
    fn declare_joins(&mut self) -> Result<(), BridgeError> {
        let numbering = self.table.numbering();
        let key = self.plan.prefix.control(&format!("join/{numbering:08x}"));
        let (context, waiting) = (self.context.clone(), self.waiting.clone());
        let (asks, plan, head) = (self.asks.clone(), self.plan.clone(), self.table.head().clone());
        let queryable = self
            .context
            .session
            .declare_queryable(key)
            .allowed_origin(Locality::Remote)
            .callback(move |query| {
                let Some(request) = Request::of(&context, &plan, &query) else { return };
                let Some(until) = request.until else {
                    return waiting.push(&context, query, request);
                };
                // The importer has the counts already.
                let counts = Beat { begins: head.begins.min(until), until, ..head.clone() };
                let (plan, counts) = (plan.clone(), Box::new(counts));
                history::enqueue(&context, &asks, Ask::Join { query, plan, request, counts });
            })
            .wait()
            .map_err(|source| BridgeError::Zenoh { action: "declare a queryable", source })?;
        self.joins = Some(queryable);
        Ok(())
    }
}

/// Returns how long a heartbeat may be waited for.
pub(crate) fn patience(heartbeat: Duration) -> Duration {
    3 * heartbeat + Duration::from_secs(1)
}
