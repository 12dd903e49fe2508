//! What an operation does, and sets of such.

use serde::Deserialize;
use std::fmt;

/// What an operation does. The paper's names are in the text of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum OperationKind {
    /// `READ_STREAM`: bytes from a connected socket, a pipe or a terminal.
    ReadStream,
    /// `WRITE_STREAM`: bytes to a connected socket, a pipe or a terminal.
    WriteStream,
    /// `READ_FILE`: bytes from a place in a file.
    ReadFile,
    /// `WRITE_FILE`: bytes to a place in a file.
    WriteFile,
    /// `READ_DGRAM`: one datagram and its sender.
    ReadDatagram,
    /// `WRITE_DGRAM`: one datagram, to an address or to the connected peer.
    WriteDatagram,
    /// `ACCEPT`: the next connection of a listening socket.
    Accept,
    /// `CONNECT`: a socket to an address.
    Connect,
    /// `WAIT_READABLE`: until a descriptor can be read; nothing is taken from it. Not in the paper.
    WaitReadable,
    /// `WAIT_WORD`: until a word in memory, a futex, is woken; io_uring of Linux 6.7 and newer only. Not in
    /// the paper.
    WaitWord,
    #[serde(skip)]
    /// A moment, post-completed when it comes. No provider is asked.
    Timer,
    #[serde(skip)]
    /// A handler that somebody posted. No provider is asked.
    Post,
}

impl OperationKind {
    /// Those that a provider may support.
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

    /// Whether it waits for its descriptor to become readable, not writable.
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

/// A set of operations: what a provider supports.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "Vec<OperationKind>")]
pub struct OperationMask(u16);

impl From<Vec<OperationKind>> for OperationMask {
    fn from(operations: Vec<OperationKind>) -> Self {
        Self::of(&operations)
    }
}

impl OperationMask {
    /// All that a provider may support.
    pub const ALL: Self = Self(0x3FF);
    /// `READ_FILE` and `WRITE_FILE`.
    pub const FILES: Self =
        Self(1 << OperationKind::ReadFile as u16 | 1 << OperationKind::WriteFile as u16);

    /// These; timers and posts are done by every proactor, and are left out.
    #[must_use]
    pub fn of(operations: &[OperationKind]) -> Self {
        let bits = operations.iter().map(|kind| 1 << *kind as u16);
        Self(bits.fold(0, |all, bit: u16| all | bit) & Self::ALL.0)
    }

    /// All but this one.
    #[must_use]
    pub const fn without(self, kind: OperationKind) -> Self {
        Self(self.0 & !(1 << kind as u16))
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the operation is in the set.
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
