//! No interrupt is lost, at whatever step it reaches the leader: between its last check and its system call, on
//! the way into the call, in it, or on the way out.
//!
//! One thread leads, and only an interrupt ends its wait. A hook holds the leader up between releasing the lock
//! and the system call, mostly for less time than an interrupt takes, sometimes for longer: there a signal
//! without a mask is lost.

use crate::operation::{Completion, Descriptor, Done, Memory, OperationKind, Request};
use crate::tests::common::*;
use crate::{
    BufResult, Config, Datagrams, File, InterruptType, Proactor, ProcessorConfig, ProcessorType,
    ProviderType, Stream, WaitType, Watch, WeakProactor,
};
use rustix::thread::futex;
use std::cell::Cell;
use std::io::{PipeWriter, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use toroni_testkit::long::repetitions;

/// Lets another thread come in between: for up to about as long as an interrupt takes.
pub(super) fn pause_briefly() {
    (0..random() >> 22).for_each(|_| std::hint::spin_loop());
}

/// The same if the other thread has to be woken first.
pub(super) fn pause_sometimes() {
    if random() >> 28 == 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn random() -> u32 {
    thread_local! { static SEED: Cell<u32> = const { Cell::new(1) } }
    let seed = SEED.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    SEED.set(seed);
    seed
}

/// The number of interrupts, datagrams, bytes or changes of a word that have to arrive.
fn rounds() -> u32 {
    repetitions(2000, 10_000)
}

fn lose_none(provider: ProviderType, wait: WaitType, interrupt: InterruptType) {
    for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
        if wait == WaitType::LinuxRt && processor_type == ProcessorType::Shared {
            continue;
        }
        let config = ProcessorConfig {
            processor_type,
            provider,
            wait,
            interrupt,
            // The only way to a dedicated leader that waits is an interrupt.
            start_in_any_thread: Some(processor_type == ProcessorType::Shared),
            ..ProcessorConfig::default()
        };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        let _crew = Crew::new(&proactor, 1);
        // Something to lead for; it never ends.
        if provider == ProviderType::Posix {
            let _writer = read_that_does_not_end(&proactor);
            match processor_type {
                ProcessorType::Shared => posts_arrive(&proactor),
                ProcessorType::Dedicated => deferred_transfers_arrive(&proactor),
            }
            continue;
        }
        let (idle, _peer) = stream_and_peer(&proactor);
        idle.read(vec![0; 1], |_| {}).unwrap();
        if processor_type == ProcessorType::Shared {
            posts_arrive(&proactor);
        } else {
            deferred_starts_arrive(&proactor);
        }
        datagrams_arrive(&proactor);
        if proactor.supports(OperationKind::WaitWord) {
            words_arrive(&proactor);
        }
    }
}

/// Starts a read of a pipe with an engine for files. It cannot be cancelled, and ends when the writer is
/// dropped.
fn read_that_does_not_end(proactor: &Proactor) -> PipeWriter {
    struct Told(Box<[u8; 8]>);
    impl Completion for Told {
        fn complete(self: Box<Self>, _: Done) {}
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let mut told = Box::new(Told(Box::new([0; 8])));
    let descriptor = Arc::new(Descriptor::new(reader.into(), 0).unwrap());
    let mut request = Request::new(OperationKind::ReadStream, descriptor);
    // SAFETY: the bytes are on the heap, and the completion has them for as long as the read takes.
    request.memory = unsafe { Memory::to_fill(told.0.as_mut_ptr(), 8) };
    super::start_on(proactor, 0, request, told);
    writer
}

fn posts_arrive(proactor: &Proactor) {
    let arrived = Arc::new(AtomicU32::new(0));
    for round in 1..=rounds() {
        let told = Arc::clone(&arrived);
        proactor.post(move || told.store(round, Ordering::Release)).unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
}

/// Writes are deferred until a leader starts them. (SELECT attempts them at once, without its leader; then
/// this only shows that the thread that handles events loses none.)
fn deferred_starts_arrive(proactor: &Proactor) {
    let datagrams = Datagrams::bind(proactor, ANY).unwrap();
    let to = Some(datagrams.local_address().unwrap());
    let arrived = Arc::new(AtomicU32::new(0));
    for round in 1..=rounds() {
        let told = Arc::clone(&arrived);
        datagrams.write("x", to, move |_| told.store(round, Ordering::Release)).unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
}

/// The same with a file.
fn deferred_transfers_arrive(proactor: &Proactor) {
    let directory = directory();
    let file = std::fs::File::create(directory.join("file")).unwrap();
    let file = File::new(proactor, file).unwrap();
    let arrived = Arc::new(AtomicU32::new(0));
    for round in 1..=rounds() {
        let told = Arc::clone(&arrived);
        file.write(0, "x", move |_| told.store(round, Ordering::Release)).unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
}

/// A descriptor becomes readable at any step of a wait for that.
fn datagrams_arrive(proactor: &Proactor) {
    struct Receiver {
        watch: Watch,
        original: UnixDatagram,
        arrived: Arc<AtomicU32>,
    }
    fn watch(receiver: Arc<Receiver>) {
        let again = Arc::clone(&receiver);
        let started = receiver.watch.readable(move |result| {
            if result.is_err() {
                return;
            }
            while again.original.recv(&mut [0; 4]).is_ok() {
                again.arrived.fetch_add(1, Ordering::Release);
            }
            watch(again);
        });
        started.unwrap();
    }

    let (original, peer) = UnixDatagram::pair().unwrap();
    original.set_nonblocking(true).unwrap();
    let arrived = Arc::new(AtomicU32::new(0));
    let watched = Watch::new(proactor, original.try_clone().unwrap()).unwrap();
    watch(Arc::new(Receiver { watch: watched.clone(), original, arrived: Arc::clone(&arrived) }));
    for round in 1..=rounds() {
        peer.send(b"x").unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
    watched.cancel();
}

/// A byte arrives at any step of a read that a handler starts: in its attempt, on the way to the engine, in
/// the wait.
fn bytes_arrive(proactor: &Proactor) {
    fn read(stream: Arc<Stream>, arrived: Arc<AtomicU32>) {
        let again = Arc::clone(&stream);
        let started = stream.read(vec![0; 1], move |BufResult(result, _)| {
            if result == Ok(1) {
                arrived.fetch_add(1, Ordering::Release);
                read(again, arrived);
            }
        });
        started.unwrap();
    }

    let (stream, mut peer) = stream_and_peer(proactor);
    let (stream, arrived) = (Arc::new(stream), Arc::new(AtomicU32::new(0)));
    read(Arc::clone(&stream), Arc::clone(&arrived));
    for round in 1..=rounds() {
        peer.write_all(b"x").unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
    stream.cancel();
}

/// A word changes, and its waiter is woken, at any step of the wait.
fn words_arrive(proactor: &Proactor) {
    fn watch(proactor: WeakProactor, word: Arc<AtomicU32>, seen: u32, arrived: Arc<AtomicU32>) {
        let Some(strong) = proactor.upgrade() else { return };
        let started = strong.wait_while(word, seen, move |BufResult(result, word)| {
            let value = word.load(Ordering::Acquire);
            arrived.store(value, Ordering::Release);
            if result.is_ok() && value < rounds() {
                watch(proactor, word, value, arrived);
            }
        });
        started.unwrap();
    }

    let (word, arrived) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    watch(proactor.downgrade(), Arc::clone(&word), 0, Arc::clone(&arrived));
    for round in 1..=rounds() {
        word.store(round, Ordering::Release);
        futex::wake(&word, futex::Flags::empty(), 1).unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
}

fn wait_for(arrived: &AtomicU32, round: u32) {
    let started = Instant::now();
    while arrived.load(Ordering::Acquire) != round {
        assert!(started.elapsed() < lost(), "the interrupt of round {round} was lost");
        std::thread::yield_now();
    }
}

/// Takes up to about as long as a leader takes from one wait to the next.
fn delay(round: u32) {
    let turns = round.wrapping_mul(2_654_435_761) >> 22;
    (0..turns * 4).for_each(|_| std::hint::spin_loop());
}

macro_rules! each {
    ($($name:ident: $provider:ident $wait:ident $interrupt:ident;)*) => {
        $(#[test] fn $name() {
            lose_none(ProviderType::$provider, WaitType::$wait, InterruptType::$interrupt);
        })*
    };
}

each! {
    ppoll_pipe: Select Native Pipe;
    ppoll_signal: Select Native Signal;
    ppoll_eventfd: Select Native Eventfd;
    epoll_pipe: Select Epoll Pipe;
    epoll_signal: Select Epoll Signal;
    epoll_eventfd: Select Epoll Eventfd;
    linux_rt_pipe: Select LinuxRt Pipe;
    linux_rt_signal: Select LinuxRt Signal;
    combined_pipe: Combined Epoll Pipe;
    combined_signal: Combined Epoll Signal;
    combined_eventfd: Combined Epoll Eventfd;
    uring_pipe: Uring Native Pipe;
    uring_signal: Uring Native Signal;
    uring_eventfd: Uring Native Eventfd;
    suspend_pipe: Posix Native Pipe;
    suspend_signal: Posix Native Signal;
    suspend_eventfd: Posix Native Eventfd;
    sigwait_pipe: Posix Sigwait Pipe;
    sigwait_signal: Posix Sigwait Signal;
    sigwait_eventfd: Posix Sigwait Eventfd;
    callback_itself: Posix Callback Callback;
    callback_pipe: Posix Callback Pipe;
    callback_signal: Posix Callback Signal;
    callback_eventfd: Posix Callback Eventfd;
}

/// A descriptor becomes readable while a thread finds that it was not: others lead meanwhile, and see the edge.
#[test]
fn edges_during_attempts_are_seen() {
    let config = ProcessorConfig { wait: WaitType::Epoll, ..ProcessorConfig::default() };
    let config = ProcessorConfig { provider: ProviderType::Select, ..config };
    let proactor = Proactor::new(&Config::one(config)).unwrap();
    let _crew = Crew::new(&proactor, 3);
    // Something to lead for meanwhile.
    let (idle, _peer) = stream_and_peer(&proactor);
    idle.read(vec![0; 1], |_| {}).unwrap();
    datagrams_arrive(&proactor);
}

/// The same with reads that handlers start, by each way to wait for them.
#[test]
fn bytes_during_attempts_are_seen() {
    for provider in [ProviderType::Select, ProviderType::Combined, ProviderType::Uring] {
        for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
            let config = ProcessorConfig { provider, processor_type, ..Default::default() };
            let proactor = Proactor::new(&Config::one(config)).unwrap();
            let _crew = Crew::new(&proactor, 3);
            // Something to lead for meanwhile.
            let (idle, _peer) = stream_and_peer(&proactor);
            idle.read(vec![0; 1], |_| {}).unwrap();
            bytes_arrive(&proactor);
        }
    }
}

/// A thread in `block_on` attempts transfers meanwhile, without the lock: the thread that wakes its future
/// finds it neither asleep nor in a wait.
#[test]
fn a_future_that_is_woken_during_attempts_is_polled() {
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::task::{Poll, Waker};
    for wait in [WaitType::Epoll, WaitType::Native] {
        let provider = ProviderType::Select;
        let config = ProcessorConfig { provider, wait, ..ProcessorConfig::default() };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        // A pipe that is full: each page that is read makes the write ready, and it has to wait again.
        let (mut reading, writing) = std::io::pipe().unwrap();
        let stream = Stream::new(&proactor, writing).unwrap();
        stream.write_all(vec![0; 64 << 20], |_| {}).unwrap();
        let (sleeping, wakers) = channel::<(Waker, Arc<AtomicU32>)>();
        let waker = std::thread::spawn(move || {
            for (number, (waker, flag)) in wakers.into_iter().enumerate() {
                reading.read_exact(&mut [0; 4096]).unwrap();
                delay(u32::try_from(number).unwrap_or(0));
                flag.store(1, Ordering::Release);
                waker.wake();
            }
        });
        let (done, ended) = channel();
        let driver = std::thread::spawn(move || {
            for _ in 0..rounds() {
                let flag = Arc::new(AtomicU32::new(0));
                let mut told = false;
                let future = std::future::poll_fn(|context| {
                    if flag.load(Ordering::Acquire) == 1 {
                        return Poll::Ready(());
                    }
                    if !std::mem::replace(&mut told, true) {
                        sleeping.send((context.waker().clone(), Arc::clone(&flag))).unwrap();
                    }
                    Poll::Pending
                });
                proactor.block_on(future).unwrap();
            }
            drop(stream);
            drop(proactor);
            done.send(()).unwrap();
        });
        next(&ended);
        for thread in [waker, driver] {
            thread.join().unwrap();
        }
    }
}
