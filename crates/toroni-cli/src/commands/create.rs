//! `toroni create`: creates a bus with the given settings.

use crate::settings::{parse_lock, parse_notify, parse_policy};
use clap::Args;
use toroni::{BusConfig, LockKind, NotifyKind, OpenError, Policy};
use toroni_shell::failure::Failure;
use toroni_shell::human::{self, parse_bytes, parse_mode};
use toroni_shell::location::BusLocation;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni create plant --capacity 64MiB --policy wait:forever
  toroni create ticks --policy overwrite --writers feed --readers traders
  toroni create pod --lock lease --notify multicast:239.255.1.2:5000
  toroni create plant --if-absent --capacity 64MiB     in a script that may run again

The bus is persistent: it stays until `toroni rm NAME` removes it, unless --temporary is given.")]
pub(crate) struct Create {
    /// Name of the new bus
    name: String,
    /// Size of the ring: a power of two from 64KiB to 1TiB [default: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
    /// How many subscribers can exist at the same time, at most 1024 [default: 128]
    #[arg(long, value_name = "N")]
    max_subscribers: Option<u32>,
    /// How many opened buses can publish at the same time, at most 1024 [default: 128]
    #[arg(long, value_name = "N")]
    max_publishers: Option<u32>,
    /// What publishers do when a subscriber is slow: wait[:LIMIT|:forever], overwrite, bounded:BUDGET/PER [default: wait:100ms]
    #[arg(long, value_parser = parse_policy)]
    policy: Option<Policy>,
    /// Kind of the writer lock: lease (works across containers) or robust [default: lease]
    #[arg(long, value_name = "KIND", value_parser = parse_lock)]
    lock: Option<LockKind>,
    /// Group that may publish, by name or number; a user who also subscribes needs both groups
    #[arg(long, value_name = "GROUP")]
    writers: Option<String>,
    /// Group that may subscribe, by name or number; a user who also publishes needs both groups
    #[arg(long, value_name = "GROUP")]
    readers: Option<String>,
    /// File mode in octal: read permission lets a class subscribe, read and write permission lets it also publish [default: from the umask; a class that could only read or only write gets no access]
    #[arg(long, value_parser = parse_mode)]
    mode: Option<u32>,
    /// Use huge pages for the ring
    #[arg(long)]
    huge_pages: bool,
    /// How subscribers are woken: futex, datagram, multicast[:GROUP:PORT] [default: futex]
    #[arg(long, value_name = "KIND", value_parser = parse_notify)]
    notify: Option<NotifyKind>,
    /// Let `toroni clean` remove the bus when no process has it open
    #[arg(long)]
    temporary: bool,
    /// Succeed if the bus already exists with the settings given here
    #[arg(long)]
    if_absent: bool,
    /// Size of the table of topic names [default: 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    topic_table: Option<u64>,
    /// Most streams from elsewhere (other hosts, recordings) that the bus keeps track of [default: 256]
    #[arg(long, value_name = "N")]
    max_arrivals: Option<u32>,
    /// How many topics can be retained, at most 4096; 0 for a bus without values [default: 512]
    #[arg(long, value_name = "N")]
    retained_topics: Option<u32>,
    /// Bytes for values of retained topics: each topic needs twice its longest value, which may take a quarter [default: 448KiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    retained_bytes: Option<u64>,
    /// Print the new bus as a JSON object
    #[arg(long)]
    json: bool,
}

/// Creates the bus. With `--if-absent`, succeeds if it exists with the given settings.
pub(crate) fn run(location: &BusLocation, arguments: Create) -> Result<(), Failure> {
    let config = location.config().persistent(!arguments.temporary);
    let config = set(config, arguments.capacity, BusConfig::capacity);
    let config = set(config, arguments.topic_table, BusConfig::topic_table_bytes);
    let config = set(config, arguments.max_subscribers, BusConfig::max_subscribers);
    let config = set(config, arguments.max_publishers, BusConfig::max_publishers);
    let config = set(config, arguments.max_arrivals, BusConfig::max_arrivals);
    let config = set(config, arguments.retained_topics, BusConfig::retained_topics);
    let config = set(config, arguments.retained_bytes, BusConfig::retained_bytes);
    let config = set(config, arguments.policy, BusConfig::policy);
    let config = set(config, arguments.lock, BusConfig::lock);
    let config = set(config, arguments.notify, BusConfig::notify);
    let config = set(config, arguments.writers, BusConfig::writers_group);
    let config = set(config, arguments.readers, BusConfig::readers_group);
    let config = set(config, arguments.mode, BusConfig::mode);
    let config = set(config, arguments.huge_pages.then_some(true), BusConfig::huge_pages);
    let (bus, is_new) = match config.create(&arguments.name) {
        Err(OpenError::AlreadyExists { .. }) if arguments.if_absent => {
            (config.require_given().open_existing(&arguments.name)?, false)
        }
        answer => (answer?, true),
    };

    let stats = bus.stats()?;
    let mut output = Output::new()?;
    if arguments.json {
        output.json(&super::info::header_json(&stats))?;
    } else {
        output.line(&format!(
            "{} {} (ring {}, policy {}, lock {}, notifier {}).",
            if is_new { "Created" } else { "Found" },
            bus.path().display(),
            human::bytes(stats.capacity),
            stats.policy,
            stats.lock,
            stats.notify,
        ))?;
    }
    output.flush()
}

/// Sets a setting if its option was given: `--if-absent` compares only those.
fn set<T>(config: BusConfig, value: Option<T>, setter: fn(BusConfig, T) -> BusConfig) -> BusConfig {
    match value {
        Some(value) => setter(config, value),
        None => config,
    }
}

#[cfg(test)]
mod tests {
    use toroni_shell::failure::SETTINGS;

    #[test]
    fn every_option_that_an_error_names_exists() {
        let definitions = crate::cli::definitions();
        let create = definitions.find_subcommand("create").unwrap();
        let exists =
            |option: &str| create.get_arguments().any(|one| one.get_long() == Some(option));
        for (_, option) in SETTINGS {
            assert!(exists(option.trim_start_matches("--")), "{option}");
        }
    }
}
