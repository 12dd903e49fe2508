//! One suite for all transports, with everything that workloads rely on. The package of an adapter runs it with
//! [`conformance!`](macro@crate::conformance) at the end of the file that implements [`Transport`].
//!
//! Here the ends are threads, not processes: the suite tests the adapter, and needs no second program. If the last
//! messages are lost, the suite hangs until the test runner ends it.

use crate::job::Role;
use crate::run_directory::RunDirectoryOwner;
use crate::sequence::{self, Checker, Lengths};
use crate::topics::{self, Crowd, MESSAGES, PARTS, Topics};
use crate::transport::{Receiver, Sender, Setup, Transport, Wait};
use crate::values::{Kept, Reader, Values, Writer as _};
use crate::workload::values::value;
use std::fmt::Display;
use std::ops::{ControlFlow, Range, RangeInclusive};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;
use toroni_testkit::{Directory, directory};

/// Defines the tests of an adapter: `toroni_bench_harness::conformance!(Adapter);`.
#[macro_export]
macro_rules! conformance {
    ($transport:ty) => {
        #[cfg(test)]
        mod conformance {
            // The transport may be named as it is where the macro stands.
            #[allow(unused_imports, reason = "a path from the root needs none of them")]
            use super::*;
            use $crate::conformance as suite;
            use $crate::transport::Wait;

            #[test]
            fn every_message_arrives_in_order_polling() {
                suite::every_message_arrives_in_order::<$transport>(Wait::Busy);
            }

            #[test]
            fn every_message_arrives_in_order_blocking() {
                suite::every_message_arrives_in_order::<$transport>(Wait::Blocking);
            }

            #[test]
            fn several_senders_reach_several_receivers_polling() {
                suite::several_senders_reach_several_receivers::<$transport>(Wait::Busy);
            }

            #[test]
            fn several_senders_reach_several_receivers_blocking() {
                suite::several_senders_reach_several_receivers::<$transport>(Wait::Blocking);
            }

            #[test]
            fn long_messages_arrive_whole() {
                suite::long_messages_arrive_whole::<$transport>();
            }

            #[test]
            fn lanes_do_not_mix() {
                suite::lanes_do_not_mix::<$transport>();
            }
        }
    };
}

/// Defines the test of an adapter with topics: `toroni_bench_harness::topics_conformance!(Adapter);`.
#[macro_export]
macro_rules! topics_conformance {
    ($channel:ty) => {
        #[cfg(test)]
        mod topics_conformance {
            #[allow(unused_imports, reason = "a path from the root needs none of them")]
            use super::*;

            #[test]
            fn subscribers_receive_their_topics_and_no_others() {
                $crate::conformance::subscribers_receive_their_topics_and_no_others::<$channel>();
            }
        }
    };
}

/// Defines the test of an adapter that keeps values: `toroni_bench_harness::values_conformance!(Adapter);`.
#[macro_export]
macro_rules! values_conformance {
    ($channel:ty) => {
        #[cfg(test)]
        mod values_conformance {
            #[allow(unused_imports, reason = "a path from the root needs none of them")]
            use super::*;

            #[test]
            fn the_newest_value_of_each_topic_is_kept() {
                $crate::conformance::the_newest_value_of_each_topic_is_kept::<$channel>();
            }
        }
    };
}

/// Tests values of both lengths: reads, and subscribers that join, before and after values were replaced.
pub fn the_newest_value_of_each_topic_is_kept<V: Values>() {
    for value_bytes in [64, 1024] {
        let kept = &Kept { topics: 20, value_bytes };
        let root = Directory::new();
        let owner = must("create a run directory", RunDirectoryOwner::create(root.path()));
        let directory = owner.directory();
        let _host = must("host", V::host(directory, kept));
        let mut reader = must("open a reader", V::reader(directory, kept));
        let mut writer = must("open a writer", V::writer(directory, kept));
        let mut write = |topics: Range<u16>, numbers: RangeInclusive<u64>| {
            for (topic, number) in
                topics.flat_map(|topic| numbers.clone().map(move |number| (topic, number)))
            {
                must("write", writer.write(topic, &value(kept, topic, number)));
            }
            must("settle", writer.settle());
        };
        write(0..kept.topics, 1..=1);
        assert_values(&mut reader, kept, |_| 1);
        // More than the queues of a channel have space for.
        write(3..6, 2..=5_000);
        assert_values(&mut reader, kept, |topic| if (3..6).contains(&topic) { 5_000 } else { 1 });
    }
}

/// Reads each value alone, and all of them twice as a subscriber that joins.
fn assert_values<R: Reader>(reader: &mut R, kept: &Kept, number: impl Fn(u16) -> u64) {
    let mut expected: Vec<_> =
        (0..kept.topics).map(|topic| value(kept, topic, number(topic))).collect();
    for (topic, expected) in (0..).zip(&expected) {
        must("get", reader.get(topic, |value| assert_eq!(value, expected, "topic {topic}")));
    }
    expected.sort_unstable();
    for _ in 0..2 {
        let mut values = Vec::new();
        let subscriber = must("join", reader.join(|value| values.push(value.to_vec())));
        values.sort_unstable();
        assert!(values == expected, "a subscriber that joined got other values");
        must("leave", reader.leave(subscriber));
    }
}

/// Tests a publisher, a subscriber that wants its messages, and bystanders of other topics and of the same one.
pub fn subscribers_receive_their_topics_and_no_others<C: Topics>() {
    for same in [false, true] {
        let crowd = &Crowd { subscribers: 12, same };
        let root = Directory::new();
        let owner = must("create a run directory", RunDirectoryOwner::create(root.path()));
        let directory = owner.directory();
        let _host = must("host", C::host(directory, crowd));
        let together = &Barrier::new(usize::from(crowd.subscribers) + 1);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let failed = AbortUnlessDone(Role::Sender(0));
                let mut publisher = must("open a publisher", C::publisher(directory, crowd));
                together.wait();
                for topic in [PARTS, MESSAGES, MESSAGES, MESSAGES, PARTS] {
                    must("publish", topics::Publisher::publish(&mut publisher, topic, &[7; 64]));
                    // Otherwise a channel may combine what it has not handed over yet.
                    std::thread::sleep(Duration::from_millis(20));
                }
                must("settle", topics::Publisher::settle(&mut publisher));
                together.wait();
                std::mem::forget(failed);
            });
            for index in 0..crowd.subscribers {
                threads.spawn(move || {
                    let failed = AbortUnlessDone(Role::Receiver(index));
                    let subscriber = C::subscriber(directory, crowd, index);
                    let subscriber = must("subscribe", subscriber);
                    together.wait();
                    let mut heard = Vec::new();
                    let outcome = topics::Subscriber::receive(subscriber, |topic| {
                        heard.push(topic);
                        let parts = heard.iter().filter(|topic| **topic == PARTS).count();
                        if parts == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                    must("receive", outcome);
                    let messages = if crowd.wants_messages(index) { 3 } else { 0 };
                    assert_eq!(heard.len(), messages + 2, "subscriber {index}: {heard:?}");
                    assert!(heard[1..=messages].iter().all(|topic| *topic == MESSAGES));
                    together.wait();
                    std::mem::forget(failed);
                });
            }
        });
    }
}

/// Tests one sender, one receiver, and all ways to send.
pub fn every_message_arrives_in_order<T: Transport>(wait: Wait) {
    for length in [1, 8, 64, 1024] {
        let setup = Setup { wait, message_bytes: length, ..small(1, 1) };
        let received = Run::<T>::new(&setup).go(3_000);
        assert_eq!(received.len(), 1);
    }
}

/// Tests three senders and two receivers: the order of each sender, and the common order if the transport promises one.
pub fn several_senders_reach_several_receivers<T: Transport>(wait: Wait) {
    let setup = Setup { wait, message_bytes: 64, ..small(3, 2) };
    let orders = Run::<T>::new(&setup).go(2_000);
    if T::about(&setup).guarantees.total_order {
        assert!(orders[0] == orders[1], "the receivers saw different orders");
    }
}

/// Tests messages of 64 KiB, each filled with its number, and more than fit at once.
pub fn long_messages_arrive_whole<T: Transport>() {
    let setup = Setup { message_bytes: 64 << 10, ..small(1, 2) };
    Run::<T>::new(&setup).go(200);
}

/// Tests a message and its answer, on two lanes of one run directory.
pub fn lanes_do_not_mix<T: Transport>() {
    let setup = Setup { wait: Wait::Blocking, ..small(1, 1) };
    let root = Directory::new();
    let owner = must("create a run directory", RunDirectoryOwner::create(root.path()));
    let (there, back) = (owner.directory().clone(), owner.directory().second_lane());
    let back = must("create a second lane", back);
    let _hosts = [&there, &back].map(|lane| must("host", T::host(lane, &setup)));
    let together = Barrier::new(2);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let failed = AbortUnlessDone(Role::Receiver(0));
            let mut requests = must("open a receiver", T::receiver(&there, &setup, 0));
            let mut answers = must("open a sender", T::sender(&back, &setup, 0));
            together.wait();
            for _ in 0..100 {
                let mut seen = Vec::new();
                must("receive", requests.wait(|payload| seen.extend_from_slice(payload)));
                seen[0] ^= 0xff;
                must("send", answers.send(&seen));
            }
            together.wait();
            std::mem::forget(failed);
        });
        let failed = AbortUnlessDone(Role::Sender(0));
        let mut requests = must("open a sender", T::sender(&there, &setup, 0));
        let mut answers = must("open a receiver", T::receiver(&back, &setup, 0));
        together.wait();
        for number in 0..100_u8 {
            must("send", requests.send(&[number; 8]));
            let mut seen = Vec::new();
            must("receive", answers.wait(|payload| seen.extend_from_slice(payload)));
            assert_eq!(
                seen,
                [number ^ 0xff, number, number, number, number, number, number, number]
            );
        }
        together.wait();
        std::mem::forget(failed);
    });
}

/// Returns a setup with queues so small that senders often wait for receivers.
fn small(senders: u16, receivers: u16) -> Setup {
    Setup {
        senders,
        receivers,
        message_bytes: 8,
        capacity_bytes: 256 << 10,
        wait: Wait::Busy,
        in_place: false,
    }
}

struct Run<'a, T> {
    setup: &'a Setup,
    transport: std::marker::PhantomData<T>,
}

impl<'a, T: Transport> Run<'a, T> {
    fn new(setup: &'a Setup) -> Self {
        Self { setup, transport: std::marker::PhantomData }
    }

    /// Lets each sender send this number of messages. Returns the order that each receiver saw.
    fn go(&self, messages: u64) -> Vec<Vec<u64>> {
        let setup = self.setup;
        let root = Directory::new();
        let owner = must("create a run directory", RunDirectoryOwner::create(root.path()));
        let directory = owner.directory();
        let _host = must("host", T::host(directory, setup));
        // Like the gate and the finish of a run: no end sends before all are ready, and none leaves before all have
        // got everything.
        let together = Barrier::new(usize::from(setup.senders + setup.receivers));
        let orders = Mutex::new(vec![Vec::new(); usize::from(setup.receivers)]);
        std::thread::scope(|threads| {
            for index in 0..setup.senders {
                let together = &together;
                threads.spawn(move || {
                    let failed = AbortUnlessDone(Role::Sender(index));
                    let mut sender = must("open a sender", T::sender(directory, setup, index));
                    together.wait();
                    send(&mut sender, setup, index, messages);
                    together.wait();
                    std::mem::forget(failed);
                });
            }
            for index in 0..setup.receivers {
                let (together, orders) = (&together, &orders);
                threads.spawn(move || {
                    let failed = AbortUnlessDone(Role::Receiver(index));
                    let mut receiver =
                        must("open a receiver", T::receiver(directory, setup, index));
                    together.wait();
                    let order = receive(&mut receiver, setup, messages);
                    together.wait();
                    orders.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(index)] =
                        order;
                    std::mem::forget(failed);
                });
            }
        });
        orders.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aborts the process if its thread panics: the others would wait for it in calls that cannot be interrupted.
struct AbortUnlessDone(Role);

impl Drop for AbortUnlessDone {
    fn drop(&mut self) {
        eprintln!("{} has failed; its message is above", self.0);
        directory::remove_all();
        std::process::abort();
    }
}

/// Sends one by one, several with one call, and in place, in turn.
fn send<S: Sender>(sender: &mut S, setup: &Setup, index: u16, messages: u64) {
    let length = setup.message_bytes;
    let message = |number: u64| {
        let mut payload = vec![number.to_le_bytes()[0]; length];
        sequence::stamp(&mut payload, index, number);
        payload
    };
    let mut number = 0;
    while number < messages {
        match number % 7 {
            0..=2 => {
                must("send", sender.send(&message(number)));
                number += 1;
            }
            3 => {
                let several: Vec<_> = (number..messages.min(number + 5)).map(message).collect();
                must("send several", sender.send_all(&several));
                number += several.len() as u64;
            }
            _ => {
                let payload = message(number);
                let sent = sender.send_in_place(length, |slot| slot.write(0, &payload));
                must("send in place", sent);
                number += 1;
            }
        }
    }
    must("flush", sender.flush());
}

fn receive<R: Receiver>(receiver: &mut R, setup: &Setup, messages: u64) -> Vec<u64> {
    let expected = messages * u64::from(setup.senders);
    let checker = Checker::new(setup.senders, Lengths::Fixed(setup.message_bytes));
    let mut checker = must("check", checker);
    let mut order = Vec::new();
    let mut number = 0;
    let mut each = |payload: &[u8]| {
        checker.check(payload);
        let front = payload.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        order.push(front.unwrap_or_default());
        // All bytes are those of one message: torn or mixed ones differ.
        if let Some(last) = payload.get(8..).and_then(<[u8]>::last) {
            assert!(payload[8..].iter().all(|byte| byte == last), "a message made of pieces");
        }
        number += 1;
    };
    let mut received = 0;
    while received < expected {
        let before = received;
        // Both calls, so that both are tested.
        let mut count = 0;
        if before % 2 == 0 {
            count = must("poll", receiver.poll(&mut each));
        }
        if count == 0 {
            count = must("wait", receiver.wait(&mut each));
            assert!(count > 0, "waited for nothing");
        }
        received += count as u64;
    }
    assert_eq!(number, expected);
    let faults = checker.verdict(messages);
    assert!(faults.is_none(), "{faults:?}");
    order
}

fn must<T, E: Display>(doing: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("cannot {doing}: {error}"))
}
