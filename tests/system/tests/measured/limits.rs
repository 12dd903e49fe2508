//! Limits of a process (setrlimit(2)) that are reached: a clear error, nothing lost, nothing left over. Those
//! of descriptors, address space and locked memory as a bus is opened are in `environment.rs`.

use crate::support::user::User;
use crate::support::{Outcome, ProgramForAll, assert_empty, is_root, run, set_mode};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use system_tests::worker::Fixture;
use system_tests::{TempRoot, Watchdog, program};
use toroni::NotifyKind;
use toroni_testkit::turn;

fn watchdog() -> Watchdog {
    Watchdog::start("limits", Duration::from_secs(240))
}

/// Runs `toroni` with files of at most `bytes` bytes.
fn with_files_of(root: &TempRoot, bytes: u64, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={bytes}")).arg("--").arg(program::path());
    command.arg("--dir").arg(root.buses()).args(["--bus", "b"]).args(arguments);
    command.env_remove("TORONI_BUS").env_remove("TORONI_DIR");
    run(command)
}

#[test]
fn files_that_may_not_be_that_long() {
    let _turn = turn();
    let _watchdog = watchdog();
    for root in [TempRoot::new(), TempRoot::below(Path::new("/var/tmp"))] {
        let refused = |outcome: &Outcome, limit: u64| {
            let limit = format!("{limit} bytes that this process may write");
            outcome.refused(&[&limit, "ulimit -f", "smaller capacity"]);
        };
        let slots = ["--max-subscribers", "60", "--retained-topics", "0"];
        let small = ["create", "b", "--temporary", "--capacity", "64KiB", "--topic-table", "4KiB"];
        let small = [&small[..], &slots].concat();
        // Not even a header; not the ring; the ring, which is the longest, but for one byte.
        // Header, control words of 9 pages of 4 KiB, table of topics, and the table of arrivals of 5.
        let fits = 4096 * (1 + 9 + 1 + 5) + (64 << 10);
        for limit in [0, 1, 4095, 4096, 60_000, fits - 1] {
            for way in [&small[..], &["pub", "a", "x"], &["sub", "--create", "--count", "1"]] {
                refused(&with_files_of(&root, limit, way), limit);
                assert_empty(&root);
            }
            // In a directory that is there, as a mount point would be.
            std::fs::create_dir(root.buses().join("b")).unwrap();
            refused(&with_files_of(&root, limit, &small), limit);
            let left = toroni_testkit::directory::entries(&root.buses().join("b"));
            assert!(left.is_empty(), "{left:?}");
            std::fs::remove_dir(root.buses().join("b")).unwrap();
        }
        let _ = with_files_of(&root, fits, &small).succeeded();
        // What is there is as long as it is: its users write nothing after its end.
        for limit in [0, 4096] {
            let _ = with_files_of(&root, limit, &["pub", "a", "x"]).succeeded();
            let said = with_files_of(&root, limit, &["sub", "--from", "oldest", "--count", "1"]);
            assert_eq!(said.succeeded(), "a\tx\n");
            let _ = with_files_of(&root, limit, &["info"]).succeeded();
        }
        // A part is missing that is longer than may be written.
        std::fs::remove_file(root.buses().join("b/readers")).unwrap();
        refused(&with_files_of(&root, 100, &["pub", "a", "x"]), 100);
        let _ = with_files_of(&root, fits, &["pub", "a", "x"]).succeeded();
        root.assert_clean_leaves_nothing();
    }
}

/// Whatever `toroni create` lacks, to make the bus or to print it, it leaves nothing if it fails.
#[test]
fn a_creation_that_lacks_descriptors_or_memory_leaves_nothing() {
    let _turn = turn();
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    let create = ["create", "b", "--capacity", "16MiB"];
    let descriptors: Vec<_> = (4..32).map(|count| format!("--nofile={count}")).collect();
    let memory: Vec<_> = (1..32).map(|size: u64| format!("--as={}", size << 22)).collect();
    for (reason, limits) in
        [("Too many open files", descriptors), ("Cannot allocate memory", memory)]
    {
        let mut failures = 0;
        let succeeded = limits.iter().find(|limit| {
            let mut command = Command::new("prlimit");
            command.args([limit, "--"]).arg(program::path());
            command.arg("--dir").arg(root.buses()).args(create);
            command.env_remove("TORONI_BUS").env_remove("TORONI_DIR");
            let outcome = run(command);
            if outcome.code == Some(0) {
                return true;
            }
            // Below the first limits, the program itself does not start.
            failures += usize::from(outcome.stderr.contains(reason));
            assert_empty(&root);
            false
        });
        assert!(failures > 0 && succeeded.is_some(), "{reason}: {failures}, {succeeded:?}");
        let _ = run(program::toroni(&root.buses(), &["rm", "b"])).succeeded();
        assert_empty(&root);
    }
}

#[test]
fn processes_and_threads_that_may_not_be_made() {
    let _turn = turn();
    if !is_root("processes_and_threads_that_may_not_be_made") {
        return;
    }
    let (_watchdog, root) = (watchdog(), TempRoot::new());
    set_mode(&root.buses(), 0o777);
    set_mode(root.buses().parent().unwrap(), 0o755);
    let program = ProgramForAll::new();
    let with = |tasks: u32, arguments: &[&str]| {
        let mut command = Command::new("prlimit");
        command.args([&format!("--nproc={tasks}"), "--"]);
        let inner = User::with_id(61_833).runs(program.path());
        command.arg(inner.get_program()).args(inner.get_args());
        command.arg("--dir").arg(root.buses()).args(["--bus", "b"]).args(arguments);
        command.env_remove("TORONI_BUS").env_remove("TORONI_DIR");
        run(command)
    };
    // The library needs no thread and no process; the program has one thread that takes signals.
    let create = ["create", "b", "--temporary", "--capacity", "64KiB", "--notify", "datagram"];
    let _ = with(1, &create).succeeded();
    let _ = with(1, &["info"]).succeeded();
    for way in [&["pub", "a", "x"][..], &["sub", "--from", "oldest", "--count", "1"]] {
        with(1, way).refused(&["signal handler", "Resource temporarily unavailable"]);
    }
    let _ = with(2, &["pub", "a", "x"]).succeeded();
    let said = with(2, &["sub", "--from", "oldest", "--count", "1"]);
    assert_eq!(said.succeeded(), "a\tx\n");
    // What is made of processes says that it cannot make them.
    with(2, &["demo"]).refused(&["Resource temporarily unavailable"]);
    let _ = with(1, &["clean"]).succeeded();
    assert_empty(&root);
}

#[test]
fn descriptors_that_run_out_at_work() {
    let _turn = turn();
    let _watchdog = watchdog();
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10).notify(NotifyKind::Datagram));
    let bus = fixture.bus();
    let mut subscriber = bus.subscribe("**").unwrap();
    subscriber.enable_fd().unwrap();
    let mut worker = fixture.start_ready("limits", &[]);
    worker.running.tell("go on");
    // It cannot connect to the subscriber's socket, but publishes. The blocking subscriber rechecks by itself.
    let message = subscriber.receive().unwrap();
    assert_eq!(message.payload(), b"without");
    worker.running.expect("without");
    assert!(subscriber.try_receive().unwrap().is_none());
    worker.running.tell("go on");
    // It can now, and does.
    let fd = subscriber.as_fd();
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let patience = system_tests::LIMIT.try_into().unwrap();
    assert_eq!(rustix::event::poll(&mut fds, Some(&patience)), Ok(1), "it is not woken");
    assert_eq!(subscriber.try_receive().unwrap().unwrap().payload(), b"with");
    worker.running.expect("with");
    worker.running.tell("go on");
    let status = worker.running.wait();
    assert!(status.success(), "{status}{}", worker.running.errors());
    drop((subscriber, bus));
    fixture.root.assert_clean_leaves_nothing();
}
