//! The few calls of NNG that are needed, with owned sockets and messages.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nng_sys as nng;
use toroni_bench_harness::Failure;

/// Kind of a socket.
#[derive(Clone, Copy)]
pub(crate) enum Protocol {
    Push,
    Pull,
    Pub,
    Sub,
}

/// The result of sending: the message was sent, or comes back because there is no space.
pub(crate) enum Outcome {
    Done(()),
    Full(Message),
}

/// An open socket.
pub(crate) struct Socket {
    id: nng::nng_socket,
    /// Number of connections that are up; a thread of NNG counts them.
    peers: &'static AtomicU32,
}

impl Socket {
    pub(crate) fn open(protocol: Protocol) -> Result<Socket, Failure> {
        start();
        let mut id = nng::nng_socket::default();
        // SAFETY: `id` is written to, and belongs to this call.
        let code = unsafe {
            match protocol {
                Protocol::Push => nng::nng_push0_open(&mut id),
                Protocol::Pull => nng::nng_pull0_open(&mut id),
                Protocol::Pub => nng::nng_pub0_open(&mut id),
                Protocol::Sub => nng::nng_sub0_open(&mut id),
            }
        };
        check("open a socket", code.cast_unsigned())?;
        // Never freed, because NNG may use it as long as the process lives. It is one word for each socket.
        let peers: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let argument = ptr::from_ref(peers).cast_mut().cast();
        // SAFETY: the callback takes exactly this pointer, which is always valid.
        let code =
            unsafe { nng::nng_pipe_notify(id, nng::NNG_PIPE_EV_ADD_POST, Some(count), argument) };
        check("watch connections", code.0)?;
        Ok(Socket { id, peers })
    }

    pub(crate) fn set_send_buffer(&self, messages: u16) -> Result<(), Failure> {
        // SAFETY: the name of the option ends with 0.
        let code = unsafe {
            nng::nng_socket_set_int(self.id, nng::NNG_OPT_SENDBUF.as_ptr().cast(), messages.into())
        };
        check("set the send buffer", code.cast_unsigned())
    }

    pub(crate) fn set_receive_buffer(&self, messages: u16) -> Result<(), Failure> {
        // SAFETY: the name of the option ends with 0.
        let code = unsafe {
            nng::nng_socket_set_int(self.id, nng::NNG_OPT_RECVBUF.as_ptr().cast(), messages.into())
        };
        check("set the receive buffer", code.cast_unsigned())
    }

    /// Makes `receive` return `None` after this time without a message.
    pub(crate) fn set_longest_wait(&self, time: Duration) -> Result<(), Failure> {
        let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the name of the option ends with 0.
        let code = unsafe {
            nng::nng_socket_set_ms(self.id, nng::NNG_OPT_RECVTIMEO.as_ptr().cast(), milliseconds)
        };
        check("set the longest wait", code.cast_unsigned())
    }

    /// Subscribes to messages that begin with `prefix`.
    pub(crate) fn subscribe(&self, prefix: &[u8]) -> Result<(), Failure> {
        // SAFETY: NNG copies the prefix, which has this length.
        let code = unsafe {
            nng::nng_sub0_socket_subscribe(self.id, prefix.as_ptr().cast(), prefix.len())
        };
        check("subscribe", code.cast_unsigned())
    }

    pub(crate) fn listen(&self, url: &str) -> Result<(), Failure> {
        let text = CString::new(url).map_err(Failure::of("use the URL"))?;
        // SAFETY: the text ends with 0; no listener is asked for.
        let code = unsafe { nng::nng_listen(self.id, text.as_ptr(), ptr::null_mut(), 0) };
        check(&format!("listen on {url}"), code.cast_unsigned())
    }

    /// Connects in the background, and tries again every 5 ms as long as no socket listens.
    pub(crate) fn dial(&self, url: &str) -> Result<(), Failure> {
        for option in [nng::NNG_OPT_RECONNMINT.as_ptr(), nng::NNG_OPT_RECONNMAXT.as_ptr()] {
            // SAFETY: the names of the options end with 0.
            let code = unsafe { nng::nng_socket_set_ms(self.id, option.cast(), 5) };
            check("set the time between dials", code.cast_unsigned())?;
        }
        let text = CString::new(url).map_err(Failure::of("use the URL"))?;
        // SAFETY: the text ends with 0; no dialer is asked for.
        let code = unsafe { nng::nng_dial(self.id, text.as_ptr(), ptr::null_mut(), NONBLOCK) };
        check(&format!("dial {url}"), code.cast_unsigned())
    }

    /// Waits until this number of connections are up. It sleeps, because this is not measured.
    pub(crate) fn wait_for_peers(&self, number: u32) {
        while self.peers.load(Ordering::Acquire) < number {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[inline]
    pub(crate) fn send(&self, message: Message, wait: bool) -> Result<Outcome, Failure> {
        // SAFETY: the message is owned; when the call succeeds, NNG owns it.
        let code = unsafe { nng::nng_sendmsg(self.id, message.0, flags(wait)) };
        match nng::nng_err(code.cast_unsigned()) {
            nng::nng_err::NNG_OK => {
                std::mem::forget(message);
                Ok(Outcome::Done(()))
            }
            nng::nng_err::NNG_EAGAIN => Ok(Outcome::Full(message)),
            other => Err(failure("send", other.0)),
        }
    }

    #[inline]
    pub(crate) fn receive(&self, wait: bool) -> Result<Option<Message>, Failure> {
        let mut message = ptr::null_mut();
        // SAFETY: `message` is written to, and owned by the caller if the call succeeds.
        let code = unsafe { nng::nng_recvmsg(self.id, &mut message, flags(wait)) };
        match nng::nng_err(code.cast_unsigned()) {
            nng::nng_err::NNG_OK => Ok(Some(Message(message))),
            nng::nng_err::NNG_EAGAIN | nng::nng_err::NNG_ETIMEDOUT => Ok(None),
            other => Err(failure("receive", other.0)),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: the socket is open, and is not used afterwards.
        unsafe { nng::nng_socket_close(self.id) };
    }
}

/// An owned message.
pub(crate) struct Message(*mut nng::nng_msg);

impl Message {
    #[inline]
    pub(crate) fn of(length: usize) -> Result<Message, Failure> {
        let mut message = ptr::null_mut();
        // SAFETY: `message` is written to, and owned by the caller if the call succeeds.
        check(
            "make a message",
            unsafe { nng::nng_msg_alloc(&mut message, length) }.cast_unsigned(),
        )?;
        Ok(Message(message))
    }

    #[inline]
    pub(crate) fn copy(&self) -> Result<Message, Failure> {
        let mut message = ptr::null_mut();
        // SAFETY: `self` is a message; `message` is written to, and owned if the call succeeds.
        let code = unsafe { nng::nng_msg_dup(&mut message, self.0) };
        check("copy a message", code.cast_unsigned())?;
        Ok(Message(message))
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the body has this length, is initialised by NNG and owned by `self`.
        unsafe {
            let (body, length) = (nng::nng_msg_body(self.0), nng::nng_msg_len(self.0));
            std::slice::from_raw_parts_mut(body.cast(), length)
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the message is owned, and is not used afterwards.
        unsafe { nng::nng_msg_free(self.0) };
    }
}

pub(crate) fn version() -> String {
    // SAFETY: NNG returns a text with a static lifetime.
    unsafe { CStr::from_ptr(nng::nng_version()) }.to_string_lossy().into_owned()
}

const NONBLOCK: i32 = nng::NNG_FLAG_NONBLOCK.cast_signed();

#[inline]
fn flags(wait: bool) -> i32 {
    if wait { 0 } else { NONBLOCK }
}

fn check(doing: &str, code: u32) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(failure(doing, code)) }
}

#[cold]
fn failure(doing: &str, code: u32) -> Failure {
    // SAFETY: NNG returns a text with a static lifetime, for every code.
    let text = unsafe { CStr::from_ptr(nng::nng_strerror(nng::nng_err(code))) };
    Failure::new(format!("cannot {doing}: {}", text.to_string_lossy()))
}

/// Starts NNG with one thread for its tasks. By default it has four on two cores. Each message is passed from task to
/// task, and if all tasks run in one thread, no other thread has to be woken: that is nearly twice as fast.
pub(crate) const TASK_THREADS: i16 = 1;

fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let parameters = nng::nng_init_params {
            num_task_threads: TASK_THREADS,
            max_task_threads: TASK_THREADS,
            // SAFETY: numbers, of which 0 is the default, and function pointers, which may be absent.
            ..unsafe { std::mem::zeroed() }
        };
        // SAFETY: the parameters are valid, and only read during the call. It fails if NNG has already been started, which
        // only this function does.
        unsafe { nng::nng_init(&parameters) };
    });
}

extern "C" fn count(_: nng::nng_pipe, _: nng::nng_pipe_ev, peers: *mut std::ffi::c_void) {
    // SAFETY: `open` passes a word that is never freed.
    unsafe { &*peers.cast::<AtomicU32>() }.fetch_add(1, Ordering::Release);
}
