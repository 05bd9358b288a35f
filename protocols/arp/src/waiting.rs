//! Messages that wait for an address: a bounded queue for each session, and a bound for all
//! together.

use crate::session::Path;
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use xk_core::Message;

/// The queue of one session: messages and their numbers, the oldest first.
#[derive(Default)]
pub(crate) struct Queue(RefCell<VecDeque<(u64, Message)>>);

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pop(&self) -> Option<Message> {
        self.0.borrow_mut().pop_front().map(|(_, message)| message)
    }

    fn oldest(&self) -> Option<u64> {
        self.0.borrow().front().map(|(number, _)| *number)
    }
}

/// All queues together.
pub(crate) struct Waiting {
    max: usize,
    count: Cell<usize>,
    number_last: Cell<u64>,
    /// Messages by age, and whose they are. Those that are gone by now are passed over.
    order: RefCell<VecDeque<(u64, Weak<Path>)>>,
}

impl Waiting {
    /// For at most `max` messages.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, count: Cell::new(0), number_last: Cell::new(0), order: RefCell::default() }
    }

    /// Puts a message behind those of its session, of which at most `queue_max` wait. Answers the
    /// message that gives way, if one does: the session's oldest, else the oldest of all (RFC 1122,
    /// section 2.3.2.2: the youngest are kept).
    pub(crate) fn put(
        &self,
        path: &Rc<Path>,
        message: Message,
        queue_max: usize,
    ) -> Option<Message> {
        let surplus = if path.waiting.len() >= queue_max {
            self.took(path.waiting.pop())
        } else if self.count.get() >= self.max {
            self.took(self.pop_oldest())
        } else {
            None
        };
        let number = self.number_last.get() + 1;
        self.number_last.set(number);
        path.waiting.0.borrow_mut().push_back((number, message));
        self.count.set(self.count.get() + 1);
        let mut order = self.order.borrow_mut();
        order.push_back((number, Rc::downgrade(path)));
        if order.len() > 2 * self.max {
            order.retain(|(number, path)| {
                let oldest = path.upgrade().and_then(|path| path.waiting.oldest());
                oldest.is_some_and(|oldest| oldest <= *number)
            });
        }
        surplus
    }

    fn took(&self, message: Option<Message>) -> Option<Message> {
        let left = self.count.get().saturating_sub(usize::from(message.is_some()));
        self.count.set(left);
        message
    }

    fn pop_oldest(&self) -> Option<Message> {
        loop {
            let (number, path) = self.order.borrow_mut().pop_front()?;
            let path = path.upgrade().filter(|p| p.waiting.oldest() == Some(number));
            if let Some(path) = path {
                return path.waiting.pop();
            }
        }
    }

    /// Takes all messages of a session.
    pub(crate) fn take(&self, path: &Path) -> impl Iterator<Item = Message> + use<> {
        let messages = path.waiting.0.take();
        self.count.set(self.count.get().saturating_sub(messages.len()));
        messages.into_iter().map(|(_, message)| message)
    }
}
