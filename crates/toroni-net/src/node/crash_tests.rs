//! A node is killed at each of its steps, and started again. Every message arrives once and in order, and none is lost: the
//! ring of the sender has them all.

use super::crash_point::CrashPoint;
use super::{config, start};
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, Subscriber};
use toroni_testkit::{Directory, Process, Random, wait};

const FILE: &str = "TORONI_NODE_FILE";
/// What was sent before the receiver that fetches.
const EARLIER: u64 = 4_000;

/// Not a test: what is killed. It ends in order when its input does.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let path = std::env::var_os(FILE).expect("started by the test");
    let text = std::fs::read_to_string(&path).expect("its file");
    let folder = Path::new(&path).parent().expect("a folder");
    let reading = config::read(&text, folder);
    let config = reading.node.unwrap_or_else(|| panic!("{:?}", reading.findings));
    let (_, mut node) = start::prepare(&config).expect("a bus").start().expect("a node");
    let ended = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    println!("ready");
    let (mut is_ending, mut has_said) = (false, false);
    while !(is_ending && node.is_closed()) {
        if ended.is_finished() && !is_ending {
            is_ending = true;
            node.end(false);
        }
        let has_more = node.turn().expect("a turn");
        let sent = node.outlets().map(|(_, outlet)| outlet.sender().counters().data).sum::<u64>();
        if sent >= EARLIER && !has_said {
            has_said = true;
            println!("sent");
        }
        if !has_more {
            node.wait(None).expect("a sleep");
        }
    }
}

struct Child {
    process: Process,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    input: Option<std::process::ChildStdin>,
}

impl Child {
    /// Starts a node that dies when it passes this step for the given time.
    fn start(file: &Path, dies: Option<(CrashPoint, u64)>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the test's program"));
        command
            .args(["--exact", "node::crash_tests::child", "--ignored", "--nocapture"])
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some((step, times)) = dies {
            command.env("TORONI_CRASH", format!("{}:{times}", step.name()));
        }
        let mut process = Process::spawn(&mut command).expect("a child");
        let input = process.stdin();
        let lines = BufReader::new(process.stdout().expect("piped")).lines();
        let mut child = Self { process, lines, input };
        child.says("ready");
        child
    }

    fn says(&mut self, wanted: &str) {
        let found = self.lines.by_ref().any(|line| line.expect("text").contains(wanted));
        assert!(found, "it does not say {wanted:?}");
    }

    fn is_killed(&mut self) -> bool {
        self.process.ended().expect("a child").is_some()
    }

    /// Lets it end in order.
    fn ends(&mut self) {
        self.input = None;
    }
}

/// Two buses, and the files of two nodes.
struct Scene {
    from: Bus,
    subscriber: Subscriber,
    files: [std::path::PathBuf; 2],
    published: u64,
    received: u64,
    _directory: Directory,
}

impl Scene {
    fn new() -> Self {
        let directory = Directory::new();
        let open = |name| {
            let config = BusConfig::new().directory(directory.path()).capacity(16 << 20);
            config.open(name).expect("a bus")
        };
        let (from, to) = (open("from"), open("to"));
        let port = |address: &str| UdpSocket::bind(address).expect("a port").local_addr();
        let port = port("127.0.0.1:0").expect("a port").port();
        let listen = toroni_testkit::port::free();
        let group = format!("group = '239.192.84.79:{port}'\ngeneration = '4s'\n");
        let sections = [
            format!(
                "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '100Mbit/s'\nloop = true\nttl = 0\n{group}\
                 [listen]\naddress = '{listen}'\nlatency_bound = '9s'\n"
            ),
            format!("[[receive]]\njoin = 'window'\n{group}"),
        ];
        let files = ["from", "to"].map(|name| directory.path().join(format!("{name}.toml")));
        let names = files.iter().zip(["from", "to"]).zip(sections);
        for ((file, name), sections) in names {
            let directory = directory.path().display();
            let text = format!(
                "[node]\nrealm = 'crash-{}'\nname = '{name}'\nstate = 'state-{name}'\ninterfaces = ['lo']\n\
                 bus = {{ name = '{name}', directory = '{directory}' }}\n{sections}",
                std::process::id(),
            );
            std::fs::write(file, text).expect("a file");
        }
        let subscriber = to.subscribe("**").expect("a subscriber");
        Self { from, subscriber, files, published: 0, received: 0, _directory: directory }
    }

    fn publish(&mut self, count: u64) {
        let publisher = self.from.publisher("t").expect("a publisher");
        for _ in 0..count {
            publisher.publish(format!("{:>1000}", self.published)).expect("published");
            self.published += 1;
        }
    }

    /// Receives everything. A loss, a double or another order fails the test.
    fn receive(&mut self, step: &str) {
        let begin = Instant::now();
        while self.received < self.published {
            assert!(begin.elapsed() < wait::LIMIT, "{step}: {} came", self.received);
            match self.subscriber.receive_timeout(Duration::from_millis(100)) {
                Ok(Some(message)) => {
                    let number: u64 = message.text().trim().parse().expect("a number");
                    assert_eq!(number, self.received, "{step}");
                    self.received += 1;
                }
                Ok(None) => {}
                Err(error) => panic!("{step}: after {}: {error}", self.received),
            }
        }
    }

    /// Publishes until this node has been killed.
    fn publish_until_killed(&mut self, child: &mut Child, step: &str) {
        let begin = Instant::now();
        while !child.is_killed() {
            assert!(begin.elapsed() < wait::LIMIT, "{step} was not reached");
            if self.published < self.received + 2_000 {
                self.publish(5);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_node_that_is_killed_at_any_step_loses_and_doubles_nothing() {
    let mut random = Random::from_environment();
    for &step in CrashPoint::ALL {
        let times = match step {
            CrashPoint::AfterEnd => 1,
            CrashPoint::FetchStaged | CrashPoint::FetchPublished => random.between(1, 3),
            _ => random.between(1, 20),
        };
        kill_at(step, times);
    }
}

fn kill_at(step: CrashPoint, times: u64) {
    let said = format!("{}:{times}", step.name());
    let mut scene = Scene::new();
    let files = scene.files.clone();
    let dies = Some((step, times));
    let is_sender = matches!(
        step,
        CrashPoint::BeforeCheckpoint | CrashPoint::AfterCheckpoint | CrashPoint::AfterEnd
    );
    let fetches = matches!(step, CrashPoint::FetchStaged | CrashPoint::FetchPublished);
    let mut sender = Child::start(&files[0], dies.filter(|_| is_sender));
    if fetches {
        scene.publish(EARLIER);
        sender.says("sent");
    }
    let mut receiver = Child::start(&files[1], dies.filter(|_| !is_sender));
    if step == CrashPoint::AfterEnd {
        scene.publish(100);
        scene.receive(&said);
        sender.ends();
    }
    scene.publish_until_killed(if is_sender { &mut sender } else { &mut receiver }, &said);
    let again = Child::start(&files[usize::from(!is_sender)], None);
    scene.publish(100);
    scene.receive(&said);
    drop(again);
}
