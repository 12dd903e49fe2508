//! The disk of a member fills up. It is a small file system that only this member sees.

use toroni_testkit::Random;

use super::senders::Load;
use super::*;

#[test]
fn a_leader_whose_disk_is_full_hands_over_and_catches_up_when_there_is_room() {
    if !rustix::process::geteuid().is_root() {
        return toroni_testkit::network::skip("a small file system needs root");
    }
    let mut random = Random::from_environment();
    let small = 1;
    // One segment beside the ballast, and not two.
    let setup = Setup { segment: "524288", small_disk: Some((small, 1200)), ..Setup::default() };
    let cluster = Cluster::new(3, setup);
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        change(&links, Request::HandOver(format!("m{small}"))).await;
        // Seen by its process only.
        let pid = cluster.members[small].as_ref().expect("it runs").id();
        let path = cluster.log(small).join("ballast");
        let ballast = format!("/proc/{pid}/root{}", path.display());
        fs::write(&ballast, vec![1; 400 << 10]).expect("room for it");

        let load = Load::start(&cluster, &mut random);
        let full = until("the disk is full", async || {
            status(&links[small]).await.filter(|status| status.full)
        })
        .await;
        assert!(full.room < 512 << 10, "{full:?}");
        let other =
            until("another leader", async || leader(&links).await.filter(|leads| *leads != small))
                .await;
        load.progress().await;
        load.progress().await;
        // It refuses what it has no room for, and the leader knows that it has not all.
        let known = asked(&links[other]).await.members;
        assert_ne!(known[small].behind, Some(0));
        let told = load.end().await;
        assert_eq!(told.len(), 3);
        // It lives, and takes what it lacks as soon as it can.
        fs::remove_file(&ballast).expect("removed");
        until("room again", async || status(&links[small]).await.filter(|status| !status.full))
            .await;
        equal(&links).await;
    });
}
