//! Selection of the bus and of its topics.

use crate::support::{Buses, json_lines};

#[test]
fn topics_are_selected_by_patterns() {
    let buses = Buses::new();
    for topic in ["plant/boiler/heat", "plant/pump", "plants/x", "office/alarm"] {
        buses.succeed(&["-b", "b", "pub", topic, "x"]);
    }
    let shown = |patterns: &[&str]| -> Vec<String> {
        let arguments = [&["-b", "b", "topics", "--json"], patterns].concat();
        let topics = json_lines(buses.succeed(&arguments).as_bytes());
        topics.iter().map(|topic| topic["topic"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        shown(&["plant/**", "*/alarm"]),
        ["office/alarm", "plant/boiler/heat", "plant/pump"]
    );
    assert_eq!(shown(&["plant/*"]), ["plant/pump"]);
    assert_eq!(shown(&["plant"]), [""; 0]);
    assert_eq!(shown(&[]).len(), 4);
    assert_eq!(buses.run(&["-b", "b", "topics", "a//b"]).status.code(), Some(2));
}

#[test]
fn two_bus_names_are_rejected() {
    let buses = Buses::new();
    for name in ["a", "b"] {
        buses.succeed(&["create", name]);
    }
    for command in ["info", "clean"] {
        for arguments in [&["--bus", "a", command, "b"][..], &[command, "b", "--bus", "a"]] {
            let output = buses.run(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("--bus a and b are two buses"), "{said}");
        }
    }
    assert_eq!(buses.entries(), ["a", "b"]);
    // The same name may be given twice.
    buses.succeed(&["info", "b", "--bus", "b"]);
    // The environment is only a default.
    let mut command = buses.command(&["info", "b", "--json"]);
    let output = command.env("TORONI_BUS", "a").output().unwrap();
    assert_eq!(json_lines(&output.stdout)[0]["name"], "b");
}
