//! What a host has and how it is configured, as far as multicast depends on it. Nothing here changes a setting.

pub mod address;
