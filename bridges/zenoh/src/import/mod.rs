//! From Zenoh to the bus: one thread, and Zenoh's own while nothing waits.
//!
//! Zenoh's threads put samples into a queue. The import thread reads their attachments, restores the order, and publishes
//! what has its turn. When it meets a numbering that it does not know, it *joins* it: it asks the export for its counts, for
//! what this bus has missed, and for the newest values. What comes meanwhile is held.
//!
//! If the import thread sleeps, a thread of Zenoh publishes routine messages itself, which saves a wake-up. It never waits
//! for the bus: what cannot be published at once is left to the import thread.
//!
//! - `importer`: what an import is, what comes from Zenoh, and which thread takes it
//! - this file: from samples to the order; joins
//! - `publishing`: from the order to the bus
//! - `lines`: streams that other inlets bring, and those that no process brings any more
//! - `published`: what an earlier import has published, and what it has missed

mod importer;
mod lines;
mod published;
mod publishing;

pub(crate) use importer::{Importer, Plan};

use crate::attachment::{Attachment, NotAnAttachment};
use crate::batch::{NotABatch, Record, Records};
use crate::beat::Beat;
use crate::config::Deletes;
use crate::context::{Context, lock};
use crate::history::Request;
use crate::key::{self, Keys};
use crate::limit::warn_rarely;
use crate::loss::{self, LossReport};
use crate::order::{Event, Item, Opening, Order, PATHS, Replay, STREAMS, StreamKey};
use crate::queue::{Arriving, Collector, Joined, Queue};
use foldhash::{HashMap, HashSet};
use lines::Lines;
use published::Published;
use publishing::{Delivery, Ended};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toroni::{Inlet, InletTopic, Lost, Topic};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::qos::Priority;
use zenoh::query::{ConsolidationMode, QueryTarget, ReplyKeyExpr};
use zenoh::sample::{Locality, Sample, SampleKind};

/// As many messages are published under one lock.
const BATCH: usize = 256;
/// How long an export has to answer, with a part of what was missed. It doubles each time that an answer does not come.
const JOIN: Duration = Duration::from_secs(5);
/// As long a part is, in bytes. It gets shorter each time that it does not come.
const PART: u64 = 1 << 20;
/// How often in a row a part is asked for. After that, it counts as lost.
const ATTEMPTS: u32 = 3;
/// As many publishers that are no bridges get a series of their own.
const FOREIGN: usize = 32;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(250);

/// What has its turn: a message, or a loss that another bridge relays.
#[derive(Clone, Debug)]
enum Body {
    Message {
        payload: Payload,
        to_descendants: bool,
        published_ns: Option<u64>,
        import: usize,
    },
    Loss(Box<Lost>, usize),
    /// It was counted, and is not for this bus.
    Unwanted,
}

/// The bytes of a message: all of a sample, or a part of a batch.
#[derive(Clone, Debug)]
struct Payload {
    bytes: ZBytes,
    /// The bytes of a batch lie in one piece.
    part: Option<Range<usize>>,
}

impl Payload {
    fn len(&self) -> usize {
        self.part.as_ref().map_or_else(|| self.bytes.len(), Range::len)
    }

    fn get(&self) -> Cow<'_, [u8]> {
        match (self.bytes.to_bytes(), &self.part) {
            (bytes, None) => bytes,
            (Cow::Borrowed(bytes), Some(part)) => Cow::Borrowed(&bytes[part.clone()]),
            (Cow::Owned(bytes), Some(part)) => Cow::Owned(bytes[part.clone()].to_vec()),
        }
    }
}

/// Which records of a batch to take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// Those up to the first that needs more than the order.
    Routine,
}

/// A numbering whose export was asked, or will be when its next heartbeat says whose it is.
struct Joining {
    import: usize,
    since: Instant,
    /// The stream of what was first published on the export's bus, once it is known. Then the export is asked.
    own: Option<StreamKey>,
    /// The number from which on it was asked for messages.
    from: Option<u64>,
    /// When it was asked last, with which priority, and how many answers in a row have not come, or not whole.
    asked: Instant,
    serial: u64,
    priority: Priority,
    attempts: u32,
    /// Its counts, while parts are missing of what they contain. What comes meanwhile is held.
    goal: Option<Beat>,
    /// Whether something was not held that came since it was asked last: there was no room.
    is_cut: bool,
    /// Since when it is known that the answer does not come, or not whole. The next heartbeat has the counts, too.
    unanswered: Option<Instant>,
    replayed: Vec<Sample>,
    held: Vec<Item<Body>>,
    bytes: usize,
}

impl Joining {
    fn new(import: usize, priority: Priority) -> Self {
        Self {
            import,
            since: Instant::now(),
            own: None,
            from: None,
            asked: Instant::now(),
            serial: 0,
            priority,
            attempts: 0,
            goal: None,
            is_cut: false,
            unanswered: None,
            replayed: Vec::new(),
            held: Vec::new(),
            bytes: 0,
        }
    }

    fn hold(&mut self, item: Item<Body>) {
        if let Body::Message { payload, .. } = &item.body {
            self.bytes = self.bytes.saturating_add(payload.len());
        }
        self.held.push(item);
    }
}

/// How an export is asked.
#[derive(Clone, Copy)]
struct Part {
    /// Whether it is asked for what this bus has missed, and not for its counts alone.
    is_wanted: bool,
    /// The sequence up to which its counts are known.
    until: Option<u64>,
    /// Of the question, if a join waits for the answer.
    serial: Option<u64>,
    attempts: u32,
    priority: Priority,
}

impl Part {
    /// Asks for the counts alone.
    fn counts(serial: Option<u64>, priority: Priority) -> Self {
        Self { is_wanted: false, until: None, serial, attempts: 0, priority }
    }
}

struct Importing {
    began: Instant,
    order: Order<Body>,
    /// Brings what senders count.
    inlet: Inlet,
    /// Keeps how far senders are accounted for, and brings what has no numbers: no process awaits that.
    notes: Inlet,
    queue: Arc<Queue>,
    limits: crate::config::Queue,
    plans: Arc<Vec<Plan>>,
    context: Arc<Context>,
    joining: HashMap<u32, Joining>,
    /// Counts the questions of joins.
    serial: u64,
    /// Numberings that are joined, and whose exports the import thread has to ask: a thread of Zenoh must not.
    unasked: Vec<(u32, StreamKey)>,
    lines: Lines,
    published: Published,
    /// The own streams of senders that the order knows.
    senders: HashSet<StreamKey>,
    /// The next number of each publisher that is no bridge.
    foreign: HashMap<StreamKey, u64>,
    /// By import and topic, and by whether it has no numbers.
    topics: HashMap<(usize, Arc<str>, bool), InletTopic>,
    names: HashMap<String, Arc<str>>,
    keys: Keys,
    /// Keys that the import thread declares: a thread of Zenoh that brings a sample must not.
    undeclared: Vec<String>,
    /// What was last found to be wanted or not: topic, whether for descendants, the import that it came for, and the one that
    /// takes it.
    wanted: Option<(Arc<str>, bool, usize, Option<usize>)>,
    hops: HashMap<StreamKey, u8>,
    events: Vec<Event<Body>>,
    /// What is published next, before that which follows from the events.
    deliveries: Vec<Delivery>,
    /// The longest message that the bus takes, once it has refused one.
    longest: usize,
    /// Of which streams losses were reported that the bus cannot remember, and since when.
    unlisted: (Instant, Vec<StreamKey>),
    /// When the import thread wakes by itself.
    wakes_at: Duration,
    is_stopping: bool,
}

impl Importing {
    /// Does all that there is to do, by the import thread.
    fn work(&mut self) -> Result<(), Ended> {
        for key in std::mem::take(&mut self.undeclared) {
            self.keys.declare(&self.context.session, &key);
        }
        self.flush()?;
        for (numbering, own) in std::mem::take(&mut self.unasked) {
            if self.joining.get(&numbering).is_some_and(|joining| joining.own.is_none()) {
                self.ask_all(numbering, own)?;
            }
        }
        let arriving = self.queue.take();
        self.take(arriving)?;
        self.give_up_joining()?;
        self.tend()?;
        let now = self.now();
        self.order.expire(now, &mut self.events);
        self.flush()?;
        self.context.counting.topics_forgotten.add(self.order.take_forgotten());
        self.context.counting.reordered.add(self.order.take_reordered());
        Ok(())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns how long the import thread may sleep.
    fn pause(&mut self) -> Duration {
        let now = self.now();
        let deadline = self.order.deadline();
        let pause = deadline.map_or(SLEEP, |deadline| deadline.saturating_sub(now).min(SLEEP));
        self.wakes_at = now + pause;
        pause
    }

    fn take(&mut self, arriving: VecDeque<Arriving>) -> Result<(), Ended> {
        for arriving in arriving {
            match arriving {
                Arriving::Message(import, sample) => self.message(import, sample)?,
                Arriving::Batch(import, bytes, at) => {
                    self.batch(import, bytes, at, Which::All)?;
                }
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

    /// Returns whether all that has come is done with, and messages of known streams need nothing but the order.
    fn is_idle(&self) -> bool {
        self.events.is_empty()
            && self.deliveries.is_empty()
            && self.joining.is_empty()
            && self.lines.refuses_none()
            && !self.is_stopping
    }

    /// Returns whether the import thread has to do something before it wakes by itself.
    fn has_work(&self) -> bool {
        !self.events.is_empty()
            || !self.deliveries.is_empty()
            || !self.unasked.is_empty()
            || self.order.deadline().is_some_and(|due| due < self.wakes_at)
    }

    /// Returns whether a sample needs nothing but the order: it is a message of a numbering and a stream that are known.
    fn is_routine_sample(&self, sample: &Sample) -> bool {
        let attachment = sample.attachment().map(|bytes| Attachment::parse(&bytes.to_bytes()));
        sample.kind() == SampleKind::Put
            && matches!(attachment, Some(Ok(attachment)) if self.is_routine(&attachment))
    }

    fn is_routine(&self, attachment: &Attachment) -> bool {
        self.order.knows_path(attachment.numbering)
            && self.order.knows_stream(StreamKey::of(attachment.origin))
    }

    /// Reads a message of a bridge. `None` if it is none, and was handled.
    fn item(
        &mut self,
        import: usize,
        sample: &Sample,
    ) -> Result<Option<(Item<Body>, Attachment)>, Ended> {
        let (plans, context) = (self.plans.clone(), self.context.clone());
        let (plan, counting) = (&plans[import], &context.counting);
        let key = sample.key_expr().as_str();
        let Some(topic) = plan.prefix.strip(key).and_then(|topic| self.topic(plan, topic)) else {
            counting.not_a_topic.one();
            warn_rarely!(key, "a key is no topic");
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
        let published_ns = published_ns(sample).filter(|_| attachment.stamped);
        let payload = Payload { bytes: sample.payload().clone(), part: None };
        let item = self.numbered(import, topic, &attachment, payload, published_ns);
        Ok(Some((item, attachment)))
    }

    /// Returns a message that has an attachment, unless it is not for this bus: then only that it came.
    fn numbered(
        &mut self,
        import: usize,
        topic: Arc<str>,
        attachment: &Attachment,
        payload: Payload,
        published_ns: Option<u64>,
    ) -> Item<Body> {
        let Attachment { origin, count, to_descendants, hops, .. } = *attachment;
        let (identity, counting) = (&self.context.identity, &self.context.counting);
        let is_own = origin.source == identity.source || origin.source == identity.foreign;
        let mut import = match &self.wanted {
            Some((last, descendants, of, by))
                if Arc::ptr_eq(last, &topic) && (*descendants, *of) == (to_descendants, import) =>
            {
                *by
            }
            _ => {
                // Imports with one prefix share what comes, whichever it came for.
                let prefix = &self.plans[import].prefix;
                let wants =
                    |plan: &Plan| plan.prefix == *prefix && plan.wants(&topic, to_descendants);
                let by = self.plans.iter().position(wants);
                self.wanted = Some((topic.clone(), to_descendants, import, by));
                by
            }
        };
        if is_own {
            if import.is_some() {
                counting.own_source.one();
            }
            import = None;
        } else if hops >= self.context.most_hops {
            counting.too_many_hops.one();
            warn_rarely!(hops, %origin, "a message has passed too many bridges: they go in a circle");
            import = None;
        }
        let body = if let Some(import) = import {
            self.note_hops(StreamKey::of(origin), hops);
            Body::Message { payload, to_descendants, published_ns, import }
        } else {
            Body::Unwanted
        };
        Item { topic, origin, count, loss: None, missed: None, body }
    }

    fn message(&mut self, import: usize, sample: Sample) -> Result<(), Ended> {
        let Some((item, attachment)) = self.item(import, &sample)? else { return Ok(()) };
        drop(sample);
        self.attached(import, &attachment, item)
    }

    fn attached(
        &mut self,
        import: usize,
        attachment: &Attachment,
        item: Item<Body>,
    ) -> Result<(), Ended> {
        if attachment.replayed {
            // Only answers have it.
            self.context.counting.bad_attachment.one();
            return Ok(());
        }
        let own = (attachment.hops == 0).then(|| StreamKey::of(attachment.origin));
        self.counted(import, attachment.numbering, own, item)
    }

    /// Takes the records of a batch from a position on. If only routine ones are wanted, the rest goes into the queue.
    fn batch(
        &mut self,
        import: usize,
        bytes: ZBytes,
        from: usize,
        which: Which,
    ) -> Result<(), Ended> {
        let bytes = match bytes.to_bytes() {
            Cow::Borrowed(_) => bytes,
            // It came in several pieces.
            Cow::Owned(bytes) => bytes.into(),
        };
        let (plans, whole) = (self.plans.clone(), bytes.to_bytes());
        let mut records = match Records::new(&whole) {
            Ok(records) => records,
            Err(error) => {
                self.bad_batch(error);
                return Ok(());
            }
        };
        loop {
            let at = records.position();
            let Record { topic, attachment, published_ns, payload } = match records.next() {
                None => return Ok(()),
                Some(Ok(record)) => record,
                Some(Err(error)) => {
                    self.bad_batch(error);
                    return Ok(());
                }
            };
            if at < from {
                continue;
            }
            if which == Which::Routine && !self.is_routine(&attachment) {
                let rest = Arriving::Batch(import, bytes.clone(), at);
                self.queue.push(&self.context.counting, rest);
                return Ok(());
            }
            let Some(topic) = self.topic(&plans[import], topic) else {
                self.context.counting.not_a_topic.one();
                warn_rarely!(topic, "a batch has a message whose topic is none");
                continue;
            };
            let payload = Payload { bytes: bytes.clone(), part: Some(payload) };
            let published_ns = attachment.stamped.then_some(published_ns);
            let item = self.numbered(import, topic, &attachment, payload, published_ns);
            self.attached(import, &attachment, item)?;
            if which == Which::All && self.events.len() >= BATCH {
                self.flush()?;
            }
        }
    }

    fn bad_batch(&self, error: NotABatch) {
        self.context.counting.bad_batch.one();
        warn_rarely!(%error, "a batch cannot be read");
    }

    /// Takes a message or a loss that has a count.
    fn counted(
        &mut self,
        import: usize,
        numbering: u32,
        key: Option<StreamKey>,
        item: Item<Body>,
    ) -> Result<(), Ended> {
        if !self.order.knows_path(numbering) && !self.joining.contains_key(&numbering) {
            if self.lines.stands_by(numbering).is_some() {
                return Ok(());
            }
            if self.joining.len() >= PATHS {
                // It is asked for when this export is joined.
                self.context.counting.queue_full.one();
                return Ok(());
            }
            self.begin_join(import, numbering, key, Priority::default())?;
        }
        if let Some(joining) = self.joining.get_mut(&numbering) {
            joining.hold(item);
            let held = self.joining.values().map(|joining| (joining.held.len(), joining.bytes));
            let (messages, bytes) = held.fold((0, 0_usize), |(messages, bytes), more| {
                (messages + more.0, bytes.saturating_add(more.1))
            });
            let is_full = messages >= self.limits.messages || bytes >= self.limits.bytes;
            if is_full && let Some(joining) = self.joining.get_mut(&numbering) {
                // It is asked for later, or its counts show that it is missing.
                (joining.held, joining.bytes, joining.goal) = (Vec::new(), 0, None);
                joining.is_cut = true;
            }
            return Ok(());
        }
        if !self.ordered(numbering, item)? {
            self.join_again(numbering);
        }
        Ok(())
    }

    /// Gives a message to the order. Returns false if it is too far ahead to be believed.
    fn ordered(&mut self, numbering: u32, item: Item<Body>) -> Result<bool, Ended> {
        let item = if self.introduce(StreamKey::of(item.origin))? {
            self.unpublished(item)
        } else {
            if matches!(item.body, Body::Message { .. }) {
                self.lines.note_refused(item.origin, item.origin.number + 1, 1);
            }
            Item { body: Body::Unwanted, ..item }
        };
        let is_believed = self.order.message(self.now(), numbering, item, &mut self.events);
        if !is_believed {
            self.context.counting.doubted.one();
            warn_rarely!(numbering, "a number is far ahead of those before it");
        }
        Ok(is_believed)
    }

    /// Joins a sender again that has sent a number which is too far ahead to be believed, without the message. If the sender has
    /// it, it sends the message again. What waits for others is held, as what comes meanwhile.
    fn join_again(&mut self, numbering: u32) {
        let (own, import) = (self.order.own_stream(numbering), self.import_of(numbering));
        let mut joining = Joining::new(import, Priority::default());
        self.order.abandon(numbering).into_iter().for_each(|item| joining.hold(item));
        self.joining.insert(numbering, joining);
        // Not in a thread of Zenoh.
        self.unasked.extend(own.map(|own| (numbering, own)));
    }

    /// Marks a message that was sent again and is below the mark, unless an earlier import has published it.
    fn missed(&self, item: Item<Body>) -> Item<Body> {
        let Body::Message { import, .. } = &item.body else { return item };
        let plan = &self.plans[*import];
        if self.order.is_settled(item.origin) {
            return item;
        }
        let missed = self.published.misses(item.origin, || plan.local(&item.topic));
        Item { missed, ..item }
    }

    /// Takes the body of a message that an earlier import has published.
    fn unpublished(&mut self, item: Item<Body>) -> Item<Body> {
        let Body::Message { import, .. } = &item.body else { return item };
        let plan = &self.plans[*import];
        if !self.published.has(item.origin, || plan.local(&item.topic)) {
            return item;
        }
        self.context.counting.duplicates.one();
        Item { body: Body::Unwanted, ..item }
    }

    fn begin_join(
        &mut self,
        import: usize,
        numbering: u32,
        key: Option<StreamKey>,
        priority: Priority,
    ) -> Result<(), Ended> {
        self.joining.insert(numbering, Joining::new(import, priority));
        if let Some(key) = key { self.ask_all(numbering, key) } else { Ok(()) }
    }

    /// Asks an export that is joined for its counts, and for the next part of what this bus has missed; unless another program
    /// brings its stream.
    fn ask_all(&mut self, numbering: u32, own: StreamKey) -> Result<(), Ended> {
        let Some(import) = self.joining.get(&numbering).map(|joining| joining.import) else {
            return Ok(());
        };
        if !self.introduce_sender(own)? {
            self.stand_by(numbering, import, own);
            return Ok(());
        }
        let Some(joining) = self.joining.get_mut(&numbering) else { return Ok(()) };
        (joining.own, joining.asked, joining.is_cut) = (Some(own), Instant::now(), false);
        joining.unanswered = None;
        self.serial += 1;
        joining.serial = self.serial;
        let (priority, attempts) = (joining.priority, joining.attempts);
        let until = joining.goal.as_ref().map(|goal| goal.until);
        let part = Part { is_wanted: true, until, serial: Some(self.serial), attempts, priority };
        let from = self.ask(import, numbering, own, part);
        if let Some(joining) = self.joining.get_mut(&numbering) {
            joining.from = from;
        }
        Ok(())
    }

    /// Asks an export for its counts, and for what this bus has missed of its stream, if that is wanted. Returns from which
    /// number on.
    fn ask(&mut self, import: usize, numbering: u32, own: StreamKey, part: Part) -> Option<u64> {
        let plans = self.plans.clone();
        let plan = &plans[import];
        let Part { is_wanted, until, serial, attempts, priority } = part;
        let is_wanted = is_wanted && own.source != self.context.identity.source;
        // With the message that makes it long enough, it usually fits into the queue.
        let bytes = PART.min(self.limits.bytes as u64 / 2) >> (2 * attempts);
        let mut request = Request {
            has: self.order.accounted(own).max(Some(self.order.mark(own))),
            until,
            bytes: Some(bytes),
            priority: Some(priority as u8),
            batches: plan.batches,
            ..Request::default()
        };
        if is_wanted {
            request.from = self.order.accounted(own);
            let is_new = request.from.is_none();
            // Imports with one prefix share the answer.
            let sharing = plans.iter().filter(|other| other.prefix == plan.prefix);
            let asking: Vec<&Plan> = sharing.filter(|other| other.history || !is_new).collect();
            request.newest = is_new && !asking.is_empty();
            let patterns = asking.iter().flat_map(|other| &other.patterns);
            request.patterns = patterns.map(|text| text.as_str().to_owned()).collect();
        }
        let mut collector = Collector {
            queue: self.queue.clone(),
            counting: self.context.clone(),
            most_bytes: self.limits.bytes,
            bytes: 0,
            joined: Joined { import, serial, numbering, messages: Vec::new(), counts: None },
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
            .priority(priority)
            .timeout(JOIN.saturating_mul(1 << attempts))
            .callback_mut(move |reply| {
                if let Ok(sample) = reply.into_result() {
                    collector.take(sample);
                }
            })
            .wait();
        if let Err(error) = asked {
            warn_rarely!(%error, "cannot ask an export for what was missed");
        }
        request.from
    }

    fn joined(&mut self, joined: Joined) -> Result<(), Ended> {
        let Joined { import, serial, numbering, messages, counts } = joined;
        // A join before this one may have asked, or this import for the counts alone.
        let is_wanted = |joining: &&mut Joining| serial == Some(joining.serial);
        let Some(joining) = self.joining.get_mut(&numbering).filter(is_wanted) else {
            let was_doubted = self.doubt(numbering, false);
            if let Some(counts) = counts.filter(|counts| counts.full) {
                self.context.witness.take(&self.plans[import].prefix, &counts);
                if self.order.knows_path(numbering)
                    && (was_doubted || !self.order.is_synced(numbering))
                {
                    self.told(import, &counts);
                }
            }
            return Ok(());
        };
        if let Some(key) = counts.as_ref().map(Beat::key)
            && joining.own != Some(key)
        {
            // A message can name any stream with any numbering: it was asked for what this bus has missed of another one.
            return self.ask_all(numbering, key);
        }
        let is_last = joining.attempts + 1 >= ATTEMPTS;
        let is_enough = |counts: &Beat| {
            // Zenoh may drop a part of an answer. Then it is unknown which.
            let is_whole = counts.replayed.is_some_and(|sent| messages.len() as u64 >= sent);
            joining.from.is_none() || is_whole || is_last && counts.full
        };
        let Some(counts) = counts.filter(is_enough) else {
            // The next heartbeat says that the export lives. Then it is asked again.
            joining.attempts = (joining.attempts + 1).min(ATTEMPTS);
            (joining.replayed, joining.unanswered) = (messages, Some(Instant::now()));
            return Ok(());
        };
        let until = counts.replayed_until.unwrap_or(counts.until);
        let is_behind = joining.is_cut || until < counts.until;
        if let (Some(from), Some(own), Some(number)) =
            (joining.from, joining.own, counts.replayed_from)
            && is_behind
            && (until > from || joining.is_cut)
        {
            if joining.goal.is_none() && !joining.is_cut {
                joining.goal = Some(counts.clone());
            }
            joining.attempts = 0;
            let replay = Replay::From { number, unsent: counts.unsent };
            let part = Beat { until, full: false, topics: BTreeMap::new(), ..counts };
            let part = Beat { begins: part.begins.min(until), ..part };
            if self.catch_up(import, &part, replay, messages)? {
                return self.ask_all(numbering, own);
            }
        } else {
            joining.replayed = messages;
            let replayed_from = counts.replayed_from.filter(|_| !is_behind);
            let counts = Beat { replayed_from, ..counts };
            joining.goal = Some(match joining.goal.take() {
                Some(goal) => {
                    Beat { replayed_from, replayed: counts.replayed, unsent: counts.unsent, ..goal }
                }
                None => counts,
            });
        }
        let Some(mut joining) = self.joining.remove(&numbering) else { return Ok(()) };
        let counts = joining.goal.take();
        self.end_join(numbering, joining, counts)
    }

    /// Takes a part of what an export sends again. Returns whether this import brings its stream.
    fn catch_up(
        &mut self,
        import: usize,
        part: &Beat,
        replay: Replay,
        messages: Vec<Sample>,
    ) -> Result<bool, Ended> {
        let items = self.sent_again(import, messages)?;
        let items = self.introduced(items)?;
        if !self.introduce_sender(part.key())? {
            return Ok(false);
        }
        self.end_other_series(part.key())?;
        let now = self.now();
        self.order.catch_up(now, &part.told(), replay, items, &mut self.events);
        self.flush()?;
        Ok(true)
    }

    /// Reads the messages of an answer.
    fn sent_again(
        &mut self,
        import: usize,
        messages: Vec<Sample>,
    ) -> Result<Vec<Item<Body>>, Ended> {
        let mut items = Vec::new();
        for sample in messages {
            if let Some((item, attachment)) = self.item(import, &sample)? {
                if attachment.replayed {
                    items.push(item);
                } else {
                    self.context.counting.bad_attachment.one();
                }
            }
        }
        Ok(items)
    }

    /// Introduces the streams of messages that were sent again or held, and returns those that this import brings, in the
    /// order of their numbers.
    fn introduced(&mut self, mut items: Vec<Item<Body>>) -> Result<Vec<Item<Body>>, Ended> {
        // A report has its place among the messages of the stream that it is about.
        items.sort_by_key(|item| item.loss.map_or(item.origin, |(from, _)| from));
        let mut ours = Vec::new();
        for item in items {
            if self.introduce(StreamKey::of(item.origin))? {
                let item = self.missed(item);
                ours.push(self.unpublished(item));
            } else if matches!(item.body, Body::Message { .. }) {
                self.lines.note_refused(item.origin, item.origin.number + 1, 1);
            }
        }
        Ok(ours)
    }

    fn end_join(
        &mut self,
        numbering: u32,
        joining: Joining,
        counts: Option<Beat>,
    ) -> Result<(), Ended> {
        let Joining { import, since, own, from, unanswered, replayed, mut held, .. } = joining;
        if let Some(key) = counts.as_ref().map(Beat::key) {
            if !self.introduce_sender(key)? {
                self.stand_by(numbering, import, key);
                return Ok(());
            }
            if unanswered.is_none() {
                self.end_other_series(key)?;
            }
        }
        let now = self.now();
        let is_answered = counts.is_some();
        self.note_sender(numbering, import);
        let since = since.saturating_duration_since(self.began);
        let reorder = self.plans[import].reorder;
        self.order.open(now, Opening { numbering, reorder, own, since }, &mut self.events);
        if let Some(counts) = counts {
            self.context.witness.take(&self.plans[import].prefix, &counts);
            // Zenoh may drop a part of an answer. Then it is unknown which.
            let is_whole = counts.replayed.is_some_and(|sent| replayed.len() as u64 >= sent);
            let replay = match (from, counts.replayed_from) {
                (None, _) if own == Some(counts.key()) => Replay::Nothing,
                (Some(_), Some(number)) if is_whole => {
                    Replay::From { number, unsent: counts.unsent }
                }
                // Or it was asked for another stream, which a stranger had named.
                _ => Replay::Part,
            };
            let mut items = self.sent_again(import, replayed)?;
            let (mut earlier, later): (Vec<_>, Vec<_>) = held.drain(..).partition(|item| {
                counts.topics.get(&*item.topic).is_some_and(|count| item.count < *count)
            });
            if replay == Replay::Nothing {
                keep_last(&mut earlier, &counts);
            }
            items.extend(earlier);
            let ours = self.introduced(items)?;
            self.order.join(now, &counts.told(), replay, ours, &mut self.events);
            held = later;
        }
        for item in held {
            if is_answered {
                // If a number is not believed, the rest is held again.
                self.counted(import, numbering, None, item)?;
            } else {
                // No export can be asked.
                self.ordered(numbering, item)?;
            }
        }
        Ok(())
    }

    /// Ends joins whose exports have never said whose they are, or that neither answer nor send heartbeats.
    fn give_up_joining(&mut self) -> Result<(), Ended> {
        let patience = crate::export::patience(self.context.heartbeat);
        let is_late = |joining: &Joining| {
            joining.asked.elapsed() > 2 * (patience + JOIN.saturating_mul(1 << joining.attempts))
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
            let Some(joining) = self.joining.remove(&numbering) else { continue };
            if let Some(own) = joining.own
                && self.is_open(own)?
            {
                self.end_join(numbering, joining, None)?;
            } else {
                self.context.counting.doubted.one();
                warn_rarely!(
                    numbering,
                    "no export confirms a numbering: what came with it is dropped"
                );
            }
        }
        Ok(())
    }

    fn beat(&mut self, import: usize, sample: &Sample) -> Result<(), Ended> {
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
        let mark = self.order.mark(beat.key());
        let is_behind = beat.until < self.lines.replace_mark(beat.numbering, mark);
        if is_behind || self.order.is_doubtful(&beat.told()) {
            self.context.counting.doubted.one();
            warn_rarely!(
                numbering = beat.numbering,
                is_behind,
                "a heartbeat is far ahead of those before it, or behind what has come, so its sender is asked"
            );
            if !self.doubt(beat.numbering, true) {
                self.ask(import, beat.numbering, beat.key(), Part::counts(None, sample.priority()));
            }
            return Ok(());
        }
        let stands_by = self.lines.stands_by(beat.numbering);
        if self.order.knows_path(beat.numbering) && stands_by.is_none() {
            // Else what was missed may still come. An export that ends waits for that.
            self.context.witness.take(&self.plans[import].prefix, &beat);
        }
        self.note_beat(&beat);
        if let Some(own) = stands_by {
            return self.retry(own);
        }
        if let Some(joining) = self.joining.get_mut(&beat.numbering) {
            joining.priority = sample.priority();
            let is_again = joining.unanswered.is_some() && joining.attempts < ATTEMPTS;
            if joining.own.is_none() || is_again {
                return self.ask_all(beat.numbering, beat.key());
            }
            if joining.unanswered.is_none() {
                return Ok(());
            }
            // Any program can play back a heartbeat.
            let is_believed = beat.full && self.is_open(beat.key())?;
            let Some(mut joining) = self.joining.remove(&beat.numbering) else { return Ok(()) };
            if is_believed {
                return self.end_join(beat.numbering, joining, Some(beat));
            }
            joining.unanswered = None;
            self.serial += 1;
            joining.serial = self.serial;
            let part = Part::counts(Some(self.serial), sample.priority());
            self.ask(joining.import, beat.numbering, beat.key(), part);
            self.joining.insert(beat.numbering, joining);
            return Ok(());
        }
        if !self.order.knows_path(beat.numbering) {
            if self.joining.len() >= PATHS {
                return Ok(());
            }
            let priority = sample.priority();
            return self.begin_join(import, beat.numbering, Some(beat.key()), priority);
        }
        if !self.introduce_sender(beat.key())? {
            self.stand_by(beat.numbering, import, beat.key());
            return Ok(());
        }
        if !beat.full && !self.order.is_synced(beat.numbering) {
            self.ask(import, beat.numbering, beat.key(), Part::counts(None, sample.priority()));
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

    fn loss(&mut self, import: usize, sample: &Sample) -> Result<(), Ended> {
        let attachment = sample.attachment().map(|bytes| Attachment::parse(&bytes.to_bytes()));
        let lost = LossReport::parse(&sample.payload().to_bytes());
        let (Some(Ok(attachment)), Some(lost)) = (attachment, lost) else {
            self.context.counting.bad_control.one();
            warn_rarely!(key = sample.key_expr().as_str(), "a loss report cannot be read");
            return Ok(());
        };
        let identity = &self.context.identity;
        let is_wanted = lost.from.source != identity.source
            && self.plans.iter().any(|plan| {
                plan.prefix == self.plans[import].prefix && plan.is_concerned(&lost.scope)
            });
        let is_wanted = is_wanted && self.introduce(StreamKey::of(lost.from))?;
        let loss = is_wanted.then_some((lost.from, lost.until));
        let body = if is_wanted { Body::Loss(Box::new(lost), import) } else { Body::Unwanted };
        let Attachment { origin, count, numbering, .. } = attachment;
        let topic = self.name(loss::TOPIC);
        let item = Item { topic, origin, count, loss, missed: None, body };
        self.counted(import, numbering, None, item)
    }

    /// Publishes a message of a program that is no bridge.
    fn foreign(&mut self, import: usize, topic: Arc<str>, sample: &Sample) -> Result<(), Ended> {
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
        let payload = Payload { bytes: sample.payload().clone(), part: None };
        let published_ns = published_ns(sample);
        let body = Body::Message { payload, to_descendants: false, published_ns, import };
        let item = Item { topic, origin, count: 0, loss: None, missed: None, body };
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

    /// Returns a topic that came from elsewhere, unless it is none.
    fn topic(&mut self, plan: &Plan, topic: &str) -> Option<Arc<str>> {
        if let Some(name) = self.names.get(topic) {
            return Some(name.clone());
        }
        if Topic::new(topic).is_err()
            || Topic::new(&plan.local(topic)).is_err()
            || key::is_control(topic)
        {
            return None;
        }
        if !plan.batches && self.undeclared.len() < self.limits.topics {
            self.undeclared.push(plan.prefix.key(topic));
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
}

impl Drop for Importing {
    fn drop(&mut self) {
        self.keys.undeclare(&self.context.session);
    }
}

/// Keeps those messages of each topic after which none is missing. An importer that meets an export begins with them.
fn keep_last(held: &mut Vec<Item<Body>>, counts: &Beat) {
    let mut firsts: HashMap<Arc<str>, u64> = HashMap::default();
    for item in held.iter().rev() {
        let told = || counts.topics.get(&*item.topic).copied().unwrap_or_default();
        let first = firsts.entry(item.topic.clone()).or_insert_with(told);
        if item.count.checked_add(1) == Some(*first) {
            *first = item.count;
        }
    }
    held.retain(|item| firsts.get(&item.topic).is_some_and(|first| item.count >= *first));
}

fn published_ns(sample: &Sample) -> Option<u64> {
    let published = sample.timestamp()?.get_time().to_duration().as_nanos();
    u64::try_from(published).ok()
}
