//! Words to a program's user on standard error: that something is not done here, once.

use crate::socket_unsafe::{KeptErrno, borrow};
use rustix::fs::fstat;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Standard error as it was when the library was loaded. A program may put anything in its place.
static ERROR: OnceLock<Option<(u64, u64)>> = OnceLock::new();
/// A bit for each thing that was said.
static SAID: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn standard_error() -> Option<(u64, u64)> {
    let found = fstat(borrow(libc::STDERR_FILENO)?).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Remembers where standard error leads.
pub(crate) fn begin() {
    let _ = ERROR.get_or_init(standard_error);
}

/// Says a line, unless something with this key was said before, or standard error is another by
/// now.
pub(crate) fn once(key: u64, parts: &[&str]) {
    let _kept = KeptErrno::new();
    let bit = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let word = &SAID[(bit >> 6) as usize];
    let is_new = word.fetch_or(1 << (bit & 63), Ordering::Relaxed) & 1 << (bit & 63) == 0;
    let same = ERROR.get().copied().flatten();
    if !is_new || same.is_none() || same != standard_error() {
        return;
    }
    let mut line = String::from("xk exec: ");
    for part in parts {
        line.push_str(part);
    }
    line.push('\n');
    if let Some(error) = borrow(libc::STDERR_FILENO) {
        let _ = rustix::io::write(error, line.as_bytes());
    }
}
