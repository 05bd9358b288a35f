//! The part of a provider of datagrams that is every such provider's: requests, states,
//! acknowledgements, waiting for room below.

use super::{
    Event, FormatError, Info, Primitive, Refusal, State, TliError, error_ack, ok_ack, uderror_ind,
};
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use crate::head;
use crate::module::{Module, ModuleInfo, Services};
use crate::queue::{Q, What};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::Cell;
use xk_core::{Kernel, Reason, reason};

/// Why a datagram is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The datagram is dropped, and counted by [`Datagrams::told`]; the user is told by
    /// T_UDERROR_IND, with this number.
    Told(Errno),
    /// The datagram is dropped, and counted by the provider.
    Dropped,
}

/// Work that a provider of datagrams does itself; [`Endpoint`] does the rest. `q` is the read queue
/// of the endpoint's stream.
pub trait Datagrams {
    /// The name and marks of the driver.
    fn module(&self) -> ModuleInfo;

    /// Contents of T_INFO_ACK, but for the state.
    fn info(&self) -> Info;

    /// Binds the endpoint to an address, any if it is empty; answers the one that it has.
    ///
    /// # Errors
    /// What T_ERROR_ACK says.
    fn bind(&self, cx: &Kernel, q: &Q, addr: &[u8], conind: u32) -> Result<Vec<u8>, Refusal>;

    /// The endpoint is no longer bound.
    fn unbind(&self, cx: &Kernel, q: &Q);

    /// Sends a datagram from the endpoint; `parts` are the address and the options, `data` the
    /// blocks behind the control part.
    ///
    /// # Errors
    /// [`SendError`].
    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        parts: (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError>;

    /// Counts a datagram that is dropped and of which its user is told. T_UNITDATA_REQ has no
    /// answer, and a user that sends no more hears of no error.
    fn told(&self, reason: &'static Reason);

    /// Whether there is room below for one more; if not, the endpoint's write queue is enabled when
    /// there is ([`Q::qenable`]).
    fn has_room(&self, cx: &Kernel) -> bool {
        let _ = cx;
        true
    }

    /// Answers a request about options.
    ///
    /// # Errors
    /// What T_ERROR_ACK says.
    fn manage(&self, cx: &Kernel, q: &Q, opt: &[u8], flags: u32) -> Result<Vec<u8>, Refusal> {
        let _ = (cx, q, opt, flags);
        Err(TliError::TNOTSUPPORT.into())
    }

    /// A datagram comes back that the user does not want: M_CTL with T_UDERROR_IND in front of it.
    /// The default drops it; a provider that can tells its sender.
    fn given_back(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        let _ = (cx, q, mp);
    }

    /// The address that the endpoint is bound to.
    fn local(&self, q: &Q) -> Vec<u8> {
        let _ = q;
        Vec::new()
    }

    /// The other end in T_ADDR_ACK: empty, or what the provider has to tell, such as a router.
    fn remote(&self, q: &Q) -> Vec<u8> {
        let _ = q;
        Vec::new()
    }

    /// Handles an M_IOCTL; the default refuses it.
    fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        q.putnext(cx, head::naked(mp, Errno::EINVAL));
    }

    /// A timer of the endpoint's queue went off.
    fn timer(&self, cx: &Kernel, q: &Q, arg: u64) {
        let _ = (cx, q, arg);
    }

    /// The stream is closed: the endpoint was unbound before.
    fn close(&self, cx: &Kernel, q: &Q) {
        let _ = (cx, q);
    }
}

/// One open stream of a provider of datagrams: the driver's module.
pub struct Endpoint<D> {
    provider: Rc<D>,
    state: Cell<State>,
}

impl<D: Datagrams + 'static> Endpoint<D> {
    /// An unbound endpoint of this provider.
    pub fn new(provider: Rc<D>) -> Rc<Self> {
        Rc::new(Self { provider, state: Cell::new(State::Unbnd) })
    }

    /// The provider.
    pub fn provider(&self) -> &Rc<D> {
        &self.provider
    }

    /// The state of the endpoint.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// Takes an event if the state allows it.
    fn step(&self, event: Event) -> bool {
        let next = self.state.get().after(event);
        if let Some(next) = next {
            self.state.set(next);
        }
        next.is_some()
    }

    /// Answers with this message, or drops the request if the pool is exhausted: the user asks
    /// again.
    fn reply(&self, cx: &Kernel, q: &Q, mp: Option<Mblk>) {
        if let Some(mp) = mp {
            q.read_side().putnext(cx, mp);
        }
    }

    fn refuse(&self, cx: &Kernel, q: &Q, prim: u32, refusal: impl Into<Refusal>) {
        let answer = error_ack(q.blocks(), prim, refusal);
        self.reply(cx, q, answer);
    }

    /// The stream can go no further: M_ERROR with EPROTO.
    fn fail(&self, cx: &Kernel, q: &Q) {
        let code = Errno::EPROTO.0 as u8;
        let error = q.blocks().copy(Kind::Error, 0, &[code, code]);
        self.reply(cx, q, error);
    }

    /// Takes a control part with what is behind it. `q` is the write queue.
    fn request(&self, cx: &Kernel, q: &Q, mut mp: Mblk) {
        let data = mp.unlinkb();
        match Primitive::of(&mp) {
            Ok(Primitive::UnitdataReq { dest, opt }) => self.send(cx, q, dest, opt, data),
            Ok(primitive) => self.control(cx, q, primitive),
            Err(FormatError::Unknown) => {
                let number = mp.octets().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
                self.refuse(cx, q, number, TliError::TNOTSUPPORT);
            }
            Err(_) => self.malformed(cx, q, &mp),
        }
    }

    #[cold]
    fn malformed(&self, cx: &Kernel, q: &Q, mp: &Mblk) {
        match mp.octets().first_chunk().map(|word| u32::from_le_bytes(*word)) {
            // Nothing acknowledges data, and the user is told of a bad address.
            Some(8) => {
                self.provider.told(&reason::MALFORMED);
                let told = uderror_ind(q.blocks(), &[], &[], TliError::TBADADDR.0);
                self.reply(cx, q, told);
            }
            Some(prim @ (6 | 9)) => self.refuse(cx, q, prim, Errno::EINVAL),
            Some(prim) => self.refuse(cx, q, prim, Errno::EPROTO),
            None => self.fail(cx, q),
        }
    }

    fn send(&self, cx: &Kernel, q: &Q, dest: &[u8], opt: &[u8], data: Option<Mblk>) {
        if self.state.get() != State::Idle {
            return self.fail(cx, q);
        }
        match self.provider.send(cx, &q.read_side(), (dest, opt), data) {
            Ok(()) | Err(SendError::Dropped) => {}
            Err(SendError::Told(error)) => {
                self.provider.told(error.into());
                let told = uderror_ind(q.blocks(), dest, opt, error.0);
                self.reply(cx, q, told);
            }
        }
    }

    fn control(&self, cx: &Kernel, q: &Q, primitive: Primitive<'_>) {
        let (prim, blocks, read) = (primitive.number(), q.blocks(), q.read_side());
        let event = match primitive {
            Primitive::InfoReq => {
                let info = Info { state: self.state.get(), ..self.provider.info() };
                return self.reply(cx, q, Primitive::InfoAck(info).emit(blocks));
            }
            Primitive::AddrReq => {
                let (local, remote) = (self.provider.local(&read), self.provider.remote(&read));
                let answer = Primitive::AddrAck { local: &local, remote: &remote };
                return self.reply(cx, q, answer.emit(blocks));
            }
            Primitive::BindReq { .. } => Event::BindReq,
            Primitive::UnbindReq => Event::UnbindReq,
            Primitive::OptmgmtReq { .. } => Event::OptmgmtReq,
            // Data of connections, and releases, can be acknowledged by nothing.
            Primitive::DataReq { .. } | Primitive::ExdataReq { .. } | Primitive::OrdrelReq => {
                return self.fail(cx, q);
            }
            _ => return self.refuse(cx, q, prim, TliError::TNOTSUPPORT),
        };
        if !self.step(event) {
            return self.refuse(cx, q, prim, TliError::TOUTSTATE);
        }
        let answer = match primitive {
            Primitive::BindReq { addr, conind } => {
                let bound = self.provider.bind(cx, &read, addr, conind);
                bound.map(|addr| {
                    self.step(Event::BindAck);
                    Primitive::BindAck { addr: &addr, conind: 0 }.emit(blocks)
                })
            }
            Primitive::OptmgmtReq { opt, flags } => {
                self.provider.manage(cx, &read, opt, flags).map(|opt| {
                    self.step(Event::OptmgmtAck);
                    Primitive::OptmgmtAck { opt: &opt, flags }.emit(blocks)
                })
            }
            _ => {
                self.provider.unbind(cx, &read);
                self.step(Event::OkAck1);
                // What has come for the address is for the user no more.
                read.flushq(cx, What::Data);
                let flush = blocks.copy(Kind::Flush, 0, &[crate::queue::FLUSHRW]);
                self.reply(cx, q, flush);
                Ok(ok_ack(blocks, prim))
            }
        };
        match answer {
            Ok(answer) => self.reply(cx, q, answer),
            Err(refusal) => {
                self.step(Event::ErrorAck);
                self.refuse(cx, q, prim, refusal);
            }
        }
    }
}

impl<D: Datagrams + 'static> Module for Endpoint<D> {
    fn info(&self) -> ModuleInfo {
        self.provider.module()
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Proto if q.qsize() == 0 && self.provider.has_room(cx) => self.request(cx, q, mp),
            Kind::Proto => q.putq(cx, mp),
            Kind::PcProto => self.request(cx, q, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            Kind::Ctl => self.provider.given_back(cx, &q.read_side(), mp),
            Kind::Ioctl => self.provider.ioctl(cx, &q.read_side(), mp),
            // Datagrams go to an address: data without one is an error of the user.
            Kind::Data => self.fail(cx, q),
            _ => q.core().count_loss(mp),
        }
    }

    fn wsrv(&self, cx: &Kernel, q: &Q) {
        while self.provider.has_room(cx)
            && let Some(mp) = q.getq(cx)
        {
            self.request(cx, q, mp);
        }
    }

    fn timer(&self, cx: &Kernel, q: &Q, arg: u64) {
        self.provider.timer(cx, q, arg);
    }

    fn close(&self, cx: &Kernel, q: &Q) {
        if self.state.get() == State::Idle {
            self.provider.unbind(cx, &q.read_side());
        }
        self.state.set(State::Unbnd);
        self.provider.close(cx, &q.read_side());
    }

    fn any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
