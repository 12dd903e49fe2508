//! The soak of the sequencer: real nodes that keep one order, of which any is killed, stopped, cut off or left without room on its
//! disk, while programs send commands and everything is recorded. Afterwards, [`toroni_testkit::history`] checks all of it.
//!
//! ```text
//!   host-0: member    programs ─► bus orders.commands ─► node ─┐             ┌─ node ─► bus orders ─► reader
//!   host-1: member         "                                   ├─► switch ─► ┤  "
//!   host-2: member         "                                   │             │  "
//!   host-3: no member      "                                   │             │  "
//!   host-4: archive                                       node ┘             └─ node ─► bus orders ─► reader
//! ```
//!
//! Hosts are network namespaces behind a switch. The state of each member is on a small disk of its own. All hosts have a key.
//!
//! - [`trace`]: what a host or a log has of the order.
//! - `site`: a host with its node; `disk`: its disk; `load`: the programs that send, and that ask who leads.
//! - [`nemesis`]: the faults; `hostile`: connections that are only held; `shim`: clocks and disks that deceive a node.
//! - [`supervisor`]: the run itself; `judge`: the check; [`figures`]: what came of it.

pub mod disk;
pub mod figures;
mod hostile;
mod judge;
mod load;
pub mod nemesis;
mod shim;
mod site;
pub mod supervisor;
pub mod trace;
