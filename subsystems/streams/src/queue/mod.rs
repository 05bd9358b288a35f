//! Queue pairs: what a message goes through, and where it waits.

mod band;
mod flow;
mod messages;
#[cfg(test)]
mod tests;

pub use messages::{FLUSHBAND, FLUSHR, FLUSHRW, FLUSHW, What};

use crate::block::Mblk;
use crate::module::{Absent, Module, ModuleInfo};
use crate::scheduler::Core;
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use band::Band;
use core::cell::{Cell, RefCell};
use core::fmt;
use xk_core::Kernel;

/// Scheduled for service.
pub const QENAB: u16 = 0x01;
/// A reader found it empty.
pub const QWANTR: u16 = 0x02;
/// A writer found it full.
pub const QWANTW: u16 = 0x04;
/// As many octets as its high-water mark, or more.
pub const QFULL: u16 = 0x08;
/// The read queue of its pair.
pub const QREADR: u16 = 0x10;
/// In use.
pub const QUSE: u16 = 0x20;
/// Ordinary messages do not enable it.
pub const QNOENB: u16 = 0x40;
/// Waits for blocks.
pub const QWAITS: u16 = 0x80;

/// Queue of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Messages on their way up.
    Read,
    /// Messages on their way down.
    Write,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

/// One queue.
#[derive(Default)]
struct Queue {
    messages: RefCell<VecDeque<Mblk>>,
    next: RefCell<Option<Q>>,
    /// Octets of messages of band 0 and of high priority.
    count: Cell<usize>,
    flags: Cell<u16>,
    min_packet: Cell<u32>,
    max_packet: Cell<u32>,
    hiwat: Cell<u32>,
    lowat: Cell<u32>,
    bands: RefCell<Vec<Band>>,
    has_service: Cell<bool>,
    puts: Cell<u64>,
    figures: Cell<Figures>,
}

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Service procedures run.
    pub services: u64,
    /// Times that a writer found it full, and waited for its room.
    pub blocked: u64,
    /// Times that it told those behind that there is room again.
    pub back_enables: u64,
    /// Octets that it has held at most, of band 0 and of high priority.
    pub octets_max: usize,
}

pub(crate) struct Pair {
    core: Rc<Core>,
    read: Queue,
    write: Queue,
    module: RefCell<Rc<dyn Module>>,
    /// Closed, or popped: whatever still refers to it does nothing.
    is_gone: Cell<bool>,
}

/// A queue of a pair: a counted handle.
#[derive(Clone)]
pub struct Q {
    pair: Rc<Pair>,
    side: Side,
}

/// A queue that does not keep its pair.
#[derive(Clone)]
pub struct WeakQ {
    pair: Weak<Pair>,
    side: Side,
}

impl WeakQ {
    /// The queue, if its pair is there and not closed.
    pub fn upgrade(&self) -> Option<Q> {
        let pair = self.pair.upgrade().filter(|pair| !pair.is_gone.get())?;
        Some(Q { pair, side: self.side })
    }
}

impl PartialEq for Q {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.pair, &other.pair) && self.side == other.side
    }
}

impl Eq for Q {}

impl Q {
    /// The read queue of a new pair, which frees what comes until a module is placed in it.
    pub(crate) fn pair(core: &Rc<Core>) -> Q {
        let pair = Rc::new(Pair {
            core: Rc::clone(core),
            read: Queue::default(),
            write: Queue::default(),
            module: RefCell::new(Rc::new(Absent)),
            is_gone: Cell::new(false),
        });
        pair.read.flags.set(QREADR | QUSE | QWANTR);
        pair.write.flags.set(QUSE | QWANTR);
        Q { pair, side: Side::Read }
    }

    fn queue(&self) -> &Queue {
        match self.side {
            Side::Read => &self.pair.read,
            Side::Write => &self.pair.write,
        }
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.pair.core
    }

    /// The source of blocks.
    pub fn blocks(&self) -> &crate::block::Blocks {
        &self.pair.core.blocks
    }

    /// Puts the procedures of a module into the pair (`setq`); answers those it had.
    pub(crate) fn place(&self, module: Rc<dyn Module>) -> Rc<dyn Module> {
        let (info, services) = (module.info(), module.services());
        for (queue, service) in
            [(&self.pair.read, services.read), (&self.pair.write, services.write)]
        {
            queue.set_marks(&info);
            queue.has_service.set(service);
        }
        self.pair.module.replace(module)
    }

    /// The module of the pair.
    pub fn module(&self) -> Rc<dyn Module> {
        Rc::clone(&self.pair.module.borrow())
    }

    /// Side of the queue in its pair.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The read queue of the pair (`RD`).
    #[must_use]
    pub fn read_side(&self) -> Q {
        Q { pair: Rc::clone(&self.pair), side: Side::Read }
    }

    /// The write queue of the pair (`WR`).
    #[must_use]
    pub fn write_side(&self) -> Q {
        Q { pair: Rc::clone(&self.pair), side: Side::Write }
    }

    /// The other queue of the pair (`OTHERQ`).
    #[must_use]
    pub fn other(&self) -> Q {
        Q { pair: Rc::clone(&self.pair), side: self.side.other() }
    }

    /// A handle that does not keep the pair.
    pub fn downgrade(&self) -> WeakQ {
        WeakQ { pair: Rc::downgrade(&self.pair), side: self.side }
    }

    /// Whether both are queues of one pair (`SAMEPAIR`).
    pub fn same_pair(&self, other: &Q) -> bool {
        Rc::ptr_eq(&self.pair, &other.pair)
    }

    /// A number of the pair, different for each that lives.
    pub fn id(&self) -> usize {
        Rc::as_ptr(&self.pair).addr()
    }

    fn is_last(&self) -> bool {
        self.queue().next.borrow().is_none()
    }

    /// The queue ahead (`q_next`).
    pub fn next(&self) -> Option<Q> {
        self.queue().next.borrow().clone()
    }

    pub(crate) fn set_next(&self, next: Option<Q>) {
        let before = self.queue().next.replace(next);
        drop(before);
    }

    /// The queue behind: the one whose messages come here (`backq`).
    pub fn back(&self) -> Option<Q> {
        self.other().next().map(|next| next.other())
    }

    /// Whether the stream or the module of this queue has been closed.
    pub fn is_gone(&self) -> bool {
        self.pair.is_gone.get()
    }

    /// Hands a message to this queue's put procedure (`put`).
    pub fn put(&self, cx: &Kernel, mp: Mblk) {
        let queue = self.queue();
        queue.puts.set(queue.puts.get() + 1);
        let module = self.module();
        match self.side {
            Side::Read => module.rput(cx, self, mp),
            Side::Write => module.wput(cx, self, mp),
        }
    }

    /// Hands a message to the put procedure of the queue ahead (`putnext`). With none ahead the
    /// message is freed, counted.
    #[inline]
    pub fn putnext(&self, cx: &Kernel, mp: Mblk) {
        match self.next() {
            Some(next) => next.put(cx, mp),
            None => self.pair.core.count_loss(mp),
        }
    }

    /// Sends a message back the other way (`qreply`).
    pub fn qreply(&self, cx: &Kernel, mp: Mblk) {
        self.other().putnext(cx, mp);
    }

    /// Runs the service procedure: the scheduler's.
    pub(crate) fn serve(&self, cx: &Kernel) {
        let queue = self.queue();
        queue.flags.set(queue.flags.get() & !QENAB);
        if self.pair.is_gone.get() || !queue.has_service.get() {
            return;
        }
        self.figure(|figures| figures.services += 1);
        let module = self.module();
        match self.side {
            Side::Read => module.rsrv(cx, self),
            Side::Write => module.wsrv(cx, self),
        }
    }

    /// Service procedure that only passes messages on: each goes to the queue ahead while there is
    /// room.
    pub fn serve_through(&self, cx: &Kernel) {
        while let Some(mp) = self.getq(cx) {
            if !mp.kind().is_high() && !self.bcanputnext(mp.band) {
                self.putbq(cx, mp);
                return;
            }
            self.putnext(cx, mp);
        }
    }

    /// Cuts the pair off from its neighbours and frees what it has; the answer counts the messages
    /// freed.
    pub(crate) fn take_down(&self) -> usize {
        self.pair.is_gone.set(true);
        let mut freed = 0;
        for queue in [&self.pair.read, &self.pair.write] {
            let (messages, next) = (queue.messages.take(), queue.next.take());
            freed += messages.len();
            queue.count.set(0);
            queue.bands.borrow_mut().clear();
            queue.flags.set(queue.flags.get() & !(QFULL | QWANTW));
            drop((messages, next));
        }
        let module = self.pair.module.replace(Rc::new(Absent));
        drop(module);
        self.pair.core.add_losses(freed);
        freed
    }

    /// Number of runs of its put procedure and of its service procedure.
    pub fn runs(&self) -> (u64, u64) {
        (self.queue().puts.get(), self.figures().services)
    }

    /// Counters of the queue.
    pub fn figures(&self) -> Figures {
        self.queue().figures.get()
    }

    fn figure(&self, change: impl FnOnce(&mut Figures)) {
        let mut figures = self.figures();
        change(&mut figures);
        self.queue().figures.set(figures);
    }

    /// The flags, [`QFULL`] and those beside it.
    pub fn flags(&self) -> u16 {
        self.queue().flags.get()
    }

    pub(crate) fn set_flag(&self, flag: u16) {
        self.queue().flags.set(self.flags() | flag);
    }

    pub(crate) fn clear_flag(&self, flag: u16) {
        self.queue().flags.set(self.flags() & !flag);
    }

    /// Largest packet that the module takes, in octets.
    pub fn max_packet(&self) -> u32 {
        self.queue().max_packet.get()
    }

    /// Smallest packet that the module takes, in octets.
    pub fn min_packet(&self) -> u32 {
        self.queue().min_packet.get()
    }

    /// The marks of the queue: high and low water, in octets.
    pub fn marks(&self) -> (u32, u32) {
        (self.queue().hiwat.get(), self.queue().lowat.get())
    }

    /// Sets the marks (`strqset`).
    pub fn set_marks(&self, hiwat: Option<u32>, lowat: Option<u32>) {
        let queue = self.queue();
        queue.hiwat.set(hiwat.unwrap_or(queue.hiwat.get()));
        queue.lowat.set(lowat.unwrap_or(queue.lowat.get()));
    }

    /// Sets the sizes of packets (`strqset`).
    pub fn set_packets(&self, min: Option<u32>, max: Option<u32>) {
        let queue = self.queue();
        queue.min_packet.set(min.unwrap_or(queue.min_packet.get()));
        queue.max_packet.set(max.unwrap_or(queue.max_packet.get()));
    }
}

impl Queue {
    fn set_marks(&self, info: &ModuleInfo) {
        self.min_packet.set(info.min_packet);
        self.max_packet.set(info.max_packet);
        self.hiwat.set(info.hiwat);
        self.lowat.set(info.lowat);
    }
}

impl fmt::Debug for Q {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.module().info().name;
        write!(
            f,
            "{name}.{:?}({} octets, {:#x})",
            self.side,
            self.queue().count.get(),
            self.flags()
        )
    }
}
