//! A fan-out as one writes it by hand: each client has a queue in the server's memory, and the server writes what the
//! socket takes. What does not fit a queue any more is left out.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use toroni_bench_harness::Failure;
use toroni_testkit::network::Host;

use super::{Client, Ends, PORT, READ_BYTES, SLOW_READS, Server};

/// As much as may wait for a client of a node.
const QUEUE_BYTES: usize = 4 << 20;
const LENGTH: usize = 4;

struct Fan {
    clients: Vec<(TcpStream, Vec<u8>)>,
}

/// A client of this fan-out, or of anything else that frames its messages.
pub(super) struct Stream<F> {
    pub(super) socket: TcpStream,
    pub(super) bytes: Vec<u8>,
    pub(super) framing: F,
}

/// Finds messages in what was read.
pub(super) trait Framing: Send {
    /// Hands over the first message, if it is complete, and returns how many bytes it has taken with its frame. `None`: there is
    /// none yet. It may answer on the socket.
    fn next(
        &mut self,
        bytes: &[u8],
        socket: &mut TcpStream,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<usize>, Failure>;
}

struct Lengths;

impl Framing for Lengths {
    fn next(
        &mut self,
        bytes: &[u8],
        _: &mut TcpStream,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<usize>, Failure> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        each(payload);
        Ok(Some(LENGTH + length))
    }
}

pub(super) fn open(hosts: &[Host]) -> Result<Ends, Failure> {
    let [at, others @ ..] = hosts else { return Err(Failure::new("no hosts")) };
    let address = SocketAddr::new(at.address().into(), PORT);
    let listener = at.enter(|| TcpListener::bind(address)).map_err(Failure::of("listen"))?;
    let (mut clients, mut ends) = (Vec::new(), Vec::new());
    for host in others {
        ends.push(Box::new(connect(host, address, Lengths)?) as Box<dyn Client>);
        let (socket, _) = listener.accept().map_err(Failure::of("accept"))?;
        socket
            .set_nonblocking(true)
            .and_then(|()| socket.set_nodelay(true))
            .map_err(Failure::of("prepare a socket"))?;
        clients.push((socket, Vec::new()));
    }
    Ok((Box::new(Fan { clients }), ends))
}

pub(super) fn connect<F: Framing>(
    host: &Host,
    address: SocketAddr,
    framing: F,
) -> Result<Stream<F>, Failure> {
    let socket = host.enter(|| TcpStream::connect(address)).map_err(Failure::of("connect"))?;
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .and_then(|()| socket.set_nodelay(true))
        .map_err(Failure::of("prepare a socket"))?;
    Ok(Stream { socket, bytes: Vec::new(), framing })
}

impl Server for Fan {
    fn publish(&mut self, payload: &[u8]) -> Result<(), Failure> {
        for (_, queue) in &mut self.clients {
            if queue.len() + LENGTH + payload.len() <= QUEUE_BYTES {
                queue.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
                queue.extend_from_slice(payload);
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        for (socket, queue) in &mut self.clients {
            let mut written = 0;
            while written < queue.len() {
                match socket.write(&queue[written..]) {
                    Ok(bytes) => written += bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(Failure::of("write")(error)),
                }
            }
            queue.drain(..written);
        }
        Ok(())
    }
}

impl<F: Framing> Client for Stream<F> {
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        for _ in 0..SLOW_READS {
            let begin = self.bytes.len();
            self.bytes.resize(begin + READ_BYTES, 0);
            let read = self.socket.read(&mut self.bytes[begin..]);
            self.bytes.truncate(begin + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(Failure::new("the server has closed the connection")),
                Ok(_) => {}
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) =>
                {
                    break;
                }
                Err(error) => return Err(Failure::of("read")(error)),
            }
            let mut taken = 0;
            while let Some(bytes) =
                self.framing.next(&self.bytes[taken..], &mut self.socket, each)?
            {
                taken += bytes;
            }
            self.bytes.drain(..taken);
            if self.bytes.len() < READ_BYTES / 2 && taken < READ_BYTES / 2 {
                break;
            }
        }
        Ok(())
    }
}
