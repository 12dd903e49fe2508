//! Two bridges of one bus: the first works, the second stands by.
//!
//! Each bridge has a liveliness token whose last segment is its rank: when it was started, and its Zenoh id. The bridge
//! with the lowest rank works. A bridge that stands by listens to the heartbeats of the other one, and continues its
//! numbers. A bridge that finds no other asks the importers for the last heartbeats of its predecessor, which may have had
//! other exports.

use crate::BridgeError;
use crate::beat::Beat;
use crate::context::{Context, State, lock};
use crate::export::{Exporter, Plan as ExportPlan, end_of, oldest_of};
use crate::history::{self, Ask, Request};
use crate::import::{Importer, Plan as ImportPlan};
use crate::witness;
use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zenoh::Wait;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::query::{QueryTarget, Queryable};
use zenoh::sample::{Locality, SampleKind};

/// How long importers have to answer a bridge that starts.
const ANSWER: Duration = Duration::from_secs(3);
/// How often a bridge that stands by looks at what it knows.
const LOOK: Duration = Duration::from_millis(250);

/// What a bridge exports and imports.
pub(crate) struct Plans {
    pub(crate) exports: Vec<Arc<ExportPlan>>,
    pub(crate) imports: Arc<Vec<ImportPlan>>,
    pub(crate) queue: crate::config::Queue,
    pub(crate) settle: Duration,
}

/// The bridges of this bus that live.
pub(crate) struct Ranks {
    own: String,
    alive: Arc<Mutex<BTreeSet<String>>>,
    _token: LivelinessToken,
    _subscriber: Subscriber<()>,
}

impl Ranks {
    pub(crate) fn join(context: &Arc<Context>, realm: &str) -> Result<Self, BridgeError> {
        let failed = |action| move |source| BridgeError::Zenoh { action, source };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let zid = context.session.info().zid().wait();
        let own = format!("{:032x}-{zid}", now.unwrap_or_default().as_nanos());
        let base = format!("{}/alive/{realm}/{}", crate::key::CONTROL, context.identity.bus);
        let alive = Arc::new(Mutex::new(BTreeSet::from([own.clone()])));
        let (ranks, told) = (alive.clone(), context.clone());
        let liveliness = context.session.liveliness();
        let subscriber = liveliness
            .declare_subscriber(format!("{base}/*"))
            .history(true)
            .callback(move |sample| {
                let rank = sample.key_expr().as_str().rsplit('/').next().unwrap_or_default();
                match sample.kind() {
                    SampleKind::Put => lock(&ranks).insert(rank.to_owned()),
                    SampleKind::Delete => lock(&ranks).remove(rank),
                };
                told.wake();
            })
            .wait()
            .map_err(failed("watch other bridges"))?;
        let token = liveliness
            .declare_token(format!("{base}/{own}"))
            .wait()
            .map_err(failed("announce the bridge"))?;
        Ok(Self { own, alive, _token: token, _subscriber: subscriber })
    }

    /// Returns whether no other bridge goes first.
    fn is_first(&self) -> bool {
        lock(&self.alive).range(..self.own.clone()).next().is_none()
    }
}

/// Runs a bridge until it is stopped, or its session is doubtful.
pub(crate) fn run(context: &Arc<Context>, plans: &Plans, ranks: &Ranks) -> Result<(), BridgeError> {
    // What is published while the bridge looks around is exported, too.
    let mut begins = vec![end_of(context)?; plans.exports.len()];
    let _heard = listen(context, plans)?;
    let settled = Instant::now() + plans.settle;
    let is_done = |state: &State| state.is_over() || context.life().is_doubtful();
    context.wait(plans.settle, |state| is_done(state) || !ranks.is_first());
    let mut was_second = false;
    loop {
        if is_done(&context.state()) {
            return Ok(());
        }
        if !ranks.is_first() {
            if !was_second {
                context.counting.standbys.one();
            }
            was_second = true;
            context.set_state(State::StandBy);
            complete(context, plans);
            context.wait(LOOK, |state| is_done(state) || ranks.is_first());
            continue;
        }
        if was_second {
            context.counting.takeovers.one();
        } else {
            // No other bridge is here. Links may still be coming up.
            let left = settled.saturating_duration_since(Instant::now());
            context.wait(left, |state| is_done(state) || !ranks.is_first());
            if is_done(&context.state()) || !ranks.is_first() {
                continue;
            }
        }
        let running = Running::start(context, plans, &begins)?;
        context.set_state(State::Active);
        let has_gone_back = || context.life().has_gone_back();
        context.wait(Duration::MAX, |state| is_done(state) || !ranks.is_first() || has_gone_back());
        let stood = running.stop();
        // Where to begin if the other one ends without a heartbeat.
        let end = end_of(context)?;
        begins = stood.into_iter().map(|stood| stood.unwrap_or(end)).collect();
        was_second = false;
    }
}

/// Listens to heartbeats of this bus's exports, by whatever bridge.
fn listen(context: &Arc<Context>, plans: &Plans) -> Result<Vec<Subscriber<()>>, BridgeError> {
    let mut subscribers: Vec<Subscriber<()>> = Vec::new();
    for (index, plan) in plans.exports.iter().enumerate() {
        if plans.exports[..index].iter().any(|earlier| earlier.prefix == plan.prefix) {
            continue;
        }
        // The other bridge may have another edition of the configuration.
        let key = plan.prefix.control(&format!("beat/{}/*", context.identity.bus));
        let (told, plan) = (context.clone(), plan.clone());
        let subscriber = context
            .session
            .declare_subscriber(key)
            .allowed_origin(Locality::Remote)
            .callback(move |sample| {
                if let Some(beat) = Beat::parse(&sample.payload().to_bytes())
                    && end_of(&told).is_ok_and(|end| beat.until <= end)
                {
                    told.witness.take(&plan.prefix, &beat);
                }
            })
            .wait()
            .map_err(|source| BridgeError::Zenoh { action: "subscribe", source })?;
        subscribers.push(subscriber);
    }
    Ok(subscribers)
}

/// Asks for the counts of exports of which only parts are known.
fn complete(context: &Arc<Context>, plans: &Plans) {
    for plan in &plans.exports {
        let Some(numbering) =
            context.witness.incomplete(&plan.prefix, &context.identity.bus, plan.stream)
        else {
            continue;
        };
        let (told, answered) = (context.clone(), plan.clone());
        let asked = context
            .session
            .get(plan.prefix.control(&format!("join/{numbering:08x}")))
            .payload(Request::default().to_bytes())
            .target(QueryTarget::All)
            .allowed_destination(Locality::Remote)
            .accept_replies(zenoh::query::ReplyKeyExpr::Any)
            .callback(move |reply| {
                if let Ok(sample) = reply.result()
                    && let Some(beat) = Beat::parse(&sample.payload().to_bytes())
                {
                    told.witness.take(&answered.prefix, &beat);
                }
            })
            .wait();
        if let Err(error) = asked {
            tracing::debug!(%error, "cannot ask the other bridge for its counts");
        }
    }
}

/// Asks importers where the exports of this bus's last bridge ended. Returns their heartbeats, and the context to export
/// in: the series is another one if the bus is not as that bridge left it, because its numbers name other messages.
fn predecessor(
    context: &Arc<Context>,
    plans: &Plans,
) -> Result<(Arc<Context>, Vec<Beat>), BridgeError> {
    let identity = &context.identity;
    let name = format!("witness/{}/*", identity.bus);
    let mut keys = BTreeSet::from([format!("**/{}/{name}", crate::key::CONTROL)]);
    // No wildcard matches these.
    let verbatim = plans.exports.iter().filter(|plan| plan.prefix.has_verbatim());
    keys.extend(verbatim.map(|plan| plan.prefix.control(&name)));
    let mut beats = Vec::new();
    for plan in &plans.exports {
        beats.extend(context.witness.last(&plan.prefix, &identity.bus));
    }
    for key in keys.iter().filter(|_| !plans.exports.is_empty()) {
        beats.extend(witness::ask(&context.session, key, &identity.bus, ANSWER).beats);
    }
    beats.retain(|beat| beat.realm == identity.realm && beat.source == identity.source);
    let is_known = !beats.is_empty();
    beats.retain(|beat| identity.with_life(beat.life).series == beat.series);
    let life = beats.iter().map(|beat| beat.life).max().unwrap_or(0);
    beats.retain(|beat| beat.life == life);
    let end = end_of(context)?;
    let sent = beats.iter().map(|beat| beat.until).max();
    if context.life().take_gone_back() || is_known && sent.is_none_or(|sent| sent > end) {
        tracing::warn!(
            end,
            sent,
            "the bus is a copy, or has gone back to an earlier state: what it sends from now on gets new numbers"
        );
        let identity = identity.with_life(crate::identity::next_life(life));
        return Ok((Arc::new(context.with_identity(identity)), Vec::new()));
    }
    Ok((Arc::new(context.with_identity(identity.with_life(life))), beats))
}

/// A bridge at work.
struct Running {
    context: Arc<Context>,
    exporters: Vec<Exporter>,
    importer: Option<Importer>,
    queryables: Vec<Queryable<()>>,
    asks: SyncSender<Ask>,
    history: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts it. Exports whose predecessors are not known begin at these sequences.
    fn start(context: &Arc<Context>, plans: &Plans, begins: &[u64]) -> Result<Self, BridgeError> {
        let (asks, waiting) = std::sync::mpsc::sync_channel(history::QUEUE);
        let waiting = Arc::new(Mutex::new(waiting));
        let mut running = Self {
            context: context.clone(),
            exporters: Vec::new(),
            importer: None,
            queryables: Vec::new(),
            asks,
            history: Vec::new(),
        };
        // First, so that what exports cause to be sent here arrives.
        if !plans.imports.is_empty() {
            let importer = Importer::start(context.clone(), plans.imports.clone(), plans.queue)?;
            running.importer = Some(importer);
        }
        let (context, beats) = &predecessor(context, plans)?;
        // They send what an importer has missed with the numbers of this life of the bus.
        for _ in 0..history::THREADS {
            let (context, waiting) = (context.clone(), waiting.clone());
            let builder = std::thread::Builder::new().name("history".to_owned());
            let thread = builder.spawn(move || history::serve(&context, &waiting));
            running.history.push(thread.map_err(BridgeError::Thread)?);
        }
        let last = witness::predecessors(beats, oldest_of(context)?);
        for (plan, begins) in plans.exports.iter().zip(begins) {
            let table = plan.begin(context, &last, *begins);
            let unheard = last.is_empty().then(|| table.until());
            let asks = running.asks.clone();
            let (of, of_plan) = (context.clone(), plan.clone());
            running.exporters.push(Exporter::start(of, of_plan, table, unheard, asks)?);
            if plan.history {
                for pattern in &plan.patterns {
                    let queryable = running.queryable(context, plan, pattern.as_str())?;
                    running.queryables.push(queryable);
                }
            }
        }
        Ok(running)
    }

    fn queryable(
        &self,
        context: &Arc<Context>,
        plan: &Arc<ExportPlan>,
        pattern: &str,
    ) -> Result<Queryable<()>, BridgeError> {
        let failed = |source| BridgeError::Zenoh { action: "declare a queryable", source };
        let expression = crate::key::expression(plan.prefix.key(pattern)).map_err(failed)?;
        let (told, plan, asks) = (context.clone(), plan.clone(), self.asks.clone());
        context
            .session
            .declare_queryable(expression)
            .allowed_origin(Locality::Remote)
            .callback(move |query| {
                history::enqueue(&told, &asks, Ask::Public { query, plan: plan.clone() });
            })
            .wait()
            .map_err(failed)
    }

    /// Stops it. Returns where each export begins a new series, if it has ended for one.
    fn stop(mut self) -> Vec<Option<u64>> {
        self.end()
    }

    fn end(&mut self) -> Vec<Option<u64>> {
        self.queryables.clear();
        let goal = end_of(&self.context).ok();
        // All at once: each takes its time.
        self.exporters.iter().for_each(|exporter| exporter.stop(goal));
        let stood = self.exporters.iter_mut().map(Exporter::join).collect();
        self.exporters.clear();
        if let Some(importer) = self.importer.take() {
            importer.stop();
        }
        self.history.iter().for_each(|_| drop(self.asks.send(Ask::Stop)));
        for history in self.history.drain(..) {
            let _ = history.join();
        }
        stood
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
