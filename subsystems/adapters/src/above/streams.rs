//! The upper half in STREAMS: a driver that the line above is linked on, a provider of datagrams of
//! the transport provider interface.

mod connections;

use crate::below::streams::options_of;
use crate::edge::{Above, Below, Door, Edge, Ends, Fault, Options, Sink, Unwanted};
use crate::form::{Addr, Form, Ports, Service};
use crate::parcel::Parcel;
use alloc::rc::Rc;
use alloc::vec::Vec;
use connections::Connections;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::atp::REPLY_OCTETS_MAX;
use xk_bsd::errno::Errno as BsdErrno;
use xk_bsd::sockaddr::AF_INET;
use xk_core::object::ProtocolId;
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, ProtocolRef};
use xk_streams::module::{ModuleInfo, Opening};
use xk_streams::queue::WeakQ;
use xk_streams::tpi::{
    Datagrams, Endpoint, Info, Refusal, SendError, TliError, UNLIMITED, own_end, uderror_ind,
    unitdata_ind,
};
use xk_streams::{Errno, Kind, Mblk, Module, Q, Services, Streams, Streamtab, TimerId, head};

/// Octets of addresses, and of options at most.
const ADDRESS_OCTETS: u32 = 16;

/// The half.
pub(crate) struct StreamsAbove(Rc<Half>);

struct Half {
    streams: Rc<Streams>,
    edge: Rc<Edge>,
    form: &'static Form,
    below: Rc<dyn Below>,
    /// The protocol above.
    upper: Cell<Option<ProtocolId>>,
    max_packet: Cell<u32>,
    /// Programs stand on it, by the transport interface.
    is_for_users: Cell<bool>,
    ports: Ports,
}

/// The answer to a request for an address below.
fn refusal(fault: Fault) -> Refusal {
    match fault {
        Fault::InUse => TliError::TNOADDR.into(),
        Fault::Address => TliError::TBADADDR.into(),
        fault => Errno::from(fault).into(),
    }
}

impl StreamsAbove {
    pub(crate) fn new(streams: &Rc<Streams>, edge: &Rc<Edge>, below: &Rc<dyn Below>) -> Self {
        Self(Rc::new(Half {
            streams: Rc::clone(streams),
            edge: Rc::clone(edge),
            form: edge.form,
            below: Rc::clone(below),
            upper: Cell::new(None),
            max_packet: Cell::new(UNLIMITED),
            is_for_users: Cell::new(false),
            ports: Ports::default(),
        }))
    }
}

impl Above for StreamsAbove {
    /// Registers the adapter's node as a driver: the line above is linked on it as on another line
    /// of the subsystem.
    fn placed(&self, _: &Kernel, this: &ProtocolRef) -> Result<(), BsdErrno> {
        let half = &self.0;
        let driver: Rc<dyn Streamtab> = match (half.form.service, half.below.circuits()) {
            (Service::Frames, _) => Rc::new(Device(Rc::clone(half))),
            (_, Some(circuits)) => Connections::new(half, circuits),
            _ => Rc::new(Driver(Rc::clone(half))),
        };
        half.streams.register(this.id(), this.name(), driver);
        Ok(())
    }

    fn start(&self, cx: &Kernel, upper: &ProtocolRef) -> Result<(), Fault> {
        self.0.upper.set(Some(upper.id()));
        self.0.is_for_users.set(upper.head().kind() == xk_streams::tli::ENTRY.kind);
        if let Some(octets) = self.0.below.max_packet(cx) {
            self.0.max_packet.set(octets);
        }
        Ok(())
    }
}

struct Driver(Rc<Half>);

const MODULE: ModuleInfo = ModuleInfo::new(0, "adapter");

impl Streamtab for Driver {
    fn info(&self) -> ModuleInfo {
        MODULE
    }

    fn open(&self, _: &Kernel, _: &Q, opening: Opening) -> Result<Rc<dyn Module>, Errno> {
        let selector = opening.upper.or(self.0.upper.get());
        let (half, door, local) = (Rc::clone(&self.0), RefCell::default(), Cell::new(None));
        let (more, back) = (RefCell::default(), Rc::default());
        let provider = Provider { half, selector, door, more, local, back };
        Ok(Endpoint::new(Rc::new(provider)))
    }
}

/// The driver of a wire: frames are M_DATA.
struct Device(Rc<Half>);

impl Streamtab for Device {
    fn info(&self) -> ModuleInfo {
        MODULE
    }

    fn open(&self, cx: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let half = &self.0;
        let sink = Rc::new(Frames { edge: Rc::clone(&half.edge), q: q.downgrade() });
        let door = half.below.open(cx, half.edge.node()?.id(), half.form.any(), sink)?;
        // Frames that wait for the wire's room are sent when it is there, not at each one more.
        q.write_side().noenable();
        let door = RefCell::new(Some(door));
        Ok(Rc::new(Wire { half: Rc::clone(half), door, waits: Cell::new(None) }))
    }
}

/// The one stream of a wire's driver. While the wire is full frames wait in its write queue, which
/// stops what is above at the high-water mark.
struct Wire {
    half: Rc<Half>,
    door: RefCell<Option<Rc<dyn Door>>>,
    /// The timer for the wire's room.
    waits: Cell<Option<TimerId>>,
}

impl Wire {
    /// Whether the wire takes a frame now; if not, the queue is enabled when it does.
    fn has_room(&self, cx: &Kernel, q: &Q) -> bool {
        if self.waits.get().is_some() {
            return false;
        }
        let door = self.door.borrow().clone();
        let after = door.map_or(Duration::ZERO, |door| door.room(cx));
        if after.is_zero() {
            return true;
        }
        // Without a timer nothing would wake it: the wire counts what it does not take.
        self.waits.set(q.timeout(cx, after, 0));
        self.waits.get().is_none()
    }

    fn send(&self, cx: &Kernel, mp: Mblk) {
        let door = self.door.borrow().clone();
        let sent = door.ok_or(Fault::Closed);
        let sent = sent.and_then(|door| door.send(cx, &Ends::default(), Parcel::Blocks(mp)));
        if let Err(fault) = sent {
            self.half.edge.count(fault.reason());
        }
    }
}

impl Module for Wire {
    fn info(&self) -> ModuleInfo {
        MODULE
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data if q.qsize() == 0 && self.has_room(cx, q) => self.send(cx, mp),
            Kind::Data => q.putq(cx, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            Kind::Ioctl => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
            _ => self.half.edge.count(&reason::NOT_SUPPORTED),
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        while q.qsize() > 0
            && self.has_room(cx, q)
            && let Some(mp) = q.getq(cx)
        {
            self.send(cx, mp);
        }
    }

    fn timer(&self, cx: &Kernel, q: &Q, _: u64) {
        self.waits.set(None);
        q.qenable(cx);
    }

    fn close(&self, cx: &Kernel, q: &Q) {
        if let Some(timer) = self.waits.take() {
            q.untimeout(cx, timer);
        }
        let door = self.door.take();
        if let Some(door) = door {
            door.close(cx);
        }
    }
}

/// Frames of a wire go up as M_DATA.
struct Frames {
    edge: Rc<Edge>,
    q: WeakQ,
}

impl Sink for Frames {
    fn arrive(&self, cx: &Kernel, _: &Ends, parcel: Parcel) -> Result<(), Unwanted> {
        let q = self.q.upgrade().ok_or(&reason::CLOSED)?;
        if !q.canputnext() {
            return Err((&reason::QUEUE_FULL).into());
        }
        let frame = parcel.into_blocks(q.blocks(), &self.edge.up).map_err(Fault::reason)?;
        q.putnext(cx, frame);
        Ok(())
    }
}

/// One stream of the driver.
struct Provider {
    half: Rc<Half>,
    /// The protocol above whose number selects what arrives.
    selector: Option<ProtocolId>,
    door: RefCell<Option<Rc<dyn Door>>>,
    /// On a link, those for further numbers.
    more: RefCell<Vec<Rc<dyn Door>>>,
    /// Our address there.
    local: Cell<Option<Addr>>,
    /// A datagram that the line above gives back while it arrives.
    back: Rc<RefCell<Option<Mblk>>>,
}

impl Provider {
    fn close_door(&self, cx: &Kernel) {
        let (door, more) = (self.door.take(), self.more.take());
        for door in door.into_iter().chain(more) {
            door.close(cx);
        }
    }

    /// A door whose messages go up this stream.
    fn open_door(&self, cx: &Kernel, q: &Q, local: Addr) -> Result<Rc<dyn Door>, Refusal> {
        let half = &self.half;
        let selector = self.selector.ok_or(TliError::TNOTSUPPORT)?;
        let open = |at: Addr| {
            // What is bound to a number of a link is bound to all of its addresses.
            let local = if half.form.is_link() { half.form.any() } else { at };
            let (edge, back) = (Rc::clone(&half.edge), Rc::clone(&self.back));
            let sink = Rc::new(Indications { edge, back, q: q.downgrade(), local });
            half.below.open(cx, selector, at, sink)
        };
        let opened = match half.is_for_users.get() {
            true => half.ports.open(half.form, local, open).map(|(_, door)| door),
            false => open(local),
        };
        opened.map_err(refusal)
    }
}

impl Datagrams for Provider {
    fn module(&self) -> ModuleInfo {
        MODULE
    }

    fn info(&self) -> Info {
        // A reply is longer than the longest request, which the layer below is asked for.
        let largest = match self.half.form.service {
            Service::Transactions => REPLY_OCTETS_MAX as u32,
            _ => self.half.max_packet.get(),
        };
        Info::datagrams(largest, ADDRESS_OCTETS, ADDRESS_OCTETS)
    }

    fn bind(&self, cx: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let half = &self.half;
        let local = match addr {
            [] => half.form.any(),
            addr => Addr::parse(addr)
                .filter(|addr| addr.family() == half.form.family)
                .ok_or(TliError::TBADADDR)?,
        };
        let door = self.open_door(cx, q, local)?;
        let bound = door.local(cx);
        *self.door.borrow_mut() = Some(door);
        // The line above is told the host if it asks: checksums cover that.
        let asks = half.form.family == AF_INET && bound.is_any();
        let host = if asks { half.below.local_to(cx, &bound) } else { None };
        self.local.set(Some(host.unwrap_or(bound)));
        if let Some(octets) = half.below.max_packet(cx) {
            half.max_packet.set(octets);
        }
        Ok(bound.to_tpi().to_vec())
    }

    fn unbind(&self, cx: &Kernel, _: &Q) {
        self.close_door(cx);
    }

    /// On a link T_OPTMGMT_REQ with an address binds the stream to one number more.
    fn manage(&self, cx: &Kernel, q: &Q, opt: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        const NUMBERS_MAX: usize = 8;
        if !self.half.form.is_link() {
            return Err(TliError::TNOTSUPPORT.into());
        }
        let link = Addr::parse(opt).filter(|link| link.family() == self.half.form.family);
        let link = link.ok_or(TliError::TBADOPT)?;
        if self.more.borrow().len() >= NUMBERS_MAX {
            return Err(Errno::ENOSR.into());
        }
        let door = self.open_door(cx, q, link)?;
        self.more.borrow_mut().push(door);
        Ok(opt.into())
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (dest, opt): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let told = |fault: Fault| SendError::Told(fault.into());
        let to = Addr::parse(dest).ok_or_else(|| told(Fault::Address))?;
        let door = self.door.borrow().clone().ok_or_else(|| told(Fault::Closed))?;
        // From a stream that is bound to all addresses the options begin with the one it goes from.
        let (own, rest) = own_end(opt);
        let from = own.and_then(|own| Addr::parse(own)).unwrap_or_else(|| door.local(cx));
        let options = rest.first_chunk().copied();
        let data = data.or_else(|| q.blocks().copy(Kind::Data, 0, &[]));
        let data = data.ok_or_else(|| told(Fault::NoBuffers))?;
        let ends = Ends { options, ..Ends::new(from, to) };
        let sent = door.send(cx, &ends, Parcel::Blocks(data));
        sent.map_err(told)
    }

    fn told(&self, reason: &'static Reason) {
        self.half.edge.count(reason);
    }

    fn given_back(&self, _: &Kernel, _: &Q, mut mp: Mblk) {
        drop(self.back.replace(mp.unlinkb()));
    }

    fn local(&self, _: &Q) -> Vec<u8> {
        self.local.get().map_or(Vec::new(), |local| local.to_tpi().to_vec())
    }

    fn close(&self, cx: &Kernel, _: &Q) {
        self.close_door(cx);
    }
}

/// Passes arrivals up as T_UNITDATA_IND.
struct Indications {
    edge: Rc<Edge>,
    /// The block that the line above gives back before the put returns.
    back: Rc<RefCell<Option<Mblk>>>,
    q: WeakQ,
    local: Addr,
}

impl Sink for Indications {
    fn arrive(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Unwanted> {
        let q = self.q.upgrade().ok_or(&reason::CLOSED)?;
        if !q.canputnext() {
            return Err((&reason::QUEUE_FULL).into());
        }
        let data = parcel.into_blocks(q.blocks(), &self.edge.up).map_err(Fault::reason)?;
        let mut room = [0; 32];
        let opt = options_of(&mut room, &ends.to, self.local.is_any(), &ends.options);
        let indication = unitdata_ind(q.blocks(), &ends.from.to_tpi(), opt, data);
        q.putnext(cx, indication.ok_or(&reason::NO_BUFFERS)?);
        match self.back.take() {
            Some(data) => {
                Err(Unwanted { why: &reason::NO_PORT, parcel: Some(Parcel::Blocks(data)) })
            }
            None => Ok(()),
        }
    }

    fn fault(&self, cx: &Kernel, to: &Addr, fault: Fault, options: Option<&Options>) {
        let Some(q) = self.q.upgrade() else { return };
        let options = options.map_or(&[][..], |options| options);
        let told = uderror_ind(q.blocks(), &to.to_tpi(), options, Errno::from(fault).0);
        if let Some(told) = told {
            q.putnext(cx, told);
        }
    }

    fn gone(&self, cx: &Kernel) {
        let Some(q) = self.q.upgrade() else { return };
        if let Some(hangup) = q.blocks().copy(Kind::Hangup, 0, &[]) {
            q.putnext(cx, hangup);
        }
    }
}
