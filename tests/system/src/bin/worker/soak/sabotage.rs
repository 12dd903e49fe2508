//! The mistake that a sabotaged worker makes once. The soak must notice it.

use system_tests::soak::mix::Lane;
use system_tests::soak::source::{Label, Read, read};
use system_tests::soak::verifier::Delivery;

/// Messages before it happens.
const AFTER: u64 = 3000;

/// One mistake of a subscriber.
#[derive(Default)]
pub(crate) struct Sabotage {
    what: Option<String>,
    seen: u64,
    held: Option<Kept>,
}

/// A message that outlives the subscriber's next call.
#[derive(Clone)]
struct Kept {
    position: (u64, u64, Option<u64>),
    topic: String,
    payload: Vec<u8>,
}

impl Sabotage {
    pub(crate) fn new(what: Option<String>) -> Self {
        Self { what, ..Self::default() }
    }

    /// Whether to keep the next loss secret, or to report it as larger than it was.
    pub(crate) fn on_loss(&mut self, messages: u64) -> Option<u64> {
        match self.what.as_deref() {
            Some("swallow") => None,
            Some("overcount") => Some(messages + 1),
            _ => Some(messages),
        }
    }

    /// By how much to say that a message is newer than it is, where its topic's value is compared with it.
    pub(crate) fn ahead(&self) -> u64 {
        match self.what.as_deref() {
            Some("stale") if self.seen > AFTER => 1 << 40,
            _ => 0,
        }
    }

    /// Hands on what is held, as it was: what comes now is no neighbour of it.
    pub(crate) fn give_back(&mut self, mut take: impl FnMut(&Delivery<'_>)) {
        if let Some(held) = self.held.take() {
            held.hand_on(held.position, &mut take);
        }
    }

    /// Hands on what was delivered, or what is made of it.
    pub(crate) fn pass(&mut self, delivery: &Delivery<'_>, mut take: impl FnMut(&Delivery<'_>)) {
        self.seen += 1;
        let Some(what) = self.what.clone().filter(|_| self.seen > AFTER) else {
            return take(delivery);
        };
        match what.as_str() {
            "drop" => self.what = None,
            "double" => {
                take(delivery);
                take(delivery);
                self.what = None;
            }
            "tear" if delivery.payload.len() > 1 => {
                let mut payload = delivery.payload.to_vec();
                let last = payload.len() - 1;
                payload[last] ^= 0x10;
                take(&Delivery { payload: &payload, ..*delivery });
                self.what = None;
            }
            // The second first.
            "swap" => match self.held.take() {
                None => self.held = Some(Kept::of(delivery)),
                Some(held) => {
                    take(delivery);
                    held.hand_on(held.position, &mut take);
                    self.what = None;
                }
            },
            // Two publishers' messages, each at the other's position: no subscriber notices alone.
            "exchange" => match self.held.take() {
                None if single(delivery).is_some() => self.held = Some(Kept::of(delivery)),
                Some(held) => match (single(delivery), held.single()) {
                    (Some(one), Some(other)) if one.worker != other.worker => {
                        let this = Kept::of(delivery);
                        this.hand_on(held.position, &mut take);
                        held.hand_on(this.position, &mut take);
                        self.what = None;
                    }
                    _ => {
                        held.hand_on(held.position, &mut take);
                        take(delivery);
                    }
                },
                None => take(delivery),
            },
            _ => take(delivery),
        }
    }
}

impl Kept {
    fn of(delivery: &Delivery<'_>) -> Self {
        Self {
            position: (delivery.sequence, delivery.position, delivery.next_position),
            topic: delivery.topic.to_owned(),
            payload: delivery.payload.to_vec(),
        }
    }

    fn hand_on(&self, position: (u64, u64, Option<u64>), take: &mut impl FnMut(&Delivery<'_>)) {
        let (sequence, position, next_position) = position;
        let (topic, payload) = (self.topic.as_str(), self.payload.as_slice());
        take(&Delivery { sequence, position, next_position, topic, payload });
    }

    fn single(&self) -> Option<Label> {
        label_of(&self.topic, &self.payload)
    }
}

fn single(delivery: &Delivery<'_>) -> Option<Label> {
    label_of(delivery.topic, delivery.payload)
}

/// The label of a message that is in no batch.
fn label_of(topic: &str, payload: &[u8]) -> Option<Label> {
    let (lane, number) = Lane::of_topic(topic)?;
    match read(lane, number, payload) {
        Ok(Read::Labelled(label)) if (label.index, label.behind) == (0, 0) => Some(label),
        _ => None,
    }
}
