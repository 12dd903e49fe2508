//! Why [`fence_after_unlock`](super::fence_after_unlock) needs no fence on x86-64: every execution of a publisher
//! that commits, unlocks and looks for sleepers, beside a subscriber that announces its sleep and checks again, on
//! the machine x86-TSO (Sewell, Sarkar, Owens, Zappa Nardelli, Myreen: *x86-TSO: A Rigorous and Usable Programmer's
//! Model for x86 Multiprocessors*, CACM 53(7), 2010, section 3.2).
//!
//! There a thread's stores wait in a queue of its own, from which the memory takes them at any later time, oldest
//! first. A thread reads the newest waiting store of its own, or else the memory. A fence, and an instruction with
//! the prefix `lock`, executes only when the thread's queue is empty, and a locked instruction writes to the memory
//! at once. A compare-exchange is locked also if it fails.

use std::collections::{HashSet, VecDeque};

/// Words of memory, by their index.
const HEADER: usize = 0;
const SLEEPS: usize = 1;
const LOCK: usize = 2;

#[derive(Clone, Copy)]
enum Step {
    Store(usize, u8),
    /// Into the thread's register.
    Load(usize),
    Fence,
    /// With the prefix `lock`: the word, the value that it must have, the new value.
    CompareExchange(usize, u8, u8),
    /// The same without the prefix, if the comparison fails: no such instruction, a mistake to find.
    UnlockedFailure,
}
use Step::{CompareExchange, Fence, Load, Store, UnlockedFailure};

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Thread {
    /// Steps taken.
    taken: usize,
    waiting: VecDeque<(usize, u8)>,
    register: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: [u8; 3],
    threads: [Thread; 2],
}

/// What both registers can hold at the end, over all executions.
fn outcomes(lock: u8, programs: [&[Step]; 2]) -> HashSet<[u8; 2]> {
    let start = State { memory: [0, 0, lock], threads: Default::default() };
    let (mut open, mut seen) = (vec![start], HashSet::new());
    let mut ends = HashSet::new();
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let mut is_end = true;
        for (number, program) in programs.iter().enumerate() {
            let mut next = state.clone();
            if let Some((word, value)) = next.threads[number].waiting.pop_front() {
                next.memory[word] = value;
                open.push(next);
                is_end = false;
            }
            if let Some(step) = program.get(state.threads[number].taken) {
                open.extend(after(&state, number, *step));
                is_end = false;
            }
        }
        if is_end {
            ends.insert(state.threads.map(|thread| thread.register));
        }
    }
    ends
}

/// The state after a step of a thread; `None` if the step has to wait for the thread's queue.
fn after(state: &State, number: usize, step: Step) -> Option<State> {
    let mut next = state.clone();
    let thread = &mut next.threads[number];
    match step {
        Store(word, value) => thread.waiting.push_back((word, value)),
        Load(word) => {
            let own = thread.waiting.iter().rfind(|(at, _)| *at == word);
            thread.register = own.map_or(state.memory[word], |(_, value)| *value);
        }
        Fence | CompareExchange(..) if !thread.waiting.is_empty() => return None,
        CompareExchange(word, expected, new) if state.memory[word] == expected => {
            next.memory[word] = new;
        }
        Fence | CompareExchange(..) | UnlockedFailure => {}
    }
    next.threads[number].taken += 1;
    Some(next)
}

/// The publisher saw no sleeper, and the subscriber no message.
const LOST: [u8; 2] = [0, 0];
const OURS: u8 = 1;
const OURS_WITH_WAITERS: u8 = 3;

const SUBSCRIBER: &[Step] = &[Store(SLEEPS, 1), Fence, Load(HEADER)];

fn publisher(unlock: Step) -> [Step; 3] {
    [Store(HEADER, 1), unlock, Load(SLEEPS)]
}

#[test]
fn an_unlock_by_a_locked_instruction_loses_no_wake_up() {
    for lock in [OURS, OURS_WITH_WAITERS] {
        let ends = outcomes(lock, [&publisher(CompareExchange(LOCK, OURS, 0)), SUBSCRIBER]);
        assert!(!ends.contains(&LOST), "the lock was {lock}: {ends:?}");
        assert_eq!(ends.len(), 3, "one of them is first, or both see each other: {ends:?}");
    }
}

/// The model can tell: without any one of the three, the subscriber sleeps through the message.
#[test]
fn each_part_of_the_argument_is_needed() {
    let unlock = publisher(CompareExchange(LOCK, OURS, 0));
    let plain_unlock = publisher(Store(LOCK, 0));
    assert!(outcomes(OURS, [&plain_unlock, SUBSCRIBER]).contains(&LOST));
    let failing = publisher(UnlockedFailure);
    assert!(outcomes(OURS_WITH_WAITERS, [&failing, SUBSCRIBER]).contains(&LOST));
    let without_fence = [SUBSCRIBER[0], SUBSCRIBER[2]];
    assert!(outcomes(OURS, [&unlock, &without_fence]).contains(&LOST));
}
