//! The factories: from a configuration to an engine, and to the configuration that it really has.

use super::{
    Config, ConfigError, Effective, InterruptType, ProcessorConfig, ProcessorType, ProviderType,
    WaitType,
};
use crate::error::SetupError;
use crate::interrupt::{HelperThread, InterruptChoice, InterruptStrategy};
use crate::provider::combined::Combined;
use crate::provider::posix::{Blocks, Posix};
use crate::provider::select::Select;
use crate::provider::uring::{Ring, Uring};
use crate::provider::{Engine, Provider};
use crate::wait::{
    AioWaitStrategy, Callback, Epoll, LinuxRt, Mailbox, Ppoll, Readiness, Sigwait, Suspend,
    WaitStrategy,
};
use rustix::io::Errno;
use std::sync::Arc;

/// The action that failed if the kernel refuses io_uring.
const RING_REFUSED: &str = "set up io_uring (sysctl kernel.io_uring_disabled, or the filter of a container, may \
                            forbid it: `auto` falls back to epoll)";

/// The action that failed if the kernel refuses epoll.
const NO_EPOLL: &str = "make an epoll descriptor";

/// Each shard has descriptors of its own.
const MOST_CHOSEN: usize = 64;

/// `create_provider`, `create_wait_strategy` and `create_interrupt_strategy`.
pub(crate) fn create_engine(wanted: &ProcessorConfig) -> Result<(Engine, Effective), SetupError> {
    let mut chosen = Choice { config: wanted.clone(), notes: Vec::new() };
    let provider = chosen.provider()?;
    let wait = provider.wait_strategy();
    let interrupt = chosen.interrupt(&*wait)?;
    match (wait.init(), chosen.config.wait_signal) {
        (Err(Errno::BUSY), Some(number)) => return Err(ConfigError::TakenSignal { number }.into()),
        (done, _) => done.map_err(SetupError::system("prepare the wait strategy"))?,
    }
    effective_flags(&mut chosen, &*provider);
    let operations = provider.supported_operations().and(wanted.operations);
    let effective = Effective { config: chosen.config, operations, shards: 1, notes: chosen.notes };
    Ok((Engine { provider, wait, interrupt }, effective))
}

impl Config {
    /// Returns how many shards the proactor has, and why, unless that is the number that is asked for.
    pub(crate) fn effective_shards(&self) -> (usize, Option<String>) {
        let Some(wanted) = self.shards else { return self.chosen_shards() };
        let processors = || self.processors.iter();
        if processors().any(|processor| processor.provider == ProviderType::Posix) {
            let why = "one shard: the C library has one pool of threads for all of them";
            return (1, (wanted > 1).then(|| why.to_owned()));
        }
        if processors().any(|processor| processor.wait == WaitType::LinuxRt) {
            let why = "one shard: all real-time signals of a process go through one queue";
            return (1, (wanted > 1).then(|| why.to_owned()));
        }
        (wanted, None)
    }

    /// Returns how many shards suit the program, and why. An engine that was chosen by its name is the paper's.
    fn chosen_shards(&self) -> (usize, Option<String>) {
        let is_free = |processor: &ProcessorConfig| {
            processor.provider == ProviderType::Auto
                && processor.processor_type == ProcessorType::Shared
                && processor.wait != WaitType::LinuxRt
        };
        let threads = self.threads();
        if threads < 2 || !self.processors.iter().all(is_free) {
            return (1, None);
        }
        match threads.min(MOST_CHOSEN) {
            shards if shards < threads => {
                (shards, Some(format!("{shards} shards are enough for {threads} threads")))
            }
            shards => (shards, Some("a shard for each thread of the program".to_owned())),
        }
    }
}

/// A configuration whose values are being replaced by what is available.
struct Choice {
    config: ProcessorConfig,
    notes: Vec<String>,
}

/// Reads back the two flags and the limit that the provider has.
fn effective_flags(chosen: &mut Choice, provider: &dyn Provider) {
    let (any, interrupts) =
        (provider.can_start_in_any_thread(), provider.should_start_interrupt_leader());
    let config = &mut chosen.config;
    if config.start_in_any_thread.is_some_and(|wanted| wanted != any) {
        chosen.notes.push(format!("the engine starts in any thread: {any}"));
    }
    if config.start_interrupts_leader.is_some_and(|wanted| wanted != interrupts) {
        chosen.notes.push(format!("a start interrupts the leader: {interrupts}"));
    }
    config.start_in_any_thread = Some(any);
    config.start_interrupts_leader = Some(interrupts);
    let most = provider.max_operations();
    config.max_operations = Some(config.max_operations.map_or(most, |wanted| wanted.min(most)));
}

impl Choice {
    /// `create_provider`.
    fn provider(&mut self) -> Result<Box<dyn Provider>, SetupError> {
        match self.config.provider {
            ProviderType::Auto => {
                let combined = self.auto_combined()?;
                self.epoll_only("auto");
                match combined {
                    Some(combined) => Ok(combined),
                    None => self.select(),
                }
            }
            ProviderType::Combined => {
                self.epoll_only("combined");
                self.combined()?.map_err(SetupError::system(RING_REFUSED))
            }
            ProviderType::Select => self.select(),
            ProviderType::Uring => {
                self.native_only("uring");
                self.uring().map_err(SetupError::system(RING_REFUSED))
            }
            ProviderType::Posix => self.posix(),
        }
    }

    /// Includes io_uring for files, unless the wait strategy rules it out or the kernel refuses it.
    fn auto_combined(&mut self) -> Result<Option<Box<dyn Provider>>, SetupError> {
        self.config.provider = ProviderType::Select;
        if self.config.wait != WaitType::Native {
            return Ok(None);
        }
        Ok(match self.combined()? {
            Ok(combined) => {
                self.config.provider = ProviderType::Combined;
                Some(combined)
            }
            Err(errno) => {
                self.notes.push(format!(
                    "epoll alone, and files in the thread that starts the operation, because the kernel \
                     refuses io_uring: {errno}"
                ));
                None
            }
        })
    }

    /// Creates the combined provider. The inner error is the ring's.
    fn combined(&mut self) -> Result<Result<Box<dyn Provider>, Errno>, SetupError> {
        let ring = match Ring::new(false) {
            Ok(ring) => Arc::new(ring),
            Err(errno) => return Ok(Err(errno)),
        };
        let any_thread = self.config.start_in_any_thread.unwrap_or(true);
        let interrupts = self.config.start_interrupts_leader.unwrap_or(false);
        let epoll = Epoll::new().map_err(SetupError::system(NO_EPOLL))?;
        let combined = Combined::new(Arc::new(epoll), ring, any_thread, interrupts);
        Ok(Ok(Box::new(combined.map_err(SetupError::system(NO_EPOLL))?)))
    }

    /// Creates the io_uring provider. A dedicated processor always has the same leader, so the ring may
    /// belong to it, unless the configuration wants starts in any thread.
    fn uring(&mut self) -> Result<Box<dyn Provider>, Errno> {
        let is_dedicated = self.config.processor_type == ProcessorType::Dedicated;
        let any_thread = self.config.start_in_any_thread.unwrap_or(!is_dedicated);
        let interrupts = self.config.start_interrupts_leader.unwrap_or(false);
        let ring = match Ring::new(is_dedicated && !any_thread) {
            // Before Linux 6.1 no ring belongs to a thread.
            Err(Errno::INVAL) => Ring::new(false)?,
            other => other?,
        };
        Ok(Box::new(Uring::new(Arc::new(ring), any_thread, interrupts)))
    }

    fn epoll_only(&mut self, provider: &str) {
        if !matches!(self.config.wait, WaitType::Native | WaitType::Epoll) {
            let wanted = self.config.wait;
            self.notes.push(format!("{provider} waits with epoll, not with {wanted:?}"));
        }
        self.config.wait = WaitType::Epoll;
    }

    /// Replaces the wait strategy for a provider that has only one.
    fn native_only(&mut self, provider: &str) {
        if self.config.wait != WaitType::Native {
            let wanted = self.config.wait;
            self.notes.push(format!("{provider} has one wait strategy, native, not {wanted:?}"));
            self.config.wait = WaitType::Native;
        }
    }

    fn select(&mut self) -> Result<Box<dyn Provider>, SetupError> {
        match self.config.wait {
            WaitType::Native | WaitType::Epoll => {}
            WaitType::LinuxRt => {
                if self.config.processor_type == ProcessorType::Shared {
                    self.notes.push(
                        "linux-rt requires a dedicated processor: dedicated instead of shared"
                            .to_owned(),
                    );
                    self.config.processor_type = ProcessorType::Dedicated;
                }
                self.wait_signal(libc::SIGRTMIN() + 2)?;
            }
            WaitType::Sigwait | WaitType::Callback => {
                self.notes.push(format!(
                    "the wait strategy {:?} requires the provider `posix`: native instead",
                    self.config.wait
                ));
                self.config.wait = WaitType::Native;
            }
        }
        let readiness: Arc<dyn Readiness> = match self.config.wait {
            WaitType::Epoll => Arc::new(Epoll::new().map_err(SetupError::system(NO_EPOLL))?),
            WaitType::LinuxRt => Arc::new(LinuxRt::new(self.wait_signal(libc::SIGRTMIN() + 2)?)),
            _ => Arc::new(Ppoll::default()),
        };
        let any_thread = self.config.start_in_any_thread.unwrap_or(true);
        let interrupts = self.config.start_interrupts_leader.unwrap_or(false);
        Ok(Box::new(Select::new(readiness, any_thread, interrupts)))
    }

    fn posix(&mut self) -> Result<Box<dyn Provider>, SetupError> {
        if matches!(self.config.wait, WaitType::Epoll | WaitType::LinuxRt) {
            self.notes.push(format!(
                "the wait strategy {:?} requires the provider `select`: native instead",
                self.config.wait
            ));
            self.config.wait = WaitType::Native;
        }
        let mailbox = || Mailbox::take().ok_or(ConfigError::Mailboxes);
        let blocks = Arc::new(Blocks::default());
        let wait: Arc<dyn AioWaitStrategy> = match self.config.wait {
            WaitType::Sigwait => {
                // Differs from linux-rt's, because both may be in one proactor.
                Arc::new(Sigwait::new(self.wait_signal(libc::SIGRTMIN() + 3)?, mailbox()?))
            }
            WaitType::Callback => Arc::new(Callback::new(mailbox()?)),
            _ => Arc::new(Suspend::new(Arc::clone(&blocks))),
        };
        let any_thread = self.config.start_in_any_thread.unwrap_or(true);
        let interrupts = self.config.start_interrupts_leader.unwrap_or(false);
        Ok(Box::new(Posix::new(blocks, wait, any_thread, interrupts)))
    }

    /// Returns the signal of the wait strategy, which must be one that is queued.
    fn wait_signal(&mut self, default: i32) -> Result<i32, ConfigError> {
        let number = self.config.wait_signal.unwrap_or(default);
        if !(libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) {
            return Err(ConfigError::WaitSignal { number });
        }
        self.config.wait_signal = Some(number);
        Ok(number)
    }

    /// `create_interrupt_strategy`.
    fn interrupt(
        &mut self,
        wait: &dyn WaitStrategy,
    ) -> Result<Box<dyn InterruptStrategy>, SetupError> {
        let waits_for_calls = self.config.wait == WaitType::Callback;
        let wanted = match self.config.interrupt {
            InterruptType::Default | InterruptType::Callback if waits_for_calls => {
                InterruptChoice::Callback
            }
            InterruptType::Default | InterruptType::Pipe => InterruptChoice::Pipe,
            InterruptType::Eventfd => InterruptChoice::Eventfd,
            InterruptType::Signal => {
                // The C library keeps the first real-time signals for itself.
                let number = self.config.interrupt_signal.unwrap_or(libc::SIGRTMIN() + 1);
                if !(1..=libc::SIGRTMAX()).contains(&number)
                    || matches!(number, libc::SIGKILL | libc::SIGSTOP)
                {
                    return Err(ConfigError::Signal { number }.into());
                }
                InterruptChoice::Signal(number)
            }
            InterruptType::Callback => {
                self.notes.push(
                    "the interrupt strategy `callback` requires the wait strategy `callback`: pipe \
                     instead"
                        .to_owned(),
                );
                InterruptChoice::Pipe
            }
        };
        let made = match wait.create_interrupt_strategy(wanted) {
            Err(Errno::USERS) => {
                return Err(ConfigError::HelperThreads { most: HelperThread::MOST }.into());
            }
            made => made.map_err(SetupError::system("make the interrupt strategy"))?,
        };
        if made.choice() != wanted {
            let (made, wanted) = (made.choice(), wanted);
            self.notes.push(format!("the wait is interrupted by {made:?}, not by {wanted:?}"));
        }
        (self.config.interrupt, self.config.interrupt_signal) = match made.choice() {
            InterruptChoice::Pipe => (InterruptType::Pipe, None),
            InterruptChoice::Eventfd => (InterruptType::Eventfd, None),
            InterruptChoice::Callback => (InterruptType::Callback, None),
            InterruptChoice::Signal(number) => (InterruptType::Signal, Some(number)),
        };
        Ok(made)
    }
}
