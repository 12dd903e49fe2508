//! The few calls of libzmq that are needed, and their constants (zmq.h).

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use toroni_bench_harness::Failure;

pub(crate) const PUB: c_int = 1;
pub(crate) const SUB: c_int = 2;
pub(crate) const SUBSCRIBE: c_int = 6;
pub(crate) const RATE: c_int = 8;
pub(crate) const RECOVERY_IVL: c_int = 9;
pub(crate) const SNDBUF: c_int = 11;
pub(crate) const RCVBUF: c_int = 12;
pub(crate) const SNDHWM: c_int = 23;
pub(crate) const RCVHWM: c_int = 24;
pub(crate) const RCVTIMEO: c_int = 27;
pub(crate) const XPUB_NODROP: c_int = 69;
pub(crate) const DONTWAIT: c_int = 1;

unsafe extern "C" {
    fn zmq_ctx_new() -> *mut c_void;
    fn zmq_ctx_term(context: *mut c_void) -> c_int;
    fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    fn zmq_close(socket: *mut c_void) -> c_int;
    fn zmq_bind(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    fn zmq_connect(socket: *mut c_void, endpoint: *const c_char) -> c_int;
    fn zmq_setsockopt(
        socket: *mut c_void,
        option: c_int,
        value: *const c_void,
        length: usize,
    ) -> c_int;
    fn zmq_send(socket: *mut c_void, bytes: *const c_void, length: usize, flags: c_int) -> c_int;
    fn zmq_recv(socket: *mut c_void, bytes: *mut c_void, length: usize, flags: c_int) -> c_int;
    fn zmq_errno() -> c_int;
    fn zmq_strerror(number: c_int) -> *const c_char;
    fn zmq_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int);
    fn zmq_has(what: *const c_char) -> c_int;
}

/// A socket, with a context of its own.
pub(crate) struct Socket {
    context: *mut c_void,
    socket: *mut c_void,
}

fn failed(attempt: &str) -> Failure {
    // SAFETY: both take no memory of ours; the text is static.
    let text = unsafe { CStr::from_ptr(zmq_strerror(zmq_errno())) };
    Failure::new(format!("cannot {attempt}: {}", text.to_string_lossy()))
}

pub(crate) fn version() -> String {
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: the pointers are those of three integers.
    unsafe { zmq_version(&raw mut major, &raw mut minor, &raw mut patch) };
    format!("libzmq {major}.{minor}.{patch}")
}

/// Whether this libzmq was built with a protocol.
pub(crate) fn has(protocol: &CStr) -> bool {
    // SAFETY: the text ends with a zero byte.
    unsafe { zmq_has(protocol.as_ptr()) == 1 }
}

impl Socket {
    pub(crate) fn new(kind: c_int) -> Result<Self, Failure> {
        // SAFETY: the socket belongs to the context, which is ended after it.
        let (context, socket) = unsafe {
            let context = zmq_ctx_new();
            (context, zmq_socket(context, kind))
        };
        if socket.is_null() { Err(failed("open a socket")) } else { Ok(Self { context, socket }) }
    }

    pub(crate) fn set(&self, option: c_int, value: c_int) -> Result<(), Failure> {
        let length = size_of::<c_int>();
        // SAFETY: the socket is open, and the value is an int as these options demand.
        let code = unsafe {
            zmq_setsockopt(self.socket, option, std::ptr::from_ref(&value).cast(), length)
        };
        if code == 0 { Ok(()) } else { Err(failed(&format!("set option {option}"))) }
    }

    /// Subscribes to everything.
    pub(crate) fn subscribe(&self) -> Result<(), Failure> {
        // SAFETY: the socket is open, and there is no value.
        let code = unsafe { zmq_setsockopt(self.socket, SUBSCRIBE, std::ptr::null(), 0) };
        if code == 0 { Ok(()) } else { Err(failed("subscribe")) }
    }

    pub(crate) fn attach(&self, binds: bool, endpoint: &str) -> Result<(), Failure> {
        let text = CString::new(endpoint).map_err(Failure::of("name an endpoint"))?;
        // SAFETY: the socket is open, and the text ends with a zero byte.
        let code = unsafe {
            if binds {
                zmq_bind(self.socket, text.as_ptr())
            } else {
                zmq_connect(self.socket, text.as_ptr())
            }
        };
        if code == 0 { Ok(()) } else { Err(failed(&format!("use {endpoint}"))) }
    }

    pub(crate) fn send(&self, payload: &[u8]) -> Result<(), Failure> {
        // SAFETY: the socket is open, and the call only reads the payload.
        let code = unsafe { zmq_send(self.socket, payload.as_ptr().cast(), payload.len(), 0) };
        if code >= 0 { Ok(()) } else { Err(failed("send")) }
    }

    /// Returns the length of a message, of which as much as fits is in the buffer. `None`: nothing came in time.
    pub(crate) fn receive(&self, into: &mut [u8], flags: c_int) -> Result<Option<usize>, Failure> {
        // SAFETY: the socket is open, and the call writes at most as many bytes as the buffer has.
        let code = unsafe { zmq_recv(self.socket, into.as_mut_ptr().cast(), into.len(), flags) };
        match usize::try_from(code) {
            Ok(length) => Ok(Some(length.min(into.len()))),
            // SAFETY: it takes no memory.
            Err(_) if unsafe { zmq_errno() } == EAGAIN => Ok(None),
            Err(_) => Err(failed("receive")),
        }
    }
}

const EAGAIN: c_int = 11;

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: both are open, and nothing uses them afterwards. The context waits until all messages have left.
        unsafe {
            zmq_close(self.socket);
            zmq_ctx_term(self.context);
        }
    }
}
