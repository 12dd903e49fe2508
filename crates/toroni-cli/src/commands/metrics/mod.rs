//! `toroni serve-metrics`: the buses of this host as metrics, for Prometheus and other collectors of OpenMetrics.

mod collect;
mod http;
mod names;

use crate::cli::BusLocation;
use crate::failure::Failure;
use crate::note;
use crate::ready::ReadyFd;
use crate::stop::{GracePeriod, Stop};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use collect::Observer;
use http::{Request, Response, Status};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use toroni_proactor::{Listener, Proactor, Watch};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni serve-metrics
  toroni serve-metrics --bus plant --bus office --listen 127.0.0.1:0
  curl http://127.0.0.1:9478/metrics

Without --bus, it serves all buses of the directory, and searches for new ones every 10 s. /metrics is in the text \
format of OpenMetrics; a client that accepts only text/plain gets Prometheus' older text format. /healthz answers \
while the process serves.

The addresses of other hosts can read the metrics only if --listen names an address that they reach. The metrics \
contain names and counts, and no messages.")]
pub(crate) struct ServeMetrics {
    /// Address and port to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9478")]
    listen: SocketAddr,
    /// Write a line to descriptor N when clients can connect
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
}

/// The media type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' older text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves until a signal arrives.
pub(crate) fn run(
    location: &BusLocation,
    arguments: &ServeMetrics,
    buses: Option<Vec<String>>,
) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    let stop = Stop::install(GracePeriod::OneSecond("reading the buses".to_owned()))?;
    let proactor = Proactor::from_environment().map_err(|error| cannot_serve(&error))?;
    let listener = Listener::bind(&proactor, arguments.listen).map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on {}: {error}; --listen chooses another address or port",
            arguments.listen
        ))
    })?;
    let address = listener.local_address().map_err(|error| cannot_serve(&error))?;
    let observer = Observer::new(location.clone(), buses);
    let answer = move |request: &Request<'_>| answer(request, &observer);
    proactor
        .spawn(http::serve(proactor.downgrade(), listener, Arc::new(answer)))
        .map_err(|error| cannot_serve(&error))?;
    note::remark(&format!("serving http://{address}/metrics"));
    ready.signal()?;
    let signal = stop.descriptor().map_err(|error| cannot_serve(&error))?;
    let signal = Watch::new(&proactor, signal).map_err(|error| cannot_serve(&error))?;
    match proactor.block_on(signal.readable_async()) {
        Some(Err(error)) => Err(cannot_serve(&error)),
        Some(Ok(())) | None => Ok(()),
    }
}

fn cannot_serve(error: &dyn Display) -> Failure {
    Failure::Failed(format!("cannot serve metrics: {error}"))
}

/// Returns the buses that the command line names, or `None` for all. `$TORONI_BUS` does not count: it names the bus of
/// commands that use one.
pub(crate) fn named_buses(matches: &ArgMatches) -> Option<Vec<String>> {
    let matches = matches.subcommand_matches("serve-metrics")?;
    if matches.value_source("bus") != Some(ValueSource::CommandLine) {
        return None;
    }
    let mut buses: Vec<String> = matches.get_many::<String>("bus")?.cloned().collect();
    buses.sort();
    buses.dedup();
    Some(buses)
}

fn answer(request: &Request<'_>, observer: &Observer) -> Response {
    match request.path {
        "/metrics" => {
            let text = observer.metrics();
            if request.accept.is_some_and(wants_older_format) {
                Response::text(Status::Ok, PROMETHEUS, older_format(&text))
            } else {
                Response::text(Status::Ok, OPENMETRICS, text.as_str())
            }
        }
        "/healthz" => Response::text(Status::Ok, PLAIN, "ok\n"),
        _ => Response::text(Status::NotFound, PLAIN, "there are /metrics and /healthz\n"),
    }
}

/// Whether a client names plain text, and neither OpenMetrics nor everything.
fn wants_older_format(accept: &str) -> bool {
    let mut accepted =
        accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
    let is_plain = |range: &str| ["text/plain", "text/*"].contains(&range);
    let is_open =
        |range: &str| ["application/openmetrics-text", "application/*", "*/*"].contains(&range);
    accepted.clone().any(is_plain) && !accepted.any(is_open)
}

/// Rewrites OpenMetrics as Prometheus' older text format. There, the head of a counter carries the name of its samples,
/// and units and the end have no lines of their own.
fn older_format(text: &str) -> String {
    let counters: Vec<&str> = names::ALL
        .iter()
        .filter(|metric| metric.kind == names::Kind::Counter)
        .map(|metric| metric.name)
        .collect();
    let mut older = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            older += line;
            older += "\n";
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(kind @ ("HELP" | "TYPE")), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let suffix = if counters.contains(&name) { "_total" } else { "" };
        older += &format!("# {kind} {name}{suffix} {rest}\n");
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_choose_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for open in ["", "*/*", prometheus, "text/html, application/*"] {
            assert!(!wants_older_format(open), "{open}");
        }
        for plain in ["text/plain", "text/plain;version=0.0.4", "text/html, text/*;q=0.5"] {
            assert!(wants_older_format(plain), "{plain}");
        }
    }

    #[test]
    fn the_older_format_names_counters_as_their_samples() {
        let open = "# HELP toroni_bytes Bytes.\n# TYPE toroni_bytes counter\n# UNIT toroni_bytes bytes\n\
            toroni_bytes_total{bus=\"a\"} 1\n# HELP toroni_topics Names.\n# TYPE toroni_topics gauge\n\
            toroni_topics{bus=\"# TYPE x\"} 2\n# EOF\n";
        let older = "# HELP toroni_bytes_total Bytes.\n# TYPE toroni_bytes_total counter\n\
            toroni_bytes_total{bus=\"a\"} 1\n# HELP toroni_topics Names.\n# TYPE toroni_topics gauge\n\
            toroni_topics{bus=\"# TYPE x\"} 2\n";
        assert_eq!(older_format(open), older);
    }
}
