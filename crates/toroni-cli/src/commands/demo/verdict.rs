//! Checks what the processes of a demo saw. Does no I/O.

use super::Outcome;
use super::protocol::Phase;
use serde::Serialize;
use toroni_shell::human;

/// One promise of the bus, and whether it was kept.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) promise: &'static str,
    pub(super) passed: bool,
    pub(super) detail: String,
}

/// Checks every promise that the demo tests.
pub(super) fn judge(outcome: &Outcome) -> Vec<Check> {
    vec![
        one_order(outcome),
        complete(outcome),
        victim(outcome),
        nothing_lost(outcome),
        whole(outcome),
    ]
}

fn one_order(outcome: &Outcome) -> Check {
    let agree = |phases: &[Phase]| {
        phases
            .windows(2)
            .all(|two| two[0].hash == two[1].hash && two[0].messages == two[1].messages)
            && !phases.is_empty()
    };
    let passed = agree(&outcome.flood) && agree(&outcome.steady);
    let detail = match outcome.steady.first() {
        Some(phase) if passed => format!(
            "{} subscribers, {} messages each, hash {:016x}",
            outcome.steady.len(),
            human::count(phase.messages),
            phase.hash
        ),
        _ => {
            let hashes: Vec<String> = outcome
                .steady
                .iter()
                .map(|phase| format!("hash {:016x} over {} messages", phase.hash, phase.messages))
                .collect();
            format!("the subscribers disagree: {}", hashes.join(", "))
        }
    };
    Check { promise: "one identical order", passed, detail }
}

fn complete(outcome: &Outcome) -> Check {
    let mut wrong = Vec::new();
    for (name, phases, both) in
        [("flood", &outcome.flood, false), ("steady", &outcome.steady, true)]
    {
        for (subscriber, phase) in phases.iter().enumerate() {
            for (publisher, flood_published) in outcome.flood_published.iter().enumerate() {
                let steady = outcome.steady_published.get(publisher).copied().unwrap_or(0);
                let wanted = flood_published + if both { steady } else { 0 };
                let found = phase.counts.get(publisher).copied().unwrap_or(0);
                let disorder = phase.disorders.get(publisher).copied().unwrap_or(0);
                if found != wanted || disorder > 0 {
                    wrong.push(format!(
                        "{name} phase: subscriber {subscriber} received {found} of {wanted} messages of \
                         publisher {publisher}, {disorder} of them out of order"
                    ));
                }
            }
        }
    }
    let [flood_published, steady] =
        [&outcome.flood_published, &outcome.steady_published].map(|all| all.iter().sum::<u64>());
    Check {
        promise: "survivors complete",
        passed: wrong.is_empty(),
        detail: if wrong.is_empty() {
            format!(
                "all {} + {} messages of {} publishers, each publisher's in order",
                human::count(flood_published),
                human::count(steady),
                outcome.flood_published.len()
            )
        } else {
            wrong.join("; ")
        },
    }
}

fn victim(outcome: &Outcome) -> Check {
    let index = outcome.flood_published.len();
    let count = |phase: &Phase| phase.counts.get(index).copied().unwrap_or(0);
    let seen: Vec<u64> = outcome.flood.iter().chain(&outcome.steady).map(count).collect();
    let disorder: u64 = outcome.steady.iter().filter_map(|phase| phase.disorders.get(index)).sum();
    let same = seen.windows(2).all(|two| two[0] == two[1]);
    let enough = seen.iter().all(|seen| *seen >= outcome.victim_confirmed);
    let first = seen.first().copied().unwrap_or(0);
    let passed = same && enough && disorder == 0 && first > 0;
    let detail = if passed {
        format!(
            "{} of its messages arrived until SIGKILL, in order and without a gap",
            human::count(first)
        )
    } else {
        format!(
            "subscribers received {seen:?} messages, {disorder} of them out of order; {} were confirmed",
            outcome.victim_confirmed
        )
    };
    Check { promise: "killed publisher", passed, detail }
}

fn nothing_lost(outcome: &Outcome) -> Check {
    let lost: u64 = outcome.steady.iter().map(|phase| phase.lost_messages).sum();
    let gaps: u64 = outcome.steady.iter().map(|phase| phase.sequence_errors).sum();
    Check {
        promise: "nothing lost",
        passed: lost == 0 && gaps == 0,
        detail: if lost == 0 && gaps == 0 {
            "no subscriber reported a loss, and no sequence number is missing".to_owned()
        } else {
            format!("{lost} messages lost, {gaps} gaps in the sequence")
        },
    }
}

fn whole(outcome: &Outcome) -> Check {
    let torn: u64 = outcome.steady.iter().map(|phase| phase.torn).sum();
    Check {
        promise: "nothing torn",
        passed: torn == 0,
        detail: if torn == 0 {
            "every message has exactly the bytes that were published".to_owned()
        } else {
            format!("{torn} messages have bytes that were not published together")
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(counts: &[u64]) -> Phase {
        Phase {
            messages: counts.iter().sum(),
            hash: 7,
            counts: counts.to_vec(),
            disorders: vec![0; counts.len()],
            ..Phase::default()
        }
    }

    fn good() -> Outcome {
        Outcome {
            flood_published: vec![50, 50],
            steady_published: vec![2, 2],
            victim_confirmed: 20,
            started_ns: 0,
            flood: vec![phase(&[50, 50, 24]), phase(&[50, 50, 24])],
            steady: vec![phase(&[52, 52, 24]), phase(&[52, 52, 24])],
        }
    }

    fn failed(outcome: &Outcome) -> Vec<&'static str> {
        judge(outcome).iter().filter(|check| !check.passed).map(|check| check.promise).collect()
    }

    #[test]
    fn a_good_run_passes() {
        assert!(failed(&good()).is_empty());
    }

    #[test]
    fn each_broken_promise_is_found() {
        type Break = fn(&mut Outcome);
        let cases: [(Break, &str); 10] = [
            (|o| o.flood[1].hash = 8, "one identical order"),
            (|o| o.steady[0].hash = 8, "one identical order"),
            (|o| o.steady[0].messages -= 1, "one identical order"),
            (|o| o.flood[0].counts[0] = 49, "survivors complete"),
            (|o| o.steady[1].disorders[1] = 1, "survivors complete"),
            (|o| o.victim_confirmed = 25, "killed publisher"),
            (|o| o.steady[1].disorders[2] = 1, "killed publisher"),
            (|o| o.steady[1].lost_messages = 1, "nothing lost"),
            (|o| o.steady[1].sequence_errors = 1, "nothing lost"),
            (|o| o.steady[1].torn = 1, "nothing torn"),
        ];
        for (index, (break_it, promise)) in cases.into_iter().enumerate() {
            let mut outcome = good();
            break_it(&mut outcome);
            assert_eq!(failed(&outcome), [promise], "case {index}");
        }
    }
}
