//! A TCP proxy: it connects each client to a server, and passes bytes on in both directions, for example an
//! `iperf3` session.
//!
//! ```console
//! $ iperf3 --server --port 5201 &
//! $ cargo run --release -p toroni-proactor --example tcp_proxy -- 127.0.0.1:5201 --listen 127.0.0.1:5200 &
//! listening on 127.0.0.1:5200
//! combined × epoll × pipe, shared
//! $ iperf3 --client 127.0.0.1 --port 5200 --bidir
//! ```
//!
//! Each direction of each connection has one buffer, which the proxy alternately fills and sends: a slow reader
//! makes the writer wait, and costs no memory. The end of a direction is passed on, and the other direction
//! continues. `TORONI_PROACTOR` names the engine.
//!
//! The proxy limits what clients can make it keep: the number of connections, each of which has two descriptors
//! and two buffers, and is closed when nothing has been passed on for some time.

#[path = "common/mod.rs"]
mod common;

use common::{ConnectionPermit, PAUSE, parse, seconds};
use std::net::{Shutdown, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use toroni_proactor::{BufResult, Config, Listener, OperationId, Proactor, Stream, WeakProactor};

const USAGE: &str = "\
usage: tcp_proxy TO [--listen ADDRESS] [--threads NUMBER] [--connections NUMBER] [--idle-timeout SECONDS]
  TO             the address of the server
  --listen       the address to listen on; default 127.0.0.1:0, which is any free port
  --threads      the number of threads; default: the number of cores
  --connections  the maximum number of open connections; default 1000. Others are closed at once
  --idle-timeout seconds after which a connection is closed if no buffer was filled or sent; default 300";

/// The length in bytes of a direction's buffer.
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
    let config = Config::from_environment()?.with_threads(options.threads);
    let proactor = Proactor::new(&config)?;
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
    /// Weak, because the proactor's handlers have this, and must not keep it alive.
    proactor: WeakProactor,
    open: Arc<AtomicUsize>,
    options: Options,
}

/// Accepts the next connection, and then the one after it.
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

/// Connects a client to the server. Closes a client beyond the limit, and one whose server cannot be reached.
fn connect(proxy: &Proxy, client: Stream) {
    let Some(permit) = ConnectionPermit::take(&proxy.open, proxy.options.connections) else {
        return;
    };
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
    Connection::close_when_idle(&connection, proxy.options.idle_timeout);
    let connected = Arc::clone(&connection);
    // In the same shard: one thread passes on what the other end has sent.
    let started = connection.client.connect_beside(to, move |server| match server {
        Ok(server) => connected.pass_on_both_ways(server),
        Err(error) => eprintln!("tcp_proxy: {to}: {error}"),
    });
    match started {
        Ok(operation) => drop(connection.connecting.set(operation)),
        Err(refused) => eprintln!("tcp_proxy: {to}: {refused}"),
    }
}

/// A client and its server. Its handlers hold it; it is closed with the last of them.
struct Connection {
    proactor: WeakProactor,
    client: Stream,
    /// Empty while the connection is being made.
    server: OnceLock<Stream>,
    connecting: OnceLock<OperationId>,
    /// The number of buffers filled or sent so far.
    transfers: AtomicU64,
    /// Checks whether that number has changed.
    timer: Mutex<Option<OperationId>>,
    _permit: ConnectionPermit,
}

impl Connection {
    fn pass_on_both_ways(self: Arc<Self>, server: Stream) {
        // Both ends have decided themselves whether to collect small writes.
        let _ = self.client.set_nodelay(true).and(server.set_nodelay(true));
        let client = self.client.clone();
        let _ = self.server.set(server.clone());
        Arc::clone(&self).pass_on(client.clone(), server.clone(), Vec::with_capacity(BUFFER));
        self.pass_on(server, client, Vec::with_capacity(BUFFER));
    }

    /// Passes bytes on from one end to the other, until the end of the stream.
    fn pass_on(self: Arc<Self>, from: Stream, to: Stream, buffer: Vec<u8>) {
        let source = from.clone();
        let read = source.read(buffer, move |BufResult(result, buffer)| match result {
            Ok(0) => {
                // The other direction continues.
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

    /// Closes the connection if nothing is passed on for that long.
    fn close_when_idle(this: &Arc<Self>, idle_timeout: Duration) {
        let Some(proactor) = this.proactor.upgrade() else { return };
        let (before, weak) = (this.transfers.load(Ordering::Relaxed), Arc::downgrade(this));
        let timer = proactor.timer(idle_timeout, move |over| {
            let Some(this) = Weak::upgrade(&weak).filter(|_| over.is_ok()) else { return };
            if this.transfers.load(Ordering::Relaxed) == before {
                this.end();
            } else {
                Self::close_when_idle(&this, idle_timeout);
            }
        });
        *this.timer.lock().unwrap_or_else(PoisonError::into_inner) = timer.ok();
    }

    /// Closes the connection, because one end is gone or both are idle. Operations that wait for the other end
    /// fail, which closes that end, too.
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
    idle_timeout: Duration,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut to, mut listen) = (None, SocketAddr::from(([127, 0, 0, 1], 0)));
        let (mut threads, mut connections) = (cores, 1000);
        let mut idle_timeout = Duration::from_secs(300);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--listen" => listen = parse(&value()?)?,
                "--threads" => threads = parse::<usize>(&value()?)?.max(1),
                "--connections" => connections = parse(&value()?)?,
                "--idle-timeout" => idle_timeout = seconds(&value()?)?,
                address if to.is_none() => to = Some(parse(address)?),
                more => return Err(format!("unexpected argument {more}")),
            }
        }
        let to = to.ok_or("the address of the server is missing")?;
        Ok(Self { to, listen, threads, connections, idle_timeout })
    }
}
