//! What an idle screen of `top` costs.

use crate::support::{Buses, Process, wait_until};
use crate::terminal::Terminal;
use std::fs;
use std::time::{Duration, Instant};
use toroni_testkit::turn;

/// Time on a processor of all threads: the first number of `/proc/<pid>/task/*/schedstat`.
fn ran(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanoseconds = tasks.map(|task| {
        let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Counts what the scheduler gave it, and not the time that passed. Rounds are measured until one is below the limit:
/// on a busy machine, a process also pays for what others did to the processor's caches.
#[test]
fn an_idle_screen_uses_less_than_a_hundredth_of_a_core() {
    let _turn = turn();
    let buses = Buses::new();
    buses.succeed(&["create", "plant"]);
    let _subscriber = buses.subscribe(&["--bus", "plant"]);
    let terminal = Terminal::new(120, 40);
    let mut command = buses.command(&["top", "plant"]);
    terminal.attach(&mut command);
    let mut top = Process::start(&mut command);
    wait_until("the subscriber is shown", || terminal.screen().contains("SUBSCRIBERS 1/"));
    let mut shares = (0..20).map(|_| {
        let (before, began) = (ran(top.id()), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let (used, wall) = (ran(top.id()) - before, began.elapsed());
        println!("top: {used:?} of {wall:?}");
        used.as_secs_f64() / wall.as_secs_f64()
    });
    assert!(shares.any(|share| share <= 0.01));
    terminal.press("q");
    assert!(top.wait().success());
}
