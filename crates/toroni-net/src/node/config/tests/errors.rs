//! Each kind of mistake, with its exact text.

use super::{accepted, found};

const SEND: &str =
    "[node]\nrealm = 'plant'\nstate = '/s'\n[[send]]\nstream = 1\npatterns = ['plant/**']\n";

/// Asserts that a file has exactly these findings.
#[track_caller]
fn assert_found(text: &str, wanted: &[&str]) {
    assert_eq!(found(text), wanted, "{text}");
}

/// As [`assert_found`], of a stream with these lines more, which begin with line 7.
#[track_caller]
fn assert_of_send(lines: &str, wanted: &[&str]) {
    assert_found(&format!("{SEND}{lines}\n"), wanted);
}

#[test]
fn text_that_is_no_toml() {
    assert_found(
        "a = = 1\n",
        &[
            "1:5: error: extra `=`, expected nothing",
            "1:7: error: unexpected key or value, expected newline, `#`",
        ],
    );
    assert_found("", &["error: [node]: is missing: it names at least the realm"]);
    let long = "#".repeat(super::super::LONGEST + 1);
    assert_found(&long, &["error: the file is longer than 1048576 bytes"]);
}

#[test]
fn sections_and_keys_that_do_not_exist_or_have_the_wrong_form() {
    assert_found(
        "relam = 1\nrealm = 'x'\n[nodes]\n[[node]]\n[send]\n[node.sub]\n",
        &[
            "1:1: error: relam: there is no such section",
            "2:1: error: realm: there is no such section: it belongs into [node]",
            "3:2: error: nodes: there is no such section: did you mean `node`?",
            "4:3: error: node: write it as [node]",
            "5:2: error: send: write it as [[send]]",
        ],
    );
    assert_of_send(
        "data_rate = '1Mbit/s'\npatern = []\nzzzzz = 1",
        &[
            "8:1: error: [[send]] 1: patern: [[send]] has no such key: did you mean `patterns`?",
            "9:1: error: [[send]] 1: zzzzz: [[send]] has no such key",
        ],
    );
    assert_found(
        "[node]\nrealm = 'plant'\nstate = '/s'\nbus = { nam = 'x' }\n[[receive]]\n",
        &["4:9: error: [node.bus]: nam: [node.bus] has no such key: did you mean `name`?"],
    );
}

#[test]
fn what_is_required_and_missing() {
    assert_found(
        "[node]\nstate = '/s'\n[[send]]\ndata_rate = '1Mbit/s'\n[listen]\n[[connect]]\n[sequencer]\n",
        &[
            "1:1: error: [node]: realm: is missing: The nodes of one realm hear one another. Datagrams of other realms \
             are dropped",
            "3:1: error: [[send]] 1: stream: is missing: The number of the stream, unique in the node",
            "3:1: error: [[send]] 1: patterns: is missing: Which topics the stream carries: at most 16 patterns. No \
             topic may belong to two streams",
            "5:1: error: [listen]: address: is missing: Where nodes connect that multicast does not reach",
            "6:1: error: [[connect]] 1: address: is missing: The node to connect to: the address of its `[listen]`",
            "7:1: error: [sequencer]: feed: is missing: The name of the feed, and of the bus with its events",
            "7:1: error: [sequencer]: members: is missing: Who decides on the order: 1, 3 or 5 members, the same list \
             in the same order everywhere",
        ],
    );
    assert_of_send(
        "",
        &[
            "4:1: error: [[send]] 1: data_rate: is missing: only people know what the group and the network can bear",
        ],
    );
    assert_of_send(
        "policy = 'uncontrolled'",
        &[
            "4:1: error: [[send]] 1: retransmit_rate: is missing: without a data rate, it is the only defence of the group",
        ],
    );
}

/// One wrong value of each kind.
#[test]
fn values_of_the_wrong_kind_or_outside_of_their_limits() {
    const TIME: &str = "write a duration with a unit (ns, us, ms, s, min, h), such as \"20ms\"";
    const RATE: &str =
        "write a rate with a unit (bit/s, kbit/s, Mbit/s, Gbit/s), such as \"200Mbit/s\"";
    const SIZE: &str = "write a size with a unit (B, KiB, MiB, GiB, TiB), such as \"64MiB\"";
    for (line, column, wanted) in [
        ("data_rate = 200", 13, format!("data_rate: is 200: {RATE}")),
        ("data_rate = '200'", 13, format!("data_rate: is \"200\": {RATE}")),
        ("data_rate = '1bit/s'", 13, "data_rate: is 1bit/s: choose 10kbit/s to 400Gbit/s".to_owned()),
        ("generation = 500", 14, format!("generation: is 500: {TIME}")),
        ("generation = '5h'", 14, "generation: is 18000s: choose 0s to 3600s".to_owned()),
        ("window = '64MB'", 10, format!("window: is \"64MB\": {SIZE}")),
        ("ttl = 256", 7, "ttl: is 256: choose 0 to 255".to_owned()),
        ("ttl = -1", 7, "ttl: is -1: choose 0 to 255".to_owned()),
        ("ttl = 1.5", 7, "ttl: is 1.5: write a whole number".to_owned()),
        ("loop = 'yes'", 8, "loop: is \"yes\": write true or false".to_owned()),
        ("policy = 'bound'", 10, "policy: is \"bound\": choose one of bounded, uncontrolled, slowest: did you mean `bounded`?".to_owned()),
        ("group = '239.1.2'", 9, "group: is \"239.1.2\": write a multicast group and a port, such as \"239.192.84.79:4479\"".to_owned()),
        ("to = ['10.0.0.2']", 6, "to: is a list of other values: write a list of addresses and ports, such as [\"10.0.0.2:4479\"]".to_owned()),
        ("express = 'a'", 11, "express: is \"a\": write a list of patterns, such as [\"plant/**\"]".to_owned()),
        ("express = ['a//b']", 11, "express: \"a//b\" has an empty segment at byte 2: remove one '/', or name the segment".to_owned()),
        ("prefix = 'a/*'", 10, "prefix: is \"a/*\": write segments of a topic without wildcards, such as \"site-a\"".to_owned()),
        ("datagram = 'MTU'", 12, "datagram: is \"MTU\": write a size with a unit, such as \"1408B\", or \"mtu\"".to_owned()),
        ("datagram = '100B'", 12, "datagram: is 100B: choose 512B to 65507B".to_owned()),
        ("gating = { a = 1 }", 10, "gating: is a table: write true or false".to_owned()),
        ("gating = 1979-05-27", 10, "gating: is 1979-05-27: write true or false".to_owned()),
    ] {
        let text = if line.starts_with("data_rate") {
            line.to_owned()
        } else {
            format!("{line}\ndata_rate = '1Mbit/s'")
        };
        assert_of_send(&text, &[&format!("7:{column}: error: [[send]] 1: {wanted}")]);
    }
    let node = |line: &str| {
        found(&format!("[node]\nrealm = 'plant'\nstate = '/s'\n{line}\n[[receive]]\n"))
    };
    for (line, wanted) in [
        (
            "name = 'a/b'",
            "4:8: error: [node]: name: is \"a/b\": write a name without `/`, `*` and spaces at its ends",
        ),
        ("key_file = ''", "4:12: error: [node]: key_file: is empty: write a path"),
        (
            "metrics = '9479'",
            "4:11: error: [node]: metrics: is \"9479\": write an address and a port, such as \"10.0.0.1:4480\"",
        ),
        (
            "interfaces = 'eth0'",
            "4:14: error: [node]: interfaces: is \"eth0\": write a list of texts",
        ),
        ("bus = 7", "4:7: error: [node]: bus: is 7: write the name of a bus, or a table"),
        (
            "bus = { policy = 'never' }",
            "4:18: error: [node.bus]: policy: is \"never\": write wait, wait:100ms, wait:forever, overwrite or bounded:10ms/1s",
        ),
    ] {
        assert_eq!(node(line), [wanted]);
    }
    let many: Vec<String> = (0..17).map(|number| format!("'t/{number}'")).collect();
    let many = format!("express = [{}]\ndata_rate = '1Mbit/s'", many.join(", "));
    assert_of_send(&many, &["7:11: error: [[send]] 1: express: has 17 patterns: write at most 16"]);
    let many = vec!["'10.0.0.2:4479'"; 65].join(", ");
    let many = format!("to = [{many}]\ndata_rate = '1Mbit/s'");
    assert_of_send(&many, &["7:6: error: [[send]] 1: to: has 65 addresses: write at most 64"]);
    assert_found(
        "[node]\nrealm = 'plant'\nstate = '/s'\n[[receive]]\njoin = 'now'\n",
        &["5:8: error: [[receive]] 1: join: is \"now\": write \"live\", \"window\", or a number"],
    );
}

#[test]
fn values_that_do_not_fit_together() {
    for (lines, wanted) in [
        (
            "data_rate = '2Gbit/s'",
            "4:1: error: [[send]] 1: generation: window is 64 MiB and generation is 500 ms: `window` must hold what is sent at `data_rate` within `generation`, and one datagram",
        ),
        (
            "data_rate = '2Gbit/s'\nwindow = '80MiB'",
            "8:1: error: [[send]] 1: window: window is 80 MiB and generation is 500 ms: `window` must hold what is sent at `data_rate` within `generation`, and one datagram",
        ),
        (
            "data_rate = '1Mbit/s'\nretransmit_rate = '1Mbit/s'",
            "8:1: error: [[send]] 1: retransmit_rate: retransmit_rate is 1 Mbit/s and data_rate is 1 Mbit/s: `retransmit_rate` must be below `data_rate`, so that repairs cannot crowd new data out",
        ),
        (
            "data_rate = '1Mbit/s'\nignore = '11ms'",
            "8:1: error: [[send]] 1: ignore: ignore is 11 ms and nak_backoff is 20 ms: `ignore` must be at most half of `nak_backoff`, so that a repeated NAK is served",
        ),
        (
            "data_rate = '1Mbit/s'\nactivity = '5s'",
            "8:1: error: [[send]] 1: activity: activity is 5 s and session_max is 2 s: `activity` must be at least 3 times `session_max`, so that two lost SESSIONs end nothing",
        ),
        (
            "data_rate = '1Mbit/s'\npolicy = 'uncontrolled'",
            "7:1: error: [[send]] 1: data_rate: data_rate is given, but the policy is uncontrolled: remove one of them",
        ),
        (
            "data_rate = '1Mbit/s'\ngroup = '239.1.2.3'\nto = ['10.0.0.2:1']",
            "9:1: error: [[send]] 1: to: is given beside group: remove one of them",
        ),
        (
            "data_rate = '1Mbit/s'\nto = []",
            "8:1: error: [[send]] 1: to: is empty: name at least one receiver",
        ),
        (
            "data_rate = '1Mbit/s'\npolicy = 'slowest'\nrequired = ['a']\ngating = false",
            "10:1: error: [[send]] 1: gating: is false, and the policy is slowest: the node would be overtaken while it waits",
        ),
        (
            "data_rate = '1Mbit/s'\n[[send]]\nstream = 1\npatterns = ['a']\ndata_rate = '1Mbit/s'",
            "9:1: error: [[send]] 2: stream: is that of [[send]] 1, too",
        ),
        (
            "data_rate = '1Mbit/s'\n[[send]]\nstream = 2\npatterns = ['plant/*']\ndata_rate = '1Mbit/s'",
            "10:1: error: [[send]] 2: patterns: a topic can match \"plant/*\" and, in [[send]] 1, \"plant/**\": it would belong to two streams",
        ),
        (
            "data_rate = '1Mbit/s'\ngroup = '224.0.0.5:4479'",
            "8:1: error: [[send]] 1: group: 224.0.0.5 is reserved for routing protocols, and switches flood it to all ports: use one of 239.0.0.0/8, such as 239.192.84.79, or of ff18::/16",
        ),
        (
            "data_rate = '1Mbit/s'\ngroup = '10.0.0.5:4479'",
            "8:1: error: [[send]] 1: group: 10.0.0.5 is no multicast address: use one of 239.0.0.0/8, such as 239.192.84.79, or of ff18::/16",
        ),
        (
            "data_rate = '1Mbit/s'\n[[receive]]\ngroup = '239.64.84.79'",
            "9:1: error: [[receive]] 1: group: 239.192.84.79 and 239.64.84.79 have the same Ethernet address, 01:00:5e:40:54:4f: every receiver of one would receive both; choose groups that differ in their last 23 bits",
        ),
        (
            "data_rate = '1Mbit/s'\n[[receive]]\nreorder_memory = '16MiB'",
            "9:1: error: [[receive]] 1: reorder_memory: message_max is 16 MiB and reorder_memory is 16 MiB: `message_max` must be at most half of `reorder_memory`, where its parts wait",
        ),
        (
            "data_rate = '1Mbit/s'\npolicy = 'slowest'",
            "4:1: error: [[send]] 1: required: is missing: name the nodes that the sender waits for, or choose the policy bounded",
        ),
        (
            "data_rate = '1Mbit/s'\npolicy = 'slowest'\nrequired = ['a', 'a']",
            "9:1: error: [[send]] 1: required: names \"a\" twice",
        ),
        (
            "data_rate = '1Mbit/s'\npolicy = 'slowest'\nrequired = ['a']\ngroup_min = 2",
            "10:1: error: [[send]] 1: group_min: is 2, and `required` names 1: the sender would wait for ever",
        ),
        (
            "data_rate = '1Mbit/s'\nttl = 2\n[[send]]\nstream = 2\npatterns = ['a']\ndata_rate = '1Mbit/s'\nttl = 3",
            "13:1: error: [[send]] 2: ttl: is 3, and in [[send]] 1 it is 2: all streams of a node leave through one socket, so choose one value",
        ),
        (
            "data_rate = '1Mbit/s'\n[[send]]\nstream = 2\npatterns = ['a']\ndata_rate = '1Mbit/s'\nloop = true",
            "12:1: error: [[send]] 2: loop: is true, and in [[send]] 1 it is false: all streams of a node leave through one socket, so choose one value",
        ),
        (
            "data_rate = '1Mbit/s'\n[[receive]]\n[[receive]]\naccept = ['a']",
            "9:1: error: [[receive]] 2: group: 239.192.84.79:4479 is that of [[receive]] 1, too",
        ),
        (
            "data_rate = '1Mbit/s'\n[[receive]]\nlost_scope = []",
            "9:1: error: [[receive]] 1: lost_scope: has 0 patterns: write 1 to 16; [\"**\"] reports losses to all subscribers",
        ),
        (
            "data_rate = '1Mbit/s'\n[[connect]]\naddress = '127.0.0.1:1'\nlost_scope = []",
            "10:1: error: [[connect]] 1: lost_scope: has 0 patterns: write 1 to 16; [\"**\"] reports losses to all subscribers",
        ),
        (
            "data_rate = '1Mbit/s'\npolicy = 'slowest'\nrequired = ['a']\n[[receive]]\nrequired = true",
            "11:1: error: [[receive]] 1: required: is true, and a [[send]] has the policy slowest: two hosts would wait for each other",
        ),
        (
            "data_rate = '1Mbit/s'\n[listen]\naddress = '0.0.0.0:1'\nreplay_rate = '500kbit/s'",
            "10:1: error: [listen]: replay_rate: is 500kbit/s, and a stream has the data_rate 1Mbit/s: who catches up slower than the stream runs never does",
        ),
        (
            "data_rate = '1Mbit/s'\n[listen]\naddress = '0.0.0.0:1'\nlatency_bound = '10s'",
            "10:1: error: [listen]: latency_bound: latency_bound is 10 s and stall is 10 s: `latency_bound` must be below `stall`, so that a slow client loses messages before its connection",
        ),
        (
            "data_rate = '1Mbit/s'\n[listen]\naddress = '0.0.0.0:1'\npace = 'receiver'\n[node.bus]\nname = 'a'\npolicy = 'wait:1s'",
            "8:1: error: [listen]: hold_limit: is 5s, and publishers wait by the bus's policy wait:1s: choose a policy that waits as long, or messages are lost while the sender waits",
        ),
    ] {
        assert_of_send(lines, &[wanted]);
    }
    assert_found(
        "[node]\nrealm = 'plant'\nstate = '/s'\nkey_file_next = 'k'\ninterfaces = ['a', 'a']\nreceive_memory = '1MiB'\n\
         [[receive]]\naccept = []\n",
        &[
            "4:1: error: [node]: key_file_next: is given without key_file: datagrams need a first key",
            "5:1: error: [node]: interfaces: names \"a\" twice",
            "7:1: error: [[receive]] 1: receive_memory: reorder_memory is 64 MiB and receive_memory is 1 MiB: \
             `reorder_memory` must be at most `receive_memory`, of which it is a part",
            "8:1: error: [[receive]] 1: accept: is empty: [\"**\"] takes everything",
        ],
    );
    assert_found(
        "[node]\nrealm = 'plant'\nstate = '/s'\n",
        &[
            "1:1: error: [node]: there is nothing to do: add [[send]], [[receive]], [listen], [[connect]] or [sequencer]",
        ],
    );
    assert_found(
        "[node]\nrealm = 'plant'\nstate = '/s'\nbus = { policy = 'wait:1s' }\n[[send]]\nstream = 1\npatterns = []\n\
         data_rate = '1Mbit/s'\npolicy = 'slowest'\nrequired = ['a']\n",
        &[
            "5:1: error: [[send]] 1: hold_limit: is 5s, and publishers wait by the bus's policy wait:1s: choose a policy \
             that waits as long, or messages are lost while the sender waits",
            "7:1: error: [[send]] 1: patterns: is empty: [\"**\"] sends everything",
        ],
    );
}

#[test]
fn a_sequencer_is_checked() {
    let feed = |lines: &str| {
        found(&format!(
            "[node]\nrealm = 'plant'\nstate = '/s'\n[sequencer]\nfeed = 'orders'\n{lines}\n"
        ))
    };
    let members = "members = ['a=127.0.0.1:1', 'b=127.0.0.2:1', 'c=127.0.0.3:1']";
    assert_eq!(feed(members), [""; 0]);
    for (lines, wanted) in [
        ("members = []", "6:1: error: [sequencer]: members: is empty: name at least one"),
        (
            "members = ['a']",
            "6:11: error: [sequencer]: members: is a list of other values: write a list of members, such as [\"a=10.0.0.1:4481\"] or [\"a=alpha:4481\"]",
        ),
        (
            "members = ['a=127.0.0.1:1', 'a=127.0.0.2:1', 'c=127.0.0.3:1']",
            "6:1: error: [sequencer]: members: names a=127.0.0.2:1 or a part of it twice",
        ),
        (
            "members = ['a=127.0.0.1:1', 'b=127.0.0.2:1']",
            "6:1: warning: [sequencer]: members: has 2 members: 1 survive the death of as many",
        ),
    ] {
        assert_eq!(feed(lines), [wanted]);
    }
    for (line, wanted) in [
        (
            "member = 'd'",
            "7:1: error: [sequencer]: member: is \"d\", which is none of the members a, b, c",
        ),
        (
            "member = 'a'\nheartbeat = '1.5ms'",
            "8:1: error: [sequencer]: heartbeat: has a fraction of a millisecond: members count whole ones",
        ),
        (
            "heartbeat = '100ms'",
            "7:1: error: [sequencer]: heartbeat: is 100ms, and elections begin after 150ms: choose at most half of it, so that one late heartbeat does not cause an election",
        ),
        (
            "election_timeout = '300ms..150ms'",
            "7:20: error: [sequencer]: election_timeout: is \"300ms..150ms\": the first must be shorter than the second",
        ),
        (
            "election_timeout = '300ms'",
            "7:20: error: [sequencer]: election_timeout: is \"300ms\": write two durations with units, such as \"150ms..300ms\"",
        ),
        (
            "sync_interval = '1s'",
            "7:1: warning: [sequencer]: sync_interval: has no effect: it needs `sync = \"interval\"`",
        ),
    ] {
        let found = feed(&format!("{members}\n{line}"));
        let is_of_members = |finding: &&String| !finding.contains("it is for members");
        assert_eq!(found.iter().filter(is_of_members).collect::<Vec<_>>(), [wanted]);
    }
    let nine: Vec<_> = (1..=9).map(|one| format!("'m{one}=127.0.0.{one}:1'")).collect();
    assert_eq!(
        feed(&format!("members = [{}]", nine.join(", "))),
        ["6:1: error: [sequencer]: members: has 9 members: a group has 1, 3 or 5, and room for 8"]
    );
    assert_eq!(
        feed(&format!("{members}\nretain = '1GiB'")),
        [
            "7:1: warning: [sequencer]: retain: has no effect: it is for members, and `member` is missing"
        ]
    );
    let member = format!("{members}\nmember = 'a'");
    assert_eq!(
        found(&format!("[node]\nrealm = 'plant'\n[sequencer]\nfeed = 'orders'\n{member}\n"))[0],
        "3:1: error: [sequencer]: log: is missing: a member keeps its log on a disk. Set it, or `state` in [node]"
    );
    let named = "members = ['a=localhost:1', 'b=Alpha:4481', 'c=127.0.0.3:1']";
    assert_eq!(
        feed(named),
        [
            "6:1: warning: [sequencer]: members: has b at alpha:4481, and [node] has no key_file: everyone who reaches a \
             member can send commands and begin a group, and the host that answers for a name is believed. \
             Members know one another by these addresses alone, so a member behind NAT is refused"
        ]
    );
    assert_eq!(
        feed("members = ['a=10.0.0.1:4481']"),
        [
            "6:1: warning: [sequencer]: members: has a at 10.0.0.1:4481, and [node] has no key_file: everyone who \
             reaches a member can send commands and begin a group. Members know one another by these addresses alone, so a member \
             behind NAT is refused"
        ]
    );
    assert_eq!(
        feed("members = ['a=0.0.0.0:4481']")[0],
        "6:1: error: [sequencer]: members: has a at 0.0.0.0:4481, where no other host reaches it: give the address that the \
         others know"
    );
}

#[test]
fn the_group_of_a_feed_is_checked() {
    let key = "[node]\nrealm = 'plant'\nstate = '/tmp'\nkey_file = '/key'\n";
    let feed = "[sequencer]\nfeed = 'orders'\nmembers = ['a=127.0.0.1:1']\n";
    let group = "group = '239.1.2.3:4490'\n";
    let rate = "member = 'a'\ndata_rate = '1Mbit/s'\n";
    let _ = accepted(&format!("{key}{feed}{group}{rate}"));
    assert_found(&format!("{key}{feed}{group}{rate}"), &[]);
    assert_found(&format!("{key}{feed}{group}"), &[]);
    assert_found(
        &format!("{key}{feed}{group}member = 'a'\n"),
        &[
            "5:1: error: [sequencer]: data_rate: is missing: set what the network and the receivers can carry",
        ],
    );
    assert_found(
        &format!("{key}{feed}{rate}"),
        &["9:1: warning: [sequencer]: data_rate: has no effect: it needs `group`"],
    );
    assert_found(
        &format!("{}{feed}{group}", key.replace("key_file = '/key'\n", "")),
        &[
            "7:1: error: [sequencer]: group: needs a key_file in [node]: without one, anybody could forge events with one datagram",
        ],
    );
    assert_found(
        &format!("{key}{feed}{group}[[receive]]\ngroup = '239.1.2.3:4490'\n"),
        &[
            "8:1: error: [sequencer]: group: 239.1.2.3:4490 is that of [[receive]] 1, too: a feed has a group of its own",
        ],
    );
    assert_found(
        &format!("{key}{feed}{group}member = 'a'\ndata_rate = '100Gbit/s'\n"),
        &[
            "10:1: error: [sequencer]: data_rate: is 100Gbit/s, and a feed is sent at 10Gbit/s at most: choose a lower one",
        ],
    );
}

#[test]
fn an_archive_is_checked() {
    let node = "[node]\nrealm = 'plant'\nstate = '/tmp'\n";
    let feed = "[sequencer]\nfeed = 'orders'\nmembers = ['a=127.0.0.1:1']\n";
    let whole = |address: &str| {
        format!(
            "{feed}archive = true\narchive_address = '{address}:4482'\narchive_capacity = '1GiB'\n"
        )
    };
    assert_found(&format!("{node}{}", whole("127.0.0.1")), &[]);
    assert_found(
        &format!("{node}{}", whole("0.0.0.0")),
        &[
            "8:1: warning: [sequencer]: archive_address: is reachable for other hosts, and [node] has no key_file: \
             everyone who reaches it reads all events",
        ],
    );
    assert_found(
        &format!("{node}{feed}archive = true\n"),
        &[
            "4:1: error: [sequencer]: archive_address: is missing: an archive needs an address where it answers",
            "4:1: error: [sequencer]: archive_capacity: is missing: set how much of the disk the archive may fill",
        ],
    );
    assert_found(
        &format!("{node}{feed}archive_capacity = '1GiB'\n"),
        &["7:1: warning: [sequencer]: archive_capacity: has no effect: it needs `archive = true`"],
    );
    assert_found(
        &format!(
            "{node}{feed}member = 'a'\narchive = true\narchive_address = '127.0.0.1:4482'\narchive_capacity = '1GiB'\n"
        ),
        &[
            "8:1: error: [sequencer]: archive: is for nodes that are no members: a member keeps events in its log, see \
             `retain`",
        ],
    );
    let no_state = node.replace("state = '/tmp'\n", "");
    let found = found(&format!("{no_state}{}", whole("127.0.0.1")));
    assert!(
        found.contains(
            &"3:1: error: [sequencer]: archive_directory: is missing: an archive is on a disk. Set it, or `state` in [node]"
                .to_owned()
        ),
        "{found:?}"
    );
}

#[test]
fn the_stream_of_a_feed_is_valid_at_each_rate() {
    for rate in ["10kbit/s", "50Mbit/s", "1Gbit/s", "2Gbit/s", "10Gbit/s"] {
        let node = accepted(&format!(
            "[node]\nrealm = 'plant'\nstate = '/tmp'\nkey_file = '/key'\n[sequencer]\nfeed = 'orders'\n\
             members = ['a=127.0.0.1:1']\nmember = 'a'\ngroup = '239.1.2.3'\ndata_rate = '{rate}'\n"
        ));
        let stream = node.sequencer.unwrap().stream();
        assert_eq!(stream.check_sender(), Ok(()), "{rate}");
        assert!(stream.window_bytes <= 64 << 20, "{rate}");
    }
}

#[test]
fn only_a_node_that_sends_misses_its_state() {
    let node = "[node]\nrealm = 'plant'\n";
    assert_found(&format!("{node}[[receive]]\n"), &[]);
    assert_found(
        &format!("{node}[[connect]]\naddress = '10.0.0.1:4480'\npatterns = ['**']\n"),
        &[],
    );
    assert_found(&format!("{node}[[connect]]\naddress = 'localhost:4480'\n"), &[]);
    assert_found(
        &format!("{node}[[connect]]\naddress = 'line-3:4480'\n"),
        &[
            "4:1: warning: [[connect]] 1: address: line-3:4480 has a name, and [node] has no key_file: the host that answers \
           for the name is believed",
        ],
    );
    let missing = "1:1: warning: [node]: state: is missing: after a restart, the node cannot tell what it had sent, and \
                   other hosts report a loss";
    assert_found(&format!("{node}[listen]\naddress = '127.0.0.1:4480'\n"), &[missing]);
}

#[test]
fn what_is_doubtful_is_a_warning_and_the_file_is_accepted() {
    let text = "[node]\nrealm = 'plant'\nmetrics = '0.0.0.0:9479'\ncpu = 3\n[[send]]\nstream = 1\n\
                patterns = ['plant/**']\ndata_rate = '1Mbit/s'\nttl = 1\nexpress = ['other']\n[[send]]\nstream = 2\n\
                patterns = ['a']\ndata_rate = '1Mbit/s'\ngroup = '230.1.2.3'\nttl = 1\n[listen]\naddress = '0.0.0.0:1'\n\
                hold_limit = '1s'\n";
    let _ = accepted(text);
    assert_found(
        text,
        &[
            "1:1: warning: [node]: state: is missing: after a restart, the node cannot tell what it had sent, and other \
             hosts report a loss",
            "3:1: warning: [node]: metrics: 0.0.0.0:9479 is no loopback address: everyone who reaches it reads the metrics",
            "4:1: warning: [node]: cpu: has no effect: only `poll = \"busy\"` stays on one processor",
            "9:1: warning: [[send]] 1: ttl: is 1: some routers handle each datagram in software to find that it has \
             expired; 16 costs nothing",
            "10:1: warning: [[send]] 1: express: \"other\" matches no topic of the stream",
            "15:1: warning: [[send]] 2: group: 230.1.2.3 may be in use on the Internet: 239.0.0.0/8 is free for everyone, \
             and 233.0.0.0/8 for the owner of an AS number (GLOP)",
            "16:1: warning: [[send]] 2: ttl: is 1: some routers handle each datagram in software to find that it has \
             expired; 16 costs nothing",
            "19:1: warning: [listen]: hold_limit: has no effect: with `pace = \"source\"`, no receiver holds the \
             sender",
        ],
    );
    assert_found(
        "[node]\nrealm = 'plant'\nstate = 'state'\ndrain = '25s'\n[[send]]\nstream = 1\npatterns = ['a']\n\
         data_rate = '1Mbit/s'\n",
        &[
            "4:1: warning: [node]: drain: takes more than 25 s together with `generation`: systemd kills the unit of a node \
             30 s after it has asked it to stop",
        ],
    );
}

#[test]
fn a_receiver_that_asks_for_no_proof_is_warned_of_recordings() {
    let text = |node: &str| format!("[node]\nrealm = 'plant'\n{node}[[receive]]\nproof = false\n");
    assert_found(
        &text("key_file = 'key'\n"),
        &[
            "5:1: warning: [[receive]] 1: proof: is false: a host that has recorded datagrams of the realm can send them again, \
             and their messages reach the bus",
        ],
    );
    assert_found(
        &text(""),
        &[
            "4:1: warning: [[receive]] 1: proof: has no effect: without key_file, no sender has to answer",
        ],
    );
}

#[test]
fn what_has_no_effect_or_stays_on_the_host_is_a_warning() {
    assert_of_send(
        "data_rate = '1Mbit/s'\nttl = 0",
        &["8:1: warning: [[send]] 1: ttl: is 0: no datagram leaves the host"],
    );
    assert_of_send(
        "data_rate = '1Mbit/s'\nrequired = ['a']",
        &[
            "8:1: warning: [[send]] 1: required: has no effect: only the policy slowest waits for receivers",
        ],
    );
    // Another bus makes no circle.
    assert_of_send(
        "data_rate = '1Mbit/s'\npolicy = 'slowest'\nrequired = ['a']\n[[receive]]\nrequired = true\ninto = 'other'",
        &[],
    );
}

#[test]
fn a_receive_buffer_that_holds_more_than_can_be_repaired_is_a_warning() {
    let with = |stall: &str, generation: &str| {
        found(&format!("[node]\nrealm = 'plant'\n{stall}\n[[receive]]\n{generation}\n"))
    };
    let wanted = |stall: &str, holds: &str, generation: &str| {
        format!(
            "the receive buffer for a stall of {stall} holds what arrives in {holds} ms, and gaps of [[receive]] 1 are \
             repaired for {generation} (generation): what waits for longer comes too late. Choose a shorter stall, or a \
             longer generation"
        )
    };
    let stall = wanted("400ms", "533", "500ms");
    assert_eq!(with("stall = '400ms'", ""), [format!("3:1: warning: [node]: stall: {stall}")]);
    let generation = wanted("50ms", "66", "60ms");
    let generation = format!("5:1: warning: [[receive]] 1: generation: {generation}");
    assert_eq!(with("", "generation = '60ms'"), [generation]);
    assert_eq!(with("stall = '370ms'", ""), [""; 0]);
    // Nothing is repaired.
    assert_eq!(with("stall = '400ms'", "generation = 0"), [""; 0]);
}

/// A ring must hold what is published while the node is restarted, and messages are no longer than half of it.
#[test]
fn a_ring_that_the_file_makes_too_small_is_a_warning() {
    let text = |capacity: &str, more: &str| {
        format!(
            "{SEND}data_rate = '100Mbit/s'\n[[send]]\nstream = 2\npatterns = ['a']\ndata_rate = '100Mbit/s'\n{more}\
             [node.bus]\n{capacity}"
        )
    };
    assert_found(
        &text("capacity = '4MiB'\n", ""),
        &[
            "13:1: warning: [node.bus]: capacity: is 4MiB, which holds 167 ms at the data_rate of all [[send]] together \
           (200Mbit/s): if the node does not run for longer, messages are overwritten before they are sent. 36MiB hold \
           generation and a second, in which it can be restarted",
        ],
    );
    assert_found(&text("capacity = '36MiB'\n", ""), &[]);
    // Without generation, a second remains.
    let no_repair =
        text("capacity = '24MiB'\n", "").replace("100Mbit/s'\n", "100Mbit/s'\ngeneration = 0\n");
    assert_found(&no_repair, &[]);
    // What the file does not set, the bus may have.
    assert_found(&text("", ""), &[]);
    let half = "[[receive]]\nmessage_max = '18MiB'\nreorder_memory = '128MiB'\n";
    assert_found(&text("capacity = '36MiB'\n", half), &[]);
    let longer = half.replace("18MiB", "19MiB");
    assert_found(
        &text("capacity = '36MiB'\n", &longer),
        &[
            "13:1: warning: [[receive]] 1: message_max: is more than half of the bus's capacity of 36MiB, and no message is \
           longer than that: longer ones are reported as lost",
        ],
    );
}
