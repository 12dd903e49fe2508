//! What each client must have got. It knows no protocol: the list of the source, without the losses that were
//! reported, in order.

use crate::reassembly::Bound;

/// A message of a stream, as its source has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) topic: u64,
    pub(super) length: usize,
    pub(super) at: u64,
    /// It can only be reported as lost.
    pub(super) missed: bool,
}

impl Sent {
    /// The bytes of the message.
    pub(super) fn payload(&self, stream: usize) -> Vec<u8> {
        let first = self.number.wrapping_mul(31).wrapping_add(stream as u64 * 7);
        (0..self.length).map(|at| u8::try_from((first + at as u64 * 13) % 251).unwrap()).collect()
    }
}

/// What a client was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Got {
    Message {
        number: u64,
        topic: String,
        payload: Vec<u8>,
        at: u64,
    },
    Loss {
        from: u64,
        until: u64,
        count: u64,
        bound: Bound,
    },
    /// It asked for everything from here on. Once, what comes may begin there again.
    Asked {
        number: u64,
    },
}

/// Compares. `first` is the number with which the client began, and `end` one that it must have reached.
pub(super) fn check(
    list: &[Sent],
    stream: usize,
    wants: impl Fn(u64) -> bool,
    (first, end): (u64, u64),
    got: &[Got],
) -> Result<(u64, u64), String> {
    let missing = |from: u64, until: u64| {
        list.iter().filter(|one| (from..until).contains(&one.number) && wants(one.topic)).count()
            as u64
    };
    let (mut mark, mut delivered, mut lost) = (first, 0, 0);
    let mut asked: Vec<u64> = Vec::new();
    for one in got {
        if let Got::Message { number: from, .. } | Got::Loss { from, .. } = one
            && *from < mark
        {
            // A question that follows another one at once takes its place, and both may be answered.
            let answered = (0..asked.len()).filter(|at| asked[*at] <= *from);
            if let Some(at) = answered.max_by_key(|at| asked[*at]) {
                mark = asked[at];
                asked.drain(..=at);
            }
        }
        match one {
            Got::Message { number, topic, payload, .. } => {
                let silent = missing(mark, *number);
                if silent > 0 {
                    return Err(format!("{silent} messages from {mark} to {number} not reported"));
                }
                if *number < mark {
                    return Err(format!("{number} after {mark}"));
                }
                let Some(sent) = list.iter().find(|sent| sent.number == *number) else {
                    return Err(format!("{number} was never sent"));
                };
                if sent.missed || *payload != sent.payload(stream) || !wants(sent.topic) {
                    return Err(format!("{number} is not what was sent: {sent:?}"));
                }
                if *topic != format!("t/{}", sent.topic) {
                    return Err(format!("{number} has the topic {topic}: {sent:?}"));
                }
                mark = number + 1;
                delivered += 1;
            }
            Got::Loss { until, count, bound, .. } => {
                let really = missing(mark, *until);
                let right = match bound {
                    Bound::Exact => really == *count,
                    Bound::AtLeast => really >= *count,
                    Bound::AtMost => really <= *count,
                };
                if !right {
                    return Err(format!("{count} {bound:?} lost below {until}, not {really}"));
                }
                mark = mark.max(*until);
                lost += really;
            }
            Got::Asked { number } => asked.push(*number),
        }
    }
    let silent = missing(mark, end);
    if silent > 0 {
        return Err(format!("{silent} messages from {mark} to the end {end} not reported"));
    }
    Ok((delivered, lost))
}
