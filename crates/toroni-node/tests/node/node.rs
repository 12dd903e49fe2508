//! `node` and `node check`.

use crate::nodes::{file, group, receiving, refused, sending, start};
use crate::support::{Buses, LIMIT};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};
use toroni_testkit::Program;

/// A file that suits every host with one interface.
const PLAIN: &str = "[node]\nrealm = 'plant'\nstate = 'state'\n[[send]]\nstream = 1\npatterns = ['plant/**']\n\
                     data_rate = '200Mbit/s'\n[[receive]]\n";

/// Checks a file with this text: exit code, standard output, and standard error without the folder of the file.
fn check(text: &str, options: &[&str]) -> (i32, String, String) {
    let buses = Buses::new();
    let path = buses.path().join("node.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let Output { status, stdout, stderr } =
        buses.run(&[&["node", "check", path], options].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let folder = format!("{}/", buses.path().display());
    (status.code().unwrap(), text(stdout), text(stderr).replace(&folder, ""))
}

#[test]
fn a_file_that_is_accepted_is_printed_with_all_values_and_what_follows_from_them() {
    let (code, stdout, stderr) = check(PLAIN, &["--no-host"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for line in [
        "realm = \"plant\"",
        "bus = \"default\"",
        "data_rate = \"200Mbit/s\"",
        "window = \"64MiB\"",
        "#   Ethernet address of the group: 01:00:5e:40:54:4f",
        "#   quota of an interval, new data: 25000 bytes, 16 full datagrams",
        "#   quota of an interval, retransmissions: 6250 bytes, 4 full datagrams",
        "#   time that the window holds at the full rate: 2684 ms",
        "#   longest outage that can be repaired at the full rate: 125 ms",
        "#   memory for datagrams that wait: 256MiB",
        "#   ring, if the node creates the bus: 4MiB",
        "#   bound of the longest message in it: 2MiB",
        "#   time that it holds at the full rates: 167 ms",
    ] {
        assert!(stdout.lines().any(|found| found == line), "{line}\n{stdout}");
    }
    // What was printed is a file with the same meaning.
    let (code, again, stderr) = check(&stdout, &["--no-host"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(again, stdout);
}

#[test]
fn every_mistake_is_reported_with_its_place_and_the_exit_code_is_2() {
    let text =
        PLAIN.replace("data_rate = '200Mbit/s'", "data_rte = 1").replace("state = 'state'\n", "");
    let (code, stdout, stderr) = check(&text, &["--no-host"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert_eq!(
        stderr,
        "node.toml:3:1: error: [[send]] 1: data_rate: is missing: only people know what the group and the network can \
         bear\n\
         node.toml:6:1: error: [[send]] 1: data_rte: [[send]] has no such key: did you mean `data_rate`?\n\
         node.toml:1:1: warning: [node]: state: is missing: after a restart, the node cannot tell what it had sent, and \
         other hosts report a loss\n\
         toroni: node.toml: a node would not start with this file: 2 errors\n"
    );
    let (code, stdout, _) = check(&text, &["--json", "--no-host"]);
    let objects: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, objects.len()), (2, 3));
    assert_eq!((&objects[1]["line"], &objects[1]["column"]), (&6.into(), &1.into()));
    assert_eq!(
        (&objects[1]["severity"], &objects[2]["severity"]),
        (&"error".into(), &"warning".into())
    );
}

#[test]
fn the_file_is_compared_with_this_host_unless_it_is_for_another_one() {
    let text = PLAIN.replacen("state", "interfaces = ['nonesuch0']\nstate", 1);
    let (code, _, stderr) = check(&text, &[]);
    assert_eq!(code, 2);
    assert!(
        stderr.starts_with(
            "node.toml:3:1: error: [node]: interfaces: this host has no \"nonesuch0\", only lo"
        ),
        "{stderr}"
    );
    let (code, stdout, _) = check(&text, &["--no-host"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("interfaces = [\"nonesuch0\"]"));
    let on_lo = text.replace("nonesuch0", "lo");
    let (code, stdout, _) = check(&on_lo, &["--json"]);
    let objects: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(code, 0);
    assert!(objects.iter().any(|object| object["value"] == "01:00:5e:40:54:4f"), "{stdout}");
}

/// A node would not start, or not send what others believe. The file of another host is not compared with this one.
#[test]
fn each_key_file_must_be_usable_for_the_user_who_checks() {
    let buses = Buses::new();
    let path = buses.path().join("node.toml");
    let text = "[node]\nrealm = 'plant'\nname = 'a'\ninterfaces = ['lo']\nkey_file = 'key'\n key_file_next = 'next'\n\
                [[receive]]\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let check = |options: &[&str]| {
        let output = buses.run(&[&["node", "check", path], options].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let key = |name: &str, bytes: usize| {
        let file = buses.path().join(name);
        std::fs::write(&file, vec![7; bytes]).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    let folder = buses.path().display();
    let finding = |line: usize, column: usize, key: &str, name: &str, problem: &str| {
        format!(
            "{path}:{line}:{column}: error: [node]: {key}: cannot use the key in {folder}/{name}: {problem}; this was \
             checked as {}, and the node needs it as its own user\n",
            crate::net::own_user()
        )
    };
    const GONE: &str = "No such file or directory (os error 2)";
    let (code, error) = check(&[]);
    let missing = [(5, 1, "key_file", "key"), (6, 2, "key_file_next", "next")];
    let missing = missing.map(|(line, column, key, name)| finding(line, column, key, name, GONE));
    assert_eq!(code, 2, "{error}");
    assert!(error.starts_with(&missing.concat()), "{error}");
    assert!(error.contains("a node would not start with this file: 2 errors"), "{error}");
    key("key", 32);
    key("next", 31);
    let (code, error) = check(&[]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("[node]: key_file_next: ") && error.contains("it has 31 bytes"),
        "{error}"
    );
    assert_eq!(check(&["--no-host"]), (0, String::new()));
    key("next", 32);
    assert_eq!(check(&[]), (0, String::new()));
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let buses = Buses::new();
    let run = |path: &str| {
        let output = buses.run(&["node", "check", path]);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = run("/nonesuch/node.toml");
    assert_eq!(code, 1);
    assert!(stderr.starts_with("toroni: cannot read /nonesuch/node.toml: "), "{stderr}");
    let (code, stderr) = run("/dev/zero");
    assert_eq!(code, 2);
    assert!(stderr.contains("the file is longer than 1048576 bytes"), "{stderr}");
    let path = buses.path().join("node.toml");
    std::fs::write(&path, b"a = 1\nb = '\xff'\n").unwrap();
    let (code, stderr) = run(path.to_str().unwrap());
    assert_eq!(code, 2);
    assert!(stderr.ends_with("node.toml:2:6: this is not UTF-8\n"), "{stderr}");
}

#[test]
fn a_file_may_come_from_standard_input() {
    let mut command = Buses::new().command(&["node", "check", "-", "--no-host"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(PLAIN.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("[node]\nrealm = \"plant\"\n"));
}

#[test]
fn the_directory_of_buses_may_be_an_option() {
    let buses = Buses::new();
    let path = file(&buses, "a", &receiving(&group()));
    let directory = buses.path().join("elsewhere");
    let mut command =
        buses.command(&["--dir", directory.to_str().unwrap(), "node", "--config", &path]);
    command.env_remove("TORONI_DIR");
    let mut node = Program::start_with_ready_fd(command);
    node.wait_ready();
    assert!(directory.join("a").exists());
    assert!(directory.join("node.test").exists(), "the bus of notices is beside it");
}

/// Its file names the bus: a second name would be ignored, or contradict it.
#[test]
fn the_bus_is_named_in_the_file_alone() {
    let buses = Buses::new();
    let path = file(&buses, "a", &receiving(&group()));
    for arguments in [["--bus", "b", "node"], ["node", "--bus", "b"]] {
        let output = buses.run(&[&arguments[..], &["--config", &path]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("name the bus in its file, as `bus` below [node]"), "{said}");
    }
    // A variable of the environment is meant for all commands.
    let mut command = buses.command(&["node", "check", &path, "--no-host"]);
    assert!(command.env("TORONI_BUS", "b").output().unwrap().status.success());
}

/// Both nodes die by SIGKILL in turn, also while no node runs to take their place. Every message arrives once.
#[test]
fn nodes_that_are_killed_and_started_again_lose_and_double_nothing() {
    let buses = Buses::new();
    let group = group();
    let files = [file(&buses, "from", &sending(&group)), file(&buses, "to", &receiving(&group))];
    let [from, to] = ["from", "to"].map(|name| {
        toroni::BusConfig::new().directory(buses.path()).capacity(16 << 20).open(name).unwrap()
    });
    let mut subscriber = to.subscribe("**").unwrap();
    let publisher = from.publisher("t").unwrap();
    // The receiver first: it follows the sender's first session from its beginning.
    let mut receiver = start(&buses, &files[1]);
    let mut sender = start(&buses, &files[0]);
    receiver.wait_for_error("follows stream 1");
    let (mut published, mut received) = (0_u64, 0_u64);
    let mut receive = |wanted: u64| {
        let begin = std::time::Instant::now();
        while received < wanted {
            assert!(begin.elapsed() < LIMIT, "{received} of {wanted} messages came");
            let message = subscriber.receive_timeout(std::time::Duration::from_secs(1));
            if let Some(message) = message.unwrap_or_else(|loss| panic!("after {received}: {loss}"))
            {
                assert_eq!(message.text().trim(), received.to_string());
                received += 1;
            }
        }
    };
    for round in 0..6 {
        for _ in 0..200 {
            publisher.publish(format!("{published:>500}")).unwrap();
            published += 1;
        }
        // The rest is on its way when one of them dies.
        receive(published - 100);
        if round % 2 == 0 {
            sender.kill();
            publisher.publish(format!("{published:>500}")).unwrap();
            published += 1;
            sender = start(&buses, &files[0]);
        } else {
            receiver.kill();
            receiver = start(&buses, &files[1]);
        }
        receiver.wait_for_error("follows stream 1");
    }
    receive(published);
    sender.signal(Signal::TERM);
    assert!(sender.wait().success());
    receiver.wait_for_error("has ended");
    receiver.signal(Signal::TERM);
    assert!(receiver.wait().success());
}

#[test]
fn a_second_process_with_the_same_source_id_waits_or_does_not_start() {
    let buses = Buses::new();
    let group = group();
    let realm = format!("test {}", std::process::id());
    let write = |bus: &str, stream: u16| {
        let path = buses.path().join(format!("{bus}.toml"));
        let send = sending(&group).replace("stream = 1", &format!("stream = {stream}"));
        let text = format!(
            "[node]\nrealm = '{realm}'\nname = 'same'\nbus = '{bus}'\ninterfaces = ['lo']\n{send}"
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Another bus and another stream: receivers would follow only one of two sessions of the source.
    let [first, second] = [write("first", 1), write("second", 2)];
    let mut node = start(&buses, &first);
    let wanted = format!("another process of this host (process {}) has the source id ", node.id());
    let mut waiting = Program::start_with_ready_fd(buses.command(&["node", "--config", &second]));
    waiting.wait_for_error(&wanted);
    let command = [
        "net",
        "send",
        "**",
        "--rate",
        "1Mbit/s",
        "--interface",
        "lo",
        "--name",
        "same",
        "--realm",
    ];
    let output = buses.run(&[&command[..], &[&realm]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(&wanted), "{error}");
    assert!(error.contains("give one of them another `name` or `id`"), "{error}");
    assert!(!error.contains("sends "), "it never did: {error}");
    // However it ends, its name is free again.
    node.signal(Signal::KILL);
    node.wait();
    waiting.wait_ready();
}

/// Receivers would get each message of two sources.
#[test]
fn a_second_node_that_would_send_the_same_topics_does_not_start() {
    let buses = Buses::new();
    let group = group();
    let first = file(&buses, "first", &sending(&group).replace("'**'", "'plant/**', 'office'"));
    let second = file(&buses, "second", &sending(&group).replace("'**'", "'plant/*/speed'"));
    let text = std::fs::read_to_string(&second).unwrap();
    std::fs::write(&second, text.replace("bus = 'second'", "bus = 'first'")).unwrap();
    let mut node = start(&buses, &first);
    let wanted = format!(
        "the node does not start: the node first (process {}) sends \"plant/**\" of the bus first to this realm already, and \
         a topic can match that and \"plant/*/speed\" of [[send]] 1: receivers would get its messages twice. Change the \
         patterns of one of the nodes, or its realm",
        node.id()
    );
    refused(&buses, &second, &wanted);
    // However it ends, others may send its topics.
    node.signal(Signal::KILL);
    node.wait();
    let _second = start(&buses, &second);
}

#[test]
fn a_node_that_cannot_do_what_its_file_says_does_not_start() {
    let buses = Buses::new();
    let group = group();
    let key = buses.path().join("key");
    std::fs::write(&key, [7; 31]).unwrap();
    let with_key = format!("key_file = 'key'\n{}", receiving(&group));
    let path = file(&buses, "a", &with_key);
    let refused = |path: &str, wanted: &str| refused(&buses, path, wanted);
    refused(&path, "other users may use the file: chmod 600");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    refused(&path, "it has 31 bytes, and a key has 32: head -c 32 /dev/urandom >");
    std::fs::remove_file(&key).unwrap();
    refused(&path, "No such file or directory");
    // Publishers of a bus wait 100 ms, if its creator does not say otherwise.
    let slowest = sending(&group) + "policy = 'slowest'\nrequired = ['b']\n";
    refused(
        &file(&buses, "a", &slowest),
        "[[send]] 1 waits up to 5s for a required receiver (hold_limit), and publishers of the bus a wait by its policy \
         wait:100ms",
    );
    let all = format!("{}join = 'window'\norder = 'arrival'\n", receiving(&group));
    let path = file(&buses, "a", &all);
    refused(
        &path,
        "[[receive]] 1: join: asks for history, which is brought only with `order = \"source\"`",
    );
    let tight = format!("strict_buffers = true\nstall = '60s'\n{}", receiving(&group));
    refused(&file(&buses, "a", &tight), "the kernel gave a receive buffer of ");
    let nowhere = format!("poll = 'busy'\ncpu = 4000\n{}", receiving(&group));
    refused(&file(&buses, "a", &nowhere), "cannot run on processor 4000");
    refused(
        &file(&buses, "a", &receiving(&group).replace("[[receive]]", "[[recieve]]")),
        "did you mean",
    );
    // Two nodes of one bus and realm would send everything twice.
    let path = file(&buses, "a", &receiving(&group));
    let first = start(&buses, &path);
    refused(&path, &format!("another node (process {})", first.id()));
}
