//! What a receiver hands out, each message and each loss once.

use super::timing::Timing;
use super::{Counters, Mark, Position};
use crate::config::Order;
use crate::hook::mutant;
use crate::id::{MessageNumber, Number, Sequence};
use crate::reassembly::{Bound, Deliver, Loss, Message};
use crate::time::Monotonic;
use crate::topics::Known;
use crate::wire::{Chunk, Data, Header, LostReason, TableName, TopicNumber};

/// What was handed out of a stream so far.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) known: Known,
    pub(super) counters: Counters,
    /// All numbers below were delivered or reported as lost, of this series.
    pub(super) mark: Option<Number>,
    /// This session brings no messages below.
    from: Number,
    /// Messages below came in an earlier session.
    pub(super) skip: Number,
    /// Messages from here on come again in the next session, which brings no earlier ones.
    limit: Option<Number>,
    /// Whether what is delivered is in the order of the source, so that nothing before it is open.
    ordered: bool,
    /// Whether something complete waits because the caller had no room for it.
    pub(super) paused: bool,
    pub(super) timing: Timing,
}

/// Hands out what the reassembly delivers.
pub(super) struct Out<'a, D> {
    out: &'a mut D,
    pub(super) delivery: &'a mut Delivery,
    /// Whether a name became known that may have been waited for.
    pub(super) named: bool,
    /// The datagram that has just arrived, and its greatest topic plus 1.
    arriving: Option<(Sequence, u32)>,
}

impl Delivery {
    pub(super) fn new(order: Order, header: &Header) -> Self {
        Self {
            known: Known::new(),
            counters: Counters::default(),
            mark: None,
            from: Number::ZERO,
            skip: Number::ZERO,
            limit: None,
            ordered: order == Order::Source,
            paused: false,
            timing: Timing::new(header),
        }
    }

    /// Forgets all of a session.
    pub(super) fn restart(&mut self, header: &Header) {
        self.timing.restart(header);
        self.known.clear();
        self.counters = Counters::default();
        self.mark = None;
        self.from = Number::ZERO;
        self.skip = Number::ZERO;
        self.limit = None;
        self.paused = false;
    }

    /// Leaves the messages from this number on to the next session.
    pub(super) const fn limit(&mut self, begins: Number) {
        self.limit = Some(begins);
    }

    /// Notes that the session brings the numbers from `from` on, what of its series is known, and where it was left
    /// before. Returns the loss between them.
    pub(super) fn begin(
        &mut self,
        from: Number,
        known: Option<Mark>,
        left: Option<Position>,
    ) -> Option<Loss> {
        self.from = from;
        self.mark = Some(from);
        let Mark { next, .. } = known?;
        let known = next.max(from);
        self.mark = Some(known);
        // A session that is resumed brings nothing of itself twice, but may still repeat an earlier one.
        self.skip = left.map_or(known, |left| left.skip);
        (from > next).then(|| Loss {
            message: MessageNumber::ZERO,
            count: from.since(next),
            bound: Bound::AtMost,
            reason: LostReason::Restart,
            after: next.before(),
            until: Some(from),
        })
    }

    /// Hands out what is delivered to `out`.
    pub(super) const fn to<'a, D>(&'a mut self, out: &'a mut D) -> Out<'a, D> {
        Out { out, delivery: self, named: false, arriving: None }
    }

    /// As [`Self::to`], while a datagram arrives that uses topics below `topics_end`.
    pub(super) const fn arriving<'a, D>(
        &'a mut self,
        sequence: Sequence,
        topics_end: u32,
        out: &'a mut D,
    ) -> Out<'a, D> {
        let arriving = Some((sequence, topics_end));
        Out { out, delivery: self, named: false, arriving }
    }

    /// Notes that all numbers below this one were delivered or reported.
    pub(super) fn raise_mark(&mut self, to: Option<Number>) {
        let limit = self.limit.filter(|_| !mutant("mark_over_limit"));
        let to = to.map(|to| limit.map_or(to, |limit| to.min(limit)));
        self.mark = self.mark.max(to);
    }
}

impl<D: Deliver> Out<'_, D> {
    /// Reports a loss as it is.
    pub(super) fn report(&mut self, loss: Loss) {
        let counters = &mut self.delivery.counters;
        counters.lost = counters.lost.saturating_add(loss.count);
        self.out.loss(loss);
    }
}

impl<D: Deliver> Deliver for Out<'_, D> {
    #[inline]
    fn message(&mut self, message: Message<'_>) {
        let delivery = &mut *self.delivery;
        let number = message.start.number;
        if number < delivery.skip {
            delivery.counters.known += 1;
            return;
        }
        if delivery.limit.is_some_and(|limit| number >= limit) {
            return;
        }
        if !delivery.known.has(message.start.topic) {
            return self.loss(Loss {
                message: message.message,
                count: 1,
                bound: Bound::Exact,
                reason: LostReason::Topic,
                after: number.before(),
                until: Some(number.plus(1)),
            });
        }
        delivery.counters.messages += 1;
        if delivery.ordered {
            let next = if mutant("mark_off_by_one") { number } else { number.plus(1) };
            // It is below the limit.
            delivery.mark = delivery.mark.max(Some(next));
        }
        self.out.message(message);
    }

    fn topic(&mut self, number: TopicNumber, name: TableName<'_>) {
        if self.delivery.known.add(number) {
            self.named = true;
            self.out.topic(number, name);
        }
    }

    fn loss(&mut self, loss: Loss) {
        let Delivery { from, skip, .. } = *self.delivery;
        let mut loss = loss;
        if loss.until.is_some_and(|until| until <= skip) {
            return;
        }
        if loss.until.is_none_or(|until| until > from) {
            loss.after = loss.after.max(from.before());
        }
        // Some of them may have come, or been reported, in an earlier session.
        let may_be_known = |after: Number| after.plus(1) < skip;
        if loss.after.is_none_or(may_be_known) && skip > Number::ZERO {
            loss.after = Some(skip.minus(1));
            loss.bound = Bound::AtMost;
        }
        if let Some(limit) = self.delivery.limit {
            let first = loss.after.map_or(Number::ZERO, |after| after.plus(1));
            if first >= limit {
                return;
            }
            // Some of them may come in the next session.
            if loss.until.is_none_or(|until| until > limit) {
                loss.until = Some(limit);
                loss.count = loss.count.min(limit.since(first));
                loss.bound = Bound::AtMost;
            }
        }
        // By arrival, something before them may be open: then the reassembly knows the mark.
        if self.delivery.ordered && !mutant("loss_leaves_mark") {
            self.delivery.raise_mark(loss.until);
        }
        self.report(loss);
    }

    fn waited(&mut self, sequence: Sequence, since: Monotonic) {
        self.delivery.timing.waited(sequence, since);
    }

    fn is_ready(&mut self, sequence: Sequence, data: &Data<'_>) -> bool {
        if !self.out.has_room() && !mutant("full_inbox_overrun") {
            self.delivery.paused = true;
            return false;
        }
        let Delivery { known, skip, .. } = &*self.delivery;
        let below = known.below();
        if self.arriving.is_some_and(|(at, end)| at == sequence && end <= below) {
            return true;
        }
        let mut declared = None;
        data.chunks().all(|placed| match placed.chunk {
            Chunk::Message { start, .. } | Chunk::First { start, .. } => {
                declared.is_some_and(|(first, end)| (first..end).contains(&start.topic.get()))
                    || known.has(start.topic)
                    || start.number < *skip
            }
            Chunk::Topic { number, .. } => {
                let number = number.get();
                let (first, end) = declared.unwrap_or((number, number));
                // Names are declared in order; others are found by `known` later.
                declared =
                    Some(if end == number { (first, end + 1) } else { (number, number + 1) });
                true
            }
            _ => true,
        })
    }
}
