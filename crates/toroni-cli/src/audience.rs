//! `toroni pub --wait-subscribers`: waits for subscribers whose patterns match.

use std::fmt;
use std::time::{Duration, Instant};
use toroni::Bus;
use toroni_shell::failure::Failure;
use toroni_shell::stop::Stop;
use toroni_shell::{human, note};

/// How often the subscribers are counted.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// The shortest time between two reports, and before the first one.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// The subscribers that a command waits for.
pub(crate) struct Wanted<'a> {
    pub(crate) count: u32,
    /// The topic that their patterns must match. `None` if the topics are not known yet: then any pattern matches.
    pub(crate) topic: Option<&'a str>,
    /// Whether a pattern also matches if it matches a topic below this one.
    pub(crate) to_descendants: bool,
}

/// Counts of live subscribers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Audience {
    present: u64,
    matching: u64,
    /// Their list of patterns is truncated, and no pattern in it matches.
    perhaps: u64,
    unreadable: u64,
}

/// Waits until there are as many subscribers as wanted, and reports on standard error how many there are.
///
/// A subscriber with a truncated list of patterns counts, and the command says so. Otherwise the command could wait
/// forever for a subscriber that exists.
pub(crate) fn wait_for(wanted: &Wanted<'_>, bus: &Bus, stop: &Stop) -> Result<(), Failure> {
    let started = Instant::now();
    let mut last_report: Option<(Instant, Audience)> = None;
    loop {
        let seen = wanted.count(bus)?;
        if seen.matching + seen.perhaps >= u64::from(wanted.count) {
            if seen.matching < u64::from(wanted.count) {
                note::remark(&format!(
                    "counted {} whose list of patterns is truncated: it may lack a pattern that matches {wanted}",
                    human::counted(seen.perhaps, "subscriber")
                ));
            }
            return Ok(());
        }
        let is_due = match last_report {
            None => started.elapsed() >= REPORT_EVERY,
            Some((reported_at, reported)) => {
                reported != seen && reported_at.elapsed() >= REPORT_EVERY
            }
        };
        if is_due {
            note::remark(&format!("waiting for {}: {seen}", wanted.described()));
            last_report = Some((Instant::now(), seen));
        }
        if !stop.sleep(CHECK_EVERY) {
            let waited_for = wanted.described();
            return Err(
                stop.interrupted(format!("interrupted while waiting for {waited_for}: {seen}"))
            );
        }
    }
}

impl Wanted<'_> {
    fn count(&self, bus: &Bus) -> Result<Audience, Failure> {
        let Some(subscribers) = bus.stats()?.subscribers else {
            return Err(Failure::Failed(
                "--wait-subscribers: this process may not read the subscribers of the bus"
                    .to_owned(),
            ));
        };
        let mut seen = Audience::default();
        for subscriber in subscribers.iter().filter(|subscriber| subscriber.alive) {
            seen.present += 1;
            seen.unreadable += u64::from(subscriber.patterns.is_none());
            let answer = match self.topic {
                Some(topic) if self.to_descendants => subscriber.matches_descendants(topic),
                Some(topic) => subscriber.matches(topic),
                None => Some(true),
            };
            match answer {
                Some(true) => seen.matching += 1,
                Some(false) => {}
                None => seen.perhaps += 1,
            }
        }
        Ok(seen)
    }

    fn described(&self) -> String {
        let count = human::counted(self.count.into(), "subscriber");
        if self.topic.is_some() { format!("{count} of {self}") } else { count }
    }
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.topic.unwrap_or("any topic"))?;
        if self.to_descendants { formatter.write_str(" or its descendants") } else { Ok(()) }
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { present, matching, perhaps, unreadable } = self;
        write!(formatter, "{present} on the bus, {matching} of them match")?;
        if *perhaps > 0 {
            write!(formatter, ", {perhaps} may")?;
        }
        if *unreadable > 0 {
            write!(formatter, "; the patterns of {unreadable} are unreadable")?;
        }
        Ok(())
    }
}
