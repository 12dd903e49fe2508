//! A proxy for TCP: whoever connects to it is connected to somebody else, through which an `iperf3` session
//! goes, or anything.
//!
//! ```console
//! $ iperf3 --server --port 5201 &
//! $ cargo run --release -p toroni-proactor --example tcp_proxy -- 127.0.0.1:5201 --listen 127.0.0.1:5200 &
//! listening on 127.0.0.1:5200
//! combined × epoll × pipe, shared
//! $ iperf3 --client 127.0.0.1 --port 5200 --bidir
//! ```
//!
//! Each direction of each connection has one buffer, which is read into, and written from, in turns: a reader
//! that is slow makes the writer wait, and costs no memory. The end of a direction is passed on, and the
//! other direction goes on. The engine is the one that `TORONI_PROACTOR` names.
//!
//! What clients can make it keep is bounded: so many connections, each of which has two descriptors and two
//! buffers, and ends when for so long nothing has been passed on.

#[path = "common/mod.rs"]
mod common;

use common::{ConnectionPermit, PAUSE, parse, seconds};
use std::net::{Shutdown, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use toroni_proactor::{BufResult, Listener, OperationId, Proactor, Stream, WeakProactor};

const USAGE: &str = "\
usage: tcp_proxy TO [--listen ADDRESS] [--threads NUMBER] [--connections NUMBER] [--silence SECONDS]
  TO             the address that connections are passed on to
  --listen       where they come from; default 127.0.0.1:0, which is any free port
  --threads      threads that work; default as many as there are cores
  --connections  at the same time at most; default 1000. Others are closed at once
  --silence      seconds after which a connection is ended on which no buffer was filled or emptied; default 300";

/// What of a direction is in memory, in bytes.
const BUFFER: usize = 64 * 1024;

fn main() -> ExitCode {
    let outcome = Options::parse(std::env::args().skip(1)).map_err(Into::into).and_then(run);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tcp_proxy: {error}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let proactor = Proactor::from_environment()?;
    let listener = Listener::bind(&proactor, options.listen)?;
    common::say_where(&proactor, &listener)?;
    let proxy = Arc::new(Proxy { proactor: proactor.downgrade(), open: Arc::default(), options });
    let threads = proxy.options.threads;
    accept(proxy, &listener);
    common::run(&proactor, threads);
    Ok(())
}

/// What all connections share.
struct Proxy {
    /// Its handlers have this, and are not to keep it alive.
    proactor: WeakProactor,
    open: Arc<AtomicUsize>,
    options: Options,
}

/// Accepts the next connection, and when it is there the one after it.
fn accept(proxy: Arc<Proxy>, listener: &Listener) {
    let again = listener.clone();
    let started = listener.accept(move |accepted| match accepted {
        Ok((client, _)) => {
            connect(&proxy, client);
            accept(proxy, &again);
        }
        Err(error) => {
            eprintln!("tcp_proxy: {error}");
            let Some(proactor) = proxy.proactor.upgrade() else { return };
            let _ = proactor.timer(PAUSE, move |_| accept(proxy, &again));
        }
    });
    if let Err(refused) = started {
        eprintln!("tcp_proxy: {refused}");
    }
}

/// Connects a client to the other side. A client that is one too many, or whose other side is not there, is
/// dropped.
fn connect(proxy: &Proxy, client: Stream) {
    let Some(permit) = ConnectionPermit::take(&proxy.open, proxy.options.connections) else {
        return;
    };
    let Some(proactor) = proxy.proactor.upgrade() else { return };
    let to = proxy.options.to;
    let connection = Arc::new(Connection {
        proactor: proxy.proactor.clone(),
        client,
        server: OnceLock::new(),
        connecting: OnceLock::new(),
        transfers: AtomicU64::new(0),
        timer: Mutex::new(None),
        _permit: permit,
    });
    Connection::listen_for_silence(&connection, proxy.options.silence);
    let connected = Arc::clone(&connection);
    let started = Stream::connect(&proactor, to, move |server| match server {
        Ok(server) => connected.pass_on_both_ways(server),
        Err(error) => eprintln!("tcp_proxy: {to}: {error}"),
    });
    match started {
        Ok(operation) => drop(connection.connecting.set(operation)),
        Err(refused) => eprintln!("tcp_proxy: {to}: {refused}"),
    }
}

/// A client, and who it is connected to. Its handlers have it; it is closed with the last of them.
struct Connection {
    proactor: WeakProactor,
    client: Stream,
    /// None yet while it is being connected to.
    server: OnceLock<Stream>,
    connecting: OnceLock<OperationId>,
    /// How many buffers were filled or emptied, ever.
    transfers: AtomicU64,
    /// What looks whether there were any lately.
    timer: Mutex<Option<OperationId>>,
    _permit: ConnectionPermit,
}

impl Connection {
    fn pass_on_both_ways(self: Arc<Self>, server: Stream) {
        // Both sides have collected, or not collected, what is passed on, as they like it.
        let _ = self.client.set_nodelay(true).and(server.set_nodelay(true));
        let client = self.client.clone();
        let _ = self.server.set(server.clone());
        Arc::clone(&self).pass_on(client.clone(), server.clone(), Vec::with_capacity(BUFFER));
        self.pass_on(server, client, Vec::with_capacity(BUFFER));
    }

    /// Passes on what comes from one side to the other, until its end.
    fn pass_on(self: Arc<Self>, from: Stream, to: Stream, buffer: Vec<u8>) {
        let source = from.clone();
        let read = source.read(buffer, move |BufResult(result, buffer)| match result {
            Ok(0) => {
                // The other direction goes on.
                if to.shutdown(Shutdown::Write).is_err() {
                    self.end();
                }
            }
            Ok(_) => {
                self.transfers.fetch_add(1, Ordering::Relaxed);
                let target = to.clone();
                let written = target.write_all(buffer, move |BufResult(result, buffer)| {
                    self.transfers.fetch_add(1, Ordering::Relaxed);
                    match result {
                        Ok(()) => self.pass_on(from, to, buffer),
                        Err(_) => self.end(),
                    }
                });
                drop(written);
            }
            Err(_) => self.end(),
        });
        // A start is refused only when the proactor stops, and everything ends.
        drop(read);
    }

    /// Ends it if nothing is passed on for so long.
    fn listen_for_silence(this: &Arc<Self>, silence: Duration) {
        let Some(proactor) = this.proactor.upgrade() else { return };
        let (before, weak) = (this.transfers.load(Ordering::Relaxed), Arc::downgrade(this));
        let timer = proactor.timer(silence, move |over| {
            let Some(this) = Weak::upgrade(&weak).filter(|_| over.is_ok()) else { return };
            if this.transfers.load(Ordering::Relaxed) == before {
                this.end();
            } else {
                Self::listen_for_silence(&this, silence);
            }
        });
        *this.timer.lock().unwrap_or_else(PoisonError::into_inner) = timer.ok();
    }

    /// One side is gone, or both are silent. What waits for the other side ends with an error, and with it that
    /// side.
    fn end(&self) {
        for stream in std::iter::once(&self.client).chain(self.server.get()) {
            let _ = stream.shutdown(Shutdown::Both);
            stream.cancel();
        }
        if let (Some(connecting), Some(proactor)) = (self.connecting.get(), self.proactor.upgrade())
        {
            proactor.cancel(*connecting);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let timer = self.timer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(timer), Some(proactor)) = (timer, self.proactor.upgrade()) {
            proactor.cancel(timer);
        }
    }
}

struct Options {
    to: SocketAddr,
    listen: SocketAddr,
    threads: usize,
    connections: usize,
    silence: Duration,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut to, mut listen) = (None, SocketAddr::from(([127, 0, 0, 1], 0)));
        let (mut threads, mut connections) = (cores, 1000);
        let mut silence = Duration::from_secs(300);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--listen" => listen = parse(&value()?)?,
                "--threads" => threads = parse::<usize>(&value()?)?.max(1),
                "--connections" => connections = parse(&value()?)?,
                "--silence" => silence = seconds(&value()?)?,
                address if to.is_none() => to = Some(parse(address)?),
                more => return Err(format!("cannot make sense of {more}")),
            }
        }
        let to = to.ok_or("where to?")?;
        Ok(Self { to, listen, threads, connections, silence })
    }
}
