//! Message blocks and data blocks.
//!
//! A message is a chain of [`Mblk`]s (`b_cont`), each a read and a write pointer into a counted
//! data block, which several may see ([`Mblk::dupb`]). The octets of a data block lie in a buffer
//! of the kernel's own message pool, or in what another subsystem has lent ([`Blocks::esballoc`]);
//! so a block becomes an x-kernel message, and a message a chain of blocks, without a copy
//! ([`Mblk::into_message`], [`Blocks::lend_message`]).

mod change;
mod convert;
mod kind;
mod pool;
#[cfg(test)]
mod tests;

pub use kind::Kind;
pub(crate) use pool::BlocksConfig;
pub use pool::{BlockStats, Blocks, ClassStats, Priority};

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;
use pool::PoolCore;
use xk_core::Message;

/// Octets that another subsystem has lent to a data block; its `Drop` is the free function.
pub trait Lent {
    /// The octets: the same ones as long as it lives.
    fn octets(&self) -> &[u8];
}

/// Where the octets of a data block lie.
#[derive(Default)]
enum Store {
    /// In no buffer: a data block that is free, or has room for nothing.
    #[default]
    Empty,
    /// In the only slice of a message of the kernel's pool.
    Message(Message),
    /// In what another subsystem has.
    Lent(Box<dyn Lent>),
}

/// A data block (`dblk`): the octets between `db_base` and `db_lim`, and the type.
pub(crate) struct Data {
    kind: Cell<Kind>,
    store: Store,
    /// `db_lim` less `db_base`.
    limit: u32,
    /// The pool that it is charged to; none while it is free.
    pool: Option<Rc<PoolCore>>,
}

impl Data {
    fn octets(&self) -> &[u8] {
        match &self.store {
            Store::Empty => &[],
            Store::Message(message) => message.front_slice(),
            Store::Lent(lent) => lent.octets(),
        }
    }
}

/// A message block (`mblk`) with the blocks of the message behind it: owned by the procedure that
/// has it, and freed when it is dropped (`freemsg`).
pub struct Mblk {
    /// None only while it is dropped.
    data: Option<Rc<Data>>,
    read: u32,
    write: u32,
    /// The priority band of the message, from 0 to 255.
    pub band: u8,
    /// Flags of the stream head and of modules, such as [`MSGMARK`].
    pub flag: u8,
    cont: Option<Box<Mblk>>,
}

/// The last octet of the message is marked.
pub const MSGMARK: u8 = 0x01;
/// The message was cut: more of it follows.
pub const MSGDELIM: u8 = 0x04;

impl Mblk {
    fn over(data: Rc<Data>, read: u32, write: u32) -> Self {
        Self { data: Some(data), read, write, band: 0, flag: 0, cont: None }
    }

    /// The type of the data block.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.data.as_ref().map_or(Kind::Data, |data| data.kind.get())
    }

    /// Sets the type, which all duplicates of the block share.
    #[inline]
    pub fn set_kind(&mut self, kind: Kind) {
        if let Some(data) = &self.data {
            data.kind.set(kind);
        }
    }

    /// This message with another type in its first block.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.set_kind(kind);
        self
    }

    /// The octets of this block between its read and its write pointer.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        let all = self.data.as_ref().map_or(&[][..], |data| data.octets());
        all.get(self.read as usize..self.write as usize).unwrap_or_default()
    }

    /// The octets of this block for writing; none if a duplicate sees the data block, or its octets
    /// are lent.
    pub fn octets_mut(&mut self) -> Option<&mut [u8]> {
        let (read, write) = (self.read as usize, self.write as usize);
        self.all_mut()?.get_mut(read..write)
    }

    /// All octets of the data block for writing, if this block alone sees them.
    fn all_mut(&mut self) -> Option<&mut [u8]> {
        match &mut Rc::get_mut(self.data.as_mut()?)?.store {
            Store::Message(message) => message.front_mut(),
            Store::Empty => Some(&mut []),
            Store::Lent(_) => None,
        }
    }

    /// How many octets this block has.
    #[inline]
    pub fn len(&self) -> usize {
        (self.write - self.read) as usize
    }

    /// Whether this block has no octets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.write == self.read
    }

    /// Octets between the write pointer and `db_lim`.
    pub fn room(&self) -> usize {
        self.data.as_ref().map_or(0, |data| (data.limit - self.write) as usize)
    }

    /// Octets between `db_base` and the read pointer.
    pub fn headroom(&self) -> usize {
        self.read as usize
    }

    /// How many message blocks see the data block (`db_ref`).
    pub fn references(&self) -> usize {
        self.data.as_ref().map_or(0, Rc::strong_count)
    }

    /// Takes the first `n` octets of this block off (`b_rptr += n`); false, and nothing is changed,
    /// if it has not so many.
    #[must_use]
    pub fn skip(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.read += n as u32;
        }
        fits
    }

    /// Keeps the first `n` octets of this block.
    pub fn truncate(&mut self, n: usize) {
        if n < self.len() {
            self.write = self.read + n as u32;
        }
    }

    /// Empties the block: both pointers go `headroom` octets behind `db_base`, as far as there are
    /// so many.
    pub fn reset(&mut self, headroom: usize) {
        let limit = self.data.as_ref().map_or(0, |data| data.limit);
        self.read = u32::try_from(headroom).unwrap_or(limit).min(limit);
        self.write = self.read;
    }

    /// Writes octets behind the write pointer and moves it; false, and nothing is changed, if there
    /// is no room, or a duplicate sees the data block.
    #[must_use]
    pub fn put(&mut self, octets: &[u8]) -> bool {
        let start = self.write as usize;
        let room = self.all_mut().and_then(|all| all.get_mut(start..start + octets.len()));
        let Some(room) = room else { return false };
        room.copy_from_slice(octets);
        self.write += octets.len() as u32;
        true
    }

    /// Writes octets in front of the read pointer and moves it there; false, and nothing is
    /// changed, if there is no room, or a duplicate sees the data block.
    #[must_use]
    pub fn put_front(&mut self, octets: &[u8]) -> bool {
        let end = self.read as usize;
        let Some(start) = end.checked_sub(octets.len()) else { return false };
        let Some(room) = self.all_mut().and_then(|all| all.get_mut(start..end)) else {
            return false;
        };
        room.copy_from_slice(octets);
        self.read = start as u32;
        true
    }

    /// The block behind this one in the message.
    pub fn cont(&self) -> Option<&Mblk> {
        self.cont.as_deref()
    }

    /// The block behind this one in the message, to change.
    pub fn cont_mut(&mut self) -> Option<&mut Mblk> {
        self.cont.as_deref_mut()
    }

    /// The blocks of the message from this one on.
    pub fn blocks(&self) -> impl Iterator<Item = &Mblk> {
        core::iter::successors(Some(self), |block| block.cont())
    }

    /// Octets of all blocks of the message.
    pub fn size(&self) -> usize {
        match &self.cont {
            None => self.len(),
            Some(_) => self.blocks().map(Mblk::len).sum(),
        }
    }

    /// Octets of the blocks of the type M_DATA of the message (`msgdsize`).
    pub fn data_size(&self) -> usize {
        self.blocks().filter(|block| block.kind() == Kind::Data).map(Mblk::len).sum()
    }

    /// All octets of the message, in a vector.
    pub fn to_vec(&self) -> alloc::vec::Vec<u8> {
        self.blocks().flat_map(|block| block.octets().iter().copied()).collect()
    }

    /// Puts `behind` at the end of the message (`linkb`).
    pub fn linkb(&mut self, behind: Mblk) {
        let mut last = self;
        while last.cont.is_some() {
            // Looked at twice for the borrow's sake.
            let Some(next) = last.cont.as_deref_mut() else { return };
            last = next;
        }
        last.cont = Some(Box::new(behind));
    }

    /// This message with `behind` at its end.
    #[must_use]
    pub fn linked(mut self, behind: Mblk) -> Self {
        self.linkb(behind);
        self
    }

    /// Takes the blocks behind this one off (`unlinkb`).
    pub fn unlinkb(&mut self) -> Option<Mblk> {
        self.cont.take().map(|behind| *behind)
    }
}

impl Drop for Mblk {
    fn drop(&mut self) {
        if let Some(data) = self.data.take() {
            pool::free(data);
        }
        // A long chain is freed in a loop, not by recursion.
        let mut next = self.cont.take();
        while let Some(mut block) = next {
            next = block.cont.take();
        }
    }
}

impl fmt::Debug for Mblk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind())?;
        if self.band != 0 {
            write!(f, "@{}", self.band)?;
        }
        for block in self.blocks() {
            write!(f, " {}", block.len())?;
        }
        Ok(())
    }
}
