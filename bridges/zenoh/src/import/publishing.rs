//! From the order to the bus: messages and losses that have their turn.

use super::{BATCH, Body, Fatal, Importing, Payload, SLEEP};
use crate::key;
use crate::limit::warn_rarely;
use crate::loss;
use crate::order::{Event, Item, Loss, StreamKey};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toroni::{
    BurstError, Entry, InletTopic, Lost, LostBound, LostReason, Origin, Pattern, PublishError,
};

impl Importing {
    /// Publishes what has its turn. Waits for the bus.
    pub(super) fn flush(&mut self) -> Result<(), Fatal> {
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
                    _ => self.deliveries.extend(Delivery::of(item, open_from)),
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
    pub(super) fn publish_at_once(&mut self) -> Result<(), Fatal> {
        let is_message = |event: &Event<Body>| {
            let Event::Deliver { item, .. } = event else { return false };
            !matches!(item.body, Body::Loss(..))
        };
        if !self.events.iter().all(is_message) {
            return Ok(());
        }
        for event in self.events.drain(..) {
            if let Event::Deliver { item, open_from } = event {
                self.deliveries.extend(Delivery::of(item, open_from));
            }
        }
        let longest = self.longest;
        let first_long = self.deliveries.iter().position(|delivery| is_too_long(delivery, longest));
        let mut deliveries = std::mem::take(&mut self.deliveries);
        let fitting = first_long.unwrap_or(deliveries.len());
        let done = self.publish_fitting(&deliveries[..fitting], Duration::ZERO)?;
        deliveries.drain(..done);
        self.deliveries = deliveries;
        Ok(())
    }

    fn publish(&mut self) -> Result<(), Fatal> {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        let mut rest = &deliveries[..];
        while !rest.is_empty() {
            let longest = self.longest;
            let first_long = rest.iter().position(|delivery| is_too_long(delivery, longest));
            let fitting = first_long.unwrap_or(rest.len());
            rest = &rest[self.publish_fitting(&rest[..fitting], SLEEP)?..];
            if let Some(delivery) =
                rest.first().filter(|delivery| is_too_long(delivery, self.longest))
            {
                self.too_long(delivery)?;
                rest = &rest[1..];
            }
        }
        deliveries.clear();
        self.deliveries = deliveries;
        Ok(())
    }

    /// Reports a message that the bus cannot take, at its place.
    fn too_long(&mut self, delivery: &Delivery) -> Result<(), Fatal> {
        let (bytes, limit) = (delivery.payload.len(), self.longest);
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

    /// Publishes messages, and returns how many are done with. It ends early if it learns that one is too long, or if
    /// `patience` is zero and it would have to wait. Otherwise it tries again each time that `patience` is over.
    fn publish_fitting(
        &mut self,
        deliveries: &[Delivery],
        patience: Duration,
    ) -> Result<usize, Fatal> {
        if self.topics.len() > self.limits.topics {
            self.topics.clear();
        }
        let mut entered = Vec::with_capacity(deliveries.len());
        let mut last: Option<(&Delivery, bool)> = None;
        for (at, delivery) in deliveries.iter().enumerate() {
            let is_known = match last {
                Some((last, is_known)) if last.has_topic_of(delivery) => is_known,
                _ => self.enter(delivery),
            };
            if is_known {
                entered.push(at);
            }
            last = Some((delivery, is_known));
        }
        let payloads: Vec<Cow<'_, [u8]>> =
            deliveries.iter().map(|delivery| delivery.payload.get()).collect();
        let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [&**payload]).collect();
        let mut entries = Vec::with_capacity(entered.len());
        let mut last: Option<(&Delivery, &InletTopic)> = None;
        for &at in &entered {
            let delivery = &deliveries[at];
            let topic = match last {
                Some((last, topic)) if last.has_topic_of(delivery) => topic,
                _ => &self.topics[&(delivery.import, delivery.topic.clone())],
            };
            last = Some((delivery, topic));
            entries.push(Entry {
                to_descendants: delivery.to_descendants,
                published_ns: delivery.published_ns,
                origin: Some(delivery.origin),
                open_from: delivery.open_from,
                ..Entry::new(topic, &parts[at])
            });
        }
        let counting = &self.context.counting;
        let mut done = 0;
        while done < entries.len() {
            let before = self.inlet.duplicates();
            let result = self.inlet.publish(&entries[done..], patience);
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
                PublishError::Timeout if patience.is_zero() => return Ok(entered[done]),
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

    /// Keeps on the bus how far a sender is accounted for.
    fn settled(&mut self, next: Origin) -> Result<(), Fatal> {
        let Some(at) = self.settled_at(StreamKey::of(next)) else { return Ok(()) };
        let next = at.origin((next.number + 1).min(Origin::NUMBER_LIMIT));
        loop {
            match self.inlet.advance(next, SLEEP) {
                Ok(()) => return Ok(()),
                Err(PublishError::Timeout) if !self.context.has_ended() => {}
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    warn_rarely!(%error, "cannot keep how far a sender is accounted for");
                    return Ok(());
                }
            }
        }
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
            match self.inlet.publish_lost(&lost, open_from, SLEEP) {
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

pub(super) struct Delivery {
    topic: Arc<str>,
    origin: Origin,
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
        Some(Self { topic, origin, open_from, payload, to_descendants, published_ns, import })
    }

    fn has_topic_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.topic, &other.topic) && self.import == other.import
    }
}

fn is_too_long(delivery: &Delivery, longest: usize) -> bool {
    delivery.payload.len() > longest
}

pub(super) fn is_fatal(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::Unlinked
            | PublishError::LeaseLost
            | PublishError::Forked(_)
            | PublishError::Corrupt(_)
            | PublishError::Os { .. }
    )
}
