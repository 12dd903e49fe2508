//! Control of a recorder that runs: `toroni record --control FILE COMMAND`, and signals.
//!
//! The recorder listens on a socket in the abstract namespace, so no file is left of one that was killed. The name of the socket
//! stands for the directory and the name of FILE, however they are written. Only the user of the recorder, and root, may
//! use it.

use super::split::{directory, stem};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::low_level::pipe;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;
use toroni_shell::failure::Failure;
use toroni_shell::note;

/// How long a recorder may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a command, and of an answer.
const MOST_BYTES: u64 = 8192;

/// What can be asked of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Split,
    Pause,
    Resume,
    /// Pauses, or resumes.
    Toggle,
    Snapshot,
}

/// The commands, in the order of the help.
const COMMANDS: [(&str, Action); 4] = [
    ("split", Action::Split),
    ("pause", Action::Pause),
    ("resume", Action::Resume),
    ("snapshot", Action::Snapshot),
];

fn parse(command: &str) -> Option<Action> {
    COMMANDS.iter().find(|(name, _)| *name == command).map(|(_, action)| *action)
}

/// What was done, or why not.
type Answer = Result<String, String>;

/// The program that asks.
struct Client {
    reply: SyncSender<Answer>,
    stream: UnixStream,
    /// Set by the end that is first: the recorder, which then does what is asked, or the one that waits for it no longer.
    is_decided: Arc<AtomicBool>,
}

/// Something that a command or a signal asks of the recorder.
pub(super) struct Request {
    pub(super) action: Action,
    /// `None` for a signal, whose answer is a remark.
    client: Option<Client>,
}

impl Request {
    /// Whether it is still to be done: the program that asked waits for the answer. One that was answered that it has not been
    /// done must be right.
    pub(super) fn take(&self) -> bool {
        let Some(client) = &self.client else { return true };
        !has_left(&client.stream) && !client.is_decided.swap(true, Ordering::Relaxed)
    }

    pub(super) fn answer(&self, answer: Answer) {
        match &self.client {
            // The program that asked may have gone.
            Some(client) => drop(client.reply.try_send(answer)),
            None => match answer {
                // The note in the file was reported.
                Ok(_) if self.action == Action::Toggle => {}
                Ok(text) => note::remark(&text),
                Err(text) => note::remark(&format!("the signal was ignored: {text}")),
            },
        }
    }
}

/// The recorder's end.
pub(super) struct Control {
    requests: Receiver<Request>,
    /// Whether the recorder has its bus.
    is_ready: Arc<AtomicBool>,
}

impl Control {
    /// Listens for commands, and handles signals. Fails if another recorder was started with this file.
    pub(super) fn start(file: &Path) -> Result<Self, Failure> {
        let failed =
            |what: &str, error: io::Error| Failure::Failed(format!("cannot {what}: {error}"));
        let (sender, requests) = mpsc::channel();
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
            started.map(drop).map_err(|error| failed("start a thread", error))
        };
        for (signal, action) in [(SIGUSR1, Action::Split), (SIGUSR2, Action::Toggle)] {
            // A byte for each signal, so that two of them are two.
            let registered = UnixStream::pair()
                .and_then(|(reader, writer)| pipe::register(signal, writer).map(|_| reader));
            let bytes = registered.map_err(|error| failed("install a signal handler", error))?;
            let requests = sender.clone();
            let ask = move || {
                for _ in BufReader::new(bytes).bytes() {
                    // The recorder may have ended.
                    let _ = requests.send(Request { action, client: None });
                }
            };
            start("control-signals", Box::new(ask))?;
        }
        let is_ready = Arc::new(AtomicBool::new(false));
        // Where there is no directory, the file cannot be created either. That error says more.
        if let Ok(address) = address(file)
            && let Some(listener) = listen(file, &address)?
        {
            let is_ready = Arc::clone(&is_ready);
            start("control", Box::new(move || serve(&listener, &sender, &is_ready)))?;
        }
        Ok(Self { requests, is_ready })
    }

    /// The recorder has its bus, and does what is asked from now on.
    pub(super) fn ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Returns the next request.
    pub(super) fn next(&self) -> Option<Request> {
        self.requests.try_recv().ok()
    }
}

/// Returns the socket of the recorders of a file: its directory as the kernel numbers it, and what the names of its parts begin
/// with.
fn address(file: &Path) -> io::Result<SocketAddr> {
    let directory = directory(file).metadata()?;
    // FNV-1a: names are longer than a socket's may be.
    let stem = stem(file);
    let name = stem.file_name().unwrap_or_default().as_bytes();
    let hash = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let (device, inode) = (directory.st_dev(), directory.st_ino());
    SocketAddr::from_abstract_name(format!("toroni-record/{device:x}/{inode:x}/{hash:016x}"))
}

/// Returns the process at the other end, and whether it is one of this user or of root.
fn peer(socket: impl AsFd) -> (String, bool) {
    match socket_peercred(socket) {
        Ok(peer) => {
            let is_trusted = peer.uid == geteuid() || peer.uid.is_root();
            let (pid, user) = (peer.pid.as_raw_nonzero(), peer.uid.as_raw());
            (format!("process {pid} of user {user}"), is_trusted)
        }
        Err(_) => ("an unknown process".to_owned(), false),
    }
}

/// Takes the name of the socket. Returns `None`, after it has said so, if a process of another user has it: that must not
/// prevent a recording.
fn listen(file: &Path, address: &SocketAddr) -> Result<Option<UnixListener>, Failure> {
    let error = match UnixListener::bind_addr(address) {
        Ok(listener) => return Ok(Some(listener)),
        Err(error) => error,
    };
    let file = file.display();
    if error.kind() == io::ErrorKind::AddrInUse
        && let Ok(other) = UnixStream::connect_addr(address)
        && let (process, true) = peer(&other)
    {
        return Err(Failure::Failed(format!(
            "another recorder was started with {file} ({process}): end it, or choose another name"
        )));
    }
    note::remark(&format!("`toroni record --control {file}` will not work: {error}"));
    Ok(None)
}

/// Whether the program at the other end has closed the connection.
fn has_left(stream: &UnixStream) -> bool {
    let mut found = [PollFd::new(stream, PollFlags::RDHUP)];
    let polled = poll(&mut found, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok_and(|count| count > 0)
}

/// Answers one program after the other.
fn serve(listener: &UnixListener, requests: &Sender<Request>, is_ready: &AtomicBool) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Without descriptors, there is nothing to do but wait.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let answer = match asked(&stream) {
            Ok(_) if !is_ready.load(Ordering::Relaxed) => Err("it waits for its bus".to_owned()),
            Ok(action) => hand_on(action, &stream, requests),
            Err(why) => Err(why),
        };
        let text = match answer {
            Ok(text) => format!("ok {text}\n"),
            Err(text) => format!("error {text}\n"),
        };
        // The program may have gone.
        let _ = (&stream).write_all(text.as_bytes());
    }
}

fn asked(stream: &UnixStream) -> Result<Action, String> {
    let (process, is_trusted) = peer(stream);
    if !is_trusted {
        return Err(format!("only the user of the recorder may control it, not {process}"));
    }
    let limits = stream
        .set_read_timeout(Some(ANSWERS_WITHIN))
        .and_then(|()| stream.set_write_timeout(Some(ANSWERS_WITHIN)));
    let command = limits.and_then(|()| line(stream));
    let command = command.map_err(|error| format!("the command cannot be read: {error}"))?;
    parse(&command)
        .ok_or_else(|| format!("this version of the recorder has no command {command:?}"))
}

fn line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn hand_on(action: Action, stream: &UnixStream, requests: &Sender<Request>) -> Answer {
    let (reply, answer) = mpsc::sync_channel(1);
    let stream = stream.try_clone().map_err(|error| error.to_string())?;
    let is_decided = Arc::new(AtomicBool::new(false));
    let client = Some(Client { reply, stream, is_decided: Arc::clone(&is_decided) });
    if requests.send(Request { action, client }).is_err() {
        return Err("the recorder ends".to_owned());
    }
    let mut found = answer.recv_timeout(ANSWERS_WITHIN);
    // What it has begun is done in any case.
    let is_begun =
        found == Err(RecvTimeoutError::Timeout) && is_decided.swap(true, Ordering::Relaxed);
    if is_begun {
        found = answer.recv_timeout(ANSWERS_WITHIN / 2);
    }
    match found {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) if is_begun => {
            Err("it has begun, and will do it when its disk has written what was before".to_owned())
        }
        Err(RecvTimeoutError::Timeout) => {
            Err("it has not come to it in 10 s, and will not do it: its disk is slow".to_owned())
        }
        Err(RecvTimeoutError::Disconnected) => Err("the recorder ended before".to_owned()),
    }
}

/// Sends a command to a recorder, and reports its answer: `toroni record --control`.
pub(super) fn send(file: &Path, command: &str) -> Result<(), Failure> {
    if parse(command).is_none() {
        let commands: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::Usage(format!(
            "--control FILE {command}: the commands are {}",
            commands.join(", ")
        )));
    }
    let shown = file.display();
    let none = || {
        Failure::Failed(format!(
            "no recorder that was started with {shown} runs on this host (in this network namespace)"
        ))
    };
    let failed =
        |error: io::Error| Failure::Failed(format!("cannot ask the recorder of {shown}: {error}"));
    let address = address(file).map_err(failed)?;
    let stream = match UnixStream::connect_addr(&address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(none()),
        stream => stream.map_err(failed)?,
    };
    let (process, is_trusted) = peer(&stream);
    // Any process may take the name. Root may control the recorder of each user.
    if !is_trusted && !geteuid().is_root() {
        return Err(Failure::Failed(format!(
            "the recorder of {shown} is {process}, not one of this user"
        )));
    }
    stream.set_read_timeout(Some(2 * ANSWERS_WITHIN)).map_err(failed)?;
    // A recorder that refuses this user does not read. It answers.
    let written = (&stream).write_all(format!("{command}\n").as_bytes());
    let answer = match line(&stream) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Failure::Failed(format!(
                "the recorder of {shown} ({process}) does not answer: it may be stopped"
            )));
        }
        answer => answer.map_err(failed)?,
    };
    if let Some(done) = answer.strip_prefix("ok ") {
        note::remark(done);
        return Ok(());
    }
    if answer.is_empty() {
        written.map_err(failed)?;
    }
    let why = answer.strip_prefix("error ").unwrap_or("it ended before it answered");
    Err(Failure::Failed(format!("the recorder of {shown} did not {command}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_socket_however_its_name_is_written() {
        let name =
            |path: &str| address(Path::new(path)).unwrap().as_abstract_name().unwrap().to_vec();
        assert_eq!(name("a.mcap"), name("./a.mcap"));
        assert_eq!(name("/proc/a.mcap"), name("/proc/../proc/./a.mcap"));
        assert_eq!(name("/proc/a.mcap"), name("/proc/a"));
        assert_ne!(name("/proc/a.mcap"), name("/proc/b.mcap"));
        assert_ne!(name("/proc/a.mcap"), name("/sys/a.mcap"));
        // A socket has a name of at most 107 bytes.
        assert!(name(&format!("/proc/{}", "x".repeat(250))).len() < 107);
        assert!(address(Path::new("/nothing/here/a.mcap")).is_err());
    }
}
