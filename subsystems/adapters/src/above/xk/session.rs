//! A session of the upper half: one conversation of a protocol above.

use super::calls;
use super::{Half, Key};
use crate::edge::{Door, Ends, Fault, Options as Octets};
use crate::form::{Addr, Form};
use crate::locals::triple;
use crate::parcel::Parcel;
use alloc::format;
use alloc::rc::Rc;
use core::cell::Cell;
use xk_appletalk::atp::{OptionKind, Options};
use xk_bsd::sockaddr::{AF_APPLETALK, AF_INET};
use xk_core::control::Describe;
use xk_core::object::{CallCause, CallError, Closing, ProtocolId, PushError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, ProtocolRef, Session, SessionRef,
};
use xk_kit::control::{
    MinPacket, MyEther, MyHost, MyPort, NetworkError, NetworkErrorKind, PeerEther, PeerHost,
    PeerPort, PseudoHeader, SpecificDestination,
};
use xk_kit::net::appletalk::DdpEnds;
use xk_kit::net::attribute::Peer;
use xk_kit::net::receivers;
use xk_kit::wire::segments;

pub(crate) struct XkSession {
    pub(super) half: Rc<Half>,
    pub(super) door: Rc<dyn Door>,
    upper: ProtocolRef,
    pub(super) key: Key,
    /// Ends of the messages that it sends.
    pub(super) ends: Ends,
    pub(super) selector: ProtocolId,
    /// True if it uses the door of its port, and gives it back.
    owns_door: bool,
    /// Destination of the packet that made the session, if it was sent to many hosts.
    pub(super) sent_to: Option<Addr>,
    /// Error that the network has reported of an earlier message; the next push returns it.
    told: Cell<Option<Fault>>,
    /// Number of calls that wait for replies.
    pub(super) calls: Cell<usize>,
}

impl XkSession {
    pub(super) fn new(
        half: &Rc<Half>,
        door: Rc<dyn Door>,
        upper: &ProtocolRef,
        (key, ends, selector): (Key, Ends, ProtocolId),
        owns_door: bool,
    ) -> Self {
        half.use_port(&ends.from);
        Self {
            half: Rc::clone(half),
            door,
            upper: upper.clone(),
            key,
            ends,
            selector,
            owns_door,
            sent_to: None,
            told: Cell::new(None),
            calls: Cell::new(0),
        }
    }

    pub(super) fn is_by_port(&self) -> bool {
        self.half.form.is_by_port
    }

    fn host_of(&self, addr: &Addr) -> Option<HostAddr> {
        self.half.form.to_participant(addr).parts().find_map(|part| match part {
            Part::Host(host) => Some(*host),
            _ => None,
        })
    }

    /// Our host, from which messages to the peer go.
    fn host(&self, cx: &Kernel) -> Option<HostAddr> {
        let given = self.host_of(&self.ends.from);
        given.or_else(|| self.host_of(&self.half.below.local_to(cx, &self.ends.to)?))
    }

    /// Destination of arriving packets: a local host, or many hosts.
    fn destination(&self, cx: &Kernel) -> Option<HostAddr> {
        let many = self.sent_to.and_then(|sent_to| self.host_of(&sent_to));
        many.or_else(|| self.host(cx))
    }

    /// The sum over the pseudo-header, where this is a layer of hosts.
    fn pseudo_header(&self, cx: &Kernel) -> Option<PseudoHeader> {
        let number = cx.type_number(self.selector, self.half.edge.lower.id())?;
        let peer = self.host_of(&self.ends.to)?;
        let hosts = [self.destination(cx)?, self.host(cx)?];
        Some(PseudoHeader::new(hosts, peer, number))
    }

    /// Whether addresses are hosts and nothing else.
    fn is_of_hosts(&self) -> bool {
        self.half.form.family == AF_INET && self.port(false).is_none()
    }

    /// Each message says where it goes, and where it came from, as `udp` has it.
    pub(super) fn is_for_any_peer(&self) -> bool {
        self.half.form.family == AF_INET && self.port(true) == Some(0) && self.ends.to.is_any()
    }

    fn addr_of(&self, peer: Peer) -> Option<Addr> {
        let peer = Participant::of(Part::Host(peer.host)).with(Part::port(peer.port));
        self.half.form.to_addr(&peer).ok()
    }

    /// Notes on a message where it came from.
    pub(super) fn note_sender(&self, message: &mut Message, from: &Addr) {
        if let (Some(host), Some(port)) = (self.host_of(from), self.half.form.port_number(from)) {
            // Without room it goes up as one from nowhere, which is refused there.
            let _ = message.set_attribute(Peer { host, port });
        }
    }

    /// Ends those of its calls that have such a number.
    fn end_calls(&self, cx: &Kernel, is_it: impl Fn(u16) -> bool, cause: CallCause) {
        if self.calls.get() == 0 {
            return;
        }
        let calls = self.half.calls.borrow();
        let its = calls.iter().filter(|(number, call)| call.key == self.key && is_it(**number));
        for (_, call) in its {
            call.end(cx, cause);
        }
    }

    /// Answers a question about its ends; `None` if it is another, or they do not say.
    fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<()> {
        let (form, Ends { from, to, .. }) = (self.half.form, &self.ends);
        // A socket of AppleTalk is none of the ports of which some are reserved.
        let (is_inet, is_of_hosts) = (form.family == AF_INET, self.is_of_hosts());
        if let Some(q) = ask.get::<Describe>() {
            q.text = format!("{}, {}", form.to_local(from), form.to_participant(to));
        } else if let Some(q) = ask.get::<MinPacket>() {
            // Every other layer says how long a message is.
            q.octets = if form.is_link() { receivers::LINK_MIN } else { 0 };
        } else if let Some(q) = ask.get::<PeerHost>() {
            q.host = self.host_of(to)?;
        } else if let Some(q) = ask.get::<MyHost>() {
            q.host = self.host(cx)?;
        } else if let Some(q) = ask.get::<PeerEther>().filter(|_| form.is_link()) {
            q.address = Form::link_parts(to).0;
        } else if let Some(q) = ask.get::<MyEther>().filter(|_| form.is_link()) {
            q.address = Form::link_parts(from).0;
        } else if let Some(q) = ask.get::<PseudoHeader>().filter(|_| is_of_hosts) {
            *q = self.pseudo_header(cx)?;
        } else if let Some(q) = ask.get::<SpecificDestination>().filter(|_| is_of_hosts) {
            (q.host, q.many) = (self.destination(cx)?, self.sent_to.is_some());
        } else if let Some(q) = ask.get::<DdpEnds>().filter(|_| form.family == AF_APPLETALK) {
            let (net, node, _) = triple(&self.half.below.local_to(cx, to).unwrap_or(form.any()));
            (q.local, q.peer) = ((net, node, triple(from).2), triple(to));
        } else if let Some(q) = ask.get::<PeerPort>().filter(|_| is_inet) {
            q.port = self.port(true)?;
        } else if let Some(q) = ask.get::<MyPort>().filter(|_| is_inet) {
            q.port = self.port(false)?;
        } else {
            return None;
        }
        Some(())
    }

    fn port(&self, is_peer: bool) -> Option<u16> {
        self.half.form.port_number(if is_peer { &self.ends.to } else { &self.ends.from })
    }
}

impl Drop for XkSession {
    fn drop(&mut self) {
        self.half.leave_port(&self.ends.from);
    }
}

/// Tells a session that what it sent did not arrive: the protocol above by `network-error`, and
/// the next push by its error.
pub(super) fn tell(
    cx: &Kernel,
    session: &SessionRef,
    body: &XkSession,
    fault: Fault,
    options: Option<&Octets>,
) {
    if body.half.is_calls() {
        let options = options.and_then(|octets| Options::parse(octets).ok());
        // A reply that is not sent is no call of ours, whatever its number.
        let is_it = |number: u16| {
            options.is_none_or(|of| of.kind == OptionKind::Request && of.number == number)
        };
        return body.end_calls(cx, is_it, CallCause::Push(fault.into()));
    }
    body.told.set(Some(fault));
    let kind = match fault {
        Fault::NoRoute => NetworkErrorKind::NetUnreachable,
        Fault::TooBig | Fault::NoBuffers | Fault::QueueFull => return,
        _ => NetworkErrorKind::HostUnreachable,
    };
    // A protocol above that has no use for it does not answer.
    let _ = NetworkError::new(kind).tell(cx, session, 0);
}

impl Session for XkSession {
    fn push(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        if self.half.is_calls() {
            return Err(PushError::NotSupported);
        }
        if let Some(fault) = self.told.take() {
            return Err(fault.into());
        }
        let (mut message, mut ends) = (message, self.ends);
        if self.is_for_any_peer() {
            ends.to = message
                .remove_attribute::<Peer>()
                .and_then(|peer| self.addr_of(peer))
                .ok_or(PushError::NoRoute)?;
        }
        let mut sent = Ok(());
        let cut = segments::each_whole(cx.pool(), message, |packet| {
            sent = sent.and(self.door.send(cx, &ends, Parcel::Message(packet)));
            Ok(())
        });
        if let Err(why) = cut {
            self.half.edge.count(why);
            return Err(PushError::NoBuffers);
        }
        sent.map_err(PushError::from)
    }

    fn call(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<Message, CallError> {
        if !self.half.is_calls() {
            return Err(CallCause::NotSupported.into());
        }
        calls::call(self, cx, message)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        self.upper.call_demux(cx, this, message)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let sizes = self.half.answer_size(cx, ask);
        let answer = sizes.or_else(|| self.answer(cx, ask).map(|()| Answer::Answered));
        answer.unwrap_or(Answer::Unknown)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.half.sessions.release(&self.key, this);
        self.end_calls(cx, |_| true, CallCause::Closed);
        if self.owns_door {
            self.half.let_go(cx, self.selector, self.half.form.port_of(&self.ends.from));
        }
        Closing::Done
    }
}
