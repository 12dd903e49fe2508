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

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;
use toroni_proactor::{BufResult, Listener, Proactor, Stream};

const USAGE: &str = "usage: tcp_proxy TO [--listen ADDRESS] [--threads NUMBER]
  TO         the address that connections are passed on to
  --listen   where they come from; default 127.0.0.1:0, which is any free port
  --threads  threads that work; default as many as there are cores";

/// What of a direction is in memory, in bytes.
const BUFFER: usize = 64 * 1024;

/// How long nothing is accepted after that has failed: the descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

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
    let mut said = format!("listening on {}\n", listener.local_address()?);
    proactor.effective().iter().for_each(|processor| said += &format!("{processor}\n"));
    std::io::stdout().write_all(said.as_bytes())?;
    accept(&proactor, &listener, options.to);
    std::thread::scope(|scope| {
        for _ in 1..options.threads {
            scope.spawn(|| proactor.run());
        }
        proactor.run();
    });
    Ok(())
}

/// Accepts the next connection, and when it is there the one after it.
fn accept(proactor: &Proactor, listener: &Listener, to: SocketAddr) {
    let (proactor, again) = (proactor.clone(), listener.clone());
    let started = listener.accept(move |accepted| match accepted {
        Ok((client, _)) => {
            connect(&proactor, client, to);
            accept(&proactor, &again, to);
        }
        Err(error) => {
            eprintln!("tcp_proxy: {error}");
            let later = proactor.clone();
            let _ = proactor.timer(PAUSE, move |_| accept(&later, &again, to));
        }
    });
    if let Err(refused) = started {
        eprintln!("tcp_proxy: {refused}");
    }
}

/// Connects a client to the other side. A client whose other side is not there is dropped.
fn connect(proactor: &Proactor, client: Stream, to: SocketAddr) {
    let started = Stream::connect(proactor, to, move |connected| match connected {
        Ok(server) => {
            // Both sides have collected, or not collected, what is passed on, as they like it.
            let _ = client.set_nodelay(true).and(server.set_nodelay(true));
            pass_on(client.clone(), server.clone(), Vec::with_capacity(BUFFER));
            pass_on(server, client, Vec::with_capacity(BUFFER));
        }
        Err(error) => eprintln!("tcp_proxy: {to}: {error}"),
    });
    if let Err(refused) = started {
        eprintln!("tcp_proxy: {to}: {refused}");
    }
}

/// Passes on what comes from one side to the other, until its end.
fn pass_on(from: Stream, to: Stream, buffer: Vec<u8>) {
    let source = from.clone();
    let read = source.read(buffer, move |BufResult(result, buffer)| match result {
        Ok(0) => {
            // The other direction goes on.
            if to.shutdown(Shutdown::Write).is_err() {
                end(&from, &to);
            }
        }
        Ok(_) => {
            let target = to.clone();
            let written = target.write_all(buffer, move |BufResult(result, buffer)| match result {
                Ok(()) => pass_on(from, to, buffer),
                Err(_) => end(&from, &to),
            });
            drop(written);
        }
        Err(_) => end(&from, &to),
    });
    // A start is refused only when the proactor stops, and everything ends.
    drop(read);
}

/// One side is gone. What waits for the other side ends with an error, and with it that side.
fn end(one: &Stream, other: &Stream) {
    for stream in [one, other] {
        let _ = stream.shutdown(Shutdown::Both);
        stream.cancel();
    }
}

struct Options {
    to: SocketAddr,
    listen: SocketAddr,
    threads: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut to, mut listen) = (None, SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut threads = cores;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--listen" => listen = parse(&value()?)?,
                "--threads" => threads = parse::<usize>(&value()?)?.max(1),
                address if to.is_none() => to = Some(parse(address)?),
                more => return Err(format!("cannot make sense of {more}")),
            }
        }
        Ok(Self { to: to.ok_or("where to?")?, listen, threads })
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("cannot make sense of {text}"))
}
