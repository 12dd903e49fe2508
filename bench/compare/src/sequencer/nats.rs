//! NATS JetStream: servers of Debian's package `nats-server`, each a process, with one stream in files. The client speaks the
//! protocol itself: a publication with a reply subject, on which the server acknowledges it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

use toroni_bench_harness::Failure;
use toroni_testkit::Process;

use super::{Contender, PAYLOAD_BYTES};

const LIMIT: Duration = Duration::from_secs(30);
/// How many publications wait for their acknowledgement.
const IN_FLIGHT: u64 = 4096;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("NATS: {error}"))
}

struct Nats {
    _servers: Vec<Process>,
    client: Client,
}

pub(super) fn start(directory: &Path, count: usize) -> Result<Box<dyn Contender>, Failure> {
    let ports = |count| -> Result<Vec<u16>, Failure> {
        let bind = |_| TcpListener::bind("127.0.0.1:0");
        let listeners: Vec<_> = (0..count).map(bind).collect::<Result<_, _>>().map_err(failed)?;
        let port = |one: &TcpListener| one.local_addr().map(|address| address.port());
        listeners.iter().map(port).collect::<Result<_, _>>().map_err(failed)
    };
    let (clients, routes) = (ports(count)?, ports(count)?);
    let mut servers = vec![];
    for id in 0..count {
        let mut program = Program::new("nats-server");
        program.args(["-a", "127.0.0.1", "-p", &clients[id].to_string(), "-js"]);
        program.args(["-n", &format!("n{id}")]).arg("-sd").arg(directory.join(id.to_string()));
        if count > 1 {
            let all: Vec<_> =
                routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            program.args(["--cluster_name", "bench", "--routes", &all.join(",")]);
            program.args(["--cluster", &format!("nats://127.0.0.1:{}", routes[id])]);
        }
        program.stdout(Stdio::null()).stderr(Stdio::null());
        servers.push(Process::spawn(&mut program).map_err(failed)?);
    }
    let begun = Instant::now();
    let stream = format!(
        r#"{{"name":"B","subjects":["b"],"storage":"file","retention":"limits","max_bytes":268435456,"num_replicas":{count}}}"#
    );
    loop {
        let made = Client::connect(clients[0]).and_then(|mut client| {
            let answer = client.request("$JS.API.STREAM.CREATE.B", stream.as_bytes())?;
            if answer.contains("\"error\"") { Err(failed(answer)) } else { Ok(client) }
        });
        match made {
            Ok(client) => return Ok(Box::new(Nats { _servers: servers, client })),
            Err(error) if begun.elapsed() > LIMIT => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

struct Client {
    read: BufReader<TcpStream>,
    write: TcpStream,
}

impl Client {
    fn connect(port: u16) -> Result<Self, Failure> {
        let write = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
        write.set_nodelay(true).map_err(failed)?;
        write.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
        let read = BufReader::new(write.try_clone().map_err(failed)?);
        let mut client = Self { read, write };
        client.send(b"CONNECT {\"verbose\":false}\r\nSUB i.* 1\r\n")?;
        Ok(client)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write.write_all(bytes).map_err(failed)
    }

    /// Waits for the next message, and returns its contents.
    fn message(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.read.read_line(&mut line).map_err(failed)? == 0 {
                return Err(failed("the server ended the connection"));
            }
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["MSG", .., length] => {
                    let length: usize = length.parse().map_err(failed)?;
                    let mut contents = vec![0; length + 2];
                    self.read.read_exact(&mut contents).map_err(failed)?;
                    contents.truncate(length);
                    return String::from_utf8(contents).map_err(failed);
                }
                ["PING"] => self.send(b"PONG\r\n")?,
                ["-ERR", ..] => return Err(failed(&line)),
                _ => {}
            }
        }
    }

    fn request(&mut self, subject: &str, contents: &[u8]) -> Result<String, Failure> {
        let mut bytes = format!("PUB {subject} i.1 {}\r\n", contents.len()).into_bytes();
        bytes.extend(contents);
        bytes.extend(b"\r\n");
        self.send(&bytes)?;
        self.message()
    }

    /// Waits for an acknowledgement.
    fn acknowledged(&mut self) -> Result<(), Failure> {
        let answer = self.message()?;
        if answer.contains("\"seq\"") { Ok(()) } else { Err(failed(answer)) }
    }
}

impl Contender for Nats {
    fn one(&mut self) -> Result<(), Failure> {
        let answer = self.client.request("b", &[b'7'; PAYLOAD_BYTES])?;
        if answer.contains("\"seq\"") { Ok(()) } else { Err(failed(answer)) }
    }

    fn many(&mut self, time: Duration) -> Result<u64, Failure> {
        let mut publication = format!("PUB b i.1 {PAYLOAD_BYTES}\r\n").into_bytes();
        publication.extend([b'7'; PAYLOAD_BYTES]);
        publication.extend(b"\r\n");
        let burst = publication.repeat(256);
        let begun = Instant::now();
        let (mut sent, mut acknowledged) = (0, 0);
        loop {
            while begun.elapsed() < time && sent - acknowledged <= IN_FLIGHT - 256 {
                self.client.send(&burst)?;
                sent += 256;
            }
            if acknowledged == sent {
                return Ok(acknowledged);
            }
            self.client.acknowledged()?;
            acknowledged += 1;
        }
    }

    fn kill_leader(&mut self) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }
}
