//! A client of NATS (docs.nats.io, "Client Protocol"). It sends what has gathered when it must wait for the server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use toroni_bench_harness::Failure;
use toroni_bench_harness::values::LONGEST_SILENCE;

pub(crate) struct Client {
    /// The subject of its answers, which no other client subscribes to. The subscription has number 1.
    inbox: String,
    read: BufReader<TcpStream>,
    write: TcpStream,
    /// What is not sent yet.
    gathered: Vec<u8>,
    line: Vec<u8>,
    contents: Vec<u8>,
}

/// A message from the server.
pub(crate) struct Message<'a> {
    subscription: &'a [u8],
    pub(crate) header: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// Bytes that are sent together, as client libraries do.
const GATHERED: usize = 32 << 10;

impl Client {
    pub(crate) fn connect(port: u16, name: &str) -> Result<Self, Failure> {
        let inbox = format!("_INBOX.{name}");
        let failed = || Failure::of("connect to NATS");
        let write = TcpStream::connect(("127.0.0.1", port)).map_err(failed())?;
        write.set_nodelay(true).map_err(failed())?;
        write.set_read_timeout(Some(LONGEST_SILENCE)).map_err(failed())?;
        let read = BufReader::with_capacity(64 << 10, write.try_clone().map_err(failed())?);
        let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}";
        let gathered = format!("{hello}\r\nSUB {inbox} 1\r\n").into_bytes();
        Ok(Self { inbox, read, write, gathered, line: Vec::new(), contents: Vec::new() })
    }

    pub(crate) fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Adds these bytes to those that are sent next.
    #[inline]
    pub(crate) fn put(&mut self, parts: &[&[u8]]) -> Result<(), Failure> {
        parts.iter().for_each(|part| self.gathered.extend_from_slice(part));
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    pub(crate) fn subscribe(&mut self, subject: &str, number: u8) {
        self.gathered.extend_from_slice(format!("SUB {subject} {number}\r\n").as_bytes());
    }

    pub(crate) fn put_request(&mut self, subject: &str, contents: &str) -> Result<(), Failure> {
        let head = format!("PUB {subject} {} {}\r\n", self.inbox, contents.len());
        self.put(&[head.as_bytes(), contents.as_bytes(), b"\r\n"])
    }

    /// Sends a request of JetStream, and returns its answer. Messages of other subscriptions are left out.
    pub(crate) fn request(&mut self, subject: &str, contents: &str) -> Result<String, Failure> {
        self.put_request(subject, contents)?;
        loop {
            let message = self.message()?;
            if message.is_of(1) {
                return accepted(message.payload);
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let outcome = self.write.write_all(&self.gathered).map_err(Failure::of("write to NATS"));
        self.gathered.clear();
        outcome
    }

    /// Waits for the next message.
    pub(crate) fn message(&mut self) -> Result<Message<'_>, Failure> {
        let failed = || Failure::of("read from NATS");
        let (header, whole) = loop {
            if self.read.buffer().is_empty() && !self.gathered.is_empty() {
                self.flush()?;
            }
            self.line.clear();
            if self.read.read_until(b'\n', &mut self.line).map_err(failed())? == 0 {
                return Err(Failure::new("NATS ended the connection"));
            }
            // MSG subject subscription [reply] length, HMSG subject subscription [reply] header length
            let mut words = self.line.trim_ascii_end().rsplit(|byte| *byte == b' ');
            let mut number = || number(words.next().unwrap_or_default());
            match self.line.first() {
                Some(b'M') => break (0, number()?),
                Some(b'H') => {
                    let whole = number()?;
                    break (number()?, whole);
                }
                Some(b'P') if self.line.starts_with(b"PING") => self.put(&[b"PONG\r\n"])?,
                Some(b'-') => {
                    let text = String::from_utf8_lossy(&self.line);
                    return Err(Failure::new(format!("NATS: {}", text.trim_end())));
                }
                // INFO, PONG, +OK
                _ => {}
            }
        };
        self.contents.resize(whole + 2, 0);
        self.read.read_exact(&mut self.contents).map_err(failed())?;
        let subscription = self.line.split(|byte| *byte == b' ').nth(2).unwrap_or_default();
        let (header, payload) = self.contents[..whole]
            .split_at_checked(header)
            .ok_or_else(|| Failure::new("a message of NATS is shorter than its header"))?;
        Ok(Message { subscription, header, payload })
    }
}

impl Message<'_> {
    /// Whether it belongs to the subscription with this number.
    pub(crate) fn is_of(&self, number: u8) -> bool {
        self.subscription == [b'0' + number]
    }
}

/// Returns the answer of JetStream, if it is no error.
pub(crate) fn accepted(answer: &[u8]) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(answer).into_owned();
    if text.contains("\"error\"") {
        Err(Failure::new(format!("JetStream: {text}")))
    } else {
        Ok(text)
    }
}

/// Returns the name in an answer that describes a consumer.
pub(crate) fn name_of(answer: &str) -> Result<String, Failure> {
    let name = answer.split("\"name\":\"").nth(1).and_then(|rest| rest.split('"').next());
    name.map(str::to_owned).ok_or_else(|| Failure::new("JetStream named no consumer"))
}

fn number(text: &[u8]) -> Result<usize, Failure> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::new("a message of NATS has no length"))
}
