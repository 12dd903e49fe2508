//! The documents show what the program really prints: runs each `console` block that is marked.
//!
//! The mark is an HTML comment in the line before the block, which code hosts do not show:
//!
//! - `<!-- run -->`: the commands must print exactly what is shown.
//! - `<!-- run, numbers may differ -->`: so they must, except for numbers and the width of columns.
//! - `<!-- run, continues -->`: so they must, in the session of the block before.
//! - `<!-- run, ready: COMMAND -->`: so they must. After each command that ends with `&`, COMMAND is repeated until it
//!   succeeds. It stands for the time that a person takes to type the next line. With several options, `ready` is the last.
//!
//! In the output, `…` stands for any text, and as the whole line for any number of lines. Each session has a
//! directory of buses of its own, which appears as `/dev/shm/toroni`, and a bash of its own.

use crate::support::{Buses, Process};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toroni_testkit::Directory;

/// A block that is marked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    /// The file and the line of the mark.
    place: String,
    continues: bool,
    numbers_differ: bool,
    ready: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

const FENCE: &str = "```";

/// Finds the marked blocks of a text.
fn blocks(file: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mark = line.strip_prefix("<!-- run").and_then(|rest| rest.strip_suffix("-->"));
        let Some(mark) = mark else { continue };
        let place = format!("{file}:{}", number + 1);
        let mut block = Block { place: place.clone(), ..Block::default() };
        let (mark, ready) = match mark.split_once(", ready: ") {
            Some((mark, ready)) => (mark, Some(ready.trim().to_owned())),
            None => (mark, None),
        };
        block.ready = ready;
        for option in mark.split(',').skip(1) {
            match option.trim() {
                "continues" => block.continues = true,
                "numbers may differ" => block.numbers_differ = true,
                other => panic!("{place}: the mark has an unknown option {other:?}"),
            }
        }
        let fence = lines.next().map(|(_, line)| line);
        assert_eq!(fence, Some("```console"), "{place}: no console block follows the mark");
        for (_, line) in lines.by_ref().take_while(|(_, line)| *line != FENCE) {
            match (line.strip_prefix("$ "), block.steps.last_mut()) {
                (Some(command), _) => {
                    block.steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                }
                (None, Some(step)) => step.shown.push(line.to_owned()),
                (None, None) => panic!("{place}: the block starts with output: {line}"),
            }
        }
        assert!(!block.steps.is_empty(), "{place}: the block has no command");
        blocks.push(block);
    }
    blocks
}

/// Whether lines are those that a block shows.
fn is_shown(block: &Block, shown: &[String], printed: &[String]) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    if first == "…" {
        return (0..=printed.len()).any(|skipped| is_shown(block, rest, &printed[skipped..]));
    }
    let Some((line, lines)) = printed.split_first() else { return false };
    is_line(block, first, line) && is_shown(block, rest, lines)
}

fn is_line(block: &Block, shown: &str, printed: &str) -> bool {
    let plain =
        |text: &str| if block.numbers_differ { without_numbers(text) } else { text.to_owned() };
    let (shown, printed) = (plain(shown), plain(printed));
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = &parts[..] else { return shown == printed };
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Replaces each number by `#`, and several spaces by one.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_inside = |c: &char| c.is_ascii_digit() || matches!(c, '.' | ',' | ':');
        match c {
            '0'..='9' => {
                while chars.next_if(is_inside).is_some() {}
                plain.push('#');
            }
            ' ' => {
                while chars.next_if_eq(&' ').is_some() {}
                plain.push(' ');
            }
            c => plain.push(c),
        }
    }
    plain
}

/// A shell in a process group of its own, which ends with this.
struct Shell {
    process: Process,
    group: Option<Pid>,
    _work: Directory,
}

impl Shell {
    fn start(buses: &Buses) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_toroni")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let work = Directory::new();
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc", "-s"])
            .current_dir(work.path())
            .env("PATH", path)
            .env("TORONI_DIR", buses.path())
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TORONI_BUS")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut command);
        process.tell("exec 2>&1");
        let group = Pid::from_raw(i32::try_from(process.id()).unwrap());
        Self { process, group, _work: work }
    }

    /// Runs a command, and returns its exit code and what was printed until it had ended and `lines` were printed, or
    /// more.
    fn run(&mut self, command: &str, lines: usize) -> (i32, Vec<String>) {
        // It must not read what is meant for the shell.
        self.process.tell(&format!("{{ {command}\n}} </dev/null"));
        self.process.tell("printf '\\001%s\\n' $?");
        let (mut printed, mut code) = (Vec::new(), None);
        while code.is_none() || printed.len() < lines {
            let line = self.process.line();
            let line = line.trim_end_matches('\n');
            match line.split_once('\u{1}') {
                None => printed.push(line.to_owned()),
                Some((before, status)) => {
                    if !before.is_empty() {
                        printed.push(before.to_owned());
                    }
                    code = status.parse().ok();
                }
            }
        }
        (code.unwrap_or(-1), printed)
    }

    /// Ends all programs that still run, and returns what they print.
    fn end(mut self) -> Vec<String> {
        kill_process_group(self.group.unwrap(), Signal::TERM).unwrap();
        // Returns when all of them have closed their output.
        let output = (*self.process).finish().stdout;
        self.group = None;
        String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell is not reaped yet, so the group is still its own.
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs the blocks of a session. Returns what is wrong with them.
fn perform(session: &[Block]) -> Result<(), String> {
    let buses = Buses::new();
    let mut shell = Shell::start(&buses);
    let directory = buses.path().display().to_string();
    let known = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().map(|line| line.replace(&directory, "/dev/shm/toroni")).collect()
    };
    let mut wrong = String::new();
    let steps = session.iter().flat_map(|block| block.steps.iter().map(move |step| (block, step)));
    for (block, Step { command, shown }) in steps {
        assert!(!command.contains("/dev/shm"), "{}: {command} is not private", block.place);
        // How many lines `…` stands for is not known.
        let lines = if shown.iter().any(|line| line == "…") { 0 } else { shown.len() };
        eprintln!("{}: $ {command}", block.place);
        let printed = known(shell.run(command, lines).1);
        if !is_shown(block, shown, &printed) {
            let lines = |lines: &[String]| lines.join("\n  ");
            let (shown, printed) = (lines(shown), lines(&printed));
            let place = &block.place;
            let _ = write!(
                wrong,
                "\n{place}: $ {command}\nshows\n  {shown}\nand prints\n  {printed}\n"
            );
        }
        if let (true, Some(ready)) = (command.ends_with('&'), &block.ready) {
            let repeated = format!("until {ready}; do sleep 0.05; done >/dev/null 2>&1");
            let (code, printed) = shell.run(&repeated, 0);
            assert!(code == 0 && printed.is_empty(), "{}: {ready}: {printed:?}", block.place);
        }
    }
    let rest = known(shell.end());
    if !rest.is_empty() {
        let place = session.last().map_or("", |block| &block.place);
        let _ = write!(wrong, "\n{place}: at the end, it prints\n  {}\n", rest.join("\n  "));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// The documents that may have marked blocks.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "md");
    let mut documents: Vec<PathBuf> =
        docs.filter(is_page).chain([root.join("README.md")]).collect();
    documents.sort();
    documents
}

#[test]
fn console_blocks_print_what_they_show() {
    let mut marked = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        marked.extend(blocks(path.file_name().unwrap().to_str().unwrap(), &text));
    }
    assert!(marked.len() >= 5, "marks have been lost: {marked:?}");
    let sessions = marked.chunk_by(|_, next| next.continues);
    let wrong: Vec<String> = sessions.filter_map(|session| perform(session).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The check can fail.
#[test]
fn a_block_that_shows_something_else_is_found() {
    let text = |shown: &str| format!("<!-- run -->\n```console\n$ echo 'a 12  b'\n{shown}```\n");
    let verdict = |shown: &str| perform(&blocks("x.md", &text(shown)));
    assert_eq!(verdict("a 12  b\n"), Ok(()));
    assert_eq!(verdict("a …  b\n"), Ok(()));
    assert_eq!(verdict("…\n"), Ok(()));
    for wrong in ["", "a 13  b\n", "a 12 b\n", "a 12\n", "…c\n"] {
        assert!(verdict(wrong).is_err(), "{wrong:?}");
    }
    let differ = text("a 777 b\n").replace("<!-- run -->", "<!-- run, numbers may differ -->");
    assert_eq!(perform(&blocks("x.md", &differ)), Ok(()));
    // The second block is in the same shell, and its directory is still there.
    let session = "<!-- run -->\n```console\n$ one=1; touch file\n```\n\
        <!-- run, continues -->\n```console\n$ echo $one; ls\n1\nfile\n```\n";
    assert_eq!(perform(&blocks("x.md", session)), Ok(()));
    // Short sleeps: a signal just before a sleep does not end it.
    let late = "<!-- run, ready: test -e set -->\n```console\n\
        $ (trap 'echo late; exit' TERM; touch set; for _ in {1..600}; do sleep 0.1; done) &\n```\n";
    let verdict = perform(&blocks("x.md", late)).unwrap_err();
    assert!(verdict.contains("late"), "{verdict}");
}
