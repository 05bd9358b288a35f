//! Leaving out of a failing run what its failure does not need.

/// The smallest part of `whole` that still fails: every item of what comes back is needed, and none
/// of them can be left out alone (Zeller and Hildebrandt, "Simplifying and isolating
/// failure-inducing input", IEEE TSE 28(2), 2002, the algorithm ddmin). `fails` is asked for parts
/// in the order of `whole`; it is known that `whole` fails.
pub fn smallest<T: Clone>(whole: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    if whole.is_empty() || fails(&[]) {
        return Vec::new();
    }
    let mut left = whole.to_vec();
    let mut parts = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(parts);
        let without = |at: usize| -> Vec<T> {
            let end = (at + size).min(left.len());
            [&left[..at], &left[end..]].concat()
        };
        let found = (0..left.len()).step_by(size).map(without).find(|rest| fails(rest));
        match found {
            Some(rest) => {
                left = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(left.len()),
        }
    }
    left
}

/// The least number from `low` to `high` that still fails, where each number above one that fails
/// does; it is known that `high` fails. Where that is not so, one that fails with its lower
/// neighbour not failing.
pub fn least(mut low: u64, mut high: u64, mut fails: impl FnMut(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if fails(middle) { high = middle } else { low = middle + 1 }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_is_left_out() {
        let whole: Vec<u32> = (0..100).collect();
        for needed in [vec![], vec![7], vec![0, 99], vec![3, 4, 50, 98]] {
            let mut asked = 0;
            let found = smallest(&whole, |part| {
                asked += 1;
                needed.iter().all(|item| part.contains(item))
            });
            assert_eq!(found, needed);
            assert!(asked < 200, "{asked}");
        }
    }

    #[test]
    fn the_least_number_is_found() {
        for needed in [0, 1, 17, 1000] {
            assert_eq!(least(0, 1000, |number| number >= needed), needed);
        }
    }
}
