//! Tells the program which version of the peer it was built with: the crate does not say.

fn main() {
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let lock = std::fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let version = lock
        .split("[[package]]")
        .find(|package| package.contains("\nname = \"zenoh\"\n"))
        .and_then(|package| package.split("\nversion = \"").nth(1)?.split('"').next())
        .unwrap_or("of an unknown version");
    println!("cargo::rustc-env=ZENOH_VERSION={version}");
}
