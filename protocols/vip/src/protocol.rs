//! The layer: which way each message goes.

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
use xk_kit::net::neighbour::{HostChanged, PeerOnLink, WatchHosts};
use xk_kit::net::receivers;
use xk_kit::net::template::Headers;
use xk_kit::net::virtual_layer::{NO_WAY, Virtual, VirtualLayer, local_host};

/// Sessions that it holds unless the graph says otherwise.
pub(crate) const SESSIONS_MAX: usize = 65_536;
/// From how many sessions on each that a message makes takes the place of an idle one.
pub(crate) const IDLE_MAX: usize = 4096;

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.int("sessions_max")?;
    let idle_max = build.int("idle_max")?;
    let lowers = (build.lower(0)?, build.lower(1)?);
    build.add(layered(build.cx, lowers, (sessions_max, idle_max)))
}

/// Adds one to a kernel, for programs that compose without a graph file: on `link`, which takes the
/// hosts of a link, and `net`, which takes all. Every protocol that has a number on IP by then, and
/// none on Ethernet, gets one there: that on IP more than `ether_base`, as the check of a graph
/// does for each that stands on it.
pub fn add(
    cx: &Kernel,
    name: &str,
    lowers: (ProtocolRef, ProtocolRef),
    ether_base: u32,
) -> ProtocolRef {
    receivers::LINK_OR_NET.derive(&mut cx.numbers_mut(), ether_base);
    let layer = layered(cx, lowers, (SESSIONS_MAX, IDLE_MAX));
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}

fn layered(
    cx: &Kernel,
    (link, net): (ProtocolRef, ProtocolRef),
    bounds: (usize, usize),
) -> Virtual<Vip> {
    let secret = cx.secret();
    let lowers = [link.clone(), net.clone()].to_vec();
    Virtual::new(secret, lowers, bounds, Vip::new(secret, link, net))
}

impl VirtualLayer for Vip {
    type State = Lowers;

    fn admit(&self, cx: &Kernel, upper: Upper<'_>) -> Result<(), OpenError> {
        receivers::admit(cx, &self.net, upper)
    }

    fn offered(at: usize, ends: &Participants) -> Participants {
        if at == 0 { Participants::local(Part::Any) } else { ends.clone() }
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
        let largest = lowers::largest(cx, &own.receiver.upper) as usize;
        if largest < own.state.limit.get() {
            return Ok(());
        }
        if lowers::is_cast(own) {
            // Some of them would go to all on the link, the others to no host.
            return Err(OpenError::NotSupported);
        }
        match lowers::open_net(own, cx) {
            Ok(_) => Ok(()),
            // Nothing but the link leads there; long messages find that out.
            Err(_) if own.state.limit.get() > 0 => Ok(()),
            Err(error) => Err(error),
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
        let opening = all.layer.openings.of(cx, &all.layer.link, lower);
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
        if message.len() < own.state.limit.get()
            && let Some(link) = own.state.link.live()
        {
            return link.push(cx, message);
        }
        push_net(own, cx, this, message)
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
        if let Some(net) = own.state.heard_by(own.all.layer.net.id()) {
            net.refused(cx, refused);
        }
    }

    fn headers(own: &VipSession, cx: &Kernel) -> Option<Headers> {
        let (limit, link) = (own.state.limit.get(), own.state.link.get());
        let headers = Headers::of(cx, &current(own)?)?;
        match link {
            Some(_) if limit > 0 => {
                Some(Headers { sent: headers.sent.carrying(limit - 1), ..headers })
            }
            _ => Some(headers),
        }
    }

    fn session_control(own: &VipSession, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MyHost>() {
            let Some(host) = own_host(own, cx) else {
                return Answer::Unknown;
            };
            question.host = host;
        } else if let Some(question) = ask.get::<PseudoHeader>() {
            let Some(sums) = pseudo_header(own, cx) else {
                return Answer::Unknown;
            };
            *question = sums;
        } else if let Some(question) = ask.get::<PeerOnLink>() {
            question.on_link = lowers::is_on_link(own, cx);
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = max_octets(own, cx);
        } else if let Some(question) = ask.get::<OptPacket>() {
            let Some(octets) = opt_octets(own, cx) else {
                return own.answer(cx, current(own), ask);
            };
            question.octets = octets;
        } else {
            return own.answer(cx, current(own), ask);
        }
        Answer::Answered
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
        own.state.limit.set(0);
        own.state.forget_heard(own.mark.get());
        own.state.close_link(cx);
        own.state.close_net(cx);
    }

    fn start(&self, cx: &Kernel, this: &ProtocolRef) {
        let watcher = this.clone();
        // One that does not tell knows of no changes.
        let _ = self.link.ask(cx, WatchHosts { watcher });
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
        self.asked.clear();
    }
}

/// Takes what does not go over the link, or not as it did.
#[inline(never)]
fn push_net(
    own: &VipSession,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
) -> Result<(), PushError> {
    let state = &own.state;
    let takes_link = message.len() < state.limit.get();
    if takes_link {
        // The way over the link has ended: both are looked for again.
        state.limit.set(0);
        state.is_chosen.set(false);
    } else if let Some(net) = state.net.live() {
        return net.push(cx, message);
    }
    push_first(own, cx, this, message)
}

/// The first message, and the first that needs the other way.
#[cold]
#[inline(never)]
fn push_first(
    own: &VipSession,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
) -> Result<(), PushError> {
    let state = &own.state;
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
    if lowers::is_cast(own) {
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
        None if own.state.has_heard() => own.all.layer.link.ask(cx, MyHost::default()),
        None => own.all.layer.net.ask(cx, MyHost::default()),
    };
    asked.map(|asked| asked.host)
}

/// The sum with which a checksum that covers both hosts begins. From now on this end is one host of
/// ours, by whichever way: frames do not say which, and the peer sums up what it takes us for.
fn pseudo_header(own: &VipSession, cx: &Kernel) -> Option<PseudoHeader> {
    let state = &own.state;
    let number = cx.type_number(own.receiver.selector, own.all.layer.net.id())?;
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
        state.close_net(cx);
    }
    Some(PseudoHeader::new([mine; 2], own.host(), number))
}

/// Octets of the largest message that one of the ways takes.
fn max_octets(own: &VipSession, cx: &Kernel) -> u32 {
    let link_max = (own.state.limit.get() as u32).saturating_sub(1);
    match own.state.net.get() {
        _ if lowers::is_cast(own) => link_max,
        Some(net) => max_packet(cx, &net, link_max),
        None => {
            let net = own.all.layer.net.ask(cx, MaxPacket::default());
            net.map_or(link_max, |net| net.octets.max(link_max))
        }
    }
}

/// Octets of the largest message that goes whole by the way that is used, if that is known.
fn opt_octets(own: &VipSession, cx: &Kernel) -> Option<u32> {
    if own.state.limit.get() > 0 {
        return Some(own.state.limit.get() as u32 - 1);
    }
    match own.state.net.get() {
        Some(net) => Some(opt_packet(cx, &net, 0)).filter(|octets| *octets > 0),
        None => own.all.layer.net.ask(cx, OptPacket::default()).map(|q| q.octets),
    }
}
