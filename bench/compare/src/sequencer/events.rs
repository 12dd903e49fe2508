//! Events on the bus of another host: three nodes with members and one without, each on a host that is a network namespace.
//!
//! ```text
//!  command ─► bus of the first member's host ═► leader ═► a majority ─► multicast, or an answer over TCP ═► bus of the last host
//! ```

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use toroni::{BusConfig, Start, Subscriber};
use toroni_bench_harness::Failure;
use toroni_sequencer::commands::Commands;
use toroni_shell::notice::{self, Notice, Stats};
use toroni_testkit::network::{Network, Setup};
use toroni_testkit::{Directory, Process};

use super::{Contender, PAYLOAD_BYTES};

const FEED: &str = "bench";
const MEMBERS: usize = 3;
/// The host without a member, whose bus the events are read from.
const READER: usize = MEMBERS;
const LIMIT: Duration = Duration::from_secs(30);

/// How events come to the host without a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Multicast,
    Tcp,
}

/// The nodes and their buses. Fields are dropped in this order: nodes end before their network and their buses.
struct Hosts {
    commands: Commands,
    events: Subscriber,
    notices: Subscriber,
    nodes: Vec<Process>,
    way: Way,
    /// How many events came by themselves, and were asked for, before the measurement.
    before: [u64; 2],
    _network: Network,
    _buses: Directory,
}

pub(super) fn start(directory: &Path, way: Way) -> Result<Box<dyn Contender>, Failure> {
    let program = program()?;
    let hosts = u8::try_from(MEMBERS + 1).expect("a few hosts");
    let network = Setup::new(hosts).bridged();
    let network =
        network.ok_or_else(|| Failure::new("it needs network namespaces: run it as root"))?;
    let buses = Directory::new();
    // On a host, a realm has no two nodes with one name.
    let realm = format!("bench-{}", std::process::id());
    let config = |host: usize| BusConfig::new().directory(buses.path().join(host.to_string()));
    let key = directory.join("key");
    let wrote = std::fs::write(&key, [7; 32])
        .and_then(|()| std::fs::set_permissions(&key, Permissions::from_mode(0o600)));
    wrote.map_err(Failure::of("write a key"))?;
    let commands = Commands::open_with(config(0), FEED).map_err(Failure::of("open commands"))?;
    let events = config(READER).open(FEED).map_err(Failure::of("create a bus"))?;
    let events = events.subscribe("**").map_err(Failure::of("subscribe"))?;

    let mut nodes = vec![];
    for (number, host) in network.hosts.iter().enumerate() {
        let file = file(number, way, &network, &realm, directory, buses.path());
        let path = file_of(directory, number);
        std::fs::write(&path, file).map_err(Failure::of("write the file of a node"))?;
        let mut node = host.command(&program);
        node.args(["node", "--config"]).arg(path);
        node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        nodes.push(Process::spawn(&mut node).map_err(Failure::of("start a node"))?);
    }
    let mut init = network.hosts[0].command(&program);
    init.args(["sequencer", "init", "--config"]).arg(file_of(directory, 0));
    until("the group begins", || {
        let output = init.output().map_err(Failure::of("begin the group"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success() || said.contains("has begun already")).then_some(()))
    })?;
    let notices = until("a node publishes notices", || {
        let name = format!("{}{realm}", notice::BUS_PREFIX);
        let Ok(bus) = config(READER).open_existing(&name) else { return Ok(None) };
        let builder = bus.subscriber().pattern(notice::topic::STATS).gating(false);
        Ok(builder.start(Start::Latest).build().ok())
    })?;
    let mut hosts = Hosts {
        commands,
        events,
        notices,
        nodes,
        way,
        before: [0; 2],
        _network: network,
        _buses: buses,
    };
    hosts.begin()?;
    Ok(Box::new(hosts))
}

/// Returns the program `toroni-node` beside this one.
fn program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::of("find this program"))?;
    let path = own.with_file_name("toroni-node");
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::new(format!(
        "there is no {}: build it with `cargo build --release -p toroni-node`",
        path.display()
    )))
}

fn file_of(directory: &Path, host: usize) -> PathBuf {
    directory.join(format!("{host}.toml"))
}

/// Returns the file of a node.
fn file(
    host: usize,
    way: Way,
    network: &Network,
    realm: &str,
    directory: &Path,
    buses: &Path,
) -> String {
    let members = network.hosts[..MEMBERS].iter().enumerate();
    let members: Vec<_> =
        members.map(|(number, host)| format!("m{number}={}:4481", host.address())).collect();
    let [directory, buses] = [directory, buses].map(Path::display);
    let mut text = format!(
        "[node]\nrealm = '{realm}'\nname = 'host-{host}'\nstate = '{directory}/state-{host}'\nkey_file = '{directory}/key'\n\
         interfaces = ['eth0']\n[node.bus]\ndirectory = '{buses}/{host}'\n[sequencer]\nfeed = '{FEED}'\nmembers = {members:?}\n"
    );
    if way == Way::Multicast {
        text += "group = '239.192.84.80:4482'\n";
    }
    if host < MEMBERS {
        let _ = writeln!(text, "member = 'm{host}'\nsync = 'interval'");
        if way == Way::Multicast {
            text += "data_rate = '50Mbit/s'\n";
        }
    }
    text
}

/// Repeats what may fail until it returns something.
fn until<T>(
    what: &str,
    mut attempt: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if begun.elapsed() > LIMIT {
            return Err(Failure::new(format!("{what}: not within {LIMIT:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Hosts {
    /// Sends commands until their events come by the way that is measured.
    fn begin(&mut self) -> Result<(), Failure> {
        until("events come by the way that is measured", || {
            for _ in 0..20 {
                self.one()?;
            }
            let Some(feed) = self.newest_notice()? else { return Ok(None) };
            self.before = [feed.came, feed.asked];
            Ok((feed.delivered > 0 && feed.is_live == (self.way == Way::Multicast)).then_some(()))
        })
    }

    /// Returns what the node of the last host has published last about the feed, if that is new.
    fn newest_notice(&mut self) -> Result<Option<notice::Sequencer>, Failure> {
        let mut newest = None;
        while let Some(message) = self.notices.try_receive().map_err(Failure::of("read notices"))? {
            let notice: Notice<Stats> =
                serde_json::from_slice(message.payload()).map_err(Failure::of("read a notice"))?;
            newest = notice.content.sequencer;
        }
        Ok(newest)
    }
}

impl Contender for Hosts {
    fn one(&mut self) -> Result<(), Failure> {
        let sent = self.commands.send("t", [7; PAYLOAD_BYTES]).map_err(Failure::of("send"))?;
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            let message = self.events.receive_timeout(LIMIT).map_err(Failure::of("receive"))?;
            let origin = message.and_then(|message| message.origin());
            if origin.is_some_and(|origin| sent.is_echo(&origin)) {
                return Ok(());
            }
        }
        for node in &mut self.nodes {
            if let Ok(Some(status)) = node.ended() {
                return Err(Failure::new(format!("a node has ended: {status}")));
            }
        }
        Err(Failure::new("the event of a command did not come"))
    }

    fn many(&mut self, _: Duration) -> Result<u64, Failure> {
        Ok(0)
    }

    fn kill_leader(&mut self) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }

    /// Says how many events have taken the other way.
    fn note(&mut self) -> Result<Option<String>, Failure> {
        let feed = until("a node publishes notices", || self.newest_notice())?;
        let of_both = [feed.came, feed.asked].into_iter().zip(self.before);
        let since: Vec<_> = of_both.map(|(now, before)| now.saturating_sub(before)).collect();
        let other = match self.way {
            Way::Multicast => since[1],
            Way::Tcp => since[0],
        };
        let all: u64 = since.iter().sum();
        Ok((other > 0).then(|| format!("{other} of {all} events took the other way")))
    }
}
