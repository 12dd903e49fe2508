//! The thread that syncs: one `fdatasync` for everything that was appended meanwhile.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::crash_point::{CrashPoint, point};
use super::error::LogError;
use super::{Shared, Sync, sync_or_die};

type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

#[derive(Default)]
struct Queue {
    waiting: Vec<Done>,
    ends: bool,
}

pub(super) struct Syncer {
    sync: Sync,
    queue: Arc<(Mutex<Queue>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, LogError> {
        let queue = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let sync = shared.options.sync;
        let directory = shared.directory.clone();
        let ends = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("toroni-log".to_owned())
            .spawn(move || run(&shared, &ends))
            .map_err(LogError::io("start a thread for", &directory))?;
        Ok(Self { sync, queue, thread: Some(thread) })
    }

    /// Calls `done` when what was appended before may be answered.
    pub(super) fn ask(&self, done: impl FnOnce(io::Result<()>) + Send + 'static) {
        if matches!(self.sync, Sync::Interval(_)) {
            return done(Ok(()));
        }
        let (queue, wakes) = &*self.queue;
        queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(Box::new(done));
        wakes.notify_one();
    }
}

fn run(shared: &Shared, queue: &(Mutex<Queue>, Condvar)) {
    let (queue, wakes) = queue;
    loop {
        let waiting = {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            while queue.waiting.is_empty() && !queue.ends {
                if let Sync::Interval(interval) = shared.options.sync {
                    queue = wakes
                        .wait_timeout(queue, interval)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                    break;
                }
                queue = wakes.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.ends && queue.waiting.is_empty() {
                return;
            }
            std::mem::take(&mut queue.waiting)
        };
        let (segment, (tail, last), synced, cuts) = {
            let inner = shared.lock();
            let end = (inner.tail, inner.ends().1);
            (Arc::clone(inner.segment()), end, inner.synced, inner.cuts)
        };
        if synced < tail {
            sync_or_die(&segment.file, &segment.path);
            let mut inner = shared.lock();
            // After a cut, other bytes may be there. A later segment begins synced.
            if inner.segment().number == segment.number && inner.cuts == cuts && inner.synced < tail
            {
                (inner.synced, inner.last_synced) = (tail, last);
            }
        }
        point(CrashPoint::BeforeAnswer);
        waiting.into_iter().for_each(|done| done(Ok(())));
        // The next segment is allocated while no caller waits. If there is no room, `has_room` says so.
        let mut inner = shared.lock();
        if inner.tail > inner.segment().capacity / 2 {
            let _ = inner.make_spare(&shared.directory, shared.options.segment_bytes);
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        let (queue, wakes) = &*self.queue;
        queue.lock().unwrap_or_else(PoisonError::into_inner).ends = true;
        wakes.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Syncer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Syncer").field("sync", &self.sync).finish_non_exhaustive()
    }
}
