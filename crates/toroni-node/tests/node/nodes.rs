//! Nodes on the loopback interface, and their files.

use crate::support::Buses;
use std::hash::{DefaultHasher, Hash, Hasher};
use toroni_testkit::Program;

/// A group whose port no other test uses.
pub(crate) fn group() -> String {
    // Nodes of all tests are in one realm, so a port may not come twice, also if nothing listens there any more.
    format!("239.192.84.79:{}", toroni_testkit::port::free().port())
}

/// Writes the file of a node on the loopback interface, and returns its path.
pub(crate) fn file(buses: &Buses, name: &str, more: &str) -> String {
    let path = buses.path().join(format!("{name}.toml"));
    // Tests run at the same time, on one host: the id does not follow from the name.
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let id = u32::try_from(hasher.finish() >> 33).unwrap() + 1;
    let node = format!(
        "[node]\nrealm = 'test'\nname = '{name}'\nid = {id}\nbus = '{name}'\nstate = 'state-{name}'\n\
         interfaces = ['lo']\n"
    );
    std::fs::write(&path, node + more).unwrap();
    path.to_str().unwrap().to_owned()
}

pub(crate) fn sending(group: &str) -> String {
    // Repairs may take as long as a busy machine makes them take.
    format!(
        "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '20Mbit/s'\n\
         generation = '9s'\nttl = 0\nloop = true\n"
    )
}

pub(crate) fn receiving(group: &str) -> String {
    format!("[[receive]]\ngroup = '{group}'\ngeneration = '9s'\n")
}

pub(crate) fn start(buses: &Buses, path: &str) -> Program {
    let mut node = Program::start_with_ready_fd(buses.command(&["node", "--config", path]));
    node.wait_ready();
    node
}

/// Runs a node that does not start, and must say why.
pub(crate) fn refused(buses: &Buses, path: &str, wanted: &str) {
    let output = buses.run(&["node", "--config", path]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(wanted), "{error}");
}
