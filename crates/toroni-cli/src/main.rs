//! The `toroni` program.
fn main() {}
