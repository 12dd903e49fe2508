//! The kernel takes no submissions for a while, because it has no space or no memory. Operations that it takes
//! later must not fail.
//!
//! A filter of system calls decides which thread it refuses: it refuses `io_uring_enter` with something to
//! submit. If such a thread has to submit again after a completion, it finds the submission queue full.

use crate::common::*;
use rustix::thread::futex;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use toroni_proactor::{
    BufResult, Config, OperationError, OperationId, OperationKind, Proactor, ProcessorConfig,
    ProviderType, WaitType,
};

/// More than the submission queue has entries.
const MANY: usize = 400;

/// The kernel's error for a while.
const REFUSALS: [i32; 2] = [libc::EBUSY, libc::EAGAIN];

fn each(test: impl Fn(Proactor)) {
    for provider in [ProviderType::Uring, ProviderType::Combined] {
        let config = ProcessorConfig { provider, ..ProcessorConfig::default() };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        if proactor.supports(OperationKind::WaitWord) {
            eprintln!("{provider:?}");
            test(proactor);
        } else {
            eprintln!("skipped: this kernel does not wait for words");
        }
    }
}

type Told = Sender<(usize, Result<(), OperationError>)>;

/// Waits at a word that is 0.
fn wait(proactor: &Proactor, word: &Arc<AtomicU32>, number: usize, told: &Told) -> OperationId {
    let told = told.clone();
    let done = move |BufResult(result, _)| told.send((number, result)).unwrap();
    proactor.wait_while(Arc::clone(word), 0, done).unwrap()
}

/// Runs in a thread whose submissions are refused.
fn refused<T: Send>(errno: i32, work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        refuse(libc::SYS_io_uring_enter, Asked::WithSecond, errno);
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Handles events for a while, even if events keep coming.
fn handle(proactor: &Proactor) {
    (0..10).for_each(|_| {
        proactor.handle_events(Some(Duration::from_millis(5)));
    });
}

/// Ends all waits at a word, and handles the last events.
fn wake(proactor: &Proactor, word: &AtomicU32) {
    word.store(1, Ordering::Release);
    futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs()).unwrap();
    until(|| {
        proactor.handle_events(Some(Duration::from_millis(10)));
        proactor.outstanding() == 0
    });
}

/// The kernel cancels a thread's submissions when the thread exits. They are submitted again, by a thread whose
/// submissions are refused.
#[test]
fn what_has_to_be_submitted_again_waits_for_its_turn() {
    each(|proactor| {
        for errno in REFUSALS {
            let word = Arc::new(AtomicU32::new(0));
            let (told, results) = channel();
            let first = thread::scope(|scope| {
                let (done, begun) = channel();
                let (leave, left) = channel::<()>();
                let (proactor, word, told) = (&proactor, &word, &told);
                scope.spawn(move || {
                    let first: Vec<_> =
                        (0..10).map(|number| wait(proactor, word, number, told)).collect();
                    proactor.handle_events(Some(Duration::ZERO));
                    done.send(first).unwrap();
                    let _ = left.recv();
                });
                let first = next(&begun);
                refused(errno, || {
                    (10..MANY).for_each(|number| {
                        wait(proactor, word, number, told);
                    });
                    drop(leave);
                    handle(proactor);
                    // It can be cancelled whether or not it is in the kernel.
                    assert!(proactor.cancel(first[0]));
                    handle(proactor);
                });
                first
            });
            // All but the cancelled one are still there.
            until(|| {
                // No other thread handles events, and it may not be over yet.
                proactor.handle_events(Some(Duration::from_millis(5)));
                results.try_recv().is_ok_and(|(number, result)| {
                    let result = result.map_err(|error| error.is_cancelled());
                    assert_eq!((number, result), (0, Err(true)));
                    true
                })
            });
            assert!(!proactor.cancel(first[0]));
            if let Ok((number, result)) = results.try_recv() {
                panic!("{number} ended: {result:?}");
            }
            wake(&proactor, &word);
            let mut ended: Vec<_> = results.try_iter().collect();
            ended.sort_unstable_by_key(|(number, _)| *number);
            let expected: Vec<_> = (1..MANY).map(|number| (number, Ok(()))).collect();
            assert_eq!(ended, expected);
        }
    });
}

/// The next read of a stream is submitted when the one before it is over.
#[test]
fn what_stands_behind_another_waits_for_its_turn() {
    each(|proactor| {
        for errno in REFUSALS {
            let word = Arc::new(AtomicU32::new(0));
            let (told, _woken) = channel();
            let (stream, mut peer) = stream_and_peer(&proactor);
            let (done, results) = channel();
            let mut reads = Vec::new();
            for number in 0..3 {
                let done = done.clone();
                let read = stream.read(vec![0; 1], move |BufResult(result, buffer)| {
                    done.send((number, result, buffer)).unwrap();
                });
                reads.push(read.unwrap());
            }
            proactor.handle_events(Some(Duration::ZERO));
            refused(errno, || {
                (0..MANY).for_each(|number| {
                    wait(&proactor, &word, number, &told);
                });
                peer.write_all(b"a").unwrap();
                until(|| proactor.handle_events(Some(Duration::from_millis(5))) > 0);
                handle(&proactor);
                assert!(proactor.cancel(reads[1]));
                handle(&proactor);
            });
            assert_eq!(next(&results), (0, Ok(1), b"a".to_vec()));
            let (number, result, _) = next(&results);
            assert_eq!(
                (number, result.map_err(|error| error.is_cancelled())),
                (1, Err(true)),
                "not ended by anything but this"
            );
            peer.write_all(b"b").unwrap();
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(5)));
                results.try_recv().is_ok_and(|it| {
                    assert_eq!(it, (2, Ok(1), b"b".to_vec()));
                    true
                })
            });
            wake(&proactor, &word);
        }
    });
}

/// A thread that cannot submit wakes a leader that can.
#[test]
fn a_leader_that_waits_submits_what_others_may_not() {
    each(|proactor| {
        let _crew = Crew::new(&proactor, 1);
        let (idle, _peer) = stream_and_peer(&proactor);
        idle.read(vec![0; 1], |_| {}).unwrap();
        for errno in REFUSALS {
            refused(errno, || {
                for round in 0..20 {
                    // By now it mostly waits.
                    thread::sleep(Duration::from_millis(1));
                    // One, or more than the queue has entries.
                    let count = if round % 2 == 0 { 1 } else { MANY };
                    let (told, results) = channel();
                    let words: Vec<_> = (0..count).map(|_| Arc::new(AtomicU32::new(1))).collect();
                    for (number, word) in words.iter().enumerate() {
                        wait(&proactor, word, number, &told);
                    }
                    for _ in 0..count {
                        assert_eq!(next(&results).1, Ok(()));
                    }
                }
            });
        }
    });
}

/// The kernel refuses one more watch, which is requested when a part has been sent already.
#[test]
fn a_part_that_was_sent_is_reported() {
    let config = ProcessorConfig { provider: ProviderType::Select, ..ProcessorConfig::default() };
    let config = ProcessorConfig { wait: WaitType::Epoll, ..config };
    let proactor = Proactor::new(&Config::one(config)).unwrap();
    let (stream, peer) = stream_and_peer(&proactor);
    let (done, results) = channel();
    thread::scope(|scope| {
        let start = || {
            refuse(libc::SYS_epoll_ctl, Asked::Always, libc::ENOSPC);
            let tell = move |BufResult(result, _)| done.send(result).unwrap();
            stream.write_all(pattern(20_000_000), tell)
        };
        scope
            .spawn(start)
            .join()
            .unwrap()
            .expect("a caller that gets an error would send the part again");
    });
    proactor.handle_events(Some(Duration::ZERO));
    assert_eq!(results.try_recv().unwrap().unwrap_err().errno, libc::ENOSPC);
    assert!(peer.peek(&mut [0]).unwrap() == 1, "a part was sent");
    assert_eq!(proactor.outstanding(), 0);
}

/// A read that a handler starts is attempted in its turn: here it finds what the handler wrote after that. If
/// it were attempted at once, it would have to be submitted.
#[test]
fn what_a_handler_goes_on_to_read_is_not_submitted() {
    each(|proactor| {
        refused(libc::EBUSY, || {
            // After this many, handlers count as short.
            (0..1000).for_each(|_| proactor.post(|| {}).unwrap());
            until(|| proactor.handle_events(Some(Duration::ZERO)) == 0);
            let (stream, mut peer) = stream_and_peer(&proactor);
            let stream = Arc::new(stream);
            let (reader, (done, results)) = (Arc::clone(&stream), channel());
            let posted = proactor.post(move || {
                let told = move |BufResult(result, _)| done.send(result).unwrap();
                reader.read(vec![0; 8], told).unwrap();
                peer.write_all(b"answer").unwrap();
            });
            posted.unwrap();
            until(|| {
                proactor.handle_events(Some(Duration::from_millis(5)));
                results.try_recv().is_ok_and(|result| {
                    assert_eq!(result, Ok(6));
                    true
                })
            });
        });
    });
}
