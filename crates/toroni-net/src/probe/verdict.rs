//! Verdict: what a test has found, and the likely reason.

use super::{Load, Peer, TRIED};
use std::fmt;
use std::time::Duration;

/// How long a switch remembers a membership that no querier asks about: twice the usual interval of queries of 125 s,
/// and 10 s for the answer (RFC 3376 §8.4, the group membership interval).
pub const SNOOPING_AGEING: Duration = Duration::from_secs(260);

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Nothing came from an expected host, and it answers nothing.
    Missing {
        /// Its name.
        host: String,
    },
    /// A host answers, and its questions to the group do not come.
    Unheard {
        /// Its name.
        host: String,
    },
    /// Questions of a host come, and it answers none of ours.
    Unanswered {
        /// Its name.
        host: String,
    },
    /// The group was heard and is not any more, although the hosts are still there.
    GroupStopped {
        /// Who does not hear it any more: `None` is this host.
        at: Option<String>,
        /// Who is not heard.
        from: Vec<String>,
        /// When, counted from the start of the test.
        after: Duration,
    },
    /// Large datagrams do not come, and smaller ones do.
    Size {
        /// Its name.
        host: String,
        /// The size that it did not answer, in bytes.
        lost: u16,
        /// The largest that it answered.
        largest: u16,
    },
    /// The kernel took less of what this host wanted to send at a rate.
    Slowed {
        /// The rate, in bits per second.
        rate: u64,
        /// The share that it did not take, in percent.
        refused: u8,
    },
    /// This host cannot send datagrams of a size.
    Unsendable {
        /// The size in bytes.
        size: u16,
    },
}

impl Problem {
    /// Whether messages cannot pass: the hosts need another network, not another setting.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Size { .. } | Self::Unsendable { .. } | Self::Slowed { .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { host } => write!(
                formatter,
                "nothing came from {host}: is `toroni net probe` running there at this time, with the same group?"
            ),
            Self::Unheard { host } => write!(
                formatter,
                "{host} hears this host in the group and answers, and its own questions to the group do not come: look at \
                 the switches, the firewall of this host, and the interface that {host} uses"
            ),
            Self::Unanswered { host } => write!(
                formatter,
                "{host} is heard in the group, and answers nothing: it does not hear this host, or its answers to this \
                 address are lost (firewall, routes)"
            ),
            Self::GroupStopped { at, from, after } => {
                let seconds = after.as_secs();
                let who = at.as_deref().unwrap_or("this host");
                write!(
                    formatter,
                    "after {seconds} s, {who} heard {} in the group no longer, although direct datagrams still pass: a switch \
                     with IGMP snooping has forgotten the membership, because no querier asks for it (after {} s on most \
                     switches). Make a router or switch the querier of this network, or turn IGMP snooping off",
                    from.join(", "),
                    SNOOPING_AGEING.as_secs(),
                )
            }
            Self::Size { host, lost, largest } => write!(
                formatter,
                "datagrams of {lost} bytes do not reach {host}, those of {largest} bytes do: set `datagram` to at most \
                 {largest}, or the MTU of the way"
            ),
            Self::Slowed { rate, refused } => write!(
                formatter,
                "the kernel did not take {refused} % of {} Mbit/s from this host: the network card is slower, or a switch \
                 stops it by pause frames because one of its ports is. `toroni node doctor` shows whether pause frames \
                 were counted",
                rate / 1_000_000
            ),
            Self::Unsendable { size } => {
                write!(
                    formatter,
                    "this host does not send datagrams of {size} bytes on the way to the group"
                )
            }
        }
    }
}

/// Returns whether this host could not send at its rate.
pub(super) fn slowed(load: &Load) -> Option<Problem> {
    const TOLERATED: f64 = 0.05;
    let refused = load.refused();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage")]
    let percent = (refused * 100.0).round() as u8;
    (refused > TOLERATED).then_some(Problem::Slowed { rate: load.rate(), refused: percent })
}

/// Returns what is wrong, the worst first. `asked_sizes` are the sizes of which this host sends questions.
pub(super) fn problems<'a>(
    peers: impl Iterator<Item = &'a Peer> + Clone,
    expected: &[String],
    asked_sizes: &[u16],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for host in expected {
        let mut found = peers.clone().filter(|peer| peer.name == *host).peekable();
        if found.peek().is_none() {
            problems.push(Problem::Missing { host: host.clone() });
        }
    }
    for peer in peers.clone() {
        // Another process of that host may be the one that is heard.
        let is_heard = peers.clone().any(|it| it.name == peer.name && it.is_heard_both_ways());
        let host = peer.name.clone();
        match (peer.group.came() > 0, peer.there.is_some()) {
            _ if is_heard => {}
            (false, _) => problems.push(Problem::Unheard { host }),
            (true, _) => problems.push(Problem::Unanswered { host }),
        }
    }
    // What stopped for this host stopped for all that it heard, at about one time.
    let unheard = peers.clone().filter_map(|peer| Some((peer.unheard_since()?, &peer.name)));
    let mut unheard: Vec<_> = unheard.collect();
    unheard.sort_unstable();
    if let Some((after, _)) = unheard.first().copied() {
        let from = unheard.into_iter().map(|(_, name)| name.clone()).collect();
        problems.push(Problem::GroupStopped { at: None, from, after });
    }
    for peer in peers.clone() {
        if let Some(after) = peer.deaf_since() {
            let (at, from) = (Some(peer.name.clone()), vec!["this host".to_owned()]);
            problems.push(Problem::GroupStopped { at, from, after });
        }
    }
    for peer in peers.filter(|peer| peer.there.is_some()) {
        let Some((&largest, _)) = peer.sizes.last_key_value() else { continue };
        // How many questions a host answers depends on how many others ask: its answers say how often it was asked.
        if peer.sizes.values().sum::<u64>() < TRIED * asked_sizes.len() as u64 {
            continue;
        }
        if let Some(&lost) = asked_sizes.iter().filter(|size| **size > largest).min() {
            problems.push(Problem::Size { host: peer.name.clone(), lost, largest });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::id::Session;

    fn peer(name: &str) -> Peer {
        let mut peer = Peer::new(name, "10.0.0.1:5".parse().unwrap(), Session(1));
        peer.group.record(0);
        peer.there = Some((1, 1));
        peer
    }

    fn at(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn hosts_that_hear_each_other_have_no_problem() {
        let peers = [peer("a"), peer("b")];
        assert_eq!(problems(peers.iter(), &["a".to_owned()], &[]), []);
    }

    #[test]
    fn each_direction_is_named() {
        let (mut deaf, mut mute) = (peer("a"), peer("b"));
        deaf.there = None;
        mute.group = Default::default();
        let found = problems([deaf, mute].iter(), &["c".to_owned()], &[]);
        let [c, a, b] = ["c", "a", "b"].map(str::to_owned);
        assert_eq!(
            found,
            [
                Problem::Missing { host: c },
                Problem::Unanswered { host: a },
                Problem::Unheard { host: b }
            ]
        );
        assert!(found.iter().all(Problem::is_failure));
    }

    #[test]
    fn a_group_that_stops_while_hosts_answer_directly_is_named_with_its_time() {
        let (mut one, mut other) = (peer("a"), peer("b"));
        (one.asked_group, one.answered_group, one.direct) = (at(262), at(400), at(400));
        (other.asked_group, other.answered_group, other.direct) = (at(261), at(300), at(400));
        let found = problems([one.clone(), other.clone()].iter(), &[], &[]);
        let [a, b] = ["a", "b"].map(str::to_owned);
        let (after, from) = (Duration::from_secs(261), vec![b.clone(), a]);
        assert_eq!(found[0], Problem::GroupStopped { at: None, from, after });
        let (after, from) = (Duration::from_secs(300), vec!["this host".to_owned()]);
        assert_eq!(found[1], Problem::GroupStopped { at: Some(b), from, after });
        assert!(found[0].to_string().contains("after 261 s, this host heard b, a in the group no"));
        // A host that has left is silent in every way.
        (one.direct, other.direct) = (at(262), at(262));
        assert_eq!(problems([one, other].iter(), &[], &[]), []);
    }

    #[test]
    fn the_least_size_that_is_lost_is_named() {
        let mut peer = peer("a");
        let sizes = [512, 1024, 1408, 1472];
        peer.sizes.extend([(512, 10), (1024, 9)]);
        assert_eq!(problems([peer.clone()].iter(), &[], &sizes), [], "it is too early to say");
        peer.sizes.insert(1024, 10);
        let problem = Problem::Size { host: "a".to_owned(), lost: 1408, largest: 1024 };
        assert_eq!(problems([peer].iter(), &[], &sizes), std::slice::from_ref(&problem));
        assert!(!problem.is_failure());
    }

    #[test]
    fn a_rate_that_the_kernel_does_not_take_is_named() {
        let mut load = Load::new(20_000_000);
        for seconds in 1..=4 {
            load.turn(Duration::from_secs(seconds), |sent| sent < 10);
        }
        let problem = slowed(&load).unwrap();
        assert!(!problem.is_failure());
        let text = problem.to_string();
        assert!(
            text.starts_with("the kernel did not take 100 % of 20 Mbit/s from this host: "),
            "{text}"
        );
        assert_eq!(slowed(&Load::new(1)), None);
    }
}
