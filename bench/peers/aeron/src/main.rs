//! Aeron over shared memory (`aeron:ipc`), with the C media driver in a process of its own; and over UDP multicast
//! ([`udp`]).
//!
//! - A single sender has an exclusive publication. Several senders share one concurrent publication, which gives all
//!   subscribers the same order.
//! - Messages that fit into a fragment are read in place; longer ones are assembled. The MTU is the largest that Aeron
//!   allows, because there is no network whose packets it must fit.
//! - Aeron has no call that sleeps until a message comes; a client waits with an idle strategy. Busy rows spin and yield.
//!   Blocking rows use the back-off strategy with Aeron's default times: 10 spins, 20 yields, then parking for 1 µs,
//!   doubled up to 1 ms.

mod idling;
mod udp;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rusteron_media_driver::{
    Aeron, AeronBufferClaim, AeronCError, AeronContext, AeronExclusivePublication,
    AeronFragmentClosureAssembler, AeronIdleStrategyKind, AeronOfferError, AeronPublication,
    AeronSubscription, Handlers, IntoCString as _, bindings::aeron_threading_mode_enum,
    testing::EmbeddedDriver,
};
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Slot, Transport,
};
use toroni_bench_harness::{Failure, child, registry};

use crate::idling::Idling;

fn main() -> ExitCode {
    let outcome = child::run(|child| match child.job().transport.as_str() {
        udp::AeronUdp::NAME => registry::perform::<udp::AeronUdp>(child),
        AeronIpc::NAME => registry::perform::<AeronIpc>(child),
        unknown => Err(Failure::new(format!("this program does not know {unknown:?}"))),
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct AeronIpc;

struct Sending {
    publication: Publication,
    idling: Idling,
    _aeron: Aeron,
}

enum Publication {
    Exclusive(AeronExclusivePublication),
    Shared(AeronPublication),
}

struct Receiving {
    subscription: AeronSubscription,
    /// For messages that do not fit into a fragment.
    assembler: Option<AeronFragmentClosureAssembler>,
    idling: Idling,
    _aeron: Aeron,
}

/// The largest MTU that Aeron allows. A fragment carries this, less its header.
const MTU: usize = 65_504;
const HEADER_BYTES: usize = 32;
/// How long to wait for the driver and the other end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Fragments that one `poll` passes on, at most. Aeron's samples take 10, for fairness among streams; with a single stream
/// more is better.
const FRAGMENT_LIMIT: usize = 256;

impl Transport for AeronIpc {
    const NAME: &'static str = "aeron";
    /// The driver, one for all lanes of a run.
    type Host = Option<EmbeddedDriver>;
    type Sender = Sending;
    type Receiver = Receiving;

    fn about(setup: &Setup) -> About {
        let publication = if setup.senders == 1 { "exclusive" } else { "shared" };
        About {
            version: format!("aeron {} (C)", version()),
            settings: format!(
                "ipc, {publication} publication, terms of {} bytes, MTU {MTU}, mapped \
                 memory touched before, media driver with one shared thread that backs off",
                term_length(setup)
            ),
            // There is one publication even if several processes have it open, and its log is the order.
            guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
        }
    }

    fn host(directory: &RunDirectory, _: &Setup) -> Result<Self::Host, Failure> {
        if directory.lane() > 0 {
            return Ok(None);
        }
        let driver_path = driver_path(directory);
        let driver = EmbeddedDriver::launch_with(|context| {
            context.set_dir(&driver_path.into_c_string())?;
            context.set_threading_mode(aeron_threading_mode_enum::AERON_THREADING_MODE_SHARED)?;
            context.set_shared_idle_strategy_kind(AeronIdleStrategyKind::Backoff)?;
            context.set_term_buffer_sparse_file(false)?;
            context.set_ipc_mtu_length(MTU)?;
            Ok(())
        });
        driver.map(Some).map_err(Failure::of("start the media driver"))
    }

    fn sender(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Sending, Failure> {
        sending(connect(&driver_path(directory))?, setup, &channel(setup), stream(directory))
    }

    fn receiver(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Receiving, Failure> {
        let longest = MTU - HEADER_BYTES;
        let aeron = connect(&driver_path(directory))?;
        receiving(aeron, setup, "aeron:ipc", stream(directory), longest)
    }
}

/// Opens a publication, and waits for a subscriber.
fn sending(aeron: Aeron, setup: &Setup, channel: &str, stream: i32) -> Result<Sending, Failure> {
    let channel = channel.to_owned().into_c_string();
    let publication = if setup.senders == 1 {
        let adding = aeron.async_add_exclusive_publication(&channel, stream);
        let adding = adding.map_err(Failure::of("add a publication"))?;
        Publication::Exclusive(wait_for("the publication is not there", || adding.poll())?)
    } else {
        let adding = aeron.async_add_publication(&channel, stream);
        let adding = adding.map_err(Failure::of("add a publication"))?;
        Publication::Shared(wait_for("the publication is not there", || adding.poll())?)
    };
    wait_for("no subscriber has come", || Ok(publication.is_connected().then_some(())))?;
    Ok(Sending { publication, idling: Idling::new(setup), _aeron: aeron })
}

/// Opens a subscription, and waits for a publication. Longer messages than `longest` are assembled.
fn receiving(
    aeron: Aeron,
    setup: &Setup,
    channel: &str,
    stream: i32,
    longest: usize,
) -> Result<Receiving, Failure> {
    let channel = channel.to_owned().into_c_string();
    let none = Handlers::NONE;
    let adding = aeron.async_add_subscription(&channel, stream, none, Handlers::NONE);
    let adding = adding.map_err(Failure::of("add a subscription"))?;
    let subscription = wait_for("the subscription is not there", || adding.poll())?;
    wait_for("no publication has come", || Ok(subscription.is_connected().then_some(())))?;
    let assembler = (setup.message_bytes > longest)
        .then(AeronFragmentClosureAssembler::new)
        .transpose()
        .map_err(Failure::of("make a fragment assembler"))?;
    Ok(Receiving { subscription, assembler, idling: Idling::new(setup), _aeron: aeron })
}

impl Publication {
    fn is_connected(&self) -> bool {
        match self {
            Publication::Exclusive(publication) => publication.is_connected(),
            Publication::Shared(publication) => publication.is_connected(),
        }
    }

    #[inline]
    fn offer(&self, payload: &[u8]) -> Result<i64, AeronOfferError> {
        match self {
            Publication::Exclusive(publication) => publication.offer(payload),
            Publication::Shared(publication) => publication.offer(payload),
        }
    }

    #[inline]
    fn try_claim(&self, length: usize, claim: &AeronBufferClaim) -> Result<i64, AeronOfferError> {
        match self {
            Publication::Exclusive(publication) => publication.try_claim(length, claim),
            Publication::Shared(publication) => publication.try_claim(length, claim),
        }
    }
}

impl Sending {
    /// Handles an offer that was not accepted: waits, or fails.
    #[cold]
    fn refused(&mut self, error: &AeronOfferError) -> Result<(), Failure> {
        match error {
            AeronOfferError::BackPressured => {
                self.idling.pause();
                Ok(())
            }
            // The next term begins: try again at once.
            AeronOfferError::AdminAction => Ok(()),
            other => Err(Failure::of("offer")(other)),
        }
    }
}

impl Sender for Sending {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        while let Err(error) = self.publication.offer(payload) {
            self.refused(&error)?;
        }
        self.idling.reset();
        Ok(())
    }

    #[inline]
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        if length > MTU - HEADER_BYTES {
            // Only a fragment can be claimed.
            let mut message = vec![0; length];
            fill(&mut &mut message[..]);
            return self.send(&message);
        }
        let mut claim = AeronBufferClaim::new_zeroed_on_stack();
        while let Err(error) = self.publication.try_claim(length, &claim) {
            self.refused(&error)?;
        }
        self.idling.reset();
        fill(&mut claim.data_mut());
        claim.commit().map_err(Failure::of("commit a claim"))?;
        Ok(())
    }
}

impl Receiver for Receiving {
    #[inline]
    fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        let Some(assembler) = &mut self.assembler else {
            let polled = self.subscription.poll_fn(|payload, _| each(payload), FRAGMENT_LIMIT);
            return Ok(usize::try_from(polled.map_err(Failure::of("poll"))?).unwrap_or(0));
        };
        // The poll itself counts fragments.
        let mut messages = 0;
        let mut count = |payload: &[u8]| {
            messages += 1;
            each(payload);
        };
        let polled = assembler.poll(
            &self.subscription,
            &mut count,
            |count, payload, _| count(payload),
            FRAGMENT_LIMIT,
        );
        polled.map_err(Failure::of("poll"))?;
        Ok(messages)
    }

    #[inline]
    fn wait(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        loop {
            let count = self.poll(&mut each)?;
            if count > 0 {
                self.idling.reset();
                return Ok(count);
            }
            self.idling.pause();
        }
    }
}

fn version() -> String {
    // `aeron version=1.54.0 commit=…`
    let full = Aeron::version_full().to_string();
    let number = full.split("version=").nth(1).and_then(|rest| rest.split(' ').next());
    number.map_or(full.clone(), str::to_owned)
}

fn connect(driver_path: &str) -> Result<Aeron, Failure> {
    let connect = || {
        let context = AeronContext::new()?;
        context.set_dir(&driver_path.to_owned().into_c_string())?;
        context.set_pre_touch_mapped_memory(true)?;
        let aeron = Aeron::new(&context)?;
        aeron.start()?;
        Ok::<_, AeronCError>(aeron)
    };
    connect().map_err(Failure::of(format!("connect to the media driver in {driver_path}")))
}

fn driver_path(directory: &RunDirectory) -> String {
    directory.shared_path().join("aeron").display().to_string()
}

fn stream(directory: &RunDirectory) -> i32 {
    1001 + i32::from(directory.lane())
}

fn channel(setup: &Setup) -> String {
    format!("aeron:ipc?term-length={}|mtu={MTU}", term_length(setup))
}

/// Returns a power of two that Aeron allows, long enough for the longest message, which may take an eighth of a term. Half
/// a term may be in flight; there are three terms.
fn term_length(setup: &Setup) -> u64 {
    let longest = u64::try_from(setup.message_bytes).unwrap_or(u64::MAX >> 8);
    setup.capacity_bytes.max(8 * longest).next_power_of_two().clamp(64 << 10, 1 << 30)
}

/// Repeats a check until it finds something. It sleeps, because this is not measured: the blocking calls of the binding
/// would keep the core from the driver that they wait for.
fn wait_for<T>(
    otherwise: &str,
    mut ask: impl FnMut() -> Result<Option<T>, AeronCError>,
) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        if let Some(value) = ask().map_err(Failure::of("talk to the media driver"))? {
            return Ok(value);
        }
        if start.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{otherwise} within {PATIENCE:?}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

toroni_bench_harness::conformance!(AeronIpc);
