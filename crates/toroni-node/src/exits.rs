//! The exit codes of every command, as `--help` and the manual pages show them.

use toroni_shell::exits::Exits;

/// One row for each command that is not hidden, in the order of the help, and one for each command below it that has
/// codes of its own.
pub(crate) const TABLE: &[Exits] = &[
    Exits::new(
        "net",
        "the answer was printed\nnet receive: --count messages came\nnet replay: all of the history that is there came",
        "failure\nnet address: the groups cannot be used together\nnet probe: an expected host is not heard both ways\n\
         net latency: no stream was heard\nnet replay: the source cannot be reached",
    )
    .refused("net send, net receive: a node would not start with the options")
    .lost("net replay: messages were lost, with --strict")
    .ended_by_signal("while it runs send, receive, probe or latency"),
    Exits::new(
        "node",
        "never by itself: it runs until a signal ends it",
        "the file cannot be read, or the node cannot continue",
    )
    .refused("the node does not start with the file")
    .ended_by_signal("while it runs"),
    Exits::new("node check", "a node would start with the file", "the file cannot be read")
        .refused("a node would not start with the file"),
    Exits::new(
        "node doctor",
        "every check passed, possibly with warnings",
        "a check failed, or the file cannot be read",
    )
    .refused("the file is not UTF-8"),
    Exits::new(
        "sequencer",
        "it is done, or printed",
        "failure\nsequencer status: there is no leader\n\
         sequencer send: the command is not known to be part of the order\n\
         sequencer digest: the members differ, or one does not answer\n\
         sequencer rewind: no member has all of the events\nsequencer log: the log is damaged\n\
         sequencer elect, members, sources: the group is not known to have changed\nsequencer recover: the log cannot be used",
    ),
];
