//! The sockets of a run, connected before its time begins.

use super::Plan;
use super::end::{End, Part};
use crate::Failure;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// An end of a connection and its socket, which is blocking, as `std` makes it, without Nagle's algorithm.
#[derive(Debug)]
pub struct ConnectionEnd {
    /// The socket.
    pub stream: TcpStream,
    /// What it does.
    pub end: End,
}

/// Connects all pairs over the loopback interface. Returns client, server, client, server, …
///
/// # Errors
/// If a socket cannot be made, for example because the limit of descriptors is below two for each connection.
pub fn connect(plan: &Plan) -> Result<Vec<ConnectionEnd>, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of("listen"))?;
    let address = listener.local_addr().map_err(Failure::of("find the port"))?;
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        let client = TcpStream::connect(address).map_err(Failure::of("connect"))?;
        let (server, _) = listener.accept().map_err(Failure::of("accept"))?;
        for (part, stream) in [(Part::Client, client), (Part::Server, server)] {
            stream.set_nodelay(true).map_err(Failure::of("set TCP_NODELAY"))?;
            connections.push(ConnectionEnd { stream, end: End::new(part, plan) });
        }
    }
    Ok(connections)
}
