//! `toroni sequencer log`: of a running member, damaged, and exported.

use crate::sequencer::Hosts;
use crate::support::json_lines;

#[test]
fn a_log_is_printed_while_its_member_runs_and_exported() {
    let hosts = Hosts::new(1);
    let nodes = hosts.begin();
    for number in 0..3 {
        hosts.sequencer(&["send", "new/order", &number.to_string(), "--timeout", "60"]);
    }
    let log = hosts.log(0);
    let text = hosts.buses.succeed(&["sequencer", "log", &log]);
    assert!(text.contains("members m0=127.0.0.1:"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("  event 4 ") && line.ends_with("/2  new/order  1 bytes")),
        "{text}"
    );
    let commands =
        json_lines(hosts.buses.succeed(&["sequencer", "log", &log, "--json"]).as_bytes());
    let published: Vec<_> =
        commands.iter().filter(|command| command["kind"] == "publish").collect();
    for (number, command) in published.iter().enumerate() {
        assert_eq!(command["payload"], number.to_string());
        assert_eq!(
            (&command["event"], &command["outcome"]),
            (&(number + 2).into(), &"event".into())
        );
    }
    assert_eq!(published.len(), 3);

    let file = hosts.buses.path().join("orders.mcap");
    let file = file.to_str().unwrap();
    hosts.buses.succeed(&["sequencer", "log", &log, "--export", file]);
    let again = hosts.buses.run(&["sequencer", "log", &log, "--export", file]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    // What is played keeps the numbers of the events.
    let mut subscriber = hosts.buses.subscribe(&["**", "--bus", "played", "--json", "-n", "3"]);
    hosts.buses.succeed(&["replay", file, "--bus", "played"]);
    for number in 0..3 {
        let line: serde_json::Value = serde_json::from_str(&subscriber.line()).unwrap();
        assert_eq!(
            (&line["topic"], &line["payload"]),
            (&"new/order".into(), &number.to_string().into())
        );
    }
    drop(nodes);
}

#[test]
fn damage_is_named_with_its_file_and_byte() {
    let hosts = Hosts::new(1);
    let mut nodes = hosts.begin();
    for number in 0..3 {
        hosts.sequencer(&["send", "t", &number.to_string(), "--timeout", "60"]);
    }
    nodes[0].kill();
    let segment = format!("{}/0000000000000000.log", hosts.log(0));
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for path in [&segment, &hosts.log(0)] {
        let output = hosts.buses.run(&["sequencer", "log", path]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("0000000000000000.log: the bytes at ") && said.contains("have changed"),
            "{said}"
        );
    }
    let output = hosts.buses.run(&["sequencer", "log", hosts.buses.path().to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no log of a sequencer"), "{said}");
}
