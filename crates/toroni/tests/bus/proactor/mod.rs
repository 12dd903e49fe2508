//! Tests of subscribers in a proactor: in this process, and in the example `daemon`.

mod daemon_in_a_proactor;
#[path = "../../../../toroni-proactor/tests/common/mod.rs"]
mod engine;
mod subscribers_in_a_proactor;
