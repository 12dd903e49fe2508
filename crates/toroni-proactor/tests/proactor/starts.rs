//! Starts that fail: immediate ones return everything to the caller, deferred ones report the error to the
//! handler.

use crate::common::*;
use rustix::event::{EventfdFlags, eventfd};
use std::io::Write;
use std::sync::mpsc::channel;
use toroni_proactor::{
    BufResult, Config, OperationError, OperationKind, Proactor, ProcessorConfig, ProviderType,
    StartError, Stream, WaitType,
};

/// Uses an engine that cannot wait for an eventfd, because the kernel sends no signals for those. The engine
/// checks that when an operation is started.
fn proactor(start_in_any_thread: bool, max_operations: Option<usize>) -> Proactor {
    let config = ProcessorConfig {
        provider: ProviderType::Select,
        wait: WaitType::LinuxRt,
        start_in_any_thread: Some(start_in_any_thread),
        max_operations,
        ..ProcessorConfig::default()
    };
    Proactor::new(&Config::one(config)).unwrap()
}

fn impossible(proactor: &Proactor) -> Stream {
    Stream::new(proactor, eventfd(0, EventfdFlags::empty()).unwrap()).unwrap()
}

fn assert_is_the_refusal(error: OperationError) {
    assert_eq!((error.operation, error.errno), (OperationKind::ReadStream, libc::EOPNOTSUPP));
}

/// The first read of a stream works, so the engine is ready.
fn works(proactor: &Proactor) {
    let (stream, mut peer) = stream_and_peer(proactor);
    let (done, results) = channel();
    stream.read(vec![0; 8], move |result| done.send(result.0).unwrap()).unwrap();
    peer.write_all(b"abc").unwrap();
    assert_eq!(next(&results), Ok(3));
}

#[test]
fn a_start_that_fails_at_once_gives_everything_back() {
    let proactor = proactor(true, None);
    let _crew = Crew::new(&proactor, 1);
    works(&proactor);
    let buffer = vec![7; 8];
    let address = buffer.as_ptr();
    let called = |_: BufResult<usize, Vec<u8>>| panic!("a handler of what was not started");
    let refused = impossible(&proactor).read(buffer, called).unwrap_err();
    assert_eq!((refused.buffer.as_ptr(), &refused.buffer[..]), (address, &[7; 8][..]));
    let StartError::Refused(error) = refused.error else { panic!("{}", refused.error) };
    assert_is_the_refusal(error);
    until(|| proactor.outstanding() == 0);
    works(&proactor);
}

/// `START_ERROR` of a deferred start goes to the completed queue: the handler receives the error, and the next
/// deferred operation is started.
#[test]
fn a_deferred_start_that_fails_is_reported() {
    let by_the_leader = proactor(false, None);
    let beyond_the_limit = proactor(true, Some(1));
    for proactor in [by_the_leader, beyond_the_limit] {
        let _crew = Crew::new(&proactor, 1);
        works(&proactor);
        // Reaches the limit, if there is one.
        let (first, mut first_peer) = stream_and_peer(&proactor);
        let (done, results) = channel();
        let told = done.clone();
        first.read(vec![1; 8], move |result| told.send((1, result)).unwrap()).unwrap();
        let cannot = impossible(&proactor);
        for number in [2, 3] {
            let told = done.clone();
            cannot
                .read(vec![number; 8], move |result| told.send((number, result)).unwrap())
                .unwrap();
        }
        let (last, mut last_peer) = stream_and_peer(&proactor);
        last.read(vec![4; 8], move |result| done.send((4, result)).unwrap()).unwrap();
        first_peer.write_all(b"one").unwrap();
        last_peer.write_all(b"four").unwrap();
        let mut told = Vec::new();
        for _ in 0..4 {
            let (number, BufResult(result, buffer)) = next(&results);
            told.push(number);
            match number {
                1 => assert_eq!(result, Ok(3)),
                4 => assert_eq!(result, Ok(4)),
                _ => {
                    assert_is_the_refusal(result.unwrap_err());
                    assert_eq!(buffer, [number; 8], "the buffer comes back as it was");
                }
            }
        }
        told.sort_unstable();
        assert_eq!(told, [1, 2, 3, 4]);
        until(|| proactor.outstanding() == 0);
    }
}
