//! Hosts that exist only during a test.

use crate::account::Account;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use toroni_testkit::network::skip;
use toroni_testkit::network::{self, Setup};
use toroni_testkit::{Directory, Place, Places, Program, wait};

/// If nothing comes for this time, nothing is on its way.
const QUIET: Duration = Duration::from_secs(3);

/// Tests mostly wait, but each has several processes.
static PLACES: Places = Places::new(4);

/// Returns the program `toroni`, which belongs to another workspace.
pub(crate) fn toroni() -> Result<PathBuf, String> {
    let path = match std::env::var_os("TORONI_PROGRAM") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/toroni"),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(format!(
        "there is no {}: run `cargo build -p toroni-cli -p toroni-node` in the root of the project, or set TORONI_PROGRAM",
        path.display()
    ))
}

pub(crate) const BRIDGE: &str = env!("CARGO_BIN_EXE_toroni-zenoh");

/// Hosts that are joined by one bridge of the kernel. Host `n` has the address `10.77.0.n`, from 1.
pub(crate) struct Network {
    pub(crate) hosts: Vec<Host>,
    cables: network::Network,
    _place: Place<'static>,
}

impl Network {
    /// Makes a network of `count` hosts. If that is impossible here, says so and returns `None`.
    pub(crate) fn new(count: u8) -> Option<Self> {
        if let Err(reason) = toroni() {
            skip(&reason);
            return None;
        }
        let place = PLACES.take();
        let cables = Setup::new(count).with_offload().bridged()?;
        let hosts = (1..).zip(&cables.hosts);
        let hosts = hosts.map(|(number, host)| Host {
            number,
            namespace: host.clone(),
            folder: Directory::new(),
        });
        Some(Self { hosts: hosts.collect(), cables, _place: place })
    }

    /// Cuts the link of a host within the bridge: no end notices it, packets vanish.
    pub(crate) fn cut(&self, number: u8) {
        self.cables.cut(number - 1, 0);
    }

    /// Joins it again.
    pub(crate) fn rejoin(&self, number: u8) {
        self.cables.rejoin(number - 1, 0);
    }
}

/// A host: a network namespace, and a directory for its bus.
pub(crate) struct Host {
    number: u8,
    namespace: network::Host,
    folder: Directory,
}

impl Host {
    pub(crate) fn address(&self) -> String {
        self.namespace.address().to_string()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a command that runs on this host.
    pub(crate) fn command(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = self.namespace.command(program.as_ref());
        command
            .args(arguments)
            .env_remove("TORONI_BUS")
            .env("TORONI_DIR", self.folder.path().join("buses"))
            .env("TORONI_LOG", "debug,zenoh=warn,zenoh::net::runtime::orchestrator=info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Returns the program `toroni` on this host, not yet started.
    pub(crate) fn toroni(&self, arguments: &[&str]) -> Command {
        self.command(toroni().unwrap(), arguments)
    }

    /// Creates the bus. Its publishers wait for slow subscribers: nothing is lost on the bus itself.
    pub(crate) fn create_bus(&self) {
        let options = ["create", "default", "--capacity", "64MiB", "--policy", "wait:60s"];
        let _ = Program::start(self.toroni(&options)).succeed();
    }

    /// Starts a bridge and waits until it works.
    pub(crate) fn bridge(&self, arguments: &[&str]) -> Program {
        let mut bridge = Program::start_with_ready_fd(self.command(BRIDGE, arguments));
        bridge.wait_ready();
        bridge
    }

    /// Starts a subscriber of these patterns and waits until it is subscribed.
    pub(crate) fn listen(&self, patterns: &[&str]) -> Listener {
        let arguments = [&["sub", "--json", "--create"], patterns].concat();
        let mut program = Program::start_with_ready_fd(self.toroni(&arguments));
        program.wait_ready();
        let account = Arc::new(Mutex::new(Account::new()));
        let into = Arc::clone(&account);
        let lines = BufReader::new(program.take_stdout().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                into.lock().unwrap_or_else(PoisonError::into_inner).take(&line);
            }
        });
        Listener { host: self.number, _program: program, account }
    }

    /// Publishes the numbers of the range, each as a message, and waits until that is done.
    pub(crate) fn publish(&self, topic: &str, numbers: std::ops::Range<u64>, options: &[&str]) {
        let _ = self.start_publishing(topic, numbers, options).succeed();
    }

    /// Begins to publish the numbers of the range.
    pub(crate) fn start_publishing(
        &self,
        topic: &str,
        numbers: std::ops::Range<u64>,
        options: &[&str],
    ) -> Program {
        let arguments = [&["pub", topic, "--quiet"], options].concat();
        let mut command = self.toroni(&arguments);
        let mut program = Program::start(command.stdin(Stdio::piped()));
        let mut pipe = std::io::BufWriter::new(program.stdin().unwrap());
        std::thread::spawn(move || {
            for number in numbers {
                // A test that ends early ends the program.
                if writeln!(pipe, "{number}").is_err() {
                    return;
                }
            }
        });
        program
    }
}

/// Two hosts with a bus each, and bridges that take everything from the first to the second. They know one another.
pub(crate) struct Pair {
    pub(crate) network: Network,
    pub(crate) exporter: Program,
    pub(crate) importer: Program,
    /// Of the second host.
    pub(crate) listener: Listener,
}

impl Pair {
    /// Makes both hosts. If that is impossible here, says so and returns `None`.
    pub(crate) fn new() -> Option<Self> {
        Self::exporting("", &["**"])
    }

    /// As [`Self::new`], with more settings of the export as in a file, and a listener to these patterns, one of which
    /// is `hello`.
    pub(crate) fn exporting(settings: &str, patterns: &[&str]) -> Option<Self> {
        let network = Network::new(2)?;
        let [a, b] = &network.hosts[..] else { unreachable!() };
        a.create_bus();
        b.create_bus();
        let file = a.path().join("bridge.toml");
        std::fs::write(&file, format!("[[export]]\npatterns = ['**']\n{settings}")).unwrap();
        let exporter = a.bridge(&["--config", file.to_str().unwrap()]);
        let importer = b.bridge(&["--import", "**"]);
        let listener = b.listen(patterns);
        meet(a, "hello", &[&listener]);
        Some(Self { network, exporter, importer, listener })
    }
}

/// A running subscriber, and the account of what it received.
pub(crate) struct Listener {
    host: u8,
    _program: Program,
    account: Arc<Mutex<Account>>,
}

impl Listener {
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all numbers below `count` of a topic have arrived or are reported as lost. If they did not all arrive,
    /// waits until nothing comes any more: reports may be bounds, which cover more than what is missing.
    pub(crate) fn wait_settled(&self, topic: &str, count: u64) {
        let mut last = (0, Instant::now());
        let is_settled = || {
            let account = self.account();
            if account.has_last(topic, count) {
                return true;
            }
            if account.received(topic) != last.0 {
                last = (account.received(topic), Instant::now());
            }
            account.is_settled(topic, count) && last.1.elapsed() > QUIET
        };
        if !wait::within(3 * wait::LIMIT, is_settled) {
            panic!("host {}: {topic} never settles: {}", self.host, self.account().summary());
        }
    }

    /// Waits until a message of the topic has arrived.
    pub(crate) fn wait_for(&self, topic: &str) {
        if !wait::within(wait::LIMIT, || self.account().received(topic) > 0) {
            panic!("host {}: no message on {topic}: {}", self.host, self.account().summary());
        }
    }
}

/// Publishes on `topic` of one host until every listener has received one of the messages. From then on the bridges
/// know one another, so what is published next arrives or is reported as lost.
pub(crate) fn meet(from: &Host, topic: &str, listeners: &[&Listener]) {
    meet_as(from, topic, topic, listeners);
}

/// As [`meet`], where the topic has another name at the listeners.
pub(crate) fn meet_as(from: &Host, topic: &str, heard: &str, listeners: &[&Listener]) {
    let deadline = Instant::now() + wait::LIMIT;
    // Not a number: those that come before a bridge knows the other one are neither received nor lost.
    while listeners.iter().any(|listener| listener.account().received(heard) == 0) {
        let _ = Program::start(from.toroni(&["pub", topic, "hello"])).succeed();
        for listener in listeners {
            assert!(
                Instant::now() < deadline,
                "host {} never hears from host {}: {}",
                listener.host,
                from.number,
                listener.account().summary()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
