//! `hostile`: disturbs those that sleep, with the rights of a subscriber and without a slot, until its standard input ends.
//!
//! - `attack=wait`: `threads` threads wait on the words on which subscribers sleep, half of them on that of slot 0. Prints
//!   `woken N`.
//! - `attack=requeue`: moves those that sleep on the word of slot 0 to that of the last slot. Prints `moved N`.
//! - `attack=deafen`: says of all subscribers that they want nothing. Prints `said N`.

use crate::options::Options;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use system_tests::sleepers::{SleepersFile, WakeWords};

/// A thread of 4,000 needs little.
const STACK: usize = 64 << 10;

pub(crate) fn run(options: &Options) {
    let bus = options.get::<PathBuf>("dir").join(options.get::<String>("bus"));
    let end = AtomicBool::new(false);
    let goes_on = || !end.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let until_the_end = || {
            println!("ready");
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            end.store(true, Ordering::Relaxed);
        };
        match options.get::<String>("attack").as_str() {
            "wait" => wait(&bus, options.get("threads"), &goes_on, until_the_end),
            "requeue" => {
                scope.spawn(until_the_end);
                let words = WakeWords::of(&bus);
                let moved = repeat(&goes_on, || words.requeue(0, words.count() - 1));
                println!("moved {moved}");
            }
            "deafen" => {
                let file = SleepersFile::of(&bus);
                file.deafen_all();
                scope.spawn(until_the_end);
                let said = repeat(&goes_on, || {
                    file.deafen_all();
                    1
                });
                println!("said {said}");
            }
            other => panic!("no attack {other:?}"),
        }
    });
}

fn repeat(goes_on: &impl Fn() -> bool, attack: impl Fn() -> u64) -> u64 {
    let mut sum = 0;
    while goes_on() {
        sum += attack();
        // The others need a core, too.
        std::thread::sleep(Duration::from_micros(200));
    }
    sum
}

fn wait(
    bus: &std::path::Path,
    threads: usize,
    goes_on: &(impl Fn() -> bool + Sync),
    until_the_end: impl FnOnce(),
) {
    let words = WakeWords::of(bus);
    let (waiting, woken) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (waiting, woken) = (&waiting, &woken);
            let slot = if number % 2 == 0 { 0 } else { number / 2 % words.count() };
            let work = move || {
                waiting.fetch_add(1, Ordering::Relaxed);
                while goes_on() {
                    // It looks whether it is over now and then only: 4,000 threads would take the cores.
                    let is_woken = words.wait(slot, Duration::from_secs(5));
                    woken.fetch_add(u64::from(is_woken), Ordering::Relaxed);
                }
            };
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, work)
                .expect("a thread");
        }
        while waiting.load(Ordering::Relaxed) < threads as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        until_the_end();
        println!("woken {}", woken.load(Ordering::Relaxed));
        // Without waiting for its threads.
        std::process::exit(0);
    });
}
