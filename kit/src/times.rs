//! Round-trip times, as applications at the top of a graph report them: extremes, average, and a
//! histogram for the median.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use core::time::Duration;

/// Each power of two is cut into so many classes: the median is right to one part in 32.
const CLASSES: usize = 32;
/// Bits of [`CLASSES`].
const CLASS_BITS: u32 = CLASSES.trailing_zeros();

/// Times seen so far.
pub struct Times {
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    classes: Box<[u64]>,
}

/// Minimum, average, median, maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The shortest.
    pub min: Duration,
    /// The average.
    pub avg: Duration,
    /// The median, right to one part in 32.
    pub p50: Duration,
    /// The longest.
    pub max: Duration,
}

impl Figures {
    /// Name and value of each, as a report has them.
    pub fn lines(&self) -> [(&'static str, String); 4] {
        [("rtt min", self.min), ("rtt avg", self.avg), ("rtt p50", self.p50), ("rtt max", self.max)]
            .map(|(name, time)| (name, format!("{time:?}")))
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            classes: vec![0; CLASSES * 64].into(),
        }
    }
}

fn class(ns: u64) -> usize {
    let power = 63 - (ns | 1).leading_zeros();
    let within =
        if power <= CLASS_BITS { ns << (CLASS_BITS - power) } else { ns >> (power - CLASS_BITS) };
    power as usize * CLASSES + (within as usize & (CLASSES - 1))
}

/// The least time of a class, in nanoseconds.
fn floor(class: usize) -> u64 {
    let (power, within) = ((class / CLASSES) as u32, (class % CLASSES + CLASSES) as u64);
    if power <= CLASS_BITS {
        within >> (CLASS_BITS - power)
    } else {
        within << (power - CLASS_BITS)
    }
}

impl Times {
    /// Notes one.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        if let Some(n) = self.classes.get_mut(class(ns)) {
            *n += 1;
        }
    }

    /// Figures of the times; `None` before the first.
    pub fn figures(&self) -> Option<Figures> {
        if self.count == 0 {
            return None;
        }
        let average = self.sum_ns / u128::from(self.count);
        let mut left = self.count.div_ceil(2);
        let middle = self.classes.iter().position(|n| {
            left = left.saturating_sub(*n);
            left == 0
        });
        let median = middle.map_or(0, floor).clamp(self.min_ns, self.max_ns);
        Some(Figures {
            min: Duration::from_nanos(self.min_ns),
            avg: Duration::from_nanos(average as u64),
            p50: Duration::from_nanos(median),
            max: Duration::from_nanos(self.max_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_close() {
        let mut last = 0;
        for n in (0..4096).chain((12..64).map(|bits| (1 << bits) + (1 << (bits - 2)))) {
            let class = class(n);
            assert!(class >= last, "{n}");
            last = class;
            let floor = floor(class);
            assert!(floor <= n.max(1) && n - floor.min(n) <= n / 32, "{n}: {floor}");
        }
        assert!(class(u64::MAX) < CLASSES * 64);
    }

    #[test]
    fn figures_of_a_few() {
        let mut times = Times::default();
        assert_eq!(times.figures(), None);
        for ms in [1, 2, 3, 4, 100] {
            times.add(Duration::from_millis(ms));
        }
        let figures = times.figures().unwrap();
        let ms = Duration::from_millis;
        assert_eq!((figures.min, figures.avg, figures.max), (ms(1), ms(22), ms(100)));
        assert!(figures.p50 > ms(2) && figures.p50 <= ms(3), "{:?}", figures.p50);
    }
}
