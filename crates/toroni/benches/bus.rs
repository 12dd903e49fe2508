//! Speed of the bus with a reader that polls on another core: `cargo bench -p toroni`.
//!
//! Each measurement publishes a number of messages and ends when the reader has received the last one,
//! so that nothing counts that is not delivered. The reader reports a loss as a failure. Run it on an
//! otherwise idle machine of at least two cores; compare only what was measured in one run.

#![allow(clippy::unwrap_used, reason = "a benchmark that panics has failed")]
#![allow(missing_docs, reason = "the macro makes a function without")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, LockKind, Publisher, WaitStrategy};

/// A bus in a directory of its own, which goes with it.
struct Fixture {
    bus: Bus,
    directory: std::path::PathBuf,
}

impl Fixture {
    fn new(lock: LockKind) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory: std::path::PathBuf =
            format!("/dev/shm/toroni-bench-{}-{number}", std::process::id()).into();
        let config = BusConfig::new().directory(&directory).lock(lock).prefault(true);
        Self { bus: config.open("bench").unwrap(), directory }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs `publish`, which publishes messages one after the other on the publisher until the count it is
/// handed is reached, against one reader; returns the time until the reader has them all.
fn with_reader(bus: &Bus, count: u64, publish: impl FnOnce(&Publisher)) -> Duration {
    let publisher = bus.publisher("bench/topic").unwrap();
    let mut subscriber =
        bus.subscriber().pattern("bench/**").wait(WaitStrategy::Spin).build().unwrap();
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            ready.store(true, Ordering::Release);
            let mut sum = 0_u64;
            for _ in 0..count {
                let message = subscriber.receive().unwrap();
                sum = sum.wrapping_add(u64::from(message.payload().first().copied().unwrap_or(0)));
            }
            std::hint::black_box(sum);
            Instant::now()
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let began = Instant::now();
        publish(&publisher);
        reader.join().unwrap() - began
    })
}

fn single(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish one at a time");
    for lock in [LockKind::Lease, LockKind::Robust] {
        for size in [8_usize, 64, 256, 1024, 16384] {
            let fixture = Fixture::new(lock);
            let payload = vec![7; size];
            group.throughput(if size < 1024 {
                Throughput::Elements(1)
            } else {
                Throughput::Bytes(size as u64)
            });
            group.bench_function(BenchmarkId::new(format!("{lock:?}"), size), |bencher| {
                bencher.iter_custom(|count| {
                    with_reader(&fixture.bus, count, |publisher| {
                        for _ in 0..count {
                            publisher.publish(&payload).unwrap();
                        }
                    })
                });
            });
        }
    }
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batches of 64");
    for size in [8_usize, 64] {
        let fixture = Fixture::new(LockKind::Lease);
        let payloads = vec![vec![7; size]; 64];
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        group.throughput(Throughput::Elements(64));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|count| {
                with_reader(&fixture.bus, count * 64, |publisher| {
                    for _ in 0..count {
                        publisher.publish_batch(&payloads).unwrap();
                    }
                })
            });
        });
    }
}

fn bursts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bursts of 1000");
    for size in [8_usize, 64] {
        let fixture = Fixture::new(LockKind::Lease);
        let payloads = vec![vec![7; size]; 1000];
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        group.throughput(Throughput::Elements(1000));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|count| {
                with_reader(&fixture.bus, count * 1000, |publisher| {
                    for _ in 0..count {
                        publisher.burst(&payloads).unwrap();
                    }
                })
            });
        });
    }
}

/// Without a polling reader: the cost of the call itself, and of reading what is there.
fn alone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("alone");
    let fixture = Fixture::new(LockKind::Lease);
    let publisher = fixture.bus.publisher("bench/topic").unwrap();
    group.throughput(Throughput::Elements(1));
    group.bench_function("publish 8 bytes, no subscriber", |bencher| {
        bencher.iter(|| publisher.publish([7; 8]).unwrap());
    });
    let mut subscriber = fixture.bus.subscribe("bench/**").unwrap();
    let payloads = vec![[7; 8]; 10_000];
    for (name, mine) in [("receive 8 bytes", true), ("skip 8 bytes on another topic", false)] {
        group.bench_function(name, |bencher| {
            let other = fixture.bus.publisher("other").unwrap();
            let publisher = if mine { &publisher } else { &other };
            bencher.iter_custom(|count| {
                let mut left = count;
                let mut spent = Duration::ZERO;
                while left > 0 {
                    let now = left.min(10_000);
                    publisher.burst(&payloads[..usize::try_from(now).unwrap()]).unwrap();
                    let began = Instant::now();
                    while let Some(message) = subscriber.try_receive().unwrap() {
                        std::hint::black_box(message.payload());
                    }
                    spent += began.elapsed();
                    left -= now;
                }
                spent
            });
        });
    }
}

/// Two threads publish, one reads: on two cores they share one of them.
fn contended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("two publishers");
    for lock in [LockKind::Lease, LockKind::Robust] {
        let fixture = Fixture::new(lock);
        group.throughput(Throughput::Elements(2));
        group.bench_function(BenchmarkId::new(format!("{lock:?}"), 8), |bencher| {
            bencher.iter_custom(|count| {
                let again = fixture.bus.publisher("bench/topic").unwrap();
                with_reader(&fixture.bus, 2 * count, |publisher| {
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            for _ in 0..count {
                                again.publish([7; 8]).unwrap();
                            }
                        });
                        for _ in 0..count {
                            publisher.publish([7; 8]).unwrap();
                        }
                    });
                })
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    targets = single, batches, bursts, alone, contended
}
criterion_main!(benches);
