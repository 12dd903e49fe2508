//! Settings of the kernel below `/proc/sys`, and the commands that change them. Nothing here changes one.

use std::fmt;
use std::str::FromStr;

/// The file that keeps settings over a restart of the machine.
pub const FILE: &str = "/etc/sysctl.d/60-toroni.conf";

/// Reads a setting. The name is that of sysctl(8), as in `net.core.rmem_max`; in the name of an interface, `/` stands for
/// a dot, as there.
///
/// Returns `None` if the kernel or this namespace has no such setting, or it is no such value.
#[must_use]
pub fn read<T: FromStr>(name: &str) -> Option<T> {
    text(name)?.parse().ok()
}

/// Reads a setting that has several numbers, such as `net.ipv4.udp_mem`.
#[must_use]
pub fn read_list(name: &str) -> Option<Vec<u64>> {
    text(name)?.split_whitespace().map(|word| word.parse().ok()).collect()
}

fn text(name: &str) -> Option<String> {
    let path = path(name)?;
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn path(name: &str) -> Option<String> {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    let path: String = name.chars().map(swap).collect();
    // An interface may be called `..`, but no setting is above /proc/sys.
    let is_safe = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    is_safe.then(|| format!("/proc/sys/{path}"))
}

/// A change of a setting that would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The name of the setting.
    pub name: String,
    /// Its new value.
    pub value: String,
}

impl Change {
    /// Returns a change of a setting.
    #[must_use]
    pub fn new(name: impl Into<String>, value: impl ToString) -> Self {
        Self { name: name.into(), value: value.to_string() }
    }

    /// Returns the command that changes the setting until the machine is restarted.
    #[must_use]
    pub fn command(&self) -> String {
        format!("sysctl -w {}={}", self.name, quoted(&self.value))
    }

    /// Returns the line for [`FILE`] that keeps the setting.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} = {}", self.name, self.value)
    }
}

fn quoted(value: &str) -> String {
    if value.contains(' ') { format!("'{value}'") } else { value.to_owned() }
}

/// Prints the command and the line: `sysctl -w net.core.rmem_max=8388608; to keep it, write …`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; to keep it over a restart, write `{}` to {FILE}",
            self.command(),
            self.line()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        assert!(read::<u64>("net.ipv4.igmp_max_memberships").is_some());
        assert_eq!(read_list("net.ipv4.udp_mem").map(|list| list.len()), Some(3));
        assert_eq!(read::<u64>("net.ipv4.no_such_setting"), None);
        assert_eq!(read::<u64>("kernel.ostype"), None);
        assert_eq!(read::<String>("kernel.ostype").as_deref(), Some("Linux"));
    }

    #[test]
    fn names_of_interfaces_may_have_dots_and_lead_nowhere_else() {
        assert_eq!(
            path("net.ipv4.conf.eth0/100.rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.100/rp_filter")
        );
        for name in ["net.ipv4.conf.//.x", "..self", "", "net..x"] {
            assert_eq!(path(name), None, "{name}");
        }
    }

    #[test]
    fn a_change_is_a_command_and_a_line() {
        let change = Change::new("net.core.rmem_max", 8_388_608);
        assert_eq!(
            change.to_string(),
            "sysctl -w net.core.rmem_max=8388608; to keep it over a restart, write `net.core.rmem_max = 8388608` to \
             /etc/sysctl.d/60-toroni.conf"
        );
        assert_eq!(Change::new("a.b", "1 2 3").command(), "sysctl -w a.b='1 2 3'");
    }
}
