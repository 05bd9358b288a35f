//! Memory for frames, of one socket alone: chunks that are either ours or the system's.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::queue::{CHUNK_OCTETS, Region};

/// A number of chunks of [`CHUNK_OCTETS`] octets.
pub(crate) struct Frames {
    base: NonNull<u8>,
    /// True of each chunk that the system may write or read at any time.
    lent: Vec<bool>,
}

// SAFETY: the mapping belongs to this value alone and is reached through `&mut self`; nothing is
// tied to a thread.
unsafe impl Send for Frames {}

impl Frames {
    /// The `count` chunks of a file in memory that has as many octets and keeps its size, all ours.
    pub(crate) fn of(file: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        let octets = count
            .checked_mul(CHUNK_OCTETS)
            .filter(|octets| *octets != 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the system's choice disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), octets, protection, flags, file, 0) }?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            lent: vec![false; count],
        })
    }

    /// The region, as the system is told of it.
    pub(crate) fn region(&self) -> Region {
        Region {
            address: self.base.as_ptr().expose_provenance(),
            octets: self.lent.len() * CHUNK_OCTETS,
        }
    }

    /// Marks a chunk of ours as the system's; `None` if it is none of ours. Answers the position of
    /// its first octet.
    #[inline]
    pub(crate) fn lend(&mut self, chunk: usize) -> Option<u64> {
        let lent = self.lent.get_mut(chunk).filter(|lent| !**lent)?;
        *lent = true;
        Some((chunk * CHUNK_OCTETS) as u64)
    }

    /// Takes back the chunk that holds the octet at `position`; `None` if the system does not have
    /// it.
    #[inline]
    pub(crate) fn take_back(&mut self, position: u64) -> Option<usize> {
        let chunk = usize::try_from(position).ok()? / CHUNK_OCTETS;
        let lent = self.lent.get_mut(chunk).filter(|lent| **lent)?;
        *lent = false;
        Some(chunk)
    }

    /// Octets of a chunk of ours; `None` if it is not, or they do not lie in it.
    #[inline]
    pub(crate) fn octets(
        &mut self,
        chunk: usize,
        offset: usize,
        count: usize,
    ) -> Option<&mut [u8]> {
        let ours = !self.lent.get(chunk)?;
        if !ours || offset.checked_add(count)? > CHUNK_OCTETS {
            return None;
        }
        // SAFETY: chunk, offset and count have been compared, so the octets lie in the mapping,
        // whose file keeps its size. By `lent` the system does not touch this chunk, and no code
        // of ours while `self` is borrowed; no other process writes to the file.
        Some(unsafe {
            let first = self.base.add(chunk * CHUNK_OCTETS + offset);
            std::slice::from_raw_parts_mut(first.as_ptr(), count)
        })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let octets = self.lent.len() * CHUNK_OCTETS;
        // SAFETY: base and length are those of the mapping made by `of`; no borrow of it outlives
        // this value. What the system still has pinned stays its own until it is unpinned.
        let _never_fails = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), octets) };
    }
}
