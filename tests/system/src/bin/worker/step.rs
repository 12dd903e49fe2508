//! `step`: publishes one message or bundle for each line on standard input, and answers `done COUNT`.

use crate::options::Options;
use crate::publish::Publishing;
use std::io::BufRead;

pub(crate) fn run(options: &Options) {
    let counters = options.counters();
    let mut publishing = Publishing::new(options);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        publishing.publish(&counters);
        println!("done");
    }
    println!("published");
}
