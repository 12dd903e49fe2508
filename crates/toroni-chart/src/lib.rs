//! Charts, drawn as one SVG picture, and the file that it goes to.

mod file;

pub use file::{check_writable, parse_path, write};

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Display;
use std::ops::Range;

/// The reason why there is no picture. The text says what could not be done, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// A chart with lines, or with bars if it has categories.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Label below the chart.
    pub x_label: String,
    /// Label beside the chart.
    pub y_label: String,
    /// Scale of the x axis; ignored with categories.
    pub x_scale: Scale,
    /// Scale of the y axis.
    pub y_scale: Scale,
    /// Names of the positions 0, 1, 2, … on the x axis, if x is not a number.
    pub categories: Vec<String>,
    /// The lines or bars.
    pub series: Vec<Series>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from 0.
    Linear,
    /// Logarithmic; values that are not above 0 are left out.
    Logarithmic,
}

/// A line, or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points, x and y.
    pub points: Vec<(f64, f64)>,
    /// Whether the line is thin and without marks, for goals and references.
    pub dashed: bool,
    /// Number of the series whose colour it has; `None` for a colour of its own.
    pub like: Option<usize>,
}

impl Series {
    /// Makes a line of measurements.
    #[must_use]
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, dashed: false, like: None }
    }

    /// Makes a dashed line to compare with.
    #[must_use]
    pub fn dashed(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, dashed: true, like: None }
    }

    /// Gives it the colour of the series with this number.
    #[must_use]
    pub fn like(self, number: usize) -> Self {
        Self { like: Some(number), ..self }
    }
}

impl Chart {
    /// Makes a chart of distributions: for each line, shares of all latencies, from 0 to 1, and the latency in microseconds
    /// that they do not exceed.
    #[must_use]
    pub fn of_distributions(title: String, lines: Vec<(String, Vec<(f64, f64)>)>) -> Self {
        let line = |(name, points): (String, Vec<(f64, f64)>)| {
            let points = points.into_iter();
            Series::line(
                name,
                points.map(|(share, us)| ((1.0 / (1.0 - share)).round(), us)).collect(),
            )
        };
        Self {
            title,
            x_label: "samples".to_owned(),
            y_label: "µs".to_owned(),
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            categories: Vec::new(),
            series: lines.into_iter().map(line).collect(),
        }
    }
}

const WIDTH: u32 = 900;
const HEIGHT: u32 = 460;
const TITLE: u32 = 44;
/// Width of the names beside a chart.
const LEGEND: u32 = 170;
/// Height below a chart for names in a row.
const NAMES: u32 = 46;
/// Width of a letter of such a name.
const LETTER: u32 = 6;
/// The points of a longer line are so close that their marks would cover it.
const MARKED: usize = 60;
/// Colours that people with colour blindness can distinguish: those of Okabe and Ito, then some that also differ in
/// lightness.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
    RGBColor(94, 60, 153),
    RGBColor(240, 228, 66),
    RGBColor(127, 59, 8),
    RGBColor(0, 68, 27),
];

/// Draws charts one below the other, under a title, and returns the SVG picture. A chart without anything to show is left
/// out.
///
/// # Errors
/// If no chart shows anything, or one cannot be drawn.
pub fn draw(title: &str, charts: &[Chart]) -> Result<String, Error> {
    let charts: Vec<Drawn<'_>> = charts.iter().filter_map(Drawn::of).collect();
    if charts.is_empty() {
        return Err(Error("there is nothing to draw in this report".to_owned()));
    }
    let mut picture = String::new();
    {
        let height: u32 = charts.iter().map(Drawn::height).sum();
        let area =
            SVGBackend::with_string(&mut picture, (WIDTH, TITLE + height)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (head, mut body) = area.split_vertically(TITLE);
        let style = ("sans-serif", 22).into_text_style(&head);
        let style = style.pos(Pos::new(HPos::Center, VPos::Center));
        let middle = (i32::try_from(WIDTH / 2).unwrap_or(0), i32::try_from(TITLE / 2).unwrap_or(0));
        head.draw_text(title, &style, middle).map_err(failed)?;
        for chart in &charts {
            let (area, below) = body.split_vertically(chart.height());
            chart.draw(&area)?;
            body = below;
        }
        area.present().map_err(failed)?;
    }
    Ok(picture)
}

fn failed(error: impl Display) -> Error {
    Error(format!("cannot draw the chart: {error}"))
}

/// A chart with its axes.
struct Drawn<'a> {
    chart: &'a Chart,
    x: Axis,
    y: Axis,
}

impl<'a> Drawn<'a> {
    /// Returns `None` if the chart is empty.
    fn of(chart: &'a Chart) -> Option<Self> {
        let points = || chart.series.iter().flat_map(|series| series.points.iter());
        let x = if chart.categories.is_empty() {
            Axis::over(points().map(|point| point.0), chart.x_scale, true)?
        } else {
            Axis::categories(&chart.categories)
        };
        let y = Axis::over(points().map(|point| point.1), chart.y_scale, false)?;
        Some(Self { chart, x, y })
    }

    fn height(&self) -> u32 {
        HEIGHT - NAMES + self.names_height()
    }

    fn legend(&self) -> u32 {
        if self.chart.series.len() > 1 { LEGEND } else { 0 }
    }

    /// Returns whether the names below the chart are turned, because they would overlap.
    fn turns_names(&self) -> bool {
        let names = &self.chart.categories;
        longest(names) * LETTER * u32::try_from(names.len()).unwrap_or(1) > WIDTH - self.legend()
    }

    fn names_height(&self) -> u32 {
        if self.turns_names() { NAMES + longest(&self.chart.categories) * LETTER } else { NAMES }
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Error> {
        let chart = self.chart;
        let legend = self.legend();
        let (body, side) = area.split_horizontally(WIDTH - legend);
        let mut context = ChartBuilder::on(&body)
            .caption(&chart.title, ("sans-serif", 17))
            .margin(14)
            .x_label_area_size(self.names_height())
            .y_label_area_size(84)
            .build_cartesian_2d(self.x.clone(), self.y.clone())
            .map_err(failed)?;
        let turned = self.turns_names();
        // The names of plotters are centred at their mark even when they are turned.
        let name = |x: &f64| if turned { String::new() } else { self.x.format_ext(x) };
        context
            .configure_mesh()
            .x_desc(&chart.x_label)
            .y_desc(&chart.y_label)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&name)
            .axis_desc_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.12))
            .draw()
            .map_err(failed)?;
        for (number, series) in chart.series.iter().enumerate() {
            let colour = colour(number, series);
            let mut points: Vec<(f64, f64)> = series
                .points
                .iter()
                .copied()
                .filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            if series.dashed {
                let line = DashedLineSeries::new(points, 6, 5, colour.stroke_width(1));
                context.draw_series(line).map_err(failed)?;
            } else if chart.categories.is_empty() {
                let line = LineSeries::new(points.clone(), colour.stroke_width(2));
                context.draw_series(line).map_err(failed)?;
                if points.len() <= MARKED {
                    let marks = points.into_iter();
                    let marks = marks.map(|point| Circle::new(point, 4, colour.filled()));
                    context.draw_series(marks).map_err(failed)?;
                }
            } else {
                let bars = points.into_iter().map(|point| self.bar(number, point, colour));
                context.draw_series(bars).map_err(failed)?;
            }
        }
        if turned {
            for (mark, name) in self.x.marks.iter().zip(&self.x.names) {
                let below = context.backend_coord(&(*mark, self.y.low));
                draw_upright(&body, name, below)?;
            }
        }
        if legend > 0 { self.draw_legend(&side) } else { Ok(()) }
    }

    /// Returns the bar of series `number`, beside the bars of the other series at the same x.
    fn bar(&self, number: usize, (x, y): (f64, f64), colour: RGBColor) -> Rectangle<(f64, f64)> {
        let solid = self.chart.series.iter().filter(|series| !series.dashed).count().max(1);
        let width = 0.7 / solid as f64;
        let left = x - 0.35 + width * number as f64;
        let low = self.y.low.max(if self.y.scale == Scale::Linear { 0.0 } else { self.y.low });
        Rectangle::new([(left, low), (left + width, y)], colour.filled())
    }

    /// Draws the legend beside the lines, where it hides none of them.
    fn draw_legend(&self, area: &Area<'_>) -> Result<(), Error> {
        let style = ("sans-serif", 13).into_text_style(area);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        let mut y = 60;
        for (number, series) in self.chart.series.iter().enumerate() {
            let colour = colour(number, series);
            let line = [(4, y), (30, y)];
            if series.dashed {
                for x in [4, 14, 24] {
                    let dash = PathElement::new([(x, y), (x + 6, y)], colour.stroke_width(1));
                    area.draw(&dash).map_err(failed)?;
                }
            } else {
                area.draw(&PathElement::new(line, colour.stroke_width(4))).map_err(failed)?;
            }
            area.draw_text(&series.name, &style, (38, y)).map_err(failed)?;
            y += 22;
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws text downwards from this pixel of the picture.
fn draw_upright(area: &Area<'_>, text: &str, (x, y): (i32, i32)) -> Result<(), Error> {
    let font = ("sans-serif", 13).into_font().transform(FontTransform::Rotate90);
    let style = font.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    let (left, top) = area.get_base_pixel();
    area.draw_text(text, &style, (x - left, y - top + 10)).map_err(failed)
}

/// Returns the number of letters of the longest name.
fn longest(names: &[String]) -> u32 {
    let letters = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    u32::try_from(letters).unwrap_or(u32::MAX)
}

fn colour(number: usize, series: &Series) -> RGBColor {
    COLOURS[series.like.unwrap_or(number) % COLOURS.len()]
}

/// An axis with its own marks: the logarithmic marks of plotters leave out the measured values.
#[derive(Clone)]
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    marks: Vec<f64>,
    names: Vec<String>,
}

impl Axis {
    /// Returns an axis over these values. With `exact`, the marks are the values themselves, as long as they are few.
    fn over(values: impl Iterator<Item = f64>, scale: Scale, exact: bool) -> Option<Self> {
        let logarithmic = scale == Scale::Logarithmic;
        let mut values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (first, last) = (*values.first()?, *values.last()?);
        let (low, high) = match scale {
            Scale::Logarithmic => (first / 1.25, last * 1.4),
            Scale::Linear if exact => {
                let margin = ((last - first) * 0.04).max(f64::MIN_POSITIVE);
                (first - margin, last + margin)
            }
            Scale::Linear => (first.min(0.0), if last > 0.0 { last * 1.12 } else { 1.0 }),
        };
        let marks = if exact && values.len() <= 12 {
            values
        } else if logarithmic {
            decades(low, high)
        } else {
            steps(low, high)
        };
        Some(Self { scale, low, high, marks, names: Vec::new() })
    }

    fn categories(names: &[String]) -> Self {
        let marks: Vec<f64> = (0_u32..).take(names.len()).map(f64::from).collect();
        let high = marks.last().copied().unwrap_or(0.0) + 0.5;
        Self { scale: Scale::Linear, low: -0.5, high, marks, names: names.to_vec() }
    }

    fn shows(&self, value: f64) -> bool {
        value.is_finite() && value >= self.low && value <= self.high
    }

    fn fraction(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let fraction = self.fraction(*value).clamp(0.0, 1.0);
        let pixel = f64::from(limit.0) + fraction * f64::from(limit.1 - limit.0);
        #[expect(clippy::cast_possible_truncation, reason = "between two pixels of the picture")]
        let pixel = pixel.round() as i32;
        pixel
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let at = self.marks.iter().position(|mark| mark == value);
        match at.and_then(|index| self.names.get(index)) {
            Some(name) => name.clone(),
            None => short(*value),
        }
    }
}

/// Returns 1, 2, 5, 10, 20, … within the span.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let mut marks = Vec::new();
    let mut decade = 10_f64.powf(low.log10().floor());
    while decade <= high {
        marks.extend([1.0, 2.0, 5.0].map(|digit| digit * decade));
        decade *= 10.0;
    }
    marks.retain(|mark| *mark >= low && *mark <= high);
    if marks.len() > 12 {
        marks.retain(|mark| (mark.log10() - mark.log10().round()).abs() < 1e-9);
    }
    marks
}

/// Returns about ten round steps within the span, at most.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 8.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let mut marks = Vec::new();
    let mut number = (low / step).ceil();
    while number * step <= high {
        marks.push(number * step);
        number += 1.0;
    }
    marks
}

fn short(value: f64) -> String {
    let size = value.abs();
    let is_power_of_two = size.log2().fract() == 0.0;
    let (value, unit) = match size {
        // Sizes in bytes.
        _ if is_power_of_two && size >= f64::from(1 << 20) => (value / f64::from(1 << 20), "Mi"),
        _ if is_power_of_two && size >= f64::from(1 << 10) => (value / f64::from(1 << 10), "Ki"),
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // No minus sign before a zero.
    let text = format!("{:.3}", value + 0.0);
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Chart {
        Chart {
            title: "Rates <by> readers & writers".to_owned(),
            x_label: "readers".to_owned(),
            y_label: "Kmsg/s".to_owned(),
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            categories: Vec::new(),
            series: vec![
                Series::line("1 writer", vec![(1.0, 30.0), (16.0, 12.0)]),
                Series::dashed("goal", vec![(1.0, 40.0), (16.0, 40.0)]),
            ],
        }
    }

    #[test]
    fn a_chart_is_well_formed() {
        let svg = draw("An example", &[example()]).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_balanced(&svg);
        for text in ["An example", "readers", "Kmsg/s", "1 writer", "goal", "&lt;by&gt;", "&amp;"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("<by>"));
    }

    /// Every element that opens is closed, in order.
    fn assert_balanced(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap();
            let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') && !tag.starts_with('!') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let mut chart = example();
        chart.series[0].points.extend([(0.0, 1.0), (2.0, f64::NAN), (4.0, -1.0)]);
        assert!(!draw("", &[chart.clone()]).unwrap().contains("NaN"));
        chart.series.clear();
        assert!(draw("", &[chart]).is_err());
    }

    #[test]
    fn one_point_and_categories_can_be_drawn() {
        let mut chart = example();
        chart.series = vec![Series::line("one", vec![(1.0, 5.0)])];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            (chart.x_scale, chart.y_scale) = (scale, scale);
            assert!(!draw("", &[chart.clone()]).unwrap().contains("NaN"));
        }
        chart.categories = vec!["toroni".to_owned(), "tcp".to_owned()];
        chart.series = vec![Series::line("rate", vec![(0.0, 5.0), (1.0, 2.0)])];
        assert!(draw("", &[chart]).unwrap().contains("tcp"));
    }

    /// Names that would run into each other stand upright, and the picture is higher by their length.
    #[test]
    fn long_names_are_turned() {
        let named = |names: &[&str]| {
            let categories: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let points = (0_u32..).take(names.len()).map(|x| (f64::from(x), 1.0)).collect();
            let series = vec![Series::line("one", points)];
            Chart { categories, series, ..example() }
        };
        let short = draw("short", &[named(&["a", "b"])]).unwrap();
        assert!(!short.contains("rotate(90"));
        let long = draw("long", &[named(&["a name that is longer than its place"; 8])]).unwrap();
        assert_eq!(long.matches("rotate(90").count(), 8);
        let height = |picture: &str| -> u32 {
            let from = picture.find("height=\"").unwrap() + 8;
            picture[from..].split('"').next().unwrap().parse().unwrap()
        };
        assert_eq!(height(&long), height(&short) + 36 * LETTER);
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(decades(3.0, 60.0), [5.0, 10.0, 20.0, 50.0]);
        assert_eq!(steps(0.0, 8.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(
            [short(1.0), short(0.25), short(512.0), short(20_000.0), short(2.5e6)],
            ["1", "0.25", "512", "20k", "2.5M"]
        );
        assert_eq!(
            [short(1024.0), short(65_536.0), short(4_194_304.0), short(0.0), short(-0.0)],
            ["1Ki", "64Ki", "4Mi", "0", "0"]
        );
    }
}
