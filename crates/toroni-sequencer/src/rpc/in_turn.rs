//! Members that a thread without a runtime asks, one until it fails, and then the next.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::link::{Link, LinkError, Target};
use super::message::{Answer, Request};

/// How often a silent member is asked whether it answers again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// It has to answer within this time.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Members of a group, one of whom is asked.
///
/// A member that did not answer is passed over until it answers again, so that a stopped member delays its callers once
/// and not in each round. Tasks find out beside the calls. If all members are silent, each has its turn.
#[derive(Debug)]
pub(crate) struct InTurn {
    members: Vec<Asked>,
    /// The last ones, this many, are archives: they are asked only for what members no longer have.
    archives: usize,
    at: usize,
    runtime: Runtime,
}

#[derive(Debug)]
struct Asked {
    target: Target,
    link: Link,
    is_silent: Arc<AtomicBool>,
}

impl InTurn {
    /// Makes links to these members, at least one, and to these archives.
    pub(crate) fn new(members: Vec<Target>, archives: Vec<Target>) -> io::Result<Self> {
        let count = archives.len();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let members = {
            let _inside = runtime.enter();
            let asked = |target: Target| Asked {
                link: Link::new(target.clone()),
                target,
                is_silent: Arc::default(),
            };
            members.into_iter().chain(archives).map(asked).collect()
        };
        Ok(Self { members, archives: count, at: 0, runtime })
    }

    /// Asks the member whose turn it is, and waits no longer than this.
    pub(crate) fn call(&self, request: &Request, limit: Duration) -> Result<Answer, LinkError> {
        self.call_at(self.at, request, limit)
    }

    /// Asks all members, whosever turn it is, and returns the answers. Those that are silent are asked only if no other one answers.
    pub(crate) fn ask_members(&self, request: &Request, limit: Duration) -> Vec<Answer> {
        let members = 0..self.members.len() - self.archives;
        let (silent, others): (Vec<_>, Vec<_>) = members.partition(|at| self.is_silent(*at));
        let ask = |of: Vec<usize>| -> Vec<Answer> {
            of.into_iter().filter_map(|at| self.call_at(at, request, limit).ok()).collect()
        };
        let answers = ask(others);
        if answers.is_empty() { ask(silent) } else { answers }
    }

    fn call_at(&self, at: usize, request: &Request, limit: Duration) -> Result<Answer, LinkError> {
        let Asked { target, link, is_silent } = &self.members[at];
        let answer = self.runtime.block_on(async {
            timeout(limit, link.call(request)).await.unwrap_or(Err(LinkError::Late))
        });
        if answer.is_ok() {
            is_silent.store(false, Ordering::Relaxed);
        } else if !is_silent.swap(true, Ordering::Relaxed) {
            self.runtime.spawn(until_it_answers(target.clone(), Arc::clone(is_silent)));
        }
        answer
    }

    /// Turns to the next member that is not silent, if there is one, and else to the next.
    pub(crate) fn turn(&mut self) {
        self.turn_among(self.members.len() - self.archives);
    }

    /// The same among members and archives.
    pub(crate) fn turn_to_any(&mut self) {
        self.turn_among(self.members.len());
    }

    /// Returns whether a member is asked, and not an archive.
    pub(crate) fn is_at_member(&self) -> bool {
        self.at < self.members.len() - self.archives
    }

    /// Returns whether there are archives.
    pub(crate) const fn has_archives(&self) -> bool {
        self.archives > 0
    }

    fn turn_among(&mut self, count: usize) {
        let next = |step: usize| (self.at + step) % count;
        self.at = (1..=count).map(next).find(|at| !self.is_silent(*at)).unwrap_or_else(|| next(1));
    }

    fn is_silent(&self, at: usize) -> bool {
        self.members[at].is_silent.load(Ordering::Relaxed)
    }

    /// Turns to the member that leads, as the one whose turn it is says, or to the next one.
    pub(crate) fn turn_to(&mut self, leader: Option<&str>) {
        let members = self.members.len() - self.archives;
        let named = self.members[..members]
            .iter()
            .position(|member| Some(member.target.address.as_str()) == leader);
        // Until another one is elected, the others name the one that was lost.
        match named.filter(|named| *named != self.at && !self.is_silent(*named)) {
            Some(named) => self.at = named,
            None => self.turn(),
        }
    }

    /// Returns whose turn it is.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns how many members and archives there are.
    pub(crate) const fn count(&self) -> usize {
        self.members.len()
    }
}

/// Asks a silent member until it answers, or a call has found out that it does. Over a connection of its own: a second question
/// on that of the calls would end it, and with it a long answer that is still on its way.
async fn until_it_answers(target: Target, is_silent: Arc<AtomicBool>) {
    let link = Link::new(target);
    loop {
        sleep(ASK_AGAIN).await;
        if !is_silent.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(Ok(_)) = timeout(ANSWER_TIME, link.call(&Request::Status)).await {
            is_silent.store(false, Ordering::Relaxed);
        }
    }
}
