//! # Synopsis
//! `atp DDP` — AppleTalk's transactions as a multiplexor of STREAMS.
//!
//! # Participants
//! Those of `ddp`.
//!
//! # Behaviour
//! It stands on a line `ddp`, or on an adapter in its place, by a stream that receives all
//! datagrams of its type. It answers `max-packet` (4624).
//!
//! A stream is bound to a socket, which is claimed from `ddp` (T_OPTMGMT_REQ), so that no user of
//! `ddp` has it; if the protocol below assigns no sockets, ATP does. T_UNITDATA_REQ with options
//! (twelve octets, `xk_appletalk::atp::Options`) begins a transaction or replies to one. Without
//! options it begins one with the values of the parameters; `interval` has steps of 100 ms.
//! T_UNITDATA_IND has a request to execute, a reply, or a failure. A reply of up to 8 x 578 octets
//! is one message, which is cut into responses and joined from them by duplicates of blocks,
//! without a copy.
//!
//! A request for a stream whose queue is full is dropped, as if it had been lost. Replies and
//! failures always go up: there are at most as many as transactions in progress, 1024.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         atp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! G. Sidhu, R. Andrews and A. Oppenheimer, Inside AppleTalk, second edition, chapter 9.

use crate::common::{Clock, Lower, OverDdp, User, socket_of};
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::{AtAddr, SOCKADDR_LEN};
use xk_appletalk::atp::{
    Arrived, BeginError, Bounds, Due, HEADER_OCTETS, Header, Heard, Kind as Packets, Limits,
    OPTIONS_OCTETS, OptionKind, Options, Packet, Payload, REPLY_OCTETS_MAX, ReplyError, Requester,
    Responder, Verdict,
};
use xk_appletalk::ddp::{SOCKETS_DYNAMIC, is_socket};
use xk_core::control::{Report, question};
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, Service};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef};
use xk_kit::control::MaxPacket;
use xk_kit::rpc::call::UsualTransaction;
use xk_streams::tpi::{
    Datagrams, Driver, Endpoint, Info, Multiplexor, Mux, Primitive, Refusal, SendError, TliError,
    unitdata_ind,
};
use xk_streams::{Errno, Kind, Mblk, Module, ModuleInfo, Opening, Priority, Q};

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("atp", include_str!("atp.rs"), build)
    .subsystem("streams")
    .realm(Realm::Rpc)
    .summary("AppleTalk's transactions as a multiplexor of STREAMS")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::WHOLE)
    .service(Service::adding(Guarantees::TRANSACTIONS))
    .header_octets(HEADER_OCTETS)
    .numbers(&[("ddp", 3)])
    .parameters(Settings::PARAMETERS)
    .questions(&[question(
        "usual-transaction",
        "what is asked for where a request says nothing itself",
    )])
    .reasons(&[&REPEATED_REQUEST, &UNASKED]);

xk_appletalk::atp_settings! {
    /// Options of requests that bring none.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {}
}

/// Transactions of this host under way at most.
const TRANSACTIONS_MAX: usize = 1024;
/// Octets in front of a header's block for the headers below.
const HEADROOM: usize = 48;

/// The data of a packet: a message.
struct Data(Mblk);

impl Payload for Data {
    fn octets(&self) -> usize {
        self.0.size()
    }

    fn again(&self) -> Option<Self> {
        self.0.dupmsg().map(Self)
    }

    fn cut(&mut self, octets: usize) -> Option<Self> {
        self.0.split_front(octets).map(Self)
    }

    fn join(&mut self, behind: Self) {
        self.0.linkb(behind.0);
    }
}

/// Owner of a transaction.
struct Owner {
    user: usize,
    number: u16,
    to: AtAddr,
}

struct Atp {
    /// Options of a request that brings none.
    usual: Options,
    mux: Mux<User>,
    requester: RefCell<Requester<AtAddr, Data, Owner>>,
    responder: RefCell<Responder<AtAddr, Data>>,
    clock: Clock,
    /// Whether another user has the socket being claimed, as the line below answered.
    is_taken: Cell<bool>,
    requests: Cell<u64>,
    executed: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    xk_streams::line(build, new(build.cx, Settings::read(build)?))
}

fn new(cx: &Kernel, settings: Settings) -> Rc<Driver<Atp>> {
    let last = cx.random().next_u32() as u16;
    Driver::new(Atp {
        usual: Options::request(&settings.want(), 0),
        mux: Mux::default(),
        requester: RefCell::new(Requester::new(Limits { transactions: TRANSACTIONS_MAX }, last)),
        responder: RefCell::new(Responder::new(Bounds::DEFAULT)),
        clock: Clock::default(),
        is_taken: Cell::new(false),
        requests: Cell::new(0),
        executed: Cell::new(0),
    })
}

/// Adds one on a line of `ddp`, for programs that compose without a graph file.
///
/// # Errors
/// [`BuildError`] in a kernel without the subsystem.
pub fn add(cx: &Kernel, name: &str, ddp: ProtocolRef) -> Result<ProtocolRef, BuildError> {
    xk_streams::add_line(cx, ENTRY.kind, name, &[ddp], new(cx, Settings::default()))
}

type Sent = Result<(), &'static Reason>;

impl Atp {
    /// Claims a socket of the line below; false if another has it there.
    fn claim(&self, cx: &Kernel, socket: u8) -> bool {
        self.is_taken.set(false);
        let wish = Primitive::OptmgmtReq { opt: &[socket, 1], flags: 0 };
        // The answer comes meanwhile; from what is not there, and from what is full, none does.
        let _ = self.mux.below.request(cx, wish);
        !self.is_taken.get()
    }

    /// Sends a packet; what cannot go is counted, and as good as lost.
    fn output(&self, cx: &Kernel, packet: Packet<AtAddr, Data>) {
        if let Err(reason) = self.transmit(cx, packet) {
            self.count(reason);
        }
    }

    fn transmit(&self, cx: &Kernel, packet: Packet<AtAddr, Data>) -> Sent {
        let q = self.mux.below.q().ok_or(&reason::CLOSED)?;
        let header = packet.header.emit();
        let own = AtAddr::new(0, 0, packet.socket).to_sockaddr();
        let size = HEADROOM + HEADER_OCTETS;
        let front = q.blocks().allocb(size, Priority::Low);
        let mut front = front.ok_or(&reason::NO_BUFFERS)?;
        front.reset(HEADROOM);
        if !front.put(&header) {
            return Err(&reason::NO_BUFFERS);
        }
        let whole = match packet.data {
            Some(Data(data)) if data.size() > 0 => front.linked(data),
            _ => front,
        };
        self.mux.below.send(cx, (&packet.to.to_sockaddr(), &own), whole)
    }

    /// Sets the timer for what the machines have to do next.
    fn arm(&self, cx: &Kernel) {
        let due = [self.requester.borrow().due(), self.responder.borrow().due()];
        let next = due.into_iter().flatten().min();
        if let (Some(next), Some(q)) = (next, self.mux.below.q()) {
            self.clock.set(cx, &q, next);
        }
    }

    /// Takes what came or failed of a transaction up to its user.
    fn finish(
        &self,
        cx: &Kernel,
        (kind, owner): (OptionKind, &Owner),
        (wanted, arrived): (u8, Arrived<Data>),
    ) {
        let Some(q) = self.mux.users.of_id(owner.user) else { return };
        let options = Options {
            kind,
            once: None,
            end_of_message: arrived.end_of_message,
            number: owner.number,
            user: arrived.user(),
            bitmap: arrived.bitmap(),
            tries: 0,
            amount: 0,
        };
        let data = arrived.join(wanted).map(|Data(data)| data);
        let data = data.or_else(|| q.blocks().copy(Kind::Data, 0, &[]));
        let up = data.and_then(|data| {
            unitdata_ind(q.blocks(), &owner.to.to_sockaddr(), &options.emit(), data)
        });
        match up {
            Some(up) => q.putnext(cx, up),
            None => self.count(&reason::NO_BUFFERS),
        }
    }

    fn request_arrived(
        &self,
        cx: &Kernel,
        from: AtAddr,
        socket: u8,
        header: &Header,
        data: Mblk,
    ) -> Sent {
        let user = self.mux.users.find(|user| user.socket == Some(socket));
        let q = user.ok_or(&reason::NO_PORT)?;
        if !q.canputnext() {
            return Err(&reason::QUEUE_FULL);
        }
        let now = Clock::now(cx);
        let verdict = self.responder.borrow_mut().request(now, (from, socket), header);
        match verdict {
            Verdict::Execute(ticket) => {
                let options = Options::asked(&ticket, header.user).emit();
                let up = unitdata_ind(q.blocks(), &from.to_sockaddr(), &options, data);
                let Some(up) = up else {
                    self.responder.borrow_mut().refuse(&ticket);
                    return Err(&reason::NO_BUFFERS);
                };
                self.executed.set(self.executed.get() + 1);
                q.putnext(cx, up);
            }
            Verdict::Repeat(segments) => segments.for_each(|packet| self.output(cx, packet)),
            Verdict::InProgress => return Err(&REPEATED_REQUEST),
            Verdict::Full | Verdict::Unreleased => return Err(&reason::TABLE_FULL),
        }
        Ok(())
    }

    fn response_arrived(
        &self,
        cx: &Kernel,
        ends: (AtAddr, u8),
        header: &Header,
        data: Mblk,
    ) -> Sent {
        let now = Clock::now(cx);
        let heard = self.requester.borrow_mut().response(now, ends, header, Data(data));
        match heard {
            Ok(Heard::Kept(again)) => {
                if let Some(packet) = again {
                    self.output(cx, packet);
                }
            }
            Ok(Heard::Done { owner, wanted, arrived, release }) => {
                if let Some(packet) = release {
                    self.output(cx, packet);
                }
                self.finish(cx, (OptionKind::Response, &owner), (wanted, arrived));
            }
            Err(_) => return Err(&UNASKED),
        }
        Ok(())
    }

    fn begin(
        &self,
        cx: &Kernel,
        socket: u8,
        to: AtAddr,
        options: &Options,
        own: Owner,
        data: Mblk,
    ) -> Result<(), SendError> {
        let (now, want) = (Clock::now(cx), options.want());
        let begun = self.requester.borrow_mut().begin(now, (socket, to), &want, Data(data), own);
        let (_, packet) = begun.map_err(|(error, ..)| {
            SendError::Told(match error {
                BeginError::TooBig => Errno::EMSGSIZE,
                BeginError::Full => Errno::EAGAIN,
                BeginError::NoBuffers => Errno::ENOSR,
            })
        })?;
        self.requests.set(self.requests.get() + 1);
        self.output(cx, packet);
        Ok(())
    }

    fn reply(
        &self,
        cx: &Kernel,
        (socket, to): (u8, AtAddr),
        options: &Options,
        data: Mblk,
    ) -> Result<(), SendError> {
        let octets = match options.amount {
            0 => usize::MAX,
            octets => usize::from(octets),
        };
        let ticket = options.ticket(to, socket);
        let (now, data) = (Clock::now(cx), Data(data));
        let replied = self.responder.borrow_mut().reply(now, &ticket, options.user, octets, data);
        let segments = replied.map_err(|(error, _)| {
            SendError::Told(match error {
                ReplyError::TooBig => Errno::EMSGSIZE,
                ReplyError::Unknown | ReplyError::Repeated => Errno::EINVAL,
                ReplyError::NoBuffers => Errno::ENOSR,
            })
        })?;
        segments.for_each(|packet| self.output(cx, packet));
        Ok(())
    }
}

/// A request that is being executed came again.
static REPEATED_REQUEST: Reason = Reason::new("repeated request", reason::Class::NotMine);
/// A response that no transaction waits for.
static UNASKED: Reason = Reason::new("response not asked for", reason::Class::Bad);

impl Multiplexor for Atp {
    type User = User;

    const INFO: ModuleInfo = ModuleInfo::new(0x4154, "atp");

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

    fn control(&self, _: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let answer = match ask.get::<Report>() {
            Some(report) => {
                let lines = [
                    ("requests", self.requests.get().to_string()),
                    ("executed", self.executed.get().to_string()),
                    ("under way", self.requester.borrow().len().to_string()),
                    ("remembered", self.responder.borrow().len().to_string()),
                ];
                report.lines = lines.map(|(name, text)| (name.into(), text)).into();
                report.finished = true;
                Answer::Answered
            }
            None => match ask.answer::<MaxPacket>(|max| max.octets = REPLY_OCTETS_MAX as u32) {
                Answer::Answered => Answer::Answered,
                Answer::Unknown => {
                    ask.answer::<UsualTransaction>(|usual| usual.octets = self.usual.emit())
                }
            },
        };
        answer.is_answered().then_some(answer)
    }

    fn stop(&self) {
        let limits = Limits { transactions: TRANSACTIONS_MAX };
        let requester = self.requester.replace(Requester::new(limits, 0));
        let responder = self.responder.replace(Responder::new(Bounds::DEFAULT));
        drop((requester, responder));
    }
}

impl OverDdp for Atp {
    /// Takes the answer about a socket: a line below that does not know the option leaves the
    /// sockets to ATP.
    fn managed(&self, _: &Kernel, answer: Result<&[u8], Refusal>) {
        let is_taken = answer.is_err_and(|refusal| refusal.unix == Errno::EADDRINUSE);
        self.is_taken.set(is_taken);
    }

    fn arrived(
        &self,
        cx: &Kernel,
        (from, socket): (AtAddr, Option<u8>),
        mut data: Mblk,
    ) -> Result<(), &'static Reason> {
        let socket = socket.ok_or(&reason::NO_PORT)?;
        if !data.pullupmsg(Some(HEADER_OCTETS)) {
            return Err(&reason::TRUNCATED);
        }
        let header = Header::parse(data.octets()).map_err(|_| &reason::MALFORMED)?;
        if !data.skip(HEADER_OCTETS) {
            return Err(&reason::TRUNCATED);
        }
        let done = match header.kind {
            Packets::Request => self.request_arrived(cx, from, socket, &header, data),
            Packets::Response => self.response_arrived(cx, (from, socket), &header, data),
            Packets::Release => {
                let now = Clock::now(cx);
                self.responder.borrow_mut().release(now, (from, socket), header.tid);
                Ok(())
            }
        };
        self.arm(cx);
        done
    }

    fn tick(&self, cx: &Kernel) {
        self.clock.went_off();
        let now = Clock::now(cx);
        loop {
            let due = self.requester.borrow_mut().poll(now);
            match due {
                Some(Due::Again(packet)) => self.output(cx, packet),
                Some(Due::Failed { owner, wanted, arrived }) => {
                    self.finish(cx, (OptionKind::Failed, &owner), (wanted, arrived));
                }
                None => break,
            }
        }
        self.responder.borrow_mut().poll(now);
        self.arm(cx);
    }
}

impl Datagrams for Atp {
    fn module(&self) -> ModuleInfo {
        Self::INFO
    }

    fn info(&self) -> Info {
        Info::datagrams(REPLY_OCTETS_MAX as u32, SOCKADDR_LEN as u32, OPTIONS_OCTETS as u32)
    }

    fn bind(&self, cx: &Kernel, q: &Q, addr: &[u8], _: u32) -> Result<Vec<u8>, Refusal> {
        let is_free = |socket: u8| {
            self.mux.users.find(|user| user.socket == Some(socket)).is_none()
                && self.claim(cx, socket)
        };
        let socket = match socket_of(addr)? {
            0 => SOCKETS_DYNAMIC.into_iter().find(|one| is_free(*one)).ok_or(TliError::TNOADDR)?,
            socket if !is_socket(socket) => return Err(TliError::TBADADDR.into()),
            socket if !is_free(socket) => return Err(Errno::EADDRINUSE.into()),
            socket => socket,
        };
        self.mux.users.with(q, |user| user.socket = Some(socket));
        Ok(AtAddr::new(0, 0, socket).to_sockaddr().into())
    }

    fn unbind(&self, cx: &Kernel, q: &Q) {
        let socket = self.mux.users.with(q, |user| user.socket.take()).flatten();
        if let Some(socket) = socket {
            let back = Primitive::OptmgmtReq { opt: &[socket, 0], flags: 0 };
            // What does not give sockets takes none back.
            let _ = self.mux.below.request(cx, back);
            self.responder.borrow_mut().close(socket);
        }
        let mut requester = self.requester.borrow_mut();
        while let Some(tid) = requester.find(|owner| owner.user == q.id()) {
            drop(requester.cancel(tid));
        }
    }

    fn send(
        &self,
        cx: &Kernel,
        q: &Q,
        (to, opt): (&[u8], &[u8]),
        data: Option<Mblk>,
    ) -> Result<(), SendError> {
        let bad = SendError::Told(Errno::EINVAL);
        let to = AtAddr::from_sockaddr(to).ok_or(bad)?;
        let options = match opt {
            [] => self.usual,
            opt => Options::parse(opt).map_err(|_| bad)?,
        };
        let socket = self.mux.users.with(q, |user| user.socket).flatten().ok_or(bad)?;
        let empty = || q.blocks().copy(Kind::Data, 0, &[]);
        let data = data.or_else(empty).ok_or(SendError::Told(Errno::ENOSR))?;
        let done = match options.kind {
            OptionKind::Request => {
                let owner = Owner { user: q.id(), number: options.number, to };
                self.begin(cx, socket, to, &options, owner, data)
            }
            OptionKind::Response => self.reply(cx, (socket, to), &options, data),
            OptionKind::Refused => {
                self.responder.borrow_mut().refuse(&options.ticket(to, socket));
                Ok(())
            }
            OptionKind::Failed => Err(bad),
        };
        self.arm(cx);
        done
    }

    fn told(&self, reason: &'static Reason) {
        self.count(reason);
    }

    fn has_room(&self, _: &Kernel) -> bool {
        self.mux.below.has_room()
    }

    fn local(&self, q: &Q) -> Vec<u8> {
        let socket = self.mux.users.with(q, |user| user.socket).flatten();
        AtAddr::new(0, 0, socket.unwrap_or(0)).to_sockaddr().into()
    }

    fn ioctl(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        self.link(cx, q, mp, 0);
    }

    fn close(&self, _: &Kernel, q: &Q) {
        self.mux.users.close(q);
    }
}
