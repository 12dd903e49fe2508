//! The configuration: the paper's *AIO_Config*. Which engines a proactor runs on is the choice of whoever
//! administers the machine, at run time.

mod factory;
mod text;

pub(crate) use factory::create_engine;

use crate::operation::OperationMask;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

/// What a proactor is made of: a primary processor, and perhaps a secondary one for what the primary
/// does not support.
///
/// In a program:
///
/// ```
/// use toroni_proactor::{Config, ProcessorConfig, ProviderType, WaitType};
///
/// let config = Config::one(ProcessorConfig {
///     provider: ProviderType::Select,
///     wait: WaitType::Epoll,
///     ..ProcessorConfig::default()
/// });
/// # assert_eq!(config.processors().len(), 1);
/// ```
///
/// In a file, or in the variable `TORONI_PROACTOR`, which is the name of a file, such text itself, or one
/// of the words `auto`, `combined`, `uring`, `epoll`, `poll` and `posix` ([`Config::from_environment`]):
///
/// ```
/// # let text = r#"
/// [[processor]]
/// type = "shared"                  # or "dedicated"
/// provider = "select"              # or "auto", "combined", "uring", "posix"
/// wait = "epoll"                   # or "native", "linux-rt", "sigwait", "callback"
/// interrupt = "pipe"               # or "default", "eventfd", "signal", "callback"
/// start-in-any-thread = true
/// start-interrupts-leader = false
/// max-operations = 1024
/// # "#;
/// # assert_eq!(toroni_proactor::Config::parse(text).unwrap().processors().len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    processors: Vec<ProcessorConfig>,
}

impl Config {
    /// One processor.
    #[must_use]
    pub fn one(primary: ProcessorConfig) -> Self {
        Self { processors: vec![primary] }
    }

    /// Two: each operation goes to the first that supports it.
    #[must_use]
    pub fn two(primary: ProcessorConfig, secondary: ProcessorConfig) -> Self {
        Self { processors: vec![primary, secondary] }
    }

    /// The processors, the primary one first.
    #[must_use]
    pub fn processors(&self) -> &[ProcessorConfig] {
        &self.processors
    }
}

impl Default for Config {
    /// One shared processor on the best engine that the kernel allows.
    fn default() -> Self {
        Self::one(ProcessorConfig::default())
    }
}

/// One processor: the paper's member variables of *AIO_Config*.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ProcessorConfig {
    /// `processor_type_`. Default: shared.
    #[serde(rename = "type")]
    pub processor_type: ProcessorType,
    /// `provider_type_`. Default: auto.
    pub provider: ProviderType,
    /// `ws_type_`. One that does not fit the provider is replaced by its own. Default: native.
    pub wait: WaitType,
    /// `ws_sig_num_`: the signal of finished operations, for the wait strategies that use one. Default: a
    /// real-time signal that the C library leaves free.
    pub wait_signal: Option<i32>,
    /// `is_type_`. One that does not fit the wait strategy is replaced by its own. Default: the pipe, or what
    /// the wait strategy brings.
    pub interrupt: InterruptType,
    /// `is_sig_num_`: the signal of [`InterruptType::Signal`], any number; its handler, if there is none,
    /// becomes one that does nothing. Default: a real-time signal that the C library leaves free.
    pub interrupt_signal: Option<i32>,
    /// `PVF_AIO_START_ANY_THREAD`: whether threads other than the leader start operations themselves, or
    /// leave that to it. Default: what suits the engine.
    pub start_in_any_thread: Option<bool>,
    /// `PVF_AIO_START_INTERRUPT_WAIT`: whether a start interrupts the leader. Valid only if operations
    /// start in any thread; wait strategies that need it always do. Default: what suits the engine.
    pub start_interrupts_leader: Option<bool>,
    /// `max_num_aio_`: operations in progress at the same time; the others are deferred until one is over.
    /// At least 1. Default: as many as the engine takes.
    pub max_operations: Option<usize>,
    /// What it is used for, of what its provider supports; in a file a list such as
    /// `["read-file", "write-file"]`. With two processors, this divides the work. Default: everything.
    pub operations: OperationMask,
}

impl Default for ProcessorConfig {
    fn default() -> Self {
        Self {
            processor_type: ProcessorType::Shared,
            provider: ProviderType::Auto,
            wait: WaitType::Native,
            wait_signal: None,
            interrupt: InterruptType::Default,
            interrupt_signal: None,
            start_in_any_thread: None,
            start_interrupts_leader: None,
            max_operations: None,
            operations: OperationMask::ALL,
        }
    }
}

/// Whose thread waits for the operations of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessorType {
    /// `PCT_SHARED`: the threads that handle events, in turns.
    Shared,
    /// `PCT_DEDICATED`: one of its own.
    Dedicated,
}

/// What does the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderType {
    /// The best that the kernel allows; [`Effective::notes`] says which and why.
    Auto,
    /// io_uring: the platform's native completions, in the place of `PVT_SUN`.
    Uring,
    /// `epoll` for what becomes ready, and io_uring for files and for words in memory, in one wait.
    Combined,
    /// `PVT_SELECT`: readiness, and the transfer by the proactor.
    Select,
    /// `PVT_POSIX`: the C library's `aio_read` and so on, for files only: streams, datagrams and connections
    /// need a second processor.
    Posix,
}

/// How the leader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitType {
    /// `WST_NATIVE`: `ppoll` for [`ProviderType::Select`], io_uring's own for [`ProviderType::Uring`],
    /// `aio_suspend` for [`ProviderType::Posix`].
    Native,
    /// `epoll`, in the place of `WST_DEV_POLL`; for [`ProviderType::Select`], and always for
    /// [`ProviderType::Combined`].
    Epoll,
    /// `WST_LINUX_RT`: readiness by real-time signals; for [`ProviderType::Select`], and always dedicated.
    LinuxRt,
    /// `WST_SIGWAIT`: a real-time signal for each operation that is over; for [`ProviderType::Posix`]. Threads
    /// that do not block the signal run a short handler, and what they wait for may end with `EINTR`.
    Sigwait,
    /// `WST_SGI`: a call in a thread of its own for each operation that is over; for [`ProviderType::Posix`].
    Callback,
}

/// How the leader is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptType {
    /// `IST_DEFAULT`: the pipe, or what the wait strategy brings.
    Default,
    /// `IST_PIPE`.
    Pipe,
    /// `IST_SIGNAL`.
    Signal,
    /// An eventfd: an addition to the paper's.
    Eventfd,
    /// `IST_SGI`: what [`WaitType::Callback`] waits on; the default there, and only there.
    Callback,
}

/// What a processor really runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The configuration with every choice that was made in place of what was asked for, or of a default.
    pub config: ProcessorConfig,
    /// What it supports.
    pub operations: OperationMask,
    /// One sentence for each choice that differs from what was asked for.
    pub notes: Vec<String>,
}

impl fmt::Display for Effective {
    /// `select × epoll × pipe, shared`, and the notes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessorConfig { provider, wait, interrupt, processor_type, .. } = &self.config;
        let text = format!("{provider:?} × {wait:?} × {interrupt:?}, {processor_type:?}");
        formatter.write_str(&text.to_lowercase())?;
        self.notes.iter().try_for_each(|note| write!(formatter, "; {note}"))
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not the TOML that is expected.
    #[error("{origin} is no configuration of a proactor: {message}")]
    Syntax {
        /// The file, or `TORONI_PROACTOR`.
        origin: String,
        /// What the parser said.
        message: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There are none, or too many.
    #[error(
        "a proactor has one or two processors, not {found}: give one or two tables [[processor]]"
    )]
    Processors {
        /// How many there were.
        found: usize,
    },
    /// The limit is 0.
    #[error(
        "`max-operations` is 0, so that nothing could ever start: leave it out, or give 1 or more"
    )]
    NoOperations,
    /// A signal that is not queued.
    #[error("signal {number} cannot tell of changes: give a real-time signal, or none")]
    WaitSignal {
        /// Its number.
        number: i32,
    },
    /// The program handles that signal itself.
    #[error(
        "the program has a handler for signal {number}, so it cannot tell of operations: give another `wait-signal`"
    )]
    TakenSignal {
        /// Its number.
        number: i32,
    },
    /// Too many processors whose interrupts occupy threads of the C library.
    #[error(
        "{most} processors of `posix` are interrupted by a pipe or an eventfd already, and each occupies one of \
         the C library's 20 threads: give `interrupt = \"signal\"`, or `wait = \"callback\"`"
    )]
    HelperThreads {
        /// How many there may be.
        most: usize,
    },
    /// Too many processors that wait for signals or calls of the C library.
    #[error(
        "256 processors wait with `sigwait` or `callback` already: drop one, or give `wait = \"native\"`"
    )]
    Mailboxes,
    /// A signal that cannot be handled.
    #[error(
        "signal {number} cannot be used to interrupt: give one from 1 to 64 that can be caught"
    )]
    Signal {
        /// Its number.
        number: i32,
    },
}
