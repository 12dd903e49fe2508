//! Takes the snapshots and writes them as text.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::names::{ALL, Metric, Source};
use crate::participants;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use toroni::{Bus, BusStats, admin};
use toroni_shell::location::BusLocation;
use toroni_shell::note;
use toroni_shell::openmetrics::{self, Sample, Value};

/// How long a snapshot is used: there are at most two a second, however many clients ask.
const USED_FOR: Duration = Duration::from_millis(500);

/// How often the directory is searched for buses.
const SEARCHED_EVERY: Duration = Duration::from_secs(10);

/// The maximum number of buses that are found in a directory, where other users may create any number of them.
const MOST_BUSES: usize = 256;

/// A bus whose snapshot fails after more than this is left alone for [`LEFT_ALONE_FOR`]: another process locks it.
const SLOW: Duration = Duration::from_millis(500);
const LEFT_ALONE_FOR: Duration = Duration::from_secs(30);

/// How many buses are read at the same time. Any user may create buses in a directory for all, and lock them. Then one
/// read takes seconds, and the other buses must be served meanwhile.
const AT_ONCE: usize = 64;

/// The buses to observe, and the last snapshot of them.
pub(super) struct Observer {
    location: BusLocation,
    /// `None`: all in the directory.
    chosen: Option<Vec<String>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buses: Vec<String>,
    searched: Option<Instant>,
    /// Until when to leave slow buses alone.
    left_alone: BTreeMap<String, Instant>,
    /// Why each of the buses, or the directory (an empty name), could not be read.
    problems: BTreeMap<String, String>,
    last: Option<(Instant, Arc<String>)>,
}

impl Observer {
    pub(super) fn new(location: BusLocation, chosen: Option<Vec<String>>) -> Self {
        Self { location, chosen, state: Mutex::default() }
    }

    /// Returns the metrics in the text format of OpenMetrics, at most half a second old.
    pub(super) fn metrics(&self) -> Arc<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((taken, text)) = &state.last
            && taken.elapsed() < USED_FOR
        {
            return Arc::clone(text);
        }
        self.search(&mut state);
        let snapshots = self.snapshots(&mut state);
        let text = Arc::new(encoded(snapshots));
        // Counted from the end: a snapshot that took long does not make the next one due.
        state.last = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    /// Determines which buses to observe.
    fn search(&self, state: &mut State) {
        if let Some(chosen) = &self.chosen {
            state.buses.clone_from(chosen);
            return;
        }
        if state.searched.is_some_and(|searched| searched.elapsed() < SEARCHED_EVERY) {
            return;
        }
        state.searched = Some(Instant::now());
        let outcome = match admin::list(self.location.dir.as_deref()) {
            Ok(mut found) => {
                let left_out = found.len().saturating_sub(MOST_BUSES);
                found.truncate(MOST_BUSES);
                state.buses = found.into_iter().map(|bus| bus.name).collect();
                match left_out {
                    0 => Ok(()),
                    _ => Err(format!(
                        "there are more than {MOST_BUSES} buses: {left_out} are left out; choose with --bus"
                    )),
                }
            }
            Err(error) => {
                state.buses.clear();
                Err(error.to_string())
            }
        };
        state.report("", outcome.err());
    }

    /// Takes a snapshot of each bus.
    fn snapshots(&self, state: &mut State) -> Vec<Snapshot> {
        let now = Instant::now();
        let is_left_alone =
            |bus: &String| state.left_alone.get(bus).is_some_and(|until| now < *until);
        let (left_alone, tried): (Vec<String>, Vec<String>) =
            state.buses.iter().cloned().partition(is_left_alone);
        let mut snapshots: Vec<Snapshot> =
            left_alone.into_iter().map(|bus| Snapshot { bus, stats: None }).collect();
        for buses in tried.chunks(AT_ONCE) {
            for (bus, Read { stats, took }) in buses.iter().zip(self.read(buses)) {
                let (stats, problem) = match stats {
                    Ok(stats) => (Some(stats), None),
                    Err(problem) => (None, Some(problem)),
                };
                if problem.is_some() && took > SLOW {
                    let until = Instant::now().checked_add(LEFT_ALONE_FOR);
                    state.left_alone.extend(Some(bus.clone()).zip(until));
                }
                // A bus that vanished stays until the next search, as one that cannot be read.
                state.report(bus, problem);
                snapshots.push(Snapshot { bus: bus.clone(), stats });
            }
        }
        let State { problems, left_alone, buses, .. } = state;
        problems.retain(|bus, _| bus.is_empty() || buses.contains(bus));
        left_alone.retain(|bus, until| buses.contains(bus) && now < *until);
        snapshots.sort_by(|one, other| one.bus.cmp(&other.bus));
        snapshots
    }

    /// Reads buses at the same time, each in a thread of its own but the last.
    fn read(&self, buses: &[String]) -> Vec<Read> {
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for bus in &buses[..buses.len().saturating_sub(1)] {
                let thread = thread::Builder::new().spawn_scoped(scope, || self.read_one(bus));
                threads.push((bus, thread));
            }
            let last = buses.last().map(|bus| self.read_one(bus));
            let join = |(bus, thread): (&String, io::Result<ScopedJoinHandle<'_, Read>>)| {
                // If there is no thread left (`ulimit -u`), it is read here.
                thread
                    .ok()
                    .and_then(|thread| thread.join().ok())
                    .unwrap_or_else(|| self.read_one(bus))
            };
            let mut read: Vec<Read> = threads.into_iter().map(join).collect();
            read.extend(last);
            read
        })
    }

    fn read_one(&self, bus: &str) -> Read {
        let started = Instant::now();
        let stats = self.stats(bus);
        Read { stats, took: started.elapsed() }
    }

    /// Opens a bus for one snapshot only: an open bus would count as being in use, and a bus that was removed and
    /// created again would not be noticed.
    fn stats(&self, bus: &str) -> Result<BusStats, String> {
        let config = self.location.config();
        let bus: Bus = config.open_existing(bus).map_err(|error| error.to_string())?;
        bus.stats().map_err(|error| error.to_string())
    }
}

impl State {
    /// Remembers what is wrong with a bus, and prints it if that is new.
    fn report(&mut self, bus: &str, problem: Option<String>) {
        match problem {
            None => drop(self.problems.remove(bus)),
            Some(problem) if self.problems.get(bus) == Some(&problem) => {}
            Some(problem) => {
                let subject = if bus.is_empty() { String::new() } else { format!("bus {bus}: ") };
                note::remark(&format!("{subject}{problem}"));
                self.problems.insert(bus.to_owned(), problem);
            }
        }
    }
}

/// A snapshot, or why there is none, and how long that took.
struct Read {
    stats: Result<BusStats, String>,
    took: Duration,
}

/// What was seen of one bus; no `stats` if it cannot be read.
struct Snapshot {
    bus: String,
    stats: Option<BusStats>,
}

fn encoded(snapshots: Vec<Snapshot>) -> String {
    let snapshots = Snapshots(snapshots);
    openmetrics::text(ALL.iter().map(|it| (it.family(), snapshots.samples(it))).collect())
}

struct Snapshots(Vec<Snapshot>);

impl Snapshots {
    /// Returns the samples of a metric: the values of its labels, and its own.
    fn samples(&self, metric: &Metric) -> Vec<Sample> {
        let mut samples = Vec::new();
        for Snapshot { bus, stats } in &self.0 {
            let mut add = |labels: &[&str], value| {
                let labels = std::iter::once(bus.as_str()).chain(labels.iter().copied());
                samples.push((labels.map(str::to_owned).collect(), value));
            };
            if let Source::Readable = metric.source {
                for (part, is_readable) in readable(stats.as_ref()) {
                    add(&[part], Value::Whole(is_readable.into()));
                }
            }
            let Some(stats) = stats else { continue };
            let publishers = stats.publishers.iter().flatten();
            let subscribers = stats.subscribers.iter().flatten();
            match metric.source {
                Source::Readable => {}
                Source::Bus(read) => {
                    if let Some(value) = read(stats) {
                        add(&[], value);
                    }
                }
                Source::Participants => {
                    for (role, state, count) in participants(stats) {
                        add(&[role, state], Value::Whole(count));
                    }
                }
                Source::Publisher(read) => {
                    for one in publishers {
                        add(&[&one.name, &one.slot.to_string()], read(one));
                    }
                }
                Source::Subscriber(read) => {
                    for one in subscribers {
                        add(&[&one.name, &one.slot.to_string()], read(one));
                    }
                }
            }
        }
        samples
    }
}

/// Returns the parts of a bus, and whether this process can read them.
fn readable(stats: Option<&BusStats>) -> [(&'static str, bool); 3] {
    [
        ("ring", stats.is_some()),
        ("publishers", stats.is_some_and(|stats| stats.publishers.is_some())),
        ("subscribers", stats.is_some_and(|stats| stats.subscribers.is_some())),
    ]
}

/// Counts the participants of each role that this process can see, in each state.
fn participants(stats: &BusStats) -> Vec<(&'static str, &'static str, u64)> {
    let publishers = stats.publishers.as_ref().map(|all| {
        all.iter().map(|one| participants::state(one.alive, one.stopped, one.dumping)).collect()
    });
    let subscribers = stats.subscribers.as_ref().map(|all| {
        all.iter().map(|one| participants::state(one.alive, one.stopped, one.dumping)).collect()
    });
    let roles: [(&str, Option<Vec<&str>>); 2] =
        [("publisher", publishers), ("subscriber", subscribers)];
    let mut counts = Vec::new();
    for (role, states) in roles {
        let Some(states) = states else { continue };
        for state in participants::STATES {
            let count = states.iter().filter(|one| **one == state).count();
            counts.push((role, state, u64::try_from(count).unwrap_or(u64::MAX)));
        }
    }
    counts
}
