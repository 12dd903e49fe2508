use super::*;

fn policy(cores: usize, took: u64, slept: bool) -> WakePolicy {
    let mut policy = WakePolicy { cores, ..WakePolicy::new(1) };
    (0..200).for_each(|_| policy.note(took, slept));
    policy
}

#[test]
fn a_handler_of_which_nothing_is_known_may_sleep() {
    let policy = WakePolicy { cores: 2, ..WakePolicy::new(1) };
    assert!(!policy.finish_sooner(1, 1));
    assert!(!policy.occupy_all_cores(2));
}

#[test]
fn a_few_short_handlers_need_no_second_thread() {
    let policy = policy(2, 2000, false);
    assert!(policy.finish_sooner(1, 3));
    assert!(!policy.finish_sooner(1, 30));
    assert!(!policy.finish_sooner(0, 1), "no thread is at work");
}

#[test]
fn more_threads_than_cores_help_only_where_handlers_sleep() {
    assert!(policy(2, 1_000_000, false).occupy_all_cores(2));
    assert!(!policy(2, 1_000_000, false).occupy_all_cores(1));
    assert!(!policy(2, 1_000_000, true).occupy_all_cores(2));
}

#[test]
fn one_that_lost_its_core_is_not_slow() {
    let mut policy = policy(2, 2000, false);
    policy.note(10_000_000, false);
    assert!(policy.finish_sooner(1, 3));
    (0..200).for_each(|_| policy.note(10_000_000, false));
    assert!(!policy.finish_sooner(1, 1));
}

#[test]
fn a_handler_that_sleeps_is_seen() {
    let mut policy = policy(2, 2000, false);
    for _ in 0..200 * SAMPLED {
        if let Some(mut sample) = policy.sample() {
            sample.begin();
            std::thread::sleep(Duration::from_micros(50));
            sample.end();
            policy.add(&sample, 1);
        }
    }
    assert!(!policy.occupy_all_cores(2));
    assert!(!policy.finish_sooner(1, 1));
}

/// Until a few have taken longer.
#[test]
fn the_kernel_is_not_asked_whether_a_short_handler_has_slept() {
    let mut policy = policy(2, SLEEP / 2, false);
    policy.since_sample = SAMPLED;
    assert!(!policy.sample().unwrap().asks);
    (0..4).for_each(|_| policy.note(SLEEP * 10, false));
    policy.since_sample = SAMPLED;
    assert!(policy.sample().unwrap().asks);
}

#[test]
fn each_shard_has_its_share_of_the_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!([1, cores, 10 * cores].map(|shards| WakePolicy::new(shards).cores), [cores, 1, 1]);
}

#[test]
fn a_thread_looks_at_others_and_returns_by_the_time_that_handlers_take() {
    let of = |took| {
        let policy = policy(2, took, false);
        (policy.results_between_looks(), policy.results_in_visit())
    };
    assert_eq!(of(99_000), (2, 10));
    assert_eq!(of(10_000_000), (1, 1));
    let (between_looks, in_visit) = of(1000);
    assert!(between_looks == MOST && in_visit > 900, "{in_visit}");
}
