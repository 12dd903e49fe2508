//! `toroni create`: a bus with settings of one's own.

use crate::cli::{Create, Place};
use crate::failure::Failure;
use crate::human;
use crate::output::Output;

/// Creates the bus; it must not exist yet.
pub(crate) fn run(place: &Place, arguments: Create) -> Result<(), Failure> {
    let mut config = super::config(place);
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
    let bus = config
        .persistent(arguments.persistent)
        .huge_pages(arguments.huge_pages)
        .create(&arguments.name)?;

    let stats = bus.stats()?;
    let mut output = Output::new()?;
    if arguments.json {
        output.json(&super::info::header_json(&stats))?;
    } else {
        output.line(&format!(
            "Created {} ({}, {}, lock {}, notifier {}).",
            bus.path().display(),
            human::bytes(stats.capacity),
            stats.policy,
            stats.lock,
            stats.notify,
        ))?;
    }
    output.flush()
}
