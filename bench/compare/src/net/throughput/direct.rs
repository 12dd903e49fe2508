//! Toroni without a bus on both sides, and as fast as it can.

use std::time::{Duration, Instant};

use toroni_bench_harness::Failure;
use toroni_bench_harness::idle::Idle;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Transport, Wait,
};
use toroni_net::direct::{Direct, Received};
use toroni_proto::config::Config;
use toroni_proto::wire::Policy;

use super::super::rig::{self, TOPIC};
use super::credit::{Credit, Taken};

const PATIENCE: Duration = Duration::from_secs(20);
/// How long a sender repairs after its last message.
const LINGER: Duration = Duration::from_millis(50);

/// Both ends as programs without a bus.
pub(super) struct WithoutBus;

pub(super) struct Sending {
    direct: Direct,
    credit: Credit,
}

pub(super) struct Receiving {
    direct: Direct,
    taken: Taken,
    wait: Wait,
    idle: Idle,
}

/// There is no rate limit; the window of [`Credit`] is the limit.
fn config() -> Config {
    Config {
        policy: Policy::Uncontrolled,
        retransmit_rate: Some(1_000_000_000),
        ..Config::default()
    }
}

impl Transport for WithoutBus {
    const NAME: &'static str = "toroni-direct";
    type Host = ();
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(_: &Setup) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: "toroni_net::Direct at both ends, policy uncontrolled; the receiver says what it has after each \
                       64 KiB, by a stream of its own"
                .to_owned(),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }

    fn sender(_: &RunDirectory, _: &Setup, _: u16) -> Result<Sending, Failure> {
        let direct = rig::open_here(0, Some(&config()), Some(&config()))?;
        let mut sending = Sending { direct, credit: Credit::default() };
        let begin = Instant::now();
        // The receiver says something when it hears this stream, until it is answered.
        while !sending.listen()? {
            patient(begin)?;
            sending.direct.sleep(Some(Duration::from_millis(1))).map_err(Failure::of("wait"))?;
        }
        sending.direct.send(TOPIC, b"").map_err(Failure::of("answer"))?;
        Ok(sending)
    }

    fn receiver(_: &RunDirectory, setup: &Setup, _: u16) -> Result<Receiving, Failure> {
        let direct = rig::open_here(1, Some(&config()), Some(&config()))?;
        let taken = Taken::default();
        let mut receiving = Receiving { direct, taken, wait: setup.wait, idle: Idle::new(setup) };
        let begin = Instant::now();
        while receiving.poll(|_| ())? == 0 {
            patient(begin)?;
            if receiving.direct.streams() > 0 {
                receiving.direct.send(TOPIC, &[0; 8]).map_err(Failure::of("call"))?;
            }
            receiving.direct.sleep(Some(Duration::from_millis(5))).map_err(Failure::of("wait"))?;
        }
        Ok(receiving)
    }
}

fn patient(begin: Instant) -> Result<(), Failure> {
    if begin.elapsed() < PATIENCE { Ok(()) } else { Err(Failure::new("the ends hear nothing")) }
}

impl Sending {
    /// Reads what the receiver says. Returns whether it said anything.
    fn listen(&mut self) -> Result<bool, Failure> {
        let mut has_heard = false;
        while let Some(received) = self.direct.try_receive().map_err(Failure::of("listen"))? {
            if let Received::Message { payload, .. } = received {
                self.credit.hear(payload);
                has_heard = true;
            }
        }
        Ok(has_heard)
    }

    fn wait_for_credit(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        while self.credit.is_used_up() {
            patient(begin)?;
            if !self.listen()? {
                self.direct.sleep(Some(Duration::from_millis(50))).map_err(Failure::of("wait"))?;
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) -> Result<(), Failure> {
        self.credit.send(bytes);
        // Listening in time saves a sleep for each answer.
        if self.credit.is_half_used() {
            self.listen()?;
        }
        if self.credit.is_used_up() { self.wait_for_credit() } else { Ok(()) }
    }
}

impl Sender for Sending {
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.direct.send(TOPIC, payload).map_err(Failure::of("send"))?;
        self.advance(payload.len())
    }

    fn send_all<P: AsRef<[u8]>>(&mut self, payloads: &[P]) -> Result<(), Failure> {
        self.direct.send_all(TOPIC, payloads).map_err(Failure::of("send"))?;
        self.advance(payloads.iter().map(|payload| payload.as_ref().len()).sum())
    }

    /// The receiver may miss one of the last datagrams.
    fn flush(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        while begin.elapsed() < LINGER {
            self.listen()?;
            self.direct.sleep(Some(LINGER / 10)).map_err(Failure::of("wait"))?;
        }
        Ok(())
    }
}

impl Receiver for Receiving {
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let mut messages = 0;
        while messages == 0 || self.direct.has_received() {
            match self.direct.try_receive().map_err(Failure::of("receive"))? {
                None => break,
                Some(Received::Message { payload, .. }) => {
                    self.taken.take(payload.len());
                    messages += 1;
                    if !payload.is_empty() {
                        each(payload);
                    }
                }
                Some(Received::Lost { loss, .. }) => {
                    return Err(Failure::new(format!("a loss: {loss:?}")));
                }
            }
        }
        if let Some(said) = self.taken.say(messages == 0) {
            self.direct.send(TOPIC, &said).map_err(Failure::of("answer"))?;
        }
        Ok(messages)
    }

    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idle.reset();
                return Ok(count);
            }
            match self.wait {
                Wait::Busy => self.idle.pause(),
                Wait::Blocking => {
                    self.direct
                        .sleep(Some(Duration::from_millis(50)))
                        .map_err(Failure::of("wait"))?;
                }
            }
        }
    }
}
