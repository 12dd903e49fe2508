//! `toroni net latency`: how long the datagrams of running streams take from other hosts to this one.

mod plot;

use super::address::{interface_for, parse_group};
use super::membership;
use super::probe::parse_minutes;
use super::screen::Screen;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use rustix::fd::AsFd;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_net::latency::Listener;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::{Output, Table};
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};

/// How often the screen is drawn.
const DRAW_EVERY: Duration = Duration::from_secs(1);
/// How many of the newest windows the table shows.
const SHOWN_WINDOWS: usize = 6;
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net latency --realm plant                 one way, from each stream of the realm
  toroni net latency --group 239.192.1.7 --realm plant --minutes 20 --json
  toroni net latency --realm plant --minutes 20 --plot latency.svg

It listens to a group, and sends nothing. Each datagram says when it was sent; the kernel says when it came. Retransmissions \
do not count; MISSING is the number of datagrams that did not come the first time, for which others wait. A stream that is idle is measured once in 2 s, by its SESSION. Streams of this host come only with `loop`.

The times are as right as the clocks of the two hosts agree, and may be below zero; `toroni node doctor` says whether this \
clock follows a better one. The least time of each 10 s is that of a datagram that waited nowhere: if it changes steadily, the \
clocks drift. DRIFT is that change, in microseconds a second, which is millionths (ppm).")]
pub(crate) struct Latency {
    /// Multicast group, with or without a port
    #[arg(long, value_name = "GROUP", value_parser = parse_group, default_value_t = DEFAULT_GROUP)]
    group: SocketAddr,
    /// The realm whose streams are measured
    #[arg(long, value_name = "REALM", default_value = "default")]
    realm: String,
    /// How long
    #[arg(long, value_name = "N", default_value = "0.5", value_parser = parse_minutes)]
    minutes: Duration,
    /// Interface [default: the only one that can multicast]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// File with the key of the realm
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// Print JSON at the end: one object per stream, with every window; times in nanoseconds
    #[arg(long)]
    json: bool,
    /// Draw how the times change and how they are distributed, as an SVG file
    #[arg(
        long,
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath,
        value_parser = PathBufValueParser::new().try_map(toroni_chart::parse_path)
    )]
    plot: Option<PathBuf>,
    /// Write a line to this inherited file descriptor when it listens
    #[arg(long, value_name = "FD")]
    ready_fd: Option<i32>,
}

/// Measures for the given time, or until a signal arrives. Fails if no stream was heard.
pub(crate) fn run(arguments: &Latency) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    plot::check(arguments.plot.as_deref())?;
    let interface = interface_for(arguments.group, arguments.interface.as_deref())?;
    let keys = membership::keys(arguments.key_file.as_deref())?;
    let stop = Stop::install(GracePeriod::OneSecond("writing to standard output".to_owned()))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot listen: {error}"));
    let mut listener = Listener::open(arguments.group, &interface, &arguments.realm, keys)
        .map_err(|error| failed(&error))?;
    let wake = stop.descriptor().map_err(|error| failed(&error))?;
    let mut screen = Screen::new(Output::new()?);
    let is_live = screen.output.is_terminal() && !arguments.json;
    toroni_shell::note::remark(&format!(
        "listens to streams of realm {} in {} on {} for {}",
        arguments.realm,
        arguments.group,
        interface.name,
        human::duration(arguments.minutes),
    ));
    ready.signal()?;
    let (begin, mut drawn) = (Instant::now(), Instant::now());
    while begin.elapsed() < arguments.minutes && !stop.is_set() {
        listener.turn().map_err(|error| failed(&error))?;
        if is_live && drawn.elapsed() >= DRAW_EVERY {
            drawn = Instant::now();
            let left = arguments.minutes.saturating_sub(begin.elapsed()).as_secs();
            screen.show(&format!("{}{left} s left\n", table(&listener)))?;
        }
        let left = arguments.minutes.saturating_sub(begin.elapsed()).min(DRAW_EVERY);
        listener.wait(left, Some(wake.as_fd())).map_err(|error| failed(&error))?;
    }
    if arguments.json {
        print_json(&mut screen.output, &listener)?;
    } else {
        screen.print(&table(&listener))?;
    }
    if let Some(path) = arguments.plot.as_deref().filter(|_| listener.streams().next().is_some()) {
        plot::draw(path, &listener)?;
    }
    match (listener.streams().next(), listener.refused()) {
        (Some(_), _) => Ok(()),
        (None, 0) => Err(Failure::Failed("no stream was heard in this group".to_owned())),
        (None, refused) => Err(Failure::Failed(format!(
            "no stream of realm {} was heard: {} of another realm or with another key",
            arguments.realm,
            human::counted(refused, "datagram")
        ))),
    }
}

/// Prints nanoseconds, which may be below zero.
fn signed(ns: i64) -> String {
    let shown = human::duration(Duration::from_nanos(ns.unsigned_abs()));
    if ns < 0 { format!("-{shown}") } else { shown }
}

fn table(listener: &Listener) -> String {
    let mut table = Table::new(&[
        "NODE",
        "STREAM",
        ">DATAGRAMS",
        ">MISSING",
        ">LEAST",
        ">P50",
        ">P90",
        ">P99",
        ">P99.9",
        ">MOST",
        ">DRIFT",
    ]);
    let mut windows = String::new();
    for (source, stream, measured) in listener.streams() {
        let name = measured.name.clone().unwrap_or_else(|| source.to_string());
        let Some(quantiles) = measured.quantiles(SHARES) else { continue };
        let mut row = vec![
            name.clone(),
            stream.to_string(),
            human::count(measured.count),
            human::count(measured.missing()),
            measured.least().map_or_else(|| "-".to_owned(), signed),
        ];
        row.extend(quantiles.map(signed));
        row.push(signed(measured.most));
        let drift = measured.drift();
        row.push(drift.map_or_else(|| "-".to_owned(), |drift| format!("{:.2}", drift / 1e3)));
        table.row(row);
        let from = measured.windows.len().saturating_sub(SHOWN_WINDOWS);
        let newest: Vec<String> =
            measured.windows[from..].iter().map(|window| signed(window.least)).collect();
        windows.push_str(&format!(
            "least in each 10 s from {}, stream {stream}: {}\n",
            toroni_shell::output::printable(&name),
            newest.join(", ")
        ));
    }
    if table.is_empty() {
        return "no stream was heard\n".to_owned();
    }
    table.render() + &windows
}

fn print_json(output: &mut Output, listener: &Listener) -> Result<(), Failure> {
    for (source, stream, measured) in listener.streams() {
        let Some([p50, p90, p99, p999]) = measured.quantiles(SHARES) else { continue };
        output.json(&json!({
            "node": measured.name,
            "source": source.to_string(),
            "session": measured.session.0,
            "stream": stream.0,
            "datagrams": measured.count,
            "missing": measured.missing(),
            "least_ns": measured.least(),
            "p50_ns": p50,
            "p90_ns": p90,
            "p99_ns": p99,
            "p99_9_ns": p999,
            "most_ns": measured.most,
            "drift_ppm": measured.drift().map(|drift| drift / 1e3),
            "windows": measured
                .windows
                .iter()
                .map(|window| {
                    json!({
                        "from_s": window.from_s,
                        "least_ns": window.least,
                        "most_ns": window.most,
                    })
                })
                .collect::<Vec<_>>(),
        }))?;
    }
    output.flush()
}
