//! Members are stopped, and cut off from each other, in both directions or in one. A leader that was cut off answers for
//! everything that it took, and works again afterwards.

use toroni_testkit::Random;
use toroni_testkit::network;

use super::senders::Load;
use super::*;
use crate::machine::Outcome;

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

/// Waits until a member says whether it is in contact. Returns how long that took.
async fn until_contact(link: &Link, is_out: bool) -> Duration {
    let begun = Instant::now();
    until("contact is noticed", async || {
        status(link).await.filter(|status| status.is_out_of_contact == is_out)
    })
    .await;
    begun.elapsed()
}

/// The entries that a leader that is cut off has proposed are replaced by a snapshot when it comes back, so openraft never
/// answers for them.
#[test]
fn a_leader_that_was_cut_off_and_got_a_snapshot_answers_and_leads_again() {
    let mut random = Random::from_environment();
    let Some(network) = network::Setup::new(4).switched(random.number()) else { return };
    network.hosts[3].enter(|| {
        let setup = Setup { hosts: &network.hosts[..3], segment: SMALL, ..Setup::default() };
        let mut cluster = Cluster::new(3, setup);
        runtime(2).block_on(async {
            let (links, leads) = init(&cluster).await;
            let mut source = Source::of(70);
            source.begin(&links[leads]).await;
            let others: Vec<_> = (0..3).filter(|id| *id != leads).collect();
            network.switch().partition(&[leads], &others);
            // As many as may be under way, each of which becomes an entry, and one that waits.
            let mut stale = vec![];
            for _ in 0..3 {
                let (link, request) = (links[leads].clone(), source.next_command());
                stale.push(tokio::spawn(async move { link.call(&request).await }));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let noticed = until_contact(&links[leads], true).await;
            until("it says why", async || {
                status(&links[leads]).await?.hindrance.filter(|why| why == "it hears no majority")
            })
            .await;
            // It takes nothing more, and says so at once.
            let refused = call(&links[leads], source.next_command()).await;
            assert_eq!(refused, Some(Answer::NotLeader(None)));
            let unconfirmed = control(&links[leads], Request::Confirm).await;
            assert!(!matches!(unconfirmed, Answer::Confirmed(_)), "{unconfirmed:?}");
            let stale_term = asked(&links[leads]).await.term;

            let load = Load::start(&cluster, &mut random);
            let next_leader = until("another leader", async || {
                let mut found = None;
                for id in &others {
                    let confirmed = call(&links[*id], Request::Confirm).await;
                    found = found.or(matches!(confirmed, Some(Answer::Confirmed(term)) if term > stale_term).then_some(*id));
                }
                found
            })
            .await;
            let last = asked(&links[leads]).await.last.expect("it has entries").index;
            until("the others purge what it has", async || {
                status(&links[next_leader]).await?.purged.filter(|place| place.index > last + 9)
            })
            .await;
            // What is on its way over connections of the time before would cut off the entries, for which openraft answers. The
            // kernel gives it up after some time.
            if toroni_testkit::long::is_asked() {
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            network.switch().heal();
            let healed = until_contact(&links[leads], false).await;
            for answer in stale {
                // Each has an answer, and none that says that it is an event.
                let answer = tokio::time::timeout(wait::LIMIT, answer).await.expect("answered");
                let answer = answer.expect("not cancelled").expect("the connection lives");
                assert!(matches!(answer, Answer::NotLeader(_)), "{answer:?}");
            }
            change(&links, Request::HandOver(format!("m{leads}"))).await;
            load.progress().await;
            load.end().await;
            // It takes commands like any leader.
            let mut source = Source::of(71);
            source.begin(&links[leads]).await;
            let answer = call(&links[leads], source.next_command()).await;
            assert!(
                matches!(&answer, Some(Answer::Outcomes(all)) if matches!(all[..], [Outcome::Sequenced(_)])),
                "{answer:?}"
            );
            assert_eq!(asked(&links[leads]).await.in_flight, 0);
            // And it hands over again, for which nothing may be under way.
            change(&links, Request::HandOver(format!("m{next_leader}"))).await;
            equal(&links).await;
            println!("isolated: seen after {noticed:?}, over after {healed:?}");
            (0..3).for_each(|id| cluster.kill(id));
        });
    });
}

/// Without a question before each election, its term would have grown, and would end that of the leader.
#[test]
fn a_follower_that_was_cut_off_causes_no_election_when_it_comes_back() {
    let mut random = Random::from_environment();
    let Some(network) = network::Setup::new(4).switched(random.number()) else { return };
    network.hosts[3].enter(|| {
        let cluster = Cluster::new(3, Setup { hosts: &network.hosts[..3], ..Setup::default() });
        runtime(2).block_on(async {
            let (links, leads) = init(&cluster).await;
            let load = Load::start(&cluster, &mut random);
            load.progress().await;
            let before = asked(&links[leads]).await.term;
            for follower in (0..3).filter(|id| *id != leads) {
                let others: Vec<_> = (0..3).filter(|id| *id != follower).collect();
                network.switch().partition(&[follower], &others);
                until_contact(&links[follower], true).await;
                tokio::time::sleep(FAULT).await;
                assert_eq!(asked(&links[follower]).await.term, before);
                network.switch().heal();
                until_contact(&links[follower], false).await;
                load.progress().await;
                for link in &links {
                    assert_eq!(asked(link).await.term, before);
                }
            }
            load.end().await;
        });
    });
}

/// It asks the others before it leads on, and does not give up those that are silent then.
#[test]
fn a_leader_that_is_started_again_hears_a_member_that_was_stopped_meanwhile() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        let stopped = (leads + 1) % 3;
        cluster.signal(stopped, Signal::STOP);
        cluster.kill(leads);
        cluster.start(leads);
        load.progress().await;
        cluster.signal(stopped, Signal::CONT);
        for link in &links {
            until("all answer it", async || {
                let members = status(link).await?.members;
                members.iter().all(|member| member.answers).then_some(())
            })
            .await;
        }
        load.end_and_check(&mut cluster, &[0, 1, 2]).await;
    });
}

/// The leader reaches one follower, and that one reaches all. The others hear no leader, and cannot be elected without the one that
/// hears it.
#[test]
fn the_only_member_that_reaches_all_others_comes_to_lead() {
    let mut random = Random::from_environment();
    let Some(network) = network::Setup::new(5).switched(random.number()) else { return };
    network.hosts[4].enter(|| {
        let cluster = Cluster::new(4, Setup { hosts: &network.hosts[..4], ..Setup::default() });
        runtime(2).block_on(async {
            let (links, leads) = init(&cluster).await;
            let load = Load::start(&cluster, &mut random);
            load.progress().await;
            let middle = (leads + 1) % 4;
            let ends: Vec<_> = (0..4).filter(|id| *id != middle).collect();
            for (at, end) in ends.iter().enumerate() {
                network.switch().partition(&[*end], &ends[at + 1..]);
            }
            until("the one in the middle leads", async || {
                match call(&links[middle], Request::Confirm).await? {
                    Answer::Confirmed(_) => Some(()),
                    _ => None,
                }
            })
            .await;
            load.progress().await;
            network.switch().heal();
            load.end().await;
        });
    });
}

#[test]
fn members_without_a_majority_or_a_leader_say_so_and_recover_without_help() {
    let mut random = Random::from_environment();
    let cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let others: Vec<_> = (0..3).filter(|id| *id != leads).collect();
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        others.iter().for_each(|id| cluster.signal(*id, Signal::STOP));
        until_contact(&links[leads], true).await;
        others.iter().for_each(|id| cluster.signal(*id, Signal::CONT));
        load.progress().await;
        for link in &links {
            until_contact(link, false).await;
        }
        // A follower whose leader and whose peer are silent.
        let leads = until("a leader", async || leader(&links).await).await;
        let others: Vec<_> = (0..3).filter(|id| *id != leads).collect();
        [leads, others[0]].iter().for_each(|id| cluster.signal(*id, Signal::STOP));
        until_contact(&links[others[1]], true).await;
        assert_eq!(asked(&links[others[1]]).await.in_flight, 0);
        [leads, others[0]].iter().for_each(|id| cluster.signal(*id, Signal::CONT));
        load.progress().await;
        for link in &links {
            until_contact(link, false).await;
        }
        load.end().await;
    });
}
