//! The configuration: the paper's *AIO_Config*. The administrator of a machine chooses at run time which
//! engines a proactor runs on.

mod factory;
mod text;

pub(crate) use factory::create_engine;

use crate::operation::OperationMask;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

/// The configuration of a proactor: a primary processor, and optionally a secondary one for operations that the
/// primary does not support.
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
/// In a file, or in the variable `TORONI_PROACTOR`. The variable contains the name of a file, such text itself,
/// or one of the words `auto`, `combined`, `uring`, `epoll`, `poll` and `posix` ([`Config::from_environment`]):
///
/// ```
/// # let text = r#"
/// shards = 1
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
    /// `None` leaves the number to the proactor.
    shards: Option<usize>,
    /// 0 if the program has announced none.
    threads: usize,
}

impl Config {
    /// Returns a configuration with one processor.
    #[must_use]
    pub fn one(primary: ProcessorConfig) -> Self {
        Self { processors: vec![primary], shards: None, threads: 0 }
    }

    /// Returns a configuration with two processors. Each operation goes to the first one that supports it.
    #[must_use]
    pub fn two(primary: ProcessorConfig, secondary: ProcessorConfig) -> Self {
        Self { processors: vec![primary, secondary], shards: None, threads: 0 }
    }

    /// Returns the configuration with this number of shards: parts with a lock, processors and
    /// operations of their own, so that threads that serve different descriptors do not wait for each other.
    #[must_use]
    pub fn with_shards(self, shards: usize) -> Self {
        Self { shards: Some(shards), ..self }
    }

    /// Returns the configuration with the number of threads in which the program is going to handle events.
    ///
    /// A program knows its threads, and who configures it knows the machine. So the program calls this with any
    /// configuration. If that says nothing of shards, and its processors are shared ones of [`ProviderType::Auto`], each
    /// thread gets a shard, up to 64. Otherwise there is one shard, as in the paper.
    ///
    /// ```
    /// # use toroni_proactor::{Config, Proactor};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let proactor = Proactor::new(&Config::from_environment()?.with_threads(2))?;
    /// std::thread::scope(|scope| {
    ///     # let clock = proactor.clone();
    ///     # proactor.post(move || clock.stop())?;
    ///     scope.spawn(|| proactor.run());
    ///     proactor.run();
    ///     # Ok::<_, Box<dyn std::error::Error>>(())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Returns the number of shards that is asked for, if any. [`Effective::shards`] is the number that there are.
    #[must_use]
    pub fn shards(&self) -> Option<usize> {
        self.shards
    }

    /// Returns the number of threads that the program has announced ([`Config::with_threads`]), or 0.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the configurations of the processors, the primary one first.
    #[must_use]
    pub fn processors(&self) -> &[ProcessorConfig] {
        &self.processors
    }
}

impl Default for Config {
    /// Returns a configuration with one shared processor on the best engine that the kernel allows.
    fn default() -> Self {
        Self::one(ProcessorConfig::default())
    }
}

/// The configuration of one processor: the paper's member variables of *AIO_Config*.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ProcessorConfig {
    /// `processor_type_`: which thread waits. Default: shared.
    #[serde(rename = "type")]
    pub processor_type: ProcessorType,
    /// `provider_type_`: what carries the operations out. Default: auto.
    pub provider: ProviderType,
    /// `ws_type_`: how the leader waits. A value that does not fit the provider is replaced by the provider's
    /// own. Default: native.
    pub wait: WaitType,
    /// `ws_sig_num_`: the signal that reports finished operations, for wait strategies that use one. Default:
    /// a real-time signal that the C library leaves free.
    pub wait_signal: Option<i32>,
    /// `is_type_`: how the leader is interrupted. A value that does not fit the wait strategy is replaced by
    /// the strategy's own. Default: the pipe, or the wait strategy's own interrupt.
    pub interrupt: InterruptType,
    /// `is_sig_num_`: the number of the signal for [`InterruptType::Signal`]. If it has no handler, one that
    /// does nothing is installed. Default: a real-time signal that the C library leaves free.
    pub interrupt_signal: Option<i32>,
    /// `PVF_AIO_START_ANY_THREAD`: whether threads other than the leader start operations themselves, or
    /// leave that to the leader. Default: what suits the engine.
    pub start_in_any_thread: Option<bool>,
    /// `PVF_AIO_START_INTERRUPT_WAIT`: whether a start interrupts the leader. Valid only if operations start
    /// in any thread. Wait strategies that need it always do. Default: what suits the engine.
    pub start_interrupts_leader: Option<bool>,
    /// `max_num_aio_`: the maximum number of operations in progress, at least 1. Further ones are deferred
    /// until one is over. Default: the engine's maximum.
    pub max_operations: Option<usize>,
    /// The operations that this processor is used for, of those that its provider supports. In a file, a list
    /// such as `["read-file", "write-file"]`. With two processors, this divides the work. Default: all.
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

/// Which thread waits for the operations of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessorType {
    /// `PCT_SHARED`: the threads that handle events, in turns.
    Shared,
    /// `PCT_DEDICATED`: a thread of the processor's own.
    Dedicated,
}

/// What carries the operations out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderType {
    /// The best engine that the kernel allows; [`Effective::notes`] reports which one, and why.
    Auto,
    /// io_uring: the platform's native completions. Takes the place of `PVT_SUN`.
    Uring,
    /// `epoll` for descriptors that become ready, and io_uring for files and words in memory, in one wait.
    Combined,
    /// `PVT_SELECT`: waits until a descriptor is ready, and then transfers.
    Select,
    /// `PVT_POSIX`: the C library's `aio_read` and `aio_write`, for files only. Streams, datagrams and
    /// connections need a second processor.
    Posix,
}

/// How the leader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitType {
    /// `WST_NATIVE`: `ppoll` for [`ProviderType::Select`], io_uring's own wait for [`ProviderType::Uring`],
    /// `aio_suspend` for [`ProviderType::Posix`].
    Native,
    /// `epoll`; takes the place of `WST_DEV_POLL`. For [`ProviderType::Select`], and always for
    /// [`ProviderType::Combined`].
    Epoll,
    /// `WST_LINUX_RT`: real-time signals report that descriptors are ready. For [`ProviderType::Select`], and
    /// always dedicated.
    LinuxRt,
    /// `WST_SIGWAIT`: a real-time signal for each operation that is over. For [`ProviderType::Posix`].
    /// Threads that do not block the signal run a short handler, and their system calls may end with `EINTR`.
    Sigwait,
    /// `WST_SGI`: a call in a thread of its own for each operation that is over. For [`ProviderType::Posix`].
    Callback,
}

/// How the leader is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptType {
    /// `IST_DEFAULT`: the pipe, or the wait strategy's own interrupt.
    Default,
    /// `IST_PIPE`.
    Pipe,
    /// `IST_SIGNAL`.
    Signal,
    /// An eventfd. Not in the paper.
    Eventfd,
    /// `IST_SGI`: changes the word that [`WaitType::Callback`] waits at. The default there, and valid only
    /// there.
    Callback,
}

/// The configuration that a processor really has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The configuration, with a value in place of each default and of each value that did not fit.
    pub config: ProcessorConfig,
    /// The operations that the processor supports.
    pub operations: OperationMask,
    /// The number of shards of the proactor. Each has a processor like this, and a part of its `max_operations`.
    pub shards: usize,
    /// One sentence for each value that differs from the one in the given configuration.
    pub notes: Vec<String>,
}

impl fmt::Display for Effective {
    /// Writes `select × epoll × pipe, shared`, and the notes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessorConfig { provider, wait, interrupt, processor_type, .. } = &self.config;
        let text = format!("{provider:?} × {wait:?} × {interrupt:?}, {processor_type:?}");
        formatter.write_str(&text.to_lowercase())?;
        if self.shards > 1 {
            write!(formatter, ", {} shards", self.shards)?;
        }
        self.notes.iter().try_for_each(|note| write!(formatter, "; {note}"))
    }
}

/// The reason why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not the expected TOML.
    #[error("{origin} is not a valid configuration of a proactor: {message}")]
    Syntax {
        /// The file, or `TORONI_PROACTOR`.
        origin: String,
        /// The parser's message.
        message: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The configuration has no processor, or more than two.
    #[error(
        "a proactor has one or two processors, not {found}: write one or two tables [[processor]]"
    )]
    Processors {
        /// The number of processors.
        found: usize,
    },
    /// The number of shards is out of range.
    #[error(
        "a proactor has 1 to {most} shards, not {found}: set `shards` to the number of threads, or leave it out"
    )]
    Shards {
        /// The number that was asked for.
        found: usize,
        /// The maximum.
        most: usize,
    },
    /// The limit of operations is 0.
    #[error("`max-operations` is 0, so nothing could start: leave it out, or set it to 1 or more")]
    NoOperations,
    /// The signal is not queued.
    #[error(
        "signal {number} is not queued, so it cannot report operations: set `wait-signal` to a real-time signal, or leave it out"
    )]
    WaitSignal {
        /// The number of the signal.
        number: i32,
    },
    /// The program handles this signal itself.
    #[error(
        "the program has a handler for signal {number}, so the signal cannot report operations: set another `wait-signal`"
    )]
    TakenSignal {
        /// The number of the signal.
        number: i32,
    },
    /// Too many processors whose interrupts occupy threads of the C library.
    #[error(
        "{most} processors with `posix` are already interrupted by a pipe or an eventfd, and each occupies one of \
         the C library's 20 threads: set `interrupt = \"signal\"`, or `wait = \"callback\"`"
    )]
    HelperThreads {
        /// The maximum number of such processors.
        most: usize,
    },
    /// Too many processors that wait for signals or calls of the C library.
    #[error(
        "256 processors already wait with `sigwait` or `callback`: drop one, or set `wait = \"native\"`"
    )]
    Mailboxes,
    /// The signal cannot be handled.
    #[error(
        "signal {number} cannot interrupt a wait: set `interrupt-signal` to one from 1 to 64 that can be caught"
    )]
    Signal {
        /// The number of the signal.
        number: i32,
    },
}
