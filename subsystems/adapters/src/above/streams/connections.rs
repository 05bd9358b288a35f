//! A provider of connections with orderly release, where the protocol below carries streams.

use super::{ADDRESS_OCTETS, Half, MODULE};
use crate::circuit::{Circuit, Listener, Streams, User, Wanted};
use crate::edge::{Door, Fault};
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, Message};
use xk_kit::net::stream::{StreamError, StreamEvent};
use xk_streams::module::{ModuleInfo, Opening, Services};
use xk_streams::queue::{FLUSHRW, WeakQ, What};
use xk_streams::tpi::{
    Event, Info, NO_SIZE, Primitive, Refusal, Service, State, TliError, error_ack, ok_ack,
    with_data,
};
use xk_streams::{Errno, Kind, Mblk, Module, Q, Streamtab, head};

/// Connections that may ask at one endpoint at one time, at most.
const CONIND_MAX: u32 = 64;
/// Octets that a user hands over at once.
const CHUNK: usize = 16 << 10;
/// Octets that may have arrived and not gone up to the stream's head.
const UNREAD_MAX: u32 = 64 << 10;
/// No indication is meant.
const NO_SEQUENCE: u32 = u32::MAX;
/// After how long data is sent again for which there were no buffers below.
const AGAIN: Duration = Duration::from_millis(100);

/// What users call it.
fn errno_of(error: StreamError) -> Errno {
    match error {
        StreamError::Refused => Errno::ECONNREFUSED,
        StreamError::Reset => Errno::ECONNRESET,
        StreamError::TimedOut => Errno::ETIMEDOUT,
        StreamError::Network(_) => Errno::EHOSTUNREACH,
        StreamError::Aborted => Errno::ECONNABORTED,
        StreamError::NoBuffers => Errno::ENOSR,
    }
}

/// The driver.
pub(super) struct Connections {
    this: Weak<Self>,
    half: Rc<Half>,
    streams: Rc<dyn Streams>,
    ends: RefCell<Vec<Rc<End>>>,
    /// The last number of an indication.
    last: Cell<u32>,
    port_last: Cell<u16>,
}

/// One endpoint.
struct End {
    q: WeakQ,
    id: usize,
    state: Cell<State>,
    local: Cell<Addr>,
    conind: Cell<u32>,
    listening: RefCell<Option<Rc<dyn Door>>>,
    /// Those that ask for a connection, by their numbers.
    asking: RefCell<Vec<(u32, Rc<Line>)>>,
    line: RefCell<Option<Rc<Line>>>,
    /// What of a message of the user's has not gone down yet.
    unsent: RefCell<Option<Mblk>>,
    is_sending: Cell<bool>,
    /// More wanted to go meanwhile.
    again: Cell<bool>,
}

/// A stream below, from when it is opened.
struct Line {
    circuit: RefCell<Option<Rc<dyn Circuit>>>,
    peer: Cell<Addr>,
    /// The endpoint that has it, or at which it asks.
    end: RefCell<Weak<End>>,
    /// What has not gone up yet.
    arrived: RefCell<VecDeque<Message>>,
    is_connected: Cell<bool>,
    /// The peer sends no more, and the user has been told.
    is_ended: Cell<bool>,
    is_told: Cell<bool>,
}

impl Line {
    fn new(circuit: Option<Rc<dyn Circuit>>, peer: Addr, end: &Rc<End>) -> Rc<Self> {
        Rc::new(Self {
            circuit: RefCell::new(circuit),
            peer: Cell::new(peer),
            end: RefCell::new(Rc::downgrade(end)),
            arrived: RefCell::default(),
            is_connected: Cell::new(false),
            is_ended: Cell::new(false),
            is_told: Cell::new(false),
        })
    }

    fn circuit(&self) -> Option<Rc<dyn Circuit>> {
        self.circuit.borrow().clone()
    }

    fn abort(&self, cx: &Kernel) {
        drop(self.arrived.take());
        let circuit = self.circuit.take();
        if let Some(circuit) = circuit {
            circuit.abort(cx);
        }
    }

    fn close(&self, cx: &Kernel) {
        let circuit = self.circuit.take();
        if let Some(circuit) = circuit {
            circuit.close(cx);
        }
    }
}

/// A stream's half hears of it through this: it does not keep the stream.
struct Hears(Weak<Line>);

impl User for Hears {
    fn arrive(&self, cx: &Kernel, parcel: Parcel) {
        let Some(line) = self.0.upgrade() else { return };
        if let Parcel::Message(message) = parcel {
            line.arrived.borrow_mut().push_back(message);
        }
        let end = line.end.borrow().upgrade();
        if let Some(end) = end {
            end.up(cx);
        }
    }

    fn happened(&self, cx: &Kernel, event: StreamEvent) {
        let Some(line) = self.0.upgrade() else { return };
        let end = line.end.borrow().upgrade();
        match event {
            StreamEvent::Connected => line.is_connected.set(true),
            StreamEvent::EndOfStream => line.is_ended.set(true),
            StreamEvent::Writable => {}
            StreamEvent::Failed(error) => {
                line.close(cx);
                if let Some(end) = end {
                    end.lost(cx, &line, errno_of(error));
                }
                return;
            }
            // What has arrived still goes up.
            StreamEvent::Closed => line.close(cx),
        }
        let Some(end) = end else { return };
        match event {
            StreamEvent::Writable => {
                if let Some(q) = end.q.upgrade() {
                    q.write_side().qenable(cx);
                }
            }
            StreamEvent::Connected => end.confirm(cx),
            _ => end.up(cx),
        }
    }
}

impl End {
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

    fn flush(&self, cx: &Kernel) {
        if let Some(q) = self.q.upgrade() {
            q.write_side().flushq(cx, What::Data);
            self.put_up(cx, q.blocks().copy(Kind::Flush, 0, &[FLUSHRW]));
        }
        drop(self.unsent.take());
    }

    fn line(&self) -> Option<Rc<Line>> {
        self.line.borrow().clone()
    }

    /// The connection that was asked for is there.
    fn confirm(&self, cx: &Kernel) {
        let Some(line) = self.line().filter(|line| line.is_connected.get()) else { return };
        if !self.step(Event::ConnCon) {
            return;
        }
        if let Some(circuit) = line.circuit() {
            self.local.set(circuit.ends(cx).0);
        }
        self.say(cx, Primitive::ConnCon { res: &line.peer.get().to_tpi(), opt: &[] });
        self.up(cx);
    }

    /// Hands up what has arrived, as far as there is room, and the end behind it.
    fn up(&self, cx: &Kernel) {
        let (Some(line), Some(q)) = (self.line(), self.q.upgrade()) else { return };
        while self.state.get().after(Event::DataInd).is_some() && !line.arrived.borrow().is_empty()
        {
            if !q.canputnext() {
                // The read queue is served when there is room again.
                return;
            }
            let front = Primitive::DataInd { more: false }.emit(q.blocks());
            let message = line.arrived.borrow_mut().pop_front();
            let (Some(front), Some(message)) = (front, message) else {
                q.bufcall(cx, 1);
                return;
            };
            let octets = message.len();
            match q.blocks().lend_message(message) {
                Ok(data) => q.putnext(cx, with_data(front, Some(data))),
                Err(message) => {
                    line.arrived.borrow_mut().push_front(message);
                    q.bufcall(cx, 1);
                    return;
                }
            }
            if let Some(circuit) = line.circuit() {
                circuit.consumed(cx, octets);
            }
        }
        let is_at_end = line.is_ended.get() && line.arrived.borrow().is_empty();
        if is_at_end && !line.is_told.get() && self.step(Event::OrdrelInd) {
            line.is_told.set(true);
            self.say(cx, Primitive::OrdrelInd);
            self.end_in_order(cx);
        }
    }

    /// Lets go of the stream if both ends have released it.
    fn end_in_order(&self, cx: &Kernel) {
        if self.state.get() == State::Idle {
            let line = self.line.take();
            if let Some(line) = line {
                line.close(cx);
            }
        }
    }

    /// A stream has broken.
    fn lost(&self, cx: &Kernel, line: &Rc<Line>, error: Errno) {
        let mut asking = self.asking.borrow_mut();
        let at = asking.iter().position(|(_, other)| Rc::ptr_eq(other, line));
        let seq = at.map(|at| asking.remove(at).0);
        let left = asking.len();
        drop(asking);
        let event = match (seq, left) {
            (Some(_), 0) => Event::DisconInd2,
            (Some(_), _) => Event::DisconInd3,
            (None, _) if self.line().is_some_and(|own| Rc::ptr_eq(&own, line)) => Event::DisconInd1,
            _ => return,
        };
        if seq.is_none() {
            drop(self.line.take());
            if self.state.get() != State::WconCreq {
                self.flush(cx);
            }
        }
        if self.step(event) {
            let seq = seq.unwrap_or(NO_SEQUENCE);
            self.say(cx, Primitive::DisconInd { reason: error.0, seq });
        }
    }

    fn take_asking(&self, seq: u32) -> Option<Rc<Line>> {
        let mut asking = self.asking.borrow_mut();
        let at = asking.iter().position(|(number, _)| *number == seq)?;
        Some(asking.remove(at).1)
    }

    /// Whether the next message can be taken down.
    fn has_room(&self, cx: &Kernel) -> bool {
        if self.is_sending.get() {
            self.again.set(true);
            return false;
        }
        if self.unsent.borrow().is_some() {
            return false;
        }
        let circuit = self.line().and_then(|line| line.circuit());
        circuit.is_none_or(|circuit| circuit.space(cx) > 0)
    }

    /// Hands down what is left of a message, as far as there is room.
    fn down(&self, cx: &Kernel) {
        if self.is_sending.replace(true) {
            return self.again.set(true);
        }
        loop {
            let unsent = self.unsent.take();
            let Some(unsent) = unsent else { break };
            let Some(circuit) = self.line().and_then(|line| line.circuit()) else { break };
            match self.part_down(cx, &circuit, unsent) {
                (rest, true) => drop(self.unsent.replace(rest)),
                (rest, false) => {
                    // The stream may have ended meanwhile.
                    if self.line().is_some() {
                        drop(self.unsent.replace(rest));
                    }
                    break;
                }
            }
        }
        self.is_sending.set(false);
        if let Some(q) = self.q.upgrade().filter(|_| self.again.take()) {
            q.write_side().qenable(cx);
        }
    }

    /// Sends the first part; answers what is left, and whether it went.
    fn part_down(
        &self,
        cx: &Kernel,
        circuit: &Rc<dyn Circuit>,
        mut data: Mblk,
    ) -> (Option<Mblk>, bool) {
        let total = data.size();
        let octets = circuit.space(cx).min(total).min(CHUNK);
        if octets == 0 {
            return (Some(data).filter(|_| total > 0), total == 0);
        }
        let again = || {
            if let Some(q) = self.q.upgrade() {
                q.write_side().timeout(cx, AGAIN, 0);
            }
        };
        let front = if octets < total { data.split_front(octets) } else { None };
        let (front, rest) = match front {
            Some(front) => (front, Some(data)),
            None if octets < total => {
                again();
                return (Some(data), false);
            }
            None => (data, None),
        };
        // What does not go is kept.
        let sent = front.dupmsg().ok_or(Fault::NoBuffers);
        let sent = sent.and_then(|front| circuit.send(cx, Parcel::Blocks(front)));
        match (sent, rest) {
            (Ok(()), rest) => (rest, true),
            (Err(_), rest) => {
                again();
                (Some(with_data(front, rest)), false)
            }
        }
    }
}

/// An endpoint that listens.
struct Accepts(Weak<End>, Weak<Connections>);

impl Listener for Accepts {
    fn has_room(&self) -> bool {
        self.0.upgrade().is_some_and(|end| {
            (end.asking.borrow().len() as u32) < end.conind.get()
                && end.state.get().after(Event::ConnInd).is_some()
        })
    }

    fn accept(
        &self,
        cx: &Kernel,
        circuit: Rc<dyn Circuit>,
    ) -> Result<Rc<dyn User>, &'static Reason> {
        let (end, provider) = (self.0.upgrade(), self.1.upgrade());
        let (Some(end), Some(provider)) = (end, provider) else { return Err(&reason::CLOSED) };
        if !self.has_room() || !end.step(Event::ConnInd) {
            return Err(&reason::TABLE_FULL);
        }
        let (_, peer) = circuit.ends(cx);
        let seq = provider.last.get().wrapping_add(1) & !(1 << 31);
        provider.last.set(seq);
        let line = Line::new(Some(circuit), peer, &end);
        line.is_connected.set(true);
        let user = Rc::new(Hears(Rc::downgrade(&line)));
        end.asking.borrow_mut().push((seq, line));
        end.say(cx, Primitive::ConnInd { src: &peer.to_tpi(), opt: &[], seq });
        Ok(user)
    }
}

impl Connections {
    pub(super) fn new(half: &Rc<Half>, streams: Rc<dyn Streams>) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            half: Rc::clone(half),
            streams,
            ends: RefCell::default(),
            last: Cell::new(0),
            port_last: Cell::new(0),
        })
    }
}

impl Streamtab for Connections {
    fn info(&self) -> ModuleInfo {
        MODULE
    }

    fn open(&self, _: &Kernel, q: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
        let provider = self.this.upgrade().ok_or(Errno::ENXIO)?;
        let end = Rc::new(End {
            q: q.downgrade(),
            id: q.id(),
            state: Cell::new(State::Unbnd),
            local: Cell::new(self.half.form.any()),
            conind: Cell::new(0),
            listening: RefCell::default(),
            asking: RefCell::default(),
            line: RefCell::default(),
            unsent: RefCell::default(),
            is_sending: Cell::new(false),
            again: Cell::new(false),
        });
        self.ends.borrow_mut().push(Rc::clone(&end));
        Ok(Rc::new(Driver(provider, end)))
    }
}

/// One stream of the driver.
struct Driver(Rc<Connections>, Rc<End>);

impl Driver {
    fn refuse(&self, cx: &Kernel, q: &Q, prim: u32, refusal: impl Into<Refusal>) {
        self.1.put_up(cx, error_ack(q.blocks(), prim, refusal));
    }

    /// The stream can go no further.
    fn fail(&self, cx: &Kernel, q: &Q) {
        let code = Errno::EPROTO.0 as u8;
        self.1.put_up(cx, q.blocks().copy(Kind::Error, 0, &[code, code]));
    }

    fn info(&self) -> Info {
        Info {
            // A stream of octets, in which units have no ends.
            tsdu: 0,
            etsdu: NO_SIZE,
            tidu: CHUNK as u32,
            service: Service::CotsOrd,
            state: self.1.state.get(),
            ..Info::datagrams(0, ADDRESS_OCTETS, 0)
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
            Primitive::InfoReq => return end.say(cx, Primitive::InfoAck(self.info())),
            Primitive::AddrReq => {
                let local = end.local.get().to_tpi();
                let remote = end.line().map(|line| line.peer.get().to_tpi());
                let remote = remote.as_ref().map_or(&[][..], |octets| octets);
                return end.say(cx, Primitive::AddrAck { local: &local, remote });
            }
            Primitive::DataReq { .. } => return self.data(cx, q, data),
            Primitive::OrdrelReq => return self.release(cx, q),
            Primitive::ExdataReq { .. } | Primitive::UnitdataReq { .. } => {
                return self.fail(cx, q);
            }
            Primitive::BindReq { .. } => Event::BindReq,
            Primitive::UnbindReq => Event::UnbindReq,
            Primitive::ConnReq { .. } => Event::ConnReq,
            Primitive::ConnRes { .. } => Event::ConnRes,
            Primitive::DisconReq { .. } => Event::DisconReq,
            _ => return self.refuse(cx, q, prim, TliError::TNOTSUPPORT),
        };
        if !end.step(event) {
            return self.refuse(cx, q, prim, TliError::TOUTSTATE);
        }
        let done = match primitive {
            _ if data.is_some_and(|data| data.size() > 0) => Err(TliError::TBADDATA.into()),
            Primitive::BindReq { addr, conind } => self.bind(cx, addr, conind),
            Primitive::ConnReq { dest, .. } => self.connect(cx, q, dest),
            Primitive::ConnRes { acceptor, seq, .. } => self.accept(cx, q, (acceptor, seq)),
            Primitive::DisconReq { seq } => self.disconnect(cx, q, seq),
            _ => {
                self.unbind(cx);
                end.step(Event::OkAck1);
                end.flush(cx);
                end.put_up(cx, ok_ack(q.blocks(), prim));
                Ok(())
            }
        };
        if let Err(refusal) = done {
            end.step(Event::ErrorAck);
            self.refuse(cx, q, prim, refusal);
        }
    }

    fn wanted(&self) -> Result<Wanted, Refusal> {
        let selector = self.0.half.upper.get().ok_or(TliError::TNOTSUPPORT)?;
        Ok(Wanted { selector, local: self.1.local.get(), unread_max: UNREAD_MAX })
    }

    fn addr(&self, octets: &[u8]) -> Result<Addr, Refusal> {
        let addr = Addr::parse(octets).filter(|addr| addr.family() == self.0.half.form.family);
        addr.ok_or(TliError::TBADADDR.into())
    }

    fn bind(&self, cx: &Kernel, addr: &[u8], conind: u32) -> Result<(), Refusal> {
        let (end, form) = (&self.1, self.0.half.form);
        let conind = conind.min(CONIND_MAX);
        let any = form.any();
        end.local.set(if addr.is_empty() { any } else { self.addr(addr)? });
        end.conind.set(conind);
        if conind > 0 {
            let done = self.listen(cx);
            if let Err(fault) = done {
                end.local.set(any);
                return Err(match fault {
                    Fault::InUse => TliError::TNOADDR.into(),
                    Fault::Address => TliError::TBADADDR.into(),
                    fault => Errno::from(fault).into(),
                });
            }
        }
        end.step(Event::BindAck);
        end.say(cx, Primitive::BindAck { addr: &end.local.get().to_tpi(), conind });
        Ok(())
    }

    /// Listens at the address of the endpoint; at a free port if it has none.
    fn listen(&self, cx: &Kernel) -> Result<(), Fault> {
        let (end, provider) = (&self.1, &self.0);
        let form = provider.half.form;
        let wanted = self.wanted().map_err(|_| Fault::NotSupported)?;
        let try_at = |local: Addr| {
            let accepts = Rc::new(Accepts(Rc::downgrade(end), provider.this.clone()));
            let wanted = Wanted { local, ..wanted };
            provider.streams.listen(cx, wanted, accepts).map(|door| (local, door))
        };
        let opened = if form.port_number(&wanted.local) != Some(0) {
            try_at(wanted.local)
        } else {
            let (first, last) = form.free_ports().unwrap_or((0, 0));
            let (count, start) = (last - first + 1, provider.port_last.get());
            provider.port_last.set((start + 1) % count);
            let mut each = (0..count).map(|n| {
                let mut local = wanted.local;
                form.set_port(&mut local, first + (start + n) % count);
                try_at(local)
            });
            let found = each.find(|tried| !matches!(tried, Err(Fault::InUse)));
            found.unwrap_or(Err(Fault::InUse))
        };
        let (local, door) = opened?;
        end.local.set(local);
        drop(end.listening.replace(Some(door)));
        Ok(())
    }

    fn unbind(&self, cx: &Kernel) {
        let end = &self.1;
        let listening = end.listening.take();
        if let Some(door) = listening {
            door.close(cx);
        }
        let asking = end.asking.take();
        for (_, line) in asking {
            line.abort(cx);
        }
        end.local.set(self.0.half.form.any());
        end.conind.set(0);
    }

    fn connect(&self, cx: &Kernel, q: &Q, dest: &[u8]) -> Result<(), Refusal> {
        let end = &self.1;
        let peer = self.addr(dest)?;
        if self.0.half.form.port_number(&peer) == Some(0) {
            return Err(TliError::TBADADDR.into());
        }
        let line = Line::new(None, peer, end);
        let user = Rc::new(Hears(Rc::downgrade(&line)));
        let opened = self.0.streams.connect(cx, self.wanted()?, peer, user);
        let circuit = opened.map_err(|fault| match fault {
            Fault::Address => Refusal::from(TliError::TBADADDR),
            fault => Errno::from(fault).into(),
        })?;
        drop(line.circuit.replace(Some(circuit)));
        drop(end.line.replace(Some(line)));
        end.step(Event::OkAck1);
        end.put_up(cx, ok_ack(q.blocks(), 0));
        end.confirm(cx);
        Ok(())
    }

    fn accept(&self, cx: &Kernel, q: &Q, (acceptor, seq): (u32, u32)) -> Result<(), Refusal> {
        let (end, provider) = (&self.1, &self.0);
        let streams = &provider.half.streams;
        let id = streams.driver_of(acceptor).ok_or(TliError::TBADF)?.id();
        let on = provider.ends.borrow().iter().find(|other| other.id == id).cloned();
        let on = on.ok_or(TliError::TBADF)?;
        let waiting = end.asking.borrow().len();
        let is_here = Rc::ptr_eq(&on, end);
        if is_here && waiting != 1 || !is_here && on.state.get().after(Event::PassConn).is_none() {
            return Err(TliError::TOUTSTATE.into());
        }
        let line = end.take_asking(seq).ok_or(TliError::TBADSEQ)?;
        end.step(match (is_here, waiting) {
            (true, _) => Event::OkAck2,
            (false, 1) => Event::OkAck3,
            _ => Event::OkAck4,
        });
        if !is_here {
            on.step(Event::PassConn);
        }
        if let Some(circuit) = line.circuit() {
            on.local.set(circuit.ends(cx).0);
        }
        drop(line.end.replace(Rc::downgrade(&on)));
        drop(on.line.replace(Some(line)));
        end.put_up(cx, ok_ack(q.blocks(), 1));
        on.up(cx);
        Ok(())
    }

    fn disconnect(&self, cx: &Kernel, q: &Q, seq: u32) -> Result<(), Refusal> {
        let end = &self.1;
        if end.state.get() == State::WackDreq7 {
            let waiting = end.asking.borrow().len();
            let line = end.take_asking(seq).ok_or(TliError::TBADSEQ)?;
            end.step(if waiting == 1 { Event::OkAck3 } else { Event::OkAck4 });
            end.put_up(cx, ok_ack(q.blocks(), 2));
            line.abort(cx);
            return Ok(());
        }
        end.step(Event::OkAck1);
        end.flush(cx);
        end.put_up(cx, ok_ack(q.blocks(), 2));
        let line = end.line.take();
        if let Some(line) = line {
            line.abort(cx);
        }
        Ok(())
    }

    fn data(&self, cx: &Kernel, q: &Q, data: Option<Mblk>) {
        let end = &self.1;
        if !end.step(Event::DataReq) {
            // The connection may have ended meanwhile.
            return if end.state.get() == State::Idle { drop(data) } else { self.fail(cx, q) };
        }
        drop(end.unsent.replace(data));
        end.down(cx);
    }

    fn release(&self, cx: &Kernel, q: &Q) {
        let end = &self.1;
        if !end.step(Event::OrdrelReq) {
            return if end.state.get() == State::Idle {
            } else {
                self.fail(cx, q)
            };
        }
        if let Some(circuit) = end.line().and_then(|line| line.circuit()) {
            circuit.shutdown(cx);
        }
        end.end_in_order(cx);
    }

    fn take(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Data => self.data(cx, q, Some(mp)),
            _ => self.request(cx, q, mp),
        }
    }
}

impl Module for Driver {
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
            Kind::Data | Kind::Proto if q.qsize() == 0 && self.1.has_room(cx) => {
                self.take(cx, q, mp);
            }
            Kind::Data | Kind::Proto => q.putq(cx, mp),
            Kind::PcProto => self.request(cx, q, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            Kind::Ioctl => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
            _ => {
                if let Some(this) = self.0.half.this.get() {
                    this.head().drops().count(&reason::NOT_SUPPORTED);
                }
            }
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        self.1.down(cx);
        while self.1.has_room(cx)
            && let Some(mp) = q.getq(cx)
        {
            self.take(cx, q, mp);
        }
    }

    /// There is room above again.
    fn rsrv(&self, cx: &Kernel, _: &Q) {
        self.1.up(cx);
    }

    fn timer(&self, cx: &Kernel, q: &Q, _: u64) {
        self.wsrv(cx, &q.write_side());
    }

    fn close(&self, cx: &Kernel, _: &Q) {
        let end = &self.1;
        self.0.ends.borrow_mut().retain(|other| !Rc::ptr_eq(other, end));
        self.unbind(cx);
        let is_released = end.state.get() == State::WindOrdrel;
        let is_sent = end.unsent.take().is_none();
        let line = end.line.take();
        end.state.set(State::Unbnd);
        if let Some(line) = line {
            // What was released still goes; anything else is broken off.
            if is_released && is_sent { line.close(cx) } else { line.abort(cx) }
        }
    }
}
