//! `toroni-sequencer-soak key=value …`: the soak of the sequencer. `cargo xtask soak --sequencer` starts it, as root.
//!
//! `seconds`, or `kills` (of leaders), `seed`, `members` (3 or 5), `nemesis` (kinds of faults, separated by commas; without it, all),
//! `rate` (commands in a second, of each host), `calm_ms` (mean time between two faults), `limit_ms` (how long a command may wait for
//! its event when the last fault is over), `json` (a file), `keep` (a directory for evidence), `sabotage` (`drop`, `double` or `swap`: a
//! mistake that must be noticed).

use std::process::ExitCode;
use std::time::Duration;
use system_tests::options::Options;
use system_tests::sequencer_soak::nemesis::Kind;
use system_tests::sequencer_soak::supervisor::{Length, Outcome, Plan, run};
use system_tests::soak::program::{conclude, end_by_signals, seed};

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    let plan = plan(&options);
    end_by_signals();
    println!("{plan:?}");
    println!("seed {}: repeats the choices, not when the processes run", plan.seed);
    let Some(Outcome { figures, kept }) = run(&plan) else { return ExitCode::SUCCESS };
    let (table, json) = (figures.table(), figures.json());
    conclude(&options, plan.seed, &table, &json, &figures.violations, kept.as_deref())
}

fn plan(options: &Options) -> Plan {
    let members = options.or("members", 3);
    assert!([3, 5].contains(&members), "members={members}: 3 or 5");
    let milliseconds = |key, default| Duration::from_millis(options.or(key, default));
    Plan {
        length: options.find("kills").map_or_else(
            || Length::Time(Duration::from_secs(options.or("seconds", 60))),
            Length::Kills,
        ),
        seed: seed(options),
        members,
        nemeses: nemeses(options.find::<String>("nemesis")),
        rate: options.or("rate", 60),
        calm: milliseconds("calm_ms", 500),
        limit: milliseconds("limit_ms", 15_000),
        sabotage: options.find("sabotage"),
        keep: options.or("keep", std::env::temp_dir().join("toroni-soak")),
    }
}

fn nemeses(names: Option<String>) -> Vec<Kind> {
    let Some(names) = names else { return Kind::ALL.to_vec() };
    let kind = |name| {
        let all = Kind::ALL.map(Kind::name).join(", ");
        Kind::named(name).unwrap_or_else(|| panic!("no nemesis {name:?}: {all}"))
    };
    names.split(',').map(kind).collect()
}
