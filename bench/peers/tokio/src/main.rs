//! The connections of the proactor paper on tokio.
//!
//! - In the column `tokio`, the runtime has as many workers as the plan has threads. For one thread it is the
//!   current-thread runtime, which an expert would choose.
//! - In the columns `tokio pairs` and `tokio apart`, each thread has a current-thread runtime, and the ends that are dealt
//!   to it.
//! - Each end has a task. The task of a client with a window does two things: it always reads, and it writes while there
//!   is space; it is notified when there is space again.
//! - The delay of a callback is spent on its worker, as in all columns.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use toroni_bench_harness::experiment::connections::deal::Deal;
use toroni_bench_harness::experiment::connections::end::{End, Part, block};
use toroni_bench_harness::experiment::connections::ledger::Ledger;
use toroni_bench_harness::experiment::connections::sockets::ConnectionEnd;
use toroni_bench_harness::experiment::connections::{Plan, perform_with};
use toroni_bench_harness::{Failure, child};

fn main() -> ExitCode {
    let outcome = child::run(|child| {
        perform_with(child, |task, connections, ledger| {
            let plan = &task.plan;
            match Deal::of_column(&task.column) {
                Some((_, deal)) => {
                    for_each_thread(plan, deal.deal(connections, plan.threads), ledger)
                }
                None if plan.threads == 1 => on_current_thread(plan, connections, ledger),
                None => on_pool(plan, connections, ledger),
            }
        })
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a runtime for each thread, with the ends dealt to it.
fn for_each_thread(
    plan: &Plan,
    dealt: Vec<Vec<ConnectionEnd>>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    // No thread closes its ends while another one works, which may have the other ends.
    let all_are_done = &Barrier::new(dealt.len());
    thread::scope(|scope| {
        let of_a_thread = move |connections| {
            let runtime = runtime(Builder::new_current_thread());
            let outcome = match &runtime {
                Ok(runtime) => runtime.block_on(all(plan, connections, ledger)),
                Err(error) => Err(Failure::new(error.to_string())),
            };
            all_are_done.wait();
            outcome
        };
        let threads: Vec<_> = dealt
            .into_iter()
            .map(|connections| scope.spawn(move || of_a_thread(connections)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Failure::new("a runtime panicked"))?)
    })
}

fn on_current_thread(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    runtime(Builder::new_current_thread())?.block_on(all(plan, connections, ledger))
}

fn on_pool(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(usize::from(plan.threads));
    let runtime = runtime(builder)?;
    let outcome = runtime.block_on(all(plan, connections, ledger));
    runtime.shutdown_background();
    outcome
}

fn runtime(mut builder: Builder) -> Result<Runtime, Failure> {
    builder.enable_io().enable_time().build().map_err(Failure::of("start tokio"))
}

/// Runs all ends until the time is over or one fails.
async fn all(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    let mut ends = JoinSet::new();
    for ConnectionEnd { stream, end } in connections {
        stream.set_nonblocking(true).map_err(Failure::of("set O_NONBLOCK"))?;
        let stream = TcpStream::from_std(stream).map_err(Failure::of("register a socket"))?;
        let (plan, ledger) = (plan.clone(), Arc::clone(ledger));
        ends.spawn(async move {
            let outcome = if end.part() == Part::Client && plan.window_bytes > 0 {
                both_ways(stream, end, &plan, &ledger).await
            } else {
                in_turn(stream, end, &plan, &ledger).await
            };
            ledger.settle(outcome)
        });
    }
    while let Some(left) = ledger.left() {
        match tokio::time::timeout(left, ends.join_next()).await {
            Ok(Some(ended)) => ended.map_err(Failure::of("run an end"))??,
            Ok(None) | Err(_) => break,
        }
    }
    Ok(())
}

/// Runs an end that does one thing at a time.
async fn in_turn(
    mut stream: TcpStream,
    mut end: End,
    plan: &Plan,
    ledger: &Ledger,
) -> Result<(), Failure> {
    let block = block(plan.block_bytes);
    let mut read = vec![0; plan.block_bytes];
    let mut wanted = end.begin();
    loop {
        wanted = match wanted.write {
            Some(range) => {
                let source = if end.part() == Part::Client { &block } else { &read };
                let bytes = write(&mut stream, &source[range]).await?;
                if !ledger.written(bytes) {
                    return Ok(());
                }
                end.written(bytes)
            }
            None => {
                let bytes = stream.read(&mut read).await.map_err(Failure::of("read"))?;
                if !ledger.read(bytes) {
                    return Ok(());
                }
                end.read(&read[..bytes])?
            }
        };
    }
}

/// A client with a window.
struct Client {
    state: Mutex<(End, Option<Range<usize>>)>,
    space: Notify,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, (End, Option<Range<usize>>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn both_ways(
    mut stream: TcpStream,
    mut end: End,
    plan: &Plan,
    ledger: &Ledger,
) -> Result<(), Failure> {
    let first = end.begin().write;
    let client = Client { state: Mutex::new((end, first)), space: Notify::new() };
    let (mut reader, mut writer) = stream.split();
    let reading = async {
        let mut read = vec![0; plan.block_bytes];
        loop {
            let bytes = reader.read(&mut read).await.map_err(Failure::of("read"))?;
            if !ledger.read(bytes) {
                return Ok(());
            }
            let mut state = client.lock();
            let wanted = state.0.read(&read[..bytes])?;
            if wanted.write.is_some() {
                state.1 = wanted.write;
                client.space.notify_one();
            }
        }
    };
    let writing = async {
        let block = block(plan.block_bytes);
        loop {
            let next = client.lock().1.take();
            let Some(range) = next else {
                client.space.notified().await;
                continue;
            };
            let bytes = write(&mut writer, &block[range]).await?;
            if !ledger.written(bytes) {
                return Ok(());
            }
            let mut state = client.lock();
            state.1 = state.0.written(bytes).write;
        }
    };
    tokio::try_join!(reading, writing).map(|((), ())| ())
}

async fn write(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    bytes: &[u8],
) -> Result<usize, Failure> {
    stream.write(bytes).await.map_err(Failure::of("write"))
}
