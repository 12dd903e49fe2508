//! One sender and two receivers, beside a host that floods them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use toroni_bench_harness::Failure;
use toroni_bench_harness::report::{Bound, Goal, Report};
use toroni_machines::forging::Forger;
use toroni_proto::config::Order;
use toroni_testkit::network::Network;
use toroni_testkit::network::flood::{Flood, Rate};

use super::Length;
use super::crowd::{self, Row, Run};
use super::rig::{self, GROUP};

const BRIDGED: &str = "network namespaces, joined by a bridge of the kernel; no key";
const RECEIVERS: usize = 2;
/// Noise comes as fast as a network of 1 Gbit/s brings it.
const LINE_RATE: Rate = Rate::Bits(1_000_000_000);
const QUESTIONS: Rate = Rate::Datagrams(100_000);
/// How long the stranger listens, at most, before it begins.
const LISTENS: Duration = Duration::from_millis(100);

/// What the stranger sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    None,
    Noise,
    Naks,
    Claims,
}

const ATTACKS: [(Attack, &str); 4] = [
    (Attack::None, "no attack"),
    (Attack::Noise, "noise, and changed datagrams, at 1 Gbit/s"),
    (Attack::Naks, "100,000 NAKs a second"),
    (Attack::Claims, "100,000 forged STATUS and SESSION a second"),
];

/// Runs once, while the last host attacks.
fn run(network: &Network, attack: Attack, length: &Length) -> Result<(Run, u64), Failure> {
    let group: SocketAddr = GROUP.parse().map_err(Failure::of("read the group"))?;
    let Some(stranger) = network.hosts.last() else { return Err(Failure::new("no hosts")) };
    let flood = Flood::open(stranger, group).map_err(Failure::of("open a socket"))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let flooding = scope.spawn(move || {
            if attack == Attack::None { Ok(0) } else { strike(&flood, attack, group, stop) }
        });
        let outcome = crowd::run(network, &[Order::Source; RECEIVERS], length, &|| ());
        stop.store(true, Ordering::Relaxed);
        let sent = flooding.join().map_err(|_| Failure::new("the stranger panicked"))??;
        Ok((outcome?, sent))
    })
}

fn strike(
    flood: &Flood,
    attack: Attack,
    group: SocketAddr,
    stop: &AtomicBool,
) -> Result<u64, Failure> {
    let (mut forger, mut victim, mut turn) = (Forger::new(7), None, 0_u32);
    while victim.is_none() && !stop.load(Ordering::Relaxed) {
        let heard = flood.listen(LISTENS, |from, datagram| {
            victim = Some(from);
            forger.capture(datagram)
        });
        heard.map_err(Failure::of("listen"))?;
    }
    let Some(sender) = victim else { return Ok(0) };
    let rate = if attack == Attack::Noise { LINE_RATE } else { QUESTIONS };
    Ok(flood.run(rate, stop, |datagram| {
        turn = turn.wrapping_add(1);
        match (attack, turn % 2) {
            (Attack::Naks, _) => forger.nak(datagram),
            (Attack::Claims, 0) => forger.status(datagram),
            (Attack::Claims, _) => forger.session(datagram),
            _ => forger.noise(datagram),
        }
        let is_for_sender = match attack {
            Attack::Naks => true,
            Attack::Claims => turn.is_multiple_of(2),
            _ => turn.is_multiple_of(4),
        };
        if is_for_sender { sender } else { group }
    }))
}

/// Measures all attacks in turn.
pub(super) fn report(length: &Length) -> Result<Report, Failure> {
    // The sender, the receivers and the stranger.
    let network = rig::bridged(4)?;
    let mut rows: Vec<(String, Row)> =
        ATTACKS.iter().map(|(_, name)| ((*name).to_owned(), Row::default())).collect();
    let mut forged = [0; ATTACKS.len()];
    for _ in 0..length.repetitions {
        for (at, (attack, _)) in ATTACKS.iter().enumerate() {
            let (run, sent) = run(&network, *attack, length)?;
            rows[at].1.add(&run, RECEIVERS);
            forged[at] += sent;
        }
    }
    let mut goals = Vec::new();
    for (name, row) in &rows[1..] {
        goals.push(crowd::goal(
            &format!("throughput with {name}, relative to no attack"),
            Bound::AtLeast(0.8),
            Row::ratio(&row.rate, &rows[0].1.rate),
        ));
    }
    for (name, row) in &rows {
        goals.push(Goal {
            unit: "messages".to_owned(),
            ..crowd::goal(&format!("lost with {name}"), Bound::AtMost(0.0), row.lost as f64)
        });
    }
    let title = "Two receivers, with and without a host that floods the group and the sender";
    let mut report = crowd::report("hostile", title, BRIDGED, length, rows);
    report.goals = goals;
    for ((_, name), sent) in ATTACKS.iter().zip(forged).skip(1) {
        let seconds = length.each.as_secs_f64() * f64::from(length.repetitions);
        let rate = sent as f64 / seconds;
        report.notes.push(format!("{name}: about {rate:.0} datagrams a second were sent."));
    }
    Ok(report)
}
