//! Follows "Two hosts in five minutes" of `docs/network.md` to the letter, on two hosts with users, groups and files of their own.
//!
//! A host is a network namespace. Its shell has a mount namespace with a copy of `/etc`, so that users and groups that are made
//! there do not exist anywhere else, and empty directories for buses and states. `sudo` is a function of the shell. All other
//! commands are those of a user who has just logged in.

use std::path::Path;
use std::process::{Command, Stdio};
use toroni_testkit::network::{Host, Setup, skip};
use toroni_testkit::{Program, wait};

const DOCUMENT: &str = include_str!("../../../../docs/network.md");
const FENCE: &str = "```";

/// A block of the document.
#[derive(Debug)]
enum Block {
    Console(Vec<String>),
    Toml(String),
}

/// Returns the blocks of a section.
fn blocks(title: &str) -> Vec<Block> {
    let (_, section) = DOCUMENT.split_once(&format!("\n## {title}\n")).unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut blocks = Vec::new();
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix(FENCE) else { continue };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != FENCE).collect();
        blocks.push(match kind {
            "toml" => Block::Toml(inside.join("\n")),
            "console" => {
                let command = |line: &&str| line.strip_prefix("$ ").unwrap().to_owned();
                Block::Console(inside.iter().map(command).collect())
            }
            _ => panic!("a block of {kind}"),
        });
    }
    blocks
}

/// What every host has before the first command: the programs, a user, and a name.
const PREPARED: &str = r#"
exec 2>&1
set -e
hostname "$1"
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/etc /mnt/bin /mnt/home
cp -a /etc/. /mnt/etc
mount --bind /mnt/etc /etc
printf '%032x\n' "$2" > /mnt/machine-id
rm -f /etc/machine-id && cp /mnt/machine-id /etc/machine-id
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /var/lib
for program in "$3" "$4"; do
    touch "/mnt/bin/${program##*/}"
    mount --bind "$program" "/mnt/bin/${program##*/}"
done
useradd --home-dir /mnt/home --no-create-home alice
unset TORONI_DIR TORONI_BUS
export PATH="/mnt/bin:$PATH" USER=alice
cd /mnt/home
sudo() {
    if [ "$1" = -u ]; then
        setpriv --reuid "$2" --regid "$2" --init-groups --pdeathsig KILL -- "${@:3}"
    else
        "$@"
    fi
}
alice() { setpriv --reuid alice --regid alice --init-groups --pdeathsig KILL -- bash -c "$1"; }
set +e
"#;

/// The shell of a host.
struct Shell(Program);

impl Shell {
    fn start(host: &Host, number: usize) -> Self {
        let programs = [crate::program(), Path::new(env!("CARGO_BIN_EXE_toroni-node"))];
        let mut command = host.command("unshare");
        // The processes of the host end with the first one.
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--uts"]);
        command.args(["--propagation", "private", "bash", "--noprofile", "--norc", "-s"]);
        command.args([&format!("line-{number}"), &number.to_string()]);
        command.args(programs);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = Self(Program::start(command));
        assert_eq!(shell.tells(PREPARED), (0, String::new()));
        shell
    }

    /// Runs a command of the document. Returns its exit code, and what it printed.
    fn runs(&mut self, command: &str) -> (i32, String) {
        self.tells(&as_typed(command))
    }

    fn succeeds(&mut self, command: &str) -> String {
        let (code, printed) = self.runs(command);
        assert_eq!(code, 0, "{command}: {printed}");
        printed
    }

    /// Starts a command that does not end, and returns once it has printed this.
    fn starts(&mut self, command: &str, wanted: &str) {
        self.begins(command);
        let line = self.0.line_where(|line| line.contains(wanted));
        assert!(line.contains(wanted), "{command}: {line}");
    }

    fn begins(&mut self, command: &str) {
        self.0.tell(&format!("{} </dev/null &", as_typed(command)));
    }

    fn tells(&mut self, script: &str) -> (i32, String) {
        self.0.tell(&format!("{script}\nprintf '\\001%s\\n' $?"));
        let mut printed = String::new();
        loop {
            let line = self.0.line().unwrap_or_else(|| panic!("the shell has ended: {printed}"));
            match line.split_once('\u{1}') {
                Some((_, code)) => return (code.parse().unwrap(), printed),
                None => printed += &(line + "\n"),
            }
        }
    }
}

/// Returns what the shell does for a command of the document. Each command without `sudo` is one after a login.
fn as_typed(command: &str) -> String {
    if command.starts_with("sudo ") {
        command.to_owned()
    } else {
        format!("alice '{}'", command.replace('\'', r"'\''"))
    }
}

#[test]
fn two_hosts_in_five_minutes() {
    const TOOLS: &str = "unshare hostname mount useradd usermod setpriv install";
    let are_there = format!("for tool in {TOOLS}; do command -v $tool || exit 1; done");
    let found = Command::new("sh").args(["-c", &are_there]).output().unwrap();
    if !found.status.success() {
        return skip(&format!("users and groups cannot be made here without {TOOLS}"));
    }
    let Some(network) = Setup::new(2).bridged() else { return };
    let mut shells = [0, 1].map(|at| Shell::start(&network.hosts[at], at + 3));
    let blocks = blocks("Two hosts in five minutes");
    let [
        Block::Console(users),
        Block::Console(group),
        Block::Toml(sends),
        Block::Toml(receives),
        Block::Console(start),
        Block::Console(pass),
    ] = &blocks[..]
    else {
        panic!("{blocks:#?}")
    };
    for shell in &mut shells {
        for command in users.iter().chain(group) {
            shell.succeeds(command);
        }
    }
    for (shell, file) in shells.iter_mut().zip([sends, receives]) {
        let write = format!("cat > /etc/toroni/plant.toml <<'END'\n{file}\nEND");
        assert_eq!(shell.tells(&write), (0, String::new()));
    }
    let [check, node] = &start[..] else { panic!("{start:?}") };
    for shell in &mut shells {
        let printed = shell.succeeds(check);
        assert!(!printed.contains("error:") && !printed.contains("warning:"), "{printed}");
    }
    let [first, second] = &mut shells;
    first.starts(node, "event=start");
    // It says whom it follows.
    second.starts(node, "follows stream 1 of line-3");
    let [subscribe, publish] = &pass[..] else { panic!("{pass:?}") };
    let on = |command: &str, host: &str| {
        let (command, comment) = command.split_once('#').unwrap();
        assert_eq!(comment.trim(), host);
        command.trim().to_owned()
    };
    second.begins(&on(subscribe, "on the second host"));
    wait::until("it subscribes", || second.succeeds("toroni info").contains("plant/**"));
    first.succeeds(&on(publish, "on the first one"));
    let line = second.0.line_where(|line| line.contains("351.2"));
    assert_eq!(line, "plant/boiler/temperature\t351.2");
}
