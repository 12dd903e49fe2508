//! The columns of the table, and what their names mean.
//!
//! ```text
//!   tp-reactor                               one reactor for all threads
//!   reactor DEAL                             a reactor for each thread
//!   ENGINE [KEY=VALUE …] [DEAL]              one proactor for all threads
//!   ENGINE [KEY=VALUE …] each DEAL           a proactor for each thread
//! ```
//!
//! A setting is a key of the proactor's configuration. A [`Deal`] says which thread takes which ends over.

use super::deal::Deal;
use super::engines::{ENGINES, Engine};
use crate::Failure;
use crate::process_group::Program;
use toroni_proactor::{Config, Proactor};

/// A column of the table: something that moves the bytes.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name above the column; its program knows it by this name, too.
    pub name: String,
    /// The comparisons that it takes part in.
    pub kind: Kind,
    /// The program that moves the bytes, as a child; or the reason why the column is missing.
    pub program: Result<Program, String>,
}

/// The comparisons that a column takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The engine that the proactor chooses by itself, however its ends are dealt. Goal: at least as fast as the reactor
    /// and all rivals.
    Auto,
    /// The same with settings, or a proactor for each thread.
    AutoVariant,
    /// An engine that the threads of the pool lead. Goal: not slower than the reactor.
    Shared,
    /// Another engine.
    Engine,
    /// The thread-pool reactor.
    Reactor,
    /// A reactor for each thread, or a foreign runtime.
    Rival,
}

/// What the name of a column of this crate means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// One reactor for all threads.
    Pool,
    /// A reactor for each thread.
    Reactors(Deal),
    /// One proactor for all threads. Without a deal, the main thread takes all ends over.
    Proactor(Config, Option<Deal>),
    /// A proactor for each thread.
    Proactors(Config, Deal),
}

impl Own {
    pub(super) fn of_column(name: &str) -> Result<Self, Failure> {
        let (rest, deal) = match Deal::of_column(name) {
            Some((rest, deal)) => (rest, Some(deal)),
            None => (name, None),
        };
        let (rest, is_each) = match rest.strip_suffix(" each") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let words: Vec<&str> = rest.split(' ').collect();
        let (settings, words): (Vec<&str>, Vec<&str>) =
            words.into_iter().partition(|word| word.contains('='));
        let is_plain = settings.is_empty() && !is_each;
        match (words.join(" ").as_str(), deal) {
            ("tp-reactor", None) if is_plain => Ok(Self::Pool),
            ("reactor", Some(deal)) if is_plain => Ok(Self::Reactors(deal)),
            (engine, deal) => {
                let config = configuration(engine, &settings)?;
                match (is_each, deal) {
                    (false, deal) => Ok(Self::Proactor(config, deal)),
                    (true, Some(deal)) => Ok(Self::Proactors(config, deal)),
                    (true, None) => Err(Failure::new(format!(
                        "column {name:?}: each thread has a proactor of its own, so say how ends are dealt: add \
                         \"pairs\" or \"apart\""
                    ))),
                }
            }
        }
    }

    fn kind(&self, name: &str) -> Kind {
        let is_auto = name.split(' ').next() == Some("auto");
        match self {
            Self::Pool => Kind::Reactor,
            Self::Reactors(_) => Kind::Rival,
            Self::Proactor(..) if is_auto && !name.contains('=') => Kind::Auto,
            Self::Proactor(..) | Self::Proactors(..) if is_auto => Kind::AutoVariant,
            // With settings or dealt, an engine is not what the goals are about.
            Self::Proactor(..) => ENGINES
                .iter()
                .find(|engine| engine.name == name)
                .map_or(Kind::Engine, |engine| engine.kind),
            Self::Proactors(..) => Kind::Engine,
        }
    }

    /// Returns why this machine or this version does not offer it, such as io_uring in most containers.
    fn missing(&self) -> Option<String> {
        match self {
            Self::Pool | Self::Reactors(_) => None,
            Self::Proactor(config, _) | Self::Proactors(config, _) => {
                Proactor::new(config).err().map(|error| error.to_string())
            }
        }
    }
}

/// Returns the configuration of an engine with these settings, `key=value`.
fn configuration(engine: &str, settings: &[&str]) -> Result<Config, Failure> {
    let Some(Engine { config, .. }) = ENGINES.iter().find(|known| known.name == engine) else {
        return Err(Failure::new(format!("this program has no column {engine:?}")));
    };
    let (mut of_proactor, mut of_processor) = (String::new(), format!("[[processor]]\n{config}"));
    for setting in settings {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let is_bare = value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok();
        let line =
            if is_bare { format!("{key} = {value}\n") } else { format!("{key} = {value:?}\n") };
        // Some keys belong to a processor, others to the whole proactor.
        if Config::parse(&format!("{of_proactor}{line}{of_processor}")).is_ok() {
            of_proactor.push_str(&line);
        } else {
            of_processor.push_str(&line);
        }
    }
    Config::parse(&format!("{of_proactor}{of_processor}"))
        .map_err(|error| Failure::new(error.to_string()))
}

/// Returns the columns of this crate, and those that were asked for by a name with settings.
#[must_use]
pub fn own_columns(program: &Program, asked_for: &[String]) -> Vec<Column> {
    let dealt = |name: &'static str| Deal::BOTH.map(|deal| format!("{name} {}", deal.name()));
    let mut names: Vec<String> = ENGINES.iter().map(|engine| engine.name.to_owned()).collect();
    names.extend(dealt("auto"));
    // The paper's configuration of the same engine.
    names.push("auto shards=1".to_owned());
    names.extend(dealt("auto each"));
    names.push("tp-reactor".to_owned());
    names.extend(dealt("reactor"));
    let is_new = |name: &&String| name.contains('=') && !names.contains(name);
    let asked_for: Vec<String> = asked_for.iter().filter(is_new).cloned().collect();
    names.extend(asked_for);
    names
        .into_iter()
        .map(|name| {
            let own = Own::of_column(&name);
            let kind = own.as_ref().map_or(Kind::AutoVariant, |own| own.kind(&name));
            let program = match own.map(|own| own.missing()) {
                Ok(None) => Ok(program.clone()),
                Ok(Some(why)) => Err(why),
                Err(failure) => Err(failure.to_string()),
            };
            Column { name, kind, program }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proactor::{ProcessorConfig, ProviderType, WaitType};

    fn epoll() -> ProcessorConfig {
        let (provider, wait) = (ProviderType::Select, WaitType::Epoll);
        ProcessorConfig { provider, wait, ..ProcessorConfig::default() }
    }

    #[test]
    fn a_name_says_what_moves_the_bytes() {
        let own = |name| Own::of_column(name).unwrap();
        assert_eq!(own("tp-reactor"), Own::Pool);
        assert_eq!(own("reactor apart"), Own::Reactors(Deal::Apart));
        assert_eq!(own("auto"), Own::Proactor(Config::default(), None));
        assert_eq!(own("auto each pairs"), Own::Proactors(Config::default(), Deal::Pairs));
        assert_eq!(
            own("epoll shared pairs"),
            Own::Proactor(Config::one(epoll()), Some(Deal::Pairs))
        );
        let limited = ProcessorConfig { max_operations: Some(7), ..epoll() };
        let limited = Config::one(limited);
        assert_eq!(own("epoll shared max-operations=7"), Own::Proactor(limited.clone(), None));
        let each = Own::Proactors(limited, Deal::Apart);
        assert_eq!(own("epoll shared max-operations=7 each apart"), each);
        let eventfd = own("auto interrupt=eventfd pairs");
        assert!(
            matches!(eventfd, Own::Proactor(config, Some(Deal::Pairs)) if config != Config::default())
        );
    }

    #[test]
    fn a_name_that_means_nothing_says_why() {
        for (name, why) in [
            ("kqueue", "no column \"kqueue\""),
            ("reactor", "no column \"reactor\""),
            ("tp-reactor pairs", "no column \"tp-reactor\""),
            ("auto each", "add \"pairs\" or \"apart\""),
            ("auto colour=red", "colour"),
            ("auto max-operations=0", "max-operations"),
        ] {
            let said = Own::of_column(name).unwrap_err().to_string();
            assert!(said.contains(why), "{name}: {said}");
        }
    }

    #[test]
    fn columns_with_settings_are_there_when_they_are_asked_for() {
        let program = Program { path: "/program".into(), arguments: Vec::new() };
        let count = own_columns(&program, &[]).len();
        let asked = ["auto max-operations=64 pairs", "auto colour=red", "auto"].map(str::to_owned);
        let columns = own_columns(&program, &asked);
        let [with_limit, refused] = &columns[count..] else { panic!("{columns:?}") };
        assert_eq!((with_limit.kind, with_limit.program.is_ok()), (Kind::AutoVariant, true));
        assert!(refused.program.as_ref().is_err_and(|why| why.contains("colour")), "{refused:?}");
        let kind = |name: &str| columns.iter().find(|column| column.name == name).unwrap().kind;
        assert_eq!([kind("auto"), kind("auto apart")], [Kind::Auto; 2]);
        assert_eq!([kind("epoll shared"), kind("epoll dedicated")], [Kind::Shared, Kind::Engine]);
        assert_eq!([kind("tp-reactor"), kind("reactor pairs")], [Kind::Reactor, Kind::Rival]);
    }
}
