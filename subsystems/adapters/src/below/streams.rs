//! The lower half in STREAMS: for each door a stream on the line below, whose head's place it has.
//! It is a user of the transport provider interface.

use super::bsd::DOORS_MAX;
use crate::edge::{Below, Door, Edge, Ends, Fault, Options, Sink, Unwanted, remove};
use crate::form::{Addr, Form};
use crate::parcel::Parcel;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::ProtocolId;
use xk_core::{Kernel, reason};
use xk_streams::module::{ModuleInfo, Services};
use xk_streams::queue::{FLUSHR, FLUSHW};
use xk_streams::tpi::{Primitive, Refusal, TliError, own_end, unitdata_req, with_own_end};
use xk_streams::{Errno, Kind, Mblk, Module, Q, Streams};

/// Octets that wait in a stream for room ahead, at most.
const WAITING_MAX: usize = 65_536;

fn fault_of(refusal: Refusal) -> Fault {
    match refusal.tli {
        TliError::TBADADDR => Fault::Address,
        TliError::TNOADDR => Fault::InUse,
        TliError::TSYSERR => refusal.unix.into(),
        _ => Fault::NotSupported,
    }
}

/// The half.
pub(crate) struct OnStreams(Rc<Half>);

struct Half {
    streams: Rc<Streams>,
    edge: Rc<Edge>,
    form: &'static Form,
    doors: RefCell<Vec<Rc<StreamDoor>>>,
}

impl OnStreams {
    /// On the line below. None if that is not of the subsystem.
    pub(crate) fn new(streams: &Rc<Streams>, edge: &Rc<Edge>) -> Option<Self> {
        streams.line(edge.lower.id())?;
        let (streams, edge) = (Rc::clone(streams), Rc::clone(edge));
        Some(Self(Rc::new(Half { streams, form: edge.form, edge, doors: RefCell::default() })))
    }
}

impl Below for OnStreams {
    fn open(
        &self,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<dyn Door>, Fault> {
        let half = &self.0;
        if half.doors.borrow().len() >= DOORS_MAX {
            return Err(Fault::NoBuffers);
        }
        let door = Rc::new(StreamDoor {
            half: Rc::clone(half),
            q: RefCell::default(),
            asked: local,
            bound: Cell::new(None),
            tsdu: Cell::new(None),
            sink,
        });
        let top = Rc::new(Head(Rc::downgrade(&door)));
        let q = half.streams.attach_line(cx, selector, half.edge.lower.id(), top)?;
        *door.q.borrow_mut() = Some(q);
        if let Err(fault) = door.bind(cx) {
            door.detach(cx);
            return Err(fault);
        }
        half.doors.borrow_mut().push(Rc::clone(&door));
        Ok(door)
    }

    fn max_packet(&self, _: &Kernel) -> Option<u32> {
        let doors = self.0.doors.borrow();
        let of = |door: &Rc<StreamDoor>| {
            let taken = match self.0.form.is_link() {
                true => Form::link_octets(Form::link_parts(&door.local_addr()).1),
                false => 0,
            };
            Some(door.tsdu.get()?.saturating_sub(taken as u32))
        };
        doors.iter().filter_map(of).min()
    }

    fn local_to(&self, _: &Kernel, _: &Addr) -> Option<Addr> {
        let doors = self.0.doors.borrow();
        let mut bound = doors.iter().filter_map(|door| door.bound.get()?.ok());
        bound.find(|addr| !addr.is_any())
    }

    fn stop(&self, cx: &Kernel) {
        let doors = self.0.doors.take();
        for door in doors {
            door.detach(cx);
        }
    }
}

struct StreamDoor {
    half: Rc<Half>,
    /// The write queue in the place of the head.
    q: RefCell<Option<Q>>,
    asked: Addr,
    /// The provider's answer to the request to bind.
    bound: Cell<Option<Result<Addr, Fault>>>,
    /// The largest datagram.
    tsdu: Cell<Option<u32>>,
    sink: Rc<dyn Sink>,
}

impl StreamDoor {
    /// Asks the provider for its sizes and for the address. It answers at once, or when the queues
    /// are served.
    fn bind(&self, cx: &Kernel) -> Result<(), Fault> {
        let q = self.q.borrow().clone().ok_or(Fault::Closed)?;
        let blocks = self.half.streams.blocks();
        let info = Primitive::InfoReq.emit(blocks).ok_or(Fault::NoBuffers)?;
        q.putnext(cx, info);
        let octets = self.asked.to_tpi();
        let addr = if self.asked.is_any() { &[][..] } else { &octets[..] };
        let bind = Primitive::BindReq { addr, conind: 0 }.emit(blocks);
        q.putnext(cx, bind.ok_or(Fault::NoBuffers)?);
        if self.bound.get().is_none() {
            self.half.streams.run_queues(cx);
        }
        self.bound.get().unwrap_or(Err(Fault::Closed)).map(|_| ())
    }

    fn detach(&self, cx: &Kernel) {
        let q = self.q.take();
        if let Some(q) = q {
            self.half.streams.detach(cx, &q);
        }
    }

    /// Takes a message of the provider's.
    fn take(&self, cx: &Kernel, mut mp: Mblk) {
        let data = mp.unlinkb();
        match Primitive::of(&mp) {
            Ok(Primitive::UnitdataInd { src, opt }) => self.indication(cx, (src, opt), data),
            Ok(Primitive::UderrorInd { dest, opt, error }) => {
                let to = Addr::parse(dest).unwrap_or(self.half.form.any());
                let (_, rest) = own_end(opt);
                self.sink.fault(cx, &to, Errno(error).into(), rest.first_chunk());
            }
            Ok(Primitive::BindAck { addr, .. }) => {
                let addr = Addr::parse(addr).unwrap_or(self.asked);
                self.bound.set(Some(Ok(addr)));
            }
            Ok(Primitive::ErrorAck { refusal, .. }) if self.bound.get().is_none() => {
                self.bound.set(Some(Err(fault_of(refusal))));
            }
            Ok(Primitive::InfoAck(info)) => {
                self.tsdu.set(Some(info.tsdu).filter(|tsdu| *tsdu < u32::MAX - 1));
            }
            Ok(Primitive::OkAck { .. } | Primitive::ErrorAck { .. }) => {}
            _ => self.half.edge.count(&reason::NOT_SUPPORTED),
        }
    }

    fn indication(&self, cx: &Kernel, (src, opt): (&[u8], &[u8]), data: Option<Mblk>) {
        let Some(from) = Addr::parse(src) else {
            return self.half.edge.count(&reason::MALFORMED);
        };
        // On a stream that is bound to all addresses the options begin with the one it came for.
        let (own, rest) = own_end(opt);
        let to = own.and_then(|own| Addr::parse(own)).unwrap_or_else(|| self.local_addr());
        let options = rest.first_chunk().copied();
        let data = data.or_else(|| self.half.streams.blocks().copy(Kind::Data, 0, &[]));
        let Some(data) = data else {
            return self.half.edge.count(&reason::NO_BUFFERS);
        };
        let is_for_many = self.half.form.is_link() && to.data()[0] & 1 != 0;
        let ends = Ends { options, is_for_many, ..Ends::new(from, to) };
        // What comes back was counted above.
        if let Err(Unwanted { why, parcel: None }) =
            self.sink.arrive(cx, &ends, Parcel::Blocks(data))
        {
            self.half.edge.count(why);
        }
    }

    fn local_addr(&self) -> Addr {
        self.bound.get().and_then(Result::ok).unwrap_or(self.asked)
    }
}

impl Door for StreamDoor {
    fn send(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Fault> {
        let q = self.q.borrow().clone().ok_or(Fault::Closed)?;
        let is_clear = q.qsize() == 0 && q.canputnext();
        if !is_clear && q.count() >= WAITING_MAX {
            return Err(Fault::QueueFull);
        }
        let blocks = self.half.streams.blocks();
        let data = parcel.into_blocks(blocks, &self.half.edge.down)?;
        let mut room = [0; 32];
        // One by port is bound to one address, whichever that is.
        let is_bound_to_all = self.asked.is_any() && !self.half.form.is_by_port;
        let opt = options_of(&mut room, &ends.from, is_bound_to_all, &ends.options);
        let request = unitdata_req(blocks, &ends.to.to_tpi(), opt, data);
        let request = request.ok_or(Fault::NoBuffers)?;
        if is_clear {
            q.putnext(cx, request);
        } else {
            q.putq(cx, request);
        }
        Ok(())
    }

    fn local(&self, _: &Kernel) -> Addr {
        self.local_addr()
    }

    fn close(&self, cx: &Kernel) {
        remove(&self.half.doors, self);
        self.detach(cx);
    }
}

/// The options of a primitive: the address of our end, on a stream that is bound to all, and those
/// of the message.
pub(crate) fn options_of<'a>(
    room: &'a mut [u8; 32],
    own: &Addr,
    is_bound_to_all: bool,
    options: &'a Option<Options>,
) -> &'a [u8] {
    match (is_bound_to_all, options) {
        (false, None) => &[],
        (false, Some(options)) => options,
        (true, options) => {
            let options = options.as_ref().map_or(&[][..], |options| options);
            with_own_end(room, &own.to_tpi(), options).unwrap_or_default()
        }
    }
}

/// Module in the place of the stream's head. Its write queue holds messages that wait for room
/// ahead.
struct Head(Weak<StreamDoor>);

impl Module for Head {
    fn info(&self) -> ModuleInfo {
        ModuleInfo::new(0, "adapter")
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn rput(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let Some(door) = self.0.upgrade() else { return };
        match mp.kind() {
            Kind::Proto | Kind::PcProto => door.take(cx, mp),
            // As a head does: the read side ends here, and the write side is turned round.
            Kind::Flush => {
                let bits = mp.octets().first().copied().unwrap_or(0);
                if bits & FLUSHW != 0
                    && let Some(first) = mp.octets_mut().and_then(|octets| octets.first_mut())
                {
                    *first &= !FLUSHR;
                    q.write_side().putnext(cx, mp);
                }
            }
            Kind::Error | Kind::Hangup => {
                door.detach(cx);
                door.sink.gone(cx);
            }
            _ => door.half.edge.count(&reason::NOT_SUPPORTED),
        }
    }
}
