//! Senders that never give up, and what they record.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use toroni_testkit::Random;
use toroni_testkit::history::{Event, History, Id, Sent, Trace, now};

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

const SERIES: u32 = 9;
const TOPIC: &str = "t";

fn payload(source: u32, number: u64) -> String {
    format!("command {number} of {source}")
}

/// A command that is sent now.
fn sent(source: u32, number: u64) -> Sent {
    let id = Id { source, series: SERIES, number };
    Sent::new(id, TOPIC, payload(source, number).as_bytes(), now())
}

pub(super) fn submission(commands: &[Command<'_>]) -> Request {
    let mut builder = Builder::new();
    commands.iter().for_each(|command| builder.push(command).expect("short"));
    Request::Submit(builder.finish().expect("commands").into())
}

/// Sends commands until it is stopped, and returns them.
async fn send(
    source: u32,
    addresses: Vec<String>,
    since: Instant,
    acknowledged: Arc<Acknowledged>,
    seed: u64,
) -> Vec<Sent> {
    let mut random = Random::new(seed);
    let links = links(&addresses);
    let mut all = vec![];
    let mut number = 0;
    let mut at = 0;
    let mut silent = None;
    while !acknowledged.stops.load(Ordering::Relaxed) {
        // Where the series continues, as any new leader knows it.
        let open = Open { source, series: SERIES, session: 1, bus: [3; 16], earlier: Some(&[]) };
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
            Some(Answer::Source(Some(state))) => {
                let events = (number..state.next).map(|number| sent(source, number));
                all.extend(events.map(|sent| Sent { answered: Some(now()), ..sent }));
                number = state.next.max(number);
            }
            _ => continue,
        }
        while !acknowledged.stops.load(Ordering::Relaxed) {
            let count = random.between(1, 20);
            let payloads: Vec<_> =
                (number..number + count).map(|number| payload(source, number)).collect();
            let commands: Vec<_> = (number..)
                .zip(&payloads)
                .map(|(number, payload)| {
                    let id = CommandId { source, series: SERIES, number };
                    let payload = payload.as_bytes();
                    Command::Publish(Publish { id, to_descendants: false, topic: TOPIC, payload })
                })
                .collect();
            let first = all.len();
            all.extend((number..number + count).map(|number| sent(source, number)));
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
            let answered = Some(now());
            let mut events = 0;
            for (sent, outcome) in all[first..].iter_mut().zip(outcomes) {
                match outcome {
                    Outcome::Sequenced(event) => {
                        (sent.answered, sent.event) = (answered, Some(event));
                        events += 1;
                    }
                    Outcome::Duplicate => sent.answered = answered,
                    // Commands of before a reconnection arrived later than those after it.
                    Outcome::Refused(Refusal::Wanted(_)) => break,
                    Outcome::Refused(refusal) => panic!("{refusal}"),
                }
                number = sent.id.number + 1;
            }
            acknowledged.told[source as usize].fetch_add(events, Ordering::Relaxed);
            acknowledged.note(since, count);
        }
    }
    all
}

/// The events of a member's last life, which has seen all: no snapshot was taken.
fn trace(name: String, path: &Path, next: u64) -> Trace {
    let event = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().expect("a word");
        let number = word().parse().expect("a number");
        let Ok(source) = word().parse() else {
            return Event::new(number, None, "", line.as_bytes());
        };
        let id = Id { source, series: SERIES, number: word().parse().expect("a number") };
        Event::new(number, Some(id), TOPIC, word().trim_matches('"').as_bytes())
    };
    let text = fs::read_to_string(path).expect("readable");
    let events: Vec<_> = text.lines().map(event).collect();
    assert_eq!(events.len() as u64, next, "{name}");
    Trace::new(name, 0..next, events)
}

/// Senders that bring commands to a cluster.
pub(super) struct Load {
    acknowledged: Arc<Acknowledged>,
    senders: Vec<JoinHandle<Vec<Sent>>>,
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

    /// Ends the senders, and returns the commands of each that became events, as it was told.
    pub(super) async fn end(self) -> Vec<Vec<Sent>> {
        let mut all = self.end_with_all().await;
        all.iter_mut().for_each(|sent| sent.retain(|sent| sent.event.is_some()));
        all
    }

    /// Ends the senders, and returns all that each sent.
    async fn end_with_all(self) -> Vec<Vec<Sent>> {
        self.acknowledged.stops.store(true, Ordering::Relaxed);
        let mut all = vec![];
        for sender in self.senders {
            all.push(sender.await.expect("a sender does not fail"));
        }
        all
    }

    /// Ends the senders, waits until these members have the same, kills all, and checks what they and the senders saw.
    /// Returns how many events there are.
    pub(super) async fn end_and_check(self, cluster: &mut Cluster<'_>, ids: &[usize]) -> u64 {
        until("each sender has events", async || {
            let has_some = |told: &AtomicU64| told.load(Ordering::Relaxed) > FEWEST;
            self.acknowledged.told.iter().all(has_some).then_some(())
        })
        .await;
        let sent = self.end_with_all().await.concat();
        let all = cluster.links();
        let links: Vec<_> = ids.iter().map(|id| all[*id].clone()).collect();
        let (next, _) = equal(&links).await;
        (0..cluster.members.len()).for_each(|id| cluster.kill(id));
        let trace = |id: &usize| trace(format!("m{id}"), &cluster.events(*id), next);
        let traces = ids.iter().map(trace).collect();
        History { sent, traces, ..History::default() }.check();
        next
    }
}
