//! Shows the latest value of each topic. The counterpart of the example `telemetry`.
//!
//! ```console
//! $ cargo run -p toroni --example telemetry -- /tmp &
//! $ cargo run -p toroni --example watch
//! $ cargo run -p toroni --example watch -- 'host/cpu/*' host/memory/MemFree
//! ```
//!
//! The arguments are patterns (default: `host/**`). On a terminal, the program redraws a table.
//! Otherwise it prints one line for each topic that has changed. `TORONI_BUS` is the name of the
//! bus (default: `default`), `TORONI_DIR` is the directory of buses.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toroni::{Bus, ReceiveError, Start, Subscriber};

/// The time between two updates of the display.
const INTERVAL: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let mut patterns: Vec<String> = env::args().skip(1).collect();
    if patterns.is_empty() {
        patterns.push("host/**".to_owned());
    }
    let name = env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    // An observer should not slow publishers down, and can start with the history.
    let mut builder = Bus::open(name.as_deref().unwrap_or("default"))?
        .subscriber()
        .gating(false)
        .start(Start::Oldest);
    for pattern in patterns {
        builder = builder.pattern(pattern);
    }
    let mut subscriber = builder.build()?;

    let mut latest = Latest::default();
    while !stop.load(Ordering::Relaxed) {
        latest.collect(&mut subscriber, Instant::now() + INTERVAL)?;
        match latest.show(&mut io::stdout().lock()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break, // `watch | head`
            other => other?,
        }
    }
    Ok(())
}

/// The latest value of each topic, and whether it has changed since it was last shown.
#[derive(Default)]
struct Latest {
    values: BTreeMap<String, (String, bool)>,
    lost_messages: u64,
}

impl Latest {
    fn collect(&mut self, subscriber: &mut Subscriber, until: Instant) -> Result<(), ReceiveError> {
        while let Some(rest) = until.checked_duration_since(Instant::now()) {
            match subscriber.receive_timeout(rest) {
                Ok(Some(message)) => {
                    let value = message.text().into_owned();
                    self.values.insert(message.topic().to_owned(), (value, true));
                }
                Ok(None) => break,
                Err(ReceiveError::Lapped { lost_messages, .. }) => {
                    self.lost_messages = self.lost_messages.saturating_add(lost_messages);
                }
                Err(ReceiveError::Lost(lost)) => {
                    self.lost_messages = self.lost_messages.saturating_add(lost.messages);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn show(&mut self, output: &mut (impl Write + IsTerminal)) -> io::Result<()> {
        let is_table = output.is_terminal();
        if is_table {
            write!(output, "\x1b[H\x1b[J")?; // moves to the top left and clears
        }
        let width = self.values.keys().map(String::len).max().unwrap_or(0);
        for (topic, (value, is_new)) in &mut self.values {
            if is_table || *is_new {
                writeln!(output, "{topic:width$}  {value}")?;
            }
            *is_new = false;
        }
        if self.lost_messages > 0 {
            writeln!(output, "missed {} messages so far", self.lost_messages)?;
        }
        output.flush()
    }
}
