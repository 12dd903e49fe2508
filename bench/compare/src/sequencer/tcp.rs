//! The floor: 64 bytes there and back over a TCP connection of this host, both ends blocking.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use toroni_bench_harness::Failure;

use super::{Contender, PAYLOAD_BYTES};

struct Tcp(TcpStream);

pub(super) fn start(_: &Path) -> Result<Box<dyn Contender>, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("TCP: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let stream = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (mut other, _) = listener.accept().map_err(failed)?;
    for end in [&stream, &other] {
        end.set_nodelay(true).map_err(failed)?;
    }
    // Ends with the connection.
    std::thread::spawn(move || {
        let mut bytes = [0; PAYLOAD_BYTES];
        while other.read_exact(&mut bytes).and_then(|()| other.write_all(&bytes)).is_ok() {}
    });
    Ok(Box::new(Tcp(stream)))
}

impl Contender for Tcp {
    fn one(&mut self) -> Result<(), Failure> {
        let mut bytes = [7; PAYLOAD_BYTES];
        let done = self.0.write_all(&bytes).and_then(|()| self.0.read_exact(&mut bytes));
        done.map_err(|error| Failure::new(format!("TCP: {error}")))
    }

    fn many(&mut self, _: Duration) -> Result<u64, Failure> {
        Ok(0)
    }

    fn kill_leader(&mut self) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }
}
