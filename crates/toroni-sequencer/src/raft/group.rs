//! A running member: Raft, its log, its messages, and what becomes of commands.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, VoteRequest};
use openraft::{Config, SnapshotPolicy};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use toroni_proto::wire::Keys;

use super::applied::{Applied, Events, describe};
use super::network::Network;
use super::propose::{self, Submitted};
use super::storage::LogStore;
use super::types::{Raft, id_of, place_of, raft_entry_of, raft_vote_of, vote_of};
use crate::entry::{MAX_MEMBERS, Member, Members};
use crate::feed::Archive;
use crate::log::{Log, LogError, Options};
use crate::rpc::{
    Answer, Answering, Appended, Identity, Peer, Request, Serve, SourceState, Status, Target,
    identify, listen,
};

const MAINTENANCE: Duration = Duration::from_secs(1);

/// What a member is started with.
pub struct GroupOptions {
    /// The name of the feed.
    pub feed: String,
    /// The id of this member, 0 to 7.
    pub id: u64,
    /// Where it listens, already bound.
    pub listener: TcpListener,
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// The directory of the log.
    pub directory: PathBuf,
    /// How the log is kept.
    pub log: Options,
    /// A snapshot is taken after this many bytes of log [64 MiB].
    pub snapshot_bytes: u64,
    /// At least this many bytes of log stay [10 GiB].
    pub retain_bytes: u64,
    /// When members elect a leader.
    pub timing: Timing,
    /// Who is told of events.
    pub events: Box<dyn Events>,
}

/// When members elect a leader, and how a leader shows that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// After so long without a leader, a random time within, a member stands for election [150 to 300 ms].
    pub election: Range<Duration>,
    /// How often a leader shows that it lives [50 ms].
    pub heartbeat: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { election: ms(150)..ms(300), heartbeat: ms(50) }
    }
}

/// Why a member does not start, or an order to it fails.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The id is not one of 0 to 7.
    #[error("a member's id is 0 to 7, not {0}")]
    Id(u64),
    /// Raft does not start.
    #[error("{0}")]
    Raft(String),
    /// The listener is none.
    #[error("could not listen: {0}")]
    Listen(#[from] io::Error),
}

/// A running member.
pub struct Group {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    id: u64,
    feed: [u8; 16],
    keys: Option<Keys>,
    raft: Raft,
    log: Log,
    applied: Applied,
    archive: Archive,
    submitted: mpsc::Sender<Submitted>,
}

/// Returns the first bytes of the hash of a feed's name, by which members and nodes know that they mean the same.
#[must_use]
pub fn feed_id(name: &str) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..16]);
    id
}

/// The settings of openraft. Each differs from its default for a reason.
fn config(feed: &str, timing: &Timing) -> Config {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Config {
        cluster_name: feed.to_owned(),
        election_timeout_min: ms(timing.election.start),
        election_timeout_max: ms(timing.election.end),
        heartbeat_interval: ms(timing.heartbeat),
        // A state of a megabyte takes more than the 200 ms of the default on a slow disk.
        install_snapshot_timeout: 5_000,
        // openraft counts entries, which are of any length. We count bytes.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        // A member gets a snapshot only when the entries that it lacks are gone.
        replication_lag_threshold: u64::MAX,
        ..Config::default()
    }
}

impl Group {
    /// Starts a member. It belongs to a group when that was begun with [`Request::Init`] on one of its members.
    ///
    /// # Errors
    ///
    /// If its log cannot be used, or Raft does not start.
    pub async fn start(options: GroupOptions) -> Result<Self, GroupError> {
        let GroupOptions {
            feed,
            id,
            listener,
            keys,
            directory,
            log,
            snapshot_bytes,
            retain_bytes,
            timing,
            events,
        } = options;
        if id >= MAX_MEMBERS as u64 {
            return Err(GroupError::Id(id));
        }
        let name = feed_id(&feed);
        let log = Log::open(&directory, log)?;
        let raft_error = |error: &dyn std::fmt::Display| GroupError::Raft(error.to_string());
        let applied = Applied::open(log.clone(), events).map_err(|error| raft_error(&error))?;
        let network = Network { feed: name, keys, own: id, links: BTreeMap::new() };
        let config = config(&feed, &timing).validate().map_err(|error| raft_error(&error))?;
        let raft = Raft::new(id, Arc::new(config), network, LogStore(log.clone()), applied.clone())
            .await
            .map_err(|error| raft_error(&error))?;
        let (submitted, queue) = mpsc::channel(propose::WAITING);
        let archive = applied.lock().archive.clone();
        let shared = Arc::new(Shared {
            id,
            feed: name,
            keys,
            raft: raft.clone(),
            log: log.clone(),
            applied,
            archive,
            submitted,
        });
        let mut tasks = JoinSet::new();
        let identity = Identity { feed: name, keys, own: Peer { log: log.found().log, id } };
        tasks.spawn(listen(listener, identity, Arc::new(Service(Arc::clone(&shared)))));
        tasks.spawn(propose::run(raft.clone(), log.clone(), queue));
        tasks.spawn(maintain(raft, log, snapshot_bytes, retain_bytes));
        Ok(Self { shared, tasks })
    }

    /// Returns how the member is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns why the member does nothing any more, if it had to end by itself.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let metrics = self.shared.raft.metrics();
        let state = metrics.borrow().running_state.clone();
        state.err().map(|error| error.to_string())
    }

    /// Returns the length of the log's files, in bytes.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.shared.log.bytes()
    }

    /// Carries out a request as if it had come over a connection.
    pub async fn request(&self, request: Request) -> Answer {
        Service(Arc::clone(&self.shared)).serve(u64::MAX, request).await
    }

    /// Ends the member, and closes its log.
    ///
    /// # Errors
    ///
    /// If the log cannot be closed.
    pub async fn close(mut self) -> Result<(), GroupError> {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        let ended = self.shared.raft.shutdown().await;
        ended.map_err(|error| GroupError::Raft(error.to_string()))?;
        Ok(self.shared.log.close()?)
    }
}

/// Takes snapshots and purges the log, by bytes.
async fn maintain(raft: Raft, log: Log, snapshot_bytes: u64, retain_bytes: u64) {
    let mut ticks = interval(MAINTENANCE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut snapshot_at = log.end_bytes();
    loop {
        ticks.tick().await;
        let end = log.end_bytes();
        if end >= snapshot_at + snapshot_bytes && raft.trigger().snapshot().await.is_ok() {
            snapshot_at = end;
        }
        let snapshot = raft.metrics().borrow().snapshot;
        let purged = log.ends().0;
        if let (Some(upto), Some(snapshot)) = (log.purgeable(retain_bytes), snapshot) {
            let upto = upto.min(snapshot.index);
            // openraft panics if it is asked for what is gone.
            if purged.is_none_or(|purged| purged.index < upto) {
                let _ = raft.trigger().purge_log(upto).await;
            }
        }
    }
}

#[derive(Clone)]
struct Service(Arc<Shared>);

impl Serve for Service {
    fn serve(&self, from: u64, request: Request) -> Answering {
        let shared = Arc::clone(&self.0);
        match request {
            // Taken here and now, so that the commands of a connection stay in their order.
            Request::Submit(batch) => {
                let (answer, answered) = oneshot::channel();
                let submitted = shared.submitted.try_send(Submitted { batch, answer });
                Box::pin(async move {
                    if submitted.is_err() {
                        return Answer::Failed(
                            "the leader has no room for more commands".to_owned(),
                        );
                    }
                    answered.await.unwrap_or_else(|_| Answer::Failed("the member ends".to_owned()))
                })
            }
            Request::Append { .. } | Request::Vote { .. } | Request::Snapshot { .. }
                if from >= MAX_MEMBERS as u64 =>
            {
                Box::pin(async { Answer::Failed("only members replicate".to_owned()) })
            }
            request => Box::pin(async move { shared.answer(request).await }),
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Answer {
    Answer::Failed(error.to_string())
}

impl Shared {
    async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Append { vote, previous, commit, entries } => {
                // Any error of storage stops openraft for good, so a full disk must not reach it.
                let bytes: usize = entries.iter().map(|entry| entry.weight() + 64).sum();
                if !entries.is_empty() && !self.log.has_room(bytes) {
                    return Answer::Appended(Appended::NoRoom);
                }
                let rpc = AppendEntriesRequest {
                    vote: raft_vote_of(vote),
                    prev_log_id: previous.map(id_of),
                    leader_commit: commit.map(id_of),
                    entries: entries.into_iter().map(raft_entry_of).collect(),
                };
                use openraft::raft::AppendEntriesResponse as Response;
                Answer::Appended(match self.raft.append_entries(rpc).await {
                    Ok(Response::Success) => Appended::All,
                    Ok(Response::PartialSuccess(id)) => Appended::Part(id.as_ref().map(place_of)),
                    Ok(Response::Conflict) => Appended::Conflict,
                    Ok(Response::HigherVote(vote)) => Appended::Higher(vote_of(&vote)),
                    Err(error) => return failed(error),
                })
            }
            Request::Vote { vote, last } => {
                match self.raft.vote(VoteRequest::new(raft_vote_of(vote), last.map(id_of))).await {
                    Ok(response) => Answer::Voted {
                        vote: vote_of(&response.vote),
                        granted: response.vote_granted,
                        last: response.last_log_id.as_ref().map(place_of),
                    },
                    Err(error) => failed(error),
                }
            }
            Request::Snapshot { vote, bytes } => match describe(bytes.to_vec()) {
                Err(error) => failed(error),
                Ok(snapshot) => {
                    let installed =
                        self.raft.install_full_snapshot(raft_vote_of(vote), snapshot).await;
                    installed
                        .map_or_else(failed, |response| Answer::Installed(vote_of(&response.vote)))
                }
            },
            Request::Source(source) => self.source(source).await,
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Digest(number) => {
                let digest = self.applied.lock().machine.digest_after(number);
                Answer::Digest(digest.map(|digest| *digest.as_bytes()))
            }
            Request::Init(members) => self.init(members).await,
            Request::Fetch(fetch) => {
                self.archive.fetch(fetch).await.map_or_else(failed, Answer::Fetched)
            }
            Request::Submit(_) => failed("commands are submitted in their order"),
            Request::Add { .. }
            | Request::Remove(_)
            | Request::HandOver(_)
            | Request::TakeOver { .. } => failed("this member cannot do that"),
        }
    }

    /// What is known of a source, as a leader knows it: all that was committed before is applied.
    async fn source(&self, source: u32) -> Answer {
        use openraft::error::{CheckIsLeaderError, RaftError};
        match self.raft.ensure_linearizable().await {
            Ok(_) => {}
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(to))) => {
                return Answer::NotLeader(
                    to.leader_id.zip(to.leader_node.map(|member| member.address)),
                );
            }
            Err(error) => return failed(error),
        }
        let state = self.applied.lock();
        Answer::Source(state.machine.source(source).map(|source| SourceState {
            bus: source.bus,
            session: source.session,
            series: source.series,
            next: source.next,
        }))
    }

    fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow().clone();
        let (purged, last) = self.log.ends();
        let state = self.applied.lock();
        Status {
            id: self.id,
            term: metrics.current_term,
            leader: metrics.current_leader,
            last,
            applied: state.last,
            purged,
            series: state.machine.series(),
            next: state.machine.next(),
            digest: *state.machine.digest().as_bytes(),
            first: self.archive.first(),
            ..Status::default()
        }
    }

    /// Begins a group. The id of each log is asked for at its address, so that later no other log joins under its name.
    async fn init(&self, members: Members) -> Answer {
        let mut found: BTreeMap<u64, Member> = BTreeMap::new();
        for (id, member) in members.members {
            let target = Target {
                address: member.address.clone(),
                feed: self.feed,
                keys: self.keys,
                from: self.id,
                log: None,
            };
            match identify(&target).await {
                Ok(peer) if peer.id == id => found.insert(id, Member { log: peer.log, ..member }),
                Ok(peer) => {
                    return failed(format!(
                        "at {} is member {}, not {id}",
                        member.address, peer.id
                    ));
                }
                Err(error) => return failed(error),
            };
        }
        let logs: BTreeSet<_> = found.values().map(|member| member.log).collect();
        if logs.len() != found.len() || !found.contains_key(&self.id) {
            return failed("the members must be different ones, and this one among them");
        }
        self.raft.initialize(found).await.map_or_else(failed, |()| Answer::Done)
    }
}
