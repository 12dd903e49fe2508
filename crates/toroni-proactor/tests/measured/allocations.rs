//! Operations move from list to list without allocations.

use crate::common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toroni_proactor::{
    BufResult, Config, Datagrams, File, Proactor, ProcessorConfig, ProviderType, WaitType,
};
use toroni_testkit::allocations::allocations;
use toroni_testkit::turn;

/// A proactor whose limit is half of the operations of a round.
fn proactor(provider: ProviderType, wait: WaitType) -> Proactor {
    let max_operations = Some(50);
    let config = ProcessorConfig { provider, wait, max_operations, ..ProcessorConfig::default() };
    Proactor::new(&Config::one(config)).unwrap()
}

/// When the tables have grown, a round of 100 operations allocates 100 boxes.
#[track_caller]
fn costs_a_box_for_each(proactor: &Proactor, round: impl Fn()) {
    (0..5).for_each(|_| round());
    let (counted, ()) = allocations(|| (0..10).for_each(|_| round()));
    assert_eq!(counted, 10 * 100, "{:?}", proactor.effective());
}

fn finish_all(proactor: &Proactor) {
    while proactor.outstanding() > 0 {
        proactor.handle_events(Some(Duration::from_millis(100)));
    }
}

/// Each operation makes one allocation: the box with the user's buffer and handler, before the lock is taken.
/// Starting, deferring, cancelling and completing it make none.
#[test]
fn an_operation_costs_the_box_of_its_handler() {
    let _turn = turn();
    let engines = [
        (ProviderType::Select, WaitType::Native),
        (ProviderType::Select, WaitType::Epoll),
        (ProviderType::Uring, WaitType::Native),
    ];
    for (provider, wait) in engines {
        let proactor = proactor(provider, wait);
        let datagrams = Datagrams::bind(&proactor, ANY).unwrap();
        let to = datagrams.local_address().unwrap();
        let sender = std::net::UdpSocket::bind(ANY).unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let round = || {
            // Started and deferred.
            for _ in 0..100 {
                let told = Arc::clone(&told);
                datagrams
                    .read(Vec::new(), move |_: BufResult<_, Vec<u8>>| {
                        told.fetch_add(1, Ordering::Relaxed);
                    })
                    .unwrap();
            }
            // Completed, and then the rest cancelled.
            for _ in 0..60 {
                sender.send_to(b"x", to).unwrap();
            }
            while told.load(Ordering::Relaxed) < 60 {
                proactor.handle_events(Some(Duration::from_millis(100)));
            }
            datagrams.cancel();
            finish_all(&proactor);
            told.store(0, Ordering::Relaxed);
        };
        costs_a_box_for_each(&proactor, round);
        let (posted, ()) = allocations(|| {
            for _ in 0..1000 {
                proactor.post(|| {}).unwrap();
                proactor.handle_events(Some(Duration::ZERO));
            }
        });
        assert_eq!(posted, 0, "a handler without captures needs no box");
    }
}

/// The same with files. Some engines read them in threads of the C library; this counts only its own thread.
#[test]
fn an_operation_of_a_file_costs_the_box_of_its_handler() {
    let _turn = turn();
    let engines = [
        (ProviderType::Select, WaitType::Epoll),
        (ProviderType::Uring, WaitType::Native),
        (ProviderType::Posix, WaitType::Native),
        (ProviderType::Posix, WaitType::Sigwait),
        (ProviderType::Posix, WaitType::Callback),
    ];
    let directory = directory();
    for (provider, wait) in engines {
        let proactor = proactor(provider, wait);
        let file = std::fs::File::create(directory.join("file")).unwrap();
        let file = File::new(&proactor, file).unwrap();
        let round = || {
            for number in 0..100 {
                file.write(number, "x", |written| assert_eq!(written.0, Ok(1))).unwrap();
            }
            finish_all(&proactor);
        };
        costs_a_box_for_each(&proactor, round);
    }
}
