//! `fork`: what a child without exec may do, and what it must not take from its parent.
//!
//! `case`:
//! - `child`: it uses its parent's handles, drops them, and opens the bus again.
//! - `orphan`: it outlives its parent.
//! - `daemon`: all descriptors are closed without the library's knowledge.
//! - `careless`: as `daemon`, their numbers are used again, and it publishes against other participants.
//! - `exclusive`: it publishes exclusively, has a child that uses its handle, and then loses its descriptors.
//! - `unfenced`: it publishes exclusively, without fences, and has a child that drops its handle.
//! - `inside`: it is forked while its parent writes a message in place, and returns from there too.
//! - `beside`: it is forked by one thread while another one writes a message in place.
//! - `busy`: many are forked while other threads do everything that the bus offers.

use crate::options::Options;
use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use system_tests::wake::leaves_fence_out;
use toroni::{
    Bus, FileError, Limit, PublishError, Publisher, PublisherError, ReceiveError, Subscriber,
    SubscriberError,
};

pub(crate) fn run(options: &Options) {
    match options.get::<String>("case").as_str() {
        "child" => child(options),
        "orphan" => orphan(options),
        "daemon" => daemon(options),
        "careless" => careless(options),
        "exclusive" => exclusive(options),
        "unfenced" => unfenced(options),
        "inside" => inside(options),
        "beside" => beside(options),
        "busy" => busy(options),
        case => panic!("no case {case:?}"),
    }
}

/// A bus with both roles open.
fn take_part(options: &Options) -> (Bus, Publisher, Subscriber) {
    let bus = options.bus();
    let publisher = bus.publisher("fork/parent").expect("a publisher");
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    subscriber.enable_fd().expect("a descriptor");
    (bus, publisher, subscriber)
}

fn exchange(publisher: &Publisher, subscriber: &mut Subscriber, bytes: &[u8]) {
    publisher.publish(bytes).expect("published");
    assert_eq!(subscriber.receive().expect("received").payload(), bytes);
}

/// Until the test has looked.
fn wait_for_line() {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a line");
}

fn child(options: &Options) {
    let (bus, publisher, mut subscriber) = take_part(options);
    exchange(&publisher, &mut subscriber, b"before");
    let descriptor = subscriber.as_raw_fd();

    match fork() {
        0 => exit_with(move || {
            let is_forked = |answer: Result<(), PublishError>| {
                assert!(matches!(answer, Err(PublishError::Forked(_))), "{answer:?}");
            };
            is_forked(publisher.publish(b"of the child").map(drop));
            is_forked(publisher.try_publish(b"of the child").map(drop));
            is_forked(publisher.publish_batch(&["of the child"], Limit::Policy).map(drop));
            let in_place = publisher.publish_with(8, Limit::Policy, |bytes| bytes.fill(1));
            is_forked(in_place.map(drop));
            let burst = publisher.burst(&["of the child"], Limit::Policy);
            assert!(burst.is_err_and(|error| matches!(error.source, PublishError::Forked(_))));
            let received = subscriber.try_receive();
            assert!(matches!(received, Err(ReceiveError::Forked(_))), "{received:?}");
            let received = subscriber.receive_timeout(Duration::from_secs(60));
            assert!(matches!(received, Err(ReceiveError::Forked(_))), "{received:?}");
            let another = bus.publisher("fork/other");
            let is_forked = matches!(another, Err(PublisherError::File(FileError::Forked(_))));
            assert!(is_forked, "{another:?}");
            let another = bus.subscribe("**");
            let is_forked = matches!(another, Err(SubscriberError::File(FileError::Forked(_))));
            assert!(is_forked, "{another:?}");
            assert!(matches!(bus.stats(), Err(FileError::Forked(_))));
            drop((publisher, subscriber, bus));
        }),
        child => assert_eq!(wait_for(child), 0, "the first child failed"),
    }
    exchange(&publisher, &mut subscriber, b"after the first child");
    assert_eq!(descriptor, subscriber.as_raw_fd());
    println!("one child");
    wait_for_line();

    // A bus of its own, while the parent's handles lie about.
    match fork() {
        0 => exit_with(|| {
            let (_bus, publisher, mut subscriber) = take_part(options);
            exchange(&publisher, &mut subscriber, b"of the child");
        }),
        child => assert_eq!(wait_for(child), 0, "the second child failed"),
    }
    assert_eq!(subscriber.receive().expect("received").payload(), b"of the child");
    exchange(&publisher, &mut subscriber, b"after the second child");
    println!("two children");
    wait_for_line();
}

fn orphan(options: &Options) {
    let _participants = take_part(options);
    match fork() {
        0 => {
            // It ends by itself if the test does not end it.
            // SAFETY: `alarm` takes no memory of ours.
            unsafe { libc::alarm(120) };
            loop {
                std::thread::park();
            }
        }
        child => println!("child {child}"),
    }
    loop {
        std::thread::park();
    }
}

fn daemon(options: &Options) {
    let (bus, publisher, subscriber) = take_part(options);
    publisher.publish(b"before").expect("published");
    // SAFETY: closes what daemonising code closes. Every owner of such a descriptor in here is part
    // of the bus, and forgotten below.
    assert_eq!(unsafe { libc::close_range(3, libc::c_uint::MAX, 0) }, 0);
    // Within two laps it must have looked whether it still lives in the eyes of others.
    let bytes = vec![7; 1 << 10];
    let laps = 2 * bus_capacity(options) / (1 << 10);
    let error = (0..=laps).find_map(|_| publisher.publish(&bytes).err());
    assert!(matches!(error, Some(PublishError::LeaseLost)), "{error:?}");
    // Their descriptors are somebody else's by now.
    std::mem::forget((publisher, subscriber, bus));

    let (_bus, publisher, mut subscriber) = take_part(options);
    exchange(&publisher, &mut subscriber, b"again");
    println!("again");
    wait_for_line();
}

fn exclusive(options: &Options) {
    let exclusive = options.bus().exclusive().expect("an exclusive publisher");
    let topic = exclusive.topic("fork/exclusive").expect("a topic");
    exclusive.publish(&topic, b"before", Limit::Policy).expect("published");
    match fork() {
        0 => exit_with(|| {
            let error = exclusive.publish(&topic, b"of the child", Limit::Policy);
            assert!(matches!(error, Err(PublishError::Forked(_))), "{error:?}");
            // The lock is the parent's.
            drop(exclusive);
        }),
        child => assert_eq!(wait_for(child), 0),
    }
    exclusive.publish(&topic, b"after the child", Limit::Policy).expect("published");
    println!("ready");
    wait_for_line();
    // SAFETY: closes what daemonising code closes; the handle is forgotten below.
    assert_eq!(unsafe { libc::close_range(3, libc::c_uint::MAX, 0) }, 0);
    println!("closed");
    wait_for_line();
    for _ in 0..3 {
        let error = exclusive.publish(&topic, b"too late", Limit::Policy);
        assert!(matches!(error, Err(PublishError::LeaseLost)), "{error:?}");
    }
    println!("refused");
    std::mem::forget(exclusive);
    wait_for_line();
}

fn unfenced(options: &Options) {
    let bus = options.bus();
    let exclusive = bus.exclusive().expect("an exclusive publisher");
    let topic = exclusive.topic("fork/unfenced").expect("a topic");
    let ring = std::fs::File::open(bus.path().join("ring")).expect("the ring");
    for _ in 0..5000 {
        exclusive.publish(&topic, b"before", Limit::Policy).expect("published");
    }
    assert!(leaves_fence_out(&ring));
    match fork() {
        0 => exit_with(|| {
            exclusive.set_always_fenced(true);
            drop(exclusive);
        }),
        child => assert_eq!(wait_for(child), 0),
    }
    assert!(leaves_fence_out(&ring), "the mark is the parent's");
    drop(exclusive);
    assert!(!leaves_fence_out(&ring));
}

fn careless(options: &Options) {
    let (bus, publisher, mut subscriber) = take_part(options);
    publisher.publish(b"before").expect("published");
    println!("ready");
    wait_for_line();
    // SAFETY: closes what daemonising code closes; the handles above are forgotten below.
    assert_eq!(unsafe { libc::close_range(3, libc::c_uint::MAX, 0) }, 0);
    // The numbers of the leases and of all that asks about them now stand for other things.
    let others: Vec<_> =
        (0..60).map(|_| std::fs::File::open("/dev/zero").expect("a file")).collect();
    match options.get::<String>("against").as_str() {
        // Somebody else holds the lock, and lives.
        "owner" => {
            for _ in 0..5 {
                let tried = publisher.try_publish(b"stolen");
                let is_refused = matches!(tried, Err(PublishError::Busy | PublishError::LeaseLost));
                assert!(is_refused, "{tried:?}");
            }
            let timed = publisher.publish_within(b"stolen", Duration::from_secs(60));
            assert!(matches!(timed, Err(PublishError::LeaseLost)), "{timed:?}");
            let waited = publisher.publish(b"stolen");
            assert!(matches!(waited, Err(PublishError::LeaseLost)), "{waited:?}");
        }
        // A gating subscriber, which lives, has read nothing yet.
        "reader" => {
            let bytes = vec![7; 1 << 10];
            let error = (0..=2 * bus_capacity(options) / (1 << 10))
                .find_map(|_| publisher.publish(&bytes).err());
            assert!(matches!(error, Some(PublishError::LeaseLost)), "{error:?}");
        }
        // A gating subscriber that gets the slot of this one, whose lease is free now.
        "successor" => {
            println!("closed");
            wait_for_line();
            // Drained, it tells publishers how far it has come; then it finds that it cannot see its files.
            while let Ok(Some(_)) = subscriber.try_receive() {}
            // The patterns of the slot are another's, too.
            subscriber.add_pattern("stolen").expect("a pattern");
        }
        against => panic!("unknown: against={against:?}"),
    }
    println!("refused");
    wait_for_line();
    // Their descriptors are somebody else's by now.
    std::mem::forget((subscriber, bus, publisher));
    drop(others);
}

/// Under the writer lock, which is the parent's alone.
fn inside(options: &Options) {
    let (_bus, publisher, _subscriber) = take_part(options);
    let mut is_child = false;
    let published = publisher.publish_with(5, Limit::Policy, |bytes| {
        bytes.write(0, b"whole");
        match fork() {
            0 => {
                is_child = true;
                bytes.write(0, b"child");
            }
            child => {
                assert_eq!(wait_for(child), 0, "the child failed");
                bytes.write(0, b"whole");
                println!("inside");
                wait_for_line();
            }
        }
    });
    if is_child {
        exit_with(|| {
            assert!(matches!(published, Err(PublishError::Forked(_))), "{published:?}");
        });
    }
    published.expect("published");
    println!("outside");
    wait_for_line();
}

fn beside(options: &Options) {
    let (_bus, publisher, _subscriber) = take_part(options);
    let (entered, enter) = std::sync::mpsc::channel();
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn({
        let publisher = publisher.clone();
        move || {
            publisher
                .publish_with(5, Limit::Policy, |bytes| {
                    entered.send(()).expect("somebody listens");
                    told.recv().expect("somebody tells");
                    bytes.write(0, b"whole");
                })
                .expect("published");
        }
    });
    enter.recv().expect("the writer is under the lock");
    match fork() {
        0 => exit_with(|| {
            let answer = publisher.publish(b"of the child");
            assert!(matches!(answer, Err(PublishError::Forked(_))), "{answer:?}");
            drop(publisher);
        }),
        child => assert_eq!(wait_for(child), 0, "the child failed"),
    }
    println!("inside");
    wait_for_line();
    go_on.send(()).expect("the writer");
    writer.join().expect("the writer");
    println!("outside");
    wait_for_line();
}

/// Each child opens the bus again and publishes more than the ring holds, while its parent's threads wait for
/// space, join, leave and receive.
fn busy(options: &Options) {
    const CHILDREN: usize = 40;
    let (bus, publisher, mut subscriber) = take_part(options);
    let has_ended = AtomicBool::new(false);
    let end = EndsOnDrop(&has_ended);
    let goes_on = || !has_ended.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let _end = end;
        scope.spawn(|| {
            while goes_on() {
                subscriber.receive_timeout(Duration::from_millis(1)).expect("received");
            }
        });
        scope.spawn(|| {
            while goes_on() {
                publisher.publish([7; 1000]).expect("published");
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while goes_on() {
                    drop(bus.subscribe("fork/unused").expect("a subscriber"));
                }
            });
        }
        for number in 0..CHILDREN {
            match fork() {
                0 => exit_with(|| {
                    // One that hangs is killed, and has failed.
                    // SAFETY: `alarm` takes no memory of ours.
                    unsafe { libc::alarm(60) };
                    let bus = options.bus();
                    let publisher = bus.publisher("fork/child").expect("a publisher");
                    let mut subscriber = bus.subscribe("fork/child").expect("a subscriber");
                    for _ in 0..2 * bus_capacity(options) / 1000 {
                        // Its parent may have filled the ring meanwhile.
                        while let Err(error) = publisher.publish([1; 1000]) {
                            assert!(matches!(error, PublishError::WouldWaitForItself), "{error}");
                            assert!(subscriber.try_receive().expect("received").is_none());
                        }
                        assert_eq!(subscriber.receive().expect("received").payload(), [1; 1000]);
                    }
                }),
                child => assert_eq!(wait_for(child), 0, "child {number} failed"),
            }
        }
    });
}

/// Ends the threads that look at it, also when an assertion fails.
struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn bus_capacity(options: &Options) -> u64 {
    options.get("capacity")
}

fn fork() -> libc::pid_t {
    // SAFETY: the child of a process with threads is promised little, but the C library keeps its memory
    // allocator usable, and that this library is usable as well is what is tested.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    child
}

/// Runs what the child does and ends it, without the parent's destructors.
fn exit_with(run: impl FnOnce()) -> ! {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(i32::from(outcome.is_err())) }
}

/// How the child ended, as waitpid(2) tells.
fn wait_for(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` has room for the answer; the child is ours and has not been waited for.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}
