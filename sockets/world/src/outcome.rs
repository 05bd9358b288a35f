//! What came of a run, and what it is compared by.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::rc::Rc;
use xk_core::Time;
use xk_pcap::{Frame, Interface, InterfaceId, LinkType, Writer};
use xk_sim::{Digest, Network, Sighting, Tap};

/// What came of a run: two runs of one seed have equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it ended.
    pub now: Time,
    /// Frames that crossed a link.
    pub frames: u64,
    /// The times, senders and lengths of all of them, folded.
    pub shape: u64,
    /// Their octets, folded; `None` if they may be random.
    pub octets: Option<u64>,
}

impl Outcome {
    pub(crate) fn of(digest: &Digest, now: Time, with_octets: bool) -> Self {
        let octets = with_octets.then_some(digest.octets());
        Self { now, frames: digest.frames(), shape: digest.shape(), octets }
    }
}

thread_local! {
    /// Where worlds of this thread capture what crosses their links.
    static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Has the worlds of this thread capture what crosses their links.
pub(crate) fn capture_into(folder: Option<PathBuf>) {
    FOLDER.set(folder);
}

/// A file, and the link in it; none once it could not be written.
type Capture = Option<(Writer<BufWriter<File>>, InterfaceId)>;

/// A file of each link.
pub(crate) struct Captures(RefCell<Vec<Capture>>);

impl Captures {
    /// Those that the test, or the environment's `XK_CAPTURE`, wants; `None` if neither does.
    ///
    /// # Errors
    /// If a file cannot be made.
    pub(crate) fn wanted(network: &Network) -> io::Result<Option<Self>> {
        let folder = FOLDER.with_borrow(Clone::clone);
        let folder = folder.or_else(|| std::env::var_os("XK_CAPTURE").map(PathBuf::from));
        let Some(folder) = folder else { return Ok(None) };
        std::fs::create_dir_all(&folder)?;
        let open = |(name, _): &(Rc<str>, _)| {
            let plain = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
            let file: String = name.chars().map(plain).collect();
            let file = File::create(folder.join(format!("{file}.pcapng")))?;
            let mut writer = Writer::new(BufWriter::new(file), "xk-world")?;
            let interface = writer.add_interface(&Interface::new(name, LinkType::ETHERNET))?;
            Ok(Some((writer, interface)))
        };
        let files: io::Result<Vec<_>> = network.links().iter().map(open).collect();
        Ok(Some(Self(RefCell::new(files?))))
    }
}

impl Tap for Captures {
    fn frame(&self, seen: Sighting<'_>) {
        let mut files = self.0.borrow_mut();
        let Some(place) = files.get_mut(seen.link.0 as usize) else { return };
        let Some((writer, interface)) = place else { return };
        let parts: Vec<&[u8]> = seen.frame.slices().map(|slice| slice.octets).collect();
        let frame = Frame { comment: seen.host_name, ..Frame::new(seen.time.as_ns(), &parts) };
        if let Err(error) = writer.write(*interface, &frame) {
            eprintln!("xk-world: the capture of link `{}` ends: {error}", seen.link_name);
            *place = None;
        }
    }
}

/// A digest, and captures besides.
pub(crate) struct Both(pub(crate) Rc<Digest>, pub(crate) Captures);

impl Tap for Both {
    fn frame(&self, seen: Sighting<'_>) {
        self.0.frame(seen);
        self.1.frame(seen);
    }
}
