//! The part of a node that takes part in a feed: a member of its group, the courier of the host's commands, and the follower
//! that brings events to the host.
//!
//! ```text
//!   bus `<feed>.commands` ──► courier  (a thread of its own) ══► leader of the group
//!                             member   (a runtime of two threads, and a thread for signals) ══ other members
//!                                │ live events     ╰─► multicast.rs ══► group
//!   bus `<feed>`          ◄── follower (a thread of its own) ◄══ any member, or multicast.rs ◄══ group
//! ```
//!
//! The member has two threads: a vote, or a new segment of the log, is synced to the disk where it is made, and meanwhile
//! the other thread answers. A third one, which waits for no disk, takes connections and shows the other members how this one is.

use super::descriptors;
use super::log::{Level, Line};
use super::multicast::Multicast;
use crate::sequencer::feed::{Feed, hex};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use toroni::{Bus, BusConfig};
use toroni_net::node::Settings;
use toroni_net::node::config;
use toroni_sequencer::commands::{COURIER, Courier, CourierCounts, CourierError, CourierOptions};
use toroni_sequencer::feed::{
    FeedStart, FollowError, Followed, Follower, FollowerOptions, Keeper, KeeperOptions, Live, Note,
    OnDivergence,
};
use toroni_sequencer::log::{self, Sync};
use toroni_sequencer::machine::Event;
use toroni_sequencer::raft::{Events, Group, GroupOptions, Timing, feed_id};
use toroni_sequencer::rpc::{MAX_CONNECTIONS, Role};
use toroni_shell::notice;

const THREADS: usize = 2;
/// After this many bytes of log, the state is written as a snapshot.
const SNAPSHOT_BYTES: u64 = 64 << 20;
/// A member that does not end within this time is left to the end of the process.
const END_TIME: Duration = Duration::from_secs(10);

/// A running part.
pub(super) struct Sequencer {
    feed: Feed,
    runtime: Runtime,
    member: Option<Group>,
    courier: Option<Courier>,
    counts: CourierCounts,
    follower: Option<Follower>,
    /// Why there is no follower any more although the node continues.
    stopped: Option<String>,
    followed: Followed,
    multicast: Option<Multicast>,
    keeper: Option<Keeper>,
    commands: Bus,
    /// What it may be short of.
    warning: Option<String>,
}

/// Ignores events where they are applied: they are taken from the archive.
struct IgnoreEvents;

impl Events for IgnoreEvents {
    fn event(&mut self, _: Event<'_>) {}
    fn skipped(&mut self, _: u64) {}
}

impl Sequencer {
    /// Starts what the section of a file asks for. None without such a section. The error says what to do.
    pub(super) fn start(
        config: &config::Node,
        settings: &Settings,
    ) -> Result<Option<Self>, String> {
        let Some(section) = &config.sequencer else { return Ok(None) };
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("toroni-member")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start the threads of the sequencer: {error}"))?;
        let feed = Feed::of_node(section, settings.member.keys);
        let listeners = usize::from(section.own().is_some()) + usize::from(section.archive);
        let warning = match listeners {
            0 => None,
            _ => descriptors::raise_for(listeners * MAX_CONNECTIONS),
        };
        let mut member = match section.own() {
            Some(_) => Some(start_member(&runtime, config, section, &feed)?),
            None => None,
        };
        let live = Live::new();
        let mut multicast = None;
        if let Some(member) = &mut member {
            let mut to_send = None;
            if let Some(group) = section.group {
                let (sender, queue) = Multicast::sender(section, &settings.member, group)?;
                (multicast, to_send) = (Some(sender), Some(queue));
            }
            let _inside = runtime.enter();
            member.distribute(Some(live.clone()), to_send);
        } else if let Some(group) = section.group {
            multicast = Some(Multicast::receiver(section, &settings.member, group, &live)?);
        }
        let keeper = if section.archive {
            Some(start_archive(&runtime, config, section, &feed, settings.member.source.0)?)
        } else {
            None
        };
        let source = settings.member.source.0;
        let options = CourierOptions {
            bus: bus_config(&config.bus),
            feed: feed.name.clone(),
            source,
            session: settings.member.session.0,
            members: feed.targets(Role::Courier { source }),
            rate: section.command_rate,
            buses: section.buses(config),
        };
        let broken = |error: CourierError| courier_problem(&feed.name, &error);
        let courier = Courier::start(options).map_err(broken)?;
        let name = toroni_sequencer::commands::bus_name(&feed.name);
        let commands = bus_config(&config.bus).open_existing(&name);
        let commands = commands.map_err(|error| format!("cannot open the bus {name}: {error}"))?;
        let role = Role::Follower { source: Some(source) };
        let options = FollowerOptions {
            bus: bus_config(&config.bus),
            feed: feed.name.clone(),
            members: feed.targets(role),
            archives: feed.archives(role),
            start: FeedStart::Oldest,
            on_divergence: if section.stops_on_divergence {
                OnDivergence::Stop
            } else {
                OnDivergence::Report
            },
            live: (member.is_some() || multicast.is_some()).then_some(live),
        };
        let broken = |error: FollowError| follower_problem(&feed.name, &error);
        let follower = Follower::start(options).map_err(broken)?;
        Ok(Some(Self {
            counts: courier.counts(),
            followed: follower.followed(),
            follower: Some(follower),
            stopped: None,
            feed,
            runtime,
            member,
            multicast,
            keeper,
            courier: Some(courier),
            commands,
            warning,
        }))
    }

    /// Returns what it does, for the log.
    pub(super) fn description(&self) -> String {
        let Feed { name, own, members, .. } = &self.feed;
        let found = own.and_then(|id| members.iter().find(|member| member.id == id));
        match found {
            Some(own) => format!(
                "member {} of the feed {name}, one of {}, at {}; commands from the bus {}, events to the bus {name}",
                own.name,
                members.len(),
                own.address,
                self.commands.name()
            ),
            None => format!(
                "commands from the bus {} to the feed {name}, its events to the bus {name}{}",
                self.commands.name(),
                if self.keeper.is_some() { ", and to an archive" } else { "" }
            ),
        }
    }

    /// Returns what it may be short of, for the log.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns why the node cannot go on, if a part has ended by itself that has to work. Multicast and an archive need not: the
    /// report says what is wrong with them.
    pub(super) fn problem(&mut self) -> Option<String> {
        if let Some(problem) = self.member.as_ref().and_then(Group::problem) {
            return Some(format!("the member of the feed {} has ended: {problem}", self.feed.name));
        }
        if let Some(follower) = self.follower.take_if(|follower| follower.has_ended()) {
            let (is_diverged, problem) = match follower.end() {
                Err(error) => (
                    matches!(error, FollowError::Diverged { .. }),
                    follower_problem(&self.feed.name, &error),
                ),
                Ok(()) => (false, format!("the follower of the feed {} has ended", self.feed.name)),
            };
            // Other hosts need the member and the archive, whatever the bus of this one has.
            if !is_diverged || self.member.is_none() && self.keeper.is_none() {
                return Some(problem);
            }
            self.stopped = Some(problem);
        }
        let courier = self.courier.take_if(|courier| courier.has_ended())?;
        Some(match courier.end() {
            Err(error) => courier_problem(&self.feed.name, &error),
            Ok(()) => format!("the courier of the feed {} has ended", self.feed.name),
        })
    }

    /// Returns what it has counted, and how its member is.
    pub(super) fn report(&mut self) -> notice::Sequencer {
        let waiting = self.commands.stats().map_or(0, |stats| {
            let couriers = stats.subscribers.iter().flatten().filter(|one| one.name == COURIER);
            couriers.map(|one| one.lag_bytes).max().unwrap_or(0)
        });
        notice::Sequencer {
            feed: self.feed.name.clone(),
            commands: self.commands.name().to_owned(),
            brought: self.counts.brought(),
            connections: self.counts.connections(),
            waiting_bytes: waiting,
            refused: self.counts.refused().map(|refused| refused.why),
            stopped: self.stopped.clone(),
            delivered: self.followed.chain().map_or(0, |chain| chain.next),
            lost: self.followed.lost(),
            divergences: self.followed.divergences(),
            came: self.followed.came(),
            asked: self.followed.asked(),
            is_live: self.stopped.is_none() && self.followed.is_live(),
            multicast: self.multicast.as_ref().map(multicast_report),
            archive: self.keeper.as_ref().map(archive_report),
            member: self.member.as_ref().map(|member| self.member(member)),
        }
    }

    /// Returns lines about what the follower has found since the last call.
    pub(super) fn notes(&self) -> impl Iterator<Item = Line> {
        let feed = &self.feed.name;
        self.followed.take_notes().into_iter().map(move |Note { kind, text }| {
            Line::new(Level::Warn, kind, format!("feed {feed}: {text}"))
        })
    }

    fn member(&self, member: &Group) -> notice::OrderMember {
        let status = member.status();
        let leader = status.leader.filter(|_| !status.is_out_of_contact);
        notice::OrderMember {
            name: self.feed.name_of(status.id),
            number: status.id,
            leads: leader == Some(status.id),
            leader: leader.map(|leader| self.feed.name_of(leader)),
            hindrance: status.hindrance,
            contact_ns: u64::try_from(status.contact.as_nanos()).unwrap_or(u64::MAX),
            term: status.term,
            elections: status.elections,
            series: status.series,
            sources: status.sources,
            first_event: Some(status.first),
            events: status.next,
            last_entry: status.last.map(|last| last.index),
            applied_entry: status.applied.map(|applied| applied.index),
            log_bytes: member.log_bytes(),
            room_bytes: status.room,
            in_flight: status.in_flight,
            is_full: status.full,
            is_uncertain: status.uncertain,
            needs_recovery: status.needs_recovery,
            digest: hex(&status.digest),
        }
    }

    /// Ends in order: no more commands, no more events, then the member, which closes its log.
    pub(super) fn end(mut self) -> Result<(), String> {
        let feed = &self.feed.name;
        let courier = self.courier.take().map_or(Ok(()), Courier::end);
        let follower = self.follower.take().map_or(Ok(()), Follower::end);
        drop(self.multicast.take());
        let kept = self.keeper.take().map_or(Ok(()), |keeper| {
            let closed = self.runtime.block_on(keeper.close());
            closed.map_err(|error| format!("the archive of the feed {feed} ends: {error}"))
        });
        let closed = self.member.take().map_or(Ok(()), |member| {
            let closing = self.runtime.block_on(async { timeout(END_TIME, member.close()).await });
            match closing {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(format!("the member of the feed {feed} ends: {error}")),
                Err(_) => Err(format!(
                    "the member of the feed {feed} did not end within {END_TIME:?}: its log is left as after a kill"
                )),
            }
        });
        let courier = courier.map_err(|error| courier_problem(feed, &error));
        let follower = follower.map_err(|error| follower_problem(feed, &error));
        courier.and(follower).and(kept).and(closed)
    }
}

fn archive_report(keeper: &Keeper) -> notice::FeedArchive {
    let kept = keeper.kept();
    notice::FeedArchive {
        first_event: kept.first,
        events: kept.now.next,
        bytes: kept.bytes,
        is_full: kept.is_full,
        problem: keeper.problem(),
    }
}

fn multicast_report(multicast: &Multicast) -> notice::FeedMulticast {
    let counts = multicast.counts();
    notice::FeedMulticast {
        messages: counts.messages.load(Ordering::Relaxed),
        events: counts.events.load(Ordering::Relaxed),
        lost: counts.lost.load(Ordering::Relaxed),
        retransmissions: counts.repaired.load(Ordering::Relaxed),
        dropped: multicast.dropped(),
        problem: multicast.problem(),
    }
}

fn follower_problem(feed: &str, error: &FollowError) -> String {
    let advice = match error {
        FollowError::Diverged { .. } => {
            ": programs that have seen them are to begin again. Stop them and this node, remove the bus, and start the node: a new bus is filled"
        }
        _ => "",
    };
    format!("the events of the feed {feed} cannot be brought to this host: {error}{advice}")
}

fn courier_problem(feed: &str, error: &CourierError) -> String {
    format!("the commands of the feed {feed} cannot be brought: {error}")
}

/// Returns the settings of the bus of commands: where the node's bus is, and for those who may use that.
fn bus_config(bus: &config::Bus) -> BusConfig {
    let mut config = BusConfig::new().participant_name("node");
    if let Some(directory) = &bus.directory {
        config = config.directory(directory);
    }
    if let Some(group) = &bus.writers {
        config = config.writers_group(group);
    }
    if let Some(group) = &bus.readers {
        config = config.readers_group(group);
    }
    config
}

fn start_member(
    runtime: &Runtime,
    config: &config::Node,
    section: &config::Sequencer,
    feed: &Feed,
) -> Result<Group, String> {
    let Some((id, (name, address))) = section.own() else {
        return Err("this node is no member".to_owned());
    };
    let Some(directory) = section.log_directory(config) else {
        return Err(
            "a member keeps its log on a disk: set `log` in [sequencer], or `state` in [node]"
                .to_owned(),
        );
    };
    claim(&directory, &feed.name, name, id)?;
    let nanoseconds = Duration::from_nanos;
    let election = &section.election_timeout_ns;
    runtime.block_on(async {
        let listener = TcpListener::bind(address.to_string()).await.map_err(|error| {
            format!("the member {name} cannot listen on {address}: {error}; `members` has its address on this host")
        })?;
        let options = GroupOptions {
            feed: feed.name.clone(),
            id,
            listener,
            keys: feed.keys,
            listed: feed.members.iter().map(|member| member.address.to_string()).collect(),
            directory: directory.clone(),
            log: log::Options {
                sync: section.sync_interval.map_or(Sync::Always, Sync::Interval),
                ..log::Options::default()
            },
            snapshot_bytes: SNAPSHOT_BYTES,
            retain_bytes: section.retain,
            timing: Timing {
                election: nanoseconds(election.start)..nanoseconds(election.end),
                heartbeat: section.heartbeat,
            },
            events: Box::new(IgnoreEvents),
        };
        let started = Group::start(options).await;
        started.map_err(|error| format!("the member {name} does not start: {error}"))
    })
}

fn start_archive(
    runtime: &Runtime,
    config: &config::Node,
    section: &config::Sequencer,
    feed: &Feed,
    source: u32,
) -> Result<Keeper, String> {
    let needed = (section.archive_address, section.archive_capacity, section.archive_place(config));
    let (Some(address), Some(capacity_bytes), Some(directory)) = needed else {
        return Err(
            "an archive needs `archive_address`, `archive_capacity` and a directory".to_owned()
        );
    };
    // It has the payloads of all commands.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    let _inside = runtime.enter();
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(|error| {
        format!("the archive cannot listen on {address}: {error}; choose another `archive_address`")
    })?;
    let started = Keeper::start(KeeperOptions {
        feed: feed_id(&feed.name),
        directory,
        listener,
        keys: feed.keys,
        members: feed.targets(Role::Follower { source: Some(source) }),
        capacity_bytes,
    });
    started.map_err(|error| format!("the archive does not start: {error}"))
}

/// Makes the directory of a log, and notes in it whose log it is. A member that took another one's number, because
/// somebody has changed the order of `members`, could vote twice.
fn claim(directory: &Path, feed: &str, name: &str, id: u64) -> Result<(), String> {
    let cannot = |what: &str, path: &Path, error: io::Error| {
        format!("cannot {what} {}: {error}", path.display())
    };
    // The log has the payloads of all commands.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| cannot("create", directory, error))?;
    let path: PathBuf = directory.join("member");
    let wanted = format!("feed {feed}\nmember {name}\nnumber {id}\n");
    match std::fs::read_to_string(&path) {
        Ok(found) if found == wanted => Ok(()),
        Ok(found) => Err(format!(
            "{} is the log of another member: it says {:?}, and the file of this node says {:?}. The number is the place in \
             `members`: keep the order of the list, and one directory for each member",
            directory.display(),
            found.trim().replace('\n', ", "),
            wanted.trim().replace('\n', ", "),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let temporary = directory.join("member.tmp");
            std::fs::write(&temporary, wanted)
                .and_then(|()| std::fs::File::open(&temporary)?.sync_all())
                .and_then(|()| std::fs::rename(&temporary, &path))
                .map_err(|error| cannot("write", &path, error))
        }
        Err(error) => Err(cannot("read", &path, error)),
    }
}
