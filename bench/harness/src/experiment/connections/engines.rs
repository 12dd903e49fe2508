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
use std::time::Duration;
use toroni_proactor::{BufResult, Config, OperationError, Proactor, Rest, Stream, WriteBuffer};

/// An engine with a column.
pub(super) struct Engine {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Lines of its processor's configuration.
    pub(super) config: &'static str,
}

pub(super) const ENGINES: [Engine; 8] = [
    Engine { name: "auto", kind: Kind::Auto, config: "" },
    Engine { name: "uring shared", kind: Kind::Shared, config: "provider = \"uring\"\n" },
    Engine {
        name: "uring dedicated",
        kind: Kind::Engine,
        config: "type = \"dedicated\"\nprovider = \"uring\"\n",
    },
    Engine {
        name: "epoll shared",
        kind: Kind::Shared,
        config: "provider = \"select\"\nwait = \"epoll\"\n",
    },
    Engine {
        name: "epoll dedicated",
        kind: Kind::Engine,
        config: "type = \"dedicated\"\nprovider = \"select\"\nwait = \"epoll\"\n",
    },
    Engine { name: "ppoll shared", kind: Kind::Shared, config: "provider = \"select\"\n" },
    Engine {
        name: "ppoll dedicated",
        kind: Kind::Engine,
        config: "type = \"dedicated\"\nprovider = \"select\"\n",
    },
    Engine {
        name: "linux-rt dedicated",
        kind: Kind::Engine,
        config: "type = \"dedicated\"\nprovider = \"select\"\nwait = \"linux-rt\"\n",
    },
];

/// Runs one proactor until the time is over. Fails if the machine does not offer the engine, a socket fails, or other bytes
/// arrive than were sent.
///
/// Each thread takes the ends over that are dealt to it; without a deal, this thread takes all of them over.
pub(super) fn run(
    config: &Config,
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    deal: Option<Deal>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    let failed = Arc::new(Mutex::new(None));
    let config = config.clone().with_threads(plan.threads.into());
    let proactor = &Proactor::new(&config).map_err(Failure::of("start the proactor"))?;
    let dealt = match deal {
        Some(deal) => deal.deal(connections, plan.threads),
        None => {
            take_over(proactor, plan, connections, ledger, &failed)?;
            (0..plan.threads).map(|_| Vec::new()).collect()
        }
    };
    thread::scope(|scope| {
        let failed = &failed;
        for own in dealt {
            scope.spawn(move || {
                // So that this thread has its shard: what it takes over belongs there.
                proactor.handle_events(Some(Duration::ZERO));
                if let Err(failure) = take_over(proactor, plan, own, ledger, failed) {
                    lock(failed).get_or_insert(failure);
                }
                handle_events(proactor, ledger, failed);
            });
        }
    });
    // Otherwise dropping it would call the handlers of all pending operations.
    proactor.stop();
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
    let proactors = deal.deal(connections, plan.threads).into_iter().map(|own| {
        let proactor = Proactor::new(config).map_err(Failure::of("start a proactor"))?;
        take_over(&proactor, plan, own, ledger, &failed)?;
        Ok(proactor)
    });
    let proactors = proactors.collect::<Result<Vec<_>, Failure>>()?;
    thread::scope(|scope| {
        for proactor in &proactors {
            scope.spawn(|| handle_events(proactor, ledger, &failed));
        }
    });
    proactors.iter().for_each(Proactor::stop);
    lock(&failed).take().map_or(Ok(()), Err)
}

/// The first failure of any end.
type Failed = Arc<Mutex<Option<Failure>>>;

/// Takes these ends over, and starts their first operations.
fn take_over(
    proactor: &Proactor,
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
    failed: &Failed,
) -> Result<(), Failure> {
    for ConnectionEnd { stream, mut end } in connections {
        let stream = Stream::new(proactor, stream).map_err(Failure::of("take a socket over"))?;
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
    Ok(())
}

/// Runs a thread until the time is over or an end has failed.
fn handle_events(proactor: &Proactor, ledger: &Ledger, failed: &Failed) {
    while let Some(left) = ledger.left()
        && lock(failed).is_none()
    {
        proactor.handle_events(Some(left));
    }
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

    /// Runs until each end has received four blocks, and returns the counted bytes.
    fn moved(plan: &Plan, run: impl FnOnce(Vec<ConnectionEnd>, &Arc<Ledger>)) -> u64 {
        let mut connections = connect(plan).unwrap();
        let ledger = Ledger::until_each_received(4 * 4096, plan, &mut connections);
        let ledger = Arc::new(ledger);
        run(connections, &ledger);
        ledger.assert_reached(&format!("{plan:?}"));
        ledger.bytes()
    }

    #[test]
    fn each_engine_moves_bytes_with_and_without_a_window() {
        for Engine { name, config, .. } in ENGINES {
            let config = Config::parse(&format!("[[processor]]\n{config}")).unwrap();
            if let Err(error) = Proactor::new(&config) {
                assert!(name.starts_with("uring"), "{name}: {error}");
                eprintln!("not tested: {name}, since {error}");
                continue;
            }
            for (pairs, threads, window_bytes) in [(1, 1, 0), (5, 3, 0), (5, 3, 8192)] {
                let plan = Plan::short(pairs, threads, 4096, window_bytes);
                for deal in [None, Some(Deal::Pairs), Some(Deal::Apart)] {
                    let bytes = moved(&plan, |connections, ledger| {
                        run(&config, &plan, connections, deal, ledger).unwrap();
                    });
                    assert!(bytes > 4 * 4096, "{name}, {plan:?}, {deal:?}: {bytes}");
                }
            }
        }
    }

    #[test]
    fn a_proactor_for_each_thread_moves_bytes() {
        for (pairs, threads, window_bytes) in [(1, 1, 0), (1, 4, 8192), (5, 3, 0), (5, 3, 8192)] {
            for deal in Deal::BOTH {
                let plan = Plan::short(pairs, threads, 4096, window_bytes);
                moved(&plan, |connections, ledger| {
                    let config = Config::default();
                    run_for_each_thread(&config, &plan, connections, deal, ledger).unwrap();
                });
            }
        }
    }
}
