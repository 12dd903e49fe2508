//! Handing something to the other core: a number on a cache line, a wake-up, bytes.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use toroni_bench_harness::cache_line::Probe;

use super::pair::{COPIED_BYTES, Pair, PairError, SharedPages, two_cores};
use super::{Floor, RunLength, TWO_LINES};

/// What a pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each process writes a line of its own, as for a request and its answer.
    TwoLines,
    /// Each process sleeps until the other has written and wakes it.
    Futex,
    /// This process copies in, the partner copies out.
    CopyThrough,
}

const KINDS: [Kind; 3] = [Kind::TwoLines, Kind::Futex, Kind::CopyThrough];

/// Index of the word that this process writes, and of the word that its partner writes.
const CALL: usize = 0;
const ANSWER: usize = 1;

/// Bytes of a piece that is copied through. Each piece costs two cache lines.
const PIECE: usize = 64 << 10;
const PIECES: u32 = 64;
const _: () = assert!(PIECES as usize * PIECE == COPIED_BYTES);

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::TwoLines => "two-lines",
            Kind::Futex => "futex",
            Kind::CopyThrough => "copy-through",
        }
    }

    pub(super) fn named(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.name() == name)
    }
}

/// Measures a number that two cores pass back and forth, polling: nanoseconds one way.
pub(super) fn cache_lines(length: RunLength) -> Result<[Floor; 2], PairError> {
    let cores = two_cores()?;
    let probe =
        Probe { cores, samples: length.repetitions, rounds: length.rounds, longest: Duration::MAX };
    let one = probe.one_way_ns().map_err(io::Error::from)?;
    let two = back_and_forth(Kind::TwoLines, Some(cores), length.repetitions, length.rounds)?;
    Ok([
        Floor::of("one cache line, across cores, one way", "ns", one),
        Floor::of(TWO_LINES, "ns", two),
    ])
}

/// Measures a number that two processes pass back and forth, sleeping in the kernel: nanoseconds one way.
pub(super) fn futexes(length: RunLength) -> Result<Vec<Floor>, PairError> {
    let (first, second) = two_cores()?;
    [
        (Some((first, second)), "across cores"),
        (Some((first, first)), "on one core"),
        (None, "not pinned"),
    ]
    .into_iter()
    .map(|(cores, name)| {
        let rounds = (length.rounds / 20).max(1);
        let samples = back_and_forth(Kind::Futex, cores, length.repetitions, rounds)?;
        Ok(Floor::of(format!("futex, {name}, one way"), "ns", samples))
    })
    .collect()
}

/// Measures pieces of 64 KiB that one process copies into 4 MiB and the other copies out: gigabytes per second.
pub(super) fn copy_through(length: RunLength) -> Result<Floor, PairError> {
    let pair = Pair::start(Kind::CopyThrough, Some(two_cores()?))?;
    let payload = vec![0x5a_u8; PIECE];
    let rounds = u32::try_from(length.bytes / PIECE).expect("fewer than 2^32 pieces").max(1);
    let (calls, answers) = (pair.pages.word(CALL), pair.pages.word(ANSWER));
    let mut sent = 0_u32;
    let mut samples = Vec::new();
    for _ in 0..length.repetitions {
        let start = Instant::now();
        for _ in 0..rounds {
            // The sender may be half of the area ahead: the copies overlap, and no process waits for each piece.
            poll_until(answers, |taken| sent.wrapping_sub(taken) < PIECES / 2);
            // SAFETY: the piece lies in the area, and belongs to this process until `calls` says
            // otherwise: the partner has taken what lay there before.
            unsafe { piece(&pair.pages, sent).copy_from_nonoverlapping(payload.as_ptr(), PIECE) };
            sent = sent.wrapping_add(1);
            calls.store(sent, Ordering::Release);
        }
        poll_until(answers, |taken| taken == sent);
        samples.push(f64::from(rounds) * PIECE as f64 / start.elapsed().as_nanos() as f64);
    }
    Ok(Floor::of("copy of 64 KiB into 4 MiB and, on the other core, out again", "GB/s", samples))
}

/// Does the part of the partner. It does not return: the first process ends it.
pub(super) fn partner(kind: Kind, pages: &SharedPages) -> Result<(), PairError> {
    let (call, answer) = (pages.word(CALL), pages.word(ANSWER));
    match kind {
        Kind::TwoLines => {
            for number in 1.. {
                poll_until(call, |seen| seen == number);
                answer.store(number, Ordering::Release);
            }
        }
        Kind::Futex => {
            for number in 1.. {
                sleep_until(call, number)?;
                wake(answer, number)?;
            }
        }
        Kind::CopyThrough => {
            let mut buffer = vec![0_u8; PIECE];
            for taken in 0_u32.. {
                poll_until(call, |sent| sent != taken);
                // SAFETY: the piece lies in the area, and belongs to this process until `answer` says
                // otherwise: `call` has counted it.
                unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(piece(pages, taken), PIECE) };
                std::hint::black_box(&mut buffer);
                answer.store(taken.wrapping_add(1), Ordering::Release);
            }
        }
    }
    Ok(())
}

/// Returns nanoseconds one way for each repetition. A hundredth of the rounds come before, as a warm-up.
fn back_and_forth(
    kind: Kind,
    cores: Option<(usize, usize)>,
    repetitions: usize,
    rounds: u32,
) -> Result<Vec<f64>, PairError> {
    let pair = Pair::start(kind, cores)?;
    let (call, answer) = (pair.pages.word(CALL), pair.pages.word(ANSWER));
    let mut number = 0;
    let mut round = || {
        match kind {
            Kind::Futex => {
                number += 1;
                wake(call, number)?;
                sleep_until(answer, number)?;
            }
            Kind::TwoLines | Kind::CopyThrough => {
                number += 1;
                call.store(number, Ordering::Release);
                poll_until(answer, |seen| seen == number);
            }
        }
        Ok::<(), PairError>(())
    };
    for _ in 0..rounds / 100 {
        round()?;
    }
    let mut samples = Vec::new();
    for _ in 0..repetitions {
        let start = Instant::now();
        for _ in 0..rounds {
            round()?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0);
    }
    Ok(samples)
}

/// Polls as the transports do: briefly without a pause, then with yields, because the partner may need the core.
fn poll_until(word: &AtomicU32, done: impl Fn(u32) -> bool) {
    let mut tries = 0_u32;
    while !done(word.load(Ordering::Acquire)) {
        tries += 1;
        if tries < 10_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

fn wake(word: &AtomicU32, number: u32) -> Result<(), PairError> {
    word.store(number, Ordering::Release);
    futex::wake(word, futex::Flags::empty(), 1).map_err(io::Error::from)?;
    Ok(())
}

fn sleep_until(word: &AtomicU32, number: u32) -> Result<(), PairError> {
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == number {
            return Ok(());
        }
        match futex::wait(word, futex::Flags::empty(), seen, None) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(other) => return Err(io::Error::from(other).into()),
        }
    }
}

fn piece(pages: &SharedPages, number: u32) -> *mut u8 {
    // SAFETY: the offset is below PIECES * PIECE = COPIED_BYTES, the length of the area.
    unsafe { pages.copied().add((number % PIECES) as usize * PIECE) }
}
