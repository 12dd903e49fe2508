//! Checks the dependencies between crates, from `cargo metadata`.

use super::Violation;
use super::rules::{CRATES, Crate};
use crate::metadata::{Dependency, Package};
use crate::package::is_published;

/// Checks the members of the workspace against the table.
pub(super) fn check(members: &[Package]) -> Vec<Violation> {
    members.iter().flat_map(|package| check_package(package, members)).collect()
}

/// The permissions of the table that no member uses.
pub(super) fn unused(members: &[Package]) -> Vec<String> {
    let mut unused = Vec::new();
    for rules in CRATES {
        let Some(package) = members.iter().find(|package| package.name == rules.name) else {
            unused.push(format!("of a crate `{}`, which does not exist", rules.name));
            continue;
        };
        for allowed in rules.members.iter().chain(rules.foreign.into_iter().flatten()) {
            if !package.dependencies.iter().any(|dependency| dependency.name == *allowed) {
                unused.push(format!("of `{}` to depend on `{allowed}`", rules.name));
            }
        }
    }
    unused
}

fn check_package(package: &Package, members: &[Package]) -> Vec<Violation> {
    let violation = |rule| Violation { file: package.manifest_path.clone(), line: 1, rule };
    let Some(rules) = CRATES.iter().find(|rules| rules.name == package.name) else {
        let rule =
            format!("the crate `{}` has no rules: add it to the table of crates", package.name);
        return vec![violation(rule)];
    };
    let broken = package.dependencies.iter().filter(|dependency| {
        let is_member = members.iter().any(|member| member.name == dependency.name);
        if is_member {
            !rules.members.contains(&dependency.name.as_str())
        } else {
            is_foreign_and_forbidden(rules, dependency)
        }
    });
    let forbidden = broken.map(|dependency| {
        violation(format!("`{}` must not depend on `{}`", package.name, dependency.name))
    });
    let unpublished = package
        .dependencies
        .iter()
        .filter(|dependency| is_published(package) && is_unpublished(dependency, members));
    let unpublished = unpublished.map(|dependency| {
        violation(format!(
            "`{}` is published, so only its tests may use `{}`, which is not",
            package.name, dependency.name
        ))
    });
    forbidden.chain(unpublished).collect()
}

/// Whether users would need this dependency and could not get it, as with the testkit.
fn is_unpublished(dependency: &Dependency, members: &[Package]) -> bool {
    let member = members.iter().find(|member| member.name == dependency.name);
    dependency.kind.as_deref() != Some("dev") && member.is_some_and(|one| !is_published(one))
}

/// Users do not compile what only tests and build scripts need.
fn is_foreign_and_forbidden(rules: &Crate, dependency: &Dependency) -> bool {
    let normal = dependency.kind.is_none();
    normal && rules.foreign.is_some_and(|allowed| !allowed.contains(&dependency.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(str::to_owned),
            })
            .collect();
        Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            dependencies,
            manifest_path: format!("{name}/Cargo.toml").into(),
            ..Package::default()
        }
    }

    fn broken(packages: &[Package]) -> Vec<String> {
        check(packages).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_that_looks_up_is_found_even_if_only_its_tests_do() {
        let members =
            [package("toroni", &[("toroni-cli", Some("dev"))]), package("toroni-cli", &[])];
        assert_eq!(
            broken(&members),
            ["toroni/Cargo.toml:1: `toroni` must not depend on `toroni-cli`"]
        );
    }

    #[test]
    fn the_library_takes_no_new_foreign_crate_unnoticed() {
        let members =
            [package("toroni", &[("libc", None), ("rand", None), ("quick", Some("dev"))])];
        assert_eq!(broken(&members), ["toroni/Cargo.toml:1: `toroni` must not depend on `rand`"]);
    }

    #[test]
    fn a_dependency_that_is_allowed_and_not_there_is_found() {
        let found = unused(&[package("toroni", &[("libc", None)]), package("toroni-cli", &[])]);
        assert!(found.contains(&"of `toroni-cli` to depend on `toroni`".to_owned()), "{found:?}");
        assert!(found.contains(&"of `toroni` to depend on `rustix`".to_owned()), "{found:?}");
        assert!(!found.contains(&"of `toroni` to depend on `libc`".to_owned()), "{found:?}");
        let missing = "of a crate `xtask`, which does not exist".to_owned();
        assert!(found.contains(&missing), "{found:?}");
    }

    #[test]
    fn only_tests_of_a_published_crate_may_use_one_that_is_not() {
        let testkit = || Package { publish: Some(Vec::new()), ..package("toroni-testkit", &[]) };
        let of = |kind| broken(&[package("toroni-proto", &[("toroni-testkit", kind)]), testkit()]);
        assert!(of(Some("dev")).is_empty());
        for kind in [None, Some("build")] {
            let wanted = "toroni-proto/Cargo.toml:1: `toroni-proto` is published, so only its tests may use \
                          `toroni-testkit`, which is not";
            assert_eq!(of(kind), [wanted]);
        }
        let harness = Package {
            publish: Some(Vec::new()),
            ..package("toroni-bench-harness", &[("toroni-testkit", None)])
        };
        assert!(broken(&[harness, testkit()]).is_empty());
    }

    #[test]
    fn a_crate_without_rules_is_found() {
        assert_eq!(broken(&[package("util", &[])]).len(), 1);
    }
}
