//! Lineage: which series the messages of a bus are sent in, and what this node remembers of it.
//!
//! The numbers of a series are the sequences of the bus, which only grow. A bus that was restored from a backup uses some again.
//! So the state has a file `bus`, which says what the bus was like when this node last sent it. If it is not like that any more,
//! the node begins another series: any doubt costs receivers a report that more may be missing, and never a message that is taken
//! for one they have. What the file cannot show, because it was restored as well, receivers notice: see
//! [`toroni_proto::past`].
//!
//! ```text
//!   bus ID             the identity of the bus
//!   ring INODE BORN    its file: inode, and when that was made, in ns
//!   boot ID            the boot in which this was written
//!   salt SALT          tells the series from others of the bus; 0 for the first of a bus in memory
//!   head NUMBER        the sequence of the next message
//!   session NUMBER     the last session of which something may have been sent
//!   ended yes|no       whether that session has ended in order
//! ```

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::state::{self, State, StateError};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use thiserror::Error;
use toroni::{Bus, FileError, Start, SubscriberError};
use toroni_proto::id::{Number, Series, Session};
use toroni_proto::past::Past;

/// The file of the state.
const FILE: &str = "bus";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why a node cannot say in which series it sends.
#[derive(Debug, Error)]
pub enum LineageError {
    /// Its state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The bus cannot be looked at.
    #[error("cannot read the settings of the bus: {0}")]
    Stats(#[from] FileError),
    /// The file of the bus cannot be looked at, or the kernel does not say which boot this is or gives no random numbers.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a node sends another series than before. Receivers report that more may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The file of the bus is another one.
    Replaced,
    /// The bus has fewer messages.
    Behind,
    /// The machine was started again, and the node had not ended in order.
    Interrupted,
    /// What the node has written cannot be read.
    Damaged,
    /// It has messages, it is on a disk, and the node has written nothing about it.
    Unknown,
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Replaced => "its file was replaced, as by a copy",
            Self::Behind => "it has fewer messages than when this node last sent it",
            Self::Interrupted => {
                "the machine was started again, and this node had not ended in order"
            }
            Self::Damaged => "the file `bus` in the state of this node cannot be read",
            Self::Unknown => "it is on a disk, and this node has no `state` that knows it",
        })
    }
}

/// What a node remembers of its bus.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) series: Series,
    pub(crate) past: Past,
    /// Why it is another series than before.
    pub(crate) doubt: Option<Doubt>,
    /// What the sequences in journals mean.
    pub(crate) meaning: u64,
    /// The session ends in order, once this is dropped.
    pub(crate) ends: bool,
    bus: Bus,
    state: Option<Arc<State>>,
    record: Record,
    is_written: bool,
}

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    bus: String,
    ring: (u64, u64),
    boot: String,
    salt: u32,
    head: u64,
    session: u32,
    has_ended: bool,
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let bus = value("bus")?.to_owned();
        let (inode, born) = value("ring")?.split_once(' ')?;
        let ring = (inode.parse().ok()?, born.parse().ok()?);
        let boot = value("boot")?.to_owned();
        let salt = u32::from_str_radix(value("salt")?, 16).ok()?;
        let head = value("head")?.parse().ok()?;
        let session = value("session")?.parse().ok()?;
        let has_ended = match value("ended")? {
            "yes" => true,
            "no" => false,
            _ => return None,
        };
        Some(Self { bus, ring, boot, salt, head, session, has_ended })
    }

    /// Why the bus may not be the one that was sent before, whose numbers only grow.
    fn doubt(&self, now: &Self, checkpoint: u64) -> Option<Doubt> {
        if self.ring != now.ring {
            Some(Doubt::Replaced)
        } else if now.head < self.head.max(checkpoint) {
            Some(Doubt::Behind)
        } else if self.boot != now.boot && !self.has_ended {
            Some(Doubt::Interrupted)
        } else {
            None
        }
    }

    fn series(&self) -> Series {
        match self.salt {
            0 => Series::of_bus(&self.bus),
            salt => Series::of_bus(&format!("{}/{salt:08x}", self.bus)),
        }
    }

    /// See [`Lineage::meaning`].
    fn meaning(&self) -> u64 {
        state::hash(format!("{}/{:08x}", self.bus, self.salt).as_bytes())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bus, ring: (inode, born), boot, salt, head, session, has_ended } = self;
        let ended = if *has_ended { "yes" } else { "no" };
        write!(
            formatter,
            "bus {bus}\nring {inode} {born}\nboot {boot}\nsalt {salt:08x}\nhead {head}\nsession {session}\nended {ended}\n"
        )
    }
}

impl Lineage {
    /// Finds out what is known of a bus at the start of a session. `checkpoint` returns the greatest sequence in journals in which sequences mean
    /// this.
    pub(crate) fn begin(
        bus: &Bus,
        state: Option<&Arc<State>>,
        session: Session,
        checkpoint: impl FnOnce(u64) -> Result<u64, StateError>,
    ) -> Result<Self, LineageError> {
        let stats = bus.stats()?;
        let mut now = Record {
            bus: bus.id().to_string(),
            ring: ring_of(bus)?,
            boot: boot_id()?,
            salt: 0,
            head: end_of(bus, stats.sequence),
            session: session.0,
            has_ended: false,
        };
        let mut prior = Past::NONE.prior;
        let found = match state.map_or(Ok(None), |state| state.read(FILE)) {
            Ok(text) => text.as_deref().map(Record::parse),
            Err(StateError::File { source, .. }) if source.kind() == ErrorKind::InvalidData => {
                Some(None)
            }
            Err(error) => return Err(error.into()),
        };
        let mut doubt = None;
        match found {
            Some(Some(found)) if found.bus == now.bus => {
                doubt = found.doubt(&now, checkpoint(found.meaning())?);
                now.salt = if doubt.is_some() { salt()? } else { found.salt };
                prior = Session(found.session);
            }
            Some(None) => (doubt, now.salt) = (Some(Doubt::Damaged), salt()?),
            // What is in memory lives no longer than its identity. Of what is on a disk no process knows what was sent before.
            _ if stats.on_disk => {
                (doubt, now.salt) = ((now.head > 0).then_some(Doubt::Unknown), salt()?);
            }
            _ => {}
        }
        Ok(Self {
            series: now.series(),
            past: Past { head: Number::new(now.head).unwrap_or(Number::MAX), prior },
            doubt,
            meaning: now.meaning(),
            ends: false,
            bus: bus.clone(),
            state: state.cloned(),
            record: now,
            is_written: false,
        })
    }

    /// Notes that something of the session may be sent from now on. A start that fails before counts as no session: otherwise each
    /// attempt of a host that was restored would take the place of the session that it has to name.
    pub(crate) fn sends(&mut self) -> Result<(), StateError> {
        if !self.is_written {
            self.write(&self.record)?;
            self.is_written = true;
        }
        Ok(())
    }

    fn write(&self, record: &Record) -> Result<(), StateError> {
        let Some(state) = &self.state else { return Ok(()) };
        state.write(FILE, &record.to_string())
    }
}

impl Drop for Lineage {
    /// Without this, the session counts as interrupted by the next boot: that costs receivers one report.
    fn drop(&mut self) {
        if self.ends && self.is_written {
            let head = end_of(&self.bus, self.record.head);
            let _ = self.write(&Record { head, has_ended: true, ..self.record.clone() });
        }
    }
}

/// Returns the sequence that the next message of a bus gets, or this one if all places for subscribers are taken. A publisher that died
/// just after a message leaves counters without it.
fn end_of(bus: &Bus, counted: u64) -> u64 {
    match bus.subscriber().gating(false).start(Start::Sequence(u64::MAX)).build() {
        Err(SubscriberError::SequenceAhead { end, .. }) => end,
        _ => counted,
    }
}

/// Returns the inode of the file that has the messages, and when it was made, in ns.
fn ring_of(bus: &Bus) -> Result<(u64, u64), LineageError> {
    let failed = |source| LineageError::System { action: "look at the file of the bus", source };
    let file = std::fs::metadata(bus.path().join("ring")).map_err(failed)?;
    // Not every file system knows when a file was made.
    let born = file.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    Ok((file.ino(), born))
}

fn boot_id() -> Result<String, LineageError> {
    let failed = |source| LineageError::System { action: "read which boot this is", source };
    Ok(std::fs::read_to_string(BOOT_ID).map_err(failed)?.trim().to_owned())
}

/// Draws what tells a series from others of its bus.
fn salt() -> Result<u32, LineageError> {
    let failed = |source| LineageError::System { action: "read /dev/urandom", source };
    let [a, b, c, d, ..] = super::start::random().map_err(failed)?;
    Ok(u32::from_le_bytes([a, b, c, d]).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use toroni::BusConfig;
    use toroni_testkit::Directory;

    struct Scene {
        bus: Bus,
        state: Arc<State>,
        file: PathBuf,
        _directory: Directory,
    }

    impl Scene {
        fn new() -> Self {
            let directory = Directory::new();
            let bus = BusConfig::new().directory(directory.path()).open("bus").unwrap();
            let state = Arc::new(State::open(&directory.path().join("state")).unwrap());
            let file = directory.path().join("state/bus");
            Self { bus, state, file, _directory: directory }
        }

        fn begin(&self, session: u32, checkpoint: u64) -> Lineage {
            let begun =
                Lineage::begin(&self.bus, Some(&self.state), Session(session), |_| Ok(checkpoint));
            let mut begun = begun.unwrap();
            begun.sends().unwrap();
            begun
        }

        /// Changes the value of a line of the file.
        fn write(&self, key: &str, value: &str) {
            let text = std::fs::read_to_string(&self.file).unwrap();
            let line = text.lines().find(|line| line.starts_with(&format!("{key} "))).unwrap();
            std::fs::write(&self.file, text.replace(line, &format!("{key} {value}"))).unwrap();
        }
    }

    fn publish(bus: &Bus, count: usize) {
        let publisher = bus.publisher("a").unwrap();
        (0..count).for_each(|_| _ = publisher.publish(b"").unwrap());
    }

    #[test]
    fn the_series_of_a_bus_that_is_as_it_was_left_continues() {
        let scene = Scene::new();
        let of_bus = Series::of_bus(&scene.bus.id().to_string());
        let without = Lineage::begin(&scene.bus, None, Session(4), |_| Ok(0)).unwrap();
        assert_eq!(
            (without.series, without.past.prior, without.doubt),
            (of_bus, Session(u32::MAX), None)
        );
        let first = scene.begin(5, 0);
        assert_eq!((first.series, first.past.prior), (of_bus, Session(u32::MAX)));
        drop(first);
        publish(&scene.bus, 3);
        let text = || std::fs::read_to_string(&scene.file).unwrap();
        let before = text();
        let failed = Lineage::begin(&scene.bus, Some(&scene.state), Session(6), |_| Ok(3)).unwrap();
        assert_eq!((failed.past.prior, text()), (Session(5), before), "a start that fails");
        drop(failed);
        let second = scene.begin(7, 3);
        let past = Past { head: Number::new(3).unwrap(), prior: Session(5) };
        assert_eq!((second.series, second.past, second.doubt), (of_bus, past, None));
        let mut third = scene.begin(8, 0);
        third.ends = true;
        publish(&scene.bus, 1);
        drop(third);
        assert!(text().contains("\nhead 4\nsession 8\nended yes\n"), "{}", text());
        scene.write("boot", "another");
        assert_eq!(scene.begin(9, 0).doubt, None, "it was left in order");
    }

    #[test]
    fn any_doubt_begins_another_series_which_then_continues() {
        let doubtful = |expected, change: &dyn Fn(&Scene) -> u64| {
            let scene = Scene::new();
            let first = scene.begin(5, 0);
            let checkpoint = change(&scene);
            let second = scene.begin(6, checkpoint);
            assert_eq!(second.doubt, Some(expected));
            assert!(second.series != first.series && second.meaning != first.meaning);
            let third = scene.begin(7, 0);
            assert_eq!((third.series, third.doubt), (second.series, None));
            assert_eq!(third.past.prior, Session(6));
        };
        doubtful(Doubt::Replaced, &|scene| {
            let (ring, copy) = (scene.bus.path().join("ring"), scene.bus.path().join("copy"));
            std::fs::copy(&ring, &copy).unwrap();
            std::fs::rename(copy, ring).unwrap();
            0
        });
        doubtful(Doubt::Behind, &|_| 1);
        doubtful(Doubt::Behind, &|scene| {
            scene.write("head", "1");
            0
        });
        doubtful(Doubt::Interrupted, &|scene| {
            scene.write("boot", "another");
            0
        });
        for text in ["", "bus", "\u{0}", &"x".repeat(2_000)] {
            doubtful(Doubt::Damaged, &|scene| {
                std::fs::write(&scene.file, text).unwrap();
                0
            });
        }
        doubtful(Doubt::Damaged, &|scene| {
            std::fs::write(&scene.file, [0xff]).unwrap();
            0
        });
    }

    #[test]
    fn another_bus_in_memory_is_the_first_series_of_that() {
        let scene = Scene::new();
        drop(scene.begin(5, 0));
        let directory = Directory::new();
        let other = BusConfig::new().directory(directory.path()).open("bus").unwrap();
        let begun = Lineage::begin(&other, Some(&scene.state), Session(6), |_| Ok(9)).unwrap();
        assert_eq!(begun.series, Series::of_bus(&other.id().to_string()));
        assert_eq!((begun.past.prior, begun.doubt), (Session(u32::MAX), None));
    }
}
