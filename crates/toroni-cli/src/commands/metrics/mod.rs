//! `toroni serve-metrics`: the buses of this host as metrics, for Prometheus and other collectors of OpenMetrics.

mod collect;
mod names;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use collect::Observer;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use toroni::OpenError;
use toroni_http::Request;
use toroni_proactor::{Listener, Proactor, Watch};
use toroni_shell::failure::Failure;
use toroni_shell::location::{BusLocation, parse_address};
use toroni_shell::note;
use toroni_shell::ready::ReadyFd;
use toroni_shell::stop::{GracePeriod, Stop};

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
    /// Address or name, and port to listen on; port 0 is any free port
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9478",
        value_parser = parse_address
    )]
    listen: SocketAddr,
    /// Write a line to descriptor N when clients can connect
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
}

/// Serves until a signal arrives.
pub(crate) fn run(
    location: &BusLocation,
    arguments: &ServeMetrics,
    buses: Option<Vec<String>>,
) -> Result<(), Failure> {
    let ready = ReadyFd::claim(arguments.ready_fd)?;
    // A bus need not exist yet, but a name that no bus can have never will.
    for name in buses.iter().flatten() {
        if let Err(error @ OpenError::InvalidName(_)) = location.config().open_existing(name) {
            return Err(error.into());
        }
    }
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
    let answer = move |request: &Request<'_>| {
        toroni_http::metrics::answer(request, || observer.metrics().to_string())
    };
    proactor
        .spawn(toroni_http::serve(proactor.downgrade(), listener, Arc::new(answer)))
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
