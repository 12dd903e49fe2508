//! The output formats of `sub`.

use crate::support::{Buses, Process, json_lines};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

fn lines(buses: &Buses, arguments: &[&str]) -> String {
    let mut all = vec!["sub", "--from", "oldest", "--timeout", "0.2"];
    all.extend(arguments);
    buses.succeed(&all)
}

#[test]
fn text_is_topic_tab_payload() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "plant/boiler"], b"1\n\nthree words here\n");
    assert_eq!(
        lines(&buses, &[]),
        "plant/boiler\t1\nplant/boiler\t\nplant/boiler\tthree words here\n"
    );
    assert_eq!(lines(&buses, &["--payload-only"]), "1\n\nthree words here\n");
}

#[test]
fn hexadecimal_and_raw_are_exact() {
    let buses = Buses::new();
    let bytes: Vec<u8> = (0..=255).collect();
    assert!(buses.run_with_input(&["pub", "t", "--raw"], &bytes).status.success());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(lines(&buses, &["--format", "hex"]), format!("t\t{hex}\n"));
    let raw = buses.run(&["sub", "--from", "oldest", "--count", "1", "--format", "raw"]);
    assert_eq!(raw.stdout, bytes);
}

#[test]
fn json_has_every_field() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "t"], b"quote \" and \xc3\xa4\n\xff\x00\n");
    let found = json_lines(lines(&buses, &["--json"]).as_bytes());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["topic"], "t");
    assert_eq!(found[0]["payload"], "quote \" and ä");
    assert_eq!(found[0]["length"], 14);
    assert_eq!(found[0]["sequence"], "0");
    assert!(found[0].get("encoding").is_none());
    assert_eq!(found[1]["payload"], "/wA=");
    assert_eq!(found[1]["encoding"], "base64");
    assert_eq!(found[1]["sequence"], "1");
    let position = |line: usize| found[line]["position"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(position(0) < position(1));
    assert_eq!(lines(&buses, &["--json"]), lines(&buses, &["--format", "json"]));
    let bare = json_lines(lines(&buses, &["--json", "--payload-only"]).as_bytes());
    assert_eq!(bare[0].get("topic"), None);
}

#[test]
fn sub_starts_at_a_position() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "t"], b"a\nb\nc\n");
    let all = json_lines(lines(&buses, &["--json"]).as_bytes());
    let second = all[1]["position"].as_str().unwrap();
    let output = buses.succeed(&["sub", "--from", second, "--count", "2", "--payload-only"]);
    assert_eq!(output, "b\nc\n");
    let ahead = buses.run(&["sub", "--from", "1000000000"]);
    assert_eq!(ahead.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ahead.stderr).contains("beyond the end"));
}

#[test]
fn sub_starts_at_a_sequence() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "t"], b"a\nb\nc\n");
    let all = json_lines(lines(&buses, &["--json"]).as_bytes());
    let second = format!("sequence:{}", all[1]["sequence"].as_str().unwrap());
    let output = buses.succeed(&["sub", "--from", &second, "--count", "2", "--payload-only"]);
    assert_eq!(output, "b\nc\n");
    let next = buses.subscribe(&["--from", "sequence:3", "--count", "1", "--payload-only"]);
    buses.succeed(&["pub", "t", "d"]);
    assert_eq!(next.finish().stdout, b"d\n");
    let ahead = buses.run(&["sub", "--from", "sequence:5"]);
    assert_eq!(ahead.status.code(), Some(1));
    let text = String::from_utf8_lossy(&ahead.stderr).into_owned();
    assert!(text.contains("sequence 5 is beyond the end of the stream"), "{text}");
    for wrong in ["sequence:", "sequence:-1", "sequence:x", "sequence"] {
        let output = buses.run(&["sub", "--from", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn patterns_select_messages() {
    let buses = Buses::new();
    for topic in ["plant/boiler/heat", "plant/pump", "plants/x", "office/alarm"] {
        buses.succeed(&["pub", topic, topic]);
    }
    let chosen = lines(&buses, &["plant/**", "*/alarm", "--payload-only"]);
    assert_eq!(chosen, "plant/boiler/heat\nplant/pump\noffice/alarm\n");
    assert_eq!(lines(&buses, &["plant/*", "--payload-only"]), "plant/pump\n");
    let twice = lines(&buses, &["plant/*", "**", "plant/pump", "--payload-only"]);
    assert_eq!(twice.lines().count(), 4, "delivered once, however many patterns match");
    assert!(!buses.run(&["sub", "a//b"]).status.success());
}

#[test]
fn json_shows_times_and_descendants() {
    let buses = Buses::new();
    let subscriber = buses.subscribe(&["plant/boiler/*", "--count", "1", "--json"]);
    buses.succeed(&["pub", "plant", "all", "--to-descendants", "--timestamps"]);
    let output = subscriber.finish();
    let found = &json_lines(&output.stdout)[0];
    assert_eq!(found["topic"], "plant");
    assert_eq!(found["to_descendants"], json!(true));
    let stamp: u128 = found["timestamp_ns"].as_str().unwrap().parse().unwrap();
    let text = found["timestamp"].as_str().unwrap();
    assert!(text.ends_with(&format!(".{:09}Z", stamp % 1_000_000_000)), "{text} {stamp}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_nanos().abs_diff(stamp) < 3_600_000_000_000, "{stamp}");
    let age: i128 = found["age_ns"].as_str().unwrap().parse().unwrap();
    assert!(age.unsigned_abs() < 3_600_000_000_000, "{age}");
    buses.succeed(&["pub", "plant", "unstamped"]);
    let unstamped = &json_lines(lines(&buses, &["--json"]).as_bytes())[1];
    assert!(unstamped.get("age_ns").is_none(), "{unstamped}");
}

/// What sleeps in between only makes the messages older.
#[test]
fn messages_that_are_too_old_are_passed_over() {
    let buses = Buses::new();
    for (payload, options) in [("old", &["--timestamps"][..]), ("unstamped", &[])] {
        buses.succeed(&[&["pub", "a", payload], options].concat());
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    let aged = lines(&buses, &["-F", "%A", "a"]);
    let age: u64 = aged.lines().next().unwrap().parse().unwrap();
    assert!(age >= 20_000_000 && aged.ends_with("\n-\n"), "{aged}");
    let all = ["sub", "--from", "oldest", "--timeout", "100ms", "--payload-only", "--max-age"];
    let fresh = buses.run(&[&all[..], &["10ms", "--verbose"]].concat());
    assert_eq!(String::from_utf8_lossy(&fresh.stdout), "unstamped\n");
    assert!(String::from_utf8_lossy(&fresh.stderr).contains("0 lost, 1 too old"), "{fresh:?}");
    assert_eq!(buses.run(&[&all[..], &["1h"]].concat()).stdout, b"old\nunstamped\n");
}

#[test]
fn templates_determine_what_is_printed() {
    let buses = Buses::new();
    buses.succeed(&["pub", "plant/pump", "ä\n%"]);
    buses.succeed(&["pub", "plant", "x", "--to-descendants", "--timestamps"]);
    let all = "%t|%p|%x|%b|%l|%s|%d|%%\\t\\x41";
    let first = lines(&buses, &["-F", all, "plant/*", "-n", "1"]);
    assert_eq!(first, "plant/pump|ä\n%|c3a40a25|w6QKJQ==|4|0|0|%\tA\n");
    assert_eq!(lines(&buses, &["-F", "%T %n", "-n", "1"]), "- -\n");
    let json = &json_lines(lines(&buses, &["--json"]).as_bytes())[1];
    let stamped = lines(&buses, &["--template", "%o %T %n %d", "plant"]);
    let text = |field: &str| json[field].as_str().unwrap();
    let expected =
        format!("{} {} {} 1\n", text("position"), text("timestamp"), text("timestamp_ns"));
    assert_eq!(stamped, expected);
    let output = buses.run(&["sub", "-F", "%q"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("%q is unknown: use %t topic"), "{said}");
    assert_eq!(buses.run(&["sub", "-F", "%t", "--json"]).status.code(), Some(2));
}

#[test]
fn messages_may_end_with_a_nul() {
    let buses = Buses::new();
    let input = b"two\nlines\0\0last, without its end";
    assert!(buses.run_with_input(&["pub", "-0", "t"], input).status.success());
    assert_eq!(lines(&buses, &["-0", "--payload-only"]).as_bytes(), [&input[..], b"\0"].concat());
    assert_eq!(lines(&buses, &["-0", "-F", "%t", "-n", "1"]), "t\0");
    assert_eq!(lines(&buses, &["-0", "--format", "hex", "-n", "1"]), "t\t74776f0a6c696e6573\0");
    for arguments in [
        &["sub", "-0", "--json"][..],
        &["sub", "-0", "--format", "json"],
        &["sub", "-0", "--format", "raw"],
        &["pub", "-0", "t", "x"],
        // Ambiguous: it could be the message or the option.
        &["pub", "t", "-0"],
    ] {
        assert_eq!(buses.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_last_messages_come_first() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "a"], b"1\n2\n3\n4\n");
    buses.run_with_input(&["pub", "b"], b"other\n");
    let last = |arguments: &[&str]| {
        let mut all = vec!["sub", "a", "--payload-only", "--timeout", "0.1", "--last"];
        all.extend(arguments);
        buses.run(&all)
    };
    assert_eq!(last(&["2"]).stdout, b"3\n4\n");
    assert_eq!(last(&["0"]).stdout, b"");
    assert_eq!(last(&["100"]).stdout, b"1\n2\n3\n4\n");
    // --count also counts them.
    let some = last(&["3", "--count", "2"]);
    assert_eq!((&some.stdout[..], some.status.code()), (&b"2\n3\n"[..], Some(0)));
    let more = last(&["3", "--count", "4"]);
    assert_eq!((&more.stdout[..], more.status.code()), (&b"2\n3\n4\n"[..], Some(1)));
    assert_eq!(last(&["3", "--from", "oldest"]).status.code(), Some(2));
    // Messages that are no longer in the ring are not found.
    buses.succeed(&["-b", "small", "create", "small", "--capacity", "64KiB"]);
    buses.succeed(&["-b", "small", "pub", "t", "--size", "1000", "--repeat", "150"]);
    let sequences = |last: &str| -> Vec<u64> {
        let arguments = ["-b", "small", "sub", "-t", "0.1", "-F", "%s", "--last", last];
        buses.succeed(&arguments).lines().map(|line| line.parse().unwrap()).collect()
    };
    assert_eq!(sequences("3"), [147, 148, 149]);
    let all = sequences("1000");
    assert!((30..70).contains(&all.len()), "{all:?}");
    assert!(all.windows(2).all(|two| two[0] + 1 == two[1]) && all.last() == Some(&149), "{all:?}");
    // It continues with new messages.
    let mut subscriber = buses.subscribe(&["a", "--payload-only", "--last", "1"]);
    assert_eq!(subscriber.line(), "4\n");
    buses.run_with_input(&["pub", "a"], b"5\n6\n");
    assert_eq!(subscriber.line(), "5\n");
    assert_eq!(subscriber.line(), "6\n");
}

#[test]
fn short_options_equal_the_long_ones() {
    let buses = Buses::new();
    buses.succeed(&["-b", "plant", "pub", "t", "x", "-n", "2", "-q"]);
    let output = buses.run(&["sub", "-b", "plant", "--from", "oldest", "-n", "2", "-v", "-t", "5"]);
    assert_eq!(output.stdout, b"t\tx\nt\tx\n");
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "toroni: subscribed to ** on bus plant");
    assert!(lines[1].starts_with("toroni: printed 2 messages in ") && lines.len() == 2, "{said}");
    let output = buses.run(&["-b", "plant", "pub", "t", "four", "-v"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("toroni: published 1 message, 4 B, in "), "{said}");
}

#[test]
fn color_is_for_terminals_unless_requested() {
    let buses = Buses::new();
    for (arguments, refused, colored) in [
        (&["info", "x"][..], "", false),
        (&["info", "x", "--color", "never"], "", false),
        (&["info", "x", "--color", "always"], "", true),
        // The command line takes precedence over NO_COLOR.
        (&["info", "x", "--color=always"], "1", true),
        (&["info", "--nonsense", "--color", "always"], "", true),
        (&["info", "--nonsense"], "", false),
    ] {
        let mut command = buses.command(arguments);
        let output = command.env("NO_COLOR", refused).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains('\u{1b}'), colored, "{arguments:?}: {said:?}");
    }
}

#[test]
fn a_terminal_does_not_obey_payloads() {
    let buses = Buses::new();
    let payload = "red\u{1b}[31m \u{9b}2J \u{7f} txt.\u{202e}exe";
    buses.succeed(&["pub", "t", payload]);
    for arguments in [&[][..], &["--format", "raw"], &["--json"], &["-F", "%p"]] {
        let (mut master, terminal) = terminal();
        let mut all = vec!["sub", "--from", "oldest", "-n", "1"];
        all.extend(arguments);
        let mut process = Process::start(buses.command(&all).stdout(terminal));
        assert!(process.wait().success(), "{arguments:?}");
        // The terminal keeps the output after the program has ended.
        let mut bytes = [0; 4096];
        let length = master.read(&mut bytes).unwrap();
        let shown = std::str::from_utf8(&bytes[..length]).unwrap();
        assert!(shown.contains("31m") && shown.contains("exe"), "{arguments:?}: {shown:?}");
        let obeyed = |c: char| (c.is_control() && !"\t\r\n".contains(c)) || c == '\u{202e}';
        assert!(!shown.contains(obeyed), "{arguments:?}: {shown:?}");
    }
}

/// Opens a pseudoterminal: the side of the user and the side of the program.
pub(crate) fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    // Must not become the controlling terminal of this process.
    let mut options = File::options();
    let terminal = options.read(true).write(true).custom_flags(NOCTTY).open(path).unwrap();
    (File::from(master), terminal)
}

const NOCTTY: i32 = rustix::fs::OFlags::NOCTTY.bits().cast_signed();

#[test]
fn counts_and_time_outs_set_the_exit_code() {
    let buses = Buses::new();
    buses.succeed(&["pub", "t", "one"]);
    let run = |arguments: &[&str]| buses.run(arguments).status.code();
    assert_eq!(run(&["sub", "--from", "oldest", "--count", "1"]), Some(0));
    assert_eq!(run(&["sub", "--count", "0"]), Some(0));
    assert_eq!(run(&["sub", "--timeout", "0.1"]), Some(0));
    assert_eq!(run(&["sub", "--from", "oldest", "--count", "2", "--timeout", "0.1"]), Some(1));
    assert_eq!(run(&["echo", "--from", "oldest", "--count", "1"]), Some(0));
}
