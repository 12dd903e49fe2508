//! How an export gives messages to Zenoh: as samples of their own, and in batches for importers that take those.

use crate::BridgeError;
use crate::attachment::Attachment;
use crate::batch::Batch;
use crate::context::Context;
use crate::export::Plan;
use crate::interest::Interest;
use crate::key::{self, Keys};
use crate::limit::warn_rarely;
use crate::witness;
use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;
use std::time::Duration;
use zenoh::Wait;
use zenoh::bytes::{Encoding, ZBytes};
use zenoh::pubsub::Publisher;
use zenoh::sample::Locality;
use zenoh::time::{NTP64, Timestamp, TimestampId};

/// As many topics are remembered.
const TOPICS: usize = 64 << 10;
/// A batch is sent when it has as many bytes. With the next message it usually stays below what Zenoh sends in one piece.
const LONG: usize = 48 << 10;

pub(crate) struct Sending {
    context: Arc<Context>,
    plan: Arc<Plan>,
    clock: Option<TimestampId>,
    by_topic: HashMap<String, Sender>,
    keys: Keys,
    interest: Interest,
    batch: Batch,
    batches: Publisher<'static>,
}

/// How messages on a topic are sent.
enum Sender {
    Publisher(Publisher<'static>),
    Key {
        key: String,
        encoding: Encoding,
        express: bool,
    },
    /// It has no key.
    None,
}

impl Sending {
    pub(crate) fn new(context: Arc<Context>, plan: Arc<Plan>) -> Result<Self, BridgeError> {
        let name = witness::name("batch", &context.identity.bus, plan.stream);
        let batches = context
            .session
            .declare_publisher(plan.prefix.control(&name))
            .priority(plan.priority)
            .congestion_control(plan.congestion)
            .allowed_destination(Locality::Remote)
            .wait()
            .map_err(|source| BridgeError::Zenoh { action: "declare a publisher", source })?;
        let zid = context.session.info().zid().wait();
        Ok(Self {
            interest: Interest::watch(&context, &plan, &batches)?,
            clock: TimestampId::try_from(&zid.to_le_bytes()[..]).ok(),
            by_topic: HashMap::new(),
            keys: Keys::default(),
            batch: Batch::default(),
            batches,
            context,
            plan,
        })
    }

    /// Learns that an importer joins. It gets what is sent from now on.
    pub(crate) fn notice(&self, batches: bool) {
        self.interest.notice(batches);
    }

    /// Looks for subscribers that have come or left.
    pub(crate) fn review_interest(&self) {
        self.interest.review(&self.batches);
    }

    /// Sends a message, or appends it to the batch: then [`Self::flush`] sends it. Returns whether it is on its way.
    pub(crate) fn send(
        &mut self,
        topic: &str,
        payload: &[u8],
        attachment: &Attachment,
        published: Option<Duration>,
    ) -> bool {
        let is_batched = self.interest.is_for_batches();
        if is_batched {
            let nanoseconds = published.map_or(0, |published| published.as_nanos());
            let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
            if self.batch.len() + payload.len() > LONG {
                self.flush();
            }
            self.batch.push(topic, attachment, nanoseconds, payload);
        }
        if self.interest.is_for_samples() {
            let is_sent = self.put(topic, payload, attachment, published);
            let counting = &self.context.counting;
            if is_sent {
                counting.exported_samples.one();
            }
            if is_sent && !is_batched {
                counting.exported_messages.one();
                counting.exported_bytes.add(payload.len() as u64);
            }
            return is_sent || is_batched;
        }
        true
    }

    /// Sends the batch.
    pub(crate) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let counting = &self.context.counting;
        let (messages, bytes) = (self.batch.messages(), self.batch.payload_bytes());
        match self.batches.put(self.batch.take()).wait() {
            Ok(()) => {
                counting.exported_batches.one();
                counting.exported_messages.add(messages);
                counting.exported_bytes.add(bytes);
            }
            Err(error) => {
                counting.export_failed.add(messages);
                warn_rarely!(%error, messages, "Zenoh does not take a batch");
            }
        }
    }

    fn put(
        &mut self,
        topic: &str,
        payload: &[u8],
        attachment: &Attachment,
        published: Option<Duration>,
    ) -> bool {
        if !self.by_topic.contains_key(topic) {
            let sender = self.sender(topic);
            self.by_topic.insert(topic.to_owned(), sender);
        }
        let payload = ZBytes::from(payload);
        let attachment = ZBytes::from(attachment.to_bytes());
        let timestamp =
            published.zip(self.clock).map(|(time, clock)| Timestamp::new(NTP64::from(time), clock));
        let sent = match &self.by_topic[topic] {
            Sender::Publisher(publisher) => {
                publisher.put(payload).attachment(attachment).timestamp(timestamp).wait()
            }
            Sender::Key { key, encoding, express } => self
                .context
                .session
                .put(key.as_str(), payload)
                .encoding(encoding.clone())
                .express(*express)
                .priority(self.plan.priority)
                .congestion_control(self.plan.congestion)
                .allowed_destination(Locality::Remote)
                .attachment(attachment)
                .timestamp(timestamp)
                .wait(),
            Sender::None => {
                self.context.counting.export_no_key.one();
                return false;
            }
        };
        if let Err(error) = sent {
            self.context.counting.export_failed.one();
            warn_rarely!(%error, topic, "Zenoh does not take a message");
            return false;
        }
        true
    }

    fn sender(&mut self, topic: &str) -> Sender {
        if self.by_topic.len() >= TOPICS {
            self.by_topic.clear();
            self.keys.undeclare(&self.context.session);
        }
        let key = self.plan.prefix.key(topic);
        if key::has_verbatim(topic) {
            self.context.counting.export_verbatim.one();
            warn_rarely!(
                topic,
                "no wildcard of Zenoh matches a segment that begins with @: importers must name it"
            );
        }
        let express = self.plan.express.iter().any(|pattern| pattern.matches(topic));
        let encoding = self.plan.encoding_of(topic);
        let Some(key) = self.keys.declare(&self.context.session, &key) else {
            return match zenoh::key_expr::KeyExpr::try_from(key.as_str()) {
                Ok(_) => Sender::Key { key, encoding, express },
                Err(error) => self.no_key(topic, &error),
            };
        };
        let publisher = self
            .context
            .session
            .declare_publisher(key)
            .encoding(encoding)
            .express(express)
            .priority(self.plan.priority)
            .congestion_control(self.plan.congestion)
            .allowed_destination(Locality::Remote)
            .wait();
        match publisher {
            Ok(publisher) => Sender::Publisher(publisher),
            Err(error) => self.no_key(topic, &error),
        }
    }

    fn no_key(&self, topic: &str, error: &zenoh::Error) -> Sender {
        warn_rarely!(%error, topic, "a topic has no key in Zenoh: its messages count as lost");
        Sender::None
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.by_topic.clear();
        self.keys.undeclare(&self.context.session);
    }
}
