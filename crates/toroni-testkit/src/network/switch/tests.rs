//! Each fault does what it says, without sockets and with times that the test chooses. The seeds are fixed, so the
//! statistics are always the same; the limits are four standard deviations.

use super::engine::Engine;
use super::frame::samples;
use super::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 84, 79);
const GROUP_MAC: [u8; 6] = [1, 0, 0x5e, 0x40, 0x54, 0x4f];
const MS: Duration = Duration::from_millis(1);

/// A datagram to the group that carries a number.
fn numbered(from: u8, number: u64) -> Vec<u8> {
    samples::datagram(from, GROUP_MAC, GROUP, &number.to_be_bytes())
}

fn number_of(frame: &[u8]) -> u64 {
    u64::from_be_bytes(*frame.last_chunk().unwrap())
}

/// A switch with three ports, its time, and what each port has sent.
struct Rig {
    engine: Engine,
    begin: Instant,
    now: Instant,
    sent: Vec<Vec<(Duration, Vec<u8>)>>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        Self { engine: Engine::new(3, seed), begin: now, now, sent: vec![Vec::new(); 3] }
    }

    fn with(seed: u64, port: usize, direction: Direction, faults: &Faults) -> Self {
        let mut rig = Self::new(seed);
        rig.engine.set_faults(port, direction, faults);
        rig
    }

    fn send(&mut self, from: usize, frame: &[u8]) {
        self.engine.receive(self.now, from, frame);
        self.advance();
    }

    fn advance(&mut self) {
        self.engine.advance(self.now);
        for (port, sent) in self.sent.iter_mut().enumerate() {
            let now = self.now - self.begin;
            sent.extend(self.engine.out(port).drain(..).map(|frame| (now, frame.to_vec())));
        }
    }

    /// Sends `count` numbered frames from port 0, one in a millisecond.
    fn send_numbered(&mut self, count: u64) {
        for number in 0..count {
            self.send(0, &numbered(1, number));
            self.now += MS;
        }
    }

    /// Jumps from one due time to the next until nothing is on its way.
    fn finish(&mut self) {
        while let Some(due) = self.engine.next_due() {
            self.now = self.now.max(due);
            self.advance();
        }
    }

    fn numbers(&self, port: usize) -> Vec<u64> {
        self.sent[port].iter().map(|(_, frame)| number_of(frame)).collect()
    }

    fn counts(&self, port: usize, direction: Direction) -> Counts {
        let counts = self.engine.counts(port);
        match direction {
            Direction::In => counts.received,
            Direction::Out => counts.sent,
        }
    }
}

/// Asserts that `hits` of `trials` is what a probability leads one to expect.
#[track_caller]
fn assert_share(hits: u64, trials: u64, probability: f64) {
    let [hits, trials] = [hits, trials].map(crate::units::as_f64);
    let deviation = (trials * probability * (1.0 - probability)).sqrt();
    let expected = trials * probability;
    assert!((hits - expected).abs() <= 4.0 * deviation, "{hits} of {trials}: not {probability}");
}

fn loss(loss: Loss) -> Faults {
    Faults { loss, ..Faults::default() }
}

#[test]
fn without_faults_all_frames_pass_at_once_and_in_order() {
    let mut rig = Rig::new(1);
    rig.send_numbered(1000);
    for port in [1, 2] {
        assert_eq!(rig.numbers(port), (0..1000).collect::<Vec<_>>());
        assert!(rig.sent[port].iter().zip(0..).all(|((at, _), number)| *at == MS * number));
    }
    assert_eq!(rig.sent[0].len(), 0, "nothing goes back");
    assert_eq!(rig.counts(0, Direction::In).passed, 1000);
}

#[test]
fn the_decisions_follow_from_the_seed_and_not_from_the_time() {
    let faults = Faults {
        loss: Loss::Bernoulli(0.2),
        corruption: Corruption { probability: 0.1, passes_checksums: true },
        duplication: 0.1,
        reordering: Reordering { probability: 0.1, distance: 3, limit: MS * 10_000 },
        ..Faults::default()
    };
    let run = |seed, pause: Duration| {
        let mut rig = Rig::with(seed, 0, Direction::In, &faults);
        for number in 0..2000 {
            rig.send(0, &numbered(1, number));
            rig.now += pause;
        }
        rig.finish();
        rig.sent[1].iter().map(|(_, frame)| frame.clone()).collect::<Vec<_>>()
    };
    assert!(run(1, MS) == run(1, Duration::from_nanos(17)));
    assert!(run(1, MS) != run(2, MS));
    let mut quiet = Faults { duplication: 0.0, reordering: Reordering::default(), ..faults };
    quiet.corruption.probability = 0.0;
    let mut rig = Rig::with(1, 0, Direction::In, &quiet);
    rig.send_numbered(2000);
    let passed: BTreeSet<_> = run(1, MS)
        .into_iter()
        .filter_map(|frame| {
            // Those with a checksum are whole.
            (frame[40..42] != [0, 0]).then(|| number_of(&frame))
        })
        .collect();
    let without: BTreeSet<_> = rig.numbers(1).into_iter().collect();
    assert!(passed.is_subset(&without), "other faults change nothing about which are lost");
}

/// If they shared a draw, no frame that is damaged would pass.
#[test]
fn the_faults_of_a_frame_are_independent() {
    let corruption = Corruption { probability: 0.5, passes_checksums: true };
    let loss = Loss::Bernoulli(0.5);
    let faults = Faults { loss, corruption, duplication: 0.5, ..Faults::default() };
    let mut rig = Rig::with(2, 0, Direction::In, &faults);
    rig.send_numbered(10_000);
    let Counts { lost, corrupted, duplicated, .. } = rig.counts(0, Direction::In);
    assert_share(lost, 10_000, 0.5);
    assert_share(corrupted, 10_000 - lost, 0.5);
    assert_share(duplicated, 10_000 - lost, 0.5);
}

#[test]
fn losses_are_as_frequent_as_asked_and_those_of_two_ports_independent() {
    const TRIALS: u64 = 100_000;
    let mut rig = Rig::new(3);
    for port in [1, 2] {
        rig.engine.set_faults(port, Direction::Out, &loss(Loss::Bernoulli(0.05)));
    }
    rig.send_numbered(TRIALS);
    let lost = |port| {
        let passed: BTreeSet<_> = rig.numbers(port).into_iter().collect();
        (0..TRIALS).filter(|number| !passed.contains(number)).collect::<BTreeSet<_>>()
    };
    let [one, two] = [lost(1), lost(2)];
    for (port, lost) in [(1, &one), (2, &two)] {
        assert_share(lost.len() as u64, TRIALS, 0.05);
        assert_eq!(rig.counts(port, Direction::Out).lost, lost.len() as u64);
    }
    assert_share(one.intersection(&two).count() as u64, TRIALS, 0.0025);
    let neighbours = one.iter().filter(|number| one.contains(&(*number + 1))).count();
    assert_share(neighbours as u64, TRIALS, 0.0025);
}

#[test]
fn a_loss_on_the_way_in_is_one_for_all() {
    let mut rig = Rig::with(4, 0, Direction::In, &loss(Loss::Bernoulli(0.5)));
    rig.send_numbered(1000);
    assert_eq!(rig.numbers(1), rig.numbers(2));
    assert_share(rig.numbers(1).len() as u64, 1000, 0.5);
    rig.send(1, &numbered(2, 0));
    assert_eq!(rig.numbers(0), [0], "another port is spared");
}

#[test]
fn the_link_of_gilbert_and_elliott_loses_in_bursts_of_the_expected_length() {
    const TRIALS: u64 = 200_000;
    let faults =
        loss(Loss::GilbertElliott { to_bad: 0.01, to_good: 0.1, in_good: 0.0, in_bad: 1.0 });
    let mut rig = Rig::with(5, 1, Direction::Out, &faults);
    rig.send_numbered(TRIALS);
    let passed = rig.numbers(1);
    let bursts = passed.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as u64;
    let lost = TRIALS - passed.len() as u64;
    // In the long run the share of the bad state is 0.01 / (0.01 + 0.1).
    let [lost, bursts, trials] = [lost, bursts, TRIALS].map(crate::units::as_f64);
    assert!((lost / trials - 1.0 / 11.0).abs() < 0.005, "{}", lost / trials);
    assert!((lost / bursts - 10.0).abs() < 1.0, "{}", lost / bursts);
}

#[test]
fn bursts_have_their_length_and_can_be_asked_for() {
    let mut rig =
        Rig::with(6, 1, Direction::Out, &loss(Loss::Bursts { probability: 0.001, frames: 50 }));
    rig.send_numbered(20_000);
    let numbers = rig.numbers(1);
    let gaps: Vec<_> =
        numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    assert!(gaps.len() > 5 && gaps.iter().all(|gap| gap % 50 == 0), "{gaps:?}");

    let mut rig = Rig::new(6);
    rig.engine.lose_next(2, Direction::Out, 10);
    rig.send_numbered(20);
    assert_eq!(rig.numbers(2), (10..20).collect::<Vec<_>>());
    assert_eq!(rig.numbers(1).len(), 20);
}

#[test]
fn a_damaged_frame_differs_in_one_bit() {
    for passes_checksums in [false, true] {
        let corruption = Corruption { probability: 0.1, passes_checksums };
        let faults = Faults { corruption, ..Faults::default() };
        let mut rig = Rig::with(7, 1, Direction::Out, &faults);
        let payload = [0x55; 100];
        let whole = samples::datagram(1, GROUP_MAC, GROUP, &payload);
        (0..10_000).for_each(|_| rig.send(0, &whole));
        let mut places = BTreeSet::new();
        let mut damaged = 0;
        for (_, frame) in &rig.sent[1] {
            let mut differences: Vec<_> =
                (0..whole.len()).filter(|&at| frame[at] != whole[at]).collect();
            if differences.is_empty() {
                continue;
            }
            damaged += 1;
            if passes_checksums {
                assert_eq!(frame[40..42], [0, 0], "it says that it has no checksum");
                differences.retain(|at| !(40..42).contains(at));
            }
            assert_eq!(differences.len(), 1);
            let at = differences[0];
            assert_eq!((frame[at] ^ whole[at]).count_ones(), 1);
            assert!(at >= if passes_checksums { 42 } else { 14 });
            places.insert(at);
        }
        assert_share(damaged, 10_000, 0.1);
        assert_eq!(rig.counts(1, Direction::Out).corrupted, damaged);
        assert!(places.len() > 95, "everywhere in the payload: {}", places.len());
    }
}

#[test]
fn duplicates_follow_their_original() {
    let faults = Faults { duplication: 0.1, ..Faults::default() };
    let mut rig = Rig::with(8, 0, Direction::In, &faults);
    rig.send_numbered(10_000);
    let mut numbers = rig.numbers(1);
    assert!(numbers.is_sorted());
    assert_share(numbers.len() as u64 - 10_000, 10_000, 0.1);
    numbers.dedup();
    assert_eq!(numbers.len(), 10_000);
}

#[test]
fn a_reordered_frame_is_overtaken_by_its_distance_or_waits_for_its_limit() {
    let reordering = Reordering { probability: 0.02, distance: 5, limit: MS * 100 };
    let faults = Faults { reordering, ..Faults::default() };
    let mut rig = Rig::with(9, 0, Direction::In, &faults);
    rig.send_numbered(10_000);
    let numbers = rig.numbers(1);
    let mut overtaken = [0; 6];
    for (index, &number) in numbers.iter().enumerate() {
        overtaken[numbers[..index].iter().filter(|other| **other > number).count()] += 1;
    }
    let reordered = rig.counts(0, Direction::In).reordered;
    assert_share(reordered, 10_000, 0.02);
    // Fewer than 5 only where another one was held back meanwhile.
    assert!(overtaken[5] > reordered * 3 / 4, "{overtaken:?} of {reordered}");

    let reordering = Reordering { probability: 1.0, distance: 5, limit: MS * 100 };
    let mut rig = Rig::with(9, 0, Direction::In, &Faults { reordering, ..Faults::default() });
    rig.send(0, &numbered(1, 0));
    assert_eq!(rig.numbers(1), [0; 0]);
    rig.finish();
    assert_eq!(rig.sent[1][0].0, MS * 100, "nothing came to overtake it");
}

#[test]
fn delay_and_jitter_lie_in_their_limits_and_keep_the_order() {
    let faults = Faults { delay: MS * 10, jitter: MS * 4, ..Faults::default() };
    let mut rig = Rig::with(10, 0, Direction::In, &faults);
    for number in 0..5000_u32 {
        rig.engine.receive(rig.begin + MS * number, 0, &numbered(1, number.into()));
        rig.now = rig.begin + MS * number;
        while let Some(due) =
            rig.engine.next_due().filter(|due| *due < rig.begin + MS * (number + 1))
        {
            rig.now = rig.now.max(due);
            rig.advance();
        }
    }
    rig.finish();
    assert!(rig.numbers(1).is_sorted());
    let delays: Vec<_> = rig.sent[1]
        .iter()
        .map(|(at, frame)| *at - MS * u32::try_from(number_of(frame)).unwrap())
        .collect();
    assert_eq!(delays.len(), 5000);
    let [least, most] = [delays.iter().min().unwrap(), delays.iter().max().unwrap()];
    assert!(*least >= MS * 10 && *least < MS * 11, "{least:?}");
    assert!(*most < MS * 14 && *most > MS * 13, "{most:?}");
}

#[test]
fn a_rate_spaces_frames_and_its_queue_is_bounded() {
    // 58 bytes and 24 more on the wire.
    let frame = samples::datagram(1, GROUP_MAC, GROUP, &[0; 16]);
    assert_eq!(frame.len() + 24, 82);
    let rate = Rate { bits_per_second: 82 * 8 * 1000, queue: 82 * 10 };
    let mut rig =
        Rig::with(11, 1, Direction::Out, &Faults { rate: Some(rate), ..Faults::default() });
    (0..50).for_each(|_| rig.send(0, &frame));
    rig.finish();
    let times: Vec<_> = rig.sent[1].iter().map(|(at, _)| *at).collect();
    assert_eq!(times, (1..=11).map(|number| MS * number).collect::<Vec<_>>());
    let counts = rig.counts(1, Direction::Out);
    assert_eq!((counts.frames, counts.passed, counts.overflowed), (50, 11, 39));
    rig.now += MS;
    rig.send(0, &frame);
    assert_eq!(rig.counts(1, Direction::Out).passed, 12, "the queue is empty again");
}

#[test]
fn what_waits_is_bounded() {
    let mut rig =
        Rig::with(12, 1, Direction::Out, &Faults { delay: MS * 1_000_000, ..Faults::default() });
    let most = path::MOST_WAITING as u64;
    (0..most + 10).for_each(|number| rig.engine.receive(rig.now, 0, &numbered(1, number)));
    let counts = rig.counts(1, Direction::Out);
    assert_eq!((counts.passed, counts.overflowed), (most, 10));
}

#[test]
fn faults_reach_only_what_they_are_meant_for() {
    // A datagram of 8 bytes is a packet of 36, and a report one of 28.
    for (reach, reached) in [
        (Reach::Everything, 2),
        (Reach::Udp, 1),
        (Reach::UdpTo(4479), 1),
        (Reach::UdpTo(4480), 0),
        (Reach::LongerThan(35), 1),
        (Reach::LongerThan(36), 0),
    ] {
        let faults = Faults { reach, loss: Loss::Bernoulli(1.0), ..Faults::default() };
        let mut rig = Rig::with(13, 0, Direction::In, &faults);
        rig.send(0, &numbered(1, 0));
        rig.send(0, &samples::igmp(1, &[0x16, 0, 0, 0, 239, 1, 1, 1]));
        assert_eq!(rig.counts(0, Direction::In).lost, reached, "{reach:?}");
        assert_eq!(rig.sent[1].len() as u64, 2 - reached);
    }
}

#[test]
fn a_partition_may_be_one_way_and_ends() {
    let mut rig = Rig::new(14);
    rig.engine.block(0, 1);
    let pass = |rig: &mut Rig| {
        rig.sent.iter_mut().for_each(Vec::clear);
        (0..3).for_each(|port| {
            rig.send(port, &numbered(u8::try_from(port).unwrap() + 1, port as u64))
        });
        [0, 1, 2].map(|port| rig.numbers(port))
    };
    assert_eq!(pass(&mut rig), [vec![1, 2], vec![2], vec![0, 1]]);
    assert_eq!(rig.engine.counts(1).blocked, 1);
    rig.engine.unblock(|from, to| (from, to) == (0, 1));
    assert_eq!(pass(&mut rig), [vec![1, 2], vec![0, 2], vec![0, 1]]);
}

#[test]
fn a_host_is_known_by_its_frames_and_then_hears_alone() {
    let mut rig = Rig::new(15);
    let to_two = samples::datagram(1, [2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 77, 0, 2), b"12345678");
    rig.send(0, &to_two);
    assert_eq!([rig.sent[1].len(), rig.sent[2].len()], [1, 1], "the switch has not heard of it");
    rig.send(1, &numbered(2, 0));
    rig.send(0, &to_two);
    assert_eq!([rig.sent[1].len(), rig.sent[2].len()], [2, 2], "the second is the number");
    rig.send(1, &to_two);
    assert_eq!([0, 1, 2].map(|port| rig.sent[port].len()), [1, 2, 2], "it is at that port itself");
    rig.now += Duration::from_secs(300);
    rig.send(0, &to_two);
    assert_eq!([rig.sent[1].len(), rig.sent[2].len()], [3, 3], "forgotten");
}

#[test]
fn snooping_forwards_to_those_who_reported() {
    let mut rig = Rig::new(16);
    let snooping = Snooping { ageing: MS * 260, query_interval: None };
    rig.engine.set_snooping(rig.now, Some(snooping));
    rig.send(0, &numbered(1, 0));
    let octets = GROUP.octets();
    rig.send(1, &samples::igmp(2, &[&[0x16, 0, 0, 0][..], &octets].concat()));
    assert_eq!([rig.sent[0].len(), rig.sent[2].len()], [0, 0], "reports are for routers");
    rig.now += MS * 259;
    rig.send(0, &numbered(1, 1));
    rig.now += MS;
    rig.send(0, &numbered(1, 2));
    assert_eq!((rig.numbers(1), rig.numbers(2)), (vec![1], vec![]));
    assert_eq!([1, 2].map(|port| rig.engine.counts(port).pruned), [2, 4]);
    rig.engine.set_snooping(rig.now, None);
    rig.send(0, &numbered(1, 3));
    assert_eq!((rig.numbers(1), rig.numbers(2)), (vec![1, 3], vec![3]));
}

#[test]
fn any_bytes_are_a_frame() {
    let mut random = crate::Random::new(17);
    let faults = Faults {
        corruption: Corruption { probability: 0.5, passes_checksums: true },
        duplication: 0.5,
        ..Faults::default()
    };
    let mut rig = Rig::with(17, 0, Direction::In, &faults);
    rig.engine.set_snooping(rig.now, Some(Snooping { ageing: MS, query_interval: Some(MS) }));
    for _ in 0..20_000 {
        let mut frame = numbered(1, random.number());
        for _ in 0..random.index(8) {
            let at = random.index(frame.len());
            frame[at] = random.number().to_le_bytes()[0];
        }
        frame.truncate(random.index(frame.len() + 1));
        rig.send(random.index(3), &frame);
        rig.now += Duration::from_micros(10);
    }
}
