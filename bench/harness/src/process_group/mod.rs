//! The parent's side of a run: starts the children, gives each its job, opens the gate when all are
//! ready, collects results. None of them outlives it, whatever happens.

mod child_process;

use crate::Failure;
use crate::gate::Gate;
use crate::job::{Answer, Job, Role};
use crate::run_directory::{DEFAULT_ROOT, RunDirectoryOwner};
use crate::transport::{About, Setup};
use crate::workload::Work;
use child_process::ChildProcess;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A program whose `main` ends in [`child::main`](crate::child::main) or
/// [`child::run`](crate::child::run) when it is started with these arguments.
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
    /// Which transport, by its name.
    pub transport: String,
    /// Where directories of runs are made.
    pub root: PathBuf,
    /// The longest silence of all children before the run is given up. Each answer, progress included,
    /// starts it anew; choose it longer than a run without progress can take.
    pub patience: Duration,
    /// How long to wait between "all are ready" and the gate: receivers go to sleep meanwhile.
    pub settle: Duration,
    /// Who looks on.
    pub observer: &'a dyn Observer,
}

impl<'a> Launch<'a> {
    /// With directories in `/dev/shm`, two minutes of patience and 5 ms to settle.
    #[must_use]
    pub fn new(program: Program, transport: &str, observer: &'a dyn Observer) -> Self {
        Self {
            program,
            transport: transport.to_owned(),
            root: PathBuf::from(DEFAULT_ROOT),
            patience: Duration::from_secs(120),
            settle: Duration::from_millis(5),
            observer,
        }
    }
}

/// Who looks on while runs go on.
pub trait Observer {
    /// Asked about ten times a second: whether to give up.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// So many of so many steps of the whole workload are done.
    fn progress(&self, done: u64, total: u64) {
        let _ = (done, total);
    }
}

/// Nobody looks on.
pub struct NoObserver;

impl Observer for NoObserver {}

/// When senders begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// All together, when everybody is ready.
    AtTheGate,
    /// Each as soon as it has started; they are started when the receivers are ready.
    WhenStarted,
}

/// What the children of a run said.
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
/// If a child fails, dies or is silent for too long, or the observer cancels. All children are dead and
/// the directory is gone then, too.
pub fn run<S: DeserializeOwned, R: DeserializeOwned>(
    launch: &Launch<'_>,
    setup: &Setup,
    work: &Work,
    begin: Begin,
) -> Result<Outcome<S, R>, Failure> {
    // Dropped in the opposite order: first the children, then the directory.
    let owner = RunDirectoryOwner::create(&launch.root)?;
    let gate = Gate::make(owner.directory())?;
    let job = Job {
        parent: std::process::id(),
        transport: launch.transport.clone(),
        directory: owner.directory().clone(),
        setup: setup.clone(),
        role: Role::Host,
        work: work.clone(),
    };
    let mut family = ProcessGroup { launch, members: Vec::new() };
    family.start(&[Role::Host], &job)?;
    let about = family.wait_until_ready()?.ok_or_else(|| {
        Failure::new("the host is ready and did not say what it hosts: is it another version?")
    })?;

    let senders: Vec<Role> = (0..setup.senders).map(Role::Sender).collect();
    let receivers: Vec<Role> = (0..setup.receivers).map(Role::Receiver).collect();
    family.start(&receivers, &job)?;
    if begin == Begin::WhenStarted {
        family.wait_until_ready()?;
        family.settle()?;
        gate.open();
        family.start(&senders, &job)?;
    } else {
        family.start(&senders, &job)?;
        family.wait_until_ready()?;
        family.settle()?;
        gate.open();
    }
    let results = family.collect()?;
    family.leave()?;

    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (role, value) in results {
        let failed = format!("understand the result of {role}");
        match role {
            Role::Host => {}
            Role::Sender(_) => {
                sent.push(serde_json::from_value(value).map_err(Failure::of(failed))?);
            }
            Role::Receiver(_) => {
                received.push(serde_json::from_value(value).map_err(Failure::of(failed))?);
            }
        }
    }
    Ok(Outcome { about, senders: sent, receivers: received })
}

/// How long a child may take to end after it has said its result.
const LONGEST_END: Duration = Duration::from_secs(20);
/// Between two looks at the observer.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);

/// The children; none outlives it.
struct ProcessGroup<'a> {
    launch: &'a Launch<'a>,
    members: Vec<ChildProcess>,
}

impl ProcessGroup<'_> {
    fn start(&mut self, roles: &[Role], job: &Job) -> Result<(), Failure> {
        for role in roles {
            self.check_cancelled()?;
            let job = Job { role: *role, ..job.clone() };
            self.members.push(ChildProcess::start(&self.launch.program, &job)?);
        }
        Ok(())
    }

    /// Until all that were started are ready. Returns what the host said, if it is among them.
    fn wait_until_ready(&mut self) -> Result<Option<About>, Failure> {
        let mut hosted = None;
        while self.members.iter().any(|member| !member.ready) {
            for (number, answer) in self.next("to be ready")? {
                match answer {
                    Answer::Ready { about } => {
                        self.members[number].ready = true;
                        hosted = about.or(hosted);
                    }
                    answer => return Err(self.out_of_turn(number, &answer)),
                }
            }
        }
        Ok(hosted)
    }

    /// Results of all but the host, in the order in which they were started.
    fn collect(&mut self) -> Result<Vec<(Role, Value)>, Failure> {
        let mut results: Vec<Option<Value>> = self.members.iter().map(|_| None).collect();
        while self
            .members
            .iter()
            .zip(&results)
            .any(|(member, result)| member.is_at_work() && result.is_none())
        {
            for (number, answer) in self.next("to do its work")? {
                match answer {
                    Answer::Result { value } => {
                        self.members[number].done = true;
                        results[number] = Some(value);
                    }
                    Answer::Progress { .. } => {}
                    // Of a sender that was started late.
                    Answer::Ready { .. } if !self.members[number].ready => {
                        self.members[number].ready = true;
                    }
                    answer => return Err(self.out_of_turn(number, &answer)),
                }
            }
        }
        let roles = self.members.iter().map(|member| member.role);
        Ok(roles.zip(results).filter_map(|(role, result)| Some((role, result?))).collect())
    }

    /// Lets all leave, the host last, and fails if one of them ends badly.
    fn leave(mut self) -> Result<(), Failure> {
        let (hosts, others): (Vec<_>, Vec<_>) =
            self.members.drain(..).partition(|member| member.role == Role::Host);
        self.members = hosts;
        for mut member in others {
            member.leave(LONGEST_END)?;
        }
        self.members.iter_mut().try_for_each(|member| member.leave(LONGEST_END))
    }

    /// Waits for a while in which nobody has anything to say.
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

    /// What any of them says next, with their numbers.
    fn next(&mut self, what_for: &str) -> Result<Vec<(usize, Answer)>, Failure> {
        let deadline = Instant::now() + self.launch.patience;
        loop {
            let answers = self.listen(LOOK_UP_EVERY)?;
            if !answers.is_empty() {
                return Ok(answers);
            }
            if Instant::now() >= deadline {
                return Err(self.nothing_heard(what_for));
            }
        }
    }

    /// What they say within a time that is at most [`LOOK_UP_EVERY`]. A failure or a death of one is a
    /// failure of all.
    fn listen(&mut self, time: Duration) -> Result<Vec<(usize, Answer)>, Failure> {
        self.check_cancelled()?;
        self.wait_for_output(time.min(LOOK_UP_EVERY))?;
        let mut answers = Vec::new();
        let mut ended = None;
        for (number, member) in self.members.iter_mut().enumerate() {
            let open = member.read(|answer| answers.push((number, answer)))?;
            if !open && !member.done {
                ended = Some(number);
            }
        }
        for (number, answer) in &answers {
            if let Answer::Failed { text } = answer {
                let role = self.members[*number].role;
                return Err(Failure::new(format!("{role} failed: {text}")));
            }
        }
        match ended {
            // What it said before it died comes first: it may be its result.
            Some(number) if answers.is_empty() => Err(self.members[number].died(LONGEST_END)),
            _ => Ok(answers),
        }
    }

    fn wait_for_output(&self, time: Duration) -> Result<(), Failure> {
        let timeout = Timespec::try_from(time).map_err(Failure::of("wait"))?;
        let mut fds: Vec<PollFd<'_>> = self
            .members
            .iter()
            .filter_map(|member| Some(PollFd::from_borrowed_fd(member.output()?, PollFlags::IN)))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::of("wait for children")(error)),
        }
    }

    fn check_cancelled(&self) -> Result<(), Failure> {
        if self.launch.observer.is_cancelled() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    fn nothing_heard(&self, what_for: &str) -> Failure {
        let preparing = self.members.iter().any(|member| !member.ready);
        let waiting: Vec<String> = self
            .members
            .iter()
            .filter(|member| if preparing { !member.ready } else { member.is_at_work() })
            .map(|member| format!("{} (pid {})", member.role, member.pid()))
            .collect();
        Failure::new(format!(
            "no child said anything for {:?}; waited for {} {what_for}: is the machine overloaded, \
             or does the transport stand still?",
            self.launch.patience,
            waiting.join(", ")
        ))
    }

    fn out_of_turn(&self, number: usize, answer: &Answer) -> Failure {
        Failure::new(format!("{} said {answer:?} out of turn", self.members[number].role))
    }
}

impl Drop for ProcessGroup<'_> {
    fn drop(&mut self) {
        // All first, so that nobody goes on alone while another is waited for.
        self.members.iter_mut().for_each(ChildProcess::kill);
    }
}
