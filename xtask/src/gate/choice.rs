//! Which parts the gate runs of a commit. The choice depends on nothing but the commit, so every clone makes the same.

use super::history::History;
use super::parts::{Part, When};
use crate::command::Failure;

/// What the gate runs of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// Whatever the part runs if its own files have not changed.
    Sample,
    Nothing,
}

pub(super) struct Choice {
    pub(super) extent: Extent,
    pub(super) reason: String,
}

/// How long the files of a part count as changed, in seconds.
const A_DAY: u64 = 24 * 60 * 60;

/// Chooses for the part at this place of the list.
///
/// 1. With `long`, or without a history, everything runs, whole.
/// 2. If a commit of the last day before HEAD has changed a file of the part's own, all of it runs.
/// 3. Otherwise the tree chooses: `(tree + place) mod of < times`.
///
/// A part whose own paths do not exist would never run whole: an error.
pub(super) fn choose(
    part: &Part,
    place: usize,
    own: &[String],
    history: Result<&History, &str>,
    tree: u32,
    exists: impl Fn(&str) -> bool,
    long: bool,
) -> Result<Choice, Failure> {
    if let Some(idle) = own.iter().find(|own| !exists(own)) {
        return Err(Failure(format!(
            "part `{}` names `{idle}`, which does not exist: see xtask/src/gate/parts.rs",
            part.name
        )));
    }
    let whole = |reason: String| Ok(Choice { extent: Extent::Whole, reason });
    if long {
        return whole("--long".to_owned());
    }
    let history = match history {
        Ok(history) => history,
        Err(why) if part.when == When::Long => {
            return Ok(Choice {
                extent: Extent::Nothing,
                reason: format!("only with --long, also if {why}"),
            });
        }
        Err(why) => return whole(why.to_owned()),
    };
    let newest = history
        .changed
        .iter()
        .filter(|(path, _)| own.iter().any(|own| is_in(path, own)))
        .max_by_key(|(_, time)| **time);
    if let Some((path, time)) = newest
        && time.saturating_add(A_DAY) >= history.head
    {
        return whole(format!("{path} has changed within a day"));
    }
    let age = newest.map_or(String::new(), |(_, time)| {
        format!("own files last changed {}; ", ago(history.head.saturating_sub(*time)))
    });
    let (extent, reason) = match part.when {
        When::Always => (Extent::Sample, "always".to_owned()),
        When::Long => (Extent::Nothing, "only with --long".to_owned()),
        When::Sometimes { times, of } => {
            let place = u32::try_from(place).unwrap_or(0);
            if tree.wrapping_add(place) % of < times {
                (Extent::Sample, format!("chosen by the tree: {times} of {of}"))
            } else {
                (Extent::Nothing, format!("{age}the choice is {times} of {of}"))
            }
        }
    };
    Ok(Choice { extent, reason })
}

/// Whether a file is this path, or below it if the path ends in `/`.
fn is_in(file: &str, path: &str) -> bool {
    file == path || (path.ends_with('/') && file.starts_with(path))
}

fn ago(seconds: u64) -> String {
    match seconds / A_DAY {
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}
