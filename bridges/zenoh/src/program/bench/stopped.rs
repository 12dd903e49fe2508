//! One export, two importers: what does one of them get while the process of the other is stopped?

use super::contenders::{await_active, await_hello, bus, rate_between, settings};
use super::{Outcome, endpoint, median, table, within};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use toroni_zenoh::config::{Export, Import, ZenohSource};
use toroni_zenoh::{Bridge, Config};

/// Long enough to fill all buffers on the way to the stopped process.
const FILL: f64 = 0.3;
const BYTES: usize = 1 << 10;

/// Compares the rate without the other importer with that while it is stopped, and prints a table.
pub(super) fn compare(folder: &Path, rounds: usize, seconds: f64) -> Outcome<()> {
    println!("\nto one bridge, {BYTES} bytes, while another one is stopped (SIGSTOP):");
    println!("{:<8} {:>14} {:>14} {:>7}", "way", "alone msg/s", "stopped msg/s", "ratio");
    for (way, batches) in [("samples", false), ("batches", true)] {
        let folder = folder.join(format!("stopped-{way}"));
        let [alone, stopped] = measure(&folder, rounds, seconds, batches)?.map(median);
        println!("{way:<8} {alone:>14.0} {stopped:>14.0} {:>7.2}", stopped / alone);
    }
    Ok(())
}

fn measure(folder: &Path, rounds: usize, seconds: f64, batches: bool) -> Outcome<[Vec<f64>; 2]> {
    std::fs::create_dir(folder)?;
    let endpoint = endpoint()?;
    let (from, to, other) = (bus(folder, "from")?, bus(folder, "to")?, bus(folder, "other")?);
    // What does not fit is dropped for the importer that is too slow: with `block`, all wait for it.
    let sender = Bridge::start(&Config {
        exports: vec![Export { gating: true, ..Export::new(["bench/**"]) }],
        zenoh: ZenohSource::Table(table(Some(&endpoint), None)),
        ..settings(folder, "from")
    })?;
    let receiver = Bridge::start(&Config {
        imports: vec![Import { batches, ..Import::new(["bench/**"]) }],
        zenoh: ZenohSource::Table(table(None, Some(&endpoint))),
        ..settings(folder, "to")
    })?;
    [&sender, &receiver].into_iter().try_for_each(await_active)?;
    await_hello(&from, &to)?;
    let payload = vec![0x5a; BYTES];
    let rate = |seconds: f64| -> Outcome<f64> {
        let (first, _) = rate_between(&from, &to, &payload, 2_000)?;
        Ok(rate_between(&from, &to, &payload, within(first, seconds))?.0)
    };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        rates[0].push(rate(seconds)?);
        let peer = Peer::start(folder, &endpoint, batches)?;
        await_hello(&from, &other)?;
        kill_process(Pid::from_child(&peer.0), Signal::STOP)?;
        rate(FILL)?;
        rates[1].push(rate(seconds)?);
    }
    sender.stop();
    receiver.stop();
    Ok(rates)
}

/// A bridge in a process of its own. Dropping it kills it.
struct Peer(Child);

impl Peer {
    fn start(folder: &Path, endpoint: &str, batches: bool) -> Outcome<Self> {
        let file = folder.join("other.toml");
        let settle = Duration::from_millis(100).as_millis();
        std::fs::write(
            &file,
            format!(
                "bus = {{ name = \"other\", directory = {folder:?} }}\nsource = \"bench-other\"\n\
                 settle = \"{settle}ms\"\nzenoh = {{ connect = {{ endpoints = [{endpoint:?}] }}, \
                 scouting = {{ multicast = {{ enabled = false }} }} }}\n\
                 [[import]]\npatterns = [\"bench/**\"]\nbatches = {batches}\n"
            ),
        )?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--config").arg(&file).stdin(Stdio::null());
        Ok(Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
