//! # Synopsis
//! `rtmp DDP` — the Routing Table Maintenance Protocol of a node, as a multiplexor of STREAMS.
//!
//! # Participants
//! Those of `ddp`; the socket is 1.
//!
//! # Behaviour
//! It receives the data of routers and tells `ddp`, by T_OPTMGMT_REQ, the networks of the cable and
//! the router heard last; a router that is silent for 50 s is forgotten. It asks for a router once,
//! when the node has its address; routers send their data every 10 s anyway. If the protocol below
//! is not `ddp` and its type cannot be chosen, it does not ask.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether
//!         rtmp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! G. Sidhu, R. Andrews and A. Oppenheimer, Inside AppleTalk, second edition, chapter 5.

use crate::common::{Clock, Lower, OverDdp, User};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::{AtAddr, BROADCAST, NET_ANY, NetRange, Node};
use xk_appletalk::ddp::{SOCKET_RTMP, TYPE_RTMP_REQUEST};
use xk_appletalk::rtmp::{Data, Heard, Request, Stub};
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::reason::{self, Reason};
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_streams::tpi::{Driver, Multiplexor, Mux, Primitive, Refusal};
use xk_streams::{Kind, Mblk, Module, ModuleInfo, Opening, Q};

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("rtmp", include_str!("rtmp.rs"), build)
    .subsystem("streams")
    .summary("what a node hears of AppleTalk's routers, as a multiplexor of STREAMS")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE)
    .numbers(&[("ddp", 1)]);

struct Rtmp {
    mux: Mux<User>,
    stub: RefCell<Stub>,
    /// The line below was told something.
    is_told: Cell<bool>,
    clock: Clock,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, new())
}

fn new() -> Rc<Driver<Rtmp>> {
    Driver::new(Rtmp {
        mux: Mux::default(),
        stub: RefCell::default(),
        is_told: Cell::new(false),
        clock: Clock::default(),
    })
}

/// Adds one on a line of `ddp`, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, ddp: ProtocolRef) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[ddp], new())
}

impl Rtmp {
    /// Tells the line below of the cable.
    fn tell(&self, cx: &Kernel, range: NetRange, router: Option<Node>) {
        self.is_told.set(true);
        let [a, b] = range.first().to_be_bytes();
        let [c, d] = range.last().to_be_bytes();
        let node = router.unwrap_or_default();
        let [e, f] = node.net.to_be_bytes();
        let opt = [a, b, c, d, e, f, node.node, u8::from(router.is_some())];
        if let Err(reason) =
            self.mux.below.request(cx, Primitive::OptmgmtReq { opt: &opt, flags: 0 })
        {
            self.count(reason);
        }
    }

    /// Asks all routers of the cable for its networks; `ddp` keeps it until it has an address.
    fn ask(&self, cx: &Kernel) {
        let to = AtAddr::new(NET_ANY, BROADCAST, SOCKET_RTMP).to_sockaddr();
        let q = self.mux.below.q();
        let octets = [Request::Networks as u8];
        let data = q.and_then(|q| q.blocks().copy(Kind::Data, 48, &octets));
        let sent = match data {
            Some(data) => self.mux.below.send(cx, (&to, &[TYPE_RTMP_REQUEST]), data),
            None => Err(&reason::NO_BUFFERS),
        };
        if let Err(reason) = sent {
            self.count(reason);
        }
    }

    fn arm(&self, cx: &Kernel) {
        let next = self.stub.borrow().next();
        if let (Some(next), Some(q)) = (next, self.mux.below.q()) {
            self.clock.set(cx, &q, next);
        }
    }
}

impl Multiplexor for Rtmp {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x5254, "rtmp");

    fn mux(&self) -> &Mux<User> {
        &self.mux
    }

    fn opened(this: &Rc<Self>, _: &Kernel, _: &Q, _: Opening) -> Rc<dyn Module> {
        Rc::new(Control(Rc::clone(this)))
    }

    fn lower(this: &Rc<Self>) -> Rc<dyn Module> {
        Rc::new(Lower(Rc::clone(this)))
    }
}

impl OverDdp for Rtmp {
    fn managed(&self, cx: &Kernel, answer: Result<&[u8], Refusal>) {
        match answer {
            // Requests can be sent, and those of others come here.
            Ok([TYPE_RTMP_REQUEST]) => self.ask(cx),
            Ok(_) => {}
            Err(_) if !self.is_told.get() => {}
            Err(_) => self.count(&reason::PROHIBITED),
        }
    }

    fn arrived(
        &self,
        cx: &Kernel,
        _: (AtAddr, Option<u8>),
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        if !data.pullupmsg(None) {
            return Err(&reason::NO_BUFFERS);
        }
        if let [_] = data.octets() {
            // Another node asks for routers; this is none.
            return Ok(());
        }
        let data = Data::parse(data.octets()).map_err(|_| &reason::MALFORMED)?;
        let heard = self.stub.borrow_mut().heard(&data, Clock::now(cx));
        match heard {
            Heard::Known => {}
            Heard::Router(router) => {
                let range = self.stub.borrow().range();
                if let Some(range) = range {
                    self.tell(cx, range, Some(router));
                }
            }
            Heard::Networks(range, router) => self.tell(cx, range, Some(router)),
            Heard::Refused => return Err(&reason::BAD_SOURCE),
        }
        self.arm(cx);
        Ok(())
    }

    fn tick(&self, cx: &Kernel) {
        self.clock.went_off();
        let silent = self.stub.borrow_mut().tick(Clock::now(cx));
        let range = self.stub.borrow().range();
        if let (Some(_), Some(range)) = (silent, range) {
            self.tell(cx, range, None);
        }
        self.arm(cx);
    }
}

/// A stream that links come by; it carries nothing.
struct Control(Rc<Rtmp>);

impl Module for Control {
    fn info(&self) -> ModuleInfo {
        Rtmp::INFO
    }

    fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match mp.kind() {
            Kind::Ioctl => {
                let had = self.0.mux.below.q().is_some();
                self.0.link(cx, &q.read_side(), mp, SOCKET_RTMP);
                let is_linked = !had && self.0.mux.below.q().is_some();
                let opt: &[u8] = &[TYPE_RTMP_REQUEST];
                let asked = Primitive::OptmgmtReq { opt, flags: 0 };
                if is_linked && let Err(reason) = self.0.mux.below.request(cx, asked) {
                    self.0.count(reason);
                }
            }
            Kind::Flush => q.flush_at_driver(cx, mp),
            _ => drop(mp),
        }
    }
}
