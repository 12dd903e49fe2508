//! Toroni as a channel that keeps values; and a plain publisher to compare with, whose messages are not kept.

use super::toroni::{BUS, Toroni, config, open};
use crate::Failure;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Guarantees, Transport};
use crate::values::{Kept, PATTERN, Reader, Values, Writer};
use toroni::{Bus, Publisher, Start, Subscriber};

impl Values for Toroni {
    const NAME: &'static str = <Toroni as Transport>::NAME;
    type Host = Bus;
    type Writer = ToroniWriter;
    type Reader = ToroniReader;

    fn about(kept: &Kept) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!(
                "retained: {} topics, {} bytes; default ring and policy, prefaulted",
                kept.topics,
                area_bytes(kept)
            ),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(directory: &RunDirectory, kept: &Kept) -> Result<Bus, Failure> {
        let config =
            config(directory).retained_topics(kept.topics.into()).retained_bytes(area_bytes(kept));
        config.create(BUS).map_err(Failure::of("create the bus"))
    }

    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<ToroniWriter, Failure> {
        let retain =
            |publisher: Publisher| publisher.retained().map_err(Failure::of("retain a topic"));
        let writer = ToroniPlain::writer(directory, kept)?;
        let publishers = writer.publishers.into_iter().map(retain).collect::<Result<_, _>>()?;
        Ok(ToroniWriter { publishers })
    }

    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<ToroniReader, Failure> {
        Ok(ToroniReader { bus: open(directory, "reader")?, topics: kept.topics() })
    }
}

/// Returns the bytes for two of the longest records of each topic, which grow to twice that.
fn area_bytes(kept: &Kept) -> u64 {
    let record = u64::try_from(kept.value_bytes).unwrap_or(u64::MAX).saturating_add(128);
    (u64::from(kept.topics) * record * 4).next_multiple_of(4096)
}

/// A publisher of each topic.
pub struct ToroniWriter {
    publishers: Vec<Publisher>,
}

impl Writer for ToroniWriter {
    #[inline]
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure> {
        let publisher = &self.publishers[usize::from(topic)];
        publisher.publish(value).map(drop).map_err(Failure::of("publish"))
    }
}

/// A bus, and the names of its topics.
pub struct ToroniReader {
    bus: Bus,
    topics: Vec<String>,
}

impl Reader for ToroniReader {
    type Subscriber = Subscriber;

    #[inline]
    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let value = self.bus.retained(&self.topics[usize::from(topic)]);
        let value = value.map_err(Failure::of("read a value"))?;
        each(value.ok_or_else(|| Kept::missing(topic))?.payload());
        Ok(())
    }

    #[inline]
    fn join(&mut self, mut each: impl FnMut(&[u8])) -> Result<Subscriber, Failure> {
        let subscriber = self.bus.subscriber().pattern(PATTERN).retained(true).build();
        let mut subscriber = subscriber.map_err(Failure::of("subscribe"))?;
        while !subscriber.is_current() {
            let Some(message) = subscriber.try_receive().map_err(Failure::of("receive"))? else {
                break;
            };
            each(message.payload());
        }
        Ok(subscriber)
    }
}

/// The same publishers, without retained topics. Readers find only what is still in the ring.
pub struct ToroniPlain;

impl Values for ToroniPlain {
    const NAME: &'static str = "toroni-plain";
    type Host = Bus;
    type Writer = ToroniWriter;
    type Reader = RingReader;

    fn about(kept: &Kept) -> About {
        <Toroni as Values>::about(kept)
    }

    fn host(directory: &RunDirectory, kept: &Kept) -> Result<Bus, Failure> {
        <Toroni as Values>::host(directory, kept)
    }

    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<ToroniWriter, Failure> {
        let bus = open(directory, "writer")?;
        let publisher =
            |topic: String| bus.publisher(&topic).map_err(Failure::of("make a publisher"));
        let publishers = kept.topics().into_iter().map(publisher).collect::<Result<_, _>>()?;
        Ok(ToroniWriter { publishers })
    }

    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<RingReader, Failure> {
        <Toroni as Values>::reader(directory, kept).map(RingReader)
    }
}

/// Reads the ring.
pub struct RingReader(ToroniReader);

impl Reader for RingReader {
    type Subscriber = ();

    /// Reads the newest message of the topic.
    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure> {
        let name = &self.0.topics[usize::from(topic)];
        let subscriber = self.0.bus.subscriber().pattern(name).start(Start::Oldest).build();
        let mut subscriber = subscriber.map_err(Failure::of("subscribe"))?;
        let mut newest = None;
        while let Some(message) = subscriber.try_receive().map_err(Failure::of("receive"))? {
            newest = Some(message.payload().to_vec());
        }
        each(&newest.ok_or_else(|| Kept::missing(topic))?);
        Ok(())
    }

    fn join(&mut self, _: impl FnMut(&[u8])) -> Result<(), Failure> {
        Err(Failure::new("topics that are not retained have no values"))
    }
}

#[cfg(test)]
crate::values_conformance!(Toroni);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_directory::RunDirectoryOwner;
    use toroni_testkit::Directory;

    #[test]
    fn a_plain_publisher_keeps_nothing_but_the_ring() {
        let root = Directory::new();
        let owner = RunDirectoryOwner::create(root.path()).unwrap();
        let kept = Kept { topics: 2, value_bytes: 64 };
        let _host = ToroniPlain::host(owner.directory(), &kept).unwrap();
        let mut writer = ToroniPlain::writer(owner.directory(), &kept).unwrap();
        let mut reader = ToroniPlain::reader(owner.directory(), &kept).unwrap();
        for number in 1..=3 {
            writer.write(0, &[number; 64]).unwrap();
            writer.write(1, &[9; 64]).unwrap();
        }
        let mut seen = Vec::new();
        reader.get(0, |value| seen = value.to_vec()).unwrap();
        assert_eq!(seen, [3; 64]);
        assert!(reader.join(|_| ()).is_err());
        let mut retained = <Toroni as Values>::reader(owner.directory(), &kept).unwrap();
        let failure = retained.get(0, |_| ()).unwrap_err().to_string();
        assert!(failure.contains("topic 0 has no value"), "{failure}");
    }
}
