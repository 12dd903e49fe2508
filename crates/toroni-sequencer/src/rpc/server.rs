//! The answering end: who connects, and how much of it at once.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toroni_proto::wire::Keys;

use super::frame::{self, HELLO_TIME, MAX_FRAME_BYTES, Peer};
use super::message::{Answer, Request};
use super::socket;

/// So many connections at once; further ones wait.
const CONNECTIONS: usize = 256;
/// So many requests of one connection at once; further ones stay in its socket.
const REQUESTS: usize = 16;

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Who answers requests.
pub trait Serve: Send + Sync + 'static {
    /// Takes a request of the caller with this id. Requests of a connection are taken in their order.
    fn serve(&self, from: u64, request: Request) -> Answering;
}

/// What callers are asked for, and shown.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The feed: the first bytes of the hash of its name.
    pub feed: [u8; 16],
    /// The keys of the realm.
    pub keys: Option<Keys>,
    /// This member.
    pub own: Peer,
}

/// Serves all that connect, until it is dropped. Connections end with it.
pub async fn listen(listener: TcpListener, identity: Identity, serve: Arc<dyn Serve>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let identity = Arc::new(identity);
    let mut tasks = JoinSet::new();
    // Ends with the semaphore, which is never closed.
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, for example: it passes.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (identity, serve) = (Arc::clone(&identity), Arc::clone(&serve));
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // Who breaks the rules loses the connection, and nothing else happens.
            let _ = connection(stream, &identity, serve).await;
            drop(permit);
        });
    }
}

async fn connection(
    mut stream: TcpStream,
    identity: &Identity,
    serve: Arc<dyn Serve>,
) -> io::Result<()> {
    socket::prepare(&stream)?;
    let begin = frame::answer(&mut stream, identity.keys.as_ref(), identity.feed, identity.own);
    let (mut to, mut back, from) = timeout(HELLO_TIME, begin).await??;
    let (mut read, mut write) = stream.into_split();
    let (answers, mut queue) = mpsc::channel::<(u64, Answer)>(REQUESTS);
    // Ends with the connection.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some((call, answer)) = queue.recv().await {
            let mut bytes = vec![];
            answer.encode(&mut bytes);
            if to.write(&mut write, call, &bytes).await.is_err() {
                return;
            }
        }
    });
    let permits = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return Ok(()) };
        let (call, bytes) = back.read(&mut read, MAX_FRAME_BYTES).await?;
        let Ok(request) = Request::decode(&bytes) else { return Ok(()) };
        let answering = serve.serve(from, request);
        let answers = answers.clone();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let answer = answering.await;
            let _ = answers.send((call, answer)).await;
            drop(permit);
        });
    }
}
