//! The factories: from a configuration to an engine, and to what was really chosen.

use super::{
    ConfigError, Effective, InterruptType, ProcessorConfig, ProcessorType, ProviderType, WaitType,
};
use crate::error::SetupError;
use crate::interrupt::{InterruptChoice, InterruptStrategy};
use crate::provider::select::Select;
use crate::provider::uring::{Ring, Uring};
use crate::provider::{Engine, Provider};
use crate::wait::{Epoll, LinuxRt, Ppoll, Readiness, WaitStrategy};
use rustix::io::Errno;
use std::sync::Arc;

/// `create_provider`, `create_wait_strategy` and `create_interrupt_strategy`.
pub(crate) fn create_engine(wanted: &ProcessorConfig) -> Result<(Engine, Effective), SetupError> {
    let mut chosen = Choice { config: wanted.clone(), notes: Vec::new() };
    let provider = chosen.provider()?;
    let wait = provider.wait_strategy();
    let interrupt = chosen.interrupt(&*wait)?;
    wait.init().map_err(SetupError::system("prepare the wait strategy"))?;
    effective_flags(&mut chosen, &*provider);
    let operations = provider.supported_operations().and(wanted.operations);
    let effective = Effective { config: chosen.config, operations, notes: chosen.notes };
    Ok((Engine { provider, wait, interrupt }, effective))
}

/// Choices on their way from what is wanted to what there is.
struct Choice {
    config: ProcessorConfig,
    notes: Vec<String>,
}

/// Reads back what the provider made of the two flags and of the limit.
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
                if let Some(uring) = self.auto_uring() {
                    return Ok(uring);
                }
                self.config.provider = ProviderType::Select;
                self.config.wait = WaitType::Epoll;
                self.select()
            }
            ProviderType::Select => self.select(),
            ProviderType::Uring => {
                self.native_only("uring");
                self.uring().map_err(SetupError::system(
                    "set up io_uring (sysctl kernel.io_uring_disabled, or the filter of a container, \
                     may forbid it: `auto` falls back to epoll)",
                ))
            }
            ProviderType::Posix => Err(not_available("the provider `posix`", "`select`")),
        }
    }

    /// io_uring if it was not ruled out by the wait strategy, and the kernel allows it.
    fn auto_uring(&mut self) -> Option<Box<dyn Provider>> {
        if self.config.wait != WaitType::Native {
            return None;
        }
        match self.uring() {
            Ok(uring) => {
                self.config.provider = ProviderType::Uring;
                Some(uring)
            }
            Err(errno) => {
                self.notes.push(format!("epoll, because the kernel refuses io_uring: {errno}"));
                None
            }
        }
    }

    /// The leader of a dedicated processor is the same always, so the ring may belong to it, unless the
    /// configuration wants starts in any thread.
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

    /// The provider has one wait strategy.
    fn native_only(&mut self, provider: &str) {
        if self.config.wait != WaitType::Native {
            let wanted = self.config.wait;
            self.notes
                .push(format!("{provider} has one wait strategy, native, and not {wanted:?}"));
            self.config.wait = WaitType::Native;
        }
    }

    fn select(&mut self) -> Result<Box<dyn Provider>, SetupError> {
        match self.config.wait {
            WaitType::Native | WaitType::Epoll => {}
            WaitType::LinuxRt => {
                if self.config.processor_type == ProcessorType::Shared {
                    self.notes.push("linux-rt is for dedicated processors: dedicated".to_owned());
                    self.config.processor_type = ProcessorType::Dedicated;
                }
                let number = self.config.wait_signal.unwrap_or(libc::SIGRTMIN() + 2);
                if !(libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) {
                    return Err(ConfigError::WaitSignal { number }.into());
                }
                self.config.wait_signal = Some(number);
            }
            WaitType::Sigwait | WaitType::Callback => {
                self.notes.push(format!(
                    "the wait strategy {:?} is for the provider `posix`: native in its place",
                    self.config.wait
                ));
                self.config.wait = WaitType::Native;
            }
        }
        let readiness: Arc<dyn Readiness> = match self.config.wait {
            WaitType::Epoll => {
                Arc::new(Epoll::new().map_err(SetupError::system("make an epoll descriptor"))?)
            }
            WaitType::LinuxRt => {
                Arc::new(LinuxRt::new(self.config.wait_signal.unwrap_or(libc::SIGRTMIN() + 2)))
            }
            _ => Arc::new(Ppoll::default()),
        };
        let any_thread = self.config.start_in_any_thread.unwrap_or(true);
        let interrupts = self.config.start_interrupts_leader.unwrap_or(false);
        Ok(Box::new(Select::new(readiness, any_thread, interrupts)))
    }

    /// `create_interrupt_strategy`.
    fn interrupt(
        &mut self,
        wait: &dyn WaitStrategy,
    ) -> Result<Box<dyn InterruptStrategy>, SetupError> {
        let wanted = match self.config.interrupt {
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
                    "the interrupt strategy `callback` belongs to the wait strategy of that name: \
                     pipe in its place"
                        .to_owned(),
                );
                InterruptChoice::Pipe
            }
        };
        let made = wait
            .create_interrupt_strategy(wanted)
            .map_err(SetupError::system("make the interrupt strategy"))?;
        if made.choice() != wanted {
            let (made, wanted) = (made.choice(), wanted);
            self.notes.push(format!("the wait is interrupted by {made:?}, and not by {wanted:?}"));
        }
        (self.config.interrupt, self.config.interrupt_signal) = match made.choice() {
            InterruptChoice::Pipe => (InterruptType::Pipe, None),
            InterruptChoice::Eventfd => (InterruptType::Eventfd, None),
            InterruptChoice::Signal(number) => (InterruptType::Signal, Some(number)),
        };
        Ok(made)
    }
}

fn not_available(what: &'static str, instead: &'static str) -> SetupError {
    ConfigError::NotAvailable { what, instead }.into()
}
