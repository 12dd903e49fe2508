//! One connection: answers requests in their order, until either side closes it.

use crate::files::{Found, Site};
use crate::request::{HEAD_LIMIT, Method, Parsed, Request, parse};
use crate::response::{self, After, Status};
use std::net::Shutdown;
use std::ops::Range;
use std::time::{Duration, Instant};
use toroni_proactor::{Append, BufResult, OperationError, Stream};

/// Bytes of a file that a client has to receive per second, beyond the timeout.
const SLOWEST: u64 = 4096;

/// Bytes of a file that are in memory at a time.
const PIECE: usize = 64 * 1024;

/// The maximum length in bytes of a body that is read and discarded, so that the connection can continue.
const BODY_LIMIT: u64 = 64 * 1024;

/// How long to read what a client still sends after the last response.
const LINGER: Duration = Duration::from_secs(2);

/// Serves a client until the connection ends. The timeout applies to the head of each request, to its body,
/// and to a response (a large file may take longer), each as a whole, however small the pieces are.
pub(crate) async fn serve(stream: Stream, site: &Site, timeout: Duration) {
    // Responses are written as a whole, so there is nothing to collect.
    let _ = stream.set_nodelay(true);
    let input = Vec::with_capacity(HEAD_LIMIT);
    let mut connection = Connection { stream, site, timeout, input };
    // An error ends this connection, and is not reported.
    if let Ok(Next::Close) = connection.answer_all().await {
        connection.linger().await;
    }
}

struct Connection<'a> {
    stream: Stream,
    site: &'a Site,
    timeout: Duration,
    /// Bytes received and not parsed yet: perhaps more than one request.
    input: Vec<u8>,
}

/// What follows a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The next request.
    Request,
    /// This side closes.
    Close,
    /// The client has closed.
    Closed,
}

impl Connection<'_> {
    async fn answer_all(&mut self) -> Result<Next, OperationError> {
        loop {
            let next = match self.head().await? {
                Parsed::Part => Next::Closed,
                Parsed::Wrong(status) => {
                    self.fail(status, After::Closes, true).await?;
                    Next::Close
                }
                Parsed::Whole(request, length) => {
                    self.input.drain(..length);
                    self.answer(&request).await?
                }
            };
            if next != Next::Request {
                return Ok(next);
            }
        }
    }

    /// Reads until there is a head, valid or not. `Parsed::Part` means that no more will arrive.
    async fn head(&mut self) -> Result<Parsed, OperationError> {
        let until = self.within_timeout();
        loop {
            let parsed = parse(&self.input);
            if !matches!(parsed, Parsed::Part) || self.receive(until).await? == 0 {
                return Ok(parsed);
            }
        }
    }

    async fn answer(&mut self, request: &Request) -> Result<Next, OperationError> {
        let has_body = request.method != Method::Head;
        if request.body > BODY_LIMIT {
            self.fail(Status::BodyTooLarge, After::Closes, has_body).await?;
            return Ok(Next::Close);
        }
        // A client that expects `100 Continue` receives the final response instead.
        let keeps_alive = request.keeps_alive && !(request.expects_continue && request.body > 0);
        if keeps_alive && !self.skip_body(request.body).await? {
            return Ok(Next::Closed);
        }
        let after = match (keeps_alive, request.is_old) {
            (false, _) => After::Closes,
            (true, true) => After::KeepsOldAlive,
            (true, false) => After::KeepsAlive,
        };
        let found = match request.method {
            Method::Other => Err(Status::Method),
            Method::Get | Method::Head => self.site.find(&request.path),
        };
        match found {
            Err(status) => self.fail(status, after, has_body).await?,
            Ok(found) => {
                let (head, bytes) = response::file(request, &found, after);
                let bytes = if has_body { bytes } else { 0..0 };
                if !self.send_file(head, &found, bytes).await? {
                    // The file has become shorter than announced: the end of the connection shows that.
                    return Ok(Next::Closed);
                }
            }
        }
        Ok(if keeps_alive { Next::Request } else { Next::Close })
    }

    /// Sends a head and a part of a file, piece by piece. Returns whether the file had all of it.
    async fn send_file(
        &mut self,
        mut piece: Vec<u8>,
        found: &Found,
        mut bytes: Range<u64>,
    ) -> Result<bool, OperationError> {
        let length = bytes.end - bytes.start;
        let until = self.within_timeout() + Duration::from_secs(length / SLOWEST);
        loop {
            let left = usize::try_from(bytes.end - bytes.start).unwrap_or(PIECE).min(PIECE);
            if left > 0 {
                piece.reserve_exact(left);
                let before = piece.len();
                let read = found.file.read_async(bytes.start, Append(piece)).await;
                let BufResult(result, Append(filled)) = read;
                let read = result?.min(left);
                if read == 0 {
                    return Ok(false);
                }
                piece = filled;
                piece.truncate(before + read);
                bytes.start += read as u64;
            }
            // Who takes nothing is not waited for because the file is large.
            piece = self.send(piece, until.min(self.within_timeout())).await?;
            if bytes.is_empty() {
                return Ok(true);
            }
            piece.clear();
        }
    }

    async fn fail(
        &self,
        status: Status,
        after: After,
        has_body: bool,
    ) -> Result<(), OperationError> {
        let answer = response::failure(status, after, has_body);
        self.send(answer, self.within_timeout()).await.map(drop)
    }

    async fn send(&self, bytes: Vec<u8>, until: Instant) -> Result<Vec<u8>, OperationError> {
        let sent = self.stream.write_all_async(bytes).within(left(until));
        let BufResult(result, bytes) = sent.await;
        result.map(|()| bytes)
    }

    /// Reads more bytes. 0 means the end, or that the time is over.
    async fn receive(&mut self, until: Instant) -> Result<usize, OperationError> {
        let limit = left(until);
        if limit.is_zero() {
            // There may always be more.
            return Ok(0);
        }
        let input = Append(std::mem::take(&mut self.input));
        let BufResult(result, Append(input)) = self.stream.read_async(input).within(limit).await;
        self.input = input;
        result
    }

    fn within_timeout(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Discards a body. Returns whether all of it arrived.
    async fn skip_body(&mut self, mut length: u64) -> Result<bool, OperationError> {
        let until = self.within_timeout();
        loop {
            let here = usize::try_from(length).unwrap_or(usize::MAX).min(self.input.len());
            self.input.drain(..here);
            length -= here as u64;
            if length == 0 {
                return Ok(true);
            }
            if self.receive(until).await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Reads the rest before it closes: otherwise the client's kernel would discard the response.
    async fn linger(&mut self) {
        let until = Instant::now() + LINGER;
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        loop {
            self.input.clear();
            if !matches!(self.receive(until).await, Ok(1..)) {
                return;
            }
        }
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
