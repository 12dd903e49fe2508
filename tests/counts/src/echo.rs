//! The hot paths of the proactor: a connection whose two ends answer each other, in one thread.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use toroni_proactor::{
    BufResult, Config, Proactor, ProcessorConfig, ProviderType, Stream, WaitType,
};

use crate::fixture::{Outcome, toroni_counted};

/// A path of the proactor.
pub(crate) struct Path {
    /// Its name in the baseline, and on the command line.
    pub(crate) name: &'static str,
    shards: usize,
}

/// Every path. What is counted is an operation: a read or a write that is completed, with its start and its handler.
pub(crate) const PATHS: &[Path] = &[
    Path { name: "proactor-echo", shards: 1 },
    Path { name: "proactor-echo-in-two-shards", shards: 2 },
];

/// Operations of a round, at least.
const OPERATIONS: u64 = 1024;

/// Counts `rounds` rounds, and returns how many operations were completed. Does one round before them that is not
/// counted, because it includes what is done only once.
pub(crate) fn run(path: &Path, rounds: u64) -> Outcome<u64> {
    let epoll = ProcessorConfig {
        provider: ProviderType::Select,
        wait: WaitType::Epoll,
        ..ProcessorConfig::default()
    };
    let proactor = Proactor::new(&Config::one(epoll).with_shards(path.shards))?;
    // So that this thread has its shard, which is then the home of both ends.
    proactor.handle_events(Some(Duration::ZERO));
    let completed = Arc::new(AtomicU64::new(0));
    let (client, server) = UnixStream::pair()?;
    let [client, server] = [client, server].map(|socket| Stream::new(&proactor, socket));
    read(server?, vec![0; 64], &completed);
    write(client?, vec![7; 64], &completed);
    let mut counted = 0;
    for round in 0..=rounds {
        let before = completed.load(Ordering::Relaxed);
        let work = || {
            while completed.load(Ordering::Relaxed) - before < OPERATIONS {
                proactor.handle_events(Some(Duration::ZERO));
            }
        };
        if round == 0 {
            work();
        } else {
            toroni_counted(work);
            counted += completed.load(Ordering::Relaxed) - before;
        }
    }
    proactor.stop();
    Ok(counted)
}

fn read(stream: Stream, buffer: Vec<u8>, completed: &Arc<AtomicU64>) {
    let (this, count) = (stream.clone(), Arc::clone(completed));
    let started = stream.read(buffer, move |BufResult(result, buffer)| {
        if result.is_ok_and(|bytes| bytes > 0) {
            count.fetch_add(1, Ordering::Relaxed);
            write(this, buffer, &count);
        }
    });
    assert!(started.is_ok(), "the proactor accepts it");
}

fn write(stream: Stream, buffer: Vec<u8>, completed: &Arc<AtomicU64>) {
    let (this, count) = (stream.clone(), Arc::clone(completed));
    let started = stream.write(buffer, move |BufResult(result, buffer)| {
        if result.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
            read(this, buffer, &count);
        }
    });
    assert!(started.is_ok(), "the proactor accepts it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_completes_what_it_counts() {
        for path in PATHS {
            let counted = run(path, 3).unwrap();
            assert!(counted >= 3 * OPERATIONS, "{}: {counted}", path.name);
        }
    }
}
