//! The means of a side at which programs come and go, each with a port of its own, looked after by
//! one wire.

use alloc::rc::Rc;
use xk_core::control::Question;
use xk_core::object::ProtocolId;
use xk_core::{Ask, Kernel, ProtocolRef};

use crate::frame::Op;
use crate::imports::Facts;
use crate::port::{Port, Target};
use crate::proxies::UpperProxy;

/// Adds what stands in `cx` for the protocol `of` of a program that comes and goes, which lies
/// above: under the number that it has there, until [`Kernel::remove_guest`]. `None` if the number
/// is taken.
pub fn guest_proxy(
    cx: &Kernel,
    port: &Rc<Port>,
    of: ProtocolId,
    kind: &'static str,
    name: &str,
) -> Option<ProtocolRef> {
    let body = UpperProxy::new(port, of);
    let proxy = cx.add_guest(of, kind, name, body)?;
    port.uppers.borrow_mut().push((of, proxy.clone()));
    Some(proxy)
}

impl Port {
    /// Lets the other side use a protocol of this one under a number that both know, which need not
    /// be the protocol's own.
    pub fn grant_as(&self, number: ProtocolId, protocol: &ProtocolRef) {
        self.granted.borrow_mut().push((number, protocol.clone()));
    }

    /// Puts a question to a protocol of the other side for which nothing need stand here. `None` if
    /// it is not answered.
    pub fn ask_of<Q: Question>(&self, cx: &Kernel, of: ProtocolId, mut question: Q) -> Option<Q> {
        let target = Target { op: Op::AskProtocol, number: of.0, protocol: of };
        let answer = self.ask(cx, target, &Facts::default(), &mut Ask::new(&mut question));
        answer.is_answered().then_some(question)
    }

    /// Has what no session here is to blame for counted at `wire`, which calls
    /// [`timeout`](Self::timeout) when a timer of `tag` goes off.
    pub fn stand_at(&self, wire: &ProtocolRef, tag: u64) {
        *self.wire.borrow_mut() = Some(wire.clone());
        self.tag.set(tag);
    }

    /// True once the other side is gone, though what it sent before may still be there. Looks for
    /// that at once.
    pub fn is_left(&self, cx: &Kernel) -> bool {
        // Otherwise the last look may be of before.
        self.carrier().woken();
        self.is_lost() || self.carrier().is_lost(cx)
    }
}
