//! The status that each function returns, the text of the last error, and catching panics.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use toroni::{
    BurstError, DirectoryError, ExclusiveError, FileError, HoldError, OpenError, PublishError,
    PublisherError, ReceiveError, RetainError, RetainedError, SubscriberError,
};
use toroni_sequencer::commands::CommandsError;

use crate::values::Missing;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal $constant:literal $text:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Status {
            $(#[doc = $constant] $name = $value,)*
        }

        impl Status {
            /// All statuses with their names in C.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $constant),)*];

            /// The text of `toroni_status_text`.
            #[must_use]
            pub fn text(self) -> &'static CStr {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

statuses! {
    Ok = 0 "TORONI_OK" c"success",
    NoMessage = 1 "TORONI_NO_MESSAGE" c"no message is available, or none arrived in time",
    Lapped = 2 "TORONI_LAPPED" c"messages were overwritten before they were read",
    Interrupted = 3 "TORONI_INTERRUPTED" c"the wait for a message was interrupted",
    Full = 4 "TORONI_FULL" c"the ring is full: a subscriber has not yet read its oldest messages",
    Busy = 5 "TORONI_BUSY" c"another publisher holds the writer lock, or another process is removing or checking the bus",
    Timeout = 6 "TORONI_TIMEOUT" c"the message could not be published in time, or another publisher did not finish in time",
    Aborted = 7 "TORONI_ABORTED" c"the caller's function gave the message up instead of publishing it",
    TooLong = 8 "TORONI_TOO_LONG" c"the message or batch is longer than the bus can carry",
    Reentrant = 9 "TORONI_REENTRANT" c"this thread is already inside a call on this bus or handle",
    WouldWaitForItself = 10 "TORONI_WOULD_WAIT_FOR_ITSELF" c"the ring is full because of a subscriber that this thread itself reads",
    Unlinked = 11 "TORONI_UNLINKED" c"the bus was removed",
    LeaseLost = 12 "TORONI_LEASE_LOST" c"the descriptor that shows other processes that this one is alive was closed",
    Forked = 13 "TORONI_FORKED" c"the handle was made before fork() and belongs to the parent process",
    Corrupt = 14 "TORONI_CORRUPT" c"the shared memory of the bus is corrupt",
    Exclusive = 15 "TORONI_EXCLUSIVE" c"the bus has an exclusive publisher, so no other one can publish",
    ForeignTopic = 16 "TORONI_FOREIGN_TOPIC" c"the topic was made by another handle, of this bus or of another one",
    Taken = 17 "TORONI_TAKEN" c"another inlet brings the messages of this series",
    TooManyArrivals = 18 "TORONI_TOO_MANY_ARRIVALS" c"the bus cannot keep track of more streams from elsewhere",
    Lost = 19 "TORONI_LOST" c"messages from elsewhere were lost on their way to this bus",
    InvalidArgument = 20 "TORONI_INVALID_ARGUMENT" c"an argument is null, not UTF-8, or not a valid value",
    InvalidName = 21 "TORONI_INVALID_NAME" c"the name of the bus is not valid",
    InvalidSetting = 22 "TORONI_INVALID_SETTING" c"a setting is outside its range",
    InvalidTopic = 23 "TORONI_INVALID_TOPIC" c"the topic is malformed",
    InvalidPattern = 24 "TORONI_INVALID_PATTERN" c"the pattern is malformed",
    InvalidOrigin = 25 "TORONI_INVALID_ORIGIN" c"a number of an origin is too large",
    InvalidLoss = 26 "TORONI_INVALID_LOSS" c"the numbers or the scope of a loss are outside their range",
    NotGating = 27 "TORONI_NOT_GATING" c"publishers do not wait for this subscriber, so it cannot hold messages",
    NotRetained = 28 "TORONI_NOT_RETAINED" c"the handle has not declared its topic retained",
    NoValues = 29 "TORONI_NO_VALUES" c"the bus keeps no values of retained topics",
    NotFound = 30 "TORONI_NOT_FOUND" c"the bus does not exist",
    AlreadyExists = 31 "TORONI_ALREADY_EXISTS" c"the bus already exists",
    PermissionDenied = 32 "TORONI_PERMISSION_DENIED" c"permission denied",
    NoSpace = 33 "TORONI_NO_SPACE" c"not enough space, inodes or permitted file size for the bus",
    BadDirectory = 34 "TORONI_BAD_DIRECTORY" c"the directory of buses is missing, read-only, not a directory, a symbolic link, or not trustworthy",
    ForeignOwner = 35 "TORONI_FOREIGN_OWNER" c"the required user does not own the bus, or others could replace its files",
    Unsupported = 36 "TORONI_UNSUPPORTED" c"the file system, the lock of the bus, the machine or its limits do not allow what was requested",
    Incompatible = 37 "TORONI_INCOMPATIBLE" c"the bus belongs to an incompatible release, machine or C library",
    Damaged = 38 "TORONI_DAMAGED" c"the files of the bus are damaged, or are not a bus",
    SettingMismatch = 39 "TORONI_SETTING_MISMATCH" c"the bus exists with a different value of a required setting",
    TooManyParticipants = 40 "TORONI_TOO_MANY_PARTICIPANTS" c"all slots for publishing participants, or for subscribers, are taken",
    PositionUnavailable = 41 "TORONI_POSITION_UNAVAILABLE" c"the message is no longer in the ring or is in the future, or the position is not that of a message",
    NotCheckedSinceBoot = 42 "TORONI_NOT_CHECKED_SINCE_BOOT" c"the bus is on a disk, and has not been checked since the machine booted",
    OutOfReach = 43 "TORONI_OUT_OF_REACH" c"the bus does not work across this boundary between namespaces or C libraries",
    TooManyRetained = 44 "TORONI_TOO_MANY_RETAINED" c"the bus cannot retain more topics, or not this one",
    ValueTooLong = 45 "TORONI_VALUE_TOO_LONG" c"the message is longer than the value of a retained topic may be",
    RetainedFull = 46 "TORONI_RETAINED_FULL" c"all bytes for the values of retained topics are in use",
    ValueMissing = 47 "TORONI_VALUE_MISSING" c"the topic has a value for which the bus had no room",
    ValueUnstable = 48 "TORONI_VALUE_UNSTABLE" c"the value changes faster than it can be read",
    Os = 50 "TORONI_OS" c"the operating system returned an error",
    Panic = 51 "TORONI_PANIC" c"a bug in the library caused a panic, which was caught: close the handle",
    Other = 52 "TORONI_OTHER" c"an error that has no status in this release of the C library",
}

/// An error that a function is about to return.
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// The text of `toroni_error_message`; `None` for that of the status.
    pub(crate) text: Option<String>,
    /// What `toroni_last_missing` reports then.
    missing: Option<Box<Missing>>,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with the text of its status.
    pub(crate) fn plain(status: Status) -> Self {
        Self { status, text: None, missing: None }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { status: Status::InvalidArgument, text: Some(text.into()), missing: None }
    }

    pub(crate) fn with_text_of(status: Status, error: &impl ToString) -> Self {
        Self { status, text: Some(error.to_string()), missing: None }
    }

    fn value_missing(error: &impl ToString, topic: &str, sequence: u64, length: u64) -> Self {
        let missing = Some(Box::new(Missing::new(topic, sequence, length)));
        Self { missing, ..Self::with_text_of(Status::ValueMissing, error) }
    }
}

/// Returns the status of an error that the errors of all calls on a bus can contain.
fn of_file(error: &FileError) -> Status {
    match error {
        FileError::NotFound { .. } => Status::NotFound,
        FileError::PermissionDenied { .. } => Status::PermissionDenied,
        FileError::ReadOnly { .. }
        | FileError::NotADirectory { .. }
        | FileError::Symlink { .. } => Status::BadDirectory,
        FileError::MemoryLock { .. } | FileError::RobustOnDisk { .. } => Status::Unsupported,
        FileError::Busy { .. } => Status::Busy,
        FileError::VersionMismatch { .. }
        | FileError::UnknownFeatures { .. }
        | FileError::EndiannessMismatch { .. }
        | FileError::PlatformMismatch { .. } => Status::Incompatible,
        FileError::NotABus { .. }
        | FileError::Truncated { .. }
        | FileError::HeaderDamaged { .. }
        | FileError::ForeignFile { .. } => Status::Damaged,
        FileError::RobustLockRefused { .. } | FileError::NetworkNamespace { .. } => {
            Status::OutOfReach
        }
        FileError::Corrupt(_) => Status::Corrupt,
        FileError::Unlinked { .. } => Status::Unlinked,
        FileError::Forked(_) => Status::Forked,
        FileError::Os { .. } => Status::Os,
        _ => Status::Other,
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::with_text_of(of_file(&error), &error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let status = match &error {
            OpenError::File(error) => of_file(error),
            OpenError::InvalidName(_) => Status::InvalidName,
            OpenError::InvalidSetting(_) | OpenError::UnknownGroup { .. } => Status::InvalidSetting,
            OpenError::AlreadyExists { .. } => Status::AlreadyExists,
            OpenError::NoSpace { .. }
            | OpenError::NoInodes { .. }
            | OpenError::FileTooLong { .. } => Status::NoSpace,
            OpenError::MissingDirectory { .. } | OpenError::UntrustedDirectory(_) => {
                Status::BadDirectory
            }
            OpenError::ForeignOwner { .. } => Status::ForeignOwner,
            OpenError::AclsUnsupported { .. } => Status::Unsupported,
            OpenError::SettingMismatch { .. } => Status::SettingMismatch,
            OpenError::NotCheckedSinceBoot { .. } => Status::NotCheckedSinceBoot,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        OpenError::from(error).into()
    }
}

impl From<PublisherError> for Failure {
    fn from(error: PublisherError) -> Self {
        let status = match &error {
            PublisherError::File(error) => of_file(error),
            PublisherError::Topic(_) => Status::InvalidTopic,
            PublisherError::TooManyPublishers { .. } => Status::TooManyParticipants,
            PublisherError::Reentrant => Status::Reentrant,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<SubscriberError> for Failure {
    fn from(error: SubscriberError) -> Self {
        let status = match &error {
            SubscriberError::File(error) => of_file(error),
            SubscriberError::Pattern(_) => Status::InvalidPattern,
            SubscriberError::TooManySubscribers { .. } => Status::TooManyParticipants,
            SubscriberError::NoValues => Status::NoValues,
            SubscriberError::NotAPosition { .. }
            | SubscriberError::PositionAhead { .. }
            | SubscriberError::PositionLost { .. }
            | SubscriberError::SequenceAhead { .. }
            | SubscriberError::SequenceLost { .. } => Status::PositionUnavailable,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<CommandsError> for Failure {
    fn from(error: CommandsError) -> Self {
        match error {
            CommandsError::Open(error) => error.into(),
            CommandsError::Subscriber(error) => error.into(),
            CommandsError::Publisher(error) => error.into(),
            CommandsError::Publish(error) => error.into(),
            CommandsError::TooLong(_) => Self::with_text_of(Status::TooLong, &error),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        let status = match &error {
            // Calls that do not wait return these, often: no text is composed.
            PublishError::Full => return Self::plain(Status::Full),
            PublishError::Busy => return Self::plain(Status::Busy),
            PublishError::Exclusive { .. } => Status::Exclusive,
            PublishError::ForeignTopic => Status::ForeignTopic,
            PublishError::Taken { .. } => Status::Taken,
            PublishError::TooManyArrivals { .. } => Status::TooManyArrivals,
            PublishError::OriginNumber { .. } => Status::InvalidOrigin,
            PublishError::LostNumbers { .. } | PublishError::LostScope { .. } => {
                Status::InvalidLoss
            }
            PublishError::TooLong { .. } => Status::TooLong,
            PublishError::ValueTooLong { .. } => Status::ValueTooLong,
            PublishError::RetainedFull { .. } => Status::RetainedFull,
            PublishError::NotRetained => Status::NotRetained,
            PublishError::Timeout => Status::Timeout,
            PublishError::Reentrant => Status::Reentrant,
            PublishError::WouldWaitForItself => Status::WouldWaitForItself,
            PublishError::Unlinked => Status::Unlinked,
            PublishError::LeaseLost => Status::LeaseLost,
            PublishError::Forked(_) => Status::Forked,
            PublishError::Corrupt(_) => Status::Corrupt,
            PublishError::Os { .. } => Status::Os,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<RetainError> for Failure {
    fn from(error: RetainError) -> Self {
        let status = match error {
            RetainError::Publish(error) => return error.into(),
            RetainError::NoValues => Status::NoValues,
            RetainError::TopicTableFull
            | RetainError::TooManyTopics { .. }
            | RetainError::TooManyRetained { .. } => Status::TooManyRetained,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<RetainedError> for Failure {
    fn from(error: RetainedError) -> Self {
        let status = match &error {
            RetainedError::File(error) => of_file(error),
            RetainedError::Topic(_) => Status::InvalidTopic,
            RetainedError::Pattern(_) => Status::InvalidPattern,
            RetainedError::NoValues => Status::NoValues,
            RetainedError::Missing { topic, sequence, length } => {
                return Self::value_missing(&error, topic, *sequence, *length);
            }
            RetainedError::Unstable { .. } => Status::ValueUnstable,
            RetainedError::Corrupt(_) => Status::Corrupt,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<ExclusiveError> for Failure {
    fn from(error: ExclusiveError) -> Self {
        let status = match error {
            ExclusiveError::Publisher(error) => return error.into(),
            ExclusiveError::Taken { .. } => Status::Exclusive,
            // The call has a time limit, which may be 0.
            ExclusiveError::Busy | ExclusiveError::Timeout => Status::Timeout,
            ExclusiveError::RobustLock { .. } => Status::Unsupported,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<BurstError> for Failure {
    fn from(error: BurstError) -> Self {
        let text = error.to_string();
        Self { text: Some(text), ..error.source.into() }
    }
}

impl From<HoldError> for Failure {
    fn from(error: HoldError) -> Self {
        let status = match &error {
            HoldError::NotGating => Status::NotGating,
            HoldError::SequenceLost { .. } => Status::PositionUnavailable,
            HoldError::LeaseLost => Status::LeaseLost,
            HoldError::Forked(_) => Status::Forked,
            HoldError::Corrupt(_) => Status::Corrupt,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Self {
        let status = match &error {
            ReceiveError::Interrupted => return Self::plain(Status::Interrupted),
            ReceiveError::Lapped { .. } => Status::Lapped,
            ReceiveError::Lost(_) => Status::Lost,
            ReceiveError::ValueMissing { topic, sequence, length } => {
                return Self::value_missing(&error, topic, *sequence, *length);
            }
            ReceiveError::Unlinked => Status::Unlinked,
            ReceiveError::Forked(_) => Status::Forked,
            ReceiveError::Corrupt(_) => Status::Corrupt,
            ReceiveError::Os { .. } => Status::Os,
            _ => Status::Other,
        };
        Self::with_text_of(status, &error)
    }
}

/// Runs the body of a function and returns its status. A panic becomes `TORONI_PANIC`.
#[inline]
pub(crate) fn catch_panics(call: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Status::Ok as c_int,
        Ok(Err(failure)) => report(failure),
        Err(panic) => report_panic(panic),
    }
}

/// As [`catch_panics`], for functions that return a value: returns `otherwise` on an error.
#[inline]
pub(crate) fn catch_panics_or<T>(otherwise: T, call: impl FnOnce() -> Outcome<T>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => report(failure),
        Err(panic) => report_panic(panic),
    };
    otherwise
}

#[cold]
fn report(failure: Failure) -> c_int {
    let Failure { status, text, missing } = failure;
    if let Some(missing) = missing {
        missing.report();
    }
    // Frequent, and not an error: the text of the last error stays.
    if status != Status::NoMessage {
        let last = match text {
            None => Last::Static(status.text()),
            Some(text) => {
                let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
                CString::new(text).map_or(Last::Static(status.text()), Last::Composed)
            }
        };
        // It may be gone already if a destructor of another thread-local variable calls this.
        let _ = LAST.try_with(|cell| cell.replace(last));
    }
    status as c_int
}

#[cold]
fn report_panic(panic: Box<dyn Any + Send>) -> c_int {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // Dropping it could panic again.
    std::mem::forget(panic);
    let text = text.unwrap_or_else(|| "(no text)".to_owned());
    let text = format!("the library panicked, which is a bug: {text}");
    report(Failure::with_text_of(Status::Panic, &text))
}

enum Last {
    Static(&'static CStr),
    Composed(CString),
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last::Static(c"")) };
}

#[unsafe(no_mangle)]
pub extern "C" fn toroni_error_message() -> *const c_char {
    LAST.try_with(|last| match &*last.borrow() {
        Last::Static(text) => text.as_ptr(),
        Last::Composed(text) => text.as_ptr(),
    })
    .unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn toroni_status_text(status: c_int) -> *const c_char {
    let found = Status::ALL.iter().find(|(known, _)| *known as c_int == status);
    found.map_or(c"not a status of this release", |(status, _)| status.text()).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn toroni_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text of this thread, which causes no other error meanwhile.
        unsafe { CStr::from_ptr(toroni_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_are_caught() {
        assert_eq!(catch_panics(|| panic!("number {}", 7)), Status::Panic as c_int);
        assert_eq!(last(), "the library panicked, which is a bug: number 7");
        assert_eq!(catch_panics(|| std::panic::panic_any(7)), Status::Panic as c_int);
        assert_eq!(last(), "the library panicked, which is a bug: (no text)");
        assert_eq!(catch_panics_or(-1, || panic!("again")), -1);
    }

    #[test]
    fn errors_set_the_text_and_other_statuses_keep_it() {
        let failure = Failure::argument("zero\0within");
        assert_eq!(catch_panics(|| Err(failure)), Status::InvalidArgument as c_int);
        assert_eq!(last(), "zerowithin");
        assert_eq!(catch_panics(|| Err(Failure::plain(Status::NoMessage))), 1);
        assert_eq!(last(), "zerowithin");
        assert_eq!(catch_panics(|| Err(PublishError::Full.into())), Status::Full as c_int);
        assert_eq!(last(), Status::Full.text().to_str().unwrap());
        // SAFETY: a static text.
        let unknown = unsafe { CStr::from_ptr(toroni_status_text(-1)) };
        assert_eq!(unknown, c"not a status of this release");
    }
}
