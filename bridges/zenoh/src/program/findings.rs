//! What is wrong or doubtful in a configuration. All of it is found at once, before the bus or a socket is opened.

use super::file::{self, Settings};
use super::{Failure, log::one_line};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use toroni::Pattern;
use toroni_zenoh::Config;
use toroni_zenoh::config::{Deletes, Export, Import, MAX_HOPS, ZenohSource};

/// The error if there is neither an export nor an import.
pub(crate) const NOTHING_TO_DO: &str = "nothing is exported or imported: give --export PATTERN or --import PATTERN, or [[export]] or [[import]] in the \
     file of --config";

/// Heartbeats that are rarer delay the report of a loss for longer than most users expect.
const SLOW_HEARTBEAT: Duration = Duration::from_secs(60);
/// With what follows the drain, the bridge ends within the 30 s of its unit.
const LONG_DRAIN: Duration = Duration::from_secs(15);
const FAST_HEARTBEAT: Duration = Duration::from_millis(10);

/// One finding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whether the bridge refuses to start.
    pub(crate) is_refused: bool,
    /// Which setting.
    setting: String,
    problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_refused { "refused" } else { "warning" };
        write!(formatter, "{kind}: {}: {}", self.setting, self.problem)
    }
}

/// `check FILE`: prints the effective configuration on standard output, and every finding on standard error.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let settings = file::load(path)?;
    let written = std::io::stdout().write_all(file::effective(&settings).as_bytes());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Failure::Failed(format!("cannot write to standard output: {error}")));
        }
        _ => {}
    }
    let findings = of(&settings);
    for finding in &findings {
        let _ = writeln!(std::io::stderr(), "toroni zenoh: {finding}");
    }
    match findings.iter().filter(|finding| finding.is_refused).count() {
        0 => Ok(()),
        count => Err(Failure::Refused(format!(
            "{}: the bridge would not start: {count} of these findings {}",
            path.display(),
            if count == 1 { "is a reason" } else { "are reasons" }
        ))),
    }
}

/// Returns all findings: first those for which the bridge refuses to start.
pub(crate) fn of(settings: &Settings) -> Vec<Finding> {
    let mut found = Found::default();
    let config = &settings.bridge;
    found.whole(config);
    for (index, export) in config.exports.iter().enumerate() {
        found.export(&format!("export {}", index + 1), export);
    }
    for (index, import) in config.imports.iter().enumerate() {
        found.import(&format!("import {}", index + 1), import);
    }
    found.overlaps(&config.exports);
    found.zenoh(&config.zenoh);
    if let Some(address) = settings.metrics.filter(|address| !address.ip().is_loopback()) {
        found.warn(
            "metrics",
            format!(
                "{address} is not a loopback address: everyone who reaches it reads the metrics"
            ),
        );
    }
    // The library has the last word.
    if !found.0.iter().any(|finding| finding.is_refused)
        && let Err(error) = toroni_zenoh::check_config(config)
    {
        found.refuse("the bridge", one_line(&error.to_string()));
    }
    found.0.sort_by_key(|finding| !finding.is_refused);
    found.0
}

#[derive(Default)]
struct Found(Vec<Finding>);

impl Found {
    fn refuse(&mut self, setting: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Finding { is_refused: true, setting: setting.into(), problem: problem.into() });
    }

    fn warn(&mut self, setting: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Finding {
            is_refused: false,
            setting: setting.into(),
            problem: problem.into(),
        });
    }

    fn whole(&mut self, config: &Config) {
        if config.exports.is_empty() && config.imports.is_empty() {
            self.refuse("export, import", NOTHING_TO_DO);
        }
        if !(1..=MAX_HOPS).contains(&config.hops) {
            self.refuse("hops", format!("is {}, and must be 1 to {MAX_HOPS}", config.hops));
        }
        if config.heartbeat < FAST_HEARTBEAT {
            self.refuse("heartbeat", "is shorter than 10ms");
        } else if config.heartbeat > SLOW_HEARTBEAT {
            self.warn(
                "heartbeat",
                "is longer than 1min: a lost last message may remain unreported for that long",
            );
        }
        if config.drain > LONG_DRAIN {
            self.warn(
                "drain",
                "is longer than 15s: systemd kills the bridge 30 s after it has asked it to stop, unless its unit says otherwise",
            );
        }
        for (name, value) in [
            ("messages", config.queue.messages),
            ("bytes", config.queue.bytes),
            ("topics", config.queue.topics),
        ] {
            if value == 0 {
                self.refuse(format!("queue.{name}"), "is 0, and must be at least 1");
            }
        }
        self.key("realm", &config.realm);
        if config.realm.is_empty() || config.realm.contains('/') {
            self.refuse("realm", format!("{:?} is not one segment of a topic", config.realm));
        }
    }

    fn export(&mut self, name: &str, export: &Export) {
        let patterns = self.patterns(&format!("{name}: patterns"), &export.patterns);
        if export.patterns.is_empty() {
            self.refuse(format!("{name}: patterns"), "is empty: \"**\" exports everything");
        }
        self.key(&format!("{name}: prefix"), &export.prefix);
        let express = self.patterns(&format!("{name}: express"), &export.express);
        let encoded: Vec<String> = export.encoding.keys().cloned().collect();
        let encoded = self.patterns(&format!("{name}: encoding"), &encoded);
        for (setting, all) in [("express", express), ("encoding", encoded)] {
            for one in all.iter().filter(|one| !patterns.iter().any(|p| p.intersects(one))) {
                self.warn(
                    format!("{name}: {setting}"),
                    format!("no exported topic matches {:?}", one.as_str()),
                );
            }
        }
        self.verbatim(name, &export.patterns);
    }

    fn import(&mut self, name: &str, import: &Import) {
        self.patterns(&format!("{name}: patterns"), &import.patterns);
        if import.patterns.is_empty() {
            self.refuse(format!("{name}: patterns"), "is empty: \"**\" imports everything");
        }
        self.key(&format!("{name}: prefix"), &import.prefix);
        self.key(&format!("{name}: under"), &import.under);
        if import.reorder > Duration::from_secs(10) {
            self.warn(
                format!("{name}: reorder"),
                "is longer than 10s: a gap may delay what comes after it for that long",
            );
        }
        if import.batches && import.deletes == Deletes::Empty {
            self.warn(
                format!("{name}: deletes"),
                "has no effect: with `batches`, nothing comes from other programs than bridges",
            );
        }
        self.verbatim(name, &import.patterns);
    }

    /// Returns the well-formed ones.
    fn patterns(&mut self, setting: &str, texts: &[String]) -> Vec<Pattern> {
        let mut patterns = Vec::new();
        for text in texts {
            match Pattern::new(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => self.refuse(setting, error.to_string()),
            }
        }
        patterns
    }

    /// Checks segments that stand in front of topics.
    fn key(&mut self, setting: &str, key: &str) {
        if key.is_empty() {
            return;
        }
        // The rules of topics are those of patterns without wildcards.
        match Pattern::new(key) {
            Err(error) => self.refuse(setting, error.to_string()),
            Ok(_) if key.contains('*') => {
                self.refuse(setting, format!("{key:?} contains a wildcard: write whole segments"));
            }
            Ok(_) if key.contains(['$', '?', '#']) => {
                self.refuse(
                    setting,
                    format!("{key:?} contains $, ? or #, which no key of Zenoh may contain"),
                );
            }
            Ok(_) if key.split('/').any(|segment| segment.starts_with('@')) => self.warn(
                setting,
                format!(
                    "{key:?} has a segment that begins with @: no wildcard of Zenoh matches it"
                ),
            ),
            Ok(_) => {}
        }
    }

    fn verbatim(&mut self, name: &str, patterns: &[String]) {
        for pattern in patterns.iter().filter(|one| one.split('/').any(|s| s.starts_with('@'))) {
            self.warn(
                format!("{name}: patterns"),
                format!(
                    "{pattern:?} has a segment that begins with @: no wildcard of Zenoh matches it"
                ),
            );
        }
    }

    /// A message belongs to one export.
    fn overlaps(&mut self, exports: &[Export]) {
        for (first, one) in exports.iter().enumerate() {
            for (second, other) in exports.iter().enumerate().skip(first + 1) {
                for (a, b) in one
                    .patterns
                    .iter()
                    .flat_map(|a| other.patterns.iter().map(move |b| (a, b)))
                    .filter_map(|(a, b)| Some((Pattern::new(a).ok()?, Pattern::new(b).ok()?)))
                    .filter(|(a, b)| a.intersects(b))
                {
                    self.refuse(
                        format!("export {} and export {}", first + 1, second + 1),
                        format!("a topic can match both {:?} and {:?}", a.as_str(), b.as_str()),
                    );
                }
            }
        }
    }

    fn zenoh(&mut self, source: &ZenohSource) {
        let config = match source {
            ZenohSource::Default => return self.unencrypted(""),
            ZenohSource::File(path) => {
                if let Ok(text) = std::fs::read_to_string(path) {
                    self.unencrypted(&text);
                }
                zenoh::Config::from_file(path)
            }
            ZenohSource::Table(table) => {
                let text = serde_json::Value::Object(table.clone()).to_string();
                self.unencrypted(&text);
                zenoh::Config::from_json5(&text)
            }
        };
        if let Err(error) = config {
            self.refuse("zenoh", one_line(&error.to_string()));
        }
    }

    /// A look at the text suffices for a warning.
    fn unencrypted(&mut self, text: &str) {
        if !text.contains("tls") && !text.contains("quic") {
            self.warn(
                "zenoh",
                "nothing here asks for TLS or QUIC: every program that reaches the network can read and send messages",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::options::LogFormat;

    fn found(change: impl FnOnce(&mut Config)) -> Vec<String> {
        let mut bridge = Config { exports: vec![Export::new(["plant/**"])], ..Config::default() };
        change(&mut bridge);
        let settings = Settings { bridge, metrics: None, log: LogFormat::Text };
        of(&settings).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_ordinary_configuration_has_one_warning() {
        let found = found(|_| {});
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("warning: zenoh: nothing here asks for TLS"), "{found:?}");
    }

    #[test]
    fn everything_wrong_is_found_at_once() {
        let found = found(|config| {
            config.hops = 9;
            config.heartbeat = Duration::ZERO;
            config.drain = Duration::from_secs(16);
            config.queue.bytes = 0;
            config.realm = "a/*".to_owned();
            config.exports[0].prefix = "/x".to_owned();
            config.exports[0].express = vec!["other".to_owned()];
            config.exports.push(Export::new(["**"]));
            config.exports.push(Export::new(["a//b"]));
            config.imports.push(Import::new(["@x/*"]));
            (config.imports[0].batches, config.imports[0].deletes) = (true, Deletes::Empty);
            config.imports.push(Import::new(Vec::<String>::new()));
            let table = serde_json::json!({"modee": 7});
            config.zenoh = ZenohSource::Table(table.as_object().unwrap().clone());
        });
        for wanted in [
            "refused: hops: is 9, and must be 1 to 8",
            "refused: heartbeat: is shorter than 10ms",
            "refused: queue.bytes: is 0",
            "refused: realm: \"a/*\" contains a wildcard",
            "refused: export 1: prefix: ",
            "refused: export 3: patterns: ",
            "refused: export 1 and export 2: a topic can match both \"plant/**\" and \"**\"",
            "refused: import 2: patterns: is empty",
            "refused: zenoh: ",
            "warning: drain: is longer than 15s",
            "warning: export 1: express: no exported topic matches \"other\"",
            "warning: import 1: deletes: has no effect",
            "warning: import 1: patterns: \"@x/*\" has a segment that begins with @",
        ] {
            assert!(found.iter().any(|one| one.starts_with(wanted)), "{wanted}\n{found:#?}");
        }
        let first_warning = found.iter().position(|one| one.starts_with("warning")).unwrap();
        assert!(found[first_warning..].iter().all(|one| one.starts_with("warning")), "{found:#?}");
    }
}
