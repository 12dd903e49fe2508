//! Three charts: how the least and the greatest time of each stream change, and how its times are distributed. They show only
//! what is above the least time of the stream, because the clocks of two hosts differ.

use std::path::Path;
use toroni_chart::{Chart, Scale, Series};
use toroni_net::latency::{Listener, Measured, Window};
use toroni_shell::failure::Failure;

const SHARES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

fn failed(error: toroni_chart::Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Checks before the measurement that the file can be written.
pub(super) fn check(path: Option<&Path>) -> Result<(), Failure> {
    path.map_or(Ok(()), |path| toroni_chart::check_writable(path).map_err(failed))
}

/// Draws the charts.
pub(super) fn draw(path: &Path, listener: &Listener) -> Result<(), Failure> {
    let charts = [
        course(listener, "least time in each 10 s; a steady change is drift of the clocks", |it| {
            it.least
        }),
        course(listener, "greatest time in each 10 s", |it| it.most),
        distribution(listener),
    ];
    toroni_chart::draw("One way, from each stream, above its least time", &charts)
        .and_then(|svg| toroni_chart::write(path, &svg))
        .map_err(failed)
}

/// Returns the name of each stream with its least time and the rest.
fn streams(listener: &Listener) -> impl Iterator<Item = (String, i64, &Measured)> {
    listener.streams().filter_map(|(source, stream, measured)| {
        let name = measured.name.clone().unwrap_or_else(|| source.to_string());
        Some((format!("{name}, {stream}"), measured.least()?, measured))
    })
}

#[expect(clippy::cast_precision_loss, reason = "times, in a chart")]
fn above_us(ns: i64, least: i64) -> f64 {
    ns.saturating_sub(least) as f64 / 1e3
}

/// One time of each window.
fn course(listener: &Listener, title: &str, of: fn(&Window) -> i64) -> Chart {
    let line = |(name, least, measured): (String, i64, &Measured)| {
        #[expect(clippy::cast_precision_loss, reason = "seconds, in a chart")]
        let point = |it: &Window| (it.from_s as f64, above_us(of(it), least));
        Series::line(name, measured.windows.iter().map(point).collect())
    };
    Chart {
        title: title.to_owned(),
        x_label: "seconds since the start".to_owned(),
        y_label: "µs above the least of all".to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        categories: Vec::new(),
        series: streams(listener).map(line).collect(),
    }
}

fn distribution(listener: &Listener) -> Chart {
    let lines = streams(listener).map(|(name, least, measured)| {
        let times = measured.quantiles(SHARES).unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let is_known = |share: f64| measured.count as f64 * (1.0 - share) >= 0.999;
        let points = SHARES.into_iter().zip(times).filter(|(share, _)| is_known(*share));
        (name, points.map(|(share, ns)| (share, above_us(ns, least))).collect())
    });
    let title = "the time above the least that one in N datagrams exceeds".to_owned();
    Chart::of_distributions(title, lines.collect())
}
