//! Several shards: what is promised for a proactor holds over all of them.

use crate::dispatcher::After;
use crate::io::Handle;
use crate::operation::{Completion, Done, OperationKind, Request};
use crate::shards::Shard;
use crate::tests::common::*;
use crate::{
    BufResult, Config, Listener, OperationError, Proactor, ProcessorConfig, ProcessorType,
    ProviderType, Stream, WaitType, Watch, WeakProactor,
};
use std::cell::RefCell;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use toroni_testkit::long::repetitions;

const SHARDS: Shard = 3;

thread_local! {
    /// What this thread does after its next look at the other shards.
    static NEXT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Called when this thread has looked at the other shards.
pub(super) fn run_next() {
    if let Some(next) = NEXT.with_borrow_mut(Option::take) {
        next();
    }
}

/// Runs a test on each engine for sockets, shared and dedicated.
fn each(test: impl Fn(&Proactor)) {
    for provider in [ProviderType::Select, ProviderType::Combined, ProviderType::Uring] {
        for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
            let config = ProcessorConfig { provider, processor_type, ..ProcessorConfig::default() };
            test(&Proactor::new(&Config::one(config).with_shards(SHARDS.into())).unwrap());
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
    proactor.inner().shards.help(shard, None)
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
    proactor.inner().shards.settle(shard);
    let (peer, socket) = two_sockets();
    let handle = Handle::at_home_in(shard, proactor.inner(), socket.into()).unwrap();
    (Stream(handle), peer)
}

fn home(stream: &Stream) -> Shard {
    stream.0.request(OperationKind::ReadStream).on().home()
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
        let other = Proactor::new(&same_as(proactor)).unwrap();
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

/// Whether there are fewer is said, with the reason.
#[test]
fn the_effective_number_of_shards_is_reported() {
    let epoll = || ProcessorConfig {
        provider: ProviderType::Select,
        wait: WaitType::Epoll,
        ..ProcessorConfig::default()
    };
    let proactor = Proactor::new(&Config::one(epoll()).with_shards(3)).unwrap();
    let effective = &proactor.effective()[0];
    assert_eq!((effective.shards, effective.notes.len()), (3, 0));
    assert!(effective.to_string().ends_with("shared, 3 shards"), "{effective}");
    let posix = ProcessorConfig { provider: ProviderType::Posix, ..ProcessorConfig::default() };
    let real_time = ProcessorConfig { wait: WaitType::LinuxRt, ..epoll() };
    for (config, why) in [
        (Config::two(posix, epoll()), "one shard: the C library"),
        (Config::one(real_time), "one shard: all real-time signals"),
    ] {
        let proactor = Proactor::new(&config.with_shards(3)).unwrap();
        let effective = &proactor.effective()[0];
        assert_eq!(effective.shards, 1);
        assert!(effective.notes.iter().any(|note| note.starts_with(why)), "{effective}");
    }
}

#[test]
fn each_announced_thread_gets_a_shard_if_the_engine_is_free() {
    let shards_of = |config: Config| {
        let proactor = Proactor::new(&config).unwrap();
        let effective = &proactor.effective()[0];
        let why = effective.notes.iter().find(|note| note.contains("shard")).cloned();
        (effective.shards, why)
    };
    let auto = Config::default;
    let some = |why: &str| Some(why.to_owned());
    let each = some("a shard for each thread of the program");
    assert_eq!(shards_of(auto()), (1, None));
    assert_eq!(shards_of(auto().with_threads(1)), (1, None));
    assert_eq!(shards_of(auto().with_threads(3)), (3, each));
    let enough = some("64 shards are enough for 65 threads");
    assert_eq!(shards_of(auto().with_threads(65)), (64, enough));
    assert_eq!(shards_of(auto().with_threads(3).with_shards(2)), (2, None));
    assert_eq!(shards_of(auto().with_threads(3).with_shards(1)), (1, None));
    let chosen = [
        ProcessorConfig { provider: ProviderType::Select, ..ProcessorConfig::default() },
        ProcessorConfig { processor_type: ProcessorType::Dedicated, ..ProcessorConfig::default() },
    ];
    for one in chosen {
        assert_eq!(shards_of(Config::one(one).with_threads(3)), (1, None));
    }
}

/// Before the first thread comes, the program knows how many there will be.
#[test]
fn descriptors_are_dealt_out_among_announced_threads() {
    let proactor = Proactor::new(&Config::default().with_threads(SHARDS.into())).unwrap();
    let streams: Vec<_> = (0..30 + SHARDS).map(|_| stream_and_peer(&proactor)).collect();
    let homes: Vec<Shard> = streams.iter().map(|(stream, _)| home(stream)).collect();
    let (first, others) = homes.split_at(SHARDS.into());
    assert!(first.iter().all(|home| *home == first[0]), "the first ones are together: {first:?}");
    for shard in 0..SHARDS {
        let count = others.iter().filter(|home| **home == shard).count();
        assert_eq!(count, 10, "{homes:?}");
    }
}

/// Threads that serve no shard deal their descriptors out to the shards in which threads are.
#[test]
fn descriptors_are_dealt_out_among_the_threads() {
    each(|proactor| {
        let (before, _peer) = stream_and_peer(proactor);
        assert_eq!(home(&before), 0, "no thread is anywhere");
        let _crew = Crew::new(proactor, 2);
        // As many descriptors as threads: see below.
        let (_enough, _peer) = stream_and_peer(proactor);
        let mut homes = [0; SHARDS as usize];
        until(|| {
            let (stream, _) = stream_and_peer(proactor);
            homes[usize::from(home(&stream))] += 1;
            homes[0] > 1 && homes[1] > 1
        });
        assert_eq!(homes[2], 0, "no thread is there, {homes:?}");
        // What a handler creates belongs to its thread; what goes with another stream belongs there.
        let (done, places) = channel();
        for _ in 0..100 {
            let (weak, done) = (proactor.downgrade(), done.clone());
            let accept = move || {
                let (stream, peer) = stream_and_peer(&weak.upgrade().unwrap());
                done.send((stream, peer)).unwrap();
            };
            proactor.post(accept).unwrap();
            let (stream, peer) = next(&places);
            let beside = stream.beside(peer).unwrap();
            assert!(home(&stream) < 2);
            assert_eq!(home(&beside), home(&stream));
        }
    });
}

/// Two ends that answer each other would wake each other's threads for each message.
#[test]
fn the_first_descriptors_are_in_one_shard() {
    each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        until(|| proactor.inner().shards.present_in()[..2] == [1, 1]);
        // A descriptor of another library does not count.
        let (watched, _) = std::io::pipe().unwrap();
        let _watch = Watch::new(proactor, watched).unwrap();
        for _ in 0..5 {
            let (taken, first) = channel();
            let (end, ends) = channel::<()>();
            std::thread::scope(|scope| {
                // A thread of the third shard takes over the first.
                let thread = scope.spawn(move || {
                    proactor.handle_events(Some(Duration::ZERO));
                    taken.send(stream_and_peer(proactor)).unwrap();
                    let _ = ends.recv();
                });
                let mut streams = vec![next(&first)];
                // This one serves no shard.
                streams.extend((0..4).map(|_| stream_and_peer(proactor)));
                let homes: Vec<Shard> = streams.iter().map(|(stream, _)| home(stream)).collect();
                assert_eq!(homes[..3], [2; 3], "as many as threads: {homes:?}");
                assert!(homes[3..].iter().all(|home| *home < 2), "dealt out: {homes:?}");
                drop(end);
                thread.join().unwrap();
            });
        }
    });
}

/// A client connects whenever the last one has been accepted, and one thread accepts all.
#[test]
fn accepted_sockets_are_dealt_out() {
    each(|proactor| {
        std::thread::scope(|scope| {
            // A thread for each shard, of which this one handles events.
            proactor.handle_events(Some(Duration::ZERO));
            let others: Vec<_> = (1..SHARDS)
                .map(|_| {
                    let (tell, is_here) = channel();
                    let (end, ends) = channel::<()>();
                    scope.spawn(move || {
                        proactor.handle_events(Some(Duration::ZERO));
                        tell.send(()).unwrap();
                        let _ = ends.recv();
                    });
                    next(&is_here);
                    end
                })
                .collect();
            let listener = Listener::bind(proactor, "127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_address().unwrap();
            let mut connections = Vec::new();
            for _ in 0..20 * SHARDS {
                let (done, accepted) = channel();
                listener.accept(move |accepted| done.send(accepted.unwrap().0).unwrap()).unwrap();
                let client = TcpStream::connect(address).unwrap();
                connections.push((client, handled(proactor, &accepted)));
            }
            let in_shard =
                |shard| connections.iter().filter(|(_, stream)| home(stream) == shard).count();
            let counts: Vec<usize> = (0..SHARDS).map(in_shard).collect();
            assert!(counts.iter().all(|count| (17..=23).contains(count)), "{counts:?}");
            // All are served.
            for (client, stream) in &mut connections {
                let (done, result) = channel();
                stream
                    .read(vec![0; 1], move |BufResult(read, _)| done.send(read).unwrap())
                    .unwrap();
                client.write_all(b"x").unwrap();
                assert_eq!(handled(proactor, &result), Ok(1));
                let (done, connected) = channel();
                stream.connect_beside(address, move |beside| done.send(beside).unwrap()).unwrap();
                let beside = handled(proactor, &connected).unwrap();
                assert_eq!(home(&beside), home(stream));
            }
            drop(others);
        });
    });
}

/// Returns what a handler sends. This thread calls the handler.
fn handled<T>(proactor: &Proactor, results: &Receiver<T>) -> T {
    let mut result = None;
    until(|| {
        proactor.handle_events(Some(Duration::from_millis(1)));
        result = result.take().or_else(|| results.try_recv().ok());
        result.is_some()
    });
    result.unwrap()
}

/// A proactor may have the address of one that was dropped.
#[test]
fn a_thread_counts_in_each_proactor_that_it_serves() {
    for _ in 0..100 {
        let proactor = Proactor::new(&Config::default().with_shards(2)).unwrap();
        proactor.handle_events(Some(Duration::ZERO));
        assert_eq!(proactor.inner().shards.settled_threads(), 1);
    }
}

/// A thread that handles events for a moment has its shard from then on, and what it creates belongs there.
#[test]
fn threads_that_come_one_after_another_get_different_shards() {
    each(|proactor| {
        for _ in 0..3 {
            std::thread::scope(|scope| {
                let threads = (0..SHARDS).map(|shard| {
                    let (tell, homes) = channel();
                    let (end, ends) = channel::<()>();
                    let thread = scope.spawn(move || {
                        proactor.handle_events(Some(Duration::ZERO));
                        let streams: Vec<_> =
                            (0..=SHARDS).map(|_| stream_and_peer(proactor)).collect();
                        let last = streams.last().map(|(stream, _)| home(stream));
                        tell.send(last.unwrap()).unwrap();
                        let _ = ends.recv();
                    });
                    assert_eq!(next(&homes), shard);
                    (end, thread)
                });
                // They are counted until they have ended, which a scope does not wait for.
                for (end, thread) in threads.collect::<Vec<_>>() {
                    drop(end);
                    thread.join().unwrap();
                }
            });
        }
    });
}

/// All threads but one are in handlers that do not return; everything else has to go on, in every shard. Starts,
/// posts and timers come from a thread that serves no shard, and from the blocked handlers.
#[test]
fn one_thread_serves_all_shards_if_the_others_block() {
    each(|proactor| {
        let mut pairs: Vec<_> = (0..SHARDS).map(|shard| stream_of(proactor, shard)).collect();
        let _crew = Crew::new(proactor, SHARDS.into());
        for round in 0..repetitions(20, 200) {
            let (begun, begins) = channel();
            let mut blocked = Vec::new();
            for shard in 1..SHARDS {
                let (ends, end) = channel::<()>();
                let begun = begun.clone();
                let block = Call(move || {
                    begun.send(()).unwrap();
                    let _ = end.recv();
                });
                proactor.inner().shards.lock(shard).post(Box::new(block), After::Posted);
                next(&begins);
                blocked.push(ends);
            }
            let (done, results) = channel();
            for (shard, (stream, peer)) in pairs.iter_mut().enumerate() {
                let tell = done.clone();
                stream
                    .read(vec![0; 1], move |BufResult(result, _)| tell.send(result).unwrap())
                    .unwrap();
                if round % 2 == 0 {
                    // Until it waits.
                    std::thread::sleep(Duration::from_millis(u64::from(round) % 3));
                }
                peer.write_all(b"x").unwrap();
                assert_eq!(next(&results), Ok(1), "shard {shard}, {:?}", proactor.effective());
                let tell = done.clone();
                let posted = Call(move || tell.send(Ok(2)).unwrap());
                let shard = Shard::try_from(shard).unwrap();
                proactor.inner().shards.lock(shard).post(Box::new(posted), After::Posted);
                assert_eq!(next(&results), Ok(2));
                let tell = done.clone();
                let timer = move |result: Result<(), OperationError>| {
                    tell.send(result.map(|()| 3)).unwrap();
                };
                proactor.inner().shards.settle(shard);
                proactor.timer(Duration::from_millis(1), timer).unwrap();
                assert_eq!(next(&results), Ok(3));
            }
        }
    });
}

/// A program may have fewer threads than shards.
#[test]
fn one_thread_is_enough_for_all_shards() {
    each(|proactor| {
        let mut pairs: Vec<_> = (0..SHARDS).map(|shard| stream_of(proactor, shard)).collect();
        let _crew = Crew::new(proactor, 1);
        let (done, results) = channel();
        for _ in 0..repetitions(100, 1000) {
            for (stream, _) in &pairs {
                let tell = done.clone();
                stream
                    .read(vec![0; 1], move |BufResult(result, _)| tell.send(result).unwrap())
                    .unwrap();
            }
            for (_, peer) in &mut pairs {
                peer.write_all(b"x").unwrap();
            }
            (0..SHARDS).for_each(|_| assert_eq!(next(&results), Ok(1)));
        }
    });
}

/// The limit is one for all shards: what one does not use is there for another.
#[test]
fn shards_share_the_limit() {
    for provider in [ProviderType::Select, ProviderType::Combined, ProviderType::Uring] {
        let max_operations = Some(2);
        let config = ProcessorConfig { provider, max_operations, ..ProcessorConfig::default() };
        let proactor = &Proactor::new(&Config::one(config).with_shards(SHARDS.into())).unwrap();
        let mut pairs: Vec<_> =
            [0, 1, 1, 2].map(|shard| stream_of(proactor, shard)).into_iter().collect();
        let _crew = Crew::new(proactor, SHARDS.into());
        let (done, results) = channel();
        let read = |which: usize| {
            let tell = done.clone();
            let handler = move |BufResult(result, _)| tell.send((which, result)).unwrap();
            pairs[which].0.read(vec![0; 1], handler).unwrap()
        };
        // Two of one shard are in progress; those of the others are deferred.
        let _occupying = [read(1), read(2)];
        let _deferred = [read(0), read(3)];
        let in_progress = || -> usize {
            let all = proactor.inner().shards.numbers();
            all.map(|shard| proactor.inner().shards.lock(shard).processors[0].in_progress()).sum()
        };
        for (which, (_, peer)) in pairs.iter_mut().enumerate() {
            if [0, 3].contains(&which) {
                peer.write_all(b"x").unwrap();
            }
        }
        assert!(in_progress() <= 2);
        assert!(results.try_recv().is_err(), "nothing has a slot");
        pairs[1].1.write_all(b"x").unwrap();
        let mut over: Vec<_> = (0..3).map(|_| next(&results)).collect();
        over.sort_unstable_by_key(|(which, _)| *which);
        assert_eq!(over, [(0, Ok(1)), (1, Ok(1)), (3, Ok(1))]);
        assert!(in_progress() <= 2);
    }
}

/// Work comes to another shard when the only thread has looked there, and does not wait yet.
#[test]
fn a_call_between_a_look_and_the_wait_is_heard() {
    each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        for _ in 0..20 {
            let (done, results) = channel();
            let weak = proactor.downgrade();
            let late = move || {
                let posted = Call(move || done.send(()).unwrap());
                let proactor = weak.upgrade().unwrap();
                proactor.inner().shards.lock(1).post(Box::new(posted), After::Posted);
            };
            proactor.post(move || NEXT.set(Some(Box::new(late)))).unwrap();
            next(&results);
        }
    });
}

/// One thread is in a handler, so another one ticks for its shard. That one gets a handler that blocks, too, and
/// nothing but the kernel tells of what comes then.
#[test]
fn who_ticks_and_gets_work_leaves_the_ticks_to_another() {
    each(|proactor| {
        let (stream, mut peer) = stream_of(proactor, 0);
        let _crew = Crew::new(proactor, SHARDS.into());
        until(|| proactor.inner().shards.present_in() == [1; SHARDS as usize]);
        for round in 0..repetitions(20, 200) {
            let (done, results) = channel();
            stream
                .read(vec![0; 1], move |BufResult(result, _)| done.send(result).unwrap())
                .unwrap();
            let (begun, begins) = channel();
            let block = |shard: Shard| {
                let (ends, end) = channel::<()>();
                let begun = begun.clone();
                let block = Call(move || {
                    begun.send(()).unwrap();
                    let _ = end.recv();
                });
                proactor.inner().shards.lock(shard).post(Box::new(block), After::Posted);
                next(&begins);
                ends
            };
            let _first = block(0);
            // Until another thread ticks.
            std::thread::sleep(Duration::from_millis(1));
            let _second = block(if round % 2 == 0 { 1 } else { 2 });
            std::thread::sleep(Duration::from_millis(1));
            peer.write_all(b"x").unwrap();
            assert_eq!(next(&results), Ok(1), "{:?}", proactor.effective());
        }
    });
}

/// How a thread always has something to do in its own shard.
#[derive(Clone, Copy, Debug)]
enum Busy {
    /// Each handler posts the next, so the thread never waits.
    Posts,
    /// It waits, but never as long as a tick.
    Timers,
}

/// Keeps the threads that serve a shard busy until this is dropped.
struct Occupied(Arc<AtomicBool>);

impl Occupied {
    fn new(proactor: &Proactor, shard: Shard, how: Busy) -> Self {
        fn again(proactor: WeakProactor, shard: Shard, how: Busy, is_over: Arc<AtomicBool>) {
            let Some(strong) = proactor.upgrade() else { return };
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let next = move || again(proactor, shard, how, is_over);
            let mut core = strong.inner().shards.lock(shard);
            match how {
                Busy::Posts => core.post(Box::new(Call(next)), After::Posted),
                Busy::Timers => {
                    let key = core.pool.create(Request::timer(), Some(Box::new(Call(next))));
                    core.start_timer(key, Instant::now() + Duration::from_micros(100));
                }
            }
        }

        let is_over = Arc::new(AtomicBool::new(false));
        again(proactor.downgrade(), shard, how, Arc::clone(&is_over));
        Self(is_over)
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls many short handlers, so that the shard knows that its handlers do not sleep.
fn make_known(proactor: &Proactor, shard: Shard) {
    for _ in 0..1000 {
        let mut core = proactor.inner().shards.lock(shard);
        core.post(Box::new(Call(|| {})), After::Posted);
        drop(core);
        handle_in(proactor, shard);
    }
    assert!(!proactor.inner().shards.lock(shard).dispatcher.handlers_sleep_now());
}

/// Lets a byte, a post and a timer come to a shard. Each has to arrive.
fn everything_arrives_in(proactor: &Proactor, shard: Shard, pair: &mut (Stream, TcpStream)) {
    let (done, results) = channel();
    let tell = done.clone();
    let handler = move |BufResult(result, _)| tell.send(result).unwrap();
    pair.0.read(vec![0; 1], handler).unwrap();
    // Until it waits.
    std::thread::sleep(Duration::from_millis(1));
    pair.1.write_all(b"x").unwrap();
    assert_eq!(next(&results), Ok(1), "shard {shard}, {:?}", proactor.effective());
    let tell = done.clone();
    let posted = Call(move || tell.send(Ok(2)).unwrap());
    proactor.inner().shards.lock(shard).post(Box::new(posted), After::Posted);
    assert_eq!(next(&results), Ok(2), "shard {shard}, {:?}", proactor.effective());
    proactor.inner().shards.settle(shard);
    let timer = move |result: Result<(), OperationError>| done.send(result.map(|()| 3)).unwrap();
    proactor.timer(Duration::from_millis(1), timer).unwrap();
    assert_eq!(next(&results), Ok(3), "shard {shard}, {:?}", proactor.effective());
}

/// The only thread has no time to wait for the others.
#[test]
fn a_busy_thread_serves_all_shards() {
    each(|proactor| {
        let mut pairs: Vec<_> = (0..SHARDS).map(|shard| stream_of(proactor, shard)).collect();
        (0..SHARDS).for_each(|shard| make_known(proactor, shard));
        for how in [Busy::Posts, Busy::Timers] {
            let _occupied = Occupied::new(proactor, 0, how);
            let _crew = Crew::new(proactor, 1);
            for _ in 0..repetitions(5, 50) {
                for shard in 1..SHARDS {
                    everything_arrives_in(proactor, shard, &mut pairs[usize::from(shard)]);
                }
            }
        }
    });
}

/// Two of three shards always have something to do.
#[test]
fn shards_that_need_help_take_turns() {
    each(|proactor| {
        let mut pair = stream_of(proactor, 2);
        (0..SHARDS).for_each(|shard| make_known(proactor, shard));
        for how in [Busy::Posts, Busy::Timers] {
            let _occupied = [0, 1].map(|shard| Occupied::new(proactor, shard, how));
            let _crew = Crew::new(proactor, 1);
            (0..repetitions(5, 50)).for_each(|_| everything_arrives_in(proactor, 2, &mut pair));
        }
    });
}

/// The thread of a shard is in a handler that does not return, and the other one is busy in its own.
#[test]
fn a_busy_thread_takes_over_from_one_that_blocks() {
    each(|proactor| {
        let mut pair = stream_of(proactor, 1);
        for how in [Busy::Posts, Busy::Timers] {
            (0..SHARDS).for_each(|shard| make_known(proactor, shard));
            proactor.inner().shards.settle(2);
            let crew = Crew::new(proactor, 2);
            until(|| proactor.inner().shards.present_in() == [1, 1, 0]);
            let (begun, begins) = channel();
            let (end, ends) = channel::<()>();
            let block = Call(move || {
                begun.send(()).unwrap();
                let _ = ends.recv();
            });
            proactor.inner().shards.lock(1).post(Box::new(block), After::Posted);
            next(&begins);
            let occupied = Occupied::new(proactor, 0, how);
            (0..repetitions(5, 50)).for_each(|_| everything_arrives_in(proactor, 1, &mut pair));
            drop(occupied);
            drop(end);
            drop(crew);
        }
    });
}

/// A program that never waits asks again and again.
#[test]
fn a_thread_that_only_polls_serves_all_shards() {
    each(|proactor| {
        (0..SHARDS).for_each(|shard| make_known(proactor, shard));
        let _occupied = [0, 1].map(|shard| Occupied::new(proactor, shard, Busy::Posts));
        let (done, results) = channel();
        let posted = Call(move || done.send(()).unwrap());
        proactor.inner().shards.lock(2).post(Box::new(posted), After::Posted);
        proactor.inner().shards.settle(0);
        until(|| {
            proactor.handle_events(Some(Duration::ZERO));
            results.try_recv().is_ok()
        });
    });
}

/// It cannot move to the shard without a thread, as an idle thread does.
#[test]
fn a_handler_that_handles_events_helps_a_shard_without_a_thread() {
    each(|proactor| {
        let (stream, mut peer) = stream_of(proactor, 1);
        proactor.inner().shards.settle(2);
        let _crew = Crew::new(proactor, 1);
        for _ in 0..repetitions(5, 50) {
            let (done, results) = channel();
            let (weak, stream) = (proactor.downgrade(), stream.clone());
            let wait = Call(move || {
                let proactor = weak.upgrade().unwrap();
                let read = proactor.block_on(stream.read_async(vec![0; 1]));
                done.send(read.map(|BufResult(result, _)| result)).unwrap();
            });
            proactor.inner().shards.lock(0).post(Box::new(wait), After::Posted);
            // Until it waits.
            std::thread::sleep(Duration::from_millis(1));
            peer.write_all(b"x").unwrap();
            assert_eq!(next(&results), Some(Ok(1)), "{:?}", proactor.effective());
        }
    });
}
