//! The mutants, and who must notice each.

/// One known mistake.
pub(super) struct Mutant {
    /// The value of `toroni_mutant` that switches it on.
    pub(super) name: &'static str,
    /// What goes wrong, in the words of the protocol.
    pub(super) mistake: &'static str,
    /// The tests of which at least one must fail.
    pub(super) checker: Checker,
}

/// Tests of the library, chosen by a part of their names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Checker {
    /// Loom models: for mistakes that only some interleaving, or a weak memory model, shows.
    Loom(&'static str),
    /// Ordinary tests: for mistakes that one fixed sequence of steps shows.
    Tests(&'static str),
}

impl Checker {
    /// The part of the names.
    pub(super) fn filter(self) -> &'static str {
        match self {
            Self::Loom(filter) | Self::Tests(filter) => filter,
        }
    }

    /// Whether the tests can be killed at any time; others remove their files at their end.
    pub(super) fn touches_only_memory(self) -> bool {
        matches!(self, Self::Loom(_) | Self::Tests("ring::"))
    }

    /// For tables.
    pub(super) fn title(self) -> String {
        match self {
            Self::Loom(filter) => format!("models `{filter}`"),
            Self::Tests(filter) => format!("tests `{filter}`"),
        }
    }
}

/// All of them. A mutant in the source that is missing here fails `cargo test`.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "window_before_validation",
        mistake: "a reader hands out records that it took together without asking if they are intact",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "run_validated_by_its_last",
        mistake: "messages that were read in place together count if the newest of them is intact",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "tail_for_reserved",
        mistake: "a reader validates what it copied against `tail`, which moves after the copy",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "fence_inside_if",
        mistake: "the RESERVE fence is left out when the room was already reserved",
        checker: Checker::Loom("ring::"),
    },
    Mutant {
        name: "recovery_lowers_reserved",
        mistake: "recovery gives back what a dead writer reserved and may have overwritten",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "no_roll_forward",
        mistake: "the next writer does not move `tail` past what a dead one committed",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "stale_index_entry",
        mistake: "an index entry left by a dead writer is not overwritten by the spanning record",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "index_without_seqlock",
        mistake: "an index entry still in use is replaced without being taken away first",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "index_read_once",
        mistake: "a reader takes the position of an index entry with the sequence of the next one",
        checker: Checker::Loom("ring::"),
    },
    Mutant {
        name: "zero_before_validation",
        mistake: "a lapped reader believes a 0 in the payload it stands on, and sleeps for ever",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "cache_before_validation",
        mistake: "a lapped reader fills its topic cache from payload it took for a header",
        checker: Checker::Tests("ring::"),
    },
    Mutant {
        name: "lease_through_own_description",
        mistake: "a lease is tested through a description that holds leases, which never sees them",
        checker: Checker::Tests("shm::"),
    },
    Mutant {
        name: "token_after_announcement",
        mistake: "a subscriber takes the value to sleep on after it announced the sleep",
        checker: Checker::Loom("notify::"),
    },
    Mutant {
        name: "answer_of_a_newer_count",
        mistake: "a publisher counts sleepers as woken who came after its wake",
        checker: Checker::Loom("notify::"),
    },
    Mutant {
        name: "socket_drained_after_announcement",
        mistake: "a subscriber throws away the datagram that answered its sleep",
        checker: Checker::Tests("notify::"),
    },
    Mutant {
        name: "group_drained_after_announcement",
        mistake: "a subscriber throws away the multicast datagram that answered its sleep",
        checker: Checker::Tests("notify::"),
    },
];
