//! `toroni create`: a bus with settings of one's own.

use crate::cli::{BusLocation, Create};
use crate::failure::Failure;
use crate::human;
use crate::output::Output;
use toroni::OpenError;

/// Creates the bus. With `--if-absent`, one that exists with the given settings will do.
pub(crate) fn run(location: &BusLocation, arguments: Create) -> Result<(), Failure> {
    let mut config = super::config(location);
    if let Some(bytes) = arguments.capacity {
        config = config.capacity(bytes);
    }
    if let Some(bytes) = arguments.topic_table {
        config = config.topic_table_bytes(bytes);
    }
    if let Some(count) = arguments.max_subscribers {
        config = config.max_subscribers(count);
    }
    if let Some(count) = arguments.max_publishers {
        config = config.max_publishers(count);
    }
    if let Some(policy) = arguments.policy {
        config = config.policy(policy);
    }
    if let Some(lock) = arguments.lock {
        config = config.lock(lock);
    }
    if let Some(notify) = arguments.notify {
        config = config.notify(notify);
    }
    if let Some(group) = arguments.writers {
        config = config.writers_group(group);
    }
    if let Some(group) = arguments.readers {
        config = config.readers_group(group);
    }
    if let Some(mode) = arguments.mode {
        config = config.mode(mode);
    }
    if arguments.huge_pages {
        config = config.huge_pages(true);
    }
    let config = config.persistent(!arguments.temporary);
    let (bus, made) = match config.create(&arguments.name) {
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
            "{} {} ({}, {}, lock {}, notifier {}).",
            if made { "Created" } else { "There is" },
            bus.path().display(),
            human::bytes(stats.capacity),
            stats.policy,
            stats.lock,
            stats.notify,
        ))?;
    }
    output.flush()
}
