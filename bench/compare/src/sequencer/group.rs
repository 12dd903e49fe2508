//! Members of the sequencer, each a process, and one source that brings commands to the leader.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::net::TcpListener;
use tokio::runtime::{Builder as Runtimes, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use toroni_bench_harness::Failure;
use toroni_sequencer::batch::{Builder, Command, CommandId, Open, Publish};
use toroni_sequencer::entry::{Member, Members};
use toroni_sequencer::log::{Options, Sync};
use toroni_sequencer::machine::{Event, Outcome};
use toroni_sequencer::raft::{Events, Group, GroupOptions, Timing, feed_id};
use toroni_sequencer::rpc::{Answer, Link, LinkError, Request, Role, Target};
use toroni_testkit::Process;

use super::{Contender, PAYLOAD_BYTES};

const FEED: &str = "bench";
/// The bytes that are submitted at once, as by a courier.
const SUBMIT_BYTES: usize = 64 << 10;
/// How many submissions wait for their answers.
const SUBMISSIONS: usize = 8;
const ANSWER_TIME: Duration = Duration::from_millis(700);
const LIMIT: Duration = Duration::from_secs(30);

/// Whether entries are synced every 50 ms, or before they are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interval {
    Yes,
    No,
}

/// A member, which is a process of its own.
#[derive(Args)]
pub(crate) struct SequencerMember {
    id: u64,
    address: String,
    directory: PathBuf,
    #[arg(long)]
    interval: bool,
}

struct Ignores;

impl Events for Ignores {
    fn event(&mut self, _: Event<'_>) {}
    fn skipped(&mut self, _: u64) {}
}

/// Runs a member until it is killed.
pub(crate) fn member(options: SequencerMember) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let runtime = Runtimes::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| failed(&error))?.block_on(async {
        let listener = TcpListener::bind(&options.address).await.map_err(|error| failed(&error))?;
        let sync = if options.interval { Sync::OFTEN } else { Sync::Always };
        let _group = Group::start(GroupOptions {
            feed: FEED.to_owned(),
            id: options.id,
            listener,
            keys: None,
            listed: vec![],
            directory: options.directory,
            log: Options { sync, ..Options::default() },
            snapshot_bytes: 64 << 20,
            retain_bytes: 256 << 20,
            timing: Timing::default(),
            events: Box::new(Ignores),
        })
        .await
        .map_err(|error| failed(&error))?;
        std::future::pending().await
    })
}

struct Cluster {
    runtime: Runtime,
    directory: PathBuf,
    interval: Interval,
    addresses: Vec<String>,
    links: Vec<Link>,
    members: Vec<Process>,
    leader: usize,
    next: u64,
}

pub(super) fn start(
    directory: &Path,
    count: usize,
    interval: Interval,
) -> Result<Box<dyn Contender>, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("the sequencer: {error}"));
    let listeners: Vec<_> = (0..count)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let addresses: Vec<String> = listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.to_string()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    drop(listeners);
    let runtime = Runtimes::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let links = {
        let _inside = runtime.enter();
        let target = |address: &String| Target {
            address: address.clone(),
            feed: feed_id(FEED),
            keys: None,
            role: Role::Courier { source: 1 },
            bind: None,
            log: None,
        };
        addresses.iter().map(|address| Link::new(target(address))).collect()
    };
    let mut cluster = Cluster {
        runtime,
        directory: directory.to_owned(),
        interval,
        addresses,
        links,
        members: vec![],
        leader: 0,
        next: 0,
    };
    for id in 0..count {
        let member = cluster.spawn(id)?;
        cluster.members.push(member);
    }
    cluster.begin()?;
    cluster.find()?;
    Ok(Box::new(cluster))
}

impl Cluster {
    fn spawn(&self, id: usize) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("a member: {error}"));
        let mut program = Program::new(std::env::current_exe().map_err(failed)?);
        program.args(["sequencer-member", &id.to_string(), &self.addresses[id]]);
        program.arg(self.directory.join(id.to_string()));
        if self.interval == Interval::Yes {
            program.arg("--interval");
        }
        Process::spawn(&mut program).map_err(failed)
    }

    fn begin(&self) -> Result<(), Failure> {
        let member = |(id, address): (u64, &String)| {
            (id, Member { name: format!("m{id}"), address: address.clone(), log: [0; 16] })
        };
        let members: BTreeMap<_, _> = (0..).zip(&self.addresses).map(member).collect();
        let request = Request::Init(Members { voters: vec![], members });
        let begun = Instant::now();
        loop {
            let call = async { timeout(LIMIT, self.links[0].call(&request)).await };
            let answer = self.runtime.block_on(call);
            if matches!(answer, Ok(Ok(Answer::Done))) {
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                return Err(Failure::new(format!("the group does not begin: {answer:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    async fn call(&self, request: &Request) -> Option<Answer> {
        timeout(ANSWER_TIME, self.links[self.leader].call(request)).await.ok()?.ok()
    }

    /// Opens the series with the leader, and learns where it continues.
    fn find(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            let open = Open { source: 1, series: 1, session: 1, bus: [1; 16], earlier: Some(&[]) };
            let opened = self.runtime.block_on(self.call(&submission([Command::Open(open)])?));
            if matches!(opened, Some(Answer::Outcomes(_)))
                && let Some(Answer::Source(Some(state))) =
                    self.runtime.block_on(self.call(&Request::Source(1)))
            {
                self.next = state.next;
                return Ok(());
            }
            self.leader = match opened {
                Some(Answer::NotLeader(Some((id, _)))) if id != self.leader as u64 => {
                    usize::try_from(id).unwrap_or(0)
                }
                _ => (self.leader + 1) % self.links.len(),
            };
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(Failure::new("no member leads"))
    }

    /// A submission of the next commands, and how many they are.
    fn next_submission(&mut self, bytes: usize) -> Result<(Request, u64), Failure> {
        let payload = [7; PAYLOAD_BYTES];
        let publish = |number| {
            let id = CommandId { source: 1, series: 1, number };
            Command::Publish(Publish { id, to_descendants: false, topic: "t", payload: &payload })
        };
        let count = (bytes / publish(0).encoded_bytes()).max(1) as u64;
        let commands = (self.next..self.next + count).map(publish);
        let request = submission(commands)?;
        self.next += count;
        Ok((request, count))
    }
}

fn submission<'a>(commands: impl IntoIterator<Item = Command<'a>>) -> Result<Request, Failure> {
    let mut builder = Builder::new();
    let pushed = commands.into_iter().try_for_each(|command| builder.push(&command));
    let bytes = pushed.and_then(|()| builder.finish());
    Ok(Request::Submit(bytes.map_err(|error| Failure::new(error.to_string()))?.into()))
}

type Calls = VecDeque<(JoinHandle<Result<Answer, LinkError>>, u64)>;

impl Contender for Cluster {
    fn one(&mut self) -> Result<(), Failure> {
        let (request, _) = self.next_submission(0)?;
        let answer = self.runtime.block_on(self.links[self.leader].call(&request));
        match answer {
            Ok(Answer::Outcomes(outcomes)) if matches!(outcomes[..], [Outcome::Sequenced(_)]) => {
                Ok(())
            }
            answer => Err(Failure::new(format!("a command was not ordered: {answer:?}"))),
        }
    }

    fn many(&mut self, time: Duration) -> Result<u64, Failure> {
        let begun = Instant::now();
        let mut calls = Calls::new();
        let mut ordered = 0;
        loop {
            let is_over = begun.elapsed() >= time;
            while !is_over && calls.len() < SUBMISSIONS {
                let (request, count) = self.next_submission(SUBMIT_BYTES)?;
                let link = self.links[self.leader].clone();
                // In this order: a call is queued before the next one is made.
                let (queued, is_queued) = std::sync::mpsc::channel();
                let call = self.runtime.spawn(async move {
                    let call = link.call(&request);
                    let mut call = std::pin::pin!(call);
                    let first = std::future::poll_fn(|context| {
                        std::task::Poll::Ready(call.as_mut().poll(context))
                    });
                    let first = first.await;
                    let _ = queued.send(());
                    match first {
                        std::task::Poll::Ready(answer) => answer,
                        std::task::Poll::Pending => call.await,
                    }
                });
                let _ = is_queued.recv();
                calls.push_back((call, count));
            }
            let Some((call, count)) = calls.pop_front() else { return Ok(ordered) };
            match self.runtime.block_on(call) {
                Ok(Ok(Answer::Outcomes(outcomes)))
                    if outcomes.iter().all(|one| matches!(one, Outcome::Sequenced(_))) =>
                {
                    ordered += count;
                }
                Ok(Ok(Answer::Outcomes(_))) => {
                    return Err(Failure::new("commands were not ordered as they were sent"));
                }
                answer => return Err(Failure::new(format!("commands were lost: {answer:?}"))),
            }
        }
    }

    fn kill_leader(&mut self) -> Result<Option<Duration>, Failure> {
        if self.members.len() == 1 {
            return Ok(None);
        }
        let killed = self.leader;
        let failed = |error: std::io::Error| Failure::new(format!("a member: {error}"));
        self.one()?;
        let before = Instant::now();
        self.members[killed].kill();
        self.members[killed].wait_within(LIMIT).map_err(failed)?;
        self.find()?;
        self.one()?;
        let stall = before.elapsed();
        self.members[killed] = self.spawn(killed)?;
        // Until it has what it missed, another kill would leave no majority.
        std::thread::sleep(Duration::from_secs(2));
        Ok(Some(stall))
    }
}
