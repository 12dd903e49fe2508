//! toroni.h, the list of symbols and the Rust functions agree: names, numbers, and the layout of structures.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use toroni_c::*;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(here().join(path)).unwrap()
}

/// The header without its comments.
fn header() -> String {
    let text = read("include/toroni.h");
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").unwrap().1;
    }
    code + rest
}

/// Names that begin with `toroni_` and are followed by `next`.
fn names(text: &str, next: char) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("toroni_")
        .filter(|(at, _)| !text[..*at].ends_with(is_name))
        .filter_map(|(at, _)| {
            let name = &text[at..at + text[at..].find(|c| !is_name(c))?];
            text[at + name.len()..].starts_with(next).then_some(name)
        })
        .collect()
}

#[test]
fn every_function_is_declared_and_exported() {
    let header = header();
    let declared = names(&header, '(');
    let map = read("toroni.map");
    let exported = names(&map, ';');
    let mut sources = String::new();
    for file in std::fs::read_dir(here().join("src")).unwrap() {
        sources += &std::fs::read_to_string(file.unwrap().path()).unwrap();
    }
    let defined: BTreeSet<&str> = sources
        .split("#[unsafe(no_mangle)]")
        .skip(1)
        .map(|function| *names(&function[..=function.find('(').unwrap()], '(').first().unwrap())
        .collect();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(declared, defined);
    assert_eq!(declared, exported);
}

/// Each function calls one of `guards`, which catch panics, or is in `without`, for the reason given there.
#[test]
fn no_function_lets_a_panic_through() {
    let guards = [
        "catch_panics(",
        "catch_panics_or(",
        "close(",
        "receive(subscriber, message, ",
        "matches(",
    ];
    let without = [
        // Signal handlers call them; they only store a number.
        ("toroni_subscriber_interrupt", "interrupter.interrupt()"),
        ("toroni_router_interrupt", "interrupter.interrupt()"),
        // They only read, which cannot panic.
        ("toroni_error_message", "LAST.try_with("),
        ("toroni_status_text", "Status::ALL"),
        ("toroni_version", "concat!("),
    ];
    let mut seen = 0;
    for file in std::fs::read_dir(here().join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = *names(&function[..=function.find('(').unwrap()], '(').first().unwrap();
            let (head, rest) = function.split_once(" {\n").unwrap();
            let body = &rest[..rest.find("\n}\n").unwrap()];
            let instead = without.iter().find(|(known, _)| *known == name);
            match instead {
                Some((_, reason)) => assert!(body.contains(reason), "{name}: {body}"),
                None => assert!(guards.iter().any(|guard| body.contains(guard)), "{name}: {body}"),
            }
            assert!(head.contains("extern \"C\""), "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, names(&header(), '(').len());
}

/// Only the functions of `arguments.rs` write to callers' variables. They clear them on failure.
#[test]
fn every_result_is_cleared_on_failure() {
    for file in std::fs::read_dir(here().join("src")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if !path.ends_with("arguments.rs") {
            assert!(!text.contains(".write(") && !text.contains("write_bytes"), "{path:?}");
        }
    }
}

#[test]
fn every_declaration_has_a_comment() {
    let text = read("include/toroni.h");
    let lines: Vec<&str> = text.lines().collect();
    for name in names(&header(), '(') {
        let at = lines.iter().position(|line| {
            !line.starts_with([' ', '*', '/']) && line.contains(&format!("{name}("))
        });
        // Several declarations may share one comment.
        let mut above =
            lines[..at.unwrap_or_else(|| panic!("{name} is not declared"))].iter().rev();
        let first = above.find(|line| !line.contains(");")).unwrap();
        assert!(first.ends_with("*/"), "{name} has no comment: {first}");
    }
}

#[test]
fn every_status_has_one_number_and_one_name() {
    let header = header();
    let (_, statuses) = header.split_once("typedef enum toroni_status TORONI_ANY_INT {").unwrap();
    let declared: BTreeSet<(&str, i32)> = statuses[..statuses.find('}').unwrap()]
        .split(',')
        .filter_map(|value| value.split_once('='))
        .map(|(name, number)| (name.trim(), number.trim().parse().unwrap()))
        .collect();
    let here = Status::ALL.iter().map(|(status, name)| (*name, *status as i32)).collect();
    assert_eq!(declared, here);
}

/// Sizes and offsets of the structures in Rust.
macro_rules! layouts {
    ($($structure:ident { $($field:ident)* })*) => {
        fn layouts() -> Vec<(&'static str, &'static str, usize)> {
            vec![$(
                (stringify!($structure), "", size_of::<$structure>()),
                $((stringify!($structure), stringify!($field), std::mem::offset_of!($structure, $field)),)*
            )*]
        }

        /// The offset at which the last field of each structure ends.
        fn ends() -> BTreeMap<&'static str, usize> {
            fn size<S, F>(_: impl Fn(&S) -> &F) -> usize {
                size_of::<F>()
            }
            let mut ends = BTreeMap::new();
            $($(ends.insert(
                stringify!($structure),
                std::mem::offset_of!($structure, $field) + size(|one: &$structure| &one.$field),
            );)*)*
            ends
        }
    };
}

layouts! {
    toroni_policy { kind limit_ns budget_ns per_ns }
    toroni_open_options {
        struct_size existence lock notify multicast_address multicast_port directory capacity
        topic_table_bytes max_publishers max_subscribers policy flags require mode owner writers_group
        readers_group participant_name max_arrivals retained_topics retained_bytes
    }
    toroni_publisher_options { struct_size policy to_descendants retained }
    toroni_bytes { data length }
    toroni_subscriber_options {
        struct_size patterns pattern_count start wait position sequence not_gating local_only name
        max_age_ns after_loss retained
    }
    toroni_message {
        payload payload_length topic topic_length sequence position next_position timestamp_ns number origin
        flags reserved
    }
    toroni_origin { number source series stream reserved }
    toroni_inlet_options { struct_size policy }
    toroni_inlet_entry {
        topic parts part_count origin open_from number timestamp_ns flags reserved
    }
    toroni_lost { from until messages bound reason scope scope_count }
    toroni_arrived { next taken_over reserved }
    toroni_sent { number series reserved }
    toroni_echo { number outcome reserved }
    toroni_loss { messages bytes }
    toroni_subscriber_stats { received lost_messages lapses losses lost_on_the_way stale unknown reserved }
    toroni_bus_stats {
        capacity topic_table_bytes tail sequence oldest_position created_ns policy lock notify topics
        max_publishers max_subscribers max_arrivals persistent on_disk sees_publishers sees_subscribers multicast_address
        multicast_port retained_topics max_retained_topics missing_values retained_used_bytes retained_bytes
    }
    toroni_lock_owner { slot pid alive stopped dumping exclusive }
    toroni_publisher_info {
        name slot pid alive stopped messages bytes waits waited_ns overwrites wakes started_ns
        same_pid_namespace dumping
    }
    toroni_subscriber_info {
        name slot pid alive stopped gating lapped_now position lag_bytes received lost_messages lapses
        started_ns same_pid_namespace patterns_truncated patterns pattern_count dumping losses
        lost_on_the_way
    }
    toroni_reopened { outcome reserved messages }
    toroni_topic_info {
        name messages bytes value value_sequence value_bytes value_published_ns
    }
    toroni_value {
        topic payload payload_length sequence position timestamp_ns number origin flags status problem
        missing_length
    }
    toroni_missing { topic sequence length }
    toroni_bus_entry { name path problem capacity in_use persistent }
    toroni_clean_action { kind slot bus file path text }
    toroni_clean_skip { path why }
}

/// A C compiler checks the sizes and offsets. The header has no other fields.
#[test]
fn structures_have_the_layout_that_c_gives_them() {
    let mut program = String::from("#include \"toroni.h\"\n");
    for (structure, field, at) in layouts() {
        let what = if field.is_empty() {
            format!("sizeof({structure})")
        } else {
            format!("offsetof({structure}, {field})")
        };
        writeln!(program, "_Static_assert({what} == {at}, \"{what}\");").unwrap();
    }
    let folder = toroni_testkit::Directory::new();
    let source = folder.join("layout.c");
    std::fs::write(&source, program).unwrap();
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
    compiler.arg("-I").arg(here().join("include")).arg(&source);
    assert!(compiler.status().expect("a C compiler, which linking needs, too").success());

    let header = header();
    for structure in names(&header, ' ') {
        let Some((_, body)) = header.split_once(&format!("typedef struct {structure} {{")) else {
            continue;
        };
        let fields = body[..body.find('}').unwrap()].matches(';').count();
        let known = layouts()
            .iter()
            .filter(|(name, field, _)| *name == structure && !field.is_empty())
            .count();
        assert_eq!(fields, known, "{structure}");
    }
}

/// A field that is added must change the size, by which the library notices it.
#[test]
fn structures_that_callers_make_end_without_padding() {
    let header = header();
    let mut count = 0;
    for (structure, _, size) in layouts().into_iter().filter(|(_, field, _)| field.is_empty()) {
        // Callers never make a structure that the library hands out by pointer.
        let pointed_at = header.contains(&format!("const {structure} *toroni_"));
        if !pointed_at {
            assert_eq!(ends()[structure], size, "{structure}");
            count += 1;
        }
    }
    assert_eq!(count, 17, "options, and structures that the library writes to callers' memory");
}
