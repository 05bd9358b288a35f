//! # Synopsis
//! `aep DDP` — answers echoes of AppleTalk, in the BSD network subsystem.
//!
//! # Participants
//! Sockets of nodes, as `sockaddr_at`.
//!
//! # Behaviour
//! A program that sends echo requests uses a socket of DDP, with type 4.
//!
//! A request to socket 4 goes back as a reply, without a copy of its data. Requests to all nodes,
//! and packets from socket 4, are not answered.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         aep ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 6.

use crate::lower_of;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_appletalk::addr::BROADCAST;
use xk_appletalk::aep::Function;
use xk_appletalk::ddp::{SOCKET_ECHO, TYPE_AEP};
use xk_bsd::ifnet::count;
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{InputArg, Mbuf, OutputArg, ProtoFns, Protosw, Sock, Switch, add_line};
use xk_core::control::question;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::reason;
use xk_core::{Entry, Kernel, ProtocolRef, Reason};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("aep", include_str!("aep.rs"), build)
    .subsystem("bsd")
    .summary("answers echoes of AppleTalk")
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE.and(Guarantees::EXACT))
    .numbers(&[("ddp", TYPE_AEP as u32)])
    .questions(&[question("report", "echoes answered")]);

struct Aep {
    lower: Rc<Protosw>,
    answered: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    let bsd = xk_bsd::of(build.cx)?;
    let aep = Aep { lower: lower_of(build, &bsd)?, answered: Cell::new(0) };
    let sw =
        Switch { pr_type: Sock::None, pr_domain: AF_APPLETALK, pr_protocol: TYPE_AEP, pr_flags: 0 };
    add_line(build, sw, Rc::new(aep)).map(|(node, _)| node)
}

impl Aep {
    fn aep_input(
        &self,
        cx: &Kernel,
        m: Mbuf,
        arg: &InputArg,
    ) -> core::result::Result<(), &'static Reason> {
        let InputArg::Addressed { from, to, .. } = arg else {
            return Err(&reason::NOT_SUPPORTED);
        };
        if to.socket() != SOCKET_ECHO {
            return Err(&reason::NO_PORT);
        }
        let mut m = m.m_pullup(1).map_err(|_| &reason::TRUNCATED)?;
        let first = m.mtod().first().copied().ok_or(&reason::TRUNCATED)?;
        let is_request = Function::parse(first) == Ok(Function::Request);
        if !is_request || from.socket() == SOCKET_ECHO || to.node() == BROADCAST {
            return Err(&reason::NOT_SUPPORTED);
        }
        // What arrives may be lent: the first octet is written into an mbuf of our own.
        m.m_adj(1);
        let mut m = m.m_prepend(1)?;
        if let Some(first) = m.mtod_mut().and_then(<[u8]>::first_mut) {
            *first = Function::Reply as u8;
        }
        self.lower.pr_output(cx, m, &OutputArg::new(*from, Some(*to), TYPE_AEP))?;
        count(&self.answered);
        Ok(())
    }
}

impl ProtoFns for Aep {
    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        if let Err(reason) = self.aep_input(cx, m, &arg) {
            pr.count_drop(reason);
        }
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        [("echoes answered", self.answered.get())].into()
    }
}
