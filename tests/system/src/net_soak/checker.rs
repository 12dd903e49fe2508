//! Checks what one host receives of all hosts.

use crate::soak::stalls::Times;
use std::ops::Range;
use toroni::{Lost, LostBound};

/// How many violations are described. Beyond, they are counted.
const DESCRIBED: usize = 20;

/// Who publishes a message, in the field `worker` of its payload.
#[must_use]
pub fn worker(host: usize, publisher: usize) -> u32 {
    u32::try_from(host << 16 | publisher).expect("a number of 32 bits")
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages are missing that no report of a loss counts.
    Unreported,
    /// A message came twice.
    Doubled,
    /// A message came after one that was published after it.
    Disordered,
    /// Reports count more messages than are missing.
    Overstated,
    /// A message is not what was published.
    Damaged,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unreported, Self::Doubled, Self::Disordered, Self::Overstated, Self::Damaged];

    /// What a table calls it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Unreported => "lost WITHOUT report",
            Self::Doubled => "doubled",
            Self::Disordered => "out of order",
            Self::Overstated => "reported as lost, but not missing",
            Self::Damaged => "damaged",
        }
    }
}

/// How many messages of one host are missing, and how many of them reports count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    pub missing: u64,
    /// The least number that the reports allow.
    least: u64,
    /// The greatest number that the reports allow.
    most: u64,
}

#[derive(Debug, Default)]
struct Publisher {
    /// `None`: none of its messages came yet, and the first may have any number.
    next: Option<u64>,
    gaps: Vec<Range<u64>>,
    /// Whether a message came after the last report about its host. Only then is it known what is missing before.
    has_followed: bool,
    /// Whether any number may be missing before its next message: a report gave no upper bound, or what came before is not known.
    is_open: bool,
}

/// The messages of all hosts, as one of them receives them.
#[derive(Debug)]
pub struct Checker {
    /// The host whose bus this is. Its own messages cannot be lost.
    host: usize,
    publishers: Vec<Vec<Publisher>>,
    missing: Vec<Missing>,
    /// How many were missing before the bus became another one.
    missing_before: u64,
    /// Of each host, whether all its publishers were heard since the bus became another one. Before that, neither what is missing
    /// nor reports count.
    is_known: Vec<bool>,
    /// Messages that were overwritten in the bus before they were read, of any host.
    lapped: u64,
    /// How many messages came from other hosts.
    pub received: u64,
    /// How many losses were reported, by how exact they are.
    pub reports: [u64; 3],
    /// From publishing until the checker has it.
    pub latency: Times,
    counts: [u64; Kind::ALL.len()],
    /// What is wrong, in words.
    pub violations: Vec<String>,
}

impl Checker {
    /// Begins with the first message of each publisher. Each host has one more, the last, which is there before anyone receives:
    /// of it, the first message that comes may have any number.
    #[must_use]
    pub fn new(host: usize, hosts: usize, publishers: usize) -> Self {
        let begins = |at| if at < publishers { Some(0) } else { None };
        let of_host =
            || (0..=publishers).map(|at| Publisher { next: begins(at), ..Publisher::default() });
        Self {
            host,
            publishers: (0..hosts).map(|_| of_host().collect()).collect(),
            missing: vec![Missing::default(); hosts],
            missing_before: 0,
            is_known: vec![true; hosts],
            lapped: 0,
            received: 0,
            reports: [0; 3],
            latency: Times::default(),
            counts: [0; Kind::ALL.len()],
            violations: Vec::new(),
        }
    }

    /// Takes a message.
    pub fn message(&mut self, worker: u32, number: u64) {
        let (host, at) = ((worker >> 16) as usize, (worker & 0xffff) as usize);
        let publisher = self.publishers.get_mut(host).and_then(|all| all.get_mut(at));
        let Some(publisher) = publisher else {
            return self.damaged(&format!("a message of host {host}, publisher {at}"));
        };
        self.received += u64::from(host != self.host);
        let next = publisher.next.unwrap_or(number);
        let is_open = std::mem::take(&mut publisher.is_open);
        if number < next {
            let is_late = publisher.gaps.iter().any(|gap| gap.contains(&number));
            let kind = if is_late { Kind::Disordered } else { Kind::Doubled };
            return self.violation(kind, 1, &format!("{host}/{at}: {number} after {}", next - 1));
        }
        publisher.next = Some(number + 1);
        publisher.has_followed = true;
        if number > next {
            publisher.gaps.push(next..number);
        }
        if number > next && self.is_known[host] {
            let missing = &mut self.missing[host];
            missing.missing += number - next;
            if is_open {
                missing.most = missing.most.saturating_add(number - next);
            }
            self.compare(host, &format!("{host}/{at}: {next} to {}", number - 1));
        }
        if !self.is_known[host] && self.hears(host) {
            self.is_known[host] = true;
            self.publishers[host].iter_mut().for_each(|publisher| publisher.is_open = true);
        }
        if self.is_settled(host) {
            self.compare_least(host);
        }
    }

    /// The bus of this host is another one, or another state of it. Of each publisher, the first message that comes may have any
    /// number, and those that came before may come again.
    pub fn begin_again(&mut self) {
        for of_host in &mut self.publishers {
            of_host.iter_mut().for_each(|publisher| *publisher = Publisher::default());
        }
        for missing in &mut self.missing {
            self.missing_before += missing.missing;
            *missing = Missing::default();
        }
        self.is_known.fill(false);
    }

    /// Takes the report of a loss. The source of a host is its number plus 1.
    pub fn lost(&mut self, lost: &Lost) {
        let host = (lost.from.source as usize).wrapping_sub(1);
        if host == self.host || host >= self.missing.len() {
            return self.damaged(&format!("a loss of source {}: {lost}", lost.from.source));
        }
        // What was lost before the first message came shows in no number.
        if !self.hears(host) || !self.is_known[host] {
            return;
        }
        let missing = &mut self.missing[host];
        self.reports[lost.bound as usize] += 1;
        if lost.bound != LostBound::AtMost {
            missing.least += lost.messages;
        }
        missing.most = missing.most.saturating_add(lost.messages);
        for publisher in &mut self.publishers[host] {
            publisher.has_followed = false;
            publisher.is_open |= lost.bound == LostBound::AtLeast;
        }
    }

    /// Takes the report that this number of messages were overwritten in this bus before they were read.
    pub fn lapped(&mut self, messages: u64) {
        self.lapped += messages;
    }

    /// Takes what is not as it was published.
    pub fn damaged(&mut self, what: &str) {
        self.violation(Kind::Damaged, 1, what);
    }

    /// Whether it is known of each publisher of this host which number must come next.
    #[must_use]
    pub fn hears(&self, host: usize) -> bool {
        self.publishers[host].iter().all(|publisher| publisher.next.is_some())
    }

    /// Whether a message of this host's last publisher came that has at least this number.
    #[must_use]
    pub fn has_heard(&self, host: usize, number: u64) -> bool {
        self.publishers[host].last().is_none_or(|publisher| publisher.next > Some(number))
    }

    /// Whether a message from this number on came of each publisher, and all reports were compared with what is missing.
    #[must_use]
    pub fn has_reached(&self, numbers: &[Vec<u64>]) -> bool {
        let reached = |(own, wanted): (&Vec<Publisher>, &Vec<u64>)| {
            own.iter().zip(wanted).all(|(publisher, number)| publisher.next > Some(*number))
        };
        self.publishers.iter().zip(numbers).all(reached)
            && (0..self.publishers.len()).all(|host| self.is_settled(host))
    }

    /// Whether all that the reports count shows in the numbers: a message of each publisher came after the last one.
    fn is_settled(&self, host: usize) -> bool {
        self.publishers[host].iter().all(|publisher| publisher.has_followed)
    }

    /// What reports count beyond what is missing is a violation, and then does not count as reported.
    fn compare_least(&mut self, host: usize) {
        let Missing { missing, least, .. } = self.missing[host];
        if least > missing {
            self.missing[host].least = missing;
            let what = format!("host {host}: {least} reported, {missing} missing");
            self.violation(Kind::Overstated, least - missing, &what);
        }
    }

    /// How many messages of other hosts are missing.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing_before + self.missing.iter().map(|of_host| of_host.missing).sum::<u64>()
    }

    /// How many messages were overwritten before they were read.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.lapped
    }

    /// How many violations there are of a kind, counted in messages.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// What is missing beyond all reports is a violation, and then counts as reported.
    fn compare(&mut self, host: usize, what: &str) {
        let beyond = |of_host: &Missing| of_host.missing.saturating_sub(of_host.most);
        let beyond: u64 = self.missing.iter().map(beyond).sum();
        let unreported = beyond.saturating_sub(self.lapped);
        if unreported > 0 {
            self.missing[host].most = self.missing[host].most.saturating_add(unreported);
            self.violation(Kind::Unreported, unreported, what);
        }
    }

    fn violation(&mut self, kind: Kind, messages: u64, what: &str) {
        self.counts[kind as usize] += messages;
        if self.violations.len() < DESCRIBED {
            let words = kind.words();
            self.violations.push(format!("host {}: {words}: {messages}: {what}", self.host));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni::{LostReason, Origin, Pattern};

    fn lost(host: usize, messages: u64, bound: LostBound) -> Lost {
        let source = u32::try_from(host).unwrap() + 1;
        Lost {
            from: Origin { source, series: 1, stream: 1, number: 0 },
            until: 1 << 20,
            messages,
            bound,
            reason: LostReason::Budget,
            scope: vec![Pattern::everything()],
        }
    }

    /// A checker of host 1, where each host has these publishers and no other.
    fn checker(publishers: usize) -> Checker {
        let mut checker = Checker::new(1, 2, publishers);
        checker.publishers.iter_mut().for_each(|of_host| of_host.truncate(publishers));
        checker
    }

    /// Gives a checker of host 1 these messages of host 0's first publisher.
    fn given(numbers: &[u64]) -> Checker {
        let mut checker = checker(1);
        for number in numbers {
            checker.message(worker(0, 0), *number);
        }
        checker
    }

    fn counts(checker: &Checker) -> [u64; 5] {
        Kind::ALL.map(|kind| checker.count(kind))
    }

    #[test]
    fn messages_in_order_are_as_they_must_be() {
        let mut checker = given(&[0, 1, 2]);
        checker.message(worker(1, 0), 0);
        assert_eq!((counts(&checker), checker.received), ([0; 5], 3));
        assert!(
            checker.has_reached(&[vec![2], vec![0]]) && !checker.has_reached(&[vec![3], vec![0]])
        );
    }

    #[test]
    fn what_is_missing_without_a_report_is_found_at_once() {
        assert_eq!(counts(&given(&[0, 3])), [2, 0, 0, 0, 0]);
        // It is reported once.
        assert_eq!(counts(&given(&[0, 3, 4, 6])), [3, 0, 0, 0, 0]);
    }

    #[test]
    fn what_comes_twice_or_late_is_found() {
        assert_eq!(counts(&given(&[0, 1, 1])), [0, 1, 0, 0, 0]);
        assert_eq!(counts(&given(&[0, 2, 1])), [1, 0, 1, 0, 0]);
    }

    #[test]
    fn a_report_must_come_before_what_follows_the_gap_and_be_as_exact_as_it_says() {
        let after = |reports: &[(u64, LostBound)]| {
            let mut checker = given(&[0]);
            for (messages, bound) in reports {
                checker.lost(&lost(0, *messages, *bound));
            }
            checker.message(worker(0, 0), 5);
            counts(&checker)
        };
        let (exact, least, most) = (LostBound::Exact, LostBound::AtLeast, LostBound::AtMost);
        assert_eq!(after(&[(4, exact)]), [0; 5]);
        assert_eq!(after(&[(1, exact), (3, exact)]), [0; 5]);
        assert_eq!(after(&[(3, exact)]), [1, 0, 0, 0, 0]);
        assert_eq!(after(&[(5, exact)]), [0, 0, 0, 1, 0]);
        assert_eq!(after(&[(0, least)]), [0; 5]);
        assert_eq!(after(&[(5, least)]), [0, 0, 0, 1, 0]);
        assert_eq!(after(&[(9, most)]), [0; 5]);
        assert_eq!(after(&[(3, most)]), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_report_is_compared_when_each_publisher_was_heard_again() {
        let reached = |checker: &Checker| checker.has_reached(&[vec![0, 0], vec![]]);
        let mut checker = checker(2);
        (0..2).for_each(|publisher| checker.message(worker(0, publisher), 0));
        assert!(!checker.has_reached(&[vec![0, 0], vec![0, 0]]) && !checker.is_settled(1));
        (0..2).for_each(|publisher| checker.message(worker(1, publisher), 0));
        assert!(reached(&checker));
        // One message of each publisher, and the first one's next message shows only one of them.
        checker.lost(&lost(0, 2, LostBound::Exact));
        checker.message(worker(0, 0), 2);
        assert!(counts(&checker) == [0; 5] && !reached(&checker));
        checker.message(worker(0, 1), 2);
        assert!(counts(&checker) == [0; 5] && reached(&checker));
        checker.lost(&lost(0, 2, LostBound::Exact));
        checker.message(worker(0, 0), 4);
        checker.message(worker(0, 1), 3);
        assert_eq!(counts(&checker), [0, 0, 0, 1, 0]);
    }

    #[test]
    fn the_last_publisher_begins_with_any_message_and_what_was_lost_before_does_not_count() {
        let mut checker = Checker::new(1, 2, 1);
        assert!(!checker.hears(0));
        checker.lost(&lost(0, 3, LostBound::Exact));
        checker.message(worker(0, 0), 0);
        checker.message(worker(0, 1), 7);
        assert!(checker.hears(0) && counts(&checker) == [0; 5]);
        // From here on its messages count like all others: reported and missing, missing only.
        checker.lost(&lost(0, 1, LostBound::Exact));
        checker.message(worker(0, 1), 9);
        checker.message(worker(0, 0), 1);
        assert_eq!(counts(&checker), [0; 5]);
        checker.message(worker(0, 1), 11);
        assert_eq!(counts(&checker), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_loss_without_an_upper_bound_is_for_the_next_message_of_each_publisher() {
        let mut checker = checker(2);
        (0..2).for_each(|publisher| checker.message(worker(0, publisher), 0));
        checker.lost(&lost(0, 0, LostBound::AtLeast));
        checker.message(worker(0, 0), 7);
        checker.message(worker(0, 1), 9);
        assert_eq!(counts(&checker), [0; 5]);
        checker.message(worker(0, 1), 11);
        assert_eq!(counts(&checker), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn on_another_bus_any_number_may_be_the_first_and_then_all_count() {
        let mut checker = given(&[0, 1, 2]);
        checker.message(worker(1, 0), 0);
        checker.begin_again();
        checker.lost(&lost(0, 5, LostBound::Exact));
        // What came before may come again, as from a backup.
        [1, 4].iter().for_each(|number| checker.message(worker(0, 0), *number));
        assert_eq!((counts(&checker), checker.missing()), ([0; 5], 2));
        checker.message(worker(0, 0), 7);
        checker.message(worker(0, 0), 7);
        assert_eq!(counts(&checker), [2, 1, 0, 0, 0]);
    }

    #[test]
    fn a_loss_of_ones_own_messages_cannot_be() {
        let mut checker = given(&[0]);
        checker.lost(&lost(1, 1, LostBound::Exact));
        checker.message(worker(7, 0), 0);
        assert_eq!(counts(&checker), [0, 0, 0, 0, 2]);
    }

    #[test]
    fn what_was_overwritten_before_it_was_read_counts_as_reported() {
        let mut checker = given(&[0]);
        checker.lapped(4);
        checker.message(worker(0, 0), 5);
        assert_eq!(counts(&checker), [0; 5]);
        checker.message(worker(0, 0), 7);
        assert_eq!(counts(&checker), [1, 0, 0, 0, 0]);
    }
}
