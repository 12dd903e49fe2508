//! The transition system: which process can take a step, what may go wrong, and what the final states are.

use crate::coverage::Coverage;
use crate::mistakes::Mistake;
use crate::properties;
use crate::publisher::{self, Doing};
use crate::setup::{Policy, Setup, Victims, small};
use crate::state::{FORGOTTEN, Life, State};
use crate::subscriber::{self, Reading};
use stateright::{Model, Property};
use std::sync::Arc;

/// The protocol in one setup.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub setup: Setup,
    /// Which steps were taken, in all that was visited.
    pub coverage: Arc<Coverage>,
}

/// What happens between two states. Numbers are those of publishers and subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A publisher takes its next step, which may have several ways.
    Publisher(u8, u8),
    /// A subscriber takes its next step.
    Subscriber(u8, u8),
    /// A process dies: SIGKILL.
    PublisherDies(u8),
    SubscriberDies(u8),
    /// A process is stopped for ever: SIGSTOP.
    PublisherStops(u8),
    SubscriberStops(u8),
    /// Other code in the process of an exclusive publisher closes its descriptors: it lives, and has no lease.
    PublisherLosesLease(u8),
    /// A new process takes the slot of a dead one.
    PublisherReturns(u8),
    SubscriberReturns(u8),
    /// A subscriber that is about to read leaves in order instead.
    SubscriberLeaves(u8),
    /// It wants more topics from now on.
    SubscriberAdds(u8),
}

impl Protocol {
    /// # Panics
    /// If the setup is not one that the model can hold; see [`Setup::check`].
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        if let Err(problem) = setup.check() {
            panic!("{problem}: {setup:?}");
        }
        Self { setup, coverage: Arc::default() }
    }

    /// Whether no process can take a step, unless one dies or comes back.
    #[must_use]
    pub fn is_quiet(&self, state: &State) -> bool {
        let waits = |doing: &Doing| {
            matches!(
                doing,
                Doing::Lock | Doing::Delay { .. } | Doing::WaitForSpace | Doing::Done | Doing::Gone
            )
        };
        let idles = |reading: &Reading| {
            matches!(
                reading,
                Reading::Scan(_) | Reading::Asleep | Reading::JoinProposal | Reading::Gone
            )
        };
        let runs = |life: Life| life == Life::Running;
        if state.publishers.iter().any(|one| runs(one.life) && !waits(&one.doing))
            || state.subscribers.iter().any(|one| runs(one.life) && !idles(&one.reading))
        {
            return false;
        }
        let mut actions = Vec::new();
        steps(&self.setup, state, &mut actions);
        !actions.iter().any(|action| self.act(&mut state.clone(), *action))
    }

    /// Whether every process that can continue has finished: publishers have published all messages or were refused,
    /// subscribers have delivered those that they want, or reported them as lost. A process that waits for a stopped one is excused, but
    /// only the next exclusive publisher may wait for an exclusive one.
    #[must_use]
    pub fn is_finished(&self, state: &State) -> bool {
        let stopped_owner = state.publishers.iter().find(|publisher| {
            publisher.life == Life::Stopped
                && state.ring.lock.owner == publisher.slot + 1
                && state.ring.lock.generation == publisher.generation
        });
        let is_held_up = |number: usize| {
            stopped_owner.is_some_and(|owner| !owner.keeps || self.setup.is_exclusive(number))
        };
        let is_gated = self.setup.policy == Policy::Wait
            && state
                .subscribers
                .iter()
                .zip(state.slots.iter())
                .any(|(subscriber, slot)| subscriber.life == Life::Stopped && slot.active);
        let has_written = |(number, publisher): (usize, &crate::state::Publisher)| {
            publisher.life != Life::Running
                || publisher.doing == Doing::Done
                || is_held_up(number)
                || is_gated && publisher.doing == Doing::WaitForSpace
        };
        let has_read = |subscriber: &crate::state::Subscriber| {
            subscriber.life != Life::Running
                || state.truth.committed[usize::from(subscriber.at.sequence)..]
                    .iter()
                    .all(|told| subscriber.interest.wants & self.setup.topic_bit(told.stamp) == 0)
        };
        state.publishers.iter().enumerate().all(has_written)
            && state.subscribers.iter().all(has_read)
    }

    /// Carries out an action. Returns false if the action is not possible in this state.
    pub(crate) fn act(&self, state: &mut State, action: Action) -> bool {
        let setup = &self.setup;
        match action {
            Action::Publisher(me, way) => {
                let me = usize::from(me);
                publisher::Turn { setup, state, me }.step(way)
            }
            Action::Subscriber(me, way) => {
                let me = usize::from(me);
                subscriber::Turn { setup, state, me }.step(way)
            }
            Action::PublisherDies(me) => {
                state.budget.deaths -= 1;
                let me = &mut state.publishers[usize::from(me)];
                let owed = me.owes != 0;
                // Its next process continues after the call in which it died.
                let begun = match me.doing {
                    Doing::Enter
                    | Doing::Claim
                    | Doing::Inherit
                    | Doing::Lock
                    | Doing::Keep { .. }
                    | Doing::GiveUp
                    | Doing::Done => false,
                    Doing::CheckKept => me.item > 0,
                    _ => true,
                };
                let work = me.work + u8::from(begun);
                me.forget(setup);
                (me.life, me.doing, me.work) = (Life::Dead, Doing::Gone, work);
                state.unwoken |= owed;
                true
            }
            Action::SubscriberDies(me) => {
                state.budget.deaths -= 1;
                let me = &mut state.subscribers[usize::from(me)];
                me.forget();
                (me.life, me.reading) = (Life::Dead, Reading::Gone);
                true
            }
            Action::PublisherStops(me) => {
                state.budget.stops -= 1;
                let me = &mut state.publishers[usize::from(me)];
                me.life = Life::Stopped;
                state.unwoken |= me.owes != 0;
                true
            }
            Action::SubscriberStops(me) => {
                state.budget.stops -= 1;
                state.subscribers[usize::from(me)].life = Life::Stopped;
                true
            }
            Action::PublisherLosesLease(me) => {
                state.budget.losses -= 1;
                state.publishers[usize::from(me)].lease = false;
                true
            }
            Action::PublisherReturns(me) => {
                state.budget.restarts -= 1;
                let me = &mut state.publishers[usize::from(me)];
                me.life = Life::Running;
                // Another one may have taken its slot meanwhile.
                (me.lease, me.doing) = match setup.late {
                    0 => (true, Doing::Claim),
                    _ => (false, Doing::Enter),
                };
                true
            }
            Action::SubscriberReturns(me) => {
                state.budget.restarts -= 1;
                let me = &mut state.subscribers[usize::from(me)];
                (me.life, me.reading) = (Life::Running, Reading::ClaimState);
                true
            }
            Action::SubscriberLeaves(me) => {
                state.budget.leaves -= 1;
                state.slots[usize::from(me)].active = false;
                state.subscribers[usize::from(me)].reading = Reading::CountLeave;
                true
            }
            Action::SubscriberAdds(me) => {
                subscriber::Turn { setup, state, me: usize::from(me) }.add_pattern();
                true
            }
        }
    }
}

/// The steps that processes may have.
fn steps(setup: &Setup, state: &State, actions: &mut Vec<Action>) {
    for (number, publisher) in (0..).zip(state.publishers.iter()) {
        if publisher.life == Life::Running {
            let ways = publisher::ways(setup, state, usize::from(number));
            actions.extend((0..ways).map(|way| Action::Publisher(number, way)));
        }
    }
    for (number, subscriber) in (0..).zip(state.subscribers.iter()) {
        if subscriber.life == Life::Running {
            let ways = subscriber::ways(setup, state, usize::from(number));
            actions.extend((0..ways).map(|way| Action::Subscriber(number, way)));
        }
    }
}

/// What may go wrong, and who may leave and come back.
fn mishaps(setup: &Setup, state: &State, actions: &mut Vec<Action>) {
    let budget = &state.budget;
    let works = |number: u8| small(setup.works[usize::from(number)].len());
    for (number, publisher) in (0..).zip(state.publishers.iter()) {
        // The death of one that has nothing more to do changes nothing.
        let is_victim = publisher.life == Life::Running
            && !matches!(publisher.doing, Doing::Enter | Doing::Done)
            && setup.victims != Victims::Subscribers;
        if is_victim && budget.deaths > 0 {
            actions.push(Action::PublisherDies(number));
        }
        if is_victim && budget.stops > 0 {
            actions.push(Action::PublisherStops(number));
        }
        // What others do about the lease of a shared publisher, they do by its death.
        if publisher.life == Life::Running
            && publisher.keeps
            && publisher.lease
            && budget.losses > 0
        {
            actions.push(Action::PublisherLosesLease(number));
        }
        if publisher.life == Life::Dead && budget.restarts > 0 && publisher.work < works(number) {
            actions.push(Action::PublisherReturns(number));
        }
    }
    for (number, subscriber) in (0..).zip(state.subscribers.iter()) {
        let is_victim = subscriber.life == Life::Running && setup.victims != Victims::Publishers;
        if is_victim && budget.deaths > 0 {
            actions.push(Action::SubscriberDies(number));
        }
        if is_victim && budget.stops > 0 {
            actions.push(Action::SubscriberStops(number));
        }
        if subscriber.life == Life::Dead && budget.restarts > 0 {
            actions.push(Action::SubscriberReturns(number));
        }
        let reads = matches!(subscriber.reading, Reading::Scan(end) if end == subscriber.at);
        if subscriber.life == Life::Running && reads && budget.leaves > 0 {
            actions.push(Action::SubscriberLeaves(number));
        }
        if subscriber.life == Life::Running && reads && subscriber.interest.adds != 0 {
            actions.push(Action::SubscriberAdds(number));
        }
    }
}

/// Drops from the truth the messages that no process can read any more: those that are overwritten and that every
/// reader's cursor has passed.
fn forget(state: &mut State) {
    let oldest = state.oldest();
    let needed = state
        .subscribers
        .iter()
        .filter(|subscriber| subscriber.life == Life::Running)
        .map(|subscriber| usize::from(subscriber.at.sequence))
        .min()
        .unwrap_or(usize::MAX);
    for committed in state.truth.committed.iter_mut().take(needed) {
        if committed.start >= oldest && *committed != FORGOTTEN {
            break;
        }
        *committed = FORGOTTEN;
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.setup)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        steps(&self.setup, state, actions);
        mishaps(&self.setup, state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        if !self.act(&mut next, action) {
            return None;
        }
        self.coverage.note(state, action);
        forget(&mut next);
        if self.setup.mistake != Some(Mistake::JoinsIgnored) {
            for publisher in
                next.publishers.iter_mut().filter(|publisher| !publisher.gating_cache.1)
            {
                // It is not used before the next scan sets it.
                publisher.gating_cache.0 = 0;
            }
        }
        for publisher in next.publishers.iter_mut().filter(|one| one.doing == Doing::Done) {
            // What it knows of sleepers is of no use any more.
            (publisher.noted, publisher.asleep, publisher.seen, publisher.armed) = (true, 0, 0, 0);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
