//! `exec`: executes another program while it takes part in a bus.
//!
//! `case`: `idle` (nothing happens), `inside` (it holds the writer lock itself), `beside` (another thread holds the
//! lock). The other program is this one in the role `stay`.

use crate::options::Options;
use std::os::unix::process::CommandExt;
use std::process::Command;
use toroni::{Limit, Publisher};

pub(crate) fn run(options: &Options) {
    let bus = options.bus();
    let publisher = bus.publisher("exec").expect("a publisher");
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    subscriber.enable_fd().expect("a descriptor");
    publisher.publish(b"before").expect("published");
    match options.get::<String>("case").as_str() {
        "idle" => become_another(),
        "inside" => drop(publisher.publish_with(8, Limit::Policy, |_| become_another())),
        "beside" => beside(publisher),
        case => panic!("no case {case:?}"),
    }
}

fn beside(publisher: Publisher) {
    let (entered, enter) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = publisher.publish_with(8, Limit::Policy, |_| {
            entered.send(()).expect("somebody listens");
            loop {
                std::thread::park();
            }
        });
    });
    enter.recv().expect("the other thread is under the lock");
    become_another();
}

fn become_another() -> ! {
    let this = std::env::current_exe().expect("the path of this program");
    panic!("exec: {}", Command::new(this).arg("stay").exec());
}

/// `stay`: does nothing, and lives.
pub(crate) fn stay() -> ! {
    println!("another program");
    loop {
        std::thread::park();
    }
}
