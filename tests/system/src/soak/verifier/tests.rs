//! Faulty streams, each of which must be noticed.

use super::*;
use crate::soak::order::{Ended, Order};
use crate::soak::source::Source;
use toroni_testkit::Random;

/// A message of a stream that no bus has carried.
#[derive(Clone)]
struct Made {
    sequence: u64,
    position: u64,
    topic: String,
    payload: Vec<u8>,
}

impl Made {
    fn delivery(&self) -> Delivery<'_> {
        Delivery {
            sequence: self.sequence,
            position: self.position,
            next_position: Some(self.position + self.payload.len() as u64 + 8),
            topic: &self.topic,
            payload: &self.payload,
        }
    }

    fn lane(&self) -> Lane {
        Lane::of_topic(&self.topic).unwrap().0
    }
}

/// What three publishers published, in all lanes, batches among it.
fn stream(messages: u64) -> Vec<Made> {
    let mut random = Random::new(5);
    let mut sources: Vec<Source> = (1..4).map(Source::new).collect();
    let mut stream: Vec<Made> = Vec::new();
    let mut position = 0;
    while (stream.len() as u64) < messages {
        let worker = random.index(3);
        let index = u32::try_from(worker).unwrap();
        let lane = Lane::ALL[random.index(5)];
        let count = if lane == Lane::Tiny { 1 } else { 1 + random.index(3) };
        let topic = lane.topic(index, index + 1, random.number());
        for ahead in 0..count {
            let batch = if count > 1 { count } else { 0 };
            let mut payload = Vec::new();
            let length = 2 + random.index(100);
            sources[worker].compose(lane, ahead, batch, length, &mut payload);
            let (sequence, topic) = (stream.len() as u64, topic.clone());
            let length = payload.len() as u64;
            stream.push(Made { sequence, position, topic, payload });
            position += length + 8;
        }
        sources[worker].advance(lane, count);
    }
    stream
}

/// What a verifier says of these messages, of which it sees those that its filter has.
fn watch(filter: Filter, stream: &[Made]) -> Result<Verifier, Violation> {
    let mut verifier = Verifier::new(filter, 0);
    for made in stream.iter().filter(|made| filter.has(made.lane())) {
        verifier.take(&made.delivery())?;
    }
    Ok(verifier)
}

fn kind_of(filter: Filter, stream: &[Made]) -> Option<Kind> {
    watch(filter, stream).err().map(|violation| violation.kind)
}

#[test]
fn a_sound_stream_is_sound_for_every_filter_from_any_place_on() {
    let stream = stream(3000);
    for filter in Filter::CHOICES {
        assert_eq!(kind_of(filter, &stream), None, "{filter:?}");
        let mut late = Verifier::new(filter, 4);
        for made in stream[1001..].iter().filter(|made| filter.has(made.lane())) {
            late.take(&made.delivery()).unwrap();
        }
    }
    let verifier = watch(Filter::ALL, &stream).unwrap();
    let end = stream.len() as u64;
    assert!(verifier.finish(end).is_ok());
    assert_eq!(verifier.finish(end + 1).unwrap_err().kind, Kind::Missing);
}

#[test]
fn a_missing_message_is_noticed_by_a_subscriber_that_asked_for_it() {
    // After each index come more of its publisher and lane.
    let whole = stream(500);
    for index in 0..100 {
        let mut stream = whole.clone();
        let missing = stream.remove(index);
        for filter in Filter::CHOICES {
            let noticed = kind_of(filter, &stream);
            let expected = filter.has(missing.lane());
            let is_noticed = matches!(noticed, Some(Kind::Missing | Kind::Half));
            // The first of all might have come before the subscriber.
            assert_eq!(is_noticed, expected, "{index} {filter:?} {noticed:?}");
        }
        // Also if the others moved up: never there, for anybody.
        for made in &mut stream[index..] {
            made.sequence -= 1;
            made.position -= missing.payload.len() as u64 + 8;
        }
        let noticed = kind_of(Filter::ALL, &stream);
        assert!(matches!(noticed, Some(Kind::Missing | Kind::Half)), "{index} {noticed:?}");
    }
}

#[test]
fn a_message_that_comes_twice_or_too_early_is_noticed() {
    let whole = stream(200);
    for index in 1..150 {
        let mut twice = whole.clone();
        twice.insert(index, whole[index - 1].clone());
        assert_eq!(kind_of(Filter::ALL, &twice), Some(Kind::Doubled), "{index}");
        // With an index of its own.
        for made in &mut twice[index..] {
            made.sequence += 1;
            made.position += whole[index - 1].payload.len() as u64 + 8;
        }
        assert!(kind_of(Filter::ALL, &twice).is_some(), "{index}");

        let mut swapped = whole.clone();
        swapped.swap(index - 1, index);
        assert!(kind_of(Filter::ALL, &swapped).is_some(), "{index}");
        // Of one publisher, also if the places are those of the order.
        let (one, other) = (&whole[index - 1], &whole[index]);
        let mut exchanged = whole.clone();
        exchanged[index - 1] =
            Made { sequence: one.sequence, position: one.position, ..other.clone() };
        let position = one.position + other.payload.len() as u64 + 8;
        exchanged[index] = Made { sequence: other.sequence, position, ..one.clone() };
        let worker = |made: &Made| match read(made.lane(), 1, &made.payload) {
            Ok(Read::Labelled(label)) => label.worker,
            _ => 0,
        };
        if worker(one) == worker(other) && worker(one) != 0 {
            let noticed = kind_of(Filter::ALL, &exchanged);
            assert!(noticed.is_some(), "{index}");
        }
    }
}

#[test]
fn torn_and_foreign_messages_are_noticed() {
    let whole = stream(300);
    for index in 0..200 {
        let mut stream = whole.clone();
        let payload = &mut stream[index].payload;
        let last = payload.len() - 1;
        payload[last] ^= 4;
        assert_eq!(kind_of(Filter::ALL, &stream), Some(Kind::Torn), "{index}");
        stream[index].topic = "soak/other/1".to_owned();
        assert_eq!(watch_all(&stream), Some(Kind::Torn));
    }
    let filter = Filter::CHOICES[3];
    let mut verifier = Verifier::new(filter, 0);
    let foreign = whole.iter().find(|made| !filter.has(made.lane())).unwrap();
    assert_eq!(verifier.take(&foreign.delivery()).unwrap_err().kind, Kind::Foreign);
}

fn watch_all(stream: &[Made]) -> Option<Kind> {
    let mut verifier = Verifier::new(Filter::ALL, 0);
    stream.iter().find_map(|made| verifier.take(&made.delivery()).err()).map(|error| error.kind)
}

#[test]
fn a_loss_must_be_reported_as_it_was() {
    let stream = stream(3000);
    let (from, to) = (700, 900);
    let bytes = stream[to].position - stream[from].position;
    let told = |messages: u64, bytes: u64| {
        let mut verifier = Verifier::new(Filter::ALL, 0);
        stream[..from].iter().try_for_each(|made| verifier.take(&made.delivery()))?;
        verifier.lose(messages, bytes, 4);
        stream[to..].iter().try_for_each(|made| verifier.take(&made.delivery()))?;
        verifier.finish(stream.len() as u64)?;
        assert_eq!((verifier.lost(), verifier.lapses()), (200, 1));
        // All that is missing of publishers was found, and no more.
        assert_eq!(verifier.found_lost, 200);
        Ok::<_, Violation>(verifier)
    };
    assert!(told(200, bytes).is_ok());
    for (messages, bytes) in [(199, bytes), (201, bytes), (200, bytes - 8), (200, bytes + 8)] {
        assert_eq!(told(messages, bytes).unwrap_err().kind, Kind::Miscounted);
    }
    // One message more is missing than was reported as lost.
    let mut verifier = told(200, bytes).unwrap();
    verifier.lost -= 1;
    verifier.lose(0, 0, 4);
    let (sequence, next) = (verifier.next().unwrap(), verifier.last.unwrap().next_position);
    let mut source = Source::new(1);
    source.advance(Lane::Bye, 1 << 18);
    let mut payload = Vec::new();
    source.compose(Lane::Small, 0, 0, 50, &mut payload);
    let topic = "soak/small/1".to_owned();
    let made = Made { sequence, position: next.unwrap(), topic, payload };
    assert!(verifier.take(&made.delivery()).is_err());
}

#[test]
fn a_part_of_a_batch_is_noticed_by_every_filter() {
    let mut source = Source::new(1);
    let filter = Filter::CHOICES[2];
    let mut made = Vec::new();
    let mut payload = Vec::new();
    for ahead in 0..3 {
        source.compose(Lane::Small, ahead, 3, 40, &mut payload);
        made.push(payload.clone());
    }
    source.advance(Lane::Small, 3);
    source.compose(Lane::Tiny, 0, 0, 4, &mut payload);
    let take = |verifier: &mut Verifier, sequence: u64, topic: &str, payload: &[u8]| {
        let position = sequence * 200;
        verifier.take(&Delivery { sequence, position, next_position: None, topic, payload })
    };
    let mut verifier = Verifier::new(filter, 0);
    take(&mut verifier, 5, "soak/small/0", &made[0]).unwrap();
    take(&mut verifier, 6, "soak/small/0", &made[1]).unwrap();
    assert_eq!(verifier.finish(7).unwrap_err().kind, Kind::Half);
    let cut = take(&mut verifier, 7, "soak/tiny/1", &payload);
    assert_eq!(cut.unwrap_err().kind, Kind::Half);
    // Not in a row.
    let mut verifier = Verifier::new(filter, 0);
    take(&mut verifier, 5, "soak/small/0", &made[0]).unwrap();
    assert_eq!(take(&mut verifier, 7, "soak/small/0", &made[1]).unwrap_err().kind, Kind::Half);
}

#[test]
fn another_order_is_noticed_where_two_tell_theirs() {
    let whole = stream(3 * STRETCH + 20);
    let mut order = Order::default();
    for (who, filter) in (0..).zip(Filter::CHOICES) {
        let mut verifier = watch(filter, &whole).unwrap();
        let stretches = verifier.take_stretches();
        // Large ones are few, and last words come at the end only.
        let is_rare = [Filter::CHOICES[3], Filter::CHOICES[7]].contains(&filter);
        assert!(is_rare || stretches.len() >= 2, "{filter:?}");
        stretches.iter().for_each(|stretch| order.take(who, filter, stretch).unwrap());
    }
    assert!(order.counts().stretches == 3 && order.counts().compared > 1000);

    // Two publishers' messages, each at the other's position: a verifier alone cannot know.
    let single = |made: &Made| match read(made.lane(), 0, &made.payload) {
        Ok(Read::Labelled(label)) if (label.index, label.behind) == (0, 0) => label.worker,
        _ => 0,
    };
    let index = (300..500)
        .find(|index| {
            let (one, other) = (single(&whole[*index]), single(&whole[index + 1]));
            one != 0 && other != 0 && one != other
        })
        .unwrap();
    let mut other = whole.clone();
    other.swap(index, index + 1);
    other[index].sequence -= 1;
    other[index].position = whole[index].position;
    other[index + 1].sequence += 1;
    other[index + 1].position = other[index].position + other[index].payload.len() as u64 + 8;
    let mut verifier = watch(Filter::ALL, &other).unwrap();
    let mut outcomes = verifier.take_stretches().into_iter();
    let noticed = outcomes.find_map(|stretch| order.take(9, Filter::ALL, &stretch).err());
    assert_eq!(noticed.unwrap().kind, Kind::Order);
}

#[test]
fn what_was_confirmed_to_a_publisher_must_be_there() {
    let whole = stream(4 * STRETCH);
    let mut verifier = watch(Filter::ALL, &whole).unwrap();
    let (progress, stretches) = (verifier.take_progress(), verifier.take_stretches());
    let end = whole.len() as u64;
    let outcome = |told: i64, more: u64, hidden: bool| {
        let mut order = Order::default();
        let is_seen = |stretch: &&Stretch| !(hidden && stretch.number == 3);
        for stretch in stretches.iter().filter(is_seen) {
            order.take(1, Filter::ALL, stretch).unwrap();
        }
        progress.iter().for_each(|(worker, progress)| order.progress(*worker, *progress));
        let told = progress[&2].next.strict_add_signed(told);
        order.ended(Ended { worker: 2, told, more, sequence: end });
        order.finish(end).map(|()| (order.counts().ends, order.counts().ends_unseen))
    };
    assert_eq!(outcome(0, 0, false), Ok((1, 0)));
    assert_eq!(outcome(-3, 8, false), Ok((1, 0)));
    assert_eq!(outcome(1, 8, false).unwrap_err().kind, Kind::Missing);
    assert_eq!(outcome(-1, 0, false).unwrap_err().kind, Kind::Doubled);
    // No subscriber saw its end.
    assert_eq!(outcome(1, 8, true), Ok((0, 1)));
}

#[test]
fn an_end_of_tiny_messages_behind_a_loss_is_not_exact() {
    let mut source = Source::new(1);
    let mut verifier = Verifier::new(Filter::ALL, 0);
    let take = |verifier: &mut Verifier, source: &mut Source, lane: Lane, sequence| {
        let mut payload = Vec::new();
        source.compose(lane, 0, 0, 30, &mut payload);
        source.advance(lane, 1);
        let (topic, position) = (lane.topic(0, 1, 0), sequence * 100);
        let (topic, payload) = (topic.as_str(), payload.as_slice());
        verifier
            .take(&Delivery { sequence, position, next_position: None, topic, payload })
            .unwrap();
        verifier.take_progress()[&1]
    };
    let progress = take(&mut verifier, &mut source, Lane::Small, 0);
    assert_eq!(progress, Progress { next: 1, sequence: 0, is_exact: true });
    // The one that is lost is one of this publisher.
    source.advance(Lane::Tiny, 1);
    verifier.lose(1, 100, 2);
    let progress = take(&mut verifier, &mut source, Lane::Tiny, 2);
    assert_eq!(progress, Progress { next: 2, sequence: 2, is_exact: false });
    let mut order = Order::default();
    order.progress(1, Progress { next: 1, sequence: 0, is_exact: true });
    order.progress(1, progress);
    order.ended(Ended { worker: 1, told: 3, more: 0, sequence: 3 });
    assert!(order.finish(3).is_ok());
    assert_eq!(order.counts().ends_unseen, 1);
    let progress = take(&mut verifier, &mut source, Lane::Small, 3);
    assert_eq!(progress, Progress { next: 4, sequence: 3, is_exact: true });
}
