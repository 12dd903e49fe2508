//! Judges what a receiver was given. It knows no datagrams: only what was published, in which order, and what
//! was delivered and reported.

use std::collections::BTreeMap;

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

/// What a receiver was given of one stream.
#[derive(Debug, Clone)]
pub(super) enum Given {
    Message {
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

/// Missing messages must be what the losses say.
fn compare(missing: u64, losses: &[Count]) -> Result<(), String> {
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
    if missing < least || most.is_some_and(|most| missing > most) {
        return Err(format!("{missing} are missing, and the reports are {losses:?}"));
    }
    Ok(())
}

/// What is judged.
pub(super) struct Case<'a> {
    pub(super) truths: &'a BTreeMap<u32, Truth>,
    pub(super) given: &'a [Given],
    pub(super) ordered: bool,
    /// Nothing but the source's own losses is reported after this time.
    pub(super) quiet_after: u64,
    /// Nothing may be lost at all.
    pub(super) faultless: bool,
    /// The series that is sent last, if the receiver must have heard all of it from somewhere on to the end.
    pub(super) last_series: u32,
    pub(super) topics: &'a dyn Fn(u32, u64) -> String,
}

pub(super) fn judge(case: &Case<'_>) -> Result<(u64, u64), String> {
    let mut by_series: BTreeMap<u32, Vec<&Given>> = BTreeMap::new();
    let (mut delivered, mut lost) = (0, 0);
    for given in case.given {
        let series = match given {
            Given::Message { series, number, topic, bytes, .. } => {
                delivered += 1;
                let truth = case.truths.get(series).ok_or("a message of an unknown series")?;
                match truth.get(number) {
                    Some(Some(wanted)) if wanted == bytes => {}
                    other => {
                        return Err(format!(
                            "number {number}: not what was published: {:?}",
                            other.map(|one| one.as_ref().map(Vec::len))
                        ));
                    }
                }
                if topic.as_deref() != Some(&(case.topics)(*series, *number)) {
                    return Err(format!("number {number} has the topic {topic:?}"));
                }
                *series
            }
            Given::Loss { at, series, count, reason, .. } => {
                if let Count::Exact(count) = count {
                    lost += count;
                }
                let own = matches!(reason, LostReason::Overtaken | LostReason::TooLong);
                if !own && (*at > case.quiet_after || case.faultless) {
                    return Err(format!("a loss that nothing explains: {given:?}"));
                }
                *series
            }
        };
        by_series.entry(series).or_default().push(given);
    }
    for (series, given) in by_series {
        let empty = Truth::new();
        let truth = case.truths.get(&series).unwrap_or(&empty);
        let is_last = series == case.last_series;
        if case.ordered {
            in_order(truth, &given, is_last)?;
        } else {
            by_arrival(truth, &given, is_last)?;
        }
    }
    Ok((delivered, lost))
}

/// In the order of the source: between two messages exactly what was reported is missing.
fn in_order(truth: &Truth, given: &[&Given], is_last: bool) -> Result<(), String> {
    let mut last: Option<u64> = None;
    let mut losses = Vec::new();
    for one in given {
        match one {
            Given::Message { number, .. } => {
                if let Some(last) = last {
                    if *number <= last {
                        return Err(format!("number {number} after {last}"));
                    }
                    let missing = truth.range(last + 1..*number).count() as u64;
                    compare(missing, &losses)
                        .map_err(|error| format!("between {last} and {number}: {error}"))?;
                }
                losses.clear();
                last = Some(*number);
            }
            Given::Loss { count, after, until, .. } => {
                if let (Some(after), Some(until)) = (after, until) {
                    within(truth, *after, *until, *count)?;
                }
                losses.push(*count);
            }
        }
    }
    if let Some(last) = last.filter(|_| is_last) {
        let missing = truth.range(last + 1..).count() as u64;
        compare(missing, &losses).map_err(|error| format!("after {last}, to the end: {error}"))?;
    }
    Ok(())
}

/// By arrival: each message once, and what is missing was reported.
fn by_arrival(truth: &Truth, given: &[&Given], is_last: bool) -> Result<(), String> {
    let mut numbers = std::collections::BTreeSet::new();
    let mut losses = Vec::new();
    let mut first = None;
    for one in given {
        match one {
            Given::Message { number, .. } => {
                if !numbers.insert(*number) {
                    return Err(format!("number {number} twice"));
                }
                first.get_or_insert(losses.len());
            }
            Given::Loss { count, after, until, .. } => {
                if let (Some(after), Some(until)) = (after, until) {
                    within(truth, *after, *until, *count)?;
                }
                losses.push(*count);
            }
        }
    }
    let (Some(least), Some(most)) = (numbers.first(), numbers.last()) else { return Ok(()) };
    if !is_last {
        return Ok(());
    }
    // What was lost before the first message that was heard cannot be told from what was never heard.
    if first != Some(0) {
        return Ok(());
    }
    let _ = most;
    let missing = truth.range(*least..).filter(|(number, _)| !numbers.contains(number)).count();
    // A message before the first one that was given may have been lost and reported after it.
    let before = truth.range(..*least).count() as u64;
    let mut slack = losses.clone();
    slack.push(Count::AtMost(0));
    let exact = compare(missing as u64, &losses);
    if exact.is_err() && before > 0 {
        let any = (0..=before).any(|more| compare(missing as u64 + more, &losses).is_ok());
        return if any { Ok(()) } else { exact };
    }
    exact
}

/// A loss names the numbers between which it lies: there must be that many.
fn within(truth: &Truth, after: u64, until: u64, count: Count) -> Result<(), String> {
    let room = truth.range(after + 1..until.max(after + 1)).count() as u64;
    match count {
        Count::Exact(count) | Count::AtLeast(count) if count > room => {
            Err(format!("{count} lost between {after} and {until}, where {room} are"))
        }
        _ => Ok(()),
    }
}
