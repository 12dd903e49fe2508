//! Any bytes as a batch of commands, as a snapshot of the state machine, and as what members ask and answer.

use toroni_sequencer::batch::{Batch, Builder, Command};
use toroni_sequencer::machine::{Machine, Outcome};
use toroni_sequencer::rpc::{Answer, Request};

/// A request or an answer has one encoding only.
pub fn messages(bytes: &[u8]) {
    let mut again = vec![];
    if let Ok(request) = Request::decode(bytes) {
        request.encode(&mut again);
        assert_eq!(again, bytes);
    }
    again.clear();
    if let Ok(answer) = Answer::decode(bytes) {
        answer.encode(&mut again);
        assert_eq!(again, bytes);
    }
}

/// Bytes that are accepted must be the only encoding of what they mean. If a batch is applied twice, no command of a
/// source becomes an event twice.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(machine) = Machine::from_snapshot(bytes) {
        assert_eq!(machine.snapshot(), bytes);
    }
    let Ok(batch) = Batch::check(bytes) else { return };
    let mut builder = Builder::new();
    batch.commands().for_each(|(command, _)| builder.push(&command).unwrap());
    assert_eq!(builder.finish().unwrap(), bytes);

    let mut machine = Machine::new();
    let mut numbers = vec![];
    let mut outcomes = vec![];
    machine.apply(batch, |event| numbers.push(event.number), |_, outcome| outcomes.push(outcome));
    assert_eq!(outcomes.len(), usize::from(batch.count()));
    assert!(numbers.iter().copied().eq(0..machine.next()));
    assert_eq!(Machine::from_snapshot(&machine.snapshot()).as_ref(), Ok(&machine));

    let mut first = outcomes.into_iter();
    machine.apply(
        batch,
        |_| (),
        |command, outcome| {
            let first = first.next().unwrap();
            // These two have no number: they do something whenever the source is there.
            let is_repeatable = matches!(command, Command::Release { .. } | Command::Remove { .. });
            let doubled = !is_repeatable
                && matches!(
                    (first, outcome),
                    (Outcome::Sequenced(_) | Outcome::Duplicate, Outcome::Sequenced(_))
                );
            assert!(!doubled, "{command:?}: {first:?}, then {outcome:?}");
        },
    );
}
