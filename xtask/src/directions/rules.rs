//! The rules: which crate and which module may use which others. This is the file to read; the rest of the folder
//! applies it. A permission that nothing uses is a mistake too, and the check finds it.
//!
//! ```text
//!   crates that ship: each uses only such as are below it
//!
//!     toroni-cli  toroni-node                              the programs; only toroni-node uses the next line and toroni-chart
//!     toroni-net  toroni-sequencer                         several hosts
//!     toroni-recording                                     files of messages
//!     toroni-shell                                         what programs on a terminal share
//!     toroni  toroni-http                                  the bus; the server for metrics
//!     toroni-chart  toroni-proactor  toroni-process  toroni-proto
//!
//!   modules of crates/toroni/src
//!
//!                  bus
//!           /     /     \     \
//!       topic   ring     shm   notify
//!                 ^-------'            shm uses only ring::layout and ring::position
//!
//!       settings  error  hook  sync    the bottom: all may use it; error uses the errors of topic
//! ```

/// What one crate of the workspace may depend on.
pub(super) struct Crate {
    pub(super) name: &'static str,
    /// Members of the workspace that it may name in any `[…dependencies]` table.
    pub(super) members: &'static [&'static str],
    /// Foreign crates that it may name in `[dependencies]`; `None` is any.
    pub(super) foreign: Option<&'static [&'static str]>,
}

/// The rules of all members of the workspace.
pub(super) const CRATES: &[Crate] = &[
    // Every user of the bus compiles these: explain a new one in docs/decisions.md. The tests compare the library with
    // the oracle, and use the testkit. The proactor is optional, behind a feature.
    Crate {
        name: "toroni",
        members: &["toroni-oracle", "toroni-proactor", "toroni-testkit"],
        foreign: Some(&["libc", "rustix", "thiserror", "tokio", "loom"]),
    },
    // Completion I/O. It knows nothing of messages.
    Crate {
        name: "toroni-proactor",
        // Its tests use the testkit.
        members: &["toroni-testkit"],
        foreign: Some(&["basic-toml", "io-uring", "libc", "loom", "rustix", "serde", "thiserror"]),
    },
    // The server for metrics. It knows nothing of buses.
    Crate { name: "toroni-http", members: &["toroni-proactor"], foreign: Some(&["httparse"]) },
    // The network protocol, without a network: plain computation on bytes and times that it is given.
    Crate {
        name: "toroni-proto",
        // Its tests use the testkit.
        members: &["toroni-testkit"],
        foreign: Some(&["blake3", "thiserror"]),
    },
    // Sockets, the settings of a host, and the node. It does not know how loss is repaired.
    Crate {
        name: "toroni-net",
        // Its tests use the testkit, and what a hostile peer sends.
        members: &["toroni", "toroni-machines", "toroni-proto", "toroni-testkit"],
        foreign: Some(&["libc", "rustix", "strsim", "thiserror", "toml"]),
    },
    // One order over hosts. Only its module `commands` knows the bus.
    Crate {
        name: "toroni-sequencer",
        // Its tests use the testkit.
        members: &["toroni", "toroni-proto", "toroni-testkit"],
        foreign: Some(&["blake3", "crc32c", "openraft", "rustix", "thiserror", "tokio"]),
    },
    // Charts. It knows nothing of what they show. Its tests use the testkit.
    Crate {
        name: "toroni-chart",
        members: &["toroni-testkit"],
        foreign: Some(&["plotters", "thiserror"]),
    },
    // What the programs share. It knows nothing of buses. Its tests use the testkit.
    Crate { name: "toroni-process", members: &["toroni-testkit"], foreign: Some(&["rustix"]) },
    // Directories, programs under test and checks for the tests of all crates, so it depends on nothing that they test.
    Crate {
        name: "toroni-testkit",
        members: &["toroni-process"],
        foreign: Some(&["libc", "rustix"]),
    },
    Crate {
        name: "toroni-bench-harness",
        members: &["toroni", "toroni-chart", "toroni-proactor", "toroni-process", "toroni-testkit"],
        foreign: None,
    },
    // The bindings know the library as its users do, and add nothing of their own.
    // Their tests use the testkit.
    Crate {
        name: "toroni-c",
        members: &["toroni", "toroni-sequencer", "toroni-testkit"],
        foreign: Some(&[]),
    },
    // The same for a program without a bus.
    Crate {
        name: "toroni-net-c",
        members: &["toroni-net", "toroni-proto", "toroni-testkit"],
        foreign: Some(&[]),
    },
    Crate {
        name: "toroni-conformance",
        // From the system tests it has only what holds core dumps up.
        members: &["system-tests", "toroni", "toroni-testkit"],
        foreign: Some(&["rustix"]),
    },
    // Its tests build `toroni-node` as the system tests do.
    Crate {
        name: "toroni-bench",
        members: &[
            "system-tests",
            "toroni",
            "toroni-bench-harness",
            "toroni-chart",
            "toroni-machines",
            "toroni-net",
            "toroni-proto",
            "toroni-sequencer",
            "toroni-shell",
            "toroni-testkit",
        ],
        foreign: None,
    },
    // What programs on a terminal share. It knows no command.
    Crate { name: "toroni-shell", members: &["toroni", "toroni-process"], foreign: None },
    // MCAP files. They are read and written for commands, whose errors they have.
    Crate { name: "toroni-recording", members: &["toroni", "toroni-shell"], foreign: None },
    Crate {
        name: "toroni-cli",
        members: &[
            "toroni",
            "toroni-http",
            "toroni-proactor",
            "toroni-process",
            "toroni-recording",
            "toroni-shell",
            "toroni-testkit",
        ],
        foreign: None,
    },
    // Its tests run both programs, and find `toroni` as the system tests do.
    Crate {
        name: "toroni-node",
        members: &[
            "system-tests",
            "toroni",
            "toroni-chart",
            "toroni-http",
            "toroni-net",
            "toroni-process",
            "toroni-proto",
            "toroni-recording",
            "toroni-sequencer",
            "toroni-shell",
            "toroni-testkit",
        ],
        foreign: None,
    },
    // Runs the program as its users do, and uses the library for its own test processes.
    Crate {
        name: "system-tests",
        members: &[
            "toroni",
            "toroni-proactor",
            "toroni-proto",
            "toroni-sequencer",
            "toroni-testkit",
        ],
        foreign: None,
    },
    // Counts instructions of the library as users compile it. Another dependency could change what is compiled.
    Crate {
        name: "toroni-counts",
        members: &["toroni", "toroni-machines", "toroni-proactor"],
        foreign: Some(&[]),
    },
    // The protocol at work, for programs that measure it.
    Crate { name: "toroni-machines", members: &["toroni-proto"], foreign: Some(&[]) },
    // Does not use the library, so that a mistake of the library cannot be in the model too. The model's tests read
    // the list of crash points as text.
    Crate { name: "toroni-protocol-model", members: &[], foreign: None },
    // As the model.
    Crate { name: "toroni-oracle", members: &[], foreign: Some(&[]) },
    Crate {
        name: "toroni-fuzz-harness",
        members: &[
            "toroni",
            "toroni-cli",
            "toroni-net",
            "toroni-oracle",
            "toroni-proto",
            "toroni-recording",
            "toroni-sequencer",
            "toroni-shell",
            "toroni-testkit",
        ],
        foreign: None,
    },
    Crate { name: "xtask", members: &[], foreign: None },
];

/// The rules of the sources of one crate.
pub(super) struct Tree {
    /// From the root of the workspace.
    pub(super) folder: &'static str,
    /// The rules of all modules. If there are none, the modules may use one another.
    pub(super) layers: &'static [Layer],
    /// Modules that every layer may use.
    pub(super) bottom: &'static [&'static str],
    /// Modules that the tests of every layer may use.
    pub(super) in_tests: &'static [&'static str],
    pub(super) reserved: &'static [Reserved],
    /// Files that may contain `unsafe`. A name that ends in `/` is a whole folder. Tests are free.
    pub(super) unsafe_in: &'static [&'static str],
    pub(super) checked: Checked,
}

/// Files that calculate with numbers of others: out of shared memory, files, and networks. They deny clippy's
/// `arithmetic_side_effects`, so that all arithmetic in them says what happens where it would overflow. Tests are free.
#[derive(Clone, Copy)]
pub(super) struct Checked {
    /// The files that begin with that attribute, which holds in the modules below as well.
    pub(super) files: &'static [&'static str],
    /// A file that names one of these paths reads such numbers, so it must be one of the files.
    pub(super) readers: &'static [&'static str],
    /// Files that name such a path and need not be, and why.
    pub(super) except: &'static [(&'static str, &'static str)],
}

const NOTHING_CHECKED: Checked = Checked { files: &[], readers: &[], except: &[] };

/// The crates whose sources are checked.
pub(super) const TREES: &[Tree] = &[
    LIBRARY,
    Tree {
        folder: "crates/toroni-proto/src",
        layers: LAYERS_OF_PROTO,
        bottom: BOTTOM_OF_PROTO,
        in_tests: &[],
        reserved: &[],
        unsafe_in: &[],
        checked: CHECKED_IN_PROTO,
    },
    Tree {
        folder: "crates/toroni-net/src",
        layers: LAYERS_OF_NET,
        bottom: &["hook"],
        in_tests: &[],
        reserved: &[],
        unsafe_in: UNSAFE_IN_NET,
        checked: CHECKED_IN_NET,
    },
    Tree {
        folder: "crates/toroni-sequencer/src",
        layers: LAYERS_OF_SEQUENCER,
        bottom: &["bytes", "hook", "say"],
        // Entries have commands in them.
        // The tests of commands run a member, with its log.
        in_tests: &["batch", "entry", "log", "raft"],
        reserved: &[],
        unsafe_in: &[],
        checked: CHECKED_IN_SEQUENCER,
    },
    only_unsafe("crates/toroni-proactor/src", UNSAFE_IN_PROACTOR),
    only_unsafe("bindings/c/src", UNSAFE_IN_C),
    only_unsafe("bindings/c-net/src", &["lib.rs", "status.rs"]),
    Tree {
        checked: Checked {
            files: &["age.rs", "complete.rs", "exchange.rs", "failure.rs"],
            readers: READERS_OF_COUNTS,
            except: &[],
        },
        ..only_unsafe("crates/toroni-shell/src", &["ready.rs"])
    },
    Tree {
        checked: Checked {
            files: &["chunk.rs", "format.rs", "reader.rs", "wire.rs"],
            ..NOTHING_CHECKED
        },
        ..only_unsafe("crates/toroni-recording/src", &[])
    },
    Tree {
        layers: LAYERS_OF_CLI,
        // What several commands do.
        bottom: &["audience", "opening", "participants"],
        // The help says what the options do.
        in_tests: &["cli"],
        checked: CHECKED_IN_CLI,
        ..only_unsafe("crates/toroni-cli/src", &[])
    },
    Tree {
        layers: LAYERS_OF_NODE,
        checked: CHECKED_IN_NODE,
        ..only_unsafe("crates/toroni-node/src", &[])
    },
];

pub(super) const LIBRARY: Tree = Tree {
    folder: "crates/toroni/src",
    layers: LAYERS,
    bottom: BOTTOM,
    in_tests: IN_TESTS,
    reserved: RESERVED,
    unsafe_in: UNSAFE,
    checked: CHECKED,
};

const fn only_unsafe(folder: &'static str, unsafe_in: &'static [&'static str]) -> Tree {
    Tree {
        folder,
        layers: &[],
        bottom: &[],
        in_tests: &[],
        reserved: &[],
        unsafe_in,
        checked: NOTHING_CHECKED,
    }
}

/// What one module may use.
pub(super) struct Layer {
    /// Its path in the crate. One below another has rules of its own: `commands::record` need not be as `commands`.
    pub(super) module: &'static str,
    /// Modules of the crate, besides itself and [`Tree::bottom`]. `ring::layout` allows only that part of `ring`.
    pub(super) uses: &'static [&'static str],
    /// Foreign paths that it must not use, because it must not know that such things exist.
    pub(super) ignorant_of: &'static [&'static str],
}

/// Modules of the library that every layer may use.
const BOTTOM: &[&str] = &["sync", "error", "settings", "hook"];

/// Modules of the library that the tests of every layer may use: the layout, to set up memory that looks like a real ring, and
/// topics, to check that a reader leaves the subscriber's interest alone.
const IN_TESTS: &[&str] = &["ring::layout", "topic"];

/// Files, sockets, mapped memory, threads and clocks: everything that is more than plain computation.
const THE_SYSTEM: &[&str] = &[
    "rustix",
    "libc",
    "tokio",
    "std::fs",
    "std::io",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// The rules of all modules of the library. `lib.rs` has none: it exports from all of them.
const LAYERS: &[Layer] = &[
    Layer { module: "sync", uses: &[], ignorant_of: &[] },
    // An error of an operation says what is wrong with a topic's name, or what was lost.
    Layer {
        module: "error",
        uses: &["topic::TopicError", "topic::PatternError", "topic::Lost"],
        ignorant_of: &[],
    },
    Layer { module: "settings", uses: &[], ignorant_of: THE_SYSTEM },
    Layer { module: "hook", uses: &[], ignorant_of: &[] },
    // Names and patterns. It does not know where bytes are stored.
    Layer { module: "topic", uses: &[], ignorant_of: THE_SYSTEM },
    // Works on memory that it is given, so that loom and Miri can run it on plain memory.
    Layer { module: "ring", uses: &[], ignorant_of: THE_SYSTEM },
    // Creates and maps the files, so it knows their sizes and headers. It knows nothing of records.
    Layer { module: "shm", uses: &["ring::layout", "ring::position"], ignorant_of: &["tokio"] },
    // Waits and wakes. It does not know what a message is.
    Layer { module: "notify", uses: &[], ignorant_of: &["tokio"] },
    // The only module that joins the layers.
    Layer { module: "bus", uses: &["topic", "ring", "shm", "notify"], ignorant_of: &[] },
];

/// The rules of the program `toroni`. A command does not know the others.
const LAYERS_OF_CLI: &[Layer] = &[
    Layer { module: "audience", uses: &[], ignorant_of: &[] },
    Layer { module: "opening", uses: &[], ignorant_of: &[] },
    Layer { module: "participants", uses: &[], ignorant_of: &[] },
    // The list of commands, with what their help says.
    Layer { module: "cli", uses: &["commands", "exits", "parts"], ignorant_of: &[] },
    Layer { module: "exits", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::clean", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::clear", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::completions", uses: &[], ignorant_of: &[] },
    Layer {
        module: "commands::create",
        uses: &["commands::info::header_json", "settings"],
        ignorant_of: &[],
    },
    Layer { module: "commands::demo", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::doctor", uses: &[], ignorant_of: &[] },
    Layer {
        module: "commands::get",
        uses: &["commands::subscribe::options::Form"],
        ignorant_of: &[],
    },
    Layer { module: "commands::hz", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::info", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::list", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::man", uses: &["cli", "parts"], ignorant_of: &[] },
    Layer { module: "commands::metrics", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::publish", uses: &[], ignorant_of: &[] },
    Layer {
        module: "commands::record",
        uses: &["commands::subscribe::options::parse_start"],
        ignorant_of: &[],
    },
    Layer { module: "commands::remove", uses: &[], ignorant_of: &[] },
    Layer { module: "commands::replay", uses: &[], ignorant_of: &[] },
    Layer {
        module: "commands::subscribe",
        uses: &["commands::replay::options::By", "commands::replay::source"],
        ignorant_of: &[],
    },
    Layer { module: "commands::top", uses: &[], ignorant_of: &[] },
    Layer {
        module: "commands::topics",
        uses: &["commands::info::age", "commands::info::unix_seconds"],
        ignorant_of: &[],
    },
    // Chooses the command.
    Layer { module: "commands", uses: &["cli", "external"], ignorant_of: &[] },
    Layer { module: "external", uses: &["cli"], ignorant_of: &[] },
    Layer { module: "fuzz_entry", uses: &["cli", "commands"], ignorant_of: &[] },
    Layer { module: "main", uses: &[], ignorant_of: &[] },
    Layer { module: "parts", uses: &["external"], ignorant_of: &[] },
    Layer { module: "settings", uses: &[], ignorant_of: &[] },
];

/// The rules of the program `toroni-node`.
const LAYERS_OF_NODE: &[Layer] = &[
    Layer { module: "cli", uses: &["exits", "net", "node", "sequencer"], ignorant_of: &[] },
    Layer { module: "doctor", uses: &["net", "node"], ignorant_of: &[] },
    Layer { module: "exits", uses: &[], ignorant_of: &[] },
    Layer { module: "main", uses: &[], ignorant_of: &[] },
    Layer { module: "net", uses: &["node"], ignorant_of: &[] },
    Layer { module: "node", uses: &["doctor", "sequencer"], ignorant_of: &[] },
    Layer { module: "sequencer", uses: &["node"], ignorant_of: &[] },
];

/// Everything that is more than plain computation, the library, and collections whose order or memory is not fixed. The
/// protocol is given bytes, times and random numbers, so that a simulator can repeat a run.
const MORE_THAN_COMPUTATION: &[&str] = &[
    "rustix",
    "libc",
    "tokio",
    "toroni",
    "std::collections",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::sync",
    "std::thread",
    "std::time",
];

/// Modules of the protocol that every other one may use.
const BOTTOM_OF_PROTO: &[&str] = &["hook", "id", "past", "time"];

/// The rules of all modules of the protocol.
const LAYERS_OF_PROTO: &[Layer] = &[
    Layer {
        module: "arrivals",
        // Its tests turn the clocks of senders.
        uses: &[
            "audience",
            "batcher",
            "budget",
            "config",
            "legs",
            "random",
            "reassembly",
            "receiver",
            "wire",
        ],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    // Its tests fill a window.
    Layer {
        module: "audience",
        uses: &["batcher", "config", "window", "wire"],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    Layer {
        module: "batcher",
        uses: &["budget", "config", "window", "wire"],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    // Its tests know where a stream continues, as an inbox does.
    Layer {
        module: "bounded",
        uses: &[
            "arrivals",
            "audience",
            "batcher",
            "budget",
            "config",
            "limiter",
            "random",
            "reassembly",
            "receiver",
            "topics",
            "wire",
        ],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    Layer { module: "budget", uses: &["histogram"], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "config", uses: &["wire"], ignorant_of: MORE_THAN_COMPUTATION },
    // A test: compares the document with the code.
    Layer { module: "documents", uses: &["config", "wire"], ignorant_of: &[] },
    Layer {
        module: "gaps",
        uses: &["config", "random", "wire"],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    Layer { module: "echoes", uses: &["limiter", "wire"], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "legs", uses: &["wire"], ignorant_of: MORE_THAN_COMPUTATION },
    // Asks the environment for a mutant, where mutants are compiled.
    Layer { module: "hook", uses: &[], ignorant_of: &[] },
    Layer { module: "histogram", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "id", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "past", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "limiter", uses: &["config"], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "random", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    // Its tests receive from senders.
    Layer {
        module: "receiver",
        uses: &[
            "audience",
            "batcher",
            "budget",
            "config",
            "gaps",
            "legs",
            "random",
            "reassembly",
            "repair",
            "sender",
            "topics",
            "wire",
        ],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    // Its tests fill a window.
    Layer {
        module: "repair",
        uses: &["batcher", "config", "window", "wire"],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    Layer {
        module: "sender",
        uses: &[
            "audience", "batcher", "budget", "config", "echoes", "limiter", "repair", "topics",
            "window", "wire",
        ],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    Layer { module: "topics", uses: &["wire"], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "window", uses: &["wire"], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "wire", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    // Its tests pack what it puts together.
    Layer {
        module: "reassembly",
        uses: &["batcher", "config", "random", "window", "wire"],
        ignorant_of: MORE_THAN_COMPUTATION,
    },
    Layer { module: "time", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
];

/// The rules of all modules between the protocol and the network.
const LAYERS_OF_NET: &[Layer] = &[
    // Mutants.
    Layer { module: "hook", uses: &[], ignorant_of: THE_SYSTEM },
    // What a host has and how it is set up. It does not know why anyone asks.
    Layer { module: "host", uses: &[], ignorant_of: &["toroni", "toroni_proto"] },
    // Between the bus and the machines of the protocol. They do not know that there are sockets.
    Layer {
        module: "inlet",
        uses: &["losses", "now", "times"],
        ignorant_of: &["std::net", "rustix", "libc"],
    },
    Layer {
        module: "outlet",
        uses: &["drain", "times"],
        ignorant_of: &["std::net", "rustix", "libc"],
    },
    // How far what leaves a bus is sent before its end. It reads no clock.
    Layer { module: "drain", uses: &[], ignorant_of: &["std::net", "rustix", "libc"] },
    // What they count. They read no clock.
    Layer { module: "losses", uses: &[], ignorant_of: THE_SYSTEM },
    Layer { module: "times", uses: &[], ignorant_of: THE_SYSTEM },
    Layer {
        module: "node",
        uses: &[
            "drain",
            "host",
            "inlet",
            "losses",
            "membership",
            "now",
            "outlet",
            "socket",
            "times",
        ],
        ignorant_of: &[],
    },
    // The loop of a node without a bus.
    Layer {
        module: "direct",
        uses: &["membership", "node::link", "now"],
        ignorant_of: &["toroni"],
    },
    // The same, as a file describes it.
    Layer {
        module: "endpoint",
        uses: &["direct", "node", "node::config", "node::link", "node::start"],
        ignorant_of: &["toroni"],
    },
    // Tests of the network, beside the nodes.
    Layer { module: "latency", uses: &["host", "socket"], ignorant_of: &["toroni"] },
    Layer { module: "nodes", uses: &["host", "socket"], ignorant_of: &["toroni"] },
    Layer { module: "probe", uses: &["host", "now", "socket"], ignorant_of: &["toroni"] },
    Layer { module: "membership", uses: &["host", "socket"], ignorant_of: &["toroni"] },
    Layer { module: "now", uses: &[], ignorant_of: &["toroni"] },
    // Datagrams, whatever is in them.
    Layer { module: "socket", uses: &["host"], ignorant_of: &["toroni", "toroni_proto"] },
];

/// The rules of the modules of the sequencer.
const LAYERS_OF_SEQUENCER: &[Layer] = &[
    // Mutants.
    Layer { module: "hook", uses: &[], ignorant_of: THE_SYSTEM },
    Layer { module: "say", uses: &[], ignorant_of: &["tokio", "openraft"] },
    Layer { module: "bytes", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    Layer { module: "batch", uses: &[], ignorant_of: MORE_THAN_COMPUTATION },
    // What is stored and sent. It does not know where.
    Layer { module: "entry", uses: &["batch"], ignorant_of: THE_SYSTEM },
    // Files. It does not know what entries mean, or who agrees on them.
    Layer { module: "log", uses: &["entry"], ignorant_of: &["tokio", "openraft"] },
    // Every member and node must come to the same state.
    Layer { module: "machine", uses: &["batch"], ignorant_of: THE_SYSTEM },
    // Events by number, from a member's log to the bus of a host. It does not know how members agree.
    Layer {
        module: "feed",
        uses: &["batch", "entry", "log", "machine", "rpc"],
        ignorant_of: &["openraft"],
    },
    // The only module that knows openraft.
    Layer {
        module: "raft",
        uses: &["batch", "entry", "feed", "log", "machine", "rpc"],
        ignorant_of: &[],
    },
    // Messages. It does not know who agrees on what.
    Layer {
        module: "rpc",
        uses: &["batch", "entry", "machine"],
        ignorant_of: &["openraft", "toroni"],
    },
    // From the bus of a host to the leader. It does not know how members agree.
    Layer { module: "commands", uses: &["batch", "machine", "rpc"], ignorant_of: &["openraft"] },
];

/// Like [`UNSAFE`], for `crates/toroni-net/src`: system calls that take pointers, and that rustix does not have.
const UNSAFE_IN_NET: &[&str] = &[
    "host/clock.rs",
    "host/ethtool.rs",
    "node/scheduling.rs",
    "socket/batch.rs",
    "socket/options.rs",
];

/// Paths that only some files may use: loom could not follow them elsewhere.
pub(super) struct Reserved {
    pub(super) paths: &'static [&'static str],
    pub(super) only: &'static [&'static str],
}

/// Tests are free.
const RESERVED: &[Reserved] = &[Reserved {
    paths: &["std::sync::atomic", "core::sync::atomic", "loom"],
    // `rehearsal.rs` asks loom which thread of a model runs. `membarrier.rs` models an interrupt with
    // loom's locks. The others but the first use atomics for statics that no
    // model runs: loom's cannot be created in constants.
    only: &[
        "sync/mod.rs",
        "hook/environment.rs",
        "hook/rehearsal.rs",
        "shm/description.rs",
        "shm/fork.rs",
        "shm/guard.rs",
        "shm/registry.rs",
        "sync/membarrier.rs",
    ],
}];

/// Files of `crates/toroni/src` that may contain `unsafe`.
const UNSAFE: &[&str] =
    &["ring/bulk/", "ring/copy.rs", "ring/racy.rs", "shm/", "notify/", "sync/fences.rs"];

/// All atomics of the library but a few are words that other processes may write.
const CHECKED: Checked = Checked {
    files: &[
        "bus/inspect/stats.rs",
        "bus/local.rs",
        "bus/open/disk.rs",
        "bus/proactor/served.rs",
        "bus/publish/backpressure/mod.rs",
        "bus/publish/backpressure/space_backoff.rs",
        "bus/publish/claim.rs",
        "bus/publish/inlet.rs",
        "bus/publish/participant.rs",
        "bus/publish/publishing.rs",
        "bus/publish/retained.rs",
        "bus/publish/unfenced.rs",
        "bus/publish/wake.rs",
        "bus/subscribe/builder.rs",
        "bus/subscribe/claim.rs",
        "bus/subscribe/column.rs",
        "bus/subscribe/decision.rs",
        "bus/subscribe/freshness.rs",
        "bus/subscribe/hold.rs",
        "bus/subscribe/in_place.rs",
        "bus/subscribe/interrupter.rs",
        "bus/subscribe/passing.rs",
        "bus/subscribe/progress.rs",
        "bus/subscribe/reading.rs",
        "bus/subscribe/receive.rs",
        "bus/subscribe/retained/mod.rs",
        "bus/subscribe/retained/read.rs",
        "bus/subscribe/subscriber.rs",
        "notify/adaptive_fence.rs",
        "notify/datagram.rs",
        "notify/eventcount.rs",
        "notify/rows.rs",
        "ring/arrivals.rs",
        "ring/bounds.rs",
        "ring/gate.rs",
        "ring/memory.rs",
        "ring/position.rs",
        "ring/read_ahead.rs",
        "ring/reader.rs",
        "ring/run.rs",
        "ring/slots.rs",
        "ring/values.rs",
        "ring/wait_budget.rs",
        "ring/waits.rs",
        "shm/clean/mod.rs",
        "shm/description.rs",
        "shm/dumping.rs",
        "shm/header.rs",
        "shm/participants.rs",
        "shm/patterns.rs",
        "shm/regions.rs",
        "shm/segment.rs",
        "shm/snapshot.rs",
        "topic/loss.rs",
        "topic/table.rs",
    ],
    readers: &["crate::sync::Ordering"],
    except: &[
        ("hook/mod.rs", "tests alone reach it"),
        ("ring/copy.rs", "calculates with the lengths of slices"),
        ("ring/layout.rs", "calculates with the sizes of types"),
        ("ring/racy.rs", "calculates with the lengths of slices"),
        (
            "ring/writer.rs",
            "the owner of the lock checks the position once, when it takes the lock",
        ),
        ("shm/lock.rs", "calculates with times and slots of this process"),
        ("shm/mapping.rs", "calculates with sizes, which the header's checks bound"),
        ("sync/", "knows no numbers"),
    ],
};

/// Everything that comes from a network is read by a `Reader`. What it returns are types with bounds.
const CHECKED_IN_PROTO: Checked = Checked {
    files: &[
        "wire/chunk.rs",
        "wire/echo.rs",
        "wire/header.rs",
        "wire/nak.rs",
        "wire/ncf.rs",
        "wire/probe.rs",
        "wire/ranges.rs",
        "wire/session.rs",
        "wire/status.rs",
        "wire/tcp/mod.rs",
        "wire/topics.rs",
    ],
    readers: &["crate::wire::cursor::Reader"],
    except: &[
        ("wire/data.rs", "its numbers are types, whose bounds were checked"),
        ("wire/mod.rs", "joins the others"),
    ],
};

/// What was lost of a bus is any number.
const CHECKED_IN_NET: Checked = Checked {
    files: &[
        "direct.rs",
        "drain.rs",
        "endpoint.rs",
        "inlet/awaited.rs",
        "inlet/known.rs",
        "inlet/loss.rs",
        "inlet/stage.rs",
        "latency/missing.rs",
        "losses.rs",
        "node/kernel.rs",
        "node/report.rs",
        "node/lineage.rs",
        "node/state.rs",
        "node/tcp/feed.rs",
        "node/tcp/history.rs",
        "node/tcp/listener.rs",
        "node/tcp/streams.rs",
        "outlet.rs",
    ],
    readers: &["toroni::ReceiveError", "toroni::Lost"],
    except: &[("node/tcp/mod.rs", "only passes errors on")],
};

/// Files and messages are read by `Fields`.
const CHECKED_IN_SEQUENCER: Checked = Checked {
    files: &[
        "batch/mod.rs",
        "commands/buses.rs",
        "commands/courier.rs",
        "commands/echo.rs",
        "entry.rs",
        "feed/event_bus.rs",
        "feed/recheck.rs",
        "feed/vouch.rs",
        "feed/states.rs",
        "log/committed.rs",
        "log/state.rs",
        "machine/mod.rs",
        "raft/applied.rs",
        "rpc/fetch.rs",
        "rpc/frame.rs",
        "rpc/message.rs",
        "rpc/peer.rs",
        "rpc/status.rs",
    ],
    readers: &["crate::bytes::Fields"],
    except: &[(
        "log/segment.rs",
        "checks the greatest numbers of a log once, when it opens a segment",
    )],
};

/// What a bus says of itself, and what a member of a sequencer says. Recordings are read in one folder.
const READERS_OF_COUNTS: &[&str] = &[
    "toroni::ReceiveError",
    "toroni::BusStats",
    "toroni::SubscriberSlotStats",
    "toroni::TopicStats",
    "toroni_sequencer::rpc::Status",
];

const CHECKED_IN_NODE: Checked = Checked {
    files: &[
        "net/receive.rs",
        "sequencer/feed.rs",
        "sequencer/log.rs",
        "sequencer/send.rs",
        "sequencer/sources.rs",
        "sequencer/status.rs",
    ],
    readers: READERS_OF_COUNTS,
    except: &[],
};

const CHECKED_IN_CLI: Checked = Checked {
    files: &[
        "commands/demo/subscriber.rs",
        "commands/get.rs",
        "commands/hz/mod.rs",
        "commands/info.rs",
        "commands/metrics/collect.rs",
        "commands/metrics/names.rs",
        "commands/replay/mod.rs",
        "commands/subscribe/mod.rs",
        "commands/top/model.rs",
        "commands/top/nodes.rs",
        "commands/top/sample.rs",
        "commands/top/source.rs",
        "commands/topics.rs",
    ],
    readers: READERS_OF_COUNTS,
    except: &[
        ("commands/record/intake.rs", "counts what is in its own buffers"),
        ("commands/top/topics.rs", "counts what it has read itself"),
    ],
};

/// Like [`UNSAFE`], for `bindings/c/src`: the files that take pointers from C.
const UNSAFE_IN_C: &[&str] = &[
    "admin.rs",
    "arguments.rs",
    "bus.rs",
    "commands.rs",
    "exclusive.rs",
    "inlet.rs",
    "options.rs",
    "publisher.rs",
    "router.rs",
    "stats.rs",
    "status.rs",
    "subscriber.rs",
    "topics.rs",
    "values.rs",
];

/// Like [`UNSAFE`], for `crates/toroni-proactor/src`.
const UNSAFE_IN_PROACTOR: &[&str] = &[
    "buffer.rs",
    "fork.rs",
    "interrupt/descriptor.rs",
    "io/transfer.rs",
    "io/word.rs",
    "provider/posix/blocks.rs",
    "provider/attempt.rs",
    "provider/uring/",
    "operation/memory.rs",
    "sys.rs",
];
