//! A program of smoltcp's that the kernel's events turn.

use crate::instant;
use crate::port::{Device, Port, Turn};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use smoltcp::iface::{Interface, PollResult, SocketSet};
use xk_core::Kernel;
use xk_core::kernel::Timer;

/// Times that the program is asked in one turn at most, so that one that always has more to do
/// leaves time for others; the next turn comes at once.
const TURNS_MAX: usize = 64;

/// The device for `Interface::new`: a device in a kernel that is borrowed.
pub type Borrowed<'a> = Device<Lent<'a, Kernel>, &'a Port>;

/// A borrow that is [`AsRef`].
pub struct Lent<'a, T>(pub(crate) &'a T);

impl<T> AsRef<T> for Lent<'_, T> {
    fn as_ref(&self) -> &T {
        self.0
    }
}

type Program = dyn FnMut(&mut Interface, &mut SocketSet<'static>);

struct Inside {
    interface: Interface,
    sockets: SocketSet<'static>,
    program: Box<Program>,
}

/// An interface of smoltcp's, its sockets, and the program that uses them, in a kernel: they are
/// polled when something arrives and when smoltcp's timers are due. So they run under virtual time
/// as under the host's.
pub struct Station {
    port: Rc<Port>,
    inside: RefCell<Inside>,
    /// Something came while it had its turn.
    again: Cell<bool>,
    timer: Cell<Option<Timer>>,
}

impl Station {
    /// A station on `port`. `interface` makes the interface, with the addresses that it has, and
    /// the sockets; `program` is called after each look at the device, until it and smoltcp have
    /// nothing more to do.
    pub fn add(
        cx: &Kernel,
        port: Rc<Port>,
        interface: impl FnOnce(&mut Borrowed<'_>) -> (Interface, SocketSet<'static>),
        program: impl FnMut(&mut Interface, &mut SocketSet<'static>) + 'static,
    ) -> Rc<Self> {
        let (interface, sockets) = interface(&mut Device { cx: Lent(cx), port: &*port });
        let program = Box::new(program);
        let station = Rc::new(Self {
            inside: RefCell::new(Inside { interface, sockets, program }),
            port,
            again: Cell::new(false),
            timer: Cell::new(None),
        });
        station.port.set_turn(Rc::clone(&station) as _);
        station
    }

    /// The port that it stands on.
    pub fn port(&self) -> &Rc<Port> {
        &self.port
    }

    /// Lets `work` use the interface and the sockets, then gives them a turn. `None` within a turn
    /// of theirs.
    pub fn with<R>(
        &self,
        cx: &Kernel,
        work: impl FnOnce(&mut Interface, &mut SocketSet<'static>) -> R,
    ) -> Option<R> {
        let mut inside = self.inside.try_borrow_mut().ok()?;
        let Inside { interface, sockets, .. } = &mut *inside;
        let result = work(interface, sockets);
        drop(inside);
        self.turn(cx);
        Some(result)
    }

    /// Polls until there is nothing to do now; how long until there is.
    fn poll(&self, cx: &Kernel, inside: &mut Inside) -> Option<Duration> {
        let mut device = Device { cx: Lent(cx), port: &*self.port };
        let Inside { interface, sockets, program } = inside;
        let mut delay = None;
        for _ in 0..TURNS_MAX {
            self.again.set(false);
            let now = instant(cx.now());
            let polled = interface.poll(now, &mut device, sockets);
            program(interface, sockets);
            delay = interface.poll_delay(now, sockets).map(Duration::from);
            let is_due = delay == Some(Duration::ZERO) && self.port.is_open();
            let goes_on = polled == PollResult::SocketStateChanged || is_due;
            if !goes_on && !self.again.get() && self.port.waiting() == 0 {
                break;
            }
        }
        delay
    }
}

impl Turn for Station {
    fn turn(&self, cx: &Kernel) {
        let Ok(mut inside) = self.inside.try_borrow_mut() else {
            self.again.set(true);
            return;
        };
        let delay = self.poll(cx, &mut inside);
        drop(inside);
        cx.cancel(self.timer.take());
        // Not at once, or what comes at the same time would wait behind it without end.
        let delay = delay.map(|delay| delay.max(Duration::from_micros(1)));
        let protocol = self.port.protocol();
        self.timer.set(delay.and_then(|delay| cx.schedule_protocol(&protocol, delay, 0).ok()));
    }
}
