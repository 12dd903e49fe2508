//! Dies by SIGKILL at a step that the environment names, for tests that kill processes there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that says where to die: `NAME:N`.
pub const CRASH: &str = "TORONI_CRASH";

static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
static PASSED: AtomicU32 = AtomicU32::new(0);

/// Kills this process if [`CRASH`] asks for the N-th time that it comes to the step of this name.
pub fn point(name: &str) {
    let wanted = WANTED.get_or_init(|| {
        let wanted = std::env::var(CRASH).ok()?;
        let (name, times) = wanted.split_once(':')?;
        Some((name.to_owned(), times.parse().ok()?))
    });
    if let Some((wanted, times)) = wanted
        && wanted == name
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *times
    {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
