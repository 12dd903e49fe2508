//! The configuration file, and the command line in its place.

use super::options::{LogFormat, Options};
use super::parsing::{Bytes, Span, explain, name_or_table, shown_bytes, shown_span};
use super::{Failure, findings};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::Value;
use toroni_zenoh::Config;
use toroni_zenoh::config::{
    BusSettings, Congestion, Deletes, Export, Import, Priority, ZenohSource,
};

/// The whole configuration: that of the library, and what only the program has.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) bridge: Config,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) log: LogFormat,
}

/// What a file may contain. What is missing has the default of the library.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, deserialize_with = "name_or_table")]
    bus: BusTable,
    realm: Option<String>,
    source: Option<String>,
    #[serde(default)]
    zenoh: ZenohSource,
    #[serde(default, rename = "export")]
    exports: Vec<Export>,
    #[serde(default, rename = "import")]
    imports: Vec<Import>,
    #[serde(default)]
    queue: QueueTable,
    heartbeat: Option<Span>,
    settle: Option<Span>,
    drain: Option<Span>,
    hops: Option<u8>,
    metrics: Option<SocketAddr>,
    #[serde(default)]
    log: LogFormat,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BusTable {
    name: Option<String>,
    directory: Option<PathBuf>,
}

impl From<String> for BusTable {
    fn from(name: String) -> Self {
        Self { name: Some(name), directory: None }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueTable {
    messages: Option<usize>,
    bytes: Option<Bytes>,
    topics: Option<usize>,
}

/// Returns the settings of the command line: those of its file, or the options.
pub(crate) fn settings(options: &Options) -> Result<Settings, Failure> {
    let mut settings = match &options.config {
        Some(path) => load(path)?,
        None => of_options(options)?,
    };
    settings.metrics = options.metrics.or(settings.metrics);
    settings.log = options.log.unwrap_or(settings.log);
    Ok(settings)
}

/// Reads a file.
pub(crate) fn load(path: &Path) -> Result<Settings, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("cannot read {}: {error}", path.display())))?;
    let file =
        toml::from_str(&text).map_err(|error| Failure::Refused(explain(path, &text, &error)))?;
    Ok(of_file(file, path.parent().unwrap_or(Path::new(""))))
}

fn of_file(file: File, folder: &Path) -> Settings {
    let File { bus, realm, source, zenoh, exports, imports, .. } = file;
    let File { queue, heartbeat, settle, drain, hops, metrics, log, .. } = file;
    let mut bridge = Config { bus: of_bus(bus.name, bus.directory), ..Config::default() };
    bridge.realm = realm.unwrap_or(bridge.realm);
    bridge.source = source;
    bridge.zenoh = match zenoh {
        // As seen from the file in which it stands.
        ZenohSource::File(path) => ZenohSource::File(folder.join(path)),
        other => other,
    };
    bridge.exports = exports;
    bridge.imports = imports;
    bridge.queue.messages = queue.messages.unwrap_or(bridge.queue.messages);
    bridge.queue.bytes = queue.bytes.map_or(bridge.queue.bytes, |Bytes(bytes)| bytes);
    bridge.queue.topics = queue.topics.unwrap_or(bridge.queue.topics);
    bridge.heartbeat = heartbeat.map_or(bridge.heartbeat, |Span(span)| span);
    bridge.settle = settle.map_or(bridge.settle, |Span(span)| span);
    bridge.drain = drain.map_or(bridge.drain, |Span(span)| span);
    bridge.hops = hops.unwrap_or(bridge.hops);
    Settings { bridge, metrics, log }
}

fn of_options(options: &Options) -> Result<Settings, Failure> {
    if options.exports.is_empty() && options.imports.is_empty() {
        return Err(Failure::Refused(findings::NOTHING_TO_DO.to_owned()));
    }
    let mut bridge = Config {
        bus: of_bus(options.bus.clone(), options.dir.clone()),
        zenoh: of_endpoints(&options.connect, &options.listen),
        ..Config::default()
    };
    if !options.exports.is_empty() {
        let mut export = Export::new(options.exports.clone());
        export.prefix.clone_from(&options.prefix);
        export.history = options.history;
        bridge.exports.push(export);
    }
    if !options.imports.is_empty() {
        let mut import = Import::new(options.imports.clone());
        import.prefix.clone_from(&options.prefix);
        import.history = options.history;
        bridge.imports.push(import);
    }
    Ok(Settings { bridge, metrics: None, log: LogFormat::default() })
}

/// Takes from the environment what is not given. As in the library, an empty variable counts as not set.
fn of_bus(name: Option<String>, directory: Option<PathBuf>) -> BusSettings {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let name = name.or_else(|| variable("TORONI_BUS")).unwrap_or(BusSettings::default().name);
    BusSettings { name, directory: directory.or_else(|| variable("TORONI_DIR").map(PathBuf::from)) }
}

fn of_endpoints(connect: &[String], listen: &[String]) -> ZenohSource {
    let mut table = serde_json::Map::new();
    for (key, endpoints) in [("connect", connect), ("listen", listen)] {
        if !endpoints.is_empty() {
            table.insert(key.to_owned(), serde_json::json!({ "endpoints": endpoints }));
        }
    }
    if table.is_empty() { ZenohSource::Default } else { ZenohSource::Table(table) }
}

/// Returns the configuration as a file that contains every setting.
pub(crate) fn effective(settings: &Settings) -> String {
    let Settings { bridge, metrics, log } = settings;
    let mut file = toml::Table::new();
    let text = |text: &str| Value::String(text.to_owned());
    let mut bus = toml::Table::new();
    bus.insert("name".to_owned(), text(&bridge.bus.name));
    if let Some(directory) = &bridge.bus.directory {
        bus.insert("directory".to_owned(), Value::String(directory.display().to_string()));
    }
    file.insert("bus".to_owned(), bus.into());
    file.insert("realm".to_owned(), text(&bridge.realm));
    if let Some(source) = &bridge.source {
        file.insert("source".to_owned(), text(source));
    }
    match &bridge.zenoh {
        ZenohSource::Default => {}
        ZenohSource::File(path) => {
            file.insert("zenoh".to_owned(), Value::String(path.display().to_string()));
        }
        ZenohSource::Table(table) => {
            // It came from TOML or from texts, so TOML can express it.
            if let Ok(table) = Value::try_from(table) {
                file.insert("zenoh".to_owned(), table);
            }
        }
    }
    let mut queue = toml::Table::new();
    queue.insert("messages".to_owned(), number(bridge.queue.messages));
    queue.insert("bytes".to_owned(), Value::String(shown_bytes(bridge.queue.bytes)));
    queue.insert("topics".to_owned(), number(bridge.queue.topics));
    file.insert("queue".to_owned(), queue.into());
    file.insert("heartbeat".to_owned(), Value::String(shown_span(bridge.heartbeat)));
    file.insert("settle".to_owned(), Value::String(shown_span(bridge.settle)));
    file.insert("drain".to_owned(), Value::String(shown_span(bridge.drain)));
    file.insert("hops".to_owned(), Value::Integer(bridge.hops.into()));
    if let Some(address) = metrics {
        file.insert("metrics".to_owned(), Value::String(address.to_string()));
    }
    let log = match log {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    file.insert("log".to_owned(), text(log));
    let exports: Vec<Value> = bridge.exports.iter().map(of_export).collect();
    let imports: Vec<Value> = bridge.imports.iter().map(of_import).collect();
    for (key, all) in [("export", exports), ("import", imports)] {
        if !all.is_empty() {
            file.insert(key.to_owned(), Value::Array(all));
        }
    }
    toml::to_string(&file).unwrap_or_else(|error| format!("# cannot be printed: {error}\n"))
}

fn of_export(export: &Export) -> Value {
    let Export {
        patterns,
        prefix,
        priority,
        congestion,
        express,
        encoding,
        history,
        relay,
        gating,
    } = export;
    let congestion = match congestion {
        Congestion::Drop => "drop",
        Congestion::Block => "block",
    };
    let priority = match priority {
        Priority::RealTime => "real_time",
        Priority::InteractiveHigh => "interactive_high",
        Priority::InteractiveLow => "interactive_low",
        Priority::DataHigh => "data_high",
        Priority::Data => "data",
        Priority::DataLow => "data_low",
        Priority::Background => "background",
    };
    let encoding: toml::Table =
        encoding.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
    table([
        ("patterns", texts(patterns)),
        ("prefix", Value::String(prefix.clone())),
        ("priority", Value::String(priority.to_owned())),
        ("congestion", Value::String(congestion.to_owned())),
        ("express", texts(express)),
        ("encoding", encoding.into()),
        ("history", Value::Boolean(*history)),
        ("relay", Value::Boolean(*relay)),
        ("gating", Value::Boolean(*gating)),
    ])
}

fn of_import(import: &Import) -> Value {
    let Import { patterns, prefix, under, history, reorder, deletes, retain, batches } = import;
    let deletes = match deletes {
        Deletes::Ignore => "ignore",
        Deletes::Empty => "empty",
    };
    table([
        ("patterns", texts(patterns)),
        ("prefix", Value::String(prefix.clone())),
        ("under", Value::String(under.clone())),
        ("history", Value::Boolean(*history)),
        ("reorder", Value::String(shown_span(*reorder))),
        ("deletes", Value::String(deletes.to_owned())),
        ("retain", Value::Boolean(*retain)),
        ("batches", Value::Boolean(*batches)),
    ])
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn texts(all: &[String]) -> Value {
    Value::Array(all.iter().cloned().map(Value::String).collect())
}

fn number(count: usize) -> Value {
    Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
        bus = { name = "line", directory = "/mnt/buses" }
        realm = "plant"
        source = "a7"
        heartbeat = "500ms"
        settle = "2s"
        drain = "3s"
        hops = 3
        metrics = "127.0.0.1:9480"
        log = "json"
        zenoh = { mode = "client", connect = { endpoints = ["tls/10.0.0.1:7447"] } }
        queue = { messages = 10, bytes = "3MiB", topics = 7 }
        [[export]]
        patterns = ["plant/**"]
        prefix = "site-a"
        priority = "data_high"
        congestion = "block"
        express = ["plant/alarm/**"]
        encoding = { "plant/**" = "application/json" }
        history = true
        relay = true
        gating = true
        [[import]]
        patterns = ["**"]
        prefix = "site-b"
        under = "remote/b"
        history = true
        reorder = "50ms"
        deletes = "empty"
        batches = true
    "#;

    fn read(text: &str) -> Result<Settings, String> {
        let file = toml::from_str(text).map_err(|error| explain(Path::new("f"), text, &error))?;
        Ok(of_file(file, Path::new("/etc")))
    }

    /// A setting that `effective` forgets would come back as its default.
    #[test]
    fn the_effective_configuration_is_a_file_with_the_same_meaning() {
        for text in [FULL, "[[import]]\npatterns = ['a']\n"] {
            let settings = read(text).unwrap();
            let shown = effective(&settings);
            let again = read(&shown).unwrap();
            assert_eq!(format!("{again:?}"), format!("{settings:?}"), "{shown}");
        }
    }

    #[test]
    fn every_setting_of_a_file_arrives() {
        let default = format!("{:?}", read("[[export]]\npatterns = ['a']\n").unwrap());
        for line in FULL.lines().map(str::trim).filter(|line| line.contains(" = ")) {
            if line.starts_with("patterns") {
                continue;
            }
            let in_export = format!("[[export]]\npatterns = ['a']\n{line}\n");
            let outside = format!("{line}\n[[export]]\npatterns = ['a']\n");
            let in_import =
                format!("[[export]]\npatterns = ['a']\n[[import]]\npatterns = ['a']\n{line}\n");
            let one =
                [outside, in_export, in_import].iter().filter_map(|text| read(text).ok()).next();
            let settings = one.unwrap_or_else(|| panic!("{line} belongs nowhere"));
            assert_ne!(format!("{settings:?}"), default, "{line} changes nothing");
        }
    }

    #[test]
    fn errors_say_where_what_and_what_was_meant() {
        for (text, wanted) in [
            ("realn = 'x'", &["f:1:1: ", "unknown field `realn`", "did you mean `realm`?"][..]),
            ("hops = 3\n[[export]]\npaterns = ['a']", &["f:3:1: ", "did you mean `patterns`?"]),
            ("[[export]]\npatterns = ['a']\npriority = 'daata'", &["f:3:12: ", "`data`?"]),
            ("heartbeat = 1", &["f:1:13: ", "integer `1`", "a duration with a unit"]),
            ("heartbeat = '1'", &["f:1:13: ", "a duration with a unit"]),
            ("[queue]\nbytes = 64", &["f:2:9: ", "a size with a unit"]),
            ("[[import]]\npatterns = ['a']\nreorder = '20'", &["f:3:11: ", "ms"]),
            ("hops = 300", &["f:1:8: ", "300"]),
            ("bus = 7", &["f:1:7: ", "a name, or a table"]),
            ("[bus]\nnane = 'x'", &["f:2:1: ", "did you mean `name`?"]),
            ("[[export]]", &["f:1:1: ", "missing field `patterns`"]),
            ("metrics = '127.0.0.1'", &["f:1:11: ", "socket address"]),
            ("a = = 1", &["f:1:"]),
            ("größe = 1\nx", &["f:2:2: "]),
        ] {
            let error = read(text).unwrap_err();
            for part in wanted {
                assert!(error.contains(part), "{text:?}\n{error}");
            }
        }
    }

    #[test]
    fn a_file_of_zenoh_is_searched_beside_the_file_that_names_it() {
        let settings = read("zenoh = 'zenoh.json5'").unwrap();
        let ZenohSource::File(path) = settings.bridge.zenoh else { panic!() };
        assert_eq!(path, Path::new("/etc/zenoh.json5"));
    }
}
