//! Completion I/O for Linux whose engine the administrator chooses.
//!
//! A program starts operations, and its handlers are called when they are **over**, not when they could be
//! attempted. A configuration chooses what carries them out (io_uring, `epoll`, `ppoll`, the C library), how
//! threads wait, and how they are interrupted. A change needs no new build.
//!
//! ```
//! use toroni_proactor::{BufResult, Config, Proactor, Stream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let proactor = Proactor::new(&Config::from_environment()?)?;
//! # let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
//! let stream = Stream::new(&proactor, ours)?;
//! let peer = Stream::new(&proactor, theirs)?;
//!
//! // A handler is a closure. The buffer belongs to the operation until it is over, and comes back with the result.
//! let stopping = proactor.clone();
//! stream.read(Vec::with_capacity(4096), move |BufResult(result, buffer)| {
//!     match result {
//!         Ok(bytes) => println!("{bytes} bytes: {buffer:?}"),
//!         Err(error) => eprintln!("{error}"), // READ_STREAM on descriptor 7: Connection reset by peer
//!     }
//!     stopping.stop();
//! })?;
//! peer.write("hello", |_| {})?;
//!
//! // Any number of threads may call this.
//! proactor.run();
//!
//! // The same as futures, on this or any other executor.
//! # proactor.restart();
//! let BufResult(result, _) = proactor
//!     .block_on(async {
//!         let _sent = peer.write_async("again").await;
//!         stream.read_async(vec![0; 64]).await
//!     })
//!     .expect("the proactor is not stopped");
//! assert_eq!(result?, 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! The crate follows Alexander Libman's paper *New Proactor implementation for POSIX*, and keeps its words:
//! proactor, leader, follower, dispatcher, processor, provider, `start_aio`, `cancel_aio`, `handle_aio_events`.
//! The first table lists the paper's sections, the second its combinations of provider and wait strategy.
//!
//! | | the paper | here |
//! |---|---|---|
//! | 1 | `READ_STREAM` … `CONNECT`, asynchronous result | [`OperationKind`]; `operation/`: `Operation`, with the inputs of a start (`Request`) and the result (`Outcome`) |
//! | 2 | states of a result | `operation/state.rs`: each transition is asserted, and each operation knows its list |
//! | 3 | `START_ERROR` | at once: [`Refused`] returns buffer and handler; deferred: the handler receives the error |
//! | 4 | collections of results | `operation/list/`: intrusive; removes any member in one step, without allocation |
//! | 5 | cached results allocator, `create_and_start` | `operation/pool/`; `Inner::start` takes one lock for both |
//! | 6 | locking model, unlock points 1 to 3 | `lock.rs`: `unlocked` and `dispatch`, `follow`, `lead`; what needs no lock: `dispatcher/local_run.rs` |
//! | 7 | follower, leader, handler | `dispatcher/mod.rs`: the three counts |
//! | 8 | notification state | `dispatcher/mod.rs`, `NotificationState` |
//! | 9 | `post_completion`, levels | `dispatcher/mod.rs`, `Notify`, without `NOTIFY_FOLLOWER`; for users [`Proactor::post`] |
//! | 10 | `handle_events` | `dispatcher/handle_events.rs`; for users [`Proactor::handle_events`], [`Proactor::run`] |
//! | 11 | TODO: timers in the follower's wait | `dispatcher/timers.rs`; for users [`Proactor::timer`] |
//! | 12 | `start_aio`, `cancel_aio`, `handle_aio_events` | a file each in `processor/`, with the paper's numbers of steps; attempts of transfers, without the lock: `processor/attempt.rs` |
//! | 13 | shared and dedicated AIO_Processor | [`ProcessorType`]; `processor/dedicated.rs` |
//! | 14 | team-work of two AIO_Processors | [`Config::two`] |
//! | 15–17 | AIO_Provider | `provider/mod.rs` |
//! | 18–20 | AIO_Wait_Strategy | `wait/mod.rs` |
//! | 21 | AIO_Interrupt_Strategy | `interrupt/mod.rs`; constructors and `Drop` take the place of `init` and `fini` |
//! | 22 | Interrupt_Pipe_Strategy | `interrupt/descriptor.rs` |
//! | 23 | Interrupt_Signal_Strategy | `interrupt/signal.rs`; for waits without a mask `interrupt/insistent.rs` |
//! | 24 | (none) | eventfd: `interrupt/descriptor.rs` |
//! | 25 | AIO_Config | [`ProcessorConfig`], [`Effective`]; factories in `config/factory.rs`; `create_processor` is `Processor::new` in `processor/mod.rs` |
//! | | `processor_flages_`, which is reserved; `PCT_NONE`, `PVT_NONE` | (none): an absent processor is not in [`Config::processors`] |
//! | 26 | TODO: configuration from XML | [`Config::from_file`], [`Config::from_environment`] |
//! | | (none) | several shards, each of which is what the paper calls a proactor: [`Config::with_threads`], [`Config::with_shards`]; `shards/` |
//! | | (none) | waits for a descriptor of another library: [`Watch`]; at a word in shared memory: [`Word`] |
//!
//! | provider × wait strategy of the paper | here |
//! |---|---|
//! | `POSIX` × `NATIVE` (`POSIX_STD_Strategy`) | the C library's `aio_read` and so on, for files, and `aio_suspend`: `provider/posix/`, `wait/suspend.rs` |
//! | `POSIX` × `SIGWAIT` (`POSIX_SIG_Strategy`) | the same with `SIGEV_SIGNAL` and `sigtimedwait`: `wait/sigwait.rs` |
//! | `POSIX` × `SGI` (`POSIX_SGI_Strategy`) | the same with `SIGEV_THREAD`, and its own interrupt strategy: `wait/callback.rs`, `interrupt/condition.rs` |
//! | `SUN` × `NATIVE` (`SUN_Strategy`) | io_uring: `provider/uring/`, `wait/uring.rs` |
//! | (none) | epoll, and io_uring for files: `provider/combined.rs` |
//! | `SELECT` × `NATIVE` (`SELECT_Strategy`) | `ppoll`: `provider/select.rs`, `wait/ppoll/` |
//! | `SELECT` × `DEV_POLL` (`Dev_Poll_Strategy`) | `epoll`: `wait/epoll/` |
//! | `SELECT` × `LINUX_RT` (`LinuxRT_Strategy`) | real-time signals of readiness: `wait/linux_rt.rs` |

mod buffer;
mod config;
mod core;
mod dispatcher;
mod error;
mod fork;
mod hook;
mod inner;
mod interrupt;
mod io;
mod lock;
mod operation;
mod part;
mod proactor;
mod processor;
mod provider;
mod shards;
mod sys;
mod task;
#[cfg(test)]
mod tests;
mod wait;

// The unit tests share helpers with the integration tests, which name the crate.
#[cfg(test)]
extern crate self as toroni_proactor;

pub use buffer::{Append, BufResult, ReadBuffer, Rest, WriteBuffer};
pub use config::{
    Config, ConfigError, Effective, InterruptType, ProcessorConfig, ProcessorType, ProviderType,
    WaitType,
};
pub use error::{OperationError, Refused, SetupError, StartError};
pub use io::{Accepted, Datagram, Datagrams, File, Listener, Pending, Stream, Watch, Word};
pub use operation::{OperationKind, OperationMask};
pub use proactor::{OperationId, Proactor, WeakProactor};
