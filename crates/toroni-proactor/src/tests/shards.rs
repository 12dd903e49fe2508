//! Several shards: what is promised for a proactor holds over all of them. No configuration makes more than one
//! yet, so these tests lend their threads to each shard.

use crate::dispatcher::{self, After};
use crate::operation::{Completion, Done};
use crate::shards::Shard;
use crate::tests::common::*;
use crate::{BufResult, Config, Proactor, ProcessorConfig, ProcessorType, ProviderType, Stream};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const SHARDS: Shard = 3;

/// Runs a test on each engine for sockets, shared and dedicated.
fn each(test: impl Fn(&Proactor)) {
    for provider in [ProviderType::Select, ProviderType::Combined, ProviderType::Uring] {
        for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
            let config = ProcessorConfig { provider, processor_type, ..ProcessorConfig::default() };
            test(&Proactor::with_shards(&Config::one(config), SHARDS).unwrap());
        }
    }
}

struct Call<F>(F);

impl<F: FnOnce() + Send + 'static> Completion for Call<F> {
    fn complete(self: Box<Self>, _: Done) {
        (self.0)();
    }
}

fn handle_in(proactor: &Proactor, shard: Shard) -> usize {
    let timeout = Some(Duration::from_millis(1));
    dispatcher::handle_events(&proactor.inner().shards, shard, timeout, None)
}

/// Calls this in a handler of a shard, and returns its result.
fn in_a_handler_of<T: Send + 'static>(
    proactor: &Proactor,
    shard: Shard,
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, result) = channel();
    let call = Call(move || done.send(call()).unwrap());
    proactor.inner().shards.lock(shard).post(Box::new(call), After::Posted);
    assert!(handle_in(proactor, shard) > 0);
    next(&result)
}

/// Returns a connection whose home is this shard.
fn stream_of(proactor: &Proactor, shard: Shard) -> (Stream, TcpStream) {
    let weak = proactor.downgrade();
    in_a_handler_of(proactor, shard, move || stream_and_peer(&weak.upgrade().unwrap()))
}

fn outstanding_in(proactor: &Proactor) -> [usize; SHARDS as usize] {
    std::array::from_fn(|shard| {
        let shard = Shard::try_from(shard).unwrap();
        proactor.inner().shards.lock(shard).outstanding()
    })
}

#[test]
fn an_operation_belongs_to_the_home_of_its_descriptor() {
    each(|proactor| {
        let mut pairs: Vec<_> = (0..SHARDS).map(|shard| stream_of(proactor, shard)).collect();
        let (done, results) = channel();
        // Two for the last shard; the first is started by a handler of another shard.
        let (tell, stream) = (done.clone(), pairs[2].0.clone());
        in_a_handler_of(proactor, 1, move || {
            stream.read(vec![0; 1], move |BufResult(result, _)| tell.send(result).unwrap()).unwrap()
        });
        let reads = pairs.iter().map(|(stream, _)| {
            let tell = done.clone();
            stream.read(vec![0; 1], move |BufResult(result, _)| tell.send(result).unwrap()).unwrap()
        });
        let reads: Vec<_> = reads.collect();
        assert_eq!(outstanding_in(proactor), [1, 1, 2]);
        assert_eq!(proactor.outstanding(), 4);
        // Their keys may be equal: the shard tells them apart.
        assert!(proactor.cancel(reads[1]) && !proactor.cancel(reads[1]));
        until(|| handle_in(proactor, 1) > 0);
        assert!(next(&results).unwrap_err().is_cancelled());
        assert_eq!(outstanding_in(proactor), [1, 0, 2]);
        for (_, peer) in &mut pairs {
            peer.write_all(b"xy").unwrap();
        }
        until(|| {
            (0..SHARDS).for_each(|shard| _ = handle_in(proactor, shard));
            proactor.outstanding() == 0
        });
        assert_eq!([next(&results), next(&results), next(&results)], [Ok(1), Ok(1), Ok(1)]);
        // A descriptor's operations are found in its shard, too.
        let (stream, _) = &pairs[2];
        stream.read(vec![0; 1], |_| {}).unwrap();
        assert_eq!(stream.cancel(), 1);
    });
}

#[test]
fn a_graceful_stop_waits_for_all_shards() {
    each(|proactor| {
        let (stream, _peer) = stream_of(proactor, 2);
        let (done, results) = channel();
        stream.read(vec![0; 1], move |BufResult(result, _)| done.send(result).unwrap()).unwrap();
        let is_refused = proactor.clone();
        proactor.finish();
        handle_in(proactor, 0);
        assert!(!proactor.is_stopped(), "a handler of the last shard has not been called");
        assert!(is_refused.post(|| {}).is_err());
        until(|| {
            handle_in(proactor, 2);
            proactor.is_stopped()
        });
        assert!(next(&results).unwrap_err().is_cancelled());
        // And everything goes on afterwards.
        proactor.restart();
        assert!((0..SHARDS).all(|shard| in_a_handler_of(proactor, shard, || true)));
    });
}

#[test]
fn a_dropped_proactor_lets_go_of_all_shards() {
    each(|proactor| {
        let alive = Arc::new(());
        let streams: Vec<_> = (0..SHARDS).map(|shard| stream_of(proactor, shard)).collect();
        let other = Proactor::with_shards(&same_as(proactor), SHARDS).unwrap();
        let others: Vec<_> = (0..SHARDS).map(|shard| stream_of(&other, shard)).collect();
        for (stream, _) in streams.iter().chain(&others) {
            let kept = Arc::clone(&alive);
            stream.read(vec![0; 1], move |_| drop(kept)).unwrap();
        }
        drop(other);
        assert_eq!(Arc::strong_count(&alive), 1 + usize::from(SHARDS), "those of the other one");
        let (stream, _) = &others[1];
        assert!(stream.read(vec![0; 1], |_| {}).is_err());
    });
}
