//! No interrupt is lost, at whatever step it finds the leader: between its last look and its system call,
//! on the way into it, in it, on the way out.
//!
//! One thread leads, and nothing but an interrupt ends its wait. Rounds are spread over its steps by a
//! delay that differs from round to round, always the same sequence.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use toroni_proactor::{
    Config, InterruptType, Proactor, ProcessorConfig, ProcessorType, ProviderType, WaitType,
};

const ROUNDS: u32 = 10_000;

fn lose_none(provider: ProviderType, wait: WaitType, interrupt: InterruptType) {
    for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
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
    let datagrams = toroni_proactor::Datagrams::bind(proactor, ANY).unwrap();
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
    uring_pipe: Uring Native Pipe;
    uring_signal: Uring Native Signal;
    uring_eventfd: Uring Native Eventfd;
}
