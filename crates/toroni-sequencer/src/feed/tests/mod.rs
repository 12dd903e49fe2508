//! Events by number, and hosts that follow them.

mod archive;
mod follow;
mod keeper;
mod live;
mod member;
mod series;
