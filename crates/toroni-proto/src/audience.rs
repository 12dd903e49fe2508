//! Audience: the receivers that a sender knows by their STATUS, and what they mean for it.
//!
//! ```text
//!   policy         what holds the sender
//!   bounded        its rates
//!   uncontrolled   nothing; only repairs have a rate
//!   slowest        its rates, and the least (expected + window) of the required receivers:
//!
//!        expected        expected + window / datagram
//!           │                   │
//!   ────────┴───────────────────┴────────►  datagrams of the stream
//!    taken     may be in flight   ▲
//!                                 └ the sender stops here
//! ```
//!
//! In the memory of a receiver each datagram takes a buffer for the longest, so that is how it is counted.
//!
//! A receiver is required if its STATUS says so and the sender names it. One that is silent, or takes
//! nothing for `hold_limit` while the sender waits for it, is put out of the group. It comes back with a
//! STATUS that does not hold the sender. In the same way, one that joins late is waited for when it has caught up.

use crate::config::Config;
use crate::hook::mutant;
use crate::id::Sequence;
use crate::time::{MICROSECOND, MILLISECOND, Monotonic, SECOND, Wall};
use crate::window::Window;
use crate::wire::{Address, NodeName, Policy, Receiver, Reject, Status};

/// A required receiver that is silent for this long is put out of the group.
const SILENT_NS: u64 = 2 * SECOND;
/// A longer round trip is a clock that jumped.
const RTT_MAX_NS: u64 = 10 * SECOND;

/// The name of a node, kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NodeName::MAX_BYTES],
    length: u8,
}

impl Name {
    /// Copies a name.
    #[must_use]
    pub fn new(name: NodeName<'_>) -> Self {
        let text = name.as_str().as_bytes();
        let mut bytes = [0; NodeName::MAX_BYTES];
        bytes[..text.len()].copy_from_slice(text);
        Self { bytes, length: u8::try_from(text.len()).unwrap_or(0) }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }

    /// Returns the name as it is encoded.
    #[must_use]
    pub fn as_node_name(&self) -> NodeName<'_> {
        NodeName::new(self.as_str()).expect("it was copied from a valid name")
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self.as_str(), formatter)
    }
}

/// What the sender knows of a receiver.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Who it is.
    pub receiver: Receiver,
    /// Where it is.
    pub address: Address,
    /// The name of its node.
    pub name: Name,
    /// The first sequence that it still expects.
    pub expected: Sequence,
    /// How many datagrams it was behind when it said so. What was sent since then is no lag: it has not answered yet.
    pub lag: u64,
    /// How many messages it has lost.
    pub lost: u64,
    /// How many NAKs it has sent.
    pub naks: u64,
    /// How many datagrams its kernel has dropped.
    pub dropped: u32,
    /// The `count` of its last STATUS.
    count: u64,
    /// The round trip, smoothed.
    pub rtt_ns: u64,
    window: u64,
    seen: Monotonic,
    standing: Standing,
    /// Since when the sender waits for it and it takes nothing.
    holds_since: Option<Monotonic>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Optional,
    Required,
    Out,
}

/// Why a required receiver is put out of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOut {
    /// It sent no STATUS for 2 s.
    Silent,
    /// The sender waited for it, and it took nothing for `hold_limit`.
    Holds,
}

/// What changed in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A required receiver was put out.
    Out(Name, PutOut),
    /// One that was put out has caught up.
    Back(Name),
}

/// The receivers of one stream.
#[derive(Debug)]
pub struct Audience {
    /// Sorted by receiver's source. Never grows beyond `most`, for which it has memory.
    members: Vec<Member>,
    most: usize,
    required: Vec<Name>,
    slowest: bool,
    group_min: u64,
    hold_limit_ns: u64,
    silence_ns: u64,
    /// What a datagram takes in a receiver.
    buffer_bytes: u64,
}

impl Audience {
    /// Allocates an audience. With the policy slowest, the sender waits for those of these receivers that
    /// ask for it.
    #[must_use]
    pub fn new(config: &Config, required: &[NodeName<'_>]) -> Self {
        let most = usize::try_from(config.receivers).unwrap_or(usize::MAX);
        Self {
            members: Vec::with_capacity(most),
            most,
            required: required.iter().copied().map(Name::new).collect(),
            slowest: config.policy == Policy::Slowest,
            group_min: config.group_min,
            hold_limit_ns: config.hold_limit_ns,
            silence_ns: config.activity_ns.max(config.status_ns.saturating_mul(3)),
            buffer_bytes: config.datagram_bytes,
        }
    }

    /// Returns the receivers, sorted by their sources.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the receiver at an address.
    #[must_use]
    pub fn at(&self, address: Address) -> Option<&Member> {
        self.members.iter().find(|member| member.address == address)
    }

    /// Returns the greatest round trip, in microseconds.
    #[must_use]
    pub fn rtt_us(&self) -> u32 {
        let greatest = self.members.iter().map(|member| member.rtt_ns).max().unwrap_or(0);
        u32::try_from(greatest / MICROSECOND).unwrap_or(u32::MAX)
    }

    /// Takes a STATUS whose stream and session are ours. `wall` is what the clock of the session shows. With `has_key`, it
    /// must be later than those that came of its receiver: without one, a forged count would refuse the true ones.
    ///
    /// # Errors
    ///
    /// If it is not.
    #[expect(clippy::too_many_arguments, reason = "all of it is of one datagram")]
    pub fn status(
        &mut self,
        now: Monotonic,
        wall: Wall,
        from: Address,
        expected: Sequence,
        status: &Status<'_>,
        window: &Window,
        has_key: bool,
    ) -> Result<Option<Change>, Reject> {
        let expected = expected.min(window.unsent());
        let name = Name::new(status.name);
        let key = status.receiver.source;
        let place = self.members.binary_search_by_key(&key, |member| member.receiver.source);
        let at = match place {
            Ok(at) => at,
            Err(_) if self.members.len() >= self.most => return Ok(None),
            Err(at) => {
                let standing = Standing::Optional;
                self.members.insert(
                    at,
                    Member {
                        receiver: status.receiver,
                        address: from,
                        name,
                        expected,
                        lag: 0,
                        lost: 0,
                        naks: 0,
                        dropped: 0,
                        count: 0,
                        rtt_ns: 0,
                        window: 0,
                        seen: now,
                        standing,
                        holds_since: None,
                    },
                );
                at
            }
        };
        let is_required = self.slowest && status.required && self.required.contains(&name);
        let member = &mut self.members[at];
        let is_new_life = member.receiver.session != status.receiver.session;
        let mut expected = expected;
        if has_key && !mutant("status_may_fall") {
            let stated = |receiver: Receiver, count| (receiver.session, count);
            if stated(status.receiver, status.count) <= stated(member.receiver, member.count) {
                return Err(Reject::Old);
            }
            if !is_new_life {
                expected = expected.max(member.expected);
            }
        }
        if expected != member.expected || is_new_life {
            member.holds_since = None;
        }
        let was = member.standing;
        *member = Member {
            receiver: status.receiver,
            address: from,
            name,
            expected,
            lag: window.unsent().since(expected),
            lost: status.lost,
            naks: status.naks,
            dropped: status.dropped,
            count: status.count,
            rtt_ns: smoothed(member.rtt_ns, round_trip(wall, status)),
            window: u64::from(status.window),
            seen: now,
            ..*member
        };
        let has_room = has_room(member, window, self.buffer_bytes);
        member.standing = match was {
            _ if !is_required => Standing::Optional,
            Standing::Required => Standing::Required,
            // One that was put out long ago is known no more, so a new one must have caught up as well.
            _ if has_room || mutant("late_ones_hold") => Standing::Required,
            _ => Standing::Out,
        };
        let is_back = was == Standing::Out && member.standing == Standing::Required;
        Ok(is_back.then_some(Change::Back(name)))
    }

    /// Returns whether another datagram may be sent. Notes which receivers are waited for.
    pub fn allows(&mut self, now: Monotonic, window: &Window) -> bool {
        if !self.slowest || mutant("slowest_outruns") {
            return true;
        }
        let mut allowed = true;
        let mut count = 0;
        for member in &mut self.members {
            if member.standing != Standing::Required {
                continue;
            }
            count += 1;
            if has_room(member, window, self.buffer_bytes) {
                member.holds_since = None;
            } else {
                allowed = false;
                member.holds_since.get_or_insert(now);
            }
        }
        // The group must be complete at the start only.
        let complete = count >= self.group_min || mutant("group_incomplete");
        if complete {
            self.group_min = 0;
        }
        allowed && complete
    }

    /// Whether nothing was allowed yet, because the group was never complete.
    pub fn waits_for_group(&self) -> bool {
        self.slowest && self.group_min > 0
    }

    /// Returns how many required receivers are still missing before the first datagram may be sent, and the names of those
    /// that are not there. `None` if it may.
    #[must_use]
    pub fn group_awaited(&self) -> Option<(u64, impl Iterator<Item = &Name>)> {
        let is_there = |name: &&Name| {
            let mut members = self.members.iter();
            members.any(|it| it.standing == Standing::Required && it.name == **name)
        };
        let there = self.members.iter().filter(|it| it.standing == Standing::Required).count();
        let missing = self.group_min.checked_sub(there as u64).filter(|missing| *missing > 0)?;
        let absent = self.required.iter().filter(move |name| !is_there(name));
        self.slowest.then_some((missing, absent))
    }

    /// Returns when [`Self::handle_timeout`] may have something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        self.members.iter().map(|member| self.deadline(member)).min()
    }

    /// Puts out or forgets one receiver whose time is over. The caller calls again until there is none.
    pub fn handle_timeout(&mut self, now: Monotonic) -> Option<Change> {
        while let Some(at) = self.members.iter().position(|member| self.deadline(member) <= now) {
            let member = &mut self.members[at];
            if member.standing != Standing::Required {
                self.members.remove(at);
                continue;
            }
            let holds = now.since(member.seen) < SILENT_NS;
            member.standing = Standing::Out;
            member.holds_since = None;
            let why = if holds { PutOut::Holds } else { PutOut::Silent };
            return Some(Change::Out(member.name, why));
        }
        None
    }

    fn deadline(&self, member: &Member) -> Monotonic {
        if member.standing != Standing::Required {
            return member.seen.after(self.silence_ns);
        }
        let silent = member.seen.after(SILENT_NS);
        match member.holds_since.filter(|_| !mutant("holds_for_ever")) {
            Some(since) => silent.min(since.after(self.hold_limit_ns)),
            None => silent,
        }
    }
}

/// How often a receiver sends STATUS to a sender with the policy slowest.
pub(crate) const STATUS_OF_SLOWEST_NS: u64 = 100 * MILLISECOND;

/// Whether a receiver can take another datagram.
fn has_room(member: &Member, window: &Window, buffer_bytes: u64) -> bool {
    // What has left the window cannot be repaired, so the receiver does not wait for it.
    let in_flight = window.unsent().since(member.expected.max(window.trail()));
    in_flight.saturating_add(1).saturating_mul(buffer_bytes) <= member.window
}

fn round_trip(now: Wall, status: &Status<'_>) -> Option<u64> {
    let held = u64::from(status.held_us) * MICROSECOND;
    let trip = now.ns().checked_sub(status.echo.ns())?.checked_sub(held)?;
    (status.echo != Wall::default() && trip <= RTT_MAX_NS).then_some(trip)
}

/// Rises at once and falls by an eighth, since it is used as the longest that may happen.
fn smoothed(before: u64, measured: Option<u64>) -> u64 {
    match measured {
        Some(trip) if trip < before => before - (before - trip) / 8,
        Some(trip) => trip,
        None => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batcher::{Batcher, Now};
    use crate::id::{Number, Session, Source};
    use crate::wire::chunk::tests::start;
    use crate::wire::samples::{header, sequence};

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(SECOND).after(ms * MILLISECOND)
    }

    fn wall(ms: u64) -> Wall {
        Wall::from_ns(SECOND + ms * MILLISECOND)
    }

    fn slowest() -> Config {
        Config { policy: Policy::Slowest, ..Config::with_rate(100_000_000) }
    }

    /// A window with datagrams of 1,000 bytes of payload, all of them sent.
    fn window(datagrams: u64) -> Window {
        let config = slowest();
        let mut window = Window::new(1 << 20, 1_408, sequence(0));
        let mut batcher = Batcher::new(&config, header(0), None, Number::ZERO);
        let now = Now { monotonic: at(0), wall: wall(0) };
        for number in 0..datagrams {
            batcher.message(&mut window, now, start(number), &[0; 1_000]).unwrap();
            batcher.flush(&mut window, now);
            window.sent();
        }
        window
    }

    fn node(name: &str) -> NodeName<'_> {
        NodeName::new(name).unwrap()
    }

    fn status(name: &str) -> Status<'_> {
        let source = Source(u32::from(name.as_bytes()[0]));
        Status {
            receiver: Receiver { source, session: Session(1) },
            window: 5_000,
            required: true,
            new: false,
            lost: 0,
            naks: 0,
            echo: wall(0),
            held_us: 1_000,
            dropped: 0,
            count: 1,
            nonce: 0,
            name: node(name),
        }
    }

    fn take(
        audience: &mut Audience,
        ms: u64,
        expected: u64,
        window: &Window,
        status: &Status<'_>,
    ) -> Option<Change> {
        audience
            .status(at(ms), wall(ms), Address::default(), sequence(expected), status, window, false)
            .unwrap()
    }

    #[test]
    fn the_slowest_required_receiver_holds_the_sender_and_others_do_not() {
        let window = window(8);
        let mut audience = Audience::new(&slowest(), &[node("a"), node("b")]);
        take(&mut audience, 0, 8, &window, &status("a"));
        take(&mut audience, 0, 0, &window, &status("x"));
        assert!(audience.allows(at(0), &window), "x is not in the group");
        take(&mut audience, 0, 8, &window, &status("b"));
        assert!(audience.allows(at(0), &window));
        // 5,000 bytes are 3 buffers of 1,408, although 4 of these datagrams have fewer bytes.
        take(&mut audience, 0, 5, &window, &status("b"));
        assert!(!audience.allows(at(0), &window));
        take(&mut audience, 1, 6, &window, &status("b"));
        assert!(audience.allows(at(1), &window));
        let polite = Status { required: false, ..status("b") };
        take(&mut audience, 2, 0, &window, &polite);
        assert!(audience.allows(at(2), &window), "it does not ask for it");
    }

    #[test]
    fn the_lag_of_a_receiver_is_what_it_had_not_taken_when_it_said_so() {
        let mut audience = Audience::new(&slowest(), &[]);
        take(&mut audience, 0, 6, &window(8), &status("a"));
        assert_eq!(audience.members()[0].lag, 2);
        take(&mut audience, 2_000, 99, &window(99), &status("a"));
        assert_eq!(audience.members()[0].lag, 0, "what was sent between the two is no lag");
    }

    #[test]
    fn with_another_policy_no_receiver_holds_the_sender() {
        let window = window(8);
        let mut audience = Audience::new(&Config::with_rate(1_000_000), &[node("a")]);
        take(&mut audience, 0, 0, &window, &status("a"));
        assert!(audience.allows(at(0), &window));
    }

    #[test]
    fn the_group_must_be_complete_before_the_first_datagram_and_only_then() {
        let window = window(0);
        let config = Config { group_min: 2, ..slowest() };
        let mut audience = Audience::new(&config, &[node("a"), node("b")]);
        take(&mut audience, 0, 0, &window, &status("a"));
        assert!(!audience.allows(at(0), &window));
        let (missing, absent) = audience.group_awaited().unwrap();
        assert_eq!((missing, absent.map(Name::as_str).collect::<Vec<_>>()), (1, vec!["b"]));
        take(&mut audience, 0, 0, &window, &status("b"));
        assert!(audience.group_awaited().is_none(), "although nothing was to be sent yet");
        assert!(audience.allows(at(0), &window));
        assert!(audience.handle_timeout(at(2_000)).is_some());
        assert!(audience.allows(at(2_000), &window));
        assert!(audience.group_awaited().is_none());
    }

    #[test]
    fn one_that_takes_nothing_for_the_limit_is_put_out_and_comes_back_when_it_has_caught_up() {
        let window = window(8);
        let mut audience = Audience::new(&slowest(), &[node("a")]);
        take(&mut audience, 0, 8, &window, &status("a"));
        take(&mut audience, 0, 0, &window, &status("a"));
        assert!(!audience.allows(at(0), &window));
        for ms in (100..5_000).step_by(100) {
            take(&mut audience, ms, 0, &window, &status("a"));
            assert_eq!(audience.handle_timeout(at(ms)), None);
            assert!(!audience.allows(at(ms), &window));
        }
        assert_eq!(audience.poll_timeout(), Some(at(5_000)));
        let name = Name::new(node("a"));
        assert_eq!(audience.handle_timeout(at(5_000)), Some(Change::Out(name, PutOut::Holds)));
        assert!(audience.allows(at(5_000), &window));
        assert_eq!(take(&mut audience, 5_100, 0, &window, &status("a")), None);
        assert!(audience.allows(at(5_100), &window), "it has not caught up");
        assert_eq!(take(&mut audience, 5_200, 8, &window, &status("a")), Some(Change::Back(name)));
    }

    #[test]
    fn one_that_takes_something_holds_for_as_long_as_it_needs() {
        let window = window(200);
        let mut audience = Audience::new(&slowest(), &[node("a")]);
        take(&mut audience, 0, 200, &window, &status("a"));
        for (expected, ms) in (0..20_000_u64).step_by(1_000).enumerate() {
            take(&mut audience, ms, expected as u64, &window, &status("a"));
            assert!(!audience.allows(at(ms), &window));
            assert_eq!(audience.handle_timeout(at(ms)), None);
        }
    }

    #[test]
    fn a_silent_one_is_put_out_after_two_seconds_and_forgotten_later() {
        let window = window(8);
        let mut audience = Audience::new(&slowest(), &[node("a")]);
        take(&mut audience, 0, 8, &window, &status("a"));
        assert_eq!(audience.handle_timeout(at(1_999)), None);
        let out = Change::Out(Name::new(node("a")), PutOut::Silent);
        assert_eq!(audience.handle_timeout(at(2_000)), Some(out));
        assert_eq!(audience.members().len(), 1);
        assert_eq!(audience.handle_timeout(at(10_000)), None);
        assert_eq!(audience.members().len(), 0);
    }

    #[test]
    fn one_that_comes_back_after_it_was_forgotten_must_catch_up_first() {
        let window = window(8);
        let mut audience = Audience::new(&slowest(), &[node("a")]);
        take(&mut audience, 0, 8, &window, &status("a"));
        assert!(audience.handle_timeout(at(2_000)).is_some());
        assert_eq!(audience.handle_timeout(at(10_000)), None);
        assert_eq!(audience.members().len(), 0);
        take(&mut audience, 10_100, 0, &window, &status("a"));
        assert!(audience.allows(at(10_100), &window), "it has not caught up");
        let back = Change::Back(Name::new(node("a")));
        assert_eq!(take(&mut audience, 10_200, 8, &window, &status("a")), Some(back));
        take(&mut audience, 10_300, 0, &window, &status("a"));
        assert!(!audience.allows(at(10_300), &window), "it is waited for again");
    }

    #[test]
    fn the_round_trip_rises_at_once_and_falls_slowly_and_nonsense_is_ignored() {
        let window = window(1);
        let mut audience = Audience::new(&slowest(), &[]);
        let mut trip = |echo, at_ms, held_us| {
            let one = Status { echo, held_us, ..status("a") };
            take(&mut audience, at_ms, 0, &window, &one);
            audience.rtt_us()
        };
        assert_eq!(trip(wall(0), 3, 1_000), 2_000);
        assert_eq!(trip(wall(0), 3, 5_000), 2_000, "held for longer than it was away");
        assert_eq!(trip(wall(100), 3, 0), 2_000, "from the future");
        assert_eq!(trip(Wall::default(), 3, 0), 2_000, "no echo");
        assert_eq!(trip(wall(0), 90_000, 0), 2_000, "a clock that jumped");
        assert_eq!(trip(wall(3), 3, 0), 1_750);
        assert_eq!(trip(wall(0), 30, 0), 30_000);
    }

    #[test]
    fn there_are_no_more_receivers_than_there_may_be() {
        let window = window(1);
        let config = Config { receivers: 2, ..slowest() };
        let mut audience = Audience::new(&config, &[]);
        for name in ["a", "b", "c"] {
            take(&mut audience, 0, 0, &window, &status(name));
        }
        assert_eq!(audience.members().len(), 2);
    }
}
