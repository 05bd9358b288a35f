//! Listening: peers that have connected wait here to be accepted.

use super::ports::Transport;
use super::stream::{Stream, reads_by_hand};
use super::{Body, Layer, Socket, ends};
use crate::error;
use crate::ready::Ready;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::rc::Rc;
use xk_core::object::Enable;
use xk_core::{
    Kernel, Part, Participant, Participants, ProtocolRef, Reason, SessionRef, Upper, reason,
};

/// The first ephemeral port (RFC 6335, section 6); the last is 65535.
const EPHEMERAL_FIRST: u16 = 49_152;
/// How many ephemeral ports there are.
const EPHEMERAL_COUNT: u16 = 16_384;

/// One who listens.
pub(crate) struct Listener {
    pub(crate) local: SocketAddrV4,
    enable: Cell<Option<Enable>>,
    backlog: usize,
    waiting: RefCell<VecDeque<Rc<Socket>>>,
}

impl Listener {
    pub(super) fn forget(&self) {
        drop(self.waiting.take());
    }

    /// Who has waited longest.
    ///
    /// # Errors
    /// `EAGAIN` if nobody waits.
    pub(crate) fn accept(&self, socket: &Socket) -> Result<Rc<Socket>, Errno> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.pop_front();
        if waiting.is_empty() {
            socket.status.lower(Ready::READABLE);
        }
        first.ok_or(Errno::AGAIN)
    }
}

impl Layer {
    /// Listens at `local`; at a free port if that is zero.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn listen(
        &self,
        cx: &Kernel,
        local: SocketAddrV4,
        backlog: usize,
    ) -> Result<Rc<Socket>, Errno> {
        let (tcp, this) = (self.tcp()?, self.this()?);
        self.check_local(cx, &tcp, *local.ip())?;
        let (local, enable) = match local.port() {
            0 => self.enable_any(cx, &tcp, &this, local)?,
            _ => (local, self.enable(cx, &tcp, &this, local)?),
        };
        let added = self.add(Body::Listener(Listener {
            local,
            enable: Cell::new(Some(enable)),
            backlog: backlog.max(1),
            waiting: RefCell::default(),
        }));
        match added {
            Ok(socket) => {
                self.listeners
                    .borrow_mut()
                    .insert(local, Rc::clone(&socket));
                Ok(socket)
            }
            Err(error) => {
                tcp.open_disable(cx, enable);
                self.ports.unbind(Transport::Tcp, local);
                Err(error)
            }
        }
    }

    fn enable(
        &self,
        cx: &Kernel,
        tcp: &ProtocolRef,
        this: &ProtocolRef,
        local: SocketAddrV4,
    ) -> Result<Enable, Errno> {
        self.ports.bind(Transport::Tcp, local)?;
        let port = Part::port(local.port());
        let offer = match local.ip().is_unspecified() {
            true => Participant::of(port),
            false => Participant::of(Part::Host(*local.ip())).with(port),
        };
        let enabled = tcp.open_enable(cx, Upper::new(this), Participants::local(offer));
        enabled.map_err(|error| {
            self.ports.unbind(Transport::Tcp, local);
            error::of_open(error, true)
        })
    }

    /// The same at a free port, from a random one on (RFC 6056, section 3.3.1).
    fn enable_any(
        &self,
        cx: &Kernel,
        tcp: &ProtocolRef,
        this: &ProtocolRef,
        local: SocketAddrV4,
    ) -> Result<(SocketAddrV4, Enable), Errno> {
        let start = cx.random().below(u64::from(EPHEMERAL_COUNT)) as u16;
        for n in 0..EPHEMERAL_COUNT {
            let port = EPHEMERAL_FIRST + (start + n) % EPHEMERAL_COUNT;
            let local = SocketAddrV4::new(*local.ip(), port);
            match self.enable(cx, tcp, this, local) {
                Ok(enable) => return Ok((local, enable)),
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// A peer has connected.
    pub(super) fn arrive(&self, cx: &Kernel, session: &SessionRef) -> Result<(), &'static Reason> {
        let (local, _) = ends(cx, session);
        let any = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, local.port());
        let listeners = self.listeners.borrow();
        let found = listeners.get(&local).or_else(|| listeners.get(&any));
        let Some(socket) = found.map(Rc::clone) else {
            return Err(&reason::NO_PORT);
        };
        drop(listeners);
        let Body::Listener(listener) = &socket.body else {
            return Err(&reason::NO_PORT);
        };
        if listener.waiting.borrow().len() >= listener.backlog {
            return Err(&reason::QUEUE_FULL);
        }
        let stream = Stream::accepted(cx, session);
        let Ok(accepted) = self.add(Body::Stream(stream)) else {
            return Err(&reason::TABLE_FULL);
        };
        session.hold();
        session.head().set_tag(accepted.tag());
        reads_by_hand(cx, session);
        accepted.status.raise(Ready::WRITABLE | Ready::SETTLED);
        listener.waiting.borrow_mut().push_back(accepted);
        socket.status.raise(Ready::READABLE);
        Ok(())
    }

    /// Listens no longer; whoever waits is turned away (RFC 9293, section 3.10.4).
    pub(super) fn close_listener(&self, cx: &Kernel, listener: &Listener) {
        if let (Some(enable), Ok(tcp)) = (listener.enable.take(), self.tcp()) {
            tcp.open_disable(cx, enable);
            self.ports.unbind(Transport::Tcp, listener.local);
            self.listeners.borrow_mut().remove(&listener.local);
        }
        for socket in listener.waiting.take() {
            if let Body::Stream(stream) = &socket.body {
                stream.abort(cx);
            }
            self.close(cx, &socket);
        }
    }
}
