//! The key-value store of NATS JetStream: one server of Debian's package `nats-server`, a bucket in memory, TCP on 127.0.0.1.
//!
//! - A bucket is a stream with one message for each subject, as its clients make it (NATS ADR-8). Its values are read directly
//!   from the stream (ADR-31), which is the fastest way.
//! - Updates are on the way at the same time: up to 4096 wait for their acknowledgement. The store's clients wait for each.
//! - A subscriber that joins is a watcher, as of the store's clients: a consumer that gets the last message of each subject.
//! - The client speaks the protocol itself, without copies and threads of a client library.

mod client;

use std::process::{Command, ExitCode};

use client::Client;
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::server::{self, Process};
use toroni_bench_harness::transport::{About, Guarantees};
use toroni_bench_harness::values::{self, Kept, Values};

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_values::<Nats>()
}

struct Nats;

struct Writer {
    client: Client,
    /// What begins the publication of a value of each topic.
    heads: Vec<String>,
    /// Updates that are not acknowledged.
    in_flight: u64,
}

struct Reader {
    client: Client,
    /// What asks for the value of each topic.
    questions: Vec<String>,
}

const PROGRAM: &str = "nats-server";
/// Updates that wait for their acknowledgement, at most.
const IN_FLIGHT: u64 = 4096;
const BUCKET: &str = "KV_bench";
const VALUES: &str = "_INBOX.values";

impl Values for Nats {
    const NAME: &'static str = "nats";
    type Host = Process;
    type Writer = Writer;
    type Reader = Reader;

    fn about(_: &Kept) -> About {
        About {
            version: version().unwrap_or_else(|| PROGRAM.to_owned()),
            settings: format!(
                "a bucket in memory, one server, TCP on 127.0.0.1; up to {IN_FLIGHT} updates at a time, direct get"
            ),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(directory: &RunDirectory, _: &Kept) -> Result<Process, Failure> {
        let mut command = Command::new(PROGRAM);
        command
            .args(["-a", "127.0.0.1", "-p", &directory.port.to_string(), "-js", "-sd"])
            .arg(directory.path.join("nats"));
        let connect = || Client::connect(directory.port, "host").and_then(make_bucket);
        server::start(&mut command, connect)
    }

    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<Writer, Failure> {
        let client = Client::connect(directory.port, "writer")?;
        let head = |subject| format!("PUB {subject} {} {}\r\n", client.inbox(), kept.value_bytes);
        let heads = subjects(kept).map(head).collect();
        Ok(Writer { client, heads, in_flight: 0 })
    }

    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<Reader, Failure> {
        let client = Client::connect(directory.port, "reader")?;
        let question = |subject| {
            format!("PUB $JS.API.DIRECT.GET.{BUCKET}.{subject} {} 0\r\n\r\n", client.inbox())
        };
        let questions = subjects(kept).map(question).collect();
        Ok(Reader { client, questions })
    }
}

/// A key has dots between its parts.
fn subjects(kept: &Kept) -> impl Iterator<Item = String> {
    kept.topics().into_iter().map(|topic| format!("$KV.bench.{}", topic.replace('/', ".")))
}

fn make_bucket(mut client: Client) -> Result<(), Failure> {
    let stream = format!(
        r#"{{"name":"{BUCKET}","subjects":["$KV.bench.>"],"storage":"memory","retention":"limits","discard":"new",
        "max_msgs_per_subject":1,"max_msgs":-1,"max_bytes":-1,"num_replicas":1,"allow_direct":true,
        "allow_rollup_hdrs":true,"deny_delete":true}}"#
    );
    client.request(&format!("$JS.API.STREAM.CREATE.{BUCKET}"), &stream)?;
    Ok(())
}

/// Returns the first line of `nats-server --version`.
fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.replace(':', ""))
}

impl Writer {
    fn acknowledged(&mut self) -> Result<(), Failure> {
        let answer = self.client.message()?;
        if !answer.payload.windows(5).any(|part| part == b"\"seq\"") {
            let text = String::from_utf8_lossy(answer.payload);
            return Err(Failure::new(format!("NATS did not store a value: {text}")));
        }
        self.in_flight -= 1;
        Ok(())
    }
}

impl values::Writer for Writer {
    #[inline]
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure> {
        if self.in_flight == IN_FLIGHT {
            // Half of them: the server has the others to do meanwhile.
            for _ in 0..IN_FLIGHT / 2 {
                self.acknowledged()?;
            }
        }
        self.client.put(&[self.heads[usize::from(topic)].as_bytes(), value, b"\r\n"])?;
        self.in_flight += 1;
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        while self.in_flight > 0 {
            self.acknowledged()?;
        }
        Ok(())
    }
}

impl values::Reader for Reader {
    /// The name of its consumer.
    type Subscriber = String;

    #[inline]
    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure> {
        self.client.put(&[self.questions[usize::from(topic)].as_bytes()])?;
        let answer = self.client.message()?;
        // Its header has a status only if there is no value.
        if answer.header.starts_with(b"NATS/1.0\r\n") {
            each(answer.payload);
            Ok(())
        } else {
            Err(Kept::missing(topic))
        }
    }

    fn join(&mut self, mut each: impl FnMut(&[u8])) -> Result<String, Failure> {
        self.client.subscribe(VALUES, 2);
        let consumer = format!(
            r#"{{"stream_name":"{BUCKET}","config":{{"deliver_subject":"{VALUES}","deliver_policy":"last_per_subject",
            "filter_subject":"$KV.bench.>","ack_policy":"none","replay_policy":"instant","mem_storage":true,"num_replicas":1}}}}"#
        );
        self.client.put_request(&format!("$JS.API.CONSUMER.CREATE.{BUCKET}"), &consumer)?;
        let (mut name, mut values) = (None, 0);
        loop {
            let message = self.client.message()?;
            if message.is_of(1) {
                name = Some(client::name_of(&client::accepted(message.payload)?)?);
            } else {
                each(message.payload);
                values += 1;
            }
            if values >= self.questions.len()
                && let Some(name) = name
            {
                return Ok(name);
            }
        }
    }

    fn leave(&mut self, consumer: String) -> Result<(), Failure> {
        self.client.put(&[b"UNSUB 2\r\n"])?;
        self.client.request(&format!("$JS.API.CONSUMER.DELETE.{BUCKET}.{consumer}"), "")?;
        Ok(())
    }
}

toroni_bench_harness::values_conformance!(Nats);
