//! A child's side of a run. A program that measures one transport is
//! `fn main() -> ExitCode { toroni_bench_harness::child::main::<MyTransport>() }`.

use crate::Failure;
use crate::gate::ChildGate;
use crate::job::{Answer, Job, Role};
use crate::transport::{About, Transport};
use crate::workload;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

/// The whole life of a child that knows one transport.
#[must_use]
pub fn main<T: Transport>() -> ExitCode {
    let outcome = run(|child| {
        let wanted = &child.job().transport;
        if wanted != T::NAME {
            return Err(Failure::new(format!("this program knows {:?}, not {wanted:?}", T::NAME)));
        }
        workload::perform::<T>(child)
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The whole life of a child. `perform` chooses the transport by the name in the job and calls
/// [`workload::perform`].
///
/// # Errors
/// What `perform` says. The parent has been told then.
pub fn run(perform: impl FnOnce(&mut Child) -> Result<(), Failure>) -> Result<(), Failure> {
    Child::bind().and_then(|mut child| perform(&mut child)).inspect_err(|failure| {
        // A parent that cannot be told has other ways to know.
        let _ = say(&Answer::Failed { text: failure.to_string() });
    })
}

/// A child and its parent.
pub struct Child {
    job: Job,
    input: io::StdinLock<'static>,
    course: Option<ChildGate>,
}

impl Child {
    /// Binds this process to the life of its parent, and reads its job.
    ///
    /// # Errors
    /// If the parent is dead or says nothing that is a job.
    fn bind() -> Result<Self, Failure> {
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(Failure::of("bind this process to its parent"))?;
        let mut input = io::stdin().lock();
        let mut line = String::new();
        input.read_line(&mut line).map_err(Failure::of("read the job"))?;
        let job: Job = serde_json::from_str(&line).map_err(|error| {
            Failure::new(format!("{line:?} is no job ({error}): this is no command for people"))
        })?;
        // The parent may have died before the kernel was told.
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        if parent.and_then(|pid| u32::try_from(pid).ok()) != Some(job.parent) {
            return Err(Failure::new("the parent is dead"));
        }
        let course = match job.role {
            Role::Host => None,
            _ => Some(ChildGate::join(&job.directory)?),
        };
        Ok(Self { job, input, course })
    }

    /// What to do.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Says that everything is prepared.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn ready(&mut self) -> Result<(), Failure> {
        say(&Answer::Ready { about: None })
    }

    /// Waits until all are ready.
    ///
    /// # Errors
    /// If the gate fails.
    pub fn wait_at_gate(&mut self) -> Result<(), Failure> {
        self.course.as_ref().map_or(Ok(()), ChildGate::wait_at_gate)
    }

    /// Says that it still works. For runs that take longer than the parent's patience.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn progress(&mut self, done: u64) -> Result<(), Failure> {
        say(&Answer::Progress { done })
    }

    /// Waits until all others have finished, too: whoever ends earlier would disturb them.
    ///
    /// # Errors
    /// If the finish fails.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.course.as_mut().map_or(Ok(()), ChildGate::finish)
    }

    /// Says its result.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn result(&mut self, result: &impl Serialize) -> Result<(), Failure> {
        let value = serde_json::to_value(result).map_err(Failure::of("write the result"))?;
        say(&Answer::Result { value })
    }

    /// Says that it hosts, and waits until the parent needs it no more.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub(crate) fn host(&mut self, about: About) -> Result<(), Failure> {
        say(&Answer::Ready { about: Some(about) })?;
        let mut rest = Vec::new();
        self.input.read_until(0, &mut rest).map_err(Failure::of("listen to the parent"))?;
        Ok(())
    }
}

fn say(answer: &Answer) -> Result<(), Failure> {
    let line = answer.line()?;
    let mut output = io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).map_err(Failure::of("answer"))
}
