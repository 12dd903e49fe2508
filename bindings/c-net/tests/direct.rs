//! toroni_net.h, the list of symbols and the Rust functions agree; and programs in C and in Rust hear each other.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toroni_net::direct::Received;
use toroni_net::endpoint::Endpoint;
use toroni_net_c::*;
use toroni_testkit::{Directory, Program};

const PATIENCE: Duration = Duration::from_secs(60);

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(here().join(path)).unwrap()
}

/// Names of functions: those that are followed by `next`.
fn functions(text: &str, next: char) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = text.match_indices("toroni_net_").filter_map(|(at, _)| {
        let length = text[at..].find(|c| !is_name(c))?;
        let is_whole = !text[..at].ends_with(is_name);
        (is_whole && text[at + length..].starts_with(next))
            .then(|| text[at..at + length].to_owned())
    });
    found.collect()
}

#[test]
fn every_function_is_declared_defined_and_exported() {
    let header = read("include/toroni_net.h");
    // Comments name functions with parentheses, too.
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let declared = functions(&code, '(');
    assert_eq!(declared.len(), 12, "{declared:?}");
    assert_eq!(declared, functions(&read("toroni_net.map"), ';'));
    let sources = read("src/lib.rs") + &read("src/status.rs");
    let defined: BTreeSet<String> = sources
        .split("extern \"C\" fn ")
        .skip(1)
        .map(|function| function[..function.find('(').unwrap()].to_owned())
        .collect();
    assert_eq!(declared, defined);
    assert_eq!(sources.matches("#[unsafe(no_mangle)]").count(), declared.len());
}

/// Compiles a text in C, which must have no warnings.
fn compile(source: &Path, to: &Path) {
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=c11",
        "-D_POSIX_C_SOURCE=200809L",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
    ]);
    compiler.arg("-I").arg(here().join("include")).arg(source).arg("-o").arg(to);
    compiler.arg(library()).args(["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The static library that was built with this test.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let folder = folder.parent().unwrap();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libtoroni_net_c") && name.ends_with(".a")
    };
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let newest = all
        .filter(is_library)
        .max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    newest.expect("the static library")
}

#[test]
fn the_header_has_the_numbers_and_layouts_of_the_library() {
    let directory = Directory::new();
    let mut checks = String::from("#include <toroni_net.h>\n#include <stddef.h>\n");
    for (status, name) in NetStatus::ALL {
        checks += &format!("_Static_assert({name} == {}, \"{name}\");\n", status as i32);
    }
    macro_rules! layout {
        ($type:ident: $($field:ident),*) => {
            checks += &format!(
                "_Static_assert(sizeof({0}) == {1}, \"{0}\");\n",
                stringify!($type),
                size_of::<$type>()
            );
            $(checks += &format!(
                "_Static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");\n",
                stringify!($type),
                stringify!($field),
                std::mem::offset_of!($type, $field)
            );)*
        };
    }
    layout!(toroni_net_flow: source, session, series, stream, reserved);
    layout!(
        toroni_net_message: payload, payload_length, topic, topic_length, number, timestamp_ns, flow, flags, reserved
    );
    layout!(toroni_net_lost: messages, from, until, flow, bound, reason);
    // Every function can be called, and NULL is an error or nothing.
    checks += "int main(void) {\n\
        toroni_net_direct *direct = (toroni_net_direct *)1; toroni_net_message message = {0}; toroni_net_lost lost; int fd = 7;\n\
        if (toroni_net_open(NULL, &direct) != TORONI_NET_INVALID_ARGUMENT || direct) return 1;\n\
        if (toroni_net_open(\"x\", NULL) != TORONI_NET_INVALID_ARGUMENT) return 2;\n\
        if (toroni_net_open(\"[node]\", &direct) != TORONI_NET_INVALID_CONFIGURATION) return 3;\n\
        if (toroni_net_open_file(\"/nonesuch\", &direct) != TORONI_NET_OS) return 4;\n\
        if (!toroni_net_error_message()[0] || !toroni_net_version()[0]) return 5;\n\
        if (toroni_net_send(NULL, \"t\", \"\", 0, 0) != TORONI_NET_INVALID_ARGUMENT) return 6;\n\
        if (toroni_net_receive(NULL, &message, 0) != TORONI_NET_INVALID_ARGUMENT) return 7;\n\
        if (toroni_net_last_lost(NULL, &lost) != TORONI_NET_INVALID_ARGUMENT || lost.messages) return 8;\n\
        if (toroni_net_turn(NULL) != TORONI_NET_INVALID_ARGUMENT || toroni_net_end(NULL, 0) == 0) return 9;\n\
        if (toroni_net_fd(NULL, &fd) != TORONI_NET_INVALID_ARGUMENT || fd != -1) return 10;\n\
        toroni_net_close(NULL);\n\
        return (int)toroni_net_streams(NULL);\n}\n";
    let source = directory.path().join("checks.c");
    std::fs::write(&source, checks).unwrap();
    let program = directory.path().join("checks");
    compile(&source, &program);
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Writes a configuration on the loopback interface. Tests run at the same time, on one host: each has a realm of its own.
fn file(directory: &Directory, name: &str, sections: &str) -> PathBuf {
    let path = directory.path().join(format!("{name}.toml"));
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let node =
        format!("[node]\nrealm = '{process} {thread:?}'\nname = '{name}'\ninterfaces = ['lo']\n");
    std::fs::write(&path, node + sections).unwrap();
    path
}

fn sections() -> [String; 2] {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let group = format!("239.192.84.79:{}", free.local_addr().unwrap().port());
    [
        format!(
            "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '20Mbit/s'\ngeneration = '4s'\n\
             ttl = 0\nloop = true\n"
        ),
        format!("[[receive]]\ngroup = '{group}'\ngeneration = '4s'\n"),
    ]
}

fn example(directory: &Directory, name: &str) -> PathBuf {
    let program = directory.path().join(name);
    compile(&here().join("examples").join(format!("{name}.c")), &program);
    program
}

fn piped(mut command: Command) -> Program {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start(command)
}

#[test]
fn a_program_in_rust_receives_what_one_in_c_sends() {
    let directory = Directory::new();
    let [send, receive] = sections();
    let mut receiver = Endpoint::open_file(&file(&directory, "rust", &receive)).unwrap();
    let mut command = Command::new(example(&directory, "direct_send"));
    command.arg(file(&directory, "c", &send)).arg("plant/boiler");
    let mut sender = piped(command);
    let begin = Instant::now();
    while receiver.streams() == 0 {
        assert!(begin.elapsed() < PATIENCE, "nothing is heard");
        receiver.receive(Some(Duration::from_millis(20))).unwrap();
    }
    let mut input = sender.stdin().unwrap();
    for number in 0..500 {
        writeln!(input, "{number}").unwrap();
    }
    drop(input);
    for number in 0..500 {
        match receiver.receive(Some(PATIENCE)).unwrap() {
            Some(Received::Message { topic, payload, .. }) => {
                assert_eq!((topic, payload), ("plant/boiler", format!("{number}").as_bytes()));
            }
            other => panic!("after {number}: {other:?}"),
        }
    }
    assert!(sender.finish().status.success());
}

#[test]
fn a_program_in_c_receives_what_one_in_rust_sends() {
    let directory = Directory::new();
    let [send, receive] = sections();
    let mut command = Command::new(example(&directory, "direct_receive"));
    command.arg(file(&directory, "c", &receive)).arg("1000");
    let mut receiver = piped(command);
    receiver.wait_for_error("ready");
    let mut sender = Endpoint::open_file(&file(&directory, "rust", &send)).unwrap();
    // It begins with what is sent after it knows the sender, which it learns from the first SESSION.
    let begin = Instant::now();
    let mut next = 0_u64;
    while receiver.is_running() {
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        sender.send("t/1", format!("{next}").as_bytes(), Some(PATIENCE)).unwrap();
        next += 1;
        // It repairs what is asked for.
        sender.turn().unwrap();
    }
    let output = receiver.finish();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<u64> =
        text.lines().map(|line| line.strip_prefix("t/1\t").unwrap().parse().unwrap()).collect();
    assert_eq!((output.status.code(), numbers.len()), (Some(0), 1_000));
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "each once, in order");
}
