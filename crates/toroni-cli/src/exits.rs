//! The exit codes of every command, as `--help` and the manual pages show them.

use toroni_shell::exits::Exits;

/// One row for each command that is not hidden, in the order of the help.
pub(crate) const TABLE: &[Exits] = &[
    Exits::new("demo", "every check passed", "a check failed, or the demo could not run"),
    Exits::new(
        "pub",
        "every message was published",
        "a message could not be published, or another publisher is exclusive",
    )
    .lost("the input reports lost messages, with --json --strict")
    .ended_by_signal("while it reads messages from a terminal or a pipe"),
    Exits::new(
        "sub",
        "--count messages were printed; without --count, --timeout passed",
        "failure, or --timeout passed before --count messages were printed",
    )
    .lost("messages were lost, with --strict")
    .ended_by_signal("without --count"),
    Exits::new(
        "get",
        "every value that matches was printed",
        "failure, or no topic that matches has a value",
    )
    .lost("a value is missing, because the bus had no room for it"),
    Exits::new("clear", "the value was cleared", "failure, or the topic has no value"),
    Exits::new("hz", "--count reports were printed", "failure").ended_by_signal("without --count"),
    #[cfg(feature = "record")]
    Exits::new(
        "record",
        "everything was recorded until --count, --duration or --after; --control was done",
        "failure, such as a full disk or --min-free; the file is finished with what fits",
    )
    .lost("messages were lost, with --strict")
    .ended_by_signal("without --count and --duration"),
    #[cfg(feature = "record")]
    Exits::new("replay", "everything was played, or listed", "failure")
        .lost("a recording has losses, with --lost fail")
        .ended_by_signal("with --loop without a number"),
    Exits::new(
        "create",
        "the bus was created, or with --if-absent exists with the given settings",
        "failure",
    ),
    Exits::new("ls", "success, even if there is no bus", "failure"),
    Exits::new("info", "success", "failure, or there is no such bus"),
    Exits::new("topics", "success, even if there is no topic", "failure, or there is no such bus"),
    #[cfg(feature = "top")]
    Exits::new(
        "top",
        "a key ended it, or --once printed its screen",
        "failure, or there is no such bus",
    )
    .ended_by_signal("without --once"),
    Exits::new("doctor", "every check passed, possibly with warnings", "a check failed"),
    Exits::new("rm", "every bus was removed", "a bus could not be removed"),
    Exits::new("clean", "success", "failure, or nothing could be done for the named bus"),
    #[cfg(feature = "metrics")]
    Exits::new(
        "serve-metrics",
        "never by itself: it serves until a signal ends it",
        "it cannot listen on the address",
    )
    .ended_by_signal("while it serves"),
    Exits::new("completions", "success", "failure"),
    Exits::new("man", "success", "failure"),
];
