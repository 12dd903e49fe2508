//! Toroni for Python: the module `toroni._toroni`, which the package `toroni` passes on.
//!
//! - `bus`, `publisher`, `subscriber`, `message`: the classes; `admin`: buses as files.
//! - `fair_mutex`: one subscriber for many threads, one at a time; `blocking`: blocking calls that Python can interrupt.
//! - `buffer`: bytes of Python's buffer protocol; the only unsafe code.
//! - `settings`, `stats`, `errors`: values that cross the border.
//!
//! What needs no Rust is Python, in `python/toroni/`: asyncio, the router, compositions, the exceptions.

mod admin;
mod blocking;
mod buffer;
mod bus;
mod errors;
mod fair_mutex;
mod message;
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
    use crate::message::{Message, Received};
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
