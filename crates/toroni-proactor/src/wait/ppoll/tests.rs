use super::*;
use crate::tests::common::*;
use std::io::{Write, pipe};
use std::os::fd::AsRawFd;

fn ask_for(ppoll: &Ppoll, asked: &[(&dyn AsRawFd, bool)]) {
    let mut leader = ppoll.leader();
    leader.entries.clear();
    leader.seen = 0;
    for (descriptor, reading) in asked {
        leader.ask_for(descriptor.as_raw_fd(), *reading);
    }
}

fn events(ppoll: &Ppoll) -> Vec<Event> {
    ppoll.wait(Some(Duration::ZERO));
    std::iter::from_fn(|| ppoll.next_event()).collect()
}

#[test]
fn a_descriptor_has_one_entry_for_both_directions() {
    let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let (reader, _writer) = pipe().unwrap();
    let ppoll = Ppoll::default();
    let event = |readable, writable| {
        vec![Event::Ready { descriptor: ours.as_raw_fd(), readable, writable }]
    };
    // The same entry again, in lists of other descriptors and in another order.
    for _ in 0..2 {
        ask_for(&ppoll, &[(&ours, true), (&reader, true), (&ours, false)]);
        assert_eq!(ppoll.leader().entries.len(), 2);
        assert_eq!(events(&ppoll), event(false, true));
        ask_for(&ppoll, &[(&reader, true), (&ours, true)]);
        assert_eq!(events(&ppoll), []);
    }
    peer.write_all(b"x").unwrap();
    ask_for(&ppoll, &[(&reader, true), (&ours, false), (&ours, true)]);
    assert_eq!(events(&ppoll), event(true, true));
    ask_for(&ppoll, &[(&ours, true)]);
    assert_eq!(events(&ppoll), event(true, false));
}

/// However long a list the kernel takes, it is asked now and then, and not all the time.
#[test]
fn a_list_that_is_too_long_is_no_reason_to_spin() {
    alone("wait::ppoll::tests::a_list_that_is_too_long_is_no_reason_to_spin", || {
        let pipes: Vec<_> = (0..50).map(|_| pipe().unwrap()).collect();
        let asked: Vec<(&dyn AsRawFd, bool)> =
            pipes.iter().map(|(reader, _)| (reader as _, true)).collect();
        let ppoll = Ppoll::default();
        for limit in [20, 1, 0] {
            limit_descriptors(limit);
            let begun = Instant::now();
            for _ in 0..20 {
                ask_for(&ppoll, &asked);
                ppoll.wait(None);
                let rescan = (limit == 0).then_some(Event::Rescan);
                assert_eq!(ppoll.next_event(), rescan);
            }
            assert!(begun.elapsed() >= 20 * AGAIN);
            // A wait that may not wait does not.
            ask_for(&ppoll, &asked);
            assert!(events(&ppoll).iter().all(|event| *event == Event::Rescan));
        }
        // A leak checker opens files at the end.
        limit_descriptors(100);
    });
}
