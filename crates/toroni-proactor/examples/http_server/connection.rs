//! One connection: requests one after the other, answered in their order, until either side has enough.

use crate::files::{Found, Site};
use crate::request::{HEAD_LIMIT, Method, Parsed, Request, parse};
use crate::response::{self, After, Status};
use std::net::Shutdown;
use std::ops::Range;
use std::time::Duration;
use toroni_proactor::{Append, BufResult, OperationError, Stream};

/// How long a client may be silent, and how long it may take for a piece of a file.
const PATIENCE: Duration = Duration::from_secs(30);

/// What of a file is in memory at a time, in bytes.
const PIECE: usize = 64 * 1024;

/// A body that is read and thrown away, so that the connection can go on, in bytes at most.
const BODY_LIMIT: u64 = 64 * 1024;

/// How long, and how many times, the rest of what a client sends is read after the last answer.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 64);

/// Serves a client to the end.
pub(crate) async fn serve(stream: Stream, site: &Site) {
    // Answers are written at once, so that there is nothing to collect.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection { stream, site, input: Vec::with_capacity(HEAD_LIMIT) };
    // What went wrong is the end of this connection, and no news for anybody.
    if let Ok(Next::Close) = connection.answer_all().await {
        connection.linger().await;
    }
}

struct Connection<'a> {
    stream: Stream,
    site: &'a Site,
    /// What has come and is not yet understood: perhaps more than one request.
    input: Vec<u8>,
}

/// What comes after an answer.
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
            let next = match parse(&self.input) {
                Parsed::Part => match self.receive().await? {
                    0 => Next::Closed,
                    _ => continue,
                },
                Parsed::Wrong(status) => {
                    self.send(response::failure(status, After::Closes, true)).await?;
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

    async fn answer(&mut self, request: &Request) -> Result<Next, OperationError> {
        let has_body = request.method != Method::Head;
        if request.body > BODY_LIMIT {
            self.send(response::failure(Status::BodyTooLarge, After::Closes, has_body)).await?;
            return Ok(Next::Close);
        }
        // Who waits to be told to send a body is told the result instead.
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
            Err(status) => drop(self.send(response::failure(status, after, has_body)).await?),
            Ok(found) => {
                let (head, bytes) = response::file(request, &found, after);
                let bytes = if has_body { bytes } else { 0..0 };
                if !self.send_file(head, &found, bytes).await? {
                    // It has become shorter than was said: that is told by the end of the connection.
                    return Ok(Next::Closed);
                }
            }
        }
        Ok(if keeps_alive { Next::Request } else { Next::Close })
    }

    /// A head, and a part of a file, piece by piece. Whether there was all of it.
    async fn send_file(
        &mut self,
        mut piece: Vec<u8>,
        found: &Found,
        mut bytes: Range<u64>,
    ) -> Result<bool, OperationError> {
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
            piece = self.send(piece).await?;
            if bytes.is_empty() {
                return Ok(true);
            }
            piece.clear();
        }
    }

    async fn send(&self, bytes: Vec<u8>) -> Result<Vec<u8>, OperationError> {
        let BufResult(result, bytes) = self.stream.write_all_async(bytes).within(PATIENCE).await;
        result.map(|()| bytes)
    }

    /// Reads more behind what there is. 0 is the end.
    async fn receive(&mut self) -> Result<usize, OperationError> {
        let input = Append(std::mem::take(&mut self.input));
        let BufResult(result, Append(input)) = self.stream.read_async(input).within(PATIENCE).await;
        self.input = input;
        result
    }

    /// Throws a body away. Whether all of it came.
    async fn skip_body(&mut self, mut length: u64) -> Result<bool, OperationError> {
        loop {
            let here = usize::try_from(length).unwrap_or(usize::MAX).min(self.input.len());
            self.input.drain(..here);
            length -= here as u64;
            if length == 0 {
                return Ok(true);
            }
            if self.receive().await? == 0 {
                return Ok(false);
            }
        }
    }

    /// Closing while the client still sends would make its kernel throw away the answer.
    async fn linger(&mut self) {
        let (limit, times) = LINGER;
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        for _ in 0..times {
            self.input.clear();
            let input = Append(std::mem::take(&mut self.input));
            let BufResult(result, Append(input)) =
                self.stream.read_async(input).within(limit).await;
            self.input = input;
            if !matches!(result, Ok(1..)) {
                return;
            }
        }
    }
}
