//! The wait for the event of one command.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::{Duration, Instant};

use toroni::{Lost, Origin, ReceiveError, Subscriber};

/// After the time is over, at most this many messages that have already arrived are read.
const AFTERWARDS: u32 = 4096;

/// A command that was sent. Only its event says that it is part of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sent {
    /// The series of the command bus.
    pub series: u32,
    /// The number in the series.
    pub number: u64,
}

impl Sent {
    /// Returns whether the message with this origin is the event of this command.
    #[must_use]
    pub fn is_echo(&self, origin: &Origin) -> bool {
        origin.series == self.series && origin.number == self.number
    }
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Echo {
    /// It is the event with this number.
    Event(u64),
    /// It never left this host, and the order says so: it was overwritten while no node brought commands.
    Lost,
    /// Events did not reach this program, and that of the command may be among them. Waiting again may still find it.
    Missed,
}

/// A command that was sent, with a subscriber of the feed that waits for its event. While it exists and the event has not
/// come, publishers of the feed's bus wait for it as for every subscriber.
#[derive(Debug)]
pub struct Pending {
    sent: Sent,
    /// The source of losses on the way from the members to this host.
    feed: u32,
    /// None once the outcome is certain.
    events: Option<Subscriber>,
    outcome: Option<Echo>,
}

impl Pending {
    pub(super) fn new(sent: Sent, feed: u32, events: Subscriber) -> Self {
        Self { sent, feed, events: Some(events), outcome: None }
    }

    /// Returns what was sent.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Waits until it is known what became of the command, at most for `limit`. Returns `None` after that: the command may
    /// still become an event, and a further call continues to wait.
    ///
    /// # Errors
    ///
    /// If the bus of the feed cannot be read. Losses are no errors, but an outcome.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<Option<Echo>, ReceiveError> {
        let Some(events) = &mut self.events else { return Ok(self.outcome) };
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut afterwards = 0;
        let outcome = loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                if afterwards == AFTERWARDS {
                    return Ok(None);
                }
                afterwards = u32::saturating_add(afterwards, 1);
            }
            let received = match left {
                None => events.receive().map(Some),
                Some(left) => events.receive_timeout(left),
            };
            match received {
                Ok(None) => return Ok(None),
                Ok(Some(message)) => {
                    let Some(origin) = message.origin().filter(|it| it.series == self.sent.series)
                    else {
                        continue;
                    };
                    match message.number() {
                        Some(number) if self.sent.is_echo(&origin) => break Echo::Event(number),
                        // Commands of one bus keep their order, so its event was before.
                        _ if origin.number > self.sent.number => break Echo::Missed,
                        _ => {}
                    }
                }
                Err(ReceiveError::Lost(lost)) => {
                    if lost.from.source == self.feed {
                        return Ok(Some(Echo::Missed));
                    }
                    if covers(&lost, self.sent) {
                        break Echo::Lost;
                    }
                }
                Err(ReceiveError::Lapped { .. }) => return Ok(Some(Echo::Missed)),
                Err(error) => return Err(error),
            }
        };
        self.outcome = Some(outcome);
        self.events = None;
        Ok(self.outcome)
    }
}

/// Returns whether a loss says that this command never left.
fn covers(lost: &Lost, sent: Sent) -> bool {
    lost.from.series == sent.series && (lost.from.number..lost.until).contains(&sent.number)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use toroni::{BusConfig, Entry, Inlet, Limit, LostBound, LostReason, Pattern, PublishError};
    use toroni_proto::id::Source;
    use toroni_testkit::Directory;

    use super::super::{Commands, CommandsError};
    use super::*;

    const HERE: u32 = 7;
    const SHORT: Option<Duration> = Some(Duration::from_millis(20));

    /// The bus of events, written as a follower does, and a program that sends commands.
    struct Host {
        _directory: Directory,
        events: Inlet,
        commands: Arc<Commands>,
    }

    impl Host {
        fn new() -> Self {
            let directory = Directory::new();
            let config = BusConfig::new().directory(directory.path()).capacity(64 << 10);
            let events = config.open("orders").map(|bus| bus.inlet().expect("an inlet"));
            let commands = Arc::new(Commands::open_with(config, "orders").expect("opened"));
            Self { events: events.expect("opened"), commands, _directory: directory }
        }

        fn send(&self) -> Pending {
            self.commands.send_and_watch("new/order", "7 boxes").expect("sent")
        }

        fn event(&self, number: u64, sent: Sent) {
            let topic = self.events.topic("new/order").expect("a topic");
            let Sent { series, number: of_command } = sent;
            let origin = Origin { source: HERE, series, stream: 0, number: of_command };
            let parts: [&[u8]; 1] = [b"7 boxes"];
            let entry = Entry { number: Some(number), ..Entry::new(&topic, &parts) };
            self.events
                .publish(&[Entry { origin: Some(origin), ..entry }], Limit::Policy)
                .expect("published");
        }

        fn lost(&self, from: Origin, until: u64, reason: LostReason) {
            let scope = vec![Pattern::new("**").expect("a pattern")];
            let (bound, messages) = (LostBound::Exact, until - from.number);
            let lost = Lost { from, until, messages, bound, reason, scope };
            self.events.publish_lost(&lost, None, Limit::Policy).expect("published");
        }
    }

    fn waited(pending: &mut Pending, limit: Option<Duration>) -> Option<Echo> {
        pending.wait(limit).expect("readable")
    }

    #[test]
    fn an_event_is_awaited_among_others() {
        let host = Host::new();
        let mut first = host.send();
        let mut second = host.send();
        let (one, two) = (first.sent(), second.sent());
        assert_eq!((one.number, two.number, one.series), (0, 1, host.commands.series()));
        assert_eq!(waited(&mut first, SHORT), None, "no event yet");
        host.event(3, Sent { series: one.series ^ 1, ..one });
        assert_eq!(waited(&mut first, Some(Duration::ZERO)), None, "another host's");
        host.event(4, one);
        host.event(6, two);
        assert_eq!(waited(&mut first, None), Some(Echo::Event(4)));
        assert_eq!(waited(&mut second, None), Some(Echo::Event(6)));
        assert_eq!(waited(&mut first, SHORT), Some(Echo::Event(4)), "it is known");
        let subscribers = host.events.bus().stats().expect("stats").subscribers;
        assert_eq!(subscribers.expect("visible").len(), 0, "none waits any more");
    }

    #[test]
    fn the_order_says_that_a_command_never_left() {
        let host = Host::new();
        let _before = host.send();
        let mut pending = host.send();
        let Sent { series, number } = pending.sent();
        let from = |source, series, number| Origin { source, series, stream: 0, number };
        host.lost(from(HERE + 1, series ^ 1, 0), 9, LostReason::Overtaken);
        host.lost(from(HERE, series, 0), number, LostReason::Overtaken);
        assert_eq!(waited(&mut pending, SHORT), None, "these are others");
        host.lost(from(HERE, series, number), number + 1, LostReason::Overtaken);
        assert_eq!(waited(&mut pending, None), Some(Echo::Lost));
    }

    #[test]
    fn events_that_were_lost_here_may_be_the_one() {
        let host = Host::new();
        let mut pending = host.send();
        let sent = pending.sent();
        let feed = Source::of_feed("orders").0;
        let from = Origin { source: feed, series: 0, stream: 0, number: 5 };
        host.lost(from, 6, LostReason::TooLong);
        assert_eq!(waited(&mut pending, None), Some(Echo::Missed));
        // It was another one.
        assert_eq!(waited(&mut pending, SHORT), None);
        host.event(7, sent);
        assert_eq!(waited(&mut pending, None), Some(Echo::Event(7)));
        // A later command has an event, and this one had none.
        let mut pending = host.send();
        let later = host.commands.send("new/order", "8 boxes").expect("sent");
        host.event(9, later);
        assert_eq!(waited(&mut pending, None), Some(Echo::Missed));
        assert_eq!(waited(&mut pending, SHORT), Some(Echo::Missed), "it is known");
    }

    #[test]
    fn nothing_is_sent_without_a_bus_of_events() {
        let directory = Directory::new();
        let config = BusConfig::new().directory(directory.path());
        let commands = Commands::open_with(config, "orders").expect("opened");
        let error = commands.send_and_watch("new/order", "7 boxes").expect_err("no bus");
        assert!(matches!(error, CommandsError::Open(_)), "{error}");
        assert_eq!(commands.bus().stats().expect("stats").sequence, 0);
    }

    #[test]
    fn a_full_command_bus_ends_a_wait_in_time() {
        let host = Host::new();
        let _courier = host.commands.bus().subscribe("**").expect("subscribed");
        let commands = Arc::clone(&host.commands);
        // Another thread: this one would wait for itself.
        let full = std::thread::spawn(move || {
            loop {
                let limit = Duration::from_millis(5);
                if let Err(error) = commands.send_timeout("new/order", [0; 1000], limit) {
                    return error;
                }
            }
        });
        let error = full.join().expect("no panic");
        assert!(matches!(error, CommandsError::Publish(PublishError::Timeout)), "{error}");
    }
}
