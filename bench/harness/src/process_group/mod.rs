//! The parent's side of a run: starts the children, gives each its job, opens the gate when all are ready, and collects
//! the results. Whatever happens, no child outlives the run.

mod child_process;

use crate::Failure;
use crate::gate::Gate;
use crate::job::{Answer, Job, Role};
use crate::registry::Work;
use crate::run_directory::{DEFAULT_ROOT, RunDirectoryOwner};
use crate::transport::{About, Setup};
use child_process::ChildProcess;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use toroni_process::lines::wait_readable;

/// A program that calls [`child::main`](crate::child::main) or [`child::run`](crate::child::run) when it is started
/// with these arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// All arguments.
    pub arguments: Vec<String>,
}

/// How children are started and watched.
#[derive(Clone)]
pub struct Launch<'a> {
    /// What each child runs.
    pub program: Program,
    /// Name of the transport.
    pub transport: String,
    /// Where run directories are created.
    pub root: PathBuf,
    /// If no child sends anything for this long, the run is given up. Every answer starts the time again, including
    /// [`Answer::Progress`]. Make it longer than any run without progress can take.
    pub silence_timeout: Duration,
    /// How long to wait after all children are ready before the gate opens: receivers fall asleep meanwhile.
    pub settle: Duration,
    /// Sees the progress, and can cancel.
    pub observer: &'a dyn Observer,
    /// Where children run.
    pub place: &'a dyn Place,
}

impl<'a> Launch<'a> {
    /// Returns the default: directories in `/dev/shm`, a silence timeout of two minutes, 5 ms to settle.
    #[must_use]
    pub fn new(program: Program, transport: &str, observer: &'a dyn Observer) -> Self {
        Self {
            program,
            transport: transport.to_owned(),
            root: PathBuf::from(DEFAULT_ROOT),
            silence_timeout: Duration::from_secs(120),
            settle: Duration::from_millis(5),
            observer,
            place: &Here,
        }
    }
}

/// Decides on which host each child runs.
pub trait Place {
    /// Returns a command that starts the program there.
    fn command(&self, role: Role, program: &Path) -> Command;
}

/// All children run on the host of their parent.
pub struct Here;

impl Place for Here {
    fn command(&self, _: Role, program: &Path) -> Command {
        Command::new(program)
    }
}

/// Watches a workload while it is measured.
pub trait Observer {
    /// Returns whether to give up. It is asked about ten times a second.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Learns how many steps of the whole workload are done.
    fn progress(&self, done: u64, total: u64) {
        let _ = (done, total);
    }
}

/// An observer that does nothing.
pub struct NoObserver;

impl Observer for NoObserver {}

/// When senders begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// All together, when all children are ready.
    AtTheGate,
    /// Each as soon as it has started; senders are started when the receivers are ready.
    WhenStarted,
}

/// The results of a run.
#[derive(Debug)]
pub struct Outcome<S, R> {
    /// What was measured.
    pub about: About,
    /// The result of each sender.
    pub senders: Vec<S>,
    /// The result of each receiver.
    pub receivers: Vec<R>,
}

/// Runs `work` once.
///
/// # Errors
/// If a child fails, dies, or all are silent for too long, or if the observer cancels. Even then all children are dead
/// and the directory is gone when this returns.
pub fn run<W: Work>(
    launch: &Launch<'_>,
    setup: &Setup,
    work: &W,
    begin: Begin,
) -> Result<Outcome<W::Sent, W::Received>, Failure> {
    // Dropped in the opposite order: first the children, then the directory.
    let owner = RunDirectoryOwner::create(&launch.root)?;
    let gate = Gate::create(owner.directory())?;
    let job = Job {
        parent: std::process::id(),
        transport: launch.transport.clone(),
        directory: owner.directory().clone(),
        setup: setup.clone(),
        role: Role::Host,
        work: W::NAME.to_owned(),
        parameters: serde_json::to_value(work).map_err(Failure::of("write a job"))?,
    };
    let mut group = ProcessGroup { launch, children: Vec::new() };
    group.start(&[Role::Host], &job)?;
    let about = group.wait_until_ready()?.ok_or_else(|| {
        Failure::new(
            "the host is ready, but did not describe what it hosts: is it another version?",
        )
    })?;

    let senders: Vec<Role> = (0..setup.senders).map(Role::Sender).collect();
    let receivers: Vec<Role> = (0..setup.receivers).map(Role::Receiver).collect();
    group.start(&receivers, &job)?;
    if begin == Begin::WhenStarted {
        group.wait_until_ready()?;
        group.settle()?;
        gate.open();
        group.start(&senders, &job)?;
    } else {
        group.start(&senders, &job)?;
        group.wait_until_ready()?;
        group.settle()?;
        gate.open();
    }
    let results = group.collect()?;
    group.leave()?;

    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (role, value) in results {
        match role {
            Role::Host => {}
            Role::Sender(_) => sent.push(parse(role, value)?),
            Role::Receiver(_) => received.push(parse(role, value)?),
        }
    }
    Ok(Outcome { about, senders: sent, receivers: received })
}

fn parse<T: DeserializeOwned>(role: Role, value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(Failure::of(format!("understand the result of {role}")))
}

/// How long a child may take to end after it has sent its result.
const LONGEST_END: Duration = Duration::from_secs(20);
/// How often the observer is asked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The children. They end when it is dropped.
struct ProcessGroup<'a> {
    launch: &'a Launch<'a>,
    children: Vec<ChildProcess>,
}

impl ProcessGroup<'_> {
    fn start(&mut self, roles: &[Role], job: &Job) -> Result<(), Failure> {
        for role in roles {
            self.check_cancelled()?;
            let job = Job { role: *role, ..job.clone() };
            self.children.push(ChildProcess::start(&self.launch.program, self.launch.place, &job)?);
        }
        Ok(())
    }

    /// Waits until all children that were started are ready. Returns what the host described, if it is among them.
    fn wait_until_ready(&mut self) -> Result<Option<About>, Failure> {
        let mut hosted = None;
        while self.children.iter().any(|child| !child.ready) {
            for (number, answer) in self.next("to be ready")? {
                match answer {
                    Answer::Ready { about } => {
                        self.children[number].ready = true;
                        hosted = about.or(hosted);
                    }
                    answer => return Err(self.out_of_turn(number, &answer)),
                }
            }
        }
        Ok(hosted)
    }

    /// Waits for the results of all children but the host, in the order in which they were started.
    fn collect(&mut self) -> Result<Vec<(Role, Value)>, Failure> {
        let mut results: Vec<Option<Value>> = self.children.iter().map(|_| None).collect();
        while self
            .children
            .iter()
            .zip(&results)
            .any(|(child, result)| child.is_at_work() && result.is_none())
        {
            for (number, answer) in self.next("to do its work")? {
                match answer {
                    Answer::Result { value } => {
                        self.children[number].done = true;
                        results[number] = Some(value);
                    }
                    Answer::Progress { .. } => {}
                    // A sender that was started after the gate had opened.
                    Answer::Ready { .. } if !self.children[number].ready => {
                        self.children[number].ready = true;
                    }
                    answer => return Err(self.out_of_turn(number, &answer)),
                }
            }
        }
        let roles = self.children.iter().map(|child| child.role);
        Ok(roles.zip(results).filter_map(|(role, result)| Some((role, result?))).collect())
    }

    /// Lets all children end, the host last, and fails if one of them ends badly.
    fn leave(mut self) -> Result<(), Failure> {
        let (hosts, others): (Vec<_>, Vec<_>) =
            self.children.drain(..).partition(|child| child.role == Role::Host);
        self.children = hosts;
        for mut child in others {
            child.leave(LONGEST_END)?;
        }
        self.children.iter_mut().try_for_each(|child| child.leave(LONGEST_END))
    }

    /// Waits for a while in which no child may send anything.
    fn settle(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.launch.settle;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some((number, answer)) = self.listen(left)?.first() {
                return Err(self.out_of_turn(*number, answer));
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Waits for the next answers, each with the index of its child.
    fn next(&mut self, what_for: &str) -> Result<Vec<(usize, Answer)>, Failure> {
        let deadline = Instant::now() + self.launch.silence_timeout;
        loop {
            let answers = self.listen(CHECK_INTERVAL)?;
            if !answers.is_empty() {
                return Ok(answers);
            }
            if Instant::now() >= deadline {
                return Err(self.silence(what_for));
            }
        }
    }

    /// Returns the answers that come within `time`, or within [`CHECK_INTERVAL`] if that is shorter. If one child fails
    /// or dies, the run fails.
    fn listen(&mut self, time: Duration) -> Result<Vec<(usize, Answer)>, Failure> {
        self.check_cancelled()?;
        let outputs = self.children.iter().filter_map(ChildProcess::output);
        wait_readable(outputs, time.min(CHECK_INTERVAL))
            .map_err(Failure::of("wait for children"))?;
        let mut answers = Vec::new();
        let mut ended = None;
        for (number, child) in self.children.iter_mut().enumerate() {
            let open = child.read(|answer| answers.push((number, answer)))?;
            if !open && !child.done {
                ended = Some(number);
            }
        }
        for (number, answer) in &answers {
            if let Answer::Failed { text } = answer {
                let role = self.children[*number].role;
                return Err(Failure::new(format!("{role} failed: {text}")));
            }
        }
        match ended {
            // What it sent before it died comes first: it may be its result.
            Some(number) if answers.is_empty() => Err(self.children[number].died(LONGEST_END)),
            _ => Ok(answers),
        }
    }

    fn check_cancelled(&self) -> Result<(), Failure> {
        if self.launch.observer.is_cancelled() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    fn silence(&self, what_for: &str) -> Failure {
        let preparing = self.children.iter().any(|child| !child.ready);
        let waiting: Vec<String> = self
            .children
            .iter()
            .filter(|child| if preparing { !child.ready } else { child.is_at_work() })
            .map(|child| format!("{} (pid {})", child.role, child.pid()))
            .collect();
        Failure::new(format!(
            "no child sent anything for {:?}; waited for {} {what_for}: is the machine overloaded, \
             or does the transport stand still?",
            self.launch.silence_timeout,
            waiting.join(", ")
        ))
    }

    fn out_of_turn(&self, number: usize, answer: &Answer) -> Failure {
        Failure::new(format!("{} sent {answer:?} out of turn", self.children[number].role))
    }
}

impl Drop for ProcessGroup<'_> {
    fn drop(&mut self) {
        // All first: no child continues alone while another is waited for.
        self.children.iter_mut().for_each(ChildProcess::kill);
    }
}
