//! From figures to places on an axis.

/// Spans wider than this are drawn with a logarithmic axis.
const LINEAR_SPAN_MAX: f64 = 30.0;

/// An axis.
pub(super) struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis from the place `from` to the place `to` for all of `figures`: logarithmic if they
    /// span decades, else beginning at zero.
    pub(super) fn over(figures: impl Iterator<Item = f64>, from: i32, to: i32) -> Self {
        let (mut least, mut high, mut signed) = (f64::INFINITY, 0.0_f64, 0.0_f64);
        for figure in figures.filter(|x| x.is_finite()) {
            if figure > 0.0 {
                least = least.min(figure);
            }
            signed = signed.min(figure);
            high = high.max(figure);
        }
        if high <= 0.0 {
            (least, high) = (1.0, 1.0);
        }
        let logarithmic = high / least > LINEAR_SPAN_MAX && signed >= 0.0;
        let low = if logarithmic { least / 1.6 } else { signed.min(0.0) };
        Self {
            logarithmic,
            low,
            high: high * if logarithmic { 1.25 } else { 1.06 },
            from: f64::from(from),
            to: f64::from(to),
        }
    }

    /// The place of a figure; those beyond the ends are drawn at the ends.
    pub(super) fn place(&self, figure: f64) -> i32 {
        let share = if self.logarithmic {
            (figure.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (figure - self.low) / (self.high - self.low)
        };
        (self.from + share.clamp(0.0, 1.0) * (self.to - self.from)).round() as i32
    }

    /// Where bars begin.
    pub(super) fn base(&self) -> i32 {
        self.place(if self.logarithmic { self.low } else { 0.0 })
    }

    /// Round figures along the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            return self.ticks_logarithmic();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|n| n * power)
            .into_iter()
            .find(|s| *s >= rough)
            .unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|x| *x <= self.high).collect()
    }

    fn ticks_logarithmic(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let within: &[f64] = match decades {
            d if d < 2.5 => &[1.0, 2.0, 5.0],
            d if d < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        powers
            .flat_map(|power| within.iter().map(move |n| n * 10_f64.powi(power)))
            .filter(|x| (self.low..=self.high).contains(x))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_spans_are_logarithmic() {
        let scale = Scale::over([0.1, 5.0, 90.0].into_iter(), 0, 100);
        assert!(scale.logarithmic);
        let ticks: Vec<f64> = scale.ticks().iter().map(|x| (x * 10.0).round()).collect();
        assert_eq!(ticks, [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]);
        assert!(scale.place(0.0) == 0 && scale.place(1e9) == 100);
    }

    #[test]
    fn narrow_spans_begin_at_zero() {
        let scale = Scale::over([12.0, 19.0, f64::NAN].into_iter(), 10, 110);
        assert_eq!(scale.base(), 10);
        assert_eq!(scale.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
    }

    #[test]
    fn negative_and_missing_figures_have_places() {
        assert!(Scale::over([-1.0, 100.0].into_iter(), 0, 101).base() > 0);
        assert!(!Scale::over([].into_iter(), 0, 100).ticks().is_empty());
    }
}
