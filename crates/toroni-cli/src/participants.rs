//! How publishers and subscribers are shown.

/// The states of a participant.
#[cfg(feature = "metrics")]
pub(crate) const STATES: [&str; 4] = ["alive", "stopped", "dumping", "dead"];

/// Returns the state of a participant in one word.
pub(crate) fn state(alive: bool, stopped: bool, dumping: bool) -> &'static str {
    match (alive, dumping, stopped) {
        (false, ..) => "dead",
        (true, true, _) => "dumping",
        (true, false, true) => "stopped",
        (true, false, false) => "alive",
    }
}

/// Returns a process ID as the tables show it.
pub(crate) fn pid(pid: u32, same_namespace: bool) -> String {
    // In this namespace, the number means another process.
    if same_namespace { pid.to_string() } else { format!("{pid} (other namespace)") }
}
