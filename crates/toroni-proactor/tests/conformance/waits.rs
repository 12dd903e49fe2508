//! Operations that only wait: for descriptors of other libraries, and at words in memory.

use super::Kind;
use super::common::*;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use toroni_proactor::{
    BufResult, OperationError, OperationId, OperationKind, Proactor, ProviderType, StartError,
    Watch,
};

pub(crate) fn descriptors_of_others_become_readable(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (original, peer) = UnixDatagram::pair().unwrap();
        original.set_nonblocking(true).unwrap();
        for round in 0..3 {
            // Under another number each time.
            let _other = peer.try_clone().unwrap();
            let watch = Watch::new(proactor, original.try_clone().unwrap()).unwrap();
            let (first, results) = channel();
            let second = first.clone();
            watch.readable(move |result| first.send(result).unwrap()).unwrap();
            watch.readable(move |result| second.send(result).unwrap()).unwrap();
            thread::sleep(Duration::from_millis(5));
            assert!(results.try_recv().is_err(), "readable without a datagram, round {round}");
            peer.send(b"x").unwrap();
            assert_eq!((next(&results), next(&results)), (Ok(()), Ok(())), "all who wait");
            // Nothing was taken, so it is still readable.
            let (again, results) = channel();
            watch.readable(move |result| again.send(result).unwrap()).unwrap();
            assert_eq!(next(&results), Ok(()));
            assert_eq!(original.recv(&mut [0]).unwrap(), 1);
            let (last, results) = channel();
            let waiting = watch.readable(move |result| last.send(result).unwrap()).unwrap();
            if round == 0 {
                assert!(proactor.cancel(waiting));
            } else {
                drop(watch);
            }
            assert!(next::<Result<(), OperationError>>(&results).unwrap_err().is_cancelled());
        }
        assert!(original.recv(&mut [0]).is_err(), "it is as non-blocking as it was");
    });
}

/// Starts a wait at a word. The channel receives the result and the word.
fn wait_at(
    proactor: &Proactor,
    word: &Arc<AtomicU32>,
    value: u32,
) -> (OperationId, Receiver<BufResult<(), Arc<AtomicU32>>>) {
    let (done, results): (mpsc::Sender<_>, _) = channel();
    let handler = move |result| done.send(result).unwrap();
    (proactor.wait_while(Arc::clone(word), value, handler).unwrap(), results)
}

fn wake(word: &AtomicU32) {
    rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), u32::MAX >> 1)
        .unwrap();
}

pub(crate) fn words_are_waited_for(kind: Kind) {
    kind.each(|proactor| {
        let word = Arc::new(AtomicU32::new(7));
        if !proactor.supports(OperationKind::WaitWord) {
            assert!(kind.provider != ProviderType::Uring || is_older_than_6_7());
            let refused =
                proactor.wait_while(Arc::clone(&word), 7, |_| panic!("never")).unwrap_err();
            assert!(matches!(refused.error, StartError::Unsupported { .. }));
            assert!(refused.error.to_string().contains("WAIT_WORD"), "{}", refused.error);
            assert!(Arc::ptr_eq(&word, &refused.buffer));
            return;
        }
        let _crew = Crew::new(proactor, 2);
        // Another value: over at once.
        let (_, results) = wait_at(proactor, &word, 8);
        let BufResult(result, back) = next(&results);
        assert_eq!(result, Ok(()));
        assert!(Arc::ptr_eq(&word, &back));
        // Woken, even if the thread that started it has ended.
        let waits = [wait_at(proactor, &word, 7), {
            thread::scope(|scope| scope.spawn(|| wait_at(proactor, &word, 7)).join().unwrap())
        }];
        thread::sleep(Duration::from_millis(5));
        assert!(waits.iter().all(|(_, results)| results.try_recv().is_err()), "before its time");
        word.store(8, Ordering::Release);
        wake(&word);
        for (_, results) in &waits {
            assert_eq!(next(results).0, Ok(()));
        }
        // Cancelled: the word comes back, and nothing else holds it any more.
        let (waiting, results) = wait_at(proactor, &word, 8);
        assert!(proactor.cancel(waiting));
        assert!(next(&results).0.unwrap_err().is_cancelled());
        assert!(!proactor.cancel(waiting));
        until(|| Arc::strong_count(&word) == 2);
        drop(back);
        assert_eq!(Arc::strong_count(&word), 1);
    });
}

/// The memory of a word is freed when the kernel no longer reads it, and not before.
pub(crate) fn a_dropped_proactor_lets_go_of_words(kind: Kind) {
    kind.each(|other| {
        if !other.supports(OperationKind::WaitWord) {
            return;
        }
        let config = same_as(other);
        for led in [false, true] {
            let proactor = Proactor::new(&config).unwrap();
            let word = Arc::new(AtomicU32::new(7));
            let (_, _results) = wait_at(&proactor, &word, 7);
            if led {
                proactor.handle_events(Some(Duration::from_millis(5)));
            }
            assert_eq!(Arc::strong_count(&word), 2);
            drop(proactor);
            assert_eq!(Arc::strong_count(&word), 1);
            assert_eq!(
                rustix::thread::futex::wake(
                    &word,
                    rustix::thread::futex::Flags::empty(),
                    u32::MAX >> 1
                ),
                Ok(0),
                "no wait is left there"
            );
        }
    });
}

fn is_older_than_6_7() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(6), Some(7))
}
