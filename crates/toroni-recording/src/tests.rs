//! Files from anywhere: they are read, or refused, and take no more memory than their chunks have.

use super::format::{
    self, LOST_SCHEMA, LOST_TOPIC, NOTE_TOPIC, ORIGIN_TOPIC, OriginRun, RecordedLoss, Retention,
};
use super::reader::{self, ItemKind, Reader};
use super::repair;
use super::wire::MAGIC;
use mcap::records::{MessageHeader, Metadata};
use mcap::{Compression, WriteOptions};
use std::collections::BTreeMap;
use std::io::Cursor;
use toroni::Origin;
use toroni_shell::stop::Stop;

/// Returns a recording with messages, losses and origins.
fn file(compression: Option<Compression>, chunks: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = WriteOptions::new().compression(compression).compression_threads(0);
    let options = options.use_chunks(chunks).chunk_size(Some(4096));
    let mut writer = options.create(Cursor::new(&mut bytes)).unwrap();
    let notes = BTreeMap::from([(format::SEQUENCE_BASE.to_owned(), "4294967290".to_owned())]);
    writer.write_metadata(&Metadata { name: "toroni".to_owned(), metadata: notes }).unwrap();
    let schema = writer.add_schema("toroni.Lost", "jsonschema", LOST_SCHEMA.as_bytes()).unwrap();
    let lost = writer.add_channel(schema, LOST_TOPIC, "json", &format::kind("lost")).unwrap();
    writer.add_channel(0, NOTE_TOPIC, "json", &format::kind("note")).unwrap();
    let origins = writer.add_channel(0, ORIGIN_TOPIC, "", &format::kind("origin")).unwrap();
    let topic =
        writer.add_channel(0, "plant/a", "", &format::of_topic(true, Retention::None)).unwrap();
    let mut write = |channel_id, number: u64, data: &[u8]| {
        let sequence = u32::try_from((4_294_967_290 + number) & 0xFFFF_FFFF).unwrap();
        let (log_time, publish_time) = (number * 10, number * 10 + 1);
        let header = MessageHeader { channel_id, sequence, log_time, publish_time };
        writer.write_to_known_channel(&header, data).unwrap();
    };
    for number in 0..300 {
        write(topic, number, &[7; 50]);
        if number % 50 == 7 {
            let text = serde_json::to_vec(&RecordedLoss::lapse(number, 3, 300)).unwrap();
            write(lost, number, &text);
            let origin = Origin { source: 1, series: 2, stream: 3, number };
            let run = OriginRun::of(4_294_967_290 + number, origin, None);
            // As those of a recorder, which begin at an earlier message.
            write(origins, number - 5, &run.encode());
        }
    }
    writer.finish().unwrap();
    drop(writer);
    bytes
}

fn kinds() -> [Vec<u8>; 4] {
    [
        file(None, true),
        file(Some(Compression::Lz4), true),
        file(Some(Compression::Zstd), true),
        file(None, false),
    ]
}

#[test]
fn sequences_origins_and_losses_are_read() {
    for bytes in kinds() {
        let mut reader = Reader::open(Cursor::new(&bytes), bytes.len() as u64, true).unwrap();
        assert!(reader.is_complete);
        let (mut messages, mut losses) = (0, 0);
        while reader.load().unwrap() {
            while let Some(item) = reader.next_item().unwrap() {
                if item.kind == ItemKind::Loss {
                    assert_eq!(reader.loss(&item).unwrap().messages, 3);
                    losses += 1;
                    continue;
                }
                // Their upper bits follow from the order.
                assert_eq!(item.sequence, 4_294_967_290 + messages);
                let origin = item.origin.map(|(origin, _)| origin.number);
                assert_eq!(origin, (messages % 50 == 7).then_some(messages));
                assert_eq!(reader.payload(&item), [7; 50]);
                messages += 1;
            }
        }
        assert_eq!((messages, losses), (300, 6));
        // By the index: nothing that is far before.
        reader.rewind().unwrap();
        reader.seek_time(2_000).unwrap();
        reader.load().unwrap();
        let first = reader.next_item().unwrap().unwrap().log_time;
        assert!(first > 1_000 || bytes == file(None, false), "{first}");
    }
}

/// Values are from before their place, however far that is within 2^31. What follows them is read as if they were not there.
#[test]
fn values_do_not_change_the_sequences_of_the_stream() {
    for base in [0, 3, 1 << 31, u64::from(u32::MAX), (1 << 33) + 5] {
        let mut bytes = Vec::new();
        let mut writer = WriteOptions::new().create(Cursor::new(&mut bytes)).unwrap();
        let notes = BTreeMap::from([(format::SEQUENCE_BASE.to_owned(), base.to_string())]);
        writer.write_metadata(&Metadata { name: "toroni".to_owned(), metadata: notes }).unwrap();
        let [plain, message, value, cleared] = Retention::ALL.map(|retention| {
            writer.add_channel(0, "plant/a", "", &format::of_topic(false, retention)).unwrap()
        });
        let first = base + (1 << 31) - 1;
        let written = [
            (value, first.saturating_sub((1 << 32) - 5), ItemKind::Value),
            (value, first - 1, ItemKind::Value),
            (message, first, ItemKind::Message),
            (value, first - 1000, ItemKind::Value),
            (cleared, first - 2, ItemKind::Cleared),
            (plain, first + 1, ItemKind::Message),
            (cleared, first + 2, ItemKind::Cleared),
            (message, first + (1 << 31), ItemKind::Message),
            (value, first + 2, ItemKind::Value),
        ];
        for (channel_id, sequence, _) in written {
            let sequence = u32::try_from(sequence & u64::from(u32::MAX)).unwrap();
            let header = MessageHeader { channel_id, sequence, log_time: 1, publish_time: 1 };
            writer.write_to_known_channel(&header, b"x").unwrap();
        }
        writer.finish().unwrap();
        drop(writer);
        let mut reader = Reader::open(Cursor::new(&bytes), bytes.len() as u64, true).unwrap();
        assert!(reader.may_have_values());
        let mut read = Vec::new();
        while reader.load().unwrap() {
            while let Some(item) = reader.next_item().unwrap() {
                read.push((item.channel, item.sequence, item.kind));
            }
        }
        // The oldest one is as far from the base as the file can say.
        assert_eq!(read[1..], written[1..], "{base}");
        assert_eq!(read[0].1, written[0].1, "{base}");
    }
}

/// What a chunk may take beside its bytes: what is reserved at first, and what a vector grows by.
const MOST_BYTES: usize = 32 << 20;

#[test]
fn hostile_files_are_refused_without_much_memory() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 11).unwrap() % limit.max(1)
    };
    let interesting =
        [0_u64, 1, 0x7F, 0xFF, 0xFFFF_FFFF, 1 << 30, (1 << 30) + 1, u64::MAX, 1 << 63];
    for (kind, original) in kinds().into_iter().enumerate() {
        assert!(reader::walk(&original, true).0 > 300);
        for round in 0..3000 {
            let mut bytes = original.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(5) {
                    0 => bytes[at] ^= 1 << random(8),
                    1 => bytes.truncate(at.max(1)),
                    2 => {
                        let value = interesting[random(interesting.len())].to_le_bytes();
                        let count = [4, 8][random(2)].min(bytes.len() - at);
                        bytes[at..at + count].copy_from_slice(&value[..count]);
                    }
                    3 => {
                        let end = (at + random(64)).min(bytes.len());
                        drop(bytes.drain(at..end));
                    }
                    _ => {
                        let from = random(bytes.len());
                        let piece = bytes[from..(from + random(200)).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            let (_, most) = reader::walk(&bytes, round % 2 == 0);
            assert!(most <= MOST_BYTES, "kind {kind}, round {round}: {most} bytes");
        }
    }
}

/// Returns the numbers of the messages that are read, and the damages.
fn read(bytes: &[u8]) -> (Vec<u64>, Vec<reader::Damage>) {
    let mut reader = Reader::open(Cursor::new(bytes), bytes.len() as u64, true).unwrap();
    let (mut messages, mut damages) = (Vec::new(), Vec::new());
    let mut last = 0;
    while reader.load().unwrap() {
        while let Some(item) = reader.next_item().unwrap() {
            assert!(item.log_time >= last, "{item:?}");
            last = item.log_time;
            match item.kind {
                ItemKind::Message => messages.push(item.log_time / 10),
                ItemKind::Damage => damages.push(reader.damage().unwrap().clone()),
                ItemKind::Loss | ItemKind::Note | ItemKind::Value | ItemKind::Cleared => {}
            }
        }
    }
    (messages, damages)
}

/// Bytes of a file are damaged in turn. What can be read is what was there, and what is missing is reported.
#[test]
fn a_damaged_byte_costs_at_most_its_chunk_and_is_reported() {
    let bytes = file(Some(Compression::Lz4), true);
    let (whole, none) = read(&bytes);
    assert_eq!((whole.len(), none.len()), (300, 0));
    let chunks = Reader::open(Cursor::new(&bytes), bytes.len() as u64, false).unwrap();
    let chunks = chunks.summary.unwrap().chunks;
    assert!(chunks.len() > 3);
    let (first, last) = (chunks[0].offset, chunks[chunks.len() - 1]);
    let end = last.offset + last.length;
    let (mut exact, mut silent) = (0, 0);
    // The front, too, whose lengths lead past chunks.
    let front = MAGIC.len() as u64..first;
    for at in front.chain((first..end).step_by(11)) {
        let mut damaged = bytes.clone();
        damaged[usize::try_from(at).unwrap()] ^= 0x10;
        let (messages, damages) = read(&damaged);
        let missing = 300 - messages.len() as u64;
        assert!(missing <= 100, "byte {at}: {missing} messages");
        assert!(messages.is_sorted(), "byte {at}");
        match &damages[..] {
            [] => silent += u32::from(at >= first),
            [damage] if damage.messages.is_some() => {
                assert_eq!(damage.messages, Some(missing), "byte {at}: {damage}");
                exact += u32::from(at >= first);
            }
            [damage] => assert!(missing > 0, "byte {at}: {damage}"),
            more => panic!("byte {at}: {more:?}"),
        }
        assert!(missing == 0 || !damages.is_empty(), "byte {at}");
    }
    // Times in indexes of messages and of chunks are not needed.
    assert!(exact > silent, "{exact} exact, {silent} silent");
}

/// Without an index, the channels that the first chunk describes are unknown when it is damaged.
#[test]
fn only_messages_of_topics_count_as_missing() {
    let mut bytes = file(None, true);
    bytes.pop();
    let first = bytes.windows(8).position(|window| window == [7; 8]).unwrap();
    bytes[first] ^= 1;
    let mut reader = Reader::open(Cursor::new(&bytes), bytes.len() as u64, false).unwrap();
    let mut missing = 0;
    while reader.load().unwrap() {
        while let Some(item) = reader.next_item().unwrap() {
            assert_eq!(item.kind, ItemKind::Damage);
            let damage = reader.damage().unwrap();
            // Nothing says when it was.
            assert_eq!((damage.time, item.log_time), (None, 0));
            missing += damage.messages.unwrap();
        }
    }
    assert_eq!(missing, 300);
}

/// Repairs a file, and returns the losses of the copy for what was damaged: sequence, count.
fn repaired(name: &str, bytes: &[u8]) -> Vec<(u64, u64)> {
    let directory = std::env::temp_dir().join(format!("toroni-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("a.mcap");
    std::fs::write(&path, bytes).unwrap();
    repair::run(&path, &Stop::never()).unwrap();
    let copy = std::fs::read(directory.join("a.repaired.mcap")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let mut reader = Reader::open(Cursor::new(&copy), copy.len() as u64, true).unwrap();
    let mut losses = Vec::new();
    while reader.load().unwrap() {
        while let Some(item) = reader.next_item().unwrap() {
            assert_ne!(item.kind, ItemKind::Damage);
            if item.kind == ItemKind::Loss {
                let loss = reader.loss(&item).unwrap();
                losses.extend(loss.is_damage().then_some((item.sequence, loss.messages)));
            }
        }
    }
    losses
}

#[test]
fn a_repair_places_a_loss_where_readers_do() {
    let mut bytes = file(None, true);
    let last = bytes.windows(8).rposition(|window| window == [7; 8]).unwrap();
    bytes[last] ^= 1;
    let mut reader = Reader::open(Cursor::new(&bytes), bytes.len() as u64, true).unwrap();
    let mut places = Vec::new();
    while reader.load().unwrap() {
        while let Some(item) = reader.next_item().unwrap() {
            if item.kind == ItemKind::Damage {
                places.push((item.sequence, reader.damage().unwrap().messages.unwrap()));
            }
        }
    }
    let [(sequence, messages)] = places[..] else { panic!("{places:?}") };
    assert_eq!(sequence + messages, 4_294_967_290 + 300);
    assert_eq!(repaired("place", &bytes), places);
}

#[test]
fn a_file_with_messages_that_have_no_channel_is_not_whole() {
    let mut bytes = file(None, false);
    // Complete, without an index.
    let footer = bytes.len() - 37 + 9;
    bytes[footer..footer + 20].fill(0);
    let described = bytes.windows(7).position(|window| window == b"plant/a").unwrap();
    // Its number, its schema, and the length of its name are before the name.
    bytes[described - 8] = 9;
    let lost: u64 = repaired("channel", &bytes).iter().map(|(_, messages)| messages).sum();
    assert_eq!(lost, 300);
}

#[test]
fn a_damaged_index_is_not_believed() {
    let bytes = file(None, true);
    let opened = |bytes: &[u8]| {
        Reader::open(Cursor::new(bytes.to_vec()), bytes.len() as u64, false).unwrap().is_complete
    };
    assert!(opened(&bytes));
    let summary = bytes.windows(10).rposition(|window| window == b"plant/a\0\0\0").unwrap();
    let mut damaged = bytes;
    damaged[summary] ^= 1;
    assert!(!opened(&damaged));
    assert_eq!(read(&damaged).0.len(), 300);
}

#[test]
fn lengths_that_are_not_there_are_not_believed() {
    let chunk = |uncompressed: u64, compression: &str, compressed: u64, data: &[u8]| {
        let mut body = Vec::new();
        for number in [0, 0, uncompressed] {
            body.extend(number.to_le_bytes());
        }
        body.extend(0_u32.to_le_bytes());
        body.extend(u32::try_from(compression.len()).unwrap().to_le_bytes());
        body.extend(compression.as_bytes());
        body.extend(compressed.to_le_bytes());
        body.extend(data);
        let mut file = MAGIC.to_vec();
        file.push(0x06);
        file.extend((body.len() as u64).to_le_bytes());
        file.extend(body);
        file
    };
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    for (bytes, why) in [
        (chunk(u64::MAX, "", 8, &[0; 8]), "more than 1 GiB"),
        (chunk(1 << 29, "", 8, &[0; 8]), "claims 536870912"),
        (chunk(8, "", 1 << 40, &[0; 8]), "longer than the chunk"),
        (chunk(100, "zstd", bomb.len() as u64, &bomb), "claims 100"),
        (chunk(100, "zstd", 4, b"what"), "cannot be decompressed"),
        (chunk(100, "lz4", 20, b"this is no lz4 frame"), "cannot be decompressed"),
        (chunk(8, "brotli", 8, &[0; 8]), "\"brotli\""),
    ] {
        let mut reader = Reader::open(Cursor::new(&bytes), bytes.len() as u64, false).unwrap();
        assert!(reader.load().unwrap());
        assert_eq!(reader.next_item().unwrap().unwrap().kind, ItemKind::Damage);
        let said = &reader.damage().unwrap().broken.what;
        assert!(said.contains(why), "{said}");
        assert!(reader.chunk_capacity() <= MOST_BYTES);
    }
}
