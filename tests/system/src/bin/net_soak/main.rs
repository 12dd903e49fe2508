//! `toroni-net-soak key=value …`: the soak between hosts. `cargo xtask soak --net` starts it, as root.
//!
//! `seconds`, `seed`, `hosts` (beside the crybaby), `publishers` (of each host), `rate` (messages in a second, of each
//! host), `data_mbit` (each node's `data_rate`), `loss` and `crybaby_loss` (probabilities), `calm_ms` (mean time between
//! two disturbances), `reboots` (whether hosts are rebooted and restored from backups), `recorder` (how many recorded datagrams a
//! stranger sends again in a second), `json` (a file), `sabotage` (`drop`, `double` or `swap`: a mistake that must be noticed).

use std::process::ExitCode;
use std::time::Duration;
use system_tests::net_soak::supervisor::{Plan, run};
use system_tests::options::Options;
use system_tests::soak::program::{conclude, end_by_signals, seed};

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    let plan = plan(&options);
    end_by_signals();
    println!("{plan:?}");
    println!("seed {}: repeats the choices, not when the processes run", plan.seed);
    let Some(figures) = run(&plan) else { return ExitCode::SUCCESS };
    let (table, json) = (figures.table(), figures.json());
    conclude(&options, plan.seed, &table, &json, &figures.violations(), None)
}

fn plan(options: &Options) -> Plan {
    Plan {
        duration: Duration::from_secs(options.or("seconds", 60)),
        seed: seed(options),
        hosts: options.or::<usize>("hosts", 3).clamp(2, 20),
        publishers: options.or::<usize>("publishers", 10).max(1),
        rate: options.or("rate", 2_000),
        data_mbit: options.or("data_mbit", 50),
        loss: options.or("loss", 0.05),
        crybaby_loss: options.or("crybaby_loss", 0.3),
        calm: Duration::from_millis(options.or("calm_ms", 1_000)),
        reboots: options.or("reboots", true),
        recorder: options.or("recorder", 200),
        sabotage: options.find("sabotage"),
    }
}
