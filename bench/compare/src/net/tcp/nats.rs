//! NATS core: its server, of Debian, and clients that speak its protocol (docs.nats.io, "Client Protocol").

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use toroni_bench_harness::Failure;
use toroni_testkit::Process;
use toroni_testkit::network::Host;

use super::plain::{self, Framing, Stream};
use super::{Client, Ends, Server};

const PROGRAM: &str = "nats-server";
const PORT: u16 = 4_222;
const PATIENCE: Duration = Duration::from_secs(20);
const LINE_END: &[u8] = b"\r\n";

struct Publishing {
    socket: TcpStream,
    /// What was published since the last turn.
    bytes: Vec<u8>,
    _server: Process,
}

/// Lines, and the payload behind `MSG subject sid length`.
struct Lines {
    has_ponged: bool,
}

impl Framing for Lines {
    fn next(
        &mut self,
        bytes: &[u8],
        socket: &mut TcpStream,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<usize>, Failure> {
        let Some(end) = bytes.windows(2).position(|pair| pair == LINE_END) else { return Ok(None) };
        let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
        if let Some(fields) = line.strip_prefix(b"MSG ") {
            let length = fields.rsplit(|byte| *byte == b' ').next();
            let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
            let length: usize = length.ok_or_else(|| Failure::new("a message without a length"))?;
            if rest.len() < length + 2 {
                return Ok(None);
            }
            each(&rest[..length]);
            return Ok(Some(end + 2 + length + 2));
        }
        match line {
            b"PING" => socket.write_all(b"PONG\r\n").map_err(Failure::of("answer"))?,
            b"PONG" => self.has_ponged = true,
            _ if line.starts_with(b"-ERR") => {
                return Err(Failure::new(String::from_utf8_lossy(line).into_owned()));
            }
            _ => {}
        }
        Ok(Some(end + 2))
    }
}

pub(super) fn open(hosts: &[Host]) -> Result<Ends, Failure> {
    let [at, others @ ..] = hosts else { return Err(Failure::new("no hosts")) };
    let address = SocketAddr::new(at.address().into(), PORT);
    let mut command = at.command(PROGRAM);
    command.args(["--addr", &at.address().to_string(), "--port", &PORT.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Process::spawn(&mut command)
        .map_err(Failure::of(format!("start {PROGRAM}, of Debian's package {PROGRAM}")))?;
    let begin = Instant::now();
    while at.enter(|| TcpStream::connect(address)).is_err() {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("nats-server does not listen"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut clients = Vec::new();
    for host in others {
        let client = greet(host, address, b"SUB bench 1\r\n")?;
        clients.push(Box::new(client) as Box<dyn Client>);
    }
    let Stream { socket, .. } = greet(at, address, b"")?;
    // It reads nothing: the server says something only after a minute without a word.
    let publishing = Publishing { socket, bytes: Vec::new(), _server: server };
    Ok((Box::new(publishing), clients))
}

/// Connects, says `first`, and waits until the server has read that.
fn greet(host: &Host, address: SocketAddr, first: &[u8]) -> Result<Stream<Lines>, Failure> {
    let mut stream = plain::connect(host, address, Lines { has_ponged: false })?;
    let hello =
        [b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\n", first, b"PING\r\n"].concat();
    stream.socket.write_all(&hello).map_err(Failure::of("greet the server"))?;
    let begin = Instant::now();
    while !stream.framing.has_ponged {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("nats-server does not answer"));
        }
        stream.receive(&mut |_| ())?;
    }
    Ok(stream)
}

impl Server for Publishing {
    fn publish(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.bytes.extend_from_slice(format!("PUB bench {}\r\n", payload.len()).as_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes.extend_from_slice(LINE_END);
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let outcome = self.socket.write_all(&self.bytes).map_err(Failure::of("publish"));
        self.bytes.clear();
        outcome
    }
}
