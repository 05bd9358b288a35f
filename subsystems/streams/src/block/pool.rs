//! The source of blocks, within bounds.

use super::{Block, Data, Kind, Lent, Mblk, SMALL, Store};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::{Message, Pool};

/// Priority of a request for a block (`BPRI_LO` to `BPRI_HI`): the last eighth of the pool is for
/// the medium and the high, the last sixteenth for the high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Ordinary data.
    Low,
    /// Control.
    Medium,
    /// Work that frees other blocks.
    High,
}

/// The sizes under which blocks are counted, in octets: each block under the first that holds it.
const CLASSES: [u32; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 16_384, 65_536];
/// Message blocks with a data block without octets that are kept for the next.
const KEPT_MAX: usize = 4096;

/// Bounds of a pool of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlocksConfig {
    pub(crate) blocks_max: usize,
    pub(crate) octets_max: usize,
}

/// Counters of blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The largest block counted here, in octets.
    pub octets: u32,
    /// Data blocks in use.
    pub live: usize,
    /// Data blocks that were ever made.
    pub made: u64,
}

/// Counters of a pool of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Message blocks in use, duplicates counted each.
    pub messages: usize,
    /// Data blocks in use.
    pub blocks: usize,
    /// Most data blocks that were in use at one time.
    pub blocks_high_water: usize,
    /// Octets between base and limit of those in use.
    pub octets: usize,
    /// Requests refused.
    pub failures: u64,
    /// The statistics by size; the last are of octets that others have lent, whatever their size.
    pub classes: Vec<ClassStats>,
}

pub(crate) struct PoolCore {
    pool: Pool,
    config: BlocksConfig,
    /// Message blocks beyond the first of each data block.
    duplicates: Cell<usize>,
    blocks: Cell<usize>,
    high_water: Cell<usize>,
    octets: Cell<usize>,
    failures: Cell<u64>,
    made: [Cell<u64>; CLASSES.len() + 1],
    freed_of: [Cell<u64>; CLASSES.len() + 1],
    #[expect(clippy::vec_box, reason = "a block keeps its place")]
    kept: RefCell<Vec<Box<Block>>>,
}

/// A pool of message blocks; handles of it are cheap.
#[derive(Clone)]
pub struct Blocks(pub(crate) Rc<PoolCore>);

impl Blocks {
    /// A pool of at most so many data blocks and octets, over the kernel's pool.
    pub(crate) fn new(pool: &Pool, config: BlocksConfig) -> Self {
        Self(Rc::new(PoolCore {
            pool: pool.clone(),
            config,
            duplicates: Cell::new(0),
            blocks: Cell::new(0),
            high_water: Cell::new(0),
            octets: Cell::new(0),
            failures: Cell::new(0),
            made: Default::default(),
            freed_of: Default::default(),
            kept: RefCell::default(),
        }))
    }

    /// A pool for programs and tests that use blocks without a kernel's `streams`: at most so many
    /// data blocks and octets.
    pub fn of_pool(pool: &Pool, blocks_max: usize, octets_max: usize) -> Self {
        Self::new(pool, BlocksConfig { blocks_max, octets_max })
    }

    pub(super) fn core(&self) -> &Rc<PoolCore> {
        &self.0
    }

    /// The kernel's pool, in which the octets of blocks lie.
    pub fn pool(&self) -> &Pool {
        self.0.pool()
    }

    /// A message of one block of M_DATA with room for `size` octets and none in it (`allocb`).
    /// `None` if the pool is exhausted, counted: see [`Q::bufcall`](crate::Q::bufcall).
    #[inline]
    pub fn allocb(&self, size: usize, priority: Priority) -> Option<Mblk> {
        let message = self.0.buffer(size, priority)?;
        Some(self.0.block(Store::Message(message), size as u32, (Kind::Data, 0, 0)))
    }

    /// A message of one block of this type with a copy of `octets`, and `headroom` octets in front
    /// of the read pointer. `None` if the pool is exhausted, counted.
    pub fn copy(&self, kind: Kind, headroom: usize, octets: &[u8]) -> Option<Mblk> {
        self.filled(kind, headroom, octets.len(), |room| room.copy_from_slice(octets))
    }

    /// As [`copy`](Self::copy), of `len` octets that `fill` writes.
    #[inline]
    pub(crate) fn filled(
        &self,
        kind: Kind,
        headroom: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Mblk> {
        let priority = if kind == Kind::Data { Priority::Low } else { Priority::Medium };
        let size = headroom.checked_add(len)?;
        if kind != Kind::Data && size <= SMALL {
            self.0.admit(size, priority)?;
            let pointers = (kind, headroom as u32, size as u32);
            let mut block = self.0.block(Store::Small, size as u32, pointers);
            fill(block.octets_mut()?);
            return Some(block);
        }
        let mut message = self.0.buffer(size, priority)?;
        fill(message.front_mut()?.get_mut(headroom..size)?);
        let size = size as u32;
        Some(self.0.block(Store::Message(message), size, (kind, headroom as u32, size)))
    }

    /// A message of one block over octets that another subsystem has lent (`esballoc`): nothing is
    /// ever written there, and `lent` is dropped with the last block that sees it. `lent` comes
    /// back if the pool is exhausted, counted.
    ///
    /// # Errors
    /// What was to be lent.
    pub fn esballoc(&self, lent: Box<dyn Lent>, priority: Priority) -> Result<Mblk, Box<dyn Lent>> {
        let Ok(size) = u32::try_from(lent.octets().len()) else { return Err(lent) };
        if self.0.admit(0, priority).is_none() {
            return Err(lent);
        }
        Ok(self.0.block(Store::Lent(lent), size, (Kind::Data, 0, size)))
    }

    /// Whether a block of so many octets would be had now (`testb`).
    pub fn testb(&self, size: usize, priority: Priority) -> bool {
        self.0.has_room(size, priority)
    }

    /// Whether so many blocks of ordinary data, of so many octets together, would be had now.
    pub fn has(&self, (blocks, octets): (usize, usize)) -> bool {
        self.0.has_blocks(blocks) && self.0.has_room(octets, Priority::Low)
    }

    /// Counters of the pool.
    pub fn stats(&self) -> BlockStats {
        let core = &self.0;
        let sizes = CLASSES.iter().copied().chain([0]);
        let counts = core.made.iter().map(Cell::get).zip(core.freed_of.iter().map(Cell::get));
        let classes = sizes.zip(counts).map(|(octets, (made, freed))| ClassStats {
            octets,
            live: (made - freed) as usize,
            made,
        });
        BlockStats {
            messages: core.blocks.get() + core.duplicates.get(),
            blocks: core.blocks.get(),
            blocks_high_water: core.high_water.get(),
            octets: core.octets.get(),
            failures: core.failures.get(),
            classes: classes.collect(),
        }
    }
}

impl PoolCore {
    #[inline]
    fn has_room(&self, size: usize, priority: Priority) -> bool {
        let share = |max: usize| match priority {
            Priority::Low => max - max / 8,
            Priority::Medium => max - max / 16,
            Priority::High => max,
        };
        self.blocks.get() < share(self.config.blocks_max)
            && self.octets.get().saturating_add(size) <= share(self.config.octets_max)
    }

    #[inline]
    fn admit(&self, size: usize, priority: Priority) -> Option<()> {
        if self.has_room(size, priority) { Some(()) } else { self.refuse() }
    }

    #[cold]
    pub(super) fn refuse<T>(&self) -> Option<T> {
        self.failures.set(self.failures.get() + 1);
        None
    }

    /// Room for so many octets, within the bounds.
    #[inline]
    fn buffer(&self, size: usize, priority: Priority) -> Option<Message> {
        self.admit(size, priority)?;
        match self.pool.alloc(0, size) {
            Ok(message) if message.single_slice().is_some() => Some(message),
            // No single buffer holds so much, or there is none.
            _ => self.refuse(),
        }
    }

    /// Whether one more message block may see a data block; counts it if so.
    pub(super) fn admit_message(&self) -> Option<()> {
        let messages = self.blocks.get() + self.duplicates.get();
        if messages >= self.config.blocks_max.saturating_mul(2) {
            return self.refuse();
        }
        self.duplicates.set(self.duplicates.get() + 1);
        Some(())
    }

    #[inline]
    fn class_of(store: &Store, limit: u32) -> usize {
        match store {
            Store::Lent(_) => CLASSES.len(),
            _ => CLASSES.iter().position(|octets| limit <= *octets).unwrap_or(CLASSES.len() - 1),
        }
    }

    /// A message block over a data block of these octets, with its type, and its read and its write
    /// pointer.
    #[inline]
    pub(super) fn block(
        self: &Rc<Self>,
        store: Store,
        limit: u32,
        (kind, read, write): (Kind, u32, u32),
    ) -> Mblk {
        let class = Self::class_of(&store, limit);
        self.made[class].set(self.made[class].get() + 1);
        let blocks = self.blocks.get() + 1;
        self.blocks.set(blocks);
        if blocks > self.high_water.get() {
            self.high_water.set(blocks);
        }
        self.octets.set(self.octets.get() + limit as usize);
        let (class, pool) = (class as u8, Some(Rc::clone(self)));
        let kept = self.kept.borrow_mut().pop();
        let Some(mut block) = kept else {
            let (kind, small) = (Cell::new(kind), [0; SMALL]);
            let data = Data { kind, class, limit, store, pool, small };
            return Mblk::over(Rc::new(data), read, write);
        };
        if let Some(data) = Rc::get_mut(&mut block.data) {
            data.kind.set(kind);
            (data.class, data.limit) = (class, limit);
            // Nothing is dropped: what is kept has neither.
            core::mem::forget(core::mem::replace(&mut data.store, store));
            core::mem::forget(core::mem::replace(&mut data.pool, pool));
        }
        (block.read, block.write, block.band, block.flag) = (read, write, 0, 0);
        Mblk(Some(block))
    }

    /// Whether a lent message fits; as many data blocks as it has slices.
    pub(super) fn has_blocks(&self, count: usize) -> bool {
        self.blocks.get().saturating_add(count)
            <= self.config.blocks_max - self.config.blocks_max / 8
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    pub(super) fn over_message(self: &Rc<Self>, message: Message) -> Mblk {
        let size = message.len() as u32;
        self.block(Store::Message(message), size, (Kind::Data, 0, size))
    }
}

/// A message block is freed, and its data block if no other sees that (`freeb`). No other is behind
/// it.
pub(super) fn free(mut block: Box<Block>) {
    let Some(data) = Rc::get_mut(&mut block.data) else {
        if let Some(pool) = &block.data.pool {
            pool.duplicates.set(pool.duplicates.get() - 1);
        }
        return;
    };
    let (class, store) = (usize::from(data.class), core::mem::take(&mut data.store));
    let Some(pool) = data.pool.take() else { return };
    pool.freed_of[class].set(pool.freed_of[class].get() + 1);
    pool.blocks.set(pool.blocks.get() - 1);
    pool.octets.set(pool.octets.get() - data.limit as usize);
    // May be another subsystem's free function: nothing is borrowed.
    drop(store);
    let mut kept = pool.kept.borrow_mut();
    if kept.len() < KEPT_MAX {
        kept.push(block);
    }
}
