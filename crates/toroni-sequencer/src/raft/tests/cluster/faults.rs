//! Members are stopped, and cut off from each other, in both directions or in one.

use toroni_testkit::Random;
use toroni_testkit::network;

use super::senders::Load;
use super::*;

/// Longer than an election takes. Afterwards, commands must come through before the fault is over.
const FAULT: Duration = Duration::from_secs(2);

#[test]
fn commands_keep_one_order_while_members_are_stopped() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        for stops_leader in [true, false, true] {
            let leads = until("a leader", async || leader(&links).await).await;
            let id = if stops_leader { leads } else { (leads + 1) % 3 };
            load.progress().await;
            load.stall_ms();
            cluster.signal(id, Signal::STOP);
            tokio::time::sleep(FAULT).await;
            load.progress().await;
            let stall = load.stall_ms();
            cluster.signal(id, Signal::CONT);
            load.progress().await;
            println!(
                "leader: {stops_leader}; stall {stall} ms, and {} ms after it",
                load.stall_ms()
            );
        }
        load.end_and_check(&mut cluster, &[0, 1, 2]).await;
    });
}

#[test]
fn commands_keep_one_order_while_members_are_cut_off() {
    let mut random = Random::from_environment();
    // The last host is that of the senders.
    let Some(network) = network::Setup::new(4).switched(random.number()) else { return };
    network.hosts[3].enter(|| {
        let mut cluster = Cluster::new(3, Setup { hosts: &network.hosts[..3], ..Setup::default() });
        runtime(2).block_on(async {
            let (links, _) = init(&cluster).await;
            let load = Load::start(&cluster, &mut random);
            load.progress().await;
            for (what, both, out) in [
                ("the leader is cut off", true, true),
                ("no member hears the leader", false, true),
                ("the leader hears no member", false, false),
            ] {
                let leads = until("a leader", async || leader(&links).await).await;
                let others: Vec<_> = (0..3).filter(|id| *id != leads).collect();
                load.progress().await;
                load.stall_ms();
                match (both, out) {
                    (true, _) => network.switch().partition(&[leads], &others),
                    (false, true) => network.switch().block(&[leads], &others),
                    (false, false) => network.switch().block(&others, &[leads]),
                }
                tokio::time::sleep(FAULT).await;
                load.progress().await;
                let stall = load.stall_ms();
                network.switch().heal();
                load.progress().await;
                println!("{what}: stall {stall} ms, and {} ms after it", load.stall_ms());
            }
            load.end_and_check(&mut cluster, &[0, 1, 2]).await;
        });
    });
}
