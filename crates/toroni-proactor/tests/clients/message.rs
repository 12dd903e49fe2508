//! A small HTTP client, for what curl does not show: the order of responses.

use crate::common::LOST;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection to a server.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// By name, in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LOST)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Returns the next response, with a body unless the request was `HEAD`.
    #[track_caller]
    pub(crate) fn answer(&mut self, has_body: bool) -> Answer {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let read = self.reader.read_until(b'\n', &mut head).unwrap();
            assert!(read > 0, "ends in a head: {:?}", String::from_utf8_lossy(&head));
        }
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        assert!(response.parse(&head).unwrap().is_complete());
        assert_eq!(response.version, Some(1));
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let headers: HashMap<_, _> = response
            .headers
            .iter()
            .map(|header| (header.name.to_ascii_lowercase(), text(header.value)))
            .collect();
        let length = if has_body { headers["content-length"].parse().unwrap() } else { 0 };
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).unwrap();
        Answer { status: response.code.unwrap(), headers, body }
    }

    /// Sends a request without a body, and returns its response.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.answer(true)
    }

    /// Returns everything until the end of the connection.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        rest
    }
}
