//! Serves small documents over HTTP/1.1: one GET a connection.
//!
//! Clients may be slow, many or hostile. So a connection has a bounded head, bounded times and a bounded number of
//! others beside it. When there are too many, the oldest gives way: a client that asks at once is answered at once,
//! whatever the others do.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toroni_proactor::{Append, BufResult, Listener, Proactor, Stream, WeakProactor};

/// The maximum length of a request's head in bytes.
pub const HEAD_LIMIT: usize = 8 * 1024;
/// The maximum number of its header lines.
pub const HEADER_LIMIT: usize = 64;
/// The maximum number of open connections.
pub const CONNECTION_LIMIT: usize = 16;
/// How long a client may take to send its head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long it may take to receive the response.
const RESPONSE_TIME: Duration = Duration::from_secs(10);
/// How long, and how much in bytes, is read of what a client still sends after that. If its bytes were not read, its
/// kernel would discard the response.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_LIMIT: usize = 64 * 1024;
/// How long to wait after an accept failed, for example because this process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A valid GET.
pub struct Request<'a> {
    /// The target without a query.
    pub path: &'a str,
    /// The value of the header `Accept`.
    pub accept: Option<&'a str>,
}

/// What a client gets.
pub struct Response {
    status: Status,
    content_type: &'static str,
    body: Vec<u8>,
}

/// How a request went (RFC 9110, section 15; RFC 6585, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 400.
    BadRequest,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 431.
    HeadTooLarge,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
        }
    }
}

impl Response {
    /// Makes a response with a body of this media type.
    pub fn text(status: Status, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, body: body.into() }
    }

    fn refusal(status: Status) -> Self {
        Self::text(status, crate::metrics::PLAIN, format!("{}\n", status.line()))
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let allow = if *status == Status::MethodNotAllowed { "Allow: GET\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            status.line(),
            body.len()
        )
        .into_bytes();
        bytes.extend(body);
        bytes
    }
}

/// Makes the response to a request. It is called in a thread of the proactor.
pub type Answer = dyn Fn(&Request<'_>) -> Response + Send + Sync;

/// Listens on the address, and serves in a thread of its own until the process ends. Returns the address with the port
/// that the system chose.
///
/// # Errors
/// If the address cannot be used, or the process has no descriptors or threads left.
pub fn serve_in_thread(address: SocketAddr, answer: Arc<Answer>) -> io::Result<SocketAddr> {
    let proactor = Proactor::from_environment().map_err(io::Error::other)?;
    let listener = Listener::bind(&proactor, address).map_err(io::Error::other)?;
    let bound = listener.local_address().map_err(io::Error::other)?;
    let work = move || {
        let task = serve(proactor.downgrade(), listener, answer);
        proactor.block_on(task);
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(work)?;
    Ok(bound)
}

/// Accepts connections and answers them, until the proactor stops.
pub async fn serve(proactor: WeakProactor, listener: Listener, answer: Arc<Answer>) {
    let connections = Arc::new(Connections::default());
    loop {
        let accepted = listener.accept_async().await;
        let Some(proactor) = proactor.upgrade() else { return };
        match accepted {
            Ok((stream, _)) => {
                let place = Connections::add(&connections, &stream);
                let answer = Arc::clone(&answer);
                let task = async move {
                    let _place = place;
                    // A connection that fails is over. No client is left to tell.
                    let _ = converse(&stream, &*answer).await;
                };
                if proactor.spawn(task).is_err() {
                    return;
                }
            }
            Err(error) if error.is_cancelled() => return,
            // Clients that gave up meanwhile, or no descriptors left.
            Err(_) => {
                let pause = proactor.timer_async(PAUSE);
                drop(proactor);
                if pause.await.is_err() {
                    return;
                }
            }
        }
    }
}

#[derive(Default)]
struct Connections(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// The number of the next connection.
    next: u64,
    /// The open connections, the oldest first.
    streams: VecDeque<(u64, Stream)>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. If there are too many, ends the oldest one.
    fn add(connections: &Arc<Self>, stream: &Stream) -> Place {
        let mut open = connections.open();
        let number = open.next;
        open.next += 1;
        open.streams.push_back((number, stream.clone()));
        if open.streams.len() > CONNECTION_LIMIT
            && let Some((_, oldest)) = open.streams.pop_front()
        {
            // Its reads and writes end, and then its task. If it is closed already, they did.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        drop(open);
        Place { connections: Arc::clone(connections), number }
    }
}

/// Removes a connection from the list when it is over.
struct Place {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open().streams.retain(|(number, _)| *number != self.number);
    }
}

/// Answers one request. `None` means that the client left, or was too slow.
async fn converse(stream: &Stream, answer: &Answer) -> Option<()> {
    let head = read_head(stream).await?;
    let response = match parse(&head) {
        Parsed::Part => return None,
        Parsed::Refused(status) => Response::refusal(status),
        Parsed::Whole(request) => answer(&request),
    };
    let sent = stream.write_all_async(response.bytes()).within(RESPONSE_TIME).await;
    sent.0.ok()?;
    linger(stream).await
}

/// Reads until the head is whole, or can no longer become valid.
async fn read_head(stream: &Stream) -> Option<Vec<u8>> {
    let until = Instant::now() + HEAD_TIME;
    let mut head = Vec::with_capacity(HEAD_LIMIT);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let read = stream.read_async(Append(head)).within(left).await;
        let BufResult(Ok(1..), Append(more)) = read else { return None };
        head = more;
        if !matches!(parse(&head), Parsed::Part) {
            return Some(head);
        }
    }
}

/// What the bytes received so far are.
enum Parsed<'a> {
    /// The beginning of a head.
    Part,
    Whole(Request<'a>),
    Refused(Status),
}

fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_LIMIT];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_LIMIT => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_LIMIT => return Parsed::Part,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(Status::HeadTooLarge);
        }
        Err(_) => return Parsed::Refused(Status::BadRequest),
    }
    if request.method != Some("GET") {
        return Parsed::Refused(Status::MethodNotAllowed);
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let accept = request.headers.iter().find(|one| one.name.eq_ignore_ascii_case("accept"));
    let accept = accept.and_then(|header| std::str::from_utf8(header.value).ok());
    Parsed::Whole(Request { path, accept })
}

/// Reads the rest of what the client sends.
async fn linger(stream: &Stream) -> Option<()> {
    let until = Instant::now() + LINGER;
    stream.shutdown(Shutdown::Write).ok()?;
    let mut buffer = vec![0; 4096];
    let mut total = 0;
    while total < LINGER_LIMIT {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let BufResult(read, returned) = stream.read_async(buffer).within(left).await;
        match read.ok()? {
            0 => break,
            bytes => total += bytes,
        }
        buffer = returned;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> Option<Status> {
        match parse(bytes) {
            Parsed::Refused(status) => Some(status),
            Parsed::Part | Parsed::Whole(_) => None,
        }
    }

    #[test]
    fn a_get_is_understood_however_it_arrives() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\naccept: text/plain\r\n\r\n";
        for length in 0..whole.len() {
            assert!(matches!(parse(&whole[..length]), Parsed::Part), "{length}");
        }
        let Parsed::Whole(request) = parse(whole) else { panic!("not understood") };
        assert_eq!((request.path, request.accept), ("/metrics", Some("text/plain")));
    }

    #[test]
    fn what_is_no_small_get_is_refused() {
        assert_eq!(refused(b"POST / HTTP/1.1\r\n\r\n"), Some(Status::MethodNotAllowed));
        assert_eq!(refused(b"HEAD / HTTP/1.1\r\n\r\n"), Some(Status::MethodNotAllowed));
        assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01"), Some(Status::BadRequest));
        assert_eq!(refused(b"GET / HTTP/9\r\n\r\n"), Some(Status::BadRequest));
        let long = [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'x'; HEAD_LIMIT]].concat();
        assert_eq!(refused(&long), Some(Status::HeadTooLarge));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(HEADER_LIMIT + 1));
        assert_eq!(refused(many.as_bytes()), Some(Status::HeadTooLarge));
    }
}
