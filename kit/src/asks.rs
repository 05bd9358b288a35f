//! Shared parts of applications that ask peers: the ends of a session, sizes and contents of
//! messages.

use core::time::Duration;
use xk_core::graph::BuildError;
use xk_core::{Kernel, Message, Part, Participant, Participants};

/// The shortest delay of a timer: one of nothing would keep a kernel from ever looking at its
/// wires.
pub const SHORTEST: Duration = Duration::from_nanos(1);
/// Room for the headers below, in octets.
pub const HEADROOM: usize = 128;
/// The largest message, in octets: more than any layer carries.
const SIZE_MAX: usize = 1 << 24;
/// Octets of a message made at a time.
const PIECE: usize = 256;

/// All ends of a session: the local one and the peers, of which no peer at all is an empty one. An
/// end that is empty gets as many wildcards as the other side has identifiers.
#[must_use]
pub fn ends(local: &Participant, to: &[Participant]) -> Participants {
    let or_any = |end: &Participant, like: &Participant| match end.is_empty() {
        true => (1..like.len()).fold(Participant::of(Part::Any), |all, _| all.with(Part::Any)),
        false => end.clone(),
    };
    let none = Participant::new();
    let to = if to.is_empty() { core::slice::from_ref(&none) } else { to };
    let like = to.first().unwrap_or(&none);
    Participants::among(or_any(local, like), to.iter().map(|peer| or_any(peer, local)))
}

/// Looks whether parameters, by their names, are octets that a message may have.
///
/// # Errors
/// [`BuildError::Param`] for one that is too large.
pub fn check_sizes(sizes: &[(&'static str, usize)]) -> Result<(), BuildError> {
    match sizes.iter().copied().find(|(_, size)| *size > SIZE_MAX) {
        Some((name, _)) => Err(BuildError::param(name, "at most 16 MiB")),
        None => Ok(()),
    }
}

/// `size`, or if `size_max` is more, any number between both.
pub fn size(cx: &Kernel, size: usize, size_max: usize) -> usize {
    match size_max.checked_sub(size) {
        None | Some(0) => size,
        Some(more) => size + cx.random().below(more as u64 + 1) as usize,
    }
}

/// The octet at `at` of the pattern of the message with this number.
#[must_use]
pub fn pattern(number: u64, at: usize) -> u8 {
    (number.wrapping_mul(31) as usize).wrapping_add(at) as u8
}

/// A message of `size` octets, each as `octet` says; `None` without a buffer.
pub fn message(cx: &Kernel, size: usize, octet: impl Fn(usize) -> u8) -> Option<Message> {
    let mut message = cx.pool().alloc(HEADROOM, size).ok()?;
    let mut at = 0;
    while at < size {
        let octets: [u8; PIECE] = core::array::from_fn(|n| octet(at + n));
        let written = message.copy_in(at, octets.get(..PIECE.min(size - at))?);
        if written == 0 {
            return None;
        }
        at += written;
    }
    Some(message)
}
