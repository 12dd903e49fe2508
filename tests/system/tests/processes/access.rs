//! Who may do what, with real users: subscribers receive and can neither publish nor spoil what
//! publishers need; publishers publish; strangers get an error that says what to do.

use crate::support::user::{
    BOTH, OTHER_PUBLISHER, OTHER_SUBSCRIBER, PUBLISHER, READERS, STRANGER, SUBSCRIBER, User,
    WRITERS,
};
use crate::support::{Outcome, ProgramForAll, is_root, run, set_mode};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use system_tests::{Program, TempRoot, Watchdog, wait_until};

/// A directory that all users can reach, and the program.
struct Fixture {
    root: TempRoot,
    program: ProgramForAll,
    _watchdog: Watchdog,
}

impl Fixture {
    fn new() -> Self {
        let root = TempRoot::new();
        set_mode(&root.buses(), 0o755);
        set_mode(root.buses().parent().unwrap(), 0o755);
        let watchdog = Watchdog::start("access", Duration::from_secs(240));
        Self { root, program: ProgramForAll::new(), _watchdog: watchdog }
    }

    /// Creates the bus `b` for the two groups, as root.
    fn create(&self, options: &[&str]) {
        let (writers, readers) = (WRITERS.to_string(), READERS.to_string());
        let groups = ["create", "b", "--writers", &writers, "--readers", &readers];
        let _ = self.root.succeed(&[&groups[..], &["--capacity", "64KiB"], options].concat());
    }

    fn bus(&self) -> PathBuf {
        self.root.buses().join("b")
    }

    /// `toroni ARGUMENTS`, on the bus, by a user.
    fn command(&self, user: User, arguments: &[&str]) -> std::process::Command {
        let mut command = user.runs(self.program.path());
        command.arg("--dir").arg(self.root.buses()).args(["--bus", "b"]).args(arguments);
        command
    }

    fn by(&self, user: User, arguments: &[&str]) -> Outcome {
        run(self.command(user, arguments))
    }

    /// A subscriber that is ready.
    fn subscriber(&self, user: User, arguments: &[&str]) -> Program {
        let mut command = self.command(user, &["sub", "--timeout", "60"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut subscriber = Program::start_with_ready_fd(command);
        subscriber.wait_ready();
        subscriber
    }

    /// A publisher of the lines on its standard input.
    fn publisher(&self, user: User, topic: &str) -> Program {
        let mut command = self.command(user, &["pub", topic]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Program::start(command)
    }

    /// The bytes of all files, and what else is in the directory.
    fn state(&self) -> Vec<(String, Vec<u8>)> {
        let names = toroni_testkit::directory::entries(&self.bus());
        names
            .into_iter()
            .map(|name| {
                let bytes = fs::read(self.bus().join(&name)).unwrap_or_default();
                (name, bytes)
            })
            .collect()
    }

    /// Messages on a topic that the ring still holds. Needs `ring` only.
    fn retained(&self, topic: &str) -> u64 {
        let topics = self.root.succeed(&["--bus", "b", "topics", "--json"]);
        let lines = topics.lines().map(|line| serde_json::from_str(line).unwrap());
        let found = lines.filter(|line: &serde_json::Value| line["topic"] == topic);
        found.map(|line| line["messages"].as_u64().unwrap()).sum()
    }
}

#[test]
fn the_groups_publish_and_receive() {
    if !is_root("the_groups_publish_and_receive") {
        return;
    }
    for notify in ["futex", "datagram"] {
        for lock in ["lease", "robust"] {
            let fixture = Fixture::new();
            fixture.create(&["--notify", notify, "--lock", lock]);
            let mut subscribers: Vec<Program> = [SUBSCRIBER, OTHER_SUBSCRIBER, BOTH]
                .map(|user| fixture.subscriber(user, &["--count", "3"]))
                .into();
            for (user, topic) in [(PUBLISHER, "a"), (OTHER_PUBLISHER, "b"), (BOTH, "c")] {
                let _ = fixture.by(user, &["pub", topic, "hello"]).succeeded();
            }
            for subscriber in &mut subscribers {
                let finished = subscriber.finish();
                assert!(finished.status.success(), "{notify} {lock}: {finished:?}");
                assert_eq!(finished.stdout, b"a\thello\nb\thello\nc\thello\n", "{notify} {lock}");
            }
            fixture.root.info("b").assert_no_dead(true);
        }
    }
}

/// A private umask of the subscriber keeps no publisher from its socket.
#[test]
fn a_socket_is_reached_whatever_the_umask() {
    if !is_root("a_socket_is_reached_whatever_the_umask") {
        return;
    }
    let fixture = Fixture::new();
    fixture.create(&["--notify", "datagram", "--policy", "wait:forever"]);
    let mut command = SUBSCRIBER.runs(Path::new("sh"));
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(fixture.program.path());
    command.arg("--dir").arg(fixture.root.buses()).args(["--bus", "b", "sub", "--wait", "block"]);
    command.args(["--count", "1", "--timeout", "60"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut subscriber = Program::start_with_ready_fd(command);
    subscriber.wait_ready();
    let sockets = toroni_testkit::directory::entries(&fixture.bus().join("sockets"));
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    let mut publisher = fixture.publisher(PUBLISHER, "a");
    publisher.tell("hello");
    assert_eq!(subscriber.line().as_deref(), Some("a\thello"));
    wait_until("the publisher has woken it", || {
        fixture.root.info("b").publishers().iter().any(|one| one["wakes"].as_u64() > Some(0))
            || publisher.ended().is_some()
    });
    drop(publisher.stdin());
    let _ = publisher.succeed();
}

#[test]
fn a_subscriber_cannot_publish_nor_change_what_is_published() {
    if !is_root("a_subscriber_cannot_publish_nor_change_what_is_published") {
        return;
    }
    let fixture = Fixture::new();
    fixture.create(&[]);
    let _ = fixture.by(PUBLISHER, &["pub", "a", "hello"]).succeeded();
    let before = fixture.state();
    fixture.by(SUBSCRIBER, &["pub", "a", "forged"]).refused(&[
        "no permission to open for publishing",
        "/ring",
        "--writers",
        &format!("group {WRITERS}"),
        &format!("user {}", SUBSCRIBER.id()),
    ]);
    for script in [
        "truncate -s 0 \"$1/ring\"",
        "truncate -s +1 \"$1/ring\"",
        "dd if=/dev/zero of=\"$1/ring\" bs=8 count=1 conv=notrunc",
        ": >> \"$1/ring\"",
        ": < \"$1/publishers\"",
        "truncate -s 0 \"$1/publishers\"",
        ": >> \"$1/publishers\"",
        "rm -f \"$1/ring\"",
        "rm -f \"$1/publishers\"",
        "mv \"$1/readers\" \"$1/other\"",
        "mv \"$1\" \"$1.old\"",
        "touch \"$1/new\"",
        "ln -s /etc/passwd \"$1/link\"",
        "rmdir \"$1/sockets\"",
        "chmod 666 \"$1/ring\"",
        "mkdir \"$1/../mine\"",
    ] {
        let outcome = run(SUBSCRIBER.script(script, &fixture.bus()));
        assert!(matches!(outcome.code, Some(1..=2)), "{script}: {outcome:?}");
    }
    assert!(fixture.state() == before, "something has changed");
    // The same scripts are no mistakes of their own: reading works.
    for script in ["cat \"$1/ring\" > /dev/null", ": >> \"$1/readers\"", "touch \"$1/sockets/x\""] {
        let _ = run(SUBSCRIBER.script(script, &fixture.bus())).succeeded();
    }
    let said = fixture.by(SUBSCRIBER, &["sub", "--from", "oldest", "--count", "1"]);
    assert_eq!(said.succeeded(), "a\thello\n");
    let info = fixture.by(SUBSCRIBER, &["info", "--json"]);
    assert!(info.succeeded().contains("\"publishers\":null"), "{info:?}");
}

#[test]
fn publishers_go_on_whatever_a_subscriber_does_to_its_file() {
    if !is_root("publishers_go_on_whatever_a_subscriber_does_to_its_file") {
        return;
    }
    for spoil in [
        "truncate -s 0 \"$1/readers\"",
        "truncate -s 5000 \"$1/readers\"",
        "dd if=/dev/urandom of=\"$1/readers\" bs=4096 count=5 conv=notrunc",
        "dd if=/dev/zero of=\"$1/readers\" bs=4096 count=5 conv=notrunc",
        "tr '\\0' '\\377' < /dev/zero | dd of=\"$1/readers\" bs=4096 count=5 iflag=fullblock conv=notrunc",
        "tr '\\0' '\\1' < /dev/zero | dd of=\"$1/readers\" bs=4096 count=5 iflag=fullblock conv=notrunc",
        "rm -rf \"$1/sockets/\"*; : > \"$1/readers\"; mkdir \"$1/sockets/0.1\"",
    ] {
        let fixture = Fixture::new();
        fixture.create(&["--policy", "wait:10ms"]);
        let subscriber = fixture.subscriber(OTHER_SUBSCRIBER, &[]);
        let mut publisher = fixture.publisher(PUBLISHER, "old");
        publisher.tell("before");
        wait_until("the first message", || fixture.retained("old") == 1);
        let _ = run(SUBSCRIBER.script(spoil, &fixture.bus())).succeeded();

        // Three laps of the ring, by one that is there and by one that comes.
        for _ in 0..3 * 64 {
            publisher.tell(&"x".repeat(1000));
        }
        let new = ["pub", "new", "--size", "1000", "--repeat", "200"];
        let _ = fixture.by(OTHER_PUBLISHER, &new).succeeded();
        wait_until(spoil, || fixture.retained("new") > 0);
        publisher.tell("the last one");
        drop(publisher.stdin());
        let _ = publisher.succeed();

        // Subscribers trust one another: what they say is an error or a normal end, not more.
        let outcome = fixture.by(OTHER_SUBSCRIBER, &["sub", "--count", "1", "--timeout", "0.2"]);
        assert_eq!(outcome.code, Some(1), "{spoil}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{spoil}: {outcome:?}");
        drop(subscriber);
        // Of all buses: the one with a directory for a socket is left alone, with the reason.
        let _ = fixture.root.succeed(&["clean"]);
    }
}

#[test]
fn a_subscriber_cannot_hold_what_publishers_lock() {
    if !is_root("a_subscriber_cannot_hold_what_publishers_lock") {
        return;
    }
    let fixture = Fixture::new();
    fixture.create(&["--max-publishers", "2"]);
    let this = ProgramForAll::of(&std::env::current_exe().unwrap());
    let mut command = SUBSCRIBER.runs(this.path());
    command.args(["access::lock_all_there_is", "--exact", "--nocapture", "--include-ignored"]);
    command.env("TORONI_TEST_LOCK", fixture.bus());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut locker = Program::start(command);
    let locked = loop {
        let line = locker.line().unwrap_or_else(|| panic!("no lock{}", locker.errors()));
        if let Some(locked) = line.strip_prefix("locked ") {
            break locked.to_owned();
        }
    };
    // Not `publishers`, where their leases are.
    assert_eq!(locked, "ring readers");

    // More often than there are slots, and killed at the end: each slot is taken over.
    for _ in 0..6 {
        let mut publisher = fixture.publisher(PUBLISHER, "a");
        let before = fixture.retained("a");
        publisher.tell("hello");
        wait_until("it is published", || fixture.retained("a") > before);
        publisher.kill();
    }
    let _ = fixture.by(OTHER_PUBLISHER, &["pub", "a", "hello"]).succeeded();
    assert_eq!(fixture.retained("a"), 7);
    drop(locker.stdin());
    let _ = locker.succeed();
}

/// Locks every file of a bus that it can open, as far as a file can reach: the task of a process of the
/// test above.
#[test]
fn lock_all_there_is() {
    let Some(bus) = std::env::var_os("TORONI_TEST_LOCK") else { return };
    let bus = PathBuf::from(bus);
    let mut locked = Vec::new();
    for name in ["publishers", "ring", "readers"] {
        let path = bus.join(name);
        let writable = File::options().read(true).write(true).open(&path);
        let Ok(file) = writable.or_else(|_| File::open(&path)) else { continue };
        let best =
            [FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared];
        if best.into_iter().any(|kind| fcntl_lock(&file, kind).is_ok()) {
            locked.push((name, file));
        }
    }
    let names: Vec<&str> = locked.iter().map(|(name, _)| *name).collect();
    println!("\nlocked {}", names.join(" "));
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_publisher_cannot_receive_unless_it_may() {
    if !is_root("a_publisher_cannot_receive_unless_it_may") {
        return;
    }
    let fixture = Fixture::new();
    fixture.create(&[]);
    fixture.by(PUBLISHER, &["sub", "--count", "1"]).refused(&[
        "no permission to open for receiving",
        "/readers",
        "--readers",
        &format!("group {READERS}"),
        &format!("user {}", PUBLISHER.id()),
    ]);
    let _ = fixture.by(BOTH, &["pub", "a", "hello"]).succeeded();
    let said = fixture.by(BOTH, &["sub", "--from", "oldest", "--count", "1"]);
    assert_eq!(said.succeeded(), "a\thello\n");
    // Who lags, and who is there, is for publishers to see as well.
    assert!(fixture.by(PUBLISHER, &["info"]).succeeded().contains("subscribers"));
}

/// To read a value takes the right to subscribe. A publisher that lacks it can clear values all the same.
#[test]
fn values_are_for_subscribers_and_publishers_clear_them() {
    if !is_root("values_are_for_subscribers_and_publishers_clear_them") {
        return;
    }
    let fixture = Fixture::new();
    fixture.create(&[]);
    let _ = fixture.by(PUBLISHER, &["pub", "--retain", "a", "hello"]).succeeded();
    fixture.by(PUBLISHER, &["get"]).refused(&["no permission", "--readers"]);
    fixture.by(SUBSCRIBER, &["clear", "a"]).refused(&["no permission", "--writers"]);
    assert_eq!(fixture.by(SUBSCRIBER, &["get"]).succeeded(), "a\thello\n");
    let _ = fixture.by(PUBLISHER, &["clear", "a"]).succeeded();
    fixture.by(SUBSCRIBER, &["get"]).refused(&["has a value"]);
}

#[test]
fn a_stranger_learns_what_to_do() {
    if !is_root("a_stranger_learns_what_to_do") {
        return;
    }
    let fixture = Fixture::new();
    fixture.create(&[]);
    let hint = ["no permission", "--readers", "--writers", &format!("user {}", STRANGER.id())];
    for arguments in
        [&["pub", "a", "x"][..], &["sub"], &["info"], &["topics"], &["hz", "--count", "1"]]
    {
        fixture.by(STRANGER, arguments).refused(&hint);
    }
    // Neither can it make buses where it may not write.
    let mut command = STRANGER.runs(fixture.program.path());
    command.arg("--dir").arg(fixture.root.buses()).args(["create", "mine"]);
    run(command).refused(&["no permission to create", "TORONI_DIR"]);
    let listed = fixture.by(STRANGER, &["ls"]);
    assert!(listed.succeeded().contains("no permission"), "{listed:?}");
    let cleaned = fixture.by(STRANGER, &["clean"]);
    assert!(cleaned.code == Some(0) || cleaned.code == Some(1), "{cleaned:?}");
    assert_eq!(fixture.root.entries(), ["b"]);
    let _ = fixture.by(PUBLISHER, &["pub", "a", "still there"]).succeeded();
}

/// Without named groups: the classes of a file mode.
#[test]
fn a_mode_gives_roles_to_owner_group_and_others() {
    if !is_root("a_mode_gives_roles_to_owner_group_and_others") {
        return;
    }
    let fixture = Fixture::new();
    let owner = User::with_id(61_821);
    std::os::unix::fs::chown(fixture.root.buses(), Some(owner.id()), Some(owner.id())).unwrap();
    let created = fixture.by(owner, &["create", "b", "--mode", "0640", "--capacity", "64KiB"]);
    let _ = created.succeeded();
    let _ = fixture.by(owner, &["pub", "a", "hello"]).succeeded();
    let of_its_group = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=61822", "--regid=61821", "--clear-groups", "--"]);
        command.arg(fixture.program.path()).arg("--dir").arg(fixture.root.buses());
        command.args(["--bus", "b"]).args(arguments);
        run(command)
    };
    let said = of_its_group(&["sub", "--from", "oldest", "--count", "1"]);
    assert_eq!(said.succeeded(), "a\thello\n");
    of_its_group(&["pub", "a", "x"]).refused(&["no permission to open for publishing"]);
    fixture.by(STRANGER, &["sub"]).refused(&["no permission"]);
}
