//! Finds permissions that nothing uses. Each of them would let a dependency in that the architecture does not mean.

use super::rules::Tree;
use super::{File, layer_of, listed, names_any};

/// The permissions in the tables of a crate that none of its files uses.
pub(super) fn in_tree(files: &[File], tree: &Tree) -> Vec<String> {
    let mut unused = Vec::new();
    for layer in tree.layers {
        for path in layer.uses {
            // All tests have that permission: a test's use does not count for the layer's own.
            let used = uses(files, tree).any(|used| {
                used.module == layer.module
                    && names_any(used.target, &[path])
                    && !(used.in_test && names_any(used.target, tree.in_tests))
            });
            if !used {
                unused.push(format!("of `{}` to use `{path}`", layer.module));
            }
        }
    }
    for path in tree.bottom {
        if !uses(files, tree).any(|used| names_any(used.target, &[path])) {
            unused.push(format!("of all layers to use `{path}`"));
        }
    }
    for path in tree.in_tests {
        if !uses(files, tree).any(|used| used.in_test && names_any(used.target, &[path])) {
            unused.push(format!("of all tests to use `{path}`"));
        }
    }
    for reserved in tree.reserved {
        for name in reserved.only {
            let used = files.iter().filter(|file| listed(&file.path, &[name])).any(|file| {
                let mut paths = file.source.paths.iter();
                paths.any(|named| !named.in_test && names_any(&named.segments, reserved.paths))
            });
            if !used {
                unused.push(format!("of {name} to name {}", reserved.paths.join(", ")));
            }
        }
    }
    unused.extend(of_unsafe(files, tree.unsafe_in));
    for name in tree.checked.files {
        if !files.iter().any(|file| listed(&file.path, &[name])) {
            unused.push(format!("of {name} to calculate with numbers of others"));
        }
    }
    for (name, _) in tree.checked.except {
        let mut paths = files
            .iter()
            .filter(|file| listed(&file.path, &[name]))
            .flat_map(|file| &file.source.paths);
        if !paths.any(|named| !named.in_test && names_any(&named.segments, tree.checked.readers)) {
            unused.push(format!("of {name} to read numbers of others unchecked"));
        }
    }
    unused
}

/// The permissions to contain `unsafe` that none of these files uses.
fn of_unsafe(files: &[File], permissions: &[&str]) -> Vec<String> {
    let mut unused = Vec::new();
    for name in permissions {
        let used = files
            .iter()
            .filter(|file| !file.is_test && listed(&file.path, &[name]))
            .any(|file| file.source.unsafe_lines.iter().any(|(_, in_test)| !in_test));
        if !used {
            unused.push(format!("of {name} to contain `unsafe`"));
        }
    }
    unused
}

/// One layer's use of another.
struct Use<'a> {
    module: &'a str,
    /// As `["ring", "layout", "Header"]`.
    target: &'a [String],
    in_test: bool,
}

fn uses<'a>(files: &'a [File], tree: &'a Tree) -> impl Iterator<Item = Use<'a>> {
    files.iter().flat_map(move |file| {
        file.source.paths.iter().filter_map(move |named| {
            let module = layer_of(&file.module, tree)?.module;
            let [root, target @ ..] = named.segments.as_slice() else { return None };
            let other = root == "crate" && !named.is_macro && !names_any(target, &[module]);
            other.then_some(Use { module, target, in_test: file.is_test || named.in_test })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::read_files;
    use super::super::rules::LIBRARY;
    use super::*;

    fn is_unused(permission: &str, file: &str, text: &str) -> bool {
        let files = read_files(&[(file.into(), text.to_owned())]).unwrap();
        in_tree(&files, &LIBRARY).iter().any(|unused| unused == permission)
    }

    #[test]
    fn a_permission_is_used_by_its_own_layer_only() {
        let permission = "of `shm` to use `ring::layout`";
        let text = "use crate::ring::layout::PAGE;";
        assert!(!is_unused(permission, "shm/create.rs", text));
        assert!(is_unused(permission, "bus/mod.rs", text));
        assert!(is_unused(permission, "shm/create.rs", "use crate::ring::position;"));
    }

    #[test]
    fn what_all_tests_may_use_is_no_use_of_a_layer() {
        let text = "#[cfg(test)] mod tests { use crate::ring::layout::PAGE; }";
        assert!(is_unused("of `shm` to use `ring::layout`", "shm/create.rs", text));
        assert!(!is_unused("of all tests to use `ring::layout`", "shm/create.rs", text));
    }

    #[test]
    fn atomics_and_unsafe_of_tests_need_no_permission() {
        let atomics = "of shm/fork.rs to name std::sync::atomic, core::sync::atomic, loom";
        assert!(!is_unused(atomics, "shm/fork.rs", "use std::sync::atomic::AtomicU64;"));
        assert!(is_unused(
            atomics,
            "shm/fork.rs",
            "#[cfg(test)] use std::sync::atomic::AtomicU64;"
        ));
        let in_folder = "of shm/ to contain `unsafe`";
        assert!(!is_unused(in_folder, "shm/guard.rs", "fn f() { unsafe { g() } }"));
        assert!(is_unused(in_folder, "shm/guard.rs", "#[cfg(test)] fn f() { unsafe { g() } }"));
    }
}
