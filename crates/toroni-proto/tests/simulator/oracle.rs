//! Judges what a receiver was given. It knows no datagrams: only what was published, in which order, and what
//! was delivered and reported.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::LostReason;

/// What was published with each number of a series: the bytes, or nothing if the source itself missed it.
pub(super) type Truth = BTreeMap<u64, Option<Vec<u8>>>;

/// How exact a count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Exact(u64),
    AtLeast(u64),
    AtMost(u64),
}

/// What a receiver was given of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Given {
    Message {
        at: u64,
        series: u32,
        number: u64,
        topic: Option<String>,
        bytes: Vec<u8>,
    },
    Loss {
        at: u64,
        series: u32,
        count: Count,
        reason: LostReason,
        after: Option<u64>,
        until: Option<u64>,
    },
}

impl Given {
    pub(super) const fn series(&self) -> u32 {
        match self {
            Self::Message { series, .. } | Self::Loss { series, .. } => *series,
        }
    }

    pub(super) const fn set_series(&mut self, to: u32) {
        match self {
            Self::Message { series, .. } | Self::Loss { series, .. } => *series = to,
        }
    }
}

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    /// A message is missing, and nothing was reported.
    Unreported,
    /// A report has a wrong count.
    Count,
    /// A message was delivered twice.
    Doubled,
    /// A message was delivered after a later one.
    Order,
    /// Other bytes, or another topic, than were published.
    Content,
    /// A loss was reported that nothing explains.
    Unexplained,
    /// Memory, time, or a state that leads nowhere.
    Machine,
}

#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) broken: Broken,
    pub(super) text: String,
}

impl Broken {
    pub(super) fn because(self, text: impl Into<String>) -> Failure {
        Failure { broken: self, text: text.into() }
    }
}

impl Failure {
    pub(super) fn at(self, place: impl core::fmt::Display) -> Self {
        Self { text: format!("{place}: {}", self.text), ..self }
    }

    /// Whether another failure says the same, but for its numbers.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let words = |failure: &Self| failure.text.replace(|one: char| one.is_ascii_digit(), "");
        self.broken == other.broken && words(self) == words(other)
    }
}

/// What is judged: what one receiver was given of one source, while it remembered what it had received.
pub(super) struct Case<'a> {
    pub(super) truths: &'a BTreeMap<u32, Truth>,
    pub(super) given: &'a [Given],
    pub(super) ordered: bool,
    /// Nothing but the source's own losses is reported after this time.
    pub(super) quiet_after: u64,
    /// Nothing may be lost at all.
    pub(super) faultless: bool,
    /// The series that is sent last, if the receiver must have been given all of it from somewhere on.
    pub(super) last_series: Option<u32>,
    /// The source was killed for good, so the last thing given says that more may be missing.
    pub(super) silenced: bool,
    /// Others sent in the name of the source, so a series may come again after another one.
    pub(super) impersonated: bool,
    pub(super) topics: &'a dyn Fn(u32, u64) -> String,
}

/// Returns how many messages were delivered, and how many were reported as lost exactly.
pub(super) fn judge(case: &Case<'_>) -> Result<(u64, u64), Failure> {
    let (mut delivered, mut lost) = (0, 0);
    for given in case.given {
        match given {
            Given::Message { .. } => {
                delivered += 1;
                is_what_was_published(case, given)?;
            }
            Given::Loss { at, count, reason, .. } => {
                if let Count::Exact(count) = count {
                    lost += count;
                }
                let own = matches!(reason, LostReason::Overtaken | LostReason::TooLong);
                if !own && (*at > case.quiet_after || case.faultless) {
                    return Err(Broken::Unexplained.because(format!("{given:?}")));
                }
            }
        }
    }
    let mut before = BTreeSet::new();
    let parts: Vec<&[Given]> = case.given.chunk_by(|a, b| a.series() == b.series()).collect();
    for (at, part) in parts.iter().enumerate() {
        let series = part[0].series();
        if !before.insert(series) && !case.impersonated {
            return Err(Broken::Order.because(format!("series {series} came again")));
        }
        let empty = Truth::new();
        let truth = case.truths.get(&series).unwrap_or(&empty);
        // If another series followed, something was reported unless the source had ended in order.
        let is_last = at + 1 == parts.len();
        let to_the_end =
            if is_last { case.last_series == Some(series) } else { !case.impersonated };
        let judged = if case.ordered { in_order } else { by_arrival };
        judged(truth, part, to_the_end, case.impersonated)
            .map_err(|error| error.at(format!("series {series}")))?;
    }
    let says_more = |given: &Given| matches!(given, Given::Loss { count: Count::AtLeast(_), .. });
    if case.silenced && delivered > 0 && !case.given.last().is_some_and(says_more) {
        return Err(Broken::Unreported.because("its source died, and nothing says so"));
    }
    Ok((delivered, lost))
}

fn is_what_was_published(case: &Case<'_>, given: &Given) -> Result<(), Failure> {
    let Given::Message { series, number, topic, bytes, .. } = given else { return Ok(()) };
    let truth = case.truths.get(series).and_then(|truth| truth.get(number));
    if truth != Some(&Some(bytes.clone())) {
        let length = truth.map(|one| one.as_ref().map(Vec::len));
        return Err(Broken::Content.because(format!("number {number} should be {length:?}")));
    }
    if topic.as_deref() != Some(&(case.topics)(*series, *number)) {
        return Err(Broken::Content.because(format!("number {number} has the topic {topic:?}")));
    }
    Ok(())
}

/// Missing messages must be what the losses say.
fn compare(missing: u64, losses: &[Count]) -> Result<(), Failure> {
    let (mut least, mut most) = (0_u64, Some(0_u64));
    for loss in losses {
        match loss {
            Count::Exact(count) => {
                least += count;
                most = most.map(|most| most + count);
            }
            Count::AtLeast(count) => {
                least += count;
                most = None;
            }
            Count::AtMost(count) => most = most.map(|most| most + count),
        }
    }
    if missing >= least && most.is_none_or(|most| missing <= most) {
        return Ok(());
    }
    let broken = if losses.is_empty() { Broken::Unreported } else { Broken::Count };
    Err(broken.because(format!("{missing} are missing, and the reports are {losses:?}")))
}

/// In the order of the source: between two messages exactly what was reported is missing.
fn in_order(
    truth: &Truth,
    given: &[Given],
    to_the_end: bool,
    impersonated: bool,
) -> Result<(), Failure> {
    let mut last: Option<u64> = None;
    let mut losses = Vec::new();
    for one in given {
        match one {
            Given::Message { number, .. } => {
                if let Some(last) = last {
                    if *number == last {
                        return Err(Broken::Doubled.because(format!("number {number} twice")));
                    }
                    if *number < last {
                        return Err(Broken::Order.because(format!("number {number} after {last}")));
                    }
                    let missing = truth.range(last + 1..*number).count() as u64;
                    compare(missing, &losses)
                        .map_err(|error| error.at(format!("between {last} and {number}")))?;
                }
                losses.clear();
                last = Some(*number);
            }
            Given::Loss { count, after, until, reason, .. } => {
                within(truth, *after, *until, *count)?;
                losses.push(*count);
                // A stranger makes receivers go back in a series that continues. Then messages come again.
                if impersonated && *reason == LostReason::Diverged {
                    last = None;
                }
            }
        }
    }
    if let Some(last) = last.filter(|_| to_the_end) {
        let missing = truth.range(last + 1..).count() as u64;
        compare(missing, &losses).map_err(|error| error.at(format!("after {last}, to the end")))?;
    }
    Ok(())
}

/// By arrival: each message once, and what is missing was reported.
fn by_arrival(
    truth: &Truth,
    given: &[Given],
    to_the_end: bool,
    impersonated: bool,
) -> Result<(), Failure> {
    let mut numbers = BTreeSet::new();
    let mut losses = Vec::new();
    for one in given {
        match one {
            Given::Message { number, .. } => {
                if !numbers.insert(*number) {
                    return Err(Broken::Doubled.because(format!("number {number} twice")));
                }
            }
            Given::Loss { count, after, until, reason, .. } => {
                within(truth, *after, *until, *count)?;
                losses.push(*count);
                // A stranger makes receivers go back in a series that continues. Then messages come again.
                if impersonated && *reason == LostReason::Diverged {
                    numbers.clear();
                }
            }
        }
    }
    let Some(first) = numbers.first() else { return Ok(()) };
    // What was lost before the first message that was given cannot be told from what was never heard.
    let begins_with_it = matches!(given.first(), Some(Given::Message { .. }));
    if !to_the_end || !begins_with_it {
        return Ok(());
    }
    let is_missing = |number: &u64| !numbers.contains(number);
    let missing = truth.range(*first..).filter(|(number, _)| is_missing(number)).count() as u64;
    // One before it may have been lost, and reported after it.
    let before = truth.range(..*first).count() as u64;
    let exact = compare(missing, &losses);
    if (0..=before).any(|more| compare(missing + more, &losses).is_ok()) { Ok(()) } else { exact }
}

/// A loss names the numbers between which it lies: there must be that many.
fn within(
    truth: &Truth,
    after: Option<u64>,
    until: Option<u64>,
    count: Count,
) -> Result<(), Failure> {
    let (Some(after), Some(until)) = (after, until) else { return Ok(()) };
    let room = truth.range(after + 1..until.max(after + 1)).count() as u64;
    match count {
        Count::Exact(count) | Count::AtLeast(count) if count > room => {
            let text = format!("{count} lost between {after} and {until}, where {room} are");
            Err(Broken::Count.because(text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const SERIES: u32 = 3;

    fn message(number: u64) -> Given {
        let bytes = number.to_le_bytes().to_vec();
        Given::Message { at: 0, series: SERIES, number, topic: Some("a".to_owned()), bytes }
    }

    fn loss(count: Count) -> Given {
        let reason = LostReason::Budget;
        Given::Loss { at: 0, series: SERIES, count, reason, after: None, until: None }
    }

    fn verdict(given: &[Given], ordered: bool, silenced: bool) -> Option<Broken> {
        // The numbers of a bus, of which not all are this stream's.
        let truth = (0_u64..40).map(|at| (at * 3, Some((at * 3).to_le_bytes().to_vec()))).collect();
        let truths = BTreeMap::from([(SERIES, truth)]);
        let topics = |_, _| "a".to_owned();
        let case = Case {
            truths: &truths,
            given,
            ordered,
            quiet_after: 1,
            faultless: false,
            last_series: Some(SERIES),
            silenced,
            impersonated: false,
            topics: &topics,
        };
        judge(&case).err().map(|failure| failure.broken)
    }

    /// All 40 messages, of which some are reported as lost instead.
    fn correct(random: &mut Random) -> Vec<Given> {
        let mut list = vec![message(0)];
        let mut at = 1;
        while at < 40 {
            let count = random.between(1, 4).min(40 - at);
            match random.below(3) {
                0 => list.push(loss(Count::Exact(count))),
                _ => list.extend((at..at + count).map(|at| message(at * 3))),
            }
            at += count;
        }
        list
    }

    #[test]
    fn it_accepts_what_is_correct_and_notices_each_mistake() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let list = correct(&mut random);
            let mut with = |change: &mut dyn FnMut(&mut Vec<Given>, usize)| {
                let mut list = list.clone();
                let messages = list.iter().enumerate().skip(1);
                let places: Vec<usize> = messages
                    .filter_map(|(at, one)| matches!(one, Given::Message { .. }).then_some(at))
                    .collect();
                let place = places[usize::try_from(random.below(places.len() as u64)).unwrap()];
                change(&mut list, place);
                [true, false].map(|ordered| verdict(&list, ordered, false))
            };
            assert_eq!(with(&mut |_, _| ()), [None, None]);
            let missing = with(&mut |list, at| drop(list.remove(at)));
            assert!(
                missing
                    .iter()
                    .all(|one| { matches!(one, Some(Broken::Unreported | Broken::Count)) })
            );
            let doubled = with(&mut |list, at| list.insert(at, list[at].clone()));
            assert_eq!(doubled, [Some(Broken::Doubled); 2]);
            let [late, _] = with(&mut |list, at| {
                let one = list.remove(at);
                list.insert(at - 1, one);
            });
            assert!(matches!(late, Some(Broken::Order | Broken::Count | Broken::Unreported)));
            let counted = with(&mut |list, at| list.insert(at, loss(Count::Exact(1))));
            assert_eq!(counted, [Some(Broken::Count); 2]);
            let at_least = with(&mut |list, at| list[at] = loss(Count::AtLeast(2)));
            assert_eq!(at_least, [Some(Broken::Count); 2]);
            let changed = with(&mut |list, at| {
                if let Given::Message { bytes, .. } = &mut list[at] {
                    bytes[7] ^= 1;
                }
            });
            assert_eq!(changed, [Some(Broken::Content); 2]);
            let renamed = with(&mut |list, at| {
                if let Given::Message { topic, .. } = &mut list[at] {
                    *topic = Some("b".to_owned());
                }
            });
            assert_eq!(renamed, [Some(Broken::Content); 2]);
            let unexplained = with(&mut |list, place| {
                if let Given::Message { .. } = &list[place]
                    && let Given::Loss { count, reason, after, until, series, .. } =
                        loss(Count::Exact(1))
                {
                    list[place] = Given::Loss { at: 2, series, count, reason, after, until };
                }
            });
            assert_eq!(unexplained, [Some(Broken::Unexplained); 2]);
        }
    }

    #[test]
    fn a_source_that_died_must_be_reported_last() {
        let all: Vec<Given> = (0..40).map(|at| message(at * 3)).collect();
        let told = [&all[..], &[loss(Count::AtLeast(0))]].concat();
        let told_before = [&all[..39], &[loss(Count::AtLeast(0))], &all[39..]].concat();
        for ordered in [true, false] {
            assert_eq!(verdict(&told, ordered, true), None);
            assert_eq!(verdict(&all, ordered, true), Some(Broken::Unreported));
            assert_eq!(verdict(&told_before, ordered, true), Some(Broken::Unreported));
        }
    }
}
