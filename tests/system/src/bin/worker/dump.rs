//! `dump`: a process with many threads that crashes, and dumps core in the directory `cwd`.
//!
//! `case`: `publisher` (it crashes inside `publish_with`, while its other threads publish and wait for the lock),
//! `subscriber` (it gates and has read nothing; its other threads compute).

use crate::options::Options;
use std::hint::black_box;
use std::io::BufRead;

/// Beside the one that crashes.
const THREADS: usize = 24;

pub(crate) fn run(options: &Options) {
    std::env::set_current_dir(options.get::<String>("cwd")).expect("a directory");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    let limit = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Core, limit).expect("the limit of cores");
    match options.get::<String>("case").as_str() {
        "publisher" => publisher(options),
        "subscriber" => subscriber(options),
        case => panic!("no case {case:?}"),
    }
}

fn publisher(options: &Options) {
    let bus = options.bus();
    let publisher = bus.publisher("dump/victim").expect("a publisher");
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let publisher = publisher.clone();
            std::thread::spawn(move || {
                loop {
                    publisher.publish(b"whole").expect("published");
                }
            })
        })
        .collect();
    println!("ready");
    wait_for_line();
    let published = publisher.publish_with(5, toroni::Limit::Policy, |bytes| {
        bytes.write(0, b"torn!");
        println!("inside");
        std::process::abort()
    });
    drop((published, threads));
}

fn subscriber(options: &Options) {
    let _subscriber = options.bus().subscribe("**").expect("a subscriber");
    for _ in 0..THREADS {
        std::thread::spawn(|| {
            loop {
                black_box(());
            }
        });
    }
    println!("ready");
    wait_for_line();
    std::process::abort()
}

fn wait_for_line() {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a line");
}
