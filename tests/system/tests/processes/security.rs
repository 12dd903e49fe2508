//! Places that other users prepared, and what strangers get to see: with real users. Beside `access`, which
//! is about the roles of a bus. `docs/security.md` names these tests.

use crate::support::user::{
    BOTH, OTHER_SUBSCRIBER, PUBLISHER, READERS, STRANGER, SUBSCRIBER, User, WRITERS,
};
use crate::support::{Outcome, ProgramForAll, can_mount, is_root, run, script_in_mounts, set_mode};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;
use system_tests::{TempRoot, Watchdog};

fn watchdog() -> Watchdog {
    Watchdog::start("security", Duration::from_secs(240))
}

/// A root that all users can reach, sticky, where everybody may make buses.
fn for_all() -> TempRoot {
    let root = TempRoot::new();
    set_mode(root.buses().parent().unwrap(), 0o755);
    set_mode(&root.buses(), 0o1777);
    root
}

fn by(user: User, program: &ProgramForAll, root: &TempRoot, arguments: &[&str]) -> Outcome {
    let mut command = user.runs(program.path());
    command.arg("--dir").arg(root.buses()).args(arguments);
    run(command)
}

/// Runs `toroni ARGUMENTS` where `/dev/shm` is new, and `prepare` has run in it: a script whose `$STRANGER`
/// runs commands as another user. Without `TORONI_DIR`, unless `prepare` sets it.
fn where_prepared(program: &ProgramForAll, prepare: &str, arguments: &str) -> Outcome {
    let stranger = STRANGER.id();
    let script = format!(
        "set -e; mount -t tmpfs -o mode=1777,size=32m none /dev/shm; unset TORONI_DIR
        STRANGER='setpriv --reuid={stranger} --regid={stranger} --clear-groups --'
        {prepare}
        exec \"$1\" {arguments}"
    );
    run(script_in_mounts(&script, &[program.path().as_os_str()]))
}

/// The owner of the directory of all buses can replace each of them.
#[test]
fn the_default_directory_must_be_safe() {
    const TEST: &str = "the_default_directory_must_be_safe";
    if !is_root(TEST) || !can_mount(TEST) {
        return;
    }
    let _watchdog = watchdog();
    let program = ProgramForAll::new();
    let path = "/dev/shm/toroni";
    for (prepare, word) in [
        (format!("$STRANGER mkdir -m 1777 {path}"), "belongs to user 61816"),
        (format!("$STRANGER mkdir -m 755 {path}"), "belongs to user 61816"),
        (format!("mkdir -m 777 {path}"), "mode 0777"),
        (format!("$STRANGER ln -s /tmp {path}"), "symbolic link"),
        (format!("$STRANGER ln -s /tmp {path}; export TORONI_DIR={path}/"), "symbolic link"),
        (format!("$STRANGER mkdir -m 1777 {path}; export TORONI_DIR={path}"), "belongs to"),
        (format!("$STRANGER touch {path}"), "not a directory"),
    ] {
        for command in ["create b", "pub a x", "sub --timeout 0.1", "ls", "clean", "info b"] {
            where_prepared(&program, &prepare, command).refused(&[word, path]);
        }
    }
    // Made by the first one who needs it, who is root or the user itself; or mounted; or chosen.
    for prepare in [
        String::new(),
        format!("install -d -o root -m 1777 {path}"),
        format!("$STRANGER mkdir {path}; install -d -o root -m 1777 {path}"),
        format!("mkdir {path}; mount -t tmpfs -o mode=777,uid=61816 none {path}"),
        format!("$STRANGER mkdir -m 1777 {path}.2; export TORONI_DIR={path}.2"),
    ] {
        let outcome = where_prepared(&program, &prepare, "pub a x");
        assert_eq!(outcome.code, Some(0), "{prepare}: {outcome:?}");
    }
    // A user trusts itself and root, and not the next user.
    let made_by_root = "\"$1\" create b; exec $STRANGER \"$1\" create mine";
    let _ = where_prepared(&program, made_by_root, "").succeeded();
    let made_by_stranger = "$STRANGER \"$1\" create b; exec setpriv --reuid=61817 --regid=61817 \
        --clear-groups -- \"$1\" create mine";
    where_prepared(&program, made_by_stranger, "").refused(&["belongs to user 61816"]);
}

/// What the error about a directory of another user says to do is done, word for word.
#[test]
fn what_the_error_about_the_default_directory_advises_works() {
    const TEST: &str = "what_the_error_about_the_default_directory_advises_works";
    if !is_root(TEST) || !can_mount(TEST) {
        return;
    }
    let _watchdog = watchdog();
    let program = ProgramForAll::new();
    let other = "setpriv --reuid=61817 --regid=61817 --clear-groups --";
    let taken = format!("{other} mkdir -m 1777 /dev/shm/toroni");
    let closed = "install -d -m 755 /dev/shm/toroni";
    for (prepare, runtime, own) in [
        (&*taken, "", "/dev/shm/toroni-61816"),
        (&*taken, "export XDG_RUNTIME_DIR=/dev/shm/run", "/dev/shm/run/toroni"),
        (&*taken, "export XDG_RUNTIME_DIR=not/absolute", "/dev/shm/toroni-61816"),
        (closed, "", "/dev/shm/toroni-61816"),
    ] {
        let create = format!(
            "{prepare}; unset XDG_RUNTIME_DIR; $STRANGER mkdir -m 700 /dev/shm/run; {runtime}
            exec $STRANGER \"$1\" create mine --capacity 64KiB"
        );
        let said = where_prepared(&program, &create, "");
        said.refused(&[own, "d /dev/shm/toroni 1777 root root", "/etc/tmpfiles.d/"]);
        let install = said.stderr.split('`').find(|part| part.starts_with("install ")).unwrap();
        let mkdir = said.stderr.split(['(', ')']).find(|part| part.starts_with("mkdir ")).unwrap();
        let by_root = format!("{install}; exec $STRANGER \"$1\" create mine --capacity 64KiB");
        let _ = where_prepared(&program, &format!("{prepare}; {by_root}"), "").succeeded();
        let by_itself = format!(
            "{prepare}; $STRANGER mkdir -m 700 /dev/shm/run; $STRANGER {mkdir}
            $STRANGER \"$1\" --dir {own} create mine --capacity 64KiB
            export TORONI_DIR={own}; exec $STRANGER \"$1\" create other --capacity 64KiB"
        );
        let _ = where_prepared(&program, &by_itself, "").succeeded();
    }
}

/// Each user learns what it may do with each bus, and why not.
#[test]
fn the_doctor_says_who_may_do_what() {
    if !is_root("the_doctor_says_who_may_do_what") {
        return;
    }
    let (_watchdog, program, root) = (watchdog(), ProgramForAll::new(), for_all());
    let (writers, readers) = (WRITERS.to_string(), READERS.to_string());
    let _ = root.succeed(&["create", "b", "--writers", &writers, "--readers", &readers]);
    let _ = root.succeed(&["create", "private", "--mode", "0600"]);
    let rights = |user| {
        let outcome = by(user, &program, &root, &["doctor"]);
        let lines = outcome.stdout.lines().filter(|line| line.contains(" your rights "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for (user, may, wanted) in [
        (BOTH, "b: you may publish and subscribe", ""),
        (PUBLISHER, "b: you may publish, but not subscribe: ", "61802"),
        (SUBSCRIBER, "b: you may subscribe, but not publish: ", "61801"),
        (STRANGER, "b: you may neither publish nor subscribe: ", "user root (0)"),
    ] {
        let said = rights(user);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains(may) && said[0].contains(wanted), "{may}: {said:?}");
        let neither = "private: you may neither publish nor subscribe: no permission";
        assert!(said[1].contains(neither) && said[1].contains("user root (0)"), "{said:?}");
    }
}

/// A directory that the user chose is used as it is; `toroni doctor` says what could happen.
#[test]
fn the_doctor_sees_whose_directory_it_is() {
    if !is_root("the_doctor_sees_whose_directory_it_is") {
        return;
    }
    let (_watchdog, root) = (watchdog(), for_all());
    let said = || run(root.toroni(&["doctor"])).stdout;
    assert!(said().contains("ok    bus directory"), "{}", said());
    std::os::unix::fs::chown(root.buses(), Some(STRANGER.id()), None).unwrap();
    assert!(said().contains("its owner can replace the buses of others"), "{}", said());
    std::os::unix::fs::chown(root.buses(), Some(0), None).unwrap();
    set_mode(&root.buses(), 0o777);
    assert!(said().contains("any user can remove the buses of others"), "{}", said());
}

/// Of a program with more rights than its starter, the starter would choose where it writes.
#[test]
fn a_program_with_more_rights_than_its_starter_ignores_the_environment() {
    const TEST: &str = "a_program_with_more_rights_than_its_starter_ignores_the_environment";
    if !is_root(TEST) {
        return;
    }
    let _watchdog = watchdog();
    let this = ProgramForAll::of(&std::env::current_exe().unwrap());
    let said_with_mode = |mode| {
        set_mode(this.path(), mode);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=61816", "--regid=61816", "--clear-groups", "--"]).arg(this.path());
        command.args(["security::say_the_default_directory", "--exact", "--nocapture"]);
        command.env("TORONI_TEST_SAY", "1").env("TORONI_DIR", "/somewhere/else");
        let said = run(command).succeeded().to_owned();
        said.lines().find_map(|line| line.split_once("it is ")).unwrap().1.to_owned()
    };
    assert_eq!(said_with_mode(0o755), "/somewhere/else of 61816");
    match &*said_with_mode(0o4755) {
        "/dev/shm/toroni of 0" => {}
        other if other.ends_with(" of 61816") => {
            crate::support::skip(TEST, "programs do not change their user here (nosuid)");
        }
        other => panic!("{other}"),
    }
}

/// The task of a process of the test above.
#[test]
fn say_the_default_directory() {
    if std::env::var_os("TORONI_TEST_SAY").is_some() {
        let user = rustix::process::geteuid().as_raw();
        println!("\nit is {} of {user}", toroni::admin::default_directory().display());
    }
}

/// In a directory for all, a bus is its owner's: others neither remove nor exchange it, whatever the umask it
/// was made with.
#[test]
fn a_bus_in_a_directory_for_all_is_its_owners() {
    if !is_root("a_bus_in_a_directory_for_all_is_its_owners") {
        return;
    }
    let (_watchdog, program) = (watchdog(), ProgramForAll::new());
    for umask in ["000", "002", "022", "077"] {
        let root = for_all();
        let script = format!(
            "umask {umask}; exec \"$0\" --dir \"$1\" create b --temporary --capacity 64KiB"
        );
        let mut command = SUBSCRIBER.runs("sh".as_ref());
        command.args(["-c", &script]).arg(program.path()).arg(root.buses());
        let _ = run(command).succeeded();
        for script in [
            "mv \"$1/b\" \"$1/mine\"",
            "rm -f \"$1/b/ring\"",
            "mv \"$1/b/ring\" \"$1/b/mine\"",
            "ln -s /etc/passwd \"$1/b/link\"",
            "touch \"$1/b/file\"",
            "rmdir \"$1/b/sockets\"",
        ] {
            let outcome = run(STRANGER.script(script, &root.buses()));
            assert_ne!(outcome.code, Some(0), "{umask} {script}: {outcome:?}");
        }
        let cleaned = by(STRANGER, &program, &root, &["clean", "b"]);
        assert_eq!(cleaned.code, Some(1), "{umask}: {cleaned:?}");
        assert_eq!(root.entries(), ["b"], "{umask}");
        // As far as the umask lets them in, and no further.
        let published = by(STRANGER, &program, &root, &["--bus", "b", "pub", "a", "x"]);
        assert_eq!(published.code == Some(0), umask == "000", "{umask}: {published:?}");
        let cleaned = by(SUBSCRIBER, &program, &root, &["clean", "b"]);
        assert_eq!(cleaned.code, Some(0), "{umask}: {cleaned:?}");
        assert_eq!(root.entries(), [""; 0], "{umask}");
    }
}

/// Who may read `ring` reads all that is in it, subscribed or not, and without leaving a trace.
#[test]
fn payloads_are_visible_to_users_that_may_read_the_ring() {
    if !is_root("payloads_are_visible_to_users_that_may_read_the_ring") {
        return;
    }
    let _watchdog = watchdog();
    for (options, seen) in [
        (&["--mode", "0600"][..], [false, false]),
        (&["--mode", "0644"], [true, true]),
        (&["--readers", "61802"], [true, false]),
    ] {
        let root = for_all();
        let create = [&["create", "b", "--capacity", "64KiB"], options].concat();
        let _ = root.succeed(&create);
        let _ = root.succeed(&["--bus", "b", "pub", "private/topic", "the-secret"]);
        let look = "grep -q the-secret \"$1/ring\" && grep -q private/topic \"$1/ring\"";
        let found = [SUBSCRIBER, STRANGER]
            .map(|user| run(user.script(look, &root.buses().join("b"))).code == Some(0));
        assert_eq!(found, seen, "{options:?}");
    }
}

/// Without a mode or groups, a user who cannot subscribe cannot read payloads either. This holds for every umask, and
/// also after another process creates the bus again.
#[test]
fn without_a_mode_users_that_cannot_subscribe_cannot_read() {
    if !is_root("without_a_mode_users_that_cannot_subscribe_cannot_read") {
        return;
    }
    let (_watchdog, program) = (watchdog(), ProgramForAll::new());
    for umask in ["000", "002", "022", "026", "077"] {
        let root = for_all();
        for _ in 0..2 {
            let script =
                format!("umask {umask}; exec \"$0\" --dir \"$1\" --bus b pub a the-secret");
            let mut command = SUBSCRIBER.runs("sh".as_ref());
            command.args(["-c", &script]).arg(program.path()).arg(root.buses());
            let _ = run(command).succeeded();
            let look = "grep -q the-secret \"$1/b/ring\"";
            let reads = run(STRANGER.script(look, &root.buses())).code == Some(0);
            let last = ["--bus", "b", "sub", "--from", "oldest", "--count", "1"];
            let subscribes = by(STRANGER, &program, &root, &last).code == Some(0);
            assert_eq!((reads, subscribes), (umask == "000", umask == "000"), "{umask}");
            let _ = by(SUBSCRIBER, &program, &root, &["clean", "b"]).succeeded();
            assert_eq!(root.entries(), [""; 0], "{umask}");
        }
    }
}

/// Names in `sockets/` are any subscriber's to choose.
#[test]
fn names_of_others_do_not_steer_a_terminal() {
    if !is_root("names_of_others_do_not_steer_a_terminal") {
        return;
    }
    let (_watchdog, program, root) = (watchdog(), ProgramForAll::new(), for_all());
    let (writers, readers) = (WRITERS.to_string(), READERS.to_string());
    let _ = root.succeed(&["create", "b", "--writers", &writers, "--readers", &readers]);
    let bad = "\u{1b}]0;owned\u{7}\nremove bus etc\u{202e}";
    let _ = run(OTHER_SUBSCRIBER.script(
        &format!("touch \"$1/b/sockets/{bad}\" && touch \"$1/{bad}\" && mkdir \"$1/{bad}.d\""),
        &root.buses(),
    ))
    .succeeded();
    let is_plain = |text: &str| {
        !text.chars().any(|c| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c))
    };
    let mut command = SUBSCRIBER.runs(program.path());
    command.arg("--dir").arg(root.buses()).args([
        "--bus",
        "b",
        "sub",
        "a/\u{202e}b",
        "--name",
        bad,
    ]);
    command.args(["--timeout", "600", "--count", "1"]);
    let mut named = system_tests::Program::start_with_ready_fd(command);
    named.wait_ready();
    let shown = run(root.toroni(&["info", "b"]));
    assert!(shown.succeeded().contains("a/\\u{202e}b\n"), "{shown:?}");
    // Another subscriber writes over the patterns of slot 0, which follow the rows of 4,096 topics and the 128 slots.
    let rows = 4096 + 128 * 8 + 4096 * 16_u32;
    let text = rows.next_multiple_of(4096) + 128 * 128 + 16;
    let over =
        format!("printf '\\033]0;' | dd of=\"$1/readers\" bs=1 seek={text} conv=notrunc 2>&1");
    let _ = run(OTHER_SUBSCRIBER.script(&over, &root.buses().join("b"))).succeeded();
    let shown = run(root.toroni(&["info", "b"]));
    assert!(shown.succeeded().contains("unreadable\n"), "{shown:?}");
    for arguments in
        [&["clean"][..], &["clean", "b"], &["ls"], &["info", "b"], &["--bus", "b", "topics"]]
    {
        let outcome = run(root.toroni(arguments));
        for text in [&outcome.stdout, &outcome.stderr] {
            assert!(is_plain(text), "{arguments:?}: {outcome:?}");
            assert!(!text.lines().any(|line| line.starts_with("remove bus etc")), "{outcome:?}");
        }
    }
    for topic in ["a\u{1b}b", "a\nb", "a\tb"] {
        let outcome = run(root.toroni(&["--bus", "b", "pub", topic, "x"]));
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(is_plain(&outcome.stderr), "{outcome:?}");
    }
    named.kill();
}

/// What anybody may put beside the buses is not touched, whatever it is called.
#[test]
fn cleaning_a_directory_for_all_touches_nothing_of_others() {
    if !is_root("cleaning_a_directory_for_all_touches_nothing_of_others") {
        return;
    }
    let (_watchdog, root) = (watchdog(), for_all());
    let elsewhere = root.file("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for name in ["ring", "publishers", "readers"] {
        std::fs::write(elsewhere.join(name), b"precious").unwrap();
    }
    std::fs::create_dir(elsewhere.join("sockets")).unwrap();
    drop(UnixDatagram::bind(elsewhere.join("sockets/0.1")).unwrap());
    let script = "cd \"$1\" && ln -s \"$2\" link && ln -s \"$2\" .b.0123456789abcdef
        mkdir a .c.0123456789abcdef && ln -s \"$2/ring\" a/ring && ln -s \"$2/sockets\" a/sockets
        ln -s \"$2/ring\" .c.0123456789abcdef/ring; ln -s \"$2/sockets\" .c.0123456789abcdef/sockets
        mkdir .d.0123456789abcdef && ln -s \"$2/sockets\" .d.0123456789abcdef/sockets
        mkfifo .e.0123456789abcdef && mkdir f && mkfifo f/ring";
    let mut command = STRANGER.script(script, &root.buses());
    let _ = run({
        command.arg(&elsewhere);
        command
    })
    .succeeded();
    let before = root.entries();
    for arguments in
        [&["clean"][..], &["clean", "link"], &["clean", "a"], &["clean", "b"], &["clean", "d"]]
    {
        let outcome = run(root.toroni(arguments));
        assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
    }
    assert_eq!(root.entries(), before);
    for name in ["ring", "publishers", "readers"] {
        assert_eq!(std::fs::read(elsewhere.join(name)).unwrap(), b"precious");
    }
    assert!(elsewhere.join("sockets/0.1").symlink_metadata().is_ok());
}
