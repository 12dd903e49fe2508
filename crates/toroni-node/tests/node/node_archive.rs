//! A node as archive: its bus is on a disk, and has all that came, whatever happened to the node.

use crate::node_observed::{address as metrics_address, metrics, with};
use crate::node_tcp::{Checked, Counted, address, bus, leave, listen};
use crate::nodes::{file, group, start};
use crate::support::{Buses, wait_until};
use rustix::process::Signal;
use toroni::BusConfig;
use toroni_testkit::{Directory, Program};

/// More datagrams than a sender repairs for one receiver, with a message each, and far more than the archive may hold in memory.
const MISSED: u64 = 6_000;
const BYTES: usize = 1_000;

fn kill(mut node: Program) {
    node.signal(Signal::KILL);
    assert!(!node.wait().success());
}

/// Writes the file of a node that serves its metrics on a free port.
fn observed(buses: &Buses, name: &str, sections: &str) -> String {
    let path = file(buses, name, sections);
    with(&path, "metrics = '127.0.0.1:0'\n");
    path
}

#[test]
fn a_bus_on_a_disk_has_everything_after_its_node_was_killed() {
    let disk = Directory::below(env!("CARGO_TARGET_TMPDIR"));
    let (buses, group) = (Buses::new(), group());
    let mut counted = Counted::new(&bus(&buses, "a", 64 << 20), "t");
    let sections = format!(
        "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '100Mbit/s'\nloop = true\nttl = 0\ngroup = '{group}'\n{}",
        listen(address())
    );
    let sender = start(&buses, &observed(&buses, "a", &sections));
    let sections = format!(
        "[[receive]]\ngroup = '{group}'\njoin = 'window'\nmessage_max = '64KiB'\nreorder_memory = '256KiB'\n"
    );
    let path = observed(&buses, "archive", &sections);
    let text = std::fs::read_to_string(&path).unwrap();
    let directory = disk.path().to_str().unwrap();
    let table =
        format!("bus = {{ name = 'archive', directory = '{directory}', capacity = '64MiB' }}\n");
    std::fs::write(&path, text.replace("bus = 'archive'\n", &table)).unwrap();

    let archive = start(&buses, &path);
    archive.wait_for_error("follows stream 1 of ");
    let on_disk = BusConfig::new().directory(disk.path()).open_existing("archive").unwrap();
    let mut checked = Checked::new(&on_disk);
    counted.publish(10, BYTES);
    checked.receive_all_to(10);
    kill(archive);
    counted.publish(MISSED, BYTES);
    let source = metrics_address(&sender);
    wait_until("the sender has sent what the archive misses", || {
        let sent = metrics(&source).value("toroni_net_sent_messages_total", &[("stream", "1")]);
        sent == Some((10 + MISSED) as f64)
    });

    let archive = start(&buses, &path);
    archive.wait_for_error("fetched ");
    counted.publish(100, BYTES);
    checked.receive_all_to(counted.next);
    let observed = metrics_address(&archive);
    wait_until("the archive counted what it fetched", || {
        let samples = metrics(&observed);
        let fetched = samples.value("toroni_net_fetched_messages_total", &[]);
        let complete = samples.value("toroni_net_fetches_total", &[("outcome", "complete")]);
        let late = samples.value("toroni_net_fetches_total", &[("outcome", "late")]);
        complete >= Some(1.0) && late == Some(0.0) && fetched > Some(1_000.0)
    });
    kill(archive);
    leave(sender);
    drop((checked, on_disk));

    // No node runs any more.
    let count = counted.next.to_string();
    let options =
        ["sub", "--bus", "archive", "--from", "oldest", "--strict", "--count", &count, "**"];
    let output = buses.run(&[&["--dir", directory], &options[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = text.lines().map(|line| line.split_whitespace().last().unwrap().parse::<u64>());
    assert!(numbers.map(Result::unwrap).eq(0..counted.next), "all of it, once and in order");
}
