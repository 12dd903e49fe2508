//! What the tests of this crate share. They use it as its users do.

#![allow(dead_code, reason = "each test program uses a part")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use toroni_proactor::{Listener, Proactor, Stream};

/// Far beyond what anything here takes: what takes longer has been lost.
pub(crate) const LOST: Duration = Duration::from_secs(30);

/// Any port of this machine.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Threads that run a proactor, until this is dropped.
pub(crate) struct Crew {
    proactor: Proactor,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    pub(crate) fn new(proactor: &Proactor, threads: usize) -> Self {
        let run = |_| {
            let proactor = proactor.clone();
            thread::spawn(move || proactor.run())
        };
        Self { proactor: proactor.clone(), threads: (0..threads).map(run).collect() }
    }

    /// Waits for all to leave.
    pub(crate) fn join(mut self) {
        for thread in self.threads.drain(..) {
            let started = Instant::now();
            while !thread.is_finished() {
                assert!(started.elapsed() < LOST, "a thread does not leave");
                thread::sleep(Duration::from_millis(1));
            }
            thread.join().unwrap();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.proactor.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.proactor.restart();
    }
}

/// The next value, or the end of the test.
#[track_caller]
pub(crate) fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(LOST).expect("comes in time")
}

/// Two ends of a connection: one of the proactor, one of the standard library.
pub(crate) fn stream_and_peer(proactor: &Proactor) -> (Stream, TcpStream) {
    let listener = TcpListener::bind(ANY).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(LOST)).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nodelay(true).unwrap();
    (Stream::new(proactor, accepted).unwrap(), peer)
}

/// Two ends of a connection, both of the proactor.
pub(crate) fn two_streams(proactor: &Proactor) -> (Stream, Stream) {
    let (stream, peer) = stream_and_peer(proactor);
    (stream, Stream::new(proactor, peer).unwrap())
}

/// A listener on a free port, and its address.
pub(crate) fn listener(proactor: &Proactor) -> (Listener, SocketAddr) {
    let listener = Listener::bind(proactor, ANY).unwrap();
    let address = listener.local_address().unwrap();
    (listener, address)
}

/// A directory that is removed at the end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("toroni-proactor-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test in a process of its own, where nobody else opens descriptors or takes signals.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    const ALONE: &str = "TORONI_PROACTOR_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{failed}");
}

/// How many descriptors this process has open.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Waits until it is true.
#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LOST, "does not become true");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that are different in each place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}
