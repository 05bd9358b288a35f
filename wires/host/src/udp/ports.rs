//! The sockets: one for each local port in use.

use core::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use xk_core::object::OpenError;
use xk_core::wire::Sleeper;
use xk_core::{Message, ProtocolRef};
use xk_kit::wire::device::DEVICE_FULL;

use crate::batch_unsafe::Batch;
use crate::outbox::{COALESCED_MAX, Flushed, Outbox, Outgoing};
use crate::socket::{Setup, Socket};

/// With no more sockets than this each is asked at every look; with more, first which have
/// something.
const ASKED_EACH: usize = 4;
/// Sockets that one look serves, of many.
const READY_MAX: usize = 16;

/// One local port.
pub(crate) struct Port {
    pub(crate) number: u16,
    /// Closed with the last user, though closed sessions may still name the port.
    socket: RefCell<Option<Socket>>,
    outbox: RefCell<Outbox>,
    /// Sessions and enables on it.
    users: Cell<usize>,
    /// True if it is among the ports to be flushed.
    waits: Cell<bool>,
    /// True if its socket took no more at the last flush.
    blocked: Cell<bool>,
    /// `epoll` knows its socket.
    is_watched: Cell<bool>,
}

impl Port {
    /// Shows its socket, while it has one.
    pub(crate) fn with_socket<R>(&self, see: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.socket.borrow().as_ref().map(see)
    }

    fn close(&self) {
        self.outbox.borrow_mut().clear();
        drop(self.socket.take());
    }
}

/// All local ports in use.
pub(crate) struct Ports {
    /// Our host; unspecified for every one.
    pub(crate) host: Ipv4Addr,
    setup: Setup,
    max: usize,
    list: RefCell<Vec<Rc<Port>>>,
    /// Becomes readable when one of many sockets has something, or one that was full takes
    /// something.
    epoll: OwnedFd,
    /// There were once so many that `epoll` watches them all.
    are_many: Cell<bool>,
    waiting: RefCell<Vec<Rc<Port>>>,
    batch: RefCell<Batch>,
    /// Buffer of the events of the next look at many sockets.
    events: RefCell<Vec<Event>>,
}

impl Ports {
    pub(crate) fn new(host: Ipv4Addr, setup: Setup, max: usize) -> io::Result<Self> {
        Ok(Self {
            host,
            setup,
            max,
            list: RefCell::default(),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            are_many: Cell::new(false),
            waiting: RefCell::default(),
            batch: RefCell::new(Batch::new()),
            events: RefCell::new(Vec::with_capacity(READY_MAX)),
        })
    }

    /// The descriptor to sleep on.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Number of ports.
    pub(crate) fn len(&self) -> usize {
        self.list.borrow().len()
    }

    /// The port with this number, one user more; 0 for a new one of the system's choice.
    ///
    /// # Errors
    /// [`OpenError`]: another process's, too many, or not permitted.
    pub(crate) fn hold(&self, number: u16) -> Result<Rc<Port>, OpenError> {
        let known = self.list.borrow().iter().find(|p| p.number == number).cloned();
        if let Some(port) = known {
            port.users.set(port.users.get() + 1);
            return Ok(port);
        }
        if self.len() >= self.max {
            return Err(OpenError::Full);
        }
        let local = SocketAddr::V4(SocketAddrV4::new(self.host, number));
        let open = || -> io::Result<Port> {
            let socket = Socket::bind(local, self.setup)?;
            let number = socket.local()?.port();
            Ok(Port {
                number,
                socket: RefCell::new(Some(socket)),
                outbox: RefCell::new(Outbox::new(&[])),
                users: Cell::new(1),
                waits: Cell::new(false),
                blocked: Cell::new(false),
                is_watched: Cell::new(false),
            })
        };
        let port = Rc::new(open().map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => OpenError::InUse,
            io::ErrorKind::PermissionDenied => OpenError::NotSupported,
            _ => OpenError::Full,
        })?);
        self.list.borrow_mut().push(Rc::clone(&port));
        if self.len() > ASKED_EACH && !self.are_many.replace(true) {
            for port in &*self.list.borrow() {
                port.with_socket(|socket| self.watch(port, socket));
            }
        } else if self.are_many.get() {
            port.with_socket(|socket| self.watch(&port, socket));
        }
        Ok(port)
    }

    /// Has `epoll` tell of a socket what it is to tell: of few sockets not what they receive, since
    /// each set that watches a socket costs every message, whichever way it goes.
    fn watch(&self, port: &Port, socket: &Socket) {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, self.are_many.get());
        wanted.set(EventFlags::OUT, port.blocked.get());
        let data = EventData::new_u64(port.number.into());
        let was_watched = port.is_watched.replace(!wanted.is_empty());
        // If it fails the next sleep is short all the same.
        let _ = match (was_watched, wanted.is_empty()) {
            (false, true) => Ok(()),
            (false, false) => epoll::add(&self.epoll, socket.fd(), data, wanted),
            (true, false) => epoll::modify(&self.epoll, socket.fd(), data, wanted),
            (true, true) => epoll::delete(&self.epoll, socket.fd()),
        };
    }

    /// Has a sleep end when one of few sockets has something.
    pub(crate) fn rest(&self, sleeper: &dyn Sleeper) {
        if !self.are_many.get() {
            for port in &*self.list.borrow() {
                port.with_socket(|socket| sleeper.until_readable(socket.fd()));
            }
        }
    }

    /// The only socket, if it can wait for an arrival for at most `limit`.
    pub(crate) fn waits(&self, limit: Duration) -> Option<Rc<Port>> {
        let list = self.list.borrow();
        let [port] = &**list else { return None };
        let waits = port.with_socket(|socket| socket.wait_at_most(limit))?;
        (waits && !port.blocked.get()).then(|| Rc::clone(port))
    }

    /// One user less; without any the socket closes, its last words said.
    pub(crate) fn release(&self, port: &Rc<Port>, this: Option<&ProtocolRef>) {
        let left = port.users.get().saturating_sub(1);
        port.users.set(left);
        if left > 0 {
            return;
        }
        if let Some(this) = this {
            self.flush_port(port, this);
            this.head().drops().add(&DEVICE_FULL, port.outbox.borrow().len() as u64);
        }
        port.close();
        let others = |other: &Rc<Port>| !Rc::ptr_eq(other, port);
        self.list.borrow_mut().retain(others);
        self.waiting.borrow_mut().retain(others);
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        for port in self.list.take() {
            port.close();
        }
        drop(self.waiting.take());
    }

    /// Shows those that may have something to `each`.
    pub(crate) fn look(&self, mut each: impl FnMut(&Rc<Port>)) {
        let list = self.list.borrow();
        if list.len() <= ASKED_EACH {
            for port in &*list {
                each(port);
            }
            return;
        }
        let mut events = self.events.borrow_mut();
        events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut *events);
        // An interrupted look finds nothing; the next one does.
        if epoll::wait(&self.epoll, room, Some(&now)).is_err() {
            return;
        }
        for event in &*events {
            let number = event.data.u64();
            if let Some(port) = list.iter().find(|port| u64::from(port.number) == number) {
                each(port);
            }
        }
    }

    /// Puts a datagram behind those that wait on a port.
    ///
    /// # Errors
    /// The datagram, if the bound is reached.
    pub(crate) fn send(
        &self,
        port: &Rc<Port>,
        outgoing: Outgoing,
        this: impl FnOnce() -> Option<ProtocolRef>,
    ) -> Result<(), Message> {
        port.outbox.borrow_mut().push(outgoing)?;
        if !port.waits.replace(true) {
            self.waiting.borrow_mut().push(Rc::clone(port));
        }
        let waiting = port.outbox.borrow().len();
        if waiting >= COALESCED_MAX
            && !port.blocked.get()
            && let Some(this) = this()
        {
            self.flush_port(port, &this);
        }
        Ok(())
    }

    /// Hands over what waits on all ports.
    pub(crate) fn flush(&self, this: &ProtocolRef) {
        let mut at = 0;
        loop {
            let next = self.waiting.borrow().get(at).cloned();
            let Some(port) = next else { return };
            self.flush_port(&port, this);
            if port.blocked.get() {
                at += 1;
            } else {
                port.waits.set(false);
                self.waiting.borrow_mut().swap_remove(at);
            }
        }
    }

    fn flush_port(&self, port: &Port, this: &ProtocolRef) {
        let mut outbox = port.outbox.borrow_mut();
        if outbox.is_empty() {
            return;
        }
        let batch = &mut *self.batch.borrow_mut();
        let count = |_: &Outgoing, why| this.head().drops().count(why);
        port.with_socket(|socket| {
            let blocked = outbox.flush(socket, batch, count) == Flushed::Blocked;
            if port.blocked.replace(blocked) == blocked {
                return;
            }
            self.watch(port, socket);
        });
    }
}
