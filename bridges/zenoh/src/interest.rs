//! Whether anyone takes what an export sends: samples of their own, or batches.
//!
//! Messages go as samples of their own unless only importers of batches are there, so that any program of Zenoh gets
//! them. Without this, an export would do the work for both.
//!
//! Zenoh turns a switch on when it notices a subscriber, and so does the query of an importer that joins. Only the
//! export turns it off, with its heartbeat, when Zenoh knows of no subscriber, and nothing has turned it on meanwhile.

use crate::BridgeError;
use crate::context::Context;
use crate::export::Plan;
use crate::key;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zenoh::Wait;
use zenoh::matching::MatchingListener;
use zenoh::pubsub::Publisher;
use zenoh::sample::Locality;

/// Whether there are subscribers. Bit 0 says so; the rest counts how often that was noticed.
#[derive(Debug)]
struct Switch(AtomicU64);

impl Default for Switch {
    /// On: a bridge that takes over must not wait until the subscribers of its predecessor are noticed.
    fn default() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Switch {
    fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) & 1 == 1
    }

    fn turn_on(&self) {
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some((now | 1) + 2));
    }

    /// Makes it say what `has_subscribers` finds, unless it is turned on meanwhile.
    fn review(&self, has_subscribers: impl FnOnce() -> bool) {
        let seen = self.0.load(Ordering::Acquire);
        match (seen & 1 == 1, has_subscribers()) {
            (true, false) => {
                let off = seen - 1;
                let _ = self.0.compare_exchange(seen, off, Ordering::AcqRel, Ordering::Relaxed);
            }
            // Zenoh does not say so if subscribers leave and return at once.
            (false, true) => self.turn_on(),
            _ => {}
        }
    }
}

/// The switches of an export.
#[derive(Debug, Default)]
struct Switches {
    samples: Switch,
    batches: Switch,
}

/// Watches the subscribers of an export.
pub(crate) struct Interest {
    switches: Arc<Switches>,
    /// One for each pattern of what the export sends as samples of their own.
    samples: Vec<Publisher<'static>>,
    _listeners: Vec<MatchingListener<()>>,
}

impl Interest {
    pub(crate) fn watch(
        context: &Context,
        plan: &Plan,
        batches: &Publisher<'static>,
    ) -> Result<Self, BridgeError> {
        let switches = Arc::<Switches>::default();
        let failed = |source| BridgeError::Zenoh { action: "watch for subscribers", source };
        let noticed = switches.clone();
        let listener = batches
            .matching_listener()
            .callback(move |status| {
                if status.matching() {
                    noticed.batches.turn_on();
                }
            })
            .wait()
            .map_err(failed)?;
        let mut listeners = vec![listener];
        let mut samples = Vec::new();
        // Posts to descendants come from above the patterns.
        let above = |pattern: &toroni::Pattern| key::ancestors(pattern.as_str());
        let own = plan.patterns.iter().map(|pattern| pattern.as_str().to_owned());
        for text in own.chain(plan.patterns.iter().flat_map(above)) {
            let publisher = context
                .session
                .declare_publisher(key::expression(plan.prefix.key(&text)).map_err(failed)?)
                .allowed_destination(Locality::Remote)
                .wait()
                .map_err(failed)?;
            let noticed = switches.clone();
            let listener = publisher
                .matching_listener()
                .callback(move |status| {
                    if status.matching() {
                        noticed.samples.turn_on();
                    }
                })
                .wait()
                .map_err(failed)?;
            listeners.push(listener);
            samples.push(publisher);
        }
        Ok(Self { switches, samples, _listeners: listeners })
    }

    /// Learns of an importer that joins, and takes batches or samples of their own.
    pub(crate) fn notice(&self, batches: bool) {
        let Switches { samples, batches: of_batches } = &*self.switches;
        if batches { of_batches.turn_on() } else { samples.turn_on() }
    }

    /// Returns whether messages must go as samples of their own.
    pub(crate) fn is_for_samples(&self) -> bool {
        self.switches.samples.is_on() || !self.switches.batches.is_on()
    }

    pub(crate) fn is_for_batches(&self) -> bool {
        self.switches.batches.is_on()
    }

    /// Looks for subscribers that have left, and for those that were not noticed.
    pub(crate) fn review(&self, batches: &Publisher<'static>) {
        // An error means that the session is closed.
        let matches = |publisher: &Publisher<'static>| {
            publisher.matching_status().wait().is_ok_and(|status| status.matching())
        };
        self.switches.batches.review(|| matches(batches));
        self.switches.samples.review(|| self.samples.iter().any(matches));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_that_comes_while_there_seem_to_be_none_is_not_overlooked() {
        let switch = Switch::default();
        assert!(switch.is_on());
        switch.review(|| true);
        assert!(switch.is_on());
        switch.review(|| {
            switch.turn_on();
            false
        });
        assert!(switch.is_on());
        switch.review(|| false);
        assert!(!switch.is_on());
        switch.review(|| false);
        assert!(!switch.is_on());
        switch.turn_on();
        assert!(switch.is_on());
        switch.review(|| false);
        switch.review(|| true);
        assert!(switch.is_on());
    }
}
