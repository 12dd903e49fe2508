//! Readers and the publishers that wait for them: who joins is waited for or knows that it is late, who
//! dies is not, and no publisher waits in vain.

use super::*;
use crate::crash::{self, CrashPoint};
use crate::ring::gate::{self, Dead, Readers, Seat, Stretch, Unowned};
use crate::ring::layout::{READER_GATES, ReaderSlot, ReadersControl, SLOT_ACTIVE};
use crate::ring::slots::{self, Identity, SlotView};
use crate::ring::wait_budget::CachedGatingPosition;
use crate::ring::waits;
use crate::sync::AtomicU32;
use loom::sync::{Condvar, MutexGuard};

/// A bus whose stream is full, with slots for two readers.
struct Bus {
    memory: Memory,
    control: ReadersControl,
    slots: [ReaderSlot; 2],
    leases: [AtomicU32; 2],
    kernel: Kernel,
}

/// The kernel's part of a futex: compare and sleep are one step, as its lock of the hash bucket
/// makes them. A wake wakes everybody: that the model tells who waits in vain from who is woken and finds
/// nothing, it must not wake more often than the library does.
struct Kernel {
    bucket: Mutex<Bucket>,
    woken: Condvar,
}

#[derive(Default)]
struct Bucket {
    /// Sleepers, and wakes that none of them has taken yet.
    asleep: u32,
    wakes: u32,
}

impl Kernel {
    fn wait(&self, word: &AtomicU32, token: u32) {
        let mut bucket = self.bucket.lock().unwrap();
        if word.load(Ordering::Relaxed) != token {
            return;
        }
        bucket.asleep += 1;
        while bucket.wakes == 0 {
            bucket = self.woken.wait(bucket).unwrap();
        }
        bucket.wakes -= 1;
        bucket.asleep -= 1;
    }

    fn wake_one(&self) {
        let mut bucket = self.bucket.lock().unwrap();
        if bucket.wakes < bucket.asleep {
            bucket.wakes += 1;
            self.woken.notify_all();
        }
    }
}

impl Bus {
    fn new() -> Self {
        Self {
            memory: laid(),
            control: ReadersControl::default(),
            slots: core::array::from_fn(|_| ReaderSlot::default()),
            leases: core::array::from_fn(|_| AtomicU32::new(0)),
            kernel: Kernel { bucket: Mutex::new(Bucket::default()), woken: Condvar::new() },
        }
    }

    /// A reader, by number, that has joined at a position before the model begins.
    fn with_reader(mut self, number: usize, position: u64) -> Self {
        let slot = &mut self.slots[number];
        slot.generation = AtomicU32::new(1);
        slot.state = AtomicU32::new(SLOT_ACTIVE);
        slot.flags = AtomicU32::new(READER_GATES);
        slot.position = AtomicU64::new(position);
        self.leases[number] = AtomicU32::new(1);
        self.control.slots_used.0 = AtomicU32::new(2);
        self.control.joins.0 = AtomicU64::new(1);
        self
    }

    fn ring(&self) -> Ring<'_> {
        self.memory.ring()
    }

    /// Joins at the oldest message, as a subscriber does that has time to wait for a writer's decision.
    fn join_at_oldest(&self, number: u32) -> Cursor {
        self.try_join(number, || {
            thread::yield_now();
            true
        })
        .expect("a start")
    }

    fn try_join(&self, number: u32, wait: impl FnMut() -> bool) -> Option<Cursor> {
        let slot = &self.slots[number as usize];
        self.leases[number as usize].store(1, Ordering::Release);
        let identity = Identity { pid: 1, pid_namespace: 1, started_ns: 1, name: String::new() };
        slots::claim(slot, &identity);
        let seat = Seat { number, slot, flags: READER_GATES };
        let find = || Cursor::at_oldest(self.ring());
        gate::join(self.ring(), &self.control, seat, find, |_| true, wait).unwrap()
    }

    /// Shows a position as a subscriber does.
    fn show(&self, number: usize, position: u64, served: &mut u64) {
        let waits = &self.ring().control.waits.0;
        let Some(registered) = waits::show(&self.slots[number], position, waits, *served) else {
            return;
        };
        *served = registered.count;
        if registered.raise_space(&self.control, self.ring(), self.slots.iter()) {
            self.kernel.wake_one();
        }
    }
}

/// One publishing participant.
#[derive(Default)]
struct Publisher {
    gating_cache: CachedGatingPosition,
    dead: Dead,
}

/// Reads slots as the system call does: words, in no order.
struct Pass<'a> {
    bus: &'a Bus,
    views: Vec<SlotView>,
}

impl Readers for Pass<'_> {
    type Failure = std::convert::Infallible;

    fn read(&mut self) -> Result<(), Self::Failure> {
        let used = self.bus.control.slots_used.0.load(Ordering::Acquire);
        let view = |(number, slot): (u32, &ReaderSlot)| SlotView {
            number,
            generation: slot.generation.load(Ordering::Relaxed),
            state: slot.state.load(Ordering::Relaxed),
            flags: slot.flags.load(Ordering::Relaxed),
            position: slot.position.load(Ordering::Relaxed),
            arms: 0,
        };
        self.views = (0..used).zip(&self.bus.slots).map(view).collect();
        Ok(())
    }

    fn views(&self) -> impl Iterator<Item = SlotView> {
        self.views.iter().copied()
    }
}

impl Publisher {
    /// As `Publishing::make_space` for `try_publish`: a pass, the question for leases, and one more pass.
    fn in_the_way(&mut self, bus: &Bus, tail: u64, wanted: u64) -> Option<u32> {
        let control = bus.ring().control;
        let waits = &control.waits.0;
        let mut asked = false;
        loop {
            let joins = gate::propose(waits, &bus.control, wanted);
            if self.gating_cache.covers(wanted, CAPACITY, joins) {
                return None;
            }
            let reserved = control.reserved.0.load(Ordering::Relaxed);
            let stretch = Stretch { tail, reserved, wanted, capacity: CAPACITY };
            let (mut pass, unowned) = (Pass { bus, views: Vec::new() }, Unowned::default());
            let (dead, gating_cache) = (&mut self.dead, &self.gating_cache);
            let Ok(suspects) =
                gate::in_the_way(&mut pass, dead, &unowned, gating_cache, joins, waits, stretch);
            let first = suspects.first()?.number;
            if asked {
                return Some(first);
            }
            let is_free = |number| bus.leases[number as usize].load(Ordering::Acquire) == 0;
            self.dead.learn(&suspects, is_free);
            asked = true;
        }
    }

    /// Makes room and writes a message if nobody is in the way; returns who is.
    fn try_publish(&mut self, bus: &Bus, room: u64) -> Option<u32> {
        let mut appender = Appender::begin(bus.ring(), false).unwrap();
        if !appender.fits(room) {
            let wanted = appender.wanted(room);
            let slowest = self.in_the_way(bus, appender.tail(), wanted);
            if slowest.is_some() {
                return slowest;
            }
            appender.reserve(wanted);
        }
        write(&mut appender);
        None
    }
}

/// What the first message to be written overwrites.
fn oldest_behind_it() -> u64 {
    let shape = laid().shape();
    shape.round_up_to_block(START + CAPACITY - BYTES + BYTES + 8) - CAPACITY
}

/// A subscriber joins at the oldest message while a publisher is about to overwrite it: it is waited for,
/// or it begins behind it. It is not overtaken by whoever would wait for it.
#[test]
fn loom_a_joined_reader_is_not_overtaken() {
    model(2, || {
        let bus = Arc::new(Bus::new());
        let publisher = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || Publisher::default().try_publish(&bus, BYTES).is_none())
        };
        let ring = bus.ring();
        let cursor = bus.join_at_oldest(0);
        assert!(cursor.peek(ring).is_ok(), "overtaken at {cursor:?}");
        let published = publisher.join().unwrap();
        assert!(cursor.peek(ring).is_ok(), "overtaken at {cursor:?}, published: {published}");
    });
}

/// A subscriber that has read nothing protects the history, so a publisher takes back what it has announced. One
/// that joins meanwhile begins where the history begins: it is neither refused nor moved on.
#[test]
fn loom_a_start_in_protected_history_is_kept() {
    model(2, || {
        let bus = Arc::new(Bus::new().with_reader(1, START));
        let publisher = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || Publisher::default().try_publish(&bus, BYTES))
        };
        assert_eq!(bus.join_at_oldest(0), Cursor { position: START, sequence: 0 });
        assert!(publisher.join().unwrap().is_some(), "the history was not protected");
    });
}

/// The same, of a publisher that dies with its announcement in the file, at each of the steps, and of one that
/// comes after it. Who joins waits for no decision that nobody makes.
#[test]
fn loom_a_start_is_kept_when_the_proposing_writer_dies() {
    for fatal in [CrashPoint::AnnouncingRoom, CrashPoint::BeforeTakingBack] {
        model(2, move || {
            let bus = Arc::new(Bus::new().with_reader(1, START));
            let (_, published) = crash::rehearsal::act(
                move |reached| reached.last() == Some(&fatal),
                || Publisher::default().try_publish(&bus, BYTES),
            );
            assert_eq!(published, None, "it has died");
            let successor = {
                let bus = Arc::clone(&bus);
                thread::spawn(move || {
                    drop(Appender::begin(bus.ring(), true).unwrap());
                    Publisher::default().try_publish(&bus, BYTES)
                })
            };
            let mut checks = 0;
            let joined = bus.try_join(0, || {
                checks += 1;
                thread::yield_now();
                checks < 3
            });
            assert_eq!(joined, Some(Cursor { position: START, sequence: 0 }));
            assert!(successor.join().unwrap().is_some(), "the history was not protected");
        });
    }
}

/// As above, of a publisher that has looked before and remembers how far it may go.
#[test]
fn loom_a_joined_reader_is_not_overtaken_after_an_old_scan() {
    model(2, || {
        let bus = Bus::new();
        // That has read everything.
        let end = tail(&bus.memory);
        let bus = Arc::new(bus.with_reader(1, end));
        let publisher = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || {
                let mut publisher = Publisher::default();
                assert_eq!(publisher.in_the_way(&bus, end, START + CAPACITY), None);
                publisher.try_publish(&bus, BYTES).is_none()
            })
        };
        let ring = bus.ring();
        let cursor = bus.join_at_oldest(0);
        let published = publisher.join().unwrap();
        assert!(cursor.peek(ring).is_ok(), "overtaken at {cursor:?}, published: {published}");
    });
}

/// A subscriber dies, and another claims its slot, while a publisher looks: the dead one is not waited
/// for, the new one is.
#[test]
fn loom_a_slot_changes_hands_during_a_scan() {
    model(1, || {
        let bus = Arc::new(Bus::new().with_reader(0, START));
        // The kernel frees the lease with the process.
        bus.leases[0].store(0, Ordering::Release);
        let successor = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || bus.join_at_oldest(0))
        };
        let mut publisher = Publisher::default();
        let first = publisher.try_publish(&bus, BYTES);
        // Over the message at which a newcomer begins that comes too late for the first.
        let second = publisher.try_publish(&bus, 10 * BYTES);
        let successor = successor.join().unwrap();
        let published = [first, second].map(|slowest| slowest.is_none());
        assert!(
            successor.peek(bus.ring()).is_ok(),
            "overtaken at {successor:?}, published: {published:?}"
        );
        // Who is gone again is in nobody's way.
        slots::free(&bus.control, &bus.slots[0]);
        bus.leases[0].store(0, Ordering::Release);
        assert_eq!(Publisher::default().try_publish(&bus, BYTES), None);
    });
}

/// A slot that is seen active belongs to somebody who lives, as long as nobody dies.
#[test]
fn loom_a_joining_reader_is_not_taken_for_dead() {
    model(2, || {
        let mut bus = Bus::new();
        bus.control.slots_used.0 = AtomicU32::new(1);
        let bus = Arc::new(bus);
        let publisher = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || {
                let mut publisher = Publisher::default();
                publisher.in_the_way(&bus, START + CAPACITY - BYTES, START + CAPACITY + BYTES);
                assert!(publisher.dead.is_empty());
            })
        };
        bus.leases[0].store(1, Ordering::Release);
        bus.slots[0].generation.store(1, Ordering::Release);
        slots::activate(&bus.control, 0, &bus.slots[0], START, READER_GATES);
        publisher.join().unwrap();
    });
}

/// A dead subscriber is in nobody's way, whatever its slot says, and a living one is.
#[test]
fn loom_dead_readers_are_not_waited_for() {
    model(2, || {
        let bus = Arc::new(Bus::new().with_reader(0, START).with_reader(1, START));
        bus.leases[0].store(0, Ordering::Release);
        let publisher = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || {
                let mut publisher = Publisher::default();
                let slowest = publisher.try_publish(&bus, BYTES);
                assert_eq!(slowest, Some(1));
                publisher
            })
        };
        let cursor = Cursor { position: START, sequence: 0 };
        assert!(cursor.peek(bus.ring()).is_ok());
        let mut publisher = publisher.join().unwrap();
        // Now it goes on.
        bus.show(1, oldest_behind_it(), &mut 0);
        assert_eq!(publisher.try_publish(&bus, BYTES), None);
    });
}

/// Publishes as the bus does, but without any limit of a wait: whoever sleeps in vain sleeps for ever,
/// which loom reports as a deadlock.
fn publish<'b>(bus: &'b Bus, lock: &'b Mutex<()>) {
    let mut publisher = Publisher::default();
    let mut held: MutexGuard<'_, ()> = lock.lock().unwrap();
    let mut waited = false;
    loop {
        let Some(_) = publisher.try_publish(bus, BYTES) else { break };
        let tail = tail(&bus.memory);
        let wanted = bus.memory.shape().round_up_to_block(tail + BYTES + 8);
        let space = &bus.control.space.0;
        let until = wanted - CAPACITY;
        let has_space = || publisher.in_the_way(bus, tail, wanted).is_none();
        let Some(token) =
            waits::register_waiter(&bus.ring().control.waits.0, space, until, has_space)
        else {
            continue;
        };
        drop(held);
        bus.kernel.wait(space, token);
        waited = true;
        held = lock.lock().unwrap();
    }
    drop(held);
    waits::pass_on(waited, || bus.kernel.wake_one());
}

#[test]
fn loom_a_reader_ends_the_wait_for_space() {
    model(3, || {
        let bus = Arc::new(Bus::new().with_reader(0, START));
        let reader = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || bus.show(0, oldest_behind_it(), &mut 0))
        };
        publish(&bus, &Mutex::new(()));
        reader.join().unwrap();
    });
}

/// Two readers: the last of them ends the wait, whichever it is.
#[test]
fn loom_the_last_reader_ends_the_wait_for_space() {
    model(2, || {
        let bus = Arc::new(Bus::new().with_reader(0, START).with_reader(1, START));
        let readers: Vec<_> = (0..2)
            .map(|number| {
                let bus = Arc::clone(&bus);
                thread::spawn(move || bus.show(number, oldest_behind_it(), &mut 0))
            })
            .collect();
        publish(&bus, &Mutex::new(()));
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// Two publishers and one wake, which the first passes on.
#[test]
fn loom_a_wait_for_space_ends_for_each_publisher() {
    model(2, || {
        let bus = Arc::new(Bus::new().with_reader(0, START));
        let lock = Arc::new(Mutex::new(()));
        let publishers: Vec<_> = (0..2)
            .map(|_| {
                let (bus, lock) = (Arc::clone(&bus), Arc::clone(&lock));
                thread::spawn(move || publish(&bus, &lock))
            })
            .collect();
        // As far as both need.
        bus.show(0, START + CAPACITY - BYTES, &mut 0);
        for publisher in publishers {
            publisher.join().unwrap();
        }
    });
}
