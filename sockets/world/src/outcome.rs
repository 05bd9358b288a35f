//! The outcome of a run, and the digest by which runs are compared.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use xk_compose::{CaptureError, Captures};
use xk_core::Time;
use xk_sim::{Digest, Network, Sighting, Tap};

/// Outcome of a run; two runs of one seed have equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time of the end.
    pub now: Time,
    /// Frames that crossed a link.
    pub frames: u64,
    /// Hash of the times, senders and lengths of all frames.
    pub shape: u64,
    /// Hash of their octets; `None` if they may be random.
    pub octets: Option<u64>,
}

impl Outcome {
    pub(crate) fn of(digest: &Digest, now: Time, with_octets: bool) -> Self {
        let octets = with_octets.then_some(digest.octets());
        Self { now, frames: digest.frames(), shape: digest.shape(), octets }
    }
}

/// The error of a run whose virtual time is over.
#[derive(Debug)]
pub(crate) struct Late(pub(crate) String);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

thread_local! {
    /// Folder of the captures of links, for worlds of this thread.
    static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Has the worlds of this thread capture what crosses their links.
pub(crate) fn capture_into(folder: Option<PathBuf>) {
    FOLDER.set(folder);
}

/// Opens the captures that the test, or the environment's `XK_CAPTURE`, wants; `None` if neither
/// does.
///
/// # Errors
/// [`CaptureError`], if a file cannot be made.
pub(crate) fn captures(network: &Network) -> Result<Option<Captures>, CaptureError> {
    let folder = FOLDER.with_borrow(Clone::clone);
    let folder = folder.or_else(|| std::env::var_os("XK_CAPTURE").map(PathBuf::from));
    folder.map(|folder| Captures::new(&folder, network)).transpose()
}

/// A digest, and captures besides.
pub(crate) struct Both(pub(crate) Rc<Digest>, pub(crate) Captures);

impl Drop for Both {
    fn drop(&mut self) {
        if let Err(error) = self.1.finish() {
            eprintln!("xk-world: {error}");
        }
    }
}

impl Tap for Both {
    fn frame(&self, seen: Sighting<'_>) {
        self.0.frame(seen);
        self.1.frame(seen);
    }
}
