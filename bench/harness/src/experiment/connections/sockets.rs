//! The connections of a run: made before its time begins.

use super::Plan;
use super::end::{End, Part};
use crate::Failure;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// An end, and its socket: blocking, as `std` makes them, without Nagle's algorithm.
#[derive(Debug)]
pub struct ConnectionEnd {
    /// The socket.
    pub stream: TcpStream,
    /// What it does.
    pub end: End,
}

/// Both ends of each session, over the loopback interface: client, server, client, server, …
///
/// # Errors
/// If sockets cannot be made, as where the limit of descriptors is below two for each session.
pub fn connect(plan: &Plan) -> Result<Vec<ConnectionEnd>, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of("listen"))?;
    let address = listener.local_addr().map_err(Failure::of("find the port"))?;
    let mut connections = Vec::new();
    for _ in 0..plan.sessions {
        let client = TcpStream::connect(address).map_err(Failure::of("connect"))?;
        let (server, _) = listener.accept().map_err(Failure::of("accept"))?;
        for (part, stream) in [(Part::Client, client), (Part::Server, server)] {
            stream.set_nodelay(true).map_err(Failure::of("set TCP_NODELAY"))?;
            connections.push(ConnectionEnd { stream, end: End::new(part, plan) });
        }
    }
    Ok(connections)
}
