//! Every reason to refuse a datagram, or a frame of TCP, once.

/// Why a datagram, or a frame of TCP, was refused.
///
/// The reasons up to [`Self::Session`] stand in the order in which they are checked, so a datagram
/// with several of these faults has the first of them. Their numbers are for tables of counters: see [`Reject::index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[repr(u8)]
pub enum Reject {
    /// There are fewer bytes than a header has.
    #[error("shorter than a header")]
    Short,
    /// The datagram does not have the length that its header states.
    #[error("not as long as its header states")]
    Length,
    /// The first two bytes are not `TN`.
    #[error("not a datagram of Toroni")]
    Magic,
    /// Another version of the protocol.
    #[error("another version of the protocol")]
    Version,
    /// This realm has a key, and the datagram is not signed.
    #[error("not signed, although this realm has a key")]
    MacMissing,
    /// This realm has no key, and the datagram is signed.
    #[error("signed, although this realm has no key")]
    MacUnexpected,
    /// The datagram was signed with another key, or changed afterwards.
    #[error("signed with another key, or changed on its way")]
    MacWrong,
    /// The datagram belongs to another realm.
    #[error("of another realm")]
    Realm,
    /// This version knows no such type.
    #[error("of an unknown type")]
    Type,
    /// The flags include one that this type does not have.
    #[error("has flags that its type does not have")]
    Flags,
    /// Our own datagram came back. The caller of [`parse`](super::parse) decides it.
    #[error("our own datagram")]
    Echo,
    /// Another node uses our source id. The caller of [`parse`](super::parse) decides it.
    #[error("of another node with our source id")]
    Collision,
    /// The session is not the one that is believed at present. The caller of
    /// [`parse`](super::parse) decides it.
    #[error("of a session that is not believed")]
    Session,
    /// It asks for a stream that we neither send nor repair. The caller of
    /// [`parse`](super::parse) decides it.
    #[error("asks for a stream that is not sent here")]
    Stream,
    /// A sequence is 2⁶³ or more, or counts from the future of its own datagram.
    #[error("has an impossible sequence")]
    Sequence,
    /// A message number or number is above its limit, or does not grow.
    #[error("has an impossible message number")]
    Number,
    /// A count or length reaches beyond the end of the datagram.
    #[error("ends before its contents do")]
    Truncated,
    /// There are bytes that no count or length covers.
    #[error("has bytes after its contents")]
    Trailing,
    /// A field that must be 0 is not.
    #[error("has a reserved field that is not 0")]
    Reserved,
    /// A count is 0, or above its limit.
    #[error("has a count outside of its limits")]
    Count,
    /// A field that chooses (policy, reason, kind) has no such choice.
    #[error("has an unknown code")]
    Code,
    /// The ranges are not sorted, touch one another, or reach beyond what was sent.
    #[error("has ranges that are empty, unsorted or never sent")]
    Ranges,
    /// A chunk has flags that its kind or place does not have.
    #[error("has a chunk with flags that do not belong to it")]
    ChunkFlags,
    /// The name of a node or topic, or a pattern, breaks its rules.
    #[error("has an invalid name")]
    Name,
    /// A part of a message stands where none can be, is empty, or reaches beyond its message.
    #[error("has a misplaced part of a message")]
    Fragment,
    /// A message is longer than this receiver accepts.
    #[error("has a message that is too long")]
    TooLong,
    /// A frame of TCP whose type, stream or message number cannot come at this place of the connection.
    #[error("not what can come at this place of its connection")]
    Unexpected,
    /// It was sent before something that has come already, or answers something that was sent long ago, as a recording does. Only in
    /// a realm with a key.
    #[error("repeats what was sent long ago")]
    Old,
}

impl Reject {
    /// All reasons, in order.
    pub const ALL: [Self; 28] = [
        Self::Short,
        Self::Length,
        Self::Magic,
        Self::Version,
        Self::MacMissing,
        Self::MacUnexpected,
        Self::MacWrong,
        Self::Realm,
        Self::Type,
        Self::Flags,
        Self::Echo,
        Self::Collision,
        Self::Session,
        Self::Stream,
        Self::Sequence,
        Self::Number,
        Self::Truncated,
        Self::Trailing,
        Self::Reserved,
        Self::Count,
        Self::Code,
        Self::Ranges,
        Self::ChunkFlags,
        Self::Name,
        Self::Fragment,
        Self::TooLong,
        Self::Unexpected,
        Self::Old,
    ];

    /// Returns its name in metrics and messages, such as `mac_wrong`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Length => "length",
            Self::Magic => "magic",
            Self::Version => "version",
            Self::MacMissing => "mac_missing",
            Self::MacUnexpected => "mac_unexpected",
            Self::MacWrong => "mac_wrong",
            Self::Realm => "realm",
            Self::Type => "type",
            Self::Flags => "flags",
            Self::Echo => "echo",
            Self::Collision => "collision",
            Self::Session => "session",
            Self::Stream => "stream",
            Self::Sequence => "sequence",
            Self::Number => "number",
            Self::Truncated => "truncated",
            Self::Trailing => "trailing",
            Self::Reserved => "reserved",
            Self::Count => "count",
            Self::Code => "code",
            Self::Ranges => "ranges",
            Self::ChunkFlags => "chunk_flags",
            Self::Name => "name",
            Self::Fragment => "fragment",
            Self::TooLong => "too_long",
            Self::Unexpected => "unexpected",
            Self::Old => "old",
        }
    }

    /// Returns the place in [`Self::ALL`]: the index of this reason in a table of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_place_and_text() {
        let mut texts: Vec<String> = Vec::new();
        for (place, reason) in Reject::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
            texts.push(reason.to_string());
        }
        let names: Vec<String> = Reject::ALL.map(|reason| reason.name().to_owned()).to_vec();
        for mut all in [texts, names] {
            all.sort();
            all.dedup();
            assert_eq!(all.len(), Reject::ALL.len());
        }
    }
}
