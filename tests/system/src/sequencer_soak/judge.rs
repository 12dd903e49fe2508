//! Checks what was recorded.

use super::load::target;
use super::site::Site;
use super::supervisor::{Plan, Soak};
use super::trace::{Reader, Seen, event_of};
use crate::{Program, TempRoot, program};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::time::timeout;
use toroni_sequencer::batch::{Command, Publish};
use toroni_sequencer::rpc::{Answer, Fetch, Link, Request, Role};
use toroni_testkit::history::{Event, History, Id, Sent, Trace};

/// At most this many violations are shown.
pub(super) const SHOWN: usize = 50;
/// No member needs more memory, whatever happens.
const MOST_KIB: u64 = 256 << 10;
/// What is purged at the latest, two segments that are allocated ahead, and states.
const MOST_LOG_BYTES: u64 = (64 + 2 * 64 + 16) << 20;
/// How long an archive may take for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Reads everything, ends the nodes, and checks all rules.
pub(super) fn judge(soak: &mut Soak<'_>, root: &TempRoot) {
    let archive = archived(soak);
    if archive.is_none() {
        soak.violation("the archive does not answer".to_owned());
    }
    soak.end();
    let seen: Vec<Seen> = soak.readers.iter().map(Reader::seen).collect();
    let mut history = History {
        confirms: soak.confirms(),
        calm: soak.figures.calm.clone(),
        limit: soak.plan.limit,
        ..History::default()
    };
    for (host, seen) in seen.iter().enumerate() {
        let next = seen.events.last().map_or(0, |event| event.number + 1);
        let mut trace = Trace::new(format!("host {host}"), 0..next, seen.events.clone());
        trace.losses.clone_from(&seen.losses);
        history.traces.push(trace);
        history.overwritten.extend(&seen.overwritten);
        for problem in &seen.problems {
            soak.violation(format!("on the bus of host {host}: {problem}"));
        }
    }
    let logs: Vec<Trace> = Soak::members_of(&soak.sites).map(|site| log(site, root)).collect();
    history.traces.extend(logs);
    history.traces.extend(archive);
    // Hosts have no event without a command, so only logs and archives say what is there.
    let whole = &history.traces[soak.readers.len()..];
    history.purged = whole.iter().map(|trace| trace.numbers.start).min().unwrap_or(0);
    history.sent = sent(soak, &seen);
    sabotage(soak.plan, &mut history.traces[0]);
    weigh(soak);
    let found = history.violations();
    soak.figures.take(&history, &found);
    for violation in found.into_iter().take(SHOWN) {
        soak.violation(violation);
    }
}

/// All commands, with their sources and answers.
fn sent(soak: &Soak<'_>, seen: &[Seen]) -> Vec<Sent> {
    let mut all = vec![];
    for (senders, seen) in soak.senders.iter().zip(seen) {
        let series = senders.series();
        let own = seen.events.iter().filter_map(|event| event.command);
        let source = own.into_iter().find(|id| id.series == series).map_or(0, |id| id.source);
        let answers: BTreeMap<u64, _> =
            seen.answers.iter().map(|answer| (answer.number, answer)).collect();
        all.extend(senders.sent().iter().map(|sent| {
            let answer = answers.get(&sent.id.number);
            Sent {
                id: Id { source, ..sent.id },
                answered: answer.map(|answer| answer.at),
                event: answer.map(|answer| answer.event),
                ..*sent
            }
        }));
    }
    all
}

/// The log of a member, as `toroni sequencer log` reads it.
fn log(site: &Site, root: &TempRoot) -> Trace {
    let path = site.log();
    let mut command = std::process::Command::new(program::path());
    command.args(["sequencer", "log"]).arg(&path).arg("--json");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let errors = root.file(&format!("log-{}-errors", site.number));
    command.stderr(Stdio::from(std::fs::File::create(errors).expect("a file")));
    let mut program = Program::start(command);
    let mut events: Vec<Event> = vec![];
    while let Some(line) = program.line() {
        let line = serde_json::from_str(&line).expect("JSON");
        events.extend(event_of(&line));
    }
    assert!(program.finish().status.success(), "toroni sequencer log {}", path.display());
    let numbers = events.first().map_or(0, |event| event.number)
        ..events.last().map_or(0, |event| event.number + 1);
    Trace::new(format!("the log of m{}", site.number), numbers, events)
}

/// What the archive has, as it answers.
fn archived(soak: &Soak<'_>) -> Option<Trace> {
    let site = &soak.sites[soak.archive()];
    let address = SocketAddr::from((site.host.address(), super::site::ARCHIVE_PORT));
    let fetched = site.host.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(fetch_all(address))
    });
    fetched.map(|(first, events)| {
        let next = events.last().map_or(first, |event| event.number + 1);
        Trace::new("the archive", first..next, events)
    })
}

async fn fetch_all(address: SocketAddr) -> Option<(u64, Vec<Event>)> {
    let link = Link::new(target(address, Role::Follower { source: None }));
    let (mut from, mut first, mut events) = (0, None, vec![]);
    loop {
        let fetch = Fetch { from, max_bytes: 512 << 10, wait: Duration::ZERO, series: None };
        let answer = timeout(ANSWER_TIME, link.call(&Request::Fetch(fetch))).await;
        let Ok(Ok(Answer::Fetched(fetched))) = answer else {
            return None;
        };
        from = from.max(fetched.first);
        first.get_or_insert(fetched.first);
        let Some(some) = fetched.events.filter(|some| some.count() > 0) else {
            if from >= fetched.now.next {
                break;
            }
            continue;
        };
        for (command, _) in some.commands() {
            if let Command::Publish(Publish { id, topic, payload, .. }) = command {
                let id = Id { source: id.source, series: id.series, number: id.number };
                events.push(Event::new(from, Some(id), topic, payload));
            }
            from += 1;
        }
    }
    Some((first.unwrap_or(0), events))
}

/// Makes a mistake with one event, to show that it is noticed.
fn sabotage(plan: &Plan, trace: &mut Trace) {
    let Some(mistake) = &plan.sabotage else { return };
    let at = trace.events.len() / 2;
    match mistake.as_str() {
        "drop" => drop(trace.events.remove(at)),
        "double" => trace.events.insert(at, trace.events[at]),
        "swap" => trace.events.swap(at, at + 1),
        mistake => panic!("no sabotage {mistake:?}: drop, double or swap"),
    }
}

/// H10.
fn weigh(soak: &mut Soak<'_>) {
    for at in 0..soak.sites.len() {
        let (kib, bytes) = (soak.sites[at].memory_kib, soak.sites[at].log_bytes);
        soak.figures.memory_kib = soak.figures.memory_kib.max(kib);
        soak.figures.log_bytes = soak.figures.log_bytes.max(bytes);
        if kib > MOST_KIB {
            soak.violation(format!(
                "H10: the node of host {at} had {kib} KiB, and {MOST_KIB} are allowed"
            ));
        }
        if bytes > MOST_LOG_BYTES {
            soak.violation(format!(
                "H10: the log of host {at} took {bytes} bytes, and {MOST_LOG_BYTES} are allowed"
            ));
        }
    }
}
