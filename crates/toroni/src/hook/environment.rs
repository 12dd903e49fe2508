//! What the environment asks for, with the feature `crash-points`:
//!
//! - `TORONI_CRASH=<name>[:<n>]` kills this process with SIGKILL when it reaches the step of that name for
//!   the n-th time (1 if not given).
//!
//! - `TORONI_JITTER=<permille>[:<seed>]` delays it at that share of the steps, so that the moments between
//!   them last longer.
//!
//! - `TORONI_SLEEP=unaided` turns off the checks of sleeping subscribers that no wake-up asks for, so that
//!   a lost wake-up is a hang.
//!
//! - `TORONI_QUIET=<n>` makes an exclusive publisher leave out its fence after n messages without a sleeper.

use std::sync::OnceLock;
// Not from `crate::sync`: no model runs this.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::CrashPoint;

static PLAN: OnceLock<Option<(CrashPoint, u64)>> = OnceLock::new();
static UNAIDED: OnceLock<bool> = OnceLock::new();
static REACHED: AtomicU64 = AtomicU64::new(0);

fn plan() -> Option<(CrashPoint, u64)> {
    let wish = std::env::var("TORONI_CRASH").ok()?;
    let (name, count) = wish.split_once(':').unwrap_or((&wish, "1"));
    let point = CrashPoint::ALL.iter().copied().find(|point| point.name() == name);
    let count = count.parse().ok().filter(|count| *count > 0);
    match (point, count) {
        (Some(point), Some(count)) => Some((point, count)),
        _ => {
            // A test that kills nowhere would pass for the wrong reason.
            eprintln!("TORONI_CRASH={wish}: no such crash point");
            std::process::abort();
        }
    }
}

static JITTER: OnceLock<Option<Jitter>> = OnceLock::new();

struct Jitter {
    permille: u64,
    state: AtomicU64,
}

impl Jitter {
    fn plan() -> Option<Self> {
        let wish = std::env::var("TORONI_JITTER").ok()?;
        let (permille, seed) = wish.split_once(':').unwrap_or((&wish, "1"));
        match (permille.parse(), seed.parse()) {
            (Ok(permille), Ok(seed)) => Some(Self { permille, state: AtomicU64::new(seed) }),
            _ => {
                eprintln!("TORONI_JITTER={wish}: not <permille>[:<seed>]");
                std::process::abort();
            }
        }
    }

    /// Delays the thread for some microseconds, or yields.
    fn dawdle(&self) {
        // SplitMix64: each thread takes the next number.
        let step = 0x9E37_79B9_7F4A_7C15_u64;
        let mut number = self.state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^= number >> 31;
        if number % 1000 >= self.permille {
            return;
        }
        match number >> 32 & 7 {
            0 => std::thread::yield_now(),
            _ => (0..number >> 40 & 0x3FF).for_each(|_| std::hint::spin_loop()),
        }
    }
}

/// Returns `usual`, or the longest time there is if no check is to hide a lost wake-up.
pub(super) fn recheck_interval(usual: Duration) -> Duration {
    let unaided = UNAIDED
        .get_or_init(|| std::env::var_os("TORONI_SLEEP").is_some_and(|way| way == "unaided"));
    if *unaided { Duration::MAX } else { usual }
}

/// Returns `usual`, or what the environment asks for.
pub(super) fn quiet_looks(usual: u32) -> u32 {
    static QUIET: OnceLock<Option<u32>> = OnceLock::new();
    QUIET
        .get_or_init(|| {
            std::env::var("TORONI_QUIET").ok().map(|wish| {
                wish.parse().unwrap_or_else(|_| {
                    eprintln!("TORONI_QUIET={wish}: not a number");
                    std::process::abort();
                })
            })
        })
        .unwrap_or(usual)
}

/// Kills the process here, if the environment asks for it.
pub(super) fn point(here: CrashPoint) {
    if let Some(jitter) = JITTER.get_or_init(Jitter::plan) {
        jitter.dawdle();
    }
    if let Some((wanted, count)) = PLAN.get_or_init(plan)
        && *wanted == here
        && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
