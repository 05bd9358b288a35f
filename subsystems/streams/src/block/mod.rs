//! Message blocks and data blocks.
//!
//! A message is a chain of [`Mblk`]s (`b_cont`), each a read and a write pointer into a counted
//! data block, which several may see ([`Mblk::dupb`]). The first message block of a data block and
//! that itself are kept together for the next, as System V Release 4 allocates them. The octets of
//! a data block lie in a buffer of the kernel's own message pool, or in what another subsystem has
//! lent ([`Blocks::esballoc`]); so a block becomes an x-kernel message, and a message a chain of
//! blocks, without a copy ([`Mblk::into_message`], [`Blocks::lend_message`]).

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
use core::ops::{Deref, DerefMut};
use pool::PoolCore;
use xk_core::Message;

/// Octets that another subsystem has lent to a data block; its `Drop` is the free function.
pub trait Lent {
    /// The octets: the same ones as long as it lives.
    fn octets(&self) -> &[u8];
}

/// Store of a data block's octets.
#[derive(Default)]
enum Store {
    /// In no buffer: a data block that is free.
    #[default]
    Empty,
    /// In the data block itself.
    Small,
    /// In the only slice of a message of the kernel's pool.
    Message(Message),
    /// In what another subsystem has.
    Lent(Box<dyn Lent>),
}

/// A data block (`dblk`): the octets between `db_base` and `db_lim`, and the type.
pub(crate) struct Data {
    kind: Cell<Kind>,
    /// The size under which it is counted.
    class: u8,
    /// `db_lim` less `db_base`.
    limit: u32,
    store: Store,
    /// The pool that it is charged to; none while it is free, which it is with its block.
    pool: Option<Rc<PoolCore>>,
    small: [u8; SMALL],
}

/// Octets of a control part that lie in the data block itself: a datagram's two addresses and
/// options fit.
const SMALL: usize = 64;

impl Data {
    #[inline]
    fn octets(&self) -> &[u8] {
        match &self.store {
            Store::Empty => &[],
            Store::Small => &self.small,
            Store::Message(message) => message.front_slice(),
            Store::Lent(lent) => lent.octets(),
        }
    }
}

/// A message block (`mblk`) with the blocks of the message behind it: owned by the procedure that
/// has it, and freed when it is dropped (`freemsg`). Its band and flags are those of its
/// [`Block`].
///
/// Empty only while it is dropped or taken from.
pub struct Mblk(Option<Box<Block>>);

/// Head of a message block, beside its octets.
pub struct Block {
    data: Rc<Data>,
    /// Empty at the end of the message.
    cont: Mblk,
    read: u32,
    write: u32,
    /// The priority band of the message, from 0 to 255.
    pub band: u8,
    /// Flags of the stream head and of modules, such as [`MSGMARK`].
    pub flag: u8,
}

impl Deref for Mblk {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        let Some(block) = &self.0 else { unreachable!("it is owned, and so not empty") };
        block
    }
}

impl DerefMut for Mblk {
    #[inline]
    fn deref_mut(&mut self) -> &mut Block {
        let Some(block) = &mut self.0 else { unreachable!("it is owned, and so not empty") };
        block
    }
}

/// The last octet of the message is marked.
pub const MSGMARK: u8 = 0x01;
/// The message was cut: more of it follows.
pub const MSGDELIM: u8 = 0x04;

impl Mblk {
    const EMPTY: Self = Self(None);

    /// One that no other is behind.
    fn over(data: Rc<Data>, read: u32, write: u32) -> Self {
        Self(Some(Box::new(Block { data, cont: Self::EMPTY, read, write, band: 0, flag: 0 })))
    }

    fn take(&mut self) -> Option<Self> {
        self.0.take().map(|block| Self(Some(block)))
    }

    fn pool(&self) -> Option<&Rc<PoolCore>> {
        self.data.pool.as_ref()
    }

    /// The type of the data block.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.data.kind.get()
    }

    /// Sets the type, which all duplicates of the block share.
    #[inline]
    pub fn set_kind(&mut self, kind: Kind) {
        self.data.kind.set(kind);
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
        let block = &**self;
        block.data.octets().get(block.read as usize..block.write as usize).unwrap_or_default()
    }

    /// The octets of this block for writing; none if a duplicate sees the data block, or its octets
    /// are lent.
    pub fn octets_mut(&mut self) -> Option<&mut [u8]> {
        let (read, write) = (self.read as usize, self.write as usize);
        self.all_mut()?.get_mut(read..write)
    }

    /// All octets of the data block for writing, if this block alone sees them.
    fn all_mut(&mut self) -> Option<&mut [u8]> {
        let data = Rc::get_mut(&mut self.data)?;
        match &mut data.store {
            Store::Message(message) => message.front_mut(),
            Store::Small => data.small.get_mut(..data.limit as usize),
            Store::Empty => Some(&mut []),
            Store::Lent(_) => None,
        }
    }

    /// Number of octets of this block.
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
        (self.data.limit - self.write) as usize
    }

    /// Octets between `db_base` and the read pointer.
    pub fn headroom(&self) -> usize {
        self.read as usize
    }

    /// Number of message blocks that see the data block (`db_ref`).
    pub fn references(&self) -> usize {
        Rc::strong_count(&self.data)
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
        let limit = self.data.limit;
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
    #[inline]
    pub fn cont(&self) -> Option<&Mblk> {
        self.cont.0.is_some().then_some(&self.cont)
    }

    /// The block behind this one in the message, to change.
    #[inline]
    pub fn cont_mut(&mut self) -> Option<&mut Mblk> {
        let cont = &mut self.cont;
        cont.0.is_some().then_some(cont)
    }

    /// The blocks of the message from this one on.
    pub fn blocks(&self) -> impl Iterator<Item = &Mblk> {
        core::iter::successors(Some(self), |block| block.cont())
    }

    /// Octets of all blocks of the message.
    pub fn size(&self) -> usize {
        match self.cont() {
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
        while last.cont.0.is_some() {
            last = &mut last.cont;
        }
        last.cont = behind;
    }

    /// This message with `behind` at its end.
    #[must_use]
    pub fn linked(mut self, behind: Mblk) -> Self {
        self.linkb(behind);
        self
    }

    /// Takes the blocks behind this one off (`unlinkb`).
    pub fn unlinkb(&mut self) -> Option<Mblk> {
        self.cont.take()
    }
}

impl Drop for Mblk {
    #[inline]
    fn drop(&mut self) {
        // A long chain is freed in a loop, not by recursion.
        let mut next = self.0.take();
        while let Some(mut block) = next {
            next = block.cont.0.take();
            pool::free(block);
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
