//! Where blocks come from, within bounds.

use super::{Data, Kind, Lent, Mblk, Store};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::{Message, Pool};

/// How much it matters that a block is had (`BPRI_LO` to `BPRI_HI`): the last eighth of the pool is
/// for the medium and the high, the last sixteenth for the high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Of ordinary data.
    Low,
    /// Of control.
    Medium,
    /// Of what frees others.
    High,
}

/// The sizes under which blocks are counted, in octets: each block under the first that holds it.
const CLASSES: [u32; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 16_384, 65_536];
/// Data blocks without octets that are kept for the next.
const SHELLS_MAX: usize = 4096;

/// Bounds of a pool of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlocksConfig {
    pub(crate) blocks_max: usize,
    pub(crate) octets_max: usize,
}

/// What blocks of one size have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The largest block counted here, in octets.
    pub octets: u32,
    /// Data blocks in use.
    pub live: usize,
    /// Data blocks that were ever made.
    pub made: u64,
}

/// What a pool of blocks has done so far.
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
    /// By size; the last is of what others have lent, whatever its size.
    pub classes: Vec<ClassStats>,
}

pub(crate) struct PoolCore {
    pool: Pool,
    config: BlocksConfig,
    messages: Cell<usize>,
    blocks: Cell<usize>,
    high_water: Cell<usize>,
    octets: Cell<usize>,
    failures: Cell<u64>,
    live: [Cell<usize>; CLASSES.len() + 1],
    made: [Cell<u64>; CLASSES.len() + 1],
    shells: RefCell<Vec<Rc<Data>>>,
    /// Requests that wait for blocks (`bufcall`) want to know when one is freed.
    pub(crate) freed: Cell<bool>,
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
            messages: Cell::new(0),
            blocks: Cell::new(0),
            high_water: Cell::new(0),
            octets: Cell::new(0),
            failures: Cell::new(0),
            live: Default::default(),
            made: Default::default(),
            shells: RefCell::default(),
            freed: Cell::new(false),
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
    pub fn allocb(&self, size: usize, priority: Priority) -> Option<Mblk> {
        self.0.admit(size, priority)?;
        let message = match self.0.pool.alloc(0, size) {
            Ok(message) if message.single_slice().is_some() => message,
            // No single buffer holds so much, or there is none.
            _ => return self.0.refuse(),
        };
        Some(self.0.block(Store::Message(message), size as u32, 0))
    }

    /// A message of one block of this type with a copy of `octets`, and `headroom` octets in front
    /// of the read pointer. `None` if the pool is exhausted, counted.
    pub fn copy(&self, kind: Kind, headroom: usize, octets: &[u8]) -> Option<Mblk> {
        let priority = if kind == Kind::Data { Priority::Low } else { Priority::Medium };
        let mut block = self.allocb(headroom.checked_add(octets.len())?, priority)?;
        block.reset(headroom);
        block.set_kind(kind);
        block.put(octets).then_some(block)
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
        Ok(self.0.block_lent(Store::Lent(lent), size))
    }

    /// Whether a block of so many octets would be had now (`testb`).
    pub fn testb(&self, size: usize, priority: Priority) -> bool {
        self.0.has_room(size, priority)
    }

    /// What it has done so far.
    pub fn stats(&self) -> BlockStats {
        let core = &self.0;
        let sizes = CLASSES.iter().copied().chain([0]);
        let classes = sizes.zip(&core.live).zip(&core.made).map(|((octets, live), made)| {
            ClassStats { octets, live: live.get(), made: made.get() }
        });
        BlockStats {
            messages: core.messages.get(),
            blocks: core.blocks.get(),
            blocks_high_water: core.high_water.get(),
            octets: core.octets.get(),
            failures: core.failures.get(),
            classes: classes.collect(),
        }
    }
}

impl PoolCore {
    fn has_room(&self, size: usize, priority: Priority) -> bool {
        let share = |max: usize| match priority {
            Priority::Low => max - max / 8,
            Priority::Medium => max - max / 16,
            Priority::High => max,
        };
        self.blocks.get() < share(self.config.blocks_max)
            && self.octets.get().saturating_add(size) <= share(self.config.octets_max)
    }

    fn admit(&self, size: usize, priority: Priority) -> Option<()> {
        if self.has_room(size, priority) { Some(()) } else { self.refuse() }
    }

    #[cold]
    pub(super) fn refuse<T>(&self) -> Option<T> {
        self.failures.set(self.failures.get() + 1);
        None
    }

    /// Whether one more message block may see a data block; counts it if so.
    pub(super) fn admit_message(&self) -> Option<()> {
        if self.messages.get() >= self.config.blocks_max.saturating_mul(2) {
            return self.refuse();
        }
        self.messages.set(self.messages.get() + 1);
        Some(())
    }

    fn class_of(&self, store: &Store, limit: u32) -> usize {
        match store {
            Store::Lent(_) => CLASSES.len(),
            _ => CLASSES.iter().position(|octets| limit <= *octets).unwrap_or(CLASSES.len() - 1),
        }
    }

    fn block_lent(self: &Rc<Self>, store: Store, size: u32) -> Mblk {
        self.block(store, size, size)
    }

    /// A message block over a data block of these octets, of which the first `written` are there.
    pub(super) fn block(self: &Rc<Self>, store: Store, limit: u32, written: u32) -> Mblk {
        let class = self.class_of(&store, limit);
        self.live[class].set(self.live[class].get() + 1);
        self.made[class].set(self.made[class].get() + 1);
        self.messages.set(self.messages.get() + 1);
        let blocks = self.blocks.get() + 1;
        self.blocks.set(blocks);
        self.high_water.set(self.high_water.get().max(blocks));
        self.octets.set(self.octets.get() + limit as usize);
        let mut shell = self.shells.borrow_mut().pop();
        let data = match shell.as_mut().and_then(Rc::get_mut) {
            Some(data) => {
                data.kind.set(Kind::Data);
                data.store = store;
                data.limit = limit;
                data.pool = Some(Rc::clone(self));
                shell
            }
            None => {
                let (kind, pool) = (Cell::new(Kind::Data), Some(Rc::clone(self)));
                Some(Rc::new(Data { kind, store, limit, pool }))
            }
        };
        Mblk { data, read: 0, write: written, band: 0, flag: 0, cont: None }
    }

    /// Whether a lent message fits; as many data blocks as it has slices.
    pub(super) fn has_blocks(&self, count: usize) -> bool {
        self.blocks.get().saturating_add(count)
            <= self.config.blocks_max - self.config.blocks_max / 8
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn over_message(self: &Rc<Self>, message: Message) -> Mblk {
        let size = message.len() as u32;
        self.block(Store::Message(message), size, size)
    }
}

/// A message block lets go of its data block (`freeb`).
pub(super) fn free(mut data: Rc<Data>) {
    let Some(last) = Rc::get_mut(&mut data) else {
        if let Some(pool) = &data.pool {
            pool.messages.set(pool.messages.get() - 1);
        }
        return;
    };
    let store = core::mem::take(&mut last.store);
    let (limit, pool) = (last.limit, last.pool.take());
    let Some(pool) = pool else { return };
    let class = pool.class_of(&store, limit);
    pool.live[class].set(pool.live[class].get() - 1);
    pool.messages.set(pool.messages.get() - 1);
    pool.blocks.set(pool.blocks.get() - 1);
    pool.octets.set(pool.octets.get() - limit as usize);
    pool.freed.set(true);
    // May be another subsystem's free function: nothing is borrowed.
    drop(store);
    let mut shells = pool.shells.borrow_mut();
    if shells.len() < SHELLS_MAX {
        shells.push(data);
    }
}
