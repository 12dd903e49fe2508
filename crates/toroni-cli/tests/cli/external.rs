//! Commands that are programs of their own: `toroni NAME` runs `toroni-NAME`.

use crate::support::{Buses, Process};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

/// Prints its name, its arguments, one per line, and what it knows of the bus.
const PROGRAM: &str = r#"#!/bin/sh
echo "pid $$"
echo "bus ${TORONI_BUS-none}"
echo "dir $TORONI_DIR"
for word; do echo "word $word"; done
exit 7
"#;

/// A folder for programs. PATH has only this folder and those of `sh` and its commands.
struct Programs {
    buses: Buses,
    folder: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let buses = Buses::new();
        let folder = buses.path().join("programs");
        std::fs::create_dir(&folder).unwrap();
        Self { buses, folder }
    }

    fn add(&self, name: &str, mode: u32) -> PathBuf {
        let (text, path) = (self.buses.path().join("text"), self.folder.join(name));
        std::fs::write(&text, PROGRAM).unwrap();
        toroni_testkit::program::copy_program(&text, &path);
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn start(&self, path: &str, arguments: &[&str]) -> Process {
        let mut command = self.buses.command(arguments);
        Process::start(command.env("PATH", path).current_dir(&self.folder))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.start(&format!("{}:/usr/bin:/bin", self.folder.display()), arguments).finish()
    }

    fn refuse(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn words(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("word ").map(str::to_owned)).collect()
}

#[test]
fn a_program_of_path_is_a_command() {
    let programs = Programs::new();
    programs.add("toroni-report", 0o755);
    let path = format!("{}:/usr/bin:/bin", programs.folder.display());
    let arguments = ["report", "--bus", "x", "", "a b", "--", "--help", "-h", "sub"];
    let process = programs.start(&path, &arguments);
    let pid = process.id();
    let output = process.finish();
    assert_eq!(words(&output), arguments[1..], "every argument arrives as it is");
    assert_eq!(output.status.code(), Some(7), "its exit code is that of the command");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("pid {pid}\n")), "it replaces the process: {said}");
    assert!(said.contains("bus none\n"), "{said}");
}

#[test]
fn options_before_the_name_reach_the_program_by_the_environment() {
    let programs = Programs::new();
    programs.add("toroni-report", 0o755);
    let output = programs.run(&["--bus", "plant", "--dir=/mnt/buses", "report", "x"]);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(said.contains("bus plant\ndir /mnt/buses\n"), "{said}");
    assert_eq!(words(&output), ["x"]);
}

#[test]
fn help_of_a_program_is_its_own() {
    let programs = Programs::new();
    programs.add("toroni-report", 0o755);
    assert_eq!(words(&programs.run(&["help", "report"])), ["--help"]);
    assert_eq!(words(&programs.run(&["report", "--help"])), ["--help"]);
    assert!(programs.run(&["help", "sub"]).stdout.starts_with(b"Print messages"));
}

#[test]
fn commands_take_precedence_over_programs() {
    let programs = Programs::new();
    for name in ["toroni-ls", "toroni-echo", "toroni-help", "toroni-demo-publisher"] {
        programs.add(name, 0o755);
    }
    for arguments in [&["ls"][..], &["echo", "--help"], &["help"], &["demo-publisher"]] {
        assert_ne!(programs.run(arguments).status.code(), Some(7), "{arguments:?}");
    }
}

#[test]
fn only_executable_files_in_absolute_directories_are_found() {
    let programs = Programs::new();
    programs.add("toroni-report", 0o644);
    std::fs::create_dir(programs.folder.join("toroni-folder")).unwrap();
    for name in ["report", "folder", "./toroni-report", "../programs/toroni-report", "", "/"] {
        programs.refuse(&[name]);
    }
    programs.add("toroni-report", 0o755);
    // The program lies in the current directory.
    for path in [".:/usr/bin", ":/usr/bin", "/usr/bin:", ""] {
        let output = programs.start(path, &["report"]).finish();
        assert_eq!(output.status.code(), Some(2), "PATH={path:?}: {output:?}");
    }
    let link = programs.folder.join("toroni-x");
    std::os::unix::fs::symlink(programs.folder.join("toroni-report"), link).unwrap();
    assert_eq!(programs.run(&["x/../report"]).status.code(), Some(2), "no name has a slash");
    assert_eq!(programs.run(&["x"]).status.code(), Some(7));
}

#[test]
fn a_mistyped_name_leads_to_the_nearest() {
    let programs = Programs::new();
    programs.add("toroni-zenoh", 0o755);
    programs.add("toroni-evil\u{1b}[31m", 0o755);
    for (typed, meant) in [("zneoh", "zenoh"), ("sbu", "sub"), ("tpoics", "topics")] {
        for arguments in [&[typed][..], &["help", typed], &["--bus", "a", typed, "--config", "x"]] {
            let said = programs.refuse(arguments);
            let wanted = format!(
                "toroni: there is no command \"{typed}\", and no program toroni-{typed} beside this one or \
                 in PATH: \
                 did you mean `toroni {meant}`?\n"
            );
            assert_eq!(said, wanted, "{arguments:?}");
        }
    }
    let said = programs.refuse(&["evil"]);
    assert!(said.ends_with("`toroni --help` lists the commands\n"), "{said}");
    let said = programs.refuse(&["a\u{1b}[2J"]);
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_program_that_cannot_start_is_a_failure() {
    let programs = Programs::new();
    let path = programs.add("toroni-report", 0o755);
    std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    let output = programs.run(&["report"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("toroni: cannot run {}: ", path.display())), "{said}");
}

/// A copy of the program in a folder that has only what is added.
fn alone(programs: &Programs) -> (PathBuf, PathBuf) {
    let folder = programs.buses.path().join("alone");
    std::fs::create_dir(&folder).unwrap();
    let copy = folder.join("toroni");
    toroni_testkit::program::copy_program(crate::program(), &copy);
    (folder, copy)
}

#[test]
fn a_program_beside_this_one_comes_before_path() {
    let programs = Programs::new();
    let (folder, copy) = alone(&programs);
    programs.add("toroni-report", 0o755);
    let path = format!("{}:/usr/bin:/bin", programs.folder.display());
    let run =
        || std::process::Command::new(&copy).arg("report").env("PATH", &path).output().unwrap();
    assert_eq!(run().status.code(), Some(7));
    let text = programs.buses.path().join("beside");
    std::fs::write(&text, "#!/bin/sh\nexit 8\n").unwrap();
    let beside = folder.join("toroni-report");
    toroni_testkit::program::copy_program(&text, &beside);
    std::fs::set_permissions(&beside, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run().status.code(), Some(8));
}

#[test]
fn a_part_that_is_not_installed_is_named_with_what_to_install() {
    let programs = Programs::new();
    let (_, copy) = alone(&programs);
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&copy);
        command.args(arguments).env("PATH", "/usr/bin:/bin");
        command.output().unwrap()
    };
    for (arguments, part) in [
        (&["net", "probe"][..], "net"),
        (&["--bus", "b", "node", "--config", "x"], "node"),
        (&["help", "sequencer"], "sequencer"),
        (&["man", "net"], "net"),
        (&["net", "--help"], "net"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let wanted = format!(
            "toroni: toroni {part} is part of toroni-node, which is not installed: install Debian's package toroni-node, \
             or run cargo install toroni-node\n"
        );
        assert_eq!(said, wanted, "{arguments:?}");
    }
    let colored = run(&["--color", "always", "net", "probe"]);
    assert!(colored.stderr.starts_with(b"\x1b[1;31mtoroni:\x1b[0m toroni net is"), "{colored:?}");
    // The pages of the other commands are written all the same.
    let pages = programs.buses.path().join("man1");
    let output = run(&["man", "--to", pages.to_str().unwrap()]);
    assert!(output.status.success() && pages.join("toroni-sub.1").exists(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "toroni: toroni-node is not installed: the pages of its commands are not written\n"
    );
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for part in ["net", "node", "sequencer"] {
        let mut lines = help.lines().skip_while(|line| !line.starts_with(&format!("  {part} ")));
        let about = lines.by_ref().take(2).collect::<String>();
        assert!(about.contains("(toroni-node)"), "{part}: {help}");
    }
}

/// `toroni-node` gets the whole command line, and the version of its caller.
#[test]
fn a_part_gets_all_words_as_they_are() {
    let programs = Programs::new();
    let (folder, copy) = alone(&programs);
    let text = programs.buses.path().join("text");
    std::fs::write(&text, PROGRAM.replace("exit 7", "echo \"caller $TORONI_CALLER\"; exit 7"))
        .unwrap();
    let node = folder.join("toroni-node");
    toroni_testkit::program::copy_program(&text, &node);
    std::fs::set_permissions(&node, Permissions::from_mode(0o755)).unwrap();
    for arguments in [
        &["--bus", "x", "net", "send", "--", "-h"][..],
        &["help", "node", "check"],
        &["man", "sequencer"],
    ] {
        let output = std::process::Command::new(&copy).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(words(&output), arguments);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("caller {}\n", env!("CARGO_PKG_VERSION"))), "{said}");
    }
}

/// `toroni-node` writes its own pages, and says itself why it cannot.
#[test]
fn pages_of_a_part_that_cannot_be_written_are_a_failure() {
    let programs = Programs::new();
    let (folder, copy) = alone(&programs);
    let text = programs.buses.path().join("text");
    std::fs::write(&text, PROGRAM.replace("echo \"pid", ">&2 echo \"caller $TORONI_CALLER, pid"))
        .unwrap();
    toroni_testkit::program::copy_program(&text, folder.join("toroni-node"));
    let pages = programs.buses.path().join("man1");
    let mut command = std::process::Command::new(&copy);
    let output = command.args(["man", "--to"]).arg(&pages).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(words(&output), ["man", "--to", pages.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    let (of_node, own) = said.trim_end().split_once('\n').unwrap();
    assert!(of_node.starts_with(&format!("caller {}, ", env!("CARGO_PKG_VERSION"))), "{said}");
    let wanted = format!(
        "toroni: {} did not write its manual pages: exit status: 7",
        folder.join("toroni-node").display()
    );
    assert_eq!(own, wanted);
}

/// No package has `toroni-bench`: who misses it learns how to build it.
#[test]
fn without_the_experiments_the_error_says_how_to_build_them() {
    let programs = Programs::new();
    let (folder, copy) = alone(&programs);
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&copy);
        command.args(arguments).env("PATH", "/usr/bin:/bin").output().unwrap()
    };
    for arguments in [&["bench"][..], &["bench", "throughput", "--quick"], &["help", "bench"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            said,
            "toroni: toroni bench is the program toroni-bench, which is not installed: build it in a checkout of \
             Toroni with `cargo build --release -p toroni-bench`, and put it beside toroni or in PATH\n",
            "{arguments:?}"
        );
    }
    let built = programs.add("toroni-bench", 0o755);
    std::fs::rename(built, folder.join("toroni-bench")).unwrap();
    let output = run(&["bench", "throughput", "--quick"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(words(&output), ["throughput", "--quick"]);
}
