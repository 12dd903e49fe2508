//! Files that become shorter while they are mapped. The kernel answers with SIGBUS. Users of the bus get errors; if it is
//! the subscribers' file, publishers continue.

use crate::supervisor;
use std::fs::File;
use std::time::{Duration, Instant};
use toroni::{
    Bus, FileError, OpenError, PublishError, Publisher, PublisherError, ReceiveError, Subscriber,
    SubscriberError,
};
use toroni_fuzz_harness::hostile::template::{
    ARMING_OFFSET, BUS, CAPACITY, DATA_OFFSET, KNOWN, Kind, READER_SLOTS_OFFSET, TABLE_OFFSET,
    Template,
};

const TEST: &str = "truncation::every_file_at_every_part";
/// How soon a subscriber must notice; it checks a few times a second.
const SOON: Duration = Duration::from_secs(20);
/// Where the subscriber's slot begins, and its page.
const SLOT: u64 = READER_SLOTS_OFFSET;

#[test]
fn every_file_at_every_part() {
    supervisor::run(TEST, |child| {
        for kind in [Kind::Lease, Kind::Robust] {
            let template = Template::new(child.directory(), kind);
            let middle = DATA_OFFSET + CAPACITY / 2;
            for cut in [0, 100, 4096, 4096 + 2000, TABLE_OFFSET, DATA_OFFSET, middle] {
                child.case(&format!("{kind:?} ring cut to {cut}"), || cut_ring(&template, cut));
            }
            for cut in [0, 200, ARMING_OFFSET, ARMING_OFFSET + 8192, SLOT, SLOT + 130] {
                let name = format!("{kind:?} readers cut to {cut}");
                child.case(&name, || cut_readers(&template, cut));
            }
            for cut in [0, 200, 4096, 4096 + 130] {
                let name = format!("{kind:?} publishers cut to {cut}");
                child.case(&name, || cut_publishers(&template, cut));
            }
        }
    });
}

struct Users {
    bus: Bus,
    publisher: Publisher,
    subscriber: Subscriber,
}

fn users(template: &Template) -> Users {
    template.restore();
    let bus = template.config().open_existing(BUS).unwrap();
    let publisher = bus.publisher(KNOWN).unwrap();
    let mut subscriber = bus.subscribe("plant/**").unwrap();
    publisher.publish(b"before").unwrap();
    assert!(subscriber.receive().is_ok());
    Users { bus, publisher, subscriber }
}

/// No user can continue, and each gets an error.
fn cut_ring(template: &Template, cut: u64) {
    let Users { bus, publisher, mut subscriber } = users(template);
    truncate(template, "ring", cut);
    let end = Instant::now() + SOON;
    let receive_error = loop {
        // The subscriber polls, or sleeps; the publisher gets to the part that is missing.
        let _ = publisher.publish_within([1; 500], Duration::from_millis(1));
        match subscriber.receive_timeout(Duration::from_millis(1)) {
            Ok(_) | Err(ReceiveError::Lapped { .. }) => {
                assert!(Instant::now() < end, "the subscriber got no error");
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(receive_error, ReceiveError::Corrupt(_)), "{receive_error}");
    assert!(matches!(polled_error(&mut subscriber, end), ReceiveError::Corrupt(_)));
    let publish_error = loop {
        match publisher.publish_within([1; 500], Duration::from_millis(1)) {
            Ok(_) | Err(PublishError::Timeout) => {
                assert!(Instant::now() < end, "the publisher got no error");
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(publish_error, PublishError::Corrupt(_)), "{publish_error}");
    assert!(bus.stats().is_err(), "opens the file again");
    let again = template.config().open_existing(BUS);
    assert!(
        matches!(&again, Err(OpenError::File(FileError::Truncated { found, .. })) if *found == cut),
        "{again:?}"
    );
}

fn polled_error(subscriber: &mut Subscriber, end: Instant) -> ReceiveError {
    loop {
        match subscriber.try_receive() {
            Ok(_) | Err(ReceiveError::Lapped { .. }) => {
                assert!(Instant::now() < end, "a subscriber that polls got no error");
            }
            Err(error) => return error,
        }
    }
}

/// Publishers continue, old and new ones; subscribers get an error.
fn cut_readers(template: &Template, cut: u64) {
    let Users { bus, publisher, mut subscriber } = users(template);
    truncate(template, "readers", cut);
    let newer = template.config().open_existing(BUS).unwrap();
    let new_publisher = newer.publisher("other/new").unwrap();
    // In a thread of its own: this one reads the subscriber, and must not wait for it.
    let publish = || {
        for publisher in [&publisher, &new_publisher] {
            for _ in 0..3 * CAPACITY / 500 {
                publisher.publish([1; 500]).unwrap();
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(publish).join().expect("it published"));
    // The subscriber can read what is there. When it is drained, it checks its files and returns the error. If a part of
    // the page of its slot is left, nothing has happened to it.
    let end = Instant::now() + SOON;
    let mut waits = 0;
    let error = loop {
        match subscriber.receive_timeout(Duration::from_millis(1)) {
            Ok(None) if cut > SLOT && waits > 10 => break None,
            Ok(None) => waits += 1,
            Ok(Some(_)) | Err(ReceiveError::Lapped { .. }) => {}
            Err(error) => break Some(error),
        }
        assert!(Instant::now() < end, "the subscriber got no error");
    };
    let told = matches!(error, Some(ReceiveError::Corrupt(_)));
    assert!(told == (cut <= SLOT), "{error:?}");
    assert!(matches!(
        newer.subscribe("**"),
        Err(SubscriberError::File(FileError::Truncated { .. }))
    ));
    publisher.publish(b"and on").unwrap();
    drop((subscriber, bus));
}

/// Subscribers do not know of that file. Publishers that are there may notice or not; new ones do.
fn cut_publishers(template: &Template, cut: u64) {
    let Users { bus: _bus, publisher, mut subscriber } = users(template);
    truncate(template, "publishers", cut);
    for _ in 0..3 * CAPACITY / 500 {
        match publisher.publish([1; 500]) {
            Ok(_) => assert!(subscriber.receive().is_ok()),
            Err(error) => {
                assert!(matches!(error, PublishError::Corrupt(_)), "{error}");
                break;
            }
        }
    }
    assert!(subscriber.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
    let newer = template.config().open_existing(BUS).unwrap();
    assert!(newer.subscribe("**").is_ok());
    let refused = newer.publisher(KNOWN).map(drop);
    assert!(
        matches!(refused, Err(PublisherError::File(FileError::Truncated { .. }))),
        "{refused:?}"
    );
}

fn truncate(template: &Template, file: &str, to: u64) {
    let path = template.root().join(BUS).join(file);
    File::options().write(true).open(path).unwrap().set_len(to).unwrap();
}
