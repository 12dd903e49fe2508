//! The soak between hosts: real nodes that are killed and stopped, behind a switch that loses and reorders, with each
//! message checked.
//!
//! ```text
//!   host-0: 10 publishers ─► bus ─► node ─┐             ┌─ node ─► bus ─► checker
//!   host-1:      "                   "    ├─► switch ─► ┤   "       "        "
//!   host-2:      "                   "   ─┘             ├─  "       "        "
//!                                                       └─ node ─► bus ─► checker of the crybaby
//! ```
//!
//! Hosts are network namespaces. The last one, the *crybaby*, only receives, and loses so much that it asks for
//! repairs all the time. Hosts are rebooted and restored from backups, too. All have a key, and a stranger without it sends again
//! what it has recorded.
//!
//! - [`checker`]: what one host's bus must bring: each message once, in its publisher's order, and what is missing as
//!   reported.
//! - `site`: a host with its bus and its node.
//! - [`supervisor`]: the run itself; [`figures`]: what came of it.

pub mod checker;
pub mod figures;
pub mod site;
pub mod supervisor;
