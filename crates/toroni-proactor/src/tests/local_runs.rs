//! Local runs: what a handler starts needs no lock, and every promise holds nevertheless.

use crate::tests::common::*;
use crate::tests::decide_how_long_handlers_take;
use crate::{BufResult, Config, OperationId, Proactor, ProcessorConfig, ProviderType, Stream};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long a handler takes that does next to nothing.
const SHORT: Duration = Duration::from_micros(1);

thread_local! { static LOCKS: Cell<usize> = const { Cell::new(0) } }

/// Called whenever this thread takes the lock of a proactor.
pub(super) fn count_lock() {
    LOCKS.set(LOCKS.get() + 1);
}

/// Runs a test on each engine that attempts before it starts.
fn each(test: impl Fn(&Proactor)) {
    for provider in [ProviderType::Select, ProviderType::Combined, ProviderType::Uring] {
        let config = ProcessorConfig { provider, ..ProcessorConfig::default() };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        learn_that_handlers_are_short(&proactor);
        test(&proactor);
    }
}

/// Until a proactor has learned that, it collects nothing.
fn learn_that_handlers_are_short(proactor: &Proactor) {
    let sleeping = proactor.inner().shards.lock(0).dispatcher.handlers_sleep();
    let mut rounds = 0;
    until(|| {
        (0..200).for_each(|_| proactor.post(|| {}).unwrap());
        while proactor.handle_events(Some(Duration::ZERO)) > 0 {}
        rounds += 1;
        rounds >= 20 && !sleeping.load(Ordering::Relaxed)
    });
}

fn was_collected(operation: OperationId) -> bool {
    operation.id().key.is_outside()
}

/// Calls `then` in the handler of a read of this stream, so that its engine watches the stream.
fn in_a_handler_of(
    stream: &Stream,
    peer: &mut TcpStream,
    then: impl FnOnce(Stream) + Send + 'static,
) {
    let this = stream.clone();
    let handler = move |result: BufResult<usize, Vec<u8>>| {
        assert_eq!(result.0, Ok(1));
        then(this);
    };
    stream.read(vec![0; 1], handler).unwrap();
    peer.write_all(b"x").unwrap();
}

/// Handles events until all `count` handlers were called.
fn handle(proactor: &Proactor, count: usize) {
    let mut handled = 0;
    until(|| {
        handled += proactor.handle_events(Some(Duration::from_millis(10)));
        handled >= count
    });
    assert_eq!(handled, count);
}

/// Writes one byte after another, each in the handler of the one before.
fn write_on(stream: Stream, left: usize, written: Arc<AtomicUsize>) {
    if left > 0 {
        let next = stream.clone();
        let handler = move |result: BufResult<usize, &'static str>| {
            assert_eq!(result.0, Ok(1));
            written.fetch_add(1, Ordering::Relaxed);
            write_on(next, left - 1, written);
        };
        stream.write("y", handler).unwrap();
    }
}

#[test]
fn a_handler_continues_without_the_lock() {
    const WRITES: usize = 200;
    decide_how_long_handlers_take(SHORT);
    each(|proactor| {
        let (stream, _peer) = stream_and_peer(proactor);
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        proactor.post(move || write_on(stream, WRITES, counted)).unwrap();
        let before = LOCKS.get();
        handle(proactor, 1 + WRITES);
        let locks = LOCKS.get() - before;
        assert_eq!(written.load(Ordering::Relaxed), WRITES);
        // A start and a dispatch that take the lock each would make twice as many as writes.
        assert!(locks < WRITES / 2, "{locks} locks, {:?}", proactor.effective());
    });
}

/// Writes what was read, and reads again: both ends of a connection do this in turn.
fn echo(stream: Stream, left: Arc<AtomicUsize>, buffer: Vec<u8>) {
    let echoing = stream.clone();
    let handler = move |BufResult(result, buffer): BufResult<usize, Vec<u8>>| {
        assert_eq!(result, Ok(1));
        if left.fetch_sub(1, Ordering::Relaxed) > 1 {
            let reading = echoing.clone();
            let handler = move |BufResult(result, buffer): BufResult<usize, Vec<u8>>| {
                assert_eq!(result, Ok(1));
                echo(reading, left, buffer);
            };
            echoing.write(buffer, handler).unwrap();
        }
    };
    stream.read(buffer, handler).unwrap();
}

/// A thread that works alone takes it for every sixteenth handler, and when it returns to its owner.
#[test]
fn an_echo_takes_the_lock_for_every_eighth_operation() {
    const READS: usize = 4000;
    decide_how_long_handlers_take(SHORT);
    each(|proactor| {
        let (one, other) = two_streams(proactor);
        let left = Arc::new(AtomicUsize::new(READS));
        echo(one, Arc::clone(&left), vec![0; 1]);
        echo(other.clone(), Arc::clone(&left), vec![0; 1]);
        other.write("x", |_| {}).unwrap();
        let before = LOCKS.get();
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(10)));
            left.load(Ordering::Relaxed) == 0
        });
        let locks = LOCKS.get() - before;
        assert!(locks < 2 * READS / 8, "{locks} locks, {:?}", proactor.effective());
    });
}

/// Connections whose ends answer each other, until it is over.
struct Echoes {
    proactor: Proactor,
    is_over: AtomicBool,
    /// Called in the handler of each read.
    look: Box<dyn Fn(&Echoes) + Send + Sync>,
    /// They stay open: a peer that is closed is an error, too.
    streams: Mutex<Vec<Stream>>,
    /// The last read of each stream, by the number of its descriptor.
    reads: Mutex<BTreeMap<RawFd, OperationId>>,
    cancelled: AtomicUsize,
}

impl Echoes {
    /// Starts connections, each of which has one byte on its way.
    fn start(
        proactor: &Proactor,
        connections: usize,
        look: impl Fn(&Echoes) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let echoes = Arc::new(Self {
            proactor: proactor.clone(),
            is_over: AtomicBool::new(false),
            look: Box::new(look),
            streams: Mutex::default(),
            reads: Mutex::default(),
            cancelled: AtomicUsize::new(0),
        });
        for _ in 0..connections {
            let (one, other) = two_streams(proactor);
            echoes.read(&one, vec![0; 1]);
            echoes.read(&other, vec![0; 1]);
            other.write("x", |_| {}).unwrap();
            echoes.streams.lock().unwrap().extend([one, other]);
        }
        echoes
    }

    fn read(self: &Arc<Self>, stream: &Stream, buffer: Vec<u8>) {
        let (this, echoes) = (stream.clone(), Arc::clone(self));
        let handler = move |BufResult(result, buffer): BufResult<usize, Vec<u8>>| {
            if result.is_err() {
                echoes.cancelled.fetch_add(1, Ordering::Relaxed);
            } else if !echoes.is_over.load(Ordering::Relaxed) {
                (echoes.look)(&echoes);
                echoes.write(&this, buffer);
            }
        };
        match stream.read(buffer, handler) {
            Ok(read) => drop(self.reads.lock().unwrap().insert(stream.as_raw_fd(), read)),
            // A graceful stop overtakes the handler of a write.
            Err(refused) => assert!(self.is_over.load(Ordering::Relaxed), "{refused}"),
        }
    }

    fn write(self: &Arc<Self>, stream: &Stream, buffer: Vec<u8>) {
        let (this, echoes) = (stream.clone(), Arc::clone(self));
        let handler = move |BufResult(_, buffer): BufResult<usize, Vec<u8>>| {
            if !echoes.is_over.load(Ordering::Relaxed) {
                echoes.read(&this, buffer);
            }
        };
        // Refused in a graceful stop.
        drop(stream.write(buffer, handler));
    }

    /// The number of reads that threads keep for their turn.
    fn kept(&self) -> usize {
        self.proactor.inner().shards.lock(0).kept()
    }

    /// Whether the handler that calls this is one of what its thread has kept.
    fn in_kept_round(&self) -> bool {
        self.proactor.inner().shards.lock(0).dispatcher.in_kept_rounds > 0
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.proactor.finish();
        until(|| {
            self.proactor.handle_events(Some(Duration::from_millis(1)));
            self.proactor.outstanding() == 0
        });
    }
}

/// Blocks the first handler that calls it, until the test proceeds.
struct Block(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl Block {
    /// Returns what says that it blocks, and what ends that, too.
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let ((begun, begins), (proceed, proceeds)) = (channel(), channel());
        (Self(Mutex::new(Some((begun, proceeds)))), begins, proceed)
    }

    fn once(&self) {
        let first = self.0.lock().unwrap().take();
        if let Some((begun, proceeds)) = first {
            begun.send(()).unwrap();
            next(&proceeds);
        }
    }
}

/// All but io_uring, which has what had to wait once, and may finish it although it was asked to cancel it.
fn each_that_keeps(test: impl Fn(&Proactor)) {
    each(|proactor| {
        if proactor.effective()[0].config.provider != ProviderType::Uring {
            test(proactor);
        }
    });
}

#[test]
fn what_a_thread_keeps_is_outstanding_and_can_be_cancelled() {
    each_that_keeps(|proactor| {
        let (done, results) = channel();
        let tell = Mutex::new(Some(done));
        let echoes = Echoes::start(proactor, 4, move |echoes| {
            if echoes.kept() < 2 {
                return;
            }
            let Some(tell) = tell.lock().unwrap().take() else { return };
            // Before anything ends the run: the last read of each stream but this one's is under way.
            let read = *echoes.reads.lock().unwrap().values().next().unwrap();
            let last = *echoes.reads.lock().unwrap().values().next_back().unwrap();
            let cancelled = [read, last].map(|read| echoes.proactor.cancel(read));
            let again = [read, last].map(|read| echoes.proactor.cancel(read));
            tell.send((cancelled, again, echoes.proactor.outstanding())).unwrap();
        });
        let mut seen = None;
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            seen = seen.or(results.try_recv().ok());
            seen.is_some()
        });
        let (cancelled, again, outstanding) = seen.unwrap();
        let count = cancelled.iter().filter(|was| **was).count();
        // One of the two may be the read whose handler this is.
        assert!(count >= 1 && again == [false; 2], "{cancelled:?} {again:?}");
        assert_eq!(outstanding, 8, "with the one whose handler this is");
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            echoes.cancelled.load(Ordering::Relaxed) == count
        });
        echoes.end();
    });
}

/// The handler is one of what its thread has kept.
#[test]
fn a_graceful_stop_waits_for_a_handler_of_what_a_thread_has_kept() {
    each(|proactor| {
        let (block, begins, proceed) = Block::new();
        let _echoes = Echoes::start(proactor, 4, move |echoes| {
            if echoes.in_kept_round() {
                block.once();
            }
        });
        thread::scope(|scope| {
            scope.spawn(|| proactor.run());
            next(&begins);
            proactor.finish();
            // The other seven are cancelled.
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                proactor.outstanding() <= 1
            });
            assert!(proactor.outstanding() == 1 && !proactor.is_stopped());
            proceed.send(()).unwrap();
            until(|| proactor.is_stopped());
        });
    });
}

/// All that is ready has its turn before a post that asks for that.
#[test]
fn a_post_comes_after_what_a_thread_keeps() {
    fn post_on(proactor: &Proactor, reads: Arc<AtomicUsize>, between: Arc<Mutex<Vec<usize>>>) {
        let next = proactor.downgrade();
        let posted = proactor.post_later(move || {
            between.lock().unwrap().push(reads.swap(0, Ordering::Relaxed));
            if let Some(proactor) = next.upgrade()
                && between.lock().unwrap().len() < 200
            {
                post_on(&proactor, reads, between);
            }
        });
        posted.unwrap();
    }
    // If they are long, each visit is short, and what is kept goes to the lists at its end.
    decide_how_long_handlers_take(SHORT);
    each(|proactor| {
        let (reads, between) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let counted = Arc::clone(&reads);
        let echoes = Echoes::start(proactor, 32, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        // Until it keeps what it serves.
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            reads.load(Ordering::Relaxed) > 2000
        });
        post_on(proactor, Arc::clone(&reads), Arc::clone(&between));
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            between.lock().unwrap().len() == 200
        });
        // 32 connections have a byte on its way each. The first post comes at any time.
        let fewest = between.lock().unwrap()[2..].iter().copied().min();
        assert!(fewest >= Some(32), "{fewest:?}, {:?}", proactor.effective());
        echoes.end();
    });
}

/// Passes a byte from one pipe to the other, until none are left, and notes what its thread keeps.
fn pass_on(pipes: Arc<(Stream, Stream)>, buffer: Vec<u8>, seen: Arc<Mutex<Vec<usize>>>) {
    let (this, inner) = (Arc::clone(&pipes), Arc::clone(pipes.0.0.inner()));
    let handler = move |BufResult(result, buffer): BufResult<usize, Vec<u8>>| {
        // The last one passes nothing on and closes its pipes, which ends the other's reads.
        let is_over = seen.lock().unwrap().len() >= 1000;
        assert_eq!(result, Ok(usize::from(!is_over)));
        seen.lock().unwrap().push(inner.shards.lock(0).kept());
        if seen.lock().unwrap().len() < 1000 {
            let next = Arc::clone(&this);
            let handler = move |BufResult(_, buffer): BufResult<usize, Vec<u8>>| {
                pass_on(next, buffer, seen);
            };
            this.1.write(buffer, handler).unwrap();
        }
    };
    pipes.0.read(buffer, handler).unwrap();
}

/// Another reader may be faster, and then some reads wait: not with the run's lock held.
#[test]
fn reads_of_pipes_are_not_kept() {
    each(|proactor| {
        let [one, other] = [(); 2].map(|()| std::io::pipe().unwrap());
        let stream = |end: OwnedFd| Stream::new(proactor, end).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (first, second) = (stream(one.0.into()), stream(other.1.into()));
        let (third, fourth) = (stream(other.0.into()), stream(one.1.into()));
        fourth.write("x", |_| {}).unwrap();
        pass_on(Arc::new((first, second)), vec![0; 1], Arc::clone(&seen));
        pass_on(Arc::new((third, fourth)), vec![0; 1], Arc::clone(&seen));
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            seen.lock().unwrap().len() >= 1000
        });
        assert_eq!(seen.lock().unwrap().iter().max(), Some(&0));
    });
}

/// Nothing that a thread keeps is a timer, so it goes on keeping.
#[test]
fn cancelling_a_timer_ends_no_run() {
    each(|proactor| {
        let seen = Arc::new(Mutex::new(None));
        let told = Arc::clone(&seen);
        let echoes = Echoes::start(proactor, 4, move |echoes| {
            let before = echoes.kept();
            if before >= 2 && told.lock().unwrap().is_none() {
                let timer = echoes.proactor.timer(lost(), |_| {}).unwrap();
                let was_cancelled = echoes.proactor.cancel(timer);
                *told.lock().unwrap() = Some((was_cancelled, before, echoes.kept()));
            }
        });
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            seen.lock().unwrap().is_some()
        });
        let (was_cancelled, before, after) = seen.lock().unwrap().take().unwrap();
        assert!(was_cancelled && before == after, "{before}, then {after}");
        echoes.end();
    });
}

#[test]
fn a_second_thread_does_what_a_thread_that_blocks_has_kept() {
    each_that_keeps(|proactor| {
        let (block, begins, proceed) = Block::new();
        let (seen, has_blocked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, tell) = (Arc::clone(&seen), Arc::clone(&has_blocked));
        let echoes = Echoes::start(proactor, 4, move |echoes| {
            counted.fetch_add(1, Ordering::Relaxed);
            // Of eight reads, of which one has brought the thread here: no connection has both of its ends elsewhere.
            if echoes.kept() >= 6 {
                tell.store(true, Ordering::Relaxed);
                block.once();
            }
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                while !has_blocked.load(Ordering::Relaxed) {
                    proactor.handle_events(Some(Duration::from_millis(1)));
                }
            });
            next(&begins);
            let blocked_at = seen.load(Ordering::Relaxed);
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                // The other three connections go on, and come round again and again.
                seen.load(Ordering::Relaxed) >= blocked_at + 100
            });
            proceed.send(()).unwrap();
        });
        echoes.end();
    });
}

/// A thread that has returned to its owner may have kept reads for when it comes back.
#[test]
fn a_second_thread_does_what_a_thread_that_does_not_come_back_has_kept() {
    each_that_keeps(|proactor| {
        let echoes = Echoes::start(proactor, 16, |_| {});
        thread::scope(|scope| {
            scope.spawn(|| proactor.run());
            for _ in 0..20 {
                for _ in 0..20 {
                    proactor.handle_events(Some(Duration::from_millis(1)));
                }
                // Each stream reads again, although this thread does nothing.
                let before = echoes.reads.lock().unwrap().clone();
                until(|| {
                    let now = echoes.reads.lock().unwrap();
                    before.iter().all(|(stream, read)| now[stream] != *read)
                });
            }
            echoes.end();
        });
    });
}

#[test]
fn after_sixteen_in_a_row_the_others_have_their_turn() {
    each(|proactor| {
        let (stream, _peer) = stream_and_peer(proactor);
        let written = Arc::new(AtomicUsize::new(0));
        let (counted, seen) = (Arc::clone(&written), Arc::new(AtomicUsize::new(usize::MAX)));
        let (other, poster) = (Arc::clone(&seen), proactor.clone());
        proactor
            .post(move || {
                let seen = Arc::clone(&counted);
                let look = move || other.store(seen.load(Ordering::Relaxed), Ordering::Relaxed);
                poster.post(look).unwrap();
                write_on(stream, 100, counted);
            })
            .unwrap();
        handle(proactor, 1 + 1 + 100);
        let ahead = seen.load(Ordering::Relaxed);
        assert!((1..=17).contains(&ahead), "{ahead} went ahead, {:?}", proactor.effective());
    });
}

/// Starts a read and a write that are collected, and returns their results.
fn start_both(stream: &Stream, results: &Sender<&'static str>) -> [OperationId; 2] {
    let (read, written) = (results.clone(), results.clone());
    let reading = stream.read(vec![0; 1], move |BufResult(result, _)| {
        read.send(if result == Ok(1) { "read" } else { "not read" }).unwrap();
    });
    let writing = stream.write("y", move |BufResult(result, _)| {
        written.send(if result == Ok(1) { "written" } else { "not written" }).unwrap();
    });
    [reading.unwrap(), writing.unwrap()]
}

fn both(results: &Receiver<&'static str>) -> [&'static str; 2] {
    let mut both = [next(results), next(results)];
    both.sort_unstable();
    both
}

#[test]
fn a_second_thread_does_what_a_handler_that_blocks_has_started() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (begun, begins) = channel();
        in_a_handler_of(&stream, &mut peer, move |stream| {
            let (done, results) = channel();
            let [_, write] = start_both(&stream, &done);
            begun.send(was_collected(write)).unwrap();
            assert_eq!(both(&results), ["read", "written"]);
        });
        thread::scope(|scope| {
            let alone = scope.spawn(|| proactor.handle_events(Some(lost())));
            assert!(next(&begins), "the run is open");
            peer.write_all(b"z").unwrap();
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                alone.is_finished()
            });
            assert!(alone.join().unwrap() >= 1);
        });
    });
}

/// While a third one makes progress, so that the one that checks has no other reason to act.
#[test]
fn the_thread_that_checks_does_what_a_handler_that_blocks_has_started() {
    each(|proactor| {
        let _crew = Crew::new(proactor, 3);
        let is_over = Arc::new(AtomicBool::new(false));
        post_for_ever(proactor.clone(), Arc::clone(&is_over));
        let (mut collected, mut rounds) = (0, 0);
        let (stream, mut peer) = stream_and_peer(proactor);
        until(|| {
            let (ends, end) = channel();
            in_a_handler_of(&stream, &mut peer, move |stream| {
                let (done, results) = channel();
                let [_, write] = start_both(&stream, &done);
                let outcome = results.recv_timeout(lost()).and_then(|one| {
                    assert!(one == "written", "{one}, though there is nothing to read");
                    ends.send(Some(was_collected(write))).unwrap();
                    results.recv_timeout(lost())
                });
                ends.send(outcome.is_ok().then_some(false)).unwrap();
            });
            collected += usize::from(next(&end).expect("another thread called the handler"));
            peer.write_all(b"z").unwrap();
            next(&end).expect("another thread read");
            rounds += 1;
            collected >= 3 || rounds == 300
        });
        is_over.store(true, Ordering::Relaxed);
        // The last post owns a handle, and would keep the proactor for ever if it stayed.
        until(|| Arc::strong_count(&is_over) == 1);
        assert!(collected > 0, "no run was open in {rounds} rounds, {:?}", proactor.effective());
    });
}

fn post_for_ever(proactor: Proactor, is_over: Arc<AtomicBool>) {
    let next = proactor.clone();
    let refused = proactor.post(move || {
        if !is_over.load(Ordering::Relaxed) {
            post_for_ever(next, is_over);
        }
    });
    refused.unwrap();
}

#[test]
fn what_is_collected_is_outstanding_and_can_be_cancelled() {
    each(|proactor| {
        for by_key in [true, false] {
            let (stream, mut peer) = stream_and_peer(proactor);
            let (done, results) = channel();
            let asking = proactor.clone();
            in_a_handler_of(&stream, &mut peer, move |stream| {
                let [read, write] = start_both(&stream, &done);
                assert!(was_collected(write));
                assert_eq!(asking.outstanding(), 3, "the two, and this handler's");
                if by_key {
                    assert!(!asking.cancel(write), "over already");
                    assert!(asking.cancel(read) && !asking.cancel(read));
                } else {
                    assert_eq!(stream.cancel(), 1);
                }
            });
            handle(proactor, 3);
            assert_eq!(both(&results), ["not read", "written"]);
            assert_eq!(proactor.outstanding(), 0);
        }
    });
}

/// Another thread starts a read after a handler has collected one: the first byte is for the first.
#[test]
fn a_read_of_another_thread_does_not_overtake_a_collected_one() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let (begun, begins) = channel();
        let (proceed, proceeds) = channel::<()>();
        let told = done.clone();
        in_a_handler_of(&stream, &mut peer, move |stream| {
            let reading = stream
                .read(vec![0; 1], move |BufResult(_, buffer)| told.send((1, buffer)).unwrap());
            reading.unwrap();
            begun.send(()).unwrap();
            next(&proceeds);
        });
        thread::scope(|scope| {
            scope.spawn(|| handle(proactor, 3));
            next(&begins);
            peer.write_all(b"ab").unwrap();
            // Until both have arrived.
            until(|| rustix::io::ioctl_fionread(&stream).unwrap() == 2);
            let reading = stream
                .read(vec![0; 1], move |BufResult(_, buffer)| done.send((2, buffer)).unwrap());
            reading.unwrap();
            proceed.send(()).unwrap();
        });
        let both = [next(&results), next(&results)];
        assert_eq!(both, [(1, b"a".to_vec()), (2, b"b".to_vec())], "{:?}", proactor.effective());
    });
}

#[test]
fn results_of_one_stream_stay_in_order() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let order = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&order);
        in_a_handler_of(&stream, &mut peer, move |stream| {
            for number in 0..40 {
                let order = Arc::clone(&kept);
                stream.write("y", move |_| order.lock().unwrap().push(number)).unwrap();
            }
        });
        handle(proactor, 41);
        assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    });
}

#[test]
fn a_graceful_stop_in_a_handler_reports_what_it_has_started() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let stopping = proactor.clone();
        in_a_handler_of(&stream, &mut peer, move |stream| {
            start_both(&stream, &done);
            stopping.finish();
        });
        proactor.run();
        assert_eq!(both(&results), ["not read", "written"]);
        assert_eq!(proactor.outstanding(), 0);
    });
}

#[test]
fn a_stop_in_a_handler_keeps_what_it_has_started() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let stopping = proactor.clone();
        in_a_handler_of(&stream, &mut peer, move |stream| {
            start_both(&stream, &done);
            stopping.stop();
        });
        proactor.run();
        assert!(results.try_recv().is_err() && proactor.outstanding() == 2);
        peer.write_all(b"z").unwrap();
        proactor.restart();
        handle(proactor, 2);
        assert_eq!(both(&results), ["read", "written"]);
    });
}

#[test]
fn a_handler_that_panics_leaves_what_it_has_started() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        in_a_handler_of(&stream, &mut peer, move |stream| {
            start_both(&stream, &done);
            panic!("on purpose");
        });
        let handling = || proactor.handle_events(Some(lost()));
        assert!(catch_unwind(AssertUnwindSafe(handling)).is_err());
        assert_eq!(proactor.outstanding(), 2);
        peer.write_all(b"z").unwrap();
        handle(proactor, 2);
        assert_eq!(both(&results), ["read", "written"]);
        peer.read_exact(&mut [0; 1]).unwrap();
    });
}

/// A read waits for another thread while the handler of the read before it blocks: the attempt before the
/// handler has not been reported to the processor yet.
#[test]
fn the_next_read_of_a_stream_does_not_wait_for_a_handler_that_blocks() {
    each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (begun, begins) = channel();
        let (proceed, proceeds) = channel::<()>();
        in_a_handler_of(&stream, &mut peer, move |_| {
            begun.send(()).unwrap();
            next(&proceeds);
        });
        thread::scope(|scope| {
            scope.spawn(|| proactor.handle_events(Some(lost())));
            next(&begins);
            let (done, results) = channel();
            stream.read(vec![0; 1], move |result| done.send(result.0).unwrap()).unwrap();
            peer.write_all(b"z").unwrap();
            let mut result = None;
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                result = results.try_recv().ok();
                result.is_some()
            });
            assert_eq!(result, Some(Ok(1)));
            proceed.send(()).unwrap();
        });
    });
}
