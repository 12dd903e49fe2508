//! The configurations, and that they are what they say.

use std::time::{Duration, Instant};
use toroni_proactor::{
    Config, InterruptType, Proactor, ProcessorConfig, ProcessorType, ProviderType, WaitType,
};

/// A configuration, but for its flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) provider: ProviderType,
    pub(crate) wait: WaitType,
    pub(crate) interrupt: InterruptType,
    pub(crate) processor: ProcessorType,
    /// Of its module.
    pub(crate) name: &'static str,
}

impl Kind {
    /// With the flags "starts in any thread" and "a start interrupts the leader".
    pub(crate) fn config(self, any_thread: bool, interrupts: bool) -> ProcessorConfig {
        ProcessorConfig {
            processor_type: self.processor,
            provider: self.provider,
            wait: self.wait,
            interrupt: self.interrupt,
            start_in_any_thread: Some(any_thread),
            start_interrupts_leader: Some(interrupts),
            ..ProcessorConfig::default()
        }
    }

    /// Runs a test with each setting of the flags.
    pub(crate) fn each(self, test: impl Fn(&Proactor)) {
        self.each_limited(None, test);
    }

    /// And with a limit of operations in progress.
    pub(crate) fn each_limited(self, limit: Option<usize>, test: impl Fn(&Proactor)) {
        for (any_thread, interrupts) in [(false, false), (true, false), (true, true)] {
            let config =
                ProcessorConfig { max_operations: limit, ..self.config(any_thread, interrupts) };
            eprintln!("any thread {any_thread}, interrupts {interrupts}");
            test(&Proactor::new(&Config::one(config)).unwrap());
        }
    }
}

pub(crate) fn is_what_was_asked_for(kind: Kind) {
    kind.each(|proactor| {
        let [effective] = proactor.effective() else { panic!("one processor") };
        assert_eq!(effective.config.provider, kind.provider);
        assert_eq!(effective.config.wait, kind.wait);
        assert_eq!(effective.config.interrupt, kind.interrupt);
        assert_eq!(effective.config.processor_type, kind.processor);
    });
}

pub(crate) fn empty_poll_returns_at_once(kind: Kind) {
    kind.each(|proactor| {
        let started = Instant::now();
        for _ in 0..100 {
            assert_eq!(proactor.handle_events(Some(Duration::ZERO)), 0);
        }
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}
