//! Shared parts of multiplexors over one stream: their driver, and the streams of their users.

use super::Below;
use crate::errno::Errno;
use crate::module::{Module, ModuleInfo, Opening, Streamtab};
use crate::queue::{Q, WeakQ};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::{Answer, Ask, Kernel, ProtocolRef, Reason};

/// Shared state of each; `U` is its state of a user.
pub struct Mux<U> {
    /// Node of the line, at which drops are counted.
    node: RefCell<Option<ProtocolRef>>,
    /// The stream below.
    pub below: Below,
    /// Users of the multiplexor.
    pub users: Users<U>,
}

impl<U> Default for Mux<U> {
    fn default() -> Self {
        Self { node: RefCell::default(), below: Below::default(), users: Users::default() }
    }
}

impl<U> Mux<U> {
    /// Counts a drop at the node.
    pub fn count(&self, reason: &'static Reason) {
        if let Some(node) = &*self.node.borrow() {
            node.head().drops().count(reason);
        }
    }

    /// The number here of the line that a stream is opened for, if it is for one.
    pub fn number_of(&self, cx: &Kernel, opening: Opening) -> Option<u32> {
        let node = self.node.borrow().as_ref().map(ProtocolRef::id);
        cx.type_number(opening.upper?, node?)
    }
}

/// A multiplexor over one stream: what is its own.
pub trait Multiplexor: Sized + 'static {
    /// State of a user.
    type User;

    /// Name and marks.
    const INFO: ModuleInfo;

    /// The shared state.
    fn mux(&self) -> &Mux<Self::User>;

    /// The pair of one more stream.
    fn opened(this: &Rc<Self>, cx: &Kernel, q: &Q, opening: Opening) -> Rc<dyn Module>;

    /// The pair that the stream below has for a head.
    fn lower(this: &Rc<Self>) -> Rc<dyn Module>;

    /// As [`Streamtab::control`].
    fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let _ = (cx, ask);
        None
    }

    /// The graph is taken down.
    fn stop(&self) {}

    /// Counts a drop at the node.
    fn count(&self, reason: &'static Reason) {
        self.mux().count(reason);
    }
}

/// The driver of a multiplexor.
pub struct Driver<P>(Rc<P>);

impl<P: Multiplexor> Driver<P> {
    /// Makes a driver of this multiplexor.
    pub fn new(mux: P) -> Rc<Self> {
        Rc::new(Self(Rc::new(mux)))
    }
}

impl<P: Multiplexor> Streamtab for Driver<P> {
    fn info(&self) -> ModuleInfo {
        P::INFO
    }

    fn open(&self, cx: &Kernel, q: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno> {
        Ok(P::opened(&self.0, cx, q, opening))
    }

    fn lower(&self) -> Option<Rc<dyn Module>> {
        Some(P::lower(&self.0))
    }

    fn placed(&self, node: &ProtocolRef) {
        self.0.mux().node.replace(Some(node.clone()));
    }

    fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        self.0.control(cx, ask)
    }

    fn stop(&self, _: &Kernel) {
        let node = self.0.mux().node.take();
        drop(node);
        self.0.stop();
    }
}

struct User<U> {
    id: usize,
    q: WeakQ,
    own: U,
}

/// The streams of users.
pub struct Users<U>(RefCell<Vec<User<U>>>);

impl<U> Default for Users<U> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<U> Users<U> {
    /// One more; `q` is the read queue of its pair.
    pub fn open(&self, q: &Q, own: U) {
        self.0.borrow_mut().push(User { id: q.id(), q: q.downgrade(), own });
    }

    /// Forgets the user of a stream that is gone.
    pub fn close(&self, q: &Q) {
        self.0.borrow_mut().retain(|user| user.id != q.id());
    }

    /// Runs `act` on the state of this stream's user.
    pub fn with<T>(&self, q: &Q, act: impl FnOnce(&mut U) -> T) -> Option<T> {
        self.0.borrow_mut().iter_mut().find(|user| user.id == q.id()).map(|user| act(&mut user.own))
    }

    /// Whether this is true of one.
    pub fn any(&self, is: impl Fn(&U) -> bool) -> bool {
        self.0.borrow().iter().any(|user| is(&user.own))
    }

    /// Returns the first result of `pick` on the users, and that user's read queue.
    pub fn pick<T>(&self, pick: impl Fn(&U) -> Option<T>) -> Option<(Option<Q>, T)> {
        let all = self.0.borrow();
        all.iter().find_map(|user| pick(&user.own).map(|picked| (user.q.upgrade(), picked)))
    }

    /// The read queue of the first of which this is true.
    pub fn find(&self, is: impl Fn(&U) -> bool) -> Option<Q> {
        self.pick(|own| is(own).then_some(()))?.0
    }

    /// The read queue with this number ([`Q::id`]).
    pub fn of_id(&self, id: usize) -> Option<Q> {
        self.0.borrow().iter().find(|user| user.id == id)?.q.upgrade()
    }

    /// There is room below again: the write queues are enabled.
    pub fn enable(&self, cx: &Kernel) {
        let queues: Vec<Q> = self.0.borrow().iter().filter_map(|user| user.q.upgrade()).collect();
        for q in queues {
            q.write_side().qenable(cx);
        }
    }
}
