//! `replay` on a terminal with a shell that controls jobs: Ctrl-Z, `fg`, `&`.

use crate::record_options::{HOUR, write};
use crate::support::{Buses, Process, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, tcgetattr};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use toroni_testkit::Directory;
use toroni_testkit::process::is_stopped;

/// A shell on a terminal that controls it. A test that fails shows what was written to the terminal.
struct Shell {
    buses: Buses,
    files: Directory,
    master: File,
    terminal: File,
    shell: Process,
    /// What was written to the terminal.
    drawn: String,
}

impl Drop for Shell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the terminal has {:?}", self.drawn);
        }
    }
}

impl Shell {
    fn new() -> Self {
        let (buses, files) = (Buses::new(), Directory::new());
        buses.succeed(&["create", "default"]);
        let messages = [0, 1, 2, 3].map(|hours| (hours * HOUR, hours * HOUR, "payload"));
        write(&files.path().join("a.mcap"), &messages);
        let (master, terminal) = crate::formats::terminal();
        // This shell leaves the modes of the terminal to its jobs.
        let mut command = buses.shell("exec setsid --wait --ctty sh -i");
        let stdio = || terminal.try_clone().unwrap();
        command.stdin(stdio()).stdout(stdio()).stderr(stdio()).env("PS1", "$ ").env_remove("ENV");
        // Without it, a terminal can do nothing, and no line is drawn.
        command.env("TERM", "xterm");
        let shell = Process::start(command.current_dir(files.path()));
        Self { buses, files, master, terminal, shell, drawn: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until something is so. Meanwhile it reads what is written to the terminal.
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        wait_until(what, || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            while poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&now)) == Ok(1) {
                let mut bytes = [0; 4096];
                let Ok(count @ 1..) = self.master.read(&mut bytes) else { break };
                self.drawn.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            is_so(self)
        });
    }

    fn played(&self) -> u64 {
        self.buses.info("default")["messages"].as_u64().unwrap()
    }

    /// Returns the times of the line that were drawn, up to an hour after the first message.
    fn times(&self) -> BTreeSet<&str> {
        let times = self.drawn.split("1970-01-01T00:").skip(1);
        times.filter_map(|rest| rest.split_once('Z')).map(|(time, _)| time).collect()
    }

    /// Whether keys come at once, as the replay wants it.
    fn is_taken(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Returns the process id of the replay.
    fn pid(&self) -> u32 {
        self.buses.info("default")["publishers"][0]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    fn file(&self) -> PathBuf {
        self.files.path().join("a.mcap")
    }
}

#[test]
fn ctrl_z_gives_the_terminal_back_and_fg_takes_it_again() {
    let mut shell = Shell::new();
    shell.press("toroni replay a.mcap -q\n");
    shell.wait("the first message", |shell| shell.played() == 1 && shell.is_taken());
    let pid = shell.pid();
    for expected in 2..=3 {
        shell.press("\x1a");
        shell.wait("it is stopped", |_| is_stopped(pid));
        shell.wait("the terminal is as before", |shell| !shell.is_taken());
        shell.press("fg\n");
        shell.wait("it continues", |shell| !is_stopped(pid) && shell.is_taken());
        // One that waits for a line does not see the key.
        shell.press("\x1b[C");
        shell.wait("one more message", |shell| shell.played() == expected);
    }
    shell.press("q");
    shell.wait("the terminal is as before", |shell| !shell.is_taken());
    shell.press("exit\n");
    assert!(shell.shell.wait().success());
}

#[test]
fn in_the_background_it_plays_and_in_the_foreground_it_has_keys() {
    let mut shell = Shell::new();
    shell.press("toroni replay a.mcap &\n");
    shell.wait("the first message", |shell| shell.played() == 1);
    let pid = shell.pid();
    shell.press("echo says $((1 + 1))\n");
    shell.wait("the shell has the terminal", |shell| shell.drawn.contains("says 2"));
    assert!(!shell.is_taken() && !is_stopped(pid));
    shell.press("fg\n");
    shell.wait("it has the terminal", Shell::is_taken);
    shell.press("\x1b[C");
    shell.wait("the second message", |shell| shell.played() == 2);
    shell.press("\x1a");
    shell.wait("it is stopped", |_| is_stopped(pid));
    // It continues, and does not touch the terminal.
    shell.press("bg\n");
    shell.wait("it continues", |_| !is_stopped(pid));
    shell.press("echo says $((2 + 2))\n");
    shell.wait("the shell has the terminal", |shell| shell.drawn.contains("says 4"));
    assert!(!shell.is_taken() && !is_stopped(pid));
    shell.press("kill %1; wait; exit 0\n");
    assert!(shell.shell.wait().success());
}

#[test]
fn it_starts_paused_or_without_keys() {
    let mut shell = Shell::new();
    shell.press("toroni replay a.mcap --speed max --paused\n");
    shell.wait("it has the terminal", Shell::is_taken);
    assert_eq!(shell.played(), 0);
    // Keys that are pressed at one time count each.
    shell.press("\x1b[C\x1b[C");
    shell.wait("two messages", |shell| shell.played() == 2);
    shell.press(" ");
    shell.wait("the others", |shell| shell.played() == 4 && !shell.is_taken());
    shell.press("toroni replay a.mcap --no-keys\n");
    shell.wait("one more", |shell| shell.played() == 5);
    assert!(!shell.is_taken());
    // Without a terminal, it would wait for a key forever.
    let output = shell.buses.run(&["replay", shell.file().to_str().unwrap(), "--paused"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    shell.press("\x03");
    shell.wait("it reports what it played", |shell| shell.drawn.contains("interrupted after 1 "));
    shell.press("exit 0\n");
    assert!(shell.shell.wait().success());
}

#[test]
fn the_line_moves_during_a_silence() {
    let mut shell = Shell::new();
    shell.press("toroni replay a.mcap\n");
    // The time of the line, after the first message and an hour before the second.
    shell.wait("the line moves", |shell| shell.times().len() > 2);
    // What is left of the silence stays, whatever key is pressed.
    for (key, state) in [(" ", "(paused)"), (" ", ""), ("+", ""), ("-", ""), ("-", "")] {
        shell.drawn.clear();
        shell.press(key);
        if state.is_empty() {
            shell.wait("the line moves", |shell| shell.times().len() > 3);
        } else {
            shell.wait("it is paused", |shell| shell.drawn.contains(state));
        }
    }
    assert_eq!(shell.played(), 1);
    shell.press("q");
    shell.wait("the terminal is as before", |shell| !shell.is_taken());
    shell.press("exit 0\n");
    assert!(shell.shell.wait().success());
}
