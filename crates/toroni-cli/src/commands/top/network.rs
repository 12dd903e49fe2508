//! What the nodes of a bus say about themselves, made of their notices. No I/O: `nodes` reads the notices.

use serde::Serialize;
use toroni_shell::human::as_f64;
use toroni_shell::notice::{Crybaby, End, Heard, Notice, Receiver, Sent, Sequencer, Stats};

/// A receiver stays marked for this long after it was reported as a crybaby, which happens every 10 s.
const CRIES_SECONDS: f64 = 30.0;
/// A node that published nothing for this long is silent. It publishes every second.
const SILENT_SECONDS: f64 = 5.0;
/// How many crybabies are remembered.
const MOST_CRYBABIES: usize = 64;

/// The nodes that connect a bus.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct NetworkModel {
    pub(super) nodes: Vec<NodeModel>,
}

impl NetworkModel {
    /// Returns the number of rows of the longest panel.
    pub(super) fn most_rows(&self) -> usize {
        let sum = |of: fn(&NodeModel) -> usize| self.nodes.iter().map(of).sum();
        let rows = [
            sum(|it| it.sent.len()),
            sum(|it| it.heard.len()),
            sum(|it| it.receivers.len()),
            sum(|it| usize::from(it.feed.is_some())),
        ];
        rows.into_iter().max().unwrap_or(0)
    }
}

/// One node.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct NodeModel {
    pub(super) node: String,
    pub(super) realm: String,
    /// For how long it published nothing, if that is too long.
    pub(super) silent_seconds: Option<f64>,
    /// Datagrams that its sockets had no room for.
    pub(super) kernel_dropped: u64,
    /// Entries of its lists that did not fit its notice.
    pub(super) left_out: u64,
    pub(super) sent: Vec<SentModel>,
    pub(super) receivers: Vec<ReceiverModel>,
    pub(super) heard: Vec<HeardModel>,
    /// The feed that it takes part in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) feed: Option<FeedModel>,
}

/// What a node does for a feed. Rates are those of the last second.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FeedModel {
    pub(super) commands_per_second: Option<f64>,
    pub(super) events_per_second: Option<f64>,
    /// Events that came to the bus of the host by themselves, and those that members were asked for.
    pub(super) came_per_second: Option<f64>,
    pub(super) asked_per_second: Option<f64>,
    #[serde(flatten)]
    pub(super) now: Sequencer,
}

/// A stream that a node sends. Rates are those of the last second.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct SentModel {
    pub(super) stream: u16,
    pub(super) messages_per_second: Option<f64>,
    pub(super) datagrams_per_second: Option<f64>,
    /// Datagrams that were sent again, as a share of the new ones, since the start.
    pub(super) repaired_share: Option<f64>,
    pub(super) naks_per_second: Option<f64>,
    pub(super) receivers: u64,
    /// What waits in the ring.
    pub(super) lag_bytes: u64,
    /// Messages that were overwritten there before they were sent.
    pub(super) overtaken: u64,
}

/// A receiver of a stream that a node sends.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ReceiverModel {
    pub(super) stream: u16,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) lag_datagrams: u64,
    pub(super) lost: u64,
    pub(super) naks: u64,
    pub(super) kernel_dropped: u32,
    pub(super) rtt_seconds: f64,
    /// Whether it takes more than half of all retransmissions.
    pub(super) is_crybaby: bool,
}

/// A stream that a node hears.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct HeardModel {
    pub(super) name: String,
    pub(super) stream: u16,
    pub(super) messages_per_second: Option<f64>,
    pub(super) lost: u64,
    pub(super) naks: u64,
    pub(super) repaired: u64,
    pub(super) open_gaps: u64,
    /// Datagrams that wait for a missing one.
    pub(super) held_datagrams: u64,
}

/// What one node has published.
#[derive(Default)]
pub(super) struct NodeHistory {
    before: Option<Notice<Stats>>,
    current: Option<Notice<Stats>>,
    crybabies: Vec<Notice<Crybaby>>,
}

impl NodeHistory {
    pub(super) fn stats(&mut self, notice: Notice<Stats>) {
        // After a restart the counters began again.
        let continues = self.current.take().filter(|before| {
            before.content.session == notice.content.session && before.time < notice.time
        });
        self.before = continues;
        self.current = Some(notice);
    }

    /// Returns whether the node was stopped in order, unless another session of it has begun.
    pub(super) fn is_ended_by(&self, end: &End) -> bool {
        self.current.as_ref().is_some_and(|current| current.content.session == end.session)
    }

    /// Returns the time of its latest notice, in seconds since 1970.
    pub(super) fn latest(&self) -> f64 {
        self.current.as_ref().map_or(0.0, |current| current.time)
    }

    /// Returns whether it has published nothing for longer than nodes that run.
    pub(super) fn is_silent(&self, now: f64) -> bool {
        now - self.latest() >= SILENT_SECONDS
    }

    pub(super) fn crybaby(&mut self, notice: Notice<Crybaby>) {
        self.crybabies.retain(|one| notice.time - one.time < CRIES_SECONDS);
        if self.crybabies.len() < MOST_CRYBABIES {
            self.crybabies.push(notice);
        }
    }

    /// Returns what is to be shown at a time, in seconds since 1970.
    pub(super) fn model(&self, now: f64) -> Option<NodeModel> {
        let current = self.current.as_ref()?;
        let stats = &current.content;
        let silent = self.is_silent(now).then_some(now - current.time);
        let sockets = stats.sockets.iter();
        Some(NodeModel {
            node: current.node.clone(),
            realm: stats.realm.clone(),
            silent_seconds: silent,
            kernel_dropped: sockets.fold(0, |sum, one| sum.saturating_add(one.dropped)),
            left_out: stats.left_out,
            sent: stats.sent.iter().map(|one| self.sent(one)).collect(),
            receivers: stats
                .sent
                .iter()
                .flat_map(|sent| sent.receivers.iter().map(|one| self.receiver(now, sent, one)))
                .collect(),
            heard: stats.heard.iter().map(|one| self.heard(one)).collect(),
            feed: stats.sequencer.as_ref().map(|now| self.feed(now)),
        })
    }

    fn feed(&self, now: &Sequencer) -> FeedModel {
        let before = self.before.as_ref().and_then(|before| before.content.sequencer.as_ref());
        FeedModel {
            commands_per_second: self.rate(before.map(|before| before.brought), now.brought),
            events_per_second: self.rate(before.map(Sequencer::events), now.events()),
            came_per_second: self.rate(before.map(|before| before.came), now.came),
            asked_per_second: self.rate(before.map(|before| before.asked), now.asked),
            now: now.clone(),
        }
    }

    /// Returns the rate of a counter between the last two notices.
    fn rate(&self, before: Option<u64>, now: u64) -> Option<f64> {
        let seconds = self.current.as_ref()?.time - self.before.as_ref()?.time;
        let more = now.checked_sub(before?)?;
        (seconds > 0.0).then(|| as_f64(more) / seconds)
    }

    fn sent(&self, one: &Sent) -> SentModel {
        let before = self.before.iter().flat_map(|before| &before.content.sent);
        let before = before.into_iter().find(|before| before.stream == one.stream);
        let rate = |of: fn(&Sent) -> u64| self.rate(before.map(of), of(one));
        SentModel {
            stream: one.stream,
            messages_per_second: rate(|one| one.messages),
            datagrams_per_second: rate(|one| one.datagrams),
            repaired_share: (one.datagrams > 0)
                .then(|| as_f64(one.retransmissions) / as_f64(one.datagrams)),
            naks_per_second: rate(|one| one.naks),
            receivers: u64::try_from(one.receivers.len()).unwrap_or(u64::MAX),
            lag_bytes: one.lag_bytes,
            overtaken: one.overtaken,
        }
    }

    fn receiver(&self, now: f64, sent: &Sent, one: &Receiver) -> ReceiverModel {
        let cries = |crybaby: &Notice<Crybaby>| {
            let Crybaby { stream, address, .. } = &crybaby.content;
            *stream == sent.stream && *address == one.address && now - crybaby.time < CRIES_SECONDS
        };
        ReceiverModel {
            stream: sent.stream,
            name: one.name.clone(),
            address: one.address.clone(),
            lag_datagrams: one.lag_datagrams,
            lost: one.lost,
            naks: one.naks,
            kernel_dropped: one.kernel_dropped,
            rtt_seconds: one.rtt_seconds,
            is_crybaby: self.crybabies.iter().any(cries),
        }
    }

    fn heard(&self, one: &Heard) -> HeardModel {
        let is_same = |before: &&Heard| {
            (&before.source, before.stream, before.session)
                == (&one.source, one.stream, one.session)
        };
        let before = self.before.iter().flat_map(|before| &before.content.heard).find(is_same);
        // A source whose SESSION has not come yet has no name.
        let name = if one.name.is_empty() { &one.source } else { &one.name };
        HeardModel {
            name: name.clone(),
            stream: one.stream,
            messages_per_second: self.rate(before.map(|before| before.messages), one.messages),
            lost: one.lost,
            naks: one.naks,
            repaired: one.repaired,
            open_gaps: one.open_gaps,
            held_datagrams: one.held_datagrams,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_shell::notice::{OrderMember, Socket};

    fn stats(time: f64, session: u32, messages: u64) -> Notice<Stats> {
        let address = "10.0.0.7:4000".to_owned();
        let receiver = Receiver { name: "line-7".to_owned(), address, ..Receiver::default() };
        let sent = Sent {
            stream: 1,
            messages,
            datagrams: messages / 2,
            retransmissions: messages / 20,
            receivers: vec![receiver],
            ..Sent::default()
        };
        let heard = Heard { source: "3fa2".to_owned(), messages, session: 5, ..Heard::default() };
        let sockets = vec![Socket { dropped: 3, ..Socket::default() }; 2];
        let (sent, heard) = (vec![sent], vec![heard]);
        let content = Stats { session, sent, heard, sockets, ..Stats::default() };
        Notice { time, node: "line-3".to_owned(), bus: "plant".to_owned(), content }
    }

    #[test]
    fn rates_are_those_between_two_notices_of_one_life() {
        let mut history = NodeHistory::default();
        assert!(history.model(0.0).is_none());
        history.stats(stats(100.0, 1, 1_000));
        let first = history.model(100.5).unwrap();
        assert_eq!((first.sent[0].messages_per_second, first.silent_seconds), (None, None));
        assert_eq!((first.kernel_dropped, first.sent[0].repaired_share), (6, Some(0.1)));
        history.stats(stats(102.0, 1, 1_500));
        let second = history.model(102.0).unwrap();
        assert_eq!(second.sent[0].messages_per_second, Some(250.0));
        assert_eq!(second.sent[0].datagrams_per_second, Some(125.0));
        assert_eq!(second.heard[0].messages_per_second, Some(250.0));
        assert_eq!((second.heard[0].name.as_str(), second.sent[0].receivers), ("3fa2", 1));
        history.stats(stats(103.0, 2, 10));
        assert_eq!(history.model(103.0).unwrap().sent[0].messages_per_second, None);
        assert_eq!(history.model(109.0).unwrap().silent_seconds, Some(6.0));
    }

    #[test]
    fn a_feed_has_the_rates_of_its_commands_and_events() {
        let at = |time, brought, events: Option<u64>| {
            let mut notice = stats(time, 1, 0);
            let member = events.map(|events| OrderMember { events, ..OrderMember::default() });
            // Without a member, the host's bus tells.
            let delivered = 107;
            notice.content.sequencer =
                Some(Sequencer { brought, member, delivered, ..Sequencer::default() });
            notice
        };
        let mut history = NodeHistory::default();
        history.stats(at(100.0, 10, Some(40)));
        let rates = |history: &NodeHistory| {
            let feed = history.model(100.0).unwrap().feed.unwrap();
            (feed.commands_per_second, feed.events_per_second)
        };
        assert_eq!(rates(&history), (None, None));
        history.stats(at(102.0, 30, Some(100)));
        assert_eq!(rates(&history), (Some(10.0), Some(30.0)));
        history.stats(at(103.0, 31, None));
        assert_eq!(rates(&history), (Some(1.0), Some(7.0)));
    }

    #[test]
    fn a_feed_has_the_rates_of_the_ways_that_events_take() {
        let at = |time, session, came, asked| {
            let mut notice = stats(time, session, 0);
            notice.content.sequencer = Some(Sequencer { came, asked, ..Sequencer::default() });
            notice
        };
        let mut history = NodeHistory::default();
        let rates = |history: &NodeHistory| {
            let feed = history.model(100.0).unwrap().feed.unwrap();
            (feed.came_per_second, feed.asked_per_second)
        };
        history.stats(at(100.0, 1, 1_000, 20));
        assert_eq!(rates(&history), (None, None));
        history.stats(at(102.0, 1, 1_500, 26));
        assert_eq!(rates(&history), (Some(250.0), Some(3.0)));
        // Counters of another process may be anything.
        history.stats(at(103.0, 1, 0, u64::MAX));
        assert_eq!(rates(&history).0, None);
        history.stats(at(104.0, 2, 7, 8));
        assert_eq!(rates(&history), (None, None));
    }

    #[test]
    fn a_node_ends_with_its_latest_session() {
        let mut history = NodeHistory::default();
        history.stats(stats(100.0, 1, 1));
        assert!(!history.is_ended_by(&End { session: 2 }), "that was another session");
        assert!(history.is_ended_by(&End { session: 1 }));
        // It was started again.
        history.stats(stats(103.0, 2, 1));
        assert!(!history.is_ended_by(&End { session: 1 }));
    }

    #[test]
    fn a_crybaby_is_marked_for_a_while() {
        let mut history = NodeHistory::default();
        history.stats(stats(100.0, 1, 1));
        let cries =
            |history: &NodeHistory, now| history.model(now).unwrap().receivers[0].is_crybaby;
        assert!(!cries(&history, 100.0));
        for (stream, address) in [(1, "10.0.0.8:4000"), (2, "10.0.0.7:4000"), (1, "10.0.0.7:4000")]
        {
            assert!(!cries(&history, 101.0));
            let (name, address) = (None, address.to_owned());
            let content = Crybaby { stream, name, address, kernel_dropped: 0 };
            let (node, bus) = ("line-3".to_owned(), "plant".to_owned());
            history.crybaby(Notice { time: 101.0, node, bus, content });
        }
        assert!(cries(&history, 101.0) && cries(&history, 120.0) && !cries(&history, 131.0));
    }
}
