//! Which feed a command is about, who its members are, and how they are asked.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::node;
use clap::{Args, ValueHint};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;
use toroni_net::node::host_port::HostPort;
use toroni_net::node::{config, start};
use toroni_proto::wire::Keys;
use toroni_sequencer::raft::feed_id;
use toroni_sequencer::rpc::{
    Answer, Fetch, Fetched, Link, LinkError, Request, Role, Status, Target,
};
use toroni_shell::failure::Failure;

/// A member that does not answer within this time does not answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// A leader may need this long to change its group: it waits for members that catch up.
const CHANGE_TIME: Duration = Duration::from_secs(60);

/// How to reach a feed: the file of a node, or what it would say.
#[derive(Args)]
pub(super) struct Reach {
    /// The configuration file of a node, whose section `[sequencer]` names the feed and its members
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["feed", "members", "key_file"], required_unless_present_all = ["feed", "members"])]
    pub(super) config: Option<PathBuf>,
    /// The name of the feed, without a file
    #[arg(long, value_name = "NAME", requires = "members")]
    feed: Option<String>,
    /// All members, without a file: NAME=HOST:PORT,… in the order of the nodes' files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = member, requires = "feed")]
    members: Vec<(String, HostPort)>,
    /// The key of the realm, without a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "feed")]
    key_file: Option<PathBuf>,
}

pub(super) fn member(text: &str) -> Result<(String, HostPort), String> {
    let wrong = || "write NAME=HOST:PORT, such as a=10.0.0.1:4481 or a=alpha:4481".to_owned();
    let (name, address) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    Ok((name.to_owned(), address.parse().map_err(|_| wrong())?))
}

/// A member as a file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its place in the list.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) address: HostPort,
}

/// A feed and its members.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pub(crate) name: String,
    pub(crate) members: Vec<Member>,
    pub(crate) keys: Option<Keys>,
    /// Which of them the node of the file is.
    pub(crate) own: Option<u64>,
    /// Where archives answer.
    pub(crate) archives: Vec<HostPort>,
}

/// The node whose file was named, and its feed.
pub(super) struct OfNode {
    pub(super) node: Option<config::Node>,
    pub(super) feed: Feed,
}

impl Reach {
    /// Reads the file, and the key.
    pub(super) fn find(&self) -> Result<OfNode, Failure> {
        let Some(path) = &self.config else {
            let feed = self.feed.clone().unwrap_or_default();
            let key = self.key_file.as_deref().map(start::key).transpose();
            let first = key.map_err(|error| Failure::Failed(error.to_string()))?;
            let keys = first.map(|first| Keys { first, next: None });
            let (members, archives) = (numbered(&self.members), vec![]);
            let feed = Feed { name: feed, members, keys, own: None, archives };
            return Ok(OfNode { node: None, feed });
        };
        let node = node::configuration(path)?;
        let Some(section) = &node.sequencer else {
            let path = path.display();
            return Err(Failure::Usage(format!("{path} has no section [sequencer]")));
        };
        let keys = start::keys(&node).map_err(|error| Failure::Failed(error.to_string()))?;
        let feed = Feed::of_node(section, keys);
        Ok(OfNode { node: Some(node), feed })
    }
}

fn numbered(members: &[(String, HostPort)]) -> Vec<Member> {
    let numbered = (0..).zip(members);
    numbered
        .map(|(id, (name, address))| Member { id, name: name.clone(), address: address.clone() })
        .collect()
}

impl Feed {
    /// Returns the feed of a section.
    pub(crate) fn of_node(section: &config::Sequencer, keys: Option<Keys>) -> Self {
        Self {
            name: section.feed.clone(),
            members: numbered(&section.members),
            keys,
            own: section.own().map(|(id, _)| id),
            archives: section.archives.clone(),
        }
    }

    /// Returns the name of a member.
    pub(crate) fn name_of(&self, id: u64) -> String {
        let known = self.members.iter().find(|member| member.id == id);
        known.map_or_else(|| id.to_string(), |member| member.name.clone())
    }

    /// Returns how to reach each member, this node's own first.
    pub(crate) fn targets(&self, role: Role) -> Vec<Target> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.members.iter().partition(|member| Some(member.id) == self.own);
        own.into_iter().chain(others).map(|member| self.target(&member.address, role)).collect()
    }

    /// Returns how to reach each archive.
    pub(crate) fn archives(&self, role: Role) -> Vec<Target> {
        self.archives.iter().map(|address| self.target(address, role)).collect()
    }

    fn target(&self, address: &HostPort, role: Role) -> Target {
        Target {
            address: address.to_string(),
            feed: feed_id(&self.name),
            keys: self.keys,
            role,
            log: None,
            bind: None,
        }
    }

    /// Asks a member, and waits for its answer.
    pub(super) async fn ask(&self, member: &Member, request: &Request) -> Result<Answer, String> {
        self.ask_within(ANSWER_TIME, member, request).await
    }

    /// Asks the leader to change the group, and waits until it has.
    pub(super) async fn ask_leader(&self, request: &Request) -> Result<Answer, String> {
        let statuses = self.statuses().await;
        let leader = leader(&statuses).ok_or_else(|| {
            let problems: Vec<_> =
                statuses.iter().filter_map(|status| status.as_ref().err()).collect();
            let why = problems.first().map_or_else(String::new, |problem| format!(": {problem}"));
            format!("no leader of the feed {} is known{why}", self.name)
        })?;
        let answer = self.ask_within(CHANGE_TIME, &leader, request).await;
        answer.map_err(|problem| format!("the leader {}: {problem}", leader.name))
    }

    /// Has the leader change something, and waits until it has.
    pub(super) fn change(&self, request: &Request) -> Result<(), Failure> {
        match block_on(self.ask_leader(request))? {
            Ok(Answer::Done) => Ok(()),
            Ok(answer) => Err(Failure::Failed(unexpected(&answer))),
            Err(problem) => Err(Failure::Failed(problem)),
        }
    }

    /// Asks an archive how far it reaches.
    async fn ask_archive(&self, address: &HostPort) -> Result<Fetched, String> {
        let nothing = Fetch { from: u64::MAX, max_bytes: 0, wait: Duration::ZERO, series: None };
        match self.ask_at(ANSWER_TIME, address, &Request::Fetch(nothing)).await? {
            Answer::Fetched(fetched) => Ok(fetched),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Asks all archives at once how far they reach. The answers are in their order.
    pub(super) async fn archives_reach(&self) -> Vec<Result<Fetched, String>> {
        let mut asking = JoinSet::new();
        for (place, address) in self.archives.iter().cloned().enumerate() {
            let feed = self.clone();
            asking.spawn(async move { (place, feed.ask_archive(&address).await) });
        }
        in_order(asking).await
    }

    async fn ask_within(
        &self,
        limit: Duration,
        member: &Member,
        request: &Request,
    ) -> Result<Answer, String> {
        self.ask_at(limit, &member.address, request).await
    }

    async fn ask_at(
        &self,
        limit: Duration,
        address: &HostPort,
        request: &Request,
    ) -> Result<Answer, String> {
        let link = Link::new(self.target(address, Role::Tool));
        let called = timeout(limit, link.call(request)).await;
        let answered = called.map_err(|_| format!("no answer within {limit:?}"))?;
        answered.map_err(|error| self.explained(&error))
    }

    /// Asks all members at once. The answers are in the order of the members.
    pub(super) async fn ask_all(&self, request: &Request) -> Vec<Result<Answer, String>> {
        let mut asking = JoinSet::new();
        for (place, member) in self.members.iter().cloned().enumerate() {
            let (feed, request) = (self.clone(), request.clone());
            asking.spawn(async move { (place, feed.ask(&member, &request).await) });
        }
        in_order(asking).await
    }

    /// Asks all members how they are.
    pub(super) async fn statuses(&self) -> Vec<Result<Status, String>> {
        let answers = self.ask_all(&Request::Status).await;
        let status = |answer: Result<Answer, String>| match answer? {
            Answer::Status(status) => Ok(*status),
            answer => Err(unexpected(&answer)),
        };
        answers.into_iter().map(status).collect()
    }

    /// Asks a member whether a majority confirms that it leads.
    pub(super) async fn is_confirmed(&self, member: &Member) -> bool {
        matches!(self.ask(member, &Request::Confirm).await, Ok(Answer::Confirmed(_)))
    }

    /// A member ends a connection that has another key, or another feed, without a word.
    fn explained(&self, error: &LinkError) -> String {
        let text = error.to_string();
        if text.contains("eof") || text.contains("reset") || text.contains("MAC") {
            let key = if self.keys.is_some() { "another key" } else { "a key" };
            return format!("{text}: does it have {key}, or another feed than {}?", self.name);
        }
        text
    }
}

/// Returns all answers in the order of the questions.
async fn in_order<T: 'static>(asking: JoinSet<(usize, T)>) -> Vec<T> {
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the leader that the member of the highest term follows. It may be one that the list does not have.
fn leader(statuses: &[Result<Status, String>]) -> Option<Member> {
    let follows = statuses.iter().flatten().filter(|status| status.leader.is_some());
    let newest = follows.max_by_key(|status| status.term)?;
    let leader = newest.members.iter().find(|member| Some(member.id) == newest.leader)?;
    let address = leader.address.parse().ok()?;
    Some(Member { id: leader.id, name: leader.name.clone(), address })
}

/// Describes an answer to another question.
pub(super) fn unexpected(answer: &Answer) -> String {
    match answer {
        Answer::Failed(reason) | Answer::Refused(reason) => reason.clone(),
        Answer::NotLeader(None) => "it knows no leader".to_owned(),
        Answer::NotLeader(Some((_, address))) => format!("the leader is at {address}"),
        _ => "it answered something else".to_owned(),
    }
}

/// Runs what a command asks of members.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    Ok(runtime.block_on(work))
}

/// Returns bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
