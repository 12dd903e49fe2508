//! Retained messages of MQTT: the broker Mosquitto of Debian, and its own library, over a Unix socket.
//!
//! - Quality of service 0, which is the fastest. Nothing is lost: the broker keeps each message when it reads it, and has no
//!   limit for the messages of a subscriber.
//! - A retained message can only be read with a subscription. `get` subscribes, and unsubscribes before its value comes, so
//!   that it waits for one answer of the broker.
//! - The library runs without a thread of its own. It reads the socket while an end waits.

mod client;

use std::ffi::{CStr, CString};
use std::process::{Command, ExitCode};

use client::Client;
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::server::{self, Process};
use toroni_bench_harness::transport::{About, Guarantees};
use toroni_bench_harness::values::{self, Kept, Values};

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_values::<Mosquitto>()
}

struct Mosquitto;

/// The end that writes, or the one that reads.
struct End {
    client: Client,
    topics: Vec<CString>,
}

const PATTERN: &CStr = c"value/#";
/// Of a message that is not kept, whose acknowledgement ends an update.
const SETTLED: &CStr = c"settled";

impl Values for Mosquitto {
    const NAME: &'static str = "mosquitto";
    type Host = Process;
    type Writer = End;
    type Reader = End;

    fn about(_: &Kept) -> About {
        About {
            version: format!("mosquitto, libmosquitto {}", client::version()),
            settings: "retained messages, QoS 0, no persistence, a Unix socket".to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(directory: &RunDirectory, _: &Kept) -> Result<Process, Failure> {
        let settings = directory.path.join("mosquitto.conf");
        let text = format!(
            "listener 0 {}\nallow_anonymous true\npersistence false\nmax_queued_messages 0\nsys_interval 0\nlog_dest none\n\
             user root\n",
            socket(directory)
        );
        std::fs::write(&settings, text).map_err(Failure::of("write the settings of the broker"))?;
        let mut command = Command::new("mosquitto");
        server::start(command.arg("-c").arg(&settings), || connect(directory, "host"))
    }

    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<End, Failure> {
        End::open(directory, "writer", kept)
    }

    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<End, Failure> {
        End::open(directory, "reader", kept)
    }
}

fn socket(directory: &RunDirectory) -> String {
    directory.path.join("socket").display().to_string()
}

fn connect(directory: &RunDirectory, name: &str) -> Result<Client, Failure> {
    Client::connect(&socket(directory), name)
}

impl End {
    fn open(directory: &RunDirectory, name: &str, kept: &Kept) -> Result<Self, Failure> {
        let topics = kept.topics().into_iter().map(CString::new);
        let topics = topics.collect::<Result<_, _>>().map_err(Failure::of("name a topic"))?;
        Ok(Self { client: connect(directory, name)?, topics })
    }
}

impl values::Writer for End {
    #[inline]
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure> {
        self.client.retain(&self.topics[usize::from(topic)], value)
    }

    /// The broker handles the messages of a client in order.
    fn settle(&mut self) -> Result<(), Failure> {
        self.client.publish_acknowledged(SETTLED)
    }
}

impl values::Reader for End {
    type Subscriber = ();

    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let topic = &self.topics[usize::from(topic)];
        self.client.subscribe(topic)?;
        self.client.unsubscribe(topic)?;
        let value = self.client.message()?;
        each(&value);
        Ok(())
    }

    fn join(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), Failure> {
        self.client.subscribe(PATTERN)?;
        for _ in 0..self.topics.len() {
            let value = self.client.message()?;
            each(&value);
        }
        Ok(())
    }

    fn leave(&mut self, (): ()) -> Result<(), Failure> {
        let request = self.client.unsubscribe(PATTERN)?;
        self.client.wait_for_end(request)
    }
}

toroni_bench_harness::values_conformance!(Mosquitto);
