//! What a log shows of itself, and whether it is behind that later.

use toroni_testkit::directory::copy;

use super::*;

#[test]
fn a_log_is_behind_what_it_has_shown_only_if_it_was_rolled_back() {
    let mut random = Random::from_environment();
    let mut rolled_back = 0;
    for _ in 0..40 {
        let sync = if random.below(2) == 0 { Sync::Always } else { Sync::OFTEN };
        let options = Options { sync, ..SMALL };
        let (directory, backup) = (in_memory(), in_memory());
        let mut log = Log::open(directory.path(), options).expect("opened");
        let (mut next, mut purged, mut term) = (0, 0, 1);
        let (mut shown, mut copied) = (log.glance().reach, None);
        for _ in 0..30 {
            match random.below(7) {
                0 => {
                    if random.below(2) == 0 {
                        log.close().expect("closed");
                    }
                    drop(log);
                    log = Log::open(directory.path(), options).expect("opened");
                    assert!(!log.compare_with(shown).expect("written"));
                }
                1 if next > purged => {
                    next -= random.below(next - purged);
                    log.truncate(next).expect("cut");
                    term += 1;
                }
                2 if next > purged + 1 => {
                    purged += 1 + random.below(next - purged - 1);
                    let last = log.read(purged - 1..purged, 0).expect("readable")[0].place;
                    log.purge(last).expect("purged");
                }
                3 if copied.is_none() => {
                    copy(directory.path(), backup.path());
                    copied = Some(shown);
                }
                _ => {
                    append(&log, &[entry(place(term, next))]);
                    next += 1;
                }
            }
            let reach = log.glance().reach;
            assert!(reach >= shown, "{reach:?} after {shown:?}");
            shown = reach;
        }
        drop(log);
        if let Some(before) = copied.filter(|before| *before < shown) {
            rolled_back += 1;
            // However often it was opened before others are asked.
            for _ in 0..random.below(3) {
                let log = Log::open(backup.path(), options).expect("opened");
                if random.below(2) == 0 {
                    log.close().expect("closed");
                }
            }
            let log = Log::open(backup.path(), options).expect("opened");
            assert!(!log.compare_with(before).expect("written"));
            assert!(log.compare_with(shown).expect("written"), "{before:?}, {shown:?}");
            assert!(log.glance().is_uncertain);
            // What it shows from now on is later, so each of the others has to say it only once.
            assert!(log.glance().reach > shown);
            drop(log);
            let log = Log::open(backup.path(), options).expect("opened");
            assert!(log.is_uncertain());
            assert!(!log.compare_with(shown).expect("written"));
            // Brought up by a leader. Another member may have seen more, and says so only now.
            append(&log, &[entry(place(99, log.ends().1.map_or(0, |last| last.index + 1)))]);
            log.settle().expect("written");
            let later = Reach { last: Some(place(98, 1 << 30)), ..shown };
            assert!(!log.compare_with(later).expect("written"));
            assert!(!log.is_uncertain());
        }
    }
    assert!(rolled_back > 10, "only {rolled_back}");
}

#[test]
fn a_glance_waits_for_nothing() {
    let directory = in_memory();
    let log = Log::open(directory.path(), SMALL).expect("opened");
    let opened = log.glance().reach;
    append(&log, &[entry(place(1, 0))]);
    let before = log.glance();
    assert_eq!(before.last, Some(place(1, 0)));
    let held = log.shared.lock();
    assert_eq!(log.glance(), before);
    assert!(!log.compare_with(opened).expect("nothing is written"));
    drop(held);
    append(&log, &[entry(place(1, 1))]);
    assert_eq!(log.glance().reach.last, Some(place(1, 1)));
}

#[test]
fn a_generation_that_no_log_has_is_not_believed() {
    let directory = in_memory();
    let log = Log::open(directory.path(), SMALL).expect("opened");
    let shown = Reach { generation: crate::entry::MOST_ENTRIES, last: None };
    assert!(!log.compare_with(shown).expect("written"));
    assert!(!log.is_uncertain());
    drop(log);
    Log::open(directory.path(), SMALL).expect("it opens again");
}
