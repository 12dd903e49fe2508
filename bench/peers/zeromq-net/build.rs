//! Debian's libzmq has both protocols; the one that comes with the crate `zmq` has neither.

fn main() {
    println!("cargo:rustc-link-lib=zmq");
}
