//! The layer: which way each message goes.

use crate::below::{self, Below};
use crate::lowers::{self, Lowers, Vip, VipSession};
use alloc::format;
use alloc::string::String;
use core::cell::Cell;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Outgoing, PushError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{MaxPacket, MyHost, OptPacket, PseudoHeader, max_packet, opt_packet};
use xk_kit::net::neighbour::{HostChanged, PeerOnLink};
use xk_kit::net::receivers;
use xk_kit::net::template::Headers;
use xk_kit::net::virtual_layer::{NO_WAY, Virtual, VirtualLayer, local_host};
use xk_kit::rpc::call::LargestPush;

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Virtual::build(build, Vip { below: Below::new(build)?, looks: Cell::new(false) })
}

impl VirtualLayer for Vip {
    type State = Lowers;

    fn admit(&self, cx: &Kernel, upper: Upper<'_>) -> Result<(), OpenError> {
        receivers::admit(cx, &self.below.net, upper)
    }

    fn offered(at: usize, ends: &Participants) -> Participants {
        below::offered(at, ends)
    }

    fn begin(
        all: &Virtual<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        ends: &Participants,
        _: bool,
    ) -> Lowers {
        all.layer.look_later(cx, this);
        Lowers { local: Cell::new(local_host(ends)), ..Lowers::default() }
    }

    fn connect(own: &VipSession, cx: &Kernel) -> Result<(), OpenError> {
        own.state.is_chosen.set(true);
        lowers::choose(own, cx);
        lowers::resolve(own, cx);
        let largest = own.receiver.upper.ask(cx, LargestPush::default());
        if largest.is_some_and(|asked| (asked.octets as usize) < own.state.limit.get()) {
            return Ok(());
        }
        if own.host().is_group() {
            // Some of them would go to all on the link, the others to no host.
            return Err(OpenError::NotSupported);
        }
        match lowers::open_net(own, cx) {
            Err(error) if own.state.limit.get() == 0 => Err(error),
            // If nothing but the link leads there, long messages find that out.
            _ => Ok(()),
        }
    }

    /// While a way over the link is being opened, what the link makes is for that session.
    fn session_for(
        all: &Virtual<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let opening = all.layer.below.openings.of(cx, &all.layer.below.link, lower);
        match opening.and_then(|mark| all.marks.get(mark)) {
            Some(session) => Ok(session),
            None => all.session_for(cx, this, lower, ends),
        }
    }

    fn heard(own: &VipSession, lower: &SessionRef) {
        own.state.hear(own.mark.get(), lower);
    }

    #[inline]
    fn push(
        own: &VipSession,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let takes_link = message.len() < own.state.limit.get();
        let way = if takes_link { &own.state.link } else { &own.state.net };
        match way.live() {
            Some(way) => way.push(cx, message),
            None => push_first(own, cx, this, message),
        }
    }

    fn push_burst(
        own: &VipSession,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let limit = own.state.limit.get();
        match own.state.link.live().filter(|_| burst.iter().all(|message| message.len() < limit)) {
            Some(link) => link.push_burst(cx, burst),
            None => own.push_each(cx, this, burst),
        }
    }

    fn describe(own: &VipSession) -> String {
        let way = match (own.state.limit.get(), own.state.net.is_some()) {
            (0, _) => "by IP",
            (_, false) => "over the link",
            (_, true) => "over the link, long messages by IP",
        };
        format!("{}, {way}", own.host())
    }

    /// Nothing on the link tells a sender; the network finds its own header, or it did not come
    /// that way.
    fn refused(own: &VipSession, cx: &Kernel, refused: Refused) {
        if let Some(net) = own.state.heard_by(own.all.layer.below.net.id()) {
            net.refused(cx, refused);
        }
    }

    fn headers(own: &VipSession, cx: &Kernel) -> Option<Headers> {
        let (limit, headers) = (own.state.limit.get(), Headers::of(cx, &current(own)?)?);
        let by_link = limit > 0 && own.state.link.is_some();
        let sent = if by_link { headers.sent.carrying(limit - 1) } else { headers.sent };
        Some(Headers { sent, ..headers })
    }

    fn session_control(own: &VipSession, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        let found = if let Some(question) = ask.get::<MyHost>() {
            own_host(own, cx).map(|host| question.host = host)
        } else if let Some(question) = ask.get::<PseudoHeader>() {
            pseudo_header(own, cx).map(|sums| *question = sums)
        } else if let Some(question) = ask.get::<PeerOnLink>() {
            question.on_link = own.all.layer.below.is_on_link(cx, own.host());
            Some(())
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = max_octets(own, cx);
            Some(())
        } else if let Some(question) = ask.get::<OptPacket>()
            && let Some(octets) = opt_octets(own, cx)
        {
            question.octets = octets;
            Some(())
        } else {
            return own.answer(cx, current(own), ask);
        };
        found.map_or(Answer::Unknown, |()| Answer::Answered)
    }

    fn told(all: &Virtual<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> bool {
        let Some(question) = ask.get::<HostChanged>() else {
            return false;
        };
        all.for_host(question.host, |own| {
            own.state.moves.set(own.state.moves.get().wrapping_add(1));
            lowers::choose(own, cx);
        });
        true
    }

    fn end(own: &VipSession, cx: &Kernel) {
        own.state.end(cx, own.mark.get());
    }

    fn start(&self, cx: &Kernel, this: &ProtocolRef) {
        self.below.watch(cx, this);
    }

    /// Looks at all sessions again.
    fn timeout(all: &Virtual<Self>, cx: &Kernel, this: &ProtocolRef) {
        all.layer.looks.set(false);
        let has_sessions = all.for_each(|own| match own.state.is_chosen.get() {
            true => lowers::choose(own, cx),
            // One that has not sent yet finds its ways when it does.
            false => lowers::unhear(own, cx),
        });
        if has_sessions {
            all.layer.look_later(cx, this);
        }
    }

    fn stop(&self) {
        self.below.absent.clear();
    }
}

/// The first message, the first that needs the other way, and the first after a way has ended.
#[cold]
#[inline(never)]
fn push_first(
    own: &VipSession,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
) -> Result<(), PushError> {
    let state = &own.state;
    if message.len() < state.limit.get() {
        // The way over the link has ended: both are looked for again.
        state.limit.set(0);
        state.is_chosen.set(false);
    }
    if !state.is_chosen.replace(true) {
        lowers::choose(own, cx);
        if !state.is_chosen.get() {
            this.discard(cx, message, &reason::NO_ANSWER);
            return Err(PushError::NoRoute);
        }
        if message.len() < state.limit.get()
            && let Some(link) = state.link.get()
        {
            return link.push(cx, message);
        }
    }
    if own.host().is_group() {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    match state.net.live().map_or_else(|| lowers::open_net(own, cx), Ok) {
        Ok(net) => net.push(cx, message),
        Err(_) => {
            this.discard(cx, message, &NO_WAY);
            Err(PushError::NoRoute)
        }
    }
}

/// The session that messages go by now, if there is one.
fn current(own: &VipSession) -> Option<SessionRef> {
    let state = &own.state;
    let link = state.link.get();
    link.filter(|_| state.limit.get() > 0).or_else(|| state.net.get()).or_else(|| state.link.get())
}

/// The host of ours that the peer knows by the way that is used now, if that has one.
fn own_host(own: &VipSession, cx: &Kernel) -> Option<HostAddr> {
    if let Part::Host(host) = own.state.local_part() {
        return Some(host);
    }
    // On several links we are several hosts, and to a peer on this one that of its own.
    let asked = match current(own) {
        Some(lower) => lower.ask(cx, MyHost::default()),
        None if !own.state.heard.borrow().is_empty() => {
            own.all.layer.below.link.ask(cx, MyHost::default())
        }
        None => own.all.layer.below.net.ask(cx, MyHost::default()),
    };
    asked.map(|asked| asked.host)
}

/// The sum with which a checksum that covers both hosts begins. From now on this end is one host of
/// ours, by whichever way: frames do not say which, and the peer sums up what it takes us for.
fn pseudo_header(own: &VipSession, cx: &Kernel) -> Option<PseudoHeader> {
    let state = &own.state;
    let number = cx.type_number(own.receiver.selector, own.all.layer.below.net.id())?;
    let on_link = state.link.get().and_then(|link| link.ask(cx, MyHost::default()));
    let mine = match (state.local_part(), on_link) {
        (Part::Any, Some(on_link)) => Some(on_link.host),
        _ => own_host(own, cx),
    };
    let mine = mine.filter(|mine| !mine.is_unspecified())?;
    state.local.set(mine);
    if let Some(net) = state.net.get()
        && net.ask(cx, MyHost::default()).is_some_and(|net| net.host != mine)
    {
        lowers::close(cx, &state.net);
    }
    Some(PseudoHeader::new([mine; 2], own.host(), number))
}

/// Octets of the largest message that one of the ways takes.
fn max_octets(own: &VipSession, cx: &Kernel) -> u32 {
    let link_max = (own.state.limit.get() as u32).saturating_sub(1);
    match own.state.net.get() {
        _ if own.host().is_group() => link_max,
        Some(net) => max_packet(cx, &net, link_max),
        None => {
            let net = own.all.layer.below.net.ask(cx, MaxPacket::default());
            net.map_or(link_max, |net| net.octets.max(link_max))
        }
    }
}

/// Octets of the largest message that goes whole by the way that is used, if that is known.
fn opt_octets(own: &VipSession, cx: &Kernel) -> Option<u32> {
    match (own.state.limit.get(), own.state.net.get()) {
        (0, Some(net)) => Some(opt_packet(cx, &net, 0)).filter(|octets| *octets > 0),
        (0, None) => own.all.layer.below.net.ask(cx, OptPacket::default()).map(|q| q.octets),
        (limit, _) => Some(limit as u32 - 1),
    }
}
