//! The HTTP server for metrics and health checks of Toroni's programs.
//!
//! A program that has a proactor serves there ([`serve`]); another one starts a thread ([`serve_in_thread`]). Either
//! gives a function that makes the response to a request. For programs that serve `/metrics` and `/healthz`, that is
//! [`metrics::answer`].
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let text = || "# HELP up Whether it works.\n# TYPE up gauge\nup 1\n# EOF\n".to_owned();
//! let address = toroni_http::serve_in_thread(
//!     "127.0.0.1:0".parse()?,
//!     std::sync::Arc::new(move |request: &_| toroni_http::metrics::answer(request, text)),
//! )?;
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\nup 1\n# EOF\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod metrics;
mod server;

pub use server::{
    Answer, CONNECTION_LIMIT, HEAD_LIMIT, HEADER_LIMIT, Request, Response, Status, serve,
    serve_in_thread,
};
