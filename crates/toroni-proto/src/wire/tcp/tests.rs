//! What holds for frames of every type.

use proptest::prelude::*;

use super::super::samples::{RULES, hexadecimal};
use super::samples::{SIGNED, context, encode_again, of, result, signed};
use super::*;
use crate::id::Realm;

fn golden(kind: Kind, wanted: &[&str]) {
    let wanted: String = wanted.concat().split_whitespace().collect();
    assert_eq!(hexadecimal(&of(kind)), wanted, "{kind:?}");
}

#[test]
fn the_bytes_are_as_drawn() {
    golden(
        Kind::Hello,
        &[
            "5f000000 01 00 0000 0000000000000000",
            "544e 02 06 44332211 d4c3b2a1 0d0c0b0a", // magic, version, name, realm, source, session
            "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",      // nonce
            "56341200",                              // message_max
            "0200 0100",                             // patterns, resumes
            "04030201 04034050 6700000000000000 0700 0000", // source, series, number, stream
            "08 706c616e742f2a2a 03 612f62",         // plant/**, a/b
            "6c696e652d34",                          // line-4
        ],
    );
    golden(
        Kind::Welcome,
        &[
            "69000000 02 00 0000 0000000000000000",
            "544e 02 01 44332211 04030201 08070605", // magic, version, streams, realm, source, session
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 0900 e803", // instance, set, beat_ms
            "04030201 08070605 04034050 0700 01 00", // source, session, series, stream, patterns
            "6700000000000000 0a00000000000000",     // number, message
            "4600000000000000 05060708",             // head, prior
            "08 706c616e742f2a2a",                   // plant/**
        ],
    );
    golden(
        Kind::Data,
        &[
            "4a000000 03 01 0100 0a00000000000000",
            "1817161514131211 6400000000000000 0200 000000000000", // sent_ns, number, chunks
            "0500 01 00 02000000 68656c6c6f",                      // MESSAGE: hello
            "0d00 01 40 02000000 6900000000000000 68656c6c6f",     // MESSAGE 105: hello
        ],
    );
    golden(
        Kind::Topics,
        &[
            "24000000 04 00 0100 0000000000000000",
            "0200 0000 02000000 03 612f62 05000000 03 612f63", // 2: a/b, 5: a/c
        ],
    );
    golden(
        Kind::Gap,
        &[
            "30000000 05 00 0100 0a00000000000000",
            "6400000000000000 7800000000000000 0700000000000000", // first, until, count
            "02 01 000000000000",                                 // reason, bound
        ],
    );
    golden(
        Kind::Heartbeat,
        &[
            "38000000 06 02 0000 0000000000000000",
            "0200 000000000000",
            "6400000000000000 2800000000000000",
            "0700000000000000 0300000000000000",
        ],
    );
    golden(
        Kind::Replay,
        &["20000000 07 02 0100 0a00000000000000", "6400000000000000 7800000000000000"],
    );
    golden(Kind::Bye, &["18000000 08 00 0000 0000000000000000", "03 00000000000000"]);
    golden(
        Kind::Challenge,
        &["20000000 09 00 0000 0000000000000000", "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"],
    );
}

#[test]
fn every_sample_is_parsed_and_encoded_as_it_was() {
    for kind in Kind::ALL {
        let bytes = of(kind);
        let frame = parse(&bytes, &RULES, |_, _| context()).unwrap();
        assert_eq!(frame.header.kind, kind);
        assert_eq!(encode_again(&frame), bytes, "{kind:?}");
    }
}

#[test]
fn a_frame_of_another_length_is_refused() {
    for kind in Kind::ALL {
        let bytes = of(kind);
        for length in 0..bytes.len() {
            let wanted = if length < HEADER_BYTES { Reject::Short } else { Reject::Length };
            assert_eq!(result(&bytes[..length], None), Err(wanted), "{kind:?}");
            if length >= HEADER_BYTES {
                let mut cut = bytes[..length].to_vec();
                cut[..4].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
                let found = result(&cut, None);
                assert!(
                    matches!(found, Err(Reject::Truncated | Reject::Name)),
                    "{kind:?} with {length} bytes: {found:?}"
                );
            }
        }
        let mut longer = bytes;
        longer.push(0);
        longer[0] += 1;
        assert_eq!(result(&longer, None), Err(Reject::Trailing), "{kind:?}");
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_signed_frame_is_refused() {
    for kind in Kind::ALL {
        let bytes = signed(kind, SIGNED);
        assert_eq!(result(&bytes, SIGNED), Ok(()), "{kind:?}");
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let found = result(&wrong, SIGNED).unwrap_err();
            let before_the_mac = [Reject::Short, Reject::Length, Reject::Type, Reject::MacMissing];
            assert!(
                found == Reject::MacWrong || (bit < 64 && before_the_mac.contains(&found)),
                "{kind:?} bit {bit}: {found:?}"
            );
        }
    }
}

#[test]
fn a_signature_is_there_if_and_only_if_the_realm_has_a_key() {
    for kind in Kind::ALL {
        assert_eq!(result(&of(kind), SIGNED), Err(Reject::MacMissing));
        assert_eq!(result(&signed(kind, SIGNED), None), Err(Reject::MacUnexpected));
    }
}

#[test]
fn a_recorded_frame_is_worth_nothing_at_another_place() {
    let bytes = signed(Kind::Gap, SIGNED);
    let rules = Rules { keys: SIGNED, ..RULES };
    let with = |context: Context| parse(&bytes, &rules, |_, _| context).map(|_| ());
    assert_eq!(with(context()), Ok(()));
    let other_server = Nonces { server: [1; 16], ..samples::NONCES };
    let other_client = Nonces { client: [1; 16], ..samples::NONCES };
    for other in [
        Context::of_connection(&other_server, Direction::ToClient, 3),
        Context::of_connection(&other_client, Direction::ToClient, 3),
        Context::of_connection(&samples::NONCES, Direction::ToServer, 3),
        Context::of_connection(&samples::NONCES, Direction::ToClient, 4),
        Context::of_set(samples::NONCES.server, 3),
    ] {
        assert_eq!(with(other), Err(Reject::MacWrong), "{other:?}");
    }
    assert_ne!(Context::of_set([1; 16], 3), Context::of_set([1; 16], 4));
}

#[test]
fn flags_streams_and_message_numbers_are_refused_where_they_mean_nothing() {
    for kind in Kind::ALL {
        let bytes = of(kind);
        for flag in [1, 2, 4, 8, 16, 32, 64] {
            let mut wrong = bytes.clone();
            wrong[5] = flag;
            let allowed = match kind {
                Kind::Data => flag == 1 || flag == 8,
                Kind::Gap | Kind::Hello => flag == 1,
                Kind::Replay => flag <= 2,
                Kind::Heartbeat => flag == 2,
                _ => false,
            };
            let wanted = if allowed { Ok(()) } else { Err(Reject::Flags) };
            assert_eq!(result(&wrong, None), wanted, "{kind:?} with flag {flag}");
        }
        let with = |at: usize| {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            result(&other, None)
        };
        let stream = matches!(kind, Kind::Data | Kind::Topics | Kind::Gap | Kind::Replay);
        let message = matches!(kind, Kind::Data | Kind::Gap | Kind::Replay);
        let wanted = |allowed| if allowed { Ok(()) } else { Err(Reject::Reserved) };
        assert_eq!(with(6), wanted(stream), "{kind:?}");
        assert_eq!(with(8), wanted(message), "{kind:?}");
    }
}

#[test]
fn fields_that_make_no_sense_are_refused() {
    for (kind, at, value, wanted) in [
        (Kind::Hello, 16, b't', Reject::Magic),
        (Kind::Hello, 18, 1, Reject::Version),
        (Kind::Hello, 20, 0, Reject::Realm),
        (Kind::Hello, 52, 0, Reject::Count),
        (Kind::Hello, 54, 65, Reject::Count),
        (Kind::Hello, 70, 1, Reject::Number),
        (Kind::Hello, 74, 1, Reject::Reserved),
        (Kind::Hello, 77, b'+', Reject::Name),
        (Kind::Hello, 88, 7, Reject::Name),
        (Kind::Welcome, 19, 65, Reject::Count),
        (Kind::Welcome, 66, 17, Reject::Count),
        (Kind::Welcome, 67, 1, Reject::Reserved),
        (Kind::Welcome, 75, 1, Reject::Number),
        (Kind::Welcome, 83, 0x80, Reject::Number),
        (Kind::Data, 15, 0x80, Reject::Number),
        (Kind::Data, 31, 1, Reject::Number),
        (Kind::Data, 32, 0, Reject::Count),
        (Kind::Data, 34, 1, Reject::Reserved),
        (Kind::Topics, 16, 0, Reject::Count),
        (Kind::Topics, 18, 1, Reject::Reserved),
        (Kind::Topics, 22, 0x10, Reject::Name),
        (Kind::Gap, 16, 0x79, Reject::Number),
        (Kind::Gap, 22, 1, Reject::Number),
        (Kind::Gap, 30, 1, Reject::Number),
        (Kind::Gap, 32, 21, Reject::Count),
        (Kind::Gap, 40, 0, Reject::Code),
        (Kind::Gap, 40, 12, Reject::Code),
        (Kind::Gap, 41, 0, Reject::Code),
        (Kind::Gap, 41, 4, Reject::Code),
        (Kind::Gap, 42, 1, Reject::Reserved),
        (Kind::Heartbeat, 16, 3, Reject::Truncated),
        (Kind::Heartbeat, 16, 65, Reject::Count),
        (Kind::Heartbeat, 18, 1, Reject::Reserved),
        (Kind::Heartbeat, 30, 1, Reject::Number),
        (Kind::Heartbeat, 39, 0x80, Reject::Number),
        (Kind::Replay, 22, 1, Reject::Number),
        (Kind::Replay, 30, 1, Reject::Number),
        (Kind::Bye, 16, 0, Reject::Code),
        (Kind::Bye, 16, 10, Reject::Code),
        (Kind::Bye, 17, 1, Reject::Reserved),
    ] {
        let mut bytes = of(kind);
        bytes[at] = value;
        assert_eq!(result(&bytes, None), Err(wanted), "{kind:?} byte {at} = {value}");
    }
}

#[test]
fn a_client_that_takes_no_message_is_refused() {
    let mut bytes = of(Kind::Hello);
    bytes[48..52].copy_from_slice(&[1, 0, 0, 0]);
    assert_eq!(result(&bytes, None), Ok(()));
    bytes[48] = 0;
    assert_eq!(result(&bytes, None), Err(Reject::Count));
    bytes[48..52].fill(0xff);
    assert_eq!(result(&bytes, None), Ok(()), "no server sends such a message");
}

#[test]
fn a_gap_of_uncounted_messages_states_a_bound() {
    let mut bytes = of(Kind::Gap);
    bytes[32] = 21;
    bytes[41] = 2;
    assert_eq!(result(&bytes, None), Ok(()), "at least");
    bytes[39] = 0x80;
    assert_eq!(result(&bytes, None), Err(Reject::Count));
}

#[test]
fn a_buffer_that_is_one_byte_too_short_gets_no_frame() {
    for kind in Kind::ALL {
        for keys in [None, SIGNED] {
            let length = signed(kind, keys).len();
            let seal = Seal { keys, context: context() };
            let mut buffer = vec![0; length];
            assert_eq!(samples::encode(kind, &seal, &mut buffer), Ok(length));
            assert!(samples::encode(kind, &seal, &mut buffer[..length - 1]).is_err(), "{kind:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_refused_and_a_frame_is_encoded_as_it_was(
        kind in 0..Kind::ALL.len(),
        changes in prop::collection::vec((4..100_usize, any::<u8>()), 0..6),
    ) {
        let mut bytes = of(Kind::ALL[kind]);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let rules = Rules { realm: Realm(0x1122_3344), ..RULES };
        if let Ok(frame) = parse(&bytes, &rules, |_, _| context()) {
            // A number may be stated although it is the implied one.
            if frame.header.kind != Kind::Data {
                prop_assert_eq!(encode_again(&frame), bytes);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        if bytes.len() >= 5 {
            let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
            bytes[..4].copy_from_slice(&length);
            bytes[4] %= 11;
        }
        let _ = parse(&bytes, &RULES, |_, _| context());
    }
}
