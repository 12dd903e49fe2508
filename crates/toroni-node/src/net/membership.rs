//! What `net send` and `net receive` have in common: a node whose configuration is made of options, and no file.
//!
//! The configuration is text, as of a file, and read as one: so every rule of files holds here, and `--print` shows a file
//! with the same meaning.

use clap::Args;
use std::fmt::Write;
use std::path::Path;
use toroni_net::host::interface::{self, Interface};
use toroni_net::node::config::{self, Severity};
use toroni_net::node::start;
use toroni_proto::wire::Keys;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::note;
use toroni_shell::output::Output;

/// Who the process is in the network.
#[derive(Args)]
pub(super) struct Membership {
    /// The nodes of one realm hear one another
    #[arg(long, value_name = "REALM", default_value = "default")]
    realm: String,
    /// Interface on which to send and listen; may be given several times [default: the only one that can multicast]
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// Name of this process among the nodes [default: name of the host, command and process id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// File with the key of the realm
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<std::path::PathBuf>,
    /// Print the configuration as a file for `toroni node`, and do nothing else
    #[arg(long)]
    print: bool,
    /// Write a line to this inherited file descriptor when the sockets are open
    #[arg(long, value_name = "FD")]
    pub(super) ready_fd: Option<i32>,
}

/// Reads the key of a realm for a command that makes no node.
pub(super) fn keys(file: Option<&Path>) -> Result<Option<Keys>, Failure> {
    let key = file.map(start::key).transpose();
    let key = key.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(key.map(|first| Keys { first, next: None }))
}

impl Membership {
    /// Returns the interfaces, as far as there are any with these names.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        if self.interface.is_empty() {
            return interface::only().into_iter().collect();
        }
        self.interface.iter().filter_map(|name| interface::named(name).ok()).collect()
    }

    /// Returns the text of a file. `sections` is what it has beside `[node]`.
    fn text(&self, location: &BusLocation, command: &str, sections: &str) -> String {
        let mut text = format!("[node]\nrealm = {}\n", quoted(&self.realm));
        // In a file, the name of the host is that of its node.
        let name = match &self.name {
            Some(name) => Some(name.clone()),
            None if self.print => None,
            None => Some(own_name(&host_name(), command, std::process::id())),
        };
        if let Some(name) = name {
            let _ = writeln!(text, "name = {}", quoted(&name));
        }
        if !self.interface.is_empty() {
            let _ = writeln!(text, "interfaces = {}", list(&self.interface));
        }
        if let Some(path) = &self.key_file {
            // Relative paths of a configuration begin at its file.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let _ = writeln!(text, "key_file = {}", quoted(&path.to_string_lossy()));
        }
        let _ = writeln!(text, "[node.bus]\nname = {}", quoted(&location.bus));
        if let Some(directory) = &location.dir {
            let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
            let _ = writeln!(text, "directory = {}", quoted(&directory.to_string_lossy()));
        }
        text + sections
    }

    /// Returns the configuration, or `None` if it was printed. Says what is wrong or doubtful.
    pub(super) fn read(
        &self,
        location: &BusLocation,
        command: &str,
        sections: &str,
    ) -> Result<Option<config::Node>, Failure> {
        let text = self.text(location, command, sections);
        let reading = config::read(&text, Path::new("/"));
        // A node without a file has no state, and says so in its help.
        let findings = reading.findings.iter().filter(|finding| {
            finding.severity == Severity::Error || !finding.problem.starts_with("is missing")
        });
        for finding in findings {
            note::remark(&format!("net {command}: {}", finding_text(finding)));
        }
        let Some(node) = reading.node else {
            return Err(Failure::Usage(format!(
                "net {command}: a node would not start with these options"
            )));
        };
        if self.print {
            let mut output = Output::new()?;
            output.bytes(text.as_bytes())?;
            output.flush()?;
            return Ok(None);
        }
        Ok(Some(node))
    }
}

/// Returns a finding without its line: there is no file.
fn finding_text(finding: &config::Finding) -> String {
    config::Finding { place: None, ..finding.clone() }.to_string()
}

pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns a name, and so a source id, that no node of this host has: nodes have the name of the host, and two processes
/// differ in their ids.
fn own_name(host: &str, command: &str, pid: u32) -> String {
    /// What remains of 64 bytes.
    const HOST_BYTES: usize = 40;
    let host: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .take(HOST_BYTES)
        .collect();
    format!("{host}-{command}-{pid}")
}

/// Returns a text as TOML: a string of JSON is one of TOML.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns texts as a list of TOML.
pub(super) fn list<T: ToString>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(&text.to_string())).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_segments_of_at_most_64_bytes() {
        assert_eq!(own_name("line-3", "send", 4711), "line-3-send-4711");
        assert_eq!(own_name("a/b c", "receive", 1), "a-b-c-receive-1");
        let long = own_name(&"ü".repeat(99), "receive", u32::MAX);
        assert!(long.len() <= 64, "{long}");
        assert_ne!(own_name("a", "send", 1), own_name("a", "send", 2));
    }

    #[test]
    fn texts_with_quotes_stay_texts() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\n""#);
        assert_eq!(list(&["a", "b"]), r#"["a", "b"]"#);
    }
}
