//! One connection at the answering end, after it has begun: its requests, and the answers to them.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fetch::{ANSWER_BYTES, Fetch};
use super::frame::{Direction, Frame, Length, MAX_FRAME_BYTES};
use super::memory::{Budget, Room, acquired};
use super::message::{Answer, Request};
use super::server::{Caller, Place, Serve};
use crate::batch::MAX_COMMAND_BYTES;
use crate::hook::mutant;
use crate::machine::MAX_SNAPSHOT_BYTES;

/// A connection that gets no memory for a request or an answer for this long ends, and gives back what the others of it hold.
const MEMORY_TIME: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 10 });
/// A frame that was announced takes part of that memory, so it must be here soon.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(5);
/// At most this many requests of one connection are handled at once; further ones stay in its socket.
const REQUESTS: usize = 16;
/// The same of those whose answers are long.
const LONG_REQUESTS: usize = 2;
/// A caller that has that many, and takes none of their answers for this long, is given up: it is not read meanwhile, so the
/// server would not notice that it is gone. Longer than events are waited for.
const LONG_TIME: Duration = Duration::from_secs(20);
/// What a long answer has besides events or a state, at most.
const OVERHEAD_BYTES: usize = 1024;
/// A caller of which the kernel takes nothing more for this long is given up. The same if an answer takes longer than this, and
/// the time of its length at a rate below which following makes no sense.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
const LEAST_BYTES_PER_SECOND: f64 = 256.0 * 1024.0;

/// An answer, and what it holds until the kernel has it.
struct Made {
    call: u64,
    frame: Frame,
    _held: (OwnedSemaphorePermit, Room),
    _long: Option<(OwnedSemaphorePermit, Room)>,
}

/// Answers the requests of a connection until it ends.
pub(super) async fn run(
    stream: TcpStream,
    (mut to, mut back): (Direction, Direction),
    caller: Caller,
    memory: Budget,
    serve: Arc<dyn Serve>,
    place: &Place,
) -> io::Result<()> {
    let (mut read, mut write) = stream.into_split();
    let (answers, mut queue) = mpsc::channel::<io::Result<Made>>(REQUESTS);
    let writing = async move {
        while let Some(made) = queue.recv().await {
            let Made { call, frame, _held, _long } = made?;
            let bytes = to.seal(call, frame)?;
            // One that takes nothing ends, and gives back what its answers hold.
            write_in_time(&mut write, bytes.as_bytes()).await?;
        }
        Ok::<_, io::Error>(())
    };
    let reading = async move {
        let permits = Arc::new(Semaphore::new(REQUESTS));
        let long = Arc::new(Semaphore::new(LONG_REQUESTS));
        // Ends with the connection.
        let mut tasks = JoinSet::new();
        loop {
            let permit = acquired(&permits, 1).await?;
            let Some(length) = next(&mut back, &mut read, place, &permits).await? else {
                return Ok(());
            };
            place.touch();
            // A connection that waits is not read, so the server would not notice that the other end is gone.
            let room = timeout(MEMORY_TIME, memory.for_request(length.0)).await??;
            let (call, bytes) = timeout(FRAME_TIME, back.read_rest(&mut read, length)).await??;
            let Ok(request) = Request::decode(&bytes) else { return Ok(()) };
            drop(bytes);
            let held = (permit, room);
            let answers = answers.clone();
            while tasks.try_join_next().is_some() {}
            let Some(bytes) = long_answer(&request) else {
                // Here and now, so that requests are taken in their order.
                let is_signal = matches!(request, Request::Peer(_) | Request::Probe(_));
                let answering = serve.serve(caller.clone(), request);
                let answer = async move {
                    let frame = framed(&answering.await);
                    let _ = answers.send(Ok(Made { call, frame, _held: held, _long: None })).await;
                };
                // What may wait for a disk must not hold up signals.
                if is_signal && !mutant("signals_wait_for_work") {
                    tasks.spawn(answer);
                } else {
                    tasks.spawn_on(answer, place.work());
                }
                continue;
            };
            // Further ones stay in the socket, whose other end is to take its answers first.
            let long = timeout(LONG_TIME, acquired(&long, 1)).await??;
            let (serve, memory) = (Arc::clone(&serve), memory.clone());
            let caller = caller.clone();
            let making = async move {
                let made = make(&*serve, caller, request, &memory, bytes).await;
                let made = made.map(|(frame, room)| Made {
                    call,
                    frame,
                    _held: held,
                    _long: Some((long, room)),
                });
                let _ = answers.send(made).await;
            };
            tasks.spawn_on(making, place.work());
        }
    };
    tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    }
}

/// Reads the length of the next request. None if the time of the connection is over; what was asked before is answered then.
async fn next(
    back: &mut Direction,
    read: &mut OwnedReadHalf,
    place: &Place,
    permits: &Arc<Semaphore>,
) -> io::Result<Option<Length>> {
    let is_answered = || permits.available_permits() == REQUESTS - 1;
    let mut length = pin!(back.read_length(read, MAX_FRAME_BYTES));
    while let Some(left) = place.left() {
        match timeout(left, length.as_mut()).await {
            Ok(length) => return length.map(Some),
            Err(late) if is_answered() && place.left().is_some() => return Err(late.into()),
            // A caller that waits for an answer need not ask anything meanwhile.
            Err(_) => {}
        }
    }
    let others = u32::try_from(REQUESTS - 1).unwrap_or(u32::MAX);
    let _all = acquired(permits, others).await?;
    Ok(None)
}

/// Makes a long answer, when there is memory for it.
async fn make(
    serve: &dyn Serve,
    caller: Caller,
    request: Request,
    memory: &Budget,
    bytes: usize,
) -> io::Result<(Frame, Room)> {
    if let Request::Fetch(fetch) = request {
        serve.until_there_is(fetch).await;
    }
    loop {
        let room = memory.for_answer(bytes, serve.turn(&request));
        let room = timeout(MEMORY_TIME, room).await??;
        // What was in memory may have to be read from the log by now.
        let Some((answer, mut room)) =
            serve.serve_long(caller.clone(), request.clone(), room).await
        else {
            continue;
        };
        let frame = framed(&answer);
        room.keep(frame.len());
        return Ok((frame, room));
    }
}

/// Returns how long the answer to a request may be, if it may be long.
fn long_answer(request: &Request) -> Option<usize> {
    match request {
        Request::Fetch(Fetch { max_bytes, .. }) => {
            let asked = usize::try_from(*max_bytes).unwrap_or(usize::MAX).min(ANSWER_BYTES);
            Some(asked.max(MAX_COMMAND_BYTES) + OVERHEAD_BYTES)
        }
        Request::State => Some(MAX_SNAPSHOT_BYTES + OVERHEAD_BYTES),
        _ => None,
    }
}

fn framed(answer: &Answer) -> Frame {
    let bytes = match answer {
        Answer::Fetched(fetched) => {
            fetched.events.as_ref().map_or(0, |events| events.encoded_bytes())
        }
        Answer::State(Some(state)) => state.len(),
        _ => 0,
    };
    Frame::with(bytes + OVERHEAD_BYTES, |to| answer.encode(to))
}

async fn write_in_time(write: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    let whole = Duration::from_secs_f64(bytes.len() as f64 / LEAST_BYTES_PER_SECOND);
    let writing = async {
        let mut rest = bytes;
        while !rest.is_empty() {
            match timeout(WRITE_TIME, write.write(rest)).await?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
        Ok(())
    };
    timeout(WRITE_TIME + whole, writing).await?
}
