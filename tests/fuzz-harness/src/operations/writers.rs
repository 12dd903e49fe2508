//! Publishers: what they are allowed to do, and how the model changes.

use super::act::{CrashPoint, act, bury};
use super::exclusive::Handle;
use super::shortage::{Shortage, may_wait_for_ever};
use super::state::{Note, State};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::time::Duration;
use toroni::{Bus, Exclusive, ExclusiveTopic, Limit, PublishError, Publisher, RetainError};
use toroni_oracle::{Policy, Room, Size, Work, body, record_bytes};

/// Longer than the policies' waits, but for the one that has no end.
pub(super) const TIMEOUT: Duration = Duration::from_micros(300);

pub(super) struct Writer {
    pub(super) name: String,
    pub(super) bus: Bus,
    publishers: BTreeMap<usize, Publisher>,
    /// Whether it has a slot also without a publisher.
    pub(super) is_participant: bool,
    /// In a mutex only because a list is shown to all that take part.
    pub(super) exclusive: Option<Mutex<Exclusive>>,
    /// They outlive an exclusive publisher, and serve the next one of the same handle.
    topics: BTreeMap<usize, ExclusiveTopic>,
    /// Topics that it has declared retained, and with a handle of which kind: an exclusive one or not.
    declared: BTreeSet<(usize, bool)>,
    /// Messages that it published, and their bytes in the stream.
    pub(super) counts: (u64, u64),
}

impl Writer {
    /// The writer of this number in its place. Opens the bus if it is not there.
    pub(super) fn opened<'a>(
        place: &'a mut Option<Self>,
        number: usize,
        state: &State,
    ) -> &'a mut Self {
        place.get_or_insert_with(|| {
            let name = format!("writer {number}");
            Self {
                bus: state.open(name.clone()),
                name,
                publishers: BTreeMap::new(),
                is_participant: false,
                exclusive: None,
                topics: BTreeMap::new(),
                declared: BTreeSet::new(),
                counts: (0, 0),
            }
        })
    }

    /// Whether it has a slot.
    pub(super) fn is_open(&self) -> bool {
        self.is_participant || !self.publishers.is_empty()
    }

    /// What it publishes with on this topic.
    pub(super) fn handle(
        &mut self,
        number: usize,
        topic: &str,
        to_descendants: bool,
        exclusively: bool,
    ) -> Handle<'_> {
        if let Some(exclusive) = self.exclusive.as_mut().filter(|_| exclusively) {
            let exclusive = &*exclusive.get_mut().unwrap();
            let topic =
                self.topics.entry(number).or_insert_with(|| exclusive.topic(topic).unwrap());
            return Handle::Exclusive(exclusive, topic.clone().to_descendants(to_descendants));
        }
        let bus = &self.bus;
        let publisher =
            self.publishers.entry(number).or_insert_with(|| bus.publisher(topic).unwrap());
        Handle::Shared(publisher.clone().to_descendants(to_descendants))
    }

    /// Declares a topic with the handle that it publishes with from then on.
    pub(super) fn retain(
        &mut self,
        number: usize,
        topic: &str,
        exclusively: bool,
    ) -> Result<(), RetainError> {
        match self.handle(number, topic, false, exclusively) {
            Handle::Shared(publisher) => {
                let declared = publisher.retained()?;
                self.publishers.insert(number, declared);
            }
            Handle::Exclusive(exclusive, topic) => {
                let declared = exclusive.retained(topic)?;
                self.topics.insert(number, declared);
            }
        }
        self.declared.insert((number, exclusively));
        Ok(())
    }
}

/// Messages that are to be published.
#[derive(Default)]
struct Plan {
    /// Of extensions and payload.
    lengths: Vec<u32>,
    extensions: u32,
    /// Whether the topic's name travels with each of them.
    is_inline: bool,
    /// Whether the handle has declared the topic retained.
    is_declared: bool,
    first_stamp: u64,
}

/// What a living publisher's call came to.
enum Outcome {
    /// The sequences, if the call returned them.
    Published(Option<Range<u64>>),
    /// The number of messages published before an error.
    Refused(usize, PublishError),
    /// The closure gave up.
    Aborted,
    /// It would have waited for ever, for one who is to read after it.
    Skipped,
}

/// Long names fill the table.
pub(super) fn topics() -> Vec<String> {
    let short = ["a", "a/b", "a/b/c", "plant", "plant/boiler", "plant/boiler/temperature", "x"];
    let long = (0..25).map(|number| format!("long/{}/{number}", "name".repeat(58)));
    short.into_iter().map(str::to_owned).chain(long).collect()
}

impl State {
    pub(super) fn write(&mut self, writer: usize, topic: u8, work: Work, die_at: u8) {
        let to_descendants = topic >= 128;
        let exclusively = self.exclusive == Some(writer) && topic & 0x60 != 0x60;
        let is_kept_out = self.exclusive.is_some() && !exclusively;
        let topics = topics();
        let topic = usize::from(topic % 128) % topics.len();
        self.free = self.free_bytes(topic);
        let mut plan = Plan { first_stamp: self.stamp, ..Plan::default() };
        let mut slot = self.writers[writer].take();
        let (this, planned, place) = (&*self, &mut plan, &mut slot);
        let (reached, outcome) = act(die_at, self.setup.robust, || {
            let writer = Writer::opened(place, writer, this);
            planned.is_declared = writer.declared.contains(&(topic, exclusively));
            let handle = writer.handle(topic, &topics[topic], to_descendants, exclusively);
            planned.make(work, &handle, this, &topics[topic]);
            publish(work, &handle, planned, this, is_kept_out)
        });
        self.writers[writer] = slot;
        self.stamp += plan.lengths.len() as u64;
        let (extensions, has_time) = (plan.extensions, self.setup.timestamps);
        let is_cleared = work == Work::Clear;
        let note =
            Note { topic, to_descendants, extensions, has_time, is_cleared, ..Note::default() };
        if outcome.is_none() {
            self.learn_topic(topic);
        } else if !plan.is_inline {
            self.interned.insert(topic);
        }
        let before = self.tally.published;
        match outcome {
            Some(outcome) if is_kept_out => self.settle_kept_out(work, &plan, &outcome),
            Some(outcome) => self.settle(writer, work, &plan, &note, outcome, &reached),
            None => {
                self.follow(work, &plan, &note, &reached);
                self.bury_writer(writer);
            }
        }
        if exclusively {
            self.tally.exclusive += self.tally.published - before;
        }
        assert!(
            !is_kept_out || self.tally.published == before,
            "another one published: {reached:?}"
        );
    }

    /// A writer has died, perhaps with the lock.
    pub(super) fn bury_writer(&mut self, writer: usize) {
        self.tally.deaths += 1;
        if self.exclusive.is_none_or(|exclusive| exclusive == writer) {
            self.orphaned = true;
            self.exclusive = None;
        }
        bury(self.writers[writer].take());
    }

    /// A living exclusive publisher keeps this call out, whatever it wants, and at once.
    fn settle_kept_out(&mut self, work: Work, plan: &Plan, outcome: &Outcome) {
        self.tally.refused += 1;
        match outcome {
            Outcome::Refused(0, PublishError::TooLong { .. }) if work == Work::TooLong => {}
            // Nothing to publish: no lock.
            Outcome::Published(_) if plan.lengths.is_empty() => {}
            Outcome::Refused(0, PublishError::NotRetained) => assert!(!plan.is_declared),
            Outcome::Refused(0, PublishError::Exclusive { name, pid }) => {
                self.tally.kept_out += 1;
                let holder = self.writers[self.exclusive.unwrap()].as_ref().unwrap();
                assert_eq!((name, *pid), (&holder.name, std::process::id()));
            }
            Outcome::Refused(count, error) => panic!("{work:?}: {count} published, then {error:?}"),
            _ => panic!("{work:?} was not kept out"),
        }
    }

    pub(super) fn close(&mut self, writer: usize, die_at: u8) {
        let mut slot = self.writers[writer].take();
        let (_, lived) = act(die_at, false, || drop(slot.take()));
        let was_exclusive = self.exclusive == Some(writer);
        if was_exclusive {
            self.exclusive = None;
        }
        if lived.is_none() {
            self.tally.deaths += 1;
            self.orphaned |= was_exclusive;
            bury(slot);
        }
    }

    /// Does to the model what a living writer did, which must have been allowed.
    fn settle(
        &mut self,
        writer: usize,
        work: Work,
        plan: &Plan,
        note: &Note,
        outcome: Outcome,
        reached: &[CrashPoint],
    ) {
        let all = plan.lengths.iter().copied().map(record_bytes).sum();
        let together = matches!(work, Work::Batch(..));
        match outcome {
            Outcome::Skipped => {}
            Outcome::Aborted => {
                self.check_allowed(work, all, None);
                self.model.reserve(all);
            }
            Outcome::Published(_) | Outcome::Refused(..) => {
                if let Outcome::Published(Some(sequences)) = &outcome
                    && !plan.lengths.is_empty()
                {
                    let first = self.model.count() as u64;
                    assert_eq!(*sequences, first..first + plan.lengths.len() as u64, "{work:?}");
                }
                let count = match outcome {
                    Outcome::Refused(count, _) => count,
                    _ => plan.lengths.len(),
                };
                if together && count > 0 {
                    self.check_allowed(work, all, None);
                    self.model.reserve(all);
                }
                for index in 0..count {
                    let length = plan.lengths[index];
                    let bytes = record_bytes(length);
                    if !together {
                        self.check_allowed(work, bytes, None);
                        self.model.reserve(bytes);
                    }
                    self.commit(index, work, plan, note);
                    if let Some(writer) = &mut self.writers[writer] {
                        writer.counts.0 += 1;
                        writer.counts.1 += bytes;
                    }
                }
                if let Outcome::Refused(_, error) = outcome {
                    self.tally.refused += 1;
                    let bytes = if together { all } else { next_bytes(plan, count) };
                    match error {
                        PublishError::NotRetained => assert!(!plan.is_declared),
                        PublishError::ValueTooLong { .. } | PublishError::RetainedFull { .. } => {
                            assert!(plan.is_declared && work != Work::Clear);
                            let newest = if together { plan.lengths.len() - 1 } else { count };
                            let length = plan.lengths[newest];
                            let room = self.room_for(note.topic, length);
                            self.check_no_room(&error, record_bytes(length), room);
                            self.model.reserve(bytes);
                        }
                        _ => self.check_allowed(work, bytes, Some(&error)),
                    }
                }
            }
        }
        let locked = !cfg!(feature = "deaths") || reached.contains(&CrashPoint::AfterLock);
        if locked {
            self.model.stored = self.model.count();
            self.orphaned = false;
        }
    }

    /// Does to the model what a dead writer did that passed these steps.
    fn follow(&mut self, work: Work, plan: &Plan, note: &Note, reached: &[CrashPoint]) {
        let all = plan.lengths.iter().copied().map(record_bytes).sum();
        let mut next = 0;
        if reached.contains(&CrashPoint::MidGrow) {
            self.values.leak(note.topic);
        }
        let mut before = None;
        for point in reached {
            // The tail is stored after the sequence, before any other step.
            if before == Some(CrashPoint::BetweenSequenceAndTail) {
                self.model.stored = self.model.count();
            }
            before = Some(*point);
            match (point, work) {
                (CrashPoint::AfterLock, _) => self.model.stored = self.model.count(),
                (CrashPoint::AfterReserve, Work::Burst(..)) => {
                    self.model.reserve(next_bytes(plan, next));
                }
                (CrashPoint::AfterReserve, _) => self.model.reserve(all),
                (CrashPoint::AfterCommit, Work::Batch(..)) => {
                    for index in 0..plan.lengths.len() {
                        self.commit(index, work, plan, note);
                    }
                }
                (CrashPoint::AfterCommit, _) => {
                    self.commit(next, work, plan, note);
                    next += 1;
                }
                _ => {}
            }
        }
    }

    /// Commits the message of this index.
    fn commit(&mut self, index: usize, work: Work, plan: &Plan, note: &Note) {
        let length = plan.lengths[index];
        let number = self.notes.len() as u64 - self.first_of(plan);
        self.model.commit(length, plan.first_stamp + number);
        self.notes.push(note.clone());
        self.tally.published += 1;
        let mut room = self.room_for(note.topic, length);
        let is_newest = !matches!(work, Work::Batch(..)) || index + 1 == plan.lengths.len();
        if plan.is_declared && is_newest && work != Work::Clear {
            assert_ne!(room, Room::TooLong, "it had declared the topic");
            room = Room::Certain;
        }
        // Of a batch, the bus keeps the last message only; and none whose topic travels with it.
        if is_newest && !plan.is_inline {
            self.keep(note, record_bytes(length), room);
        }
    }

    /// The number of the first message of a plan, if it has one.
    fn first_of(&self, plan: &Plan) -> u64 {
        let before = |number: &u64| {
            self.model.message(*number).is_some_and(|message| message.stamp < plan.first_stamp)
        };
        let count = self.notes.len() as u64;
        (0..count).rev().find(before).map_or(0, |number| number + 1)
    }

    /// Checks that a call that took or wanted `bytes` bytes of the stream may end like this.
    pub(super) fn check_allowed(&self, work: Work, bytes: u64, error: Option<&PublishError>) {
        let shortage = Shortage::of(&self.model, &self.readers, bytes);
        let waits = self.setup.policy != Policy::Overwrite;
        let tries = matches!(work, Work::Try(_));
        let timed = matches!(work, Work::Timed(_));
        let allowed = match error {
            None => {
                let for_good = self.setup.policy == Policy::WaitForever;
                let stops = tries && self.setup.policy == Policy::WaitBriefly;
                !(shortage.certain && (for_good || stops))
            }
            Some(PublishError::TooLong { .. }) => work == Work::TooLong,
            Some(PublishError::Full) => waits && tries && shortage.possible,
            Some(PublishError::Timeout) => timed && (self.orphaned || waits && shortage.possible),
            // Its subscribers are read by this very thread.
            Some(PublishError::WouldWaitForItself) => waits && !tries && shortage.possible,
            Some(_) => false,
        };
        assert!(
            allowed,
            "{work:?} of {bytes} bytes came to {error:?} under {:?} with {shortage:?}",
            self.setup.policy
        );
    }
}

fn next_bytes(plan: &Plan, count: usize) -> u64 {
    plan.lengths.get(count).copied().map_or(0, record_bytes)
}

impl Plan {
    fn make(&mut self, work: Work, publisher: &Handle<'_>, state: &State, topic: &str) {
        let longest = publisher.largest_message();
        (self.extensions, self.is_inline) = extensions_of(publisher, state, topic);
        let length = |size: Size| u32::try_from(size.bytes(longest)).unwrap() + self.extensions;
        let several = |count: u8, sizes: [Size; 3]| -> Vec<u32> {
            sizes.into_iter().cycle().take(count.into()).map(length).collect()
        };
        self.lengths = match work {
            Work::One(size) | Work::Try(size) | Work::Timed(size) => vec![length(size)],
            Work::InPlace(size) | Work::Abort(size) => vec![length(size)],
            Work::Burst(count, sizes) => several(count, sizes),
            Work::Batch(count, sizes) => {
                let mut lengths = several(count, sizes);
                while lengths.iter().copied().map(record_bytes).sum::<u64>()
                    > state.model.capacity() / 2
                {
                    lengths.pop();
                }
                lengths
            }
            Work::Clear if self.is_declared => vec![self.extensions],
            Work::TooLong | Work::Clear => Vec::new(),
        };
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        let lengths = self.lengths.iter().map(|length| (length - self.extensions) as usize);
        (self.first_stamp..).zip(lengths).map(|(stamp, length)| body(stamp, length)).collect()
    }
}

/// What a handle's messages have before the payload: the bytes, and whether the topic's name is among them.
pub(super) fn extensions_of(publisher: &Handle<'_>, state: &State, topic: &str) -> (u32, bool) {
    let bytes = state.model.capacity() / 2 - 8 - publisher.largest_message();
    let time = if state.setup.timestamps { 8 } else { 0 };
    let inline = (1 + topic.len() as u64).next_multiple_of(8);
    let known = [time, time + inline].contains(&bytes);
    assert!(known, "{bytes} bytes of extensions for {topic:?}");
    (u32::try_from(bytes).unwrap(), bytes > time)
}

fn publish(
    work: Work,
    publisher: &Handle<'_>,
    plan: &Plan,
    state: &State,
    is_kept_out: bool,
) -> Outcome {
    let payloads = plan.payloads();
    let bytes = plan.lengths.iter().copied().map(record_bytes).sum();
    let tries = matches!(work, Work::Try(_) | Work::Timed(_) | Work::TooLong);
    if !tries
        && !is_kept_out
        && may_wait_for_ever(&state.setup, &state.model, &state.readers, bytes)
    {
        return Outcome::Skipped;
    }
    let of_all = |result: Result<Range<u64>, PublishError>| match result {
        Ok(sequences) => Outcome::Published(Some(sequences)),
        Err(error) => Outcome::Refused(0, error),
    };
    let of = |result: Result<u64, PublishError>| of_all(result.map(|one| one..one + 1));
    match work {
        Work::One(_) => of(publisher.publish(&payloads[0], Limit::Policy)),
        Work::Timed(_) => of(publisher.publish(&payloads[0], TIMEOUT.into())),
        Work::Try(_) => {
            let mut result = publisher.publish(&payloads[0], Limit::Try);
            // The second attempt finds out that the owner is dead.
            if state.orphaned && matches!(result, Err(PublishError::Busy)) {
                result = publisher.publish(&payloads[0], Limit::Try);
            }
            of(result)
        }
        Work::InPlace(_) => {
            let payload = &payloads[0];
            of(publisher.publish_with(payload.len(), |place| place.write(0, payload)))
        }
        Work::Abort(_) => abort(publisher, &payloads[0]),
        Work::Batch(..) => of_all(publisher.publish_batch(&payloads)),
        Work::Burst(..) => match publisher.burst(&payloads) {
            Ok(()) => Outcome::Published(None),
            Err(error) => Outcome::Refused(error.published, error.source),
        },
        Work::Clear => of(publisher.clear()),
        Work::TooLong => {
            let longest = usize::try_from(publisher.largest_message()).unwrap();
            let error = publisher.publish(&vec![0; longest + 1], Limit::Policy).unwrap_err();
            let PublishError::TooLong { length, limit } = error else { panic!("{error}") };
            assert_eq!((length, limit), (longest as u64 + 1, longest as u64));
            of(Err(error))
        }
    }
}

fn abort(publisher: &Handle<'_>, payload: &[u8]) -> Outcome {
    struct GivenUp;

    let half = payload.len() / 2;
    let result = catch_unwind(AssertUnwindSafe(|| {
        publisher.publish_with(payload.len(), |place| {
            place.write(0, &payload[..half]);
            resume_unwind(Box::new(GivenUp));
        })
    }));
    match result {
        Ok(Ok(_)) => panic!("published what was given up"),
        Ok(Err(error)) => Outcome::Refused(0, error),
        Err(cause) if cause.is::<GivenUp>() => Outcome::Aborted,
        Err(cause) => resume_unwind(cause),
    }
}
