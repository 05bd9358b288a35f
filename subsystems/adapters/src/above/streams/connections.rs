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
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, Message};
use xk_kit::net::stream::{StreamError, StreamEvent};
use xk_streams::module::{ModuleInfo, Opening, Services};
use xk_streams::queue::{FLUSHRW, WeakQ, What};
use xk_streams::tpi::{
    Event, Info, NO_SIZE, Primitive, Refusal, Service, State, TliError, error_ack, with_data,
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
/// Largest number of blocks of a message that goes up, and octets of its primitive.
const NEED: (usize, usize) = (2, 64);

/// The error number that users see.
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
    /// Peers that ask for a connection, by their numbers.
    asking: RefCell<Vec<(u32, Rc<Line>)>>,
    line: RefCell<Option<Rc<Line>>>,
    /// Part of the user's message that has not gone down yet.
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
    /// Messages that have not gone up yet.
    arrived: RefCell<VecDeque<Message>>,
    is_connected: Cell<bool>,
    /// The peer sends no more.
    is_ended: Cell<bool>,
    /// Error with which the stream broke, until the user is told.
    broken: Cell<Option<Errno>>,
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
            broken: Cell::new(None),
        })
    }

    fn circuit(&self) -> Option<Rc<dyn Circuit>> {
        self.circuit.borrow().clone()
    }

    /// Keeps a message that found no blocks, to go up later: a slice at a time, since a message of
    /// more slices than there will ever be blocks would never go.
    fn put_back(&self, mut message: Message) {
        let mut arrived = self.arrived.borrow_mut();
        if message.single_slice().is_none()
            && let Ok(first) = message.split_front(message.front_slice().len())
        {
            arrived.push_front(message);
            message = first;
        }
        arrived.push_front(message);
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
                line.broken.set(Some(errno_of(error)));
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
            _ => end.up(cx),
        }
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

    fn line(&self) -> Option<Rc<Line>> {
        self.line.borrow().clone()
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
        while let Some((seq, error)) = self.asking_broken() {
            let told = Primitive::DisconInd { reason: error.0, seq }.emit(blocks)?;
            drop(self.take_asking(seq));
            let is_last = self.asking.borrow().is_empty();
            if self.step(if is_last { Event::DisconInd2 } else { Event::DisconInd3 }) {
                q.putnext(cx, told);
            }
        }
        let Some(line) = self.line() else { return Some(()) };
        if let Some(error) = line.broken.get() {
            let told = Primitive::DisconInd { reason: error.0, seq: NO_SEQUENCE }.emit(blocks)?;
            if self.state.get() != State::WconCreq {
                self.flush(cx, q)?;
            }
            drop(self.line.take());
            if self.step(Event::DisconInd1) {
                q.putnext(cx, told);
            }
            return Some(());
        }
        if line.is_connected.get() && self.may(Event::ConnCon) {
            let res = &line.peer.get().to_tpi();
            let told = Primitive::ConnCon { res, opt: &[] }.emit(blocks)?;
            self.step(Event::ConnCon);
            if let Some(circuit) = line.circuit() {
                self.local.set(circuit.ends(cx).0);
            }
            q.putnext(cx, told);
        }
        while self.may(Event::DataInd) && !line.arrived.borrow().is_empty() {
            if !q.canputnext() {
                // The read queue is served when there is room again.
                return Some(());
            }
            let front = Primitive::DataInd { more: false }.emit(blocks)?;
            let message = line.arrived.borrow_mut().pop_front()?;
            let octets = message.len();
            let lent = blocks.lend_message(message);
            let data = lent.map_err(|message| line.put_back(message)).ok()?;
            q.putnext(cx, with_data(front, Some(data)));
            if let Some(circuit) = line.circuit() {
                circuit.consumed(cx, octets);
            }
        }
        let is_at_end = line.is_ended.get() && line.arrived.borrow().is_empty();
        if is_at_end && self.may(Event::OrdrelInd) {
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
            let line = self.line.take();
            if let Some(line) = line {
                line.close(cx);
            }
        }
    }

    /// One that asked and has broken.
    fn asking_broken(&self) -> Option<(u32, Errno)> {
        let asking = self.asking.borrow();
        asking.iter().find_map(|(seq, line)| line.broken.get().map(|error| (*seq, error)))
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
                q.write_side().bufcall(cx, NEED);
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
            (end.asking.borrow().len() as u32) < end.conind.get() && end.may(Event::ConnInd)
        })
    }

    fn accept(
        &self,
        cx: &Kernel,
        circuit: Rc<dyn Circuit>,
    ) -> Result<Rc<dyn User>, &'static Reason> {
        let (end, provider) = (self.0.upgrade(), self.1.upgrade());
        let (Some(end), Some(provider)) = (end, provider) else { return Err(&reason::CLOSED) };
        let q = end.q.upgrade().ok_or(&reason::CLOSED)?;
        if !self.has_room() {
            return Err(&reason::TABLE_FULL);
        }
        let (_, peer) = circuit.ends(cx);
        let seq = provider.last.get().wrapping_add(1) & !(1 << 31);
        let told = Primitive::ConnInd { src: &peer.to_tpi(), opt: &[], seq }.emit(q.blocks());
        let told = told.ok_or(&reason::NO_BUFFERS)?;
        provider.last.set(seq);
        end.step(Event::ConnInd);
        let line = Line::new(Some(circuit), peer, &end);
        line.is_connected.set(true);
        let user = Rc::new(Hears(Rc::downgrade(&line)));
        end.asking.borrow_mut().push((seq, line));
        q.putnext(cx, told);
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
    /// The stream can go no further.
    fn fail(&self, cx: &Kernel, q: &Q) {
        let code = Errno::EPROTO.0 as u8;
        self.1.put_up(cx, q.blocks().copy(Kind::Error, 0, &[code, code]));
    }

    /// The connection may have ended meanwhile.
    fn fail_unless_idle(&self, cx: &Kernel, q: &Q) {
        if self.1.state.get() != State::Idle {
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
            state: self.1.state.get(),
            ..Info::datagrams(0, ADDRESS_OCTETS, 0)
        }
    }

    /// Takes a control part; its block is freed before the answer is made, which so finds one.
    /// `q` is the write queue.
    fn request(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let data = mp.unlinkb();
        let prim = mp.octets().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let end = &self.1;
        let done = match Primitive::of(&mp) {
            Ok(Primitive::InfoReq) => {
                drop(mp);
                return end.say(cx, Primitive::InfoAck(self.info()));
            }
            Ok(Primitive::AddrReq) => {
                drop(mp);
                let local = end.local.get().to_tpi();
                let remote = end.line().map(|line| line.peer.get().to_tpi());
                let remote = remote.as_ref().map_or(&[][..], |octets| octets);
                return end.say(cx, Primitive::AddrAck { local: &local, remote });
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
                end.step(event);
                // After an unbind or a disconnect.
                if event == Event::OkAck1 && end.state.get() != State::WconCreq {
                    end.flush(cx, q);
                }
                let (addr, conind) = (&end.local.get().to_tpi(), end.conind.get());
                end.say(
                    cx,
                    match event {
                        Event::BindAck => Primitive::BindAck { addr, conind },
                        _ => Primitive::OkAck { prim },
                    },
                );
                end.up(cx);
            }
            Err(refusal) => {
                end.step(Event::ErrorAck);
                end.put_up(cx, error_ack(q.blocks(), prim, refusal));
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
        if !self.1.step(event) {
            return Err(TliError::TOUTSTATE.into());
        }
        match asked {
            _ if data.is_some_and(|data| data.size() > 0) => Err(TliError::TBADDATA.into()),
            Primitive::BindReq { addr, conind } => self.bind(cx, addr, conind),
            Primitive::ConnReq { dest, .. } => self.connect(cx, dest),
            Primitive::ConnRes { acceptor, seq, .. } => self.accept(cx, acceptor, seq),
            Primitive::DisconReq { seq } => self.disconnect(cx, seq),
            _ => {
                self.unbind(cx);
                Ok(Event::OkAck1)
            }
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

    fn bind(&self, cx: &Kernel, addr: &[u8], conind: u32) -> Result<Event, Refusal> {
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
        Ok(Event::BindAck)
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

    fn connect(&self, cx: &Kernel, dest: &[u8]) -> Result<Event, Refusal> {
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
        Ok(Event::OkAck1)
    }

    fn accept(&self, cx: &Kernel, acceptor: u32, seq: u32) -> Result<Event, Refusal> {
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
        if !is_here {
            on.step(Event::PassConn);
            // What has arrived goes up behind the acknowledgement.
            if let Some(q) = on.q.upgrade() {
                q.qenable(cx);
            }
        }
        if let Some(circuit) = line.circuit() {
            on.local.set(circuit.ends(cx).0);
        }
        drop(line.end.replace(Rc::downgrade(&on)));
        drop(on.line.replace(Some(line)));
        Ok(match (is_here, waiting) {
            (true, _) => Event::OkAck2,
            (false, 1) => Event::OkAck3,
            _ => Event::OkAck4,
        })
    }

    fn disconnect(&self, cx: &Kernel, seq: u32) -> Result<Event, Refusal> {
        let end = &self.1;
        if end.state.get() == State::WackDreq7 {
            let waiting = end.asking.borrow().len();
            end.take_asking(seq).ok_or(TliError::TBADSEQ)?.abort(cx);
            return Ok(if waiting == 1 { Event::OkAck3 } else { Event::OkAck4 });
        }
        let line = end.line.take();
        if let Some(line) = line {
            line.abort(cx);
        }
        Ok(Event::OkAck1)
    }

    fn data(&self, cx: &Kernel, q: &Q, data: Option<Mblk>) {
        let end = &self.1;
        if !end.step(Event::DataReq) {
            drop(data);
            return self.fail_unless_idle(cx, q);
        }
        drop(end.unsent.replace(data));
        end.down(cx);
    }

    fn release(&self, cx: &Kernel, q: &Q) {
        let end = &self.1;
        if !end.step(Event::OrdrelReq) {
            return self.fail_unless_idle(cx, q);
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

    /// There is room below, or there are blocks.
    fn wsrv(&self, cx: &Kernel, q: &Q) {
        self.1.down(cx);
        while self.1.has_room(cx)
            && let Some(mp) = q.getq(cx)
        {
            self.take(cx, q, mp);
        }
    }

    /// There is room above again, or there are blocks.
    fn rsrv(&self, cx: &Kernel, _: &Q) {
        self.1.up(cx);
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
