//! The end of a run: everybody leaves in order, and what can only be checked then is.

use super::{BUS, Outcome, PUBLISHER, SUBSCRIBER, Soak, Told, descriptors_of};
use crate::counters::Phase;
use crate::soak::mix::Lane;
use crate::soak::source::Source;
use crate::soak::verifier::STRETCH;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toroni::admin;
use toroni_testkit::{directory::entries, wait::LIMIT};

impl Soak<'_> {
    /// Ends everybody in order, and checks what can only be checked then.
    pub(super) fn finish(&mut self) {
        self.resume_stopped(true);
        self.counters.set_phase(Phase::Stop);
        self.wait_without(PUBLISHER);
        // Last words, by which calls that block end: enough to fill the last stretch.
        let mut source = Source::new(0);
        let farewells = 2 * STRETCH;
        self.end = self.stats().sequence + farewells;
        self.counters.set_end(self.end);
        // A handle of its own, which leaves before the slots are counted.
        let bus = self.root.config().open_existing(BUS).expect("the bus");
        let publisher = bus.publisher(&Lane::Bye.topic(0, 0, 0)).expect("a publisher");
        let deadline = Instant::now() + LIMIT;
        let mut bytes = Vec::new();
        while self.has(SUBSCRIBER) && !self.is_broken() {
            source.compose(Lane::Bye, 0, 0, 0, &mut bytes);
            publisher.publish(&bytes).expect("published");
            source.advance(Lane::Bye, 1);
            if source.counter() >= farewells {
                std::thread::sleep(Duration::from_millis(5));
                self.reap();
            }
            if Instant::now() > deadline {
                return self.fail("subscribers do not end".to_owned());
            }
        }
        let end = self.end;
        if self.is_broken() {
            return;
        }
        self.report(|told| told.order.finish(end));
        drop((publisher, bus));
        self.check_leaks();
    }

    fn check_leaks(&mut self) {
        let stats = self.stats();
        self.figures.published = stats.sequence;
        self.figures.bytes = stats.tail;
        self.figures.topics = stats.topics.into();
        let directory = self.root.buses();
        let cleaned = admin::clean(Some(&directory), None, false).expect("a clean bus");
        self.figures.freed_by_clean = cleaned.actions.len() as u64;
        let stats = self.stats();
        let slots = [
            stats.publishers.map_or(0, |all| all.len()),
            stats.subscribers.map_or(0, |all| all.len()),
        ];
        let leaked =
            slots[0] + slots[1] + stats.sockets.len() + usize::from(stats.lock_owner.is_some());
        self.figures.leaked_slots = leaked as u64;
        if leaked > 0 {
            self.fail(format!(
                "left when all had gone: slots {slots:?}, sockets {:?}, lock {:?}",
                stats.sockets, stats.lock_owner
            ));
        }
        drop(self.bus.take());
        let _ = admin::clean(Some(&directory), None, false).expect("a clean directory");
        let left = entries(&directory);
        self.figures.leaked_files = left.len() as u64;
        if !left.is_empty() {
            self.fail(format!("left in the directory of buses: {left:?}"));
        }
        let descriptors = descriptors_of("self");
        self.figures.leaked_descriptors = descriptors.saturating_sub(self.descriptors) as u64;
        if descriptors > self.descriptors {
            let what = descriptors_in("self");
            self.fail(format!("{what:?} are open, and {} were before", self.descriptors));
        }
    }

    /// Takes stock. If something is wrong, everybody is stopped where he is, and all files are kept.
    pub(super) fn close(mut self) -> Outcome {
        if self.figures.published == 0
            && let Some(bus) = &self.bus
            && let Ok(stats) = bus.stats()
        {
            (self.figures.published, self.figures.bytes) = (stats.sequence, stats.tail);
        }
        self.judge_stalls(true);
        let told = std::mem::take(&mut *self.told());
        self.figures.violations = told.violations;
        self.figures.order = told.order.counts();
        let mut kept = None;
        if !self.figures.violations.is_empty() {
            for worker in &mut self.workers {
                if worker.running.ended().is_none() {
                    worker.running.signal(Signal::STOP);
                }
            }
            let name = format!("seed-{}-{}", self.plan.seed, std::process::id());
            let path = self.plan.keep.join(name);
            match copy(self.root.path(), &path) {
                Ok(()) => kept = Some(path),
                Err(error) => eprintln!("cannot keep the bus in {}: {error}", path.display()),
            }
        }
        Outcome { figures: self.figures, kept }
    }

    fn wait_without(&mut self, role: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.has(role) && !self.is_broken() {
            std::thread::sleep(Duration::from_millis(1));
            self.reap();
            if Instant::now() > deadline {
                return self.fail("publishers do not end".to_owned());
            }
        }
    }

    pub(super) fn wait_for(&mut self, what: &str, so: impl Fn(&Told) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !so(&self.told()) && !self.is_broken() {
            std::thread::sleep(Duration::from_millis(1));
            if Instant::now() > deadline {
                return self.fail(format!("never: {what}"));
            }
        }
    }
}

/// Copies the files of a folder; sockets stay.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// What the descriptors of a process are.
fn descriptors_in(process: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}
