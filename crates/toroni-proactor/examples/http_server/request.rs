//! Parses requests. `httparse` reads the lines; this module interprets them.

use crate::response::Status;
use httparse::Header;

/// The maximum length of a request's head in bytes.
pub(crate) const HEAD_LIMIT: usize = 16 * 1024;

/// The maximum number of its lines.
const HEADERS: usize = 100;

/// A client's request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The path below the root: without empty parts, `.`, `..` and zero bytes.
    pub(crate) path: Vec<u8>,
    /// Whether another request may follow.
    pub(crate) keeps_alive: bool,
    /// Whether the response must say that.
    pub(crate) is_old: bool,
    /// The length in bytes of the body.
    pub(crate) body: u64,
    /// The client sends the body only after `100 Continue`.
    pub(crate) expects_continue: bool,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) if_modified_since: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Other,
}

/// What the bytes received so far are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The beginning of a request.
    Part,
    /// A request, and the length of its head.
    Whole(Box<Request>, usize),
    /// Invalid: send this status, and close.
    Wrong(Status),
}

/// Parses what was received so far.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_LIMIT => {
            match understand(&request) {
                Ok(understood) => Parsed::Whole(Box::new(understood), length),
                Err(status) => Parsed::Wrong(status),
            }
        }
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_LIMIT => Parsed::Part,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Parsed::Wrong(Status::HeadTooLarge),
        Err(httparse::Error::Version) => Parsed::Wrong(Status::Version),
        Err(_) => Parsed::Wrong(Status::BadRequest),
    }
}

fn understand(request: &httparse::Request<'_, '_>) -> Result<Request, Status> {
    let is_old = request.version == Some(0);
    let headers: &[Header<'_>] = request.headers;
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    if all(headers, "host").count() != 1 && !is_old || all(headers, "host").count() > 1 {
        return Err(Status::BadRequest);
    }
    // The length of a chunked body is known only after reading it, which this server does not do.
    if all(headers, "transfer-encoding").next().is_some() {
        return Err(Status::LengthRequired);
    }
    let says = |name, wanted: &str| {
        let mut words = all(headers, name).flat_map(|value| value.split(|byte| *byte == b','));
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
    };
    let keeps_alive =
        if is_old { says("connection", "keep-alive") } else { !says("connection", "close") };
    let text = |name| {
        let value = all(headers, name).next()?;
        std::str::from_utf8(value).ok().map(|value| value.trim().to_owned())
    };
    Ok(Request {
        method,
        path: if method == Method::Other { Vec::new() } else { path(request.path.unwrap_or(""))? },
        keeps_alive,
        is_old,
        body: body(headers)?,
        expects_continue: says("expect", "100-continue"),
        range: text("range"),
        if_range: text("if-range"),
        if_modified_since: text("if-modified-since"),
    })
}

/// Returns the values of all headers of that name.
fn all<'a>(headers: &'a [Header<'a>], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    named.map(|header| header.value)
}

/// Returns `Content-Length`, which may occur once at most.
fn body(headers: &[Header<'_>]) -> Result<u64, Status> {
    let mut lengths = all(headers, "content-length");
    let (first, second) = (lengths.next(), lengths.next());
    let Some(length) = first else { return Ok(0) };
    if second.is_some() || length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
        return Err(Status::BadRequest);
    }
    // A number that does not fit is too large in any case.
    Ok(std::str::from_utf8(length).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX))
}

/// Converts a target such as `/a%20directory/file?query` to a path below the root.
fn path(target: &str) -> Result<Vec<u8>, Status> {
    // A client of a proxy sends the whole URL.
    let target = match target.split_once("://") {
        Some(("http" | "https", rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    let target = target.strip_prefix('/').ok_or(Status::BadRequest)?;
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let mut path = Vec::new();
    for part in target[..end].split('/').filter(|part| !part.is_empty()) {
        let part = decoded(part.as_bytes())?;
        if part == b"." || part == b".." || part.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(Status::BadRequest);
        }
        path.extend(part);
        path.push(b'/');
    }
    // A path that ends with a slash, such as the root, is a directory.
    if target[..end].is_empty() || target[..end].ends_with('/') {
        path.extend(b"index.html");
    } else {
        path.pop();
    }
    Ok(path)
}

/// Decodes `%41` to `A`.
fn decoded(mut text: &[u8]) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            text = rest;
            continue;
        }
        let (code, rest) = rest.split_at_checked(2).ok_or(Status::BadRequest)?;
        let digits = std::str::from_utf8(code).ok().filter(|code| !code.starts_with('+'));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or(Status::BadRequest)?);
        text = rest;
    }
    Ok(bytes)
}
