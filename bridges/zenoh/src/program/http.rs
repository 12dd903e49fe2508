//! A small HTTP server for `/metrics` and `/healthz`. It answers GET, closes each connection after its answer, and
//! bounds what a client can occupy: [`CONNECTIONS`] at a time, [`HEAD_BYTES`] and [`TIMEOUT`] each.

use super::metrics;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use toroni_zenoh::Counters;

/// Connections beyond these are closed at once.
const CONNECTIONS: usize = 16;
const HEAD_BYTES: usize = 8 << 10;
/// How long a connection may last in all.
const TIMEOUT: Duration = Duration::from_secs(5);
const HEADERS: usize = 64;

/// What the server shows.
pub(crate) trait Source: Send + Sync + 'static {
    /// Returns the counters.
    fn counters(&self) -> Counters;
}

/// Listens on the address, and serves until the process ends. Returns the address with the port that the system chose.
pub(crate) fn serve(address: SocketAddr, source: Arc<dyn Source>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            match listener.accept() {
                Ok((stream, _)) => answer_in_thread(stream, &source, &open),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for metrics");
                    // For example, there may be no descriptor left.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(bound)
}

fn answer_in_thread(stream: TcpStream, source: &Arc<dyn Source>, open: &Arc<AtomicUsize>) {
    let guard = Open::one_more(open);
    if guard.is_too_many {
        return;
    }
    let source = Arc::clone(source);
    let work = move || {
        let _guard = guard;
        // A client that goes away has no need of an answer.
        let _ = answer(stream, &*source);
    };
    if let Err(error) = std::thread::Builder::new().name("metrics-client".to_owned()).spawn(work) {
        tracing::warn!(%error, "cannot start a thread for a client of the metrics");
    }
}

struct Open {
    count: Arc<AtomicUsize>,
    is_too_many: bool,
}

impl Open {
    fn one_more(count: &Arc<AtomicUsize>) -> Self {
        let before = count.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(count), is_too_many: before >= CONNECTIONS }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, source: &dyn Source) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    let reply = loop {
        match reply_to(&head, source) {
            Some(reply) => break reply,
            None if head.len() > HEAD_BYTES => {
                break refusal("431 Request Header Fields Too Large");
            }
            None => {}
        }
        // A client that sends a byte at a time may not stay longer.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => head.extend(&buffer[..length]),
        }
    };
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(reply.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Returns the whole reply, or `None` if the head of the request is incomplete.
fn reply_to(head: &[u8], source: &dyn Source) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(httparse::Error::TooManyHeaders) => {
            return Some(refusal("431 Request Header Fields Too Large"));
        }
        Err(_) => return Some(refusal("400 Bad Request")),
    }
    if request.method != Some("GET") {
        return Some(refusal("405 Method Not Allowed"));
    }
    let path = request.path.unwrap_or_default();
    Some(match path.split('?').next().unwrap_or_default() {
        "/metrics" => reply("200 OK", metrics::MEDIA_TYPE, &metrics::text(source.counters())),
        "/healthz" => reply("200 OK", PLAIN, "ok\n"),
        _ => refusal("404 Not Found"),
    })
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn refusal(status: &str) -> String {
    reply(status, PLAIN, &format!("{status}: there are GET /metrics and GET /healthz\n"))
}

fn reply(status: &str, media_type: &str, body: &str) -> String {
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros;

    impl Source for Zeros {
        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may answer before it has read everything.
        let _ = stream.write_all(request);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        String::from_utf8(said).unwrap()
    }

    #[test]
    fn it_answers_what_is_asked_and_refuses_the_rest() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = serve(any, Arc::new(Zeros)).unwrap();
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(2 * HEAD_BYTES));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(HEADERS + 1));
        for (request, status) in [
            (&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..], "200"),
            (b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n", "200"),
            (b"GET /healthz HTTP/1.1\r\n\r\n", "200"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\0\xff\xff nonsense\r\n\r\n", "400"),
            (many.as_bytes(), "431"),
            (long.as_bytes(), "431"),
        ] {
            let said = ask(address, request);
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {said}");
        }
    }

    /// Clients that connect and say nothing occupy places only until the time is over.
    #[test]
    fn silent_clients_have_a_limit() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = serve(any, Arc::new(Zeros)).unwrap();
        let silent: Vec<TcpStream> =
            (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let request = b"GET /healthz HTTP/1.1\r\n\r\n";
        assert_eq!(ask(address, request), "", "there is no place for one more");
        drop(silent);
        let deadline = Instant::now() + 12 * TIMEOUT;
        while !ask(address, request).starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < deadline, "the places stay occupied");
        }
    }
}
