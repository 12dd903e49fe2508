//! The report: how long threads waited, how receivers differed, and what a buffer must hold.

use super::track::PARTS;
use super::{Class, Experiment, Jitter, Measured, Probe};
use crate::experiment::{count, float};
use crate::registry::Workload;
use crate::report::{Cell, Chart, Report, Scale, Series, Table, figure};
use crate::summary::Latencies;

/// Shares of all latencies, and how tables and charts call them.
const QUANTILES: [(f64, &str); 6] = [
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (0.99999, "p99.999"),
];

/// A thread that polls and is interrupted for longer than this did not run.
const GAP_NS: u64 = 10_000;

pub(super) fn report(
    experiments: &[Experiment],
    measured: &[Vec<Measured>],
    conditions: Vec<(String, String)>,
    mut notes: Vec<String>,
) -> Report {
    let pairs = || experiments.iter().zip(measured);
    let mut tables = vec![latency_table(experiments, measured)];
    if pairs().any(|(experiment, _)| experiment.is_contention) {
        tables.push(contention_table(experiments, measured));
    }
    let missing: u64 = measured.iter().flatten().map(|measured| measured.track.missing).sum();
    notes.push(format!("Messages that did not come: {}.", count(missing)));
    notes.extend(advice(experiments, measured));
    let mut charts: Vec<Chart> =
        pairs().map(|(experiment, measured)| course_chart(experiment, measured)).collect();
    let classes = measured.first().map_or(0, Vec::len);
    charts.extend((0..classes).map(|class| distribution_chart(experiments, measured, class)));
    Report {
        name: Jitter::NAME.to_owned(),
        title: "CPU scheduling latency".to_owned(),
        conditions,
        tables,
        notes,
        charts,
        ..Report::default()
    }
}

/// Makes a cell in microseconds.
fn micros(nanoseconds: u64) -> Cell {
    Cell::number(float(nanoseconds) / 1e3)
}

/// Makes the cell of a quantile, in microseconds.
fn micros_at(latencies: &Latencies, share: f64) -> Cell {
    quantile(latencies, share).map_or_else(Cell::none, micros)
}

fn row(experiment: &Experiment, class: Class) -> String {
    format!("{}, {}", experiment.name, class.label())
}

/// Returns a quantile, or `None` if so few latencies say nothing about it.
fn quantile(latencies: &Latencies, quantile: f64) -> Option<u64> {
    let enough = float(latencies.count()) * (1.0 - quantile) >= 0.999;
    enough.then(|| latencies.quantile_ns(quantile))
}

fn latency_table(experiments: &[Experiment], measured: &[Vec<Measured>]) -> Table {
    let mut rows = Vec::new();
    for (experiment, measured) in experiments.iter().zip(measured) {
        for Measured { class, track, .. } in measured {
            let latencies = &track.latencies;
            let mut cells: Vec<Cell> =
                QUANTILES.iter().map(|(share, _)| micros_at(latencies, *share)).collect();
            cells.push(micros(latencies.max_ns()));
            // Not in the unit of the table: text.
            cells.push(Cell::text(count(latencies.count())));
            rows.push((row(experiment, *class), cells));
        }
    }
    let columns = QUANTILES.iter().map(|(_, name)| *name).chain(["max", "samples"]);
    let terms = [
        ("gaps", "from one reading of the clock to the next, in a thread that does nothing else"),
        ("timer", "how late a thread woke that slept until a point in time"),
        ("datagram, bus", "from sending a message until the sleeping receiver had it"),
        ("receivers", "the same for several receivers of each datagram, all of them together"),
        ("–", "too few samples"),
    ];
    Table {
        name: "latency".to_owned(),
        title: "Latency, µs".to_owned(),
        unit: "µs".to_owned(),
        corner: "experiment, class".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows,
        definitions: terms.map(|(term, text)| (term.to_owned(), text.to_owned())).to_vec(),
    }
}

fn contention_table(experiments: &[Experiment], measured: &[Vec<Measured>]) -> Table {
    let mut rows = Vec::new();
    for (experiment, measured) in experiments.iter().zip(measured) {
        for Measured { class, band, .. } in
            measured.iter().filter(|_| experiment.plan.receivers > 1)
        {
            let mut cells =
                [(&band.first, 0.5), (&band.last, 0.5), (&band.width, 0.5), (&band.width, 0.99)]
                    .map(|(latencies, share)| micros_at(latencies, share))
                    .to_vec();
            cells.push(micros(band.width.max_ns()));
            rows.push((row(experiment, *class), cells));
        }
    }
    let columns = ["first p50", "last p50", "width p50", "width p99", "width max"];
    Table {
        name: "contention".to_owned(),
        title: "Contention: of each datagram, its first and its last receiver, µs".to_owned(),
        unit: "µs".to_owned(),
        corner: "receivers, class".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        definitions: vec![(
            "width".to_owned(),
            "from the first receiver to the last: how long the last one waited until the kernel had \
             woken the others, and until a processor was free"
                .to_owned(),
        )],
    }
}

/// Says what the figures mean for the configuration of a receiver.
fn advice(experiments: &[Experiment], measured: &[Vec<Measured>]) -> Vec<String> {
    let mut notes = Vec::new();
    // One receiver tells what `stall` is without contention. With the published load, there are only several.
    let is_alone = |it: &Experiment| it.plan.probe == Probe::Datagram && !it.is_contention;
    let has_alone = experiments.iter().any(is_alone);
    for (experiment, measured) in experiments.iter().zip(measured) {
        for Measured { class, track, .. } in measured {
            let latencies = &track.latencies;
            match experiment.plan.probe {
                Probe::Gaps => notes.push(format!(
                    "{}: the thread did not run for {} ms at the longest; gaps of more than {} µs \
                     began {} times a second.",
                    row(experiment, *class),
                    figure(float(latencies.max_ns()) / 1e6),
                    GAP_NS / 1000,
                    figure(long_gaps_each_second(latencies)),
                )),
                Probe::Datagram if is_alone(experiment) || !has_alone => {
                    notes.push(stall(experiment, *class, latencies));
                }
                _ => {}
            }
        }
    }
    notes
}

/// Returns how often a thread stopped, by the latencies between its readings of the clock, which add up to its run.
fn long_gaps_each_second(gaps: &Latencies) -> f64 {
    let seconds = gaps.mean_ns() * float(gaps.count()) / 1e9;
    float(gaps.count_above(GAP_NS)) / seconds.max(f64::MIN_POSITIVE)
}

/// Says what `stall` to configure, and the buffer that follows from it.
fn stall(experiment: &Experiment, class: Class, latencies: &Latencies) -> String {
    let (name, _) = QUANTILES[QUANTILES.len() - 1];
    let (seen, which) = match quantile(latencies, 0.99999) {
        Some(seen) => (seen, format!("{name} of {} wake-ups", count(latencies.count()))),
        None => (latencies.max_ns(), format!("longest of {} wake-ups", count(latencies.count()))),
    };
    // 100 Mbit/s are 12.5 bytes in a microsecond.
    let bytes = seen.div_ceil(1000) * 25 / 2;
    format!(
        "{}: stall = \"{}us\" ({which}). For each 100 Mbit/s that it receives, a socket must hold {} \
         KiB of datagrams.",
        row(experiment, class),
        seen.div_ceil(1000),
        count(bytes.div_ceil(1024)),
    )
}

/// Latency against time: the longest of each part of the run, and the shortest where receivers are compared.
fn course_chart(experiment: &Experiment, measured: &[Measured]) -> Chart {
    let seconds = float(experiment.plan.run_ns) / 1e9 / float(PARTS as u64);
    let mut series = Vec::new();
    for (number, Measured { class, track, .. }) in measured.iter().enumerate() {
        let x = |part: usize| (float(part as u64) + 0.5) * seconds;
        let parts = || track.course.parts();
        let high = parts().map(|(part, _, high)| (x(part), float(high) / 1e3)).collect();
        series.push(Series::line(class.label(), high).like(number));
        if experiment.is_contention {
            let low = parts().map(|(part, low, _)| (x(part), float(low) / 1e3)).collect();
            let name = format!("{}, shortest", class.label());
            series.push(Series::dashed(name, low).like(number));
        }
    }
    Chart {
        title: format!("{}: longest latency in each {} ms", experiment.name, figure(seconds * 1e3)),
        x_label: "seconds since the start of the run".to_owned(),
        y_label: "µs".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Logarithmic,
        categories: Vec::new(),
        series,
    }
}

/// The distributions of all experiments in the class with this number.
fn distribution_chart(
    experiments: &[Experiment],
    measured: &[Vec<Measured>],
    class: usize,
) -> Chart {
    let (mut lines, mut label) = (Vec::new(), "");
    for (experiment, measured) in experiments.iter().zip(measured) {
        let Some(Measured { class, track, .. }) = measured.get(class) else { continue };
        label = class.label();
        let points = QUANTILES.iter().filter_map(|(share, _)| {
            Some((*share, float(quantile(&track.latencies, *share)?) / 1e3))
        });
        lines.push((experiment.name.clone(), points.collect()));
    }
    let title = format!("{label}: the latency that one in N samples exceeds");
    Chart::of_distributions(title, lines)
}
