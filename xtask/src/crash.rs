//! `cargo xtask crash`: kills real processes at every crash point, and tests wake-ups, which needs the same build.

use clap::Args;

use crate::command::{Failure, run_tests};
use crate::{hooked, metadata};

#[derive(Args)]
pub(crate) struct Options {
    /// Test only the combinations of lock and notifier whose names contain this, for example lease_datagram
    filter: Option<String>,
    /// Test only this crash point, for example after-commit
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// Kill only with a third of the combinations of lock and notifier: 0, 1 or 2. Wake-ups are tested with all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..i64::from(THIRDS)))]
    third: Option<u32>,
    /// Test every policy with each point, lock and notifier; test more wake-ups, also on a busy machine
    #[arg(long, conflicts_with = "third")]
    full: bool,
}

/// In how many parts `--third` divides [`PAIRS`].
pub(crate) const THIRDS: u32 = 3;

/// The tests that kill at every point, each with its lock, or what else it is about, and its notifier. Each third has
/// all notifiers and all locks.
const PAIRS: [&str; 15] = [
    "lease_futex",
    "lease_datagram",
    "lease_multicast",
    "robust_datagram",
    "robust_multicast",
    "robust_futex",
    "served_multicast",
    "served_futex",
    "served_datagram",
    "exclusive_futex",
    "exclusive_datagram",
    "exclusive_multicast",
    "inlets_datagram",
    "inlets_multicast",
    "inlets_futex",
];

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    options.point.as_deref().map_or(Ok(()), check_point)?;
    hooked::build()?;
    test("crash", options)?;
    // Wake-ups are tested without these two.
    let wakes = |filter: &String| {
        PAIRS.iter().any(|pair| {
            let has_wake = !pair.starts_with("served") && !pair.starts_with("inlets");
            has_wake && pair.contains(filter.as_str())
        })
    };
    if options.point.is_none() && options.filter.as_ref().is_none_or(wakes) {
        test("wake", options)?;
    }
    Ok(())
}

/// Refuses a crash point that does not exist: no test would kill a process.
fn check_point(name: &str) -> Result<(), Failure> {
    let path = metadata::root().join("crates/toroni/src/hook/crash_point.rs");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure(format!("cannot read {}: {error}", path.display())))?;
    let points = points(&text);
    if points.contains(&name) {
        return Ok(());
    }
    Err(Failure(format!("there is no crash point {name}: use one of {}", points.join(", "))))
}

/// Returns the names of the crash points that this source declares.
fn points(source: &str) -> Vec<&str> {
    let list = source.split_once("crash_points! {\n").map_or("", |(_, list)| list);
    list.lines().map_while(|line| line.split('"').nth(1)).collect()
}

fn test(executable: &str, options: &Options) -> Result<(), Failure> {
    let mut test = hooked::test(executable)?;
    test.arg("--").args(&options.filter).arg("--nocapture");
    test.env("TORONI_BIN", hooked::program("toroni")?);
    if let Some(point) = &options.point {
        test.env("TORONI_POINT", point);
    }
    if let Some(third) = options.third.filter(|_| executable == "crash") {
        test.args(left_out(third).flat_map(|pair| ["--skip", pair]));
    }
    if options.full {
        test.arg("--include-ignored");
        test.env("TORONI_FULL", "1").env("TORONI_ROUNDS", "20000");
    }
    // The tests measure how long survivors wait, so two run at a time; with `--full`, where some keep the machine busy, one.
    test.args(["--test-threads", if options.full { "1" } else { "2" }]);
    run_tests(&mut test)
}

/// The pairs that are not in this third.
fn left_out(third: u32) -> impl Iterator<Item = &'static str> {
    (0..).zip(PAIRS).filter(move |(at, _)| at % THIRDS != third).map(|(_, pair)| pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_third_has_each_lock_and_each_notifier() {
        for third in 0..THIRDS {
            let left_out: Vec<&str> = left_out(third).collect();
            let chosen: Vec<&str> = PAIRS.into_iter().filter(|it| !left_out.contains(it)).collect();
            assert_eq!(chosen.len(), 5);
            for part in [
                "lease_",
                "robust_",
                "served_",
                "exclusive_",
                "inlets_",
                "_futex",
                "_datagram",
                "_multicast",
            ] {
                assert!(chosen.iter().any(|pair| pair.contains(part)), "{part} in {chosen:?}");
            }
        }
    }

    #[test]
    fn a_crash_point_has_a_name_of_the_library() {
        for name in ["after-lock", "after-announce", "after-reopen"] {
            assert!(check_point(name).is_ok(), "{name}");
        }
        // The name of its variant, a part of a name, and nothing.
        for name in ["AfterAnnounce", "after", ""] {
            let error = check_point(name).unwrap_err().to_string();
            let begin =
                format!("there is no crash point {name}: use one of after-lock, after-reserve, ");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.ends_with(", after-reopen"), "{error}");
        }
    }

    /// A new pair must be in some third, and a name that no test has would leave nothing out.
    #[test]
    fn the_pairs_are_those_of_the_test() {
        let path = metadata::root().join("tests/system/tests/crash/main.rs");
        let text = std::fs::read_to_string(path).unwrap();
        let walks = text.split("#[test]\nfn ").skip(1).filter_map(|test| {
            let (name, body) = test.split_once("() {\n")?;
            body.trim_start().starts_with("walk").then_some(name)
        });
        let (mut walks, mut pairs) = (walks.collect::<Vec<_>>(), PAIRS.to_vec());
        walks.sort_unstable();
        pairs.sort_unstable();
        assert_eq!(walks, pairs);
    }
}
