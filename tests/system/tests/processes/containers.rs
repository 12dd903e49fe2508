//! Two containers of one pod, as far as a bus can tell: PID namespaces of their own, and the directory
//! of buses mounted at a place of their own.

use crate::support::container::{Container, program_in};
use crate::support::{can_mount, is_root, run, script_in_mounts, skip};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::time::Duration;
use system_tests::worker::{BUS, Fixture, Worker};
use system_tests::{Program, Random, TempRoot, Watchdog, wait_until};
use toroni::{LockKind, NotifyKind, Policy};
use toroni_testkit::{order::Agreement, process::is_stopped};

fn can_run(test: &str) -> bool {
    is_root(test) && can_mount(test)
}

#[test]
fn messages_go_from_container_to_container() {
    if !can_run("messages_go_from_container_to_container") {
        return;
    }
    let _watchdog = Watchdog::start("containers", Duration::from_secs(200));
    for notify in ["futex", "datagram", "multicast"] {
        let root = TempRoot::new();
        let (one, two) = (Container::new(&root, "one"), Container::new(&root, "two"));
        // The first one creates it, in a container too.
        let create = ["create", "b", "--capacity", "64KiB", "--notify", notify];
        let _ = run(one.toroni(&create)).succeeded();
        let mut command = two.toroni(&["--bus", "b", "sub", "--count", "3", "--timeout", "60"]);
        command.args(["--wait", "block"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut subscriber = Program::start_with_ready_fd(command);
        subscriber.wait_ready();
        let _ = run(one.toroni(&["--bus", "b", "pub", "a", "from one"])).succeeded();
        let _ = run(two.toroni(&["--bus", "b", "pub", "a", "from two"])).succeeded();
        let _ = root.succeed(&["--bus", "b", "pub", "a", "from the host"]);

        // The subscriber's number is one of its namespace: both sides say so.
        let finished = subscriber.finish();
        assert!(finished.status.success(), "{notify}: {finished:?}");
        assert_eq!(finished.stdout, b"a\tfrom one\na\tfrom two\na\tfrom the host\n", "{notify}");
        root.assert_clean_leaves_nothing();
    }
}

/// The image has a bus. A subscriber opens it before any process has written to it.
#[test]
fn a_bus_in_an_image_is_one_bus_for_all_processes_of_its_container() {
    let test = "a_bus_in_an_image_is_one_bus_for_all_processes_of_its_container";
    if !can_run(test) {
        return;
    }
    let _watchdog = Watchdog::start("containers", Duration::from_secs(200));
    let root = TempRoot::new();
    // The files are complete when the image is, so it is made in a file system of its own.
    let script = r#"
cd "$1"; program=$2
mount -t tmpfs none . && mkdir lower upper work container || exit 98
"$program" --dir lower create b --capacity 64KiB || exit 1
mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work container || exit 99
in_container() { "$program" --dir container --bus b "$@"; }
mkfifo ready
in_container sub --count 2 --timeout 60 --wait block --ready-fd 3 3> ready > received &
read -r line < ready
in_container pub a one && in_container pub a two || exit 1
wait $! || exit 1
cat received"#;
    let buses = root.buses();
    let arguments = [buses.as_os_str(), system_tests::program::path().as_os_str()];
    let outcome = run(script_in_mounts(script, &arguments));
    if outcome.code == Some(99) {
        return skip(test, "this process may not mount an overlay");
    }
    assert!(outcome.succeeded().ends_with("a\tone\na\ttwo\n"), "{outcome:?}");
}

/// A publisher stops while it holds the lock, others see that it lives, and it is killed: all in
/// another namespace than theirs.
#[test]
fn the_lock_of_a_publisher_killed_in_its_container_is_taken_over() {
    if !can_run("the_lock_of_a_publisher_killed_in_its_container_is_taken_over") {
        return;
    }
    let _watchdog = Watchdog::start("containers", Duration::from_secs(200));
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10));
    let (one, two) = (Container::new(&fixture.root, "one"), Container::new(&fixture.root, "two"));
    for round in 0..5 {
        let before = fixture.messages();
        let mut owner = start_in(&mut fixture, &one, "publish", &["kind=stopping"]);
        owner.running.expect("ready");
        let process = wait_for_program(&owner);
        wait_until("it stopped under the lock", || is_stopped(process));

        let info = fixture.root.info(BUS);
        let holder = &info.publishers()[0];
        assert_eq!(
            (&holder["alive"], &holder["same_pid_namespace"]),
            (&true.into(), &false.into())
        );
        assert!(holder["pid"].as_u64().unwrap() < 10, "as its own namespace counts: {holder}");
        // It lives, so no process takes its lock.
        let other = start_in(&mut fixture, &two, "publish", &["kind=single", "count=100"]);
        wait_until("the other waits", || fixture.root.info(BUS).publishers().len() == 2);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(fixture.messages(), before, "round {round}: the lock of the living was taken");
        kill(process);
        let said = other.running.succeed();
        assert!(said.contains("published 100"), "{said}");
        assert_eq!(fixture.messages(), before + 100, "what the dead did not commit is not there");
        assert!(!owner.running.finish().status.success());
    }
    fixture.root.assert_clean_leaves_nothing();
}

/// Publishers in one container are killed at random moments under full load; those elsewhere continue,
/// and see one order in which nothing is missing.
#[test]
fn kills_under_load_harm_no_other_container() {
    if !can_run("kills_under_load_harm_no_other_container") {
        return;
    }
    let _watchdog = Watchdog::start("containers", Duration::from_secs(240));
    let mut random = Random::from_environment();
    let mut fixture = Fixture::new(|config| {
        let config = config.policy(Policy::Wait { limit: None }).capacity(256 << 10);
        config.max_publishers(6).max_subscribers(4)
    });
    let mut order = Agreement::default();
    let (one, two) = (Container::new(&fixture.root, "one"), Container::new(&fixture.root, "two"));
    let mut subscribers = vec![
        start_in(&mut fixture, &two, "subscribe", &["how=receive"]),
        start_in(&mut fixture, &two, "subscribe", &["how=poll"]),
        fixture.start("subscribe", &["how=receive"]),
    ];
    subscribers.iter_mut().for_each(|subscriber| subscriber.running.expect("ready").clear());
    let survivor = start_in(&mut fixture, &two, "publish", &["kind=mixed"]);
    let mut victims: Vec<Worker> =
        (0..2).map(|_| start_in(&mut fixture, &one, "publish", &["kind=mixed"])).collect();
    let mut killed = Vec::new();
    for round in 0..24 {
        let victim = victims.remove(0);
        wait_until("a victim is at work", || fixture.counters.count(victim.id) > 0);
        std::thread::sleep(Duration::from_micros(random.between(0, 5000)));
        let (id, process) = (victim.id, wait_for_program(&victim));
        // In turn: the program alone, or its whole container.
        if round % 2 == 0 {
            kill(process);
            let mut running = victim.running;
            assert!(!running.finish().status.success());
        } else {
            victim.kill(&mut order);
        }
        wait_until_gone(process);
        killed.push((id, fixture.counters.count(id)));
        let seen = fixture.counters.count(survivor.id);
        wait_until("the survivor continues", || fixture.counters.count(survivor.id) > seen);
        victims.push(start_in(&mut fixture, &one, "publish", &["kind=mixed"]));
    }
    for victim in victims {
        // Until it is at work, the process in the container may still be a `mount`.
        wait_until("a victim is at work", || fixture.counters.count(victim.id) > 0);
        // The program dies after its container's first process, and it holds a slot until then.
        let process = wait_for_program(&victim);
        victim.kill(&mut order);
        wait_until_gone(process);
    }
    // What the dead left goes, and the living stay.
    let _ = fixture.root.succeed(&["clean"]);
    let info = fixture.root.info(BUS);
    info.assert_no_dead(false);
    assert_eq!((info.publishers().len(), info.subscribers().len()), (1, 3), "{info:?}");

    let total = fixture.stop_publishers([survivor]);
    let seen = fixture.finish_subscribers(total, subscribers, &mut order);
    for seen in &seen {
        assert_eq!((seen.received, seen.lost), (total, 0));
    }
    for (id, told) in killed {
        let committed = seen[0].of_worker.get(&id).copied().unwrap_or(0);
        assert!(committed >= told, "worker {id}: {told} were published, {committed} arrived");
    }
    let info = fixture.root.info(BUS);
    info.assert_no_dead(true);
    assert_eq!((info.publishers().len(), info.subscribers().len()), (0, 0), "{info:?}");
    fixture.root.assert_clean_leaves_nothing();
}

#[test]
fn a_robust_bus_is_refused_in_another_pid_namespace() {
    if !can_run("a_robust_bus_is_refused_in_another_pid_namespace") {
        return;
    }
    let root = TempRoot::new();
    let container = Container::new(&root, "one");
    let _ = root.succeed(&["create", "b", "--lock", "robust"]);
    let _ = root.succeed(&["--bus", "b", "pub", "a", "hello"]);
    run(container.toroni(&["--bus", "b", "pub", "a", "x"])).refused(&[
        "`robust`",
        "PID namespaces",
        // The two ways out.
        "share the PID namespace",
        "shareProcessNamespace: true",
        "lock kind `lease`",
    ]);
    // Reading takes no lock.
    let said = run(container.toroni(&["--bus", "b", "sub", "--from", "oldest", "--count", "1"]));
    assert_eq!(said.succeeded(), "a\thello\n");
    root.info("b").assert_no_dead(true);
    assert!(root.info("b").publishers().is_empty());
}

#[test]
fn multicast_is_refused_in_another_network() {
    if !can_run("multicast_is_refused_in_another_network") {
        return;
    }
    let root = TempRoot::new();
    let container = Container::new(&root, "one").with_own_network();
    let _ = root.succeed(&["create", "b", "--notify", "multicast"]);
    let _ = root.succeed(&["--bus", "b", "pub", "a", "hello"]);
    for arguments in [&["pub", "a", "x"][..], &["sub", "--count", "1"]] {
        let outcome = run(container.toroni(&[&["--bus", "b"], arguments].concat()));
        outcome.refused(&[
            "multicast",
            "network namespaces",
            "share the network namespace",
            "`futex`",
        ]);
    }
    root.info("b").assert_no_dead(true);
    // The others do not mind.
    for notify in [NotifyKind::Futex, NotifyKind::Datagram] {
        let name = format!("{notify:?}").to_lowercase();
        let bus = root.config().lock(LockKind::Lease).notify(notify).create(&name).unwrap();
        let mut subscriber = bus.subscribe("**").unwrap();
        let _ = run(container.toroni(&["--bus", &name, "pub", "a", "hello"])).succeeded();
        assert_eq!(subscriber.receive().unwrap().payload(), b"hello");
    }
}

/// Starts a worker in a new container that sees the fixture's bus.
fn start_in(fixture: &mut Fixture, container: &Container, role: &str, options: &[&str]) -> Worker {
    let directory = format!("dir={}", container.buses().display());
    fixture.start_through(&container.words(), role, &[&[&*directory], options].concat())
}

fn wait_for_program(worker: &Worker) -> u32 {
    let mut found = None;
    wait_until("the program runs in its container", || {
        found = program_in(worker.running.id());
        found.is_some()
    });
    found.unwrap()
}

/// Waits until a process of a container, which others killed, has been taken apart.
fn wait_until_gone(process: u32) {
    wait_until("it is gone", || !std::path::Path::new(&format!("/proc/{process}")).exists());
}

/// Kills a process of a container, which is a descendant of this one.
fn kill(process: u32) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}
