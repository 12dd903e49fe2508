//! An HTTP/1.1 server of the files below a directory, for `curl`, `wrk`, `ab` and browsers.
//!
//! ```console
//! $ cargo run --release -p toroni-proactor --example http_server -- target/doc --listen 127.0.0.1:8080
//! listening on 127.0.0.1:8080
//! combined × epoll × pipe, shared
//! ```
//!
//! `TORONI_PROACTOR` names the engine, or two of them: one for the files and one for the sockets. The server
//! limits the number of connections, the length of a request's head, the length of a body that it discards, the
//! memory for a file that it sends, and the time that a client may take for a head, for a body and for
//! receiving a response, each as a whole.

#[path = "../common/mod.rs"]
mod common;
mod connection;
mod files;
mod request;
mod response;

use common::{ConnectionPermit, PAUSE, parse, seconds};
use files::Site;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use toroni_proactor::{Config, Listener, Proactor, Stream};

const USAGE: &str = "\
usage: http_server ROOT [--listen ADDRESS] [--threads NUMBER] [--connections NUMBER] [--timeout SECONDS]
  ROOT           the directory whose files are served
  --listen       the address to listen on; default 127.0.0.1:0, which is any free port
  --threads      the number of threads; default: the number of cores
  --connections  the maximum number of open connections; default 1000. Others receive status 503
  --timeout      seconds that a client has for a request's head, for its body, and for receiving a response;
                 default 30. A large file may take longer
The engine is read from TORONI_PROACTOR: auto, combined, uring, epoll, poll, posix, or a
TOML text or file.";

/// How long a client beyond the limit may take to read its refusal.
const REFUSAL: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("http_server: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::from_environment()?.with_threads(options.threads);
    let proactor = Proactor::new(&config)?;
    let site = Site::open(&proactor, &options.root)?;
    let listener = Listener::bind(&proactor, options.listen)?;
    common::say_where(&proactor, &listener)?;

    let connections =
        Connections { open: Arc::default(), limit: options.connections, timeout: options.timeout };
    proactor.spawn(accept(proactor.clone(), listener, Arc::new(site), connections))?;
    common::run(&proactor, options.threads);
    Ok(())
}

/// Accepts connections for ever, and spawns a task for each.
async fn accept(proactor: Proactor, listener: Listener, site: Arc<Site>, connections: Connections) {
    loop {
        match listener.accept_async().await {
            Ok((stream, _)) => {
                let Some(permit) = ConnectionPermit::take(&connections.open, connections.limit)
                else {
                    refuse(stream).await;
                    continue;
                };
                let (site, timeout) = (Arc::clone(&site), connections.timeout);
                let served = proactor.spawn(async move {
                    connection::serve(stream, &site, timeout).await;
                    drop(permit);
                });
                if served.is_err() {
                    return;
                }
            }
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                eprintln!("http_server: {error}");
                if proactor.timer_async(PAUSE).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Sends a refusal. The socket is new, so this short text fits into its buffer.
async fn refuse(stream: Stream) {
    let text = response::refusal();
    let _ = stream.write_all_async(text).within(REFUSAL).await;
}

/// The open connections, and their limits.
struct Connections {
    open: Arc<AtomicUsize>,
    limit: usize,
    timeout: Duration,
}

struct Options {
    root: PathBuf,
    listen: SocketAddr,
    threads: usize,
    connections: usize,
    timeout: Duration,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut root, mut listen) = (None, SocketAddr::from(([127, 0, 0, 1], 0)));
        let (mut threads, mut connections) = (cores, 1000);
        let mut timeout = Duration::from_secs(30);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--listen" => listen = parse(&value()?)?,
                "--threads" => threads = parse::<usize>(&value()?)?.max(1),
                "--connections" => connections = parse(&value()?)?,
                "--timeout" => timeout = seconds(&value()?)?,
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}"));
                }
                folder if root.is_none() => root = Some(PathBuf::from(folder)),
                more => return Err(format!("only one directory is served, not also {more}")),
            }
        }
        let root = root.ok_or("the directory is missing")?;
        Ok(Self { root, listen, threads, connections, timeout })
    }
}
