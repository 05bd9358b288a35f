//! A target with a planted mistake: if the harness does not find it, the harness is broken.

use crate::Target;

/// The target. It is not among [`crate::targets`], since it must fail.
pub static TARGET: Target =
    Target { name: "canary", about: "a planted mistake, which must be found", run };

/// The corpus of the canary: one step away from the mistake in two places.
pub const SEED: &[u8] = b"length 12, magic XK: harmless";

/// Indexes by a length that it read from the outside and compared with the wrong bound.
fn run(data: &[u8]) {
    let Some((b"length ", rest)) = data.split_first_chunk::<7>() else {
        return;
    };
    let digits = rest.iter().take_while(|octet| octet.is_ascii_digit());
    let length = digits
        .fold(0usize, |n, digit| n.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
    if length <= INPUT_BOUND && length > 0 && rest.ends_with(b"harmless") {
        let _ = rest[length - 1];
    }
}

/// The wrong bound: inputs are shorter.
const INPUT_BOUND: usize = 64;
