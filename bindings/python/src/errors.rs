//! Converts errors of the library to the exceptions of `python/toroni/_errors.py`.

use crate::inlet;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::io;
use toroni::{
    DirectoryError, ExclusiveError, FileError, HoldError, OpenError, PatternError, PublishError,
    PublisherError, ReceiveError, RetainError, RetainedError, SubscriberError,
};
use toroni_net::direct::{DirectError, SendError};
use toroni_net::endpoint::EndpointError;
use toroni_net::node::start::StartError;
use toroni_sequencer::batch::MAX_COMMAND_BYTES;
use toroni_sequencer::commands::CommandsError;

/// Error numbers of Linux, which are the same on all architectures that Toroni supports.
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;

/// An exception class of `toroni._errors`, looked up once.
macro_rules! class {
    ($py:expr, $name:literal) => {{
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        CLASS.import($py, "toroni._errors", $name)
    }};
}

/// Makes an exception of a class. Returns the error if that fails.
fn made<'py>(
    class: PyResult<&Bound<'py, PyType>>,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    match class.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Returns `toroni.Closed` for a handle of this kind.
#[cold]
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    made(class!(py, "Closed"), (format!("the {what} was closed"),))
}

pub(crate) fn is_closed(py: Python<'_>, error: &PyErr) -> bool {
    class!(py, "Closed").is_ok_and(|class| error.is_instance(py, class))
}

pub(crate) fn is_interrupted(py: Python<'_>, error: &PyErr) -> bool {
    class!(py, "Interrupted").is_ok_and(|class| error.is_instance(py, class))
}

#[cold]
pub(crate) fn invalid(py: Python<'_>, message: String) -> PyErr {
    made(class!(py, "Invalid"), (message,))
}

#[cold]
pub(crate) fn other(py: Python<'_>, message: impl ToString) -> PyErr {
    made(class!(py, "Error"), (message.to_string(),))
}

#[cold]
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    made(class!(py, "Forked"), (toroni::Forked.to_string(),))
}

#[cold]
pub(crate) fn lapped(py: Python<'_>, message: String, lost: u64, lost_bytes: u64) -> PyErr {
    made(class!(py, "Lapped"), (message, lost, lost_bytes))
}

#[cold]
fn exclusive(py: Python<'_>, message: String, name: &str, pid: u32) -> PyErr {
    made(class!(py, "Exclusive"), (message, name, pid))
}

/// Returns `toroni.System`, which is an `OSError`.
#[cold]
pub(crate) fn system(py: Python<'_>, source: &io::Error, message: String) -> PyErr {
    match source.raw_os_error() {
        Some(number) => made(class!(py, "System"), (number, message)),
        None => made(class!(py, "System"), (message,)),
    }
}

/// Returns `toroni.TooLong` for a buffer that is too small.
#[cold]
pub(crate) fn too_small(py: Python<'_>, length: usize, limit: usize) -> PyErr {
    let message = format!(
        "the message has {length} bytes, but the buffer only {limit}: receive it again with a larger buffer, the message is kept"
    );
    made(class!(py, "TooLong"), (message, length, limit))
}

/// Converts an error that the errors of all calls on a bus can contain.
#[cold]
pub(crate) fn on_file(py: Python<'_>, error: &FileError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        FileError::Os { source, .. } => return system(py, source, message),
        FileError::NotFound { .. } => class!(py, "NotFound"),
        FileError::PermissionDenied { .. } => class!(py, "PermissionDenied"),
        FileError::Unlinked { .. } => class!(py, "Unlinked"),
        FileError::Forked(_) => class!(py, "Forked"),
        FileError::Corrupt(_) => class!(py, "Corrupt"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
pub(crate) fn on_open(py: Python<'_>, error: &OpenError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        OpenError::File(error) => return on_file(py, error),
        OpenError::InvalidName(_)
        | OpenError::InvalidSetting(_)
        | OpenError::UnknownGroup { .. } => class!(py, "Invalid"),
        OpenError::AlreadyExists { .. } => class!(py, "AlreadyExists"),
        OpenError::NoSpace { .. } | OpenError::NoInodes { .. } => {
            return made(class!(py, "NoSpace"), (ENOSPC, message));
        }
        OpenError::FileTooLong { .. } => {
            return made(class!(py, "NoSpace"), (EFBIG, message));
        }
        OpenError::ForeignOwner { .. } => class!(py, "ForeignOwner"),
        OpenError::SettingMismatch { .. } => class!(py, "SettingMismatch"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
pub(crate) fn on_directory(py: Python<'_>, error: DirectoryError) -> PyErr {
    on_open(py, &error.into())
}

#[cold]
pub(crate) fn on_publisher(py: Python<'_>, error: &PublisherError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        PublisherError::File(error) => return on_file(py, error),
        PublisherError::Topic(_) => class!(py, "Invalid"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
pub(crate) fn on_subscriber(py: Python<'_>, error: &SubscriberError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        SubscriberError::File(error) => return on_file(py, error),
        SubscriberError::Pattern(_)
        | SubscriberError::NotAPosition { .. }
        | SubscriberError::PositionAhead { .. }
        | SubscriberError::SequenceAhead { .. } => class!(py, "Invalid"),
        SubscriberError::NoValues => class!(py, "NoValues"),
        SubscriberError::PositionLost { oldest, .. }
        | SubscriberError::SequenceLost { oldest, .. } => {
            return overwritten(py, message, *oldest);
        }
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
fn overwritten(py: Python<'_>, message: String, oldest: u64) -> PyErr {
    made(class!(py, "Overwritten"), (message, oldest))
}

#[cold]
pub(crate) fn on_hold(py: Python<'_>, error: &HoldError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        HoldError::SequenceLost { oldest, .. } => return overwritten(py, message, *oldest),
        HoldError::NotGating => class!(py, "Invalid"),
        HoldError::Forked(_) => class!(py, "Forked"),
        HoldError::Corrupt(_) => class!(py, "Corrupt"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
pub(crate) fn on_pattern(py: Python<'_>, error: &PatternError) -> PyErr {
    invalid(py, error.to_string())
}

#[cold]
pub(crate) fn on_publish(py: Python<'_>, error: &PublishError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        PublishError::Os { source, .. } => return system(py, source, message),
        PublishError::TooLong { length, limit } => {
            return made(class!(py, "TooLong"), (message, *length, *limit));
        }
        PublishError::ValueTooLong { length, limit } => {
            return made(class!(py, "ValueTooLong"), (message, *length, *limit));
        }
        PublishError::RetainedFull { limit } => {
            return made(class!(py, "RetainedFull"), (message, *limit));
        }
        PublishError::NotRetained => {
            let message =
                "this handle has not declared its topic retained: make it with retained=True";
            return made(class!(py, "NotRetained"), (message,));
        }
        PublishError::Exclusive { name, pid } => return exclusive(py, message, name, *pid),
        PublishError::Taken { from_source, series, name, pid } => {
            return made(class!(py, "Taken"), (message, name, *pid, *from_source, *series));
        }
        PublishError::TooManyArrivals { limit } => {
            return made(class!(py, "TooManyArrivals"), (message, *limit));
        }
        PublishError::ForeignTopic
        | PublishError::OriginNumber { .. }
        | PublishError::LostNumbers { .. }
        | PublishError::LostScope { .. } => class!(py, "Invalid"),
        PublishError::Timeout => class!(py, "Timeout"),
        PublishError::WouldWaitForItself => class!(py, "WouldWaitForItself"),
        PublishError::Unlinked => class!(py, "Unlinked"),
        PublishError::Forked(_) => class!(py, "Forked"),
        PublishError::Corrupt(_) => class!(py, "Corrupt"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
pub(crate) fn on_retain(py: Python<'_>, error: &RetainError) -> PyErr {
    let message = error.to_string();
    let limit = match error {
        RetainError::Publish(error) => return on_publish(py, error),
        RetainError::NoValues => return made(class!(py, "NoValues"), (message,)),
        RetainError::TooManyTopics { limit } | RetainError::TooManyRetained { limit } => {
            Some(*limit)
        }
        _ => None,
    };
    made(class!(py, "TooManyRetained"), (message, limit))
}

#[cold]
pub(crate) fn on_retained(py: Python<'_>, error: &RetainedError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        RetainedError::File(error) => return on_file(py, error),
        RetainedError::Missing { topic, sequence, length } => {
            return value_missing(py, message, topic, *sequence, *length);
        }
        RetainedError::Topic(_) | RetainedError::Pattern(_) => class!(py, "Invalid"),
        RetainedError::NoValues => class!(py, "NoValues"),
        RetainedError::Corrupt(_) => class!(py, "Corrupt"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
fn value_missing(
    py: Python<'_>,
    message: String,
    topic: &str,
    sequence: u64,
    length: u64,
) -> PyErr {
    made(class!(py, "ValueMissing"), (message, topic, sequence, length))
}

#[cold]
pub(crate) fn on_commands(py: Python<'_>, error: &CommandsError) -> PyErr {
    match error {
        CommandsError::Open(error) => on_open(py, error),
        CommandsError::Subscriber(error) => on_subscriber(py, error),
        CommandsError::Publisher(error) => on_publisher(py, error),
        CommandsError::Publish(error) => on_publish(py, error),
        CommandsError::TooLong(length) => {
            made(class!(py, "TooLong"), (error.to_string(), *length, MAX_COMMAND_BYTES))
        }
    }
}

#[cold]
pub(crate) fn on_exclusive(py: Python<'_>, error: &ExclusiveError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        ExclusiveError::Publisher(error) => return on_publisher(py, error),
        ExclusiveError::Taken { name, pid } => return exclusive(py, message, name, *pid),
        // The call has a time limit, which may be 0.
        ExclusiveError::Busy | ExclusiveError::Timeout => class!(py, "Timeout"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

/// Sets the attribute `published` of an exception that ended a burst, also of a KeyboardInterrupt, because the messages
/// stay published. An exception of the caller that does not allow attributes stays unchanged.
#[cold]
pub(crate) fn set_published(py: Python<'_>, error: &PyErr, published: usize) {
    let _ = error.value(py).setattr("published", published);
}

#[cold]
pub(crate) fn on_receive(py: Python<'_>, error: &ReceiveError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        ReceiveError::Lapped { lost_messages, lost_bytes } => {
            return lapped(py, message, *lost_messages, *lost_bytes);
        }
        ReceiveError::Lost(lost) => {
            return inlet::arguments_of_lost(py, lost, message)
                .map_or_else(|error| error, |arguments| made(class!(py, "Lost"), arguments));
        }
        ReceiveError::ValueMissing { topic, sequence, length } => {
            return value_missing(py, message, topic, *sequence, *length);
        }
        ReceiveError::Os { source, .. } => return system(py, source, message),
        ReceiveError::Interrupted => class!(py, "Interrupted"),
        ReceiveError::Unlinked => class!(py, "Unlinked"),
        ReceiveError::Forked(_) => class!(py, "Forked"),
        ReceiveError::Corrupt(_) => class!(py, "Corrupt"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}

#[cold]
pub(crate) fn on_endpoint(py: Python<'_>, error: &EndpointError) -> PyErr {
    let message = error.to_string();
    match error {
        EndpointError::File(source) | EndpointError::Descriptor(source) => {
            system(py, source, message)
        }
        EndpointError::Direct(error) => on_direct(py, error),
        EndpointError::Start(StartError::Claim(_)) => other(py, message),
        EndpointError::Configuration(_) | EndpointError::Start(_) => invalid(py, message),
    }
}

#[cold]
pub(crate) fn on_direct(py: Python<'_>, error: &DirectError) -> PyErr {
    let message = error.to_string();
    match error {
        DirectError::Socket(source) => system(py, source, message),
        DirectError::Name(_) | DirectError::Pattern(_) => invalid(py, message),
        _ => other(py, message),
    }
}

#[cold]
pub(crate) fn on_send(py: Python<'_>, error: &SendError) -> PyErr {
    let message = error.to_string();
    let class = match error {
        SendError::Direct(error) => return on_direct(py, error),
        SendError::TooLong { length, limit } => {
            return made(class!(py, "TooLong"), (message, *length, *limit));
        }
        SendError::Topic(_) => class!(py, "Invalid"),
        SendError::Full => class!(py, "Timeout"),
        _ => class!(py, "Error"),
    };
    made(class, (message,))
}
