//! What holds for datagrams of every type.

use proptest::prelude::*;

use super::ranges::tests::ranges;
use super::samples::{self, KEYS, RULES};
use super::*;
use crate::id::{MessageNumber, Number, Sequence, Series, Stream};
use crate::past::Past;
use crate::time::Wall;

fn result(bytes: &[u8], rules: &Rules<'_>) -> Result<(), Reject> {
    parse(bytes, rules, |_, _| Ok(())).map(|_| ())
}

/// Changes the length of a datagram and states it.
fn resized(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut resized = bytes.to_vec();
    resized.resize(length, 0);
    if let Some(stated) = resized.get_mut(6..8) {
        stated.copy_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
    }
    resized
}

#[test]
fn every_sample_is_parsed_and_encoded_as_it_was() {
    for sample in samples::all() {
        let parsed = samples::parse(&sample.bytes).unwrap();
        assert_eq!(samples::encode_again(&parsed), sample.bytes, "{:?}", sample.kind);
    }
}

#[test]
fn a_datagram_that_was_cut_is_refused_by_its_length() {
    for sample in samples::all() {
        for length in 0..sample.bytes.len() {
            let wanted = if length < HEADER_BYTES { Reject::Short } else { Reject::Length };
            assert_eq!(result(&sample.bytes[..length], &RULES), Err(wanted), "{:?}", sample.kind);
        }
        let mut longer = sample.bytes;
        longer.push(0);
        assert_eq!(result(&longer, &RULES), Err(Reject::Length), "{:?}", sample.kind);
    }
}

#[test]
fn a_datagram_whose_length_says_that_it_was_cut_is_refused_by_its_contents() {
    for sample in samples::all() {
        for length in HEADER_BYTES..sample.bytes.len() {
            // An ECHO with fewer nonces is a valid one.
            if sample.kind == Kind::Echo && length == HEADER_BYTES + 16 {
                continue;
            }
            let found = result(&resized(&sample.bytes, length), &RULES);
            assert_eq!(found, Err(Reject::Truncated), "{:?} with {length} bytes", sample.kind);
        }
        let longer = resized(&sample.bytes, sample.bytes.len() + 1);
        // The last nonce of an ECHO is not complete then.
        let wanted = if sample.kind == Kind::Echo { Reject::Truncated } else { Reject::Trailing };
        assert_eq!(result(&longer, &RULES), Err(wanted), "{:?}", sample.kind);
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_signed_datagram_is_refused() {
    let rules = Rules { keys: Some(&KEYS), ..RULES };
    for sample in samples::all() {
        let signed = sample.encode(Some(&KEYS));
        assert_eq!(result(&signed, &rules), Ok(()), "{:?}", sample.kind);
        for bit in 0..signed.len() * 8 {
            let mut wrong = signed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // What is checked before the MAC has reasons of its own.
            let wanted = match bit {
                0..16 => Reject::Magic,
                16..24 => Reject::Version,
                39 => Reject::MacMissing,
                48..64 => Reject::Length,
                _ => Reject::MacWrong,
            };
            assert_eq!(result(&wrong, &rules), Err(wanted), "{:?} bit {bit}", sample.kind);
        }
    }
}

#[test]
fn a_signature_is_there_if_and_only_if_the_realm_has_a_key() {
    let with_key = Rules { keys: Some(&KEYS), ..RULES };
    for sample in samples::all() {
        assert_eq!(result(&sample.bytes, &with_key), Err(Reject::MacMissing));
        assert_eq!(result(&sample.encode(Some(&KEYS)), &RULES), Err(Reject::MacUnexpected));
    }
    // A header alone, with the flag of a signature.
    let mut bytes = resized(&samples::of(Kind::Nak).bytes, HEADER_BYTES);
    bytes[4] |= 0x80;
    assert_eq!(result(&bytes, &with_key), Err(Reject::MacWrong));
}

#[test]
fn what_the_next_key_signed_is_accepted_and_what_another_signed_is_not() {
    let [first, next, other] = [1, 2, 3].map(|byte| Key::new([byte; 32]));
    let both = Keys { first, next: Some(next) };
    let rules = Rules { keys: Some(&both), ..RULES };
    for sample in samples::all() {
        let signed_by = |first| sample.encode(Some(&Keys { first, next: None }));
        assert_eq!(result(&signed_by(first), &rules), Ok(()));
        assert_eq!(result(&signed_by(next), &rules), Ok(()));
        assert_eq!(result(&signed_by(other), &rules), Err(Reject::MacWrong));
    }
}

#[test]
fn of_several_faults_the_first_in_the_order_is_the_reason() {
    // Each step adds a fault that is checked before all those that are there already.
    let mut bytes = samples::of(Kind::Data).bytes;
    let mut steps = vec![result(&bytes, &RULES)];
    bytes[60] = 9; // more chunks than there are
    steps.push(result(&bytes, &RULES));
    bytes[47] = 0x80; // message
    steps.push(result(&bytes, &RULES));
    bytes[31] = 0x80; // sequence
    steps.push(result(&bytes, &RULES));
    for reason in [Reject::Stream, Reject::Session, Reject::Collision, Reject::Echo] {
        steps.push(parse(&bytes, &RULES, |_, _| Err(reason)).map(|_| ()));
    }
    let mut faults = |at: usize, value: u8| {
        bytes[at] = value;
        parse(&bytes, &RULES, |_, _| Err(Reject::Echo)).map(|_| ())
    };
    steps.push(faults(4, 2)); // END
    steps.push(faults(3, 77)); // type
    steps.push(faults(8, 0)); // realm
    steps.push(faults(4, 0x82)); // MAC
    steps.push(faults(2, 3)); // version
    steps.push(faults(0, b't')); // magic
    steps.push(faults(6, 1)); // length
    let wanted = [
        Reject::Truncated,
        Reject::Number,
        Reject::Sequence,
        Reject::Stream,
        Reject::Session,
        Reject::Collision,
        Reject::Echo,
        Reject::Flags,
        Reject::Type,
        Reject::Realm,
        Reject::MacUnexpected,
        Reject::Version,
        Reject::Magic,
        Reject::Length,
    ];
    assert_eq!(steps[0], Ok(()));
    assert_eq!(steps[1..], wanted.map(Err));
    let places: Vec<usize> = wanted.iter().map(|reason| reason.index()).collect();
    assert!(places.is_sorted_by(|one, next| one > next), "{places:?}");
}

#[test]
fn the_caller_sees_type_and_header_before_it_decides() {
    let sample = samples::of(Kind::Status);
    let mut seen = None;
    let decide = |kind, header: &Header| {
        seen = Some((kind, header.source, header.session, header.stream));
        Ok(())
    };
    parse(&sample.bytes, &RULES, decide).unwrap();
    let header = samples::header(0);
    assert_eq!(seen, Some((Kind::Status, header.source, header.session, header.stream)));
}

#[test]
fn a_datagram_of_another_realm_is_not_ours() {
    let rules = Rules { realm: Realm(5), ..RULES };
    for sample in samples::all() {
        assert_eq!(result(&sample.bytes, &rules), Err(Reject::Realm));
    }
}

fn headers() -> impl Strategy<Value = Header> {
    let position = prop_oneof![Just((1_u64 << 63) - 1), (1_u64 << 63) - 1_000_000..1_u64 << 63];
    (any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>(), any::<bool>(), position).prop_map(
        |(ttl, stream, source, session, feed, sequence)| Header {
            flags: if feed { Flags::FEED } else { Flags::NONE },
            ttl,
            realm: RULES.realm,
            stream: Stream(stream),
            source: Source(source),
            session: Session(session),
            sequence: Sequence::new(sequence).unwrap(),
        },
    )
}

fn receivers() -> impl Strategy<Value = Receiver> {
    (any::<u32>(), any::<u32>()).prop_map(|(source, session)| Receiver {
        source: Source(source),
        session: Session(session),
    })
}

fn node_names() -> impl Strategy<Value = String> {
    "[a-z0-9äß.-]{1,32}"
}

fn sessions() -> impl Strategy<Value = SessionInfo<'static>> {
    let counts = (0..1_u64 << 48, 0..1_u64 << 48, 0..1_u64 << 63, 0..1_u64 << 32, any::<u64>());
    let numbers = any::<[u32; 6]>();
    let small = (any::<[u16; 4]>(), any::<[u8; 16]>(), 0..3_usize, 0..=16_u8);
    let addresses = prop::collection::vec((any::<[u8; 16]>(), any::<u16>()), 0..=8);
    (counts, numbers, small, addresses).prop_map(|(counts, numbers, small, addresses)| {
        let (one, other, message, back, sent) = counts;
        let [series, rtt_us, topics, data_kbit, retransmit_kbit, window_ms] = numbers;
        let ([receivers, listen, next_ms, datagram], instance, policy, patterns) = small;
        let addresses: Vec<Address> =
            addresses.into_iter().map(|(ip, port)| Address { ip, port }).collect();
        let trail = Sequence::MAX.minus(1_000_000).minus(back / 2);
        SessionInfo {
            sent: Wall::from_ns(sent),
            message: MessageNumber::new(message).unwrap(),
            number: Number::new(one.max(other)).unwrap(),
            first: trail.minus(back),
            begins: Number::new(one.min(other)).unwrap(),
            series: Series(series),
            rtt_us,
            receivers,
            listen,
            trail,
            topics: u32::from(patterns) + topics % (1 << 19),
            data_kbit,
            retransmit_kbit,
            window_ms,
            next_ms,
            datagram,
            instance,
            policy: Policy::ALL[policy],
            patterns,
            unsure: datagram ^ listen,
            past: Past { head: Number::new(other).unwrap(), prior: Session(rtt_us) },
            legs: AddressList::of(&addresses),
            repairers: AddressList::of(&addresses[addresses.len() / 2..]),
            name: NodeName::new("node").unwrap(),
        }
    })
}

/// Encodes with and without keys, and returns both.
fn both(
    header: &Header,
    encode: impl Fn(Option<&Keys>, &mut [u8]) -> Result<usize, NoRoom>,
    compare: impl Fn(&Body<'_>),
) {
    for keys in [None, Some(&KEYS)] {
        let mut buffer = [0; 20_000];
        let length = encode(keys, &mut buffer).unwrap();
        let parsed = parse(&buffer[..length], &Rules { keys, ..RULES }, |_, _| Ok(())).unwrap();
        assert_eq!(parsed.header, *header);
        compare(&parsed.body);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn naks_come_out_as_they_went_in(
        header in headers(), receiver in receivers(), ranges in ranges(), echo in any::<u64>(),
    ) {
        both(
            &header,
            |keys, buffer| Nak::encode(&header, receiver, Wall::from_ns(echo), &ranges, keys, buffer),
            |body| {
                let Body::Nak(nak) = body else { panic!("{body:?}") };
                assert_eq!(nak.receiver, receiver);
                assert_eq!(nak.ranges.iter().collect::<Vec<_>>(), ranges);
            },
        );
    }

    #[test]
    fn ncfs_come_out_as_they_went_in(header in headers(), ranges in ranges(), reason in 0..4_usize) {
        let header = Header { sequence: Sequence::MAX, ..header };
        let reason = NcfReason::ALL[reason];
        both(
            &header,
            |keys, buffer| Ncf::encode(&header, reason, &ranges, keys, buffer),
            |body| {
                let Body::Ncf(ncf) = body else { panic!("{body:?}") };
                assert_eq!(ncf.reason, reason);
                assert_eq!(ncf.ranges.iter().collect::<Vec<_>>(), ranges);
            },
        );
    }

    #[test]
    fn sessions_come_out_as_they_went_in(
        header in headers(), session in sessions(), name in node_names(), end in 0..3_usize,
    ) {
        let ends = [Flags::NONE, Flags::END, Flags::END.with(Flags::SEALED)];
        let header = Header { flags: header.flags.with(ends[end]), ..header };
        let session = SessionInfo { name: NodeName::new(&name).unwrap(), ..session };
        // What is further behind than a u32 can say is said to be that far behind.
        let least = header.sequence.minus(u64::from(u32::MAX));
        let wanted = SessionInfo { trail: session.trail.max(least), ..session };
        both(
            &header,
            |keys, buffer| session.encode(&header, keys, buffer),
            |body| assert_eq!(*body, Body::Session(wanted)),
        );
    }

    #[test]
    fn statuses_come_out_as_they_went_in(
        header in headers(), receiver in receivers(), name in node_names(),
        required: bool, new: bool, numbers: [u64; 3], small: [u32; 3],
    ) {
        let status = Status {
            receiver,
            window: small[0],
            required,
            new,
            lost: numbers[0],
            naks: numbers[1],
            echo: Wall::from_ns(numbers[2]),
            held_us: small[1],
            dropped: small[2],
            count: numbers[0] ^ 5,
            nonce: numbers[1] ^ 9,
            name: NodeName::new(&name).unwrap(),
        };
        both(
            &header,
            |keys, buffer| status.encode(&header, keys, buffer),
            |body| assert_eq!(*body, Body::Status(status)),
        );
    }

    #[test]
    fn names_of_topics_come_out_as_they_went_in(
        header in headers(), first in 0..1_u32 << 19,
        names in prop::collection::vec("[a-zä]{1,9}(/[a-z]{1,9}){0,3}(/\\*\\*)?", 1..40),
    ) {
        let table: Vec<TableName<'_>> =
            names.iter().map(|name| TableName::new(name).unwrap()).collect();
        let first = TopicNumber::new(first).unwrap();
        both(
            &header,
            |keys, buffer| {
                let (length, count) =
                    Topics::encode(&header, first, table.iter().copied(), keys, buffer)?;
                assert_eq!(usize::from(count), table.len());
                Ok(length)
            },
            |body| {
                let Body::Topics(topics) = body else { panic!("{body:?}") };
                assert_eq!(topics.first, first);
                assert_eq!(topics.names().collect::<Vec<_>>(), table);
            },
        );
    }

    #[test]
    fn requests_for_names_come_out_as_they_went_in(
        header in headers(), receiver in receivers(), first in 0..1_u32 << 19, count in 1..1_u32 << 19,
    ) {
        let echo = Wall::from_ns(u64::from(count) << 32);
        let first = TopicNumber::new(first).unwrap();
        let wanted = TopicsWanted { receiver, first, count, echo };
        both(
            &header,
            |keys, buffer| wanted.encode(&header, keys, buffer),
            |body| assert_eq!(*body, Body::TopicsWanted(wanted)),
        );
    }

    #[test]
    fn probes_come_out_as_they_went_in(
        header in headers(), asker: Option<u32>, sent: u64, name in node_names(), padding in 0..1_000_u16,
        heard in 1..u32::MAX, missed: u32,
    ) {
        let header = Header { flags: Flags::NONE, ..header };
        let of = heard.saturating_add(missed);
        let answer = |asker| ProbeKind::Answer { asker: Source(asker), heard, of };
        let kind = asker.map_or(ProbeKind::Ask { padding }, answer);
        let probe =
            Probe { sent: Wall::from_ns(sent), kind, name: NodeName::new(&name).unwrap() };
        both(
            &header,
            |keys, buffer| probe.encode(&header, keys, buffer),
            |body| assert_eq!(*body, Body::Probe(probe)),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_refused_or_parsed_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = result(&bytes, &RULES);
    }

    /// Changes valid datagrams in a few places and states their length, so that most reach the checks
    /// of their contents. What is accepted must be what it would be encoded as.
    #[test]
    fn changed_datagrams_are_refused_or_mean_exactly_what_they_say(
        kind in 0..8_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in prop::option::of(32..240_usize),
    ) {
        let mut bytes = samples::of(Kind::ALL[kind]).bytes;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let length = length.unwrap_or(bytes.len());
        let mut bytes = resized(&bytes, length);
        bytes[..3].copy_from_slice(b"TN\x01");
        bytes[8..12].copy_from_slice(&RULES.realm.0.to_le_bytes());
        if let Ok(parsed) = samples::parse(&bytes) {
            let again = samples::encode_again(&parsed);
            // The only freedom of the format: a chunk may state a number that is implied.
            let states_more = again.len() < bytes.len();
            prop_assert!(again == bytes || (states_more && kind == 0), "{bytes:02x?}");
            prop_assert_eq!(samples::parse(&again).map(|again| again.header), Ok(parsed.header));
        }
    }
}
