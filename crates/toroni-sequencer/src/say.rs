//! What a member tells its operator. A member without a terminal, or whose log is on a full disk, works all the same.

use std::fmt::Display;
use std::io::Write;

/// Prints a line to standard error. Not `eprintln!`, which panics if nothing can be written there: the thread would end, and
/// not the process that must end, or must go on.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "toroni: {text}");
}
