//! What the kernel says about the buffer of one socket: how full it is, and how many datagrams it had no room for.

use super::options;
use rustix::fd::AsFd;
use std::io;

/// Follows the counter that comes with each datagram ([`super::Arrival::dropped`]), which has 32 bits and wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    last: u32,
}

impl Overflow {
    /// Takes the counter of the next datagram, and returns how many were dropped since the one before.
    ///
    /// Datagrams that two CPUs receive at the same time may bring their counters in the wrong order; a counter that seems
    /// to go back is no drop.
    pub fn advance(&mut self, counter: u32) -> u64 {
        let more = counter.wrapping_sub(self.last);
        if more > u32::MAX / 2 {
            return 0;
        }
        self.last = counter;
        u64::from(more)
    }
}

/// How full the receive buffer of a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The memory that its datagrams are charged with, in bytes.
    pub allocated: u32,
    /// Its limit in bytes: twice the value of `SO_RCVBUF`.
    pub limit: u32,
    /// How many datagrams were dropped because there was no room, modulo 2³². Includes those of which no later datagram
    /// has told.
    pub drops: u32,
}

/// Asks the kernel (`SO_MEMINFO`, since Linux 4.12).
///
/// # Errors
/// If the descriptor is no socket, or the kernel does not know the option.
pub fn memory(socket: &impl AsFd) -> io::Result<Memory> {
    // linux/sock_diag.h: receive buffer, its limit, …, drops.
    match options::words::<9>(socket, options::MEMORY)? {
        ([allocated, limit, .., drops], 9) => Ok(Memory { allocated, limit, drops }),
        _ => Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_wraps() {
        let mut overflow = Overflow::default();
        assert_eq!(overflow.advance(5), 5);
        assert_eq!(overflow.advance(5), 0);
        // In the wrong order.
        assert_eq!(overflow.advance(4), 0);
        assert_eq!(overflow.advance(7), 2);
        let mut overflow = Overflow { last: u32::MAX - 1 };
        assert_eq!(overflow.advance(3), 5);
        assert_eq!(overflow.advance(3), 0);
    }

    #[test]
    fn what_is_no_socket_has_no_buffer() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(memory(&file).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }
}
