//! What both servers do alike: their options, what they say, their threads, and the count of what is open.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toroni_proactor::{Listener, Proactor};

/// How long nothing is accepted after that has failed: the descriptors may have run out.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Says where it listens, and what it really runs on.
pub(crate) fn say_where(proactor: &Proactor, listener: &Listener) -> std::io::Result<()> {
    let mut said = format!("listening on {}\n", listener.local_address()?);
    proactor.effective().iter().for_each(|processor| said += &format!("{processor}\n"));
    std::io::stdout().write_all(said.as_bytes())
}

/// Handles events in so many threads, of which this is one.
pub(crate) fn run(proactor: &Proactor, threads: usize) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| proactor.run());
        }
        proactor.run();
    });
}

/// One of the connections that are open.
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    /// None if there are as many already.
    pub(crate) fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let permit = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < most).then_some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The value of an option in seconds, at least one.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    Ok(Duration::from_secs(parse::<u32>(text)?.max(1).into()))
}

/// The value of an option.
pub(crate) fn parse<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("cannot make sense of {text}"))
}
