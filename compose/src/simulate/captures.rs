//! What crosses simulated links, as pcapng files: one per link.

use crate::failure::Failure;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use xk_pcap::{Frame, Interface, InterfaceId, LinkType, Writer};
use xk_sim::{Network, Sighting, Tap};

/// How many slices of a frame are written without another allocation.
const PARTS: usize = 16;

struct Capture {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
}

/// Writes every frame of a network to its link's file.
pub struct Captures {
    /// By the number of the link.
    files: RefCell<Vec<Capture>>,
    /// The first failure; nothing is written after it.
    failed: RefCell<Option<(PathBuf, io::Error)>>,
}

impl Captures {
    /// Files for all links of `network` in the folder `folder`, which is made if need be.
    pub fn new(folder: &Path, network: &Network) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::file("cannot make the folder", folder, error))?;
        let mut files = Vec::new();
        for (name, _) in network.links() {
            let path = folder.join(format!("{}.pcapng", file_name(&name)));
            let capture =
                open(&path, &name).map_err(|error| Failure::file("cannot write", &path, error))?;
            files.push(capture);
        }
        Ok(Self { files: RefCell::new(files), failed: RefCell::default() })
    }

    /// Writes out what is held back, and names the files.
    pub fn finish(&self) -> Result<Vec<PathBuf>, Failure> {
        if let Some((path, error)) = &*self.failed.borrow() {
            return Err(Failure::file("cannot write", path, error));
        }
        let mut paths = Vec::new();
        for capture in self.files.borrow_mut().iter_mut() {
            let failed = |error| Failure::file("cannot write", &capture.path, error);
            capture.writer.flush().map_err(failed)?;
            paths.push(capture.path.clone());
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
            *self.failed.borrow_mut() = Some((capture.path.clone(), error));
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
