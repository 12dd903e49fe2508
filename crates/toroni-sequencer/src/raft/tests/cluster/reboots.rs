//! Hosts reboot before entries were synced. What the log recorded of the boot is changed on the disk, and entries that were
//! answered are cut off, as after a power failure.

use toroni_testkit::directory::copy;
use toroni_testkit::{Random, network};

use super::super::super::recover;
use super::senders::Load;
use super::*;
use crate::log::Log;

const LOOSE: Setup<'_> =
    Setup { segment: LARGE, sync: Sync::OFTEN, hosts: &[], small_disk: None, keeps_all: None };

/// Kills a member, and has it lose its last entries and its boot.
fn lose_power(cluster: &mut Cluster<'_>, id: usize, entries: u64) {
    cluster.kill(id);
    let directory = cluster.log(id);
    let log = Log::open(&directory, Options { sync: Sync::OFTEN, ..Options::default() });
    let log = log.expect("opened");
    let last = log.ends().1.expect("it has entries").index;
    log.truncate((last + 1).saturating_sub(entries).max(1)).expect("cut");
    drop(log);
    Log::forget_boot(&directory).expect("written");
}

#[test]
fn a_member_that_lost_answered_entries_does_not_vote_before_it_has_them() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, LOOSE);
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        // One of three loses its last entries, while the leader lives: the leader brings them again.
        lose_power(&mut cluster, (leads + 1) % 3, 20);
        cluster.start((leads + 1) % 3);
        load.progress().await;
        until("certain again", async || {
            status(&links[(leads + 1) % 3]).await.filter(|status| !status.uncertain)
        })
        .await;

        // A leader and one that holds the rest: committed entries are on these two alone.
        let leads = until("a leader", async || leader(&links).await).await;
        let (has_all, behind) = ((leads + 1) % 3, (leads + 2) % 3);
        cluster.kill(behind);
        load.progress().await;
        let told = load.end().await;
        let before = asked(&links[leads]).await;
        // This one first: alone, it would soon try to be elected.
        lose_power(&mut cluster, has_all, 50);
        cluster.kill(leads);
        cluster.start(has_all);
        cluster.start(behind);
        // Together they would be a majority, and have not what was committed. Neither leads.
        let term = until("uncertain", async || {
            status(&links[has_all]).await.filter(|status| status.uncertain && status.term > 0)
        })
        .await
        .term;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(asked(&links[has_all]).await.term, term);
        assert_ne!(leader(&links).await, Some(has_all));
        assert_ne!(leader(&links).await, Some(behind));
        // The only one that has all comes back. Nothing is lost.
        cluster.start(leads);
        let after = until("all events again", async || {
            common(&links).await.filter(|(next, _)| *next >= before.next)
        })
        .await;
        assert!(after.0 > told.iter().map(|told| told.len() as u64).sum::<u64>());
        for link in &links {
            until("certain", async || status(link).await.filter(|status| !status.uncertain)).await;
        }
    });
}

#[test]
fn a_majority_that_lost_power_waits_for_a_recovery_and_says_so() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, LOOSE);
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        load.end().await;
        // The leader is one of them: it must not continue to lead. All are off, so that none is elected meanwhile.
        let other = (leads + 1) % 3;
        (0..3).for_each(|id| cluster.kill(id));
        lose_power(&mut cluster, leads, 5);
        lose_power(&mut cluster, other, 5);
        (0..3).for_each(|id| cluster.start(id));
        for id in [leads, other] {
            until("it says that a recovery is needed", async || {
                status(&links[id]).await.filter(|status| status.needs_recovery)
            })
            .await;
        }
        assert_eq!(leader(&links).await, None);
    });
}

/// Nothing on its disk tells that it has answered for more. The others know.
#[test]
fn a_member_that_was_restored_from_a_backup_does_not_vote_before_it_has_what_it_had() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    let backup = Directory::new();
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        let restored = (leads + 1) % 3;
        cluster.kill(restored);
        copy(&cluster.log(restored), backup.path());
        cluster.start(restored);
        load.progress().await;
        load.end().await;
        let leads = until("a leader", async || leader(&links).await).await;
        assert_ne!(leads, restored, "it was away");
        let before = equal(&links).await;
        // It shows the others how far it has come.
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.kill(restored);
        fs::remove_dir_all(cluster.log(restored)).expect("removed");
        copy(backup.path(), &cluster.log(restored));
        // With the third one, it would be a majority.
        cluster.signal(leads, Signal::STOP);
        cluster.start(restored);
        until("it learns what it has lost", async || {
            status(&links[restored]).await.filter(|status| status.uncertain)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        for id in [restored, 3 - leads - restored] {
            assert_ne!(asked(&links[id]).await.leader, Some(id as u64), "{id} leads");
        }
        cluster.signal(leads, Signal::CONT);
        until("certain", async || {
            status(&links[restored]).await.filter(|status| !status.uncertain)
        })
        .await;
        assert_eq!(equal(&links).await, before);
        (0..3).for_each(|id| cluster.kill(id));
    });
}

#[test]
fn a_member_alone_begins_a_new_series_after_a_power_failure() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(1, LOOSE);
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        load.end().await;
        let before = asked(&links[0]).await;
        assert_ne!(before.series, 0);
        lose_power(&mut cluster, 0, 1);
        cluster.start(0);
        let after = until("a new series", async || {
            status(&links[0]).await.filter(|status| status.series > before.series)
        })
        .await;
        assert!(after.next <= before.next + 1);
        until("certain", async || status(&links[0]).await.filter(|status| !status.uncertain)).await;
        // A kill alone begins none.
        cluster.kill(0);
        cluster.start(0);
        let again = until("the same events", async || {
            status(&links[0]).await.filter(|status| status.next == after.next)
        })
        .await;
        assert_eq!(again.series, after.series);
    });
}

/// A leader that is killed leads on when it is started again. Whatever it proposes then, `recover` must not take what no
/// majority had for certain.
#[test]
fn a_leader_that_was_killed_while_it_was_cut_off_makes_nothing_certain() {
    let mut random = Random::from_environment();
    let Some(network) = network::Setup::new(4).switched(random.number()) else { return };
    network.hosts[3].enter(|| {
        let setup = Setup { hosts: &network.hosts[..3], ..Setup::default() };
        let mut cluster = Cluster::new(3, setup);
        runtime(2).block_on(async {
            let (links, leads) = init(&cluster).await;
            // The first event begins the series of the feed.
            let committed = until("the series begins", async || {
                common(&links).await.map(|(next, _)| next).filter(|next| *next > 0)
            })
            .await;
            let others: Vec<_> = (0..3).filter(|id| *id != leads).collect();
            network.switch().partition(&[leads], &others);
            let mut sources = 10..;
            for life in 0..2 {
                if life > 0 {
                    cluster.kill(leads);
                    cluster.start(leads);
                }
                let before = asked(&links[leads]).await.last.expect("it has entries").index;
                let begun = Instant::now();
                // Each opens a series, which becomes an entry while there are permits.
                while begun.elapsed() < Duration::from_secs(1) {
                    let source = sources.next().expect("no end");
                    let open = Open {
                        source,
                        series: 9,
                        session: 1,
                        bus: [source.to_le_bytes()[0]; 16],
                        earlier: Some(&[]),
                    };
                    let (link, request) =
                        (links[leads].clone(), submission(&[Command::Open(open)]));
                    tokio::spawn(async move { link.call(&request).await });
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                let entries = asked(&links[leads]).await.last.expect("it has them").index - before;
                println!("life {life}: {entries} entries that no majority has");
                assert!(life > 0 || entries > 0, "the fault did not happen");
            }
            (0..3).for_each(|id| cluster.kill(id));
            let found = recover(&cluster.log(leads), Options::default()).expect("a log of a group");
            assert!(found.next > committed, "{found:?}");
            assert!(found.certain <= committed, "{found:?}, and {committed} were committed");
        });
    });
}
