//! Decides which counts have changed and what to do about it. Does no I/O.

use std::collections::BTreeMap;
use std::fmt;

use super::baseline::Counts;

/// How much worse a count may be, in percent of the baseline. Moving code already changes counts a little.
const TOLERANCE_PERCENT: f64 = 3.0;

const BLESS: &str = "cargo xtask counts --bless";

/// The new counts beside those of the baseline.
pub(super) struct Comparison {
    rows: Vec<Row>,
    /// Paths that only the baseline has.
    gone: Vec<String>,
    /// Differences between the tools and those of the baseline.
    tools: Vec<String>,
}

struct Row {
    path: String,
    now: f64,
    before: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    Worse,
    Better,
    /// The baseline does not have the path.
    New,
}

impl Comparison {
    /// `names` are the paths that were counted: all whose names contain `filter`.
    pub(super) fn new(names: &[String], now: &Counts, before: &Counts, filter: &str) -> Self {
        let row = |path: &String| {
            let now = *now.instructions_per_message.get(path)?;
            let before = before.instructions_per_message.get(path).copied();
            Some(Row { path: path.clone(), now, before })
        };
        let known = before.instructions_per_message.keys();
        Self {
            rows: names.iter().filter_map(row).collect(),
            gone: known
                .filter(|path| path.contains(filter) && !names.contains(path))
                .cloned()
                .collect(),
            tools: differing(&now.made_with, &before.made_with),
        }
    }

    /// Says why the counts do not pass and what to do, or `None` if they pass. `file` is the baseline, and `profiles`
    /// the folder of callgrind's files.
    pub(super) fn objection(&self, file: &str, profiles: &str) -> Option<String> {
        let mut lines = Vec::new();
        let worse = self.rows_that_are(Verdict::Worse);
        for row in &worse {
            lines.push(format!(
                "{} takes {:.2} instructions per message, and {:.2} in the baseline: {}, where at \
                 most {TOLERANCE_PERCENT} % is allowed",
                row.path,
                row.now,
                row.before.unwrap_or_default(),
                row.change(),
            ));
        }
        if let Some(row) = worse.first() {
            lines.extend(self.tools.iter().map(|tool| {
                format!("{tool}: this may be the reason. Count without your change, too")
            }));
            lines.push(format!(
                "to see where: callgrind_annotate --inclusive=yes {profiles}/{}.callgrind",
                row.path
            ));
            lines.push(format!(
                "remove them; or, if they are worth it, run `{BLESS}`, commit {file}, and say in \
                 the message what they gain"
            ));
        }
        let missing = self.rows_that_are(Verdict::New).into_iter().map(|row| row.path.as_str());
        let missing: Vec<&str> = missing.collect();
        if !missing.is_empty() {
            lines.push(format!("not in the baseline: {}", missing.join(", ")));
        }
        if !self.gone.is_empty() {
            lines.push(format!("only in the baseline: {}", self.gone.join(", ")));
        }
        if worse.is_empty() && !lines.is_empty() {
            lines.push(format!("run `{BLESS}` and commit {file}"));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Advice for counts that pass.
    pub(super) fn hint(&self) -> Option<String> {
        let better = self.rows_that_are(Verdict::Better);
        let better: Vec<&str> = better.into_iter().map(|row| row.path.as_str()).collect();
        let tools = self.tools.join("; ");
        let from = if tools.is_empty() { tools } else { format!(" ({tools})") };
        (!better.is_empty()).then(|| {
            format!("better{from}: {}. To keep it: run `{BLESS}` and commit", better.join(", "))
        })
    }

    fn rows_that_are(&self, verdict: Verdict) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.verdict() == verdict).collect()
    }
}

impl Row {
    fn change_percent(&self) -> Option<f64> {
        self.before.map(|before| percent(self.now, before))
    }

    fn verdict(&self) -> Verdict {
        self.before.map_or(Verdict::New, |before| verdict(self.now, before))
    }

    fn change(&self) -> String {
        self.change_percent().map_or("new".to_owned(), |percent| format!("{percent:+.1} %"))
    }
}

fn percent(now: f64, before: f64) -> f64 {
    (now - before) / before * 100.0
}

/// Compares a count with one of the baseline.
pub(super) fn verdict(now: f64, before: f64) -> Verdict {
    match percent(now, before) {
        percent if percent > TOLERANCE_PERCENT => Verdict::Worse,
        percent if percent < -TOLERANCE_PERCENT => Verdict::Better,
        _ => Verdict::Same,
    }
}

/// The tools that both have, in different versions.
fn differing(now: &BTreeMap<String, String>, before: &BTreeMap<String, String>) -> Vec<String> {
    let both = now.iter().filter_map(|(tool, now)| Some((tool, now, before.get(tool)?)));
    both.filter(|(_, now, before)| now != before)
        .map(|(tool, now, before)| {
            format!("{tool} is `{now}`, and was `{before}` for the baseline")
        })
        .collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [path, now, before, change] =
            ["path", "instructions per message", "baseline", "change"];
        writeln!(formatter, "{path:<28} {now:>22} {before:>10} {change:>9}")?;
        for row in &self.rows {
            let before = row.before.map_or("-".to_owned(), |before| format!("{before:.2}"));
            let remark = match row.verdict() {
                Verdict::Worse => "  WORSE",
                Verdict::Better => "  better",
                Verdict::Same | Verdict::New => "",
            };
            let (path, now, change) = (&row.path, row.now, row.change());
            writeln!(formatter, "{path:<28} {now:>22.2} {before:>10} {change:>9}{remark}")?;
        }
        self.tools.iter().try_for_each(|tool| writeln!(formatter, "note: {tool}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rustc: &str, paths: &[(&str, f64)]) -> Counts {
        let paths = paths.iter().map(|(path, count)| ((*path).to_owned(), *count));
        Counts {
            made_with: BTreeMap::from([("rustc".to_owned(), rustc.to_owned())]),
            instructions_per_message: paths.collect(),
        }
    }

    fn compare(now: &Counts, before: &Counts, filter: &str) -> Comparison {
        let names: Vec<String> = now.instructions_per_message.keys().cloned().collect();
        Comparison::new(&names, now, before, filter)
    }

    fn objection(now: f64, before: f64) -> Option<String> {
        let now = counts("1", &[("publish-8", now)]);
        compare(&now, &counts("1", &[("publish-8", before)]), "").objection("FILE", "FOLDER")
    }

    fn hint(now: f64, before: f64) -> Option<String> {
        let now = counts("1", &[("publish-8", now)]);
        compare(&now, &counts("1", &[("publish-8", before)]), "").hint()
    }

    #[test]
    fn more_than_the_tolerance_is_refused_and_less_is_not() {
        for now in [100.0, 102.99, 103.0, 97.0, 50.0] {
            assert_eq!(objection(now, 100.0), None, "{now}");
        }
        for now in [103.01, 110.0, 1e9] {
            let text = objection(now, 100.0).unwrap();
            for part in ["publish-8", "100.00", BLESS, "FILE", "FOLDER/publish-8.callgrind"] {
                assert!(text.contains(part), "{part} in {text}");
            }
            assert!(!text.contains("rustc"), "{text}");
        }
    }

    #[test]
    fn what_is_better_asks_to_be_blessed_and_passes() {
        for now in [97.0, 100.0, 110.0] {
            assert_eq!(hint(now, 100.0), None, "{now}");
        }
        let text = hint(96.99, 100.0).unwrap();
        assert!(text.contains("publish-8") && text.contains(BLESS), "{text}");
    }

    #[test]
    fn one_that_is_worse_is_not_outweighed_by_one_that_is_better() {
        let before = counts("1", &[("a", 100.0), ("b", 100.0)]);
        let comparison = compare(&counts("1", &[("a", 10.0), ("b", 104.0)]), &before, "");
        let text = comparison.objection("FILE", "FOLDER").unwrap();
        assert!(text.contains("b takes 104.00") && !text.contains("a takes"), "{text}");
        assert!(comparison.hint().is_some());
    }

    #[test]
    fn another_compiler_is_named_where_a_count_is_worse() {
        let before = counts("1.88", &[("a", 100.0)]);
        let worse = compare(&counts("1.99", &[("a", 110.0)]), &before, "");
        let text = worse.objection("FILE", "FOLDER").unwrap();
        assert!(text.contains("rustc is `1.99`, and was `1.88` for the baseline"), "{text}");
        let same = compare(&counts("1.99", &[("a", 100.0)]), &before, "");
        assert_eq!(same.objection("FILE", "FOLDER"), None);
        assert!(same.to_string().contains("1.99"));
    }

    #[test]
    fn a_path_that_nothing_guards_is_refused() {
        let (now, before) = (counts("1", &[("a", 1.0)]), counts("1", &[("b", 1.0)]));
        let text = compare(&now, &before, "").objection("FILE", "FOLDER").unwrap();
        for part in ["not in the baseline: a", "only in the baseline: b", BLESS] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = compare(&now, &Counts::default(), "").objection("FILE", "FOLDER").unwrap();
        assert!(text.contains("not in the baseline: a"), "{text}");
    }

    #[test]
    fn a_filter_does_not_miss_what_it_leaves_out() {
        let before = counts("1", &[("a", 1.0), ("b", 1.0)]);
        let comparison = compare(&counts("1", &[("a", 1.0)]), &before, "a");
        assert_eq!(comparison.objection("FILE", "FOLDER"), None);
    }
}
