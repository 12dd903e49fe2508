//! Running children.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running child. Dropped, it is killed and reaped. It also dies with the thread that started it,
/// so that a test that is itself killed leaves nobody behind: do not start one in a short thread.
pub struct Running {
    child: Child,
    what: String,
    stdout: Option<BufReader<ChildStdout>>,
    said: Arc<Mutex<Vec<u8>>>,
    listener: Mutex<Option<JoinHandle<()>>>,
    ready: Option<OwnedFd>,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts it. What it prints is read by [`Self::line`] or [`Self::finish`] if its output is piped;
    /// what it says on standard error is kept for failures, if that is piped.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: Command) -> Self {
        Self::spawn(command, None)
    }

    /// Starts it with `--ready-fd N` behind its other arguments; [`Self::wait_ready`] waits for the
    /// line.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_with_ready_fd(mut command: Command) -> Self {
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let number = write.as_raw_fd();
        command.arg("--ready-fd").arg(number.to_string());
        // SAFETY: between fork and exec it makes one system call on a descriptor that the child has,
        // and nothing else. The parent's copy stays close-on-exec: no other child inherits it.
        unsafe {
            command.pre_exec(move || {
                let none = rustix::io::FdFlags::empty();
                Ok(rustix::io::fcntl_setfd(std::os::fd::BorrowedFd::borrow_raw(number), none)?)
            });
        }
        let running = Self::spawn(command, Some(read));
        drop(write);
        running
    }

    fn spawn(mut command: Command, ready: Option<OwnedFd>) -> Self {
        let what = format!("{command:?}");
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let listener = child.stderr.take().map(|mut stderr| {
            let said = said.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.extend(&buffer[..length]);
                }
            })
        });
        let stdout = child.stdout.take().map(BufReader::new);
        let listener = Mutex::new(listener);
        Self { child, what, stdout, said, listener, ready, status: None }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The end of the pipe to its standard input, if that is piped and was not taken before.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// If that is not piped, or the process is gone.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("a piped standard input");
        let told = stdin.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = told {
            panic!("cannot tell {line:?} to {}: {error}{}", self.what, self.explained());
        }
    }

    /// Waits for the line on the descriptor of [`Self::start_with_ready_fd`].
    ///
    /// # Panics
    /// If it does not come.
    pub fn wait_ready(&mut self) {
        let ready = self.ready.take().expect("started with a ready descriptor");
        self.wait_readable(&ready);
        let mut line = String::new();
        let _ = BufReader::new(File::from(ready)).read_line(&mut line);
        assert!(line.ends_with('\n'), "{} is not ready: {line:?}{}", self.what, self.explained());
    }

    /// The next line of its output, without the line feed; `None` at the end.
    ///
    /// # Panics
    /// If none comes, and no end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            let mut stdout = self.stdout.take().expect("a piped output");
            if stdout.buffer().is_empty() {
                self.wait_readable(stdout.get_ref());
            }
            let available = stdout.fill_buf().expect("its output");
            let end = available.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(available.len(), |end| end + 1);
            let is_over = available.is_empty();
            line.extend(&available[..length]);
            stdout.consume(length);
            self.stdout = Some(stdout);
            if end.is_some() || is_over {
                if is_over && line.is_empty() {
                    return None;
                }
                line.pop_if(|byte| *byte == b'\n');
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }

    /// The next line, which must come and begin with `word`; what stands behind it.
    ///
    /// # Panics
    /// If another comes, or none.
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.line();
        match line.as_deref().and_then(|line| line.strip_prefix(word)) {
            Some(rest) => rest.trim().to_owned(),
            None => panic!("{} said {line:?} in place of {word:?}{}", self.what, self.explained()),
        }
    }

    /// What it prints, for somebody who reads it beside; nothing is left for [`Self::line`].
    pub fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.stdout.take()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has been reaped already: the number might be somebody else's.
    pub fn signal(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended", self.what);
        kill_process(Pid::from_child(&self.child), signal).expect("a signal to a child");
    }

    /// Kills it with SIGKILL and reaps it.
    ///
    /// # Panics
    /// If it had ended before, by anything else.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "{} ended by itself{}", self.what, self.explained());
    }

    /// Stops it (SIGSTOP), and waits until it is.
    ///
    /// # Panics
    /// If it does not stop.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        wait_until(&format!("{} is stopped", self.what), || is_stopped(self.id()));
    }

    /// Lets it go on (SIGCONT).
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// If the system does not answer.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("the state of a child");
        }
        self.status
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_within(PATIENCE)
    }

    fn wait_within(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end{}", self.what, self.explained());
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    /// What is left of its output, and how it ended.
    ///
    /// # Panics
    /// If it does not end.
    pub fn finish(&mut self) -> Finished {
        self.finish_within(PATIENCE)
    }

    /// As [`Self::finish`], of a program that takes longer.
    ///
    /// # Panics
    /// If it does not end in that time.
    pub fn finish_within(&mut self, patience: Duration) -> Finished {
        let stdout = self.stdout.take();
        // Beside this thread, so that a program that does not end fails the test.
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stdout) = stdout {
                let _ = stdout.read_to_end(&mut bytes);
            }
            bytes
        });
        let status = self.wait_within(patience);
        let stdout = reader.join().expect("the reader of its output");
        Finished { status, stdout, stderr: self.explained() }
    }

    /// Waits for its end, which must be a success; what it printed.
    ///
    /// # Panics
    /// If it fails, or prints no UTF-8.
    #[must_use]
    pub fn succeed(mut self) -> String {
        let finished = self.finish();
        let said = String::from_utf8(finished.stdout).expect("UTF-8");
        let (what, status, error) = (&self.what, finished.status, finished.stderr);
        assert!(status.success(), "{what} ended with {status}, said {said:?}{error}");
        said
    }

    /// What it said on standard error so far, with a line feed in front of it; all of it, if it ended.
    #[must_use]
    pub fn explained(&self) -> String {
        if self.status.is_some()
            && let Some(listener) =
                self.listener.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            let _ = listener.join();
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() {
            String::new()
        } else {
            format!("\n{}", String::from_utf8_lossy(&said))
        }
    }

    fn wait_readable(&self, fd: &impl AsFd) {
        let patience = Timespec::try_from(PATIENCE).expect("a time");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut fds = [PollFd::new(fd, PollFlags::IN)];
            match poll(&mut fds, Some(&patience)) {
                Ok(1..) => return,
                Err(rustix::io::Errno::INTR) if Instant::now() < deadline => {}
                answer => panic!("{} says nothing: {answer:?}{}", self.what, self.explained()),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How a child ended, and what it printed.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed that was not read before.
    pub stdout: Vec<u8>,
    /// What it said on standard error.
    pub stderr: String,
}

/// Whether a process is stopped: state `T` in `/proc/<pid>/stat` (proc(5)).
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    state_of(pid) == Some('T')
}

/// The state of a process in `/proc/<pid>/stat` (proc(5)); `None` if there is no such process.
#[must_use]
pub fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name in parentheses, which may hold anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Looks again and again until it is so.
///
/// # Panics
/// If it never is.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(100);
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
