//! `toroni node check`: reads a file as the node would, and starts nothing.

use clap::{Args, ValueHint};
use serde_json::json;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use toroni_net::host::interface;
use toroni_net::node::config::{self, Derived, Finding, LONGEST, Link, Place, Reading, Severity};
use toroni_net::node::start;
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::Output;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni node check node.toml
  toroni node check node.toml --no-host --json | jq 'select(.severity == \"error\")'
  toroni node check - < node.toml > all-values.toml

It prints a file with all values in force on standard output, and every finding on standard error. It also compares the file \
with the interfaces of this host, checks whether the user who runs it can use the key files, and says who may use a bus that it \
creates with its umask: run it as the user of the node.")]
pub(crate) struct Check {
    /// The file; - is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Do not compare the file with this host, and do not look for its key files: it is for another one
    #[arg(long)]
    no_host: bool,
    /// Print JSON: one object per finding, then one per derived number
    #[arg(long)]
    json: bool,
}

/// Prints the effective configuration and every finding. Fails if the node would refuse the file.
pub(crate) fn run(arguments: &Check) -> Result<(), Failure> {
    let path = &arguments.file;
    let mut reading = read(path, !arguments.no_host)?;
    if !arguments.no_host {
        let found = keys(&reading);
        reading.findings.splice(0..0, found);
    }
    let derived = reading.node.as_ref().map_or_else(Vec::new, |node| {
        let mut derived = config::derived(node);
        if !arguments.no_host {
            state_receive_buffer(&mut derived, node);
            let (what, value) = ("who may use it, if the node creates it", users_of_new_bus(node));
            let of = format!("bus {}", node.bus.name);
            derived.extend(value.map(|(value, _)| Derived { of, what, value }));
        }
        derived
    });
    if arguments.json {
        print_json(&reading, &derived)?;
    } else {
        print(path, &reading, &derived)?;
    }
    let errors = reading.findings.iter().filter(|finding| finding.severity == Severity::Error);
    match errors.count() {
        0 => Ok(()),
        count => Err(refused(path, count)),
    }
}

/// Reads the file of a node for a command that is not the node. Other hosts' files may be read here.
pub(crate) fn configuration(path: &Path) -> Result<config::Node, Failure> {
    let mut reading = read(path, false)?;
    reading.findings.retain(|finding| finding.severity == Severity::Error);
    print_findings(path, &reading);
    match (reading.node, reading.findings.len()) {
        (Some(node), 0) => Ok(node),
        (_, errors) => Err(refused(path, errors)),
    }
}

/// Returns the failure of a file with errors.
pub(super) fn refused(path: &Path, errors: usize) -> Failure {
    Failure::Usage(format!(
        "{}: a node would not start with this file: {}",
        path.display(),
        human::counted(errors as u64, "error")
    ))
}

/// Reads a file. With `host`, also compares it with the interfaces of this host.
pub(crate) fn read(path: &Path, host: bool) -> Result<Reading, Failure> {
    let text = text_of(path)?;
    let mut reading = config::read(&text, path.parent().unwrap_or(Path::new("")));
    if host {
        let links = links()?;
        if let Some(node) = &reading.node {
            let place = reading.place("node", 0, Some("interfaces"));
            let found = config::check_host(node, &links).into_iter();
            let found = found.map(|finding| Finding { place, ..finding });
            reading.findings.splice(0..0, found);
        }
        propose(&mut reading.findings, &links);
    }
    Ok(reading)
}

/// Returns what keeps the user of this process from using the key files of a configuration.
pub(crate) fn keys(reading: &Reading) -> Vec<Finding> {
    let Some(node) = &reading.node else { return Vec::new() };
    let files = [("key_file", &node.key_file), ("key_file_next", &node.key_file_next)];
    let finding = |(key, path): (&str, &Option<PathBuf>)| {
        let error = start::key(path.as_deref()?).err()?;
        Some(Finding {
            severity: Severity::Error,
            place: reading.place("node", 0, Some(key)),
            setting: format!("[node]: {key}"),
            problem: format!(
                "{error}; this was checked as {}, and the node needs it as its own user",
                user()
            ),
        })
    };
    files.into_iter().filter_map(finding).collect()
}

/// Returns who runs this process: `the user toroni (997)`.
pub(crate) fn user() -> String {
    let id = rustix::process::geteuid().as_raw();
    format!("the user {}", named("/etc/passwd", id))
}

/// Returns the name that a file of users or groups has for a number, and the number.
fn named(file: &str, id: u32) -> String {
    // One of a directory service has only a number here.
    let all = std::fs::read_to_string(file).unwrap_or_default();
    let name = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    });
    name.map_or_else(|| id.to_string(), |name| format!("{name} ({id})"))
}

/// Returns who may publish and subscribe on a bus that the node creates, if its file names no groups: the umask decides. Also
/// returns whether other users than that of the node may. `None` if the file names groups, or the umask is not known.
pub(crate) fn users_of_new_bus(node: &config::Node) -> Option<(String, bool)> {
    if node.bus.writers.is_some() || node.bus.readers.is_some() {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    let mask = u32::from_str_radix(mask.trim(), 8).ok()?;
    let group = rustix::process::getegid().as_raw();
    Some(shown_users(mask, &user(), &named("/etc/group", group)))
}

/// A class of users gets both rights of a bus, or none.
fn shown_users(mask: u32, user: &str, group: &str) -> (String, bool) {
    let (group_may, others_may) = (mask & 0o060 == 0, mask & 0o006 == 0);
    let who = match (group_may, others_may) {
        (_, true) => "all users".to_owned(),
        (true, false) => format!("{user}, and the group {group}"),
        (false, false) => format!("only {user}"),
    };
    (format!("{who}, by the umask {mask:03o} of this process"), group_may || others_may)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let cannot = |error| Failure::Failed(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let source: &mut dyn Read = if path == Path::new("-") {
        &mut std::io::stdin()
    } else {
        &mut std::fs::File::open(path).map_err(cannot)?
    };
    // One byte more, so that a file which is too long is noticed. A device may never end.
    source.take(LONGEST as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    String::from_utf8(bytes).map_err(|error| {
        let Place { line, column } =
            Place::of(&String::from_utf8_lossy(error.as_bytes()), error.utf8_error().valid_up_to());
        Failure::Usage(format!("{}:{line}:{column}: this is not UTF-8", path.display()))
    })
}

/// Prints every finding on standard error.
pub(super) fn print_findings(path: &Path, reading: &Reading) {
    let mut errors = std::io::stderr();
    for finding in &reading.findings {
        // If standard error cannot be written to, there is no other place to report it.
        let _ = writeln!(errors, "{}", shown(path, finding));
    }
}

/// Returns a finding with its file.
pub(crate) fn shown(path: &Path, finding: &Finding) -> String {
    let gap = if finding.place.is_some() { "" } else { " " };
    format!("{}:{gap}{finding}", path.display())
}

/// States the receive buffer for which the node would ask on this host, in place of one for each 100 Mbit/s.
fn state_receive_buffer(derived: &mut [Derived], node: &config::Node) {
    let Ok(interfaces) = start::interfaces(node) else { return };
    let rate = start::receive_rate(&interfaces);
    for one in derived.iter_mut().filter(|one| one.what == config::RECEIVE_BUFFER) {
        one.what = "receive buffer that it asks for";
        one.value = format!(
            "{} bytes, for {} (SO_RCVBUF; the kernel doubles it)",
            start::receive_buffer(rate, node.stall),
            human::bit_rate(rate)
        );
    }
}

fn print(path: &Path, reading: &Reading, derived: &[Derived]) -> Result<(), Failure> {
    print_findings(path, reading);
    if reading.node.is_none() {
        return Ok(());
    }
    let mut output = Output::new()?;
    output.bytes(reading.effective.as_bytes())?;
    let mut about = String::new();
    for derived in derived {
        if about != derived.of {
            output.line(&format!("\n# {}", derived.of))?;
            about.clone_from(&derived.of);
        }
        output.line(&format!("#   {}: {}", derived.what, derived.value))?;
    }
    output.flush()
}

fn print_json(reading: &Reading, derived: &[Derived]) -> Result<(), Failure> {
    let mut output = Output::new()?;
    for Finding { severity, place, setting, problem } in &reading.findings {
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        output.json(&json!({
            "severity": severity,
            "line": place.map(|place| place.line),
            "column": place.map(|place| place.column),
            "setting": setting,
            "problem": problem,
        }))?;
    }
    for derived in derived {
        output.json(&json!({ "of": derived.of, "what": derived.what, "value": derived.value }))?;
    }
    output.flush()
}

/// Returns the interfaces of this host.
fn links() -> Result<Vec<Link>, Failure> {
    let cannot =
        |error| Failure::Failed(format!("cannot list the interfaces of this host: {error}"));
    let all = interface::all().map_err(cannot)?;
    let candidates = interface::candidates(all.clone());
    Ok(all.iter().map(|one| start::link(one, candidates.contains(one))).collect())
}

/// Adds a proposal to findings that ask for a rate: half of what the slowest interface can.
fn propose(findings: &mut [Finding], links: &[Link]) {
    let slowest = links.iter().filter_map(|link| Some((link.speed?, &link.name))).min();
    let Some((speed, name)) = slowest else { return };
    let rate = config::units::Quantity::Rate.show(speed / 2);
    for finding in findings {
        if finding.setting.ends_with(": data_rate") && finding.problem.starts_with("is missing") {
            finding.problem.push_str(&format!("; half of {name} would be \"{rate}\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_says_who_may_use_a_new_bus() {
        for (mask, wanted, is_shared) in [
            (0o022, "only the user a (1), by the umask 022 of this process", false),
            (0o026, "only the user a (1), by the umask 026 of this process", false),
            (0o007, "the user a (1), and the group b (2), by the umask 007 of this process", true),
            (0o002, "the user a (1), and the group b (2), by the umask 002 of this process", true),
            (0o000, "all users, by the umask 000 of this process", true),
        ] {
            let shown = shown_users(mask, "the user a (1)", "b (2)");
            assert_eq!(shown, (wanted.to_owned(), is_shared));
        }
        assert!(named("/etc/group", 0).ends_with("root (0)"));
        assert_eq!(named("/etc/group", 3_999_999_999), "3999999999");
    }
}
