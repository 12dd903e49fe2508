//! `node check`.

use crate::support::Buses;
use serde_json::Value;
use std::io::Write;
use std::process::{Output, Stdio};

/// A file that suits every host.
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
    let (code, stdout, stderr) = check(PLAIN, &[]);
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
    ] {
        assert!(stdout.lines().any(|found| found == line), "{line}\n{stdout}");
    }
    // What was printed is a file with the same meaning.
    let (code, again, stderr) = check(&stdout, &[]);
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
            "node.toml: error: [node]: interfaces: this host has no \"nonesuch0\", only lo"
        ),
        "{stderr}"
    );
    let (code, stdout, _) = check(&text, &["--no-host"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("interfaces = [\"nonesuch0\"]"));
    let (code, stdout, _) = check(PLAIN, &["--json"]);
    let objects: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(code, 0);
    assert!(objects.iter().any(|object| object["value"] == "01:00:5e:40:54:4f"), "{stdout}");
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
