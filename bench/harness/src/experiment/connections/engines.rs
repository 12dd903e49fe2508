//! The columns of the proactor: one for each engine, and `auto`, for which the proactor chooses.
//!
//! There is none for `posix`, which is for files only: the C library does one operation of a descriptor at a time, so a
//! read that waits would hold up every write of the connection.

use super::deal::Deal;
use super::end::{End, Part, Wanted, block};
use super::ledger::Ledger;
use super::sockets::ConnectionEnd;
use super::{Kind, Plan, lock};
use crate::Failure;
use std::sync::{Arc, Mutex};
use std::thread;
use toroni_proactor::{
    BufResult, Config, OperationError, Proactor, ProcessorConfig, ProcessorType, ProviderType,
    Rest, Stream, WaitType, WriteBuffer,
};

/// Returns name, kind and configuration of each column.
pub(super) fn engines() -> Vec<(&'static str, Kind, Config)> {
    use ProcessorType::{Dedicated, Shared};
    use ProviderType::{Select, Uring};
    let engine = |name, provider, wait, processor_type| {
        let kind = if processor_type == Shared { Kind::Shared } else { Kind::Engine };
        let config = ProcessorConfig { provider, wait, processor_type, ..Default::default() };
        (name, kind, Config::one(config))
    };
    vec![
        ("auto", Kind::Auto, Config::default()),
        engine("uring shared", Uring, WaitType::Native, Shared),
        engine("uring dedicated", Uring, WaitType::Native, Dedicated),
        engine("epoll shared", Select, WaitType::Epoll, Shared),
        engine("epoll dedicated", Select, WaitType::Epoll, Dedicated),
        engine("ppoll shared", Select, WaitType::Native, Shared),
        engine("ppoll dedicated", Select, WaitType::Native, Dedicated),
        engine("linux-rt dedicated", Select, WaitType::LinuxRt, Dedicated),
    ]
}

/// Runs until the time is over. Fails if the machine does not offer the engine, a socket fails, or other bytes arrive than
/// were sent.
pub(super) fn run(
    config: &Config,
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    let failed = Arc::new(Mutex::new(None));
    let proactor = begin(config, plan, connections, ledger, &failed)?;
    thread::scope(|scope| {
        for _ in 0..plan.threads {
            scope.spawn(|| handle_events(&proactor, ledger, &failed));
        }
    });
    end(proactor);
    lock(&failed).take().map_or(Ok(()), Err)
}

/// The same with a proactor for each thread, which has the ends dealt to it.
pub(super) fn run_for_each_thread(
    config: &Config,
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    deal: Deal,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    let failed = Arc::new(Mutex::new(None));
    // They outlive all threads: the other end of a connection may be in a thread that still works.
    let proactors: Vec<Proactor> = deal
        .deal(connections, plan.threads)
        .into_iter()
        .map(|own| begin(config, plan, own, ledger, &failed))
        .collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        for proactor in &proactors {
            scope.spawn(|| handle_events(proactor, ledger, &failed));
        }
    });
    proactors.into_iter().for_each(end);
    lock(&failed).take().map_or(Ok(()), Err)
}

/// The first failure of any end.
type Failed = Arc<Mutex<Option<Failure>>>;

/// Starts a proactor, and the first operations of these ends.
fn begin(
    config: &Config,
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
    failed: &Failed,
) -> Result<Proactor, Failure> {
    let proactor = Proactor::new(config).map_err(Failure::of("start the proactor"))?;
    for ConnectionEnd { stream, mut end } in connections {
        let stream = Stream::new(&proactor, stream).map_err(Failure::of("take a socket over"))?;
        let wanted = end.begin();
        let connection = Arc::new(EngineEnd {
            stream,
            part: end.part(),
            block: block(plan.block_bytes).into(),
            state: Mutex::new(State { end, spare: Some(Vec::with_capacity(plan.block_bytes)) }),
            ledger: Arc::clone(ledger),
            failed: Arc::clone(failed),
        });
        connection.start(wanted, None);
    }
    Ok(proactor)
}

/// Runs a thread until the time is over or an end has failed.
fn handle_events(proactor: &Proactor, ledger: &Ledger, failed: &Failed) {
    while let Some(left) = ledger.left()
        && lock(failed).is_none()
    {
        proactor.handle_events(Some(left));
    }
}

/// Stops first: otherwise dropping a proactor would call the handlers of all pending operations.
fn end(proactor: Proactor) {
    proactor.stop();
    drop(proactor);
}

/// One end, for its handlers.
struct EngineEnd {
    stream: Stream,
    part: Part,
    /// What a client writes.
    block: Arc<[u8]>,
    state: Mutex<State>,
    ledger: Arc<Ledger>,
    failed: Failed,
}

struct State {
    end: End,
    /// The buffer to read into, while no read is under way and no server writes it.
    spare: Option<Vec<u8>>,
}

impl EngineEnd {
    /// Starts what the end wants. `buffer` is the one to read into; a server writes it first.
    fn start(self: &Arc<Self>, wanted: Wanted, buffer: Option<Vec<u8>>) {
        match (wanted.write, buffer, self.part) {
            (Some(range), Some(buffer), Part::Server) => {
                return self
                    .write(Rest::after(buffer, range.start), |rest| Some(rest.into_inner()));
            }
            (write, buffer, _) => {
                // Before the write: it may complete in another thread before this one continues.
                if let Some(buffer) = buffer {
                    lock(&self.state).spare = Some(buffer);
                }
                if let Some(range) = write {
                    self.write(Rest::after(Arc::clone(&self.block), range.start), |_| None);
                }
            }
        }
        if wanted.read {
            let spare = lock(&self.state).spare.take();
            match spare {
                Some(buffer) => self.read(buffer),
                None => self.fail(Failure::new("an end wants two reads at the same time")),
            }
        }
    }

    fn read(self: &Arc<Self>, buffer: Vec<u8>) {
        let this = Arc::clone(self);
        let started = self.stream.read(buffer, move |BufResult(result, buffer)| {
            let Some(bytes) = this.check(result) else { return };
            if this.ledger.read(bytes) {
                let wanted = lock(&this.state).end.read(&buffer[..bytes]);
                match wanted {
                    Ok(wanted) => this.start(wanted, Some(buffer)),
                    Err(failure) => this.fail(failure),
                }
            }
        });
        if let Err(refused) = started {
            self.fail(Failure::of("read")(refused.error));
        }
    }

    /// `buffer_of` returns the buffer to read into, if this write used it.
    fn write<B: WriteBuffer>(
        self: &Arc<Self>,
        rest: Rest<B>,
        buffer_of: fn(Rest<B>) -> Option<Vec<u8>>,
    ) {
        let this = Arc::clone(self);
        let started = self.stream.write(rest, move |BufResult(result, rest)| {
            let Some(bytes) = this.check(result) else { return };
            if this.ledger.written(bytes) {
                let wanted = lock(&this.state).end.written(bytes);
                this.start(wanted, buffer_of(rest));
            }
        });
        if let Err(refused) = started {
            self.fail(Failure::of("write")(refused.error));
        }
    }

    fn check(&self, result: Result<usize, OperationError>) -> Option<usize> {
        result.map_err(|error| self.fail(Failure::of("move bytes")(error))).ok()
    }

    fn fail(&self, failure: Failure) {
        if self.ledger.left().is_some() {
            lock(&self.failed).get_or_insert(failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::connections::sockets::connect;

    #[test]
    fn each_engine_moves_bytes_with_and_without_a_window() {
        for (name, _, config) in engines() {
            if let Err(error) = Proactor::new(&config) {
                assert!(name.starts_with("uring"), "{name}: {error}");
                eprintln!("not tested: {name}, since {error}");
                continue;
            }
            for (pairs, threads, window_bytes) in [(1, 1, 0), (5, 3, 0), (5, 3, 8192)] {
                let plan = Plan::short(pairs, threads, 4096, window_bytes);
                let mut connections = connect(&plan).unwrap();
                let ledger = Ledger::until_each_received(4 * 4096, &plan, &mut connections);
                let ledger = Arc::new(ledger);
                run(&config, &plan, connections, &ledger).unwrap();
                ledger.assert_reached(&format!("{name}, {plan:?}"));
                assert!(ledger.bytes() > 4 * 4096, "{name}, {plan:?}: {ledger:?}");
            }
        }
    }

    #[test]
    fn a_proactor_for_each_thread_moves_bytes() {
        for (pairs, threads, window_bytes) in [(1, 1, 0), (1, 4, 8192), (5, 3, 0), (5, 3, 8192)] {
            for deal in Deal::BOTH {
                let plan = Plan::short(pairs, threads, 4096, window_bytes);
                let mut connections = connect(&plan).unwrap();
                let ledger = Ledger::until_each_received(4 * 4096, &plan, &mut connections);
                let ledger = Arc::new(ledger);
                run_for_each_thread(&Config::default(), &plan, connections, deal, &ledger).unwrap();
                ledger.assert_reached(&format!("{deal:?}, {plan:?}"));
            }
        }
    }
}
