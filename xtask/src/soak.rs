//! `cargo xtask soak`: runs publishers and subscribers that are killed, stopped and restarted, for as long as you like,
//! and checks every message; with `--net`, the nodes of several hosts; with `--sequencer`, those that keep one order.
//!
//! The processes are built optimised and with the library's asserts (`hooked.rs`); with `--net` and `--sequencer`, in the same
//! profile, but without crash points.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, cargo, run as run_command};
use crate::hooked;
use crate::metadata;

#[derive(Args)]
pub(crate) struct Options {
    /// How many minutes [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// How many seconds, instead of minutes
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// End after this number of disturbances, whatever time they take
    #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "seconds", "net", "sequencer"])]
    disturbances: Option<u64>,
    /// Repeat the choices of an earlier run
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Number of publishers, at least 3
    #[arg(long, value_name = "P", default_value_t = 4)]
    publishers: u32,
    /// Number of subscribers, at least 4
    #[arg(long, value_name = "Q", default_value_t = 6)]
    subscribers: u32,
    /// Make two of the publishers exclusive: they are killed and replaced, and take over from each other, while the other
    /// publishers publish only in between. Needs --lock lease
    #[arg(long)]
    exclusive: bool,
    /// Kind of writer lock: lease or robust
    #[arg(long, default_value = "lease")]
    lock: String,
    /// Notifier: futex, datagram or multicast
    #[arg(long, default_value = "futex")]
    notify: String,
    /// Policy, for example wait:100ms, wait:forever, overwrite, bounded:50ms/1s
    #[arg(long, default_value = "wait:100ms")]
    policy: String,
    /// Size of the ring in bytes, a power of two, at least 65536
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    capacity: u64,
    /// Mean time between two disturbances, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100)]
    calm_ms: u64,
    /// Make one worker misbehave, which the run must notice: subscriber:drop, publisher:skip …; with --net and --sequencer
    /// drop, double or swap
    #[arg(long, value_name = "ROLE:WHAT")]
    sabotage: Option<String>,
    /// Nodes on several hosts, which are network namespaces, behind a switch that loses and reorders. Needs root. Of the
    /// other options, only --minutes, --seconds, --seed, --sabotage and --json go with it
    #[arg(long)]
    net: bool,
    /// With --net: number of hosts that publish; one more only receives, and loses much
    #[arg(long, value_name = "N", default_value_t = 3, requires = "net")]
    hosts: u32,
    /// With --net: messages that each host publishes in a second
    #[arg(long, value_name = "N", default_value_t = 5_000, requires = "net")]
    rate: u32,
    /// Members of a sequencer on several hosts, which are network namespaces: faults of many kinds, and every command is checked.
    /// Needs root. Of the other options, only --minutes, --seconds, --seed, --sabotage and --json go with it
    #[arg(long, conflicts_with = "net")]
    sequencer: bool,
    /// With --sequencer: number of members, 3 or 5. A further host has no member, and one has an archive
    #[arg(long, value_name = "N", default_value = "3", value_parser = ["3", "5"], requires = "sequencer")]
    members: String,
    /// With --sequencer: end after this number of kills of the leader, whatever time they take
    #[arg(long, value_name = "N", conflicts_with_all = ["minutes", "seconds"], requires = "sequencer")]
    kills: Option<u64>,
    /// With --sequencer: only these kinds of faults, separated by commas: kill, terminate, stop, cut, one-way, lossy, full-disk,
    /// elect, change, clock, disk-error, power, restore, hostile, pair [default: all]
    #[arg(long, value_name = "NAMES", requires = "sequencer")]
    nemesis: Option<String>,
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let target = metadata::members()?.target_directory;
    let keep = format!("keep={}", target.join("soak-kept").display());
    let mut soak = if options.net {
        let mut soak = between_hosts(&target, "toroni-net-soak")?;
        soak.arg(format!("hosts={}", options.hosts)).arg(format!("rate={}", options.rate));
        soak
    } else if options.sequencer {
        let mut soak = between_hosts(&target, "toroni-sequencer-soak")?;
        soak.arg(format!("members={}", options.members)).arg(keep);
        soak.args(options.nemesis.iter().map(|names| format!("nemesis={names}")));
        soak.args(options.kills.iter().map(|kills| format!("kills={kills}")));
        soak
    } else {
        hooked::build()?;
        let mut soak = Command::new(hooked::program("toroni-soak")?);
        soak.arg(format!("publishers={}", options.publishers))
            .arg(format!("subscribers={}", options.subscribers))
            .arg(format!("exclusive={}", options.exclusive))
            .arg(format!("lock={}", options.lock))
            .arg(format!("notify={}", options.notify))
            .arg(format!("policy={}", options.policy))
            .arg(format!("capacity={}", options.capacity))
            .arg(format!("calm_ms={}", options.calm_ms))
            .arg(keep);
        soak
    };
    if let Some(disturbances) = options.disturbances {
        soak.arg(format!("disturbances={disturbances}"));
    } else {
        let minutes = options.minutes.map(|minutes| minutes * 60);
        soak.arg(format!("seconds={}", minutes.or(options.seconds).unwrap_or(60)));
    }
    if let Some(seed) = options.seed {
        soak.arg(format!("seed={seed}"));
    }
    if let Some(sabotage) = &options.sabotage {
        soak.arg(format!("sabotage={sabotage}"));
    }
    if let Some(json) = &options.json {
        soak.arg(format!("json={}", json.display()));
    }
    run_command(&mut soak)
}

/// Builds the programs without crash points, and returns one of the soaks between hosts.
fn between_hosts(target: &Path, name: &str) -> Result<Command, Failure> {
    let mut build = cargo(["build", "--locked", "--profile", "soak", "--bins"]);
    build.args(["--example", "toroni_shim"]);
    run_command(build.args(["-p", "system-tests", "-p", "toroni-cli", "-p", "toroni-node"]))?;
    let mut soak = Command::new(target.join("soak").join(name));
    soak.env("TORONI_BIN", target.join("soak/toroni"));
    Ok(soak)
}
