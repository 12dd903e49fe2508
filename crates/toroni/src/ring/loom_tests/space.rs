//! Readers, and publishers that wait for them: a joining reader is waited for or learns that it is
//! late, a dead reader is not waited for, and no publisher waits in vain.

use super::*;
use crate::hook::{self, CrashPoint};
use crate::ring::gate::{self, ClaimedSlot, Dead, Proposal, Readers, Unowned};
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

/// The kernel's part of a futex. Comparing and falling asleep are one step, as the lock of the
/// kernel's hash bucket makes them. `notify_all` wakes every thread, so `wakes` limits how many of
/// them continue: the model must not wake more sleepers than the library does.
struct Kernel {
    bucket: Mutex<Bucket>,
    woken: Condvar,
}

#[derive(Default)]
struct Bucket {
    /// The number of sleepers, and of wakes that no sleeper has taken yet.
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

    /// Adds reader `number`, which joined at `position` before the model starts.
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

    /// Joins at the oldest message, like a subscriber that has time to wait for a writer's
    /// decision.
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
        let claimed = ClaimedSlot { number, slot, flags: READER_GATES };
        let find = || Cursor::at_oldest(self.ring());
        gate::join(self.ring(), &self.control, claimed, find, |_| true, wait).unwrap()
    }

    /// Publishes a position as a subscriber does.
    fn show(&self, number: usize, position: u64, served: &mut u64) {
        let waits = &self.ring().control.waits.0;
        let Some(registered) =
            waits::publish_position(&self.slots[number], position, waits, *served)
        else {
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

/// Reads slots as the system call does: word by word, in no order.
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
        };
        self.views = (0..used).zip(&self.bus.slots).map(view).collect();
        Ok(())
    }

    fn views(&self) -> impl Iterator<Item = SlotView> {
        self.views.iter().copied()
    }
}

impl Publisher {
    /// Like `Publishing::make_space` for `try_publish`: a scan, a check of the leases, and a second
    /// scan.
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
            let proposal = Proposal { tail, reserved, proposed: wanted, capacity: CAPACITY };
            let (mut pass, unowned) = (Pass { bus, views: Vec::new() }, Unowned::default());
            let (dead, gating_cache) = (&mut self.dead, &self.gating_cache);
            let Ok(suspects) =
                gate::in_the_way(&mut pass, dead, &unowned, gating_cache, joins, waits, proposal);
            let first = suspects.first()?.number;
            if asked {
                return Some(first);
            }
            let is_free = |number| bus.leases[number as usize].load(Ordering::Acquire) == 0;
            self.dead.learn(&suspects, is_free);
            asked = true;
        }
    }

    /// Makes space and writes a message if no reader is in the way. Otherwise returns the number of
    /// the reader in the way.
    fn try_publish(&mut self, bus: &Bus, bytes: u64) -> Option<u32> {
        let mut appender = Appender::begin(bus.ring(), || None, false).unwrap();
        if !appender.fits(bytes) {
            let wanted = appender.wanted(bytes);
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

/// Returns the position up to which the model's first message overwrites.
fn overwritten_by_first() -> u64 {
    let shape = laid().shape();
    shape.round_up_to_block(START + CAPACITY - BYTES + BYTES + 8) - CAPACITY
}

/// A subscriber joins at the oldest message while a publisher is about to overwrite it. Either the
/// publisher waits for it, or it starts at a later message. It is not overtaken.
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

/// A subscriber that has read nothing protects the history, so a publisher withdraws its proposal.
/// A subscriber that joins in the meantime starts where the history starts: it is neither refused
/// nor moved to a later start.
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

/// The same with a publisher that dies at each step while its proposal stands, and with a publisher
/// that follows it. A joining subscriber does not wait for a decision that will never be made.
#[test]
fn loom_a_start_is_kept_when_the_proposing_writer_dies() {
    for fatal in [CrashPoint::Proposing, CrashPoint::BeforeWithdrawing] {
        model(2, move || {
            let bus = Arc::new(Bus::new().with_reader(1, START));
            let (_, published) = hook::rehearsal::act(
                move |reached| reached.last() == Some(&fatal),
                || Publisher::default().try_publish(&bus, BYTES),
            );
            assert_eq!(published, None, "the publisher died");
            let successor = {
                let bus = Arc::clone(&bus);
                thread::spawn(move || {
                    drop(Appender::begin(bus.ring(), || None, true).unwrap());
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

/// The same with a publisher that has scanned before and remembers how far it may go.
#[test]
fn loom_a_joined_reader_is_not_overtaken_after_an_old_scan() {
    model(2, || {
        let bus = Bus::new();
        // A reader that has read everything.
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

/// A subscriber dies, and another claims its slot, while a publisher scans the slots. The publisher
/// does not wait for the dead one, but does wait for the new one.
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
        // Overwrites the message at which the new subscriber starts if it comes too late for the
        // first.
        let second = publisher.try_publish(&bus, 10 * BYTES);
        let successor = successor.join().unwrap();
        let published = [first, second].map(|slowest| slowest.is_none());
        assert!(
            successor.peek(bus.ring()).is_ok(),
            "overtaken at {successor:?}, published: {published:?}"
        );
        // A subscriber that has left is not in the way.
        slots::free(&bus.control, &bus.slots[0]);
        bus.leases[0].store(0, Ordering::Release);
        assert_eq!(Publisher::default().try_publish(&bus, BYTES), None);
    });
}

/// An active slot belongs to a living subscriber, if no subscriber dies.
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

/// A dead subscriber is not in the way, whatever its slot contains. A living one is.
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
        // Now the living reader advances.
        bus.show(1, overwritten_by_first(), &mut 0);
        assert_eq!(publisher.try_publish(&bus, BYTES), None);
    });
}

/// Publishes as the bus does, but without a time limit: a publisher that sleeps in vain sleeps for
/// ever, which loom reports as a deadlock.
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
            thread::spawn(move || bus.show(0, overwritten_by_first(), &mut 0))
        };
        publish(&bus, &Mutex::new(()));
        reader.join().unwrap();
    });
}

/// The last of two readers ends the wait, whichever it is.
#[test]
fn loom_the_last_reader_ends_the_wait_for_space() {
    model(2, || {
        let bus = Arc::new(Bus::new().with_reader(0, START).with_reader(1, START));
        let readers: Vec<_> = (0..2)
            .map(|number| {
                let bus = Arc::clone(&bus);
                thread::spawn(move || bus.show(number, overwritten_by_first(), &mut 0))
            })
            .collect();
        publish(&bus, &Mutex::new(()));
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// Two publishers and one wake: the publisher that is woken first wakes the other.
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
        // Far enough for both.
        bus.show(0, START + CAPACITY - BYTES, &mut 0);
        for publisher in publishers {
            publisher.join().unwrap();
        }
    });
}
