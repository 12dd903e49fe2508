//! The documents show what the programs really print between hosts. Identifiers, times and addresses differ each time, so lines are
//! compared by their shape.
//!
//! A block of a document is compared if `<!-- shape -->` is the line before it. Its commands run as they are written, on hosts that
//! are network namespaces with the names of the document; commands that take minutes take seconds here.

use crate::support::{Buses, Process};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use toroni_testkit::network::{Host, Network, Setup};
use toroni_testkit::wait;

const NETWORK: &str = include_str!("../../../../docs/network.md");
const SEQUENCER: &str = include_str!("../../../../docs/sequencer.md");

/// A command of a document, and what the document shows of its output.
#[derive(Clone, Debug)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Returns the steps of the marked blocks.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in document.split("\n<!-- shape -->\n```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                }
                (None, Some(step)) => step.shown.push(line.to_owned()),
                (None, None) => panic!("a block starts with output: {line}"),
            }
        }
    }
    steps
}

/// Returns the only step whose command begins so.
fn step(steps: &[Step], command: &str) -> Step {
    let found: Vec<&Step> = steps.iter().filter(|it| it.command.starts_with(command)).collect();
    let [step] = found[..] else { panic!("{command}: {steps:#?}") };
    step.clone()
}

/// Returns a line without what differs each time: numbers, times with their units, identifiers, and which member leads. The words of
/// a table are one space apart.
pub(crate) fn shape(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let word = without_ids(word);
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        words.push(match bare {
            "ns" | "µs" | "ms" | "s" | "min" => word.replace(bare, "TIME"),
            "a" | "b" | "c" => word.replace(bare, "NAME"),
            // What is not known after seconds is a number after minutes.
            _ if word == "-" => "#".to_owned(),
            _ => without_numbers(&word),
        });
    }
    let line = words.join(" ").replace("follows NAME", "ROLE").replace(" leads #", " ROLE #");
    // As many windows as fit the time.
    line.replace("# TIME, ", "")
}

/// Replaces runs of 8 or 16 hexadecimal digits.
fn without_ids(word: &str) -> String {
    let mut plain = String::new();
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let is_part = c.is_alphanumeric();
        let end = rest.find(|c: char| c.is_alphanumeric() != is_part).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let is_id = [8, 16].contains(&run.len()) && run.chars().all(|c| c.is_ascii_hexdigit());
        plain.push_str(if is_id { "#" } else { run });
        rest = after;
    }
    plain
}

fn without_numbers(word: &str) -> String {
    let mut plain = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() {
            let is_inside = |c: &char| c.is_ascii_digit() || matches!(c, '.' | ',' | ':');
            let mut last = c;
            while let Some(next) = chars.next_if(is_inside) {
                last = next;
            }
            plain.push('#');
            // The end of a sentence or of a list is no part of the number.
            if matches!(last, ',' | ':') {
                plain.push(last);
            }
        } else {
            plain.push(c);
        }
    }
    plain
}

#[track_caller]
fn compare(step: &Step, printed: &[String]) {
    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    let (shown, found) = (shapes(&step.shown), shapes(printed));
    let lines = |lines: &[String]| lines.join("\n  ");
    assert!(
        shown == found,
        "$ {}\nshows\n  {}\nand prints\n  {}\n{shown:#?}\n{found:#?}",
        step.command,
        lines(&step.shown),
        lines(printed)
    );
}

/// Starts a command of the document on a host with this name. Standard error is a part of what it prints.
fn on(host: &Host, name: &str, buses: &Path, command: &str) -> Process {
    let programs = crate::program().parent().unwrap().display();
    let script = format!("hostname {name}\nexec 2>&1\nexec {command}");
    let mut shell = host.command("unshare");
    shell.args(["--uts", "bash", "--noprofile", "--norc", "-c", &script]);
    shell.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
    shell.env("TORONI_DIR", buses).env_remove("TORONI_BUS").env("LC_ALL", "C.UTF-8");
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Process::start(&mut shell)
}

/// Reads as many lines as the document shows, and compares them.
fn begins_as_shown(step: &Step, process: &mut Process, buses: &Path) {
    let place = buses.display().to_string();
    let line = |_: &String| process.line().trim_end().replace(&place, "/dev/shm/toroni");
    let printed: Vec<String> = step.shown.iter().map(line).collect();
    compare(step, &printed);
}

/// Waits for the end, and compares all that was printed.
fn prints_as_shown(step: &Step, process: Process) {
    let output = process.finish();
    let printed = String::from_utf8(output.stdout).unwrap();
    compare(step, &printed.lines().map(str::to_owned).collect::<Vec<_>>());
}

/// Waits for the end, and checks that the lines above the table are shown, and its titles, and each host has one row. What is in a
/// row, and what else is said, depends on how busy the machine is.
fn prints_the_hosts_shown(step: &Step, process: Process) {
    let printed = String::from_utf8(process.finish().stdout).unwrap();
    let host =
        |line: &str| line.split(' ').next().filter(|it| it.starts_with("line-")).map(str::to_owned);
    let count =
        |wanted: &str| printed.lines().filter(|line| host(line).as_deref() == Some(wanted)).count();
    let mut hosts = 0;
    for line in &step.shown {
        if let Some(host) = host(line) {
            assert_eq!(count(&host), 1, "rows of {host}:\n{printed}");
            hosts += 1;
        } else {
            let is_printed = printed.lines().any(|found| shape(found) == shape(line));
            assert!(is_printed, "no line as {line:?}:\n{printed}");
        }
    }
    assert_eq!(hosts, 2, "{:?}", step.shown);
}

fn three() -> Option<(Network, [Buses; 3])> {
    let network = Setup::new(3).bridged()?;
    Some((network, [(); 3].map(|()| Buses::new())))
}

#[test]
fn two_hosts_exchange_messages_as_the_document_shows() {
    let Some((network, buses)) = three() else { return };
    let steps = steps(NETWORK);
    let (send, receive) = (step(&steps, "toroni net send"), step(&steps, "toroni net receive"));
    let [first, second] = [0, 1].map(|at| (&network.hosts[at], buses[at].path()));
    let mut receiver = on(second.0, "line-4", second.1, &receive.command);
    let mut sender = on(first.0, "line-3", first.1, &send.command);
    begins_as_shown(&send, &mut sender, first.1);
    // It prints the message that comes once it follows: published until then, none would come.
    let is_followed = || buses[1].run(&["info", "node.default", "--json"]).status.success();
    wait::until("the nodes publish notices", is_followed);
    let publish = "toroni pub plant/boiler/temperature 351.2";
    let mut shown = receive.clone();
    let message = shown.shown.pop().unwrap();
    begins_as_shown(&shown, &mut receiver, second.1);
    let output = on(first.0, "line-3", first.1, publish).finish();
    assert!(output.status.success(), "{output:?}");
    let only = Step { shown: vec![message], ..receive };
    begins_as_shown(&only, &mut receiver, second.1);
    sender.kill();
    receiver.kill();
}

#[test]
fn a_probe_and_the_list_of_nodes_are_as_the_document_shows() {
    let Some((network, buses)) = three() else { return };
    let steps = steps(NETWORK);
    let names = ["line-3", "line-4", "line-5"];
    let probe = step(&steps, "toroni net probe");
    // In the document, it takes half a minute.
    let commands = [
        format!("{} --minutes 0.1", probe.command),
        "toroni net probe --minutes 0.1".to_owned(),
        "toroni net probe --minutes 0.1".to_owned(),
    ];
    let start =
        |at: usize, command: &str| on(&network.hosts[at], names[at], buses[at].path(), command);
    let mut probes: Vec<Process> =
        commands.iter().enumerate().map(|(at, command)| start(at, command)).collect();
    prints_the_hosts_shown(&probe, probes.remove(0));
    drop(probes);

    let sends = [
        (0, "toroni net send 'plant/**' --rate 200Mbit/s --realm plant --name line-3"),
        (2, "toroni net send 'office/*' 'print/**' --rate 50Mbit/s --realm plant --name line-5"),
    ];
    let [mut first, mut other] = sends.map(|(at, command)| start(at, command));
    for sender in [&mut first, &mut other] {
        sender.line_where(|line| line.contains("source"));
    }
    let nodes = step(&steps, "toroni net nodes");
    prints_the_hosts_shown(&nodes, start(1, &nodes.command));

    // One that sends all the time, alone.
    other.kill();
    let load = "toroni pub plant/a x --repeat 1000000 --rate 500/s -q";
    let mut load = start(0, load);
    let latency = step(&steps, "toroni net latency");
    let command = latency.command.replace("--minutes 5", "--minutes 0.2");
    assert_ne!(command, latency.command, "it would take minutes");
    prints_as_shown(&latency, start(1, &command));
    load.kill();
    first.kill();
}

/// Three hosts that begin a group, on the loopback interface.
#[test]
fn a_group_begins_as_the_document_shows() {
    let _place = crate::sequencer::FEEDS.take();
    let steps = steps(SEQUENCER);
    let file = SEQUENCER.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let addresses = [(); 3].map(|()| toroni_testkit::port::free());
    let group = crate::nodes::group();
    let hosts = ["a", "b", "c"].map(|name| (name, Buses::new()));
    let key = [7; 32];
    let nodes = hosts.each_ref().map(|(name, buses)| {
        let key_file = buses.path().join("key");
        std::fs::write(&key_file, key).unwrap();
        std::fs::set_permissions(&key_file, Permissions::from_mode(0o600)).unwrap();
        let mut file = file
            .replace("/etc/toroni/plant.key", key_file.to_str().unwrap())
            .replace("/var/lib/toroni/orders", buses.path().join("state").to_str().unwrap())
            .replace("member = \"a\"", &format!("member = \"{name}\""))
            // A realm of a host has one node of each name, and other tests have their own.
            .replace(
                "realm = \"plant\"",
                &format!("realm = \"{group}\"\nname = \"{name}\"\ninterfaces = [\"lo\"]"),
            );
        for (number, address) in addresses.iter().enumerate() {
            file = file.replace(&format!("10.0.0.{}:4481", number + 1), &address.to_string());
        }
        let path = buses.path().join("orders.toml");
        std::fs::write(&path, file).unwrap();
        crate::nodes::start(buses, path.to_str().unwrap())
    });
    let (_, buses) = &hosts[0];
    let own = buses.path().join("orders.toml").display().to_string();
    let run = |step: &Step| {
        let line = step.command.replace("/etc/toroni/orders.toml", &own);
        let output = Process::start(&mut buses.shell(&format!("{line} 2>&1"))).finish();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let init = step(&steps, "toroni sequencer init");
    compare(&init, &run(&init));
    let status = step(&steps, "toroni sequencer status");
    // All members follow the one that leads: a second or two after the group has begun.
    let followed = || run(&status).iter().filter(|line| line.contains("follows ")).count() == 2;
    wait::until("two members follow", followed);
    compare(&status, &run(&status));
    let send = step(&steps, "toroni sequencer send");
    compare(&send, &run(&send));
    drop(nodes);
}

/// The check can fail.
#[test]
fn a_line_of_another_shape_is_found() {
    let same = |one: &str, other: &str| shape(one) == shape(other);
    assert!(same("line-4  10.0.0.4:41734  0.0 %  118 µs", "line-5 10.0.0.5:1  12 %  2.1 ms"));
    assert!(same(
        "source 1c0f8a55, session 217523211, on eth0",
        "source ffffffff, session 1, on eth0"
    ));
    assert!(same("a 10.0.0.1:4481 leads 1 0", "b 127.0.0.1:9 follows a 1 0"));
    for (one, other) in [
        ("HOST  ADDRESS", "HOST  ADDRESS  LOST"),
        ("118 µs", "118 B"),
        ("source 1c0f8a55, session 1", "source line, session 1"),
        ("a_leads", "leads"),
    ] {
        assert!(!same(one, other), "{one} {other}");
    }
    assert_eq!(steps(NETWORK).len(), 5, "marks have been lost");
    assert_eq!(steps(SEQUENCER).len(), 3, "marks have been lost");
}
