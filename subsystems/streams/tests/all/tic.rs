//! Loopback transport providers, by the names that System V gives them: `ticlts` for datagrams,
//! `ticots` for connections and `ticotsord` for connections with orderly release, between the
//! streams of one kernel. An address is any octets up to 16. The tests of the crate take this file
//! in, and so does the fuzzer.

extern crate alloc;

use self::alloc::rc::{Rc, Weak};
use self::alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;
use xk_streams::queue::{FLUSHRW, WeakQ};
use xk_streams::tpi::{
    Event, Info, NO_SIZE, Primitive, Refusal, Service, State, TliError, UNLIMITED, error_ack,
    ok_ack, uderror_ind, unitdata_ind, with_data,
};
use xk_streams::{
    Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, Services, Streams, Streamtab, head,
};

/// Octets of an address at most.
const ADDRESS_MAX: usize = 16;
/// Octets of data with a connection's beginning and end.
const WITH_MAX: u32 = 256;
/// Connections that may ask for one listener at one time, at most.
const CONIND_MAX: u32 = 64;
/// A request is acknowledged and the other end told of it: so many blocks, of so many octets.
const NEED: (usize, usize) = (2, 512);
/// No indication is meant.
const NO_SEQUENCE: u32 = u32::MAX;

/// One endpoint.
struct End {
    q: WeakQ,
    id: usize,
    state: Cell<State>,
    addr: RefCell<Option<Vec<u8>>>,
    conind: Cell<u32>,
    /// Ends that ask for a connection, by their numbers.
    asking: RefCell<Vec<(u32, Weak<End>)>>,
    peer: RefCell<Weak<End>>,
}

/// The provider of one service.
struct Tic {
    this: Weak<Tic>,
    service: Service,
    ends: RefCell<Vec<Rc<End>>>,
    /// The last number of an indication, and of an address.
    last: Cell<u32>,
}

/// Names the three providers in a subsystem.
pub(crate) fn add(streams: &Streams) {
    for (name, service) in
        [("ticlts", Service::Clts), ("ticots", Service::Cots), ("ticotsord", Service::CotsOrd)]
    {
        let tic = Rc::new_cyclic(|this| Tic {
            this: this.clone(),
            service,
            ends: RefCell::default(),
            last: Cell::new(0),
        });
        streams.add_driver(name, tic);
    }
}

/// One stream of a provider.
struct Driver(Rc<Tic>, Rc<End>);

impl Streamtab for Tic {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(0x5449, "tic").marks(65_536, 16_384)
    }

    fn open(&self, _: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let end = Rc::new(End {
            q: q.downgrade(),
            id: q.id(),
            state: Cell::new(State::Unbnd),
            addr: RefCell::default(),
            conind: Cell::new(0),
            asking: RefCell::default(),
            peer: RefCell::default(),
        });
        self.ends.borrow_mut().push(Rc::clone(&end));
        Ok(Rc::new(Driver(self.this.upgrade().ok_or(Errno::ENXIO)?, end)))
    }
}

impl End {
    /// Takes an event if the state allows it.
    fn step(&self, event: Event) -> bool {
        let next = self.state.get().after(event);
        next.inspect(|next| self.state.set(*next)).is_some()
    }

    /// Sends a message up; it is dropped where there are no blocks, or the stream is gone.
    fn up(&self, cx: &Kernel, mp: Option<Mblk>) {
        if let (Some(q), Some(mp)) = (self.q.upgrade(), mp) {
            q.putnext(cx, mp);
        }
    }

    fn say(&self, cx: &Kernel, primitive: Primitive<'_>, data: Option<Mblk>) {
        if let Some(q) = self.q.upgrade() {
            let mp = primitive.emit(q.blocks()).map(|mp| with_data(mp, data));
            self.up(cx, mp);
        }
    }

    fn flush(&self, cx: &Kernel) {
        if let Some(q) = self.q.upgrade() {
            self.up(cx, q.blocks().copy(Kind::Flush, 0, &[FLUSHRW]));
        }
    }

    /// The connection has ended at the other end.
    fn disconnected(&self, cx: &Kernel, (reason, seq): (u32, u32), data: Option<Mblk>) {
        let event = match (self.state.get(), self.asking.borrow().len()) {
            (State::WresCind, 0) => Event::DisconInd2,
            (State::WresCind, _) => Event::DisconInd3,
            _ => Event::DisconInd1,
        };
        let has_data =
            matches!(self.state.get(), State::DataXfer | State::WindOrdrel | State::WreqOrdrel);
        if self.step(event) {
            if has_data {
                self.flush(cx);
            }
            self.peer.replace(Weak::new());
            self.say(cx, Primitive::DisconInd { reason, seq }, data);
        }
    }

    fn peer(&self) -> Option<Rc<End>> {
        self.peer.borrow().upgrade()
    }

    /// Takes one out of those that ask.
    fn take_asking(&self, seq: u32) -> Option<Rc<End>> {
        let mut asking = self.asking.borrow_mut();
        let at = asking.iter().position(|(number, _)| *number == seq)?;
        asking.remove(at).1.upgrade()
    }
}

impl Driver {
    fn refuse(&self, cx: &Kernel, q: &Q, prim: u32, refusal: impl Into<Refusal>) {
        self.1.up(cx, error_ack(q.blocks(), prim, refusal));
    }

    /// The stream can go no further.
    fn fail(&self, cx: &Kernel, q: &Q) {
        let code = Errno::EPROTO.0 as u8;
        self.1.up(cx, q.blocks().copy(Kind::Error, 0, &[code, code]));
    }

    fn info(&self) -> Info {
        let state = self.1.state.get();
        let datagrams = Info { state, ..Info::datagrams(65_536, ADDRESS_MAX as u32, 64) };
        match self.0.service {
            Service::Clts => datagrams,
            service => Info {
                tsdu: UNLIMITED,
                etsdu: if service == Service::CotsOrd { 16 } else { NO_SIZE },
                connect: WITH_MAX,
                disconnect: WITH_MAX,
                tidu: 4096,
                service,
                ..datagrams
            },
        }
    }

    /// Takes a control part. `q` is the write queue.
    fn request(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let data = mp.unlinkb();
        let Ok(primitive) = Primitive::of(&mp) else {
            let number = mp.octets().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            return self.refuse(cx, q, number, Errno::EPROTO);
        };
        let (end, prim) = (&self.1, primitive.number());
        let event = match primitive {
            Primitive::InfoReq => {
                drop(mp);
                return end.say(cx, Primitive::InfoAck(self.info()), None);
            }
            Primitive::AddrReq => {
                drop(mp);
                let local = end.addr.borrow().clone().unwrap_or_default();
                let remote = end.peer().and_then(|peer| peer.addr.borrow().clone());
                let remote = remote.unwrap_or_default();
                let answer = Primitive::AddrAck { local: &local, remote: &remote };
                return end.say(cx, answer, None);
            }
            Primitive::UnitdataReq { dest, opt } => return self.unitdata(cx, q, (dest, opt), data),
            Primitive::DataReq { more } => {
                return self.data(cx, q, (Event::DataReq, more), data);
            }
            Primitive::ExdataReq { more } => {
                return self.data(cx, q, (Event::ExdataReq, more), data);
            }
            Primitive::OrdrelReq => return self.release(cx, q),
            Primitive::BindReq { .. } => Event::BindReq,
            Primitive::UnbindReq => Event::UnbindReq,
            Primitive::OptmgmtReq { .. } => Event::OptmgmtReq,
            Primitive::ConnReq { .. } => Event::ConnReq,
            Primitive::ConnRes { .. } => Event::ConnRes,
            Primitive::DisconReq { .. } => Event::DisconReq,
            _ => return self.refuse(cx, q, prim, TliError::TNOTSUPPORT),
        };
        let is_of_connections = matches!(event, Event::ConnReq | Event::ConnRes | Event::DisconReq);
        if self.0.service == Service::Clts && is_of_connections {
            return self.refuse(cx, q, prim, TliError::TNOTSUPPORT);
        }
        if !end.step(event) {
            return self.refuse(cx, q, prim, TliError::TOUTSTATE);
        }
        let done = match primitive {
            Primitive::BindReq { addr, conind } => self.bind(cx, addr, conind),
            Primitive::ConnReq { dest, opt } => self.connect(cx, q, (dest, opt), data),
            Primitive::ConnRes { acceptor, opt, seq } => {
                self.accept(cx, q, (acceptor, seq), opt, data)
            }
            Primitive::DisconReq { seq } => self.disconnect(cx, q, seq, data),
            Primitive::OptmgmtReq { opt, flags } => {
                end.step(Event::OptmgmtAck);
                end.say(cx, Primitive::OptmgmtAck { opt, flags }, None);
                Ok(())
            }
            _ => {
                end.addr.replace(None);
                end.step(Event::OkAck1);
                end.flush(cx);
                end.up(cx, ok_ack(q.blocks(), prim));
                Ok(())
            }
        };
        if let Err(refusal) = done {
            end.step(Event::ErrorAck);
            self.refuse(cx, q, prim, refusal);
        }
    }

    fn bind(&self, cx: &Kernel, addr: &[u8], conind: u32) -> Result<(), Refusal> {
        let end = &self.1;
        if addr.len() > ADDRESS_MAX {
            return Err(TliError::TBADADDR.into());
        }
        let is_taken = |addr: &[u8]| {
            let ends = self.0.ends.borrow();
            ends.iter().any(|other| other.addr.borrow().as_deref() == Some(addr))
        };
        let conind = if self.0.service == Service::Clts { 0 } else { conind.min(CONIND_MAX) };
        let addr: Vec<u8> = if addr.is_empty() || is_taken(addr) {
            // Another one is given; the user may look whether it will do.
            loop {
                let number = self.0.last.get().wrapping_add(1);
                self.0.last.set(number);
                if !is_taken(&number.to_be_bytes()) {
                    break number.to_be_bytes().into();
                }
            }
        } else {
            addr.into()
        };
        end.addr.replace(Some(addr.clone()));
        end.conind.set(conind);
        end.step(Event::BindAck);
        end.say(cx, Primitive::BindAck { addr: &addr, conind }, None);
        Ok(())
    }

    fn find(&self, addr: &[u8]) -> Option<Rc<End>> {
        let ends = self.0.ends.borrow();
        ends.iter().find(|end| end.addr.borrow().as_deref() == Some(addr)).cloned()
    }

    fn unitdata(&self, cx: &Kernel, q: &Q, (to, opt): (&[u8], &[u8]), data: Option<Mblk>) {
        let end = &self.1;
        if self.0.service != Service::Clts || end.state.get() != State::Idle {
            return self.fail(cx, q);
        }
        let other = self.find(to).and_then(|other| other.q.upgrade());
        let (Some(up), Some(data)) = (other, data) else {
            return end.up(cx, uderror_ind(q.blocks(), to, opt, Errno::ECONNREFUSED.0));
        };
        if !up.canputnext() {
            // Datagrams may be lost.
            return drop(data);
        }
        let from = end.addr.borrow().clone().unwrap_or_default();
        if let Some(mp) = unitdata_ind(q.blocks(), &from, opt, data) {
            up.putnext(cx, mp);
        }
    }

    fn connect(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, opt): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), Refusal> {
        let end = &self.1;
        if data.as_ref().is_some_and(|data| data.size() > WITH_MAX as usize) {
            return Err(TliError::TBADDATA.into());
        }
        if to.is_empty() || to.len() > ADDRESS_MAX {
            return Err(TliError::TBADADDR.into());
        }
        end.step(Event::OkAck1);
        end.up(cx, ok_ack(q.blocks(), 0));
        let has_room = |other: &Rc<End>| {
            (other.asking.borrow().len() as u32) < other.conind.get()
                && other.state.get().after(Event::ConnInd).is_some()
        };
        let Some(listener) = self.find(to).filter(has_room) else {
            end.disconnected(cx, (Errno::ECONNREFUSED.0, NO_SEQUENCE), None);
            return Ok(());
        };
        let seq = self.0.last.get().wrapping_add(1);
        self.0.last.set(seq);
        end.peer.replace(Rc::downgrade(&listener));
        listener.asking.borrow_mut().push((seq, Rc::downgrade(end)));
        listener.step(Event::ConnInd);
        let src = end.addr.borrow().clone().unwrap_or_default();
        listener.say(cx, Primitive::ConnInd { src: &src, opt, seq }, data);
        Ok(())
    }

    fn accept(
        &self,
        cx: &Kernel,
        q: &Q,
        (acceptor, seq): (u32, u32),
        opt: &[u8],
        data: Option<Mblk>,
    ) -> Result<(), Refusal> {
        let end = &self.1;
        let streams = Streams::of(cx).ok_or(Errno::ENXIO)?;
        let id = streams.driver_of(acceptor).ok_or(TliError::TBADF)?.id();
        let on = self.0.ends.borrow().iter().find(|other| other.id == id).cloned();
        let on = on.ok_or(TliError::TBADF)?;
        let waiting = end.asking.borrow().len();
        let is_here = Rc::ptr_eq(&on, end);
        if is_here && waiting != 1 || !is_here && on.state.get().after(Event::PassConn).is_none() {
            return Err(TliError::TOUTSTATE.into());
        }
        let asking = end.take_asking(seq).ok_or(TliError::TBADSEQ)?;
        end.step(match (is_here, waiting) {
            (true, _) => Event::OkAck2,
            (false, 1) => Event::OkAck3,
            _ => Event::OkAck4,
        });
        if !is_here {
            on.step(Event::PassConn);
        }
        on.peer.replace(Rc::downgrade(&asking));
        asking.peer.replace(Rc::downgrade(&on));
        end.up(cx, ok_ack(q.blocks(), 1));
        asking.step(Event::ConnCon);
        let res = end.addr.borrow().clone().unwrap_or_default();
        asking.say(cx, Primitive::ConnCon { res: &res, opt }, data);
        Ok(())
    }

    fn disconnect(&self, cx: &Kernel, q: &Q, seq: u32, data: Option<Mblk>) -> Result<(), Refusal> {
        let end = &self.1;
        if end.state.get() == State::WackDreq7 {
            let waiting = end.asking.borrow().len();
            let asking = end.take_asking(seq).ok_or(TliError::TBADSEQ)?;
            end.step(if waiting == 1 { Event::OkAck3 } else { Event::OkAck4 });
            end.up(cx, ok_ack(q.blocks(), 2));
            asking.disconnected(cx, (Errno::ECONNREFUSED.0, NO_SEQUENCE), data);
            return Ok(());
        }
        end.step(Event::OkAck1);
        end.flush(cx);
        end.up(cx, ok_ack(q.blocks(), 2));
        self.let_go(cx, 0, data);
        Ok(())
    }

    /// The other end hears that this one is gone.
    fn let_go(&self, cx: &Kernel, reason: u32, data: Option<Mblk>) {
        let end = &self.1;
        let peer = end.peer.replace(Weak::new()).upgrade();
        let Some(peer) = peer else { return };
        let is_end = |(_, asking): &(u32, Weak<End>)| asking.ptr_eq(&Rc::downgrade(end));
        let at = peer.asking.borrow().iter().position(is_end);
        let seq = at.map(|at| peer.asking.borrow_mut().remove(at).0);
        peer.disconnected(cx, (reason, seq.unwrap_or(NO_SEQUENCE)), data);
    }

    /// Passes data to the peer, or keeps it until there is room there.
    fn data(&self, cx: &Kernel, q: &Q, (event, more): (Event, bool), data: Option<Mblk>) {
        let end = &self.1;
        if !end.step(event) {
            // The connection may have ended meanwhile.
            return if end.state.get() == State::Idle { drop(data) } else { self.fail(cx, q) };
        }
        let peer = end.peer();
        let (Some(peer), Some(data)) = (peer, data) else { return };
        let (primitive, event) = match event {
            Event::ExdataReq => (Primitive::ExdataInd { more }, Event::ExdataInd),
            _ => (Primitive::DataInd { more }, Event::DataInd),
        };
        if peer.step(event) {
            peer.say(cx, primitive, Some(data));
        }
    }

    fn release(&self, cx: &Kernel, q: &Q) {
        let end = &self.1;
        let may = self.0.service == Service::CotsOrd && end.step(Event::OrdrelReq);
        let peer = end.peer();
        match (may, peer) {
            (false, _) => self.fail(cx, q),
            (true, Some(peer)) => {
                if end.state.get() == State::Idle {
                    end.peer.replace(Weak::new());
                }
                if peer.step(Event::OrdrelInd) {
                    peer.say(cx, Primitive::OrdrelInd, None);
                }
                if peer.state.get() == State::Idle {
                    peer.peer.replace(Weak::new());
                }
            }
            (true, None) => {}
        }
    }

    /// Whether the peer has room for what is sent, and there are blocks.
    fn has_room(&self, cx: &Kernel, q: &Q) -> bool {
        let has_blocks = q.blocks().has(NEED);
        if !has_blocks {
            q.bufcall(cx, NEED);
        }
        let up = self.1.peer().and_then(|peer| peer.q.upgrade());
        has_blocks && up.is_none_or(|up| up.canputnext())
    }

    fn take(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data => self.data(cx, q, (Event::DataReq, false), Some(mp)),
            _ => self.request(cx, q, mp),
        }
    }
}

impl Module for Driver {
    fn info(&self) -> ModuleInfo {
        let name = match self.0.service {
            Service::Clts => "ticlts",
            Service::Cots => "ticots",
            Service::CotsOrd => "ticord",
        };
        ModuleInfo::new(0x5449, name).marks(65_536, 16_384)
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data | Kind::Proto if q.qsize() == 0 && self.has_room(cx, q) => {
                self.take(cx, q, mp)
            }
            Kind::Data | Kind::Proto => q.putq(cx, mp),
            Kind::PcProto => self.request(cx, q, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            Kind::Ioctl => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
            _ => drop(mp),
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        while self.has_room(cx, q)
            && let Some(mp) = q.getq(cx)
        {
            self.take(cx, q, mp);
        }
    }

    /// There is room above again: the peer may go on.
    fn rsrv(&self, cx: &Kernel, _: &Q) {
        if let Some(q) = self.1.peer().and_then(|peer| peer.q.upgrade()) {
            q.write_side().qenable(cx);
        }
    }

    fn close(&self, cx: &Kernel, _: &Q) {
        self.0.ends.borrow_mut().retain(|end| !Rc::ptr_eq(end, &self.1));
        let asking = self.1.asking.take();
        for (_, asking) in asking {
            if let Some(asking) = asking.upgrade() {
                asking.disconnected(cx, (Errno::ECONNREFUSED.0, NO_SEQUENCE), None);
            }
        }
        self.let_go(cx, 0, None);
    }
}
