//! Opening and creating a bus.

mod config;
mod disk;

pub use config::BusConfig;
pub use disk::Reopened;
