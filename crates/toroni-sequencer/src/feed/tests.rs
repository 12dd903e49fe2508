//! Events by number.

mod archive;
