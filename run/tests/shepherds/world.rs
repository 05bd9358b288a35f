//! A kernel in small: a queue of messages, each of which is a function.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use xk_core::shepherd::{Flow, Limits, RunError, Semaphore, Shepherds, Switch};

pub(crate) type NewSwitch<'a> = &'a dyn Fn() -> Box<dyn Switch>;
type Message = Box<dyn FnOnce(&World)>;

pub(crate) struct World {
    pub(crate) shepherds: Shepherds,
    pub(crate) semaphore: Semaphore,
    messages: RefCell<VecDeque<Message>>,
    log: RefCell<Vec<String>>,
}

impl World {
    pub(crate) fn new(switch: NewSwitch<'_>, shepherds_max: u32) -> Rc<World> {
        let limits = Limits { shepherds_max, stack_octets: 256 * 1024 };
        Rc::new(World {
            shepherds: Shepherds::new(switch(), limits),
            semaphore: Semaphore::new(0),
            messages: RefCell::default(),
            log: RefCell::default(),
        })
    }

    pub(crate) fn send(&self, message: impl FnOnce(&World) + 'static) {
        self.messages.borrow_mut().push_back(Box::new(message));
    }

    pub(crate) fn send_waiter(&self, name: &str) {
        let name = name.to_owned();
        self.send(move |world| {
            world.note(format!("{name} waits"));
            let waited = world.semaphore.wait(&world.shepherds);
            world.note(format!("{name} {waited:?}"));
        });
    }

    pub(crate) fn send_signal(&self) {
        self.send(|world| {
            world.semaphore.signal(&world.shepherds);
        });
    }

    /// Runs until no message is left and no shepherd is ready.
    pub(crate) fn run(self: &Rc<Self>) {
        assert_eq!(self.try_run(), Ok(()));
    }

    pub(crate) fn try_run(self: &Rc<Self>) -> Result<(), RunError> {
        let world = Rc::clone(self);
        self.shepherds.run(Rc::new(move || world.turn()))
    }

    fn turn(&self) -> Flow {
        let message = self.messages.borrow_mut().pop_front();
        match message {
            Some(message) => message(self),
            None if self.shepherds.has_ready() => {}
            // One that blocked on the way must not stop the loop for others.
            None if self.shepherds.on_loop() => return Flow::Stop,
            None => {}
        }
        Flow::Continue
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        self.log.borrow_mut().push(line.into());
    }

    #[track_caller]
    pub(crate) fn expect(&self, lines: &[&str]) {
        assert_eq!(*self.log.borrow(), lines);
        self.log.borrow_mut().clear();
    }
}
