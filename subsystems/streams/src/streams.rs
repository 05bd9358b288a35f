//! The subsystem of one kernel: drivers and modules by name, streams, and links below multiplexors.

use crate::block::{Blocks, BlocksConfig};
use crate::errno::Errno;
use crate::head::Stream;
use crate::link::Links;
use crate::module::{Module, Opening, Streamtab};
use crate::queue::{Figures, Q, Side};
use crate::scheduler::{Core, Counts};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;
use xk_core::object::ProtocolId;

/// Bounds of the subsystem.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Data blocks at one time.
    pub blocks_max: usize,
    /// Octets of data blocks at one time.
    pub octets_max: usize,
    /// Streams at one time.
    pub streams_max: usize,
    /// Modules that may be pushed on one stream (`nstrpush`).
    pub push_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { blocks_max: 16_384, octets_max: 16 << 20, streams_max: 1024, push_max: 9 }
    }
}

/// One end of the subsystem: a stream with a head, or the queue pair of another subsystem's.
pub(crate) struct Top {
    /// The read queue of the topmost pair.
    pub(crate) q: Q,
    /// The driver that it was opened on.
    pub(crate) driver: Rc<dyn Streamtab>,
    /// The head, if it has one and a user.
    pub(crate) stream: Option<Rc<Stream>>,
    /// The multiplexor that it is linked below.
    pub(crate) link: Cell<Option<u32>>,
}

/// The subsystem of one kernel; [`Streams::of`] finds it.
pub struct Streams {
    pub(crate) core: Rc<Core>,
    pub(crate) bounds: Bounds,
    drivers: RefCell<BTreeMap<String, Rc<dyn Streamtab>>>,
    modules: RefCell<BTreeMap<String, Rc<dyn Streamtab>>>,
    /// The modules that each stream opened on a line gets, by line, the lowest first.
    pub(crate) autopush: RefCell<BTreeMap<String, Vec<String>>>,
    pub(crate) lines: RefCell<BTreeMap<ProtocolId, Rc<dyn Streamtab>>>,
    pub(crate) tops: RefCell<Vec<Rc<Top>>>,
    pub(crate) links: Links,
    opens: Cell<u64>,
    tokens: Cell<u32>,
}

impl Streams {
    /// A subsystem that takes its buffers from the kernel's pool. Its timers and service procedures
    /// need a protocol of the kernel: see [`add`](crate::add), which makes both.
    pub fn new(cx: &Kernel, bounds: Bounds) -> Rc<Self> {
        let Bounds { blocks_max, octets_max, .. } = bounds;
        let blocks = Blocks::new(cx.pool(), BlocksConfig { blocks_max, octets_max });
        Rc::new(Self {
            core: Rc::new(Core::new(blocks)),
            bounds,
            drivers: RefCell::default(),
            modules: RefCell::default(),
            autopush: RefCell::default(),
            lines: RefCell::default(),
            tops: RefCell::default(),
            links: Links::default(),
            opens: Cell::new(0),
            tokens: Cell::new(0),
        })
    }

    /// The subsystem of this kernel, if it has one.
    pub fn of(cx: &Kernel) -> Option<Rc<Self>> {
        cx.surroundings::<Self>()
    }

    /// The source of blocks.
    pub fn blocks(&self) -> &Blocks {
        &self.core.blocks
    }

    pub(crate) fn next_token(&self) -> u32 {
        self.tokens.set(self.tokens.get().wrapping_add(1));
        self.tokens.get()
    }

    /// The open stream with this number ([`Stream::token`]).
    pub fn stream_of(&self, token: u32) -> Option<Rc<Stream>> {
        let tops = self.tops.borrow();
        let mut streams = tops.iter().filter_map(|top| top.stream.as_ref());
        streams.find(|stream| stream.token() == token && stream.is_open()).cloned()
    }

    /// The read queue of the driver's pair of the open stream with this number.
    pub fn driver_of(&self, token: u32) -> Option<Q> {
        let stream = self.stream_of(token)?;
        chain(&stream.head_q()).pop().map(|q| q.read_side())
    }

    /// Counters of the scheduler and the modules.
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }

    /// Counters of the write queues of a line's driver, of all streams that are open on it
    /// together; zeros if there is no such line.
    pub fn figures_of(&self, line: &str) -> Figures {
        let Some(driver) = self.driver(line) else { return Figures::default() };
        let mut sum = Figures::default();
        for top in self.tops.borrow().iter().filter(|top| is_same(&top.driver, &driver)) {
            let figures = chain(&top.q).last().map(Q::figures).unwrap_or_default();
            sum.services += figures.services;
            sum.blocked += figures.blocked;
            sum.back_enables += figures.back_enables;
            sum.octets_max = sum.octets_max.max(figures.octets_max);
        }
        sum
    }

    /// Streams opened so far, and those open.
    pub fn opens(&self) -> (u64, usize) {
        (self.opens.get(), self.tops.borrow().len())
    }

    /// Names a driver (`cdevsw`), in place of one of that name.
    pub fn add_driver(&self, name: &str, tab: Rc<dyn Streamtab>) {
        self.drivers.borrow_mut().insert(name.into(), tab);
    }

    /// Names a module that can be pushed (`fmodsw`), in place of one of that name.
    pub fn add_module(&self, name: &str, tab: Rc<dyn Streamtab>) {
        self.modules.borrow_mut().insert(name.into(), tab);
    }

    /// Registers a line of a graph: the driver or multiplexor of the protocol with this number, and
    /// under the name that it has in the graph.
    pub fn register(&self, id: ProtocolId, name: &str, tab: Rc<dyn Streamtab>) {
        self.lines.borrow_mut().insert(id, Rc::clone(&tab));
        self.add_driver(name, tab);
    }

    /// The driver or multiplexor of a protocol of the graph, if that is of this subsystem.
    pub fn line(&self, id: ProtocolId) -> Option<Rc<dyn Streamtab>> {
        self.lines.borrow().get(&id).cloned()
    }

    /// The driver of this name.
    pub fn driver(&self, name: &str) -> Option<Rc<dyn Streamtab>> {
        self.drivers.borrow().get(name).cloned()
    }

    /// The module of this name.
    pub fn module(&self, name: &str) -> Option<Rc<dyn Streamtab>> {
        self.modules.borrow().get(name).cloned()
    }

    /// The names of all modules that can be pushed.
    pub fn module_names(&self) -> Vec<String> {
        self.modules.borrow().keys().cloned().collect()
    }

    /// Opens a new stream on the driver of this name; it waits where it may.
    ///
    /// # Errors
    /// ENOENT without such a driver, ENOSR beyond the bound on streams, and what the driver says.
    pub fn open(self: &Rc<Self>, cx: &Kernel, name: &str) -> Result<Rc<Stream>, Errno> {
        let driver = self.driver(name).ok_or(Errno::ENOENT)?;
        self.open_on(cx, driver)
    }

    /// Opens a new stream on the line of a protocol of the graph.
    ///
    /// # Errors
    /// ENXIO if the protocol is not of this subsystem; otherwise as [`open`](Self::open).
    pub fn open_line(self: &Rc<Self>, cx: &Kernel, id: ProtocolId) -> Result<Rc<Stream>, Errno> {
        self.open_on(cx, self.line(id).ok_or(Errno::ENXIO)?)
    }

    /// Opens a new stream on this driver.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_on(
        self: &Rc<Self>,
        cx: &Kernel,
        driver: Rc<dyn Streamtab>,
    ) -> Result<Rc<Stream>, Errno> {
        let stream = Stream::new(self);
        let opening = Opening::default();
        self.build(cx, stream.head_q(), driver, Some(Rc::clone(&stream)), opening)?;
        Ok(stream)
    }

    /// Opens a stream on this driver for another subsystem: `top` has the place of the stream head,
    /// gets what comes up in its [`rput`](Module::rput), and sends by
    /// [`putnext`](Q::putnext) on the write queue that is answered. `upper` is the protocol of the
    /// graph whose number selects what comes up. [`detach`](Self::detach) closes it.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn attach(
        &self,
        cx: &Kernel,
        driver: Rc<dyn Streamtab>,
        upper: Option<ProtocolId>,
        top: Rc<dyn Module>,
    ) -> Result<Q, Errno> {
        let q = Q::pair(&self.core);
        drop(q.place(top));
        let opening = Opening { is_internal: true, upper, ..Opening::default() };
        self.build(cx, q.clone(), driver, None, opening)?;
        Ok(q.write_side())
    }

    /// As [`attach`](Self::attach), for one protocol of the graph on the line of another.
    ///
    /// # Errors
    /// ENXIO if the lower is not of this subsystem; otherwise as [`open`](Self::open).
    pub fn attach_line(
        &self,
        cx: &Kernel,
        upper: ProtocolId,
        lower: ProtocolId,
        top: Rc<dyn Module>,
    ) -> Result<Q, Errno> {
        self.attach(cx, self.line(lower).ok_or(Errno::ENXIO)?, Some(upper), top)
    }

    /// Closes what [`attach`](Self::attach) has opened.
    pub fn detach(&self, cx: &Kernel, q: &Q) {
        if let Some(top) = self.find_top(q) {
            self.close_top(cx, &top);
        }
    }

    /// Makes the driver's pair below a top, opens the driver, and notes the stream.
    pub(crate) fn build(
        &self,
        cx: &Kernel,
        top: Q,
        driver: Rc<dyn Streamtab>,
        stream: Option<Rc<Stream>>,
        opening: Opening,
    ) -> Result<(), Errno> {
        if self.tops.borrow().len() >= self.bounds.streams_max {
            return Err(Errno::ENOSR);
        }
        let below = Q::pair(&self.core);
        join(&top, &below);
        match driver.open(cx, &below, opening) {
            Ok(module) => drop(below.place(module)),
            Err(error) => {
                below.take_down();
                top.take_down();
                return Err(error);
            }
        }
        self.opens.set(self.opens.get() + 1);
        let top = Rc::new(Top { q: top, driver, stream, link: Cell::new(None) });
        self.tops.borrow_mut().push(Rc::clone(&top));
        let pushed = match self.autopush.borrow().is_empty() {
            true => return Ok(()),
            false => self.push_automatically(cx, &top),
        };
        if pushed.is_err() {
            self.close_top(cx, &top);
        }
        pushed
    }

    pub(crate) fn find_top(&self, q: &Q) -> Option<Rc<Top>> {
        self.tops.borrow().iter().find(|top| top.q.same_pair(q)).cloned()
    }

    /// Closes a stream: what is linked below it comes off, then the modules, top first, then the
    /// driver.
    pub(crate) fn close_top(&self, cx: &Kernel, top: &Rc<Top>) {
        self.unlink_all_of(cx, top);
        let known = self.tops.borrow().len();
        self.tops.borrow_mut().retain(|other| !Rc::ptr_eq(other, top));
        if self.tops.borrow().len() == known {
            return;
        }
        while let Some(below) = top.q.write_side().next() {
            below.module().close(cx, &below.read_side());
            remove(&below.read_side());
            below.take_down();
        }
        // What holds the place of the head is told as the others are.
        if top.stream.is_none() {
            top.q.module().close(cx, &top.q);
        }
        top.q.take_down();
    }

    /// Pushes the module of this name just below the top of a stream (`I_PUSH`).
    ///
    /// # Errors
    /// EINVAL without such a module or beyond `push_max`, and what the module says.
    pub(crate) fn push(&self, cx: &Kernel, top: &Q, name: &str) -> Result<(), Errno> {
        let tab = self.module(name).ok_or(Errno::EINVAL)?;
        if chain(top).len() > self.bounds.push_max {
            return Err(Errno::EINVAL);
        }
        let q = Q::pair(&self.core);
        insert(top, &q);
        match tab.open(cx, &q, Opening { is_module: true, ..Opening::default() }) {
            Ok(module) => drop(q.place(module)),
            Err(error) => {
                remove(&q);
                q.take_down();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Pops the topmost module of a stream (`I_POP`); what it has queued is freed, and queues that
    /// waited for its room are enabled.
    ///
    /// # Errors
    /// EINVAL if there is no module on it.
    pub(crate) fn pop(&self, cx: &Kernel, top: &Q) -> Result<(), Errno> {
        let modules = chain(top);
        let [first, _, ..] = modules.as_slice() else { return Err(Errno::EINVAL) };
        let q = first.read_side();
        q.module().close(cx, &q);
        let (above, below) = (top.write_side(), q.write_side().next());
        remove(&q);
        q.take_down();
        // What waited for room in the module that is gone looks again.
        above.qenable(cx);
        if let Some(below) = below {
            let read = below.read_side();
            read.qenable(cx);
            read.backenable(cx);
        }
        Ok(())
    }

    /// Runs the service procedures of enabled queues now; answers how many ran. The kernel's event
    /// does it otherwise, at once.
    pub fn run_queues(&self, cx: &Kernel) -> usize {
        self.core.run_queues(cx)
    }

    /// Closes all: the graph is taken down.
    pub(crate) fn stop(&self, cx: &Kernel) {
        loop {
            let top = self.tops.borrow().last().cloned();
            let Some(top) = top else { break };
            if let Some(stream) = &top.stream {
                stream.abandon(cx);
            }
            self.close_top(cx, &top);
        }
        self.core.stop();
        let gone = (self.drivers.take(), self.modules.take(), self.lines.take());
        drop(gone);
    }
}

/// Whether both are one driver.
pub(crate) fn is_same(one: &Rc<dyn Streamtab>, other: &Rc<dyn Streamtab>) -> bool {
    Rc::as_ptr(one).addr() == Rc::as_ptr(other).addr()
}

/// Puts the pair of `below` below that of `above`, which has none below.
fn join(above: &Q, below: &Q) {
    above.write_side().set_next(Some(below.write_side()));
    below.read_side().set_next(Some(above.read_side()));
}

/// Puts a pair just below `top`, in front of what is there.
fn insert(top: &Q, q: &Q) {
    let below = top.write_side().next();
    if let Some(below) = &below {
        below.read_side().set_next(Some(q.read_side()));
    }
    q.write_side().set_next(below);
    q.read_side().set_next(Some(top.read_side()));
    top.write_side().set_next(Some(q.write_side()));
}

/// Takes a pair out; its neighbours become each other's.
fn remove(q: &Q) {
    let (above, below) = (q.read_side().next(), q.write_side().next());
    if let Some(above) = &above {
        above.write_side().set_next(below.clone());
    }
    if let Some(below) = &below {
        below.read_side().set_next(above);
    }
}

/// The write queues below a top, down to the driver's.
pub(crate) fn chain(top: &Q) -> Vec<Q> {
    core::iter::successors(top.write_side().next(), |q| {
        debug_assert_eq!(q.side(), Side::Write);
        q.next()
    })
    .collect()
}
