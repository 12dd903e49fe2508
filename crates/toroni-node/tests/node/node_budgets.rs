//! Latency budgets: each part of the way that a node sees is measured, limited, counted and logged.

use crate::node_observed::{address, metrics, with};
use crate::nodes::{file, group, receiving, sending, start};
use crate::openmetrics::Samples;
use crate::support::{Buses, wait_until};

/// What lies between a sender and a receiver without losses. A test of the protocol limits `repair` and `order`.
const SENT: [&str; 4] = ["bus", "batching", "pacing", "tcp_queue"];
const RECEIVED: [&str; 4] = ["network", "socket", "ring", "total"];

/// The limits of these parts, which nothing keeps.
fn limits(parts: &[&str]) -> String {
    parts.iter().fold("[budget]\n".to_owned(), |all, part| format!("{all}{part} = '1ns'\n"))
}

#[test]
fn every_part_of_the_way_can_be_limited() {
    let buses = Buses::new();
    let (group, free) = (group(), toroni_testkit::port::free());
    // Datagrams wait for more messages, and then for the rate.
    let slow = sending(&group).replace("20Mbit/s", "100kbit/s") + "batch_delay = '2ms'\n";
    let listen = format!("[listen]\naddress = '{free}'\n");
    let from = file(&buses, "from", &(slow + &listen + &limits(&SENT)));
    let to = file(&buses, "to", &(receiving(&group) + &limits(&RECEIVED)));
    let client =
        file(&buses, "client", &format!("[[connect]]\naddress = '{free}'\nretry = '20ms'\n"));
    for path in [&from, &to] {
        with(path, "metrics = '127.0.0.1:0'\nlog = 'trace'");
    }
    let (from, to, client) = (start(&buses, &from), start(&buses, &to), start(&buses, &client));
    to.wait_for_error("follows stream 1");
    client.wait_for_error("connected to ");
    // What was published before is not for this client.
    from.wait_for_error("node client has connected from");
    let line = format!("{}\n", "x".repeat(1_000));
    let output = buses.run_with_input(
        &["pub", "--bus", "from", "t", "--quiet", "--timestamps"],
        line.repeat(600).as_bytes(),
    );
    assert!(output.status.success(), "{output:?}");
    // 600 datagrams of more than 1,000 bytes need more than 48 s at this rate.
    let sender = address(&from);
    wait_until("what waits is shown as a time", || {
        let found = metrics(&sender);
        let of_stream = |name| found.value(name, &[("stream", "1")]);
        of_stream("toroni_net_sent_lag_bytes") > Some(0.0)
            && of_stream("toroni_net_sent_lag_seconds") > Some(5.0)
    });
    for (node, parts) in [(&from, SENT), (&to, RECEIVED)] {
        for part in parts {
            node.wait_for_error(&format!(" level=warn event=budget part={part} "));
        }
        let address = address(node);
        wait_until("the metrics have them", || {
            let found = metrics(&address);
            parts.iter().all(|part| {
                found.value("toroni_net_time_exceeded_total", &[("part", part)]) > Some(0.0)
            })
        });
    }
    // Everything that the machines count is among the metrics.
    wait_until("what else is counted is shown", || {
        let (sent, brought) = (metrics(&sender), metrics(&address(&to)));
        let is_shown = |found: &Samples, name: &str| found.value(name, &[]) > Some(0.0);
        ["sessions_sent", "tcp_accepted", "tcp_frames"]
            .iter()
            .all(|name| is_shown(&sent, &format!("toroni_net_{name}_total")))
            && is_shown(&brought, "toroni_net_published_messages_total")
    });
}
