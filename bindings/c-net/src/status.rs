//! The status that each function returns, the text of the last error, and catching panics.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use toroni_net::direct::{DirectError, SendError};
use toroni_net::endpoint::EndpointError;
use toroni_net::membership::ClaimError;
use toroni_net::node::start::StartError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NetStatus {
    Ok = 0,
    NoMessage = 1,
    Lost = 2,
    Full = 3,
    InvalidArgument = 10,
    InvalidConfiguration = 11,
    InvalidTopic = 12,
    TooLong = 13,
    TooManyTopics = 14,
    NoStream = 15,
    Ended = 16,
    Collision = 17,
    Os = 20,
    Panic = 21,
}

impl NetStatus {
    /// All statuses with their names in C.
    pub const ALL: [(Self, &str); 14] = [
        (Self::Ok, "TORONI_NET_OK"),
        (Self::NoMessage, "TORONI_NET_NO_MESSAGE"),
        (Self::Lost, "TORONI_NET_LOST"),
        (Self::Full, "TORONI_NET_FULL"),
        (Self::InvalidArgument, "TORONI_NET_INVALID_ARGUMENT"),
        (Self::InvalidConfiguration, "TORONI_NET_INVALID_CONFIGURATION"),
        (Self::InvalidTopic, "TORONI_NET_INVALID_TOPIC"),
        (Self::TooLong, "TORONI_NET_TOO_LONG"),
        (Self::TooManyTopics, "TORONI_NET_TOO_MANY_TOPICS"),
        (Self::NoStream, "TORONI_NET_NO_STREAM"),
        (Self::Ended, "TORONI_NET_ENDED"),
        (Self::Collision, "TORONI_NET_COLLISION"),
        (Self::Os, "TORONI_NET_OS"),
        (Self::Panic, "TORONI_NET_PANIC"),
    ];
}

/// What a function returns instead of success.
pub(crate) struct Refusal {
    status: NetStatus,
    text: String,
}

impl Refusal {
    pub(crate) fn new(status: NetStatus, text: impl ToString) -> Self {
        Self { status, text: text.to_string() }
    }
}

impl From<EndpointError> for Refusal {
    fn from(error: EndpointError) -> Self {
        let status = match &error {
            EndpointError::Start(StartError::Claim(error))
            | EndpointError::Direct(DirectError::Claim(error)) => match error {
                ClaimError::Taken { .. } => NetStatus::Collision,
                ClaimError::Socket(_) => NetStatus::Os,
            },
            EndpointError::Configuration(_)
            | EndpointError::Start(_)
            | EndpointError::Direct(DirectError::Name(_) | DirectError::Pattern(_)) => {
                NetStatus::InvalidConfiguration
            }
            _ => NetStatus::Os,
        };
        Self::new(status, error)
    }
}

impl From<DirectError> for Refusal {
    fn from(error: DirectError) -> Self {
        let status = match &error {
            DirectError::Collision(_) | DirectError::Claim(ClaimError::Taken { .. }) => {
                NetStatus::Collision
            }
            _ => NetStatus::Os,
        };
        Self::new(status, error)
    }
}

impl From<SendError> for Refusal {
    fn from(error: SendError) -> Self {
        let status = match error {
            SendError::NoStream => NetStatus::NoStream,
            SendError::Topic(_) => NetStatus::InvalidTopic,
            SendError::TooManyTopics => NetStatus::TooManyTopics,
            SendError::TooLong { .. } => NetStatus::TooLong,
            SendError::Full => NetStatus::Full,
            SendError::Ended => NetStatus::Ended,
            SendError::Direct(error) => return error.into(),
        };
        Self::new(status, error)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function, and returns its status.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let refusal = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return NetStatus::Ok as c_int,
        Ok(Err(refusal)) => refusal,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Refusal::new(NetStatus::Panic, text.unwrap_or_default())
        }
    };
    if refusal.status != NetStatus::NoMessage {
        let text: Vec<u8> = refusal.text.bytes().filter(|byte| *byte != 0).collect();
        // The thread may be ending, and its variables gone.
        let _ = LAST.try_with(|last| last.replace(CString::new(text).unwrap_or_default()));
    }
    refusal.status as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn toroni_net_error_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn toroni_net_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
