//! Members are killed again and again.

use toroni_testkit::Random;

use super::senders::Load;
use super::*;
use crate::machine::Outcome;

#[test]
fn commands_keep_one_order_while_leaders_are_killed() {
    let kills = std::env::var("TORONI_KILLS").map_or(8, |kills| kills.parse().expect("a number"));
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup::default());
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let load = Load::start(&cluster, &mut random);
        let mut stalls = vec![];
        for _ in 0..kills {
            load.progress().await;
            tokio::time::sleep(Duration::from_millis(random.below(200))).await;
            let id = until("a leader", async || leader(&links).await).await;
            load.stall_ms();
            cluster.kill(id);
            // At times a majority must live without it for longer.
            if random.below(2) == 0 {
                load.progress().await;
            }
            cluster.start(id);
            load.progress().await;
            stalls.push(load.stall_ms());
        }
        let next = load.end_and_check(&mut cluster, &[0, 1, 2]).await;
        println!("{kills} leaders killed, {next} events, stalls in ms: {stalls:?}");
    });
}

#[test]
fn a_member_that_was_away_for_longer_than_the_log_gets_a_snapshot() {
    let mut random = Random::from_environment();
    let mut cluster = Cluster::new(3, Setup { segment: SMALL, ..Setup::default() });
    runtime(2).block_on(async {
        let (links, leads) = init(&cluster).await;
        let away = (leads + 1 + random.index(2)) % 3;
        cluster.kill(away);
        let load = Load::start(&cluster, &mut random);
        until("the log is purged", async || {
            status(&links[leads]).await?.purged.filter(|place| place.index > 9)
        })
        .await;
        let told = load.end().await;
        cluster.start(away);
        let state = equal(&links).await;
        assert!(state.0 > told.iter().map(|told| told.len() as u64).sum::<u64>());
        // All of them begin from snapshots.
        (0..3).for_each(|id| cluster.kill(id));
        (0..3).for_each(|id| cluster.start(id));
        // What is committed is known when a leader has its first entry.
        until("the same state", async || common(&links).await.filter(|found| *found == state))
            .await;
    });
}

/// What was purged must not pass what the snapshot on the disk covers, or the member goes on without the state of everything
/// before. The leader dies, too, so that only the victim and one other member are left to show it.
#[test]
fn a_member_that_dies_while_it_takes_a_snapshot_lacks_nothing() {
    let mut random = Random::from_environment();
    let mut points = vec![
        "log-before-snapshot-name",
        "log-after-snapshot-name",
        "log-purge-noted",
        "log-mid-purge",
    ];
    // Each takes some seconds.
    let count = toroni_testkit::long::repetitions(1, 4);
    while points.len() > usize::try_from(count).expect("few") {
        points.swap_remove(random.index(points.len()));
    }
    for point in points {
        dies_at(point, &mut random);
    }
}

fn dies_at(point: &str, random: &mut Random) {
    println!("dies at {point}");
    let (first, victim, other) = (0, 1, 2);
    let setup = Setup { segment: SMALL, keeps_all: Some(other), ..Setup::default() };
    let mut cluster = Cluster::new(3, setup);
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let first_leads = async || {
            let leads = leader(&links).await?;
            if leads != first {
                control(&links[leads], Request::HandOver(format!("m{first}"))).await;
            }
            (leads == first).then_some(())
        };
        until("the member that purges leads", first_leads).await;
        let load = Load::start(&cluster, random);
        load.progress().await;
        let had = asked(&links[victim]).await.last.expect("it has entries").index;
        cluster.kill(victim);
        until("what the victim lacks is purged", async || {
            first_leads().await?;
            status(&links[first]).await?.purged.filter(|place| place.index > had)
        })
        .await;
        cluster.start_until(victim, Some(point));
        until("the victim dies", async || {
            first_leads().await;
            let victim = cluster.members[victim].as_mut().expect("started");
            victim.ended().expect("it can be asked")
        })
        .await;
        cluster.kill(first);
        cluster.start(victim);
        // The two that are left agree on what comes next.
        load.progress().await;
        load.end_and_check(&mut cluster, &[other]).await;
        // And on the state that all of it makes, which each now has from its own disk.
        cluster.start(victim);
        cluster.start(other);
        equal(&links[victim..]).await;
    });
}

/// What was written in earlier lives counts.
#[test]
fn a_log_does_not_grow_over_restarts() {
    let mut cluster = Cluster::new(1, Setup { segment: SMALL, ..Setup::default() });
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let mut source = Source::of(1);
        source.begin(&links[0]).await;
        let payload = vec![7; 12 << 10];
        for _ in 0..12 {
            // Less than what a snapshot is taken after.
            for _ in 0..5 {
                // On a busy machine, it may be out of contact with itself.
                until("an event", async || {
                    match call(&links[0], source.command_with(&payload)).await? {
                        Answer::Outcomes(_) => Some(()),
                        _ => None,
                    }
                })
                .await;
                source.next += 1;
            }
            cluster.kill(0);
            cluster.start(0);
            until("a leader", async || leader(&links).await).await;
        }
        // Twelve lives wrote 720 KiB.
        until("the log is purged", async || status(&links[0]).await?.purged).await;
        let segments = fs::read_dir(cluster.log(0)).expect("a directory");
        let segments = segments.filter(|entry| {
            let path = entry.as_ref().expect("readable").path();
            path.extension().is_some_and(|extension| extension == "log")
        });
        assert!(segments.count() <= 2);
        // Nothing was forgotten.
        let next = asked(&links[0]).await.next;
        cluster.kill(0);
        cluster.start(0);
        let again =
            until("all events", async || status(&links[0]).await.filter(|it| it.next > 0)).await;
        assert_eq!(again.next, next);
    });
}

#[test]
fn a_member_alone_goes_on_after_a_kill() {
    let mut cluster = Cluster::new(1, Setup::default());
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let open = Command::Open(Open {
            source: 1,
            series: 9,
            session: 1,
            bus: [3; 16],
            earlier: Some(&[]),
        });
        let answer = async || match call(&links[0], submission(&[open])).await {
            Some(Answer::Outcomes(outcomes)) => Some(outcomes),
            _ => None,
        };
        let first = until("an answer", answer).await;
        // After the event that begins the series. If the first answer was late, the second one calls it a duplicate.
        assert!(matches!(first[..], [Outcome::Sequenced(1) | Outcome::Duplicate]), "{first:?}");
        cluster.kill(0);
        cluster.start(0);
        until("a leader", async || leader(&links).await).await;
        assert_eq!(until("an answer", answer).await, [Outcome::Duplicate]);
    });
}

/// Several entries are under way at once, and later ones are shorter.
#[test]
fn what_a_connection_submits_stays_in_its_order() {
    let cluster = Cluster::new(1, Setup::default());
    runtime(2).block_on(async {
        let (links, _) = init(&cluster).await;
        let open = Command::Open(Open {
            source: 1,
            series: 9,
            session: 1,
            bus: [3; 16],
            earlier: Some(&[]),
        });
        until("a series", async || call(&links[0], submission(&[open])).await).await;
        let payload = vec![7; 60 << 10];
        for round in 0..60 {
            let calls = (0..8).map(|place| {
                let id = CommandId { source: 1, series: 9, number: round * 8 + place };
                let payload = &payload[..payload.len() >> (place % 4 * 4)];
                let publish = Publish { id, to_descendants: false, topic: "t", payload };
                let (link, request) = (links[0].clone(), submission(&[Command::Publish(publish)]));
                async move { link.call(&request).await }
            });
            for answer in futures_in_order(calls).await {
                let Ok(Answer::Outcomes(outcomes)) = answer else { panic!("{answer:?}") };
                assert!(matches!(outcomes[..], [Outcome::Sequenced(_)]), "{outcomes:?}");
            }
        }
    });
}

/// Begins each future before the next one, and returns what they come to.
async fn futures_in_order<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        match done.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
