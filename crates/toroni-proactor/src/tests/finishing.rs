//! A graceful stop while a thread starts an operation: if the transfer is done, the handler is called before
//! the threads leave; otherwise the start is refused.

use crate::hook::mutant;
use crate::tests::common::*;
use crate::{BufResult, Config, Proactor, ProcessorConfig, ProviderType, StartError, Stream};
use std::cell::Cell;
use std::io::Read;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

type Action = Box<dyn FnOnce()>;

thread_local! { static NEXT: Cell<Option<Action>> = const { Cell::new(None) } }

/// Runs what this thread has set up, between the attempt of its start and the lock.
pub(super) fn run_next() {
    if let Some(next) = NEXT.take() {
        next();
    }
}

/// Asks the proactor to finish when this thread's next start has been attempted, and gives threads time to
/// leave too early.
fn finish_amid_the_next_start(proactor: &Proactor) {
    let proactor = proactor.clone();
    NEXT.set(Some(Box::new(move || {
        proactor.finish();
        // With the mutant they leave too early, within the time that a busy machine takes; otherwise never.
        let is_expected = mutant("finish_forgets_starts");
        let time_limit = Duration::from_millis(if is_expected { 5000 } else { 50 });
        let begun = Instant::now();
        while !proactor.is_stopped() && begun.elapsed() < time_limit {
            thread::sleep(Duration::from_millis(1));
        }
    })));
}

/// Runs a test on each engine that attempts before it starts, with threads that run the proactor.
fn each(test: impl Fn(&Proactor, Crew)) {
    for provider in [ProviderType::Select, ProviderType::Combined, ProviderType::Uring] {
        let config = ProcessorConfig { provider, ..ProcessorConfig::default() };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        let crew = Crew::new(&proactor, 2);
        test(&proactor, crew);
        assert!(proactor.is_stopped(), "{provider:?}");
    }
}

/// Waits until the threads have left. By then the handler has been called.
#[track_caller]
fn reported<T>(proactor: &Proactor, crew: Crew, results: &Receiver<T>) -> T {
    crew.join();
    assert_eq!(proactor.outstanding(), 0);
    results.try_recv().expect("reported before the last thread left")
}

#[test]
fn what_was_transferred_is_reported() {
    each(|proactor, crew| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        finish_amid_the_next_start(proactor);
        stream.write("x", move |BufResult(result, _)| done.send(result).unwrap()).unwrap();
        assert_eq!(reported(proactor, crew, &results), Ok(1));
        peer.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_part_that_was_transferred_is_reported() {
    each(|proactor, crew| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, results) = channel();
        finish_amid_the_next_start(proactor);
        let much = vec![0; 64 << 20];
        stream.write_all(much, move |BufResult(result, _)| done.send(result).unwrap()).unwrap();
        assert!(reported(proactor, crew, &results).unwrap_err().is_cancelled());
        peer.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn what_was_not_is_refused() {
    each(|proactor, crew| {
        let (stream, _peer) = stream_and_peer(proactor);
        finish_amid_the_next_start(proactor);
        let refused = stream.read(vec![7; 3], |_| panic!("never started")).unwrap_err();
        assert!(matches!(refused.error, StartError::Stopping { .. }), "{refused}");
        assert_eq!(refused.buffer, [7; 3]);
        crew.join();
        assert_eq!(proactor.outstanding(), 0);
    });
}

/// A handler is outstanding itself, so nothing finishes between its starts.
#[test]
fn what_a_handler_transferred_is_reported() {
    each(|proactor, crew| {
        let (stream, mut peer) = stream_and_peer(proactor);
        let (again, (done, results)) = (proactor.clone(), channel());
        let posted = proactor.post(move || {
            finish_amid_the_next_start(&again);
            stream.write("x", move |BufResult(result, _)| done.send(result).unwrap()).unwrap();
        });
        posted.unwrap();
        assert_eq!(reported(proactor, crew, &results), Ok(1));
        peer.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_proactor_that_finished_while_one_started_can_be_used_again() {
    each(|proactor, crew| {
        let (stream, _peer) = stream_and_peer(proactor);
        finish_amid_the_next_start(proactor);
        let (done, results) = channel();
        write(&stream, done.clone());
        reported(proactor, crew, &results).unwrap();
        proactor.restart();
        let crew = Crew::new(proactor, 1);
        write(&stream, done);
        next(&results).unwrap();
        proactor.finish();
        crew.join();
    });

    type Told = std::sync::mpsc::Sender<Result<usize, crate::OperationError>>;
    fn write(stream: &Stream, done: Told) {
        stream.write("x", move |BufResult(result, _)| done.send(result).unwrap()).unwrap();
    }
}
