//! `thread`: threads that end while they have handles of the bus.
//!
//! `case`: `vanishes` (a thread ends under the writer lock without unwinding, by the system call `exit`; the process
//! continues), `ends` (threads end with the last handles, one of them in the destructor of a thread-local variable),
//! `panics` (the user's code panics under the lock in `publish_with`, or when it is asked for the payloads of a batch or
//! burst).

use crate::options::Options;
use std::cell::RefCell;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toroni::{Bus, Limit, PublishError, Publisher};

pub(crate) fn run(options: &Options) {
    match options.get::<String>("case").as_str() {
        "vanishes" => vanishes(&options.bus()),
        "ends" => ends(&options.bus()),
        "panics" => panics(&options.bus()),
        case => panic!("no case {case:?}"),
    }
}

fn wait_for_line() {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a line");
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("the threads").count()
}

fn vanishes(bus: &Bus) {
    let publisher = bus.publisher("thread").expect("a publisher");
    publisher.publish(b"before").expect("published");
    let before = threads();
    static ENTERED: AtomicBool = AtomicBool::new(false);
    let vanishing = publisher.clone();
    // Never joined: it ends without telling.
    std::mem::forget(std::thread::spawn(move || {
        let _ = vanishing.publish_with(8, Limit::Policy, |bytes| {
            bytes.fill(7);
            ENTERED.store(true, Ordering::Release);
            // SAFETY: ends this thread at once. Nothing of it is dropped, nothing is unlocked; its stack
            // stays mapped, since no thread joins it.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
    }));
    while !ENTERED.load(Ordering::Acquire) || threads() > before {
        std::thread::yield_now();
    }
    println!("vanished");
    wait_for_line();
    // What this process itself learns.
    match publisher.publish_within(b"sibling", Duration::from_millis(100)) {
        Ok(_) => println!("sibling published"),
        Err(PublishError::Timeout) => println!("sibling waits"),
        Err(error) => panic!("{error}"),
    }
    wait_for_line();
}

/// A handle that a thread keeps for itself, and uses as it goes.
struct Farewell(Publisher);

impl Drop for Farewell {
    fn drop(&mut self) {
        // Contended, so that the slow way is gone, too.
        for _ in 0..200 {
            self.0.publish(b"farewell").expect("published");
        }
        self.0
            .publish_with(8, Limit::Policy, |bytes| bytes.write(0, b"farewell"))
            .expect("published");
    }
}

thread_local! {
    static MINE: RefCell<Option<Farewell>> = const { RefCell::new(None) };
}

fn ends(bus: &Bus) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let noise = bus.publisher("noise").expect("a publisher");
        let stop = &stop;
        let rival = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                noise
                    .publish_with(8, Limit::Policy, |_| std::thread::yield_now())
                    .expect("published");
            }
        });
        for first in ["variable", "bus"] {
            for _ in 0..10 {
                let publisher = bus.publisher("farewell").expect("a publisher");
                let ended = std::thread::spawn(move || {
                    let keep = |publisher| MINE.set(Some(Farewell(publisher)));
                    let publish = |publisher: &Publisher| {
                        for _ in 0..200 {
                            publisher.publish(b"first").expect("published");
                        }
                        publisher.publish_with(8, Limit::Policy, |_| ()).expect("published");
                    };
                    // Destructors of a thread's variables run in the order in which they were
                    // first used, or in the opposite one: both are tried.
                    if first == "variable" {
                        keep(publisher.clone());
                        publish(&publisher);
                    } else {
                        publish(&publisher);
                        keep(publisher);
                    }
                })
                .join();
                assert!(ended.is_ok(), "a thread failed at its end");
            }
        }
        stop.store(true, Ordering::Relaxed);
        rival.join().expect("the rival");
    });
    // The last handles of a bus go with a thread, and it leaves in order.
    let last = bus.clone();
    let publisher = bus.publisher("last").expect("a publisher");
    std::thread::spawn(move || {
        let mut subscriber = last.subscribe("last").expect("a subscriber");
        publisher.publish(b"last").expect("published");
        assert_eq!(subscriber.receive().expect("received").payload(), b"last");
    })
    .join()
    .expect("the thread");
    println!("ended");
}

/// A payload that may not be had.
struct Payload(Option<&'static [u8]>);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.expect("no payload, as the test wants it")
    }
}

fn panics(bus: &Bus) {
    std::panic::set_hook(Box::new(|_| ()));
    let publisher = bus.publisher("thread").expect("a publisher");
    let bundle = [Payload(Some(b"one")), Payload(Some(b"two")), Payload(None)];
    println!("ready");
    wait_for_line();
    let caught = |what: &dyn Fn()| {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        assert!(outcome.is_err(), "it should have panicked");
    };
    caught(&|| {
        drop(publisher.publish_with(8, Limit::Policy, |_| -> () { panic!("as the test wants it") }))
    });
    caught(&|| drop(publisher.publish_batch(&bundle, Limit::Policy)));
    caught(&|| drop(publisher.burst(&bundle, Limit::Policy)));
    println!("panicked");
    wait_for_line();
    publisher.publish(b"after").expect("published");
    println!("after");
    wait_for_line();
}
