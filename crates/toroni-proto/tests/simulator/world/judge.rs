//! Checks the bounds of the machines during a run, and asks the oracle after it.

use std::collections::BTreeSet;

use super::super::fault::Kind;
use super::super::oracle::{self, Broken, Case, Failure, Given};
use super::{Summary, World, nodes};
use crate::config::Order;
use crate::gaps::MAX_GAPS;
use crate::legs::LegCounters;
use crate::sender::{Event, Sender};
use crate::wire::LostReason;

impl World<'_> {
    /// Memory is within what the configuration states, and no state is without a timer that leads out of it.
    pub(super) fn check_bounds(&self) -> Result<(), Failure> {
        let config = &self.scenario.config;
        let broken = |text| Err(Broken::Machine.because(text));
        for (at, node) in self.receivers.iter().enumerate() {
            let Some(arrivals) = &node.arrivals else { continue };
            let (free, held) = arrivals.buffers();
            let all = config.receive_memory_bytes / config.datagram_bytes;
            if (free + held) as u64 != all {
                return broken(format!("{free} buffers are free and {held} held, of {all}"));
            }
            let (followed, gaps) = (arrivals.counters().count(), arrivals.open_gaps());
            if followed as u64 > config.sources || gaps > followed * MAX_GAPS {
                return broken(format!("receiver {at} has {followed} sources and {gaps} gaps"));
            }
            let latest = self.monotonic().after(config.activity_ns.max(config.status_ns));
            if followed > 0 && arrivals.poll_timeout().is_none_or(|due| due > latest) {
                return broken(format!("receiver {at} waits for nothing"));
            }
        }
        for (at, node) in self.senders.iter().enumerate() {
            let Some(sender) = &node.sender else { continue };
            if sender.audience().members().len() as u64 > config.receivers {
                return broken(format!("sender {at} knows too many receivers"));
            }
            let latest = self.monotonic().after(config.session_max_ns);
            let waits = sender.poll_timeout().is_some_and(|due| due <= latest);
            // One that ended before its group was complete keeps what it never sent.
            if !sender.is_idle() && !sender.is_closed() && !waits {
                return broken(format!("sender {at} has something to send and no timer"));
            }
        }
        Ok(())
    }

    /// After the faults, everything that can be repaired is repaired within twice the generation interval.
    pub(super) fn has_settled(&self) -> Result<(), Failure> {
        let is_idle = |node: &super::SenderNode| {
            let sent = node.sender.as_ref().is_none_or(Sender::is_idle);
            sent && (node.gone || node.cursor == node.bus.len())
        };
        // A sender with a low rate, or that was held, may still be sending. And what noise makes a receiver believe is
        // never repaired.
        let is_noisy = self.scenario.faults.iter().any(|fault| fault.kind == Kind::Noise);
        if is_noisy || !self.senders.iter().all(is_idle) {
            return Ok(());
        }
        self.misses_nothing()
    }

    fn misses_nothing(&self) -> Result<(), Failure> {
        for (at, node) in self.receivers.iter().enumerate() {
            let Some(arrivals) = &node.arrivals else { continue };
            let (_, held) = arrivals.buffers();
            let gaps = arrivals.open_gaps();
            if held > 0 || gaps > 0 {
                let text = format!("receiver {at} holds {held} buffers, {gaps} gaps");
                return Err(Broken::Machine.because(text));
            }
        }
        Ok(())
    }

    pub(in super::super) fn judge(mut self) -> Result<Summary, Failure> {
        self.check_bounds()?;
        self.misses_nothing()?;
        for (at, node) in self.senders.iter().enumerate() {
            let Some(sender) = &node.sender else {
                if node.gone {
                    continue;
                }
                return Err(Broken::Machine.because(format!("sender {at} is not there")));
            };
            // One that ended before its group was complete keeps what it never sent.
            let has_sent = sender.is_idle() || (node.ended && sender.is_closed());
            if !has_sent || node.cursor < node.bus.len() {
                return Err(Broken::Machine.because(format!("sender {at} has not sent all")));
            }
            self.summary.repairs += sender.counters().repairs;
        }
        for (.., event) in &self.reports {
            self.summary.put_out += u64::from(matches!(event, Event::PutOut { .. }));
            self.summary.back += u64::from(matches!(event, Event::Back { .. }));
        }
        for at in 0..self.receivers.len() {
            let arrivals = self.receivers[at].arrivals.iter();
            self.summary.naks +=
                arrivals.flat_map(|one| one.counters()).map(|(.., one)| one.naks).sum::<u64>();
            for source in 0..self.truths.len() {
                let (delivered, lost) = self
                    .judge_one(at, source)
                    .map_err(|error| error.at(format!("receiver {at}, of sender {source}")))?;
                self.summary.delivered += delivered;
                self.summary.lost += lost;
            }
        }
        Ok(self.summary)
    }

    /// What one receiver was given of one source.
    fn judge_one(&self, receiver: usize, source: usize) -> Result<(u64, u64), Failure> {
        let (node, sender) = (&self.receivers[receiver], &self.senders[source]);
        let (mut delivered, mut lost) = (0, 0);
        for life in 0..=node.record.life {
            let given = &of_one_age(node.record.of(source, life));
            let is_last = life == node.record.life;
            let topics = |series, number| {
                let named = self.topics[source].get(&(series, number));
                named.map(|(_, name)| name.clone()).unwrap_or_default()
            };
            let is_complete = is_last && !self.is_forged() && !sender.gone;
            let case = Case {
                truths: &self.truths[source],
                given,
                ordered: self.scenario.config.order == Order::Source,
                quiet_after: self.scenario.settled(),
                faultless: self.is_faultless(),
                last_series: is_complete.then_some(sender.series()),
                silenced: is_last && sender.gone && !sender.said_end,
                impersonated: self.is_forged() || self.scenario.has_twins(),
                topics: &topics,
            };
            let (more, missing) =
                oracle::judge(&case).map_err(|error| error.at(format!("life {life}")))?;
            (delivered, lost) = (delivered + more, lost + missing);
            // What another one sent in its name meanwhile is another series, after which this receiver remembers nothing of the first:
            // only a bus does.
            if !case.impersonated {
                self.repeats_nothing(source, given)?;
            }
            if is_complete {
                self.has_all_late(source, given)?;
            }
        }
        Ok((delivered, lost))
    }

    /// What a sender had sent before it went back to a backup, it may send again, but no receiver gets it again.
    fn repeats_nothing(&self, source: usize, given: &[Given]) -> Result<(), Failure> {
        let mut got = BTreeSet::new();
        for one in given {
            let Given::Message { series, number, .. } = one else { continue };
            let is_old = self.again_from[source].get(series).is_some_and(|from| number < from);
            if is_old && got.contains(&(nodes::ageless(*series), *number)) {
                let text = format!("number {number} came again after its sender was reverted");
                return Err(Broken::Doubled.because(text));
            }
            got.insert((nodes::ageless(*series), *number));
        }
        Ok(())
    }

    fn is_faultless(&self) -> bool {
        self.scenario.faults.is_empty()
            && !self.scenario.rekeys
            && self.scenario.config.generation_ns > 0
    }

    /// Whether there is a stranger whose datagrams are believed.
    fn is_forged(&self) -> bool {
        let forged = |fault: &super::super::fault::Fault| fault.kind == Kind::Hostile;
        !self.scenario.keyed && self.scenario.faults.iter().any(forged)
    }

    /// What was published when all was over must have arrived.
    fn has_all_late(&self, source: usize, given: &[Given]) -> Result<(), Failure> {
        for (_, series, number) in self.late.iter().filter(|(one, ..)| *one == source) {
            let is_it = |one: &Given| {
                matches!(one, Given::Message { series: in_series, number: at, .. }
                    if in_series == series && at == number)
            };
            if !given.iter().any(is_it) {
                let text = format!("number {number} of sender {source} did not arrive");
                return Err(Broken::Unreported.because(text));
            }
        }
        Ok(())
    }

    /// Returns how long each message was on its way to a receiver, sorted, in nanoseconds.
    pub(in super::super) fn latencies(&self, receiver: usize) -> Vec<u64> {
        let given = self.receivers[receiver].record.given.iter();
        let mut list: Vec<u64> = given
            .flat_map(|((source, _), given)| given.iter().map(move |one| (source, one)))
            .filter_map(|(source, one)| match one {
                Given::Message { at, series, number, .. } => {
                    Some(at - self.topics[*source].get(&(*series, *number))?.0)
                }
                Given::Loss { .. } => None,
            })
            .collect();
        list.sort_unstable();
        list
    }

    /// Returns the losses that a receiver was told of.
    pub(in super::super) fn losses(&self, receiver: usize) -> Vec<Given> {
        let given = self.receivers[receiver].record.given.values().flatten();
        given.filter(|one| matches!(one, Given::Loss { .. })).cloned().collect()
    }

    pub(in super::super) fn sender(&self, at: usize) -> Option<&Sender> {
        self.senders[at].sender.as_ref()
    }

    /// Returns how many datagrams a receiver has heard more than once.
    pub(in super::super) fn duplicates(&self, receiver: usize) -> u64 {
        let arrivals = self.receivers[receiver].arrivals.iter();
        arrivals.flat_map(|one| one.counters()).map(|(.., one)| one.duplicates).sum()
    }

    /// Returns what each leg has brought to a receiver.
    pub(in super::super) fn legs(&self, receiver: usize) -> Vec<LegCounters> {
        let arrivals = self.receivers[receiver].arrivals.iter();
        arrivals.flat_map(|one| one.legs()).map(|(.., counters)| counters).collect()
    }

    /// Returns whether a sender has stopped because another node has its id.
    pub(in super::super) fn stopped_by_collision(&self, at: usize) -> bool {
        self.senders[at].collided
    }
}

/// A receiver to which it was not said that a sender went back to a backup must have had nothing that the sender has forgotten. Then
/// what it was given before is of the present age as well.
fn of_one_age(mut given: Vec<Given>) -> Vec<Given> {
    for at in 1..given.len() {
        let (before, series) = (given[at - 1].series(), given[at].series());
        let is_told = matches!(&given[at - 1], Given::Loss { reason: LostReason::Diverged, .. });
        if before == series || nodes::ageless(before) != nodes::ageless(series) || is_told {
            continue;
        }
        let earlier = given[..at].iter_mut().rev().take_while(|one| one.series() == before);
        earlier.for_each(|one| one.set_series(series));
    }
    given
}
