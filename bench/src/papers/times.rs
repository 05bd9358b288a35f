//! Times of single operations, and how long one is waited for.

use crate::case::{Sample, Trouble};
use std::time::Duration;

/// Longest time for a host to come up, and for an answer to come.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// The mean of times, and what half and 99 of 100 of them did not exceed, in microseconds.
pub(super) fn figures(mut times: Vec<Duration>) -> Vec<f64> {
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let at =
        |share: f64| times.get((times.len() as f64 * share) as usize).map_or(f64::NAN, |t| us(*t));
    vec![us(times.iter().sum()) / times.len() as f64, at(0.5), at(0.99)]
}

/// The times of so many operations, one after the other.
pub(super) fn each(
    count: usize,
    mut operation: impl FnMut() -> Result<Duration, String>,
) -> Result<Vec<f64>, String> {
    (0..count).map(|_| operation()).collect::<Result<_, _>>().map(figures)
}

/// Makes a sample of a mean and, if they are there, of what half and 99 of 100 did not exceed.
///
/// # Errors
/// [`Trouble::Failed`] if there are no figures.
pub(super) fn sample(found: &[f64]) -> Result<Sample, Trouble> {
    let of = |at| found.get(at).copied();
    let value = of(0).ok_or_else(|| Trouble::Failed("it answered nothing".into()))?;
    Ok(Sample { value, p50: of(1), p99: of(2), also: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_mean_and_what_most_did_not_exceed() {
        let mut times = vec![Duration::from_micros(10); 199];
        times.push(Duration::from_secs(1));
        assert_eq!(figures(times), [5009.95, 10.0, 10.0]);
    }
}
