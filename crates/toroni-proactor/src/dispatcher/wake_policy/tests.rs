use super::*;

fn pace(cores: usize, took: u64, slept: bool) -> Pace {
    let mut pace = Pace { cores, ..Pace::new() };
    (0..200).for_each(|_| pace.note(took, slept));
    pace
}

#[test]
fn a_handler_of_which_nothing_is_known_may_sleep() {
    let pace = Pace { cores: 2, ..Pace::new() };
    assert!(!pace.are_quick(1, 1));
    assert!(!pace.are_all(2));
}

#[test]
fn short_handlers_need_nobody_for_little() {
    let pace = pace(2, 2000, false);
    assert!(pace.are_quick(1, 3));
    assert!(!pace.are_quick(1, 30));
    assert!(!pace.are_quick(0, 1), "nobody is at work");
}

#[test]
fn more_threads_than_cores_help_only_where_handlers_sleep() {
    assert!(pace(2, 1_000_000, false).are_all(2));
    assert!(!pace(2, 1_000_000, false).are_all(1));
    assert!(!pace(2, 1_000_000, true).are_all(2));
}

#[test]
fn one_that_lost_its_core_is_not_slow() {
    let mut pace = pace(2, 2000, false);
    pace.note(10_000_000, false);
    assert!(pace.are_quick(1, 3));
    (0..200).for_each(|_| pace.note(10_000_000, false));
    assert!(!pace.are_quick(1, 1));
}

#[test]
fn a_handler_that_sleeps_is_seen() {
    let mut pace = pace(2, 2000, false);
    for _ in 0..200 * SAMPLED {
        if let Some(mut sample) = pace.sample() {
            sample.begin();
            std::thread::sleep(Duration::from_micros(50));
            sample.end();
            pace.add(&sample);
        }
    }
    assert!(!pace.are_all(2));
    assert!(!pace.are_quick(1, 1));
}
