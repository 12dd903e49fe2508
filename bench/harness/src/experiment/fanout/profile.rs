//! The figures of the fan-out experiment for one subscriber: average, least and most of its latencies; and for several
//! percentiles the average and the most of the fastest messages.

use crate::experiment;
use crate::report::{Cell, Table};
use serde::{Deserialize, Serialize};

/// The percentiles that the published experiment prints.
const PERCENTILES: [f64; 6] = [75.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// Index of 90 % in [`PERCENTILES`]. The goals judge the mean of the fastest 90 %: if other processes use the machine, the
/// slowest messages show the time that the kernel gives to them, at any priority.
const JUDGED: usize = 1;

/// The latencies of one subscriber, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// How many there are.
    pub count: u64,
    /// Their mean.
    pub average: f64,
    /// The least.
    pub least: u64,
    /// The greatest.
    pub most: u64,
    /// Up to 75, 90, 99, 99.9, 99.99 and 99.999 %.
    pub fastest: Vec<Fastest>,
}

/// The fastest messages, up to a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fastest {
    /// Their mean.
    pub average: f64,
    /// The greatest of them.
    pub most: u64,
}

impl Profile {
    /// Returns the mean of the fastest 90 %, in microseconds.
    #[must_use]
    pub fn judged_us(&self) -> f64 {
        self.fastest.get(JUDGED).map_or(self.average, |part| part.average) / 1e3
    }

    /// Sorts the samples and summarises them. Returns `None` if there are none.
    #[must_use]
    pub fn of(samples: &mut [u64]) -> Option<Self> {
        samples.sort_unstable();
        let (least, most) = (*samples.first()?, *samples.last()?);
        let fastest = PERCENTILES
            .iter()
            .map(|percentile| {
                let part = &samples[..rank(*percentile, samples.len())];
                Fastest { average: average(part), most: part.last().copied().unwrap_or(least) }
            })
            .collect();
        let count = samples.len() as u64;
        Some(Self { count, average: average(samples), least, most, fastest })
    }

    /// Joins several runs: the median of each figure, so that one disturbed run does not decide, but the least and the most
    /// of all runs. Returns `None` if there are none.
    #[must_use]
    pub fn median(runs: &[Self]) -> Option<Self> {
        let fastest = (0..runs.first()?.fastest.len())
            .map(|index| Fastest {
                average: middle(runs, |run| run.fastest[index].average, f64::total_cmp),
                most: middle(runs, |run| run.fastest[index].most, u64::cmp),
            })
            .collect();
        Some(Self {
            count: runs.iter().map(|run| run.count).sum(),
            average: middle(runs, |run| run.average, f64::total_cmp),
            least: runs.iter().map(|run| run.least).min()?,
            most: runs.iter().map(|run| run.most).max()?,
            fastest,
        })
    }
}

/// Makes a cell in microseconds.
#[must_use]
pub fn micros(nanoseconds: f64) -> Cell {
    let micros = nanoseconds / 1e3;
    Cell { text: format!("{micros:.3}"), value: Some(micros), summary: None }
}

/// Makes a table with the figures of the published experiment, with a row for each number of subscribers.
#[must_use]
pub fn profile_table<'a>(
    name: &str,
    title: &str,
    rows: impl Iterator<Item = (u16, &'a Profile)>,
) -> Table {
    let mut columns: Vec<String> = ["avg", "min", "max"].map(str::to_owned).to_vec();
    for percentile in PERCENTILES {
        columns.extend([format!("{percentile}% avg"), format!("{percentile}% max")]);
    }
    let rows = rows.map(|(subscribers, profile)| {
        let float = experiment::float;
        let mut cells = vec![
            micros(profile.average),
            micros(float(profile.least)),
            micros(float(profile.most)),
        ];
        for part in &profile.fastest {
            cells.extend([micros(part.average), micros(float(part.most))]);
        }
        (subscribers.to_string(), cells)
    });
    Table {
        name: name.to_owned(),
        title: format!("{title}, µs (75%: of the fastest 75 % of the messages)"),
        unit: "µs".to_owned(),
        corner: "subscribers".to_owned(),
        columns,
        rows: rows.collect(),
        ..Table::default()
    }
}

/// Returns the number of samples up to a percentile, at least one.
fn rank(percentile: f64, count: usize) -> usize {
    // In thousandths of a percent: all percentiles are whole numbers of them.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a percentile is from 0 to 100"
    )]
    let thousandths = (percentile * 1000.0).round() as u128;
    let rank = (count as u128 * thousandths).div_ceil(100_000);
    usize::try_from(rank).unwrap_or(count).clamp(1, count)
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds, shown with three digits")]
fn average(samples: &[u64]) -> f64 {
    let sum: u128 = samples.iter().map(|sample| u128::from(*sample)).sum();
    sum as f64 / samples.len() as f64
}

/// Returns the middle figure, the lower one of two.
fn middle<T>(
    runs: &[Profile],
    figure: impl Fn(&Profile) -> T,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> T
where
    T: Copy,
{
    let mut figures: Vec<T> = runs.iter().map(figure).collect();
    figures.sort_unstable_by(order);
    figures[(figures.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_fastest() {
        let mut samples: Vec<u64> = (1..=1000).rev().collect();
        let all = Profile::of(&mut samples).unwrap();
        assert_eq!((all.count, all.least, all.most, all.average), (1000, 1, 1000, 500.5));
        let most: Vec<u64> = all.fastest.iter().map(|part| part.most).collect();
        assert_eq!(most, [750, 900, 990, 999, 1000, 1000]);
        assert_eq!(all.fastest[0].average, 375.5);
        assert_eq!(Profile::of(&mut []), None);
        let one = Profile::of(&mut [7]).unwrap();
        assert!(one.fastest.iter().all(|part| (part.average, part.most) == (7.0, 7)));
    }

    #[test]
    fn one_disturbed_run_does_not_decide() {
        let run = |shift: u64| Profile::of(&mut [1 + shift, 2 + shift, 3 + shift]).unwrap();
        let all = Profile::median(&[run(0), run(1_000_000), run(1)]).unwrap();
        assert_eq!((all.average, all.fastest[5].most), (3.0, 4));
        assert_eq!((all.count, all.least, all.most), (9, 1, 1_000_003));
        assert_eq!(Profile::median(&[]), None);
    }
}
