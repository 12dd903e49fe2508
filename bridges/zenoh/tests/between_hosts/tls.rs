//! Two sites with mutual TLS: the example in `examples/mutual-tls`, with the addresses of the test.

use crate::hosts::{Host, Network, meet_as};
use std::path::{Path, PathBuf};
use std::process::Command;
use toroni_testkit::Program;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mutual-tls");

fn make_certificates(into: &Path, arguments: &[&str]) {
    let script = format!("{EXAMPLE}/make-certificates");
    let output = Command::new(script).arg(into).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Writes the file of a site as in the example, with this folder of certificates and these addresses.
fn configuration(host: &Host, site: &str, certificates: &Path, addresses: [&str; 2]) -> PathBuf {
    let text = std::fs::read_to_string(format!("{EXAMPLE}/{site}.toml")).unwrap();
    let text = text
        .replace("/etc/toroni/certificates", certificates.to_str().unwrap())
        .replace("site-a.example.com", addresses[0])
        .replace("site-b.example.com", addresses[1]);
    let path = host.path().join(format!("{site}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn two_sites_with_certificates_of_one_authority_connect_and_a_stranger_does_not() {
    let Some(network) = Network::new(3) else { return };
    let [a, b, stranger] = &network.hosts[..] else { unreachable!() };
    let addresses = [a.address(), b.address()];
    let addresses = [addresses[0].as_str(), addresses[1].as_str()];
    let certificates = a.path().join("certificates");
    make_certificates(
        &certificates,
        &[&format!("site-a={}", addresses[0]), &format!("site-b={}", addresses[1])],
    );
    let start = |host: &Host, site: &str, certificates: &Path| {
        let path = configuration(host, site, certificates, addresses);
        let checked = host.command(crate::hosts::BRIDGE, &["check", path.to_str().unwrap()]);
        let _ = Program::start(checked).succeed();
        host.bridge(&["--config", path.to_str().unwrap()])
    };
    a.create_bus();
    b.create_bus();
    let _a = start(a, "site-a", &certificates);
    let _b = start(b, "site-b", &certificates);
    // The stranger has certificates of the same names, by another authority.
    let forged = stranger.path().join("certificates");
    make_certificates(
        &forged,
        &[&format!("site-a={}", addresses[0]), &format!("site-b={}", stranger.address())],
    );
    let at_b = b.listen(&["**"]);
    let at_stranger = stranger.listen(&["**"]);
    let _stranger = start(stranger, "site-b", &forged);
    meet_as(a, "plant/hello", "site-a/plant/hello", &[&at_b]);
    a.publish("plant/line", 0..5_000, &["--rate", "5k/s"]);
    at_b.wait_settled("site-a/plant/line", 5_000);
    at_b.account().balance("site-a/plant/line", 5_000);
    assert!(at_stranger.account().messages().is_empty(), "{}", at_stranger.account().summary());
}
