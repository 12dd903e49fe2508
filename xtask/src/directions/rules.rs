//! The rules: who may use whom. Read this file; the rest of this folder only applies it. A permission
//! that nothing uses is a mistake too, and found.
//!
//! ```text
//!   crates                 modules of crates/toroni/src
//!
//!   toroni-cli                          bus
//!      |  \ toroni-bench-harness          /     /     \     \
//!      toroni /              topic  ring    shm  notify
//!                                     ^------'            shm sees ring::layout
//!                                                         and ring::position only
//!                     settings error crash mutant sync    the bottom: everyone may use it;
//!                                                         error names topic's errors
//! ```

/// What one crate of the workspace may depend on.
pub(super) struct Crate {
    pub(super) name: &'static str,
    /// Members of the workspace that it may name, in any `[…dependencies]` table.
    pub(super) members: &'static [&'static str],
    /// Foreign crates that it may name in `[dependencies]`; `None` is any.
    pub(super) foreign: Option<&'static [&'static str]>,
}

/// Every member of the workspace stands here.
pub(super) const CRATES: &[Crate] = &[
    // Whoever uses the bus pays for each of these: a new one wants an entry in docs/decisions.md.
    // Its tests compare it with the oracle; the proactor is for those who want it, by a feature.
    Crate {
        name: "toroni",
        members: &["toroni-oracle", "toroni-proactor"],
        foreign: Some(&["libc", "rustix", "thiserror", "tokio", "loom"]),
    },
    // Completion I/O; it knows no messages.
    Crate {
        name: "toroni-proactor",
        members: &[],
        foreign: Some(&["basic-toml", "io-uring", "libc", "rustix", "serde", "thiserror"]),
    },
    // Children, directories and checks for everybody's tests, so it knows none of them.
    Crate { name: "toroni-testkit", members: &[], foreign: Some(&["rustix"]) },
    Crate { name: "toroni-bench-harness", members: &["toroni", "toroni-proactor"], foreign: None },
    // The bindings know the library as its users do, and add nothing of their own.
    Crate { name: "toroni-c", members: &["toroni"], foreign: Some(&[]) },
    Crate { name: "toroni-conformance", members: &["toroni"], foreign: Some(&["rustix"]) },
    Crate { name: "toroni-bench", members: &["toroni-bench-harness"], foreign: None },
    Crate { name: "toroni-cli", members: &["toroni", "toroni-bench-harness"], foreign: None },
    // Drives the program as its users do; the library is for what only a process can show.
    Crate { name: "system-tests", members: &["toroni", "toroni-proactor"], foreign: None },
    // Counts the library as its users compile it: another dependency could change what is compiled.
    Crate { name: "toroni-counts", members: &["toroni"], foreign: Some(&[]) },
    // Knows nothing of the library, so that its mistakes are its own. The model's tests read the list of
    // crash points as text.
    Crate { name: "toroni-protocol-model", members: &[], foreign: None },
    // As the model.
    Crate { name: "toroni-oracle", members: &[], foreign: Some(&[]) },
    Crate {
        name: "toroni-fuzz-harness",
        members: &["toroni", "toroni-cli", "toroni-oracle"],
        foreign: None,
    },
    Crate { name: "xtask", members: &[], foreign: None },
];

/// What one module directly below `crates/toroni/src` may name.
pub(super) struct Layer {
    pub(super) module: &'static str,
    /// Modules of this crate, besides itself and [`BOTTOM`]. `ring::layout` allows just that part.
    pub(super) uses: &'static [&'static str],
    /// Foreign paths that it must not name, because it does not know that such things exist.
    pub(super) ignorant_of: &'static [&'static str],
}

/// Modules that every layer may use.
pub(super) const BOTTOM: &[&str] = &["sync", "error", "settings", "crash", "mutant"];

/// What the tests of every layer may use too: the layout, to set up words that are laid out as the real
/// ones, and topics, for what a reader must not do to the interest above it.
pub(super) const IN_TESTS: &[&str] = &["ring::layout", "topic"];

/// Mapping memory, files, sockets, threads, clocks: the world outside of plain computation.
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

/// Every module of the library stands here; `lib.rs` is the front and may name all of them.
pub(super) const LAYERS: &[Layer] = &[
    Layer { module: "sync", uses: &[], ignorant_of: &[] },
    // Carries what was wrong with a name, so that a user sees one error per operation.
    Layer {
        module: "error",
        uses: &["topic::TopicError", "topic::PatternError"],
        ignorant_of: &[],
    },
    Layer { module: "settings", uses: &[], ignorant_of: THE_SYSTEM },
    Layer { module: "crash", uses: &[], ignorant_of: &[] },
    Layer { module: "mutant", uses: &[], ignorant_of: &[] },
    // Names and patterns: it does not know where bytes live.
    Layer { module: "topic", uses: &[], ignorant_of: THE_SYSTEM },
    // Works on memory that it is given: loom and Miri run it on plain memory.
    Layer { module: "ring", uses: &[], ignorant_of: THE_SYSTEM },
    // Makes and maps the files, so it must know their sizes and headers, and nothing of records.
    Layer { module: "shm", uses: &["ring::layout", "ring::position"], ignorant_of: &["tokio"] },
    // Wakes and waits: it does not know what a message is.
    Layer { module: "notify", uses: &[], ignorant_of: &["tokio"] },
    // The only one that joins layers.
    Layer { module: "bus", uses: &["topic", "ring", "shm", "notify"], ignorant_of: &[] },
];

/// Paths that only some files may name: elsewhere loom could not follow what happens.
pub(super) struct Reserved {
    pub(super) paths: &'static [&'static str],
    pub(super) only: &'static [&'static str],
}

/// See [`Reserved`]. Tests are free.
pub(super) const RESERVED: &[Reserved] = &[Reserved {
    paths: &["std::sync::atomic", "core::sync::atomic", "loom"],
    // All but the first hold statics that no model runs: loom's atomics cannot be made in constants.
    only: &[
        "sync/mod.rs",
        "crash.rs",
        "shm/description.rs",
        "shm/fork.rs",
        "shm/guard.rs",
        "shm/registry.rs",
    ],
}];

/// Files that may contain `unsafe`; a name that ends in `/` is a whole folder. Tests are free.
pub(super) const UNSAFE: &[&str] =
    &["ring/bulk/", "ring/copy.rs", "ring/racy.rs", "shm/", "notify/"];

/// As [`UNSAFE`], of `bindings/c/src`: what takes pointers from C.
pub(super) const UNSAFE_IN_C: &[&str] = &[
    "admin.rs",
    "arguments.rs",
    "bus.rs",
    "options.rs",
    "publisher.rs",
    "router.rs",
    "stats.rs",
    "status.rs",
    "subscriber.rs",
    "topics.rs",
];

/// As [`UNSAFE`], of `crates/toroni-proactor/src`.
pub(super) const UNSAFE_IN_PROACTOR: &[&str] = &[
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
