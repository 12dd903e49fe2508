//! Many at once: threads, posts, timers, connections, operations beyond the limit.

use super::Kind;
use super::common::*;
use super::io::serve_echo;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use toroni_proactor::{
    BufResult, Datagrams, Listener, Proactor, ProcessorType, Stream, WeakProactor,
};

pub(crate) fn posts_from_many_threads(kind: Kind) {
    const THREADS: usize = 8;
    const POSTS: usize = 1000;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 3);
        let called: Arc<Vec<AtomicUsize>> =
            Arc::new((0..THREADS * POSTS).map(|_| AtomicUsize::new(0)).collect());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let called = &called;
                scope.spawn(move || {
                    for post in 0..POSTS {
                        let called = Arc::clone(called);
                        let number = thread * POSTS + post;
                        let count = move || _ = called[number].fetch_add(1, Ordering::Relaxed);
                        proactor.post(count).unwrap();
                    }
                });
            }
        });
        until(|| proactor.outstanding() == 0);
        assert!(called.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    });
}

pub(crate) fn timers_come_in_order_and_not_early(kind: Kind) {
    kind.each(|proactor| {
        let (done, order) = channel();
        let begun = Instant::now();
        for after_ms in [30, 10, 20, 0] {
            let done = done.clone();
            let after = Duration::from_millis(after_ms);
            // All from the same point in time: this thread may be held up between two of them.
            proactor
                .timer_at(begun + after, move |result| {
                    result.unwrap();
                    assert!(begun.elapsed() >= after, "early");
                    done.send(after_ms).unwrap();
                })
                .unwrap();
        }
        // Something to lead for, so that timers cut a leader's wait short, too.
        let (stream, _peer) = stream_and_peer(proactor);
        stream.read(vec![0; 10], |_| {}).unwrap();
        let _crew = Crew::new(proactor, 1);
        assert_eq!([next(&order), next(&order), next(&order), next(&order)], [0, 10, 20, 30]);
        // An earlier timer, while a thread waits for a later one.
        let _far = proactor.timer(Duration::from_secs(3600), |_| {}).unwrap();
        thread::sleep(Duration::from_millis(2));
        let done = done.clone();
        let (begun, after) = (Instant::now(), Duration::from_millis(1));
        proactor.timer(after, move |_| done.send(1).unwrap()).unwrap();
        assert_eq!(next(&order), 1);
        assert!(begun.elapsed() >= after, "early");
    });
}

pub(crate) fn a_cancelled_timer_is_reported(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (done, results) = channel();
        let hour = Duration::from_secs(3600);
        let timer = proactor.timer(hour, move |result| done.send(result).unwrap()).unwrap();
        assert!(proactor.cancel(timer));
        assert!(next(&results).unwrap_err().is_cancelled());
        assert!(!proactor.cancel(timer), "it is over");
    });
}

pub(crate) fn an_accept_storm_beyond_the_backlog(kind: Kind) {
    const CLIENTS: usize = 60;
    fn accept(listener: &Listener) {
        let again = listener.clone();
        let started = listener.accept(move |result| {
            if let Ok((stream, _)) = result {
                serve_echo(stream, vec![0; 16]);
                accept(&again);
            }
        });
        drop(started);
    }
    /// The kernel drops the last step of connecting when the backlog is full, and repeats it after
    /// seconds, if at all: a client that gets no answer tries again.
    fn speak(address: SocketAddr, timeout: Duration) -> std::io::Result<()> {
        let mut client = TcpStream::connect_timeout(&address, timeout)?;
        client.set_read_timeout(Some(timeout))?;
        client.write_all(b"x")?;
        client.read_exact(&mut [0])
    }
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (listener, address) = listener(proactor);
        rustix::net::listen(&listener, 4).unwrap();
        (0..4).for_each(|_| accept(&listener));
        let client = move || {
            let mut timeouts =
                (0..).map(|attempt| Duration::from_millis(20 << u32::min(attempt, 4)));
            until(|| speak(address, timeouts.next().unwrap()).is_ok());
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(client)).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        listener.cancel();
    });
}

/// While the thread that led calls a handler, another one leads.
pub(crate) fn leadership_is_handed_over(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (other, mut other_peer) = stream_and_peer(proactor);
        for _ in 0..20 {
            let (release, blocked) = channel::<()>();
            let (entered, inside) = channel();
            stream
                .read(vec![0; 1], move |_| {
                    entered.send(()).unwrap();
                    let _ = blocked.recv_timeout(LOST);
                })
                .unwrap();
            let (done, results) = channel();
            other.read(vec![0; 1], move |result| done.send(result.0).unwrap()).unwrap();
            peer.write_all(b"1").unwrap();
            next(&inside);
            other_peer.write_all(b"2").unwrap();
            assert_eq!(next(&results), Ok(1), "no thread leads while a handler runs");
            // So do posts and timers.
            let (done, results) = channel();
            let timed = done.clone();
            proactor.post(move || done.send(()).unwrap()).unwrap();
            next(&results);
            proactor.timer(Duration::from_millis(1), move |_| timed.send(()).unwrap()).unwrap();
            next(&results);
            drop(release);
        }
    });
}

/// One waiting thread is enough, although the thread that led before has left for good.
pub(crate) fn a_thread_that_leaves_hands_over(kind: Kind) {
    kind.each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        stream.read(vec![0; 1], move |result| done.send(result.0).unwrap()).unwrap();
        let served = AtomicBool::new(false);
        thread::scope(|scope| {
            // One of the two leads; the first one leaves when its time is over, and may be the leader.
            let first = scope.spawn(|| proactor.handle_events(Some(Duration::from_millis(20))));
            scope.spawn(|| {
                while !served.load(Ordering::Relaxed) {
                    proactor.handle_events(Some(Duration::from_millis(200)));
                }
            });
            first.join().unwrap();
            peer.write_all(b"1").unwrap();
            let result = results.recv_timeout(LOST);
            served.store(true, Ordering::Relaxed);
            assert_eq!(result.unwrap(), Ok(1));
        });
    });
}

/// The kernel may cancel the operations of a thread that exits; their handlers must not see that.
pub(crate) fn operations_outlive_their_threads(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (listener, address) = listener(proactor);
        let datagrams = Datagrams::bind(proactor, ANY).unwrap();
        let (done, results) = channel();
        // Once in a thread that only starts, once in one that has led, too.
        for leads in [false, true] {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let told = done.clone();
                    let tell = move |result: BufResult<_, _>| told.send(result.0.is_ok()).unwrap();
                    stream.read(vec![0; 1], tell).unwrap();
                    let told = done.clone();
                    let tell = move |result: BufResult<_, _>| told.send(result.0.is_ok()).unwrap();
                    datagrams.read(vec![0; 1], tell).unwrap();
                    let told = done.clone();
                    listener.accept(move |result| told.send(result.is_ok()).unwrap()).unwrap();
                    if leads {
                        proactor.handle_events(Some(Duration::from_millis(20)));
                    }
                });
            });
            // The leader's wait sees the cancellation.
            thread::sleep(Duration::from_millis(10));
            assert!(results.try_recv().is_err(), "told of the end of a thread");
            peer.write_all(b"1").unwrap();
            let other = std::net::UdpSocket::bind(ANY).unwrap();
            other.send_to(b"1", datagrams.local_address().unwrap()).unwrap();
            let _client = TcpStream::connect(address).unwrap();
            for _ in 0..3 {
                assert!(next(&results));
            }
        }
    });
}

/// The maximum number of writes of a busy stream.
const WRITES: u32 = 3000;

/// Each write completes at once, and its handler starts the next.
fn write(stream: &Arc<Stream>, count: &Arc<AtomicU32>) {
    if count.fetch_add(1, Ordering::Relaxed) < WRITES {
        let (again, count) = (Arc::clone(stream), Arc::clone(count));
        stream.write("x", move |_| write(&again, &count)).unwrap();
    }
}

/// A post gets its turn, although a session never pauses.
pub(crate) fn a_busy_stream_starves_no_other(kind: Kind) {
    kind.each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let reader = thread::spawn(move || peer.read_to_end(&mut Vec::new()));
        let (stream, count) = (Arc::new(stream), Arc::new(AtomicU32::new(0)));
        write(&stream, &count);
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            count.load(Ordering::Relaxed) >= 100
        });
        let (done, posted) = channel();
        let (before, counted) = (count.load(Ordering::Relaxed), Arc::clone(&count));
        // The writes so far; no more are needed.
        let told = move || done.send(counted.swap(WRITES, Ordering::Relaxed) - before).unwrap();
        proactor.post(told).unwrap();
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            proactor.outstanding() == 0
        });
        let overtakers = next(&posted);
        assert!(overtakers < 100, "{overtakers} writes went ahead");
        drop(stream);
        reader.join().unwrap().unwrap();
    });
}

/// Handlers that take a millisecond each, and post the next: the clock is checked between them.
pub(crate) fn a_timer_is_due_amid_long_handlers(kind: Kind) {
    const MOST: u32 = 200;

    fn spin(proactor: &WeakProactor, count: &Arc<AtomicU32>) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        if count.fetch_add(1, Ordering::Relaxed) < MOST {
            let (again, count) = (proactor.clone(), Arc::clone(count));
            proactor.upgrade().unwrap().post(move || spin(&again, &count)).unwrap();
        }
    }

    kind.each(|proactor| {
        let count = Arc::new(AtomicU32::new(0));
        let (done, fired) = channel();
        let counted = Arc::clone(&count);
        // The handlers so far; no more are needed.
        let told = move |_| done.send(counted.swap(MOST, Ordering::Relaxed)).unwrap();
        let _timer = proactor.timer(Duration::from_millis(5), told).unwrap();
        let (weak, counted) = (proactor.downgrade(), Arc::clone(&count));
        proactor.post(move || spin(&weak, &counted)).unwrap();
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            proactor.outstanding() == 0
        });
        let handlers = next(&fired);
        assert!(handlers < 40, "{handlers} handlers went ahead of a timer of 5 ms");
    });
}

/// A handler handles events itself: its thread is still counted once.
pub(crate) fn a_handler_may_handle_events(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        let stream = Arc::new(stream);
        for _ in 0..100 {
            let (done, results) = channel();
            let (weak, stream) = (proactor.downgrade(), Arc::clone(&stream));
            let block = move || {
                let proactor = weak.upgrade().unwrap();
                let read = proactor.block_on(stream.read_async(vec![0; 1]));
                let BufResult(result, _) = read.expect("not stopped");
                done.send(result).unwrap();
            };
            proactor.post(block).unwrap();
            peer.write_all(b"x").unwrap();
            assert_eq!(next(&results), Ok(1));
        }
    });
}

/// Short handlers need no second thread. Then a handler blocks until others have been called: of operations
/// that it started, of its posts, and of results that arrive meanwhile.
pub(crate) fn a_handler_that_blocks_holds_up_no_other(kind: Kind) {
    fn chain(proactor: &WeakProactor, left: u32, done: std::sync::mpsc::Sender<()>) {
        let again = proactor.clone();
        let next = move || match left {
            0 => done.send(()).unwrap(),
            _ => chain(&again, left - 1, done),
        };
        proactor.upgrade().unwrap().post(next).unwrap();
    }

    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 3);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (idle, _silent) = stream_and_peer(proactor);
        idle.read(vec![0; 1], |_| {}).unwrap();
        let stream = Arc::new(stream);
        for _ in 0..5 {
            let (done, trained) = channel();
            chain(&proactor.downgrade(), 500, done);
            next(&trained);

            let (told, heard) = channel();
            let (release, released) = channel();
            let (weak, again) = (proactor.downgrade(), Arc::clone(&stream));
            let block = move || {
                let (of_read, of_write, of_post) = (told.clone(), told.clone(), told.clone());
                again.read(vec![0; 1], move |_| of_read.send("read").unwrap()).unwrap();
                again.write("x", move |_| of_write.send("written").unwrap()).unwrap();
                weak.upgrade().unwrap().post(move || of_post.send("posted").unwrap()).unwrap();
                next(&released);
                told.send("released").unwrap();
            };
            proactor.post(block).unwrap();
            let mut done = [next(&heard), next(&heard)];
            done.sort_unstable();
            assert_eq!(done, ["posted", "written"]);
            peer.write_all(b"x").unwrap();
            assert_eq!(next(&heard), "read");
            release.send(()).unwrap();
            assert_eq!(next(&heard), "released");
            peer.read_exact(&mut [0]).unwrap();
        }
    });
}

/// One session never pauses; a handler of another one continues to read, and its bytes are there already.
pub(crate) fn a_busy_stream_starves_no_reader(kind: Kind) {
    fn read(stream: &Arc<Stream>, left: u32, done: std::sync::mpsc::Sender<()>) {
        let again = Arc::clone(stream);
        stream
            .read(vec![0; 1], move |BufResult(result, _)| {
                assert_eq!(result, Ok(1));
                match left {
                    1 => done.send(()).unwrap(),
                    _ => read(&again, left - 1, done),
                }
            })
            .unwrap();
    }

    kind.each(|proactor| {
        let (busy, mut its_peer) = stream_and_peer(proactor);
        let reader = thread::spawn(move || its_peer.read_to_end(&mut Vec::new()));
        let (stream, mut peer) = stream_and_peer(proactor);
        peer.write_all(b"1234").unwrap();
        let (busy, count) = (Arc::new(busy), Arc::new(AtomicU32::new(0)));
        write(&busy, &count);
        let (done, finished) = channel();
        read(&Arc::new(stream), 4, done);
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            finished.try_recv().is_ok()
        });
        let writes = count.swap(WRITES, Ordering::Relaxed);
        assert!(writes < WRITES, "the reader waited until the writer had finished");
        until(|| {
            proactor.handle_events(Some(Duration::from_millis(1)));
            proactor.outstanding() == 0
        });
        drop(busy);
        reader.join().unwrap().unwrap();
    });
}

/// Work that posts its next part for ever, and a future that wakes itself for ever, starve no read.
pub(crate) fn work_in_parts_starves_no_other(kind: Kind) {
    /// This many before another operation gets its turn are starvation.
    const MOST: u32 = 1_000_000;

    fn work(proactor: WeakProactor, most: u32, parts: Arc<AtomicU32>, done: Arc<AtomicBool>) {
        if parts.fetch_add(1, Ordering::Relaxed) == most || done.load(Ordering::Relaxed) {
            return;
        }
        let again = proactor.clone();
        proactor.upgrade().unwrap().post_later(move || work(again, most, parts, done)).unwrap();
    }

    // A dedicated leader may have to wait for a core while this thread works.
    let is_shared = kind.processor == ProcessorType::Shared;
    let most = if is_shared { MOST } else { u32::MAX };
    kind.each(|proactor| {
        // Not over the loopback interface, where a thread of the kernel may have to run first.
        let (stream, mut peer) = UnixStream::pair().unwrap();
        let stream = Stream::new(proactor, stream).unwrap();
        let read = || {
            let done = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&done);
            stream.read(vec![0; 1], move |_| told.store(true, Ordering::Relaxed)).unwrap();
            until(|| proactor.handle_events(Some(Duration::from_millis(1))) == 0);
            done
        };
        let (done, parts) = (read(), Arc::new(AtomicU32::new(0)));
        peer.write_all(b"1").unwrap();
        work(proactor.downgrade(), most, Arc::clone(&parts), Arc::clone(&done));
        until(|| proactor.handle_events(Some(Duration::ZERO)) == 0);
        let parts = parts.load(Ordering::Relaxed);
        assert!(done.load(Ordering::Relaxed), "{parts} parts");
        assert!(!is_shared || parts <= 10, "done after {parts} parts");

        let done = read();
        peer.write_all(b"1").unwrap();
        let (mut polls, begun) = (0, Instant::now());
        let yielding = std::future::poll_fn(|context| {
            polls += 1;
            let is_starved = if is_shared { polls == MOST } else { begun.elapsed() > lost() };
            if is_starved || done.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        proactor.block_on(yielding).unwrap();
        assert!(done.load(Ordering::Relaxed), "starved by a future");
    });
}

/// A limit of one operation, and handlers that always start the next one.
pub(crate) fn what_was_deferred_has_its_turn(kind: Kind) {
    kind.each_limited(Some(1), |proactor| {
        // Reads of one stream are done in the order of their starts.
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let tell = |number: u32| {
            let done = done.clone();
            move |BufResult(result, buffer): BufResult<usize, Vec<u8>>| {
                assert_eq!(result.unwrap(), 1);
                done.send((number, buffer[0])).unwrap();
            }
        };
        let (again, first, third) = (stream.clone(), tell(1), tell(3));
        stream
            .read(vec![0; 1], move |result| {
                again.read(vec![0; 1], third).unwrap();
                first(result);
            })
            .unwrap();
        stream.read(vec![0; 1], tell(2)).unwrap();
        let crew = Crew::new(proactor, 1);
        peer.write_all(b"abc").unwrap();
        let told: Vec<_> = (0..3).map(|_| next(&results)).collect();
        assert_eq!(told, [(1, b'a'), (2, b'b'), (3, b'c')]);
        drop(crew);
    });
    kind.each_limited(Some(1), |proactor| {
        // A stream that is never done blocks no other one.
        fn go_on(stream: Stream, peer: TcpStream, reads: Arc<AtomicU32>, enough: Arc<AtomicBool>) {
            if enough.load(Ordering::Relaxed) {
                return;
            }
            let (again, mut back) = (stream.clone(), peer.try_clone().unwrap());
            let handler = move |BufResult(result, _): BufResult<usize, Vec<u8>>| {
                if result.is_ok() {
                    reads.fetch_add(1, Ordering::Relaxed);
                    go_on(again, peer, reads, enough);
                }
            };
            stream.read(vec![0; 1], handler).unwrap();
            back.write_all(b"x").unwrap();
        }

        let (busy, busy_peer) = stream_and_peer(proactor);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (reads, enough) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (done, results) = channel();
        go_on(busy, busy_peer, Arc::clone(&reads), Arc::clone(&enough));
        let at = Arc::clone(&reads);
        stream.read(vec![0; 1], move |_| done.send(at.load(Ordering::Relaxed)).unwrap()).unwrap();
        peer.write_all(b"x").unwrap();
        let crew = Crew::new(proactor, 1);
        let before = next(&results);
        enough.store(true, Ordering::Relaxed);
        assert!(before <= 2, "behind {before} reads of another stream");
        drop(crew);
    });
}

pub(crate) fn the_limit_defers(kind: Kind) {
    const LIMIT: usize = 3;
    const READS: usize = 12;
    kind.each_limited(Some(LIMIT), |proactor| {
        let pairs: Vec<_> = (0..READS).map(|_| stream_and_peer(proactor)).collect();
        let (done, results) = channel();
        let crew = Crew::new(proactor, 1);
        for (number, (stream, _)) in pairs.iter().enumerate() {
            let done = done.clone();
            stream
                .read(vec![0; 8], move |BufResult(result, _)| {
                    done.send((number, result.unwrap())).unwrap();
                })
                .unwrap();
        }
        // Those in progress are the first ones, so the last is not served, though it could be read, until
        // there are no more than the limit.
        let write = |number: usize| (&pairs[number].1).write_all(b"x").unwrap();
        write(READS - 1);
        for number in 0..READS - LIMIT {
            assert!(results.try_recv().is_err(), "more were in progress than the limit allows");
            write(number);
            assert_eq!(next(&results), (number, 1));
        }
        (READS - LIMIT..READS - 1).for_each(write);
        let mut served: Vec<usize> = (0..LIMIT).map(|_| next(&results).0).collect();
        served.sort_unstable();
        assert_eq!(served, (READS - LIMIT..READS).collect::<Vec<_>>());
        drop(crew);
        assert_eq!(proactor.outstanding(), 0);
    });
}

pub(crate) fn a_handler_may_panic(kind: Kind) {
    let quiet = |proactor: &Proactor| {
        let panics = |result: std::thread::Result<usize>| result.is_err();
        proactor.post(|| std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
        let handled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            proactor.handle_events(Some(LOST))
        }));
        assert!(panics(handled));
    };
    kind.each(|proactor| {
        quiet(proactor);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let results: Receiver<usize> = results;
        let done = Mutex::new(done);
        stream
            .read(vec![0; 8], move |result| {
                done.lock().unwrap().send(result.0.unwrap()).unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            })
            .unwrap();
        peer.write_all(b"abc").unwrap();
        let handled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            proactor.handle_events(Some(LOST))
        }));
        assert!(handled.is_err());
        assert_eq!(next(&results), 3);
        assert_eq!(proactor.outstanding(), 0);
        // Everything still works.
        let _crew = Crew::new(proactor, 2);
        serve_echo(stream, vec![0; 8]);
        peer.write_all(b"x").unwrap();
        peer.read_exact(&mut [0]).unwrap();
    });
}
