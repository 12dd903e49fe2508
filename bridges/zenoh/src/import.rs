//! From Zenoh to the bus: one thread, which has the inlet.
//!
//! Zenoh's threads put samples into a queue. This thread reads their attachments, restores the order, and publishes what
//! has its turn. When it meets a numbering that it does not know, it *joins* it: it asks the export for its counts, for
//! what this bus has missed, and for the newest values. What comes meanwhile is held.

use crate::BridgeError;
use crate::attachment::{Attachment, NotAnAttachment};
use crate::beat::Beat;
use crate::config::{Deletes, Import};
use crate::context::{Context, lock};
use crate::history::Request;
use crate::key::{self, Prefix};
use crate::limit::warn_rarely;
use crate::loss::{self, LossReport};
use crate::order::{Event, Item, Loss, Opening, Order, PATHS, Replay, STREAMS, StreamKey};
use crate::queue::{Arriving, Collector, Joined, Queue};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{
    BurstError, Entry, Inlet, InletTopic, Lost, LostBound, LostReason, Origin, Pattern,
    PublishError, Topic,
};
use zenoh::Wait;
use zenoh::pubsub::Subscriber;
use zenoh::query::{ConsolidationMode, QueryTarget, Queryable, ReplyKeyExpr};
use zenoh::sample::{Locality, Sample, SampleKind};

/// As many messages are published under one lock.
const BATCH: usize = 256;
/// How long an export has to answer.
const JOIN: Duration = Duration::from_secs(5);
/// How long streams that another program brings are left to it.
const TAKEN: Duration = Duration::from_secs(1);
/// As many publishers that are no bridges get a series of their own.
const FOREIGN: usize = 32;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(250);

/// A checked import.
#[derive(Debug)]
pub(crate) struct Plan {
    patterns: Vec<Pattern>,
    prefix: Prefix,
    under: String,
    history: bool,
    reorder: Duration,
    deletes: Deletes,
}

impl Plan {
    pub(crate) fn new(index: usize, import: &Import) -> Result<Self, BridgeError> {
        let setting = |name: &str| format!("import {}: {name}", index + 1);
        if import.patterns.is_empty() {
            return Err(BridgeError::Config {
                setting: setting("patterns"),
                problem: "there are none: name the topics, ** for all".to_owned(),
            });
        }
        Prefix::new(&setting("under"), &import.under)?;
        Ok(Self {
            patterns: key::patterns(&setting("patterns"), &import.patterns)?,
            prefix: Prefix::new(&setting("prefix"), &import.prefix)?,
            under: import.under.clone(),
            history: import.history,
            reorder: import.reorder,
            deletes: import.deletes,
        })
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        let patterns = || other.patterns.iter();
        self.prefix == other.prefix
            && self.patterns.iter().any(|mine| patterns().any(|its| mine.intersects(its)))
    }

    /// Returns whether messages of a topic come here, wanted or not.
    fn covers(&self, topic: &str) -> bool {
        topic == loss::TOPIC
            || self
                .patterns
                .iter()
                .any(|pattern| pattern.matches(topic) || pattern.matches_descendants(topic))
    }

    fn wants(&self, topic: &str, to_descendants: bool) -> bool {
        self.patterns.iter().any(|pattern| {
            pattern.matches(topic) || to_descendants && pattern.matches_descendants(topic)
        })
    }

    fn local(&self, topic: &str) -> String {
        if self.under.is_empty() { topic.to_owned() } else { format!("{}/{topic}", self.under) }
    }
}

/// Running imports.
pub(crate) struct Importer {
    queue: Arc<Queue>,
    context: Arc<Context>,
    subscribers: Vec<Subscriber<()>>,
    _witnesses: Vec<Queryable<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Importer {
    pub(crate) fn start(
        context: Arc<Context>,
        plans: Arc<Vec<Plan>>,
        limits: crate::config::Queue,
    ) -> Result<Self, BridgeError> {
        let inlet = context.bus.inlet()?;
        let queue = Arc::new(Queue::new(limits.messages, limits.bytes));
        let mut importing = Importing {
            began: Instant::now(),
            order: Order::new(limits.topics, limits.messages),
            inlet,
            queue: queue.clone(),
            limits,
            plans: plans.clone(),
            context: context.clone(),
            joining: HashMap::new(),
            taken: HashMap::new(),
            foreign: HashMap::new(),
            topics: HashMap::new(),
            names: HashMap::new(),
            hops: HashMap::new(),
            events: Vec::new(),
            longest: usize::MAX,
            is_stopping: false,
        };
        let run = {
            let context = context.clone();
            move || {
                if let Err(error) = importing.run() {
                    context.fail(format!("the import ends: {error}"));
                }
            }
        };
        let builder = std::thread::Builder::new().name("import".to_owned());
        let thread = builder.spawn(run).map_err(BridgeError::Thread)?;
        let mut importer = Self {
            queue,
            context,
            subscribers: Vec::new(),
            _witnesses: Vec::new(),
            thread: Some(thread),
        };
        importer.declare(&plans)?;
        Ok(importer)
    }

    fn declare(&mut self, plans: &Arc<Vec<Plan>>) -> Result<(), BridgeError> {
        let mut prefixes: Vec<&Prefix> = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            // Heartbeats first: they say where a numbering begins.
            self.subscribe(plan.prefix.control("beat/*/*"), index, Arriving::Beat)?;
            self.subscribe(plan.prefix.control("loss/*/*"), index, Arriving::Loss)?;
            if !prefixes.contains(&&plan.prefix) {
                prefixes.push(&plan.prefix);
                let (context, plans) = (self.context.clone(), plans.clone());
                let witness = self
                    .context
                    .session
                    .declare_queryable(plan.prefix.control("witness/*/*"))
                    .allowed_origin(Locality::Remote)
                    .callback(move |query| context.witness.answer(&plans[index].prefix, &query))
                    .wait()
                    .map_err(|source| BridgeError::Zenoh {
                        action: "declare a queryable",
                        source,
                    })?;
                self._witnesses.push(witness);
            }
            let mut expressions: Vec<String> = Vec::new();
            for pattern in &plan.patterns {
                expressions.push(pattern.as_str().to_owned());
                expressions.extend(key::ancestors(pattern.as_str()));
            }
            expressions.sort_unstable();
            expressions.dedup();
            // What another expression includes would come twice.
            let parsed: Vec<_> = expressions
                .iter()
                .map(|text| key::expression(plan.prefix.key(text)))
                .collect::<Result<_, _>>()
                .map_err(|source| BridgeError::Zenoh { action: "use a pattern", source })?;
            for (at, expression) in parsed.iter().enumerate() {
                let is_within = |(other, wider): (usize, &zenoh::key_expr::KeyExpr<'_>)| {
                    other != at
                        && wider.includes(expression)
                        && (!expression.includes(wider) || other < at)
                };
                if !parsed.iter().enumerate().any(is_within) {
                    self.subscribe(expression.to_string(), index, Arriving::Message)?;
                }
            }
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        key: String,
        import: usize,
        arriving: fn(usize, Sample) -> Arriving,
    ) -> Result<(), BridgeError> {
        let (queue, context) = (self.queue.clone(), self.context.clone());
        let subscriber = self
            .context
            .session
            .declare_subscriber(key)
            .allowed_origin(Locality::Remote)
            .callback(move |sample| queue.push(&context.counting, arriving(import, sample)))
            .wait()
            .map_err(|source| BridgeError::Zenoh { action: "subscribe", source })?;
        self.subscribers.push(subscriber);
        Ok(())
    }

    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.subscribers.clear();
        self._witnesses.clear();
        self.queue.push(&self.context.counting, Arriving::Stop);
        let _ = thread.join();
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        self.end();
    }
}

/// What has its turn: a message, or a loss that another bridge relays.
#[derive(Clone, Debug)]
enum Body {
    Message {
        sample: Sample,
        to_descendants: bool,
        published_ns: Option<u64>,
        import: usize,
    },
    Loss(Box<Lost>, usize),
    /// It was counted, and is not for this bus.
    Unwanted,
}

/// A numbering whose export was asked, or will be when its next heartbeat says whose it is.
struct Joining {
    import: usize,
    since: Instant,
    /// The stream of what was first published on the export's bus, once it is known. Then the export is asked.
    own: Option<StreamKey>,
    /// The number from which on it was asked for messages.
    from: Option<u64>,
    /// Since when it is known that the answer does not come, or not whole. The next heartbeat has the counts, too.
    unanswered: Option<Instant>,
    replayed: Vec<Sample>,
    held: Vec<Item<Body>>,
    bytes: usize,
}

struct Importing {
    began: Instant,
    order: Order<Body>,
    inlet: Inlet,
    queue: Arc<Queue>,
    limits: crate::config::Queue,
    plans: Arc<Vec<Plan>>,
    context: Arc<Context>,
    joining: HashMap<u32, Joining>,
    /// Streams that another program brings.
    taken: HashMap<StreamKey, Instant>,
    /// The next number of each publisher that is no bridge.
    foreign: HashMap<StreamKey, u64>,
    /// By import and topic.
    topics: HashMap<(usize, Arc<str>), InletTopic>,
    names: HashMap<String, Arc<str>>,
    hops: HashMap<StreamKey, u8>,
    events: Vec<Event<Body>>,
    /// The longest message that the bus takes, once it has refused one.
    longest: usize,
    is_stopping: bool,
}

/// Why the import ends: its bus can no longer be used.
type Fatal = PublishError;

impl Importing {
    fn run(&mut self) -> Result<(), Fatal> {
        while !self.is_stopping && !self.context.has_ended() {
            let arriving = self.queue.take(self.pause());
            self.take(arriving)?;
            self.give_up_joining();
            let now = self.now();
            self.order.expire(now, &mut self.events);
            self.flush()?;
            self.context.counting.topics_forgotten.add(self.order.take_forgotten());
            self.context.counting.reordered.add(self.order.take_reordered());
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn pause(&self) -> Duration {
        let deadline = self.order.deadline();
        deadline.map_or(SLEEP, |deadline| deadline.saturating_sub(self.now()).min(SLEEP))
    }

    fn take(&mut self, arriving: VecDeque<Arriving>) -> Result<(), Fatal> {
        for arriving in arriving {
            match arriving {
                Arriving::Message(import, sample) => self.message(import, sample)?,
                Arriving::Beat(import, sample) => self.beat(import, &sample)?,
                Arriving::Loss(import, sample) => self.loss(import, &sample)?,
                Arriving::Joined(joined) => self.joined(joined)?,
                Arriving::Stop => self.is_stopping = true,
            }
            if self.events.len() >= BATCH {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// Reads a message of a bridge. `None` if it is none, and was handled.
    fn item(
        &mut self,
        import: usize,
        sample: Sample,
    ) -> Result<Option<(Item<Body>, Attachment)>, Fatal> {
        let plans = self.plans.clone();
        let (plan, context) = (&plans[import], self.context.clone());
        let counting = &context.counting;
        let Some(topic) = self.topic(plan, sample.key_expr().as_str()) else {
            counting.not_a_topic.one();
            warn_rarely!(key = sample.key_expr().as_str(), "a key is no topic");
            return Ok(None);
        };
        if sample.kind() == SampleKind::Delete {
            counting.deletes.one();
            if plan.deletes == Deletes::Empty && plan.wants(&topic, false) {
                self.foreign(import, topic, sample)?;
            }
            return Ok(None);
        }
        let parsed = match sample.attachment() {
            None => Err(None),
            Some(bytes) => Attachment::parse(&bytes.to_bytes()).map_err(Some),
        };
        let attachment = match parsed {
            Ok(attachment) => attachment,
            Err(why) => {
                match why {
                    Some(NotAnAttachment::Invalid) => counting.bad_attachment.one(),
                    Some(NotAnAttachment::Foreign) => counting.foreign_attachment.one(),
                    None => {}
                }
                if plan.wants(&topic, false) {
                    self.foreign(import, topic, sample)?;
                }
                return Ok(None);
            }
        };
        let Attachment { origin, count, to_descendants, stamped, hops, .. } = attachment;
        let mut is_wanted = plan.wants(&topic, to_descendants);
        if origin.source == context.identity.source || origin.source == context.identity.foreign {
            if is_wanted {
                counting.own_source.one();
            }
            is_wanted = false;
        } else if hops >= context.most_hops {
            counting.too_many_hops.one();
            warn_rarely!(hops, %origin, "a message has passed too many bridges: they go in a circle");
            is_wanted = false;
        }
        let body = if is_wanted {
            self.note_hops(StreamKey::of(origin), hops);
            let published = sample.timestamp().filter(|_| stamped);
            let published = published.map(|time| time.get_time().to_duration().as_nanos());
            let published_ns = published.and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
            Body::Message { sample, to_descendants, published_ns, import }
        } else {
            Body::Unwanted
        };
        Ok(Some((Item { topic, origin, count, loss: None, body }, attachment)))
    }

    fn message(&mut self, import: usize, sample: Sample) -> Result<(), Fatal> {
        let Some((item, attachment)) = self.item(import, sample)? else { return Ok(()) };
        if attachment.replayed {
            // Only answers have it.
            self.context.counting.bad_attachment.one();
            return Ok(());
        }
        let own = (attachment.hops == 0).then(|| StreamKey::of(attachment.origin));
        self.counted(import, attachment.numbering, own, item)
    }

    /// Takes a message or a loss that has a count.
    fn counted(
        &mut self,
        import: usize,
        numbering: u32,
        key: Option<StreamKey>,
        item: Item<Body>,
    ) -> Result<(), Fatal> {
        if !self.order.knows_path(numbering) && !self.joining.contains_key(&numbering) {
            if self.joining.len() >= PATHS {
                // It is asked for when this export is joined.
                self.context.counting.queue_full.one();
                return Ok(());
            }
            self.begin_join(import, numbering, key)?;
        }
        if let Some(joining) = self.joining.get_mut(&numbering) {
            if let Body::Message { sample, .. } = &item.body {
                joining.bytes = joining.bytes.saturating_add(sample.payload().len());
            }
            joining.held.push(item);
            let held = self.joining.values().map(|joining| (joining.held.len(), joining.bytes));
            let (messages, bytes) = held.fold((0, 0_usize), |(messages, bytes), more| {
                (messages + more.0, bytes.saturating_add(more.1))
            });
            let is_full = messages >= self.limits.messages || bytes >= self.limits.bytes;
            if is_full && let Some(joining) = self.joining.remove(&numbering) {
                self.end_join(numbering, joining, None)?;
            }
            return Ok(());
        }
        self.ordered(numbering, item)
    }

    fn ordered(&mut self, numbering: u32, item: Item<Body>) -> Result<(), Fatal> {
        let is_ours = self.introduce(StreamKey::of(item.origin))?;
        let item = if is_ours { item } else { Item { body: Body::Unwanted, ..item } };
        let now = self.now();
        self.order.message(now, numbering, item, &mut self.events);
        Ok(())
    }

    /// Makes the order know a stream. Returns false if another program brings it to this bus.
    fn introduce(&mut self, key: StreamKey) -> Result<bool, Fatal> {
        let identity = &self.context.identity;
        if self.order.knows_stream(key) {
            if self.taken.is_empty() {
                return Ok(true);
            }
            match self.taken.get(&key) {
                None => return Ok(true),
                Some(since) if since.elapsed() < TAKEN => {
                    self.context.counting.taken.one();
                    return Ok(false);
                }
                Some(_) => {}
            }
        }
        if key.source == identity.source || key.stream == loss::STREAM {
            self.order.arrived(key, 0);
            return Ok(true);
        }
        match self.inlet.claim(key.source, key.series, key.stream) {
            Ok(arrived) => {
                if arrived.taken_over {
                    tracing::info!(
                        ?key,
                        from = arrived.next,
                        "continues where another program stopped"
                    );
                }
                self.taken.remove(&key);
                self.order.arrived(key, arrived.next);
                Ok(true)
            }
            Err(error) => {
                let is_fatal = is_fatal(&error);
                match &error {
                    PublishError::Taken { .. } => self.context.counting.taken.one(),
                    _ => self.context.counting.import_failed.one(),
                }
                warn_rarely!(%error, "cannot bring a stream to the bus");
                if is_fatal {
                    return Err(error);
                }
                if self.taken.len() >= STREAMS {
                    self.taken.clear();
                }
                self.taken.insert(key, Instant::now());
                self.order.arrived(key, 0);
                Ok(false)
            }
        }
    }

    fn begin_join(
        &mut self,
        import: usize,
        numbering: u32,
        key: Option<StreamKey>,
    ) -> Result<(), Fatal> {
        let joining = Joining {
            import,
            since: Instant::now(),
            own: None,
            from: None,
            unanswered: None,
            replayed: Vec::new(),
            held: Vec::new(),
            bytes: 0,
        };
        self.joining.insert(numbering, joining);
        if let Some(key) = key { self.ask_all(numbering, key) } else { Ok(()) }
    }

    /// Asks an export that is joined for its counts, and for what this bus has missed.
    fn ask_all(&mut self, numbering: u32, own: StreamKey) -> Result<(), Fatal> {
        let Some(import) = self.joining.get(&numbering).map(|joining| joining.import) else {
            return Ok(());
        };
        let from = self.ask(import, numbering, Some(own))?;
        if let Some(joining) = self.joining.get_mut(&numbering) {
            (joining.own, joining.from) = (Some(own), from);
        }
        Ok(())
    }

    /// Asks an export for its counts; if the key of its stream is given, also for what this bus has missed. Returns from
    /// which number on.
    fn ask(
        &mut self,
        import: usize,
        numbering: u32,
        key: Option<StreamKey>,
    ) -> Result<Option<u64>, Fatal> {
        let plans = self.plans.clone();
        let plan = &plans[import];
        let mut request = Request::default();
        if let Some(key) = key
            && key.source != self.context.identity.source
            && self.introduce(key)?
        {
            request.from = self.order.accounted(key);
            request.newest = plan.history && request.from.is_none();
            request.patterns = plan.patterns.iter().map(|text| text.as_str().to_owned()).collect();
        }
        let mut collector = Collector {
            queue: self.queue.clone(),
            counting: self.context.clone(),
            most_bytes: self.limits.bytes,
            bytes: 0,
            joined: Joined { import, numbering, messages: Vec::new(), counts: None },
        };
        let asked = self
            .context
            .session
            .get(plan.prefix.control(&format!("join/{numbering:08x}")))
            .payload(request.to_bytes())
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .accept_replies(ReplyKeyExpr::Any)
            .allowed_destination(Locality::Remote)
            .timeout(JOIN)
            .callback_mut(move |reply| {
                if let Ok(sample) = reply.into_result() {
                    collector.take(sample);
                }
            })
            .wait();
        if let Err(error) = asked {
            warn_rarely!(%error, "cannot ask an export for what was missed");
        }
        Ok(request.from)
    }

    fn joined(&mut self, joined: Joined) -> Result<(), Fatal> {
        let Joined { import, numbering, messages, counts } = joined;
        if let Some(counts) = &counts {
            self.context.witness.take(&self.plans[import].prefix, counts);
        }
        if let Some(joining) = self.joining.get_mut(&numbering) {
            joining.replayed.extend(messages);
            if counts.is_none() {
                joining.unanswered = Some(Instant::now());
                return Ok(());
            }
        }
        if let Some(joining) = self.joining.remove(&numbering) {
            return self.end_join(numbering, joining, counts);
        }
        if let Some(counts) = counts
            && self.order.knows_path(numbering)
            && !self.order.is_synced(numbering)
        {
            self.told(import, &counts);
        }
        Ok(())
    }

    fn end_join(
        &mut self,
        numbering: u32,
        joining: Joining,
        counts: Option<Beat>,
    ) -> Result<(), Fatal> {
        let Joining { import, since, own, from, replayed, mut held, .. } = joining;
        let now = self.now();
        let since = since.saturating_duration_since(self.began);
        let reorder = self.plans[import].reorder;
        self.order.open(now, Opening { numbering, reorder, own, since }, &mut self.events);
        if let Some(counts) = counts {
            // Zenoh may drop a part of an answer. Then it is unknown which.
            let is_whole = counts.replayed.is_some_and(|sent| replayed.len() as u64 >= sent);
            let replay = match (from, counts.replayed_from) {
                (None, _) => Replay::Nothing,
                (Some(_), Some(number)) if is_whole => {
                    Replay::From { number, unsent: counts.unsent }
                }
                (Some(_), _) => Replay::Part,
            };
            let mut items = Vec::new();
            for sample in replayed {
                if let Some((item, attachment)) = self.item(import, sample)? {
                    if attachment.replayed {
                        items.push(item);
                    } else {
                        self.context.counting.bad_attachment.one();
                    }
                }
            }
            let (earlier, later): (Vec<_>, Vec<_>) = held.drain(..).partition(|item| {
                counts.topics.get(&*item.topic).is_some_and(|count| item.count < *count)
            });
            items.extend(earlier);
            // A report has its place among the messages of the stream that it is about.
            items.sort_by_key(|item| item.loss.map_or(item.origin, |(from, _)| from));
            let mut ours = Vec::new();
            for item in items {
                if self.introduce(StreamKey::of(item.origin))? {
                    ours.push(item);
                }
            }
            if self.introduce(counts.key())? {
                self.order.join(now, &counts.told(), replay, ours, &mut self.events);
            }
            held = later;
        }
        for item in held {
            self.ordered(numbering, item)?;
        }
        Ok(())
    }

    /// Ends joins whose exports have never said whose they are, or that neither answer nor send heartbeats.
    fn give_up_joining(&mut self) {
        let patience = crate::export::patience(self.context.heartbeat);
        let is_late = |joining: &Joining| {
            joining.since.elapsed() > 2 * (patience + JOIN)
                || match (joining.own, joining.unanswered) {
                    (None, _) => joining.since.elapsed() > patience + JOIN,
                    (Some(_), Some(since)) => since.elapsed() > patience,
                    (Some(_), None) => false,
                }
        };
        let late: Vec<u32> = self
            .joining
            .iter()
            .filter(|(_, joining)| is_late(joining))
            .map(|(numbering, _)| *numbering)
            .collect();
        for numbering in late {
            if let Some(joining) = self.joining.remove(&numbering)
                && let Err(error) = self.end_join(numbering, joining, None)
            {
                self.context.fail(error.to_string());
            }
        }
    }

    fn beat(&mut self, import: usize, sample: &Sample) -> Result<(), Fatal> {
        let Some(beat) = Beat::parse(&sample.payload().to_bytes()) else {
            self.context.counting.bad_control.one();
            warn_rarely!(key = sample.key_expr().as_str(), "a heartbeat cannot be read");
            return Ok(());
        };
        self.context.counting.heartbeats_received.one();
        let identity = &self.context.identity;
        if beat.source == identity.source && beat.bus != identity.bus {
            self.context.counting.source_collisions.one();
            warn_rarely!(
                other = beat.bus,
                "another bus has the name of this one, and messages are dropped: set `source`"
            );
        }
        self.context.witness.take(&self.plans[import].prefix, &beat);
        if let Some(joining) = self.joining.get_mut(&beat.numbering) {
            if joining.own.is_none() {
                return self.ask_all(beat.numbering, beat.key());
            }
            if joining.unanswered.is_none() {
                return Ok(());
            }
            if !beat.full {
                joining.unanswered = None;
                let import = joining.import;
                return self.ask(import, beat.numbering, None).map(drop);
            }
            if let Some(joining) = self.joining.remove(&beat.numbering) {
                return self.end_join(beat.numbering, joining, Some(beat));
            }
            return Ok(());
        }
        if !self.order.knows_path(beat.numbering) {
            if self.joining.len() >= PATHS {
                return Ok(());
            }
            return self.begin_join(import, beat.numbering, Some(beat.key()));
        }
        self.introduce(beat.key())?;
        if !beat.full && !self.order.is_synced(beat.numbering) {
            self.ask(import, beat.numbering, None)?;
        }
        self.told(import, &beat);
        Ok(())
    }

    fn told(&mut self, import: usize, beat: &Beat) {
        let (now, plans) = (self.now(), self.plans.clone());
        let prefix = &plans[import].prefix;
        let covers =
            |topic: &str| plans.iter().any(|plan| plan.prefix == *prefix && plan.covers(topic));
        self.order.told(now, &beat.told(), covers, &mut self.events);
    }

    fn loss(&mut self, import: usize, sample: &Sample) -> Result<(), Fatal> {
        let attachment = sample.attachment().map(|bytes| Attachment::parse(&bytes.to_bytes()));
        let lost = LossReport::parse(&sample.payload().to_bytes());
        let (Some(Ok(attachment)), Some(lost)) = (attachment, lost) else {
            self.context.counting.bad_control.one();
            warn_rarely!(key = sample.key_expr().as_str(), "a loss report cannot be read");
            return Ok(());
        };
        let identity = &self.context.identity;
        let plan = &self.plans[import];
        let concerns = |scope: &Pattern| plan.patterns.iter().any(|mine| mine.intersects(scope));
        let is_wanted = lost.from.source != identity.source && lost.scope.iter().any(concerns);
        let is_wanted = is_wanted && self.introduce(StreamKey::of(lost.from))?;
        let loss = is_wanted.then_some((lost.from, lost.until));
        let body = if is_wanted { Body::Loss(Box::new(lost), import) } else { Body::Unwanted };
        let Attachment { origin, count, numbering, .. } = attachment;
        let topic = self.name(loss::TOPIC);
        self.counted(import, numbering, None, Item { topic, origin, count, loss, body })
    }

    /// Publishes a message of a program that is no bridge.
    fn foreign(&mut self, import: usize, topic: Arc<str>, sample: Sample) -> Result<(), Fatal> {
        self.context.counting.unnumbered.one();
        let clock = sample.timestamp().map(|time| time.get_id().to_string()).unwrap_or_default();
        let mut key = self.context.identity.foreign(&clock);
        if !self.foreign.contains_key(&key) {
            if self.foreign.len() >= FOREIGN {
                key = self.context.identity.foreign("");
            }
            if !self.introduce(key)? {
                return Ok(());
            }
            let next = self.order.mark(key);
            self.foreign.entry(key).or_insert(next);
        }
        let Some(next) = self.foreign.get_mut(&key) else { return Ok(()) };
        let origin = key.origin(*next);
        *next += 1;
        let published = sample.timestamp().map(|time| time.get_time().to_duration().as_nanos());
        let published_ns = published.and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
        let body = Body::Message { sample, to_descendants: false, published_ns, import };
        let item = Item { topic, origin, count: 0, loss: None, body };
        self.events.push(Event::Deliver { item, open_from: None });
        Ok(())
    }

    fn note_hops(&mut self, key: StreamKey, hops: u8) {
        if self.hops.get(&key) != Some(&hops) {
            if self.hops.len() >= STREAMS {
                self.hops.clear();
                lock(&self.context.hops).clear();
            }
            self.hops.insert(key, hops);
            lock(&self.context.hops).insert(key, hops);
        }
    }

    /// Returns the topic of a key, if it has one.
    fn topic(&mut self, plan: &Plan, key: &str) -> Option<Arc<str>> {
        let topic = plan.prefix.strip(key)?;
        if let Some(name) = self.names.get(topic) {
            return Some(name.clone());
        }
        if Topic::new(topic).is_err()
            || Topic::new(&plan.local(topic)).is_err()
            || key::is_control(topic)
        {
            return None;
        }
        Some(self.name(topic))
    }

    fn name(&mut self, topic: &str) -> Arc<str> {
        if let Some(name) = self.names.get(topic) {
            return name.clone();
        }
        if self.names.len() >= self.limits.topics {
            self.names.clear();
        }
        let name: Arc<str> = topic.into();
        self.names.insert(topic.to_owned(), name.clone());
        name
    }

    /// Publishes what has its turn.
    fn flush(&mut self) -> Result<(), Fatal> {
        if self.events.is_empty() {
            return Ok(());
        }
        let context = self.context.clone();
        let mut deliveries: Vec<Delivery> = Vec::new();
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Deliver { item: Item { topic, origin, body, .. }, open_from } => {
                    match body {
                        Body::Message { sample, to_descendants, published_ns, import } => {
                            deliveries.push(Delivery {
                                topic,
                                origin,
                                open_from,
                                sample,
                                to_descendants,
                                published_ns,
                                import,
                            });
                        }
                        Body::Loss(lost, import) => {
                            self.publish(&mut deliveries)?;
                            self.relayed(*lost, import, open_from)?;
                        }
                        Body::Unwanted => {}
                    }
                }
                Event::Lost(loss) => {
                    self.publish(&mut deliveries)?;
                    self.lost(loss)?;
                }
                Event::Duplicate => context.counting.duplicates.one(),
                Event::Late => context.counting.late.one(),
            }
            if deliveries.len() >= BATCH {
                self.publish(&mut deliveries)?;
            }
        }
        self.publish(&mut deliveries)
    }

    fn publish(&mut self, deliveries: &mut Vec<Delivery>) -> Result<(), Fatal> {
        let deliveries = std::mem::take(deliveries);
        let mut rest = &deliveries[..];
        while !rest.is_empty() {
            let longest = self.longest;
            let first_long = rest.iter().position(|delivery| is_too_long(delivery, longest));
            let fitting = first_long.unwrap_or(rest.len());
            rest = &rest[self.publish_fitting(&rest[..fitting])?..];
            if let Some(delivery) =
                rest.first().filter(|delivery| is_too_long(delivery, self.longest))
            {
                self.too_long(delivery)?;
                rest = &rest[1..];
            }
        }
        Ok(())
    }

    /// Reports a message that the bus cannot take, at its place.
    fn too_long(&mut self, delivery: &Delivery) -> Result<(), Fatal> {
        let (bytes, limit) = (delivery.sample.payload().len(), self.longest);
        self.context.counting.import_too_long.one();
        warn_rarely!(topic = &*delivery.topic, bytes, limit, "a message is too long for the bus");
        self.lost(Loss {
            from: delivery.origin,
            until: delivery.origin.number + 1,
            messages: 1,
            bound: LostBound::Exact,
            reason: LostReason::TooLong,
            topic: Some(delivery.topic.clone()),
            open_from: delivery.open_from,
        })
    }

    /// Publishes messages, and returns how many are done with. It ends early if it learns that one is too long.
    fn publish_fitting(&mut self, deliveries: &[Delivery]) -> Result<usize, Fatal> {
        if self.topics.len() > self.limits.topics {
            self.topics.clear();
        }
        let mut entered = Vec::with_capacity(deliveries.len());
        for (at, delivery) in deliveries.iter().enumerate() {
            if self.enter(delivery) {
                entered.push(at);
            }
        }
        let payloads: Vec<Cow<'_, [u8]>> =
            deliveries.iter().map(|delivery| delivery.sample.payload().to_bytes()).collect();
        let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [&**payload]).collect();
        let mut entries = Vec::with_capacity(entered.len());
        for &at in &entered {
            let delivery = &deliveries[at];
            if let Some(topic) = self.topics.get(&(delivery.import, delivery.topic.clone())) {
                entries.push(Entry {
                    to_descendants: delivery.to_descendants,
                    published_ns: delivery.published_ns,
                    origin: Some(delivery.origin),
                    open_from: delivery.open_from,
                    ..Entry::new(topic, &parts[at])
                });
            }
        }
        let counting = &self.context.counting;
        let mut done = 0;
        while done < entries.len() {
            let before = self.inlet.duplicates();
            let result = self.inlet.publish_timeout(&entries[done..], SLEEP);
            let duplicates = self.inlet.duplicates() - before;
            let (published, error) = match result {
                Ok(()) => (entries.len() - done, None),
                Err(BurstError { published, source }) => (published, Some(source)),
            };
            counting.duplicates.add(duplicates);
            counting.imported_messages.add((published as u64).saturating_sub(duplicates));
            let bytes = entered[done..done + published].iter().map(|at| payloads[*at].len() as u64);
            counting.imported_bytes.add(bytes.sum());
            done += published;
            let Some(error) = error else { break };
            match error {
                PublishError::Timeout if self.context.has_ended() => break,
                PublishError::Timeout => continue,
                PublishError::TooLong { limit, .. } => {
                    // All were refused. The caller separates those that are too long.
                    self.longest = usize::try_from(limit).unwrap_or(usize::MAX);
                    return Ok(entered[done]);
                }
                PublishError::Taken { .. } => {
                    counting.taken.one();
                    warn_rarely!(%error, "cannot publish a message");
                    let key = StreamKey::of(deliveries[entered[done]].origin);
                    self.taken.insert(key, Instant::now());
                }
                error if is_fatal(&error) => return Err(error),
                error => {
                    counting.import_failed.one();
                    warn_rarely!(%error, "cannot publish a message");
                }
            }
            done += 1;
        }
        Ok(deliveries.len())
    }

    /// Makes the topic of a delivery known to the inlet. Returns false if it cannot be.
    fn enter(&mut self, delivery: &Delivery) -> bool {
        let key = (delivery.import, delivery.topic.clone());
        if self.topics.contains_key(&key) {
            return true;
        }
        match self.inlet.topic(&self.plans[delivery.import].local(&delivery.topic)) {
            Ok(topic) => {
                self.topics.insert(key, topic);
                true
            }
            Err(error) => {
                self.context.counting.import_failed.one();
                warn_rarely!(%error, topic = &*delivery.topic, "cannot use a topic");
                false
            }
        }
    }

    /// Reports messages as lost that were to come here.
    fn lost(&mut self, loss: Loss) -> Result<(), Fatal> {
        let Loss { from, until, messages, bound, reason, topic, open_from } = loss;
        let identity = &self.context.identity;
        if from.source == identity.source && from.stream != loss::STREAM {
            return Ok(());
        }
        let is_report = topic.as_deref() == Some(loss::TOPIC);
        let scope = match &topic {
            Some(topic) if !is_report => {
                // All imports of the topic have the same place for it, or none.
                let plan = self.plans.iter().find(|plan| plan.covers(topic));
                let Some(plan) = plan else { return Ok(()) };
                key::scope_of_topic(&plan.local(topic))
            }
            _ => {
                let mut scope: Vec<Pattern> = Vec::new();
                for plan in self.plans.iter() {
                    for pattern in key::scope(&plan.patterns, &plan.under) {
                        if !scope.contains(&pattern) {
                            scope.push(pattern);
                        }
                    }
                }
                if scope.len() > Lost::MOST_PATTERNS { vec![Pattern::everything()] } else { scope }
            }
        };
        // A report that is missing speaks of one message at least.
        let bound = if is_report { LostBound::AtLeast } else { bound };
        self.report(Lost { from, until, messages, bound, reason, scope }, open_from)
    }

    /// Reports a loss that another bridge was told of.
    fn relayed(&mut self, lost: Lost, import: usize, open_from: Option<u64>) -> Result<(), Fatal> {
        let plan = &self.plans[import];
        let scope = if plan.under.is_empty() {
            lost.scope
        } else {
            key::scope(&plan.patterns, &plan.under)
        };
        self.report(Lost { scope, ..lost }, open_from)
    }

    fn report(&mut self, lost: Lost, open_from: Option<u64>) -> Result<(), Fatal> {
        warn_rarely!(%lost, "messages were lost on the way to the bus");
        loop {
            match self.inlet.publish_lost_timeout(&lost, open_from, SLEEP) {
                Ok(()) => {
                    self.context.counting.lost_messages.add(lost.messages);
                    self.context.counting.loss_reports.one();
                    return Ok(());
                }
                Err(PublishError::Timeout) if !self.context.has_ended() => {}
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    self.context.counting.import_failed.one();
                    warn_rarely!(%error, "cannot report a loss");
                    return Ok(());
                }
            }
        }
    }
}

struct Delivery {
    topic: Arc<str>,
    origin: Origin,
    open_from: Option<u64>,
    sample: Sample,
    to_descendants: bool,
    published_ns: Option<u64>,
    import: usize,
}

fn is_too_long(delivery: &Delivery, longest: usize) -> bool {
    delivery.sample.payload().len() > longest
}

fn is_fatal(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::Unlinked
            | PublishError::LeaseLost
            | PublishError::Forked(_)
            | PublishError::Corrupt(_)
            | PublishError::Os { .. }
    )
}
