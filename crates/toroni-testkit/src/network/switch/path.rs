//! The frames of one port in one direction: applies the faults to them, and keeps those that take time.

use super::faults::{Draws, Faults, Loss, Purpose};
use super::{Counts, Direction, frame};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A frame, which several ports may have to send.
pub(super) type Frame = Arc<[u8]>;

/// How many frames may be on their way in one direction of one port. More are dropped, and count as overflowed.
pub(super) const MOST_WAITING: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Path {
    draws: Draws,
    faults: Faults,
    pub(super) counts: Counts,
    /// Whether the link of Gilbert and Elliott is bad.
    is_bad: bool,
    /// How many of the next frames are lost.
    burst: u64,
    /// Frames that later ones overtake.
    held: Vec<Held>,
    /// Frames and when they arrive, in this order.
    waiting: VecDeque<(Instant, Frame)>,
    /// When the last of them arrives: the link is free then.
    last: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    frame: Frame,
    overtaken_by: u32,
    until: Instant,
}

impl Path {
    pub(super) fn new(seed: u64, port: usize, direction: Direction) -> Self {
        Self {
            draws: Draws::new(seed, port, direction),
            faults: Faults::default(),
            counts: Counts::default(),
            is_bad: false,
            burst: 0,
            held: Vec::new(),
            waiting: VecDeque::new(),
            last: None,
        }
    }

    /// Sets the faults for the next frames. Those on their way keep what was decided.
    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.is_bad = false;
        self.burst = 0;
    }

    pub(super) fn lose_next(&mut self, frames: u64) {
        self.burst = frames;
    }

    /// Takes a frame. If the faults do not reach it, gives it back: it passes at once.
    pub(super) fn admit(&mut self, now: Instant, frame: Frame) -> Option<Frame> {
        if !self.faults.reaches(&frame) {
            return Some(frame);
        }
        let number = self.counts.frames;
        self.counts.frames += 1;
        if self.is_lost(number) {
            self.counts.lost += 1;
            self.overtake(now);
            return None;
        }
        let frame = self.corrupt(number, frame);
        if self.draws.happens(number, Purpose::Duplication, self.faults.duplication) {
            self.counts.duplicated += 1;
            self.enqueue(now, number, Arc::clone(&frame));
        }
        let reordering = self.faults.reordering;
        let is_held = reordering.distance > 0
            && self.draws.happens(number, Purpose::Reordering, reordering.probability);
        if is_held {
            self.counts.reordered += 1;
            self.overtake(now);
            let until = now + reordering.limit;
            let overtaken_by = reordering.distance;
            self.held.push(Held { number, frame, overtaken_by, until });
        } else {
            self.enqueue(now, number, frame);
            self.overtake(now);
        }
        None
    }

    /// Returns the next frame that has arrived.
    pub(super) fn next(&mut self, now: Instant) -> Option<Frame> {
        if !self.held.is_empty() {
            self.release(now, |held| held.until <= now);
        }
        let is_due = self.waiting.front().is_some_and(|(due, _)| *due <= now);
        if is_due { self.waiting.pop_front().map(|(_, frame)| frame) } else { None }
    }

    /// Returns when there is something to do again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waiting = self.waiting.front().map(|(due, _)| *due);
        self.held.iter().map(|held| held.until).chain(waiting).min()
    }

    fn is_lost(&mut self, number: u64) -> bool {
        let draws = self.draws;
        let by_model = match self.faults.loss {
            Loss::None => false,
            Loss::Bernoulli(probability) => draws.happens(number, Purpose::Loss, probability),
            Loss::GilbertElliott { to_bad, to_good, in_good, in_bad } => {
                let leaves = if self.is_bad { to_good } else { to_bad };
                self.is_bad ^= draws.happens(number, Purpose::State, leaves);
                draws.happens(number, Purpose::Loss, if self.is_bad { in_bad } else { in_good })
            }
            Loss::Bursts { probability, frames } => {
                if self.burst == 0 && draws.happens(number, Purpose::Burst, probability) {
                    self.burst = frames;
                }
                false
            }
        };
        let in_burst = self.burst > 0;
        self.burst = self.burst.saturating_sub(1);
        by_model || in_burst
    }

    fn corrupt(&mut self, number: u64, frame: Frame) -> Frame {
        let corruption = self.faults.corruption;
        if !self.draws.happens(number, Purpose::Corruption, corruption.probability) {
            return frame;
        }
        let mut checksum = None;
        let bytes = if corruption.passes_checksums {
            match frame::udp(&frame) {
                Some(udp) if udp.is_v4 => {
                    checksum = Some(udp.header + 6);
                    udp.header + 8..udp.end
                }
                _ => return frame,
            }
        } else {
            frame::ETHERNET..frame.len()
        };
        if bytes.is_empty() {
            return frame;
        }
        self.counts.corrupted += 1;
        let mut damaged = frame.to_vec();
        if let Some(checksum) = checksum {
            damaged[checksum..checksum + 2].fill(0);
        }
        let bit = self.draws.number(number, Purpose::CorruptedBit);
        let place = usize::try_from(bit / 8 % bytes.len() as u64).expect("within a frame");
        damaged[bytes.start + place] ^= 1 << (bit % 8);
        damaged.into()
    }

    /// One more frame has overtaken those that are held.
    fn overtake(&mut self, now: Instant) {
        if self.held.is_empty() {
            return;
        }
        for held in &mut self.held {
            held.overtaken_by -= 1;
        }
        self.release(now, |held| held.overtaken_by == 0);
    }

    fn release(&mut self, now: Instant, is_over: impl Fn(&Held) -> bool) {
        for held in self.held.extract_if(.., |held| is_over(held)).collect::<Vec<_>>() {
            self.enqueue(now, held.number, held.frame);
        }
    }

    /// Applies what takes time.
    fn enqueue(&mut self, now: Instant, number: u64, frame: Frame) {
        let Faults { delay, jitter, rate, .. } = self.faults;
        let mut due = now + delay;
        if !jitter.is_zero() {
            due += jitter.mul_f64(self.draws.share(number, Purpose::Jitter));
        }
        let mut is_full = self.waiting.len() >= MOST_WAITING;
        let free = self.last.map_or(due, |last| last.max(due));
        due = match rate {
            Some(rate) => {
                is_full |= free.duration_since(due) > rate.longest_wait();
                free + rate.time_of(&frame)
            }
            None => free,
        };
        if is_full {
            self.counts.overflowed += 1;
            return;
        }
        self.last = Some(due);
        self.counts.passed += 1;
        self.waiting.push_back((due, frame));
    }
}
