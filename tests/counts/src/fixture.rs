//! The fixture of every path: a bus with a publisher and a subscriber in one thread. Also the function inside which
//! instructions are counted.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use toroni::{Bus, BusConfig, LockKind, Publisher, Subscriber, WaitStrategy};

/// A result whose error is only shown.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs what is counted. `cargo xtask counts` has callgrind count from the entry of this function to
/// its return, and knows it by its name.
#[inline(never)]
pub(crate) fn toroni_counted<R>(work: impl FnOnce() -> R) -> R {
    let result = work();
    // Else the call could become a jump, and this function end before the work does.
    std::hint::black_box(());
    result
}

/// A bus with the default settings. Fields are dropped in this order.
pub(crate) struct Fixture {
    pub(crate) publisher: Publisher,
    /// Of a topic that the subscriber has no pattern for.
    pub(crate) elsewhere: Publisher,
    pub(crate) subscriber: Subscriber,
    _bus: Bus,
    _directory: Directory,
}

impl Fixture {
    pub(crate) fn new() -> Outcome<Self> {
        Self::with_lock(LockKind::Lease)
    }

    pub(crate) fn with_lock(lock: LockKind) -> Outcome<Self> {
        let directory = Directory::new();
        let bus = BusConfig::new().directory(&directory.0).lock(lock).open("counts")?;
        Ok(Self {
            publisher: bus.publisher("plant/boiler/temperature")?,
            elsewhere: bus.publisher("yard/gate")?,
            subscriber: bus.subscriber().pattern("plant/**").wait(WaitStrategy::Block).build()?,
            _bus: bus,
            _directory: directory,
        })
    }

    /// Declares the publisher's topic retained.
    pub(crate) fn retain(&mut self) -> Outcome<()> {
        self.publisher = self.publisher.clone().retained()?;
        Ok(())
    }

    /// Lets the subscriber receive all that there is for it, which must be `expected` messages: a
    /// path that loses some counts something else than it says.
    pub(crate) fn receive_all(&mut self, expected: u64) -> Outcome<()> {
        let mut received = 0;
        while self.subscriber.try_receive()?.is_some() {
            received += 1;
        }
        if received == expected {
            return Ok(());
        }
        Err(format!("{received} messages came, and not {expected}").into())
    }

    /// Lets the subscriber sleep once, in vain. From now on publishers have to ask whether it sleeps
    /// again.
    pub(crate) fn sleep_once(&mut self) -> Outcome<()> {
        match self.subscriber.receive_timeout(Duration::from_millis(1))? {
            None => Ok(()),
            Some(_) => Err("a message came while the subscriber was to sleep".into()),
        }
    }
}

/// A directory in shared memory that goes with its owner.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("/dev/shm/toroni-counts-{}-{number}", std::process::id()).into())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
