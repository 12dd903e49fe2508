//! A host that holds connections to all members, and takes nothing.

use super::load::target;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use toroni_sequencer::rpc::{Fetch, Link, Request, Role};
use toroni_testkit::network::Host;

/// To each member: connections that say nothing.
const SILENT: usize = 200;
/// To each member: callers that ask for all events and read nothing.
const ASKING: u32 = 30;
/// Questions of one such caller.
const QUESTIONS: usize = 8;
/// How long such a caller takes part in the connection.
const AWAKE: Duration = Duration::from_millis(200);
/// How long it then reads nothing.
const ASLEEP: Duration = Duration::from_millis(2_500);

/// Connections that are held until this is dropped.
pub(super) struct Hostile {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    pub(super) fn start(host: &Host, members: &[SocketAddr]) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let ends = Arc::new(AtomicBool::new(false));
        let work: [fn(&[SocketAddr], &AtomicBool); 2] = [say_nothing, take_nothing];
        let threads = work.map(|work| {
            let (host, members, ends) = (host.clone(), members.to_vec(), Arc::clone(&ends));
            std::thread::spawn(move || host.enter(|| work(&members, &ends)))
        });
        Self { ends, threads: threads.into() }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Connects again and again. The oldest connections were closed by then.
fn say_nothing(members: &[SocketAddr], ends: &AtomicBool) {
    let mut held = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        for member in members {
            let limit = Duration::from_millis(100);
            held.extend(TcpStream::connect_timeout(member, limit).ok());
        }
        if held.len() > SILENT * members.len() {
            held.drain(..members.len());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asks for much, and then does not run.
fn take_nothing(members: &[SocketAddr], ends: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        while !ends.load(Ordering::Relaxed) {
            let mut questions = JoinSet::new();
            for (member, source) in members.iter().flat_map(|it| (1..=ASKING).map(move |n| (it, n)))
            {
                let link = Link::new(target(*member, Role::Follower { source: Some(source) }));
                for _ in 0..QUESTIONS {
                    let link = link.clone();
                    questions.spawn(async move {
                        let (max_bytes, wait) = (512 << 10, Duration::ZERO);
                        let fetch = Fetch { from: 0, max_bytes, wait, series: None };
                        let _ = link.call(&Request::Fetch(fetch)).await;
                    });
                }
            }
            sleep(AWAKE).await;
            // Not a mistake: nothing of this runtime runs meanwhile.
            std::thread::sleep(ASLEEP);
        }
    });
}
