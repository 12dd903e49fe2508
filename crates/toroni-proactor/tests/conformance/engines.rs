//! The configurations; and that a proactor really has what its configuration asks for.

use super::common::*;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toroni_proactor::{
    Config, File, InterruptType, OperationMask, Proactor, ProcessorConfig, ProcessorType,
    ProviderType, WaitType,
};

/// Which tests of a configuration run by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Always,
    Files,
    Asked,
}

/// A configuration without its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) provider: ProviderType,
    pub(crate) wait: WaitType,
    pub(crate) interrupt: InterruptType,
    pub(crate) processor: ProcessorType,
    pub(crate) shards: usize,
    pub(crate) runs: Runs,
    /// The path of its module.
    pub(crate) module: &'static str,
}

impl Kind {
    /// Returns the configuration with the flags "starts in any thread" and "a start interrupts the leader", and
    /// a limit. POSIX does files only: as in the paper, a second processor of the same type does everything
    /// else.
    fn config(self, any_thread: bool, interrupts: bool, limit: Option<usize>) -> Config {
        let engine = ProcessorConfig {
            processor_type: self.processor,
            provider: self.provider,
            wait: self.wait,
            interrupt: self.interrupt,
            start_in_any_thread: Some(any_thread),
            start_interrupts_leader: Some(interrupts),
            max_operations: limit,
            ..ProcessorConfig::default()
        };
        if self.provider != ProviderType::Posix {
            return Config::one(engine);
        }
        let rest = ProcessorConfig {
            provider: ProviderType::Select,
            wait: WaitType::Native,
            interrupt: InterruptType::Pipe,
            ..engine.clone()
        };
        Config::two(engine, rest)
    }

    /// Returns what tells this configuration from others.
    pub(crate) fn settings(self) -> [String; 5] {
        [
            format!("{:?}", self.provider),
            format!("{:?}", self.wait),
            format!("{:?}", self.interrupt),
            format!("{:?}", self.processor),
            format!("{} shards", self.shards),
        ]
    }

    /// Returns the name of a test of this configuration.
    pub(crate) fn test(self, name: &str) -> String {
        let (_, module) = self.module.split_once("::").unwrap();
        format!("{module}::{name}")
    }

    /// Runs a test with each setting of the flags.
    pub(crate) fn each(self, test: impl Fn(&Proactor)) {
        self.each_limited(None, test);
    }

    /// Runs a test with each setting of the flags, and a limit of operations in progress.
    pub(crate) fn each_limited(self, limit: Option<usize>, test: impl Fn(&Proactor)) {
        for (any_thread, interrupts) in [(false, false), (true, false), (true, true)] {
            eprintln!("any thread {any_thread}, interrupts {interrupts}");
            let config = self.config(any_thread, interrupts, limit);
            let _permit = (self.provider == ProviderType::Posix).then(permit);
            test(&Proactor::new(&config.with_shards(self.shards)).unwrap());
        }
    }
}

/// Limits the number of tests that use the C library's threads at the same time: it has 20 for this process.
fn permit() -> MutexGuard<'static, ()> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static PERMITS: [Mutex<()>; 4] = [const { Mutex::new(()) }; 4];
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % PERMITS.len();
    PERMITS[next].lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn is_what_was_asked_for(kind: Kind) {
    kind.each(|proactor| {
        let (effective, others) = proactor.effective().split_first().unwrap();
        let is_posix = kind.provider == ProviderType::Posix;
        assert_eq!(others.len(), usize::from(is_posix));
        assert_eq!(effective.operations == OperationMask::FILES, is_posix);
        assert_eq!(effective.config.provider, kind.provider);
        assert_eq!(effective.config.wait, kind.wait);
        assert_eq!(effective.config.interrupt, kind.interrupt);
        assert_eq!(effective.config.processor_type, kind.processor);
    });
}

/// The fourth setting of the flags counts as neither, and the proactor reports that. So `each` has three
/// settings.
pub(crate) fn interrupts_without_any_thread_mean_nothing(kind: Kind) {
    let _permit = (kind.provider == ProviderType::Posix).then(permit);
    let proactor = Proactor::new(&kind.config(false, true, None)).unwrap();
    for effective in proactor.effective() {
        let config = &effective.config;
        assert_eq!(config.start_in_any_thread, Some(false));
        assert_eq!(config.start_interrupts_leader, Some(false));
        let note = "a start interrupts the leader: false";
        assert!(effective.to_string().contains(note), "{effective}");
    }
    let _crew = Crew::new(&proactor, 1);
    let (stream, mut peer) = stream_and_peer(&proactor);
    let folder = directory();
    let file = std::fs::File::create(folder.join("file")).unwrap();
    let file = File::new(&proactor, file).unwrap();
    let (done, results) = channel();
    for _ in 0..20 {
        let (read, written) = (done.clone(), done.clone());
        stream.read(vec![0; 8], move |result| read.send(result.0).unwrap()).unwrap();
        file.write(0, "four", move |result| written.send(result.0).unwrap()).unwrap();
        assert_eq!(next(&results), Ok(4));
        peer.write_all(b"abc").unwrap();
        assert_eq!(next(&results), Ok(3));
    }
}

pub(crate) fn empty_poll_returns_at_once(kind: Kind) {
    const POLLS: u64 = 100;
    kind.each(|proactor| {
        let before = sleeps();
        for _ in 0..POLLS {
            assert_eq!(proactor.handle_events(Some(Duration::ZERO)), 0);
        }
        // Some, because another thread may hold a lock.
        let slept = sleeps() - before;
        assert!(slept < POLLS / 2, "{slept} times in {POLLS} polls");
    });
}

/// Returns how often this thread gave up its core by itself.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
