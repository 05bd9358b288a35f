//! # Synopsis
//! `rtmp DDP` — the Routing Table Maintenance Protocol of a node, in the BSD network subsystem.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! It tells `ddp` below the networks of the cable and the router heard last, by ioctl. A lower
//! protocol without that ioctl is not told.
//!
//! It is the stub of a node that does not route. It asks for a router once, when the node has its
//! address, if the protocol below has routers (`SIOCGATROUTER`). Routers send their tables every
//! ten seconds; one that is silent for 50 seconds is forgotten. Data that contradict the known
//! networks are refused.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         rtmp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 5, "RTMP stub".

use crate::{SIOCGATROUTER, SIOCSATROUTER, ioctl, lower_of, now, sockaddr};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::{AtAddr, NetRange, Node};
use xk_appletalk::ddp::{DATA_LEN_MAX, SOCKET_RTMP, TYPE_RTMP, TYPE_RTMP_REQUEST};
use xk_appletalk::rtmp::{Data, Heard, Request, Stub};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::count;
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{
    Bsd, InputArg, Mbuf, OutputArg, ProtoFns, Protosw, Pru, PruArgs, SIOCGIFSRCADDR, Sock, Switch,
    add_line,
};
use xk_core::control::question;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::reason;
use xk_core::{Entry, Kernel, ProtocolRef, Reason};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("rtmp", include_str!("rtmp.rs"), build)
    .subsystem("bsd")
    .summary("hears routers of AppleTalk")
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE.and(Guarantees::EXACT))
    .numbers(&[("ddp", TYPE_RTMP as u32)])
    .questions(&[question("report", "the router, how many were heard and refused")]);

struct Rtmp {
    bsd: Rc<Bsd>,
    lower: Rc<Protosw>,
    stub: RefCell<Stub>,
    /// Routers were asked, or need not be.
    is_asked: Cell<bool>,
    heard: Cell<u64>,
    refused: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    let bsd = xk_bsd::of(build.cx)?;
    let rtmp = Rtmp {
        lower: lower_of(build, &bsd)?,
        bsd,
        stub: RefCell::new(Stub::new(None)),
        is_asked: Cell::new(false),
        heard: Cell::new(0),
        refused: Cell::new(0),
    };
    let sw = Switch {
        pr_type: Sock::None,
        pr_domain: AF_APPLETALK,
        pr_protocol: TYPE_RTMP,
        pr_flags: 0,
    };
    add_line(build, sw, Rc::new(rtmp)).map(|(node, _)| node)
}

impl Rtmp {
    /// Tells DDP; one that does not know the ioctl finds its routers by itself.
    fn tell(&self, cx: &Kernel, router: Option<Node>, range: Option<NetRange>) -> Result {
        let mut sa = sockaddr(&self.bsd, router.unwrap_or_default().socket(0));
        if let Some(range) = range {
            sa.0[8..10].copy_from_slice(&range.first().to_be_bytes());
            sa.0[10..12].copy_from_slice(&range.last().to_be_bytes());
        }
        let mut nam = sa.to_mbuf(self.bsd.mbufs())?;
        let mut args = PruArgs { cmd: SIOCSATROUTER, ..PruArgs::nam(&mut nam) };
        match self.lower.pr_usrreq(cx, None, Pru::Control, &mut args) {
            Err(Errno::EOPNOTSUPP) => Ok(()),
            told => told,
        }
    }

    /// Asks all routers of the cable, once there is an address to ask from.
    fn ask(&self, cx: &Kernel) -> Result {
        let none = AtAddr::default();
        if ioctl(cx, &self.bsd, &self.lower, SIOCGATROUTER, none) == Err(Errno::EOPNOTSUPP) {
            self.is_asked.set(true);
            return Ok(());
        }
        ioctl(cx, &self.bsd, &self.lower, SIOCGIFSRCADDR, none)?;
        let octets = [Request::Networks as u8];
        let (mut m, _) = xk_bsd::uiomove(&self.bsd, &octets, octets.len(), true)?;
        m.make_packet(0);
        self.is_asked.set(true);
        let to = sockaddr(&self.bsd, Node::ALL.socket(SOCKET_RTMP));
        let from = sockaddr(&self.bsd, AtAddr { socket: SOCKET_RTMP, ..none });
        self.lower.pr_output(cx, m, &OutputArg::new(to, Some(from), TYPE_RTMP_REQUEST))
    }

    fn rtmp_input(
        &self,
        cx: &Kernel,
        m: &Mbuf,
        arg: &InputArg,
    ) -> core::result::Result<(), &'static Reason> {
        match arg {
            InputArg::Addressed { to, .. } if to.socket() == SOCKET_RTMP => {}
            _ => return Err(&reason::NO_PORT),
        }
        let mut octets = [0; DATA_LEN_MAX];
        let n = m.m_copydata(0, &mut octets);
        let data = Data::parse(octets.get(..n).unwrap_or_default());
        let data = data.map_err(|_| &reason::MALFORMED)?;
        let heard = self.stub.borrow_mut().heard(&data, now(cx));
        let (router, range) = match heard {
            Heard::Known => return Ok(()),
            Heard::Refused => {
                count(&self.refused);
                return Err(&reason::BAD_SOURCE);
            }
            Heard::Router(router) => (router, None),
            Heard::Networks(range, router) => (router, Some(range)),
        };
        count(&self.heard);
        self.tell(cx, Some(router), range).map_err(<&Reason>::from)
    }
}

impl ProtoFns for Rtmp {
    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        if let Err(reason) = self.rtmp_input(cx, &m, &arg) {
            pr.count_drop(reason);
        }
        m.m_freem();
    }

    fn has_slowtimo(&self) -> bool {
        true
    }

    fn pr_slowtimo(&self, cx: &Kernel, _: &Rc<Protosw>) {
        if !self.is_asked.get() {
            // Without an address, or an mbuf, it is tried again.
            let _ = self.ask(cx);
        }
        let silent = self.stub.borrow_mut().tick(now(cx));
        if silent.is_some() {
            // Without room for an mbuf, DDP sends to the silent router until another is heard.
            let _ = self.tell(cx, None, None);
        }
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        let router = self.stub.borrow().router().unwrap_or_default();
        Vec::from([
            ("router", u64::from(router.net) << 8 | u64::from(router.node)),
            ("routers heard", self.heard.get()),
            ("refused", self.refused.get()),
        ])
    }
}
