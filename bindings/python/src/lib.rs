//! Toroni for Python: the module `toroni._toroni`, whose items the package `toroni` exports.
//!
//! - `bus`, `publisher`, `exclusive`, `inlet`, `commands`, `subscriber`, `message`: the classes. `admin`: buses as files.
//! - `fair_mutex`: lets threads use a subscriber, or an exclusive publisher, one at a time. `blocking`: blocking calls
//!   that Python can interrupt.
//! - `buffer`: bytes of objects with Python's buffer protocol. It contains nearly all unsafe code.
//! - `net`: messages between hosts without a bus, for `toroni.net`.
//! - `settings`, `stats`, `errors`: conversions between Python and Rust.
//!
//! asyncio, the router, compositions and the exceptions need no Rust: they are Python code in `python/toroni/`.

mod admin;
mod blocking;
mod buffer;
mod bus;
mod commands;
mod errors;
mod exclusive;
mod fair_mutex;
mod inlet;
mod message;
mod net;
mod publisher;
mod settings;
mod stats;
mod subscriber;

use pyo3::prelude::*;

/// The part of the package `toroni` that is written in Rust.
#[pymodule(gil_used = false)]
mod _toroni {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::admin::{buses, clean, default_directory};
    #[pymodule_export]
    use crate::bus::Bus;
    #[pymodule_export]
    use crate::commands::{Commands, Pending};
    #[pymodule_export]
    use crate::exclusive::{ExclusivePublisher, ExclusiveTopic};
    #[pymodule_export]
    use crate::inlet::{Inlet, InletTopic};
    #[pymodule_export]
    use crate::message::{Message, Received};
    #[pymodule_export]
    use crate::net::Endpoint;
    #[pymodule_export]
    use crate::publisher::Publisher;
    #[pymodule_export]
    use crate::settings::Policy;
    #[pymodule_export]
    use crate::subscriber::Subscriber;
    #[pymodule_export]
    use crate::subscriber::matches;

    #[pymodule_init]
    fn add_version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
