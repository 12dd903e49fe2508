//! Peer: what is known of one other host that probes.

use super::tally::Tally;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use toroni_proto::id::Session;

/// A host is silent if nothing came from it for this long.
pub(super) const SILENCE: Duration = Duration::from_secs(3);
/// How many round trips are kept, for their median: 20 answers a second for 14 minutes.
const ROUND_TRIPS: usize = 16_384;

/// Another host. Times count from the start of the test.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// From where it asks, and where it is asked.
    pub address: SocketAddr,
    /// Its life.
    pub session: Session,
    /// What this host heard of its questions to the group.
    pub group: Tally,
    /// How many routers are between.
    pub hops: Option<u8>,
    /// How many of our questions to the group it heard, of how many.
    pub there: Option<(u32, u32)>,
    /// Sizes of datagrams that it answered, in bytes, with their number.
    pub sizes: BTreeMap<u16, u64>,
    /// What this host heard of what it sent at a rate.
    pub load: Tally,
    /// How many of the datagrams that this host sent at a rate it heard, of how many.
    pub load_there: Option<(u32, u32)>,
    pub(super) others: BTreeMap<u16, Tally>,
    round_trips: Vec<u64>,
    /// When its last question to the group came.
    pub(super) asked_group: Option<Duration>,
    /// When it last answered a question to the group.
    pub(super) answered_group: Option<Duration>,
    /// When it last asked or answered directly.
    pub(super) direct: Option<Duration>,
    /// When it was answered last, by the kind of its question.
    pub(super) served: BTreeMap<u16, Duration>,
    /// When it was last asked directly.
    pub(super) asked: Option<Duration>,
    /// When it was last told how many of its datagrams at a rate came.
    pub(super) load_answered: Option<Duration>,
}

/// The times of the way to a host and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The shortest.
    pub least: Duration,
    /// Half took longer.
    pub median: Duration,
    /// The longest.
    pub most: Duration,
}

impl Peer {
    pub(super) fn new(name: &str, address: SocketAddr, session: Session) -> Self {
        Self {
            name: name.to_owned(),
            address,
            session,
            group: Tally::default(),
            hops: None,
            there: None,
            sizes: BTreeMap::new(),
            load: Tally::default(),
            load_there: None,
            others: BTreeMap::new(),
            round_trips: Vec::new(),
            asked_group: None,
            answered_group: None,
            direct: None,
            served: BTreeMap::new(),
            asked: None,
            load_answered: None,
        }
    }

    /// Whether this host hears it in the group, and it hears this host.
    #[must_use]
    pub fn is_heard_both_ways(&self) -> bool {
        self.group.came() > 0 && self.there.is_some()
    }

    /// Returns the times of the way there and back, by the questions that it answered.
    #[must_use]
    pub fn round_trip(&self) -> Option<RoundTrip> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        let at = |index: usize| sorted.get(index).copied().map(Duration::from_nanos);
        Some(RoundTrip {
            least: at(0)?,
            median: at(sorted.len() / 2)?,
            most: at(sorted.len().checked_sub(1)?)?,
        })
    }

    pub(super) fn took(&mut self, ns: u64) {
        // The kept ones are the newest.
        if self.round_trips.len() == ROUND_TRIPS {
            self.round_trips.drain(..ROUND_TRIPS / 2);
        }
        self.round_trips.push(ns);
    }

    /// Whether it gives reason to ask it directly: one direction of the group is silent.
    pub(super) fn is_doubtful(&self, now: Duration) -> bool {
        let is_old =
            |time: Option<Duration>| time.is_none_or(|time| now.saturating_sub(time) > SILENCE / 3);
        is_old(self.asked_group) || is_old(self.answered_group)
    }

    /// Returns since when this host does not hear it in the group, although it is there.
    pub(super) fn unheard_since(&self) -> Option<Duration> {
        silent_since(self.asked_group, self.direct)
    }

    /// Returns since when it does not hear this host in the group, although it is there.
    pub(super) fn deaf_since(&self) -> Option<Duration> {
        silent_since(self.answered_group, self.direct)
    }
}

fn silent_since(group: Option<Duration>, direct: Option<Duration>) -> Option<Duration> {
    let (group, direct) = (group?, direct?);
    (direct.saturating_sub(group) > SILENCE).then_some(group)
}
