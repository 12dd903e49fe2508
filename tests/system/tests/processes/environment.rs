//! What the surroundings of a bus do to it: full, missing, read-only and odd file systems, damaged
//! files, limits. Each is an error that says what happened and what to do, and leaves nothing over.

use crate::support::user::User;
use crate::support::{
    Outcome, ProgramForAll, assert_empty, can_mount, is_root, run, script_in_mounts, set_mode,
    skip, toroni_at,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use system_tests::{Program, TempRoot, Watchdog, program, wait_until};
use toroni_testkit::directory::entries;

/// Every way to come to the bus `b`; each creates it if it is not there, or says that it is not.
const WAYS: [&[&str]; 12] = [
    &["pub", "a", "x"],
    &["sub", "--create", "--count", "1", "--timeout", "0.1"],
    &["hz", "--count", "1", "--interval", "0.1"],
    &["info"],
    &["topics"],
    &["top", "--once", "--interval", "0.1"],
    &["record", RECORDING, "--duration", "0.1"],
    &["replay", EMPTY],
    &["create", "b", "--temporary", "--capacity", "64KiB"],
    &["get"],
    &["clear", "a"],
    &["ls"],
];

/// The file that the `record` of [`WAYS`] creates, in the directory that [`by`] works in.
const RECORDING: &str = "new.mcap";
/// A recording without messages, which [`by`] writes for the `replay` of [`WAYS`].
const EMPTY: &str = "empty.mcap";

/// Returns an MCAP file without messages: the magic bytes, a header, the end of the data, a footer, the magic bytes.
fn empty_recording() -> Vec<u8> {
    const MAGIC: &[u8] = b"\x89MCAP0\r\n";
    let record = |kind: u8, length: u8| {
        let mut bytes = vec![kind, length];
        bytes.resize(1 + 8 + usize::from(length), 0);
        bytes
    };
    [MAGIC, &record(1, 8), &record(15, 4), &record(2, 20), MAGIC].concat()
}

fn watchdog() -> Watchdog {
    Watchdog::start("environment", Duration::from_secs(240))
}

fn by(root: &TempRoot, arguments: &[&str]) -> Outcome {
    by_in(root, &root.buses(), arguments)
}

/// As [`by`], with another directory of buses.
fn by_in(root: &TempRoot, directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = toroni_at(directory, &[&["--bus", "b"], arguments].concat());
    let files = root.file("");
    fs::write(files.join(EMPTY), empty_recording()).unwrap();
    command.current_dir(&files);
    // Where nothing is, it waits for a bus, as `sub` does without `--create`.
    let outcome = if arguments[0] == "record" { run_or_interrupt(command) } else { run(command) };
    for file in [EMPTY, RECORDING] {
        let _ = fs::remove_file(files.join(file));
    }
    outcome
}

/// What a program says that waits for a bus.
const WAITS: &str = "waiting until a process creates it";

/// Runs a program to its end. If it waits for a bus, ends it as Ctrl-C does.
fn run_or_interrupt(mut command: Command) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("{command:?}");
    let mut program = Program::start(command);
    wait_until("it ends or waits for a bus", || {
        program.errors().contains(WAITS) || program.ended().is_some()
    });
    if program.ended().is_none() {
        program.signal(rustix::process::Signal::INT);
    }
    Outcome::of(what, &program.finish())
}

/// Mounts `$3` with the options `$4` at `$1`, runs the rest of the words on it, and lists at the end what
/// is there.
const ON_A_MOUNT: &str = r#"
directory=$1; program=$2; kind=$3; options=$4; shift 4
mount -t "$kind" -o "$options" none "$directory" || exit 99
"$program" --dir "$directory" "$@"; code=$?
echo "left: $(ls -A "$directory")"
exit $code"#;

fn on_a_mount(root: &TempRoot, kind: &str, options: &str, arguments: &[&str]) -> Outcome {
    let directory = root.buses();
    let mut words: Vec<&OsStr> =
        vec![directory.as_ref(), program::path().as_ref(), kind.as_ref(), options.as_ref()];
    words.extend(arguments.iter().map(OsStr::new));
    run(script_in_mounts(ON_A_MOUNT, &words))
}

#[test]
fn a_full_file_system_is_named_with_numbers() {
    if !can_mount("a_full_file_system_is_named_with_numbers") {
        return;
    }
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    for way in &[WAYS[0], WAYS[1], &["create", "b"]] {
        let outcome = on_a_mount(&root, "tmpfs", "size=1m", &[&["--bus", "b"], *way].concat());
        // 4 MiB, 1 MiB of topics, 448 KiB of values and 512 entries for them, slots, headers, the table of arrivals, who
        // wants which topic, and where each ends.
        outcome.refused(&["not enough space in", "needs 6021120 bytes", "1048576 are available"]);
        outcome.refused(&["smaller capacity", "--shm-size"]);
        assert_eq!(outcome.stdout, "left: \n");
    }
    // However little is missing.
    let small = ["create", "b", "--temporary", "--capacity", "64KiB", "--topic-table", "4KiB"];
    let few = ["--max-publishers", "4", "--max-subscribers", "4", "--max-arrivals", "0"];
    let small = [&small[..], &few, &["--retained-topics", "0"]].concat();
    for kilobytes in (8..=176).step_by(8) {
        let outcome = on_a_mount(&root, "tmpfs", &format!("size={kilobytes}k"), &small);
        if kilobytes < 164 {
            // 160 KiB take the bytes, but not the rest of each last page: then the last file finds less.
            let all = format!("{} are available", kilobytes * 1024);
            let available = if kilobytes < 160 { &all } else { " are available" };
            outcome.refused(&["not enough space in", available]);
            assert_eq!(outcome.stdout, "left: \n");
        } else {
            assert!(outcome.succeeded().ends_with("left: b\n"), "{outcome:?}");
        }
    }
    for inodes in 1..=6 {
        let outcome = on_a_mount(&root, "tmpfs", &format!("nr_inodes={inodes}"), &small);
        if inodes < 6 {
            outcome.refused(&["the file system of", "no free inodes", "nr_inodes="]);
            assert_eq!(outcome.stdout, "left: \n");
        } else {
            assert!(outcome.succeeded().ends_with("left: b\n"), "{outcome:?}");
        }
    }
    assert_empty(&root);
}

#[test]
fn groups_need_access_control_lists() {
    if !can_mount("groups_need_access_control_lists") {
        return;
    }
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let outcome = on_a_mount(&root, "ramfs", "mode=755", &["create", "b", "--writers", "61801"]);
    outcome.refused(&["no POSIX access control lists", "--writers", "--mode"]);
    assert_eq!(outcome.stdout, "left: \n");
    let outcome = on_a_mount(&root, "ramfs", "mode=755", &["create", "b", "--mode", "0600"]);
    assert!(outcome.succeeded().ends_with("left: b\n"), "{outcome:?}");
    by(&root, &["create", "b", "--readers", "no-such-group"])
        .refused(&["no group \"no-such-group\"", "name or number"]);
    assert_empty(&root);
}

#[test]
fn a_read_only_file_system_can_be_looked_at() {
    if !can_mount("a_read_only_file_system_can_be_looked_at") {
        return;
    }
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let _ = root.succeed(&["create", "b", "--temporary", "--capacity", "64KiB"]);
    let _ = root.succeed(&["--bus", "b", "pub", "a", "hello"]);
    let script = r#"
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
program=$2; directory=$1; shift 2; exec "$program" --dir "$directory" --bus b "$@""#;
    let read_only = |arguments: &[&str]| {
        let directory = root.buses();
        let mut words: Vec<&OsStr> = vec![directory.as_ref(), program::path().as_ref()];
        words.extend(arguments.iter().map(OsStr::new));
        run(script_in_mounts(script, &words))
    };
    let (recording, empty) = (root.file(RECORDING), root.file(EMPTY));
    fs::write(&empty, empty_recording()).unwrap();
    for arguments in [
        &["pub", "a", "x"][..],
        &["sub", "--count", "1"],
        &["create", "other"],
        &["record", recording.to_str().unwrap()],
        &["replay", empty.to_str().unwrap()],
    ] {
        read_only(arguments).refused(&["read-only file system", "mount it writable", "TORONI_DIR"]);
    }
    assert!(read_only(&["info"]).succeeded().contains("1 message,"));
    assert!(read_only(&["topics"]).succeeded().contains('a'));
    assert!(read_only(&["ls"]).succeeded().contains('b'));
    assert_eq!(root.entries(), ["b"]);
    assert!(entries(&root.buses().join("b/sockets")).is_empty());
}

#[test]
fn a_missing_directory_is_named() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    // One level is made, more are not.
    let one = root.buses().join("one");
    let _ =
        run(toroni_at(&one, &["create", "b", "--temporary", "--capacity", "64KiB"])).succeeded();
    let deep = root.buses().join("no/where");
    for way in &WAYS[..11] {
        let outcome = by_in(&root, &deep, way);
        match way[0] {
            "info" | "topics" | "get" | "clear" | "hz" | "top" => {
                outcome.refused(&["there is no bus", "no/where/b", "create"])
            }
            _ => outcome.refused(&["there is no directory", "/no", "create it", "TORONI_DIR"]),
        };
    }
    assert_eq!(run(toroni_at(&deep, &["ls", "--json"])).succeeded(), "");
    assert_eq!(root.entries(), ["one"]);
    // A directory of buses that is none.
    let file = root.file("file");
    fs::write(&file, "text").unwrap();
    run(toroni_at(&file, &["create", "b"])).refused(&["is not a directory"]);
    run(toroni_at(&file, &["--bus", "b", "pub", "a", "x"])).refused(&["is not a directory"]);
}

#[test]
fn what_is_no_bus_is_left_alone() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let bus = root.buses().join("b");
    let target = root.file("target");
    fs::create_dir(&target).unwrap();
    let cases: [(&str, &dyn Fn(), &str); 6] = [
        ("a link", &|| symlink(&target, &bus).unwrap(), "is a symbolic link"),
        ("a dangling link", &|| symlink("nowhere", &bus).unwrap(), "is a symbolic link"),
        ("a file", &|| fs::write(&bus, "text").unwrap(), "is not a directory"),
        ("a FIFO", &|| make_fifo(&bus), "is not a directory"),
        (
            "a directory with other things",
            &|| {
                fs::create_dir(&bus).unwrap();
                fs::write(bus.join("letter.txt"), "text").unwrap();
            },
            "letter.txt",
        ),
        (
            "a directory with a ring of its own",
            &|| {
                fs::create_dir(&bus).unwrap();
                fs::write(bus.join("ring"), "of gold").unwrap();
            },
            "is not a part of a Toroni bus",
        ),
    ];
    for (what, make, words) in cases {
        make();
        let before = fs::symlink_metadata(&bus).unwrap().ino_and_kind();
        for way in WAYS {
            let outcome = by(&root, way);
            match way[0] {
                "ls" => assert_eq!(outcome.code, Some(0), "{what}: {outcome:?}"),
                // It looks for a bus, and there is none.
                "info" | "topics" | "get" | "clear" | "hz" | "top"
                    if outcome.stderr.contains("there is no bus") =>
                {
                    outcome.refused(&[]);
                }
                "record" if outcome.stderr.contains(WAITS) => {
                    assert_eq!(outcome.code, Some(130), "{what}: {outcome:?}");
                    assert!(outcome.stderr.contains("`toroni create b` creates it now"));
                }
                "create" if outcome.stderr.contains("already a bus") => {
                    outcome.refused(&[]);
                }
                _ => {
                    outcome.refused(&[words]);
                }
            }
        }
        let _ = by(&root, &["clean"]);
        assert_eq!(fs::symlink_metadata(&bus).unwrap().ino_and_kind(), before, "{what} is there");
        assert_eq!(root.entries(), ["b"], "{what}");
        assert!(entries(&target).is_empty(), "a link was followed");
        remove(&bus);
    }
    for name in ["../b", ".b", "a/b", "", "a b"] {
        let outcome = run(root.toroni(&["--bus", name, "pub", "a", "x"]));
        outcome.failed(2, &["bus name", "not usable", "A-Z a-z 0-9"]);
    }
    assert_empty(&root);
}

#[test]
fn parts_that_are_something_else_are_refused() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let bus = root.buses().join("b");
    for (part, way) in [
        ("ring", WAYS[0]),
        ("ring", WAYS[1]),
        ("ring", WAYS[3]),
        ("ring", WAYS[6]),
        ("ring", WAYS[7]),
        ("publishers", WAYS[0]),
        ("publishers", WAYS[7]),
        ("readers", WAYS[0]),
        ("readers", WAYS[1]),
        ("readers", WAYS[6]),
    ] {
        for kind in ["link", "FIFO", "directory"] {
            let _ = root.succeed(&["create", "b", "--temporary", "--capacity", "64KiB"]);
            let path = bus.join(part);
            let original = root.file("original");
            fs::rename(&path, &original).unwrap();
            let word = match kind {
                "link" => {
                    symlink(&original, &path).unwrap();
                    "is a symbolic link"
                }
                "FIFO" => {
                    make_fifo(&path);
                    "not a regular file"
                }
                _ => {
                    fs::create_dir(&path).unwrap();
                    "not a regular file"
                }
            };
            by(&root, way).refused(&[word, part]);
            remove(&bus);
            fs::remove_file(original).unwrap();
        }
    }
}

/// The first bytes of a file, the sizes, and what does not fit: `crates/toroni/src/ring/layout.rs`.
#[test]
fn each_mismatch_of_a_header_has_its_words() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let bus = root.buses().join("b");
    let number = |offset: u64, number: u32| {
        move |file: &File| file.write_all_at(&number.to_ne_bytes(), offset).unwrap()
    };
    let swap = |file: &File| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 8).unwrap();
        bytes.reverse();
        file.write_all_at(&bytes, 8).unwrap();
    };
    type Damage<'a> = &'a dyn Fn(&File);
    let damages: [(Damage<'_>, &[&str]); 10] = [
        (&number(0, 7), &["is not a part of a Toroni bus"]),
        (&swap, &["other byte order"]),
        (&number(12, 77), &["layout version 77", "uses version 8", "same release"]),
        (&number(16, 183), &["architecture", "another"]),
        (&number(20, 65_536), &["page size of 65536 bytes"]),
        (&number(24, 9), &["is not a part of a Toroni bus"]),
        (&number(32, 1), &["checksum"]),
        (&|file| file.set_len(0).unwrap(), &["0 bytes", "truncated"]),
        (&|file| file.set_len(60).unwrap(), &["60 bytes", "truncated"]),
        (&|file| file.set_len(20_000).unwrap(), &["20000 bytes", "truncated"]),
    ];
    for (number, (damage, words)) in damages.iter().enumerate() {
        for (part, ways) in [
            ("ring", &[WAYS[0], WAYS[1], WAYS[2], WAYS[3], WAYS[4], WAYS[6], WAYS[7]][..]),
            ("publishers", &[WAYS[0], WAYS[7]]),
            ("readers", &[WAYS[1], WAYS[2], WAYS[6]]),
        ] {
            let _ = root.succeed(&["create", "b", "--temporary", "--capacity", "64KiB"]);
            damage(&File::options().read(true).write(true).open(bus.join(part)).unwrap());
            for way in ways {
                by(&root, way).refused(words).refused(&[&format!("b/{part}")]);
            }
            if part == "ring" {
                // It is listed with its fault, not hidden.
                let listed = by(&root, &["ls"]);
                assert!(listed.succeeded().contains(words[0]), "{number}: {listed:?}");
                // A new one of that name does not silently take its place.
                by(&root, &["create", "b"]).refused(&[]);
            } else {
                // The bus is there, and no process has it open.
                assert_eq!(root.entries(), ["b"]);
            }
            // What `toroni clean` is for; but what is no bus is not its business.
            let cleaned = by(&root, &["clean", "b"]);
            if words[0].contains("not a part") && part == "ring" {
                assert!(bus.exists() && cleaned.stderr.contains("skipped"), "{cleaned:?}");
                remove(&bus);
            }
            assert_empty(&root);
        }
    }
}

#[test]
fn one_subscriber_or_publisher_too_many() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let limits = ["--max-subscribers", "2", "--max-publishers", "2", "--capacity", "64KiB"];
    let _ = root.succeed(&[&["create", "b"], &limits[..]].concat());
    let mut subscribers: Vec<Program> = (0..2).map(|_| subscriber(&root)).collect();
    by(&root, &["sub"]).refused(&["all 2 subscribers", "--max-subscribers"]);
    by(&root, &["hz", "--count", "1"]).refused(&["all 2 subscribers"]);
    let mut publishers: Vec<Program> = (0..2).map(|_| publisher(&root)).collect();
    wait_until("both publish", || root.info("b").publishers().len() == 2);
    by(&root, &["pub", "a", "x"]).refused(&["all 2 publishing participants", "--max-publishers"]);
    // Looking needs no slot, and a slot of the dead is free.
    assert!(by(&root, &["info"]).succeeded().contains("2 of 2"));
    subscribers.remove(0).kill();
    publishers.remove(0).kill();
    subscribers.push(subscriber(&root));
    let _ = root.succeed(&["--bus", "b", "pub", "a", "x"]);
    assert_eq!(subscribers[1].line().as_deref(), Some("a\tx"));
    drop((subscribers, publishers));
    root.assert_clean_leaves_nothing();
}

/// A small bus with a notifier, which a clean may remove.
fn create_small(root: &TempRoot, notify: &str) {
    let create = ["create", "b", "--temporary", "--capacity", "64KiB", "--notify", notify];
    let _ = root.succeed(&create);
}

#[test]
fn a_bus_removed_under_its_users_is_a_reported_end() {
    for notify in ["futex", "datagram"] {
        let (_watchdog, root) = (watchdog(), TempRoot::new());
        create_small(&root, notify);
        let mut waiting = subscriber(&root);
        let mut publisher = publisher(&root);
        publisher.tell("before");
        assert_eq!(waiting.line().as_deref(), Some("a\tbefore"));
        fs::remove_dir_all(root.buses().join("b")).unwrap();
        assert_eq!(waiting.wait().code(), Some(1), "{notify}");
        let errors = waiting.errors();
        assert!(errors.contains("was removed: open it again"), "{errors}");
        // A publisher checks once a lap.
        let mut input = publisher.stdin().unwrap();
        let line = format!("{}\n", "x".repeat(1000));
        for _ in 0..3 * 64 {
            if input.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
        drop(input);
        assert_eq!(publisher.wait().code(), Some(1), "{notify}");
        let errors = publisher.errors();
        assert!(errors.contains("was removed: open it again"), "{errors}");
        assert_empty(&root);
        // The name is free, and its new bus is another one.
        let _ = root.succeed(&["--bus", "b", "pub", "a", "x"]);
        root.assert_clean_leaves_nothing();
    }
}

#[test]
fn without_descriptors_it_says_so() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    for (notify, way) in [
        ("futex", WAYS[0]),
        ("datagram", WAYS[0]),
        ("multicast", WAYS[0]),
        ("futex", &["sub", "--from", "oldest", "--count", "1"]),
        ("datagram", &["sub", "--from", "oldest", "--count", "1"]),
        ("multicast", &["sub", "--from", "oldest", "--count", "1"]),
        ("futex", &["info"]),
        ("futex", &["create", "other", "--temporary", "--capacity", "64KiB"]),
    ] {
        create_small(&root, notify);
        let _ = root.succeed(&["--bus", "b", "pub", "a", "hello"]);
        let mut succeeded = false;
        for limit in 4..40 {
            let outcome = under_limit(&root, &format!("-n {limit}"), way);
            if outcome.code == Some(0) {
                succeeded = true;
                break;
            }
            outcome.refused(&["Too many open files"]);
            for left in root.entries().iter().filter(|name| *name != "b") {
                // Made, and then not opened: a bus like any other.
                assert!(left == "other" && way[0] == "create", "{left} with {limit} descriptors");
                let _ = root.succeed(&["--bus", left, "pub", "a", "x"]);
                let _ = root.succeed(&["clean", left]);
            }
            root.info("b").assert_no_dead(true);
        }
        assert!(succeeded, "{notify} {way:?}: 40 descriptors are not enough");
        assert!(entries(&root.buses().join("b/sockets")).is_empty());
        let _ = root.succeed(&["clean"]);
        assert_empty(&root);
    }
}

#[test]
fn without_address_space_it_says_so() {
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let _ = root.succeed(&["create", "b", "--temporary", "--capacity", "256MiB"]);
    for way in [WAYS[0], WAYS[1]] {
        // In KiB: enough for the program, not for the ring, mapped twice.
        under_limit(&root, "-v 200000", way).refused(&["map", "/ring", "Cannot allocate memory"]);
    }
    root.info("b").assert_no_dead(true);
    root.assert_clean_leaves_nothing();
}

#[test]
fn memory_that_cannot_be_locked() {
    if !is_root("memory_that_cannot_be_locked") {
        return;
    }
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    set_mode(&root.buses(), 0o777);
    set_mode(root.buses().parent().unwrap(), 0o755);
    let this = ProgramForAll::of(&std::env::current_exe().unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 64; exec \"$@\"", "sh"]);
    let inner = User::with_id(61_831).runs(this.path());
    command.arg(inner.get_program()).args(inner.get_args());
    command.args(["environment::lock_memory", "--exact", "--nocapture"]);
    command.env("TORONI_TEST_LOCK_MEMORY", root.buses());
    let said = run(command);
    assert!(said.succeeded().contains("both were refused"), "{said:?}");
    root.info("b").assert_no_dead(true);
}

/// The task of a process of the test above, which may lock 64 KiB.
#[test]
fn lock_memory() {
    let Some(root) = std::env::var_os("TORONI_TEST_LOCK_MEMORY") else { return };
    let config = toroni::BusConfig::new().directory(PathBuf::from(root)).lock_memory(true);
    let bus = config.open("b").unwrap();
    for error in [
        bus.publisher("a").map(drop).expect_err("more than may be locked").to_string(),
        bus.subscribe("**").map(drop).expect_err("more than may be locked").to_string(),
    ] {
        for word in
            ["cannot lock", "/ring in memory", "the limit of this process is 65536", "ulimit -l"]
        {
            assert!(error.contains(word), "{word:?} is missing: {error}");
        }
    }
    println!("\nboth were refused");
}

#[test]
fn a_bus_on_a_disk_works_with_a_lease() {
    let root = TempRoot::below(Path::new("/var/tmp"));
    // From linux/magic.h: tmpfs, ramfs.
    let kind = rustix::fs::statfs(root.buses()).unwrap().f_type;
    if [0x0102_1994, 0x8584_58f6_u32].iter().any(|memory| i128::from(*memory) == i128::from(kind)) {
        return skip("a_bus_on_a_disk_works_with_a_lease", "/var/tmp is in memory");
    }
    let _watchdog = watchdog();
    by(&root, &["create", "b", "--lock", "robust"]).refused(&[
        "is on a disk",
        "`robust` does not work",
        "`lease`",
        "/dev/shm",
    ]);
    assert_empty(&root);
    let _ = root.succeed(&[
        "create",
        "b",
        "--temporary",
        "--capacity",
        "64KiB",
        "--policy",
        "wait:forever",
    ]);
    let mut subscriber = subscriber(&root);
    let mut publisher = publisher(&root);
    for number in 0..300 {
        publisher.tell(&format!("{number} {}", "x".repeat(500)));
        let line = subscriber.line().unwrap();
        assert!(line.starts_with(&format!("a\t{number} ")), "{line}");
    }
    publisher.kill();
    let _ = root.succeed(&["--bus", "b", "pub", "a", "after the kill"]);
    assert_eq!(subscriber.line().as_deref(), Some("a\tafter the kill"));
    subscriber.kill();
    let info = root.info("b");
    assert_eq!(info.number("messages"), 301);
    let said = root.succeed(&["--bus", "b", "sub", "--from", "oldest", "--count", "1"]);
    assert!(said.contains("xxx"), "the ring is still there, when no process has it open: {said}");
    root.assert_clean_leaves_nothing();
}

/// A subscriber that is ready and prints lines.
fn subscriber(root: &TempRoot) -> Program {
    let mut subscriber =
        Program::start_with_ready_fd(root.toroni(&["--bus", "b", "sub", "--timeout", "60"]));
    subscriber.wait_ready();
    subscriber
}

/// A publisher of the lines on its standard input.
fn publisher(root: &TempRoot) -> Program {
    let mut command = root.toroni(&["--bus", "b", "pub", "a"]);
    command.stdin(Stdio::piped());
    Program::start(command)
}

/// Runs `toroni` under a limit of the shell's `ulimit`.
fn under_limit(root: &TempRoot, limit: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"]).arg(program::path());
    command.arg("--dir").arg(root.buses()).args(["--bus", "b"]).args(arguments);
    command.env_remove("TORONI_BUS").env_remove("TORONI_DIR");
    run(command)
}

fn make_fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
}

fn remove(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

/// What distinguishes a file from a new one of the same name.
trait InoAndKind {
    fn ino_and_kind(&self) -> (u64, u32);
}

impl InoAndKind for fs::Metadata {
    fn ino_and_kind(&self) -> (u64, u32) {
        use std::os::unix::fs::MetadataExt;
        (self.ino(), self.mode())
    }
}
