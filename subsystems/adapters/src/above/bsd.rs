//! The upper half in BSD: an entry of the protocol switch that the protocol above stands on, which
//! sends by `pr_output` and asks by `pr_usrreq`.

mod connections;
mod datagrams;
mod users;

use crate::edge::{Above, Below, Door, Edge, Ends, Fault, Options, Sink, Unwanted};
use crate::form::{Addr, Form, Service};
use crate::parcel::Parcel;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, OnceCell, RefCell};
use users::Users;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::mbuf::M_BCAST;
use xk_bsd::{
    Bsd, InputArg, Mbuf, OutputArg, PR_FOREIGN, Prc, ProtoFns, Protosw, Pru, PruArgs, SIOCGIFMTU,
    SIOCGIFSRCADDR, Sockaddr, Socket, Switch,
};
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, ProtocolRef};

/// The half.
pub(crate) struct BsdAbove(Rc<Half>);

struct Half {
    bsd: Rc<Bsd>,
    edge: Rc<Edge>,
    form: &'static Form,
    below: Rc<dyn Below>,
    own: OnceCell<Rc<Protosw>>,
    door: RefCell<Option<Rc<dyn Door>>>,
    /// The number of the protocol above on the one below.
    number: Cell<u8>,
    /// A packet that the protocol above did not want, until its `pr_input` comes back.
    unwanted: RefCell<Option<(Mbuf, &'static Reason)>>,
    /// The programs that stand on it: the receivers of their sockets' messages.
    users: RefCell<Option<Rc<dyn Users>>>,
}

impl BsdAbove {
    pub(crate) fn new(bsd: &Rc<Bsd>, edge: &Rc<Edge>, below: &Rc<dyn Below>) -> Self {
        Self(Rc::new(Half {
            bsd: Rc::clone(bsd),
            edge: Rc::clone(edge),
            form: edge.form,
            below: Rc::clone(below),
            own: OnceCell::new(),
            door: RefCell::default(),
            number: Cell::new(0),
            unwanted: RefCell::default(),
            users: RefCell::default(),
        }))
    }
}

impl Above for BsdAbove {
    /// Registers the adapter's node in the protocol switch: the protocol above finds it there as
    /// its lower neighbour. On a wire the interface above opens that itself.
    fn placed(&self, cx: &Kernel, node: &ProtocolRef) -> Result {
        let half = &self.0;
        if half.form.service == Service::Frames {
            return Ok(());
        }
        let (pr_domain, pr_flags) = (half.form.family, PR_FOREIGN);
        let switch = Switch { pr_domain, pr_flags, ..Switch::default() };
        let own = half.bsd.register(cx, node.id(), switch, Rc::new(Entry(Rc::downgrade(half))))?;
        let _ = half.own.set(own);
        Ok(())
    }

    fn start(&self, cx: &Kernel, upper: &ProtocolRef) -> core::result::Result<(), Fault> {
        let half = &self.0;
        let Some(own) = half.own.get() else { return Ok(()) };
        if upper.head().kind() == xk_bsd::sockets::ENTRY.kind {
            let users = users::register(half, cx, (own.id(), upper.id()))?;
            drop(half.users.replace(Some(users)));
            return Ok(());
        }
        let uppers = own.uppers();
        let Some((number, _)) = uppers.into_iter().find(|(_, pr)| pr.id() == upper.id()) else {
            return Ok(());
        };
        half.number.set(number);
        let sink = Rc::new(Input(Rc::downgrade(half)));
        let door = half.below.open(cx, upper.id(), half.form.any(), sink)?;
        *half.door.borrow_mut() = Some(door);
        Ok(())
    }

    fn stop(&self, cx: &Kernel) {
        let door = self.0.door.take();
        if let Some(door) = door {
            door.close(cx);
        }
        let users = self.0.users.take();
        if let Some(users) = users {
            users.stop(cx);
        }
    }
}

/// Passes arrivals up by `pr_input`.
struct Input(Weak<Half>);

impl Sink for Input {
    fn arrive(
        &self,
        cx: &Kernel,
        ends: &Ends,
        parcel: Parcel,
    ) -> core::result::Result<(), Unwanted> {
        let half = self.0.upgrade().ok_or(&reason::CLOSED)?;
        let kind = half.number.get();
        let upper = half.own.get().and_then(|own| own.upper(kind)).ok_or(&reason::NO_PROTOCOL)?;
        let m = parcel.into_mbufs(half.bsd.mbufs(), &half.edge.up).map_err(Fault::reason)?;
        let mut m = m;
        if ends.is_for_many {
            m.set_flags(M_BCAST, 0);
        }
        let sockaddr = |addr: &Addr| addr.to_sockaddr(half.bsd.mbufs().release());
        let arg = InputArg::Addressed { from: sockaddr(&ends.from), to: sockaddr(&ends.to), kind };
        half.bsd.splnet(cx, || upper.pr_input(cx, m, arg));
        match half.unwanted.take() {
            Some((m, why)) => Err(Unwanted { why, parcel: Some(Parcel::Mbufs(m)) }),
            None => Ok(()),
        }
    }

    fn fault(&self, cx: &Kernel, to: &Addr, fault: Fault, _: Option<&Options>) {
        let Some(half) = self.0.upgrade() else { return };
        let Some(upper) = half.own.get().and_then(|own| own.upper(half.number.get())) else {
            return;
        };
        let cmd = match fault {
            Fault::TooBig => Prc::MsgSize,
            Fault::NoRoute => Prc::UnreachNet,
            Fault::NoBuffers | Fault::QueueFull => Prc::Quench,
            _ => Prc::UnreachHost,
        };
        let sa = to.to_sockaddr(half.bsd.mbufs().release());
        half.bsd.splnet(cx, || upper.pr_ctlinput(cx, cmd, &sa, None));
    }

    fn gone(&self, _: &Kernel) {
        if let Some(half) = self.0.upgrade() {
            drop(half.door.take());
        }
    }
}

/// The adapter's entry in the protocol switch.
struct Entry(Weak<Half>);

impl ProtoFns for Entry {
    fn pr_output(&self, cx: &Kernel, _: &Rc<Protosw>, m: Mbuf, arg: &OutputArg) -> Result {
        let half = self.0.upgrade();
        let door = half.as_ref().and_then(|half| half.door.borrow().clone());
        let (Some(half), Some(door)) = (half, door) else {
            m.m_freem();
            return Err(Errno::ENETDOWN);
        };
        let from = arg.from.map_or(half.form.any(), Addr::from);
        let ends = Ends::new(from, arg.to.into());
        // The other subsystem may wait.
        let sent = half.bsd.spl0(cx, || door.send(cx, &ends, Parcel::Mbufs(m)));
        sent.map_err(Errno::from)
    }

    fn pr_unreach(&self, _: &Kernel, _: &Rc<Protosw>, m: Mbuf, _: &InputArg, cmd: Prc) {
        let why = match cmd {
            Prc::UnreachPort => &reason::NO_PORT,
            Prc::UnreachProtocol => &reason::NO_PROTOCOL,
            // Nothing that a sender is told of.
            _ => return m.m_freem(),
        };
        if let Some(half) = self.0.upgrade() {
            drop(half.unwanted.replace(Some((m, why))));
        }
    }

    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        _: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let half = self.0.upgrade().ok_or(Errno::ENETDOWN)?;
        if req != Pru::Control {
            return Err(Errno::EOPNOTSUPP);
        }
        let cmd = args.cmd;
        let nam = args.need_nam()?;
        match cmd {
            SIOCGIFMTU => {
                let octets = half.bsd.spl0(cx, || half.below.max_packet(cx));
                let octets = octets.ok_or(Errno::EOPNOTSUPP)?.to_be_bytes();
                let room = nam.mtod_mut().and_then(|room| room.first_chunk_mut());
                *room.ok_or(Errno::EINVAL)? = octets;
            }
            SIOCGIFSRCADDR => {
                let to = Addr::from(Sockaddr::of(nam)?);
                let local = half.bsd.spl0(cx, || half.below.local_to(cx, &to));
                let local = local.ok_or(Errno::EADDRNOTAVAIL)?;
                local.to_sockaddr(half.bsd.mbufs().release()).store(nam);
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn pr_stop(&self) {
        if let Some(half) = self.0.upgrade() {
            drop(half.door.take());
        }
    }
}
