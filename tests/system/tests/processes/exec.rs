//! `exec`: a process that becomes another program leaves the bus, whatever it held. Its process id lives on, but no
//! process takes it for a participant.

use std::time::Duration;
use system_tests::worker::{BUS, Fixture};
use system_tests::{Watchdog, wait_until};
use toroni::LockKind;

#[test]
fn who_becomes_another_program_leaves_its_slots_and_the_lock() {
    let _watchdog = Watchdog::start("exec", Duration::from_secs(300));
    for lock in [LockKind::Lease, LockKind::Robust] {
        for case in ["case=idle", "case=inside", "case=beside"] {
            let mut fixture = Fixture::new(|config| config.capacity(64 << 10).lock(lock));
            let bus = fixture.bus();
            let mut subscriber = bus.subscribe("**").expect("a subscriber");
            let publisher = bus.publisher("exec/test").expect("a publisher");
            let mut worker = fixture.start("exec", &[case]);
            worker.running.expect("another program");
            // What was under way never existed, and no process waits for it.
            publisher.publish(b"after").expect("published");
            for expected in [&b"before"[..], b"after"] {
                let message = subscriber.receive().expect("received");
                assert_eq!(message.payload(), expected, "{lock:?} {case}");
            }
            assert!(subscriber.try_receive().expect("received").is_none(), "{lock:?} {case}");
            wait_until("its leases are free", || {
                let info = fixture.root.info(BUS);
                let pid = u64::from(worker.running.id());
                let mut slots = info.publishers().iter().chain(info.subscribers());
                slots.all(|slot| slot["pid"].as_u64() != Some(pid) || slot["alive"] == false)
            });
            let _ = fixture.root.succeed(&["clean"]);
            let info = fixture.root.info(BUS);
            info.assert_no_dead(true);
            assert_eq!((info.publishers().len(), info.subscribers().len()), (1, 1), "{info:?}");
            drop((publisher, subscriber, bus));
            assert!(worker.running.ended().is_none(), "the other program lives");
            fixture.root.assert_clean_leaves_nothing();
        }
    }
}
