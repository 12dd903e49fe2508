//! `net buffer`, `net address` and `node doctor`.

use crate::support::Buses;
use serde_json::Value;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use toroni_testkit::network::{Namespace, skip};

/// Runs the program, and returns its exit code, standard output and standard error.
fn said(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Buses::new().run(arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn json(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = said(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn values_without_units_are_refused() {
    for (arguments, wanted) in [
        (&["--rate", "200"][..], "write a rate with a unit (bit/s, kbit/s, Mbit/s, Gbit/s)"),
        (&["--rate", "25MB/s"], "write a rate with a unit (bit/s, kbit/s, Mbit/s, Gbit/s)"),
        (&["--rate", "1Gbit/s", "--stall", "50"], "\"50\" is not a duration"),
        (&["--rate", "1Gbit/s", "--stall", "0"], "0 is too short"),
        (&["--rate", "1Gbit/s", "--size", "0"], "a datagram has 1 to 65507 bytes"),
        (&["--rate", "1Gbit/s", "--stall", "1s", "--buffer", "1MiB"], "cannot be used with"),
        (&["--rate", "1Gbit/s", "--tcp"], "--rtt <T>"),
        (&["--rate", "1Gbit/s", "--rtt", "1ms"], "--tcp"),
        (&[], "--rate <R>"),
    ] {
        let (code, _, stderr) = said(&[&["net", "buffer"], arguments].concat());
        assert_eq!(code, 2, "{arguments:?}");
        assert!(stderr.contains(wanted), "{arguments:?}: {stderr}");
    }
}

/// The two directions of the equations agree.
#[test]
fn a_buffer_for_a_stall_survives_that_stall() {
    for (rate, size) in [("200Mbit/s", "1408"), ("1Gbit/s", "128"), ("9Mbit/s", "8KiB")] {
        let there =
            json(&["net", "buffer", "--rate", rate, "--stall", "20ms", "--size", size, "--json"]);
        let buffer = there["receive_buffer"].to_string();
        let back =
            json(&["net", "buffer", "--rate", rate, "--buffer", &buffer, "--size", size, "--json"]);
        let survives = back["survives_seconds"].as_f64().unwrap();
        assert!((0.02..0.025).contains(&survives), "{rate}: {back}");
        assert!(back["latency_seconds"].as_f64().unwrap() > survives);
        let charge = there["charge_bytes"].as_u64().unwrap();
        assert!(charge > there["datagram_bytes"].as_u64().unwrap());
        assert_eq!(there["charge_is_measured"], true);
        assert_eq!(there["memory_bytes"].as_u64().unwrap(), 2 * buffer.parse::<u64>().unwrap());
    }
}

/// What the program says can be asked for, the kernel gives: a socket of this test asks for it.
#[test]
fn a_buffer_within_the_limit_brings_no_warning_and_one_beyond_it_the_command() {
    let limit: u64 =
        json(&["net", "buffer", "--rate", "1Mbit/s", "--json"])["limit"].as_u64().unwrap();
    let warnings = |buffer: u64| {
        // A rate at which the buffer lasts for less than a generation.
        let buffer = buffer.to_string();
        let arguments = ["net", "buffer", "--rate", "100Gbit/s", "--buffer", &buffer, "--json"];
        json(&arguments)["warnings"].as_array().unwrap().clone()
    };
    assert!(warnings(limit).is_empty(), "{:?}", warnings(limit));
    let beyond = warnings(limit + 1);
    let command = format!("sysctl -w net.core.rmem_max={}", limit + 1);
    assert_eq!(beyond[0]["command"], *command, "{beyond:?}");
    assert!(beyond[0]["remedy"].as_str().unwrap().contains("/etc/sysctl.d/"), "{beyond:?}");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let asked = usize::try_from(limit).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, asked).unwrap();
    let given = rustix::net::sockopt::socket_recv_buffer_size(&socket).unwrap();
    assert_eq!(given, 2 * asked);
}

#[test]
fn too_much_is_said_to_be_too_much() {
    let text = |arguments: &[&str]| {
        let (code, stdout, _) = said(&[&["net", "buffer"], arguments].concat());
        assert_eq!(code, 0);
        stdout
    };
    let late = text(&["--rate", "10Mbit/s", "--buffer", "64MiB"]);
    assert!(late.contains("but a gap is given up after 500 ms"), "{late}");
    let huge = text(&["--rate", "100Gbit/s", "--stall", "1s"]);
    assert!(huge.contains("no kernel gives a socket more than 1,073,741,823 bytes"), "{huge}");
    let many = text(&["--rate", "10Gbit/s", "--sockets", "4000000000"]);
    assert!(many.contains("net.ipv4.udp_mem='"), "{many}");
    let slow = text(&["--rate", "1Gbit/s", "--link", "100Mbit/s"]);
    assert!(slow.contains("the link carries 100 Mbit/s, less than the rate"), "{slow}");
    assert!(slow.contains("118 µs for each datagram at 100 Mbit/s"), "{slow}");
}

#[test]
fn a_window_of_tcp_is_rate_times_round_trip() {
    let found = json(&["net", "buffer", "--rate", "1Gbit/s", "--tcp", "--rtt", "20ms", "--json"]);
    assert_eq!(found["window_bytes"], 2_500_000);
    let arguments =
        ["net", "buffer", "--rate", "1Gbit/s", "--tcp", "--rtt", "20ms", "--buffer", "3500kB"];
    let (_, stdout, _) = said(&arguments);
    assert!(stdout.contains("adds up to 8 ms of latency"), "{stdout}");
}

#[test]
fn groups_are_shown_with_scope_and_ethernet_address() {
    let (code, stdout, _) = said(&["net", "address"]);
    assert_eq!(code, 0);
    let wanted = "239.192.84.79:4479  organisation-local  01:00:5e:40:54:4f";
    assert!(stdout.contains(wanted), "{stdout}");
    let (code, stdout, _) = said(&["net", "address", "239.0.0.7", "[ff18::5452:4f4e]:9"]);
    assert_eq!(code, 0, "a concern is no refusal");
    assert!(stdout.contains("warn  switches flood 239.0.0.7"), "{stdout}");
    assert!(stdout.contains("[ff18::5452:4f4e]:9"), "{stdout}");
}

#[test]
fn groups_that_cannot_be_used_are_refused() {
    for (groups, wanted) in [
        (&["224.0.0.9"][..], "224.0.0.9 is reserved for routing protocols"),
        (&["10.0.0.1"], "10.0.0.1 is no multicast address"),
        (&["239.1.2.3", "239.129.2.3"], "have the same Ethernet address, 01:00:5e:01:02:03"),
    ] {
        let (code, stdout, stderr) = said(&[&["net", "address"], groups].concat());
        assert_eq!(code, 1, "{groups:?}");
        assert!(stdout.contains(wanted), "{stdout}");
        assert!(stderr.contains("cannot be used together: 1 problem"), "{stderr}");
        let (code, lines, _) = said(&[&["net", "address", "--json"], groups].concat());
        assert_eq!(code, 1);
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(last["status"], "fail");
        assert_eq!(lines.lines().count(), groups.len() + 1);
    }
    let (code, _, stderr) = said(&["net", "address", "eth0"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("\"eth0\" is no address: write for example"), "{stderr}");
}

/// The name may be mistyped.
#[test]
fn a_bus_that_a_command_creates_is_named() {
    let buses = Buses::new();
    let commands = [
        &["net", "receive"][..],
        &["net", "send", "a", "--rate", "1Mbit/s", "--to", "localhost:4479"],
    ];
    for (number, command) in commands.into_iter().enumerate() {
        let bus = format!("typo-{number}");
        let more = ["--bus", &bus, "--interface", "lo", "--name", &bus];
        let mut process = buses.start(&[command, &more].concat());
        process.wait_for_error(&format!("/{bus}"));
        process.wait_for_error(": created it with the default settings");
        process.kill();
        // Once it is there, nothing is said.
        let mut process = buses.start(&[command, &more].concat());
        process.wait_for_error("a signal (Ctrl-C) ends it");
        assert!(!process.errors().contains("created it"), "{}", process.errors());
        process.kill();
    }
}

/// All commands about one group take it in the same way.
#[test]
fn groups_are_given_alike() {
    for command in ["send", "receive", "replay", "probe", "latency", "nodes"] {
        let (code, help, _) = said(&["net", command, "--help"]);
        assert!(code == 0 && help.contains("--group <GROUP>"), "{command}: {help}");
        assert!(!help.contains("[GROUP]"), "{command}: {help}");
    }
}

#[test]
fn net_alone_shows_its_commands() {
    let (code, _, stderr) = said(&["net"]);
    assert_eq!(code, 2);
    assert!(stderr.starts_with("Send and receive") && stderr.contains("\n  buffer "), "{stderr}");
    let bare = Buses::new().command(&["net"]).env_remove("TORONI_DIR").output().unwrap();
    assert!(bare.stderr.starts_with(b"Send and receive"), "{bare:?}");
    for command in ["buffer", "address"] {
        let (code, help, _) = said(&["net", command, "--help"]);
        assert_eq!(code, 0);
        for part in ["Examples:", "Exit codes:", "--json"] {
            assert!(help.contains(part), "{command}: {help}");
        }
        assert!(!help.contains("Which bus:"), "{command}: {help}");
    }
    for command in ["send", "receive"] {
        let (code, help, _) = said(&["net", command, "--help"]);
        assert_eq!(code, 0);
        for part in ["Examples:", "Exit codes:", "Which bus:"] {
            assert!(help.contains(part), "{command}: {help}");
        }
    }
    let pages = Buses::new();
    let directory = pages.path().join("man");
    let program = env!("CARGO_BIN_EXE_toroni-node");
    let written =
        std::process::Command::new(program).args(["man", "--to"]).arg(&directory).status();
    assert!(written.unwrap().success());
    let page = std::fs::read_to_string(directory.join("toroni-net-buffer.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES") && page.contains("rate 200Mbit/s"), "{page}");
}

/// Every check has a result, whatever this machine has; and each problem comes with a command.
#[test]
fn the_doctor_checks_what_hosts_need() {
    let buses = Buses::new();
    let checks = |arguments: &[&str]| -> Vec<Value> {
        let output = buses.run(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let find = |found: &[Value], name: &str| {
        let found = found.iter().find(|finding| finding["check"] == name).cloned();
        found.unwrap_or_else(|| panic!("no check {name}"))
    };
    let found = checks(&["node", "doctor", "--json"]);
    for name in [
        "UDP buffers",
        "UDP drops",
        "packet filter",
        "TCP order",
        "multicast groups",
        "synchronisation",
    ] {
        let finding = find(&found, name);
        assert_eq!(finding["status"] == "ok", finding["remedy"].is_null(), "{finding}");
        assert_ne!(finding["status"], "fail", "{finding}");
    }
    // Far beyond any limit.
    let found = checks(&["node", "doctor", "--rate", "90Gbit/s", "--json"]);
    let buffers = find(&found, "UDP buffers");
    assert_eq!(buffers["status"], "warn", "{buffers}");
    let remedy = buffers["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("sysctl -w net.core.rmem_max="), "{remedy}");
    let text = buses.succeed(&["node", "doctor", "--rate", "90Gbit/s"]);
    assert!(text.lines().last().unwrap().starts_with("A node works on this host, with "), "{text}");
    // That of the bus has other checks, and names this one.
    assert!(checks(&["doctor", "--json"]).iter().all(|finding| finding["check"] != "UDP buffers"));
    assert!(buses.succeed(&["doctor"]).contains("toroni node doctor"));
}

/// A bus without groups is for those whom the umask leaves both rights.
#[test]
fn the_check_and_the_doctor_say_who_may_use_the_bus() {
    let buses = Buses::new();
    let path = crate::nodes::file(&buses, "a", &crate::nodes::receiving("239.192.84.79:4479"));
    let with_umask = |mask: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "umask $1; shift; exec \"$@\"", "sh", mask]).arg(crate::program());
        command.args(arguments).env_remove("TORONI_BUS").env("TORONI_DIR", buses.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let found = |mask: &str| {
        let checked = with_umask(mask, &["node", "check", "--json", &path]);
        let objects = checked.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut values =
            objects.filter(|it| it["what"] == "who may use it, if the node creates it");
        let value = values.next().map(|it| it["value"].as_str().unwrap().to_owned());
        let examined = with_umask(mask, &["node", "doctor", "--json", &path]);
        let objects = examined.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let bus = objects.filter(|finding| finding["check"] == "bus");
        let bus = bus.map(|it| format!("{} {}", it["status"], it["message"]).replace('"', ""));
        (value, bus.collect::<Vec<_>>())
    };
    let (value, bus) = found("022");
    let value = value.unwrap();
    assert!(value.starts_with("only the user "), "{value}");
    assert!(value.ends_with(" by the umask 022 of this process"), "{value}");
    assert_eq!(bus, [format!("warn the node will create a, for {value}")]);
    let (value, bus) = found("007");
    let value = value.unwrap();
    assert!(value.contains(", and the group "), "{value}");
    assert_eq!(bus, [format!("ok the node will create a, for {value}")]);
    buses.succeed(&["create", "a"]);
    let (_, bus) = found("022");
    assert!(bus[0].starts_with("ok a: the user ") && bus[0].ends_with(" may publish"), "{bus:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("bus = 'a'", "bus = { name = 'b', writers = 'root' }"))
        .unwrap();
    assert_eq!(found("022"), (None, Vec::new()));
}

/// Runs the doctor in a network namespace with these interfaces, and returns its findings.
fn doctor_with(namespace: &Namespace) -> Vec<Value> {
    let (code, findings) = doctor_of(namespace, &Buses::new(), &[]);
    assert_eq!(code, 0, "{findings:?}");
    findings
}

/// The same with more arguments. Also returns the exit code.
fn doctor_of(namespace: &Namespace, buses: &Buses, more: &[&str]) -> (i32, Vec<Value>) {
    let mut command = namespace.command(crate::program());
    command.args(["node", "doctor", "--json"]).args(more).env("TORONI_DIR", buses.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let findings = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), findings)
}

fn finding<'a>(all: &'a [Value], check: &str, on: &str) -> (&'a str, &'a str, &'a Value) {
    let is_wanted = |one: &&Value| {
        one["check"] == check && one["message"].as_str().is_some_and(|text| text.contains(on))
    };
    let found = all.iter().find(is_wanted).unwrap_or_else(|| panic!("no {check} of {on}: {all:?}"));
    (found["status"].as_str().unwrap(), found["message"].as_str().unwrap(), &found["remedy"])
}

#[test]
fn the_doctor_checks_each_interface() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return skip(&format!("network namespaces cannot be made here: {error}")),
    };
    // Without IPv6, an interface has no address unless it is given one.
    for of in ["all", "default"] {
        namespace.set(&format!("ipv6/conf/{of}/disable_ipv6"), "1");
    }
    let all = doctor_with(&namespace);
    let (status, message, _) = finding(&all, "interfaces", "none that is up");
    assert_eq!(status, "warn", "{message}");

    let add_interface = |number: u8| {
        namespace.ip(&[
            format!("link add d{number} type veth peer name p{number}"),
            format!("link set p{number} up"),
            format!("address add 10.9.{number}.1/24 dev d{number}"),
            format!("link set d{number} up"),
        ]);
    };
    add_interface(0);
    namespace.set("ipv4/conf/all/rp_filter", "1");
    let all = doctor_with(&namespace);
    assert_eq!(finding(&all, "link", "d0: 10 Gbit/s").0, "ok");
    assert_eq!(finding(&all, "TTL 0", "d0: such datagrams stay on this host").0, "ok");
    assert_eq!(finding(&all, "reverse path", "strict, which suits").0, "ok");
    assert!(finding(&all, "IGMP", "d0: IGMPv3; a querier: unknown").1.contains("tcpdump"));
    assert!(finding(&all, "ARP", "d0: ").1.contains("15 s to 45 s"));
    assert_eq!(finding(&all, "pause frames", "unknown: the driver of d0 does not say").0, "ok");

    add_interface(1);
    let all = doctor_with(&namespace);
    for name in ["d0", "d1"] {
        let dropped = format!("{name}: datagrams are dropped");
        let (status, _, remedy) = finding(&all, "reverse path", &dropped);
        assert_eq!(status, "warn");
        let wanted = format!("sysctl -w net.ipv4.conf.{name}.rp_filter=2");
        assert!(remedy.as_str().is_some_and(|remedy| remedy.contains(&wanted)), "{remedy}");
    }

    // The other end of the cable is down.
    namespace.ip(&["link set p1 down"]);
    let all = doctor_with(&namespace);
    assert!(finding(&all, "link", "no carrier").1.starts_with("d1: "));
    assert_eq!(finding(&all, "link", "no carrier").0, "warn");
}

/// With the file of a node, the doctor says whether that node would work on this host.
#[test]
fn the_doctor_checks_what_the_node_of_a_file_needs() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return skip(&format!("network namespaces cannot be made here: {error}")),
    };
    // With IPv6, the peers have addresses, too, as soon as the kernel has found them to be unique.
    for of in ["all", "default"] {
        namespace.set(&format!("ipv6/conf/{of}/disable_ipv6"), "1");
    }
    for number in [0, 1] {
        namespace.ip(&[
            format!("link add d{number} type veth peer name p{number}"),
            format!("link set p{number} up"),
            format!("address add 10.9.{number}.1/24 dev d{number}"),
            format!("link set d{number} up"),
        ]);
    }
    let buses = Buses::new();
    let path = buses.path().join("node.toml");
    let key = buses.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let mode = |mode| std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o600);
    let doctor = |node: &str, rate: &str| {
        let text = format!(
            "[node]\nrealm = 'plant'\nstate = 'state'\nkey_file = 'key'\n{node}[[send]]\nstream = 1\n\
             patterns = ['plant/**']\ndata_rate = '{rate}'\nwindow = '16GiB'\n[[receive]]\n"
        );
        std::fs::write(&path, text).unwrap();
        doctor_of(&namespace, &buses, &[path.to_str().unwrap()])
    };
    let on_d0 = "interfaces = ['d0']\nstall = '1us'\n";
    let (code, all) = doctor(on_d0, "1Gbit/s");
    assert_eq!(code, 0, "{all:?}");
    for (check, text) in [
        ("node file", "all values suit one another and this host"),
        ("key", &format!("key is for its owner only, and {} can read it", own_user())),
        ("state", "will be made"),
        ("receive buffer", "1 µs (stall) without reading at 10 Gbit/s need "),
        ("UDP buffers", "1 µs without reading"),
    ] {
        assert_eq!(finding(&all, check, text).0, "ok", "{all:?}");
    }
    // The check of the file states the same buffer.
    let check = |more: &[&str]| {
        let mut command = namespace.command(crate::program());
        let output = command.args(["node", "check", path.to_str().unwrap()]).args(more).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let printed = check(&[]);
    let asked = "#   receive buffer that it asks for: ";
    let asked = printed.lines().find_map(|line| line.strip_prefix(asked));
    let (bytes, rate) = asked.and_then(|asked| asked.split_once(" bytes, for ")).unwrap();
    assert!(rate.starts_with("10 Gbit/s "), "{rate}");
    let (_, message, _) = finding(&all, "receive buffer", "10 Gbit/s need ");
    assert!(
        message.replace(',', "").contains(&format!("need {bytes} bytes")),
        "{message}: {bytes}"
    );
    let printed = check(&["--no-host"]);
    let each = "#   receive buffer for each 100 Mbit/s of the fastest interface: ";
    assert!(printed.lines().any(|line| line.starts_with(each)), "{printed}");
    // The other interface is not the node's.
    assert!(finding(&all, "link", "d0: ").1.contains("10 Gbit/s"));
    assert!(all.iter().all(|one| !one["message"].as_str().unwrap().starts_with("d1: ")), "{all:?}");

    // Each of these keeps the node from starting.
    let fails = |node: &str, rate: &str, check: &str, text: &str| {
        let (code, all) = doctor(node, rate);
        let (status, _, remedy) = finding(&all, check, text);
        assert_eq!((code, status), (1, "fail"), "{all:?}");
        assert!(remedy.is_string(), "{remedy}");
    };
    fails(on_d0, "11Gbit/s", "node file", "add up to 11 Gbit/s, and its speed is 10 Gbit/s");
    fails("", "1Gbit/s", "node file", "several interfaces can multicast: name one of d0, d1");
    let strict = "interfaces = ['d0']\nstall = '60s'\nstrict_buffers = true\n";
    fails(strict, "1Gbit/s", "receive buffer", "with strict_buffers the node does not start");
    let busy = "interfaces = ['d0']\npoll = 'busy'\ncpu = 4095\n";
    fails(busy, "1Gbit/s", "scheduling", "cannot run on processor 4095");
    mode(0o644);
    fails(on_d0, "1Gbit/s", "key", "other users may use the file: chmod 600 ");
    std::fs::remove_file(&key).unwrap();
    let place = format!(
        "node.toml:4:1: error: [node]: key_file: cannot use the key in {}: ",
        key.display()
    );
    fails(on_d0, "1Gbit/s", "key", &place);
    let alone = buses.run(&["doctor", "--config", path.to_str().unwrap()]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}

/// Returns who runs this test, as the program names users.
pub(crate) fn own_user() -> String {
    let id = |option| {
        let output = Command::new("id").arg(option).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    format!("the user {} ({})", id("-un"), id("-u"))
}
