//! D-Bus with topics: signals through the reference daemon, `dbus-daemon`, with the reference library.
//!
//! - The path of a signal is its topic. Each subscriber adds a match rule for each of its topics.
//! - The daemon knows the match rules of all subscribers, so a signal is sent only to those that want it. Its processor time counts,
//!   because each message passes through it.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use dbus::Message;
use dbus::channel::Channel;
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::server::{self, PATIENCE, Process};
use toroni_bench_harness::topics::{self, Crowd, LONGEST_SILENCE, Topics};
use toroni_bench_harness::transport::{About, Guarantees};

fn main() -> ExitCode {
    toroni_bench_harness::child::main_with_topics::<DBus>()
}

struct DBus;

struct Publisher {
    channel: Channel,
    topics: [String; 2],
    daemon: u32,
}

struct Subscriber {
    channel: Channel,
    topics: [String; 2],
}

const DAEMON: &str = "dbus-daemon";
const INTERFACE: &str = "org.toroni.Bench";
const MEMBER: &str = "Message";

impl Topics for DBus {
    const NAME: &'static str = "dbus";
    type Host = Process;
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn about(_: &Crowd) -> About {
        About {
            version: version().unwrap_or_else(|| DAEMON.to_owned()),
            settings: "dbus-daemon --session, libdbus; signals, match rules of paths, filtered by the daemon".to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(directory: &RunDirectory, _: &Crowd) -> Result<Process, Failure> {
        let mut command = Command::new(DAEMON);
        command
            .args(["--session", "--nofork", "--nopidfile", "--nosyslog"])
            .args(["--address", &address(directory)]);
        let daemon = server::start(&mut command, || connect(directory))?;
        let path = pid_file(directory);
        std::fs::write(&path, daemon.id().to_string())
            .map_err(Failure::of(format!("write {}", path.display())))?;
        Ok(daemon)
    }

    fn publisher(directory: &RunDirectory, crowd: &Crowd) -> Result<Publisher, Failure> {
        let path = pid_file(directory);
        let pid = std::fs::read_to_string(&path);
        let pid = pid.map_err(Failure::of(format!("read {}", path.display())))?;
        let daemon = pid.parse().map_err(Failure::of("read the process id of the daemon"))?;
        Ok(Publisher {
            channel: connect(directory)?,
            topics: crowd.published().map(path_of),
            daemon,
        })
    }

    fn subscriber(
        directory: &RunDirectory,
        crowd: &Crowd,
        index: u16,
    ) -> Result<Subscriber, Failure> {
        let channel = connect(directory)?;
        let topics = crowd.topics_of(index).map(path_of);
        for topic in &topics {
            let rule = format!("type='signal',interface='{INTERFACE}',path='{topic}'");
            let call = to_daemon("AddMatch")?.append1(rule);
            channel
                .send_with_reply_and_block(call, PATIENCE)
                .map_err(Failure::of("add a match rule"))?;
        }
        Ok(Subscriber { channel, topics })
    }
}

fn address(directory: &RunDirectory) -> String {
    format!("unix:path={}/dbus", directory.path.display())
}

fn pid_file(directory: &RunDirectory) -> PathBuf {
    directory.path.join("dbus.pid")
}

fn path_of(topic: String) -> String {
    format!("/{topic}")
}

fn connect(directory: &RunDirectory) -> Result<Channel, Failure> {
    let mut channel =
        Channel::open_private(&address(directory)).map_err(Failure::of("connect to the daemon"))?;
    channel.register().map_err(Failure::of("register with the daemon"))?;
    Ok(channel)
}

fn to_daemon(method: &str) -> Result<Message, Failure> {
    let name = "org.freedesktop.DBus";
    Message::new_method_call(name, "/org/freedesktop/DBus", name, method)
        .map_err(Failure::of("make a call"))
}

/// Returns the first line of `dbus-daemon --version`.
fn version() -> Option<String> {
    let output = Command::new(DAEMON).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.lines().next()?.split_whitespace().last()?.to_owned();
    Some(format!("{DAEMON} {version}"))
}

impl topics::Publisher for Publisher {
    fn publish(&mut self, topic: usize, payload: &[u8]) -> Result<(), Failure> {
        let signal = Message::new_signal(self.topics[topic].as_str(), INTERFACE, MEMBER);
        let signal = signal.map_err(Failure::of("make a signal"))?.append1(payload);
        let sent = self.channel.send(signal);
        sent.map_err(|()| Failure::new("cannot send a signal: out of memory"))?;
        self.channel.flush();
        Ok(())
    }

    /// The daemon answers a call after it has passed on the signals before it.
    fn settle(&mut self) -> Result<(), Failure> {
        let answer = self.channel.send_with_reply_and_block(to_daemon("GetId")?, LONGEST_SILENCE);
        answer.map(drop).map_err(Failure::of("call the daemon"))
    }

    fn broker(&self) -> Option<u32> {
        Some(self.daemon)
    }
}

impl topics::Subscriber for Subscriber {
    fn receive(self, mut each: impl FnMut(usize) -> ControlFlow<()>) -> Result<(), Failure> {
        loop {
            let message = self.channel.blocking_pop_message(LONGEST_SILENCE);
            let message = message.map_err(Failure::of("receive"))?.ok_or_else(topics::silence)?;
            let path = message.path();
            // The daemon also reports the name of this connection.
            let topic =
                self.topics.iter().position(|topic| path.as_deref() == Some(topic.as_str()));
            let Some(topic) = topic else { continue };
            if each(topic).is_break() {
                return Ok(());
            }
        }
    }
}

toroni_bench_harness::topics_conformance!(DBus);
