//! Senders that never give up, what they were told, and the checker.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use toroni_testkit::Random;

use super::{Cluster, call, equal, links, until};
use crate::batch::{Builder, Command, CommandId, Open, Publish};
use crate::machine::{Outcome, Refusal};
use crate::rpc::{Answer, Request};

const SENDERS: u32 = 3;
/// Each sender learns of more events than this, or the test was of no use.
const FEWEST: u64 = 100;

/// What senders were answered.
#[derive(Default)]
struct Acknowledged {
    stops: AtomicBool,
    count: AtomicU64,
    /// Of these, how many events each sender was told.
    told: [AtomicU64; SENDERS as usize],
    /// Milliseconds since the start, of the last answer, and the longest time without any.
    last_ms: AtomicU64,
    stall_ms: AtomicU64,
}

impl Acknowledged {
    fn note(&self, since: Instant, count: u64) {
        let now = u64::try_from(since.elapsed().as_millis()).expect("short");
        let last = self.last_ms.swap(now, Ordering::Relaxed);
        self.stall_ms.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
        self.count.fetch_add(count, Ordering::Relaxed);
    }
}

fn payload(source: u32, number: u64) -> String {
    format!("command {number} of {source}")
}

pub(super) fn submission(commands: &[Command<'_>]) -> Request {
    let mut builder = Builder::new();
    commands.iter().for_each(|command| builder.push(command).expect("short"));
    Request::Submit(builder.finish().expect("commands").into())
}

/// Sends commands until it is stopped, and returns the event numbers that it was told, by number of the command.
async fn send(
    source: u32,
    addresses: Vec<String>,
    since: Instant,
    acknowledged: Arc<Acknowledged>,
    seed: u64,
) -> BTreeMap<u64, u64> {
    let mut random = Random::new(seed);
    let links = links(&addresses);
    let mut told = BTreeMap::new();
    let mut number = 0;
    let mut at = 0;
    let mut silent = None;
    while !acknowledged.stops.load(Ordering::Relaxed) {
        // Where the series continues, as any new leader knows it.
        let open = Open { source, series: 9, session: 1, bus: [3; 16] };
        match call(&links[at], submission(&[Command::Open(open)])).await {
            Some(Answer::Outcomes(_)) => {}
            answer => {
                if answer.is_none() {
                    silent = Some(at);
                }
                at = match answer {
                    Some(Answer::NotLeader(Some((leader, _))))
                        if leader != at as u64 && silent.is_none_or(|it| it as u64 != leader) =>
                    {
                        usize::try_from(leader).expect("a member")
                    }
                    _ => (at + 1) % links.len(),
                };
                if silent == Some(at) {
                    // It is asked again when no other one leads for long.
                    silent = None;
                    at = (at + 1) % links.len();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        }
        match call(&links[at], Request::Source(source)).await {
            // What is known beyond the answers was sequenced, and the answer lost.
            Some(Answer::Source(Some(state))) => number = state.next.max(number),
            _ => continue,
        }
        while !acknowledged.stops.load(Ordering::Relaxed) {
            let count = random.between(1, 20);
            let payloads: Vec<_> =
                (number..number + count).map(|number| payload(source, number)).collect();
            let commands: Vec<_> = (number..)
                .zip(&payloads)
                .map(|(number, payload)| {
                    let id = CommandId { source, series: 9, number };
                    let payload = payload.as_bytes();
                    Command::Publish(Publish { id, to_descendants: false, topic: "t", payload })
                })
                .collect();
            let outcomes = match call(&links[at], submission(&commands)).await {
                Some(Answer::Outcomes(outcomes)) => outcomes,
                Some(_) => break,
                None => {
                    silent = Some(at);
                    at = (at + 1) % links.len();
                    break;
                }
            };
            assert_eq!(outcomes.len(), commands.len());
            let before = told.len();
            for (command, outcome) in (number..).zip(outcomes) {
                match outcome {
                    Outcome::Sequenced(event) => {
                        assert_eq!(told.insert(command, event), None);
                    }
                    Outcome::Duplicate => {}
                    // Commands of before a reconnection arrived later than those after it.
                    Outcome::Refused(Refusal::Wanted(_)) => break,
                    Outcome::Refused(refusal) => panic!("{refusal}"),
                }
                number = command + 1;
            }
            let events = (told.len() - before) as u64;
            acknowledged.told[source as usize].fetch_add(events, Ordering::Relaxed);
            acknowledged.note(since, count);
        }
    }
    told
}

/// The events of a member's last life, which has seen all: no snapshot was taken.
fn events_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().map(str::to_owned).collect()
}

/// Senders that bring commands to a cluster.
pub(super) struct Load {
    acknowledged: Arc<Acknowledged>,
    senders: Vec<JoinHandle<BTreeMap<u64, u64>>>,
}

impl Load {
    pub(super) fn start(cluster: &Cluster<'_>, random: &mut Random) -> Self {
        let acknowledged = Arc::new(Acknowledged::default());
        let since = Instant::now();
        let start = |source| {
            let (addresses, acknowledged) = (cluster.addresses.clone(), Arc::clone(&acknowledged));
            tokio::spawn(send(source, addresses, since, acknowledged, random.number()))
        };
        let senders = (0..SENDERS).map(start).collect();
        Self { acknowledged, senders }
    }

    /// Waits until commands become events.
    pub(super) async fn progress(&self) {
        let count = || self.acknowledged.count.load(Ordering::Relaxed);
        let before = count();
        until("commands come through", async || (count() > before + 100).then_some(())).await;
    }

    /// The longest time without any answer since the last call, in milliseconds.
    pub(super) fn stall_ms(&self) -> u64 {
        self.acknowledged.stall_ms.swap(0, Ordering::Relaxed)
    }

    /// Ends the senders, and returns what each was told.
    pub(super) async fn end(self) -> Vec<BTreeMap<u64, u64>> {
        self.acknowledged.stops.store(true, Ordering::Relaxed);
        let mut told = vec![];
        for sender in self.senders {
            told.push(sender.await.expect("a sender does not fail"));
        }
        told
    }

    /// Ends the senders, waits until these members have the same, kills all, and checks what they and the senders saw.
    /// Returns how many events there are.
    pub(super) async fn end_and_check(self, cluster: &mut Cluster<'_>, ids: &[usize]) -> u64 {
        until("each sender has events", async || {
            let has_some = |told: &AtomicU64| told.load(Ordering::Relaxed) > FEWEST;
            self.acknowledged.told.iter().all(has_some).then_some(())
        })
        .await;
        let told = self.end().await;
        let all = cluster.links();
        let links: Vec<_> = ids.iter().map(|id| all[*id].clone()).collect();
        let (next, _) = equal(&links).await;
        (0..cluster.members.len()).for_each(|id| cluster.kill(id));
        let orders: Vec<_> = ids.iter().map(|id| events_of(&cluster.events(*id))).collect();
        assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
        check(&orders[0], next, &told);
        next
    }
}

/// Knows no Raft: each event has its number, each source's commands are there once and in order, and what was told is so.
fn check(order: &[String], next: u64, told: &[BTreeMap<u64, u64>]) {
    assert_eq!(order.len() as u64, next);
    let mut wanted = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (number, line) in order.iter().enumerate() {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().expect("a word");
        assert_eq!(word(), number.to_string());
        let Ok(source) = word().parse::<u32>() else { continue };
        let command: u64 = word().parse().expect("a number");
        assert_eq!(word(), format!("{:?}", payload(source, command)));
        let next = wanted.entry(source).or_insert(0);
        assert_eq!(command, *next, "of source {source}");
        *next += 1;
        places.insert((source, command), number as u64);
    }
    for (source, told) in (0..).zip(told) {
        assert!(told.len() as u64 > FEWEST, "source {source}");
        for (command, event) in told {
            assert_eq!(
                places.get(&(source, *command)),
                Some(event),
                "command {command} of {source}"
            );
        }
    }
}
