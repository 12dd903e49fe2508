//! Any bytes as the file of a node.

use std::path::Path;
use toroni_net::node::config::{LONGEST, Link, Place, Severity, check_host, derived, read};

/// A file is refused exactly if a finding is an error. All findings lie in the file. The effective file means the same.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let folder = Path::new("/etc/toroni");
    let reading = read(&text, folder);
    let errors = reading.findings.iter().filter(|found| found.severity == Severity::Error).count();
    assert_eq!(reading.node.is_none(), errors > 0, "{:?}", reading.findings);
    assert!(reading.findings.is_sorted_by_key(|found| found.severity), "{:?}", reading.findings);
    let end = Place::of(&text, text.len());
    for finding in &reading.findings {
        let said = finding.to_string();
        assert!(!said.contains('\n') && !finding.problem.is_empty(), "{said}");
        assert!(finding.place.is_none_or(|place| place <= end), "{said}, the file ends at {end:?}");
    }
    let Some(node) = reading.node else {
        assert_eq!(reading.effective, "");
        return;
    };
    let again = read(&reading.effective, folder);
    assert_eq!(again.node.as_ref(), Some(&node), "{}", reading.effective);
    assert_eq!(again.effective, reading.effective);
    assert!(reading.effective.len() <= LONGEST, "{} bytes", reading.effective.len());
    let _ = derived(&node);
    let links = node.interfaces.iter().map(|name| Link {
        name: name.clone(),
        mtu: 1500,
        speed: None,
        is_candidate: true,
    });
    for finding in check_host(&node, &links.collect::<Vec<_>>()) {
        assert!(!finding.to_string().contains('\n'), "{finding}");
    }
}
