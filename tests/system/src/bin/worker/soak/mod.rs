//! The workers of the soak; see `system_tests::soak`.

mod measure;
pub(crate) mod publish;
mod sabotage;
pub(crate) mod subscribe;

use std::io::Write;
use system_tests::soak::report::Event;
use system_tests::soak::verifier::Kind;

/// A pipe takes this much in one piece, so a killed process never leaves half a line in it.
const PIECE: usize = 4096;

/// Lines for the supervisor.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, event: &Event) {
        let line = format!("{event}\n");
        if self.0.len() + line.len() > PIECE {
            self.send();
        }
        self.0.push_str(&line);
    }

    fn send(&mut self) {
        if !self.0.is_empty() {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(self.0.as_bytes()).expect("a supervisor that listens");
            stdout.flush().expect("a supervisor that listens");
            self.0.clear();
        }
    }

    /// Tells what is wrong, and holds still for the post-mortem.
    fn fail(&mut self, kind: Kind, evidence: &str) -> ! {
        let evidence: String = evidence.chars().take(PIECE / 8).collect();
        self.add(&Event::Violation(kind, evidence));
        self.send();
        loop {
            std::thread::park();
        }
    }
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors of this process").count()
}
