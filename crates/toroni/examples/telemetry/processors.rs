//! How the processors spent an interval, from `/proc/stat` (proc_stat(5)).

use std::collections::HashMap;
use std::{fs, io};

/// Clock ticks since boot by state: user, nice, system, idle, iowait, irq, softirq, steal. The
/// columns that follow count guests, and are included in user and nice.
type Ticks = [u64; 8];

/// Remembers the last measurement of each processor.
pub(crate) struct Meter(HashMap<String, Ticks>);

impl Meter {
    /// Starts the first interval.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self(parse(&fs::read_to_string("/proc/stat")?).collect()))
    }

    /// Ends an interval, and calls `publish` with the number of each processor and its shares.
    pub(crate) fn measure<E: From<io::Error>>(
        &mut self,
        mut publish: impl FnMut(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, now) in parse(&fs::read_to_string("/proc/stat")?) {
            // A processor that was just switched on has no interval yet.
            if let Some(before) = self.0.insert(number.clone(), now)
                && let Some(shares) = shares(&before, &now)
            {
                publish(&number, &shares)?;
            }
        }
        Ok(())
    }
}

/// Parses the lines `cpu0 …`, `cpu1 …`, but not the line `cpu …`, which is their sum.
fn parse(stat: &str) -> impl Iterator<Item = (String, Ticks)> {
    stat.lines().filter_map(|line| {
        let mut columns = line.strip_prefix("cpu")?.split(' ');
        let number = columns.next().filter(|number| !number.is_empty())?;
        let mut ticks = Ticks::default();
        for tick in &mut ticks {
            *tick = columns.next()?.parse().ok()?;
        }
        Some((number.to_owned(), ticks))
    })
}

/// Returns the shares as JSON, or `None` if the interval has no ticks.
fn shares(before: &Ticks, now: &Ticks) -> Option<String> {
    let mut spent = Ticks::default();
    for (spent, (before, now)) in spent.iter_mut().zip(before.iter().zip(now)) {
        // The kernel's counters of idle and iowait may decrease (proc_stat(5)).
        *spent = now.saturating_sub(*before);
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = spent;
    let all: u64 = spent.iter().sum();
    let percent = |ticks: u64| ticks as f64 * 100.0 / all as f64;
    (all > 0).then(|| {
        format!(
            r#"{{"busy_percent":{:.1},"user_percent":{:.1},"system_percent":{:.1},"iowait_percent":{:.1},"steal_percent":{:.1}}}"#,
            percent(all - idle - iowait),
            percent(user + nice),
            percent(system + irq + softirq),
            percent(iowait),
            percent(steal),
        )
    })
}
