//! Opening and creating a bus.

pub(in crate::bus) mod config;
pub(in crate::bus) mod disk;
