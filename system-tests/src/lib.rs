//! Helpers of the tests that drive the `toroni` program as its users do.
