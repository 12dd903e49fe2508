use super::*;
use std::os::unix::net::UnixDatagram;

/// The kernel watches the open file, not the number: a duplicate that is closed is still reported.
#[test]
fn a_duplicate_that_is_forgotten_causes_no_events() {
    let (original, peer) = UnixDatagram::pair().unwrap();
    let epoll = Epoll::new().unwrap();
    let events = || {
        epoll.wait(Some(Duration::ZERO));
        std::iter::from_fn(|| epoll.next_event()).count()
    };
    let duplicate = original.try_clone().unwrap();
    epoll.watch(duplicate.as_fd()).unwrap();
    events();
    peer.send(b"x").unwrap();
    assert_eq!(events(), 1);
    epoll.unwatch(duplicate.as_fd());
    drop(duplicate);
    peer.send(b"x").unwrap();
    assert_eq!(events(), 0);
}
