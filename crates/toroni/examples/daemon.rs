//! A daemon: one thread serves two subscribers, a TCP socket, a file and a timer.
//!
//! ```console
//! $ cargo run -p toroni --features proactor --example daemon -- 127.0.0.1:7070 seen.log &
//! $ cargo run -p toroni --example publish &
//! $ echo status | nc -N 127.0.0.1 7070
//! hello 12, alarms 0, lost 0
//! ```
//!
//! The first argument is the address on which the daemon listens. The second is the file to which
//! it appends every message. The bus is `$TORONI_BUS` (default: `default`), `TORONI_DIR` is the
//! directory of buses. Every second the daemon publishes its own status on `daemon/status`. The
//! administrator chooses the engine that waits for all of this: `TORONI_PROACTOR` is `auto`,
//! `combined`, `uring`, `epoll`, `poll`, or a configuration.
//!
//! SIGTERM and SIGINT end the daemon. It then writes everything that it has received to the file.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, error, fs, io};
use toroni::proactor::Subscribe;
use toroni::{Bus, Message, Publisher, ReceiveError};
use toroni_proactor::{Append, BufResult, File, Listener, Proactor, Stream, WeakProactor};

/// The daemon disconnects a client that is silent for this long.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum length of a client's line, in bytes.
const MAX_LINE_BYTES: usize = 1024;
/// The maximum number of bytes that wait for the disk. Further messages are lost, and counted.
const MAX_WAITING_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn error::Error>> {
    let (Some(address), Some(path)) = (env::args().nth(1), env::args().nth(2)) else {
        return Err("usage: daemon ADDRESS FILE".into());
    };
    let proactor = Proactor::from_environment()?;
    let name = env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    let bus = Bus::open(name.as_deref().unwrap_or("default"))?;
    let daemon = Daemon::new(&proactor, &path)?;

    // Two subscribers, whose messages go to the file, …
    for (number, pattern) in ["hello/**", "alarm/**"].into_iter().enumerate() {
        let (seeing, ending) = (daemon.clone(), daemon.clone());
        let subscriber = bus.subscribe(pattern)?;
        let subscription =
            proactor.subscribe(subscriber, move |message, _| seeing.saw(number, message))?;
        subscription.on_end(move |_| ending.ends(Some(number)));
    }
    // … a socket for the clients' queries, …
    let listener = Listener::bind(&proactor, address.parse()?)?;
    println!("listening on {}", listener.local_address()?);
    proactor.spawn(accept(listener, daemon.clone()))?;
    // … a timer, …
    proactor.spawn(tick(bus.publisher("daemon/status")?, daemon.clone()))?;
    // … and signals, each of which arrives as a byte in a stream.
    let (stop, sender) = UnixStream::pair()?;
    pipe::register(SIGTERM, sender.try_clone()?)?;
    pipe::register(SIGINT, sender)?;
    let stop = Stream::new(&proactor, stop)?;
    let stopping = daemon.clone();
    stop.read(vec![0; 1], move |_| stopping.ends(None))?;

    // This thread runs all handlers, until one calls `finish` and all operations have ended.
    proactor.run();
    daemon.state().log.write_rest()?;
    println!("{}", daemon.status());
    let mut state = daemon.state();
    let failure = state.cut_off.and_then(|number| state.failures[number].take());
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// The state that handlers and tasks share. It does not keep the proactor alive, because the
/// proactor owns it.
#[derive(Clone)]
struct Daemon {
    proactor: WeakProactor,
    state: Arc<Mutex<State>>,
}

struct State {
    log: Log,
    counts: [u64; 2],
    lost: u64,
    /// The last error of each subscriber. If the subscriber continues after it, the error is
    /// cleared.
    failures: [Option<ReceiveError>; 2],
    is_ending: bool,
    /// The subscriber that ended first.
    cut_off: Option<usize>,
}

impl Daemon {
    fn new(proactor: &Proactor, path: &str) -> Result<Self, Box<dyn error::Error>> {
        let log = Log::open(proactor, path)?;
        let failures = [None, None];
        let state =
            State { log, counts: [0, 0], lost: 0, failures, is_ending: false, cut_off: None };
        Ok(Self { proactor: proactor.downgrade(), state: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> String {
        let State { counts: [hello, alarms], lost, .. } = *self.state();
        format!("hello {hello}, alarms {alarms}, lost {lost}")
    }

    /// Ends the daemon, because a subscriber has ended or because of a signal.
    fn ends(&self, subscriber: Option<usize>) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_ending, true) {
            state.cut_off = subscriber;
            drop(state);
            self.proactor.upgrade().iter().for_each(Proactor::finish);
        }
    }

    /// Handles a subscriber's messages.
    fn saw(&self, number: usize, message: Result<Message<'_>, ReceiveError>) {
        let mut state = self.state();
        match message {
            Ok(message) => {
                if let Some(passed) = state.failures[number].take() {
                    eprintln!("daemon: continues after: {passed}");
                }
                if state.log.waiting.len() < MAX_WAITING_BYTES {
                    state.counts[number] += 1;
                    let line = format!("{} {}\n", message.topic(), message.text());
                    state.log.waiting.extend(line.into_bytes());
                } else {
                    state.lost = state.lost.saturating_add(1);
                }
            }
            Err(ReceiveError::Lapped { lost_messages, .. }) => {
                state.lost = state.lost.saturating_add(lost_messages);
            }
            Err(ReceiveError::Lost(lost)) => state.lost = state.lost.saturating_add(lost.messages),
            // No code interrupts the subscriber, and it would continue.
            Err(ReceiveError::Interrupted) => {}
            // Perhaps this is the last call, because the bus was removed or is broken. But the
            // subscriber continues after an invalid message. `on_end` is called in the first case
            // only.
            Err(error) => state.failures[number] = Some(error),
        }
        drop(state);
        self.write();
    }

    /// Writes the waiting bytes to the file, one operation at a time.
    fn write(&self) {
        let log = &mut self.state().log;
        if log.is_writing || log.waiting.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut log.waiting);
        let daemon = self.clone();
        let started = log.file.write(log.offset, bytes, move |BufResult(result, bytes)| {
            let written = match &result {
                Ok(written) => *written,
                Err(error) => {
                    // At the end of the program, `main` writes the bytes. Otherwise they wait for
                    // the next message.
                    if !error.is_cancelled() {
                        eprintln!("daemon: {error}");
                    }
                    0
                }
            };
            daemon.state().log.wrote(written, bytes);
            if result.is_ok() {
                daemon.write();
            }
        });
        match started {
            Ok(_) => log.is_writing = true,
            // The proactor is stopping.
            Err(refused) => log.waiting = refused.buffer,
        }
    }
}

/// The file. `main` writes what cannot be written while the daemon runs, or is cancelled at its
/// end.
struct Log {
    file: File,
    at_the_end: fs::File,
    offset: u64,
    waiting: Vec<u8>,
    is_writing: bool,
}

impl Log {
    fn open(proactor: &Proactor, path: &str) -> Result<Self, Box<dyn error::Error>> {
        let at_the_end =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        let offset = at_the_end.metadata()?.len();
        let file = File::new(proactor, at_the_end.try_clone()?)?;
        Ok(Self { file, at_the_end, offset, waiting: Vec::new(), is_writing: false })
    }

    /// Takes the buffer back. The bytes that were not written precede those that arrived in the
    /// meantime.
    fn wrote(&mut self, bytes: usize, mut buffer: Vec<u8>) {
        self.is_writing = false;
        self.offset += bytes as u64;
        buffer.drain(..bytes);
        buffer.append(&mut self.waiting);
        self.waiting = buffer;
    }

    fn write_rest(&mut self) -> io::Result<()> {
        self.at_the_end.write_all_at(&self.waiting, self.offset)
    }
}

/// Accepts clients and spawns a task for each.
async fn accept(listener: Listener, daemon: Daemon) {
    // Only the end of the daemon ends this loop. Other errors are temporary: a client disconnects
    // before it is accepted, or there are too many.
    loop {
        match listener.accept_async().await {
            Ok((stream, _)) => {
                let Some(proactor) = daemon.proactor.upgrade() else { return };
                let _ = proactor.spawn(answer(stream, daemon.clone()));
            }
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                eprintln!("{error}");
                let Some(proactor) = daemon.proactor.upgrade() else { return };
                let later = proactor.timer_async(Duration::from_secs(1));
                drop(proactor);
                let _ = later.await;
            }
        }
    }
}

/// Answers a client's lines, until the client disconnects or is silent for too long.
async fn answer(stream: Stream, daemon: Daemon) {
    let mut line = Vec::with_capacity(MAX_LINE_BYTES);
    loop {
        let read = stream.read_async(Append(line)).within(CLIENT_TIMEOUT).await;
        let BufResult(Ok(1..), Append(mut text)) = read else { return };
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let reply = match text[..end].trim_ascii() {
                b"status" => daemon.status() + "\n",
                b"quit" => return,
                _ => "? status, quit\n".to_owned(),
            };
            text.drain(..=end);
            let BufResult(Ok(()), _) = stream.write_all_async(reply.into_bytes()).await else {
                return;
            };
        }
        if text.len() == text.capacity() {
            return;
        }
        line = text;
    }
}

/// Publishes the status every second.
async fn tick(publisher: Publisher, daemon: Daemon) {
    loop {
        let Some(proactor) = daemon.proactor.upgrade() else { return };
        let second = proactor.timer_async(Duration::from_secs(1));
        drop(proactor);
        if second.await.is_err() {
            return;
        }
        // This does not wait for slow subscribers, because the next status follows in a second.
        let _ = publisher.try_publish(daemon.status());
    }
}
