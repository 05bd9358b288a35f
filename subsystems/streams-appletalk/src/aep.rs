//! # Synopsis
//! `aep DDP` — AppleTalk's echo as a multiplexor of STREAMS.
//!
//! # Participants
//! Those of `ddp`; the socket is 4.
//!
//! # Behaviour
//! An arriving request is sent back, without a copy of its data. A user's message is sent as a
//! request; the reply goes up to the user that last sent to that node.
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
//! G. Sidhu, R. Andrews and A. Oppenheimer, Inside AppleTalk, second edition, chapter 6.

use crate::common::{Lower, OverDdp, User};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_appletalk::addr::{AtAddr, SOCKADDR_LEN};
use xk_appletalk::aep::{DATA_LEN_MAX, Function};
use xk_appletalk::ddp::SOCKET_ECHO;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::reason::{self, Reason};
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_streams::tpi::{
    Datagrams, Driver, Endpoint, Info, Multiplexor, Mux, Refusal, SendError, unitdata_ind,
};
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Q};

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("aep", include_str!("aep.rs"), build)
    .subsystem("streams")
    .summary("AppleTalk's echo as a multiplexor of STREAMS")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE)
    .header_octets(1)
    .numbers(&[("ddp", 4)]);

struct Aep {
    mux: Mux<User>,
    me: Cell<AtAddr>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, new())
}

fn new() -> Rc<Driver<Aep>> {
    Driver::new(Aep { mux: Mux::default(), me: Cell::default() })
}

/// Adds one on a line of `ddp`, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, ddp: ProtocolRef) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[ddp], new())
}

impl Aep {
    /// Sends data with this function in front.
    fn output(
        &self,
        cx: &Kernel,
        to: AtAddr,
        function: Function,
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        let header = [function as u8];
        if !data.put_front(&header) {
            let q = self.mux.below.q().ok_or(&reason::CLOSED)?;
            let front = q.blocks().copy(Kind::Data, 48, &header).ok_or(&reason::NO_BUFFERS)?;
            data = front.linked(data);
        }
        self.mux.below.send(cx, (&to.to_sockaddr(), &[]), data)
    }
}

impl Multiplexor for Aep {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x4145, "aep");

    fn mux(&self) -> &Mux<User> {
        &self.mux
    }

    fn opened(this: &Rc<Self>, _: &Kernel, q: &Q, _: Opening) -> Rc<dyn Module> {
        this.mux.users.open(q, User::default());
        Endpoint::new(Rc::clone(this))
    }

    fn lower(this: &Rc<Self>) -> Rc<dyn Module> {
        Rc::new(Lower(Rc::clone(this)))
    }
}

impl OverDdp for Aep {
    fn bound(&self, _: &Kernel, me: AtAddr) {
        self.me.set(me);
    }

    fn arrived(
        &self,
        cx: &Kernel,
        (from, _): (AtAddr, Option<u8>),
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        if !data.pullupmsg(Some(1)) {
            return Err(&reason::TRUNCATED);
        }
        let first = data.octets().first().copied().ok_or(&reason::TRUNCATED)?;
        let function = Function::parse(first).map_err(|_| &reason::MALFORMED)?;
        if !data.skip(1) {
            return Err(&reason::TRUNCATED);
        }
        if function == Function::Request {
            return self.output(cx, from, Function::Reply, data);
        }
        let is_from = |to: AtAddr| to.node == from.node && (to.net == from.net || to.net == 0);
        let q = self.mux.users.find(|user| user.to.is_some_and(is_from)).ok_or(&reason::NO_PORT)?;
        if !q.canputnext() {
            return Err(&reason::QUEUE_FULL);
        }
        let up = unitdata_ind(q.blocks(), &from.to_sockaddr(), &[], data);
        q.putnext(cx, up.ok_or(&reason::NO_BUFFERS)?);
        Ok(())
    }
}

impl Datagrams for Aep {
    fn module(&self) -> ModuleInfo {
        Self::INFO
    }

    fn info(&self) -> Info {
        Info::datagrams(DATA_LEN_MAX as u32, SOCKADDR_LEN as u32, 0)
    }

    /// All users share the echo's socket.
    fn bind(&self, _: &Kernel, q: &Q, _: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        self.mux.users.with(q, |user| user.socket = Some(SOCKET_ECHO));
        Ok(self.me.get().to_sockaddr().into())
    }

    fn unbind(&self, _: &Kernel, q: &Q) {
        self.mux.users.with(q, |user| (user.socket, user.to) = (None, None));
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, _): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let to = AtAddr::from_sockaddr(to).ok_or(SendError::Told(Errno::EINVAL))?;
        let to = AtAddr { socket: if to.socket == 0 { SOCKET_ECHO } else { to.socket }, ..to };
        let empty = || q.blocks().copy(Kind::Data, 0, &[]);
        let data = data.or_else(empty).ok_or(SendError::Told(Errno::ENOSR))?;
        if data.size() > DATA_LEN_MAX {
            return Err(SendError::Told(Errno::EMSGSIZE));
        }
        self.mux.users.with(q, |user| user.to = Some(to));
        self.output(cx, to, Function::Request, data).map_err(|reason| {
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

    fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        self.link(cx, q, mp, SOCKET_ECHO);
    }

    fn close(&self, _: &Kernel, q: &Q) {
        self.mux.users.close(q);
    }
}
