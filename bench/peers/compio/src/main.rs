//! The connections of the proactor paper on compio, with io_uring.
//!
//! - compio has a runtime for each thread, and tasks do not move between them: the ends are distributed among as many
//!   runtimes as the plan has threads, by pairs or apart, as the column says.
//! - Each end has a task. The task of a client with a window does two things: it always reads, and it writes while there
//!   is space; it is woken when there is space again.
//! - The delay of a callback is spent on its thread, as in all columns.

use std::cell::RefCell;
use std::ops::Range;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use compio::buf::{BufResult, IntoInner as _, IoBuf as _};
use compio::io::AsyncRead as _;
use compio::net::TcpStream;
use compio::runtime::Runtime;
use toroni_bench_harness::experiment::connections::deal::Deal;
use toroni_bench_harness::experiment::connections::end::{End, Part, block};
use toroni_bench_harness::experiment::connections::ledger::Ledger;
use toroni_bench_harness::experiment::connections::sockets::ConnectionEnd;
use toroni_bench_harness::experiment::connections::{Plan, perform_with};
use toroni_bench_harness::{Failure, child};

fn main() -> ExitCode {
    let outcome = child::run(|child| {
        perform_with(child, |task, connections, ledger| {
            let Some((_, deal)) = Deal::of_column(&task.column) else {
                return Err(Failure::new(format!("{:?} does not say how to deal", task.column)));
            };
            run(&task.plan, deal.deal(connections, task.plan.threads), ledger)
        })
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(plan: &Plan, dealt: Vec<Vec<ConnectionEnd>>, ledger: &Arc<Ledger>) -> Result<(), Failure> {
    // No thread closes its ends while another one works, which may have the other ends.
    let all_are_done = &Barrier::new(dealt.len());
    thread::scope(|scope| {
        let threads: Vec<_> = dealt
            .into_iter()
            .map(|connections| {
                scope.spawn(move || of_a_thread(plan, connections, ledger, all_are_done))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Failure::new("a runtime panicked"))?)
    })
}

/// Runs the ends of one runtime until the time is over or one fails.
fn of_a_thread(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
    all_are_done: &Barrier,
) -> Result<(), Failure> {
    let runtime = Runtime::new();
    let outcome = match &runtime {
        Ok(runtime) => runtime.block_on(work(plan, connections, ledger)),
        Err(error) => Err(Failure::new(format!("cannot start compio: {error}"))),
    };
    all_are_done.wait();
    outcome
}

async fn work(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Arc<Ledger>,
) -> Result<(), Failure> {
    let failure = Rc::new(RefCell::new(None));
    for ConnectionEnd { stream, end } in connections {
        let stream = TcpStream::from_std(stream).map_err(Failure::of("register a socket"))?;
        let (plan, ledger, failure) = (plan.clone(), Arc::clone(ledger), Rc::clone(&failure));
        compio::runtime::spawn(async move {
            let outcome = if end.part() == Part::Client && plan.window_bytes > 0 {
                both_ways(stream, end, &plan, &ledger).await
            } else {
                in_turn(stream, end, &plan, &ledger).await
            };
            if let Err(error) = ledger.settle(outcome) {
                failure.borrow_mut().get_or_insert(error);
            }
        })
        .detach();
    }
    while let Some(left) = ledger.left() {
        compio::time::sleep(left.min(Duration::from_millis(100))).await;
        if let Some(failure) = failure.borrow_mut().take() {
            return Err(failure);
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
    let mut block = block(plan.block_bytes);
    let mut read = Vec::with_capacity(plan.block_bytes);
    let mut wanted = end.begin();
    loop {
        wanted = match wanted.write {
            Some(range) => {
                let source = if end.part() == Part::Client { &mut block } else { &mut read };
                let bytes = write(&mut stream, source, range).await?;
                if !ledger.written(bytes) {
                    return Ok(());
                }
                end.written(bytes)
            }
            None => {
                read.clear();
                let BufResult(outcome, buffer) = stream.read(read).await;
                read = buffer;
                let bytes = outcome.map_err(Failure::of("read"))?;
                if !ledger.read(bytes) {
                    return Ok(());
                }
                end.read(&read)?
            }
        };
    }
}

/// A client with a window: its end, and what its writer has to write or which task to wake.
struct Client {
    end: End,
    next: Option<Range<usize>>,
    writer: Option<Waker>,
}

async fn both_ways(
    stream: TcpStream,
    mut end: End,
    plan: &Plan,
    ledger: &Ledger,
) -> Result<(), Failure> {
    let next = end.begin().write;
    let client = RefCell::new(Client { end, next, writer: None });
    let (mut reader, mut writer) = stream.split();
    let reading = async {
        let mut read = Vec::with_capacity(plan.block_bytes);
        loop {
            read.clear();
            let BufResult(outcome, buffer) = reader.read(read).await;
            read = buffer;
            let bytes = outcome.map_err(Failure::of("read"))?;
            if !ledger.read(bytes) {
                return Ok(());
            }
            let mut client = client.borrow_mut();
            let wanted = client.end.read(&read)?;
            if wanted.write.is_some() {
                client.next = wanted.write;
                if let Some(writer) = client.writer.take() {
                    writer.wake();
                }
            }
        }
    };
    let writing = async {
        let mut block = block(plan.block_bytes);
        loop {
            let range = std::future::poll_fn(|context| {
                let mut client = client.borrow_mut();
                match client.next.take() {
                    Some(range) => Poll::Ready(range),
                    None => {
                        client.writer = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            })
            .await;
            let bytes = write(&mut writer, &mut block, range).await?;
            if !ledger.written(bytes) {
                return Ok(());
            }
            let mut client = client.borrow_mut();
            client.next = client.end.written(bytes).write;
        }
    };
    futures_util::try_join!(reading, writing).map(|((), ())| ())
}

/// Writes a part of a buffer, which the kernel borrows until then.
async fn write(
    stream: &mut impl compio::io::AsyncWrite,
    source: &mut Vec<u8>,
    range: Range<usize>,
) -> Result<usize, Failure> {
    let BufResult(outcome, slice) = stream.write(std::mem::take(source).slice(range)).await;
    *source = slice.into_inner();
    outcome.map_err(Failure::of("write"))
}
