//! # Synopsis
//! `nbp DDP { register "printer:LaserWriter" socket=130; }` — names of AppleTalk, in the BSD
//! network subsystem.
//!
//! # Participants
//! Names: `object:type@zone`.
//!
//! # Behaviour
//! Its sockets are of type `SOCK_RAW` and protocol 2. A datagram sent is a name to look up, with
//! `=` for any object or type. The socket receives one datagram for each entity, with the name,
//! from the entity's address, and an empty one at the end. The option [`NBP_REGISTER`] of level 2
//! registers a name; its value is the socket's number and the name. After the look-up the socket
//! receives an empty datagram if the name is registered; otherwise its error is `EADDRINUSE`.
//! [`NBP_REMOVE`] removes a name.
//!
//! Requests are answered from the names of this node, with at most 100 packets a second for each
//! asking node. A look-up sends three requests, a second apart: to all nodes of the cable, or to
//! the router if DDP knows one. Its results include this node's own names. With `zone` the node
//! receives the requests of routers to its zone's multicast address; without it only those to all
//! nodes. Names that the graph registers are also looked up first, once there is an address. Timers
//! are checked every 200 ms.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         nbp ddp { register "printer:LaserWriter" socket=130; }
//!     }
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 7.

use crate::{SIOCGATROUTER, SIOCSATSOCKET, at_addr, ioctl, lower_of, now, sockaddr};
use alloc::rc::{Rc, Weak};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::{AtAddr, Node};
use xk_appletalk::ddp::{DATA_LEN_MAX, SOCKET_NAMES, TYPE_NBP, is_socket};
use xk_appletalk::name::Name;
use xk_appletalk::nbp::{
    Due, Entity, Function, LookupConfig, Lookups, Names, NamesError, Packet, Tuple,
};
use xk_appletalk::zip;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::{SIOCADDMULTI, count};
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{
    Bsd, InputArg, Mbuf, Mt, OutputArg, PR_ADDR, PR_ATOMIC, Prco, ProtoFns, Protosw, Pru, PruArgs,
    SIOCGIFSRCADDR, SS_ISCONNECTED, Sock, Sockaddr, Socket, Switch, add_line,
};
use xk_core::control::question;
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Realm, block, int, optional, required,
};
use xk_core::reason;
use xk_core::{Entry, Kernel, ProtocolRef, Reason};
use xk_kit::answers::{Allowance, UNPROVED};

/// An option: registers a name.
pub const NBP_REGISTER: u16 = 1;
/// An option: takes a name away.
pub const NBP_REMOVE: u16 = 2;

const NAME: &str = "a name, such as printer:LaserWriter";
/// Octets received that wait at most.
const RECVSPACE: usize = 8192;
/// Packets that answer a node, in a second and at once.
const ANSWERS_PER_SECOND: u64 = 100;
const BURST: u64 = 50;
/// Look-ups under way at most.
const LOOKUPS_MAX: usize = 64;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("nbp", include_str!("nbp.rs"), build)
    .subsystem("bsd")
    .summary("names of AppleTalk: registered, looked up")
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE.and(Guarantees::EXACT))
    .numbers(&[("ddp", TYPE_NBP as u32)])
    .parameters(&[
        optional("zone", ParamKind::Text("a zone, such as XK"), "the zone of this node"),
        int("names_max", 1..=4096, 128, "names that it registers at most"),
    ])
    .blocks(&[
        block("register", 0..=64,
            &[required("name", ParamKind::Text(NAME), "object and type")],
            &[int("socket", 1..=254, 128, "the socket that has it")],
            "a name to register"),
    ])
    .questions(&[question("report", "names, look-ups, requests answered")]);

/// Purpose of a look-up.
enum Purpose {
    /// A user wants to know of such entities.
    Find(Weak<Socket>, Entity),
    /// The name is to be registered, perhaps for a user.
    Register(Entity, u8, Option<Weak<Socket>>),
}

struct Nbp {
    bsd: Rc<Bsd>,
    lower: Rc<Protosw>,
    zone: Name,
    names: RefCell<Names>,
    lookups: RefCell<Lookups<Purpose>>,
    /// Names of the graph that wait for an address.
    wanted: RefCell<Vec<(Entity, u8)>>,
    begun: Cell<u64>,
    answered: Cell<u64>,
    allowance: Allowance,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    let bsd = xk_bsd::of(build.cx)?;
    let zone = build.params.text("zone").map_or(Ok(Name::EMPTY), Name::from_text);
    let names_max = build.int("names_max")?;
    let (mut wanted, mut names) = (Vec::new(), Names::new(names_max));
    for (index, block) in build.params.blocks("register").enumerate() {
        let entity = block.text("name").and_then(|text| text.parse::<Entity>().ok());
        let socket = block.number("socket", 128);
        let added = entity.ok_or(NamesError::Bad).and_then(|entity| names.add(entity, socket));
        added.map_err(|why| {
            let expected = match why {
                NamesError::Full => "no more names than `names_max`",
                NamesError::Exists => "each name once, whether in capitals or not",
                NamesError::Bad => NAME,
            };
            BuildError::Param { name: "register", index, expected: expected.into() }
        })?;
        wanted.extend(entity.map(|entity| (entity, socket)));
    }
    let nbp = Nbp {
        lower: lower_of(build, &bsd)?,
        bsd,
        zone: zone.map_err(|_| BuildError::param("zone", "at most 32 characters"))?,
        names: RefCell::new(Names::new(names_max)),
        lookups: RefCell::new(Lookups::new(LOOKUPS_MAX)),
        wanted: RefCell::new(wanted),
        begun: Cell::new(0),
        answered: Cell::new(0),
        allowance: Allowance::new(ANSWERS_PER_SECOND, BURST),
    };
    let sw = Switch {
        pr_type: Sock::Raw,
        pr_domain: AF_APPLETALK,
        pr_protocol: TYPE_NBP,
        pr_flags: PR_ATOMIC | PR_ADDR,
    };
    add_line(build, sw, Rc::new(nbp)).map(|(node, _)| node)
}

impl Nbp {
    /// This node, once it has an address.
    fn me(&self, cx: &Kernel) -> Result<Node> {
        let me = ioctl(cx, &self.bsd, &self.lower, SIOCGIFSRCADDR, AtAddr::default())?;
        Ok(at_addr(&me).at())
    }

    fn router(&self, cx: &Kernel) -> Option<Node> {
        let router = ioctl(cx, &self.bsd, &self.lower, SIOCGATROUTER, AtAddr::default());
        router.ok().map(|sa| at_addr(&sa).at()).filter(|router| router.is_one())
    }

    fn send(&self, cx: &Kernel, to: AtAddr, packet: &Packet) -> Result {
        let octets = packet.octets();
        let (mut m, _) = xk_bsd::uiomove(&self.bsd, &octets, octets.len(), true)?;
        m.make_packet(0);
        let from = AtAddr { socket: SOCKET_NAMES, ..AtAddr::default() };
        let (to, from) = (sockaddr(&self.bsd, to), sockaddr(&self.bsd, from));
        self.lower.pr_output(cx, m, &OutputArg::new(to, Some(from), TYPE_NBP))
    }

    fn look_up(&self, cx: &Kernel, entity: Entity, of: Purpose) -> Result {
        let from = self.me(cx)?.socket(SOCKET_NAMES);
        let config = LookupConfig::default();
        let begun = self.lookups.borrow_mut().start((entity, from), config, now(cx), of);
        begun.map_err(|_| Errno::ENOBUFS)?;
        count(&self.begun);
        self.tick(cx);
        Ok(())
    }

    fn tick(&self, cx: &Kernel) {
        let router = self.router(cx);
        loop {
            let due = self.lookups.borrow_mut().tick(now(cx), router.is_some());
            match due {
                None => break,
                Some(Due::Send(packet)) => {
                    let to = match (packet.function, router) {
                        (Function::BrRq, Some(router)) => router,
                        _ => Node::ALL,
                    };
                    // One that cannot be sent is lost like one on the wire.
                    let _ = self.send(cx, to.socket(SOCKET_NAMES), &packet);
                }
                Some(Due::Done(of, found)) => self.done(cx, of, &found),
            }
        }
    }

    /// A look-up has ended.
    fn done(&self, cx: &Kernel, of: Purpose, found: &[Tuple]) {
        match of {
            Purpose::Find(so, entity) => {
                let Some(so) = so.upgrade() else { return };
                // A request to all nodes does not come back to this one.
                let me = self.me(cx).unwrap_or_default();
                let request = Packet::request(Function::LkUp, 0, me.socket(SOCKET_NAMES), entity);
                let own = self.names.borrow().answer(&request, me, &self.zone);
                let own = own.into_iter().flat_map(|packet| packet.tuples).filter(|tuple| {
                    let is_same =
                        |one: &Tuple| one.at == tuple.at && one.enumerator == tuple.enumerator;
                    !found.iter().any(is_same)
                });
                for tuple in found.iter().copied().chain(own.collect::<Vec<_>>()) {
                    self.append(cx, &so, tuple.at, tuple.entity.to_string().as_bytes());
                }
                self.append(cx, &so, AtAddr::default(), &[]);
            }
            Purpose::Register(entity, socket, so) => {
                let added = match found.is_empty() {
                    true => self.names.borrow_mut().add(entity, socket),
                    false => Err(NamesError::Exists),
                };
                let Some(so) = so.and_then(|so| so.upgrade()) else { return };
                match added {
                    Ok(()) => self.append(cx, &so, AtAddr::default(), &[]),
                    Err(error) => {
                        so.set_error(Some(match error {
                            NamesError::Exists => Errno::EADDRINUSE,
                            NamesError::Full => Errno::ENOBUFS,
                            NamesError::Bad => Errno::EINVAL,
                        }));
                        so.sorwakeup(cx);
                    }
                }
            }
        }
    }

    fn append(&self, cx: &Kernel, so: &Rc<Socket>, from: AtAddr, octets: &[u8]) {
        let mbufs = self.bsd.mbufs();
        let from = sockaddr(&self.bsd, from).to_mbuf(mbufs);
        let data = mbufs.m_copyin(Mt::Data, octets);
        if let (Ok(from), Ok(data)) = (from, data)
            && so.so_rcv.sbappendaddr(from, Some(data), None).is_ok()
        {
            so.sorwakeup(cx);
        }
    }

    fn nbp_input(
        &self,
        cx: &Kernel,
        m: &Mbuf,
        arg: &InputArg,
    ) -> core::result::Result<(), &'static Reason> {
        let from = match arg {
            InputArg::Addressed { from, to, .. } if to.socket() == SOCKET_NAMES => at_addr(from),
            _ => return Err(&reason::NO_PORT),
        };
        let mut octets = [0; DATA_LEN_MAX];
        let n = m.m_copydata(0, &mut octets);
        let packet = Packet::parse(octets.get(..n).unwrap_or_default());
        let packet = packet.map_err(|_| &reason::MALFORMED)?;
        match packet.function {
            Function::Reply => {
                if !self.lookups.borrow_mut().heard(&packet, now(cx)) {
                    return Err(&reason::NOT_MINE);
                }
                self.tick(cx);
            }
            Function::LkUp => {
                let to = packet.answers_to().ok_or(&reason::BAD_SOURCE)?;
                let me = self.me(cx)?;
                let replies = self.names.borrow().answer(&packet, me, &self.zone);
                let source = from.at().source();
                for reply in &replies {
                    if !self.allowance.take(cx, source, 1) {
                        return Err(&UNPROVED);
                    }
                    self.send(cx, to, reply)?;
                    count(&self.answered);
                }
            }
            // For routers.
            Function::BrRq | Function::FwdReq => return Err(&reason::NOT_SUPPORTED),
        }
        Ok(())
    }
}

/// The number in front of a name, and the name.
fn parse(value: Option<&Mbuf>) -> Result<(u8, Entity)> {
    let octets: Vec<u8> = value.ok_or(Errno::EINVAL)?.octets().take(128).collect();
    let (socket, name) = octets.split_first().ok_or(Errno::EINVAL)?;
    let name = core::str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
    Ok((*socket, name.parse().map_err(|_| Errno::EINVAL)?))
}

impl ProtoFns for Nbp {
    fn pr_init(&self, cx: &Kernel, _: &Rc<Protosw>) -> Result {
        let names = AtAddr { socket: SOCKET_NAMES, ..AtAddr::default() };
        match ioctl(cx, &self.bsd, &self.lower, SIOCSATSOCKET, names) {
            // What does not give sockets leaves them to the protocols.
            Ok(_) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(error),
        }?;
        if self.zone.is_empty() {
            return Ok(());
        }
        // Routers ask the nodes of a zone at an address of its own.
        let mut group = Sockaddr::unspec(self.bsd.mbufs().release(), [0; 14]);
        group.0[2..8].copy_from_slice(&zip::multicast(&self.zone));
        let mut nam = group.to_mbuf(self.bsd.mbufs())?;
        let mut args = PruArgs { cmd: SIOCADDMULTI, ..PruArgs::nam(&mut nam) };
        match self.lower.pr_usrreq(cx, None, Pru::Control, &mut args) {
            // What stands for DDP has groups of its own.
            Err(Errno::EOPNOTSUPP) => Ok(()),
            joined => joined,
        }
    }

    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        if let Err(reason) = self.nbp_input(cx, &m, &arg) {
            pr.count_drop(reason);
        }
        m.m_freem();
    }

    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        if req == Pru::Control {
            return self.lower.pr_usrreq(cx, so, req, args);
        }
        let so = so.ok_or(Errno::EINVAL)?;
        match req {
            Pru::Attach => {
                so.soreserve(128, RECVSPACE)?;
                so.set_pcb(Some(Rc::new(())));
                // A look-up has no address.
                so.set_state(SS_ISCONNECTED, 0);
            }
            Pru::Detach | Pru::Abort => so.set_pcb(None),
            Pru::Disconnect => so.set_state(0, SS_ISCONNECTED),
            Pru::Send => {
                let octets: Vec<u8> = args.need_m()?.octets().collect();
                let name = core::str::from_utf8(&octets).map_err(|_| Errno::EINVAL)?;
                let entity = name.parse().map_err(|_| Errno::EINVAL)?;
                self.look_up(cx, entity, Purpose::Find(Rc::downgrade(so), entity))?;
            }
            Pru::Shutdown => so.socantsendmore(cx),
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn pr_ctloutput(
        &self,
        cx: &Kernel,
        op: Prco,
        so: &Rc<Socket>,
        (level, name): (u16, u16),
        mp: &mut Option<Mbuf>,
    ) -> Result {
        if op != Prco::Setopt || level != u16::from(TYPE_NBP) {
            return Err(Errno::ENOPROTOOPT);
        }
        let (socket, entity) = parse(mp.as_ref())?;
        match name {
            NBP_REGISTER if !entity.is_one() || !is_socket(socket) => Err(Errno::EINVAL),
            NBP_REGISTER => {
                let of = Purpose::Register(entity, socket, Some(Rc::downgrade(so)));
                self.look_up(cx, entity, of)
            }
            NBP_REMOVE if self.names.borrow_mut().remove(&entity) => Ok(()),
            NBP_REMOVE => Err(Errno::EADDRNOTAVAIL),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn has_fasttimo(&self) -> bool {
        true
    }

    fn pr_fasttimo(&self, cx: &Kernel, _: &Rc<Protosw>) {
        if !self.wanted.borrow().is_empty() && self.me(cx).is_ok() {
            let wanted = self.wanted.take();
            for (entity, socket) in wanted {
                let of = Purpose::Register(entity, socket, None);
                if self.look_up(cx, entity, of).is_err() {
                    self.wanted.borrow_mut().push((entity, socket));
                }
            }
        }
        if !self.lookups.borrow().is_empty() {
            self.tick(cx);
        }
    }

    fn pr_stop(&self) {
        drop(self.lookups.replace(Lookups::new(0)));
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        Vec::from([
            ("names", self.names.borrow().len() as u64),
            ("lookups", self.begun.get()),
            ("requests answered", self.answered.get()),
        ])
    }
}
