//! Latency: how long datagrams take from the hosts that send them to this one, by the streams that run anyway.
//!
//! ```text
//!   sender: sent_ns of DATA, SESSION ──► network ──► kernel of this host: time of receipt
//!           its clock                                its clock
//! ```
//!
//! A listener joins a group and sends nothing: senders do not know that it is there. It takes what was sent the first time.
//!
//! Two clocks are read, so a time is right only as far as they agree, and may be below zero. What can be trusted without that
//! is how it changes: the least time of each window of 10 s is that of a datagram which waited nowhere, so a change of it is
//! drift between the clocks.

mod missing;

use crate::host::interface::Interface;
use crate::socket::{self, BATCH, Datagram, Options, Receiver, SocketError};
use missing::Missing;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use toroni_proto::id::{Realm, Session, Source, Stream};
use toroni_proto::wire::{self, Body, Flags, Keys, Rules};

/// How long a window is, of which the least and the greatest time are kept.
pub const WINDOW: Duration = Duration::from_secs(10);
/// How many windows are kept: two weeks.
const MOST_WINDOWS: usize = 120_960;
/// How many times are kept for percentiles. If there are more, every second one is left out, and so on.
const MOST_TIMES: usize = 1 << 18;
/// Streams beyond are not measured.
const MOST_STREAMS: usize = 1_024;
const LONGEST: usize = 65_536;
const BUFFERS: usize = 32;

/// Listens to a group.
pub struct Listener {
    socket: Datagram,
    receiver: Receiver,
    memory: Box<[u8]>,
    realm: Realm,
    keys: Option<Keys>,
    started: Instant,
    flows: BTreeMap<(Source, Stream), Measured>,
    refused: u64,
}

/// A window: [`WINDOW`] long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Seconds from the start to its begin.
    pub from_s: u64,
    /// The least time in it, in nanoseconds.
    pub least: i64,
    /// The greatest time in it, in nanoseconds.
    pub most: i64,
}

/// The times of one stream, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The name of its node, once a SESSION has said it.
    pub name: Option<String>,
    /// The life of the node.
    pub session: Session,
    /// How many datagrams were measured.
    pub count: u64,
    /// The greatest time.
    pub most: i64,
    /// The windows in which something came.
    pub windows: Vec<Window>,
    missing: Missing,
    times: Vec<i64>,
    /// Of this many times, one is kept.
    stride: u64,
}

impl Listener {
    /// Joins the group.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open(
        group: SocketAddr,
        on: &Interface,
        realm: &str,
        keys: Option<Keys>,
    ) -> Result<Self, SocketError> {
        Ok(Self {
            socket: Datagram::group(group, on, &Options::default())?,
            receiver: Receiver::new(),
            memory: vec![0; BUFFERS * LONGEST].into(),
            realm: Realm::of(realm),
            keys,
            started: Instant::now(),
            flows: BTreeMap::new(),
            refused: 0,
        })
    }

    /// Reads what has come.
    ///
    /// # Errors
    /// If the socket cannot be read.
    pub fn turn(&mut self) -> io::Result<()> {
        let rules = Rules { realm: self.realm, keys: self.keys.as_ref(), message_max: u32::MAX };
        // Others want the processor, too.
        for _ in 0..BATCH {
            let buffers = self.memory.chunks_exact_mut(LONGEST);
            let arrivals = self.receiver.receive(&self.socket, buffers)?;
            if arrivals.is_empty() {
                break;
            }
            let window = self.started.elapsed().as_secs() / WINDOW.as_secs() * WINDOW.as_secs();
            for (arrival, buffer) in arrivals.iter().zip(self.memory.chunks_exact(LONGEST)) {
                let parsed = wire::parse(&buffer[..arrival.length], &rules, |_, _| Ok(()));
                let Ok(wire::Datagram { header, body }) = parsed else {
                    self.refused += 1;
                    continue;
                };
                let (sent, name) = match &body {
                    Body::Data(data) if !header.flags.has(Flags::RETRANSMISSION) => {
                        (data.sent, None)
                    }
                    Body::Session(session) => (session.sent, Some(session.name.as_str())),
                    _ => continue,
                };
                let Some(received) = arrival.received_ns else { continue };
                let flow = (header.source, header.stream);
                if self.flows.len() >= MOST_STREAMS && !self.flows.contains_key(&flow) {
                    continue;
                }
                let measured =
                    self.flows.entry(flow).or_insert_with(|| Measured::new(header.session));
                if measured.session != header.session {
                    measured.session = header.session;
                    measured.missing.restart();
                }
                match &body {
                    Body::Data(_) => measured.missing.came(header.sequence.get()),
                    _ => measured.missing.sent(header.sequence.get()),
                }
                if let Some(name) = name.filter(|name| measured.name.as_deref() != Some(*name)) {
                    measured.name = Some(name.to_owned());
                }
                measured.record(window, received.wrapping_sub(sent.ns()).cast_signed());
            }
        }
        Ok(())
    }

    /// Sleeps until the socket or `also` has something, at most for `longest`.
    ///
    /// # Errors
    /// If it cannot wait.
    pub fn wait(&self, longest: Duration, also: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let watched = [self.socket.as_fd()].into_iter().chain(also);
        socket::wait(watched.map(|fd| Ok((fd, false))), longest)
    }

    /// Returns the streams and their times.
    pub fn streams(&self) -> impl Iterator<Item = (Source, Stream, &Measured)> {
        self.flows.iter().map(|((source, stream), measured)| (*source, *stream, measured))
    }

    /// Returns how many datagrams were refused: of another realm, with another key, or damaged.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl Measured {
    fn new(session: Session) -> Self {
        Self {
            name: None,
            session,
            count: 0,
            most: i64::MIN,
            windows: Vec::new(),
            missing: Missing::new(),
            times: Vec::new(),
            stride: 1,
        }
    }

    fn record(&mut self, window: u64, ns: i64) {
        if self.count.is_multiple_of(self.stride) {
            if self.times.len() == MOST_TIMES {
                let mut keep = false;
                self.times.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            self.times.push(ns);
        }
        self.count += 1;
        self.most = self.most.max(ns);
        match self.windows.last_mut() {
            Some(last) if last.from_s == window => {
                (last.least, last.most) = (last.least.min(ns), last.most.max(ns));
            }
            _ => {
                if self.windows.len() == MOST_WINDOWS {
                    self.windows.drain(..MOST_WINDOWS / 2);
                }
                self.windows.push(Window { from_s: window, least: ns, most: ns });
            }
        }
    }

    /// Returns the times below which these shares of all datagrams were, each from 0 to 1. `None` before the first datagram.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> Option<[i64; N]> {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let place = |share: f64| {
            #[expect(clippy::cast_precision_loss, reason = "at most 2^18")]
            let place = (share.clamp(0.0, 1.0) * last as f64).round();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to 2^18"
            )]
            let place = place as usize;
            place.min(last)
        };
        Some(shares.map(|share| sorted[place(share)]))
    }

    /// Returns how many datagrams did not come when they were sent first.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing.count()
    }

    /// Returns the least time of all.
    #[must_use]
    pub fn least(&self) -> Option<i64> {
        self.windows.iter().map(|window| window.least).min()
    }

    /// Returns how fast the clocks drift apart, in nanoseconds a second: the slope of the line that fits the least times of
    /// the windows best. Needs three of them; the first one, which may be short, is left out.
    #[must_use]
    pub fn drift(&self) -> Option<f64> {
        let points = self.windows.get(1..).filter(|points| points.len() >= 2)?;
        #[expect(clippy::cast_precision_loss, reason = "a slope needs no 64 bits")]
        let points: Vec<(f64, f64)> =
            points.iter().map(|it| (it.from_s as f64, it.least as f64)).collect();
        #[expect(clippy::cast_precision_loss, reason = "at most two weeks of windows")]
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let products: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        Some(products / squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_times() {
        let mut measured = Measured::new(Session(1));
        assert_eq!(measured.quantiles([0.5]), None);
        for ns in (-50..=50).rev() {
            measured.record(0, ns);
        }
        assert_eq!(measured.quantiles([0.0, 0.5, 0.99, 1.0]), Some([-50, 0, 49, 50]));
        assert_eq!((measured.least(), measured.most, measured.count), (Some(-50), 50, 101));
    }

    #[test]
    fn many_times_are_thinned_out_evenly() {
        let mut measured = Measured::new(Session(1));
        let count = 3 * i64::try_from(MOST_TIMES).unwrap();
        (0..count).for_each(|ns| measured.record(0, ns));
        assert!(measured.times.len() <= MOST_TIMES);
        let [median, last] = measured.quantiles([0.5, 1.0]).unwrap();
        assert!((median - count / 2).abs() < 10 && count - last < 10, "{median} {last}");
        assert_eq!((measured.most, measured.least()), (count - 1, Some(0)));
    }

    #[test]
    fn a_clock_that_runs_faster_is_a_slope() {
        let mut measured = Measured::new(Session(1));
        measured.record(0, 900_000);
        assert_eq!(measured.drift(), None);
        for window in 1..20 {
            // 30 microseconds a second, and other datagrams that waited.
            let at = window * 10;
            let least = 300_000 * i64::try_from(window).unwrap();
            measured.record(at, least + 5_000_000);
            measured.record(at, least);
        }
        let most: Vec<i64> = measured.windows[1..3].iter().map(|window| window.most).collect();
        assert_eq!(most, [5_300_000, 5_600_000]);
        let drift = measured.drift().unwrap();
        assert!((drift - 30_000.0).abs() < 1.0, "{drift}");
    }
}
