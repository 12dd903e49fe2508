//! The parameters of TCP, as the protocol wants them.

use super::model::{Connect, Listen};
use std::time::Duration;
use toroni_proto::config::tcp::{Pace, TcpConfig};

/// The longest message over TCP, in bytes; that of a stream by default.
const MESSAGE_MAX: u64 = 16 << 20;

impl Listen {
    /// Returns the parameters of a server whose fastest stream has this rate, in bit/s. A message takes half of a queue at
    /// most, and a queue half of the memory for frames.
    #[must_use]
    pub fn parameters(&self, data_rate: Option<u64>) -> TcpConfig {
        let usual = TcpConfig::default();
        let clients = u64::from(self.clients);
        TcpConfig {
            pace: if self.waits_for_receivers { Pace::Receiver } else { Pace::Source },
            data_rate,
            replay_rate: self.replay_rate,
            latency_bound_ns: ns(self.latency_bound),
            queue_bytes: self.queue_bytes,
            frame_memory_bytes: usual.frame_memory_bytes.max(self.queue_bytes.saturating_mul(2)),
            batch_bytes: self.batch_bytes,
            batch_delay_ns: ns(self.batch_delay),
            message_max_bytes: MESSAGE_MAX.min(self.queue_bytes / 2),
            hold_limit_ns: ns(self.hold_limit),
            stall_ns: ns(self.stall),
            clients,
            sets: usual.sets.min(clients),
            ..usual
        }
    }
}

impl Connect {
    /// Returns the parameters of a client. It takes whatever a server may send.
    #[must_use]
    pub fn parameters(&self) -> TcpConfig {
        let usual = TcpConfig::default();
        TcpConfig {
            message_max_bytes: MESSAGE_MAX,
            queue_bytes: 2 * MESSAGE_MAX,
            frame_memory_bytes: 4 * MESSAGE_MAX,
            retry_ns: ns(self.retry),
            ..usual
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
