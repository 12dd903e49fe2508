//! `step`: publishes one message, or group, for each line on standard input, and answers `done COUNT`.

use crate::options::Options;
use crate::publish::Publishing;
use std::io::BufRead;

pub(crate) fn run(options: &Options) {
    let board = options.board();
    let mut publishing = Publishing::new(options);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        publishing.publish(&board);
        println!("done");
    }
    println!("published");
}
