//! Cases with an outcome of their own, besides what holds for every seed.

use super::fault::{Fault, Kind};
use super::oracle::{Count, Failure, Given};
use super::scenario::{Publish, Scenario, steady};
use super::world::{Summary, World};
use crate::config::Order;
use crate::legs::LegCounters;
use crate::sender::Event;
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::wire::{LostReason, Policy};

const MS: u64 = MILLISECOND;

fn fault(kind: Kind, from: u64, until: u64, who: usize) -> Fault {
    Fault { kind, from: from * MS, until: until * MS, who }
}

fn run(scenario: &Scenario) -> World<'_> {
    World::new(scenario).run().unwrap_or_else(|failure| panic!("{}", failure.text))
}

fn judge(world: World<'_>) -> Summary {
    world.judge().unwrap_or_else(|Failure { text, .. }| panic!("{text}"))
}

/// Nothing was lost, and everything delivered to all receivers.
fn delivers_all(scenario: &Scenario) -> Summary {
    let world = run(scenario);
    for receiver in 0..scenario.receivers {
        assert_eq!(world.losses(receiver), [], "receiver {receiver}");
    }
    let summary = judge(world);
    assert_eq!(summary.delivered, summary.published * scenario.receivers as u64);
    summary
}

fn reasons(world: &World<'_>, receiver: usize) -> Vec<LostReason> {
    let reason = |one: Given| match one {
        Given::Loss { reason, .. } => Some(reason),
        Given::Message { .. } => None,
    };
    world.losses(receiver).into_iter().filter_map(reason).collect()
}

/// 35 Mbit/s of 50, and each receiver loses 1 of 200 datagrams.
fn busy() -> Scenario {
    let mut scenario = Scenario::quiet(1, 50_000_000);
    scenario.receivers = 5;
    scenario.publishes = vec![steady(100 * MS, 2_300 * MS, 260 * MICROSECOND, 1_000)];
    scenario.faults = vec![fault(Kind::Loss { permille: 5 }, 0, 2_500, 0)];
    scenario
}

/// The 99th percentile of the latency at the first four receivers in nanoseconds, and how many messages they got in
/// time: not later than the generation interval.
fn good_ones(harm: Option<Kind>) -> (u64, usize) {
    let mut list = Vec::new();
    for seed in 0..4 {
        let mut scenario = Scenario { seed, ..busy() };
        scenario.faults.extend(harm.map(|kind| fault(kind, 500, 1_500, 4)));
        let world = run(&scenario);
        for receiver in 0..4 {
            assert_eq!(world.losses(receiver), [], "{harm:?}, receiver {receiver}");
            list.extend(world.latencies(receiver));
        }
        if harm == Some(Kind::Flood) {
            // 100,000 came, and 2,000 of one address are read in a second.
            let sender = world.sender(0).unwrap();
            assert!(sender.refused() > 95_000, "{} refused", sender.refused());
            assert!(sender.counters().naks < 10_000, "{} read", sender.counters().naks);
        }
        judge(world);
    }
    list.sort_unstable();
    let in_time = list.iter().filter(|latency| **latency <= 200 * MS).count();
    (list[list.len() * 99 / 100], in_time)
}

#[test]
fn neither_a_crybaby_nor_a_flood_of_naks_harms_the_others() {
    let (usual, all) = good_ones(None);
    for kind in [Kind::Crybaby { permille: 300 }, Kind::Flood] {
        let (p99, in_time) = good_ones(Some(kind));
        println!("{kind:?}: p99 {} µs, without {} µs", p99 / 1_000, usual / 1_000);
        // Repairs leave at 12.5 Mbit/s, a datagram in 0.75 ms, and those of the others come first in each turn.
        assert!(p99 <= usual * 3 / 2 + 3 * MS, "{kind:?}: p99 {p99} ns, without {usual} ns");
        assert!(in_time * 100 >= all * 95, "{in_time} of {all} in time");
    }
}

/// Without a key, anybody can make a receiver believe anything, except that it has more memory or time.
#[test]
fn whatever_a_stranger_sends_the_machines_keep_their_bounds() {
    for seed in 0..60 {
        let mut scenario = Scenario::from_seed(seed);
        (scenario.keyed, scenario.rekeys) = (false, false);
        for who in 0..3 {
            scenario.faults.push(fault(Kind::Noise, 100, 1_500, who));
        }
        run(&scenario);
    }
}

/// With a key, a stranger can only repeat what others have sent: any of it, at any time, to any node and from any address.
#[test]
fn whatever_a_recorder_plays_a_realm_with_a_key_keeps_its_promises() {
    for seed in 0..60 {
        let mut scenario = Scenario::from_seed(seed);
        (scenario.keyed, scenario.repairers) = (true, 0);
        scenario.faults.push(fault(Kind::Recorder, 100, 2_500, 0));
        super::world::run(&scenario)
            .unwrap_or_else(|Failure { text, .. }| panic!("seed {seed}: {text}"));
    }
    // A sender is off for longer than it promised, and its lives before are played.
    for seed in 0..20 {
        let mut scenario = Scenario::quiet(seed, 20_000_000);
        scenario.keyed = true;
        scenario.publishes = vec![steady(100 * MS, 2_400 * MS, 10 * MS, 100)];
        scenario.faults = vec![
            fault(Kind::NewSeries, 300, 320, 0),
            fault(Kind::NewSeries, 800, 1_600, 0),
            fault(Kind::Recorder, 0, 2_500, 0),
        ];
        super::world::run(&scenario)
            .unwrap_or_else(|Failure { text, .. }| panic!("seed {seed}: {text}"));
    }
}

/// Two required receivers, of which the second may hold the sender.
fn slowest() -> Scenario {
    let mut scenario = Scenario::quiet(2, 50_000_000);
    scenario.config.policy = Policy::Slowest;
    scenario.config.activity_ns = 10 * SECOND;
    scenario.config.hold_limit_ns = 5 * SECOND;
    scenario.config.reorder_memory_bytes = 1 << 17;
    scenario.config.group_min = 2;
    (scenario.receivers, scenario.required) = (2, 2);
    scenario.faults_end = 8 * SECOND;
    let mut list = steady(100 * MS, 7_900 * MS, MS, 1_000);
    list.extend(steady(20 * SECOND, 20_200 * MS, 50 * MS, 100));
    scenario.publishes = vec![list];
    scenario
}

fn put_outs(world: &World<'_>) -> Vec<(u64, &'static str)> {
    let name = |event: &Event| match event {
        Event::PutOut { why: crate::audience::PutOut::Silent, .. } => "silent",
        Event::PutOut { .. } => "holds",
        Event::Back { .. } => "back",
        _ => "",
    };
    world.reports.iter().map(|(at, _, event)| (at / MS, name(event))).collect()
}

#[test]
fn a_required_receiver_holds_the_sender_until_it_is_put_out_and_comes_back() {
    let mut scenario = slowest();
    scenario.faults = vec![fault(Kind::Stop, 1_000, 7_000, 1)];
    let world = run(&scenario);
    let [(out, "silent"), (back, "back")] = put_outs(&world)[..] else {
        panic!("{:?}", put_outs(&world));
    };
    assert!((2_900..=3_000).contains(&out), "put out at {out} ms");
    assert!((7_000..7_500).contains(&back), "back at {back} ms");
    // Until then the publisher's side waited, and the other receiver lost nothing.
    let longest = *world.latencies(0).last().unwrap() / MS;
    assert!((1_700..2_000).contains(&longest), "waited for {longest} ms");
    assert_eq!(world.losses(0), []);
    assert!(reasons(&world, 1).contains(&LostReason::Gone), "{:?}", reasons(&world, 1));
    judge(world);
}

#[test]
fn a_required_receiver_that_hears_nothing_holds_for_the_limit() {
    let mut scenario = slowest();
    scenario.config.hold_limit_ns = SECOND;
    scenario.faults = vec![fault(Kind::Deaf, 1_000, 5_000, 1)];
    let world = run(&scenario);
    let [(out, "holds"), (back, "back")] = put_outs(&world)[..] else {
        panic!("{:?}", put_outs(&world));
    };
    // 128 KiB are in flight after about 120 ms, and the limit is 1 s.
    assert!((2_050..2_200).contains(&out), "put out at {out} ms");
    assert!((5_000..5_500).contains(&back), "back at {back} ms");
    assert_eq!(world.losses(0), []);
    judge(world);
}

#[test]
fn required_receivers_that_keep_up_lose_nothing_however_small_their_memory_is() {
    // Each of the small ones takes a receive buffer too.
    for length in [100, 1_000] {
        let mut scenario = slowest();
        scenario.publishes[0].iter_mut().for_each(|one| one.length = length);
        scenario.faults = vec![
            fault(Kind::Bursts { permille: 10 }, 500, 6_000, 0),
            // Shorter than the limit.
            fault(Kind::Deaf, 2_000, 2_150, 1),
            fault(Kind::Stop, 4_000, 5_500, 1),
        ];
        delivers_all(&scenario);
    }
}

#[test]
fn the_first_message_waits_for_the_whole_group() {
    let mut scenario = slowest();
    scenario.faults = vec![fault(Kind::Mute, 0, 700, 1)];
    let world = run(&scenario);
    let longest = *world.latencies(0).last().unwrap() / MS;
    assert!((600..2_700).contains(&longest), "the first message waited for {longest} ms");
    judge(world);
}

#[test]
fn what_a_sender_packed_before_its_group_was_complete_is_reported_if_it_restarts() {
    let mut scenario = slowest();
    scenario.faults =
        vec![fault(Kind::DeafSender, 0, 1_500, 0), fault(Kind::RestartSender, 1_000, 1_200, 0)];
    let world = run(&scenario);
    for receiver in 0..2 {
        let lost = world.losses(receiver).len();
        assert!(lost > 0, "receiver {receiver} knows nothing of the first session's messages");
    }
    judge(world);
}

/// A session that repeats the one before is cut off while it does, for longer than `activity`, and heard again.
#[test]
fn a_session_that_is_resumed_repeats_nothing_of_the_session_before() {
    for order in [Order::Source, Order::Arrival] {
        let mut scenario = Scenario::quiet(12, 20_000_000);
        scenario.config.order = order;
        let again = Kind::KillSender { again: 40, skip: 0, forgets: false };
        scenario.faults = vec![fault(again, 600, 1_000, 0), fault(Kind::LegCut, 1_005, 1_800, 0)];
        scenario.publishes = vec![steady(100 * MS, 2_400 * MS, 10 * MS, 1_000)];
        let world = run(&scenario);
        assert!(reasons(&world, 0).contains(&LostReason::Silent), "{order:?}");
        judge(world);
    }
}

#[test]
fn two_legs_deliver_once_and_one_of_them_is_enough() {
    let mut scenario = Scenario::quiet(3, 20_000_000);
    scenario.legs = 2;
    scenario.receivers = 2;
    scenario.publishes = vec![steady(100 * MS, 2_400 * MS, 2 * MS, 500)];
    let whole = run(&scenario);
    let data = whole.sender(0).unwrap().counters().data;
    for receiver in 0..2 {
        assert_eq!(whole.duplicates(receiver), data, "each datagram came twice");
        let first = LegCounters { first: data, duplicates: 0, missing: 0 };
        let second = LegCounters { first: 0, duplicates: data, missing: 0 };
        assert_eq!(whole.legs(receiver), [first, second]);
    }
    judge(whole);
    scenario.faults = vec![fault(Kind::LegCut, 500, 1_500, 1)];
    // For one second, a datagram each 2 ms does not come on the second leg.
    assert_eq!(run(&scenario).legs(0)[1].missing, 500);
    let naks = delivers_all(&scenario).naks;
    assert_eq!(naks, 0, "nothing was missing");
    scenario.faults = vec![
        fault(Kind::Loss { permille: 100 }, 500, 2_000, 0),
        fault(Kind::LegOneWay, 500, 2_000, 0),
    ];
    assert!(delivers_all(&scenario).naks > 0);
}

#[test]
fn the_keys_are_changed_without_a_loss() {
    let mut scenario = Scenario::quiet(4, 20_000_000);
    (scenario.keyed, scenario.rekeys) = (true, true);
    scenario.receivers = 3;
    scenario.publishes =
        vec![steady(50 * MS, 3_500 * MS, 5 * MS, 300), steady(53 * MS, 3_500 * MS, 7 * MS, 300)];
    delivers_all(&scenario);
    // All understand one another at each moment: the longest pause is that of a source which restarts.
    for receiver in 0..3 {
        let longest = *run(&scenario).latencies(receiver).last().unwrap() / MS;
        assert!(longest < 130, "{longest} ms");
    }
}

#[test]
fn a_source_that_ends_repairs_what_was_lost_before() {
    let mut scenario = Scenario::quiet(11, 20_000_000);
    scenario.publishes = vec![steady(100 * MS, 1_020 * MS, 2 * MS, 300)];
    scenario.faults =
        vec![fault(Kind::Deaf, 1_000, 1_030, 0), fault(Kind::EndSender, 1_020, 1_021, 0)];
    delivers_all(&scenario);
}

#[test]
fn bursts_of_10_to_10_000_datagrams_are_repaired() {
    for count in [10, 100, 1_000, 10_000] {
        let mut scenario = Scenario::quiet(5, 200_000_000);
        let config = &mut scenario.config;
        config.window_bytes = 64 << 20;
        config.reorder_memory_bytes = 64 << 20;
        config.receive_memory_bytes = 64 << 20;
        config.generation_ns = 2 * SECOND;
        config.activity_ns = 3 * SECOND;
        scenario.faults_end = 2 * SECOND;
        let every = 50 * MICROSECOND;
        scenario.publishes = vec![steady(100 * MS, 1_200 * MS, every, 100)];
        scenario.faults = vec![fault(Kind::Burst { count }, 200, 2_000, 0)];
        let world = run(&scenario);
        assert_eq!(world.losses(0), [], "{count}");
        let longest = *world.latencies(0).last().unwrap();
        // A datagram takes 64 + 8 + 100 + 66 bytes, and repairs have a quarter of the rate.
        let repairs = count * 238 * 8 * SECOND / 50_000_000;
        let bound = count * every + repairs * 12 / 10 + 20 * MS;
        println!("{count}: {} ms, at most {} ms", longest / MS, bound / MS);
        assert!(longest <= bound, "{count}: {longest} ns, and {bound} are allowed");
        judge(world);
    }
}

#[test]
fn a_receiver_that_was_stopped_for_10_s_reads_its_socket_and_loses_nothing() {
    let mut scenario = Scenario::quiet(6, 20_000_000);
    scenario.faults_end = 12 * SECOND;
    // It misses a message, and its NAK does not arrive before it is stopped.
    scenario.delay = 2 * MS;
    scenario.faults = vec![
        fault(Kind::Deaf, 850, 1_050, 0),
        fault(Kind::Mute, 1_090, 1_103, 0),
        fault(Kind::Stop, 1_103, 11_103, 0),
    ];
    scenario.publishes = vec![steady(100 * MS, 13 * SECOND, 200 * MS, 100)];
    delivers_all(&scenario);
}

#[test]
fn two_nodes_with_one_id_notice_it_and_with_a_key_the_later_one_stops() {
    for keyed in [false, true] {
        let mut scenario = Scenario::quiet(7, 20_000_000);
        scenario.keyed = keyed;
        scenario.faults = vec![fault(Kind::Twin, 500, 2_400, 0)];
        scenario.publishes = vec![steady(100 * MS, 8_500 * MS, 10 * MS, 100)];
        let world = run(&scenario);
        assert!(world.sender(0).is_some(), "the first one goes on");
        assert_eq!(world.stopped_by_collision(1), keyed);
        let losses = world.losses(0);
        assert_eq!(losses.is_empty(), !keyed, "{losses:?}");
        assert!(judge(world).collisions > 0);
    }
}

#[test]
fn what_does_not_fit_the_path_is_lost_exactly_and_the_rest_arrives() {
    let mut scenario = Scenario::quiet(8, 20_000_000);
    scenario.faults = vec![fault(Kind::Mtu { bytes: 800 }, 500, 1_500, 0)];
    let mut list: Vec<Publish> = steady(100 * MS, 2_400 * MS, 20 * MS, 1_000);
    list.extend(steady(110 * MS, 2_400 * MS, 20 * MS, 100));
    list.sort_by_key(|one| one.at);
    scenario.publishes = vec![list];
    let world = run(&scenario);
    // Those of the last 200 ms were repaired afterwards.
    let counts: u64 = world
        .losses(0)
        .iter()
        .map(|one| match one {
            Given::Loss { count: Count::Exact(count), reason: LostReason::Budget, .. } => *count,
            other => panic!("{other:?}"),
        })
        .sum();
    assert!((38..=42).contains(&counts), "{counts} lost");
    judge(world);
}

#[test]
fn a_source_that_dies_is_reported_when_it_was_silent_for_long() {
    let mut scenario = Scenario::quiet(9, 20_000_000);
    scenario.receivers = 3;
    scenario.faults = vec![fault(Kind::Die, 1_000, 1_000, 0)];
    scenario.publishes = vec![steady(100 * MS, 2_400 * MS, 10 * MS, 100)];
    let world = run(&scenario);
    for receiver in 0..3 {
        let losses = world.losses(receiver);
        let [Given::Loss { at, count: Count::AtLeast(0), reason: LostReason::Silent, .. }] =
            losses[..]
        else {
            panic!("{losses:?}");
        };
        assert!((1_690..=1_701).contains(&(at / MS)), "reported at {at} ns");
    }
    judge(world);
}

/// In both orders, and also for a receiver that was killed meanwhile. Its last session but one is forgotten, too, or not.
#[test]
fn a_sender_that_goes_back_to_a_backup_is_noticed_once_and_what_follows_arrives() {
    for (order, back, killed) in [
        (Order::Source, 0, false),
        (Order::Source, 1, false),
        (Order::Source, 0, true),
        (Order::Arrival, 0, false),
        (Order::Arrival, 1, false),
    ] {
        for keyed in [false, true] {
            let mut scenario = Scenario::quiet(12, 20_000_000);
            (scenario.keyed, scenario.config.order) = (keyed, order);
            scenario.faults = vec![
                fault(Kind::RestartSender, 400, 500, 0),
                fault(Kind::RestartSender, 900, 1_000, 0),
                fault(Kind::Revert { back, again: 10 }, 1_500, 1_700, 0),
            ];
            if killed {
                let kill = Kind::KillReceiver { remembers: true };
                scenario.faults.push(fault(kill, 1_550, 1_560, 0));
            }
            scenario.publishes = vec![steady(100 * MS, 2_400 * MS, 10 * MS, 100)];
            let world = run(&scenario);
            assert_eq!(reasons(&world, 0), [LostReason::Diverged], "{order:?} {back} {killed}");
            judge(world);
        }
    }
}

#[test]
fn the_repairers_of_a_feed_repair_it_although_its_source_hears_nothing() {
    for repairers in 1..=3 {
        let mut scenario = Scenario::quiet(10, 20_000_000);
        (scenario.receivers, scenario.repairers) = (3, repairers);
        scenario.publishes = vec![steady(100 * MS, 2_400 * MS, 2 * MS, 300)];
        scenario.faults = vec![
            fault(Kind::Crybaby { permille: 50 }, 300, 2_000, 0),
            fault(Kind::Crybaby { permille: 50 }, 300, 2_000, 1),
            fault(Kind::DeafSender, 300, 2_500, 0),
        ];
        let world = run(&scenario);
        let by_source = world.sender(0).unwrap().counters().repairs;
        let summary = delivers_all(&scenario);
        assert!(summary.repairs > 10 * by_source, "{by_source} of {}", summary.repairs);
    }
}
