//! Tests of the program: each command runs as a process, on buses in a temporary directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod completion;
mod copy;
mod documents;
mod errors;
mod exclusive;
mod exits;
mod external;
mod formats;
mod help;
#[cfg(feature = "net")]
mod hosts;
mod inspect;
mod lifetime;
mod losses;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "net")]
mod net;
#[cfg(feature = "net")]
mod net_latency;
#[cfg(feature = "net")]
mod net_nodes;
#[cfg(feature = "net")]
mod net_probe;
#[cfg(all(feature = "net", feature = "metrics"))]
mod net_replay;
#[cfg(feature = "net")]
mod node;
#[cfg(all(feature = "net", feature = "metrics"))]
mod node_archive;
#[cfg(all(feature = "net", feature = "metrics"))]
mod node_budgets;
#[cfg(all(feature = "net", feature = "metrics"))]
mod node_faults;
#[cfg(all(feature = "net", feature = "metrics"))]
mod node_observed;
#[cfg(feature = "net")]
mod node_policies;
#[cfg(all(feature = "net", feature = "metrics"))]
mod node_restart;
#[cfg(feature = "net")]
mod node_settings;
#[cfg(all(feature = "net", feature = "metrics"))]
mod node_suite;
#[cfg(feature = "net")]
mod node_tcp;
#[cfg(feature = "net")]
mod nodes;
#[cfg(feature = "metrics")]
mod openmetrics;
mod publish;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "record")]
mod record_faults;
#[cfg(feature = "record")]
mod record_options;
#[cfg(feature = "record")]
mod replay;
mod selection;
#[cfg(feature = "sequencer")]
mod sequencer;
#[cfg(feature = "sequencer")]
mod sequencer_archive;
#[cfg(feature = "sequencer")]
mod sequencer_changes;
#[cfg(feature = "sequencer")]
mod sequencer_feed;
#[cfg(feature = "sequencer")]
mod sequencer_kills;
#[cfg(all(feature = "sequencer", feature = "record"))]
mod sequencer_log;
#[cfg(all(feature = "sequencer", feature = "metrics"))]
mod sequencer_multicast;
mod stopping;
mod support;
#[cfg(feature = "top")]
mod terminal;
#[cfg(feature = "top")]
mod top;
