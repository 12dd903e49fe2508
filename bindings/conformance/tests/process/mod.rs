//! The programs of each language as processes, and a directory of buses for them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use toroni::BusConfig;
use toroni_testkit::{Directory, process};

/// What must come has come by then, on any machine; a program that publishes says nothing until it is through.
const LONG: Duration = Duration::from_secs(600);

/// A language with programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    C,
    Cpp,
    Python,
}

pub(crate) const LANGUAGES: [Language; 4] =
    [Language::Rust, Language::C, Language::Cpp, Language::Python];

/// Those that are here.
pub(crate) fn languages() -> impl Iterator<Item = Language> {
    LANGUAGES.into_iter().filter(|language| {
        let missing = program(*language, "publish").err();
        let must = std::env::var_os("TORONI_CONFORMANCE_ALL").is_some();
        if let Some(missing) = missing {
            assert!(!must, "{language:?} is missing: {missing}");
            eprintln!("NOT RUN for {language:?}: {missing}; `cargo xtask bindings` runs it");
        }
        missing.is_none()
    })
}

/// The program for a role, or what would have to be set.
fn program(language: Language, role: &str) -> Result<Command, &'static str> {
    let folder_of_c = std::env::var_os("TORONI_CONFORMANCE_C").map(PathBuf::from);
    let folder_of_c = folder_of_c.ok_or("TORONI_CONFORMANCE_C is not set");
    Ok(match language {
        Language::Rust => Command::new(match role {
            "publish" => env!("CARGO_BIN_EXE_conformance-publish"),
            "subscribe" => env!("CARGO_BIN_EXE_conformance-subscribe"),
            "get" => env!("CARGO_BIN_EXE_conformance-get"),
            _ => env!("CARGO_BIN_EXE_conformance-observe"),
        }),
        Language::C => Command::new(folder_of_c?.join(format!("conformance_{role}_c"))),
        Language::Cpp => Command::new(folder_of_c?.join(format!("conformance_{role}_cpp"))),
        Language::Python => {
            let python = std::env::var_os("TORONI_CONFORMANCE_PYTHON");
            let mut command = Command::new(python.ok_or("TORONI_CONFORMANCE_PYTHON is not set")?);
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/conformance");
            command.arg(folder.join(format!("{role}.py")));
            command
        }
    })
}

/// A directory of buses, removed when dropped.
pub(crate) struct Fixture(Directory);

impl Fixture {
    pub(crate) fn new() -> Self {
        Self(Directory::new())
    }

    pub(crate) fn config(&self) -> BusConfig {
        BusConfig::new().directory(self.0.path())
    }

    /// A file or directory beside the buses.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A program that looks for buses here.
    pub(crate) fn command(&self, language: Language, role: &str) -> Command {
        let mut command = program(language, role).unwrap();
        command.env("TORONI_DIR", self.0.path());
        command
    }

    #[expect(clippy::too_many_arguments, reason = "they are the program's")]
    pub(crate) fn publish(
        &self,
        language: Language,
        bus: &str,
        topic: &str,
        id: u64,
        count: u64,
        size: u64,
        mode: &str,
    ) -> Process {
        let mut command = self.command(language, "publish");
        command.args([bus, topic, &id.to_string(), &count.to_string(), &size.to_string(), mode]);
        Process::start(format!("{language:?} publish {mode}"), command)
    }

    /// The lines that the program `get` writes.
    pub(crate) fn get(
        &self,
        language: Language,
        bus: &str,
        topic: &str,
        pattern: &str,
    ) -> Vec<String> {
        let output = self.command(language, "get").args([bus, topic, pattern]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{language:?} get: {error}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Runs `publish`, which must fail, and returns what it writes to stderr.
    pub(crate) fn refused(&self, language: Language, arguments: [&str; 6]) -> String {
        let mut command = self.command(language, "publish");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut refused = command.spawn().unwrap();
        refused.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let output = refused.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{language:?} {arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn subscribe(
        &self,
        language: Language,
        bus: &str,
        pattern: &str,
        count: u64,
        mode: &str,
    ) -> Process {
        let mut command = self.command(language, "subscribe");
        command.args([bus, pattern, &count.to_string(), mode]);
        Process::start(format!("{language:?} subscribe {mode}"), command)
    }
}

/// A running program, killed when dropped.
pub(crate) struct Process {
    name: String,
    child: process::Process,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it, and waits until it is ready.
    fn start(name: String, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = process::Process::spawn(&mut command);
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdin, stdout) = (child.stdin(), child.stdout().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let process = Self { name, child, stdin, lines };
        assert_eq!(process.lines.recv_timeout(LONG).as_deref(), Ok("ready"), "{}", process.name);
        process
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it go.
    pub(crate) fn go(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// The next line that it writes.
    pub(crate) fn line(&self) -> String {
        let line = self.lines.recv_timeout(LONG);
        line.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// What it writes until it ends, which it does well.
    pub(crate) fn ends(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => lines.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(timeout) => panic!("{}: {timeout}, behind {:?}", self.name, lines.last()),
            }
        }
        let status = self.child.wait_within(LONG).unwrap().expect("it has closed its output");
        assert!(status.success(), "{}: {status}", self.name);
        lines
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.end().unwrap();
    }
}
