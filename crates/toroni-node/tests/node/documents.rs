//! The files of nodes in the documents: `toroni node check` finds nothing wrong with any, and nothing without effect.

use crate::support::Buses;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

const DOCUMENTS: [(&str, &str); 3] = [
    ("network.md", include_str!("../../../../docs/network.md")),
    ("node-configuration.md", include_str!("../../../../docs/node-configuration.md")),
    ("sequencer.md", include_str!("../../../../docs/sequencer.md")),
];

/// Returns the files of nodes in a document.
fn files(document: &str) -> Vec<&str> {
    let blocks = document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.starts_with("[node]")).collect()
}

#[test]
fn no_file_of_a_node_in_the_documents_has_a_finding() {
    let buses = Buses::new();
    let key = buses.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let directory = buses.path().to_str().unwrap();
    let mut count = 0;
    for (name, document) in DOCUMENTS {
        for file in files(document) {
            count += 1;
            // What this host does not have.
            let file = file
                .replace("/etc/toroni/plant.key", key.to_str().unwrap())
                .replace("/var/lib/toroni", directory)
                .replace("\"eth0\"", "\"lo\"");
            let file = match file.contains("interfaces = ") {
                true => file,
                false => file.replacen("realm = ", "interfaces = [\"lo\"]\nrealm = ", 1),
            };
            let path = buses.path().join("node.toml");
            std::fs::write(&path, &file).unwrap();
            let output = buses.run(&["node", "check", path.to_str().unwrap()]);
            let said = String::from_utf8(output.stderr.clone()).unwrap();
            assert!(output.status.success() && said.is_empty(), "{name}: {said}\n{file}");
        }
    }
    assert!(count >= 10, "{count} files");
}
