//! The hot paths of the network protocol, which need no bus.

use toroni_machines::Row;

use crate::fixture::toroni_counted;

/// Counts `rounds` rounds of a machine, and returns how many units it did. Does one round before them that is not
/// counted, because it includes what is done only once.
pub(crate) fn run(row: &Row, rounds: u64) -> u64 {
    let mut machine = (row.make)();
    let mut counted = 0;
    for round in 0..=rounds {
        machine.prepare();
        if round == 0 {
            machine.run();
        } else {
            counted += toroni_counted(|| machine.run());
        }
    }
    counted
}
