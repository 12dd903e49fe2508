//! The setups that the tests check. Each is small, and aimed at one part of the protocol. The command `model` checks them
//! too, and larger ones.

use crate::mistakes::Line;
use crate::setup::{Interest, Lock, Policy, Setup, Start, Victims, Work};

use Work::{Batch, Burst, One};

/// A setup with a name.
#[derive(Clone, Debug)]
pub struct Named {
    /// On the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// How large it is: small ones are for the tests.
    pub size: Size,
    pub setup: Setup,
}

/// How long a setup takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds: a test.
    Small,
    /// For the command only. On two busy cores: `lap-and-deaths` 406,944 states, 114 steps deep, 8 s;
    /// `three-publishers` 975,313, 92, 11 s; `limit-and-deaths` 4,105,400, 207, 44 s; `everybody-mortal`
    /// 6,520,179, 156, 28 s; `exclusive-lapping` 16,527,945, 150, 61 s; `joining-and-deaths` 2,368,416, 173, 9 s;
    /// `two-and-two` about 20 million, 145, 2 to 7 min and some hundred MB.
    Large,
}

#[must_use]
pub fn all() -> Vec<Named> {
    let small = |name, about, setup| Named { name, about, size: Size::Small, setup };
    let large = |name, about, setup| Named { name, about, size: Size::Large, setup };
    vec![
        small("lap", "two publishers overtake a reader that polls", lap()),
        small("batch", "batches overtake a reader", batch()),
        small("deaths", "publishers die at any step, and one comes back", deaths()),
        small("takeover", "two wait for the lock of one that dies", takeover()),
        small("gating", "publishers wait for two readers, of whom one dies", gating()),
        small("limit", "the same, until the limit: then readers lose", limit()),
        small("joining", "a reader joins where publishers wait for it", joining()),
        small(
            "joining-at-oldest",
            "a reader joins inside the history that another one protects",
            joining_at_oldest(),
        ),
        small(
            "first-reader",
            "a reader joins where publishers waited for no reader",
            first_reader(),
        ),
        small("rejoining", "a reader dies or leaves, and its slot is taken again", rejoining()),
        small("sleeping", "readers sleep, publishers wake them or die", sleeping()),
        small(
            "bystander",
            "a reader sleeps through what it does not want, publishers wake it for the rest or die",
            bystander(),
        ),
        small("two-interests", "two readers sleep that want different topics", two_interests()),
        small("new-topic", "a topic is new while its reader sleeps", new_topic()),
        small("adding", "a reader that has slept wants one more topic", adding()),
        small(
            "reclaimed",
            "a reader that has slept dies, and the next owner of its slot wants what it did not",
            reclaimed(),
        ),
        small(
            "after-a-reset",
            "the column of a slot has bits of topics that come later",
            after_a_reset(),
        ),
        small(
            "gating-bystander",
            "publishers wait for a reader that sleeps because nothing is for it",
            gating_bystander(),
        ),
        small(
            "gating-asleep",
            "a publisher in a burst waits for a reader that sleeps",
            gating_asleep(),
        ),
        small("passing", "a reader passes over what it does not want, also after a lap", passing()),
        small(
            "passing-new-topic",
            "a topic is new while its reader passes over others",
            passing_new_topic(),
        ),
        small(
            "passing-and-deaths",
            "publishers die while a reader passes over what they publish, and one comes back",
            passing_and_deaths(),
        ),
        small("stopped", "anybody is stopped for ever", stopped()),
        small(
            "exclusive",
            "an exclusive publisher dies at any step and comes back, and a shared one is refused",
            exclusive(),
        ),
        small(
            "exclusive-takeover",
            "two exclusive publishers and a shared one take over from each other",
            exclusive_takeover(),
        ),
        small(
            "exclusive-stopped",
            "an exclusive publisher dies, the next one is stopped, and a shared one is refused",
            exclusive_stopped(),
        ),
        small(
            "exclusive-lease-lost",
            "an exclusive publisher loses its lease in a burst, and others take over while it writes",
            exclusive_lease_lost(),
        ),
        small(
            "exclusive-heirs",
            "an exclusive publisher loses its lease, and who takes over dies at any step",
            exclusive_heirs(),
        ),
        small(
            "exclusive-gating",
            "an exclusive publisher waits for a reader that sleeps or dies, and keeps the lock",
            exclusive_gating(),
        ),
        large(
            "exclusive-lapping",
            "an exclusive publisher that loses its lease, or dies, overtakes a reader, as do those who take over",
            exclusive_lapping(),
        ),
        large("lap-and-deaths", "anybody dies while a reader is overtaken", lap_and_deaths()),
        large("two-and-two", "as lap-and-deaths, with two readers", two_and_two()),
        large(
            "limit-and-deaths",
            "anybody dies while a sleeper is overtaken at the limit",
            limit_and_deaths(),
        ),
        large(
            "joining-and-deaths",
            "as joining-at-oldest, and the publisher dies at any step and comes back",
            joining_and_deaths(),
        ),
        large("three-publishers", "two of three die, one comes back", three_publishers()),
        large("everybody-mortal", "a death, a stop and a return of anybody", everybody_mortal()),
    ]
}

/// The setup of a name.
#[must_use]
pub fn named(name: &str) -> Option<Named> {
    all().into_iter().find(|named| named.name == name)
}

/// The setup of a mistake, with the mistake.
#[must_use]
pub fn of_mistake(line: &Line) -> Setup {
    let named = named(line.setup).expect("the table of mistakes names setups");
    Setup { mistake: Some(line.mistake), ..named.setup }
}

fn lap() -> Setup {
    Setup { works: vec![vec![One(1), One(3)], vec![One(1), Burst(vec![0, 1])]], ..Setup::default() }
}

fn batch() -> Setup {
    Setup {
        works: vec![vec![Batch(vec![1, 0]), One(1)], vec![Batch(vec![0, 2])]],
        ..Setup::default()
    }
}

fn deaths() -> Setup {
    Setup {
        works: vec![vec![One(2), One(1)], vec![Batch(vec![0, 1]), One(0)]],
        deaths: 2,
        restarts: 1,
        victims: Victims::Publishers,
        ..Setup::default()
    }
}

fn takeover() -> Setup {
    Setup {
        works: vec![vec![One(0), One(0)], vec![One(0)], vec![One(0)]],
        subscribers: 0,
        deaths: 2,
        restarts: 1,
        ..Setup::default()
    }
}

fn gating() -> Setup {
    Setup {
        policy: Policy::Wait,
        words: 4,
        works: vec![vec![One(1), One(0)], vec![One(0)]],
        subscribers: 2,
        deaths: 1,
        victims: Victims::Subscribers,
        ..Setup::default()
    }
}

fn limit() -> Setup {
    Setup {
        policy: Policy::Limit,
        works: vec![vec![One(1), One(1), One(1), One(1), One(1)]],
        lock: Lock::Robust,
        ..Setup::default()
    }
}

fn joining() -> Setup {
    Setup {
        words: 4,
        blocks: 2,
        policy: Policy::Wait,
        works: vec![vec![One(0), One(1), One(0), One(1)]],
        subscribers: 2,
        joined: 1,
        ..Setup::default()
    }
}

fn joining_at_oldest() -> Setup {
    Setup { start: Start::Oldest, works: vec![vec![One(0), One(0), One(1), One(0)]], ..joining() }
}

fn joining_and_deaths() -> Setup {
    Setup {
        works: vec![vec![One(0), One(0), One(0), One(0)]],
        deaths: 1,
        restarts: 1,
        victims: Victims::Publishers,
        ..joining_at_oldest()
    }
}

fn first_reader() -> Setup {
    Setup {
        words: 4,
        policy: Policy::Wait,
        works: vec![vec![One(1), One(0), One(1), One(0)]],
        joined: 0,
        ..Setup::default()
    }
}

fn rejoining() -> Setup {
    Setup {
        words: 4,
        policy: Policy::Wait,
        works: vec![vec![One(0), One(1), One(0)]],
        deaths: 1,
        leaves: 1,
        restarts: 1,
        victims: Victims::Subscribers,
        ..Setup::default()
    }
}

fn sleeping() -> Setup {
    Setup {
        words: 16,
        blocks: 2,
        works: vec![vec![One(0), One(0)], vec![One(0)]],
        sleep: true,
        deaths: 1,
        victims: Victims::Publishers,
        ..Setup::default()
    }
}

fn bystander() -> Setup {
    Setup {
        topics: vec![0, 1, 0],
        known_topics: 2,
        interests: vec![Interest::of(0b10)],
        ..sleeping()
    }
}

fn two_interests() -> Setup {
    Setup {
        works: vec![vec![One(0), One(0)]],
        topics: vec![0, 1],
        known_topics: 2,
        subscribers: 2,
        interests: vec![Interest::of(0b01), Interest::of(0b10)],
        deaths: 0,
        ..sleeping()
    }
}

fn new_topic() -> Setup {
    Setup { topics: vec![0, 1, 1], deaths: 0, known_topics: 1, ..bystander() }
}

fn adding() -> Setup {
    Setup {
        topics: vec![0, 1, 1],
        interests: vec![Interest { wants: 0b01, adds: 0b10, next_owner: 0 }],
        deaths: 0,
        ..bystander()
    }
}

fn reclaimed() -> Setup {
    Setup {
        topics: vec![0, 1, 1],
        interests: vec![Interest { wants: 0b01, adds: 0, next_owner: 0b10 }],
        restarts: 1,
        victims: Victims::Subscribers,
        ..bystander()
    }
}

fn after_a_reset() -> Setup {
    Setup { joined: 0, stale_columns: true, ..new_topic() }
}

fn gating_bystander() -> Setup {
    Setup {
        words: 4,
        works: vec![vec![Burst(vec![0, 0, 1])], vec![One(0)]],
        topics: vec![0, 0, 0, 1],
        known_topics: 2,
        interests: vec![Interest::of(0b10)],
        ..gating_asleep()
    }
}

fn gating_asleep() -> Setup {
    Setup {
        policy: Policy::Wait,
        works: vec![vec![Burst(vec![1, 1, 1, 1])], vec![One(1)]],
        sleep: true,
        ..Setup::default()
    }
}

fn passing() -> Setup {
    Setup {
        works: vec![vec![One(1), One(1)], vec![Burst(vec![0, 1]), One(0)]],
        topics: vec![0, 0, 0, 1, 0],
        known_topics: 2,
        interests: vec![Interest::of(0b10)],
        passes: true,
        ..Setup::default()
    }
}

fn passing_new_topic() -> Setup {
    Setup { known_topics: 1, ..passing() }
}

fn passing_and_deaths() -> Setup {
    Setup {
        works: vec![vec![One(2), One(1)], vec![Batch(vec![0, 1])]],
        topics: vec![0, 0, 0, 1],
        deaths: 1,
        restarts: 1,
        victims: Victims::Publishers,
        ..passing()
    }
}

fn stopped() -> Setup {
    Setup {
        policy: Policy::Wait,
        words: 4,
        works: vec![vec![One(1), One(0)], vec![One(0)]],
        sleep: true,
        stops: 1,
        ..Setup::default()
    }
}

fn exclusive() -> Setup {
    Setup {
        works: vec![vec![One(1), Burst(vec![0, 1])], vec![One(0)]],
        exclusive: 1,
        deaths: 1,
        restarts: 1,
        victims: Victims::Publishers,
        ..Setup::default()
    }
}

fn exclusive_takeover() -> Setup {
    Setup {
        works: vec![vec![One(0), One(0)], vec![One(1)], vec![One(0)]],
        exclusive: 2,
        subscribers: 0,
        deaths: 2,
        restarts: 1,
        ..Setup::default()
    }
}

fn exclusive_stopped() -> Setup {
    Setup {
        works: vec![vec![One(0)], vec![One(0)], vec![One(0)]],
        exclusive: 2,
        subscribers: 0,
        deaths: 1,
        stops: 1,
        ..Setup::default()
    }
}

fn exclusive_lease_lost() -> Setup {
    Setup {
        works: vec![vec![Burst(vec![0, 1]), One(0)], vec![One(1)], vec![One(0)]],
        exclusive: 1,
        late: 1,
        losses: 1,
        ..Setup::default()
    }
}

fn exclusive_heirs() -> Setup {
    Setup {
        works: vec![vec![One(1), One(0)], vec![One(0)], vec![One(0)]],
        exclusive: 2,
        late: 1,
        subscribers: 0,
        losses: 1,
        deaths: 1,
        victims: Victims::Publishers,
        ..Setup::default()
    }
}

fn exclusive_gating() -> Setup {
    Setup {
        policy: Policy::Wait,
        words: 4,
        works: vec![vec![Burst(vec![0, 0, 1]), One(0)], vec![One(0)]],
        exclusive: 1,
        sleep: true,
        deaths: 1,
        ..Setup::default()
    }
}

fn exclusive_lapping() -> Setup {
    Setup {
        works: vec![vec![One(1), Burst(vec![1, 0])], vec![One(2)], vec![One(1)]],
        exclusive: 2,
        late: 1,
        losses: 1,
        deaths: 1,
        restarts: 1,
        victims: Victims::Publishers,
        ..Setup::default()
    }
}

fn lap_and_deaths() -> Setup {
    Setup {
        works: vec![vec![One(1), One(2)], vec![One(1), One(2)]],
        deaths: 1,
        restarts: 1,
        ..Setup::default()
    }
}

fn two_and_two() -> Setup {
    Setup { subscribers: 2, ..lap_and_deaths() }
}

fn limit_and_deaths() -> Setup {
    Setup {
        policy: Policy::Limit,
        works: vec![vec![One(1), One(2)], vec![One(1), One(2)]],
        sleep: true,
        deaths: 1,
        ..Setup::default()
    }
}

fn three_publishers() -> Setup {
    Setup {
        works: vec![vec![One(1)], vec![One(1)], vec![One(1)]],
        deaths: 2,
        restarts: 1,
        ..Setup::default()
    }
}

fn everybody_mortal() -> Setup {
    Setup {
        words: 4,
        blocks: 2,
        policy: Policy::Limit,
        works: vec![vec![One(1)], vec![One(1)]],
        sleep: true,
        deaths: 1,
        stops: 1,
        restarts: 1,
        ..Setup::default()
    }
}
