//! Subscribers that join within the history that another subscriber protects, while publishers
//! request space.

use crate::common::Fixture;
use std::sync::atomic::{AtomicBool, Ordering};
use toroni::{Policy, PublishError, Start};

/// The number of joins in each of the three ways. An earlier protocol refused several out of this
/// many.
const JOINS: usize = 3_000;

/// A subscriber that has read nothing protects the whole history, so it does not change. Publishers
/// propose again and again to overwrite it, and withdraw the proposal.
#[test]
fn a_start_in_protected_history_is_neither_refused_nor_moved() {
    let fixture = Fixture::new();
    let config = fixture.config().capacity(64 << 10).policy(Policy::Wait { limit: None });
    let bus = config.open("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    // The history does not start at the first byte of the stream.
    for _ in 0..100 {
        publisher.publish([7; 992]).unwrap();
    }
    let oldest = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
    let start = oldest.position();
    let first = start / 1000;
    while publisher.try_publish([7; 992]).is_ok() {}
    assert!(start > 0);

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let refused = publisher.try_publish([7; 992]);
                    assert!(
                        matches!(refused, Err(PublishError::Full | PublishError::Busy)),
                        "{refused:?}"
                    );
                }
            });
        }
        let mut wrong = Vec::new();
        for number in 0..3 * JOINS {
            let wishes = [Start::Oldest, Start::Position(start), Start::Sequence(first)];
            let wish = wishes[number % wishes.len()];
            match bus.subscriber().pattern("**").start(wish).build() {
                Ok(subscriber) if subscriber.position() == start => {}
                Ok(subscriber) => wrong.push(format!("{wish:?}: at {}", subscriber.position())),
                Err(error) => wrong.push(format!("{wish:?}: {error}")),
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{} of {}, such as {}", wrong.len(), 3 * JOINS, wrong[0]);
    });
    drop(oldest);
}
