//! A child's side of a run. A program that measures one transport is
//! `fn main() -> ExitCode { toroni_bench_harness::child::main::<MyTransport>() }`.

use crate::Failure;
use crate::experiment::bystanders;
use crate::gate::ChildGate;
use crate::job::{Answer, Job, Role};
use crate::registry::{self, Work};
use crate::topics::Topics;
use crate::transport::{About, Transport};
use crate::values::Values;
use crate::workload::values;
use serde::Serialize;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use toroni_process::process::die_with_parent;

/// Runs a child that knows one transport, from its start to its end.
#[must_use]
pub fn main<T: Transport>() -> ExitCode {
    main_of(T::NAME, registry::perform::<T>)
}

/// Runs a child that knows one channel with topics, from its start to its end.
#[must_use]
pub fn main_with_topics<C: Topics>() -> ExitCode {
    main_of(C::NAME, bystanders::perform::<C>)
}

/// Runs a child that knows one transport, which is also a channel with topics, from its start to its end.
#[must_use]
pub fn main_with_both<T: Transport + Topics>() -> ExitCode {
    main_of(<T as Transport>::NAME, |child| {
        if bystanders::is_wanted(child) {
            bystanders::perform::<T>(child)
        } else {
            registry::perform::<T>(child)
        }
    })
}

/// Runs a child that knows one channel that keeps values, from its start to its end.
#[must_use]
pub fn main_with_values<V: Values>() -> ExitCode {
    main_of(V::NAME, values::perform::<V>)
}

/// Runs a child that knows one transport, which is also a channel with topics and keeps values, from its start to its end.
#[must_use]
pub fn main_with_all<T: Transport + Topics + Values>() -> ExitCode {
    main_of(<T as Transport>::NAME, |child| {
        if values::is_wanted(child) {
            values::perform::<T>(child)
        } else if bystanders::is_wanted(child) {
            bystanders::perform::<T>(child)
        } else {
            registry::perform::<T>(child)
        }
    })
}

fn main_of(name: &str, perform: impl FnOnce(&mut Child) -> Result<(), Failure>) -> ExitCode {
    let outcome = run(|child| {
        let wanted = &child.job().transport;
        if wanted != name {
            return Err(Failure::new(format!("this program knows {name:?}, not {wanted:?}")));
        }
        perform(child)
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a child from its start to its end. `perform` does its work; usually it chooses the transport that the job names
/// and calls [`registry::perform`].
///
/// # Errors
/// Those of `perform`, after they were reported to the parent.
pub fn run(perform: impl FnOnce(&mut Child) -> Result<(), Failure>) -> Result<(), Failure> {
    Child::bind().and_then(|mut child| perform(&mut child)).inspect_err(|failure| {
        // If the parent cannot be told, it sees that this process ends.
        let _ = send(&Answer::Failed { text: failure.to_string() });
    })
}

/// A child and its connection to the parent.
pub struct Child {
    job: Job,
    input: io::StdinLock<'static>,
    gate: Option<ChildGate>,
}

impl Child {
    /// Reads the job, and makes the kernel end this process with its parent.
    fn bind() -> Result<Self, Failure> {
        let mut input = io::stdin().lock();
        let mut line = String::new();
        input.read_line(&mut line).map_err(Failure::of("read the job"))?;
        let job: Job = serde_json::from_str(&line).map_err(|error| {
            Failure::new(format!("{line:?} is no job ({error}): this is no command for people"))
        })?;
        die_with_parent(job.parent).map_err(Failure::of("bind this process to its parent"))?;
        let gate = match job.role {
            Role::Host => None,
            _ => Some(ChildGate::join(&job.directory)?),
        };
        Ok(Self { job, input, gate })
    }

    /// Returns the job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Returns the work of the job, or `None` if it is work of another kind.
    ///
    /// # Errors
    /// If its parameters are not those of this kind: the parent is another version.
    pub fn work<W: Work>(&self) -> Result<Option<W>, Failure> {
        if self.job.work != W::NAME {
            return Ok(None);
        }
        let failed = format!("understand the work {:?}", W::NAME);
        serde_json::from_value(self.job.parameters.clone()).map(Some).map_err(Failure::of(failed))
    }

    /// Reports that everything is prepared.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn ready(&mut self) -> Result<(), Failure> {
        send(&Answer::Ready { about: None })
    }

    /// Waits until the parent opens the gate, which it does when all children are ready.
    ///
    /// # Errors
    /// If the gate fails.
    pub fn wait_at_gate(&mut self) -> Result<(), Failure> {
        self.gate.as_ref().map_or(Ok(()), ChildGate::wait_at_gate)
    }

    /// Reports that this child is still working. Needed in runs that may take longer than
    /// [`Launch::silence_timeout`](crate::process_group::Launch::silence_timeout).
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn progress(&mut self, done: u64) -> Result<(), Failure> {
        send(&Answer::Progress { done })
    }

    /// Waits until all other children have finished: one that ended earlier would disturb the rest.
    ///
    /// # Errors
    /// If the finish fails.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.gate.as_mut().map_or(Ok(()), ChildGate::finish)
    }

    /// Reports the result of this child.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub fn result(&mut self, result: &impl Serialize) -> Result<(), Failure> {
        let value = serde_json::to_value(result).map_err(Failure::of("write the result"))?;
        send(&Answer::Result { value })
    }

    /// Reports what this host provides, and waits until the parent no longer needs it.
    ///
    /// # Errors
    /// If the parent does not listen.
    pub(crate) fn host(&mut self, about: About) -> Result<(), Failure> {
        send(&Answer::Ready { about: Some(about) })?;
        let mut rest = Vec::new();
        self.input.read_until(0, &mut rest).map_err(Failure::of("listen to the parent"))?;
        Ok(())
    }
}

fn send(answer: &Answer) -> Result<(), Failure> {
    let line = answer.line()?;
    let mut output = io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).map_err(Failure::of("answer"))
}
