//! `toroni net probe`: runs on several hosts at once, and shows which of them hear one another in a group.

use super::address::{interface_for, parse_group};
use super::screen::Screen;
use clap::Args;
use rustix::fd::AsFd;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_net::probe::{Peer, Prober, RoundTrip, Settings, Tally};
use toroni_process::units::as_f64;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::{Output, Table};
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};

/// How often the screen is drawn.
const DRAW_EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net probe                                 on each host, at the same time
  toroni net probe --expect line-4 --expect line-5
  toroni net probe --minutes 6                     is there a querier? see below
  toroni net probe --group 239.192.1.7 --sizes --json
  toroni net probe --rate 500Mbit/s                what does the network do under load?

Each host sends 10 questions a second to the group, and answers at most 20 directly. The answers say how many questions were \
heard, so both directions are measured. Each host prints its row and its column of the matrix.

Columns:
  LOST FROM  questions of that host that were lost on their way here
  LOST TO    own questions that were lost on their way there
  HOPS       routers between
  LEAST, MEDIAN, MOST  the way there and back
  DOUBLED    questions that came twice
  LATE       questions that later ones overtook
  LARGEST    with --sizes: the largest datagram that was answered, in bytes
  LOAD FROM, LOAD TO  with --rate: what was lost of the datagrams that that host, or this one, sent at its rate

Where switches have IGMP snooping and no device is the querier, multicast works at first and stops after about 260 s. Only a \
test of 6 minutes can show it: hosts that are silent in the group are then asked directly. Start the hosts within a few seconds \
of each other.")]
pub(crate) struct Probe {
    /// Multicast group, with or without a port
    #[arg(long, value_name = "GROUP", value_parser = parse_group, default_value_t = DEFAULT_GROUP)]
    group: SocketAddr,
    /// Fail unless this host is heard and hears this one; may be given several times
    #[arg(long, value_name = "HOST")]
    expect: Vec<String>,
    /// How long
    #[arg(long, value_name = "N", default_value = "0.5", value_parser = parse_minutes)]
    minutes: Duration,
    /// Try datagrams of several sizes, up to the MTU of the interface
    #[arg(long)]
    sizes: bool,
    /// Also send full datagrams at this rate to the group, such as 500Mbit/s: others count what is lost
    #[arg(long, value_name = "R", value_parser = super::parse_bit_rate)]
    rate: Option<u64>,
    /// Interface [default: the only one that can multicast]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Name of this host for the others [default: that of the host]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many hops the questions go
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u8))]
    ttl: u8,
    /// Print JSON at the end: one object per host, then one per finding
    #[arg(long)]
    json: bool,
    /// Write a line to this inherited file descriptor when the sockets are open
    #[arg(long, value_name = "FD")]
    ready_fd: Option<i32>,
}

pub(super) fn parse_minutes(text: &str) -> Result<Duration, String> {
    const MOST: f64 = 7.0 * 24.0 * 60.0;
    let minutes = text.parse::<f64>().ok().filter(|minutes| *minutes > 0.0 && *minutes <= MOST);
    minutes
        .map(|minutes| Duration::from_secs_f64(minutes * 60.0))
        .ok_or_else(|| format!("{text:?} is no number of minutes above 0 and up to {MOST}"))
}

/// Probes for the given time, or until a signal arrives. Fails if an expected host is not heard both ways.
pub(crate) fn run(arguments: &Probe) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    let interface = interface_for(arguments.group, arguments.interface.as_deref())?;
    let settings = Settings {
        group: arguments.group,
        interface,
        name: arguments.name.clone().unwrap_or_else(super::membership::host_name),
        ttl: arguments.ttl,
        tries_sizes: arguments.sizes,
        rate: arguments.rate,
    };
    let stop = Stop::install(GracePeriod::OneSecond("writing to standard output".to_owned()))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot probe: {error}"));
    let mut prober = Prober::open(&settings).map_err(|error| failed(&error))?;
    let wake = stop.descriptor().map_err(|error| failed(&error))?;
    let mut screen = Screen::new(Output::new()?);
    let is_live = screen.output.is_terminal() && !arguments.json;
    toroni_shell::note::remark(&format!(
        "{} asks {} on {} for {}; run the same on the other hosts",
        settings.name,
        arguments.group,
        settings.interface.name,
        human::duration(arguments.minutes),
    ));
    ready.signal()?;
    let (begin, mut drawn) = (Instant::now(), Instant::now());
    let mut refusal = None;
    while begin.elapsed() < arguments.minutes && !stop.is_set() {
        prober.turn().map_err(|error| failed(&error))?;
        refusal = prober.refusal().or(refusal);
        if is_live && drawn.elapsed() >= DRAW_EVERY {
            drawn = Instant::now();
            let left = arguments.minutes.saturating_sub(begin.elapsed()).as_secs();
            let text = report(&prober, &arguments.expect);
            screen.show(&format!("{text}{left} s left\n"))?;
        }
        let left = arguments.minutes.saturating_sub(begin.elapsed()).min(DRAW_EVERY);
        prober.wait(left, Some(wake.as_fd())).map_err(|error| failed(&error))?;
    }
    if let Some(error) = refusal {
        toroni_shell::note::remark(&format!("some questions could not be sent: {error}"));
    }
    if arguments.json {
        print_json(&mut screen.output, &prober, &arguments.expect)?;
    } else {
        screen.print(&report(&prober, &arguments.expect))?;
    }
    verdict(&prober, &arguments.expect)
}

/// Fails if an expected host is not heard both ways.
fn verdict(prober: &Prober, expected: &[String]) -> Result<(), Failure> {
    let peers = prober.peers();
    let is_missing =
        |host: &&String| !peers.iter().any(|peer| peer.name == **host && peer.is_heard_both_ways());
    let missing: Vec<&str> = expected.iter().filter(is_missing).map(String::as_str).collect();
    match &missing[..] {
        [] => Ok(()),
        hosts => Err(Failure::Failed(format!("not heard both ways: {}", hosts.join(", ")))),
    }
}

/// Returns the table and what is wrong.
fn report(prober: &Prober, expected: &[String]) -> String {
    let mut text = table(prober);
    for problem in prober.problems(expected) {
        let status = if problem.is_failure() { "fail" } else { "warn" };
        text.push_str(&format!(
            "{status}  {}\n",
            toroni_shell::output::printable(&problem.to_string())
        ));
    }
    text
}

fn table(prober: &Prober) -> String {
    let mut titles = vec![
        "HOST",
        "ADDRESS",
        ">LOST FROM",
        ">LOST TO",
        ">HOPS",
        ">LEAST",
        ">MEDIAN",
        ">MOST",
        ">DOUBLED",
        ">LATE",
    ];
    let has_sizes = !prober.sizes().is_empty();
    if has_sizes {
        titles.push(">LARGEST");
    }
    let has_load =
        prober.sent_at_rate().is_some() || prober.peers().iter().any(|peer| peer.load.of() > 0);
    if has_load {
        titles.extend([">LOAD FROM", ">LOAD TO"]);
    }
    let mut table = Table::new(&titles);
    for peer in prober.peers() {
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        let time = |of: fn(RoundTrip) -> Duration| {
            peer.round_trip().map_or_else(|| "-".to_owned(), |all| human::duration(of(all)))
        };
        let mut row = vec![
            peer.name.clone(),
            peer.address.to_string(),
            percent(loss_from(peer)),
            percent(loss_to(peer)),
            peer.hops.map_or_else(|| "-".to_owned(), |hops| hops.to_string()),
            time(|all| all.least),
            time(|all| all.median),
            time(|all| all.most),
            peer.group.doubled().to_string(),
            peer.group.reordered().to_string(),
        ];
        if has_sizes {
            let largest = peer.sizes.last_key_value();
            row.push(largest.map_or_else(|| "-".to_owned(), |(size, _)| size.to_string()));
        }
        if has_load {
            row.extend([percent(load_from(peer)), percent(load_to(peer))]);
        }
        table.row(row);
    }
    if table.is_empty() {
        return "no other host was heard\n".to_owned();
    }
    table.render()
}

/// Returns the share of its questions that did not come, if any came.
fn loss_from(peer: &Peer) -> Option<f64> {
    lost(&peer.group)
}

/// The same, of what it sent at a rate.
fn load_from(peer: &Peer) -> Option<f64> {
    lost(&peer.load)
}

fn lost(tally: &Tally) -> Option<f64> {
    (tally.of() > 0).then(|| as_f64(tally.lost()) / as_f64(tally.of()))
}

/// Returns the share of our questions that it did not hear, if it heard one.
fn loss_to(peer: &Peer) -> Option<f64> {
    peer.there.map(unheard)
}

/// The same, of what was sent at a rate.
fn load_to(peer: &Peer) -> Option<f64> {
    peer.load_there.map(unheard)
}

fn unheard((heard, of): (u32, u32)) -> f64 {
    1.0 - f64::from(heard) / f64::from(of.max(1))
}

fn print_json(output: &mut Output, prober: &Prober, expected: &[String]) -> Result<(), Failure> {
    for peer in prober.peers() {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        let round_trip = peer.round_trip().map(|all| {
            json!({
                "least_us": microseconds(all.least),
                "median_us": microseconds(all.median),
                "most_us": microseconds(all.most),
            })
        });
        let sizes: Vec<Value> = peer
            .sizes
            .iter()
            .map(|(bytes, count)| json!({ "bytes": bytes, "answers": count }))
            .collect();
        output.json(&json!({
            "host": peer.name,
            "address": peer.address.to_string(),
            "both_ways": peer.is_heard_both_ways(),
            "heard": peer.group.came(),
            "loss_from": loss_from(peer),
            "loss_to": loss_to(peer),
            "hops": peer.hops,
            "round_trip": round_trip,
            "doubled": peer.group.doubled(),
            "late": peer.group.reordered(),
            "sizes": sizes,
            "load_from": load_from(peer),
            "load_to": load_to(peer),
        }))?;
    }
    for problem in prober.problems(expected) {
        let status = if problem.is_failure() { "fail" } else { "warn" };
        output.json(&json!({ "status": status, "message": problem.to_string() }))?;
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_above_0() {
        assert_eq!(parse_minutes("0.5"), Ok(Duration::from_secs(30)));
        for text in ["0", "-1", "nan", "inf", "1e9", "", "6m"] {
            assert!(parse_minutes(text).is_err(), "{text}");
        }
    }
}
