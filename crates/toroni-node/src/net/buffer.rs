//! `toroni net buffer`: the equations of receive buffers, both ways, with this kernel's charge for a datagram.

use clap::Args;
use serde::Serialize;
use std::time::Duration;
use toroni_net::host::buffers::{self, Load};
use toroni_net::host::sysctl::{self, Change};
use toroni_net::socket::buffer::Charge;
use toroni_proto::config::Config;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net buffer --rate 200Mbit/s                   buffer = rate × stall
  toroni net buffer --rate 200Mbit/s --buffer 4MiB     stall = buffer ÷ rate
  toroni net buffer --rate 1Gbit/s --stall 10ms --size 128
  toroni net buffer --rate 1Gbit/s --tcp --rtt 20ms    the window of a TCP connection

The rate is that of all datagrams that one socket receives: of all sources, with retransmissions. The stall is the longest \
time in which the receiving process may not run, and nothing may be lost. The kernel charges a datagram the whole memory that \
holds it, doubles what a program asks for, and may release up to a quarter of it late; the result covers all three.")]
pub(crate) struct Buffer {
    /// Rate of the datagrams, such as 200Mbit/s
    #[arg(long, value_name = "R", value_parser = super::parse_bit_rate)]
    rate: u64,
    /// Longest time without reading that must not lose a datagram [default: 50ms]
    #[arg(long, value_name = "T", value_parser = parse_time, conflicts_with = "buffer")]
    stall: Option<Duration>,
    /// Bytes in a datagram [default: 1408]
    #[arg(long, value_name = "B", value_parser = parse_size)]
    size: Option<u32>,
    /// Receive buffer, as a program asks for it (SO_RCVBUF), of which to tell how long it lasts
    #[arg(long, value_name = "B", value_parser = human::parse_bytes)]
    buffer: Option<u64>,
    /// Number of sockets with such a buffer, for the memory of all
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    sockets: u32,
    /// Speed of the link, such as 1Gbit/s: how long a datagram takes on it
    #[arg(long, value_name = "L", value_parser = super::parse_bit_rate)]
    link: Option<u64>,
    /// Calculate the window of a TCP connection instead; needs --rtt
    #[arg(long, requires = "rtt", conflicts_with_all = ["stall", "size", "sockets", "link"])]
    tcp: bool,
    /// Round trip time of the TCP connection
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "tcp")]
    rtt: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match human::parse_duration(text)? {
        Duration::ZERO => Err("0 is too short: write for example 50ms".to_owned()),
        time => Ok(time),
    }
}

fn parse_size(text: &str) -> Result<u32, String> {
    let bytes = human::parse_bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=65_507).contains(bytes))
        .ok_or_else(|| format!("a datagram has 1 to 65507 bytes, not {bytes}"))
}

/// Prints the result of the equations.
pub(crate) fn run(arguments: &Buffer) -> Result<(), Failure> {
    let mut output = Output::new()?;
    match arguments.rtt.filter(|_| arguments.tcp) {
        Some(rtt) => tcp(&mut output, arguments, rtt)?,
        None => udp(&mut output, arguments)?,
    }
    output.flush()
}

/// What `--json` prints. Times are in seconds.
#[derive(Serialize)]
struct Report {
    rate_bits: u64,
    datagram_bytes: u32,
    charge_bytes: u32,
    charge_is_measured: bool,
    receive_buffer: u64,
    survives_seconds: f64,
    latency_seconds: f64,
    memory_bytes: u64,
    limit: Option<u64>,
    serialisation_seconds: Option<f64>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct Warning {
    message: String,
    command: Option<String>,
    remedy: Option<String>,
}

impl Warning {
    fn with(message: String, change: &Change) -> Self {
        Self { message, command: Some(change.command()), remedy: Some(change.to_string()) }
    }

    fn advice(message: String, remedy: &str) -> Self {
        Self { message, command: None, remedy: Some(remedy.to_owned()) }
    }
}

fn udp(output: &mut Output, arguments: &Buffer) -> Result<(), Failure> {
    let size = arguments.size.unwrap_or(buffers::USUAL_DATAGRAM);
    let stall = arguments.stall.unwrap_or(buffers::USUAL_STALL);
    let charge = Charge::of(size);
    let load = Load::new(arguments.rate, size, charge.bytes);
    let request = arguments.buffer.unwrap_or_else(|| load.request(stall));
    let report = Report {
        rate_bits: arguments.rate,
        datagram_bytes: size,
        charge_bytes: charge.bytes,
        charge_is_measured: charge.is_measured,
        receive_buffer: request,
        survives_seconds: load.survives(request).as_secs_f64(),
        latency_seconds: load.latency(request).as_secs_f64(),
        memory_bytes: buffers::memory(request).saturating_mul(arguments.sockets.into()),
        limit: sysctl::read(buffers::LIMIT_SETTING),
        serialisation_seconds: arguments
            .link
            .map(|link| buffers::serialisation(size, link).as_secs_f64()),
        warnings: warnings(arguments, load, request),
    };
    if arguments.json {
        return output.json(&report);
    }
    let how = if charge.is_measured { "measured here" } else { "estimated: lo does not work" };
    row(
        output,
        "datagrams",
        &format!(
            "{} bytes, each charged {} bytes of the buffer ({how})",
            human::count(size.into()),
            human::count(charge.bytes.into()),
        ),
    )?;
    if arguments.buffer.is_none() {
        let (bytes, time) = (human::bytes(load.bytes(stall)), human::duration(stall));
        row(
            output,
            "arriving",
            &format!("{bytes} in {time} at {}", human::bit_rate(arguments.rate)),
        )?;
    }
    row(output, "receive buffer", &format!("{} bytes (SO_RCVBUF)", human::count(request)))?;
    let survives = human::duration(load.survives(request));
    row(output, "survives", &format!("{survives} without reading"))?;
    let latency = human::duration(load.latency(request));
    row(output, "when full", &format!("the last datagram waits up to {latency}"))?;
    let sockets = human::counted(arguments.sockets.into(), "socket");
    row(output, "memory", &format!("up to {}, {sockets}", human::bytes(report.memory_bytes)))?;
    if let Some(link) = arguments.link {
        let time = human::duration(buffers::serialisation(size, link));
        row(
            output,
            "on the link",
            &format!("{time} for each datagram at {}", human::bit_rate(link)),
        )?;
    }
    let limit = report.limit.map_or_else(
        || "not visible in this network namespace".to_owned(),
        |limit| format!("{} bytes", human::count(limit)),
    );
    row(output, buffers::LIMIT_SETTING, &limit)?;
    for warning in &report.warnings {
        output.line(&format!("warn  {}", warning.message))?;
        if let Some(remedy) = &warning.remedy {
            output.line(&format!("      -> {remedy}"))?;
        }
    }
    Ok(())
}

fn row(output: &mut Output, name: &str, value: &str) -> Result<(), Failure> {
    output.line(&format!("{name:<18}  {value}"))
}

/// Returns what is wrong with a buffer on this host.
fn warnings(arguments: &Buffer, load: Load, request: u64) -> Vec<Warning> {
    let mut all = Vec::new();
    if request > buffers::MOST_REQUESTED {
        all.push(Warning::advice(
            format!("no kernel gives a socket more than {} bytes", human::count(buffers::MOST_REQUESTED)),
            "lower the rate or the stall, send larger datagrams, or split the stream over several groups",
        ));
    } else if let Some(change) =
        sysctl::read(buffers::LIMIT_SETTING).and_then(|limit| buffers::raise_limit(request, limit))
    {
        all.push(Warning::with(
            "the kernel gives programs without privileges less than this buffer".to_owned(),
            &change,
        ));
    }
    let memory = buffers::memory(request).saturating_mul(arguments.sockets.into());
    let pages = sysctl::read_list(buffers::MEMORY_SETTING).unwrap_or_default();
    let page_bytes = rustix::param::page_size() as u64;
    if let Some(change) = buffers::raise_memory(memory, &pages, page_bytes) {
        all.push(Warning::with(
            "all UDP sockets together may not use that much memory".to_owned(),
            &change,
        ));
    }
    let latency = load.latency(request);
    let generation = Duration::from_nanos(Config::default().generation_ns);
    if latency > generation {
        all.push(Warning::advice(
            format!(
                "a full buffer holds {}, but a gap is given up after {}: what waits for longer comes too late",
                human::duration(latency),
                human::duration(generation)
            ),
            "ask for less, or raise `generation` of the stream",
        ));
    }
    if let Some(link) = arguments.link
        && arguments.rate > link
    {
        all.push(Warning::advice(
            format!("the link carries {}, less than the rate", human::bit_rate(link)),
            "lower the rates of the senders",
        ));
    }
    all
}

/// What `--tcp --json` prints.
#[derive(Serialize)]
struct Window {
    rate_bits: u64,
    rtt_seconds: f64,
    window_bytes: u64,
    buffer_bytes: Option<u64>,
    latency_seconds: Option<f64>,
}

/// A window of rate × round trip keeps a connection busy. Whatever is larger only waits.
fn tcp(output: &mut Output, arguments: &Buffer, rtt: Duration) -> Result<(), Failure> {
    // One byte per datagram, charged one byte: the plain equations.
    let plain = Load::new(arguments.rate, 1, 1);
    let window = plain.bytes(rtt);
    let extra = |buffer: u64| {
        let bytes = buffer.saturating_sub(window);
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let seconds = bytes as f64 * 8.0 / arguments.rate as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    };
    if arguments.json {
        return output.json(&Window {
            rate_bits: arguments.rate,
            rtt_seconds: rtt.as_secs_f64(),
            window_bytes: window,
            buffer_bytes: arguments.buffer,
            latency_seconds: arguments.buffer.map(|buffer| extra(buffer).as_secs_f64()),
        });
    }
    let (rate, time) = (human::bit_rate(arguments.rate), human::duration(rtt));
    row(
        output,
        "window",
        &format!("{} fill a round trip of {time} at {rate}", human::bytes(window)),
    )?;
    match arguments.buffer {
        None => row(output, "more", "adds no speed, only latency; --buffer B says how much"),
        Some(buffer) if buffer > window => {
            let extra = human::duration(extra(buffer));
            row(
                output,
                "buffer",
                &format!("{}: adds up to {extra} of latency", human::bytes(buffer)),
            )
        }
        Some(buffer) => {
            let text = format!("{}: too small to use the whole rate", human::bytes(buffer));
            row(output, "buffer", &text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_limits() {
        assert_eq!(parse_size("1408"), Ok(1_408));
        assert_eq!(parse_size("1KiB"), Ok(1_024));
        for text in ["0", "65508", "64KiB", "x"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_time("50ms"), Ok(Duration::from_millis(50)));
        for text in ["0", "50", "-1s", "0s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
