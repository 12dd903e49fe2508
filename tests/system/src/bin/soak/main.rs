//! `toroni-soak key=value …`: the supervisor of the soak. `cargo xtask soak` starts it.
//!
//! `seconds` or `disturbances` (how long it runs), `seed`, `publishers`, `subscribers`, `exclusive` (true: two publishers are exclusive in turn), `lock` (lease, robust), `notify` (futex, datagram, multicast), `policy`
//! (as for `toroni create`), `capacity` (bytes), `calm_ms` (mean time between two disturbances), `json` (a file), `keep`
//! (a folder for the evidence of violations), `sabotage` (a role and a mistake that must be noticed, for example
//! `subscriber:drop`).

use std::process::ExitCode;
use std::time::Duration;
use system_tests::options::Options;
use system_tests::soak::figures::ROLES;
use system_tests::soak::program::{conclude, end_by_signals, seed};
use system_tests::soak::supervisor::{Length, Outcome, Plan, policy_of, run};
use toroni::{LockKind, NotifyKind};

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    let plan = plan(&options);
    end_by_signals();
    println!("{plan:?}");
    println!("seed {}: repeats the choices, not when the processes run", plan.seed);
    let Outcome { figures, kept } = run(&plan);
    let violations: Vec<String> = figures.violations.iter().map(ToString::to_string).collect();
    let (table, json) = (figures.table(), figures.json());
    conclude(&options, plan.seed, &table, &json, &violations, kept.as_deref())
}

fn plan(options: &Options) -> Plan {
    let word = |key: &str, default: &str| options.or(key, default.to_owned());
    let lock = match word("lock", "lease").as_str() {
        "lease" => LockKind::Lease,
        "robust" => LockKind::Robust,
        lock => panic!("no lock {lock:?}"),
    };
    let exclusive = options.or("exclusive", false);
    assert!(!exclusive || lock == LockKind::Lease, "an exclusive publisher needs lock=lease");
    let notify = match word("notify", "futex").as_str() {
        "futex" => NotifyKind::Futex,
        "datagram" => NotifyKind::Datagram,
        "multicast" => NotifyKind::Multicast { group: None },
        notify => panic!("no notifier {notify:?}"),
    };
    let policy = policy_of(&word("policy", "wait:100ms"));
    let sabotage = options.find::<String>("sabotage").map(|words| {
        let (role, what) = words.split_once(':').expect("sabotage=ROLE:WHAT");
        let role = ROLES.iter().position(|one| *one == role).expect("a role");
        (role, what.to_owned())
    });
    Plan {
        length: options.find("disturbances").map_or_else(
            || Length::Time(Duration::from_secs(options.or("seconds", 60))),
            Length::Disturbances,
        ),
        seed: seed(options),
        publishers: options.or::<u32>("publishers", 4).max(3),
        subscribers: options.or::<u32>("subscribers", 6).max(4),
        exclusive,
        lock,
        notify,
        policy: policy.unwrap_or_else(|error| panic!("{error}")),
        capacity: options.or("capacity", 1 << 20),
        calm: Duration::from_millis(options.or("calm_ms", 100)),
        sabotage,
        keep: options.or("keep", std::env::temp_dir().join("toroni-soak")),
    }
}
