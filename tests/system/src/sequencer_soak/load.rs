//! The programs of the hosts: they send commands, and ask the members who leads.

use super::site::FEED;
use crate::Random;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toroni::PublishError;
use toroni_proto::wire::{Key, Keys};
use toroni_sequencer::commands::{Commands, CommandsError};
use toroni_sequencer::raft::feed_id;
use toroni_sequencer::rpc::{Answer, Link, Request, Role, Target};
use toroni_testkit::history::{Confirm, Id, Sent, now};
use toroni_testkit::network::Host;

/// The key of the realm.
pub(super) const KEY: [u8; 32] = [5; 32];
/// How long a program waits until its command is on the bus, before it checks whether it must end.
const SENDING: Duration = Duration::from_millis(200);
/// How often each member is asked to confirm that it leads.
const ASKING: Duration = Duration::from_millis(100);
/// More than a member takes for its answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// A payload is a text that no other command has, and up to this many bytes more.
const LONGEST: usize = 300;

/// The programs of a host that send.
#[derive(Debug)]
pub(super) struct Senders {
    commands: Commands,
    host: usize,
    /// Up to which number commands were sent.
    next: AtomicU64,
    sent: Mutex<Vec<Sent>>,
}

impl Senders {
    pub(super) fn new(commands: Commands, host: usize) -> Self {
        Self { commands, host, next: AtomicU64::new(0), sent: Mutex::default() }
    }

    pub(super) fn series(&self) -> u32 {
        self.commands.series()
    }

    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// All that was sent so far.
    pub(super) fn sent(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one command, if the bus takes it in time.
    pub(super) fn send(&self, topic: &str, payload: &str) -> bool {
        let before = now();
        let command = match self.commands.send_timeout(topic, payload, SENDING) {
            Ok(command) => command,
            Err(CommandsError::Publish(PublishError::Timeout)) => return false,
            Err(error) => panic!("host {}: {error}", self.host),
        };
        let id = Id { source: 0, series: command.series, number: command.number };
        self.sent().push(Sent::new(id, topic, payload.as_bytes(), before));
        self.next.fetch_max(command.number + 1, Ordering::Relaxed);
        true
    }

    /// Sends commands, `pause` apart, until all is over.
    pub(super) fn run(
        &self,
        sender: usize,
        pause: Duration,
        mut random: Random,
        ends: &AtomicBool,
    ) {
        let topic = format!("from/{}/{sender}", self.host);
        for number in 0_u64.. {
            if ends.load(Ordering::Relaxed) {
                break;
            }
            let more = "x".repeat(random.length(LONGEST));
            self.send(&topic, &format!("{} {sender} {number} {more}", self.host));
            std::thread::sleep(pause);
        }
    }
}

/// Who leads, as members have confirmed it.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    confirms: Mutex<Vec<(Confirm, usize)>>,
}

impl Leaders {
    fn lock(&self) -> MutexGuard<'_, Vec<(Confirm, usize)>> {
        self.confirms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Confirm> {
        self.lock().iter().map(|(confirm, _)| *confirm).collect()
    }

    /// The member that was asked after this time, and confirmed that it leads.
    pub(super) fn since(&self, time: Duration) -> Option<usize> {
        let confirms = self.lock();
        let newer = confirms.iter().rev().take_while(|(confirm, _)| confirm.answered >= time);
        let newer = newer.filter(|(confirm, _)| confirm.asked >= time);
        newer.max_by_key(|(confirm, _)| confirm.term).map(|(_, member)| *member)
    }
}

/// How programs of this host call a member.
pub(super) fn target(member: SocketAddr, role: Role) -> Target {
    Target {
        address: member.to_string(),
        feed: feed_id(FEED),
        keys: Some(Keys { first: Key::new(KEY), next: None }),
        role,
        log: None,
        bind: None,
    }
}

/// Asks all members whether they lead, from a host, until all is over.
pub(super) fn ask(host: &Host, members: &[SocketAddr], leaders: &Arc<Leaders>, ends: &AtomicBool) {
    host.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut asking = JoinSet::new();
            for (member, address) in members.iter().enumerate() {
                asking.spawn(ask_one(member, target(*address, Role::Tool), Arc::clone(leaders)));
            }
            while !ends.load(Ordering::Relaxed) {
                sleep(ASKING).await;
            }
        });
    });
}

async fn ask_one(member: usize, target: Target, leaders: Arc<Leaders>) {
    let link = Link::new(target);
    loop {
        let asked = now();
        let answer = timeout(ANSWER_TIME, link.call(&Request::Confirm)).await;
        if let Ok(Ok(Answer::Confirmed(term))) = answer {
            let confirm = Confirm { term, asked, answered: now() };
            leaders.lock().push((confirm, member));
        }
        sleep(ASKING).await;
    }
}
