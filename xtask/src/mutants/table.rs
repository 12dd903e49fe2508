//! The mutants, and the tests that must notice each.

pub(super) struct Mutant {
    /// The argument of `mutant("…")` in the source.
    pub(super) name: &'static str,
    pub(super) mistake: &'static str,
    /// Each of these tests must fail.
    pub(super) noticed_by: &'static [Checker],
}

/// A test, given by its name or by the last parts of its path, as in `futex::a_wake_counts`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Checker {
    /// A loom model of the library: for mistakes that need a certain interleaving or a weak memory model to show.
    Loom(&'static str),
    /// An ordinary test of the library: for mistakes that a fixed sequence of steps shows.
    Tests(&'static str),
    /// An ordinary test of the proactor.
    Proactor(&'static str),
    /// A loom model of the proactor.
    ProactorLoom(&'static str),
    /// An ordinary test of the network protocol, the simulator included.
    Protocol(&'static str),
    /// An ordinary test of sockets and nodes.
    Network(&'static str),
    /// An ordinary test of the sequencer.
    Sequencer(&'static str),
    /// A test of the fuzz harness that compares a whole bus, whose participants die, with the oracle.
    Oracle(&'static str),
}

use Checker::{Loom, Network, Oracle, Proactor, ProactorLoom, Protocol, Sequencer, Tests};

impl Checker {
    pub(super) fn name(self) -> &'static str {
        match self {
            Loom(name) | Tests(name) | Proactor(name) | ProactorLoom(name) | Protocol(name)
            | Network(name) | Sequencer(name) | Oracle(name) => name,
        }
    }

    /// What the option `--kind` calls tests of this kind, which are in one executable.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Loom(_) => "models",
            Tests(_) => "library",
            Proactor(_) => "proactor",
            ProactorLoom(_) => "proactor-models",
            Oracle(_) => "oracle",
            Protocol(_) => "protocol",
            Network(_) => "nodes",
            Sequencer(_) => "sequencer",
        }
    }

    pub(super) fn title(self) -> String {
        match self {
            Loom(name) => format!("model {name}"),
            Tests(name) => format!("test {name}"),
            Proactor(name) => format!("the proactor's test {name}"),
            ProactorLoom(name) => format!("the proactor's model {name}"),
            Oracle(name) => format!("the fuzz harness's test {name}"),
            Protocol(name) => format!("the protocol's test {name}"),
            Network(name) => format!("the nodes' test {name}"),
            Sequencer(name) => format!("the sequencer's test {name}"),
        }
    }
}

/// All kinds of checkers.
pub(super) const KINDS: [&str; 8] = [
    "library",
    "models",
    "oracle",
    "proactor",
    "proactor-models",
    "protocol",
    "nodes",
    "sequencer",
];

/// All mutants. `cargo test` fails for a mutant of the source that is missing here, and for a model that no mutant
/// names.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "tail_for_reserved",
        mistake: "a reader validates what it copied against `tail`, which moves after the copy",
        noticed_by: &[
            Loom("loom_a_torn_message_is_not_trusted"),
            Loom("loom_a_torn_message_in_place_is_not_trusted"),
            Tests("a_half_copied_record_over_what_is_being_read"),
        ],
    },
    Mutant {
        name: "no_fence_before_validation",
        mistake: "a reader may see overwritten bytes together with the old `reserved`",
        noticed_by: &[
            Loom("loom_a_torn_message_is_not_trusted"),
            Loom("loom_a_torn_message_does_not_enter_a_read_ahead"),
        ],
    },
    Mutant {
        name: "fence_inside_if",
        mistake: "the RESERVE fence is left out when the space was already reserved",
        noticed_by: &[Loom("loom_a_second_writer_finds_space_reserved")],
    },
    Mutant {
        name: "read_ahead_before_validation",
        mistake: "a reader hands out records that it read ahead without checking that they are intact",
        noticed_by: &[
            Loom("loom_a_torn_message_does_not_enter_a_read_ahead"),
            Tests("torn_messages_are_not_trusted_and_losses_are_counted"),
        ],
    },
    Mutant {
        name: "run_validated_by_its_last",
        mistake: "messages that were read in place together count as read if only the newest of them is intact",
        noticed_by: &[Tests("a_lapped_run_ends_and_is_not_intact")],
    },
    Mutant {
        name: "read_ahead_headers_relaxed",
        mistake: "a reader reads records ahead whose commits it did not acquire",
        noticed_by: &[Loom("loom_a_read_ahead_follows_commits")],
    },
    Mutant {
        name: "commit_relaxed",
        mistake: "a record is committed before its bytes are in place",
        noticed_by: &[Loom("loom_a_writer_dies_at_any_step")],
    },
    Mutant {
        name: "burst_commit_relaxed",
        mistake: "a message of a burst is committed before its bytes are in place",
        noticed_by: &[Loom("loom_a_burst_dies_at_any_step")],
    },
    Mutant {
        name: "burst_ends_after_its_commit",
        mistake: "a burst commits a message before the 0 after it is in place",
        noticed_by: &[Loom("loom_a_burst_dies_at_any_step")],
    },
    Mutant {
        name: "zero_before_validation",
        mistake: "a lapped reader takes a 0 in some payload for the end of the stream, and sleeps for ever",
        noticed_by: &[Tests("a_lapped_reader_does_not_trust_a_zero")],
    },
    Mutant {
        name: "peek_without_validation",
        mistake: "a lapped reader takes payload for a header, and fills its interest cache from it",
        noticed_by: &[Tests("a_lapped_reader_does_not_fill_its_interest_cache")],
    },
    Mutant {
        name: "cache_before_validation",
        mistake: "a subscriber asks its interest cache about the next record before it has validated the record",
        noticed_by: &[Tests("a_lapped_subscriber_does_not_ask_about_what_it_has_not_validated")],
    },
    Mutant {
        name: "loss_passed_by_a_run",
        mistake: "messages that are read in place together continue past a loss, which is not reported",
        noticed_by: &[
            Tests("each_form_returns_losses_at_their_place_if_a_pattern_intersects_their_scope"),
            Tests("a_run_ends_before_a_loss_and_the_next_call_returns_it"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "loss_told_to_all",
        mistake: "a subscriber gets a loss of messages that none of its patterns could match",
        noticed_by: &[
            Tests("each_form_returns_losses_at_their_place_if_a_pattern_intersects_their_scope"),
            Tests("a_router_calls_its_handlers_in_order_and_is_told_if_a_handler_is_concerned"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "bound_after_commit",
        mistake: "a message is committed before the bound of its topic tells of it, and a subscriber passes over it",
        noticed_by: &[
            Loom("loom_a_bound_is_visible_with_the_end_of_the_stream"),
            Loom("loom_the_bound_of_a_burst_is_visible_with_the_end_of_the_stream"),
        ],
    },
    Mutant {
        name: "no_announce",
        mistake: "a reader gets an older value than the message that it has received",
        noticed_by: &[Loom("loom_a_value_is_no_older_than_what_was_received")],
    },
    Mutant {
        name: "copy_after_tail",
        mistake: "the end of the stream is stored before the value that it belongs to",
        noticed_by: &[
            Loom("loom_a_value_is_visible_with_the_end_of_the_stream"),
            Loom("loom_a_value_survives_its_writer"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "no_redo",
        mistake: "a value is not brought up to date when its publisher has died between the commit and the copy",
        noticed_by: &[
            Loom("loom_a_value_survives_its_writer"),
            Tests("a_value_is_the_newest_committed_message_wherever_its_publisher_dies"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "no_reuse_fence",
        mistake: "a reader does not see that the buffer it reads is being reused",
        noticed_by: &[Loom("loom_a_successor_reuses_a_buffer")],
    },
    Mutant {
        name: "no_room_fence",
        mistake: "a buffer gets a new place where a reader may still take it for the valid one",
        noticed_by: &[Loom("loom_a_place_is_given_to_a_buffer_that_is_not_read")],
    },
    Mutant {
        name: "announced_once",
        mistake: "a reader does not ask whether another record was announced meanwhile",
        noticed_by: &[Loom("loom_a_value_has_the_number_that_was_committed")],
    },
    Mutant {
        name: "version_not_compared",
        mistake: "a reader does not ask whether the buffer was reused that it has read",
        noticed_by: &[Loom("loom_a_value_is_read_whole")],
    },
    Mutant {
        name: "no_walk",
        mistake: "a reader takes bytes of another message for the value that a dead publisher has announced there",
        noticed_by: &[Tests(
            "what_a_dead_publisher_has_announced_is_believed_only_if_it_was_committed",
        )],
    },
    Mutant {
        name: "sequence_relaxed",
        mistake: "a subscriber takes a sequence for that of an earlier end of the stream",
        noticed_by: &[Loom("loom_a_bound_is_visible_with_the_end_of_the_stream")],
    },
    Mutant {
        name: "end_without_acquire",
        mistake: "a subscriber that passes over messages does not see that a commit is under way",
        noticed_by: &[Loom("loom_a_bound_is_visible_with_the_end_of_the_stream")],
    },
    Mutant {
        name: "next_not_compared",
        mistake: "a subscriber that passes over messages does not ask whether a commit is under way",
        noticed_by: &[
            Loom("loom_a_bound_is_visible_with_the_end_of_the_stream"),
            Loom("loom_passing_over_during_a_recovery"),
        ],
    },
    Mutant {
        name: "list_kept_without_a_slot",
        mistake: "a subscriber that has lost its slot gets a pattern, and passes over the messages of that",
        noticed_by: &[Tests("a_new_pattern_of_one_that_has_lost_its_slot_counts")],
    },
    Mutant {
        name: "held_messages_passed_over",
        mistake: "a subscriber that holds messages and was lapped reports no loss of them",
        noticed_by: &[Tests("one_that_holds_messages_and_was_lapped_learns_of_it")],
    },
    Mutant {
        name: "bus_named_before_complete",
        mistake: "the directory of a new bus gets its name while its files are still being created",
        noticed_by: &[Tests("nothing_has_its_name_before_it_is_complete")],
    },
    Mutant {
        name: "file_named_before_complete",
        mistake: "a file that is added to a bus gets its name before its content",
        noticed_by: &[Tests("nothing_has_its_name_before_it_is_complete")],
    },
    Mutant {
        name: "start_where_overwritten",
        mistake: "a lapped reader resumes at an index entry whose record is overwritten",
        noticed_by: &[Loom("loom_a_lapped_reader_resumes")],
    },
    Mutant {
        name: "end_by_the_stored_pair",
        mistake: "a subscriber that joins at the end takes the stored tail with a sequence of another record",
        noticed_by: &[Loom("loom_joining_at_the_end_during_a_recovery")],
    },
    Mutant {
        name: "recovery_lowers_reserved",
        mistake: "recovery gives back space that a dead writer had reserved and may have overwritten",
        noticed_by: &[
            Loom("loom_recovery_keeps_what_was_reserved"),
            Tests("recovery_does_not_make_overwritten_bytes_valid_again"),
        ],
    },
    Mutant {
        name: "no_roll_forward",
        mistake: "the next writer does not move `tail` past the record that a dead one committed",
        noticed_by: &[
            Loom("loom_a_writer_dies_at_any_step"),
            Loom("loom_a_burst_dies_at_any_step"),
            Loom("loom_recovery_dies_at_any_step"),
            Loom("loom_a_reader_follows_through_a_recovery"),
            Tests("a_writer_may_die_at_any_step"),
        ],
    },
    Mutant {
        name: "next_after_commit",
        mistake: "a writer stores `next` after its commit, so that its death between the two leaves no trace",
        noticed_by: &[Tests("a_writer_may_die_at_any_step")],
    },
    Mutant {
        name: "mark_before_commit",
        mistake: "the table of arrivals says that a message has arrived before it is committed",
        noticed_by: &[
            Tests("each_message_arrives_once_wherever_its_inlet_died"),
            Tests("a_publisher_that_recovers_does_not_believe_a_mark_before_its_commit"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "mark_not_redone",
        mistake: "recovery does not raise the mark of a message that a dead inlet committed",
        noticed_by: &[
            Tests("each_message_arrives_once_wherever_its_inlet_died"),
            Tests("a_note_counts_if_its_record_was_committed"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "highest_not_kept",
        mistake: "recovery does not raise the highest number of a message that a dead inlet committed",
        noticed_by: &[Tests("a_note_counts_if_its_record_was_committed")],
    },
    Mutant {
        name: "told_kept_with_message",
        mistake: "a message leaves the note that it was told already what may be missing after it",
        noticed_by: &[
            Tests("it_is_told_once_that_more_may_be_missing_wherever_its_inlet_died"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "told_twice",
        mistake: "a loss without numbers is reported again, although nothing came in between",
        noticed_by: &[Tests("it_is_told_once_that_more_may_be_missing_wherever_its_inlet_died")],
    },
    Mutant {
        name: "claim_makes_entry",
        mistake: "a stream takes its place in the table of arrivals before anything of it arrives",
        noticed_by: &[Tests("a_full_table_tells_of_a_stream_before_it_forgets_it")],
    },
    Mutant {
        name: "evict_untold",
        mistake: "a full table forgets a stream without telling what may be missing of it",
        noticed_by: &[
            Tests("a_full_table_tells_of_a_stream_before_it_forgets_it"),
            Tests("a_stream_that_is_not_told_makes_room_once_it_is_told"),
        ],
    },
    Mutant {
        name: "last_arrival_again",
        mistake: "an inlet does not take the last message that arrived for a duplicate",
        noticed_by: &[
            Tests("each_message_arrives_once_wherever_its_inlet_died"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "loss_for_local_only",
        mistake: "a subscriber that passes over what comes from elsewhere gets losses from elsewhere",
        noticed_by: &[Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model")],
    },
    Mutant {
        name: "loss_raises_no_mark",
        mistake: "the numbers of a loss do not count as arrived, so that its messages are published after it",
        noticed_by: &[Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model")],
    },
    Mutant {
        name: "note_settled_late",
        mistake: "a publisher that recovers leaves the note of a dead inlet to the next inlet, and writes another record where that one's would be",
        noticed_by: &[
            Tests("a_publisher_that_recovers_does_not_believe_a_mark_before_its_commit"),
            Oracle("lists_from_a_seed_do_to_a_bus_what_they_do_to_the_model"),
        ],
    },
    Mutant {
        name: "takeover_unnoticed",
        mistake: "an exclusive publisher does not notice that another one has taken over",
        noticed_by: &[
            Tests("an_exclusive_publisher_that_died_is_taken_over_from"),
            Tests("a_burst_of_an_exclusive_publisher_ends_where_another_one_takes_over"),
        ],
    },
    Mutant {
        name: "inherits_at_once",
        mistake: "who claims the slot of an exclusive publisher writes while that one may be in the middle of a message",
        noticed_by: &[Tests("a_claimer_inherits_from_an_exclusive_publisher_after_a_delay")],
    },
    Mutant {
        name: "takeover_unmarked",
        mistake: "who takes over from an exclusive publisher dies while it waits, and the next one writes at once",
        noticed_by: &[Tests(
            "who_takes_over_from_an_exclusive_publisher_leaves_its_mark_until_it_may_write",
        )],
    },
    Mutant {
        name: "exclusive_for_ever",
        mistake: "no publisher takes over from an exclusive one that is dead",
        noticed_by: &[Tests("an_exclusive_publisher_that_died_is_taken_over_from")],
    },
    Mutant {
        name: "kept_in_secret",
        mistake: "the lock word does not say that an exclusive publisher has the lock",
        noticed_by: &[Tests("no_publisher_waits_for_an_exclusive_one_that_lives")],
    },
    Mutant {
        name: "stale_index_entry",
        mistake: "an index entry that a dead writer left is not overwritten by the record that spans its block",
        noticed_by: &[Tests(
            "an_entry_that_a_dead_writer_left_is_overwritten_by_the_record_that_spans_its_block",
        )],
    },
    Mutant {
        name: "index_without_seqlock",
        mistake: "an index entry that is in use is replaced without being cleared first",
        noticed_by: &[
            Loom("loom_an_index_entry_is_read_consistently"),
            Tests("an_entry_in_use_is_not_half_replaced"),
        ],
    },
    Mutant {
        name: "index_read_once",
        mistake: "a reader takes the position of an index entry with the sequence of the next one",
        noticed_by: &[Loom("loom_an_index_entry_is_read_consistently")],
    },
    Mutant {
        name: "index_relaxed",
        mistake: "a reader takes the position of a new index entry with the sequence of the old one",
        noticed_by: &[Loom("loom_an_index_entry_is_read_consistently")],
    },
    Mutant {
        name: "topics_relaxed",
        mistake: "a topic is counted before its name is in place",
        noticed_by: &[Loom("loom_readers_see_whole_entries")],
    },
    Mutant {
        name: "join_sees_only_reserved",
        mistake: "a subscriber that joins checks what is reserved, not what a writer is about to reserve",
        noticed_by: &[Loom("loom_a_joined_reader_is_not_overtaken")],
    },
    Mutant {
        name: "joined_without_fence",
        mistake: "a subscriber that joins may check what is about to be reserved before writers see its slot",
        noticed_by: &[Loom("loom_a_joined_reader_is_not_overtaken")],
    },
    Mutant {
        name: "scan_without_fence",
        mistake: "a writer may read the slots before it has stored the space that it requests",
        noticed_by: &[Loom("loom_a_joined_reader_is_not_overtaken")],
    },
    Mutant {
        name: "patterns_without_version",
        mistake: "an observer accepts patterns that are half old and half new",
        noticed_by: &[
            Tests("patterns_that_change_while_they_are_read_are_read_again"),
            Tests("patterns_that_are_being_written_do_not_show"),
        ],
    },
    Mutant {
        name: "patterns_without_generation",
        mistake: "an observer takes the patterns of a slot's last owner for those of the new one",
        noticed_by: &[Tests("patterns_are_those_of_their_slot")],
    },
    Mutant {
        name: "proposal_taken_for_a_fact",
        mistake: "a subscriber is refused a start that a writer requests to overwrite, though the writer withdraws",
        noticed_by: &[
            Loom("loom_a_start_in_protected_history_is_kept"),
            Loom("loom_a_start_is_kept_when_the_proposing_writer_dies"),
        ],
    },
    Mutant {
        name: "proposal_survives_recovery",
        mistake: "the request of a dead writer remains after the next one has taken the lock",
        noticed_by: &[Tests("a_start_is_there_although_the_writer_that_wanted_it_died")],
    },
    Mutant {
        name: "lapped_readers_gate",
        mistake: "a stopped reader delays publishers by the policy's limit at each block, not once",
        noticed_by: &[
            Tests("a_stopped_subscriber_costs_the_limit_once"),
            Tests("lapped_free_and_non_gating_readers_gate_no_writer"),
        ],
    },
    Mutant {
        name: "join_not_counted",
        mistake: "a writer that has read the slots before does not notice that a subscriber has joined",
        noticed_by: &[Loom("loom_a_joined_reader_is_not_overtaken_after_an_old_scan")],
    },
    Mutant {
        name: "dead_slots_without_generation",
        mistake: "a new subscriber in the slot of a dead one is taken for dead",
        noticed_by: &[Loom("loom_a_slot_changes_hands_during_a_scan")],
    },
    Mutant {
        name: "lease_asked_without_fence",
        mistake: "a writer may see the lease of a slot as it was before the slot became active",
        noticed_by: &[Loom("loom_a_joining_reader_is_not_taken_for_dead")],
    },
    Mutant {
        name: "living_reader_taken_for_dead",
        mistake: "a writer does not test the lease of the reader in its way",
        noticed_by: &[Loom("loom_dead_readers_are_not_waited_for")],
    },
    Mutant {
        name: "wait_without_a_recheck",
        mistake: "a publisher waits for space that was freed while it registered its wait",
        noticed_by: &[Loom("loom_a_reader_ends_the_wait_for_space")],
    },
    Mutant {
        name: "position_without_fence",
        mistake: "a reader may look for waiting publishers before they can see its position",
        noticed_by: &[
            Loom("loom_a_reader_ends_the_wait_for_space"),
            Loom("loom_the_last_reader_ends_the_wait_for_space"),
        ],
    },
    Mutant {
        name: "space_not_raised",
        mistake: "a reader wakes a publisher that is only about to sleep",
        noticed_by: &[Loom("loom_a_reader_ends_the_wait_for_space")],
    },
    Mutant {
        name: "wake_is_not_passed_on",
        mistake: "a publisher that was woken does not wake the next one",
        noticed_by: &[Loom("loom_a_wait_for_space_ends_for_each_publisher")],
    },
    Mutant {
        name: "lease_through_own_description",
        mistake: "a lease is tested through a description that holds leases, which never sees them",
        noticed_by: &[Tests("a_lease_is_seen_within_its_own_process")],
    },
    Mutant {
        name: "try_never_takes_over",
        mistake: "the death of the lock's owner is never noticed if publishers only try the lock",
        noticed_by: &[Tests("a_try_takes_over_at_the_second_check")],
    },
    Mutant {
        name: "dump_believed_before_its_threads_stop",
        mistake: "a process that begins to dump core counts as dead while a thread of it still runs",
        noticed_by: &[Tests("a_dump_counts_when_all_threads_have_stopped")],
    },
    Mutant {
        name: "lease_asked_of_any_descriptor",
        mistake: "a participant tests leases through a descriptor that was closed and reopened for another file",
        noticed_by: &[Tests("a_tester_never_answers_for_another_description")],
    },
    Mutant {
        name: "armed_without_fence",
        mistake: "a subscriber may recheck before publishers can see that it is about to sleep",
        noticed_by: &[Loom("loom_no_lost_wake_up")],
    },
    Mutant {
        name: "unfenced_without_mark",
        mistake: "an exclusive publisher leaves its fence out, and subscribers do not know",
        noticed_by: &[Loom("loom_no_lost_wake_up_without_a_fence")],
    },
    Mutant {
        name: "unfenced_without_a_look",
        mistake: "an exclusive publisher leaves its fence out, and does not look for subscribers that went to sleep before they could know",
        noticed_by: &[Loom("loom_no_lost_wake_up_without_a_fence")],
    },
    Mutant {
        name: "no_membarrier",
        mistake: "a subscriber that goes to sleep executes no fence on behalf of a publisher that left its own out",
        noticed_by: &[
            Loom("loom_no_lost_wake_up_without_a_fence"),
            Loom("loom_no_lost_wake_up_when_the_fence_comes_and_goes"),
        ],
    },
    Mutant {
        name: "refenced_without_fence",
        mistake: "an exclusive publisher takes its mark away although commits without a fence may not be visible yet",
        noticed_by: &[Loom("loom_no_lost_wake_up_when_the_fence_comes_back")],
    },
    Mutant {
        name: "mark_over_mark",
        mistake: "a publisher that has lost the lock replaces the mark of its successor, and then removes it",
        noticed_by: &[Tests("the_mark_of_another_publisher_is_left_alone_and_costs_no_wake_up")],
    },
    Mutant {
        name: "mark_survives_takeover",
        mistake: "the mark of a dead exclusive publisher stays, and each sleep costs a membarrier",
        noticed_by: &[Tests("a_takeover_removes_the_mark_of_a_dead_publisher")],
    },
    Mutant {
        name: "unfenced_without_permission",
        mistake: "an exclusive publisher leaves its fence out although its process is not registered for membarriers",
        noticed_by: &[Tests("a_publisher_that_is_refused_membarrier_always_fences")],
    },
    Mutant {
        name: "refused_subscribers_ignored",
        mistake: "an exclusive publisher leaves its fence out although a subscriber cannot execute a membarrier",
        noticed_by: &[Tests(
            "a_subscriber_that_is_refused_membarrier_keeps_publishers_fenced_while_it_lives",
        )],
    },
    Mutant {
        name: "refusal_ignored",
        mistake: "a subscriber that is refused membarrier tells no publisher",
        noticed_by: &[Tests(
            "a_subscriber_that_is_refused_membarrier_keeps_publishers_fenced_while_it_lives",
        )],
    },
    Mutant {
        name: "no_fence_after_unlock",
        mistake: "a publisher may look for sleepers before they can see its commit",
        noticed_by: &[Loom("loom_no_lost_wake_up")],
    },
    Mutant {
        name: "sleep_without_a_recheck",
        mistake: "a subscriber sleeps although a message came while it armed its sleep",
        noticed_by: &[Loom("loom_no_lost_wake_up")],
    },
    Mutant {
        name: "wake_without_raise",
        mistake: "a publisher wakes a subscriber that is only about to sleep",
        noticed_by: &[Loom("loom_no_lost_wake_up")],
    },
    Mutant {
        name: "token_after_arming",
        mistake: "a subscriber reads the value to sleep on after it has armed its sleep",
        noticed_by: &[Loom("loom_no_lost_wake_up_between_threads")],
    },
    Mutant {
        name: "notified_up_to_a_newer_count",
        mistake: "a publisher counts a sleeper as woken that armed its sleep after the wake",
        noticed_by: &[Loom("loom_no_lost_wake_up")],
    },
    Mutant {
        name: "slots_counted_before_the_sleepers",
        mistake: "a publisher notes the sleep of a subscriber in a slot that it did not know of yet",
        noticed_by: &[Loom("loom_no_lost_wake_up_of_two_sleepers")],
    },
    Mutant {
        name: "one_sleeper_remembered",
        mistake: "a publisher that looks who has armed remembers only the first",
        noticed_by: &[Loom("loom_no_lost_wake_up_of_two_sleepers")],
    },
    Mutant {
        name: "bystanders_forgotten",
        mistake: "a publisher forgets a sleeper that did not want its message",
        noticed_by: &[Loom("loom_no_lost_wake_up_of_a_bystander")],
    },
    Mutant {
        name: "common_count_first",
        mistake: "a subscriber raises the common count of sleepers before its own",
        noticed_by: &[Loom("loom_no_lost_wake_up")],
    },
    Mutant {
        name: "noted_before_the_look",
        mistake: "a publisher notes the count of sleepers before it remembers who they are",
        noticed_by: &[Loom("loom_no_lost_wake_up_between_threads")],
    },
    Mutant {
        name: "busy_publisher_returns",
        mistake: "a thread that finds another one of its publisher waking wakes no one",
        noticed_by: &[Loom("loom_no_lost_wake_up_between_threads")],
    },
    Mutant {
        name: "refenced_for_the_last_topic_only",
        mistake: "an exclusive publisher that goes back to fences wakes only those that want its last message",
        noticed_by: &[Loom("loom_no_lost_wake_up_when_the_fence_comes_back_for_another_topic")],
    },
    Mutant {
        name: "column_kept_with_a_new_pattern",
        mistake: "a subscriber that wants more topics is not woken for those that are known already",
        noticed_by: &[Tests("column::tests::a_new_pattern_counts_at_once")],
    },
    Mutant {
        name: "column_of_the_last_owner",
        mistake: "a new owner of a slot is not woken for what the last one did not want",
        noticed_by: &[Tests("column::tests::the_next_owner_of_a_slot_wants_everything_at_first")],
    },
    Mutant {
        name: "bystanders_fall_behind",
        mistake: "a subscriber that sleeps because nothing is for it is not woken when publishers come near it",
        noticed_by: &[Tests(
            "column::tests::no_publisher_waits_for_one_that_sleeps_because_nothing_is_for_it",
        )],
    },
    Mutant {
        name: "socket_drained_after_arming",
        mistake: "a subscriber throws away the datagram that answered its sleep",
        noticed_by: &[Tests("datagram::a_wake_while_falling_asleep_counts")],
    },
    Mutant {
        name: "group_drained_after_arming",
        mistake: "a subscriber throws away the multicast datagram that answered its sleep",
        noticed_by: &[Tests("multicast::a_wake_while_falling_asleep_counts")],
    },
    Mutant {
        name: "signal_unblocked",
        mistake: "a signal for a leader may arrive just before its wait, and then does not end the wait",
        noticed_by: &[Proactor("wakeups::epoll_signal")],
    },
    Mutant {
        name: "interrupts_once",
        mistake: "a single signal is sent to end a wait that takes no signal mask",
        noticed_by: &[Proactor("wakeups::suspend_signal")],
    },
    Mutant {
        name: "callback_interrupt_unseen",
        mistake: "a leader does not check whether it was interrupted before it waits on a word",
        noticed_by: &[Proactor("wakeups::callback_itself")],
    },
    Mutant {
        name: "dedicated_leader_wakes_followers_only",
        mistake: "a dedicated leader does not interrupt the only thread, which leads the other processor",
        noticed_by: &[Proactor("a_dedicated_leader_interrupts_the_only_thread")],
    },
    Mutant {
        name: "start_not_submitted",
        mistake: "an operation that is started while the leader waits is not submitted to io_uring",
        noticed_by: &[Proactor("wakeups::uring_pipe")],
    },
    Mutant {
        name: "retry_not_submitted",
        mistake: "an operation whose attempt fails while the leader waits is not submitted to io_uring",
        noticed_by: &[Proactor("what_was_tried_in_vain_is_submitted_for_a_leader_that_waits")],
    },
    Mutant {
        name: "edge_of_afterwards",
        mistake: "an edge that comes while a descriptor is found not to be ready is forgotten",
        noticed_by: &[Proactor("edges_during_attempts_are_seen")],
    },
    Mutant {
        name: "blocked_runs_stay",
        mistake: "the thread that checks leaves what a handler that blocks has started to that handler's thread",
        noticed_by: &[Proactor("the_run_of_a_handler_that_blocks_is_ended_at_the_second_check")],
    },
    Mutant {
        name: "what_is_kept_stays",
        mistake: "the end of a local run leaves what its thread has kept for its turn",
        noticed_by: &[
            Proactor("a_second_thread_does_what_a_thread_that_blocks_has_kept"),
            Proactor("what_a_thread_keeps_is_outstanding_and_can_be_cancelled"),
        ],
    },
    Mutant {
        name: "a_kept_handler_is_not_outstanding",
        mistake: "a graceful stop is complete while a thread calls a handler of what it has kept",
        noticed_by: &[Proactor("a_graceful_stop_waits_for_a_handler_of_what_a_thread_has_kept")],
    },
    Mutant {
        name: "posts_overtake_what_is_kept",
        mistake: "a post that comes after everything that is ready goes ahead of what a thread keeps",
        noticed_by: &[
            Proactor("a_post_comes_after_what_a_thread_keeps"),
            Proactor("a_post_comes_after_what_another_thread_keeps"),
        ],
    },
    Mutant {
        name: "nobody_misses_what_is_kept",
        mistake: "a thread that returns to its owner keeps what waits, although no other thread checks whether it comes back",
        noticed_by: &[Proactor("a_thread_that_returns_keeps_only_what_another_one_will_miss")],
    },
    Mutant {
        name: "what_is_kept_starves",
        mistake: "what a thread keeps never has its turn while results of others arrive",
        noticed_by: &[Proactor("what_a_thread_keeps_has_its_turn_after_about_a_millisecond")],
    },
    Mutant {
        name: "shards_do_not_see_what_is_kept",
        mistake: "a thread of another shard that helps leaves what a thread keeps to that thread",
        noticed_by: &[Proactor("what_a_thread_keeps_is_shared_unless_all_cores_are_busy")],
    },
    Mutant {
        name: "pipes_are_kept",
        mistake: "a thread attempts reads that may wait for another reader while it holds the lock of its local run",
        noticed_by: &[Proactor("reads_of_pipes_are_not_kept")],
    },
    Mutant {
        name: "runs_are_not_shared",
        mistake: "a thread with nothing to do leaves to another one what that has kept",
        noticed_by: &[Proactor("what_a_thread_keeps_is_shared_unless_all_cores_are_busy")],
    },
    Mutant {
        name: "timers_end_runs",
        mistake: "cancelling a timer ends the local runs of all threads",
        noticed_by: &[Proactor("cancelling_a_timer_ends_no_run")],
    },
    Mutant {
        name: "collected_start_unseen",
        mistake: "a start of another thread does not see that a handler has started an operation before it",
        noticed_by: &[Proactor("a_read_of_another_thread_does_not_overtake_a_collected_one")],
    },
    Mutant {
        name: "cancelled_goes_on",
        mistake: "a cancelled operation of io_uring is submitted again when its poll is over",
        noticed_by: &[Proactor("what_was_cancelled_and_moved_nothing_ends_as_cancelled")],
    },
    Mutant {
        name: "finish_forgets_starts",
        mistake: "threads leave while an operation starts whose bytes have been transferred already",
        noticed_by: &[
            Proactor("finishing::what_was_transferred_is_reported"),
            Proactor("finishing::a_part_that_was_transferred_is_reported"),
        ],
    },
    Mutant {
        name: "finish_forgets_shards",
        mistake: "a graceful stop is complete when one shard of the proactor has nothing left to do",
        noticed_by: &[Proactor("shards::a_graceful_stop_waits_for_all_shards")],
    },
    Mutant {
        name: "nobody_is_called",
        mistake: "no thread of another shard is called to work that comes to a shard in which no thread waits",
        noticed_by: &[
            Proactor("shards::one_thread_is_enough_for_all_shards"),
            Proactor("shards::one_thread_serves_all_shards_if_the_others_block"),
            ProactorLoom("loom_work_that_comes_to_a_shard_without_a_thread_is_found"),
            ProactorLoom("loom_what_a_handler_that_blocks_has_started_is_found"),
        ],
    },
    Mutant {
        name: "who_stops_ticking_does_not_look_again",
        mistake: "no thread sees work that came to another shard while a thread ticked, after that thread's last check",
        noticed_by: &[
            ProactorLoom("loom_work_that_comes_to_a_shard_without_a_thread_is_found"),
            ProactorLoom("loom_what_a_handler_that_blocks_has_started_is_found"),
        ],
    },
    Mutant {
        name: "who_gets_work_leaves_the_ticks_to_nobody",
        mistake: "a thread that ticks, and gets work, calls no other thread, although another one relied on its ticks",
        noticed_by: &[ProactorLoom("loom_who_gets_work_leaves_the_ticks_to_another")],
    },
    Mutant {
        name: "a_run_is_open_while_nobody_looks",
        mistake: "a thread collects what its handler starts, while no other thread ticks or is called",
        noticed_by: &[ProactorLoom("loom_what_a_handler_that_blocks_has_started_is_found")],
    },
    Mutant {
        name: "few_descriptors_are_dealt_out",
        mistake: "the first descriptors of a proactor are in different shards, and their threads wake each other",
        noticed_by: &[Proactor("the_first_descriptors_are_in_one_shard")],
    },
    Mutant {
        name: "accepted_sockets_stay",
        mistake: "a thread that accepts all sockets has all of them in its shard",
        noticed_by: &[Proactor("shards::accepted_sockets_are_dealt_out")],
    },
    Mutant {
        name: "announced_threads_are_forgotten",
        mistake: "what a program creates before its threads come is all in one shard",
        noticed_by: &[Proactor("shards::descriptors_are_dealt_out_among_announced_threads")],
    },
    Mutant {
        name: "nobody_helps",
        mistake: "a thread that waits does not see that another shard stands still",
        noticed_by: &[
            Proactor("shards::one_thread_is_enough_for_all_shards"),
            Proactor("shards::one_thread_serves_all_shards_if_the_others_block"),
        ],
    },
    Mutant {
        name: "threads_at_work_do_not_look",
        mistake: "a thread that always has work in its own shard never looks at the others",
        noticed_by: &[
            Proactor("shards::a_busy_thread_serves_all_shards"),
            Proactor("shards::a_busy_thread_takes_over_from_one_that_blocks"),
        ],
    },
    Mutant {
        name: "no_look_is_a_tick",
        mistake: "a thread that is about to wait does not see that nothing has been taken in another shard since the last tick",
        noticed_by: &[
            Proactor("shards::one_thread_serves_all_shards_if_the_others_block"),
            ProactorLoom("loom_who_gets_work_leaves_the_ticks_to_another"),
            ProactorLoom("loom_what_a_handler_that_blocks_has_started_is_found"),
        ],
    },
    Mutant {
        name: "the_first_shard_is_helped",
        mistake: "of several shards that need help, it is always the same that gets it",
        noticed_by: &[Proactor("shards::shards_that_need_help_take_turns")],
    },
    Mutant {
        name: "a_handler_moves",
        mistake: "a handler that handles events takes its thread to another shard, which it cannot leave its own for",
        noticed_by: &[Proactor(
            "shards::a_handler_that_handles_events_helps_a_shard_without_a_thread",
        )],
    },
    Mutant {
        name: "a_call_before_the_wait_is_forgotten",
        mistake: "a thread that is called between its look at the other shards and its wait does not look again",
        noticed_by: &[
            Proactor("shards::a_call_between_a_look_and_the_wait_is_heard"),
            ProactorLoom("loom_work_that_comes_to_a_shard_without_a_thread_is_found"),
            ProactorLoom("loom_who_gets_work_leaves_the_ticks_to_another"),
            ProactorLoom("loom_what_a_handler_that_blocks_has_started_is_found"),
        ],
    },
    Mutant {
        name: "a_follower_waits_for_nobody",
        mistake: "a follower that checks the running threads waits on when the last of them has left",
        noticed_by: &[Proactor("a_follower_that_checks_does_not_wait_for_nobody")],
    },
    Mutant {
        name: "repair_ignores_nothing",
        mistake: "a datagram that was just sent again is sent another time",
        noticed_by: &[Protocol("what_was_just_sent_again_is_ignored_and_said_to_be")],
    },
    Mutant {
        name: "repair_in_order_of_arrival",
        mistake: "the receiver that asks first is served until it has everything",
        noticed_by: &[Protocol("receivers_are_served_in_turn_however_much_one_asks_for")],
    },
    Mutant {
        name: "limiter_carries_over",
        mistake: "a limiter saves up what was not sent during a silence",
        noticed_by: &[Protocol("after_a_long_silence_one_datagram_more_leaves_at_once")],
    },
    Mutant {
        name: "nak_forgets_suppression",
        mistake: "a receiver goes on asking although the sender said that it repairs later",
        noticed_by: &[Protocol("while_the_sender_repairs_the_receiver_keeps_quiet")],
    },
    Mutant {
        name: "loss_counts_datagrams",
        mistake: "a loss counts gaps and not messages",
        noticed_by: &[
            Protocol("what_is_delivered_is_the_list_without_the_reported_losses"),
            Protocol("seeds_deliver_every_message_or_report_it"),
        ],
    },
    Mutant {
        name: "mark_off_by_one",
        mistake: "the last message of a session is delivered by the next session again",
        noticed_by: &[Protocol("seeds_deliver_every_message_or_report_it")],
    },
    Mutant {
        name: "loss_leaves_mark",
        mistake: "a receiver that restarts reports losses again that it had reported",
        noticed_by: &[Protocol(
            "what_the_source_missed_is_not_reported_again_after_a_restart_of_the_receiver",
        )],
    },
    Mutant {
        name: "series_kept",
        mistake: "a receiver takes the numbers of an emptied bus for those that it knows",
        noticed_by: &[Protocol("seeds_deliver_every_message_or_report_it")],
    },
    Mutant {
        name: "end_closes_gaps",
        mistake: "a receiver forgets its gaps when the source ends",
        noticed_by: &[Protocol("a_source_that_ends_repairs_what_was_lost_before")],
    },
    Mutant {
        name: "jump_unlimited",
        mistake: "one datagram from far ahead makes a receiver give up what it waits for",
        noticed_by: &[Protocol("one_datagram_from_far_ahead_moves_nothing")],
    },
    Mutant {
        name: "one_leg",
        mistake: "all NAKs take the first leg, which may be dead on the way back",
        noticed_by: &[
            Protocol("naks_alternate_over_the_legs_on_which_the_source_is_heard"),
            Protocol("every_repairer_is_tried_on_every_leg_and_the_sender_last_of_each_round"),
            Protocol("two_legs_deliver_once_and_one_of_them_is_enough"),
        ],
    },
    Mutant {
        name: "repairers_unasked",
        mistake: "on a feed the sender repairs everything itself",
        noticed_by: &[Protocol("on_a_feed_the_repairers_are_asked_in_turn_and_the_sender_last")],
    },
    Mutant {
        name: "repairer_believed",
        mistake: "what one repairer does not have is given up although others have it",
        noticed_by: &[Protocol("on_a_feed_the_repairers_are_asked_in_turn_and_the_sender_last")],
    },
    Mutant {
        name: "held_thrown_away",
        mistake: "what waits behind a gap is forgotten when the source comes back with another series",
        noticed_by: &[Protocol("another_series_ends_the_gaps_with_exact_counts_in_their_order")],
    },
    Mutant {
        name: "handed_over_twice",
        mistake: "a gap is reported as lost although the next session brings a part of it",
        noticed_by: &[Protocol(
            "what_the_same_series_does_not_bring_again_is_counted_and_what_was_held_delivered",
        )],
    },
    Mutant {
        name: "mark_over_limit",
        mistake: "what the next session brings again is dropped as known although it never came",
        noticed_by: &[Protocol(
            "what_the_same_series_does_not_bring_again_is_counted_and_what_was_held_delivered",
        )],
    },
    Mutant {
        name: "unjoined_untold",
        mistake: "a life of a source of which only data came ends without a word",
        noticed_by: &[Protocol("after_its_end_another_series_is_no_loss_if_the_end_was_sealed")],
    },
    Mutant {
        name: "stranger_ends_session",
        mistake: "DATA that anybody can send ends a session whose source lives",
        noticed_by: &[Protocol("data_of_a_later_session_does_not_end_the_one_that_is_heard_again")],
    },
    Mutant {
        name: "sleep_is_loss",
        mistake: "what is overdue because this process was stopped is given up before it reads its socket",
        noticed_by: &[
            Protocol("a_turn_that_begins_late_moves_the_deadlines_before_anything_is_read"),
            Protocol("a_receiver_that_was_stopped_for_10_s_reads_its_socket_and_loses_nothing"),
        ],
    },
    Mutant {
        name: "strangers_take_all",
        mistake: "datagrams of sessions that are not believed yet take all receive buffers",
        noticed_by: &[Protocol("all_receivers_that_join_share_a_sixteenth_of_the_buffers")],
    },
    Mutant {
        name: "high_water_off_by_one",
        mistake: "a receiver takes the newest datagram for one that is missing",
        noticed_by: &[Protocol("seeds_deliver_every_message_or_report_it")],
    },
    Mutant {
        name: "ncf_for_all",
        mistake: "what the sender says to one receiver keeps all others from asking",
        noticed_by: &[
            Protocol("what_the_sender_says_to_others_keeps_no_receiver_from_asking"),
            Protocol("neither_a_crybaby_nor_a_flood_of_naks_harms_the_others"),
        ],
    },
    Mutant {
        name: "ncf_again_and_again",
        mistake: "a stranger who asks without end keeps a receiver from asking again",
        noticed_by: &[Protocol("however_often_others_ask_a_receiver_asks_again")],
    },
    Mutant {
        name: "late_ones_hold",
        mistake: "a required receiver holds the sender before it has caught up",
        noticed_by: &[Protocol("one_that_comes_back_after_it_was_forgotten_must_catch_up_first")],
    },
    Mutant {
        name: "full_inbox_overrun",
        mistake: "a receiver delivers although its inbox has no room",
        noticed_by: &[
            Protocol("what_finds_no_room_waits_and_follows_in_order"),
            Protocol("a_full_inbox_closes_the_window_and_asks_for_nothing_else"),
        ],
    },
    Mutant {
        name: "slowest_outruns",
        mistake: "with the policy slowest, the sender waits for no receiver",
        noticed_by: &[
            Protocol("required_receivers_that_keep_up_lose_nothing_however_small_their_memory_is"),
            Protocol("a_required_receiver_holds_the_sender_until_it_is_put_out_and_comes_back"),
        ],
    },
    Mutant {
        name: "holds_for_ever",
        mistake: "a required receiver that takes nothing holds the sender for ever",
        noticed_by: &[Protocol("a_required_receiver_that_hears_nothing_holds_for_the_limit")],
    },
    Mutant {
        name: "group_incomplete",
        mistake: "the sender begins before the required receivers are there",
        noticed_by: &[Protocol("the_first_message_waits_for_the_whole_group")],
    },
    Mutant {
        name: "one_key_only",
        mistake: "while the key is changed, only one key is accepted",
        noticed_by: &[
            Protocol("during_a_change_of_keys_all_nodes_understand_each_other"),
            Protocol("the_keys_are_changed_without_a_loss"),
        ],
    },
    Mutant {
        name: "naks_without_limit",
        mistake: "a sender reads as many NAKs as an address sends",
        noticed_by: &[Protocol("neither_a_crybaby_nor_a_flood_of_naks_harms_the_others")],
    },
    Mutant {
        name: "ncf_without_rate",
        mistake: "a sender answers each NAK with an NCF, whatever the rate is",
        noticed_by: &[Protocol("a_flood_of_naks_gets_ncfs_and_repairs_only_within_their_rates")],
    },
    Mutant {
        name: "remembered_not_awaited",
        mistake: "a source that died while the receiver was down is not reported",
        noticed_by: &[
            Protocol("a_source_that_is_silent_since_this_process_started_is_reported"),
            Protocol("seeds_deliver_every_message_or_report_it"),
        ],
    },
    Mutant {
        name: "silence_not_told",
        mistake: "a source that dies is not reported",
        noticed_by: &[
            Protocol("a_source_that_dies_is_reported_when_it_was_silent_for_long"),
            Protocol("seeds_deliver_every_message_or_report_it"),
        ],
    },
    Mutant {
        name: "both_stop",
        mistake: "of two nodes with one id, both stop",
        noticed_by: &[Protocol(
            "two_nodes_with_one_id_notice_it_and_with_a_key_the_later_one_stops",
        )],
    },
    Mutant {
        name: "named_once",
        mistake: "one forged SESSION makes an earlier session believed",
        noticed_by: &[Protocol(
            "an_earlier_session_is_followed_when_ours_is_silent_and_it_was_named_twice",
        )],
    },
    Mutant {
        name: "later_session_at_once",
        mistake: "without a key, one forged datagram takes a stream over",
        noticed_by: &[Protocol(
            "two_nodes_with_one_id_notice_it_and_with_a_key_the_later_one_stops",
        )],
    },
    Mutant {
        name: "echo_not_checked",
        mistake: "with a key, a session is followed that has not shown that it lives",
        noticed_by: &[
            Protocol(
                "a_recording_of_an_earlier_life_is_neither_followed_nor_held_for_the_next_one",
            ),
            Protocol("whatever_a_recorder_plays_a_realm_with_a_key_keeps_its_promises"),
        ],
    },
    Mutant {
        name: "prior_ignored",
        mistake: "a receiver does not notice that its sender has forgotten a session or numbers",
        noticed_by: &[
            Protocol(
                "a_sender_that_has_forgotten_a_session_or_numbers_is_followed_from_where_it_began",
            ),
            Protocol(
                "a_server_that_has_forgotten_a_session_or_numbers_is_asked_from_where_it_began",
            ),
            Protocol(
                "a_sender_that_goes_back_to_a_backup_is_noticed_once_and_what_follows_arrives",
            ),
        ],
    },
    Mutant {
        name: "forgotten_session_kept",
        mistake: "a node that starts keeps the mark of a session that its sender has forgotten",
        noticed_by: &[Network(
            "a_source_that_has_forgotten_its_last_session_is_followed_from_where_it_began",
        )],
    },
    Mutant {
        name: "echo_counts_twice",
        mistake: "the ECHO that has made a session be followed brings it back later",
        noticed_by: &[Protocol("an_echo_does_not_bring_an_earlier_session_back")],
    },
    Mutant {
        name: "echo_refused",
        mistake: "a sender does not repeat what receivers have drawn",
        noticed_by: &[
            Protocol("a_nonce_is_repeated_at_once_and_a_session_follows"),
            Protocol("a_session_is_followed_after_its_echo_and_what_came_before_is_not_lost"),
        ],
    },
    Mutant {
        name: "session_repeated",
        mistake: "with a key, a SESSION counts although a later one has come",
        noticed_by: &[Protocol(
            "a_session_that_was_sent_before_the_last_one_is_refused_with_a_key",
        )],
    },
    Mutant {
        name: "status_may_fall",
        mistake: "with a key, a STATUS counts although a later one has come",
        noticed_by: &[Protocol("with_a_key_what_receivers_sent_long_ago_is_refused")],
    },
    Mutant {
        name: "old_questions_answered",
        mistake: "with a key, a sender answers what was asked long ago",
        noticed_by: &[Protocol("with_a_key_what_receivers_sent_long_ago_is_refused")],
    },
    Mutant {
        name: "duplicate_is_heard",
        mistake: "a recording hides that its source is silent",
        noticed_by: &[Protocol("what_is_played_again_does_not_hide_that_the_source_is_silent")],
    },
    Mutant {
        name: "address_of_sender_datagram",
        mistake: "a receiver asks where a datagram came from, although the sender lists other addresses",
        noticed_by: &[
            Protocol("answers_go_to_an_address_that_the_sender_lists"),
            Protocol("what_comes_from_an_unlisted_address_is_answered_where_the_sender_is"),
        ],
    },
    Mutant {
        name: "joins_at_any_datagram",
        mistake: "an old datagram of a session decides where a receiver begins",
        noticed_by: &[Protocol(
            "an_old_datagram_of_the_session_does_not_decide_where_a_receiver_begins",
        )],
    },
    Mutant {
        name: "collision_by_session",
        mistake: "with a key, a recording of our own earlier life is a collision",
        noticed_by: &[Protocol(
            "another_node_with_our_source_must_show_that_it_lives_and_the_later_one_stops",
        )],
    },
    Mutant {
        name: "unsure_not_compared",
        mistake: "a count is called exact although the source may have said that it does not know",
        noticed_by: &[Protocol(
            "a_gap_in_which_the_source_may_have_said_that_it_does_not_know_is_an_upper_bound",
        )],
    },
    Mutant {
        name: "gap_count_off_by_one",
        mistake: "a server leaves out one message more than it says",
        noticed_by: &[
            Protocol("what_is_older_than_the_bound_becomes_one_gap_with_exact_numbers"),
            Protocol("over_tcp_every_message_is_delivered_or_reported"),
        ],
    },
    Mutant {
        name: "begun_frame_dropped",
        mistake: "the frame that was begun is not finished when a connection ends",
        noticed_by: &[Protocol("a_connection_that_ends_finishes_its_frame_before_bye")],
    },
    Mutant {
        name: "begun_frame_overwritten",
        mistake: "the memory of a frame is used again while a slow client is receiving it",
        noticed_by: &[Protocol("a_frame_that_was_begun_is_finished_however_late")],
    },
    Mutant {
        name: "topics_dropped",
        mistake: "a client does not get the names of topics that its frames use",
        noticed_by: &[
            Protocol("a_client_gets_what_its_set_matches_with_and_without_a_key"),
            Protocol("over_tcp_every_message_is_delivered_or_reported"),
        ],
    },
    Mutant {
        name: "frame_age_unchecked",
        mistake: "a server sends frames that are older than the bound",
        noticed_by: &[
            Protocol("a_late_client_is_told_what_it_missed_and_no_frame_is_older_than_the_bound"),
            Protocol("over_tcp_every_message_is_delivered_or_reported"),
        ],
    },
    Mutant {
        name: "heartbeat_skips_what_waits",
        mistake: "HEARTBEAT moves a resume point beyond what still waits",
        noticed_by: &[
            Protocol("heartbeats_move_the_resume_point_of_a_quiet_stream"),
            Protocol("over_tcp_every_message_is_delivered_or_reported"),
        ],
    },
    Mutant {
        name: "heartbeat_count_unchecked",
        mistake: "a client takes what a host on the path has taken out for sent, because HEARTBEAT follows",
        noticed_by: &[
            Protocol("messages_that_were_taken_out_before_a_heartbeat_are_asked_for"),
            Protocol("over_tcp_every_message_is_delivered_or_reported"),
        ],
    },
    Mutant {
        name: "heartbeat_within_a_message",
        mistake: "a client takes a message whose rest was taken out for sent, because HEARTBEAT follows",
        noticed_by: &[Protocol(
            "the_rest_of_a_message_that_was_taken_out_before_a_heartbeat_is_asked_for",
        )],
    },
    Mutant {
        name: "data_counts_as_heartbeat",
        mistake: "a client that gets only messages does not notice that everything else is taken out",
        noticed_by: &[Protocol("a_connection_that_brings_only_messages_ends")],
    },
    Mutant {
        name: "question_without_end",
        mistake: "a client waits without end for the answer to a question that was taken out",
        noticed_by: &[Protocol("a_replay_that_is_not_answered_ends_the_connection")],
    },
    Mutant {
        name: "frame_of_client_without_end",
        mistake: "a server waits without end for the rest of a client's frame, as long as bytes come",
        noticed_by: &[Protocol("a_client_that_does_not_complete_a_frame_in_time_is_disconnected")],
    },
    Mutant {
        name: "replay_joins_early",
        mistake: "a client gets what is new before the replay has brought everything",
        noticed_by: &[Protocol("over_tcp_every_message_is_delivered_or_reported")],
    },
    Mutant {
        name: "checkpoint_before_sent",
        mistake: "a node's journal names messages that were not given to the kernel yet",
        noticed_by: &[Network("a_checkpoint_names_only_what_was_given_to_the_kernel")],
    },
    Mutant {
        name: "deadlines_by_wall",
        mistake: "a node measures its deadlines by the wall clock, which people and daemons set",
        noticed_by: &[Network("a_wall_clock_that_is_set_by_an_hour_changes_nothing")],
    },
    Mutant {
        name: "complete_silences_series",
        mistake: "after END, another series is followed as if nothing could have been lost with the one before",
        noticed_by: &[Protocol("after_its_end_another_series_is_no_loss_if_the_end_was_sealed")],
    },
    Mutant {
        name: "question_not_postponed",
        mistake: "while a node cannot ask who else has its source id, each turn moves the deadlines of all streams",
        noticed_by: &[Protocol("a_question_that_cannot_leave_moves_no_deadline_twice")],
    },
    Mutant {
        name: "end_is_believed",
        mistake: "without a key, an END that a stranger has said keeps a living session out until its sender restarts",
        noticed_by: &[Protocol("an_end_that_a_stranger_has_said_ends_nothing")],
    },
    Mutant {
        name: "sealed_series_told",
        mistake: "a series that is over for good is reported when another one follows",
        noticed_by: &[Protocol("after_its_end_another_series_is_no_loss_if_the_end_was_sealed")],
    },
    Mutant {
        name: "gaps_fetched_by_arrival",
        mistake: "by arrival, a receiver that restarts fetches what had come above the mark",
        noticed_by: &[Network(
            "by_arrival_what_came_above_the_mark_does_not_come_again_after_a_death",
        )],
    },
    Mutant {
        name: "standby_never_rejoins",
        mistake: "a node that stands by does not ask whether the other one has left",
        noticed_by: &[Network("one_that_stands_by_delivers_nothing_until_the_other_one_has_left")],
    },
    Mutant {
        name: "message_max_ignored",
        mistake: "a server sends a client messages that are longer than it takes",
        noticed_by: &[
            Protocol("a_client_gets_no_message_that_is_longer_than_it_takes"),
            Protocol("over_tcp_every_message_is_delivered_or_reported"),
        ],
    },
    Mutant {
        name: "end_within_a_replay",
        mistake: "a server says END to a client that has asked for history which has not come",
        noticed_by: &[Protocol(
            "a_server_that_is_stopped_ends_no_client_before_its_history_has_come",
        )],
    },
    Mutant {
        name: "end_before_history",
        mistake: "a client takes END for the end of a stream although it waits for history",
        noticed_by: &[Protocol(
            "a_stream_has_not_ended_before_the_history_that_was_asked_for_has_come",
        )],
    },
    Mutant {
        name: "end_without_drain",
        mistake: "a node that is stopped says END although its bus has messages that it has not sent",
        noticed_by: &[Network("a_node_that_ends_sends_what_is_on_its_bus_or_says_what_is_left")],
    },
    Mutant {
        name: "late_without_end",
        mistake: "a node that was late reads for as long as datagrams arrive faster than it reads them",
        noticed_by: &[Network("a_late_turn_ends_although_more_arrives_than_it_reads")],
    },
    Mutant {
        name: "resume_at_the_end",
        mistake: "a node that restarts does not send again what its window could still have repaired",
        noticed_by: &[Network("a_stream_continues_a_generation_before_its_end")],
    },
    Mutant {
        name: "resume_within_the_interval",
        mistake: "a node that restarts does not send again what it sent after a silence",
        noticed_by: &[Network("what_follows_a_silence_is_sent_again")],
    },
    Mutant {
        name: "going_back_unsaid",
        mistake: "a node that goes back in its stream leaves the journal as it was",
        noticed_by: &[Network("a_node_that_goes_back_says_so_before_it_sends_anything")],
    },
    Mutant {
        name: "journal_of_another_bus",
        mistake: "a journal is continued although the bus was emptied, or the patterns were changed",
        noticed_by: &[Network("a_stream_continues_a_generation_before_its_end")],
    },
    Mutant {
        name: "torn_checkpoint_believed",
        mistake: "a checkpoint that was torn by a crash counts",
        noticed_by: &[Network("a_torn_or_damaged_place_costs_only_itself")],
    },
    Mutant {
        name: "checkpoint_of_another_boot",
        mistake: "a checkpoint that contradicts the newest one counts",
        noticed_by: &[Network("checkpoints_of_an_earlier_boot_are_left_out")],
    },
    Mutant {
        name: "no_barrier",
        mistake: "a leader proposes before everything in its log is committed",
        noticed_by: &[Sequencer(
            "a_leader_that_is_started_again_proposes_nothing_before_its_log_is_committed",
        )],
    },
    Mutant {
        name: "permit_forgotten",
        mistake: "an entry keeps its permit when it was answered",
        noticed_by: &[Sequencer("each_batch_has_one_answer_however_often_the_office_changes")],
    },
    Mutant {
        name: "isolated_leader_takes_commands",
        mistake: "a leader that hears no majority takes commands",
        noticed_by: &[Sequencer("a_leader_that_hears_nobody_takes_nothing_and_says_so")],
    },
    Mutant {
        name: "read_of_before",
        mistake: "a question is answered from what a majority confirmed before it was asked",
        noticed_by: &[Sequencer("one_question_to_the_majority_serves_all_that_wait_for_one")],
    },
    Mutant {
        name: "a_read_for_each",
        mistake: "each question asks the majority again",
        noticed_by: &[Sequencer("one_question_to_the_majority_serves_all_that_wait_for_one")],
    },
    Mutant {
        name: "purge_before_snapshot",
        mistake: "a log is purged before the snapshot that stands for it is on the disk",
        noticed_by: &[Sequencer(
            "the_log_is_purged_only_as_far_as_the_snapshot_on_the_disk_reaches",
        )],
    },
    Mutant {
        name: "replication_from_the_first_entry",
        mistake: "a follower gets the first entries that there are in place of those that were purged",
        noticed_by: &[Sequencer(
            "replication_gets_nothing_in_place_of_what_is_gone_and_an_error_when_it_asks_on",
        )],
    },
    Mutant {
        name: "read_clamped",
        mistake: "a log passes over what was purged, and says nothing",
        noticed_by: &[Sequencer("what_was_purged_is_not_passed_over")],
    },
    Mutant {
        name: "committed_forgotten",
        mistake: "a member that starts again waits for a leader to tell it what was committed",
        noticed_by: &[Sequencer(
            "a_member_that_is_started_again_has_applied_what_it_knew_to_be_committed",
        )],
    },
    Mutant {
        name: "committed_beyond_the_log",
        mistake: "what was committed is believed although the log does not have it",
        noticed_by: &[Sequencer("what_is_committed_is_a_lower_bound_that_is_in_the_log")],
    },
    Mutant {
        name: "no_room_counts",
        mistake: "a member that may lack entries counts those for which it had no room",
        noticed_by: &[Sequencer(
            "a_member_without_room_hears_its_leader_and_counts_only_what_it_has",
        )],
    },
    Mutant {
        name: "cut_while_reading",
        mistake: "a reader takes what is cut off meanwhile for rot, or returns it",
        noticed_by: &[Sequencer("what_is_cut_off_while_it_is_read_is_read_again")],
    },
    Mutant {
        name: "snapshot_of_earlier_leader_counts",
        mistake: "a member takes the refused snapshot of an earlier leader for what it has",
        noticed_by: &[Sequencer("a_snapshot_of_an_earlier_leader_says_nothing_about_the_log")],
    },
    Mutant {
        name: "no_pre_vote",
        mistake: "a member stands for election, whatever the others would answer",
        noticed_by: &[Sequencer("a_member_that_no_majority_would_vote_for_does_not_stand")],
    },
    Mutant {
        name: "probe_says_yes",
        mistake: "a member would vote for any other one",
        noticed_by: &[Sequencer(
            "a_member_would_vote_for_another_only_without_a_leader_and_with_no_longer_log",
        )],
    },
    Mutant {
        name: "leader_without_majority_counts",
        mistake: "a member waits for a leader that says that it has no majority",
        noticed_by: &[Sequencer("a_leader_that_says_that_it_has_no_majority_is_not_waited_for")],
    },
    Mutant {
        name: "backup_not_noticed",
        mistake: "a member does not compare its log with what the others remember of it",
        noticed_by: &[Sequencer("a_log_that_lacks_what_others_remember_is_doubted_once")],
    },
    Mutant {
        name: "change_without_majority",
        mistake: "a change of the members begins, however few would be left",
        noticed_by: &[Sequencer("a_change_that_would_leave_no_majority_is_refused")],
    },
    Mutant {
        name: "change_not_finished",
        mistake: "a leader leaves a change of the members that another one has begun",
        noticed_by: &[Sequencer("a_change_of_the_members_is_finished_by_the_next_leader")],
    },
    Mutant {
        name: "answer_without_memory",
        mistake: "an answer is made without the memory that it needs",
        noticed_by: &[Sequencer("hosts_that_take_no_answer_hold_little_and_not_for_long")],
    },
    Mutant {
        name: "one_pool_for_all",
        mistake: "a member has one limit for all connections, and takes no more when it is reached",
        noticed_by: &[Sequencer("a_member_and_a_tool_are_served_whatever_others_hold")],
    },
    Mutant {
        name: "requests_without_shares",
        mistake: "requests from one address take the memory of those from all others",
        noticed_by: &[Sequencer(
            "a_host_is_heard_while_those_at_another_address_hold_the_memory_for_requests",
        )],
    },
    Mutant {
        name: "answers_without_shares",
        mistake: "answers to one address take the memory of those to all others",
        noticed_by: &[Sequencer("a_host_has_its_answers_while_those_at_another_address_take_none")],
    },
    Mutant {
        name: "any_bus_of_a_source",
        mistake: "a source may open any bus, as another host with its name would",
        noticed_by: &[Sequencer("each_command_is_admitted_as_a_naive_list_would")],
    },
    Mutant {
        name: "removed_bus_not_closed",
        mistake: "the bus of a source that was removed is not closed",
        noticed_by: &[Sequencer("no_bus_of_a_source_that_was_removed_comes_back")],
    },
    Mutant {
        name: "two_couriers_of_a_source",
        mistake: "a leader takes another bus of a source while the courier of the first one is connected",
        noticed_by: &[Sequencer("a_source_belongs_to_one_courier_while_that_is_connected")],
    },
    Mutant {
        name: "signals_wait_for_work",
        mistake: "how a member is is answered by threads that may wait for a disk",
        noticed_by: &[Sequencer("a_member_whose_threads_wait_for_the_disk_shows_how_it_is")],
    },
    Mutant {
        name: "series_not_checked",
        mistake: "a bus is continued by a later series, wherever that began",
        noticed_by: &[Sequencer("another_series_behind_equal_messages_is_a_divergence")],
    },
    Mutant {
        name: "no_recheck",
        mistake: "a follower that starts does not compare the last events on its bus",
        noticed_by: &[Sequencer("other_messages_in_the_same_series_are_a_divergence")],
    },
    Mutant {
        name: "archives_not_vouched_for",
        mistake: "a follower takes from an archive what a recovery has lost",
        noticed_by: &[Sequencer("events_that_only_an_archive_has_are_not_brought")],
    },
    Mutant {
        name: "series_after_its_events",
        mistake: "a bus has events of a series before it notes the series",
        noticed_by: &[Sequencer(
            "a_follower_that_is_killed_where_a_series_begins_continues_its_bus",
        )],
    },
    Mutant {
        name: "series_after_the_gap",
        mistake: "a gap is reported before the bus notes the series that began in it",
        noticed_by: &[Sequencer(
            "a_series_that_began_in_a_purged_gap_is_no_divergence_whenever_the_follower_is_killed",
        )],
    },
];
