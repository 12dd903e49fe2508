//! From the order to the bus: messages and losses that have their turn.

use super::{BATCH, Body, Importing, Payload, SLEEP};
use crate::key;
use crate::limit::warn_rarely;
use crate::loss;
use crate::order::{Event, Item, Loss, StreamKey};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toroni::{
    BurstError, Entry, InletTopic, Lost, LostBound, LostReason, Origin, Pattern, PublishError,
    PublisherError, RetainError,
};

/// How long the import waits between two attempts, if the bus does not wait itself.
const PAUSE: Duration = Duration::from_millis(10);
/// How long one loss of a stream that the bus cannot remember speaks for those that follow, and of how many streams.
const UNLISTED: Duration = Duration::from_secs(10);
const MOST_UNLISTED: usize = 10;

impl Importing {
    /// Publishes what has its turn. Waits for the bus.
    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        self.publish()?;
        if self.events.is_empty() {
            return Ok(());
        }
        let context = self.context.clone();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Deliver { item, open_from } => match item.body {
                    Body::Loss(lost, import) => {
                        self.publish()?;
                        self.relayed(*lost, import, open_from)?;
                    }
                    _ => self.deliver(item, open_from),
                },
                Event::Lost(loss) => {
                    self.publish()?;
                    self.lost(loss)?;
                }
                Event::Settled(next) => {
                    self.publish()?;
                    self.settled(next)?;
                }
                Event::Duplicate => context.counting.duplicates.one(),
                Event::Late => context.counting.late.one(),
            }
            if self.deliveries.len() >= BATCH {
                self.publish()?;
            }
        }
        self.events = events;
        self.publish()
    }

    /// Publishes what has its turn, if it is nothing but messages, and as far as it need not wait for the bus.
    pub(super) fn publish_at_once(&mut self) -> Result<(), Ended> {
        let is_message = |event: &Event<Body>| {
            let Event::Deliver { item, .. } = event else { return false };
            !matches!(item.body, Body::Loss(..))
        };
        if !self.events.iter().all(is_message) {
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            if let Event::Deliver { item, open_from } = event {
                self.deliver(item, open_from);
            }
        }
        self.events = events;
        // The import thread takes what is left, and finds out why again.
        self.burst(Duration::ZERO).map(drop)
    }

    fn deliver(&mut self, item: Item<Body>, open_from: Option<u64>) {
        let Some(delivery) = Delivery::of(item, open_from) else { return };
        if self.lines.refuses(StreamKey::of(delivery.origin)) {
            self.lines.note_refused(delivery.origin, delivery.origin.number + 1, 1);
            return;
        }
        let (first, to_descendants) = (self.deliveries.len(), delivery.to_descendants);
        self.deliveries.push(delivery);
        if !to_descendants || self.plans.len() == 1 {
            return;
        }
        // What is posted to descendants may be for several imports, which put it under different topics.
        for import in 0..self.plans.len() {
            let delivery = &self.deliveries[first];
            let (of, plan) = (&self.plans[delivery.import], &self.plans[import]);
            let has_it = |other: &Delivery| self.plans[other.import].under == plan.under;
            if plan.prefix == of.prefix
                && plan.wants(&delivery.topic, true)
                && !self.deliveries[first..].iter().any(has_it)
            {
                let copy = delivery.for_another(import);
                self.deliveries.push(copy);
            }
        }
    }

    fn publish(&mut self) -> Result<(), Ended> {
        while !self.deliveries.is_empty() {
            match self.burst(SLEEP)? {
                None => {}
                Some(Refusal::Bus(error)) if error.is_temporary() => self.wait(&error)?,
                Some(refusal) => {
                    let refused = self.deliveries.remove(0);
                    self.refused(&refused, refusal)?;
                }
            }
        }
        Ok(())
    }

    /// Publishes from the first delivery on, and forgets what it has published. Returns why it has ended before the last one, if
    /// that concerns the first of the rest.
    fn burst(&mut self, patience: Duration) -> Result<Option<Refusal>, Ended> {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        let (done, result) = self.publish_first(&deliveries, patience);
        deliveries.drain(..done);
        self.deliveries = deliveries;
        result
    }

    /// Publishes messages, and returns how many.
    fn publish_first(
        &mut self,
        deliveries: &[Delivery],
        patience: Duration,
    ) -> (usize, Result<Option<Refusal>, Ended>) {
        if self.topics.len() > self.limits.topics {
            self.topics.clear();
        }
        let foreign = self.context.identity.foreign;
        let (mut refusal, mut fitting) = (None, 0);
        for delivery in deliveries {
            if delivery.is_noted(foreign) != deliveries[0].is_noted(foreign) {
                // Another inlet brings it.
                break;
            }
            if delivery.payload.len() > self.longest {
                refusal = Some(Refusal::TooLong);
                break;
            }
            if !(fitting > 0 && deliveries[fitting - 1].has_topic_of(delivery)) {
                match self.enter(delivery) {
                    Ok(None) => {}
                    Ok(why) => {
                        refusal = why;
                        break;
                    }
                    Err(ended) => return (0, Err(ended)),
                }
            }
            fitting += 1;
        }
        let deliveries = &deliveries[..fitting];
        let payloads: Vec<Cow<'_, [u8]>> =
            deliveries.iter().map(|delivery| delivery.payload.get()).collect();
        let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [&**payload]).collect();
        let mut entries = Vec::with_capacity(fitting);
        let mut last: Option<(&Delivery, &InletTopic)> = None;
        for (delivery, parts) in deliveries.iter().zip(&parts) {
            let topic = match last {
                Some((last, topic)) if last.has_topic_of(delivery) => topic,
                _ => &self.topics[&delivery.topic_of(foreign)],
            };
            last = Some((delivery, topic));
            entries.push(Entry {
                to_descendants: delivery.to_descendants,
                published_ns: delivery.published_ns,
                origin: Some(delivery.origin),
                open_from: delivery.open_from,
                arrival: delivery.arrival,
                ..Entry::new(topic, parts)
            });
        }
        let Some(first) = deliveries.first() else { return (0, Ok(refusal)) };
        let inlet = if first.is_noted(foreign) { &self.notes } else { &self.inlet };
        let before = inlet.duplicates();
        let result = inlet.publish(&entries, patience);
        let duplicates = inlet.duplicates() - before;
        let (published, error) = match result {
            Ok(()) => (fitting, None),
            Err(BurstError { published, source }) => (published, Some(source)),
        };
        let counting = &self.context.counting;
        counting.duplicates.add(duplicates);
        counting.imported_messages.add((published as u64).saturating_sub(duplicates));
        counting.imported_bytes.add(payloads[..published].iter().map(|it| it.len() as u64).sum());
        let result = match error {
            None => Ok(refusal),
            Some(PublishError::TooLong { limit, .. }) => {
                // All were refused. The next burst ends before the first that is too long.
                self.longest = usize::try_from(limit).unwrap_or(usize::MAX);
                let is_known = deliveries.iter().any(|one| one.payload.len() > self.longest);
                Ok((!is_known).then_some(Refusal::TooLong))
            }
            Some(error) if error.is_temporary() || error.concerns_one_message() => {
                Ok(Some(Refusal::Bus(error)))
            }
            Some(error) => Err(Ended::Failed(error.to_string())),
        };
        (published, result)
    }

    /// Makes the topic of a delivery known to the inlet. Returns why it cannot be.
    fn enter(&mut self, delivery: &Delivery) -> Result<Option<Refusal>, Ended> {
        let key = delivery.topic_of(self.context.identity.foreign);
        if self.topics.contains_key(&key) {
            return Ok(None);
        }
        let inlet = if key.2 { &self.notes } else { &self.inlet };
        let plan = &self.plans[delivery.import];
        let local = plan.local(&delivery.topic);
        let mut topic = match inlet.topic(&local) {
            Ok(topic) => topic,
            Err(error @ PublisherError::Topic(_)) => return Ok(Some(Refusal::Topic(error))),
            Err(error) => return Err(Ended::Failed(error.to_string())),
        };
        if plan.retains {
            match inlet.retain(&mut topic) {
                Ok(()) => {}
                // Its messages wait until the topic is retained, and is in the table of topics.
                Err(RetainError::Publish(error)) if error.is_temporary() => {
                    return Ok(Some(Refusal::Bus(error)));
                }
                Err(RetainError::Publish(error)) => return Err(Ended::Failed(error.to_string())),
                Err(error) => {
                    self.context.counting.unretained.one();
                    warn_rarely!(%error, topic = local, "cannot retain a topic, whose messages are published nevertheless");
                }
            }
        }
        self.topics.insert(key, topic);
        Ok(None)
    }

    /// Accounts for a message that the bus does not take, at its place.
    fn refused(&mut self, delivery: &Delivery, refusal: Refusal) -> Result<(), Ended> {
        let topic = &*delivery.topic;
        let reason = match refusal {
            Refusal::TooLong => {
                let (bytes, limit) = (delivery.payload.len(), self.longest);
                self.context.counting.import_too_long.one();
                warn_rarely!(topic, bytes, limit, "a message is too long for the bus");
                LostReason::TooLong
            }
            Refusal::Topic(error) => {
                self.context.counting.import_failed.one();
                warn_rarely!(%error, topic, "cannot use a topic");
                LostReason::Topic
            }
            Refusal::Bus(error @ PublishError::Taken { .. }) => {
                let key = StreamKey::of(delivery.origin);
                self.refuse(key, &error);
                let is_of_it = |it: &mut Delivery| StreamKey::of(it.origin) == key;
                let refused: Vec<_> = self.deliveries.extract_if(.., is_of_it).collect();
                for Delivery { origin, .. } in std::iter::once(delivery).chain(&refused) {
                    self.lines.note_refused(*origin, origin.number + 1, 1);
                }
                return Ok(());
            }
            Refusal::Bus(error) => {
                let from = delivery.origin;
                let scope = key::scope_of_topic(&self.plans[delivery.import].local(topic));
                let (until, reason) = (from.number + 1, LostReason::Memory);
                let bound = LostBound::AtLeast;
                return self
                    .unlisted(Lost { from, until, messages: 1, bound, reason, scope }, &error);
            }
        };
        self.lost(Loss {
            from: delivery.origin,
            until: delivery.origin.number + 1,
            messages: 1,
            bound: LostBound::Exact,
            reason,
            topic: Some(delivery.topic.clone()),
            open_from: delivery.open_from,
        })
    }

    /// Reports something of a stream that the bus cannot remember: for each stream once in 10 s, and of 10 streams in that time.
    fn unlisted(&mut self, lost: Lost, error: &PublishError) -> Result<(), Ended> {
        self.context.counting.import_failed.one();
        warn_rarely!(%error, "the bus refuses messages of a stream");
        let key = StreamKey::of(lost.from);
        if self.unlisted.0.elapsed() >= UNLISTED {
            self.unlisted = (Instant::now(), Vec::new());
        }
        let (_, streams) = &mut self.unlisted;
        if streams.len() >= MOST_UNLISTED || streams.contains(&key) {
            return Ok(());
        }
        streams.push(key);
        let lost = Lost { bound: LostBound::AtLeast, reason: LostReason::Memory, ..lost };
        if self.persist(|limit| self.inlet.publish_lost_unlisted(&lost, limit))?.is_ok() {
            self.context.counting.lost_messages.add(lost.messages);
            self.context.counting.loss_reports.one();
        }
        Ok(())
    }

    /// Does something with the bus. Waits until nothing is in its way, and returns an error only if the bus refuses it for good.
    pub(super) fn persist<T>(
        &self,
        attempt: impl Fn(Duration) -> Result<T, PublishError>,
    ) -> Result<Result<T, PublishError>, Ended> {
        loop {
            match attempt(SLEEP) {
                Err(error) if error.is_temporary() => self.wait(&error)?,
                Err(error) if !error.concerns_one_message() => {
                    return Err(Ended::Failed(error.to_string()));
                }
                done => return Ok(done),
            }
        }
    }

    /// Waits until the bus may take something again, unless the import has to end.
    fn wait(&self, why: &PublishError) -> Result<(), Ended> {
        if self.context.has_ended() || self.queue.is_stopping() {
            return Err(Ended::Stopped);
        }
        warn_rarely!(%why, "the bus takes nothing for now: the import waits");
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// Reports messages as lost that were to come here.
    fn lost(&mut self, loss: Loss) -> Result<(), Ended> {
        let Loss { from, until, messages, bound, reason, topic, open_from } = loss;
        let identity = &self.context.identity;
        if from.source == identity.source && from.stream != loss::STREAM {
            return Ok(());
        }
        let is_report = topic.as_deref() == Some(loss::TOPIC);
        let scope = match &topic {
            Some(topic) if !is_report => {
                let plans = self.plans.iter().filter(|plan| plan.covers(topic));
                let scope = united(plans.map(|plan| key::scope_of_topic(&plan.local(topic))));
                if scope.is_empty() {
                    return Ok(());
                }
                scope
            }
            _ => self.scope(),
        };
        // A report that is missing speaks of one message at least.
        let bound = if is_report { LostBound::AtLeast } else { bound };
        self.report(Lost { from, until, messages, bound, reason, scope }, open_from)
    }

    /// Returns patterns of all topics that come here.
    pub(super) fn scope(&self) -> Vec<Pattern> {
        united(self.plans.iter().map(|plan| key::scope(&plan.patterns, &plan.under)))
    }

    /// Keeps on the bus how far a sender is accounted for.
    fn settled(&mut self, next: Origin) -> Result<(), Ended> {
        let key = StreamKey::of(next);
        let Some(at) = self.settled_at(key) else { return Ok(()) };
        if self.order.mark(key) == 0 && next.number > 0 {
            // It relays, and has published nothing itself. The bus must know nevertheless that it is awaited.
            if self.persist(|limit| self.inlet.advance(next, limit))?.is_ok() {
                self.order.arrived(key, next.number);
            }
        }
        let next = at.origin((next.number + 1).min(Origin::NUMBER_LIMIT));
        match self.persist(|limit| self.notes.advance(next, limit))? {
            Ok(()) => {}
            Err(error @ PublishError::Taken { .. }) => self.refuse(key, &error),
            Err(error) => warn_rarely!(%error, "cannot keep how far a sender is accounted for"),
        }
        Ok(())
    }

    /// Reports a loss that another bridge was told of.
    fn relayed(&mut self, lost: Lost, import: usize, open_from: Option<u64>) -> Result<(), Ended> {
        let prefix = &self.plans[import].prefix;
        let concerned =
            self.plans.iter().filter(|it| it.prefix == *prefix && it.is_concerned(&lost.scope));
        let scope = united(concerned.map(|plan| match &*plan.under {
            "" => lost.scope.clone(),
            under => key::scope(&plan.patterns, under),
        }));
        self.report(Lost { scope, ..lost }, open_from)
    }

    pub(super) fn report(&mut self, lost: Lost, open_from: Option<u64>) -> Result<(), Ended> {
        let key = StreamKey::of(lost.from);
        if self.lines.refuses(key) {
            self.lines.note_refused(lost.from, lost.until, lost.messages);
            return Ok(());
        }
        warn_rarely!(%lost, "messages were lost on the way to the bus");
        let inlet = self.inlet_of(key);
        let before = inlet.duplicates();
        // Without numbers, the bus would take a loss for an open end, of which it drops the second.
        let has_no_numbers = lost.messages > 0 && lost.until == lost.from.number;
        let reported = self.persist(|limit| match has_no_numbers {
            true => inlet.publish_lost_unlisted(&lost, limit),
            false => inlet.publish_lost(&lost, open_from, limit),
        })?;
        let is_known = inlet.duplicates() > before;
        match reported {
            Ok(()) if is_known => {
                self.context.counting.duplicates.one();
                Ok(())
            }
            Ok(()) => {
                self.context.counting.lost_messages.add(lost.messages);
                self.context.counting.loss_reports.one();
                Ok(())
            }
            Err(error @ PublishError::Taken { .. }) => {
                self.refuse(key, &error);
                self.lines.note_refused(lost.from, lost.until, lost.messages);
                Ok(())
            }
            Err(error) => self.unlisted(lost, &error),
        }
    }
}

/// Why the import ends.
#[derive(Debug)]
pub(super) enum Ended {
    /// The bridge stops, or another one takes over. What is not published is left to a successor, so nothing that came later may
    /// be published, reported or settled.
    Stopped,
    /// The bus can no longer be used, for this reason.
    Failed(String),
}

/// Why the bus does not take a message.
enum Refusal {
    /// It is longer than the bus can carry.
    TooLong,
    /// Its topic is none.
    Topic(PublisherError),
    /// Something is in the way, or the bus refuses this message or its stream.
    Bus(PublishError),
}

/// Returns all patterns of some scopes, or one of everything if a loss cannot have that many.
fn united(scopes: impl Iterator<Item = Vec<Pattern>>) -> Vec<Pattern> {
    let mut all: Vec<Pattern> = Vec::new();
    for pattern in scopes.flatten() {
        if !all.contains(&pattern) {
            all.push(pattern);
        }
    }
    if all.len() > Lost::MOST_PATTERNS { vec![Pattern::everything()] } else { all }
}

pub(super) struct Delivery {
    topic: Arc<str>,
    origin: Origin,
    /// The stream by which the bus remembers that it has arrived, if that is not its origin.
    arrival: Option<Origin>,
    open_from: Option<u64>,
    payload: Payload,
    to_descendants: bool,
    published_ns: Option<u64>,
    import: usize,
}

impl Delivery {
    /// Returns `None` if the item is not for the bus.
    fn of(item: Item<Body>, open_from: Option<u64>) -> Option<Self> {
        let Item { topic, origin, body, .. } = item;
        let Body::Message { payload, to_descendants, published_ns, import } = body else {
            return None;
        };
        Some(Self {
            topic,
            origin,
            arrival: None,
            open_from,
            payload,
            to_descendants,
            published_ns,
            import,
        })
    }

    fn topic_of(&self, foreign: u32) -> (usize, Arc<str>, bool) {
        (self.import, self.topic.clone(), self.is_noted(foreign))
    }

    /// Returns whether the inlet brings it that awaits nothing.
    fn is_noted(&self, foreign: u32) -> bool {
        self.arrival.is_some() || self.origin.source == foreign
    }

    /// Returns the same message for another import. The bus would take it for a duplicate, so it arrives by a stream of its own.
    fn for_another(&self, import: usize) -> Self {
        let Self {
            ref topic, origin, open_from, ref payload, to_descendants, published_ns, ..
        } = *self;
        let nth = u32::try_from(import).unwrap_or(u32::MAX);
        let series = origin.series.wrapping_add(nth).wrapping_add(1);
        let arrival = Some(Origin { series, ..origin });
        let (topic, payload) = (topic.clone(), payload.clone());
        Self { topic, origin, arrival, open_from, payload, to_descendants, published_ns, import }
    }

    fn has_topic_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.topic, &other.topic) && self.import == other.import
    }
}
