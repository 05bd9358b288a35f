//! The one thing a shepherd needs from outside: a stack of its own, and the
//! switch between stacks.

use alloc::boxed::Box;

/// Gives shepherds stacks, and moves control between them.
///
/// Three exist: coroutines and parked threads (crate `run`), and [`NoSwitch`].
/// A shepherd is named by its slot, a number below
/// [`Limits::shepherds_max`](super::Limits::shepherds_max); a slot is created
/// again only after its `main` returned or panicked. `resume` nests: a shepherd
/// may resume another one, which suspends to the shepherd that resumed it.
///
/// No implementation may touch a slot's `main` on two threads at once, nor, for
/// coroutines, move a slot to another thread than the one that created it.
pub trait Switch {
    /// Gives `slot` a stack of at least `stack_octets` octets, on which the
    /// first [`resume`](Switch::resume) will call `main`.
    fn create(
        &self,
        slot: u32,
        stack_octets: usize,
        main: Box<dyn FnOnce()>,
    ) -> Result<(), StackError>;

    /// Runs `slot` until it suspends or its `main` returns, after which the
    /// stack is given back. A panic of `main` goes on in the caller.
    fn resume(&self, slot: u32);

    /// Called on `slot` itself: goes back to the one that resumed it, and returns
    /// when it is resumed again.
    fn suspend(&self, slot: u32);

    /// Whether it has stacks to give. One that never has lets an executor spare the loop around
    /// what cannot wait.
    fn has_stacks(&self) -> bool {
        true
    }
}

/// Why a [`Switch`] gave no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    /// This switch has none to give, ever: see [`NoSwitch`].
    NoSwitch,
    /// The operating system refused memory, mappings or a thread.
    NoMemory,
}

/// The switch that cannot switch: the loop runs on its caller's stack, and a
/// wait that would block answers
/// [`WaitError::NotOnShepherd`](super::WaitError::NotOnShepherd).
///
/// For graphs that never block, and for tests without an executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSwitch;

impl Switch for NoSwitch {
    fn create(&self, _: u32, _: usize, _: Box<dyn FnOnce()>) -> Result<(), StackError> {
        Err(StackError::NoSwitch)
    }

    // Nothing was ever created, so neither of these two is ever called.
    fn resume(&self, _: u32) {}

    fn suspend(&self, _: u32) {}

    fn has_stacks(&self) -> bool {
        false
    }
}
