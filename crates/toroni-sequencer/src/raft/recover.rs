//! A new group from the log of one member, when a majority of the others is gone for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc;

use super::applied::{Contents, check_gap};
use super::group::GroupError;
use super::office::IN_FLIGHT;
use super::propose::series_after;
use crate::batch::{Batch, Builder, Command};
use crate::entry::{Entry, Member, Members, Payload, Place, Vote};
use crate::log::{Log, LogError, Options};
use crate::machine::Machine;

/// About this many bytes of entries are read at once.
const READ_BYTES: usize = 4 << 20;

/// What a recovery came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The member, which is now alone in its group.
    pub id: u64,
    /// Its name and address, and the id by which the new group knows its log.
    pub member: Member,
    /// The series that begins.
    pub series: u32,
    /// Below this number, all events are as they were: a majority had them.
    pub certain: u64,
    /// From `certain` on, up to this number without it, events are in this log, and a majority may not have had them: others
    /// may have seen different events under these numbers, and under all later ones.
    pub next: u64,
}

/// Makes a group of this log's member alone, with a series greater than every earlier one. No process may use the log. What
/// the other members had and this one lacks is lost. They cannot join, nor be followed by this one: the group knows its log
/// by another id.
///
/// # Errors
///
/// If the log cannot be used, or was never part of a group.
pub fn recover(directory: &Path, options: Options) -> Result<Recovery, GroupError> {
    let log = Log::open(directory, options)?;
    let replayed = Replayed::read(&log)?;
    let known = log.found().log;
    let of_this_log = replayed.members.members.into_iter().find(|(_, member)| member.log == known);
    let Some((id, mut member)) = of_this_log else {
        return Err(GroupError::NoGroup(directory.to_owned()));
    };
    // First of all, so that the others cannot disturb, whatever happens next.
    member.log = log.leave()?;
    let last = log.ends().1.unwrap_or_default();
    let term = log.vote().map_or(0, |vote| vote.term).max(last.term) + 1;
    let series = series_after(replayed.machine.series());
    let alone = Members {
        voters: vec![BTreeSet::from([id])],
        members: BTreeMap::from([(id, member.clone())]),
    };
    let mut begin = Builder::new();
    let begins = begin.push(&Command::Begin { series }).and_then(|()| begin.finish());
    let begins = begins.map_err(|error| GroupError::Raft(error.to_string()))?;
    let payloads = [Payload::Members(alone), Payload::Batch(begins.into())];
    let places = (last.index + 1..).map(|index| Place { term, leader: id, index });
    let (sender, done) = mpsc::channel();
    log.append(
        places.zip(payloads).map(|(place, payload)| Entry { place, payload }),
        move |result| {
            let _ = sender.send(result);
        },
    )?;
    done.recv().map_err(|_| LogError::Closed)?.map_err(GroupError::Io)?;
    log.save_vote(Vote { term, candidate: id, committed: false })?;
    log.close()?;
    let (certain, next) = (replayed.certain, replayed.machine.next());
    Ok(Recovery { id, member, series, certain, next })
}

/// The end of a log, all of whose entries count.
struct Replayed {
    machine: Machine,
    members: Members,
    certain: u64,
}

impl Replayed {
    fn read(log: &Log) -> Result<Self, GroupError> {
        let unusable = |error: &dyn std::fmt::Display| GroupError::Raft(error.to_string());
        let snapshot = match log.snapshot()? {
            Some(bytes) => Some(Contents::decode(&bytes).map_err(|error| unusable(&error))?),
            None => None,
        };
        check_gap(log, snapshot.as_ref().and_then(|found| found.last))?;
        let (mut machine, mut members, mut index) = match snapshot {
            Some(found) => {
                let next = found.last.map_or(0, |last| last.index + 1);
                (found.machine, found.members, next)
            }
            None => (Machine::new(), Members::default(), 0),
        };
        let mut certain = Certain { below: machine.next(), leader: None, pending: vec![] };
        loop {
            let entries = log.read(index..u64::MAX, READ_BYTES)?;
            if entries.is_empty() {
                return Ok(Self { machine, members, certain: certain.below });
            }
            for entry in entries {
                index = entry.place.index + 1;
                match entry.payload {
                    Payload::Blank => {}
                    Payload::Members(found) => members = found,
                    Payload::Batch(bytes) => {
                        let batch = Batch::check(&bytes).map_err(|error| unusable(&error))?;
                        certain.batch(entry.place, machine.next());
                        machine.apply(batch, |_| (), |_, _| ());
                    }
                }
            }
        }
    }
}

/// Up to where a majority had the events of a log. A leader proposes a batch only while fewer than [`IN_FLIGHT`] are
/// uncommitted. So a batch is committed, with everything before it, if the same leader put that many after it.
struct Certain {
    below: u64,
    leader: Option<(u64, u64)>,
    /// The first event number of each of the leader's last batches.
    pending: Vec<u64>,
}

impl Certain {
    /// The next batch begins with this event number.
    fn batch(&mut self, place: Place, next: u64) {
        if self.leader != Some((place.term, place.leader)) {
            self.leader = Some((place.term, place.leader));
            self.pending.clear();
        }
        self.pending.push(next);
        if self.pending.len() > IN_FLIGHT {
            self.pending.remove(0);
            self.below = self.pending[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_went_on_from_is_certain() {
        let mut certain = Certain { below: 3, leader: None, pending: vec![] };
        let place = |term| Place { term, leader: 1, index: 0 };
        certain.batch(place(1), 10);
        certain.batch(place(1), 20);
        assert_eq!(certain.below, 3);
        certain.batch(place(1), 30);
        assert_eq!(
            certain.below, 20,
            "the batch from 10 to 20 was committed before that from 30 was proposed"
        );
        // Another leader may propose as many again.
        certain.batch(place(2), 40);
        certain.batch(place(2), 50);
        assert_eq!(certain.below, 20);
        certain.batch(place(2), 60);
        assert_eq!(certain.below, 50);
    }
}
