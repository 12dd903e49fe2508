//! The configuration: the paper's *AIO_Config*. Which engines a proactor runs on is the choice of whoever
//! administers the machine, at run time.

mod factory;
mod text;

pub(crate) use factory::create_engine;

use crate::record::OperationMask;
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
/// of the words `auto`, `uring`, `epoll` and `poll` ([`Config::from_environment`]):
///
/// ```
/// # let text = r#"
/// [[processor]]
/// type = "shared"                  # or "dedicated"
/// provider = "select"              # or "auto", "uring", "posix"
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
    /// `is_type_`. One that does not fit the wait strategy is replaced by its own. Default: the pipe.
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
    /// `PVT_SELECT`: readiness, and the transfer by the proactor.
    Select,
    /// `PVT_POSIX`: the C library's `aio_read` and so on, for files. Not in this version.
    Posix,
}

/// How the leader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitType {
    /// `WST_NATIVE`: `ppoll` for [`ProviderType::Select`], io_uring's own for [`ProviderType::Uring`].
    Native,
    /// `epoll`, in the place of `WST_DEV_POLL`; for [`ProviderType::Select`].
    Epoll,
    /// `WST_LINUX_RT`: readiness by real-time signals; for [`ProviderType::Select`], and always dedicated.
    LinuxRt,
    /// `WST_SIGWAIT`. Not in this version.
    Sigwait,
    /// `WST_SGI`: completion by call of a function. Not in this version.
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
    /// `IST_SGI`: the condition that the wait strategy waits on. Not in this version.
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
    /// An engine that this version does not have.
    #[error("{what} is not in this version of toroni-proactor: take {instead}")]
    NotAvailable {
        /// The value that was asked for.
        what: &'static str,
        /// What is there.
        instead: &'static str,
    },
    /// A signal that is not queued.
    #[error("signal {number} cannot tell of changes: give a real-time signal, or none")]
    WaitSignal {
        /// Its number.
        number: i32,
    },
    /// A signal that cannot be handled.
    #[error(
        "signal {number} cannot be used to interrupt: give one from 1 to 64 that can be caught"
    )]
    Signal {
        /// Its number.
        number: i32,
    },
}
