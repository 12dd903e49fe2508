//! The kinds of operations, and sets of them.

use serde::Deserialize;
use std::fmt;

/// What an operation does. Each text begins with the paper's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum OperationKind {
    /// `READ_STREAM`: reads bytes from a connected socket, a pipe or a terminal.
    ReadStream,
    /// `WRITE_STREAM`: writes bytes to a connected socket, a pipe or a terminal.
    WriteStream,
    /// `READ_FILE`: reads bytes at an offset of a file.
    ReadFile,
    /// `WRITE_FILE`: writes bytes at an offset of a file.
    WriteFile,
    /// `READ_DGRAM`: receives one datagram and its sender's address.
    ReadDatagram,
    /// `WRITE_DGRAM`: sends one datagram, to an address or to the connected peer.
    WriteDatagram,
    /// `ACCEPT`: accepts the next connection of a listening socket.
    Accept,
    /// `CONNECT`: connects a socket to an address.
    Connect,
    /// `WAIT_READABLE`: waits until a descriptor can be read, and takes nothing from it. Not in the paper.
    WaitReadable,
    /// `WAIT_WORD`: waits until a word in memory, a futex, is woken. Only with io_uring on Linux 6.7 and
    /// newer. Not in the paper.
    WaitWord,
    /// A point in time, post-completed when it comes. No provider takes part.
    #[serde(skip)]
    Timer,
    /// A posted handler. No provider takes part.
    #[serde(skip)]
    Post,
}

impl OperationKind {
    /// The operations that a provider may support.
    pub const STARTABLE: [Self; 10] = [
        Self::ReadStream,
        Self::WriteStream,
        Self::ReadFile,
        Self::WriteFile,
        Self::ReadDatagram,
        Self::WriteDatagram,
        Self::Accept,
        Self::Connect,
        Self::WaitReadable,
        Self::WaitWord,
    ];

    /// Returns whether the operation waits for its descriptor to become readable, not writable.
    pub(crate) fn is_reading(self) -> bool {
        matches!(
            self,
            Self::ReadStream
                | Self::ReadFile
                | Self::ReadDatagram
                | Self::Accept
                | Self::WaitReadable
        )
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ReadStream => "READ_STREAM",
            Self::WriteStream => "WRITE_STREAM",
            Self::ReadFile => "READ_FILE",
            Self::WriteFile => "WRITE_FILE",
            Self::ReadDatagram => "READ_DGRAM",
            Self::WriteDatagram => "WRITE_DGRAM",
            Self::Accept => "ACCEPT",
            Self::Connect => "CONNECT",
            Self::WaitReadable => "WAIT_READABLE",
            Self::WaitWord => "WAIT_WORD",
            Self::Timer => "TIMER",
            Self::Post => "POST",
        })
    }
}

/// A set of kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "Vec<OperationKind>")]
pub struct OperationMask(u16);

impl From<Vec<OperationKind>> for OperationMask {
    fn from(operations: Vec<OperationKind>) -> Self {
        Self::of(&operations)
    }
}

impl OperationMask {
    /// All operations that a provider may support.
    pub const ALL: Self = Self(0x3FF);
    /// `READ_FILE` and `WRITE_FILE`.
    pub const FILES: Self =
        Self(1 << OperationKind::ReadFile as u16 | 1 << OperationKind::WriteFile as u16);

    /// Returns the set of these operations. Leaves timers and posts out, which every proactor supports.
    #[must_use]
    pub fn of(operations: &[OperationKind]) -> Self {
        let bits = operations.iter().map(|kind| 1 << *kind as u16);
        Self(bits.fold(0, |all, bit: u16| all | bit) & Self::ALL.0)
    }

    /// Returns the set without this operation.
    #[must_use]
    pub const fn without(self, kind: OperationKind) -> Self {
        Self(self.0 & !(1 << kind as u16))
    }

    /// Returns the operations that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the operation is in the set.
    #[must_use]
    pub const fn contains(self, kind: OperationKind) -> bool {
        self.0 >> kind as u16 & 1 != 0
    }
}

impl fmt::Debug for OperationMask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = OperationKind::STARTABLE.iter().filter(|kind| self.contains(**kind));
        formatter.debug_set().entries(members).finish()
    }
}
