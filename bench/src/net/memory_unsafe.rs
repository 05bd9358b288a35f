//! Memory that two processes of a benchmark see: the bare exchange that no stack can beat.

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A file of memory, for a process and its children.
pub(super) struct Memory {
    fd: OwnedFd,
}

impl Memory {
    pub(super) fn new(octets: usize) -> rustix::io::Result<Self> {
        let fd = rustix::fs::memfd_create("xk-bench", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, octets as u64)?;
        Ok(Self { fd })
    }

    /// The path that another process of this user opens to map it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }
}

/// Such memory, mapped.
pub(super) struct Mapped {
    base: NonNull<u8>,
    octets: usize,
}

impl Mapped {
    /// Maps the memory at a path.
    pub(super) fn open(path: &str) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let octets = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no mapping that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), octets, both, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { base, octets })
    }

    /// The word at an offset that is a multiple of four.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.octets);
        // SAFETY: the word lies inside the mapping, which lives as long as `self` and begins at a
        // page; it is aligned; both processes use it as an atomic only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies octets in. The caller's words say whose turn it is: the other end leaves them alone.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub(super) fn put(&self, offset: usize, octets: &[u8]) {
        assert!(offset + octets.len() <= self.octets);
        // SAFETY: the octets lie inside the mapping, which `octets` is no part of; the two
        // processes are of one program and take turns by acquire and release on a word.
        unsafe {
            let to = self.base.as_ptr().add(offset);
            to.copy_from_nonoverlapping(octets.as_ptr(), octets.len());
        }
    }

    /// Copies octets out, likewise.
    ///
    /// # Panics
    /// If they do not all lie inside.
    #[inline]
    pub(super) fn take(&self, offset: usize, octets: &mut [u8]) {
        assert!(offset + octets.len() <= self.octets);
        // SAFETY: as for `put`.
        unsafe {
            let from = self.base.as_ptr().add(offset);
            from.copy_to_nonoverlapping(octets.as_mut_ptr(), octets.len());
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `open` made, of this size; what borrowed from it
        // borrowed `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.octets) };
    }
}
