//! All contenders of a run: their programs, what they report about themselves, and those that have dropped out.

use std::collections::BTreeMap;
use std::time::Duration;

use toroni_bench_harness::Failure;
use toroni_bench_harness::process_group::{self, Begin, Launch, NoObserver, Outcome, Program};
use toroni_bench_harness::registry::Work;
use toroni_bench_harness::report::{Cell, Table};
use toroni_bench_harness::transport::{About, Setup, Transport as _};
use toroni_bench_harness::transports::Toroni;

use crate::child;

use super::contender::{Contender, OWN};
use super::foreign::Missing;

/// The peers of a run, by name.
pub(super) struct Field {
    /// Those that can take part, in the order of the table, without Toroni.
    names: Vec<&'static str>,
    peers: BTreeMap<&'static str, State>,
}

enum State {
    Present {
        program: Program,
        about: Option<About>,
        /// Whether a run of it has succeeded.
        has_run: bool,
    },
    Missing(Missing),
}

/// The reason why a run failed.
#[derive(Clone, Debug)]
pub(super) struct Failed(pub(super) String);

impl Field {
    /// Collects Toroni and those of `names` that are wanted, or all of them. `build` makes the program of a foreign one.
    ///
    /// # Errors
    /// If the path of this program is unknown.
    pub(super) fn gather(
        names: Vec<&'static str>,
        wanted: &[String],
        mut build: impl FnMut(&'static str) -> Result<Program, Missing>,
    ) -> Result<Field, Failure> {
        let own = child::program()?;
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|other| other == name);
        let present = |program| State::Present { program, about: None, has_run: false };
        let mut peers = BTreeMap::from([(Toroni::NAME, present(own.clone()))]);
        for name in names.iter().copied().filter(|name| is_wanted(name)) {
            let program = if OWN.contains(&name) { Ok(own.clone()) } else { build(name) };
            peers.insert(name, program.map_or_else(State::Missing, present));
        }
        Ok(Field { names, peers })
    }

    /// Returns whether it belongs to this run, even if it is missing.
    pub(super) fn has(&self, contender: &Contender) -> bool {
        self.peers.contains_key(contender.peer)
    }

    /// Returns whether it can be measured.
    pub(super) fn is_present(&self, contender: &Contender) -> bool {
        matches!(self.peers.get(contender.peer), Some(State::Present { .. }))
    }

    /// Runs `work` once. A peer whose first run fails is missing from then on.
    pub(super) fn run<W: Work>(
        &mut self,
        contender: &Contender,
        setup: &Setup,
        work: &W,
    ) -> Result<Outcome<W::Sent, W::Received>, Failed> {
        let Some(State::Present { program, about, has_run }) = self.peers.get_mut(contender.peer)
        else {
            return Err(Failed("it is missing".to_owned()));
        };
        let mut launch = Launch::new(program.clone(), contender.transport, &NoObserver);
        // Longer than any run takes, and shorter than a person waits for a run that hangs.
        launch.silence_timeout = Duration::from_secs(60);
        match process_group::run(&launch, setup, work, Begin::AtTheGate) {
            Ok(outcome) => {
                *about = Some(outcome.about.clone());
                *has_run = true;
                Ok(outcome)
            }
            Err(failure) => {
                if !*has_run && !contender.is_toroni() {
                    let missing = Missing(format!("it cannot be started: {failure}"));
                    eprintln!("{} is missing: {}", contender.peer, missing.0);
                    self.peers.insert(contender.peer, State::Missing(missing));
                }
                Err(Failed(failure.to_string()))
            }
        }
    }

    pub(super) fn table(&self) -> Table {
        let names = std::iter::once(Toroni::NAME).chain(self.names.iter().copied());
        let rows = names.filter_map(|name| Some((name.to_owned(), self.peers.get(name)?.cells())));
        Table {
            name: "peers".to_owned(),
            title: "The contenders, and the settings of their last run".to_owned(),
            corner: "peer".to_owned(),
            columns: ["state", "version", "settings"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
            ..Table::default()
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let missing = self.peers.iter().filter_map(|(name, state)| match state {
            State::Missing(Missing(reason)) => Some(format!("MISSING: {name}: {reason}")),
            State::Present { .. } => None,
        });
        missing.collect()
    }
}

impl State {
    fn cells(&self) -> Vec<Cell> {
        let (state, about) = match self {
            State::Present { about, .. } => ("measured".to_owned(), about.as_ref()),
            State::Missing(_) => ("MISSING, see below".to_owned(), None),
        };
        let of = |text: fn(&About) -> &String| {
            about.map_or_else(Cell::none, |about| Cell::text(text(about)))
        };
        vec![Cell::text(state), of(|about| &about.version), of(|about| &about.settings)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Workload;
    use crate::peers::contender::{peers_of, singles};
    use crate::peers::foreign;
    use std::path::{Path, PathBuf};

    /// Collects these peers, from packages that do not exist.
    fn gather(wanted: &[&str]) -> Field {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let build = |name| foreign::build(Path::new("/nonexistent/peers"), name);
        Field::gather(peers_of(Workload::Many), &wanted, build).unwrap()
    }

    #[test]
    fn a_missing_peer_is_in_the_table_and_in_the_notes() {
        let field = gather(&["nng", "pipe"]);
        let table = field.table();
        let rows: Vec<(&str, &str)> = table
            .rows
            .iter()
            .map(|(name, cells)| (name.as_str(), cells[0].text.as_str()))
            .collect();
        assert_eq!(
            rows,
            [("toroni", "measured"), ("nng", "MISSING, see below"), ("pipe", "measured")]
        );
        let notes = field.notes();
        assert!(notes[0].starts_with("MISSING: nng: there is no /nonexistent"), "{notes:?}");
        assert!(notes[0].contains("bench/install-peers"), "{notes:?}");
        let nng = singles().into_iter().find(|contender| contender.peer == "nng").unwrap();
        assert!(field.has(&nng) && !field.is_present(&nng));
    }

    #[test]
    fn a_peer_that_cannot_be_started_is_missing_from_then_on() {
        let mut field = gather(&["pipe"]);
        let program = Program { path: PathBuf::from("/bin/false"), arguments: Vec::new() };
        field.peers.insert("pipe", State::Present { program, about: None, has_run: false });
        let pipe = singles().into_iter().find(|contender| contender.peer == "pipe").unwrap();
        let setup = Setup {
            senders: 1,
            receivers: 1,
            message_bytes: 8,
            capacity_bytes: 1 << 20,
            wait: toroni_bench_harness::transport::Wait::Busy,
            in_place: false,
        };
        let work = toroni_bench_harness::workload::ping_pong::PingPong { rounds: 1 };
        assert!(field.run(&pipe, &setup, &work).is_err());
        assert!(!field.is_present(&pipe));
        assert!(field.notes()[0].contains("cannot be started"), "{:?}", field.notes());
    }
}
