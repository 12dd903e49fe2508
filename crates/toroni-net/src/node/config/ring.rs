//! Whether the ring of the bus suits the streams.
//!
//! The ring is where messages wait while a node does not run, or is restarted. And no message is longer than half of it.

use super::document::Document;
use super::effective::Derived;
use super::finding::Findings;
use super::model::Node;
use super::units::Quantity;

/// The size of the ring of a bus that is created without one.
const USUAL_CAPACITY: u64 = 4 << 20;
/// A node that is started again within this time and the generation interval continues without a loss.
const RESTART_NS: u64 = 1_000_000_000;

/// Returns a bound of the messages in a ring of this capacity. The longest one is some bytes shorter.
const fn longest_message(capacity: u64) -> u64 {
    capacity / 2
}

/// Returns for how long a ring of this capacity holds what is sent at this rate, in nanoseconds.
fn holds_ns(capacity: u64, rate: u64) -> u64 {
    let bits = u128::from(capacity) * 8_000_000_000;
    u64::try_from(bits / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

/// Returns the size of a ring that holds what is sent at this rate for `time_ns`, in whole MiB.
fn needed(rate: u64, time_ns: u64) -> u64 {
    const MIB: u128 = 1 << 20;
    let bytes = (u128::from(rate) * u128::from(time_ns)).div_ceil(8_000_000_000);
    u64::try_from(bytes.div_ceil(MIB) * MIB).unwrap_or(u64::MAX)
}

fn milliseconds(ns: u64) -> String {
    format!("{} ms", ns / 1_000_000)
}

/// Warns of a ring that the file sets and that is too small. Of a bus that exists, the file says nothing.
pub(super) fn check(document: &Document, findings: &mut Findings) {
    let Some(bus) = document.one("node.bus") else { return };
    let Some(capacity) = bus.number("capacity") else { return };
    let shown = Quantity::Bytes.show(capacity);
    let sends = document.all("send");
    let rate =
        sends.iter().filter_map(|send| send.number("data_rate")).fold(0, u64::saturating_add);
    let generation = sends.iter().filter_map(|send| send.number("generation")).max();
    let time = generation.unwrap_or(0).saturating_add(RESTART_NS);
    let holds = holds_ns(capacity, rate);
    if holds < time {
        let problem = format!(
            "is {shown}, which holds {} at the data_rate of all [[send]] together ({}): if the node does not run for longer, \
             messages are overwritten before they are sent. {} hold generation and a second, in which it can be restarted",
            milliseconds(holds),
            Quantity::Rate.show(rate),
            Quantity::Bytes.show(needed(rate, time)),
        );
        findings.warn(bus.place_of("capacity"), bus.name_of("capacity"), problem);
    }
    let longest = longest_message(capacity);
    let sections = ["send", "receive"].into_iter().flat_map(|section| document.all(section));
    for values in sections.filter(|values| values.has("message_max")) {
        if values.number("message_max").is_some_and(|message| message > longest) {
            let problem = format!(
                "is more than half of the bus's capacity of {shown}, and no message is longer than that: longer ones are \
                 reported as lost"
            );
            findings.warn(values.place_of("message_max"), values.name_of("message_max"), problem);
        }
    }
}

/// Returns what follows from the size of the ring.
pub(super) fn derived(node: &Node) -> Vec<Derived> {
    let Node { sends, receives, listen, connects, .. } = node;
    if sends.is_empty() && receives.is_empty() && listen.is_none() && connects.is_empty() {
        return Vec::new();
    }
    let capacity = node.bus.capacity.unwrap_or(USUAL_CAPACITY);
    let one = |what, value| Derived { of: "[node.bus]".to_owned(), what, value };
    let mut all = vec![
        one("ring, if the node creates the bus", Quantity::Bytes.show(capacity)),
        one("bound of the longest message in it", Quantity::Bytes.show(longest_message(capacity))),
    ];
    let rates = sends.iter().filter_map(|send| send.config.data_rate);
    let rate = rates.fold(0, u64::saturating_add);
    if rate > 0 {
        let value = milliseconds(holds_ns(capacity, rate));
        all.push(one("time that it holds at the full rates", value));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_was_proposed_is_large_enough_and_little_less_is_not() {
        for (rate, time) in [(1, 1), (200_000_000, 1_500_000_000), (u64::MAX, u64::MAX)] {
            let proposed = needed(rate, time);
            assert!(holds_ns(proposed, rate) >= time || proposed == u64::MAX, "{rate} {time}");
        }
        // 200 Mbit/s for 1.5 s are 37.5 MB.
        assert_eq!(needed(200_000_000, 1_500_000_000), 36 << 20);
        assert!(holds_ns(35 << 20, 200_000_000) < 1_500_000_000);
        assert_eq!(holds_ns(u64::MAX, 0), u64::MAX);
    }
}
