//! Aeron over UDP multicast, with a media driver in the process of each end: the ends are on two hosts.
//!
//! Datagrams have the length that Toroni's have by default. The sender waits for its slowest receiver (`fc=min`), so
//! that nothing is lost; by default it would follow the fastest one.

use rusteron_media_driver::bindings::aeron_threading_mode_enum;
use rusteron_media_driver::testing::EmbeddedDriver;
use rusteron_media_driver::{AeronIdleStrategyKind, IntoCString as _};
use toroni_bench_harness::Failure;
use toroni_bench_harness::run_directory::RunDirectory;
use toroni_bench_harness::transport::{
    About, Guarantees, Receiver, Sender, Setup, Slot, Transport,
};

use crate::{HEADER_BYTES, Receiving, Sending, connect, receiving, sending, term_length, version};

pub(crate) struct AeronUdp;

/// An end, and its driver, which must outlive it.
pub(crate) struct Driven<E> {
    end: E,
    _driver: EmbeddedDriver,
}

/// As in Toroni.
const MTU: usize = 1_408;
/// What may be on the way, and what sockets may hold.
const WINDOW_BYTES: usize = 512 << 10;
const STREAM: i32 = 1_001;

impl Transport for AeronUdp {
    const NAME: &'static str = "aeron-udp";
    type Host = ();
    type Sender = Driven<Sending>;
    type Receiver = Driven<Receiving>;

    fn about(setup: &Setup) -> About {
        About {
            version: format!("aeron {} (C)", version()),
            settings: format!(
                "UDP multicast, exclusive publication, terms of {} bytes, MTU {MTU}, fc=min, window of {WINDOW_BYTES} \
                 bytes, a media driver at each end with one shared thread that backs off",
                term_length(setup)
            ),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
        }
    }

    fn host(_: &RunDirectory, _: &Setup) -> Result<(), Failure> {
        Ok(())
    }

    fn sender(directory: &RunDirectory, setup: &Setup, _: u16) -> Result<Self::Sender, Failure> {
        let (driver, path) = launch(directory, "sender")?;
        Ok(Driven {
            end: sending(connect(&path)?, setup, &channel(setup), STREAM)?,
            _driver: driver,
        })
    }

    fn receiver(
        directory: &RunDirectory,
        setup: &Setup,
        index: u16,
    ) -> Result<Self::Receiver, Failure> {
        let (driver, path) = launch(directory, &format!("receiver-{index}"))?;
        let longest = MTU - HEADER_BYTES;
        let end = receiving(connect(&path)?, setup, &channel(setup), STREAM, longest)?;
        Ok(Driven { end, _driver: driver })
    }
}

fn launch(directory: &RunDirectory, whose: &str) -> Result<(EmbeddedDriver, String), Failure> {
    let path = directory.path.join(format!("aeron-{whose}")).display().to_string();
    let driver = EmbeddedDriver::launch_with(|context| {
        context.set_dir(&path.clone().into_c_string())?;
        context.set_threading_mode(aeron_threading_mode_enum::AERON_THREADING_MODE_SHARED)?;
        context.set_shared_idle_strategy_kind(AeronIdleStrategyKind::Backoff)?;
        context.set_term_buffer_sparse_file(false)?;
        context.set_socket_so_rcvbuf(WINDOW_BYTES)?;
        context.set_socket_so_sndbuf(WINDOW_BYTES)?;
        context.set_rcv_initial_window_length(WINDOW_BYTES)?;
        Ok(())
    });
    Ok((driver.map_err(Failure::of("start a media driver"))?, path))
}

/// Data go to a group whose last number is odd, and what receivers say to the next one.
fn channel(setup: &Setup) -> String {
    format!(
        "aeron:udp?endpoint=239.192.84.79:4479|interface=10.77.0.0/24|term-length={}|mtu={MTU}|fc=min",
        term_length(setup)
    )
}

impl Sender for Driven<Sending> {
    #[inline]
    fn send(&mut self, payload: &[u8]) -> Result<(), Failure> {
        self.end.send(payload)
    }

    #[inline]
    fn send_in_place(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut dyn Slot),
    ) -> Result<(), Failure> {
        self.end.send_in_place(length, fill)
    }
}

impl Receiver for Driven<Receiving> {
    #[inline]
    fn poll(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        self.end.poll(each)
    }

    #[inline]
    fn wait(&mut self, each: impl FnMut(&[u8])) -> Result<usize, Failure> {
        self.end.wait(each)
    }
}
