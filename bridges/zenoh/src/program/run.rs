//! Runs the bridge until a signal ends it.

use super::options::Options;
use super::ready::{self, Ready};
use super::{Failure, file, findings, log, metrics};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toroni_http::Request;
use toroni_zenoh::{Bridge, BridgeError, Config, Counters, State};

/// How long the bridge may take to leave Zenoh and the bus, after the drain.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How often it checks what the bridge is doing, once that is settled.
const LOOK: Duration = Duration::from_millis(500);

enum Happened {
    Signal(i32),
    Started(Result<Bridge, BridgeError>),
    /// The bridge does something else.
    Now(State),
    Stopped,
}

/// Runs the program without a command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let ready = Ready::claim(options.ready_fd)?;
    let settings = file::settings(options)?;
    let (refused, warnings): (Vec<_>, Vec<_>) =
        findings::of(&settings).into_iter().partition(|finding| finding.is_refused);
    if !refused.is_empty() {
        let all: Vec<String> = refused.iter().map(ToString::to_string).collect();
        return Err(Failure::Refused(all.join("\ntoroni zenoh: ")));
    }
    log::start(settings.log)?;
    for warning in warnings {
        // The names of settings are not text of the user; the rest is quoted.
        tracing::info!("{warning}");
    }
    let (sender, receiver) = channel();
    watch_signals(sender.clone())?;
    let limit = settings.bridge.drain.saturating_add(STOP_LIMIT);
    start(settings.bridge, sender.clone())?;
    let bridge = loop {
        match receiver.recv() {
            Ok(Happened::Started(Ok(bridge))) => break bridge,
            Ok(Happened::Started(Err(error))) => return Err(failure(error)),
            Ok(Happened::Signal(SIGTERM | SIGINT)) => {
                tracing::info!("a signal ended the bridge before it had started");
                return Ok(());
            }
            Ok(Happened::Signal(signal)) => tracing::info!("{}", of_no_use(signal)),
            Ok(Happened::Now(_) | Happened::Stopped) | Err(_) => return Err(lost_thread()),
        }
    };
    let bridge = Arc::new(Shared(Mutex::new(Some(bridge))));
    watch_state(&bridge, sender.clone())?;
    if let Some(address) = settings.metrics {
        let source = Arc::clone(&bridge);
        let answer = move |request: &Request<'_>| {
            toroni_http::metrics::answer(request, || metrics::text(source.counters()))
        };
        let bound = toroni_http::serve_in_thread(address, Arc::new(answer)).map_err(|error| {
            Failure::Failed(format!("cannot serve metrics on {address}: {error}"))
        })?;
        tracing::info!("metrics are at http://{bound}/metrics");
    }
    let mut ready = Some(ready);
    loop {
        match receiver.recv() {
            Ok(Happened::Signal(SIGTERM | SIGINT)) => break,
            Ok(Happened::Signal(SIGUSR1)) => write_counters(bridge.counters()),
            Ok(Happened::Signal(signal)) => tracing::info!("{}", of_no_use(signal)),
            Ok(Happened::Now(State::Failed(why))) => return Err(Failure::Failed(why)),
            Ok(Happened::Now(state)) => {
                match state {
                    State::Active => tracing::info!("the bridge works"),
                    State::StandBy => {
                        tracing::info!("the bridge stands by: another one of this bus is at work");
                    }
                    _ => continue,
                }
                if let Some(ready) = ready.take() {
                    ready.signal()?;
                }
            }
            Ok(Happened::Started(_) | Happened::Stopped) => {}
            Err(_) => return Err(lost_thread()),
        }
    }
    ready::stopping();
    stop(&bridge, sender, &receiver, limit)
}

/// Starts the bridge in a thread, so that a signal can end a start that waits.
fn start(config: Config, sender: Sender<Happened>) -> Result<(), Failure> {
    let work = move || {
        // The other end may have left because of a signal.
        let _ = sender.send(Happened::Started(Bridge::start(&config)));
    };
    spawn("start", work)
}

/// Tells when the bridge works, stands by, or has failed.
fn watch_state(bridge: &Arc<Shared>, sender: Sender<Happened>) -> Result<(), Failure> {
    let bridge = Arc::clone(bridge);
    spawn("state", move || {
        let mut told = State::Starting;
        loop {
            let now = match &*locked(&bridge) {
                Some(bridge) => bridge.state(),
                None => return,
            };
            let pause = if now == State::Starting { LOOK / 25 } else { LOOK };
            if now != told {
                told = now;
                if sender.send(Happened::Now(told.clone())).is_err() {
                    return;
                }
            }
            std::thread::sleep(pause);
        }
    })
}

fn locked(bridge: &Shared) -> MutexGuard<'_, Option<Bridge>> {
    bridge.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stop(
    bridge: &Shared,
    sender: Sender<Happened>,
    receiver: &Receiver<Happened>,
    limit: Duration,
) -> Result<(), Failure> {
    let counters = bridge.counters();
    let Some(bridge) = locked(bridge).take() else {
        return Ok(());
    };
    tracing::info!("the bridge stops");
    spawn("stop", move || {
        bridge.stop();
        let _ = sender.send(Happened::Stopped);
    })?;
    loop {
        match receiver.recv_timeout(limit) {
            Ok(Happened::Stopped) => {
                write_counters(counters);
                return Ok(());
            }
            Ok(Happened::Signal(SIGTERM | SIGINT)) => {
                return Err(Failure::Failed(
                    "a second signal ended it before it had left".to_owned(),
                ));
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failure::Failed(format!(
                    "the bridge did not stop within {} s",
                    limit.as_secs()
                )));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(lost_thread()),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(|error| {
        Failure::Failed(format!("cannot start a thread: {error} (see `ulimit -u`)"))
    })
}

fn watch_signals(sender: Sender<Happened>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])
        .map_err(|error| Failure::Failed(format!("cannot install a signal handler: {error}")))?;
    spawn("signals", move || {
        for signal in signals.forever() {
            if sender.send(Happened::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

fn of_no_use(signal: i32) -> &'static str {
    match signal {
        SIGHUP => {
            "SIGHUP: the configuration is not loaded again: restart the bridge, which costs no message that the ring \
             still has"
        }
        _ => "a signal came before the bridge had started: it has no effect",
    }
}

/// Counters that are not 0, in one line.
fn write_counters(counters: Counters) {
    let all: Vec<String> = counters
        .all()
        .iter()
        .filter(|(_, _, value)| *value > 0)
        .map(|(name, _, value)| format!("{name}={value}"))
        .collect();
    tracing::info!(
        "counters: {}",
        if all.is_empty() { "all are 0".to_owned() } else { all.join(" ") }
    );
}

fn failure(error: BridgeError) -> Failure {
    let text = log::one_line(&error.to_string());
    match error {
        BridgeError::Config { .. } | BridgeError::Pattern { .. } => Failure::Refused(text),
        _ => Failure::Failed(text),
    }
}

fn lost_thread() -> Failure {
    Failure::Failed("a thread of the bridge ended".to_owned())
}

/// The bridge, until it stops.
struct Shared(Mutex<Option<Bridge>>);

impl Shared {
    fn counters(&self) -> Counters {
        locked(self).as_ref().map(Bridge::counters).unwrap_or_default()
    }
}
