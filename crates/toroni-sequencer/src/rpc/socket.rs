//! What every socket of members is set to.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};

/// After this long without a byte from the other end, the kernel asks whether it is there.
const IDLE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(5);
/// After this many questions without an answer, the connection is lost.
const QUESTIONS: u32 = 3;

/// Sends small frames at once, and notices that the other host is gone; see `TCP_KEEPIDLE` in tcp(7). Otherwise a host that
/// lost its power would keep its connection, one of a bounded number, for ever.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// This many connections wait to be accepted; the kernel has a limit of its own, `net.core.somaxconn`.
const QUEUE: i32 = 4096;

/// Lengthens the queue of a socket that listens already: a full one would hide members behind others.
pub(super) fn lengthen_queue(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, QUEUE)?)
}

/// What the kernel holds of answers to one host: with more, the answers of a thousand hosts that take nothing would be gigabytes.
const UNSENT_BYTES: usize = 256 << 10;

/// Limits what the kernel holds of answers that a host does not take.
pub(super) fn limit_unsent(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(stream, UNSENT_BYTES)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_a_silent_host_whether_it_is_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).await.expect("connected");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(false));
        prepare(&stream).expect("prepared");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(IDLE));
        assert!(stream.nodelay().expect("known"));
    }
}
