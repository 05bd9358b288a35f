//! # Synopsis
//! `ddp ETHER [net=RANGE] [node=N]` — AppleTalk's datagrams as a multiplexor of STREAMS, with
//! address resolution.
//!
//! # Participants
//! `socket4@node18@net10`: socket, node and network. In STREAMS a `sockaddr_at` of sixteen octets.
//!
//! # Behaviour
//! Lines of STREAMS with a datagram type on `ddp` stand above, and users by the transport
//! interface. It answers `max-packet` (586).
//!
//! A stream is bound to a socket: the one in the address, or a free one from 128 on. The datagrams
//! that it sends have the type of the protocol for which it was opened, and only datagrams of that
//! type come up. A user's stream has no type of its own: in both directions the first octet of the
//! options is the type, unless T_OPTMGMT_REQ with one octet of options has set it for the stream. A
//! line's stream without a socket receives the datagrams of its type for which no other stream is
//! bound; its options begin with the address of this end.
//!
//! AARP claims the node's address when the line below is linked. At most 64 datagrams wait for that
//! address, or for the hardware address of their receiver. A datagram to the node's own address
//! goes through the read queue of the lower pair. A sender does not receive its own broadcasts. The
//! line does not route.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         aep ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! G. Sidhu, R. Andrews and A. Oppenheimer, Inside AppleTalk, second edition, chapters 2 and 4.

use crate::common::{Clock, random};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::aarp::{self, Aarp, Action, Config, Refusal as AarpRefusal, Resolution, Wish};
use xk_appletalk::addr::{AtAddr, NET_ANY, NetRange, Node, SOCKADDR_LEN, START_UP};
use xk_appletalk::ddp::{Cable, DATA_LEN_MAX, LONG_LEN, Long, NextHop, SOCKETS_DYNAMIC, is_socket};
use xk_core::control::Report;
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Params, Realm, Service, flag, int, optional,
};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef};
use xk_kit::control::{MaxPacket, MyEther};
use xk_streams::tpi::{
    Datagrams, Driver, Endpoint, Info, Link, Multiplexor, Mux, Primitive, Refusal, SendError,
    TliError, own_end, unitdata_ind,
};
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Priority, Q, Services};

const NETWORKS: &str = "a network or a range of them, such as 10-19";

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("ddp", include_str!("ddp.rs"), build)
    .subsystem("streams")
    .summary("AppleTalk's datagrams as a multiplexor of STREAMS, with address resolution")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Ether])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT.and(Guarantees::REPLY)))
    .header_octets(LONG_LEN)
    .numbers(&[("ether", DDP_ON_ETHER)])
    .reasons(&[&CONFLICT, &UNRESOLVED, &NO_ROUTE])
    .parameters(&[
        optional("net", ParamKind::Text(NETWORKS),
            "the networks of the cable; without it, those of nodes that know no router"),
        int("node", 0..=253, 0, "the node number; 0: any"),
        flag("checksum", true, "whether datagrams are sent with a checksum"),
    ]);

/// The number of DDP on Ethernet: Apple's protocol 0x809b of SNAP.
const DDP_ON_ETHER: u32 = 0x2_809b;
/// The number of AARP on Ethernet: protocol 0x80f3 of SNAP among Ethernet's types.
const AARP_ON_ETHER: u32 = 0x1_80f3;
/// Largest number of datagrams that wait for an address.
const WAITING_MAX: usize = 64;

/// Settings from the graph.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The networks of the cable.
    pub range: NetRange,
    /// The node number; none for any.
    pub node: Option<u8>,
    /// Whether datagrams are sent with a checksum.
    pub checksum: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { range: START_UP, node: None, checksum: true }
    }
}

impl Settings {
    fn read(params: &Params, build: &Build<'_>) -> Result<Self, BuildError> {
        let range = params.parse::<NetRange>("net", NETWORKS)?.unwrap_or(START_UP);
        let node = build.int::<u8>("node")?;
        Ok(Self { range, node: (node != 0).then_some(node), checksum: build.flag("checksum")? })
    }
}

/// State of the stream of a user or of a line.
#[derive(Default)]
struct User {
    /// The type of its datagrams.
    kind: Option<u8>,
    /// One more type that it takes.
    further: Option<u8>,
    /// Opened for a line of the graph.
    is_line: bool,
    /// The socket that it is bound to; 0 for a line that takes what no other has.
    socket: Option<u8>,
    /// Sockets that a line has besides, for its own users.
    claimed: Vec<u8>,
}

impl User {
    fn has(&self, socket: u8) -> bool {
        self.socket == Some(socket) || self.claimed.contains(&socket)
    }
}

/// A datagram that waits for the address of this node, or for the hardware of its receiver.
enum Waiting {
    ForAddress { to: AtAddr, socket: u8, kind: u8, data: Mblk },
    ForHardware { next: Node, datagram: Mblk },
}

/// One node.
struct Ddp {
    settings: Settings,
    mux: Mux<User>,
    aarp: RefCell<Option<Aarp>>,
    cable: Cell<Option<Cable>>,
    waiting: RefCell<VecDeque<Waiting>>,
    clock: Clock,
    sent: Cell<u64>,
    received: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build.params, build)?;
    xk_streams::line(build, Ddp::new(settings))
}

/// Adds one on a line of `ether`, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(
    cx: &Kernel,
    name: &str,
    ether: ProtocolRef,
    settings: Settings,
) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[ether], Ddp::new(settings))
}

impl Ddp {
    fn new(settings: Settings) -> Rc<Driver<Self>> {
        Driver::new(Self {
            settings,
            mux: Mux::default(),
            aarp: RefCell::default(),
            cable: Cell::default(),
            waiting: RefCell::default(),
            clock: Clock::default(),
            sent: Cell::new(0),
            received: Cell::new(0),
        })
    }

    /// The address of this node; zeros until it has one.
    fn me(&self) -> Node {
        self.cable.get().map_or(Node::new(NET_ANY, 0), |cable| cable.me)
    }

    // ---- address resolution ----

    /// The line below is linked: it is asked for frames of both kinds, and an address is claimed.
    fn linked(&self, cx: &Kernel) {
        let asked = self.mux.below.node(cx).and_then(|node| node.ask(cx, MyEther::default()));
        let station = asked.map_or([0; 6], |asked| asked.address);
        self.aarp.replace(Some(Aarp::new(station, Config::default())));
        let own = Link { station, number: DDP_ON_ETHER }.octets();
        let further = Link { station, number: AARP_ON_ETHER }.octets();
        let bound = self.mux.below.request(cx, Primitive::BindReq { addr: &own, conind: 0 });
        let more = Primitive::OptmgmtReq { opt: &further, flags: 0 };
        if let Err(reason) = bound.and_then(|()| self.mux.below.request(cx, more)) {
            self.count(reason);
        }
        let range = self.settings.range;
        let first = self.settings.node.map(|node| Node::new(range.first(), node));
        let wish = Wish { range, first, only: first.is_some() };
        if let Some(aarp) = &mut *self.aarp.borrow_mut() {
            aarp.wish(wish, Clock::now(cx), &mut random(cx));
        }
        self.tick(cx);
    }

    /// Does what is due of address resolution, and sets the timer for what will be.
    fn tick(&self, cx: &Kernel) {
        let tick = |aarp: &mut Aarp| aarp.tick(Clock::now(cx), &mut random(cx));
        let actions = self.aarp.borrow_mut().as_mut().map(tick);
        self.act(cx, actions.unwrap_or_default());
    }

    fn act(&self, cx: &Kernel, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, packet) => self.send_aarp(cx, to, &packet),
                Action::Claimed(me) => self.claimed(cx, me),
                Action::Conflict(_) => self.count(&CONFLICT),
                Action::Resolved(node, hw) => self.resolved(cx, node, hw),
                Action::Unresolved(node) => self.give_up(node),
            }
        }
        let next = self.aarp.borrow().as_ref().and_then(Aarp::next);
        if let (Some(next), Some(q)) = (next, self.mux.below.q()) {
            self.clock.set(cx, &q, next);
        }
    }

    fn send_aarp(&self, cx: &Kernel, to: aarp::Hw, packet: &aarp::Packet) {
        let to = Link { station: to, number: AARP_ON_ETHER }.octets();
        let data =
            self.mux.below.q().and_then(|q| q.blocks().copy(Kind::Data, 0, &packet.octets()));
        let sent = match data {
            Some(data) => self.mux.below.send(cx, (&to, &[]), data),
            None => Err(&reason::NO_BUFFERS),
        };
        if let Err(reason) = sent {
            self.count(reason);
        }
    }

    fn claimed(&self, cx: &Kernel, me: Node) {
        let known = self.cable.get().unwrap_or(Cable::new(me));
        self.cable.set(Some(Cable { me, range: self.settings.range, ..known }));
        let (ready, still) = self.take_waiting(|one| matches!(one, Waiting::ForAddress { .. }));
        self.waiting.replace(still);
        for one in ready {
            if let Waiting::ForAddress { to, socket, kind, data } = one
                && let Err(reason) = self.output(cx, (to, socket, kind), data)
            {
                self.count(reason);
            }
        }
    }

    fn take_waiting(
        &self,
        is: impl Fn(&Waiting) -> bool,
    ) -> (VecDeque<Waiting>, VecDeque<Waiting>) {
        self.waiting.take().into_iter().partition(|one| is(one))
    }

    fn resolved(&self, cx: &Kernel, node: Node, hw: aarp::Hw) {
        let is = |one: &Waiting| matches!(one, Waiting::ForHardware { next, .. } if *next == node);
        let (ready, still) = self.take_waiting(is);
        self.waiting.replace(still);
        for one in ready {
            if let Waiting::ForHardware { datagram, .. } = one {
                self.transmit(cx, hw, datagram);
            }
        }
    }

    fn give_up(&self, node: Node) {
        let is = |one: &Waiting| matches!(one, Waiting::ForHardware { next, .. } if *next == node);
        let (vain, still) = self.take_waiting(is);
        self.waiting.replace(still);
        vain.iter().for_each(|_| self.count(&UNRESOLVED));
    }

    fn aarp_input(&self, cx: &Kernel, data: &Mblk) {
        let Ok(packet) = aarp::Packet::parse(data.octets()) else {
            return self.count(&reason::MALFORMED);
        };
        let heard = self
            .aarp
            .borrow_mut()
            .as_mut()
            .map(|aarp| aarp.input(&packet, Clock::now(cx), &mut random(cx)));
        match heard {
            Some(Ok(actions)) => self.act(cx, actions),
            Some(Err(AarpRefusal::NotMine)) => {}
            Some(Err(_)) => self.count(&reason::BAD_SOURCE),
            None => {}
        }
    }

    // ---- down ----

    /// Makes a datagram and sends it where it goes next.
    fn output(
        &self,
        cx: &Kernel,
        (to, socket, kind): (AtAddr, u8, u8),
        data: Mblk,
    ) -> Result<(), &'static Reason> {
        let Some(cable) = self.cable.get() else {
            return self.wait(Waiting::ForAddress { to, socket, kind, data });
        };
        let from = cable.me.socket(socket);
        let mut header = Long::new(to, from, kind, data.size()).ok_or(&reason::TOO_BIG)?;
        if self.settings.checksum {
            let mut sum = header.sum();
            data.blocks().for_each(|block| sum.add(block.octets()));
            header.checksum = sum.checksum();
        }
        let datagram = self.headed(&header.octets(), data).ok_or(&reason::NO_BUFFERS)?;
        self.sent.set(self.sent.get() + 1);
        match cable.way(to.at(), None).ok_or(&NO_ROUTE)? {
            NextHop::Here => match self.mux.below.loop_back(cx, datagram) {
                true => Ok(()),
                false => Err(&reason::QUEUE_FULL),
            },
            NextHop::All => {
                self.transmit(cx, aarp::ALL_NODES, datagram);
                Ok(())
            }
            NextHop::Node(next) => self.forward(cx, next, datagram),
        }
    }

    /// Puts a header in front: where there is room, else in a block of its own.
    fn headed(&self, header: &[u8; LONG_LEN], mut data: Mblk) -> Option<Mblk> {
        if data.put_front(header) {
            return Some(data);
        }
        // Room for the headers below.
        const HEADROOM: usize = 32;
        let mut front = self.mux.below.q()?.blocks().allocb(HEADROOM + LONG_LEN, Priority::Low)?;
        front.reset(HEADROOM);
        front.put(header).then(|| front.linked(data))
    }

    fn forward(&self, cx: &Kernel, next: Node, datagram: Mblk) -> Result<(), &'static Reason> {
        let resolve = |aarp: &mut Aarp| aarp.resolve(next, Clock::now(cx));
        let found = self.aarp.borrow_mut().as_mut().map(resolve);
        let (resolution, action) = found.ok_or(&reason::CLOSED)?;
        let sent = match resolution {
            Resolution::Known(hw) => {
                self.transmit(cx, hw, datagram);
                Ok(())
            }
            Resolution::Asked => self.wait(Waiting::ForHardware { next, datagram }),
            Resolution::Full => Err(&reason::TABLE_FULL),
            Resolution::NoAddress => Err(&NO_ROUTE),
        };
        self.act(cx, action.into_iter().collect());
        sent
    }

    fn wait(&self, one: Waiting) -> Result<(), &'static Reason> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            return Err(&reason::QUEUE_FULL);
        }
        waiting.push_back(one);
        Ok(())
    }

    fn transmit(&self, cx: &Kernel, to: aarp::Hw, datagram: Mblk) {
        let to = Link { station: to, number: DDP_ON_ETHER }.octets();
        if let Err(reason) = self.mux.below.send(cx, (&to, &[]), datagram) {
            self.count(reason);
        }
    }

    // ---- up ----

    fn input(&self, cx: &Kernel, datagram: Mblk) {
        if let Err(reason) = self.take(cx, datagram) {
            self.count(reason);
        }
    }

    fn take(&self, cx: &Kernel, mut datagram: Mblk) -> Result<(), &'static Reason> {
        let cable = self.cable.get().ok_or(&reason::NOT_MINE)?;
        if !datagram.pullupmsg(Some(LONG_LEN)) {
            return Err(&reason::TRUNCATED);
        }
        let octets = datagram.octets().first_chunk().ok_or(&reason::TRUNCATED)?;
        let header = Long::parse(octets).map_err(|_| &reason::MALFORMED)?;
        let arrived = datagram.size() - LONG_LEN;
        let length = header.data_of(arrived).map_err(|_| &reason::BAD_LENGTH)?;
        // What is behind the length is padding.
        let is_cut = datagram.skip(LONG_LEN) && datagram.adjmsg(-((arrived - length) as isize));
        if !is_cut {
            return Err(&reason::BAD_LENGTH);
        }
        if header.checksum != 0 {
            let mut sum = header.sum();
            datagram.blocks().for_each(|block| sum.add(block.octets()));
            if sum.checksum() != header.checksum {
                return Err(&reason::BAD_CHECKSUM);
            }
        }
        if !cable.is_for_me(header.to.at()) {
            return Err(&reason::NOT_MINE);
        }
        self.received.set(self.received.get() + 1);
        self.deliver(cx, &header, datagram)
    }

    fn deliver(&self, cx: &Kernel, header: &Long, data: Mblk) -> Result<(), &'static Reason> {
        let takes = |user: &User| {
            user.kind.is_none_or(|kind| kind == header.kind) || user.further == Some(header.kind)
        };
        let said = |user: &User| (user.socket == Some(0), user.kind.is_some());
        let users = &self.mux.users;
        let at_socket =
            users.pick(|u| (u.socket == Some(header.to.socket) && takes(u)).then(|| said(u)));
        let of_type = || {
            users.pick(|u| (u.socket == Some(0) && u.kind == Some(header.kind)).then(|| said(u)))
        };
        let (q, (is_wild, has_kind)) = at_socket.or_else(of_type).ok_or(&reason::NO_PORT)?;
        let q = q.ok_or(&reason::CLOSED)?;
        if !q.canputnext() {
            return Err(&reason::QUEUE_FULL);
        }
        let own = self.me().socket(header.to.socket).to_sockaddr();
        let opt: &[u8] = match (is_wild, has_kind) {
            (true, _) => &own,
            (false, true) => &[],
            (false, false) => &[header.kind],
        };
        let up = unitdata_ind(q.blocks(), &header.from.to_sockaddr(), opt, data);
        q.putnext(cx, up.ok_or(&reason::NO_BUFFERS)?);
        Ok(())
    }

    /// Takes the result of routing: the networks of the cable and a router, eight octets.
    fn set_cable(&self, opt: [u8; 8]) {
        let [a, b, c, d, e, f, node, has_router] = opt;
        let word = |high, low| u16::from_be_bytes([high, low]);
        if let Some(cable) = self.cable.get() {
            let range = NetRange::new(word(a, b), word(c, d)).unwrap_or(cable.range);
            let router = (has_router != 0).then(|| Node::new(word(e, f), node));
            self.cable.set(Some(Cable { range, router, ..cable }));
        }
    }
}

/// Another node uses this one's address.
static CONFLICT: Reason = Reason::new("address conflict", reason::Class::Bad);
/// No node answers for the address.
static UNRESOLVED: Reason = Reason::new("address not resolved", reason::Class::Bad);
/// Nothing leads to that network.
static NO_ROUTE: Reason = Reason::new("no route", reason::Class::Bad);

impl Multiplexor for Ddp {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x4444, "ddp");

    fn mux(&self) -> &Mux<User> {
        &self.mux
    }

    fn opened(this: &Rc<Self>, cx: &Kernel, q: &Q, opening: Opening) -> Rc<dyn Module> {
        let number = this.mux.number_of(cx, opening);
        let kind = number.and_then(|number| u8::try_from(number).ok());
        this.mux.users.open(q, User { kind, is_line: kind.is_some(), ..User::default() });
        Endpoint::new(Rc::clone(this))
    }

    fn lower(this: &Rc<Self>) -> Rc<dyn Module> {
        Rc::new(Cabled(Rc::clone(this)))
    }

    fn control(&self, _: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let answer = match ask.get::<Report>() {
            Some(report) => {
                let lines: [(&str, String); 4] = [
                    ("address", self.me().to_string()),
                    ("sent", self.sent.get().to_string()),
                    ("received", self.received.get().to_string()),
                    ("waiting", format!("{}", self.waiting.borrow().len())),
                ];
                report.lines = lines.map(|(name, text)| (name.into(), text)).into();
                report.finished = true;
                Answer::Answered
            }
            None => ask.answer::<MaxPacket>(|max| max.octets = DATA_LEN_MAX as u32),
        };
        answer.is_answered().then_some(answer)
    }

    fn stop(&self) {
        let gone = self.waiting.take();
        drop(gone);
    }
}

impl Datagrams for Ddp {
    fn module(&self) -> ModuleInfo {
        Ddp::INFO
    }

    fn info(&self) -> Info {
        Info::datagrams(DATA_LEN_MAX as u32, SOCKADDR_LEN as u32, SOCKADDR_LEN as u32 + 1)
    }

    fn bind(&self, _: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let wanted = match addr.iter().all(|octet| *octet == 0) {
            true => AtAddr::default(),
            false => AtAddr::from_sockaddr(addr).ok_or(TliError::TBADADDR)?,
        };
        let (me, at) = (self.me(), wanted.at());
        let is_mine =
            (at.net == NET_ANY || at.net == me.net) && (at.node == 0 || at.node == me.node);
        if !is_mine && me.node != 0 {
            return Err(TliError::TBADADDR.into());
        }
        let is_free = |socket: u8| !self.mux.users.any(|user| user.has(socket));
        let is_line = self.mux.users.with(q, |user| user.is_line) == Some(true);
        let socket = match wanted.socket {
            0 if is_line => 0,
            0 => SOCKETS_DYNAMIC.into_iter().find(|one| is_free(*one)).ok_or(TliError::TNOADDR)?,
            socket if !is_socket(socket) => return Err(TliError::TBADADDR.into()),
            socket if !is_free(socket) => return Err(Errno::EADDRINUSE.into()),
            socket => socket,
        };
        self.mux.users.with(q, |user| user.socket = Some(socket));
        Ok(me.socket(socket).to_sockaddr().into())
    }

    fn unbind(&self, _: &Kernel, q: &Q) {
        self.mux.users.with(q, |user| (user.socket, user.claimed) = (None, Vec::new()));
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, opt): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let to = AtAddr::from_sockaddr(to).ok_or(SendError::Told(Errno::EINVAL))?;
        let user = self.mux.users.with(q, |user| (user.socket, user.kind));
        let (socket, kind) = user.ok_or(SendError::Dropped)?;
        let (own, opt) = own_end(opt);
        let own = own.and_then(|own| AtAddr::from_sockaddr(own)).map(|own| own.socket);
        let socket = socket.filter(|socket| *socket != 0).or(own);
        let kind = opt.first().copied().filter(|kind| *kind != 0).or(kind);
        let (Some(socket), Some(kind)) = (socket, kind) else {
            return Err(SendError::Told(Errno::EDESTADDRREQ));
        };
        let empty = || q.blocks().copy(Kind::Data, 0, &[]);
        let data = data.or_else(empty).ok_or(SendError::Told(Errno::ENOSR))?;
        if data.size() > DATA_LEN_MAX {
            return Err(SendError::Told(Errno::EMSGSIZE));
        }
        self.output(cx, (to, socket, kind), data).map_err(|reason| {
            self.count(reason);
            SendError::Dropped
        })
    }

    fn told(&self, reason: &'static Reason) {
        self.count(reason);
    }

    fn has_room(&self, _: &Kernel) -> bool {
        self.mux.below.has_room()
    }

    /// One octet: the type of a user's datagrams, or of one that has a type one more that it takes,
    /// and may send by naming it. Two: a socket that a line wants for one of its
    /// own users (1), or gives back (0). Eight: what routing has found out.
    fn manage(&self, _: &Kernel, q: &Q, opt: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        match *opt {
            [kind] if kind != 0 => {
                self.mux.users.with(q, |user| match user.kind {
                    None => user.kind = Some(kind),
                    Some(_) => user.further = Some(kind),
                });
            }
            [socket, 1] if self.mux.users.with(q, |user| user.is_line) == Some(true) => {
                if !is_socket(socket) {
                    return Err(TliError::TBADOPT.into());
                }
                if self.mux.users.any(|user| user.has(socket)) {
                    return Err(Errno::EADDRINUSE.into());
                }
                self.mux.users.with(q, |user| user.claimed.push(socket));
            }
            [socket, 0] => {
                self.mux.users.with(q, |user| user.claimed.retain(|one| *one != socket));
            }
            [a, b, c, d, e, f, g, h]
                if self.mux.users.with(q, |user| user.kind) == Some(Some(1)) =>
            {
                self.set_cable([a, b, c, d, e, f, g, h]);
            }
            _ => return Err(TliError::TBADOPT.into()),
        }
        Ok(opt.into())
    }

    fn local(&self, q: &Q) -> Vec<u8> {
        let socket = self.mux.users.with(q, |user| user.socket).flatten();
        self.me().socket(socket.unwrap_or(0)).to_sockaddr().into()
    }

    /// The router, if one is known.
    fn remote(&self, _: &Q) -> Vec<u8> {
        let router = self.cable.get().and_then(|cable| cable.router);
        router.map(|router| router.socket(0).to_sockaddr().into()).unwrap_or_default()
    }

    fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        if self.mux.below.ioctl(cx, q, mp) {
            self.linked(cx);
        }
    }

    fn close(&self, _: &Kernel, q: &Q) {
        self.mux.users.close(q);
    }
}

/// The pair that the stream of `ether` has for a head.
struct Cabled(Rc<Ddp>);

impl Module for Cabled {
    fn info(&self) -> ModuleInfo {
        Ddp::INFO
    }

    fn services(&self) -> Services {
        Services { read: true, write: true }
    }

    fn rput(&self, cx: &Kernel, _: &Q, mut mp: Mblk) {
        match mp.kind() {
            Kind::Proto => {
                let src = match Primitive::of(&mp) {
                    Ok(Primitive::UnitdataInd { src, .. }) => Link::parse(src),
                    _ => None,
                };
                match (src.map(|src| src.number), mp.unlinkb()) {
                    (Some(DDP_ON_ETHER), Some(datagram)) => self.0.input(cx, datagram),
                    (Some(AARP_ON_ETHER), Some(mut data)) => {
                        let whole = data.pullupmsg(None);
                        debug_assert!(whole || data.cont().is_some(), "or no buffer");
                        self.0.aarp_input(cx, &data);
                    }
                    _ => {}
                }
            }
            Kind::Hangup | Kind::Error => self.0.mux.below.gone(),
            Kind::PcProto if matches!(Primitive::of(&mp), Ok(Primitive::ErrorAck { .. })) => {
                self.0.count(&reason::PROHIBITED);
            }
            _ => drop(mp),
        }
    }

    /// Delivers datagrams from this node to itself.
    fn rsrv(&self, cx: &Kernel, q: &Q) {
        while let Some(datagram) = q.getq(cx) {
            self.0.input(cx, datagram);
        }
    }

    /// The line below has room again.
    fn wsrv(&self, cx: &Kernel, _: &Q) {
        self.0.mux.users.enable(cx);
    }

    fn timer(&self, cx: &Kernel, _: &Q, _: u64) {
        self.0.clock.went_off();
        self.0.tick(cx);
    }
}
