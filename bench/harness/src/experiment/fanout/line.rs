//! A straight line through measured points, by least squares: its slope is the cost of each additional subscriber.

/// A straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Value at 0.
    pub at_zero: f64,
    /// Slope.
    pub each: f64,
}

impl Line {
    /// Returns the line closest to points `(x, y)`, or `None` if they have fewer than two different `x`.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.iter().map(|_| 1.0).sum::<f64>();
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
        let joint = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
        (spread > 0.0).then(|| {
            let each = joint / spread;
            Self { at_zero: mean_y - each * mean_x, each }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_through_its_points_and_between_others() {
        let line = Line::through(&[(1.0, 5.0), (2.0, 7.0), (20.0, 43.0)]).unwrap();
        assert!((line.at_zero - 3.0).abs() < 1e-9 && (line.each - 2.0).abs() < 1e-9, "{line:?}");
        let line = Line::through(&[(0.0, 1.0), (0.0, 3.0), (1.0, 2.0), (1.0, 4.0)]).unwrap();
        assert!((line.at_zero - 2.0).abs() < 1e-9 && (line.each - 1.0).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn one_x_makes_no_line() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }
}
