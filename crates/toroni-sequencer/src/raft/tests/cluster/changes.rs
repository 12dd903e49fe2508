//! Members are added, removed, and told to lead; and a group is recovered from one of its logs.

use toroni_testkit::Random;

use super::super::super::recover;
use super::senders::Load;
use super::*;
use crate::machine::Outcome;

fn add(cluster: &Cluster<'_>, id: usize) -> Request {
    Request::Add { name: format!("m{id}"), address: cluster.addresses[id].clone() }
}

fn remove(id: usize) -> Request {
    Request::Remove(format!("m{id}"))
}

/// Asks the leader until it refuses for this reason. A loaded machine may elect another leader meanwhile.
async fn refused(links: &[Link], request: impl Fn(usize) -> Request, why: &str) {
    until(why, async || {
        let leads = leader(links).await?;
        match control(&links[leads], request(leads)).await {
            Answer::Failed(reason) if reason.contains(why) => Some(()),
            Answer::Done => panic!("done, and not: {why}"),
            Answer::Failed(reason) if reason.contains("no majority has taken the change") => {
                panic!("begun, and not: {why}")
            }
            answer => {
                println!("{answer:?}, and not yet: {why}");
                None
            }
        }
    })
    .await;
}

#[test]
fn a_member_is_replaced_by_one_with_an_empty_log_while_commands_flow() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        let lost = (leads + 1) % 3;

        // A disk is lost. The member comes back under its name, with an empty log.
        cluster.kill(lost);
        fs::remove_dir_all(cluster.log(lost)).expect("removed");
        cluster.start(lost);
        load.progress().await;
        let again = add(&cluster, lost);
        // At first, it may not listen yet.
        refused(&links, |_| again.clone(), "remove it first, then add it").await;
        refused(&links, remove, "leads").await;
        refused(&links, |_| Request::Remove("z".to_owned()), "no member z").await;
        until("another one says that it does not lead", async || {
            let leads = leader(&links).await?;
            let other = (0..3).find(|id| ![leads, lost].contains(id))?;
            matches!(control(&links[other], again.clone()).await, Answer::NotLeader(_))
                .then_some(())
        })
        .await;
        change(&links, remove(lost)).await;
        let members = |status: Status| {
            let votes = |id| status.voters.iter().all(|set| set.contains(&id));
            status.members.iter().map(|member| (member.id, votes(member.id))).collect::<Vec<_>>()
        };
        until("two members", async || {
            (members(status(&links[leads]).await?).len() == 2).then_some(())
        })
        .await;
        let leads = change(&links, again.clone()).await;
        let known = asked(&links[leads]).await;
        assert_eq!(members(known), [(0, true), (1, true), (2, true)]);
        // Once more does no harm.
        let leads = change(&links, again).await;

        // Now the group lives without the third one.
        let other = (0..3).find(|id| *id != leads && *id != lost).expect("there are three");
        cluster.kill(other);
        load.progress().await;
        cluster.start(other);
        load.end_and_check(&mut cluster, &[0, 1, 2]).await;
    });
}

/// It could neither be finished nor taken back.
#[test]
fn a_change_that_would_leave_no_majority_is_refused() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(4, Setup::default());
    runtime(2).block_on(async {
        begin(&cluster.addresses, 0..3).await;
        let links = cluster.links();
        let leads = until("a leader", async || leader(&links).await).await;
        let load = Load::start(&cluster, &mut random);
        load.progress().await;
        let (dead, lives) = ((leads + 1) % 3, (leads + 2) % 3);
        cluster.kill(dead);
        load.progress().await;
        let name = |id: usize| format!("m{id}");
        let why = format!("m{dead} does not answer: with this change, only ");
        let other = |leads: usize| {
            if leads == lives { (0..3).find(|id| ![leads, dead].contains(id)) } else { Some(lives) }
        };
        refused(&links, |leads| Request::Remove(name(other(leads).expect("three"))), &why).await;
        load.progress().await;
        // The dead one can be removed, and a new one takes its place.
        change(&links, remove(dead)).await;
        change(&links, add(&cluster, 3)).await;
        load.progress().await;
        load.end().await;
        (0..4).for_each(|id| cluster.kill(id));
    });
}

#[test]
fn a_member_that_has_entries_of_its_own_is_refused() {
    let mut cluster = Cluster::new(2, Setup::default());
    runtime(2).block_on(async {
        // Two groups of the same feed.
        begin(&cluster.addresses, 0..1).await;
        begin(&cluster.addresses, 1..2).await;
        let links = cluster.links();
        until("a leader", async || status(&links[0]).await?.leader).await;
        refused(&links[..1], |_| add(&cluster, 1), "start it with an empty directory").await;
        // Nor does a new group begin with it.
        cluster.kill(0);
        fs::remove_dir_all(cluster.log(0)).expect("removed");
        cluster.start(0);
        let all = |id: usize| {
            let address = cluster.addresses[id].clone();
            (id as u64, Member { name: format!("m{id}"), address, log: [0; 16] })
        };
        let members = Members { voters: vec![], members: (0..2).map(all).collect() };
        until("it is refused", async || {
            match control(&links[0], Request::Init(members.clone())).await {
                Answer::Failed(why) if why.contains("has entries already") => Some(()),
                Answer::Done => panic!("a log with entries joined"),
                _ => None,
            }
        })
        .await;
    });
}

#[test]
fn a_leader_hands_over_and_no_command_is_lost() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, mut leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        let mut stalls = vec![];
        for _ in 0..6 {
            load.progress().await;
            load.stall_ms();
            let heir = (leads + 1 + random.index(2)) % 3;
            // A loaded machine may elect another leader in between, and afterwards.
            leads = until("the heir leads", async || {
                change(&links, Request::HandOver(format!("m{heir}"))).await;
                leader(&links).await.filter(|leads| *leads == heir)
            })
            .await;
            load.progress().await;
            stalls.push(load.stall_ms());
        }
        // To one that is away: the leader stays, and takes commands again.
        let away = (leads + 1) % 3;
        cluster.kill(away);
        refused(&links, |_| Request::HandOver(format!("m{away}")), "does not lead").await;
        load.progress().await;
        cluster.start(away);
        load.end_and_check(&mut cluster, &[0, 1, 2]).await;
        println!("stalls in ms: {stalls:?}");
    });
}

#[test]
fn one_log_of_three_becomes_a_group_of_its_own() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        // On a busy machine, a batch holds all that was sent meanwhile, and the last two of a leader may be uncertain.
        for _ in 0..4 {
            load.progress().await;
        }
        load.end().await;
        let before = equal(&links).await;
        let series = asked(&links[leads]).await.series;
        (0..3).for_each(|id| cluster.kill(id));

        let kept = (leads + 1) % 3;
        let found = recover(&cluster.log(kept), Options::default()).expect("a log of a group");
        assert_eq!((found.id, found.member.name.clone()), (kept as u64, format!("m{kept}")));
        assert_eq!(found.next, before.0);
        assert!(found.certain > 0 && found.certain <= found.next, "{found:?}");
        assert!(found.series > series);
        let foreign = recover(&cluster.directory.join("empty"), Options::default());
        assert!(foreign.is_err_and(|error| error.to_string().contains("never part of a group")));

        // The others come back, and cannot disturb the new group, though they are a majority of the old one.
        (0..3).for_each(|id| cluster.start(id));
        let recovered = until("the new series", async || {
            status(&links[kept]).await.filter(|status| status.series == found.series)
        })
        .await;
        assert_eq!(recovered.next, before.0 + 1);
        assert_eq!(recovered.members.len(), 1);
        let open = Command::Open(Open {
            source: 7,
            series: 9,
            session: 1,
            bus: [7; 16],
            earlier: Some(&[]),
        });
        let outcome =
            until("an event", async || match call(&links[kept], submission(&[open])).await? {
                Answer::Outcomes(outcomes) => outcomes.first().copied(),
                _ => None,
            })
            .await;
        assert!(matches!(outcome, Outcome::Sequenced(_) | Outcome::Duplicate));
        let other = until("a leader of the old group", async || {
            leader(&links).await.filter(|leads| *leads != kept)
        });
        let _ = tokio::time::timeout(Duration::from_secs(5), other).await;
        let now = asked(&links[kept]).await;
        assert_eq!((now.leader, now.series), (Some(kept as u64), found.series));
    });
}
