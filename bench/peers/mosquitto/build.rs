//! Debian's libmosquitto, the library of the broker's own clients.

use std::process::Command;

fn main() {
    let found = Command::new("pkg-config").args(["--exists", "libmosquitto"]).status();
    assert!(
        found.is_ok_and(|status| status.success()),
        "libmosquitto was not found; Debian's package libmosquitto-dev has it"
    );
    println!("cargo:rustc-link-lib=mosquitto");
}
