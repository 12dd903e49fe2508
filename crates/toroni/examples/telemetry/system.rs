//! Memory and network, from `/proc/meminfo` (proc_meminfo(5)) and `/proc/net/dev` (proc_pid_net(5)).

use std::collections::HashMap;
use std::time::Instant;
use std::{fs, io};

/// Calls `publish` with each field of `/proc/meminfo` and its value.
pub(crate) fn memory<E: From<io::Error>>(
    mut publish: impl FnMut(&str, &str) -> Result<(), E>,
) -> Result<(), E> {
    for line in fs::read_to_string("/proc/meminfo")?.lines() {
        // `MemTotal:       16322232 kB`, or without a unit if pages are counted.
        let Some((field, value)) = line.split_once(':') else { continue };
        let mut words = value.split_whitespace();
        let number = words.next().and_then(|number| number.parse::<u64>().ok());
        match (number, words.next()) {
            (Some(number), Some("kB")) => {
                publish(field, &format!(r#"{{"bytes":{}}}"#, number * 1024))?
            }
            (Some(number), None) => publish(field, &format!(r#"{{"pages":{number}}}"#))?,
            _ => {}
        }
    }
    Ok(())
}

/// Bytes and packets since boot, received and sent.
#[derive(Clone, Copy)]
struct Traffic {
    received: [u64; 2],
    sent: [u64; 2],
}

/// Remembers the last measurement of each interface.
pub(crate) struct NetworkMeter {
    since: Instant,
    interfaces: HashMap<String, Traffic>,
}

impl NetworkMeter {
    /// Starts the first interval.
    pub(crate) fn start() -> io::Result<Self> {
        let interfaces = parse(&fs::read_to_string("/proc/net/dev")?).collect();
        Ok(Self { since: Instant::now(), interfaces })
    }

    /// Ends an interval, and calls `publish` with each interface, `rx` or `tx`, and the rate.
    pub(crate) fn measure<E: From<io::Error>>(
        &mut self,
        mut publish: impl FnMut(&str, &str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = fs::read_to_string("/proc/net/dev")?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        for (interface, now) in parse(&table) {
            // A new interface has no interval yet.
            if let Some(before) = self.interfaces.insert(interface.clone(), now) {
                publish(&interface, "rx", &rate(before.received, now.received, seconds))?;
                publish(&interface, "tx", &rate(before.sent, now.sent, seconds))?;
            }
        }
        Ok(())
    }
}

/// Parses the table: two lines of headings, then lines of the form
/// `eth0: bytes packets errs drop fifo frame compressed multicast`, followed by the same eight
/// columns for what was sent.
fn parse(table: &str) -> impl Iterator<Item = (String, Traffic)> {
    table.lines().skip(2).filter_map(|line| {
        let (interface, counts) = line.rsplit_once(':')?;
        let mut counts = counts.split_whitespace().map(|count| count.parse().ok());
        let mut pair = |skipped: usize| Some([counts.nth(skipped)??, counts.next()??]);
        Some((interface.trim().to_owned(), Traffic { received: pair(0)?, sent: pair(6)? }))
    })
}

fn rate(before: [u64; 2], now: [u64; 2], seconds: f64) -> String {
    let [bytes, packets] =
        [0, 1].map(|which| now[which].saturating_sub(before[which]) as f64 / seconds);
    format!(r#"{{"bytes_per_s":{bytes:.1},"packets_per_s":{packets:.1}}}"#)
}
