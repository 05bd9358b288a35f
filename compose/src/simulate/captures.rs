//! Frames that cross simulated links, as pcapng files: one per link.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use xk_pcap::{Frame, Interface, InterfaceId, LinkType, Writer};
use xk_sim::{Network, Sighting, Tap};

/// Slices of a frame that are written without another allocation.
const PARTS: usize = 16;

struct Capture {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
}

/// A capture that could not be made or written.
#[derive(Debug)]
pub struct CaptureError {
    /// The file, or the folder of all.
    pub path: PathBuf,
    /// The system's reason.
    pub error: io::Error,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for CaptureError {}

/// Writes every frame of a network to its link's file.
pub struct Captures {
    /// By the number of the link.
    files: RefCell<Vec<Capture>>,
    /// The first failure; nothing is written after it.
    failed: RefCell<Option<CaptureError>>,
}

impl Captures {
    /// Makes files for all links of `network` in the folder `folder`, which is made if need be.
    ///
    /// # Errors
    /// [`CaptureError`]: the first that cannot be made.
    pub fn new(folder: &Path, network: &Network) -> Result<Self, CaptureError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| CaptureError { path, error }
        };
        std::fs::create_dir_all(folder).map_err(at(folder))?;
        let mut files = Vec::new();
        for (name, _) in network.links() {
            let path = folder.join(format!("{}.pcapng", file_name(&name)));
            files.push(open(&path, &name).map_err(at(&path))?);
        }
        Ok(Self { files: RefCell::new(files), failed: RefCell::default() })
    }

    /// Writes out what is held back, and names the files.
    ///
    /// # Errors
    /// [`CaptureError`]: the first that could not be written, then or before.
    pub fn finish(&self) -> Result<Vec<PathBuf>, CaptureError> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let mut paths = Vec::new();
        for capture in self.files.borrow_mut().iter_mut() {
            let path = capture.path.clone();
            match capture.writer.flush() {
                Ok(()) => paths.push(path),
                Err(error) => return Err(CaptureError { path, error }),
            }
        }
        Ok(paths)
    }
}

impl Tap for Captures {
    fn frame(&self, sighting: Sighting<'_>) {
        if self.failed.borrow().is_some() {
            return;
        }
        let mut files = self.files.borrow_mut();
        let Some(capture) = files.get_mut(sighting.link.0 as usize) else {
            return;
        };
        let comment = format!("{} > {}", sighting.host_name, sighting.link_name);
        let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
        let mut count = 0;
        for slice in sighting.frame.slices() {
            if let Some(part) = parts.get_mut(count) {
                *part = slice.octets;
            }
            count += 1;
        }
        let all: Vec<&[u8]>;
        let parts = match parts.get(..count) {
            Some(parts) => parts,
            None => {
                all = sighting.frame.slices().map(|s| s.octets).collect();
                &all
            }
        };
        let frame = Frame { comment: &comment, ..Frame::new(sighting.time.as_ns(), parts) };
        if let Err(error) = capture.writer.write(capture.interface, &frame) {
            let path = capture.path.clone();
            *self.failed.borrow_mut() = Some(CaptureError { path, error });
        }
    }
}

fn open(path: &Path, link: &str) -> io::Result<Capture> {
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), "xk")?;
    let interface = writer.add_interface(&Interface::new(link, LinkType::ETHERNET))?;
    Ok(Capture { path: path.to_owned(), writer, interface })
}

/// A link's name as the name of a file: whatever a file system might take amiss becomes `_`.
fn file_name(link: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || c == '-' { c } else { '_' }
    };
    link.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_harmlessly() {
        assert_eq!(file_name("lan-1"), "lan-1");
        assert_eq!(file_name("../x y"), "___x_y");
    }
}
