//! Shows the latest value of each topic: the other end of the example `telemetry`.
//!
//! ```console
//! $ cargo run -p toroni --example telemetry -- /tmp &
//! $ cargo run -p toroni --example watch
//! $ cargo run -p toroni --example watch -- 'host/cpu/*' host/memory/MemFree
//! ```
//!
//! Arguments are patterns (`host/**`). On a terminal it redraws a table; elsewhere it prints what has
//! changed, a line per topic. `TORONI_BUS` names the bus (`default`), `TORONI_DIR` the directory of
//! buses.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toroni::{Bus, ReceiveError, Start, Subscriber};

/// Time between two pictures.
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
    // Whoever only watches slows nobody, and begins with what is there.
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

/// The latest value of each topic, and whether it is new since it was shown.
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
                    self.lost_messages += lost_messages;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn show(&mut self, output: &mut (impl Write + IsTerminal)) -> io::Result<()> {
        let whole = output.is_terminal();
        if whole {
            write!(output, "\x1b[H\x1b[J")?; // home, and clear
        }
        let width = self.values.keys().map(String::len).max().unwrap_or(0);
        for (topic, (value, is_new)) in &mut self.values {
            if whole || *is_new {
                writeln!(output, "{topic:width$}  {value}")?;
            }
            *is_new = false;
        }
        if self.lost_messages > 0 {
            writeln!(output, "missed {} messages of the bus so far", self.lost_messages)?;
        }
        output.flush()
    }
}
