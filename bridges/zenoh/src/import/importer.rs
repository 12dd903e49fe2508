//! What an import is, what comes from Zenoh for it, and which thread takes it.

use super::lines::Lines;
use super::published::Published;
use super::publishing::Ended;
use super::{Importing, Which};
use crate::BridgeError;
use crate::config::{Deletes, Import};
use crate::context::{Context, State, lock};
use crate::key::{self, Keys, Prefix};
use crate::limit::warn_rarely;
use crate::loss;
use crate::order::Order;
use crate::queue::{Arriving, Queue};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toroni::{Inlet, Pattern, PublisherError, RetainError};
use zenoh::Wait;
use zenoh::pubsub::Subscriber;
use zenoh::query::Queryable;
use zenoh::sample::{Locality, Sample};

/// How long to wait for a bus that has no room for another publisher.
const PAUSE: Duration = Duration::from_secs(1);

/// A checked import.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) patterns: Vec<Pattern>,
    pub(super) prefix: Prefix,
    pub(super) under: String,
    pub(super) history: bool,
    pub(super) reorder: Duration,
    pub(super) deletes: Deletes,
    pub(super) retains: bool,
    pub(super) batches: bool,
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
            retains: import.retain,
            batches: import.batches,
        })
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        let patterns = || other.patterns.iter();
        self.prefix == other.prefix
            && self.patterns.iter().any(|mine| patterns().any(|its| mine.intersects(its)))
    }

    /// Returns whether messages of a topic come here, wanted or not.
    pub(super) fn covers(&self, topic: &str) -> bool {
        topic == loss::TOPIC
            || self
                .patterns
                .iter()
                .any(|pattern| pattern.matches(topic) || pattern.matches_descendants(topic))
    }

    pub(super) fn wants(&self, topic: &str, to_descendants: bool) -> bool {
        self.patterns.iter().any(|pattern| {
            pattern.matches(topic) || to_descendants && pattern.matches_descendants(topic)
        })
    }

    /// Returns whether it wants messages that such a loss may have been.
    pub(super) fn is_concerned(&self, scope: &[Pattern]) -> bool {
        scope.iter().any(|scope| self.patterns.iter().any(|mine| mine.intersects(scope)))
    }

    /// Returns whether the two take the same samples in different ways: one alone, and the other in batches.
    pub(crate) fn is_mixed_with(&self, other: &Self) -> bool {
        self.prefix == other.prefix && self.batches != other.batches
    }

    pub(super) fn local(&self, topic: &str) -> String {
        if self.under.is_empty() { topic.to_owned() } else { format!("{}/{topic}", self.under) }
    }
}

/// Makes an inlet. Waits while the bus has no room for another publisher.
fn inlet(context: &Context) -> Result<Inlet, PublisherError> {
    loop {
        match context.bus.inlet() {
            Err(error @ PublisherError::TooManyPublishers { .. }) if !context.has_ended() => {
                warn_rarely!(%error, "the import waits for the bus");
                context.wait(PAUSE, State::is_over);
            }
            other => return other,
        }
    }
}

/// Running imports.
pub(crate) struct Importer {
    inbox: Arc<Inbox>,
    subscribers: Vec<Subscriber<()>>,
    witnesses: Vec<Queryable<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Importer {
    pub(crate) fn start(
        context: Arc<Context>,
        plans: Arc<Vec<Plan>>,
        limits: crate::config::Queue,
    ) -> Result<Self, BridgeError> {
        let (inlet, notes) = (inlet(&context)?.awaiting(), inlet(&context)?);
        let has_values = || context.bus.stats().is_ok_and(|stats| stats.retained.max_topics > 0);
        if plans.iter().any(|plan| plan.retains) && !has_values() {
            let error = RetainError::NoValues;
            tracing::warn!(%error, "cannot retain what is imported, which is published nevertheless");
        }
        let queue = Arc::new(Queue::new(limits.messages, limits.bytes));
        let importing = Importing {
            began: Instant::now(),
            order: Order::new(limits.topics, limits.messages),
            inlet,
            notes,
            queue: queue.clone(),
            limits,
            plans: plans.clone(),
            context: context.clone(),
            joining: HashMap::new(),
            serial: 0,
            unasked: Vec::new(),
            lines: Lines::default(),
            published: Published::default(),
            senders: HashSet::new(),
            foreign: HashMap::new(),
            topics: HashMap::new(),
            names: HashMap::new(),
            keys: Keys::default(),
            undeclared: Vec::new(),
            wanted: None,
            hops: HashMap::new(),
            events: Vec::new(),
            deliveries: Vec::new(),
            longest: usize::MAX,
            unlisted: (Instant::now(), Vec::new()),
            wakes_at: Duration::ZERO,
            is_stopping: false,
        };
        let inbox = Arc::new(Inbox { importing: Mutex::new(Some(importing)), queue, context });
        let (subscribers, witnesses) = (Vec::new(), Vec::new());
        let mut importer = Self { inbox, subscribers, witnesses, thread: None };
        importer.declare(&plans)?;
        // Only now: an export that is joined must find the subscribers. Until then, the queue has what comes.
        let run = {
            let inbox = importer.inbox.clone();
            move || inbox.run()
        };
        let builder = std::thread::Builder::new().name("import".to_owned());
        importer.thread = Some(builder.spawn(run).map_err(BridgeError::Thread)?);
        Ok(importer)
    }

    fn declare(&mut self, plans: &Arc<Vec<Plan>>) -> Result<(), BridgeError> {
        let mut prefixes: Vec<&Prefix> = Vec::new();
        let mut batched: Vec<&Prefix> = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            // Heartbeats first: they say where a numbering begins.
            self.subscribe(plan.prefix.control("beat/*/*"), move |inbox, sample| {
                inbox.enqueue(Arriving::Beat(index, sample));
            })?;
            self.subscribe(plan.prefix.control("loss/*/*"), move |inbox, sample| {
                inbox.enqueue(Arriving::Loss(index, sample));
            })?;
            if !prefixes.contains(&&plan.prefix) {
                prefixes.push(&plan.prefix);
                let (context, plans) = (self.inbox.context.clone(), plans.clone());
                let witness = self
                    .inbox
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
                self.witnesses.push(witness);
            }
            if plan.batches {
                // Imports with one prefix share them.
                if !batched.contains(&&plan.prefix) {
                    batched.push(&plan.prefix);
                    self.subscribe(plan.prefix.control("batch/*/*"), move |inbox, sample| {
                        inbox.batch(index, sample);
                    })?;
                }
                continue;
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
                    self.subscribe(expression.to_string(), move |inbox, sample| {
                        inbox.message(index, sample);
                    })?;
                }
            }
        }
        Ok(())
    }

    fn subscribe(
        &mut self,
        key: String,
        take: impl Fn(&Inbox, Sample) + Send + Sync + 'static,
    ) -> Result<(), BridgeError> {
        let inbox = self.inbox.clone();
        let subscriber = self
            .inbox
            .context
            .session
            .declare_subscriber(key)
            .allowed_origin(Locality::Remote)
            .callback(move |sample| take(&inbox, sample))
            .wait()
            .map_err(|source| BridgeError::Zenoh { action: "subscribe", source })?;
        self.subscribers.push(subscriber);
        Ok(())
    }

    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.subscribers.clear();
        self.witnesses.clear();
        let Some(thread) = self.thread.take() else {
            // Zenoh may keep its callbacks, and a successor needs the streams of the inlet.
            *lock(&self.inbox.importing) = None;
            return;
        };
        self.inbox.enqueue(Arriving::Stop);
        let _ = thread.join();
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        self.end();
    }
}

/// What Zenoh's threads and the import thread share.
struct Inbox {
    /// Taken before the lock of the queue. Zenoh's threads only try: the import thread keeps it while it waits for the bus.
    /// `None` after the end: Zenoh may keep its callbacks for longer, but a successor needs the streams of the inlet.
    importing: Mutex<Option<Importing>>,
    queue: Arc<Queue>,
    context: Arc<Context>,
}

impl Inbox {
    /// The import thread.
    fn run(&self) {
        while let Some(pause) = self.work() {
            self.queue.wait(pause);
        }
        *lock(&self.importing) = None;
    }

    /// Returns how long the import thread may sleep; `None` if it ends.
    fn work(&self) -> Option<Duration> {
        let mut importing = lock(&self.importing);
        let importing = importing.as_mut()?;
        if importing.is_stopping || self.context.has_ended() {
            return None;
        }
        let worked = importing.work();
        self.note(importing, worked).then(|| importing.pause())
    }

    /// Returns whether an import continues. Once it has ended, none of its threads publishes, reports or settles anything.
    fn note(&self, importing: &mut Importing, result: Result<(), Ended>) -> bool {
        let Err(ended) = result else { return true };
        importing.is_stopping = true;
        if let Ended::Failed(error) = ended {
            self.context.fail(format!("the import ends: {error}"));
        }
        false
    }

    fn enqueue(&self, arriving: Arriving) {
        self.queue.push(&self.context.counting, arriving);
    }

    /// Takes something in this thread of Zenoh and publishes what follows, if nothing waits. What one sender sends comes in
    /// one thread after the other, so nothing overtakes. Returns whether it was taken.
    fn at_once(&self, take: impl FnOnce(&mut Importing) -> Option<Result<(), Ended>>) -> bool {
        if !self.queue.is_idle() {
            return false;
        }
        let mut importing = match self.importing.try_lock() {
            Ok(importing) => importing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(importing) = importing.as_mut().filter(|importing| importing.is_idle()) else {
            return false;
        };
        let Some(taken) = take(importing) else { return false };
        let taken = taken.and_then(|()| importing.publish_at_once());
        if !self.note(importing, taken) || importing.has_work() {
            self.queue.wake();
        }
        true
    }

    fn message(&self, import: usize, sample: Sample) {
        let mut sample = Some(sample);
        let is_taken = self.at_once(|importing| {
            let sample = sample.take_if(|sample| importing.is_routine_sample(sample))?;
            Some(importing.message(import, sample))
        });
        if let Some(sample) = sample.filter(|_| !is_taken) {
            self.enqueue(Arriving::Message(import, sample));
        }
    }

    fn batch(&self, import: usize, sample: Sample) {
        self.context.counting.imported_batches.one();
        let bytes = sample.payload().clone();
        drop(sample);
        if !self
            .at_once(|importing| Some(importing.batch(import, bytes.clone(), 0, Which::Routine)))
        {
            self.enqueue(Arriving::Batch(import, bytes, 0));
        }
    }
}
