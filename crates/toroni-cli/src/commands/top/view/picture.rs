//! Draws a screen as an SVG picture, for the documents. Only tests use it: one of them writes and checks the picture.

use super::table::columns_of;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// The size of a cell, and the margin around all of them.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 14.0;
const BACKGROUND: &str = "#0d1117";
const FOREGROUND: &str = "#d6dbe1";

/// Returns the picture of a screen. `description` is for readers who do not see it.
pub(super) fn svg(buffer: &Buffer, description: &str) -> String {
    let area = buffer.area;
    let (width, height) = (
        f64::from(area.width) * WIDTH + 2.0 * MARGIN,
        f64::from(area.height) * HEIGHT + 2.0 * MARGIN,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\">\n<title>{}</title>\n\
         <rect width=\"{width:.1}\" height=\"{height:.1}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n",
        escaped(description)
    );
    for y in area.top()..area.bottom() {
        line(buffer, y, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the backgrounds of a line, and then its words. Each word has its place and its length, so columns are aligned with
/// any font.
fn line(buffer: &Buffer, y: u16, svg: &mut String) {
    let cells = || {
        let of = |x| buffer.cell((x, y)).map(|cell| (x, cell));
        (buffer.area.left()..buffer.area.right()).filter_map(of)
    };
    let top = MARGIN + f64::from(y) * HEIGHT;
    let mut from: Option<(u16, String)> = None;
    for (x, cell) in cells().chain([(buffer.area.right(), &Cell::EMPTY)]) {
        let color = background(cell);
        if from.as_ref().map(|(_, color)| color.as_str()) == color {
            continue;
        }
        if let Some((first, color)) = from.take() {
            let _ = writeln!(
                svg,
                "{}",
                rectangle(first, f64::from(x - first), top, 0.0, HEIGHT, &color)
            );
        }
        from = color.map(|color| (x, color.to_owned()));
    }
    let mut word: Option<(u16, &Cell, String)> = None;
    let mut skipped = 0;
    for (x, cell) in cells().chain([(buffer.area.right(), &Cell::EMPTY)]) {
        if skipped > 0 {
            skipped -= 1;
            continue;
        }
        let symbol = cell.symbol();
        skipped = columns_of(symbol).saturating_sub(1);
        let block = block(symbol);
        let continues = word.as_ref().is_some_and(|(_, first, _)| style(first) == style(cell));
        let ends = symbol == " " || block.is_some() || !continues;
        if ends && let Some((first, cell, text)) = word.take() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\"{}>{}</text>",
                MARGIN + f64::from(first) * WIDTH,
                top + HEIGHT * 0.74,
                f64::from(columns_of(&text)) * WIDTH,
                attributes(cell),
                escaped(&text)
            );
        }
        match block {
            Some((width, height)) => {
                // Both stand on the same line, between those of the text above and below.
                let (height, above) = (height * HEIGHT, (0.9 - height) * HEIGHT);
                let color = foreground(cell);
                let _ = writeln!(svg, "{}", rectangle(x, width, top, above, height, color));
            }
            None if symbol == " " => {}
            None => word.get_or_insert_with(|| (x, cell, String::new())).2.push_str(symbol),
        }
    }
}

fn rectangle(x: u16, columns: f64, top: f64, above: f64, height: f64, color: &str) -> String {
    format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{color}\" shape-rendering=\"crispEdges\"/>",
        MARGIN + f64::from(x) * WIDTH,
        top + above,
        columns * WIDTH
    )
}

/// Returns which part of a cell a block element fills, from the left and from below. Fonts draw these with gaps.
fn block(symbol: &str) -> Option<(f64, f64)> {
    let place = |all: &str| all.chars().zip(1_u32..).find(|(c, _)| symbol.chars().eq([*c]));
    if let Some((_, eighths)) = place("▏▎▍▌▋▊▉█") {
        return Some((f64::from(eighths) / 8.0, 0.8));
    }
    place("▁▂▃▄▅▆▇").map(|(_, eighths)| (1.0, f64::from(eighths) / 10.0))
}

fn style(cell: &Cell) -> (Color, Color, Modifier) {
    (cell.fg, cell.bg, cell.modifier)
}

fn attributes(cell: &Cell) -> String {
    let mut text = format!(" fill=\"{}\"", foreground(cell));
    if cell.modifier.contains(Modifier::BOLD) {
        text.push_str(" font-weight=\"bold\"");
    }
    if cell.modifier.contains(Modifier::DIM) {
        text.push_str(" opacity=\"0.65\"");
    }
    text
}

fn foreground(cell: &Cell) -> &'static str {
    color(cell.fg).unwrap_or(FOREGROUND)
}

fn background(cell: &Cell) -> Option<&'static str> {
    color(cell.bg)
}

fn color(color: Color) -> Option<&'static str> {
    match color {
        Color::Black => Some(BACKGROUND),
        Color::Cyan => Some("#39c5cf"),
        Color::Yellow => Some("#e3b341"),
        Color::Red => Some("#ff7b72"),
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
