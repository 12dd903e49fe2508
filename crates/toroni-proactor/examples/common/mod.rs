//! What both servers share: options, output, threads, and the count of open connections.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toroni_proactor::{Listener, Proactor};

/// How long to pause after a failed accept: the descriptors may have run out.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Prints where the server listens, and which engines it really has.
pub(crate) fn say_where(proactor: &Proactor, listener: &Listener) -> std::io::Result<()> {
    let mut said = format!("listening on {}\n", listener.local_address()?);
    proactor.effective().iter().for_each(|processor| said += &format!("{processor}\n"));
    std::io::stdout().write_all(said.as_bytes())
}

/// Handles events in this many threads, including this one.
pub(crate) fn run(proactor: &Proactor, threads: usize) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| proactor.run());
        }
        proactor.run();
    });
}

/// Permits one open connection. Dropping it frees the permit.
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    /// Returns `None` if `most` connections are open.
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

/// Parses a number of seconds, perhaps with a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = Duration::try_from_secs_f64(parse(text)?).ok().filter(|it| !it.is_zero());
    seconds.ok_or_else(|| format!("invalid number of seconds {text}"))
}

pub(crate) fn parse<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("invalid value {text}"))
}
