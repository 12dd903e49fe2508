//! The memory of requests and of long answers: a bounded amount for members, and one for hosts.
//!
//! Requests and answers that find none left wait in the order in which they came. Those of hosts wait twice: first for a
//! share of their address, then for what all addresses share. So those of one address never fill the second queue, and hosts that
//! send nothing of what they announce, or take no answers, delay those at other addresses only if there are eight of them.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::hook::mutant;

/// The requests of all members take at most this much memory at once, and those of all hosts as much again.
const REQUEST_BYTES: usize = 32 << 20;
/// The long answers to members take at most this much memory at once, and those to hosts twice as much.
const MEMBER_ANSWER_BYTES: usize = 16 << 20;
pub(super) const HOST_ANSWER_BYTES: usize = 32 << 20;
/// The requests of hosts at one address, and the answers to them, each take at most this much of that.
const SHARE_BYTES: usize = HOST_ANSWER_BYTES / 8;

/// Takes permits. It does not fail: no semaphore of this file is closed.
pub(super) async fn acquired(
    permits: &Arc<Semaphore>,
    count: u32,
) -> io::Result<OwnedSemaphorePermit> {
    Arc::clone(permits).acquire_many_owned(count).await.map_err(io::Error::other)
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn budget(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes / 1024))
}

/// What a request holds until it is answered, or an answer while it is made, and until the kernel has it.
#[derive(Debug, Default)]
pub struct Room {
    turn: Option<OwnedSemaphorePermit>,
    memory: Vec<OwnedSemaphorePermit>,
}

impl Room {
    /// Returns room for an answer inside the process, with a turn at the log if there is one.
    pub(crate) fn with_turn(turn: Option<OwnedSemaphorePermit>) -> Self {
        Self { turn, memory: vec![] }
    }

    /// Returns whether there is a turn at the log in it.
    pub(crate) const fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Gives the turn at the log to others.
    pub(crate) fn without_turn(self) -> Self {
        Self { turn: None, ..self }
    }

    /// Gives to others what an answer of this length does not need.
    pub(super) fn keep(&mut self, bytes: usize) {
        let needed = usize::try_from(kib(bytes)).unwrap_or(usize::MAX);
        for taken in &mut self.memory {
            drop(taken.split(taken.num_permits().saturating_sub(needed)));
        }
    }
}

/// The memory of all connections.
#[derive(Debug)]
pub(super) struct Memory {
    members: Budget,
    hosts: Budget,
    /// The shares of the addresses that have connections.
    shares: Mutex<HashMap<IpAddr, Weak<Share>>>,
}

/// What hosts at one address may take.
#[derive(Debug)]
struct Share {
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

/// The memory that a connection takes part of, with a permit for each KiB.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    share: Option<Arc<Share>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let of =
            |bytes| Budget { requests: budget(REQUEST_BYTES), answers: budget(bytes), share: None };
        let (members, hosts) = (of(MEMBER_ANSWER_BYTES), of(HOST_ANSWER_BYTES));
        Self { members, hosts, shares: Mutex::default() }
    }

    /// Returns the memory for a connection of a member.
    pub(super) fn of_member(&self) -> Budget {
        self.members.clone()
    }

    /// Returns the memory for a connection of a host at this address.
    pub(super) fn of_host(&self, address: IpAddr) -> Budget {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shares.get(&address).and_then(Weak::upgrade);
        let share = known.unwrap_or_else(|| {
            shares.retain(|_, share| share.strong_count() > 0);
            let (requests, answers) = (budget(SHARE_BYTES), budget(SHARE_BYTES));
            let share = Arc::new(Share { requests, answers });
            shares.insert(address, Arc::downgrade(&share));
            share
        });
        Budget { share: Some(share), ..self.hosts.clone() }
    }
}

impl Budget {
    /// Takes room for a request of this length.
    pub(super) async fn for_request(&self, bytes: usize) -> io::Result<Room> {
        let mut memory = vec![];
        if let Some(share) = self.share.as_ref().filter(|_| !mutant("requests_without_shares")) {
            memory.push(acquired(&share.requests, kib(bytes)).await?);
        }
        memory.push(acquired(&self.requests, kib(bytes)).await?);
        Ok(Room { turn: None, memory })
    }

    /// Takes room for an answer of at most this length. `turn` waits for what it needs besides memory: after the share, so that an
    /// address has no more turns than its share allows, and before the memory, so that nothing that waits for a turn has any.
    pub(super) async fn for_answer(
        &self,
        bytes: usize,
        turn: impl Future<Output = Option<OwnedSemaphorePermit>>,
    ) -> io::Result<Room> {
        let needed = if mutant("answer_without_memory") { 1 } else { kib(bytes) };
        let share = self.share.as_ref().filter(|_| !mutant("answers_without_shares"));
        let mut memory = vec![];
        if let Some(share) = share {
            memory.push(acquired(&share.answers, needed).await?);
        }
        let turn = turn.await;
        memory.push(acquired(&self.answers, needed).await?);
        Ok(Room { turn, memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_takes_no_more_than_its_share() {
        let memory = Memory::new();
        let no_turn = || std::future::ready(None);
        let address = |last| IpAddr::from([127, 0, 0, last]);
        let (one, again, other) =
            (memory.of_host(address(1)), memory.of_host(address(1)), memory.of_host(address(2)));
        let mut held = one.for_answer(SHARE_BYTES, no_turn()).await.expect("room");
        assert!(again.share.as_ref().expect("a host").answers.try_acquire().is_err());
        other.for_answer(SHARE_BYTES, no_turn()).await.expect("room");
        // What an answer does not need is for others, also of its own address.
        held.keep(SHARE_BYTES / 2);
        again.for_answer(SHARE_BYTES / 2, no_turn()).await.expect("room");
        // Requests have a share of their own.
        let request = one.for_request(SHARE_BYTES).await.expect("room");
        assert!(again.share.as_ref().expect("a host").requests.try_acquire().is_err());
        other.for_request(SHARE_BYTES).await.expect("room");
        drop((held, request, one, again, other));
        drop(memory.of_host(address(3)));
        assert_eq!(memory.shares.lock().expect("no panic").len(), 1);
        assert_eq!(memory.hosts.answers.available_permits(), HOST_ANSWER_BYTES / 1024);
    }
}
