//! Workloads that are generic over the transport: senders send, receivers receive and check, and every transport runs
//! through the same code. `values` is generic over channels that keep values.

mod appendix;
pub(crate) mod call;
pub mod flow;
mod grid;
pub(crate) mod latency;
pub mod ping_pong;
pub(crate) mod stress;
pub(crate) mod throughput;
pub mod values;
