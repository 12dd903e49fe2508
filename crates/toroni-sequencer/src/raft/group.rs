//! A running member: Raft, its log, its messages, and what becomes of commands.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use toroni_proto::wire::Keys;

use super::applied::{Applied, Events};
use super::network::Network;
use super::peers::Peers;
use super::service::Service;
use super::shared::Shared;
use super::storage::LogStore;
use super::timing::Timing;
use super::types::Raft;
use super::{contact, doubt, elections, members, peers, propose, reads};
use crate::entry::{MAX_MEMBERS, Place};
use crate::feed::{Live, distribute};
use crate::log::{Log, LogError, Options};
use crate::rpc::{
    Answer, Caller, Connection, Identity, Peer, Request, Role, Serve, Status, listen,
};

const MAINTENANCE: Duration = Duration::from_secs(1);
/// A snapshot is taken after this many entries of log, however short they are: each takes its time when it is applied again.
const SNAPSHOT_ENTRIES: u64 = 1 << 18;
/// A snapshot that had no room is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(10);

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
    /// The addresses and ports of members that the file of the node lists. Without a key, a member is known by its address: by one
    /// of these, or one that the group has. While the log is empty, these are asked whether the group has begun.
    pub listed: Vec<String>,
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
    /// What receives the events.
    pub events: Box<dyn Events>,
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
    /// A file of the log cannot be used.
    #[error("could not use the log: {0}")]
    Io(#[from] io::Error),
    /// A group cannot be recovered from a log that was in none.
    #[error("the log in {} was never part of a group: recover from that of another member", .0.display())]
    NoGroup(PathBuf),
}

/// A running member.
pub struct Group {
    pub(super) shared: Arc<Shared>,
    tasks: JoinSet<()>,
    /// Ends with the member.
    _signals: Signals,
}

/// The thread of a member that takes connections, and carries what members show and ask each other. It waits for no disk: a
/// member whose disk is slow is not taken for dead.
struct Signals(Option<Runtime>);

impl Signals {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("toroni-signals")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> Handle {
        // It is taken when this is dropped.
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
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
        election_timeout_max: ms(timing.lease()),
        heartbeat_interval: ms(timing.heartbeat),
        // Elections have a clock of ours; see `elections.rs`.
        enable_elect: false,
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
            listed,
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
        let applied = Applied::open(log.clone(), events)?;
        // Without a key, others know it by the address at which it listens.
        let bind = listener.local_addr()?.ip();
        let bind = (keys.is_none() && !bind.is_unspecified()).then_some(bind);
        let signals = Signals::start()?;
        let listener = {
            let thread = signals.handle();
            let _inside = thread.enter();
            TcpListener::from_std(listener.into_std()?)?
        };
        let known = (log.clone(), applied.newest_members()?);
        let threads = (signals.handle(), Handle::current());
        let peers = Arc::new(Peers::new(id, name, (keys, bind), known, threads));
        let led = log.vote().is_some_and(|vote| vote.committed && vote.candidate == id);
        if led && (!peers.ask_before_start().await || log.is_uncertain()) {
            doubt::abdicate(&log, id)?;
        }
        let patience = Arc::new(elections::Patience::new(&timing));
        let network = Network { peers: Arc::clone(&peers), patience: Arc::clone(&patience) };
        let config = config(&feed, &timing).validate().map_err(|error| raft_error(&error))?;
        let raft = Raft::new(
            id,
            Arc::new(config),
            network,
            LogStore::behind(log.clone(), applied.gate.clone()),
            applied.clone(),
        )
        .await
        .map_err(|error| raft_error(&error))?;
        let (submitted, queue) = mpsc::channel(propose::WAITING);
        let own = Peer { log: log.found().log, id };
        let identity = Identity { feed: name, keys, own, listed: listed.clone() };
        let elections = (timing, patience);
        let shared = Shared::new(id, peers, (raft, log, applied), submitted, elections);
        let mut tasks = JoinSet::new();
        let service = Arc::new(Service(Arc::clone(&shared)));
        tasks.spawn_on(listen(listener, identity, service, Handle::current()), &signals.handle());
        tasks.spawn(propose::run(Arc::clone(&shared), queue));
        tasks.spawn(maintain(Arc::clone(&shared), snapshot_bytes, retain_bytes));
        tasks.spawn_on(peers::run(Arc::clone(&shared)), &signals.handle());
        tasks.spawn(peers::watch_for_begin(Arc::clone(&shared), listed));
        tasks.spawn(members::complete(Arc::clone(&shared)));
        tasks.spawn(elections::run(Arc::clone(&shared)));
        tasks.spawn(contact::watch(Arc::clone(&shared)));
        tasks.spawn(reads::run(Arc::clone(&shared)));
        tasks.spawn(doubt::run(Arc::clone(&shared)));
        Ok(Self { shared, tasks, _signals: signals })
    }

    /// Hands events on as they happen: all of them to `local`, and to `to_send` those that happen while this member leads.
    /// Called once, within the runtime.
    pub fn distribute(&mut self, local: Option<Live>, to_send: Option<Live>) {
        let (archive, shared) = (self.shared.archive.clone(), Arc::clone(&self.shared));
        let leads = move || shared.raft.metrics().borrow().current_leader == Some(shared.id);
        self.tasks.spawn(distribute(archive, leads, local, to_send));
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
        self.shared.problem.get().cloned().or_else(|| state.err().map(|error| error.to_string()))
    }

    /// Returns the length of the log's files, in bytes.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.shared.log.bytes()
    }

    /// Carries out a request as if it had come over a connection.
    pub async fn request(&self, request: Request) -> Answer {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let connection = Arc::new(Connection { address, role: Role::Tool });
        let caller = Caller { id: u64::MAX, is_trusted: true, connection };
        Service(Arc::clone(&self.shared)).serve(caller, request).await
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

/// Takes snapshots and purges the log, and sees whether the disk has room. What a start has to replay is bounded by what
/// follows the snapshot on the disk, however often the member was started since.
async fn maintain(shared: Arc<Shared>, snapshot_bytes: u64, retain_bytes: u64) {
    let Shared { raft, log, applied, .. } = &*shared;
    let mut ticks = interval(MAINTENANCE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tried: Option<(Option<Place>, Instant)> = None;
    loop {
        ticks.tick().await;
        shared.has_room(0);
        let covered = applied.lock().snapshot;
        let (bytes, entries) = log.after(covered);
        // One that is not there is being written, or had no room.
        let may_try = tried.is_none_or(|(at, since)| at != covered || since.elapsed() >= TRY_AGAIN);
        if may_try && (bytes >= snapshot_bytes || entries >= SNAPSHOT_ENTRIES) {
            tried = Some((covered, Instant::now()));
            let _ = raft.trigger().snapshot().await;
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
