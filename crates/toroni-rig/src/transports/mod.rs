//! Adapters that need no foreign library.

mod toroni;

pub use toroni::Toroni;

use crate::Failure;
use crate::child::Child;
use crate::transport::Transport;
use crate::workload;

/// The names of these transports.
pub const NAMES: [&str; 1] = [Toroni::NAME];

/// Does a child's work over the one of these transports that its job names.
///
/// # Errors
/// If there is no such transport, or the work fails.
pub fn perform(child: &mut Child) -> Result<(), Failure> {
    match child.job().transport.as_str() {
        Toroni::NAME => workload::perform::<Toroni>(child),
        unknown => Err(Failure::new(format!(
            "there is no transport {unknown:?}: take one of {}",
            NAMES.join(", ")
        ))),
    }
}
