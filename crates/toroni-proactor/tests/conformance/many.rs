//! Many at once: threads, posts, timers, connections, operations beyond the limit.

use super::Kind;
use super::common::*;
use super::io::serve_echo;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use toroni_proactor::{BufResult, Datagrams, Listener, Proactor};

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
            proactor
                .timer(after, move |result| {
                    result.unwrap();
                    assert!(begun.elapsed() >= after, "early");
                    done.send(after_ms).unwrap();
                })
                .unwrap();
        }
        // Something to lead for, so that leaders' waits are cut short, too.
        let (stream, _peer) = stream_and_peer(proactor);
        stream.read(vec![0; 10], |_| {}).unwrap();
        let _crew = Crew::new(proactor, 1);
        assert_eq!([next(&order), next(&order), next(&order), next(&order)], [0, 10, 20, 30]);
        // A nearer one, while a thread waits for a farther one.
        let _far = proactor.timer(Duration::from_secs(3600), |_| {}).unwrap();
        thread::sleep(Duration::from_millis(2));
        let done = done.clone();
        proactor.timer(Duration::from_millis(1), move |_| done.send(1).unwrap()).unwrap();
        assert_eq!(next(&order), 1);
    });
}

pub(crate) fn a_cancelled_timer_is_told(kind: Kind) {
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
    /// seconds, if at all: a client that gets no answer tries anew.
    fn speak(address: SocketAddr) -> std::io::Result<()> {
        let patience = Duration::from_millis(200);
        let mut client = TcpStream::connect_timeout(&address, patience)?;
        client.set_read_timeout(Some(patience))?;
        client.write_all(b"x")?;
        client.read_exact(&mut [0])
    }
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (listener, address) = listener(proactor);
        rustix::net::listen(&listener, 4).unwrap();
        (0..4).for_each(|_| accept(&listener));
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| thread::spawn(move || until(|| speak(address).is_ok()))).collect();
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
            assert_eq!(next(&results), Ok(1), "nobody leads while a handler runs");
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

/// A thread that waits is enough, though the one that led before has left for good.
pub(crate) fn a_thread_that_leaves_hands_over(kind: Kind) {
    kind.each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        stream.read(vec![0; 1], move |result| done.send(result.0).unwrap()).unwrap();
        let served = AtomicBool::new(false);
        thread::scope(|scope| {
            // One of the two leads, and leaves when its time is over; which one is open.
            scope.spawn(|| proactor.handle_events(Some(Duration::from_millis(20))));
            scope.spawn(|| {
                while !served.load(Ordering::Relaxed) {
                    proactor.handle_events(Some(Duration::from_millis(200)));
                }
            });
            thread::sleep(Duration::from_millis(40));
            peer.write_all(b"1").unwrap();
            let result = results.recv_timeout(LOST);
            served.store(true, Ordering::Relaxed);
            assert_eq!(result.unwrap(), Ok(1));
        });
    });
}

/// The kernel may cancel what a thread has started when that thread exits: nobody is told of it.
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
            // The leader's wait sees what became of it.
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
        // All is as before.
        let _crew = Crew::new(proactor, 2);
        serve_echo(stream, vec![0; 8]);
        peer.write_all(b"x").unwrap();
        peer.read_exact(&mut [0]).unwrap();
    });
}
