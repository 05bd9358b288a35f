//! Calls that wait to be made, and the options that go beside them.

use crate::edge::Edge;
use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::atp::Options;
use xk_core::{Kernel, Message};
use xk_kit::rpc::call::Transaction;

/// Work that waits: events of the adapter's node do it, one each, on shepherds of their own right.
pub(crate) struct Later<T> {
    queue: RefCell<VecDeque<T>>,
    is_armed: Cell<bool>,
}

impl<T> Default for Later<T> {
    fn default() -> Self {
        Self { queue: RefCell::default(), is_armed: Cell::new(false) }
    }
}

impl<T> Later<T> {
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    pub(crate) fn push(&self, cx: &Kernel, edge: &Edge, work: T) {
        self.queue.borrow_mut().push_back(work);
        self.arm(cx, edge);
    }

    /// Schedules the next event, unless one is: there may have been no timer for it before.
    pub(crate) fn arm(&self, cx: &Kernel, edge: &Edge) {
        let Ok(node) = edge.node() else { return };
        if self.len() > 0 && !self.is_armed.get() {
            self.is_armed.set(cx.schedule_protocol(&node, Duration::ZERO, 0).is_ok());
        }
    }

    /// Takes the first, as its event has come; the others follow by events of their own.
    pub(crate) fn next(&self, cx: &Kernel, edge: &Edge) -> Option<T> {
        self.is_armed.set(false);
        let first = self.queue.borrow_mut().pop_front();
        self.arm(cx, edge);
        first
    }

    pub(crate) fn retain(&self, is_kept: impl FnMut(&T) -> bool) {
        self.queue.borrow_mut().retain(is_kept);
    }

    pub(crate) fn clear(&self) {
        drop(self.queue.take());
    }
}

/// Takes the options of a transaction off a message.
pub(crate) fn take_options(message: &mut Message) -> Option<Options> {
    let Transaction(octets) = message.remove_attribute()?;
    Options::parse(&octets).ok()
}

/// Puts the options of a transaction on a message, where protocols that know of them find them.
pub(crate) fn set_options(message: &mut Message, options: &Options) {
    let _ = message.set_attribute(Transaction(options.emit()));
}
