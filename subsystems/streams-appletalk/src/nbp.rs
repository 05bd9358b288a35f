//! # Synopsis
//! `nbp DDP` — AppleTalk's names as a multiplexor of STREAMS.
//!
//! # Participants
//! Those of `ddp`; the socket is 2.
//!
//! # Behaviour
//! Users ask it by `I_STR` ([`REGISTER`], [`REMOVE`], [`LOOKUP`]).
//!
//! It answers requests for the names that users have registered. A name is looked up before it is
//! registered; a name that another node has is refused with EADDRINUSE. A search sends three
//! requests, a second apart: to all nodes of the cable, or to the router if the line below knows
//! one (T_ADDR_ACK), which asks in all cables of the zone. This node's own names are among the
//! answers. With a router, its requests are answered for any zone, because it asks only for zones
//! of the cable. Each asking node gets at most 100 packets a second. The command is answered at the
//! end of the search, within the 15 s that `I_STR` waits. There are at most 32 searches at a time,
//! and 256 names.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         nbp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! G. Sidhu, R. Andrews and A. Oppenheimer, Inside AppleTalk, second edition, chapter 7. Not
//! covered: the name of the node's own zone, which only routers need.

use crate::common::{Clock, Lower, OverDdp, User};
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::{AtAddr, BROADCAST, NET_ANY, SOCKADDR_LEN};
use xk_appletalk::ddp::SOCKET_NAMES;
use xk_appletalk::nbp::{
    Due, Entity, Function, LookupConfig, Lookups, Name, Names, NamesError, Packet, Tuple,
};
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef};
use xk_kit::answers::{Allowance, UNPROVED};
use xk_streams::head::{self, Command, Info};
use xk_streams::tpi::{Driver, Multiplexor, Mux, Primitive};
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q, Stream, WeakQ};

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("nbp", include_str!("nbp.rs"), build)
    .subsystem("streams")
    .summary("AppleTalk's names as a multiplexor of STREAMS")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE)
    .numbers(&[("ddp", 2)]);

/// Registers a name: the data is the socket, then `object:type`.
pub const REGISTER: Command = Command(0x4e01);
/// Takes a name away: the data is `object:type`.
pub const REMOVE: Command = Command(0x4e02);
/// Looks names up: the data is `object:type@zone`, with wildcards. The answer is a list of
/// addresses (16 octets each), each followed by the length of the name and the name.
pub const LOOKUP: Command = Command(0x4e03);

/// Names of this node at most.
const NAMES_MAX: usize = 256;
/// Packets that answer a node, in a second and at once.
const ANSWERS_PER_SECOND: u64 = 100;
const BURST: u64 = 50;
/// Searches at one time.
const LOOKUPS_MAX: usize = 32;

/// A search: the command that waits for it, and the place for its answer.
struct Wanted {
    q: WeakQ,
    mp: Mblk,
    entity: Entity,
    /// The socket that is to have the name.
    socket: Option<u8>,
}

struct Nbp {
    mux: Mux<User>,
    names: RefCell<Names>,
    lookups: RefCell<Lookups<Wanted>>,
    zone: Name,
    me: Cell<AtAddr>,
    router: Cell<Option<AtAddr>>,
    clock: Clock,
    allowance: Allowance,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, new())
}

fn new() -> Rc<Driver<Nbp>> {
    Driver::new(Nbp {
        mux: Mux::default(),
        names: RefCell::new(Names::new(NAMES_MAX)),
        lookups: RefCell::new(Lookups::new(LOOKUPS_MAX)),
        zone: Name::default(),
        me: Cell::default(),
        router: Cell::default(),
        clock: Clock::default(),
        allowance: Allowance::new(ANSWERS_PER_SECOND, BURST),
    })
}

/// Adds one on a line of `ddp`, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, ddp: ProtocolRef) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[ddp], new())
}

/// Registers a name for a socket by a stream of `nbp`; waits for the search.
///
/// # Errors
/// EADDRINUSE for a name that is there, EINVAL for what is none; as of
/// [`str_ioctl`](Stream::str_ioctl).
pub fn register(cx: &Kernel, stream: &Stream, name: &str, socket: u8) -> Result<(), Errno> {
    let data = [&[socket], name.as_bytes()].concat();
    stream.str_ioctl(cx, REGISTER, &data, head::StrWait::Usual).map(drop)
}

/// Looks names up by a stream of `nbp`; waits for the search.
///
/// # Errors
/// EINVAL for what is no name; as of [`str_ioctl`](Stream::str_ioctl).
pub fn lookup(cx: &Kernel, stream: &Stream, name: &str) -> Result<Vec<(AtAddr, Vec<u8>)>, Errno> {
    let (_, data) = stream.str_ioctl(cx, LOOKUP, name.as_bytes(), head::StrWait::Usual)?;
    let mut left = &data[..];
    let mut found = Vec::new();
    while let Some((addr, rest)) = left.split_first_chunk::<SOCKADDR_LEN>() {
        let at = AtAddr::from_sockaddr(addr).ok_or(Errno::EPROTO)?;
        let (length, rest) = rest.split_first().ok_or(Errno::EPROTO)?;
        let (name, rest) = rest.split_at_checked(usize::from(*length)).ok_or(Errno::EPROTO)?;
        found.push((at, name.into()));
        left = rest;
    }
    Ok(found)
}

impl Nbp {
    /// Sends a packet to a socket of names.
    fn output(&self, cx: &Kernel, to: AtAddr, packet: &Packet) {
        let q = self.mux.below.q();
        let data = q.and_then(|q| q.blocks().copy(Kind::Data, 48, &packet.octets()));
        let sent = match data {
            Some(data) => self.mux.below.send(cx, (&to.to_sockaddr(), &[]), data),
            None => Err(&reason::NO_BUFFERS),
        };
        if let Err(reason) = sent {
            self.count(reason);
        }
    }

    fn command(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        let command = Info::of(&mp).map(|info| info.command);
        let data = mp.cont().map(Mblk::to_vec).unwrap_or_default();
        let text = |octets: &[u8]| {
            core::str::from_utf8(octets).ok().and_then(|text| text.parse::<Entity>().ok())
        };
        let answer = match command {
            Some(REGISTER) => {
                let entity =
                    data.split_first().and_then(|(socket, rest)| Some((*socket, text(rest)?)));
                match entity {
                    Some((socket, entity)) => self.register(cx, q, mp, entity, socket),
                    None => Some(head::naked(mp, Errno::EINVAL)),
                }
            }
            Some(REMOVE) => match text(&data) {
                Some(entity) if self.names.borrow_mut().remove(&entity) => Some(head::acked(mp, 0)),
                _ => Some(head::naked(mp, Errno::EINVAL)),
            },
            Some(LOOKUP) => match text(&data) {
                Some(entity) => self.search(cx, q, mp, entity, None),
                None => Some(head::naked(mp, Errno::EINVAL)),
            },
            _ => return self.link(cx, &q.read_side(), mp, SOCKET_NAMES),
        };
        if let Some(answer) = answer {
            q.qreply(cx, answer);
        }
    }

    /// Looks a name up that is to be registered; answers what can be said at once.
    fn register(&self, cx: &Kernel, q: &Q, mp: Mblk, entity: Entity, socket: u8) -> Option<Mblk> {
        if self.names.borrow().holds(&entity) {
            return Some(head::naked(mp, Errno::EADDRINUSE));
        }
        if !entity.is_one() || !xk_appletalk::ddp::is_socket(socket) {
            return Some(head::naked(mp, Errno::EINVAL));
        }
        self.search(cx, q, mp, entity, Some(socket))
    }

    fn search(
        &self,
        cx: &Kernel,
        q: &Q,
        mp: Mblk,
        entity: Entity,
        socket: Option<u8>,
    ) -> Option<Mblk> {
        // The address may have been claimed since.
        if self.mux.below.request(cx, Primitive::AddrReq).is_err() {
            return Some(head::naked(mp, Errno::ENXIO));
        }
        let me = self.me.get();
        let from = AtAddr { socket: SOCKET_NAMES, ..me };
        let wanted = Wanted { q: q.downgrade(), mp, entity, socket };
        let config = LookupConfig::default();
        let started =
            self.lookups.borrow_mut().start((entity, from), config, Clock::now(cx), wanted);
        match started {
            Ok(_) => {
                self.serve(cx);
                None
            }
            Err(wanted) => Some(head::naked(wanted.mp, Errno::ENOSR)),
        }
    }

    /// Does what is due of the searches.
    fn serve(&self, cx: &Kernel) {
        loop {
            let has_router = self.router.get().is_some();
            let due = self.lookups.borrow_mut().tick(Clock::now(cx), has_router);
            match due {
                Some(Due::Send(packet)) => {
                    let to = match (packet.function, self.router.get()) {
                        (Function::BrRq, Some(router)) => router.at().socket(SOCKET_NAMES),
                        _ => AtAddr::new(NET_ANY, BROADCAST, SOCKET_NAMES),
                    };
                    self.output(cx, to, &packet);
                }
                Some(Due::Done(wanted, found)) => self.finish(cx, wanted, found),
                None => break,
            }
        }
        let next = self.lookups.borrow().next();
        if let (Some(next), Some(q)) = (next, self.mux.below.q()) {
            self.clock.set(cx, &q, next);
        }
    }

    fn finish(&self, cx: &Kernel, wanted: Wanted, mut found: Vec<Tuple>) {
        let Wanted { q, mut mp, entity, socket } = wanted;
        let Some(q) = q.upgrade() else { return };
        let me = self.me.get();
        let answer = match socket {
            Some(_) if !found.is_empty() => head::naked(mp, Errno::EADDRINUSE),
            Some(socket) => match self.names.borrow_mut().add(entity, socket) {
                Ok(()) => head::acked(mp, 0),
                Err(NamesError::Full) => head::naked(mp, Errno::ENOSR),
                Err(NamesError::Exists) => head::naked(mp, Errno::EADDRINUSE),
                Err(NamesError::Bad) => head::naked(mp, Errno::EINVAL),
            },
            None => {
                let request = Packet::request(Function::LkUp, 0, me, entity);
                let own = self.names.borrow().answer(&request, me.at(), &self.zone);
                // By way of a router they have come already.
                for tuple in own.into_iter().flat_map(|packet| packet.tuples) {
                    let is_same = |known: &Tuple| {
                        known.at == tuple.at && known.enumerator == tuple.enumerator
                    };
                    if !found.iter().any(is_same) {
                        found.push(tuple);
                    }
                }
                let mut list = Vec::new();
                for tuple in found {
                    let name = tuple.entity.to_string();
                    list.extend_from_slice(&tuple.at.to_sockaddr());
                    list.push(name.len() as u8);
                    list.extend_from_slice(&name.as_bytes()[..usize::from(name.len() as u8)]);
                }
                drop(mp.unlinkb());
                match q.blocks().copy(Kind::Data, 0, &list) {
                    Some(data) => head::acked(mp.linked(data), 0),
                    None => head::naked(mp, Errno::ENOSR),
                }
            }
        };
        q.qreply(cx, answer);
    }
}

impl Multiplexor for Nbp {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x4e42, "nbp");

    fn mux(&self) -> &Mux<User> {
        &self.mux
    }

    fn opened(this: &Rc<Self>, _: &Kernel, _: &Q, _: Opening) -> Rc<dyn Module> {
        Rc::new(Commands(Rc::clone(this)))
    }

    fn lower(this: &Rc<Self>) -> Rc<dyn Module> {
        Rc::new(Lower(Rc::clone(this)))
    }

    fn control(&self, _: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let answer = ask.answer::<Report>(|report| {
            let names = self.names.borrow();
            report.lines = names
                .iter()
                .map(|(entity, socket)| (entity.to_string(), socket.to_string()))
                .collect();
            report.finished = true;
        });
        answer.is_answered().then_some(answer)
    }

    fn stop(&self) {
        let lookups = self.lookups.replace(Lookups::new(LOOKUPS_MAX));
        drop(lookups);
    }
}

impl OverDdp for Nbp {
    fn bound(&self, _: &Kernel, me: AtAddr) {
        self.me.set(me);
    }

    fn routed(&self, router: Option<AtAddr>) {
        self.router.set(router.filter(|router| router.at().is_one()));
    }

    fn arrived(
        &self,
        cx: &Kernel,
        (from, _): (AtAddr, Option<u8>),
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        if !data.pullupmsg(None) {
            return Err(&reason::NO_BUFFERS);
        }
        let packet = Packet::parse(data.octets()).map_err(|_| &reason::MALFORMED)?;
        match packet.function {
            Function::LkUp => {
                self.mux.below.request(cx, Primitive::AddrReq)?;
                // The node is told no zone, and trusts its router to ask in the cable's alone.
                let zone = match self.router.get() {
                    Some(_) => packet.wanted().map_or(self.zone, |wanted| wanted.entity.zone),
                    None => self.zone,
                };
                let answers = self.names.borrow().answer(&packet, self.me.get().at(), &zone);
                // The request says where its answer goes.
                let to = packet.answers_to().ok_or(&reason::BAD_SOURCE)?;
                let source = from.at().source();
                for answer in answers {
                    if !self.allowance.take(cx, source, 1) {
                        return Err(&UNPROVED);
                    }
                    self.output(cx, to, &answer);
                }
            }
            Function::Reply => {
                if !self.lookups.borrow_mut().heard(&packet, Clock::now(cx)) {
                    return Err(&reason::NO_PORT);
                }
                self.serve(cx);
            }
            // Of routers.
            Function::BrRq | Function::FwdReq => return Err(&reason::NOT_SUPPORTED),
        }
        Ok(())
    }

    fn tick(&self, cx: &Kernel) {
        self.clock.went_off();
        // The router may be another by now.
        if let Err(reason) = self.mux.below.request(cx, Primitive::AddrReq) {
            self.count(reason);
        }
        self.serve(cx);
    }
}

/// A stream of a user.
struct Commands(Rc<Nbp>);

impl Module for Commands {
    fn info(&self) -> ModuleInfo {
        Nbp::INFO
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Ioctl => self.0.command(cx, q, mp),
            Kind::Flush => q.flush_at_driver(cx, mp),
            _ => drop(mp),
        }
    }
}
