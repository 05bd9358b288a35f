//! Arenas that other processes can map: sealed memory files.
//!
//! One process makes a [`MemfdArena`], keeps its message pool in it and hands the file descriptor
//! to others (over a Unix socket, or by inheritance). They map it as a [`MemfdView`] and read
//! octets by position and length, as they stand in a descriptor ring
//! ([`xk_core::message::Slice::offset`]); the addresses differ between processes.
//!
//! Once a pool has the arena, the file is out of reach: duplicate the descriptor first
//! (`as_fd().try_clone_to_owned()`).
//!
//! The file is sealed: no process can shrink it while another reads it, nor take the
//! seals off. With [`Peers::Read`], the usual choice, the kernel also refuses every later mapping
//! for writing, and every write.

use core::ptr::NonNull;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use xk_core::message::Arena;

/// Access of other processes to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Read it. What lies in the arena is changed by this process alone.
    Read,
    /// Read and write it. Octets that a peer may be writing are to be copied first and checked
    /// then.
    ReadWrite,
}

/// A whole file mapped into memory, shared; unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    octets: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, octets: usize, protection: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: no address is asked for, so no mapping that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), octets, protection, MapFlags::SHARED, fd, 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, octets })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast::<c_void>();
        // SAFETY: this is the mapping that `new` made, of this size; nothing borrows from it beyond
        // its life. It fails only for addresses and sizes that `mmap` did not give.
        let _ = unsafe { rustix::mm::munmap(base, self.octets) };
    }
}

/// An arena in a sealed memory file, for a pool whose buffers other processes see.
#[derive(Debug)]
pub struct MemfdArena {
    fd: OwnedFd,
    mapping: Mapping,
}

impl MemfdArena {
    /// An arena of `octets` octets, all zero. `name` shows in `/proc/PID/maps`.
    ///
    /// Pages are claimed when they are first touched.
    ///
    /// # Errors
    /// What the system answers: no descriptors left (`EMFILE`), no memory (`ENOMEM`), a size of 0
    /// or a name with a NUL (`EINVAL`), a kernel before Linux 5.1 with [`Peers::Read`] (`EINVAL`).
    pub fn create(name: &str, octets: usize, peers: Peers) -> Result<Self, Errno> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, octets as u64)?;
        let mapping = Mapping::new(fd.as_fd(), octets, ProtFlags::READ | ProtFlags::WRITE)?;
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let seals = match peers {
            // This process keeps the mapping it has; only new ones cannot write.
            Peers::Read => size | SealFlags::FUTURE_WRITE,
            Peers::ReadWrite => size,
        };
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Ok(Self { fd, mapping })
    }
}

/// The file, to be handed to another process.
impl AsFd for MemfdArena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// SAFETY: the file is new, so it is zero and no one else in this program has it mapped for writing
// (a `MemfdView` reads through volatile copies); the mapping is page-aligned, stays in place until
// drop, and the seals keep its size.
unsafe impl Arena for MemfdArena {
    fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }

    fn len(&self) -> usize {
        self.mapping.octets
    }
}

/// Why a file was not accepted as another process's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The file could shrink while it is read: it lacks the seal against that.
    #[error("the memory file is not sealed against shrinking")]
    NotSealed,
    /// The system refused.
    #[error("{0}")]
    System(Errno),
}

impl From<Errno> for ViewError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Another process's arena, mapped for reading.
///
/// Its owner may change the octets at any time: they are copied out, and borrowed only where it has
/// promised not to.
#[derive(Debug)]
pub struct MemfdView {
    mapping: Mapping,
}

impl MemfdView {
    /// Maps the file of a [`MemfdArena`].
    ///
    /// # Errors
    /// [`ViewError`]; also for a descriptor that is no memory file.
    pub fn map(fd: impl AsFd) -> Result<Self, ViewError> {
        let fd = fd.as_fd();
        if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return Err(ViewError::NotSealed);
        }
        let octets =
            usize::try_from(rustix::fs::fstat(fd)?.st_size).map_err(|_| Errno::OVERFLOW)?;
        let mapping = Mapping::new(fd, octets, ProtFlags::READ)?;
        Ok(Self { mapping })
    }

    /// The size in octets.
    pub fn len(&self) -> usize {
        self.mapping.octets
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the octets in this process, and their number.
    pub fn region(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base, self.mapping.octets)
    }

    /// Copies the octets from `offset` on into `to`; false, and nothing is copied, if they do not
    /// all lie inside.
    #[must_use]
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> bool {
        let inside = offset.checked_add(to.len()).is_some_and(|end| end <= self.len());
        if inside {
            let from = self.mapping.base.as_ptr().wrapping_add(offset);
            // The owner may be writing. A call the compiler cannot look into reads each octet once,
            // whatever it finds.
            copy_shared(from, to);
        }
        inside
    }
}

/// Copies octets that another process may be changing.
fn copy_shared(from: *const u8, to: &mut [u8]) {
    const WORD: usize = size_of::<u64>();
    let (words, octets) = to.as_chunks_mut::<WORD>();
    for (at, word) in words.iter_mut().enumerate() {
        let from = from.wrapping_add(at * WORD).cast::<[u8; WORD]>();
        // SAFETY: the caller has seen that all octets lie inside the mapping; an array of octets
        // needs no alignment.
        *word = unsafe { from.read_volatile() };
    }
    let from = from.wrapping_add(words.len() * WORD);
    for (at, octet) in octets.iter_mut().enumerate() {
        // SAFETY: as above.
        *octet = unsafe { from.wrapping_add(at).read_volatile() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::message::{Pool, PoolConfig};

    #[test]
    fn memfd_arena_conforms() {
        xk_testkit::messages::arena(|octets| {
            MemfdArena::create("xk-test", octets, Peers::Read).unwrap()
        });
    }

    #[test]
    fn a_view_finds_the_octets_by_position() {
        let arena = MemfdArena::create("xk-test", 1 << 20, Peers::Read).unwrap();
        let view = MemfdView::map(&arena).unwrap();
        assert_eq!(view.len(), 1 << 20);
        let pool =
            Pool::with_arena(Box::new(arena), &PoolConfig::with_octets_max(1 << 20)).unwrap();
        let mut message = pool.copy_from(64, b"payload of some length").unwrap();
        message.push_array(b"header ").unwrap();
        let mut tail = message.split_off(20).unwrap();
        tail.push_array(b"|").unwrap();
        message.join(tail);
        assert!(message.lies_in(&pool));

        let mut seen = Vec::new();
        for slice in message.slices() {
            let mut octets = vec![0; slice.octets.len()];
            assert!(view.copy_to(slice.offset, &mut octets));
            seen.extend(octets);
        }
        assert_eq!(seen, b"header payload of so|me length");
        assert!(
            !view.copy_to(view.len() - 1, &mut [0; 2]) && !view.copy_to(usize::MAX, &mut [0; 2])
        );
    }

    #[test]
    fn peers_cannot_write_or_resize() {
        let arena = MemfdArena::create("xk-test", 4096, Peers::Read).unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(Mapping::new(arena.as_fd(), 4096, both).unwrap_err(), Errno::PERM);
        assert_eq!(rustix::io::write(&arena, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&arena, 0), Err(Errno::PERM));

        let arena = MemfdArena::create("xk-test", 4096, Peers::ReadWrite).unwrap();
        assert!(Mapping::new(arena.as_fd(), 4096, both).is_ok());
        assert_eq!(rustix::fs::fcntl_add_seals(&arena, SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn an_unsealed_file_is_refused() {
        let fd =
            rustix::fs::memfd_create("xk-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        assert_eq!(MemfdView::map(&fd).unwrap_err(), ViewError::NotSealed);
        assert_eq!(MemfdArena::create("xk-test", 0, Peers::Read).unwrap_err(), Errno::INVAL);
    }
}
