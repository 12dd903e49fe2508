//! Tests of the commands between hosts: each runs as a process, as users call it, on buses in a temporary directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod five_minutes;
mod help;
mod hosts;
mod net;
mod net_latency;
mod net_nodes;
mod net_probe;
mod net_replay;
mod node;
mod node_archive;
mod node_backups;
mod node_budgets;
mod node_faults;
mod node_matrix;
mod node_observed;
mod node_policies;
mod node_recorded;
mod node_reports;
mod node_restart;
mod node_retained;
mod node_settings;
mod node_suite;
mod node_tcp;
mod node_waiting;
mod nodes;
mod program;
mod samples;
mod sequencer;
mod sequencer_archive;
mod sequencer_changes;
mod sequencer_feed;
mod sequencer_hostile;
mod sequencer_kills;
mod sequencer_log;
mod sequencer_memory;
mod sequencer_multicast;

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../../../toroni-cli/tests/cli/openmetrics.rs"]
mod openmetrics;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../../../toroni-cli/tests/cli/prometheus.rs"]
mod prometheus;
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
#[path = "../../../toroni-cli/tests/cli/support.rs"]
mod support;

use program::program;
