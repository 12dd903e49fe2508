//! The heads of responses.

use crate::files::Found;
use crate::request::Request;
use httpdate::{fmt_http_date, parse_http_date};
use std::fmt::Write;
use std::ops::Range;
use std::time::SystemTime;

/// A status. Its text is also the body, if the response has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    BadRequest,
    Forbidden,
    NotFound,
    Method,
    LengthRequired,
    BodyTooLarge,
    HeadTooLarge,
    Error,
    Busy,
    Version,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::LengthRequired => "411 Length Required",
            Self::BodyTooLarge => "413 Content Too Large",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Error => "500 Internal Server Error",
            Self::Busy => "503 Service Unavailable",
            Self::Version => "505 HTTP Version Not Supported",
        }
    }
}

/// What the response says about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// More requests may follow, which the client expects by default.
    KeepsAlive,
    /// The same, for a client that does not expect it.
    KeepsOldAlive,
    Closes,
}

/// Returns a response that is not a file; without a body if only the head was requested.
pub(crate) fn failure(status: Status, after: After, has_body: bool) -> Vec<u8> {
    let mut text = head(status.line(), after);
    if status == Status::Method {
        text.push_str("Allow: GET, HEAD\r\n");
    }
    let body = format!("{}\n", status.line());
    let _ = write!(text, "Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
    if has_body {
        text.push_str(&body);
    }
    text.into_bytes()
}

/// Returns the response for a client beyond the limit.
pub(crate) fn refusal() -> Vec<u8> {
    failure(Status::Busy, After::Closes, true)
}

/// Returns the head of a response with a file, and the range of bytes that follows.
pub(crate) fn file(request: &Request, found: &Found, after: After) -> (Vec<u8>, Range<u64>) {
    let modified = found.modified.map(fmt_http_date);
    let is_unchanged = found.modified.is_some_and(|modified| {
        let since = request.if_modified_since.as_deref().map(parse_http_date);
        matches!(since, Some(Ok(since)) if whole_seconds(modified) <= since)
    });
    // A range only of the version that the client already has.
    let is_known = request.if_range.is_none() || request.if_range == modified;
    let part = request.range.as_deref().filter(|_| is_known);
    let (line, bytes) = match part.and_then(|part| range(part, found.length)) {
        _ if is_unchanged => ("304 Not Modified", 0..0),
        None => ("200 OK", 0..found.length),
        Some(Some(bytes)) => ("206 Partial Content", bytes),
        Some(None) => ("416 Range Not Satisfiable", 0..0),
    };
    let mut text = head(line, after);
    if let Some(modified) = modified {
        let _ = write!(text, "Last-Modified: {modified}\r\n");
    }
    match line.as_bytes() {
        [b'3', ..] => {}
        [b'4', ..] => {
            let _ =
                write!(text, "Content-Range: bytes */{}\r\nContent-Length: 0\r\n", found.length);
        }
        _ => {
            let _ = write!(
                text,
                "Accept-Ranges: bytes\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
                found.kind,
                bytes.end - bytes.start
            );
            if line.starts_with("206") {
                let (first, last) = (bytes.start, bytes.end - 1);
                let _ = write!(text, "Content-Range: bytes {first}-{last}/{}\r\n", found.length);
            }
        }
    }
    text.push_str("\r\n");
    (text.into_bytes(), bytes)
}

fn head(line: &str, after: After) -> String {
    let connection = match after {
        After::KeepsAlive => "",
        After::KeepsOldAlive => "Connection: keep-alive\r\n",
        After::Closes => "Connection: close\r\n",
    };
    let now = fmt_http_date(SystemTime::now());
    format!("HTTP/1.1 {line}\r\nDate: {now}\r\n{connection}")
}

/// Rounds to the precision of dates in a head.
fn whole_seconds(time: SystemTime) -> SystemTime {
    parse_http_date(&fmt_http_date(time)).unwrap_or(time)
}

/// Parses `bytes=10-20`, `bytes=10-` or `bytes=-10`. Returns `None` for anything else, which is ignored, and an
/// inner `None` if the range begins after the end of the file.
fn range(text: &str, length: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let bytes = match (first, last) {
        ("", last) => length.saturating_sub(number(last)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => {
            let (first, last): (u64, u64) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some((bytes.start < bytes.end).then_some(bytes))
}
