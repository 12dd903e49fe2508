//! A subscriber that a proactor serves in this thread: one of the ways to receive.

use crate::ways::Wish;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use system_tests::soak::verifier::Delivery;
use toroni::proactor::{Subscribe, Subscription};
use toroni::{Bus, Message, ReceiveError, Subscriber};
use toroni_proactor::{Config, Proactor};

pub(crate) struct Served {
    bus: Bus,
    proactor: Proactor,
    subscription: Subscription,
    arrived: Arc<Mutex<VecDeque<Result<Arrival, ReceiveError>>>>,
    /// Behind the last message that was taken.
    position: u64,
    lapses: u64,
}

/// A message that its handler was given.
pub(crate) struct Arrival {
    sequence: u64,
    position: u64,
    next_position: u64,
    topic: String,
    payload: Vec<u8>,
}

impl Arrival {
    fn of(message: &Message<'_>) -> Self {
        Self {
            sequence: message.sequence(),
            position: message.position(),
            next_position: message.next_position(),
            topic: message.topic().to_owned(),
            payload: message.payload().to_vec(),
        }
    }

    pub(crate) fn delivery(&self) -> Delivery<'_> {
        Delivery {
            sequence: self.sequence,
            position: self.position,
            next_position: Some(self.next_position),
            topic: &self.topic,
            payload: &self.payload,
        }
    }
}

/// On the engine of this configuration.
pub(crate) fn proactor(engine: &str) -> Proactor {
    Proactor::new(&Config::parse(engine).expect("a configuration")).expect("an engine")
}

impl Served {
    /// Serves a subscriber of this bus, and as many others as are wished beside it.
    pub(crate) fn new(bus: &Bus, subscriber: Subscriber, wish: &Wish<'_>) -> Self {
        let proactor = proactor(wish.engine);
        let (position, arrived) = (subscriber.position(), Arc::<Mutex<VecDeque<_>>>::default());
        let arrives = Arc::clone(&arrived);
        let subscription = proactor.subscribe(subscriber, move |message, _| {
            let message = message.map(|message| Arrival::of(&message));
            arrives.lock().expect("one thread").push_back(message);
        });
        for _ in 0..wish.beside {
            let other = bus.subscribe("**").expect("another subscriber");
            proactor.subscribe(other, |_, _| {}).expect("is served, too");
        }
        let subscription = subscription.expect("is served");
        Self { bus: bus.clone(), proactor, subscription, arrived, position, lapses: 0 }
    }

    /// The next message; `None` if none comes in that time.
    pub(crate) fn next(&mut self, limit: Duration) -> Result<Option<Arrival>, ReceiveError> {
        if self.arrived.lock().expect("one thread").is_empty() {
            self.proactor.handle_events(Some(limit));
        }
        let arrived = self.arrived.lock().expect("one thread").pop_front().transpose();
        match &arrived {
            Ok(Some(arrival)) => self.position = arrival.next_position,
            Err(ReceiveError::Lapped { .. }) => self.lapses += 1,
            _ => {}
        }
        arrived
    }

    /// Behind the last message that was taken.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the stream after that.
    pub(crate) fn lag_bytes(&self) -> u64 {
        // The tail is raised after the commit, so what has arrived can be ahead of it.
        self.bus.stats().expect("statistics").tail.saturating_sub(self.position)
    }

    /// How often the bus reported a loss to it.
    pub(crate) fn lapses(&self) -> u64 {
        self.lapses
    }
}

impl Drop for Served {
    /// It leaves in order.
    fn drop(&mut self) {
        self.subscription.cancel();
        while !self.subscription.is_over() {
            self.proactor.handle_events(Some(Duration::from_millis(1)));
        }
    }
}
