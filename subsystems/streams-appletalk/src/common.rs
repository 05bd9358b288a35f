//! Parts that the multiplexors of this crate share.

use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_core::Kernel;
use xk_core::reason::{self, Reason};
use xk_core::time::Time;
use xk_streams::tpi::{Multiplexor, Primitive, Refusal, TliError, own_end};
use xk_streams::{Kind, Mblk, Module, ModuleInfo, Q, Services, TimerId};

/// The time of the machines, and one timer for what they have to do next.
#[derive(Default)]
pub(crate) struct Clock(Cell<Option<(Duration, TimerId)>>);

impl Clock {
    /// The time as the machines have it.
    pub(crate) fn now(cx: &Kernel) -> Duration {
        cx.now().since(Time::ZERO)
    }

    /// Sets the timer of `q` for this time, unless it goes off before.
    pub(crate) fn set(&self, cx: &Kernel, q: &Q, at: Duration) {
        if let Some((due, timer)) = self.0.get() {
            if due <= at {
                return;
            }
            q.untimeout(cx, timer);
        }
        let timer = q.timeout(cx, at.saturating_sub(Self::now(cx)), 0);
        self.0.set(timer.map(|timer| (at, timer)));
    }

    /// The timer went off.
    pub(crate) fn went_off(&self) {
        self.0.set(None);
    }
}

/// The number of T_OPTMGMT_REQ.
const OPTMGMT_REQ: u32 = 9;

/// The kernel's random numbers as the machines want them.
pub(crate) fn random(cx: &Kernel) -> impl FnMut() -> u32 + '_ {
    || cx.random().next_u32()
}

/// A multiplexor over one stream of datagrams of AppleTalk: what is its own.
pub(crate) trait OverDdp: Multiplexor<User = User> {
    /// A datagram has come, to this socket of this node where the stream below is bound to none.
    ///
    /// # Errors
    /// Why it is dropped.
    fn arrived(
        &self,
        cx: &Kernel,
        ends: (AtAddr, Option<u8>),
        data: Mblk,
    ) -> Result<(), &'static Reason>;

    /// The stream below has this address by now.
    fn bound(&self, cx: &Kernel, me: AtAddr) {
        let _ = (cx, me);
    }

    /// The stream below knows this router, or none.
    fn routed(&self, router: Option<AtAddr>) {
        let _ = router;
    }

    /// The stream below has answered a T_OPTMGMT_REQ: with options, or by a refusal.
    fn managed(&self, cx: &Kernel, answer: Result<&[u8], Refusal>) {
        let _ = cx;
        if answer.is_err() {
            self.count(&reason::PROHIBITED);
        }
    }

    /// The timer of the pair below went off.
    fn tick(&self, cx: &Kernel) {
        let _ = cx;
    }

    /// Answers an M_IOCTL of links; a stream that is linked is bound to this socket, 0 for all of
    /// the protocol's type.
    fn link(&self, cx: &Kernel, q: &Q, mp: Mblk, socket: u8) {
        if !self.mux().below.ioctl(cx, q, mp) {
            return;
        }
        let at = AtAddr::new(0, 0, socket).to_sockaddr();
        let addr: &[u8] = if socket == 0 { &[] } else { &at };
        if let Err(reason) = self.mux().below.request(cx, Primitive::BindReq { addr, conind: 0 }) {
            self.count(reason);
        }
    }
}

/// The pair that the stream below has for a head.
pub(crate) struct Lower<P>(pub(crate) Rc<P>);

impl<P: OverDdp> Module for Lower<P> {
    fn info(&self) -> ModuleInfo {
        P::INFO
    }

    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn rput(&self, cx: &Kernel, _: &Q, mut mp: Mblk) {
        match mp.kind() {
            Kind::Proto => {
                let ends = match Primitive::of(&mp) {
                    Ok(Primitive::UnitdataInd { src, opt }) => {
                        let own = own_end(opt).0.and_then(|own| AtAddr::from_sockaddr(own));
                        AtAddr::from_sockaddr(src).map(|src| (src, own.map(|own| own.socket)))
                    }
                    _ => None,
                };
                if let (Some(ends), Some(data)) = (ends, mp.unlinkb())
                    && let Err(reason) = self.0.arrived(cx, ends, data)
                {
                    self.0.count(reason);
                }
            }
            Kind::PcProto => match Primitive::of(&mp) {
                Ok(Primitive::BindAck { addr, .. }) => {
                    if let Some(me) = AtAddr::from_sockaddr(addr) {
                        self.0.bound(cx, me);
                    }
                }
                Ok(Primitive::AddrAck { local, remote }) => {
                    self.0.routed(AtAddr::from_sockaddr(remote));
                    if let Some(me) = AtAddr::from_sockaddr(local) {
                        self.0.bound(cx, me);
                    }
                }
                Ok(Primitive::OptmgmtAck { opt, .. }) => self.0.managed(cx, Ok(opt)),
                Ok(Primitive::ErrorAck { prim: OPTMGMT_REQ, refusal }) => {
                    self.0.managed(cx, Err(refusal));
                }
                Ok(Primitive::ErrorAck { .. }) => self.0.count(&reason::PROHIBITED),
                _ => {}
            },
            Kind::Hangup | Kind::Error => self.0.mux().below.gone(),
            _ => {}
        }
    }

    /// There is room below again.
    fn wsrv(&self, cx: &Kernel, _: &Q) {
        self.0.mux().users.enable(cx);
    }

    fn timer(&self, cx: &Kernel, _: &Q, _: u64) {
        self.0.tick(cx);
    }
}

/// State of a user.
#[derive(Default)]
pub(crate) struct User {
    /// The socket that it is bound to.
    pub(crate) socket: Option<u8>,
    /// The peer that it sent to last.
    pub(crate) to: Option<AtAddr>,
}

/// The socket of a bind request; 0 for any.
pub(crate) fn socket_of(addr: &[u8]) -> Result<u8, TliError> {
    if addr.iter().all(|octet| *octet == 0) {
        return Ok(0);
    }
    AtAddr::from_sockaddr(addr).map(|at| at.socket).ok_or(TliError::TBADADDR)
}
