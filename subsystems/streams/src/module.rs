//! Traits of modules and drivers: `module_info`, `qinit` and `streamtab` as traits.

use crate::block::Mblk;
use crate::errno::Errno;
use crate::queue::Q;
use alloc::rc::Rc;
use alloc::string::String;
use core::any::Any;
use xk_core::object::ProtocolId;
use xk_core::{Answer, Ask, Kernel, ProtocolRef};

/// Longest name of a module (FMNAMESZ).
pub const NAME_MAX: usize = 8;
/// A packet may be of any size (`INFPSZ`).
pub const INFINITE: u32 = u32::MAX;

/// Name and marks of a module (`module_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Number of the module.
    pub id: u16,
    /// Name, of at most [`NAME_MAX`] octets.
    pub name: &'static str,
    /// Smallest packet that it takes, in octets.
    pub min_packet: u32,
    /// Largest packet that it takes, in octets, or [`INFINITE`].
    pub max_packet: u32,
    /// A queue is full when it holds so many octets.
    pub hiwat: u32,
    /// A full queue is no longer full for those that wait when it holds fewer octets.
    pub lowat: u32,
}

impl ModuleInfo {
    /// The usual marks.
    pub const fn new(id: u16, name: &'static str) -> Self {
        Self { id, name, min_packet: 0, max_packet: INFINITE, hiwat: 65_536, lowat: 16_384 }
    }

    /// With these marks.
    #[must_use]
    pub const fn marks(mut self, hiwat: u32, lowat: u32) -> Self {
        self.hiwat = hiwat;
        self.lowat = lowat;
        self
    }
}

/// Queues of a pair that have a service procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// The read queue.
    pub read: bool,
    /// The write queue.
    pub write: bool,
}

/// One open module or driver: the procedures of both queues of a pair (`qinit`), and what `q_ptr`
/// refers to.
///
/// A put procedure runs on the caller's shepherd, within the put procedure of its neighbour: it
/// passes the message on ([`Q::putnext`]), queues it ([`Q::putq`]), sends something back
/// ([`Q::qreply`]) or drops it. A service procedure is run by the scheduler after its queue was
/// enabled, and empties the queue ([`Q::getq`]) as far as the queue ahead lets it
/// ([`Q::canputnext`]). Neither may wait.
pub trait Module {
    /// Name and marks.
    fn info(&self) -> ModuleInfo;

    /// Queues that have a service procedure; asked once, when the module is placed.
    fn services(&self) -> Services {
        Services::default()
    }

    /// Takes a message on its way up; `q` is its read queue. The default passes it on.
    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        q.putnext(cx, mp);
    }

    /// Takes a message on its way down; `q` is its write queue. The default passes it on.
    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        q.putnext(cx, mp);
    }

    /// Serves its read queue.
    fn rsrv(&self, cx: &Kernel, q: &Q) {
        q.serve_through(cx);
    }

    /// Serves its write queue.
    fn wsrv(&self, cx: &Kernel, q: &Q) {
        q.serve_through(cx);
    }

    /// A timer of [`Q::timeout`] went off, with what it was set with.
    fn timer(&self, cx: &Kernel, q: &Q, arg: u64) {
        let _ = (cx, q, arg);
    }

    /// The stream is opened once more; `q` is its read queue.
    ///
    /// # Errors
    /// Why not.
    fn reopen(&self, cx: &Kernel, q: &Q) -> Result<(), Errno> {
        let _ = (cx, q);
        Ok(())
    }

    /// The stream is closed, or the module popped; `q` is its read queue. What is queued is freed
    /// after it.
    fn close(&self, cx: &Kernel, q: &Q) {
        let _ = (cx, q);
    }

    /// Counters in words, for those that look at the modules of a running host.
    fn counted(&self) -> Option<String> {
        None
    }

    /// The module as its own type.
    fn any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Options for opening a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Pushed as a module on a stream, not opened as a driver (MODOPEN).
    pub is_module: bool,
    /// Opened to be linked below a multiplexor, or for another subsystem: no user holds it.
    pub is_internal: bool,
    /// The protocol of the graph that it is opened for, if one is: what the driver hands it is
    /// selected by that one's number ([`Kernel::type_number`]).
    pub upper: Option<ProtocolId>,
}

/// A driver or module that streams can be opened on or that can be pushed (`streamtab`).
pub trait Streamtab {
    /// Name and marks.
    fn info(&self) -> ModuleInfo;

    /// Makes the state of one more stream; `q` is the read queue of its pair, which is linked
    /// already: the stream is open when this returns.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&self, cx: &Kernel, q: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno>;

    /// The procedures of the queue pair of a stream that is linked below it (`st_muxrinit`,
    /// `st_muxwinit`); `None` for what is no multiplexor.
    fn lower(&self) -> Option<Rc<dyn Module>> {
        None
    }

    /// Tells it that it is a line of a graph, with its node: for its counters, its numbers, its
    /// name.
    fn placed(&self, node: &ProtocolRef) {
        let _ = node;
    }

    /// Answers a question to its node; `None` passes it on to the protocol below.
    fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let _ = (cx, ask);
        None
    }

    /// The graph is taken down: it releases sessions, streams and protocols.
    fn stop(&self, cx: &Kernel) {
        let _ = cx;
    }
}

/// Stands in a pair until its own module is opened, and after it was closed: frees what comes.
pub(crate) struct Absent;

impl Module for Absent {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(0, "")
    }

    fn rput(&self, _: &Kernel, q: &Q, mp: Mblk) {
        q.core().count_loss(mp);
    }

    fn wput(&self, _: &Kernel, q: &Q, mp: Mblk) {
        q.core().count_loss(mp);
    }

    fn rsrv(&self, _: &Kernel, _: &Q) {}

    fn wsrv(&self, _: &Kernel, _: &Q) {}
}
