//! No interrupt is lost, at whatever step it finds the leader: between its last look and its system call,
//! on the way into it, in it, on the way out.
//!
//! One thread leads, and nothing but an interrupt ends its wait. The leader is held up, mostly for less than
//! an interrupt takes, sometimes for longer, between opening the lock and the system call: there a signal
//! without a mask is lost.

use crate::{
    Config, Datagrams, InterruptType, Proactor, ProcessorConfig, ProcessorType, ProviderType,
    WaitType,
};
use common::*;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

#[path = "../tests/common/mod.rs"]
mod common;

/// Called by a leader that has opened the lock and not yet entered its system call.
pub(crate) fn interlude() {
    thread_local! { static SEED: Cell<u32> = const { Cell::new(1) } }
    let seed = SEED.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    SEED.set(seed);
    (0..seed >> 22).for_each(|_| std::hint::spin_loop());
}

const ROUNDS: u32 = 10_000;

fn lose_none(provider: ProviderType, wait: WaitType, interrupt: InterruptType) {
    for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
        if wait == WaitType::LinuxRt && processor_type == ProcessorType::Shared {
            continue;
        }
        let config = ProcessorConfig {
            processor_type,
            provider,
            wait,
            interrupt,
            // The only way to a dedicated leader that waits is an interrupt.
            start_in_any_thread: Some(processor_type == ProcessorType::Shared),
            ..ProcessorConfig::default()
        };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        let _crew = Crew::new(&proactor, 1);
        // What there is to lead for; it never ends.
        let (idle, _peer) = stream_and_peer(&proactor);
        idle.read(vec![0; 1], |_| {}).unwrap();
        if processor_type == ProcessorType::Shared {
            posts_arrive(&proactor);
        } else {
            deferred_starts_arrive(&proactor);
        }
    }
}

fn posts_arrive(proactor: &Proactor) {
    let arrived = Arc::new(AtomicU32::new(0));
    for round in 1..=ROUNDS {
        let told = Arc::clone(&arrived);
        proactor.post(move || told.store(round, Ordering::Release)).unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
}

/// Writes that are deferred until a leader starts them. (SELECT tries them at once, without its leader; then
/// they only show that nothing is lost to the thread that handles events.)
fn deferred_starts_arrive(proactor: &Proactor) {
    let datagrams = Datagrams::bind(proactor, ANY).unwrap();
    let to = Some(datagrams.local_address().unwrap());
    let arrived = Arc::new(AtomicU32::new(0));
    for round in 1..=ROUNDS {
        let told = Arc::clone(&arrived);
        datagrams.write("x", to, move |_| told.store(round, Ordering::Release)).unwrap();
        wait_for(&arrived, round);
        delay(round);
    }
}

fn wait_for(arrived: &AtomicU32, round: u32) {
    let started = Instant::now();
    while arrived.load(Ordering::Acquire) != round {
        assert!(started.elapsed() < LOST, "the interrupt of round {round} was lost");
        std::thread::yield_now();
    }
}

/// Up to about as long as a leader takes from one wait to the next.
fn delay(round: u32) {
    let turns = round.wrapping_mul(2_654_435_761) >> 22;
    (0..turns * 4).for_each(|_| std::hint::spin_loop());
}

macro_rules! each {
    ($($name:ident: $provider:ident $wait:ident $interrupt:ident;)*) => {
        $(#[test] fn $name() {
            lose_none(ProviderType::$provider, WaitType::$wait, InterruptType::$interrupt);
        })*
    };
}

each! {
    ppoll_pipe: Select Native Pipe;
    ppoll_signal: Select Native Signal;
    ppoll_eventfd: Select Native Eventfd;
    epoll_pipe: Select Epoll Pipe;
    epoll_signal: Select Epoll Signal;
    epoll_eventfd: Select Epoll Eventfd;
    linux_rt_pipe: Select LinuxRt Pipe;
    linux_rt_signal: Select LinuxRt Signal;
    uring_pipe: Uring Native Pipe;
    uring_signal: Uring Native Signal;
    uring_eventfd: Uring Native Eventfd;
}
