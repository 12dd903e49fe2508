//! `limits`: publishes when it has no descriptors left, and again when it has some.

use crate::options::Options;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::BufRead;

pub(crate) fn run(options: &Options) {
    let bus = options.bus();
    let publisher = bus.publisher("limits").expect("a publisher");
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    let mut wait_for_line = || drop(lines.next().expect("a line").expect("a line"));
    wait_for_line();
    let before = getrlimit(Resource::Nofile);
    // New ones would have to have numbers below this.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).expect("a lower limit");
    publisher.publish(b"without").expect("published");
    let errors = [
        bus.subscribe("**").err().map(|error| error.to_string()),
        bus.stats().err().map(|error| error.to_string()),
    ];
    for error in errors.into_iter().flatten() {
        assert!(error.contains("Too many open files"), "{error}");
    }
    println!("without");
    wait_for_line();
    setrlimit(Resource::Nofile, before).expect("the old limit");
    publisher.publish(b"with").expect("published");
    drop(bus.subscribe("**").expect("a subscriber"));
    println!("with");
    wait_for_line();
}
