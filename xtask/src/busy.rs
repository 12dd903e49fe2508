//! `cargo xtask busy`: runs tests on a machine that other work keeps busy, as a developer's or a CI's often is. A test that
//! fails once here depends on time.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;

use crate::command::{Failure, cargo, run as run_command, run_tests};

#[derive(Args)]
pub(crate) struct Options {
    /// How often to run the tests
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
    /// How many threads compute beside the tests [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// What `cargo test` is given [default: --workspace --locked --no-fail-fast]
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let usual = ["--workspace", "--locked", "--no-fail-fast"];
    let arguments: Vec<&str> = match &options.arguments[..] {
        [] => usual.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    // Compiles first, while the cores are idle. What comes after `--` goes to the tests.
    let of_cargo = arguments.iter().take_while(|argument| **argument != "--");
    run_command(cargo(["test", "--no-run"]).args(of_cargo))?;
    let threads = options.threads.or_else(|| thread::available_parallelism().ok().map(Into::into));
    let mut failures = Vec::new();
    for time in 1..=options.times {
        println!("\n== run {time} of {}", options.times);
        if let Err(failure) =
            beside(threads.unwrap_or(1), || run_tests(cargo(["test"]).args(&arguments)))
        {
            println!("FAILED: run {time}");
            failures.push(format!("run {time}: {failure}"));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure(format!(
        "{} of {} runs failed\n{}",
        failures.len(),
        options.times,
        failures.join("\n")
    )))
}

/// Does something while this many threads compute.
fn beside<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut number = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    number = black_box(number.wrapping_add(1));
                }
            });
        }
        // Also if the work panics.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&over);
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_end_with_the_work() {
        assert_eq!(beside(2, || 5), 5);
    }
}
