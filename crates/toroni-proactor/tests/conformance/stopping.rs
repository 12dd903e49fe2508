//! Cancelling, stopping, dropping: every result is reported, nothing leaks.

use super::Kind;
use super::common::*;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use toroni_proactor::{BufResult, Listener, OperationId, Proactor, StartError, Stream};

/// A graceful stop after a stop reports what the stop had left.
pub(crate) fn a_stop_may_become_a_graceful_one(kind: Kind) {
    kind.each(|proactor| {
        let crew = Crew::new(proactor, 2);
        proactor.stop();
        crew.join();
        let (stream, _peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let told = done.clone();
        stream
            .read(vec![0; 1], move |BufResult(result, _)| told.send(result.map(|_| ())).unwrap())
            .unwrap();
        proactor.timer(LOST, move |result| done.send(result).unwrap()).unwrap();
        proactor.finish();
        proactor.post(|| {}).unwrap_err();
        proactor.run();
        assert_eq!(proactor.outstanding(), 0);
        let told: Vec<_> = results.try_iter().collect();
        assert!(
            told.len() == 2 && told.iter().all(|it| it.as_ref().unwrap_err().is_cancelled()),
            "{told:?}"
        );
    });
}

pub(crate) fn cancel_of_started(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let buffer = vec![0u8; 77];
        let address = buffer.as_ptr() as usize;
        let sender = done.clone();
        let read = stream.read(buffer, move |result| sender.send(result).unwrap()).unwrap();
        assert!(proactor.cancel(read));
        let BufResult(result, buffer) = next(&results);
        let error = result.unwrap_err();
        assert!(error.is_cancelled(), "{error}");
        assert_eq!((buffer.as_ptr() as usize, buffer.len()), (address, 77), "the same buffer");
        assert!(!proactor.cancel(read), "it is over");
        // The stream still works.
        stream.read(buffer, move |result| done.send(result).unwrap()).unwrap();
        peer.write_all(b"later").unwrap();
        assert_eq!(next(&results).0, Ok(5));
    });
}

/// Both operations are ready when the first handler cancels the other one. That one reports its cancellation or
/// has read, and no byte is lost.
pub(crate) fn cancel_of_what_is_ready(kind: Kind) {
    kind.each(|proactor| {
        let ends = [stream_and_peer(proactor), stream_and_peer(proactor)];
        for _ in 0..10 {
            let (done, results) = channel();
            let ids: Arc<Mutex<Vec<OperationId>>> = Arc::default();
            let started = ends.iter().map(|(stream, _)| {
                let (done, ids, proactor) = (done.clone(), Arc::clone(&ids), proactor.clone());
                let handler = move |result| {
                    for id in &*ids.lock().unwrap() {
                        proactor.cancel(*id);
                    }
                    done.send(result).unwrap();
                };
                stream.read(vec![0; 8], handler).unwrap()
            });
            *ids.lock().unwrap() = started.collect();
            // Now they wait; then bytes arrive for both.
            proactor.handle_events(Some(Duration::ZERO));
            ends.iter().for_each(|(_, peer)| (&*peer).write_all(b"bytes").unwrap());
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                proactor.outstanding() == 0
            });
            let [first, second] = [next(&results).0, next(&results).0];
            assert_eq!(first, Ok(5));
            if let Err(error) = &second {
                assert!(error.is_cancelled(), "{error}");
                let left = ends.iter().find(|(stream, _)| {
                    let mut byte = [0; 1];
                    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                    rustix::net::recv(stream, &mut byte[..], flags).is_ok()
                });
                let (done, results) = channel();
                let (stream, _) = left.expect("what was not read is there");
                stream.read(vec![0; 8], move |result| done.send(result).unwrap()).unwrap();
                until(|| proactor.handle_events(Some(Duration::from_millis(1))) > 0);
                assert_eq!(next(&results).0, Ok(5));
            }
        }
    });
}

/// The first read of a stream is cancelled when both are ready: its handler is called first nevertheless.
pub(crate) fn results_of_a_stream_stay_in_order(kind: Kind) {
    kind.each(|proactor| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (other, mut others_peer) = stream_and_peer(proactor);
        for _ in 0..10 {
            let (done, results) = channel();
            let id: Arc<Mutex<Option<OperationId>>> = Arc::default();
            let (cancelling, first) = (proactor.clone(), Arc::clone(&id));
            let cancel = move |_| _ = cancelling.cancel(first.lock().unwrap().unwrap());
            other.read(vec![0; 8], cancel).unwrap();
            let started = ["first", "second"].map(|name| {
                let done = done.clone();
                let handler = move |result: BufResult<_, Vec<u8>>| {
                    done.send((name, result.0)).unwrap();
                };
                stream.read(vec![0; 5], handler).unwrap()
            });
            *id.lock().unwrap() = Some(started[0]);
            proactor.handle_events(Some(Duration::ZERO));
            others_peer.write_all(b"x").unwrap();
            peer.write_all(b"bytes").unwrap();
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                proactor.outstanding() <= 1
            });
            // If the first was faster than its cancellation, the second waits for more.
            if proactor.outstanding() == 1 {
                peer.write_all(b"again").unwrap();
            }
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(1)));
                proactor.outstanding() == 0
            });
            assert_eq!([next(&results).0, next(&results).0], ["first", "second"]);
        }
    });
}

/// A read and a write are deferred. Meanwhile the socket, which was full, is emptied, and no event reports
/// that, because the socket is not watched yet.
pub(crate) fn what_became_ready_before_it_was_watched(kind: Kind) {
    kind.each_limited(Some(2), |proactor| {
        let _crew = Crew::new(proactor, 1);
        let occupying = [stream_and_peer(proactor), stream_and_peer(proactor)];
        for (stream, _) in &occupying {
            stream.read(vec![0; 1], |_| {}).unwrap();
        }
        let (stream, mut peer) = stream_and_peer(proactor);
        let piece = [0; 65536];
        let mut filled = 0;
        while let Ok(bytes) = rustix::net::send(&stream, &piece, SendFlags::DONTWAIT) {
            filled += bytes;
        }
        let (done, results) = channel();
        let written = done.clone();
        stream.read(vec![0; 1], move |result| done.send(("read", result.0)).unwrap()).unwrap();
        stream.write("x", move |result| written.send(("written", result.0)).unwrap()).unwrap();
        let mut all = vec![0; filled];
        peer.read_exact(&mut all).unwrap();
        for (_, peer) in &occupying {
            (&*peer).write_all(b"x").unwrap();
        }
        assert_eq!(next(&results), ("written", Ok(1)));
        peer.write_all(b"y").unwrap();
        assert_eq!(next(&results), ("read", Ok(1)));
    });
}

pub(crate) fn cancel_of_deferred(kind: Kind) {
    kind.each_limited(Some(1), |proactor| {
        let _crew = Crew::new(proactor, 1);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (other, _other_peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let (first, second) = (done.clone(), done.clone());
        stream.read(vec![1; 8], move |result| first.send(result).unwrap()).unwrap();
        let deferred = other.read(vec![2; 8], move |result| second.send(result).unwrap()).unwrap();
        assert!(proactor.cancel(deferred));
        let BufResult(result, buffer) = next(&results);
        assert!(result.unwrap_err().is_cancelled());
        assert_eq!(buffer, [2; 8]);
        // When the started one is over, the next one starts.
        let third = done.clone();
        let waiting = other.read(vec![3; 8], move |result| third.send(result).unwrap()).unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(next(&results).0, Ok(1));
        assert!(proactor.cancel(waiting));
        assert!(next(&results).0.unwrap_err().is_cancelled());
        assert_eq!(stream.cancel(), 0);
    });
}

pub(crate) fn cancel_of_a_descriptor(kind: Kind) {
    kind.each_limited(Some(3), |proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, peer) = stream_and_peer(proactor);
        let (other, mut other_peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let read = |stream: &Stream, number: u8| {
            let done = done.clone();
            let tell = move |BufResult(result, _)| done.send((number, result)).unwrap();
            stream.read(vec![0; 8], tell).unwrap();
        };
        // Some of both are in progress, some deferred.
        read(&other, 100);
        (0..5).for_each(|number| read(&stream, number));
        assert_eq!(stream.cancel(), 5);
        let mut told: Vec<u8> = (0..5)
            .map(|_| {
                let (number, result) = next(&results);
                assert!(result.unwrap_err().is_cancelled());
                number
            })
            .collect();
        told.sort_unstable();
        assert_eq!(told, [0, 1, 2, 3, 4]);
        other_peer.write_all(b"x").unwrap();
        assert_eq!(next(&results), (100, Ok(1)));
        drop(peer);
    });
}

pub(crate) fn cancelled_accepts_leak_nothing(kind: Kind) {
    let test = kind.test("cancelled_accepts_leak_nothing");
    alone(&test, || {
        let before = open_descriptors();
        kind.each(|proactor| {
            let crew = Crew::new(proactor, 2);
            let (listener, address) = listener(proactor);
            let told = Arc::new(AtomicUsize::new(0));
            let round = |listener: &Listener| {
                let told = Arc::clone(&told);
                // The connection races with the cancellation; both are valid results.
                let accept = listener.accept(move |_| _ = told.fetch_add(1, Ordering::Relaxed));
                let client = std::net::TcpStream::connect(address).unwrap();
                proactor.cancel(accept.unwrap());
                drop(client);
            };
            round(&listener);
            until(|| told.load(Ordering::Relaxed) == 1);
            (0..50).for_each(|_| round(&listener));
            until(|| told.load(Ordering::Relaxed) == 51);
            drop(listener);
            drop(crew);
            assert_eq!(proactor.outstanding(), 0);
        });
        // Everything that a proactor opened is closed with it.
        until(|| open_descriptors() == before);
    });
}

pub(crate) fn failing_connects_leak_nothing(kind: Kind) {
    let test = kind.test("failing_connects_leak_nothing");
    alone(&test, || {
        kind.each(|proactor| {
            let absent = NoListener::new();
            let connect_32 = || {
                let (done, results) = channel();
                for _ in 0..32 {
                    let done = done.clone();
                    let told = move |result: Result<Stream, _>| done.send(result.is_err()).unwrap();
                    Stream::connect(proactor, absent.address, told).unwrap();
                }
                until(|| {
                    proactor.handle_events(Some(Duration::from_millis(1)));
                    proactor.outstanding() == 0
                });
                assert_eq!(results.try_iter().filter(|failed| *failed).count(), 32);
            };
            connect_32();
            let before = open_descriptors();
            (0..3).for_each(|_| connect_32());
            until(|| open_descriptors() == before);
        });
    });
}

pub(crate) fn a_client_is_destroyed_with_operations_outstanding(kind: Kind) {
    const WRITES: usize = 64;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let writer = done.clone();
        stream.read(vec![0; 8], move |result| done.send(result.0).unwrap()).unwrap();
        // More than the sockets hold, though each writes a part only: the last ones wait.
        for _ in 0..WRITES {
            let writer = writer.clone();
            let tell = move |result: BufResult<usize, _>| writer.send(result.0).unwrap();
            stream.write(vec![7; 1 << 20], tell).unwrap();
        }
        drop(writer);
        // Dropping the handle ends everything in progress, and then the connection.
        drop(stream);
        let told: Vec<Told> = (0..=WRITES).map(|_| next(&results)).collect();
        assert!(told.iter().filter(|result| result.is_err()).count() >= 2, "{told:?}");
        for error in told.into_iter().filter_map(Result::err) {
            assert!(error.is_cancelled(), "{error}");
        }
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
        assert!(rest.iter().all(|byte| *byte == 7));
        until(|| proactor.outstanding() == 0);
    });
}

type Told = Result<usize, toroni_proactor::OperationError>;

fn most_hops() -> usize {
    toroni_testkit::long::repetitions(20_000, 100_000) as usize
}

/// Posts that post again, on several threads: each hop is a handler.
struct Hops {
    called: AtomicUsize,
    left: AtomicUsize,
    refused: AtomicUsize,
}

impl Hops {
    fn new(hops: usize) -> Arc<Self> {
        Arc::new(Self {
            called: AtomicUsize::new(0),
            left: AtomicUsize::new(hops),
            refused: AtomicUsize::new(0),
        })
    }

    fn hop(self: &Arc<Self>, proactor: &Proactor) {
        let (hops, again) = (Arc::clone(self), proactor.clone());
        let posted = proactor.post(move || {
            hops.called.fetch_add(1, Ordering::Relaxed);
            let left = hops
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if left.is_ok() {
                hops.hop(&again);
            }
        });
        if let Err(refused) = posted {
            assert!(matches!(refused.error, StartError::Stopping { .. }));
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) fn graceful_stop_calls_every_handler(kind: Kind) {
    let most = most_hops();
    kind.each(|proactor| {
        let crew = Crew::new(proactor, 8);
        let (stream, _peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        let reader = done.clone();
        stream.read(vec![0; 8], move |result| reader.send(result.0.map(|_| ())).unwrap()).unwrap();
        let hour = Duration::from_secs(3600);
        proactor.timer(hour, move |result| done.send(result).unwrap()).unwrap();
        let hops = Hops::new(most);
        (0..16).for_each(|_| hops.hop(proactor));
        until(|| hops.called.load(Ordering::Relaxed) >= most);
        proactor.finish();
        crew.join();
        assert_eq!(proactor.outstanding(), 0);
        for _ in 0..2 {
            assert!(next(&results).unwrap_err().is_cancelled());
        }
        let called = hops.called.load(Ordering::Relaxed) + hops.refused.load(Ordering::Relaxed);
        assert_eq!(called, most + 16);
        let refused = proactor.post(|| {}).unwrap_err();
        assert!(matches!(refused.error, StartError::Stopping { .. }));
        let refused = stream.read(vec![9; 3], |_| {}).unwrap_err();
        assert_eq!(refused.buffer, [9; 3], "the buffer comes back");
    });
}

pub(crate) fn immediate_stop_loses_nothing(kind: Kind) {
    let most = most_hops();
    kind.each(|proactor| {
        let hops = Hops::new(most);
        (0..16).for_each(|_| hops.hop(proactor));
        // Stopped several times in the middle of it.
        for part in 1..4 {
            let crew = Crew::new(proactor, 8);
            until(|| hops.called.load(Ordering::Relaxed) >= most / 4 * part);
            proactor.stop();
            crew.join();
            assert_eq!(proactor.handle_events(None), 0, "stopped");
            proactor.restart();
        }
        let crew = Crew::new(proactor, 8);
        until(|| proactor.outstanding() == 0);
        assert_eq!(hops.called.load(Ordering::Relaxed), most + 16);
        drop(crew);
    });
}

/// Handlers are dropped without a call, with their buffers; what peers write later is read by no handler.
pub(crate) fn a_dropped_proactor_lets_go(kind: Kind) {
    kind.each(|other| {
        let proactor = Proactor::new(&same_as(other)).unwrap();
        let held = Arc::new(());
        let (stream, mut peer) = stream_and_peer(&proactor);
        let (listener, _) = listener(&proactor);
        let token = || Arc::clone(&held);
        let (a, b, c, d) = (token(), token(), token(), token());
        stream.read(vec![0; 4096], move |_| drop(a)).unwrap();
        listener.accept(move |_| drop(b)).unwrap();
        proactor.timer(Duration::from_secs(3600), move |_| drop(c)).unwrap();
        proactor.post(move || drop(d)).unwrap();
        // Some were started by a leader, the others were not dispatched.
        let crew = Crew::new(&proactor, 1);
        until(|| proactor.outstanding() == 3);
        drop(crew);
        assert_eq!(Arc::strong_count(&held), 4);
        drop(proactor);
        assert_eq!(Arc::strong_count(&held), 1, "handlers are dropped");
        let _ = peer.write_all(&[1; 4096]);
        assert!(stream.read(vec![0; 8], |_| {}).is_err(), "no proactor is there to do it");
    });
}

/// A connection that was accepted, but never passed to a handler, ends with the proactor, not with the last
/// handle of the listener.
pub(crate) fn what_was_not_taken_is_closed(kind: Kind) {
    kind.each(|other| {
        let proactor = Proactor::new(&same_as(other)).unwrap();
        let (listener, address) = listener(&proactor);
        let mut clients: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect_timeout(&address, LOST).unwrap()).collect();
        // The first handler stops the proactor, so that the other completions are not dispatched. No handler keeps
        // it alive.
        let stopping = Arc::new(Mutex::new(Some(proactor.clone())));
        for _ in &clients {
            let stopping = Arc::clone(&stopping);
            let stop = move |accepted| {
                drop(accepted);
                if let Some(proactor) = stopping.lock().unwrap().take() {
                    proactor.stop();
                }
            };
            listener.accept(stop).unwrap();
        }
        proactor.run();
        drop(proactor);
        // Connections that were not accepted do not belong to the proactor.
        while rustix::net::accept(&listener).is_ok() {}
        for client in &mut clients {
            client.set_read_timeout(Some(lost())).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "accepted, and closed");
        }
        drop(listener);
    });
}

/// Closing a socket may take as long as its linger time; only the thread that closes it waits. In a process of its own:
/// a child that another test starts in that moment has the socket, too, and its `exec` would wait for the linger time.
pub(crate) fn a_slow_close_holds_up_no_other(kind: Kind) {
    let test = kind.test("a_slow_close_holds_up_no_other");
    alone(&test, || kind.each(a_slow_close));
}

fn a_slow_close(proactor: &Proactor) {
    let _crew = Crew::new(proactor, 2);
    let (stream, mut peer) = stream_and_peer(proactor);
    // Some bytes are unsent, and stay unsent.
    let (done, results) = channel();
    let write = stream.write_all(vec![7; 30_000_000], move |result| _ = done.send(result.0));
    peer.read_exact(&mut [0; 1000]).unwrap();
    proactor.cancel(write.unwrap());
    assert!(next(&results).unwrap_err().is_cancelled());
    let linger = Some(2 * LOST);
    rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
    // The handler holds the last handle, and the operation the descriptor.
    let (closes, closing) = channel();
    let last = Arc::new(Mutex::new(Some(stream.clone())));
    let close = Arc::clone(&last);
    let tell = move |_| {
        drop(close.lock().unwrap().take());
        closes.send(()).unwrap();
    };
    stream.read(vec![0; 8], tell).unwrap();
    drop(stream);
    peer.write_all(b"x").unwrap();
    next(&closing);
    for _ in 0..20 {
        let (done, told) = channel();
        proactor.post(move || done.send(()).unwrap()).unwrap();
        next(&told);
    }
    drop(peer);
}
