//! A provider of connections with orderly release, where the protocol below carries streams: the
//! transport interface in front of circuits.

use super::{ADDRESS_OCTETS, Half, MODULE, refusal};
use crate::circuit::{CHUNK, Circuit, Circuits, Listening, User, Wanted, numbers};
use crate::edge::Fault;
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;
use xk_core::reason::{self, Reason};
use xk_kit::net::stream::StreamEvent;
use xk_streams::module::{ModuleInfo, Opening, Services};
use xk_streams::queue::{FLUSHRW, WeakQ, What};
use xk_streams::tpi::{
    Event, Info, NO_SIZE, Primitive, Refusal, Service, State, TliError, error_ack, with_data,
};
use xk_streams::{Errno, Kind, Mblk, Module, Q, Streamtab, head};

/// Connections that may ask at one endpoint at one time, at most.
const CONIND_MAX: u32 = 64;
/// Octets that may have arrived and not gone up to the stream's head.
const UNREAD_MAX: u32 = 64 << 10;
/// No indication is meant.
const NO_SEQUENCE: u32 = u32::MAX;
/// Largest number of blocks of a message that goes up, and octets of its primitive.
const NEED: (usize, usize) = (2, 64);

/// The driver.
pub(super) struct Connections {
    this: Weak<Self>,
    half: Rc<Half>,
    circuits: Rc<Circuits>,
    ends: RefCell<Vec<Weak<End>>>,
    /// The last number of an indication.
    last: Cell<u32>,
}

/// One endpoint.
struct End {
    this: Weak<Self>,
    provider: Rc<Connections>,
    q: WeakQ,
    id: usize,
    state: Cell<State>,
    local: Cell<Addr>,
    conind: Cell<u32>,
    listening: RefCell<Option<Rc<Listening>>>,
    /// Peers that ask for a connection, by their numbers.
    asking: RefCell<Vec<(u32, Rc<Circuit>)>>,
    circuit: RefCell<Option<Rc<Circuit>>>,
    /// Part of the user's message that has not gone down yet.
    unsent: RefCell<Option<Mblk>>,
}

impl User for End {
    fn arrived(&self, cx: &Kernel) {
        self.up(cx);
    }

    fn happened(&self, cx: &Kernel, event: StreamEvent) {
        match (event, self.q.upgrade()) {
            (StreamEvent::Writable, Some(q)) => q.write_side().qenable(cx),
            _ => self.up(cx),
        }
    }

    fn waiting(&self) -> usize {
        self.unsent.borrow().as_ref().map_or(0, Mblk::size)
    }

    fn first(&self, octets: usize) -> Option<Parcel> {
        let mut front = self.unsent.borrow().as_ref()?.dupmsg()?;
        if octets < front.size() {
            front = front.split_front(octets)?;
        }
        Some(Parcel::Blocks(front))
    }

    fn sent(&self, mut octets: usize) {
        let mut rest = self.unsent.take();
        while let Some(block) = &mut rest
            && (octets > 0 || block.is_empty())
        {
            let gone = octets.min(block.len());
            octets -= gone;
            if !block.skip(gone) || block.is_empty() {
                rest = block.unlinkb();
            }
        }
        drop(self.unsent.replace(rest));
    }

    fn retry(&self, cx: &Kernel) {
        if let Some(q) = self.q.upgrade() {
            q.write_side().bufcall(cx, NEED);
        }
    }

    fn has_room(&self) -> bool {
        (self.asking.borrow().len() as u32) < self.conind.get() && self.may(Event::ConnInd)
    }

    fn accept(&self, cx: &Kernel, circuit: Rc<Circuit>) -> Result<(), &'static Reason> {
        let q = self.q.upgrade().ok_or(&reason::CLOSED)?;
        if !self.has_room() {
            return Err(&reason::TABLE_FULL);
        }
        let seq = self.provider.last.get().wrapping_add(1) & !(1 << 31);
        let src = &circuit.peer.to_tpi();
        let told = Primitive::ConnInd { src, opt: &[], seq }.emit(q.blocks());
        let told = told.ok_or(&reason::NO_BUFFERS)?;
        self.provider.last.set(seq);
        self.step(Event::ConnInd);
        circuit.set_user(self.this.clone());
        self.asking.borrow_mut().push((seq, circuit));
        q.putnext(cx, told);
        Ok(())
    }
}

impl End {
    /// Whether the state allows an event.
    fn may(&self, event: Event) -> bool {
        self.state.get().after(event).is_some()
    }

    /// Takes an event if the state allows it.
    fn step(&self, event: Event) -> bool {
        let next = self.state.get().after(event);
        next.inspect(|next| self.state.set(*next)).is_some()
    }

    fn put_up(&self, cx: &Kernel, mp: Option<Mblk>) {
        if let (Some(q), Some(mp)) = (self.q.upgrade(), mp) {
            q.putnext(cx, mp);
        }
    }

    fn say(&self, cx: &Kernel, primitive: Primitive<'_>) {
        if let Some(q) = self.q.upgrade() {
            self.put_up(cx, primitive.emit(q.blocks()));
        }
    }

    fn flush(&self, cx: &Kernel, q: &Q) -> Option<()> {
        q.write_side().flushq(cx, What::Data);
        drop(self.unsent.take());
        q.read_side().putnext(cx, q.blocks().copy(Kind::Flush, 0, &[FLUSHRW])?);
        Some(())
    }

    fn circuit(&self) -> Option<Rc<Circuit>> {
        self.circuit.borrow().clone()
    }

    /// Takes a circuit, with our address there.
    fn set_circuit(&self, cx: &Kernel, circuit: Rc<Circuit>) {
        if let Some((local, _)) = circuit.ends(cx) {
            self.local.set(local);
        }
        drop(self.circuit.replace(Some(circuit)));
    }

    /// Tells the user all that is to be told, as far as there is room; without blocks the rest
    /// follows when there are some.
    fn up(&self, cx: &Kernel) {
        if let Some(q) = self.q.upgrade()
            && self.try_up(cx, &q).is_none()
        {
            q.bufcall(cx, NEED);
        }
    }

    /// `None` without blocks. Each is there before anything changes.
    fn try_up(&self, cx: &Kernel, q: &Q) -> Option<()> {
        let blocks = q.blocks();
        while let Some((seq, reason)) = self.asking_broken() {
            let told = Primitive::DisconInd { reason, seq }.emit(blocks)?;
            drop(self.take_asking(seq));
            let is_last = self.asking.borrow().is_empty();
            if self.step(if is_last { Event::DisconInd2 } else { Event::DisconInd3 }) {
                q.putnext(cx, told);
            }
        }
        let Some(circuit) = self.circuit() else { return Some(()) };
        if let Some(error) = circuit.broken() {
            let reason = numbers(error).1.0;
            let told = Primitive::DisconInd { reason, seq: NO_SEQUENCE }.emit(blocks)?;
            if self.state.get() != State::WconCreq {
                self.flush(cx, q)?;
            }
            drop(self.circuit.take());
            if self.step(Event::DisconInd1) {
                q.putnext(cx, told);
            }
            return Some(());
        }
        if circuit.is_connected() && self.may(Event::ConnCon) {
            let res = &circuit.peer.to_tpi();
            let told = Primitive::ConnCon { res, opt: &[] }.emit(blocks)?;
            self.step(Event::ConnCon);
            self.set_circuit(cx, Rc::clone(&circuit));
            q.putnext(cx, told);
        }
        while self.may(Event::DataInd) && circuit.has_arrived() {
            if !q.canputnext() {
                // The read queue is served when there is room again.
                return Some(());
            }
            let front = Primitive::DataInd { more: false }.emit(blocks)?;
            let message = circuit.next_arrived()?;
            let octets = message.len();
            let lent = blocks.lend_message(message);
            let data = lent.map_err(|message| circuit.put_back(message)).ok()?;
            q.putnext(cx, with_data(front, Some(data)));
            circuit.consumed(cx, octets);
        }
        if circuit.is_at_end() && self.may(Event::OrdrelInd) {
            let told = Primitive::OrdrelInd.emit(blocks)?;
            self.step(Event::OrdrelInd);
            q.putnext(cx, told);
            self.end_in_order(cx);
        }
        Some(())
    }

    /// Releases the stream if both ends have released it.
    fn end_in_order(&self, cx: &Kernel) {
        if self.state.get() == State::Idle {
            let circuit = self.circuit.take();
            if let Some(circuit) = circuit {
                circuit.close(cx);
            }
        }
    }

    /// One that asked and has broken, and its error number.
    fn asking_broken(&self) -> Option<(u32, u32)> {
        let asking = self.asking.borrow();
        asking.iter().find_map(|(seq, circuit)| Some((*seq, numbers(circuit.broken()?).1.0)))
    }

    fn take_asking(&self, seq: u32) -> Option<Rc<Circuit>> {
        let mut asking = self.asking.borrow_mut();
        let at = asking.iter().position(|(number, _)| *number == seq)?;
        Some(asking.remove(at).1)
    }

    /// Whether the next message can be taken down.
    fn has_room_below(&self, cx: &Kernel) -> bool {
        let circuit = self.circuit().filter(|circuit| circuit.is_open());
        self.unsent.borrow().is_none() && circuit.is_none_or(|circuit| circuit.space(cx) > 0)
    }

    /// Hands down what is left of a message, as far as there is room.
    fn down(&self, cx: &Kernel) {
        let Some(circuit) = self.circuit().filter(|circuit| circuit.is_open()) else {
            return drop(self.unsent.take());
        };
        circuit.output(cx, self);
    }
}

impl Connections {
    pub(super) fn new(half: &Rc<Half>, circuits: Rc<Circuits>) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            half: Rc::clone(half),
            circuits,
            ends: RefCell::default(),
            last: Cell::new(0),
        })
    }

    fn end(&self, id: usize) -> Option<Rc<End>> {
        self.ends.borrow().iter().find_map(|end| end.upgrade().filter(|end| end.id == id))
    }
}

impl Streamtab for Connections {
    fn info(&self) -> ModuleInfo {
        MODULE
    }

    fn open(&self, _: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let provider = self.this.upgrade().ok_or(Errno::ENXIO)?;
        let end = Rc::new_cyclic(|this| End {
            this: this.clone(),
            provider,
            q: q.downgrade(),
            id: q.id(),
            state: Cell::new(State::Unbnd),
            local: Cell::new(self.half.form.any()),
            conind: Cell::new(0),
            listening: RefCell::default(),
            asking: RefCell::default(),
            circuit: RefCell::default(),
            unsent: RefCell::default(),
        });
        self.ends.borrow_mut().push(Rc::downgrade(&end));
        Ok(end)
    }
}

impl End {
    /// The stream can go no further.
    fn fail(&self, cx: &Kernel, q: &Q) {
        let code = Errno::EPROTO.0 as u8;
        self.put_up(cx, q.blocks().copy(Kind::Error, 0, &[code, code]));
    }

    /// The connection may have ended meanwhile.
    fn fail_unless_idle(&self, cx: &Kernel, q: &Q) {
        if self.state.get() != State::Idle {
            self.fail(cx, q);
        }
    }

    fn info(&self) -> Info {
        Info {
            // A stream of octets, in which units have no ends.
            tsdu: 0,
            etsdu: NO_SIZE,
            tidu: CHUNK as u32,
            service: Service::CotsOrd,
            state: self.state.get(),
            ..Info::datagrams(0, ADDRESS_OCTETS, 0)
        }
    }

    /// Takes a control part; its block is freed before the answer is made, which so finds one.
    /// `q` is the write queue.
    fn request(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let data = mp.unlinkb();
        let prim = mp.octets().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let done = match Primitive::of(&mp) {
            Ok(Primitive::InfoReq) => {
                drop(mp);
                return self.say(cx, Primitive::InfoAck(self.info()));
            }
            Ok(Primitive::AddrReq) => {
                drop(mp);
                let local = self.local.get().to_tpi();
                let remote = self.circuit().map(|circuit| circuit.peer.to_tpi());
                let remote = remote.as_ref().map_or(&[][..], |octets| octets);
                return self.say(cx, Primitive::AddrAck { local: &local, remote });
            }
            Ok(Primitive::DataReq { .. }) => {
                drop(mp);
                return self.data(cx, q, data);
            }
            Ok(Primitive::OrdrelReq) => {
                drop(mp);
                return self.release(cx, q);
            }
            Ok(Primitive::ExdataReq { .. } | Primitive::UnitdataReq { .. }) => {
                drop(mp);
                return self.fail(cx, q);
            }
            Ok(primitive) => self.act(cx, primitive, data),
            Err(_) => Err(Errno::EPROTO.into()),
        };
        drop(mp);
        match done {
            Ok(event) => {
                self.step(event);
                // After an unbind or a disconnect.
                if event == Event::OkAck1 && self.state.get() != State::WconCreq {
                    self.flush(cx, q);
                }
                let (addr, conind) = (&self.local.get().to_tpi(), self.conind.get());
                self.say(
                    cx,
                    match event {
                        Event::BindAck => Primitive::BindAck { addr, conind },
                        _ => Primitive::OkAck { prim },
                    },
                );
                self.up(cx);
            }
            Err(refusal) => {
                self.step(Event::ErrorAck);
                self.put_up(cx, error_ack(q.blocks(), prim, refusal));
            }
        }
    }

    /// Does what a primitive asks for; answers how it is acknowledged.
    fn act(&self, cx: &Kernel, asked: Primitive<'_>, data: Option<Mblk>) -> Result<Event, Refusal> {
        let event = match asked {
            Primitive::BindReq { .. } => Event::BindReq,
            Primitive::UnbindReq => Event::UnbindReq,
            Primitive::ConnReq { .. } => Event::ConnReq,
            Primitive::ConnRes { .. } => Event::ConnRes,
            Primitive::DisconReq { .. } => Event::DisconReq,
            _ => return Err(TliError::TNOTSUPPORT.into()),
        };
        if !self.step(event) {
            return Err(TliError::TOUTSTATE.into());
        }
        match asked {
            _ if data.is_some_and(|data| data.size() > 0) => Err(TliError::TBADDATA.into()),
            Primitive::BindReq { addr, conind } => self.bind(cx, addr, conind),
            Primitive::ConnReq { dest, .. } => self.connect(cx, dest),
            Primitive::ConnRes { acceptor, seq, .. } => self.pass(cx, acceptor, seq),
            Primitive::DisconReq { seq } => self.disconnect(cx, seq),
            _ => {
                self.unbind(cx);
                Ok(Event::OkAck1)
            }
        }
    }

    fn wanted(&self) -> Result<Wanted, Refusal> {
        let selector = self.provider.half.upper.get().ok_or(TliError::TNOTSUPPORT)?;
        Ok(Wanted { selector, local: self.local.get(), unread_max: UNREAD_MAX })
    }

    fn addr(&self, octets: &[u8]) -> Result<Addr, Refusal> {
        let addr =
            Addr::parse(octets).filter(|addr| addr.family() == self.provider.half.form.family);
        addr.ok_or(TliError::TBADADDR.into())
    }

    fn bind(&self, cx: &Kernel, addr: &[u8], conind: u32) -> Result<Event, Refusal> {
        let any = self.provider.half.form.any();
        let conind = conind.min(CONIND_MAX);
        self.local.set(if addr.is_empty() { any } else { self.addr(addr)? });
        self.conind.set(conind);
        if conind > 0 {
            self.listen(cx).inspect_err(|_| self.local.set(any))?;
        }
        Ok(Event::BindAck)
    }

    /// Listens at the address of the endpoint; at a free port if it has none.
    fn listen(&self, cx: &Kernel) -> Result<(), Refusal> {
        let (provider, wanted) = (&self.provider, self.wanted()?);
        let opened = provider.half.ports.open(provider.half.form, wanted.local, |local| {
            provider.circuits.listen(cx, Wanted { local, ..wanted }, self.this.clone())
        });
        let (local, listening) = opened.map_err(refusal)?;
        self.local.set(local);
        drop(self.listening.replace(Some(listening)));
        Ok(())
    }

    fn unbind(&self, cx: &Kernel) {
        let listening = self.listening.take();
        if let Some(listening) = listening {
            listening.close(cx);
        }
        let asking = self.asking.take();
        for (_, circuit) in asking {
            circuit.abort(cx);
        }
        self.local.set(self.provider.half.form.any());
        self.conind.set(0);
    }

    fn connect(&self, cx: &Kernel, dest: &[u8]) -> Result<Event, Refusal> {
        let peer = self.addr(dest)?;
        if self.provider.half.form.port_number(&peer) == Some(0) {
            return Err(TliError::TBADADDR.into());
        }
        let user = self.this.clone();
        let opened = self.provider.circuits.connect(cx, self.wanted()?, peer, user);
        let circuit = opened.map_err(|fault| match fault {
            Fault::Address => Refusal::from(TliError::TBADADDR),
            fault => Errno::from(fault).into(),
        })?;
        drop(self.circuit.replace(Some(circuit)));
        Ok(Event::OkAck1)
    }

    /// Passes a connection that asks here on to the endpoint `acceptor`.
    fn pass(&self, cx: &Kernel, acceptor: u32, seq: u32) -> Result<Event, Refusal> {
        let driver = self.provider.half.streams.driver_of(acceptor);
        let on = driver.and_then(|q| self.provider.end(q.id())).ok_or(TliError::TBADF)?;
        let waiting = self.asking.borrow().len();
        let is_here = core::ptr::eq(&*on, self);
        if is_here && waiting != 1 || !is_here && on.state.get().after(Event::PassConn).is_none() {
            return Err(TliError::TOUTSTATE.into());
        }
        let circuit = self.take_asking(seq).ok_or(TliError::TBADSEQ)?;
        if !is_here {
            on.step(Event::PassConn);
            // What has arrived goes up behind the acknowledgement.
            if let Some(q) = on.q.upgrade() {
                q.qenable(cx);
            }
        }
        circuit.set_user(on.this.clone());
        on.set_circuit(cx, circuit);
        Ok(match (is_here, waiting) {
            (true, _) => Event::OkAck2,
            (false, 1) => Event::OkAck3,
            _ => Event::OkAck4,
        })
    }

    fn disconnect(&self, cx: &Kernel, seq: u32) -> Result<Event, Refusal> {
        if self.state.get() == State::WackDreq7 {
            let waiting = self.asking.borrow().len();
            self.take_asking(seq).ok_or(TliError::TBADSEQ)?.abort(cx);
            return Ok(if waiting == 1 { Event::OkAck3 } else { Event::OkAck4 });
        }
        let circuit = self.circuit.take();
        if let Some(circuit) = circuit {
            circuit.abort(cx);
        }
        Ok(Event::OkAck1)
    }

    fn data(&self, cx: &Kernel, q: &Q, data: Option<Mblk>) {
        if !self.step(Event::DataReq) {
            drop(data);
            return self.fail_unless_idle(cx, q);
        }
        drop(self.unsent.replace(data.filter(|data| data.size() > 0)));
        self.down(cx);
    }

    fn release(&self, cx: &Kernel, q: &Q) {
        if !self.step(Event::OrdrelReq) {
            return self.fail_unless_idle(cx, q);
        }
        if let Some(circuit) = self.circuit() {
            circuit.shutdown(cx);
        }
        self.end_in_order(cx);
    }

    fn take(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data => self.data(cx, q, Some(mp)),
            _ => self.request(cx, q, mp),
        }
    }
}

impl Module for End {
    fn info(&self) -> ModuleInfo {
        MODULE
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            // It does not wait behind data for which there is no room.
            Kind::Proto if matches!(Primitive::of(&mp), Ok(Primitive::DisconReq { .. })) => {
                self.request(cx, q, mp);
            }
            Kind::Data | Kind::Proto if q.qsize() == 0 && self.has_room_below(cx) => {
                self.take(cx, q, mp);
                // What came meanwhile has found no room.
                if q.qsize() > 0 {
                    q.qenable(cx);
                }
            }
            Kind::Data | Kind::Proto => q.putq(cx, mp),
            Kind::PcProto => self.request(cx, q, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            Kind::Ioctl => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
            _ => self.provider.half.edge.count(&reason::NOT_SUPPORTED),
        }
    }

    /// There is room below, or there are blocks.
    fn wsrv(&self, cx: &Kernel, q: &Q) {
        self.down(cx);
        while self.has_room_below(cx)
            && let Some(mp) = q.getq(cx)
        {
            self.take(cx, q, mp);
        }
    }

    /// There is room above again, or there are blocks.
    fn rsrv(&self, cx: &Kernel, _: &Q) {
        self.up(cx);
    }

    fn close(&self, cx: &Kernel, _: &Q) {
        self.provider.ends.borrow_mut().retain(|other| !other.ptr_eq(&self.this));
        self.unbind(cx);
        let is_released = self.state.get() == State::WindOrdrel;
        drop(self.unsent.take());
        let circuit = self.circuit.take();
        self.state.set(State::Unbnd);
        if let Some(circuit) = circuit {
            // What was released still goes, all of it; anything else is broken off.
            if is_released { circuit.close(cx) } else { circuit.abort(cx) }
        }
    }
}
