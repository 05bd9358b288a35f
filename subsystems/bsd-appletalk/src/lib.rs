//! AppleTalk in the BSD network subsystem: `ddp` (with AARP), `aep`, `nbp`, `rtmp`, `atp`. Each
//! module's documentation is the line's manual.
//!
//! Written as BSD's authors would: entries of the protocol switch, control blocks, sockets with
//! `sockaddr_at`. Octets and state machines are those of `xk-appletalk`, which knows no framework.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod aarp;
pub mod aep;
pub mod atp;
pub mod ddp;
mod ddp_usrreq;
pub mod nbp;
pub mod rtmp;
#[cfg(test)]
mod tests;

pub use aep::ENTRY as AEP;
pub use atp::ENTRY as ATP;
pub use ddp::ENTRY as DDP;
pub use nbp::ENTRY as NBP;
pub use rtmp::ENTRY as RTMP;

use alloc::rc::Rc;
use core::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{Bsd, Mbuf, Protosw, Pru, PruArgs, Sockaddr};
use xk_core::Kernel;

/// An ioctl of DDP's: gives a protocol above the socket in `nam`, or with 0 any that is free, which
/// it fills in.
pub const SIOCSATSOCKET: u32 = 0xc020_6990;
/// An ioctl of DDP's: takes the socket in `nam` back.
pub const SIOCDATSOCKET: u32 = 0x8020_6991;
/// An ioctl of DDP's: the router heard last is in `nam`, and the networks of the cable are from
/// its octets 8 to 11; one without a node is none.
pub const SIOCSATROUTER: u32 = 0x8020_6992;
/// An ioctl of DDP's: fills in the router, as [`SIOCSATROUTER`] has it.
pub const SIOCGATROUTER: u32 = 0xc020_6993;

/// The time, as the state machines have it.
fn now(cx: &Kernel) -> Duration {
    Duration::from_nanos(cx.now().as_ns())
}

/// As a `sockaddr_at` of the subsystem's release.
fn sockaddr(bsd: &Bsd, at: AtAddr) -> Sockaddr {
    Sockaddr::appletalk(bsd.mbufs().release(), at.net, at.node, at.socket)
}

/// The address in a `sockaddr_at`.
fn at_addr(sa: &Sockaddr) -> AtAddr {
    AtAddr::new(sa.net(), sa.node(), sa.socket())
}

/// The address in an mbuf.
fn nam_addr(nam: &Mbuf) -> Result<AtAddr> {
    Sockaddr::of_family(nam, AF_APPLETALK).map(|sa| at_addr(&sa))
}

/// An ioctl to the protocol below: what it makes of an address.
fn ioctl(cx: &Kernel, bsd: &Bsd, lower: &Rc<Protosw>, cmd: u32, at: AtAddr) -> Result<Sockaddr> {
    let mut nam = sockaddr(bsd, at).to_mbuf(bsd.mbufs())?;
    let mut args = PruArgs { cmd, ..PruArgs::nam(&mut nam) };
    lower.pr_usrreq(cx, None, Pru::Control, &mut args)?;
    let answer = Sockaddr::of(&nam);
    nam.m_freem();
    answer
}

/// The native neighbour below a line.
fn lower_of(
    build: &xk_core::graph::Build<'_>,
    bsd: &Bsd,
) -> core::result::Result<Rc<Protosw>, xk_core::graph::BuildError> {
    let lower = bsd.protocol(build.lower(0)?.id());
    lower.ok_or(Errno::EPROTONOSUPPORT).map_err(xk_bsd::environment)
}
