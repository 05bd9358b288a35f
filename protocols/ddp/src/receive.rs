//! Datagrams that arrive: to the session or protocol that they are for, or on to another network.

use crate::ports::{Next, Port};
use crate::protocol::Ddp;
use crate::session::DdpSession;
use crate::shared::{Key, PORT_ANY, enable_key, reasons};
use crate::wire::{Error, LONG_LEN, Long};
use alloc::rc::Rc;
use xk_appletalk::addr::NET_ANY;
use xk_core::object::{Burst, Refused};
use xk_core::{Message, Participants, Reason, SessionRef, reason};
use xk_kit::machine::{At, Machine, Running};
use xk_kit::net::appletalk::socket;

/// The reason that corresponds to what is wrong with a header.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Length => &reason::BAD_LENGTH,
        Error::Socket => &reason::MALFORMED,
        Error::Source => &reason::BAD_SOURCE,
    }
}

/// Takes the header off a datagram, and cuts what the link padded.
fn open(message: &mut Message) -> Result<Long, &'static Reason> {
    let octets: [u8; LONG_LEN] = message.header()?;
    let header = Long::parse(&octets).map_err(reason_of)?;
    let data = header.data_of(message.len() - LONG_LEN).map_err(reason_of)?;
    message.truncate(LONG_LEN + data);
    Ok(header)
}

/// True if there is no checksum, or that of the data behind the header, which begins behind so many
/// octets.
fn is_intact(header: &Long, message: &Message, front: usize) -> bool {
    if header.checksum == 0 {
        return true;
    }
    let (mut sum, mut front) = (header.sum(), front + LONG_LEN);
    for slice in message.octet_slices() {
        let (skipped, data) = slice.split_at(front.min(slice.len()));
        front -= skipped.len();
        sum.add(data);
    }
    sum.checksum() == header.checksum
}

/// Whether a datagram behind so many octets is whole, and between these ends; what the link padded
/// is cut.
fn belongs(message: &mut Message, front: usize, first: &Long) -> bool {
    let octets = message.peek_slice(front + LONG_LEN).unwrap_or_default();
    let header = octets.get(front..).and_then(|octets| octets.first_chunk());
    let Some(header) = header.and_then(|octets| Long::parse(octets).ok()) else { return false };
    let is_same = (header.to, header.from, header.kind) == (first.to, first.from, first.kind);
    let data = header.data_of(message.len() - front - LONG_LEN);
    let Some(data) = data.ok().filter(|_| is_same) else { return false };
    message.truncate(front + LONG_LEN + data);
    is_intact(&header, message, front)
}

/// Takes datagrams that came together: those that follow each other between the same ends go up
/// together.
pub(crate) fn receive_burst(
    all: &Rc<Running<Ddp>>,
    at: At<'_>,
    lower: &SessionRef,
    burst: Burst<'_>,
) -> Result<(), Refused> {
    while burst.goes_on(lower) {
        let first = burst.peek::<LONG_LEN>(0);
        let first = first.and_then(|first| Long::parse(&first.octets).ok());
        let port = all.ports.over(at.cx, lower);
        let known = first.zip(port).and_then(|(first, port)| {
            let via = all.ports.is_for_me(port, first.to.at())?;
            Some((first, all.known(via, &first)?))
        });
        if let Some((first, session)) = known {
            let fits = |nth| burst.look(nth, |message, front| belongs(message, front, &first));
            let run = (0..burst.len()).take_while(|nth| fits(*nth) == Some(true)).count();
            if run > 0 {
                all.came_by(at, &first, lower);
                // The refuser has counted it, and no sender is told.
                let _ = session.pop_burst(at.cx, burst.first(run).behind(LONG_LEN));
                continue;
            }
        }
        if let Some(message) = burst.next() {
            Ddp::demux(all, at, lower, message)?;
        }
    }
    Ok(())
}

/// Takes a datagram that came over a port, its header in front.
pub(crate) fn receive(
    all: &Rc<Running<Ddp>>,
    at: At<'_>,
    port: usize,
    lower: Option<&SessionRef>,
    mut message: Message,
) -> Result<(), Refused> {
    let header = match open(&mut message) {
        Ok(header) => header,
        Err(why) => return at.refuse(message, why),
    };
    let Some(via) = all.ports.is_for_me(port, header.to.at()) else {
        return all.forward(at, port, header, message);
    };
    if !is_intact(&header, &message, 0) {
        return at.refuse(message, &reason::BAD_CHECKSUM);
    }
    if let Some(lower) = lower {
        all.came_by(at, &header, lower);
    }
    let session = match session(all, at, via, &header) {
        Ok(session) => session,
        Err(why) => return at.refuse(message, why),
    };
    // Cannot fail: the header was just seen.
    let _ = message.strip(LONG_LEN);
    // The refuser has counted it, and no sender is told.
    let _ = session.pop_owned(at.cx, message);
    Ok(())
}

/// The session that a datagram for this node belongs to, made if an enable is for it.
fn session(
    all: &Rc<Running<Ddp>>,
    at: At<'_>,
    via: usize,
    header: &Long,
) -> Result<SessionRef, &'static Reason> {
    if let Some(session) = all.known(via, header) {
        return Ok(session);
    }
    let key = Ddp::key(via, header);
    let upper = all.enables.get(&enable_key(header.kind, header.to.socket));
    let upper = upper.ok_or(&reason::NO_PORT)?;
    let source = key.peer.at().source();
    // Those that were opened leave by any port.
    let key = if all.ports.is_router() { key } else { Key { port: PORT_ANY, ..key } };
    let make = || {
        let own = all.ports.list.get(via).map(|port| port.cable.get().me);
        let own = own.unwrap_or_default();
        let (to, from) = (header.to.socket, header.from);
        let local = socket(own.net, own.node, to);
        let ends = Participants::pair(local, socket(from.net, from.node, from.socket));
        (DdpSession::new(all, key, &upper), ends)
    };
    all.sessions.accept(at.cx, at.this, &upper, key.number(), source, make)
}

impl Ddp {
    const fn key(via: usize, header: &Long) -> Key {
        let (peer, socket, kind) = (header.from, header.to.socket, header.kind);
        Key { peer, socket, kind, port: via as u8, group: 0 }
    }

    /// The session that there is for a datagram.
    fn known(&self, via: usize, header: &Long) -> Option<SessionRef> {
        let key = Self::key(via, header);
        // Those that were opened leave by any port.
        let any = Key { port: PORT_ANY, ..key };
        let sessions = &self.sessions;
        let found = sessions.get(&any.number()).or_else(|| sessions.get(&key.number()));
        if found.is_some() {
            return found;
        }
        // A node of this cable may be named without its network.
        let is_here = |port: &Port| port.cable.get().me.net == header.from.net;
        self.ports.list.get(via).filter(|port| is_here(port))?;
        let peer = xk_appletalk::addr::AtAddr { net: NET_ANY, ..header.from };
        sessions.get(&Key { peer, ..any }.number())
    }

    /// Sends a datagram on that is for another node.
    #[cold]
    fn forward(
        &self,
        at: At<'_>,
        from: usize,
        header: Long,
        mut message: Message,
    ) -> Result<(), Refused> {
        let to = header.to.at();
        if !self.ports.is_router() || to.net == NET_ANY {
            return at.refuse(message, &reason::NOT_MINE);
        }
        let Some(Next::Over(out, node)) = self.ports.route(to) else {
            return at.refuse(message, &reasons::NO_ROUTE);
        };
        let is_direct = self.ports.list.get(out).is_some_and(|port| port.has(to.net));
        if out == from && is_direct {
            // It is of the cable that it came from, and is there already.
            return at.refuse(message, &reason::NOT_MINE);
        }
        let Some(header) = header.forwarded() else {
            return at.refuse(message, &reasons::HOPS);
        };
        let Some(port) = self.ports.list.get(out).filter(|port| port.is_ready.get()) else {
            return at.refuse(message, &reasons::NO_ADDRESS);
        };
        let _ = message.strip(LONG_LEN);
        // What the link said of the frame that it came in says nothing of the one that it goes in.
        message.clear_attributes();
        if message.push_array(&header.octets()).is_err() {
            return at.refuse(message, &reason::NO_BUFFERS);
        }
        let Some(lower) = self.hops.to(at, out, port, node) else {
            return at.refuse(message, &reasons::NO_ROUTE);
        };
        // Counted below.
        let _ = lower.push(at.cx, message);
        Ok(())
    }
}
