//! The threads of a proactor sleep while there is nothing to do.

use crate::common::*;
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use toroni_proactor::{BufResult, Config, Proactor, Stream};
use toroni_testkit::turn;

/// Returns how often all threads of this process gave up their cores by themselves.
fn times_slept() -> u64 {
    let of_thread = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"));
        line.unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    std::fs::read_dir("/proc/self/task").unwrap().map(|entry| of_thread(entry.unwrap())).sum()
}

fn echo(stream: Arc<Stream>) {
    let again = Arc::clone(&stream);
    let started = stream.read(vec![0; 1], move |BufResult(result, buffer)| {
        if result == Ok(1) {
            let (after, to) = (Arc::clone(&again), again);
            to.write(buffer, move |_| echo(after)).unwrap();
        }
    });
    started.unwrap();
}

/// While handlers are short, a thread checks again and again whether they return; but not for ever.
#[test]
fn threads_without_work_sleep() {
    let _turn = turn();
    alone("idle::threads_without_work_sleep", || sleep_in(1));
}

/// While threads are at work, one looks at all shards again and again; but not for ever.
#[test]
fn threads_of_shards_without_work_sleep() {
    let _turn = turn();
    alone("idle::threads_of_shards_without_work_sleep", || sleep_in(3));
}

fn sleep_in(shards: usize) {
    let proactor = Proactor::new(&Config::default().with_shards(shards)).unwrap();
    let _crew = Crew::new(&proactor, 4);
    // Operations that have to be waited for, in all shards.
    let waiting: Vec<_> = (0..3 * shards).map(|_| stream_and_peer(&proactor)).collect();
    for (stream, _) in &waiting {
        stream.read(vec![0; 1], |_| {}).unwrap();
    }
    let (stream, mut peer) = stream_and_peer(&proactor);
    echo(Arc::new(stream));
    for _ in 0..2000 {
        peer.write_all(b"x").unwrap();
        peer.read_exact(&mut [0]).unwrap();
    }
    // A thread may take long to fall asleep if other programs use the processors.
    until(|| {
        let before = times_slept();
        thread::sleep(Duration::from_millis(300));
        let slept = times_slept() - before;
        eprintln!("{slept} times in 300 ms");
        slept < 100
    });
}
