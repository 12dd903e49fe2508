//! Any bytes as a datagram: what is accepted means the same after it was encoded again.

use super::{KEYS, REALM, completed};
use toroni_proto::id::Realm;
use toroni_proto::wire::{
    self, Body, Data, DataWriter, Datagram, Echo, Keys, Nak, Ncf, NoRoom, Placed, Reject, Rules,
    Topics,
};

/// The lowest bits of the first byte say whether the header is completed, so that it passes the first checks, and
/// whether there is a key. The other bytes are the datagram.
pub fn fuzz(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let keys = (choice & 2 != 0).then_some(&KEYS);
    let datagram = if choice & 1 != 0 { completed(bytes, keys.is_some()) } else { bytes.to_vec() };
    let rules = Rules { realm: Realm::of(REALM), keys, message_max: 1 << 20 };
    let parsed = match wire::parse(&datagram, &rules, |_, _| Ok(())) {
        Ok(parsed) => parsed,
        Err(reason) => {
            assert!(Reject::ALL.contains(&reason), "{reason:?} is not listed");
            return;
        }
    };
    let again = encoded(&parsed, keys).unwrap();
    let reparsed = wire::parse(&again, &rules, |_, _| Ok(())).unwrap();
    assert_eq!(parsed.header, reparsed.header);
    match (&parsed.body, &reparsed.body) {
        // Numbers may be stated where they are implied, so the bytes may differ.
        (Body::Data(one), Body::Data(other)) => assert_eq!(contents(one), contents(other)),
        (one, other) => assert_eq!(one, other),
    }
    // What was encoded once stays the same.
    assert_eq!(encoded(&reparsed, keys).unwrap(), again);
}

type Contents<'a> = ([u64; 5], Vec<Placed<'a>>);

fn contents<'a>(data: &Data<'a>) -> Contents<'a> {
    let chunks: Vec<Placed<'a>> = data.chunks().collect();
    assert_eq!(chunks.len(), usize::from(data.chunk_count()), "all that were checked are there");
    let Data { sent, message, number, trail, unsure, .. } = data;
    let unsure = u64::from(*unsure);
    ([sent.ns(), message.get(), number.get(), trail.get(), unsure], chunks)
}

fn encoded(datagram: &Datagram<'_>, keys: Option<&Keys>) -> Result<Vec<u8>, NoRoom> {
    let header = &datagram.header;
    let mut buffer = vec![0; wire::MAX_DATAGRAM_BYTES];
    let length = match &datagram.body {
        Body::Data(data) => {
            let mut writer = DataWriter::new(data.message, data.number);
            data.chunks().try_for_each(|placed| writer.push(&placed.chunk, &mut buffer))?;
            writer.finish(header, data.sent, data.trail, data.unsure, keys, &mut buffer)?
        }
        Body::Session(session) => session.encode(header, keys, &mut buffer)?,
        Body::Nak(nak) => {
            let ranges: Vec<_> = nak.ranges.iter().collect();
            Nak::encode(header, nak.receiver, nak.echo, &ranges, keys, &mut buffer)?
        }
        Body::Ncf(ncf) => {
            let ranges: Vec<_> = ncf.ranges.iter().collect();
            Ncf::encode(header, ncf.reason, &ranges, keys, &mut buffer)?
        }
        Body::Status(status) => status.encode(header, keys, &mut buffer)?,
        Body::Topics(topics) => {
            let names = topics.names().count();
            let (length, count) =
                Topics::encode(header, topics.first, topics.names(), keys, &mut buffer)?;
            assert_eq!(usize::from(count), names, "all names fit again");
            length
        }
        Body::TopicsWanted(wanted) => wanted.encode(header, keys, &mut buffer)?,
        Body::Probe(probe) => probe.encode(header, keys, &mut buffer)?,
        Body::Echo(echo) => {
            let (length, count) =
                Echo::encode(header, echo.sent, echo.nonces(), keys, &mut buffer)?;
            assert_eq!(count, echo.nonces().count(), "all nonces fit again");
            length
        }
    };
    buffer.truncate(length);
    Ok(buffer)
}
