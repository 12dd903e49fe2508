//! Batches: many messages of an export in one sample, for importers that take messages of bridges alone.
//!
//! ```text
//!  batch:   "TB" | version: u8 | 0 | record | record | …
//!
//!  record:
//!  byte 0            32             40               44           48      48 + t        48 + t + n
//!       +------------+--------------+----------------+------------+-------+-------------+
//!       | attachment | published_ns | payload: n u32 | topic: t   | topic | payload     |
//!       |            | u64          |                | u32        |       |             |
//!       +------------+--------------+----------------+------------+-------+-------------+
//! ```
//!
//! Integers are little-endian. The attachment is the one that the message would have as a sample of its own. `published_ns`
//! is CLOCK_REALTIME, and means something if the attachment says so. If `t` is 0, the topic is that of the record before.

use crate::attachment::{self, Attachment};
use std::ops::Range;

const MAGIC: [u8; 4] = [b'T', b'B', 1, 0];
const HEAD: usize = attachment::BYTES + 16;

/// A batch that is being written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The topic of the last record.
    topic: String,
    messages: u64,
    payload_bytes: u64,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Returns how long the batch is, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the sum of the payloads' lengths.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Appends a message. Its payload is at most `config::LARGEST_MESSAGE` long.
    pub(crate) fn push(
        &mut self,
        topic: &str,
        attachment: &Attachment,
        published_ns: u64,
        payload: &[u8],
    ) {
        if self.is_empty() {
            self.bytes.extend_from_slice(&MAGIC);
            self.topic.clear();
        }
        let written = if self.topic == topic { "" } else { topic };
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut head = [0; HEAD];
        head[..32].copy_from_slice(&attachment.to_bytes());
        head[32..40].copy_from_slice(&published_ns.to_le_bytes());
        head[40..44].copy_from_slice(&length(payload));
        head[44..].copy_from_slice(&length(written.as_bytes()));
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(written.as_bytes());
        self.bytes.extend_from_slice(payload);
        if !written.is_empty() {
            self.topic.clear();
            self.topic.push_str(topic);
        }
        self.messages += 1;
        self.payload_bytes += payload.len() as u64;
    }

    /// Returns the bytes, and begins a new batch.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        (self.messages, self.payload_bytes) = (0, 0);
        // The next one is likely to be as long.
        let next = Vec::with_capacity(self.bytes.len());
        std::mem::replace(&mut self.bytes, next)
    }
}

/// A message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Not checked: it may be no topic.
    pub(crate) topic: &'a str,
    pub(crate) attachment: Attachment,
    pub(crate) published_ns: u64,
    /// Where the payload is in the batch.
    pub(crate) payload: Range<usize>,
}

/// Bytes that are no batch, or not one of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes at {0} are none of a batch")]
pub(crate) struct NotABatch(pub(crate) usize);

/// Reads a batch record by record.
#[derive(Clone, Debug)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    topic: &'a str,
}

impl<'a> Records<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, NotABatch> {
        if bytes.get(..4) != Some(&MAGIC[..]) {
            return Err(NotABatch(0));
        }
        Ok(Self { bytes, at: 4, topic: "" })
    }

    /// Returns where the next record begins.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Returns the next message. After an error there is none.
    pub(crate) fn next(&mut self) -> Option<Result<Record<'a>, NotABatch>> {
        if self.at == self.bytes.len() {
            return None;
        }
        let at = self.at;
        let record = self.read(at).ok_or(NotABatch(at));
        self.at = match &record {
            Ok(record) => record.payload.end,
            Err(_) => self.bytes.len(),
        };
        Some(record)
    }

    fn read(&mut self, at: usize) -> Option<Record<'a>> {
        let head: &[u8; HEAD] = self.bytes.get(at..)?.first_chunk()?;
        let (attachment, rest) = head.split_first_chunk::<{ attachment::BYTES }>()?;
        let (published, lengths) = rest.split_first_chunk::<8>()?;
        let length = |at: usize| {
            let bytes = std::array::from_fn(|byte| lengths[at + byte]);
            usize::try_from(u32::from_le_bytes(bytes)).ok()
        };
        let topic = at + HEAD..(at + HEAD).checked_add(length(4)?)?;
        let payload = topic.end..topic.end.checked_add(length(0)?)?;
        self.bytes.get(payload.clone())?;
        if !topic.is_empty() {
            self.topic = std::str::from_utf8(&self.bytes[topic]).ok()?;
        }
        let attachment = Attachment::parse(attachment).ok()?;
        let published_ns = u64::from_le_bytes(*published);
        (!self.topic.is_empty()).then_some(Record {
            topic: self.topic,
            attachment,
            published_ns,
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toroni::Origin;

    fn attachment(number: u64) -> Attachment {
        Attachment {
            origin: Origin { source: 1, series: 2, stream: 3, number },
            count: number,
            numbering: 4,
            to_descendants: false,
            replayed: false,
            stamped: true,
            hops: 0,
        }
    }

    /// Topic, number, time, payload.
    type Message = (String, u64, u64, Vec<u8>);

    /// Returns what the records say, if all can be read.
    fn read(bytes: &[u8]) -> Result<Vec<Message>, NotABatch> {
        let (mut records, mut all) = (Records::new(bytes)?, Vec::new());
        while let Some(record) = records.next() {
            let Record { topic, attachment, published_ns, payload } = record?;
            let number = attachment.origin.number;
            all.push((topic.to_owned(), number, published_ns, bytes[payload].to_vec()));
        }
        Ok(all)
    }

    #[test]
    fn a_batch_that_ends_early_or_has_no_topic_is_refused() {
        let mut batch = Batch::default();
        batch.push("a/b", &attachment(7), 9, b"xyz");
        let whole = batch.take();
        assert_eq!(read(&whole), Ok(vec![("a/b".to_owned(), 7, 9, b"xyz".to_vec())]));
        assert_eq!(read(&whole[..4]), Ok(Vec::new()));
        for end in 5..whole.len() {
            assert_eq!(read(&whole[..end]), Err(NotABatch(4)), "{end}");
        }
        for (at, value) in [(0, 0), (2, 2), (4 + 22, 0), (4 + 44, 0), (4 + 47, 255), (4 + 48, 255)]
        {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert!(read(&bytes).is_err(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            messages in proptest::collection::vec(("[ab]{1,3}", proptest::collection::vec(any::<u8>(), 0..50)), 0..20),
            cut in 0..20_usize,
        ) {
            let (mut batch, mut expected, mut found) = (Batch::default(), Vec::new(), Vec::new());
            for (at, (topic, payload)) in messages.into_iter().enumerate() {
                if at == cut {
                    found.extend(read(&batch.take()).unwrap_or_default());
                }
                batch.push(&topic, &attachment(at as u64), 2 * at as u64, &payload);
                expected.push((topic, at as u64, 2 * at as u64, payload));
            }
            found.extend(read(&batch.take()).unwrap_or_default());
            prop_assert!(batch.is_empty());
            prop_assert_eq!(batch.len(), 0_usize);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn reading_ends_on_any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            bytes.splice(..0, MAGIC);
            let _ = read(&bytes);
        }
    }
}
