//! What the tests of this crate share. They use the crate as its users do.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use toroni_proactor::{Config, Listener, Proactor, Stream};
use toroni_testkit::Directory;

/// A time limit far beyond what anything here takes: what takes longer has been lost.
pub(crate) const LOST: Duration = Duration::from_secs(60);

/// Returns [`LOST`], or less with a mutant: then a loss is expected, and not worth such a long wait.
pub(crate) fn lost() -> Duration {
    let is_expected = cfg!(toroni_mutants) && std::env::var_os("TORONI_MUTANT").is_some();
    if is_expected { Duration::from_secs(5) } else { LOST }
}

/// Any free port of this machine.
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

    /// Waits until all threads have left.
    pub(crate) fn join(mut self) {
        for thread in self.threads.drain(..) {
            let started = Instant::now();
            while !thread.is_finished() {
                assert!(started.elapsed() < lost(), "a thread does not leave");
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

/// Returns the configuration of a proactor, to create another one.
pub(crate) fn same_as(proactor: &Proactor) -> Config {
    let mut configs = proactor.effective().iter().map(|one| one.config.clone());
    let first = configs.next().unwrap();
    let config = match configs.next() {
        Some(second) => Config::two(first, second),
        None => Config::one(first),
    };
    config.with_shards(proactor.effective()[0].shards)
}

/// Returns the next value, or fails the test.
#[track_caller]
pub(crate) fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(lost()).expect("comes in time")
}

/// Returns two ends of a connection: one of the proactor, one of the standard library.
pub(crate) fn stream_and_peer(proactor: &Proactor) -> (Stream, TcpStream) {
    let (peer, accepted) = two_sockets();
    (Stream::new(proactor, accepted).unwrap(), peer)
}

/// Returns two ends of a connection, neither of them the proactor's.
pub(crate) fn two_sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(ANY).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(lost())).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nodelay(true).unwrap();
    (peer, accepted)
}

/// Returns two ends of a connection, both of the proactor.
pub(crate) fn two_streams(proactor: &Proactor) -> (Stream, Stream) {
    let (stream, peer) = stream_and_peer(proactor);
    (stream, Stream::new(proactor, peer).unwrap())
}

/// Returns a listener on a free port, and its address.
pub(crate) fn listener(proactor: &Proactor) -> (Listener, SocketAddr) {
    let listener = Listener::bind(proactor, ANY).unwrap();
    let address = listener.local_address().unwrap();
    (listener, address)
}

/// An address without a listener. Its port stays in use until this is dropped.
pub(crate) struct NoListener {
    pub(crate) address: SocketAddr,
    _bound: OwnedFd,
}

impl NoListener {
    pub(crate) fn new() -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let bound = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&bound, &ANY).unwrap();
        let address = rustix::net::getsockname(&bound).unwrap().try_into().unwrap();
        Self { address, _bound: bound }
    }
}

/// A directory of a test, where files are not in memory.
pub(crate) fn directory() -> Directory {
    Directory::below(std::env::temp_dir())
}

/// Runs a test in a process of its own, where no other test opens descriptors or takes signals.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    const ALONE: &str = "TORONI_PROACTOR_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{failed}");
}

/// Returns how many descriptors this process has open.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Limits the number of descriptors of this process. Open ones stay open.
pub(crate) fn limit_descriptors(most: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most as u64), maximum }).unwrap();
}

/// Waits until the condition is true.
#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < lost(), "does not become true");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Which calls [`refuse`] refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Always,
    /// If the lower half of the second argument is not 0.
    WithSecond,
}

/// Makes a system call fail with this error in this thread, and in threads that it starts: by a filter, as
/// containers have it.
pub(crate) fn refuse(call: libc::c_long, asked: Asked, errno: i32) {
    /// The offset of the second argument in the filter's input, `struct seccomp_data`.
    const SECOND: u32 = 24 + if cfg!(target_endian = "big") { 4 } else { 0 };
    let statement = |code: u32, yes, no, value| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: yes,
        jf: no,
        k: value,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut filter = vec![
        statement(load, 0, 0, 0),
        statement(equal, 1, 0, u32::try_from(call).unwrap()),
        statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    if asked == Asked::WithSecond {
        filter.extend([
            statement(load, 0, 0, SECOND),
            statement(equal, 0, 1, 0),
            statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]);
    }
    filter.push(statement(give, 0, 0, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()));
    let len = u16::try_from(filter.len()).unwrap();
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the program is of valid statements that live through the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// Returns pseudo-random bytes, of which a shorter call returns the first ones.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    /// The state of the generator, and its output so far: making it takes longer than the tests that use it.
    static MADE: Mutex<(u32, Vec<u8>)> = Mutex::new((1, Vec::new()));
    let (state, bytes) = &mut *MADE.lock().unwrap();
    while bytes.len() < length {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push(state.to_be_bytes()[0]);
    }
    bytes[..length].to_vec()
}

/// Returns each pair of settings of a configuration, as the places of both in the list and both values.
pub(crate) fn pairs(settings: &[String]) -> BTreeSet<(usize, String, usize, String)> {
    let numbered = || settings.iter().enumerate();
    numbered()
        .flat_map(|(second, two)| {
            let earlier = numbered().take(second);
            earlier.map(move |(first, one)| (first, one.clone(), second, two.clone()))
        })
        .collect()
}
