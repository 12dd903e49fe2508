//! The few calls of libmosquitto that are needed (mosquitto.h), and a client without a thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::time::Instant;

use toroni_bench_harness::Failure;
use toroni_bench_harness::values::LONGEST_SILENCE;

/// `struct mosquitto`, which only the library knows.
#[repr(C)]
struct Mosquitto {
    _unknown: [u8; 0],
}

/// `struct mosquitto_message`.
#[repr(C)]
struct RawMessage {
    mid: c_int,
    topic: *const c_char,
    payload: *const c_void,
    payloadlen: c_int,
    qos: c_int,
    retain: bool,
}

type OnMessage = extern "C" fn(*mut Mosquitto, *mut c_void, *const RawMessage);
type OnNumber = extern "C" fn(*mut Mosquitto, *mut c_void, c_int);

unsafe extern "C" {
    fn mosquitto_lib_init() -> c_int;
    fn mosquitto_lib_version(major: *mut c_int, minor: *mut c_int, revision: *mut c_int) -> c_int;
    fn mosquitto_new(id: *const c_char, clean: bool, object: *mut c_void) -> *mut Mosquitto;
    fn mosquitto_destroy(client: *mut Mosquitto);
    fn mosquitto_connect(
        client: *mut Mosquitto,
        host: *const c_char,
        port: c_int,
        keepalive: c_int,
    ) -> c_int;
    fn mosquitto_publish(
        client: *mut Mosquitto,
        mid: *mut c_int,
        topic: *const c_char,
        length: c_int,
        payload: *const c_void,
        qos: c_int,
        retain: bool,
    ) -> c_int;
    fn mosquitto_subscribe(
        client: *mut Mosquitto,
        mid: *mut c_int,
        pattern: *const c_char,
        qos: c_int,
    ) -> c_int;
    fn mosquitto_unsubscribe(
        client: *mut Mosquitto,
        mid: *mut c_int,
        pattern: *const c_char,
    ) -> c_int;
    fn mosquitto_loop(client: *mut Mosquitto, timeout: c_int, max_packets: c_int) -> c_int;
    fn mosquitto_want_write(client: *mut Mosquitto) -> bool;
    fn mosquitto_connect_callback_set(client: *mut Mosquitto, call: OnNumber);
    fn mosquitto_publish_callback_set(client: *mut Mosquitto, call: OnNumber);
    fn mosquitto_unsubscribe_callback_set(client: *mut Mosquitto, call: OnNumber);
    fn mosquitto_message_callback_set(client: *mut Mosquitto, call: OnMessage);
    fn mosquitto_strerror(number: c_int) -> *const c_char;
}

/// Seconds after which the library sends a sign of life.
const KEEPALIVE: c_int = 60;
/// Milliseconds of one wait.
const WAIT: c_int = 1000;

/// A connected client.
pub(crate) struct Client {
    raw: *mut Mosquitto,
    /// The library has this pointer, too.
    heard: *mut RefCell<Heard>,
}

/// What the callbacks have learned.
#[derive(Default)]
struct Heard {
    /// The code of the broker: 0 if it accepted the connection.
    connected: Option<c_int>,
    messages: VecDeque<Vec<u8>>,
    /// The last message that the broker acknowledged, and the last subscription that it ended.
    published: c_int,
    unsubscribed: c_int,
}

pub(crate) fn version() -> String {
    let [mut major, mut minor, mut revision] = [0; 3];
    // SAFETY: the pointers are those of three integers.
    unsafe { mosquitto_lib_version(&raw mut major, &raw mut minor, &raw mut revision) };
    format!("{major}.{minor}.{revision}")
}

/// Calls `change` with what a client has heard.
fn hear(object: *mut c_void, change: impl FnOnce(&mut Heard)) {
    // SAFETY: the object is the cell that `Client::connect` has made, which lives longer than the client. The library calls
    // back only within calls of this thread.
    let heard = unsafe { &*object.cast::<RefCell<Heard>>() };
    change(&mut heard.borrow_mut());
}

extern "C" fn on_connect(_: *mut Mosquitto, object: *mut c_void, code: c_int) {
    hear(object, |heard| heard.connected = Some(code));
}

extern "C" fn on_publish(_: *mut Mosquitto, object: *mut c_void, mid: c_int) {
    hear(object, |heard| heard.published = mid);
}

extern "C" fn on_unsubscribe(_: *mut Mosquitto, object: *mut c_void, mid: c_int) {
    hear(object, |heard| heard.unsubscribed = mid);
}

extern "C" fn on_message(_: *mut Mosquitto, object: *mut c_void, message: *const RawMessage) {
    // SAFETY: the library passes a message that is valid during the call.
    let message = unsafe { &*message };
    let length = usize::try_from(message.payloadlen).unwrap_or(0);
    let payload = if length == 0 {
        Vec::new()
    } else {
        // SAFETY: the payload of a message has this length.
        unsafe { std::slice::from_raw_parts(message.payload.cast::<u8>(), length) }.to_vec()
    };
    hear(object, |heard| heard.messages.push_back(payload));
}

impl Client {
    /// Connects over a Unix socket.
    pub(crate) fn connect(socket: &str, name: &str) -> Result<Self, Failure> {
        let text = |text: &str| CString::new(text).map_err(Failure::of("pass a text on"));
        let (socket, name) = (text(socket)?, text(name)?);
        let heard = Box::into_raw(Box::<RefCell<Heard>>::default());
        // SAFETY: the name ends with a zero byte, and the object is only passed on to the callbacks.
        let raw = unsafe {
            mosquitto_lib_init();
            mosquitto_new(name.as_ptr(), true, heard.cast())
        };
        let mut client = Self { raw, heard };
        if raw.is_null() {
            return Err(Failure::new("cannot make a client of libmosquitto"));
        }
        // SAFETY: the client exists, the callbacks have the types of the library's, and the socket ends with a zero byte.
        let code = unsafe {
            mosquitto_connect_callback_set(raw, on_connect);
            mosquitto_publish_callback_set(raw, on_publish);
            mosquitto_unsubscribe_callback_set(raw, on_unsubscribe);
            mosquitto_message_callback_set(raw, on_message);
            mosquitto_connect(raw, socket.as_ptr(), 0, KEEPALIVE)
        };
        check("connect to the broker", code)?;
        match client.wait(|heard| heard.connected)? {
            0 => Ok(client),
            code => Err(Failure::new(format!("the broker refused the connection: {code}"))),
        }
    }

    /// Publishes a retained message.
    #[inline]
    pub(crate) fn retain(&mut self, topic: &CStr, payload: &[u8]) -> Result<(), Failure> {
        self.publish(topic, payload, 0, true)?;
        // SAFETY: the client exists.
        while unsafe { mosquitto_want_write(self.raw) } {
            self.turn()?;
        }
        Ok(())
    }

    /// Publishes an empty message that is not kept, and waits until the broker has acknowledged it.
    pub(crate) fn publish_acknowledged(&mut self, topic: &CStr) -> Result<(), Failure> {
        let mid = self.publish(topic, &[], 1, false)?;
        self.wait(|heard| (heard.published == mid).then_some(()))
    }

    #[inline]
    fn publish(
        &mut self,
        topic: &CStr,
        payload: &[u8],
        qos: c_int,
        retain: bool,
    ) -> Result<c_int, Failure> {
        let length = c_int::try_from(payload.len()).map_err(Failure::of("publish"))?;
        let mut mid = 0;
        // SAFETY: the client exists, the topic ends with a zero byte, and the payload has this length.
        let code = unsafe {
            let bytes = payload.as_ptr().cast();
            mosquitto_publish(self.raw, &raw mut mid, topic.as_ptr(), length, bytes, qos, retain)
        };
        check("publish", code).map(|()| mid)
    }

    pub(crate) fn subscribe(&mut self, pattern: &CStr) -> Result<(), Failure> {
        // SAFETY: the client exists, and the pattern ends with a zero byte.
        let code =
            unsafe { mosquitto_subscribe(self.raw, std::ptr::null_mut(), pattern.as_ptr(), 0) };
        check("subscribe", code)
    }

    /// Returns the number of the request.
    pub(crate) fn unsubscribe(&mut self, pattern: &CStr) -> Result<c_int, Failure> {
        let mut mid = 0;
        // SAFETY: the client exists, and the pattern ends with a zero byte.
        let code = unsafe { mosquitto_unsubscribe(self.raw, &raw mut mid, pattern.as_ptr()) };
        check("unsubscribe", code).map(|()| mid)
    }

    /// Waits until the broker has ended a subscription.
    pub(crate) fn wait_for_end(&mut self, request: c_int) -> Result<(), Failure> {
        self.wait(|heard| (heard.unsubscribed == request).then_some(()))
    }

    /// Waits for the next message.
    pub(crate) fn message(&mut self) -> Result<Vec<u8>, Failure> {
        self.wait(|heard| heard.messages.pop_front())
    }

    fn wait<T>(&mut self, mut event: impl FnMut(&mut Heard) -> Option<T>) -> Result<T, Failure> {
        let mut began = None;
        loop {
            // SAFETY: the cell lives as long as this client, and no callback runs now.
            let heard = unsafe { &*self.heard };
            if let Some(event) = event(&mut heard.borrow_mut()) {
                return Ok(event);
            }
            if began.get_or_insert_with(Instant::now).elapsed() > LONGEST_SILENCE {
                return Err(Failure::new(format!(
                    "the broker said nothing for {LONGEST_SILENCE:?}"
                )));
            }
            self.turn()?;
        }
    }

    /// Reads and writes what the socket allows.
    fn turn(&mut self) -> Result<(), Failure> {
        // SAFETY: the client exists.
        check("talk to the broker", unsafe { mosquitto_loop(self.raw, WAIT, 1) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the client is not used afterwards. It is null if it was not made, which the library permits.
        unsafe { mosquitto_destroy(self.raw) };
        // SAFETY: it was made by `Box::into_raw`, and the client that pointed to it is gone.
        drop(unsafe { Box::from_raw(self.heard) });
    }
}

fn check(attempt: &str, code: c_int) -> Result<(), Failure> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the text is static.
    let text = unsafe { CStr::from_ptr(mosquitto_strerror(code)) };
    Err(Failure::new(format!("cannot {attempt}: {}", text.to_string_lossy())))
}
