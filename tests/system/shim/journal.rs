//! What the shim and the soak share: words in a file, by which the soak says what is to happen, and the journal, in which the shim
//! writes what a power failure may take.

#![allow(dead_code, reason = "each of the two uses a part")]

/// The wall clock is ahead by this many nanoseconds, as an `i64`.
pub(crate) const WALL: usize = 0;
/// Calls of these kinds fail with EIO: bits.
pub(crate) const FAIL: usize = 1;
/// How many calls have failed.
pub(crate) const FAILED: usize = 2;
/// Not 0: the journal is written.
pub(crate) const KEEP: usize = 3;
pub(crate) const WORDS: usize = 4;

/// Bits of [`FAIL`].
pub(crate) const PWRITE: u64 = 1;
pub(crate) const SYNC: u64 = 2;
pub(crate) const RENAME: u64 = 4;

/// The file with the words.
pub(crate) const CONTROL: &str = "TORONI_SHIM_CONTROL";
/// The directory whose files are concerned. Those of directories below it are not.
pub(crate) const DIRECTORY: &str = "TORONI_SHIM_DIRECTORY";
/// The journal. What a rename replaces is kept beside it, so it is on the same file system.
pub(crate) const JOURNAL: &str = "TORONI_SHIM_JOURNAL";
/// The file that is read in place of the id of the kernel's boot.
pub(crate) const BOOT: &str = "TORONI_SHIM_BOOT";

/// What was done to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Bytes of a file were replaced. There were none behind `before`.
    Written { path: Vec<u8>, offset: u64, before: Vec<u8>, after: Vec<u8> },
    /// A file or the directory was synced: what is before this place of the journal is on the disk.
    Synced { path: Vec<u8>, upto: u64 },
    /// A file was renamed. `kept` is what had the name before, or empty.
    Renamed { from: Vec<u8>, to: Vec<u8>, kept: Vec<u8> },
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, number, fields): (u8, u64, Vec<&[u8]>) = match self {
            Self::Written { path, offset, before, after } => {
                (0, *offset, vec![path, before, after])
            }
            Self::Synced { path, upto } => (1, *upto, vec![path]),
            Self::Renamed { from, to, kept } => (2, 0, vec![from, to, kept]),
        };
        let mut bytes = vec![kind];
        bytes.extend(number.to_le_bytes());
        for field in fields {
            bytes.extend((field.len() as u64).to_le_bytes());
            bytes.extend(field);
        }
        bytes
    }

    /// Reads the next record. `None` at the end, and if its process was killed while it wrote the record.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        fn number(rest: &mut &[u8]) -> Option<u64> {
            let (number, after) = rest.split_first_chunk()?;
            *rest = after;
            Some(u64::from_le_bytes(*number))
        }
        fn field(rest: &mut &[u8]) -> Option<Vec<u8>> {
            let length = usize::try_from(number(rest)?).ok()?;
            let (field, after) = rest.split_at_checked(length)?;
            *rest = after;
            Some(field.to_vec())
        }
        let mut rest = *bytes;
        let (kind, after) = rest.split_first()?;
        rest = after;
        let first = number(&mut rest)?;
        let path = field(&mut rest)?;
        let record = match kind {
            0 => {
                let (before, after) = (field(&mut rest)?, field(&mut rest)?);
                Self::Written { path, offset: first, before, after }
            }
            1 => Self::Synced { path, upto: first },
            _ => Self::Renamed { from: path, to: field(&mut rest)?, kept: field(&mut rest)? },
        };
        *bytes = rest;
        Some(record)
    }
}
