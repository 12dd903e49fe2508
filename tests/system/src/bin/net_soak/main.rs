//! `toroni-net-soak key=value …`: the soak between hosts. `cargo xtask soak --net` starts it, as root.
//!
//! `seconds`, `seed`, `hosts` (beside the crybaby), `publishers` (of each host), `rate` (messages in a second, of each
//! host), `data_mbit` (each node's `data_rate`), `loss` and `crybaby_loss` (probabilities), `calm_ms` (mean time between
//! two disturbances), `json` (a file), `sabotage` (`drop`, `double` or `swap`: a mistake that must be noticed).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use system_tests::net_soak::supervisor::{INTERRUPTED, Plan, run};
use system_tests::options::Options;

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    let plan = plan(&options);
    // SAFETY: the handler stores to an atomic, and nothing else.
    unsafe {
        let handler = interrupted as extern "C" fn(libc::c_int);
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
        libc::signal(libc::SIGTERM, handler as libc::sighandler_t);
    }
    println!("{plan:?}");
    println!("seed {}: repeats the choices, not when the processes run", plan.seed);
    let Some(figures) = run(&plan) else { return ExitCode::SUCCESS };
    print!("\n{}", figures.table());
    if let Some(path) = options.find::<PathBuf>("json") {
        let text = format!("{:#}\n", figures.json());
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    let violations = figures.violations();
    if violations.is_empty() {
        println!("\nnothing wrong");
        return ExitCode::SUCCESS;
    }
    println!();
    for violation in violations {
        println!("VIOLATION {violation}");
    }
    println!("seed {}", plan.seed);
    ExitCode::FAILURE
}

extern "C" fn interrupted(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn plan(options: &Options) -> Plan {
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Plan {
        duration: Duration::from_secs(options.or("seconds", 60)),
        seed: options.or("seed", clock.as_secs() << 20 ^ u64::from(clock.subsec_nanos())),
        hosts: options.or::<usize>("hosts", 3).clamp(2, 20),
        publishers: options.or::<usize>("publishers", 10).max(1),
        rate: options.or("rate", 2_000),
        data_mbit: options.or("data_mbit", 50),
        loss: options.or("loss", 0.05),
        crybaby_loss: options.or("crybaby_loss", 0.3),
        calm: Duration::from_millis(options.or("calm_ms", 1_000)),
        sabotage: options.find("sabotage"),
    }
}
