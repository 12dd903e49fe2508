//! iceoryx2 with values: a blackboard, whose entries are the topics.
//!
//! - The entries, and the type of each, are fixed when the blackboard is made: here arrays of 64 or of 1024 bytes.
//! - There is one writer for all entries. Handles of entries are found before they are used, except by a reader that joins, which
//!   is made, finds all entries, and reads them.

use iceoryx2::port::reader::{EntryHandle, Reader as ReaderPort};
use iceoryx2::port::writer::{EntryHandleMut, Writer as WriterPort};
use iceoryx2::prelude::{Node, ServiceName, ipc};
use iceoryx2::service::port_factory::blackboard;
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{About, Guarantees};
use toroni_bench_harness::values::{self, Kept, Values};

use crate::traces::{self, Traces};
use crate::{Iceoryx2, node};

/// The number of a topic.
type Key = u64;
type Service = blackboard::PortFactory<ipc::Service, Key>;
type Value<const LENGTH: usize> = [u8; LENGTH];

const SMALL: usize = 64;
const LARGE: usize = 1024;

/// One of the two types of values.
pub(crate) enum Either<S, L> {
    Small(S),
    Large(L),
}

/// Dropped in this order.
pub(crate) struct Blackboard {
    service: Service,
    _node: Node<ipc::Service>,
}

/// Dropped in this order.
pub(crate) struct Writing<const LENGTH: usize> {
    entries: Vec<EntryHandleMut<ipc::Service, Key, Value<LENGTH>>>,
    _writer: WriterPort<ipc::Service, Key>,
    _blackboard: Blackboard,
}

/// A reader with the handles of all entries, dropped in this order.
pub(crate) struct Handles<const LENGTH: usize> {
    entries: Vec<EntryHandle<ipc::Service, Key, Value<LENGTH>>>,
    _reader: ReaderPort<ipc::Service, Key>,
}

/// Dropped in this order.
pub(crate) struct Reading<const LENGTH: usize> {
    handles: Handles<LENGTH>,
    blackboard: Blackboard,
}

impl Values for Iceoryx2 {
    const NAME: &'static str = "iceoryx2";
    type Host = (Blackboard, Traces);
    type Writer = Either<Writing<SMALL>, Writing<LARGE>>;
    type Reader = Either<Reading<SMALL>, Reading<LARGE>>;

    fn about(kept: &Kept) -> About {
        About {
            version: concat!("iceoryx2 ", env!("ICEORYX2_VERSION")).to_owned(),
            settings: format!(
                "ipc::Service, a blackboard with {} entries of {} bytes",
                kept.topics, kept.value_bytes
            ),
            guarantees: Guarantees { lossless: true, total_order: false, in_place: true },
        }
    }

    fn host(directory: &RunDirectory, kept: &Kept) -> Result<Self::Host, Failure> {
        traces::remove_of_the_dead();
        let traces = Traces::of(directory);
        let blackboard = match of_length(kept)? {
            Either::Small(()) => Blackboard::make::<SMALL>(directory, kept)?,
            Either::Large(()) => Blackboard::make::<LARGE>(directory, kept)?,
        };
        Ok((blackboard, traces))
    }

    fn writer(directory: &RunDirectory, kept: &Kept) -> Result<Self::Writer, Failure> {
        Ok(match of_length(kept)? {
            Either::Small(()) => Either::Small(Writing::open(directory, kept)?),
            Either::Large(()) => Either::Large(Writing::open(directory, kept)?),
        })
    }

    fn reader(directory: &RunDirectory, kept: &Kept) -> Result<Self::Reader, Failure> {
        Ok(match of_length(kept)? {
            Either::Small(()) => Either::Small(Reading::open(directory, kept)?),
            Either::Large(()) => Either::Large(Reading::open(directory, kept)?),
        })
    }
}

fn of_length(kept: &Kept) -> Result<Either<(), ()>, Failure> {
    match kept.value_bytes {
        SMALL => Ok(Either::Small(())),
        LARGE => Ok(Either::Large(())),
        other => Err(Failure::new(format!(
            "the type of a value has {SMALL} or {LARGE} bytes in this program, not {other}"
        ))),
    }
}

fn name() -> Result<ServiceName, Failure> {
    ServiceName::new("values").map_err(Failure::of("use the name of the service"))
}

impl Blackboard {
    fn make<const LENGTH: usize>(directory: &RunDirectory, kept: &Kept) -> Result<Self, Failure> {
        let node = node(directory)?;
        let mut creator =
            node.service_builder(&name()?).blackboard_creator::<Key>().max_readers(4).max_nodes(8);
        for key in 0..Key::from(kept.topics) {
            creator = creator.add::<Value<LENGTH>>(key, [0; LENGTH]);
        }
        let service = creator.create().map_err(Failure::of("make the blackboard"))?;
        Ok(Self { service, _node: node })
    }

    fn open(directory: &RunDirectory) -> Result<Self, Failure> {
        let node = node(directory)?;
        let service = node.service_builder(&name()?).blackboard_opener::<Key>().open();
        Ok(Self { service: service.map_err(Failure::of("open the blackboard"))?, _node: node })
    }
}

impl<const LENGTH: usize> Writing<LENGTH> {
    fn open(directory: &RunDirectory, kept: &Kept) -> Result<Self, Failure> {
        let blackboard = Blackboard::open(directory)?;
        let writer = blackboard.service.writer_builder().create();
        let writer = writer.map_err(Failure::of("make a writer"))?;
        let entries = (0..Key::from(kept.topics)).map(|key| writer.entry(&key));
        let entries = entries.collect::<Result<_, _>>().map_err(Failure::of("find an entry"))?;
        Ok(Self { entries, _writer: writer, _blackboard: blackboard })
    }

    #[inline]
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure> {
        let value = value.try_into().map_err(Failure::of("write a value of another length"))?;
        self.entries[usize::from(topic)].update_with_copy(value);
        Ok(())
    }
}

impl<const LENGTH: usize> Handles<LENGTH> {
    fn find(service: &Service, topics: usize) -> Result<Self, Failure> {
        let reader = service.reader_builder().create().map_err(Failure::of("make a reader"))?;
        let entries = (0..topics as Key).map(|key| reader.entry(&key));
        let entries = entries.collect::<Result<_, _>>().map_err(Failure::of("find an entry"))?;
        Ok(Self { entries, _reader: reader })
    }
}

impl<const LENGTH: usize> Reading<LENGTH> {
    fn open(directory: &RunDirectory, kept: &Kept) -> Result<Self, Failure> {
        let blackboard = Blackboard::open(directory)?;
        let handles = Handles::find(&blackboard.service, usize::from(kept.topics))?;
        Ok(Self { handles, blackboard })
    }

    #[inline]
    fn get(&self, topic: u16, each: impl FnOnce(&[u8])) {
        each(&*self.handles.entries[usize::from(topic)].get());
    }

    fn join(&self, mut each: impl FnMut(&[u8])) -> Result<Handles<LENGTH>, Failure> {
        let handles = Handles::find(&self.blackboard.service, self.handles.entries.len())?;
        handles.entries.iter().for_each(|entry| each(&*entry.get()));
        Ok(handles)
    }
}

impl values::Writer for Either<Writing<SMALL>, Writing<LARGE>> {
    #[inline]
    fn write(&mut self, topic: u16, value: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Small(writing) => writing.write(topic, value),
            Self::Large(writing) => writing.write(topic, value),
        }
    }
}

impl values::Reader for Either<Reading<SMALL>, Reading<LARGE>> {
    type Subscriber = Either<Handles<SMALL>, Handles<LARGE>>;

    #[inline]
    fn get(&mut self, topic: u16, each: impl FnOnce(&[u8])) -> Result<(), Failure> {
        match self {
            Self::Small(reading) => reading.get(topic, each),
            Self::Large(reading) => reading.get(topic, each),
        }
        Ok(())
    }

    fn join(&mut self, each: impl FnMut(&[u8])) -> Result<Self::Subscriber, Failure> {
        match self {
            Self::Small(reading) => reading.join(each).map(Either::Small),
            Self::Large(reading) => reading.join(each).map(Either::Large),
        }
    }
}

toroni_bench_harness::values_conformance!(Iceoryx2);
